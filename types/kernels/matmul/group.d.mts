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
     * The plan of the products, or undefined where they are not known to be faster together: their tiles fill the device, and no product's
     * do by themselves.
     * @param {any[]} problems @returns {MatmulGroupPlan | undefined}
     */
    choose: (problems: any[]) => MatmulGroupPlan | undefined;
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
