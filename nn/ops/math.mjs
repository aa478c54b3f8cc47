// Functions of one, two and three elements: each is its program, the same in float64, and its derivatives as programs.

import { Expression } from '../../kernels/expression.mjs';
import * as fn from '../../kernels/functions.mjs';
import * as gamma from '../../kernels/special-functions.mjs';
import { broadcastShapes, denseLayout } from '../core/layout.mjs';
import { floatType, generated, inOrder } from './pointwise.mjs';
import { at, generate } from './reference.mjs';
import { defineOp } from './registry.mjs';
import * as f64 from './special.mjs';

/** @typedef {import('../core/layout.mjs').DType} DType */
/** @typedef {import('../core/layout.mjs').Layout} Layout */
/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */
/** The operands, then the operation's numbers. @typedef {(...values: Expression[]) => Expression} Formula */
/** The same in float64; of an operation with bools: 0 or 1. @typedef {(...values: number[]) => number} Function64 */
/**
 * Numbers of an operation, its type if that is not the operands', its name for errors if the function has another, and whether results of 16 bits
 * are enough.
 * @typedef {{ numbers?: readonly number[], dtype?: DType, of?: number, name?: string, coarse?: boolean }} MathAttributes
 */
/** The same, with fewer instructions, where operands and result have 16 bits. @typedef {{ formula: Formula, slope: Formula }} Coarse */

/** The type of the result: that of all operands, or f32. @param {readonly Layout[]} inputs @param {MathAttributes} attributes */
const typeOf = (inputs, { dtype }) => dtype ?? (inputs.every((x) => x.dtype === inputs[0].dtype) ? inputs[0].dtype : 'f32');

/** Of so many dimensions the strides of all operands fit the push constants that every device has. */
const MAX_RANK = 4;
/** Operands of more dimensions as dense ones. @param {Tensor[]} inputs */
function spread(inputs) {
  const ranks = inputs.map((x) => x.ndim);
  if (Math.max(...ranks) <= MAX_RANK) return inputs;
  const shape = broadcastShapes('expand', ...inputs.map((x) => x.shape));
  return inputs.map((x) => x.expand(...shape).contiguous());
}

/**
 * Enters an operation, and its gradient as another: dy times the derivative, in one kernel.
 * @param {string} name
 * @param {Formula} formula
 * @param {Function64} f
 * @param {(Formula | 0)[]} [slopes] the derivative by each operand: 0 where the function is flat. Without them there is no gradient
 * @param {'bool'} [type] of the result, if it is not that of the operands
 * @param {Coarse} [coarse]
 */
