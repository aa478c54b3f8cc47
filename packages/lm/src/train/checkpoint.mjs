// Checkpoints: a Hugging Face folder with all that a run needs to continue as if it had never stopped.
//
//   RUN/step-0000400/   config.json, model.safetensors (f32), the tokenizer's files, generation_config.json; optimizer.safetensors (AdamW's
//                       moments); trainer_state.json (step, settings, options, data, and the digests of the other files)
//   RUN/best/           the same model files for the lowest loss on held-out text
// A folder appears once it is complete. Files of the formats before are read too: see legacy.mjs.

import { createHash, randomBytes } from 'node:crypto';
import { closeSync, existsSync, fstatSync, openSync, readFileSync, readSync, readdirSync, statSync } from 'node:fs';
import { rename, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { notWritten, syncFolder } from 'helios-vk/files';
import { load, save, tunedPlans } from 'helios-vk/nn';
import { UsageError } from 'helios-vk/options';

import { readConfig, specialIds } from '../config.mjs';
import { makeFolder, writeFiles, writeJson } from '../folder.mjs';
import { filesFor, readWeights, writeModel } from '../formats/hf.mjs';
import { readAdapters, writePeft } from '../formats/peft.mjs';
import { readJson } from '../json.mjs';
import { loadLegacy } from './legacy.mjs';
import { checkRun } from './settings.mjs';
import { firstUnusable, firstUnusableShard, gatheredMoments, setShards } from './state.mjs';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** @typedef {import('./settings.mjs').RunConfig} RunConfig */
/** @typedef {import('./trainer.mjs').Trainer} Trainer */

/**
 * What a run trains on, to find out whether a resumed run gets the same.
 * @typedef {{ folder: string, sha256: string, tokens: number }} DataInfo
 *
 * What a checkpoint says besides tensors and tokenizer.
 * @typedef {object} RunState
 * @property {number} step optimizer steps done
 * @property {number} skipped how many of them the optimizer skipped because gradients were not finite
 * @property {string} run the run's identity, which a resumed run keeps
 * @property {import('./settings.mjs').Settings} settings
 * @property {DataInfo} data
 * @property {{ step: number, loss: number, since: number } | null} best the lowest loss on held-out text, and evaluations since then
 * @property {Partial<Pick<import('./run.mjs').OwnOptions, typeof import('./plan.mjs').KEPT[number]>>} [options] those that a resumed run keeps
 * @property {import('./finetune.mjs').Tuning} [tuning] of a run that fine-tunes
 * @property {ReturnType<typeof tunedPlans>} [plans] plans of matrix products that the run used because they were measured on its machine; a resumed
 *   run uses them on the same device, so that it has the same bits
 *
 * @typedef {object} Checkpoint
 * @property {string} path
 * @property {number} step
 * @property {string | undefined} run undefined in files of early versions
 * @property {RunConfig} config
 * @property {DataInfo | undefined} data undefined if the file is of an earlier version
 * @property {RunState['best']} best
 * @property {RunState['options']} options of the run; none if the file is of an earlier version
 * @property {RunState['tuning']} [tuning] of a run that fine-tunes
 * @property {RunState['plans']} [plans] undefined if the file is of an earlier version
 * @property {string | import('./legacy.mjs').TokenizerState} tokenizer what `loadTokenizer` takes
 * @property {(trainer: Trainer) => Promise<void>} restore sets the trainer's state
 */

const STATE = 'trainer_state.json';
const VERSION = 1;

/** Bytes of a file of tensors: all of one file are in memory at once. */
const FILE_BYTES = 2 ** 30;

/** The identity of a new run. */
export const newRun = () => randomBytes(8).toString('hex');

/** The folder of a step. @param {string} folder @param {number} step */
export const checkpointPath = (folder, step) => join(folder, `step-${String(step).padStart(7, '0')}`);

/** The number of steps in a checkpoint's name; NaN for other names. @param {string} path */
export const stepOf = (path) => Number(/^step-(\d+)(\.safetensors)?$/.exec(basename(path))?.[1]);

/** The SHA-256 of a file or text. @param {string | Buffer} bytes */
const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');

/**
 * Identifies a file: the digest of its bytes, or, of a safetensors file, that of its header, which has the checksum of the whole file.
 * @param {string} path
 */
function fingerprint(path) {
  if (!path.endsWith('.safetensors')) return sha256(readFileSync(path));
  const file = openSync(path, 'r');
  try {
    const length = Buffer.alloc(8);
    readSync(file, length);
    const bytes = Buffer.alloc(Math.min(fstatSync(file).size, 8 + Number(length.readBigUInt64LE())));
    readSync(file, bytes, 0, bytes.length, 0);
    return sha256(bytes);
  } finally {
    closeSync(file);
  }
}

/** The digest of a state: of its JSON without the digest. @param {object} state */
const digestOf = (state) => sha256(JSON.stringify({ ...state, sha256: undefined }));

/**
 * Writes a checkpoint. With several processes rank 0 calls it, and the others `joinCheckpoint`.
 * @param {string} folder of the run
 * @param {Trainer} trainer settled
 * @param {Pick<RunState, 'run' | 'data' | 'best' | 'options' | 'tuning'>} state @param {Record<string, string>} files of the tokenizer, by name
 * @returns {Promise<string>} its path
 * @throws {Error} if weights or moments are not finite: nothing is written
 */
export async function saveCheckpoint(folder, trainer, state, files) {
  const step = trainer.stepsDone;
  const moments = trainer.sharded ? undefined : momentsOf(trainer);
  try {
    // The last loss may be finite, and the update after it not.
    const bad = moments ? await firstUnusable({ ...trainer.stateDict('weights'), ...moments }) : await unusableOfAll(trainer);
    if (bad) throw notFinite(step, bad);
    const skipped = await trainer.opt.skippedSteps();
    const path = checkpointPath(folder, step);
    await makeDurable(path, async (partial) => {
      await writeModelFiles(partial, trainer, files, state.tuning);
      for (const { file, items } of momentFiles(trainer)) {
        const tensors = moments ? Object.fromEntries(items.map((name) => [name, moments[name]])) : gathered(trainer, items);
        await save(join(partial, file), tensors);
        if (!moments) for (const tensor of Object.values(tensors)) tensor.dispose();
      }
      /** @type {Record<string, string>} */
      const digests = {};
      const made = readdirSync(partial, { recursive: true, encoding: 'utf8' });
      for (const name of made.filter((each) => /\.(json|jinja|txt|safetensors)$/.test(each))) {
        digests[name.replaceAll('\\', '/')] = fingerprint(join(partial, name));
      }
      const all = { version: VERSION, step, skipped, settings: trainer.config.settings, ...state, plans: tunedPlans(), files: digests };
      await writeJson(join(partial, STATE), { ...all, sha256: digestOf(all) });
    });
    return path;
  } finally {
    for (const tensor of Object.values(moments ?? {})) tensor.dispose();
  }
}

/** @param {number} step @param {string} what */
const notFinite = (step, what) => new Error(`after step ${step} ${what} is not finite: the run has diverged`);

/** What is not finite in the shards of all processes, which all call it. @param {Trainer} trainer @returns {Promise<string | undefined>} */
async function unusableOfAll(trainer) {
  const own = await firstUnusableShard(trainer.model, trainer.opt);
  /** @type {(string | null)[]} */
  const all = await /** @type {NonNullable<Trainer['ranks']>} */ (trainer.ranks).group.exchange(own ?? null);
  return all.find((each) => each !== null) ?? undefined;
}

/** The files of moments, and the moments in each: `m.` or `v.` and the parameter's name. @param {Trainer} trainer */
function momentFiles(trainer) {
  const sizes = Object.entries(trainer.stateDict('weights')).map(([name, { size }]) => /** @type {const} */ ([name, size]));
  const moments = new Map(['m', 'v'].flatMap((part) => sizes.map(([name, size]) => [`${part}.${name}`, size])));
  return filesFor([...moments.keys()], (name) => 4 * /** @type {number} */ (moments.get(name)), FILE_BYTES, 'optimizer');
}

/** Moments of sharded parameters, to be disposed of. All processes call it alike. @param {Trainer} trainer @param {string[]} names of a file */
function gathered({ model, opt }, names) {
  const wanted = names.map((name) => ({ moment: name.startsWith('m.') ? 0 : 1, name: name.slice(2) }));
  const tensors = gatheredMoments(model, opt, wanted);
  return Object.fromEntries(names.map((name, i) => [name, tensors[i]]));
}

/** Both moments by `m.` and `v.` and the parameter's name, to be disposed of; with ZeRO it gathers them. @param {Trainer} trainer */
function momentsOf(trainer) {
  const all = trainer.moments();
  return Object.fromEntries(
    Object.entries(all).flatMap(([part, tensors]) => Object.entries(tensors).map(([name, x]) => [`${part}.${name}`, x])),
  );
}

/** On the other ranks: takes part in what `saveCheckpoint` reads on rank 0. @param {Trainer} trainer @throws {Error} as there */
export async function joinCheckpoint(trainer) {
  if (!trainer.sharded) {
    for (const tensor of Object.values(momentsOf(trainer))) tensor.dispose();
    return;
  }
  const bad = await unusableOfAll(trainer);
  if (bad) throw notFinite(trainer.stepsDone, bad);
  await joinModel(trainer);
  for (const { items } of momentFiles(trainer)) for (const tensor of Object.values(gathered(trainer, items))) tensor.dispose();
}

/** On the other ranks: takes part in the reads of weights of which each process has a part, as `saveBest` makes them. @param {Trainer} trainer */
export async function joinModel(trainer) {
  if (trainer.sharded) await writeModel(trainer.model, undefined, modelOptions(trainer));
}

/** How the weights of a checkpoint are written. @param {Trainer} trainer */
const modelOptions = ({ opt }) => ({
  dtype: /** @type {const} */ ('f32'),
  maxShardBytes: FILE_BYTES,
  read: () => opt.ranks?.shards?.forget(),
});

/**
 * Writes the model with the lowest loss so far into `best`, in place of the one before.
 * @param {string} folder of the run @param {Trainer} trainer settled @param {Record<string, string>} files of the tokenizer
 * @param {RunState['tuning']} [tuning]
 */
export async function saveBest(folder, trainer, files, tuning) {
  const [path, made, old] = ['best', 'best-new', 'best-old'].map((name) => join(folder, name));
  await rm(made, { recursive: true, force: true });
  await makeDurable(made, (partial) => writeModelFiles(partial, trainer, files, tuning));
  // A run that is killed between the two renames leaves both folders, whole.
  await rm(old, { recursive: true, force: true });
  if (existsSync(path)) await rename(path, old);
  await rename(made, path);
  await syncFolder(folder);
  await rm(old, { recursive: true, force: true });
  return path;
}

/**
 * Makes a folder as `makeFolder` does, and syncs its entries: it is on the disk before older ones are deleted.
 * @param {string} path @param {(partial: string) => Promise<void>} write
 * @throws {Error} that names the folder, where the system cannot write
 */
async function makeDurable(path, write) {
  try {
    await makeFolder(path, async (partial) => {
      await write(partial);
      await syncFolder(partial);
    });
    await syncFolder(dirname(path));
  } catch (error) {
    throw notWritten(path, error);
  }
}

/** @param {string} folder @param {Trainer} trainer @param {Record<string, string>} files @param {RunState['tuning']} tuning */
async function writeModelFiles(folder, trainer, files, tuning) {
  await writeFiles(folder, files);
  if (tuning && tuning.type !== 'full') return writePeft(folder, trainer.model, { base: tuning.base });
  await writeModel(trainer.model, folder, modelOptions(trainer));
  const ids = Object.entries(specialIds(trainer.config.model)).filter(([, id]) => id !== null);
  await writeJson(join(folder, 'generation_config.json'), Object.fromEntries(ids));
}

/**
 * The state that a checkpoint's folder says, checked.
 * @param {string} path
 * @returns {RunState}
 * @throws {Error} that names the file and the key
 */
function readState(path) {
  const file = join(path, STATE);
  const state = readJson(file);
  if (state?.version !== VERSION) throw new Error(`${file}: "version" is ${JSON.stringify(state?.version)}; ${VERSION} is known`);
  if (state.sha256 !== digestOf(state)) throw new Error(`${file} is damaged: its contents do not have the SHA-256 that it says`);
  for (const [name, digest] of Object.entries(state.files)) {
    if (!existsSync(join(path, name))) throw new Error(`${path} has no ${name}, which it was written with`);
    if (fingerprint(join(path, name)) !== digest) {
      throw new Error(
        `${join(path, name)} was changed or is damaged, or is of another step: it does not have the SHA-256 that ${STATE} says`,
      );
    }
  }
  return state;
}

/**
 * Reads what a checkpoint says, but for its tensors, which `restore` reads.
 * @param {string} path of a checkpoint, or of a run's folder: its latest checkpoint. Files of earlier versions too
 * @returns {Promise<Checkpoint>}
 * @throws {Error} that names the file. Where the latest checkpoint of a folder cannot be read, the error also names the one before it, which
 *   is never used in its place
 */
export async function loadCheckpoint(path) {
  if (!existsSync(path)) throw new Error(`${path} does not exist`);
  if (!statSync(path).isDirectory()) return fromLegacy(path);
  if (existsSync(join(path, STATE))) return readCheckpoint(path);
  const all = checkpointsIn(path);
  const latest = latestCheckpoint(path);
  if (latest === undefined) throw new Error(`${path} has no checkpoint (step-…)`);
  try {
    return await (latest.endsWith('.safetensors') ? fromLegacy(latest) : readCheckpoint(latest));
  } catch (cause) {
    const before = all.at(-2);
    if (before === undefined) throw cause;
    throw new Error(`${/** @type {Error} */ (cause).message}; the one before it is ${before}`, { cause });
  }
}

/** @param {string} path @returns {Checkpoint} */
function readCheckpoint(path) {
  const { step, skipped, run, settings, data, best, options = {}, tuning, plans } = readState(path);
  const isAdapter = tuning !== undefined && tuning.type !== 'full';
  const config = checkRun({ model: isAdapter ? tuning.model : readConfig(path), settings });
  const restore = async (/** @type {Trainer} */ trainer) => {
    if (isAdapter) await readAdapters(path, trainer.model);
    else {
      const { opt } = trainer;
      const set = (/** @type {Tensor} */ parameter, /** @type {Tensor} */ rows, /** @type {number} */ first) =>
        opt.setParameter(/** @type {import('helios-vk/nn').nn.Parameter} */ (parameter), rows, first);
      await readWeights(path, trainer.model, undefined, trainer.sharded ? set : undefined);
    }
    const moments = { m: /** @type {Record<string, Tensor>} */ ({}), v: /** @type {Record<string, Tensor>} */ ({}) };
    const wanted = trainer.stateDict('weights');
    const shards = trainer.ranks?.zero ? trainer : undefined;
    if (shards) trainer.load({ step, skipped });
    const dispose = () => {
      for (const values of Object.values(moments)) for (const each of Object.values(values)) each.dispose();
    };
    /** @type {Set<string>} */
    const found = new Set();
    const files = readdirSync(path).filter((name) => /^optimizer(-\d+-of-\d+)?\.safetensors$/.test(name));
    for (const name of files) {
      for (const [key, tensor] of Object.entries(await load(join(path, name)))) {
        const [part, parameter] = [/** @type {'m' | 'v'} */ (key[0]), key.slice(2)];
        if (wanted[parameter] && wanted[parameter].size !== tensor.size)
          throw new Error(`${path}: ${part}.${parameter} has another shape than its parameter`);
        moments[part][parameter] = tensor;
        found.add(key);
      }
      if (!shards) continue;
      // Only what is of one file is on the device besides.
      for (const [i, values] of [moments.m, moments.v].entries()) setShards(shards.model, shards.opt, i, values);
      dispose();
      [moments.m, moments.v] = [{}, {}];
    }
    for (const part of /** @type {const} */ (['m', 'v'])) {
      const missing = Object.keys(wanted).find((name) => !found.has(`${part}.${name}`));
      if (missing) throw new Error(`${path} has no ${part}.${missing} in optimizer.safetensors`);
    }
    if (!shards) trainer.load({ step, skipped, ...moments });
    dispose();
  };
  return { path, step, run, config, data, best, options, plans, ...(tuning ? { tuning } : {}), tokenizer: path, restore };
}

/** @param {string} path @returns {Promise<Checkpoint>} */
async function fromLegacy(path) {
  const { step, skipped, run, config, tokenizer, state } = await loadLegacy(path);
  const restore = async (/** @type {Trainer} */ trainer) => trainer.load({ step, skipped, ...state });
  return { path, step, run, config, data: undefined, best: null, options: {}, tokenizer, restore };
}

/** The tokenizer of a path: in a run's folder that of its latest checkpoint. @param {string} path as for `loadTokenizer`, or a run's folder */
export function tokenizerIn(path) {
  const latest = existsSync(join(path, 'tokenizer.json')) ? undefined : checkpointsIn(path).at(-1);
  return latest && existsSync(join(latest, 'tokenizer.json')) ? latest : path;
}

/** The checkpoints of a run's folder in the order of steps; none where there is no folder. @param {string} folder @returns {string[]} */
export function checkpointsIn(folder) {
  const names = statSync(folder, { throwIfNoEntry: false })?.isDirectory() ? readdirSync(folder) : [];
  const paths = names.filter((name) => Number.isInteger(stepOf(name))).map((name) => join(folder, name));
  return paths.sort((a, b) => stepOf(a) - stepOf(b));
}

/** The run that a checkpoint is of; null where it cannot be read, undefined for files of earlier versions. @param {string} path */
function runOf(path) {
  if (path.endsWith('.safetensors')) return undefined;
  try {
    return /** @type {string} */ (readJson(join(path, STATE)).run);
  } catch {
    return null;
  }
}

/** The checkpoints that a run has written into a folder, in the order of steps. @param {string} folder @param {string} run its identity */
export const checkpointsOf = (folder, run) => checkpointsIn(folder).filter((path) => runOf(path) === run);

/**
 * Throws where a run must not write its checkpoints into a folder: where they would replace checkpoints of another run or of its own
 * later steps, or where such a one would stay the latest of the folder.
 * @param {string} folder @param {string} run its identity @param {number} step the step that it continues from
 * @throws {UsageError} that names the conflicting checkpoint
 */
export function checkFolder(folder, run, step) {
  for (const path of checkpointsIn(folder)) {
    const refuse = (/** @type {string} */ what) => new UsageError(`--out ${folder}: its ${basename(path)} ${what}`);
    const other = runOf(path);
    if (other === null) throw refuse('cannot be read: use another folder, or remove it');
    if (other !== run) throw refuse(`is of another run: use another folder, or continue that run by --resume ${path}`);
    if (stepOf(path) > step) throw refuse(`is of a later step than ${step}, where this run continues: use another folder, or remove it`);
  }
}

/**
 * The checkpoint of the highest step in a folder.
 * @param {string} folder
 * @returns {string | undefined}
 * @throws {RangeError} where the folder has checkpoints of several runs: their numbers of steps do not compare
 */
export function latestCheckpoint(folder) {
  const all = checkpointsIn(folder);
  const latest = new Map(all.map((path) => /** @type {const} */ ([runOf(path), basename(path)])).filter(([run]) => run !== null));
  if (latest.size > 1) {
    throw new RangeError(
      `${folder} has checkpoints of ${latest.size} runs: name one of them (the latest of each are ${[...latest.values()].join(', ')})`,
    );
  }
  return all.at(-1);
}
