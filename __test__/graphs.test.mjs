// @ts-nocheck -- wrong arguments are passed on purpose; types/trainer-contract.ts checks the types.
/** Recorded graphs: as if serial between launches and against everything else. */
import { before, test } from 'node:test';
import assert from 'node:assert/strict';
import { bufferOf, groupsOf, init, pipelineOf, ramp, scaled, vk, words } from './lib/addon.mjs';
import { childJson } from './lib/child.mjs';
import { work } from './lib/work.mjs';
import { INVALID_ARGUMENT, INVALID_BATCH, INVALID_HANDLE, fails, sameWords, throws } from './lib/expect.mjs';
import { packBytes, packWords } from './lib/packed.mjs';
import { addByAddress, churn, increment, reverse, scaleAdd, twoOutputs } from './lib/programs.mjs';
import { Random } from './lib/random.mjs';
import { Twin, setUpDgc } from './lib/twin.mjs';

let info;
before(() => {
  info = init();
});

const N = 4096;
const push = (by) => Uint32Array.of(N, by);
const inc = (x, by = 1) => vk.dispatch(pipelineOf(increment), [x], groupsOf(N), 1, 1, push(by));

test('a graph runs at its launches, not while it is recorded', () => {
  const x = bufferOf(ramp(N), 0);
  vk.graphBegin();
  assert.equal(inc(x, 1), 0, 'no timeline value yet');
  inc(x, 2);
  const graph = vk.graphEnd();
  assert.ok(Number.isInteger(graph) && graph >= 0 && graph < 2 ** 31);
  sameWords(words(x), ramp(N), 'before');
  let last = 0;
  for (let i = 1; i <= 5; i++) {
    const tv = vk.graphLaunch(graph);
    assert.ok(Number.isInteger(tv) && tv > last);
    last = tv;
  }
  vk.waitTimeline(last);
  sameWords(words(x), ramp(N, 15), 'after five launches');
  assert.equal(vk.graphDestroy(graph), undefined);
  vk.destroyBuffer(x);
});

test('getStats() counts the dispatches of launches, not those that are recorded', () => {
  const x = bufferOf(ramp(N), 0);
  const before = vk.getStats().dispatches;
  vk.graphBegin();
  inc(x, 1);
  inc(x, 2);
  const graph = vk.graphEnd();
  assert.equal(vk.getStats().dispatches - before, 0);
  for (let i = 1; i <= 3; i++) {
    vk.graphLaunch(graph);
    assert.equal(vk.getStats().dispatches - before, 2 * i);
  }
  sameWords(words(x), ramp(N, 9), 'after three launches');
  vk.graphDestroy(graph);
  vk.destroyBuffer(x);
});

test('an empty graph', () => {
  vk.graphBegin();
  const graph = vk.graphEnd();
  vk.waitTimeline(vk.graphLaunch(graph));
  vk.waitTimeline(vk.graphLaunch(graph));
  vk.graphDestroy(graph);
});

test('every recordable call, in order', () => {
  const twin = new Twin();
  if (info.hasDGC) setUpDgc();
  const random = new Random(3);
  const [a, b, c] = [0, 1, 2].map((hostVisible) => twin.create(random.words(N), hostVisible % 2));
  twin.graphBegin();
  twin.dispatch({ program: reverse, buffers: [a, b], push: Uint32Array.of(N) });
  twin.begin();
  twin.batched({ program: increment, buffers: [b], push: push(3), writeMask: 0 });
  twin.packed('bytes', [{ program: reverse, buffers: [b, c], push: Uint32Array.of(N), writeMask: 0 }]);
  twin.packed('words', [{ program: scaleAdd, buffers: [a, b, c], push: push(5), writeMask: 0 }]);
  assert.equal(twin.submit(), 0);
  twin.fill(a, 64, 0x77);
  twin.upload(b, random.words(100));
  assert.equal(twin.uploadAsync(c, random.words(50), 400), 0);
  twin.copy(b, a, 1000, 7, 500);
  if (info.hasDGC) twin.dgc(a, b, c, N);
  twin.packed('bytes', [{ program: twoOutputs, buffers: [c, a, b], push: Uint32Array.of(N), writeMask: 0 }]);
  const graph = twin.graphEnd();
  for (let i = 0; i < 4; i++) twin.launch(graph);
  [a, b, c].forEach((buffer) => twin.read(buffer));
  vk.graphDestroy(graph.handle);
  [a, b, c].forEach((buffer) => twin.destroy(buffer));
});

