// `prepareText`: a tokenizer and ids from text, made once and used again.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import {
  appendFileSync,
  cpSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

import { digestOf } from '../src/data/corpus.mjs';
import { defaultVocabSize } from '../src/data/prepare.mjs';
import { loadTokenizer, openDataset, prepareText, readCorpusInfo } from '../src/index.mjs';
import { novel } from './fixtures/tokenizer-texts.mjs';
import { temporaryFolder } from '../../../__test__/lib/folder.mjs';

const text = novel().slice(0, 200_000);
const PARQUET = fileURLToPath(new URL('fixtures/rows.parquet', import.meta.url));

/** @param {import('node:test').TestContext} t */
function folderOf(t) {
  const folder = temporaryFolder(t);
  const input = join(folder, 'novel.txt');
  writeFileSync(input, text);
  return { folder, input, out: join(folder, 'data') };
}

/** All ids of a folder, train first. @param {string} folder */
function idsOf(folder) {
  const { train, validation } = readCorpusInfo(folder).shards;
  return [...train, ...validation].flatMap(({ file, tokens }) => {
    const data = openDataset(join(folder, file), { block: tokens - 1 });
    const ids = [...data.window(0)];
    data.close();
    return ids;
  });
}

/** Time of change and contents of all files. @param {string} folder */
const stateOf = (folder) => readdirSync(folder).map((name) => [name, statSync(join(folder, name)).mtimeMs, contentsOf(join(folder, name))]);
const contentsOf = (/** @type {string} */ path) => readFileSync(path).toString('base64');

test('the default vocabulary grows with the root of the text', () => {
  assert.deepEqual([0, 1e4, 1e6, 1.2e6, 1e7, 1e8, 1e9, 1e12].map(defaultVocabSize), [512, 512, 2048, 2048, 8192, 16_384, 32_768, 32_768]);
});

test('a novel becomes a folder that loadTokenizer and openDataset read; the same call uses it again', async (t) => {
  const { folder, input, out } = folderOf(t);
  /** @type {import('../src/data/prepare.mjs').PrepareProgress[]} */
  const seen = [];
  const made = await prepareText([input], { out, onProgress: (progress) => seen.push(progress) });
  assert.deepEqual([made.folder, made.reused], [out, false]);
  assert.deepEqual(readdirSync(out).sort(), [
    'meta.json',
    'tokenizer.json',
    'tokenizer_config.json',
    'train-00000.bin',
    'validation-00000.bin',
  ]);
  const tokenizer = loadTokenizer(out);
  assert.deepEqual([tokenizer.vocabSize, tokenizer.special.eos], [1024, tokenizer.idOf('<|endoftext|>')]);
  assert.equal(tokenizer.decode(idsOf(out)), `${text}<|endoftext|>`);
  assert.deepEqual(made.tokenizer.encode(text), tokenizer.encode(text));
  assert.deepEqual(made.info, readCorpusInfo(out));
  const held = made.info.shards.validation[0].tokens / idsOf(out).length;
  assert.ok(held > 0.02 && held < 0.08, String(held));
  assert.deepEqual([...new Set(seen.map(({ stage }) => stage))], ['tokenizer', 'encode']);
  assert.ok(seen.every(({ bytes, totalBytes }) => bytes <= totalBytes));

  const before = stateOf(out);
  const again = await prepareText([input], { out, field: 'text' });
  assert.equal(again.reused, true);
  assert.deepEqual(again.info, made.info);
  assert.deepEqual(again.tokenizer.encode(text), tokenizer.encode(text));
  // A copy of the text elsewhere, and another time of change, are the same text.
  utimesSync(input, 1, 1);
  assert.equal((await prepareText([input], { out })).reused, true);
  mkdirSync(join(folder, 'moved'));
  renameSync(input, join(folder, 'moved', 'novel.txt'));
  assert.equal((await prepareText([join(folder, 'moved')], { out })).reused, true);
  assert.deepEqual(stateOf(out), before);
});

