// The kernels of a decode step against float64: products of a few rows in every weight type, embeddings, the cache, and attention to it.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createKernels, dequantizeQ8, q8FromBlocks, q8ToBlocks, quantizeQ8, ropeTable } from '../../kernels/index.mjs';
import { vk } from '../lib/addon.mjs';
import { fromF16, toF16 } from '../lib/half.mjs';
import { Case, TOLERANCE } from '../lib/kernel-check.mjs';
import { assertClose, normal, seed } from '../lib/random-data.mjs';

/** @typedef {import('../../kernels/decode.mjs').WeightType} WeightType */
/** @typedef {import('../../kernels/tuning/matvec.mjs').MatrixTiling} MatrixTiling */
/** @typedef {import('../lib/kernel-check.mjs').Tensor} Tensor */

const kernels = createKernels(vk);
/** As on a GPU, where a subgroup computes an output, and where subgroups may be incomplete, so that a workgroup does. */
const ofSubgroups = createKernels(vk);
ofSubgroups.context.isCpu = false;
const ofWorkgroups = createKernels(vk);
ofWorkgroups.context.isCpu = false;
ofWorkgroups.context.info = { ...ofWorkgroups.context.info, computeFullSubgroupsSupported: false };
const FORMS = { lanes: kernels, subgroups: ofSubgroups, workgroups: ofWorkgroups };
after(() => vk.destroy());

const TYPES = /** @type {const} */ (['f32', 'f16', 'bf16', 'q8_0']);

/**
 * A weight of normal numbers: what a kernel takes, and its values in float64.
 * @param {Case} c @param {WeightType} type @param {number} rows @param {number} columns
 */
function weightOf(c, type, rows, columns) {
  const numbers = normal(rows * columns);
  if (type !== 'q8_0') {
    const tensor = c.input(numbers, type);
    return { weight: tensor.tensor, values: tensor.values };
  }
  const q8 = quantizeQ8(Float32Array.from(numbers));
  const words = new Uint32Array(q8.quants.buffer);
  const [quants, scales] = [c.input(words, 'u32'), c.input(Float64Array.from(q8.scales, fromF16), 'f16')];
  // The offset of a tensor of u32, in quants.
  const weight = typeof quants.tensor === 'number' ? quants.tensor : { ...quants.tensor, offset: 4 * quants.tensor.offset };
  return { weight, scales: scales.tensor, values: Float64Array.from(dequantizeQ8(q8)) };
}

const silu = (/** @type {number} */ x) => x / (1 + Math.exp(-x));
const gelu = (/** @type {number} */ x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));

/**
 * @param {ArrayLike<number>} x @param {number} rows @param {number} inputs
 * @param {{ kind: 'rms' | 'layer', weight: ArrayLike<number>, bias?: ArrayLike<number>, eps: number }} norm
 */
function normalized(x, rows, inputs, { kind, weight, bias, eps }) {
  const y = new Float64Array(rows * inputs);
  for (let r = 0; r < rows; r++) {
    let mean = 0;
    for (let i = 0; i < inputs; i++) mean += kind === 'layer' ? x[r * inputs + i] / inputs : 0;
    let square = 0;
    for (let i = 0; i < inputs; i++) square += (x[r * inputs + i] - mean) ** 2 / inputs;
    for (let i = 0; i < inputs; i++)
      y[r * inputs + i] = ((x[r * inputs + i] - mean) / Math.sqrt(square + eps)) * weight[i] + (bias?.[i] ?? 0);
  }
  return y;
}

/**
 * Runs a product and holds it to float64.
 * @param {keyof typeof FORMS} form
 * @param {{ type: WeightType, rows: number, inputs: number, outputs: number, guard?: number, norm?: 'rms' | 'layer', normBias?: boolean,
 *   bias?: boolean, residual?: boolean | 'out', activation?: 'gelu' | 'swiglu', matrix?: Partial<MatrixTiling>,
 *   scale?: (row: number, column: number) => number }} of `matrix`: on matrix units, with these sizes; `scale`: of the elements of x
 */
