// The error function, gamma functions and their relatives as programs, right as those of `functions.mjs`.

import { exp, exp2, log, sinCosPi } from './functions.mjs';

/** @typedef {import('./expression.mjs').Expression} Expression */

/** The largest f32. */
const MOST = 2 ** 128 - 2 ** 104;
/** erf(r) / r - 1 in powers of r², |r| ≤ 1/2. */
const ERF = [0.128379167, -0.376126385, 0.112837741, -0.0268631502, 0.00520044632, -0.000769505561];
/** log2(erfc(x)) / x in powers of x in [1/2, 4]: fitted such that 1 - erfc(x) is right to 1.3e-8 of itself. */
const LOG2_ERFC = [-1.62800957, -0.917674939, -0.150697151, 0.0317354678, -0.00387918108, 0.0000818049639, 0.0000269679935];
/** (1 + 2x) exp(x²) erfc(x) in powers of (x - 2) / (x + 2), x in [1/2, 11]. */
const ERFCX = [
  1.27697838, -0.0927635749, -0.166029947, 0.164042499, -0.0542242137, -0.0079489549, 0.00871896588, 0.00095214943, -0.00135053539,
];
/** For halves: erf(r) / r - 1 and log2(erfc(x)) / x as above, to 1.5e-7 and, of x in [1/2, 3.6], such that erf is right to 4e-7; */
const COARSE_ERF = [0.128379023, -0.376107762, 0.112460762, -0.0244011961];
const COARSE_LOG2_ERFC = [-1.62764385, -0.919548287, -0.14714324, 0.02867166, -0.00275068083];
/** and log2(erfc(x) / 2) in powers of x in [0, 9.3], such that erfc is right to 2e-5 of itself. */
const COARSE_LOG2_TAIL = [
  -1.00002858, -1.62777075, -0.917460784, -0.152763394, 0.034760598, -0.00580714378, 0.000675567616, -5.12515729e-5, 2.26412408e-6,
  -4.39959388e-8,
];

/** erfinv(x) / x in powers of w - 2.5, w = -log(1 - x²) in [0, 5]; and of √w - 3.1 above. */
const ERFINV = [
  1.50140936, 0.246640289, -0.00417738976, -0.00125274842, 0.000218346915, -0.0000049597435, -0.00000346335616, 4.65428732e-7,
  2.32858444e-8, -8.73983106e-9,
];
const ERFINV_TAIL = [
  2.93323165, 1.00335588, 0.00746145266, -0.00569199605, 0.00410779072, -0.00273793161, 0.00136659975, -0.00025682589, -0.000204176189,
  0.000112521654,
];
/** log Γ(x) / ((x - 1) (x - 2)) in powers of x - 1.75, x in [1, 2.5]. */
const LGAMMA = [
  0.450139312, -0.119481583, 0.0445204385, -0.0190541589, 0.00877661272, -0.00422339833, 0.00209301163, -0.00107704171, 0.000557255389,
  -0.000237015069, 0.00011814691, -0.000137221061, 0.0000765848869,
];
/** What Stirling's formula lacks, times x, in powers of 1 / x², x ≥ 2.5; of the derivative, times x²; and of the second, times x³. */
const STIRLING = [0.0833333332, -0.00277773238, 0.000791239468, -0.000548340834, 0.00042446943];
const STIRLING_SLOPE = [0.0833333332, -0.00833327732, 0.00396389077, -0.00403750391, 0.00570310054, -0.00585871562];
const STIRLING_CURVE = [0.166666653, -0.0333288933, 0.0235690014, -0.0284870062, 0.0293521385];
/** The root of the digamma function in two parts, and digamma(x) / (x - root) in powers of x - 1.75, x in [1, 2.5]. */
const [ROOT, ROOT_LOW] = [1.4616321325302124, 1.2438149843418955e-8];
const DIGAMMA = [
  0.858183203, -0.326254574, 0.157121873, -0.0822882336, 0.0447640222, -0.0248533486, 0.0142465689, -0.00812584974, 0.00364886039,
  -0.00195712308, 0.0026413736, -0.00158408528,
];
/** x · trigamma(x) in powers of x - 1.75, x in [1, 2.5]. */
const TRIGAMMA = [
  1.33717825, -0.219211267, 0.13841595, -0.085347535, 0.0516750982, -0.0313238253, 0.0186178235, -0.00900362949, 0.00499219233,
  -0.00626183203, 0.0037877739,
];

