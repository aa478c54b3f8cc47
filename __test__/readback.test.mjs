// @ts-nocheck -- wrong arguments are passed on purpose; types/trainer-contract.ts checks the types.
/** What readBuffer returns belongs to JS: it stays as it is whatever happens to the buffer or the device. */
import { before, test } from 'node:test';
import assert from 'node:assert/strict';
import { bits, bufferOf, init, pipelineOf, ramp, scaled, vk, words } from './lib/addon.mjs';
import { childJson } from './lib/child.mjs';
import { sameWords } from './lib/expect.mjs';
import { increment } from './lib/programs.mjs';

before(init);

test('the result stays after the buffer has changed, died and given its memory to others', () => {
  for (const n of [16, 1000, 100_000, 1 << 20]) {
    const x = bufferOf(ramp(n), 0);
    const result = vk.readBuffer(x);
    vk.dispatch(pipelineOf(increment), [x], Math.ceil(n / 64), 1, 1, Uint32Array.of(n, 1));
    vk.fillBuffer(x, n * 4, 7);
    vk.destroyBuffer(x);
    const others = Array.from({ length: 10 }, () => bufferOf(new Uint32Array(n).fill(0xffffffff), 0));
    const reads = others.map((other) => vk.readBuffer(other));
    sameWords(bits(result), ramp(n), `${n} elements`);
    reads.forEach((read) => sameWords(bits(read), new Uint32Array(n).fill(0xffffffff), 'another'));
    others.forEach(vk.destroyBuffer);
  }
});

test('the result may be written, and does not write the buffer', () => {
  const x = bufferOf(ramp(1000));
  const result = vk.readBuffer(x);
  bits(result).fill(9);
  sameWords(words(x), ramp(1000), 'x');
  sameWords(bits(result), new Uint32Array(1000).fill(9), 'result');
  vk.destroyBuffer(x);
});

test('two reads give two arrays', () => {
  const x = bufferOf(ramp(1000));
  const [first, second] = [vk.readBuffer(x), vk.readBuffer(x)];
  assert.notEqual(first.buffer, second.buffer);
  bits(first).fill(1);
  sameWords(bits(second), ramp(1000), 'second');
  vk.destroyBuffer(x);
});

test('results can be cloned, transferred, and uploaded again', () => {
  const x = bufferOf(ramp(100_000));
  const result = vk.readBuffer(x);
  sameWords(bits(structuredClone(result)), ramp(100_000), 'clone');
  vk.fillBuffer(x, 400_000, 0);
  vk.uploadBuffer(x, result);
  sameWords(words(x), ramp(100_000), 'uploaded');
  // Memory of the addon's may refuse to be transferred, but not lose data.
  try {
    const moved = structuredClone(result, { transfer: [result.buffer] });
    sameWords(bits(moved), ramp(100_000), 'moved');
  } catch (error) {
    assert.equal(error.name, 'DataCloneError');
    sameWords(bits(result), ramp(100_000), 'still there');
  }
  vk.destroyBuffer(x);
});

test('a byte stream takes a result\u2019s memory along', async () => {
  const right = await childJson(`
    const { setFlagsFromString } = await import('node:v8');
    setFlagsFromString('--expose-gc');
    const gc = (await import('node:vm')).runInNewContext('gc');
    init();
    const n = 1 << 16;
    const x = bufferOf(ramp(n), 0);
    const chunk = await (async () => {
      const result = vk.readBuffer(x);
      const stream = new ReadableStream({ type: 'bytes', start: (controller) => controller.enqueue(new Uint8Array(result.buffer)) });
      const { value } = await stream.getReader().read();
      assert.equal(result.buffer.byteLength, 0, 'the result has lost it');
      assert.ok(vk.getAllocatorStats().readbackLeasedBytes > 0, 'it was lent');
      vk.readBuffer(x); // the addon looks
      return value;
    })();
    vk.fillBuffer(x, 4 * n, 7);
    for (let i = 0; i < 20; i++) {
      gc();
      await new Promise((done) => setImmediate(done));
      vk.readBuffer(x);
    }
    const kept = new Uint32Array(chunk.buffer, chunk.byteOffset, n).every((word, i) => word === i);
    process.stdout.write(JSON.stringify(kept));
  `, { env: { HELIOS_TEST_STAGED: '1' } });
  assert.equal(right, true);
});

test('many results held at once, more than any ring', () => {
  const n = 1 << 16;
  const count = scaled(400); // 100 MiB
  const x = vk.createBuffer(n * 4, 0);
  const results = [];
  for (let i = 0; i < count; i++) {
    vk.fillBuffer(x, n * 4, i);
    results.push(vk.readBuffer(x));
  }
  results.forEach((result, i) => {
    assert.equal(bits(result)[0], i);
    assert.equal(bits(result)[n - 1], i);
  });
  vk.destroyBuffer(x);
});

