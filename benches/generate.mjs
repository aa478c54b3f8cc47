#!/usr/bin/env node
// Generates text with a model that `npm run train` has trained: `npm run generate -- --checkpoint DIR --prompt TEXT`.
//
// Loads the weights of a checkpoint. There is no cache of keys and values: each token takes a forward pass over the whole context.

import { createRequire } from 'node:module';
import { CHECKPOINT_FILES, loadCheckpoint } from '../packages/lm/src/train/checkpoint.mjs';
import { MAX_SIZE } from '../packages/lm/src/train/config.mjs';
import { loadGenerator } from '../packages/lm/src/train/generator.mjs';
import { formatCount } from '../packages/lm/src/train/progress.mjs';
import { generate } from '../packages/lm/src/train/sample.mjs';
import { restoreTokenizer } from '../packages/lm/src/train/tokenizer.mjs';
import { runMain } from './lib/args.mjs';

const USAGE = 'npm run generate -- --checkpoint FILE|DIR [options]';
const OPTIONS = /** @type {const} */ ({
  checkpoint: {
    type: 'string',
    value: 'FILE|DIR',
    path: 'input-any',
    files: CHECKPOINT_FILES,
    required: true,
    help: 'a checkpoint, or a folder, whose latest checkpoint is used',
  },
  prompt: { type: 'string', empty: true, default: '', help: 'text to continue' },
  tokens: { type: 'integer', min: 0, max: MAX_SIZE, default: 200, help: 'tokens to generate' },
  temperature: { type: 'number', min: 0, max: 1000, default: 0.8, help: 'divide logits by this; 0: always take the most likely token' },
  'top-k': { type: 'integer', min: 0, max: MAX_SIZE, default: 40, help: 'sample from the N most likely tokens; 0: from all of them' },
  'top-p': { type: 'number', min: 0, max: 1, default: 1, help: 'of these, sample from the fewest whose probabilities sum to this' },
  seed: { type: 'integer', min: 0, max: 0xffffffff, default: 1, help: 'seed of the sampling; the same seed gives the same text' },
  precision: {
    type: 'string',
    choices: ['f32', 'f16', 'bf16', 'bf16x3'],
    help: 'arithmetic of matrix products (default: as in training, or f32 where the device\nhas no matrix units for that)',
  },
  quiet: { type: 'boolean', help: 'print only the text' },
});

/** @typedef {import('../packages/lm/src/train/config.mjs').Precision} Precision */

/** @param {import('./lib/args.mjs').ValuesOf<typeof OPTIONS>} values */
async function main(values) {
  const { path, step, config, tokenizer: tokenizerState, state } = await loadCheckpoint(values.checkpoint, { moments: false });
  const tokenizer = await restoreTokenizer(tokenizerState);
  const vk = createRequire(import.meta.url)('../index.js');
  const info = vk.initDevice();
  const load = (/** @type {Precision} */ precision) => loadGenerator(vk, config.model, state.weights, precision);
  let precision = /** @type {Precision} */ (values.precision ?? config.training.precision);
  let loaded;
  try {
    loaded = load(precision);
  } catch (error) {
    if (values.precision !== undefined || /** @type {any} */ (error).code !== 'NO_MATRIX_UNITS') throw error;
    precision = 'f32';
    loaded = load(precision);
  }
  if (!values.quiet) process.stderr.write(`${path}: step ${formatCount(step)} · ${info.deviceName} · ${precision}\n`);
  const { tokens, temperature, seed, 'top-k': topK, 'top-p': topP } = values;
  for await (const part of generate(loaded.generator, tokenizer, values.prompt, { tokens, temperature, topK, topP, seed })) {
    process.stdout.write(part);
  }
  process.stdout.write('\n');
  loaded.destroy();
  vk.destroy();
}

await runMain(USAGE, OPTIONS, main);
