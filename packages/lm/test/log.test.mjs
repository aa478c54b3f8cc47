// What a run leaves behind and shows: metrics.jsonl, event files, the line on the terminal, the time left, and the server of the page.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';

import { temporaryFolder } from '../../../__test__/lib/folder.mjs';
import { showProgress } from '../src/cli/progress.mjs';
import { MetricsLog } from '../src/log/metrics.mjs';
import { Rows, servePage } from '../src/log/page.mjs';
import { Progress } from '../src/log/progress.mjs';
import { TensorBoardLog, maskedCrc } from '../src/log/tensorboard.mjs';
import { TimeLeft } from '../src/log/time-left.mjs';

/** @typedef {import('../src/log/events.mjs').TrainEvent} TrainEvent */

/** @param {number} [step] @param {number} [steps] @param {import('../src/log/events.mjs').Plan} [plan] @returns {TrainEvent} */
const start = (step = 0, steps = 10, plan = {}) => ({
  ...plan,
  type: 'start',
  step,
  steps,
  parameters: 1000,
  device: 'a device',
  precision: 'f32',
  tokensPerStep: 512,
  trainTokens: 1e6,
  validationTokens: 1e4,
});
/** @param {number} step @param {Partial<Extract<TrainEvent, { type: 'step' }>>} [more] @returns {TrainEvent} */
const stepEvent = (step, more) => ({ type: 'step', step, epoch: step / 100, loss: 5 - step / 4, learningRate: 1e-3, ...more });
/** @param {number} step @returns {TrainEvent} */
const evalEvent = (step) => ({ type: 'eval', step, loss: 2, perplexity: 7.389056, bitsPerByte: 0.875, best: true });

test('metrics.jsonl has a line a step and a line an evaluation, under the keys of transformers', (t) => {
  const folder = temporaryFolder(t);
  const log = new MetricsLog(folder);
  log.push(start());
  log.push(stepEvent(1, { gradNorm: 0.5, tokensPerSecond: 1000, memoryBytes: 1 }));
  log.push(stepEvent(2, { loss: NaN }));
  log.push(evalEvent(2));
  log.push({ type: 'sample', step: 2, text: 'no metrics' });
  log.push({ type: 'checkpoint', step: 2, path: 'step-2', best: true });
  log.close();
  assert.equal(
    readFileSync(join(folder, 'metrics.jsonl'), 'utf8'),
    '{"step":1,"epoch":0.01,"loss":4.75,"learning_rate":0.001,"grad_norm":0.5,"tokens_per_second":1000}\n' +
      '{"step":2,"epoch":0.02,"loss":null,"learning_rate":0.001}\n' +
      '{"step":2,"eval_loss":2,"eval_perplexity":7.389056,"eval_bits_per_byte":0.875}\n',
  );
});

test('after kill -9 at any moment and a resume, metrics.jsonl has each step once', (t) => {
  const folder = temporaryFolder(t);
  const path = join(folder, 'metrics.jsonl');
  // The killed process: it wrote its checkpoint of step 4, was told of steps up to 7, and never closed its log.
  const child = `import { MetricsLog } from ${JSON.stringify(new URL('../src/log/metrics.mjs', import.meta.url).href)};
    const log = new MetricsLog(${JSON.stringify(folder)});
    log.push(${JSON.stringify(start())});
    for (const event of ${JSON.stringify([1, 2, 3, 4, 5, 6, 7].flatMap((step) => [stepEvent(step), evalEvent(step)]))}) log.push(event);
    process.kill(process.pid, 'SIGKILL');`;
  const { signal, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', child], { encoding: 'utf8' });
  assert.ok(signal === 'SIGKILL' || process.platform === 'win32', stderr);
  const steps = () =>
    readFileSync(path, 'utf8')
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line).step);
  assert.deepEqual(steps(), [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7]);

  const whole = readFileSync(path, 'utf8');
  const kept = whole
    .split('\n')
    .slice(0, 8)
    .map((line) => `${line}\n`)
    .join('');
  const log = new MetricsLog(folder);
  // Whatever was being written when the power went, from a single byte on.
  for (const torn of ['', '{', '{"step":8,"loss":2', '{"step":8,"epoch":0.08}', '\0\0\0\0']) {
    writeFileSync(path, whole + torn);
    log.push(start(4));
    assert.equal(readFileSync(path, 'utf8'), kept, JSON.stringify(torn));
  }
  for (const step of [5, 6, 7, 8]) log.push(stepEvent(step));
  log.close();
  assert.deepEqual(steps(), [1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8]);

  // A run from its beginning keeps nothing, and one that goes on after the last line keeps all.
  log.push(start(8));
  assert.equal(steps().length, 12);
  for (let times = 0; times < 2; times++) {
    log.push(start(0));
    assert.equal(readFileSync(path, 'utf8'), '');
    log.push(evalEvent(0));
  }
  log.close();
});

