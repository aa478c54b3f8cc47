// The PTX of matrix products, run by the machine in machine.mjs and compared with float64: every form, every way to fetch,
// every addition to the results, sizes that fill no tile, splits. Operands lie in memory that is NaN everywhere else: none of
// it may be loaded, and nothing outside the results may change.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { moduleText, packParameters } from '../../kernels/hopper/assembler.mjs';
import { division, gemmFault, parametersOf, productFault, sizesFault } from '../../kernels/hopper/form.mjs';
import { gemm } from '../../kernels/hopper/gemm.mjs';
import { permuteRows } from '../../kernels/hopper/layout.mjs';
import { GEMM_TILINGS } from '../../kernels/hopper/tilings.mjs';
import { fromHalf, toHalf } from '../lib/half.mjs';
import { random } from '../lib/tensors.mjs';
import { BASE, runPtx } from './machine.mjs';

/** @typedef {import('../../kernels/hopper/form.mjs').GemmTiling} GemmTiling */
/** @typedef {import('../../kernels/hopper/form.mjs').GemmForm} GemmForm */

const NT = /** @type {GemmForm} */ ({ type: 'bf16', transA: false, transB: true, half: true });
const NN = { ...NT, transB: false };
const TN = { ...NT, transA: true, transB: false, half: false };
const FORMS = { NT, NN, TN };

const relay = /** @type {GemmTiling} */ ({ bm: 64, bn: 64, bk: 32, stages: 2, warpgroups: 1, load: 'ld', ahead: 2 });
const async = /** @type {GemmTiling} */ ({ bm: 128, bn: 64, bk: 16, stages: 4, warpgroups: 2, load: 'cp', ahead: 2 });
const direct = /** @type {GemmTiling} */ ({ bm: 128, bn: 64, bk: 64, stages: 2, warpgroups: 1, load: 'ld', ahead: 1, direct: true });

