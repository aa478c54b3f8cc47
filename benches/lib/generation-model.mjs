/** Writes models with random weights into folders, for benches whose speed does not depend on what a model knows. */

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { encodeHeader, writeSafetensors } from 'helios-vk/files';
import { bf16Bits, f16Bits } from 'helios-vk/kernels';

import { configJson, parseConfig } from '../../packages/lm/src/config.mjs';
import { makeFolder, writeFiles, writeJson } from '../../packages/lm/src/folder.mjs';
import { filesFor } from '../../packages/lm/src/formats/hf.mjs';
import { partsOf, sizeOf } from '../../packages/lm/src/model/parts.mjs';
import { BYTE_SYMBOLS } from '../../packages/lm/src/tokenizer/bpe.mjs';
import { byteLevelJson, loadTokenizer } from '../../packages/lm/src/tokenizer/load.mjs';

/** @typedef {import('../../packages/lm/src/config.mjs').ModelConfig} ModelConfig */
/** @typedef {'f32' | 'f16' | 'bf16'} FileType */

/** Names in safetensors and `config.json`, bytes of an element, and the type of a file in GGUF. */
const TYPES = /** @type {const} */ ({
  f32: { name: 'F32', config: 'float32', bytes: 4, ggml: 0 },
  f16: { name: 'F16', config: 'float16', bytes: 2, ggml: 1 },
  bf16: { name: 'BF16', config: 'bfloat16', bytes: 2, ggml: 32 },
  q8_0: { name: '', config: '', bytes: 34 / 32, ggml: 7 },
});

/** @param {number} layers @param {number} width @param {number} heads @param {number} kvHeads @param {number} hidden @param {number} vocabulary */
const llama = (layers, width, heads, kvHeads, hidden, vocabulary, rest = {}) => ({
  model_type: 'llama',
  num_hidden_layers: layers,
  hidden_size: width,
  num_attention_heads: heads,
  num_key_value_heads: kvHeads,
  intermediate_size: hidden,
  vocab_size: vocabulary,
  max_position_embeddings: 8192,
  rms_norm_eps: 1e-5,
  rope_theta: 5e5,
  eos_token_id: vocabulary - 1,
  ...rest,
});

/** In the words of `config.json`. */
export const MODELS = {
  tiny: llama(2, 64, 4, 2, 128, 512, { max_position_embeddings: 256 }),
  '125m': llama(12, 768, 12, 12, 2048, 26_112),
  '300m': llama(21, 1024, 16, 16, 2752, 17_408),
  '1.2b': llama(16, 2048, 32, 8, 8192, 32_768),
  '7.2b': llama(32, 4096, 32, 8, 14_336, 32_768),
};

/** @param {keyof typeof MODELS} name */
export const configOf = (name) => parseConfig(MODELS[name], name);

/**
 * The model's folder with random weights, written if it is not there. A model may be larger than the host's memory.
 * @param {string} folder that has the models' folders @param {keyof typeof MODELS} name @param {FileType} type of the weights in the files
 * @returns {Promise<string>} the model's folder
 */
export async function modelFolder(folder, name, type) {
  const path = join(folder, `${name}-${type}`);
  if (existsSync(path)) return path;
  const config = configOf(name);
  await makeFolder(path, async (partial) => {
    await writeWeights(partial, config, type);
    await writeJson(join(partial, 'config.json'), configJson(config, TYPES[type].config));
    await writeFiles(partial, {
      'tokenizer.json': JSON.stringify(tokenizerOf(config.vocabSize)),
      'tokenizer_config.json': JSON.stringify(TOKENIZER_CONFIG),
    });
  });
  return path;
}

/**
 * The same as a GGUF file. It is written from the random numbers directly: to convert a model of 7.2B parameters would take minutes.
 * @param {string} folder that has the models @param {keyof typeof MODELS} name @param {FileType | 'q8_0'} type of the matrices
 * @returns {Promise<string>} the path of the file
 */
export async function modelFile(folder, name, type) {
  const path = join(folder, `${name}-${type}.gguf`);
  if (existsSync(path)) return path;
  const formats = (/** @type {string} */ file) => import(new URL(`../../packages/lm/src/formats/${file}`, import.meta.url).href);
  const [{ writeGguf, bytesOf: sizeOfTensor }, { configMetadata, ggufParts }, { tokenizerMetadata }] = await Promise.all(
    ['gguf.mjs', 'gguf-config.mjs', 'gguf-tokenizer.mjs'].map(formats),
  );
  const config = configOf(name);
  const metadata = new Map([
    ...configMetadata(config),
    ['general.file_type', { type: 'u32', value: TYPES[type].ggml }],
    ['general.quantization_version', { type: 'u32', value: 2 }],
    ...tokenizerMetadata(loadTokenizer(tokenizerOf(config.vocabSize), { config: TOKENIZER_CONFIG }), config),
  ]);
  const parts = /** @type {{ name: string, shape: number[] }[]} */ (ggufParts(config));
  const block = await randomBlock(type);
  const ones = bytesOfAll(new Float32Array(Math.max(...parts.map(({ shape }) => (shape.length === 1 ? shape[0] : 0)))).fill(1));
  const tensors = parts.map(({ name, shape }) => {
    const tensor = { name, shape, type: shape.length === 1 ? 'f32' : type };
    return { ...tensor, pieces: () => piecesOf(shape.length === 1 ? ones : block, sizeOfTensor(tensor)) };
  });
  await writeGguf(path, metadata, tensors);
  return path;
}

