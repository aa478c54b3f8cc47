// @ts-nocheck -- wrong arguments are passed on purpose; types/trainer-contract.ts checks the types.
import { before, test } from 'node:test';
import assert from 'node:assert/strict';
import { bufferOf, groupsOf, init, pipelineOf, ramp, vk, words } from './lib/addon.mjs';
import { INVALID_ARGUMENT, INVALID_BATCH, fails, sameWords, throws } from './lib/expect.mjs';
import { packBytes, packWords } from './lib/packed.mjs';
import { churn, grid, increment, lcgPower, pushEcho, scaleAdd } from './lib/programs.mjs';

let info;
before(() => {
  info = init();
});

const N = 200;
const inc = (by = 1) => [groupsOf(N), 1, 1, Uint32Array.of(N, by)];

test('dispatch computes', () => {
  const [a, b, c] = [bufferOf(ramp(N)), bufferOf(ramp(N, 1000)), vk.createBuffer(N * 4)];
  const tv = vk.dispatch(pipelineOf(scaleAdd), [a, b, c], groupsOf(N), 1, 1, Uint32Array.of(N, 3));
  assert.ok(Number.isInteger(tv) && tv > 0);
  sameWords(
    words(c),
    ramp(N).map((i) => 3 * i + 1000 + i),
    'scaleAdd',
  );
  sameWords(words(a), ramp(N), 'input');
  [a, b, c].forEach(vk.destroyBuffer);
});

test('group counts in three dimensions; gY and gZ default to 1', () => {
  const pipeline = pipelineOf(grid);
  const check = (args, [gX, gY, gZ]) => {
    const out = bufferOf(new Uint32Array(64).fill(0xffffffff));
    vk.dispatch(pipeline, [out], ...args);
    const expected = new Uint32Array(64).fill(0xffffffff);
    for (let z = 0; z < gZ; z++)
      for (let y = 0; y < gY; y++) for (let x = 0; x < gX; x++) expected[x + gX * (y + gY * z)] = x + 100 * y + 10000 * z;
    sameWords(words(out), expected, `dispatch(${args})`);
    vk.destroyBuffer(out);
  };
  check([5], [5, 1, 1]);
  check([5, 3], [5, 3, 1]);
  check([3, 4, 5], [3, 4, 5]);
  check([2, undefined, 7], [2, 1, 7]);
  check([1, 1, 60], [1, 1, 60]);
});

test('no workgroups, no work', () => {
  const out = bufferOf(ramp(64));
  for (const groups of [[0], [0, 5, 5], [5, 0, 5], [5, 5, 0]]) vk.dispatch(pipelineOf(grid), [out], ...groups);
  sameWords(words(out), ramp(64), 'untouched');
  vk.destroyBuffer(out);
});

test('group counts that are no u32 or above the limit are errors', () => {
  const out = bufferOf(ramp(64));
  const pipeline = pipelineOf(grid);
  const wrong = [-1, 1.5, NaN, Infinity, 2 ** 32, 2 ** 53, '1', null, {}, 1n];
  vk.batchBegin();
  for (const [name, call] of [
    ['dispatch', vk.dispatch],
    ['batchDispatch', vk.batchDispatch],
    ['gpuTime', vk.gpuTime],
  ]) {
    for (const value of wrong) {
      throws(() => call(pipeline, [out], value, 1, 1), INVALID_ARGUMENT, [
        name,
        /gX/,
        ...(typeof value === 'number' && Math.abs(value) <= 2 ** 32 ? [String(value)] : []),
      ]);
      throws(() => call(pipeline, [out], 1, value, 1), INVALID_ARGUMENT, [name, /gY/]);
      throws(() => call(pipeline, [out], 1, 1, value), INVALID_ARGUMENT, [name, /gZ/]);
    }
    throws(() => call(pipeline, [out]), INVALID_ARGUMENT, [name, /gX/]);
    // 65,535 is the limit in y and z of the drivers that the tests run on.
    throws(() => call(pipeline, [out], 1, 0xffffffff, 1), INVALID_ARGUMENT, [name, /gY/, 0xffffffff], [RangeError]);
    throws(() => call(pipeline, [out], 1, 1, 0xffffffff), INVALID_ARGUMENT, [name, /gZ/, 0xffffffff], [RangeError]);
  }
  assert.equal(vk.batchSubmit(), 0, 'the open batch stayed empty');
  sameWords(words(out), ramp(64), 'untouched');
  vk.destroyBuffer(out);
});

