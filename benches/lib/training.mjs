// What the benches that train have in common: the options of a run's sizes, its configuration, and its data in memory.

import { readFileSync } from 'node:fs';

import { windowsOfStep } from '../../packages/lm/src/data/order.mjs';
import { invalidUtf8 } from '../../packages/lm/src/data/utf8.mjs';
import { loadTokenizer, trainTokenizer } from '../../packages/lm/src/tokenizer/index.mjs';
import { defaultText } from '../../packages/lm/src/train/data.mjs';
import { MAX_LAYERS, MAX_SIZE, PRESET_NAMES, checkRun, configOf, fitSettings } from '../../packages/lm/src/train/settings.mjs';

/** @typedef {import('../../packages/lm/src/train/settings.mjs').RunConfig} RunConfig */

const size = (/** @type {string} */ help, most = MAX_SIZE) => /** @type {const} */ ({ type: 'integer', min: 1, max: most, help });

/** Options of a model, of its batches and of its data. What is left out is the preset's. */
export const TRAINING_OPTIONS = /** @type {const} */ ({
  preset: {
    type: 'string',
    value: 'NAME',
    choices: PRESET_NAMES,
    help: `${PRESET_NAMES.slice(0, 4).join(', ')},\n${PRESET_NAMES.slice(4).join(', ')}\n(default gpt-tiny on a CPU device, else gpt-30m)`,
  },
  layers: size('decoder layers', MAX_LAYERS),
  width: size('channels of the residual stream'),
  heads: size('attention heads'),
  'kv-heads': size('heads of keys and values'),
  hidden: size('channels of the hidden layer of the MLP'),
  block: size('tokens of a sequence, and the context'),
  vocab: size('256: tokens are bytes; more: byte-level BPE is trained on the data'),
  batch: size('sequences of a micro-step'),
  'micro-steps': size('micro-steps of an optimizer step, in each process'),
  lr: { type: 'number', min: 0, help: 'learning rate at the peak' },
  seed: { type: 'integer', min: 0, max: 0xffffffff, help: 'of the weights and of the order of the data' },
  data: { type: 'string', value: 'FILE', path: 'input', help: 'UTF-8 text to train on (default a public-domain novel from npm)' },
});

/** The keys of options whose names differ from those of `Settings` and `Sizes`. */
const KEYS = /** @type {Record<string, string>} */ ({
  'kv-heads': 'kvHeads',
  block: 'blockSize',
  vocab: 'vocabSize',
  batch: 'batchSize',
  'micro-steps': 'gradientAccumulationSteps',
  steps: 'maxSteps',
  lr: 'learningRate',
  'min-lr': 'minLr',
  warmup: 'warmupSteps',
  'weight-decay': 'weightDecay',
  clip: 'maxGradNorm',
  'grad-checkpoint': 'gradCheckpoint',
});

/**
 * The configuration of a run, as `helios-lm train` would choose it.
 * @param {string} preset
 * @param {Record<string, unknown>} values options by name; others than those of sizes and settings are ignored
 * @param {number} [processes] each makes as many micro-steps as the options or the preset say
 * @returns {RunConfig}
 * @throws {RangeError} that names the first value that is out of range
 */
export function configFrom(preset, values, processes = 1) {
  const given = Object.fromEntries(Object.entries(values).map(([name, value]) => [KEYS[name] ?? name, value]));
  const config = configOf(preset, given);
  const { settings } = config;
  settings.gradientAccumulationSteps *= processes;
  fitSettings(settings, given);
  return checkRun(config);
}

/** Settings and sizes in one object, as results have them. @param {RunConfig} config */
export function flatConfig({ model, settings }) {
  const { family, layers, width, heads, kvHeads, hidden, vocabSize } = model;
  return { ...settings, family, layers, width, heads, kvHeads, hidden, vocabSize };
}

/**
 * The ids of a text, by bytes or by a tokenizer that is trained on it.
 * @param {string | undefined} file the novel when left out
 * @param {number} vocabSize
 * @returns {Promise<{ name: string, bytes: number, tokens: Uint32Array }>}
 * @throws {Error} for a text that is not UTF-8
 */
export async function encodeText(file, vocabSize) {
  const [path] = file === undefined ? defaultText() : [file];
  const text = readFileSync(path);
  const invalid = invalidUtf8(text);
  if (invalid !== undefined) throw new Error(`${path}: byte ${invalid} is 0x${text[invalid].toString(16)}, which is not UTF-8`);
  const tokenizer =
    vocabSize === 256
      ? await loadTokenizer({ kind: 'byte' })
      : await trainTokenizer([text], { vocabSize, special: { eos: '<|endoftext|>' } });
  const tokens = tokenizer.encode(text, { addSpecial: false });
  return { name: file ?? 'a novel from npm', bytes: text.length, tokens };
}

/**
 * Ids in memory, as `openDataset` reads those of files.
 * @param {Uint32Array} tokens @param {number} block tokens of a window
 * @returns {import('../../packages/lm/src/train/trainer.mjs').Windows}
 * @throws {RangeError} for fewer tokens than a window has
 */
export function windowsOf(tokens, block) {
  const windows = Math.floor((tokens.length - 1) / block);
  if (windows < 1) throw new RangeError(`the text has ${tokens.length} tokens, and a window ${block + 1}`);
  const window = (/** @type {number} */ index) => tokens.subarray(index * block, (index + 1) * block + 1);
  return {
    windows,
    window,
    batch(which) {
      const ids = new Uint32Array(which.batch * (block + 1));
      windowsOfStep({ windows, ...which }).forEach((index, row) => ids.set(window(index), row * (block + 1)));
      return ids;
    },
  };
}
