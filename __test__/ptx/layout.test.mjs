// Swizzles, descriptors and orders in shared memory, each against its definition.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { packParameters, parameterLayout } from '../../kernels/hopper/assembler.mjs';
import {
  columnOf,
  depthStep,
  descriptor,
  elementOffset,
  lineBytes,
  moves,
  rowBlockBytes,
  permuteRows,
  swizzledChunk,
} from '../../kernels/hopper/layout.mjs';
import { descriptorAddresses } from './machine.mjs';

const FORMS = /** @type {const} */ ([
  ['k', 16],
  ['k', 32],
  ['k', 64],
  ['mn', 16],
  ['mn', 32],
  ['mn', 64],
]);

/** Group of four banks, of eight, that 16 bytes at this byte are in. @param {number} byte */
const bankGroup = (byte) => (byte >> 4) & 7;

test('a swizzle permutes the chunks of a line', () => {
  for (const bytes of [32, 64, 128]) {
    for (let line = 0; line < 16; line++) {
      const chunks = Array.from({ length: bytes / 16 }, (_, chunk) => swizzledChunk(bytes, line, chunk));
      assert.deepEqual(
        chunks.toSorted((x, y) => x - y),
        chunks.map((_, i) => i),
      );
    }
  }
});

test('the same chunk of eight lines, which wgmma reads together, is in all banks', () => {
  for (const bytes of [32, 64, 128]) {
    for (let chunk = 0; chunk < bytes / 16; chunk++) {
      const groups = Array.from({ length: 8 }, (_, line) => bankGroup(line * bytes + swizzledChunk(bytes, line, chunk) * 16));
      assert.equal(new Set(groups).size, 8, `lines of ${bytes} bytes, chunk ${chunk}`);
    }
  }
});

test('a descriptor leads wgmma to where elementOffset puts an element', () => {
  for (const [major, bk] of FORMS) {
    const { low, high } = descriptor(major, bk);
    for (const start of [0, 8192]) {
      for (let slab = 0; slab < bk / 16; slab++) {
        for (const block of [0, 1]) {
          const address = start + slab * depthStep(major) + block * rowBlockBytes(bk);
          const bits = (BigInt(high) << 32n) | BigInt(low + (address >> 4));
          const place = descriptorAddresses(bits, major === 'mn');
          for (let x = 0; x < 64; x++) {
            for (let k = 0; k < 16; k++) {
              const expected = start + elementOffset(major, bk, 64 * block + x, 16 * slab + k);
              assert.equal(place(x, k), expected, `${major} ${bk}: element ${x}, ${k} of slab ${slab}, block ${block}`);
            }
          }
        }
      }
    }
  }
});

test('columnOf gives a lane of a quad eight neighbours, and maps bits to bits', () => {
  for (let q = 0; q < 4; q++) {
    const columns = [0, 1, 2, 3].flatMap((j) => [0, 1].map((e) => columnOf(32 + 8 * j + 2 * q + e)));
    assert.deepEqual(
      columns,
      Array.from({ length: 8 }, (_, i) => 32 + 8 * q + i),
    );
  }
  for (let x = 0; x < 256; x++) {
    for (let y = 0; y < 256; y++) if ((x & y) === 0) assert.equal(columnOf(x + y), columnOf(x) + columnOf(y));
  }
  assert.equal(new Set(Array.from({ length: 256 }, (_, x) => columnOf(x))).size, 256);
});

test('permuteRows puts each 32 of a row in the order of columnOf, and back', () => {
  const rows = Uint16Array.from({ length: 3 * 96 }, (_, i) => i);
  const permuted = permuteRows(rows, 96);
  // As [2, 2, 4, 2], of which the last but one comes first.
  assert.deepEqual(
    [...permuted.subarray(96, 96 + 12)],
    [0, 1, 8, 9, 16, 17, 24, 25, 2, 3, 10, 11].map((x) => 96 + x),
  );
  for (let i = 0; i < rows.length; i++) assert.equal(permuted[i], (i & ~31) + columnOf(i & 31));
  assert.deepEqual(permuteRows(permuted, 96), rows);
  for (const columns of [0, 48, 64, 96.5])
    assert.throws(() => permuteRows(rows, columns), /permuteRows: expected whole rows of columns = .*, got 288 elements/);
});

test('threads move every chunk of a stage once, a quarter warp without bank conflicts', () => {
  for (const [major, bk] of FORMS) {
    const bytes = lineBytes(major, bk);
    const perLine = bytes / 16;
    for (const permute of [false, true]) {
      if (permute && major === 'mn' && bk < 32) continue; // depths are permuted within 32
      const list = moves({ major, bk, extent: 128, threads: 128, permuteX: permute && major === 'k', permuteK: permute && major === 'mn' });
      const places = new Set();
      const elements = new Set();
      for (const { line, x, k } of list) {
        for (let t = 0; t < 128; t++) {
          const [chunk, own] = [t % perLine, Math.floor(t / perLine)];
          const at = (line + own) * bytes + swizzledChunk(bytes, line + own, chunk) * 16;
          places.add(at);
          const ownLine = permute ? columnOf(own) : own;
          elements.add(major === 'k' ? `${x + ownLine} ${k + 8 * chunk}` : `${x + 8 * chunk} ${k + ownLine}`);
          if (t % 8 === 0) {
            const groups = Array.from({ length: 8 }, (_, i) => {
              const row = line + Math.floor((t + i) / perLine);
              return bankGroup(row * bytes + swizzledChunk(bytes, row, (t + i) % perLine) * 16);
            });
            assert.equal(new Set(groups).size, 8, `${major} ${bk}, thread ${t}`);
          }
        }
      }
      assert.equal(places.size, (128 * bk * 2) / 16, `${major} ${bk}: places`);
      assert.equal(elements.size, (128 * bk) / 8, `${major} ${bk}: elements`);
    }
  }
  assert.throws(() => moves({ major: 'k', bk: 16, extent: 32, threads: 128, permuteX: false, permuteK: false }), /do not divide/);
});

test('parameters are packed, each aligned to its size', () => {
  const parameters = /** @type {const} */ ([
    { name: 'n', type: 'u32' },
    { name: 'a', type: 'u64' },
    { name: 'x', type: 'f32' },
  ]);
  assert.deepEqual(parameterLayout(parameters), { offsets: { n: 0, a: 8, x: 16 }, size: 20 });
  const block = packParameters(parameters, { n: 7, a: 0x1_0000_0002n, x: 1 });
  assert.deepEqual([...new Uint32Array(block.buffer)], [7, 0, 2, 1, 0x3f800000]);
  assert.throws(() => packParameters(parameters, { n: 7, a: 1n }), /no value for x/);
});
