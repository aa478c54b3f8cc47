// Has products that the package only guesses timed before a graph is built (kernels/tuning/auto.mjs), and reports what was found.

import { AutoTuning, SECONDS } from '../../kernels/tuning/auto.mjs';
import { SELF_TUNED, checkedLines, identityOf, linesOf, tablesAreOff } from '../../kernels/tuning/stored.mjs';
import { deviceTimer } from '../../kernels/tuning/timer.mjs';
import { ArgumentError, UsageError, shown } from '../core/errors.mjs';
import { processes, runtime } from '../core/runtime.mjs';
import { operations } from '../ops/registry.mjs';
import { forgetTemplates, lower } from './passes/calls.mjs';

/** @typedef {import('../../kernels/tuning/auto.mjs').TuningSummary} TuningSummary */
/** @typedef {import('../../kernels/tuning/auto.mjs').Timer} Timer */
/** @typedef {import('../core/runtime.mjs').Runtime} Runtime */
/** @typedef {import('./recording.mjs').Recording} Recording */

/**
 * Plans of matrix products, with the device that they were measured on; see {@link tunedPlans}.
 * @typedef {object} TunedPlans
 * @property {import('../../kernels/tuning/stored.mjs').Identity} device name, ids and driver
 * @property {import('../../kernels/tuning/stored.mjs').Lines} faster plans that are faster than the package's own, as lines of a tuning table
 * @property {import('../../kernels/tuning/stored.mjs').Lines} kept plans of the package for which nothing faster was found
 */

/** Operations whose second operand may be read from a permuted copy of a parameter. */
const PERMUTABLE = ['linear', 'matmul', 'linearCrossEntropy'];

/** The tuning of each open device. @type {WeakMap<Runtime, AutoTuning>} */
let tunings = new WeakMap();
/** What was done on all devices of this process: the bound is for all of it. @type {TuningSummary} */
let total = { products: 0, faster: 0, reordered: 0, open: 0, seconds: 0 };
/** What was found on the device that was open last, which a new runtime on it goes on with. @type {TunedPlans | undefined} */
let found;
/** Another clock than the device's. @typedef {{ timer: Timer, seconds?: number, clock?: () => number }} Injected */
/** In place of the device's clock, in tests. @type {Injected | undefined} */
let injected;

/** Times by another clock than the device's, also on devices where nothing is timed by default. For tests. @param {Injected | undefined} instead */
export function setTimer(instead) {
  injected = instead;
  tunings = new WeakMap();
  total = { products: 0, faster: 0, reordered: 0, open: 0, seconds: 0 };
  found = undefined;
}

/** The seconds that HELIOS_TUNE allows for timing in all. @returns {number} */
function allowedSeconds() {
  const text = process.env.HELIOS_TUNE?.trim() ?? '';
  if (/^(0|false|off|no)$/i.test(text)) return 0;
  if (text === '' || /^(true|on|yes)$/i.test(text)) return injected?.seconds ?? SECONDS;
  const seconds = Number(text);
  if (!(seconds > 0 && seconds < Infinity))
    throw new UsageError('compile', `HELIOS_TUNE must be seconds, or 0 to time nothing, got ${text}`);
  return seconds;
}

/**
 * The tuning of the device, or undefined where nothing is timed: a CPU device's times say little, and some devices have no timestamps.
 * @param {boolean | undefined} tune the option of `compile`
 * @returns {{ tuning: AutoTuning, resumed: boolean } | undefined} `resumed`: whether this call made the device use what was found before a reset
 */
function tuningNow(tune) {
  if (tune === false || (processes.together && tune !== true)) return undefined;
  const device = runtime();
  const { kernels, info, vk } = device;
  if (!injected && (kernels.context.isCpu || !(info.timestampValidBits > 0))) return undefined;
  // Who turns off tables wants the package's plans.
  if (tablesAreOff()) return undefined;
  const seconds = allowedSeconds();
  if (seconds === 0) return undefined;
  let tuning = tunings.get(device);
  let resumed = false;
  if (!tuning) {
    const options = { seconds: Math.max(0, seconds - total.seconds), clock: injected?.clock };
    tuning = new AutoTuning(kernels, injected?.timer ?? deviceTimer(vk, kernels), options);
    tunings.set(device, tuning);
    resumed = found !== undefined && isOf(found.device, info);
    if (found && resumed) kernels.context.machine.take(found, () => SELF_TUNED);
  }
  return { tuning, resumed };
}

