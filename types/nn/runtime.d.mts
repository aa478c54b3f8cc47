// Made by `npm run types` from nn/; do not edit.
/**
 * Options of `init`.
 * @typedef {object} InitOptions
 * @property {string | number} [device] index, UUID, PCI address or part of the name; the first choice when left out
 * @property {boolean} [safe] whether shaders are checked and kept inside their buffers
 * @property {any} [vk] another native module with the functions of `helios-vk`; this package's own when left out
 */
/** The device, opened at first use. @returns {Runtime} */
export function runtime(): Runtime;
/**
 * Opens the device with these options (see `initDevice`), or takes another native module. Before anything else of this
 * package; without it the first tensor opens the default device.
 * @param {InitOptions} [options]
 * @returns {import('../../index.js').DeviceInfo}
 */
export function init({ vk, ...options }?: InitOptions): import("../../index.js").DeviceInfo;
/** Has a cache emptied by {@link reset}. @template {{ clear(): void }} T @param {T} cache @returns {T} */
export function perDevice<T extends {
    clear(): void;
}>(cache: T): T;
/**
 * Closes the device, also one that was lost, and forgets everything on it: every tensor, module, optimizer and compiled
 * function is gone, and using one is an error that says so. The next tensor, or `init`, opens a device again; what was saved
 * can be loaded into a model that is built anew. What dropout draws begins anew.
 */
export function reset(): void;
/**
 * Sends the dispatches of `fn` elsewhere.
 * @template T
 * @param {RecordingSink} target @param {() => T} fn
 * @returns {T}
 */
export function into<T>(target: RecordingSink, fn: () => T): T;
/**
 * Runs `fn`; where a function is being compiled, without results that were there before in place of those computed in it.
 * @template T
 * @param {() => T} fn
 * @returns {T}
 */
export function anew<T>(fn: () => T): T;
/**
 * What dispatches are of: an operation, its attributes, and the number of its inputs, and the layouts of these and then of its outputs.
 * @typedef {{ op: import('./ops/registry.mjs').Op, attributes: any, inputs: number, layouts: import('./layout.mjs').Layout[] }} CallInfo
 */
/** What dispatches are that are of no operation: a name, and the bytes that they read and write. @typedef {{ name: string, bytes?: number }} WorkInfo */
/**
 * What takes the dispatches of operations: the eager list, or the recording of a compiled function.
 * @typedef {object} Sink
 * @property {(bytes: number, owned?: boolean) => Allocation} allocate
 * @property {(allocation: Allocation) => void} release
 * @property {(template: Template, storages: Storage[], call?: CallInfo, info?: WorkInfo) => string | undefined} append `info` of what is
 *   no operation; a recording answers with the line of the user's program
 * @property {(storage: Storage, allocation: Allocation) => void} [watch] has memory given back when its storage is garbage
 * @property {(tensor: Tensor) => void} [use] is told of operands
 * @property {(storage: Storage) => boolean} [changed] says whether it has changed a storage from before
 * @property {Set<import('./optim/half-copy.mjs').ParameterCopy>} [copies] that hold what they should before each launch
 * @property {(leaf: Tensor) => void} [gradientOf] is told of leaves before their gradient is looked at or changed
 * @property {boolean} [closed] whether its memory went with its device
 * @property {number} [serial] tensors from this number on were made for it
 * @property {() => string | undefined} [originNow] the line of the user's program that is being recorded
 * @property {string | undefined} [origin] that line where it is known: in a backward pass the line of the operation
 * @property {number} [region] of what is recorded now: results are shared within one alone
 */
/**
 * Memory of a storage.
 * @typedef {object} Allocation
 * @property {number} handle the buffer; of a recording: -1 until its memory is planned
 * @property {number} bytes
 * @property {boolean} live
 * @property {boolean} [owned] whether something other than a program's variables keeps it
 * @property {Sink} sink where it was allocated
 */
