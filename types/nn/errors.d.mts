// Made by `npm run types` from nn/; do not edit.
/** The line of the user's program that is running, as `model.mjs:12`. @returns {string | undefined} */
export function callerLine(): string | undefined;
/**
 * Cuts the frames of this folder off an error's stack and names the caller's line at the end of its message.
 * @template {Error} T
 * @param {T} error
 * @returns {T}
 */
export function atCaller<T extends Error>(error: T): T;
/** Sizes that do not go together. `op` is the operation's name. */
export class ShapeError extends RangeError {
    /** @param {string} op @param {string} what */
    constructor(op: string, what: string);
    code: string;
    op: string;
}
/** An element type, or an argument, that the operation does not take. */
export class ArgumentError extends TypeError {
    /** @param {string} op @param {string} what */
    constructor(op: string, what: string);
    code: string;
    op: string;
}
/** A call that is right in itself and made at the wrong time: a tensor after `dispose`, a second `backward`. */
export class UsageError extends Error {
    /** @param {string} op @param {string} what */
    constructor(op: string, what: string);
    code: string;
    op: string;
}
/** A shape as messages show it. @param {readonly number[]} shape */
export function show(shape: readonly number[]): string;
