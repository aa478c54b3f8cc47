// Fine-tuning: what of a row is learned, which rows are refused, packed windows, runs of every type, and the command.

import assert from 'node:assert/strict';
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, renameSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, relative } from 'node:path';
import { before, test } from 'node:test';
import { init, noGrad, reset, scope, tensor } from 'helios-vk/nn';

import { openExamples } from '../src/data/examples.mjs';
import { IGNORED } from '../src/data/pack.mjs';
import { loadPeft, readPeft } from '../src/formats/peft.mjs';
import { finetune, importModel, loadModel, loadTokenizer, readConfig, train } from '../src/index.mjs';
import { windowsOfStep } from '../src/data/order.mjs';
import { openModel } from '../src/open.mjs';
import { loadCheckpoint } from '../src/train/checkpoint.mjs';
import { temporaryFolder } from '../../../__test__/lib/folder.mjs';
import { lm } from '../../../__test__/lib/lm.mjs';
import { CHATML, all, textOf, writeTinyModel, writeTokenizer } from './lib/tiny-model.mjs';

/** @typedef {import('../src/train/finetune.mjs').FinetuneOptions} FinetuneOptions */

const vk = createRequire(import.meta.url)('helios-vk');
const base = temporaryFolder();
const [MODEL, PLAIN] = [join(base, 'model'), join(base, 'plain')];
before(async () => {
  await writeTinyModel(MODEL, { template: CHATML });
  await writeTokenizer(PLAIN);
  reset();
});

let made = 0;
/** A path that is not there. */
const fresh = () => join(base, `${++made}`);

/** A file of rows, each an object or a line. @param {unknown[]} rows @param {string} [path] */
function fileOf(rows, path = `${fresh()}.jsonl`) {
  writeFileSync(path, rows.map((row) => `${typeof row === 'string' ? row : JSON.stringify(row)}\n`).join(''));
  return path;
}

/** @param {string} role @param {unknown} content */
const turn = (role, content) => ({ role, content });
/** @param {unknown[]} parts of user and assistant, in turn */
const chat = (...parts) => ({ messages: parts.map((content, i) => turn(i % 2 ? 'assistant' : 'user', content)) });

/** @param {string} [folder] with a tokenizer */
const fit = (folder = MODEL) => ({ tokenizer: loadTokenizer(folder), eos: 0, vocabSize: 290, context: 128, block: 64 });

/** @param {unknown[]} rows @param {Partial<Parameters<typeof openExamples>[1]>} [options] */
const open = (rows, options) => openExamples(fileOf(rows), { ...fit(), validation: 0, ...options });

/** The documents of all windows, each as what precedes a learned part and the part, in turn. @param {ReturnType<typeof open>} data @param {string} [folder] */
function partsOf(data, folder = MODEL) {
  const tokenizer = loadTokenizer(folder);
  /** @type {string[][]} */
  const documents = [];
  for (let w = 0; w < data.train.windows; w++) {
    const window = data.train.window(w);
    const [ids, targets, positions] = [0, 1, 2].map((i) => Array.from(window.subarray(i * 64, (i + 1) * 64)));
    const starts = positions.flatMap((position, i) => (position === 0 ? [i] : [])).concat(64);
    for (const [k, start] of starts.slice(0, -1).entries()) {
      const own = ids.slice(start, starts[k + 1]).map((id, i) => ({ id, target: targets[start + i] }));
      if (own.every(({ target }) => target === IGNORED)) continue;
      // What follows each id, learned or not; the last target follows the last id.
      const all = [own[0].id, ...own.map(({ target }, i) => (target === IGNORED ? own[i + 1]?.id : target))];
      const learned = [false, ...own.map(({ target }) => target !== IGNORED)];
      own.forEach(({ target }, i) => {
        if (target !== IGNORED && own[i + 1]) assert.equal(target, own[i + 1].id);
      });
      const runs = [/** @type {number[]} */ ([])];
      all.forEach((id, i) => {
        if (i > 0 && learned[i] !== learned[i - 1]) runs.push([]);
        if (id !== undefined) /** @type {number[]} */ (runs.at(-1)).push(id);
      });
      documents.push(runs.map((run) => tokenizer.decode(run)));
    }
  }
  return documents;
}

