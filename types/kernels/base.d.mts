// Made by `npm run types` from kernels/; do not edit.
/**
 * A tensor argument: a buffer handle, or a handle with the tensor's first element. Offsets and sizes count elements
 * of the tensor's type, never bytes.
 * @typedef {number | { buffer: number, offset?: number }} Tensor
 */
/**
 * Storage type of a tensor. `f16` and `bf16` hold two elements in a 32-bit word, low half first; all arithmetic is
 * in f32.
 * @typedef {'f32' | 'f16' | 'bf16'} DType
 */
/**
 * One dispatch, ready for `batchDispatch` or for {@link pack}.
 * @typedef {object} Dispatch
 * @property {number} pipeline pipeline handle
 * @property {number[]} buffers buffer handles, binding 0 first
 * @property {[number, number, number]} groups workgroup counts
 * @property {Uint8Array | undefined} push push constants, exactly the pipeline's size
 * @property {number} writeMask bit i is set where binding i is written
 */
/**
 * What a kernel function returns: dispatches in order.
 * @typedef {Dispatch | Dispatch[]} Dispatches
 */
/**
 * A shader that ships with the addon.
 * @typedef {object} Shader
 * @property {Uint32Array} spirv
 * @property {number} bindings number of storage buffers
 * @property {number} pushBytes
 * @property {[number, number, number]} workgroupSize
 */
/**
 * @typedef {object} PipelineOptions
 * @property {ArrayLike<number>} [specialization] word i is the value of `constant_id` i (floats by {@link floatBits})
 * @property {number} [requiredSubgroupSize]
 * @property {boolean} [fullSubgroups]
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
 * Splits a tensor argument into its buffer and first element.
 * @param {string} kernel @param {string} name @param {unknown} tensor
 * @returns {{ buffer: number, offset: number }}
 */
export function tensor(kernel: string, name: string, tensor: unknown): {
    buffer: number;
    offset: number;
};
/**
 * How wide a kernel may read: 4 elements where every size and offset is a multiple of 4, else what its storage types
 * allow at the least (a pair of 16-bit elements, or one f32).
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
 * @param {...(Dispatch | Dispatch[])} dispatches
 * @returns {{ packed: ArrayBuffer, count: number }}
 */
export function pack(...dispatches: (Dispatch | Dispatch[])[]): {
    packed: ArrayBuffer;
    count: number;
};
export function ceilDiv(a: number, b: number): number;
export function nextPowerOfTwo(n: number): number;
/** Most elements of a tensor: kernels index with u32, and a stride past the end must not wrap. */
export const MAX_ELEMENTS: 4026531840;
/**
 * The device as the kernels see it, and the pipelines made on it. Kernel families are functions of a context.
 */
