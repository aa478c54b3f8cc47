// Made by `npm run types` from nn/; do not edit.
export { averageGradients } from "./ranks.mjs";
/**
 * AdamW (Loshchilov & Hutter 2019), with PyTorch's defaults. A step whose gradients are not finite changes nothing where `clip` is given.
 * Steps are counted for a group: a parameter whose first gradient comes late has the bias correction of the others.
 */
export class AdamW extends Optimizer {
    /**
     * @param {Iterable<Parameter> | Group[]} params
     * @param {Options & AdamOptions} [options] lr 1e-3, betas [0.9, 0.999], eps 1e-8, weightDecay 0.01
     */
    constructor(params: Iterable<Parameter> | Group[], options?: Options & AdamOptions);
}
/** Stochastic gradient descent: v = momentum · v + g + weightDecay · p, p = p - lr · v (with `nesterov`, lr · (g + momentum · v)). */
export class SGD extends Optimizer {
    /**
     * @param {Iterable<Parameter> | Group[]} params
     * @param {Options & MomentumOptions} [options] lr 1e-3, weightDecay 0, momentum 0
     */
    constructor(params: Iterable<Parameter> | Group[], options?: Options & MomentumOptions);
    /** The part of the last step's v that stays. Fixed, as compiled steps have it in them. */
    get momentum(): number;
    /** Whether the step looks ahead by the momentum. Fixed. */
    get nesterov(): boolean;
    #private;
}
/** Lion (Chen et al. 2023): p = p - lr · (sign(β₁ m + (1 - β₁) g) + weightDecay · p), m = β₂ m + (1 - β₂) g. */
export class Lion extends Optimizer {
    /**
     * @param {Iterable<Parameter> | Group[]} params
     * @param {Options & LionOptions} [options] lr 1e-4, betas [0.9, 0.99], weightDecay 0
     */
    constructor(params: Iterable<Parameter> | Group[], options?: Options & LionOptions);
    /** β₁ of the step and β₂ of the running mean. Fixed, as compiled steps have them in them. */
    get betas(): readonly [number, number];
    #private;
}
/**
 * The flat memory of some parameters.
 */
export type Bucket = import("./bucket.mjs").Bucket;
/**
 * A group of processes.
 */
export type ProcessGroup = import("./ranks.mjs").ProcessGroup;
/**
 * Elements of a bucket, one after another.
 */
export type Run = import("./bucket.mjs").Run;
/**
 * Device memory that tensors share.
 */
export type Storage = import("../storage.mjs").Storage;
/**
 * What dispatches are of.
 */
export type CallInfo = import("../runtime.mjs").CallInfo;
/**
 * An operation, as the engine knows it.
 */
export type Op = import("../ops/registry.mjs").Op;
/**
 * What a kernel function returns.
 */
export type Dispatches = import("../../kernels/base.mjs").Dispatches;
/**
 * The learning rate over steps: linear warm-up to `lr`, then half a cosine down to `finalLr`.
 */
export type Schedule = {
    /**
     * steps of linear warm-up; 0 when left out
     */
    warmup?: number | undefined;
    /**
     * step at which half a cosine has come down to `finalLr`
     */
    total: number;
    /**
     * 0 when left out
     */
    finalLr?: number | undefined;
};
/**
 * Options of every optimizer. Those but `clip`, `gradientScale`, `processGroup`, `zero` and `reduce` may differ from group to group.
 */
