// Reads rank, world size and addresses from the variables that launchers set: a pure function of a snapshot of the environment.

/**
 * How this process was started.
 * @typedef {object} Launch
 * @property {'openmpi' | 'mpich' | 'torchrun' | 'slurm' | null} launcher whose variables were read; null if there are none
 * @property {number} rank from 0
 * @property {number} worldSize
 * @property {number} localRank among the processes of this host: the index of its device
 * @property {{ host: string, port: number } | null} master where the ranks meet, if a variable says so
 */

/** @typedef {{ launcher: Exclude<Launch['launcher'], null>, rank: string, worldSize: string, localRank: string, localSize: string }} Names */

/**
 * Variables by launcher. Those of MPI come first: `srun` and `torchrun` may start `mpirun`, never the other way round.
 * @type {Names[]}
 */
const LAUNCHERS = [
  {
    launcher: 'openmpi',
    rank: 'OMPI_COMM_WORLD_RANK',
    worldSize: 'OMPI_COMM_WORLD_SIZE',
    localRank: 'OMPI_COMM_WORLD_LOCAL_RANK',
    localSize: 'OMPI_COMM_WORLD_LOCAL_SIZE',
  },
  { launcher: 'mpich', rank: 'PMI_RANK', worldSize: 'PMI_SIZE', localRank: 'MPI_LOCALRANKID', localSize: 'MPI_LOCALNRANKS' },
  { launcher: 'torchrun', rank: 'RANK', worldSize: 'WORLD_SIZE', localRank: 'LOCAL_RANK', localSize: 'LOCAL_WORLD_SIZE' },
  { launcher: 'slurm', rank: 'SLURM_PROCID', worldSize: 'SLURM_NTASKS', localRank: 'SLURM_LOCALID', localSize: '' },
];

/** @typedef {Record<string, string | undefined>} Environment */

/**
 * A whole number of the environment, or undefined where it is not set.
 * @param {Environment} environment @param {string} name
 */
function whole(environment, name) {
  const text = environment[name]?.trim();
  if (!text) return undefined;
  if (!/^\d{1,9}$/.test(text)) throw new RangeError(`${name} must be a whole number, got ${text}`);
  return Number(text);
}

/**
 * A host and a port.
 * @param {string} text e.g. `10.0.0.1:29500` or `[::1]:29500`
 * @param {string} name of the argument, for the error
 */
export function address(text, name) {
  const [, bracketed, plain, digits] = text.match(/^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/) ?? [];
  const port = Number(digits);
  if (digits === undefined || port > 65535) throw new RangeError(`${name} must be HOST:PORT, got ${text}`);
  return { host: bracketed ?? plain, port };
}

/**
 * Rank, world size and local rank of this process, as `helios-vk run`, `mpirun`, `srun` or `torchrun --no-python` has set them.
 * May be called before `initDevice`, so that `localRank` can pick the device.
 * @param {Environment} [environment]
 * @returns {Launch}
 * @throws {RangeError} that names a variable whose value cannot be right
 */
export function launched(environment = process.env) {
  // Checked now: they are read when a group has failed or a run is restarted, which is too late to report a wrong value.
  whole(environment, 'HELIOS_RESTART_COUNT');
  const grace = environment.HELIOS_FAILURE_GRACE?.trim();
  if (grace && !(Number(grace) >= 0)) throw new RangeError(`HELIOS_FAILURE_GRACE must be a number of at least 0, got ${grace}`);
  const host = environment.MASTER_ADDR?.trim();
  const port = whole(environment, 'MASTER_PORT');
  if (port !== undefined && port > 65535) throw new RangeError(`MASTER_PORT must be at most 65535, got ${port}`);
  // Then torchrun's agent itself listens at the port.
  const shift = /^(1|true)$/i.test(environment.TORCHELASTIC_USE_AGENT_STORE ?? '') ? 1 : 0;
  const master = host && port !== undefined ? { host, port: port + shift } : null;
  for (const { launcher, ...names } of LAUNCHERS) {
    const rank = whole(environment, names.rank);
    const worldSize = whole(environment, names.worldSize);
    if (rank === undefined || worldSize === undefined) continue;
    if (rank >= worldSize) throw new RangeError(`${names.rank} must be less than ${names.worldSize} (${worldSize}), got ${rank}`);
    // SLURM also speaks MPICH's protocol (`--mpi=pmi2`), but has its own variable for this.
    const localRank = whole(environment, names.localRank) ?? whole(environment, 'SLURM_LOCALID') ?? 0;
    return { launcher, rank, worldSize, localRank, master };
  }
  return { launcher: null, rank: 0, worldSize: 1, localRank: 0, master };
}

/**
 * Whether the launcher says that all of its processes are on one host.
 * @param {Environment} [environment]
 */
export function onOneHost(environment = process.env) {
  const { launcher, worldSize } = launched(environment);
  if (launcher === null) return false;
  if (worldSize === 1) return true;
  if (launcher === 'slurm') return whole(environment, 'SLURM_STEP_NUM_NODES') === 1;
  const names = LAUNCHERS.find((each) => each.launcher === launcher);
  return whole(environment, names?.localSize ?? '') === worldSize;
}

/**
 * Where rank 0 listens, and where the others look for it.
 * @param {Launch['master']} master
 * @param {boolean} oneHost whether all are on one host: then no other host may connect
 * @returns {{ bind: string | undefined, host: string | undefined }} `bind`: undefined for every interface; `host`: undefined if MPI passes it on
 */
export function meetingPlace(master, oneHost) {
  if (oneHost || master?.host === 'localhost') return { bind: '127.0.0.1', host: '127.0.0.1' };
  const host = master?.host;
  return { bind: host !== undefined && /^(127\.[\d.]+|::1)$/.test(host) ? host : undefined, host };
}

/**
 * The secret of the run, which every connection to the store must prove to know: made by `helios-vk run` or set by the user; empty if
 * there is none.
 * @param {Environment} [environment]
 */
export function secretOf(environment = process.env) {
  const secret = environment.HELIOS_SECRET?.trim() ?? '';
  if (secret !== '' && (secret.length < 16 || secret.length > 1024)) {
    throw new RangeError(`HELIOS_SECRET must be of 16 to 1,024 characters, got ${secret.length}`);
  }
  return secret;
}
