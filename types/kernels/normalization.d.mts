// Made by `npm run types` from kernels/; do not edit.
/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./base.mjs').DType} DType */
/** @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').KernelContext} KernelContext */
/** @typedef {import('./check.mjs').Extent} Extent */
/**
 * @typedef {object} RmsNormForward
 * @property {Tensor} x [rows, columns] of `type`; with `residual`, of `outType`
 * @property {Tensor} y out: [rows, columns] of `outType`
 * @property {Tensor} weight [columns] f32
 * @property {Tensor} stats out: [rows] f32, 1 / rms of each row, for the backward pass
 * @property {number} rows number of rows
 * @property {number} columns even where a 16-bit type takes part
 * @property {number} [eps] added to the mean square; 1e-5 when left out
 * @property {DType} [type] of the residual stream; f32 when left out
 * @property {DType} [outType] of y; `type` when left out
 * @property {Tensor} [residual] [rows, columns] of `type`, added to x first
 * @property {Tensor} [sum] out: [rows, columns] of `type`, x + residual; needed with `residual`, may be `residual`
 */
/**
 * @typedef {object} LayerNormBias
 * @property {Tensor} bias [columns] f32
 */
/**
 * `stats` is [rows, 2] f32 here: mean and 1 / standard deviation.
 * @typedef {RmsNormForward & LayerNormBias} LayerNormForward
 */
/**
 * @typedef {object} RmsNormBackward
 * @property {Tensor} dy [rows, columns] of `outType`, the gradient of y
 * @property {Tensor} x [rows, columns] of `type`: what was normalized (`sum` of the fused forward)
 * @property {Tensor} weight [columns] f32
 * @property {Tensor} stats from the forward pass
 * @property {Tensor} dx out: [rows, columns] of `type`
 * @property {Tensor} [dWeight] in and out: [columns] f32; needed without `blockSums`
 * @property {number} rows number of rows
 * @property {number} columns elements of a row
 * @property {number} [beta] dWeight = beta * dWeight + gradient; 0 (overwrite) when left out
 * @property {Tensor} [residual] [rows, columns] of `type`, added to dx: the gradient that flows past the
 *   normalization; may be `dx`
 * @property {Tensor} [copy] out: dx once more, of `outType`; only where the types differ
 * @property {DType} [type] of the residual stream; f32 when left out
 * @property {DType} [outType] of dy; `type` when left out
 * @property {Tensor} [workspace] f32, at least `normWorkspace(…)` elements; the kernels' own when left out
 * @property {Tensor} [blockSums] out: [normBlocks(…), blockStride] f32, of which `columns` are written: the weight's
 *   gradient as a sum for each block of rows. Instead of dWeight, for the caller to add up by one `columnSum` over
 *   many normalizations that lie side by side in the rows of one tensor
 * @property {number} [blockStride] elements from block to block of `blockSums`; `columns` when left out (LayerNorm:
 *   2 · columns)
 */
/**
 * @typedef {object} LayerNormBiasGradient
 * @property {Tensor} [dBias] in and out: [columns] f32, like dWeight
 */
/**
 * A row of `blockSums` holds the weight's sums and then the bias's here.
 * @typedef {RmsNormBackward & LayerNormBiasGradient} LayerNormBackward
 */
