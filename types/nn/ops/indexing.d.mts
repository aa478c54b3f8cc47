// Made by `npm run types` from nn/; do not edit.
/**
 * y[..., k, ...] = x[..., index[..., k, ...], ...]. With `last` of a scatter, elements that were not taken there are 0: the gradient of
 * its source.
 */
export const gather: import("./registry.mjs").Op;
/** x, with source[..., k, ...] added at [..., index[..., k, ...], ...]: the gradient of a gather. */
export const scatterAdd: import("./registry.mjs").Op;
/** x, with source[..., k, ...] in place of [..., index[..., k, ...], ...]: of several the last. */
export const scatter: import("./registry.mjs").Op;
export const argmax: import("./registry.mjs").Op;
export const argmin: import("./registry.mjs").Op;
export type Layout = import("../layout.mjs").Layout;
export type Reference = import("./registry.mjs").Reference;