test('other text and other options are errors that say what differs, unless the folder may be made again', async (t) => {
  const { folder, input, out } = folderOf(t);
  await prepareText([input], { out, vocabSize: 400 });
  const before = stateOf(out);
  const other = join(folder, 'other.txt');
  writeFileSync(other, 'Other text\n'.repeat(1000));
  /** @param {string[]} inputs @param {Partial<import('../src/data/prepare.mjs').PrepareOptions>} options @param {RegExp} message */
  const differs = async (inputs, options, message) => {
    await assert.rejects(prepareText(inputs, { out, vocabSize: 400, ...options }), (/** @type {any} */ error) => {
      assert.match(error.message, message);
      assert.equal(error.code, 'ERR_PREPARED_DIFFERS');
      return true;
    });
    assert.deepEqual(stateOf(out), before);
  };
  await differs([input], { vocabSize: 500 }, /data: it was made with vocabSize 400, and vocabSize is 500 now; .*\(remake\)/);
  await differs([input], { vocabSize: undefined }, /made with vocabSize 400, and vocabSize is left out now/);
  await differs([input], { validation: 0.1 }, /validation 0\.05, and validation is 0\.1 now/);
  await differs([input], { separator: '--' }, /separator left out, and separator is "--" now/);
  await differs([input, other], {}, /made from 1 files, and there are 2 now/);
  await differs([other], {}, /made from .*novel\.txt, not from .*other\.txt/);
  const times = statSync(input);
  writeFileSync(input, text.replace('whale', 'snail'));
  await differs([input], {}, /novel\.txt has changed since; checkpoints may depend on it/);
  utimesSync(input, times.atime, times.mtime);
  appendFileSync(input, ' ');
  utimesSync(input, times.atime, times.mtime);
  await differs([input], {}, /novel\.txt has changed since/);

  // What fails leaves the old folder.
  writeFileSync(input, Buffer.concat([Buffer.from(text), Buffer.of(0xff)]));
  await assert.rejects(prepareText([input], { out, vocabSize: 400, remake: true }), /novel\.txt, byte \d+: byte 0xff is not UTF-8/);
  await assert.rejects(prepareText([input], { out, vocabSize: 400, remake: true, signal: AbortSignal.abort() }), { name: 'AbortError' });
  assert.deepEqual(stateOf(out), before);
  // Nor does a folder go that has something else in it.
  writeFileSync(join(out, 'notes.md'), 'mine');
  await assert.rejects(prepareText([other], { out, remake: true }), /data cannot be made again: it has notes\.md, which would be lost/);
  rmSync(join(out, 'notes.md'));
  const made = await prepareText([other], { out, remake: true });
  assert.equal(made.reused, false);
  assert.equal(made.tokenizer.decode(idsOf(out)), `${'Other text\n'.repeat(1000)}<|endoftext|>`);
  assert.equal((await prepareText([other], { out, remake: true })).reused, true);
  assert.deepEqual(readdirSync(folder).sort(), ['data', 'novel.txt', 'other.txt']);
});

test('a folder that was damaged is not used', async (t) => {
  const { input, out } = folderOf(t);
  await prepareText([input], { out, vocabSize: 300 });
  const meta = readFileSync(join(out, 'meta.json'), 'utf8');
  for (const [damage, message] of /** @type {[() => void, RegExp][]} */ ([
    [() => rmSync(join(out, 'tokenizer.json')), /tokenizer\.json is missing/],
    [() => appendFileSync(join(out, 'tokenizer.json'), ' '), /tokenizer\.json is not the one that the ids were made with/],
    [() => rmSync(join(out, 'train-00000.bin')), /train-00000\.bin is missing/],
    [() => appendFileSync(join(out, 'train-00000.bin'), ' '), /train-00000\.bin says that it has \d+ tokens/],
    [
      () => writeFileSync(join(out, 'meta.json'), meta.replace(/("train": \[[^\]]*"tokens": )\d+/, '$17')),
      /has \d+ tokens, and meta\.json says 7/,
    ],
  ])) {
    damage();
    await assert.rejects(prepareText([input], { out, vocabSize: 300 }), message);
    assert.equal((await prepareText([input], { out, vocabSize: 300, remake: true })).reused, false);
    assert.equal((await prepareText([input], { out, vocabSize: 300 })).reused, true);
  }
});