function define(name, formula, f, slopes, type, coarse) {
  const arity = slopes?.length ?? formula.length;
  /** @type {(body: Formula, skip?: number) => import('./registry.mjs').Definition<MathAttributes>['body']} */
  const bodyOf =
    (body, skip = 0) =>
    (program, values, attributes, numbers) => {
      const constants = attributes.numbers ? numbers(...attributes.numbers) : [];
      const terms = [...values.slice(0, values.length - skip), ...constants].map((value) => new Expression(program, value));
      return body(...terms).value;
    };
  /** @param {readonly import('./registry.mjs').Reference[]} inputs @param {(values: number[], index: number[]) => number} of */
  const everywhere = (inputs, of, /** @type {readonly number[]} */ numbers = []) => {
    // One array for all elements, behind whose values `numbers` stand: tests ask for millions of elements.
    const values = [...inputs.map(() => 0), ...numbers];
    return generate(broadcastShapes(name, ...inputs.map((x) => x.shape)), (index) => {
      for (let i = 0; i < inputs.length; i++) values[i] = at(inputs[i], index);
      return of(values, index);
    });
  };
  const backward =
    slopes?.some((slope) => slope !== 0) &&
    defineOp({
      name: `${name}Backward`,
      infer: (inputs, /** @type {MathAttributes} */ { of = 0 }) => [
        denseLayout(broadcastShapes(name, ...inputs.map((x) => x.shape)), inputs[of].dtype),
      ],
      ...generated(`${name}Backward`, (program, values, attributes, numbers) => {
        const slope = /** @type {Formula} */ (attributes.coarse ? coarse?.slope : slopes[attributes.of ?? 0]);
        const own = new Expression(
          program,
          /** @type {NonNullable<ReturnType<typeof bodyOf>>} */ (bodyOf(slope, 1))(program, values, attributes, numbers),
        );
        // Where the function is flat not even an infinite gradient passes.
        return own.eq(0).choose(0, own.mul(new Expression(program, values[values.length - 1]))).value;
      }),
      prepare: (inputs, run, attributes) => inOrder(attributes.name ?? name, spread(inputs), run),
      oracle: (inputs, { of = 0, numbers = [] }) =>
        everywhere(inputs, (values) => {
          const dy = values[values.length - 1];
          const own = values.slice(0, -1);
          const h = 1e-6;
          const moved = (/** @type {number} */ by) => f(...own.with(of, own[of] + by), ...numbers);
          return (dy * (moved(h) - moved(-h))) / (2 * h);
        }),
    });
  return defineOp({
    name,
    infer: (inputs, /** @type {MathAttributes} */ attributes) => {
      for (const x of inputs) floatType(name, x);
      return [denseLayout(broadcastShapes(name, ...inputs.map((x) => x.shape)), type ?? typeOf(inputs, attributes))];
    },
    ...generated(name, (program, values, attributes, numbers) => {
      const own = bodyOf(attributes.coarse && coarse ? coarse.formula : formula);
      return /** @type {NonNullable<typeof own>} */ (own)(program, values, attributes, numbers);
    }),
    prepare: (inputs, run, attributes) => {
      const isHalf = coarse && inputs.every(({ dtype }) => dtype === 'f16' || dtype === 'bf16');
      const how = isHalf ? (/** @type {Tensor[]} */ own) => run(own, { ...attributes, coarse: true }) : run;
      return inOrder(attributes.name ?? name, spread(inputs), how);
    },
    oracle: (inputs, { numbers = [] }) => everywhere(inputs, (values) => f(...values), numbers),
    ...(slopes && {
      saveInputs: () => (backward ? Array.from({ length: arity }, (_, i) => i) : []),
      vjp: (dy, { inputs, layouts, needs, attributes }, F) =>
        layouts.map(({ shape, dtype }, i) => {
          if (!needs[i]) return undefined;
          if (!backward || slopes[i] === 0) return F.zeros(shape, { dtype });
          return F.sumTo(F.call(backward, [...inputs, dy], { ...attributes, of: i }), shape);
        }),
    }),
  });
}

/** 1 / (1 + e^-x). @param {Expression} x */
const logistic = (x) => fn.exp(x.neg()).add(1).under(1);
/** (1 - x)(1 + x). @param {Expression} x */
const oneLessSquare = (x) => x.from(1).mul(x.add(1));
/** @param {Expression} x @param {Expression} low @param {Expression} high */
const between = (x, low, high) => x.gt(low).and(x.lt(high));

// ---- exponentials and logarithms

export const exp2 = define('exp2', fn.exp2, (x) => 2 ** x, [(x) => fn.exp2(x).mul(Math.LN2)]);
/** x · 2^k. */
export const ldexp = define('ldexp', fn.ldexp, (x, k) => x * 2 ** k, [(_, k) => fn.exp2(k), (x, k) => fn.ldexp(x, k).mul(Math.LN2)]);
export const expm1 = define('expm1', fn.expm1, Math.expm1, [(x) => fn.exp(x)]);
export const log2 = define('log2', fn.log2, Math.log2, [(x) => x.mul(Math.LN2).under(1)]);
export const log10 = define('log10', fn.log10, Math.log10, [(x) => x.mul(Math.LN10).under(1)]);

// ---- angles

