/**
 * Times attention in one half type, forward and backward (with its delta pass): kernels in PTX by tiling, beside the SPIR-V kernels for matrix
 * units. All candidates of a shape run in turn, in the same buffers. Each is checked first: against float64 by its own test, and against the
 * SPIR-V kernels on poisoned outputs. The time is that of recorded lists of some milliseconds: the difference of three launches and one.
 */

import { writeFileSync } from 'node:fs';
import { attentionKernels } from '../kernels/attention.mjs';
import { KernelContext, pack } from '../kernels/base.mjs';
import { bf16Value, f16Value } from '../kernels/half.mjs';
import { ATTENTION_TILINGS } from '../kernels/hopper/tilings.mjs';
import { warmer } from '../kernels/tuning/measure.mjs';
import { Values } from '../kernels/tuning/values.mjs';
import { addonPath, driverText, loadAddon, OWN_ADDON } from './lib/addon.mjs';
import { runMain } from '../bin/lib/options.mjs';
import { launchTime } from './lib/launch.mjs';
import { RESULTS_OPTION, writeResults } from './lib/results.mjs';
import { format, median, textTable } from './lib/stats.mjs';

const USAGE = 'node benches/kernels-attention.mjs [options]';
const OPTIONS = /** @type {const} */ ({
  addon: { type: 'string', value: 'PATH', path: 'module', default: OWN_ADDON, help: 'the addon to measure' },
  sweep: { type: 'boolean', help: 'time every tiling, not only those that are used' },
  type: { type: 'string', choices: ['bf16', 'f16'], default: 'bf16', help: 'storage of all tensors' },
  samples: {
    type: 'integer',
    default: 7,
    min: 1,
    max: 10_000,
    help: 'samples of each figure; the median, the minimum and its rate are reported',
  },
  budget: { type: 'integer', default: 55, min: 1, max: 100_000, help: 'begin no further shape after this many seconds' },
  shapes: {
    type: 'string',
    value: 'LIST',
    help: 'batch × tokens × head size, and heads / heads of keys unless 16 / 16, e.g. 16x512x64,4x2048x64x32/8',
  },
  quick: { type: 'boolean', help: 'one small shape, one sample, to see that everything runs' },
  json: { type: 'string', value: 'FILE', path: 'output', help: 'write the figures as JSON' },
  ...RESULTS_OPTION,
});

/** @typedef {import('../kernels/hopper/attention.mjs').AttentionTiling} AttentionTiling */
/** @typedef {{ batch: number, heads: number, kvHeads?: number, tokens: number, headSize: number }} Shape */

const QUICK = [{ batch: 1, heads: 2, kvHeads: 1, tokens: 200, headSize: 64 }];
const SHAPES = [
  { batch: 16, heads: 16, tokens: 512, headSize: 64 },
  { batch: 4, heads: 16, tokens: 512, headSize: 64 },
  { batch: 1, heads: 16, tokens: 512, headSize: 64 },
  { batch: 4, heads: 16, tokens: 2048, headSize: 64 },
  { batch: 4, heads: 32, kvHeads: 8, tokens: 2048, headSize: 64 },
  { batch: 8, heads: 16, tokens: 1024, headSize: 128 },
];

/**
 * Warpgroups, columns, stages, blocks of a multiprocessor, order; where dS is kept, the same of the kernel of dQ.
 * @typedef {[number, 32 | 64, number, number, 'head' | 'length', any?]} Candidate
 */
/** @type {Record<'forward' | 'backward', Candidate[]>} */
const CANDIDATES = {
  forward: [
    [2, 64, 3, 2, 'length'],
    [2, 64, 3, 2, 'head'],
    [1, 64, 3, 2, 'length'],
    [3, 64, 6, 1, 'length'],
  ],
  backward: [
    [1, 32, 3, 2, 'head'],
    [1, 32, 2, 3, 'head'],
    [1, 32, 2, 3, 'length'],
    [2, 64, 2, 1, 'head'],
    [2, 64, 3, 1, 'head'],
    [2, 64, 3, 1, 'length'],
    [1, 32, 2, 3, 'head', [2, 64, 3, 1, 'head']],
    [1, 32, 2, 3, 'length', [2, 64, 3, 1, 'length']],
    [1, 32, 2, 3, 'head', [2, 64, 2, 2, 'head']],
    [1, 32, 2, 3, 'head', [1, 32, 2, 3, 'head']],
    [2, 64, 3, 1, 'head', [2, 64, 3, 1, 'head']],
  ],
};

