// Made by `npm run types` from nn/; do not edit.
/**
 * Calls an operation.
 * @param {Op} op
 * @param {Tensor[]} inputs changed where an input must be made dense
 * @param {any} [attributes] plain values
 * @returns {Tensor}
 */
export function apply(op: Op, inputs: Tensor[], attributes?: any): Tensor;
/**
 * Calls an operation of several results, which have no gradients.
 * @param {Op} op @param {Tensor[]} inputs @param {any} [attributes]
 * @returns {Tensor[]}
 */
export function applyAll(op: Op, inputs: Tensor[], attributes?: any): Tensor[];
/**
 * Calls an operation and writes its result over a tensor.
 * @param {Op} op @param {Tensor[]} inputs @param {any} attributes @param {Tensor} target
 */
export function applyInto(op: Op, inputs: Tensor[], attributes?: any, target?: Tensor): Tensor;
/**
 * A view: the layout that the operation infers, over the same storage, or over another that holds the result already.
 * @param {Op} op @param {Tensor} input @param {Layout} layout @param {any} attributes @param {Storage} [storage]
 */
export function view(op: Op, input: Tensor, layout: Layout, attributes: any, storage?: Storage): Tensor;
/**
 * The memory of a tensor.
 * @param {string} op @param {Tensor} tensor
 * @returns {Storage}
 * @throws {UsageError} where it has none any more, which says why
 */
export function storageOf(op: string, tensor: Tensor): Storage;
/** @param {unknown} value */
export function describe(value: unknown): string;
export type Layout = import("./layout.mjs").Layout;
export type Storage = import("./storage.mjs").Storage;
export type Op = import("./ops/registry.mjs").Op;
export type Operand = import("./ops/registry.mjs").Operand;
export type Plan = import("./ops/registry.mjs").Plan;
import { Tensor } from './tensor.mjs';
