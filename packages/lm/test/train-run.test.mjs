// `train()`: its events, resuming, lost devices, early stopping, where a run begins, and what is refused before any work.

import assert from 'node:assert/strict';
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { test } from 'node:test';
import { init, reset } from 'helios-vk/nn';
import { UsageError } from 'helios-vk/options';

import { temporaryFolder } from '../../../__test__/lib/folder.mjs';
import { filled, randomWeights } from '../../../__test__/lib/gpt.mjs';
import { legacyConfig, modelOfLegacy, writeLegacy } from '../../../__test__/lib/legacy-checkpoint.mjs';
import { textOf, tokenFolder } from '../../../__test__/lib/lm.mjs';
import { exportModel, importModel, loadTokenizer, openDataset, readCorpusInfo, train } from '../src/index.mjs';
import { evaluate } from '../src/evaluate.mjs';
import { openModel } from '../src/open.mjs';
import { checkpointPath, loadCheckpoint } from '../src/train/checkpoint.mjs';
import { Generator } from '../src/train/generator.mjs';
import { FolderLock } from '../src/train/outputs.mjs';
import { sample } from '../src/train/sample.mjs';
import { learningRateAt } from '../src/train/settings.mjs';

/** @typedef {import('../src/log/events.mjs').TrainEvent} TrainEvent */
/** @typedef {import('../src/train/run.mjs').TrainOptions} TrainOptions */
/** @typedef {import('../src/tokenizer/load.mjs').Tokenizer} Tokenizer */

const vk = createRequire(import.meta.url)('helios-vk');
const base = temporaryFolder();
let made = 0;
/** A path that is not there. */
const fresh = () => join(base, `${++made}`);

const TEXT = join(base, 'text.txt');
writeFileSync(TEXT, textOf(900));
const DATA = await tokenFolder(fresh(), textOf(900));
const BYTES = await tokenFolder(fresh(), textOf(900), await loadTokenizer({ kind: 'byte' }));

/** @type {TrainOptions} */
const SIZES = { preset: 'gpt-tiny', layers: 1, width: 32, heads: 1, hidden: 16, blockSize: 16, batchSize: 2, vocabSize: 300 };
/** Of every run but one that says otherwise. @type {TrainOptions} */
const REST = { sampleTokens: 0, tensorboard: false, evalBatches: 2 };

/**
 * The events of a run, by their type.
 * @param {TrainOptions} options
 */
async function run(options) {
  /** @type {TrainEvent[]} */
  const all = [];
  /** @type {string[]} */
  const notes = [];
  for await (const event of train({ note: (text) => notes.push(text), ...REST, ...options })) all.push(event);
  /** @template {TrainEvent['type']} T @param {T} type @returns {Extract<TrainEvent, { type: T }>[]} */
  const of = (type) => /** @type {any} */ (all.filter((event) => event.type === type));
  return {
    all,
    of,
    notes: notes.join('\n'),
    losses: of('step').map(({ loss }) => loss),
    steps: of('step').map(({ step }) => step),
    saved: of('checkpoint').map(({ step }) => step),
    evals: of('eval').map(({ step, loss }) => [step, loss]),
    done: of('done')[0],
  };
}

/** @param {TrainOptions} options A new run. */
const begin = (options) => run({ ...SIZES, data: DATA, out: fresh(), ...options });

/** The entries of a run's folder that are checkpoints. @param {string} folder */
const checkpoints = (folder) => (existsSync(folder) ? readdirSync(folder) : []).filter((name) => name.startsWith('step-'));

