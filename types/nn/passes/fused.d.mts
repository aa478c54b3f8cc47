// Made by `npm run types` from nn/; do not edit.
/** A matrix whose rows, or columns, are reduced. @typedef {{ kind: 'row' | 'column', rows: number, columns: number }} Matrix */
/**
 * What a call is in a kernel: an element of its result, a reduction, or a copy into memory from before.
 * @typedef {{ kind: 'map' } | { kind: 'write' } | (Matrix & { op: 'reduceSum' | 'reduceMax' | 'reduceMin', alpha: number })} Role
 */
/**
 * @param {Call} call
 * @returns {Role | undefined} undefined where no generated kernel does it
 */
export function roleOf({ op, kernel, extra, options, attributes, inputs, outputs }: Call): Role | undefined;
/**
 * A step of a kernel: an operation of elements, a reduction, or a product with a number. Operands are numbered: inputs first, then
 * steps.
 * @typedef {{ op: string, attributes?: any, args: number[] }} Step
 */
/**
 * @typedef {object} Plan
 * @property {{ kind: 'flat' | 'row' | 'column', rows: number, columns: number, shape: readonly number[], steps: Step[], results: number[] }} attributes
 * @property {Value[]} inputs
 * @property {Value[]} outputs
 */
/**
 * One kernel of several calls.
 * @param {Call[]} calls in an order that keeps dependences
 * @param {(allocation: Allocation) => boolean} needed whether anything else reads what a call makes
 * @returns {Plan | undefined} undefined where one kernel does not do them
 */
export function planOf(calls: Call[], needed: (allocation: Allocation) => boolean): Plan | undefined;
/** What a kernel of several calls is: an operation that only passes make. */
export const fusedOp: Op;
/**
 * A matrix whose rows, or columns, are reduced.
 */
export type Matrix = {
    kind: "row" | "column";
    rows: number;
    columns: number;
};
/**
 * What a call is in a kernel: an element of its result, a reduction, or a copy into memory from before.
 */
export type Role = {
    kind: "map";
} | {
    kind: "write";
} | (Matrix & {
    op: "reduceSum" | "reduceMax" | "reduceMin";
    alpha: number;
});
/**
 * A step of a kernel: an operation of elements, a reduction, or a product with a number. Operands are numbered: inputs first, then
 * steps.
 */
export type Step = {
    op: string;
    attributes?: any;
    args: number[];
};
export type Plan = {
    attributes: {
        kind: "flat" | "row" | "column";
        rows: number;
        columns: number;
        shape: readonly number[];
        steps: Step[];
        results: number[];
    };
    inputs: Value[];
    outputs: Value[];
};
export type Call = import("./calls.mjs").Call;
export type Value = import("./calls.mjs").Value;
export type Layout = import("../layout.mjs").Layout;
export type Op = import("../ops/registry.mjs").Op;
export type Operand = import("../ops/registry.mjs").Operand;
export type Allocation = import("../runtime.mjs").Allocation;
export type Kernels = import("../../kernels/index.mjs").Kernels;
