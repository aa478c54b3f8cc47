// @ts-nocheck -- wrong arguments are passed on purpose; types/trainer-contract.ts checks the types.
/** readAsync, waitAsync and readInto: results as of the call's place, and promises that always settle. */
import { before, test } from 'node:test';
import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { bits, bufferOf, groupsOf, init, pipelineOf, ramp, scaled, vk, words } from './lib/addon.mjs';
import { child, childError, childJson } from './lib/child.mjs';
import { INVALID_ARGUMENT, INVALID_BATCH, INVALID_HANDLE, NO_DEVICE, sameWords, throws } from './lib/expect.mjs';
import { churn, increment } from './lib/programs.mjs';
import { startWorker, work } from './lib/work.mjs';

before(init);

const turn = () => new Promise((resolve) => setImmediate(resolve));
const leased = () => vk.getAllocatorStats().readbackLeasedBytes;

/**
 * Source of `busy(rounds)`: gives the device one batch of work, one workgroup wide, that takes it some
 * 0.1 s (a software device) or 25 ms (a graphics card); returns the batch's timeline value.
 */
const BUSY = `
  const busy = (rounds = 60) => {
    const pair = [bufferOf(ramp(64), 0), bufferOf(ramp(64), 0)];
    vk.batchBegin();
    for (let i = 0; i < rounds; i++) {
      vk.batchDispatch(pipelineOf(programs.churn), i % 2 ? pair : [pair[1], pair[0]], 1, 1, 1, Uint32Array.of(64, 65000));
    }
    const value = vk.batchSubmit();
    pair.forEach(vk.destroyBuffer);
    return value;
  };
`;
/** @type {(rounds?: number) => number} */
const busy = new Function('vk', 'bufferOf', 'ramp', 'pipelineOf', 'programs', `${BUSY} return busy;`)(vk, bufferOf, ramp, pipelineOf, {
  churn,
});

/** Asserts that a promise is rejected with an error of the addon, as `throws` does for calls. */
async function rejects(promise, ...expected) {
  assert.ok(promise instanceof Promise);
  let caught;
  try {
    await promise;
  } catch (error) {
    caught = error;
  }
  throws(
    () => {
      if (caught !== undefined) throw caught;
    },
    ...expected,
  );
}

for (const hostVisible of [0, 1]) {
  test(`what is called after readAsync does not show in it (hostVisible ${hostVisible})`, async () => {
    for (const n of [1, 100, 5000, 100_000]) {
      const x = bufferOf(ramp(n), hostVisible);
      busy(4);
      const reads = [vk.readAsync(x)];
      vk.dispatch(pipelineOf(increment), [x], groupsOf(n), 1, 1, Uint32Array.of(n, 5));
      reads.push(vk.readAsync(x));
      vk.uploadBuffer(x, ramp(n, 77));
      reads.push(vk.readAsync(x));
      vk.uploadAsync(x, ramp(1, 1234));
      reads.push(vk.readAsync(x));
      vk.fillBuffer(x, n * 4, 9);
      reads.push(vk.readAsync(x));
      vk.destroyBuffer(x);
      const other = bufferOf(new Uint32Array(n).fill(0xffffffff), hostVisible);
      const results = await Promise.all(reads);
      const changed = ramp(n, 77);
      changed[0] = 1234;
      const expected = [ramp(n), ramp(n, 5), ramp(n, 77), changed, new Uint32Array(n).fill(9)];
      results.forEach((result, i) => {
        assert.ok(result instanceof Float32Array);
        sameWords(bits(result), expected[i], `read ${i} of ${n} elements`);
      });
      vk.destroyBuffer(other);
    }
  });
}

test('a mapped, idle buffer: an upload right after the read does not show', async () => {
  const x = bufferOf(ramp(1000));
  vk.waitIdle();
  for (let i = 0; i < 20; i++) {
    vk.uploadBuffer(x, ramp(1000, i));
    const read = vk.readAsync(x);
    vk.uploadBuffer(x, ramp(1000, 5000));
    sameWords(bits(await read), ramp(1000, i), `round ${i}`);
    sameWords(words(x), ramp(1000, 5000), 'and the upload arrived');
  }
  vk.destroyBuffer(x);
});

