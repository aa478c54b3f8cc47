#!/usr/bin/env node
/**
 * Measures the training speed of helios-lm's compiled decoder in bf16: tokens a second and memory, for models of which other projects publish
 * figures. It trains on random ids from the constructor's weights with AdamW, and keeps two steps in flight.
 */

import { readFile } from 'node:fs/promises';
import { autocast, compile, memory, optim } from 'helios-vk/nn';
import { Decoder, parseConfig } from 'helios-lm';

import { PASSES } from '../nn/compile/passes/index.mjs';
import { OWN_ADDON, driverText, loadAddon } from './lib/addon.mjs';
import { UsageError, runMain } from '../bin/lib/options.mjs';
import { DECODERS as MODELS, printProfile, randomIds, timed } from './lib/decoders.mjs';
import { RESULTS_OPTION, writeResults } from './lib/results.mjs';

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
  without: { type: 'string', value: 'PASSES', help: "passes of `compile` to leave out, with commas, such as 'recompute'" },
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
  async ({ model: name, precision, batch, block: given, steps, logits, without, profile, json, pytorch, results }) => {
    const info = loadAddon(OWN_ADDON).initDevice();
    const { deviceName } = info;
    const config = parseConfig(MODELS[/** @type {keyof typeof MODELS} */ (name)], name);
    const block = given ?? config.context;
    const model = new Decoder(config);
    const optimizer = new optim.AdamW(model.parameters(), { lr: 1e-4 });
    const left = without?.split(',') ?? [];
    const passes = PASSES.filter((pass) => !left.includes(pass));
    if (passes.length + left.length !== PASSES.length)
      throw new UsageError(`--without: the passes are ${PASSES.join(', ')}, got ${without}`);
    const training = (/** @type {import('helios-vk/nn').Tensor} */ ids, /** @type {import('helios-vk/nn').Tensor} */ targets) => {
      const loss = autocast(/** @type {'bf16' | 'f16' | false} */ (precision === 'f32' ? false : precision), () =>
        model.loss(ids, targets, { logitsBytes: logits * 2 ** 20 }),
      );
      loss.backward();
      optimizer.step();
      optimizer.zeroGrad();
      return loss.detach();
    };
    const step = compile(training, { passes });
    const [ids, targets] = [1, 2].map((salt) => randomIds(salt, [batch, block], config.vocabSize));
    if (profile) return printProfile(step, [ids, targets], `${name}, ${batch} × ${block}`);
    const { losses: values, milliseconds } = await timed(() => step(ids, targets), steps);
    const parameters = model.parameters().reduce((sum, { size }) => sum + size, 0);
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
