// Made by `npm run types` from kernels/; do not edit.
/** @typedef {import('./gemm.mjs').GemmPlan} GemmPlan */
/** @typedef {import('./simt.mjs').SimtPlan} SimtPlan */
/** @type {Record<'tall' | 'tallCached' | 'tallCopied' | 'tallCopiedCached' | 'broadCopied' | 'square' | 'small' | 'wide', GemmPlan>} */
export const PLANS: Record<"tall" | "tallCached" | "tallCopied" | "tallCopiedCached" | "broadCopied" | "square" | "small" | "wide", GemmPlan>;
export namespace SECOND_PASS {
    let us: number;
    let bytesPerUs: number;
}
/**
 * Tilings of products in f32.
 * @type {Record<'simtTall' | 'simtWide' | 'simtSquare', SimtPlan>}
 */
export const SIMT_PLANS: Record<"simtTall" | "simtWide" | "simtSquare", SimtPlan>;
/**
 * Tilings of attention, by what they are for.
 * @type {Record<string, import('./attention.mjs').AttentionTiling>}
 */
export const ATTENTION_PLANS: Record<string, import("./attention.mjs").AttentionTiling>;
export type GemmPlan = import("./gemm.mjs").GemmPlan;
export type SimtPlan = import("./simt.mjs").SimtPlan;
