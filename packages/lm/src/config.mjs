// Converts Hugging Face's `config.json` (as transformers 4 and 5 write it) to the configuration of one decoder, and back.

import { existsSync } from 'node:fs';
import { join } from 'node:path';

import { readJson } from './json.mjs';

/** @typedef {import('./json.mjs').Json} Json */

/**
 * The architecture of a decoder. Sizes are in elements.
 * @typedef {object} ModelConfig
 * @property {Family} family
 * @property {number} vocabSize number of token ids
 * @property {number} width size of the residual stream
 * @property {number} layers
 * @property {number} heads number of query heads
 * @property {number} kvHeads number of key and value heads, a divisor of `heads`
 * @property {number} headSize
 * @property {number} hidden size between the layers of the MLP
 * @property {number} context the most tokens in a sequence
 * @property {'rms' | 'layer'} norm RMSNorm or LayerNorm
 * @property {number} eps of the norms
 * @property {'pre' | 'post'} placement whether the input of each sublayer is normalized, or its output
 * @property {'none' | 'head' | 'row'} qkNorm whether queries and keys are normalized: not, each head by itself, or all heads together
 * @property {boolean} qkvBias
 * @property {boolean} outBias whether the output projection of attention has a bias
 * @property {boolean} mlpBias
 * @property {'swiglu' | 'gelu'} mlp
 * @property {'rope' | 'learned'} position rotary or learned position embeddings
 * @property {Rope} [rope] with rotary positions
 * @property {boolean[]} ropeLayers for each layer, whether it applies rotary positions
 * @property {(number | null)[]} windows for each layer, the most keys that a query attends to; null for no limit
 * @property {boolean} tied whether the output head shares the embedding's matrix
 * @property {number | null} bos id of the token that begins a text
 * @property {number[]} eos ids of the tokens that end a text
 * @property {number | null} pad id of the padding token
 *
 * @typedef {'llama' | 'mistral' | 'qwen2' | 'qwen3' | 'olmo2' | 'smollm3' | 'gpt2' | 'helios-gpt'} Family `helios-gpt`, which only this project
 *   has: RMSNorm, learned positions, SwiGLU and no biases
 *
 * Rotary positions: the base of the frequencies, and how they are scaled beyond the context of the first training.
 * @typedef {{ base: number, type: 'default' } | { base: number, type: 'linear', factor: number } |
 *   { base: number, type: 'llama3', factor: number, lowFactor: number, highFactor: number, original: number }} Rope
 */

/** The model class in transformers, by family. */
const CLASSES = {
  llama: 'LlamaForCausalLM',
  mistral: 'MistralForCausalLM',
  qwen2: 'Qwen2ForCausalLM',
  qwen3: 'Qwen3ForCausalLM',
  olmo2: 'Olmo2ForCausalLM',
  smollm3: 'SmolLM3ForCausalLM',
  gpt2: 'GPT2LMHeadModel',
  'helios-gpt': 'HeliosGptForCausalLM',
};
const FAMILIES = /** @type {Family[]} */ (Object.keys(CLASSES));

/**
 * Reads `config.json` of a model's folder, and the ids of special tokens in `generation_config.json` if `config.json` has none.
 * @param {string} folder
 * @returns {ModelConfig}
 * @throws {Error} that names the file and the key, its value and what was expected
 */
export function readConfig(folder) {
  const path = join(folder, 'config.json');
  const config = parseConfig(readObject(path), path);
  const generation = join(folder, 'generation_config.json');
  if (!existsSync(generation)) return config;
  // Newer versions of transformers write the ids of special tokens only there.
  const ids = readObject(generation);
  return { ...config, bos: config.bos ?? ids.bos_token_id ?? null, eos: config.eos.length > 0 ? config.eos : idsOf(ids.eos_token_id) };
}

/** Reads a file that holds an object. @param {string} path @returns {Record<string, Json>} */
function readObject(path) {
  const value = readJson(path);
  if (value === null || typeof value !== 'object' || Array.isArray(value)) throw new Error(`${path} holds no object`);
  return value;
}

/** `eos_token_id` as a list: it may be missing, an id or a list. @param {unknown} value @returns {number[]} */
const idsOf = (value) => (value === null || value === undefined ? [] : /** @type {number[]} */ ([value]).flat());

