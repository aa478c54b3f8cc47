// Test cases of operations: scans, sorting and choice.

/** @type {Record<string, () => import('./inputs.mjs').Case>} */
export const cases = {};
