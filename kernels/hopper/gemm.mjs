// Matrix products in PTX for Hopper's `wgmma`: D = act(alpha · op(A) op(B) + beta · C + bias) + residual, halves summed in f32.
//
// One warpgroup of a block fetches; the others multiply. The fetching one keeps stages of shared memory full. With `ld` it loads the next
// `ahead` stages to registers and stores them to shared memory; with `cp` it copies by cp.async; with `tma` the copy engine does. Each
// stage has a named barrier per multiplying warpgroup for "full" and one for "empty". Named barriers take no shared memory, and the stages
// leave none. Only the arrival of TMA copies needs an mbarrier in shared memory. With `direct`, A goes from memory to the registers
// that `wgmma` reads and takes no shared memory.
//
// Blocks are persistent: block b computes work items b, b + blocks, …, and fetches the next item's first stages while it stores the last
// one's results. The items are first the whole tiles, in groups of eight rows of tiles as in the SPIR-V kernels, then the parts of tiles whose
// depth is split. Sums of parts go to a workspace, and `matmul_reduce_tail` adds them in a fixed order. A result does not depend on which
// block computes it.
//
// One launch may compute a group of products. Their tiles are numbered one product after the other, and only tiles of the last product are
// split. Weight gradients are grouped: alone each has too few tiles to fill the device, together they do.
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
