// Reads the checkpoints of earlier versions of this project: everything in one safetensors file.

import { SafetensorsFile, parseObject } from 'helios-vk/files';
import { createHash } from 'node:crypto';
import { parameterShapes, sizeOf } from '../model/parts.mjs';
import { MAX_STEPS, checkRun, modelOf } from './settings.mjs';

/**
 * @typedef {Record<string, Float32Array>} HostState by the names of `Decoder`'s parameters
 * @typedef {{ kind: 'byte' } | { kind: 'bpe', merges: [string, string][] }} TokenizerState
 *
 * The configuration in such a file, whose values `modelOf` and `checkRun` check.
 * @typedef {Record<'layers' | 'width' | 'heads' | 'hidden' | 'block' | 'vocab' | 'batch' | 'microSteps' | 'steps', number> &
 *   Record<'lr' | 'minLr' | 'warmup' | 'weightDecay' | 'beta1' | 'beta2' | 'epsilon' | 'clip' | 'seed', number> &
 *   { precision: import('./settings.mjs').Precision }} LegacyConfig
 *
 * What a run trained on.
 * @typedef {{ name: string, file?: string, tokens: number, validation?: number, sha256: string }} DataInfo
 *
 * @typedef {object} LegacyCheckpoint
 * @property {string} path
 * @property {import('./settings.mjs').RunConfig} config
 * @property {number} step optimizer steps done
 * @property {number} skipped how many of them the optimizer skipped
 * @property {TokenizerState} tokenizer
 * @property {DataInfo} [data] early versions lack it
 * @property {string} [run] the run's identity; early versions lack it
 * @property {{ weights: HostState, m: HostState, v: HostState }} state
 */

/** The parts of the state and the prefixes of their names, in the file's order. */
const PARTS = /** @type {const} */ ([
  ['weights', ''],
  ['m', 'optimizer.m.'],
  ['v', 'optimizer.v.'],
]);

/** The newest format of such files. A file of this format has a checksum of all its bytes. */
const FORMAT = 'helios-vk-gpt-2';

/** The format before it: with a checksum of the tensors alone, or with none. */
const EARLIER_FORMAT = 'helios-vk-gpt-1';

/** The names of the two checksums: of the file with zeros in place of the checksum's digits, and of the tensors' bytes alone. */
const FILE_CHECKSUM = 'file_sha256';
const TENSOR_CHECKSUM = 'sha256';

/** The largest vocabulary that those versions trained. */
const LARGEST_BPE_VOCAB = 30000;

/** A parameter's name in those files. @param {string} name of `Decoder`'s parameter */
const nameInFile = (name) =>
  name
    .replace(/^embedding\./, 'token_embedding.')
    .replace(/^positions\./, 'position_embedding.')
    .replace('attentionNorm.', 'attention_norm.')
    .replace('attention.out.', 'attention.output.')
    .replace('mlpNorm.', 'mlp_norm.')
    .replace('mlp.up.', 'mlp.gate_up.');

/**
 * The configuration of such a run.
 * @param {LegacyConfig} flat the object in the file
 * @returns {import('./settings.mjs').RunConfig}
 */
function configOf({ layers, width, heads, hidden, block, vocab, ...training }) {
  const { batch, microSteps, precision, lr, minLr, warmup, steps, weightDecay, beta1, beta2, epsilon, clip, seed } = training;
  return checkRun({
    model: modelOf('helios-gpt', { layers, width, heads, hidden, blockSize: block, vocabSize: vocab }),
    settings: {
      ...{ batchSize: batch, gradientAccumulationSteps: microSteps, blockSize: block, maxSteps: steps, precision, learningRate: lr },
      // Early versions let the rate rise to its end.
      ...{
        lrScheduler: 'cosine',
        warmupSteps: warmup,
        minLr: Math.min(minLr, lr),
        weightDecay,
        beta1,
        beta2,
        epsilon,
        maxGradNorm: clip,
        seed,
      },
      gradCheckpoint: false,
    },
  });
}

