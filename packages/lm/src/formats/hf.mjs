// Reads and writes models as Hugging Face folders: `config.json`, one or several safetensors files, and the files of the tokenizer.

import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { F, load, nn, noGrad, save, scope } from 'helios-vk/nn';

import { configJson, readConfig } from '../config.mjs';
import { checkNewFolder, copyThere, makeFolder, writeFiles, writeJson } from '../folder.mjs';
import { Decoder } from '../model/decoder.mjs';
import { partsOf, sizeOf } from '../model/parts.mjs';
import { TOKENIZER_FILES, tokenizerIn } from '../tokenizer/load.mjs';
import { exportGguf, importGguf } from './gguf-model.mjs';
import { isGguf } from './gguf.mjs';
import { MAX_F16, beyondHalf } from './quant.mjs';

/** @typedef {import('../model/parts.mjs').Part} Part */

/** Files that `exportModel` copies unchanged. */
const COMPANIONS = ['tokenizer.json', ...TOKENIZER_FILES, 'generation_config.json', 'vocab.json', 'merges.txt'];

/** Buffers that older versions of transformers wrote into the files; they can be computed, so they are ignored. */
const BUFFERS = /\.(rotary_emb\.inv_freq|attn\.(bias|masked_bias))$/;

const DTYPES = /** @type {const} */ ({ f32: 'float32', f16: 'float16', bf16: 'bfloat16' });
/** @param {string} dtype @returns {dtype is keyof typeof DTYPES} */
const isDtype = (dtype) => Object.hasOwn(DTYPES, dtype);

/**
 * Reads a model from a folder or a GGUF file. Weights are converted to f32, one file at a time; the checksum of a safetensors file that
 * `exportModel` wrote is verified.
 * @param {string} folder with `config.json` and safetensors files, as transformers' `save_pretrained` and `exportModel` write it; or a path that
 *   ends in `.gguf`
 * @param {{ signal?: AbortSignal, dtype?: 'f32' | 'f16' | 'bf16' }} [options] `signal`: ends it with an AbortError before the next file; `dtype` of
 *   matrices, f32 when left out: 16 bits are for weights that stay as they are
 * @returns {Promise<Decoder>} whose norms and biases are f32
 * @throws {Error} that names the folder and the tensor or key, for a family that is not supported, missing or unexpected tensors, and shapes
 *   that do not match `config.json`; {RangeError} for weights that f16 cannot hold
 */
export async function importModel(folder, { signal, dtype } = {}) {
  if (isGguf(folder)) return (await importGguf(folder, { signal, dtype })).model;
  const config = readConfig(folder);
  await checkTensors(folder, config);
  const model = nn.skipInit(() => new Decoder(config), { dtype });
  try {
    await readWeights(folder, model, signal);
    return model;
  } catch (error) {
    model.dispose();
    throw error;
  }
}

/**
 * The names that a model's tensors have in a folder, in place of those of `partsOf`.
 * @param {string} folder @param {import('../config.mjs').ModelConfig} config
 * @returns {Promise<(part: Part) => string>}
 * @throws {Error} for missing and unexpected tensors
 */
export async function checkTensors(folder, config) {
  const parts = partsOf(config);
  checkFiles(folder);
  /** @type {Set<string>} */
  const names = new Set();
  await load(folder, { only: (/** @type {string} */ name) => !names.add(name) });
  // A model that was saved without its head (`LlamaModel`, `GPT2Model`) has names without the prefix.
  const prefix = /^(model|transformer)\./;
  const bare = !names.has(parts[0].name) && names.has(parts[0].name.replace(prefix, ''));
  const nameOf = (/** @type {Part} */ { name }) => (bare ? name.replace(prefix, '') : name);
  const missing = parts.map(nameOf).filter((name) => !names.has(name));
  const expected = new Set(parts.map(nameOf));
  // Some files store a tied head too; it is ignored.
  const extra = [...names].filter((name) => !expected.has(name) && !BUFFERS.test(name) && !(config.tied && name === 'lm_head.weight'));
  if (missing.length + extra.length > 0) {
    const list = (/** @type {string[]} */ all) => `${all.slice(0, 5).join(', ')}${all.length > 5 ? `, and ${all.length - 5} more` : ''}`;
    const faults = [
      missing.length ? `has no ${list(missing)}` : '',
      extra.length ? `has ${list(extra)}, which a ${config.family} has not` : '',
    ];
    throw new Error(`${folder} ${faults.filter(Boolean).join('; it ')}`);
  }
  return nameOf;
}