/** As many bytes as are asked for, from a block that is repeated. @param {Uint8Array} block @param {number} bytes */
function* piecesOf(block, bytes) {
  for (let at = 0; at < bytes; at += block.length) yield block.subarray(0, Math.min(block.length, bytes - at));
}

/** @param {ArrayBufferView} values */
const bytesOfAll = ({ buffer, byteOffset, byteLength }) => new Uint8Array(buffer, byteOffset, byteLength);

/** @param {string} folder @param {ModelConfig} config @param {FileType} type */
async function writeWeights(folder, config, type) {
  const { name: dtype, bytes } = TYPES[type];
  const block = await randomBlock(type);
  const one = bytesOfAll(storageOf(type, [1]));
  const files = filesFor(partsOf(config), ({ shape }) => bytes * sizeOf(shape), 5e9, 'model');
  for (const { file, items } of files) {
    const tensors = items.map(({ name, shape }) => ({ name, dtype, shape }));
    const header = encodeHeader(tensors, { format: 'pt' }, false, (what) => new RangeError(what));
    await writeSafetensors(join(folder, file), header, (i) => {
      const { shape } = items[i];
      // Norms scale by one.
      return Buffer.concat([...piecesOf(shape.length === 1 ? one : block, bytes * sizeOf(shape))]);
    });
  }
  if (files.length > 1) {
    const weight_map = Object.fromEntries(files.flatMap(({ file, items }) => items.map(({ name }) => [name, file])));
    const total_size = partsOf(config).reduce((sum, { shape }) => sum + bytes * sizeOf(shape), 0);
    await writeJson(join(folder, 'model.safetensors.index.json'), { metadata: { total_size }, weight_map });
  }
}

/** Numbers in a type of the files. @param {FileType} type @param {ArrayLike<number>} values */
const storageOf = (type, values) =>
  type === 'f32' ? Float32Array.from(values) : Uint16Array.from(values, type === 'f16' ? f16Bits : bf16Bits);

/**
 * The bytes of weights of standard deviation 0.02, which are repeated through a model: whole blocks of q8_0, and 32 times a prime of numbers,
 * so that no two rows are equal.
 * @param {FileType | 'q8_0'} type
 * @returns {Promise<Uint8Array>}
 */
async function randomBlock(type) {
  let state = 0x9e3779b9;
  const uniform = () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 2 ** 32 - 0.5;
  };
  // A sum of four uniform numbers, each of variance 1/12.
  const values = Float32Array.from({ length: 32 * 8209 }, () => (uniform() + uniform() + uniform() + uniform()) * 0.02 * Math.sqrt(3));
  if (type !== 'q8_0') return bytesOfAll(storageOf(type, values));
  // Blocks of 32: the scale in f16, and 32 integers of 8 bits.
  const out = new Uint8Array((values.length / 32) * 34);
  const view = new DataView(out.buffer);
  for (let i = 0; i < values.length / 32; i++) {
    const block = values.subarray(32 * i, 32 * i + 32);
    const scale = block.reduce((most, value) => Math.max(most, Math.abs(value)), 0) / 127;
    view.setUint16(34 * i, f16Bits(scale), true);
    block.forEach((value, j) => view.setInt8(34 * i + 2 + j, Math.round(value / scale)));
  }
  return out;
}

/** The token that ends a text. */
const END = '<|endoftext|>';
const TOKENIZER_CONFIG = { tokenizer_class: 'PreTrainedTokenizerFast', eos_token: END };

/**
 * A byte-level tokenizer of a given size: the bytes, groups of two and three letters and digits, and the end of a text as the last id.
 * @param {number} size at least 257
 */
function tokenizerOf(size) {
  const letters = [...'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789'];
  const vocabulary = new Map(BYTE_SYMBOLS.map((symbol, byte) => [symbol, byte]));
  /** @type {[string, string][]} */
  const merges = [];
  for (let last = letters; vocabulary.size < size - 1; ) {
    const next = last.flatMap((left) => letters.map((right) => /** @type {[string, string]} */ ([left, right])));
    for (const pair of next.slice(0, size - 1 - vocabulary.size)) {
      merges.push(pair);
      vocabulary.set(pair.join(''), vocabulary.size);
    }
    last = next.map((pair) => pair.join(''));
  }
  const end = { id: size - 1, content: END, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };
  return byteLevelJson(vocabulary, merges, [end], { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true });
}

/**
 * Bytes of a model's weights, and of the keys and values of one token.
 * @param {ModelConfig} config @param {FileType | 'q8_0'} type vectors are f32 in all of them, and the cache is f16
 */
export function bytesOf(config, type) {
  const weights = partsOf(config).reduce((sum, { shape }) => sum + sizeOf(shape) * (shape.length === 1 ? 4 : TYPES[type].bytes), 0);
  return { weights, token: 2 * 2 * config.layers * config.kvHeads * config.headSize };
}