export type Options = {
    /**
     * the learning rate, with a schedule its peak
     */
    lr?: number | undefined;
    /**
     * the factor of weight decay, which AdamW and Lion keep apart from the gradient and SGD adds to
     * it; 0.01 for AdamW and 0 for the others when left out
     */
    weightDecay?: number | undefined;
    /**
     * largest norm of all gradients together; none when left out
     */
    clip?: number | undefined;
    /**
     * a factor on every gradient, before anything else: 1 over what the loss was multiplied by, so that
     * gradients in f16 are not too small for it; 1 when left out
     */
    gradientScale?: number | undefined;
    /**
     * a constant rate when left out
     */
    schedule?: Schedule | undefined;
    /**
     * the processes that train together, of `helios-vk/distributed`: all begin with the parameters of
     * rank 0, and every step is that of the mean of their gradients. All make the same calls; none when left out
     */
    processGroup?: import("./ranks.mjs").ProcessGroup | undefined;
    /**
     * 1 (the default): each of the processes keeps the moments of its shard of the parameters and steps there, and
     * the parameters are gathered; 0: all keep all moments
     */
    zero?: 0 | 1 | undefined;
    /**
     * what gradients travel as between the processes: f32 (the default), or bf16, half as many bytes. Each
     * process's gradient is rounded to bf16 once, and the sums are of f32
     */
    reduce?: "f32" | "bf16" | undefined;
};
/**
 * What `AdamW` takes besides the options of every optimizer.
 */
export type AdamOptions = {
    /**
     * decay of the running means of gradients and of their squares; [0.9, 0.999] when left out
     */
    betas?: [number, number] | undefined;
    /**
     * is added to the root that steps are divided by; 1e-8 when left out
     */
    eps?: number | undefined;
};
/**
 * What `SGD` takes besides the options of every optimizer.
 */
export type MomentumOptions = {
    /**
     * the part of the last step's v that stays; 0 when left out, which keeps no v
     */
    momentum?: number | undefined;
    /**
     * whether the step looks ahead by the momentum (Nesterov 1983); false when left out
     */
    nesterov?: boolean | undefined;
};
/**
 * What `Lion` takes besides the options of every optimizer.
 */
export type LionOptions = {
    /**
     * β₁ of the step and β₂ of the running mean; [0.9, 0.99] when left out
     */
    betas?: [number, number] | undefined;
};
/**
 * Parameters with options of their own; what is left out is the optimizer's.
 */
export type Group = {
    params: Iterable<Parameter>;
} & Omit<Options, "clip" | "gradientScale" | "processGroup" | "zero" | "reduce">;
/**
 * Options with their defaults in place.
 */