/** The same for heads of 128, backward by paired warpgroups. @type {typeof CANDIDATES} */
const WIDE_CANDIDATES = {
  forward: [
    [2, 64, 3, 1, 'length'],
    [2, 64, 3, 1, 'head'],
    [2, 32, 6, 1, 'length'],
  ],
  backward: [
    [2, 32, 2, 1, 'length'],
    [2, 32, 2, 1, 'length', [2, 64, 3, 1, 'length']],
    [2, 32, 2, 1, 'head', [2, 64, 3, 1, 'length']],
    [2, 32, 2, 1, 'length', [2, 64, 3, 1, 'head']],
    [2, 32, 2, 1, 'length', [1, 32, 2, 3, 'length']],
    [2, 32, 2, 1, 'length', [2, 32, 6, 1, 'length']],
  ],
};

/** A shape of the command line. @param {string} name @returns {Shape} */
function shapeOf(name) {
  const [, ...numbers] = /^(\d+)x(\d+)x(\d+)(?:x(\d+)(?:\/(\d+))?)?$/.exec(name) ?? [];
  const [batch, tokens, headSize, heads = 16, kvHeads = heads] = numbers.flatMap((n) => (n === undefined ? [] : [Number(n)]));
  if (!(batch * tokens * headSize * heads * kvHeads > 0)) throw new Error(`--shapes: ${name} is not like 16x512x64 or 4x2048x64x32/8`);
  return { batch, heads, kvHeads, tokens, headSize };
}

/** @type {(tiling: AttentionTiling) => string} */
const nameOf = ({ warpgroups, columns, stages, blocks, order, paired, queries }) =>
  `${paired ? 'paired ' : ''}${warpgroups}×64 by ${columns}, ${stages} stages, ${blocks} blocks, by ${order}${queries ? `; dQ ${nameOf(queries)}` : ''}`;

/** @type {(candidate: Candidate, paired: boolean) => AttentionTiling} */
const tilingOf = ([warpgroups, columns, stages, blocks, order, queries], paired) => ({
  ...{ warpgroups, columns, stages, blocks, order },
  ...(paired && { paired }),
  ...(queries && { queries: tilingOf(queries, false) }),
});

/** Elements of a result that are compared, about. */
const COMPARED = 2 ** 21;

/** Elements of a buffer of halves, of many a part from all over it. @param {any} vk @param {number} buffer @param {'bf16' | 'f16'} type @param {number} count */
function halves(vk, buffer, type, count) {
  const words = vk.readBuffer(buffer);
  const all = new Uint16Array(words.buffer, words.byteOffset, count);
  // Odd: comes by all places of a tile.
  const step = Math.floor(count / COMPARED) | 1;
  const bits = Uint16Array.from({ length: Math.ceil(count / step) }, (_, i) => all[i * step]);
  return Float32Array.from(bits, type === 'bf16' ? bf16Value : f16Value);
}

