// Copies of rows that are no multiple of 16 bytes, as products in PTX take them (kernels/hopper/pads.mjs): the bits of every row, zeros behind it, and
// nothing else written. Products on copies run in __test__/ptx/ and, on a device that takes PTX, in matmul-ptx.test.mjs.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { KernelContext, pack } from '../../kernels/base.mjs';
import { onCopies } from '../../kernels/hopper/pads.mjs';
import { vk } from '../lib/addon.mjs';

vk.initDevice();
const context = new KernelContext(vk);
after(() => vk.destroy());

/** Elements of poison before a tensor and after it. */
const GUARD = 64;
const POISON = 0x7fc1;

/** @param {number} count */
const counting = (count) => Uint16Array.from({ length: count }, (_, i) => (i * 40503) & 0xffff);

/** @param {Uint16Array} halves */
function upload(halves) {
  const bytes = new Uint8Array(Math.ceil(halves.byteLength / 4) * 4);
  bytes.set(new Uint8Array(halves.buffer, halves.byteOffset, halves.byteLength));
  const buffer = vk.createBuffer(bytes.length, 0);
  vk.uploadBuffer(buffer, new Uint32Array(bytes.buffer));
  return buffer;
}

/** @param {any} buffer */
const read = (buffer) => new Uint16Array(new Uint8Array(vk.readBuffer(buffer).buffer).buffer);

/** @param {any} dispatches */
function run(dispatches) {
  const { packed, count } = pack(dispatches);
  vk.waitTimeline(vk.batchExecuteAll(packed, count));
}

test('rows of halves get room behind them, from any element of a buffer and any distance of rows', () => {
  for (const [rows, columns, ld, offset] of [
    [5, 650, 650, 0],
    [5, 651, 651, 0],
    [3, 7, 7, 3],
    [4, 6, 9, 5],
    [4, 8, 9, 1],
    [2, 16, 16, 4],
    [1, 1, 1, 1],
  ]) {
    const from = counting(offset + rows * ld);
    const a = upload(from);
    const padded = Math.ceil(columns / 8) * 8;
    const product = /** @type {any} */ ({ a: { buffer: a, offset }, lda: ld });
    const pads = /** @type {any} */ ([{ name: 'a', rows, columns, ld: padded, type: 'bf16' }]);
    const { product: own, before, after: back } = onCopies(context, product, pads);
    assert.deepEqual([own.lda, before.length, back.length], [padded, 1, 0]);
    run(before);
    const got = read(/** @type {any} */ (own.a.buffer).buffer);
    for (let i = 0; i < rows * padded; i++) {
      const [row, column] = [Math.floor(i / padded), i % padded];
      const want = column < columns ? from[offset + row * ld + column] : 0;
      assert.equal(got[i], want, `${rows} x ${columns} of ${ld} from ${offset}: row ${row}, column ${column}`);
    }
    vk.destroyBuffer(a);
  }
});

test('results are copied back to rows without gaps, and nothing beside them is written', () => {
  for (const [rows, columns, type] of /** @type {[number, number, 'bf16' | 'f32'][]} */ ([
    [5, 650, 'bf16'],
    [5, 651, 'bf16'],
    [3, 1, 'bf16'],
    [9, 7, 'bf16'],
    [3, 11, 'f32'],
    [4, 75, 'f32'],
  ])) {
    const size = type === 'f32' ? 2 : 1;
    const count = rows * columns * size;
    const c = upload(new Uint16Array(2 * GUARD + count).fill(POISON));
    const ld = Math.ceil(columns / 8) * 8;
    const product = /** @type {any} */ ({ c: { buffer: c, offset: GUARD / size }, ldc: columns });
    const { product: own, before, after: back } = onCopies(context, product, /** @type {any} */ ([{ name: 'c', rows, columns, ld, type }]));
    assert.deepEqual([own.ldc, before.length, back.length], [ld, 0, 1]);
    const from = counting(rows * ld * size);
    const { buffer, offset } = /** @type {any} */ (own.c.buffer);
    vk.uploadBuffer(buffer, new Uint32Array(new Uint8Array(from.buffer).slice().buffer, 0, from.length / 2));
    assert.equal(offset, 0);
    run(back);
    const got = read(c);
    for (let i = 0; i < 2 * GUARD + count; i++) {
      const at = i - GUARD;
      const [row, column] = [Math.floor(at / (columns * size)), at % (columns * size)];
      assert.equal(got[i], at >= 0 && at < count ? from[row * ld * size + column] : POISON, `${rows} x ${columns} of ${type}: ${at}`);
    }
    vk.destroyBuffer(c);
  }
});
