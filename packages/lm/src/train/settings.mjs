// What a training run is: the model's preset, the settings of its steps, and their checks. Nothing here needs a device.

import { parseConfig } from '../config.mjs';
import { parameterShapes, sizeOf } from '../model/parts.mjs';

/** @typedef {import('../config.mjs').ModelConfig} ModelConfig */

/**
 * Arithmetic of the matrix products. Weights, moments and gradients are f32 in all of them.
 * @typedef {'f32' | 'f16' | 'bf16' | 'bf16x3'} Precision
 */

/**
 * How a run trains. A step makes `batchSize` · `gradientAccumulationSteps` sequences of `blockSize` tokens, in all processes together.
 * @typedef {object} Settings
 * @property {number} batchSize sequences of a micro-step
 * @property {number} gradientAccumulationSteps micro-steps whose gradients are summed for one optimizer step
 * @property {number} blockSize tokens of a sequence, at most the model's context
 * @property {number} maxSteps optimizer steps of the run, and the length of the schedule
 * @property {Precision} precision arithmetic of the matrix products
 * @property {number} learningRate at the peak
 * @property {Scheduler} lrScheduler how the rate falls after the warm-up, see `learningRateAt`
 * @property {number} warmupSteps steps of linear warm-up
 * @property {number} minLr learning rate at the end
 * @property {number} weightDecay decoupled weight decay of the matrices; vectors do not decay
 * @property {number} beta1 decay of AdamW's first moment
 * @property {number} beta2 decay of AdamW's second moment
 * @property {number} epsilon AdamW's epsilon
 * @property {number} maxGradNorm largest global norm of the gradient; larger ones are scaled down; 0: no clipping
 * @property {number} seed of the weights and of the order of the data
 * @property {boolean} gradCheckpoint whether the backward pass computes each layer again instead of keeping what it needs
 *
 * @typedef {'cosine' | 'linear' | 'constant' | 'wsd'} Scheduler
 *
 * @typedef {{ model: ModelConfig, settings: Settings }} RunConfig
 */

export const SCHEDULERS = /** @type {const} */ (['cosine', 'linear', 'constant', 'wsd']);
export const PRECISIONS = /** @type {const} */ (['f32', 'f16', 'bf16', 'bf16x3']);

/** Largest values that are accepted: far above what fits a device, and low enough that no arithmetic on them loses digits. */
export const [MAX_LAYERS, MAX_SIZE, MAX_STEPS] = [4096, 2 ** 24, 2 ** 31 - 1];

/** Most tokens of one optimizer step. */
const MAX_STEP_TOKENS = 2 ** 28;

/** The share of a run over which the rate of 'wsd' falls (Hägele et al. 2024). */
const DECAY_SHARE = 0.2;

/** Settings that all presets share. */
const COMMON = {
  gradientAccumulationSteps: 1,
  precision: /** @type {Precision} */ ('f32'),
  lrScheduler: /** @type {Scheduler} */ ('cosine'),
  weightDecay: 0.1,
  beta1: 0.9,
  beta2: 0.95,
  epsilon: 1e-8,
  maxGradNorm: 1,
  seed: 1,
  gradCheckpoint: false,
};

/**
 * The sizes of a model, by the names of the command line.
 * @typedef {object} Sizes
 * @property {number} layers
 * @property {number} width
 * @property {number} heads
 * @property {number} [kvHeads] heads of keys and values; `heads` when left out
 * @property {number} hidden
 * @property {number} blockSize the context
 * @property {number} vocabSize
 * @property {boolean} [tied] whether head and embedding share a matrix; false when left out
 */

/**
 * @param {'helios-gpt' | 'llama' | 'gpt2'} family @param {Sizes} sizes
 * @param {Omit<Settings, keyof typeof COMMON | 'blockSize'> & Partial<typeof COMMON>} settings
 */
const preset = (family, sizes, settings) =>
  Object.freeze({ family, sizes, settings: { ...COMMON, ...settings, blockSize: sizes.blockSize } });

