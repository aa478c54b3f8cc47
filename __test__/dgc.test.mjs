// @ts-nocheck -- wrong arguments are passed on purpose; types/trainer-contract.ts checks the types.
import { before, test } from 'node:test';
import assert from 'node:assert/strict';
import { bufferOf, groupsOf, init, pipelineOf, ramp, scaled, vk, words } from './lib/addon.mjs';
import { childError } from './lib/child.mjs';
import { INVALID_ARGUMENT, INVALID_HANDLE, sameWords, throws } from './lib/expect.mjs';
import { addByAddress, churn, increment } from './lib/programs.mjs';
import { setUpDgc } from './lib/twin.mjs';

let info;
before(() => {
  info = init();
});

const N = 300;
/** A test that needs buffer addresses. */
const dgcTest = (name, body) => test(name, (t) => (info.hasDGC && info.hasBDA ? body(t) : t.skip('the device has no buffer addresses')));

const op = (a, b, c, n = N, groups = [groupsOf(n), 1, 1]) => [a, b, c, n, ...groups];
const execute = (...ops) => vk.batchExecuteAllDGC(Int32Array.from(ops.flat()).buffer, ops.length);

/** One sequence: push constants (two addresses in, one out, n, 0), then the group counts. */
const sequence = (a, b, c, n) => [a, b, c].flatMap((handle) => vk.dgcGetBufferAddress(handle)).concat([n, 0, groupsOf(n), 1, 1]);

test('dgcInfo tells what initDevice told', () => {
  const dgc = vk.dgcInfo();
  assert.equal(dgc.hasBDA, info.hasBDA);
  assert.equal(dgc.hasDGC, info.hasDGC);
  assert.equal(typeof dgc.stride, 'number');
  assert.equal(typeof dgc.maxSequences, 'number');
});

dgcTest('dgcGetBufferAddress gives two u32, different for every buffer', () => {
  const handles = Array.from({ length: 20 }, () => vk.createBuffer(256));
  const addresses = handles.map((handle) => {
    const address = vk.dgcGetBufferAddress(handle);
    assert.ok(Array.isArray(address) && address.length === 2);
    for (const half of address) assert.ok(Number.isInteger(half) && half >= 0 && half < 2 ** 32);
    return BigInt(address[0]) | (BigInt(address[1]) << 32n);
  });
  assert.ok(addresses.every((address) => address > 0n && address % 4n === 0n));
  addresses
    .sort((a, b) => (a < b ? -1 : 1))
    .forEach((address, i) => {
      if (i > 0) assert.ok(address - addresses[i - 1] >= 256n, 'buffers do not overlap');
    });
  handles.forEach(vk.destroyBuffer);
  for (const value of [handles[0], -1, 1.5, NaN, 'x', undefined, 2 ** 31])
    throws(() => vk.dgcGetBufferAddress(value), INVALID_HANDLE, ['dgcGetBufferAddress']);
});

dgcTest('batchExecuteAllDGC adds buffers by address', () => {
  assert.equal(setUpDgc(100), true);
  const { stride, maxSequences } = vk.dgcInfo();
  assert.equal(stride, 32 + 12);
  assert.ok(maxSequences >= 100);
  const [a, b, c] = [bufferOf(ramp(N)), bufferOf(ramp(N, 1000)), bufferOf(new Uint32Array(N + 10).fill(9))];
  const tv = execute(op(a, b, c));
  assert.ok(Number.isInteger(tv) && tv > 0);
  vk.waitTimeline(tv);
  sameWords(words(c), Uint32Array.of(...ramp(N).map((i) => 2 * i + 1000), ...new Array(10).fill(9)), 'c');
  [a, b, c].forEach(vk.destroyBuffer);
});