/** @param {string} name @param {import('helios-vk/nn').Tensor} tensor to convert to f16, or converted @throws {RangeError} if f16 cannot hold its numbers */
async function checkHalfTensor(name, tensor) {
  const largest = noGrad(() => scope(() => F.amax(F.abs(tensor), [])));
  const value = await largest.item();
  largest.dispose();
  if (value >= MAX_F16) throw beyondHalf(name);
}

/**
 * Reads the weights of a folder into a model of the same configuration. Throws an Error that names the folder and the tensor, a RangeError for
 * weights that f16 cannot hold.
 * @param {string} folder @param {Decoder} model @param {AbortSignal} [signal] checked before each file
 * @param {(parameter: import('helios-vk/nn').Tensor, rows: import('helios-vk/nn').Tensor, first: number) => void} [set] sets elements of a parameter,
 *   from its element `first` on; copies them into it when left out
 */
export async function readWeights(folder, model, signal, set) {
  const parts = partsOf(model.config);
  const nameOf = await checkTensors(folder, model.config);
  const state = model.stateDict();
  for (const file of filesOf(folder)) {
    signal?.throwIfAborted();
    const tensors = await load(join(folder, file));
    try {
      const held = parts.filter((part) => Object.hasOwn(tensors, nameOf(part)));
      for (const part of held) {
        const { shape } = tensors[nameOf(part)];
        if (String(shape) !== String(part.shape)) {
          throw new Error(`${folder}: ${nameOf(part)} is [${shape.join(', ')}], expected [${part.shape.join(', ')}] by config.json`);
        }
        const isNarrowed = state[part.parameter].dtype === 'f16' && tensors[nameOf(part)].dtype !== 'f16';
        if (isNarrowed) await checkHalfTensor(nameOf(part), tensors[nameOf(part)]);
      }
      noGrad(() =>
        scope(() => {
          for (const part of held) {
            const source = F.to(tensors[nameOf(part)], state[part.parameter].dtype);
            const rows = part.transposed ? F.transpose(source, 0, 1) : source;
            const parameter = state[part.parameter];
            if (set) set(parameter, rows, (part.row ?? 0) * (parameter.size / parameter.shape[0]));
            else placeOf(parameter, part, rows.shape[0]).copy_(rows);
          }
        }),
      );
    } finally {
      for (const name of Object.keys(tensors)) if (nameIsHeld(tensors, name)) tensors[name].dispose();
    }
  }
}

/** Whether a file's tensor is on the device: reading the property of another one throws. @param {object} tensors @param {string} name */
const nameIsHeld = (tensors, name) => 'value' in /** @type {PropertyDescriptor} */ (Object.getOwnPropertyDescriptor(tensors, name));

/** The rows of a parameter that a part fills, as a view. @param {import('helios-vk/nn').Tensor} parameter @param {Part} part @param {number} rows */
const placeOf = (parameter, { row }, rows) => (row === undefined ? parameter : F.slice(parameter, 0, row, row + rows));

/** @param {string} folder @throws {Error} for a folder without safetensors files */
function checkFiles(folder) {
  if (['model.safetensors', 'model.safetensors.index.json'].some((name) => existsSync(join(folder, name)))) return;
  const pickled = readdirSync(folder).find((name) => /\.(bin|pt|pth)$/.test(name));
  const advice = `${pickled} is pickled, and reading it may run code. Convert it with transformers: AutoModelForCausalLM.from_pretrained(FOLDER)`;
  throw new Error(`${folder} has no model.safetensors${pickled === undefined ? '' : `. ${advice}.save_pretrained(NEW)`}`);
}

/** The safetensors files of a model: one, or those of its index. @param {string} folder @returns {string[]} */
function filesOf(folder) {
  if (existsSync(join(folder, 'model.safetensors'))) return ['model.safetensors'];
  const { weight_map: map } = JSON.parse(readFileSync(join(folder, 'model.safetensors.index.json'), 'utf8'));
  return [...new Set(/** @type {string[]} */ (Object.values(map)))];
}

/**
 * Options of `exportModel`.
 * @typedef {object} ExportOptions
 * @property {'f32' | 'f16' | 'bf16' | 'q8_0'} [dtype] of the weights in the files; bf16 when left out. `q8_0` (8 bits, and a scale for 32 weights)
 *   only in GGUF, where norms, biases and positions are f32 in any case
 * @property {number} [maxShardBytes] not for GGUF: the most bytes of weights in a file; 5e9 when left out. A larger tensor gets a file of its own
 * @property {AbortSignal} [signal] ends it with an AbortError before the next file; nothing is left behind
 * @property {Record<string, string>} [files] not for GGUF: further files by name, such as a tokenizer's `files()`
 * @property {string} [companions] a folder from which the tokenizer, chat template and generation settings are copied; none when left out
 * @property {import('../tokenizer/load.mjs').Tokenizer} [tokenizer] for GGUF: what goes into the file, with its chat templates; that of
 *   `companions` when left out
 */