test('the buffers must be an array of as many as the pipeline has', () => {
  const [a, b, c] = [bufferOf(ramp(N)), bufferOf(ramp(N)), bufferOf(ramp(N))];
  const pipeline = pipelineOf(scaleAdd);
  const push = Uint32Array.of(N, 1);
  vk.batchBegin();
  for (const [name, call] of [
    ['dispatch', vk.dispatch],
    ['batchDispatch', vk.batchDispatch],
    ['gpuTime', vk.gpuTime],
  ]) {
    throws(() => call(pipeline, [], 1, 1, 1, push), INVALID_ARGUMENT, [name, 'buffers', 0, 3]);
    throws(() => call(pipeline, [a, b], 1, 1, 1, push), INVALID_ARGUMENT, [name, 'buffers', 2, 3]);
    throws(() => call(pipeline, [a, b, c, a], 1, 1, 1, push), INVALID_ARGUMENT, [name, 'buffers', 4, 3]);
    for (const value of [undefined, null, a, 'abc', {}, { length: 3 }]) {
      throws(() => call(pipeline, value, 1, 1, 1, push), INVALID_ARGUMENT, [name, 'buffers'], [TypeError]);
    }
  }
  assert.equal(vk.batchSubmit(), 0);
  sameWords(words(c), ramp(N), 'untouched');
  [a, b, c].forEach(vk.destroyBuffer);
});

test('an array of buffers with a getter that throws, or that changes its length, does no harm', () => {
  const [a, b, c] = [bufferOf(ramp(N)), bufferOf(ramp(N)), bufferOf(ramp(N))];
  const angry = [a, b, c];
  Object.defineProperty(angry, 1, {
    get() {
      throw new Error('no');
    },
  });
  assert.throws(() => vk.dispatch(pipelineOf(scaleAdd), angry, 1, 1, 1, Uint32Array.of(N, 1)), Error);
  const shrinking = [a, b, c];
  Object.defineProperty(shrinking, 0, {
    get() {
      shrinking.length = 0;
      return a;
    },
  });
  assert.throws(() => vk.dispatch(pipelineOf(scaleAdd), shrinking, 1, 1, 1, Uint32Array.of(N, 1)), Error);
  const destroying = [a, b, c];
  Object.defineProperty(destroying, 2, {
    get() {
      vk.destroyBuffer(c);
      return c;
    },
  });
  assert.throws(() => vk.dispatch(pipelineOf(scaleAdd), destroying, 1, 1, 1, Uint32Array.of(N, 1)), Error);
  const proxy = new Proxy([a, b, a], {});
  try {
    vk.dispatch(pipelineOf(scaleAdd), proxy, 1, 1, 1, Uint32Array.of(N, 0));
  } catch (error) {
    assert.equal(error.code, INVALID_ARGUMENT);
  }
  sameWords(words(b), ramp(N), 'untouched');
  [a, b].forEach(vk.destroyBuffer);
});

test('push constants: any view of at least pushBytes', () => {
  const echo = pipelineOf(pushEcho(4));
  const values = Uint32Array.of(1, 2, 3, 0xfffffff0);
  const out = vk.createBuffer(16);
  const wide = new Uint8Array(64);
  wide.set(new Uint8Array(values.buffer), 20);
  const pushes = {
    Uint32Array: values,
    Int32Array: new Int32Array(values.buffer),
    Float32Array: new Float32Array(values.buffer),
    Float64Array: new Float64Array(values.buffer),
    Uint8Array: new Uint8Array(values.buffer),
    BigUint64Array: new BigUint64Array(values.buffer),
    DataView: new DataView(values.buffer),
    'a view with an offset': wide.subarray(20, 36),
    'a DataView with an odd offset': (() => {
      const bytes = new Uint8Array(17);
      bytes.set(new Uint8Array(values.buffer), 1);
      return new DataView(bytes.buffer, 1);
    })(),
    'more than needed': Uint32Array.of(...values, 9, 9, 9),
  };
  for (const [kind, push] of Object.entries(pushes)) {
    vk.fillBuffer(out, 16, 0);
    vk.dispatch(echo, [out], 1, 1, 1, push);
    sameWords(words(out), values, `dispatch with ${kind}`);
    vk.fillBuffer(out, 16, 0);
    vk.batchBegin();
    vk.batchDispatch(echo, [out], 1, 1, 1, push);
    vk.batchSubmit();
    sameWords(words(out), values, `batchDispatch with ${kind}`);
  }
  vk.destroyBuffer(out);
});

