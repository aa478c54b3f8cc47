/**
 * Checkpoints: everything that a run needs to continue as if it had never stopped, in one safetensors file. The weights have the names of
 * `Gpt.stateDict()`; the moments have the same names with the prefixes `optimizer.m.` and `optimizer.v.`.
 */

import { randomBytes } from 'node:crypto';
import { mkdir, readdir, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { parseObject } from 'helios-vk/files';
import { UsageError } from 'helios-vk/options';
import { MAX_STEPS, checkConfig, flatConfig, splitConfig } from './config.mjs';
import { LOCK } from './outputs.mjs';
import { parameterShapes, sizeOf } from './state.mjs';
import { FILE_CHECKSUM, expectTensor, openTensors, verificationOf, writeTensors } from './safetensors.mjs';
import { LARGEST_BPE_VOCAB } from './tokenizer.mjs';

/**
 * @typedef {import('./state.mjs').HostState} HostState
 *
 * @typedef {object} TrainingState
 * @property {number} step optimizer steps done
 * @property {number} [skipped] how many of them the optimizer skipped because gradients were not finite; 0 when left out
 * @property {HostState} weights
 * @property {HostState} m first moments
 * @property {HostState} v second moments
 *
 * @typedef {object} RunInfo
 * @property {import('./config.mjs').GptConfig} config
 * @property {import('./tokenizer.mjs').TokenizerState} tokenizer
 * @property {import('./data.mjs').DataInfo} [data] the data that the run trains on; checkpoints of early versions lack it
 * @property {string} [run] the run's identity; checkpoints of earlier versions lack it
 *
 * @typedef {RunInfo & {path: string, step: number, state: TrainingState}} Checkpoint
 */

/** The parts of the state and the prefixes of their names, in the file's order. */
const PARTS = /** @type {const} */ ([
  ['weights', ''],
  ['m', 'optimizer.m.'],
  ['v', 'optimizer.v.'],
]);

/** The format that is written. A file of this format has a checksum of all its bytes. */
const FORMAT = 'helios-vk-gpt-2';

/** The format of earlier versions, which is read too: with a checksum of the tensors alone, or with none. */
const EARLIER_FORMAT = 'helios-vk-gpt-1';

/** Matches the names of the files that a run reads and writes in its checkpoint folder. */
export const CHECKPOINT_FILES = new RegExp(`^(step-\\d+\\.safetensors|${LOCK.replaceAll('.', '\\.')})$`);

/** The file of a step. @param {string} folder @param {number} step */
export function checkpointPath(folder, step) {
  return join(folder, `step-${String(step).padStart(7, '0')}.safetensors`);
}

/**
 * Writes a checkpoint.
 * @param {string} folder made if it does not exist
 * @param {RunInfo} info
 * @param {number} step optimizer steps done
 * @param {(part: 'weights' | 'm' | 'v') => HostState | Promise<HostState>} read gives a part of the state; one is in memory at a time
 * @param {number} [skipped] as in the state
 * @returns {Promise<string>} the file's path
 */
export async function saveCheckpoint(folder, { config, tokenizer, data, run }, step, read, skipped = 0) {
  await mkdir(folder, { recursive: true });
  const path = checkpointPath(folder, step);
  const shapes = Object.entries(parameterShapes(config.model));
  const tensors = PARTS.flatMap(([part, prefix]) => {
    /** @type {HostState | undefined} */
    let values;
    return shapes.map(([name, shape], index) => ({
      name: prefix + name,
      dtype: 'F32',
      shape,
      data: async () => {
        values ??= await read(part);
        const data = values[name];
        if (index === shapes.length - 1) values = undefined;
        return data;
      },
    }));
  });
  const metadata = {
    format: FORMAT,
    step: String(step),
    ...(skipped === 0 ? {} : { skipped: String(skipped) }),
    config: JSON.stringify(flatConfig(config)),
    tokenizer: JSON.stringify(tokenizer),
    ...(data === undefined ? {} : { data: JSON.stringify(data) }),
    ...(run === undefined ? {} : { run }),
  };
  await writeTensors(path, tensors, metadata, { checksum: true });
  return path;
}

/**
 * Writes weights without moments, for another program to start from.
 * @param {string} path @param {import('./config.mjs').GptConfig} config
 * @param {HostState} weights
 */
export function saveWeights(path, config, weights) {
  const tensors = Object.entries(parameterShapes(config.model)).map(([name, shape]) => {
    return { name, dtype: /** @type {const} */ ('F32'), shape, data: () => weights[name] };
  });
  return writeTensors(path, tensors, { config: JSON.stringify(flatConfig(config)) });
}

/**
 * Checks a file's metadata, field by field.
 * @param {string} path @param {import('helios-vk/files').SafetensorsFile} file
 * @returns {RunInfo & {step: number, skipped: number}}
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
    config = checkConfig(splitConfig(/** @type {any} */ (object('config'))));
  } catch (error) {
    const { message } = /** @type {Error} */ (error);
    throw message.startsWith(path) ? error : bad('config', `cannot be used: ${message}`);
  }
  return {
    step,
    skipped,
    config,
    tokenizer: checkTokenizer(object('tokenizer'), config.model.vocab, bad),
    data: Object.hasOwn(metadata, 'data') ? checkData(object('data'), bad) : undefined,
    ...(Object.hasOwn(metadata, 'run') ? { run: metadata.run } : {}),
  };
}

