// The configuration and the tensors' names of a model in GGUF, as llama.cpp reads them, from and to those of `Decoder`.

import { frequencies } from '../model/positions.mjs';
import { partsOf } from '../model/parts.mjs';

/**
 * @typedef {import('./gguf.mjs').Gguf} Gguf
 * @typedef {import('./gguf.mjs').Metadata} Metadata
 * @typedef {import('./gguf.mjs').Scalar} Scalar
 * @typedef {import('../config.mjs').ModelConfig} ModelConfig
 * @typedef {import('../config.mjs').Family} Family
 * @typedef {import('../config.mjs').Rope} Rope
 * @typedef {import('../model/parts.mjs').Part} Part
 */

/** Architectures by family. Mistral's is llama's: llama.cpp has no windows there. @type {Partial<Record<Family, string>>} */
const ARCHITECTURES = {
  llama: 'llama',
  mistral: 'llama',
  qwen2: 'qwen2',
  qwen3: 'qwen3',
  olmo2: 'olmo2',
  smollm3: 'smollm3',
  gpt2: 'gpt2',
};
const KNOWN = [...new Set(Object.values(ARCHITECTURES))];

/** Families whose rotary positions turn neighbours in a head in GGUF (the rows of q and k are permuted), and its halves in `Decoder`. */
const PERMUTED = ['llama', 'mistral', 'smollm3'];

/** The divisors of the frequencies, which stand for scaling of type llama3. */
export const ROPE_FACTORS = 'rope_freqs.weight';

/** Names of tensors: a part's in Hugging Face's files without `.weight` and `.bias`, and GGUF's. `post`: with norms behind the sublayers. */
const NAMES = {
  'model.embed_tokens': 'token_embd',
  'model.norm': 'output_norm',
  lm_head: 'output',
  'self_attn.q_proj': 'attn_q',
  'self_attn.k_proj': 'attn_k',
  'self_attn.v_proj': 'attn_v',
  'self_attn.o_proj': 'attn_output',
  'self_attn.q_norm': 'attn_q_norm',
  'self_attn.k_norm': 'attn_k_norm',
  'mlp.gate_proj': 'ffn_gate',
  'mlp.up_proj': 'ffn_up',
  'mlp.down_proj': 'ffn_down',
  input_layernorm: 'attn_norm',
  post_attention_layernorm: 'ffn_norm',
  post_feedforward_layernorm: 'post_ffw_norm',
  'transformer.wte': 'token_embd',
  'transformer.wpe': 'position_embd',
  'transformer.ln_f': 'output_norm',
  ln_1: 'attn_norm',
  'attn.c_attn': 'attn_qkv',
  'attn.c_proj': 'attn_output',
  ln_2: 'ffn_norm',
  'mlp.c_fc': 'ffn_up',
  'mlp.c_proj': 'ffn_down',
};

/**
 * A part of the model and its tensor in GGUF.
 * @typedef {object} GgufPart
 * @property {Part} part
 * @property {string} name in the file
 * @property {number[]} shape in the file, outputs first: for GPT-2's linear layers the reverse of `part.shape`
 * @property {number} [headSize] of q and k whose rows the file permutes
 */

/** The tensors of a model, in the order of `partsOf`. @param {ModelConfig} config @returns {GgufPart[]} */
export function ggufParts(config) {
  return partsOf(config).map((part) => {
    const [, block, own, kind] = /** @type {string[]} */ (part.name.match(/^(?:(?:model\.layers|transformer\.h)\.(\d+)\.)?(.*)\.(\w+)$/));
    const after = config.placement === 'post' && own === 'post_attention_layernorm';
    const name = after ? 'post_attention_norm' : NAMES[/** @type {keyof typeof NAMES} */ (own)];
    const permuted = PERMUTED.includes(config.family) && /^attn_[qk]$/.test(name);
    return {
      part,
      name: `${block === undefined ? '' : `blk.${block}.`}${name}.${kind}`,
      shape: part.transposed ? part.shape.toReversed() : part.shape,
      ...(permuted ? { headSize: config.headSize } : {}),
    };
  });
}

