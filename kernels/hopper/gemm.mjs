// Matrix products in PTX for Hopper's `wgmma`: D = act(alpha · op(A) op(B) + beta · C + bias) + residual, halves summed in f32.
//
// A block has warpgroups that multiply and one that fetches. The fetching one keeps stages of shared memory full: with
// `ld` it holds the next `ahead` stages in registers, with `cp` it copies by cp.async, with `tma` it has the copy engine
// bring them. Each stage has a named barrier for each multiplying warpgroup that says "full", and one that says "empty": they take
// no shared memory, of which the stages leave none. That a stage is full of copies is said by a barrier in shared memory. With `direct`,
// A goes from memory to the registers that `wgmma` reads and takes no shared memory.
//
// Blocks are persistent: a block takes work items b, b + blocks, …, and fetches the next one's first stages while it stores
// the last one's results. Items are tiles in groups of eight rows of tiles, as in the SPIR-V kernels, then the parts of
// those tiles whose depth is split: their sums go to a workspace, which `matmul_reduce_tail` adds in order. Which block
// computes what has no influence on a result.
//
// A launch may compute a group of products: their tiles follow each other as if they were of one, and only tiles of the last product
// are split. Weight gradients, each of which has too few tiles for the device, fill it together.
//
// A product can end in SwiGLU or in its gradient (see `glu.mjs`).

import { gemmFault } from './form.mjs';
import { Writer } from './writer.mjs';

/**
 * The text of a kernel, an entry of a module (see `moduleText`).
 * @param {string} name @param {import('./form.mjs').GemmTiling} tiling @param {import('./form.mjs').GemmForm} form
 */
export function gemm(name, tiling, form) {
  const fault = gemmFault(tiling, form);
  if (fault) throw new RangeError(`gemm: ${fault}`);
  return new Writer(name, tiling, form).text();
}