dgcTest('ops of one list run in order: each sees the ones before it', () => {
  setUpDgc(100);
  const data = [ramp(N), ramp(N, 7), new Uint32Array(N)];
  const buffers = data.map((array) => bufferOf(array));
  const ops = [];
  for (let i = 0; i < 60; i++) {
    const [a, b, c] = [i % 3, (i + 1) % 3, (i + 2) % 3];
    ops.push(op(buffers[a], buffers[b], buffers[c]));
    for (let k = 0; k < N; k++) data[c][k] = data[a][k] + data[b][k];
  }
  execute(...ops);
  buffers.forEach((buffer, k) => {
    sameWords(words(buffer), data[k], `buffer ${k}`);
    vk.destroyBuffer(buffer);
  });
});

dgcTest('as if serial with everything else, without waiting', () => {
  setUpDgc(100);
  const n = 4096;
  const [x, y] = [bufferOf(ramp(n), 0), bufferOf(ramp(n), 0)];
  let [ex, ey] = [ramp(n), ramp(n)];
  for (let i = 0; i < scaled(100); i++) {
    vk.batchExecuteAllDGC(Int32Array.from(op(x, y, x, n)).buffer, 1);
    ex = ex.map((value, k) => value + ey[k]);
    vk.dispatch(pipelineOf(increment), [y], groupsOf(n), 1, 1, Uint32Array.of(n, i));
    ey = ey.map((value) => value + i);
    vk.dispatch(pipelineOf(churn), [x, x], groupsOf(n), 1, 1, Uint32Array.of(n, 1));
    ex = ex.map((value) => Math.imul(value, 1664525) + 1013904223);
    vk.batchExecuteAllDGC(Int32Array.from(op(x, x, y, n)).buffer, 1);
    ey = ex.map((value) => 2 * value);
    if (i % 10 === 0) {
      vk.uploadAsync(x, Uint32Array.of(i));
      ex[0] = i;
    }
    if (i % 15 === 0) {
      vk.fillBuffer(y, 64, i);
      ey.fill(i, 0, 16);
    }
  }
  sameWords(words(x), ex, 'x');
  sameWords(words(y), ey, 'y');
  [x, y].forEach(vk.destroyBuffer);
});

dgcTest('a plain dispatch of a kernel that takes addresses is as if serial, too', () => {
  const n = 4096;
  const [x, y] = [bufferOf(ramp(n), 0), bufferOf(new Uint32Array(n), 0)];
  const push = Uint32Array.from([x, x, y].flatMap((handle) => vk.dgcGetBufferAddress(handle)).concat([n, 0]));
  const list = [];
  for (let i = 0; i < 50; i++) {
    vk.batchBegin();
    vk.batchDispatch(pipelineOf(increment), [x], groupsOf(n), 1, 1, Uint32Array.of(n, 1), Uint32Array.of(0));
    vk.batchDispatch(pipelineOf(addByAddress), [], groupsOf(n), 1, 1, push, Uint32Array.of(0));
    vk.batchDispatch(pipelineOf(increment), [y], groupsOf(n), 1, 1, Uint32Array.of(n, 5), Uint32Array.of(0));
    list.push(vk.batchSubmit());
  }
  sameWords(
    words(y),
    ramp(n, 50).map((value) => 2 * value + 5),
    'y',
  );
  [x, y].forEach(vk.destroyBuffer);
});

dgcTest('more sequences than a command buffer should hold', () => {
  const count = 70_000;
  setUpDgc(count);
  const stream = vk.dgcGetCommandBuffer();
  const [a, b, c] = [bufferOf(ramp(1)), bufferOf(ramp(1, 5)), bufferOf(new Uint32Array(1))];
  const one = sequence(a, b, c, 1);
  const all = new Uint32Array(stream);
  for (let i = 0; i < count; i++) all.set(one, i * one.length);
  const { submits } = vk.getStats();
  vk.waitTimeline(vk.dgcExecute(count));
  assert.ok(vk.getStats().submits > submits + 4, 'in several command buffers');
  sameWords(words(c), Uint32Array.of(2 * 0 + 5), 'c');
  [a, b, c].forEach(vk.destroyBuffer);
});

