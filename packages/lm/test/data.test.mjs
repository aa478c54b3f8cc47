// Token files and datasets: the order of windows, shards, `tokenizeCorpus` with its errors and its memory use, and packing.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, readdirSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as zlib from 'node:zlib';

import { temporaryFolder } from '../../../__test__/lib/folder.mjs';
import { tokenizeCorpus } from '../src/data/corpus.mjs';
import { openDataset, readCorpusInfo } from '../src/data/dataset.mjs';
import { permutation, windowsOfStep } from '../src/data/order.mjs';
import { IGNORED, documentsOf, pack } from '../src/data/pack.mjs';
import { createShard, openShard } from '../src/data/shards.mjs';
import { makeFolder } from '../src/folder.mjs';

const TOKENIZER = new URL('fixtures/byte-tokenizer.mjs', import.meta.url);
const PARQUET = fileURLToPath(new URL('fixtures/rows.parquet', import.meta.url));
const GPT2 = fileURLToPath(new URL('fixtures/tokenizers/gpt2.json', import.meta.url));
const EOS = 256;

/** @param {Partial<import('../src/data/corpus.mjs').CorpusOptions> & { inputs: string[], output: string }} options */
const tokenize = (options) => tokenizeCorpus({ tokenizer: fileURLToPath(TOKENIZER), tokenizerModule: TOKENIZER.href, ...options });

/** All ids of a split. @param {string} folder @param {'train' | 'validation'} split */
function idsOf(folder, split) {
  const all = readCorpusInfo(folder).shards[split].map(({ file }) => {
    const shard = openShard(join(folder, file), { vocabSize: 257 });
    const ids = shard.read(0, new Uint32Array(shard.tokens));
    shard.close();
    return [...ids];
  });
  return all.flat();
}

/** Documents of ids of the byte tokenizer. @param {number[]} ids */
function documentsIn(ids) {
  const documents = [];
  let begin = 0;
  for (const [i, id] of ids.entries()) {
    if (id !== EOS) continue;
    documents.push(Buffer.from(ids.slice(begin, i)).toString());
    begin = i + 1;
  }
  if (begin < ids.length) documents.push(Buffer.from(ids.slice(begin)).toString());
  return documents;
}

test('an order is a permutation, for every count; another seed or epoch has another', () => {
  for (let count = 1; count <= 1500; count++) {
    const order = permutation(count, count * 7, count % 5);
    assert.equal(new Set(Array.from({ length: count }, (_, i) => order(i))).size, count);
    for (let i = 0; i < count; i++) assert.ok(order(i) < count && order(i) >= 0);
  }
  const first = (/** @type {number} */ seed, /** @type {number} */ epoch) => {
    const order = permutation(1000, seed, epoch);
    return Array.from({ length: 1000 }, (_, i) => order(i)).join();
  };
  const kinds = new Set([first(1, 0), first(1, 1), first(2, 0), first(0, 1), first(0, 0)]);
  assert.equal(kinds.size, 5);
  // Neighbours do not stay neighbours: of a random order 2 of 1,000 pairs would.
  const order = permutation(1000, 3, 0);
  let kept = 0;
  for (let i = 0; i + 1 < 1000; i++) if (Math.abs(order(i) - order(i + 1)) === 1) kept++;
  assert.ok(kept < 15, String(kept));
  const large = permutation(2 ** 32, 5, 0);
  assert.equal(new Set(Array.from({ length: 1000 }, (_, i) => large(i))).size, 1000);
});

test('each window is taken once an epoch by all ranks together, and a step alone says which', () => {
  const [windows, batch, world] = [97, 3, 4];
  /** @type {number[]} */
  const taken = [];
  for (let step = 0; taken.length < 3 * windows; step++) {
    for (let rank = 0; rank < world; rank++) taken.push(...windowsOfStep({ windows, seed: 9, step, batch, rank, world }));
  }
  for (const epoch of [0, 1, 2]) {
    const own = taken.slice(epoch * windows, (epoch + 1) * windows);
    assert.equal(new Set(own).size, windows, `epoch ${epoch}`);
  }
  assert.notDeepEqual(taken.slice(0, windows), taken.slice(windows, 2 * windows));
});

