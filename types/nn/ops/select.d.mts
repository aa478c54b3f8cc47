// Made by `npm run types` from nn/; do not edit.
export const eq: import("./registry.mjs").Op;
export const ne: import("./registry.mjs").Op;
export const lt: import("./registry.mjs").Op;
export const le: import("./registry.mjs").Op;
export const gt: import("./registry.mjs").Op;
export const ge: import("./registry.mjs").Op;
/** Of each two elements the first where the condition holds, else the second. */
export const where: import("./registry.mjs").Op;
