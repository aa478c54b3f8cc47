#!/usr/bin/env node
/**
 * Measures what `compile` gives: tokens a second of the GPT's training step, eager and compiled, and the distance of their losses. Both run in turn,
 * from equal weights on equal data. With `--compile`, measures the time of compiling itself.
 */

import { compile, init, nn, scope, tensor } from 'helios-vk/nn';

import { Decoder } from '../packages/lm/src/model/decoder.mjs';
import { logitsBytes } from '../packages/lm/src/train/device.mjs';
import { PRESET_NAMES, tokensPerStep } from '../packages/lm/src/train/settings.mjs';
import { initialize } from '../packages/lm/src/train/state.mjs';
import { createTraining, stepBatch } from '../packages/lm/src/train/trainer.mjs';
import { addonPath, loadAddon, OWN_ADDON } from './lib/addon.mjs';
import { runMain } from './lib/args.mjs';
import { format, median, textTable } from './lib/stats.mjs';
import { stubDevice } from './lib/stub.mjs';
import { configFrom, flatConfig, windowsOf } from './lib/training.mjs';

const USAGE = 'node benches/nn.mjs [options]';
const OPTIONS = /** @type {const} */ ({
  addon: { type: 'string', value: 'PATH', path: 'module', default: OWN_ADDON, help: 'the addon to measure' },
  preset: { type: 'string', default: 'gpt-300m', value: 'NAME', choices: PRESET_NAMES, help: `one of ${PRESET_NAMES.join(', ')}` },
  precision: { type: 'string', default: 'bf16', choices: ['f32', 'f16', 'bf16'], help: 'arithmetic' },
  layers: { type: 'integer', min: 1, max: 4096, help: "layers; the preset's when left out" },
  batch: { type: 'integer', min: 1, max: 65536, help: "sequences of a micro-step; the preset's when left out" },
  steps: { type: 'integer', default: 20, min: 1, max: 1_000_000, help: 'timed steps of a run' },
  warmup: { type: 'integer', default: 4, min: 1, max: 1000, help: 'steps before the timed ones' },
  rounds: { type: 'integer', default: 3, min: 1, max: 1000, help: 'runs of each, in turn' },
  budget: { type: 'integer', default: 600, min: 1, max: 86_400, help: 'begin no further round after this many seconds' },
  compile: { type: 'boolean', help: 'instead, time the first and the second compile of a process, on a stub of an H200' },
  json: { type: 'boolean', help: 'print JSON' },
});

/** Steps that may be submitted and not finished. */
const IN_FLIGHT = 2;

/** @typedef {{ milliseconds: number, losses: number[] }} Run of the timed steps; losses of all */
/** @typedef {import('../packages/lm/src/train/settings.mjs').RunConfig} RunConfig */
/** @typedef {{ warmup: number, steps: number, data: ReturnType<typeof windowsOf>, logits: number }} Job `logits`: bytes of logits at once */

/** @param {RunConfig} config @param {Job} job @param {boolean} compiled @returns {Promise<Run>} */
async function train({ model: sizes, settings }, { warmup, steps, data, logits }, compiled) {
  const model = nn.skipInit(() => new Decoder(sizes));
  initialize(model, settings.seed);
  const { opt, step } = createTraining(model, settings, { logitsBytes: logits });
  const recorded = compiled ? compile(step) : undefined;
  const call = (/** @type {Uint32Array} */ batch) => (recorded ? recorded(/** @type {any} */ (batch)) : scope(() => step(tensor(batch))));
  /** @type {Promise<number>[]} */
  const losses = [];
  const one = async () => {
    const loss = call(stepBatch(data, settings, losses.length));
    losses.push(loss.item());
    loss.dispose();
    await losses[losses.length - IN_FLIGHT];
  };
  for (let i = 0; i < warmup; i++) await one();
  await Promise.all(losses);
  const start = performance.now();
  for (let i = 0; i < steps; i++) await one();
  const read = await Promise.all(losses);
  const milliseconds = performance.now() - start;
  recorded?.dispose();
  opt.dispose();
  model.dispose();
  return { milliseconds, losses: read };
}