test('the number of ranks does not change what a step reads, and a window is read once an epoch for any of them', () => {
  let state = 5;
  const random = (/** @type {number} */ below) => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) % below;
  for (let round = 0; round < 60; round++) {
    const [windows, world, batch, seed] = [1 + random(200), 1 + random(8), 1 + random(6), random(1000) - 500];
    const counts = new Uint32Array(windows);
    const epochs = 1 + random(3);
    let taken = 0;
    for (let step = 0; taken < epochs * windows; step++) {
      const ranks = Array.from({ length: world }, (_, rank) => windowsOfStep({ windows, seed, step, batch, rank, world }));
      const whole = windowsOfStep({ windows, seed, step, batch: world * batch });
      assert.deepEqual(ranks.flat(), whole);
      for (const window of whole) if (taken++ < epochs * windows) counts[window]++;
    }
    assert.deepEqual(counts, new Uint32Array(windows).fill(epochs), `${windows} windows, ${world} ranks, batch ${batch}`);
  }
  const options = { windows: 10, seed: 1, step: 0, batch: 2 };
  for (const [change, message] of /** @type {[object, RegExp][]} */ ([
    [{ windows: 0 }, /windows is an integer of at least 1, got 0/],
    [{ seed: 0.5 }, /seed is an integer, got 0\.5/],
    [{ step: -1 }, /step is an integer of at least 0, got -1/],
    [{ batch: 1.5 }, /batch is an integer of at least 1, got 1\.5/],
    [{ world: 0 }, /world is an integer of at least 1, got 0/],
    [{ rank: 2, world: 2 }, /rank 2: there are 2 ranks/],
  ])) {
    assert.throws(() => windowsOfStep({ ...options, ...change }), message);
  }
});

