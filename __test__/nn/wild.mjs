// Generates random programs from the public operations that `programs.mjs` leaves out or restricts: every element type, special values (NaN,
// infinities, signed zeros, denormals, the extremes of each type), odd shapes and sizes of 1, indices out of range, in-place writes; and the
// same with small integers, which every floating-point type represents. A seed always gives the same program, eager or compiled.

import { ArgumentError, F, ShapeError, UsageError, cat, full, grad, noGrad, stack, tensor } from '../../nn/index.mjs';
import { Random } from '../lib/random.mjs';
import { COMPARISONS, UNARY } from './names.mjs';
import { matrixOf, shaped } from './programs.mjs';

/** @typedef {import('../../nn/core/layout.mjs').DType} DType */
/** @typedef {{ op: string, numbers: number[] }} Line */
/**
 * What an operation of a program computes from two results so far and numbers to choose by; `kind` says what may differ once it is
 * compiled: `exact` nothing, `sums` the order of additions, `halves` roundings to 16 bits that fusing drops.
 * @typedef {{ kind: 'exact' | 'sums' | 'halves', run: (p: any, q: any, n: number[]) => any }} Operation
 */

const SIZES = [1, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33];
/** Elements of a tensor at most. */
const MAX_SIZE = 1500;
const SPECIAL = [
  NaN,
  Infinity,
  -Infinity,
  0,
  -0,
  1e-40,
  -1e-40,
  2 ** -126,
  3e38,
  -3e38,
  65504,
  65520,
  -1e5,
  6e-8,
  2 ** 24 + 1,
  0.5,
  -1.5,
  2.5,
  1 + 2 ** -12,
  88.8,
  -104,
];
const INTEGERS = [0, 1, 2, 3, -1, -2, 7, 100, 2 ** 24 + 1, 2 ** 31 - 1, -(2 ** 31)];
/** Those beside which sums keep the digits of ordinary numbers. @param {readonly number[]} list */
const summable = (list) => list.filter((v) => !Number.isFinite(v) || Math.abs(v) <= 200);
const NUMBERS = [1, -1, 0.5, 2, 0.1, -3, 1e-3, 0, -0];
/** Numbers as operands that are no ordinary ones. */
const ODD_NUMBERS = [NaN, Infinity, -Infinity, 1e-40, 1e38];

/** @param {readonly number[]} list @param {number} n */
const of = (list, n) => list[n % list.length];
const isFloat = (/** @type {any} */ x) => ['f32', 'f16', 'bf16'].includes(x.dtype);
/** In a type of fractions. @param {any} x */
const float = (x) => (isFloat(x) ? x : x.to('f32'));
const single = (/** @type {any} */ x) => x.to('f32');
const dim = (/** @type {any} */ x, /** @type {number} */ n) => n % Math.max(1, x.ndim);
/** At least one dimension. @param {any} x */
const atLeast1 = (x) => (x.ndim === 0 ? x.reshape(1) : x);
/** q with a shape that broadcasts with p's, of p's type where both are not of fractions. @param {any} p @param {any} q @param {number} n */
const partner = (p, q, n) => {
  const cut = n % (p.ndim + 1);
  const shape = p.shape.slice(cut).map((/** @type {number} */ size, /** @type {number} */ d) => ((n >> (d + 3)) & 1 ? 1 : size));
  const y = shaped(q, shape);
  return isFloat(p) && isFloat(q) ? y : y.to(p.dtype);
};
/** Indices of which some are no elements. @param {readonly number[]} shape @param {number} below @param {number} seed */
const wildIndices = (shape, below, seed) => {
  const count = shape.reduce((a, b) => a * b, 1);
  const random = new Random(seed);
  const values = Int32Array.from({ length: count }, () =>
    random.chance(0.1) ? random.pick([-1, below, 2 ** 31 - 1, -(2 ** 31)]) : random.below(below),
  );
  return tensor(values, { shape });
};
/** Of earlier seeds: `log1p` came later. */
const OLDER = UNARY.filter((name) => name !== 'log1p');
const TYPES = /** @type {const} */ (['f32', 'f16', 'bf16', 'i32', 'u32', 'bool']);
const anyF = /** @type {any} */ (F);