test('a run tells its start, its steps, evaluations, checkpoints, a sample and its end, in this order', async () => {
  const out = fresh();
  const { all, of, steps, saved, done } = await begin({
    ...{ out, maxSteps: 6, warmupSteps: 2, saveEvery: 2, evalEvery: 3, sampleTokens: 8, samplePrompt: 'the ', sampleEvery: 4, seed: 3 },
    ...{ lrScheduler: 'linear', evalBatches: 10_000 },
  });
  assert.deepEqual(
    all.map(({ type, step }) => `${type} ${step}`),
    [
      ...['start 0', 'step 1', 'step 2', 'checkpoint 2', 'step 3', 'eval 3', 'step 4', 'checkpoint 4', 'sample 4', 'step 5', 'step 6'],
      ...['eval 6', 'checkpoint 6', 'sample 6', 'done 6'],
    ],
  );
  const [start] = of('start');
  const { trainTokens, validationTokens } = start;
  const { shards } = readCorpusInfo(DATA);
  assert.deepEqual(
    [trainTokens, validationTokens],
    [shards.train, shards.validation].map(([{ tokens }]) => tokens),
  );
  assert.ok(validationTokens > 16 && validationTokens < trainTokens);
  assert.deepEqual([start.steps, start.precision, start.tokensPerStep], [6, 'f32', 32]);
  assert.deepEqual(steps, [1, 2, 3, 4, 5, 6]);
  const { config } = await loadCheckpoint(out);
  const windows = Math.floor((trainTokens - 1) / 16);
  for (const event of of('step')) {
    assert.equal(event.learningRate, learningRateAt(config.settings, event.step - 1));
    assert.equal(event.epoch, (event.step * 2) / windows);
  }
  assert.ok(/** @type {number} */ (of('step')[0].gradNorm) > 0);
  assert.deepEqual(saved, [2, 4, 6]);
  assert.deepEqual(
    of('checkpoint').map(({ path }) => path),
    [2, 4, 6].map((step) => checkpointPath(out, step)),
  );
  assert.deepEqual([done.reason, done.bestStep], ['steps', 6]);

  // The numbers of an evaluation are those of the checkpoint on the held-out windows; a sample is what it writes.
  vk.initDevice();
  init({ vk });
  const path = checkpointPath(out, 6);
  const model = await importModel(path);
  const tokenizer = await loadTokenizer(path);
  const data = openDataset(DATA, { block: 16, split: 'validation', vocabSize: 300 });
  const expected = await evaluate(model, data, { batch: 2, tokenizer });
  const { loss, perplexity, bitsPerByte, best } = of('eval')[1];
  for (const [found, wanted] of [
    [loss, expected.loss],
    [perplexity, expected.perplexity],
    [bitsPerByte, expected.bitsPerByte],
  ]) {
    assert.ok(Math.abs(Number(found) - Number(wanted)) < 1e-6 * Number(wanted), `${found}, ${wanted} expected`);
  }
  assert.equal(best, true);
  const generator = new Generator(model, 'f32', { block: 16 });
  assert.equal(of('sample')[1].text, await sample(generator, tokenizer, 'the ', { tokens: 8, seed: 3 }));
  generator.dispose();
  model.dispose();
  data.close();
  reset();
  vk.destroy();
});

test('a resumed run makes the losses and the evaluations of one that never stopped, and keeps its identity', async () => {
  const out = fresh();
  const whole = await begin({ out, maxSteps: 8, saveEvery: 3, evalEvery: 2 });
  for (const step of [6, 8]) rmSync(checkpointPath(out, step), { recursive: true });
  const rest = await run({ resume: true, out, evalEvery: 2, saveEvery: 3 });
  assert.deepEqual(rest.steps, [4, 5, 6, 7, 8]);
  assert.deepEqual(rest.losses, whole.losses.slice(3));
  assert.deepEqual(rest.evals, whole.evals.slice(1));
  assert.deepEqual(rest.saved, [6, 8]);
  const [first, last] = await Promise.all([3, 8].map((step) => loadCheckpoint(checkpointPath(out, step))));
  assert.match(String(first.run), /^[0-9a-f]{16}$/);
  assert.equal(last.run, first.run);
  assert.deepEqual(last.best, { step: whole.done.bestStep, loss: whole.done.bestLoss, since: 0 });

  // By the path of a checkpoint, into another folder, with another end.
  const elsewhere = fresh();
  const other = await run({ resume: checkpointPath(out, 3), out: elsewhere, maxSteps: 5 });
  assert.deepEqual(other.steps, [4, 5]);
  assert.deepEqual(other.losses[0], whole.losses[3]);
  assert.deepEqual(checkpoints(elsewhere), ['step-0000005']);
  await assert.rejects(run({ resume: elsewhere }), /the checkpoint is of step 5, so --max-steps 5 is done: give more to continue/);
});

test('the last checkpoints of a run are kept, also of those from before it was resumed', async () => {
  const out = fresh();
  await begin({ out, maxSteps: 4, saveEvery: 1, saveTotalLimit: 2 });
  assert.deepEqual(checkpoints(out), ['step-0000003', 'step-0000004']);
  await run({ resume: out, maxSteps: 5, saveTotalLimit: 2 });
  assert.deepEqual(checkpoints(out), ['step-0000004', 'step-0000005']);
});

