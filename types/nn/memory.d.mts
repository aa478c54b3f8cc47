// Made by `npm run types` from nn/; do not edit.
/**
 * Slots for values that live from one dispatch to another. Two values share a slot only if one is dead before the other is
 * first written; best fit, in the order of first use.
 * @param {{ bytes: number, first: number, last: number }[]} values `first` and `last`: dispatches that use it, inclusive
 * @returns {{ slots: number[], of: number[] }} bytes of each slot, and each value's slot
 */
export function planMemory(values: {
    bytes: number;
    first: number;
    last: number;
}[]): {
    slots: number[];
    of: number[];
};
/** @typedef {import('./runtime.mjs').Allocation} Allocation */
/** Memory of intermediate results that graphs share: they run one after another, and none reads what another has left there. */
export class SharedSlots {
    /** @param {(bytes: number) => Allocation} allocate @param {(allocation: Allocation) => void} release */
    constructor(allocate: (bytes: number) => Allocation, release: (allocation: Allocation) => void);
    allocate: (bytes: number) => Allocation;
    release: (allocation: Allocation) => void;
    /** Graphs that use each. @type {Map<Allocation, number>} */
    users: Map<Allocation, number>;
    /**
     * Memory for a graph's slots, each by itself: the smallest that is there and large enough, or more. All or nothing.
     * @param {number[]} sizes in bytes
     * @returns {Allocation[]}
     */
    take(sizes: number[]): Allocation[];
    /** Gives back what a graph took; the last one that does frees it. @param {Allocation[]} slots */
    giveBack(slots: Allocation[]): void;
}
export type Allocation = import("./runtime.mjs").Allocation;
