// Made by `npm run types` from kernels/; do not edit.
/**
 * Runs kernels on a small problem. Throws what the device throws, ERR_HELIOS_INVALID_BATCH while a graph is recorded.
 * @param {object} how
 * @param {KernelContext} how.context
 * @param {{ tiling: import('../ptx/attention.mjs').AttentionTiling, form: AttentionForm }[]} how.plan which kernels they are
 * @param {(problem: { batch: number, heads: number, tokens: number }, tensors: any, push: Uint8Array) => import('../base.mjs').Dispatch[]} how.record
 * @returns {string | undefined} what is wrong with the result, or undefined
 */
export function verifyAttention({ context: { vk }, plan, record }: {
    context: KernelContext;
    plan: {
        tiling: import("../ptx/attention.mjs").AttentionTiling;
        form: AttentionForm;
    }[];
    record: (problem: {
        batch: number;
        heads: number;
        tokens: number;
    }, tensors: any, push: Uint8Array) => import("../base.mjs").Dispatch[];
}): string | undefined;
export type KernelContext = import("../base.mjs").KernelContext;
export type AttentionForm = import("../ptx/attention.mjs").AttentionForm;
export type Matrix = ReturnType<typeof import("../matmul/verify.mjs").matrix>;