test('another run, an earlier step and a run in progress are refused, and nothing changes', async () => {
  const [mine, theirs] = [fresh(), fresh()];
  await begin({ out: mine, maxSteps: 4, saveEvery: 2 });
  await begin({ out: theirs, maxSteps: 2, seed: 2 });
  const filesOf = (/** @type {string} */ folder) => readdirSync(folder, { recursive: true }).sort();
  /** @param {string} out @param {RegExp} message @param {TrainOptions} options */
  const refused = async (out, message, options) => {
    const before = filesOf(out);
    await assert.rejects(run({ out, ...options }), (/** @type {Error} */ error) => {
      assert.ok(error instanceof UsageError && message.test(error.message), error.message);
      return true;
    });
    assert.deepEqual(filesOf(out), before);
  };
  await refused(theirs, /its step-0000002 is of another run: use another folder, or continue that run by --resume/, {
    ...SIZES,
    data: DATA,
    maxSteps: 1,
  });
  await refused(mine, /its step-0000002 is of another run/, { resume: theirs, maxSteps: 8 });
  await refused(mine, /its step-0000004 is of a later step than 2, where this run continues/, {
    resume: checkpointPath(mine, 2),
    learningRate: 1,
  });
  const lock = await FolderLock.take(mine);
  await assert.rejects(run({ resume: mine, maxSteps: 6 }), new RegExp(`belongs to another run: process ${process.pid} on `));
  lock.release();
  assert.deepEqual((await run({ resume: mine, maxSteps: 6 })).steps, [5, 6]);
});

const LOST = 'ERR_HELIOS_DEVICE_LOST';

/**
 * Has the device be lost in the named calls while `work` runs: each in the n-th one after the loss before it.
 * @template T
 * @param {[call: string, nth: number][]} losses @param {() => Promise<T>} work
 */
async function losing(losses, work) {
  const left = losses.map(([call, nth]) => ({ call, nth }));
  const calls = [...new Set(losses.map(([call]) => call))].map((call) => /** @type {const} */ ([call, vk[call]]));
  for (const [call, real] of calls) {
    vk[call] = (/** @type {any[]} */ ...args) => {
      if (left[0]?.call === call && --left[0].nth === 0) {
        left.shift();
        throw Object.assign(new Error(`lost in ${call}`), { code: LOST });
      }
      return real.apply(vk, args);
    };
  }
  try {
    return await work();
  } finally {
    for (const [call, real] of calls) vk[call] = real;
  }
}

/** How many lists of dispatches are submitted up to each event, by its type and step. @param {TrainOptions} options */
async function listsBy(options) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  let lists = 0;
  const { batchExecuteAll } = vk;
  vk.batchExecuteAll = (/** @type {any[]} */ ...args) => {
    lists++;
    return batchExecuteAll.apply(vk, args);
  };
  try {
    for await (const { type, step } of train({ ...REST, ...SIZES, data: DATA, out: fresh(), ...options }))
      counts.set(`${type} ${step}`, lists);
  } finally {
    vk.batchExecuteAll = batchExecuteAll;
  }
  return (/** @type {string} */ event) => /** @type {number} */ (counts.get(event));
}

test('after a lost device a run goes on from its last checkpoint, or from where it began, with the same losses', async () => {
  // Without clipping no norm is read, which the clock would decide.
  /** @type {TrainOptions} */
  const options = { maxSteps: 10, saveEvery: 4, mode: 'plain', evalEvery: 5, maxGradNorm: 0 };
  const undisturbed = fresh();
  const whole = await begin({ ...options, out: undisturbed });
  const by = await listsBy(options);
  const [begun, four] = [by('start 0'), by('checkpoint 4')];

  const lost = await losing([['batchExecuteAll', four + 2]], () => begin(options));
  assert.match(lost.notes, /^device lost \(lost in batchExecuteAll\); continuing from \S+step-0000004$/m);
  assert.deepEqual([lost.steps, lost.losses, lost.evals], [whole.steps, whole.losses, whole.evals]);
  const early = await losing([['batchExecuteAll', begun + 2]], () => begin(options));
  assert.match(early.notes, /^device lost \(lost in batchExecuteAll\); continuing from the first step$/m);
  assert.deepEqual(early.losses, whole.losses);
  // One that was resumed has what it was resumed from.
  const resumed = checkpointPath(undisturbed, 4);
  const second = await losing([['batchExecuteAll', begun + 4]], () =>
    run({ ...options, resume: resumed, out: fresh(), maxSteps: undefined }),
  );
  assert.ok(second.notes.includes(`continuing from ${resumed}`), second.notes);
  assert.deepEqual(second.losses, whole.losses.slice(4));

  // A device that is lost again while a run recovers counts as one loss more; there may be three.
  const thrice = /** @type {[string, number][]} */ ([
    ['batchExecuteAll', four + 2],
    ['initDevice', 1],
    ['createBuffer', 5],
  ]);
  const recovered = await losing(thrice, () => begin(options));
  assert.deepEqual(recovered.losses, whole.losses);
  for (const [call] of thrice) assert.ok(recovered.notes.includes(`(lost in ${call}); continuing from`), call);
  await assert.rejects(
    losing([...thrice, ['createBuffer', 5]], () => begin(options)),
    { code: LOST, message: 'lost in createBuffer' },
  );
});