/** @param {Operation['run']} run @returns {Operation} */
const exact = (run) => ({ kind: 'exact', run });
/** @param {Operation['run']} run @returns {Operation} */
const sums = (run) => ({ kind: 'sums', run });

/** @type {Record<string, Operation>} */
export const WILD = {
  unary: exact((p, _, [n]) => anyF[OLDER[n % OLDER.length]](float(p))),
  add: exact((p, q, [n]) => F.add(float(p), partner(float(p), q, n))),
  sub: exact((p, q, [n]) => F.sub(partner(float(p), q, n), float(p))),
  mul: exact((p, q, [n]) => F.mul(float(p), partner(float(p), q, n))),
  div: exact((p, q, [n, m]) => (m % 2 ? F.div(float(p), partner(float(p), q, n)) : F.div(partner(float(p), q, n), float(p)))),
  extremes: exact((p, q, [n, m]) => F[m % 2 ? 'maximum' : 'minimum'](float(p), partner(float(p), q, n))),
  addNumber: exact((p, _, [n]) => float(p).add(of(NUMBERS, n))),
  mulNumber: exact((p, _, [n]) => float(p).mul(of(NUMBERS, n))),
  oddNumber: exact((p, _, [n, m]) => {
    const number = of(ODD_NUMBERS, n);
    const x = float(p);
    return [() => x.add(number), () => x.mul(number), () => F.sub(number, x), () => F.div(number, x), () => x.div(number)][m % 5]();
  }),
  rdiv: exact((p, _, [n]) => F.div(of(NUMBERS, n), float(p))),
  pow: exact((p, _, [n]) => float(p).pow(of([2, 3, 4, 7, 0.5, -0.5, -1, -2, 1, 1.5], n))),
  clamp: exact((p, _, [n, m]) =>
    float(p).clamp(m % 3 ? of([-1, 0, -0, -Infinity], n) : undefined, m % 2 || m % 3 === 0 ? of([1, 0.5, Infinity], n) : undefined),
  ),
  compare: exact((p, q, [n, m]) =>
    anyF[COMPARISONS[m % 6]](p.dtype === 'bool' ? single(p) : p, partner(p.dtype === 'bool' ? single(p) : p, q, n)),
  ),
  compareNumber: exact((p, _, [n, m]) => anyF[COMPARISONS[m % 6]](single(p), of([...NUMBERS, ...ODD_NUMBERS], n))),
  where: exact((p, q, [n, m]) => F.where(partner(p, q, m).to('bool'), p, partner(p, q, n).to(p.dtype))),
  maskedFill: exact((p, q, [n, m]) => float(p).maskedFill(partner(p, q, m).to('bool'), of([...NUMBERS, ...ODD_NUMBERS], n))),
  to: { kind: 'halves', run: (p, _, [n]) => p.to(TYPES[n % TYPES.length]) },
  toWide: exact((p, _, [n]) => p.to(of(/** @type {any} */ (['f32', 'i32', 'u32', 'bool']), n))),
  reshape: exact((p, _, [n]) => matrixOf(p, n)),
  permute: exact((p, _, [n, m]) => {
    const order = p.shape.map((/** @type {number} */ __, /** @type {number} */ d) => (d + n) % p.ndim);
    return p.permute(...(m % 2 ? order.reverse() : order));
  }),
  slice: exact((p, _, [n, m, l]) => {
    const d = dim(p, n);
    const from = m % p.shape[d];
    return p.slice(d, from, from + 1 + (l % (p.shape[d] - from)), 1 + (l % 3));
  }),
  negativeSlice: exact((p, _, [n, m]) => p.slice(dim(p, n), -1 - (m % p.shape[dim(p, n)]))),
  at: exact((p, _, [n]) => p.at(-1 - (n % p.shape[0]))),
  expand: exact((p, _, [n]) => p.unsqueeze(n % (p.ndim + 1)).expand(...p.shape.toSpliced(n % (p.ndim + 1), 0, 1 + (n % 3)))),
  squeeze: exact((p) => p.squeeze()),
  flatten: exact((p) => p.flatten()),
  cat: { kind: 'halves', run: (p, q, [n, m]) => cat([p, shaped(q, p.shape.with(dim(p, n), 1 + (m % 3))).to(p.dtype), p], dim(p, n)) },
  stack: { kind: 'halves', run: (p, q, [n]) => stack([p, shaped(q, p.shape).to(p.dtype)], n % (p.ndim + 1)) },
  split: exact((p, _, [n, m]) => p.split(1 + (m % 4), dim(p, n)).at(-1)),
  chunk: exact((p, _, [n, m]) => p.chunk(1 + (m % 4), dim(p, n))[0]),
  sum: sums((p, _, [n, m]) => float(p).sum(n % 4 ? dim(p, n) : undefined, m % 2 === 0)),
  sums: sums((p, _, [n, m]) =>
    float(p).sum(
      p.shape.flatMap((/** @type {number} */ __, /** @type {number} */ d) => ((n >> d) & 1 ? [d] : [])),
      m % 2 === 0,
    ),
  ),
  mean: sums((p, _, [n, m]) => float(p).mean(n % 4 ? dim(p, n) : undefined, m % 2 === 0)),
  variance: sums((p, _, [n, m]) => F.variance(float(p), dim(p, n), { keepdim: m % 2 === 0, correction: 0 })),
  amax: exact((p, _, [n, m]) => float(p)[m % 2 ? 'amax' : 'amin'](dim(p, n), n % 3 === 0)),
  argmax: exact((p, _, [n, m]) => float(p)[m % 2 ? 'argmax' : 'argmin'](dim(p, n), n % 3 === 0)),
  softmax: sums((p, _, [n]) => float(p).softmax(dim(p, n))),
  logSoftmax: sums((p, _, [n]) => F.logSoftmax(float(p), dim(p, n))),
  rmsNorm: sums((p, q) => F.rmsNorm(float(p), single(shaped(q, [p.shape.at(-1)])))),
  layerNorm: sums((p, q) => F.layerNorm(float(p), single(shaped(q, [p.shape.at(-1)])), single(shaped(p, [p.shape.at(-1)])))),
  glu: {
    kind: 'halves',
    run: (p, _, [n]) => F.glu(cat([float(p), float(p)], -1), /** @type {'silu'} */ (['silu', 'gelu', 'sigmoid', 'relu', 'tanh'][n % 5])),
  },
  matmul: sums((p, q, [n, m]) => matrixOf(float(p), n).matmul(float(shaped(q, [matrixOf(p, n).shape[1], 1 + (m % 9)])))),
  matmulT: sums((p, q, [n, m]) => matrixOf(float(p), n).T.matmul(float(shaped(q, [1 + (m % 9), matrixOf(p, n).shape[0]])).T)),
  batched: sums((p, q, [n, m]) => {
    const a = float(p).ndim > 2 ? float(p) : float(p).reshape(1, ...matrixOf(p, n).shape);
    return a.matmul(float(shaped(q, [1 + (m % 2) * ((a.shape.at(-3) ?? 1) - 1), a.shape.at(-1), 1 + (m % 5)])));
  }),
  vector: sums((p, q, [n, m]) =>
    m % 2
      ? matrixOf(float(p), n).matmul(float(shaped(q, [matrixOf(p, n).shape[1]])))
      : float(shaped(q, [matrixOf(p, n).shape[0]])).matmul(matrixOf(float(p), n)),
  ),
  linear: sums((p, q, [n]) =>
    F.linear(float(p), float(shaped(q, [1 + (n % 7), p.shape.at(-1)])), n % 2 ? single(shaped(p, [1 + (n % 7)])) : undefined),
  ),
  gather: exact((p, _, [n, m, l]) => {
    const d = dim(p, n);
    return p.gather(d, wildIndices(p.shape.with(d, 1 + (m % 6)), p.shape[d], l));
  }),
  takeAlongDim: exact((p, _, [n, m, l]) => {
    const d = dim(p, n);
    return F.takeAlongDim(
      p,
      wildIndices(
        p.shape.map((/** @type {number} */ size, /** @type {number} */ i) => (i === d ? 1 + (m % 4) : (l >> i) & 1 ? 1 : size)),
        p.shape[d],
        l,
      ),
      d,
    );
  }),
  scatter: exact((p, q, [n, m, l]) => {
    const d = dim(p, n);
    const index = wildIndices(p.shape.with(d, 1 + (m % 6)), p.shape[d], l);
    return p.scatter(d, index, m % 2 ? of([0, 1, 2, 3, -1, -2, 7, 100], l) : shaped(q, index.shape).to(p.dtype));
  }),
  scatterAdd: exact((p, q, [n, m, l]) => {
    const d = dim(p, n);
    const index = wildIndices(p.shape.with(d, 1 + (m % 6)), p.shape[d], l);
    return float(p).scatterAdd(d, index, float(shaped(q, index.shape)));
  }),
  indexSelect: exact((p, _, [n, m, l]) => p.indexSelect(dim(p, n), wildIndices([1 + (m % 6)], p.shape[dim(p, n)], l))),
  embedding: exact((p, _, [n, m, l]) => F.embedding(wildIndices([2, 1 + (m % 3)], matrixOf(p, n).shape[0], l), float(matrixOf(p, n)))),
  oneHot: exact((p, _, [n, m]) => F.oneHot(wildIndices(p.shape, 1 + (n % 5), m), 1 + (n % 5))),
  crossEntropy: sums((p, _, [n, m]) =>
    F.crossEntropy(matrixOf(float(p), n), wildIndices([matrixOf(p, n).shape[0]], matrixOf(p, n).shape[1], m), {
      reduction: /** @type {'none'} */ (['none', 'mean', 'sum'][m % 3]),
    }),
  ),
  linearCrossEntropy: sums((p, q, [n, m]) => {
    const x = matrixOf(float(p), n);
    const weight = float(shaped(q, [1 + (m % 7), x.shape[1]]));
    return F.linearCrossEntropy(x, weight, wildIndices([x.shape[0]], weight.shape[0], m), {
      reduction: /** @type {'none'} */ (['none', 'mean', 'sum'][m % 3]),
      logitsBytes: 64 * (1 + (n % 4)),
    });
  }),
  losses: sums((p, q, [n]) => anyF[['mseLoss', 'l1Loss', 'binaryCrossEntropyWithLogits'][n % 3]](float(p), float(shaped(q, p.shape)))),
  conv: sums((p, q, [n, m]) =>
    F.conv2d(float(shaped(p, [1 + (n % 2), 2, 5, 4])), float(shaped(q, [1 + (m % 3), 2, 1 + (n % 3), 1 + (m % 3)])), undefined, {
      stride: [1 + (n % 3), 1 + (m % 2)],
      padding: m % 3,
    }),
  ),
  pool: sums((p, _, [n, m]) =>
    F[n % 2 ? 'maxPool2d' : 'avgPool2d'](float(shaped(p, [1, 2, 5, 4])), [1 + (n % 3), 1 + (m % 3)], { stride: 1 + (m % 3) }),
  ),
  upsample: exact((p, _, [n]) => F.upsample(shaped(p, [1, 2, 3, 2]), [1 + (n % 2), 2])),
  attention: sums((p, q, [n, m]) => {
    const [tokens, keys, size] = [1 + (n % 5), 5 + (m % 3), 1 + (n % 6)];
    return F.scaledDotProductAttention(
      float(shaped(p, [2, tokens, size])),
      float(shaped(q, [2, keys, size])),
      float(shaped(p, [2, keys, 3])),
      { isCausal: n % 2 === 0 },
    );
  }),
  detach: exact((p) => p.detach().clone()),
  // Views of a copy that are written.
  inPlace: exact((p, q, [n, m, l]) => {
    const x = p.detach().clone();
    const before = x.clone();
    noGrad(() => {
      const d = dim(x, n);
      const view = [
        () => x,
        () => x.slice(d, l % x.shape[d]),
        () => x.slice(d, 0, x.shape[d], 1 + (l % 3)),
        () => (x.ndim > 1 ? x.T : x),
        () => x.at(l % x.shape[0]),
      ][m % 5]();
      const other = shaped(q, view.shape).detach().to(x.dtype);
      if (!isFloat(x) || n % 4 === 0) view.copy_(n % 3 ? other : 1);
      else if (n % 4 === 1) view.add_(n % 3 ? other : 0.5, { alpha: l % 2 ? 1 : -2 });
      else if (n % 4 === 2) view.mul_(n % 3 ? other : -0.5);
      else view.fill_(of(NUMBERS, l));
    });
    return l % 2 ? x : cat([x.reshape(-1), before.reshape(-1)]);
  }),
  // A part is moved onto another part of the same memory.
  overlap: exact((p, _, [n]) => {
    const x = p.detach().clone().reshape(-1);
    if (x.size > 1) noGrad(() => (n % 2 ? x.slice(0, 1).copy_(x.slice(0, 0, -1)) : x.slice(0, 0, -1).copy_(x.slice(0, 1))));
    return x;
  }),
};

