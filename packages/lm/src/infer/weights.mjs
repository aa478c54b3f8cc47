// Weights on the device, each in its own type: no copy in f32, no gradients.

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { q8FromBlocks, quantizeQ8 } from 'helios-vk/kernels';
import { openTensors } from 'helios-vk/nn';

import { readConfig } from '../config.mjs';
import { TYPES as ELEMENTS, isGguf, bytesOf as tensorBytes } from '../formats/gguf.mjs';
import { ggufWeights } from '../formats/gguf-model.mjs';
import { checkTensors } from '../formats/hf.mjs';
import { ENCODED, checkHalf, fromF32, toF32 } from '../formats/quant.mjs';
import { partsOf, sizeOf } from '../model/parts.mjs';
import { loadModelOf } from '../open.mjs';
import { loadTokenizer, tokenizerIn } from '../tokenizer/load.mjs';
import { loadLegacy } from '../train/legacy.mjs';

/** @typedef {import('../config.mjs').ModelConfig} ModelConfig */
/** @typedef {import('../model/parts.mjs').Part} Part */
/** The type of a weight on the device. @typedef {'f32' | 'f16' | 'bf16' | 'q8_0'} WeightType */

/**
 * A parameter on the device: a matrix [rows, columns], or a vector in f32, of which `rows` is 1.
 * @typedef {{ type: WeightType, rows: number, columns: number, buffer: number, scales?: number }} Weight
 */

/**
 * Where weights come from. `typeOf` is the type of a part's elements; `read` fills bytes with them, in the form and order of the part, those of
 * `q8_0` in blocks of GGUF. `keeps` is the type that a part's matrix has on the device unless another one is asked for.
 * @typedef {object} Source
 * @property {ModelConfig} config
 * @property {Part[]} parts
 * @property {import('../tokenizer/load.mjs').Tokenizer | undefined} tokenizer
 * @property {string} from the folder or file
 * @property {(part: Part) => WeightType} typeOf
 * @property {(part: Part) => WeightType} keeps
 * @property {(part: Part, into: Uint8Array<ArrayBuffer>) => Promise<void>} read
 * @property {() => Promise<void>} close
 */

/** The types of safetensors files. @type {Record<string, WeightType>} */
const TYPES = { F32: 'f32', F16: 'f16', BF16: 'bf16' };

/** Elements that share a scale in `q8_0`. */
const BLOCK = ELEMENTS.q8_0.elements;

/** Elements that are converted at a time: in f32 they stay in the processor's cache. */
const STRETCH = 16_384;

/** Bytes of `count` elements. @param {WeightType} type @param {number} count */
const bytesOf = (type, count) => tensorBytes({ type, shape: [count] });

/**
 * Opens a model's files.
 * @param {string} path a folder of Hugging Face's form, a checkpoint, a run's folder, a checkpoint of an earlier version, or a GGUF file
 * @returns {Promise<Source>}
 * @throws {Error} that names what is wrong with which file
 */
export async function openSource(path) {
  if (isGguf(path)) return ggufSource(path);
  const found = existsSync(join(path, 'config.json')) ? undefined : await loadModelOf(path);
  const from = found?.path ?? path;
  if (found && from.endsWith('.safetensors')) return legacySource(from, found);
  const config = readConfig(from);
  const nameOf = await checkTensors(from, config);
  const files = await openTensors(from);
  const infoOf = (/** @type {Part} */ part) =>
    /** @type {NonNullable<ReturnType<typeof files.tensors.get>>} */ (files.tensors.get(nameOf(part)));
  const parts = partsOf(config);
  for (const part of parts) {
    const { dtype, shape } = infoOf(part);
    if (String(shape) !== String(part.shape))
      throw new Error(`${from}: ${nameOf(part)} is [${shape.join(', ')}], expected [${part.shape.join(', ')}] by config.json`);
    if (!Object.hasOwn(TYPES, dtype)) throw new Error(`${from}: ${nameOf(part)} must be F32, F16 or BF16, got ${dtype}`);
  }
  const typeOf = (/** @type {Part} */ part) => TYPES[infoOf(part).dtype];
  return {
    config,
    parts,
    from,
    tokenizer: tokenizerIn(from),
    typeOf,
    keeps: typeOf,
    read: (part, into) => infoOf(part).read(into),
    close: files.close,
  };
}