/**
 * Converts the contents of a `config.json`.
 * @param {Record<string, Json>} json the parsed file @param {string} path for errors
 * @returns {ModelConfig}
 * @throws {Error} that names the file and the key, for an unknown family, a missing size, or a variant that is not implemented
 */
export function parseConfig(json, path) {
  const { model_type: family } = json;
  if (!FAMILIES.includes(family)) throw unknown(path, 'model_type', family, FAMILIES);
  const read = reader(json, path);
  return family === 'gpt2' ? gpt2Config(json, read) : ropeConfig(family, json, read, path);
}

/**
 * The error for a value that is not one of the known ones.
 * @param {string} path @param {string} key @param {unknown} value @param {readonly unknown[]} known
 */
const unknown = (path, key, value, known) =>
  new Error(`${path}: "${key}" is ${JSON.stringify(value)}; known: ${known.map((each) => JSON.stringify(each)).join(', ')}`);

/** Functions that read a key and check its value. `otherwise` replaces a missing or null value. @param {Record<string, Json>} json @param {string} path */
function reader(json, path) {
  const fail = (/** @type {string} */ key, /** @type {string} */ expected) => {
    const value = json[key];
    return new Error(`${path}: "${key}" is ${value === undefined ? 'missing' : JSON.stringify(value)}, expected ${expected}`);
  };
  return {
    fail,
    /** @param {string} key @param {number} [otherwise] @returns {number} */
    count(key, otherwise) {
      const value = json[key] ?? otherwise;
      if (!Number.isInteger(value) || value < 1) throw fail(key, 'an integer of at least 1');
      return value;
    },
    /** @param {string} key @param {number} otherwise @returns {number} */
    positive(key, otherwise) {
      const value = json[key] ?? otherwise;
      if (typeof value !== 'number' || !(value > 0)) throw fail(key, 'a number above 0');
      return value;
    },
    /** @param {string} key @param {boolean} otherwise @returns {boolean} */
    flag(key, otherwise) {
      const value = json[key] ?? otherwise;
      if (typeof value !== 'boolean') throw fail(key, 'true or false');
      return value;
    },
    /** @param {string} key @param {readonly string[]} known @param {string} otherwise */
    choice(key, known, otherwise) {
      const value = json[key] ?? otherwise;
      if (!known.includes(value)) throw unknown(path, key, value, known);
    },
  };
}

/** @param {Record<string, Json>} json @param {ReturnType<typeof reader>} read @returns {ModelConfig} */
function gpt2Config(json, read) {
  const width = read.count('n_embd');
  const heads = read.count('n_head');
  if (width % heads) throw read.fail('n_embd', `a multiple of "n_head", which is ${heads}`);
  read.choice('activation_function', ['gelu_new', 'gelu_pytorch_tanh'], 'gelu_new');
  for (const [key, value] of /** @type {const} */ ([
    ['scale_attn_by_inverse_layer_idx', false],
    ['scale_attn_weights', true],
    ['reorder_and_upcast_attn', false],
  ])) {
    if (read.flag(key, value) !== value) throw read.fail(key, String(value));
  }
  const layers = read.count('n_layer');
  return {
    family: 'gpt2',
    vocabSize: read.count('vocab_size'),
    width,
    layers,
    heads,
    kvHeads: heads,
    headSize: width / heads,
    hidden: read.count('n_inner', 4 * width),
    context: read.count('n_positions'),
    norm: 'layer',
    eps: read.positive('layer_norm_epsilon', 1e-5),
    placement: 'pre',
    qkNorm: 'none',
    qkvBias: true,
    outBias: true,
    mlpBias: true,
    mlp: 'gelu',
    position: 'learned',
    ropeLayers: new Array(layers).fill(false),
    windows: new Array(layers).fill(null),
    tied: read.flag('tie_word_embeddings', true),
    bos: json.bos_token_id ?? null,
    eos: idsOf(json.eos_token_id),
    pad: json.pad_token_id ?? null,
  };
}

/**
 * @param {Family} family @param {Record<string, Json>} json @param {ReturnType<typeof reader>} read @param {string} path
 * @returns {ModelConfig}
 */
