// Made by `npm run types` from nn/; do not edit.
/**
 * @param {Call[]} calls changed @param {Context} context
 * @returns {{ calls: Call[], found: Record<string, number> }} what is left, and how often each pattern was found
 */
export function match(calls: Call[], context: Context): {
    calls: Call[];
    found: Record<string, number>;
};
export type Call = import("./calls.mjs").Call;
export type Value = import("./calls.mjs").Value;
export type Context = import("./calls.mjs").Context;
