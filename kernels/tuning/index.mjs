// Chooses, by device, how much work a dispatch gets: from a measured table where the device has one, else from its properties.

import { HOPPER_TUNING, ptxAttention, ptxGroup, ptxPlan, permutedPlan } from '../hopper/tables.mjs';
import { storedPlans } from './stored.mjs';

/** @typedef {import('../matmul/types.mjs').Asked} Asked */
/** @typedef {import('../matmul/types.mjs').Choice} Choice */
/** @typedef {import('../matmul/types.mjs').GemmTilingName} GemmTilingName */
/** @typedef {import('../matmul/types.mjs').PtxChoice} PtxChoice */
/** @typedef {import('../matmul/types.mjs').Shaped} Shaped */
/** @typedef {import('../matmul/types.mjs').SpirvChoice} SpirvChoice */

/**
 * What kernels choose by device. The values affect speed only: a device computes the same with any of them.
 * @typedef {object} Tuning
 * @property {string} name of the table
 * @property {number} units workgroups that fill the device about once
 * @property {number} residentGroups workgroups that fill it where each goes on to further items
 * @property {number} normBlocks most workgroups of a normalization's backward pass, each of which leaves a row of sums
 * @property {{ kept: number, groups: number }} crossEntropy over 16-bit rows: vectors of a row whose exponentials are kept
 *   and not taken twice, at most; and workgroups
 * @property {number} flatThreads workgroup size of kernels that stride over elements
 * @property {(problem: Asked) => Choice | undefined} [measuredPlan] the plan of a matrix product that was measured on this machine to be faster
 *   than what the other two say (`helios-vk tune`), or undefined
 * @property {(problem: Asked) => SpirvChoice | undefined} [matmulPlan] the plan of a matrix product, or undefined where none was measured near it
 * @property {(problem: Shaped) => PtxChoice | undefined} [ptxPlan] its plan in PTX, or undefined where none is known to be faster than SPIR-V
 * @property {(problem: Shaped) => PtxChoice | undefined} [permutedPlan] its plan where B is permuted, or undefined where none is known to be faster than with B as it is
 * @property {(problem: Shaped & { beta: number }) => { tiling: GemmTilingName, rate: number }[]} [ptxGroup] tilings in PTX of several products like this one by one
 *   launch, and what each multiplies in whole waves, in TFLOP/s: the first that of one product alone; none where a launch for each is faster
 * @property {(form: import('../hopper/attention.mjs').AttentionForm, sizes: { tokens: number, heads: number, batch: number }) => string | undefined} [ptxAttention]
 *   the tiling of attention in PTX, or undefined where none is known to be faster
 */

/** `VkPhysicalDeviceType`, where it makes a difference. */
export const DEVICE_TYPE = { integrated: 1, cpu: 4 };

/** Workgroups in x that every device takes. */
const MAX_GROUPS = 65_535;

/** Hopper with the matrix units and the memory of an H100, at least: the kernels in PTX are made for it. */
const HOPPER = /\bG?H[12]00\b/;

/** Tables of devices by their names, as Vulkan gives them. @type {[RegExp, Tuning][]} */
const DEVICES = [[HOPPER, HOPPER_TUNING]];

/**
 * From what Vulkan says of a device. It does not say how many cores there are: an integrated GPU is taken for one of 24,
 * any other for one of 96; the rest is in proportion to that, as measured on the H200. Shared memory, subgroups and the
 * largest workgroup decide where a tile is chosen, which must fit them.
 * @param {import('../../index.js').DeviceInfo} info
 * @returns {Tuning}
 */
export function genericTuning({ deviceType, maxComputeWorkGroupInvocations }) {
  if (deviceType === DEVICE_TYPE.cpu) {
    // A few threads, to which small workgroups are given one at a time.
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
 * The table of a device, else what its properties suggest; and what was measured on this machine.
 * @param {import('../../index.js').DeviceInfo} info
 * @param {string | false} [table] as in KernelOptions
 * @returns {Tuning}
 */
export function tuningOf(info, table) {
  const measured = DEVICES.find(([name]) => name.test(info.deviceName))?.[1];
  const tuning = measured
    ? { ...measured, flatThreads: Math.min(measured.flatThreads, info.maxComputeWorkGroupInvocations) }
    : genericTuning(info);
  if (info.hasPtx && HOPPER.test(info.deviceName)) Object.assign(tuning, { ptxPlan, permutedPlan, ptxGroup, ptxAttention });
  const measuredPlan = storedPlans(info, table);
  return measuredPlan ? { ...tuning, measuredPlan } : tuning;
}