/** Operations by what may differ once they are compiled. @type {Record<string, string[]>} */
const FAMILIES = {
  exact: Object.keys(WILD).filter((name) => WILD[name].kind === 'exact'),
  sums: Object.keys(WILD).filter((name) => WILD[name].kind !== 'halves'),
  all: Object.keys(WILD),
};

/** @param {Random} random @param {readonly number[]} special none where there are no special values @param {readonly number[] | undefined} integers */
function draw(random, special, integers) {
  if (integers) return random.pick(integers);
  if (special.length > 0 && random.chance(0.15)) return random.pick(special);
  return Math.fround(4 * (random.u32() / 2 ** 32) - 2);
}

/** @param {Random} random */
function shapeOf(random) {
  for (;;) {
    const shape = Array.from({ length: random.between(1, 4) }, () => random.pick(SIZES));
    if (shape.reduce((a, b) => a * b, 1) <= 400) return shape;
  }
}

/** @param {Random} random @param {readonly string[]} names @param {number} most @returns {Line[]} */
const scriptOf = (random, names, most) =>
  Array.from({ length: random.between(1, most) }, () => ({
    op: random.pick(names),
    numbers: Array.from({ length: 5 }, () => random.below(1 << 20)),
  }));

/** One of the results so far, of the last ones for the most part. @param {any[]} pool @param {number} k */
const pickFrom = (pool, k) =>
  atLeast1(pool[pool.length - 1 - Math.min(pool.length - 1, Math.floor(((k % 1024) / 1024) ** 2 * pool.length))]);

