// @ts-nocheck -- wrong arguments are passed on purpose; types/trainer-contract.ts checks the types.
/** No limits but memory: long batches, many buffers, many pipelines, long lives. */
import { before, test } from 'node:test';
import assert from 'node:assert/strict';
import { bufferOf, groupsOf, init, pipelineOf, ramp, scaled, vk, words, validating } from './lib/addon.mjs';
import { childJson } from './lib/child.mjs';
import { sameWords } from './lib/expect.mjs';
import { packBytes, packWords } from './lib/packed.mjs';
import { churn, increment, salted, scaleAdd } from './lib/programs.mjs';

before(init);

const BATCH = scaled(100_000);

/** x += 1, …, x += count on 64 elements, over 8 buffers in turn: a checkable chain. */
function longList(buffers, count) {
  const pipeline = pipelineOf(increment);
  return Array.from({ length: count }, (_, i) => ({
    pipeline,
    buffers: [buffers[i % 8]],
    groups: [1, 1, 1],
    push: Uint32Array.of(64, i + 1),
    writeMask: i % 2,
  }));
}
function checkLongList(buffers, count) {
  const sums = new Array(8).fill(0);
  for (let i = 0; i < count; i++) sums[i % 8] = (sums[i % 8] + i + 1) >>> 0;
  buffers.forEach((buffer, k) => {
    sameWords(
      words(buffer),
      ramp(64).map((v) => v + sums[k]),
      `buffer ${k}`,
    );
    vk.destroyBuffer(buffer);
  });
}
const eight = () => Array.from({ length: 8 }, () => bufferOf(ramp(64), 0));

test(`${BATCH} dispatches in one packed list of bytes`, () => {
  const buffers = eight();
  const tv = vk.batchExecuteAll(packBytes(longList(buffers, BATCH)), BATCH);
  vk.waitTimeline(tv);
  checkLongList(buffers, BATCH);
});

test(`${BATCH} dispatches in one packed list of words, into an open batch`, () => {
  const buffers = eight();
  // packWords spreads its arrays; build this long one in pieces.
  const records = longList(buffers, BATCH);
  vk.batchBegin();
  for (let at = 0; at < BATCH; at += 10_000) vk.batchDispatchMany(packWords(records.slice(at, at + 10_000)));
  vk.waitTimeline(vk.batchSubmit());
  checkLongList(buffers, BATCH);
});

test(`${BATCH / 4} batchDispatch calls in one batch`, () => {
  const buffers = eight();
  const count = BATCH / 4;
  vk.batchBegin();
  for (const { pipeline, buffers: list, groups, push } of longList(buffers, count)) vk.batchDispatch(pipeline, list, ...groups, push);
  vk.batchSubmit();
  checkLongList(buffers, count);
});

test('a bad last record of a long list spoils all of it', () => {
  const buffers = eight();
  const count = scaled(10_000);
  const records = longList(buffers, count);
  records[count - 1] = { ...records[count - 1], buffers: [-1] };
  assert.throws(
    () => vk.batchExecuteAll(packBytes(records), count),
    (error) => error.code === 'ERR_HELIOS_INVALID_HANDLE' && error.message.includes(String(count - 1)),
  );
  checkLongList(buffers, 0);
});

test(`${scaled(3000)} batches in flight without waiting`, () => {
  const x = bufferOf(ramp(64), 0);
  const count = scaled(3000);
  let last = 0;
  for (let i = 0; i < count; i++) {
    vk.batchBegin();
    vk.batchDispatch(pipelineOf(increment), [x], 1, 1, 1, Uint32Array.of(64, 1));
    vk.batchDispatch(pipelineOf(increment), [x], 1, 1, 1, Uint32Array.of(64, 2));
    last = vk.batchSubmit();
  }
  vk.waitTimeline(last);
  sameWords(words(x), ramp(64, 3 * count), 'x');
  vk.destroyBuffer(x);
});

