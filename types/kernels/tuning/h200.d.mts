// Made by `npm run types` from kernels/; do not edit.
/**
 * The plan in PTX of a product of halves, or undefined where none is known to be faster than SPIR-V.
 * @param {{ m: number, n: number, k: number, transA: boolean, transB: boolean }} problem
 * @returns {any}
 */
export function ptxPlan({ m, n, k, transA, transB }: {
    m: number;
    n: number;
    k: number;
    transA: boolean;
    transB: boolean;
}): any;
/**
 * The tiling of attention in PTX, one of ATTENTION_PLANS, or undefined where there is no kernel.
 * @param {import('../ptx/attention.mjs').AttentionForm} form @returns {string | undefined}
 */
export function ptxAttention({ pass, headSize }: import("../ptx/attention.mjs").AttentionForm): string | undefined;
/** @type {import('./index.mjs').Tuning} */
export const H200: import("./index.mjs").Tuning;
export type Entry = {
    form: string;
    m: number;
    n: number;
    k: number;
    plan: any;
};
