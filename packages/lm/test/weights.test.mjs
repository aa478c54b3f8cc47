// Weights on their way to the device: read ahead into memory that takes turns, and given up in the middle.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as after } from 'node:timers/promises';

import { uploadWeights } from '../src/infer/weights.mjs';

/** A device that keeps what is uploaded, and fails at the upload of this number. @param {number} [failAt] */
function deviceOf(failAt = Infinity) {
  /** @type {Map<number, Uint8Array>} */
  const buffers = new Map();
  let [made, uploads] = [0, 0];
  const vk = {
    createBuffer(/** @type {number} */ bytes) {
      buffers.set(++made, new Uint8Array(bytes));
      return made;
    },
    destroyBuffer: (/** @type {number} */ buffer) => assert.ok(buffers.delete(buffer), `buffer ${buffer} is destroyed twice`),
    setName() {},
    uploadAsync(/** @type {number} */ buffer, /** @type {Uint8Array} */ bytes, at = 0) {
      if (++uploads === failAt) throw new Error('the device is lost');
      buffers.get(buffer)?.set(new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength), at);
    },
  };
  return { vk: /** @type {any} */ (vk), buffers };
}

/**
 * Six matrices of different sizes, matrix i of bytes i + 1. A read writes the first half at once, and the other when some time has passed.
 * @param {'f32' | 'q8_0'} type @param {(i: number) => void} [read] called as a read of matrix i ends
 */
function sourceOf(type, read = () => {}) {
  const rows = [4, 8, 2, 16, 1, 6];
  let reading = 0;
  const source = {
    parts: rows.map((count, i) => ({ name: `${i}`, parameter: `${i}.weight`, shape: [count, 32] })),
    typeOf: () => type,
    keeps: () => type,
    async read(/** @type {{ name: string }} */ { name }, /** @type {Uint8Array} */ into) {
      reading++;
      into.fill(Number(name) + 1, 0, into.length / 2);
      await after(2);
      reading--;
      read(Number(name));
      into.fill(Number(name) + 1, into.length / 2);
    },
  };
  return { source: /** @type {any} */ (source), reading: () => reading };
}

test('each parameter gets its own bytes, though the next is read meanwhile', async () => {
  const { vk, buffers } = deviceOf();
  const shares = /** @type {number[]} */ ([]);
  const weights = await uploadWeights(vk, sourceOf('f32').source, { onProgress: (share) => shares.push(share) });
  const found = Object.values(weights).map(({ buffer, rows, columns }) => {
    const bytes = /** @type {Uint8Array} */ (buffers.get(buffer));
    return [rows, columns, bytes.length, [...new Set(bytes)].join()];
  });
  assert.deepEqual(
    found,
    [4, 8, 2, 16, 1, 6].map((rows, i) => [rows, 32, 128 * rows, `${i + 1}`]),
  );
  assert.deepEqual(
    shares,
    [1, 2, 3, 4, 5, 6].map((i) => i / 6),
  );
});

for (const type of /** @type {const} */ (['f32', 'q8_0'])) {
  test(`${type}: a read that fails, an abort and a device that fails give everything back, and report themselves`, async () => {
    const gone = new Error('the file is gone');
    const fails = (/** @type {number} */ at) => (/** @type {number} */ i) => {
      if (i === at) throw gone;
    };
    for (let at = 0; at < 6; at++) {
      const { vk, buffers } = deviceOf();
      const { source, reading } = sourceOf(type, fails(at));
      await assert.rejects(uploadWeights(vk, source), gone);
      assert.deepEqual([buffers.size, reading()], [0, 0], `the read of ${at}`);
    }
    for (let at = 0; at < 6; at++) {
      const { vk, buffers } = deviceOf();
      const stop = new AbortController();
      const { source, reading } = sourceOf(type, (i) => i === at && stop.abort());
      await assert.rejects(uploadWeights(vk, source, { signal: stop.signal }), { name: 'AbortError' });
      assert.deepEqual([buffers.size, reading()], [0, 0], `aborted at ${at}`);
    }
    // The device fails while the next parameter is read, which fails too: the first failure is told.
    for (let at = 1; at <= (type === 'f32' ? 6 : 12); at++) {
      const { vk, buffers } = deviceOf(at);
      const { source, reading } = sourceOf(type, fails(Math.ceil(at / (type === 'f32' ? 1 : 2))));
      await assert.rejects(uploadWeights(vk, source), /the device is lost/);
      assert.deepEqual([buffers.size, reading()], [0, 0], `upload ${at}`);
    }
  });
}
