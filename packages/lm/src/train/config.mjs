/**
 * What describes a GPT, and what describes its training: sizes, presets, checks.
 *
 * The model is a pre-norm decoder. Token and learned position embeddings are added; each layer computes
 * `x += attention(rmsnorm(x))`, then `x += down(silu(gate) * up)` of `rmsnorm(x)`; a last RMSNorm and an
 * untied head follow. There are no biases and no dropout.
 */

import { parameterCount } from './state.mjs';

/**
 * @typedef {'f32' | 'f16' | 'bf16' | 'bf16x3'} Precision
 *   Arithmetic of the matrix products. Master weights, moments and gradients are f32 in all of them.
 *
 * @typedef {object} ModelConfig the network: what its weights mean
 * @property {number} layers number of decoder layers
 * @property {number} width channels of the residual stream
 * @property {number} heads attention heads of `width / heads` channels each
 * @property {number} hidden channels of the SwiGLU's hidden layer
 * @property {number} block context length in tokens
 * @property {number} vocab rows of the embedding and of the head
 *
 * @typedef {object} TrainingConfig how a run trains it
 * @property {number} batch sequences of a micro-step
 * @property {number} microSteps micro-steps whose gradients are summed for one optimizer step
 * @property {Precision} precision arithmetic of the matrix products
 * @property {number} lr peak learning rate
 * @property {number} minLr learning rate at the end of the cosine
 * @property {number} warmup optimizer steps of linear warm-up
 * @property {number} steps optimizer steps of the run (the cosine's length)
 * @property {number} weightDecay decoupled weight decay of the matrices
 * @property {number} beta1 decay of AdamW's first moment
 * @property {number} beta2 decay of AdamW's second moment
 * @property {number} epsilon AdamW's epsilon
 * @property {number} clip largest global norm of the gradient; 0: do not clip
 * @property {number} seed seed of the weights and of the data order
 *
 * @typedef {object} GptConfig
 * @property {ModelConfig} model
 * @property {TrainingConfig} training
 *
 * @typedef {ModelConfig & TrainingConfig} FlatConfig both in one object, as checkpoints and results have them
 */

/** RMSNorm's epsilon. */
export const NORM_EPSILON = 1e-5;

/** Head sizes of the attention kernels. */
const HEAD_SIZES = [32, 64, 96, 128];

/** Largest values that are accepted: far above what fits a device, and low enough that no arithmetic on them loses digits. */
export const [MAX_LAYERS, MAX_SIZE, MAX_STEPS] = [4096, 2 ** 24, 2 ** 31 - 1];

/** Most tokens of one optimizer step. */
const MAX_STEP_TOKENS = 2 ** 28;

const MODEL_KEYS = /** @type {const} */ (['layers', 'width', 'heads', 'hidden', 'block', 'vocab']);

/** Training settings that all presets share. */
const COMMON = {
  precision: /** @type {Precision} */ ('f32'),
  weightDecay: 0.1,
  beta1: 0.9,
  beta2: 0.95,
  epsilon: 1e-8,
  clip: 1,
  seed: 1,
};

/** @param {ModelConfig} model @param {Omit<TrainingConfig, keyof typeof COMMON>} training @returns {Readonly<GptConfig>} */
const preset = (model, training) => Object.freeze({ model: Object.freeze(model), training: Object.freeze({ ...COMMON, ...training }) });

/**
 * - `gpt-tiny`: 143,680 parameters, bytes as tokens; learns on a CPU device in two minutes.
 * - `gpt-30m`: 29.6M parameters.
 * - `gpt-300m`: 301.8M parameters: 21 layers of 12.65M, an embedding and an untied head of 17,408 × 1,024
 *   each (17 · 1,024, "about 16k", in whole matrix tiles) and 512 positions.
 * @type {Readonly<Record<string, Readonly<GptConfig>>>}
 */
export const PRESETS = Object.freeze({
  'gpt-tiny': preset(
    { layers: 2, width: 64, heads: 2, hidden: 192, block: 64, vocab: 256 },
    { batch: 8, microSteps: 1, lr: 3e-3, minLr: 3e-4, warmup: 20, steps: 400 },
  ),
  'gpt-30m': preset(
    { layers: 8, width: 512, heads: 8, hidden: 1376, block: 256, vocab: 4096 },
    { batch: 8, microSteps: 1, lr: 1e-3, minLr: 1e-4, warmup: 50, steps: 1000 },
  ),
  'gpt-300m': preset(
    { layers: 21, width: 1024, heads: 16, hidden: 2752, block: 512, vocab: 17408 },
    { batch: 1, microSteps: 4, lr: 3e-4, minLr: 3e-5, warmup: 50, steps: 200 },
  ),
});

/** Earlier names of the presets, which still work. @type {Readonly<Record<string, string>>} */
export const PRESET_ALIASES = Object.freeze({ tiny: 'gpt-tiny', small: 'gpt-30m', mission: 'gpt-300m' });

/** Every name that `presetOf` takes. */
export const PRESET_NAMES = Object.freeze([...Object.keys(PRESETS), ...Object.keys(PRESET_ALIASES)]);

/** The preset of a name or of an earlier name. @param {string} name one of `PRESET_NAMES` */
export const presetOf = (name) => PRESETS[PRESET_ALIASES[name] ?? name];

/** The model's and the training's values in one object. @param {GptConfig} config @returns {FlatConfig} */
export const flatConfig = ({ model, training }) => ({ ...training, ...model });

/**
 * Splits what `flatConfig` joined. Nothing is checked: see `checkConfig`.
 * @param {FlatConfig} values
 * @returns {GptConfig}
 */