function checkMatvec(form, of) {
  const { type, rows, inputs, outputs, guard = 8, activation, matrix, scale = () => 1 } = of;
  const c = new Case({ guard });
  const all = activation === 'swiglu' ? 2 * outputs : outputs;
  const x = c.input(normal(rows * inputs).map((v, i) => v * scale(Math.floor(i / inputs), i % inputs)));
  const { values: w, ...weight } = weightOf(c, type, all, inputs);
  const norm = of.norm && { kind: of.norm, weight: c.input(normal(inputs)), bias: of.normBias ? c.input(normal(inputs)) : undefined };
  const bias = of.bias ? c.input(normal(all)) : undefined;
  const out = of.residual === 'out' ? c.inout(normal(rows * outputs)) : c.output(rows * outputs);
  const residual = of.residual === 'out' ? out : of.residual ? c.input(normal(rows * outputs)) : undefined;
  const added = residual && Float64Array.from(residual.values);
  const eps = 1e-3;
  c.run(
    FORMS[form].matvec({
      ...{ x: x.tensor, ...weight, out: out.tensor, rows, inputs, outputs, type, activation },
      norm: norm && { kind: norm.kind, weight: norm.weight.tensor, bias: norm.bias?.tensor, eps },
      bias: bias?.tensor,
      residual: residual?.tensor,
      plan: matrix ? { kernel: 'matrix', ...matrix } : { kernel: 'vector' },
    }),
  );
  // Matrix units take rows in the half type of the weights, and those of q8_0 as f16.
  const rounding = !matrix ? 0 : type === 'bf16' ? 2 ** -8 : type === 'f16' ? 2 ** -11 : 2 ** -10;
  const n = norm
    ? normalized(x.values, rows, inputs, { kind: norm.kind, weight: norm.weight.values, bias: norm.bias?.values, eps })
    : x.values;
  /** The sum of an output, and that of its terms' sizes. @param {number} r @param {number} o */
  const sum = (r, o) => {
    let s = bias?.values[o] ?? 0;
    let size = Math.abs(s);
    for (let i = 0; i < inputs; i++) {
      const term = n[r * inputs + i] * w[o * inputs + i];
      s += term;
      size += Math.abs(term);
    }
    return [s, size];
  };
  const actual = out.read();
  for (let k = 0; k < rows * outputs; k++) {
    const [r, o] = [Math.floor(k / outputs), k % outputs];
    const [v, size] = sum(r, o);
    let [expected, room] = [v, size];
    if (activation === 'gelu') [expected, room] = [gelu(v), 1.2 * size];
    if (activation === 'swiglu') {
      // The slopes of SiLU and GELU are at most 1.2.
      const [u, upSize] = sum(r, outputs + o);
      [expected, room] = [silu(v) * u, 1.2 * size * Math.abs(u) + Math.abs(silu(v)) * upSize];
    }
    const more = added?.[k] ?? 0;
    expected += more;
    room = (TOLERANCE.f32 + rounding) * room + TOLERANCE.f32 * Math.abs(more);
    assert.ok(Math.abs(actual[k] - expected) <= room, `${form}: ${JSON.stringify(of)}: ${actual[k]} for ${expected} (seed ${seed})`);
  }
  c.destroy();
}

/** [inputs, outputs, guard]; a guard that is not a multiple of the vector takes the narrow form. */
const SIZES = [
  [1, 1, 1],
  [7, 5, 3],
  [8, 130, 8],
  [33, 9, 8],
  [264, 37, 8],
  [1000, 3, 16],
  [2048, 4, 0],
];
const QUANTIZED_SIZES = [
  [32, 1, 16],
  [96, 37, 16],
  [1056, 9, 16],
  [64, 70, 2],
];
const NUMBERS = [1, 2, 3, 8];

