// Made by `npm run types` from nn/; do not edit.
/**
 * A tensor that a module learns: a leaf that requires a gradient. An optimizer may move it into memory that it shares with
 * others.
 */
export class Parameter extends Tensor {
    /** @param {Tensor} data f32, f16 or bf16; its memory becomes the parameter's */
    constructor(data: Tensor);
    /** Where an optimizer wants the gradient. @type {Tensor | undefined} */
    gradientPlace: Tensor | undefined;
    /** The optimizer's memory that it lies in. @type {import('../optim/bucket.mjs').Bucket | undefined} */
    bucket: import("../optim/bucket.mjs").Bucket | undefined;
    /**
     * The 16-bit copy of it that its optimizer keeps, as an operand of a product.
     * @param {'f16' | 'bf16'} dtype
     * @returns {{ storage: import('../storage.mjs').Storage, layout: import('../layout.mjs').Layout } | undefined}
     */
    halfCopy(dtype: "f16" | "bf16"): {
        storage: import("../storage.mjs").Storage;
        layout: import("../layout.mjs").Layout;
    } | undefined;
    /**
     * Moves the elements to other memory.
     * @param {Tensor} place dense, of this shape
     */
    moveTo(place: Tensor): void;
}
/**
 * Options of `loadStateDict`.
 * @typedef {object} LoadOptions
 * @property {boolean} [strict] whether it throws where a name is missing or unknown; true when left out
 */
/**
 * The base of all modules. Parameters, modules and arrays of them that are set as properties are found by their names, which
 * are those of PyTorch's `state_dict`.
 */
export class Module {
    /** Whether dropout drops: set by `train` and `eval`. */
    get training(): boolean;
    /**
     * What the module computes.
     * @param {...any} _inputs
     * @returns {any}
     */
    forward(..._inputs: any[]): any;
    /** The modules set on this one, by property. @returns {Generator<[name: string, module: Module]>} */
    namedChildren(): Generator<[name: string, module: Module]>;
    /** This module and all below it. @returns {Generator<Module>} */
    modules(): Generator<Module>;
    /**
     * Tensors of the state: parameters, and other tensors that are set as properties (buffers). One that stands in several
     * places is named at each.
     * @param {string} [prefix]
     * @returns {Generator<[name: string, tensor: Tensor]>}
     */
    namedTensors(prefix?: string): Generator<[name: string, tensor: Tensor]>;
    /** Parameters by name, each once. @returns {Generator<[name: string, parameter: Parameter]>} */
    namedParameters(): Generator<[name: string, parameter: Parameter]>;
    /** Parameters, each once. */
    parameters(): Parameter[];
    /** Modules train (`eval` ends that). @param {boolean} [training] @returns {this} */
    train(training?: boolean): this;
    /** Modules evaluate: nothing is dropped, and normalizations of batches take running means. @returns {this} */
    eval(): this;
    /** Has parameters take part in training or not. @param {boolean} [requires] @returns {this} */
    requiresGrad_(requires?: boolean): this;
    /** Forgets the gradients of all parameters. */
    zeroGrad(): void;
    /** Tensors by name, as PyTorch names them; they see the module's memory. @returns {Record<string, Tensor>} */
    stateDict(): Record<string, Tensor>;
    /**
     * Copies tensors into the module's. All or nothing: names, shapes and types are checked first.
     * @param {Record<string, Tensor>} state
     * @param {LoadOptions} [options]
     */
    loadStateDict(state: Record<string, Tensor>, options?: LoadOptions): void;
    /** Frees all tensors of the module. */
    dispose(): void;
    /** The module and those below it by name, a line each. @returns {string} */
    toString(): string;
    /** What `toString` says of a module without children. */
    describe(): string;
    [Symbol.dispose](): void;
    #private;
}
/** A list of modules, named by their indices. */
export class ModuleList extends Module {
    /** @param {Iterable<Module>} [modules] */
    constructor(modules?: Iterable<Module>);
    length: number;
    /** Adds a module at the end. @param {Module} module */
    push(module: Module): this;
    /** The module of an index (negative: from the end). @param {number} index @returns {any} */
    at(index: number): any;
    /** @returns {Generator<any>} */
    [Symbol.iterator](): Generator<any>;
}
/** Modules one after another. */
export class Sequential extends ModuleList {
    /** @param {...Module} modules */
    constructor(...modules: Module[]);
    /** @param {Tensor} x @returns {Tensor} */
    forward(x: Tensor): Tensor;
}
/**
 * Options of `loadStateDict`.
 */
export type LoadOptions = {
    /**
     * whether it throws where a name is missing or unknown; true when left out
     */
    strict?: boolean | undefined;
};
import { Tensor } from '../tensor.mjs';
