// Made by `npm run types` from kernels/; do not edit.
/**
 * The two inputs of a gated unit: either `gateUp`, rows of [gate, up] of 2 · columns, or `gate` and `up` by themselves.
 * @typedef {object} GluForward
 * @property {Tensor} [gateUp] [rows, 2 · columns]
 * @property {Tensor} [gate] [rows, columns]
 * @property {Tensor} [up] [rows, columns]
 * @property {Tensor} y out: [rows, columns]
 * @property {number} rows number of rows
 * @property {number} columns the hidden width; even for 16-bit types
 * @property {Activation} [activation] silu (SwiGLU) when left out
 * @property {DType} [type] of every tensor; f32 when left out
 */
/**
 * @typedef {object} GluBackward
 * @property {Tensor} [gateUp] as in the forward pass
 * @property {Tensor} [gate] [rows, columns]
 * @property {Tensor} [up] [rows, columns]
 * @property {Tensor} dy [rows, columns]
 * @property {Tensor} [dGateUp] out: [rows, 2 · columns], may be `gateUp`
 * @property {Tensor} [dGate] out: [rows, columns], may be `gate`
 * @property {Tensor} [dUp] out: [rows, columns], may be `up`
 * @property {number} rows number of rows
 * @property {number} columns elements of a row
 * @property {Activation} [activation] as in the forward pass
 * @property {DType} [type] of every tensor; f32 when left out
 */
/** @param {KernelContext} context */
export function activationKernels(context: KernelContext): {
    /**
     * y = f(x), element by element; y may be x.
     * @param {object} args
     * @param {Tensor} args.x [count] of `type`
     * @param {Tensor} args.y out: [count] of `type`
     * @param {number} args.count elements; even for 16-bit types
     * @param {Activation} args.activation the function
     * @param {DType} [args.type] f32 when left out
     * @returns {Dispatch}
     */
    activationForward: (args: {
        /** [count] of `type` */
        x: Tensor;
        /** out: [count] of `type` */
        y: Tensor;
        /** elements; even for 16-bit types */
        count: number;
        /** the function */
        activation: Activation;
        /** f32 when left out */
        type?: import("./base.mjs").DType | undefined;
    }) => Dispatch;
    /**
     * dx = dy · f'(x), from the forward pass's input; dx may be x or dy. ReLU's is dy where x > 0, else 0, of a NaN too.
     * @param {object} args
     * @param {Tensor} args.x [count] of `type`, the forward pass's input
     * @param {Tensor} args.dy [count] of `type`, the gradient of y
     * @param {Tensor} args.dx out: [count] of `type`
     * @param {number} args.count elements; even for 16-bit types
     * @param {Activation} args.activation the function
     * @param {DType} [args.type] f32 when left out
     * @returns {Dispatch}
     */
    activationBackward: (args: {
        /** [count] of `type`, the forward pass's input */
        x: Tensor;
        /** [count] of `type`, the gradient of y */
        dy: Tensor;
        /** out: [count] of `type` */
        dx: Tensor;
        /** elements; even for 16-bit types */
        count: number;
        /** the function */
        activation: Activation;
        /** f32 when left out */
        type?: import("./base.mjs").DType | undefined;
    }) => Dispatch;
    /**
     * y = f(gate) · up (Shazeer 2020): SwiGLU unless `activation` says otherwise.
     * @param {GluForward} args
     * @returns {Dispatch}
     */
    gluForward: (args: GluForward) => Dispatch;
    /**
     * dup = dy · f(gate), dgate = dy · up · f'(gate).
     * @param {GluBackward} args
     * @returns {Dispatch}
     */
    gluBackward: (args: GluBackward) => Dispatch;
};
/**
 * The two inputs of a gated unit: either `gateUp`, rows of [gate, up] of 2 · columns, or `gate` and `up` by themselves.
 */
export type GluForward = {
    /**
     * [rows, 2 · columns]
     */
    gateUp?: import("./base.mjs").Tensor | undefined;
    /**
     * [rows, columns]
     */
    gate?: import("./base.mjs").Tensor | undefined;
    /**
     * [rows, columns]
     */
    up?: import("./base.mjs").Tensor | undefined;
    /**
     * out: [rows, columns]
     */
    y: Tensor;
    /**
     * number of rows
     */
    rows: number;
    /**
     * the hidden width; even for 16-bit types
     */
    columns: number;
    /**
     * silu (SwiGLU) when left out
     */
    activation?: Activation | undefined;
    /**
     * of every tensor; f32 when left out
     */
    type?: import("./base.mjs").DType | undefined;
};
export type GluBackward = {
    /**
     * as in the forward pass
     */
    gateUp?: import("./base.mjs").Tensor | undefined;
    /**
     * [rows, columns]
     */
    gate?: import("./base.mjs").Tensor | undefined;
    /**
     * [rows, columns]
     */
    up?: import("./base.mjs").Tensor | undefined;
    /**
     * [rows, columns]
     */
    dy: Tensor;
    /**
     * out: [rows, 2 · columns], may be `gateUp`
     */
    dGateUp?: import("./base.mjs").Tensor | undefined;
    /**
     * out: [rows, columns], may be `gate`
     */
    dGate?: import("./base.mjs").Tensor | undefined;
    /**
     * out: [rows, columns], may be `up`
     */
    dUp?: import("./base.mjs").Tensor | undefined;
    /**
     * number of rows
     */
    rows: number;
    /**
     * elements of a row
     */
    columns: number;
    /**
     * as in the forward pass
     */
    activation?: Activation | undefined;
    /**
     * of every tensor; f32 when left out
     */
    type?: import("./base.mjs").DType | undefined;
};
export type Tensor = import("./base.mjs").Tensor;
export type DType = import("./base.mjs").DType;
export type Dispatch = import("./base.mjs").Dispatch;
export type Binding = import("./base.mjs").Binding;
export type KernelContext = import("./base.mjs").KernelContext;
export type Extent = import("./check.mjs").Extent;
/**
 * `silu` is x · sigmoid(x) (Elfwing et al. 2018), `gelu` the tanh form (Hendrycks & Gimpel 2016).
 */
export type Activation = "identity" | "relu" | "silu" | "gelu" | "tanh" | "sigmoid";
