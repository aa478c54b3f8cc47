// Made by `npm run types` from kernels/; do not edit.
/**
 * @param {KernelContext} context
 * @param {Parameters<typeof ptxAttention>[1]} [options] of kernels in PTX
 */
export function attentionKernels(context: KernelContext, options?: Parameters<typeof ptxAttention>[1]): {
    /**
     * O = softmax(scale * Q K^T) V for every head, and the log-sum-exp of every row.
     * @param {AttentionArgs} args
     * @returns {Dispatch}
     */
    attentionForward: (args: AttentionArgs) => Dispatch;
    /**
     * Gradients of Q, K and V: first delta = rowsum(dO * O), then all three in one dispatch, or in several by way of memory.
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
export type Extent = import("./check.mjs").Extent;
/**
 * Tiling of an attention kernel, in rows.
 */
export type AttentionPlan = {
    /**
     * rows that stay in a workgroup (in the backward pass for keys: of keys); `tiles`: queries, and keys, of a tile
     */
    queryBlock: number;
    /**
     * rows that it goes over at a time; `tiles`: of them, or of the head, at a time
     */
    keyBlock: number;
    /**
     * f32 `walk`: invocations of a workgroup
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
     * matrix units: where scores live, `register` where the
     * device can, or `ptx`, kernels in PTX, where these were measured; f32: `tiles`, but `walk` on CPU devices and
     * where tiles, backward those of one head, would not fit
     */
    kernel?: "tiles" | "register" | "ptx" | "scratch" | "walk" | undefined;
    /**
     * `ptx`: one of kernels/ptx/plans.mjs by name, or
     * itself; the measured one when left out
     */
    tiling?: string | import("./ptx/attention.mjs").AttentionTiling | undefined;
    /**
     * register, backward: fragments of the key block worked on at a time
     */
    group?: number | undefined;
    /**
     * `tiles`: rows that a thread sums, a multiple of 4
     */
    rows?: number | undefined;
    /**
     * `tiles`: columns that a thread sums, a multiple of 4
     */
    columns?: number | undefined;
    /**
     * `tiles`: bytes that tiles may take at a time
     */
    workspace?: number | undefined;
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
    /**
     * keys, shaped like q
     */
    k?: import("./base.mjs").Tensor | undefined;
    /**
     * values, shaped like q
     */
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
    /**
     * length of a sequence
     */
    tokens: number;
    /**
     * number of heads
     */
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
     * scores become softCap · tanh(scaled score / softCap); 0 (as they are) when left out
     */
    softCap?: number | undefined;
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
    /**
     * written, rows `rowGrad` apart
     */
    dQ?: import("./base.mjs").Tensor | undefined;
    /**
     * written, shaped like dQ
     */
    dK?: import("./base.mjs").Tensor | undefined;
    /**
     * written, shaped like dQ
     */
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
import { ptxAttention } from './attention/ptx.mjs';