/**
 * Models to begin with. `gpt-…` are the models of this project's benchmarks (learned positions; nothing but this package reads them),
 * `llama-…` can be exported to every program that knows Llama, and `gpt2-124m` is GPT-2.
 * - `llama-tiny`: 172,352 parameters; `llama-30m`: 27.4M; `llama-1.1b`: 1,107M; `llama-7b`: 6,738M, for several devices with `zero: 3`.
 * - `gpt-tiny`: 143,680 parameters; learns on a CPU device in two minutes.
 * - `gpt-30m`: 29.6M parameters.
 * - `gpt-300m`: 301.8M parameters: 21 layers of 12.65M, an embedding and an untied head of 17,408 × 1,024 each (17 · 1,024, in whole matrix
 *   tiles) and 512 positions.
 */
export const PRESETS = Object.freeze({
  'llama-tiny': preset(
    'llama',
    { layers: 2, width: 64, heads: 2, hidden: 192, blockSize: 64, vocabSize: 1024, tied: true },
    { batchSize: 8, learningRate: 3e-3, minLr: 3e-4, warmupSteps: 20, maxSteps: 400 },
  ),
  'llama-30m': preset(
    'llama',
    { layers: 8, width: 512, heads: 8, kvHeads: 4, hidden: 1376, blockSize: 256, vocabSize: 4096 },
    { batchSize: 8, learningRate: 1e-3, minLr: 1e-4, warmupSteps: 50, maxSteps: 1000 },
  ),
  'llama-1.1b': preset(
    'llama',
    { layers: 16, width: 2048, heads: 32, kvHeads: 8, hidden: 8192, blockSize: 2048, vocabSize: 32768 },
    { batchSize: 4, learningRate: 3e-4, minLr: 3e-5, warmupSteps: 200, maxSteps: 2000, precision: 'bf16' },
  ),
  'llama-7b': preset(
    'llama',
    { layers: 32, width: 4096, heads: 32, hidden: 11008, blockSize: 2048, vocabSize: 32000 },
    { batchSize: 4, learningRate: 3e-4, minLr: 3e-5, warmupSteps: 200, maxSteps: 2000, precision: 'bf16', gradCheckpoint: true },
  ),
  'gpt2-124m': preset(
    'gpt2',
    { layers: 12, width: 768, heads: 12, hidden: 3072, blockSize: 1024, vocabSize: 50304, tied: true },
    { batchSize: 16, learningRate: 6e-4, minLr: 6e-5, warmupSteps: 200, maxSteps: 2000, precision: 'bf16' },
  ),
  'gpt-tiny': preset(
    'helios-gpt',
    { layers: 2, width: 64, heads: 2, hidden: 192, blockSize: 64, vocabSize: 256 },
    { batchSize: 8, learningRate: 3e-3, minLr: 3e-4, warmupSteps: 20, maxSteps: 400 },
  ),
  'gpt-30m': preset(
    'helios-gpt',
    { layers: 8, width: 512, heads: 8, hidden: 1376, blockSize: 256, vocabSize: 4096 },
    { batchSize: 8, learningRate: 1e-3, minLr: 1e-4, warmupSteps: 50, maxSteps: 1000 },
  ),
  'gpt-300m': preset(
    'helios-gpt',
    { layers: 21, width: 1024, heads: 16, hidden: 2752, blockSize: 512, vocabSize: 17408 },
    { batchSize: 1, gradientAccumulationSteps: 4, learningRate: 3e-4, minLr: 3e-5, warmupSteps: 50, maxSteps: 200 },
  ),
});

/** Earlier names of the presets, which still work. @type {Readonly<Record<string, keyof typeof PRESETS>>} */
export const PRESET_ALIASES = Object.freeze({ tiny: 'gpt-tiny', small: 'gpt-30m', mission: 'gpt-300m', 'llama-1.2b': 'llama-1.1b' });

/** Every name that `presetOf` takes. */
export const PRESET_NAMES = Object.freeze([...Object.keys(PRESETS), ...Object.keys(PRESET_ALIASES)]);

/** The preset of a name or of an earlier name. @param {string} name one of `PRESET_NAMES` */
export const presetOf = (name) => PRESETS[PRESET_ALIASES[name] ?? /** @type {keyof typeof PRESETS} */ (name)];

/**
 * A run's configuration: a preset with other values.
 * @param {string} name of the preset
 * @param {Partial<Settings & Sizes>} [values] that replace the preset's
 * @returns {RunConfig} unchecked: see `checkRun`
 */
