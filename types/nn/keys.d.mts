// Made by `npm run types` from nn/; do not edit.
/** Attributes of an operation as a key. Numbers, strings and arrays of them are most of all, and JSON takes ten times as long. @param {any} attributes */
export function keyOf(attributes: any): string;
