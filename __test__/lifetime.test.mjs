// @ts-nocheck -- wrong arguments are passed on purpose; types/trainer-contract.ts checks the types.
/** The device's life: before initDevice, after destroy, again, and process exits of every kind. */
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { child, childJson } from './lib/child.mjs';

/** Every call but initDevice, with arguments that are right as long as the device lives. */
const CALLS = `
  const calls = {
    createBuffer: () => vk.createBuffer(64),
    uploadBuffer: () => vk.uploadBuffer(x, ramp(16)),
    uploadAsync: () => vk.uploadAsync(x, ramp(16)),
    fillBuffer: () => vk.fillBuffer(x, 64, 0),
    readBuffer: () => vk.readBuffer(x),
    destroyBuffer: () => vk.destroyBuffer(x),
    createPipeline: () => vk.createPipeline(programs.increment.spirv, 1, 8),
    destroyPipeline: () => vk.destroyPipeline(p),
    dispatch: () => vk.dispatch(p, [x], 1, 1, 1, Uint32Array.of(16, 1)),
    batchBegin: () => vk.batchBegin(),
    batchDispatch: () => vk.batchDispatch(p, [x], 1, 1, 1, Uint32Array.of(16, 1)),
    batchDispatchMany: () => vk.batchDispatchMany(new ArrayBuffer(0), 0),
    batchSubmit: () => vk.batchSubmit(),
    batchExecuteAll: () => vk.batchExecuteAll(new ArrayBuffer(0), 0),
    batchExecuteAllProfiled: () => vk.batchExecuteAllProfiled(new ArrayBuffer(0), 0),
    waitTimeline: () => vk.waitTimeline(1),
    getCompleted: () => vk.getCompleted(),
    gpuTime: () => vk.gpuTime(p, [x], 1, 1, 1, Uint32Array.of(16, 1)),
    waitIdle: () => vk.waitIdle(),
    dgcSetup: () => vk.dgcSetup(p, 8, 1),
    dgcGetCommandBuffer: () => vk.dgcGetCommandBuffer(),
    dgcExecute: () => vk.dgcExecute(1),
    dgcGetBufferAddress: () => vk.dgcGetBufferAddress(x),
    batchExecuteAllDGC: () => vk.batchExecuteAllDGC(new ArrayBuffer(28), 1),
  };
  const allFail = (pattern) => {
    for (const [name, call] of Object.entries(calls)) {
      assert.throws(call, (error) => {
        assert.ok(error instanceof Error);
        assert.equal(error.code, 'ERR_HELIOS_NO_DEVICE', name + ': ' + error.message);
        assert.match(error.message, pattern);
        assert.ok(error.message.includes(name), error.message + ' names ' + name);
        return true;
      }, name);
    }
  };
`;

test('before initDevice every call says that there is no device yet', async () => {
  await childJson(`
    const [x, p] = [0, 0];
    ${CALLS}
    allFail(/initDevice/);
    vk.destroy(); // nothing to release, nothing to complain about
    allFail(/initDevice/);
    init();
  `);
});

test('after destroy every call says that the device is gone; initDevice brings a new one', async () => {
  await childJson(`
    const info = init();
    let x = bufferOf(ramp(16));
    let p = pipelineOf(programs.increment);
    vk.dispatch(p, [x], 1, 1, 1, Uint32Array.of(16, 1));
    assert.equal(vk.destroy(), undefined);
    ${CALLS}
    allFail(/destroy|gone|initDevice/);
    vk.destroy();
    allFail(/destroy|gone|initDevice/);
    assert.deepEqual(init(), info);
    // Handles of the old device are dead on the new one.
    for (const name of ['readBuffer', 'destroyBuffer', 'dispatch']) {
      assert.throws(calls[name], (error) => error.code === 'ERR_HELIOS_INVALID_HANDLE', name);
    }
    forgetPipelines();
    x = bufferOf(ramp(16));
    p = pipelineOf(programs.increment);
    calls.dispatch();
    assert.deepEqual(words(x), ramp(16, 1));
  `);
});

test('init and destroy, many times over', async () => {
  await childJson(`
    for (let round = 0; round < 10; round++) {
      init();
      forgetPipelines();
      const x = bufferOf(ramp(1000), round % 2);
      const p = pipelineOf(programs.increment);
      for (let i = 0; i < 10; i++) vk.dispatch(p, [x], 16, 1, 1, Uint32Array.of(1000, 1));
      if (round % 3) assert.deepEqual(words(x), ramp(1000, 10));
      if (round % 2) vk.batchBegin(); // an open batch dies with the device
      vk.destroy();
    }
    init();
    assert.throws(() => vk.batchSubmit(), (error) => error.code === 'ERR_HELIOS_INVALID_BATCH');
  `);
});

