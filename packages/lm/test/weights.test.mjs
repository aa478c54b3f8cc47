// Weights on their way to the device: read ahead into memory that takes turns, and given up in the middle.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as after } from 'node:timers/promises';

import { bf16Bits, f16Bits, f16Value, q8ToBlocks } from 'helios-vk/kernels';

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
    uploadBuffer(/** @type {number} */ buffer, /** @type {Uint8Array} */ bytes) {
      if (++uploads === failAt) throw new Error('the device is lost');
      buffers.get(buffer)?.set(new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength));
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

/** A block of q8_0 by llama.cpp's rule, number by number. @param {Float32Array} block */
function blockOf(block) {
  const d = Math.fround(block.reduce((most, x) => Math.max(most, Math.abs(x)), 0) / 127);
  const quant = (/** @type {number} */ x) => {
    if (d === 0) return 0;
    if (!(d < Infinity)) return x < 0 ? -1 : 1;
    const scaled = Math.fround(x * Math.fround(1 / d));
    return Math.sign(scaled) * Math.floor(Math.abs(scaled) + 0.5);
  };
  return { scale: f16Bits(d), quants: Array.from(block, quant) };
}

for (const type of /** @type {const} */ (['f32', 'f16', 'bf16', 'q8_0'])) {
  test(`${type} is loaded as q8_0 with the bytes of llama.cpp's rule`, async () => {
    // More than one stretch, in two parts; each kind of block at both ends.
    const shapes = [
      [3, 4096],
      [5, 4128],
    ];
    const kinds = [
      () => 0,
      (/** @type {number} */ i) => (i === 5 ? NaN : i - 7),
      (/** @type {number} */ i) => (i === 9 ? -Infinity : 7 - i),
      (/** @type {number} */ i) => (i - 15.5) * 2 ** -22,
      (/** @type {number} */ i) => (i === 0 ? 127 : ((i % 4) - 1.5) * 3),
      (/** @type {number} */ i) => Math.sin(i * 12.9898) * 0.04,
    ];
    const parts = shapes.map((shape, p) => {
      const count = shape[0] * shape[1];
      const numbers = Float32Array.from({ length: count }, (_, i) => {
        const fromEnd = count - 1 - i;
        const kind = Math.min(i >> 5, fromEnd >> 5, 5);
        return kinds[kind](kind < 5 ? i % 32 : i + p);
      });
      const halves = Uint16Array.from(numbers, type === 'bf16' ? bf16Bits : f16Bits);
      const wide = new Uint32Array(count);
      const floats = new Float32Array(wide.buffer);
      for (let i = 0; i < count; i++) {
        if (type === 'bf16') wide[i] = halves[i] << 16;
        else if (type === 'f16') floats[i] = f16Value(halves[i]);
        else floats[i] = numbers[i];
      }
      const blocks = Array.from({ length: count / 32 }, (_, b) => blockOf(floats.subarray(32 * b, 32 * b + 32)));
      const quants = Int8Array.from(blocks.flatMap((block) => block.quants));
      const scales = Uint16Array.from(blocks, ({ scale }) => scale);
      const file = { f32: floats, f16: halves, bf16: halves, q8_0: q8ToBlocks({ quants, scales }) }[type];
      return { shape, quants, scales, file: new Uint8Array(file.buffer, file.byteOffset, file.byteLength) };
    });
    // Each part is a parameter, and a third one has the first part twice.
    const whole = parts.map(({ shape }, i) => ({ name: `${i}`, parameter: `${i}.weight`, shape }));
    const twice = [0, 1].map((i) => ({ name: '0', parameter: 'twice.weight', shape: shapes[0], row: 3 * i }));
    const source = {
      parts: [...whole, ...twice],
      typeOf: () => type,
      keeps: () => type,
      read: async (/** @type {{ name: string }} */ { name }, /** @type {Uint8Array} */ into) => into.set(parts[Number(name)].file),
    };
    const { vk, buffers } = deviceOf();
    const weights = await uploadWeights(vk, /** @type {any} */ (source), { dtype: 'q8_0' });
    const expected = { '0.weight': [parts[0]], '1.weight': [parts[1]], 'twice.weight': [parts[0], parts[0]] };
    for (const [name, of] of Object.entries(expected)) {
      const bytesOf = (/** @type {('quants' | 'scales')} */ key) => Buffer.concat(of.map((part) => Buffer.from(part[key].buffer)));
      const { type: got, buffer, scales = -1 } = weights[name];
      assert.equal(got, 'q8_0');
      const padded = (/** @type {Buffer} */ bytes) => Buffer.concat([bytes, Buffer.alloc(-bytes.length & 3)]);
      assert.equal(Buffer.compare(/** @type {Uint8Array} */ (buffers.get(buffer)), padded(bytesOf('quants'))), 0, `${name}, quants`);
      assert.equal(Buffer.compare(/** @type {Uint8Array} */ (buffers.get(scales)), padded(bytesOf('scales'))), 0, `${name}, scales`);
    }
  });
}

test('a type that cannot hold a weight is refused, with its name', async () => {
  const { source } = sourceOf('f32');
  source.read = async (/** @type {{ name: string }} */ { name }, /** @type {Uint8Array} */ into) =>
    new Float32Array(into.buffer, into.byteOffset, into.length / 4).fill(name === '3' ? -65520 : 65519);
  const { vk, buffers } = deviceOf();
  await assert.rejects(uploadWeights(vk, source, { dtype: 'f16' }), {
    name: 'RangeError',
    message: '3 has numbers beyond the largest of f16, 65504: choose bf16 or f32',
  });
  assert.equal(buffers.size, 0);
  assert.equal(Object.keys(await uploadWeights(vk, source, { dtype: 'bf16' })).length, 6);
});