test('garbage collection, destroyBuffer and destroy() while results are held and dropped', async () => {
  await childJson(`
    init();
    const n = 50_000;
    const x = vk.createBuffer(n * 4, 0);
    const held = [];
    for (let i = 0; i < 300; i++) {
      vk.fillBuffer(x, n * 4, i);
      const result = vk.readBuffer(x);
      if (i % 10 === 0) held.push([i, result]);
      if (i % 25 === 0) globalThis.gc();
      for (const [k, kept] of held) {
        if (bits(kept)[0] !== k || bits(kept)[n - 1] !== k) throw new Error('result ' + k + ' changed in round ' + i);
      }
    }
    vk.destroyBuffer(x);
    globalThis.gc();
    const last = held.at(-1)[1];
    vk.destroy();
    globalThis.gc();
    for (const [k, kept] of held) assert.deepEqual(bits(kept), new Uint32Array(n).fill(k));
    // A second device, and the results of the first are still there.
    init();
    forgetPipelines();
    const y = vk.createBuffer(n * 4, 0);
    for (let i = 0; i < 50; i++) { vk.fillBuffer(y, n * 4, 0xffffffff); vk.readBuffer(y); if (i % 10 === 0) globalThis.gc(); }
    for (const [k, kept] of held) assert.deepEqual(bits(kept), new Uint32Array(n).fill(k));
    held.length = 0;
    globalThis.gc();
    await new Promise((resolve) => setTimeout(resolve, 10));
    globalThis.gc();
    vk.destroy();
    await new Promise((resolve) => setTimeout(resolve, 10));
    globalThis.gc();
  `, { nodeArgs: ['--expose-gc'] });
});

test('results held at process exit do no harm', async () => {
  await childJson(`
    init();
    const x = bufferOf(ramp(100_000));
    globalThis.held = Array.from({ length: 20 }, () => vk.readBuffer(x));
  `);
  await childJson(`
    init();
    const x = bufferOf(ramp(100_000));
    globalThis.held = Array.from({ length: 20 }, () => vk.readBuffer(x));
    vk.destroy();
    process.exit(0);
  `);
});

test('memory stays bounded over many reads that nobody keeps', async () => {
  const grown = await childJson(`
    init();
    const x = vk.createBuffer(4 << 20, 0);
    vk.fillBuffer(x, 4 << 20, 1);
    const round = async (count) => {
      for (let i = 0; i < count; i++) {
        vk.readBuffer(x);
        if (i % 20 === 19) { globalThis.gc(); await new Promise((resolve) => setImmediate(resolve)); }
      }
      globalThis.gc();
      await new Promise((resolve) => setTimeout(resolve, 20));
      globalThis.gc();
      return process.memoryUsage().rss;
    };
    const before = await round(100);
    const after = await round(${scaled(400)});
    process.stdout.write(JSON.stringify((after - before) / 2 ** 20));
  `, { nodeArgs: ['--expose-gc'] });
  assert.ok(grown < 300, `resident memory grew by ${grown} MiB over reads of 4 MiB each`);
});

test('what a burst of reads has left is collected in the long wait before the next one', async () => {
  const left = await childJson(`
    init();
    const size = 8 << 20;
    const [x, small] = [vk.createBuffer(size, 0), bufferOf(ramp(64), 0)];
    const leased = () => vk.getAllocatorStats().readbackLeasedBytes;
    const clock = new Int32Array(new SharedArrayBuffer(4));
    const left = [];
    let held = [];
    for (let step = 0; step < 4; step++) {
      for (let i = 0; i < 12; i++) vk.waitIdle();
      held = [];
      const before = leased();
      vk.batchBegin();
      for (let i = 0; i < 60; i++) vk.batchDispatch(pipelineOf(programs.churn), [small, small], 1, 1, 1, Uint32Array.of(64, 65000));
      vk.waitTimeline(vk.batchSubmit());
      // V8 ends what it began as JS goes on, in threads that may have to wait for a core. Reads take back
      // what it frees; they are few and small, and nothing else here makes it collect.
      for (let i = 0; i < 500 && leased() > 4 * size; i++) {
        vk.readBuffer(small);
        if (i >= 20) Atomics.wait(clock, 0, 0, 10);
      }
      left.push([before, leased()].map((bytes) => bytes / size));
      held = Array.from({ length: 72 }, () => vk.readBuffer(x));
    }
    process.stdout.write(JSON.stringify(left));
  `, { env: { HELIOS_TEST_STAGED: '1' } });
  // V8 may find one or two still named on its stack.
  left.forEach(([before, after], step) => {
    assert.ok(step === 0 ? before === 0 : before >= 72, `results out before wait ${step}: ${before}`);
    assert.ok(after <= 4, `results out after wait ${step}: ${after}`);
  });
  assert.equal(left.length, 4);
});
