// Made by `npm run types` from kernels/; do not edit.
/** @typedef {import('../../index.js').BufferHandle} BufferHandle */
/** @typedef {import('../../index.js').PipelineHandle} PipelineHandle */
/** @typedef {import('../../index.js').DeviceInfo} DeviceInfo */
/**
 * What the kernels call of the native module.
 * @typedef {Pick<typeof import('../../index.js'), 'initDevice' | 'shaders' | 'createBuffer' | 'bufferBytes' | 'buildKernel' | 'fillBuffer'
 *   | 'readBuffer' | 'uploadBuffer' | 'destroyBuffer' | 'createPipeline' | 'dispatch' | 'batchExecuteAll'>} NativeModule
 */
/**
 * What a dispatch binds: a buffer's handle, or a range of it in bytes (all to its end without a size). The offset is a
 * multiple of the device's `minStorageBufferOffsetAlignment`, which is at most 256.
 * @typedef {import('../../index.js').BufferBinding} Binding
 */
/**
 * A tensor argument: a buffer handle, or a binding with the tensor's first element in it. This offset and all sizes
 * count elements of the tensor's type, never bytes. No binding is larger than the device's `maxStorageBufferRange`: of
 * a larger buffer bind a range ({@link KernelContext.view} makes one). Where a tensor is larger itself, the kernels that
 * go over it element by element, and those that reduce all of it, take it part by part in as many dispatches.
 * @typedef {BufferHandle | { buffer: Binding, offset?: number }} Tensor
 */
/**
 * Storage type of a tensor. `f16` and `bf16` hold two elements in a 32-bit word, low half first; all arithmetic is
 * in f32.
 * @typedef {'f32' | 'f16' | 'bf16'} DType
 */
/**
 * One dispatch, ready for `batchDispatch` or for {@link pack}.
 * @typedef {object} Dispatch
 * @property {PipelineHandle} pipeline what is run
 * @property {Binding[]} buffers what is bound, binding 0 first
 * @property {[number, number, number]} groups workgroup counts
 * @property {Uint8Array | undefined} push push constants, exactly the pipeline's size
 * @property {number} writeMask bit i is set where binding i is written
 */
/**
 * What a kernel function returns: dispatches in order.
 * @typedef {Dispatch | Dispatch[]} Dispatches
 */
/** @typedef {import('../../index.js').Shader} Shader */
/**
 * @typedef {object} KernelOptions
 * @property {boolean} [check] whether kernels check that tensors lie within their buffers, and results not over what is read;
 *   true when left out. Sizes that are wrong read and write other memory of the buffer's, or of the device's.
 * @property {boolean} [ptx] whether matrix products may be computed by kernels in PTX, where the device takes them; true when
 *   left out
 * @property {string | false} [tuning] the table that `helios-vk tune` wrote, or false for none; when left out the one of
 *   HELIOS_TUNING, else that of this device and driver beside the pipeline cache, if it is there
 */
/**
 * @typedef {object} PipelineOptions
 * @property {ArrayLike<number>} [specialization] word i is the value of `constant_id` i (floats by {@link floatBits})
 * @property {number} [requiredSubgroupSize] as in VK_EXT_subgroup_size_control
 * @property {boolean} [fullSubgroups] whether every subgroup has all its invocations
 */
/** Bytes of an element. @param {DType} type */
export function bytesOf(type: DType): 2 | 4;
/** The bit pattern of `value` as an f32. @param {number} value */
export function floatBits(value: number): number;
/**
 * Push constants: the u32 words first, then the f32 words. Every shader of this library declares its push
 * constants in that order.
 * @param {ArrayLike<number>} words
 * @param {ArrayLike<number>} [floats]
 */
export function pushConstants(words: ArrayLike<number>, floats?: ArrayLike<number>): Uint8Array<ArrayBuffer>;
/**
 * Throws unless `value` is an integer in [low, high].
 * @param {string} kernel @param {string} name @param {unknown} value @param {number} [low] @param {number} [high]
 * @returns {number}
 */
