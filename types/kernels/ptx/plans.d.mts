// Made by `npm run types` from kernels/; do not edit.
/** @typedef {import('./gemm.mjs').GemmPlan} GemmPlan */
/** @type {Record<'tall' | 'tallCached' | 'square' | 'wide', GemmPlan>} */
export const PLANS: Record<"tall" | "tallCached" | "square" | "wide", GemmPlan>;
/**
 * Tilings of attention, by what they are for.
 * @type {Record<string, import('./attention.mjs').AttentionTiling>}
 */
export const ATTENTION_PLANS: Record<string, import("./attention.mjs").AttentionTiling>;
export type GemmPlan = import("./gemm.mjs").GemmPlan;
