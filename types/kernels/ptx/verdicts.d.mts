// Made by `npm run types` from kernels/; do not edit.
/** @typedef {import('../base.mjs').KernelContext} KernelContext */
/**
 * @param {KernelContext} context @param {string} work what the SPIR-V kernels then do, such as `compute attention`
 * @returns {(key: string, test: () => string | undefined) => string} of a kernel by its key: why it is not used, or '' where it passed
 *   its test, which runs at the first call and cannot while a graph is recorded. Once one has failed, no further one is tried.
 */
export function kernelVerdicts(context: KernelContext, work: string): (key: string, test: () => string | undefined) => string;
export type KernelContext = import("../base.mjs").KernelContext;
