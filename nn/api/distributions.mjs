// Random numbers of further distributions, drawn on the device as those of `rand`: functions of uniform numbers in (0, 1), or of normal ones.

import { tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, shown, within } from '../core/errors.mjs';
import { broadcastShapes, checkShape, isFloat, positive, sizeOf } from '../core/layout.mjs';
import { checkAbove, checkFinite, checkLeast } from '../core/options.mjs';
import * as F from './functional.mjs';
import { argmax } from './indexing.mjs';
import { cholesky } from './linalg.mjs';
import { erfinv, tan } from './math.mjs';
import { toF32 } from './operands.mjs';
import { rand, randn } from './random.mjs';
import { norm } from './reductions.mjs';

/** @import { Tensor } from './tensor.mjs' */
/** Sizes of the dimensions of what is drawn. @typedef {readonly number[]} Shape */

/** Uniform in (0, 1). @param {Shape} shape */
const uniform = (shape) => rand(shape, { low: 2 ** -25, high: 1 });
/** Exponentially distributed, of mean 1. @param {Shape} shape */
const waits = (shape) => F.neg(F.log(uniform(shape)));

/**
 * Checks the shape and numbers, and draws.
 * @param {string} op @param {Shape} shape @param {Record<string, number>} finite @param {Record<string, number>} above 0 @param {(shape: Shape) => Tensor} draw
 */
function drawn(op, shape, finite, above, draw) {
  const sizes = checkShape(op, shape);
  for (const [name, value] of Object.entries(finite)) checkFinite(op, name, value);
  for (const [name, value] of Object.entries(above)) checkAbove(op, name, value);
  return within(op, () => draw(sizes));
}

/** 1 with each probability of x, else 0. @param {Tensor} x f32, f16 or bf16, in [0, 1] @returns {Tensor} of x's shape and type */
export function bernoulli(x) {
  if (!isFloat(tensorOf('bernoulli', x).dtype)) throw new ArgumentError('bernoulli', `takes f32, f16 or bf16, got ${x.dtype}`);
  return within('bernoulli', () => F.to(F.lt(rand(x.shape), toF32(x.detach())), x.dtype));
}
/** Normal numbers of means and deviations, which broadcast. @param {Tensor | number} mean @param {Tensor | number} std at least 0 @param {Shape} [shape] where both are numbers @returns {Tensor} f32 */
export function normal(mean, std, shape) {
  if (typeof std === 'number') checkLeast('normal', 'std', std);
  if (typeof mean === 'number') checkFinite('normal', 'mean', mean);
  const tensors = [mean, std].flatMap((x) => (typeof x === 'number' ? [] : [tensorOf('normal', x)]));
  if (tensors.length > 0 && shape !== undefined) throw new ArgumentError('normal', 'the shape is that of the tensors: leave it out');
  if (tensors.length === 0) checkShape('normal', /** @type {Shape} */ (shape));
  return within('normal', () => {
    const sizes = tensors.length > 0 ? broadcastShapes('normal', ...tensors.map((x) => x.shape)) : /** @type {Shape} */ (shape);
    return F.add(F.mul(randn(sizes), std), mean);
  });
}
/** Exponential. @param {Shape} shape @param {number} [lambd] the rate: 1 / mean; 1 when left out */
export const exponential = (shape, lambd = 1) => drawn('exponential', shape, {}, { lambd }, (s) => F.div(waits(s), lambd));
/** Cauchy. @param {Shape} shape @param {number} [median] 0 when left out @param {number} [sigma] half the width at half the height; 1 when left out */
export const cauchy = (shape, median = 0, sigma = 1) =>
  drawn('cauchy', shape, { median }, { sigma }, (s) => F.add(F.mul(tan(F.mul(F.sub(uniform(s), 0.5), Math.PI)), sigma), median));
/** Geometric: how many trials it takes, from 1 on. @param {Shape} shape @param {number} p of success, in (0, 1) */
export function geometric(shape, p) {
  if (typeof p !== 'number' || !(p > 0 && p < 1)) throw new ArgumentError('geometric', `p must be in (0, 1), got ${shown(p)}`);
  return drawn('geometric', shape, {}, {}, (s) => F.add(F.to(F.to(F.div(waits(s), -Math.log1p(-p)), 'i32'), 'f32'), 1));
}
/** Log-normal. @param {Shape} shape @param {number} [mean] of the logarithms; 1 when left out @param {number} [std] of the logarithms; 2 when left out */
export const logNormal = (shape, mean = 1, std = 2) =>
  drawn('logNormal', shape, { mean }, { std }, (s) => F.exp(F.add(F.mul(randn(s), std), mean)));
