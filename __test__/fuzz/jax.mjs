#!/usr/bin/env node
// Random programs of helios-vk/nn against JAX: results and gradients, eager and compiled, of f32 with special values and odd shapes.
//
//   node __test__/fuzz/jax.mjs --python PYTHON [--seconds 60] [--seed N] [--lines 6]
//
// PYTHON is one with `pip install 'jax[cpu]'`; without it nothing is compared. Program number i is that of seed + i, and has DRAWS sets of
// inputs, so that JAX, which compiles each program, does so once for all. A failure prints its seed and the program. What may differ:
// see jax_peer.py.

import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { startPeer } from '../../benches/lib/peer.mjs';
import { isMain, runMain } from '../../bin/lib/options.mjs';
import { EXACT, PASSES } from '../../nn/compile/passes/index.mjs';
import { ArgumentError, F, ShapeError, UsageError, cat, compile, full, grad, nn, reset, scope, stack, tensor } from '../../nn/index.mjs';
import { Random } from '../lib/random.mjs';
import { COMPARISONS, UNARY } from '../nn/names.mjs';
import { initDevice, poison } from '../nn/setup.mjs';

/** A call: its operands as indices of inputs and results so far, and its attributes. @typedef {[op: string, operands: number[], attributes: any]} Line */

const DRAWS = 4;
const PER_DEVICE = 50;
const PROGRESS = 60_000;
/** Milliseconds for a program in JAX. */
const LIMIT = 300_000;
const SIZES = [1, 1, 2, 3, 4, 5, 7, 8, 13];
const LENGTHS = [1, 2, 7, 31, 64, 67, 127, 257, 509];
const MAX_SIZE = 600;
const SPECIAL = [NaN, Infinity, -Infinity, 0, -0, 1e-40, -1e-40, 2 ** -126, -(2 ** -149), 2 ** 24, 0.5, 1, -1, 88.8, -104];
const HUGE = [3e38, -3e38, 1e30, -1e20, 65504, 1e-30, -1e-20];
const NUMBERS = [1, -1, 0.5, 2, 0.1, -3, 1e-3, 0, 'Infinity', 'NaN', 1e-40, 1e38];

const sizeOf = (/** @type {readonly number[]} */ shape) => shape.reduce((a, b) => a * b, 1);
const base64 = (/** @type {Float32Array} */ values) => Buffer.from(values.buffer, values.byteOffset, values.byteLength).toString('base64');
const packed = (/** @type {readonly number[]} */ shape, /** @type {Float32Array} */ values) => ({ shape, data: base64(values) });
const ids = (/** @type {any} */ { index, shape = [index.length] }) => tensor(Int32Array.from(index), { shape });
const anyF = /** @type {any} */ (F);

/** Layers of the lines, by their attributes: a compiled function makes none. @type {WeakMap<object, any>} */
const layers = new WeakMap();
/**
 * The states of all steps of a recurrent layer of these weights, which thereby have gradients.
 * @param {new (inputs: number, hidden: number) => any} Layer @returns {(operands: any[], attributes: object) => any}
 */
const recurrent =
  (Layer) =>
  ([x, weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0], attributes) => {
    const own = layers.get(attributes) ?? new Layer(x.shape[2], weight_hh_l0.shape[1]);
    layers.set(attributes, own);
    return Object.assign(own, { weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0 }).forward(x)[0];
  };