/** The eager mode: operations are appended as they are called, and submitted soon. @implements {Sink} */
export class Runtime implements Sink {
    /** @param {any} vk the native module */
    constructor(vk: any);
    vk: any;
    /** @type {import('../kernels/index.mjs').Kernels} */
    kernels: import("../kernels/index.mjs").Kernels;
    info: import("../../index.js").DeviceInfo;
    recorder: Recorder;
    /** Buffers freed since the last list, by size: what follows in this list may have them at once. @type {Map<number, number[]>} */
    free: Map<number, number[]>;
    /** Handles of one record, filled anew for each. @type {number[]} */
    handles: number[];
    scheduled: boolean;
    /** Whether the list is not to be submitted yet: {@link Runtime.allOrNothing}. */
    held: boolean;
    /** Whether the device was given up: its handles mean nothing any more. */
    closed: boolean;
    /** What a list that nobody waited for failed with. @type {unknown} */
    failure: unknown;
    /** Buffers and their bytes that are held now. */
    live: {
        buffers: number;
        bytes: number;
    };
    /** Memory that compiled functions share. */
    slots: SharedSlots;
    turnBytes: number;
    warned: boolean;
    /** Operations that found their record, and that made it. */
    hits: number;
    misses: number;
    registry: FinalizationRegistry<Allocation>;
    /**
     * Memory of at least `bytes` bytes with undefined contents.
     * @param {number} bytes
     * @param {boolean} [owned] whether something other than a program's variables keeps it
     * @param {boolean} [exportable] whether other interfaces to the device get at it too, as NCCL does
     * @returns {Allocation}
     */
    allocate(bytes: number, owned?: boolean, exportable?: boolean): Allocation;
    /**
     * A buffer that was freed since the last list. Small ones take turns: who writes at once over what an operation has just used
     * waits for it, which takes a GPU longer than the operation.
     * @param {number} size @returns {number | undefined}
     */
    reuse(size: number): number | undefined;
    /** @param {number} size @returns {number} */
    create(size: number): number;
    /** @param {Allocation} allocation */
    release(allocation: Allocation): void;
    /** @param {Storage} storage @param {Allocation} allocation */
    watch(storage: Storage, allocation: Allocation): void;
    /** @param {Template} template @param {Storage[]} storages one for each slot @returns {undefined} */
    append(template: Template, storages: Storage[]): undefined;
    /**
     * Appends what `fn` computes, or nothing where `fn` throws: none of it is submitted before its end, and what it appended is taken out
     * of the list again. Where it finds no memory, the list from before is submitted, which gives back what was freed, and `fn` runs a
     * second time. `fn` does nothing that cannot be taken back: it uploads and flushes nothing.
     * @param {() => void} fn @param {Storage[]} storages from before that it writes: where it throws, they have their versions again
     */
    allOrNothing(fn: () => void, storages: Storage[]): void;
    /** Has the list submitted at the end of this turn. */
    schedule(): void;
    /** Submits what has been appended, where there is memory for that; else it waits for the next time. */
    submit(): void;
    /** Submits what has been appended. Out of memory none of it has run, and it still waits. */
    flush(): void;
    /** Empties the list, and gives back the buffers that it alone used. */
    forgetList(): void;
    /** Names memory for reports and statistics. @param {Allocation} allocation @param {string} name */
    name({ handle }: Allocation, name: string): void;
    /** Gives up the device. */
    close(): void;
    /** Gives back the buffers that nothing took again. */
    destroyFree(): void;
    /**
     * Copies host data into a storage, in order with the operations.
     * @param {Allocation} allocation @param {ArrayBufferView} data @param {number} [byteOffset]
     */
    upload(allocation: Allocation, data: ArrayBufferView, byteOffset?: number): void;
}
/** What takes dispatches now. @returns {Sink} */
export function sink(): Sink;
/** The recording of the function that is being compiled, if one is. */
export function recordingNow(): RecordingSink | undefined;
/** Whether a function is being compiled. */
export function isRecording(): boolean;
/** The number of buffers that tensors hold now, and their bytes. Opens the device if none is open. */
export function memory(): {
    buffers: number;
    bytes: number;
};
/**
 * Options of `init`.
 */
export type InitOptions = {
    /**
     * index, UUID, PCI address or part of the name; the first choice when left out
     */
    device?: string | number | undefined;
    /**
     * whether shaders are checked and kept inside their buffers
     */
    safe?: boolean | undefined;
    /**
     * another native module with the functions of `helios-vk`; this package's own when left out
     */
    vk?: any;
};
export type Template = import("../kernels/template.mjs").Template;
export type Kernels = import("../kernels/index.mjs").Kernels;
export type Storage = import("./storage.mjs").Storage;
export type Tensor = import("./tensor.mjs").Tensor;
/**
 * What dispatches are of: an operation, its attributes, and the number of its inputs, and the layouts of these and then of its outputs.
 */
export type CallInfo = {
    op: import("./ops/registry.mjs").Op;
    attributes: any;
    inputs: number;
    layouts: import("./layout.mjs").Layout[];
};
/**
 * What dispatches are that are of no operation: a name, and the bytes that they read and write.
 */
export type WorkInfo = {
    name: string;
    bytes?: number;
};
/**
 * What takes the dispatches of operations: the eager list, or the recording of a compiled function.
 */
export type Sink = {
    allocate: (bytes: number, owned?: boolean) => Allocation;
    release: (allocation: Allocation) => void;
    /**
     * `info` of what is
     * no operation; a recording answers with the line of the user's program
     */
    append: (template: Template, storages: Storage[], call?: CallInfo, info?: WorkInfo) => string | undefined;
    /**
     * has memory given back when its storage is garbage
     */
    watch?: ((storage: Storage, allocation: Allocation) => void) | undefined;
    /**
     * is told of operands
     */
    use?: ((tensor: Tensor) => void) | undefined;
    /**
     * says whether it has changed a storage from before
     */
    changed?: ((storage: Storage) => boolean) | undefined;
    /**
     * that hold what they should before each launch
     */
    copies?: Set<import("./optim/half-copy.mjs").ParameterCopy> | undefined;
    /**
     * is told of leaves before their gradient is looked at or changed
     */
    gradientOf?: ((leaf: Tensor) => void) | undefined;
    /**
     * whether its memory went with its device
     */
    closed?: boolean | undefined;
    /**
     * tensors from this number on were made for it
     */
    serial?: number | undefined;
    /**
     * the line of the user's program that is being recorded
     */
    originNow?: (() => string | undefined) | undefined;
    /**
     * that line where it is known: in a backward pass the line of the operation
     */
    origin?: string | undefined;
    /**
     * of what is recorded now: results are shared within one alone
     */
    region?: number | undefined;
};
/**
 * Memory of a storage.
 */
export type Allocation = {
    /**
     * the buffer; of a recording: -1 until its memory is planned
     */
    handle: number;
    bytes: number;
    live: boolean;
    /**
     * whether something other than a program's variables keeps it
     */
    owned?: boolean | undefined;
    /**
     * where it was allocated
     */
    sink: Sink;
};
export type RecordingSink = Required<Omit<Sink, "origin" | "closed" | "watch">> & Pick<Sink, "origin" | "closed">;
import { Recorder } from '../kernels/base.mjs';
import { SharedSlots } from './memory.mjs';
