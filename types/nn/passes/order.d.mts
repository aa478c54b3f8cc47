// Made by `npm run types` from nn/; do not edit.
/**
 * The calls that each call depends on: those that write what it touches, and those that read what it writes. Others follow from
 * these.
 * @param {Call[]} calls
 * @returns {Set<number>[]}
 */
export function dependences(calls: Call[]): Set<number>[];
export type Call = import("./calls.mjs").Call;
export type Allocation = import("../runtime.mjs").Allocation;
/**
 * Bytes of an allocation from `start` to `end` that a call reads or writes.
 */
export type Access = {
    call: number;
    start: number;
    end: number;
};
