// Made by `npm run types` from nn/; do not edit.
/** JSON that tells every two numbers apart. @param {unknown} value @returns {string} */
export function exact(value: unknown): string;