test('devices of one environment use one Vulkan instance, a changed environment or a loss brings a new one', async (t) => {
  // The loader looks for drivers as it makes an instance, and says so.
  const searches = async (/** @type {string} */ source, env = {}) => {
    const { code, stderr } = await child(source, { env: { VK_LOADER_DEBUG: 'driver', HELIOS_REPORT_DIR: '0', ...env } });
    assert.equal(code, 0, stderr);
    return stderr.split('Searching for driver manifest files').length - 1;
  };
  const cycles = (/** @type {number} */ count) => `
    for (let i = 0; i < ${count}; i++) {
      init();
      vk.destroy();
      if (i % 3 === 0) vk.listDevices();
    }
  `;
  const one = await searches(cycles(1));
  if (one === 0) return t.skip('the loader does not say what it does');
  assert.equal(await searches(cycles(12)), one);
  // Each of these makes a second one, for which the loader searches at least once.
  assert.ok((await searches(`init(); vk.destroy(); process.env.VK_LOADER_LAYERS_DISABLE = 'none*'; ${cycles(3)}`)) > one);
  assert.ok((await searches(cycles(3), { HELIOS_TEST_NEW_INSTANCES: '1' })) > one);
  const lost = `
    init();
    assert.throws(() => { vk.fillBuffer(vk.createBuffer(64), 64, 1); vk.waitIdle(); }, { code: 'ERR_HELIOS_DEVICE_LOST' });
    vk.destroy();
  `;
  assert.ok((await searches(lost + cycles(3), { HELIOS_TEST_LOSE_DEVICE: '1,0' })) > one);
});

test('destroy with work in flight waits for it or gives it up, and never crashes', async () => {
  await childJson(`
    for (let round = 0; round < 3; round++) {
      init();
      forgetPipelines();
      const x = bufferOf(ramp(64), 0);
      for (let i = 0; i < 20; i++) vk.dispatch(pipelineOf(programs.churn), [x, x], 1, 1, 1, Uint32Array.of(64, 65000));
      vk.uploadAsync(x, ramp(64));
      vk.destroyBuffer(x);
      vk.destroy();
    }
  `);
});

test('destroy gives the memory back', async () => {
  const [first, last] = await childJson(`
    const sizes = [];
    for (let round = 0; round < 12; round++) {
      init();
      const buffers = Array.from({ length: 8 }, () => vk.createBuffer(8 << 20, 0));
      buffers.forEach((buffer) => vk.fillBuffer(buffer, 8 << 20, round));
      vk.waitIdle();
      vk.destroy();
      sizes.push(process.memoryUsage().rss / 2 ** 20);
    }
    process.stdout.write(JSON.stringify([sizes[2], sizes.at(-1)]));
  `);
  // Nine more rounds of 64 MiB each.
  assert.ok(last - first < 300, `resident memory grew from ${first} to ${last} MiB`);
});

const BUSY = `
  init();
  const x = bufferOf(ramp(64), 0);
  for (let i = 0; i < 30; i++) {
    vk.batchBegin();
    vk.batchDispatch(pipelineOf(programs.churn), [x, x], 1, 1, 1, Uint32Array.of(64, 65000));
    vk.batchSubmit();
  }
`;
for (const [name, end, code] of [
  ['falls off its end', '', 0],
  ['calls process.exit(0)', 'process.exit(0);', 0],
  ['calls process.exit(3)', 'process.exit(3);', 3],
  [
    'exits with an open batch',
    'vk.batchBegin(); vk.batchDispatch(pipelineOf(programs.churn), [x, x], 1, 1, 1, Uint32Array.of(64, 1000)); process.exit(0);',
    0,
  ],
  [
    'exits with uploads in flight',
    'const big = vk.createBuffer(32 << 20, 0); vk.uploadAsync(big, new Uint8Array(32 << 20)); process.exit(0);',
    0,
  ],
  ['exits from an exit handler that still reads', 'process.on("exit", () => { words(x); });', 0],
  ['destroys the device at exit', 'process.on("exit", () => vk.destroy());', 0],
  ['throws', 'throw new Error("an error nobody catches");', 1],
]) {
  test(`a process with work in flight that ${name} ends with code ${code}`, async () => {
    const result = await child(BUSY + end);
    assert.equal(result.signal, null, result.stderr);
    assert.equal(result.code, code, result.stderr);
  });
}

test('a process ends by itself when nothing is left to do', async () => {
  const result = await child('init(); bufferOf(ramp(64));');
  assert.deepEqual([result.code, result.signal], [0, null], result.stderr);
});

test('SIGINT and SIGTERM end a busy process at once', async () => {
  for (const signal of ['SIGINT', 'SIGTERM']) {
    const result = await child(`${BUSY}
      setInterval(() => {}, 1000);
      setTimeout(() => process.kill(process.pid, '${signal}'), 20);
    `);
    assert.equal(result.signal, signal, result.stderr);
  }
});

