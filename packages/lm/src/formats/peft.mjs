// Reads and writes adapters as PEFT's folders: `adapter_config.json` and `adapter_model.safetensors`.

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { noGrad, openTensors, save, scope, tensor } from 'helios-vk/nn';

import { checkNewFolder, makeFolder, writeFiles, writeJson } from '../folder.mjs';
import { readJson } from '../json.mjs';
import { adapterPlaces, adaptersOf, isTarget, placeAdapters } from '../model/lora.mjs';
import { toF32 } from './quant.mjs';

/** @typedef {import('../model/lora.mjs').Place} Place */
/** @typedef {import('../model/decoder.mjs').Decoder} Decoder */

const [CONFIG, WEIGHTS] = ['adapter_config.json', 'adapter_model.safetensors'];

/** PEFT's name of a matrix. @param {string} path of the module @param {'A' | 'B'} which */
const keyOf = (path, which) => `base_model.model.${path}.lora_${which}.weight`;

/**
 * An adapter of one linear layer, on the host: W + scale · B A.
 * @typedef {object} Matrices
 * @property {Place} place
 * @property {Required<import('../model/lora.mjs').AdapterOptions>} options
 * @property {number} scale
 * @property {Float32Array} a [rank, inputs]
 * @property {Float32Array} b [outputs, rank]
 */

/** Keys whose values change what an adapter computes, with the only values that are read. @type {Record<string, readonly unknown[]>} */
const PLAIN = {
  bias: ['none'],
  modules_to_save: [null],
  layer_replication: [null],
  trainable_token_indices: [null],
  target_parameters: [null],
  alora_invocation_tokens: [null],
  arrow_config: [null],
  kasa_config: [null],
  monteclora_config: [null],
  velora_config: [null],
  lora_bias: [false],
  // The other ways to begin change the frozen weights too.
  init_lora_weights: [true, false, 'gaussian', 'eva', 'orthogonal'],
};

/** A whole name, as an expression of PEFT's; undefined for what is none. @param {string} source */
function expressionOf(source) {
  try {
    return new RegExp(`^(?:${source})$`);
  } catch {
    return undefined;
  }
}

/**
 * Reads `adapter_config.json`.
 * @param {string} path of the file
 * @returns {{ base: string | undefined, dropout: number, isTarget: (path: string) => boolean, partly: boolean,
 *   optionsOf: (path: string) => Matrices['options'] }} `partly`: whether targets may be without an adapter
 */
function readAdapterConfig(path) {
  const json = readJson(path);
  const fail = (/** @type {string} */ key, /** @type {unknown} */ value, /** @type {string} */ expected) =>
    new Error(`${path}: "${key}" is ${value === undefined ? 'missing' : JSON.stringify(value)}, expected ${expected}`);
  if (json?.peft_type !== 'LORA') throw fail('peft_type', json?.peft_type, '"LORA"');
  for (const [key, values] of Object.entries(PLAIN)) {
    const value = Array.isArray(json[key]) && json[key].length === 0 ? null : json[key];
    if (value !== undefined && !values.includes(value) && !(value === null && values[0] === false))
      throw fail(key, value, values.map((each) => JSON.stringify(each)).join(', '));
  }
  // DoRA and others: each computes something else of the same matrices.
  const other = Object.keys(json).find((key) => key.startsWith('use_') && key !== 'use_rslora' && json[key]);
  if (other) throw fail(other, json[other], 'false: only plain LoRA is read');
  const targets = json.target_modules;
  /** `rank_pattern` or `alpha_pattern`: values by expressions for the ends of modules' paths. @param {string} key @returns {(path: string) => unknown} */
  const patternsOf = (key) => {
    const patterns = Object.entries(json[key] ?? {}).map(([source, value]) => ({ is: expressionOf(`(?:.*\\.)?(?:${source})`), value }));
    if (patterns.some(({ is }) => !is)) throw fail(key, json[key], 'expressions by which modules are named');
    return (module) => patterns.find(({ is }) => is?.test(module))?.value;
  };
  const [ranks, alphas] = [patternsOf('rank_pattern'), patternsOf('alpha_pattern')];
  const listed = Array.isArray(targets) && targets.length > 0 && targets.every((each) => typeof each === 'string');
  const expression = typeof targets === 'string' && targets !== '' && targets !== 'all-linear' ? expressionOf(targets) : undefined;
  if (!listed && !expression && targets !== 'all-linear') throw fail('target_modules', targets, 'a list of names, or an expression');
  const dropout = json.lora_dropout ?? 0;
  if (!(typeof dropout === 'number' && dropout >= 0 && dropout < 1)) throw fail('lora_dropout', dropout, 'a number from 0 and below 1');
  const rslora = json.use_rslora ?? false;
  if (typeof rslora !== 'boolean') throw fail('use_rslora', rslora, 'true or false');
  return {
    base: json.base_model_name_or_path ?? undefined,
    dropout,
    isTarget: (module) =>
      targets === 'all-linear' ||
      (expression ? expression.test(module) : targets.some((/** @type {string} */ each) => isTarget(module, each))),
    partly: [json.layers_to_transform, json.exclude_modules].some((value) => value !== undefined && value !== null),
    optionsOf: (module) => {
      const rank = ranks(module) ?? json.r;
      const alpha = alphas(module) ?? json.lora_alpha;
      if (!(Number.isInteger(rank) && rank >= 1)) throw fail('r', rank, 'an integer of at least 1');
      if (!Number.isFinite(alpha)) throw fail('lora_alpha', alpha, 'a number');
      return { rank, alpha, rslora, dropout };
    },
  };
}

