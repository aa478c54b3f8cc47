// Made by `npm run types` from nn/; do not edit.
/** @typedef {import('../layout.mjs').Layout} Layout */
/** @typedef {import('./registry.mjs').Reference} Reference */
/** Head sizes that the fused kernel takes. */
export const FUSED_HEADS: number[];
/** Attention of fused rows [q | k | v], heads side by side: [batch, tokens, 3 · width] to [batch, tokens, width]. */
export const attention: import("./registry.mjs").Op;
/**
 * Rotates the first `heads` heads of each row by its position's angles (Su et al. 2021): x [..., tokens, width], table
 * [positions, headSize / 2, 2] of cosines and sines.
 */
export const rope: import("./registry.mjs").Op;
export type Layout = import("../layout.mjs").Layout;
export type Reference = import("./registry.mjs").Reference;
