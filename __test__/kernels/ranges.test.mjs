/** Tensors larger than one binding may be, with the device's limit made small: in parts, and nothing left out. */
import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { createKernels, pack } from '../../kernels/index.mjs';
import { bits, bufferOf, init, vk } from '../lib/addon.mjs';
import { childJson } from '../lib/child.mjs';
import { INVALID_ARGUMENT, sameWords, throws } from '../lib/expect.mjs';
import { Random } from '../lib/random.mjs';

const LIMIT = 64 << 10;
process.env.HELIOS_TEST_MAX_STORAGE_RANGE = String(LIMIT);
/** Elements of nearly four bindings of f32, with an end that no vector has. */
const N = 60_417;

/** @type {ReturnType<typeof createKernels>} */
let kernels;
before(() => {
  init();
  kernels = createKernels(vk);
});
after(() => kernels.context.releaseWorkspaces());

const random = new Random(7);
const floats = (/** @type {number} */ n) => Float32Array.from({ length: n }, () => ((random.u32() % 4096) - 2048) / 512);
/** @param {import('../../kernels/base.mjs').Dispatches[]} dispatches */
const run = (...dispatches) => {
  const { packed, count } = pack(dispatches);
  vk.batchExecuteAll(packed, count);
  return count;
};

test('the context knows the limit, and views of larger buffers are ranges', () => {
  const { context } = kernels;
  assert.equal(context.bindingBytes, LIMIT);
  assert.deepEqual(context.view(5, { first: 100, count: 8, total: LIMIT / 4, type: 'f32' }), { buffer: 5, offset: 100 });
  assert.deepEqual(context.view(5, { first: 100, count: 8, total: LIMIT / 4 + 1, type: 'f32' }), {
    buffer: { buffer: 5, offset: 256, size: 176 },
    offset: 36,
  });
  assert.deepEqual(context.view(5, { first: 2 ** 31, count: 8, total: 2 ** 32, type: 'bf16' }), {
    buffer: { buffer: 5, offset: 2 ** 32, size: 16 },
    offset: 0,
  });
});

for (const offset of [0, 1, 4]) {
  test(`fills, copies, arithmetic and casts of ${N} elements from element ${offset} on`, () => {
    const data = floats(N + offset);
    const other = floats(N + offset);
    const x = bufferOf(data);
    const z = bufferOf(other);
    const y = vk.createBuffer(4 * (N + offset), 0);
    const at = (/** @type {number} */ buffer) => ({ buffer, offset });
    /** @param {(i: number) => number} f @param {string} what */
    const check = (f, what) => {
      const expected = Float32Array.from({ length: N + offset }, (_, i) => (i < offset ? 7 : f(i)));
      sameWords(bits(vk.readBuffer(y)), bits(expected), what);
      vk.fillBuffer(y, 4 * (N + offset), bits(Float32Array.of(7))[0]);
    };
    vk.fillBuffer(y, 4 * (N + offset), bits(Float32Array.of(7))[0]);
    assert.ok(run(kernels.fill({ y: at(y), count: N, value: 3 })) > 3);
    check(() => 3, 'fill');
    run(kernels.copy({ x: at(x), y: at(y), count: N }));
    check((i) => data[i], 'copy');
    run(kernels.unary({ x: at(x), y: at(y), count: N, op: 'abs', alpha: 2 }));
    check((i) => 2 * Math.abs(data[i]), 'unary');
    run(kernels.binary({ a: at(x), b: at(z), y: at(y), count: N, beta: 0.5 }));
    check((i) => data[i] + 0.5 * other[i], 'binary');
    // 60,417 is 147 times 411: parts of whole periods.
    run(kernels.binary({ a: at(x), b: at(z), y: at(y), count: N, period: 411 }));
    check((i) => data[i] + other[offset + ((i - offset) % 411)], 'binary with a period');
    [x, y, z].forEach((buffer) => vk.destroyBuffer(buffer));
  });
}

test('casts to bf16 and back', () => {
  const n = N + 1;
  const data = floats(n);
  const [x, h, y] = [bufferOf(data), vk.createBuffer(2 * n, 0), vk.createBuffer(4 * n, 0)];
  run(kernels.cast({ x, y: h, count: n, from: 'f32', to: 'bf16' }), kernels.cast({ x: h, y, count: n, from: 'bf16', to: 'f32' }));
  const words = bits(vk.readBuffer(y));
  const expected = bits(data).map((word) => (((word + 0x7fff + ((word >>> 16) & 1)) >>> 16) << 16) >>> 0);
  sameWords(words, expected, 'cast');
  [x, h, y].forEach((buffer) => vk.destroyBuffer(buffer));
});

