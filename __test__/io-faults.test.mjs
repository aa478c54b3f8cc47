// Writing checkpoints, files of `save`, tuning tables and the pipeline cache while the file system fails, in every place.

import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

import { obstacle, runWithFault } from './faults/io.mjs';

const url = (/** @type {string} */ path) => JSON.stringify(new URL(path, import.meta.url));

/** @param {import('node:test').TestContext} t */
function folder(t) {
  const base = mkdtempSync(join(tmpdir(), 'helios-vk-test-'));
  t.after(() => rmSync(base, { recursive: true, force: true }));
  const path = join(base, 'watched');
  mkdirSync(path);
  return path;
}

/** A program that writes the checkpoint of a step; what it could not is on its output. @param {string} dir @param {number} step */
const saving = (dir, step) => `
  const { loadCheckpoint, saveCheckpoint } = await import(${url('../packages/lm/src/train/checkpoint.mjs')});
  const { PRESETS, withValues } = await import(${url('../packages/lm/src/train/config.mjs')});
  const { filled } = await import(${url('./lib/gpt.mjs')});
  const config = withValues(PRESETS['gpt-tiny'], { layers: 1, width: 32, heads: 1, hidden: 4, block: 4, vocab: 16 });
  try {
    await saveCheckpoint(${JSON.stringify(dir)}, { config, tokenizer: { kind: 'byte' } }, ${step}, () => filled(config.model, ${step}));
    console.log('saved');
  } catch (error) {
    console.log(error.message);
  }`;

/** A program that says what the latest checkpoint holds. @param {string} dir */
const loading = (dir) => `
  const { loadCheckpoint } = await import(${url('../packages/lm/src/train/checkpoint.mjs')});
  const { step, state } = await loadCheckpoint(${JSON.stringify(dir)});
  console.log(step, state.weights['norm.weight'][0], state.v['norm.weight'][0]);`;

test('a checkpoint is written whole or not at all, wherever writing fails', async (t) => {
  const reason = obstacle();
  if (reason) return t.skip(reason);
  const dir = folder(t);
  const { stdout, counts } = runWithFault(saving(dir, 1), dir);
  assert.equal(stdout, 'saved\n');
  assert.ok(counts.write > 10 && counts.sync === 2 && counts.rename === 1, JSON.stringify(counts));
  const name = readdirSync(dir)[0];
  const before = readFileSync(join(dir, name));
  const writes = [1, 2, 3, Math.ceil(counts.write / 2), counts.write];
  const faults = [
    ...writes.flatMap((nth) => [`write:${nth}:ENOSPC`, `write:${nth}:EIO`, `write:${nth}:nothing`]),
    ...['open:1:ENOSPC', 'sync:1:EIO', 'sync:1:ENOSPC', 'rename:1:EIO', 'rename:1:ENOSPC'],
  ];
  for (const fault of faults) {
    for (const step of [1, 2]) {
      const { stdout, stderr, status } = runWithFault(saving(dir, step), dir, fault);
      assert.equal(status, 0, `${fault}: ${stderr}`);
      assert.match(stdout, /step-000000\d\.safetensors could not be written: .*(ENOSPC|EIO|wrote nothing)/, fault);
      assert.deepEqual(readdirSync(dir), [name], `${fault}: nothing else is left`);
      assert.ok(readFileSync(join(dir, name)).equals(before), `${fault}: what was there still is`);
    }
  }
  assert.equal(runWithFault(loading(dir), dir).stdout, '1 1 1\n');
});

test('writes that take less than they were given are continued', async (t) => {
  const reason = obstacle();
  if (reason) return t.skip(reason);
  const dir = folder(t);
  assert.equal(runWithFault(saving(dir, 1), dir).stdout, 'saved\n');
  const whole = readFileSync(join(dir, readdirSync(dir)[0]));
  // From the third on, which is a tensor's, each takes a single byte.
  const { stdout, stderr } = runWithFault(saving(dir, 1), dir, 'write:3:short');
  assert.equal(stdout, 'saved\n', stderr);
  assert.ok(readFileSync(join(dir, readdirSync(dir)[0])).equals(whole));
  assert.equal(runWithFault(loading(dir), dir).stdout, '1 1 1\n');
});

test('the entry of a checkpoint in its folder is synced, and a failure said', async (t) => {
  const reason = obstacle();
  if (reason) return t.skip(reason);
  const dir = folder(t);
  const { stdout } = runWithFault(saving(dir, 1), dir, 'sync:2:EIO');
  assert.match(stdout, /could not be written: .*EIO/);
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