/**
 * What it takes to compile the training step, twice in this process, the first time with cold code and empty caches: until it is
 * done, and of all threads, those of the JavaScript engine's compilers too.
 * @param {RunConfig} config
 */
function compileTwice({ model: sizes, settings }) {
  const stub = stubDevice();
  const info = init({ vk: stub });
  const model = nn.skipInit(() => new Decoder(sizes));
  const { step } = createTraining(model, settings, { logitsBytes: logitsBytes(sizes, info) });
  const batch = new Uint32Array(2 * tokensPerStep(settings));
  return ['first', 'second'].map((name) => {
    stub.reset();
    const [start, from] = [process.cpuUsage(), performance.now()];
    const recorded = compile(step);
    recorded(/** @type {any} */ (batch)).dispose();
    const milliseconds = performance.now() - from;
    const { user, system } = process.cpuUsage(start);
    const [{ dispatches }] = recorded.explain();
    recorded.dispose();
    return { name, milliseconds, cpuMilliseconds: (user + system) / 1000, dispatches, barriers: stub.counts.barriers };
  });
}

await runMain(USAGE, OPTIONS, async ({ addon, preset, precision, layers, batch, steps, warmup, rounds, budget, compile: time, json }) => {
  const end = performance.now() + 1000 * budget;
  const config = configFrom(preset, { precision, layers, batch, steps: Math.max(200, warmup + steps) });
  const { blockSize: block } = config.settings;
  if (time) {
    const compiles = compileTwice(config);
    if (json) console.log(JSON.stringify({ config: flatConfig(config), compiles }, null, 2));
    else {
      console.log(`compiling the training step of ${preset}, ${precision}, ${config.model.layers} layers, on a stub of an H200\n`);
      const rows = compiles.map(({ name, milliseconds, cpuMilliseconds, dispatches, barriers }) => [
        name,
        ...[milliseconds, cpuMilliseconds, dispatches, barriers].map((value) => format(value)),
      ]);
      console.log(textTable(['', 'ms', 'CPU ms', 'dispatches', 'barriers'], rows));
    }
    return;
  }
  const vk = /** @type {any} */ (loadAddon(addonPath(addon)));
  const info = init({ vk });
  const { deviceName: device } = info;
  // A rule that a model can learn: which token follows depends on the one before.
  const tokens = new Uint32Array(block * 64 + 1);
  for (let i = 1; i < tokens.length; i++) tokens[i] = (tokens[i - 1] * 31 + (i % 7)) % config.model.vocabSize;
  const job = { warmup, steps, data: windowsOf(tokens, block), logits: logitsBytes(config.model, info) };
  /** @type {Run[][]} */
  const runs = [[], []];
  for (let round = 0; round < rounds && (round === 0 || performance.now() < end); round++) {
    // The one that comes first changes.
    for (const side of round % 2 ? [1, 0] : [0, 1]) runs[side].push(await train(config, job, side === 1));
  }
  const rate = (/** @type {Run} */ { milliseconds }) => (steps * tokensPerStep(config.settings) * 1000) / milliseconds;
  const [eager, compiled] = runs.map((list) => ({ rates: list.map(rate), losses: list[0].losses }));
  const ratios = eager.rates.map((own, i) => compiled.rates[i] / own);
  const apart = Math.max(...eager.losses.map((loss, i) => Math.abs(compiled.losses[i] - loss) / loss));
  if (json) {
    console.log(JSON.stringify({ device, config: flatConfig(config), steps, eager, compiled, ratios, apart }, null, 2));
    return;
  }
  console.log(`${device}: ${preset}, ${precision}, ${config.model.layers} layers; medians of ${ratios.length} runs of ${steps} steps\n`);
  console.log(
    textTable(
      ['', 'tokens a second', 'last loss'],
      [
        ['eager', format(median(eager.rates)), eager.losses[eager.losses.length - 1].toFixed(4)],
        ['compiled', format(median(compiled.rates)), compiled.losses[compiled.losses.length - 1].toFixed(4)],
      ],
    ),
  );
  console.log(
    `\ncompiled to eager, each round: ${ratios.map((ratio) => ratio.toFixed(3)).join(', ')}; losses at most ${apart.toExponential(1)} apart`,
  );
});
