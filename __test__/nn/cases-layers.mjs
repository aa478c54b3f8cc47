// Test cases of operations: losses, norms and layers.

/** @type {Record<string, () => import('./inputs.mjs').Case>} */
export const cases = {};
