/**
 * Loaded into an existing trainer's process by `node --import`: mends its shaders before the addon gets them (mend.mjs),
 * and on a CPU device makes the addon look like a GPU of the vendor that the trainer requires, without the features that
 * its other kernels need. New buffers are filled with zeros: the version of 2026-02-27 sums squares over a gradient's whole
 * buffer, which is larger than the gradient, and nothing has written the rest.
 */
import Module from 'node:module';
import { withBarriers, withStrides, withUniqueTypes } from './mend.mjs';

const VENDOR = 0x10de;
const CPU_DEVICE = 4;

const extensions = /** @type {any} */ (Module)._extensions;
const load = extensions['.node'];
extensions['.node'] = (/** @type {any} */ module, /** @type {string} */ path) => {
  load(module, path);
  const vk = module.exports;
  if (typeof vk.initDevice !== 'function') return;
  // A native module's properties need not be enumerable.
  const mended = Object.fromEntries(Object.getOwnPropertyNames(vk).map((name) => [name, vk[name]]));
  mended.initDevice = () => {
    const info = vk.initDevice();
    if (info.deviceType !== CPU_DEVICE) return info;
    return { ...info, vendorId: VENDOR, coopMatSupported: false, coopMat2Supported: false, hasDGC: false };
  };
  mended.createPipeline = (/** @type {Uint32Array} */ spirv, /** @type {any[]} */ ...rest) =>
    vk.createPipeline(withUniqueTypes(withStrides(withBarriers(spirv))), ...rest);
  mended.createBuffer = (/** @type {number} */ bytes, /** @type {any[]} */ ...rest) => {
    const buffer = vk.createBuffer(bytes, ...rest);
    // The trainer's own addon has no fills.
    if (vk.fillBuffer !== undefined) vk.fillBuffer(buffer, bytes - (bytes % 4), 0);
    return buffer;
  };
  module.exports = mended;
};
