// Made by `npm run types` from kernels/; do not edit.
/**
 * From what Vulkan says of a device. It does not say how many cores there are: an integrated GPU is taken for one of 24,
 * any other for one of 96; the rest is in proportion to that, as measured on the H200. Shared memory, subgroups and the
 * largest workgroup decide where a tile is chosen, which must fit them.
 * @param {import('../../../index.js').DeviceInfo} info
 * @returns {Tuning}
 */
export function genericTuning({ deviceType, maxComputeWorkGroupInvocations }: import("../../../index.js").DeviceInfo): Tuning;
/**
 * The table of a device, else what its properties suggest; and what was measured on this machine.
 * @param {import('../../../index.js').DeviceInfo} info
 * @param {string | false} [table] as in KernelOptions
 * @returns {Tuning}
 */
export function tuningOf(info: import("../../../index.js").DeviceInfo, table?: string | false): Tuning;
export namespace DEVICE_TYPE {
    let integrated: number;
    let cpu: number;
}
/**
 * What kernels choose by device. Every value is a matter of speed: any device computes the same with any other.
 */
export type Tuning = {
    /**
     * of the table
     */
    name: string;
    /**
     * workgroups that fill the device about once
     */
    units: number;
    /**
     * workgroups that fill it where each goes on to further items
     */
    residentGroups: number;
    /**
     * most workgroups of a normalization's backward pass, each of which leaves a row of sums
     */
    normBlocks: number;
    /**
     * over 16-bit rows: vectors of a row whose exponentials are kept
     * and not taken twice, at most; and workgroups
     */
    crossEntropy: {
        kept: number;
        groups: number;
    };
    /**
     * workgroup size of kernels that stride over elements
     */
    flatThreads: number;
    /**
     * the plan of a matrix product that was measured on this machine to be faster
     * than what the other two say (`helios-vk tune`), or undefined
     */
    measuredPlan?: ((problem: any) => any) | undefined;
    /**
     * the plan of a matrix product, or undefined where none was measured near it
     */
    matmulPlan?: ((problem: any) => any) | undefined;
    /**
     * its plan in PTX, or undefined where none is known to be faster than SPIR-V
     */
    ptxPlan?: ((problem: any) => any) | undefined;
    /**
     * its plan where B is shuffled, or undefined where none is known to be faster than with B as it is
     */
    shuffledPlan?: ((problem: any) => any) | undefined;
    /**
     * tilings in PTX of several products like this one by one
     * launch, and what each multiplies in whole waves, in TFLOP/s: the first that of one product alone; none where a launch for each is faster
     */
    ptxGroup?: ((problem: any) => {
        tiling: string;
        rate: number;
    }[]) | undefined;
    /**
     * the tiling of attention in PTX, or undefined where none is known to be faster
     */
    ptxAttention?: ((form: import("../ptx/attention.mjs").AttentionForm, sizes: {
        tokens: number;
        heads: number;
        batch: number;
    }) => string | undefined) | undefined;
};
