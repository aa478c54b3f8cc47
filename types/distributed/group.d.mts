// Made by `npm run types` from distributed/; do not edit.
/**
 * Makes this process a member of the group of all processes that a launcher started together. The device must be there
 * (`initDevice`); `launched().localRank` picks it where a host has several.
 *
 * Throws a `HeliosError`: `ERR_HELIOS_NO_ENGINE` where no library of the engine loads, with what was tried; `ERR_HELIOS_RENDEZVOUS`
 * where not all come together in time, with those who are missing; `ERR_HELIOS_ENGINE` for what the engine says, and for a device
 * that it cannot work on; `ERR_HELIOS_INVALID_BATCH` where this process is a member of a group already.
 * @param {InitOptions} [options]
 * @returns {Promise<Group>}
 */
export function init(options?: InitOptions): Promise<Group>;
/**
 * The processes that compute together. Made by `init`.
 *
 * A collective is a call of the stream like a dispatch: it comes behind everything called so far and before everything that is
 * called later, and nothing waits for it here. All ranks call the same ones in the same order. Those called directly behind each other
 * may end together: a wait for one of them may wait for all that were called before the wait.
 *
 * When one rank fails, all do: what is under way ends, `signal` fires, every later call throws the failure, and so does a wait for a
 * value at or behind the first collective that did not come to its end. What buffers hold by then is undefined. `destroy` cleans up;
 * the way on is a new process from the last checkpoint, which `helios-vk run --max-restarts` starts.
 */
export class Group {
    static key: symbol;
    /**
     * @param {symbol} key
     * @param {{ rank: number, worldSize: number, localRank: number, engine: 'mpi' | 'nccl', watch: Watch }} parts
     * @hidden
     */
    constructor(key: symbol, { rank, worldSize, localRank, engine, watch }: {
        rank: number;
        worldSize: number;
        localRank: number;
        engine: "mpi" | "nccl";
        watch: Watch;
    });
    /** This process among all, from 0. */
    rank: number;
    /** How many processes there are. */
    worldSize: number;
    /** This process among those of its host. */
    localRank: number;
    /** What carries the collectives. */
    engine: "nccl" | "mpi";
    /** Fires when the group fails; its reason is the `HeliosError`. @type {AbortSignal} */
    signal: AbortSignal;
    /**
     * Every rank gets the sum of all ranks' elements, in place, in f32. The sum is the same on every rank, and its order of additions
     * is the engine's.
     * @param {BufferHandle} buffer
     * @param {RangeOptions} [range]
     * @returns {TimelineValue} when it is there
     */
    allReduce(buffer: BufferHandle, range?: RangeOptions): TimelineValue;
    /**
     * Of `count` elements, divided by the ranks into equal shards, each rank gets the sum of its own shard, in place, in f32; the other
     * shards stay as they are.
     * @param {BufferHandle} buffer
     * @param {RangeOptions} [range] `count` is a multiple of the world size
     * @returns {TimelineValue}
     */
    reduceScatter(buffer: BufferHandle, range?: RangeOptions): TimelineValue;
    /**
     * Every rank gets the shards of all: each has its own in its place already.
     * @param {BufferHandle} buffer
     * @param {RangeOptions & { type?: ElementType }} [range] `count` is a multiple of the world size, and a shard one of 4 bytes
     * @returns {TimelineValue}
     */
    allGather(buffer: BufferHandle, range?: RangeOptions & {
        type?: ElementType;
    }): TimelineValue;
    /**
     * Every rank gets the elements of rank `root`.
     * @param {BufferHandle} buffer
     * @param {RangeOptions & { type?: ElementType, root?: number }} [range] `root` is 0 when left out
     * @returns {TimelineValue}
     */
    broadcast(buffer: BufferHandle, range?: RangeOptions & {
        type?: ElementType;
        root?: number;
    }): TimelineValue;
    /**
     * Of `count` elements the first half is sent, an equal shard to each rank, and the second half gets the shard that each rank has sent
     * to this one, in the order of ranks. What is sent stays as it is.
     * @param {BufferHandle} buffer
     * @param {RangeOptions & { type?: ElementType }} [range] `count` is a multiple of twice the world size, and a shard one of 4 bytes
     * @returns {TimelineValue}
     */
    allToAll(buffer: BufferHandle, range?: RangeOptions & {
        type?: ElementType;
    }): TimelineValue;
    /**
     * What every rank gave, by rank, once all have: also the barrier of the JavaScript threads. It has nothing to do with the device.
     * @param {unknown} [value] anything that JSON can say
     * @returns {Promise<any[]>}
     */
    exchange(value?: unknown): Promise<any[]>;
    /**
     * Fails the group on every rank, with `ERR_HELIOS_ABORTED`.
     * @param {string} [reason]
     */
    abort(reason?: string): void;
    /**
    /**
     * Leaves the group, together with all other ranks and behind everything called so far; an MPI ends then, and does not start again in
     * this process, NCCL does. Resolves only if every rank has made the same calls, and all of them have taken place; otherwise it throws
     * the failure of the group, also one that was thrown before. Either way the group is gone then, and the device is free for other work.
     * @returns {Promise<void>}
     */
    destroy(): Promise<void>;
    #private;
}
export type PromiseWithResolvers<T> = {
    promise: Promise<T>;
    resolve: (value: T) => void;
    reject: (error: Error) => void;
};
export type BufferHandle = import("../../index.js").BufferHandle;
export type TimelineValue = import("../../index.js").TimelineValue;
export type Failure = import("./store.mjs").Failure;
export type InitOptions = {
    /**
     * `auto` (the default) is MPI, which runs everywhere. `nccl` works on the memory of
     * NVIDIA devices, without a copy through the host; it wants `master` (`helios-vk run` and `torchrun` set it)
     */
    engine?: "auto" | "nccl" | "mpi" | undefined;
    /**
     * of this process, from 0; by default as its launcher says
     */
    rank?: number | undefined;
    worldSize?: number | undefined;
    localRank?: number | undefined;
    /**
     * `HOST:PORT` where rank 0 keeps the store; by default `MASTER_ADDR` and `MASTER_PORT`, and without them
     * a port that rank 0 picks and MPI tells the others
     */
    master?: string | undefined;
    /**
     * the name or path of the engine's library; by default the MPI of the launcher (`HELIOS_MPI_LIBRARY`), or
     * the NCCL that the loader knows or the environment of Python holds (`HELIOS_NCCL_LIBRARY`)
     */
    library?: string | undefined;
    /**
     * anything that JSON can say and all ranks must have in common: a group of different ones does not form
     */
    config?: unknown;
    /**
     * how long all may take to come together (60,000)
     */
    joinTimeoutMs?: number | undefined;
    /**
     * how long a process may be silent before it counts as lost (10,000)
     */
    peerTimeoutMs?: number | undefined;
    /**
     * how long a collective may wait for other ranks (600,000)
     */
    timeoutMs?: number | undefined;
};
/**
 * What a collective works on.
 */
