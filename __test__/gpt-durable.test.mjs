// Checkpoints and texts that are hostile, damaged, shared or large.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, open, readFile, readdir, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

import { checkpointPath, checkpointsOf, loadCheckpoint, saveCheckpoint } from '../packages/lm/src/train/checkpoint.mjs';
import { PRESETS, checkConfig, flatConfig, withValues } from '../packages/lm/src/train/config.mjs';
import { firstLine, loadText } from '../packages/lm/src/train/data.mjs';
import { invalidUtf8 } from '../packages/lm/src/data/utf8.mjs';
import { FolderLock, writeOutput } from '../packages/lm/src/train/outputs.mjs';
import { writeTensors } from '../packages/lm/src/train/safetensors.mjs';
import { trainTokenizer } from '../packages/lm/src/train/tokenizer.mjs';
import { replaceFile } from '../kernels/files.mjs';
import { parseObject } from '../nn/io/json.mjs';
import { filled } from './lib/gpt.mjs';

const FILES = fileURLToPath(new URL('../packages/lm/src/train/outputs.mjs', import.meta.url));
const LOCK = '.helios-vk.lock';

/** @param {import('node:test').TestContext} t */
async function folder(t) {
  const path = await mkdtemp(join(tmpdir(), 'helios-vk-test-'));
  t.after(() => rm(path, { recursive: true, force: true }));
  return path;
}

const config = withValues(PRESETS['gpt-tiny'], { layers: 1, width: 32, heads: 1, hidden: 4, block: 5 });
const tokenizer = /** @type {const} */ ({ kind: 'byte' });

/** A checkpoint's bytes, its parsed header and where its tensors begin. @param {string} dir */
async function made(dir) {
  const path = await saveCheckpoint(dir, { config, tokenizer, run: 'one' }, 7, () => filled(config.model, 0.5));
  const bytes = await readFile(path);
  const begin = 8 + Number(bytes.readBigUInt64LE());
  return { path, bytes, begin, header: JSON.parse(bytes.toString('utf8', 8, begin)) };
}

/** A safetensors file of a header's text. @param {string} text @param {Buffer} tensors */
function fileOf(text, tensors) {
  const header = Buffer.from(text);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  return Buffer.concat([length, header, tensors]);
}

test('the checksum is that of the file with zeros in its place, and damage to any tensor is found', async (t) => {
  const { path, bytes, header } = await made(await folder(t));
  const sum = header.__metadata__.file_sha256;
  const zeroed = Buffer.from(bytes);
  zeroed.write('0'.repeat(64), bytes.indexOf(sum));
  assert.equal(sum, createHash('sha256').update(zeroed).digest('hex'));
  await damageIsFound(path, bytes);
});

test('every changed byte before the tensors is found, and every bit of what the metadata say', async (t) => {
  const { path, bytes, begin } = await made(await folder(t));
  const metadata = bytes.indexOf('"token_embedding.weight"');
  assert.ok(metadata > 400 && metadata < begin);
  const file = await open(path, 'r+');
  t.after(() => file.close());
  /** @type {string[]} */
  const unfound = [];
  let changes = 0;
  for (let at = 0; at < begin; at++) {
    // Of a digit another one, of a letter another one: text that parses as before.
    const bits = at < metadata ? [1, 2, 4, 8, 16, 32, 64, 128] : [1];
    for (const bit of bits) {
      await file.write(Buffer.of(bytes[at] ^ bit), 0, 1, at);
      changes++;
      await loadCheckpoint(path).then(
        () => unfound.push(`byte ${at} ${JSON.stringify(String.fromCharCode(bytes[at], bytes[at] ^ bit))}`),
        (error) => assert.ok(error.message.includes(path), error.message),
      );
    }
    await file.write(bytes, at, 1, at);
  }
  assert.deepEqual(unfound, [], `of ${changes}`);
  assert.equal((await loadCheckpoint(path)).step, 7);
});

test('a learning rate, a step or a run that was changed on the disk is found', async (t) => {
  const { path, bytes } = await made(await folder(t));
  for (const [was, is] of [
    ['\\"lr\\":0.003', '\\"lr\\":1.003'],
    ['"step":"7"', '"step":"8"'],
    ['"run":"one"', '"run":"two"'],
    ['"format":"helios-vk-gpt-2"', '"format":"helios-vk-gpt-1"'],
    ['"file_sha256":"', '"fale_sha256":"'],
  ]) {
    const at = bytes.indexOf(was);
    assert.ok(at > 0, was);
    const changed = Buffer.from(bytes);
    changed.write(is, at);
    await writeFile(path, changed);
    await assert.rejects(loadCheckpoint(path), new RegExp(`^[A-Z]\\w+Error: ${path}.*(is damaged|file_sha256 is not)`), was);
  }
});