test("the assistant's turns are learned, with their ends, and nothing else of a conversation", () => {
  const head = (/** @type {string} */ role, /** @type {string} */ text) => `<|im_start|>${role}\n${text}<|im_end|>\n`;
  const ask = '<|im_start|>assistant\n';
  const system = { messages: [turn('system', 'be'), turn('user', 'hi'), turn('assistant', 'yes'), turn('user', 'no')] };
  assert.deepEqual(partsOf(open([chat('one', 'two', 'three', 'four'), system])), [
    [head('user', 'one') + ask, 'two<|im_end|>\n', head('user', 'three') + ask, 'four<|im_end|>\n'],
    [head('system', 'be') + head('user', 'hi') + ask, 'yes<|im_end|>\n'],
  ]);
});

test('of a prompt with a completion the completion is learned, by the template or as texts; of a text all but its first id', () => {
  const row = { prompt: 'one ', completion: 'two' };
  assert.deepEqual(partsOf(open([row])), [['<|im_start|>user\none <|im_end|>\n<|im_start|>assistant\n', 'two<|im_end|>\n']]);
  assert.deepEqual(partsOf(open([row, { text: 'the sea' }], fit(PLAIN)), PLAIN), [
    ['one ', 'two<|end|>'],
    ['the', ' sea<|end|>'],
  ]);
  // Earlier turns of the assistant are a part of the prompt.
  const { messages } = chat('a', 'b', 'c', 'd');
  const said = '<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n';
  for (const completion of ['d', messages.slice(3)])
    assert.deepEqual(partsOf(open([{ prompt: messages.slice(0, 3), completion }])), [[said, 'd<|im_end|>\n']]);
});

