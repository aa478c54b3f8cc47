// Test cases of operations: convolutions and pools.

/** @type {Record<string, () => import('./inputs.mjs').Case>} */
export const cases = {};