const LIVE = scaled(100_000);
test(`${LIVE} live buffers`, () => {
  const handles = new Int32Array(LIVE);
  for (let i = 0; i < LIVE; i++) handles[i] = vk.createBuffer(256, 0);
  assert.equal(new Set(handles).size, LIVE);
  assert.ok(vk.getAllocatorStats().activeBuffers >= LIVE);
  // Each gets its own number, in one batch, and a hundred of them are read.
  const pipeline = pipelineOf(increment);
  const records = [];
  for (let i = 0; i < LIVE; i++) {
    vk.fillBuffer(handles[i], 256, i);
    if (i % 3 === 0) records.push({ pipeline, buffers: [handles[i]], groups: [1, 1, 1], push: Uint32Array.of(64, 5) });
  }
  vk.batchExecuteAll(packBytes(records), records.length);
  for (let i = 0; i < LIVE; i += Math.ceil(LIVE / 100)) {
    sameWords(words(handles[i]), new Uint32Array(64).fill(i + (i % 3 === 0 ? 5 : 0)), `buffer ${i}`);
  }
  handles.forEach((handle) => vk.destroyBuffer(handle));
  const x = bufferOf(ramp(64));
  sameWords(words(x), ramp(64), 'a buffer after all those');
  vk.destroyBuffer(x);
});

const PIPELINES = scaled(1000);
test(`${PIPELINES} pipelines`, () => {
  const x = bufferOf(new Uint32Array(64), 0);
  const list = Array.from({ length: PIPELINES }, (_, i) => {
    const program = salted(i);
    return vk.createPipeline(program.spirv, program.bindings, program.pushBytes);
  });
  assert.equal(new Set(list).size, PIPELINES);
  vk.batchExecuteAll(
    packBytes(list.map((pipeline) => ({ pipeline, buffers: [x], groups: [1, 1, 1], push: Uint32Array.of(64, 1), writeMask: 0 }))),
    PIPELINES,
  );
  sameWords(words(x), new Uint32Array(64).fill(PIPELINES + (PIPELINES * (PIPELINES - 1)) / 2), 'x');
  vk.destroyBuffer(x);
});

test(`create and destroy, ${scaled(10_000)} times 1 MiB: memory is reused and bounded`, () => {
  const size = 1 << 20;
  const before = vk.getAllocatorStats();
  const rss = process.memoryUsage().rss;
  let peak = 0;
  for (let i = 0; i < scaled(10_000); i++) {
    const x = vk.createBuffer(size, i % 2);
    if (i % 4 === 0) vk.fillBuffer(x, 64, i);
    vk.destroyBuffer(x);
    if (i % 100 === 0) peak = Math.max(peak, vk.getAllocatorStats().trackedVkMemoryAllocations);
  }
  const after = vk.getAllocatorStats();
  assert.equal(after.activeBuffers, before.activeBuffers);
  assert.equal(after.activeBufferBytes, before.activeBufferBytes);
  // Under validation each buffer has memory of its own, kept until much of it waits.
  const most = before.trackedVkMemoryAllocations + (validating ? 300 : 100);
  assert.ok(peak < most, `${peak} device allocations`);
  const grown = (process.memoryUsage().rss - rss) / 2 ** 20;
  assert.ok(grown < 1500, `resident memory grew by ${grown} MiB for one buffer of 1 MiB at a time`);
});

test('a program that runs far ahead of the device takes no more than a bound', async () => {
  const taken = await childJson(
    `
    init();
    // Five to a block of the usual size.
    const [busy, size] = [bufferOf(ramp(64), 0), 12 << 20];
    const blocks = () => vk.getAllocatorStats().blockBytes;
    const before = blocks();
    let most = 0;
    vk.batchBegin();
    for (let i = 0; i < 200; i++) vk.batchDispatch(pipelineOf(programs.churn), [busy, busy], 1, 1, 1, Uint32Array.of(64, 20_000));
    vk.batchSubmit();
    for (let i = 0; i < 342; i++) {
      const x = vk.createBuffer(size, 0);
      vk.dispatch(pipelineOf(programs.increment), [x], 1, 1, 1, Uint32Array.of(64, 1));
      vk.destroyBuffer(x);
      most = Math.max(most, blocks() - before);
    }
    process.stdout.write(JSON.stringify(most));
  `,
    { env: { HELIOS_TEST_STAGED: '1', HELIOS_RECORD_THREAD: '1' } },
  );
  // A GiB, what was not submitted yet, and one block.
  assert.ok(taken < (1 << 30) + (128 << 20), `4 GiB went by, ${taken / 2 ** 20} MiB were taken`);
});

