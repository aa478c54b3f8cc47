// @ts-nocheck -- hooks and hostile functions that TypeScript does not follow.
/**
 * A panic inside the addon (HELIOS_TEST_PANIC names the place) is the end of the device, with its text in every later
 * error, and never that of the process; and what the runtime calls back may call the addon again.
 */
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { child, childJson } from './lib/child.mjs';

const lost = (place) => `(error) => {
  assert.equal(error.code, 'ERR_HELIOS_DEVICE_LOST', error.stack);
  assert.match(error.message, /panic: HELIOS_TEST_PANIC, in ${place}; this is a defect of helios-vk/);
  return true;
}`;

test('a place that there is not is an error, as for every variable', async () => {
  await childJson(
    `
    const wrong = {
      code: 'ERR_HELIOS_INVALID_ARGUMENT',
      argument: 'HELIOS_TEST_PANIC',
      message: /HELIOS_TEST_PANIC must be one of abort, completion, .*, got nowhere/,
    };
    assert.throws(() => vk.initDevice(), wrong);
    assert.throws(() => vk.listDevices(), wrong);
  `,
    { env: { HELIOS_TEST_PANIC: 'nowhere' } },
  );
});

for (const [place, thread] of [
  ['stream', '0'],
  ['stream', '1'],
  ['submit', '0'],
  ['submit', '1'],
]) {
  test(`a panic in ${place}, recording ${thread === '1' ? 'on a thread' : 'in the call'}: lost until destroy()`, async () => {
    await childJson(
      `
      init();
      const x = bufferOf(ramp(16), 0);
      const p = pipelineOf(programs.increment);
      const lost = ${lost(place)};
      const first = () => { vk.dispatch(p, [x], 1, 1, 1, Uint32Array.of(16, 1)); vk.waitIdle(); };
      assert.throws(first, lost);
      const calls = {
        createBuffer: () => vk.createBuffer(64), uploadBuffer: () => vk.uploadBuffer(x, ramp(16)), readBuffer: () => vk.readBuffer(x),
        destroyBuffer: () => vk.destroyBuffer(x), dispatch: first, batchBegin: () => vk.batchBegin(), getCompleted: () => vk.getCompleted(),
        waitTimeline: () => vk.waitTimeline(1), createPipeline: () => vk.createPipeline(programs.increment.spirv, 1, 8), waitIdle: () => vk.waitIdle(),
        graphBegin: () => vk.graphBegin(), initDevice: () => vk.initDevice(), watchNan: () => vk.watchNan(x),
        ${place === 'stream' ? 'getStats: () => vk.getStats(), memoryStats: () => vk.memoryStats(), setName: () => vk.setName(x, "x"),' : ''}
      };
      for (const [name, call] of Object.entries(calls)) assert.throws(call, lost, name);
      await assert.rejects(vk.readAsync(x), lost);
      await assert.rejects(vk.waitAsync(1), lost);
      vk.destroy();
      init();
      forgetPipelines();
      const y = bufferOf(ramp(16), 0);
      vk.dispatch(pipelineOf(programs.increment), [y], 1, 1, 1, Uint32Array.of(16, 1));
      assert.deepEqual(words(y), ramp(16, 1));
    `,
      { env: { HELIOS_TEST_PANIC: place, HELIOS_RECORD_THREAD: thread, HELIOS_REPORT_DIR: '0' } },
    );
  });
}

test('a panic while a promise is settled rejects it', async () => {
  await childJson(
    `
    init();
    const x = bufferOf(ramp(16), 0);
    await assert.rejects(vk.readAsync(x), { message: /HELIOS_TEST_PANIC, in settle/ });
    assert.deepEqual(bits(await vk.readAsync(x)), ramp(16));
  `,
    { env: { HELIOS_TEST_PANIC: 'settle' } },
  );
});