export function configOf(name, values = {}) {
  const { family, sizes, settings } = presetOf(name);
  return {
    model: modelOf(family, /** @type {Sizes} */ (withValues(sizes, values))),
    settings: /** @type {Settings} */ (withValues({ ...settings }, values)),
  };
}

/**
 * Fits settings that were not given to those that were: a preset's warm-up belongs to its own number of steps, and its rate at the end to its
 * own peak.
 * @param {Settings} settings changed in place @param {Partial<Settings>} given
 */
export function fitSettings(settings, given) {
  const { warmupSteps, maxSteps, minLr, learningRate } = settings;
  if (given.warmupSteps === undefined && warmupSteps >= maxSteps) settings.warmupSteps = Math.floor(maxSteps / 10);
  if (given.minLr === undefined) settings.minLr = Math.min(minLr, learningRate);
}

/** Those of the values that an object has keys for, in its place. @template {object} T @param {T} base @param {Readonly<Record<string, unknown>>} values */
export function withValues(base, values) {
  const known = 'layers' in base ? [...Object.keys(base), 'kvHeads', 'tied'] : Object.keys(base);
  return { ...base, ...Object.fromEntries(Object.entries(values).filter(([key, value]) => known.includes(key) && value !== undefined)) };
}

/**
 * The configuration of a model of a family and sizes.
 * @param {'helios-gpt' | 'llama' | 'gpt2'} family @param {Sizes} sizes
 * @returns {ModelConfig}
 * @throws {RangeError} that names the first size that is out of range
 */
export function modelOf(family, { layers, width, heads, kvHeads = heads, hidden, blockSize, vocabSize, tied = false }) {
  checkInteger('layers', layers, 1, MAX_LAYERS);
  for (const [name, value] of Object.entries({ width, heads, kvHeads, hidden, blockSize, vocabSize }))
    checkInteger(name, value, 1, MAX_SIZE);
  if (width % heads !== 0) throw new RangeError(`width ${width} is not a multiple of heads ${heads}`);
  if ((width / heads) % 2 !== 0) throw new RangeError(`width / heads must be even, got ${width / heads}`);
  if (heads % kvHeads !== 0) throw new RangeError(`heads ${heads} is not a multiple of kvHeads ${kvHeads}`);
  if (hidden % 4 !== 0) throw new RangeError(`hidden must be a multiple of 4, got ${hidden}`);
  const json =
    family === 'gpt2'
      ? { n_embd: width, n_head: heads, n_layer: layers, n_inner: hidden, n_positions: blockSize, tie_word_embeddings: tied }
      : {
          hidden_size: width,
          num_attention_heads: heads,
          num_key_value_heads: kvHeads,
          num_hidden_layers: layers,
          intermediate_size: hidden,
          max_position_embeddings: blockSize,
          rms_norm_eps: 1e-5,
          tie_word_embeddings: tied,
        };
  return parseConfig({ model_type: family, vocab_size: vocabSize, ...json }, 'the sizes given');
}

/** Throws unless a value is an integer in a range. @param {string} key @param {number} value @param {number} least @param {number} most */
function checkInteger(key, value, least, most) {
  if (Number.isInteger(value) && value >= least && value <= most) return;
  const range = most === 0xffffffff ? `${least} to 2^32 - 1` : `${least} to ${most}`;
  throw new RangeError(`${key} must be an integer from ${range}, got ${value}`);
}

/**
 * Checks a configuration as a whole.
 * @template {RunConfig} C
 * @param {C} config
 * @returns {C} the same object
 * @throws {RangeError} that names the first value that is out of range
 */
