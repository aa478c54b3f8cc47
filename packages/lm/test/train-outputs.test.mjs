// What a run leaves on the disk, and whose folder it is; how text is sampled. No device.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync } from 'node:fs';
import { open, readFile, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { replaceFile } from 'helios-vk/files';

import { temporaryFolder } from '../../../__test__/lib/folder.mjs';
import { loadTokenizer } from '../src/tokenizer/index.mjs';
import { FolderLock, LOCK, writeOutput } from '../src/train/outputs.mjs';
import { generate, sampleToken } from '../src/train/sample.mjs';

const OUTPUTS = JSON.stringify(new URL('../src/train/outputs.mjs', import.meta.url));

/** A process that takes a folder and keeps it until it is killed. @param {string} dir */
async function owner(dir) {
  const source = `const { FolderLock } = await import(${OUTPUTS});
    await FolderLock.take(${JSON.stringify(dir)});
    console.log('taken');
    setInterval(() => {}, 1000);`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', source], { stdio: ['ignore', 'pipe', 'inherit'] });
  await once(/** @type {import('node:stream').Readable} */ (child.stdout), 'data');
  return child;
}

test('outputs: a file is replaced, a pipe is written to, and what is not a file is not replaced', {
  skip: process.platform === 'win32',
}, async (t) => {
  const dir = temporaryFolder(t);
  const file = join(dir, 'out.json');
  for (const text of ['first', 'second']) {
    await writeOutput(file, text);
    assert.equal(await readFile(file, 'utf8'), text);
  }
  const pipe = join(dir, 'pipe');
  assert.equal(spawnSync('mkfifo', [pipe]).status, 0);
  const [read] = await Promise.all([readFile(pipe, 'utf8'), writeOutput(pipe, 'through')]);
  assert.equal(read, 'through');
  await assert.rejects(
    replaceFile(pipe, () => assert.fail('it would remove the pipe')),
    { message: 'it is not a file' },
  );
  await assert.rejects(writeOutput(dir, 'x'), { message: /could not be written: EISDIR/ });
  assert.deepEqual((await readdir(dir)).sort(), ['out.json', 'pipe']);
  assert.ok((await stat(pipe)).isFIFO());
});

test('a folder belongs to one run: another is told whose, and a dead one’s is taken over', async (t) => {
  const dir = join(temporaryFolder(t), 'made', 'here');
  const child = await owner(dir);
  await assert.rejects(FolderLock.take(dir), (/** @type {Error} */ error) => {
    for (const part of [dir, `process ${child.pid} on ${hostname()}`, join(dir, LOCK)])
      assert.ok(error.message.includes(part), error.message);
    return true;
  });
  child.kill('SIGKILL');
  await once(child, 'exit');
  // What it was writing goes with it: a file, or the folder of a checkpoint.
  await writeFile(join(dir, 'results.json.0123456789abcdef.partial'), 'half');
  mkdirSync(join(dir, 'step-0000001.partial'));
  await writeFile(join(dir, 'step-0000001.partial', 'model.safetensors'), 'half');
  const lock = await FolderLock.take(dir);
  assert.deepEqual(await readdir(dir), [LOCK]);
  await lock.check();
  await assert.rejects(FolderLock.take(dir), new RegExp(`process ${process.pid} on`), 'not twice in one process either');
  lock.release();
  assert.deepEqual(await readdir(dir), []);
});

test('locks of other hosts stay, of earlier processes of the same number they do not', async (t) => {
  const dir = temporaryFolder(t);
  const lock = join(dir, LOCK);
  const since = '2026-01-02T03:04:05.678Z';
  await writeFile(lock, JSON.stringify({ pid: 2 ** 22 + 1, host: 'elsewhere', since }));
  await assert.rejects(FolderLock.take(dir), /process 4194305 on elsewhere, since 2026-01-02T03:04:05\.678Z/);
  if (process.platform === 'linux') {
    await writeFile(lock, JSON.stringify({ pid: process.pid, host: hostname(), begin: '1', since }));
    (await FolderLock.take(dir)).release();
  }
  // One that was killed before it had written its name.
  await writeFile(lock, '');
  await assert.rejects(FolderLock.take(dir), /being taken by another run/);
  const file = await open(lock, 'r+');
  await file.utimes(0, 0).finally(() => file.close());
  const own = await FolderLock.take(dir);
  // Whose lock was removed by hand does not write over the next owner's files.
  await rm(lock);
  await assert.rejects(own.check(), /no longer this run's: its lock .* is gone/);
  const next = await FolderLock.take(dir);
  await assert.rejects(own.check(), /belongs to process/);
  own.release();
  await next.check();
  next.release();
});

test('of many processes one gets the folder', { skip: process.platform === 'win32' }, async (t) => {
  const dir = temporaryFolder(t);
  await writeFile(join(dir, LOCK), JSON.stringify({ pid: 2 ** 22 + 1, host: hostname(), since: 'long ago' }));
  // Each says whether it got the folder, and one that did keeps it until it is asked whether it still has it: when all have tried.
  const source = `const { FolderLock } = await import(${OUTPUTS});
    const answer = (text) => process.stdout.write(text + '\\n');
    const tries = async () => { try { return await FolderLock.take(${JSON.stringify(dir)}); } catch { return null; } };
    let lock;
    process.stdin.on('data', async () => {
      if (lock === undefined) { lock = await tries(); return answer(lock ? 'taken' : 'refused'); }
      try { await lock?.check(); answer(lock ? 'mine' : 'not mine'); } catch { answer('lost'); }
      process.exit();
    });
    answer('ready');`;
  const children = Array.from({ length: 6 }, () =>
    spawn(process.execPath, ['--input-type=module', '-e', source], { stdio: ['pipe', 'pipe', 'inherit'] }),
  );
  t.after(() => children.forEach((child) => child.kill('SIGKILL')));
  const lines = children.map((child) => createInterface({ input: child.stdout })[Symbol.asyncIterator]());
  /** What all answer. @param {string} [question] */
  const answers = (question) => {
    if (question) for (const child of children) child.stdin.write(question);
    return Promise.all(lines.map(async (line) => (await line.next()).value));
  };
  assert.deepEqual(new Set(await answers()), new Set(['ready']));
  const tried = await answers('go');
  assert.ok(
    tried.every((answer) => answer === 'taken' || answer === 'refused'),
    tried.join(),
  );
  const owners = (await answers('and now?')).filter((answer) => answer === 'mine');
  assert.ok(owners.length <= 1, `${owners.length} owners`);
});

test('sampleToken: temperature, top-k and top-p say what is sampled from', () => {
  // Probabilities 1/2, 1/4, 1/8, 1/8 at temperature 1, not in order.
  const logits = Float32Array.of(Math.log(1 / 8), Math.log(1 / 2), Math.log(1 / 8), Math.log(1 / 4));
  /** @param {import('../src/train/sample.mjs').Sampling} sampling */
  const shares = (sampling) => {
    const counts = [0, 0, 0, 0];
    // Every uniform number of a fine grid: no luck is involved.
    for (let i = 0; i < 840; i++) counts[sampleToken(logits, { uniform: () => (i + 0.5) / 840 }, { temperature: 1, ...sampling })]++;
    return counts.map((count) => count / 840);
  };
  const all = { topK: 0, topP: 1 };
  assert.deepEqual(shares(all), [1 / 8, 1 / 2, 1 / 8, 1 / 4]);
  assert.deepEqual(shares({ ...all, topK: 1 }), [0, 1, 0, 0]);
  assert.deepEqual(shares({ ...all, topK: 3 }), [1 / 7, 4 / 7, 0, 2 / 7]);
  assert.deepEqual(shares({ ...all, topP: 0.7 }), [0, 2 / 3, 0, 1 / 3]);
  assert.deepEqual(shares({ ...all, topP: 0 }), [0, 1, 0, 0]);
  // Of what top-k leaves (4/7, 2/7, 1/7), not of all.
  assert.deepEqual(shares({ topK: 3, topP: 0.57 }), [0, 1, 0, 0]);
  assert.deepEqual(shares({ ...all, temperature: 0 }), [0, 1, 0, 0]);
  const [, cold] = shares({ ...all, temperature: 0.5 });
  assert.ok(Math.abs(cold - 16 / 22) < 2 / 840, `${cold}`);
});

test('text: a character of several tokens is given out when it is whole, and what never becomes one at the end', async () => {
  /** @type {number[][]} */
  const contexts = [];
  /** A model that always continues with these bytes, whatever its padded vocabulary says. @param {number[]} bytes */
  const model = (bytes) => {
    let next = 0;
    const nextLogits = async (/** @type {number[]} */ context) => {
      contexts.push([...context]);
      const byte = bytes[next++];
      return Float32Array.from({ length: 300 }, (_, i) => (i >= 256 ? 9 : Number(i === byte)));
    };
    return /** @type {any} */ ({ block: 8, nextLogits });
  };
  const tokenizer = await loadTokenizer({ kind: 'byte' });
  const parts = async (/** @type {string} */ prompt, /** @type {number[]} */ bytes) => {
    const found = [];
    for await (const part of generate(model(bytes), tokenizer, prompt, { tokens: bytes.length, temperature: 0 })) found.push(part);
    return found;
  };
  assert.deepEqual(await parts('a', [...Buffer.from('é€!')]), ['a', 'é', '€', '!']);
  assert.deepEqual(await parts('a', [0xe2, 0x82]), ['a', '\ufffd']);
  assert.deepEqual(await parts('', [0x78]), ['\n', 'x'], 'an empty prompt is a line end');
  contexts.length = 0;
  await parts('abcdefgh', [0x69, 0x6a]);
  assert.deepEqual(
    contexts.map((ids) => Buffer.from(ids).toString()),
    ['abcdefgh', 'bcdefghi'],
    'the end of what is longer than a context',
  );
});
