// @ts-nocheck -- wrong arguments are passed on purpose; types/trainer-contract.ts checks the types.
import { before, test } from 'node:test';
import { bufferOf, init, pipelineOf, ramp, vk, words } from './lib/addon.mjs';
import assert from 'node:assert/strict';
import { INVALID_ARGUMENT, INVALID_HANDLE, sameWords, throws } from './lib/expect.mjs';
import { increment, scaleAdd } from './lib/programs.mjs';

before(init);

/** Handles that can never be valid. */
const WRONG = [
  -1,
  -(2 ** 31),
  2 ** 31,
  2 ** 31 - 1,
  2 ** 32,
  2 ** 53,
  1.5,
  NaN,
  Infinity,
  -Infinity,
  '0',
  'text',
  '',
  true,
  null,
  undefined,
  {},
  [],
  0n,
  () => {},
  Symbol('handle'),
];
/** What an error should show of a value. */
const shown = (value) => (typeof value === 'number' && Number.isFinite(value) && Math.abs(value) <= 2 ** 32 ? [value] : []);

const push = Uint32Array.of(16, 1);

/** Every call that takes a buffer handle, with the others right. */
const BUFFER_CALLS = {
  uploadBuffer: (h) => vk.uploadBuffer(h, ramp(16)),
  uploadAsync: (h) => vk.uploadAsync(h, ramp(16)),
  fillBuffer: (h) => vk.fillBuffer(h, 64, 0),
  readBuffer: (h) => vk.readBuffer(h),
  bufferBytes: (h) => vk.bufferBytes(h),
  destroyBuffer: (h) => vk.destroyBuffer(h),
  dispatch: (h) => vk.dispatch(pipelineOf(increment), [h], 1, 1, 1, push),
  gpuTime: (h) => vk.gpuTime(pipelineOf(increment), [h], 1, 1, 1, push),
  batchDispatch: (h) => inBatch(() => vk.batchDispatch(pipelineOf(increment), [h], 1, 1, 1, push)),
};
const PIPELINE_CALLS = {
  dispatch: (p, b) => vk.dispatch(p, [b], 1, 1, 1, push),
  gpuTime: (p, b) => vk.gpuTime(p, [b], 1, 1, 1, push),
  batchDispatch: (p, b) => inBatch(() => vk.batchDispatch(p, [b], 1, 1, 1, push)),
};
function inBatch(call) {
  vk.batchBegin();
  try {
    call();
  } finally {
    vk.batchSubmit();
  }
}

for (const [name, call] of Object.entries(BUFFER_CALLS)) {
  test(`${name}: values that are no handle`, () => {
    for (const value of WRONG) throws(() => call(value), INVALID_HANDLE, [name, /buffer|handle/i, ...shown(value)]);
  });

  test(`${name}: a destroyed handle, also when its slot has been reused`, () => {
    const handle = vk.createBuffer(64);
    vk.destroyBuffer(handle);
    throws(() => call(handle), INVALID_HANDLE, [name, handle]);
    // Enough new buffers that every free slot is taken again.
    const others = Array.from({ length: 300 }, () => bufferOf(ramp(16)));
    assert.ok(!others.includes(handle), 'a handle is never issued twice in a row');
    throws(() => call(handle), INVALID_HANDLE, [name, handle]);
    for (const other of others) {
      sameWords(words(other), ramp(16), 'another buffer');
      vk.destroyBuffer(other);
    }
  });

  test(`${name}: a handle that was never issued`, () => {
    throws(() => call(0x3fffffff), INVALID_HANDLE, [name, 0x3fffffff]);
  });
}

for (const [name, call] of Object.entries(PIPELINE_CALLS)) {
  test(`${name}: values that are no pipeline`, () => {
    const buffer = bufferOf(ramp(16));
    for (const value of WRONG) throws(() => call(value, buffer), INVALID_HANDLE, [name, /pipeline/i, ...shown(value)]);
    throws(() => call(0x3fffffff, buffer), INVALID_HANDLE, [name, /pipeline/i, 0x3fffffff]);
    sameWords(words(buffer), ramp(16), 'untouched');
    vk.destroyBuffer(buffer);
  });
}

