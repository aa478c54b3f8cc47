// Made by `npm run types` from nn/; do not edit.
/** A dense copy of a tensor of any strides. */
export const copy: import("./registry.mjs").Op;
/** The elements in another type. */
export const cast: import("./registry.mjs").Op;
/** A value everywhere. */
export const fill: import("./registry.mjs").Op;
/** The same elements in another shape. */
export const reshape: import("./registry.mjs").Op;
/** The dimensions in another order. */
export const permute: import("./registry.mjs").Op;
/** Repeated to a larger shape without a copy. */
export const expand: import("./registry.mjs").Op;
/** `length` elements of a dimension from `start` on, `step` apart. */
export const slice: import("./registry.mjs").Op;
/** Tensors end to end along a dimension. */
export const concat: import("./registry.mjs").Op;
/** Writes into a tensor of any strides: the first input is what is written over, the second what is written. */
export const write: import("./registry.mjs").Op;
export type Layout = import("../layout.mjs").Layout;
export type Operand = import("./registry.mjs").Operand;
export type Kernels = import("../../kernels/index.mjs").Kernels;
