// @ts-nocheck -- children that never end by themselves.
/**
 * A shader that never ends: every wait, destroy() and the end of the process come to an end all the same, and so does a
 * process that is interrupted twice. Two billion workgroups of 60,000 rounds are endless enough (lavapipe counts them in 31 bits).
 */
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { child, childJson } from './lib/child.mjs';
import { init, vk } from './lib/addon.mjs';
import { build, library } from './faults/cc.mjs';
import { temporaryFolder } from './lib/folder.mjs';

const timeout = 600_000;
/** A GPU that works on it takes the driver, or the screen, with it. */
const onCpu = { skip: init().deviceTypeName !== 'CPU' && !/llvmpipe|SwiftShader/i.test(init().deviceName) && 'not on a GPU' };
vk.destroy();

const ENDLESS = `
  init();
  const [x, y] = [bufferOf(ramp(64), 0), bufferOf(ramp(64), 0)];
  const endless = () => vk.dispatch(pipelineOf(programs.churn), [x, x], 1, 65535, 32000, Uint32Array.of(64, 60000));
  const lost = (error) => error.code === 'ERR_HELIOS_DEVICE_LOST' && /nothing was completed in 1 s.*HELIOS_WAIT_TIMEOUT/.test(error.message);
`;

for (const thread of ['0', '1']) {
  test(
    `waits that make no progress are a lost device, with a report; recording ${thread === '1' ? 'on a thread' : 'in the call'}`,
    onCpu,
    async (t) => {
      const reports = temporaryFolder(t);
      const { path } = await childJson(
        `${ENDLESS}
      // Before the second without progress that ends a wait can begin.
      const filled = vk.uploadAsync(y, ramp(64));
      await until(() => vk.getCompleted() >= filled);
      const value = endless();
      let error;
      const promise = vk.readAsync(y);
      const awaited = vk.waitAsync(value);
      try { vk.waitTimeline(value); } catch (caught) { error = caught; }
      assert.ok(lost(error), error?.stack);
      await assert.rejects(promise, lost);
      await assert.rejects(awaited, lost);
      for (const call of [() => vk.waitIdle(), () => vk.readBuffer(y), () => vk.readInto(y, new Uint32Array(64)), () => vk.getCompleted(), () => vk.createBuffer(64), () => endless()]) assert.throws(call, lost);
      vk.destroy();
      // Another device works, beside the one that still does.
      init();
      forgetPipelines();
      const z = bufferOf(ramp(64), 0);
      vk.dispatch(pipelineOf(programs.increment), [z], 1, 1, 1, Uint32Array.of(64, 1));
      // On two cores it may not come to its turn in that second.
      try { assert.deepEqual(words(z), ramp(64, 1)); } catch (error) { assert.ok(lost(error), error.stack); }
      process.stdout.write(JSON.stringify({ path: error.report }));
    `,
        { timeout, env: { HELIOS_WAIT_TIMEOUT: '1', HELIOS_REPORT_DIR: reports, HELIOS_RECORD_THREAD: thread } },
      );
      assert.ok(existsSync(path), `${path}`);
      const report = JSON.parse(readFileSync(path, 'utf8'));
      assert.ok(report.batches.some(({ state }) => state === 'not finished'));
      assert.ok(readdirSync(reports).length <= 2);
    },
  );
}

for (const [name, end, code] of [
  ['destroy()', 'endless(); vk.destroy(); process.exitCode = 5;', 5],
  ['the end of the script', 'endless(); process.exitCode = 4;', 4],
  ['process.exit', 'endless(); process.exit(3);', 3],
  [
    'a full ring of submissions',
    'try { for (let i = 0; i < 200; i++) endless(); } catch (error) { assert.ok(lost(error), error.stack); } process.exitCode = 6;',
    6,
  ],
  ['a promise', 'await assert.rejects(vk.waitAsync(endless()), lost); process.exitCode = 7;', 7],
]) {
  test(`${name} with an endless shader at work comes to an end`, onCpu, async () => {
    const ended = await child(ENDLESS + end, { timeout, env: { HELIOS_WAIT_TIMEOUT: '1', HELIOS_REPORT_DIR: '0' } });
    assert.deepEqual([ended.code, ended.signal], [code, null], ended.stderr);
  });
}

