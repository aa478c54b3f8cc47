#!/usr/bin/env node
// The existing trainer's own training command on `@helios-vk/alpha-backend`, beside its own backend on its own addon, in
// turn: tokens a second, losses, and which steps ran as recorded graphs.
//
//   node benches/alpha.mjs --trainer CHECKOUT [--sides addon,eager-bf16,captured-bf16,captured-f32] [--rounds N] [--steps N] [--json FILE]
//
// The checkout is built, with its C addon at packages/helios/native/helios_vk.node for the side `addon`. A side is `addon`,
// or `eager` or `captured` with a precision. On a GPU: the step `alpha` of benches/gpu-run.sh.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

import { linkBackend, unlinkBackend } from '../bin/lib/link-backend.mjs';
import { UsageError, runMain } from './lib/args.mjs';
import { runTrainer, trainCommand } from './lib/existing-trainer.mjs';
import { deviceOf, OWN_ADDON } from './lib/addon.mjs';
import { RESULTS_OPTION, writeResults } from './lib/results.mjs';
import { median } from './lib/stats.mjs';
import { makeText } from './lib/text.mjs';

const OPTIONS = /** @type {const} */ ({
  trainer: { type: 'string', value: 'CHECKOUT', path: 'input-folder', help: 'the trainer, built' },
  sides: { type: 'string', default: 'addon,eager-bf16,captured-bf16,captured-f32', help: 'what to run' },
  rounds: { type: 'integer', min: 1, max: 100, default: 3, help: 'runs of each side, in turn' },
  steps: { type: 'integer', min: 8, max: 10_000, default: 16, help: 'steps of a run; the first 6 are left out' },
  layers: { type: 'integer', min: 1, max: 200, default: 21, help: 'decoder layers' },
  width: { type: 'integer', min: 32, max: 16_384, default: 1024, help: 'width of the model' },
  heads: { type: 'integer', min: 1, max: 256, default: 16, help: 'attention heads' },
  block: { type: 'integer', min: 8, max: 65_536, default: 512, help: 'tokens of a sequence' },
  tokenizer: { type: 'string', default: 'bpe-16k', help: 'one of the trainer’s' },
  json: { type: 'string', value: 'FILE', path: 'output', help: 'where the figures go' },
  ...RESULTS_OPTION,
});
/** Steps before a step is recorded, and the recorded one. */
const WARMUP = 6;

await runMain('node benches/alpha.mjs --trainer CHECKOUT [options]', OPTIONS, async (options) => {
  const { rounds, steps, layers, width, heads, block, tokenizer, json } = options;
  if (options.trainer === undefined) throw new UsageError('--trainer is missing');
  const checkout = resolve(options.trainer);
  const sides = options.sides.split(',');
  for (const side of sides) {
    if (!/^(addon|(eager|captured)-(f32|bf16|f16))$/.test(side)) throw new UsageError(`--sides: ${side} is none`);
  }
  const command = await trainCommand(checkout);
  const scratch = mkdtempSync(join(tmpdir(), 'helios-vk-alpha-'));
  const { path } = linkBackend(checkout);
  /** @type {Map<string, { toks: number[], losses: number[] }>} */
  const results = new Map(sides.map((side) => [side, { toks: [], losses: [] }]));
  try {
    const data = join(scratch, 'text.txt');
    writeFileSync(data, makeText(2_000_000, 1));
    const shape = { layers, width, heads, block, batch: 1, microSteps: 4, lr: 3e-4, seed: 1 };
    for (let round = 0; round < rounds; round++) {
      for (const [side, result] of results) {
        const [mode, precision] = side.split('-');
        if (mode === 'addon') process.env.NODE_OPTIONS = '';
        else {
          process.env.NODE_OPTIONS = `--import=${pathToFileURL(path).href}`;
          process.env.HELIOS_ALPHA_PRECISION = precision;
          process.env.HELIOS_ALPHA_CAPTURE = mode === 'captured' ? '1' : '0';
        }
        const addon = join(checkout, 'packages/helios/native/helios_vk.node');
        const run = await runTrainer({ checkout, command, addon, data, tokenizer, scratch, steps, shape, more: [] });
        const toks = run.steps.slice(WARMUP).map((step) => step.toks);
        result.toks.push(median(toks));
        result.losses = run.steps.map(({ loss }) => loss);
        console.log(
          `round ${round + 1}, ${side}: ${median(toks).toFixed(0)} tok/s, losses ${result.losses.slice(0, 4).join(' ')} … ${result.losses.at(-1)}`,
        );
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
    const figures = { bench: 'alpha', layers, width, heads, block, steps, rounds, sides: Object.fromEntries(results) };
    writeFileSync(json, `${JSON.stringify(figures, null, 2)}\n`);
  }
  if (options.results !== undefined) {
    const group = `existing trainer, ${layers} layers of width ${width}, batch 1×4, block ${block}`;
    const figures = [...results].flatMap(([side, { toks, losses }]) => {
      const series = side === 'addon' ? 'C addon' : `helios-vk, ${side.replace('-', ' ')}`;
      return [
        { group, name: 'tokens a second', series, unit: 'tok/s', value: median(toks), runs: toks },
        { group, name: `loss of step ${steps}`, series, unit: 'nats', value: /** @type {number} */ (losses.at(-1)) },
      ];
    });
    const { deviceName: device, driverInfo: driver } = (await deviceOf(OWN_ADDON)).info;
    const title = `${steps} steps of the existing trainer’s own training command, of which the first ${WARMUP} are left out`;
    writeResults(options.results, { bench: 'alpha', title, device, driver, figures });
  }
  return 0;
});
