// Made by `npm run types` from kernels/; do not edit.
/**
 * @param {KernelContext} context
 * @param {ReturnType<typeof import('./ptx.mjs').ptxProducts>} ptx
 * @param {{ verifyGroup?: typeof import('./verify.mjs').verifyGroup }} [options] what tests a kernel before its first use
 */
export function groupedProducts(context: KernelContext, ptx: ReturnType<typeof import("./ptx.mjs").ptxProducts>, { verifyGroup: verify }?: {
    verifyGroup?: typeof import("./verify.mjs").verifyGroup;
}): {
    /**
     * The plan by which one launch computes the products, and the microseconds that it saves by the rates of the device's tables. Undefined
     * where one launch is not known to be faster. No kernel is tested.
     * @param {any[]} problems @returns {{ plan: MatmulGroupPlan, saving: number } | undefined}
     */
    choose: (problems: any[]) => {
        plan: MatmulGroupPlan;
        saving: number;
    } | undefined;
    /** The plan by what `choose` says, or undefined, also where the kernel fails its test. @param {any[]} problems @returns {MatmulGroupPlan | undefined} */
    plan: (problems: any[]) => MatmulGroupPlan | undefined;
    /** Throws where a plan cannot be carried out. @param {any[]} problems @param {MatmulGroupPlan} plan */
    check: (problems: any[], plan: MatmulGroupPlan) => void;
    /**
     * The products by one launch.
     * @param {any[]} products the arguments of `matmul`, checked
     * @param {MatmulGroupPlan} plan
     * @param {{ buffer: import('../base.mjs').Binding, offset: number }} [work] memory for tensor maps; the kernels' own when left out
     * @returns {Dispatch[]}
     */
    records: (products: any[], plan: MatmulGroupPlan, work?: {
        buffer: import("../base.mjs").Binding;
        offset: number;
    }) => Dispatch[];
};
export type Dispatch = import("../base.mjs").Dispatch;
export type KernelContext = import("../base.mjs").KernelContext;
export type MatmulGroupPlan = import("../matmul.mjs").MatmulGroupPlan;
export type GemmForm = import("../ptx/gemm.mjs").GemmForm;
export type GemmPlan = import("../ptx/gemm.mjs").GemmPlan;
