// Made by `npm run types` from nn/; do not edit.
/**
 * @param {Call[]} calls @param {Context} context
 * @returns {{ calls: Call[], grouped: number }} how many calls became part of another
 */
export function group(calls: Call[], context: Context): {
    calls: Call[];
    grouped: number;
};
/**
 * A weight gradient: the arguments of its product, and its operands.
 */
export type Gradient = {
    args: MatmulArgs;
    a: Value;
    b: Value;
    c: Value;
};
export type Call = import("./calls.mjs").Call;
export type Context = import("./calls.mjs").Context;
export type Value = import("./calls.mjs").Value;
export type Op = import("../ops/registry.mjs").Op;
export type MatmulArgs = import("../../kernels/matmul.mjs").MatmulArgs;
