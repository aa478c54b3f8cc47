#!/usr/bin/env node
// The existing trainer's own training command on `@helios-vk/alpha-backend`, beside its own backend on its own addon, in
// turn: tokens a second, losses, and the host's time a step without waits for the device. `--methods` also times what of
// that is in the backend's methods; reading the clock for each of thousands of calls makes the whole longer.
//
//   node benches/alpha.mjs --trainer CHECKOUT [--sides addon,eager-bf16,captured-bf16,captured-f32] [--rounds N] [--steps N]
//     [--warmup N] [--methods] [--json FILE]
//
// The JavaScript of a step gets several times faster over its first fifty: for the host's time take `--steps 120 --warmup 60`.
//
// Runs of this backend in one precision, call by call and as graphs, must have read the same bits from the device in every
// step and must end with the same bits in all weights and moments; otherwise the bench fails and names the step. So
// `--sides eager-bf16,captured-bf16 --rounds 2` is a check that two runs give the same bits.
//
// The checkout is built, with its C addon at packages/helios/native/helios_vk.node for the side `addon`. A side is `addon`,
// or `eager` or `captured` with a precision. On a GPU: the step `alpha` of benches/gpu-run.sh.

import { mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

import { linkBackend, unlinkBackend } from '../bin/lib/link-backend.mjs';
import { UsageError, runMain } from './lib/args.mjs';
import { runTrainer, trainCommand } from './lib/existing-trainer.mjs';
import { deviceOf, OWN_ADDON } from './lib/addon.mjs';
import { RESULTS_OPTION, commitOfCheckout, writeResults } from './lib/results.mjs';
import { median } from './lib/stats.mjs';
import { makeText } from './lib/text.mjs';

const OPTIONS = /** @type {const} */ ({
  trainer: { type: 'string', value: 'CHECKOUT', path: 'input-folder', help: 'a checkout of the trainer, built' },
  sides: { type: 'string', default: 'addon,eager-bf16,captured-bf16,captured-f32', help: 'what to run' },
  rounds: { type: 'integer', min: 1, max: 100, default: 3, help: 'runs of each side, in turn' },
  steps: { type: 'integer', min: 8, max: 10_000, default: 16, help: 'steps of a run' },
  warmup: {
    type: 'integer',
    min: 6,
    max: 9_000,
    default: 6,
    help: 'first steps that are not timed: they upload weights and record graphs',
  },
  methods: { type: 'boolean', help: 'time the methods of the backend, too' },
  layers: { type: 'integer', min: 1, max: 200, default: 21, help: 'decoder layers' },
  width: { type: 'integer', min: 32, max: 16_384, default: 1024, help: 'width of the model' },
  heads: { type: 'integer', min: 1, max: 256, default: 16, help: 'attention heads' },
  block: { type: 'integer', min: 8, max: 65_536, default: 512, help: 'tokens of a sequence' },
  tokenizer: { type: 'string', default: 'bpe-16k', help: 'the trainer’s tokenizer' },
  json: { type: 'string', value: 'FILE', path: 'output', help: 'write the figures as JSON' },
  ...RESULTS_OPTION,
});
/** The module of the backend, which the file in the checkout uses too. */
const BACKEND = pathToFileURL(realpathSync(fileURLToPath(import.meta.resolve('@helios-vk/alpha-backend')))).href;
/** Native calls that wait for the device. */
const WAITS = ['readBuffer', 'waitIdle', 'waitTimeline'];

/**
 * The host's work in each step after the warm-up.
 * @param {Awaited<ReturnType<typeof runTrainer>>} run
 * @param {number} warmup
 * @returns {Record<'ms' | 'host' | 'backend' | 'native' | 'wait', number> & { calls: Record<string, number> }} medians, in ms:
 *   the step; without waits for the device, the step, the backend's methods (0 where not timed), and the native calls; those waits.
 *   `calls`: native calls of the last step
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
 * Where two runs differ.
 * @param {{ digests: string[], weights: string | undefined }} a @param {{ digests: string[], weights: string | undefined }} b
 * @returns {string | undefined}
 */
function difference(a, b) {
  const step = a.digests.findIndex((digest, i) => digest !== b.digests[i]);
  if (step >= 0) return `losses or norms of step ${step + 1}`;
  return a.weights === b.weights ? undefined : 'weights or moments after the last step';
}

await runMain('node benches/alpha.mjs --trainer CHECKOUT [options]', OPTIONS, async (options) => {
  const { rounds, steps, warmup, methods, layers, width, heads, block, tokenizer, json } = options;
  if (options.trainer === undefined) throw new UsageError('--trainer is missing');
  if (steps <= warmup) throw new UsageError(`--steps ${steps}: all of them are left out by --warmup ${warmup}`);
  const checkout = resolve(options.trainer);
  const sides = options.sides.split(',');
  for (const side of sides) {
    if (!/^(addon|(eager|captured)-(f32|bf16|f16))$/.test(side)) throw new UsageError(`--sides: ${side} is none`);
  }
  const command = await trainCommand(checkout);
  const { deviceName: device, driverInfo: driver } = (await deviceOf(OWN_ADDON)).info;
  const scratch = mkdtempSync(join(tmpdir(), 'helios-vk-alpha-'));
  const { path } = linkBackend(checkout);
  /** @type {Map<string, { toks: number[], losses: number[], host: ReturnType<typeof hostTimes>[] }>} */
  const results = new Map(sides.map((side) => [side, { toks: [], losses: [], host: [] }]));
  /** The first run of each precision. @type {Map<string, { label: string, digests: string[], weights: string | undefined }>} */
  const firsts = new Map();
  /** @type {string[]} */
  const differences = [];
  let compared = 0;
  try {
    const data = join(scratch, 'text.txt');
    writeFileSync(data, makeText(2_000_000, 1));
    const shape = { layers, width, heads, block, batch: 1, microSteps: 4, lr: 3e-4, seed: 1 };
    for (let round = 0; round < rounds; round++) {
      for (const [side, result] of results) {
        const [mode, precision] = side.split('-');
        if (mode === 'addon') {
          process.env.NODE_OPTIONS = '';
          process.env.HELIOS_BENCH_BACKEND = '';
        } else {
          process.env.HELIOS_BENCH_BACKEND = BACKEND;
          process.env.NODE_OPTIONS = `--import=${pathToFileURL(path).href}`;
          process.env.HELIOS_ALPHA_PRECISION = precision;
          process.env.HELIOS_BENCH_METHODS = methods ? '1' : '0';
          process.env.HELIOS_ALPHA_CAPTURE = mode === 'captured' ? '1' : '0';
        }
        const addon = join(checkout, 'packages/helios/native/helios_vk.node');
        const run = await runTrainer({ checkout, command, addon, data, tokenizer, scratch, steps, shape, more: [] });
        const toks = run.steps.slice(warmup).map((step) => step.toks);
        result.toks.push(median(toks));
        result.losses = run.steps.map(({ loss }) => loss);
        const host = hostTimes(run, warmup);
        result.host.push(host);
        const label = `round ${round + 1}, ${side}`;
        console.log(`${label}: ${median(toks).toFixed(0)} tok/s, losses ${result.losses.slice(0, 4).join(' ')} … ${result.losses.at(-1)}`);
        console.log(
          `  ${host.ms.toFixed(1)} ms a step, of which ${host.wait.toFixed(1)} wait for the device; the host without that: ${host.host.toFixed(2)}${methods ? `, in the backend ${host.backend.toFixed(2)}` : ''}, in native calls ${host.native.toFixed(1)}; ${JSON.stringify(host.calls)}`,
        );
        if (mode === 'addon') continue;
        const first = firsts.get(precision);
        if (first === undefined) {
          firsts.set(precision, { label, digests: run.digests, weights: run.weights });
          continue;
        }
        compared++;
        const differs = difference(first, run);
        if (differs !== undefined) differences.push(`${first.label} and ${label}: ${differs}`);
        console.log(`  ${differs === undefined ? 'the bits of' : `DIFFERS in ${differs} from`} ${first.label}`);
      }
    }
  } finally {
    unlinkBackend(checkout);
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
    const title = `${steps} steps of the existing trainer’s own training command, of which the first ${warmup} are left out`;
    writeResults(options.results, { bench: 'alpha', title, device, driver, figures });
  }
  for (const text of differences) console.error(`not the same bits: ${text}`);
  if (compared > 0 && differences.length === 0) console.log(`${compared} comparisons of runs: the same bits in all of them`);
  return differences.length === 0 ? 0 : 1;
});