/**
 * Why a model cannot be written for llama.cpp, with what to do; undefined if it can.
 * @param {ModelConfig} config
 */
function refusalOf(config) {
  const { family, windows, context, ropeLayers } = config;
  if (!Object.hasOwn(ARCHITECTURES, family)) {
    return (
      `llama.cpp has no architecture with the layers of ${family}, so no program could read the file: ` +
      'export a folder, or train a model of a llama preset'
    );
  }
  const window = Math.min(...windows.map((each) => each ?? Infinity));
  if (window < context) {
    return (
      `its attention reaches back ${window} tokens, its context has ${context}, and llama.cpp attends to all of a ${ARCHITECTURES[family]}: ` +
      `set "max_position_embeddings" in config.json to at most ${window}`
    );
  }
  const biases = ['qkvBias', 'outBias', 'mlpBias'].filter((key) => config[/** @type {'qkvBias'} */ (key)]);
  const allowed = family === 'qwen2' ? ['qkvBias'] : ['llama', 'mistral', 'gpt2'].includes(family) ? biases : [];
  const extra = biases.filter((key) => !allowed.includes(key));
  if (extra.length > 0) return `llama.cpp's ${ARCHITECTURES[family]} has no such biases (${extra.join(', ')}): export a folder`;
  if (family === 'smollm3' && ropeLayers.some((turns, i) => turns !== hasRope(i))) {
    return "llama.cpp's smollm3 has rotary positions in all layers but every fourth, and this model in others: export a folder";
  }
  return undefined;
}

/** Whether a layer of SmolLM3 has rotary positions in llama.cpp. @param {number} layer */
const hasRope = (layer) => (layer + 1) % 4 !== 0;

/**
 * The keys of a model's architecture.
 * @param {ModelConfig} config
 * @returns {Metadata}
 * @throws {Error} for a model that llama.cpp cannot run, with what to do
 */
export function configMetadata(config) {
  const refusal = refusalOf(config);
  if (refusal) throw new Error(`this model cannot be exported as GGUF: ${refusal}`);
  const { family, rope, heads, kvHeads, headSize } = config;
  const architecture = /** @type {string} */ (ARCHITECTURES[family]);
  /** @type {Metadata} */
  const metadata = new Map([['general.architecture', { type: 'string', value: architecture }]]);
  const set = (/** @type {string} */ key, /** @type {Scalar} */ type, /** @type {number | string} */ value) =>
    metadata.set(`${architecture}.${key}`, { type, value });
  set('block_count', 'u32', config.layers);
  set('context_length', 'u32', config.context);
  set('embedding_length', 'u32', config.width);
  set('feed_forward_length', 'u32', config.hidden);
  set('vocab_size', 'u32', config.vocabSize);
  set('attention.head_count', 'u32', heads);
  if (family === 'gpt2') {
    set('attention.layer_norm_epsilon', 'f32', config.eps);
    return metadata;
  }
  set('attention.head_count_kv', 'u32', kvHeads);
  set('attention.key_length', 'u32', headSize);
  set('attention.value_length', 'u32', headSize);
  set('attention.layer_norm_rms_epsilon', 'f32', config.eps);
  set('rope.dimension_count', 'u32', headSize);
  set('rope.freq_base', 'f32', rope?.base ?? NaN);
  if (rope?.type === 'linear') {
    set('rope.scaling.type', 'string', 'linear');
    set('rope.scaling.factor', 'f32', rope.factor);
  }
  // llama.cpp takes llama3's scaling from a tensor alone; these tell what the tensor was made from.
  if (rope?.type === 'llama3') {
    for (const key of /** @type {const} */ (['factor', 'lowFactor', 'highFactor', 'original']))
      metadata.set(`helios.rope.${key}`, { type: 'f64', value: rope[key] });
  }
  return metadata;
}