/**
 * Reads an adapter of a model into memory of the host.
 * @param {string} folder with `adapter_config.json` and `adapter_model.safetensors`, as PEFT and `savePeft` write them
 * @param {import('../config.mjs').ModelConfig} config of the model that the adapter belongs to
 * @returns {Promise<{ base: string | undefined, matrices: Matrices[] }>} `base`: what the file calls the model; `matrices` in the order of the
 *   model's files
 * @throws {Error} that names the file and the key, with what is there and what was expected: for other kinds of adapters than LoRA, layers that
 *   the model does not have, missing matrices and other shapes
 */
export async function readPeft(folder, config) {
  const adapter = readAdapterConfig(join(folder, CONFIG));
  const path = join(folder, WEIGHTS);
  if (!existsSync(path)) throw new Error(`${folder} has no ${WEIGHTS}, which PEFT writes with safe_serialization=True`);
  const file = await openTensors(path);
  try {
    /** @param {string} key @param {number[]} shape @returns {Promise<Float32Array>} */
    const read = async (key, shape) => {
      const info = file.tensors.get(key);
      if (!info) throw new Error(`${path} has no ${key}, expected [${shape.join(', ')}]`);
      if (String(info.shape) !== String(shape))
        throw new Error(`${path}: ${key} is [${info.shape.join(', ')}], expected [${shape.join(', ')}] by ${CONFIG} and the model`);
      const type = /** @type {'f32' | 'f16' | 'bf16'} */ (info.dtype.toLowerCase());
      if (!['f32', 'f16', 'bf16'].includes(type)) throw new Error(`${path}: ${key} is ${info.dtype}, expected F32, F16 or BF16`);
      const bytes = new Uint8Array(info.bytes);
      await info.read(bytes);
      return toF32(type, bytes);
    };
    const known = new Set();
    /** @type {Matrices[]} */
    const matrices = [];
    for (const place of adapterPlaces(config)) {
      const [a, b] = [keyOf(place.path, 'A'), keyOf(place.path, 'B')];
      known.add(a).add(b);
      const present = file.tensors.has(a) || file.tensors.has(b);
      if (!present && (adapter.partly || !adapter.isTarget(place.path))) continue;
      const options = adapter.optionsOf(place.path);
      const { rank, alpha, rslora } = options;
      const [inner, outer] = [await read(a, [rank, place.inputs]), await read(b, [place.outputs, rank])];
      matrices.push({ place, options, scale: alpha / (rslora ? Math.sqrt(rank) : rank), a: inner, b: outer });
    }
    const extra = [...file.tensors.keys()].find((key) => !known.has(key));
    if (extra !== undefined)
      throw new Error(`${path} has ${extra}, expected keys such as ${[...known][0]}, of linear layers of a ${config.family}`);
    if (matrices.length === 0) throw new Error(`${path} has no tensors, expected keys such as ${[...known][0]}`);
    return { base: adapter.base, matrices };
  } finally {
    await file.close();
  }
}

/**
 * Freezes a decoder and gives it the adapters of a folder, in f32, in place.
 * @param {string} folder as for `readPeft` @param {Decoder} decoder without adapters
 * @returns {Promise<{ base: string | undefined }>} what the file calls the model
 * @throws {Error} as `readPeft`, and if the decoder has adapters already
 */
