// @ts-nocheck -- loads the addon in ways that TypeScript cannot follow.
/**
 * Ends of every kind, of processes and of workers, in the middle of everything; and the addon loaded
 * more than once. Each test is a process of its own: it ends in time, with the code that it should
 * have, and not by a crash.
 */
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { copyFileSync, existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { binaryFile } from './lib/addon.mjs';
import { child, childJson } from './lib/child.mjs';
import { temporaryFolder } from './lib/folder.mjs';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
/** Exits that hang are ended after this. */
const timeout = 600_000;

/** Everything at once, in flight: a batch, a graph being recorded by a worker, uploads, promises. */
const BUSY = `
  init();
  // The event loop goes on until something else ends the process.
  const forever = () => new Promise(() => setInterval(() => {}, 1000));
  const begun = (source) => {
    const worker = startWorker(source);
    worker.on('error', () => {});
    return new Promise((resolve) => worker.once('message', () => resolve(worker)));
  };
  const x = bufferOf(ramp(64), 0);
  const churn = pipelineOf(programs.churn);
  const busy = (n = 20) => { for (let i = 0; i < n; i++) vk.dispatch(churn, [x, x], 1, 1, 1, Uint32Array.of(64, 60000)); };
  busy();
  const promises = [vk.readAsync(x), vk.waitAsync(vk.uploadAsync(x, ramp(64)))];
  promises.forEach((promise) => promise.catch(() => {}));
  const LOOP = "init(); const own = bufferOf(ramp(64), 0); const p = pipelineOf(programs.churn); post('ready'); for (;;) { vk.dispatch(p, [own, own], 1, 1, 1, Uint32Array.of(64, 1000)); vk.readAsync(own).catch(() => {}); }";
  const RECORDING = "init(); const own = bufferOf(ramp(64), 0); vk.graphBegin(); vk.uploadBuffer(own, ramp(64)); vk.dispatch(pipelineOf(programs.increment), [own], 1, 1, 1, Uint32Array.of(64, 1)); vk.destroyBuffer(own); post('ready'); setInterval(() => {}, 1000);";
  const workers = [await begun(LOOP), await begun(RECORDING)];
  busy();
  vk.batchBegin();
  vk.batchDispatch(churn, [x, x], 1, 1, 1, Uint32Array.of(64, 60000));
`;

for (const [name, end, expected] of [
  ['process.exit in the middle of a batch', 'process.exit(7);', { code: 7, signal: null }],
  ['process.exit while everything is read', 'words(x); process.exit(0);', { code: 0, signal: null }],
  ['process.exit in the continuation of a promise', 'await promises[0]; process.exit(4);', { code: 4, signal: null }],
  ['an uncaught exception', 'throw new Error("nobody catches this");', { code: 1, signal: null }],
  [
    'an uncaught exception in a callback',
    'setImmediate(() => { throw new Error("nobody catches this"); }); await new Promise(() => {});',
    { code: 1, signal: null },
  ],
  ['an unhandled rejection', 'vk.readAsync(-1); await forever();', { code: 1, signal: null }],
  ['SIGINT without a handler', 'process.kill(process.pid, "SIGINT"); await forever();', { code: null, signal: 'SIGINT' }],
  [
    'SIGINT while a call blocks',
    'setInterval(() => {}, 1000); busy(200); const { spawn } = await import("node:child_process"); spawn("sh", ["-c", "sleep 0.05; kill -INT " + process.pid]); vk.waitIdle(); busy(200); vk.waitIdle(); await forever();',
    { code: null, signal: 'SIGINT' },
  ],
  [
    'SIGINT with a handler that exits',
    'process.on("SIGINT", () => process.exit(130)); process.kill(process.pid, "SIGINT"); await forever();',
    { code: 130, signal: null },
  ],
  [
    'SIGTERM with a handler that destroys the device',
    'process.on("SIGTERM", () => { vk.destroy(); process.exit(5); }); process.kill(process.pid, "SIGTERM"); await forever();',
    { code: 5, signal: null },
  ],
  [
    'workers that are terminated, and the end of the script',
    'await Promise.all(workers.map((w) => w.terminate())); vk.batchSubmit();',
    { code: 0, signal: null },
  ],
  [
    'workers that are terminated while the device is destroyed',
    'const ends = workers.map((w) => w.terminate()); vk.destroy(); await Promise.all(ends);',
    { code: 0, signal: null },
  ],
  [
    'a worker that calls process.exit',
    'await begun("init(); const own = bufferOf(ramp(64), 0); vk.readAsync(own); post(1); process.exit(3);"); process.exit(0);',
    { code: 0, signal: null },
  ],
]) {
  test(`everything in flight, then ${name}`, async () => {
    // Handlers of signals are not what Windows has.
    const { code, signal, stderr } = await child(BUSY + end, { timeout });
    assert.deepEqual({ code, signal }, expected, stderr);
    assert.doesNotMatch(stderr, /panicked|free\(\)|double free|corrupt|terminate called/);
  });
}

test('process.exit with work in flight on a device that is not the process\u2019s first', async () => {
  const { code, signal, stderr } = await child(
    `
    init();
    await vk.readAsync(bufferOf(ramp(64), 0));
    vk.destroy();
    ${BUSY}
    process.exit(6);
  `,
    { timeout },
  );
  assert.deepEqual({ code, signal }, { code: 6, signal: null }, stderr);
  assert.doesNotMatch(stderr, /panicked|free\(\)|double free|corrupt|terminate called/);
});

test('workers that come and go leave nothing with the device', async () => {
  const stats = await childJson(
    `${BUSY}
    vk.batchSubmit();
    await Promise.all(workers.map((worker) => worker.terminate()));
    // As many buffers as a round can hold at once, for the pool that it takes them from.
    [64, 64, 64, 64, 16384, 16384].map((n) => bufferOf(ramp(n), 0)).forEach((handle) => vk.destroyBuffer(handle));
    vk.waitIdle();
    const ENDS = [
      "init(); const own = bufferOf(ramp(64), 0); vk.graphBegin(); vk.uploadBuffer(own, ramp(64)); vk.destroyBuffer(own); post(1);",
      "init(); vk.batchBegin(); post(1);",
      "init(); const own = bufferOf(ramp(16384), 0); vk.readAsync(own).catch(() => {}); vk.destroyBuffer(own); post(1); process.exit(0);",
      "init(); const own = bufferOf(ramp(64), 0); vk.readBuffer(own); vk.destroyBuffer(own); post(1); throw new Error('a worker fails');",
    ];
    const rounds = [];
    for (let round = 0; round < 6; round++) {
      await Promise.all(ENDS.map((source) => new Promise((resolve) => {
        startWorker(source).on('error', () => {}).on('exit', resolve);
      })));
      vk.waitIdle();
      // A block of a promise that nobody takes any more goes back on the completion thread.
      await until(() => vk.getAllocatorStats().readbackLeasedBytes === 0);
      const { activeBuffers, allocatedBytes, readbackLeasedBytes } = vk.getAllocatorStats();
      rounds.push([activeBuffers, allocatedBytes, readbackLeasedBytes]);
    }
    process.stdout.write(JSON.stringify(rounds));
  `,
    { timeout },
  );
  // The first rounds fill the pools that later ones take from.
  const [buffers, bytes] = stats.at(-1);
  assert.equal(buffers, stats[2][0], JSON.stringify(stats));
  // Reads of two workers may need a block each more in one round than in another: what three rounds leave is more.
  assert.ok(bytes <= stats[2][1] + 2 * 65536, JSON.stringify(stats));
  assert.equal(stats.at(-1)[2], 0, 'blocks of results are back');
});

test('results that arrive for a worker at its end are no failures', async (t) => {
  const folder = temporaryFolder(t);
  // The worker never returns to its event loop: they all wait there when it is terminated.
  const leased = await childJson(
    `
    init();
    const source = "init(); const own = bufferOf(ramp(64), 0); for (let i = 0; i < 3000; i++) vk.readAsync(own).catch(() => {}); vk.waitIdle(); post(1); for (;;);";
    const worker = startWorker(source);
    await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject));
    const before = vk.getAllocatorStats().readbackLeasedBytes;
    await worker.terminate();
    await until(() => vk.getAllocatorStats().readbackLeasedBytes === 0);
    process.stdout.write(JSON.stringify([before, vk.getAllocatorStats().readbackLeasedBytes]));
  `,
    { timeout, env: { HELIOS_REPORT_DIR: folder } },
  );
  assert.ok(leased[0] > 0, 'results were waiting');
  assert.equal(leased[1], 0, 'their blocks are back');
  assert.deepEqual(readdirSync(folder), []);
});

/** Copies of the binary under two names, as two versions of a package would bring them. */
const copies = (t) => {
  const binary = binaryFile();
  if (binary === undefined) return undefined;
  const folder = temporaryFolder(t);
  for (const name of ['one.node', 'two.node']) copyFileSync(binary, join(folder, name));
  return folder;
};

/** A function in each copy that computes on its own device. */
const TWO = (folder) => `
  import { createRequire } from 'node:module';
  const require = createRequire(${JSON.stringify(join(folder, 'x.js'))});
  const both = [require('./one.node'), require('./two.node'), vk];
  const n = 1000;
  const run = (addon, rounds) => {
    addon.initDevice();
    const x = addon.createBuffer(4 * n, 0);
    addon.uploadBuffer(x, ramp(n));
    const p = addon.createPipeline(programs.increment.spirv, 1, 8);
    for (let i = 0; i < rounds; i++) addon.dispatch(p, [x], 16, 1, 1, Uint32Array.of(n, 1));
    return x;
  };
`;

test('the addon loaded three times, from three paths: three devices that do not meet', async (t) => {
  const folder = copies(t);
  if (folder === undefined) return t.skip('no binary beside index.js');
  for (const [end, code] of [
    ['', 0],
    ['both[1].destroy(); run(both[0], 5);', 0],
    ['process.exit(6);', 6],
    ['both.forEach((addon) => addon.destroy()); run(both[2], 3);', 0],
  ]) {
    const result = await child(
      `${TWO(folder)}
      const buffers = both.map((addon, i) => run(addon, 10 + i));
      const promises = both.map((addon, i) => addon.readAsync(buffers[i]));
      const results = await Promise.all(promises);
      results.forEach((floats, i) => assert.deepEqual(bits(floats), ramp(n, 10 + i)));
      assert.throws(() => both[0].readBuffer(2 ** 30), (error) => error.code === 'ERR_HELIOS_INVALID_HANDLE');
      for (const addon of both) { run(addon, 50); addon.readAsync(run(addon, 1)).catch(() => {}); }
      ${end}
    `,
      { timeout },
    );
    assert.deepEqual([result.code, result.signal], [code, null], `${end}: ${result.stderr}`);
  }
});

test('the addon loaded twice from one path is one addon', async (t) => {
  if (process.env.HELIOS_TEST_ADDON || !existsSync(join(ROOT, 'index.js'))) return t.skip('another addon is under test');
  await childJson(
    `
    import { createRequire } from 'node:module';
    const require = createRequire(${JSON.stringify(join(ROOT, 'package.json'))});
    init();
    const x = bufferOf(ramp(16));
    for (const path of Object.keys(require.cache)) delete require.cache[path];
    const again = require('./index.js');
    assert.notEqual(again, vk);
    const info = again.initDevice();
    again.dispatch(again.createPipeline(programs.increment.spirv, 1, 8), [x], 1, 1, 1, Uint32Array.of(16, 1));
    assert.deepEqual(words(x), ramp(16, 1));
    again.destroy();
    assert.throws(() => vk.readBuffer(x), (error) => error.code === 'ERR_HELIOS_NO_DEVICE');
  `,
    { timeout },
  );
});
