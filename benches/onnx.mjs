#!/usr/bin/env node
/**
 * Times inference of ONNX files in `helios-onnx` beside the same models in PyTorch and, where a folder with onnxruntime-node is given, beside its
 * CPU provider. PyTorch makes the models, with random weights, exports them and says what they compute: a model counts only if our output is
 * PyTorch's. All run in turn. What would not end within `--budget` is skipped.
 */

import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { compile, init, load, noGrad, scope } from 'helios-vk/nn';

import { loadOnnx } from '../packages/onnx/src/index.mjs';
import { OWN_ADDON, addonPath, loadAddon } from './lib/addon.mjs';
import { runMain, UsageError } from '../bin/lib/options.mjs';
import { printProfile } from './lib/decoders.mjs';
import { startPeer } from './lib/peer.mjs';
import { RESULTS_OPTION, report } from './lib/results.mjs';
import { format, median } from './lib/stats.mjs';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/**
 * One side of a comparison.
 * @typedef {{ name: string, run(calls: number, wait: boolean): Promise<number> }} Side `run` gives milliseconds; with `wait` each call is waited for
 */
/** @typedef {{ group: string, name: string, series: string, unit: string, runs: number[] }} Measured */

const USAGE = 'node benches/onnx.mjs --pytorch PYTHON [options]';
const OPTIONS = /** @type {const} */ ({
  addon: { type: 'string', value: 'PATH', path: 'module', default: OWN_ADDON, help: 'the addon to measure' },
  pytorch: { type: 'string', value: 'PYTHON', required: true, help: 'a Python with PyTorch, torchvision, transformers, onnx, onnxscript' },
  only: { type: 'string', value: 'NAMES', default: 'resnet50,bert-base', help: 'models, separated by commas' },
  batches: {
    type: 'string',
    value: 'whole numbers with commas',
    pattern: /^[1-9]\d*(,[1-9]\d*)*$/,
    default: '1,32',
    help: 'sizes of a batch',
  },
  precision: { type: 'string', choices: ['f16', 'f32'], default: 'f16', help: 'type of the weights and of all arithmetic' },
  modes: { type: 'string', value: 'NAMES', default: 'compiled,graphs', help: "PyTorch's modes, with commas: eager, compiled, graphs" },
  onnxruntime: { type: 'string', value: 'FOLDER', path: 'input-folder', help: 'folder where onnxruntime-node is installed' },
  small: { type: 'boolean', help: 'small sizes, for CPU devices' },
  rounds: { type: 'integer', default: 5, min: 1, max: 1000, help: 'runs of each, in turn' },
  milliseconds: { type: 'integer', default: 200, min: 1, max: 60_000, help: 'approximate length of a run' },
  profile: { type: 'boolean', help: 'instead, the time of a call of ours by kernel' },
  budget: { type: 'integer', default: 300, min: 1, max: 86_400, help: 'seconds for everything' },
  json: { type: 'boolean', help: 'print JSON' },
  ...RESULTS_OPTION,
});
const MODELS = ['resnet50', 'bert-base'];
const MODES = ['eager', 'compiled', 'graphs'];
/** Largest difference to PyTorch's output, relative to its largest element. @type {Record<string, number>} */
const APART = { f32: 1e-3, f16: 3e-2 };

/** @param {ArrayLike<number>} actual @param {ArrayLike<number>} expected */
function apart(actual, expected) {
  let [worst, largest] = [0, 0];
  for (let i = 0; i < expected.length; i++) {
    // Not Math.max of what a NaN leaves.
    if (!(Math.abs(actual[i] - expected[i]) <= worst)) worst = Math.abs(actual[i] - expected[i]);
    largest = Math.max(largest, Math.abs(expected[i]));
  }
  return worst / largest;
}

/**
 * Ours, compiled, of which the result stays where the next call puts its own.
 * @param {import('../packages/onnx/src/index.mjs').OnnxModel} model @param {Tensor} input
 */
