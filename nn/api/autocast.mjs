// Mixed precision: under `autocast`, products take operands of a 16-bit type, and losses and norms take f32. Parameters, their gradients
// and an optimizer's moments stay f32.

import { ArgumentError, checkFunction, checkResult, shown } from '../core/errors.mjs';

/** @typedef {import('../core/layout.mjs').DType} DType */
/** @typedef {import('./tensor.mjs').Tensor} Tensor */

/** Part of the error for an async function. */
const LATE = 'the types would be as before after its first await';

/** @type {DType | undefined} */
let current;
/** 16-bit conversions of parameters, so that a parameter used twice is converted once. @type {Map<Tensor, { cast: Tensor, version: number }>} */
const casts = new Map();

/** The type of products' operands now; undefined outside of `autocast`. */
export const autocastType = () => current;

/** @template T @param {DType | undefined} dtype @param {() => T} fn @returns {T} */
function under(dtype, fn) {
  const outer = current;
  current = dtype;
  try {
    return checkResult('autocast', fn(), LATE);
  } finally {
    current = outer;
    if (outer === undefined) forgetCasts();
  }
}

/**
 * Runs `fn` with mixed precision, as PyTorch's autocast: the operands of products (`linear`, `matmul`, attention) are converted to a 16-bit
 * type, those of losses, norms, softmax and of some functions of elements (`tan`, `softplus`, `pow` by a tensor …) to f32. `backward` may be
 * called inside or outside and is not affected.
 * @template T
 * @param {'bf16' | 'f16' | false} dtype the 16-bit type; `false` turns conversions off inside an outer autocast
 * @param {() => T} fn synchronous
 * @returns {T}
 */
export function autocast(dtype, fn) {
  if (dtype !== 'bf16' && dtype !== 'f16' && dtype !== false) {
    throw new ArgumentError('autocast', `expected 'bf16', 'f16' or false, got ${shown(dtype)}`);
  }
  checkFunction('autocast', fn, LATE);
  return under(dtype || undefined, fn);
}

/** Runs `fn` without conversions, as backward passes do. @template T @param {() => T} fn @returns {T} */
export const withoutAutocast = (fn) => (current === undefined ? fn() : under(undefined, fn));

/** The cached conversion of a parameter, if it is still valid. @param {Tensor} x @param {DType} dtype */
export function castOf(x, dtype) {
  // What was frozen since it was converted must not get a gradient by that conversion.
  const known = x.requiresGrad ? casts.get(x) : undefined;
  return known?.cast.storage && known.version === x.storage?.version && known.cast.dtype === dtype ? known.cast : undefined;
}

/** Caches the conversion of a parameter. @param {Tensor} x @param {Tensor} cast */
export function rememberCast(x, cast) {
  if (x.isParameter && cast.node && x.storage) casts.set(x, { cast, version: x.storage.version });
}

/** Drops the cached conversions. A backward pass frees what their gradients need, so they cannot be used after it. */
export const forgetCasts = () => casts.clear();
