// Made by `npm run types` from nn/; do not edit.
/** @typedef {import('./ops/registry.mjs').Op} Op */
/**
 * Runs `fn` and keeps none of its intermediate results: the backward pass runs it again. What it drops (dropout) it drops
 * again. It is called twice for each result, so it should have no other effects. Leaves that it reads must not change before the
 * backward pass, which else throws.
 * @param {(...inputs: any[]) => Tensor} fn a function of tensors to one tensor; parameters and other tensors from outside
 *   get their gradients too
 * @param {...any} inputs
 * @returns {Tensor}
 */
export function checkpoint(fn: (...inputs: any[]) => Tensor, ...inputs: any[]): Tensor;
/**
 * Gradients of `count` micro-steps: calls `fn(0)` … `fn(count - 1)`, and `backward` of each loss divided by `count`. Of each
 * micro-step nothing is kept but gradients.
 * @param {number} count @param {(i: number) => Tensor} fn the mean loss of micro-step i
 * @returns {Tensor} the mean of the losses, without a gradient
 */
export function accumulate(count: number, fn: (i: number) => Tensor): Tensor;
export type Op = import("./ops/registry.mjs").Op;
import { Tensor } from './tensor.mjs';
