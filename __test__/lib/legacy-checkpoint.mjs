/** Writes checkpoints as earlier versions of the trainer wrote them: everything in one safetensors file. Plain, and independent of the reader. */

import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { parameterShapes, sizeOf } from '../../packages/lm/src/model/parts.mjs';
import { Random } from '../../packages/lm/src/random.mjs';
import { modelOf } from '../../packages/lm/src/train/settings.mjs';
import { isNorm } from './gpt-reference.mjs';

/** @typedef {import('./gpt.mjs').HostState} HostState */

/**
 * What those files say of a run, by their names.
 * @typedef {{ precision: string, minLr: number, weightDecay: number, beta1: number, beta2: number, epsilon: number, clip: number, seed: number,
 *   layers: number, width: number, heads: number, hidden: number, block: number, vocab: number, batch: number, microSteps: number, lr: number,
 *   warmup: number, steps: number }} LegacyConfig
 */

/** The configuration of a small run, in the order of those files. @param {Partial<LegacyConfig>} [values] @returns {LegacyConfig} */
export const legacyConfig = (values) => ({
  ...{ precision: 'f32', minLr: 0.0003, weightDecay: 0.1, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, clip: 1, seed: 1, layers: 1, width: 32 },
  ...{ heads: 1, hidden: 4, block: 5, vocab: 256, batch: 8, microSteps: 1, lr: 0.003, warmup: 20, steps: 400 },
  ...values,
});

/** The model of such a run. @param {LegacyConfig} config */
export const modelOfLegacy = ({ layers, width, heads, hidden, block, vocab }) =>
  modelOf('helios-gpt', { layers, width, heads, hidden, blockSize: block, vocabSize: vocab });

/** The names of those files, by those of `Decoder`. @param {string} name */
const nameInFile = (name) => {
  const names = {
    embedding: 'token_embedding',
    positions: 'position_embedding',
    attentionNorm: 'attention_norm',
    'attention.out': 'attention.output',
    mlpNorm: 'mlp_norm',
    'mlp.up': 'mlp.gate_up',
  };
  const [, layer, own] = /^(layers\.\d+\.)?(.*)\.weight$/.exec(name) ?? [];
  return `${layer ?? ''}${/** @type {Record<string, string>} */ (names)[own] ?? own}.weight`;
};

/**
 * The parameters in the order of those files. Within a layer `Decoder`'s own order is another.
 * @param {LegacyConfig} config
 */
export function legacyShapes(config) {
  const shapes = parameterShapes(modelOfLegacy(config));
  const ofLayer = ['attentionNorm', 'attention.qkv', 'attention.out', 'mlpNorm', 'mlp.up', 'mlp.down'];
  const layers = Array.from({ length: config.layers }, (_, i) => ofLayer.map((name) => `layers.${i}.${name}.weight`)).flat();
  const names = ['embedding.weight', 'positions.weight', ...layers, 'norm.weight', 'head.weight'];
  return names.map((name) => /** @type {const} */ ([name, shapes[name]]));
}

/** The weights that those versions began with, by the names of `Decoder`. @param {LegacyConfig} config @returns {HostState} */
export function legacyWeights(config) {
  const residual = 0.02 / Math.sqrt(2 * config.layers);
  let matrices = 0;
  return Object.fromEntries(
    legacyShapes(config).map(([name, shape]) => {
      const values = new Float32Array(sizeOf(shape));
      if (isNorm(name)) return [name, values.fill(1)];
      const std = /\.(attention\.out|mlp\.down)\.weight$/.test(name) ? residual : 0.02;
      const random = new Random(config.seed, 1, matrices++);
      for (let i = 0; i < values.length; i++) values[i] = std * random.normal();
      return [name, values];
    }),
  );
}

/**
 * The bytes of a file.
 * @param {{ config: LegacyConfig, step: number, skipped?: number, run?: string, tokenizer?: object, data?: object,
 *   state: { weights: HostState, m: HostState, v: HostState }, order?: ReturnType<typeof legacyShapes> }} checkpoint
 * @returns {Buffer}
 */
export function legacyBytes({ config, step, skipped, run, tokenizer = { kind: 'byte' }, data, state, order = legacyShapes(config) }) {
  const parts = /** @type {const} */ ([
    ['weights', ''],
    ['m', 'optimizer.m.'],
    ['v', 'optimizer.v.'],
  ]);
  let end = 0;
  /** @type {Record<string, unknown>} */
  const entries = {};
  /** @type {Buffer[]} */
  const tensors = [];
  for (const [part, prefix] of parts) {
    for (const [name, shape] of order) {
      const { buffer, byteOffset, byteLength } = state[part][name];
      tensors.push(Buffer.from(buffer, byteOffset, byteLength));
      entries[prefix + nameInFile(name)] = { dtype: 'F32', shape, data_offsets: [end, (end += byteLength)] };
    }
  }
  const metadata = {
    file_sha256: '0'.repeat(64),
    format: 'helios-vk-gpt-2',
    step: String(step),
    ...(skipped === undefined ? {} : { skipped: String(skipped) }),
    config: JSON.stringify(config),
    tokenizer: JSON.stringify(tokenizer),
    ...(data === undefined ? {} : { data: JSON.stringify(data) }),
    ...(run === undefined ? {} : { run }),
  };
  const file = safetensors(JSON.stringify({ __metadata__: metadata, ...entries }), Buffer.concat(tensors), true);
  const sum = createHash('sha256').update(file).digest('hex');
  file.write(sum, file.indexOf('0'.repeat(64)));
  return file;
}

/** A safetensors file of a header's text. @param {string} text @param {Buffer} tensors @param {boolean} [padded] to a multiple of 8 bytes */
export function safetensors(text, tensors, padded = false) {
  const header = Buffer.from(text);
  const length = Buffer.alloc(8);
  const spaces = Buffer.alloc(padded ? -header.length & 7 : 0, ' ');
  length.writeBigUInt64LE(BigInt(header.length + spaces.length));
  return Buffer.concat([length, header, spaces, tensors]);
}

/** Writes a file. @param {string} path @param {Parameters<typeof legacyBytes>[0]} checkpoint @returns {string} the path */
export function writeLegacy(path, checkpoint) {
  writeFileSync(path, legacyBytes(checkpoint));
  return path;
}