function ours(model, input) {
  const call = compile((/** @type {Tensor} */ x) => noGrad(() => model.forward(x)), { reuseOutputs: true });
  /** Waits for a result without reading all of it. @param {Tensor} y */
  const finished = (y) => scope(() => y.reshape(-1).slice(0, 0, 1)).toArray();
  return {
    name: 'helios-vk, compiled',
    compiled: call,
    dispatches: () => {
      call.prepare(input);
      return call.explain()[0].dispatches;
    },
    /** What the passes found; after `dispatches`. */
    found: () => call.explain()[0].found,
    first: () => call(input).toArray(),
    async run(/** @type {number} */ calls, /** @type {boolean} */ wait) {
      const start = performance.now();
      for (let i = 1; i < calls; i++) {
        const y = call(input);
        if (wait) await finished(y);
      }
      await finished(call(input));
      return performance.now() - start;
    },
    dispose: () => call.dispose(),
  };
}

/** The CPU provider of onnxruntime-node. @param {string} folder @param {string} file @param {Tensor} input @returns {Promise<Side>} */
async function onnxruntime(folder, file, input) {
  const { InferenceSession, Tensor } = createRequire(pathToFileURL(join(folder, 'package.json')))('onnxruntime-node');
  const session = await InferenceSession.create(readFileSync(file));
  const elements = await input.toArray();
  const data = input.dtype === 'f32' ? elements : BigInt64Array.from(/** @type {any} */ (elements), BigInt);
  const given = new Tensor(input.dtype === 'f32' ? 'float32' : 'int64', data, input.shape);
  await session.run({ input: given });
  return {
    name: 'onnxruntime-node, CPU',
    async run(calls) {
      const start = performance.now();
      for (let i = 0; i < calls; i++) await session.run({ input: given });
      return performance.now() - start;
    },
  };
}

/** Calls that take about `milliseconds`. @param {Side} side @param {number} milliseconds */
async function callsFor(side, milliseconds) {
  await side.run(2, false);
  const one = (await side.run(3, false)) / 3;
  return Math.min(2000, Math.max(2, Math.round(milliseconds / one)));
}

