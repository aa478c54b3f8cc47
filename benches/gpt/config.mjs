/**
 * Sizes, presets and the table of parameters of the GPT that `npm run train` trains.
 *
 * The model is a pre-norm decoder: token and learned position embeddings, then per layer
 * `x += attention(rmsnorm(x))`, `x += down(silu(gate) * up)` of `rmsnorm(x)`, a last RMSNorm and an
 * untied head. No biases.
 *
 * On the host all parameters are ranges of one flat f32 array, and so are their moments: matrices (which decay) first, norm
 * weights (which do not) last.
 */

/**
 * @typedef {'f32' | 'f16' | 'bf16' | 'bf16x3'} Precision
 *   Arithmetic of the matrix products. Master weights, moments and gradients are f32 in all of them.
 *
 * @typedef {object} GptConfig
 * @property {number} layers number of decoder layers
 * @property {number} width channels of the residual stream
 * @property {number} heads attention heads; `width / heads` channels each
 * @property {number} hidden channels of the SwiGLU's hidden layer
 * @property {number} block context length in tokens
 * @property {number} vocab rows of the embedding and of the head
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
 * @property {number} clip largest global gradient norm
 * @property {number} seed seed of the weights and of the data order
 *
 * @typedef {object} Parameter
 * @property {string} name name in checkpoints
 * @property {number[]} shape row-major shape
 * @property {number} offset first element in the flat buffer
 * @property {number} size number of elements
 * @property {boolean} decay whether weight decay applies
 * @property {number} std standard deviation at the start; 0 means that every element is 1
 */

/** RMSNorm's epsilon. */
export const NORM_EPSILON = 1e-5;

/** Head sizes of the attention kernels. */
const HEAD_SIZES = [32, 64, 96, 128];

/** Largest numbers that are looked at; what fits the device is far below. Sizes are checked by them before anything is made. */
export const [MAX_LAYERS, MAX_SIZE, MAX_STEPS] = [4096, 2 ** 24, 2 ** 31 - 1];

/** Most tokens of one optimizer step. */
const MAX_STEP_TOKENS = 2 ** 28;

/** Offsets in the flat buffers are multiples of this many elements (256 bytes in f32). */
const ALIGNMENT = 64;

/** @type {Omit<GptConfig, 'layers' | 'width' | 'heads' | 'hidden' | 'block' | 'vocab' | 'batch' | 'microSteps' | 'lr' | 'warmup' | 'steps'>} */
const COMMON = {
  precision: 'f32',
  minLr: 0,
  weightDecay: 0.1,
  beta1: 0.9,
  beta2: 0.95,
  epsilon: 1e-8,
  clip: 1,
  seed: 1,
};

/**
 * - `gpt-tiny`: 143,680 parameters, bytes as tokens; learns on a CPU device in two minutes.
 * - `gpt-30m`: 29.6M parameters.
 * - `gpt-300m`: 301.8M parameters: 21 layers of 12.65M, an embedding and an untied head of 17,408 × 1,024
 *   each (17 · 1,024, "about 16k", in whole matrix tiles) and 512 positions.
 * @type {Readonly<Record<string, Readonly<GptConfig>>>}
 */
export const PRESETS = Object.freeze({
  'gpt-tiny': Object.freeze({
    ...COMMON,
    layers: 2,
    width: 64,
    heads: 2,
    hidden: 192,
    block: 64,
    vocab: 256,
    batch: 8,
    microSteps: 1,
    lr: 3e-3,
    minLr: 3e-4,
    warmup: 20,
    steps: 400,
  }),
  'gpt-30m': Object.freeze({
    ...COMMON,
    layers: 8,
    width: 512,
    heads: 8,
    hidden: 1376,
    block: 256,
    vocab: 4096,
    batch: 8,
    microSteps: 1,
    lr: 1e-3,
    minLr: 1e-4,
    warmup: 50,
    steps: 1000,
  }),
  'gpt-300m': Object.freeze({
    ...COMMON,
    layers: 21,
    width: 1024,
    heads: 16,
    hidden: 2752,
    block: 512,
    vocab: 17408,
    batch: 1,
    microSteps: 4,
    lr: 3e-4,
    minLr: 3e-5,
    warmup: 50,
    steps: 200,
  }),
});

