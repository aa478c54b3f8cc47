// Made by `npm run types` from nn/; do not edit.
/**
 * @param {Call[]} calls @param {Context} context
 * @returns {{ calls: Call[], folded: number }} the same with fewer operands, and how many were folded
 */
export function constants(calls: Call[], { isTemporary }: Context): {
    calls: Call[];
    folded: number;
};
export type Call = import("./calls.mjs").Call;
export type Context = import("./calls.mjs").Context;
export type Allocation = import("../runtime.mjs").Allocation;