test('a wrong handle among several names its place', () => {
  const [a, b, c] = [bufferOf(ramp(16)), bufferOf(ramp(16)), bufferOf(ramp(16))];
  vk.destroyBuffer(b);
  throws(() => vk.dispatch(pipelineOf(scaleAdd), [a, b, c], 1, 1, 1, push), INVALID_HANDLE, ['dispatch', b, 1]);
  throws(() => vk.dispatch(pipelineOf(scaleAdd), [a, a, 2.5], 1, 1, 1, push), INVALID_HANDLE, ['dispatch', 2.5, 2]);
  sameWords(words(c), ramp(16), 'untouched');
  vk.destroyBuffer(a);
  vk.destroyBuffer(c);
});

test('destroying twice is an error and harms nobody', () => {
  const handle = vk.createBuffer(64);
  vk.destroyBuffer(handle);
  throws(() => vk.destroyBuffer(handle), INVALID_HANDLE, ['destroyBuffer', handle]);
  const next = bufferOf(ramp(16));
  throws(() => vk.destroyBuffer(handle), INVALID_HANDLE, ['destroyBuffer', handle]);
  sameWords(words(next), ramp(16), 'the buffer that took the slot');
  vk.destroyBuffer(next);
});

test('one slot, used many times: no old handle ever comes back to life', () => {
  const old = [];
  for (let i = 0; i < 2000; i++) {
    const handle = vk.createBuffer(16);
    assert.ok(handle >= 0 && handle < 2 ** 31);
    vk.destroyBuffer(handle);
    old.push(handle);
  }
  const live = vk.createBuffer(16);
  assert.ok(!old.slice(-200).includes(live));
  for (const handle of old) if (handle !== live) throws(() => vk.fillBuffer(handle, 16, 0), INVALID_HANDLE, [handle]);
  vk.destroyBuffer(live);
});

test('an object with valueOf is not an integer', () => {
  const handle = bufferOf(ramp(16));
  let asked = 0;
  throws(
    () =>
      vk.readBuffer({
        valueOf: () => {
          asked++;
          return handle;
        },
      }),
    INVALID_HANDLE,
    ['readBuffer'],
  );
  assert.equal(asked, 0);
  vk.destroyBuffer(handle);
});

test('a handle of one kind is none of another, and a timeline value is none', () => {
  const buffer = bufferOf(ramp(16));
  const pipeline = pipelineOf(increment);
  vk.graphBegin();
  vk.fillBuffer(buffer, 64, 0);
  const graph = vk.graphEnd();
  const value = vk.dispatch(pipeline, [buffer], 1, 1, 1, push);
  assert.equal(new Set([buffer, pipeline, graph, value]).size, 4);
  for (const [name, call] of Object.entries(BUFFER_CALLS)) {
    for (const other of [pipeline, graph, value]) throws(() => call(other), INVALID_HANDLE, [name, 'buffer', other]);
  }
  for (const [name, call] of Object.entries(PIPELINE_CALLS)) {
    for (const other of [buffer, graph, value]) throws(() => call(other, buffer), INVALID_HANDLE, [name, 'pipeline', other]);
  }
  for (const other of [buffer, pipeline, value]) {
    throws(() => vk.graphLaunch(other), INVALID_HANDLE, ['graphLaunch', other]);
    throws(() => vk.graphDestroy(other), INVALID_HANDLE, ['graphDestroy', other]);
  }
  for (const other of [buffer, pipeline, graph]) throws(() => vk.waitTimeline(other), INVALID_ARGUMENT, ['waitTimeline', other]);
  sameWords(words(buffer), ramp(16, 1), 'the dispatch alone was run');
  vk.graphDestroy(graph);
  vk.destroyBuffer(buffer);
});

test('bufferBytes is the size that a buffer was created with', () => {
  for (const bytes of [0, 1, 4, 10, 4096, 100_000]) {
    const handle = vk.createBuffer(bytes, bytes % 2);
    assert.equal(vk.bufferBytes(handle), bytes);
    vk.destroyBuffer(handle);
    throws(() => vk.bufferBytes(handle), INVALID_HANDLE, ['bufferBytes', handle]);
  }
});