/** What a line makes of the results so far. @param {Line} line @param {any[]} pool */
function resultOf({ op, numbers: [i, j, ...rest] }, pool) {
  const y = atLeast1(WILD[op].run(pickFrom(pool, i), pickFrom(pool, j), rest));
  return y.size > MAX_SIZE ? y.reshape(-1).slice(0, 0, MAX_SIZE) : y;
}

/** Whether operands cannot be what they are. @param {unknown} error */
const isRefusal = (error) => error instanceof ShapeError || error instanceof ArgumentError || error instanceof UsageError;

/** A random program. @param {number} seed */
export function wildProgram(seed) {
  const random = new Random(seed);
  const family = random.pick(['exact', 'exact', 'sums', 'all']);
  const special = random.chance(0.6);
  const halves = family === 'all' && random.chance(0.5);
  const script = scriptOf(random, FAMILIES[family], 9);
  const ofFamily = family === 'exact' ? (/** @type {readonly number[]} */ list) => list : summable;
  const inputs = [0, 1, 2, 3].map((i) => {
    const dtype = /** @type {DType} */ (i === 3 ? 'i32' : i === 2 && halves ? random.pick(['f16', 'bf16']) : 'f32');
    const shape = shapeOf(random);
    const values = Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () =>
      draw(random, special && i > 0 ? ofFamily(SPECIAL) : [], dtype === 'i32' ? ofFamily(INTEGERS) : undefined),
    );
    return { dtype, shape, values };
  });
  const differentiates = random.chance(0.6);
  const pure = script.every(({ op }) => WILD[op].kind === 'exact');
  /** Whether compiled elements are those of eager calls to the bit, with every set of passes. */
  const bits = pure && !halves;
  const rounds = halves || script.some(({ op }) => WILD[op].kind === 'halves');

  /** The inputs on the device. */
  const begin = () => inputs.map(({ dtype, shape, values }, i) => tensor(values, { dtype, shape, requiresGrad: i < 3 }));
  /** The results: those of the last lines, and gradients of the inputs. @param {any[]} args @returns {Record<string, any>} */
  const run = (...args) => {
    const pool = [...args];
    for (const line of script) {
      try {
        pool.push(resultOf(line, pool));
      } catch (error) {
        // It is refused the same way in each run.
        if (!isRefusal(error)) throw error;
      }
    }
    /** @type {Record<string, any>} */
    const results = {};
    pool
      .slice(4)
      .slice(-4)
      .forEach((y, i) => {
        results[`result ${i}`] = y.detach().clone();
      });
    const ends = pool
      .slice(4)
      .filter((y) => isFloat(y) && y.requiresGrad)
      .slice(-2);
    if (differentiates && ends.length > 0) {
      const loss = ends.map((y) => single(y).mul(full([], 0.5)).sum()).reduce((a, b) => a.add(b));
      args.slice(0, 3).forEach((x, i) => {
        try {
          [results[`gradient ${i}`]] = grad(loss, [x], { retain: true });
        } catch (error) {
          if (!(error instanceof UsageError)) throw error;
        }
      });
    }
    return results;
  };
  const text = `${JSON.stringify({ seed, family, special, halves, differentiates })}${script.map(({ op, numbers }) => `\n  ${op} ${numbers}`).join('')}\n  inputs ${inputs.map(({ dtype, shape }) => `${dtype} [${shape}]`).join(', ')}`;
  return { bits, rounds, begin, run, text };
}