test('launches and other work keep their order, without waiting', () => {
  const twin = new Twin();
  const random = new Random(4);
  const [a, b] = [twin.create(random.words(N), 0), twin.create(random.words(N), 1)];
  twin.graphBegin();
  twin.dispatch({ program: reverse, buffers: [a, b], push: Uint32Array.of(N) });
  twin.dispatch({ program: churn, buffers: [b, a], push: push(100) });
  const graph = twin.graphEnd();
  for (let i = 0; i < scaled(60); i++) {
    twin.launch(graph);
    if (i % 2) twin.upload(a, random.words(N / 2));
    if (i % 3 === 0) twin.uploadAsync(b, random.words(10), 40);
    if (i % 5 === 0) twin.fill(b, 400, i);
    twin.dispatch({ program: increment, buffers: [i % 2 ? a : b], push: push(i) });
    if (i % 7 === 0) twin.read(a);
    if (i % 4 === 0) twin.launch(graph);
  }
  [a, b].forEach((buffer) => {
    twin.read(buffer);
    twin.destroy(buffer);
  });
  vk.graphDestroy(graph.handle);
});

test('what changes from launch to launch travels in a small buffer', () => {
  const [x, step] = [bufferOf(ramp(N), 0), bufferOf(new Uint32Array(N), 0)];
  vk.graphBegin();
  vk.dispatch(pipelineOf(scaleAdd), [x, step, x], groupsOf(N), 1, 1, push(1));
  const graph = vk.graphEnd();
  let expected = 0;
  for (let i = 0; i < scaled(200); i++) {
    vk.uploadAsync(step, new Uint32Array(N).fill(i));
    vk.graphLaunch(graph);
    expected += i;
  }
  sameWords(words(x), ramp(N, expected), 'x');
  vk.graphDestroy(graph);
  [x, step].forEach(vk.destroyBuffer);
});

test('push constants and upload data are those of the recording', () => {
  const x = bufferOf(new Uint32Array(N), 0);
  const constants = push(5);
  const data = Uint32Array.of(100, 200);
  vk.graphBegin();
  vk.uploadBuffer(x, data);
  vk.dispatch(pipelineOf(increment), [x], groupsOf(N), 1, 1, constants);
  const graph = vk.graphEnd();
  constants.fill(0);
  data.fill(0);
  vk.graphLaunch(graph);
  vk.graphLaunch(graph);
  sameWords(words(x), Uint32Array.of(105, 205, ...new Array(N - 2).fill(10)), 'x');
  vk.graphDestroy(graph);
  vk.destroyBuffer(x);
});

test('buffers that a graph uses live as long as it does; their handles are dead all the same', () => {
  const [x, y] = [bufferOf(ramp(N), 0), bufferOf(new Uint32Array(N), 0)];
  vk.graphBegin();
  inc(x, 1);
  vk.dispatch(pipelineOf(reverse), [x, y], groupsOf(N), 1, 1, Uint32Array.of(N));
  const graph = vk.graphEnd();
  vk.destroyBuffer(x);
  throws(() => vk.readBuffer(x), INVALID_HANDLE, ['readBuffer', x]);
  // Others come and go, and must not get the graph's memory.
  for (let i = 0; i < 50; i++) {
    const other = bufferOf(new Uint32Array(N).fill(0xbad), 0);
    vk.graphLaunch(graph);
    sameWords(words(other), new Uint32Array(N).fill(0xbad), 'another buffer');
    vk.destroyBuffer(other);
  }
  sameWords(words(y), ramp(N, 50).reverse(), 'y');
  vk.graphDestroy(graph);
  vk.destroyBuffer(y);
});

