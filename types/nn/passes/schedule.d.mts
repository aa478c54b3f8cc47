// Made by `npm run types` from nn/; do not edit.
/**
 * @param {Call[]} calls
 * @returns {Call[]} the same in an order that keeps every dependence
 */
export function schedule(calls: Call[]): Call[];
export type Call = import("./calls.mjs").Call;
export type Allocation = import("../runtime.mjs").Allocation;
