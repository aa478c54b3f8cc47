// Writing checkpoints, files of `save`, tuning tables and the pipeline cache while the file system fails, in every place.

import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { obstacle, runWithFault } from './faults/io.mjs';
import { temporaryFolder } from './lib/folder.mjs';

const url = (/** @type {string} */ path) => JSON.stringify(new URL(path, import.meta.url));

/** @param {import('node:test').TestContext} t */
function folder(t) {
  const base = temporaryFolder(t);
  const path = join(base, 'watched');
  mkdirSync(path);
  return path;
}

/**
 * What a program needs to write and to read checkpoints: a trainer of a small model, without its device's files.
 * @param {string} work
 */
const training = (work) => `
  const { createRequire } = await import('node:module');
  const { loadCheckpoint, saveBest, saveCheckpoint } = await import(${url('../packages/lm/src/train/checkpoint.mjs')});
  const { configOf } = await import(${url('../packages/lm/src/train/settings.mjs')});
  const { Trainer } = await import(${url('../packages/lm/src/train/trainer.mjs')});
  const { loadTokenizer } = await import(${url('../packages/lm/src/tokenizer/index.mjs')});
  const { filled, readPart } = await import(${url('lib/gpt.mjs')});
  const vk = createRequire(${url('../index.js')})('helios-vk');
  vk.initDevice();
  const config = configOf('gpt-tiny', { layers: 1, width: 32, heads: 1, hidden: 4, blockSize: 4, batchSize: 1 });
  const trainer = new Trainer(vk, config, { data: { windows: 1, batch: () => new Uint32Array(5), window: () => new Uint32Array(5) } });
  const state = { run: 'one', data: { folder: '', sha256: '', tokens: 0 }, best: null };
  const files = (await loadTokenizer({ kind: 'byte' })).files();
  const at = (step) => {
    const values = filled(config.model, step);
    trainer.load({ step, weights: values, m: values, v: values });
  };
  try {
    ${work}
  } catch (error) {
    console.log(error.message);
  }
  trainer.destroy();
  vk.destroy();`;

/** A program that writes the checkpoint of a step; what it could not is on its output. @param {string} dir @param {number} step */
const saving = (dir, step) =>
  training(`at(${step}); await saveCheckpoint(${JSON.stringify(dir)}, trainer, state, files); console.log('saved');`);

/** A program that says what the latest checkpoint holds. @param {string} dir */
const loading = (dir) =>
  training(`const { step, restore } = await loadCheckpoint(${JSON.stringify(dir)});
    await restore(trainer);
    console.log(step, (await readPart(trainer, 'weights'))['norm.weight'][0], (await readPart(trainer, 'v'))['norm.weight'][0]);`);