test('push constants are taken at the call', () => {
  const echo = pipelineOf(pushEcho(2));
  const [first, second] = [vk.createBuffer(8), vk.createBuffer(8)];
  const push = Uint32Array.of(1, 2);
  vk.batchBegin();
  vk.batchDispatch(echo, [first], 1, 1, 1, push);
  push.set([3, 4]);
  vk.batchDispatch(echo, [second], 1, 1, 1, push);
  push.fill(0);
  vk.batchSubmit();
  assert.deepEqual([...words(first), ...words(second)], [1, 2, 3, 4]);
  [first, second].forEach(vk.destroyBuffer);
});

test('missing or short push constants are an error', () => {
  const echo = pipelineOf(pushEcho(4));
  const out = bufferOf(ramp(4));
  vk.batchBegin();
  for (const [name, call] of [
    ['dispatch', vk.dispatch],
    ['batchDispatch', vk.batchDispatch],
    ['gpuTime', vk.gpuTime],
  ]) {
    throws(() => call(echo, [out], 1, 1, 1), INVALID_ARGUMENT, [name, 'push', 16]);
    throws(() => call(echo, [out], 1, 1, 1, new Float32Array(3)), INVALID_ARGUMENT, [name, 'push', 12, 16]);
    throws(() => call(echo, [out], 1, 1, 1, new Uint8Array(15)), INVALID_ARGUMENT, [name, 'push', 15, 16]);
    for (const value of [5, 'push', [1, 2, 3, 4], {}])
      throws(() => call(echo, [out], 1, 1, 1, value), INVALID_ARGUMENT, [name, 'push'], [TypeError]);
  }
  const detached = new Uint32Array(4);
  structuredClone(detached.buffer, { transfer: [detached.buffer] });
  throws(() => vk.dispatch(echo, [out], 1, 1, 1, detached), INVALID_ARGUMENT, ['dispatch', 'push']);
  assert.equal(vk.batchSubmit(), 0);
  sameWords(words(out), ramp(4), 'untouched');
  vk.destroyBuffer(out);
});

test('a batch runs its dispatches in order, at batchSubmit at the latest', () => {
  const [x, y] = [bufferOf(ramp(N)), bufferOf(new Uint32Array(N))];
  vk.batchBegin();
  assert.equal(vk.batchDispatch(pipelineOf(increment), [x], ...inc(1), Uint32Array.of(1)), undefined);
  vk.batchDispatch(pipelineOf(scaleAdd), [x, x, y], groupsOf(N), 1, 1, Uint32Array.of(N, 2), Uint32Array.of(4));
  vk.batchDispatch(pipelineOf(increment), [x], ...inc(10));
  const tv = vk.batchSubmit();
  assert.ok(tv > 0);
  vk.waitTimeline(tv);
  sameWords(
    words(y),
    ramp(N).map((i) => 3 * (i + 1)),
    'y',
  );
  sameWords(words(x), ramp(N, 11), 'x');
  [x, y].forEach(vk.destroyBuffer);
});

test('an empty batch submits nothing and returns 0', () => {
  vk.batchBegin();
  assert.equal(vk.batchSubmit(), 0);
  vk.batchBegin();
  vk.batchDispatchMany(new ArrayBuffer(0), 0);
  vk.batchDispatchMany(packWords([]));
  assert.equal(vk.batchSubmit(), 0);
  assert.equal(vk.batchExecuteAll(new ArrayBuffer(0), 0), 0);
  assert.equal(vk.batchExecuteAll(packWords([])), 0);
});