export function splitConfig(values) {
  const training = { ...values };
  const model = /** @type {ModelConfig} */ ({});
  for (const key of MODEL_KEYS) {
    model[key] = values[key];
    delete (/** @type {Partial<FlatConfig>} */ (training)[key]);
  }
  return { model, training };
}

/**
 * A configuration with other values.
 * @param {GptConfig} config
 * @param {Partial<FlatConfig>} values of the model or of the training
 * @returns {GptConfig}
 */
export const withValues = (config, values) => splitConfig({ ...flatConfig(config), ...values });

/** Throws unless a value is an integer in a range. @param {string} key @param {number} value @param {number} least @param {number} most */
function checkInteger(key, value, least, most) {
  if (Number.isInteger(value) && value >= least && value <= most) return;
  const range = most === 0xffffffff ? `${least} to 2^32 - 1` : `${least} to ${most}`;
  throw new RangeError(`${key} must be an integer from ${range}, got ${value}`);
}

/**
 * Checks the configuration of a model.
 * @param {ModelConfig} model
 * @returns {ModelConfig} the same object
 * @throws {RangeError} that names the first value that is out of range
 */
export function checkModel(model) {
  for (const key of MODEL_KEYS) checkInteger(key, model[key], 1, key === 'layers' ? MAX_LAYERS : MAX_SIZE);
  const { width, heads, hidden } = model;
  if (width % heads !== 0) throw new RangeError(`width ${width} is not a multiple of heads ${heads}`);
  if (!HEAD_SIZES.includes(width / heads)) {
    throw new RangeError(`width / heads must be ${HEAD_SIZES.join(', ')}, got ${width / heads}`);
  }
  if (hidden % 4 !== 0) throw new RangeError(`hidden must be a multiple of 4, got ${hidden}`);
  const count = parameterCount(model);
  if (count >= 2 ** 32) throw new RangeError(`the model has ${count} parameters; element indexes are 32 bits wide`);
  return model;
}

/**
 * Checks that a model can be computed in a precision.
 * @param {ModelConfig} model @param {Precision} precision
 * @throws {RangeError}
 */
export function checkPrecision({ vocab, hidden }, precision) {
  if (!['f32', 'f16', 'bf16', 'bf16x3'].includes(precision)) {
    throw new RangeError(`precision must be f32, f16, bf16 or bf16x3, got ${precision}`);
  }
  if (halfOf(precision) && (vocab % 2 || hidden % 2)) {
    throw new RangeError(`vocab and hidden must be even in ${precision}, got ${vocab} and ${hidden}`);
  }
}

/**
 * Checks a configuration as a whole.
 * @template {GptConfig} C
 * @param {C} config
 * @returns {C} the same object
 * @throws {RangeError} that names the first value that is out of range
 */
export function checkConfig(config) {
  const { model, training } = config;
  checkModel(model);
  for (const key of /** @type {const} */ (['batch', 'microSteps', 'steps'])) {
    checkInteger(key, training[key], 1, key === 'steps' ? MAX_STEPS : MAX_SIZE);
  }
  for (const key of /** @type {const} */ (['lr', 'minLr', 'weightDecay', 'epsilon', 'clip'])) {
    const value = training[key];
    if (!Number.isFinite(value) || value < 0) throw new RangeError(`${key} must be a number of at least 0, got ${value}`);
  }
  for (const key of /** @type {const} */ (['beta1', 'beta2'])) {
    const value = training[key];
    if (!(value > 0 && value < 1)) throw new RangeError(`${key} must be in (0, 1), got ${value}`);
  }
  for (const key of /** @type {const} */ (['seed', 'warmup'])) checkInteger(key, training[key], 0, 0xffffffff);
  const { warmup, steps, precision } = training;
  if (warmup >= steps) throw new RangeError(`warmup ${warmup} must be less than steps ${steps}`);
  checkPrecision(model, precision);
  const tokens = tokensPerStep(config);
  if (tokens > MAX_STEP_TOKENS) {
    throw new RangeError(`batch · block · micro-steps are ${tokens} tokens, at most ${MAX_STEP_TOKENS} are possible`);
  }
  return config;
}

/**
 * Floating-point operations of one token's forward and backward pass: 6 for each weight of a product
 * (2 forward, 4 backward; the embeddings are look-ups), and for the two products of causal attention
 * 6 · layers · width · block, half of the unmasked count.
 * @param {ModelConfig} model
 */
export function flopsPerToken({ layers, width, hidden, block, vocab }) {
  const weights = layers * (4 * width * width + 3 * width * hidden) + vocab * width;
  return 6 * weights + 6 * layers * width * block;
}

/** The type of 16-bit operands, for `autocast`; false where operands are f32. @param {Precision} precision */
export const halfOf = (precision) => (precision === 'f16' || precision === 'bf16' ? precision : false);

/** Tokens of one optimizer step. @param {GptConfig} config */
export const tokensPerStep = ({ model, training }) => training.batch * model.block * training.microSteps;

/**
 * Learning rate of optimizer step `step` (0 is the first): linear warm-up that reaches `lr` at step `warmup - 1`, then
 * a half cosine that reaches `minLr` at step `steps - 1`. The device computes the same in f32.
 * @param {Pick<TrainingConfig, 'lr' | 'minLr' | 'warmup' | 'steps'>} training
 * @param {number} step
 */
export function learningRate({ lr, minLr, warmup, steps }, step) {
  if (step + 1 <= warmup) return (lr * (step + 1)) / warmup;
  const done = step + 1 >= steps ? 1 : (step + 1 - warmup) / (steps - warmup);
  return minLr + 0.5 * (lr - minLr) * (1 + Math.cos(Math.PI * done));
}
