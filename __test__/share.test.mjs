// @ts-nocheck -- wrong arguments are passed on purpose; types/trainer-contract.ts checks the types.
import { before, test } from 'node:test';
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { closeSync, existsSync, fstatSync, openSync, readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { bufferOf, groupsOf, init, pipelineOf, ramp, scaled, vk, words } from './lib/addon.mjs';
import { child } from './lib/child.mjs';
import { INVALID_ARGUMENT, INVALID_HANDLE, sameWords, throws } from './lib/expect.mjs';
import { increment, scaleAdd } from './lib/programs.mjs';

const IMPORT_INCREMENT = fileURLToPath(new URL('lib/import-increment.mjs', import.meta.url));
let info;
before(() => {
  info = init();
});

/** Skips a test on devices that cannot do what it is about. */
const needs = (t, ...features) => {
  const missing = features.filter((feature) => !info[feature]);
  if (missing.length > 0) t.skip(`${info.deviceName}: no ${missing.join(', ')}`);
  return missing.length === 0;
};
const exportable = (data) => {
  const handle = vk.createBuffer(data.byteLength, 0, { exportable: true });
  vk.uploadBuffer(handle, data);
  return handle;
};
const openFiles = () => readdirSync('/proc/self/fd').length;

test('an exportable buffer is a buffer like any other', (t) => {
  if (!needs(t, 'bufferExportSupported')) return;
  for (const [hostVisible, count] of [
    [0, 1],
    [1, 1000],
    [0, 100_003],
    [1, 1 << 20],
  ]) {
    const x = vk.createBuffer(4 * count, hostVisible, { exportable: true, temporary: true });
    vk.uploadBuffer(x, ramp(count, 3));
    vk.dispatch(pipelineOf(increment), [x], groupsOf(count), 1, 1, Uint32Array.of(count, 7));
    sameWords(words(x), ramp(count, 10), `${count} words`);
    vk.fillBuffer(x, 4 * count, 9);
    assert.equal(words(x)[count - 1], 9);
    vk.destroyBuffer(x);
    throws(() => vk.exportBuffer(x), INVALID_HANDLE, [x]);
  }
});

test('options of createBuffer', (t) => {
  for (const options of [{}, { temporary: 1 }, { temporary: false, exportable: false }, { exportable: 0 }]) {
    vk.destroyBuffer(vk.createBuffer(64, 0, options));
  }
  throws(() => vk.createBuffer(64, 0, { exportable: 'yes' }), INVALID_ARGUMENT, ['options.exportable', 'yes']);
  throws(() => vk.createBuffer(64, 0, { temporary: {} }), INVALID_ARGUMENT, ['options.temporary']);
  throws(() => vk.createBuffer(64, 0, 'temporary'), INVALID_ARGUMENT, ['temporary']);
  throws(
    () =>
      vk.createBuffer(64, 0, {
        get exportable() {
          throw new Error('no');
        },
      }),
    INVALID_ARGUMENT,
    ['options.exportable'],
  );
  if (!needs(t, 'bufferExportSupported')) return;
  throws(() => vk.createBuffer(0, 0, { exportable: true }), INVALID_ARGUMENT, ['byteLength', 0]);
  throws(() => vk.createBuffer(2 ** 52, 0, { exportable: true }), INVALID_ARGUMENT, ['byteLength', 2 ** 52]);
});

test('what a device cannot share is an error that says so', async () => {
  const { code, stderr } = await child(
    `
    import { UNSUPPORTED, fails } from '${new URL('lib/expect.mjs', import.meta.url)}';
    const { bufferExportSupported, bufferImportSupported, deviceName } = init();
    assert.deepEqual([bufferExportSupported, bufferImportSupported], [false, false]);
    const plain = bufferOf(ramp(100));
    fails(() => vk.createBuffer(64, 0, { exportable: true }), UNSUPPORTED, ['createBuffer', 'export', deviceName]);
    fails(() => vk.exportBuffer(plain), UNSUPPORTED, ['exportBuffer', 'export', deviceName]);
    fails(() => vk.importBuffer(0, 64), UNSUPPORTED, ['importBuffer', 'import', deviceName]);
    assert.deepEqual(words(plain), ramp(100));
    vk.destroy();
  `,
    { env: { HELIOS_TEST_NO_SHARING: '1' } },
  );
  assert.equal(code, 0, stderr);
});

test('exportBuffer takes exportable buffers alone', (t) => {
  throws(() => vk.exportBuffer(-1), INVALID_HANDLE, ['exportBuffer', 'handle', -1]);
  throws(() => vk.exportBuffer('0'), INVALID_HANDLE, ['exportBuffer', 'handle']);
  throws(() => vk.exportBuffer(12345), INVALID_HANDLE, [12345]);
  if (!needs(t, 'bufferExportSupported')) return;
  const plain = vk.createBuffer(64);
  throws(() => vk.exportBuffer(plain), INVALID_ARGUMENT, ['exportBuffer', 'exportable', plain]);
  vk.destroyBuffer(plain);
});

test('importBuffer refuses what is no memory, and leaves the descriptor alone', (t) => {
  for (const fd of [-1, 1.5, 2 ** 31, NaN, '3', undefined, null, {}])
    throws(() => vk.importBuffer(fd, 64), INVALID_ARGUMENT, ['importBuffer', 'fd']);
  if (!needs(t, 'bufferImportSupported')) return;
  const files = openFiles();
  throws(() => vk.importBuffer(1 << 20, 4096), INVALID_ARGUMENT, ['fd', 1 << 20, 'no open file descriptor']);
  for (const path of ['/dev/null', '/proc/self/exe', '/proc/self/maps', '/tmp']) {
    const fd = openSync(path, 'r');
    for (const size of [0, 2 ** 52]) throws(() => vk.importBuffer(fd, size), INVALID_ARGUMENT, ['size']);
    throws(() => vk.importBuffer(fd, 1 << 16), INVALID_ARGUMENT, ['fd', fd]);
    fstatSync(fd);
    closeSync(fd);
  }
  assert.equal(openFiles(), files);
  // A socket that has nothing to read: a driver that read from it would wait forever.
  const reader = spawn(process.execPath, ['-e', 'process.stdin.resume()'], { stdio: ['pipe', 'ignore', 'ignore'] });
  const { fd } = reader.stdin._handle;
  throws(() => vk.importBuffer(fd, 4096), INVALID_ARGUMENT, ['fd', fd]);
  fstatSync(fd);
  reader.stdin.end();
});

test('an imported buffer is the exported memory', (t) => {
  if (!needs(t, 'bufferExportSupported', 'bufferImportSupported')) return;
  const count = 10_000;
  const x = exportable(ramp(count));
  vk.waitIdle();
  const { fd, size, byteLength, dedicated } = vk.exportBuffer(x);
  assert.ok(Number.isInteger(fd) && fd > 2);
  assert.equal(byteLength, 4 * count);
  assert.ok(size >= byteLength, `${size}`);
  assert.equal(typeof dedicated, 'boolean');
  const y = vk.importBuffer(fd, size);
  fstatSync(fd); // still ours
  closeSync(fd);
  sameWords(words(y).subarray(0, count), ramp(count), 'read through the import');
  vk.dispatch(pipelineOf(increment), [y], groupsOf(count), 1, 1, Uint32Array.of(count, 5));
  vk.waitIdle();
  sameWords(words(x), ramp(count, 5), 'written through the import');
  throws(() => vk.exportBuffer(y), INVALID_ARGUMENT, ['exportable']);

  // Each side keeps the memory alive.
  vk.destroyBuffer(x);
  vk.waitIdle();
  const z = bufferOf(ramp(count));
  vk.dispatch(pipelineOf(scaleAdd), [y, z, z], groupsOf(count), 1, 1, Uint32Array.of(count, 2));
  sameWords(
    words(z),
    ramp(count).map((i) => 2 * (i + 5) + i),
    'after the exporter let go',
  );
  vk.destroyBuffer(y);
  vk.destroyBuffer(z);
});

test('a wrong size is refused where the driver tells', (t) => {
  if (!needs(t, 'bufferExportSupported', 'bufferImportSupported')) return;
  const x = exportable(ramp(1 << 16));
  const { fd, size } = vk.exportBuffer(x);
  if (fstatSync(fd).isFile()) throws(() => vk.importBuffer(fd, 4 * size), INVALID_ARGUMENT, ['importBuffer', fd]);
  else t.skip('this driver tells no size');
  closeSync(fd);
  vk.destroyBuffer(x);
});

test('each side sees what the other wrote, round after round', (t) => {
  if (!needs(t, 'bufferExportSupported', 'bufferImportSupported')) return;
  const count = 5000;
  const x = exportable(new Uint32Array(count));
  vk.waitIdle();
  const { fd, size } = vk.exportBuffer(x);
  const y = vk.importBuffer(fd, size);
  closeSync(fd);
  vk.graphBegin();
  vk.dispatch(pipelineOf(increment), [y], groupsOf(count), 1, 1, Uint32Array.of(count, 1));
  const graph = vk.graphEnd();
  const rounds = scaled(50);
  for (let round = 0; round < rounds; round++) {
    vk.batchBegin();
    vk.batchDispatch(pipelineOf(increment), [x], groupsOf(count), 1, 1, Uint32Array.of(count, 10));
    vk.waitTimeline(vk.batchSubmit());
    vk.waitTimeline(vk.graphLaunch(graph));
  }
  sameWords(words(x), new Uint32Array(count).fill(11 * rounds), 'both sides');
  vk.graphDestroy(graph);
  vk.destroyBuffer(x);
  vk.destroyBuffer(y);
});

test('another process reads and writes it', (t) => {
  if (!needs(t, 'bufferExportSupported', 'bufferImportSupported')) return;
  const count = 100_000;
  const x = exportable(ramp(count).map((i) => 3 * i + 5));
  vk.waitIdle();
  const { fd, size } = vk.exportBuffer(x);
  const { status, stderr } = spawnSync(process.execPath, [IMPORT_INCREMENT, '3', `${size}`, `${count}`], {
    stdio: ['ignore', 'ignore', 'pipe', fd],
    encoding: 'utf8',
    env: { ...process.env, NODE_TEST_CONTEXT: undefined },
  });
  closeSync(fd);
  assert.equal(status, 0, stderr);
  sameWords(
    words(x),
    ramp(count).map((i) => 3 * i + 6),
    'after the other process',
  );
  vk.destroyBuffer(x);
});

test('an exported descriptor is not for every child', (t) => {
  if (!needs(t, 'bufferExportSupported')) return;
  const x = exportable(ramp(16));
  const { fd } = vk.exportBuffer(x);
  const { status } = spawnSync('/bin/sh', ['-c', `: <&${fd}`], { stdio: 'ignore' });
  assert.notEqual(status, 0);
  closeSync(fd);
  vk.destroyBuffer(x);
});

test('exports and imports leave nothing behind', (t) => {
  if (!needs(t, 'bufferExportSupported', 'bufferImportSupported')) return;
  const round = () => {
    const x = exportable(ramp(4096));
    const { fd, size } = vk.exportBuffer(x);
    const y = vk.importBuffer(fd, size);
    closeSync(fd);
    vk.destroyBuffer(y);
    vk.destroyBuffer(x);
    vk.waitIdle();
  };
  round();
  const files = openFiles();
  const { trackedVkMemoryAllocations } = vk.getAllocatorStats();
  for (let i = 0; i < 100; i++) round();
  assert.equal(openFiles(), files);
  assert.equal(vk.getAllocatorStats().trackedVkMemoryAllocations, trackedVkMemoryAllocations);
  const x = exportable(ramp(4096));
  assert.equal(vk.getAllocatorStats().trackedVkMemoryAllocations, trackedVkMemoryAllocations + 1);
  assert.equal(vk.getAllocatorStats().individualBuffers, 1);
  vk.destroyBuffer(x);
});

test('destroy() lets go of shared memory; what was exported lives on', async (t) => {
  if (!needs(t, 'bufferExportSupported', 'bufferImportSupported')) return;
  const { code, stderr } = await child(`
    init();
    const x = vk.createBuffer(4000, 0, { exportable: true });
    vk.uploadBuffer(x, ramp(1000));
    vk.waitIdle();
    const { fd, size } = vk.exportBuffer(x);
    vk.destroy();
    init();
    const y = vk.importBuffer(fd, size);
    assert.deepEqual(words(y).subarray(0, 1000), ramp(1000));
    vk.destroy();
  `);
  assert.equal(code, 0, stderr);
});

test('exportBuffer without a file descriptor left is an error', async (t) => {
  if (!needs(t, 'bufferExportSupported')) return;
  if (!existsSync('/bin/sh')) return t.skip('no shell, which sets the limit');
  const source = `
    import { closeSync, openSync } from 'node:fs';
    init();
    const x = vk.createBuffer(4096, 0, { exportable: true });
    const open = [];
    try { for (;;) open.push(openSync('/dev/null')); } catch (error) { assert.equal(error.code, 'EMFILE'); }
    assert.throws(() => vk.exportBuffer(x), (error) => error.code === 'ERR_HELIOS_VULKAN' && /no file descriptor|vkGetMemoryFdKHR/.test(error.message));
    open.forEach((fd) => closeSync(fd));
    const { fd } = vk.exportBuffer(x);
    assert.ok(fd > 2);
    closeSync(fd);
  `;
  const { code, stderr } = await child(source, { nodeArgs: [], shell: 'ulimit -n 200' });
  assert.equal(code, 0, stderr);
});