const gelu = (/** @type {number} */ x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
const silu = (/** @type {number} */ x) => x / (1 + Math.exp(-x));

/**
 * Computes one product on the machine and with float64, and compares.
 * @param {GemmTiling} plan @param {GemmForm} form
 * @param {{ m: number, n: number, k: number, k2?: number, blocks?: number, splits?: number, tail?: number, late?: boolean, alpha?: number, beta?: number, seed?: number, edit?: (text: string) => string }} options
 */
function check(
  plan,
  form,
  { m, n, k, k2 = 0, blocks = 2, splits, tail, late = true, alpha = 1, beta = 0, seed = 7, edit = (text) => text },
) {
  const how = division(plan, { m, n, k, k2 }, { blocks, splits, tail });
  const text = edit(
    moduleText(gemm('product', plan, { ...form, second: k2 > 0, ragged: how.ragged, parts: how.parts > 1, beta: beta !== 0 })),
  );
  const memory = new Uint8Array(3 << 20).fill(0xff);
  let top = 256;
  /** A matrix in memory with NaN around it. @param {number} rows @param {number} columns @param {number} ld @param {string} type @param {ArrayLike<number>} [values] */
  const place = (rows, columns, ld, type, values) => {
    const at = top;
    top = Math.ceil((top + rows * ld * 4 + 64) / 256) * 256;
    const half = type !== 'f32';
    const words = half ? new Uint16Array(memory.buffer, at, rows * ld) : new Float32Array(memory.buffer, at, rows * ld);
    const read = () => {
      const all = half ? fromHalf(words, type) : Float64Array.from(words);
      return (/** @type {number} */ i, /** @type {number} */ j) => all[i * ld + j];
    };
    if (values) {
      const stored = half ? toHalf(values, type) : values;
      for (let i = 0; i < rows; i++) for (let j = 0; j < columns; j++) words[i * ld + j] = stored[i * columns + j];
    }
    return { at, ld, read, words, outside: (/** @type {number} */ index) => index % ld >= columns };
  };
  const mark = (/** @type {Uint8Array} */ bytes, /** @type {ReturnType<typeof place>} */ x) => {
    const size = x.words.BYTES_PER_ELEMENT;
    for (let index = 0; index < x.words.length; index++)
      if (!x.outside(index)) bytes.fill(1, x.at + index * size, x.at + (index + 1) * size);
  };
  const operand = (/** @type {number} */ rows, /** @type {number} */ columns, /** @type {number} */ pad) =>
    place(rows, columns, columns + pad, form.type, random(rows * columns));
  const a = form.transA ? operand(k, m, 8) : operand(m, k, 16);
  const [rowsB, columnsB] = form.transB ? [n, k] : [k, n];
  const naturalB = random(rowsB * columnsB);
  const b = place(rowsB, columnsB, columnsB + 24, form.type, form.permuted ? permuteRows(naturalB, columnsB) : naturalB);
  const a2 = operand(m, k2, 8);
  const b2 = form.transB ? operand(n, k2, 16) : operand(k2, n, 16);
  // The gradient of SwiGLU reads and writes [gate, up], of twice as many columns.
  const wide = form.glu === 'backward' ? 2 * n : n;
  const c = place(m, wide, wide + 8, form.half ? form.type : 'f32', beta ? random(m * n) : undefined);
  const residual = place(m, wide, wide + 16, form.glu || form.unit ? form.type : 'f32', random(m * wide));
  const bias = place(1, n, n, 'f32', random(n));
  const half = form.glu === 'forward' ? place(m, n / 2, n / 2 + 24, form.type) : place(m, n, n + 24, form.type);
  const work = place(1, how.workspaceFloats, how.workspaceFloats, 'f32');
  const readable = new Uint8Array(memory.length);
  for (const x of [a, b, a2, b2, residual, bias, ...(beta ? [c] : [])]) mark(readable, x);
  const [A, C, R, bia] = [a, c, residual, bias].map((x) => x.read());
  const roundedB = fromHalf(toHalf(naturalB, form.type), form.type);
  const B = (/** @type {number} */ i, /** @type {number} */ j) => roundedB[i * columnsB + j];
  const [A2, B2] = [a2.read(), b2.read()];
  const parameters = packParameters(parametersOf({ ...form, second: k2 > 0 }, plan), {
    a: BASE + a.at,
    b: BASE + b.at,
    c: BASE + c.at,
    bias: BASE + bias.at,
    residual: BASE + residual.at,
    half: BASE + half.at,
    work: BASE + work.at,
    ...(k2 > 0 ? { a2: BASE + a2.at, b2: BASE + b2.at, k2, lda2: a2.ld, ldb2: b2.ld } : {}),
    m,
    n,
    k,
    lda: a.ld,
    ldb: b.ld,
    ldc: c.ld,
    ldr: residual.ld,
    ldh: half.ld,
    kPerPart: how.kPerPart,
    whole: how.whole,
    rest: how.rest,
    parts: how.parts,
    alpha,
    beta,
  });
  const before = memory.slice();
  runPtx(text, { blocks: how.blocks, parameters, memory, readable, late, seed });

  const result = c.read();
  const second = half.read();
  // What `matmul_reduce_tail` does: the parts of a tile, in order.
  const partial = (/** @type {number} */ i, /** @type {number} */ j) => {
    const [tilesM, tilesN] = [Math.ceil(m / plan.bm), Math.ceil(n / plan.bn)];
    const [row, column] = [Math.floor(i / plan.bm), Math.floor(j / plan.bn)];
    const first = row - (row % 8);
    const tile = first * tilesN + column * Math.min(8, tilesM - first) + (row - first);
    if (tile < how.whole) return undefined;
    const at = (tile - how.whole) * plan.bm * plan.bn + (i % plan.bm) * plan.bn + (j % plan.bn);
    let sum = 0;
    for (let part = 0; part < how.parts; part++) sum += /** @type {Float32Array} */ (work.words)[part * how.rest * plan.bm * plan.bn + at];
    return sum;
  };
  let [error, norm, errorHalf, normHalf] = [0, 0, 0, 0];
  for (let i = 0; i < m; i++) {
    const sums = new Float64Array(n);
    for (let j = 0; j < n; j++) {
      let sum = 0;
      for (let l = 0; l < k; l++) sum += (form.transA ? A(l, i) : A(i, l)) * (form.transB ? B(j, l) : B(l, j));
      for (let l = 0; l < k2; l++) sum += A2(i, l) * (form.transB ? B2(j, l) : B2(l, j));
      const part = partial(i, j);
      if (part !== undefined) {
        error += (part - sum) ** 2;
        norm += sum ** 2;
        continue;
      }
      if (form.glu) {
        sums[j] = sum;
        continue;
      }
      let x = alpha * sum + (beta ? beta * C(i, j) : 0) + (form.bias ? bia(0, j) : 0);
      const activate = form.activation === 'gelu' ? gelu : silu;
      if (form.unit === 'backward') x *= (activate(R(i, j) + 1e-5) - activate(R(i, j) - 1e-5)) / 2e-5;
      else if (form.activation && !form.unit) x = activate(x);
      if (form.residual) x += R(i, j);
      error += (result(i, j) - x) ** 2;
      if (form.unit === 'forward') {
        errorHalf += (second(i, j) - activate(x)) ** 2;
        normHalf += activate(x) ** 2;
      }
      if (form.dual) errorHalf += (second(i, j) - x) ** 2;
      norm += x * x;
    }
    if (form.glu === 'forward')
      for (let j = 0; j < n; j++) {
        error += (result(i, j) - sums[j]) ** 2;
        norm += sums[j] ** 2;
        if (j >= n / 2) continue;
        // Of gates and ups as they are stored.
        const [gate, up] = [result(i, j), result(i, n / 2 + j)];
        const y = silu(gate) * up;
        errorHalf += (second(i, j) - y) ** 2;
        normHalf += y ** 2;
      }
    else if (form.glu)
      for (let j = 0; j < n; j++) {
        const [gate, up] = [R(i, j), R(i, n + j)];
        const s = 1 / (1 + Math.exp(-gate));
        const wants = [sums[j] * up * s * (1 + gate * (1 - s)), sums[j] * gate * s];
        wants.forEach((want, part) => {
          error += (result(i, j + part * n) - want) ** 2;
          norm += want ** 2;
        });
        if (!form.again) continue;
        errorHalf += (second(i, j) - gate * s * up) ** 2;
        normHalf += (gate * s * up) ** 2;
      }
  }
  const rounding = form.type === 'bf16' ? 2.5e-3 : 3e-4;
  const relative = Math.sqrt(error / norm);
  assert.ok(relative < (form.half ? rounding : 1e-6), `relative error ${relative}`);
  const twice = form.dual || form.glu === 'forward' || form.again || form.unit === 'forward';
  const relativeHalf = Math.sqrt(errorHalf / (normHalf || norm));
  if (twice) assert.ok(relativeHalf < rounding, `second output: relative error ${relativeHalf}`);
  // Nothing but the results has changed.
  const allowed = new Uint8Array(memory.length);
  for (const x of [c, ...(twice ? [half] : []), work]) mark(allowed, x);
  const changed = memory.findIndex((byte, i) => byte !== before[i] && !allowed[i]);
  assert.equal(changed, -1, `byte ${changed} outside of the results has changed`);
}

for (const [way, plan] of Object.entries({ relay, async, direct })) {
  for (const [name, form] of Object.entries(FORMS)) {
    if (gemmFault(plan, form)) continue;
    test(`${name} by ${way}: sizes that fill no tile`, () => {
      check(plan, form, { m: 136, n: 72, k: 104, late: true });
      check(plan, form, { m: 136, n: 72, k: 104, late: false, seed: 99 });
    });
  }
}

test('the depth of a stage: 16, 32 and 64 by each way, and more stages', () => {
  check({ ...relay, bk: 16, stages: 5, ahead: 3 }, NT, { m: 64, n: 64, k: 80 });
  check({ ...relay, bk: 64 }, TN, { m: 64, n: 64, k: 128 });
  check({ ...async, bk: 32, stages: 3, ahead: 1 }, NT, { m: 128, n: 64, k: 128 });
  check({ ...async, bk: 64, stages: 2, ahead: 0, bn: 64 }, NN, { m: 128, n: 64, k: 128 });
});

test('A in registers beside B by cp.async, where the depth of B is no line', () => {
  check({ ...direct, warpgroups: 2, load: 'cp', stages: 3 }, NN, { m: 136, n: 72, k: 200 });
});

test('f16, alpha and beta, bias, residual, activations, a second output', () => {
  const f16 = /** @type {GemmForm} */ ({ ...NT, type: 'f16' });
  check(relay, f16, { m: 64, n: 40, k: 32, alpha: 0.5, beta: 2 });
  check(relay, { ...f16, half: false, dual: true, bias: true, activation: 'gelu' }, { m: 72, n: 64, k: 32 });
  check(relay, { ...NN, bias: true, activation: 'silu', residual: true }, { m: 72, n: 40, k: 32, beta: -1 });
  check(async, { ...TN, residual: true, dual: true }, { m: 72, n: 40, k: 32, alpha: 0.25, beta: 1 });
  check(direct, { ...NT, half: false, bias: true, residual: true }, { m: 72, n: 40, k: 64, beta: 1 });
  // Sums begin with C.
  check(relay, { ...TN, early: true, bias: true, activation: 'gelu' }, { m: 72, n: 40, k: 64, beta: 1 });
  check(async, { ...TN, early: true, residual: true }, { m: 136, n: 72, k: 104, beta: 1 });
  check(async, { ...TN, early: true }, { m: 136, n: 200, k: 104, tail: 2, beta: 1 });
});

test('splits: of all tiles, and of those after the last whole wave', () => {
  check(async, TN, { m: 128, n: 128, k: 176, splits: 3, blocks: 4 });
  check(relay, { ...NT, half: false }, { m: 128, n: 192, k: 256, tail: 3, blocks: 4 });
});

const copied = /** @type {GemmTiling} */ ({
  ...{ bm: 128, bn: 64, bk: 64, bkB: 32, stages: 3, warpgroups: 1, load: 'tma', direct: true },
});
test('B by the copy engine: sizes that fill no tile, depths that fill no stage, splits, everything that is added', () => {
  check(copied, NN, { m: 136, n: 72, k: 192 });
  check(copied, NN, { m: 136, n: 72, k: 192, late: false, seed: 99 });
  check({ ...copied, bk: 128, stages: 5, warpgroups: 2, bm: 256 }, NN, { m: 264, n: 72, k: 288 });
  check(copied, { ...NN, half: false }, { m: 136, n: 136, k: 224, tail: 2, blocks: 4 });
  check(copied, { ...NN, type: 'f16', half: false, dual: true, bias: true, activation: 'gelu', residual: true }, { m: 136, n: 72, k: 96 });
  check(copied, { ...NN, bias: true, activation: 'silu', residual: true }, { m: 72, n: 40, k: 96, alpha: 0.5, beta: -1 });
  check(copied, { ...NN, half: false }, { m: 72, n: 40, k: 96, beta: 2 });
});

const both = /** @type {GemmTiling} */ ({ bm: 128, bn: 192, bk: 16, stages: 4, warpgroups: 2, load: 'tma', ahead: 3 });
test('both operands of TN by the copy engine', () => {
  check(both, TN, { m: 192, n: 320, k: 192 });
  check(both, TN, { m: 192, n: 64, k: 192, late: false, seed: 99 });
  check({ ...both, bm: 192, bn: 256, stages: 3, warpgroups: 3 }, TN, { m: 256, n: 320, k: 96 });
  check({ ...both, bn: 64, bk: 32, warpgroups: 1, stages: 3 }, TN, { m: 128, n: 128, k: 224, tail: 2, blocks: 4 });
  check(both, TN, { m: 64, n: 64, k: 416, splits: 3, alpha: 0.5, beta: 2 });
  check(both, { ...TN, type: 'f16', dual: true, residual: true }, { m: 64, n: 64, k: 32, beta: -1 });
});

test('B by the copy engine beside A of TN, whose words are transposed', () => {
  check(copied, TN, { m: 136, n: 72, k: 192 });
  check(copied, TN, { m: 136, n: 72, k: 192, late: false, seed: 99 });
  check({ ...copied, bk: 128, stages: 5, warpgroups: 2, bm: 256 }, TN, { m: 264, n: 72, k: 288 });
  check(copied, TN, { m: 136, n: 136, k: 224, tail: 2, blocks: 4 });
  check(copied, TN, { m: 72, n: 40, k: 416, splits: 3, alpha: 0.5, beta: 2 });
  check(copied, { ...TN, type: 'f16', dual: true, residual: true }, { m: 8, n: 8, k: 32, beta: -1 });
});

const [permutedNT, permutedNN] = [NT, NN].map((form) => ({ ...form, permuted: true }));
for (const [name, form] of Object.entries({ NT: permutedNT, NN: permutedNN })) {
  test(`${name} with B permuted: sizes that fill no tile, depths that fill no stage, splits, everything that is added`, () => {
    check(copied, form, { m: 136, n: 96, k: 224 });
    check(copied, form, { m: 136, n: 96, k: 224, late: false, seed: 99 });
    check({ ...copied, warpgroups: 2, bm: 256 }, form, { m: 264, n: 96, k: 288 });
    check(copied, { ...form, half: false }, { m: 136, n: 160, k: 416, tail: 2, blocks: 4 });
    check(
      copied,
      { ...form, type: 'f16', half: false, dual: true, bias: true, activation: 'gelu', residual: true },
      { m: 136, n: 96, k: 96 },
    );
    check(copied, { ...form, bias: true, activation: 'silu', residual: true }, { m: 72, n: 32, k: 96, alpha: 0.5, beta: -1 });
    check(copied, { ...form, half: false }, { m: 72, n: 32, k: 96, beta: 2 });
  });
}
test('SwiGLU and its gradient with B permuted', () => {
  const wide = { ...copied, bn: 128 };
  check(wide, { ...permutedNT, glu: 'forward' }, { m: 136, n: 192, k: 96 });
  check(copied, { ...permutedNT, type: 'f16', glu: 'forward' }, { m: 72, n: 320, k: 224, late: false });
  check(wide, { ...permutedNN, glu: 'backward' }, { m: 136, n: 160, k: 96 });
  check(wide, { ...permutedNN, glu: 'backward', again: true }, { m: 136, n: 160, k: 96 });
  check(copied, { ...permutedNN, type: 'f16', glu: 'backward' }, { m: 72, n: 96, k: 224, late: false });
});

for (const activation of /** @type {const} */ (['gelu', 'silu'])) {
  test(`${activation} of a product that is kept, and the gradient of its argument`, () => {
    const forward = /** @type {GemmForm} */ ({ ...NT, activation, unit: 'forward' });
    const backward = /** @type {GemmForm} */ ({ ...NN, activation, unit: 'backward' });
    check(direct, { ...forward, bias: true }, { m: 136, n: 72, k: 64 });
    check(relay, { ...forward, type: 'f16' }, { m: 72, n: 40, k: 72, late: false });
    check(async, backward, { m: 136, n: 72, k: 32 });
    check(direct, { ...backward, type: 'f16' }, { m: 72, n: 40, k: 72, late: false });
    const permuted = { ...copied, bn: 128 };
    check(permuted, { ...forward, permuted: true, bias: true }, { m: 136, n: 160, k: 96 });
    check(permuted, { ...backward, permuted: true }, { m: 136, n: 160, k: 96 });
  });
}

test('a permuted B that is taken for another order is found', () => {
  assert.throws(
    () => check(copied, NN, { m: 64, n: 64, k: 64, edit: () => moduleText(gemm('product', copied, permutedNN)) }),
    /relative error/,
  );
});

test('the plans that were measured', () => {
  check(GEMM_TILINGS['m256n128-tma-l1'], TN, { m: 264, n: 136, k: 288, blocks: 1 });
  for (const [name, plan] of Object.entries(GEMM_TILINGS)) {
    const forms = {
      wide: [TN],
      'm256n192-tma': [TN],
      'm256n128-tma': [NN, permutedNT, permutedNN],
      'm256n128-tma-l1': [TN, permutedNT, permutedNN],
    }[name] ?? [NT];
    for (const form of forms) check(plan, form, { m: plan.bm, n: plan.bn, k: 2 * plan.bk, blocks: 1 });
  }
});

test('SwiGLU and its gradient, by each plan that can', () => {
  const [forward, backward] = /** @type {GemmForm[]} */ ([
    { ...NT, glu: 'forward' },
    { ...NN, glu: 'backward' },
  ]);
  check({ ...relay, bn: 128 }, forward, { m: 72, n: 208, k: 64, late: true });
  check({ ...direct, bn: 128 }, { ...forward, type: 'f16' }, { m: 136, n: 144, k: 72, late: false });
  check(relay, { ...backward, type: 'f16' }, { m: 72, n: 104, k: 72, late: false });
  check(direct, backward, { m: 136, n: 72, k: 64 });
  check(direct, { ...backward, again: true }, { m: 136, n: 72, k: 64 });
  check({ ...copied, bn: 128 }, { ...backward, type: 'f16', again: true }, { m: 136, n: 72, k: 96 });
  check({ ...copied, bn: 128 }, backward, { m: 136, n: 72, k: 96 });
  for (const plan of [GEMM_TILINGS['m256n128-ld'], GEMM_TILINGS['m256n128-ld-l1'], GEMM_TILINGS['m128n128-ld']]) {
    check(plan, forward, { m: plan.bm, n: plan.bn + 16, k: 2 * plan.bk, blocks: 1 });
    check(plan, backward, { m: plan.bm, n: plan.bn + 8, k: 2 * plan.bk, blocks: 1 });
  }
  check(GEMM_TILINGS['m256n128-tma'], backward, { m: 264, n: 136, k: 288, blocks: 1 });
});

test('a division covers the depth and the tiles, with no part empty', () => {
  for (const splits of [1, 2, 3, 5, 8, 64]) {
    const d = division(relay, { m: 640, n: 640, k: 200 }, { blocks: 7, splits });
    assert.equal(d.whole + d.rest, 100);
    assert.ok(d.kPerPart * (d.parts - 1) < 200 && d.kPerPart * d.parts >= 200);
    assert.equal(d.items, d.whole + d.rest * d.parts);
  }
  assert.deepEqual(division(relay, { m: 640, n: 640, k: 256 }, { blocks: 7, tail: 4 }), {
    whole: 98,
    rest: 2,
    parts: 4,
    kPerPart: 64,
    items: 106,
    blocks: 7,
    workspaceFloats: 8 * 64 * 64,
    ragged: false,
  });
});

test('faults of plans and products are named', () => {
  assert.match(String(gemmFault({ ...relay, stages: 9 }, NT)), /73728 bytes of shared memory/);
  assert.match(String(gemmFault({ ...relay, bk: 16, bn: 32, stages: 8 }, NT)), /17 named barriers/);
  assert.match(String(gemmFault({ ...async, ahead: 3 }, NT)), /ahead must be at most stages - 2/);
  assert.match(String(gemmFault({ ...direct }, TN)), /rows contiguous/);
  assert.match(String(gemmFault({ ...direct, load: 'cp', ahead: 0 }, NT)), /needs B by loads/);
  assert.match(String(gemmFault({ ...relay, bm: 96 }, NT)), /bm/);
  assert.match(String(gemmFault({ ...GEMM_TILINGS['m256n128-tma'], registers: [240, 32] }, NN)), /65536 registers, the block has 64512/);
  assert.match(String(gemmFault({ ...relay, bkB: 32 }, NT)), /B has stages of its own only where they are copied/);
  for (const form of [
    { ...TN, early: true },
    { ...NN, half: false, beta: true, early: true },
    { ...TN, beta: true, dual: true, early: true },
  ])
    assert.match(String(gemmFault(relay, form)), /sums begin with C of TN alone/);
  assert.match(String(gemmFault({ ...relay, bk: 128 }, NT)), /bk must be 16, 32 or 64/);
  assert.equal(gemmFault(copied, NN), undefined);
  assert.match(String(gemmFault({ ...copied, bk: 32 }, NN)), /bk must be 64 or 128/);
  assert.match(String(gemmFault({ ...copied, bkB: undefined }, NN)), /beside A in registers, are in stages of 32/);
  assert.match(String(gemmFault({ ...copied, warpgroups: 2 }, NN)), /two blocks of 64 rows/);
  assert.match(String(gemmFault(copied, NT)), /copies are of NN and TN, and of NT where B is permuted/);
  for (const form of [TN, { ...TN, products: 4 }, { ...NN, half: false, products: 2 }]) assert.equal(gemmFault(copied, form), undefined);
  assert.match(String(gemmFault(copied, { ...permutedNN, half: false, products: 2 })), /a group of products takes B as it is/);
  assert.match(String(gemmFault(copied, { ...TN, permuted: true })), /a permuted B is of NN and NT/);
  assert.match(String(gemmFault({ ...copied, bm: 192 }, TN)), /A of TN needs two blocks of 64 rows/);
  for (const plan of [relay, async, direct]) assert.match(String(gemmFault(plan, permutedNN)), /a permuted B needs copies/);
  assert.match(String(gemmFault(both, NN)), /copies of both operands are of TN/);
  assert.match(String(gemmFault(both, { ...TN, permuted: true })), /copies of both operands take B as it is/);
  assert.match(String(gemmFault({ ...both, bkB: 32 }, TN)), /and no bkB/);
  const sizes = { m: 72, n: 136, k: 96 };
  assert.match(String(sizesFault(copied, { ...sizes, k: 72 })), /multiples of 32, not 72/);
  assert.match(String(sizesFault(both, { ...sizes, m: 64 })), /rows and columns in multiples of 64, not 64 and 136/);
  assert.match(String(sizesFault(both, { ...sizes, n: 64 })), /not 72 and 64/);
  assert.equal(sizesFault(both, { m: 64, n: 192, k: 96 }), undefined);
  assert.equal(sizesFault(copied, sizes), undefined);
  assert.equal(sizesFault(relay, { ...sizes, k: 72 }), undefined);
  assert.match(String(gemmFault(GEMM_TILINGS['m128n256-cp'], { ...NT, glu: 'forward' })), /SwiGLU needs operands by loads/);
  assert.match(String(gemmFault(relay, { ...NT, glu: 'backward' })), /its gradient of NN/);
  assert.match(String(gemmFault({ ...relay, bn: 96 }, { ...NT, glu: 'forward' })), /bn of a multiple of 64/);
  assert.match(String(gemmFault(relay, { ...NN, glu: 'backward', parts: true })), /whole tiles of halves/);
  assert.throws(() => gemm('x', { ...relay, bn: 48 }, NT), /gemm: bn must be a multiple of 32/);
  const product = { m: 64, n: 64, k: 64, lda: 64, ldb: 64, ldc: 64, addresses: [256n], transA: false, transB: true };
  assert.equal(productFault(product), undefined);
  assert.match(String(productFault({ ...product, k: 60 })), /rows of A have 60 elements/);
  assert.match(String(productFault({ ...product, ldc: 68 })), /ldc is 68/);
  assert.equal(productFault({ ...product, permuted: true }), undefined);
  assert.match(String(productFault({ ...product, n: 72, permuted: true })), /multiples of 32, not 72 and 64/);
  assert.match(String(productFault({ ...product, k: 72, permuted: true })), /multiples of 32, not 64 and 72/);
  assert.match(String(productFault({ ...product, n: 96, permuted: true, glu: 'forward' })), /multiples of 32, not 48 and 64/);
  assert.match(String(productFault({ ...product, addresses: [264n] })), /not aligned to 16 bytes/);
  assert.match(String(productFault({ ...product, m: 2 ** 26, lda: 64 })), /A is larger/);
  const second = { ...product, transB: true, k2: 32, lda2: 32, ldb2: 32 };
  assert.equal(productFault(second), undefined);
  assert.match(String(productFault({ ...second, m: 2 ** 20, lda2: 3072 })), /A2 is larger/);
  assert.match(String(productFault({ ...second, n: 2 ** 20, ldc: 64, ldb2: 3072 })), /B2 is larger/);
});

/** Kernels with one instruction changed: the machine must find each. */
const MISTAKES = /** @type {const} */ ([
  ['no proxy fence', (/** @type {string} */ text) => text.replaceAll(/ {2}fence\.proxy\.async.*\n/g, ''), /without a proxy fence/],
  [
    'a stage released too early',
    (/** @type {string} */ text) => text.replaceAll('wait_group.sync.aligned 1', 'wait_group.sync.aligned 2'),
    /relative error|without a proxy fence/,
  ],
  [
    'results stored before the products end',
    (/** @type {string} */ text) => text.replaceAll('wgmma.wait_group.sync.aligned 0', 'wgmma.wait_group.sync.aligned 9'),
    /relative error|left open/,
  ],
  ['a stage that is never released', (/** @type {string} */ text) => text.replaceAll(/ {2}bar\.arrive \d, 256;\n/g, ''), /a deadlock/],
  ['operands in a wrong order of chunks', (/** @type {string} */ text) => text.replace('xor.b32', 'or.b32'), /relative error/],
  [
    'rows beyond the last are read',
    (/** @type {string} */ text) => text.replace(/min\.u32 (%r\d+, %r\d+), %r\d+/g, 'mov.u32 $1'),
    /a load outside of the operands/,
  ],
]);
/** The same of copies. */
const COPY_MISTAKES = /** @type {[string, (text: string) => string, RegExp][]} */ ([
  ['a tensor map that is not made known', (text) => text.replace(/ {2}fence\.proxy\.tensormap.*\n/, ''), /a tensor map without its fence/],
  ['depths in a wrong order', (text) => text.replace(/(mul\.lo\.u64 %d\d+, %d\d+, )8;/, '$12;'), /relative error/],
  [
    'arrivals that are not waited for',
    (text) => text.replace(/mbarrier\.try_wait\S+ (%p\d+), .*;/, 'setp.eq.u32 $1, 0, 0;'),
    /relative error/,
  ],
  ['stages that are never released', (text) => text.replaceAll(/ {2}bar\.arrive \d, 160;\n/g, ''), /a deadlock/],
]);
for (const [mistake, edit, finding] of COPY_MISTAKES) {
  test(`found: ${mistake}`, () => {
    assert.throws(
      () => check(copied, NN, { m: 136, n: 64, k: 256, edit: (text) => (assert.notEqual(edit(text), text), edit(text)) }),
      finding,
    );
  });
}
test('found: rows of A for depths', () => {
  const edit = (/** @type {string} */ text) => text.replaceAll('movmatrix.sync.aligned.m8n8.trans.b16', 'mov.b32');
  assert.doesNotThrow(() => check(copied, TN, { m: 128, n: 64, k: 64 }));
  assert.throws(() => check(copied, TN, { m: 128, n: 64, k: 64, edit }), /relative error/);
});
for (const [mistake, edit, finding] of MISTAKES) {
  test(`found: ${mistake}`, () => {
    assert.throws(
      () => check(relay, NT, { m: 72, n: 64, k: 160, edit: (text) => (assert.notEqual(edit(text), text), edit(text)) }),
      finding,
    );
  });
}

const copiedB = /** @type {GemmTiling} */ ({ bm: 128, bn: 64, bk: 64, bkB: 32, stages: 3, warpgroups: 1, load: 'tma', direct: true });

for (const [name, plan, form] of /** @type {[string, GemmTiling, GemmForm][]} */ ([
  ['NT by relay', relay, NT],
  ['NT, A in registers, SwiGLU', direct, { ...NT, glu: 'forward' }],
  ['NT, A in registers, residual', direct, { ...NT, half: false, residual: true }],
  ['NN by copies', copiedB, NN],
  ['NN by copies, the gradient of SwiGLU, and it again', copiedB, { ...NN, glu: 'backward', again: true }],
])) {
  test(`a second pair of operands: ${name}`, () => {
    // Less than a block of 32, and a stage and a part of the next.
    for (const k2 of [24, plan === copiedB ? 96 : 72]) check(plan, form, { m: 136, n: form.glu ? 128 : 72, k: 96, k2, late: k2 < 32 });
  });
}

test('a second pair of operands: what takes none', () => {
  assert.match(String(gemmFault(async, { ...NT, second: true })), /needs loads or copies/);
  assert.match(String(gemmFault(relay, { ...NT, second: true, parts: true })), /whole tiles/);
  assert.match(String(sizesFault(copiedB, { m: 128, n: 64, k: 64, k2: 48 })), /not 48/);
  assert.match(String(productFault({ m: 8, n: 8, k: 8, lda: 8, ldb: 8, ldc: 8, addresses: [], transA: false, transB: true, k2: 4 })), /A2/);
});
