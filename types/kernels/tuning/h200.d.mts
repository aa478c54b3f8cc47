// Made by `npm run types` from kernels/; do not edit.
/**
 * The plan in PTX of a product in f32 or of halves, or undefined where none is known to be faster than SPIR-V.
 * @param {{ m: number, n: number, k: number, transA: boolean, transB: boolean, precision?: string, glu?: string }} problem halves when
 *   left out; with SwiGLU, which is of whole tiles and not of small ones
 * @returns {any}
 */
export function ptxPlan({ m, n, k, transA, transB, precision, glu }: {
    m: number;
    n: number;
    k: number;
    transA: boolean;
    transB: boolean;
    precision?: string;
    glu?: string;
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
 * The tilings of PLANS by which one launch computes several weight gradients, and what each multiplies in whole waves, in TFLOP/s: on H100s at
 * a depth of 8,192, `wide` on an H200 (docs/notes/ptx-products.md). The first is that of weight gradients alone. None of less than 512 tokens, for
 * which nothing was measured, nor where C has another factor than 1, for which a tile's end would wait.
 * @param {{ k: number, beta: number, transA: boolean, transB: boolean }} problem
 * @returns {{ tiling: keyof typeof PLANS, rate: number }[]}
 */
export function ptxGroup({ k, beta, transA, transB }: {
    k: number;
    beta: number;
    transA: boolean;
    transB: boolean;
}): {
    tiling: keyof typeof PLANS;
    rate: number;
}[];
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
import { PLANS } from '../ptx/plans.mjs';
