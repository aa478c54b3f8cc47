/**
 * Loaded into an existing trainer's process by `node --import`, which leaves the trainer itself as it is:
 * times the native calls of the addon that it loads, and ends the process once a given training step has been
 * printed (so no checkpoint is written).
 *
 * HELIOS_BENCH_STEPS: the last step. HELIOS_BENCH_OUT: file for the result, JSON:
 * `{steps: [{step, at (ms), calls (times since the step before)}], mapped (files of the addons)}`, step 0 being all
 * before the first step.
 */

import { writeFileSync } from 'node:fs';
import Module from 'node:module';
import { integerVariable } from './args.mjs';
import { mappedAddons } from './mapped.mjs';
import { timedAddon, timesSince } from './timed.mjs';

const lastStep = integerVariable('HELIOS_BENCH_STEPS', { min: 1 }) ?? NaN;
const file = process.env.HELIOS_BENCH_OUT;

/** @type {(() => import('./timed.mjs').CallTimes) | undefined} */ let times;
/** @type {{step: number, at: number, calls: import('./timed.mjs').CallTimes}[]} */ const steps = [];
/** @type {import('./timed.mjs').CallTimes} */ let before = {};

const extensions = /** @type {any} */ (Module)._extensions;
const load = extensions['.node'];
extensions['.node'] = (/** @type {any} */ module, /** @type {string} */ path) => {
  load(module, path);
  if (times || typeof module.exports.initDevice !== 'function') return;
  const timed = timedAddon(module.exports);
  times = timed.times;
  module.exports = timed.addon;
};

const write = process.stdout.write.bind(process.stdout);
process.stdout.write = /** @type {any} */ (
  (/** @type {any} */ chunk, /** @type {any[]} */ ...rest) => {
    const result = write(chunk, ...rest);
    const step = Number(/^step (\d+)\//.exec(String(chunk))?.[1] ?? NaN);
    if (!Number.isNaN(step)) {
      const all = times?.() ?? {};
      steps.push({ step, at: performance.now(), calls: timesSince(all, before) });
      before = all;
      if (step >= lastStep) process.exit(0);
    }
    return result;
  }
);

process.on('exit', () => {
  if (file && steps.length > 0) writeFileSync(file, JSON.stringify({ steps, mapped: mappedAddons() }));
});
