// Made by `npm run types` from nn/; do not edit.
/** @typedef {import('./layout.mjs').Layout} Layout */
/** @typedef {import('./layout.mjs').DType} DType */
/** @typedef {{ shape: readonly number[], dtype: DType }} Result */
/**
 * @typedef {object} CustomOp
 * @property {string} name for errors
 * @property {Uint32Array} spirv a compute shader; binding i is input i, then the result
 * @property {(...args: any[]) => Result} infer the result of the inputs' layouts and, last, the attributes; throws what is wrong
 *   with them
 * @property {(...args: any[]) => { groups: number | [number, number, number], push?: Uint8Array }} dispatch workgroups and push
 *   constants of the inputs' layouts, the result's, and the attributes
 * @property {(dy: Tensor, inputs: Tensor[], outputs: Tensor[], attributes: any) => (Tensor | undefined)[]} [backward] gradients
 *   of the inputs, written in operations; without it the result has none
 * @property {(...args: any[]) => ArrayLike<number>} [reference] the result's elements in float64, of the inputs' elements and
 *   the attributes: what `check` compares with
 */
/**
 * An operation of one kernel. The inputs are dense, each from the start of its binding.
 * @param {CustomOp} definition
 * @returns {((...args: any[]) => Tensor) & { check: (shapes: number[] | number[][], attributes?: any, options?: { tolerance?: number }) => Promise<void>, dispose: () => void }}
 *   called with tensors, and with an object of attributes (plain values) behind them
 */
export function customOp(definition: CustomOp): ((...args: any[]) => Tensor) & {
    check: (shapes: number[] | number[][], attributes?: any, options?: {
        tolerance?: number;
    }) => Promise<void>;
    dispose: () => void;
};
export type Layout = import("./layout.mjs").Layout;
export type DType = import("./layout.mjs").DType;
export type Result = {
    shape: readonly number[];
    dtype: DType;
};
export type CustomOp = {
    /**
     * for errors
     */
    name: string;
    /**
     * a compute shader; binding i is input i, then the result
     */
    spirv: Uint32Array;
    /**
     * the result of the inputs' layouts and, last, the attributes; throws what is wrong
     * with them
     */
    infer: (...args: any[]) => Result;
    /**
     * workgroups and push
     * constants of the inputs' layouts, the result's, and the attributes
     */
    dispatch: (...args: any[]) => {
        groups: number | [number, number, number];
        push?: Uint8Array;
    };
    /**
     * gradients
     * of the inputs, written in operations; without it the result has none
     */
    backward?: ((dy: Tensor, inputs: Tensor[], outputs: Tensor[], attributes: any) => (Tensor | undefined)[]) | undefined;
    /**
     * the result's elements in float64, of the inputs' elements and
     * the attributes: what `check` compares with
     */
    reference?: ((...args: any[]) => ArrayLike<number>) | undefined;
};
import { Tensor } from './tensor.mjs';
