// Chooses how much work a dispatch gets on a device: by a measured table where there is one for the device, else by its properties.

import { HOPPER_TUNING, ptxAttention, ptxGroup, ptxPlan, permutedPlan } from '../hopper/tables.mjs';

/** @typedef {import('../matmul/types.mjs').Asked} Asked */
/** @typedef {import('../matmul/types.mjs').GemmTilingName} GemmTilingName */
/** @typedef {import('../matmul/types.mjs').PtxChoice} PtxChoice */
/** @typedef {import('../matmul/types.mjs').Shaped} Shaped */
/** @typedef {import('../matmul/types.mjs').SpirvChoice} SpirvChoice */

/**
 * The choices that kernels make by device. They affect speed only; the results are correct with any values.
 * @typedef {object} Tuning
 * @property {string} name of the table
 * @property {number} units workgroups that fill the device about once
 * @property {number} residentGroups workgroups that fill the device where each processes several items
 * @property {number} normBlocks most workgroups of a normalization's backward pass, each of which writes a row of sums
 * @property {{ kept: number, groups: number }} crossEntropy over 16-bit rows. `kept`: most vectors of a row for which exponentials are kept instead
 *   of computed twice; `groups`: most workgroups
 * @property {number} flatThreads workgroup size of kernels that stride over elements
 * @property {(problem: Asked) => SpirvChoice | undefined} [matmulPlan] the plan of a matrix product, or undefined where none was measured near it
 * @property {(problem: Shaped) => PtxChoice | undefined} [ptxPlan] its plan in PTX, or undefined where none is known to be faster than SPIR-V
 * @property {(problem: Shaped) => PtxChoice | undefined} [permutedPlan] its plan with B permuted, or undefined where none
 *   is known to be faster than with B as it is
 * @property {(problem: Shaped & { beta: number }) => { tiling: GemmTilingName, rate: number }[]} [ptxGroup] tilings in PTX by which
 *   one launch computes several products like this one, each with its rate in whole waves, in TFLOP/s. The first is that of one product alone.
 *   None where a launch for each is faster
 * @property {(form: import('../hopper/attention.mjs').AttentionForm, sizes: { tokens: number, heads: number, kvHeads?: number, batch: number }) =>
 *   import('../hopper/tilings.mjs').AttentionTilingName | undefined} [ptxAttention] the tiling of attention in PTX, or undefined where none is known to be faster
 */

/** The values of `VkPhysicalDeviceType` that make a difference. */
export const DEVICE_TYPE = { integrated: 1, cpu: 4 };

/** Workgroups in x that every device takes. */
const MAX_GROUPS = 65_535;

/** Hopper with at least the matrix units and the memory of an H100, for which the kernels in PTX are made. */
const HOPPER = /\bG?H[12]00\b/;

/** Tables by the device's name, as Vulkan reports it. @type {[RegExp, Tuning][]} */
const DEVICES = [[HOPPER, HOPPER_TUNING]];

/**
 * The tuning of a device without a table, from what Vulkan reports. Vulkan does not report the number of cores: this assumes 24 for an
 * integrated GPU and 96 for any other, and scales the numbers measured on an H200. Shared memory, subgroups and the largest workgroup count
 * later, when a tile that fits them is chosen.
 * @param {import('../../index.js').DeviceInfo} info
 * @returns {Tuning}
 */
export function genericTuning({ deviceType, maxComputeWorkGroupInvocations }) {
  if (deviceType === DEVICE_TYPE.cpu) {
    // A CPU has few threads, each of which runs one small workgroup at a time.
    const flatThreads = Math.min(64, maxComputeWorkGroupInvocations);
    return {
      name: 'cpu',
      units: 4,
      residentGroups: MAX_GROUPS,
      normBlocks: 16,
      crossEntropy: { kept: 12288, groups: MAX_GROUPS },
      flatThreads,
    };
  }
  const units = deviceType === DEVICE_TYPE.integrated ? 24 : 96;
  return {
    name: 'generic',
    units,
    residentGroups: 8 * units,
    normBlocks: 6 * units,
    crossEntropy: { kept: 12288, groups: 4 * units },
    flatThreads: Math.min(256, maxComputeWorkGroupInvocations),
  };
}

/**
 * The tuning of a device: its table, else `genericTuning`.
 * @param {import('../../index.js').DeviceInfo} info
 * @returns {Tuning}
 */
export function tuningOf(info) {
  const measured = DEVICES.find(([name]) => name.test(info.deviceName))?.[1];
  const tuning = measured
    ? { ...measured, flatThreads: Math.min(measured.flatThreads, info.maxComputeWorkGroupInvocations) }
    : genericTuning(info);
  if (info.hasPtx && HOPPER.test(info.deviceName)) Object.assign(tuning, { ptxPlan, permutedPlan, ptxGroup, ptxAttention });
  return tuning;
}