for (const form of /** @type {(keyof typeof FORMS)[]} */ (Object.keys(FORMS))) {
  // A pipeline takes a software device a quarter of a second: numbers of rows, sizes and types take turns.
  test(`matvec, ${form}: every type, numbers of rows and sizes`, () => {
    for (const [t, type] of TYPES.entries()) {
      for (const [k, [inputs, outputs, guard]] of (type === 'q8_0' ? QUANTIZED_SIZES : SIZES).entries()) {
        if (form === 'workgroups' && (k + t) % 2) continue;
        checkMatvec(form, { type, rows: NUMBERS[(k + t) % 4], inputs, outputs, guard });
      }
    }
  });

  test(`matvec, ${form}: many outputs, several of which a team computes`, () => {
    if (form === 'workgroups') return checkMatvec(form, { type: 'f16', rows: 5, inputs: 24, outputs: 515 });
    for (const type of /** @type {const} */ (['f16', 'q8_0'])) {
      const sizes = { type, inputs: type === 'f16' ? 24 : 32, guard: 16 };
      checkMatvec(form, { ...sizes, rows: 1, outputs: 531 });
      checkMatvec(form, { ...sizes, rows: 3, outputs: 4099, activation: 'swiglu' });
      checkMatvec(form, { ...sizes, rows: 8, outputs: 8195, norm: 'rms' });
    }
    return undefined;
  });

  test(`matvec, ${form}: norms, biases, activations and residuals`, () => {
    for (const [t, type] of TYPES.entries()) {
      if (form === 'workgroups' && t % 2) continue;
      const sizes = { type, rows: [1, 3, 2, 1][t], inputs: type === 'q8_0' ? 160 : 72, outputs: 21, guard: 16 };
      checkMatvec(form, { ...sizes, norm: 'rms' });
      checkMatvec(form, { ...sizes, norm: 'rms', activation: 'swiglu' });
      checkMatvec(form, { ...sizes, norm: 'layer', normBias: true, bias: true, activation: 'gelu' });
      checkMatvec(form, { ...sizes, bias: true, residual: t % 2 ? true : 'out' });
      checkMatvec(form, { ...sizes, norm: 'layer', bias: true, activation: 'swiglu', residual: t % 2 ? 'out' : true });
    }
    if (form !== 'workgroups') {
      checkMatvec(form, { type: 'f16', rows: 2, inputs: 27, outputs: 11, guard: 1, norm: 'layer', normBias: true, activation: 'swiglu' });
    }
  });
}

/** Types that matrix units of this device multiply. */
const MATRIX_TYPES = /** @type {WeightType[]} */ ([...TYPES]).filter(
  (type) => type !== 'f32' && kernels.matmulSupports(type === 'bf16' ? 'bf16' : 'f16'),
);
/** The fewest outputs of a workgroup on matrix units whose loads divide. */
const SMALL_OUT = kernels.context.isCpu ? 8 : 16;
const matrixTest = MATRIX_TYPES.length > 0 ? test : test.skip;

// lavapipe takes seconds for each pipeline of these, so that small tiles and few numbers of rows take turns.
matrixTest('matvec on matrix units: numbers of rows, sizes and blocks', () => {
  for (const type of MATRIX_TYPES) {
    const guard = 16;
    // Blocks that end beyond the inputs, subgroups without a block, several blocks in flight.
    const blocks = { bk: 32, ahead: 2, subgroups: 2, out: SMALL_OUT };
    for (const [inputs, outputs] of type === 'q8_0'
      ? [
          [32, 1],
          [288, 37],
        ]
      : [
          [8, 1],
          [264, 37],
          [2048, 3],
        ]) {
      checkMatvec('lanes', { type, rows: 7, inputs, outputs, guard, matrix: blocks });
    }
    // More rows and deeper blocks are the same code for quants.
    if (type === 'q8_0') continue;
    checkMatvec('lanes', { type, rows: 32, inputs: 96, outputs: 70, guard, matrix: { ...blocks, ahead: 1, out: 2 * SMALL_OUT } });
    checkMatvec('lanes', {
      type,
      rows: 11,
      inputs: 352,
      outputs: 21,
      guard,
      matrix: { ...blocks, bk: 64, ahead: 1 },
    });
  }
});

matrixTest('matvec on matrix units: norms, biases, activations and residuals', () => {
  for (const [t, type] of MATRIX_TYPES.entries()) {
    const matrix = { bk: 32, ahead: 1, subgroups: 2, out: SMALL_OUT };
    const sizes = { type, rows: [5, 9, 18][t], inputs: 160, outputs: 21, guard: 16, matrix };
    if (t % 2 === 0) {
      checkMatvec('lanes', { ...sizes, norm: 'rms', activation: 'swiglu' });
      checkMatvec('lanes', { ...sizes, norm: 'layer', normBias: true, bias: true, activation: 'gelu' });
    } else {
      checkMatvec('lanes', { ...sizes, norm: 'rms', residual: true });
      checkMatvec('lanes', { ...sizes, norm: 'layer', bias: true, activation: 'swiglu', residual: 'out' });
    }
  }
});

matrixTest('matvec on matrix units: rows that f16 has no room for', () => {
  const matrix = { bk: 32, ahead: 1, subgroups: 2, out: SMALL_OUT };
  const sizes = { rows: 7, inputs: 264, outputs: 21, guard: 16, matrix };
  const scales = [1e-6, 1e-3, 1, 1e3, 1e6, 0, 1e12];
  const scale = (/** @type {number} */ row) => scales[row];
  // The first block is of zeros, or so small that the rest overflows by its range; or the last one is so large.
  const uneven = (/** @type {number} */ row, /** @type {number} */ column) => {
    if (row < 3) return column < 32 ? [0, 1e-9, 1e-30][row] : 1;
    return row === 3 && column >= 256 ? 1e9 : 1;
  };
  for (const type of MATRIX_TYPES) {
    const inputs = type === 'q8_0' ? 288 : 264;
    checkMatvec('lanes', { ...sizes, inputs, type, norm: 'rms', scale });
    checkMatvec('lanes', { ...sizes, inputs, type, norm: 'rms', scale: uneven });
    if (type === 'f16') checkMatvec('lanes', { ...sizes, inputs, type, scale: uneven });
  }
});