export function integer(kernel: string, name: string, value: unknown, low?: number, high?: number): number;
/**
 * Throws unless `value` is a finite number.
 * @param {string} kernel @param {string} name @param {unknown} value
 * @returns {number}
 */
export function finite(kernel: string, name: string, value: unknown): number;
/**
 * Splits a tensor argument into what is bound and the first element in that.
 * @param {string} kernel @param {string} name @param {unknown} tensor
 * @returns {{ buffer: Binding, offset: number }}
 */
export function tensor(kernel: string, name: string, tensor: unknown): {
    buffer: Binding;
    offset: number;
};
/**
 * `count` elements of a tensor from its element `first` on, bound as a range that begins at most 255 bytes before them.
 * @param {{ buffer: Binding, offset: number }} tensor @param {number} first @param {number} count
 * @param {number} bytes of an element
 * @returns {{ buffer: Binding, offset: number }}
 */
export function part({ buffer, offset }: {
    buffer: Binding;
    offset: number;
}, first: number, count: number, bytes: number): {
    buffer: Binding;
    offset: number;
};
/**
 * How wide a kernel may read: 4 elements where every size and offset is a multiple of 4, else what its storage types
 * allow at least (a pair of 16-bit elements, or one f32).
 * @param {string} kernel
 * @param {DType[]} types the storage types that take part
 * @param {Record<string, number>} sizes sizes and offsets, by the name that an error should give
 * @returns {{ width: 4 | 2 | 1, suffix: '' | '_narrow' }}
 */
export function accessWidth(kernel: string, types: DType[], sizes: Record<string, number>): {
    width: 4 | 2 | 1;
    suffix: "" | "_narrow";
};
/**
 * The position of `value` in a list of names, or an error that gives the list.
 * @param {string} kernel @param {string} name @param {unknown} value @param {readonly string[]} names
 */
export function choice(kernel: string, name: string, value: unknown, names: readonly string[]): number;
/**
 * The storage types of a kernel's input and output in its shader's name: `f32`, or `f32_f16`.
 * @param {string} kernel @param {DType} from @param {DType} to
 */
export function typePair(kernel: string, from: DType, to: DType): string;
/**
 * Throws where a tensor does not end within what kernels index.
 * @param {string} kernel @param {string} name @param {number} end the element past its last one
 */
export function reach(kernel: string, name: string, end: number): void;
/**
 * Packs dispatches for `batchDispatchMany(packed, count)` or `batchExecuteAll(packed, count)`.
 * @param {...(Dispatches | Dispatches[])} dispatches
 * @returns {{ packed: ArrayBuffer, count: number }}
 */
export function pack(...dispatches: (Dispatches | Dispatches[])[]): {
    packed: ArrayBuffer;
    count: number;
};
/** ceil(a / b) of non-negative integers. @param {number} a @param {number} b */
export function ceilDiv(a: number, b: number): number;
/** The least power of two that is at least `n`. @param {number} n */
export function nextPowerOfTwo(n: number): number;
/**
 * Rounds of a loop on a CPU device: lavapipe ends any after 65,535 and says nothing, so that what is behind would be missing from a
 * sum (docs/drivers.md).
 */
export const MAX_CPU_ROUNDS: 65000;
/** Most elements of a tensor: kernels index with u32, and a stride past the end must not wrap. */
export const MAX_ELEMENTS: 4026531840;
/**
 * The device as the kernels see it, and the pipelines made on it. Kernel families are functions of a context.
 */
