// Made by `npm run types` from nn/; do not edit.
/**
 * Options of `compile`.
 * @typedef {object} CompileOptions
 * @property {boolean} [reuseOutputs] whether results lie in the graph's memory, until the next call, instead of memory of their
 *   own; false when left out
 * @property {readonly PassName[]} [passes] over what was recorded: all when left out
 */
/**
 * A function of tensors as recorded graphs: the first call with arguments of some shapes runs it once to record what it does;
 * calls after that submit the recording. Tensors and typed arrays among the arguments (also in arrays and plain objects) are
 * inputs; every other argument, and every number that the function takes from outside, is a constant of the recording.
 * Parameters, and other tensors from outside, are read and written where they are.
 *
 * There are no values while the function runs: what is to be read is returned. Results are tensors of their own without
 * gradients; with `reuseOutputs` they lie in the graph's memory, until the next call.
 * @template {(...args: any[]) => any} F
 * @param {F} fn synchronous
 * @param {CompileOptions} [options]
 * @returns {((...args: Parameters<F>) => ReturnType<F>) & { explain: () => Explanation[], dispose: () => void }}
 */
export function compile<F extends (...args: any[]) => any>(fn: F, { reuseOutputs, passes }?: CompileOptions): ((...args: Parameters<F>) => ReturnType<F>) & {
    explain: () => Explanation[];
    dispose: () => void;
};
/**
 * Options of `compile`.
 */
export type CompileOptions = {
    /**
     * whether results lie in the graph's memory, until the next call, instead of memory of their
     * own; false when left out
     */
    reuseOutputs?: boolean | undefined;
    /**
     * over what was recorded: all when left out
     */
    passes?: readonly import("./passes/index.mjs").PassName[] | undefined;
};
/**
 * What a graph of a compiled function is.
 */
export type Explanation = {
    /**
     * the arguments that it is for
     */
    key: string;
    dispatches: number;
    /**
     * bytes of its intermediate results, each by itself
     */
    unplanned: number;
    /**
     * what passes put together or left out, and how often
     */
    found: Record<string, number>;
    /**
     * bytes that they take, as they share memory
     */
    planned: number;
};
export type Allocation = import("./runtime.mjs").Allocation;
export type Sink = import("./runtime.mjs").Sink;
export type Layout = import("./layout.mjs").Layout;
export type DType = import("./layout.mjs").DType;
export type Template = import("../kernels/template.mjs").Template;
export type Call = import("./passes/calls.mjs").Call;
export type PassName = import("./passes/index.mjs").PassName;
/**
 * A tensor of an argument: its layout, and where the data comes from.
 */
export type Slot = {
    layout: Layout;
    requiresGrad: boolean;
    source: Tensor | ArrayBufferView;
};
import { Tensor } from './tensor.mjs';