test('ranges: from an offset, of a length, to the end, nothing', async () => {
  const x = bufferOf(ramp(100));
  for (const [offset, length, from, to] of [
    [0, 400, 0, 100],
    [40, 4, 10, 11],
    [396, 4, 99, 100],
    [40, undefined, 10, 100],
    [undefined, 12, 0, 3],
    [400, undefined, 100, 100],
    [400, 0, 100, 100],
    [0, 0, 0, 0],
  ]) {
    sameWords(bits(await vk.readAsync(x, offset, length)), ramp(100).slice(from, to), `${length} bytes at ${offset}`);
  }
  vk.destroyBuffer(x);
  const odd = vk.createBuffer(11);
  vk.uploadBuffer(odd, new Uint8Array(11).fill(1));
  sameWords(bits(await vk.readAsync(odd)), [0x01010101, 0x01010101], 'the whole words of an odd size');
  vk.destroyBuffer(odd);
});

test('many promises at once, each with its own value', async () => {
  const count = scaled(2000);
  const x = bufferOf(new Uint32Array(64), 0);
  const large = bufferOf(new Uint32Array(8192), 0);
  const reads = [];
  for (let i = 1; i <= count; i++) {
    vk.dispatch(pipelineOf(increment), [x], 1, 1, 1, Uint32Array.of(64, 1));
    reads.push(vk.readAsync(x, 4 * (i % 64), 4));
    if (i % 20 === 0) {
      vk.fillBuffer(large, 32768, i);
      reads.push(vk.readAsync(large));
    }
  }
  const results = await Promise.all(reads);
  let at = 0;
  for (let i = 1; i <= count; i++) {
    assert.equal(bits(results[at++])[0], i);
    if (i % 20 === 0) sameWords(bits(results[at++]), new Uint32Array(8192).fill(i), `fill ${i}`);
  }
  [x, large].forEach(vk.destroyBuffer);
});

test('inside a batch a read takes its place; inside a graph it is refused', async () => {
  const x = bufferOf(ramp(64), 0);
  const push = Uint32Array.of(64, 1);
  vk.batchBegin();
  vk.batchDispatch(pipelineOf(increment), [x], 1, 1, 1, push);
  const read = vk.readAsync(x);
  vk.batchDispatch(pipelineOf(increment), [x], 1, 1, 1, push);
  vk.batchSubmit();
  sameWords(bits(await read), ramp(64, 1), 'in the batch');
  sameWords(words(x), ramp(64, 2), 'after it');
  vk.graphBegin();
  const refused = vk.readAsync(x);
  vk.graphDestroy(vk.graphEnd());
  await rejects(refused, INVALID_BATCH, ['readAsync', 'graph'], [Error]);
  vk.destroyBuffer(x);
});

test('waitAsync resolves at its value, in order, while the event loop turns', async () => {
  const order = [];
  let turns = 0;
  let turning = true;
  const spin = () => {
    if (turning) {
      turns++;
      setImmediate(spin);
    }
  };
  const [first, second] = [busy(), busy()];
  assert.ok(vk.getCompleted() < first, 'the device is busy');
  spin();
  const note = (name, value) =>
    vk.waitAsync(value).then((result) => {
      assert.equal(result, undefined);
      assert.ok(vk.getCompleted() >= value, name);
      order.push(name);
    });
  // The higher value is asked for first.
  await Promise.all([note('second', second), turn().then(() => note('first', first)), note('nothing', 0)]);
  turning = false;
  assert.deepEqual(order, ['nothing', 'first', 'second']);
  assert.ok(turns > 10, `${turns} turns`);
  await vk.waitAsync(second);
});

test('waitAsync on work that was not submitted yet submits it', async () => {
  const x = vk.createBuffer(400, 0);
  const value = vk.uploadAsync(x, ramp(100));
  await vk.waitAsync(value);
  assert.ok(vk.getCompleted() >= value);
  vk.destroyBuffer(x);
});