test('files that are not of ids, and ids that do not fit together, are named', async (t) => {
  const folder = temporaryFolder(t);
  const write = (/** @type {string} */ name, /** @type {Uint8Array} */ bytes) => {
    writeFileSync(join(folder, name), bytes);
    return join(folder, name);
  };
  const bytesOf = (/** @type {number[]} */ ...words) => new Uint8Array(Int32Array.from(words).buffer);
  const text = write('novel.txt', Buffer.from('Call me Ishmael!'));
  assert.throws(() => openShard(text), /novel\.txt is not a file of ids: no header of llm\.c, and not named \.bin/);
  assert.throws(() => openShard(write('a.bin', bytesOf(20240520, 1, 3))), /a\.bin has 12 bytes, less than the 1024 of llm\.c's header/);
  assert.throws(
    () => openShard(write('b.bin', bytesOf(20240326, 3))),
    /b\.bin is a model of llm\.c's \(magic 20240326\), not a file of ids/,
  );
  assert.throws(() => openDataset(write('empty.bin', new Uint8Array()), { block: 1 }), /empty\.bin has 0 tokens in 1 files/);

  const ids = new Uint32Array(20);
  const shards = await Promise.all(
    [2, 4].map(async (bytes) => {
      const path = join(folder, `train_${bytes}.bin`);
      const shard = await createShard(path, bytes);
      await shard.append(ids);
      await shard.end();
      return path;
    }),
  );
  shards.push(write('train_9.bin', new Uint8Array(40)));
  const kinds = ["llm.c's ids of 16 bits", "llm.c's ids of 32 bits", "nanoGPT's ids of 16 bits"];
  for (const [i, one] of shards.entries()) {
    for (const [j, other] of shards.entries()) {
      if (i === j) continue;
      assert.throws(() => openDataset([one, other], { block: 4 }), {
        name: 'RangeError',
        message: `${one} has ${kinds[i]}, and ${other} has ${kinds[j]}: one tokenizer's ids are of one kind`,
      });
    }
    openDataset([one, one], { block: 4 }).close();
  }

  await tokenize({ inputs: [text], output: join(folder, 'data'), validation: 0 });
  assert.throws(
    () => openDataset(join(folder, 'data'), { block: 4, vocabSize: 256 }),
    /data was encoded with a vocabulary of 257, and the vocabulary here has 256/,
  );
  openDataset(join(folder, 'data'), { block: 4, vocabSize: 257 }).close();
});

test('a run that is resumed reads on where it stopped, from its step alone', async (t) => {
  const folder = temporaryFolder(t);
  const input = join(folder, 'a.txt');
  writeFileSync(input, Array.from({ length: 900 }, (_, i) => `${i}`).join(' '));
  await tokenize({ inputs: [input], output: join(folder, 'data'), validation: 0, shardTokens: 700 });
  const open = () => openDataset(join(folder, 'data'), { block: 16 });
  const whole = open();
  const batches = Array.from({ length: 150 }, (_, step) => whole.batch({ seed: 3, step, batch: 2 }));
  whole.close();
  for (const step of [0, 1, 74, 149]) {
    const resumed = open();
    assert.deepEqual(resumed.batch({ seed: 3, step, batch: 2 }), batches[step]);
    // Two ranks read its halves.
    for (const rank of [0, 1]) {
      assert.deepEqual(resumed.batch({ seed: 3, step, batch: 1, rank, world: 2 }), batches[step].slice(17 * rank, 17 * rank + 17));
    }
    resumed.close();
  }
});

test('shards: what is written is read, in the form of llm.c; ids of nanoGPT; what lies is refused', async (t) => {
  const folder = temporaryFolder(t);
  for (const [bytes, magic, version] of [
    [2, 20240520, 1],
    [4, 20240801, 7],
  ]) {
    const path = join(folder, `${bytes}.bin`);
    const ids = Uint32Array.from({ length: 3000 }, (_, i) => (i * 21) % (bytes === 2 ? 65_536 : 2 ** 31));
    const shard = await createShard(path, bytes);
    await shard.append(ids.subarray(0, 1000));
    await shard.append(ids.subarray(1000));
    assert.equal((await shard.end()).tokens, 3000);
    const file = readFileSync(path);
    assert.deepEqual(
      [file.readInt32LE(0), file.readInt32LE(4), file.readInt32LE(8), file.length],
      [magic, version, 3000, 1024 + 3000 * bytes],
    );
    const read = openShard(path);
    assert.deepEqual(read.read(17, new Uint32Array(500)), ids.slice(17, 517));
    assert.throws(() => read.read(2900, new Uint32Array(101)), /has 3000 tokens: none from 2900 to 3001/);
    read.close();
    const narrow = openShard(path, { vocabSize: 100 });
    assert.throws(() => narrow.read(0, new Uint32Array(10)), /bin: token 5 is 105, and the vocabulary has 100/);
    narrow.close();
    truncateSync(path, 1024 + 2999 * bytes);
    assert.throws(() => openShard(path), /says that it has 3000 tokens of . bytes behind 1024 bytes of header, and has/);
    file.writeInt32LE(9, 4);
    writeFileSync(path, file);
    assert.throws(() => openShard(path), /is of version 9 of llm\.c's shards/);
  }
  const bare = join(folder, 'train.bin');
  writeFileSync(bare, new Uint8Array(Uint16Array.of(5, 6, 65_535).buffer));
  const shard = openShard(bare);
  assert.deepEqual([...shard.read(0, new Uint32Array(3))], [5, 6, 65_535]);
  shard.close();
  writeFileSync(bare, new Uint8Array(5));
  assert.throws(() => openShard(bare), /train\.bin has 5 bytes: no header of llm\.c, and no whole number of ids/);
});

test('a dataset: windows within files, batches by step, validation apart', async (t) => {
  const folder = temporaryFolder(t);
  for (const [name, tokens] of /** @type {[string, number][]} */ ([
    ['train_0.bin', 100],
    ['train_1.bin', 8],
    ['train_2.bin', 41],
    ['val_0.bin', 30],
  ])) {
    writeFileSync(
      join(folder, name),
      new Uint8Array(Uint16Array.from({ length: tokens }, (_, i) => i + 1000 * Number(name.at(-5))).buffer),
    );
  }
  const data = openDataset(folder, { block: 8 });
  assert.deepEqual([data.windows, data.tokens], [12 + 0 + 5, 149]);
  assert.deepEqual([...data.window(0)], [0, 1, 2, 3, 4, 5, 6, 7, 8]);
  assert.deepEqual([...data.window(12)].slice(0, 2), [2000, 2001]);
  assert.throws(() => data.window(17), /window 17: there are 17/);
  const seen = [];
  for (let step = 0; step < 17; step++) seen.push(data.batch({ seed: 4, step, batch: 1 })[0]);
  assert.deepEqual(
    seen.sort((a, b) => a - b),
    [...Array.from({ length: 12 }, (_, i) => 8 * i), ...Array.from({ length: 5 }, (_, i) => 2000 + 8 * i)],
  );
  data.close();
  const validation = openDataset(folder, { block: 8, split: 'validation' });
  assert.equal(validation.windows, 3);
  validation.close();
  assert.throws(() => openDataset(folder, { block: 200 }), /has 149 tokens in 3 files: no file has the 201 of a window/);
  assert.throws(() => openDataset(join(folder, 'x'), { block: 2 }), /ENOENT/);
  assert.throws(() => openDataset(folder, { block: 0.5 }), /openDataset: block is an integer of at least 1, got 0\.5/);
  const single = openDataset(join(folder, 'train_2.bin'), { block: 8 });
  assert.equal(single.windows, 5);
  single.close();
  writeFileSync(join(folder, 'meta.json'), '{');
  assert.throws(() => openDataset(folder, { block: 8 }), /meta\.json is not a file of JSON: /);
});

test('tokenizeCorpus: the same files for any number of threads and size of pieces; every document once, on one side', async (t) => {
  const folder = temporaryFolder(t);
  const documents = Array.from({ length: 500 }, (_, i) => `Dokument ${i}: ${'größer 日本 🙂 '.repeat(i % 40)}\nEnde`);
  const jsonl = join(folder, 'a.jsonl');
  writeFileSync(jsonl, `\ufeff${documents.map((text) => JSON.stringify({ text, other: 1 })).join('\r\n')}`);
  const packed = join(folder, 'b.jsonl.gz');
  writeFileSync(packed, zlib.gzipSync(readFileSync(jsonl).subarray(3)));
  const plain = join(folder, 'c.txt');
  writeFileSync(plain, documents.join('<|sep|>'));
  /** @type {Map<string, string>} */
  const expected = new Map();
  for (const [name, inputs] of /** @type {[string, string[]][]} */ ([
    ['jsonl', [jsonl]],
    ['packed', [packed]],
    ['plain', [plain]],
  ])) {
    for (const [workers, pieceBytes] of [
      [0, 5000],
      [1, 2 ** 23],
      [3, 1000],
      [2, 7777],
    ]) {
      const output = join(folder, `${name}-${workers}`);
      const info = await tokenize({ inputs, output, workers, pieceBytes, separator: '<|sep|>', validation: 0.1, shardTokens: 10_000 });
      assert.equal(info.documents, 500);
      const found = JSON.stringify([info.shards, idsOf(output, 'train').length]);
      assert.equal(found, expected.get('all') ?? found, name);
      expected.set('all', found);
      assert.ok(info.shards.train.length > 5 && info.shards.train.slice(0, -1).every(({ tokens }) => tokens === 10_000));
    }
  }
  const output = join(folder, 'jsonl-3');
  const [train, validation] = [documentsIn(idsOf(output, 'train')), documentsIn(idsOf(output, 'validation'))];
  assert.deepEqual([...train, ...validation].sort(), [...documents].sort());
  assert.ok(validation.length > 25 && validation.length < 85, String(validation.length));
});

test('tokenizeCorpus: one long text: its end is held out, and nothing is lost at the cuts', async (t) => {
  const folder = temporaryFolder(t);
  const text = Array.from({ length: 20_000 }, (_, i) => `Zeile ${i}${i % 3 ? '.' : ' endet so'}\n${i % 7 ? '' : '\n  '}`).join('');
  const input = join(folder, 'novel.txt');
  writeFileSync(input, text);
  const info = await tokenize({ inputs: [input], output: join(folder, 'out'), validation: 0.02, workers: 2 });
  const [train, validation] = [idsOf(join(folder, 'out'), 'train'), idsOf(join(folder, 'out'), 'validation')];
  assert.equal(Buffer.from([...train, ...validation].filter((id) => id !== EOS)).toString(), text);
  assert.equal(info.documents, 1);
  const share = validation.length / Buffer.byteLength(text);
  assert.ok(share > 0.01 && share < 0.05, String(share));
  await tokenize({ inputs: [input], output: join(folder, 'all'), validation: 0 });
  assert.equal(idsOf(join(folder, 'all'), 'train').length, Buffer.byteLength(text) + 1);
});

test('tokenizeCorpus: Parquet, a folder of files', async (t) => {
  const folder = temporaryFolder(t);
  await tokenize({ inputs: [PARQUET], output: join(folder, 'out'), validation: 0 });
  assert.deepEqual(
    documentsIn(idsOf(join(folder, 'out'), 'train')),
    Array.from({ length: 7 }, (_, i) => `Document ${i}: größer als ${i * i} — 日本語.`),
  );
  await assert.rejects(
    tokenize({ inputs: [PARQUET], output: join(folder, 'no'), field: 'body' }),
    /rows\.parquet has no column body; it has id, text/,
  );
  await assert.rejects(
    tokenize({ inputs: [PARQUET], output: join(folder, 'no'), field: 'id' }),
    /rows\.parquet, row 0: id is a (bigint|number), not text/,
  );
  const texts = join(folder, 'texts');
  mkdirSync(join(texts, 'sub'), { recursive: true });
  writeFileSync(join(texts, 'b.txt'), 'two');
  writeFileSync(join(texts, 'a.md'), 'one');
  writeFileSync(join(texts, 'sub', 'c.jsonl'), '{"text":"three"}\n\n{"text":""}\n');
  writeFileSync(join(texts, 'd.png'), 'no text');
  writeFileSync(join(texts, 'e.txt'), '');
  const info = await tokenize({ inputs: [texts], output: join(folder, 'folder'), validation: 0 });
  assert.deepEqual(documentsIn(idsOf(join(folder, 'folder'), 'train')), ['one', 'two', 'three', '']);
  assert.equal(info.documents, 4);
});

test('tokenizeCorpus: Parquet whose pages are packed by other means, and columns inside of columns', async (t) => {
  const folder = temporaryFolder(t);
  const texts = Array.from({ length: 20 }, (_, i) => `Row ${i} of it.`);
  for (const name of ['gzip', 'brotli']) {
    const input = fileURLToPath(new URL(`fixtures/${name}.parquet`, import.meta.url));
    await tokenize({ inputs: [input], output: join(folder, name), validation: 0 });
    assert.deepEqual(documentsIn(idsOf(join(folder, name), 'train')), texts);
    await assert.rejects(
      tokenize({ inputs: [input], output: join(folder, 'no'), field: 'inner' }),
      new RegExp(`${name}\\.parquet has no column inner; it has text, outer`),
    );
    await assert.rejects(tokenize({ inputs: [input], output: join(folder, 'no'), field: 'outer' }), /row 0: outer is an object, not text/);
  }
  const zstd = fileURLToPath(new URL('fixtures/zstd.parquet', import.meta.url));
  const read = tokenize({ inputs: [zstd], output: join(folder, 'zstd'), validation: 0 });
  if (!('zstdDecompressSync' in zlib))
    await assert.rejects(read, /zstd\.parquet: its pages are packed with zstd, which Node reads from 22\.15 on/);
  else assert.equal((await read).documents, 20);
});

test('tokenizeCorpus: a byte order mark at the start of a text is none of it', async (t) => {
  const folder = temporaryFolder(t);
  for (const [name, separator, documents] of /** @type {[string, string | undefined, string[]][]} */ ([
    ['whole', undefined, ['one\n\n\ufefftwo']],
    ['parts', '\n\n', ['one', '\ufefftwo']],
  ])) {
    const input = join(folder, `${name}.txt`);
    writeFileSync(input, '\ufeffone\n\n\ufefftwo');
    await tokenize({ inputs: [input], output: join(folder, name), separator, validation: 0, pieceBytes: 8 });
    assert.deepEqual(documentsIn(idsOf(join(folder, name), 'train')), documents);
  }
});

test('tokenizeCorpus: what cannot be read is named by file and line, or byte; nothing is left', async (t) => {
  const folder = temporaryFolder(t);
  const lines = Array.from({ length: 300 }, (_, i) => JSON.stringify({ text: `line ${i}` }));
  for (const [bad, message] of /** @type {[string | Buffer, RegExp][]} */ ([
    ['{"text": 5}', /a\.jsonl, line 251: text is not text/],
    ['{"body": "x", "n": 1}', /a\.jsonl, line 251: no field text; it has body, n/],
    ['{"text": "x"', /a\.jsonl, line 251: not JSON: /],
    ['[1]', /a\.jsonl, line 251: not an object/],
    ['{"text": "a \\ud83d"}', /a\.jsonl, line 251: text has half of a surrogate pair/],
    [Buffer.from([0x22, 0xc3, 0x28]), /a\.jsonl, line 251: byte 0xc3 is not UTF-8/],
  ])) {
    const input = join(folder, 'a.jsonl');
    writeFileSync(
      input,
      Buffer.concat([Buffer.from(`${lines.slice(0, 250).join('\n')}\n`), Buffer.from(bad), Buffer.from(`\n${lines.join('\n')}`)]),
    );
    await assert.rejects(tokenize({ inputs: [input], output: join(folder, 'out'), pieceBytes: 500, workers: 2 }), message);
    assert.deepEqual(readdirSync(folder), ['a.jsonl']);
  }
  const text = join(folder, 'b.txt');
  for (const at of [0, 1, 12_345, 19_999]) {
    const bytes = Buffer.alloc(20_000, 'Größe\n');
    bytes[at] = 0xff;
    writeFileSync(text, bytes);
    // A character that is cut short is named by its first byte.
    const say = bytes[at - 1] === 0xc3 ? at - 1 : at;
    await assert.rejects(
      tokenize({ inputs: [text], output: join(folder, 'out'), pieceBytes: 4096 }),
      new RegExp(`b\\.txt, byte ${say}: byte 0x.. is not UTF-8`),
    );
  }
  await tokenize({ inputs: [text], output: join(folder, 'out'), replaceInvalid: true, validation: 0 });
  assert.equal(
    Buffer.from(idsOf(join(folder, 'out'), 'train').slice(0, -1))
      .toString()
      .split('\ufffd').length,
    2,
  );
});

test('tokenizeCorpus: files of other kinds, and files that are cut short, are named', async (t) => {
  const folder = temporaryFolder(t);
  const write = (/** @type {string} */ name, /** @type {string | Uint8Array} */ contents) => {
    writeFileSync(join(folder, name), contents);
    return join(folder, name);
  };
  const zipped = zlib.gzipSync('Some text. '.repeat(5000));
  for (const [input, message] of /** @type {[string, RegExp][]} */ ([
    [write('empty.txt', ''), /no text in .*empty\.txt/],
    [write('mark.txt', '\ufeff'), /no text in .*mark\.txt/],
    [write('blank.jsonl', '\n \n\n'), /no text in .*blank\.jsonl/],
    [write('train.bin', 'ids!'), /train\.bin has ids, not text: openDataset reads them as they are/],
    [write('utf16.txt', Buffer.from('\ufeffText', 'utf16le')), /utf16\.txt, byte 0: byte 0xff is not UTF-8, but the mark of UTF-16/],
    [write('short.txt.gz', zipped.subarray(0, 60)), /short\.txt\.gz: unexpected end of file/],
    [write('no.txt.gz', 'not compressed'), /no\.txt\.gz: incorrect header check/],
    [write('no.parquet', 'not Parquet at all'), /no\.parquet is not a Parquet file: /],
    [write('short.parquet', readFileSync(PARQUET).subarray(0, -20)), /short\.parquet is not a Parquet file: /],
  ])) {
    const before = readdirSync(folder);
    await assert.rejects(tokenize({ inputs: [input], output: join(folder, 'out') }), message);
    assert.deepEqual(readdirSync(folder), before);
  }
  const full = Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC', syscall: 'write' });
  await assert.rejects(
    makeFolder(join(folder, 'full'), () => Promise.reject(full)),
    /full could not be written: ENOSPC: no space left/,
  );
  const info = await tokenize({ inputs: [write('a.txt', 'Text'), join(folder, 'empty.txt')], output: join(folder, 'out'), validation: 0 });
  assert.equal(info.documents, 1);
});

test('tokenizeCorpus: the text of a document alone says whether it is held out', async (t) => {
  const folder = temporaryFolder(t);
  const documents = Array.from({ length: 400 }, (_, i) => `Document ${i % 250}`);
  const write = (/** @type {string} */ name, /** @type {string} */ contents) => {
    writeFileSync(join(folder, name), contents);
    return join(folder, name);
  };
  const inputs = [
    write('a.jsonl', documents.map((text) => JSON.stringify({ text })).join('\n')),
    write('b.txt', [...documents].reverse().join('--')),
    write(
      'c.jsonl',
      documents
        .slice(100)
        .map((text) => JSON.stringify({ id: 1, text }))
        .join('\n'),
    ),
  ];
  /** @type {Map<string, string>} */
  const sides = new Map();
  for (const [i, input] of inputs.entries()) {
    const output = join(folder, `out${i}`);
    await tokenize({ inputs: [input], output, separator: '--', validation: 0.2 });
    for (const split of /** @type {const} */ (['train', 'validation'])) {
      for (const text of documentsIn(idsOf(output, split))) {
        assert.equal(sides.get(text) ?? split, split, text);
        sides.set(text, split);
      }
    }
  }
  assert.equal(sides.size, 250);
  const held = [...sides.values()].filter((split) => split === 'validation').length;
  assert.ok(held > 25 && held < 80, String(held));
});

test('tokenizeCorpus: outputs that are there, or are inputs, are refused before any work; a signal leaves nothing', async (t) => {
  const folder = temporaryFolder(t);
  const input = join(folder, 'texts', 'a.txt');
  mkdirSync(join(folder, 'texts'));
  writeFileSync(input, 'some text');
  symlinkSync(join(folder, 'texts'), join(folder, 'link'));
  for (const [options, message] of /** @type {[any, RegExp][]} */ ([
    [{ inputs: [input], output: input }, /a\.txt is a file; the output is a folder/],
    [{ inputs: [input], output: join(folder, 'texts') }, /texts is not empty: name another folder, or remove it/],
    [{ inputs: [join(folder, 'texts')], output: join(folder, 'texts', 'out') }, /out is in the input .*texts/],
    [{ inputs: [join(folder, 'link')], output: join(folder, 'texts', 'out') }, /out is in the input .*link/],
    [{ inputs: [join(folder, 'texts')], output: join(folder, 'link', 'out') }, /out is in the input .*texts/],
    [{ inputs: [join(folder, 'no.txt')], output: join(folder, 'out') }, /no\.txt: no such file or folder/],
    [{ inputs: [input], output: join(folder, 'out'), validation: 1 }, /validation is a share from 0 to less than 1, got 1/],
    [{ inputs: [input], output: join(folder, 'out'), separator: '' }, /separator is empty/],
    [{ inputs: [input], output: join(folder, 'out'), shardTokens: 0 }, /shardTokens is an integer from 1/],
    [{ inputs: [], output: join(folder, 'out') }, /no inputs/],
    [{ inputs: [input], output: join(folder, 'out'), signal: AbortSignal.abort() }, /aborted/],
  ])) {
    await assert.rejects(tokenize(options), message);
    assert.ok(!existsSync(join(folder, 'out')) && !existsSync(join(folder, 'texts', 'out')));
  }
  writeFileSync(input, 'A line of text\n'.repeat(100_000));
  const stop = new AbortController();
  /** @type {number[]} */
  const seen = [];
  const onProgress = (/** @type {import('../src/data/corpus.mjs').Progress} */ { bytes, totalBytes }) => {
    assert.equal(totalBytes, 1_500_000);
    if (seen.push(bytes) === 3) stop.abort();
  };
  const options = { inputs: [input], output: join(folder, 'out'), pieceBytes: 10_000, onProgress, signal: stop.signal };
  await assert.rejects(tokenize(options), { name: 'AbortError' });
  assert.deepEqual(readdirSync(folder).sort(), ['link', 'texts']);
  assert.ok(seen.length < 20 && seen.every((bytes, i) => i === 0 || bytes > seen[i - 1]));
  // What a run that was killed has left is in nobody's way.
  mkdirSync(join(folder, 'out.partial'));
  writeFileSync(join(folder, 'out.partial', 'train-00000.bin'), 'half');
  await assert.rejects(tokenize({ inputs: [input], output: join(folder, 'out') }), /out\.partial is in the way/);
  assert.ok(existsSync(join(folder, 'out.partial', 'train-00000.bin')), "it may be somebody's");
  writeFileSync(join(folder, 'out.partial', '.helios-lm-partial'), '');
  await tokenize({ inputs: [input], output: join(folder, 'out') });
  assert.deepEqual(readdirSync(folder).sort(), ['link', 'out', 'texts']);
});

test('tokenizeCorpus: memory does not grow with the text', (t) => {
  const folder = temporaryFolder(t);
  // Words that never come again fill the tokenizer's cache.
  const words = Array.from(
    { length: 400_000 },
    (_, i) => `${Math.imul(i, 0x9e3779b1) >>> 0}`.slice(-6) + (i % 12 === 0 ? ' of it.\n' : ' '),
  );
  const plain = words.join('').replaceAll('1', 'text that is common');
  const documents = Array.from({ length: 1000 }, (_, i) =>
    words
      .slice(400 * i, 400 * i + 400)
      .join('')
      .replaceAll('2', 'and the like'),
  );
  const jsonl = documents.map((text) => `${JSON.stringify({ text })}\n`).join('');
  const bytes = plain.length + jsonl.length;
  const peaks = [2, 8].map((times) => {
    const inputs = [join(folder, `${times}.txt`), join(folder, `${times}.jsonl`)];
    writeFileSync(inputs[0], plain.repeat(times));
    writeFileSync(inputs[1], jsonl.repeat(times));
    const program = `
      import { readFileSync } from 'node:fs';
      import { tokenizeCorpus } from ${JSON.stringify(new URL('../src/data/corpus.mjs', import.meta.url).href)};
      let peak = 0;
      const onProgress = () => (peak = Math.max(peak, process.memoryUsage().rss));
      const inputs = ${JSON.stringify(inputs)};
      const options = { tokenizer: ${JSON.stringify(GPT2)}, workers: 2, pieceBytes: 2 ** 20, onProgress };
      const info = await tokenizeCorpus({ inputs, output: ${JSON.stringify(join(folder, `out${times}`))}, ...options });
      console.log(JSON.stringify([info.bytes, peak]));
    `;
    const { stdout, stderr, status } = spawnSync(process.execPath, ['--input-type=module', '-e', program], { encoding: 'utf8' });
    assert.equal(status, 0, stderr);
    const [read, peak] = JSON.parse(stdout);
    assert.equal(read, times * bytes);
    return peak / 1e6;
  });
  const more = (6 * bytes) / 1e6;
  assert.ok(more > 70, String(more));
  // A busy machine collects garbage late; what is kept of the text would be all of it.
  assert.ok(peaks[1] < peaks[0] + 0.75 * more, `${peaks[0]} MB of memory, and ${peaks[1]} for ${more} MB more of text`);
});

test('documents of a window, and examples put into windows', () => {
  const ids = Uint32Array.from([1, 2, EOS, 3, EOS, 4, 5, 6]);
  const { positions, firstKey, lastQuery } = documentsOf(ids, EOS);
  assert.deepEqual([...positions], [0, 1, 2, 0, 1, 0, 1, 2]);
  assert.deepEqual([...firstKey], [0, 0, 0, 3, 3, 5, 5, 5]);
  assert.deepEqual([...lastQuery], [2, 2, 2, 4, 4, 7, 7, 7]);
  const example = (/** @type {number} */ length, /** @type {number} */ id) => ({
    ids: new Uint32Array(length).fill(id),
    targets: new Uint32Array(length).fill(id + 100),
  });
  const { windows, skipped } = pack([example(5, 1), example(4, 2), example(9, 3), example(3, 4), example(0, 5), example(4, 6)], 8, {
    pad: 7,
  });
  assert.deepEqual(skipped, [2, 4]);
  assert.deepEqual(
    windows.map((window) => [...window.ids]),
    [
      [1, 1, 1, 1, 1, 4, 4, 4],
      [2, 2, 2, 2, 6, 6, 6, 6],
    ],
  );
  assert.deepEqual([...windows[0].firstKey], [0, 0, 0, 0, 0, 5, 5, 5]);
  const [alone] = pack([example(3, 1)], 5, { pad: 7 }).windows;
  assert.deepEqual(
    [[...alone.ids], [...alone.targets]],
    [
      [1, 1, 1, 7, 7],
      [101, 101, 101, IGNORED, IGNORED],
    ],
  );
  assert.deepEqual([...alone.lastQuery], [2, 2, 2, 4, 4]);
  assert.throws(() => pack([{ ids: new Uint32Array(2), targets: new Uint32Array(1) }], 4), /example 0 has 2 ids and 1 targets/);
});
