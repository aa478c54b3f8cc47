// Test cases of operations: other shapes and orders.

/** @type {Record<string, () => import('./inputs.mjs').Case>} */
export const cases = {};