const WAITING = (end) => `
  const worker = startWorker(\`
    init();
    const x = bufferOf(ramp(64), 0);
    const value = vk.dispatch(pipelineOf(programs.churn), [x, x], 1, 65535, 32000, Uint32Array.of(64, 60000));
    post(value);
    vk.readBuffer(x);
  \`);
  worker.once('message', async () => { ${end} });
`;
for (const [name, source, code] of [
  ['the end of the script', `${ENDLESS} endless(); process.exitCode = 4;`, 4],
  ['terminate() of a worker that reads, and the end of the script', WAITING('await worker.terminate(); process.exitCode = 5;'), 5],
  ['process.exit while a worker reads', WAITING('process.exit(6);'), 6],
]) {
  test(`${name} comes to an end without HELIOS_WAIT_TIMEOUT`, onCpu, async () => {
    const env = { HELIOS_WAIT_TIMEOUT: undefined, HELIOS_REPORT_DIR: '0' };
    const ended = await child(source, { timeout: 120_000, env });
    assert.deepEqual([ended.code, ended.signal], [code, null], ended.stderr);
  });
}

/** Tests of SIGINT raise it in the very wait: why that cannot be, or false. */
const signals = { skip: onCpu.skip || (build('interrupt', 'node') ?? false) };
/** `raiseInWait(times)`, `raised()`: see __test__/faults/interrupt.c. */
const INTERRUPT = `
  import { createRequire } from 'node:module';
  const { raiseInWait, raised } = createRequire(${JSON.stringify(import.meta.url)})(${JSON.stringify(library('interrupt', 'node'))});
`;
for (const [name, wait, more] of [
  ['waitIdle', 'vk.waitIdle();', {}],
  ['readBuffer', 'vk.readBuffer(x);', {}],
  ['destroy()', 'vk.destroy();', {}],
  // What the recording thread has not taken up when the process ends is dropped, and then nothing waits.
  ['process.exit', 'process.exit(3);', { HELIOS_RECORD_THREAD: '0' }],
]) {
  test(`SIGINT twice ends a process in ${name} that listens to the signal`, signals, async () => {
    const source = `${INTERRUPT} ${ENDLESS}
      process.on('SIGINT', () => {});
      endless();
      raiseInWait(2);
      ${wait}
    `;
    const ended = await child(source, { timeout, env: { HELIOS_WAIT_TIMEOUT: '0', ...more } });
    assert.deepEqual([ended.code, ended.signal], [null, 'SIGINT'], ended.stderr);
  });
}

test('one SIGINT during a long wait is the listener\u2019s, and so are later ones', signals, async () => {
  const { heard, waits } = await childJson(
    `
    ${INTERRUPT}
    init();
    const x = bufferOf(ramp(64), 0);
    // Waits, each longer than the one before, until one is long enough for the addon to watch for the signal.
    const long = (until) => {
      for (let n = 200; raised() < until; n = Math.min(2 * n, 65535)) {
        vk.dispatch(pipelineOf(programs.churn), [x, x], n, 1, 1, Uint32Array.of(64 * n, 60000));
        vk.waitIdle();
      }
    };
    let heard = 0;
    process.on('SIGINT', () => { heard++; });
    let waits = 0;
    for (const _ of [1, 2, 3]) {
      raiseInWait(1);
      long(waits + 1);
      waits++;
      await until(() => heard >= waits);
    }
    process.stdout.write(JSON.stringify({ heard, waits }));
  `,
    { timeout },
  );
  assert.deepEqual({ heard, waits }, { heard: 3, waits: 3 });
});
