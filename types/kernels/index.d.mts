// Made by `npm run types` from kernels/; do not edit.
/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./base.mjs').DType} DType */
/** @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {ReturnType<typeof createKernels>} Kernels */
/**
 * The kernels on the device of a native module. Pipelines are made at first use and kept; one object serves a whole
 * program.
 * @param {any} vk the native module (`require('helios-vk')`)
 * @returns {{ context: KernelContext } & ReturnType<typeof matmulKernels> & ReturnType<typeof attentionKernels>
 *   & ReturnType<typeof normalizationKernels> & ReturnType<typeof activationKernels> & ReturnType<typeof softmaxKernels>
 *   & ReturnType<typeof embeddingKernels> & ReturnType<typeof elementwiseKernels> & ReturnType<typeof reductionKernels>
 *   & ReturnType<typeof optimizerKernels>}
 */
export function createKernels(vk: any): {
    context: KernelContext;
} & ReturnType<typeof matmulKernels> & ReturnType<typeof attentionKernels> & ReturnType<typeof normalizationKernels> & ReturnType<typeof activationKernels> & ReturnType<typeof softmaxKernels> & ReturnType<typeof embeddingKernels> & ReturnType<typeof elementwiseKernels> & ReturnType<typeof reductionKernels> & ReturnType<typeof optimizerKernels>;
export { ropeTable } from "./embedding.mjs";
export type Tensor = import("./base.mjs").Tensor;
export type DType = import("./base.mjs").DType;
export type Dispatch = import("./base.mjs").Dispatch;
export type Kernels = ReturnType<typeof createKernels>;
import { KernelContext } from './base.mjs';
import { matmulKernels } from './matmul.mjs';
import { attentionKernels } from './attention.mjs';
import { normalizationKernels } from './normalization.mjs';
import { activationKernels } from './activation.mjs';
import { softmaxKernels } from './softmax.mjs';
import { embeddingKernels } from './embedding.mjs';
import { elementwiseKernels } from './elementwise.mjs';
import { reductionKernels } from './reduction.mjs';
import { optimizerKernels } from './optimizer.mjs';
export { KernelContext, Recorder, pack } from "./base.mjs";
export { STATE, STATE_WORDS, optimizerState } from "./optimizer.mjs";