test('matvec: wrong plans and numbers of rows', () => {
  const c = new Case();
  const [x, weight, out] = [c.input(normal(33 * 8)), c.input(normal(24)), c.output(33 * 3)];
  const args = { x: x.tensor, weight: weight.tensor, out: out.tensor, rows: 2, inputs: 8, outputs: 3 };
  for (const [more, message] of /** @type {[any, RegExp][]} */ ([
    [{ rows: 33 }, /^matvec: rows must be in \[1, 32\], got 33$/],
    [{ plan: { kernel: 'coop' } }, /^matvec: plan.kernel must be one of vector, matrix, got coop$/],
    [{ plan: { kernel: 'matrix' } }, /^matvec: matrix units cannot compute it on .*: weights in f32$/],
  ])) {
    assert.throws(() => kernels.matvec({ ...args, ...more }), { name: 'RangeError', message });
  }
  c.destroy();
});

test('matvec: more than 8 rows without matrix units', () => {
  for (const [type, inputs] of /** @type {const} */ ([
    ['f32', 24],
    ['f16', 27],
    ['q8_0', 64],
  ])) {
    checkMatvec('lanes', { type, rows: 19, inputs, outputs: 13, guard: 1 * (inputs % 2) || 16, norm: 'rms', residual: 'out', bias: true });
  }
});

test('matvec: a weight larger than a binding is taken in parts, also of gates and ups', () => {
  for (const type of TYPES) {
    const small = createKernels(vk);
    Object.defineProperty(small.context, 'bindingBytes', { value: 1000 });
    for (const activation of /** @type {const} */ ([undefined, 'swiglu'])) {
      const c = new Case({ guard: 16 });
      const [rows, inputs, outputs] = [2, 64, 45];
      const x = c.input(normal(rows * inputs));
      const weight = weightOf(c, type, activation ? 2 * outputs : outputs, inputs);
      const [whole, parts] = [c.output(rows * outputs), c.output(rows * outputs)];
      const args = { x: x.tensor, weight: weight.weight, scales: weight.scales, rows, inputs, outputs, type, activation };
      const dispatches = small.matvec({ ...args, out: parts.tensor });
      assert.ok(Array.isArray(dispatches) && dispatches.length > 2);
      c.run(kernels.matvec({ ...args, out: whole.tensor }), dispatches);
      assert.deepEqual(parts.read(), whole.read());
      c.destroy();
    }
  }
});

test('matvec: infinities and NaN as IEEE arithmetic gives them, and only where they are', () => {
  const [inputs, outputs] = [72, 6];
  for (const form of /** @type {(keyof typeof FORMS)[]} */ (Object.keys(FORMS))) {
    for (const type of /** @type {const} */ (['f32', 'f16', 'bf16'])) {
      const c = new Case();
      const values = normal(inputs * outputs).map(Math.abs);
      values[inputs - 1] = Infinity;
      values[2 * inputs - 1] = -Infinity;
      values[3 * inputs - 1] = Number.NaN;
      values[4 * inputs - 2] = Infinity;
      values[4 * inputs - 1] = -Infinity;
      const [x, w, out] = [c.input(new Float64Array(inputs).fill(1)), c.input(values, type), c.output(outputs)];
      c.run(FORMS[form].matvec({ x: x.tensor, weight: w.tensor, out: out.tensor, rows: 1, inputs, outputs, type }));
      const [plus, minus, nan, both, ...rest] = out.read();
      assert.deepEqual([plus, minus, nan, both], [Infinity, -Infinity, Number.NaN, Number.NaN], `${form}, ${type}`);
      assert.ok(rest.every(Number.isFinite));
      c.destroy();
    }
  }
});

