// What whoever trains meets: options that a run keeps, ends in its middle, and what is said of what cannot be done.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, cpSync, existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { basename, join, resolve } from 'node:path';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { UsageError } from 'helios-vk/options';

import { openDataset, prepareText, readCorpusInfo, tokenizeCorpus, train } from '../src/index.mjs';
import { checkpointPath, checkpointsIn, loadCheckpoint, stepOf } from '../src/train/checkpoint.mjs';
import { vocabularyFor } from '../src/train/data.mjs';
import { checkFits } from '../src/train/device.mjs';
import { freeFolder } from '../src/train/plan.mjs';
import { configOf } from '../src/train/settings.mjs';
import { temporaryFolder } from '../../../__test__/lib/folder.mjs';
import { PROGRAM, lm, textOf } from '../../../__test__/lib/lm.mjs';

/** @typedef {import('../src/train/run.mjs').TrainOptions} TrainOptions */

const vk = createRequire(import.meta.url)('helios-vk');
const base = temporaryFolder();
/** For what would not end. */
const LIMIT = { timeout: 120_000 };
let made = 0;
/** A path that is not there. */
const fresh = () => join(base, `${++made}`);

const TEXT = textOf(900);
const FILE = join(base, 'text.txt');
writeFileSync(FILE, TEXT);
const PACKED = `${FILE}.gz`;
writeFileSync(PACKED, gzipSync(TEXT));
const DATA = join(base, 'data');
await prepareText([FILE], { out: DATA, vocabSize: 300, validation: 0.1 });

/** @type {TrainOptions} */
const SIZES = { preset: 'llama-tiny', layers: 1, width: 32, heads: 1, hidden: 16, blockSize: 16, batchSize: 2, vocabSize: 300 };
const FLAGS = Object.entries({ ...SIZES, sampleTokens: 0 }).flatMap(([name, value]) => [
  `--${name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`,
  String(value),
]);

/** The events and notes of a run. @param {TrainOptions} options */
async function run(options) {
  /** @type {import('../src/log/events.mjs').TrainEvent[]} */
  const events = [];
  /** @type {string[]} */
  const notes = [];
  for await (const event of train({ note: (text) => notes.push(text), ...options })) events.push(event);
  const at = (/** @type {string} */ type) => events.flatMap((event) => (event.type === type ? [event.step] : []));
  return { events, at, notes: notes.join('\n') };
}
/** @param {TrainOptions} options A new run. */
const begin = (options) => run({ ...SIZES, data: DATA, out: fresh(), sampleTokens: 0, evalBatches: 2, ...options });

test('a resumed run keeps the options of the run, unless it is given others', async () => {
  const out = fresh();
  await begin({ out, maxSteps: 2, saveEvery: 1, saveTotalLimit: 2, evalEvery: 1, tensorboard: false });
  const more = await run({ resume: out, maxSteps: 4 });
  assert.deepEqual([more.at('checkpoint'), more.at('eval'), more.at('sample')], [[3, 4], [3, 4], []]);
  assert.deepEqual(checkpointsIn(out).map(stepOf), [3, 4]);
  const [start] = more.events;
  assert.ok(start.type === 'start' && start.evalEvery === 1 && start.saveEvery === 1 && start.sampleEvery === 0);
  assert.ok(!readdirSync(out).some((name) => name.startsWith('events')));

  const early = fresh();
  const still = { learningRate: 0, minLr: 0, maxSteps: 9 };
  const ended = await begin({ out: early, ...still, evalEvery: 1, saveEvery: 3, earlyStoppingPatience: 2 });
  assert.deepEqual(ended.at('done'), [3]);
  await assert.rejects(run({ resume: early }), {
    message: 'the run ended after 2 evaluations without a lower loss: a larger --early-stopping-patience, or 0, continues',
  });
  const other = await run({ resume: early, maxSteps: 6, earlyStoppingPatience: 0, saveEvery: 0, evalEvery: 0 });
  assert.deepEqual([other.at('step'), other.at('checkpoint'), other.at('eval')], [[4, 5, 6], [6], [6]]);
});

/**
 * Runs until the n-th list of dispatches after the start, and gives `reason` there.
 * @param {TrainOptions} options @param {number} nth @param {unknown} reason
 */
