#!/usr/bin/env node
// Tokens a second, losses and host time of the trainer's own training command, with `@helios-vk/alpha-backend` and with the trainer's own
// backend on its own addon, in turn.
//
//   node packages/alpha-backend/bench/alpha.mjs --trainer CHECKOUT [--sides addon,eager-bf16,captured-bf16,captured-f32] [--rounds N]
//     [--steps N] [--warmup N] [--methods] [--json FILE]
//
// CHECKOUT is a built checkout of the trainer. A side is `addon` (the trainer's backend on packages/helios/native/helios_vk.node, the
// C addon), or `eager` (call by call) or `captured` (recorded graphs) with a precision.
//
// All runs of this backend in one precision, eager or captured, must read the same bits from the device in every step and end with the
// same bits in all weights and moments. If they do not, the bench fails and names the first step that differs. So
// `--sides eager-bf16,captured-bf16 --rounds 2` checks that results are reproducible.
//
// The host time of a step is its time without waits for the device. It falls severalfold over the first fifty steps, while V8 compiles:
// to measure it use `--steps 120 --warmup 60`, without `--methods`, which makes steps longer.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

import { OWN_ADDON, deviceOf } from '../../../benches/lib/addon.mjs';
import { UsageError, runMain } from '../../../bin/lib/options.mjs';
import { RESULTS_OPTION, commitOfCheckout, writeResults } from '../../../benches/lib/results.mjs';
import { median } from '../../../benches/lib/stats.mjs';
import { makeText } from './lib/text.mjs';
import { backendUrl } from './lib/backend.mjs';
import { addonPlace, runTrainer, trainCommand } from './lib/trainer.mjs';

const OPTIONS = /** @type {const} */ ({
  trainer: { type: 'string', value: 'CHECKOUT', path: 'input-folder', help: 'a built checkout of the trainer' },
  sides: {
    type: 'string',
    default: 'addon,eager-bf16,captured-bf16,captured-f32',
    help: 'what to measure: addon, or eager or captured with -bf16, -f16 or -f32',
  },
  rounds: { type: 'integer', min: 1, max: 100, default: 3, help: 'runs of each side, in turn' },
  steps: { type: 'integer', min: 8, max: 10_000, default: 16, help: 'steps of a run' },
  warmup: {
    type: 'integer',
    min: 6,
    max: 9_000,
    default: 6,
    help: 'steps before the timed ones; they upload weights and record graphs',
  },
  methods: { type: 'boolean', help: 'time the methods of the backend as well' },
  layers: { type: 'integer', min: 1, max: 200, default: 21, help: 'decoder layers' },
  width: { type: 'integer', min: 32, max: 16_384, default: 1024, help: 'channels' },
  heads: { type: 'integer', min: 1, max: 256, default: 16, help: 'attention heads' },
  block: { type: 'integer', min: 8, max: 65_536, default: 512, help: 'context length' },
  tokenizer: { type: 'string', default: 'bpe-16k', help: 'name of the trainer’s tokenizer' },
  json: { type: 'string', value: 'FILE', path: 'output', help: 'write the figures as JSON' },
  ...RESULTS_OPTION,
});
/** Native calls that wait for the device. */
const WAITS = ['readBuffer', 'waitIdle', 'waitTimeline'];

/**
 * @typedef {object} HostTimes medians over the steps after the warm-up, in ms
 * @property {number} ms the whole step
 * @property {number} wait native calls that wait for the device
 * @property {number} host the step without those
 * @property {number} backend the backend's methods without those; 0 where methods are not timed
 * @property {number} native the other native calls
 * @property {Record<string, number>} calls how often each was called in the last step
 */

/**
 * @param {import('./lib/trainer.mjs').TrainerRun} run
 * @param {number} warmup steps that are left out
 * @returns {HostTimes}
 */
function hostTimes({ calls, printedAt }, warmup) {
  const steps = calls.slice(warmup).map((times, i) => {
    const sum = (/** @type {(name: string) => boolean} */ of) =>
      Object.entries(times).reduce((total, [name, { us }]) => total + (of(name) ? us / 1000 : 0), 0);
    const wait = sum((name) => WAITS.includes(name));
    const ms = printedAt[warmup + i] - printedAt[warmup + i - 1];
    const backend = times.backend ? times.backend.us / 1000 - wait : 0;
    return { ms, host: ms - wait, backend, native: sum((name) => name !== 'backend') - wait, wait };
  });
  const of = (/** @type {'ms' | 'host' | 'backend' | 'native' | 'wait'} */ key) => median(steps.map((step) => step[key]));
  const counts = Object.entries(calls.at(-1) ?? {}).map(([name, { count }]) => [name, count]);
  return {
    ms: of('ms'),
    host: of('host'),
    backend: of('backend'),
    native: of('native'),
    wait: of('wait'),
    calls: Object.fromEntries(counts),
  };
}

/**
 * What first differs between two runs, or undefined.
 * @param {{ digests: string[], weights: string | undefined }} a @param {{ digests: string[], weights: string | undefined }} b
 * @returns {string | undefined}
 */
function difference(a, b) {
  const step = a.digests.findIndex((digest, i) => digest !== b.digests[i]);
  if (step >= 0) return `losses or norms of step ${step + 1}`;
  return a.weights === b.weights ? undefined : 'weights or moments after the last step';
}

