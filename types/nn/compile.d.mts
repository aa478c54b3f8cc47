// Made by `npm run types` from nn/; do not edit.
/** @typedef {import('./passes/index.mjs').PassName} PassName */
/** @typedef {import('./tensor.mjs').Tensor} Tensor */
/**
 * Options of `compile`.
 * @typedef {object} CompileOptions
 * @property {boolean} [reuseOutputs] whether results lie in the graph's memory, until the next call, instead of memory of their
 *   own; false when left out
 * @property {boolean} [graph] whether calls launch a recorded graph; with false each submits the list of dispatches again, which
 *   takes the host longer; true when left out
 * @property {readonly PassName[]} [passes] over what was recorded: all when left out
 */
/**
 * What a compiled function has besides being one.
 * @template {any[]} A
 * @typedef {object} CompiledMethods
 * @property {() => Explanation[]} explain its graphs, the last used one at the end
 * @property {() => string} html a page about them for a browser: what each line of the program became, and what was put together
 * @property {(...args: A) => import('./explain.mjs').LineTime[]} profile one call, with the time of each line of the program, the
 *   longest first. The call happens: an optimizer steps. Its result is not returned. Throws where the device has no timestamps
 * @property {() => void} dispose frees its graphs and their memory
 */
/**
 * A function of tensors as recorded graphs: the first call with arguments of some shapes runs it once to record what it does;
 * calls after that submit the recording. Tensors and typed arrays among the arguments (also in arrays and plain objects) are
 * inputs; every other argument, and every number that the function takes from outside, is a constant of the recording. Inputs are
 * copies: the gradient of one is to be returned (`grad`, or its `grad` after `backward` in the function), and the argument has none.
 * Parameters, and other tensors from outside, are read and written where they are.
 *
 * There are no values while the function runs: what is to be read is returned. Results are tensors of their own without
 * gradients; with `reuseOutputs` they lie in the graph's memory, until the next call.
 * @template {(...args: any[]) => any} F
 * @param {F} fn synchronous
 * @param {CompileOptions} [options]
 * @returns {((...args: Parameters<F>) => ReturnType<F>) & CompiledMethods<Parameters<F>>}
 */
export function compile<F extends (...args: any[]) => any>(fn: F, options?: CompileOptions): ((...args: Parameters<F>) => ReturnType<F>) & CompiledMethods<Parameters<F>>;
export type PassName = import("./passes/index.mjs").PassName;
export type Tensor = import("./tensor.mjs").Tensor;
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
     * whether calls launch a recorded graph; with false each submits the list of dispatches again, which
     * takes the host longer; true when left out
     */
    graph?: boolean | undefined;
    /**
     * over what was recorded: all when left out
     */
    passes?: readonly import("./passes/index.mjs").PassName[] | undefined;
};
/**
 * What a compiled function has besides being one.
 */
export type CompiledMethods<A extends any[]> = {
    /**
     * its graphs, the last used one at the end
     */
    explain: () => Explanation[];
    /**
     * a page about them for a browser: what each line of the program became, and what was put together
     */
    html: () => string;
    /**
     * one call, with the time of each line of the program, the
     * longest first. The call happens: an optimizer steps. Its result is not returned. Throws where the device has no timestamps
     */
    profile: (...args: A) => import("./explain.mjs").LineTime[];
    /**
     * frees its graphs and their memory
     */
    dispose: () => void;
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