/**
 * @param {any} tokenizer
 * @param {number} vocab
 * @param {(field: string, what: string) => Error} bad
 * @returns {import('./tokenizer.mjs').TokenizerState}
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
  return tokenizer;
}

/**
 * @param {any} data
 * @param {(field: string, what: string) => Error} bad
 * @returns {import('./data.mjs').DataInfo}
 */
function checkData(data, bad) {
  const { name, file, tokens, validation = 0, sha256 } = data;
  if (typeof name !== 'string') throw bad('data.name', 'must be a string');
  if (file !== undefined && typeof file !== 'string') throw bad('data.file', 'must be a string');
  if (!Number.isSafeInteger(tokens) || tokens < 0) throw bad('data.tokens', `must be a count, is ${JSON.stringify(tokens)}`);
  if (!Number.isSafeInteger(validation) || validation < 0 || validation > tokens) {
    throw bad('data.validation', `must be a count of at most ${tokens} tokens, is ${JSON.stringify(validation)}`);
  }
  if (typeof sha256 !== 'string' || !/^[0-9a-f]{64}$/.test(sha256)) throw bad('data.sha256', 'must be a SHA-256');
  return data;
}

/**
 * Reads a checkpoint.
 * @overload
 * @param {string} path a file, or a folder: its latest checkpoint
 * @returns {Promise<Checkpoint>}
 * @throws {Error} that names the file. Where the latest checkpoint of a folder cannot be read, the error also names the one before it,
 *   which is never used in its place
 */
/**
 * Reads a checkpoint's weights; its moments are checked, but not kept.
 * @overload
 * @param {string} path a file, or a folder: its latest checkpoint
 * @param {{ moments: false }} options
 * @returns {Promise<Omit<Checkpoint, 'state'> & { state: Omit<TrainingState, 'm' | 'v'> }>}
 * @throws {Error} as above
 */
/**
 * @param {string} path @param {{ moments?: boolean }} [options]
 * @returns {Promise<any>}
 */
export async function loadCheckpoint(path, { moments = true } = {}) {
  if (!(await stat(path)).isDirectory()) return readCheckpoint(path, moments);
  const latest = await latestCheckpoint(path);
  if (latest === undefined) throw new Error(`${path} holds no checkpoint (step-*.safetensors)`);
  try {
    return await readCheckpoint(latest, moments);
  } catch (cause) {
    const before = (await checkpointsIn(path)).at(-2);
    if (before === undefined) throw cause;
    throw new Error(`${/** @type {Error} */ (cause).message}; the one before it is ${before}`, { cause });
  }
}

/** @param {string} found a file @param {boolean} moments whether they are kept */
async function readCheckpoint(found, moments) {
  const file = await openTensors(found);
  try {
    const { config, step, skipped, tokenizer, data, run } = checkMetadata(found, file);
    // All sizes are checked before any memory is allocated for them.
    /** @type {Map<string, {part: 'weights' | 'm' | 'v', name: string, size: number}>} */
    const wanted = new Map();
    for (const [part, prefix] of PARTS) {
      for (const [name, shape] of Object.entries(parameterShapes(config.model))) {
        expectTensor(found, file, prefix + name, 'F32', shape);
        wanted.set(prefix + name, { part, name, size: sizeOf(shape) });
      }
    }
    const more = [...file.tensors.keys()].find((name) => !wanted.has(name));
    if (more !== undefined) throw new RangeError(`${found}: its model has no tensor ${more}`);
    const state = {
      step,
      ...(skipped === 0 ? {} : { skipped }),
      weights: /** @type {HostState} */ ({}),
      ...(moments ? { m: /** @type {HostState} */ ({}), v: /** @type {HostState} */ ({}) } : {}),
    };
    const verification = verificationOf(file);
    /** @type {string | undefined} */
    let unusable;
    for (const key of file.tensors.keys()) {
      const { part, name, size } = /** @type {{ part: 'weights' | 'm' | 'v', name: string, size: number }} */ (wanted.get(key));
      const values = new Float32Array(size);
      await file.read(key, values, verification?.hash);
      // A run would continue from such a value without an error: not every step computes with every weight.
      const at = firstUnusable(values, part === 'v' ? 0 : -Infinity);
      if (at >= 0) unusable ??= `element ${at} of ${key} is ${values[at]}`;
      const kept = state[part];
      if (kept) kept[name] = values;
    }
    // Damage first: it explains the other.
    const damage = verification?.finish();
    if (damage) throw new RangeError(`${found} is damaged: ${damage}`);
    if (unusable) throw new RangeError(`${found} cannot be used: ${unusable}`);
    return { path: found, config, tokenizer, data, ...(run === undefined ? {} : { run }), step, state };
  } finally {
    await file.close();
  }
}

