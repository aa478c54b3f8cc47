// Made by `npm run types` from nn/; do not edit.
/** @param {Map<Storage, Allocation>} memory that {@link Graph.reserve} took */
export function giveBack(memory: Map<Storage, Allocation>): void;
/** @typedef {import('../runtime.mjs').Allocation} Allocation */
/** @typedef {import('../runtime.mjs').Sink} Sink */
/** @typedef {import('./arguments.mjs').Slot} Slot */
/** @typedef {import('./recording.mjs').Recording} Recording */
/** How graphs are made. @typedef {{ passes: readonly import('../passes/index.mjs').PassName[], graph: boolean }} GraphOptions */
export class Graph {
    /**
     * @param {Recording} recording of the function @param {Storage[]} inputs memory that arguments are copied to
     * @param {any} result of the function: its tensors, which no scope knows
     * @param {GraphOptions} options
     */
    constructor(recording: Recording, inputs: Storage[], result: any, { passes, graph }: GraphOptions);
    device: import("../runtime.mjs").Runtime;
    recording: import("./recording.mjs").Recording;
    inputs: Storage[];
    result: any;
    /** Gradients after the call. */
    gradientsAfter: (readonly [Tensor, Tensor | undefined])[];
    /** Storages from before that the call writes. */
    written: Storage[];
    /** Copies of parameters that the call leaves up to date. A shuffled one goes with that in natural order. */
    copiesAfter: import("../optim/half-copy.mjs").ParameterCopy[];
    packed: ArrayBuffer;
    dispatches: number;
    steps: import("../explain.mjs").Step[];
    found: Record<string, number>;
    bytes: {
        unplanned: number;
        planned: number;
    };
    memory: import("./build.mjs").GraphMemory;
    /** The recorded graph; without one, the list is submitted in each call. @type {number | undefined} */
    handle: number | undefined;
    /** Records the graph. */
    record(): void;
    /** Submits the list of dispatches. A profile that is on is told what they do. */
    submit(): void;
    /** Whether everything that the trace relied on is as it was. */
    holds(): boolean;
    /** Copies arguments to where the graph reads them, and has 16-bit copies of parameters hold what these hold. @param {Slot[]} slots */
    fill(slots: Slot[]): void;
    launch(): void;
    /** Runs the graph's dispatches with timestamps around each. @returns {import('../explain.mjs').LineTime[]} */
    profile(): import("../explain.mjs").LineTime[];
    /** What is different after a launch. */
    launched(): void;
    /**
     * Memory for the results of a call. It is taken before the launch, so that a call that finds none has done nothing.
     * @param {boolean} reuse whether that is where the graph leaves them
     * @returns {Map<Storage, Allocation>} by the storages of the results that are computed here
     */
    reserve(reuse: boolean): Map<Storage, Allocation>;
    /**
     * The result of the last launch, in memory that was reserved for it; of its tensors, `made` are those that are new. What was there
     * before the trace is itself, and a view of that is one.
     * @param {Map<Storage, Allocation>} memory
     * @returns {{ result: any, made: Tensor[] }}
     */
    take(memory: Map<Storage, Allocation>): {
        result: any;
        made: Tensor[];
    };
    /** Gives back the recorded graph and its memory. */
    free(): void;
    dispose(): void;
}
export type Allocation = import("../runtime.mjs").Allocation;
export type Sink = import("../runtime.mjs").Sink;
export type Slot = import("./arguments.mjs").Slot;
export type Recording = import("./recording.mjs").Recording;
/**
 * How graphs are made.
 */
export type GraphOptions = {
    passes: readonly import("../passes/index.mjs").PassName[];
    graph: boolean;
};
import { Storage } from '../storage.mjs';
import { Tensor } from '../tensor.mjs';
