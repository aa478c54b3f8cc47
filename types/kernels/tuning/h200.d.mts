// Made by `npm run types` from kernels/; do not edit.
/**
 * The plan in PTX of a product in f32 or of halves, or undefined where none is known to be faster than SPIR-V.
 * @param {{ m: number, n: number, k: number, transA: boolean, transB: boolean, precision?: string }} problem halves when left out
 * @returns {any}
 */
export function ptxPlan({ m, n, k, transA, transB, precision }: {
    m: number;
    n: number;
    k: number;
    transA: boolean;
    transB: boolean;
    precision?: string;
}): any;
/**
 * The tiling of attention in PTX, one of ATTENTION_PLANS, or undefined where there is no kernel.
 * @param {import('../ptx/attention.mjs').AttentionForm} form @returns {string | undefined}
 */
export function ptxAttention({ pass, headSize }: import("../ptx/attention.mjs").AttentionForm): string | undefined;
/**
 * The tilings of a class's table, each once.
 * @param {'half' | 'mixed' | 'bf16x3' | 'f32'} name
 * @returns {any[]}
 */
export function measuredTilings(name: "half" | "mixed" | "bf16x3" | "f32"): any[];
/** @type {import('./index.mjs').Tuning} */
export const H200: import("./index.mjs").Tuning;
