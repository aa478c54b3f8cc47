// Calls of public functions that are right: weights of 8 bits.

import { ones } from '../../nn/index.mjs';

const weight = () => ({ quants: ones([4, 32], { dtype: 'i8' }), scales: ones([4, 1], { dtype: 'f16' }) });

/** Functions of `F`. @type {Record<string, () => any[]>} */
export const FUNCTIONS = {
  quantizeQ8: () => [ones([2, 32])],
  dequantizeQ8: () => [weight()],
  adapt: () => [ones([3, 8]), ones([3, 4]), [{ a: ones([2, 4]), b: ones([4, 2]), scale: 0.5, row: 4 }]],
  linearQ8: () => [ones([3, 32]), weight(), ones([4])],
};
/** Methods of tensors: the tensor, then arguments. @type {Record<string, () => any[]>} */
export const METHODS = {};
/** Modules: what their constructors take. @type {Record<string, () => any[]>} */
export const CONSTRUCTORS = {};
/** Modules and what they take, by the names that their errors have. @type {[string | string[], () => any, () => any[]][]} */
export const FORWARDS = [];