test('embedRows: every type, ids outside, positions', () => {
  for (const type of TYPES) {
    for (const positionType of /** @type {const} */ ([undefined, 'f32', 'f16'])) {
      const [rows, columns, vocabulary, positions] = [5, type === 'q8_0' ? 64 : 7, 11, 6];
      const c = new Case({ guard: 16 });
      const ids = c.input([3, 10, 11, 0, 0xffffffff], 'u32');
      const { weight: table, scales, values } = weightOf(c, type, vocabulary, columns);
      const position = positionType && c.input(normal(positions * columns), positionType);
      const places = c.input([0, 5, 2, 6, 3], 'u32');
      const out = c.output(rows * columns);
      c.run(
        kernels.embedRows({
          ...{ ids: ids.tensor, table, scales, type, out: out.tensor, rows, columns, vocabulary },
          ...(position ? { positionTable: position.tensor, positionType, positions, places: places.tensor } : {}),
        }),
      );
      const expected = Array.from({ length: rows * columns }, (_, k) => {
        const [r, i] = [Math.floor(k / columns), k % columns];
        const from = position ? position.values[Math.min(places.values[r], positions - 1) * columns + i] : 0;
        return Math.fround((ids.values[r] < vocabulary ? values[ids.values[r] * columns + i] : 0) + from);
      });
      assert.deepEqual([...out.read()], expected, `${type}, ${positionType}`);
      c.destroy();
    }
  }
});

test('dequantize: rows of every type as every type', () => {
  for (const type of TYPES) {
    for (const outType of /** @type {const} */ (['f32', 'f16', 'bf16'])) {
      for (const [rows, columns, firstRow] of type === 'q8_0' ? [[3, 64, 2]] : outType === 'f32' ? [[3, 5, 0]] : [[2, 5, 3]]) {
        const c = new Case({ guard: 16 });
        const { weight, scales, values } = weightOf(c, type, firstRow + rows, columns);
        const out = c.output(rows * columns, outType);
        c.run(kernels.dequantize({ weight, scales, type, out: out.tensor, outType, rows, columns, firstRow }));
        const expected = values.slice(firstRow * columns);
        if (outType === 'f32') assert.deepEqual(out.read(), expected.map(Math.fround), type);
        else assertClose(out.read(), expected, TOLERANCE[outType], `${type} as ${outType}`);
        c.destroy();
      }
    }
  }
});

/**
 * @param {{ heads: number, kvHeads: number, headSize: number, rows: number, slots: number[], places: number[], capacity: number, guard?: number,
 *   norms?: 'head' | 'row', rotates?: boolean, qkvType?: 'f32' | 'f16' | 'bf16', qType?: 'f32' | 'f16' | 'bf16', cacheType: 'f32' | 'f16' | 'bf16' }} of
 */
function checkRopeCache(of) {
  const { heads, kvHeads, headSize, rows, capacity, norms, rotates = true, qkvType = 'f32', qType = 'f32', cacheType, guard = 8 } = of;
  const [cacheSlots, positions, eps] = [3, capacity, 1e-3];
  const units = heads + 2 * kvHeads;
  const width = kvHeads * headSize;
  const c = new Case({ guard });
  const qkv = c.input(normal(rows * units * headSize), qkvType);
  const q = c.output(rows * heads * headSize, qType);
  const caches = [0, 1].map(() => c.inout(normal(cacheSlots * capacity * width), cacheType));
  const [slots, places] = [c.input(of.slots, 'u32'), c.input(of.places, 'u32')];
  const table = c.input(ropeTable({ positions, headSize }));
  const [qNorm, kNorm] = [heads, kvHeads].map((n) => c.input(normal(norms === 'row' ? n * headSize : headSize)));
  c.run(
    kernels.ropeCache({
      ...{
        qkv: qkv.tensor,
        q: q.tensor,
        keys: caches[0].tensor,
        values: caches[1].tensor,
        rows,
        heads,
        kvHeads,
        headSize,
        capacity,
        cacheSlots,
      },
      ...{ slots: slots.tensor, places: places.tensor, qkvType, qType, cacheType, eps, positions },
      table: rotates ? table.tensor : undefined,
      ...(norms ? { qNorm: qNorm.tensor, kNorm: kNorm.tensor, normKind: norms } : {}),
    }),
  );
  const wanted = [new Float64Array(rows * heads * headSize), ...caches.map(({ values }) => values.slice())];
  for (let r = 0; r < rows; r++) {
    const row = qkv.values.slice(r * units * headSize, (r + 1) * units * headSize);
    [heads, kvHeads].forEach((n, k) => {
      const part = row.subarray(k * heads * headSize, (k * heads + n) * headSize);
      if (norms) {
        const [count, columns] = norms === 'row' ? [1, n * headSize] : [n, headSize];
        part.set(normalized(part, count, columns, { kind: 'rms', weight: [qNorm, kNorm][k].values, eps }));
      }
      for (let h = 0; rotates && h < n; h++) {
        for (let i = 0; i < headSize / 2; i++) {
          const [x, y] = [h * headSize + i, h * headSize + headSize / 2 + i];
          const at = (Math.min(of.places[r], positions - 1) * headSize) / 2 + i;
          const [cosine, sine] = [table.values[2 * at], table.values[2 * at + 1]];
          [part[x], part[y]] = [part[x] * cosine - part[y] * sine, part[x] * sine + part[y] * cosine];
        }
      }
    });
    wanted[0].set(row.subarray(0, heads * headSize), r * heads * headSize);
    if (of.slots[r] >= cacheSlots || of.places[r] >= capacity) continue;
    const at = (of.slots[r] * capacity + of.places[r]) * width;
    wanted[1].set(row.subarray(heads * headSize, heads * headSize + width), at);
    wanted[2].set(row.subarray(heads * headSize + width), at);
  }
  assertClose(q.read(), wanted[0], TOLERANCE[qType], `q of ${JSON.stringify(of)}`);
  caches.forEach((cache, k) => {
    const actual = cache.read();
    assertClose(actual, wanted[1 + k], TOLERANCE[cacheType], `cache ${k} of ${JSON.stringify(of)}`);
    // What no row is stored at keeps its bits.
    for (let at = 0; at < cacheSlots * capacity; at++) {
      if (of.slots.some((slot, r) => of.places[r] < capacity && slot * capacity + of.places[r] === at)) continue;
      assert.deepEqual(actual.subarray(at * width, (at + 1) * width), cache.values.subarray(at * width, (at + 1) * width));
    }
  });
  c.destroy();
}