/** A checkpoint of an earlier version. @param {string} from @param {import('../train/checkpoint.mjs').Checkpoint} found @returns {Promise<Source>} */
async function legacySource(from, found) {
  const { weights } = (await loadLegacy(from)).state;
  const tokenizer = loadTokenizer(found.tokenizer);
  /** @type {Source['read']} */
  const read = async ({ parameter, row = 0, shape }, into) => {
    const floats = weights[parameter];
    const first = row * (shape[1] ?? 1);
    into.set(new Uint8Array(floats.buffer, floats.byteOffset + 4 * first, 4 * sizeOf(shape)));
  };
  const config = found.config.model;
  return { config, parts: partsOf(config), from, tokenizer, typeOf: () => 'f32', keeps: () => 'f32', read, close: async () => {} };
}

/** A GGUF file, whose parts are in the form of `Decoder`. Types of fewer than 8 bits become f16. @param {string} path @returns {Promise<Source>} */
async function ggufSource(path) {
  const { config, tokenizer, parts } = await ggufWeights(path);
  const found = new Map(parts.map(({ name, type, read }) => [name, { type, read }]));
  const of = (/** @type {Part} */ { name }) => /** @type {NonNullable<ReturnType<typeof found.get>>} */ (found.get(name));
  const own = (/** @type {Part} */ part) => ENCODED.find((type) => type === of(part).type);
  return {
    config,
    // Without `transposed`: the file has weights of products as [outputs, inputs].
    parts: parts.map(({ name, shape, parameter, row }) => ({ name, shape, parameter, row })),
    tokenizer,
    from: path,
    typeOf: (part) => own(part) ?? 'f32',
    keeps: (part) => own(part) ?? 'f16',
    read: async (part, into) => {
      if (own(part)) {
        const bytes = await of(part).read(undefined, undefined, into);
        if (bytes !== into) into.set(bytes);
        return;
      }
      const floats = toF32(of(part).type, await of(part).read());
      into.set(new Uint8Array(floats.buffer, floats.byteOffset, floats.byteLength));
    },
    close: async () => {},
  };
}

/**
 * Puts weights on the device, one parameter at a time. Vectors are f32. In `q8_0`, matrices whose rows are not a multiple of 32 elements,
 * and learned positions, are f16.
 * @param {typeof import('helios-vk')} vk @param {Source} source
 * @param {{ dtype?: WeightType | 'auto', signal?: AbortSignal, onProgress?: (share: number) => void }} [options] `dtype`: of matrices; that of
 *   the files when left out
 * @returns {Promise<Record<string, Weight>>} by the names of `Decoder`'s parameters
 */
export async function uploadWeights(vk, source, { dtype = 'auto', signal, onProgress } = {}) {
  /** @type {Map<string, Part[]>} */
  const byParameter = new Map();
  for (const part of source.parts) byParameter.set(part.parameter, [...(byParameter.get(part.parameter) ?? []), part]);
  /** @type {Record<string, Weight>} */
  const weights = {};
  // While one parameter is uploaded, the next one is read. Two places of memory take turns: fresh memory costs the host as much as the file.
  const list = [...byParameter];
  const places = [placesOf(), placesOf()];
  const reading = (/** @type {number} */ i) => readParameter(source, ...list[i], dtype, places[i % 2]);
  let next = reading(0);
  try {
    for (const [i, [name]] of list.entries()) {
      const read = await next;
      signal?.throwIfAborted();
      if (i + 1 < list.length) next = reading(i + 1);
      weights[name] = upload(vk, name, read);
      onProgress?.((i + 1) / list.length);
    }
    return weights;
  } catch (error) {
    await next.catch(() => {});
    disposeWeights(vk, weights);
    throw error;
  }
}

/** Host memory that is used again and again. */
class Scratch {
  #memory = new ArrayBuffer(0);

