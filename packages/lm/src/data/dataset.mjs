// A folder of shards as windows of token ids. Windows are read from the files on demand; nothing is kept in memory.

import { existsSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';

import { readJson } from '../json.mjs';
import { checkNames } from '../options.mjs';
import { windowsOfStep } from './order.mjs';
import { openShard } from './shards.mjs';

/**
 * Describes a corpus: the contents of `meta.json`, which `tokenizeCorpus` writes beside the shards.
 * @typedef {object} CorpusInfo
 * @property {1} version of this format
 * @property {{ sha256: string, json?: string, vocabSize: number, eos: number | null }} tokenizer `sha256` is of the tokenizer's file, `json` of its
 *   JSON without white space, if it is JSON
 * @property {number} documents number of documents
 * @property {number} bytes of the input files, compressed if they are
 * @property {string[]} sources paths of the input files
 * @property {Record<'train' | 'validation', { file: string, tokens: number, sha256: string }[]>} shards `sha256` is of the bytes of the ids,
 *   without the header
 * @property {Prepared} [prepared] what `prepareText` made the folder from
 */

/**
 * What `prepareText` made a folder from.
 * @typedef {object} Prepared
 * @property {1} version of this record
 * @property {{ path: string, bytes: number, modified: number, sha256: string }[]} inputs `modified`: in ms since 1970
 * @property {Record<string, string | number | boolean | null>} options those that decide the contents; null for what was left out
 * @property {string[]} files names of the tokenizer's files and folders
 */

/** The name of the file that holds a `CorpusInfo`. */
export const META = 'meta.json';

/**
 * Reads `meta.json` of a corpus.
 * @param {string} folder that `tokenizeCorpus` wrote
 * @returns {CorpusInfo}
 * @throws {Error} if the file is missing, is not JSON, has another version or lacks the shards
 */
export function readCorpusInfo(folder) {
  const path = join(folder, META);
  if (!existsSync(path)) throw new Error(`${folder} holds no corpus: ${META} is not there; 'helios-lm tokenize' makes one`);
  const info = readJson(path);
  if (info?.version !== 1) throw new Error(`${path}: "version" is ${JSON.stringify(info?.version)}; 1 is known`);
  for (const split of ['train', 'validation']) {
    if (!Array.isArray(info.shards?.[split])) throw new Error(`${path}: "shards.${split}" is no list`);
  }
  return info;
}

/**
 * Opens token files as windows of `block + 1` ids: `block` inputs, and for each the id that follows it. Windows overlap by one id and do not
 * span files; the ids at the end of a file that do not fill a window are not used. Close the dataset when done.
 * @param {string | string[]} source a folder that `tokenizeCorpus` wrote; or a folder of llm.c's or nanoGPT's `*.bin` files, whose names
 *   contain `train` or `val`; or such a file, or an array of them
 * @param {{ block: number, split?: 'train' | 'validation', vocabSize?: number }} options `block`: an integer of at least 1; `split`: train when
 *   left out; `vocabSize`: reading an id that is not below it throws an error with file and position
 * @throws {RangeError} if there are no files, if none has a whole window, for files of different kinds, for a corpus of a larger vocabulary, and
 *   for a file that is damaged
 */
export function openDataset(source, options) {
  checkNames('openDataset', options, ['block', 'split', 'vocabSize']);
  const { block, split = 'train', vocabSize } = options;
  if (!(Number.isInteger(block) && block > 0)) throw new RangeError(`openDataset: block is an integer of at least 1, got ${block}`);
  const isFolder = !Array.isArray(source) && statSync(source).isDirectory();
  if (isFolder && vocabSize !== undefined && existsSync(join(source, META))) {
    const { tokenizer } = readCorpusInfo(source);
    if (tokenizer.vocabSize > vocabSize) {
      throw new RangeError(`${source} was encoded with a vocabulary of ${tokenizer.vocabSize}, and the vocabulary here has ${vocabSize}`);
    }
  }
  const paths = isFolder ? shardsIn(source, split) : Array.isArray(source) ? source : [source];
  if (paths.length === 0) throw new RangeError(`${source} has no shards for ${split === 'train' ? 'training' : 'validation'}`);
  /** @type {ReturnType<typeof openShard>[]} */
  const shards = [];
  const close = () => shards.forEach((shard) => shard.close());
  try {
    for (const path of paths) {
      const shard = openShard(path, { vocabSize });
      shards.push(shard);
      if (shard.kind !== shards[0].kind) {
        throw new RangeError(`${paths[0]} has ${shards[0].kind}, and ${path} has ${shard.kind}: one tokenizer's ids are of one kind`);
      }
    }
  } catch (error) {
    close();
    throw error;
  }
  /** Number of windows before each shard. */
  const before = [0];
  for (const { tokens } of shards) before.push((before.at(-1) ?? 0) + Math.max(0, Math.floor((tokens - 1) / block)));
  const windows = before[shards.length];
  const tokens = shards.reduce((sum, shard) => sum + shard.tokens, 0);
  if (windows === 0) {
    close();
    throw new RangeError(`${source} has ${tokens} tokens in ${shards.length} files: no file has the ${block + 1} of a window`);
  }
  /** Reads a window. @param {number} index @param {Uint32Array} into [block + 1] */
  const read = (index, into) => {
    let low = 0;
    let high = shards.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (before[middle] <= index) low = middle;
      else high = middle - 1;
    }
    return shards[low].read((index - before[low]) * block, into);
  };
  return {
    windows,
    tokens,
    /**
     * Reads the windows of one training step, in the pseudorandom order of `windowsOfStep`: it depends only on the arguments, so a run can
     * resume from its step.
     * @param {{ seed: number, step: number, batch: number, rank?: number, world?: number }} which `batch`: windows per step and rank
     * @returns {Uint32Array} [batch, block + 1], row by row
     */
    batch(which) {
      const ids = new Uint32Array(which.batch * (block + 1));
      windowsOfStep({ windows, ...which }).forEach((window, row) => read(window, ids.subarray(row * (block + 1), (row + 1) * (block + 1))));
      return ids;
    },
    /** Reads one window, counted in file order. Throws a RangeError for an index out of range. @param {number} index @returns {Uint32Array} [block + 1] */
    window(index) {
      if (!Number.isInteger(index) || index < 0 || index >= windows) throw new RangeError(`window ${index}: there are ${windows}`);
      return read(index, new Uint32Array(block + 1));
    },
    close,
  };
}

/** The shards of a split, in order. @param {string} folder @param {'train' | 'validation'} split */
function shardsIn(folder, split) {
  const names = readdirSync(folder);
  if (names.includes(META)) return readCorpusInfo(folder).shards[split].map(({ file }) => join(folder, file));
  // nanoGPT and llm.c name their files like this.
  const ofSplit = split === 'train' ? /train/ : /val/;
  return names
    .filter((name) => name.endsWith('.bin') && ofSplit.test(name))
    .sort()
    .map((name) => join(folder, name));
}