test('checkpoints of earlier versions load, with a checksum of their tensors or without one', async (t) => {
  const { path, bytes, begin, header } = await made(await folder(t));
  const { file_sha256: _, ...metadata } = header.__metadata__;
  const tensors = bytes.subarray(begin);
  const earlier = { ...metadata, format: 'helios-vk-gpt-1' };
  for (const kept of [{ sha256: createHash('sha256').update(tensors).digest('hex'), ...earlier }, earlier]) {
    const file = fileOf(JSON.stringify({ ...header, __metadata__: kept }), tensors);
    await writeFile(path, file);
    const { state, step } = await loadCheckpoint(path);
    assert.equal(step, 7);
    assert.deepEqual(state.v, filled(config.model, 0.5));
    if ('sha256' in kept) await damageIsFound(path, file);
  }
});

/** @param {string} path @param {Buffer} bytes its file */
async function damageIsFound(path, bytes) {
  const begin = 8 + Number(bytes.readBigUInt64LE());
  for (const at of [begin, begin + 1, Math.floor((begin + bytes.length) / 2), bytes.length - 1]) {
    const damaged = Buffer.from(bytes);
    damaged[at] ^= 1;
    await writeFile(path, damaged);
    await assert.rejects(loadCheckpoint(path), (/** @type {Error} */ error) => error.message.startsWith(`${path} is damaged: its `));
  }
}

test('where the latest checkpoint of a folder is damaged, the error names the one before it', async (t) => {
  const dir = await folder(t);
  await made(dir);
  const latest = await saveCheckpoint(dir, { config, tokenizer }, 8, () => filled(config.model));
  await truncate(latest, 5000);
  await assert.rejects(loadCheckpoint(dir), (/** @type {Error} */ error) => {
    assert.ok(error.message.startsWith(`${latest} is not a safetensors file`), error.message);
    assert.ok(error.message.endsWith(`the one before it is ${checkpointPath(dir, 7)}`), error.message);
    return true;
  });
  await rm(checkpointPath(dir, 7));
  await assert.rejects(loadCheckpoint(dir), /it has 5000 bytes, its header says \d+$/);
});

test('a checkpoint with numbers that no training goes on with is refused by its name and the tensor’s', async (t) => {
  const dir = await folder(t);
  const name = 'norm.weight';
  for (const [part, prefix, value] of /** @type {const} */ ([
    ['weights', '', NaN],
    ['weights', '', -Infinity],
    ['m', 'optimizer.m.', NaN],
    ['v', 'optimizer.v.', Infinity],
    ['v', 'optimizer.v.', -1],
  ])) {
    const path = await saveCheckpoint(dir, { config, tokenizer }, 7, (which) => {
      const values = filled(config.model);
      if (which === part) values[name][2] = value;
      return values;
    });
    await assert.rejects(loadCheckpoint(path), { message: `${path} cannot be used: element 2 of ${prefix}${name} is ${value}` });
  }
  const path = await saveCheckpoint(dir, { config, tokenizer }, 7, (part) => filled(config.model, part === 'v' ? 1e-30 : -1e30));
  assert.equal((await loadCheckpoint(path)).state.m[name][3], Math.fround(-1e30));
});

test('a folder that cannot be read is not one without checkpoints', { skip: process.platform === 'win32' }, async (t) => {
  const dir = await folder(t);
  await saveCheckpoint(dir, { config, tokenizer }, 7, () => filled(config.model));
  assert.deepEqual(await checkpointsOf(join(dir, 'none'), 'run'), []);
  await assert.rejects(checkpointsOf(checkpointPath(dir, 7), 'run'), { code: 'ENOTDIR' });
});

test('outputs: a file is replaced, a pipe is written to, and what is not a file is not replaced', {
  skip: process.platform === 'win32',
}, async (t) => {
  const dir = await folder(t);
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
  await assert.rejects(writeTensors(pipe, []), { message: `${pipe} could not be written: it is not a file` });
  await assert.rejects(writeOutput(dir, 'x'), { message: /could not be written: EISDIR/ });
  assert.deepEqual((await readdir(dir)).sort(), ['out.json', 'pipe']);
  assert.ok((await stat(pipe)).isFIFO());
});

