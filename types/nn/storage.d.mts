// Made by `npm run types` from nn/; do not edit.
/** Notes a new tensor in the innermost scope. @param {Tensor} tensor */
export function born(tensor: Tensor): void;
/**
 * Runs `fn` and frees the tensors that were made in it, except those that it returns (alone, or in arrays and plain
 * objects), parameters, and gradients. Without a function: an object that does so when it is disposed of
 * (`using s = scope()`), with `keep`.
 * @template T
 * @overload
 * @param {() => T} fn synchronous
 * @returns {T}
 */
export function scope<T>(fn: () => T): T;
/**
 * @overload
 * @returns {Scope & Disposable}
 */
export function scope(): Scope & Disposable;
/**
 * Runs `fn` outside of all scopes: what it makes is freed by its owner alone.
 * @template T
 * @param {() => T} fn
 * @returns {T}
 */
export function unscoped<T>(fn: () => T): T;
/**
 * The tensors in arrays and plain objects.
 * @param {any} value
 * @returns {Generator<Tensor>}
 */
export function tensorsIn(value: any): Generator<Tensor>;
/**
 * Arrays and plain objects with something else in place of each tensor; other values are as they are.
 * @param {any} value @param {(tensor: Tensor) => any} f @returns {any}
 */
export function mapTensors(value: any, f: (tensor: Tensor) => any): any;
/** @typedef {import('./runtime.mjs').Allocation} Allocation */
/** @typedef {import('./tensor.mjs').Tensor} Tensor */
export class Storage {
    /** @param {Allocation} allocation */
    constructor(allocation: Allocation);
    allocation: import("./runtime.mjs").Allocation;
    /** Tensors, and values saved for a backward pass, that hold it. */
    shares: number;
    /** Counts writes in place. */
    version: number;
    retain(): void;
    release(): void;
}
/** A storage of at least `bytes` bytes, with undefined contents. @param {number} bytes */
export function allocate(bytes: number): Storage;
/** What `scope()` returns: disposing of it frees what was made since. */
export class Scope {
    /** @type {Tensor[]} */
    tensors: Tensor[];
    /** Their number at which those that were disposed of are forgotten: a loop may make and dispose of any number of them. */
    limit: number;
    /** @type {Set<Tensor>} */
    kept: Set<Tensor>;
    /** @param {Tensor} tensor */
    add(tensor: Tensor): void;
    /**
     * Keeps tensors beyond the end of this scope: they belong to the scope around it.
     * @template T
     * @param {T} value a tensor, or arrays and plain objects of them
     * @returns {T}
     */
    keep<T>(value: T): T;
    /** Ends the scope, and any that was opened in it and not ended. */
    [Symbol.dispose](): void;
}
/** The class of tensors, set by its module: a storage does not import it. @type {{ class?: new (...args: any[]) => Tensor }} */
export const tensorClass: {
    class?: new (...args: any[]) => Tensor;
};
export type Allocation = import("./runtime.mjs").Allocation;
export type Tensor = import("./tensor.mjs").Tensor;