export const sin = define('sin', fn.sin, Math.sin, [fn.cos]);
export const cos = define('cos', fn.cos, Math.cos, [(x) => fn.sin(x).neg()]);
export const tan = define('tan', fn.tan, Math.tan, [
  (x) => {
    const y = fn.tan(x);
    return y.mul(y).add(1);
  },
]);
export const asin = define('asin', fn.asin, Math.asin, [(x) => oneLessSquare(x).sqrt().under(1)]);
export const acos = define('acos', fn.acos, Math.acos, [(x) => oneLessSquare(x).sqrt().under(-1)]);
export const atan = define('atan', fn.atan, Math.atan, [(x) => x.mul(x).add(1).under(1)]);
export const sinh = define('sinh', fn.sinh, Math.sinh, [fn.cosh]);
export const cosh = define('cosh', fn.cosh, Math.cosh, [fn.sinh]);
export const asinh = define('asinh', fn.asinh, Math.asinh, [(x) => fn.hypot(x, x.number(1)).under(1)]);
export const acosh = define('acosh', fn.acosh, Math.acosh, [(x) => x.sub(1).sqrt().mul(x.add(1).sqrt()).under(1)]);
export const atanh = define('atanh', fn.atanh, Math.atanh, [(x) => oneLessSquare(x).under(1)]);
export const sinc = define('sinc', fn.sinc, f64.sinc, [fn.sincSlope]);
/** log(x / (1 - x)) of x limited to [eps, 1 - eps]. */
export const logit = define(
  'logit',
  (x, low, high) => {
    const z = x.max(low).min(high);
    return fn.log(z.div(z.from(1)));
  },
  (x, low, high) => {
    const z = Math.min(Math.max(x, low), high);
    return Math.log(z / (1 - z));
  },
  [
    (x, low, high) =>
      x
        .lt(low)
        .or(x.gt(high))
        .choose(0, x.mul(x.from(1)).under(1)),
  ],
);
/** The angle of the point (second, first). By the distance twice: its square may overflow. */
export const atan2 = define('atan2', fn.atan2, Math.atan2, [
  (y, x) => x.div(fn.hypot(x, y)).div(fn.hypot(x, y)),
  (y, x) => y.div(fn.hypot(x, y)).div(fn.hypot(x, y)).neg(),
]);
export const hypot = define('hypot', fn.hypot, Math.hypot, [(x, y) => x.div(fn.hypot(x, y)), (x, y) => y.div(fn.hypot(x, y))]);

// ---- the error function

const gauss = 2 / Math.sqrt(Math.PI);
export const erfOp = define('erf', gamma.erf, f64.erf, [(x) => gamma.bell(x, 1).mul(gauss)], undefined, {
  formula: gamma.coarseErf,
  slope: (x) => gamma.coarseBell(x, 1).mul(gauss),
});
export const erfcOp = define('erfc', gamma.erfc, f64.erfc, [(x) => gamma.bell(x, 1).mul(-gauss)]);
/** x times the probability that a standard normal number is less than x (Hendrycks & Gimpel 2016). */
export const geluExact = define(
  'geluExact',
  (x) => gamma.normalCdf(x, x),
  (x) => (x * f64.erfc(-x * Math.SQRT1_2)) / 2,
  [(x) => gamma.normalCdf(x).add(x.mul(gamma.bell(x, 0.5).mul(1 / Math.sqrt(2 * Math.PI))))],
  undefined,
  {
    formula: (x) => gamma.coarseNormalCdf(x, x),
    slope: (x) =>
      gamma.coarseNormalCdf(x).add(
        x
          .max(-20)
          .min(20)
          .mul(gamma.coarseBell(x, 0.5).mul(1 / Math.sqrt(2 * Math.PI))),
      ),
  },
);

export const erfinvOp = define('erfinv', gamma.erfinv, f64.erfinv, [
  // The reciprocal of erf's slope at the result.
  (x) => gamma.bell(gamma.erfinv(x), 1).mul(gauss).under(1),
]);

// ---- gamma

export const lgammaOp = define('lgamma', gamma.lgamma, f64.lgamma, [gamma.digamma]);
export const digammaOp = define('digamma', gamma.digamma, f64.digamma, [gamma.trigamma]);

// ---- rounding

export const floor = define('floor', (x) => x.floor(), Math.floor, [0]);
export const ceil = define('ceil', (x) => x.ceil(), Math.ceil, [0]);
export const trunc = define('trunc', (x) => x.trunc(), Math.trunc, [0]);
export const round = define('round', (x) => x.round(), f64.roundEven, [0]);
/** What is behind the point, with x's sign. */
export const frac = define(
  'frac',
  (x) => x.sub(x.trunc()),
  (x) => x - Math.trunc(x),
  [(x) => x.number(1)],
);

/** The remainder of a division, with the sign of the dividend; exact. */
export const fmod = define('fmod', fn.fmod, (x, y) => x % y, [(x) => x.number(1), (x, y) => x.div(y).trunc().neg()]);
/** The remainder of a division, with the sign of the divisor. */
export const remainder = define('remainder', fn.remainder, f64.remainder, [(x) => x.number(1), (x, y) => x.div(y).floor().neg()]);

export const floorDivide = define('floorDivide', fn.floorDivide, f64.floorDivide, [0, 0]);
/** The quotient rounded towards 0. */
export const truncDivide = define('truncDivide', fn.truncDivide, (x, y) => Math.trunc(x / y), [0, 0]);

// ---- kinds of numbers

