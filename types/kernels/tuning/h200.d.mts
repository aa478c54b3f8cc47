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
 * The plan of a product of halves whose B is shuffled, or undefined where none is known to be faster than with B as it is.
 * @param {{ m: number, n: number, k: number, transA: boolean, transB: boolean, precision?: string }} problem halves when left out
 * @param {import('./table.mjs').Entry[]} [table] the package's when left out
 * @returns {any}
 */
export function shuffledPlan({ m, n, k, transA, transB, precision }: {
    m: number;
    n: number;
    k: number;
    transA: boolean;
    transB: boolean;
    precision?: string;
}, table?: import("./table.mjs").Entry[]): any;
/**
 * The tiling of PLANS by which weight gradients are faster by one launch, or undefined. A layer of the 300M model took, one by one and
 * by one launch of `wide`, 488 and 391 microseconds at 8,192 tokens, 173 and 115 at 2,048. At 512 tokens a step gained nothing, nor did sums
 * that are added to C. `tallCopiedCached` took 0.91 of the time of `wide` on an H100 at 8,192 tokens; its depths are multiples of 32.
 * @param {{ k: number, beta: number, transA: boolean, transB: boolean }} problem @returns {string | undefined}
 */
export function ptxGroup({ k, beta, transA, transB }: {
    k: number;
    beta: number;
    transA: boolean;
    transB: boolean;
}): string | undefined;
/**
 * The tiling of attention in PTX, one of ATTENTION_PLANS, or undefined where there is no kernel.
 * @param {import('../ptx/attention.mjs').AttentionForm} form @param {{ tokens: number, heads: number, batch: number }} sizes
 * @returns {string | undefined}
 */
export function ptxAttention({ pass, headSize, causal }: import("../ptx/attention.mjs").AttentionForm, { tokens, heads, batch }: {
    tokens: number;
    heads: number;
    batch: number;
}): string | undefined;
/**
 * The tilings of a class's table, each once.
 * @param {'half' | 'mixed' | 'bf16x3' | 'f32'} name
 * @returns {any[]}
 */
export function measuredTilings(name: "half" | "mixed" | "bf16x3" | "f32"): any[];
/** @type {import('./index.mjs').Tuning} */
export const H200: import("./index.mjs").Tuning;