/**
 * Writes a model in the format of transformers' `save_pretrained`, or as a GGUF file for llama.cpp. The folder or file appears once it is
 * complete, or not at all.
 * @param {Decoder} model @param {string} folder must not exist, or be empty; or a path that ends in `.gguf`: a file that is there is replaced
 * @param {ExportOptions} [options]
 * @throws {RangeError} for an unknown dtype, and for weights that f16 cannot hold; {Error} if the folder is not empty or lies inside
 *   `companions`, and for a model or a tokenizer that llama.cpp cannot run
 */
export async function exportModel(model, folder, options = {}) {
  const { dtype = 'bf16', maxShardBytes = 5e9, companions, files = {}, signal } = options;
  if (isGguf(folder)) {
    const its = companions === undefined ? undefined : tokenizerIn(companions);
    return exportGguf(model, folder, { dtype, tokenizer: options.tokenizer ?? its, signal });
  }
  if (!(maxShardBytes > 0)) throw new RangeError(`exportModel: maxShardBytes is a number above 0, got ${maxShardBytes}`);
  if (!isDtype(dtype)) throw new RangeError(`exportModel: no dtype ${dtype}; there are ${Object.keys(DTYPES).join(', ')}`);
  checkNewFolder(folder, companions === undefined ? [] : [companions]);
  await makeFolder(folder, async (partial) => {
    await writeModel(model, partial, { dtype, maxShardBytes, signal });
    if (companions !== undefined) copyThere(companions, partial, COMPANIONS);
    await writeFiles(partial, files);
  });
}

/**
 * Tensors in files of a bounded size, in order.
 * @template T
 * @param {T[]} items @param {(item: T) => number} bytesOf @param {number} most bytes of a file; a larger tensor gets a file of its own
 * @param {string} stem of the files' names
 * @returns {{ file: string, items: T[] }[]}
 */
export function filesFor(items, bytesOf, most, stem) {
  /** @type {T[][]} */
  const groups = [[]];
  let filled = 0;
  for (const item of items) {
    if (filled > 0 && filled + bytesOf(item) > most) {
      groups.push([]);
      filled = 0;
    }
    groups[groups.length - 1].push(item);
    filled += bytesOf(item);
  }
  const count = String(groups.length).padStart(5, '0');
  const fileOf = (/** @type {number} */ i) =>
    groups.length === 1 ? `${stem}.safetensors` : `${stem}-${String(i + 1).padStart(5, '0')}-of-${count}.safetensors`;
  return groups.map((group, i) => ({ file: fileOf(i), items: group }));
}

/**
 * Writes the weights and `config.json` of a model into a folder.
 * @param {Decoder} model @param {string | undefined} folder undefined: reads the weights alike, and writes nothing; for weights of which each
 *   process has a part, so that all read the same
 * @param {{ dtype: 'f32' | 'f16' | 'bf16', maxShardBytes: number, signal?: AbortSignal, read?: () => void }} options as for `exportModel`; `read` is
 *   called when the weights of a file have been read
 */
export async function writeModel(model, folder, { dtype, maxShardBytes, signal, read }) {
  const { config } = model;
  const width = dtype === 'f32' ? 4 : 2;
  const bytesOf = (/** @type {Part} */ { shape }) => width * sizeOf(shape);
  const parts = partsOf(config);
  const files = filesFor(parts, bytesOf, maxShardBytes, 'model');
  const state = model.stateDict();
  for (const { file, items } of files) {
    signal?.throwIfAborted();
    const tensors = noGrad(() =>
      scope(() =>
        Object.fromEntries(
          items.map((part) => {
            const parameter = state[part.parameter];
            const rows = placeOf(parameter, part, part.shape[0]);
            return [part.name, F.to(F.clone(part.transposed ? F.transpose(rows, 0, 1) : rows), dtype)];
          }),
        ),
      ),
    );
    read?.();
    if (dtype === 'f16') for (const [name, tensor] of Object.entries(tensors)) await checkHalfTensor(name, tensor);
    if (folder !== undefined) await save(join(folder, file), tensors, { metadata: { format: 'pt' } });
    for (const tensor of Object.values(tensors)) tensor.dispose();
  }
  if (folder === undefined) return;
  if (files.length > 1) {
    const entries = files.flatMap(({ file, items }) => items.map(({ name }) => [name, file]));
    const index = {
      metadata: { total_size: parts.reduce((sum, part) => sum + bytesOf(part), 0) },
      weight_map: Object.fromEntries(entries),
    };
    await writeJson(join(folder, 'model.safetensors.index.json'), index);
  }
  await writeJson(join(folder, 'config.json'), configJson(config, DTYPES[dtype]));
}
