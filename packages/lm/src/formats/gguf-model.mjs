// Models in GGUF: weights onto the device and back into a file, and weights in their own types for inference.

import { F, nn, noGrad, scope, tensor } from 'helios-vk/nn';

import { Decoder } from '../model/decoder.mjs';
import { loadTokenizer } from '../tokenizer/load.mjs';
import { ROPE_FACTORS, configMetadata, configOf, ggufParts, ropeFactors } from './gguf-config.mjs';
import { hasTokenizer, tokenizerMetadata } from './gguf-tokenizer.mjs';
import { TYPES, readGguf, readTensor, writeGguf } from './gguf.mjs';
import { ENCODED, canDecode, checkHalf, fromF32, toF32 } from './quant.mjs';

/**
 * @typedef {import('./gguf.mjs').Gguf} Gguf
 * @typedef {import('./gguf.mjs').TensorInfo} TensorInfo
 * @typedef {import('./gguf.mjs').TensorType} TensorType
 * @typedef {import('./gguf-config.mjs').GgufPart} GgufPart
 * @typedef {import('../config.mjs').ModelConfig} ModelConfig
 * @typedef {import('../tokenizer/load.mjs').Tokenizer} Tokenizer
 */

/** `general.file_type` of a file by the type of its matrices. */
const FILE_TYPES = { f32: 0, f16: 1, bf16: 32, q8_0: 7 };

/** About how many elements are on their way between file and device at once. */
const PIECE = 2 ** 22;

/**
 * The rows of q and k between the order of `Decoder`, where a head's halves turn together, and GGUF's, where neighbours do: row 2i + j of
 * a head in GGUF is row j · headSize / 2 + i.
 * @param {Uint8Array} bytes whole heads @param {number} rowBytes @param {number} headSize @param {boolean} toGguf
 * @returns {Uint8Array<ArrayBuffer>}
 */
export function permuted(bytes, rowBytes, headSize, toGguf) {
  const out = new Uint8Array(bytes.length);
  for (let row = 0; row * rowBytes < bytes.length; row++) {
    const inHead = row % headSize;
    const other = row - inHead + (inHead % 2) * (headSize / 2) + (inHead >> 1);
    const [from, to] = toGguf ? [other, row] : [row, other];
    out.set(bytes.subarray(from * rowBytes, (from + 1) * rowBytes), to * rowBytes);
  }
  return out;
}

/**
 * Reads the header of a file as that of a model.
 * @param {string} path
 * @returns {Promise<{ gguf: Gguf, config: ModelConfig, parts: (GgufPart & { tensor: TensorInfo })[] }>}
 * @throws {Error} that names the file and the key or tensor
 */
async function openParts(path) {
  const gguf = readGguf(path);
  const tensors = new Map(gguf.tensors.map((each) => [each.name, each]));
  const factors = tensors.get(ROPE_FACTORS);
  if (factors && factors.type !== 'f32') throw new Error(`${path}: tensor ${ROPE_FACTORS} is of type ${factors.type}, expected f32`);
  const config = configOf(gguf, factors && toF32('f32', await readTensor(gguf, factors)));
  const parts = ggufParts(config).map((part) => {
    const found = tensors.get(part.name);
    if (!found) throw new Error(`${path} has no tensor ${part.name}`);
    if (String(found.shape) !== String(part.shape)) {
      throw new Error(
        `${path}: tensor ${part.name} is [${found.shape.join(', ')}], expected [${part.shape.join(', ')}] by the file's keys`,
      );
    }
    if (part.headSize && part.shape.length === 1 && TYPES[found.type].elements > 1) {
      throw new Error(
        `${path}: tensor ${part.name} is of type ${found.type}, expected one without blocks, since its elements are permuted`,
      );
    }
    tensors.delete(part.name);
    return { ...part, tensor: found };
  });
  tensors.delete(ROPE_FACTORS);
  const [extra] = tensors.keys();
  if (extra !== undefined) throw new Error(`${path} has a tensor ${extra}, which a ${config.family} has not`);
  return { gguf, config, parts };
}