const isOf = (/** @type {boolean} */ is) => (is ? 1 : 0);
export const isnan = define(
  'isnan',
  (x) => x.isNan(),
  (x) => isOf(Number.isNaN(x)),
  undefined,
  'bool',
);
export const isinf = define(
  'isinf',
  (x) => x.isInfinite(),
  (x) => isOf(Math.abs(x) === Infinity),
  undefined,
  'bool',
);
export const isfinite = define(
  'isfinite',
  (x) => x.isFinite(),
  (x) => isOf(Number.isFinite(x)),
  undefined,
  'bool',
);
export const signbit = define(
  'signbit',
  (x) => x.isNegative(),
  (x) => isOf(x < 0 || Object.is(x, -0)),
  undefined,
  'bool',
);
export const nanToNum = define(
  'nanToNum',
  (x, nan, above, below) => x.isNan().choose(nan, x.isInfinite().choose(x.gt(0).choose(above, below), x)),
  (x, nan, above, below) => (Number.isNaN(x) ? nan : Number.isFinite(x) ? x : x > 0 ? above : below),
  [(x) => x.isFinite().choose(1, 0)],
);
/** The size of one with the sign of another. */
export const copysign = define(
  'copysign',
  (x, y) => x.abs().withSign(y),
  (x, y) => (Object.is(Math.sign(y), -0) || y < 0 ? -Math.abs(x) : Math.abs(x)),
  [(x, y) => x.eq(0).choose(0, x.isNegative().eq(y.isNegative()).choose(1, -1)), 0],
);
/** 0 below 0, 1 above, and at 0 what is given. */
export const heaviside = define(
  'heaviside',
  (x, y) => x.eq(0).choose(y, x.gt(0).choose(1, 0)),
  (x, y) => (x === 0 ? y : x > 0 ? 1 : 0),
  [0, (x) => x.eq(0).choose(1, 0)],
);
export const isclose = define(
  'isclose',
  (a, b, rtol, atol, equalNan) => {
    const distance = a.sub(b).abs();
    const near = distance.isFinite().and(distance.le(b.abs().mul(rtol).add(atol)));
    return a
      .eq(b)
      .or(near)
      .or(a.isNan().and(b.isNan()).and(equalNan.gt(0)));
  },
  (a, b, rtol, atol, equalNan) =>
    isOf(
      a === b ||
        (Number.isFinite(a - b) && Math.abs(a - b) <= atol + rtol * Math.abs(b)) ||
        (equalNan > 0 && Number.isNaN(a) && Number.isNaN(b)),
    ),
  undefined,
  'bool',
);

// ---- of two and three

