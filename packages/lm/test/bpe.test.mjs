// Byte-level BPE against the definition: the table of words, the encoder and the trainer.

import { test } from 'node:test';
import assert from 'node:assert/strict';

import { wordEncoder } from '../src/tokenizer/bpe.mjs';
import { trainTokenizer } from '../src/tokenizer/index.mjs';
import { byteStrings } from '../src/tokenizer/strings.mjs';

/** Pseudorandom integers below a bound. @param {number} seed */
function randomFrom(seed) {
  let state = seed;
  return (/** @type {number} */ below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state >>> 8) % below;
  };
}

test('a table of byte strings numbers them in order, while it grows and after it was cleared', () => {
  const random = randomFrom(1);
  const table = byteStrings();
  for (let round = 0; round < 2; round++) {
    /** @type {Map<string, number>} */
    const known = new Map();
    const all = [];
    for (let i = 0; i < 20_000; i++) {
      const source = Uint8Array.from({ length: 8 + random(70) }, () => random(3));
      const start = random(8);
      const end = start + random(i % 4 === 0 ? 2 : source.length - start + 1);
      const key = Buffer.from(source.subarray(start, end)).toString('latin1');
      const number = known.get(key);
      assert.equal(table.find(source, start, end), number ?? -1);
      if (number === undefined) {
        all.push(...source.subarray(start, end));
        known.set(key, known.size);
      }
      assert.equal(table.intern(source, start, end), number ?? known.size - 1);
      assert.deepEqual([table.size, table.bytes], [known.size, all.length]);
    }
    assert.ok(known.size > 5000 && known.has(''));
    assert.deepEqual(Buffer.from(table.all()), Buffer.from(all));
    table.clear();
    assert.deepEqual([table.size, table.bytes, table.find(new Uint8Array(1), 0, 1)], [0, 0, -1]);
  }
});

/**
 * BPE by its definition: joins the leftmost pair of lowest rank until there is none.
 * @param {number[]} ids @param {number[][]} merges
 */
function merged(ids, merges) {
  for (;;) {
    let [best, at] = [-1, -1];
    for (let i = 0; i + 1 < ids.length; i++) {
      const rank = merges.findLastIndex(([left, right]) => left === ids[i] && right === ids[i + 1]);
      if (rank >= 0 && (best < 0 || rank < best)) [best, at] = [rank, i];
    }
    if (best < 0) return ids;
    ids.splice(at, 2, merges[best][2]);
  }
}

test('words of every length have the ids of the definition, bytes that the vocabulary lacks too', () => {
  const random = randomFrom(2);
  for (let round = 0; round < 6; round++) {
    // Bytes 0 to 3 are ids 0 to 3, byte 4 is missing. Later merges join earlier ones; some pairs are listed twice.
    const byteIds = new Int32Array(256).fill(-1);
    for (let byte = 0; byte < 4; byte++) byteIds[byte] = byte;
    const merges = Array.from({ length: 40 }, (_, i) => [random(4 + i), random(4 + i), 4 + i]);
    merges.push([...merges[3]], [...merges[9]]);
    const model = {
      byteIds,
      merges: Int32Array.from(merges.flat()),
      unknown: round % 3 === 0 ? undefined : 99,
      fuseUnknown: round % 3 === 2,
    };
    const encode = wordEncoder(model);
    for (let length = 1; length < 80; length++) {
      const text = Uint8Array.from({ length: length + 3 }, () => random(round < 3 ? 4 : 5));
      /** @type {number[]} */
      const symbols = [];
      text.subarray(3).forEach((byte, i) => {
        if (byte < 4) symbols.push(byte);
        else if (model.unknown !== undefined && !(model.fuseUnknown && i > 0 && text[i + 2] === 4)) symbols.push(99);
      });
      const expected = merged(symbols, merges);
      // The second time, a short word comes from the cache.
      for (let time = 0; time < 2; time++) {
        const out = { ids: new Uint32Array(2), length: 0 };
        encode(text, 3, text.length, out);
        assert.deepEqual([...out.ids.subarray(0, out.length)], expected, `${length} bytes`);
      }
    }
  }
});

test('training merges the most frequent pair, counted anew each time', async () => {
  const random = randomFrom(3);
  for (let round = 0; round < 4; round++) {
    const words = Array.from({ length: 120 }, () => ` ${Array.from({ length: 1 + random(12) }, () => 'abcd'[random(round + 1)]).join('')}`);
    const tokenizer = await trainTokenizer(words, { vocabSize: 256 + 30 });
    const counts = words.map((word) => Array.from(word.replace(' ', '\u0120'), (symbol) => /** @type {number} */ (tokenizer.idOf(symbol))));
    const found = [];
    for (let id = 256; id < tokenizer.vocabSize; id++) {
      /** @type {Map<string, number>} */
      const pairs = new Map();
      for (const word of counts) {
        for (let i = 1; i < word.length; i++) pairs.set(`${word[i - 1]},${word[i]}`, (pairs.get(`${word[i - 1]},${word[i]}`) ?? 0) + 1);
      }
      const [[pair]] = [...pairs].sort(([a, m], [b, n]) => {
        const [[left, right], [otherLeft, otherRight]] = [a, b].map((key) => key.split(',').map(Number));
        return n - m || left - otherLeft || right - otherRight;
      });
      const [left, right] = pair.split(',').map(Number);
      found.push([tokenizer.tokenOf(left), tokenizer.tokenOf(right)]);
      for (const word of counts) {
        for (let i = 0; i + 1 < word.length; i++) if (word[i] === left && word[i + 1] === right) word.splice(i, 2, id);
      }
    }
    assert.deepEqual(tokenizer.toJSON().model.merges, found);
    assert.ok(found.length > 4);
  }
});