export type Settings = Required<Omit<Options, "schedule" | "processGroup" | "zero" | "reduce">> & Pick<Options, "schedule" | "processGroup" | "zero" | "reduce">;
/** The base of optimizers. */
declare class Optimizer {
    /**
     * @param {Iterable<Parameter> | Group[]} params parameters, or groups with options of their own
     * @param {Settings} options
     * @param {{ betas: [number, number], eps: number }} [adam]
     * @param {number} [moments] that each parameter has
     */
    constructor(params: Iterable<Parameter> | Group[], options: Settings, adam?: {
        betas: [number, number];
        eps: number;
    }, moments?: number);
    /** The processes that step together. */
    ranks: Ranks | undefined;
    /** @type {ParameterGroup[]} */
    groups: ParameterGroup[];
    /** @type {Map<Bucket, Tensor[]>} */
    moments: Map<Bucket, Tensor[]>;
    /** The buckets of all groups. */
    get buckets(): import("./bucket.mjs").Bucket[];
    set lr(value: number);
    /** The learning rate of the first group; setting it sets that of all. */
    get lr(): number;
    /**
     * Sets the learning rate of one group, with a schedule its peak, as setting its `lr` does. Throws an ArgumentError for what
     * is no number of at least 0, and a UsageError in a function that is being compiled.
     * @param {ParameterGroup} group one of `groups` @param {number} value
     */
    setRate(group: ParameterGroup, value: number): void;
    set clip(value: number);
    /** The largest norm of all gradients together; 0 for none. */
    get clip(): number;
    /** Whether gradients are clipped at all: what runs depends on it. A state that was loaded has a norm of its own, perhaps none. */
    get clips(): boolean;
    set gradientScale(value: number);
    /** A factor on every gradient, before anything else. */
    get gradientScale(): number;
    /** Whether gradients have a factor: what runs depends on it. */
    get scales(): boolean;
    /**
     * Has the schedule and the bias correction go on as after so many steps: for a run that goes on with options that may be others
     * than before. Moments stay as they are; `loadStateDict` sets these, and everything as it was.
     * @param {number} steps done
     */
    startAt(steps: number): void;
    /** Tensors of a bucket that begin as zeros. @param {Bucket} bucket @param {number} count */
    momentsOf(bucket: Bucket, count: number): Tensor[];
    /** A moment of a run of parameters. @param {Bucket} bucket @param {number} index @param {Run} run */
    momentOf(bucket: Bucket, index: number, run: Run): Tensor;
    /**
     * Changes the parameters by their gradients, and forgets the gradients: the next `backward` begins anew. A parameter
     * without a gradient stays as it is; with a `processGroup`, each needs one on every process. Without one, a step that throws, as where
     * the device is out of memory, has changed nothing, and may be made again.
     */
    step(): void;
    /**
     * Changes a run of parameters.
     * @param {ParameterGroup} _group @param {Bucket} _bucket @param {Run} _run
     */
    update(_group: ParameterGroup, _bucket: Bucket, _run: Run): void;
    /** Forgets all gradients. */
    zeroGrad(): void;
    /**
     * What a resumed run needs besides the parameters: the device's state of each group, and the moments of each parameter. With a
     * `processGroup` all processes call it, and each gets all of it: one writes it, and any number of processes may load it.
     * @returns {Record<string, Tensor>} by name, such as `0.state` and `0.3.first`; they see the optimizer's memory, unless each process
     *   has a shard of the moments alone: then they are copies
     */
    stateDict(): Record<string, Tensor>;
    /**
     * Copies what `stateDict` gave, also what another number of processes gave: moments and steps, and with them rates, decays, schedule
     * and norm, which `lr`, `weightDecay` and `clip` do not show, as they are on the device. `gradientScale` stays as it is set here. All or
     * nothing.
     * @param {Record<string, Tensor>} state
     */
    loadStateDict(state: Record<string, Tensor>): void;
    /** Frees the optimizer's memory; the parameters keep theirs, and may go to another optimizer. */
    dispose(): void;
    [Symbol.dispose](): void;
    #private;
}
import { Parameter } from '../modules/module.mjs';
import { Ranks } from './ranks.mjs';
/**
 * Options with their defaults in place.
 * @typedef {Required<Omit<Options, 'schedule' | 'processGroup' | 'zero' | 'reduce'>> & Pick<Options, 'schedule' | 'processGroup' | 'zero' | 'reduce'>} Settings
 */
/** Parameters with a learning rate and a weight decay of their own; both can be set between steps. */
declare class ParameterGroup {
    /**
     * @param {Parameter[]} parameters @param {Settings} options
     * @param {{ betas: [number, number], eps: number }} adam @param {Ranks | undefined} ranks
     */
    constructor(parameters: Parameter[], { lr, weightDecay, clip, gradientScale, schedule }: Settings, { betas, eps }: {
        betas: [number, number];
        eps: number;
    }, ranks: Ranks | undefined);
    /** Whether the state is one that was loaded: what it holds is on the device alone. */
    loaded: boolean;
    /** What the state begins with. @param {number} step @param {number} maxNorm @param {number} scale */
    wordsAt: (step: number, maxNorm: number, scale: number) => Uint32Array<ArrayBufferLike>;
    buckets: import("./bucket.mjs").Bucket[];
    state: Tensor;
    /** The rate of this step, on the device. */
    rate: Tensor;
    /** What gradients are multiplied by. */
    scale: Tensor;
    /** The weight decay, on the device. */
    decay: Tensor;
    /** Changes a word of the state. @param {number} word @param {number} value */
    write(word: number, value: number): void;
    set lr(value: number);
    /** The learning rate; with a schedule, its peak. */
    get lr(): number;
    set weightDecay(value: number);
    /** The factor of weight decay. */
    get weightDecay(): number;
    /** Whether weights decay at all: what runs depends on it. A state that was loaded has a factor of its own. */
    get decays(): boolean;
    #private;
}
import { Tensor } from '../tensor.mjs';