test('wrong arguments reject, with the errors that other calls throw', async () => {
  const x = bufferOf(ramp(16));
  await rejects(vk.readAsync(), INVALID_HANDLE, ['readAsync', 'buffer', 'undefined'], [TypeError]);
  await rejects(vk.readAsync(-1), INVALID_HANDLE, ['readAsync', 'buffer', -1], [RangeError]);
  await rejects(vk.readAsync(2 ** 31 - 1), INVALID_HANDLE, ['readAsync', 'buffer', 2147483647], [RangeError]);
  await rejects(vk.readAsync(x, 68), INVALID_ARGUMENT, ['readAsync', 'byteOffset', 64, 68], [RangeError]);
  await rejects(vk.readAsync(x, 4, 64), INVALID_ARGUMENT, ['readAsync', 'byteLength', 64], [RangeError]);
  await rejects(vk.readAsync(x, 0, Number.MAX_SAFE_INTEGER - 3), INVALID_ARGUMENT, ['readAsync'], [RangeError]);
  for (const bad of [1, 2, 3, 5, -4, 1.5, NaN, Infinity]) {
    await rejects(vk.readAsync(x, bad), INVALID_ARGUMENT, ['readAsync', 'byteOffset', String(bad)], [RangeError]);
    await rejects(vk.readAsync(x, 0, bad), INVALID_ARGUMENT, ['readAsync', 'byteLength', String(bad)], [RangeError]);
  }
  for (const bad of ['0', null, {}, 1n, Symbol('s')])
    await rejects(vk.readAsync(x, bad), INVALID_ARGUMENT, ['readAsync', 'byteOffset'], [TypeError]);
  for (const bad of [5, 'text', () => 0, true])
    await rejects(vk.readAsync(x, 0, 4, bad), INVALID_ARGUMENT, ['readAsync', 'options'], [TypeError]);
  const thrower = {
    get signal() {
      throw new Error('mine');
    },
  };
  const fakes = [
    5,
    'text',
    {},
    { aborted: false },
    { aborted: 0, addEventListener() {} },
    {
      get aborted() {
        throw new Error('mine');
      },
    },
    {
      aborted: false,
      addEventListener() {
        throw new Error('mine');
      },
    },
  ];
  await rejects(vk.readAsync(x, 0, 4, thrower), INVALID_ARGUMENT, ['readAsync', 'options.signal'], [TypeError]);
  for (const signal of fakes) {
    await rejects(vk.readAsync(x, 0, 4, { signal }), INVALID_ARGUMENT, ['readAsync', 'options.signal'], [TypeError]);
    await rejects(vk.waitAsync(0, { signal }), INVALID_ARGUMENT, ['waitAsync', 'options.signal'], [TypeError]);
  }
  for (const nothing of [undefined, null, {}, { signal: undefined }])
    sameWords(bits(await vk.readAsync(x, 0, 4, nothing)), [0], 'no signal');
  for (const bad of [-1, 1.5, NaN]) await rejects(vk.waitAsync(bad), INVALID_ARGUMENT, ['waitAsync', 'value'], [RangeError]);
  for (const bad of [undefined, null, 'x', {}, 1n]) await rejects(vk.waitAsync(bad), INVALID_ARGUMENT, ['waitAsync', 'value'], [TypeError]);
  await rejects(vk.waitAsync(1e12), INVALID_ARGUMENT, ['waitAsync', 'value', 1000000000000], [RangeError]);
  vk.destroyBuffer(x);
  await rejects(vk.readAsync(x), INVALID_HANDLE, ['readAsync', 'buffer', x], [RangeError]);
});

test('without a device promises are rejected', async () => {
  for (const calls of ['', 'init(); vk.destroy();']) {
    for (const call of ['vk.readAsync(0)', 'vk.waitAsync(1)']) {
      const error = await childError(`${calls} await ${call};`);
      assert.equal(error.code, NO_DEVICE, error.message);
    }
  }
});

