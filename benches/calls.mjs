/**
 * Times the native calls on the host. The device is idle before every sample, so that a call waits only for its own work. Every result is checked
 * before anything is timed. With `--baseline` both addons run in turn, each round in fresh processes.
 */

import { addonPath, isWorker, loadAddon, OWN_ADDON, runWorker, serveWorker } from './lib/addon.mjs';
import { runMain } from '../bin/lib/options.mjs';
import { STANDIN_WORDS, standinKernel, standinReference } from './lib/standin.mjs';
import { RESULTS_OPTION, writeResults } from './lib/results.mjs';
import { format, median, spread, textTable } from './lib/stats.mjs';

const USAGE = 'node benches/calls.mjs [options]';
const OPTIONS = /** @type {const} */ ({
  addon: { type: 'string', value: 'PATH', path: 'module', default: OWN_ADDON, help: 'the addon to measure' },
  baseline: { type: 'string', value: 'PATH', path: 'module', help: 'another addon to compare with' },
  rounds: { type: 'integer', default: 3, min: 1, max: 1_000_000, help: 'processes for each addon, in turn' },
  samples: { type: 'integer', default: 20, min: 1, max: 1_000_000, help: 'samples of each figure in a round' },
  quick: { type: 'boolean', help: 'one round of three small samples, to see that everything runs' },
  json: { type: 'boolean', help: 'print JSON' },
  ...RESULTS_OPTION,
});

/** The kernel of all dispatches: the trainer's most frequent shape, four buffers and 16 bytes of push constants. */
const SHAPE = { bindings: 4, writes: 8, pushBytes: 16, local: [64, 1, 1] };
/** Buffers that the dispatches rotate through. */
const RING = 16;

/**
 * @typedef {object} Bench what all cases share
 * @property {import('./lib/addon.mjs').NativeAddon} vk
 * @property {boolean} quick
 * @property {number} pipeline
 * @property {number[]} ring
 *
 * @typedef {(bench: Bench) => {unit: string, sample: () => number}} Case
 *   `sample` takes one sample, in µs for each unit
 */

const now = performance.now.bind(performance);

/**
 * Buffers of dispatch i: reads three, writes the one after; every result feeds later dispatches.
 * @param {number} i @param {number[]} ring
 */
const buffersOf = (i, ring) => [0, 5, 9, 1].map((offset) => ring[(i + offset) % RING]);

/** A packed list of `count` dispatches. @param {number} count @param {Bench} bench */
function packedList(count, { pipeline, ring }) {
  const words = new Uint32Array(count * 12);
  for (let i = 0; i < count; i++) {
    words.set([pipeline, 4 | (1 << 17), 1, 8, ...buffersOf(i, ring), i, 0, 0, 0], i * 12); // gY = 1, no gZ
  }
  return words.buffer;
}

/** Begin, dispatch many and submit: one call, where the addon has it. @param {Bench} bench */
function executor({ vk }) {
  if (vk.batchExecuteAll) return (/** @type {ArrayBuffer} */ list, /** @type {number} */ count) => vk.batchExecuteAll(list, count);
  return (/** @type {ArrayBuffer} */ list, /** @type {number} */ count) => {
    vk.batchBegin();
    vk.batchDispatchMany(list, count);
    return vk.batchSubmit();
  };
}

/** Runs `call` `count` times; µs each. @param {number} count @param {(i: number) => void} call */
function each(count, call) {
  const start = now();
  for (let i = 0; i < count; i++) call(i);
  return ((now() - start) * 1000) / count;
}

/** @param {'create' | 'destroy'} what @param {number} bytes @returns {Case} */
const lifetime =
  (what, bytes) =>
  ({ vk, quick }) => {
    const count = quick ? 8 : 64;
    /** @type {number[]} */ const handles = new Array(count).fill(0);
    return {
      unit: 'call',
      sample() {
        const create = each(count, (i) => void (handles[i] = vk.createBuffer(bytes, 0)));
        const destroy = each(count, (i) => vk.destroyBuffer(handles[i]));
        vk.waitIdle();
        return what === 'create' ? create : destroy;
      },
    };
  };

/** @param {number} bytes @returns {Case} */
const upload =
  (bytes) =>
  ({ vk, quick }) => {
    const count = quick ? 2 : 16;
    const handles = Array.from({ length: count }, () => vk.createBuffer(bytes, 0));
    const data = Float32Array.from({ length: bytes / 4 }, (_, i) => i);
    return {
      unit: 'call',
      sample() {
        const time = each(count, (i) => vk.uploadBuffer(handles[i], data));
        vk.waitIdle();
        return time;
      },
    };
  };