/**
 * Finds the first element that training cannot continue with: NaN, infinite or less than `least`.
 * @param {Float32Array} values @param {number} [least]
 * @returns {number} its index; -1 if there is none
 */
export function firstUnusable(values, least = -Infinity) {
  for (let i = 0; i < values.length; i++) {
    if (!Number.isFinite(values[i]) || values[i] < least) return i;
  }
  return -1;
}

/**
 * The identity of a run, which all its checkpoints carry. A resumed run keeps that of its checkpoint, even where that has none.
 * @param {Pick<RunInfo, 'run'> | undefined} resumed
 * @param {string} [launch] of a new run: the name that all attempts of one `helios-vk run` share; random when left out
 * @returns {string | undefined}
 */
export function identityOf(resumed, launch = randomBytes(8).toString('hex')) {
  return resumed ? resumed.run : launch;
}

/** The number of steps in a checkpoint's name; NaN for other names. @param {string} path */
export const stepOf = (path) => Number(/^step-(\d+)\.safetensors$/.exec(basename(path))?.[1]);

/** The checkpoints of a folder in the order of steps; none where there is no folder. @param {string} folder */
async function checkpointsIn(folder) {
  const names = await readdir(folder).catch((error) => {
    if (error.code !== 'ENOENT') throw error;
    return /** @type {string[]} */ ([]);
  });
  const paths = names.filter((name) => Number.isInteger(stepOf(name))).map((name) => join(folder, name));
  return paths.sort((a, b) => stepOf(a) - stepOf(b));
}

/**
 * The checkpoints of a folder in the order of steps, and the run of each: undefined where the file has none, null where it cannot be read.
 * @param {string} folder
 */
async function runsIn(folder) {
  const found = [];
  for (const path of await checkpointsIn(folder)) {
    const file = await openTensors(path).catch(() => undefined);
    await file?.close();
    found.push({ path, run: file === undefined ? null : /** @type {string | undefined} */ (file.metadata.run) });
  }
  return found;
}

/**
 * The checkpoints that a run has written into a folder, in the order of steps, without files that cannot be read.
 * @param {string} folder @param {string | undefined} run its identity
 * @returns {Promise<string[]>} their paths
 */
export async function checkpointsOf(folder, run) {
  return (await runsIn(folder)).filter((found) => found.run === run).map(({ path }) => path);
}

/**
 * Throws where a run must not write its checkpoints into a folder: where they would replace checkpoints of another run or of its own
 * later steps, or where such a one would stay the latest of the folder.
 * @param {string} folder
 * @param {string | undefined} run its identity
 * @param {number} step the step that it continues from
 * @throws {UsageError} that names the conflicting checkpoint
 */
export async function checkFolder(folder, run, step) {
  for (const { path, run: other } of await runsIn(folder)) {
    const refuse = (/** @type {string} */ what) => new UsageError(`--checkpoint ${folder}: its ${basename(path)} ${what}`);
    if (other === null) throw refuse('cannot be read: use another folder, or remove that file');
    if (other !== run) throw refuse(`is of another run: use another folder, or continue that run by --resume ${path}`);
    if (stepOf(path) > step)
      throw refuse(`is of a later step than ${step}, where this run continues: use another folder, or remove that file`);
  }
}

/**
 * The checkpoint of the highest step in a folder.
 * @param {string} folder
 * @returns {Promise<string | undefined>}
 * @throws {RangeError} where the folder has checkpoints of several runs: their numbers of steps do not compare
 */
export async function latestCheckpoint(folder) {
  const all = await runsIn(folder);
  const latest = new Map(all.filter(({ run }) => run !== null).map(({ run, path }) => [run, basename(path)]));
  if (latest.size > 1) {
    const names = [...latest.values()].join(', ');
    throw new RangeError(`${folder} holds checkpoints of ${latest.size} runs: name a file (the latest of each are ${names})`);
  }
  return all.at(-1)?.path;
}