test('a signal that is already aborted: rejected with its reason, and nothing is read', async () => {
  const x = bufferOf(ramp(16));
  const { reads } = vk.getStats();
  await assert.rejects(
    vk.readAsync(x, 0, 64, { signal: AbortSignal.abort() }),
    (error) => error instanceof DOMException && error.name === 'AbortError',
  );
  await assert.rejects(vk.waitAsync(0, { signal: AbortSignal.abort('my reason') }), (reason) => reason === 'my reason');
  assert.equal(vk.getStats().reads, reads);
  vk.destroyBuffer(x);
});

test('aborting: rejected at once; the block comes back when the device has finished', async () => {
  // Large, so that results of earlier tests that are freed meanwhile do not matter.
  const n = 4 << 20;
  const x = bufferOf(ramp(n), 0);
  await vk.waitAsync(busy(1));
  const before = leased();
  const value = busy(600);
  const controller = new AbortController();
  const { signal } = controller;
  const reads = Array.from({ length: 5 }, () => vk.readAsync(x, 0, 4 * n, { signal }));
  const wait = vk.waitAsync(value, { signal });
  const kept = vk.readAsync(x, 4, 8);
  assert.equal(getEventListeners(signal, 'abort').length, 6);
  const reason = new Error('enough');
  controller.abort(reason);
  for (const promise of [...reads, wait]) await assert.rejects(promise, (error) => error === reason);
  assert.ok(vk.getCompleted() < value, 'long before the device is done');
  assert.ok(leased() > before + 3 * 4 * n, 'the device still owns the blocks');
  assert.equal(getEventListeners(signal, 'abort').length, 0);
  // A read that would take such a block while it is written.
  vk.fillBuffer(x, 4 * n, 9);
  sameWords(words(x), new Uint32Array(n).fill(9), 'another read');
  sameWords(bits(await kept), [1, 2], 'the read that was not given up');
  await turn();
  // The result above may be out still.
  assert.ok(leased() <= before + 2 * 4 * n, `${leased()} bytes are out, ${before} before`);
  vk.destroyBuffer(x);
});

test('aborting afterwards changes nothing, and no listener is left', async () => {
  const controller = new AbortController();
  const x = bufferOf(ramp(5000));
  const result = await vk.readAsync(x, 0, undefined, { signal: controller.signal });
  await vk.waitAsync(0, { signal: controller.signal });
  await assert.rejects(vk.readAsync(-1, 0, 4, { signal: controller.signal }));
  assert.equal(getEventListeners(controller.signal, 'abort').length, 0);
  controller.abort();
  sameWords(bits(result), ramp(5000), 'result');
  vk.destroyBuffer(x);
});

test('AbortSignal.timeout gives a wait up', async () => {
  // A device may be done before a slow host looks at its timers: more work each time.
  for (let n = 200, rejected = false; !rejected; n *= 2) {
    const value = busy(n);
    try {
      await vk.waitAsync(value, { signal: AbortSignal.timeout(5) });
      assert.ok(n < 200 << 6, 'never given up');
    } catch (error) {
      assert.equal(error.name, 'TimeoutError', error.stack);
      rejected = true;
    }
    vk.waitIdle();
  }
});

test('a signal of the caller’s own making that fires while it is listened to', async () => {
  const signal = {
    aborted: false,
    addEventListener(_, listener) {
      listener();
    },
    removeEventListener() {},
  };
  const error = await vk.waitAsync(0, { signal }).catch((caught) => caught);
  assert.equal(error.code, 'ERR_HELIOS_ABORTED');
  await vk.waitAsync(0);
});

test('the process lives until a promise is settled, and ends by itself then', async () => {
  for (const hostVisible of [0, 1]) {
    const result = await childJson(`
      init(); ${BUSY}
      const x = bufferOf(ramp(5000), ${hostVisible});
      const value = busy();
      vk.readAsync(x).then(async (result) => {
        await vk.waitAsync(busy());
        process.stdout.write(JSON.stringify([result.length, bits(result)[4999]]));
      });
    `);
    assert.deepEqual(result, [5000, 4999]);
  }
});