test('a panic in a listener leaves the process, and other promises', async () => {
  await childJson(
    `
    init();
    const x = bufferOf(ramp(16), 0);
    const given = new AbortController();
    const first = vk.readAsync(x, 0, 64, { signal: given.signal });
    given.abort();
    assert.deepEqual(bits(await first), ramp(16));
    const again = new AbortController();
    const second = vk.readAsync(x, 0, 64, { signal: again.signal });
    again.abort();
    await assert.rejects(second, { name: 'AbortError' });
  `,
    { env: { HELIOS_TEST_PANIC: 'abort' } },
  );
  await childJson(
    `
    init();
    const x = bufferOf(ramp(16), 0);
    vk.readAsync(x);
    assert.deepEqual(bits(await vk.readAsync(x)), ramp(16));
    process.exit(0);
  `,
    { env: { HELIOS_TEST_PANIC: 'completion' } },
  );
  // It strikes one of two listeners; the other, and one that comes later, are called all the same.
  const { code, signal, stdout, stderr } = await child(
    `
    init();
    vk.createBuffer(1 << 20);
    const called = [];
    const listen = (name) => vk.onMemoryPressure(1e-12, () => { called.push(name); });
    const subscriptions = [listen('first'), listen('second')];
    await until(() => called.length > 0);
    subscriptions.push(listen('third'));
    await until(() => called.includes('third'));
    for (const subscription of subscriptions) subscription.close();
    vk.waitIdle();
    process.stdout.write(JSON.stringify(called));
  `,
    { env: { HELIOS_TEST_PANIC: 'pressure' } },
  );
  assert.deepEqual([code, signal], [0, null], stderr);
  assert.match(stderr, /HELIOS_TEST_PANIC, in pressure/);
  assert.deepEqual([JSON.parse(stdout).length, JSON.parse(stdout)[1]], [2, 'third'], stdout);
});

test('async_hooks whose init calls the addon', async () => {
  await childJson(`
    import { createHook } from 'node:async_hooks';
    const seen = [];
    let depth = 0;
    let pending = [];
    let x;
    createHook({ init(id, type) {
      if (depth || x === undefined) return;
      depth++;
      try {
        seen.push(type);
        pending.push(vk.readAsync(x), vk.waitAsync(vk.uploadAsync(x, ramp(16))));
        vk.readBuffer(x);
      } finally { depth--; }
    } }).enable();
    init();
    x = bufferOf(ramp(16));
    // The first promise of the process makes what the others share.
    assert.deepEqual(bits(await vk.readAsync(x)), ramp(16));
    await vk.waitAsync(vk.uploadAsync(x, ramp(16)));
    const all = pending;
    x = undefined;
    for (const result of await Promise.all(all)) if (result) assert.deepEqual(bits(result), ramp(16));
    assert.ok(seen.includes('PROMISE') && seen.length > 2, seen.join());
    assert.ok(all.length > 4);
  `);
});

test('Error.prepareStackTrace that calls the addon, or throws, with HELIOS_STACKS=1', async () => {
  await childJson(
    `
    init();
    const x = bufferOf(ramp(16));
    let inside = 0;
    const calls = [];
    Error.prepareStackTrace = (error) => {
      if (inside++ === 0) calls.push(vk.readAsync(x), vk.waitAsync(0));
      inside--;
      return 'prepared';
    };
    const read = vk.readAsync(x);
    const wrong = vk.readAsync(-1);
    const results = await Promise.allSettled([read, wrong]);
    Error.prepareStackTrace = () => { throw new Error('hostile'); };
    const hostile = await Promise.allSettled([vk.readAsync(x), vk.readAsync(-1), vk.waitAsync(2 ** 50)]);
    Error.prepareStackTrace = undefined;
    assert.deepEqual([...results, ...hostile].map(({ status }) => status), ['fulfilled', 'rejected', 'fulfilled', 'rejected', 'rejected']);
    assert.equal(results[1].reason.code, 'ERR_HELIOS_INVALID_HANDLE');
    assert.equal(hostile[2].reason.code, 'ERR_HELIOS_INVALID_ARGUMENT');
    assert.deepEqual(bits(results[0].value), ramp(16));
    assert.ok(calls.length >= 4, 'it was called: ' + calls.length);
    for (const result of await Promise.all(calls)) if (result) assert.deepEqual(bits(result), ramp(16));
  `,
    { env: { HELIOS_STACKS: '1' } },
  );
});