/** What each call is here. @type {Record<string, (xs: any[], a: any) => any>} */
const RUN = {
  unary: ([x], { f }) => anyF[f](x),
  pow: ([x], { exponent }) => x.pow(exponent),
  addNumber: ([x], { number }) => x.add(Number(number)),
  mulNumber: ([x], { number }) => x.mul(Number(number)),
  rsubNumber: ([x], { number }) => F.sub(Number(number), x),
  divNumber: ([x], { number }) => x.div(Number(number)),
  rdivNumber: ([x], { number }) => F.div(Number(number), x),
  add: ([x, y]) => x.add(y),
  sub: ([x, y]) => x.sub(y),
  mul: ([x, y]) => x.mul(y),
  div: ([x, y]) => x.div(y),
  maximum: ([x, y]) => x.maximum(y),
  minimum: ([x, y]) => x.minimum(y),
  clamp: ([x], { min, max }) => x.clamp(min === null ? undefined : Number(min), max === null ? undefined : Number(max)),
  compare: ([x, y], { f }) => anyF[f](x, y).to('f32'),
  compareNumber: ([x], { f, number }) => anyF[f](x, Number(number)).to('f32'),
  where: ([c, x, y]) => F.where(c.gt(0), x, y),
  maskedFill: ([x, c], { number }) => x.maskedFill(c.gt(0), Number(number)),
  half: ([x], { type }) => x.to(type === 'float16' ? 'f16' : 'bf16').to('f32'),
  reshape: ([x], { shape }) => x.reshape(shape),
  permute: ([x], { order }) => x.permute(...order),
  slice: ([x], { dim, start, end, step }) => x.slice(dim, start, end, step),
  expand: ([x], { shape }) => x.expand(...shape),
  cat: (xs, { dim }) => cat(xs, dim),
  stack: (xs, { dim }) => stack(xs, dim),
  sum: ([x], { dims, keep }) => x.sum(dims, keep),
  mean: ([x], { dims, keep }) => x.mean(dims, keep),
  variance: ([x], { dims, keep, correction }) => F.variance(x, dims, { keepdim: keep, correction }),
  amax: ([x], { dim, keep }) => x.amax(dim, keep),
  amin: ([x], { dim, keep }) => x.amin(dim, keep),
  argmax: ([x], { dim, keep }) => x.argmax(dim, keep).to('f32'),
  argmin: ([x], { dim, keep }) => x.argmin(dim, keep).to('f32'),
  softmax: ([x], { dim }) => x.softmax(dim),
  logSoftmax: ([x], { dim }) => F.logSoftmax(x, dim),
  rmsNorm: ([x, w]) => F.rmsNorm(x, w),
  layerNorm: ([x, w, b]) => F.layerNorm(x, w, b),
  glu: ([x], { activation }) => F.glu(x, activation),
  matmul: ([x, y]) => x.matmul(y),
  linear: ([x, w, b]) => F.linear(x, w, b),
  conv: ([x, w, b], { stride, padding }) => F.conv2d(x, w, b, { stride, padding }),
  avgPool: ([x], { window, stride }) => F.avgPool2d(x, window, { stride }),
  maxPool: ([x], { window, stride }) => F.maxPool2d(x, window, { stride }),
  upsample: ([x], { scale }) => F.upsample(x, scale),
  attention: ([q, k, v, mask], { causal }) => F.scaledDotProductAttention(q, k, v, { isCausal: causal, ...(mask && { mask: mask.gt(0) }) }),
  fusedAttention: ([x], { heads, causal }) => F.attention(x, { heads, causal }),
  crossEntropy: ([x], { targets, reduction }) => F.crossEntropy(x, ids({ index: targets }), { reduction }),
  mse: ([x, y], options) => F.mseLoss(x, y, options),
  l1: ([x, y], options) => F.l1Loss(x, y, options),
  bce: ([x, y], options) => F.binaryCrossEntropyWithLogits(x, y, options),
  gather: ([x], { dim, ...index }) => x.gather(dim, ids(index)),
  scatter: ([x, y], { dim, ...index }) => x.scatter(dim, ids(index), y),
  scatterAdd: ([x, y], { dim, ...index }) => x.scatterAdd(dim, ids(index), y),
  indexSelect: ([x], { dim, index }) => x.indexSelect(dim, ids({ index })),
  embedding: ([x], index) => F.embedding(ids(index), x),
  lstm: recurrent(nn.LSTM),
  gru: recurrent(nn.GRU),
};