/**
 * Rows of a tensor in the order of `Decoder`.
 * @param {Gguf} gguf @param {GgufPart & { tensor: TensorInfo }} part @param {number} from first row @param {number} to row behind the last one; both
 *   at the bounds of heads, and all elements of a vector
 * @param {Uint8Array<ArrayBuffer>} [into] where the file's bytes are read to; the result is there too, unless rows change places
 */
async function readRows(gguf, { tensor: info, headSize }, from, to, into) {
  const rowBytes = info.bytes / info.shape[0];
  const bytes = await readTensor(gguf, info, from * rowBytes, (to - from) * rowBytes, into);
  return headSize ? permuted(bytes, rowBytes, headSize, false) : bytes;
}

/** Rows of a part that are handled at once: of matrices some, in whole heads; of vectors all. @param {GgufPart} part */
function rowsAtOnce({ shape, headSize = 1 }) {
  if (shape.length === 1) return shape[0];
  return Math.max(1, Math.floor(PIECE / shape[1] / headSize)) * headSize;
}

/** The tokenizer of a file, if it has one. @param {Gguf} gguf */
const tokenizerOf = (gguf) => (hasTokenizer(gguf) ? loadTokenizer(gguf) : undefined);

/** The configuration of the model in a file. @param {string} path @returns {Promise<ModelConfig>} @throws {Error} that names the file and the key */
export const ggufConfig = async (path) => (await openParts(path)).config;

/**
 * Reads a model from a GGUF file. Weights are decoded to f32, some rows at a time.
 * @param {string} path @param {{ signal?: AbortSignal, dtype?: 'f32' | 'f16' | 'bf16' }} [options] `signal`: ends it with an AbortError before the
 *   next tensor; `dtype` of matrices, f32 when left out
 * @returns {Promise<{ model: Decoder, tokenizer: Tokenizer | undefined }>} `model`, whose vectors are f32
 * @throws {Error} that names the file and the key or tensor; {RangeError} for weights that f16 cannot hold
 */
export async function importGguf(path, { signal, dtype } = {}) {
  const { gguf, config, parts } = await openParts(path);
  const tokenizer = tokenizerOf(gguf);
  for (const { name, tensor: info } of parts) {
    if (!canDecode(info.type)) throw new Error(`${path}: tensor ${name} is of type ${info.type}, which cannot be decoded`);
  }
  const model = nn.skipInit(() => new Decoder(config), { dtype });
  try {
    const state = model.stateDict();
    for (const each of parts) {
      signal?.throwIfAborted();
      const { part, shape, tensor: info } = each;
      const step = rowsAtOnce(each);
      for (let from = 0; from < shape[0]; from += step) {
        const to = Math.min(shape[0], from + step);
        const values = toF32(info.type, await readRows(gguf, each, from, to));
        if (state[part.parameter].dtype === 'f16' && info.type !== 'f16') checkHalf(part.name, values);
        const first = (part.row ?? 0) + from;
        noGrad(() =>
          scope(() => {
            const rows = F.slice(state[part.parameter], 0, first, first + to - from);
            rows.copy_(F.to(tensor(values, { shape: rows.shape }), rows.dtype));
          }),
        );
      }
    }
    return { model, tokenizer };
  } catch (error) {
    model.dispose();
    throw error;
  }
}

/**
 * The type of a part in a file: norms, biases and positions are added or multiplied element by element, so they stay f32; rows that are not
 * of whole blocks become f16.
 * @param {GgufPart} part @param {'f32' | 'f16' | 'bf16' | 'q8_0'} dtype
 */
function typeOf({ name, shape }, dtype) {
  if (shape.length === 1 || name === 'position_embd.weight') return 'f32';
  return shape[1] % TYPES[dtype].elements ? 'f16' : dtype;
}