/** Rows that cannot be trained on, and why. @type {[row: unknown, why: RegExp, template?: string][]} */
const UNUSABLE = [
  ['{"messages": [', /not JSON/],
  ['[1]', /not an object/],
  [{ words: 1 }, /no messages, prompt and completion, or text; it has words/],
  [{ text: 'a', messages: [] }, /it has messages and text/],
  [{ text: 7 }, /text is no text/],
  [{ text: ' ' }, /text is empty/],
  [{ prompt: 'a \ud83d', completion: 'b' }, /a text has half of a surrogate pair/],
  [{ prompt: 'a', completion: '' }, /completion is empty/],
  [{ completion: 'a' }, /prompt is no text/],
  [{ messages: [] }, /messages is no list of turns/],
  [{ messages: [{ content: 'a' }] }, /turn 1 has no role/],
  [chat('a'), /no turn of the assistant/],
  [chat('a', ''), /turn 2 \(assistant\) is empty/],
  [chat('', 'a'), /turn 1 \(user\) is empty/],
  [chat('a', 7), /turn 2 \(assistant\) has no content/],
  [chat('word '.repeat(20), 'b'), /tokens are more than a block of 64: a larger --block-size takes them/],
  [chat('word '.repeat(80), 'b'), /tokens are more than the model's context of 128/],
  // What a template makes of a turn depends on the turns after it.
  [
    chat('a', 'b', 'c', 'd'),
    /turn 2 \(assistant\): the template renders the turns up to it otherwise/,
    '{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}',
  ],
  [chat('a', 'b'), /refuses these messages: no/, "{{ raise_exception('no') }}"],
];

test('every row that cannot be trained on is an error with file and line; --skip-unusable leaves it out, and says so', () => {
  for (const [row, why, template] of UNUSABLE) {
    const { tokenizer } = fit();
    const own = template === undefined ? tokenizer : { ...tokenizer, chatTemplates: { default: template } };
    const file = fileOf([{ text: 'of the sea' }, '', row, { text: 'and men' }]);
    const options = { ...fit(), tokenizer: own, validation: 0 };
    assert.throws(
      () => openExamples(file, options),
      (/** @type {Error} */ error) => {
        assert.match(error.message, /^1 of 3 rows cannot be trained on \(--skip-unusable leaves them out\):\n/);
        assert.ok(error.message.includes(`${file}:3: `), error.message);
        return why.test(error.message);
      },
    );
    /** @type {string[]} */
    const notes = [];
    const data = openExamples(file, { ...options, skipUnusable: true, note: (text) => notes.push(text) });
    assert.deepEqual([data.skipped, partsOf(data).length], [1, 2]);
    assert.match(notes.join(), why);
    assert.match(notes.join(), /^left out: 1 of 3 rows/);
  }
  const rows = [{ text: 'the old man' }];
  assert.throws(() => open(rows, { vocabSize: 20 }), /id \d+ is beyond the model's vocabulary of 20/);
  assert.throws(() => open([chat('a', 'b')], fit(PLAIN)), /the tokenizer has no chat template/);
  assert.throws(() => open([]), /has no row to train on/);
  assert.throws(() => openExamples(fileOf(['{"text": "\xff']), fit()), /rows cannot be trained on/);
  const bytes = `${fresh()}.jsonl`;
  writeFileSync(bytes, Buffer.from([0x7b, 0xff]));
  assert.throws(() => openExamples(bytes, fit()), /is not UTF-8 at byte 1/);
});

test('a folder has its own validation and test; of one file a share of rows is held out, copies on one side', () => {
  const folder = fresh();
  mkdirSync(folder);
  const rows = Array.from({ length: 60 }, (_, i) => ({ text: `the ${i} of the sea` }));
  fileOf(rows, join(folder, 'train.jsonl'));
  const alone = openExamples(folder, fit());
  assert.match(String(alone.nothingHeld), /no valid.jsonl/);
  fileOf(rows.slice(0, 3), join(folder, 'valid.jsonl'));
  fileOf(rows.slice(0, 1), join(folder, 'test.jsonl'));
  const data = openExamples(folder, fit());
  assert.ok(data.validation && data.test && data.test.tokens < data.validation.tokens);
  assert.equal(data.info.sha256, alone.info.sha256);
  const [both, once] = [open([...rows, ...rows], { validation: 0.3 }), open(rows, { validation: 0.3 })];
  assert.ok(once.validation && once.train.tokens > once.validation.tokens);
  assert.equal(both.validation?.tokens, 2 * once.validation.tokens);
  assert.notEqual(once.info.sha256, alone.info.sha256);
});

test('documents packed into a window have the losses that they have alone', async () => {
  init();
  const model = await importModel(MODEL);
  const rows = [chat('one', 'two', 'three', 'four'), { text: 'the old men' }, chat('a', 'b'), { text: 'and the sea of men' }];
  const data = open(rows);
  assert.equal(data.train.windows, 2);
  const lossOf = (/** @type {Uint32Array} */ window, /** @type {number} */ length) =>
    noGrad(() =>
      scope(() => {
        const parts = [0, 1, 2, 3].map((i) => tensor(window.slice(i * length, (i + 1) * length), { shape: [1, length] }));
        return data.train.loss(model, parts, undefined, {});
      }),
    ).item();
  const packed = await Promise.all([0, 1].map((i) => lossOf(data.train.window(i), 64)));
  let [alone, count] = [0, 0];
  for (const row of rows) {
    const { train: own } = open([row]);
    const length = own.tokens;
    const window = Uint32Array.from({ length: 4 * length }, (_, i) => own.window(0)[Math.floor(i / length) * 64 + (i % length)]);
    alone += await lossOf(window, length);
    count += own.counted([0]);
  }
  assert.equal(count, data.train.counted([0, 1]));
  const sum = packed[0] + packed[1];
  assert.ok(Math.abs(sum - alone) < 1e-5 * alone, `${sum} and ${alone}`);
  model.dispose();
  reset();
});

const ROWS = Array.from({ length: 80 }, (_, i) => chat(`${i} and ${i + 1}`, `${(i * 7) % 10}`));
/** @type {FinetuneOptions} */
const SHORT = {
  model: '',
  blockSize: 64,
  batchSize: 2,
  gradientAccumulationSteps: 2,
  learningRate: 3e-3,
  warmupSteps: 1,
  tensorboard: false,
};

/** The events of a run. @param {FinetuneOptions} options */
async function run(options) {
  /** @type {any[]} */
  const all = [];
  /** @type {string[]} */
  const notes = [];
  for await (const event of finetune({ note: (text) => notes.push(text), ...options })) all.push(event);
  const of = (/** @type {string} */ type) => all.filter((event) => event.type === type);
  return { all, of, notes: notes.join('\n'), losses: of('step').map(({ loss }) => loss) };
}

/** A new run. @param {FinetuneOptions} options */
const begin = (options) => run({ ...SHORT, data: fileOf(ROWS), out: fresh(), ...options, model: options.model ?? MODEL });

test('the loss of a step is the mean over all that is learned in it', async () => {
  const { losses } = await begin({ maxSteps: 1, warmupSteps: 0, validation: 0, learningRate: 0, minLr: 0, seed: 5 });
  init();
  const model = await importModel(MODEL);
  const { train: data } = open(ROWS);
  const windows = windowsOfStep({ windows: data.windows, seed: 5, step: 0, batch: 4 });
  let sum = 0;
  for (const index of windows) {
    const loss = noGrad(() =>
      scope(() => {
        const parts = [0, 1, 2, 3].map((i) => tensor(data.window(index).slice(i * 64, (i + 1) * 64), { shape: [1, 64] }));
        return data.loss(model, parts, undefined, {});
      }),
    );
    sum += await loss.item();
  }
  assert.ok(Math.abs(losses[0] - sum / data.counted(windows)) < 1e-5 * losses[0]);
  model.dispose();
  reset();
});

for (const type of /** @type {const} */ (['lora', 'qlora', 'full'])) {
  test(`${type}: lowers the loss; what is resumed is bit for bit what was not stopped`, async () => {
    const out = fresh();
    const dropout = type === 'full' ? undefined : 0.1;
    const rank = type === 'full' ? undefined : 4;
    const whole = await begin({ type, out, dropout, rank, maxSteps: 12, evalEvery: 4, saveEvery: 6, validation: 0.3 });
    assert.ok(whole.losses[11] < whole.losses[0] - 0.3, `${whole.losses}`);
    const [first, , last] = whole.of('eval');
    assert.ok(last.loss < first.loss);
    assert.equal(whole.of('done')[0].bestStep, 12);
    const model = await importModelCount();
    const { parameters } = whole.of('start')[0];
    assert.equal(parameters, type === 'full' ? model : 4 * 2 * (3 * (32 + 32) + 32 + 32 + 2 * (32 + 48) + 48 + 32));
    const again = await run({ resume: join(out, 'step-0000006'), out: fresh(), tensorboard: false });
    assert.deepEqual(again.losses, whole.losses.slice(6));
    assert.deepEqual(
      again.of('eval').map(({ loss }) => loss),
      whole
        .of('eval')
        .map(({ loss }) => loss)
        .slice(1),
    );
    const lines = readFileSync(join(out, 'metrics.jsonl'), 'utf8').trim().split('\n');
    assert.equal(lines.filter((line) => JSON.parse(line).eval_loss !== undefined).length, 3);
    if (type === 'full') {
      assert.deepEqual((await loadCheckpoint(out)).config.model, readConfig(MODEL));
      return;
    }
    const { base: name, matrices } = await readPeft(join(out, 'best'), readConfig(MODEL));
    assert.deepEqual([name, matrices.length, matrices[0].options], [MODEL, 14, { rank: 4, alpha: 8, rslora: false, dropout: 0.1 }]);
    assert.ok(existsSync(join(out, 'best', 'tokenizer.json')));
    await assert.rejects(openModel(out), /is an adapter of .*: name the model, and this with --adapter/);
  });
}

test('dropout acts in steps, and not in evaluations', async () => {
  const data = fileOf(ROWS);
  const out = fresh();
  const options = { data, maxSteps: 3, evalEvery: 3, rank: 4, validation: 0.3, learningRate: 0.02, warmupSteps: 0 };
  const [dropped, plain] = [await begin({ ...options, out, dropout: 0.5 }), await begin({ ...options, out: fresh() })];
  assert.equal(dropped.losses[0], plain.losses[0]);
  assert.notEqual(dropped.losses[2], plain.losses[2]);
  // One product computes queries, keys and values, and all their adapters drop the same inputs.
  const joined = { ...options, targets: ['q_proj', 'v_proj'] };
  const [some, none] = [await begin({ ...joined, out: fresh(), dropout: 0.5 }), await begin({ ...joined, out: fresh() })];
  assert.notEqual(some.losses[2], none.losses[2]);
  const [{ loss: told }] = dropped.of('eval');
  init();
  const model = await importModel(MODEL);
  await loadPeft(join(out, 'best'), model);
  model.eval();
  const { validation } = openExamples(data, { ...fit(), validation: 0.3 });
  assert.ok(validation);
  const windows = Array.from({ length: validation.windows }, (_, i) => i);
  let sum = 0;
  for (const i of windows) {
    const window = validation.window(i);
    const parts = [0, 1, 2, 3].map((part) => tensor(window.slice(part * 64, (part + 1) * 64), { shape: [1, 64] }));
    sum += await noGrad(() => scope(() => validation.loss(model, parts, undefined, {}))).item();
  }
  const own = sum / validation.counted(windows);
  assert.ok(Math.abs(told - own) < 1e-4, `${told}, ${own}`);
  model.dispose();
  reset();
});

test('a run is continued from anywhere, and where its model was moved --model says so', async () => {
  const [model, moved, other, out, data] = [fresh(), fresh(), fresh(), fresh(), fileOf(ROWS)];
  cpSync(MODEL, model, { recursive: true });
  await writeTinyModel(other, { template: CHATML, context: 256 });
  reset();
  await begin({ model: relative(process.cwd(), model), data, out, maxSteps: 2, rank: 2 });
  assert.equal((await loadCheckpoint(out)).tuning?.base, model);
  await assert.rejects(run({ resume: out, model: MODEL, maxSteps: 3 }), /--resume keeps the run's --model, .*: leave it out/);
  renameSync(model, moved);
  await assert.rejects(run({ resume: out, maxSteps: 3 }), /which the run began with, is not there: --model names where it is now/);
  await assert.rejects(run({ resume: out, model: other, maxSteps: 3 }), /is another model than the run began with/);
  await run({ resume: out, model: moved, maxSteps: 3 });
  assert.equal((await loadCheckpoint(out)).tuning?.base, moved);
});

/** The number of the model's parameters. */
async function importModelCount() {
  init();
  const model = await importModel(MODEL);
  const count = model.parameters().reduce((sum, { size }) => sum + size, 0);
  model.dispose();
  reset();
  return count;
}

test('a model that the program has loaded writes while a run trains, and stays; the run frees its memory, however it ends', async () => {
  const model = await loadModel(MODEL);
  const write = async () => textOf(await all(model.generate('the', { maxTokens: 4, seed: 1 })));
  try {
    const text = await write();
    /** Bytes of the device after each run. @type {number[]} */
    const used = [];
    const options = { model: MODEL, data: fileOf([{ text: 'the old men' }]), validation: 0, batchSize: 1, blockSize: 32, maxSteps: 3 };
    for (const ends of ['done', 'step']) {
      for await (const { type } of finetune({ ...options, out: fresh(), tensorboard: false })) {
        if (type === 'step') assert.equal(await write(), text);
        if (type === ends) break;
      }
      assert.equal(await write(), text);
      used.push(vk.getAllocatorStats().activeBufferBytes);
    }
    // Scalars of a step are freed when they are collected.
    assert.ok(used[1] - used[0] < 4096, `${used[1] - used[0]} bytes are left of a run that was left early`);
  } finally {
    await model.dispose();
    reset();
    vk.destroy();
  }
});

test('of two runs at once the first to end leaves the other its device, and the last one closes it', async () => {
  const options = { model: MODEL, data: fileOf([{ text: 'the old men' }]), validation: 0, batchSize: 1, blockSize: 32, tensorboard: false };
  const losses = async (/** @type {number} */ maxSteps) => {
    const steps = await all(finetune({ ...options, maxSteps, out: fresh() }));
    return steps.flatMap((event) => (event.type === 'step' ? [event.loss] : []));
  };
  const alone = await losses(8);
  const [, together] = await Promise.all([losses(2), losses(8)]);
  assert.deepEqual(together, alone);
  assert.throws(() => vk.getAllocatorStats(), { code: 'ERR_HELIOS_NO_DEVICE' });
});

test('targets, early stopping, a test, and a run that is told to end', async () => {
  const folder = fresh();
  mkdirSync(folder);
  for (const [name, rows] of /** @type {const} */ ([
    ['train', ROWS.slice(0, 60)],
    ['valid', ROWS.slice(60, 70)],
    ['test', ROWS.slice(70)],
  ]))
    fileOf(rows, join(folder, `${name}.jsonl`));
  const stopped = await begin({
    data: folder,
    targets: ['q_proj', 'v_proj'],
    maxSteps: 9,
    evalEvery: 1,
    earlyStoppingPatience: 2,
    learningRate: 0,
    minLr: 0,
  });
  const [done] = stopped.of('done');
  assert.deepEqual([done.reason, done.step, done.bestStep], ['early-stopping', 3, 1]);
  assert.ok(done.testLoss > 4 && done.testLoss < 7);
  assert.equal(stopped.of('start')[0].parameters, 8 * 2 * 2 * (32 + 32));
  const [stop, out] = [new AbortController(), fresh()];
  await assert.rejects(async () => {
    for await (const { type, step } of finetune({ ...SHORT, model: MODEL, data: folder, out, maxSteps: 50, signal: stop.signal }))
      if (type === 'step' && step === 3) stop.abort();
  }, /AbortError|aborted/);
  const [saved] = readdirSync(out).filter((name) => name.startsWith('step-'));
  const { tuning, step } = await loadCheckpoint(join(out, saved));
  assert.ok(step >= 3 && step < 10);
  assert.equal(tuning?.base, MODEL);
  const more = await run({ resume: out, maxSteps: step + 1, tensorboard: false });
  assert.deepEqual(
    more.of('step').map((event) => event.step),
    [step + 1],
  );
});

test('what contradicts itself or what is there is refused before any work, and leaves nothing behind', async () => {
  const [data, out] = [fileOf(ROWS), fresh()];
  const folder = fresh();
  mkdirSync(folder);
  /** @type {[FinetuneOptions, RegExp][]} */
  const wrong = [
    [{ data }, /name the model to fine-tune/],
    [{ model: MODEL }, /name the data/],
    [{ model: MODEL, data: folder }, /has no train.jsonl/],
    [{ model: MODEL, data, type: /** @type {any} */ ('half') }, /--type must be lora, full, qlora, got half/],
    [{ model: MODEL, data, type: 'full', rank: 4 }, /--rank is of adapters/],
    [{ model: MODEL, data, rank: 0 }, /--rank must be an integer of at least 1/],
    [{ model: MODEL, data, targets: ['c_attn'] }, /(: |^)--targets must name linear layers of a llama \(.*\), got "c_attn"/],
    [{ model: MODEL, data, alpha: 0 }, /--alpha must be a number above 0, got 0/],
    [{ model: MODEL, data, type: 'qlora', dropout: 1 }, /--dropout must be a number from 0 and below 1/],
    [{ model: MODEL, data, minLr: 1e-6, lrScheduler: 'constant' }, /--min-lr is for a rate that falls/],
    [{ model: MODEL, data, validation: 0, evalEvery: 2 }, /--eval-every needs held-out text: leave --validation 0 out/],
    [{ model: MODEL, data, saveTotalLimit: 0 }, /--save-total-limit is at least 1/],
    [{ model: MODEL, data, validation: 1 }, /--validation must be a share/],
    [{ model: MODEL, data, blockSize: 129 }, /129 is more than the model's context, 128/],
    [{ model: PLAIN, data }, /has no checkpoint|config.json/],
    [{ resume: true }, /--resume needs --out/],
    [/** @type {any} */ ({ model: MODEL, data, ranks: 3 }), /finetune has no option ranks; the nearest is rank/],
  ];
  for (const [options, message] of wrong) await assert.rejects(run({ ...options, out: options.resume ? undefined : out }), message);
  assert.ok(!existsSync(out));
  const first = fresh();
  await begin({ out: first, data, maxSteps: 2, rank: 2 });
  await assert.rejects(run({ resume: first, maxSteps: 4, rank: 2 }), /--resume keeps the run's --rank: leave it out/);
  await assert.rejects(run({ resume: first, maxSteps: 4, seed: 2 }), /--resume keeps the run's --seed: leave it out/);
  await assert.rejects(async () => {
    for await (const _ of train({ resume: first }));
  }, /is of a run that fine-tunes: helios-lm finetune --resume continues it/);
  writeFileSync(data, `${readFileSync(data, 'utf8')}{"text": "more of it"}\n`);
  await assert.rejects(run({ resume: first, maxSteps: 4 }), /was trained on other data/);
});

test('the command fine-tunes, shows it, and says what is wrong with its arguments', () => {
  const helios = (/** @type {string[]} */ ...args) => lm(['finetune', ...args]);
  const help = helios('--help').stdout;
  for (const option of ['--model', '--data', '--type', '--rank', '--targets', '--skip-unusable', '--resume', '--eval-every', '--ui'])
    assert.ok(help.includes(`${option} `), `${option} in:\n${help}`);
  for (const option of ['--preset', '--layers', '--sample-every', '--separator']) assert.ok(!help.includes(`${option} `), option);
  const [data, out] = [fileOf([...ROWS, chat('a', '')]), fresh()];
  const args = ['--model', MODEL, '--data', data, '--out', out, '--max-steps', '2', '--block-size', '64', '--targets', 'q_proj,o_proj'];
  const refused = helios(...args);
  assert.equal(refused.status, 1);
  assert.match(
    refused.stderr,
    /1 of 81 rows cannot be trained on \(--skip-unusable leaves them out\):\n {2}.*:81: turn 2 \(assistant\) is empty/,
  );
  const made = helios(...args, '--skip-unusable', '--json', '--quiet', '--no-tensorboard');
  assert.equal(made.status, 0, made.stderr);
  const events = made.stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  assert.deepEqual([events[0].type, events.at(-1).type, events.at(-1).step], ['start', 'done', 2]);
  assert.ok(existsSync(join(out, 'step-0000002', 'adapter_model.safetensors')));
  const wrong = helios(...args, '--targets', 'q_proj,');
  assert.deepEqual([wrong.status, /--targets must be names with commas between them/.test(wrong.stderr)], [2, true]);
});

const PAIRS = Array.from({ length: 40 }, (_, i) => ({ prompt: `${i} and `, chosen: 'the old sea', rejected: [turn('assistant', 'men')] }));

test('preference pairs: the loss is that of Rafailov et al. from the log-probabilities of answers, and is resumed bit for bit', async () => {
  const beta = 0.5;
  const data = open(PAIRS, { beta });
  assert.equal(data.train.windows, 40);
  init();
  const model = await importModel(MODEL);
  const [window] = [data.train.window(3)];
  const parts = [0, 1, 2, 3].map((i) => tensor(window.slice(i * 64, (i + 1) * 64), { shape: [1, 64] }));
  const loss = (/** @type {number} */ before) =>
    noGrad(() => scope(() => data.train.loss(model, parts, tensor([before], { shape: [1] }), {}))).item();
  const [chosen, rejected] = await Promise.all(
    [0, 2].map((i) => noGrad(() => scope(() => model.loss(parts[i], parts[i + 1], { counted: 1 }))).item()),
  );
  const expected = Math.log(1 + Math.exp(-beta * (rejected - chosen - 2)));
  assert.ok(Math.abs((await loss(2)) / 64 - expected) < 1e-5 * expected);
  model.dispose();
  reset();

  for (const type of /** @type {const} */ (['lora', 'full'])) {
    const out = fresh();
    const options = {
      type,
      loss: /** @type {const} */ ('dpo'),
      beta,
      data: fileOf(PAIRS),
      out,
      maxSteps: 6,
      saveEvery: 3,
      validation: 0.3,
    };
    const { losses, of } = await begin(options);
    assert.ok(Math.abs(losses[0] - Math.LN2) < 1e-5, `${losses}`);
    assert.ok(losses[5] < 0.8 * losses[0] && of('eval').at(-1).loss < 0.8 * losses[0], `${losses}`);
    assert.equal(of('eval')[0].perplexity, undefined);
    const again = await run({ resume: join(out, 'step-0000003'), out: fresh(), tensorboard: false });
    assert.deepEqual(again.losses, losses.slice(3));
  }
});

test('a run that is told to end while it compares pairs with the model ends there', async () => {
  const stop = new AbortController();
  /** @type {string[]} */
  const seen = [];
  const note = (/** @type {string} */ text) => {
    if (text === 'first, what the model says of 40 pairs as it is') stop.abort();
  };
  const out = fresh();
  const events = finetune({ model: MODEL, data: fileOf(PAIRS), out, loss: 'dpo', validation: 0, blockSize: 64, signal: stop.signal, note });
  await assert.rejects(
    async () => {
      for await (const { type } of events) seen.push(type);
    },
    { name: 'AbortError' },
  );
  assert.ok(stop.signal.aborted && !seen.includes('step'), `${seen}`);
  assert.ok(!existsSync(out) || !readdirSync(out).some((name) => name.startsWith('step')));
});

test('pairs are for --loss dpo alone, and it takes nothing else', () => {
  assert.throws(() => open(PAIRS), /a pair of answers, which --loss dpo takes/);
  assert.throws(() => open(ROWS, { beta: 1 }), /no prompt, chosen and rejected, which --loss dpo takes/);
  assert.throws(() => open([{ ...PAIRS[0], rejected: '' }], { beta: 1 }), /rejected is empty/);
});
