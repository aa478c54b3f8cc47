/**
 * Replays a recorded training run through an addon, and says where the host's time goes, call by call. The recording has every native call in order
 * (lib/trace.mjs describes the format) but no shaders. Stand-in kernels replace these (benches/lib/standin.mjs), with the same bindings, written bindings,
 * push constants and workgroup sizes. So creation, uploads, reads, decoding, hazards, recording and waiting are those of the real run, but the
 * GPU's own work is not. Each addon runs in a process of its own.
 *
 * Only the native call itself is timed. JSON and base64 are decoded, handles mapped and the sources of uploads built before. One whole step is in
 * memory at a time, and is replayed without a pause.
 */

import { createHash } from 'node:crypto';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { addonPath, isWorker, loadAddon, OWN_ADDON, runWorker, serveWorker } from '../../../benches/lib/addon.mjs';
import { runMain } from '../../../bin/lib/options.mjs';
import { RESULTS_OPTION, writeResults } from '../../../benches/lib/results.mjs';
import { STANDIN_BYTES, standinKernel } from '../../../benches/lib/standin.mjs';
import { format, mean, median, quantile, sum, textTable } from '../../../benches/lib/stats.mjs';
import { readTrace } from './lib/trace.mjs';

const USAGE = 'node packages/alpha-backend/bench/replay.mjs --trace FILE [options]';
const OPTIONS = /** @type {const} */ ({
  trace: { type: 'string', value: 'FILE', path: 'input', required: true, help: 'the recording (.jsonl or .jsonl.gz)' },
  steps: { type: 'integer', default: 0, min: 0, max: 1_000_000, help: 'training steps to replay; 0: all' },
  warmup: { type: 'integer', default: 1, min: 0, max: 1_000_000, help: 'leave the first N steps out of the summary, if more are replayed' },
  scale: { type: 'integer', default: 1, min: 1, max: 1_000_000, help: 'divide the size of every buffer by this' },
  groups: { type: 'string', default: 'one', choices: ['one', 'real'], help: 'group counts: 1, or the recorded ones' },
  addon: { type: 'string', value: 'PATH', path: 'module', default: OWN_ADDON, help: 'the addon to replay through' },
  baseline: { type: 'string', value: 'PATH', path: 'module', help: 'another addon to compare with' },
  rounds: { type: 'integer', default: 1, min: 1, max: 1_000_000, help: 'processes for each addon, in turn; medians are reported' },
  check: { type: 'boolean', help: 'also replay with every dispatch run alone, and compare everything that was read' },
  json: { type: 'boolean', help: 'print JSON' },
  ...RESULTS_OPTION,
});

/**
 * @typedef {object} Job
 * @property {string} addon absolute path
 * @property {string} trace
 * @property {number} steps 0: all
 * @property {number} scale
 * @property {boolean} realGroups
 * @property {boolean} digest clear new buffers and digest every read
 * @property {boolean} serial run every dispatch alone
 *
 * @typedef {object} StepResult
 * @property {number} step
 * @property {number} wallMs from the step's first call to its last
 * @property {Record<string, Float64Array>} times µs of every call, by call
 * @property {number} dispatches
 * @property {number} submits
 * @property {number | undefined} barriers recorded, where the addon counts them
 * @property {string | undefined} digest SHA-256 of all that was read
 *
 * @typedef {{device: string, driver: string | undefined, clockUs: number, steps: StepResult[]}} Replay
 */

/** Cost of one reading of the clock, in µs: part of every figure. */
function clockCost() {
  const costs = [];
  for (let i = 0; i < 2000; i++) {
    const start = performance.now();
    costs.push((performance.now() - start) * 1000);
  }
  return mean(costs);
}