test('a buffer that is created and destroyed within the recording', () => {
  const y = bufferOf(ramp(N), 0);
  vk.graphBegin();
  const temporary = vk.createBuffer(N * 4, 0);
  vk.dispatch(pipelineOf(reverse), [y, temporary], groupsOf(N), 1, 1, Uint32Array.of(N));
  vk.copyBuffer(temporary, y);
  vk.destroyBuffer(temporary);
  const second = vk.createBuffer(N * 4, 0);
  vk.fillBuffer(second, N * 4, 3);
  vk.dispatch(pipelineOf(scaleAdd), [y, second, y], groupsOf(N), 1, 1, push(1));
  vk.destroyBuffer(second);
  const graph = vk.graphEnd();
  vk.graphLaunch(graph);
  sameWords(words(y), ramp(N, 3).reverse(), 'once');
  vk.graphLaunch(graph);
  sameWords(words(y), ramp(N, 6), 'twice');
  vk.graphDestroy(graph);
  vk.destroyBuffer(y);
});

test('a graph destroyed while it runs finishes', () => {
  const x = bufferOf(ramp(N), 0);
  vk.graphBegin();
  vk.dispatch(pipelineOf(churn), [x, x], groupsOf(N), 1, 1, push(2000));
  inc(x, 1);
  const graph = vk.graphEnd();
  const expected = ramp(N);
  for (let i = 0; i < 5; i++) {
    vk.graphLaunch(graph);
    churn.run([expected, expected], push(2000));
    increment.run([expected], push(1));
  }
  vk.graphDestroy(graph);
  throws(() => vk.graphLaunch(graph), INVALID_HANDLE, ['graphLaunch', graph]);
  throws(() => vk.graphDestroy(graph), INVALID_HANDLE, ['graphDestroy', graph]);
  sameWords(words(x), expected, 'x');
  vk.destroyBuffer(x);
});

test('wrong handles', () => {
  for (const value of [-1, 1.5, NaN, 2 ** 31, 'x', undefined, null, {}, 0x3fffffff]) {
    throws(() => vk.graphLaunch(value), INVALID_HANDLE, ['graphLaunch']);
    throws(() => vk.graphDestroy(value), INVALID_HANDLE, ['graphDestroy']);
  }
});

test('calls out of place', () => {
  const x = bufferOf(ramp(N), 0);
  fails(() => vk.graphEnd(), INVALID_BATCH, ['graphEnd']);
  vk.graphBegin();
  const empty = vk.graphEnd();
  vk.graphBegin();
  inc(x, 1);
  fails(() => vk.graphBegin(), INVALID_BATCH, ['graphBegin']);
  fails(() => vk.graphLaunch(empty), INVALID_BATCH, ['graphLaunch']);
  fails(() => vk.readBuffer(x), INVALID_BATCH, ['readBuffer']);
  // Calls that measure or wait for results cannot be part of a graph.
  fails(() => vk.gpuTime(pipelineOf(increment), [x], groupsOf(N), 1, 1, push(100)), INVALID_BATCH, ['gpuTime']);
  const record = { pipeline: pipelineOf(increment), buffers: [x], groups: [groupsOf(N), 1, 1], push: push(100) };
  fails(() => vk.batchExecuteAllProfiled(packBytes([record]), 1), INVALID_BATCH, ['batchExecuteAllProfiled']);
  // Mistakes leave the recording as it was.
  throws(() => vk.dispatch(pipelineOf(increment), [x, x], 1, 1, 1, push(100)), INVALID_ARGUMENT);
  throws(() => vk.batchExecuteAll(packBytes([record, { ...record, buffers: [-1] }]), 2), INVALID_HANDLE);
  throws(() => vk.batchExecuteAll(packWords([record, { ...record, groups: [1, 1, 0xffffffff] }])), INVALID_ARGUMENT);
  inc(x, 2);
  const graph = vk.graphEnd();
  fails(() => vk.graphEnd(), INVALID_BATCH, ['graphEnd']);
  vk.graphLaunch(graph);
  sameWords(words(x), ramp(N, 3), 'x');
  [graph, empty].forEach(vk.graphDestroy);
  vk.destroyBuffer(x);
});

