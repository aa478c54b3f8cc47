// Made by `npm run types` from kernels/; do not edit.
/** @typedef {import('./gemm.mjs').GemmPlan} GemmPlan */
/** @type {Record<'tall' | 'tallCached' | 'square' | 'wide', GemmPlan>} */
export const PLANS: Record<"tall" | "tallCached" | "square" | "wide", GemmPlan>;
/**
 * Tilings that assemble and compute right, and of which no time is known yet: `node benches/kernels-matmul.mjs --sweep --groups ptx`.
 * For TN, with A in registers, which `tall` and `tallCached` do as well.
 * @type {Record<'tallAsync' | 'tallAsyncCached' | 'tallAsyncShallow' | 'slim', GemmPlan>}
 */
export const CANDIDATES: Record<"tallAsync" | "tallAsyncCached" | "tallAsyncShallow" | "slim", GemmPlan>;
/** Every tiling by its name. @type {Record<string, GemmPlan>} */
export const TILINGS: Record<string, GemmPlan>;
export type GemmPlan = import("./gemm.mjs").GemmPlan;