test('what cannot be made is refused before any work, and leaves nothing', async (t) => {
  const { folder, input, out } = folderOf(t);
  writeFileSync(join(folder, 'empty.txt'), '');
  mkdirSync(join(folder, 'full'));
  writeFileSync(join(folder, 'full', 'mine.txt'), 'text');
  writeFileSync(join(folder, 'train.bin'), 'ids!');
  writeFileSync(join(folder, 'bad.jsonl'), '{"text":"a"}\n{"text":"b"}\n{"text"\n');
  const before = readdirSync(folder).sort();
  for (const [inputs, options, message] of /** @type {[string[], any, RegExp][]} */ ([
    [[join(folder, 'no.txt')], {}, /no\.txt: no such file or folder/],
    [[join(folder, 'empty.txt')], {}, /no text in .*empty\.txt/],
    [[join(folder, 'train.bin')], {}, /train\.bin has ids, not text: openDataset reads them/],
    [[join(folder, 'bad.jsonl')], {}, /bad\.jsonl, line 3: not JSON: /],
    [[], {}, /no inputs/],
    [[input], { vocabSize: 256 }, /vocabSize is an integer of at least 257 .*, got 256/],
    [[input], { vocabSize: 300, tokenizer: folder }, /vocabSize is for a tokenizer to train, and tokenizer names one/],
    [[input], { tokenizer: join(folder, 'full') }, /full.tokenizer\.json does not exist; a tokenizer is a folder with tokenizer\.json/],
    [[input], { tokenizer: join(folder, 'none.json') }, /none\.json does not exist; a tokenizer is a folder/],
    [[input], { sampleBytes: 0 }, /sampleBytes is an integer of at least 1, got 0/],
    [[input], { validation: 1 }, /validation is a share from 0 to less than 1, got 1/],
    [[input], { workers: -1 }, /workers is an integer of at least 0, got -1/],
    [[input], { out: join(folder, 'full') }, /full is not empty: name another folder, or remove it/],
    [[input], { out: input }, /novel\.txt is a file; the output is a folder/],
    [[folder], { out: join(folder, 'data') }, /data is in the input/],
    [[input], { signal: AbortSignal.abort() }, /aborted/],
  ])) {
    await assert.rejects(prepareText(inputs, { out, ...options }), message);
    assert.deepEqual(readdirSync(folder).sort(), before, String(message));
  }
  const stop = new AbortController();
  await assert.rejects(prepareText([input], { out, signal: stop.signal, onProgress: ({ stage }) => stage === 'encode' && stop.abort() }), {
    name: 'AbortError',
  });
  assert.deepEqual(readdirSync(folder).sort(), before);
});

test('a given tokenizer is copied byte for byte, with its companions', async (t) => {
  const { folder, input, out } = folderOf(t);
  await prepareText([input], { out, vocabSize: 300 });
  const model = join(folder, 'model');
  cpSync(out, model, { recursive: true });
  writeFileSync(join(model, 'chat_template.jinja'), '{{ messages }}');
  writeFileSync(join(model, 'tokenizer.json'), JSON.stringify(JSON.parse(readFileSync(join(model, 'tokenizer.json'), 'utf8'))));
  const made = await prepareText([input], { out: join(folder, 'second'), tokenizer: model });
  assert.equal(digestOf(join(folder, 'second')), digestOf(model));
  assert.equal(loadTokenizer(join(folder, 'second')).chatTemplates.default, '{{ messages }}');
  assert.deepEqual(made.info.shards.train, readCorpusInfo(out).shards.train);
  assert.equal((await prepareText([input], { out: join(folder, 'second'), tokenizer: join(model, 'tokenizer.json') })).reused, true);
  appendFileSync(join(model, 'tokenizer.json'), '\n');
  await assert.rejects(prepareText([input], { out: join(folder, 'second'), tokenizer: model }), /made with another tokenizer/);
});

test('a sample of all kinds of files teaches the tokenizer, and no more than was asked for is read', async (t) => {
  const { folder, input, out } = folderOf(t);
  const lines = text.split('\n\n').map((part) => JSON.stringify({ text: part }));
  writeFileSync(join(folder, 'a.jsonl'), lines.join('\n'));
  writeFileSync(join(folder, 'b.txt.gz'), gzipSync(text.repeat(10)));
  // Words at the end of the file, where a window lies too.
  const padded = join(folder, 'padded.txt');
  writeFileSync(padded, `${'one two three\n'.repeat(100_000)}${'xylophone quartz\n'.repeat(100_000)}`);
  const all = await prepareText([input, join(folder, 'a.jsonl'), join(folder, 'b.txt.gz'), PARQUET], { out, validation: 0.01 });
  assert.equal(all.tokenizer.encode(' whale', { addSpecial: false }).length, 1);
  assert.equal(all.tokenizer.encode('{"text":"', { addSpecial: false }).length > 3, true, 'the text in JSON is learned, not its frame');
  /** @type {number[]} */
  const read = [];
  const sampled = await prepareText([padded], {
    out: join(folder, 'sampled'),
    sampleBytes: 1 << 21,
    onProgress: ({ stage, bytes }) => stage === 'tokenizer' && read.push(bytes),
  });
  assert.ok(read.length >= 2 && read.length <= 3 && read.every((bytes) => bytes <= 1 << 21), String(read));
  for (const word of [' three', ' quartz']) assert.equal(sampled.tokenizer.encode(word, { addSpecial: false }).length, 1, word);
  // Lines longer than a window, and text without lines, are sampled too.
  const long = join(folder, 'long.jsonl');
  writeFileSync(long, Array.from({ length: 8 }, () => JSON.stringify({ text: 'long line '.repeat(40_000) })).join('\n'));
  const single = join(folder, 'single.txt');
  writeFileSync(single, 'endless text '.repeat(200_000));
  const mixed = await prepareText([long, single], { out: join(folder, 'mixed'), sampleBytes: 300_000 });
  for (const word of [' line', ' text']) assert.equal(mixed.tokenizer.encode(word, { addSpecial: false }).length, 1, word);
});
