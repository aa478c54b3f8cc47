// Calls of public functions that are right: integers.

import { ones } from '../../nn/index.mjs';

const m = () => ones([2, 3]);
const i = () => ones([2, 3], { dtype: 'i32' });

const EITHER = ['bitwiseAnd', 'bitwiseOr', 'bitwiseXor', 'bitwiseLeftShift', 'bitwiseRightShift'];
const LOGICAL = ['logicalAnd', 'logicalOr', 'logicalXor'];

/** Functions of `F`. @type {Record<string, () => any[]>} */
export const FUNCTIONS = {
  ...Object.fromEntries(EITHER.map((name) => [name, () => [i(), i()]])),
  ...Object.fromEntries(LOGICAL.map((name) => [name, () => [m(), m()]])),
  bitwiseNot: () => [i()],
  logicalNot: () => [m()],
  div: () => [m(), m(), { roundingMode: 'floor' }],
};
/** Methods of tensors: the tensor, then arguments. @type {Record<string, () => any[]>} */
export const METHODS = FUNCTIONS;
/** Modules: what their constructors take. @type {Record<string, () => any[]>} */
export const CONSTRUCTORS = {};
/** Modules and what they take, by the names that their errors have. @type {[string | string[], () => any, () => any[]][]} */
export const FORWARDS = [];