async function stopped(options, nth, reason) {
  const stop = new AbortController();
  const { batchExecuteAll } = vk;
  let lists = -Infinity;
  vk.batchExecuteAll = (/** @type {any[]} */ ...args) => {
    if (++lists === nth) stop.abort(reason);
    return batchExecuteAll.apply(vk, args);
  };
  const [types, notes] = [/** @type {string[]} */ ([]), /** @type {string[]} */ ([])];
  try {
    const more = { signal: stop.signal, note: (/** @type {string} */ text) => notes.push(text), mode: /** @type {const} */ ('plain') };
    for await (const event of train({
      ...SIZES,
      data: DATA,
      sampleTokens: 0,
      tensorboard: false,
      maxSteps: 2,
      maxGradNorm: 0,
      ...options,
      ...more,
    })) {
      types.push(`${event.type} ${event.step}`);
      if (event.type === 'start') lists = 0;
    }
  } catch (error) {
    return { types, notes: notes.join('\n'), error };
  } finally {
    vk.batchExecuteAll = batchExecuteAll;
  }
  return assert.fail('it did not end');
}

test('a run that is asked to end does not wait for an evaluation or a sample, and throws the reason', LIMIT, async () => {
  const [out, reason] = [fresh(), new Error('enough')];
  const evaluating = await stopped({ out, evalEvery: 1, batchSize: 1, evalBatches: 1000 }, 20, reason);
  assert.deepEqual(evaluating.types, ['start 0', 'step 1', 'checkpoint 1', 'done 1']);
  assert.equal(evaluating.error, reason);
  assert.ok(evaluating.notes.includes(`${out} has no best/: the run has stopped before its first evaluation`), evaluating.notes);
  // A sample that would not end today.
  const sampling = await stopped({ out: fresh(), evalEvery: 0, sampleEvery: 1, sampleTokens: 1e6 }, 20, undefined);
  assert.deepEqual(sampling.types, ['start 0', 'step 1', 'checkpoint 1', 'done 1']);
  assert.equal(/** @type {Error} */ (sampling.error).name, 'AbortError');
  // The last evaluation: all steps are done, and saved.
  const last = await stopped({ out: fresh(), maxSteps: 1, batchSize: 1, evalBatches: 1000 }, 20, 'a word');
  assert.deepEqual(last.types, ['start 0', 'step 1', 'checkpoint 1', 'done 1']);
  assert.equal(last.error, 'a word');
});

