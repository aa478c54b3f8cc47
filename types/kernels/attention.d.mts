// Made by `npm run types` from kernels/; do not edit.
/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./base.mjs').DType} DType */
/** @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').KernelContext} KernelContext */
/**
 * Tiling of an attention kernel, in rows.
 * @typedef {object} AttentionPlan
 * @property {number} held rows that a workgroup holds
 * @property {number} walked rows that it walks over at a time
 * @property {number} [threads] f32: invocations of a workgroup
 * @property {{ m: number, n: number, k: number }} [shape] matrix units: the instruction
 * @property {'register' | 'scratch'} [kernel] matrix units: where scores live; `register` where the device can
 * @property {number} [group] register, backward: fragments of walked rows worked on at a time
 */
/**
 * Where a driver puts the elements of an accumulator and of a left operand, if alike and by bits: bit b of a lane's
 * number (of a component's) moves the element down or right by 2^(n - 1), where n is hexadecimal digit b; 0: not at all.
 * @typedef {object} LaneMap
 * @property {number} laneRows
 * @property {number} laneColumns
 * @property {number} partRows
 * @property {number} partColumns
 * @property {number} own rows that a lane has components of
 */
/**
 * @typedef {object} AttentionArgs
 * @property {Tensor} [qkv] fused [batch, tokens, 3 * heads * headSize]: queries, keys, values; instead of q, k and v
 * @property {Tensor} [q] [batch, tokens, heads, headSize] with rows `rowQkv` apart
 * @property {Tensor} [k]
 * @property {Tensor} [v]
 * @property {Tensor} out O: [batch, tokens, heads * headSize]; written by the forward, read by the backward pass
 * @property {Tensor} logSumExp f32 [batch, heads, tokens], natural logarithm of the softmax's denominators
 * @property {number} [batch] 1 when left out
 * @property {number} tokens
 * @property {number} heads
 * @property {number} headSize 32, 64, 96 or 128
 * @property {DType} [type] storage of Q, K and V; `f32` when left out
 * @property {DType} [outType] storage of O and dO; `type` when left out
 * @property {'f32' | 'f16' | 'bf16'} [precision] `type` when left out
 * @property {number} [rowQkv] elements between tokens; 3 * heads * headSize with `qkv`, else heads * headSize
 * @property {number} [rowOut] elements between tokens of O and dO; heads * headSize when left out
 * @property {number} [scale] 1 / sqrt(headSize) when left out
 * @property {boolean} [causal] true when left out: token t sees tokens 0…t
 * @property {Partial<AttentionPlan>} [plan] overrides the tiling
 */
/**
 * @typedef {object} AttentionGradients
 * @property {Tensor} dOut dO, shaped like `out`
 * @property {Tensor} [dQkv] written, shaped like `qkv`; instead of dQ, dK and dV
 * @property {Tensor} [dQ]
 * @property {Tensor} [dK]
 * @property {Tensor} [dV]
 * @property {DType} [gradType] storage of the gradients; `type` when left out
 * @property {number} [rowGrad] elements between tokens; packed when left out
 * @property {Tensor} [delta] f32 workspace [batch, heads, tokens]; the kernels' own when left out
 */
/** @typedef {AttentionArgs & AttentionGradients} AttentionBackwardArgs */
/**
 * The map that both kinds of matrix follow, or undefined if they differ or follow none of the kind.
 * @param {ArrayLike<number>} accumulator row | column << 8 of every component of lane 0, then of lane 1 …
 * @param {ArrayLike<number>} operand the same of a left operand
 * @param {{ m: number, n: number, k: number }} shape
 * @param {number} lanes
 * @returns {LaneMap | undefined}
 */
export function laneMap(accumulator: ArrayLike<number>, operand: ArrayLike<number>, { m, n, k }: {
    m: number;
    n: number;
    k: number;
}, lanes: number): LaneMap | undefined;
/** @param {KernelContext} context */
export function attentionKernels(context: KernelContext): {
    /**
     * O = softmax(scale * Q K^T) V for every head, and the log-sum-exp of every row.
     * @param {AttentionArgs} args
     * @returns {Dispatch}
     */
    attentionForward: (args: AttentionArgs) => Dispatch;
    /**
     * Gradients of Q, K and V: first delta = rowsum(dO * O), then all three in one dispatch.
     * @param {AttentionBackwardArgs} args
     * @returns {Dispatch[]}
     */
    attentionBackward: (args: AttentionBackwardArgs) => Dispatch[];
    /**
     * Whether the device can compute attention in this precision.
     * @param {'f32' | 'f16' | 'bf16'} precision @param {number} [headSize]
     */
    attentionSupports: (precision: "f32" | "f16" | "bf16", headSize?: number) => boolean;
    /**
     * Which kernels compute attention in this precision here: `register` and `scratch` are the two sets for matrix units.
     * @param {'f32' | 'f16' | 'bf16'} precision @param {number} [headSize]
     * @returns {'f32' | 'register' | 'scratch' | undefined} undefined where none can
     */
    attentionKind: (precision: "f32" | "f16" | "bf16", headSize?: number) => "f32" | "register" | "scratch" | undefined;
};
export type Tensor = import("./base.mjs").Tensor;
export type DType = import("./base.mjs").DType;
export type Dispatch = import("./base.mjs").Dispatch;
export type KernelContext = import("./base.mjs").KernelContext;
/**
 * Tiling of an attention kernel, in rows.
 */