/** Earlier names of the presets, which still work. @type {Readonly<Record<string, string>>} */
export const PRESET_ALIASES = Object.freeze({ tiny: 'gpt-tiny', small: 'gpt-30m', mission: 'gpt-300m' });

/** Every name that `presetOf` takes. */
export const PRESET_NAMES = Object.freeze([...Object.keys(PRESETS), ...Object.keys(PRESET_ALIASES)]);

/** The preset of a name or of an earlier name. @param {string} name one of `PRESET_NAMES` */
export const presetOf = (name) => PRESETS[PRESET_ALIASES[name] ?? name];

/**
 * Checks a configuration as a whole.
 * @param {GptConfig} config
 * @returns {GptConfig} the same object
 * @throws {RangeError} that names the first value that is out of range
 */
export function checkConfig(config) {
  /** @type {(keyof GptConfig)[]} */
  const counts = ['layers', 'width', 'heads', 'hidden', 'block', 'vocab', 'batch', 'microSteps', 'steps'];
  for (const key of counts) {
    const value = /** @type {number} */ (config[key]);
    const most = key === 'layers' ? MAX_LAYERS : key === 'steps' ? MAX_STEPS : MAX_SIZE;
    if (!Number.isInteger(value) || value < 1 || value > most)
      throw new RangeError(`${key} must be an integer from 1 to ${most}, got ${value}`);
  }
  /** @type {(keyof GptConfig)[]} */
  const reals = ['lr', 'minLr', 'weightDecay', 'epsilon', 'clip'];
  for (const key of reals) {
    const value = /** @type {number} */ (config[key]);
    if (!Number.isFinite(value) || value < 0) throw new RangeError(`${key} must be a number of at least 0, got ${value}`);
  }
  for (const key of /** @type {const} */ (['beta1', 'beta2'])) {
    const value = config[key];
    if (!(value > 0 && value < 1)) throw new RangeError(`${key} must be in (0, 1), got ${value}`);
  }
  for (const key of /** @type {const} */ (['seed', 'warmup'])) {
    const value = config[key];
    if (!Number.isInteger(value) || value < 0 || value > 0xffffffff)
      throw new RangeError(`${key} must be an integer from 0 to 2^32 - 1, got ${value}`);
  }
  if (config.warmup >= config.steps) throw new RangeError(`warmup ${config.warmup} must be less than steps ${config.steps}`);
  if (config.width % config.heads !== 0) throw new RangeError(`width ${config.width} is not a multiple of heads ${config.heads}`);
  if (!HEAD_SIZES.includes(config.width / config.heads)) {
    throw new RangeError(`width / heads must be ${HEAD_SIZES.join(', ')}, got ${config.width / config.heads}`);
  }
  if (config.hidden % 4 !== 0) throw new RangeError(`hidden must be a multiple of 4, got ${config.hidden}`);
  if (!['f32', 'f16', 'bf16', 'bf16x3'].includes(config.precision)) {
    throw new RangeError(`precision must be f32, f16, bf16 or bf16x3, got ${config.precision}`);
  }
  if ((config.precision === 'f16' || config.precision === 'bf16') && (config.vocab % 2 || config.hidden % 2)) {
    throw new RangeError(`vocab and hidden must be even in ${config.precision}, got ${config.vocab} and ${config.hidden}`);
  }
  if (tokensPerStep(config) > MAX_STEP_TOKENS) {
    throw new RangeError(`batch · block · micro-steps are ${tokensPerStep(config)} tokens, at most ${MAX_STEP_TOKENS} are possible`);
  }
  const { total } = parameterTable(config);
  if (total >= 2 ** 32) throw new RangeError(`the model has ${total} parameters; element indexes are 32 bits wide`);
  return config;
}