function ropeConfig(family, json, read, path) {
  const width = read.count('hidden_size');
  const heads = read.count('num_attention_heads');
  const kvHeads = read.count('num_key_value_heads', heads);
  const layers = read.count('num_hidden_layers');
  if (json.head_dim === undefined && width % heads) {
    throw read.fail('hidden_size', `a multiple of "num_attention_heads", which is ${heads}, where there is no "head_dim"`);
  }
  if (heads % kvHeads) throw read.fail('num_attention_heads', `a multiple of "num_key_value_heads", which is ${kvHeads}`);
  const headSize = read.count('head_dim', width / heads);
  if (headSize % 2) throw read.fail('head_dim', 'an even number');
  read.choice('hidden_act', ['silu', 'swish'], 'silu');
  if (read.count('pretraining_tp', 1) !== 1) throw read.fail('pretraining_tp', '1');
  const bias = read.flag('attention_bias', false);
  const learned = family === 'helios-gpt';
  return {
    family,
    vocabSize: read.count('vocab_size'),
    width,
    layers,
    heads,
    kvHeads,
    headSize,
    hidden: read.count('intermediate_size'),
    context: read.count('max_position_embeddings'),
    norm: 'rms',
    eps: read.positive('rms_norm_eps', family === 'olmo2' || learned ? 1e-5 : 1e-6),
    placement: family === 'olmo2' ? 'post' : 'pre',
    qkNorm: family === 'olmo2' ? 'row' : family === 'qwen3' ? 'head' : 'none',
    qkvBias: family === 'qwen2' || bias,
    outBias: family !== 'qwen2' && bias,
    mlpBias: read.flag('mlp_bias', false),
    mlp: 'swiglu',
    position: learned ? 'learned' : 'rope',
    ...(learned ? {} : { rope: ropeOf(json, path, family === 'smollm3' ? 2e6 : 1e4) }),
    ropeLayers: learned ? new Array(layers).fill(false) : ropeLayersOf(family, json, read, layers),
    windows: windowsOf(family, json, read, layers, path),
    tied: read.flag('tie_word_embeddings', family === 'smollm3'),
    bos: json.bos_token_id ?? null,
    eos: idsOf(json.eos_token_id),
    pad: json.pad_token_id ?? null,
  };
}

/**
 * Reads rotary positions: `rope_parameters` (transformers 5), or `rope_theta` and `rope_scaling` (transformers 4).
 * @param {Record<string, Json>} json @param {string} path @param {number} otherwise the base where none is given
 * @returns {Rope}
 */
function ropeOf(json, path, otherwise) {
  const newer = json.rope_parameters;
  const key = newer ? 'rope_parameters' : 'rope_scaling';
  const given = newer ?? json.rope_scaling ?? {};
  const type = given.rope_type ?? given.type ?? 'default';
  const base = given.rope_theta ?? json.rope_theta ?? otherwise;
  const inside = reader(given, `${path}, "${key}"`);
  if (typeof base !== 'number' || !(base > 0))
    throw new Error(`${path}: "rope_theta" is ${JSON.stringify(base)}, expected a number above 0`);
  if (given.partial_rotary_factor !== undefined && given.partial_rotary_factor !== 1) throw inside.fail('partial_rotary_factor', '1');
  if (type === 'default') return { base, type };
  if (type === 'linear') return { base, type, factor: inside.positive('factor', NaN) };
  if (type === 'llama3') {
    return {
      base,
      type,
      factor: inside.positive('factor', NaN),
      lowFactor: inside.positive('low_freq_factor', NaN),
      highFactor: inside.positive('high_freq_factor', NaN),
      original: inside.count('original_max_position_embeddings'),
    };
  }
  throw unknown(`${path}, "${key}"`, 'rope_type', type, ['default', 'linear', 'llama3']);
}

/**
 * For each layer, whether it applies rotary positions. Only SmolLM3 has layers without them.
 * @param {Family} family @param {Record<string, Json>} json @param {ReturnType<typeof reader>} read @param {number} layers
 * @returns {boolean[]}
 */
function ropeLayersOf(family, json, read, layers) {
  if (family !== 'smollm3') return new Array(layers).fill(true);
  const every = read.count('no_rope_layer_interval', 4);
  const given = json.no_rope_layers ?? Array.from({ length: layers }, (_, i) => Number((i + 1) % every !== 0));
  // The key means the opposite of its name: 1 marks a layer with rotary positions.
  if (!Array.isArray(given) || given.length !== layers) throw read.fail('no_rope_layers', `a list of ${layers}`);
  return given.map(Boolean);
}

/**
 * The attention window of each layer.
 * @param {Family} family @param {Record<string, Json>} json @param {ReturnType<typeof reader>} read @param {number} layers @param {string} path
 * @returns {(number | null)[]}
 */
