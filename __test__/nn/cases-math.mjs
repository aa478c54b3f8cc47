// Test cases of operations: functions of one and two elements.

/** @type {Record<string, () => import('./inputs.mjs').Case>} */
export const cases = {};
