// Test cases of operations: integers.

/** @type {Record<string, () => import('./inputs.mjs').Case>} */
export const cases = {};