test('metrics.jsonl of any length is cut at the right byte, across the pieces that it is read in', (t) => {
  const folder = temporaryFolder(t);
  const path = join(folder, 'metrics.jsonl');
  // Lines of two-byte letters and other lengths: 3 MB.
  const lines = Array.from({ length: 30_000 }, (_, i) => `{"step":${i + 1},"note":"${'é'.repeat(i % 97)}"}\n`);
  writeFileSync(path, lines.join(''));
  const log = new MetricsLog(folder);
  log.push(start(20_123));
  log.close();
  assert.equal(readFileSync(path, 'utf8'), lines.slice(0, 20_123).join(''));
});

test('metrics that cannot be written name the file', (t) => {
  const log = new MetricsLog(join(temporaryFolder(t), 'nowhere'));
  assert.throws(() => log.push(start()), /nowhere.metrics\.jsonl: ENOENT/);
});

/** The messages of a file of TFRecord; fails where a length or a checksum is wrong. @param {Buffer} bytes */
function recordsOf(bytes) {
  const records = [];
  for (let at = 0; at < bytes.length; ) {
    const length = Number(bytes.readBigUInt64LE(at));
    assert.equal(bytes.readUInt32LE(at + 8), maskedCrc(bytes.subarray(at, at + 8)));
    records.push(bytes.subarray(at + 12, at + 12 + length));
    assert.equal(bytes.readUInt32LE(at + 12 + length), maskedCrc(records[records.length - 1]));
    at += length + 16;
  }
  return records;
}

test('an event file has, byte for byte, the messages that TensorBoard’s own writer makes', (t) => {
  const folder = temporaryFolder(t);
  // test/fixtures/make-events.py wrote the same events.
  const log = new TensorBoardLog(join(folder, 'made', 'too'), { now: () => 1_700_000_000_250 });
  log.push(start(2));
  log.push(stepEvent(3, { loss: 2.5, gradNorm: 0.75, tokensPerSecond: 12345.5 }));
  log.push(stepEvent(4, { loss: 2.25, learningRate: 9e-4 }));
  log.push(evalEvent(300));
  log.push({ type: 'eval', step: 2 ** 40, loss: NaN, perplexity: Infinity, best: false });
  log.push({ type: 'checkpoint', step: 300, path: 'no event', best: false });
  log.push({ type: 'sample', step: 301, text: 'one ☂\ntwo' });
  log.close();
  const [file, ...others] = readdirSync(join(folder, 'made', 'too'));
  assert.deepEqual(others, []);
  assert.match(file, /^events\.out\.tfevents\.1700000000\../);
  const [version, ...messages] = recordsOf(readFileSync(join(folder, 'made', 'too', file)));
  const [theirs, ...expected] = recordsOf(readFileSync(new URL('fixtures/run.tfevents', import.meta.url)));
  // Theirs goes on with the writer's name.
  assert.deepEqual(version, theirs.subarray(0, version.length));
  assert.ok(version.includes('brain.Event:2'));
  assert.deepEqual(messages.map(String), expected.map(String));
  assert.deepEqual(messages, expected);
});

test('two runs that begin in the same second have two event files', (t) => {
  const folder = temporaryFolder(t);
  for (const log of [new TensorBoardLog(folder, { now: () => 1000 }), new TensorBoardLog(folder, { now: () => 1000 })]) {
    log.push(start());
    log.close();
  }
  assert.equal(readdirSync(folder).length, 2);
});

