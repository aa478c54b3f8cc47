// Made by `npm run types` from nn/; do not edit.
/**
 * Memory that a call touches, whole allocations, each once. What is written counts as read, too, where it was there before.
 * @param {Call} call
 * @returns {{ reads: Allocation[], writes: Allocation[] }}
 */
export function accesses(call: Call): {
    reads: Allocation[];
    writes: Allocation[];
};
/**
 * Operands of a call with those that were replaced left out.
 * @param {Call} call
 * @returns {{ inputs: Value[], outputs: Value[] }}
 */
export function effective({ inputs, outputs, extra, dropped }: Call): {
    inputs: Value[];
    outputs: Value[];
};
/**
 * What a call has these kernels do, without making dispatches.
 * @param {Call & { op: Op }} call @param {Kernels} kernels @param {string[]} names of kernels; it calls no others
 * @returns {{ kernel: string, args: any }[]} which, and their arguments over slots
 */
export function kernelCalls(call: Call & {
    op: Op;
}, kernels: Kernels, names: string[]): {
    kernel: string;
    args: any;
}[];
/**
 * Makes the template of a changed call.
 * @param {Call} call @param {Kernels} kernels
 */
export function lower(call: Call, kernels: Kernels): void;
/** Who touches an allocation, by number of call. @typedef {{ writers: Set<number>, readers: Set<number> }} Uses */
/** Who touches each allocation. */
export class UseMap {
    /** @type {Map<Allocation, Uses>} */
    uses: Map<Allocation, Uses>;
    /** @param {Allocation} allocation @returns {Uses} */
    of(allocation: Allocation): Uses;
    /** @param {Call} call @param {number} i its number */
    note(call: Call, i: number): void;
    /** @param {Call} call @param {number} i its number */
    forget(call: Call, i: number): void;
}
/** Operands, results and further tensors of a call: value i is slot i of its dispatches. @param {Call} call @returns {Value[]} */
export function valuesOf({ inputs, outputs, extra }: Call): Value[];
export type Layout = import("../layout.mjs").Layout;
export type Op = import("../ops/registry.mjs").Op;
export type Allocation = import("../runtime.mjs").Allocation;
export type Kernels = import("../../kernels/index.mjs").Kernels;
export type HalfCopy = import("../optim/half-copy.mjs").HalfCopy;
export type ShuffledCopy = import("../optim/half-copy.mjs").ShuffledCopy;
/**
 * Elements in memory.
 */
export type Value = {
    allocation: Allocation;
    layout: Layout;
};
/**
 * A call of an operation, or (without `op`) dispatches that passes leave as they are.
 */
export type Call = {
    op?: import("../ops/registry.mjs").Op | undefined;
    attributes: any;
    inputs: Value[];
    /**
     * the first may lie in an input's memory: written in place
     */
    outputs: Value[];
    /**
     * its dispatches; undefined once a pass has changed it
     */
    template: Template | undefined;
    /**
     * what the template's slots are; those of replaced operands no dispatch binds
     */
    allocations: Allocation[];
    /**
     * what it is, of a call without `op`
     */
    name?: string | undefined;
    /**
     * that it reads and writes, of a call without `op`
     */
    bytes?: number | undefined;
    /**
     * the line of the user's program
     */
    origin?: string | undefined;
    /**
     * what was recorded as calls of their own and is one now
     */
    parts?: {
        name: string;
        origin: string | undefined;
    }[] | undefined;
    /**
     * what `checkpoint` computes again has a number of its own
     */
    region?: number | undefined;
    /**
     * the kernel that gets the further arguments
     */
    kernel?: string | undefined;
    /**
     * further arguments: plain values
     */
    options?: Record<string, unknown> | undefined;
    /**
     * operands that were replaced
     */
    dropped?: Set<Value> | undefined;
    /**
     * further arguments: tensors. What replaces an operand has its kernel's name
     */
    extra?: Record<string, Value> | undefined;
};
/**
 * What passes know besides the calls.
 */
export type Context = {
    /**
     * whether memory was made for the graph
     */
    isOwn: (allocation: Allocation) => boolean;
    /**
     * whether it lives within a call of it alone
     */
    isTemporary: (allocation: Allocation) => boolean;
    /**
     * makes more of that
     */
    allocate: (bytes: number) => Allocation;
    kernels: Kernels;
    /**
     * 16-bit copies of parameters that the calls touch
     */
    halves: Map<Allocation, HalfCopy>;
    /**
     * has another copy hold what the parameters hold before each launch
     */
    keep: (copy: ShuffledCopy) => void;
};
/**
 * Who touches an allocation, by number of call.
 */
export type Uses = {
    writers: Set<number>;
    readers: Set<number>;
};
import { Template } from '../../kernels/template.mjs';