export class KernelContext {
    /** @param {any} vk the native module */
    constructor(vk: any);
    /** The native module. */
    vk: any;
    /** What `initDevice` returns. */
    info: any;
    /** Whether the device is a CPU driver, where small workgroups win. */
    isCpu: boolean;
    /** Shared memory of a workgroup in bytes. */
    sharedBytes: any;
    /** Most workgroups in x (65,535 is what every device has; y and z are taken to have no more). */
    maxGroups: number;
    /** @type {Map<string, Shader>} */
    shaders: Map<string, Shader>;
    /** @type {Map<string, number>} */
    pipelines: Map<string, number>;
    /** @type {Map<string, { buffer: number, bytes: number }>} */
    workspaces: Map<string, {
        buffer: number;
        bytes: number;
    }>;
    /** Every workspace that was ever made: earlier dispatches may name a smaller one. @type {number[]} */
    owned: number[];
    /** Most workgroups of a normalization's backward pass: each leaves a row of sums behind. */
    get normBlocks(): 16 | 792;
    /**
     * Rows that a team of it takes at a time, whether it loads the next ones ahead, and whether all teams of a workgroup
     * take equally many turns.
     */
    get normBackward(): {
        batch: number;
        ahead: number;
        lockstep: number;
    };
    /**
     * Of cross-entropy over 16-bit rows: vectors of a row whose exponentials are kept and not taken twice, at the most, and
     * workgroups. Measured on an H200 at 4096 x 16384, in microseconds: 82.2 taken twice, 81.4 kept, kept with 528
     * workgroups 78.4, with 264 79.5.
     */
    get crossEntropy(): {
        kept: number;
        groups: number;
    };
    /**
     * Whether the device's exponentials and logarithms hand a NaN on. Vulkan asks that of none (SignedZeroInfNanPreserve
     * does not name them): the special-function units of GPUs do, while a CPU driver may clamp first, or take the bits of
     * a NaN for a number.
     */
    get keepsNan(): 0 | 1;
    /** Workgroups that fill the device and find more to do than one item each: launching has its price, too. */
    get residentGroups(): number;
    /** The workgroup size of kernels that stride over elements. */
    get flatThreads(): number;
    /**
     * Who takes a row of `vectors`: a team, which is a subgroup where the row is short, else the workgroup. `chunks` is
     * how many vectors a lane of it keeps in registers (0: the row is read again instead).
     * @param {number} vectors
     * @param {{ most?: number, lanes?: number, batch?: number, wide?: boolean }} [limits] vectors that a thread of a
     *   workgroup should keep at the `most`, and that the `lanes` of a subgroup may; `batch` of rows that a team takes at
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
        specialization: number[];
        options: PipelineOptions;
    };
    /** Options of a pipeline whose subgroups are all of the size that the device names. @returns {PipelineOptions} */
    get wholeSubgroups(): PipelineOptions;
    /**
     * Device memory for a kernel's intermediate results, kept and shared by all dispatches that ask under this name; a
     * larger request gets a new buffer, and earlier dispatches keep the old one.
     * @param {string} name @param {number} bytes
     * @returns {number} buffer handle
     */
    workspace(name: string, bytes: number): number;
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
     * @param {string} name @param {PipelineOptions} [options] @returns {number}
     */
    pipeline(name: string, options?: PipelineOptions): number;
    /**
     * A dispatch of a shader.
     * @param {string} name
     * @param {object} args
     * @param {number[]} args.buffers handles, binding 0 first
     * @param {number} args.writes bit i is set where binding i is written
     * @param {number | [number, number, number]} args.groups workgroup counts
     * @param {Uint8Array} [args.push]
     * @param {ArrayLike<number>} [args.specialization]
     * @param {number} [args.requiredSubgroupSize]
     * @param {boolean} [args.fullSubgroups]
     * @returns {Dispatch}
     */
    dispatch(name: string, { buffers, writes, groups, push, ...options }: {
        buffers: number[];
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
 * end to end: i32 pipeline, u16 buffers, u16 flags, u32 gX, u32 gZ if flagged, u32 write mask, i32 handles, push
 * bytes). One recorder serves many batches: `reset` keeps its memory.
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
     * @param {...(Dispatch | Dispatch[])} dispatches
     * @returns {this}
     */
    add(...dispatches: (Dispatch | Dispatch[])[]): this;
    /** @param {Dispatch} dispatch */
    append({ pipeline, buffers, groups: [x, y, z], push, writeMask }: Dispatch): void;
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
/**
 * A tensor argument: a buffer handle, or a handle with the tensor's first element. Offsets and sizes count elements
 * of the tensor's type, never bytes.
 */
export type Tensor = number | {
    buffer: number;
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
     * pipeline handle
     */
    pipeline: number;
    /**
     * buffer handles, binding 0 first
     */
    buffers: number[];
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
/**
 * A shader that ships with the addon.
 */
export type Shader = {
    spirv: Uint32Array;
    /**
     * number of storage buffers
     */
    bindings: number;
    pushBytes: number;
    workgroupSize: [number, number, number];
};
export type PipelineOptions = {
    /**
     * word i is the value of `constant_id` i (floats by {@link floatBits})
     */
    specialization?: ArrayLike<number> | undefined;
    requiredSubgroupSize?: number | undefined;
    fullSubgroups?: boolean | undefined;
};
