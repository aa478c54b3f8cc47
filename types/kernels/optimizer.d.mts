// Made by `npm run types` from kernels/; do not edit.
/**
 * @typedef {object} OptimizerOptions
 * @property {number} rate peak learning rate
 * @property {number} [finalRate] 0 when left out
 * @property {number} [warmup] steps of linear warm-up; 0 when left out
 * @property {number} [total] length of the schedule in steps; 0 (a constant rate) when left out
 * @property {number} [beta1] 0.9 when left out
 * @property {number} [beta2] 0.95 when left out
 * @property {number} [epsilon] 1e-8 when left out
 * @property {number} [decay] weight decay, 0.1 when left out
 * @property {number} [maxNorm] largest global gradient norm; 0 (no clipping) when left out
 * @property {number} [gradientScale] 1 when left out
 * @property {number | bigint} [seed] of the random streams; 0 when left out
 * @property {number} [step] steps already done, for a resumed run; 0 when left out. The random offset follows it.
 */
/**
 * What to upload into a state buffer of `STATE_WORDS` words before the first step. Everything that float32 would spoil
 * (1 - beta, log beta) is computed here in float64.
 * @param {OptimizerOptions} options
 * @returns {Uint32Array}
 */
export function optimizerState(options: OptimizerOptions): Uint32Array;
/** @param {KernelContext} context */
export function optimizerKernels(context: KernelContext): {
    /**
     * What to upload into a state buffer of `STATE_WORDS` words before the first step. Everything that float32 would spoil
     * (1 - beta, log beta) is computed here in float64.
     * @param {OptimizerOptions} options
     * @returns {Uint32Array}
     */
    optimizerState: typeof optimizerState;
    /**
     * Begins a step: counts it, moves the random offset on by one, and writes the step's learning rate (linear warm-up to
     * `rate`, then half a cosine down to `finalRate` at step `total`), bias corrections and `clip` = gradientScale.
     * @param {object} args
     * @param {Tensor} args.state see `STATE`
     * @returns {Dispatch}
     */
    optimizerAdvance: (args: {
        /** see `STATE` */
        state: Tensor;
    }) => Dispatch;
    /**
     * The global norm of a flat gradient, in two passes, and from it `norm` and `clip` of the state:
     * clip = gradientScale · min(1, maxNorm / (norm + 1e-6)), as PyTorch's clip_grad_norm_. After `optimizerAdvance`.
     * @param {object} args
     * @param {Tensor | { tensor: Tensor, count: number }[]} args.gradient [count] f32; or its shards in order, of multiples
     *   of four elements: the same bits as in one buffer
     * @param {number} args.count elements
     * @param {Tensor | Tensor[]} args.state see `STATE`; several where groups of parameters with options of their own are clipped
     *   by the norm of all together
     * @returns {Dispatch[]}
     */
    gradientClip: (args: {
        /** [count] f32; or its shards in order, of multiples of four elements: the same bits as in one buffer */
        gradient: Tensor | {
            tensor: Tensor;
            count: number;
        }[];
        /** elements */
        count: number;
        /** see `STATE`; several where groups of parameters with options of their own are clipped by the norm of all together */
        state: Tensor | Tensor[];
    }) => Dispatch[];
    /**
     * One AdamW step (Loshchilov & Hutter 2019, Algorithm 2, in PyTorch's order of operations) over flat buffers, with the
     * step's hyper-parameters from the state. The elements before `decayCount` decay. Changes nothing when the state's
     * `clip` is 0.
     * @param {object} args
     * @param {Tensor} args.parameters in and out: [count] f32
     * @param {Tensor} args.first in and out: [count] f32, first moments
     * @param {Tensor} args.second in and out: [count] f32, second moments
     * @param {Tensor} args.gradient [count] f32
     * @param {Tensor} args.state see `STATE`
     * @param {number} args.count even with a copy; a multiple of 32 with `shuffled`
     * @param {number} [args.decayCount] `count` when left out
     * @param {Tensor} [args.copy] out: [count] of `copyType`, the new parameters for the matrix units
     * @param {'f16' | 'bf16'} [args.copyType] needed with `copy`
     * @param {Tensor} [args.shuffled] out: [count] of `copyType`, what `copy` gets in the order that `matmul` takes with `bShuffled`: in
     *   each 32 elements position p holds element `columnOf(p)` (kernels/ptx/layout.mjs). Only with `copy`
     * @returns {Dispatches}
     */
    adamw: (args: {
        /** in and out: [count] f32 */
        parameters: Tensor;
        /** in and out: [count] f32, first moments */
        first: Tensor;
        /** in and out: [count] f32, second moments */
        second: Tensor;
        /** [count] f32 */
        gradient: Tensor;
        /** see `STATE` */
        state: Tensor;
        /** even with a copy; a multiple of 32 with `shuffled` */
        count: number;
        /** `count` when left out */
        decayCount?: number | undefined;
        /** out: [count] of `copyType`, the new parameters for the matrix units */
        copy?: import("./base.mjs").Tensor | undefined;
        /** needed with `copy` */
        copyType?: "f16" | "bf16" | undefined;
        /** out: [count] of `copyType`, what `copy` gets in the order that `matmul` takes with `bShuffled`: in each 32 elements position p holds element `columnOf(p)` (kernels/ptx/layout.mjs). Only with `copy` */
        shuffled?: import("./base.mjs").Tensor | undefined;
    }) => Dispatches;
};
/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').Dispatches} Dispatches */
/** @typedef {import('./base.mjs').KernelContext} KernelContext */
/** @typedef {import('./check.mjs').Extent} Extent */
/**
 * Words of the optimizer's state buffer. u32: step, skipped, the seed and offset, warmup, total; the others f32.
 * The device writes step, rate, correction1, correction2, clip, norm, skipped and the offset.
 */
