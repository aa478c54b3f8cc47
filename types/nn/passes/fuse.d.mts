// Made by `npm run types` from nn/; do not edit.
/**
 * @param {Call[]} calls @param {Context} context
 * @returns {{ calls: Call[], fused: number }} how many calls became part of another
 */
export function fuse(calls: Call[], context: Context): {
    calls: Call[];
    fused: number;
};
export type Call = import("./calls.mjs").Call;
export type Context = import("./calls.mjs").Context;