export class KernelContext {
    /**
     * @param {NativeModule} vk the native module
     * @param {KernelOptions} [options]
     */
    constructor(vk: NativeModule, { check, ptx, tuning }?: KernelOptions);
    /** The native module. */
    vk: Pick<typeof import("../../index.js"), "initDevice" | "shaders" | "createBuffer" | "bufferBytes" | "buildKernel" | "fillBuffer" | "readBuffer" | "uploadBuffer" | "destroyBuffer" | "createPipeline" | "dispatch" | "batchExecuteAll">;
    /** Checks what kernels are given; undefined where nothing is checked. */
    checker: Checker | undefined;
    /** What `initDevice` returns. @type {DeviceInfo} */
    info: DeviceInfo;
    /** Whether kernels may be written in PTX. */
    takesPtx: boolean;
    /** Whether the device is a CPU driver, where small workgroups win. */
    isCpu: boolean;
    /** How much work goes into a dispatch on this device. */
    tuning: import("./tuning/index.mjs").Tuning;
    /** Shared memory of a workgroup in bytes. */
    sharedBytes: number;
    /** Most workgroups in x (65,535 is what every device has; y and z are taken to have no more). */
    maxGroups: number;
    /** @type {Map<string, Shader>} */
    shaders: Map<string, Shader>;
    /** @type {Map<string, PipelineHandle>} */
    pipelines: Map<string, PipelineHandle>;
    /** @type {Map<string, { buffer: BufferHandle, bytes: number }>} */
    workspaces: Map<string, {
        buffer: BufferHandle;
        bytes: number;
    }>;
    /** Every workspace that was ever made: earlier dispatches may name a smaller one. @type {BufferHandle[]} */
    owned: BufferHandle[];
    /** Most workgroups of a normalization's backward pass: each leaves a row of sums behind. */
    get normBlocks(): number;
    /**
     * Rows that the cooperating lanes of it take at a time, whether they load the next ones ahead, and whether all groups of
     * cooperating lanes of a workgroup take equally many turns.
     */
    get normBackward(): {
        batch: number;
        ahead: number;
        lockstep: number;
    };
    /**
     * Of cross-entropy over 16-bit rows: vectors of a row whose exponentials are kept and not taken twice, at most, and
     * workgroups.
     */
    get crossEntropy(): {
        kept: number;
        groups: number;
    };
    /**
     * Whether the device's exponentials and logarithms propagate NaN. Vulkan asks that of none (SignedZeroInfNanPreserve
     * does not name them): the special-function units of GPUs do, while a CPU driver may clamp first, or take the bits of
     * a NaN for a number.
     */
    get propagatesNan(): 0 | 1;
    /** Most bytes of a buffer that one binding can be. */
    get bindingBytes(): number;
    /** Most bytes of a buffer. */
    get bufferBytes(): number;
    /**
     * A tensor within a flat buffer of `total` elements: of a buffer that one binding can be the whole, and of a larger
     * one the range that it lies in.
     * @param {BufferHandle} buffer
     * @param {{ first: number, count: number, total: number, type: DType }} where in elements of the type
     * @returns {{ buffer: Binding, offset: number }}
     */
    view(buffer: BufferHandle, { first, count, total, type }: {
        first: number;
        count: number;
        total: number;
        type: DType;
    }): {
        buffer: Binding;
        offset: number;
    };
    /**
     * Elements that a part of a tensor may have, so that what it binds of each of these tensors is within the device's
     * limit; all of them where no tensor is larger than that.
     * @param {string} kernel @param {number} count elements of each tensor
     * @param {[tensor: { buffer: Binding, offset: number }, bytes: number][]} tensors with the bytes of an element
     * @param {number} [unit] a part is a multiple of this
     */
    partSize(kernel: string, count: number, tensors: [tensor: {
        buffer: Binding;
        offset: number;
    }, bytes: number][], unit?: number): number;
    /**
     * The dispatches over tensors of `count` elements each: one, or where a tensor is larger than a binding can be one for
     * each part.
     * @param {string} kernel @param {number} count
     * @param {[tensor: { buffer: Binding, offset: number }, bytes: number][]} tensors with the bytes of an element
     * @param {(parts: { buffer: Binding, offset: number }[], count: number, first: number) => Dispatch} make
     * @param {number} [unit] a part is a multiple of this
     * @returns {Dispatches}
     */
    inParts(kernel: string, count: number, tensors: [tensor: {
        buffer: Binding;
        offset: number;
    }, bytes: number][], make: (parts: {
        buffer: Binding;
        offset: number;
    }[], count: number, first: number) => Dispatch, unit?: number): Dispatches;
    /** Workgroups that fill the device and find more to do than one item each: launching has its price, too. */
    get residentGroups(): number;
    /** The workgroup size of kernels that stride over elements. */
    get flatThreads(): number;
    /**
     * The lanes that cooperate on a row of `vectors`: a subgroup where the row is short, else the workgroup. `chunks` is
     * how many vectors a lane of it keeps in registers (0: the row is read again instead).
     * @param {number} vectors
     * @param {{ most?: number, lanes?: number, batch?: number, wide?: boolean }} [limits] vectors that a thread of a
     *   workgroup should keep at `most`, and that the `lanes` of a subgroup may; `batch` of rows that those lanes take at
     *   a time, for the kernels that can; `wide` where a vector is kept as four f32, and not as pairs
     */
    rowPlan(vectors: number, { most, lanes, batch, wide }?: {
        most?: number;
        lanes?: number;
        batch?: number;
        wide?: boolean;
    }): {
        /** Rows that a workgroup takes at a time. */
        rows: number;
        /** Rounds of a loop over a row that is not kept. */
        rounds: number;
        specialization: number[];
        options: PipelineOptions;
    };
    /**
     * Throws where a kernel has more rounds of loops than a CPU device may carry out (`MAX_CPU_ROUNDS`): what is behind them would be
     * missing.
     * @param {string} kernel @param {string} what has so many
     * @param {number} rounds of all loops of an invocation, one after the other or within each other
     */
    checkRounds(kernel: string, what: string, rounds: number): void;
    /** Options of a pipeline whose subgroups are all of the size that the device names. @returns {PipelineOptions} */
    get wholeSubgroups(): PipelineOptions;
    /**
     * Device memory for a kernel's intermediate results, kept and shared by all dispatches that ask under this name; a
     * larger request gets a new buffer, and earlier dispatches keep the old one.
     * @param {string} name @param {number} bytes
     * @returns {BufferHandle}
     */
    workspace(name: string, bytes: number): BufferHandle;
    /** Gives back every workspace; dispatches that name one cannot be submitted any more. */
    releaseWorkspaces(): void;
    /**
     * A shader that the addon carries.
     * @param {string} name @returns {Shader}
     */
    shader(name: string): Shader;
    /** Whether the addon carries the shader. @param {string} name */
    hasShader(name: string): boolean;
    /**
     * The pipeline of a shader under a specialization, made at first use.
     * @param {string} name @param {PipelineOptions} [options] @returns {PipelineHandle}
     */
    pipeline(name: string, options?: PipelineOptions): PipelineHandle;
    /**
     * A dispatch of a shader.
     * @param {string} name
     * @param {object} args
     * @param {Binding[]} args.buffers binding 0 first
     * @param {number} args.writes bit i is set where binding i is written
     * @param {number | [number, number, number]} args.groups workgroup counts
     * @param {Uint8Array} [args.push]
     * @param {ArrayLike<number>} [args.specialization]
     * @param {number} [args.requiredSubgroupSize]
     * @param {boolean} [args.fullSubgroups]
     * @returns {Dispatch}
     */
    dispatch(name: string, { buffers, writes, groups, push, ...options }: {
        buffers: Binding[];
        writes: number;
        groups: number | [number, number, number];
        push?: Uint8Array<ArrayBufferLike> | undefined;
        specialization?: ArrayLike<number> | undefined;
        requiredSubgroupSize?: number | undefined;
        fullSubgroups?: boolean | undefined;
    }): Dispatch;
    /**
     * Workgroups for `items` independent items in workgroups of `size`, for a kernel that strides over the grid.
     * @param {number} items @param {number} size
     */
    strideGroups(items: number, size: number): number;
}
/**
 * Appends dispatches in the packed byte form that `batchDispatchMany` and `batchExecuteAll` take (little-endian,
 * end to end: i32 pipeline, u16 buffers, u16 flags, u32 gX, u32 gZ if flagged, u32 write mask, i32 handles, u64 offset
 * and size of each where bit 15 of the count says so, push bytes). One recorder serves many batches: `reset` keeps its memory.
 */