/** Whether plans are of this device and driver. @param {object} device @param {import('../../index.js').DeviceInfo} info */
const isOf = (device, info) => Object.entries(identityOf(info)).every(([name, value]) => Reflect.get(device, name) === value);

/**
 * Times the products of a recording whose plans are guesses, within the bound, and makes their dispatches again if that changed plans.
 * @param {Recording} recording @param {Set<import('../core/runtime.mjs').Allocation>} weights memory of parameters of which permuted copies can be read
 * @param {boolean | undefined} tune the option of `compile`
 */
export function tuneProducts(recording, weights, tune) {
  const calls = recording.list.filter(({ op, template }) => op && template && template.problems.length > 0);
  if (calls.length === 0) return;
  const now = tuningNow(tune);
  if (!now) return;
  const { tuning, resumed } = now;
  const wanted = calls.flatMap(({ op, inputs, template }) => {
    const permutable = PERMUTABLE.includes(op?.name ?? '') && inputs[1] !== undefined && weights.has(inputs[1].allocation);
    return (template?.problems ?? []).map((problem) => ({ problem, count: 1, permutable }));
  });
  const { summary } = tuning;
  const before = { ...summary };
  const changed = tuning.tune(wanted);
  for (const name of /** @type {const} */ (['products', 'faster', 'reordered', 'open', 'seconds']))
    total[name] += summary[name] - before[name];
  total.path = summary.path;
  if (!changed && !resumed) return;
  const { kernels, info } = runtime();
  if (changed) found = { device: identityOf(info), ...linesOf(tuning.results, found && isOf(found.device, info) ? found : undefined) };
  forgetDispatches();
  for (const call of calls) {
    call.template = undefined;
    lower(call, kernels);
  }
}

/** Has the dispatches of operations made again, since kernels would choose other plans now. Graphs keep theirs. */
function forgetDispatches() {
  forgetTemplates();
  for (const { plans } of operations.values()) plans.clear();
}

/**
 * What compiled functions have timed so far in this process: numbers of products, seconds, and where the plans are kept.
 * @returns {TuningSummary}
 */
export const tuningSummary = () => ({ ...total });

/**
 * The plans of matrix products that this process uses because they were measured on this machine. Several processes that compute together have
 * equal bits if they use the same: compile on one of them (`prepare`), send the others this, and have them call {@link useTunedPlans} before they
 * compile with `{ tune: false }`.
 * @returns {TunedPlans} plain data
 */
export function tunedPlans() {
  const { kernels, info } = runtime();
  return { device: identityOf(info), ...kernels.context.machine.lines() };
}

/**
 * Uses the plans of another process, and no other ones that were measured on this machine. Plans of another kind of device or driver are left out,
 * and so are this machine's own then. Call it before functions are compiled: graphs keep their kernels.
 * @param {TunedPlans} plans from {@link tunedPlans}
 * @throws {ArgumentError} if they are no such plans
 */
export function useTunedPlans(plans) {
  const wrong = (/** @type {string} */ why) => new ArgumentError('useTunedPlans', `plans must be what tunedPlans() returns: ${why}`);
  if (typeof plans !== 'object' || plans === null || Array.isArray(plans)) throw wrong(`got ${shown(plans)}`);
  const { device, ...lines } = plans;
  if (typeof device !== 'object' || device === null) throw wrong(`device is ${shown(device)}`);
  let checked;
  try {
    checked = { faster: checkedLines('faster', lines.faster), kept: checkedLines('kept', lines.kept) };
  } catch (error) {
    throw wrong(/** @type {Error} */ (error).message);
  }
  const { kernels, info } = runtime();
  kernels.context.machine.clear();
  found = undefined;
  if (isOf(device, info)) kernels.context.machine.take(checked);
  // Calls from before have chosen by other plans.
  forgetDispatches();
}
