// Made by `npm run types` from distributed/; do not edit.
/**
 * Opens the store.
 * @param {StoreOptions} options
 * @returns {Promise<{ port: number, fail: (failure: Failure) => void, close: () => Promise<void> }>} `close` waits until all have
 *   left, or if the group has failed until all have come and heard of it, for as long as one may be silent
 */
export function openStore({ host, port, own, joinMs, peerMs }: StoreOptions): Promise<{
    port: number;
    fail: (failure: Failure) => void;
    close: () => Promise<void>;
}>;
/**
 * A failure of the group, as ranks tell it to each other.
 */
export type Failure = {
    code: import("../../index.js").HeliosErrorCode;
    message: string;
    rank?: number;
};
/**
 * What a rank says of itself as it comes.
 */
export type Hello = {
    rank: number;
    worldSize: number;
    /**
     * of the run: a process of an earlier attempt does not belong
     */
    generation: string;
    /**
     * of this package
     */
    version: string;
    /**
     * that it is about to start
     */
    engine: "mpi" | "nccl";
    /**
     * a hash of what must be equal on all ranks
     */
    config: string;
    /**
     * where it runs, for messages
     */
    process: string;
};
export type Member = {
    socket: import("node:net").Socket;
    hello: Hello;
    /**
     * when, by the clock of `performance`
     */
    heard: number;
    /**
     * the last collective whose turn has come there
     */
    begun: number;
    /**
     * what that one is
     */
    call: string;
    /**
     * after how many calls it wants to leave; null before it does
     */
    leaving: number | null;
    /**
     * with its work done
     */
    left: boolean;
};
export type StoreOptions = {
    /**
     * to listen at; undefined for every interface
     */
    host: string | undefined;
    /**
     * 0 for any
     */
    port: number;
    /**
     * of rank 0
     */
    own: Hello;
    /**
     * how long all may take to come
     */
    joinMs: number;
    /**
     * how long one may be silent
     */
    peerMs: number;
};