test('a process does not wait for what was given up', async () => {
  const started = await childJson(`
    init(); ${BUSY}
    const x = bufferOf(ramp(5000));
    busy();
    const controller = new AbortController();
    const read = vk.readAsync(x, 0, 400, { signal: controller.signal });
    controller.abort();
    await read.catch(() => {});
    process.stdout.write('true');
  `);
  assert.equal(started, true);
});

test('process.exit and an exception with promises pending', async () => {
  for (const [end, code] of [
    ['process.exit(7);', 7],
    ['throw new Error("mine");', 1],
  ]) {
    const result = await child(`init(); ${BUSY} const x = bufferOf(ramp(5000)); busy(); vk.readAsync(x); vk.waitAsync(busy()); ${end}`);
    assert.equal(result.signal, null, result.stderr);
    assert.equal(result.code, code, result.stderr);
  }
});

test('no worker of libuv is held', async () => {
  const order = await childJson(
    `
    import { stat } from 'node:fs/promises';
    init(); ${BUSY}
    const order = [];
    const value = busy(100);
    const waits = Array.from({ length: 8 }, () => vk.waitAsync(value).then(() => order.push('wait')));
    await stat('.').then(() => order.push('stat'));
    await Promise.all(waits);
    process.stdout.write(JSON.stringify(order.slice(0, 2)));
  `,
    { env: { UV_THREADPOOL_SIZE: '1' } },
  );
  assert.deepEqual(order, ['stat', 'wait']);
});

test('destroy settles what is pending, and the next device starts anew', async () => {
  const result = await childJson(`
    init(); ${BUSY}
    const seen = [];
    for (let round = 0; round < 3; round++) {
      const x = bufferOf(ramp(5000), round % 2);
      const value = busy(20);
      const reads = [vk.readAsync(x), vk.readAsync(x, 0, 4), vk.waitAsync(value)];
      const controller = new AbortController();
      const given = vk.readAsync(x, 0, 400, { signal: controller.signal }).catch((error) => error.name);
      controller.abort();
      vk.destroy();
      assert.throws(() => vk.readBuffer(x), { code: 'ERR_HELIOS_NO_DEVICE' });
      init();
      forgetPipelines();
      const [all, one, nothing] = await Promise.all(reads);
      assert.deepEqual(bits(all), ramp(5000));
      assert.deepEqual(bits(one), ramp(1));
      assert.equal(nothing, undefined);
      seen.push(await given);
      const y = bufferOf(ramp(10, round));
      assert.deepEqual(bits(await vk.readAsync(y)), ramp(10, round));
    }
    process.stdout.write(JSON.stringify(seen));
  `);
  assert.deepEqual(result, ['AbortError', 'AbortError', 'AbortError']);
});

test('promises of workers settle in their workers', async () => {
  const x = bufferOf(ramp(5000), 0);
  const source = `
    init();
    const result = await vk.readAsync(data.x);
    assert.deepEqual(bits(result), ramp(5000));
    await vk.waitAsync(vk.dispatch(pipelineOf(programs.increment), [bufferOf(ramp(64))], 1, 1, 1, Uint32Array.of(64, 1)));
    post(result.length);
  `;
  const results = await Promise.all([work(source, { x }), work(source, { x }), vk.readAsync(x)]);
  assert.deepEqual(results.slice(0, 2), [[5000], [5000]]);
  sameWords(bits(results[2]), ramp(5000), 'main');
  vk.destroyBuffer(x);
});

test('a worker that ends with promises pending: no crash, and its blocks come back', async () => {
  const x = bufferOf(ramp(1 << 20), 0);
  await vk.waitAsync(busy(1));
  const before = leased();
  for (let round = 0; round < 3; round++) {
    const worker = startWorker(
      `
      init(); ${BUSY}
      busy(30);
      const before = vk.getAllocatorStats().readbackLeasedBytes;
      for (let i = 0; i < 10; i++) vk.readAsync(data.x).catch(() => {});
      post(vk.getAllocatorStats().readbackLeasedBytes - before);
      if (${round} === 0) process.exit(0);
    `,
      { x },
    );
    const ended = new Promise((resolve) => worker.once('exit', resolve));
    const taken = await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject));
    assert.ok(taken >= (10 * 4) << 20, `${taken} bytes`);
    if (round > 0) await worker.terminate();
    await ended;
    // Answered after everything that the worker asked for.
    await vk.waitAsync(vk.dispatch(pipelineOf(increment), [x], 1, 1, 1, Uint32Array.of(64, 1)));
    assert.ok(leased() <= before, `${leased()} bytes are out, ${before} before`);
  }
  vk.destroyBuffer(x);
});

