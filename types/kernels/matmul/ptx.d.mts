// Made by `npm run types` from kernels/; do not edit.
/**
 * A plan's tiling, itself or by its name in kernels/ptx/plans.mjs.
 * @param {Partial<MatmulPlan>} plan @returns {GemmPlan | SimtPlan}
 */
export function tilingOf({ tiling }: Partial<MatmulPlan>): GemmPlan | SimtPlan;
/**
 * @param {KernelContext} context
 * @param {{ verify?: typeof verifyKernel }} [options] what tests a kernel before its first use
 */
export function ptxProducts(context: KernelContext, { verify }?: {
    verify?: typeof verifyKernel;
}): {
    blocks: number;
    verdictOf: (key: string, test: () => string | undefined) => string;
    /**
     * Why these kernels cannot take a product, or undefined.
     * @param {any} problem with the arguments of `matmul` as `args`, of which tensors may be missing
     */
    fault: ({ m, n, k, batch, precision, half, aType, bType, cType, transA, transB, bShuffled, glu, args }: any) => string | undefined;
    /**
     * The plan that a caller asks for; throws where it cannot be carried out.
     * @param {any} problem @param {Partial<MatmulPlan>} override
     */
    planOf: (problem: any, override: Partial<MatmulPlan>) => any;
    /**
     * The plan of a product with B shuffled: what the caller asks for, else the one that was measured, else any.
     * @param {any} problem @param {Partial<MatmulPlan>} [override]
     */
    planShuffled: (problem: any, override?: Partial<MatmulPlan>) => any;
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
/**
 * A tensor as a range that begins at its first element, whose address the kernel gets.
 * @param {{ buffer: Binding, offset: number }} tensor @param {number} elements @param {number} bytes of an element
 * @returns {Binding}
 */
export function range({ buffer, offset }: {
    buffer: Binding;
    offset: number;
}, elements: number, bytes: number): Binding;
export type Binding = import("../base.mjs").Binding;
export type Dispatch = import("../base.mjs").Dispatch;
export type KernelContext = import("../base.mjs").KernelContext;
export type MatmulPlan = import("../matmul.mjs").MatmulPlan;
export type GemmForm = import("../ptx/gemm.mjs").GemmForm;
export type GemmPlan = import("../ptx/gemm.mjs").GemmPlan;
export type SimtPlan = import("../ptx/simt.mjs").SimtPlan;
import { verifyKernel } from './verify.mjs';
