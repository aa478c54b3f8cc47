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
