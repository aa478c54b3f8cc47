// Made by `npm run types` from nn/; do not edit.
/** What a call does, as it was recorded. @param {Call} call */
export function partsOf({ parts, op, name, origin }: Call): {
    name: string;
    origin: string | undefined;
}[];
/** All of an allocation's elements, row by row from its start. @param {Value} value */
export function whole({ layout }: Value): boolean;
export class Matcher {
    /** @param {Call[]} calls @param {Context} context */
    constructor(calls: Call[], context: Context);
    calls: import("./calls.mjs").Call[];
    context: import("./calls.mjs").Context;
    uses: UseMap;
    /** @type {Set<number>} */
    removed: Set<number>;
    /** How often each pattern was found. @type {Record<string, number>} */
    found: Record<string, number>;
    /** @param {Allocation} allocation */
    usesOf(allocation: Allocation): import("./calls.mjs").Uses;
    /** Notes what a call touches. @param {Call} call @param {number} i */
    note(call: Call, i: number): void;
    /** Before a call is changed. @param {number} i */
    forget(i: number): void;
    /**
     * The one call that writes a temporary value, if that is all of what the call writes there: a slice of the first rows, too,
     * begins at 0 and is contiguous.
     * @param {Value} value @returns {number} -1 where there is none
     */
    producer(value: Value): number;
    /** The value that a call's main result is now. @param {Call} call */
    result({ outputs, extra }: Call): import("./calls.mjs").Value;
    /** Whether nobody but call `j` reads what call `i` makes. @param {number} i @param {number} j */
    onlyFor(i: number, j: number): boolean;
    /** Whether nobody but call `j` reads a value, which one call writes. @param {Value} value @param {number} j */
    readBy({ allocation }: Value, j: number): boolean;
    /** Whether a value is the same before call `i` as at call `j`. @param {Value} value @param {number} i @param {number} j */
    readyAt({ allocation }: Value, i: number, j: number): boolean;
    /** Whether memory that call `j` writes may be written at call `i` already. @param {Value} value @param {number} i @param {number} j */
    freeFrom({ allocation, layout }: Value, i: number, j: number): boolean;
    /**
     * Call `j` becomes a part of call `i`.
     * @param {string} name of the pattern @param {number} i @param {number} j
     * @param {Change} change
     */
    fuse(name: string, i: number, j: number, change: Change): void;
    /** @param {Call} call @param {Change} change */
    change(call: Call, { op, kernel, options, extra, dropped }: Change): void;
    /**
     * Another call in place of call `j`, which does what call `i` did as well.
     * @param {string} name of the pattern @param {number} i @param {number} j
     * @param {Pick<Call, 'op' | 'attributes' | 'inputs' | 'outputs'>} call
     */
    replace(name: string, i: number, j: number, call: Pick<Call, "op" | "attributes" | "inputs" | "outputs">): void;
    /** @param {string} name of a pattern */
    count(name: string): void;
}
export type Call = import("./calls.mjs").Call;
export type Value = import("./calls.mjs").Value;
export type Context = import("./calls.mjs").Context;
export type Op = import("../ops/registry.mjs").Op;
export type Allocation = import("../runtime.mjs").Allocation;
/**
 * What becomes of a call: another operation where one is given, and further arguments of its kernel.
 */
export type Change = {
    op?: import("../ops/registry.mjs").Op | undefined;
    kernel: string;
    options?: Record<string, unknown> | undefined;
    extra?: Record<string, import("./calls.mjs").Value> | undefined;
    /**
     * operands that are replaced
     */
    dropped?: import("./calls.mjs").Value[] | undefined;
};
import { UseMap } from './calls.mjs';
