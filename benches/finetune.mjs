#!/usr/bin/env node
/**
 * Measures a step of LoRA: time and memory of training adapters beside frozen weights, of random values, on random ids, with AdamW and two
 * steps in flight. `pytorch/finetune.py` measures the same in PyTorch.
 */

import { readFileSync } from 'node:fs';

import { autocast, compile, manualSeed, memory, nn, optim } from 'helios-vk/nn';
import { Decoder, parseConfig } from 'helios-lm';

import { addAdapters, inProductOrder, quantizeLayers } from '../packages/lm/src/model/lora.mjs';
import { flopsPerToken, halfOf } from '../packages/lm/src/train/settings.mjs';
import { initialize } from '../packages/lm/src/train/state.mjs';
import { OWN_ADDON, driverText, loadAddon } from './lib/addon.mjs';
import { UsageError, runMain } from '../bin/lib/options.mjs';
import { DECODERS, printProfile, randomIds, timed } from './lib/decoders.mjs';
import { RESULTS_OPTION, writeResults } from './lib/results.mjs';

const OPTIONS = /** @type {const} */ ({
  model: {
    type: 'string',
    choices: /** @type {(keyof typeof DECODERS)[]} */ (Object.keys(DECODERS)),
    default: 'llama-1.1b',
    help: 'which model',
  },
  precision: { type: 'string', choices: ['bf16', 'f16', 'f32'], default: 'bf16', help: 'arithmetic, and type of the frozen weights' },
  quantized: { type: 'boolean', help: 'keep the frozen weights in q8_0, as QLoRA' },
  rank: { type: 'integer', min: 1, max: 4096, default: 16, help: 'of the adapters, which all linear layers but the head have' },
  dropout: { type: 'number', min: 0, max: 0.99, default: 0, help: "share of the adapters' inputs that are dropped" },
  batch: { type: 'integer', min: 1, max: 65_536, default: 4, help: 'sequences of a step' },
  block: { type: 'integer', min: 1, max: 65_536, default: 1024, help: 'tokens of a sequence' },
  steps: { type: 'integer', min: 1, max: 100_000, default: 20, help: 'timed steps' },
  logits: { type: 'integer', min: 1, max: 1_048_576, default: 256, help: 'MiB of logits at once' },
  'grad-checkpoint': { type: 'boolean', help: 'compute each layer again in the backward pass' },
  profile: { type: 'boolean', help: 'instead, the time of a step by kernel' },
  pytorch: {
    type: 'string',
    value: 'FILE',
    path: 'input',
    help: 'what benches/pytorch/finetune.py printed for the same model, rank and batch',
  },
  ...RESULTS_OPTION,
});

/**
 * What the PyTorch twin printed for the same step.
 * @param {string} file @param {Record<string, unknown>} own
 * @returns {{ series: string, milliseconds: number, gigabytes: number }}
 * @throws {UsageError} if it is of another step
 */
function resultOfPytorch(file, own) {
  const theirs = JSON.parse(readFileSync(file, 'utf8'));
  for (const key of ['model', 'rank', 'precision', 'batch', 'block'])
    if (theirs[key] !== own[key]) throw new UsageError(`--pytorch: ${file} is of ${key} ${theirs[key]}, not ${own[key]}`);
  return theirs;
}

await runMain(
  'node benches/finetune.mjs [options]',
  OPTIONS,
  async ({
    model: name,
    precision,
    quantized = false,
    rank,
    dropout,
    batch,
    block,
    steps,
    logits,
    profile,
    pytorch,
    results,
    'grad-checkpoint': again = false,
  }) => {
    const info = loadAddon(OWN_ADDON).initDevice();
    const { deviceName } = info;
    const config = parseConfig(DECODERS[/** @type {keyof typeof DECODERS} */ (name)], name);
    const half = halfOf(/** @type {'bf16' | 'f16' | 'f32'} */ (precision));
    const model = nn.skipInit(() => new Decoder(config), { dtype: half || 'f32' });
    initialize(model, 1);
    if (quantized) quantizeLayers(model);
    manualSeed(1);
    addAdapters(model, { rank, alpha: 2 * rank, dropout });
    model.gradCheckpoint = again;
    const trained = inProductOrder([...model.namedParameters()].filter(([, { requiresGrad }]) => requiresGrad));
    const optimizer = new optim.AdamW(trained, { lr: 1e-4 });
    const step = compile((/** @type {import('helios-vk/nn').Tensor} */ ids, /** @type {import('helios-vk/nn').Tensor} */ targets) => {
      const loss = autocast(half, () => model.loss(ids, targets, { logitsBytes: logits * 2 ** 20 }));
      loss.backward();
      optimizer.step();
      optimizer.zeroGrad();
      return loss.detach();
    });
    const [ids, targets] = [1, 2].map((salt) => randomIds(salt, [batch, block], config.vocabSize));
    if (profile) return printProfile(step, [ids, targets], `${name}, rank ${rank}, ${batch} × ${block}`);
    const { losses, milliseconds } = await timed(() => step(ids, targets), steps);
    // Of the frozen weights there is a forward product and one for the gradient of its input, so 4 of 6 operations; adapters add little.
    const flops = (flopsPerToken(config, block) * 4) / 6;
    const result = {
      device: deviceName,
      series: 'helios-vk',
      model: name,
      rank,
      precision,
      quantized,
      trained: trained.reduce((sum, { size }) => sum + size, 0),
      batch,
      block,
      gradCheckpoint: again,
      milliseconds,
      tokensPerSecond: (batch * block * 1000) / milliseconds,
      teraflops: (flops * batch * block) / milliseconds / 1e9,
      gigabytes: memory().bytes / 1e9,
      losses: [losses[0], losses.at(-1)],
    };
    if (results !== undefined) {
      const kept = `${quantized ? 'frozen weights of 8 bits, ' : ''}${again ? 'layers computed again, ' : ''}`;
      const group = `${name}, rank ${rank}, ${kept}${batch} × ${block}, ${precision}`;
      const sides = [result, ...(pytorch ? [resultOfPytorch(pytorch, result)] : [])];
      writeResults(results, {
        bench: 'finetune',
        title: `LoRA steps of ${name}, adapters of rank ${rank} in all linear layers, ${steps} timed, median; AdamW, ${logits} MiB of logits at once`,
        device: deviceName,
        driver: driverText(info),
        figures: sides.flatMap(({ series, milliseconds, gigabytes }) => [
          { group, name: 'time of a step', series, unit: 'ms', value: milliseconds },
          { group, name: 'memory', series, unit: 'GB', value: gigabytes },
        ]),
      });
    }
    console.log(JSON.stringify(result));
  },
);