test('batch calls out of place are ERR_HELIOS_INVALID_BATCH', () => {
  const x = bufferOf(ramp(N));
  const record = { pipeline: pipelineOf(increment), buffers: [x], groups: [groupsOf(N), 1, 1], push: Uint32Array.of(N, 1) };
  fails(() => vk.batchSubmit(), INVALID_BATCH, ['batchSubmit', 'batchBegin']);
  fails(() => vk.batchDispatch(record.pipeline, [x], ...inc()), INVALID_BATCH, ['batchDispatch', 'batchBegin']);
  fails(() => vk.batchDispatchMany(packBytes([record]), 1), INVALID_BATCH, ['batchDispatchMany', 'batchBegin']);
  fails(() => vk.batchDispatchMany(packWords([record])), INVALID_BATCH, ['batchDispatchMany', 'batchBegin']);
  vk.batchBegin();
  vk.batchDispatch(record.pipeline, [x], ...inc());
  fails(() => vk.batchBegin(), INVALID_BATCH, ['batchBegin']);
  fails(() => vk.batchExecuteAll(packBytes([record]), 1), INVALID_BATCH, ['batchExecuteAll']);
  fails(() => vk.batchExecuteAllProfiled(packBytes([record]), 1), INVALID_BATCH, ['batchExecuteAllProfiled']);
  vk.batchDispatch(record.pipeline, [x], ...inc());
  assert.ok(vk.batchSubmit() > 0, 'the batch stayed open and whole');
  sameWords(words(x), ramp(N, 2), 'x');
  fails(() => vk.batchSubmit(), INVALID_BATCH, ['batchSubmit']);
  vk.destroyBuffer(x);
});

test('an erroneous batchDispatch leaves the open batch as it was', () => {
  const x = bufferOf(ramp(N));
  vk.batchBegin();
  vk.batchDispatch(pipelineOf(increment), [x], ...inc());
  throws(() => vk.batchDispatch(pipelineOf(increment), [x, x], ...inc()), INVALID_ARGUMENT);
  vk.batchDispatch(pipelineOf(increment), [x], ...inc());
  vk.batchSubmit();
  sameWords(words(x), ramp(N, 2), 'x');
  vk.destroyBuffer(x);
});

test('writeMask is a one-element Uint32Array', () => {
  const x = bufferOf(ramp(N));
  vk.batchBegin();
  for (const mask of [1, '1', [1], {}, true, new Uint32Array(0), new Uint8Array(3)]) {
    throws(() => vk.batchDispatch(pipelineOf(increment), [x], ...inc(), mask), INVALID_ARGUMENT, ['batchDispatch', 'writeMask']);
  }
  assert.equal(vk.batchSubmit(), 0);
  vk.batchBegin();
  for (const mask of [undefined, Uint32Array.of(0), Uint32Array.of(1), Uint32Array.of(0xffffffff)]) {
    vk.batchDispatch(pipelineOf(increment), [x], ...inc(), mask);
  }
  vk.batchSubmit();
  sameWords(words(x), ramp(N, 4), 'x');
  vk.destroyBuffer(x);
});