test('a device that is lost while a checkpoint or an evaluation is made loses nothing else', async () => {
  /** @type {TrainOptions} */
  const options = { maxSteps: 6, saveEvery: 2, mode: 'plain', evalEvery: 3, maxGradNorm: 0 };
  const whole = await begin(options);
  const by = await listsBy(options);
  for (const [from, to] of [
    ['step 2', 'checkpoint 2'],
    ['step 3', 'eval 3'],
    ['step 6', 'checkpoint 6'],
  ]) {
    const [first, last] = [by(from), by(to)];
    assert.ok(last > first, to);
    for (const at of new Set([first + 1, (first + last) >> 1, last])) {
      const out = fresh();
      const found = await losing([['batchExecuteAll', at]], () => begin({ ...options, out }));
      assert.match(found.notes, /^device lost/m, `${to}, list ${at}`);
      assert.deepEqual([found.steps, found.losses, found.evals], [whole.steps, whole.losses, whole.evals], `${to}, list ${at}`);
      assert.deepEqual(readdirSync(out).sort(), ['best', 'metrics.jsonl', ...[2, 4, 6].map((step) => checkpointPath('', step))], to);
    }
  }
});

test('a run that is asked to stop ends after its step with a checkpoint, from which it goes on', async () => {
  const out = fresh();
  const whole = await begin({ maxSteps: 8 });
  for (const [step, saveEvery] of [
    [2, 0],
    [4, 2],
  ]) {
    const stop = new AbortController();
    /** @type {TrainEvent[]} */
    const events = [];
    const stopped = async () => {
      const from = existsSync(out) ? { resume: out } : { ...SIZES, data: DATA, out };
      for await (const event of train({ ...REST, ...from, maxSteps: 8, saveEvery, signal: stop.signal })) {
        events.push(event);
        // Where it has just written a checkpoint, it does not write that again.
        if (event.type === (saveEvery ? 'checkpoint' : 'step') && event.step === step) stop.abort();
      }
    };
    await assert.rejects(stopped(), { name: 'AbortError' });
    const done = /** @type {any} */ (events.at(-1));
    assert.deepEqual([done.type, done.reason], ['done', 'stopped']);
    assert.equal((await loadCheckpoint(out)).step, done.step);
    const saved = events.filter(({ type }) => type === 'checkpoint').map((event) => event.step);
    assert.equal(new Set(saved).size, saved.length);
  }
  const { step } = await loadCheckpoint(out);
  const rest = await run({ resume: out, maxSteps: 8 });
  assert.deepEqual(rest.losses, whole.losses.slice(step));
  // Asked before it begins, a run does nothing.
  await assert.rejects(begin({ out: join(out, 'none'), signal: AbortSignal.abort() }), { name: 'AbortError' });
  assert.ok(!existsSync(join(out, 'none')));
});

test('a run whose data become unreadable ends with a checkpoint, from which it goes on when they are there again', async () => {
  const options = { ...SIZES, maxSteps: 8, saveEvery: 0 };
  const whole = await begin({ ...options, data: DATA, out: fresh() });
  for (const [evalEvery, what] of /** @type {const} */ ([
    [0, 'step \\d+'],
    [1, 'an evaluation'],
  ])) {
    const [out, data] = [fresh(), fresh()];
    cpSync(DATA, data, { recursive: true });
    /** @type {TrainEvent[]} */
    const events = [];
    const cut = async () => {
      for await (const event of train({ ...REST, ...options, data, out, evalEvery })) {
        events.push(event);
        if (event.type !== 'step' || event.step !== 2) continue;
        for (const name of readdirSync(data)) if (name.endsWith('.bin')) truncateSync(join(data, name), 1024);
      }
    };
    await assert.rejects(cut(), new RegExp(`^DataError: the data of ${what} cannot be read: .*\\.bin has become shorter than \\d+ bytes$`));
    const { step } = await loadCheckpoint(out);
    assert.ok(step >= 2 && step < 8, `${step}`);
    const last = /** @type {any} */ (events.at(-1));
    assert.deepEqual([last.type, last.step], ['checkpoint', step]);
    cpSync(DATA, data, { recursive: true });
    assert.deepEqual((await run({ resume: out })).losses, whole.losses.slice(step));
  }
});

