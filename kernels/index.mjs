// The kernels by name: typed parameters in, dispatch records out.
//
//   import vk from 'helios-vk';
//   import { createKernels, pack } from 'helios-vk/kernels';
//   const kernels = createKernels(vk);
//   const { packed, count } = pack(kernels.fill({ y, count: 1024, value: 0 }), …);
//   vk.batchExecuteAll(packed, count);
//
// A family is a function of a KernelContext that returns an object of kernel functions; `createKernels` merges the
// families below into one object.

import { KernelContext, Recorder, pack } from './base.mjs';

export { KernelContext, Recorder, pack } from './base.mjs';

/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./base.mjs').DType} DType */
/** @typedef {import('./base.mjs').Dispatch} Dispatch */

const families = [];

/**
 * The kernels on the device of a native module. Pipelines are made at first use and kept; one object serves a whole
 * program.
 * @param {any} vk the native module (`require('helios-vk')`)
 */
export function createKernels(vk) {
  const context = new KernelContext(vk);
  return Object.assign({ context }, ...families.map((family) => family(context)));
}