/** How a program is being written: what there is so far, and what a call may take. */
class Draft {
  /** @param {Random} random */
  constructor(random) {
    this.random = random;
    /** Shapes of the inputs. @type {number[][]} */
    this.inputs = [];
    /** Operands below 0 are inputs, from -1 on down; others are lines. @type {Line[]} */
    this.lines = [];
    /** @type {{ id: number, shape: number[] }[]} */
    this.pool = [];
  }
  /** A new input. @param {number[]} shape @returns {{ id: number, shape: number[] }} */
  input(shape) {
    this.inputs.push(shape);
    const made = { id: -this.inputs.length, shape };
    this.pool.push(made);
    return made;
  }
  /** Of this shape: there already, or a new input. @param {number[]} shape */
  of(shape) {
    const fitting = this.pool.filter((x) => String(x.shape) === String(shape));
    return fitting.length > 0 && this.random.chance(0.5) ? this.random.pick(fitting) : this.input(shape);
  }
  /** What broadcasts with x. @param {{ shape: number[] }} x */
  partner({ shape }) {
    const { random } = this;
    const cut = random.chance(0.3) ? random.between(0, shape.length) : 0;
    return this.of(shape.slice(cut).map((size) => (random.chance(0.2) ? 1 : size)));
  }
  shape() {
    const { random } = this;
    for (;;) {
      const ndim = random.between(1, 4);
      const shape = Array.from({ length: ndim }, () => random.pick(ndim === 1 ? LENGTHS : SIZES));
      if (sizeOf(shape) <= MAX_SIZE) return shape;
    }
  }
  /** One of the last, for the most part. @param {(x: { shape: number[] }) => boolean} [fits] */
  pick(fits = () => true) {
    const fitting = this.pool.filter(fits);
    if (fitting.length === 0) return undefined;
    return fitting[fitting.length - 1 - Math.floor((this.random.below(1024) / 1024) ** 2 * fitting.length)];
  }
}

/** @typedef {{ id: number, shape: number[] }} Operand */
/**
 * What a line is: operands and attributes, or nothing where there is no operand that it takes.
 * @typedef {(d: Draft, r: Random) => [Operand[], any?] | undefined} Writer
 */

const hasDims = (/** @type {{ shape: number[] }} */ { shape }) => shape.length > 0;
/** @param {(d: Draft, r: Random, x: Operand) => [Operand[], any?] | undefined} write @param {(x: any) => boolean} [fits] @returns {Writer} */
const withOne =
  (write, fits = hasDims) =>
  (d, r) => {
    const x = d.pick(fits);
    return x && write(d, r, x);
  };
const binary = withOne(
  (d, r, x) => (r.chance(0.5) ? [[x, d.partner(x)]] : [[d.partner(x), x]]),
  () => true,
);
const withNumber = withOne(
  (_, r, x) => [[x], { number: r.pick(NUMBERS) }],
  () => true,
);
const alongDim = withOne((_, r, x) => [[x], { dim: r.below(x.shape.length), keep: r.chance(0.5) }]);
const overDims = withOne((_, r, x) => {
  const dims = x.shape.map((__, d) => d).filter(() => r.chance(0.5));
  return [[x], { dims: dims.length > 0 ? dims : [r.below(x.shape.length)], keep: r.chance(0.5), correction: r.below(2) }];
});
const image = (/** @type {Draft} */ d, /** @type {Random} */ r) =>
  d.pick(({ shape }) => shape.length === 4 && shape[2] > 2 && shape[3] > 2) ??
  d.input([r.between(1, 2), r.between(1, 3), r.between(3, 7), r.between(3, 7)]);
const loss = withOne(
  (d, r, x) => [[x, d.of(x.shape)], { reduction: r.pick(['none', 'mean', 'sum']) }],
  () => true,
);
/**
 * Indices along a dimension, of the other sizes of x.
 * @param {Random} r @param {Operand} x @param {boolean} once whether no element is pointed at twice
 */
function indicesOf(r, x, once) {
  const dim = r.below(x.shape.length);
  const size = x.shape[dim];
  const count = once ? r.between(1, size) : r.between(1, 6);
  const shape = x.shape.map((own, d) => (d === dim ? count : own));
  const inner = sizeOf(shape.slice(dim + 1));
  /** @type {Map<number, number[]>} */
  const free = new Map();
  const index = Array.from({ length: sizeOf(shape) }, (_, i) => {
    if (!once) return r.below(size);
    const line = Math.floor(i / (inner * count)) * inner + (i % inner);
    if (!free.has(line)) free.set(line, r.sample([...Array(size).keys()], count));
    return /** @type {number} */ (free.get(line)?.pop());
  });
  return { dim, shape, index };
}
/** @param {number} gates @returns {Writer} */
const layer = (gates) => (d, r) => {
  const [inputs, hidden] = [r.between(1, 5), r.between(1, 5)];
  const x = d.of([r.between(1, 3), r.between(1, 4), inputs]);
  return [[x, d.of([gates * hidden, inputs]), d.of([gates * hidden, hidden]), d.of([gates * hidden]), d.of([gates * hidden])]];
};