test('ropeCache: rows of several slots at their places, with norms, in every type', () => {
  const rows = { rows: 4, slots: [2, 0, 1, 3], places: [0, 8, 9, 1], capacity: 9 };
  checkRopeCache({ heads: 4, kvHeads: 2, headSize: 8, ...rows, cacheType: 'f32' });
  checkRopeCache({ heads: 4, kvHeads: 2, headSize: 20, ...rows, norms: 'head', cacheType: 'f16' });
  checkRopeCache({ heads: 3, kvHeads: 3, headSize: 64, ...rows, norms: 'row', cacheType: 'bf16', qType: 'bf16', qkvType: 'bf16' });
  checkRopeCache({
    heads: 2,
    kvHeads: 1,
    headSize: 128,
    ...rows,
    norms: 'head',
    rotates: false,
    cacheType: 'f32',
    qType: 'f16',
    qkvType: 'f16',
  });
  checkRopeCache({ heads: 2, kvHeads: 1, headSize: 4, ...rows, rotates: false, cacheType: 'f16', guard: 2 });
});

/** A chunk of a prompt, as `ropeForward` rotates it. @param {{ rows: number, heads: number, kvHeads: number }} of */
function checkPrompt({ rows, heads, kvHeads }) {
  const [headSize, capacity] = [16, rows + 10];
  const c = new Case();
  const units = heads + 2 * kvHeads;
  const x = normal(rows * units * headSize);
  const [qkv, rotated] = [c.input(x), c.inout(x)];
  const q = c.output(rows * heads * headSize);
  const zeros = new Float64Array(capacity * kvHeads * headSize);
  const [keys, values] = [c.inout(zeros), c.inout(zeros)];
  const slots = c.input(new Float64Array(rows), 'u32');
  const places = c.input(
    Float64Array.from({ length: rows }, (_, r) => r + 7),
    'u32',
  );
  const table = c.input(ropeTable({ positions: capacity, headSize }));
  c.run(
    kernels.ropeCache({
      ...{ qkv: qkv.tensor, q: q.tensor, keys: keys.tensor, values: values.tensor, slots: slots.tensor, places: places.tensor },
      ...{ table: table.tensor, positions: capacity, rows, heads, kvHeads, headSize, capacity, cacheSlots: 1 },
    }),
    kernels.ropeForward({
      ...{ x: rotated.tensor, table: table.tensor, places: places.tensor, positions: capacity, rows, headSize },
      ...{ heads: heads + kvHeads, rowStride: units * headSize },
    }),
  );
  const [qs, ks, vs, all] = [q, keys, values, rotated].map((tensor) => tensor.read());
  const [width, kvWidth] = [heads * headSize, kvHeads * headSize];
  for (let r = 0; r < rows; r++) {
    const row = all.subarray(r * units * headSize, (r + 1) * units * headSize);
    const at = (r + 7) * kvWidth;
    assertClose(qs.subarray(r * width, (r + 1) * width), row.subarray(0, width), TOLERANCE.f32, 'q');
    assertClose(ks.subarray(at, at + kvWidth), row.subarray(width, width + kvWidth), TOLERANCE.f32, 'k');
    assert.deepEqual(vs.subarray(at, at + kvWidth), row.subarray(width + kvWidth));
  }
  c.destroy();
}

