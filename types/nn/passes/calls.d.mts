// Made by `npm run types` from nn/; do not edit.
/**
 * Memory that a call touches, whole allocations. What is written counts as read, too, where it was there before.
 * @param {Call} call
 * @returns {{ reads: Set<Allocation>, writes: Set<Allocation> }}
 */
export function accesses(call: Call): {
    reads: Set<Allocation>;
    writes: Set<Allocation>;
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
     * what the template's slots are
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
     * slots of the template that no dispatch binds
     */
    unbound?: Set<number> | undefined;
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
import { Template } from '../../kernels/template.mjs';