test('a hostile checkpoint is an error that names the file and the field', async (t) => {
  const { path, bytes, begin, header } = await made(await folder(t));
  const tensors = bytes.subarray(begin);
  const name = 'head.weight';
  /** @param {(copy: any) => void} change */
  const changed = (change) => {
    const copy = structuredClone(header);
    change(copy);
    return fileOf(JSON.stringify(copy), tensors);
  };
  /** @param {string} key @param {unknown} value */
  const metadata = (key, value) =>
    changed((copy) => {
      copy.__metadata__[key] = value;
    });
  /** @param {string} key @param {unknown} value */
  const configured = (key, value) => metadata('config', JSON.stringify({ ...flatConfig(config), [key]: value }));
  /** @param {string} key @param {unknown} value */
  const entry = (key, value) =>
    changed((copy) => {
      copy[name][key] = value;
    });
  const text = JSON.stringify(header);
  /** @type {[string, Buffer, RegExp][]} */
  const cases = [
    ...['NaN', '-5', '1.5', '1e30', '', ' 3', 'null', '9999999999'].map(
      (step) => /** @type {[string, Buffer, RegExp]} */ ([`step ${step}`, metadata('step', step), /: step must be a whole number from 0/]),
    ),
    ['step a number', metadata('step', 7), /__metadata__ must have strings, got 7 for step/],
    ...['step', 'config', 'tokenizer', 'format'].map(
      (key) =>
        /** @type {[string, Buffer, RegExp]} */ ([`no ${key}`, metadata(key, undefined), new RegExp(`: ${key} is not in its metadata`)]),
    ),
    [
      'no metadata',
      changed((copy) => {
        delete copy.__metadata__;
      }),
      /: format is not in its metadata/,
    ],
    [
      'null metadata',
      changed((copy) => {
        copy.__metadata__ = null;
      }),
      /__metadata__ is not an object/,
    ],
    [
      'a list as metadata',
      changed((copy) => {
        copy.__metadata__ = [];
      }),
      /__metadata__ is not an object/,
    ],
    ['config null', metadata('config', 'null'), /: config is not an object but null/],
    ['config cut off', metadata('config', '{"layers":'), /: config is not JSON/],
    ['config twice', metadata('config', '{"layers":1,"layers":2}'), /: config has the key "layers" twice/],
    ['1e6 layers', configured('layers', 1e6), /: config cannot be used: layers must be an integer from 1 to 4096, got 1000000/],
    ['layers a string', configured('layers', '1'), /: config cannot be used: layers/],
    ['width null', configured('width', null), /: config cannot be used: width/],
    ['1e9 vocab', configured('vocab', 1e9), /: config cannot be used: vocab/],
    ['another width', configured('width', 64), /token_embedding\.weight is F32 \[256,32\], expected F32 \[256,64\]/],
    ['more layers', configured('layers', 4000), /has no tensor layers\.1\./],
    ['unknown tokenizer', metadata('tokenizer', '{"kind":"words"}'), /: tokenizer is of the kind "words"/],
    ['merges no list', metadata('tokenizer', '{"kind":"bpe","merges":7}'), /: tokenizer must hold at most/],
    ['data no object', metadata('data', '[]'), /: data is not an object but \[\]/],
    ['data without tokens', metadata('data', '{"name":"x"}'), /: data\.tokens must be a count/],
    ['another format', metadata('format', 'other'), /its format is other/],
    [
      'a tensor twice',
      fileOf(text.replace(`"${name}":`, `"norm.weight":{"dtype":"F32"},"${name}":`), tensors),
      /its header has the key "norm\.weight" twice/,
    ],
    [
      'a tensor too many',
      fileOf(text.replace(`"${name}":`, `"x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"${name}":`), tensors),
      /its model has no tensor x/,
    ],
    [
      'a tensor null',
      changed((copy) => {
        copy[name] = null;
      }),
      /its entry head\.weight is not an object/,
    ],
    ['a type of objects', entry('dtype', 'constructor'), /head\.weight is constructor \[256,32\], expected F32/],
    ['a negative size', entry('shape', [-1, -32]), /head\.weight has the shape \[-1,-32\]; sizes must be/],
    ['an endless size', entry('shape', [2 ** 40, 2 ** 40]), /its shape needs/],
    ['offsets no numbers', entry('data_offsets', ['0', '1']), /head\.weight \[256,32\] lies at bytes 0 to 1/],
    ['overlapping offsets', entry('data_offsets', [0, 32768]), /overlaps/],
    ['a mark before the header', fileOf(`\ufeff${text}`, tensors), /its header is not JSON/],
    ['a list', fileOf('[]', tensors), /its header is not an object/],
    ['null', fileOf('null', tensors), /its header is not an object/],
    ['no UTF-8', Buffer.concat([fileOf('', Buffer.alloc(0)).fill(1, 0, 1), Buffer.from([0xff])]), /its header is not UTF-8/],
  ];
  for (const [what, file, message] of cases) {
    await writeFile(path, file);
    await assert.rejects(loadCheckpoint(path), (/** @type {Error} */ error) => {
      assert.ok(error.message.includes(path) && message.test(error.message), `${what}: ${error.message}`);
      return true;
    });
  }
  if (process.platform !== 'win32') await assert.rejects(loadCheckpoint('/dev/zero'), /\/dev\/zero .*it is not a file/);
});

