// Made by `npm run types` from nn/; do not edit.
/** 0 where a query sees a key, -1e9 where not: the last query stands at the last key. @param {number} queries @param {number} keys */
export function causalMask(queries: number, keys: number): Tensor;
import { Tensor } from './tensor.mjs';