/** The names and contents of a folder's files. @param {string} dir */
const contents = (dir) =>
  readdirSync(dir, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .sort()
    .map((path) => [path, readFileSync(path, 'base64')]);

test('a checkpoint appears whole or not at all, wherever writing fails', async (t) => {
  const reason = obstacle();
  if (reason) return t.skip(reason);
  const dir = folder(t);
  const { stdout, counts, stderr } = runWithFault(saving(dir, 1), dir);
  assert.equal(stdout, 'saved\n', stderr);
  // Each file of tensors is replaced, then the folder takes its name; every file is synced.
  assert.ok(counts.write > 10 && counts.sync > 8 && counts.rename === 3, JSON.stringify(counts));
  assert.deepEqual(readdirSync(dir), ['step-0000001']);
  const before = contents(dir);
  const spread = (/** @type {number} */ count) => [1, 2, 3, Math.ceil(count / 3), Math.ceil(count / 2), count - 1, count];
  const faults = [
    ...spread(counts.write).flatMap((nth) => [`write:${nth}:ENOSPC`, `write:${nth}:EIO`]),
    ...['open:1:ENOSPC', `open:${counts.open}:ENOSPC`],
    ...spread(counts.sync - 1).map((nth) => `sync:${nth}:EIO`),
    ...[1, 2, 3].flatMap((nth) => [`rename:${nth}:EIO`, `rename:${nth}:ENOSPC`]),
  ];
  for (const fault of new Set(faults)) {
    const { stdout, stderr, status } = runWithFault(saving(dir, 2), dir, fault);
    assert.equal(status, 0, `${fault}: ${stderr}`);
    assert.match(stdout, /step-0000002\S* could not be written: .*(ENOSPC|EIO)/, fault);
    assert.deepEqual(readdirSync(dir), ['step-0000001'], `${fault}: nothing else is left`);
    assert.deepEqual(contents(dir), before, `${fault}: what was there still is`);
  }
  assert.equal(runWithFault(loading(dir), dir).stdout, '1 1 1\n');
  // The last sync is that of its entry in the run's folder: it is there, and may not survive a crash.
  const last = runWithFault(saving(dir, 2), dir, `sync:${counts.sync}:EIO`);
  assert.match(last.stdout, /step-0000002 could not be written: .*EIO/);
});

test('writes that take less than they were given are continued', async (t) => {
  const reason = obstacle();
  if (reason) return t.skip(reason);
  const dir = folder(t);
  assert.equal(runWithFault(saving(dir, 1), dir).stdout, 'saved\n');
  const whole = contents(dir);
  rmSync(join(dir, 'step-0000001'), { recursive: true });
  const { stdout, stderr } = runWithFault(saving(dir, 1), dir, 'write:3:short');
  assert.equal(stdout, 'saved\n', stderr);
  assert.deepEqual(contents(dir), whole);
  assert.equal(runWithFault(loading(dir), dir).stdout, '1 1 1\n');
});

test('the best model stays whole, wherever writing the next one fails', async (t) => {
  const reason = obstacle();
  if (reason) return t.skip(reason);
  const dir = folder(t);
  const best = (/** @type {number} */ step) =>
    training(`at(${step}); await saveBest(${JSON.stringify(dir)}, trainer, files); console.log('saved');`);
  const { stdout, counts } = runWithFault(best(1), dir);
  assert.equal(stdout, 'saved\n');
  const before = contents(dir);
  assert.ok(before.every(([path]) => path.startsWith(join(dir, 'best'))));
  for (const fault of [
    ...[1, Math.ceil(counts.write / 2), counts.write].map((nth) => `write:${nth}:ENOSPC`),
    ...['sync:1:EIO', 'rename:1:EIO', `rename:${counts.rename - 1}:EIO`, `open:1:ENOSPC`],
  ]) {
    const { stdout, status, stderr } = runWithFault(best(2), dir, fault);
    assert.equal(status, 0, `${fault}: ${stderr}`);
    assert.match(stdout, /ENOSPC|EIO/, fault);
    assert.deepEqual(contents(dir), before, `${fault}: what was there still is`);
  }
  assert.equal(runWithFault(best(2), dir).stdout, 'saved\n');
  assert.notDeepEqual(contents(dir), before);
});

/** A program that compiles a kernel with its pipeline cache in `dir`. @param {string} dir */
const compiling = (dir) => `
  process.env.HELIOS_PIPELINE_CACHE = ${JSON.stringify(dir)};
  const { init, pipelineOf, vk } = await import(${url('lib/addon.mjs')});
  const programs = await import(${url('lib/programs.mjs')});
  init();
  pipelineOf(programs.increment);
  vk.destroy();
  console.log('done');`;

test('the pipeline cache is written whole or not at all, and never in the way', async (t) => {
  const reason = obstacle();
  if (reason) return t.skip(reason);
  const dir = folder(t);
  const { stdout, counts, stderr } = runWithFault(compiling(dir), dir);
  assert.equal(stdout, 'done\n', stderr);
  assert.ok(counts.write >= 2 && counts.sync === 1 && counts.rename === 1 && counts.open === 1, JSON.stringify(counts));
  const name = readdirSync(dir)[0];
  const before = readFileSync(join(dir, name));
  for (const fault of [
    'open:1:ENOSPC',
    'write:1:ENOSPC',
    'write:2:ENOSPC',
    'write:1:EIO',
    'write:2:nothing',
    'sync:1:EIO',
    'rename:1:EIO',
  ]) {
    const { stdout, status, stderr } = runWithFault(compiling(dir), dir, fault);
    assert.deepEqual([status, stdout], [0, 'done\n'], `${fault}: ${stderr}`);
    assert.deepEqual(readdirSync(dir), [name], `${fault}: nothing else is left`);
    assert.ok(readFileSync(join(dir, name)).equals(before), `${fault}: what was there still is`);
  }
  const { stdout: short } = runWithFault(compiling(dir), dir, 'write:1:short');
  assert.equal(short, 'done\n');
  assert.ok(readFileSync(join(dir, name)).length >= before.length);
});

/** A program that writes a file, and says what became of it. @param {string} module @param {string} names that it takes of it @param {string} work */
const telling = (module, names, work) => `
  const { ${names} } = await import(${url(module)});
  try {
    await ${work};
    console.log('saved');
  } catch (error) {
    console.log(error.message);
  }`;

/** Programs that write a file of a folder, with a value in it. @type {Record<string, (path: string, value: number) => string>} */
const PROGRAMS = {
  tensors: (path, value) =>
    telling('../nn/index.mjs', 'full, save', `save(${path}, { a: full([40], ${value}), b: full([3], ${value}, { dtype: 'f16' }) })`),
  'a tuning table': (path, value) => telling('../kernels/tuning/stored.mjs', 'writeStored', `writeStored(${path}, { date: '${value}' })`),
  'a result': (path, value) => telling('../packages/lm/src/train/outputs.mjs', 'writeOutput', `writeOutput(${path}, '${value}')`),
};

for (const [what, write] of Object.entries(PROGRAMS)) {
  test(`${what}: a file is written whole or not at all, and an error names it`, async (t) => {
    const reason = obstacle();
    if (reason) return t.skip(reason);
    const [dir, name] = [folder(t), 'file'];
    const path = join(dir, name);
    const program = (/** @type {number} */ value) => write(JSON.stringify(path), value);
    const { stdout, counts, stderr } = runWithFault(program(1), dir);
    assert.equal(stdout, 'saved\n', stderr);
    assert.ok(counts.write >= 1 && counts.sync >= 1 && counts.rename === 1, JSON.stringify(counts));
    const before = readFileSync(path);
    const writes = Array.from({ length: counts.write }, (_, i) => i + 1);
    for (const fault of [...writes.flatMap((nth) => [`write:${nth}:ENOSPC`, `write:${nth}:EIO`]), 'sync:1:EIO', 'rename:1:ENOSPC']) {
      const { stdout, status, stderr } = runWithFault(program(2), dir, fault);
      assert.equal(status, 0, `${fault}: ${stderr}`);
      assert.match(stdout, new RegExp(`watched/${name} could not be written: .*(ENOSPC|EIO)`), fault);
      assert.deepEqual(readdirSync(dir), [name], `${fault}: nothing else is left`);
      assert.ok(readFileSync(path).equals(before), `${fault}: what was there still is`);
    }
    assert.equal(runWithFault(program(1), dir, 'write:1:short').stdout, 'saved\n');
    assert.ok(readFileSync(path).equals(before), 'writes that take less than they were given are continued');
  });
}

test('a lock that cannot be written is named, and is not left', async (t) => {
  const reason = obstacle();
  if (reason) return t.skip(reason);
  const dir = folder(t);
  const taking = `
    const { FolderLock } = await import(${url('../packages/lm/src/train/outputs.mjs')});
    await FolderLock.take(${JSON.stringify(dir)}).then(() => console.log('taken'), (error) => console.log(error.message));`;
  assert.match(runWithFault(taking, dir, 'write:1:ENOSPC').stdout, /watched\/\.helios-vk\.lock could not be written: .*ENOSPC/);
  assert.deepEqual(readdirSync(dir), []);
  assert.equal(runWithFault(taking, dir).stdout, 'taken\n');
});
