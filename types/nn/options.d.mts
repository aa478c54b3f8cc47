// Made by `npm run types` from nn/; do not edit.
/**
 * The options, checked to be an object of known names.
 * @template {object} T
 * @param {string} op the call, for the error
 * @param {T} options
 * @param {readonly string[]} names those that the call has
 * @returns {T}
 * @throws an ArgumentError that names what is not an option, and what there is
 */
export function checkOptions<T extends object>(op: string, options: T, names: readonly string[]): T;