await runMain(USAGE, OPTIONS, async (options) => {
  const { addon, only, precision, rounds, milliseconds, small, budget } = options;
  const [names, modes, batches] = [only.split(','), options.modes.split(','), options.batches.split(',').map(Number)];
  const foreign = [...names.filter((name) => !MODELS.includes(name)), ...modes.filter((name) => !MODES.includes(name))];
  if (foreign.length > 0) throw new UsageError(`nothing is named ${foreign.join(', ')}; there are ${[...MODELS, ...MODES].join(', ')}`);
  const end = performance.now() + 1000 * budget;
  const left = () => end - performance.now();
  const say = (/** @type {string} */ text) => process.stderr.write(`${(budget - left() / 1000).toFixed(0).padStart(4)} s  ${text}\n`);
  const info = init({ vk: /** @type {any} */ (loadAddon(addonPath(addon))) });
  const peer = startPeer(options.pytorch, [fileURLToPath(new URL('pytorch/inference.py', import.meta.url))]);
  const folder = await mkdtemp(join(tmpdir(), 'helios-vk-onnx-'));
  /** @type {Measured[]} */
  const measured = [];
  let torch = '';
  try {
    const about = await peer.ask({ do: 'info' }, left());
    torch = `PyTorch ${about.torch} on ${about.device}`;
    say(torch);
    for (const name of names) {
      if (left() <= 0) {
        say(`${name}: left out, the time is over`);
        continue;
      }
      const made = await peer.ask({ do: 'make', model: name, small, precision, folder, batches }, left());
      const start = performance.now();
      const model = await loadOnnx(made.file);
      const loading = `exported in ${made.seconds.toFixed(1)} s, loaded in ${((performance.now() - start) / 1000).toFixed(1)} s`;
      say(`${name}, ${precision}: ${made.parameters.toLocaleString('en')} parameters, ${loading}`);
      for (const batch of batches) {
        if (left() <= 0) {
          say(`${name}, batch ${batch}: left out, the time is over`);
          continue;
        }
        try {
          measured.push(...(await compare(name, batch, made.file, model)));
        } catch (error) {
          // What others gave still counts.
          process.exitCode = 1;
          say(`${name}, batch ${batch}: ${/** @type {Error} */ (error).stack}`);
        }
      }
      model.dispose();
    }
  } finally {
    peer.end();
    await rm(folder, { recursive: true, force: true });
  }

  /**
   * @param {string} name @param {number} batch @param {string} file @param {import('../packages/onnx/src/index.mjs').OnnxModel} model
   * @returns {Promise<Measured[]>}
   */
  async function compare(name, batch, file, model) {
    const { input, output } = /** @type {Record<string, Tensor>} */ (await load(join(folder, `values-${batch}.safetensors`)));
    const own = ours(model, input);
    if (options.profile) {
      const dispatches = own.dispatches();
      const title = `${name}, ${precision}, batch ${batch}, ${dispatches} dispatches, ${JSON.stringify(own.found())}`;
      await printProfile(own.compiled, [input], title);
      // What a call takes beyond its kernels is time between dispatches.
      const calls = await callsFor(own, milliseconds);
      console.log(`${format((await own.run(calls, false)) / calls)} ms a call`);
      own.dispose();
      return [];
    }
    const start = performance.now();
    const difference = apart(/** @type {any} */ (await own.first()), /** @type {any} */ (await output.toArray()));
    say(
      `${name}, batch ${batch}: compiled in ${((performance.now() - start) / 1000).toFixed(1)} s, apart by ${difference.toExponential(1)}`,
    );
    if (!(difference <= APART[precision])) throw new Error(`the output differs from PyTorch's by ${difference}`);
    const group = `inference of ${name}, ${precision}, batch ${batch}`;
    /** @type {{ side: Side, calls: number, figures: Measured[] }[]} */
    const sides = [];
    /** @param {Side} side */
    const add = async (side) => {
      const groups = [group, `${group}, each waited for`];
      const figures = groups.map((group) => ({ group, name: side.name, series: 'milliseconds', unit: 'ms', runs: [] }));
      sides.push({ side, calls: await callsFor(side, milliseconds), figures });
    };
    const round = async (/** @type {typeof sides} */ order) => {
      for (const { side, calls, figures } of order)
        for (const [i, wait] of [false, true].entries()) figures[i].runs.push((await side.run(calls, wait)) / calls);
    };
    await add(own);
    if (options.onnxruntime) await add(await onnxruntime(options.onnxruntime, file, input));
    // One mode of PyTorch at a time has its compiled model: ours runs in turn with each.
    for (const mode of modes) {
      try {
        const { apart, seconds } = await peer.ask({ do: 'prepare', batch, mode }, left());
        say(`${name}, batch ${batch}: PyTorch ${mode} in ${seconds.toFixed(1)} s`);
        if (!(apart <= APART[precision])) throw new Error(`its output differs from that of eager PyTorch by ${apart}`);
        await add({
          name: `PyTorch, ${mode}`,
          run: async (calls, wait) => (await peer.ask({ do: 'run', calls, wait }, left())).milliseconds,
        });
        const theirs = /** @type {(typeof sides)[number]} */ (sides.at(-1));
        for (let i = 0; i < rounds; i++) await round(i % 2 ? [theirs, sides[0]] : [sides[0], theirs]);
      } catch (error) {
        say(`${name}, batch ${batch}, PyTorch ${mode}: ${/** @type {Error} */ (error).message}`);
      }
    }
    const alone = sides.filter(({ figures }) => figures[0].runs.length === 0);
    for (let i = 0; i < rounds && alone.length > 0; i++) await round(alone);
    own.dispose();
    input.dispose();
    output.dispose();
    for (const { side, figures } of sides)
      say(`${group}: ${side.name}: ${figures.map(({ runs }) => `${format(median(runs))} ms`).join(', each waited for ')}`);
    return sides.flatMap(({ figures }) => figures);
  }

  if (options.profile) return;
  const figures = measured.filter(({ runs }) => runs.length > 0).map((figure) => ({ ...figure, value: median(figure.runs) }));
  report(options, {
    bench: 'onnx',
    title: `Inference of ONNX files beside ${torch}; medians of ${rounds} runs`,
    info,
    figures,
    about: { torch },
  });
});
