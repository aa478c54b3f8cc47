// Made by `npm run types` from nn/; do not edit.
/** x, which has to be a tensor. @param {string} op @param {unknown} x @returns {Tensor} */
export function tensorOf(op: string, x: unknown): Tensor;
/** What autocast computes in f32. @param {Tensor} x @returns {Tensor} */
export function full32(x: Tensor): Tensor;
/** x, as f32 where it has 16 bits: statistics are f32. @param {Tensor} x */
export function single(x: Tensor): Tensor;
/** x, as f32 where 16-bit rows have an odd size: kernels that are not products take such rows by pairs. @param {Tensor} x @returns {Tensor} */
export function pairs(x: Tensor): Tensor;
import { Tensor } from './tensor.mjs';