/** Replays in this process. @param {Job} job @returns {Promise<Replay>} */
async function replay(job) {
  const vk = loadAddon(job.addon);
  const info = vk.initDevice();
  const scaled = (/** @type {number} */ bytes) => Math.ceil(bytes / job.scale / 4) * 4;

  /** @type {Map<number, number>} */ const pipelines = new Map(); // recording's id -> handle
  /** @type {Map<number, number>} */ const buffers = new Map();
  /** @type {Map<number, number>} */ const sizes = new Map(); // recording's buffer id -> recorded bytes
  const scaledBuffer = (/** @type {number} */ id) => Math.max(STANDIN_BYTES, scaled(/** @type {number} */ (sizes.get(id))));
  const known = (/** @type {Map<number, number>} */ map, /** @type {number} */ id, /** @type {string} */ what) => {
    const handle = map.get(id);
    if (handle === undefined) throw new Error(`the recording uses ${what} ${id}, which is not alive there`);
    return handle;
  };
  /** Timeline values in recorded order, and the ones that this addon gave. */
  const timeline = { recorded: [0], ours: [0] };
  const timelineValue = (/** @type {number} */ recorded) => {
    let i = timeline.recorded.length - 1;
    while (timeline.recorded[i] > recorded) i--;
    return timeline.ours[i];
  };

  let source = new Float32Array(0);
  let uploads = 0;
  /** A view of `bytes` bytes with contents that differ from upload to upload. @param {number} bytes */
  const uploadSource = (bytes) => {
    if (source.byteLength < bytes) {
      source = new Float32Array(bytes / 4);
      for (let i = 0; i < source.length; i++) source[i] = i;
    }
    uploads++;
    for (let i = 0; i < Math.min(64, bytes / 4); i++) source[i] = uploads * 64 + i;
    return source.subarray(0, bytes / 4);
  };
  const execute = (/** @type {ArrayBuffer} */ packed, /** @type {number} */ count) => {
    if (vk.batchExecuteAll) return vk.batchExecuteAll(packed, count);
    vk.batchBegin(); // addons before batchExecuteAll: the same three calls, timed together
    vk.batchDispatchMany(packed, count);
    return vk.batchSubmit();
  };
  const clear = (/** @type {number} */ handle, /** @type {number} */ bytes, /** @type {number} */ value) => {
    if (vk.fillBuffer) vk.fillBuffer(handle, bytes, value);
    else vk.uploadBuffer(handle, new Float32Array(new Uint32Array(bytes / 4).fill(value).buffer));
  };

  /** @type {StepResult[]} */ const results = [];
  let barriers = vk.getStats?.().barriers;
  for await (const { step, calls } of readTrace(job.trace)) {
    /** @type {Record<string, number[]>} */ const times = {};
    const add = (/** @type {string} */ call, /** @type {number} */ ms) => void (times[call] ??= []).push(ms * 1000);
    const hash = job.digest ? createHash('sha256') : undefined;
    let dispatches = 0;
    let submits = 0;
    const now = performance.now.bind(performance);
    const began = now();
    let t0 = 0;
    let t1 = 0;
    for (const call of calls) {
      switch (call.t) {
        case 'P': {
          const spirv = standinKernel({
            bindings: call.bindings,
            writes: call.writes ?? 2 ** call.bindings - 1,
            pushBytes: call.push,
            local: call.local,
          });
          t0 = now();
          const handle = vk.createPipeline(spirv, call.bindings, call.push);
          t1 = now();
          add('createPipeline', t1 - t0);
          pipelines.set(call.id, handle);
          break;
        }
        case 'B': {
          sizes.set(call.id, call.n);
          const bytes = scaledBuffer(call.id);
          t0 = now();
          const handle = vk.createBuffer(bytes, call.hv);
          t1 = now();
          add('createBuffer', t1 - t0);
          buffers.set(call.id, handle);
          if (hash) clear(handle, bytes, 0);
          if (job.serial) vk.waitIdle();
          break;
        }
        case 'D': {
          const handle = known(buffers, call.id, 'buffer');
          t0 = now();
          vk.destroyBuffer(handle);
          t1 = now();
          add('destroyBuffer', t1 - t0);
          buffers.delete(call.id);
          break;
        }
        case 'U': {
          const handle = known(buffers, call.id, 'buffer');
          const whole = call.n === sizes.get(call.id);
          const data = uploadSource(whole ? scaledBuffer(call.id) : Math.min(scaled(call.n), scaledBuffer(call.id)));
          t0 = now();
          vk.uploadBuffer(handle, data);
          t1 = now();
          add('uploadBuffer', t1 - t0);
          if (job.serial) vk.waitIdle();
          break;
        }
        case 'F': {
          const handle = known(buffers, call.id, 'buffer');
          const bytes = Math.min(scaled(call.n), scaledBuffer(call.id));
          t0 = now();
          clear(handle, bytes, call.v);
          t1 = now();
          add('fillBuffer', t1 - t0);
          if (job.serial) vk.waitIdle();
          break;
        }
        case 'X': {
          const view = new DataView(call.packed);
          const { records, handles, groups } = call.fields;
          for (let i = 0; i < call.c; i++) {
            view.setInt32(records[i], known(pipelines, view.getInt32(records[i], true), 'pipeline'), true);
            if (job.realGroups) continue;
            view.setUint32(groups[i * 3], 1, true);
            view.setUint16(groups[i * 3 + 1], view.getUint16(groups[i * 3 + 1], true) & 1, true);
            if (groups[i * 3 + 2] > 0) view.setUint32(groups[i * 3 + 2], 1, true);
          }
          for (const at of handles) view.setInt32(at, known(buffers, view.getInt32(at, true), 'buffer'), true);
          let value = 0;
          if (job.serial) {
            for (let i = 0; i < call.c; i++) {
              value = execute(call.packed.slice(records[i], records[i + 1]), 1);
              vk.waitTimeline(value);
              vk.waitIdle();
            }
          } else {
            t0 = now();
            value = execute(call.packed, call.c);
            t1 = now();
            add('batchExecuteAll', t1 - t0);
          }
          timeline.recorded.push(call.v);
          timeline.ours.push(value);
          dispatches += call.c;
          submits++;
          break;
        }
        case 'W': {
          const value = timelineValue(call.v);
          t0 = now();
          vk.waitTimeline(value);
          t1 = now();
          add('waitTimeline', t1 - t0);
          break;
        }
        case 'R': {
          const handle = known(buffers, call.id, 'buffer');
          t0 = now();
          const data = vk.readBuffer(handle);
          t1 = now();
          add('readBuffer', t1 - t0);
          if (data.byteLength !== scaledBuffer(call.id)) {
            throw new Error(`readBuffer gave ${data.byteLength} bytes of a buffer of ${scaledBuffer(call.id)}`);
          }
          hash?.update(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
          break;
        }
      }
    }
    const wallMs = now() - began;
    const counted = vk.getStats?.().barriers;
    results.push({
      step,
      wallMs,
      times: Object.fromEntries(Object.entries(times).map(([call, values]) => [call, Float64Array.from(values)])),
      dispatches,
      submits,
      barriers: counted === undefined ? undefined : counted - barriers,
      digest: hash?.digest('hex'),
    });
    barriers = counted;
    if (results.length === job.steps) break;
  }
  vk.waitIdle();
  vk.destroy();
  if (results.length < Math.max(1, job.steps)) {
    throw new Error(`${job.trace} holds ${results.length} steps, ${job.steps} were asked for`);
  }
  return { device: info.deviceName, driver: info.driverInfo, clockUs: clockCost(), steps: results };
}

/**
 * @typedef {object} CallSummary over the steps that count; with several rounds, medians over them
 * @property {number} count calls a step
 * @property {number} totalMs host time a step
 * @property {number} meanUs
 * @property {number} medianUs
 * @property {number} p99Us
 */

/** @param {Replay[]} rounds @param {number} warmup */
function summarizeReplays(rounds, warmup) {
  const counting = rounds.map(({ steps }) => steps.slice(Math.min(warmup, steps.length - 1)));
  const names = [...new Set(counting.flatMap((steps) => steps.flatMap(({ times }) => Object.keys(times))))];
  /** @type {Record<string, CallSummary>} */ const calls = {};
  for (const name of names) {
    const each = counting.map((steps) => {
      const all = steps.flatMap(({ times }) => [...(times[name] ?? [])]);
      return {
        count: all.length / steps.length,
        totalMs: sum(all) / 1000 / steps.length,
        meanUs: mean(all),
        medianUs: median(all),
        p99Us: quantile(all, 0.99),
      };
    });
    const over = (/** @type {keyof CallSummary} */ key) => median(each.map((round) => round[key]));
    calls[name] = {
      count: over('count'),
      totalMs: over('totalMs'),
      meanUs: over('meanUs'),
      medianUs: over('medianUs'),
      p99Us: over('p99Us'),
    };
  }
  const steps = rounds[0].steps;
  const dispatches = mean(counting[0].map((step) => step.dispatches));
  return {
    device: rounds[0].device,
    clockUs: median(rounds.map(({ clockUs }) => clockUs)),
    calls,
    dispatches,
    perDispatchUs: calls.batchExecuteAll ? (calls.batchExecuteAll.totalMs * 1000) / dispatches : undefined,
    stepMs: median(counting.map((each) => median(each.map(({ wallMs }) => wallMs)))),
    barriers: steps.every(({ barriers }) => barriers !== undefined)
      ? steps.map(({ barriers }) => /** @type {number} */ (barriers))
      : undefined,
    steps: steps.map(({ step, wallMs, times, dispatches: inStep, submits, barriers }) => ({
      step,
      wallMs,
      dispatches: inStep,
      submits,
      barriers,
      calls: Object.fromEntries(Object.entries(times).map(([call, values]) => [call, { count: values.length, totalUs: sum(values) }])),
    })),
  };
}

/**
 * @param {ReturnType<typeof summarizeReplays>} ours
 * @param {ReturnType<typeof summarizeReplays> | undefined} other
 */
function printTables(ours, other) {
  const order = Object.entries((other ?? ours).calls).sort(([, a], [, b]) => b.totalMs - a.totalMs);
  const rows = order.map(([name]) => {
    const [a, b] = [ours.calls[name], other?.calls[name]];
    /** @type {(number | undefined)[]} */
    const row = [a?.count ?? b?.count, a?.totalMs, a?.meanUs, a?.medianUs, a?.p99Us];
    if (other) row.push(b?.totalMs, b?.meanUs, a && b && b.meanUs / a.meanUs);
    return [name, ...row.map((value) => format(value ?? NaN))];
  });
  /** @type {string[]} */
  const perDispatch = ['batchExecuteAll / dispatch', format(ours.dispatches), '', format(ours.perDispatchUs ?? NaN), '', ''];
  if (other) {
    perDispatch.push('', format(other.perDispatchUs ?? NaN), format((other.perDispatchUs ?? NaN) / (ours.perDispatchUs ?? NaN)));
  }
  rows.push(perDispatch);
  const head = ['call', 'a step', 'ms a step', 'mean µs', 'median µs', 'p99 µs'];
  if (other) head.push('baseline ms', 'mean µs', 'ratio');
  console.log(textTable(head, rows));
  console.log(`\nwhole step, median: ${format(ours.stepMs)} ms${other ? `, baseline ${format(other.stepMs)} ms` : ''}`);
  if (ours.barriers)
    console.log(`barriers by step: ${ours.barriers.join(', ')} for ${ours.steps.map((s) => s.dispatches).join(', ')} dispatches`);
  console.log(`each figure holds one reading of the clock (${format(ours.clockUs)} µs)`);
}

if (isWorker) {
  serveWorker(replay);
} else {
  await runMain(USAGE, OPTIONS, async (options) => {
    /** @type {Omit<Job, 'addon'>} */
    const job = {
      trace: resolve(options.trace),
      steps: options.steps,
      scale: options.scale,
      realGroups: options.groups === 'real',
      digest: false,
      serial: false,
    };
    const addons = [addonPath(options.addon)];
    if (options.baseline !== undefined) addons.push(addonPath(options.baseline));
    const run = (/** @type {string} */ addon, /** @type {Partial<Job>} */ changes = {}) =>
      /** @type {Promise<Replay>} */ (runWorker(import.meta.url, { ...job, ...changes, addon }));

    /** @type {Replay[][]} */ const rounds = addons.map(() => []);
    for (let round = 0; round < options.rounds; round++) {
      for (const [i, addon] of addons.entries()) rounds[i].push(await run(addon));
    }
    const [ours, other] = rounds.map((replays) => summarizeReplays(replays, options.warmup));

    /** @type {{addon: string, agrees: boolean[]}[] | undefined} */ let checks;
    if (options.check) {
      const serial = await run(addons[0], { digest: true, serial: true });
      checks = [];
      for (const addon of addons) {
        const batched = await run(addon, { digest: true });
        checks.push({ addon, agrees: batched.steps.map(({ digest }, i) => digest === serial.steps[i].digest) });
      }
      if (!checks[0].agrees.every(Boolean)) process.exitCode = 1;
    }
    if (options.results !== undefined) {
      const figures = [ours, ...(other ? [other] : [])].flatMap((side, i) => {
        const series = i === 0 ? 'helios-vk' : 'baseline';
        const calls = Object.entries(side.calls).map(([call, { meanUs }]) => ({ name: call, unit: 'µs', value: meanUs }));
        if (side.perDispatchUs !== undefined) calls.push({ name: 'batchExecuteAll, per dispatch', unit: 'µs', value: side.perDispatchUs });
        return [...calls, { name: 'whole step', unit: 'ms', value: side.stepMs }].map((figure) => ({
          group: 'calls of a recorded training run, means',
          series,
          ...figure,
        }));
      });
      const title = `A recorded training run, buffers 1/${options.scale} of their size, ${options.rounds} process(es) of each addon`;
      const driver = rounds[0][0].driver;
      const script = 'packages/alpha-backend/bench/replay.mjs';
      writeResults(options.results, { bench: 'replay', title, device: ours.device, driver, figures, script });
    }
    if (options.json) {
      const ratios = other
        ? Object.fromEntries(
            Object.keys(ours.calls)
              .filter((call) => other.calls[call])
              .map((call) => [call, other.calls[call].meanUs / ours.calls[call].meanUs]),
          )
        : undefined;
      const { trace, scale, groups, warmup } = options;
      console.log(
        JSON.stringify(
          {
            trace: pathToFileURL(trace).pathname.split('/').at(-1),
            scale,
            groups,
            warmup,
            rounds: options.rounds,
            addon: options.addon,
            ...ours,
            baseline: other && { addon: options.baseline, ...other },
            ratios,
            checks,
          },
          null,
          2,
        ),
      );
      return;
    }
    console.log(`${options.trace}, buffers 1/${options.scale} of their size, on ${ours.device}\n`);
    printTables(ours, other);
    for (const { addon, agrees } of checks ?? []) {
      const wrong = agrees.flatMap((agree, i) => (agree ? [] : [i + 1]));
      console.log(
        `${addon}: what was read ${wrong.length ? `DIFFERS from the serial run in step ${wrong.join(', ')}` : 'equals the serial run in every step'}`,
      );
    }
  });
}
