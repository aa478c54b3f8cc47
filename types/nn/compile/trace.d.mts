// Made by `npm run types` from nn/; do not edit.
/** @typedef {import('./arguments.mjs').Slot} Slot */
/**
 * A graph of what the function does with tensors in the slots. All or nothing.
 * @param {(...args: any[]) => any} fn @param {Slot[]} slots @param {(tensors: Tensor[]) => any[]} rebuild the arguments from the
 *   tensors of the slots
 * @param {import('./graph.mjs').GraphOptions} options
 * @returns {Graph}
 */
export function trace(fn: (...args: any[]) => any, slots: Slot[], rebuild: (tensors: Tensor[]) => any[], options: import("./graph.mjs").GraphOptions): Graph;
export type Slot = import("./arguments.mjs").Slot;
import { Tensor } from '../tensor.mjs';
import { Graph } from './graph.mjs';