dgcTest('dgcGetCommandBuffer and dgcExecute run sequences that JS wrote', () => {
  setUpDgc(8);
  const stream = vk.dgcGetCommandBuffer();
  assert.ok(stream instanceof ArrayBuffer);
  const { stride, maxSequences } = vk.dgcInfo();
  assert.ok(stream.byteLength >= stride * 8 && maxSequences >= 8);
  const [a, b, c, d] = [bufferOf(ramp(N)), bufferOf(ramp(N, 5)), bufferOf(new Uint32Array(N)), bufferOf(new Uint32Array(N))];
  new Uint32Array(stream).set([...sequence(a, b, c, N), ...sequence(c, b, d, N), ...sequence(d, d, a, N)]);
  const tv = vk.dgcExecute(2);
  assert.ok(Number.isInteger(tv) && tv > 0);
  // The stream is JS's again as soon as dgcExecute has returned.
  const kept = new Uint8Array(stream.slice(0));
  new Uint8Array(stream).fill(0, 0, 3 * stride);
  sameWords(
    words(c),
    ramp(N).map((i) => 2 * i + 5),
    'c',
  );
  sameWords(
    words(d),
    ramp(N).map((i) => 3 * i + 10),
    'd',
  );
  sameWords(words(a), ramp(N), 'the third sequence was not asked for');
  new Uint8Array(stream).set(kept);
  vk.waitTimeline(vk.dgcExecute(3));
  sameWords(
    words(a),
    ramp(N).map((i) => 6 * i + 20),
    'a',
  );
  for (const count of [-1, 1.5, NaN, '1', undefined, maxSequences + 1, 2 ** 32])
    throws(() => vk.dgcExecute(count), INVALID_ARGUMENT, ['dgcExecute']);
  assert.equal(vk.dgcExecute(0), 0);
  [a, b, c, d].forEach(vk.destroyBuffer);
});

dgcTest('a list longer than dgcSetup asked for, and one in a longer ArrayBuffer', () => {
  setUpDgc(4);
  const [x, one] = [bufferOf(new Uint32Array(N)), bufferOf(new Uint32Array(N).fill(1))];
  const count = vk.dgcInfo().maxSequences;
  // The trainer keeps one ArrayBuffer of at least 4096 bytes and fills the front of it.
  const list = new ArrayBuffer(4096);
  new Int32Array(list).set([op(x, one, x), op(x, x, x)].flat());
  vk.batchExecuteAllDGC(list, 2);
  sameWords(words(x), new Uint32Array(N).fill(2), 'x');
  const long = Array.from({ length: count + 5 }, () => op(x, one, x));
  try {
    execute(...long);
    sameWords(words(x), new Uint32Array(N).fill(2 + count + 5), 'all of them ran');
  } catch (error) {
    assert.equal(error.code, INVALID_ARGUMENT);
    sameWords(words(x), new Uint32Array(N).fill(2), 'none of them ran');
  }
  [x, one].forEach(vk.destroyBuffer);
});

dgcTest('an empty list submits nothing', () => {
  setUpDgc(4);
  assert.equal(vk.batchExecuteAllDGC(new ArrayBuffer(0), 0), 0);
  assert.equal(vk.batchExecuteAllDGC(new ArrayBuffer(4096), 0), 0);
});

