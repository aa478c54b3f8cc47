// Made by `npm run types` from kernels/; do not edit.
/**
 * Runs a kernel on a small product. Throws what the device throws, ERR_HELIOS_INVALID_BATCH while a graph is recorded.
 * @param {object} how
 * @param {KernelContext} how.context
 * @param {any} how.plan @param {GemmForm} how.form which say what kernel it is
 * @param {(product: any, plan: any) => any} how.divide
 * @param {(product: any, plan: any, work: any) => import('../base.mjs').Dispatch[]} how.records
 * @returns {string | undefined} what is wrong with the result, or undefined
 */
export function verifyKernel({ context: { vk }, plan: { tiling, division }, form, divide, records }: {
    context: KernelContext;
    plan: any;
    form: GemmForm;
    divide: (product: any, plan: any) => any;
    records: (product: any, plan: any, work: any) => import("../base.mjs").Dispatch[];
}): string | undefined;
export type DType = import("../base.mjs").DType;
export type KernelContext = import("../base.mjs").KernelContext;
export type GemmForm = import("../ptx/gemm.mjs").GemmForm;