await runMain(USAGE, OPTIONS, ({ addon, sweep, type: typeName, shapes: asked, samples, budget, quick, json, results: folder }) => {
  const type = /** @type {'bf16' | 'f16'} */ (typeName);
  const began = performance.now();
  const vk = loadAddon(addonPath(addon));
  const info = vk.initDevice();
  const context = new KernelContext(/** @type {any} */ (vk));
  /** Where a kernel fails its test no further one is tried: each candidate has a context of its own, for all shapes. @type {Map<string, ReturnType<typeof attentionKernels>>} */
  const own = new Map();
  const kernelsOf = (/** @type {string} */ name) => {
    const made = own.get(name) ?? attentionKernels(new KernelContext(/** @type {any} */ (vk)));
    own.set(name, made);
    return made;
  };
  const kernels = attentionKernels(context);
  if (!kernels.attentionSupports(type)) throw new Error(`${info.deviceName} has no matrix units for ${type}`);
  console.log(`${info.deviceName}, ${driverText(info)}, ${type}${context.takesPtx ? '' : ': the device takes no PTX'}`);
  /** @type {any[]} */
  const results = [];
  const shapes = asked?.split(',').map((name) => shapeOf(name)) ?? SHAPES;
  for (const shape of quick ? QUICK : shapes) {
    const { batch, heads, kvHeads = heads, tokens, headSize } = shape;
    const title = `${batch}×${heads} heads${kvHeads < heads ? ` (${kvHeads} of keys)` : ''} × ${tokens} × ${headSize}`;
    if (!quick && performance.now() - began > 1000 * budget) {
      console.log(`${title}: left out, the budget is used up`);
      continue;
    }
    const [rows, width, fused] = [batch * tokens, heads * headSize, (heads + 2 * kvHeads) * headSize];
    const [values, others] = [new Values(type, 77), new Values(type, 99)];
    /** @type {number[]} */
    const buffers = [];
    const make = (/** @type {number} */ bytes, /** @type {Values | undefined} */ from) => {
      const buffer = vk.createBuffer(bytes, 0);
      if (from) vk.uploadBuffer(buffer, from.tensor(bytes / 2));
      buffers.push(buffer);
      return buffer;
    };
    // Small shapes rotate over sets, so that they do not all run from cache.
    const sets = Array.from({ length: quick ? 1 : Math.max(1, Math.min(8, Math.floor(2 ** 27 / (14 * rows * width)))) }, () => ({
      qkv: make(2 * rows * fused, values),
      dOut: make(2 * rows * width, others),
      out: make(2 * rows * width, undefined),
      logSumExp: make(4 * batch * heads * tokens, undefined),
      dQkv: make(2 * rows * fused, undefined),
    }));
    const run = (/** @type {any} */ records) => {
      const { packed, count } = pack(records);
      vk.waitTimeline(vk.batchExecuteAll(packed, count));
    };
    for (const pass of /** @type {const} */ (['forward', 'backward'])) {
      const target = pass === 'forward' ? 'out' : 'dQkv';
      const elements = rows * (pass === 'forward' ? width : fused);
      const of = (/** @type {number} */ i, /** @type {any} */ plan, by = kernels) => {
        const args = { ...sets[i % sets.length], ...shape, type, plan };
        return pass === 'forward' ? [by.attentionForward(args)] : by.attentionBackward(args);
      };
      // What the backward pass reads; and the results that candidates are compared with.
      for (const set of sets) run([kernels.attentionForward({ ...set, ...shape, type, plan: { kernel: 'register' } })]);
      run(of(0, { kernel: 'register' }));
      const want = halves(vk, sets[0][target], type, elements);
      /** @type {{ name: string, plan: any, us: number[], once: number[], thrice: number[], error?: string, relative?: number, runs: number, graph: number }[]} */
      const candidates = [{ name: 'SPIR-V, register', plan: { kernel: 'register' }, us: [], once: [], thrice: [], runs: 0, graph: 0 }];
      if (context.takesPtx) {
        const chosen = context.tuning.ptxAttention?.(/** @type {any} */ ({ pass, type, headSize, causal: true }), shape);
        const tilings = chosen ? [ATTENTION_TILINGS[chosen]] : [];
        if (sweep)
          for (const candidate of (headSize === 64 ? CANDIDATES : WIDE_CANDIDATES)[pass]) {
            const tiling = tilingOf(candidate, headSize === 128 && pass === 'backward');
            if (!tilings.some((other) => nameOf(other) === nameOf(tiling))) tilings.push(tiling);
          }
        for (const tiling of tilings)
          candidates.push({ name: nameOf(tiling), plan: { kernel: 'ptx', tiling }, us: [], once: [], thrice: [], runs: 0, graph: 0 });
      }
      for (const candidate of candidates) {
        const by = kernelsOf(`${pass} ${candidate.name}`);
        try {
          vk.fillBuffer(sets[0][target], 2 * elements, 0x7fc17fc1);
          run(of(0, candidate.plan, by));
          let [error, norm] = [0, 0];
          halves(vk, sets[0][target], type, elements).forEach((x, i) => {
            error += (x - want[i]) ** 2;
            norm += want[i] ** 2;
          });
          candidate.relative = Math.sqrt(error / norm);
          if (!(candidate.relative < (type === 'bf16' ? 2e-2 : 3e-3)))
            throw new Error(`wrong result: relative error ${candidate.relative}`);
          const record = (/** @type {number} */ runs) => {
            const { packed, count } = pack(Array.from({ length: runs }, (_, i) => of(i, candidate.plan, by)).flat());
            vk.graphBegin();
            vk.batchExecuteAll(packed, count);
            return vk.graphEnd();
          };
          candidate.graph = record(sets.length);
          candidate.runs = sets.length;
          launchTime(vk, candidate.graph, 2);
          const guess = (1000 * launchTime(vk, candidate.graph, 1)) / sets.length;
          if (!quick) {
            vk.graphDestroy(candidate.graph);
            candidate.runs = sets.length * Math.max(1, Math.round(3000 / guess / sets.length));
            candidate.graph = record(candidate.runs);
            launchTime(vk, candidate.graph, 1);
          }
        } catch (cause) {
          candidate.error = cause instanceof Error ? cause.message : String(cause);
        }
      }
      const ready = candidates.filter(({ error }) => error === undefined);
      warmer(() => launchTime(vk, ready[0].graph, 3), quick)();
      for (let sample = 0; sample < (quick ? 1 : samples); sample++)
        for (const { us, once, thrice, graph, runs } of ready) {
          thrice.push(launchTime(vk, graph, 3));
          once.push(launchTime(vk, graph, 1));
          us.push((500 * (thrice[sample] - once[sample])) / runs);
        }
      vk.waitIdle();
      for (const { graph } of ready) vk.graphDestroy(graph);
      // Of the causal half: two products, backward five.
      const flops = (pass === 'forward' ? 2 : 5) * batch * heads * tokens * tokens * headSize;
      const lines = candidates.map(({ name, plan, us, once, thrice, runs, error, relative }) => {
        const time = error === undefined ? median(us) : NaN;
        // Of each number of launches the shortest: other work on the device lengthens some.
        const least = error === undefined ? (500 * (Math.min(...thrice) - Math.min(...once))) / runs : NaN;
        results.push({ shape: title, pass, name, plan, us: time, samples: us, least, tflops: flops / least / 1e6, relative, error });
        const row = error === undefined ? [format(time), format(least), format(flops / least / 1e6)] : ['–', '–', error.slice(-80)];
        return { least, row: [name, ...row] };
      });
      lines.sort((a, b) => (a.least || Infinity) - (b.least || Infinity));
      console.log(
        `\n${pass}, ${title}\n${textTable(
          ['kernel', 'µs', 'least', 'TFLOP/s'],
          lines.map(({ row }) => row),
        )}`,
      );
    }
    for (const buffer of buffers) vk.destroyBuffer(buffer);
    if (json) {
      const { deviceName: device } = info;
      writeFileSync(json, `${JSON.stringify({ device, driver: driverText(info), type, samples, results }, null, 1)}\n`);
    }
  }
  if (folder !== undefined) {
    const figures = results
      .filter(({ error }) => error === undefined)
      .map(({ shape, pass, name, us: value }) => ({
        group: `${pass}, ${shape}, ${type}, causal`,
        name,
        series: 'helios-vk',
        unit: 'µs',
        value,
      }));
    const title =
      'Attention by tiling: warpgroups × 64 rows of a block, rows of a tile, tiles in shared memory, blocks of a multiprocessor, order';
    writeResults(folder, { bench: 'kernels-attention', title, device: info.deviceName, driver: driverText(info), figures });
  }
  console.log(`\n${Math.round((performance.now() - began) / 1000)} s`);
});