/** Gumbel. @param {Shape} shape @param {number} [loc] 0 when left out @param {number} [scale] 1 when left out */
export const gumbel = (shape, loc = 0, scale = 1) =>
  drawn('gumbel', shape, { loc }, { scale }, (s) => F.sub(loc, F.mul(F.log(waits(s)), scale)));
/**
 * Gamma (Marsaglia & Tsang 2000). Each number is the first accepted one of 16 trials. If all are rejected
 * (one case in 10²⁰), it is the most probable number.
 * @param {Shape} shape @param {number} alpha the shape parameter, above 0 @param {number} [beta] the rate; 1 when left out
 */
export const gamma = (shape, alpha, beta = 1) =>
  drawn('gamma', shape, {}, { alpha, beta }, (s) => {
    // Below 1 it is that of alpha + 1, times a uniform number to the power 1 / alpha.
    const d = (alpha < 1 ? alpha + 1 : alpha) - 1 / 3;
    const c = 1 / Math.sqrt(9 * d);
    /** @type {Tensor | undefined} */
    let y;
    for (let trial = 0; trial < 16; trial++) {
      const z = randn(s);
      const root = F.add(F.mul(z, c), 1);
      const v = F.mul(F.square(root), root);
      const isAbove = F.gt(v, 0);
      const limit = F.add(F.mul(F.square(z), 0.5), F.mul(F.add(F.sub(1, v), F.log(F.where(isAbove, v, 1))), d));
      const accepted = F.where(isAbove, F.lt(F.log(uniform(s)), limit), 0);
      // The trials behind the first that is accepted do not count.
      y = y === undefined ? F.where(accepted, v, -1) : F.where(F.gt(y, 0), y, F.where(accepted, v, -1));
    }
    const own = F.mul(F.where(F.gt(/** @type {Tensor} */ (y), 0), /** @type {Tensor} */ (y), 1), d / beta);
    return alpha < 1 ? F.mul(own, F.pow(uniform(s), 1 / alpha)) : own;
  });
/** Laplace. @param {Shape} shape @param {number} [loc] 0 when left out @param {number} [scale] 1 when left out */
export const laplace = (shape, loc = 0, scale = 1) =>
  drawn('laplace', shape, { loc }, { scale }, (s) => {
    const apart = F.mul(F.sub(uniform(s), 0.5), 2);
    return F.sub(loc, F.mul(F.mul(F.sign(apart), F.log1p(F.neg(F.abs(apart)))), scale));
  });
/** Logistic. @param {Shape} shape @param {number} [loc] 0 when left out @param {number} [scale] 1 when left out */
export const logistic = (shape, loc = 0, scale = 1) =>
  drawn('logistic', shape, { loc }, { scale }, (s) => {
    const u = uniform(s);
    return F.add(F.mul(F.sub(F.log(u), F.log1p(F.neg(u))), scale), loc);
  });
/** Pareto. @param {Shape} shape @param {number} alpha the power by which it falls @param {number} [scale] the least number; 1 when left out */
export const pareto = (shape, alpha, scale = 1) =>
  drawn('pareto', shape, {}, { alpha, scale }, (s) => F.mul(F.exp(F.div(waits(s), alpha)), scale));
/** 1 or -1, as often as each other. @param {Shape} shape */
export const rademacher = (shape) => drawn('rademacher', shape, {}, {}, (s) => F.where(F.lt(rand(s), 0.5), -1, 1));
/** Rayleigh: lengths of pairs of normal numbers. @param {Shape} shape @param {number} [scale] 1 when left out */
export const rayleigh = (shape, scale = 1) => drawn('rayleigh', shape, {}, { scale }, (s) => F.mul(F.sqrt(F.mul(waits(s), 2)), scale));
/** Triangular. @param {Shape} shape @param {number} left the least number @param {number} mode the most probable @param {number} right the largest */
export function triangular(shape, left, mode, right) {
  for (const [name, value] of Object.entries({ left, mode, right })) checkFinite('triangular', name, value);
  if (!(left <= mode && mode <= right && left < right))
    throw new ArgumentError('triangular', `left, mode and right must be in order, got ${left}, ${mode}, ${right}`);
  return drawn('triangular', shape, {}, {}, (s) => {
    const u = uniform(s);
    const width = right - left;
    const rise = F.add(F.sqrt(F.mul(u, width * (mode - left))), left);
    const fall = F.sub(right, F.sqrt(F.mul(F.sub(1, u), width * (right - mode))));
    return F.where(F.lt(u, (mode - left) / width), rise, fall);
  });
}
/** Weibull. @param {Shape} shape @param {number} scale @param {number} concentration */
export const weibull = (shape, scale, concentration) =>
  drawn('weibull', shape, {}, { scale, concentration }, (s) => F.mul(F.pow(waits(s), 1 / concentration), scale));