/** @param {number} bytes @returns {Case} */
const read =
  (bytes) =>
  ({ vk, quick }) => {
    const handle = vk.createBuffer(bytes, 0);
    vk.uploadBuffer(handle, new Float32Array(bytes / 4).fill(1));
    return {
      unit: 'call',
      sample() {
        vk.waitIdle();
        return each(quick ? 1 : 8, () => void vk.readBuffer(handle));
      },
    };
  };

/** @param {number} count @returns {Case} */
const execute = (count) => (bench) => {
  const [list, run] = [packedList(count, bench), executor(bench)];
  return {
    unit: 'dispatch',
    sample() {
      const start = now();
      run(list, count);
      const time = ((now() - start) * 1000) / count;
      bench.vk.waitIdle();
      return time;
    },
  };
};

/** @type {Case} */
const single = ({ vk, quick, pipeline, ring }) => {
  const count = quick ? 16 : 512;
  const push = new Float32Array(4);
  const mask = Uint32Array.of(8);
  const buffers = Array.from({ length: count }, (_, i) => buffersOf(i, ring));
  return {
    unit: 'call',
    sample() {
      const start = now();
      vk.batchBegin(); // timed too: an addon may open its command buffer here, or at the first dispatch
      for (let i = 0; i < count; i++) vk.batchDispatch(pipeline, buffers[i], 1, 1, 1, push, mask);
      const time = ((now() - start) * 1000) / count;
      vk.waitTimeline(vk.batchSubmit());
      return time;
    },
  };
};

/** @type {Case} */
const roundTrip = (bench) => {
  const [list, run] = [packedList(1, bench), executor(bench)];
  return {
    unit: 'submit and wait',
    sample: () => each(bench.quick ? 2 : 20, () => bench.vk.waitTimeline(run(list, 1))),
  };
};

/** A recorded graph of `count` dispatches, launched with the device idle. @param {number} count @returns {Case} */
const launch = (count) => (bench) => {
  const { vk, quick } = bench;
  const list = packedList(count, bench);
  vk.graphBegin();
  vk.batchExecuteAll(list, count);
  const graph = vk.graphEnd();
  return {
    unit: 'launch',
    sample() {
      let total = 0;
      const launches = quick ? 1 : 5;
      for (let i = 0; i < launches; i++) {
        const start = now();
        const value = vk.graphLaunch(graph);
        total += now() - start;
        vk.waitTimeline(value);
      }
      return (total * 1000) / launches;
    },
  };
};

/** @type {Case} */
const finishedWait = (bench) => {
  const value = executor(bench)(packedList(1, bench), 1);
  bench.vk.waitTimeline(value);
  return { unit: 'call', sample: () => each(1000, () => bench.vk.waitTimeline(value)) };
};

/** Needs what not every addon has. */
const GRAPHS = 'graphLaunch of 8192';

/** @type {Record<string, Case>} */
const CASES = {
  'createBuffer 64 KiB': lifetime('create', 1 << 16),
  'destroyBuffer 64 KiB': lifetime('destroy', 1 << 16),
  'createBuffer 4 MiB': lifetime('create', 1 << 22),
  'destroyBuffer 4 MiB': lifetime('destroy', 1 << 22),
  'uploadBuffer 4 KiB': upload(1 << 12),
  'uploadBuffer 640 KiB': upload(640 << 10),
  'readBuffer 4 KiB': read(1 << 12),
  'readBuffer 2.8 MiB': read(Math.round(2.8 * 2 ** 20)),
  'batchExecuteAll of 40': execute(40),
  'batchExecuteAll of 8192': execute(8192),
  batchDispatch: single,
  [GRAPHS]: launch(8192),
  'round trip of 1 dispatch': roundTrip,
  'waitTimeline, reached': finishedWait,
};

/** Fails unless the calls compute what they should. @param {Bench} bench */
function checkResults(bench) {
  const { vk, ring } = bench;
  const contents = ring.map((_, b) => Uint32Array.from({ length: STANDIN_WORDS }, (_, i) => b * 1000 + i));
  contents.forEach((data, b) => vk.uploadBuffer(ring[b], new Float32Array(data.buffer.slice(0))));
  const count = 40;
  const index = ring.map((_, b) => b);
  for (let i = 0; i < count; i++) {
    standinReference(
      SHAPE,
      buffersOf(i, index).map((b) => contents[b]),
      Uint32Array.of(i, 0, 0, 0),
    );
  }
  vk.waitTimeline(executor(bench)(packedList(count, bench), count));
  vk.batchBegin();
  for (let i = 0; i < count; i++) {
    const push = Uint32Array.of(i, 0, 0, 0);
    standinReference(
      SHAPE,
      buffersOf(i, index).map((b) => contents[b]),
      push,
    );
    vk.batchDispatch(bench.pipeline, buffersOf(i, ring), 1, 1, 1, new Float32Array(push.buffer), Uint32Array.of(8));
  }
  vk.waitTimeline(vk.batchSubmit());
  contents.forEach((expected, b) => {
    const got = vk.readBuffer(ring[b]);
    const words = new Uint32Array(got.buffer, got.byteOffset, got.length);
    const wrong = expected.findIndex((word, i) => word !== words[i]);
    if (wrong >= 0) throw new Error(`buffer ${b}, word ${wrong}: ${words[wrong]} instead of ${expected[wrong]}`);
  });
}