test('a run ends early when evaluations no longer get better, and `best` has the best of them', async () => {
  const out = fresh();
  // Without learning no evaluation is better than the first, that of step 2.
  const options = { learningRate: 0, minLr: 0, evalEvery: 2, saveEvery: 3, earlyStoppingPatience: 2 };
  const { done, evals, saved, of } = await begin({ ...options, out, maxSteps: 20 });
  assert.deepEqual([done.reason, done.step, done.bestStep, done.bestLoss], ['early-stopping', 6, 2, evals[0][1]]);
  assert.deepEqual(
    of('eval').map(({ step, best }) => [step, best]),
    [
      [2, true],
      [4, false],
      [6, false],
    ],
  );
  assert.deepEqual(saved, [3, 6], 'the checkpoint of its last step is written once');
  // Its count goes on in a resumed run.
  const other = fresh();
  await begin({ ...options, out: other, maxSteps: 20, saveEvery: 5, earlyStoppingPatience: 3 });
  assert.equal((await loadCheckpoint(checkpointPath(other, 5))).best?.since, 1);
  rmSync(checkpointPath(other, 8), { recursive: true });
  const again = await run({ resume: other, earlyStoppingPatience: 3, evalEvery: 2 });
  assert.deepEqual([again.done.reason, again.done.step], ['early-stopping', 8]);
  for (const name of readdirSync(join(out, 'best'))) assert.ok(!name.startsWith('optimizer') && !name.startsWith('trainer'), name);
  // A rate of 0: all weights are those of the beginning.
  assert.deepEqual(readFileSync(join(out, 'best', 'model.safetensors')), readFileSync(join(checkpointPath(out, 3), 'model.safetensors')));
});

test('a run may begin with the weights and the tokenizer of a GGUF file', async () => {
  const still = { learningRate: 0, minLr: 0, maxSteps: 1, batchSize: 2 };
  const [first, second] = [fresh(), fresh()];
  await run({ ...SIZES, ...still, preset: 'llama-tiny', hidden: 32, data: TEXT, out: first });
  const file = `${fresh()}.gguf`;
  vk.initDevice();
  init({ vk });
  const { model, tokenizer } = await openModel(checkpointPath(first, 1));
  await exportModel(model, file, { dtype: 'f32', tokenizer });
  model.dispose();
  reset();
  vk.destroy();
  await run({ ...still, initFrom: file, data: TEXT, out: second });
  const weights = (/** @type {string} */ out) => readFileSync(join(checkpointPath(out, 1), 'model.safetensors'));
  assert.deepEqual(weights(second), weights(first));
  const [one, other] = await Promise.all([first, second].map((out) => loadTokenizer(checkpointPath(out, 1))));
  assert.deepEqual([...other.encode(textOf(3))], [...one.encode(textOf(3))]);
});

test('a run may begin with the weights of a model’s folder, of a checkpoint or of an earlier version’s file', async () => {
  const legacy = legacyConfig({ hidden: 16, block: 16 });
  const state = { weights: randomWeights(modelOfLegacy(legacy), 4), m: filled(modelOfLegacy(legacy)), v: filled(modelOfLegacy(legacy)) };
  const old = writeLegacy(join(base, 'step-0000007.safetensors'), { config: legacy, step: 7, run: 'old', state });
  // Without a rate a step changes nothing.
  /** @type {TrainOptions} */
  const still = { data: BYTES, learningRate: 0, minLr: 0, maxSteps: 1, batchSize: 2 };
  const [first, second, third] = [fresh(), fresh(), fresh()];
  const begun = await run({ ...still, initFrom: old, out: first });
  assert.deepEqual([begun.of('start')[0].step, begun.steps], [0, [1]]);
  await run({ ...still, initFrom: checkpointPath(first, 1), out: second });
  await run({ ...still, initFrom: join(second, 'best'), out: third, blockSize: 8 });
  vk.initDevice();
  init({ vk });
  const model = await importModel(checkpointPath(third, 1));
  for (const [name, parameter] of model.namedParameters()) assert.deepEqual(await parameter.toArray(), state.weights[name], name);
  model.dispose();
  reset();
  vk.destroy();
  const { config, run: identity, best } = await loadCheckpoint(third);
  assert.deepEqual([config.settings.blockSize, config.model.context], [8, 16]);
  assert.notEqual(identity, 'old');
  assert.equal(best?.step, 1);
  assert.deepEqual([...(await loadTokenizer(checkpointPath(third, 1))).encode('hé')], [0x68, 0xc3, 0xa9]);
});