/** Maxwell: lengths of triples of normal numbers. @param {Shape} shape */
export const maxwell = (shape) => drawn('maxwell', shape, {}, {}, (s) => norm(randn([...s, 3]), 2, -1));
/** Maxwell of either sign. @param {Shape} shape @param {number} [loc] 0 when left out @param {number} [scale] 1 when left out */
export const doubleSidedMaxwell = (shape, loc = 0, scale = 1) =>
  drawn('doubleSidedMaxwell', shape, { loc }, { scale }, (s) => F.add(F.mul(F.mul(maxwell(s), rademacher(s)), scale), loc));
/** The probability that a standard normal number is less. @param {number} x */
function below(x) {
  // By Simpson's rule from 0, to which the density is even.
  const [n, to] = [2000, Math.min(Math.abs(x), 9)];
  let sum = 0;
  for (let i = 0; i <= n; i++) sum += (i === 0 || i === n ? 1 : i % 2 ? 4 : 2) * Math.exp(-(((i * to) / n) ** 2) / 2);
  const half = (sum * to) / n / 3 / Math.sqrt(2 * Math.PI);
  return x < 0 ? 0.5 - half : 0.5 + half;
}
/** Normal numbers within bounds. @param {Shape} shape @param {number} [mean] 0 when left out @param {number} [std] 1 when left out @param {number} [a] least, in deviations from the mean; -2 when left out @param {number} [b] largest; 2 when left out */
export function truncatedNormal(shape, mean = 0, std = 1, a = -2, b = 2) {
  for (const [name, value] of Object.entries({ a, b })) checkFinite('truncatedNormal', name, value);
  // Beyond, f32 has few uniform numbers left.
  if (!(a < b) || a > 3 || b < -3)
    throw new ArgumentError('truncatedNormal', `a must be less than b, and one within ±3, got ${a} and ${b}`);
  return drawn('truncatedNormal', shape, { mean }, { std }, (s) => {
    const [low, high] = [below(a), below(b)];
    const z = F.mul(erfinv(F.sub(F.mul(F.add(F.mul(uniform(s), high - low), low), 2), 1)), Math.SQRT2);
    return F.add(F.mul(F.clamp(z, a, b), std), mean);
  });
}
/** Points in the unit ball, evenly. @param {Shape} shape @param {number} d dimensions @returns {Tensor} [...shape, d] */
export function ball(shape, d) {
  if (positive('ball', 'd', d) > 2 ** 20) throw new ArgumentError('ball', `d must be at most 2^20, got ${d}`);
  return drawn('ball', shape, {}, {}, (s) => {
    const x = randn([...s, d]);
    return F.mul(F.div(x, norm(x, 2, -1, true)), F.unsqueeze(F.pow(uniform(s), 1 / d), -1));
  });
}
/** Classes by their logits, with replacement. @param {Tensor} logits [..., classes] @param {number} [numSamples] 1 when left out @returns {Tensor} i32 [..., numSamples] */
export function categorical(logits, numSamples = 1) {
  const { ndim, shape } = tensorOf('categorical', logits);
  positive('categorical', 'numSamples', numSamples);
  if (ndim === 0 || shape.at(-1) === 0) throw new ShapeError('categorical', `expected logits [..., classes], got ${show(shape)}`);
  return within('categorical', () => {
    const wide = F.unsqueeze(F.to(logits.detach(), 'f32'), -2);
    const noise = gumbel([...shape.slice(0, -1), numSamples, /** @type {number} */ (shape.at(-1))]);
    return argmax(F.add(wide, noise), -1);
  });
}
/** Vectors of normal numbers with covariances. @param {Tensor} mean [n] @param {Tensor} cov [n, n], positive definite @param {Shape} [shape] [] when left out @returns {Tensor} [...shape, n] */
export function multivariateNormal(mean, cov, shape = []) {
  const op = 'multivariateNormal';
  tensorOf(op, cov);
  if (tensorOf(op, mean).ndim !== 1 || show(cov.shape) !== show([mean.size, mean.size]))
    throw new ShapeError(op, `expected a mean [n] and covariances [n, n], got ${show(mean.shape)} and ${show(cov.shape)}`);
  return drawn(op, shape, {}, {}, (s) =>
    F.add(F.reshape(F.matmul(randn([sizeOf(s), mean.size]), F.transpose(cholesky(cov), 0, 1)), [...s, mean.size]), mean),
  );
}
