// Checkpoints: what is in their folders, that a run goes on from them bit for bit, damage, and which of several is taken.

import assert from 'node:assert/strict';
import { copyFileSync, cpSync, existsSync, readFileSync, readdirSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { createKernels } from 'helios-vk/kernels';
import { reset, tunedPlans } from 'helios-vk/nn';
import { UsageError } from 'helios-vk/options';

import { temporaryFolder } from '../../../__test__/lib/folder.mjs';
import { bitsOfState, filled, randomTokens, randomWeights, readPart, windowsOf } from '../../../__test__/lib/gpt.mjs';
import { legacyConfig, modelOfLegacy, writeLegacy } from '../../../__test__/lib/legacy-checkpoint.mjs';
import { readConfig } from '../src/config.mjs';
import { importModel } from '../src/formats/hf.mjs';
import { loadTokenizer } from '../src/tokenizer/index.mjs';
import {
  checkFolder,
  checkpointPath,
  checkpointsIn,
  checkpointsOf,
  latestCheckpoint,
  loadCheckpoint,
  saveBest,
  saveCheckpoint,
  stepOf,
} from '../src/train/checkpoint.mjs';
import { loadLegacy } from '../src/train/legacy.mjs';
import { checkRun, configOf } from '../src/train/settings.mjs';
import { Trainer } from '../src/train/trainer.mjs';

const vk = createRequire(import.meta.url)('helios-vk');
vk.initDevice();
after(() => {
  reset();
  vk.destroy();
});

/** @param {Partial<import('../src/train/settings.mjs').Settings & import('../src/train/settings.mjs').Sizes>} [values] */
const runOf = (values) =>
  checkRun(
    configOf('gpt-tiny', {
      ...{ layers: 1, width: 32, heads: 1, hidden: 8, blockSize: 5, batchSize: 2, maxSteps: 20, warmupSteps: 4 },
      ...values,
    }),
  );
const usual = runOf();
const files = loadTokenizer({ kind: 'byte' }).files();
const data = { folder: '/a/folder', sha256: 'ab', tokens: 500 };

/** @param {typeof usual} [config] @param {number} [steps] */
async function trained(config = usual, steps = 0) {
  const { model, settings } = config;
  const trainer = new Trainer(vk, config, { data: windowsOf(randomTokens(500, model.vocabSize), settings.blockSize) });
  for (let i = 0; i < steps; i++) await trainer.step();
  await trainer.settle();
  return trainer;
}

/** @param {string} folder @param {Trainer} trainer @param {string} [run] */
const save = (folder, trainer, run = 'mine') => saveCheckpoint(folder, trainer, { run, data, best: null }, files);

/** A checkpoint of a step, without training. @param {string} folder @param {Trainer} trainer @param {number} step @param {string} [run] */
function saveAt(folder, trainer, step, run) {
  trainer.stepsDone = step;
  return save(folder, trainer, run);
}

for (const precision of /** @type {const} */ (['f32', 'bf16x3', 'f16', 'bf16'])) {
  test(`a run goes on from a checkpoint bit for bit, in ${precision}`, async (t) => {
    if (!createKernels(vk).matmulSupports(precision)) return t.skip(`the device has no matrix units for ${precision}`);
    const folder = temporaryFolder(t);
    const config = runOf({ precision, layers: 2, lrScheduler: 'wsd' });
    const trainer = await trained(config, 4);
    const best = { step: 3, loss: 1.5, since: 1 };
    const path = await saveCheckpoint(folder, trainer, { run: 'one', data, best }, files);
    assert.equal(path, join(folder, 'step-0000004'));
    for (let i = 0; i < 4; i++) await trainer.step();
    await trainer.settle();
    const [whole, losses] = [await bitsOfState(trainer), [...trainer.known].slice(4)];
    trainer.destroy();

    const { restore, plans, ...loaded } = await loadCheckpoint(folder);
    assert.deepEqual(plans, tunedPlans());
    assert.deepEqual(loaded, { path, step: 4, run: 'one', config, data, best, options: {}, tokenizer: path });
    const other = await trained(config);
    const live = () => vk.memoryStats().live;
    const before = live();
    await restore(other);
    assert.deepEqual(live(), before, 'nothing is left of the file');
    assert.equal(other.stepsDone, 4);
    for (let i = 0; i < 4; i++) await other.step();
    await other.settle();
    assert.deepEqual(await bitsOfState(other), whole);
    assert.deepEqual([...other.known], losses);
    other.destroy();
  });
}

test('a checkpoint is a model in the form of Hugging Face, with its tokenizer', async (t) => {
  const folder = temporaryFolder(t);
  const config = runOf();
  Object.assign(config.model, { bos: 1, eos: [2], pad: 2 });
  const trainer = await trained(config);
  const weights = randomWeights(config.model, 5);
  trainer.load({ step: 7, weights });
  const path = await save(folder, trainer);
  assert.deepEqual(
    readdirSync(path).sort(),
    [
      'config.json',
      'generation_config.json',
      'model.safetensors',
      'optimizer.safetensors',
      'trainer_state.json',
      ...Object.keys(files),
    ].sort(),
  );
  assert.deepEqual(readdirSync(folder), ['step-0000007'], 'nothing beside it');
  assert.deepEqual(readConfig(path), config.model);
  const generation = JSON.parse(readFileSync(join(path, 'generation_config.json'), 'utf8'));
  assert.deepEqual(generation, { bos_token_id: 1, eos_token_id: 2, pad_token_id: 2 });
  const model = await importModel(path);
  for (const [name, parameter] of model.namedParameters()) assert.deepEqual(await parameter.toArray(), weights[name], name);
  assert.deepEqual([...(await loadTokenizer(path)).encode('hé')], [0x68, 0xc3, 0xa9]);
  model.dispose();

  // Steps that were skipped are not made up for.
  trainer.load({ step: 9, skipped: 2, weights });
  const second = await save(folder, trainer);
  const other = await trained(config);
  await (await loadCheckpoint(second)).restore(other);
  assert.deepEqual([other.stepsDone, await other.opt.skippedSteps()], [9, 2]);
  other.destroy();
  trainer.destroy();
});

test('every changed byte of the texts of a checkpoint is found, and a file that is missing', async (t) => {
  const folder = temporaryFolder(t);
  const trainer = await trained();
  const path = await saveAt(folder, trainer, 7);
  trainer.destroy();
  const { restore: _, ...whole } = await loadCheckpoint(path);
  const names = readdirSync(path).filter((name) => !name.endsWith('.safetensors'));
  assert.ok(names.includes('tokenizer.json') && names.includes('trainer_state.json'));
  for (const name of names) {
    const file = join(path, name);
    const bytes = readFileSync(file);
    // Of the state, in which a number may be written in two ways, every bit; of the others, which have a digest, one of each byte.
    const bits = name === 'trainer_state.json' ? [1, 2, 4, 8, 16, 32, 64, 128] : [1];
    for (let at = 0; at < bytes.length; at += name === 'tokenizer.json' ? 7 : 1) {
      for (const bit of bits) {
        const changed = Buffer.from(bytes);
        changed[at] ^= bit;
        writeFileSync(file, changed);
        const what = `${name}, byte ${at}: ${JSON.stringify(String.fromCharCode(bytes[at], changed[at]))}`;
        await loadCheckpoint(path).then(
          ({ restore: _, ...found }) => {
            assert.equal(name, 'trainer_state.json', what);
            assert.deepEqual(found, whole, what);
            assert.equal(String.fromCharCode(bytes[at]).toLowerCase(), 'e', what);
          },
          (error) => assert.ok(error.message.includes(path), `${what}: ${error.message}`),
        );
      }
    }
    rmSync(file);
    if (name !== 'trainer_state.json')
      await assert.rejects(loadCheckpoint(path), { message: `${path} has no ${name}, which it was written with` });
    writeFileSync(file, bytes);
  }
  assert.equal((await loadCheckpoint(path)).step, 7);
});

test('a learning rate, a step or a run that was changed on the disk is found', async (t) => {
  const trainer = await trained();
  const path = await saveAt(temporaryFolder(t), trainer, 7);
  trainer.destroy();
  const file = join(path, 'trainer_state.json');
  const text = readFileSync(file, 'utf8');
  for (const [was, is, message] of /** @type {[string, string, RegExp][]} */ ([
    ['"learningRate": 0.003', '"learningRate": 1.003', /trainer_state\.json is damaged/],
    ['"step": 7', '"step": 8', /trainer_state\.json is damaged/],
    ['"run": "mine"', '"run": "ours"', /trainer_state\.json is damaged/],
    ['"version": 1', '"version": 2', /trainer_state\.json: "version" is 2; 1 is known/],
    ['"sha256": "', '"rha256": "', /trainer_state\.json is damaged/],
  ])) {
    assert.ok(text.includes(was), was);
    writeFileSync(file, text.replace(was, is));
    await assert.rejects(loadCheckpoint(path), message, was);
  }
  for (const [other, message] of /** @type {[string, RegExp][]} */ ([
    ['', /trainer_state\.json is not a file of JSON/],
    ['null', /trainer_state\.json: "version" is undefined/],
    ['[]', /trainer_state\.json: "version" is undefined/],
    ['{"version":1}', /trainer_state\.json is damaged/],
  ])) {
    writeFileSync(file, other);
    await assert.rejects(loadCheckpoint(path), (/** @type {Error} */ error) => error.message.includes(file) && message.test(error.message));
  }
});

test('damage to the tensors is found wherever it is, and a file of another model is refused', async (t) => {
  const folder = temporaryFolder(t);
  const trainer = await trained(usual, 1);
  const path = await save(folder, trainer);
  const { restore } = await loadCheckpoint(path);
  for (const name of ['model.safetensors', 'optimizer.safetensors']) {
    const file = join(path, name);
    const bytes = readFileSync(file);
    const begin = 8 + Number(bytes.readBigUInt64LE());
    const places = [
      0,
      5,
      8,
      9,
      40,
      Math.floor(begin / 2),
      begin - 1,
      begin,
      begin + 1,
      Math.floor((begin + bytes.length) / 2),
      bytes.length - 1,
    ];
    for (const at of places) {
      const damaged = Buffer.from(bytes);
      damaged[at] ^= 1;
      writeFileSync(file, damaged);
      await assert.rejects(restore(trainer), (/** @type {Error} */ error) => {
        assert.ok(error.message.includes(path), `${name}, byte ${at}: ${error.message}`);
        return true;
      });
    }
    truncateSync(file, bytes.length - 4);
    await assert.rejects(restore(trainer), new RegExp(name.replace('.', '\\.')));
    rmSync(file);
    await assert.rejects(restore(trainer), (/** @type {Error} */ error) => error.message.includes(path));
    writeFileSync(file, bytes);
  }
  const larger = await trained(runOf({ hidden: 12 }), 1);
  const other = await save(temporaryFolder(t), larger);
  copyFileSync(join(other, 'optimizer.safetensors'), join(path, 'optimizer.safetensors'));
  await assert.rejects(restore(trainer), { message: `${path}: m.layers.0.mlp.up.weight has another shape than its parameter` });
  copyFileSync(join(other, 'model.safetensors'), join(path, 'model.safetensors'));
  await assert.rejects(restore(trainer), /gate_proj\.weight is \[12, 32\], expected \[8, 32\] by config\.json/);
  trainer.destroy();
  larger.destroy();
});

test('where the latest checkpoint of a folder is damaged, the error names the one before it', async (t) => {
  const folder = temporaryFolder(t);
  const trainer = await trained();
  for (const step of [7, 8]) await saveAt(folder, trainer, step);
  trainer.destroy();
  writeFileSync(join(checkpointPath(folder, 8), 'config.json'), '{}');
  await assert.rejects(loadCheckpoint(folder), (/** @type {Error} */ error) => {
    assert.ok(error.message.startsWith(`${join(checkpointPath(folder, 8), 'config.json')} was changed or is damaged`), error.message);
    assert.ok(error.message.endsWith(`; the one before it is ${checkpointPath(folder, 7)}`), error.message);
    return true;
  });
  rmSync(checkpointPath(folder, 7), { recursive: true });
  await assert.rejects(loadCheckpoint(folder), /trainer_state\.json says$/);
  const empty = temporaryFolder(t);
  await assert.rejects(loadCheckpoint(empty), { message: `${empty} has no checkpoint (step-…)` });
  await assert.rejects(loadCheckpoint(join(empty, 'none')), /none does not exist/);
});

test('no checkpoint holds weights or moments that training cannot go on with', async (t) => {
  const folder = temporaryFolder(t);
  const trainer = await trained();
  const name = 'layers.0.mlp.down.weight';
  for (const [part, value, what] of /** @type {const} */ ([
    ['weights', NaN, name],
    ['weights', -Infinity, name],
    ['m', NaN, `m.${name}`],
    ['v', Infinity, `v.${name}`],
  ])) {
    const state = { weights: randomWeights(usual.model, 1), m: filled(usual.model), v: filled(usual.model) };
    state[part][name][3] = value;
    trainer.load({ step: 3, ...state });
    await assert.rejects(save(folder, trainer), { message: `after step 3 ${what} is not finite: the run has diverged` });
    assert.deepEqual(readdirSync(folder), []);
  }
  trainer.load({ step: 3, weights: filled(usual.model, 3e38) });
  await save(folder, trainer);
  trainer.destroy();
});

test('the best model takes the place of the one before, also after a kill between', async (t) => {
  const folder = temporaryFolder(t);
  const trainer = await trained();
  const first = async (/** @type {number} */ value) => {
    trainer.load({ step: 1, weights: filled(usual.model, value) });
    const path = await saveBest(folder, trainer, files);
    assert.deepEqual(readdirSync(folder), ['best']);
    const model = await importModel(path);
    const [found] = /** @type {Float32Array} */ (await model.stateDict()['norm.weight'].toArray());
    model.dispose();
    return found;
  };
  assert.equal(await first(2), 2);
  assert.equal(await first(3), 3);
  for (const left of ['best-new', 'best-old']) cpSync(join(folder, 'best'), join(folder, left), { recursive: true });
  assert.equal(await first(4), 4);
  for (const left of ['best-new.partial', 'best-old']) cpSync(join(folder, 'best'), join(folder, left), { recursive: true });
  rmSync(join(folder, 'best'), { recursive: true });
  assert.equal(await first(5), 5);
  assert.ok(!existsSync(join(folder, 'best', 'optimizer.safetensors')), 'a model and nothing else');
  trainer.destroy();
});

test('a folder may hold checkpoints of several runs, and each is found by its own', async (t) => {
  const folder = temporaryFolder(t);
  const trainer = await trained();
  const [first, second] = [await saveAt(folder, trainer, 1), await saveAt(folder, trainer, 2)];
  const theirs = await saveAt(folder, trainer, 3, 'theirs');
  trainer.destroy();
  assert.deepEqual(checkpointsIn(folder), [first, second, theirs]);
  assert.deepEqual(checkpointsOf(folder, 'mine'), [first, second]);
  assert.deepEqual(checkpointsOf(folder, 'nobody'), []);
  assert.deepEqual(checkpointsOf(join(folder, 'none'), 'mine'), []);
  assert.throws(() => latestCheckpoint(folder), {
    message: `${folder} has checkpoints of 2 runs: name one of them (the latest of each are step-0000002, step-0000003)`,
  });
  await assert.rejects(loadCheckpoint(folder), /has checkpoints of 2 runs/);
  rmSync(theirs, { recursive: true });
  // What cannot be read, such as a copy that is not there yet, is in nobody's way; it is the latest all the same.
  const half = checkpointPath(folder, 5);
  cpSync(second, half, { recursive: true });
  truncateSync(join(half, 'trainer_state.json'), 20);
  assert.deepEqual(checkpointsOf(folder, 'mine'), [first, second]);
  assert.equal(latestCheckpoint(folder), half);
  rmSync(half, { recursive: true });
  assert.equal(latestCheckpoint(folder), second);
  assert.deepEqual(['step-0000012', 'step-0000012.safetensors', 'step-12.partial', 'step-', 'best', 'a-step-1'].map(stepOf), [
    12,
    12,
    NaN,
    NaN,
    NaN,
    NaN,
  ]);
});

test('a run does not write where its checkpoints would be confused with others', async (t) => {
  const folder = temporaryFolder(t);
  const trainer = await trained();
  await saveAt(folder, trainer, 2);
  await saveAt(folder, trainer, 4);
  trainer.destroy();
  checkFolder(folder, 'mine', 4);
  checkFolder(join(folder, 'none'), 'mine', 0);
  const usage = (/** @type {RegExp} */ message) => (/** @type {Error} */ error) =>
    error instanceof UsageError && message.test(error.message);
  assert.throws(() => checkFolder(folder, 'mine', 3), usage(/: its step-0000004 is of a later step than 3, where this run continues/));
  assert.throws(() => checkFolder(folder, 'other', 9), usage(/: its step-0000002 is of another run: .* --resume \S+step-0000002$/));
  const model = modelOfLegacy(legacyConfig());
  const state = { weights: filled(model), m: filled(model), v: filled(model) };
  const old = writeLegacy(join(folder, 'step-0000001.safetensors'), { config: legacyConfig(), step: 1, state });
  assert.throws(() => checkFolder(folder, 'mine', 4), usage(/its step-0000001\.safetensors is of another run/));
  rmSync(old);
  writeFileSync(join(folder, 'step-0000001'), 'half');
  assert.throws(() => checkFolder(folder, 'mine', 4), usage(/its step-0000001 cannot be read: use another folder, or remove it/));
});

test('a run goes on from a checkpoint of an earlier version bit for bit, and its next one is in the form of today', async (t) => {
  const folder = temporaryFolder(t);
  const legacy = legacyConfig({ layers: 2, steps: 20, warmup: 4, batch: 2 });
  const config = runOf({ layers: 2, hidden: 4, maxSteps: 20, warmupSteps: 4 });
  const trainer = await trained(config, 4);
  const state = {
    weights: await readPart(trainer, 'weights'),
    m: await readPart(trainer, 'm'),
    v: await readPart(trainer, 'v'),
  };
  const path = writeLegacy(join(folder, 'step-0000004.safetensors'), { config: legacy, step: 4, run: 'old', state });
  for (let i = 0; i < 3; i++) await trainer.step();
  await trainer.settle();
  const whole = await bitsOfState(trainer);
  trainer.destroy();

  assert.deepEqual((await loadLegacy(path)).state, state);
  const loaded = await loadCheckpoint(folder);
  assert.deepEqual([loaded.path, loaded.step, loaded.run, loaded.data, loaded.best], [path, 4, 'old', undefined, null]);
  assert.deepEqual(loaded.config, config);
  assert.deepEqual(loaded.tokenizer, { kind: 'byte' });
  const other = await trained(loaded.config);
  await loaded.restore(other);
  for (let i = 0; i < 3; i++) await other.step();
  await other.settle();
  assert.deepEqual(await bitsOfState(other), whole);
  const next = await save(temporaryFolder(t), other, 'old');
  assert.deepEqual((await loadCheckpoint(next)).config, config);
  other.destroy();
});
