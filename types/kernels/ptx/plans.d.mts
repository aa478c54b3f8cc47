// Made by `npm run types` from kernels/; do not edit.
/** @typedef {import('./gemm.mjs').GemmPlan} GemmPlan */
/** @type {Record<'tall' | 'tallCached' | 'square' | 'wide', GemmPlan>} */
export const PLANS: Record<"tall" | "tallCached" | "square" | "wide", GemmPlan>;
/**
 * Tilings that assemble and compute right, and of which no time is known yet: `node benches/kernels-matmul.mjs --sweep --groups ptx`.
 * @type {Record<'tallLate' | 'async' | 'asyncLate' | 'asyncTeams' | 'deep' | 'deepCached' | 'deepFine' | 'deepTeams' | 'squareDeep' | 'slim' | 'slimDeep', GemmPlan>}
 */
export const CANDIDATES: Record<"tallLate" | "async" | "asyncLate" | "asyncTeams" | "deep" | "deepCached" | "deepFine" | "deepTeams" | "squareDeep" | "slim" | "slimDeep", GemmPlan>;
/** Every tiling by its name. @type {Record<string, GemmPlan>} */
export const TILINGS: Record<string, GemmPlan>;
export type GemmPlan = import("./gemm.mjs").GemmPlan;