test('sizes are checked before anything is made by them', () => {
  for (const [key, value] of Object.entries({ layers: 1e9, width: 2 ** 40, vocab: 1e12, batch: 1e10, steps: 2 ** 40, block: NaN })) {
    assert.throws(() => checkConfig(withValues(config, { [key]: value })), new RegExp(`${key} must be an integer from 1 to`));
  }
  assert.throws(() => checkConfig(withValues(config, { batch: 2 ** 20, microSteps: 2 ** 20 })), /tokens, at most 268435456/);
});

test('other readers of the format find the tensors where they look', async (t) => {
  const { bytes, begin, header } = await made(await folder(t));
  const { __metadata__: metadata, ...entries } = header;
  assert.ok(Object.values(metadata).every((value) => typeof value === 'string'));
  let end = 0;
  for (const {
    dtype,
    shape,
    data_offsets: [from, to],
  } of Object.values(entries)) {
    assert.deepEqual(
      [dtype, from, to - from],
      ['F32', end, 4 * shape.reduce((/** @type {number} */ a, /** @type {number} */ b) => a * b, 1)],
    );
    end = to;
  }
  assert.equal(begin + end, bytes.length);
});

test('JSON with a key twice is refused, and nothing else', () => {
  const parse = (/** @type {string} */ text) => parseObject(Buffer.from(text), (what) => new Error(what));
  for (const text of ['{"a":1,"a":2}', '{"x":[{"a":{},"b":1,"\\u0061":0}]}', '{"__proto__":1,"__proto__":2}']) {
    assert.throws(() => parse(text), /^Error: has the key ".*" twice/, text);
  }
  for (const text of ['{"a":{"a":1},"b":["a","a"],"c":"\\"a\\":"}', '{"x":[{"a":1},{"a":2}]}', '{"a":"a:","b":"{\\"a\\":1,\\"a\\":2}"}']) {
    assert.deepEqual(parse(text), JSON.parse(text));
  }
});

/** A process that takes a folder and keeps it until it is killed. @param {string} dir */
async function owner(dir) {
  const source = `const { FolderLock } = await import(${JSON.stringify(FILES)}); await FolderLock.take(${JSON.stringify(dir)}); console.log('taken'); setInterval(() => {}, 1000);`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', source], { stdio: ['ignore', 'pipe', 'inherit'] });
  await once(/** @type {import('node:stream').Readable} */ (child.stdout), 'data');
  return child;
}

test('a folder belongs to one run: another is told whose, and a dead one’s is taken over', async (t) => {
  const dir = join(await folder(t), 'made', 'here');
  const child = await owner(dir);
  await assert.rejects(FolderLock.take(dir), (/** @type {Error} */ error) => {
    for (const part of [dir, `process ${child.pid} on ${hostname()}`, join(dir, LOCK)])
      assert.ok(error.message.includes(part), error.message);
    return true;
  });
  child.kill('SIGKILL');
  await once(child, 'exit');
  // What it was writing goes with it.
  await writeFile(join(dir, 'step-0000001.safetensors.0123456789abcdef.partial'), 'half');
  const lock = await FolderLock.take(dir);
  assert.deepEqual(await readdir(dir), [LOCK]);
  await lock.check();
  await assert.rejects(FolderLock.take(dir), new RegExp(`process ${process.pid} on`), 'not twice in one process either');
  lock.release();
  assert.deepEqual(await readdir(dir), []);
});

