// Made by `npm run types` from nn/; do not edit.
/**
 * @param {Call[]} calls @param {Context} context
 * @returns {{ calls: Call[], replaced: number }}
 */
export function vectors(calls: Call[], { allocate }: Context): {
    calls: Call[];
    replaced: number;
};
export type Call = import("./calls.mjs").Call;
export type Context = import("./calls.mjs").Context;
export type Value = import("./calls.mjs").Value;
/**
 * Two operands whose elements are multiplied, and the dimension that is then summed.
 */
export type VectorProduct = {
    matrix: Value;
    vector: Value;
    dim: number;
    bias?: Value;
};
