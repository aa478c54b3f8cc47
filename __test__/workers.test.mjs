// @ts-nocheck -- wrong arguments are passed on purpose; types/trainer-contract.ts checks the types.
import { before, test } from 'node:test';
import assert from 'node:assert/strict';
import { bufferOf, groupsOf, init, pipelineOf, ramp, scaled, vk, words } from './lib/addon.mjs';
import { child, childJson } from './lib/child.mjs';
import { sameWords } from './lib/expect.mjs';
import { increment } from './lib/programs.mjs';
import { startWorker, work } from './lib/work.mjs';

let info;
before(() => {
  info = init();
});

test('a worker sees the same device', async () => {
  const [seen] = await work('post(init());');
  assert.deepEqual(seen, info);
});

test('handles are shared between threads', async () => {
  const x = bufferOf(ramp(100));
  const pipeline = pipelineOf(increment);
  const [made, tv] = await work(
    `
    init();
    assert.deepEqual(words(data.x), ramp(100));
    const tv = vk.dispatch(data.pipeline, [data.x], 2, 1, 1, Uint32Array.of(100, 5));
    post(bufferOf(ramp(10, 3)));
    post(tv);
  `,
    { x, pipeline },
  );
  vk.waitTimeline(tv);
  sameWords(words(x), ramp(100, 5), 'x');
  sameWords(words(made), ramp(10, 3), 'a buffer of the worker outlives it');
  vk.destroyBuffer(made);
  vk.destroyBuffer(x);
});

test('a worker that ends with work in flight', async () => {
  const x = bufferOf(ramp(64), 0);
  await work(
    `
    init();
    for (let i = 0; i < 20; i++) vk.dispatch(pipelineOf(programs.increment), [data.x], 1, 1, 1, Uint32Array.of(64, 1));
    const own = bufferOf(ramp(64), 0);
    for (let i = 0; i < 20; i++) vk.dispatch(pipelineOf(programs.churn), [own, own], 1, 1, 1, Uint32Array.of(64, 65000));
    vk.uploadAsync(own, ramp(64));
  `,
    { x },
  );
  sameWords(words(x), ramp(64, 20), 'x');
  vk.destroyBuffer(x);
});

test('a worker that is terminated in the middle', async () => {
  const worker = startWorker(`
        init();
        const own = bufferOf(ramp(64), 0);
        const p = pipelineOf(programs.churn);
        post('working');
        for (;;) vk.dispatch(p, [own, own], 1, 1, 1, Uint32Array.of(64, 1000));
      `);
  await new Promise((resolve) => worker.once('message', resolve));
  await worker.terminate();
  const x = bufferOf(ramp(64));
  vk.dispatch(pipelineOf(increment), [x], 1, 1, 1, Uint32Array.of(64, 1));
  sameWords(words(x), ramp(64, 1), 'x');
  vk.waitIdle();
  vk.destroyBuffer(x);
});

test('25 workers that are terminated in the middle of their work leave nothing, but for what others have used', async () => {
  await childJson(`
    init();
    // What is made once.
    words(bufferOf(ramp(64), 0));
    const p = pipelineOf(programs.increment);
    const held = async () => {
      vk.waitIdle();
      // A thread of the addon gives the block of a read back; it need not be first.
      await until(() => vk.memoryStats().staging.readbackLeasedBytes === 0);
      vk.destroyBuffer(vk.createBuffer(4, 0));
      return { live: vk.memoryStats().live, allocated: vk.memoryStats().blocks.allocatedBytes };
    };
    const source = \`
      init();
      const own = Array.from({ length: 20 }, (_, i) => bufferOf(ramp(4096), i % 2));
      const used = bufferOf(ramp(64, 7), 0);
      const churn = pipelineOf(programs.churn);
      const increment = pipelineOf(programs.increment);
      vk.graphBegin();
      vk.dispatch(increment, [own[0]], 64, 1, 1, Uint32Array.of(4096, 1));
      vk.uploadAsync(own[1], ramp(4096));
      const graph = vk.graphEnd();
      vk.graphLaunch(graph);
      vk.readAsync(own[2]);
      const told = vk.createBuffer(4096, 0);
      vk.setName(told, 'told');
      // The graph keeps the memory of this one.
      vk.destroyBuffer(own[0]);
      post({ used, graph, increment, told });
      for (;;) vk.dispatch(churn, [own[3], own[3]], 1, 1, 1, Uint32Array.of(64, 1000));
    \`;
    let before;
    for (let i = 0; i < 26; i++) {
      const worker = startWorker(source);
      const { used, graph, increment, told } = await new Promise((resolve) => worker.once('message', resolve));
      assert.deepEqual(words(used), ramp(64, 7));
      await worker.terminate();
      assert.deepEqual(words(used), ramp(64, 7), 'what others have used lives on');
      assert.throws(() => vk.bufferBytes(told), { code: 'ERR_HELIOS_INVALID_HANDLE' });
      assert.throws(() => vk.graphLaunch(graph), { code: 'ERR_HELIOS_INVALID_HANDLE' });
      assert.throws(() => vk.dispatch(increment, [used], 1, 1, 1, Uint32Array.of(64, 1)), { code: 'ERR_HELIOS_INVALID_HANDLE' });
      vk.destroyBuffer(used);
      // The first leaves blocks that are kept for reuse.
      if (i === 0) before = await held();
      else assert.deepEqual(await held(), before, 'worker ' + i);
    }
    assert.equal(before.live.buffers, 1);
    const x = bufferOf(ramp(64));
    vk.dispatch(p, [x], 1, 1, 1, Uint32Array.of(64, 1));
    assert.deepEqual(words(x), ramp(64, 1));
  `);
});

