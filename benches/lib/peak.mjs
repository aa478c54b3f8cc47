/** Measures the device's matrix rate, which the trainer's own rate is compared with. */

import { createKernels } from '../../kernels/index.mjs';

/** Side of the square product on GPUs: large enough that a partial last wave of tiles does not matter. */
const SIDE = 4096;
/** The same on CPU devices, where the larger one would take minutes. */
const CPU_SIDE = 512;

/**
 * Times a large square product with GPU timestamps.
 * @param {any} vk the native module
 * @param {import('../../packages/lm/src/train/settings.mjs').Precision} precision
 * @returns {number} floating-point operations a second; each multiply-add counts as 2, whatever the kernel does inside
 */
export function measurePeak(vk, precision) {
  const kernels = createKernels(vk);
  const side = kernels.context.isCpu ? CPU_SIDE : SIDE;
  const type = precision === 'f16' || precision === 'bf16' ? precision : 'f32';
  const bytes = side * side * (type === 'f32' ? 4 : 2);
  const [a, b] = [vk.createBuffer(bytes, 0), vk.createBuffer(bytes, 0)];
  const c = vk.createBuffer(side * side * 4, 0);
  try {
    // Small numbers of both signs: zeros would draw less power and run at a higher clock.
    const noise = new Uint16Array(bytes / 2);
    for (let i = 0, x = 1; i < noise.length; i++) {
      x = (Math.imul(x, 1664525) + 1013904223) >>> 0;
      noise[i] = ((x >>> 16) & 0x83ff) | 0x3800;
    }
    vk.uploadBuffer(a, noise);
    vk.uploadBuffer(b, noise);
    const dispatches = kernels.matmul({
      a,
      b,
      c,
      m: side,
      n: side,
      k: side,
      transB: true,
      aType: type,
      bType: type,
      precision,
    });
    let microseconds = 0;
    for (const { pipeline, buffers, groups, push } of dispatches) {
      microseconds += vk.gpuTime(pipeline, buffers, ...groups, push, kernels.context.isCpu ? 1 : 20, kernels.context.isCpu ? 1 : 5);
    }
    return (2 * side ** 3) / (microseconds * 1e-6);
  } finally {
    for (const buffer of [a, b, c]) vk.destroyBuffer(buffer);
    kernels.context.releaseWorkspaces();
  }
}
