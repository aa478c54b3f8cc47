// Made by `npm run types` from nn/; do not edit.
/** softmax(scale · x) over the last dimension. */
export const softmax: import("./registry.mjs").Op;
/** log Σ exp(x) - x[target] for each row, f32; 0 where the target is `ignored`. */
export const crossEntropyRows: import("./registry.mjs").Op;
/** x / sqrt(mean(x²) + eps) · weight over the last dimension (Zhang & Sennrich 2019). */
export const rmsNorm: import("./registry.mjs").Op;
/** (x - mean) / sqrt(var + eps) · weight + bias over the last dimension (Ba et al. 2016). */
export const layerNorm: import("./registry.mjs").Op;
/** Activations of gated units. @type {Record<string, (x: number) => number>} */
export const GATES: Record<string, (x: number) => number>;
/** f(gate) · up of rows [gate | up] (Shazeer 2020). */
export const glu: import("./registry.mjs").Op;
/** The rows of a table by number. An id outside of the table reads as zeros. */
export const embedding: import("./registry.mjs").Op;
/**
 * Elements dropped with probability p, the others divided by 1 - p. The second input is the random state, which moves on
 * by one; what was drawn with is kept for the backward pass.
 */
export const dropout: import("./registry.mjs").Op;
export type Layout = import("../layout.mjs").Layout;
export type Reference = import("./registry.mjs").Reference;
export type Tensor = import("../tensor.mjs").Tensor;
