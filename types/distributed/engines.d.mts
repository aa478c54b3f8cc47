// Made by `npm run types` from distributed/; do not edit.
/**
 * Libraries in the order in which they are tried.
 * @param {import('./environment.mjs').Launch['launcher']} launcher who started this process: another MPI's library would not find
 *   the others
 * @param {Record<string, string | undefined>} [environment]
 */
export function candidates(launcher: import("./environment.mjs").Launch["launcher"], environment?: Record<string, string | undefined>): string[];
/**
 * Libraries of NCCL in the order in which they are tried: what `HELIOS_NCCL_LIBRARY` names, a file or the folder that it is in, and
 * nothing else; or the loader's, and those of the active environments of Python.
 * @param {Record<string, string | undefined>} [environment]
 */
export function ncclCandidates(environment?: Record<string, string | undefined>): string[];
/**
 * The engines that there are, and what was tried in vain. Each library is loaded in a process of its own, so that none can harm
 * this one; nothing is started.
 * @returns {Promise<{ engines: Engine[], missing: Missing[], install: string }>} `install`: the command that gets one on Debian
 */
export function engines(): Promise<{
    engines: Engine[];
    missing: Missing[];
    install: string;
}>;
/** What gets an engine on Debian and Ubuntu. */
export const INSTALL: "apt-get install openmpi-bin   (or: apt-get install mpich)";
/** Names under which it knows CUDA's driver. */
export const DRIVERS: string[];
export type Abi = "openmpi" | "mpich" | "mpi-abi" | "nccl";
/**
 * An engine that can be used.
 */
export type Engine = {
    engine: "mpi" | "nccl";
    /**
     * the binary interface: Open MPI's, MPICH's, the one of MPI-5, or NCCL's
     */
    abi: Abi;
    /**
     * the name or path under which it loads
     */
    library: string;
    /**
     * what it says of itself
     */
    version: string;
};
export type Missing = {
    library: string;
    reason: string;
};