export class Recorder {
    /** @param {number} [capacity] bytes to start with */
    constructor(capacity?: number);
    view: DataView<ArrayBuffer>;
    /** Bytes written. */
    length: number;
    /** Dispatches written. */
    count: number;
    /**
     * Appends dispatches, in order.
     * @param {...(Dispatches | Dispatches[])} dispatches
     * @returns {this}
     */
    add(...dispatches: (Dispatches | Dispatches[])[]): this;
    /** @param {Dispatch} dispatch */
    append({ pipeline, buffers, groups: [x, y, z], push, writeMask }: Dispatch): void;
    /**
     * Writes handles and their ranges.
     * @param {number} at @param {Binding[]} buffers
     * @returns {number} the byte behind them
     */
    bind(at: number, buffers: Binding[]): number;
    /** @param {number} needed bytes */
    grow(needed: number): void;
    /** The packed dispatches so far. @returns {{ packed: ArrayBuffer, count: number }} */
    finish(): {
        packed: ArrayBuffer;
        count: number;
    };
    /** Empties the recorder and keeps its memory. */
    reset(): void;
}
export type BufferHandle = import("../../index.js").BufferHandle;
export type PipelineHandle = import("../../index.js").PipelineHandle;
export type DeviceInfo = import("../../index.js").DeviceInfo;
/**
 * What the kernels call of the native module.
 */