test('a program that does nothing but launch a graph runs no more than 256 launches ahead', () => {
  const busy = bufferOf(ramp(64), 0);
  vk.graphBegin();
  for (let i = 0; i < 50; i++) vk.dispatch(pipelineOf(churn), [busy, busy], 1, 1, 1, Uint32Array.of(64, 200));
  const graph = vk.graphEnd();
  const before = vk.getStats().stalls;
  let value = 0;
  for (let i = 0; i < 600; i++) {
    const launched = vk.graphLaunch(graph);
    assert.ok(launched > value, `value ${launched} behind ${value}`);
    value = launched;
  }
  assert.ok(value - vk.getCompleted() <= 256, `${value - vk.getCompleted()} in flight`);
  assert.ok(vk.getStats().stalls > before, 'never waited');
  vk.waitTimeline(value);
  vk.graphDestroy(graph);
  vk.destroyBuffer(busy);
});

test('memory that is taken over while its old work still runs', () => {
  const n = 1 << 16;
  const busy = bufferOf(ramp(64), 0);
  const kept = [];
  for (let i = 0; i < scaled(200); i++) {
    const x = bufferOf(new Uint32Array(n).fill(i), 0);
    const result = vk.createBuffer(n * 4, 0);
    vk.dispatch(pipelineOf(churn), [busy, busy], 1, 1, 1, Uint32Array.of(64, 20_000));
    vk.dispatch(pipelineOf(scaleAdd), [x, x, result], groupsOf(n), 1, 1, Uint32Array.of(n, 2));
    vk.destroyBuffer(x);
    // May take the memory of x; must not be seen by the dispatch above, nor see what it wrote.
    const y = vk.createBuffer(n * 4, 0);
    vk.fillBuffer(y, n * 4, 0xdead);
    kept.push([i, result, y]);
    if (kept.length > 8) {
      const [k, r, z] = kept.shift();
      sameWords(words(r), new Uint32Array(n).fill(3 * k), `result ${k}`);
      sameWords(words(z), new Uint32Array(n).fill(0xdead), `successor ${k}`);
      vk.destroyBuffer(r);
      vk.destroyBuffer(z);
    }
  }
  for (const [, r, z] of kept) {
    vk.destroyBuffer(r);
    vk.destroyBuffer(z);
  }
  vk.destroyBuffer(busy);
});

test('sizes of every kind live side by side', () => {
  const sizes = [];
  for (let k = 2; k <= 24; k++) sizes.push(2 ** k, 2 ** k + 4, 2 ** k - 4 || 4);
  const list = sizes.map((size, i) => {
    const x = vk.createBuffer(size, i % 2);
    vk.fillBuffer(x, size, i);
    return x;
  });
  // Free every other one, and put different sizes into the holes.
  list.forEach((x, i) => {
    if (i % 2) vk.destroyBuffer(x);
  });
  const more = sizes.map((size) => {
    const x = vk.createBuffer(((size / 2) >> 2) << 2 || 4, 0);
    vk.fillBuffer(x, ((size / 2) >> 2) << 2 || 4, 0xfff);
    return x;
  });
  list.forEach((x, i) => {
    if (i % 2) return;
    const back = words(x);
    assert.equal(back.length, sizes[i] / 4);
    for (const at of [0, back.length >> 1, back.length - 1]) assert.equal(back[at], i, `size ${sizes[i]}`);
    vk.destroyBuffer(x);
  });
  more.forEach(vk.destroyBuffer);
});
