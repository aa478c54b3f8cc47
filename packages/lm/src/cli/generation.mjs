// What the commands that generate have in common: their options, and how a model is loaded for them.

import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, resolve } from 'node:path';
import { UsageError } from 'helios-vk/options';

import { DTYPES, NUMBERS } from '../infer/options.mjs';
import { loadModel } from '../infer/model.mjs';
import { optionsOf } from './arguments.mjs';
import { showProgress } from './progress.mjs';

/** @typedef {import('../infer/engine.mjs').EngineOptions} EngineOptions */
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
  'repeat-last-n': { type: 'integer', ...repeatLastN, help: 'tokens that count as recent (default 64)' },
  'presence-penalty': { type: 'number', ...presencePenalty, help: 'subtract this from the logits of recent tokens (default 0)' },
  'frequency-penalty': { type: 'number', ...frequencyPenalty, help: 'subtract this for each time that they occurred (default 0)' },
  seed: { type: 'integer', min: seed.min, max: seed.max, help: 'seed of the sampling; the same seed gives the same text' },
  stop: { type: 'string', multiple: true, help: 'end before this text; may be given several times' },
  'max-tokens': { type: 'integer', min: maxTokens.min, max: maxTokens.max, help: 'tokens to generate' },
  'ignore-eos': { type: 'boolean', help: 'continue after tokens that end a text' },
});

/** The model and how it is loaded. */
export const MODEL_OPTIONS = /** @type {const} */ ({
  model: { type: 'string', value: 'PATH', path: 'input-any', help: "in place of the argument: a model's folder, a run's, or a GGUF file" },
  dtype: {
    type: 'string',
    choices: DTYPES,
    help: 'type of the weights on the device (default: as in the files)',
  },
  adapter: {
    type: 'string',
    value: '[NAME=]FOLDER',
    multiple: true,
    help: "an adapter (LoRA) in PEFT's form, or a run that trained one; serve takes several, each a model by its name",
  },
  merge: { type: 'boolean', help: 'add the adapter to the weights, rather than have it beside them; not for q8_0' },
  context: { type: 'integer', min: 2, max: 2 ** 24, help: "most tokens of a sequence (default: the model's, at most 4,096)" },
});

/** The sampling options that a command line gives, by their names in JavaScript. @param {Record<string, unknown>} values @returns {GenerateOptions} */
export function samplingOf(values) {
  return optionsOf(Object.fromEntries(Object.keys(SAMPLING_OPTIONS).map((name) => [name, values[name]])));
}

/**
 * The adapters that a command line names: folders by name, that of the folder where none is given.
 * @param {readonly string[]} given
 * @returns {Record<string, string>}
 */
export function adaptersOf(given) {
  /** @type {Record<string, string>} */
  const folders = {};
  for (const each of given) {
    const [, name, folder] = (existsSync(each) ? null : /^([^=]+)=(.+)$/.exec(each)) ?? ['', basename(resolve(each)), each];
    if (!existsSync(folder)) throw new UsageError(`--adapter ${each}: no such folder`);
    if (Object.hasOwn(folders, name))
      throw new UsageError(`--adapter ${each}: there is another one named ${name}; name this one otherwise, OTHER=${folder}`);
    folders[name] = folder;
  }
  return folders;
}

/**
 * Loads the model that a command line names.
 * @param {{ model?: string, dtype?: string, context?: number, adapter?: readonly string[], merge?: boolean }} values @param {string[]} inputs
 * @param {{ signal: AbortSignal, slots?: number, quiet: boolean, several?: boolean }} options `quiet`: do not print what was loaded; `several`: of
 *   adapters there may be more than one
 */
export async function modelOf(
  { model: named, dtype, context, adapter = [], merge = false },
  inputs,
  { signal, slots, quiet, several = false },
) {
  const path = named ?? inputs[0];
  if (path === undefined) throw new UsageError('--model PATH is required');
  if (named !== undefined && inputs.length > 0) throw new UsageError('the model is named twice: leave --model out');
  if (!existsSync(path)) throw new UsageError(`${path}: no such file or folder`);
  const folders = adaptersOf(adapter);
  const names = Object.keys(folders);
  if (merge && names.length !== 1) throw new UsageError(`--merge takes one --adapter, got ${names.length}`);
  if (!several && names.length > 1) throw new UsageError(`--adapter: expected one, got ${names.length}`);
  const adapters = names.length > 0 ? folders : undefined;
  const vk = createRequire(import.meta.url)('helios-vk');
  const { deviceName } = vk.initDevice();
  const onProgress = (/** @type {number} */ share) =>
    quiet || showProgress(share === 1 ? '' : `loading ${path}: ${Math.round(100 * share)} %`);
  const model = await loadModel(path, {
    dtype: /** @type {EngineOptions['dtype']} */ (dtype),
    context,
    slots,
    adapters,
    merge,
    signal,
    onProgress,
  });
  const added = names.map((name) => ` + ${name}`).join('');
  if (!quiet) process.stderr.write(`${model.from}${added} · ${deviceName} · ${model.dtype}\n`);
  return {
    model,
    /** The adapter of all answers, where one was named that is not merged. */
    adapter: several ? undefined : model.adapters[0],
    /** Ends the device's work, so that the process can end. */
    async close() {
      await model.dispose();
      vk.destroy();
    },
  };
}