test('who reads no more of --json ends the run with a checkpoint', { ...LIMIT, skip: process.platform === 'win32' }, async () => {
  const out = fresh();
  const child = spawn(process.execPath, [PROGRAM, 'train', DATA, ...FLAGS, '--max-steps', '1000000', '--out', out, '--json'], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (text) => (said += text));
  const [first] = await once(child.stdout, 'data');
  assert.match(String(first), /^\{"type":"start"/);
  child.stdout.destroy();
  const [status] = await once(child, 'close');
  assert.equal(status, 141, said);
  const [saved, ...rest] = checkpointsIn(out).map(stepOf);
  assert.ok(saved >= 1 && saved < 1e6 && rest.length === 0, said);
  assert.match(said, /: stopped\n$/);
});

test('the share of a compressed text is held out of its text', async () => {
  for (const input of [FILE, PACKED]) {
    const { shards } = await tokenizeCorpus({ inputs: [input], tokenizer: DATA, output: fresh(), validation: 0.1 });
    const [rest, held] = [shards.train, shards.validation].map(([{ tokens }]) => tokens);
    const share = held / (rest + held);
    assert.ok(share >= 0.1 && share < 0.2, `${input}: ${share}`);
  }
});

test('why nothing is held out is told', async () => {
  const short = join(base, 'short.txt');
  writeFileSync(short, TEXT.slice(0, 1500));
  /** @param {TrainOptions} options */
  const notes = async (options) => {
    /** @type {string[]} */
    const all = [];
    for await (const _ of train({ ...SIZES, out: fresh(), note: (text) => all.push(text), ...options })) break;
    return all.join('\n');
  };
  assert.match(await notes({ data: short, validation: 0 }), /^nothing is held out: --validation is 0$/m);
  assert.match(await notes({ data: short }), /^nothing is held out: the text is too short to hold a window out$/m);
  const lines = { data: short, separator: '\n', validation: 1e-9 };
  assert.match(await notes(lines), /^nothing is held out: none of the \d\d documents was chosen: a larger --validation chooses more$/m);
  await assert.rejects(begin({ data: short, separator: '###' }), /^Error: the separator "###" is nowhere in \S+short\.txt$/);
});

test('a run on token files without a tokenizer says so, goes on, and takes one later', async () => {
  const [tokens, out] = [fresh(), fresh()];
  cpSync(DATA, tokens, { recursive: true, filter: (path) => !/tokenizer/.test(path) });
  const first = await begin({ data: tokens, out, maxSteps: 1, sampleTokens: 3 });
  assert.ok(first.notes.includes(`${tokens} has no tokenizer.json: there are no samples`), first.notes);
  assert.deepEqual((await run({ resume: out, maxSteps: 2 })).at('sample'), []);
  assert.deepEqual((await run({ resume: out, maxSteps: 3, tokenizer: DATA })).at('sample'), [3]);
  assert.ok(existsSync(join(checkpointPath(out, 3), 'tokenizer.json')));
});

test('options without a use and names that no option has are refused before any work', async () => {
  const lines = join(base, 'lines.jsonl');
  writeFileSync(lines, `${JSON.stringify({ text: TEXT })}\n`);
  const { initDevice } = vk;
  vk.initDevice = () => assert.fail('a device was opened');
  try {
    for (const [options, message] of /** @type {[any, string][]} */ ([
      [{ data: FILE, field: 'body' }, `--field is for JSONL and Parquet, and ${FILE} is plain text`],
      [{ data: lines, separator: '\n' }, `--separator is for plain text, and ${lines} is JSONL`],
      [{ validation: 0 }, `--validation is for texts, and ${DATA} holds token files`],
      [{ separator: '\n' }, `--separator is for texts, and ${DATA} holds token files`],
      [{ data: FILE, validation: 0, evalEvery: 5 }, '--eval-every needs held-out text: leave --validation 0 out'],
      [{ sampleEvery: 5 }, '--sample-every needs samples, and --sample-tokens is 0'],
      [{ samplePrompt: 'a' }, '--sample-prompt needs samples, and --sample-tokens is 0'],
      [{ lrScheduler: 'constant', minLr: 1e-5 }, '--min-lr is for a rate that falls, and --lr-scheduler is constant'],
      [{ data: FILE, earlyStoppingPatience: 2, evalEvery: 0 }, '--early-stopping-patience needs evaluations, and --eval-every is 0'],
      [{ data: FILE, vocabSize: 10 }, '--vocab-size must be at least 256, the number of bytes, got 10'],
      [{ data: join(base, 'none.txt') }, `${join(base, 'none.txt')} does not exist`],
      [{ data: base, out: base }, `--out ${base} is an input: name another folder`],
    ])) {
      await assert.rejects(begin(options), (/** @type {Error} */ error) => {
        assert.ok(error instanceof UsageError, error.stack);
        assert.equal(error.message, message);
        return true;
      });
    }
    await assert.rejects(begin(/** @type {any} */ ({ maxStep: 3 })), { message: 'train has no option maxStep; the nearest is maxSteps' });
  } finally {
    vk.initDevice = initDevice;
  }
  assert.throws(() => openDataset(DATA, /** @type {any} */ ({ block: 4, splitt: 'train' })), /openDataset has no option splitt; .* split$/);
  await assert.rejects(prepareText([FILE], /** @type {any} */ ({ out: DATA, vocabsize: 300 })), /prepareText .* vocabsize; .* vocabSize$/);
});

test('the advice for what does not fit is one that helps', () => {
  const { model, settings } = configOf('gpt-tiny');
  const device = { deviceName: 'a device', maxStorageBufferRange: 2 ** 20 };
  assert.throws(() => checkFits(model, { ...settings, batchSize: 64 }, device), /: a smaller batch in more micro-steps needs less$/);
  assert.throws(() => checkFits(model, { ...settings, blockSize: 4096 }, device), /: a smaller block size needs less$/);
});

test('tensors of two checkpoints in one folder are found', async () => {
  const out = fresh();
  await begin({ out, maxSteps: 2, saveEvery: 1 });
  const [one, two] = [1, 2].map((step) => checkpointPath(out, step));
  for (const name of ['optimizer.safetensors', 'model.safetensors']) {
    cpSync(two, `${two}.old`, { recursive: true });
    copyFileSync(join(one, name), join(two, name));
    await assert.rejects(loadCheckpoint(two), new RegExp(`step-0000002.${name} was changed or is damaged, or is of another step`));
    rmSync(two, { recursive: true });
    cpSync(`${two}.old`, two, { recursive: true });
  }
  await loadCheckpoint(two);
});

test('the command line: a status and a message for each mistake, and folders by the name of the text', async (t) => {
  const folder = fresh();
  mkdirSync(folder);
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  const none = join(folder, 'none');
  for (const [args, status, message] of /** @type {[string[], number, RegExp][]} */ ([
    [['info', none], 2, /^helios-lm: the input \S+none cannot be read: no such file or folder \(see --help\)\n$/],
    [['train', FILE, '--learning-rate', '-1'], 2, /^helios-lm: --learning-rate -1: must be a number of at least 0 /],
    [['train', FILE, '--ui', '--quiet'], 2, /^helios-lm: --quiet hides the address of the page: name its --port /],
    [['train', FILE, ...FLAGS, '--ui', '--port', String(port)], 1, /^helios-lm: the page cannot be served on port \d+: [^\n]*EADDRINUSE/],
    [['train', FILE, ...FLAGS, '--heads', '3'], 2, /^helios-lm: --width 32 is not a multiple of --heads 3 \(see --help\)\n$/],
    [['tokenize', FILE, '--tokenizer', DATA, '--out', none, '--field', 'x'], 2, /^helios-lm: --field is for JSONL and Parquet, and /],
  ])) {
    const ran = lm(args, {}, { cwd: folder });
    assert.equal(ran.status, status, ran.stderr);
    assert.match(ran.stderr, message);
  }
  assert.deepEqual(readdirSync(folder), []);

  // The texts of the current folder, twice: what the first run wrote is no text.
  copyFileSync(PACKED, join(folder, 'n2.txt.gz'));
  const steps = ['--max-steps', '1', '--quiet'];
  for (const input of ['n2.txt.gz', '.']) {
    const ran = lm(['train', input, ...FLAGS, ...steps], {}, { cwd: folder });
    assert.equal(ran.status, 0, ran.stderr);
  }
  assert.deepEqual(readdirSync(join(folder, 'runs')).sort(), ['n2', folder.split(/[\\/]/).at(-1)].sort());
  const [n2, whole] = ['n2', String(made)].map((name) => readCorpusInfo(join(folder, 'runs', name, 'data')));
  assert.deepEqual(whole.shards, n2.shards);
  const tokenized = lm(['tokenize', 'n2.txt.gz', '--tokenizer', 'runs/n2', '--out', 'tokens'], {}, { cwd: folder });
  assert.equal(tokenized.status, 0, tokenized.stderr);

  writeFileSync(join(folder, 'runs', 'n2', 'step-0000001', 'model.safetensors'), 'damaged');
  const damaged = lm(['generate', '--model', 'runs/n2', '--prompt', 'a'], {}, { cwd: folder });
  assert.match(damaged.stderr, /^helios-lm: runs.n2.step-0000001.model\.safetensors was changed or is damaged, or is of another step/);
  rmSync(join(folder, 'runs'), { recursive: true });
  writeFileSync(join(folder, 'runs'), 'a file');
  const refused = lm(['train', 'n2.txt.gz', ...FLAGS, ...steps], {}, { cwd: folder });
  assert.match(
    refused.stderr,
    /^helios-lm: runs.n2 cannot be written: a part of the path is not a folder; --out names the folder of a run /,
  );
  assert.equal(refused.status, 2);
});

test('a run is named by the letters of its text, in any script', () => {
  for (const [input, name] of [
    ['dir/ño vel 日本.txt', 'ño-vel-日本'],
    ['-- a?.jsonl.gz', 'a-'],
    ['..', basename(resolve('..'))],
    ['???', 'run'],
    ['..txt', 'run'],
    ['-..txt', 'run'],
  ])
    assert.equal(freeFolder(input, 'none'), join('runs', name));
});

test('token files of llm.c and nanoGPT have the vocabulary of their ids, where a preset has a smaller one', async () => {
  const shards = (/** @type {number} */ bytes, /** @type {number[]} */ ids) => {
    const folder = fresh();
    mkdirSync(folder);
    const header = Int32Array.of(...(bytes === 2 ? [20240520, 1] : [20240801, 7]), ids.length, ...new Array(253).fill(0));
    writeFileSync(
      join(folder, 'a_train_1.bin'),
      Buffer.concat([header, bytes === 2 ? Uint16Array.from(ids) : Uint32Array.from(ids)].map((each) => Buffer.from(each.buffer))),
    );
    return folder;
  };
  assert.equal(vocabularyFor([shards(2, [1, 50256])], 1024), 50304);
  assert.equal(vocabularyFor([shards(4, [1, 128000])], 1024), 128256);
  assert.equal(vocabularyFor([shards(2, [1, 64])], 1024), 1024, 'characters, as of nanoGPT');
  assert.equal(vocabularyFor([DATA], 128), 64 * Math.ceil(readCorpusInfo(DATA).tokenizer.vocabSize / 64));
  assert.equal(vocabularyFor([FILE], 1024), 1024);
});