export async function loadPeft(folder, decoder) {
  const { base, matrices } = await readPeft(folder, decoder.config);
  placeAdapters(decoder, matrices);
  setAdapters(decoder, matrices);
  return { base };
}

/**
 * Reads a folder's matrices into the adapters that a decoder has.
 * @param {string} folder as for `readPeft` @param {Decoder} decoder whose adapters have the places and sizes of the folder's
 */
export async function readAdapters(folder, decoder) {
  setAdapters(decoder, (await readPeft(folder, decoder.config)).matrices);
}

/** @param {Decoder} decoder @param {Matrices[]} matrices of each of its adapters */
function setAdapters(decoder, matrices) {
  noGrad(() =>
    scope(() => {
      for (const [i, { adapter }] of adaptersOf(decoder).entries()) {
        const { a, b } = matrices[i];
        adapter.lora_A.weight.copy_(tensor(a, { shape: adapter.lora_A.weight.shape }));
        adapter.lora_B.weight.copy_(tensor(b, { shape: adapter.lora_B.weight.shape }));
      }
    }),
  );
}

/**
 * Writes a decoder's adapters as PEFT's folder, which appears once it is complete, or not at all.
 * @param {string} folder must not exist, or be empty @param {Decoder} decoder with adapters
 * @param {{ base?: string, files?: Record<string, string> }} [options] `base`: what PEFT loads the model from, a folder or a name; `files`: further
 *   files by name, such as a tokenizer's `files()`
 * @throws {Error} if the folder is not empty, or the decoder has no adapters
 */
export async function savePeft(folder, decoder, { base, files = {} } = {}) {
  checkAdapters(decoder);
  checkNewFolder(folder, []);
  await makeFolder(folder, async (partial) => {
    await writePeft(partial, decoder, { base });
    await writeFiles(partial, files);
  });
}

/** @param {Decoder} decoder */
function checkAdapters(decoder) {
  const adapters = adaptersOf(decoder);
  if (adapters.length === 0) throw new Error('the decoder has no adapters to save');
  return adapters;
}

/** Writes the two files into a folder that is there. @param {string} folder @param {Decoder} decoder @param {{ base?: string }} [options] as for `savePeft` */
export async function writePeft(folder, decoder, { base } = {}) {
  const adapters = checkAdapters(decoder);
  const entries = adapters.flatMap(({ place, adapter }) => [
    [keyOf(place.path, 'A'), adapter.lora_A.weight],
    [keyOf(place.path, 'B'), adapter.lora_B.weight],
  ]);
  await save(join(folder, WEIGHTS), Object.fromEntries(entries), { metadata: { format: 'pt' } });
  await writeJson(join(folder, CONFIG), adapterJson(decoder, base));
}

/** The contents of `adapter_config.json`. @param {Decoder} decoder @param {string} [base] */
function adapterJson(decoder, base) {
  const adapters = adaptersOf(decoder);
  const [{ adapter: first }] = adapters;
  const has = new Set(adapters.map(({ place }) => place.path));
  const all = adapterPlaces(decoder.config);
  // A last word names layers where each layer that it names has an adapter; otherwise whole paths do.
  const names = [...new Set(adapters.map(({ place }) => place.name))];
  const byName = all.every(({ path, name }) => !names.includes(name) || has.has(path));
  /** The values that differ from the first adapter's, by path. @param {'rank' | 'alpha'} key */
  const others = (key) =>
    Object.fromEntries(
      adapters
        .filter(({ adapter }) => adapter[key] !== first[key])
        .map(({ place, adapter }) => [`^${place.path.replaceAll('.', '\\.')}`, adapter[key]]),
    );
  return {
    peft_type: 'LORA',
    task_type: 'CAUSAL_LM',
    base_model_name_or_path: base ?? null,
    inference_mode: true,
    r: first.rank,
    lora_alpha: first.alpha,
    lora_dropout: first.dropout,
    target_modules: byName ? names : adapters.map(({ place }) => place.path),
    rank_pattern: others('rank'),
    alpha_pattern: others('alpha'),
    use_rslora: first.rslora,
    use_dora: false,
    bias: 'none',
    modules_to_save: null,
    fan_in_fan_out: decoder.config.family === 'gpt2',
    init_lora_weights: true,
  };
}