test('ropeCache: a chunk of a prompt, as ropeForward rotates it', () => {
  checkPrompt({ rows: 70, heads: 4, kvHeads: 2 });
  // 4,110 heads, eight of which share a workgroup but for the last six.
  checkPrompt({ rows: 685, heads: 4, kvHeads: 1 });
});

/**
 * @param {{ heads: number, kvHeads: number, headSize: number, slots: number[], places: number[], capacity: number, bound?: number, window?: number,
 *   cacheType: 'f32' | 'f16' | 'bf16', scale?: number, guard?: number }} of
 * @param {ReturnType<typeof createKernels>} from
 */
function checkAttend(of, from) {
  const { heads, kvHeads, headSize, capacity, bound, window, cacheType, scale, guard = 8 } = of;
  const rows = of.places.length;
  const cacheSlots = 3;
  const width = kvHeads * headSize;
  const c = new Case({ guard });
  const q = c.input(normal(rows * heads * headSize));
  // Beyond the places lies what must not be read: NaN.
  const stored = [0, 1].map(() => {
    const numbers = normal(cacheSlots * capacity * width);
    for (let s = 0; s < cacheSlots; s++) {
      const last = Math.max(-1, ...of.places.filter((place, r) => of.slots[r] === s && place < capacity));
      numbers.fill(Number.NaN, (s * capacity + last + 1) * width, (s + 1) * capacity * width);
    }
    return c.input(numbers, cacheType);
  });
  const out = c.output(rows * heads * headSize);
  const [slots, places] = [c.input(of.slots, 'u32'), c.input(of.places, 'u32')];
  const needed = from.attendCacheWorkspace({ rows, heads, kvHeads, headSize, capacity, bound });
  const partials = needed > 0 ? c.inout(new Float64Array(needed).fill(Number.NaN)) : undefined;
  c.run(
    from.attendCache({
      ...{
        q: q.tensor,
        keys: stored[0].tensor,
        values: stored[1].tensor,
        out: out.tensor,
        rows,
        heads,
        kvHeads,
        headSize,
        capacity,
        bound,
        cacheSlots,
      },
      ...{ slots: slots.tensor, places: places.tensor, cacheType, window, scale, partials: partials?.tensor },
    }),
  );
  const expected = new Float64Array(rows * heads * headSize);
  for (let r = 0; r < rows; r++) {
    const place = of.places[r];
    if (of.slots[r] >= cacheSlots || place >= capacity) continue;
    for (let h = 0; h < heads; h++) {
      const kv = Math.floor((h * kvHeads) / heads);
      const rowAt = (/** @type {number} */ j) => ((of.slots[r] * capacity + j) * kvHeads + kv) * headSize;
      const first = Math.max(0, place + 1 - (window ?? capacity));
      const scores = Array.from({ length: place + 1 - first }, (_, j) => {
        let s = 0;
        for (let i = 0; i < headSize; i++) s += q.values[(r * heads + h) * headSize + i] * stored[0].values[rowAt(first + j) + i];
        return s * (scale ?? 1 / Math.sqrt(headSize));
      });
      const most = Math.max(...scores);
      const exps = scores.map((s) => Math.exp(s - most));
      const sum = exps.reduce((a, b) => a + b);
      exps.forEach((e, j) => {
        for (let i = 0; i < headSize; i++) expected[(r * heads + h) * headSize + i] += (e / sum) * stored[1].values[rowAt(first + j) + i];
      });
    }
  }
  // An exponential of the device may be off by some units in the last place for each unit of its argument (Vulkan, Precision of SPIR-V operations).
  assertClose(out.read(), expected, 5 * TOLERANCE.f32, JSON.stringify(of));
  c.destroy();
}

