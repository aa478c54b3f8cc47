// @ts-nocheck -- wrong arguments are passed on purpose; types/trainer-contract.ts checks the types.
import { before, test } from 'node:test';
import assert from 'node:assert/strict';
import { bufferOf, groupsOf, init, pipelineOf, ramp, vk, words } from './lib/addon.mjs';
import { childJson } from './lib/child.mjs';
import { increment } from './lib/programs.mjs';

before(init);

const FIELDS = [
  'activeBuffers',
  'activeBufferBytes',
  'slabBuffers',
  'slabBufferBytes',
  'individualBuffers',
  'individualBufferBytes',
  'tempSlabCount',
  'tempSlabCapacityBytes',
  'tempSlabUsedBytes',
  'tempSlabLiveBytes',
  'tempSlabLiveRefs',
  'tempSlabResets',
  'tempSlabsDisabled',
  'hostSlabCount',
  'hostSlabCapacityBytes',
  'trackedVkMemoryAllocations',
  'temporaryBufferRequests',
  'slabFallbacks',
  'slabFreeRangeReuses',
  'slabFreeRangeOverflows',
];

test('getAllocatorStats has every field, each a non-negative number', () => {
  const stats = vk.getAllocatorStats();
  for (const field of FIELDS) {
    assert.equal(typeof stats[field], 'number', field);
    assert.ok(Number.isFinite(stats[field]) && stats[field] >= 0, `${field} = ${stats[field]}`);
  }
});

test('active buffers and bytes follow createBuffer and destroyBuffer', () => {
  const before = vk.getAllocatorStats();
  const handles = [1000, 5000, 1 << 20].map((size, i) => vk.createBuffer(size, i % 2));
  const during = vk.getAllocatorStats();
  assert.equal(during.activeBuffers, before.activeBuffers + 3);
  assert.ok(during.activeBufferBytes >= before.activeBufferBytes + 6000 + (1 << 20));
  assert.equal(during.slabBuffers + during.individualBuffers, during.activeBuffers, 'every buffer is in a slab or has its own memory');
  assert.equal(during.slabBufferBytes + during.individualBufferBytes, during.activeBufferBytes);
  assert.ok(during.trackedVkMemoryAllocations > 0);
  handles.forEach(vk.destroyBuffer);
  const after = vk.getAllocatorStats();
  assert.equal(after.activeBuffers, before.activeBuffers);
  assert.equal(after.activeBufferBytes, before.activeBufferBytes);
});

test('temporary requests are counted, and such buffers are buffers like any other', () => {
  const before = vk.getAllocatorStats().temporaryBufferRequests;
  const x = vk.createBuffer(400, 0, true);
  vk.uploadBuffer(x, ramp(100));
  assert.deepEqual(words(x), ramp(100));
  vk.destroyBuffer(x);
  assert.equal(vk.getAllocatorStats().temporaryBufferRequests, before + 1);
});

test('host timing is off unless asked for', async () => {
  const timing = await childJson(
    `
    init();
    const x = bufferOf(ramp(64));
    vk.dispatch(pipelineOf(programs.increment), [x], 1, 1, 1, Uint32Array.of(64, 1));
    words(x);
    process.stdout.write(JSON.stringify(vk.getHostTiming()));
  `,
    { env: { HELIOS_HOST_TIMING: undefined } },
  );
  assert.equal(timing.enabled, false);
  assert.equal(timing.batches, 0);
  assert.equal(timing.dispatches, 0);
  assert.equal(timing.clockReads, 0);
  for (const { us, calls } of Object.values(timing.phases)) assert.deepEqual([us, calls], [0, 0]);
});