  /** Memory with what it had before, until the next call. @param {number} bytes */
  take(bytes) {
    if (this.#memory.byteLength < bytes) this.#memory = new ArrayBuffer(bytes);
    return new Uint8Array(this.#memory, 0, bytes);
  }
}

/** @param {typeof import('helios-vk')} vk @param {Record<string, Weight>} weights */
export function disposeWeights(vk, weights) {
  for (const { buffer, scales } of Object.values(weights)) {
    vk.destroyBuffer(buffer);
    if (scales !== undefined) vk.destroyBuffer(scales);
  }
}

/** Memory for a parameter: the bytes of its file, and what becomes of them. */
const placesOf = () => ({ raw: new Scratch(), bytes: new Scratch(), scales: new Scratch() });

/**
 * A parameter on the host, as the device takes it; in `q8_0` the quants and their scales.
 * @typedef {{ type: WeightType, rows: number, columns: number, bytes: Uint8Array, scales?: Uint8Array }} Read
 */

/**
 * Reads a parameter, in the type that it has on the device.
 * @param {Source} source @param {string} name of the parameter @param {Part[]} parts in order @param {WeightType | 'auto'} dtype
 * @param {ReturnType<typeof placesOf>} places where the bytes are
 * @returns {Promise<Read>}
 */
async function readParameter(source, name, parts, dtype, places) {
  const [{ shape, transposed }] = parts;
  const columns = transposed ? shape[0] : (shape.at(-1) ?? 1);
  const count = parts.reduce((sum, part) => sum + sizeOf(part.shape), 0);
  const vector = shape.length === 1;
  let type = vector ? 'f32' : dtype === 'auto' ? source.keeps(parts[0]) : dtype;
  // Positions are added to rows of the embedding by a kernel that takes no blocks.
  if (type === 'q8_0' && (columns % BLOCK !== 0 || name === 'positions.weight')) type = 'f16';
  const width = type === 'q8_0' ? 1 : bytesOf(type, 1);
  const bytes = places.bytes.take(width * count);
  const scales = type === 'q8_0' ? places.scales.take((2 * count) / BLOCK) : undefined;
  let at = 0;
  for (const part of parts) {
    const size = sizeOf(part.shape);
    const given = source.typeOf(part);
    const into = bytes.subarray(width * at, width * (at + size));
    const q8 = scales && {
      quants: new Int8Array(into.buffer, into.byteOffset, size),
      scales: new Uint16Array(scales.buffer, (2 * at) / BLOCK, size / BLOCK),
    };
    at += size;
    // Parts that need no conversion are read to where they belong.
    if (given === type && !part.transposed && !q8) {
      await source.read(part, into);
      continue;
    }
    const raw = places.raw.take(bytesOf(given, size));
    await source.read(part, raw);
    if (part.transposed) {
      const values = transpose(toF32(given, raw), part.shape);
      convert(part.name, 'f32', new Uint8Array(values.buffer), type, into, q8);
    } else convert(part.name, given, raw, type, into, q8);
  }
  return { type, rows: vector ? 1 : count / columns, columns: vector ? count : columns, bytes, scales };
}

/**
 * Converts a part's elements.
 * @param {string} name of the part @param {WeightType} given @param {Uint8Array<ArrayBuffer>} raw @param {WeightType} type
 * @param {Uint8Array} into where they go @param {{ quants: Int8Array, scales: Uint16Array }} [q8] the same memory, for elements of `q8_0`, and that of scales
 */
function convert(name, given, raw, type, into, q8) {
  if (q8 && given === 'q8_0') {
    q8FromBlocks(raw, q8);
    return;
  }
  if (q8 && (given === 'f16' || given === 'bf16')) {
    quantizeQ8(new Uint16Array(raw.buffer, raw.byteOffset, raw.length / 2), q8, given);
    return;
  }
  const floats = new Float32Array(STRETCH);
  const stretch = bytesOf(given, STRETCH);
  for (let from = 0, at = 0; from < raw.length; from += stretch, at += STRETCH) {
    const values = toF32(given, raw.subarray(from, from + stretch), floats);
    if (q8) {
      const end = at + values.length;
      quantizeQ8(values, { quants: q8.quants.subarray(at, end), scales: q8.scales.subarray(at / BLOCK, end / BLOCK) });
    } else {
      if (type === 'f16') checkHalf(name, values);
      into.set(fromF32(type, values), bytesOf(type, at));
    }
  }
}

/** @param {typeof import('helios-vk')} vk @param {string} name @param {Read} read @returns {Weight} */
function upload(vk, name, { type, rows, columns, bytes, scales }) {
  const buffer = bufferOf(vk, name, bytes);
  if (!scales) return { type, rows, columns, buffer };
  try {
    return { type, rows, columns, buffer, scales: bufferOf(vk, `${name}, scales`, scales) };
  } catch (error) {
    vk.destroyBuffer(buffer);
    throw error;
  }
}

/** A buffer with these bytes, and as many more as make whole words. @param {typeof import('helios-vk')} vk @param {string} name @param {Uint8Array} given */
function bufferOf(vk, name, given) {
  const bytes = given.length % 4 ? Uint8Array.from({ length: 4 * Math.ceil(given.length / 4) }, (_, i) => given[i] ?? 0) : given;
  const buffer = vk.createBuffer(bytes.length, 0);
  try {
    vk.setName(buffer, name);
    // Not `uploadAsync`: this one writes to memory that the host can reach, without a copy on the way.
    vk.uploadBuffer(buffer, bytes);
    return buffer;
  } catch (error) {
    vk.destroyBuffer(buffer);
    throw error;
  }
}

/** @param {Float32Array} values [rows, columns] @param {number[]} shape @returns {Float32Array<ArrayBuffer>} [columns, rows] */
function transpose(values, [rows, columns]) {
  const result = new Float32Array(values.length);
  for (let i = 0; i < rows; i++) for (let j = 0; j < columns; j++) result[j * rows + i] = values[i * columns + j];
  return result;
}