/** How the lines are written. @type {Record<string, Writer>} */
const WRITE = {
  unary: withOne(
    (_, r, x) => [[x], { f: r.pick(UNARY) }],
    () => true,
  ),
  pow: withOne(
    (_, r, x) => [[x], { exponent: r.pick([2, 3, 4, 7, 0.5, -0.5, -1, -2, -3, 1, 1.5, 2.5, 65, 0]) }],
    () => true,
  ),
  addNumber: withNumber,
  mulNumber: withNumber,
  rsubNumber: withNumber,
  divNumber: withNumber,
  rdivNumber: withNumber,
  add: binary,
  sub: binary,
  mul: binary,
  div: binary,
  maximum: binary,
  minimum: binary,
  clamp: withOne(
    (_, r, x) => [[x], { min: r.pick([-1, 0, '-Infinity', 0.5]), max: r.pick([null, 0.5, 1, 'Infinity']) }],
    () => true,
  ),
  compare: withOne(
    (d, r, x) => [[x, d.partner(x)], { f: r.pick(COMPARISONS) }],
    () => true,
  ),
  compareNumber: withOne(
    (_, r, x) => [[x], { f: r.pick(COMPARISONS), number: r.pick(NUMBERS) }],
    () => true,
  ),
  where: withOne(
    (d, r, x) => [r.chance(0.5) ? [d.partner(x), x, d.partner(x)] : [x, d.partner(x), d.partner(x)]],
    () => true,
  ),
  maskedFill: withOne(
    (d, r, x) => [[x, d.partner(x)], { number: r.pick(NUMBERS) }],
    () => true,
  ),
  half: withOne(
    (_, r, x) => [[x], { type: r.pick(['float16', 'bfloat16']) }],
    () => true,
  ),
  reshape: withOne(
    (_, r, x) => {
      const size = sizeOf(x.shape);
      const divisors = [...Array(size).keys()].map((i) => i + 1).filter((i) => size % i === 0);
      const rows = r.pick(divisors);
      const inner = r.pick(divisors.filter((i) => (size / rows) % i === 0));
      return [[x], { shape: r.chance(0.2) ? [size] : [rows, size / rows / inner, inner] }];
    },
    () => true,
  ),
  permute: withOne((_, r, x) => [[x], { order: r.sample([...x.shape.keys()], x.shape.length) }]),
  slice: withOne((_, r, x) => {
    const dim = r.below(x.shape.length);
    const start = r.below(x.shape[dim]);
    return [[x], { dim, start, end: r.between(start + 1, x.shape[dim]), step: r.between(1, 3) }];
  }),
  expand: withOne(
    (_, r, x) => [[x], { shape: [...(r.chance(0.5) ? [r.between(1, 3)] : []), ...x.shape.map((n) => (n === 1 ? r.between(1, 4) : n))] }],
    () => true,
  ),
  cat: withOne((d, r, x) => {
    const dim = r.below(x.shape.length);
    return [r.sample([x, x, d.of(x.shape.with(dim, r.between(1, 4)))], r.between(2, 3)), { dim }];
  }),
  stack: withOne(
    (d, r, x) => [[x, d.of(x.shape)], { dim: r.between(0, x.shape.length) }],
    () => true,
  ),
  sum: overDims,
  mean: overDims,
  variance: withOne((_, r, x) => [[x], { dims: [r.below(x.shape.length)], keep: r.chance(0.5), correction: r.below(2) }]),
  amax: alongDim,
  amin: alongDim,
  argmax: alongDim,
  argmin: alongDim,
  softmax: alongDim,
  logSoftmax: alongDim,
  rmsNorm: withOne((d, _, x) => [[x, d.of([x.shape[x.shape.length - 1]])]]),
  layerNorm: withOne((d, _, x) => [[x, d.of([x.shape[x.shape.length - 1]]), d.of([x.shape[x.shape.length - 1]])]]),
  glu: withOne(
    (_, r, x) => [[x], { activation: r.pick(['silu', 'gelu', 'sigmoid', 'relu', 'tanh']) }],
    ({ shape }) => shape.at(-1) % 2 === 0,
  ),
  matmul: withOne((d, r, x) => {
    const { shape } = x;
    const k = shape[shape.length - 1];
    if (r.chance(0.15)) return [[x, d.of([k])]];
    const batch = shape.length > 2 && r.chance(0.5) ? shape.slice(0, -2).map((n) => (r.chance(0.3) ? 1 : n)) : [];
    return [[x, d.of([...batch, k, r.pick(SIZES)])]];
  }),
  linear: withOne((d, r, x) => {
    const n = r.pick(SIZES);
    const w = d.of([n, x.shape[x.shape.length - 1]]);
    return [r.chance(0.5) ? [x, w, d.of([n])] : [x, w]];
  }),
  conv: (d, r) => {
    const x = image(d, r);
    const outputs = r.between(1, 4);
    const w = d.of([outputs, x.shape[1], r.between(1, 3), r.between(1, 3)]);
    return [
      r.chance(0.5) ? [x, w, d.of([outputs])] : [x, w],
      { stride: [r.between(1, 3), r.between(1, 2)], padding: [r.below(3), r.below(2)] },
    ];
  },
  avgPool: (d, r) => [[image(d, r)], { window: [r.between(1, 3), r.between(1, 3)], stride: [r.between(1, 3), r.between(1, 2)] }],
  maxPool: (d, r) => [[image(d, r)], { window: [r.between(1, 3), r.between(1, 3)], stride: [r.between(1, 3), r.between(1, 2)] }],
  upsample: (d, r) => [[image(d, r)], { scale: [r.between(1, 2), r.between(1, 3)] }],
  attention: (d, r) => {
    const [batch, queries, size] = [r.between(1, 3), r.between(1, 6), r.between(1, 7)];
    const [keys, causal, out] = [queries + r.below(3), r.chance(0.5), r.between(1, 5)];
    const operands = [d.of([batch, queries, size]), d.of([batch, keys, size]), d.of([batch, keys, out])];
    return [r.chance(0.5) ? [...operands, d.of([queries, keys])] : operands, { causal }];
  },
  fusedAttention: (d, r) => [[d.input([1, r.between(1, 5), 96])], { heads: r.pick([1, 2, 4]), causal: r.chance(0.5) }],
  crossEntropy: withOne(
    (_, r, x) => {
      const targets = Array.from({ length: x.shape[0] }, () => (r.chance(0.1) ? -100 : r.below(x.shape[1])));
      return [[x], { targets, reduction: r.pick(['none', 'mean', 'sum']) }];
    },
    ({ shape }) => shape.length === 2,
  ),
  mse: loss,
  l1: loss,
  bce: loss,
  gather: withOne((_, r, x) => [[x], indicesOf(r, x, false)]),
  scatter: withOne((d, r, x) => {
    const index = indicesOf(r, x, true);
    return [[x, d.of(index.shape)], index];
  }),
  scatterAdd: withOne((d, r, x) => {
    const index = indicesOf(r, x, false);
    return [[x, d.of(index.shape)], index];
  }),
  indexSelect: withOne((_, r, x) => {
    const dim = r.below(x.shape.length);
    return [[x], { dim, index: Array.from({ length: r.between(1, 6) }, () => r.below(x.shape[dim])) }];
  }),
  embedding: withOne(
    (_, r, x) => {
      const shape = [r.between(1, 2), r.between(1, 4)];
      return [[x], { shape, index: Array.from({ length: sizeOf(shape) }, () => r.below(x.shape[0])) }];
    },
    ({ shape }) => shape.length === 2,
  ),
  lstm: layer(4),
  gru: layer(3),
};
const NAMES = Object.keys(WRITE);
/** Of elements by themselves: huge ones stay what they are for. */
const POINTWISE = NAMES.slice(0, NAMES.indexOf('sum')).concat('amax', 'amin', 'gather', 'scatter', 'indexSelect', 'maxPool', 'upsample');

