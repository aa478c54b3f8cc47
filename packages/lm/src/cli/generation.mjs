// What the commands that generate have in common: their options, and how a model is loaded for them.

import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { UsageError } from 'helios-vk/options';

import { NUMBERS } from '../infer/options.mjs';
import { loadModel } from '../infer/model.mjs';
import { showProgress } from './progress.mjs';

/** @typedef {import('../infer/options.mjs').GenerateOptions} GenerateOptions */

const { temperature, topK, topP, minP, repetitionPenalty, repeatLastN, presencePenalty, frequencyPenalty, seed, maxTokens } = NUMBERS;
/** A default, where the model's `generation_config.json` has none. @param {number} value */
const orElse = (value) => `(default: the model's own, else ${value})`;

/** How tokens are chosen. The names are those of `GenerateOptions`. */
export const SAMPLING_OPTIONS = /** @type {const} */ ({
  temperature: { type: 'number', ...temperature, help: `divide logits by this; 0: always take the most likely token ${orElse(0.8)}` },
  'top-k': { type: 'integer', ...topK, help: `sample from the N most likely tokens; 0: from all of them ${orElse(40)}` },
  'top-p': { type: 'number', ...topP, help: `of these, from the fewest whose probabilities sum to this ${orElse(0.95)}` },
  'min-p': { type: 'number', ...minP, help: `leave out tokens less likely than X times the most likely one ${orElse(0.05)}` },
  'repetition-penalty': {
    type: 'number',
    ...repetitionPenalty,
    help: `divide the positive logits of recent tokens, multiply the negative ones ${orElse(1)}`,
  },
  'repeat-last-n': { type: 'integer', ...repeatLastN, help: 'how many tokens are recent (default 64)' },
  'presence-penalty': { type: 'number', ...presencePenalty, help: 'subtract this from the logits of recent tokens (default 0)' },
  'frequency-penalty': { type: 'number', ...frequencyPenalty, help: 'subtract this for each time that they occurred (default 0)' },
  seed: { type: 'integer', min: seed.min, max: seed.max, help: 'of the sampling; the same seed gives the same text' },
  stop: { type: 'string', multiple: true, help: 'end before this text; may be given several times' },
  'max-tokens': { type: 'integer', min: maxTokens.min, max: maxTokens.max, help: 'tokens to generate' },
  'ignore-eos': { type: 'boolean', help: 'go on after the tokens that end a text' },
});

/** The model and how it is loaded. */
export const MODEL_OPTIONS = /** @type {const} */ ({
  model: { type: 'string', value: 'PATH', path: 'input-any', help: "in place of the argument: a model's folder, a run's, or a GGUF file" },
  dtype: {
    type: 'string',
    choices: ['auto', 'f32', 'f16', 'bf16', 'q8_0'],
    help: 'type of the weights on the device (default: as in the files)',
  },
  context: { type: 'integer', min: 2, max: 2 ** 24, help: "most tokens of a sequence (default: the model's, at most 4,096)" },
});

/** The sampling options that a command line gives, by their names in JavaScript. @param {Record<string, any>} values @returns {GenerateOptions} */
export function samplingOf(values) {
  const given = Object.keys(SAMPLING_OPTIONS).filter((name) => values[name] !== undefined && values[name] !== false);
  return Object.fromEntries(given.map((name) => [name.replaceAll(/-(\w)/g, (_, letter) => letter.toUpperCase()), values[name]]));
}

/**
 * Loads the model that a command line names.
 * @param {{ model?: string, dtype?: string, context?: number }} values @param {string[]} inputs
 * @param {{ signal: AbortSignal, slots?: number, quiet: boolean }} options `quiet`: do not print what was loaded
 */
export async function modelOf({ model: named, dtype, context }, inputs, { signal, slots, quiet }) {
  const path = named ?? inputs[0];
  if (path === undefined) throw new UsageError('--model PATH is required');
  if (named !== undefined && inputs.length > 0) throw new UsageError('the model is named twice: leave --model out');
  if (!existsSync(path)) throw new UsageError(`${path}: no such file or folder`);
  const vk = createRequire(import.meta.url)('helios-vk');
  const { deviceName } = vk.initDevice();
  const onProgress = (/** @type {number} */ share) =>
    quiet || showProgress(share === 1 ? '' : `loading ${path}: ${Math.round(100 * share)} %`);
  const model = await loadModel(path, { dtype: /** @type {any} */ (dtype), context, slots, signal, onProgress });
  if (!quiet) process.stderr.write(`${model.from} · ${deviceName} · ${model.dtype}\n`);
  return {
    model,
    /** Ends the device's work, so that the process can end. */
    async close() {
      await model.dispose();
      vk.destroy();
    },
  };
}
