#!/usr/bin/env node
/**
 * Times compiled training steps of small models in `helios-vk/nn` beside the same models in PyTorch, eager, compiled and as CUDA graphs. Both run in
 * turn, from equal weights on equal batches. Also times eager operations. A model counts only if its first losses equal PyTorch's. What would not end within
 * `--budget` is skipped, and what was measured before is kept.
 */

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { init, randn, save, scope } from '../nn/index.mjs';
import { OWN_ADDON, addonPath, loadAddon } from './lib/addon.mjs';
import { runMain, UsageError } from '../bin/lib/options.mjs';
import { printProfile } from './lib/decoders.mjs';
import { LEARNING_RATE, MODELS, training } from './lib/models.mjs';
import { startPeer } from './lib/peer.mjs';
import { SIZES, jaxJs, ours, tfjs } from './lib/regression.mjs';
import { RESULTS_OPTION, report } from './lib/results.mjs';
import { median } from './lib/stats.mjs';

/** PyTorch's modes: `graphs` is one CUDA graph of the whole step, `compiled-graphs` that of the compiled model. */
const MODES = ['eager', 'compiled', 'graphs', 'compiled-graphs'];
const USAGE = 'node benches/models.mjs [options]';
const OPTIONS = /** @type {const} */ ({
  addon: { type: 'string', value: 'PATH', path: 'module', default: OWN_ADDON, help: 'the addon to measure' },
  only: {
    type: 'string',
    value: 'NAMES',
    default: 'mlp,gru,vit,eager',
    help: `what to measure, separated by commas: ${Object.keys(MODELS).join(', ')}, eager (operations), regression (see --peers)`,
  },
  precisions: { type: 'string', value: 'NAMES', default: 'f32,bf16', help: 'arithmetic of products, separated by commas' },
  pytorch: { type: 'string', value: 'PYTHON', help: 'a Python with PyTorch; without it only ours is measured' },
  peers: { type: 'string', value: 'FOLDER', path: 'input-folder', help: 'for regression: folder where tfjs and jax-js are installed' },
  modes: { type: 'string', value: 'NAMES', default: 'eager,compiled', help: `PyTorch's modes, with commas: ${MODES.join(', ')}` },
  small: { type: 'boolean', help: 'small sizes, for CPU devices' },
  rounds: { type: 'integer', default: 5, min: 1, max: 1000, help: 'runs of each, in turn' },
  profile: { type: 'boolean', help: 'instead, the time of our step by kernel' },
  milliseconds: { type: 'integer', default: 300, min: 1, max: 60_000, help: 'approximate length of a run' },
  budget: { type: 'integer', default: 230, min: 1, max: 86_400, help: 'seconds for everything' },
  json: { type: 'boolean', help: 'print JSON' },
  ...RESULTS_OPTION,
});

/** Steps whose losses are compared. */
const CHECKED = 4;
/** Losses of f32 differ by the order of sums, those of bf16 by roundings to 8 bits. */
const APART = { f32: 2e-3, bf16: 3e-2 };
/** How often a loss is read, and waited for: PyTorch's run reads none. */
const READ_EVERY = 8;
/** Elements of a side of eager operands, and operations of a run. */
const [EAGER_SIZE, EAGER_COUNT] = [64, 2000];

/** @typedef {'f32' | 'bf16'} Precision */
/** @typedef {ReturnType<typeof startPeer>} Peer */
/** @typedef {{ group: string, name: string, series: string, unit: string, runs: number[] }} Measured */

/** @param {() => any} step @param {number} steps @returns {Promise<number>} milliseconds */
async function timeOurs(step, steps) {
  /** @type {Promise<number> | undefined} */
  let before;
  const start = performance.now();
  for (let i = 0; i < steps; i++) {
    const loss = step();
    const isRead = i % READ_EVERY === 0 || i === steps - 1;
    const value = isRead ? loss.item() : undefined;
    loss.dispose();
    if (!value) continue;
    await before;
    before = value;
  }
  await before;
  return performance.now() - start;
}

/** Steps that take about `milliseconds`, of which `probe` takes the time. @param {(steps: number) => Promise<number>} probe @param {number} milliseconds */
async function stepsFor(probe, milliseconds) {
  await probe(2);
  const one = (await probe(3)) / 3;
  return Math.min(1000, Math.max(3, Math.round(milliseconds / one)));
}

/**
 * A model of one precision: ours, and each mode of PyTorch's, in turn.
 * @param {string} name @param {Precision} precision @param {any} options @param {Peer | undefined} peer @param {string} folder
 * @param {() => number} left milliseconds until the end @param {(text: string) => void} say
 * @returns {Promise<Measured[]>}
 */