test('readInto fills a view, from an offset', () => {
  const x = bufferOf(ramp(1000), 0);
  const y = bufferOf(ramp(1000), 1);
  for (const buffer of [x, y]) {
    const target = new Uint32Array(12).fill(7);
    vk.dispatch(pipelineOf(increment), [buffer], groupsOf(1000), 1, 1, Uint32Array.of(1000, 1));
    assert.equal(vk.readInto(buffer, target.subarray(1, 11), 40), undefined);
    sameWords(target, [7, ...ramp(10, 11), 7], 'a part of a view');
    const whole = new Float32Array(1000);
    vk.readInto(buffer, whole);
    sameWords(bits(whole), ramp(1000, 1), 'all');
    vk.readInto(buffer, target.buffer, 0);
    sameWords(target, ramp(12, 1), 'an ArrayBuffer');
    const bytes = new DataView(new ArrayBuffer(8), 1, 3);
    vk.readInto(buffer, bytes, 5);
    assert.deepEqual(
      [...new Uint8Array(bytes.buffer)],
      [0, 0, 0, 0, 3, 0, 0, 0].map((_, i) => (i >= 1 && i < 4 ? new Uint8Array(ramp(1000, 1).buffer)[5 + i - 1] : 0)),
      'odd bytes',
    );
    const shared = new Uint32Array(new SharedArrayBuffer(16));
    vk.readInto(buffer, shared, 4);
    sameWords(shared, ramp(4, 2), 'shared memory');
    vk.readInto(buffer, new Uint8Array(0), 4000);
    // The result of a read may be a target, too.
    const result = vk.readBuffer(buffer);
    vk.fillBuffer(buffer, 4000, 3);
    vk.readInto(buffer, result);
    sameWords(bits(result), new Uint32Array(1000).fill(3), 'an earlier result');
    vk.destroyBuffer(buffer);
  }
});

test('readInto: a target that does not fit, and arguments that are none', () => {
  const x = bufferOf(ramp(16));
  const target = new Uint32Array(17).fill(7);
  throws(() => vk.readInto(x, target), INVALID_ARGUMENT, ['readInto', 'target', 68, 64], [RangeError]);
  throws(() => vk.readInto(x, target.subarray(0, 16), 4), INVALID_ARGUMENT, ['readInto', 'target', 64], [RangeError]);
  throws(() => vk.readInto(x, target.subarray(0, 0), 65), INVALID_ARGUMENT, ['readInto', 'target', 65], [RangeError]);
  throws(() => vk.readInto(x, target, Number.MAX_SAFE_INTEGER), INVALID_ARGUMENT, ['readInto', 'target'], [RangeError]);
  for (const offset of [-1, 0.5, NaN, '0', null])
    throws(() => vk.readInto(x, target.subarray(0, 1), offset), INVALID_ARGUMENT, ['readInto', 'byteOffset']);
  for (const bad of [undefined, null, 5, 'text', [1], {}])
    throws(() => vk.readInto(x, bad), INVALID_ARGUMENT, ['readInto', 'target'], [TypeError]);
  const detached = new Uint32Array(4);
  structuredClone(detached, { transfer: [detached.buffer] });
  throws(() => vk.readInto(x, detached), INVALID_ARGUMENT, ['readInto', 'target', 'detached'], [TypeError]);
  throws(() => vk.readInto(-1, target), INVALID_HANDLE, ['readInto', 'buffer', -1], [RangeError]);
  sameWords(target, new Uint32Array(17).fill(7), 'the target is as it was');
  vk.destroyBuffer(x);
  throws(() => vk.readInto(x, target), INVALID_HANDLE, ['readInto', 'buffer', x], [RangeError]);
});