test('HELIOS_HOST_TIMING=1 counts batches, dispatches and disjoint phases', async () => {
  const { first, wall, reset, second } = await childJson(
    `
    init();
    vk.resetHostTiming();
    const started = performance.now();
    const x = bufferOf(ramp(64));
    const increments = pipelineOf(programs.increment);
    const push = Uint32Array.of(64, 1);
    vk.batchBegin();
    for (let i = 0; i < 10; i++) vk.batchDispatch(increments, [x], 1, 1, 1, push);
    vk.batchSubmit();
    vk.dispatch(increments, [x], 1, 1, 1, push);
    // More batches in flight than any ring has slots.
    for (let i = 0; i < 200; i++) {
      vk.batchBegin();
      vk.batchDispatch(pipelineOf(programs.churn), [x, x], 1, 1, 1, Uint32Array.of(64, 20000));
      vk.batchSubmit();
    }
    words(x);
    vk.waitIdle();
    const first = vk.getHostTiming();
    const wall = (performance.now() - started) * 1000;
    vk.resetHostTiming();
    const reset = vk.getHostTiming();
    vk.waitTimeline(vk.dispatch(increments, [x], 1, 1, 1, push));
    process.stdout.write(JSON.stringify({ first, wall, reset, second: vk.getHostTiming() }));
  `,
    { env: { HELIOS_HOST_TIMING: '1' } },
  );
  assert.equal(first.enabled, true);
  assert.ok(first.batches >= 201, `batches ${first.batches}`);
  assert.equal(first.dispatches, 211);
  assert.ok(first.clockReads > 0);
  assert.ok(Object.keys(first.phases).length > 1, 'several phases');
  let sum = 0;
  for (const [name, { us, calls }] of Object.entries(first.phases)) {
    assert.ok(us >= 0 && Number.isInteger(calls) && calls >= 0, name);
    sum += us;
  }
  // Of one clock, so that it holds however slow the machine is.
  assert.ok(sum > 0 && sum <= wall, `phases are disjoint: ${sum} µs of ${wall} µs`);
  assert.deepEqual([reset.batches, reset.dispatches, reset.clockReads], [0, 0, 0]);
  for (const { us, calls } of Object.values(reset.phases)) assert.deepEqual([us, calls], [0, 0]);
  assert.equal(second.dispatches, 1);
});

test('waiting for the GPU is ring_wait, whichever call waits', async () => {
  const waits = await childJson(
    `
    init();
    const x = bufferOf(ramp(64), 0);
    const p = pipelineOf(programs.churn);
    const busy = (n) => {
      let value;
      for (let i = 0; i < n; i++) value = vk.dispatch(p, [x, x], 1, 1, 1, Uint32Array.of(64, 65000));
      return value;
    };
    const calls = {
      readBuffer: () => { vk.readBuffer(x); },
      waitTimeline: (tv) => { vk.waitTimeline(tv); },
      waitIdle: () => { vk.waitIdle(); },
    };
    const waits = {};
    for (const [name, call] of Object.entries(calls)) {
      // A device may be done before a slow host calls: more each time.
      for (let n = 20; n <= 20 << 8 && !(waits[name] > 0); n *= 2) {
        vk.waitIdle();
        const tv = busy(n);
        vk.resetHostTiming();
        call(tv);
        waits[name] = vk.getHostTiming().phases.ring_wait.calls;
      }
    }
    process.stdout.write(JSON.stringify(waits));
  `,
    { env: { HELIOS_HOST_TIMING: '1' } },
  );
  for (const [name, calls] of Object.entries(waits)) assert.ok(calls > 0, `${name} waited without ring_wait`);
});

test('timing does not change results', async () => {
  await childJson(
    `
    init();
    const x = bufferOf(ramp(1000));
    for (let i = 0; i < 50; i++) vk.dispatch(pipelineOf(programs.increment), [x], groupsOf(1000), 1, 1, Uint32Array.of(1000, 1));
    assert.deepEqual(words(x), ramp(1000, 50));
  `,
    { env: { HELIOS_HOST_TIMING: '1' } },
  );
});

test('resetHostTiming may be called at any time', () => {
  vk.resetHostTiming();
  const x = bufferOf(ramp(64));
  vk.batchBegin();
  vk.batchDispatch(pipelineOf(increment), [x], groupsOf(64), 1, 1, Uint32Array.of(64, 1));
  vk.resetHostTiming();
  vk.batchSubmit();
  assert.deepEqual(words(x), ramp(64, 1));
  vk.destroyBuffer(x);
});