function windowsOf(family, json, read, layers, path) {
  // transformers gives a Mistral whose file has no such key a window.
  const window = json.sliding_window === undefined && family === 'mistral' ? 4096 : (json.sliding_window ?? null);
  const types = json.layer_types;
  const hasWindows = family === 'mistral' ? window !== null : read.flag('use_sliding_window', false) && window !== null;
  if (types !== undefined) {
    if (!Array.isArray(types) || types.length !== layers) throw read.fail('layer_types', `a list of ${layers}`);
    const other = types.find((type) => type !== 'full_attention' && type !== 'sliding_attention');
    if (other !== undefined) throw unknown(path, 'layer_types', other, ['full_attention', 'sliding_attention']);
  }
  if (!hasWindows) {
    if (types?.includes('sliding_attention')) throw read.fail('sliding_window', 'a window, since "layer_types" has "sliding_attention"');
    return new Array(layers).fill(null);
  }
  const size = read.count('sliding_window', window);
  if (types) return types.map((/** @type {string} */ type) => (type === 'sliding_attention' ? size : null));
  const from = family === 'mistral' ? 0 : read.count('max_window_layers', layers);
  return Array.from({ length: layers }, (_, i) => (i >= from ? size : null));
}

/** The ids of special tokens by transformers' keys. @param {Pick<ModelConfig, 'bos' | 'eos' | 'pad'>} config */
export const specialIds = ({ bos, eos, pad }) => ({
  bos_token_id: bos,
  eos_token_id: eos.length > 1 ? eos : (eos[0] ?? null),
  pad_token_id: pad,
});

/**
 * Makes the contents of `config.json`, with the keys of both transformers 4 and 5.
 * @param {ModelConfig} config @param {'float32' | 'float16' | 'bfloat16'} dtype of the weights in the files
 * @returns {Record<string, unknown>}
 */
export function configJson(config, dtype) {
  const { family, tied } = config;
  const shared = {
    architectures: [CLASSES[family]],
    model_type: family,
    vocab_size: config.vocabSize,
    tie_word_embeddings: tied,
    ...specialIds(config),
    dtype,
    torch_dtype: dtype,
  };
  if (family === 'gpt2') {
    return {
      ...shared,
      n_embd: config.width,
      n_head: config.heads,
      n_layer: config.layers,
      n_inner: config.hidden,
      n_positions: config.context,
      activation_function: 'gelu_new',
      layer_norm_epsilon: config.eps,
    };
  }
  const window = config.windows.find((each) => each !== null) ?? null;
  const windows =
    window === null ? {} : { layer_types: config.windows.map((each) => (each === null ? 'full_attention' : 'sliding_attention')) };
  return {
    ...shared,
    hidden_size: config.width,
    num_hidden_layers: config.layers,
    num_attention_heads: config.heads,
    num_key_value_heads: config.kvHeads,
    head_dim: config.headSize,
    intermediate_size: config.hidden,
    max_position_embeddings: config.context,
    hidden_act: 'silu',
    rms_norm_eps: config.eps,
    attention_bias: family === 'qwen2' ? undefined : config.qkvBias,
    mlp_bias: family === 'llama' || family === 'smollm3' ? config.mlpBias : undefined,
    ...(config.rope ? ropeJson(config.rope) : {}),
    ...(family === 'smollm3' ? { no_rope_layers: config.ropeLayers.map(Number) } : {}),
    ...(family === 'mistral' ? { sliding_window: window, ...(config.windows.includes(null) ? windows : {}) } : {}),
    ...(['qwen2', 'qwen3', 'smollm3'].includes(family) ? { use_sliding_window: window !== null, sliding_window: window, ...windows } : {}),
  };
}

/** The keys of rotary positions, for transformers 4 and 5. @param {Rope} rope */
function ropeJson(rope) {
  const { base, type } = rope;
  const rest =
    rope.type === 'default'
      ? {}
      : rope.type === 'linear'
        ? { factor: rope.factor }
        : {
            factor: rope.factor,
            low_freq_factor: rope.lowFactor,
            high_freq_factor: rope.highFactor,
            original_max_position_embeddings: rope.original,
          };
  return {
    rope_theta: base,
    rope_scaling: type === 'default' ? null : { rope_type: type, ...rest },
    rope_parameters: { rope_type: type, rope_theta: base, ...rest },
  };
}
