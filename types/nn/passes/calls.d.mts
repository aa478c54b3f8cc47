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
export type Layout = import("../layout.mjs").Layout;
export type Op = import("../ops/registry.mjs").Op;
export type Allocation = import("../runtime.mjs").Allocation;
export type Kernels = import("../../kernels/index.mjs").Kernels;
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
 * What passes know besides the calls: whether memory was made for the graph, whether it lives within a call of it alone, and how to
 * make more of that.
 */
export type Context = {
    isOwn: (allocation: Allocation) => boolean;
    isTemporary: (allocation: Allocation) => boolean;
    allocate: (bytes: number) => Allocation;
    kernels: Kernels;
};
/**
 * Who touches an allocation, by number of call.
 */
export type Uses = {
    writers: Set<number>;
    readers: Set<number>;
};
import { Template } from '../../kernels/template.mjs';