/** What llama3's scaling divides each frequency by. @param {Rope} rope @param {number} headSize @returns {Float32Array} [headSize / 2] */
export function ropeFactors(rope, headSize) {
  const plain = frequencies({ base: rope.base, type: 'default' }, headSize);
  return Float32Array.from(frequencies(rope, headSize), (scaled, i) => plain[i] / scaled);
}

/** Functions that read a model's keys and check them. @param {Gguf} gguf */
function reader({ metadata, path }) {
  const architecture = metadata.get('general.architecture')?.value;
  const fail = (/** @type {string} */ key, /** @type {string} */ expected) => {
    const value = metadata.get(key)?.value;
    const shown = value === undefined ? 'missing' : typeof value === 'object' ? 'an array' : JSON.stringify(String(value));
    return new Error(`${path}: the key "${key}" is ${shown}, expected ${expected}`);
  };
  if (metadata.get('general.type')?.value === 'adapter') {
    throw new Error(`${path} is an adapter without its model: expected a model's file`);
  }
  if (typeof architecture !== 'string' || !KNOWN.includes(architecture)) throw fail('general.architecture', `one of ${KNOWN.join(', ')}`);
  /** @param {string} name @param {number} [otherwise] @param {(value: number) => boolean} [fits] @param {string} [expected] */
  const number = (name, otherwise, fits = (value) => value > 0, expected = 'a number above 0') => {
    const key = `${architecture}.${name}`;
    const value = metadata.get(key)?.value ?? otherwise;
    if (typeof value !== 'number' || !fits(value)) throw fail(key, expected);
    return value;
  };
  return {
    architecture,
    fail,
    positive: number,
    /** @param {string} name @param {number} [otherwise] */
    count: (name, otherwise) =>
      number(name, otherwise, (value) => Number.isInteger(value) && value >= 1 && value < 2 ** 32, 'an integer of at least 1'),
    /** @param {string} name @param {number} expected */
    is: (name, expected) => number(name, expected, (value) => value === expected, String(expected)),
    /** @param {string} name @returns {number | undefined} the id of a token */
    id(name) {
      const key = `tokenizer.ggml.${name}_token_id`;
      const value = metadata.get(key)?.value;
      if (value !== undefined && !(typeof value === 'number' && Number.isInteger(value) && value >= 0)) throw fail(key, 'an id');
      return value;
    },
  };
}

/**
 * The configuration of a model.
 * @param {Gguf} gguf @param {Float32Array} [factors] the tensor `rope_freqs.weight`, if there is one
 * @returns {ModelConfig}
 * @throws {Error} that names the file and the key, its value and what was expected
 */
