#!/usr/bin/env node
/**
 * Measures the training speed of helios-lm's compiled decoder in bf16: tokens a second and memory, for models of which other projects publish
 * figures. It trains on random ids from the constructor's weights with AdamW, and keeps two steps in flight.
 */

import { readFile } from 'node:fs/promises';
import { autocast, compile, memory, optim, tensor } from 'helios-vk/nn';
import { Decoder, parseConfig } from 'helios-lm';

import { OWN_ADDON, driverText, loadAddon } from './lib/addon.mjs';
import { UsageError, runMain } from './lib/args.mjs';
import { RESULTS_OPTION, writeResults } from './lib/results.mjs';
import { median } from './lib/stats.mjs';

const LLAMA = { model_type: 'llama', vocab_size: 32_768, rms_norm_eps: 1e-5, rope_theta: 5e5 };
/** In the words of `config.json`. */
const MODELS = {
  'gpt2-124m': { model_type: 'gpt2', vocab_size: 50_304, n_embd: 768, n_head: 12, n_layer: 12, n_positions: 1024 },
  'llama-1.1b': {
    ...LLAMA,
    hidden_size: 2048,
    num_hidden_layers: 16,
    num_attention_heads: 32,
    num_key_value_heads: 8,
    intermediate_size: 8192,
    max_position_embeddings: 2048,
  },
  tiny: {
    ...LLAMA,
    vocab_size: 256,
    hidden_size: 64,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    num_key_value_heads: 2,
    intermediate_size: 128,
    max_position_embeddings: 64,
  },
};

const OPTIONS = /** @type {const} */ ({
  model: {
    type: 'string',
    choices: /** @type {(keyof typeof MODELS)[]} */ (Object.keys(MODELS)),
    default: 'gpt2-124m',
    help: 'which model',
  },
  precision: { type: 'string', choices: ['bf16', 'f16', 'f32'], default: 'bf16', help: 'arithmetic' },
  batch: { type: 'integer', min: 1, max: 65_536, default: 16, help: 'sequences of a step' },
  block: { type: 'integer', min: 1, max: 65_536, help: "tokens of a sequence; the model's context when left out" },
  steps: { type: 'integer', min: 1, max: 100_000, default: 10, help: 'timed steps' },
  logits: { type: 'integer', min: 1, max: 1_048_576, default: 1024, help: 'MiB of logits at once' },
  profile: { type: 'boolean', help: 'instead, the time of a step by kernel' },
  json: { type: 'boolean', help: 'print JSON' },
  pytorch: {
    type: 'string',
    value: 'FILE',
    path: 'input',
    help: 'what benches/pytorch/decoder.py --json printed for the same model and batch',
  },
  ...RESULTS_OPTION,
});

/**
 * What `benches/pytorch/decoder.py` printed, checked to be of the same run as ours.
 * @param {string} path @param {Record<string, unknown>} ours
 */
async function resultOfPytorch(path, ours) {
  const theirs = JSON.parse(await readFile(path, 'utf8'));
  for (const key of ['model', 'parameters', 'precision', 'batch', 'block']) {
    if (theirs[key] !== ours[key]) throw new UsageError(`${path}: ${key} is ${theirs[key]}, here ${ours[key]}`);
  }
  return theirs;
}

await runMain(
  'node benches/decoder.mjs [options]',
  OPTIONS,
  async ({ model: name, precision, batch, block: given, steps, logits, profile, json, pytorch, results }) => {
    const info = loadAddon(OWN_ADDON).initDevice();
    const { deviceName } = info;
    const config = parseConfig(MODELS[/** @type {keyof typeof MODELS} */ (name)], name);
    const block = given ?? config.context;
    const model = new Decoder(config);
    const optimizer = new optim.AdamW(model.parameters(), { lr: 1e-4 });
    const step = compile((/** @type {import('helios-vk/nn').Tensor} */ ids, /** @type {import('helios-vk/nn').Tensor} */ targets) => {
      const loss = autocast(/** @type {'bf16' | 'f16' | false} */ (precision === 'f32' ? false : precision), () =>
        model.loss(ids, targets, { logitsBytes: logits * 2 ** 20 }),
      );
      loss.backward();
      optimizer.step();
      optimizer.zeroGrad();
      return loss.detach();
    });
    const random = (/** @type {number} */ salt) =>
      tensor(
        Uint32Array.from({ length: batch * block }, (_, i) => (Math.imul(i + salt, 0x9e3779b1) >>> 0) % config.vocabSize),
        { shape: [batch, block] },
      );
    const [ids, targets] = [random(1), random(2)];
    if (profile) {
      // A GPU's clock rises within some steps.
      for (let i = 0; i < 20; i++) step(ids, targets).dispose();
      await step(ids, targets).item();
      const rows = step.profile(ids, targets);
      const total = rows.reduce((sum, { microseconds }) => sum + microseconds, 0);
      console.log(`${name}, ${batch} × ${block}: ${(total / 1000).toFixed(2)} ms of kernels`);
      for (const { operations, origin, dispatches, microseconds } of rows.slice(0, 30)) {
        console.log(`${(microseconds / 1000).toFixed(3).padStart(9)} ms ${String(dispatches).padStart(4)}  ${operations}  ${origin ?? ''}`);
      }
      return;
    }
    /** @type {Promise<number>[]} */
    const losses = [];
    /** @type {number[]} */
    const times = [];
    const WARMUP = 4;
    for (let i = 0, last = performance.now(); i < WARMUP + steps; i++) {
      const loss = step(ids, targets);
      losses.push(loss.item());
      loss.dispose();
      await losses[losses.length - 2];
      const now = performance.now();
      if (i >= WARMUP) times.push(now - last);
      last = now;
    }
    const values = await Promise.all(losses);
    const parameters = model.parameters().reduce((sum, { size }) => sum + size, 0);
    const milliseconds = median(times);
    const result = {
      device: deviceName,
      model: name,
      parameters,
      precision,
      batch,
      block,
      milliseconds,
      tokensPerSecond: (batch * block * 1000) / milliseconds,
      gigabytes: memory().bytes / 1e9,
      losses: [values[0], values.at(-1)],
    };
    if (results !== undefined) {
      const group = `${name}, batch ${batch}, block ${block}, ${precision}`;
      const sides = [{ series: 'helios-vk', ...result }];
      if (pytorch) {
        const theirs = await resultOfPytorch(pytorch, result);
        sides.push({ ...theirs, series: `PyTorch ${theirs.torch}, ${theirs.compiled ? 'compiled' : 'eager'}` });
      }
      writeResults(results, {
        bench: 'decoder',
        title: `Training steps of ${name}, ${steps} timed, median; AdamW, no clipping, ${logits} MiB of logits at once`,
        device: deviceName,
        driver: driverText(info),
        figures: sides.flatMap(({ series, tokensPerSecond, gigabytes }) => [
          { group, name: 'tokens a second', series, unit: 'tok/s', value: tokensPerSecond },
          { group, name: 'memory', series, unit: 'GB', value: gigabytes },
        ]),
      });
    }
    if (json) return console.log(JSON.stringify(result));
    console.log(
      `${name} (${(parameters / 1e6).toFixed(1)}M) on ${deviceName}, ${precision}, ${batch} × ${block}: ${milliseconds.toFixed(1)} ms, ` +
        `${Math.round(result.tokensPerSecond)} tok/s, ${result.gigabytes.toFixed(2)} GB, loss ${values[0].toFixed(3)} to ${values.at(-1)?.toFixed(3)}`,
    );
  },
);
