// Made by `npm run types` from kernels/; do not edit.
/**
 * @param {KernelContext} context
 * @param {{ verify?: typeof verifyAttention, mostKept?: number }} [options] what tests a kernel before its first use; bytes of dS at a time
 */
export function ptxAttention(context: KernelContext, { verify, mostKept }?: {
    verify?: typeof verifyAttention;
    mostKept?: number;
}): {
    /**
     * The kernels for a call: the one that its plan asks for, which throws where it cannot take the call; without a plan the
     * one that was measured, or undefined where the SPIR-V kernels take it.
     * @param {string} kernel that was called
     * @param {any} problem @param {AttentionForm['pass']} pass @param {Parameters<typeof fault>[1]} more
     * @returns {PtxPlan | undefined}
     */
    planOf: (kernel: string, problem: any, pass: AttentionForm["pass"], more: Parameters<({ precision, type, outType, softCap, scale, tokens, heads, batch }: any, { tensors, gradType }: {
        tensors: Placed[];
        gradType?: string;
        stats?: Placed[];
    }) => string | undefined>[1]) => PtxPlan | undefined;
    /**
     * A call as dispatches.
     * @param {PtxPlan} plan
     * @param {{ batch: number, heads: number, tokens: number }} problem
     * @param {Partial<Record<string, import('../base.mjs').Binding>>} tensors by their names in `TENSORS`, but dS
     * @param {Uint8Array} push
     * @returns {Dispatch[]}
     */
    record: (plan: PtxPlan, problem: {
        batch: number;
        heads: number;
        tokens: number;
    }, tensors: Partial<Record<string, import("../base.mjs").Binding>>, push: Uint8Array) => Dispatch[];
};
export type Dispatch = import("../base.mjs").Dispatch;
export type KernelContext = import("../base.mjs").KernelContext;
export type AttentionForm = import("../ptx/attention.mjs").AttentionForm;
export type AttentionTiling = import("../ptx/attention.mjs").AttentionTiling;
/**
 * a tensor
 */
export type Placed = {
    buffer: import("../base.mjs").Binding;
    offset: number;
};
export type Kernel = {
    tiling: AttentionTiling;
    form: AttentionForm;
};
/**
 * kernels, in order
 */
export type PtxPlan = Kernel[];
import { verifyAttention } from './verify.mjs';
