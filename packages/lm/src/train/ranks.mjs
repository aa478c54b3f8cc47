/**
 * A training run over several processes, one for each device: chooses each one's device and its share of a step, and checks that all were
 * started alike. The optimizer of `helios-vk/nn` does the rest.
 */

import { init, launched } from 'helios-vk/distributed';
import { UsageError } from 'helios-vk/options';

/** @typedef {import('helios-vk/distributed').Group} Group */

/** What processes have shards of, as `optim.Options` says. @typedef {0 | 1 | 2 | 3} Zero */

/**
 * How the processes of a run work together.
 * @typedef {object} RanksOptions
 * @property {'mpi' | 'nccl'} [engine] library that exchanges gradients; mpi when left out
 * @property {Zero} [zero] what each process keeps a shard of: 1 the moments, 2 the gradients too, 3 the parameters too; when left out, 1 with
 *   several processes and 0 with one
 * @property {'f32' | 'bf16'} [reduce] type of the exchanged gradients; f32 when left out
 * @property {number} [command-buffers] most submissions in flight; when left out, 64 under a launcher and 8 without one
 *
 * @typedef {object} TrainingRanks
 * @property {Group} group
 * @property {Zero} zero
 * @property {'f32' | 'bf16'} reduce
 * @property {'mpi' | 'nccl'} engine
 */

/**
 * Chooses the device of a process, by its rank on this host, among the devices of the same type as the default one. With fewer devices than
 * processes some share a device, which MPI allows and NCCL refuses. Undefined where HELIOS_DEVICE chooses, or where there is no device.
 * @param {Pick<import('helios-vk').DeviceSummary, 'index' | 'deviceType' | 'usable' | 'chosen'>[]} devices of this host
 * @param {number} localRank
 * @param {NodeJS.ProcessEnv} [environment]
 * @returns {number | undefined} an index
 */
export function deviceOfRank(devices, localRank, environment = process.env) {
  const first = devices.find(({ chosen }) => chosen);
  if (environment.HELIOS_DEVICE || first === undefined) return undefined;
  const alike = devices.filter(({ usable, deviceType }) => usable && deviceType === first.deviceType);
  return alike[localRank % alike.length].index;
}

/**
 * Opens the device of this process and, where a launcher has started it, joins the group of all its processes.
 * @param {Pick<typeof import('helios-vk'), 'initDevice' | 'listDevices'>} vk the native module
 * @param {RanksOptions} options
 * @returns {Promise<{ info: import('helios-vk').DeviceInfo, ranks: TrainingRanks | undefined }>}
 * @throws {UsageError} for options that need several processes, without a launcher
 */
export async function openRanks(vk, { engine, zero, reduce, 'command-buffers': commandBuffers }) {
  const { launcher, localRank } = launched();
  if (reduce === 'bf16' && zero !== undefined && zero > 1)
    throw new UsageError(`--reduce bf16 is for --zero 0 and 1: with --zero ${zero} gradients are summed in f32`);
  if (launcher === null) {
    const given = Object.entries({ engine, zero, reduce }).find(([, value]) => value !== undefined);
    if (given) throw new UsageError(`--${given[0]} is for several processes: npx helios-vk run --nproc N … helios-lm train …`);
    return { info: commandBuffers ? vk.initDevice({ commandBuffers }) : vk.initDevice(), ranks: undefined };
  }
  // A step makes several submissions for each collective. With the usual number of command buffers JavaScript would wait for the device in
  // the middle of a step, and would not see when steps end.
  const device = deviceOfRank(vk.listDevices(), localRank);
  const info = vk.initDevice({ device, commandBuffers: commandBuffers ?? 64 });
  const group = await init({ engine });
  return {
    info,
    ranks: { group, zero: zero ?? (group.worldSize > 1 ? 1 : 0), reduce: reduce ?? 'f32', engine: engine ?? 'mpi' },
  };
}

/**
 * Throws where parameters are to be sharded and layers keep their intermediate results, which depend on gathered parameters.
 * @param {Pick<TrainingRanks, 'zero'> | undefined} ranks @param {{ gradCheckpoint: boolean }} settings
 * @throws {UsageError} that names the option
 */
export function checkSharding(ranks, { gradCheckpoint }) {
  if (ranks?.zero === 3 && !gradCheckpoint)
    throw new UsageError('--zero 3 gathers each layer again in the backward pass, which computes it again: add --grad-checkpoint');
}

/**
 * The share of one process in each step: an equal number of the step's sequences, in micro-steps that are at most as large as the run's.
 * @param {{ batchSize: number, gradientAccumulationSteps: number }} settings of the whole step
 * @param {number} size processes
 * @returns {{ batchSize: number, gradientAccumulationSteps: number }}
 * @throws {RangeError} where the sequences cannot be divided equally
 */
export function shareOf({ batchSize, gradientAccumulationSteps }, size) {
  const sequences = batchSize * gradientAccumulationSteps;
  if (sequences % size !== 0) {
    throw new RangeError(
      `a step of ${sequences} sequences (batch size ${batchSize}, ${gradientAccumulationSteps} micro-steps) cannot be divided equally by ${size} processes`,
    );
  }
  const share = sequences / size;
  let rows = Math.min(batchSize, share);
  while (share % rows !== 0) rows--;
  return { batchSize: rows, gradientAccumulationSteps: share / rows };
}

/**
 * Throws on every rank where one of them was started with other settings than rank 0.
 * @param {Group} group
 * @param {Record<string, unknown>} settings what all must have in common, by the names that users know
 */
export async function agree(group, settings) {
  /** @type {Record<string, unknown>[]} */
  const all = await group.exchange(settings);
  for (const [rank, other] of all.entries()) {
    for (const name of new Set([...Object.keys(all[0]), ...Object.keys(other)])) {
      const [first, own] = [all[0], other].map((each) => JSON.stringify(each[name]) ?? 'none');
      if (own !== first) throw new Error(`the ranks were started differently: ${name} is ${own} on rank ${rank}, and ${first} on rank 0`);
    }
  }
}

/**
 * The name that all attempts of one `helios-vk run` share, and whether this process is of a restart.
 * @param {NodeJS.ProcessEnv} [environment]
 * @returns {{ run: string | undefined, restarted: boolean }}
 */
export function attemptOf(environment = process.env) {
  const run = environment.HELIOS_GENERATION?.replace(/-\d+$/, '') || undefined;
  return { run, restarted: run !== undefined && Number(environment.HELIOS_RESTART_COUNT ?? 0) > 0 };
}