test('a worker that fails leaves nothing; one that comes to its end leaves what it made', async () => {
  await childJson(`
    init();
    for (const [end, left] of [['', 1], ['process.exit(0)', 1], ['throw new Error("for a test")', 0], ['process.exit(3)', 0]]) {
      const before = vk.memoryStats().live.buffers;
      const worker = startWorker(\`init(); post(bufferOf(ramp(64, 3), 0)); await new Promise((resolve) => setTimeout(resolve, 10)); \${end}\`);
      const posted = [];
      worker.on('message', (handle) => posted.push(handle)).on('error', () => {});
      await new Promise((resolve) => worker.once('exit', resolve));
      assert.equal(vk.memoryStats().live.buffers, before + left, end);
      if (left > 0) assert.deepEqual(words(posted[0]), ramp(64, 3));
    }
  `);
});

test('tensors of workers go with them, however they end', async () => {
  await childJson(`
    init();
    const nn = ${JSON.stringify(new URL('../nn/index.mjs', import.meta.url).href)};
    const source = \`
      const { compile, full, nn, optim, F } = await import(data.nn);
      const model = new nn.Linear(8, 4);
      const opt = new optim.AdamW(model.parameters(), { lr: 0.1 });
      const step = compile((x) => { const loss = model.forward(x).square().mean(); loss.backward(); opt.step(); opt.zeroGrad(); return loss; });
      const kept = [];
      for (let i = 0; i < 3; i++) kept.push(step(full([2, 8], i)));
      kept.push(full([1000], 1).mul(2));
      await kept[0].item();
      post('at work');
      if (data.forever) for (let i = 0; ; i++) kept.push(step(full([2, 8], i)).add(1)), await kept.at(-1).item();
    \`;
    for (const forever of [true, false]) for (let i = 0; i < 3; i++) {
      const worker = startWorker(source, { nn, forever });
      const ended = new Promise((resolve, reject) => worker.once('exit', resolve).once('error', reject));
      await new Promise((resolve) => worker.once('message', resolve));
      if (forever) await worker.terminate();
      await ended;
      vk.waitIdle();
      assert.deepEqual(vk.memoryStats().live, { buffers: 0, bytes: 0 }, (forever ? 'terminated ' : 'ended ') + i);
    }
  `);
});

test('a worker that is terminated while it reads behind long work: it ends before that, and its block comes back', async (t) => {
  if (info.deviceTypeName !== 'cpu') return t.skip('work of a few seconds is not long enough on a GPU');
  await childJson(
    `
    init();
    const n = 1 << 15;
    const x = bufferOf(ramp(n), 0);
    const leased = () => vk.memoryStats().staging.readbackLeasedBytes;
    const busy = () => vk.dispatch(pipelineOf(programs.churn), [x, x], n / 64, 1, 1, Uint32Array.of(n, 60000));
    vk.waitTimeline(busy());
    const start = performance.now();
    vk.waitTimeline(busy());
    // Three seconds, where a wait looks twice in one.
    const count = Math.ceil(3000 / (performance.now() - start));
    for (const read of ['vk.readBuffer(data.x)', 'vk.readInto(data.x, new Uint32Array(1 << 15))']) {
      let last;
      for (let i = 0; i < count; i++) last = busy();
      const worker = startWorker(\`init(); post('reads'); \${read};\`, { x });
      await new Promise((resolve) => worker.once('message', resolve));
      await until(() => leased() > 0);
      await worker.terminate();
      assert.ok(vk.getCompleted() < last, 'the worker waited for all of it');
      assert.equal(leased(), 4 * n, 'the device still writes there');
      vk.waitIdle();
      await until(() => leased() === 0);
    }
  `,
    { env: { HELIOS_TEST_STAGED: '1' } },
  );
});