await runMain('node packages/alpha-backend/bench/alpha.mjs --trainer CHECKOUT [options]', OPTIONS, async (options) => {
  const { rounds, steps, warmup, methods, layers, width, heads, block, tokenizer, json } = options;
  if (options.trainer === undefined) throw new UsageError('--trainer is missing');
  if (steps <= warmup) throw new UsageError(`--steps ${steps}: must be more than --warmup ${warmup}`);
  const checkout = resolve(options.trainer);
  const sides = options.sides.split(',');
  for (const side of sides) {
    if (!/^(addon|(eager|captured)-(f32|bf16|f16))$/.test(side))
      throw new UsageError(`--sides ${side}: must be addon, or eager or captured with -bf16, -f16 or -f32`);
  }
  const command = await trainCommand(checkout);
  const addon = addonPlace(checkout);
  const [backend, register] = [backendUrl(), backendUrl('/register')];
  const { deviceName: device, driverInfo: driver } = (await deviceOf(OWN_ADDON)).info;
  const scratch = mkdtempSync(join(tmpdir(), 'helios-vk-alpha-'));
  /** @type {Map<string, { toks: number[], losses: number[], host: HostTimes[] }>} */
  const results = new Map(sides.map((side) => [side, { toks: [], losses: [], host: [] }]));
  /** The first run of each precision. @type {Map<string, { label: string, digests: string[], weights: string | undefined }>} */
  const firsts = new Map();
  /** @type {string[]} */
  const differences = [];
  let compared = 0;
  try {
    const data = join(scratch, 'text.txt');
    writeFileSync(data, makeText(2_000_000, 1));
    // What `helios-vk link --backend` writes into a checkout, which a bench leaves as it is.
    const registration = join(scratch, 'register.mjs');
    writeFileSync(registration, `import { register } from '${register}';\nawait register(${JSON.stringify(checkout)});\n`);
    const shape = { layers, width, heads, block, batch: 1, microSteps: 4, lr: 3e-4, seed: 1 };
    for (let round = 0; round < rounds; round++) {
      for (const [side, result] of results) {
        const [mode, precision] = side.split('-');
        if (mode === 'addon') {
          process.env.NODE_OPTIONS = '';
          process.env.HELIOS_BENCH_BACKEND = '';
        } else {
          process.env.HELIOS_BENCH_BACKEND = backend;
          process.env.NODE_OPTIONS = `--import=${pathToFileURL(registration).href}`;
          process.env.HELIOS_ALPHA_PRECISION = precision;
          process.env.HELIOS_BENCH_METHODS = methods ? '1' : '0';
          process.env.HELIOS_ALPHA_CAPTURE = mode === 'captured' ? '1' : '0';
        }
        const run = await runTrainer({ checkout, command, addon, data, tokenizer, scratch, steps, shape });
        const toks = run.steps.slice(warmup).map((step) => step.toks);
        result.toks.push(median(toks));
        result.losses = run.steps.map(({ loss }) => loss);
        const host = hostTimes(run, warmup);
        result.host.push(host);
        const label = `round ${round + 1}, ${side}`;
        console.log(`${label}: ${median(toks).toFixed(0)} tok/s, losses ${result.losses.slice(0, 4).join(' ')} … ${result.losses.at(-1)}`);
        console.log(
          `  ${host.ms.toFixed(1)} ms a step: ${host.wait.toFixed(1)} waiting for the device, ${host.host.toFixed(2)} on the host` +
            ` (${methods ? `${host.backend.toFixed(2)} in the backend, ` : ''}${host.native.toFixed(1)} in native calls); calls: ${JSON.stringify(host.calls)}`,
        );
        if (mode === 'addon') continue;
        const first = firsts.get(precision);
        if (first === undefined) {
          firsts.set(precision, { label, digests: run.digests, weights: run.weights });
          continue;
        }
        compared++;
        const differs = difference(first, run);
        if (differs !== undefined) differences.push(`${label} differs from ${first.label} in ${differs}`);
        console.log(differs === undefined ? `  the same bits as ${first.label}` : `  DIFFERS from ${first.label} in ${differs}`);
      }
    }
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
  const base = results.get('addon');
  for (const [side, { toks }] of results) {
    const ratio = base && side !== 'addon' ? `, ${median(toks.map((t, i) => t / base.toks[i])).toFixed(2)} × the addon` : '';
    console.log(`${side}: ${median(toks).toFixed(0)} tok/s (${toks.map((t) => t.toFixed(0)).join(', ')})${ratio}`);
  }
  if (json !== undefined) {
    const date = `${new Date().toISOString().slice(0, 19)}Z`;
    const figures = {
      bench: 'alpha',
      device,
      driver,
      date,
      commit: commitOfCheckout(),
      layers,
      width,
      heads,
      block,
      steps,
      warmup,
      methods,
      rounds,
      compared,
      differences,
      sides: Object.fromEntries(results),
    };
    writeFileSync(json, `${JSON.stringify(figures, null, 2)}\n`);
  }
  if (options.results !== undefined) {
    const group = `existing trainer, ${layers} layers of width ${width}, batch 1×4, block ${block}`;
    const figures = [...results].flatMap(([side, { toks, losses, host }]) => {
      const series = side === 'addon' ? 'C addon' : `helios-vk, ${side.replace('-', ' ')}`;
      const hosts = host.map((times) => times.host);
      return [
        { group, name: 'host time of a step without waits', series, unit: 'ms', value: median(hosts), runs: hosts },
        { group, name: 'tokens a second', series, unit: 'tok/s', value: median(toks), runs: toks },
        { group, name: `loss of step ${steps}`, series, unit: 'nats', value: /** @type {number} */ (losses.at(-1)) },
      ];
    });
    const title = `${steps} steps of the existing trainer’s own training command, without the first ${warmup}`;
    writeResults(options.results, { bench: 'alpha', title, device, driver, figures });
  }
  for (const text of differences) console.error(text);
  if (compared > 0 && differences.length === 0) console.log(`${compared} comparisons of runs, all with the same bits`);
  return differences.length === 0 ? 0 : 1;
});