/**
 * Writes a model as a GGUF file. The file appears once it is complete, or not at all; one that is there is replaced.
 * @param {Decoder} model @param {string} path
 * @param {{ dtype?: 'f32' | 'f16' | 'bf16' | 'q8_0', tokenizer?: Tokenizer, signal?: AbortSignal }} [options] `dtype` of the matrices: bf16 when
 *   left out; `tokenizer` with its chat templates; `signal`: ends it with an AbortError before the next tensor
 * @throws {RangeError} for an unknown dtype, and for weights that f16 cannot hold; {Error} for a model or a tokenizer that llama.cpp cannot run,
 *   with what to do
 */
export async function exportGguf(model, path, { dtype = 'bf16', tokenizer, signal } = {}) {
  if (!ENCODED.includes(dtype)) throw new RangeError(`exportModel: no dtype ${dtype}; there are ${ENCODED.join(', ')}`);
  const { config } = model;
  const metadata = new Map([
    ...configMetadata(config),
    ['general.file_type', { type: /** @type {const} */ ('u32'), value: FILE_TYPES[dtype] }],
    ['general.quantization_version', { type: /** @type {const} */ ('u32'), value: 2 }],
    ...tokenizerMetadata(tokenizer, config),
  ]);
  const state = model.stateDict();
  const tensors = ggufParts(config).map((each) => {
    const type = typeOf(each, dtype);
    return { name: each.name, type, shape: each.shape, pieces: () => piecesOf(each, state[each.part.parameter], type, signal) };
  });
  if (config.rope?.type === 'llama3') {
    const factors = ropeFactors(config.rope, config.headSize);
    tensors.unshift({
      name: ROPE_FACTORS,
      type: 'f32',
      shape: [factors.length],
      pieces: async function* () {
        yield fromF32('f32', factors);
      },
    });
  }
  await writeGguf(path, metadata, tensors);
}

/**
 * The bytes of a part of the model, some rows at a time.
 * @param {GgufPart} each @param {import('helios-vk/nn').Tensor} parameter @param {'f32' | 'f16' | 'bf16' | 'q8_0'} type @param {AbortSignal} [signal]
 */
async function* piecesOf(each, parameter, type, signal) {
  const { part, shape, headSize } = each;
  const step = rowsAtOnce(each);
  for (let from = 0; from < shape[0]; from += step) {
    signal?.throwIfAborted();
    const [first, count] = [(part.row ?? 0) + from, Math.min(step, shape[0] - from)];
    const rows = noGrad(() => scope(() => F.to(F.clone(F.slice(parameter, 0, first, first + count)), 'f32')));
    const values = /** @type {Float32Array} */ (await rows.toArray());
    rows.dispose();
    if (type === 'f16') checkHalf(part.name, values);
    const bytes = fromF32(type, values);
    yield headSize ? permuted(bytes, bytes.length / count, headSize, true) : bytes;
  }
}

/**
 * The weights of a file in their own types, for inference.
 * @param {string} path
 * @returns {Promise<{ config: ModelConfig, tokenizer: Tokenizer | undefined, template: string | undefined, parts: { name: string, parameter: string,
 *   row: number | undefined, type: TensorType, shape: number[], read(from?: number, to?: number, into?: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>> }[]
 *   }>} `template`:
 *   the chat template; `parts`: those of `partsOf`, in its order, with `shape` outputs first as in `Decoder`. `read` gives the bytes of rows `from` to
 *   `to` in the order of `Decoder`, all when left out; of q and k whole heads, of vectors all. A RangeError for others
 * @throws {Error} that names the file and the key or tensor
 */
export async function ggufWeights(path) {
  const { gguf, config, parts } = await openParts(path);
  const tokenizer = tokenizerOf(gguf);
  return {
    config,
    tokenizer,
    template: tokenizer?.chatTemplates.default,
    parts: parts.map((each) => ({
      name: each.part.name,
      parameter: each.part.parameter,
      row: each.part.row,
      type: each.tensor.type,
      shape: each.shape,
      read: async (from = 0, to = each.shape[0], into) => {
        const unit = each.shape.length === 1 ? each.shape[0] : (each.headSize ?? 1);
        if (from % unit || to % unit) throw new RangeError(`${each.name}: rows ${from} to ${to}, expected multiples of ${unit}`);
        return readRows(gguf, each, from, to, into);
      },
    })),
  };
}
