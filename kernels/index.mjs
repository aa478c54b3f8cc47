// All kernels by name: typed arguments in, dispatch records out.
//
//   import vk from 'helios-vk';
//   import { createKernels, pack } from 'helios-vk/kernels';
//   const kernels = createKernels(vk);
//   const { packed, count } = pack(
//     kernels.rmsNormForward({ x, y, weight, stats, rows: 512, columns: 1024 }),
//     kernels.gluForward({ gateUp, y: hidden, rows: 512, columns: 2752 }),
//   );
//   vk.batchExecuteAll(packed, count);
//
// Conventions
//   Tensors   A tensor argument is a buffer handle, or { buffer, offset } with the offset in elements. Tensors are dense and row-major unless a
//             stride is named, and have at most 0xf0000000 elements.
//   Types     `type` says the storage: f32, f16 or bf16. Arithmetic is in f32. 16-bit tensors need even sizes and offsets. Sizes and offsets that
//             are multiples of four take the fast path.
//   beta      scales what the output held before, which is not read if beta is 0.
//   Results   The same inputs give the same bits.
//   Errors    A kernel throws before it makes a dispatch: a TypeError for an argument of the wrong type, a RangeError for a value out of range, for a
//             tensor that exceeds its buffer, and for a result that overlaps an input. The message names the kernel and the argument.
//
// A family is a function that takes a KernelContext and returns kernel functions. `createKernels` merges the families.

import { activationKernels } from './activation.mjs';
import { attentionKernels } from './attention.mjs';
import { KernelContext } from './base.mjs';
import { attendKernels } from './decode-attend.mjs';
import { convolutionKernels } from './convolution.mjs';
import { decodeLayerKernels } from './decode-layer.mjs';
import { decodeKernels } from './decode.mjs';
import { elementwiseKernels } from './elementwise.mjs';
import { embeddingKernels } from './embedding.mjs';
import { indexingKernels } from './indexing.mjs';
import { matmulKernels } from './matmul.mjs';
import { normalizationKernels } from './normalization.mjs';
import { optimizerKernels } from './optimizer.mjs';
import { poolingKernels } from './pooling.mjs';
import { randomKernels } from './random.mjs';
import { recurrentKernels } from './recurrent.mjs';
import { reductionKernels } from './reduction.mjs';
import { samplingKernels } from './sampling.mjs';
import { scanKernels } from './scan.mjs';
import { softmaxKernels } from './softmax.mjs';
import { sortingKernels } from './sorting.mjs';

export { KernelContext, Recorder, pack } from './base.mjs';
export { bf16Bits, bf16Value, f16Bits, f16Value } from './half.mjs';
export { dequantizeQ8, q8FromBlocks, q8ToBlocks, quantizeQ8 } from './quant.mjs';
export { ropeTable } from './embedding.mjs';
export { STATE, STATE_WORDS, optimizerState } from './optimizer.mjs';
export {
  SAMPLING_HISTORY_WORDS,
  SAMPLING_SETTINGS_WORDS,
  SAMPLING_STATE,
  SAMPLING_STATE_WORDS,
  samplingHistory,
  samplingSettings,
  samplingState,
} from './sampling.mjs';
export { SLOT, Template } from './template.mjs';

/** A buffer's handle, or `{ buffer, offset }` with the offset in elements. @typedef {import('./base.mjs').Tensor} Tensor */
/** Storage type of a tensor; all arithmetic is in f32. @typedef {import('./base.mjs').DType} DType */
/** The options of `createKernels`. @typedef {import('./base.mjs').KernelOptions} KernelOptions */
/** One dispatch, ready for `batchDispatch` or for `pack`. @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').Dispatches} Dispatches one, or several where a tensor is larger than one binding */
/** The kernels by name, as `createKernels` returns them. @typedef {ReturnType<typeof createKernels>} Kernels */

/**
 * What `createKernels` returns beside the kernels.
 * @typedef {object} Base
 * @property {KernelContext} context the device, with its pipelines and workspaces
 */

/**
 * Creates the kernels for the device of a native module. Pipelines are created at first use and kept, so one object serves a whole program.
 *
 * A kernel throws before it makes a dispatch: a TypeError for an argument of the wrong type, a RangeError for a value out of range, for a tensor
 * that exceeds its buffer, and for a result that overlaps an input.
 * @param {import('./base.mjs').NativeModule} vk the native module (`require('helios-vk')`)
 * @param {KernelOptions} [options]
 * @returns {Base & ReturnType<typeof matmulKernels> & ReturnType<typeof attentionKernels>
 *   & ReturnType<typeof normalizationKernels> & ReturnType<typeof activationKernels> & ReturnType<typeof softmaxKernels>
 *   & ReturnType<typeof embeddingKernels> & ReturnType<typeof elementwiseKernels> & ReturnType<typeof reductionKernels>
 *   & ReturnType<typeof optimizerKernels> & ReturnType<typeof randomKernels>
 *   & ReturnType<typeof indexingKernels> & ReturnType<typeof decodeKernels>
 *   & ReturnType<typeof attendKernels> & ReturnType<typeof decodeLayerKernels> & ReturnType<typeof samplingKernels>
 *   & ReturnType<typeof recurrentKernels> & ReturnType<typeof scanKernels> & ReturnType<typeof sortingKernels>
 *   & ReturnType<typeof convolutionKernels> & ReturnType<typeof poolingKernels>}
 */
export function createKernels(vk, options) {
  const context = new KernelContext(vk, options);
  return {
    context,
    ...matmulKernels(context),
    ...attentionKernels(context),
    ...normalizationKernels(context),
    ...activationKernels(context),
    ...softmaxKernels(context),
    ...embeddingKernels(context),
    ...elementwiseKernels(context),
    ...recurrentKernels(context),
    ...reductionKernels(context),
    ...optimizerKernels(context),
    ...randomKernels(context),
    ...indexingKernels(context),
    ...decodeKernels(context),
    ...attendKernels(context),
    ...decodeLayerKernels(context),
    ...samplingKernels(context),
    ...scanKernels(context),
    ...sortingKernels(context),
    ...convolutionKernels(context),
    ...poolingKernels(context),
  };
}