for (const [what, from] of /** @type {const} */ ([
  ['as here', kernels],
  ['as on a GPU', ofSubgroups],
])) {
  test(`attendCache, ${what}: slots at different places, groups, windows, sizes`, () => {
    const { context } = from;
    const rows = { slots: [2, 0, 1], places: [0, 700, 255] };
    checkAttend({ heads: 2, kvHeads: 2, headSize: 8, slots: [1], places: [0], capacity: 1, cacheType: 'f32' }, from);
    checkAttend({ heads: 4, kvHeads: 2, headSize: 64, ...rows, capacity: 701, cacheType: 'f16' }, from);
    checkAttend({ heads: 8, kvHeads: 1, headSize: 40, ...rows, capacity: 720, window: 200, cacheType: 'bf16' }, from);
    checkAttend({ heads: 3, kvHeads: 3, headSize: 128, ...rows, capacity: 1024, window: 1, cacheType: 'f32' }, from);
    // More heads of a group than a workgroup takes; a slot that is not there, and a place beyond the capacity.
    checkAttend(
      { heads: 11, kvHeads: 1, headSize: 256, slots: [0, 3, 1], places: [127, 5, 128], capacity: 128, cacheType: 'f16', scale: 0.3 },
      from,
    );
    checkAttend(
      { heads: 22, kvHeads: 2, headSize: 72, ...rows, places: [256, 511, 512], capacity: 513, window: 257, cacheType: 'f16' },
      from,
    );
    // Fewer keys than the cache has room for, in one split and in several; a place beyond the capacity all the same.
    const early = {
      heads: 2,
      kvHeads: 1,
      headSize: 64,
      slots: [2, 0, 1],
      places: [0, 5000, 99],
      capacity: 1024,
      cacheType: /** @type {const} */ ('f16'),
    };
    checkAttend({ ...early, bound: 100 }, from);
    checkAttend({ ...early, places: [599, 5000, 300], bound: 600 }, from);
    checkAttend({ ...early, places: [599, 5000, 300], bound: 600, window: 50 }, from);
    assert.equal(context.workspaces.has('attendCache'), false);
  });
}

test('q8_0: llama.cpp rounds halves away from zero, zeros and what is not finite stay so', () => {
  const numbers = new Float32Array(5 * 32);
  for (let i = 0; i < 32; i++) numbers[i] = i - 15.5;
  numbers[0] = 127;
  numbers[32 + 5] = Number.NaN;
  numbers[64 + 6] = -Infinity;
  for (let i = 0; i < 32; i++) numbers[96 + i] = 1e-30 * i;
  for (let i = 0; i < 32; i++) numbers[128 + i] = (i - 9) * 0.37;
  const q8 = quantizeQ8(numbers);
  assert.deepEqual([...q8.quants.subarray(0, 4)], [127, -15, -14, -13]);
  assert.deepEqual([...q8.quants.subarray(28, 32)], [13, 14, 15, 16]);
  assert.equal(q8.scales[0], toF16(1));
  const back = dequantizeQ8(q8);
  assert.ok(back.subarray(32, 64).some(Number.isNaN));
  assert.equal(back[64 + 6], -Infinity);
  assert.deepEqual([...back.subarray(96, 128)], new Array(32).fill(0));
  const d = fromF16(q8.scales[4]);
  for (let i = 128; i < 160; i++) assert.ok(Math.abs(back[i] - numbers[i]) <= 0.51 * d + 127 * d * 2 ** -11);
  assert.deepEqual(q8FromBlocks(q8ToBlocks(q8)), q8);
  // A block of a GGUF file: the scale 1.0, little-endian, then the quants.
  assert.deepEqual([...q8ToBlocks(q8).subarray(0, 4)], [0x00, 0x3c, 127, 0xf1]);
  assert.throws(() => quantizeQ8(new Float32Array(33)), /quantizeQ8: values must have a multiple of 32 elements, got 33/);
  const into = { quants: new Int8Array(numbers.length), scales: new Uint16Array(numbers.length / 32) };
  assert.equal(quantizeQ8(numbers, into), into);
  assert.deepEqual(into, q8);
  into.quants.fill(0);
  assert.deepEqual(q8FromBlocks(q8ToBlocks(q8), into), q8);
  for (const wrong of [
    { ...into, scales: new Uint16Array(1) },
    { ...into, quants: new Uint8Array(numbers.length) },
  ])
    assert.throws(
      () => quantizeQ8(numbers, /** @type {any} */ (wrong)),
      /quantizeQ8: into must have an Int8Array of \d+ quants and a Uint16Array of \d+ scales/,
    );
  assert.throws(() => q8FromBlocks(new Uint8Array(33)), /multiple of 34 elements, got 33/);
});
