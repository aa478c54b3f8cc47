// Made by `npm run types` from nn/; do not edit.
/**
 * @param {Call[]} calls changed @param {Context} context @param {readonly PassName[]} names
 * @returns {{ calls: Call[], found: Record<string, number> }} with templates
 */
export function runPasses(calls: Call[], context: Context, names: readonly PassName[]): {
    calls: Call[];
    found: Record<string, number>;
};
/** @typedef {import('./calls.mjs').Call} Call */
/** @typedef {import('./calls.mjs').Context} Context */
/** @typedef {import('../runtime.mjs').Allocation} Allocation */
/** @typedef {'constants' | 'shared' | 'vectors' | 'match' | 'norms' | 'dead' | 'fuse' | 'group' | 'shuffle' | 'schedule'} PassName */
/** In their order. @type {readonly PassName[]} */
export const PASSES: readonly PassName[];
export type Call = import("./calls.mjs").Call;
export type Context = import("./calls.mjs").Context;
export type Allocation = import("../runtime.mjs").Allocation;
export type PassName = "constants" | "shared" | "vectors" | "match" | "norms" | "dead" | "fuse" | "group" | "shuffle" | "schedule";
