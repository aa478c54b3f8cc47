// Made by `npm run types` from kernels/; do not edit.
/** @typedef {import('./gemm.mjs').GemmPlan} GemmPlan */
/** @type {Record<'tall' | 'tallCached' | 'square' | 'wide', GemmPlan>} */
export const PLANS: Record<"tall" | "tallCached" | "square" | "wide", GemmPlan>;
export type GemmPlan = import("./gemm.mjs").GemmPlan;
