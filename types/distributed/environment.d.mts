// Made by `npm run types` from distributed/; do not edit.
/**
 * A host and a port.
 * @param {string} text e.g. `10.0.0.1:29500` or `[::1]:29500`
 * @param {string} name of the argument, for the error
 */
export function address(text: string, name: string): {
    host: string;
    port: number;
};
/**
 * Rank, world size and place of this process, as `helios-vk run`, `mpirun`, `srun` or `torchrun --no-python` has told it. May be
 * called before `initDevice`, whose device `localRank` picks.
 * @param {Environment} [environment]
 * @returns {Launch}
 */
export function launched(environment?: Environment): Launch;
export type Environment = Record<string, string | undefined>;
/**
 * How this process was started.
 */
export type Launch = {
    /**
     * whose variables say so; null where nothing does
     */
    launcher: "openmpi" | "mpich" | "torchrun" | "slurm" | null;
    /**
     * from 0
     */
    rank: number;
    worldSize: number;
    /**
     * among the processes of this host: the index of its device
     */
    localRank: number;
    /**
     * where the ranks meet, if it is said
     */
    master: {
        host: string;
        port: number;
    } | null;
};
export type Names = {
    launcher: Exclude<Launch["launcher"], null>;
    rank: string;
    worldSize: string;
    localRank: string;
};
