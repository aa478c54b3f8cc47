/**
 * Loaded into an existing trainer's process by `node --import`, which leaves the trainer itself as it is:
 * times the native calls of the addon that it loads, and ends the process once a given training step has been
 * printed (so no checkpoint is written).
 *
 * HELIOS_BENCH_STEPS: the last step. HELIOS_BENCH_OUT: file for the result, JSON:
 * `{steps: [{step, at (ms), calls (times since the step before)}], mapped (files of the addons)}`, step 0 being all
 * before the first step.
 *
 * HELIOS_BENCH_BACKEND: URL of the module of `@helios-vk/alpha-backend` that the trainer uses. Then the result has
 * `digests`: of all that the run read from the device (losses, norms of gradients) up to each step, bit by bit, and, at its
 * end, of the `weights` and moments. With HELIOS_BENCH_METHODS=1, `calls.backend` is the time in its methods, the native
 * calls in them included. They are so many that the readings of the clock make the step slower.
 */

import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import Module from 'node:module';
import { integerVariable, switchVariable } from './args.mjs';
import { mappedAddons } from './mapped.mjs';
import { timedAddon, timesSince } from './timed.mjs';

const lastStep = integerVariable('HELIOS_BENCH_STEPS', { min: 1 }) ?? NaN;
const file = process.env.HELIOS_BENCH_OUT;

/** @type {(() => import('./timed.mjs').CallTimes) | undefined} */ let times;
/** @type {{step: number, at: number, calls: import('./timed.mjs').CallTimes}[]} */ const steps = [];
/** @type {import('./timed.mjs').CallTimes} */ let before = {};
/** @type {string | undefined} */ let weights;

const reads = createHash('sha256');
/** @type {string[]} */ const digests = [];
/** What the optimizer has written: weights and moments. @type {Set<{ data: NodeJS.TypedArray }>} */
const state = new Set();

/**
 * Notes what the trainer reads and what its optimizer writes.
 * @param {{ HeliosVkBackend: any, DeviceTensor: any }} module
 */
function watchBackend({ HeliosVkBackend, DeviceTensor }) {
  const { adamwStep } = HeliosVkBackend.prototype;
  HeliosVkBackend.prototype.adamwStep = function (/** @type {any[]} */ ...args) {
    const [weights, , first, second] = args;
    for (const tensor of [weights, first, second]) state.add(tensor);
    adamwStep.apply(this, args);
  };
  const { get } = /** @type {any} */ (Object.getOwnPropertyDescriptor(DeviceTensor.prototype, 'data'));
  Object.defineProperty(DeviceTensor.prototype, 'data', {
    get() {
      const data = get.call(this);
      reads.update(bytesOf(data));
      return data;
    },
  });
}

/**
 * Times what the trainer calls of the backend, methods that call each other once.
 * @param {{ HeliosVkBackend: any, DeviceTensor: any }} module
 */
function timedBackend({ HeliosVkBackend, DeviceTensor }) {
  const time = { count: 0, us: 0, bytes: 0, dispatches: 0 };
  let depth = 0;
  /** @param {Function} method */
  const timed = (method) =>
    function (/** @type {any[]} */ ...args) {
      const start = depth++ === 0 ? performance.now() : 0;
      try {
        // @ts-expect-error: the receiver is whatever the method is of
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
  const { get } = /** @type {any} */ (Object.getOwnPropertyDescriptor(DeviceTensor.prototype, 'data'));
  Object.defineProperty(DeviceTensor.prototype, 'data', { get: timed(get) });
  return time;
}

const backendModule = process.env.HELIOS_BENCH_BACKEND;
/** Time in the backend's methods. @type {import('./timed.mjs').CallTime | undefined} */ let backend;

const bytesOf = (/** @type {NodeJS.TypedArray} */ { buffer, byteOffset, byteLength }) => new Uint8Array(buffer, byteOffset, byteLength);

const extensions = /** @type {any} */ (Module)._extensions;
const load = extensions['.node'];
extensions['.node'] = (/** @type {any} */ module, /** @type {string} */ path) => {
  load(module, path);
  if (times || typeof module.exports.initDevice !== 'function') return;
  const timed = timedAddon(module.exports);
  times = () => ({ ...timed.times(), ...(backend && { backend: { ...backend } }) });
  module.exports = timed.addon;
};

if (backendModule) {
  const module = await import(backendModule);
  watchBackend(module);
  if (switchVariable('HELIOS_BENCH_METHODS')) backend = timedBackend(module);
}

const write = process.stdout.write.bind(process.stdout);
process.stdout.write = /** @type {any} */ (
  (/** @type {any} */ chunk, /** @type {any[]} */ ...rest) => {
    const result = write(chunk, ...rest);
    const step = Number(/^step (\d+)\//.exec(String(chunk))?.[1] ?? NaN);
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

/** @param {Iterable<{ data: NodeJS.TypedArray }>} tensors */
function digestOf(tensors) {
  const hash = createHash('sha256');
  for (const { data } of tensors) hash.update(bytesOf(data));
  return hash.digest('hex');
}
