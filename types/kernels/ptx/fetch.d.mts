// Made by `npm run types` from kernels/; do not edit.
/** Memory to registers, `ahead` stages before registers to shared memory. @param {Writer} w */
export function fetchRelay(w: Writer): void;
/** Memory to shared memory by cp.async, `ahead` stages open at a time. @param {Writer} w */
export function fetchAsync(w: Writer): void;
export type Writer = import("./writer.mjs").Writer;
export type Mover = ReturnType<typeof mover>;
/** @typedef {import('./writer.mjs').Writer} Writer */
/** @typedef {ReturnType<typeof mover>} Mover */
/**
 * One operand as the warpgroup moves it, chunk by chunk (see `moves`).
 * @param {Writer} w @param {'a' | 'b'} name
 */
declare function mover(w: Writer, name: "a" | "b"): {
    name: "a" | "b";
    major: import("./layout.mjs").Major;
    list: {
        line: number;
        x: number;
        k: number;
    }[];
    bytes: number;
    /** Where this thread's first chunk goes: one place, or one for each word. */
    targets: string[];
    /** Row or column, and depth, of this thread's first chunk in the tile. */
    x: string;
    k: string;
    /** Bytes from line to line in memory. */
    ldBytes: string;
    /** Bytes from `address`, for each chunk; they stay the same throughout a tile. */
    offsets: string[];
    address: string;
    /** Bytes from stage to stage. */
    step: string;
};
export {};