async function compare(name, precision, { small, modes, rounds, milliseconds, profile }, peer, folder, left, say) {
  const sizes = small ? MODELS[name].small : MODELS[name].sizes;
  const ours = training(name, sizes, precision);
  if (profile) {
    // The library's declared types are others than those of its sources, which the helper takes.
    const [step, inputs] = /** @type {any[]} */ ([ours.compiled, [ours.batch.x, ours.batch.t]]);
    await printProfile(step, inputs, `${name}, ${precision}, ${ours.dispatches()} dispatches`);
    ours.dispose();
    return [];
  }
  const [weights, batch] = ['weights', 'batch'].map((file) => join(folder, `${name}-${file}.safetensors`));
  await save(weights, ours.model.stateDict());
  await save(batch, ours.batch);
  const losses = [];
  for (let i = 0; i < CHECKED; i++) losses.push(await scope(ours.step).item());
  if (!losses.every(Number.isFinite)) throw new Error(`${name}, ${precision}: the losses are ${losses.join(', ')}`);
  const run = (/** @type {number} */ steps) => timeOurs(ours.step, steps);
  const group = `a training step of ${name}, ${precision}`;
  /** @type {Measured[]} */
  const measured = [{ group, name: 'helios-vk, compiled', series: 'milliseconds', unit: 'ms', runs: [] }];
  const [own] = measured;
  const ownSteps = await stepsFor(run, milliseconds);
  say(`${name}, ${precision}: ${ours.dispatches()} dispatches, losses ${losses.map((loss) => loss.toFixed(4)).join(', ')}`);
  try {
    for (const mode of modes.split(',')) {
      if (!peer) break;
      /** @param {number} steps */
      const theirs = async (steps) => (await peer.ask({ do: 'run', steps }, left())).milliseconds;
      const request = { do: 'prepare', model: name, sizes, weights, batch, lr: LEARNING_RATE, precision, mode };
      try {
        const answer = await peer.ask({ ...request, check: CHECKED }, left());
        const apart = Math.max(...losses.map((loss, i) => Math.abs(loss - answer.losses[i]) / Math.abs(answer.losses[i])));
        if (!(apart <= APART[precision])) throw new Error(`losses ${answer.losses.join(', ')} are not ours: ${losses.join(', ')}`);
        const runs = [];
        const steps = await stepsFor(theirs, milliseconds);
        for (let round = 0; round < rounds; round++) {
          // The one that comes first changes.
          for (const side of round % 2 ? ['theirs', 'ours'] : ['ours', 'theirs']) {
            if (side === 'ours') own.runs.push((await run(ownSteps)) / ownSteps);
            else runs.push((await theirs(steps)) / steps);
          }
        }
        measured.push({ group, name: `PyTorch, ${mode}`, series: 'milliseconds', unit: 'ms', runs });
      } catch (error) {
        say(`${name}, ${precision}, PyTorch ${mode}: ${/** @type {Error} */ (error).message}`);
      }
    }
    for (let round = own.runs.length; round < rounds; round++) own.runs.push((await run(ownSteps)) / ownSteps);
  } finally {
    ours.dispose();
  }
  return measured;
}

/**
 * Microseconds of an eager operation on small matrices: until the last of them has ended, which a program that reads it sees, and
 * of the calls by themselves, behind which a program goes on.
 * @param {number} rounds @param {Peer | undefined} peer @param {() => number} left milliseconds until the end
 * @param {(text: string) => void} say
 * @returns {Promise<Measured[]>}
 */
async function eager(rounds, peer, left, say) {
  const [a, b] = [randn([EAGER_SIZE, EAGER_SIZE]), randn([EAGER_SIZE, EAGER_SIZE])];
  const operations = { add: () => a.add(b), matmul: () => a.matmul(b) };
  /** @type {Map<string, Measured>} */
  const measured = new Map();
  /** @param {string} side @param {string} name @param {number} value */
  const note = (side, name, value) => {
    const key = `${side} ${name}`;
    const group = `an eager operation on ${EAGER_SIZE}×${EAGER_SIZE}`;
    if (!measured.has(key)) measured.set(key, { group, name: side, series: name, unit: 'µs', runs: [] });
    measured.get(key)?.runs.push(value);
  };
  for (let round = -1; round < rounds; round++) {
    for (const [name, operation] of Object.entries(operations)) {
      const start = performance.now();
      scope(() => {
        for (let i = 1; i < EAGER_COUNT; i++) operation().dispose();
      });
      const called = performance.now();
      const last = operation();
      await last.toArray();
      // The first round warms up.
      if (round >= 0) {
        note('helios-vk', name, ((performance.now() - start) / EAGER_COUNT) * 1000);
        note('helios-vk', `${name}, calls`, ((called - start) / (EAGER_COUNT - 1)) * 1000);
      }
      last.dispose();
    }
    if (!peer || round < 0) continue;
    try {
      const { microseconds } = await peer.ask({ do: 'operations', count: EAGER_COUNT, size: EAGER_SIZE }, left());
      for (const [name, value] of Object.entries(microseconds)) note('PyTorch', name, value);
    } catch (error) {
      say(`eager operations of PyTorch: ${/** @type {Error} */ (error).message}`);
    }
  }
  return [...measured.values()];
}

/**
 * A small regression beside tfjs and jax-js: each side in as many rounds as there is time for.
 * @param {import('./lib/regression.mjs').Sizes} sizes @param {string | undefined} folder @param {any} options
 * @param {() => number} left milliseconds until the end @param {(text: string) => void} say
 * @returns {Promise<Measured[]>}
 */