test('a checkpoint of an earlier version goes on in a folder of today, with its identity', async () => {
  const legacy = legacyConfig({ hidden: 16, block: 16, steps: 9, warmup: 2, batch: 2 });
  const model = modelOfLegacy(legacy);
  const state = { weights: randomWeights(model, 4), m: filled(model), v: filled(model) };
  const folder = fresh();
  mkdirSync(folder);
  const old = writeLegacy(join(folder, 'step-0000007.safetensors'), { config: legacy, step: 7, run: 'old', state });
  const out = fresh();
  const { steps } = await run({ resume: folder, data: BYTES, out });
  assert.deepEqual(steps, [8, 9]);
  assert.equal((await loadCheckpoint(out)).run, 'old');
  await assert.rejects(run({ resume: old, data: BYTES, out: folder }), /its step-0000007\.safetensors is of another run/);
});

test('data of another run are refused, unless they are asked for', async () => {
  const [out, next, own] = [fresh(), fresh(), fresh()];
  cpSync(DATA, own, { recursive: true });
  await begin({ out, data: own, maxSteps: 2 });
  const { data } = await loadCheckpoint(out);
  assert.equal(data?.folder, own);
  await assert.rejects(run({ resume: out, data: BYTES, maxSteps: 4 }), (/** @type {Error} */ error) => {
    assert.equal(error.message, `--resume continues on the data of the run, ${own}: leave the data out, or add --new-data`);
    return error instanceof UsageError;
  });
  await assert.rejects(run({ resume: out, out: next, data: BYTES, newData: true, maxSteps: 4 }), /was encoded by another tokenizer than/);
  const text = join(fresh(), 'text.txt');
  mkdirSync(join(text, '..'), { recursive: true });
  writeFileSync(text, 'she sells sea shells on the sea shore. '.repeat(60));
  await run({ resume: out, out: next, data: text, newData: true, maxSteps: 4 });
  assert.notEqual((await loadCheckpoint(next)).data?.sha256, data?.sha256);
  // Whoever replaces the token files of a run has other data.
  rmSync(own, { recursive: true });
  cpSync(BYTES, own, { recursive: true });
  const message = `the run was trained on other data than ${own} has now: --new-data continues with them`;
  await assert.rejects(run({ resume: out, maxSteps: 4 }), { message });
});

test('options that contradict each other are refused before any work', async () => {
  const out = fresh();
  await begin({ out, maxSteps: 2 });
  const checkpoint = checkpointPath(out, 2);
  const none = join(base, 'untouched');
  const { initDevice } = vk;
  vk.initDevice = () => assert.fail('a device was opened');
  /** @type {[TrainOptions, string][]} */
  const cases = [
    [{ resume: out, initFrom: out }, '--resume continues a run, --init-from begins one: leave one of them out'],
    [{ resume: true, out: undefined }, '--resume needs --out FOLDER, the folder of the run, or a checkpoint'],
    [{ newData: true }, '--new-data is for --resume'],
    [{ resume: out, newData: true, data: undefined }, '--new-data needs the data: name them'],
    [{ initFrom: checkpoint, preset: 'gpt-tiny' }, '--init-from has the model: leave --preset out'],
    [{ resume: checkpoint, preset: 'gpt-tiny' }, '--resume keeps the model of the checkpoint: leave --preset out'],
    ...['layers', 'width', 'heads', 'kvHeads', 'hidden', 'vocabSize'].flatMap((name) => {
      const flag = `--${name.replace(/[A-Z]/, (letter) => `-${letter.toLowerCase()}`)}`;
      return /** @type {[TrainOptions, string][]} */ ([
        [{ resume: checkpoint, [name]: 4 }, `--resume keeps the model: leave ${flag} out`],
        [{ initFrom: checkpoint, [name]: 4 }, `--init-from keeps the model: leave ${flag} out`],
      ]);
    }),
    ...['batchSize', 'gradientAccumulationSteps', 'blockSize', 'beta1', 'beta2', 'epsilon', 'seed'].map((name) => {
      const flag = `--${name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
      return /** @type {[TrainOptions, string]} */ ([{ resume: checkpoint, [name]: 1 }, `--resume keeps the run's ${flag}: leave it out`]);
    }),
    [{ resume: checkpoint, tokenizer: checkpoint }, '--resume keeps the tokenizer: leave --tokenizer out'],
    [{ initFrom: checkpoint, tokenizer: checkpoint }, '--init-from has the tokenizer: leave --tokenizer out'],
    [{ resume: checkpoint, data: TEXT }, `--resume continues on the data of the run, ${DATA}: leave the data out, or add --new-data`],
    [{ earlyStoppingPatience: 1, validation: 0 }, '--early-stopping-patience needs held-out text: leave --validation 0 out'],
    [{ saveTotalLimit: 0 }, '--save-total-limit is at least 1'],
  ];
  try {
    for (const [options, message] of cases) {
      await assert.rejects(run({ out: none, ...options }), (/** @type {Error} */ error) => {
        assert.ok(error instanceof UsageError, error.stack);
        assert.equal(error.message, message);
        return true;
      });
    }
    await assert.rejects(run({ out: none, resume: join(base, 'nowhere') }), /nowhere does not exist/);
    await assert.rejects(run({ out: none, initFrom: join(base, 'nowhere') }), /nowhere does not exist/);
    await assert.rejects(run({ out: none, resume: TEXT }), /text\.txt is not a safetensors file/);
  } finally {
    vk.initDevice = initDevice;
  }
  assert.ok(!existsSync(none));
});