/**
 * The parameters of the model and where each lies in the flat buffers.
 *
 * Weights of products are `[outputs, inputs]`. Matrices start from a normal distribution of standard
 * deviation 0.02, those that write into the residual stream from 0.02 / sqrt(2 · layers) (GPT-2).
 * @param {Pick<GptConfig, 'layers' | 'width' | 'hidden' | 'block' | 'vocab'>} config
 * @returns {{parameters: Parameter[], byName: Map<string, Parameter>, total: number, decayed: number, count: number}}
 *   `total` elements of the flat buffer with padding, of which the first `decayed` decay; `count`
 *   parameters without padding
 */
export function parameterTable({ layers, width, hidden, block, vocab }) {
  const std = 0.02;
  const residual = std / Math.sqrt(2 * layers);
  /** @type {[string, number[], number][]} */
  const matrices = [
    ['token_embedding.weight', [vocab, width], std],
    ['position_embedding.weight', [block, width], std],
  ];
  /** @type {[string, number[], number][]} */
  const norms = [];
  for (let i = 0; i < layers; i++) {
    matrices.push(
      [`layers.${i}.attention.qkv.weight`, [3 * width, width], std],
      [`layers.${i}.attention.output.weight`, [width, width], residual],
      [`layers.${i}.mlp.gate_up.weight`, [2 * hidden, width], std],
      [`layers.${i}.mlp.down.weight`, [width, hidden], residual],
    );
    norms.push([`layers.${i}.attention_norm.weight`, [width], 0], [`layers.${i}.mlp_norm.weight`, [width], 0]);
  }
  matrices.push(['head.weight', [vocab, width], std]);
  norms.push(['norm.weight', [width], 0]);

  let offset = 0;
  let count = 0;
  /** @type {Parameter[]} */
  const parameters = [];
  /** @param {[string, number[], number][]} list @param {boolean} decay */
  const place = (list, decay) => {
    for (const [name, shape, deviation] of list) {
      const size = shape.reduce((a, b) => a * b, 1);
      parameters.push({ name, shape, offset, size, decay, std: deviation });
      offset = Math.ceil((offset + size) / ALIGNMENT) * ALIGNMENT;
      count += size;
    }
  };
  place(matrices, true);
  const decayed = offset;
  place(norms, false);
  return { parameters, byName: new Map(parameters.map((p) => [p.name, p])), total: offset, decayed, count };
}

/**
 * Floating-point operations of one token's forward and backward pass: 6 for each weight of a product
 * (2 forward, 4 backward; the embeddings are look-ups), and for the two products of causal attention
 * 6 · layers · width · block, half of the unmasked count.
 * @param {GptConfig} config
 */
export function flopsPerToken(config) {
  const { layers, width, hidden, block, vocab } = config;
  const weights = layers * (4 * width * width + 3 * width * hidden) + vocab * width;
  return 6 * weights + 6 * layers * width * block;
}

/** The type of operands in 16 bits, for `autocast`; false in f32. @param {Pick<GptConfig, 'precision'>} config */
export const halfOf = ({ precision }) => (precision === 'f16' || precision === 'bf16' ? precision : false);

/** Tokens of one optimizer step. @param {GptConfig} config */
export function tokensPerStep(config) {
  return config.batch * config.block * config.microSteps;
}

/**
 * Learning rate of optimizer step `step` (0 is the first): linear warm-up that reaches `lr` at step `warmup - 1`, then
 * a half cosine that reaches `minLr` at step `steps - 1`. The device computes the same in f32.
 * @param {GptConfig} config
 * @param {number} step
 */
export function learningRate({ lr, minLr, warmup, steps }, step) {
  if (step + 1 <= warmup) return (lr * (step + 1)) / warmup;
  const done = step + 1 >= steps ? 1 : (step + 1 - warmup) / (steps - warmup);
  return minLr + 0.5 * (lr - minLr) * (1 + Math.cos(Math.PI * done));
}
