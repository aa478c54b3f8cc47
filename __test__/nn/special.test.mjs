// Random programs over NaN, infinities, zeros of both signs, denormals and the largest numbers. With all passes, with none, and with each left
// out, a compiled function gives the same bits as eager code. HELIOS_TEST_SEED selects other programs.
//
// All NaNs count as equal. A device may neither preserve denormals nor declare that it flushes them: Vulkan lets it do either, from one
// operation to the next. For such a device the inputs have no denormals.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, cat, compile, full, grad, scope, tensor } from '../../nn/index.mjs';
import { PASSES } from '../../nn/compile/passes/index.mjs';
import { runtime } from '../../nn/core/runtime.mjs';
import { scaled } from '../lib/addon.mjs';
import { Random } from '../lib/random.mjs';
import { seed } from '../lib/random-data.mjs';
import { initDevice, poison } from './setup.mjs';

/** @typedef {import('../../nn/index.mjs').Tensor} Tensor */
/** @typedef {import('../../nn/compile/passes/index.mjs').PassName} PassName */

/** Whether the device says what it does with denormals, or keeps them: a driver that does neither may do either in each kernel. */
let hasDenormals = false;
before(async () => {
  initDevice();
  poison();
  const { denormPreserveF32, denormFlushF32 } = runtime().kernels.context.info;
  const x = tensor([1e-39, -3e-39]);
  const probes = [
    x.mul(-1),
    x.mul(1).add(0),
    F.sub(0, x),
    x.div(1.5),
    x.add(x),
    x.mul(x.sign()),
    x.clamp(-1, 1),
    x.amax(0, true),
    F.where(x.gt(0), x, x.neg()),
  ];
  const kept = await read([...probes, ...compile(() => probes.map((y) => y.clamp(-1, 1).mul(-1)))()]);
  hasDenormals = Boolean(denormPreserveF32 || denormFlushF32) || kept.every((values) => values.every((v) => v !== 0));
});

const SPECIAL = [NaN, Infinity, -Infinity, 0, -0, 1, -1, 0.5, -2, 3, 1e-3, -7.25, 1e19, -1e19, 3.4e38, -3e38, 1.2e-38, -2e-38];
const DENORMAL = [1e-45, -1e-45, 1e-40, -1e-39, 5e-39];
const EXPONENTS = [0, 1, 2, 3, 5, -1, -2, -3, 0.5, -0.5, 1.5, 2.5, -1.5, 65, 66, -65];

/** What an operation has: two results so far, a special number and another to choose by. */
/** @typedef {(p: Tensor, q: Tensor, v: number, n: number) => Tensor} Operation */

/** Of a shape: elements are repeated, or left out. @param {Tensor} x @param {readonly number[]} shape @returns {Tensor} */
const shaped = (x, shape) => {
  const size = shape.reduce((a, b) => a * b, 1);
  const flat = x.reshape(-1);
  const enough = flat.size < size ? cat(Array.from({ length: Math.ceil(size / flat.size) }, () => flat)) : flat;
  return enough.slice(0, 0, size).reshape(...shape);
};