test('time left counts the evaluations, checkpoints and samples that are to come, and says what it does not know', () => {
  let now = 0;
  const left = new TimeLeft({ now: () => now });
  /** @param {number} ms @param {TrainEvent} event */
  const after = (ms, event) => {
    now += ms;
    left.push(event);
  };
  after(0, start(0, 100, { evalEvery: 10, saveEvery: 25 }));
  assert.equal(left.left(), undefined);
  // The first step compiles, and tells nothing of those that follow.
  after(60_000, stepEvent(1));
  assert.equal(left.left(), undefined);
  for (let step = 2; step <= 10; step++) after(100, stepEvent(step));
  assert.deepEqual(round(left.left()), { ms: 9000, atLeast: true });
  after(2000, evalEvent(10));
  assert.deepEqual(round(left.left()), { ms: 9000 + 9 * 2000, atLeast: true }, 'no checkpoint was timed yet');
  for (let step = 11; step <= 25; step++) {
    after(100, stepEvent(step));
    if (step % 10 === 0) after(2000, evalEvent(step));
  }
  after(5000, { type: 'checkpoint', step: 25, path: 'step-25', best: false });
  assert.deepEqual(round(left.left()), { ms: 75 * 100 + 8 * 2000 + 3 * 5000, atLeast: false });
  // A sample comes as often as it did so far, since nothing says how often it will.
  after(1000, { type: 'sample', step: 25, text: '' });
  assert.deepEqual(round(left.left()), { ms: 75 * 100 + 8 * 2000 + 3 * 5000 + 3 * 1000, atLeast: false });

  // Slower steps: the estimate follows.
  for (let step = 26; step <= 29; step++) after(1000, stepEvent(step));
  assert.ok((left.left()?.ms ?? 0) > 71 * 150 + 31_000);

  // The end: steps are done, their evaluation and checkpoint are not.
  for (let step = 30; step <= 100; step++) after(100, stepEvent(step));
  assert.ok((left.left()?.ms ?? 0) >= 6999);
  after(2000, evalEvent(100));
  after(5000, { type: 'checkpoint', step: 100, path: 'step-100', best: false });
  assert.deepEqual(round(left.left()), { ms: 0, atLeast: false });
});

test('time left of a resumed run begins with its own steps', () => {
  let now = 1e6;
  const left = new TimeLeft({ now: () => now });
  left.push(start(1500, 3000, { evalEvery: 1000 }));
  for (const step of [1501, 1502, 1503]) {
    now += 10;
    left.push(stepEvent(step));
  }
  assert.deepEqual(round(left.left()), { ms: 14_970, atLeast: true });
});

/** @param {import('../src/log/time-left.mjs').Left | undefined} left */
const round = (left) => left && { ...left, ms: Math.round(left.ms) };

/** @param {boolean} isTTY @param {Partial<ConstructorParameters<typeof Progress>[0]>} [options] */
function progressOn(isTTY, options) {
  let text = '';
  const clock = { now: 0 };
  const stream = /** @type {any} */ ({ isTTY, columns: 120, write: (/** @type {string} */ piece) => ((text += piece), true) });
  const progress = new Progress({ stream, now: () => clock.now, env: { TERM: 'xterm' }, ...options });
  const push = (/** @type {number} */ ms, /** @type {TrainEvent} */ event) => {
    clock.now += ms;
    progress.push(event);
  };
  const written = () => {
    const all = text.replaceAll('\x1b', '␛');
    text = '';
    return all;
  };
  return { progress, push, written };
}