/** Operations that compute nothing, or what is exact of small integers in every floating type. */
const MOVES = [
  ...['reshape', 'permute', 'slice', 'negativeSlice', 'at', 'expand', 'squeeze', 'flatten', 'cat', 'stack', 'split', 'chunk', 'detach'],
  ...['gather', 'takeAlongDim', 'scatter', 'indexSelect', 'embedding', 'upsample', 'amax', 'extremes', 'where', 'maskedFill', 'compare'],
  ...['overlap', 'inPlace', 'inPlace', 'inPlace'],
];

/**
 * A random program of small integers, whose results are the same in every floating type, where a type has the operations at all.
 * @param {number} seed
 */
export function movingProgram(seed) {
  const random = new Random(seed);
  const script = scriptOf(random, MOVES, 6);
  const inputs = [0, 1].map(() => {
    const shape = shapeOf(random);
    return { shape, values: Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () => random.between(-4, 4)) };
  });
  /** @param {DType} dtype */
  const begin = (dtype) => inputs.map(({ shape, values }) => tensor(values, { dtype, shape }));
  /** Every result. @param {any[]} args @returns {Record<string, any>} */
  const run = (...args) => {
    const pool = [...args];
    for (const line of script) pool.push(resultOf(line, pool));
    return Object.fromEntries(pool.slice(2).map((y, i) => [`result ${i}`, y.detach().clone()]));
  };
  const text = `${script.map(({ op, numbers }) => `\n  ${op} ${numbers}`).join('')}\n  inputs ${inputs.map(({ shape }) => `[${shape}]`).join(', ')}`;
  return { begin, run, isRefusal, text };
}
