// Made by `npm run types` from nn/; do not edit.
/** @typedef {import('./calls.mjs').Call} Call */
/** @typedef {import('./calls.mjs').Context} Context */
/** @typedef {import('../runtime.mjs').Allocation} Allocation */
/**
 * What `checkpoint` computes again is not what it computed before, nor is it of the same region: it would be kept in between.
 * Conversions of what was there before the trace (parameters) are shared among regions.
 * @param {Call[]} calls changed @param {Context} context
 * @returns {Call[]}
 */
export function shared(calls: Call[], { isTemporary }: Context): Call[];
export type Call = import("./calls.mjs").Call;
export type Context = import("./calls.mjs").Context;
export type Allocation = import("../runtime.mjs").Allocation;
