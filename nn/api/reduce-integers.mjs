// Reductions of integers and bools over any dimensions, which `sum`, `amax` and others of `functional` call.

import { apply } from '../core/engine.mjs';
import { isByte, sizeOf } from '../core/layout.mjs';
import * as integers from '../ops/integers.mjs';
import { resultShape, runs } from '../ops/reduce.mjs';
import { clone, reshape, to } from './views.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */

/**
 * Joins the elements over dimensions. Sums and products of bools and bytes are i32; other results have x's type.
 * @param {'sum' | 'prod' | 'amax' | 'amin'} join @param {Tensor} x of integers or bools @param {number[]} dims @param {boolean} keepdim
 * @returns {Tensor}
 */
export function reduceIntegers(join, x, dims, keepdim) {
  const counts = join === 'sum' || join === 'prod';
  const dtype = x.dtype === 'bool' || isByte(x.dtype) ? 'i32' : x.dtype;
  let y = x;
  // One run of dimensions after the other, the innermost first. The order does not matter: integers wrap.
  const parts = runs(x.shape, dims);
  for (let i = parts.length - 1; i >= 0; i--) {
    if (!parts[i].reduced) continue;
    const shape = [parts.slice(0, i), [parts[i]], parts.slice(i + 1)].map((run) => sizeOf(run.map(({ size }) => size)));
    y = apply(integers.reduceIntegers, [reshape(y, shape)], { join, dtype });
    parts[i].size = 1;
  }
  const type = counts ? dtype : x.dtype;
  const result = reshape(to(y, type), resultShape(x.shape, dims, keepdim));
  return result.storage === x.storage ? clone(result) : result;
}
