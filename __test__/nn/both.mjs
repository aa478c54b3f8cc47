// Results of one operation, eager and compiled.

import assert from 'node:assert/strict';
import { compile } from '../../nn/index.mjs';
import { values } from './setup.mjs';

/** @typedef {import('../../nn/index.mjs').Tensor} Tensor */

/** The type, shape and elements of a result, which is the same eager and compiled. @param {(...tensors: any[]) => Tensor} call @param {any[]} inputs */
export async function both(call, ...inputs) {
  const y = call(...inputs);
  const compiled = compile((/** @type {any[]} */ ...own) => call(...own));
  const z = compiled(...inputs);
  const got = [y.dtype, [...y.shape], await values(y)];
  assert.deepEqual([z.dtype, [...z.shape], await values(z)], got, `compiled ${call}`);
  return got;
}