/**
 * Checks a file's metadata, field by field.
 * @param {string} path @param {SafetensorsFile} file
 * @throws {RangeError} that names the file and the field
 */
function checkMetadata(path, { metadata, checksum }) {
  const bad = (/** @type {string} */ field, /** @type {string} */ what) => new RangeError(`${path}: ${field} ${what}`);
  const field = (/** @type {string} */ name) => {
    if (!Object.hasOwn(metadata, name)) throw bad(name, 'is not in its metadata');
    return metadata[name];
  };
  const object = (/** @type {string} */ name) => parseObject(Buffer.from(field(name)), (what) => bad(name, what));
  const format = field('format');
  if (format !== FORMAT && format !== EARLIER_FORMAT) {
    throw new TypeError(`${path} is not a checkpoint of this trainer: its format is ${format}`);
  }
  // Otherwise one damaged byte, of the format or of this name, would make it a file without a checksum.
  if ((format === FORMAT) !== (checksum !== undefined)) {
    throw bad(FILE_CHECKSUM, format === FORMAT ? 'is not in its metadata' : `is not of the format ${format}`);
  }
  const count = (/** @type {string} */ name, /** @type {number} */ most) => {
    const text = field(name);
    if (!/^\d+$/.test(text) || Number(text) > most) {
      throw bad(name, `must be a whole number from 0 to ${most}, is ${text.slice(0, 60)}`);
    }
    return Number(text);
  };
  const step = count('step', MAX_STEPS);
  // Files of early versions say nothing of skipped steps: all count as made.
  const skipped = Object.hasOwn(metadata, 'skipped') ? count('skipped', step) : 0;
  let config;
  try {
    config = configOf(/** @type {LegacyConfig} */ (object('config')));
  } catch (error) {
    const { message } = /** @type {Error} */ (error);
    throw message.startsWith(path) ? error : bad('config', `cannot be used: ${message}`);
  }
  return {
    step,
    skipped,
    config,
    tokenizer: checkTokenizer(object('tokenizer'), config.model.vocabSize, bad),
    data: Object.hasOwn(metadata, 'data') ? checkData(object('data'), bad) : undefined,
    ...(Object.hasOwn(metadata, 'run') ? { run: metadata.run } : {}),
  };
}

/**
 * @param {Record<string, unknown>} tokenizer
 * @param {number} vocab
 * @param {(field: string, what: string) => Error} bad
 * @returns {TokenizerState}
 */
function checkTokenizer(tokenizer, vocab, bad) {
  const { kind, merges } = tokenizer;
  if (kind !== 'byte' && kind !== 'bpe') throw bad('tokenizer', `is of the kind ${JSON.stringify(kind)}, not byte or bpe`);
  if (kind === 'bpe') {
    const most = Math.min(LARGEST_BPE_VOCAB, vocab) - 256;
    if (!Array.isArray(merges) || merges.length > most) throw bad('tokenizer', `must hold at most ${most} merges`);
    const isPair = (/** @type {unknown} */ pair) =>
      Array.isArray(pair) && pair.length === 2 && pair.every((part) => typeof part === 'string');
    const wrong = merges.findIndex((pair) => !isPair(pair));
    if (wrong >= 0) throw bad('tokenizer', `holds a merge, number ${wrong}, that is not a pair of strings`);
  }
  return /** @type {TokenizerState} */ (tokenizer);
}

/** @param {unknown} value @returns {value is number} */
const isCount = (value) => typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;

/**
 * @param {Record<string, unknown>} data
 * @param {(field: string, what: string) => Error} bad
 * @returns {DataInfo}
 */