/** Of elements: rounded alike in whichever kernel they are. @type {Record<string, Operation>} */
const ELEMENTWISE = {
  addNumber: (p, _, v) => p.add(v),
  subNumber: (p, _, v) => p.sub(v),
  mulNumber: (p, _, v) => p.mul(v),
  divNumber: (p, _, v) => p.div(v),
  fromNumber: (p, _, v) => F.sub(v, p),
  overNumber: (p, _, v) => F.div(v, p),
  add: (p, q) => p.add(shaped(q, p.shape)),
  sub: (p, q) => p.sub(shaped(q, p.shape)),
  mul: (p, q) => p.mul(shaped(q, p.shape)),
  div: (p, q) => p.div(shaped(q, p.shape)),
  byRow: (p, q) => p.mul(shaped(q, [p.shape.at(-1) ?? 1])),
  byColumn: (p, q) => p.add(shaped(q, [p.shape[0], 1])),
  self: (p, _, __, n) => [p.sub(p), p.div(p), p.mul(p), p.add(p)][n % 4],
  constant: (p, _, v, n) => p.mul(full([p.shape.at(-1) ?? 1], v).mul(n % 2 ? 1 : -1)),
  constantSum: (p, _, v) => p.add(full(p.shape, v)),
  unary: (p, _, __, n) => F[/** @type {'abs'} */ (['abs', 'neg', 'square', 'sign', 'relu', 'reciprocal'][n % 6])](p),
  roots: (p, _, __, n) => F[/** @type {'exp'} */ (['exp', 'log', 'log1p', 'sqrt', 'rsqrt'][n % 5])](p),
  activation: (p, _, __, n) => F[/** @type {'silu'} */ (['tanh', 'sigmoid', 'silu', 'gelu'][n % 4])](p),
  pow: (p, _, __, n) => p.pow(EXPONENTS[n % EXPONENTS.length]),
  maximum: (p, q) => F.maximum(p, shaped(q, p.shape)),
  minimum: (p, _, v) => F.minimum(p, v),
  clamp: (p, _, v) => p.clamp(-1, Number.isNaN(v) ? 1 : v),
  where: (p, q, v, n) => F.where(shaped(q, p.shape)[/** @type {'gt'} */ (['gt', 'eq', 'ne', 'le', 'lt', 'ge'][n % 6])](v), p, v),
  masked: (p, q) => p.mul(shaped(q, p.shape).gt(0).to('f32')),
  permute: (p) => p.transpose(0, 1),
  slice: (p, _, __, n) => p.slice(1, n % p.shape[1]),
  cat: (p, q) => cat([p, shaped(q, p.shape)], 0).slice(0, 0, 6),
  extreme: (p, _, __, n) => p.sub((n % 2 ? p.amax(-1, true) : p.amin(-1, true)).expand(...p.shape)),
  detach: (p, q) => p.detach().mul(shaped(q, p.shape)),
};
const NAMES = Object.keys(ELEMENTWISE);
/**
 * Those whose gradients are rounded alike, too: sums over what was broadcast are added in another order where they are fused, and the
 * eager gradients of activations are those of `helios-vk/kernels`, which leave more to the device (docs/design/codegen.md).
 */
const EXACT_GRADIENTS = NAMES.filter((name) => !['byRow', 'byColumn', 'extreme', 'activation'].includes(name));

/** @typedef {{ name: string, i: number, j: number, v: number, n: number }} Line */

/**
 * A random program.
 * @param {number} own its seed @param {readonly string[]} names
 */
function randomProgram(own, names) {
  const random = new Random(own);
  // Without, none of the numbers from which products and quotients soon are denormal.
  const numbers = hasDenormals
    ? [...SPECIAL, ...DENORMAL]
    : SPECIAL.filter((v) => !(Math.abs(v) < 1e-30 && v !== 0) && !(Math.abs(v) > 1e15 && v !== Infinity && v !== -Infinity));
  /** @type {Line[]} */
  const lines = Array.from({ length: random.between(1, 9) }, () => ({
    name: random.pick(names),
    i: random.below(1 << 16),
    j: random.below(1 << 16),
    v: random.pick(numbers),
    n: random.below(1 << 16),
  }));
  const shape = [random.between(1, 6), random.between(1, 9)];
  const data = [0, 1].map(() => Float32Array.from({ length: shape[0] * shape[1] }, () => random.pick(numbers)));
  /** The last results for the most part. @param {Tensor[]} pool @param {number} k */
  const pick = (pool, k) => pool[pool.length - 1 - Math.floor((k / (1 << 16)) ** 2 * pool.length)];
  const f = (/** @type {Tensor} */ x, /** @type {Tensor} */ y) => {
    const pool = [x, y];
    for (const { name, i, j, v, n } of lines) pool.push(ELEMENTWISE[name](pick(pool, i), pick(pool, j), v, n));
    return pool;
  };
  const text = `[${shape}]${lines.map(({ name, i, j, v, n }) => `\n  ${name} ${i} ${j} ${Object.is(v, -0) ? '-0' : v} ${n}`).join('')}`;
  return { f, shape, data, text, lines };
}