/** Elements of an input. @param {Random} random @param {number} count @param {number} turn which of the draws @param {boolean} huge */
function drawn(random, count, turn, huge) {
  const uniform = () => 4 * (random.u32() / 2 ** 32) - 2;
  return Float32Array.from({ length: count }, () => {
    if (turn === 1 && random.chance(0.1)) return random.pick(SPECIAL);
    if (turn === 2 && random.chance(0.2)) return random.pick(huge ? HUGE : SPECIAL.slice(3));
    // Many that are equal.
    if (turn === 3) return random.pick([-2, -1, -0, 0, 1, 2, 3]);
    return uniform();
  });
}

/** The inputs, then the result of each line. @param {Line[]} lines @param {any[]} inputs */
function resultsOf(lines, inputs) {
  const pool = [...inputs];
  for (const [op, operands, attributes] of lines) {
    const own = operands.map((i) => pool[i]);
    pool.push(RUN[op](own, attributes));
  }
  return pool;
}

/**
 * What a program computes: the results of its last lines, and gradients of the inputs.
 * @param {{ lines: Line[], results: number[], ends: number[], gradients: number[] }} program @param {any[]} inputs @param {any[]} cotangents
 * @returns {any[]}
 */
function run({ lines, results, ends, gradients }, inputs, cotangents) {
  const pool = resultsOf(lines, inputs);
  const made = results.map((i) => pool[i].detach().clone());
  if (gradients.length === 0) return made;
  const total = ends.map((i, k) => pool[i].mul(cotangents[k]).sum()).reduce((a, b) => a.add(b));
  return [
    ...made,
    ...grad(
      total,
      gradients.map((i) => inputs[i]),
    ),
  ];
}

