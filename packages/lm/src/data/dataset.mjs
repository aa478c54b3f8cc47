// A folder of shards as windows of ids, read where they lie: nothing but the files' headers is in memory.

import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

import { windowsOfStep } from './order.mjs';
import { openShard } from './shards.mjs';

/**
 * What `tokenizeCorpus` writes beside its shards.
 * @typedef {object} CorpusInfo
 * @property {1} version
 * @property {{ sha256: string, vocabSize: number, eos: number | null }} tokenizer
 * @property {number} documents @property {number} bytes of text
 * @property {string[]} sources
 * @property {Record<'train' | 'validation', { file: string, tokens: number, sha256: string }[]>} shards
 */

/** The file of a `CorpusInfo` in its folder. */
export const META = 'meta.json';

/** @param {string} folder @returns {CorpusInfo} @throws {Error} that names the file and what is wrong with it */
export function readCorpusInfo(folder) {
  const path = join(folder, META);
  let text;
  try {
    text = readFileSync(path, 'utf8');
  } catch (cause) {
    throw new Error(`${folder} holds no corpus: ${META} cannot be read; 'helios-lm tokenize' makes one`, { cause });
  }
  /** @type {any} what is checked here */
  const info = JSON.parse(text);
  if (info?.version !== 1) throw new Error(`${path}: "version" is ${JSON.stringify(info?.version)}; 1 is known`);
  for (const split of ['train', 'validation']) {
    if (!Array.isArray(info.shards?.[split])) throw new Error(`${path}: "shards.${split}" is no list`);
  }
  return info;
}

/**
 * Opens token files for training.
 * @param {string | string[]} source a folder that `tokenizeCorpus` wrote, a folder of `*.bin`, or such files
 * @param {{ block: number, split?: 'train' | 'validation', vocabSize?: number }} options `block`: ids of a window, each with the one that
 *   follows it; `vocabSize`: ids at or beyond it are an error that names file and position
 */
export function openDataset(source, { block, split = 'train', vocabSize }) {
  const paths = Array.isArray(source) ? source : shardsIn(source, split);
  if (paths.length === 0) throw new RangeError(`${source} has no shards for ${split === 'train' ? 'training' : 'validation'}`);
  /** @type {ReturnType<typeof openShard>[]} */
  const shards = [];
  const close = () => shards.forEach((shard) => shard.close());
  try {
    for (const path of paths) shards.push(openShard(path, { vocabSize }));
  } catch (error) {
    close();
    throw error;
  }
  /** Windows before each shard: none goes across two. */
  const before = [0];
  for (const { tokens } of shards) before.push((before.at(-1) ?? 0) + Math.max(0, Math.floor((tokens - 1) / block)));
  const windows = before[shards.length];
  const tokens = shards.reduce((sum, shard) => sum + shard.tokens, 0);
  if (windows === 0) {
    close();
    throw new RangeError(`${source} has ${tokens} tokens in ${shards.length} files: no file has the ${block + 1} of a window`);
  }
  /** @param {number} index @param {Uint32Array} into [block + 1] */
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
     * The ids of one step: see `windowsOfStep`, whose windows they are, so that a run goes on from its step alone.
     * @param {{ seed: number, step: number, batch: number, rank?: number, world?: number }} which
     * @returns {Uint32Array} [batch][block + 1]
     */
    batch(which) {
      const ids = new Uint32Array(which.batch * (block + 1));
      windowsOfStep({ windows, ...which }).forEach((window, row) => read(window, ids.subarray(row * (block + 1), (row + 1) * (block + 1))));
      return ids;
    },
    /** One window, in the order of the files. @param {number} index @returns {Uint32Array} [block + 1] */
    window(index) {
      if (!Number.isInteger(index) || index < 0 || index >= windows) throw new RangeError(`window ${index}: there are ${windows}`);
      return read(index, new Uint32Array(block + 1));
    },
    close,
  };
}

/** @param {string} folder @param {'train' | 'validation'} split */
function shardsIn(folder, split) {
  const names = readdirSync(folder);
  if (names.includes(META)) return readCorpusInfo(folder).shards[split].map(({ file }) => join(folder, file));
  // As nanoGPT and llm.c name theirs.
  const ofSplit = split === 'train' ? /train/ : /val/;
  return names
    .filter((name) => name.endsWith('.bin') && ofSplit.test(name))
    .sort()
    .map((name) => join(folder, name));
}
