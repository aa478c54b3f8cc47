// Made by `npm run types` from nn/; do not edit.
/**
 * @param {Call[]} calls changed @param {Context} context
 * @returns {number} how many products take a shuffled copy now
 */
export function shuffle(calls: Call[], context: Context): number;
export type Call = import("./calls.mjs").Call;
export type Context = import("./calls.mjs").Context;
export type HalfCopy = import("./calls.mjs").HalfCopy;
