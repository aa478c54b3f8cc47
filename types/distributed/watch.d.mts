// Made by `npm run types` from distributed/; do not edit.
export type Failure = import("./store.mjs").Failure;
export type WatchOptions = {
    rank: number;
    worldSize: number;
    generation: string;
    /**
     * of this package
     */
    version: string;
    engine: "mpi" | "nccl";
    config: string;
    /**
     * of the store, tried in turn; empty where this rank opens it and says where
     */
    hosts: string[];
    bind: string | undefined;
    port: number;
    joinMs: number;
    peerMs: number;
    /**
     * how long a collective may take
     */
    timeoutMs: number;
};