test('inside an open batch every call takes its place in call order', () => {
  const [x, y, z] = [bufferOf(ramp(N)), bufferOf(new Uint32Array(N)), bufferOf(ramp(N, 50))];
  const increments = pipelineOf(increment);
  vk.batchBegin();
  vk.batchDispatch(increments, [x], ...inc(1));
  sameWords(words(x), ramp(N, 1), 'a read sees the dispatches called before it');
  vk.batchDispatch(increments, [x], ...inc(2));
  vk.uploadBuffer(z, ramp(N, 500)); // after this: z = 500…
  vk.batchDispatch(pipelineOf(scaleAdd), [x, z, y], groupsOf(N), 1, 1, Uint32Array.of(N, 1), Uint32Array.of(4));
  vk.fillBuffer(z, N * 4, 9);
  vk.dispatch(increments, [z], ...inc(1)); // 10
  vk.uploadAsync(x, Uint32Array.of(7), 4);
  vk.batchDispatch(increments, [z], ...inc(5)); // 15
  sameWords(words(z), new Uint32Array(N).fill(15), 'z');
  sameWords(
    words(y),
    ramp(N).map((i) => i + 3 + 500 + i),
    'y saw x and z of its time',
  );
  vk.batchDispatch(increments, [x], ...inc(1));
  const temporary = bufferOf(ramp(N));
  vk.batchDispatch(increments, [temporary], ...inc(1));
  vk.batchDispatch(pipelineOf(scaleAdd), [temporary, z, y], groupsOf(N), 1, 1, Uint32Array.of(N, 1));
  vk.destroyBuffer(temporary);
  const tv = vk.batchSubmit();
  assert.ok(tv > 0 && tv >= vk.getCompleted());
  sameWords(
    words(x),
    ramp(N, 4).map((value, i) => (i === 1 ? 8 : value)),
    'x',
  );
  sameWords(words(y), ramp(N, 16), 'y');
  [x, y, z].forEach(vk.destroyBuffer);
});

test('batchSubmit covers work that calls inside the batch have already sent off', () => {
  const x = bufferOf(ramp(N));
  vk.batchBegin();
  vk.batchDispatch(pipelineOf(increment), [x], ...inc(1));
  vk.readBuffer(x); // everything so far has run
  const tv = vk.batchSubmit();
  assert.ok(Number.isInteger(tv) && tv >= 0);
  vk.waitTimeline(tv);
  assert.ok(vk.getCompleted() >= tv);
  sameWords(words(x), ramp(N, 1), 'x');
  vk.destroyBuffer(x);
});

test('timeline values are positive and strictly increasing, whatever gives them', () => {
  const x = bufferOf(ramp(N));
  const record = { pipeline: pipelineOf(increment), buffers: [x], groups: [groupsOf(N), 1, 1], push: Uint32Array.of(N, 1) };
  let last = 0;
  const next = (tv, what) => {
    assert.ok(Number.isInteger(tv) && tv > last, `${what}: ${tv} after ${last}`);
    vk.waitTimeline(vk.getCompleted()); // what has completed can be waited for
    last = tv;
  };
  for (let round = 0; round < 5; round++) {
    next(vk.dispatch(record.pipeline, [x], ...inc()), 'dispatch');
    vk.batchBegin();
    vk.batchDispatch(record.pipeline, [x], ...inc());
    next(vk.batchSubmit(), 'batchSubmit');
    next(vk.batchExecuteAll(packBytes([record]), 1), 'batchExecuteAll, bytes');
    next(vk.batchExecuteAll(packWords([record])), 'batchExecuteAll, words');
    next(vk.uploadAsync(x, ramp(N)), 'uploadAsync');
    next(vk.uploadAsync(x, new Uint32Array(0)), 'uploadAsync of nothing');
    next(vk.batchExecuteAllProfiled(packBytes([record]), 1).timeline, 'batchExecuteAllProfiled');
    vk.waitTimeline(last);
    assert.equal(vk.getCompleted() >= last, true);
  }
  vk.destroyBuffer(x);
});

