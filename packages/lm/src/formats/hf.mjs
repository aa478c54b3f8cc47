// Reads and writes models as Hugging Face folders: `config.json`, one or several safetensors files, and the files of the tokenizer.

import { cpSync, existsSync, readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { F, load, nn, noGrad, save, scope } from 'helios-vk/nn';

import { configJson, readConfig } from '../config.mjs';
import { checkNewFolder, makeFolder } from '../folder.mjs';
import { Decoder } from '../model/decoder.mjs';

/** @typedef {import('../config.mjs').ModelConfig} ModelConfig */

/** Files that `exportModel` copies unchanged. */
const COMPANIONS = [
  'tokenizer.json',
  'tokenizer_config.json',
  'special_tokens_map.json',
  'chat_template.jinja',
  'additional_chat_templates',
  'generation_config.json',
  'vocab.json',
  'merges.txt',
];

/** Buffers that older versions of transformers wrote into the files; they can be computed, so they are ignored. */
const BUFFERS = /\.(rotary_emb\.inv_freq|attn\.(bias|masked_bias))$/;

const DTYPES = /** @type {const} */ ({ f32: 'float32', f16: 'float16', bf16: 'bfloat16' });

/**
 * A tensor of the files, and the part of a `Decoder` parameter that it corresponds to.
 * @typedef {object} Part
 * @property {string} name in the file
 * @property {number[]} shape in the file
 * @property {string} parameter name in the `Decoder`
 * @property {number} [row] first row of the parameter that it fills; the whole parameter when left out
 * @property {boolean} [transposed] whether the file has the transpose of the parameter (GPT-2's Conv1D)
 */

/**
 * The tensors of a model's files, in layer order.
 * @param {ModelConfig} config
 * @returns {Part[]}
 */
export const partsOf = (config) => (config.family === 'gpt2' ? gpt2Parts(config) : llamaParts(config));

/** @param {ModelConfig} config @returns {Part[]} */
function llamaParts(config) {
  const { vocabSize, width, layers, heads, kvHeads, headSize, hidden, qkNorm, placement } = config;
  const [queries, keys] = [heads * headSize, kvHeads * headSize];
  const ofLayer = (/** @type {number} */ i) => {
    const [file, own] = [`model.layers.${i}.`, `layers.${i}.`];
    /**
     * The weight of a linear layer, and its bias.
     * @param {string} name @param {string} parameter @param {number} rows @param {number} columns @param {boolean} bias @param {number} [row]
     */
    const linear = (name, parameter, rows, columns, bias, row) => [
      { name: `${file}${name}.weight`, shape: [rows, columns], parameter: `${own}${parameter}.weight`, row },
      ...(bias ? [{ name: `${file}${name}.bias`, shape: [rows], parameter: `${own}${parameter}.bias`, row }] : []),
    ];
    const norm = (/** @type {string} */ name, /** @type {string} */ parameter, columns = width) => ({
      name: `${file}${name}.weight`,
      shape: [columns],
      parameter: `${own}${parameter}.weight`,
    });
    const norms =
      placement === 'post' ? ['post_attention_layernorm', 'post_feedforward_layernorm'] : ['input_layernorm', 'post_attention_layernorm'];
    return [
      ...linear('self_attn.q_proj', 'attention.qkv', queries, width, config.qkvBias, 0),
      ...linear('self_attn.k_proj', 'attention.qkv', keys, width, config.qkvBias, queries),
      ...linear('self_attn.v_proj', 'attention.qkv', keys, width, config.qkvBias, queries + keys),
      ...linear('self_attn.o_proj', 'attention.out', width, queries, config.outBias),
      ...(qkNorm === 'none'
        ? []
        : [
            norm('self_attn.q_norm', 'attention.qNorm', qkNorm === 'head' ? headSize : queries),
            norm('self_attn.k_norm', 'attention.kNorm', qkNorm === 'head' ? headSize : keys),
          ]),
      ...linear('mlp.gate_proj', 'mlp.up', hidden, width, config.mlpBias, 0),
      ...linear('mlp.up_proj', 'mlp.up', hidden, width, config.mlpBias, hidden),
      ...linear('mlp.down_proj', 'mlp.down', width, hidden, config.mlpBias),
      norm(norms[0], 'attentionNorm'),
      norm(norms[1], 'mlpNorm'),
    ];
  };
  return [
    { name: 'model.embed_tokens.weight', shape: [vocabSize, width], parameter: 'embedding.weight' },
    ...Array.from({ length: layers }, (_, i) => ofLayer(i)).flat(),
    { name: 'model.norm.weight', shape: [width], parameter: 'norm.weight' },
    ...(config.tied ? [] : [{ name: 'lm_head.weight', shape: [vocabSize, width], parameter: 'head.weight' }]),
  ];
}

/** @param {ModelConfig} config @returns {Part[]} */
function gpt2Parts({ vocabSize, width, layers, hidden, context, tied }) {
  const ofLayer = (/** @type {number} */ i) => {
    const [file, own] = [`transformer.h.${i}.`, `layers.${i}.`];
    const conv = (
      /** @type {string} */ name,
      /** @type {string} */ parameter,
      /** @type {number} */ inputs,
      /** @type {number} */ outputs,
    ) => [
      { name: `${file}${name}.weight`, shape: [inputs, outputs], parameter: `${own}${parameter}.weight`, transposed: true },
      { name: `${file}${name}.bias`, shape: [outputs], parameter: `${own}${parameter}.bias` },
    ];
    const norm = (/** @type {string} */ name, /** @type {string} */ parameter) =>
      ['weight', 'bias'].map((part) => ({ name: `${file}${name}.${part}`, shape: [width], parameter: `${own}${parameter}.${part}` }));
    return [
      ...norm('ln_1', 'attentionNorm'),
      ...conv('attn.c_attn', 'attention.qkv', width, 3 * width),
      ...conv('attn.c_proj', 'attention.out', width, width),
      ...norm('ln_2', 'mlpNorm'),
      ...conv('mlp.c_fc', 'mlp.up', width, hidden),
      ...conv('mlp.c_proj', 'mlp.down', hidden, width),
    ];
  };
  return [
    { name: 'transformer.wte.weight', shape: [vocabSize, width], parameter: 'embedding.weight' },
    { name: 'transformer.wpe.weight', shape: [context, width], parameter: 'positions.weight' },
    ...Array.from({ length: layers }, (_, i) => ofLayer(i)).flat(),
    ...['weight', 'bias'].map((part) => ({ name: `transformer.ln_f.${part}`, shape: [width], parameter: `norm.${part}` })),
    ...(tied ? [] : [{ name: 'lm_head.weight', shape: [vocabSize, width], parameter: 'head.weight' }]),
  ];
}

/**
 * Reads a model from a folder. Weights are converted to f32, one file at a time; the checksum of a file that `exportModel` wrote is verified.
 * @param {string} folder with `config.json` and safetensors files, as transformers' `save_pretrained` and `exportModel` write it
 * @param {{ signal?: AbortSignal }} [options] `signal`: ends it with an AbortError before the next file
 * @returns {Promise<Decoder>} with f32 parameters
 * @throws {Error} that names the folder and the tensor or key, for a family that is not supported, missing or unexpected tensors, and shapes
 *   that do not match `config.json`
 */
export async function importModel(folder, { signal } = {}) {
  const config = readConfig(folder);
  const parts = partsOf(config);
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
  const model = nn.skipInit(() => new Decoder(config));
  try {
    const state = model.stateDict();
    for (const file of filesOf(folder)) {
      signal?.throwIfAborted();
      const tensors = await load(join(folder, file));
      const held = parts.filter((part) => Object.hasOwn(tensors, nameOf(part)));
      for (const part of held) {
        const { shape } = tensors[nameOf(part)];
        if (String(shape) !== String(part.shape)) {
          throw new Error(`${folder}: ${nameOf(part)} is [${shape.join(', ')}], expected [${part.shape.join(', ')}] by config.json`);
        }
      }
      noGrad(() =>
        scope(() => {
          for (const part of held) {
            const source = F.to(tensors[nameOf(part)], 'f32');
            const rows = part.transposed ? F.transpose(source, 0, 1) : source;
            placeOf(state[part.parameter], part, rows.shape[0]).copy_(rows);
          }
        }),
      );
      for (const tensor of Object.values(tensors)) tensor.dispose();
    }
    return model;
  } catch (error) {
    model.dispose();
    throw error;
  }
}

/** The rows of a parameter that a part fills, as a view. @param {import('helios-vk/nn').Tensor} parameter @param {Part} part @param {number} rows */
const placeOf = (parameter, { row }, rows) => (row === undefined ? parameter : F.slice(parameter, 0, row, row + rows));

/** The safetensors files of a model: one, or those of its index. @param {string} folder @returns {string[]} */
function filesOf(folder) {
  if (existsSync(join(folder, 'model.safetensors'))) return ['model.safetensors'];
  const { weight_map: map } = JSON.parse(readFileSync(join(folder, 'model.safetensors.index.json'), 'utf8'));
  return [...new Set(/** @type {string[]} */ (Object.values(map)))];
}

/**
 * Options of `exportModel`.
 * @typedef {object} ExportOptions
 * @property {'f32' | 'f16' | 'bf16'} [dtype] of the weights in the files; bf16 when left out
 * @property {number} [maxShardBytes] the most bytes of weights in a file; 5e9 when left out. A larger tensor gets a file of its own
 * @property {AbortSignal} [signal] ends it with an AbortError before the next file; nothing is left behind
 * @property {string} [companions] a folder from which the tokenizer, chat template and generation settings are copied; none when left out
 */

/**
 * Writes a model in the format of transformers' `save_pretrained`. The folder appears once it is complete, or not at all.
 * @param {Decoder} model @param {string} folder must not exist, or be empty
 * @param {ExportOptions} [options]
 * @throws {RangeError} for an unknown dtype; {Error} if the folder is not empty or lies inside `companions`
 */
export async function exportModel(model, folder, { dtype = 'bf16', maxShardBytes = 5e9, companions, signal } = {}) {
  if (!(maxShardBytes > 0)) throw new RangeError(`exportModel: maxShardBytes is a number above 0, got ${maxShardBytes}`);
  if (!Object.hasOwn(DTYPES, dtype)) throw new RangeError(`exportModel: no dtype ${dtype}; there are ${Object.keys(DTYPES).join(', ')}`);
  checkNewFolder(folder, companions === undefined ? [] : [companions]);
  const { config } = model;
  const width = dtype === 'f32' ? 4 : 2;
  const bytesOf = (/** @type {Part} */ { shape }) => width * shape.reduce((a, b) => a * b, 1);
  const parts = partsOf(config);
  /** @type {Part[][]} */
  const shards = [[]];
  let filled = 0;
  for (const part of parts) {
    if (filled > 0 && filled + bytesOf(part) > maxShardBytes) {
      shards.push([]);
      filled = 0;
    }
    shards[shards.length - 1].push(part);
    filled += bytesOf(part);
  }
  const count = String(shards.length).padStart(5, '0');
  const fileOf = (/** @type {number} */ i) =>
    shards.length === 1 ? 'model.safetensors' : `model-${String(i + 1).padStart(5, '0')}-of-${count}.safetensors`;
  await makeFolder(folder, async (partial) => {
    const state = model.stateDict();
    for (const [i, shard] of shards.entries()) {
      signal?.throwIfAborted();
      const tensors = noGrad(() =>
        scope(() =>
          Object.fromEntries(
            shard.map((part) => {
              const parameter = state[part.parameter];
              const rows = part.row === undefined ? parameter : F.slice(parameter, 0, part.row, part.row + part.shape[0]);
              return [part.name, F.to(F.clone(part.transposed ? F.transpose(rows, 0, 1) : rows), dtype)];
            }),
          ),
        ),
      );
      await save(join(partial, fileOf(i)), tensors, { metadata: { format: 'pt' } });
      for (const tensor of Object.values(tensors)) tensor.dispose();
    }
    if (shards.length > 1) {
      const entries = shards.flatMap((shard, i) => shard.map(({ name }) => [name, fileOf(i)]));
      const index = {
        metadata: { total_size: parts.reduce((sum, part) => sum + bytesOf(part), 0) },
        weight_map: Object.fromEntries(entries),
      };
      await writeJson(join(partial, 'model.safetensors.index.json'), index);
    }
    await writeJson(join(partial, 'config.json'), configJson(config, DTYPES[dtype]));
    for (const name of companions === undefined ? [] : COMPANIONS) {
      const path = join(/** @type {string} */ (companions), name);
      if (existsSync(path)) cpSync(path, join(partial, name), { recursive: true });
    }
  });
}

/** @param {string} path @param {object} value */
const writeJson = (path, value) => writeFile(path, `${JSON.stringify(value, null, 2)}\n`, { flush: true });
