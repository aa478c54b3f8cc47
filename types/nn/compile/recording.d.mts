// Made by `npm run types` from nn/; do not edit.
/** @typedef {import('../runtime.mjs').Allocation} Allocation */
/** @typedef {import('../runtime.mjs').Sink} Sink */
/** @typedef {import('../storage.mjs').Storage} Storage */
/** @typedef {import('../tensor.mjs').Tensor} Tensor */
/** @typedef {import('../../kernels/template.mjs').Template} Template */
/** @typedef {import('../passes/calls.mjs').Call} Call */
/** @typedef {import('../optim/half-copy.mjs').ParameterCopy} ParameterCopy */
/**
 * The dispatches of a trace, and what they touch.
 * @implements {Sink}
 */
export class Recording implements Sink {
    /** @type {Call[]} */
    list: Call[];
    /** Tensors made from here on are the trace's. */
    serial: number;
    /** What is relied on from before. */
    guard: Guard;
    region: number;
    /** The line of the user's program whose operations are recorded, where it is not the one that is running. @type {string | undefined} */
    origin: string | undefined;
    /** Storages from before, and their versions when they were first used. @type {Map<Storage, number>} */
    outside: Map<Storage, number>;
    /** Copies of parameters that are read or written here. @type {Set<ParameterCopy>} */
    copies: Set<ParameterCopy>;
    /** Memory is planned at the end. @param {number} bytes @returns {Allocation} */
    allocate(bytes: number): Allocation;
    /** @param {Allocation} allocation */
    release(allocation: Allocation): void;
    /** Whether memory is the trace's. @param {Allocation} allocation */
    owns(allocation: Allocation): boolean;
    /** Notes a storage that is touched here, and keeps it if it was there before. @param {Storage} storage */
    hold(storage: Storage): void;
    /** Has a copy of parameters, which is read or written here, hold what it should before each launch. @param {ParameterCopy} copy */
    keep(copy: ParameterCopy): void;
    originNow(): string | undefined;
    /** @param {Template} template @param {Storage[]} storages @param {import('../runtime.mjs').CallInfo} [call] @param {import('../runtime.mjs').WorkInfo} [info] */
    append(template: Template, storages: Storage[], call?: import("../runtime.mjs").CallInfo, info?: import("../runtime.mjs").WorkInfo): string | undefined;
    /** Notes an operand. @param {Tensor} tensor */
    use(tensor: Tensor): void;
    /** Notes a leaf's gradient before it is looked at. @param {Tensor} leaf */
    gradientOf(leaf: Tensor): void;
    /** Whether a storage from before is changed here. @param {Storage} storage */
    changed(storage: Storage): boolean;
    /**
     * Has everything from before be as it was: nothing has run yet. Copies of parameters that go with a change here hold what these hold
     * without it.
     */
    undo(): void;
    forget(): void;
}
export type Allocation = import("../runtime.mjs").Allocation;
export type Sink = import("../runtime.mjs").Sink;
export type Storage = import("../storage.mjs").Storage;
export type Tensor = import("../tensor.mjs").Tensor;
export type Template = import("../../kernels/template.mjs").Template;
export type Call = import("../passes/calls.mjs").Call;
export type ParameterCopy = import("../optim/half-copy.mjs").ParameterCopy;
import { Guard } from './guard.mjs';
