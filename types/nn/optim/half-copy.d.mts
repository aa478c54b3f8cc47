// Made by `npm run types` from nn/; do not edit.
/** @typedef {import('../../kernels/base.mjs').Dispatch} Dispatch */
/** A copy of parameters, which is behind them where they have another version. */
export class ParameterCopy {
    /** @param {Storage} source `count` f32 elements @param {number} count even @param {'f16' | 'bf16'} dtype @param {string} name for reports */
    constructor(source: Storage, count: number, dtype: "f16" | "bf16", name: string);
    source: Storage;
    dtype: "f16" | "bf16";
    storage: Storage;
    /** The source's version that was copied. */
    version: number;
    /** Whether it holds what the source holds. */
    get fresh(): boolean;
    /** Has it hold what the source holds; before the function that is being compiled, if one is. */
    refresh(): void;
    /** Appends the dispatches that make it anew. */
    write(): void;
    /**
     * Has it hold what the source holds where it is to be read now.
     * @returns {boolean} false where it cannot: the function that is being compiled has changed the source
     */
    ready(): boolean;
    /** The source was changed, and this with it. */
    follow(): void;
    dispose(): void;
}
/** The elements in their order. */
export class HalfCopy extends ParameterCopy {
    /** @param {Storage} source `count` f32 elements @param {number} count even @param {'f16' | 'bf16'} dtype */
    constructor(source: Storage, count: number, dtype: "f16" | "bf16");
    count: number;
    convert: Template;
    /** The same for products by the copy engine, once a compiled function takes it. @type {ShuffledCopy | undefined} */
    shuffled: ShuffledCopy | undefined;
    /** The copy for products by the copy engine, made at first use. */
    shuffledCopy(): ShuffledCopy;
}
/**
 * The elements in the order in which matrix products take them with `bShuffled`: in each 32 position p holds element `columnOf(p)`
 * (kernels/ptx/layout.mjs). Whatever writes the copy in natural order writes this one as well, or it is made anew of that.
 */
export class ShuffledCopy extends ParameterCopy {
    /** @param {HalfCopy} half of a multiple of 32 elements, which buckets have */
    constructor(half: HalfCopy);
    half: HalfCopy;
    order: Template;
}
export type Dispatch = import("../../kernels/base.mjs").Dispatch;
import { Storage } from '../storage.mjs';
import { Template } from '../../kernels/template.mjs';
