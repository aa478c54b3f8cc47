// Made by `npm run types` from kernels/; do not edit.
/**
 * @param {KernelContext} context
 * @param {{ verify?: typeof verifyKernel }} [options] what tests a kernel before its first use
 */
export function ptxProducts(context: KernelContext, { verify }?: {
    verify?: typeof verifyKernel;
}): {
    /**
     * The plan that a caller asks for; throws where it cannot be carried out.
     * @param {any} problem @param {Partial<MatmulPlan>} override
     */
    planOf: (problem: any, override: Partial<MatmulPlan>) => any;
    /**
     * The plan that was measured for a product, or undefined where these kernels do not take it or none is known to be faster.
     * @param {any} problem
     */
    choose: (problem: any) => any;
    workspaceFloats: (plan: any) => any;
    /**
     * A product as dispatches.
     * @param {any} product the arguments of `matmul`, checked
     * @param {any} plan from `planOf` or `choose`
     * @param {{ buffer: Binding, offset: number } | undefined} work memory for partial sums
     * @returns {Dispatch[]}
     */
    records: (product: any, plan: any, work: {
        buffer: Binding;
        offset: number;
    } | undefined) => Dispatch[];
};
export type Binding = import("../base.mjs").Binding;
export type Dispatch = import("../base.mjs").Dispatch;
export type KernelContext = import("../base.mjs").KernelContext;
export type MatmulPlan = import("../matmul.mjs").MatmulPlan;
export type GemmForm = import("../ptx/gemm.mjs").GemmForm;
export type GemmPlan = import("../ptx/gemm.mjs").GemmPlan;
export type SimtPlan = import("../ptx/simt.mjs").SimtPlan;
import { verifyKernel } from './verify.mjs';
