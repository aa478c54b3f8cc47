/**
 * A training run over several processes, one for each device: where each belongs, its share of a step, and what all must have in
 * common. The optimizer of `helios-vk/nn` does the rest.
 */

import { init, launched } from '../../distributed/index.mjs';
import { UsageError } from '../lib/args.mjs';

/** @typedef {import('./config.mjs').GptConfig} GptConfig */
/** @typedef {import('../../distributed/index.mjs').Group} Group */

/**
 * How the processes of a run work together.
 * @typedef {object} RanksOptions
 * @property {'mpi' | 'nccl'} [engine] what carries gradients; mpi when left out
 * @property {0 | 1} [zero] 1 keeps of the moments a shard in each process; by default 1 in several processes, and 0 in one
 * @property {'f32' | 'bf16'} [reduce] what gradients travel as; f32 when left out
 * @property {number} [command-buffers] submissions in flight at most; 8 when left out, and 64 in several processes
 *
 * @typedef {object} TrainingRanks
 * @property {Group} group
 * @property {0 | 1} zero
 * @property {'f32' | 'bf16'} reduce
 * @property {'mpi' | 'nccl'} engine
 */

/**
 * The device of a process: of those like the one that would be taken anyway, the one of its rank on this host. Where there are fewer
 * than processes, some share one, which NCCL refuses and MPI does not. Undefined where HELIOS_DEVICE says it, or there is no choice.
 * @param {Pick<import('../../index.js').DeviceSummary, 'index' | 'deviceType' | 'usable' | 'chosen'>[]} devices of this host
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
 * Opens the device of this process and, where a launcher has started it as one of several, brings it together with the others.
 * @param {typeof import('../../index.js')} vk
 * @param {RanksOptions} options
 * @returns {Promise<{ info: import('../../index.js').DeviceInfo, ranks: TrainingRanks | undefined }>}
 * @throws {UsageError} for options of several processes where there is one alone
 */
export async function openRanks(vk, { engine, zero, reduce, 'command-buffers': commandBuffers }) {
  const { launcher, localRank } = launched();
  if (launcher === null) {
    const given = Object.entries({ engine, zero, reduce }).find(([, value]) => value !== undefined);
    if (given) throw new UsageError(`--${given[0]} is for several processes: npx helios-vk run --nproc N benches/train.mjs …`);
    return { info: commandBuffers ? vk.initDevice({ commandBuffers }) : vk.initDevice(), ranks: undefined };
  }
  // A step has some submissions for each collective: with the usual number of command buffers JavaScript would wait for the device in
  // its middle, and not see when steps end.
  const device = deviceOfRank(vk.listDevices(), localRank);
  const info = vk.initDevice({ device, commandBuffers: commandBuffers ?? 64 });
  const group = await init({ engine });
  return {
    info,
    ranks: { group, zero: zero ?? (group.worldSize > 1 ? 1 : 0), reduce: reduce ?? 'f32', engine: engine ?? 'mpi' },
  };
}

/**
 * What one of several processes computes of each step: an equal number of its sequences, in micro-steps of at most the run's size.
 * @param {Pick<GptConfig, 'batch' | 'microSteps'>} config of the whole step
 * @param {number} size processes
 * @returns {{ batch: number, microSteps: number }}
 * @throws {RangeError} where the sequences cannot be divided
 */
export function shareOf({ batch, microSteps }, size) {
  const sequences = batch * microSteps;
  if (sequences % size !== 0) {
    throw new RangeError(
      `a step of ${sequences} sequences (batch ${batch}, micro-steps ${microSteps}) cannot be divided equally by ${size} processes`,
    );
  }
  const share = sequences / size;
  let rows = Math.min(batch, share);
  while (share % rows !== 0) rows--;
  return { batch: rows, microSteps: share / rows };
}

/**
 * Throws, on every rank, where one of them was started with something else than rank 0.
 * @param {Group} group
 * @param {Record<string, unknown>} settings what all must have in common, by the names that people know them by
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
 * The name that all attempts of one `helios-vk run` have in common, and whether this is a restart.
 * @param {NodeJS.ProcessEnv} [environment]
 * @returns {{ run: string | undefined, restarted: boolean }}
 */
export function attemptOf(environment = process.env) {
  const run = environment.HELIOS_GENERATION?.replace(/-\d+$/, '') || undefined;
  return { run, restarted: run !== undefined && Number(environment.HELIOS_RESTART_COUNT ?? 0) > 0 };
}
