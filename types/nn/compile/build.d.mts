// Made by `npm run types` from nn/; do not edit.
/** @typedef {import('../runtime.mjs').Allocation} Allocation */
/** @typedef {import('../passes/calls.mjs').Call} Call */
/** @typedef {import('../passes/index.mjs').PassName} PassName */
/** @typedef {import('./recording.mjs').Recording} Recording */
/** A result of a trace: its bytes, and the first and the last call that use it. @typedef {{ bytes: number, first: number, last: number }} Life */
/** Memory of a graph: what it shares with others, and that of the call's results, which is its own. @typedef {{ shared: Allocation[], own: Allocation[] }} GraphMemory */
/**
 * What is built of a trace.
 * @typedef {object} Built
 * @property {ArrayBuffer} packed the dispatches
 * @property {number} dispatches how many
 * @property {import('../explain.mjs').Step[]} steps what they do
 * @property {Record<string, number>} found what passes found, and how often
 * @property {{ unplanned: number, planned: number }} bytes of all results by themselves, and as they share memory
 * @property {GraphMemory} memory to be given back by `freeMemory`
 */
/**
 * @param {Recording} recording @param {Set<Allocation>} outputs memory of what the function returns
 * @param {readonly PassName[]} passes
 * @returns {Built}
 */
export function build(recording: Recording, outputs: Set<Allocation>, passes: readonly PassName[]): Built;
/** Gives back the memory of a graph. @param {import('../runtime.mjs').Runtime} device that it is of @param {GraphMemory} memory emptied */
export function freeMemory(device: import("../runtime.mjs").Runtime, { shared, own }: GraphMemory): void;
export type Allocation = import("../runtime.mjs").Allocation;
export type Call = import("../passes/calls.mjs").Call;
export type PassName = import("../passes/index.mjs").PassName;
export type Recording = import("./recording.mjs").Recording;
/**
 * A result of a trace: its bytes, and the first and the last call that use it.
 */
export type Life = {
    bytes: number;
    first: number;
    last: number;
};
/**
 * Memory of a graph: what it shares with others, and that of the call's results, which is its own.
 */
export type GraphMemory = {
    shared: Allocation[];
    own: Allocation[];
};
/**
 * What is built of a trace.
 */
export type Built = {
    /**
     * the dispatches
     */
    packed: ArrayBuffer;
    /**
     * how many
     */
    dispatches: number;
    /**
     * what they do
     */
    steps: import("../explain.mjs").Step[];
    /**
     * what passes found, and how often
     */
    found: Record<string, number>;
    /**
     * of all results by themselves, and as they share memory
     */
    bytes: {
        unplanned: number;
        planned: number;
    };
    /**
     * to be given back by `freeMemory`
     */
    memory: GraphMemory;
};
