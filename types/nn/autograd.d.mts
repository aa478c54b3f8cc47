// Made by `npm run types` from nn/; do not edit.
/**
 * Runs `fn` without leaving nodes: nothing made in it has a gradient.
 * @template T
 * @param {() => T} fn synchronous
 * @returns {T}
 */
export function noGrad<T>(fn: () => T): T;
/**
 * Runs `fn` with nodes left again: what is computed once more within a backward pass.
 * @template T
 * @param {() => T} fn
 * @returns {T}
 */
export function withGrad<T>(fn: () => T): T;
/**
 * Gradients of leaves, by going over the graph.
 * @param {Tensor} root @param {Tensor | undefined} seed @param {boolean} retain
 * @param {(target: Node | Tensor, gradient: Tensor) => void} deliver called with the gradient of each leaf, and of each node in `only`
 * @param {Set<Node | Tensor>} [only] nodes and leaves that gradients are wanted of; all when left out
 * @param {number} [from] nodes numbered below are not gone through: they count as leaves
 */
export function walk(root: Tensor, seed: Tensor | undefined, retain: boolean, deliver: (target: Node | Tensor, gradient: Tensor) => void, only?: Set<Node | Tensor>, from?: number): void;
/**
 * What a node depends on: nodes, each before what it was made from, and leaves.
 * @param {Node | Tensor} start @param {number} from nodes numbered below count as leaves
 */
export function reach(start: Node | Tensor, from: number): {
    nodes: Node[];
    leaves: Set<Tensor | Node>;
};
/**
 * Options of `backward` and `grad`.
 * @typedef {object} BackwardOptions
 * @property {Tensor} [gradient] the gradient to begin with, of the tensor's shape; needed where that is not one number
 * @property {boolean} [retain] keeps what the forward pass saved, for another call (PyTorch's `retain_graph`); false when left out
 */
/**
 * Adds the gradients of `root` to the `grad` of every leaf that it depends on (PyTorch's rule), and frees what the forward
 * pass saved.
 * @param {Tensor} root one number, unless a gradient is given
 * @param {BackwardOptions} [options]
 */
export function backward(root: Tensor, options?: BackwardOptions): void;
/**
 * The gradient of a leaf becomes its own tensor, or is added to it.
 * @param {Tensor | undefined} before @param {Tensor} gradient
 * @returns {Tensor}
 */
export function accumulated(before: Tensor | undefined, gradient: Tensor): Tensor;
/**
 * Gradients of one number by tensors, returned and not accumulated.
 * @param {Tensor} output
 * @param {Tensor[]} inputs leaves or results on the way to `output`
 * @param {BackwardOptions} [options]
 * @returns {Tensor[]}
 */
export function grad(output: Tensor, inputs: Tensor[], options?: BackwardOptions): Tensor[];
/** Whether operations leave nodes. */
export function isGradEnabled(): boolean;
/** The number of the next node. */
export function nextOrder(): number;
/** A value saved for the backward pass, and its storage's version then. @typedef {{ storage: Storage, layout: Layout, version: number }} SavedValue */
/** One operation of the graph. */
export class Node {
    /**
     * @param {Op} op @param {any} attributes @param {Tensor[]} inputs
     * @param {Storage[]} storages of inputs, then outputs @param {Layout[]} outputs
     * @param {string | undefined} [origin] the line of the user's program, where it is known already
     */
    constructor(op: Op, attributes: any, inputs: Tensor[], storages: Storage[], outputs: Layout[], origin?: string | undefined);
    op: import("./ops/registry.mjs").Op;
    attributes: any;
    /** Of all nodes made so far: inputs come before what is made from them. */
    order: number;
    /** The line of the user's program, where a function is being compiled. */
    origin: string | undefined;
    layouts: import("./layout.mjs").Layout[];
    /** Where gradients go: the node that made an input, or the leaf. @type {(Node | Tensor | undefined)[]} */
    edges: (Node | Tensor | undefined)[];
    /** @type {(SavedValue | undefined)[] | undefined} */
    inputs: (SavedValue | undefined)[] | undefined;
    /** @type {(SavedValue | undefined)[]} */
    outputs: (SavedValue | undefined)[];
    /** Which inputs' gradients are needed. */
    needs(): boolean[];
    /**
     * The inputs' gradients.
     * @param {Tensor} dy
     */
    backward(dy: Tensor): (Tensor | undefined)[];
    /** Frees what was saved. */
    free(): void;
}
/**
 * Options of `backward` and `grad`.
 */
export type BackwardOptions = {
    /**
     * the gradient to begin with, of the tensor's shape; needed where that is not one number
     */
    gradient?: Tensor | undefined;
    /**
     * keeps what the forward pass saved, for another call (PyTorch's `retain_graph`); false when left out
     */
    retain?: boolean | undefined;
};
export type Op = import("./ops/registry.mjs").Op;
export type Layout = import("./layout.mjs").Layout;
export type Storage = import("./storage.mjs").Storage;
/**
 * A value saved for the backward pass, and its storage's version then.
 */
export type SavedValue = {
    storage: Storage;
    layout: Layout;
    version: number;
};
import { Tensor } from './tensor.mjs';