export const logaddexp = define(
  'logaddexp',
  (a, b) => a.eq(b).choose(a.add(Math.LN2), a.max(b).add(fn.log1p(fn.exp(a.sub(b).abs().neg())))),
  (a, b) => (a === b ? a + Math.LN2 : Math.max(a, b) + Math.log1p(Math.exp(-Math.abs(a - b)))),
  [(a, b) => a.eq(b).choose(0.5, logistic(a.sub(b))), (a, b) => a.eq(b).choose(0.5, logistic(b.sub(a)))],
);
export const logaddexp2 = define(
  'logaddexp2',
  (a, b) => a.eq(b).choose(a.add(1), a.max(b).add(fn.log1p(fn.exp2(a.sub(b).abs().neg())).mul(Math.LOG2E))),
  (a, b) => (a === b ? a + 1 : Math.max(a, b) + Math.log1p(2 ** -Math.abs(a - b)) * Math.LOG2E),
  [(a, b) => a.eq(b).choose(0.5, fn.exp2(b.sub(a)).add(1).under(1)), (a, b) => a.eq(b).choose(0.5, fn.exp2(a.sub(b)).add(1).under(1))],
);
/** The larger, and where one is NaN the other; of equal ones each gets half of the gradient. */
const [firstWins, secondWins] = [1, -1].map((sign) => (/** @type {Expression} */ a, /** @type {Expression} */ b) => {
  const ahead = sign === 1 ? a.gt(b) : a.lt(b);
  return a.eq(b).choose(0.5, b.isNan().or(ahead).and(a.isNan().not()).choose(1, 0));
});
/** A number, and where it is NaN another. @param {Expression} a @param {Expression} b */
const orElse = (a, b) => a.isNan().choose(b, a);
export const fmax = define(
  'fmax',
  (a, b) => orElse(a, b).max(orElse(b, a)),
  (a, b) => (a !== a ? b : b !== b ? a : Math.max(a, b)),
  [firstWins, (a, b) => firstWins(b, a)],
);
export const fmin = define(
  'fmin',
  (a, b) => orElse(a, b).min(orElse(b, a)),
  (a, b) => (a !== a ? b : b !== b ? a : Math.min(a, b)),
  [secondWins, (a, b) => secondWins(b, a)],
);
/** x to the power of a tensor. By x it is y x^(y - 1), and by y it is the power times log x. */
export const powTensor = define('powTensor', fn.pow, f64.pow, [
  (x, y) => y.eq(0).choose(0, y.mul(fn.pow(x, y.sub(1)))),
  (x, y) =>
    x
      .eq(0)
      .and(y.ge(0))
      .choose(0, fn.pow(x, y).mul(fn.log(x))),
]);
/** x log y, and 0 where x is 0, unless y is NaN. */
export const xlogy = define(
  'xlogy',
  (x, y) => x.eq(0).choose(y.isNan().choose(y, 0), x.mul(fn.log(y))),
  (x, y) => (x === 0 && !Number.isNaN(y) ? 0 : x * Math.log(y)),
  [(x, y) => x.eq(0).and(y.le(0)).choose(0, fn.log(y)), (x, y) => x.div(y)],
);
/** start + weight · (end - start), from the nearer end. */
export const lerp = define(
  'lerp',
  (a, b, w) =>
    w
      .abs()
      .lt(0.5)
      .choose(a.add(w.mul(b.sub(a))), b.sub(b.sub(a).mul(w.from(1)))),
  (a, b, w) => a + w * (b - a),
  [(_, __, w) => w.from(1), (_, __, w) => w, (a, b) => b.sub(a)],
);
/** x + value · a · b. */
export const addcmul = define(
  'addcmul',
  (x, a, b, value) => x.add(value.mul(a).mul(b)),
  (x, a, b, value) => x + value * a * b,
  [(x) => x.number(1), (_, __, b, value) => value.mul(b), (_, a, __, value) => value.mul(a)],
);
/** x + value · a / b. */
export const addcdiv = define(
  'addcdiv',
  (x, a, b, value) => x.add(value.mul(a.div(b))),
  (x, a, b, value) => x + (value * a) / b,
  [(x) => x.number(1), (_, __, b, value) => value.div(b), (_, a, b, value) => value.mul(a.div(b)).div(b).neg()],
);

// ---- activations