/** The bits of f32 with one for every NaN. @param {ArrayLike<number>} values */
const bitsOf = (values) => new Uint32Array(Float32Array.from(values, (v) => (Number.isNaN(v) ? NaN : v)).buffer);
const shown = (/** @type {number} */ v) => (Object.is(v, -0) ? '-0' : `${v}`);

/** @param {Tensor[]} results @returns {Promise<Float32Array[]>} */
async function read(results) {
  const list = [];
  for (const y of results) list.push(Float32Array.from(await y.toArray()));
  for (const y of results) y.dispose();
  return list;
}

/** @param {Float32Array[]} actual @param {Float32Array[]} expected @param {string} what */
function sameBits(actual, expected, what) {
  assert.equal(actual.length, expected.length);
  expected.forEach((values, k) => {
    const [a, b] = [bitsOf(actual[k]), bitsOf(values)];
    const at = b.findIndex((bits, e) => bits !== a[e]);
    assert.ok(at < 0 && a.length === b.length, `result ${k}, element ${at}: ${shown(actual[k][at])}, eager ${shown(values[at])}; ${what}`);
  });
}

/** Sets of passes for a round: all, none, and each left out in turn. @param {number} round @returns {[string, readonly PassName[]][]} */
const setsOf = (round) => {
  const left = PASSES[round % PASSES.length];
  return [
    ['all passes', PASSES],
    ['no passes', []],
    [`all but ${left}`, PASSES.filter((name) => name !== left)],
  ];
};

/**
 * Random programs, eager and compiled with each set of passes.
 * @param {readonly string[]} names of operations @param {boolean} gradients whether those of the inputs are compared, too
 * @param {number} rounds @param {number} first
 */
async function compare(names, gradients, rounds, first) {
  const used = new Set();
  for (let round = 0; round < rounds; round++) {
    const { f, shape, data, text, lines } = randomProgram(first + round, names);
    for (const { name } of lines) used.add(name);
    const inputs = data.map((values) => tensor(values, { shape, requiresGrad: gradients }));
    const results = (/** @type {Tensor} */ x, /** @type {Tensor} */ y) => {
      // What the pool begins with are the inputs themselves.
      const made = f(x, y).slice(2);
      const last = made[made.length - 1];
      const slopes = gradients ? grad(last.add(x.mul(0).sum()).add(y.mul(0).sum()).sum(), [x, y]) : [];
      return [...slopes, ...made].map((z) => z.detach().clone());
    };
    const expected = await read(scope(() => results(inputs[0], inputs[1])));
    for (const [name, passes] of setsOf(round)) {
      // Of all results, of which few kernels hold several; and of the last, to which a single one may lead.
      for (const part of [[0, expected.length], [expected.length - 1, expected.length], ...(gradients ? [[0, 2]] : [])]) {
        const compiled = compile((/** @type {Tensor} */ x, /** @type {Tensor} */ y) => results(x, y).slice(...part), { passes });
        const actual = await read(compiled(inputs[0], inputs[1]));
        sameBits(actual, expected.slice(...part), `HELIOS_TEST_SEED=${seed} round ${round}, ${name}, results ${part}: ${text}`);
        compiled.dispose();
      }
    }
    for (const x of inputs) x.dispose();
  }
  // A few rounds use few.
  if (rounds >= 10) assert.ok(used.size > Math.min(names.length - 4, 2 * rounds), `${used.size} operations`);
}

test('special values through random programs: eager and compiled, bit by bit', () => compare(NAMES, false, scaled(30), seed));
test('special values through random programs and their gradients', () => compare(EXACT_GRADIENTS, true, scaled(15), seed + 10_000));
