// @ts-nocheck -- wrong arguments are passed on purpose; types/trainer-contract.ts checks the types.
/** memoryStats and onMemoryPressure. */
import { before, test } from 'node:test';
import assert from 'node:assert/strict';
import { init, ramp, validating, vk, words } from './lib/addon.mjs';
import { child, childJson } from './lib/child.mjs';
import { INVALID_ARGUMENT, throws } from './lib/expect.mjs';

before(init);

test('live buffers are counted by size class and by name', () => {
  const before_ = vk.memoryStats();
  const handles = [4096, 4096, 5000, 1 << 20].map((bytes) => vk.createBuffer(bytes, 0));
  vk.setName(handles[0], 'activations');
  vk.setName(handles[1], 'activations');
  vk.setName(handles[3], 'weights');
  const stats = vk.memoryStats();
  assert.equal(stats.live.buffers, before_.live.buffers + 4);
  assert.equal(stats.live.bytes, before_.live.bytes + 2 * 4096 + 5000 + (1 << 20));
  const named = (name) => stats.byName.find((row) => row.name === name);
  assert.deepEqual(named('activations'), { name: 'activations', buffers: 2, bytes: 8192 });
  assert.deepEqual(named('weights'), { name: 'weights', buffers: 1, bytes: 1 << 20 });
  assert.ok(stats.byName.indexOf(named('weights')) < stats.byName.indexOf(named('activations')), 'most bytes first');
  assert.equal(stats.unnamed.bytes, before_.unnamed.bytes + 5000);
  const total = (rows, key) => rows.reduce((sum, row) => sum + row[key], 0);
  assert.equal(total(stats.bySizeClass, 'buffers'), stats.live.buffers);
  assert.equal(total(stats.bySizeClass, 'bytes'), stats.live.bytes);
  assert.equal(total(stats.byName, 'bytes') + stats.unnamed.bytes, stats.live.bytes);
  for (const { capacity, buffers, bytes } of stats.bySizeClass) assert.ok(bytes <= capacity * buffers);
  const capacities = stats.bySizeClass.map(({ capacity }) => capacity);
  assert.deepEqual(
    capacities,
    [...capacities].sort((a, b) => a - b),
  );
  assert.ok(stats.peak.bufferBytes >= stats.live.bytes && stats.peak.buffers >= stats.live.buffers);
  assert.ok(stats.peak.blockBytes >= stats.blocks.bytes && stats.blocks.bytes >= stats.blocks.allocatedBytes);
  handles.forEach(vk.destroyBuffer);
  const after = vk.memoryStats();
  assert.deepEqual(after.live, before_.live);
  const inUse = ({ blocks, retired }) => blocks.allocatedBytes - retired.bytes;
  assert.equal(inUse(after), inUse(stats) - (2 * 4096 + 5120 + (1 << 20)));
  // With the layer each buffer has memory of its own, which goes with it.
  if (!validating) assert.equal(after.blocks.bytes, stats.blocks.bytes, 'kept for reuse');
  assert.deepEqual(after.peak.bufferBytes, stats.peak.bufferBytes, 'a high-water mark stays');
});

test('blocks, staging and heaps agree with the allocator’s own account', () => {
  const x = vk.createBuffer(4 << 20, 0);
  vk.uploadAsync(x, ramp(1 << 20));
  assert.deepEqual(words(x).subarray(0, 4), ramp(4));
  const stats = vk.memoryStats();
  const allocator = vk.getAllocatorStats();
  assert.equal(stats.blocks.bytes, allocator.blockBytes);
  assert.equal(stats.blocks.allocatedBytes, allocator.allocatedBytes);
  assert.equal(stats.staging.bytes, allocator.hostSlabCapacityBytes);
  assert.equal(stats.staging.uploadRingBytes, 4 << 20);
  assert.ok(stats.staging.readbackLeasedBytes + stats.staging.readbackIdleBytes + stats.staging.uploadRingBytes === stats.staging.bytes);
  assert.deepEqual(
    stats.heaps.map(({ bytes }) => bytes),
    vk
      .listDevices()
      .find(({ chosen }) => chosen)
      .memoryHeaps.map(({ bytes }) => bytes),
  );
  for (const { usageBytes, budgetBytes } of stats.heaps) {
    if (usageBytes !== undefined) assert.ok(usageBytes >= 0 && budgetBytes > 0);
  }
  vk.destroyBuffer(x);
});

test('the upload ring begins small, grows under larger uploads, and gives the smaller ones back', () => {
  const x = vk.createBuffer(48 << 20, 0);
  const numbers = ramp(12 << 20);
  // The sizes of the ring, and the bytes of blocks that neither buffers nor staging account for.
  const look = () => {
    const { staging, blocks, live, recycled } = vk.memoryStats();
    return { ring: staging.uploadRingBytes / 2 ** 20, other: blocks.bytes - staging.bytes - live.bytes - recycled.bytes };
  };
  const { other } = look();
  for (const [mebibytes, least] of [
    [1, 4],
    [8, 8],
    [48, 8],
  ]) {
    vk.uploadAsync(x, numbers.subarray(0, mebibytes << 18));
    const { ring } = look();
    assert.ok(ring >= least && ring <= 64 && Number.isInteger(Math.log2(ring)), `${ring} MiB after ${mebibytes}`);
  }
  // The data went through rings of several sizes.
  assert.equal(Buffer.compare(Buffer.from(words(x).buffer), Buffer.from(numbers.buffer)), 0);
  if (!validating) assert.ok(look().other <= other, 'no smaller ring is left');
  vk.destroyBuffer(x);
});

