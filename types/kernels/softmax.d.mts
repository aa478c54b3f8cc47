// Made by `npm run types` from kernels/; do not edit.
/**
 * @typedef {object} CrossEntropy
 * @property {Tensor} logits [rows, rowStride] of `type`; overwritten by the gradient unless that has a tensor of its own
 * @property {Tensor} targets [rows] u32
 * @property {Tensor} loss out: [rows] f32, in nats; 0 for a row that is left out
 * @property {number} rows number of rows
 * @property {number} columns size of the vocabulary
 * @property {number} [rowStride] elements from row to row, `columns` when left out; the columns past the vocabulary
 *   take no part, and their gradient is 0
 * @property {number} [scale] factor on the gradient, for example 1 / (rows · microSteps); 1 when left out
 * @property {Tensor} [gradient] out: [rows, rowStride] of `gradientType`, for f32 logits, which then stay
 * @property {DType} [gradientType] needed with `gradient`
 * @property {number} [ignored] target of rows to leave out; 0xffffffff when left out
 * @property {DType} [type] f32 when left out
 */
/** @param {KernelContext} context */
export function softmaxKernels(context: KernelContext): {
    /**
     * y = softmax(scale · x) of each row; y may be x.
     * @param {object} args
     * @param {Tensor} args.x [rows, columns] of `type`
     * @param {Tensor} args.y out: [rows, columns] of `type`
     * @param {number} args.rows number of rows
     * @param {number} args.columns elements of a row; even for 16-bit types
     * @param {number} [args.scale] 1 when left out
     * @param {DType} [args.type] f32 when left out
     * @returns {Dispatch}
     */
    softmaxForward: (args: {
        /** [rows, columns] of `type` */
        x: Tensor;
        /** out: [rows, columns] of `type` */
        y: Tensor;
        /** number of rows */
        rows: number;
        /** elements of a row; even for 16-bit types */
        columns: number;
        /** 1 when left out */
        scale?: number | undefined;
        /** f32 when left out */
        type?: import("./base.mjs").DType | undefined;
    }) => Dispatch;
    /**
     * dx = scale · y · (dy - Σ dy · y) of each row, from the forward pass's output; dx may be y or dy.
     * @param {object} args
     * @param {Tensor} args.y [rows, columns] of `type`, the forward pass's output
     * @param {Tensor} args.dy [rows, columns] of `type`, its gradient
     * @param {Tensor} args.dx out: [rows, columns] of `type`
     * @param {number} args.rows number of rows
     * @param {number} args.columns elements of a row; even for 16-bit types
     * @param {number} [args.scale] the forward pass's; 1 when left out
     * @param {DType} [args.type] f32 when left out
     * @returns {Dispatch}
     */
    softmaxBackward: (args: {
        /** [rows, columns] of `type`, the forward pass's output */
        y: Tensor;
        /** [rows, columns] of `type`, its gradient */
        dy: Tensor;
        /** out: [rows, columns] of `type` */
        dx: Tensor;
        /** number of rows */
        rows: number;
        /** elements of a row; even for 16-bit types */
        columns: number;
        /** the forward pass's; 1 when left out */
        scale?: number | undefined;
        /** f32 when left out */
        type?: import("./base.mjs").DType | undefined;
    }) => Dispatch;
    /**
     * Cross-entropy of each row, loss = log Σ exp(x) - x[target], and in the same pass its gradient, over the logits or
     * into a 16-bit tensor for the matrix units: scale · (softmax(x) - onehot(target)).
     * @param {CrossEntropy} args
     * @returns {Dispatch}
     */
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
    /**
     * number of rows
     */
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
    gradientType?: import("./base.mjs").DType | undefined;
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
export type Extent = import("./check.mjs").Extent;