async function regression(sizes, folder, { rounds, milliseconds }, left, say) {
  /** @type {[string, () => any][]} */
  const makers = [['helios-vk, compiled', () => ours(sizes)]];
  if (folder !== undefined) {
    for (const backend of /** @type {const} */ (['cpu', 'wasm'])) makers.push([`tfjs, ${backend}`, () => tfjs(folder, backend, sizes)]);
    makers.push(['jax-js, wasm', () => jaxJs(folder, sizes)]);
  }
  const group = `a training step of a regression, ${sizes.join(' × ')}`;
  const sides = [];
  /** @type {number[] | undefined} */
  let expected;
  for (const [name, make] of makers) {
    if (left() <= 0) {
      say(`regression, ${name}: left out, the time is over`);
      continue;
    }
    try {
      const side = await make();
      const losses = [];
      for (let i = 0; i < CHECKED; i++) {
        side.step();
        losses.push(await side.loss());
      }
      expected ??= losses;
      const apart = Math.max(...losses.map((loss, i) => Math.abs(loss - /** @type {number[]} */ (expected)[i]) / loss));
      if (!(apart < APART.f32)) throw new Error(`losses ${losses.join(', ')} are not ours: ${expected.join(', ')}`);
      const run = async (/** @type {number} */ steps) => {
        const start = performance.now();
        for (let i = 0; i < steps; i++) side.step();
        await side.loss();
        return performance.now() - start;
      };
      /** @type {Measured} */
      const measured = { group, name, series: 'milliseconds', unit: 'ms', runs: [] };
      sides.push({ run, steps: await stepsFor(run, milliseconds), measured });
    } catch (error) {
      say(`regression, ${name}: ${/** @type {Error} */ (error).message}`);
    }
  }
  for (let round = 0; round < rounds; round++) {
    if (left() <= 0) {
      say(`regression: ${round} of ${rounds} rounds, the time is over`);
      break;
    }
    for (const { run, steps, measured } of round % 2 ? sides.toReversed() : sides) measured.runs.push((await run(steps)) / steps);
  }
  return sides.map(({ measured }) => measured);
}

await runMain(USAGE, OPTIONS, async (options) => {
  const { addon, only, precisions, pytorch, modes, rounds, budget } = options;
  const names = only.split(',');
  const foreign = [
    ...names.filter((name) => name !== 'eager' && name !== 'regression' && !Object.hasOwn(MODELS, name)),
    ...precisions.split(',').filter((name) => !Object.hasOwn(APART, name)),
    ...modes.split(',').filter((name) => !MODES.includes(name)),
  ];
  if (foreign.length > 0) {
    throw new UsageError(
      `nothing is named ${foreign.join(', ')}; there are ${Object.keys(MODELS).join(', ')}, eager, regression; f32, bf16; ${MODES.join(', ')}`,
    );
  }
  const end = performance.now() + 1000 * budget;
  const left = () => end - performance.now();
  const say = (/** @type {string} */ text) => process.stderr.write(`${(budget - left() / 1000).toFixed(0).padStart(4)} s  ${text}\n`);
  const vk = /** @type {any} */ (loadAddon(addonPath(addon)));
  const info = init({ vk });
  const peer = pytorch === undefined ? undefined : startPeer(pytorch, [fileURLToPath(new URL('pytorch/models.py', import.meta.url))]);
  const folder = await mkdtemp(join(tmpdir(), 'helios-vk-models-'));
  /** @type {Measured[]} */
  const measured = [];
  let torch = '';
  try {
    if (peer) {
      const about = await peer.ask({ do: 'info' }, left());
      torch = `PyTorch ${about.torch} on ${about.device}`;
      say(torch);
    }
    for (const name of names) {
      for (const precision of /** @type {Precision[]} */ (Object.hasOwn(MODELS, name) ? precisions.split(',') : [''])) {
        if (left() <= 0) {
          say(`${name} ${precision}: left out, the time is over`);
          continue;
        }
        try {
          if (name === 'eager') measured.push(...(await eager(rounds, peer, left, say)));
          else if (name === 'regression') {
            // Each of the sizes has its part of the time.
            for (const [i, sizes] of SIZES.entries()) {
              const until = performance.now() + left() / (SIZES.length - i);
              const own = () => until - performance.now();
              measured.push(...(await regression(sizes, options.peers, options, own, say)));
            }
          } else measured.push(...(await compare(name, precision, options, peer, folder, left, say)));
        } catch (error) {
          // What others gave still counts.
          process.exitCode = 1;
          say(`${name} ${precision}: ${/** @type {Error} */ (error).stack}`);
        }
      }
    }
  } finally {
    peer?.end();
    await rm(folder, { recursive: true, force: true });
  }
  if (options.profile) return;
  const figures = measured.filter(({ runs }) => runs.length > 0).map((figure) => ({ ...figure, value: median(figure.runs) }));
  const title = `Training steps of small models${torch ? ` beside ${torch}` : ''}; medians of ${rounds} runs`;
  report(options, { bench: 'models', title, info, figures, about: { torch } });
});
