// `Tokenizer.cut`: encoding a text in parts gives the ids of the whole text.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { piecesOf } from '../src/data/pieces.mjs';
import { PATTERNS, loadTokenizer, trainTokenizer } from '../src/tokenizer/index.mjs';
import { makeTexts } from './fixtures/tokenizer-texts.mjs';
import { temporaryFolder } from '../../../__test__/lib/folder.mjs';

const { novel, code, random } = makeTexts();
const CUTS = { before: /(?<=\P{White_Space})\n/gu, after: /(?<=\n)\P{White_Space}/gu };

test('a text that is cut where the tokenizer says has the ids of the whole', async () => {
  const odd = ['a\n\n b', 'é\n', "it's\n\n\n  'll\n x", '日本\n語\r\n\r\n k\n\t\n1a\n2', 'x\u0301\ny\n\u0301z', 'end.\n'].join('');
  let state = 1;
  const space = Array.from({ length: 3000 }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return 'a.1 \n\r\t\u2003-'[(state >>> 8) % 9];
  }).join('');
  for (const pattern of Object.keys(PATTERNS)) {
    const trained = await trainTokenizer([novel.slice(0, 120_000)], { vocabSize: 600, pattern, special: ['<|x|>'] });
    const json = trained.toJSON();
    const digits = { type: 'Digits', individual_digits: true };
    const stages = json.pre_tokenizer.pretokenizers ?? [json.pre_tokenizer];
    for (const tokenizer of [
      trained,
      loadTokenizer({ ...json, pre_tokenizer: { type: 'Sequence', pretokenizers: [digits, ...stages] } }),
    ]) {
      const cut = /** @type {keyof typeof CUTS} */ (tokenizer.cut);
      assert.equal(cut, pattern === 'gpt2' ? 'before' : 'after');
      for (const text of [odd, space, novel.slice(0, 20_000), code.slice(0, 20_000), random.slice(0, 20_000)]) {
        const whole = tokenizer.encode(text, { addSpecial: false });
        let from = 0;
        const parts = [];
        for (const { index } of text.matchAll(CUTS[cut])) {
          parts.push(...tokenizer.encode(text.slice(from, index), { addSpecial: false }));
          from = index;
        }
        parts.push(...tokenizer.encode(text.slice(from), { addSpecial: false }));
        assert.ok(from > 0);
        assert.deepEqual(parts, [...whole], pattern);
      }
    }
    const cutOf = (/** @type {object} */ changes) => loadTokenizer({ ...json, ...changes }).cut;
    const token = { id: 600, content: 'word', special: true };
    assert.equal(cutOf({ normalizer: { type: 'NFC' } }), trained.cut);
    assert.equal(cutOf({ added_tokens: [{ ...token, rstrip: true }] }), pattern === 'gpt2' ? undefined : 'after');
    assert.equal(cutOf({ added_tokens: [{ ...token, lstrip: true }] }), pattern === 'gpt2' ? 'before' : undefined);
    assert.equal(cutOf({ added_tokens: [{ ...token, content: '.\na' }] }), undefined);
    assert.equal(cutOf({ pre_tokenizer: { type: 'ByteLevel', add_prefix_space: true, use_regex: true } }), undefined);
    assert.equal(cutOf({ pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, use_regex: false } }), undefined);
  }
});

test('pieces of a text are cut there, at the ends of paragraphs too', async (t) => {
  const folder = temporaryFolder(t);
  const path = join(folder, 'text.txt');
  // No letter stands before a line feed, and wide spaces stand beside some.
  const text = 'A paragraph of text, with an end.\n\nAnother (one)\n\u3000indented.\u2003\n\n\n\u65e5\u672c\u3002\n\u65e5'.repeat(200);
  writeFileSync(path, text);
  for (const cut of /** @type {const} */ (['before', 'after'])) {
    const pieces = [];
    for await (const { bytes = new Uint8Array() } of piecesOf(path, { cut, pieceBytes: 301 })) pieces.push(Buffer.from(bytes).toString());
    assert.equal(pieces.join(''), text);
    assert.ok(pieces.length > 30, String(pieces.length));
    for (const piece of cut === 'before' ? pieces.slice(1) : pieces.slice(0, -1)) assert.equal(piece.at(cut === 'before' ? 0 : -1), '\n');
    for (const piece of cut === 'before' ? pieces.slice(0, -1) : pieces.slice(1)) assert.match(piece, cut === 'before' ? /\S$/ : /^\S/);
  }
});
