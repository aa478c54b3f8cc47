// Loaded into the trainer's process by `node --import`. It changes what the trainer's addon is given, so that ../validate.mjs sees the
// faults that are not the trainer's:
//
// - Shaders are mended (mend.mjs).
// - New buffers are filled with zeros. The version of 2026-02-27 sums squares over the whole buffer of a small gradient, of which the
//   tensor is only a part.
// - A CPU device is reported as one of the GPU vendor that the trainer demands, without the features that its other kernels use.

import { withBarriers, withStrides, withUniqueTypes } from './mend.mjs';
import { onAddonLoad } from './on-load.mjs';

/** PCI vendor id of NVIDIA. */
const VENDOR = 0x10de;
/** `VK_PHYSICAL_DEVICE_TYPE_CPU`. */
const CPU_DEVICE = 4;

onAddonLoad((vk) => {
  // By name, because a native module's properties need not be enumerable.
  const mended = Object.fromEntries(Object.getOwnPropertyNames(vk).map((name) => [name, vk[name]]));
  mended.initDevice = () => {
    const info = vk.initDevice();
    if (info.deviceType !== CPU_DEVICE) return info;
    return { ...info, vendorId: VENDOR, coopMatSupported: false, coopMat2Supported: false, hasDGC: false };
  };
  mended.createPipeline = (/** @type {Uint32Array} */ spirv, /** @type {unknown[]} */ ...rest) =>
    vk.createPipeline(withUniqueTypes(withStrides(withBarriers(spirv))), ...rest);
  mended.createBuffer = (/** @type {number} */ bytes, /** @type {unknown[]} */ ...rest) => {
    const buffer = vk.createBuffer(bytes, ...rest);
    // The C addon has no fills.
    if (vk.fillBuffer !== undefined) vk.fillBuffer(buffer, bytes - (bytes % 4), 0);
    return buffer;
  };
  return mended;
});