test('sums and extremes of all elements', () => {
  const data = floats(N).map(Math.round);
  data[N - 2] = 1000;
  const x = bufferOf(data);
  const y = vk.createBuffer(16);
  run(
    kernels.reduceAll({ x, y, count: N }),
    kernels.reduceAll({ x, y: { buffer: y, offset: 1 }, count: N, op: 'max' }),
    kernels.reduceAll({ x, y: { buffer: y, offset: 2 }, count: N, op: 'sumOfSquares' }),
  );
  const sum = data.reduce((total, value) => total + value, 0);
  const squares = data.reduce((total, value) => total + value * value, 0);
  assert.deepEqual([...vk.readBuffer(y).subarray(0, 3)], [sum, 1000, squares]);
  [x, y].forEach((buffer) => vk.destroyBuffer(buffer));
});

test('clipping and AdamW give the bits of a run without the limit', async () => {
  const source = (/** @type {string} */ random) => `
    init();
    const { createKernels, optimizerState, pack } = await import('${new URL('../../kernels/index.mjs', import.meta.url)}');
    const kernels = createKernels(vk);
    const n = 60000;
    const data = (seed) => Float32Array.from({ length: n }, (_, i) => ${random});
    const [p, m, v, g] = [1, 2, 3, 4].map((seed) => bufferOf(data(seed).map((x) => (seed === 3 ? x * x : x))));
    const [h, permuted] = [vk.createBuffer(2 * n, 0), vk.createBuffer(2 * n, 0)];
    const state = bufferOf(optimizerState({ rate: 1e-2, maxNorm: 1 }));
    const list = [kernels.optimizerAdvance({ state }), kernels.gradientClip({ gradient: g, count: n, state }),
      kernels.adamw({ parameters: p, first: m, second: v, gradient: g, state, count: n, decayCount: 40002, copy: h, copyType: 'bf16', permuted })];
    const { packed, count } = pack(list);
    vk.batchExecuteAll(packed, count);
    const sum = (buffer) => words(buffer).reduce((h, word) => (Math.imul(h, 31) + word) | 0, 0);
    process.stdout.write(JSON.stringify({ count, sums: [p, m, v, h, permuted, state].map(sum) }));
  `;
  const text = source('Math.sin(seed * 1000 + i * 0.7)');
  const whole = await childJson(text, { env: { HELIOS_TEST_MAX_STORAGE_RANGE: undefined } });
  const parts = await childJson(text, { env: { HELIOS_TEST_MAX_STORAGE_RANGE: String(LIMIT) } });
  assert.ok(parts.count >= whole.count + 6, `${parts.count} dispatches`);
  assert.deepEqual(parts.sums, whole.sums);
});

test('what cannot go in parts is refused', () => {
  const x = bufferOf(floats(N));
  const y = vk.createBuffer(4 * N, 0);
  const row = { x, y, rows: 1, columns: N };
  const { packed, count } = pack(kernels.reduceRows(row));
  throws(() => vk.batchExecuteAll(packed, count), INVALID_ARGUMENT, [x, 4 * N, LIMIT], [RangeError]);
  assert.throws(() => kernels.reduceToSlot({ x, y, count: N }), /more than a binding/);
  assert.throws(() => kernels.binary({ a: x, b: x, y, count: N, period: N / 3 }), /do not fit in a binding/);
  for (const buffer of [{}, { buffer: 1.5 }, { buffer: x, size: 0 }, { buffer: x, offset: -1 }, null]) {
    assert.throws(() => kernels.fill({ y: /** @type {any} */ ({ buffer }), count: 4, value: 0 }), /fill: y/);
  }
  [x, y].forEach((buffer) => vk.destroyBuffer(buffer));
});

test('copy of 40 M floats is whole', async () => {
  const ends = await childJson(
    `
    init();
    const { createKernels, pack } = await import('${new URL('../../kernels/index.mjs', import.meta.url)}');
    const kernels = createKernels(vk);
    const n = 40_000_000;
    const [x, y] = [vk.createBuffer(4 * n, 0), vk.createBuffer(4 * n, 0)];
    vk.fillBuffer(x, 4 * n, 5);
    vk.fillBuffer(y, 4 * n, 0);
    const { packed, count } = pack(kernels.copy({ x, y, count: n }));
    vk.batchExecuteAll(packed, count);
    process.stdout.write(JSON.stringify(words(y).every((word) => word === 5)));
  `,
    { env: { HELIOS_TEST_MAX_STORAGE_RANGE: undefined } },
  );
  assert.equal(ends, true);
});