test('an upload goes through the upload ring in smaller pieces where there is no memory for a larger ring', async () => {
  const { ring, read } = await childJson(
    `
    init();
    const x = vk.createBuffer(16 << 20, 0);
    vk.uploadAsync(x, ramp(1 << 18));
    const all = [];
    try { while (true) all.push(vk.createBuffer(1 << 20, 0)); } catch {}
    vk.uploadAsync(x, ramp(2 << 20));
    const ring = vk.memoryStats().staging.uploadRingBytes;
    all.forEach(vk.destroyBuffer);
    const read = words(x).subarray(0, 2 << 20).every((word, i) => word === i);
    process.stdout.write(JSON.stringify({ ring, read }));
  `,
    { env: { HELIOS_TEST_MEMORY_LIMIT: String(132 << 20) } },
  );
  assert.deepEqual({ ring, read }, { ring: 4 << 20, read: true });
});

// A driver's account may move by itself; the addon's own does not.
const OWN = { env: { HELIOS_TEST_NO_BUDGET: '1' } };

test('a shortage is told on the event loop, once, and again after it was over', async () => {
  const { budget } = await childJson(
    `
    init();
    const told = [];
    const heap = vk.memoryStats().heaps.filter((h) => h.deviceLocal).sort((a, b) => b.bytes - a.bytes)[0];
    const budget = heap.budgetBytes ?? heap.bytes;
    const used = heap.usageBytes ?? vk.memoryStats().blocks.bytes;
    const subscription = vk.onMemoryPressure((used + (300 << 20)) / budget, (pressure) => told.push(pressure));
    // What another subscription is told comes behind all that was to be told before.
    const turn = async () => {
      let seen = false;
      const marker = vk.onMemoryPressure(1e-6, () => { seen = true; });
      await until(() => seen);
      marker.close();
    };
    const shortage = () => Array.from({ length: 3 }, () => vk.createBuffer(160 << 20, 0));
    let held = shortage();
    assert.equal(told.length, 0, 'not inside the call');
    await until(() => told.length > 0);
    assert.equal(told.length, 1);
    assert.ok(told[0].fraction >= (used + (300 << 20)) / budget && told[0].budgetBytes === budget, JSON.stringify(told));
    assert.equal(told[0].fraction, told[0].usageBytes / told[0].budgetBytes);
    held.push(vk.createBuffer(160 << 20, 0));
    await turn();
    assert.equal(told.length, 1, 'once');
    subscription.close();
    subscription.close();
    held.push(vk.createBuffer(160 << 20, 0));
    await turn();
    assert.equal(told.length, 1);
    // One that is short already is told at once; it ends with its scope.
    const again = vk.onMemoryPressure(1e-6, (pressure) => told.push(pressure));
    await until(() => told.length > 1);
    assert.equal(told.length, 2);
    again[Symbol.dispose]();
    process.stdout.write(JSON.stringify({ budget }));
  `,
    OWN,
  );
  assert.ok(budget > 0);
});

test('a subscription does not keep the process alive, and ends with its worker', async () => {
  const { code, stderr } = await child('init(); vk.onMemoryPressure(0.999, () => {});');
  assert.equal(code, 0, stderr);
  const { codes, bytes } = await childJson(`
    import { Worker } from 'node:worker_threads';
    init();
    const source = "import vk from " + JSON.stringify(${JSON.stringify(new URL('../index.js', import.meta.url).href)}) + "; vk.initDevice(); vk.onMemoryPressure(1e-9, () => {});";
    const codes = [];
    for (let i = 0; i < 3; i++) {
      const worker = new Worker(source, { eval: true });
      codes.push(await new Promise((done, failed) => worker.on('exit', done).on('error', failed)));
    }
    const held = Array.from({ length: 3 }, () => vk.createBuffer(160 << 20, 0));
    process.stdout.write(JSON.stringify({ codes, bytes: vk.memoryStats().blocks.bytes }));
  `);
  assert.deepEqual(codes, [0, 0, 0]);
  assert.ok(bytes >= 480 << 20, `${bytes} bytes`);
});

test('an exception of the callback is an uncaught one', async () => {
  const { code, stderr } = await child(`
    init();
    vk.createBuffer(1 << 20, 0);
    vk.onMemoryPressure(1e-9, () => { throw new Error('from the callback'); });
    await new Promise(() => setInterval(() => {}, 1000));
  `);
  assert.notEqual(code, 0);
  assert.match(stderr, /from the callback/);
});

test('wrong arguments are named', async () => {
  for (const fraction of [0, -1, 1.01, NaN])
    throws(() => vk.onMemoryPressure(fraction, () => {}), INVALID_ARGUMENT, ['fraction'], [RangeError]);
  throws(() => vk.onMemoryPressure('half', () => {}), INVALID_ARGUMENT, ['fraction', 'half'], [TypeError]);
  throws(() => vk.onMemoryPressure(0.5), INVALID_ARGUMENT, ['callback'], [TypeError]);
});