test('waiting for earlier work is allowed while a graph is recorded', () => {
  const x = bufferOf(ramp(N), 0);
  const tv = inc(x, 1);
  vk.graphBegin();
  inc(x, 10);
  vk.waitTimeline(tv);
  assert.ok(vk.getCompleted() >= tv);
  vk.waitIdle();
  const graph = vk.graphEnd();
  sameWords(words(x), ramp(N, 1), 'x');
  vk.graphDestroy(graph);
  vk.destroyBuffer(x);
});

test(`${scaled(8192)} dispatches in one graph`, () => {
  const x = bufferOf(ramp(64), 0);
  const count = scaled(8192);
  const record = { pipeline: pipelineOf(increment), buffers: [x], groups: [1, 1, 1], push: Uint32Array.of(64, 1), writeMask: 0 };
  vk.graphBegin();
  assert.equal(vk.batchExecuteAll(packBytes(new Array(count).fill(record)), count), 0);
  const graph = vk.graphEnd();
  for (let i = 0; i < 5; i++) vk.graphLaunch(graph);
  sameWords(words(x), ramp(64, 5 * count), 'x');
  vk.graphDestroy(graph);
  vk.destroyBuffer(x);
});

test('many graphs, launched in turn', () => {
  const x = bufferOf(new Uint32Array(64), 0);
  const graphs = Array.from({ length: 50 }, (_, i) => {
    vk.graphBegin();
    vk.dispatch(pipelineOf(scaleAdd), [x, x, x], 1, 1, 1, Uint32Array.of(64, i % 3));
    vk.dispatch(pipelineOf(increment), [x], 1, 1, 1, Uint32Array.of(64, i));
    return vk.graphEnd();
  });
  let expected = 0;
  for (let round = 0; round < 4; round++) {
    graphs.forEach((graph, i) => {
      vk.graphLaunch(graph);
      expected = (Math.imul(expected, (i % 3) + 1) + i) >>> 0;
    });
  }
  sameWords(words(x), new Uint32Array(64).fill(expected), 'x');
  graphs.forEach(vk.graphDestroy);
  vk.destroyBuffer(x);
});

test('a graph of kernels that take addresses', (t) => {
  if (!info.hasBDA) return t.skip('the device has no buffer addresses');
  const [x, y] = [bufferOf(ramp(N), 0), bufferOf(new Uint32Array(N), 0)];
  const constants = Uint32Array.from([x, x, y].flatMap((handle) => vk.dgcGetBufferAddress(handle)).concat([N, 0]));
  vk.graphBegin();
  inc(x, 1);
  vk.dispatch(pipelineOf(addByAddress), [], groupsOf(N), 1, 1, constants);
  inc(y, 1);
  const graph = vk.graphEnd();
  for (let i = 0; i < 10; i++) {
    vk.graphLaunch(graph);
    inc(x, 1);
  }
  sameWords(
    words(y),
    ramp(N, 19).map((value) => 2 * value + 1),
    'y',
  );
  vk.graphDestroy(graph);
  [x, y].forEach(vk.destroyBuffer);
});

for (let seed = 1; seed <= 6; seed++) {
  test(`random graphs, seed ${seed}`, () => {
    const random = new Random(1000 + seed);
    const twin = new Twin();
    const buffers = Array.from({ length: 6 }, (_, i) => twin.create(random.words(random.pick([64, 1000, 4096])), i % 2));
    const any = () => {
      const [a, b, c] = random.sample(buffers, 3);
      const n = Math.min(...[a, b, c].map((buffer) => buffer.data.length));
      const kind = random.below(8);
      if (kind === 0) twin.dispatch({ program: reverse, buffers: [a, b], push: Uint32Array.of(n) });
      else if (kind === 1) twin.batched({ program: scaleAdd, buffers: [a, b, c], push: Uint32Array.of(n, random.u32()), writeMask: 0 });
      else if (kind === 2)
        twin.packed(random.pick(['bytes', 'words']), [
          { program: twoOutputs, buffers: [a, b, c], push: Uint32Array.of(n), writeMask: random.below(8) },
        ]);
      else if (kind === 3) twin.fill(a, 4 * random.between(0, n), random.u32());
      else if (kind === 4) twin.upload(a, random.words(random.between(0, n)));
      else if (kind === 5) twin.uploadAsync(b, random.words(random.between(0, n)));
      else if (kind === 6) twin.copy(a, b, random.between(0, n));
      else twin.dispatch({ program: churn, buffers: [a, b], push: Uint32Array.of(n, random.below(300)) });
    };
    const graphs = Array.from({ length: 4 }, () => {
      twin.graphBegin();
      for (let i = random.between(0, 15); i > 0; i--) any();
      return twin.graphEnd();
    });
    for (let i = 0; i < scaled(150); i++) {
      if (random.chance(0.4)) twin.launch(random.pick(graphs));
      else if (random.chance(0.9)) any();
      else twin.read(random.pick(buffers));
    }
    buffers.forEach((buffer) => {
      twin.read(buffer);
      twin.destroy(buffer);
    });
    graphs.forEach(({ handle }) => vk.graphDestroy(handle));
  });
}