test('an error of the addon is caught like any other, and can be printed', async () => {
  const result = await child(`
    init();
    try { vk.readBuffer(-1); } catch (error) { console.log(error.stack); console.log(JSON.stringify(Object.keys(error))); }
    await Promise.reject(1).catch(() => {});
    process.on('uncaughtException', (error) => { console.log('caught ' + error.code); });
    vk.readBuffer(-1);
  `);
  assert.equal(result.code, 0, result.stderr);
  assert.match(result.stdout, /readBuffer/);
  assert.match(result.stdout, /caught ERR_HELIOS_INVALID_HANDLE/);
});

test('no handle and no timeline value is given out again by a later device', async () => {
  await childJson(`
    const handles = new Set();
    const gone = { buffers: [], pipelines: [], graphs: [] };
    let last = 0;
    const push = Uint32Array.of(16, 1);
    for (let round = 0; round < 6; round++) {
      init();
      for (const { buffers: [b], pipelines: [p], graphs: [g] } of round ? [gone] : []) {
        const [live, kernel] = [bufferOf(ramp(16)), vk.createPipeline(programs.increment.spirv, 1, 8)];
        const calls = {
          uploadBuffer: () => vk.uploadBuffer(b, ramp(16)), uploadAsync: () => vk.uploadAsync(b, ramp(16)),
          fillBuffer: () => vk.fillBuffer(b, 64, 0), copyFrom: () => vk.copyBuffer(b, live), copyTo: () => vk.copyBuffer(live, b),
          readBuffer: () => vk.readBuffer(b), readInto: () => vk.readInto(b, new Uint32Array(16)), destroyBuffer: () => vk.destroyBuffer(b),
          watchNan: () => vk.watchNan(b), exportBuffer: () => vk.exportBuffer(b), setName: () => vk.setName(b, 'x'), address: () => vk.dgcGetBufferAddress(b),
          destroyPipeline: () => vk.destroyPipeline(p), dispatch: () => vk.dispatch(p, [live], 1, 1, 1, push), dispatchBuffer: () => vk.dispatch(kernel, [b], 1, 1, 1, push),
          gpuTime: () => vk.gpuTime(p, [live], 1, 1, 1, push), setPipelineName: () => vk.setName(p, 'x', 'pipeline'), dgcSetup: () => vk.dgcSetup(p, 8, 1),
          graphLaunch: () => vk.graphLaunch(g), graphDestroy: () => vk.graphDestroy(g),
          list: () => vk.batchExecuteAll(Int32Array.of(p, 1, 1, 1, live, 16, 1).buffer, 1),
        };
        for (const [name, call] of Object.entries(calls)) assert.throws(call, { code: 'ERR_HELIOS_INVALID_HANDLE' }, name);
        await assert.rejects(vk.readAsync(b), { code: 'ERR_HELIOS_INVALID_HANDLE' });
        assert.deepEqual(words(live), ramp(16), 'nothing was touched');
        // What an earlier device has done is done.
        vk.waitTimeline(last);
        assert.ok(vk.getCompleted() >= last);
      }
      const made = { buffers: [0, 1, 2].map(() => bufferOf(ramp(16))), pipelines: [0, 1].map(() => vk.createPipeline(programs.increment.spirv, 1, 8)), graphs: [] };
      vk.graphBegin();
      vk.dispatch(made.pipelines[0], [made.buffers[0]], 1, 1, 1, push);
      made.graphs.push(vk.graphEnd());
      for (const [kind, list] of Object.entries(made)) for (const handle of list) {
        assert.ok(!handles.has(kind + handle), kind + ' handle ' + handle + ' a second time');
        handles.add(kind + handle);
      }
      for (const value of [vk.dispatch(made.pipelines[0], [made.buffers[0]], 1, 1, 1, push), vk.uploadAsync(made.buffers[1], ramp(4)), vk.graphLaunch(made.graphs[0])]) {
        assert.ok(value > last, value + ' after ' + last);
        last = value;
      }
      vk.destroyBuffer(made.buffers.pop());
      Object.assign(gone, made);
      vk.destroy();
      vk.destroy();
    }
  `);
});

test('the memory of dgcGetCommandBuffer is that of the device at hand', async (t) => {
  const { skipped } = await childJson(`
    let old, skipped = false;
    for (let round = 0; round < 2 && !skipped; round++) {
      init();
      const { spirv, pushBytes } = programs.addByAddress;
      if (!vk.dgcSetup(vk.createPipeline(spirv, 0, pushBytes), pushBytes, 4)) { skipped = true; break; }
      const commands = vk.dgcGetCommandBuffer();
      assert.equal(vk.dgcGetCommandBuffer(), commands);
      assert.notEqual(commands, old);
      old = commands;
      vk.destroy();
    }
    process.stdout.write(JSON.stringify({ skipped }));
  `);
  if (skipped) t.skip('no device addresses');
});