test('progress on a terminal redraws one line, with notes above it', () => {
  const { push, written } = progressOn(true);
  push(0, start(0, 8, { evalEvery: 4 }));
  assert.equal(written(), `\r${'░'.repeat(24)} 0/8  left ?␛[K`);
  push(1000, stepEvent(1, { loss: 4, tokensPerSecond: 2000 }));
  assert.equal(written(), `\r███${'░'.repeat(21)} 1/8  loss 4.0000  2,000 tok/s  left ?␛[K`);
  push(1000, stepEvent(2, { loss: 4, tokensPerSecond: 2000 }));
  assert.match(written(), / 2\/8 {2}loss 4\.0000 {2}2,000 tok\/s {2}left ≥ 0:06␛\[K$/);
  push(50, stepEvent(3, { loss: 2 }));
  assert.equal(written(), '', 'not more often than the eye sees');
  push(1000, stepEvent(4, { loss: 2 }));
  const smoothed = Number(written().match(/loss (\S+)/)?.[1]);
  assert.ok(smoothed > 2.9 && smoothed < 3.1, `${smoothed}: the mean of 4, 4, 2, 2, the later ones a little more`);
  push(10_000, evalEvent(4));
  const [note, line] = written().split('\n');
  assert.equal(note, '\r␛[Kstep 4: validation loss 2.0000, perplexity 7.389, 0.8750 bits a byte, the best so far');
  assert.match(line, /left 0:13␛\[K$/, 'four steps and one evaluation');
  push(0, { type: 'sample', step: 4, text: 'a\tb\n\x1b[31mred\x07\r\x9b2J' });
  assert.match(written(), /a\tb\n\[31mred2J\n/);
  push(0, { type: 'done', step: 4, reason: 'stopped', bestStep: 4, bestLoss: 2, seconds: 13 });
  assert.match(written(), /␛\[K\nstep 4 of 8 after 0:13: stopped; best validation loss 2\.0000 at step 4\n$/);
});

test('progress elsewhere is a line every so often, without a terminal’s commands', () => {
  for (const [isTTY, TERM] of /** @type {const} */ ([
    [false, 'xterm'],
    // A terminal of an editor, which would show the commands.
    [true, 'dumb'],
  ])) {
    const { push, written } = progressOn(isTTY, { lineEvery: 5000, env: { TERM } });
    push(0, start(0, 100));
    for (let step = 1; step <= 12; step++) push(1000, stepEvent(step, { loss: NaN }));
    assert.deepEqual(written().split('\n'), [
      `${'░'.repeat(24)} 0/100  left ?`,
      `█${'░'.repeat(23)} 5/100  left 1:35`,
      `██${'░'.repeat(22)} 10/100  left 1:30`,
      '',
    ]);
    push(0, { type: 'checkpoint', step: 12, path: 'runs/a/step-12', best: false });
    assert.equal(written(), 'step 12: wrote runs/a/step-12\n');
    push(0, { type: 'done', step: 12, reason: 'stopped', seconds: 12 });
    assert.match(written(), /^[^\n␛]+left 1:28\nstep 12 of 100 after 0:12: stopped\n$/);
  }
  for (const [isTTY, TERM, expected] of /** @type {const} */ ([
    [true, 'xterm', '\r\x1b[Kreading'],
    // Windows sets none.
    [true, undefined, '\r\x1b[Kreading'],
    [true, 'dumb', ''],
    [false, 'xterm', ''],
  ])) {
    let got = '';
    showProgress('reading', { isTTY, write: (part) => void (got += part) }, { TERM });
    assert.equal(got, expected, `${isTTY} ${TERM}`);
  }
  const quiet = progressOn(false, { quiet: true });
  quiet.push(0, start());
  quiet.push(0, evalEvent(1));
  assert.equal(quiet.written(), '');
});

test('rows of a long run are at most so many, keep their mean, and end near the last step', () => {
  const rows = new Rows(100);
  let sum = 0;
  for (let step = 1; step <= 100_000; step++) {
    rows.add([step, step % 7, step % 2 === 0 ? 1 : null, null]);
    sum += step % 7;
    assert.ok(rows.rows.length <= 100);
  }
  assert.ok(rows.rows.length > 45);
  const steps = rows.rows.map(([step]) => step);
  assert.deepEqual(
    steps,
    [...steps].sort((a, b) => a - b),
  );
  assert.ok(steps[steps.length - 1] > 100_000 - 2 * rows.stride);
  const mean = rows.rows.reduce((all, [, value]) => all + /** @type {number} */ (value), 0) / rows.rows.length;
  assert.ok(Math.abs(mean - sum / 100_000) < 0.01);
  assert.ok(rows.rows.every(([, , some, none]) => some === 1 && none === null));
  rows.cut(50_000);
  assert.ok(rows.rows.every(([step]) => step <= 50_000) && rows.rows.length > 20);
});

/** @param {string} url @param {{ method?: string, headers?: Record<string, string> }} [options] */
function ask(url, options) {
  return new Promise((done, failed) => {
    const sent = request(url, { agent: false, ...options }, (response) => {
      let body = '';
      response.setEncoding('utf8').on('data', (chunk) => (body += chunk));
      response.on('end', () => done({ status: response.statusCode, headers: response.headers, body }));
    });
    sent.on('error', failed).end();
  });
}

test('the page is on this machine only, for GET, under its own name, and for no other site', async () => {
  const page = await servePage({ title: '<b>' });
  try {
    assert.match(page.url, /^http:\/\/127\.0\.0\.1:\d+\/$/);
    const port = new URL(page.url).port;
    for (const [path, type, what] of [
      ['', 'text/html', '<h1 id="title">'],
      ['page.js', 'text/javascript', 'EventSource'],
      ['format.mjs', 'text/javascript', 'formatDuration'],
      ['page.css', 'text/css', '--ground'],
      ['uplot.js', 'text/javascript', 'uPlot'],
      ['uplot.css', 'text/css', '.uplot'],
    ]) {
      const { status, headers, body } = await ask(page.url + path);
      assert.equal(status, 200, path);
      assert.equal(headers['content-type'], `${type}; charset=utf-8`);
      assert.ok(body.includes(what), path);
      assert.equal(headers['access-control-allow-origin'], undefined);
      assert.match(headers['content-security-policy'], /default-src 'none'/);
    }
    // A tunnel's port is another one.
    for (const host of [`127.0.0.1:${port}`, 'localhost:8080', 'LOCALHOST']) {
      assert.equal((await ask(page.url, { headers: { host } })).status, 200, host);
    }
    for (const host of [
      'evil.example',
      `evil.example:${port}`,
      '127.0.0.1.evil.example',
      'localhost.evil.example:80',
      '0.0.0.0',
      '127.0.0.1@evil.example',
    ]) {
      for (const path of ['', 'events']) assert.equal((await ask(page.url + path, { headers: { host } })).status, 403, host);
    }
    for (const method of ['POST', 'PUT', 'DELETE', 'OPTIONS', 'HEAD']) assert.equal((await ask(page.url, { method })).status, 405, method);
    for (const path of ['nothing', '../package.json', '%2e%2e/package.json', 'uplot/package.json', 'metrics.mjs', '__proto__']) {
      assert.equal((await ask(page.url + path)).status, 404, path);
    }
    await assert.rejects(servePage({ port: Number(port) }), new RegExp(`cannot be served on port ${port}: .*EADDRINUSE`));
  } finally {
    await page.close();
  }
  await assert.rejects(ask(page.url), /ECONNREFUSED/);
});

/** The messages of a page's stream, as they come. @param {string} url */
async function* messagesOf(url) {
  const { body } = await fetch(`${url}events`);
  let rest = '';
  for await (const chunk of /** @type {AsyncIterable<Uint8Array>} */ (/** @type {unknown} */ (body))) {
    const messages = (rest + Buffer.from(chunk).toString()).split('\n\n');
    rest = messages.pop() ?? '';
    for (const text of messages) {
      const [, name, data] = /** @type {RegExpMatchArray} */ (text.match(/^event: (\w+)\ndata: (.*)$/));
      yield { name, data: JSON.parse(data) };
    }
  }
}

test('the page’s stream begins with all there was and goes on with what is new; a start forgets later steps', async (t) => {
  const history = join(temporaryFolder(t), 'metrics.jsonl');
  for (let step = 1; step <= 6; step++) appendFileSync(history, `${JSON.stringify({ step, loss: 9 - step, learning_rate: 0.1 })}\n`);
  appendFileSync(history, '{"step":4,"eval_loss":3.5}\n{"step":7,"lo');
  const page = await servePage({ title: 'a run', history });
  const stream = messagesOf(page.url);
  const next = async () => /** @type {{ name: string, data: any }} */ ((await stream.next()).value);
  const first = await next();
  assert.equal(first.name, 'run');
  assert.equal(first.data.title, 'a run');
  assert.deepEqual(
    first.data.steps.map((/** @type {number[]} */ row) => row[0]),
    [1, 2, 3, 4, 5, 6],
  );
  assert.deepEqual(first.data.evals, [[4, 3.5]]);

  page.push(start(4));
  page.push(stepEvent(5, { gradNorm: 0.123456789, tokensPerSecond: 100, memoryBytes: 2 ** 30 }));
  const resumed = await next();
  assert.equal(resumed.name, 'run');
  assert.deepEqual(resumed.data.steps.at(-1), [5, 3.75, 0.001, 0.123457, 100, 1073740000]);
  assert.equal(resumed.data.steps.length, 5);

  page.push(stepEvent(6, { loss: NaN }));
  page.push(evalEvent(6));
  page.push({ type: 'checkpoint', step: 6, path: 'step-6', best: true });
  page.push({ type: 'sample', step: 6, text: 'x'.repeat(20_000) });
  const more = await next();
  assert.equal(more.name, 'more');
  assert.deepEqual(more.data.steps, [[6, null, 0.001, null, null, null]]);
  assert.deepEqual(more.data.evals, [[6, 2]]);
  assert.equal(more.data.latest.best.path, 'step-6');
  assert.deepEqual(more.data.samples, [{ step: 6, text: 'x'.repeat(10_000) }]);

  // Who comes late sees the same, once.
  page.push(stepEvent(7));
  const late = messagesOf(page.url);
  const { data } = /** @type {{ data: any }} */ ((await late.next()).value);
  assert.deepEqual(
    data.steps.map((/** @type {number[]} */ row) => row[0]),
    [1, 2, 3, 4, 5, 6, 7],
  );
  assert.equal(data.samples.length, 1);
  assert.deepEqual((await next()).data.steps.length, 1);

  page.push({ type: 'done', step: 7, reason: 'stopped', seconds: 1 });
  await page.close();
  for (const client of [stream, late]) {
    const { value } = await client.next();
    assert.equal(/** @type {any} */ (value).data.latest.done.reason, 'stopped');
    assert.equal((await client.next()).done, true);
  }
});

test('a client that does not read is dropped, and the others stay', { timeout: 120_000 }, async () => {
  const page = await servePage({ messageEvery: 1 });
  page.push(start(0, 1e6));
  const lazy = connect(Number(new URL(page.url).port), '127.0.0.1');
  const dropped = new Promise((done) => lazy.once('close', done));
  lazy.on('error', () => {});
  lazy.write('GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n');
  lazy.pause();
  const stream = messagesOf(page.url);
  // 36 MB in all: more than a system keeps for a connection, and 4 MB.
  for (let messages = 0; messages < 60; messages++) {
    for (let i = 0; i < 20; i++) page.push({ type: 'sample', step: i, text: '☂'.repeat(10_000) });
    await stream.next();
  }
  lazy.resume();
  await dropped;
  assert.ok(lazy.bytesRead < 30e6);
  page.push({ type: 'done', step: 0, reason: 'stopped', seconds: 0 });
  await page.close();
  /** @type {any} */
  let last;
  for await (const { data } of stream) last = data;
  assert.equal(last.latest.done.reason, 'stopped');
});

test('an open page keeps no process alive', { timeout: 60_000 }, async () => {
  const child = `import { servePage } from ${JSON.stringify(new URL('../src/log/page.mjs', import.meta.url).href)};
    const page = await servePage({ messageEvery: 1e6 });
    process.stdin.once('data', () => {
      page.push({ type: 'sample', step: 0, text: 'a message is to be sent' });
      process.stdin.destroy();
    });
    console.log(page.url);`;
  const { stdin, stdout } = spawn(process.execPath, ['--input-type=module', '-e', child], { stdio: ['pipe', 'pipe', 'inherit'] });
  const [url] = await once(stdout, 'data');
  const stream = messagesOf(String(url).trim());
  assert.equal((await stream.next()).value?.name, 'run');
  stdin.end('go');
  // The connection is open, and ends with the process.
  assert.equal((await stream.next()).done, true);
});