/** erf r of |r| ≤ 1/2. @param {Expression} r */
function erfNear(r) {
  const z = r.mul(r);
  return r.add(r.mul(z.polynomial(ERF)));
}

/** exp(x²) erfc(x) of x ≥ 1/2. @param {Expression} x */
function scaledErfc(x) {
  const limited = x.min(11);
  return limited.sub(2).div(limited.add(2)).polynomial(ERFCX).div(limited.add(limited).add(1));
}

/**
 * 2^extra · exp(-factor · x²): by the exact square of the first 12 bits of x, since a rounding of x² would be one of the exponent.
 * @param {Expression} x @param {number} factor 1 or 1/2 @param {number} [extra]
 */
export function bell(x, factor, extra = 0) {
  const limited = x.abs().min(20);
  const head = limited.bits('u32').and(0xfffff000).bits('f32');
  const low = limited.sub(head).mul(limited.add(head)).mul(-factor);
  return exp(head.mul(head).mul(-factor), extra, low);
}

/** erfc of |x| ≥ 1/2. @param {Expression} x */
const erfcFar = (x) => bell(x, 1).mul(scaledErfc(x.abs()));

/** Where erfc is small, its own relative error does not show: a power of two of one polynomial is enough. @param {Expression} x */
export function erf(x) {
  const size = x.abs().min(4);
  const far = exp2(size.mul(size.polynomial(LOG2_ERFC)))
    .from(1)
    .withSign(x);
  return x.isNan().choose(x, x.abs().lt(0.5).choose(erfNear(x), far));
}

/** @param {Expression} x */
export function erfc(x) {
  const far = erfcFar(x);
  return x.isNan().choose(
    x,
    x
      .abs()
      .lt(0.5)
      .choose(erfNear(x).from(1), x.lt(0).choose(far.from(2), far)),
  );
}

/**
 * The probability that a standard normal number is less than x: erfc(-x / √2) / 2.
 * @param {Expression} x @param {Expression} [factor] of the result: together they may be normal numbers where the probability is none
 */
export function normalCdf(x, factor = x.number(1)) {
  const z = x.mul(Math.SQRT1_2);
  // The tail of an infinite x is 0, and 0 times an infinite factor would be NaN.
  const tail = bell(x, 0.5, -1).mul(scaledErfc(z.abs()).mul(factor.min(MOST)));
  const far = x.lt(0).choose(tail, factor.sub(tail));
  return x.isNan().choose(x, z.abs().lt(0.5).choose(erfNear(z).mul(0.5).add(0.5).mul(factor), far));
}

/** erf of halves, to 4e-7: in `compile` what follows may read it before it is rounded. @param {Expression} x */
export function coarseErf(x) {
  const [size, square] = [x.abs().min(3.6), x.mul(x)];
  // Beyond 3.6 it is 1 exactly: the result may be subtracted from 1 before it is rounded.
  const rest = x
    .abs()
    .gt(3.6)
    .choose(0, size.mul(size.polynomial(COARSE_LOG2_ERFC)).exp2());
  const far = rest.from(1).withSign(x);
  return x
    .abs()
    .lt(0.5)
    .choose(x.add(x.mul(square.polynomial(COARSE_ERF))), far);
}

/** exp(-factor · x²) of halves, to 3e-6 of itself. @param {Expression} x @param {number} factor */
export function coarseBell(x, factor) {
  const limited = x.abs().min(20);
  return limited
    .mul(limited)
    .mul(-factor * Math.LOG2E)
    .exp2();
}

/** `normalCdf` of halves, to 5e-5 of itself; 0 below 1e-37. @param {Expression} x @param {Expression} [factor] */
export function coarseNormalCdf(x, factor = x.number(1)) {
  const tail = x.abs().mul(Math.SQRT1_2).min(9.3).polynomial(COARSE_LOG2_TAIL).exp2();
  // Where the tail is less than any number, it may not meet an infinite factor.
  return x.lt(0).choose(tail.mul(x.lt(-13.1).choose(0, factor)), factor.mul(tail.from(1)));
}

