// Made by `npm run types` from kernels/; do not edit.
/**
 * @typedef {object} CrossEntropy
 * @property {Tensor} logits [rows, rowStride] of `type`; overwritten by the gradient unless that has a tensor of its own
 * @property {Tensor} targets [rows] u32
 * @property {Tensor} loss out: [rows] f32, in nats; 0 for a row that is left out
 * @property {number} rows
 * @property {number} columns size of the vocabulary
 * @property {number} [rowStride] elements from row to row, `columns` when left out; the columns past the vocabulary
 *   take no part, and their gradient is 0
 * @property {number} [scale] factor on the gradient, for example 1 / (rows · microSteps); 1 when left out
 * @property {Tensor} [gradient] out: [rows, rowStride] of `gradientType`, for f32 logits, which then stay
 * @property {'f16' | 'bf16'} [gradientType] needed with `gradient`
 * @property {number} [ignored] target of rows to leave out; 0xffffffff when left out
 * @property {DType} [type] f32 when left out
 */
/** @param {KernelContext} context */
export function softmaxKernels(context: KernelContext): {
    /**
     * y = softmax(scale · x) of each row; y may be x.
     * @param {{ x: Tensor, y: Tensor, rows: number, columns: number, scale?: number, type?: DType }} args
     * @returns {Dispatch}
     */
    softmaxForward: (args: {
        x: Tensor;
        y: Tensor;
        rows: number;
        columns: number;
        scale?: number;
        type?: DType;
    }) => Dispatch;
    /**
     * dx = scale · y · (dy - Σ dy · y) of each row, from the forward pass's output; dx may be y or dy.
     * @param {{ y: Tensor, dy: Tensor, dx: Tensor, rows: number, columns: number, scale?: number, type?: DType }} args
     * @returns {Dispatch}
     */
    softmaxBackward: (args: {
        y: Tensor;
        dy: Tensor;
        dx: Tensor;
        rows: number;
        columns: number;
        scale?: number;
        type?: DType;
    }) => Dispatch;
    /**
     * Cross-entropy of each row, loss = log Σ exp(x) - x[target], and in the same pass its gradient, over the logits or
     * into a 16-bit tensor for the matrix units: scale · (softmax(x) - onehot(target)).
     * @param {CrossEntropy} args
     * @returns {Dispatch}
     */
    /** @param {string} kernel @param {CrossEntropy} args @param {boolean} gradient @returns {Dispatch} */
    crossEntropy: (args: CrossEntropy) => Dispatch;
    /**
     * The losses alone; the logits stay.
     * @param {Omit<CrossEntropy, 'scale' | 'gradient' | 'gradientType'>} args
     * @returns {Dispatch}
     */
    crossEntropyForward: (args: Omit<CrossEntropy, "scale" | "gradient" | "gradientType">) => Dispatch;
};
export type CrossEntropy = {
    /**
     * [rows, rowStride] of `type`; overwritten by the gradient unless that has a tensor of its own
     */
    logits: Tensor;
    /**
     * [rows] u32
     */
    targets: Tensor;
    /**
     * out: [rows] f32, in nats; 0 for a row that is left out
     */
    loss: Tensor;
    rows: number;
    /**
     * size of the vocabulary
     */
    columns: number;
    /**
     * elements from row to row, `columns` when left out; the columns past the vocabulary
     * take no part, and their gradient is 0
     */
    rowStride?: number | undefined;
    /**
     * factor on the gradient, for example 1 / (rows · microSteps); 1 when left out
     */
    scale?: number | undefined;
    /**
     * out: [rows, rowStride] of `gradientType`, for f32 logits, which then stay
     */
    gradient?: import("./base.mjs").Tensor | undefined;
    /**
     * needed with `gradient`
     */
    gradientType?: "f16" | "bf16" | undefined;
    /**
     * target of rows to leave out; 0xffffffff when left out
     */
    ignored?: number | undefined;
    /**
     * f32 when left out
     */
    type?: import("./base.mjs").DType | undefined;
};
export type Tensor = import("./base.mjs").Tensor;
export type DType = import("./base.mjs").DType;
export type Dispatch = import("./base.mjs").Dispatch;
export type KernelContext = import("./base.mjs").KernelContext;