dgcTest('a bad op is an error that names it, and nothing of the list runs', () => {
  setUpDgc(100);
  const [a, b, c] = [bufferOf(ramp(N)), bufferOf(ramp(N)), bufferOf(ramp(N))];
  const dead = vk.createBuffer(64);
  vk.destroyBuffer(dead);
  for (const [bad, code] of [
    [op(dead, b, c), INVALID_HANDLE],
    [op(a, -1, c), INVALID_HANDLE],
    [op(a, b, 0x3fffffff), INVALID_HANDLE],
    [op(a, b, c, N, [1, 1, -1]), INVALID_ARGUMENT],
    [op(a, b, c, N, [1, -1, 1]), INVALID_ARGUMENT],
  ])
    throws(() => execute(op(a, b, c), op(a, b, c), bad), code, ['batchExecuteAllDGC', /\b2\b/, /\b56\b/]);
  const list = Int32Array.from(op(a, b, c)).buffer;
  throws(() => vk.batchExecuteAllDGC(list, 2), INVALID_ARGUMENT, ['batchExecuteAllDGC', 28]);
  throws(() => vk.batchExecuteAllDGC(list.slice(0, 27), 1), INVALID_ARGUMENT, ['batchExecuteAllDGC', 27]);
  for (const count of [-1, 1.5, NaN, '1', undefined, 2 ** 32])
    throws(() => vk.batchExecuteAllDGC(list, count), INVALID_ARGUMENT, ['batchExecuteAllDGC', 'count']);
  for (const packed of [undefined, null, 5, 'text', {}])
    throws(() => vk.batchExecuteAllDGC(packed, 1), INVALID_ARGUMENT, ['batchExecuteAllDGC', 'packed'], [TypeError]);
  sameWords(words(c), ramp(N), 'c');
  [a, b, c].forEach(vk.destroyBuffer);
});

dgcTest('dgcSetup: wrong pipelines, push sizes and counts', () => {
  const pipeline = pipelineOf(addByAddress);
  for (const value of [-1, 1.5, 'x', undefined, 0x3fffffff]) throws(() => vk.dgcSetup(value, 32, 4), INVALID_HANDLE, ['dgcSetup']);
  for (const bytes of [-1, 1.5, NaN, '32', undefined, 28, 1 << 20])
    throws(() => vk.dgcSetup(pipeline, bytes, 4), INVALID_ARGUMENT, ['dgcSetup', 'pushBytes']);
  for (const count of [-1, 0, 1.5, NaN, '4', undefined, 2 ** 32])
    throws(() => vk.dgcSetup(pipeline, 32, count), INVALID_ARGUMENT, ['dgcSetup', 'maxSequences']);
  // A pipeline with bindings cannot run without buffers.
  throws(() => vk.dgcSetup(pipelineOf(increment), 8, 4), INVALID_ARGUMENT, ['dgcSetup']);
});

dgcTest('dgcExecute takes its place in an open batch; a list of its own wants no open batch', () => {
  setUpDgc(4);
  const [x, y] = [bufferOf(ramp(N), 0), bufferOf(ramp(N), 0)];
  vk.batchBegin();
  vk.batchDispatch(pipelineOf(increment), [x], groupsOf(N), 1, 1, Uint32Array.of(N, 1), Uint32Array.of(0));
  new Uint32Array(vk.dgcGetCommandBuffer()).set(sequence(x, x, y, N));
  vk.dgcExecute(1);
  vk.batchDispatch(pipelineOf(increment), [y], groupsOf(N), 1, 1, Uint32Array.of(N, 1), Uint32Array.of(0));
  throws(() => execute(op(x, x, y)), 'ERR_HELIOS_INVALID_BATCH', ['batchExecuteAllDGC'], [Error]);
  assert.ok(vk.batchSubmit() > 0);
  sameWords(
    words(y),
    ramp(N, 1).map((value) => 2 * value + 1),
    'y',
  );
  [x, y].forEach(vk.destroyBuffer);
});

dgcTest('before dgcSetup the other dgc calls say so', async () => {
  for (const call of ['vk.dgcExecute(1)', 'vk.dgcGetCommandBuffer()', 'vk.batchExecuteAllDGC(new ArrayBuffer(28), 1)']) {
    const error = await childError(`init(); ${call}`);
    assert.match(error.code, /^ERR_HELIOS_/);
    assert.match(error.message, /dgcSetup/);
  }
});
