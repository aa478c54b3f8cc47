// Made by `npm run types` from kernels/; do not edit.
/** A buffer's handle, or `{ buffer, offset }` with the offset in elements. @typedef {import('./base.mjs').Tensor} Tensor */
/** Storage type of a tensor; all arithmetic is in f32. @typedef {import('./base.mjs').DType} DType */
/** What `createKernels` takes beside the native module. @typedef {import('./base.mjs').KernelOptions} KernelOptions */
/** One dispatch, ready for `batchDispatch` or for `pack`. @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').Dispatches} Dispatches one, or several where a tensor is larger than one binding */
/** The kernels by name, as `createKernels` returns them. @typedef {ReturnType<typeof createKernels>} Kernels */
/**
 * What comes with the kernels.
 * @typedef {object} Base
 * @property {KernelContext} context the device as the kernels see it
 */
/**
 * The kernels on the device of a native module. Pipelines are made at first use and kept; one object serves a whole
 * program.
 * @param {import('./base.mjs').NativeModule} vk the native module (`require('helios-vk')`)
 * @param {KernelOptions} [options]
 * @returns {Base & ReturnType<typeof matmulKernels> & ReturnType<typeof attentionKernels>
 *   & ReturnType<typeof normalizationKernels> & ReturnType<typeof activationKernels> & ReturnType<typeof softmaxKernels>
 *   & ReturnType<typeof embeddingKernels> & ReturnType<typeof elementwiseKernels> & ReturnType<typeof reductionKernels>
 *   & ReturnType<typeof optimizerKernels> & ReturnType<typeof randomKernels>
 *   & ReturnType<typeof indexingKernels>}
 */
export function createKernels(vk: import("./base.mjs").NativeModule, options?: KernelOptions): Base & ReturnType<typeof matmulKernels> & ReturnType<typeof attentionKernels> & ReturnType<typeof normalizationKernels> & ReturnType<typeof activationKernels> & ReturnType<typeof softmaxKernels> & ReturnType<typeof embeddingKernels> & ReturnType<typeof elementwiseKernels> & ReturnType<typeof reductionKernels> & ReturnType<typeof optimizerKernels> & ReturnType<typeof randomKernels> & ReturnType<typeof indexingKernels>;
export { ropeTable } from "./embedding.mjs";
/**
 * A buffer's handle, or `{ buffer, offset }` with the offset in elements.
 */
export type Tensor = import("./base.mjs").Tensor;
/**
 * Storage type of a tensor; all arithmetic is in f32.
 */
export type DType = import("./base.mjs").DType;
/**
 * What `createKernels` takes beside the native module.
 */
export type KernelOptions = import("./base.mjs").KernelOptions;
/**
 * One dispatch, ready for `batchDispatch` or for `pack`.
 */
export type Dispatch = import("./base.mjs").Dispatch;
/**
 * one, or several where a tensor is larger than one binding
 */
export type Dispatches = import("./base.mjs").Dispatches;
/**
 * The kernels by name, as `createKernels` returns them.
 */
export type Kernels = ReturnType<typeof createKernels>;
/**
 * What comes with the kernels.
 */
export type Base = {
    /**
     * the device as the kernels see it
     */
    context: KernelContext;
};
import { matmulKernels } from './matmul.mjs';
import { attentionKernels } from './attention.mjs';
import { normalizationKernels } from './normalization.mjs';
import { activationKernels } from './activation.mjs';
import { softmaxKernels } from './softmax.mjs';
import { embeddingKernels } from './embedding.mjs';
import { elementwiseKernels } from './elementwise.mjs';
import { reductionKernels } from './reduction.mjs';
import { optimizerKernels } from './optimizer.mjs';
import { randomKernels } from './random.mjs';
import { indexingKernels } from './indexing.mjs';
import { KernelContext } from './base.mjs';
export { KernelContext, Recorder, pack } from "./base.mjs";
export { bf16Bits, bf16Value, f16Bits, f16Value } from "./half.mjs";
export { STATE, STATE_WORDS, optimizerState } from "./optimizer.mjs";
export { SLOT, Template } from "./template.mjs";
