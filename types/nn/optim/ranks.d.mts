// Made by `npm run types` from nn/; do not edit.
/** @typedef {import('./bucket.mjs').Bucket} Bucket */
/** @typedef {import('./bucket.mjs').Run} Run */
/**
 * What an optimizer uses of a `Group` of `helios-vk/distributed`.
 * @typedef {object} ProcessGroup
 * @property {number} rank of this process, from 0
 * @property {number} worldSize processes of the group
 * @property {'mpi' | 'nccl'} [engine] what carries its collectives; nccl has parameters and gradients in memory that it gets at
 * @property {(buffer: number, range?: { offset?: number, count?: number }) => unknown} allReduce
 *   the sum of all elements, on every rank
 * @property {(buffer: number, range?: { offset?: number, count?: number }) => unknown} reduceScatter
 *   the sum of its own shard, on each rank
 * @property {(buffer: number, range?: { offset?: number, count?: number }) => unknown} allGather
 *   the shards of all, on every rank
 * @property {(buffer: number, range?: { offset?: number, count?: number }) => unknown} broadcast
 *   the elements of rank 0, on every rank
 * @property {(buffer: number, range?: { offset?: number, count?: number, type?: 'bf16' }) => unknown} [allToAll]
 *   a shard from each rank to each, from the first half to the second: needed for gradients in bf16
 */
/**
 * Has the gradient of each parameter be the mean of all processes' gradients of it, for steps of one's own: an optimizer with a
 * `processGroup` does so by itself. All processes call it with the same parameters in the same order.
 *
 * Throws a UsageError, before anything is changed, where a parameter has no gradient, and in a function that is being compiled.
 * @param {ProcessGroup} group
 * @param {Iterable<import('../modules/module.mjs').Parameter>} parameters f32
 */
export function averageGradients(group: ProcessGroup, parameters: Iterable<import("../modules/module.mjs").Parameter>): void;
export class Ranks {
    /**
     * @param {ProcessGroup} group @param {0 | 1} zero @param {'f32' | 'bf16'} reduce what gradients travel as
     * @param {string} of who takes them
     */
    constructor(group: ProcessGroup, zero: 0 | 1, reduce: "f32" | "bf16", of: string);
    group: ProcessGroup;
    half: boolean;
    /** Made when they are first used. @type {Map<Bucket, Wire>} */
    wires: Map<Bucket, Wire>;
    size: number;
    zero: boolean;
    /** Buckets are of multiples of this many elements, so that all shards are equal and begin where ranges may. */
    multiple: number;
    /** Takes the norm of this process's shards, which says nothing of a step yet. */
    own: Tensor;
    ownNorm: Tensor;
    /** The norms of all, by rank. */
    norms: Tensor;
    /** What of a bucket this process steps. @param {Bucket} bucket @returns {Run} */
    shard({ count }: Bucket): Run;
    /** Runs a collective behind what was computed so far. @param {'allReduce' | 'reduceScatter' | 'allGather' | 'broadcast'} kind @param {Tensor} tensor @param {number} [count] */
    call(kind: "allReduce" | "reduceScatter" | "allGather" | "broadcast", tensor: Tensor, count?: number): void;
    /** Has all processes begin with the parameters of rank 0. @param {Bucket[]} buckets */
    begin(buckets: Bucket[]): void;
    /** Sums of gradients, of the own shard at least. @param {Bucket[]} buckets */
    sum(buckets: Bucket[]): void;
    /** Whether the engine works on the device's memory in place where that is exportable. */
    get exportable(): boolean;
    /** Gathers the norms of all processes' shards: the norm of these is that of the whole. `own` has this one's. */
    gatherNorms(): void;
    /** The parameters that the others have stepped. @param {Bucket[]} buckets */
    gather(buckets: Bucket[]): void;
    /** All elements of a tensor of which each process has its shard. @param {Bucket} bucket @param {Tensor} shard @returns {Tensor} */
    whole(bucket: Bucket, shard: Tensor): Tensor;
    dispose(): void;
    #private;
}
export type Bucket = import("./bucket.mjs").Bucket;
export type Run = import("./bucket.mjs").Run;
/**
 * What an optimizer uses of a `Group` of `helios-vk/distributed`.
 */
export type ProcessGroup = {
    /**
     * of this process, from 0
     */
    rank: number;
    /**
     * processes of the group
     */
    worldSize: number;
    /**
     * what carries its collectives; nccl has parameters and gradients in memory that it gets at
     */
    engine?: "nccl" | "mpi" | undefined;
    /**
     *   the sum of all elements, on every rank
     */
    allReduce: (buffer: number, range?: {
        offset?: number;
        count?: number;
    }) => unknown;
    /**
     *   the sum of its own shard, on each rank
     */
    reduceScatter: (buffer: number, range?: {
        offset?: number;
        count?: number;
    }) => unknown;
    /**
     *   the shards of all, on every rank
     */
    allGather: (buffer: number, range?: {
        offset?: number;
        count?: number;
    }) => unknown;
    /**
     *   the elements of rank 0, on every rank
     */
    broadcast: (buffer: number, range?: {
        offset?: number;
        count?: number;
    }) => unknown;
    /**
     * a shard from each rank to each, from the first half to the second: needed for gradients in bf16
     */
    allToAll?: ((buffer: number, range?: {
        offset?: number;
        count?: number;
        type?: "bf16";
    }) => unknown) | undefined;
};
/**
 * The 16-bit copy of a bucket's gradients that goes to the others, and what comes from them.
 */
export type Wire = {
    storage: Storage;
    round: Template;
    add: Template;
};
import { Tensor } from '../tensor.mjs';
import { Storage } from '../storage.mjs';
import { Template } from '../../kernels/template.mjs';