/** A random program. @param {number} seed @param {number} most lines */
function jaxProgram(seed, most) {
  const random = new Random(seed);
  const draft = new Draft(random);
  const huge = random.chance(0.4);
  const names = huge ? POINTWISE : NAMES;
  draft.input(draft.shape());
  const wanted = random.between(1, most);
  /** What the lines made, on the device. @type {any[]} */
  const made = [];
  const of = (/** @type {number} */ id) => (id < 0 ? full(draft.inputs[-1 - id], 0.5) : made[id]);
  for (let tries = 0; draft.lines.length < wanted && tries < 50; tries++) {
    const op = random.pick(names);
    const written = WRITE[op](draft, random);
    if (!written) continue;
    const [operands, attributes = {}] = written;
    const ids_ = operands.map(({ id }) => id);
    let y;
    try {
      y = RUN[op](ids_.map(of), attributes);
    } catch (error) {
      // A window that is larger than an image, a variance of one element.
      if (error instanceof ShapeError || error instanceof ArgumentError) continue;
      throw new Error(`--seed ${seed}: ${op} of ${operands.map(({ shape }) => `[${shape}]`)}, ${JSON.stringify(attributes)}`, {
        cause: error,
      });
    }
    if (y.size > MAX_SIZE) continue;
    made.push(y);
    draft.lines.push([op, ids_, attributes]);
    draft.pool.push({ id: draft.lines.length - 1, shape: [...y.shape] });
  }
  const { inputs } = draft;
  const place = (/** @type {number} */ id) => (id < 0 ? -1 - id : inputs.length + id);
  const lines = draft.lines.map(([op, operands, attributes]) => /** @type {Line} */ ([op, operands.map(place), attributes]));
  const all = lines.map((_, k) => inputs.length + k);
  const values = (/** @type {number} */ turn) => inputs.map((shape) => drawn(random, sizeOf(shape), turn, huge));
  // Of the last results that have a gradient, and of the inputs that these depend on.
  const leaves = inputs.map((shape) => full(shape, 0.5, {}).requiresGrad_());
  const pool = resultsOf(lines, leaves);
  const ends = all.filter((i) => pool[i].requiresGrad).slice(-2);
  const gradients = leaves.flatMap((leaf, i) => {
    if (ends.length === 0) return [];
    try {
      grad(
        ends.map((k) => pool[k].sum()).reduce((a, b) => a.add(b)),
        [leaf],
        { retain: true },
      );
      return [i];
    } catch (error) {
      if (error instanceof UsageError) return [];
      throw error;
    }
  });
  const program = { lines, results: all.slice(-3), ends, gradients };
  const draws = Array.from({ length: DRAWS }, (_, turn) => ({
    inputs: values(turn),
    cotangents: ends.map((i) => drawn(random, pool[i].size, 0, false)),
  }));
  const shapes = { inputs, cotangents: ends.map((i) => [...pool[i].shape]) };
  const text = `${lines.map((line) => `\n  ${JSON.stringify(line)}`).join('')}\n  inputs ${inputs.map((shape) => `[${shape}]`).join(', ')}`;
  return { program, draws, shapes, text };
}