/**
 * Measures in this process.
 * @param {{addon: string, samples: number, quick: boolean}} job
 */
function measure({ addon, samples, quick }) {
  const vk = loadAddon(addon);
  const { deviceName, driverInfo } = vk.initDevice();
  const ring = Array.from({ length: RING }, () => vk.createBuffer(STANDIN_WORDS * 4, 0));
  const pipeline = vk.createPipeline(standinKernel(SHAPE), SHAPE.bindings, SHAPE.pushBytes);
  const bench = { vk, quick, pipeline, ring };
  checkResults(bench);
  /** @type {Record<string, {unit: string, samples: number[]}>} */ const results = {};
  for (const [name, make] of Object.entries(CASES)) {
    if (name === GRAPHS && !vk.graphBegin) continue;
    const { unit, sample } = make(bench);
    for (let i = 0; i < (quick ? 1 : 3); i++) sample();
    results[name] = { unit, samples: Array.from({ length: samples }, sample) };
  }
  vk.waitIdle();
  vk.destroy();
  return { deviceName, driverInfo, results };
}

if (isWorker) {
  serveWorker(measure);
} else {
  await runMain(USAGE, OPTIONS, async ({ addon, baseline, quick, json, ...options }) => {
    const addons = [addonPath(addon)];
    if (baseline !== undefined) addons.push(addonPath(baseline));
    const rounds = quick ? 1 : options.rounds;
    const samples = quick ? 3 : options.samples;
    /** @type {ReturnType<typeof measure>[][]} */ const measured = addons.map(() => []);
    for (let round = 0; round < rounds; round++) {
      for (const [i, path] of addons.entries()) {
        measured[i].push(await runWorker(import.meta.url, { addon: path, samples, quick }));
      }
    }
    const sides = measured.map((processes) =>
      Object.fromEntries(
        Object.keys(processes[0].results).map((name) => {
          const medians = processes.map(({ results }) => median(results[name].samples));
          const all = processes.flatMap(({ results }) => results[name].samples);
          return [name, { unit: processes[0].results[name].unit, us: median(medians), spread: spread(all) }];
        }),
      ),
    );
    const [ours, other] = sides;
    const device = measured[0][0].deviceName;
    const ratios = other && Object.fromEntries(Object.keys(ours).map((name) => [name, (other[name]?.us ?? NaN) / ours[name].us]));
    if (options.results !== undefined) {
      const figures = [...sides.entries()].flatMap(([i, side]) =>
        Object.entries(side).map(([call, { unit, us }]) => ({
          group: 'host time of each call',
          name: `${call}, each ${unit}`,
          series: i === 0 ? 'helios-vk' : 'baseline',
          unit: 'µs',
          value: us,
          runs: measured[i].map(({ results }) => median(results[call].samples)),
        })),
      );
      const title = `Host time of the calls, medians of ${samples} samples in each of ${rounds} processes`;
      writeResults(options.results, { bench: 'calls', title, device, driver: measured[0][0].driverInfo, figures });
    }
    if (json) {
      console.log(
        JSON.stringify(
          { device, rounds, samples, quick, addon, results: ours, baseline: other && { addon: baseline, results: other }, ratios },
          null,
          2,
        ),
      );
      return;
    }
    console.log(`${device}; medians of ${samples} samples in each of ${rounds} processes; host time in µs\n`);
    const percent = (/** @type {number} */ value) => `±${format(value * 100)}%`;
    const head = ['call', 'a', 'µs', 'spread'];
    if (other) head.push('baseline µs', 'spread', 'ratio');
    console.log(
      textTable(
        head,
        Object.entries(ours).map(([name, { unit, us, spread: width }]) => {
          const row = [name, unit, format(us), percent(width)];
          if (other && ratios) {
            const [theirs, ratio] = [other[name], ratios[name]];
            row.push(...(theirs ? [format(theirs.us), percent(theirs.spread), format(ratio)] : ['', '', '']));
          }
          return row;
        }),
      ),
    );
  });
}