const HAMMER = `
  init();
  const push = Uint32Array.of(1000, 1);
  const p = pipelineOf(programs.increment);
  const lists = [];
  const own = bufferOf(new Uint32Array(1000), data.index % 2);
  let expected = 0;
  for (let i = 0; i < data.rounds; i++) {
    vk.dispatch(p, [own], 16, 1, 1, push);
    vk.dispatch(p, [data.shared[data.index]], 16, 1, 1, push);
    expected++;
    if (i % 7 === 0) {
      const temporary = vk.createBuffer(4000 * (1 + i % 5), 0);
      vk.fillBuffer(temporary, 4000, i);
      vk.uploadAsync(temporary, ramp(100), 40);
      const back = words(temporary);
      assert.equal(back[0], i); assert.equal(back[10], 0); assert.equal(back[109], 99); assert.equal(back[110], i);
      vk.destroyBuffer(temporary);
    }
    if (i % 11 === 0) assert.deepEqual(words(own), new Uint32Array(1000).fill(expected));
    if (i % 13 === 0) vk.waitTimeline(vk.getCompleted());
    if (i % 17 === 0) try { vk.readBuffer(-1); } catch (error) { assert.equal(error.code, 'ERR_HELIOS_INVALID_HANDLE'); }
  }
  assert.deepEqual(words(own), new Uint32Array(1000).fill(expected));
  post(expected);
`;

test('two workers and the main thread hammer the device at once', async () => {
  const shared = [0, 1, 2].map(() => bufferOf(new Uint32Array(1000), 0));
  const rounds = scaled(300);
  const workers = [0, 1].map((index) => work(HAMMER, { shared, rounds, index }));
  let expected = 0;
  const tick = () => new Promise((resolve) => setImmediate(resolve));
  for (let i = 0; i < rounds; i++) {
    vk.dispatch(pipelineOf(increment), [shared[2]], groupsOf(1000), 1, 1, Uint32Array.of(1000, 1));
    expected++;
    if (i % 10 === 0) await tick();
  }
  const results = await Promise.all(workers);
  assert.deepEqual(results, [[rounds], [rounds]]);
  for (const buffer of shared) {
    sameWords(words(buffer), new Uint32Array(1000).fill(rounds), 'shared');
    vk.destroyBuffer(buffer);
  }
  assert.equal(expected, rounds);
});

test('threads that wait for a busy device do not hold up the others', async () => {
  const busy = bufferOf(ramp(64), 0);
  const waiting = work(
    `
    init();
    let tv;
    for (let i = 0; i < ${scaled(300)}; i++) tv = vk.dispatch(pipelineOf(programs.churn), [data.busy, data.busy], 1, 1, 1, Uint32Array.of(64, 65000));
    post(tv);
    vk.waitTimeline(tv);
    vk.readBuffer(data.busy);
  `,
    { busy },
  );
  // Calls that need no GPU go on meanwhile; those that do come in order.
  for (let i = 0; i < 100; i++) {
    const x = vk.createBuffer(1024);
    vk.destroyBuffer(x);
    vk.getCompleted();
    await new Promise((resolve) => setImmediate(resolve));
  }
  await waiting;
  vk.destroyBuffer(busy);
});

test('batches of two threads do not mix', async () => {
  // Each thread has a batch of its own, or the second batchBegin is refused; either way no dispatch
  // is lost or runs in the other's place.
  const x = bufferOf(ramp(64));
  vk.batchBegin();
  vk.batchDispatch(pipelineOf(increment), [x], 1, 1, 1, Uint32Array.of(64, 1));
  const [outcome] = await work(`
    init();
    let outcome = 'own';
    try {
      vk.batchBegin();
      const y = bufferOf(ramp(64));
      vk.batchDispatch(pipelineOf(programs.increment), [y], 1, 1, 1, Uint32Array.of(64, 7));
      vk.waitTimeline(vk.batchSubmit());
      assert.deepEqual(words(y), ramp(64, 7));
    } catch (error) {
      if (error.code !== 'ERR_HELIOS_INVALID_BATCH') throw error;
      outcome = 'refused';
    }
    post(outcome);
  `);
  assert.ok(['own', 'refused'].includes(outcome));
  vk.batchDispatch(pipelineOf(increment), [x], 1, 1, 1, Uint32Array.of(64, 1));
  assert.ok(vk.batchSubmit() > 0);
  sameWords(words(x), ramp(64, 2), 'x');
  vk.destroyBuffer(x);
});