export function configOf(gguf, factors) {
  const read = reader(gguf);
  const family = /** @type {Family} */ (read.architecture);
  const gpt2 = family === 'gpt2';
  const tensors = new Map(gguf.tensors.map((tensor) => [tensor.name, tensor]));
  const has = (/** @type {string} */ name) => tensors.has(name);
  const vocabSize = tensors.get('token_embd.weight')?.shape[0];
  const files = gguf.metadata.get('split.count')?.value ?? 1;
  if (files !== 1)
    throw new Error(`${gguf.path} is one of ${files} files of a model: join them first, with llama.cpp's gguf-split --merge`);
  if (vocabSize === undefined) throw new Error(`${gguf.path} has no tensor token_embd.weight`);
  read.is('vocab_size', vocabSize);
  const tokens = gguf.metadata.get('tokenizer.ggml.tokens')?.value ?? [];
  if (typeof tokens === 'object' && tokens.length > vocabSize) {
    throw read.fail('tokenizer.ggml.tokens', `at most ${vocabSize} tokens, the rows of token_embd.weight`);
  }
  const width = read.count('embedding_length');
  const heads = read.count('attention.head_count');
  const kvHeads = read.count('attention.head_count_kv', heads);
  const layers = read.count('block_count');
  if (layers > gguf.tensors.length) throw read.fail(`${family}.block_count`, `at most the number of tensors, ${gguf.tensors.length}`);
  if (heads % kvHeads) throw read.fail(`${family}.attention.head_count_kv`, `a divisor of the number of heads, ${heads}`);
  read.positive('expert_count', 0, (value) => value === 0, '0: experts are not implemented');
  const headSize = read.count('attention.key_length', width / heads);
  read.is('attention.value_length', headSize);
  if (!gpt2) read.is('rope.dimension_count', headSize);
  if (headSize % 2) throw read.fail(`${family}.attention.key_length`, 'an even number');
  const biased = (/** @type {string} */ name) => has(`blk.0.${name}.bias`);
  return {
    family,
    vocabSize,
    width,
    layers,
    heads,
    kvHeads,
    headSize,
    hidden: read.count('feed_forward_length'),
    context: read.count('context_length'),
    norm: gpt2 ? 'layer' : 'rms',
    // An f32 in the file: 1e-5 is meant where it says 9.999999747378752e-6.
    eps: shortest(read.positive(gpt2 ? 'attention.layer_norm_epsilon' : 'attention.layer_norm_rms_epsilon')),
    placement: family === 'olmo2' ? 'post' : 'pre',
    qkNorm: family === 'olmo2' ? 'row' : family === 'qwen3' ? 'head' : 'none',
    qkvBias: gpt2 || biased('attn_q'),
    outBias: gpt2 || biased('attn_output'),
    mlpBias: gpt2 || biased('ffn_up'),
    mlp: gpt2 ? 'gelu' : 'swiglu',
    position: gpt2 ? 'learned' : 'rope',
    ...(gpt2 ? {} : { rope: ropeOf(gguf, read, headSize, factors) }),
    ropeLayers: Array.from({ length: layers }, (_, i) => !gpt2 && (family !== 'smollm3' || hasRope(i))),
    windows: new Array(layers).fill(null),
    tied: !has('output.weight'),
    bos: read.id('bos') ?? null,
    eos: [...new Set(['eos', 'eot', 'eom'].map(read.id).filter((id) => id !== undefined))],
    pad: read.id('padding') ?? null,
  };
}

/** The decimal number of fewest digits that is this f32. @param {number} value */
function shortest(value) {
  for (let digits = 1; digits < 9; digits++) {
    const short = Number(value.toPrecision(digits));
    if (Math.fround(short) === value) return short;
  }
  return value;
}

/** @param {Gguf} gguf @param {ReturnType<typeof reader>} read @param {number} headSize @param {Float32Array} [factors] @returns {Rope} */
function ropeOf({ metadata, path }, read, headSize, factors) {
  const base = shortest(read.positive('rope.freq_base', 1e4));
  const key = `${read.architecture}.rope.scaling.type`;
  const type = metadata.get(key)?.value ?? 'none';
  if (type === 'linear') return { base, type: 'linear', factor: shortest(read.positive('rope.scaling.factor')) };
  if (type !== 'none') throw read.fail(key, 'one of none, linear');
  if (!factors) return { base, type: 'default' };
  // The tensor has llama3's result; what it was computed from is in the file where this program wrote it, else among the usual values.
  const own = Object.fromEntries(
    ['factor', 'lowFactor', 'highFactor', 'original'].map((name) => [name, Number(metadata.get(`helios.rope.${name}`)?.value)]),
  );
  const factor = shortest(factors.reduce((a, b) => Math.max(a, b), 1));
  const usual = Array.from({ length: 16 }, (_, i) => ({ factor, lowFactor: 1, highFactor: 4, original: 2 ** (i + 5) }));
  for (const values of [own, ...usual]) {
    const rope = /** @type {Rope} */ ({ base, type: 'llama3', ...values });
    const made = ropeFactors(rope, headSize);
    if (made.length === factors.length && made.every((value, i) => Math.abs(value / factors[i] - 1) < 1e-5)) return rope;
  }
  throw new Error(`${path}: ${ROPE_FACTORS} scales rotary positions in another way than llama3 with low_freq_factor 1, high_freq_factor 4`);
}
