// Made by `npm run types` from kernels/; do not edit.
/** @typedef {import('../base.mjs').Tensor} Tensor */
/** @typedef {import('../base.mjs').DType} DType */
/** @typedef {import('../base.mjs').Dispatch} Dispatch */
/** @typedef {import('../base.mjs').KernelContext} KernelContext */
/** @typedef {import('../activation.mjs').Activation} Activation */
/** @typedef {import('../check.mjs').Extent} Extent */
/** @typedef {import('../matmul.mjs').MatmulArgs} MatmulArgs */
/** @typedef {import('../matmul.mjs').MatmulPlan} MatmulPlan */
/** @typedef {import('../matmul.mjs').Precision} Precision */
/**
 * What both passes take.
 * @typedef {object} GluProduct
 * @property {number} m rows
 * @property {number} columns the hidden width; even for 16-bit types
 * @property {number} k inner size of the product
 * @property {DType} [type] of every tensor; f32 when left out
 * @property {Precision} [precision] of the product, as in `matmul`
 * @property {Activation} [activation] silu (SwiGLU) when left out
 * @property {boolean} [bShuffled] `b`'s rows are shuffled, as in `matmul`; `columns` must then be a multiple of 32
 * @property {Partial<MatmulPlan>} [plan] of the product, as in `matmul`; with `kernel: 'ptx'` it is an error where one kernel cannot
 *   do both
 */
/**
 * @typedef {object} GluForwardTensors
 * @property {Tensor} a [m, k]
 * @property {Tensor} b [2 · columns, k], the weights of the gates and then those of the ups
 * @property {Tensor} gateUp out: [m, 2 · columns], rows of [gate, up]
 * @property {Tensor} y out: [m, columns]
 */
/**
 * @typedef {object} GluBackwardTensors
 * @property {Tensor} a [m, k], the gradient of what follows
 * @property {Tensor} b [k, columns], the weights by which it follows
 * @property {Tensor} gateUp [m, 2 · columns], rows of [gate, up]
 * @property {Tensor} dGateUp out: [m, 2 · columns], not `gateUp`
 * @property {Tensor} dy out: [m, columns], the product, where that is a pass of its own; where it is not nobody touches it
 */
/**
 * @param {KernelContext} context
 * @param {(args: MatmulArgs) => Dispatch[]} matmul
 * @param {ReturnType<typeof import('./ptx.mjs').ptxProducts>} ptx
 * @param {(args: any) => any} problemOf the checked problem of a product's arguments
 */
export function gluProducts(context: KernelContext, matmul: (args: MatmulArgs) => Dispatch[], ptx: ReturnType<typeof import("./ptx.mjs").ptxProducts>, problemOf: (args: any) => any): {
    /** See `matmulKernels`. @param {GluProduct & GluForwardTensors} args @returns {Dispatch[]} */
    matmulGlu: (args: GluProduct & GluForwardTensors) => Dispatch[];
    /** See `matmulKernels`. @param {GluProduct & GluBackwardTensors} args @returns {Dispatch[]} */
    matmulGluBackward: (args: GluProduct & GluBackwardTensors) => Dispatch[];
};
export type Tensor = import("../base.mjs").Tensor;
export type DType = import("../base.mjs").DType;
export type Dispatch = import("../base.mjs").Dispatch;
export type KernelContext = import("../base.mjs").KernelContext;
export type Activation = import("../activation.mjs").Activation;
export type Extent = import("../check.mjs").Extent;
export type MatmulArgs = import("../matmul.mjs").MatmulArgs;
export type MatmulPlan = import("../matmul.mjs").MatmulPlan;
export type Precision = import("../matmul.mjs").Precision;
/**
 * What both passes take.
 */
export type GluProduct = {
    /**
     * rows
     */
    m: number;
    /**
     * the hidden width; even for 16-bit types
     */
    columns: number;
    /**
     * inner size of the product
     */
    k: number;
    /**
     * of every tensor; f32 when left out
     */
    type?: import("../base.mjs").DType | undefined;
    /**
     * of the product, as in `matmul`
     */
    precision?: import("../matmul.mjs").Precision | undefined;
    /**
     * silu (SwiGLU) when left out
     */
    activation?: import("../activation.mjs").Activation | undefined;
    /**
     * `b`'s rows are shuffled, as in `matmul`; `columns` must then be a multiple of 32
     */
    bShuffled?: boolean | undefined;
    /**
     * of the product, as in `matmul`; with `kernel: 'ptx'` it is an error where one kernel cannot
     * do both
     */
    plan?: Partial<import("../matmul.mjs").MatmulPlan> | undefined;
};
export type GluForwardTensors = {
    /**
     * [m, k]
     */
    a: Tensor;
    /**
     * [2 · columns, k], the weights of the gates and then those of the ups
     */
    b: Tensor;
    /**
     * out: [m, 2 · columns], rows of [gate, up]
     */
    gateUp: Tensor;
    /**
     * out: [m, columns]
     */
    y: Tensor;
};
export type GluBackwardTensors = {
    /**
     * [m, k], the gradient of what follows
     */
    a: Tensor;
    /**
     * [k, columns], the weights by which it follows
     */
    b: Tensor;
    /**
     * [m, 2 · columns], rows of [gate, up]
     */
    gateUp: Tensor;
    /**
     * out: [m, 2 · columns], not `gateUp`
     */
    dGateUp: Tensor;
    /**
     * out: [m, columns], the product, where that is a pass of its own; where it is not nobody touches it
     */
    dy: Tensor;
};