/** @param {Expression} x */
export function erfinv(x) {
  const size = x.abs();
  const w = log(size.from(1).mul(size.add(1))).neg();
  const far = w.sqrt().sub(3.1).polynomial(ERFINV_TAIL);
  const y = w.lt(5).choose(w.sub(2.5).polynomial(ERFINV), far).mul(x);
  return size.lt(1).choose(y, size.eq(1).choose(x.mul(Infinity), NaN));
}

/** Of x above 0: where it is below 1, the recurrence is used. @param {Expression} x */
function shifted(x) {
  const isSmall = x.lt(1);
  return { isSmall, at: isSmall.choose(x.add(1), x) };
}

/** log Γ(x) of x above 0. @param {Expression} x */
function lgammaAbove(x) {
  const { isSmall, at } = shifted(x);
  const logarithm = log(x);
  // The factors are exact: of x + 1 they are x and x - 1.
  const factors = x.sub(1).mul(isSmall.choose(x, x.sub(2)));
  const near = factors.mul(at.min(2.5).sub(1.75).polynomial(LGAMMA)).sub(isSmall.choose(logarithm, 0));
  const inverse = x.max(2).under(1);
  const series = inverse.mul(inverse.mul(inverse).polynomial(STIRLING));
  const far = x
    .sub(0.5)
    .mul(logarithm.sub(1))
    .add(series.add(Math.log(2 * Math.PI) / 2 - 0.5));
  return x.gt(2.5).choose(far, near.eq(0).choose(0, near));
}

/** log |Γ(x)|; infinite at 0, -1, -2 … Below 0, near its zeros, the error is absolute. @param {Expression} x */
export function lgamma(x) {
  const size = x.abs();
  const above = lgammaAbove(size);
  const sine = sinCosPi(size).sin.abs();
  // So near to 0 the product may be 0, and the sign makes no difference.
  const below = size.lt(2 ** -30).choose(above, log(size.mul(sine)).from(Math.log(Math.PI)).sub(above));
  const isPole = x.le(0).and(size.floor().eq(size));
  return x.isNan().choose(x, isPole.or(x.isInfinite()).choose(Infinity, x.lt(0).choose(below, above)));
}

/** The derivative of log Γ(x) of x above 0. @param {Expression} x */
function digammaAbove(x) {
  const { isSmall, at } = shifted(x);
  const limited = at.min(2.5);
  const inverse = x.under(1);
  const near = limited.sub(ROOT).sub(ROOT_LOW).mul(limited.sub(1.75).polynomial(DIGAMMA)).sub(isSmall.choose(inverse, 0));
  const square = inverse.min(0.5).mul(inverse.min(0.5));
  const far = log(x).sub(inverse.mul(0.5).add(square.mul(square.polynomial(STIRLING_SLOPE))));
  return x.gt(2.5).choose(far, near);
}

/** The derivative of log Γ(x); NaN at -1, -2 … Below 0, near its zeros, the error is absolute. @param {Expression} x */
export function digamma(x) {
  const size = x.abs();
  const above = digammaAbove(size);
  const { sin, cos } = sinCosPi(size);
  const inverse = size.under(1);
  // So near to 0 this is all, and may be infinite.
  const below = size.lt(2 ** -30).choose(inverse, above.add(inverse).add(cos.div(sin).mul(Math.PI)));
  const isPole = x.lt(0).and(size.floor().eq(size));
  const y = x.lt(0).choose(isPole.choose(NaN, below), above);
  return x.eq(0).choose(x.under(-1), y);
}

/** The derivative of digamma. @param {Expression} x */
export function trigamma(x) {
  const size = x.abs();
  const { isSmall, at } = shifted(size);
  const inverse = size.under(1);
  const square = inverse.mul(inverse);
  const limited = at.min(2.5);
  const near = limited.sub(1.75).polynomial(TRIGAMMA).div(limited).add(isSmall.choose(square, 0));
  const w = inverse.min(0.5).mul(inverse.min(0.5));
  const far = inverse.add(w.mul(0.5)).add(inverse.min(0.5).mul(w).mul(w.polynomial(STIRLING_CURVE)));
  const above = size.gt(2.5).choose(far, near);
  const cosecant = sinCosPi(size).sin.under(Math.PI);
  return x.lt(0).choose(cosecant.mul(cosecant).sub(above).add(square), above);
}