export type NativeModule = Pick<typeof import("../../index.js"), "initDevice" | "shaders" | "createBuffer" | "bufferBytes" | "buildKernel" | "fillBuffer" | "readBuffer" | "uploadBuffer" | "destroyBuffer" | "createPipeline" | "dispatch" | "batchExecuteAll">;
/**
 * What a dispatch binds: a buffer's handle, or a range of it in bytes (all to its end without a size). The offset is a
 * multiple of the device's `minStorageBufferOffsetAlignment`, which is at most 256.
 */
export type Binding = import("../../index.js").BufferBinding;
/**
 * A tensor argument: a buffer handle, or a binding with the tensor's first element in it. This offset and all sizes
 * count elements of the tensor's type, never bytes. No binding is larger than the device's `maxStorageBufferRange`: of
 * a larger buffer bind a range ({@link KernelContext.view} makes one). Where a tensor is larger itself, the kernels that
 * go over it element by element, and those that reduce all of it, take it part by part in as many dispatches.
 */
export type Tensor = BufferHandle | {
    buffer: Binding;
    offset?: number;
};
/**
 * Storage type of a tensor. `f16` and `bf16` hold two elements in a 32-bit word, low half first; all arithmetic is
 * in f32.
 */
export type DType = "f32" | "f16" | "bf16";
/**
 * One dispatch, ready for `batchDispatch` or for {@link pack}.
 */
export type Dispatch = {
    /**
     * what is run
     */
    pipeline: PipelineHandle;
    /**
     * what is bound, binding 0 first
     */
    buffers: Binding[];
    /**
     * workgroup counts
     */
    groups: [number, number, number];
    /**
     * push constants, exactly the pipeline's size
     */
    push: Uint8Array | undefined;
    /**
     * bit i is set where binding i is written
     */
    writeMask: number;
};
/**
 * What a kernel function returns: dispatches in order.
 */
export type Dispatches = Dispatch | Dispatch[];
export type Shader = import("../../index.js").Shader;
export type KernelOptions = {
    /**
     * whether kernels check that tensors lie within their buffers, and results not over what is read;
     * true when left out. Sizes that are wrong read and write other memory of the buffer's, or of the device's.
     */
    check?: boolean | undefined;
    /**
     * whether matrix products may be computed by kernels in PTX, where the device takes them; true when
     * left out
     */
    ptx?: boolean | undefined;
    /**
     * the table that `helios-vk tune` wrote, or false for none; when left out the one of
     * HELIOS_TUNING, else that of this device and driver beside the pipeline cache, if it is there
     */
    tuning?: string | false | undefined;
};
export type PipelineOptions = {
    /**
     * word i is the value of `constant_id` i (floats by {@link floatBits})
     */
    specialization?: ArrayLike<number> | undefined;
    /**
     * as in VK_EXT_subgroup_size_control
     */
    requiredSubgroupSize?: number | undefined;
    /**
     * whether every subgroup has all its invocations
     */
    fullSubgroups?: boolean | undefined;
};
import { Checker } from './check.mjs';