export const STATE: Readonly<{
    /** Optimizer steps begun (u32). */
    step: 0;
    /** Learning rate of this step. */
    rate: 1;
    /** 1 - beta1^step and 1 - beta2^step. */
    correction1: 2;
    correction2: 3;
    /** Factor on the gradient; 0 where the norm is not finite: AdamW then changes nothing. */
    clip: 4;
    /** Global gradient norm of this step, after gradientScale and before clipping. */
    norm: 5;
    /** Steps left out for a norm that is not finite (u32). */
    skipped: 6;
    /** Seed and offset of the random streams (u32 each): what `dropout` takes as `random`. */
    seedLow: 8;
    seedHigh: 9;
    offsetLow: 10;
    offsetHigh: 11;
    beta1: 12;
    oneMinusBeta1: 13;
    logBeta1: 14;
    beta2: 15;
    oneMinusBeta2: 16;
    logBeta2: 17;
    epsilon: 18;
    decay: 19;
    /** 0 for no clipping. */
    maxNorm: 20;
    /** Factor on every gradient before anything else: 1 / the loss scale. */
    gradientScale: 21;
    peakRate: 22;
    finalRate: 23;
    /** Steps of linear warm-up (u32). */
    warmup: 24;
    /** Step at which the cosine has reached finalRate (u32); 0 for a constant rate. */
    total: 25;
}>;
/** Words of a state buffer. */
export const STATE_WORDS: 32;
export type OptimizerOptions = {
    /**
     * peak learning rate
     */
    rate: number;
    /**
     * 0 when left out
     */
    finalRate?: number | undefined;
    /**
     * steps of linear warm-up; 0 when left out
     */
    warmup?: number | undefined;
    /**
     * length of the schedule in steps; 0 (a constant rate) when left out
     */
    total?: number | undefined;
    /**
     * 0.9 when left out
     */
    beta1?: number | undefined;
    /**
     * 0.95 when left out
     */
    beta2?: number | undefined;
    /**
     * 1e-8 when left out
     */
    epsilon?: number | undefined;
    /**
     * weight decay, 0.1 when left out
     */
    decay?: number | undefined;
    /**
     * largest global gradient norm; 0 (no clipping) when left out
     */
    maxNorm?: number | undefined;
    /**
     * 1 when left out
     */
    gradientScale?: number | undefined;
    /**
     * of the random streams; 0 when left out
     */
    seed?: number | bigint | undefined;
    /**
     * steps already done, for a resumed run; 0 when left out. The random offset follows it.
     */
    step?: number | undefined;
};
export type Tensor = import("./base.mjs").Tensor;
export type Dispatch = import("./base.mjs").Dispatch;
export type Dispatches = import("./base.mjs").Dispatches;
export type KernelContext = import("./base.mjs").KernelContext;
export type Extent = import("./check.mjs").Extent;