export function checkRun(config) {
  const { model, settings } = config;
  for (const key of /** @type {const} */ (['batchSize', 'gradientAccumulationSteps', 'blockSize', 'maxSteps'])) {
    checkInteger(key, settings[key], 1, key === 'maxSteps' ? MAX_STEPS : MAX_SIZE);
  }
  for (const key of /** @type {const} */ (['learningRate', 'minLr', 'weightDecay', 'epsilon', 'maxGradNorm'])) {
    const value = settings[key];
    if (!Number.isFinite(value) || value < 0) throw new RangeError(`${key} must be a number of at least 0, got ${value}`);
  }
  for (const key of /** @type {const} */ (['beta1', 'beta2'])) {
    const value = settings[key];
    if (!(Number.isFinite(value) && value > 0 && value < 1)) throw new RangeError(`${key} must be in (0, 1), got ${value}`);
  }
  for (const key of /** @type {const} */ (['seed', 'warmupSteps'])) checkInteger(key, settings[key], 0, 0xffffffff);
  for (const [name, shape] of Object.entries(parameterShapes(model))) {
    if (sizeOf(shape) >= 2 ** 32) throw new RangeError(`${name} has ${sizeOf(shape)} elements; element indexes are 32 bits wide`);
  }
  const { warmupSteps, maxSteps, precision, blockSize, lrScheduler, learningRate, minLr } = settings;
  if (!SCHEDULERS.includes(lrScheduler)) throw new RangeError(`lrScheduler must be ${SCHEDULERS.join(', ')}, got ${lrScheduler}`);
  if (warmupSteps >= maxSteps) throw new RangeError(`warmupSteps ${warmupSteps} must be less than maxSteps ${maxSteps}`);
  if (minLr > learningRate) throw new RangeError(`minLr ${minLr} must be at most learningRate, ${learningRate}`);
  if (blockSize > model.context) throw new RangeError(`blockSize ${blockSize} is more than the model's context, ${model.context}`);
  if (!PRECISIONS.includes(precision)) throw new RangeError(`precision must be ${PRECISIONS.join(', ')}, got ${precision}`);
  if (halfOf(precision) && (model.vocabSize % 2 || model.hidden % 2)) {
    throw new RangeError(`vocabSize and hidden must be even in ${precision}, got ${model.vocabSize} and ${model.hidden}`);
  }
  const tokens = tokensPerStep(settings);
  if (tokens > MAX_STEP_TOKENS) throw new RangeError(`a step of ${tokens} tokens: at most ${MAX_STEP_TOKENS} are possible`);
  return config;
}

/** The type of 16-bit operands, for `autocast`; false where operands are f32. @param {Precision} precision */
export const halfOf = (precision) => (precision === 'f16' || precision === 'bf16' ? precision : false);

/** Tokens of one optimizer step, in all processes together. @param {Settings} settings */
export const tokensPerStep = ({ batchSize, gradientAccumulationSteps, blockSize }) => batchSize * gradientAccumulationSteps * blockSize;

/**
 * Floating-point operations of one token's forward and backward pass: 6 for each weight of a product (2 forward, 4 backward; embeddings are
 * look-ups), and for the two products of causal attention 6 · layers · heads · headSize · block, half of the unmasked count.
 * @param {ModelConfig} model @param {number} block tokens of a sequence
 */
export function flopsPerToken({ layers, width, heads, kvHeads, headSize, hidden, vocabSize, mlp }, block) {
  const attention = width * headSize * (2 * heads + 2 * kvHeads);
  const weights = layers * (attention + (mlp === 'swiglu' ? 3 : 2) * width * hidden) + vocabSize * width;
  return 6 * weights + 6 * layers * heads * headSize * block;
}

/**
 * Learning rate of optimizer step `step` (0 is the first): linear warm-up that reaches `learningRate` at step `warmupSteps - 1`; then, up to
 * step `maxSteps - 1`, which has `minLr`: `cosine`, half a cosine; `linear`, a line; `wsd`, constant and a line over the last fifth of the
 * run. `constant` stays at `learningRate`.
 * @param {Pick<Settings, 'learningRate' | 'minLr' | 'warmupSteps' | 'maxSteps' | 'lrScheduler'>} settings
 * @param {number} step
 */
export function learningRateAt({ learningRate, minLr, warmupSteps, maxSteps, lrScheduler }, step) {
  if (step + 1 <= warmupSteps) return (learningRate * (step + 1)) / warmupSteps;
  if (lrScheduler === 'constant') return learningRate;
  const from = lrScheduler === 'wsd' ? Math.max(warmupSteps, Math.floor((1 - DECAY_SHARE) * maxSteps)) : warmupSteps;
  const done = step + 1 >= maxSteps ? 1 : Math.max(0, (step + 1 - from) / (maxSteps - from));
  return minLr + (learningRate - minLr) * (lrScheduler === 'cosine' ? 0.5 * (1 + Math.cos(Math.PI * done)) : 1 - done);
}