/** log(1 + e^(beta x)) / beta, and x where beta x is above the threshold. */
export const softplus = define(
  'softplus',
  (x, beta, limit) => {
    const z = x.mul(beta);
    return z.gt(limit).choose(
      x,
      z
        .max(0)
        .add(fn.log1p(fn.exp(z.abs().neg())))
        .div(beta),
    );
  },
  (x, beta, limit) => (x * beta > limit ? x : f64.softplus(x * beta) / beta),
  [
    (x, beta, limit) =>
      x
        .mul(beta)
        .gt(limit)
        .choose(1, logistic(x.mul(beta))),
  ],
);
export const logSigmoid = define(
  'logSigmoid',
  (x) => x.min(0).sub(fn.log1p(fn.exp(x.abs().neg()))),
  (x) => -f64.softplus(-x),
  [(x) => logistic(x.neg())],
);
/** x where x is above 0, else alpha (eˣ - 1) (Clevert et al. 2016). */
export const elu = define(
  'elu',
  (x, alpha) => x.gt(0).choose(x, alpha.mul(fn.expm1(x))),
  (x, alpha) => (x > 0 ? x : alpha * Math.expm1(x)),
  [(x, alpha) => x.gt(0).choose(1, alpha.mul(fn.exp(x)))],
);
const [SELU_ALPHA, SELU_SCALE] = [1.6732632423543772, 1.0507009873554805];
/** (Klambauer et al. 2017) */
export const selu = define(
  'selu',
  (x) => x.gt(0).choose(x.mul(SELU_SCALE), fn.expm1(x).mul(SELU_SCALE * SELU_ALPHA)),
  (x) => SELU_SCALE * (x > 0 ? x : SELU_ALPHA * Math.expm1(x)),
  [(x) => x.gt(0).choose(SELU_SCALE, fn.exp(x).mul(SELU_SCALE * SELU_ALPHA))],
);
/** As elu, with a continuous derivative (Barron 2017). */
export const celu = define(
  'celu',
  (x, alpha) => x.gt(0).choose(x, alpha.mul(fn.expm1(x.div(alpha)))),
  (x, alpha) => (x > 0 ? x : alpha * Math.expm1(x / alpha)),
  [(x, alpha) => x.gt(0).choose(1, fn.exp(x.div(alpha)))],
);
/** x where x is above 0, else slope · x: `prelu`'s slope is a tensor. */
export const prelu = define(
  'prelu',
  (x, slope) => x.gt(0).choose(x, x.mul(slope)),
  (x, slope) => (x > 0 ? x : slope * x),
  [(x, slope) => x.gt(0).choose(1, slope), (x) => x.gt(0).choose(0, x)],
);
export const leakyRelu = define(
  'leakyRelu',
  (x, slope) => x.gt(0).choose(x, x.mul(slope)),
  (x, slope) => (x > 0 ? x : slope * x),
  [(x, slope) => x.gt(0).choose(1, slope)],
);
export const hardTanh = define(
  'hardTanh',
  (x, low, high) => x.max(low).min(high),
  (x, low, high) => Math.min(Math.max(x, low), high),
  [(x, low, high) => between(x, low, high).choose(1, 0)],
);
/** min(max(x + 3, 0), 6) / 6. */
export const hardSigmoid = define(
  'hardSigmoid',
  (x) =>
    x
      .add(3)
      .max(0)
      .min(6)
      .mul(1 / 6),
  (x) => Math.min(Math.max(x + 3, 0), 6) / 6,
  [
    (x) =>
      x
        .gt(-3)
        .and(x.lt(3))
        .choose(1 / 6, 0),
  ],
);
/** x · hardSigmoid(x) (Howard et al. 2019). */
export const hardSwish = define(
  'hardSwish',
  (x) =>
    x.mul(
      x
        .add(3)
        .max(0)
        .min(6)
        .mul(1 / 6),
    ),
  (x) => (x * Math.min(Math.max(x + 3, 0), 6)) / 6,
  [(x) => x.le(-3).choose(0, x.ge(3).choose(1, x.mul(1 / 3).add(0.5)))],
);
/** Of mish by u = eˣ: tanh(log(1 + u)) = u (u + 2) / (u (u + 2) + 2), which is 1 from x = 20 on. @param {Expression} x */
const mishParts = (x) => {
  const u = fn.exp(x.min(20));
  return { u, over: u.add(2), below: u.mul(u.add(2)).add(2) };
};
/** x · tanh(softplus(x)) (Misra 2019). */
export const mish = define(
  'mish',
  (x) => {
    const { over, below } = mishParts(x);
    // By 256 u, as u is below the least normal number where the result is not yet.
    const y = x
      .mul(fn.exp(x.min(20), 8))
      .mul(over.div(below))
      .mul(2 ** -8);
    return x.gt(20).choose(x, y);
  },
  (x) => x * Math.tanh(f64.softplus(x)),
  [
    (x) => {
      const { u, over, below } = mishParts(x);
      const inverse = below.under(1);
      return u
        .mul(over)
        .mul(inverse)
        .add(x.min(20).mul(u.mul(u.add(1)).mul(4).mul(inverse).mul(inverse)));
    },
  ],
);
/** x / (1 + |x|). */
export const softsign = define(
  'softsign',
  (x) => x.div(x.abs().add(1)),
  (x) => x / (1 + Math.abs(x)),
  [
    (x) => {
      const inverse = x.abs().add(1).under(1);
      return inverse.mul(inverse);
    },
  ],
);
/** x - tanh(x). */
export const tanhshrink = define('tanhshrink', fn.tanhshrink, f64.tanhshrink, [(x) => x.tanh().mul(x.tanh())]);
/** 0 within ±limit, else x. */
export const hardshrink = define(
  'hardshrink',
  (x, limit) => x.abs().le(limit).choose(0, x),
  (x, limit) => (Math.abs(x) <= limit ? 0 : x),
  [(x, limit) => x.abs().le(limit).choose(0, 1)],
);
/** 0 within ±limit, else x that much nearer to 0. */
export const softshrink = define(
  'softshrink',
  (x, limit) => x.abs().le(limit).choose(0, x.abs().sub(limit).withSign(x)),
  (x, limit) => (Math.abs(x) <= limit ? 0 : Math.sign(x) * (Math.abs(x) - limit)),
  [(x, limit) => x.abs().le(limit).choose(0, 1)],
);
/** x above the limit, else a value. */
export const threshold = define(
  'threshold',
  (x, limit, value) => x.le(limit).choose(value, x),
  (x, limit, value) => (x <= limit ? value : x),
  [(x, limit) => x.le(limit).choose(0, 1)],
);
