/**
 * Loaded into the trainer's process by `node --import`, which leaves the trainer itself unchanged. It times the native calls of the
 * first addon that the trainer loads, and ends the process when the trainer has printed its last step, before a checkpoint is written.
 *
 * HELIOS_BENCH_STEPS is the last step. HELIOS_BENCH_OUT is the file for the results, a `HookResults` as JSON.
 *
 * HELIOS_BENCH_BACKEND is the URL of the module of `@helios-vk/alpha-backend` that the trainer uses. With it, the results have digests
 * of what the run read and of its weights. With HELIOS_BENCH_METHODS=1 too, `calls.backend` is the time in the backend's methods,
 * native calls included. Timing thousands of methods makes a step slower.
 */

import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';

import { integerVariable, switchVariable } from '../../../../bin/lib/options.mjs';
import { mappedAddons } from './mapped.mjs';
import { timedAddon, timesSince } from './timed.mjs';
import { onAddonLoad } from './on-load.mjs';

/**
 * @typedef {import('./timed.mjs').CallTimes} CallTimes
 * @typedef {{ readonly data: NodeJS.TypedArray }} Tensor
 * @typedef {(this: unknown, ...args: unknown[]) => unknown} Method
 * @typedef {{ HeliosVkBackend: { prototype: Record<string, Method> }, DeviceTensor: { prototype: object } }} BackendModule
 *
 * @typedef {object} HookResults
 * @property {{ step: number, at: number, calls: CallTimes }[]} steps each with when it was printed, in ms, and the calls since the step
 *   before; the first has the set-up's calls too
 * @property {string[]} mapped files of the addons that the process had loaded
 * @property {string[]} digests with HELIOS_BENCH_BACKEND, for each step: of all bits that were read from the device up to its end
 *   (losses, norms of gradients)
 * @property {string} [weights] with HELIOS_BENCH_BACKEND: digest of weights and moments after the last step
 */

const lastStep = integerVariable('HELIOS_BENCH_STEPS', { min: 1 }) ?? NaN;
const file = process.env.HELIOS_BENCH_OUT;
const backendModule = process.env.HELIOS_BENCH_BACKEND;

/** Times of the addon's calls so far. @type {(() => CallTimes) | undefined} */ let times;
/** Time in the backend's methods so far. @type {import('./timed.mjs').CallTime | undefined} */ let backend;
/** @type {HookResults['steps']} */ const steps = [];
/** @type {CallTimes} */ let before = {};
/** @type {string | undefined} */ let weights;
/** Of everything that was read from the device. */
const reads = createHash('sha256');
/** @type {string[]} */ const digests = [];
/** What the optimizer has written: weights and moments. @type {Set<Tensor>} */
const state = new Set();

const bytesOf = (/** @type {NodeJS.TypedArray} */ { buffer, byteOffset, byteLength }) => new Uint8Array(buffer, byteOffset, byteLength);

/**
 * Replaces the getter of `DeviceTensor.data`.
 * @param {BackendModule['DeviceTensor']} DeviceTensor
 * @param {(get: (this: unknown) => unknown) => (this: unknown) => unknown} wrap
 */
function wrapData({ prototype }, wrap) {
  const { get } = Object.getOwnPropertyDescriptor(prototype, 'data') ?? {};
  if (!get) throw new Error('HELIOS_BENCH_BACKEND: DeviceTensor has no getter of data');
  Object.defineProperty(prototype, 'data', { get: wrap(get) });
}

/**
 * Records what the trainer reads and which tensors its optimizer writes.
 * @param {BackendModule} module
 */
function watchBackend({ HeliosVkBackend, DeviceTensor }) {
  const { adamwStep } = HeliosVkBackend.prototype;
  HeliosVkBackend.prototype.adamwStep = function (/** @type {unknown[]} */ ...args) {
    const [weights, , first, second] = args;
    for (const tensor of [weights, first, second]) state.add(/** @type {Tensor} */ (tensor));
    return adamwStep.apply(this, args);
  };
  wrapData(
    DeviceTensor,
    (get) =>
      function () {
        const data = get.call(this);
        reads.update(bytesOf(/** @type {NodeJS.TypedArray} */ (data)));
        return data;
      },
  );
}

/**
 * Times the backend's methods. One that another one calls is not counted again. Functions in fields of an instance, such as `add`, are
 * counted by the method that each of them calls.
 * @param {BackendModule} module
 */
function timedBackend({ HeliosVkBackend, DeviceTensor }) {
  const time = { count: 0, us: 0, bytes: 0, dispatches: 0 };
  let depth = 0;
  /** @param {Method} method @returns {Method} */
  const timed = (method) =>
    function (...args) {
      const start = depth++ === 0 ? performance.now() : 0;
      try {
        return method.apply(this, args);
      } finally {
        if (--depth === 0) {
          time.us += (performance.now() - start) * 1000;
          time.count++;
        }
      }
    };
  const { prototype } = HeliosVkBackend;
  for (const name of Object.getOwnPropertyNames(prototype)) {
    if (name !== 'constructor' && typeof prototype[name] === 'function') prototype[name] = timed(prototype[name]);
  }
  wrapData(DeviceTensor, timed);
  return time;
}

/** @param {Iterable<Tensor>} tensors */
function digestOf(tensors) {
  const hash = createHash('sha256');
  for (const { data } of tensors) hash.update(bytesOf(data));
  return hash.digest('hex');
}

onAddonLoad((addon) => {
  if (times) return addon;
  const timed = timedAddon(addon);
  times = () => ({ ...timed.times(), ...(backend && { backend: { ...backend } }) });
  return timed.addon;
});

if (backendModule) {
  const module = await import(backendModule);
  watchBackend(module);
  if (switchVariable('HELIOS_BENCH_METHODS')) backend = timedBackend(module);
}

const write = process.stdout.write.bind(process.stdout);
process.stdout.write = /** @type {typeof write} */ (
  (/** @type {Parameters<typeof write>} */ ...args) => {
    const result = write(...args);
    const step = Number(/^step (\d+)\//.exec(String(args[0]))?.[1] ?? NaN);
    if (!Number.isNaN(step)) {
      const all = times?.() ?? {};
      steps.push({ step, at: performance.now(), calls: timesSince(all, before) });
      before = all;
      if (backendModule) digests.push(reads.copy().digest('hex'));
      if (step >= lastStep) {
        if (backendModule) weights = digestOf(state);
        process.exit(0);
      }
    }
    return result;
  }
);

process.on('exit', () => {
  if (file && steps.length > 0) writeFileSync(file, JSON.stringify({ steps, mapped: mappedAddons(), digests, weights }));
});