test('other threads work on while one records', async () => {
  const x = bufferOf(ramp(N), 0);
  vk.graphBegin();
  inc(x, 100);
  await work(
    `
    init();
    vk.dispatch(pipelineOf(programs.increment), [data.x], 64, 1, 1, Uint32Array.of(4096, 1));
    assert.deepEqual(words(data.x), ramp(4096, 1));
  `,
    { x },
  );
  const graph = vk.graphEnd();
  sameWords(words(x), ramp(N, 1), 'before');
  vk.graphLaunch(graph);
  sameWords(words(x), ramp(N, 101), 'after');
  vk.graphDestroy(graph);
  vk.destroyBuffer(x);
});

test('a CPU device refuses a graph of more dispatches than its command buffers hold, and keeps the recording', (t) => {
  if (!/llvmpipe|SwiftShader/.test(init().deviceName)) return t.skip('no CPU device');
  const x = bufferOf(ramp(1));
  const record = { pipeline: pipelineOf(increment), buffers: [x], groups: [1, 1, 1], push: Uint32Array.of(1, 1) };
  const list = (count) => packBytes(Array.from({ length: count }, () => record));
  vk.graphBegin();
  vk.batchExecuteAll(list(16_000), 16_000);
  fails(() => vk.batchExecuteAll(list(385), 385), INVALID_BATCH, ['batchExecuteAll', 16_384, 16_385]);
  vk.batchExecuteAll(list(384), 384);
  fails(() => vk.dispatch(pipelineOf(increment), [x], 1, 1, 1, Uint32Array.of(1, 1)), INVALID_BATCH, [16_384]);
  const graph = vk.graphEnd();
  vk.graphLaunch(graph);
  sameWords(words(x), Uint32Array.of(16_384), 'x');
  vk.graphDestroy(graph);
  vk.destroyBuffer(x);
});

test('a worker that ends in the middle of a recording leaves no trace', async () => {
  const x = bufferOf(ramp(N), 0);
  await work(
    `
    init();
    vk.graphBegin();
    vk.dispatch(pipelineOf(programs.increment), [data.x], 64, 1, 1, Uint32Array.of(4096, 1));
  `,
    { x },
  );
  vk.graphBegin();
  inc(x, 5);
  const graph = vk.graphEnd();
  vk.graphLaunch(graph);
  sameWords(words(x), ramp(N, 5), 'x');
  vk.graphDestroy(graph);
  vk.destroyBuffer(x);
});

test('destroy() and process exit with graphs alive, in flight and half recorded', async () => {
  for (const end of [
    'vk.destroy();',
    '',
    'process.exit(0);',
    'vk.destroy(); init(); assert.throws(() => vk.graphLaunch(graph), { code: "ERR_HELIOS_INVALID_HANDLE" });',
  ]) {
    await childJson(`
      init();
      const x = bufferOf(ramp(64), 0);
      vk.graphBegin();
      vk.dispatch(pipelineOf(programs.churn), [x, x], 1, 1, 1, Uint32Array.of(64, 60000));
      vk.uploadBuffer(x, ramp(10));
      const graph = vk.graphEnd();
      for (let i = 0; i < 10; i++) vk.graphLaunch(graph);
      vk.graphBegin();
      vk.fillBuffer(x, 64, 1);
      ${end}
    `);
  }
});