test('values that no run can have are refused before anything is written', async () => {
  const out = fresh();
  for (const [options, message] of /** @type {[TrainOptions, RegExp][]} */ ([
    [{ learningRate: 1e-3, minLr: 1 }, /^--min-lr 1 must be at most --learning-rate, 0\.001$/],
    [{ maxSteps: 5, warmupSteps: 5 }, /^--warmup-steps 5 must be less than --max-steps 5$/],
    [{ width: 30, heads: 4 }, /^--width 30 is not a multiple of --heads 4$/],
    [{ heads: 4, kvHeads: 3 }, /^--heads 4 is not a multiple of --kv-heads 3$/],
    [{ hidden: 7 }, /^--hidden must be a multiple of 4, got 7$/],
    [{ layers: 1e6 }, /^--layers must be an integer from 1 to 4096, got 1000000$/],
    [{ lrScheduler: /** @type {any} */ ('magic') }, /^--lr-scheduler must be cosine, linear, constant, wsd, got magic$/],
    [{ batchSize: 2 ** 20, gradientAccumulationSteps: 2 ** 20 }, /^a step of \d+ tokens: at most 268435456 are possible$/],
    [{ mode: /** @type {any} */ ('fast') }, /^mode must be graph or plain, got fast$/],
  ])) {
    await assert.rejects(begin({ out, maxSteps: 30, ...options }), { message });
    if (!('mode' in options)) assert.ok(!existsSync(out), String(message));
  }
  assert.deepEqual(checkpoints(out), []);
});

test('the learning rate does not end above its peak, and a warm-up fits a short run', async () => {
  const settings = async (/** @type {TrainOptions} */ options) => {
    const out = fresh();
    await begin({ out, maxSteps: 2, ...options });
    return (await loadCheckpoint(out)).config.settings;
  };
  const low = await settings({ learningRate: 1e-5 });
  assert.deepEqual([low.minLr, low.warmupSteps], [1e-5, 0]);
  assert.equal((await settings({ learningRate: 1e-2 })).minLr, 3e-4, "the preset's");
});

test('texts that cannot be trained on are an error that says why, and no checkpoint is written', async () => {
  const file = join(base, 'bad.txt');
  const out = fresh();
  /** @param {TrainOptions} options */
  const onText = (options) => begin({ data: file, out, maxSteps: 2, ...options });
  for (const [content, options, message] of /** @type {[string | Buffer, TrainOptions, RegExp][]} */ ([
    ['eight by', {}, /the text has \d+ tokens to train on, and a sequence of 16 takes 17: use more text/],
    [
      Array.from({ length: 60 }, (_, i) => (i ** 3).toString(36)).join(' '),
      { earlyStoppingPatience: 2 },
      /--early-stopping-patience needs held-out text, and the text is too short to hold a window out/,
    ],
    [Buffer.concat([Buffer.from('some text\n'.repeat(9)), Buffer.from([0xff, 10])]), {}, /bad\.txt.*(byte|UTF-8)/],
  ])) {
    writeFileSync(file, content);
    rmSync(out, { recursive: true, force: true });
    await assert.rejects(onText(options), message);
    assert.ok(!existsSync(out) || !readdirSync(out).some((name) => /^step-|lock$/.test(name)));
  }
  rmSync(out, { recursive: true, force: true });
  assert.equal((await onText({ maxSteps: 1, replaceInvalid: true })).losses.length, 1);
  await assert.rejects(begin({ data: join(base, 'nowhere.txt') }), /nowhere\.txt does not exist/);
  await assert.rejects(begin({ data: [TEXT, DATA] }), (/** @type {Error} */ error) =>
    error.message.includes(`${DATA} holds token files: train on it alone`),
  );
  await assert.rejects(begin({ vocabSize: 280 }), /the tokenizer has 300 ids, and the model a vocabulary of 280/);
});

