// Matrix products against a float64 reference on random data: all transposes, odd sizes, strides, epilogues, splits.
// The reference computes with the numbers that the buffers hold, after rounding to their types. Tolerances by relative
// norm, for K of up to some hundreds:
// - f32 sums of exact products, as those of halves are: 2e-6 by f32 arithmetic (about sqrt(K) * 2^-24), 2e-5 on matrix
//   units, which may truncate where they add (sums in f16 would be off by 2e-4 and more);
// - a result stored as halves: one rounding more, of at most 2^-11 (f16) or 2^-8 (bf16) of each element;
// - f32 operands that the kernel rounds carry up to 2^-11 or 2^-8 each, which average out to about 3e-4 and 2.5e-3;
// - `bf16x3` drops only lo * lo, 2^-16.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { KernelContext, pack } from '../../kernels/base.mjs';
import { coopShapes, matmulKernels } from '../../kernels/matmul.mjs';
import { firstOf, limited, vk } from '../lib/addon.mjs';
import { fromHalf, toHalf } from '../lib/half.mjs';
import { random } from '../lib/tensors.mjs';

const context = new KernelContext(vk);
const kernels = matmulKernels(context);
after(() => vk.destroy());

/** A device buffer that holds `data` in the given type. @param {Float32Array} data @param {string} type */
function bufferOf(data, type) {
  const bytes = type === 'f32' ? data : toHalf(data, type);
  const handle = vk.createBuffer(Math.ceil(bytes.byteLength / 4) * 4, 0);
  vk.uploadBuffer(handle, bytes);
  return handle;
}
/** @param {number} handle @param {string} type @param {number} length */
function readAs(handle, type, length) {
  const words = vk.readBuffer(handle);
  if (type === 'f32') return words.subarray(0, length);
  const halves = new Uint16Array(words.buffer, words.byteOffset, words.length * 2);
  return fromHalf(halves.subarray(0, length), type);
}

