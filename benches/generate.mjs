#!/usr/bin/env node
// Writes text with a model that `npm run train` has trained: `npm run generate -- --checkpoint DIR --prompt TEXT`.
//
// The model is loaded as it was saved, weights and moments; each token is a forward pass over the context, without a cache.

import { createRequire } from 'node:module';
import { CHECKPOINT_FILES, loadCheckpoint } from './gpt/checkpoint.mjs';
import { MAX_SIZE } from './gpt/config.mjs';
import { formatCount } from './gpt/progress.mjs';
import { generate } from './gpt/sample.mjs';
import { restoreTokenizer } from './gpt/tokenizer.mjs';
import { createTrainer } from './gpt/trainer.mjs';
import { runMain } from './lib/args.mjs';

const USAGE = 'npm run generate -- --checkpoint FILE|DIR [options]';
const OPTIONS = /** @type {const} */ ({
  checkpoint: {
    type: 'string',
    value: 'FILE|DIR',
    path: 'input-any',
    files: CHECKPOINT_FILES,
    required: true,
    help: 'a checkpoint, or a folder: its latest',
  },
  prompt: { type: 'string', empty: true, default: '', help: 'text to continue' },
  tokens: { type: 'integer', min: 0, max: MAX_SIZE, default: 200, help: 'tokens to generate' },
  temperature: { type: 'number', min: 0, max: 1000, default: 0.8, help: 'divide the logits by this; 0: always the most likely token' },
  'top-k': { type: 'integer', min: 0, max: MAX_SIZE, default: 40, help: 'sample from the N most likely tokens; 0: from all' },
  'top-p': { type: 'number', min: 0, max: 1, default: 1, help: '… and of these from the fewest whose probabilities sum to this' },
  seed: { type: 'integer', min: 0, max: 0xffffffff, default: 1, help: 'seed of the sampling; the same seed gives the same text' },
  precision: {
    type: 'string',
    choices: ['f32', 'f16', 'bf16', 'bf16x3'],
    help: 'arithmetic of matrix products (default as trained, or f32 on a device without matrix units for it)',
  },
  quiet: { type: 'boolean', help: 'print only the text' },
});

/** @param {import('./lib/args.mjs').ValuesOf<typeof OPTIONS>} values */
async function main(values) {
  const { path, step, config: trained, tokenizer: tokenizerState, state } = await loadCheckpoint(values.checkpoint);
  const tokenizer = await restoreTokenizer(tokenizerState);
  const vk = createRequire(import.meta.url)('../index.js');
  const info = vk.initDevice();
  const create = (/** @type {import('./gpt/config.mjs').GptConfig['precision']} */ precision) =>
    createTrainer(vk, { ...trained, precision, batch: 1, microSteps: 1 }, { tokens: new Uint32Array(), state });
  let precision = /** @type {import('./gpt/config.mjs').GptConfig['precision']} */ (values.precision ?? trained.precision);
  let trainer;
  try {
    trainer = create(precision);
  } catch (error) {
    if (values.precision !== undefined || !/has no matrix units/.test(/** @type {Error} */ (error).message)) throw error;
    precision = 'f32';
    trainer = create(precision);
  }
  if (!values.quiet) process.stderr.write(`${path}: step ${formatCount(step)} · ${info.deviceName} · ${precision}\n`);
  const { tokens, temperature, seed, 'top-k': topK, 'top-p': topP } = values;
  for await (const part of generate(trainer, tokenizer, values.prompt, { tokens, temperature, topK, topP, seed })) {
    process.stdout.write(part);
  }
  process.stdout.write('\n');
  trainer.destroy();
  vk.destroy();
}

await runMain(USAGE, OPTIONS, main);