test('locks of other hosts stay, of earlier processes of the same number they do not', async (t) => {
  const dir = await folder(t);
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
  const dir = await folder(t);
  await writeFile(join(dir, LOCK), JSON.stringify({ pid: 2 ** 22 + 1, host: hostname(), since: 'long ago' }));
  // Each says whether it got the folder, and one that did keeps it until it is asked whether it still has it: when all have tried.
  const source = `const { FolderLock } = await import(${JSON.stringify(FILES)});
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

test('text that is not UTF-8 is an error with the byte’s offset, or replaced', async (t) => {
  const file = join(await folder(t), 'text.txt');
  const good = Buffer.from('Aé日\u{1f600}\u{10ffff}\ud7ff\ue000\ufeffz');
  assert.equal(invalidUtf8(good), undefined);
  for (const bad of [
    [0x80],
    [0xc0, 0x80],
    [0xc1, 0xbf],
    [0xc3],
    [0xe0, 0x9f, 0xbf],
    [0xed, 0xa0, 0x80],
    [0xe3, 0x81],
    [0xf0, 0x8f, 0xbf, 0xbf],
    [0xf4, 0x90, 0x80, 0x80],
    [0xf0, 0x9f, 0x98],
    [0xf5, 0x80, 0x80, 0x80],
    [0xff],
  ]) {
    for (const end of [[], [0x41]]) {
      const bytes = Buffer.concat([good, Buffer.from([...bad, ...end])]);
      assert.equal(invalidUtf8(bytes), good.length, String(bad));
      await writeFile(file, bytes);
      await assert.rejects(loadText(file), (/** @type {Error} */ error) => {
        assert.ok(error.message.includes(file) && error.message.includes(`byte ${good.length} is 0x${bad[0].toString(16)}`), error.message);
        return true;
      });
      const { text } = await loadText(file, { replaceInvalid: true });
      assert.equal(Buffer.from(text).toString(), new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes));
    }
  }
  const marked = Buffer.from('\ufeffmarked');
  for (const bytes of [good, marked]) {
    await writeFile(file, bytes);
    assert.deepEqual(Buffer.from((await loadText(file)).text), bytes);
  }
  await writeFile(file, Buffer.concat([marked, Buffer.from([0xff])]));
  assert.equal(Buffer.from((await loadText(file, { replaceInvalid: true })).text).toString(), '\ufeffmarked\ufffd');
  if (process.platform !== 'win32') await assert.rejects(loadText('/dev/zero'), /neither a file nor a pipe/);
});

test('the first line of a text is cut between characters', () => {
  assert.equal(firstLine(Buffer.from('日本語\nrest'), 40), '日本語');
  assert.equal(firstLine(Buffer.from('日本語日本語'), 2), '日本');
  assert.equal(firstLine(Buffer.from('\ufeffmarked\nrest'), 40), '\ufeffmarked', 'a prompt is what the text begins with');
});

test('bytes and strings give the same tokens', async () => {
  const text = 'she sells séa shells 日本 \u{1f600}. '.repeat(6000);
  for (const vocab of [256, 300]) {
    const tokenizer = await trainTokenizer(text, vocab);
    assert.deepEqual(await tokenizer.encode(Buffer.from(text)), await tokenizer.encode(text));
  }
});

test('a text of more than a string’s length', async (t) => {
  const file = join(await folder(t), 'large.txt');
  const size = 600e6;
  await writeFile(file, '');
  await truncate(file, size);
  const handle = await open(file, 'r+');
  await handle.write(Buffer.from('日本'), 0, 6, size - 6).finally(() => handle.close());
  const source = `
    const { loadText } = await import(${JSON.stringify(new URL('../packages/lm/src/train/data.mjs', import.meta.url))});
    const { trainTokenizer } = await import(${JSON.stringify(new URL('../packages/lm/src/train/tokenizer.mjs', import.meta.url))});
    const { text } = await loadText(${JSON.stringify(file)});
    const tokens = await (await trainTokenizer(text, 256)).encode(text);
    console.log(tokens.length, tokens[0], tokens.at(-1));`;
  const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', source], { encoding: 'utf8' });
  assert.equal(stdout, `${size} 0 ${Buffer.from('本').at(-1)}\n`, stderr);
});

test('train.mjs: --keep keeps the last checkpoints of the run, and a folder in use is refused', async (t) => {
  const dir = await folder(t);
  const train = fileURLToPath(new URL('../benches/train.mjs', import.meta.url));
  const sizes = '--preset gpt-tiny --layers 1 --width 32 --heads 1 --hidden 4 --block 8 --batch 1 --sample-tokens 0 --quiet'.split(' ');
  const run = () =>
    spawnSync(process.execPath, [train, ...sizes, '--steps', '5', '--checkpoint', dir, '--checkpoint-every', '1', '--keep', '2'], {
      encoding: 'utf8',
    });
  const child = await owner(dir);
  const refused = run();
  assert.equal(refused.status, 1);
  assert.match(refused.stderr, new RegExp(`^train: .* belongs to another run: process ${child.pid} on [^\\n]*\\n$`));
  child.kill('SIGKILL');
  await once(child, 'exit');
  const { status, stderr } = run();
  assert.equal(status, 0, stderr);
  const left = [4, 5].map((step) => checkpointPath('', step));
  assert.deepEqual((await readdir(dir)).sort(), left);
});
