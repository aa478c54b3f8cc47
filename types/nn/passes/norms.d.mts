// Made by `npm run types` from nn/; do not edit.
/**
 * @param {Call[]} calls @param {Context} context
 * @returns {{ calls: Call[], merged: number }}
 */
export function norms(calls: Call[], { kernels, allocate }: Context): {
    calls: Call[];
    merged: number;
};
export type Call = import("./calls.mjs").Call;
export type Value = import("./calls.mjs").Value;
export type Context = import("./calls.mjs").Context;
export type Op = import("../ops/registry.mjs").Op;
export type Allocation = import("../runtime.mjs").Allocation;
/**
 * temporary memory
 */
export type Allocate = (bytes: number) => Allocation;
/**
 * Gradients of norms whose weights' lie in one allocation.
 */
export type Group = {
    beta: unknown;
    rows: number;
    members: number[];
};