test('getCompleted reaches a value without anybody waiting', async () => {
  const x = bufferOf(ramp(64));
  const tv = vk.dispatch(pipelineOf(churn), [x, x], 1, 1, 1, Uint32Array.of(64, 65_000));
  let before = 0;
  while (vk.getCompleted() < tv) {
    const now = vk.getCompleted();
    assert.ok(now >= before, 'never goes back');
    before = now;
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  const [m, a] = lcgPower(65_000);
  sameWords(
    words(x),
    ramp(64).map((i) => Math.imul(m, i) + a),
    'x',
  );
  vk.destroyBuffer(x);
});

test('waitTimeline: 0 and past values return, values that nothing will signal are errors', () => {
  assert.equal(vk.waitTimeline(0), undefined);
  const x = bufferOf(ramp(N));
  const first = vk.dispatch(pipelineOf(increment), [x], ...inc());
  const second = vk.dispatch(pipelineOf(increment), [x], ...inc());
  vk.waitTimeline(second);
  vk.waitTimeline(first);
  vk.waitTimeline(second);
  for (const tv of [second + 1, second + 1000, 2 ** 40, Number.MAX_SAFE_INTEGER]) {
    throws(() => vk.waitTimeline(tv), INVALID_ARGUMENT, ['waitTimeline', tv], [RangeError]);
  }
  for (const tv of [-1, 1.5, NaN, Infinity, 2 ** 64, '1', undefined, null, {}, 1n])
    throws(() => vk.waitTimeline(tv), INVALID_ARGUMENT, ['waitTimeline']);
  vk.batchBegin();
  vk.batchDispatch(pipelineOf(increment), [x], ...inc());
  throws(() => vk.waitTimeline(second + 1), INVALID_ARGUMENT, ['waitTimeline'], [RangeError]);
  const third = vk.batchSubmit();
  vk.waitTimeline(third);
  sameWords(words(x), ramp(N, 3), 'x');
  vk.destroyBuffer(x);
});

test('waitIdle waits for everything', () => {
  const x = bufferOf(ramp(64));
  const tv = vk.dispatch(pipelineOf(churn), [x, x], 1, 1, 1, Uint32Array.of(64, 65_000));
  assert.equal(vk.waitIdle(), undefined);
  assert.ok(vk.getCompleted() >= tv);
  vk.waitIdle();
  vk.destroyBuffer(x);
});

test('timed runs of more dispatches than a command buffer should hold', (t) => {
  if (info.timestampValidBits === 0) return t.skip('the device has no timestamps');
  const x = bufferOf(ramp(1));
  const mean = vk.gpuTime(pipelineOf(increment), [x], 1, 1, 1, Uint32Array.of(1, 1), 20_000, 0);
  assert.ok(mean > 0);
  const record = { pipeline: pipelineOf(increment), buffers: [x], groups: [1, 1, 1], push: Uint32Array.of(1, 1) };
  const count = 17_000;
  const { dispatchTimesUs, timeline } = vk.batchExecuteAllProfiled(packBytes(Array.from({ length: count }, () => record)), count);
  assert.ok(timeline > 0);
  if (dispatchTimesUs) assert.equal(dispatchTimesUs.length, count);
  sameWords(words(x), Uint32Array.of(20_000 + count), 'x');
  vk.destroyBuffer(x);
});

test('gpuTime runs the dispatch warmup + iters times and returns microseconds', { skip: false }, (t) => {
  if (info.timestampValidBits === 0) return t.skip('the device has no timestamps');
  const x = bufferOf(ramp(N));
  const once = vk.gpuTime(pipelineOf(increment), [x], ...inc(1));
  assert.ok(Number.isFinite(once) && once >= 0);
  sameWords(words(x), ramp(N, 1), 'once');
  const mean = vk.gpuTime(pipelineOf(increment), [x], ...inc(1), 10, 3);
  assert.ok(Number.isFinite(mean) && mean >= 0);
  sameWords(words(x), ramp(N, 14), '13 times more');
  for (const iters of [-1, 1.5, NaN, '3', 2 ** 32])
    throws(() => vk.gpuTime(pipelineOf(increment), [x], ...inc(1), iters), INVALID_ARGUMENT, ['gpuTime', 'iters']);
  for (const warmup of [-1, 1.5, NaN, '3', 2 ** 32])
    throws(() => vk.gpuTime(pipelineOf(increment), [x], ...inc(1), 1, warmup), INVALID_ARGUMENT, ['gpuTime', 'warmup']);
  sameWords(words(x), ramp(N, 14), 'no more');
  vk.destroyBuffer(x);
});

test('a longer kernel takes longer, by gpuTime', (t) => {
  if (info.timestampValidBits === 0) return t.skip('the device has no timestamps');
  const x = bufferOf(ramp(64));
  const time = (steps) => vk.gpuTime(pipelineOf(churn), [x, x], 1, 1, 1, Uint32Array.of(64, steps), 3, 1);
  // A thousandfold of the work: no timing is asserted beyond the order of the two.
  const [short, long] = [time(65), time(65_000)];
  assert.ok(long > short, `${long} µs for a thousand times the work of ${short} µs`);
  vk.destroyBuffer(x);
});