/**
 * The program of a seed on all of its draws, compiled without the passes that drop roundings to 16 bits where it has some, here and in JAX.
 * @param {number} seed @param {number} most lines @param {(request: unknown) => Promise<any>} ask
 */
async function tryProgram(seed, most, ask) {
  const { program, draws, shapes, text } = scope(() => jaxProgram(seed, most));
  const passes = program.lines.some(([op]) => op === 'half') ? EXACT : PASSES;
  const f = compile((/** @type {any[]} */ inputs, /** @type {any[]} */ cotangents) => run(program, inputs, cotangents), { passes });
  const sent = [];
  try {
    for (const draw of draws) {
      const inputs = draw.inputs.map((values, i) => tensor(values, { shape: shapes.inputs[i], requiresGrad: true }));
      const cotangents = draw.cotangents.map((values, i) => tensor(values, { shape: shapes.cotangents[i] }));
      /** @type {Record<string, any[]>} */
      const outcomes = { eager: [], compiled: [] };
      for (const [how, g] of Object.entries({ eager: run.bind(undefined, program), compiled: f })) {
        const made = scope(() => g(inputs, cotangents));
        for (const y of made) outcomes[how].push(packed(y.shape, /** @type {Float32Array} */ (await y.toArray())));
        for (const y of made) y.dispose();
      }
      for (const x of [...inputs, ...cotangents]) x.dispose();
      sent.push({
        inputs: draw.inputs.map((values, i) => packed(shapes.inputs[i], values)),
        cotangents: draw.cotangents.map((values, i) => packed(shapes.cotangents[i], values)),
        outcomes,
      });
    }
    const answer = await ask({ program, draws: sent });
    return { ...answer, gradients: program.gradients.length, text };
  } catch (error) {
    throw new Error(`--seed ${seed}: ${/** @type {Error} */ (error).stack}${text}`);
  } finally {
    /** @type {any} */ (f).dispose();
  }
}

if (isMain(import.meta.url)) {
  const options = /** @type {const} */ ({
    python: { type: 'string', value: 'PYTHON', default: 'python3', help: 'a Python that has JAX' },
    seconds: { type: 'integer', min: 1, max: 10_000_000, default: 60, help: 'how long' },
    seed: { type: 'integer', min: 0, max: 2 ** 32 - 1, help: 'of the first program (default: another each time)' },
    lines: { type: 'integer', min: 1, max: 100, default: 6, help: 'calls of a program at most: JAX compiles for as long as there are' },
    programs: { type: 'integer', min: 1, max: 2 ** 32, default: 2 ** 32, help: 'how many at most' },
  });
  await runMain('node __test__/fuzz/jax.mjs [options]', options, async (given) => {
    const { python, seconds, lines, seed = Math.floor(Math.random() * 2 ** 32), programs: most } = given;
    if (spawnSync(python, ['-c', 'import jax']).status !== 0) {
      console.log(`skipped: ${python} has no JAX (pip install 'jax[cpu]')`);
      return 0;
    }
    const peer = startPeer(python, [fileURLToPath(new URL('jax_peer.py', import.meta.url))]);
    const ask = (/** @type {unknown} */ request) => peer.ask(request, LIMIT);
    const versions = await ask({ version: true });
    const end = Date.now() + 1000 * seconds;
    const total = { programs: 0, gradients: 0, elements: 0, strict: 0, failures: 0 };
    let [device, next] = ['', Date.now() + PROGRESS];
    const counts = () => JSON.stringify({ device, ...versions, seed, ...total });
    for (; Date.now() < end && total.programs < most; total.programs++) {
      if (total.programs % PER_DEVICE === 0) {
        reset();
        device = initDevice().deviceName;
        poison();
      }
      const own = (seed + total.programs) >>> 0;
      try {
        const { differences, elements, strict, gradients, text } = await tryProgram(own, lines, ask);
        total.elements += elements;
        total.strict += strict;
        total.gradients += gradients;
        if (differences.length > 0) throw new Error(`--seed ${own}:\n  ${differences.slice(0, 6).join('\n  ')}${text}`);
      } catch (error) {
        total.failures++;
        console.log(`${/** @type {Error} */ (error).message}\n`);
      }
      if (Date.now() >= next) {
        console.error(counts());
        next = Date.now() + PROGRESS;
      }
    }
    peer.end();
    console.log(counts());
    return total.failures > 0 ? 1 : 0;
  });
}