test('destroy in one thread: the others get errors, not crashes', async () => {
  await childJson(`
    init();
    const source = \`
      init();
      const own = bufferOf(ramp(1000), 0);
      const p = pipelineOf(programs.increment);
      post('working');
      try {
        for (;;) {
          vk.dispatch(p, [own], 16, 1, 1, Uint32Array.of(1000, 1));
          vk.readBuffer(own);
          vk.destroyBuffer(vk.createBuffer(4096));
        }
      } catch (error) { post(error.code); }
    \`;
    const codes = [];
    const workers = [0, 1].map(() => startWorker(source));
    const ended = workers.map((worker) => new Promise((resolve, reject) => worker.on('exit', resolve).on('error', reject)));
    await Promise.all(workers.map((worker) => new Promise((resolve) => worker.once('message', resolve))));
    workers.forEach((worker) => worker.on('message', (code) => codes.push(code)));
    // Both are in the middle of their work.
    const from = vk.getCompleted();
    await until(() => vk.getCompleted() >= from + 20);
    vk.destroy();
    await Promise.all(ended);
    for (const code of codes) assert.equal(code, 'ERR_HELIOS_NO_DEVICE');
    assert.equal(codes.length, 2);
    init();
    forgetPipelines();
    const x = bufferOf(ramp(16));
    vk.dispatch(pipelineOf(programs.increment), [x], 1, 1, 1, Uint32Array.of(16, 1));
    assert.deepEqual(words(x), ramp(16, 1));
  `);
});

test('the process ends while a worker is at work', async () => {
  await childJson(`
    init();
    const source = \`
      init();
      const own = bufferOf(ramp(64), 0);
      const p = pipelineOf(programs.churn);
      post('working');
      for (;;) vk.dispatch(p, [own, own], 1, 1, 1, Uint32Array.of(64, 1000));
    \`;
    const worker = startWorker(source);
    await new Promise((resolve) => worker.once('message', resolve));
    process.exit(0);
  `);
});

test('only a worker uses the addon; the main thread never loads it', async () => {
  const { code, stderr } = await child(`
    const source = "init(); const x = bufferOf(ramp(64)); words(x); vk.dispatch(pipelineOf(programs.churn), [x, x], 1, 1, 1, Uint32Array.of(64, 65000));";
    for (let i = 0; i < 3; i++) {
      await new Promise((resolve, reject) => startWorker(source).on('exit', resolve).on('error', reject));
    }
  `);
  assert.equal(code, 0, stderr);
});

test('lists, push constants and data in shared memory that a worker writes meanwhile', async () => {
  await childJson(
    `
    import { Worker } from 'node:worker_threads';
    init();
    const x = bufferOf(ramp(64), 0);
    const p = pipelineOf(programs.increment);
    const shared = new SharedArrayBuffer(4096);
    // A record of one buffer: pipeline, n and flags, gX, mask, buffer, two words to push.
    const record = Uint32Array.of(p, 1, 1, 1, x, 64, 1);
    const list = new Uint32Array(shared, 0, record.length);
    list.set(record);
    const source = \`
      import { workerData, parentPort } from 'node:worker_threads';
      const { shared, record } = workerData;
      const words = new Uint32Array(shared);
      parentPort.postMessage('at work');
      for (let i = 0; words[1000] === 0; i++) {
        const at = i % record.length;
        words[at] = [0, 0xffffffff, 3, 65536][i & 3] + (i & 15);
        words[100 + i % 64] = i;
        words[at] = record[at];
      }
    \`;
    const worker = new Worker(source, { eval: true, workerData: { shared, record } });
    await new Promise((resolve) => worker.once('message', resolve));
    const seen = { run: 0, refused: 0 };
    const ours = (call) => {
      try { call(); seen.run++; } catch (error) { assert.match(error.code, /^ERR_HELIOS_(INVALID|UNSUPPORTED)/); seen.refused++; }
    };
    for (let round = 0; round < 200 || seen.run === 0 || seen.refused === 0; round++) {
      for (let i = 0; i < 50; i++) {
        ours(() => vk.batchExecuteAll(list, 1));
        ours(() => vk.dispatch(p, [x], 1, 1, 1, new Uint32Array(shared, 20, 2)));
        ours(() => vk.uploadBuffer(x, new Uint32Array(shared, 400, 64)));
        ours(() => vk.createPipeline(new Uint32Array(shared, 0, 64), 1, 8));
      }
      vk.waitIdle();
    }
    new Uint32Array(shared)[1000] = 1;
    await new Promise((resolve) => worker.once('exit', resolve));
    assert.ok(seen.run > 0 && seen.refused > 0, JSON.stringify(seen));
    vk.uploadBuffer(x, ramp(64));
    list.set(record);
    vk.batchExecuteAll(list, 1);
    assert.deepEqual(words(x), ramp(64, 1));
  `,
    { timeout: 600_000 },
  );
});