export type AttentionPlan = {
    /**
     * rows that a workgroup holds
     */
    held: number;
    /**
     * rows that it walks over at a time
     */
    walked: number;
    /**
     * f32: invocations of a workgroup
     */
    threads?: number | undefined;
    /**
     * matrix units: the instruction
     */
    shape?: {
        m: number;
        n: number;
        k: number;
    } | undefined;
    /**
     * matrix units: where scores live; `register` where the device can
     */
    kernel?: "register" | "scratch" | undefined;
    /**
     * register, backward: fragments of walked rows worked on at a time
     */
    group?: number | undefined;
};
/**
 * Where a driver puts the elements of an accumulator and of a left operand, if alike and by bits: bit b of a lane's
 * number (of a component's) moves the element down or right by 2^(n - 1), where n is hexadecimal digit b; 0: not at all.
 */
export type LaneMap = {
    laneRows: number;
    laneColumns: number;
    partRows: number;
    partColumns: number;
    /**
     * rows that a lane has components of
     */
    own: number;
};
export type AttentionArgs = {
    /**
     * fused [batch, tokens, 3 * heads * headSize]: queries, keys, values; instead of q, k and v
     */
    qkv?: import("./base.mjs").Tensor | undefined;
    /**
     * [batch, tokens, heads, headSize] with rows `rowQkv` apart
     */
    q?: import("./base.mjs").Tensor | undefined;
    k?: import("./base.mjs").Tensor | undefined;
    v?: import("./base.mjs").Tensor | undefined;
    /**
     * O: [batch, tokens, heads * headSize]; written by the forward, read by the backward pass
     */
    out: Tensor;
    /**
     * f32 [batch, heads, tokens], natural logarithm of the softmax's denominators
     */
    logSumExp: Tensor;
    /**
     * 1 when left out
     */
    batch?: number | undefined;
    tokens: number;
    heads: number;
    /**
     * 32, 64, 96 or 128
     */
    headSize: number;
    /**
     * storage of Q, K and V; `f32` when left out
     */
    type?: import("./base.mjs").DType | undefined;
    /**
     * storage of O and dO; `type` when left out
     */
    outType?: import("./base.mjs").DType | undefined;
    /**
     * `type` when left out
     */
    precision?: "f32" | "f16" | "bf16" | undefined;
    /**
     * elements between tokens; 3 * heads * headSize with `qkv`, else heads * headSize
     */
    rowQkv?: number | undefined;
    /**
     * elements between tokens of O and dO; heads * headSize when left out
     */
    rowOut?: number | undefined;
    /**
     * 1 / sqrt(headSize) when left out
     */
    scale?: number | undefined;
    /**
     * true when left out: token t sees tokens 0…t
     */
    causal?: boolean | undefined;
    /**
     * overrides the tiling
     */
    plan?: Partial<AttentionPlan> | undefined;
};
export type AttentionGradients = {
    /**
     * dO, shaped like `out`
     */
    dOut: Tensor;
    /**
     * written, shaped like `qkv`; instead of dQ, dK and dV
     */
    dQkv?: import("./base.mjs").Tensor | undefined;
    dQ?: import("./base.mjs").Tensor | undefined;
    dK?: import("./base.mjs").Tensor | undefined;
    dV?: import("./base.mjs").Tensor | undefined;
    /**
     * storage of the gradients; `type` when left out
     */
    gradType?: import("./base.mjs").DType | undefined;
    /**
     * elements between tokens; packed when left out
     */
    rowGrad?: number | undefined;
    /**
     * f32 workspace [batch, heads, tokens]; the kernels' own when left out
     */
    delta?: import("./base.mjs").Tensor | undefined;
};
export type AttentionBackwardArgs = AttentionArgs & AttentionGradients;
