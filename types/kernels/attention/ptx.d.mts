// Made by `npm run types` from kernels/; do not edit.
/**
 * @param {KernelContext} context
 * @param {{ verify?: typeof verifyAttention }} [options] what tests a kernel before its first use
 */
export function ptxAttention(context: KernelContext, { verify }?: {
    verify?: typeof verifyAttention;
}): {
    /**
     * The kernel for a call: the one that its plan asks for, which throws where it cannot take the call; without a plan the
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
     * A call as a dispatch.
     * @param {PtxPlan} plan
     * @param {{ batch: number, heads: number, tokens: number }} problem
     * @param {import('../base.mjs').Binding[]} buffers in the order of `TENSORS` @param {Uint8Array} push
     * @returns {Dispatch}
     */
    record: (plan: PtxPlan, { batch, heads, tokens }: {
        batch: number;
        heads: number;
        tokens: number;
    }, buffers: import("../base.mjs").Binding[], push: Uint8Array) => Dispatch;
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
/**
 * a kernel
 */
export type PtxPlan = {
    tiling: AttentionTiling;
    form: AttentionForm;
};
import { verifyAttention } from './verify.mjs';