function checkData(data, bad) {
  const { name, file, tokens, validation = 0, sha256 } = data;
  if (typeof name !== 'string') throw bad('data.name', 'must be a string');
  if (file !== undefined && typeof file !== 'string') throw bad('data.file', 'must be a string');
  if (!isCount(tokens)) throw bad('data.tokens', `must be a count, is ${JSON.stringify(tokens)}`);
  if (!isCount(validation) || validation > tokens) {
    throw bad('data.validation', `must be a count of at most ${tokens} tokens, is ${JSON.stringify(validation)}`);
  }
  if (typeof sha256 !== 'string' || !/^[0-9a-f]{64}$/.test(sha256)) throw bad('data.sha256', 'must be a SHA-256');
  return /** @type {DataInfo} */ (data);
}

/**
 * Reads a checkpoint of an earlier version.
 * @param {string} path
 * @returns {Promise<LegacyCheckpoint>}
 * @throws {Error} that names the file and what in it cannot be used
 */
export async function loadLegacy(path) {
  const file = await SafetensorsFile.open(path, (what) => new RangeError(`${path} is not a safetensors file: ${what}`), FILE_CHECKSUM);
  try {
    const info = checkMetadata(path, file);
    // All sizes are checked before any memory is allocated for them.
    /** @type {Map<string, { part: 'weights' | 'm' | 'v', name: string, size: number }>} */
    const wanted = new Map();
    for (const [part, prefix] of PARTS) {
      for (const [name, shape] of Object.entries(parameterShapes(info.config.model))) {
        expectTensor(path, file, prefix + nameInFile(name), 'F32', shape);
        wanted.set(prefix + nameInFile(name), { part, name, size: sizeOf(shape) });
      }
    }
    const more = [...file.tensors.keys()].find((name) => !wanted.has(name));
    if (more !== undefined) throw new RangeError(`${path}: its model has no tensor ${more}`);
    /** @type {LegacyCheckpoint['state']} */
    const state = { weights: {}, m: {}, v: {} };
    const verification = verificationOf(file);
    /** @type {string | undefined} */
    let unusable;
    for (const key of file.tensors.keys()) {
      const { part, name, size } = /** @type {{ part: 'weights' | 'm' | 'v', name: string, size: number }} */ (wanted.get(key));
      const values = new Float32Array(size);
      await file.read(key, values, verification?.hash);
      // A run would continue from such a value without an error: not every step computes with every weight.
      const at = values.findIndex((value) => !Number.isFinite(value) || (part === 'v' && value < 0));
      if (at >= 0) unusable ??= `element ${at} of ${key} is ${values[at]}`;
      state[part][name] = values;
    }
    // Damage first: it explains the other.
    const damage = verification?.finish();
    if (damage) throw new RangeError(`${path} is damaged: ${damage}`);
    if (unusable) throw new RangeError(`${path} cannot be used: ${unusable}`);
    return { path, ...info, state };
  } finally {
    await file.close();
  }
}

/**
 * Throws where a file has no tensor of this name, type and shape.
 * @param {string} path @param {SafetensorsFile} file
 * @param {string} name @param {string} dtype @param {number[]} shape
 */
function expectTensor(path, file, name, dtype, shape) {
  const found = file.tensors.get(name);
  if (!found) throw new RangeError(`${path} has no tensor ${name}`);
  if (found.dtype !== dtype || found.shape.join() !== shape.join()) {
    throw new RangeError(`${path}: ${name} is ${found.dtype} [${found.shape}], expected ${dtype} [${shape}]`);
  }
}

/** Begins to verify the checksum of a file of any of those versions. @param {SafetensorsFile} file @returns {ReturnType<SafetensorsFile['verification']>} */
function verificationOf(file) {
  if (file.checksum !== undefined || !Object.hasOwn(file.metadata, TENSOR_CHECKSUM)) return file.verification();
  const said = file.metadata[TENSOR_CHECKSUM];
  const hash = createHash('sha256');
  const finish = () => {
    const found = hash.digest('hex');
    return found === said ? undefined : `its tensors have the SHA-256 ${found}, its metadata says ${said} (${TENSOR_CHECKSUM})`;
  };
  return { hash, finish };
}