/** @param {KernelContext} context */
export function normalizationKernels(context: KernelContext): {
    /**
     * Elements of f32 workspace that a backward pass needs.
     * @param {object} args
     * @param {number} args.rows number of rows
     * @param {number} args.columns elements of a row
     * @param {boolean} [args.bias] for LayerNorm
     * @returns {number}
     */
    normWorkspace: ({ rows, columns, bias }: {
        /** number of rows */
        rows: number;
        /** elements of a row */
        columns: number;
        /** for LayerNorm */
        bias?: boolean | undefined;
    }) => number;
    /**
     * Blocks of rows whose sums a backward pass leaves.
     * @param {object} args
     * @param {number} args.rows number of rows
     * @returns {number}
     */
    normBlocks: ({ rows }: {
        /** number of rows */
        rows: number;
    }) => number;
    /**
     * RMSNorm (Zhang & Sennrich 2019) of each row: y = r / sqrt(mean(r²) + eps) · weight, with r = x, or x + residual.
     * @param {RmsNormForward} args
     * @returns {Dispatch}
     */
    rmsNormForward: (args: RmsNormForward) => Dispatch;
    /**
     * LayerNorm (Ba et al. 2016) of each row, with the biased variance: y = (r - mean) / sqrt(var + eps) · weight +
     * bias, with r = x, or x + residual.
     * @param {LayerNormForward} args
     * @returns {Dispatch}
     */
    layerNormForward: (args: LayerNormForward) => Dispatch;
    /**
     * Gradients of RMSNorm: dx (plus `residual`), and the weight's by sums over blocks of rows, added in a fixed order.
     * @param {RmsNormBackward} args
     * @returns {Dispatch[]}
     */
    rmsNormBackward: (args: RmsNormBackward) => Dispatch[];
    /**
     * Gradients of LayerNorm: dx (plus `residual`), and the weight's and bias's by sums over blocks of rows, added in a
     * fixed order.
     * @param {LayerNormBackward} args
     * @returns {Dispatch[]}
     */
    layerNormBackward: (args: LayerNormBackward) => Dispatch[];
};
export type Tensor = import("./base.mjs").Tensor;
export type DType = import("./base.mjs").DType;
export type Dispatch = import("./base.mjs").Dispatch;
export type KernelContext = import("./base.mjs").KernelContext;
export type Extent = import("./check.mjs").Extent;
export type RmsNormForward = {
    /**
     * [rows, columns] of `type`; with `residual`, of `outType`
     */
    x: Tensor;
    /**
     * out: [rows, columns] of `outType`
     */
    y: Tensor;
    /**
     * [columns] f32
     */
    weight: Tensor;
    /**
     * out: [rows] f32, 1 / rms of each row, for the backward pass
     */
    stats: Tensor;
    /**
     * number of rows
     */
    rows: number;
    /**
     * even where a 16-bit type takes part
     */
    columns: number;
    /**
     * added to the mean square; 1e-5 when left out
     */
    eps?: number | undefined;
    /**
     * of the residual stream; f32 when left out
     */
    type?: import("./base.mjs").DType | undefined;
    /**
     * of y; `type` when left out
     */
    outType?: import("./base.mjs").DType | undefined;
    /**
     * [rows, columns] of `type`, added to x first
     */
    residual?: import("./base.mjs").Tensor | undefined;
    /**
     * out: [rows, columns] of `type`, x + residual; needed with `residual`, may be `residual`
     */
    sum?: import("./base.mjs").Tensor | undefined;
};
export type LayerNormBias = {
    /**
     * [columns] f32
     */
    bias: Tensor;
};
/**
 * `stats` is [rows, 2] f32 here: mean and 1 / standard deviation.
 */
export type LayerNormForward = RmsNormForward & LayerNormBias;
export type RmsNormBackward = {
    /**
     * [rows, columns] of `outType`, the gradient of y
     */
    dy: Tensor;
    /**
     * [rows, columns] of `type`: what was normalized (`sum` of the fused forward)
     */
    x: Tensor;
    /**
     * [columns] f32
     */
    weight: Tensor;
    /**
     * from the forward pass
     */
    stats: Tensor;
    /**
     * out: [rows, columns] of `type`
     */
    dx: Tensor;
    /**
     * in and out: [columns] f32; needed without `blockSums`
     */
    dWeight?: import("./base.mjs").Tensor | undefined;
    /**
     * number of rows
     */
    rows: number;
    /**
     * elements of a row
     */
    columns: number;
    /**
     * dWeight = beta * dWeight + gradient; 0 (overwrite) when left out
     */
    beta?: number | undefined;
    /**
     * [rows, columns] of `type`, added to dx: the gradient that flows past the
     * normalization; may be `dx`
     */
    residual?: import("./base.mjs").Tensor | undefined;
    /**
     * out: dx once more, of `outType`; only where the types differ
     */
    copy?: import("./base.mjs").Tensor | undefined;
    /**
     * of the residual stream; f32 when left out
     */
    type?: import("./base.mjs").DType | undefined;
    /**
     * of dy; `type` when left out
     */
    outType?: import("./base.mjs").DType | undefined;
    /**
     * f32, at least `normWorkspace(…)` elements; the kernels' own when left out
     */
    workspace?: import("./base.mjs").Tensor | undefined;
    /**
     * out: [normBlocks(…), blockStride] f32, of which `columns` are written: the weight's
     * gradient as a sum for each block of rows. Instead of dWeight, for the caller to add up by one `columnSum` over
     * many normalizations that lie side by side in the rows of one tensor
     */
    blockSums?: import("./base.mjs").Tensor | undefined;
    /**
     * elements from block to block of `blockSums`; `columns` when left out (LayerNorm:
     * 2 · columns)
     */
    blockStride?: number | undefined;
};
export type LayerNormBiasGradient = {
    /**
     * in and out: [columns] f32, like dWeight
     */
    dBias?: import("./base.mjs").Tensor | undefined;
};
/**
 * A row of `blockSums` holds the weight's sums and then the bias's here.
 */
export type LayerNormBackward = RmsNormBackward & LayerNormBiasGradient;
