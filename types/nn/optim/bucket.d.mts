// Made by `npm run types` from nn/; do not edit.
/**
 * Parameters in buckets, in order, each whole. A pure function.
 * @param {number[]} sizes elements @param {number} most elements of a bucket, a multiple of `multiple`; one parameter may be larger
 * @param {number} [multiple] what the elements of a bucket are a multiple of
 * @returns {{ members: { index: number, offset: number }[], count: number }[]}
 */
export function arrange(sizes: number[], most: number, multiple?: number): {
    members: {
        index: number;
        offset: number;
    }[];
    count: number;
}[];
/**
 * Moves parameters into buckets.
 * @param {Parameter[]} parameters f32 @param {number} bytes of the largest buffer that the device binds as a whole
 * @param {number} [multiple] what the elements of a bucket are a multiple of
 * @param {boolean} [exportable] as of a bucket
 */
export function bucketsOf(parameters: Parameter[], bytes: number, multiple?: number, exportable?: boolean): Bucket[];
/** @typedef {import('../modules/module.mjs').Parameter} Parameter */
/** Parameters begin at multiples of this many elements: 256 bytes, what any device lets a range begin at. */
export const ALIGNMENT: 64;
/**
 * Elements of a bucket, one after another.
 * @typedef {object} Run
 * @property {number} offset the first, in elements from the bucket's start
 * @property {number} count how many
 */
/** The memory of some parameters. What pads them is 0 everywhere, and stays so. */
export class Bucket {
    /**
     * @param {Parameter[]} parameters @param {number[]} offsets @param {number} count elements
     * @param {boolean} [exportable] whether parameters and gradients lie in memory that NCCL gets at
     */
    constructor(parameters: Parameter[], offsets: number[], count: number, exportable?: boolean);
    parameters: import("../modules/module.mjs").Parameter[];
    offsets: number[];
    count: number;
    /** Tensors of all elements. */
    values: Tensor;
    gradients: Tensor;
    /** Whether the optimizer keeps a 16-bit copy of the parameters, once somebody asks for one. */
    keepsHalf: boolean;
    /** @type {HalfCopy | undefined} */
    half: HalfCopy | undefined;
    /** A tensor of the bucket's size, or of another one, of zeros. @param {string} name for reports */
    zeros(name: string, count?: number): Tensor;
    /** @param {Tensor} flat @param {readonly number[]} shape @param {number} offset */
    view(flat: Tensor, shape: readonly number[], offset: number): Tensor;
    /** Runs of elements whose parameters have a gradient: all, where every one has. @returns {{ offset: number, count: number }[]} */
    ready(): {
        offset: number;
        count: number;
    }[];
    /**
     * The 16-bit copy, holding what the parameters hold.
     * @param {'f16' | 'bf16'} dtype
     * @returns {HalfCopy | undefined} nothing where the optimizer keeps none, or one of the other type, or where the function that is
     *   being compiled has changed parameters by other means
     */
    halfCopy(dtype: "f16" | "bf16"): HalfCopy | undefined;
    /** Notes that the parameters have changed, and with `copied` those 16-bit copies with them that were up to date. */
    changed(copied?: boolean): void;
    /** Frees the memory; the parameters keep theirs. */
    dispose(): void;
    /** A part of one of the bucket's tensors. @param {Tensor} flat @param {Run} run */
    part(flat: Tensor, { offset, count }: Run): Tensor;
}
/** @param {number} word @param {Tensor} state */
export function stateWord(state: Tensor, word: number): Tensor;
/** The layout of a state. @param {number} words */
export function stateLayout(words: number): import("../layout.mjs").Layout;
export type Parameter = import("../modules/module.mjs").Parameter;
/**
 * Elements of a bucket, one after another.
 */
export type Run = {
    /**
     * the first, in elements from the bucket's start
     */
    offset: number;
    /**
     * how many
     */
    count: number;
};
import { Tensor } from '../tensor.mjs';
import { HalfCopy } from './half-copy.mjs';