test('a run may have no held-out text', async () => {
  const out = fresh();
  const { of, evals, done, losses } = await begin({ out, data: TEXT, maxSteps: 2, validation: 0, vocabSize: 300 });
  assert.equal(of('start')[0].validationTokens, 0);
  assert.deepEqual([evals, done.bestStep], [[], undefined]);
  assert.ok(!existsSync(join(out, 'best')));
  // The token files that it made are data by themselves.
  assert.deepEqual((await begin({ data: join(out, 'data'), maxSteps: 2 })).losses, losses);
});

test('a tokenizer is trained on the text, and its special tokens are the model’s', async () => {
  const out = fresh();
  const { of } = await begin({ out, data: TEXT, maxSteps: 1, vocabSize: 320, sampleTokens: 3 });
  const tokenizer = await loadTokenizer(checkpointPath(out, 1));
  assert.ok(tokenizer.vocabSize > 257 && tokenizer.vocabSize <= 320);
  const { config } = await loadCheckpoint(out);
  assert.ok(tokenizer.special.eos !== undefined);
  assert.deepEqual(config.model.eos, [tokenizer.special.eos]);
  assert.equal(tokenizer.decode(tokenizer.encode('the quick \u{1f600}')), 'the quick \u{1f600}');
  assert.ok(of('sample')[0].text.length > 0);
});

test('token files are refused with another tokenizer than theirs', async (t) => {
  const folder = temporaryFolder(t);
  const text = join(folder, 'text.txt');
  writeFileSync(text, 'she sells sea shells on the sea shore. '.repeat(60));
  const [first, second] = ['first', 'second'].map((name) => join(folder, name));
  const sizes = { preset: 'llama-tiny', blockSize: 8, batchSize: 1, maxSteps: 1, sampleTokens: 0, vocabSize: 300 };
  const steps = async (/** @type {TrainOptions} */ options) => {
    let count = 0;
    for await (const { type } of train({ ...sizes, ...options })) count += Number(type === 'step');
    return count;
  };
  assert.equal(await steps({ data: text, out: first }), 1);
  assert.equal(await steps({ data: text, out: second, vocabSize: 270 }), 1);
  const other = { data: join(first, 'data'), out: join(folder, 'third'), tokenizer: join(second, 'data') };
  await assert.rejects(steps(other), /first\S*data was encoded by another tokenizer than \S*second\S*data/);
  // The same tokenizer, indented in another way.
  const own = join(folder, 'tokenizer.json');
  writeFileSync(own, JSON.stringify(JSON.parse(readFileSync(join(first, 'data', 'tokenizer.json'), 'utf8'))));
  assert.equal(await steps({ ...other, tokenizer: own }), 1);
});

test('a run that was moved, or copied, goes on with its own data', async (t) => {
  const folder = temporaryFolder(t);
  const text = join(folder, 'text.txt');
  writeFileSync(text, 'she sells sea shells on the sea shore. '.repeat(60));
  const [first, moved] = ['first', 'moved'].map((name) => join(folder, name));
  const sizes = { preset: 'llama-tiny', blockSize: 8, batchSize: 1, maxSteps: 1, vocabSize: 300 };
  for await (const _ of train({ ...sizes, data: text, out: first, sampleTokens: 0 }));
  cpSync(first, moved, { recursive: true });
  rmSync(first, { recursive: true });
  const steps = [];
  for await (const event of train({ resume: moved, maxSteps: 3, sampleTokens: 0 })) if (event.type === 'step') steps.push(event.step);
  assert.deepEqual(steps, [2, 3]);
  assert.equal((await loadCheckpoint(moved)).data?.folder, join(moved, 'data'));
});

test('a validation loss that is not a number is never the best', async () => {
  const out = fresh();
  /** @type {TrainEvent[]} */
  const evaluations = [];
  const diverge = async () => {
    for await (const event of train({
      ...REST,
      data: DATA,
      out,
      ...SIZES,
      learningRate: 1e30,
      minLr: 0,
      warmupSteps: 0,
      maxGradNorm: 0,
      maxSteps: 9,
      evalEvery: 1,
    }))
      if (event.type === 'eval') evaluations.push(event);
  };
  await assert.rejects(diverge(), /the run has diverged/);
  const losses = evaluations.map((event) => (event.type === 'eval' ? [event.loss, event.best] : []));
  assert.ok(
    losses.some(([loss]) => Number.isNaN(loss)),
    JSON.stringify(losses),
  );
  for (const [loss, best] of losses) assert.ok(!best || Number.isFinite(loss), JSON.stringify(losses));
});
