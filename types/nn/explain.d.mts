// Made by `npm run types` from nn/; do not edit.
/**
 * What the dispatches of steps do, as `profileWork` of the addon takes it: pairs of bytes and operations. Where a step has more than
 * one dispatch, its main one stands for all. Of products that do operations no bytes are given: those are not what limits them.
 * @param {Step[]} steps
 */
export function workOf(steps: Step[]): Float64Array<ArrayBuffer>;
/**
 * Time by line and operations, the longest first.
 * @param {Step[]} steps @param {ArrayLike<number>} times microseconds of each dispatch
 * @returns {LineTime[]}
 */
export function timesByLine(steps: Step[], times: ArrayLike<number>): LineTime[];
/**
 * A page about graphs.
 * @param {{ key: string, dispatches: number, planned: number, unplanned: number, found: Record<string, number>, steps: Step[] }[]} graphs
 * @returns {string}
 */
export function page(graphs: {
    key: string;
    dispatches: number;
    planned: number;
    unplanned: number;
    found: Record<string, number>;
    steps: Step[];
}[]): string;
/** @param {Call[]} calls lowered @returns {Step[]} */
export function stepsOf(calls: Call[]): Step[];
export type Call = import("./passes/calls.mjs").Call;
/**
 * A step of a graph: dispatches that belong together.
 */
export type Step = {
    /**
     * the line of the program, as `model.mjs:12` or `model.mjs:12, backward`; empty where there is none
     */
    origin: string;
    /**
     * what it does: more than one where passes have put some together
     */
    operations: string[];
    /**
     * how many
     */
    dispatches: number;
    /**
     * bytes of its results; 0 where that is not known (clipping of gradients)
     */
    written: number;
    /**
     * that it reads and writes; 0 where that is not known
     */
    bytes: number;
    /**
     * floating-point operations of its products, 2 for each multiplication; 0 where there are none
     */
    flops: number;
    /**
     * which of its dispatches does them
     */
    main: number;
};
/**
 * Where the time of a call went.
 */
export type LineTime = {
    /**
     * the line of the program
     */
    origin: string;
    /**
     * what runs there
     */
    operations: string;
    /**
     * how many
     */
    dispatches: number;
    /**
     * on the device
     */
    microseconds: number;
    /**
     * floating-point operations of products, 2 for each multiplication; 0 where there are none
     */
    flops: number;
};