const gelu = (/** @type {number} */ x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
const silu = (/** @type {number} */ x) => x / (1 + Math.exp(-x));

/** What a buffer of the type holds of `data`. @param {Float32Array} data @param {string} type */
const stored = (data, type) => (type === 'f32' ? data : Float32Array.from(fromHalf(toHalf(data, type), type)));
/** The largest relative error of a number stored as a half. @param {string} type */
const rounding = (type) => (type === 'bf16' ? 2 ** -8 : 2 ** -11);

/**
 * Runs one product and compares with float64. Every buffer is larger than its tensor, outputs start poisoned, and
 * nothing outside of the outputs may change. With `representable`, f32 operands are halves of that type, which the
 * kernel's rounding keeps.
 * @param {any} o
 */
function check({
  m,
  n,
  k,
  tolerance,
  representable = 'f32',
  pad = 0,
  offset = 0,
  batch = 1,
  repeatB = false,
  withBias,
  withResidual,
  dual,
  label,
  ...options
}) {
  const { transA = false, transB = false, aType = 'f32', bType = 'f32', cType = 'f32', alpha = 1, beta = 0, activation } = options;
  const lda = (transA ? m : k) + pad;
  const ldb = (transB ? k : n) + pad;
  const ldc = n + pad;
  const ldr = n + pad;
  const ldh = n + pad;
  const sizeA = (transA ? k : m) * lda;
  const sizeB = (transB ? n : k) * ldb;
  const sizeC = m * ldc;
  const tail = 9;
  const operand = (/** @type {string} */ type) => (type === 'f32' ? representable : type);
  const A = stored(random(offset + batch * sizeA + tail), operand(aType));
  const B = stored(random(offset + (repeatB ? 1 : batch) * sizeB + tail), operand(bType));
  const C = random(offset + batch * sizeC + tail);
  const R = random(offset + batch * m * ldr + tail);
  const bias = random(offset + n + tail);
  // Padding and tails hold NaN: reading them poisons the result.
  const poison = (/** @type {Float32Array} */ x, /** @type {number} */ rows, /** @type {number} */ cols, /** @type {number} */ ld) => {
    for (let i = 0; i < offset; i++) x[i] = NaN;
    for (let i = offset + rows * ld; i < x.length; i++) x[i] = NaN;
    for (let r = 0; r < rows; r++) for (let j = cols; j < ld; j++) x[offset + r * ld + j] = NaN;
  };
  poison(A, batch * (transA ? k : m), transA ? m : k, lda);
  poison(B, (repeatB ? 1 : batch) * (transB ? n : k), transB ? k : n, ldb);
  poison(bias, 1, n, n);
  poison(R, batch * m, n, ldr);
  if (beta === 0)
    C.fill(1e30); // a poison that a product with beta = 0 must not see
  else poison(C, batch * m, n, ldc);
  const H = new Float32Array(offset + batch * m * ldh + tail).fill(3);
  const halfType = options.precision === 'f16' || aType === 'f16' || bType === 'f16' ? 'f16' : 'bf16';
  const handles = [
    bufferOf(A, aType),
    bufferOf(B, bType),
    bufferOf(C, cType),
    bufferOf(R, 'f32'),
    bufferOf(bias, 'f32'),
    bufferOf(H, halfType),
  ];
  const at = (/** @type {number} */ i) => (offset ? { buffer: handles[i], offset } : handles[i]);
  const args = {
    ...options,
    a: at(0),
    b: at(1),
    c: at(2),
    m,
    n,
    k,
    batch,
    ...(pad ? { lda, ldb, ldc, ldr, ldh } : {}),
    ...(repeatB ? { strideB: 0 } : {}),
    ...(withBias ? { bias: at(4) } : {}),
    ...(withResidual ? { residual: at(3) } : {}),
    ...(dual ? { half: at(5) } : {}),
  };
  const before = readAs(handles[2], cType, C.length).slice();
  const { packed, count } = pack(...kernels.matmul(args));
  vk.waitTimeline(vk.batchExecuteAll(packed, count));
  const got = readAs(handles[2], cType, C.length);
  const gotHalf = dual ? readAs(handles[5], halfType, H.length) : undefined;
  let error = 0;
  let norm = 0;
  let errorHalf = 0;
  const written = new Uint8Array(got.length);
  const writtenHalf = new Uint8Array(H.length);
  for (let z = 0; z < batch; z++) {
    for (let i = 0; i < m; i++) {
      for (let j = 0; j < n; j++) {
        let sum = 0;
        for (let l = 0; l < k; l++) {
          const x = A[offset + z * sizeA + (transA ? l * lda + i : i * lda + l)];
          const y = B[offset + (repeatB ? 0 : z * sizeB) + (transB ? j * ldb + l : l * ldb + j)];
          sum += x * y;
        }
        const to = offset + z * sizeC + i * ldc + j;
        let v = alpha * sum + (beta ? beta * before[to] : 0) + (withBias ? bias[offset + j] : 0);
        if (activation === 'gelu') v = gelu(v);
        if (activation === 'silu') v = silu(v);
        if (withResidual) v += R[offset + z * m * ldr + i * ldr + j];
        error += (got[to] - v) ** 2;
        norm += v * v;
        const place = offset + z * m * ldh + i * ldh + j;
        if (gotHalf) errorHalf += (gotHalf[place] - v) ** 2;
        writtenHalf[place] = 1;
        written[to] = 1;
      }
    }
  }
  const relative = Math.sqrt(error / norm);
  const allowed = tolerance + (cType === 'f32' ? 0 : rounding(cType));
  assert.ok(relative <= allowed, `${label}: relative error ${relative}, tolerance ${allowed}`);
  for (let i = 0; i < got.length; i++) {
    if (!written[i]) assert.ok(Object.is(got[i], before[i]), `${label}: element ${i} outside of C changed from ${before[i]} to ${got[i]}`);
  }
  if (gotHalf) {
    const rel = Math.sqrt(errorHalf / norm);
    assert.ok(rel <= tolerance + rounding(halfType), `${label}: second output off by ${rel}`);
    for (let i = 0; i < gotHalf.length; i++) {
      if (!writtenHalf[i]) assert.equal(gotHalf[i], 3, `${label}: element ${i} outside of the second output changed`);
    }
  }
  for (const handle of handles) vk.destroyBuffer(handle);
}

const TRANSPOSES = [
  { transA: false, transB: false, form: 'NN' },
  { transA: false, transB: true, form: 'NT' },
  { transA: true, transB: false, form: 'TN' },
  { transA: true, transB: true, form: 'TT' },
];

/**
 * The battery for one kernel.
 * @param {string} name @param {any} options @param {typeof TRANSPOSES} [forms] @param {boolean} [epilogues] each by itself
 */
function battery(name, options, forms = TRANSPOSES, epilogues = true) {
  for (const { form, ...trans } of forms) {
    test(`${name} ${form}`, () => {
      const base = { ...options, ...trans };
      check({ ...base, m: 64, n: 96, k: 64, label: `${form} whole tiles` });
      check({ ...base, m: 72, n: 40, k: 56, label: `${form} aligned, partial tiles` });
      check({ ...base, m: 37, n: 53, k: 29, label: `${form} odd` });
      check({ ...base, m: 1, n: 1, k: 1, label: `${form} single` });
      check({ ...base, m: 5, n: 130, k: 67, pad: 3, offset: 5, label: `${form} odd strides and offset` });
      check({ ...base, m: 40, n: 48, k: 40, pad: 8, offset: 16, label: `${form} aligned strides and offset` });
      check({ ...base, m: 33, n: 34, k: 35, batch: 3, label: `${form} batched` });
      check({ ...base, m: 64, n: 64, k: 32, batch: 2, repeatB: true, label: `${form} batched, one B` });
      check({ ...base, m: 48, n: 36, k: 200, plan: { ...base.plan, splits: 3 }, label: `${form} split` });
      check({
        ...base,
        m: 31,
        n: 33,
        k: 190,
        batch: 2,
        plan: { ...base.plan, splits: 4 },
        alpha: 0.5,
        beta: -1.5,
        withBias: true,
        withResidual: true,
        label: `${form} split, batched, epilogue`,
      });
      const tail = { ...base.plan, wave: 5, tail: 3 };
      check({ ...base, m: 96, n: 100, k: 200, plan: tail, label: `${form} split tail` });
      check({
        ...base,
        m: 93,
        n: 101,
        k: 190,
        plan: tail,
        pad: 3,
        offset: 4,
        alpha: 0.5,
        beta: -1.5,
        withBias: true,
        withResidual: true,
        label: `${form} split tail, odd, epilogue`,
      });
      check({ ...base, m: 88, n: 104, k: 192, label: `${form} edges past whole depth` });
    });
  }
  test(`${name} epilogues`, { skip: !epilogues && 'in npm run test:full' }, () => {
    const base = { ...options, transB: true };
    for (const [m, n] of [
      [64, 64],
      [45, 51],
    ]) {
      const k = 48;
      check({ ...base, m, n, k, alpha: -0.75, label: 'alpha' });
      check({ ...base, m, n, k, beta: 1, label: 'beta 1' });
      check({ ...base, m, n, k, beta: 0.5, alpha: 2, withResidual: true, label: 'beta, residual' });
      check({ ...base, m, n, k, withBias: true, label: 'bias' });
      check({ ...base, m, n, k, activation: 'gelu', label: 'gelu' });
      check({ ...base, m, n, k, activation: 'silu', withBias: true, withResidual: true, beta: 1, label: 'all' });
    }
  });
  test(`${name} is deterministic`, () => {
    const a = bufferOf(random(61 * 300), options.aType ?? 'f32');
    const b = bufferOf(random(61 * 300), options.bType ?? 'f32');
    const c = [0, 1].map(() => bufferOf(new Float32Array(61 * 61), 'f32'));
    const { plan, tolerance: _, representable: _representable, ...rest } = options;
    for (const handle of c) {
      const records = kernels.matmul({ ...rest, a, b, c: handle, m: 61, n: 61, k: 300, transB: true, plan: { ...plan, splits: 2 } });
      const { packed, count } = pack(...records);
      vk.waitTimeline(vk.batchExecuteAll(packed, count));
    }
    assert.deepEqual(vk.readBuffer(c[0]), vk.readBuffer(c[1]));
    for (const handle of [a, b, ...c]) vk.destroyBuffer(handle);
  });
}

const F32_PLANS = [
  undefined,
  { kernel: 'f32', bm: 32, bn: 32, bk: 8, tm: 4, tn: 4, lx: 8, stages: 1 },
  { kernel: 'f32', bm: 32, bn: 32, bk: 16, tm: 4, tn: 4, lx: 8, stages: 2 },
  { kernel: 'f32', bm: 64, bn: 64, bk: 16, tm: 8, tn: 8, lx: 8, stages: 2 },
];
for (const [i, plan] of (limited ? [undefined] : F32_PLANS).entries()) {
  const name = `f32 ${plan ? `${plan.bm}x${plan.bn}x${plan.bk}/${plan.stages}` : 'chosen'}`;
  // CPU drivers compile an unrolled kernel for each of these for a second: of the other plans `npm test` takes one form, each another.
  const forms = plan ? firstOf([...TRANSPOSES.slice(i), ...TRANSPOSES.slice(0, i)], 1) : TRANSPOSES;
  battery(name, { plan, tolerance: 2e-6 }, forms, forms.length > 1);
}

for (const half of /** @type {const} */ (['f16', 'bf16'])) {
  const rounded = half === 'f16' ? 6e-4 : 5e-3;
  const exact = { representable: half, tolerance: 2e-5 };
  if (!kernels.matmulSupports(half)) {
    test(`${half} matrix units`, { skip: `${context.info.deviceName} has none` }, () => {});
    continue;
  }
  const [{ m: tm, n: tn, k: tk }] = coopShapes(context.info, half);
  const bk = Math.max(16, tk);
  const plan = { kernel: 'coop', bm: 4 * tm, bn: 4 * tn, bk, wm: 2 * tm, wn: 2 * tn, tm, tn, tk };
  battery(`${half} from f32`, { precision: half, plan: { ...plan, stages: 1 }, tolerance: rounded });
  battery(`${half} from halves`, { ...exact, aType: half, bType: half, plan: { ...plan, stages: 2, ahead: 1 } });
  const [, nt] = TRANSPOSES;
  battery(`${half} stored in fragments`, { ...exact, aType: half, bType: half, plan: { ...plan, stages: 1, direct: 1 } }, [nt]);
  battery(`${half} mixed, half result`, { ...exact, aType: half, cType: half }, [nt]);
  battery(`${half} two results`, { ...exact, precision: half, dual: true }, [nt]);
  if (half === 'bf16') battery('bf16x3', { precision: 'bf16x3', tolerance: 3e-5 });
}

for (const type of /** @type {const} */ (['f32', 'f16', 'bf16'])) {
  const known = kernels.matmulSupports(type) && context.countsSubgroups;
  test(`${type}: products of few rows`, { skip: !known && `${context.info.deviceName} cannot compute them` }, () => {
    const base = { aType: type, bType: type, plan: { kernel: 'rows' }, tolerance: 2e-6 };
    const all = { alpha: 0.5, beta: -1.5, withBias: true, withResidual: true };
    const cType = type;
    for (const { transA, transB, form } of firstOf(TRANSPOSES.slice(0, 2), 2)) {
      const of = { ...base, transA, transB };
      check({ ...of, m: 1, n: 200, k: 136, label: `${form} one row` });
      check({ ...of, m: 8, n: 72, k: 264, cType, withBias: true, activation: 'gelu', label: `${form} eight rows` });
      check({ ...of, m: 3, n: 40, k: 48, pad: 8, offset: 16, batch: 3, ...all, cType, activation: 'silu', label: `${form} batched` });
    }
    // What is not read by vectors may have any size: columns where the depth is, and the other way round.
    check({ ...base, transB: true, m: 2, n: 37, k: 64, label: 'NT, odd columns' });
    check({ ...base, m: 2, n: 64, k: 37, label: 'NN, odd depth' });
    check({ ...base, m: 5, n: 136, k: 300, batch: 2, plan: { kernel: 'rows', splits: 4 }, cType, ...all, label: 'NN split' });
  });
}

test('the kernel for few rows says what it cannot compute', () => {
  const good = { a: 0, b: 0, c: 0, m: 4, n: 16, k: 16, plan: /** @type {any} */ ({ kernel: 'rows' }) };
  const wrong = /** @type {[object, RegExp][]} */ ([
    [{ m: 9 }, /more than 8 rows/],
    [{ transA: true }, /A lies transposed/],
    [{ n: 18 }, /must be multiples of 4 elements/],
    [{ b: { buffer: 0, offset: 2 } }, /must be multiples of 4 elements/],
    [{ plan: { kernel: 'rows', splits: 65 } }, /splits must be in/],
  ]);
  for (const [change, message] of wrong) assert.throws(() => kernels.matmul({ ...good, ...change }), { name: 'RangeError', message });
});

test('a split product keeps to its place in a workspace of the caller', () => {
  const [m, n, k, offset] = [70, 90, 200, 64];
  const a = bufferOf(random(m * k), 'f32');
  const b = bufferOf(random(n * k), 'f32');
  const tile = { kernel: 'f32', bm: 32, bn: 32, bk: 16, tm: 4, tn: 4, lx: 8 };
  for (const plan of /** @type {any[]} */ ([
    { ...tile, splits: 3 },
    { ...tile, wave: 5, tail: 3 },
  ])) {
    const c = [0, 1].map(() => bufferOf(new Float32Array(m * n), 'f32'));
    const args = { a, b, m, n, k, transB: true, plan };
    const floats = kernels.matmulWorkspace({ ...args, c: c[0] });
    assert.ok(floats > 0);
    const workspace = bufferOf(new Float32Array(offset + floats).fill(1e30), 'f32');
    const { packed, count } = pack(
      ...kernels.matmul({ ...args, c: c[0] }),
      ...kernels.matmul({ ...args, c: c[1], workspace: { buffer: workspace, offset } }),
    );
    vk.waitTimeline(vk.batchExecuteAll(packed, count));
    assert.deepEqual(vk.readBuffer(c[0]), vk.readBuffer(c[1]));
    const before = vk.readBuffer(workspace).subarray(0, offset);
    assert.ok(
      before.every((/** @type {number} */ x) => x === Math.fround(1e30)),
      'the workspace changed before the offset',
    );
    for (const handle of [...c, workspace]) vk.destroyBuffer(handle);
  }
  for (const handle of [a, b]) vk.destroyBuffer(handle);
});

test('the workspace of split products is given back, and a smaller one before it', () => {
  const own = new KernelContext(vk, { check: false }); // the handles stand for no buffers
  const { matmul } = matmulKernels(own);
  const plan = { kernel: /** @type {const} */ ('f32'), bm: 32, bn: 32, bk: 16, tm: 4, tn: 4, lx: 8, splits: 3 };
  const handles = [32, 320].map((m) => Number(matmul({ a: 0, b: 0, c: 0, m, n: 64, k: 200, plan })[0].buffers[4]));
  assert.notEqual(handles[0], handles[1]);
  for (const handle of handles) vk.readBuffer(handle);
  own.releaseWorkspaces();
  for (const handle of handles) assert.throws(() => vk.readBuffer(handle));
});

test('bad arguments name what is wrong', () => {
  const good = { a: 0, b: 0, c: 0, m: 4, n: 4, k: 4 };
  assert.throws(() => kernels.matmul({ ...good, m: 0 }), /matmul: m must be in/);
  assert.throws(() => kernels.matmul({ ...good, lda: 3 }), /matmul: lda must be in/);
  assert.throws(() => kernels.matmul({ ...good, alpha: NaN }), /matmul: alpha must be a finite number/);
  assert.throws(() => kernels.matmul({ ...good, a: -1 }), /matmul: a must be a buffer handle/);
  assert.throws(() => kernels.matmul(/** @type {any} */ ({ ...good, precision: 'tf32' })), /precision must be/);
  assert.throws(() => kernels.matmul(/** @type {any} */ ({ ...good, activation: 'relu' })), /activation must be/);
  assert.throws(() => kernels.matmul({ ...good, aType: 'f16', precision: 'f32' }), /cannot read A as f16/);
  const far = { buffer: 0, offset: 0xf0000000 };
  for (const name of ['a', 'b', 'c', 'bias', 'residual']) {
    assert.throws(() => kernels.matmul({ ...good, [name]: far }), {
      name: 'RangeError',
      message: new RegExp(`^matmul: ${name} reaches element`),
    });
  }
  assert.throws(
    () => kernels.matmul({ ...good, residual: 0, batch: 3, strideR: 0x80000000 }),
    /matmul: residual reaches element 4294967312/,
  );
  for (const precision of /** @type {const} */ (['f16', 'bf16'])) {
    if (!kernels.matmulSupports(precision)) continue;
    assert.throws(() => kernels.matmul({ ...good, precision, half: far }), /matmul: half reaches element/);
    assert.throws(() => kernels.matmul({ ...good, precision, half: 0, batch: 2, strideH: 0xf0000000 }), /matmul: half reaches element/);
  }
  const split = { kernel: /** @type {const} */ ('f32'), bm: 32, bn: 32, bk: 16, tm: 4, tn: 4, lx: 8, splits: 3 };
  assert.throws(() => kernels.matmul({ ...good, k: 64, plan: split, workspace: far }), /matmul: workspace reaches element/);
  assert.throws(() => kernels.matmul({ ...good, half: 1 }), /second output needs/);
  assert.throws(() => kernels.matmul({ ...good, plan: { kernel: 'f32', bm: 30, bn: 30, bk: 8, tm: 4, tn: 4, lx: 8 } }), /cannot run/);
});

test('a product of more steps than lavapipe lets a loop take', () => {
  // Ones, so that every sum is exact and a step that is missing shows.
  const [m, n, k] = [2, 3, 1 << 20];
  for (const [transA, transB] of [
    [false, true],
    [true, false],
  ]) {
    const [a, b] = [m, n].map((rows) => bufferOf(new Float32Array(rows * k).fill(1), 'f32'));
    const c = bufferOf(new Float32Array(m * n), 'f32');
    const { packed, count } = pack(...kernels.matmul({ a, b, c, m, n, k, transA, transB }));
    vk.waitTimeline(vk.batchExecuteAll(packed, count));
    assert.deepEqual([...readAs(c, 'f32', m * n)], Array(m * n).fill(k));
    [a, b, c].forEach(vk.destroyBuffer);
  }
});

test('a plan without a staged tile loops by fours, whatever its depth', { skip: !context.isCpu && 'a GPU has no such limit' }, () => {
  const plan = { kernel: /** @type {const} */ ('f32'), bm: 32, bn: 32, bk: 16, tm: 8, tn: 4, lx: 1, stages: 0 };
  assert.equal(kernels.matmulPlan({ m: 64, n: 64, k: 300_000, plan }).splits, 2);
});

test('a second pair of operands without a kernel for it: the residual may be C, and the workspace is enough for both products', () => {
  const [m, n, k, k2] = [16, 16, 64, 20_000];
  const ones = (/** @type {number} */ count) => bufferOf(new Float32Array(count).fill(1), 'f32');
  const workspace = kernels.matmulWorkspace({ m, n, k, k2 });
  assert.ok(workspace >= kernels.matmulWorkspace({ m, n, k: k2, beta: 1 }));
  const c = bufferOf(new Float32Array(m * n).fill(100), 'f32');
  const args = { a: ones(m * k), b: ones(k * n), a2: ones(m * k2), b2: ones(k2 * n), c, residual: c, ...{ m, n, k, k2 } };
  const { packed, count } = pack(kernels.matmul({ ...args, workspace: vk.createBuffer(Math.max(4 * workspace, 4), 0) }));
  vk.waitTimeline(vk.batchExecuteAll(packed, count));
  assert.equal(readAs(c, 'f32', 1)[0], k + k2 + 100);
  assert.throws(() => kernels.matmul({ ...args, activation: 'silu' }), /the residual must not be c/);
});