export type RangeOptions = {
    /**
     * first element of the buffer; 0 when left out. Its byte is a multiple of 4
     */
    offset?: number | undefined;
    /**
     * elements, all ranks' shards together; all to the buffer's end when left out
     */
    count?: number | undefined;
};
/**
 * what elements are moved as: sums are of f32 alone
 */
export type ElementType = "f32" | "bf16" | "u8";
/** The thread that keeps in touch with the others (`watch.mjs`), as the main thread sees it. */
declare class Watch {
    /** @param {import('./watch.mjs').WatchOptions} options */
    constructor(options: import("./watch.mjs").WatchOptions);
    /** @type {Failure | null} */
    failure: Failure | null;
    signal: AbortSignal;
    /** Settled when all ranks are at the store. */
    joined: Promise<void>;
    /** Settled when the thread is at work; on rank 0 with the port of the store. */
    opened: Promise<number>;
    worker: Worker;
    ended: Promise<any>;
    /** @param {string[]} hosts @param {number} port */
    reach(hosts: string[], port: number): void;
    /** @param {unknown} value @returns {Promise<any[]>} */
    exchange(value: unknown): Promise<any[]>;
    /**
     * All ranks want to leave, each after as many calls as this one; rejected when that is not so.
     * @param {number} calls that this rank has made
     * @returns {Promise<void>}
     */
    agreeToLeave(calls: number): Promise<void>;
    /** @param {Failure} failure */
    abort(failure: Failure): void;
    /** Ends the thread. @param {Error | null} why this rank leaves alone; null where all leave together */
    leave(why: Error | null): Promise<void>;
    #private;
}
import { Worker } from 'node:worker_threads';
export {};
