/**
 * Reads made ahead change no result. They happen where the host does not see device memory; here a test
 * switch hides it, so each test runs in a process of its own.
 */
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { scaled } from './lib/addon.mjs';
import { childJson } from './lib/child.mjs';

const STAGED = { HELIOS_TEST_STAGED: '1' };

/** A program of equal steps: buffers made anew, written in order, and read in another. */
const STEPS = `
  init();
  const N = 1000;
  const increment = (buffer, add) => [pipelineOf(programs.increment), [buffer], groupsOf(N), 1, 1, Uint32Array.of(N, add)];
  const run = (buffer, add) => vk.batchDispatch(...increment(buffer, add));
  const same = (buffer, value) => assert.deepEqual(words(buffer), new Uint32Array(N).fill(value));
  const zero = new Uint32Array(N);
  /** One step: 8 results and a small one. 'between' is called between the work and the reads, 'within' before read i. */
  function step(k, { between, within } = {}) {
    const results = Array.from({ length: 8 }, () => bufferOf(zero, 0));
    const loss = bufferOf(zero, 0);
    vk.batchBegin();
    results.forEach((buffer, i) => run(buffer, 100 * k + i));
    run(loss, k);
    vk.waitTimeline(vk.batchSubmit());
    const add = new Map();
    between?.(results, add);
    same(loss, k);
    for (const i of [3, 1, 0, 2, 7, 6, 5, 4]) {
      within?.(i, results, add);
      same(results[i], 100 * k + i + (add.get(i) ?? 0));
    }
    for (const buffer of [...results, loss]) vk.destroyBuffer(buffer);
  }
  const counts = () => { const { reads, readsAhead, unreadAhead } = vk.getStats(); return [reads, readsAhead, unreadAhead]; };
`;

for (const thread of ['0', '1']) {
  const env = { ...STAGED, HELIOS_RECORD_THREAD: thread };

  test(`what each step reads is copied ahead from the third step on (recording thread: ${thread})`, async () => {
    const all = await childJson(`${STEPS}
      const all = [];
      for (let k = 1; k <= 6; k++) { step(k); all.push(counts()); }
      process.stdout.write(JSON.stringify(all));
    `, { env });
    // The first step has nothing before it. Once as before, the reads behind the first are likely; twice, the
    // first is as well.
    assert.deepEqual(all, [[9, 0, 0], [18, 0, 0], [27, 8, 0], [36, 17, 0], [45, 26, 0], [54, 35, 0]]);
  });

  test(`a write overtakes a copy made ahead (recording thread: ${thread})`, async () => {
    await childJson(`${STEPS}
      for (let k = 1; k <= 4; k++) step(k);
      const writes = {
        dispatch: (buffer) => { vk.batchBegin(); run(buffer, 7); vk.batchSubmit(); return 7; },
        'dispatch without a wait': (buffer) => { vk.dispatch(...increment(buffer, 7)); return 7; },
        upload: (buffer, value) => { vk.uploadBuffer(buffer, new Uint32Array(N).fill(value + 9)); return 9; },
        fill: (buffer, value) => { vk.fillBuffer(buffer, 4 * N, value + 5); return 5; },
        copy: (buffer, value) => {
          const from = bufferOf(new Uint32Array(N).fill(value + 3), 0);
          vk.copyBuffer(from, buffer, 4 * N);
          vk.destroyBuffer(from);
          return 3;
        },
      };
      let k = 5;
      for (const write of Object.values(writes)) {
        // Before all reads, and in their middle, of the buffer that is read next or later.
        step(k, { between: (results, add) => add.set(0, write(results[0], 100 * k)) });
        step(++k);
        step(++k);
        for (const [at, which] of [[1, 1], [0, 7], [0, 0], [2, 2], [7, 4], [4, 4]]) {
          step(++k, { within: (i, results, add) => { if (i === at) add.set(which, write(results[which], 100 * k + which)); } });
        }
        k++;
      }
    `, { env });
  });

  test(`a graph and device addresses overtake copies made ahead (recording thread: ${thread})`, async () => {
    await childJson(`${STEPS}
      for (let k = 1; k <= 4; k++) step(k);
      let graph;
      step(5, {
        between: (results) => {
          vk.graphBegin();
          vk.dispatch(...increment(results[2], 11));
          graph = vk.graphEnd();
        },
        within: (i, results, add) => {
          if (i !== 2) return;
          vk.graphLaunch(graph);
          add.set(2, 11);
        },
      });
      vk.graphDestroy(graph);
      for (let k = 6; k <= 8; k++) step(k);
      if (!vk.initDevice().hasDGC) process.exit(0);
      vk.dgcSetup(pipelineOf(programs.addByAddress), programs.addByAddress.pushBytes, 64);
      const [a, b] = [bufferOf(zero, 0), bufferOf(new Uint32Array(N).fill(5), 0)];
      for (let k = 9; k <= 12; k++) step(k);
      step(13, { within: (i, results, add) => {
        if (i !== 2) return;
        vk.batchExecuteAllDGC(Int32Array.of(a, b, results[2], N, groupsOf(N), 1, 1).buffer, 1);
        add.set(2, 5 - 1302);
      } });
      for (let k = 14; k <= 16; k++) step(k);
    `, { env });
  });
}

test('a buffer that is destroyed and made again is not the one that was copied', async () => {
  await childJson(`${STEPS}
    for (let k = 1; k <= 4; k++) step(k);
    step(5, { within: (i, results, add) => {
      if (i !== 0) return;
      const old = results[0];
      vk.destroyBuffer(old);
      // Slots are reused oldest first, so in time this one is.
      const passed = [];
      const slot = (handle) => handle & 0xfffff;
      while (slot(results[0] = vk.createBuffer(4 * N, 0)) !== slot(old)) passed.push(results[0]);
      passed.forEach((handle) => vk.destroyBuffer(handle));
      assert.notEqual(results[0], old);
      vk.uploadBuffer(results[0], new Uint32Array(N).fill(77));
      add.set(0, 77 - 500);
    } });
    for (let k = 6; k <= 8; k++) step(k);
  `, { env: STAGED });
});

test('copies that nobody reads are few, and go', async () => {
  const [unread, out] = await childJson(`${STEPS}
    const big = 4 << 20;
    const buffers = Array.from({ length: 12 }, () => vk.createBuffer(big, 0));
    /** Twelve results, of which so many are read. */
    const burst = (count, k) => {
      // Large copies are made ahead where a block is idle.
      globalThis.gc();
      buffers.forEach((buffer, i) => vk.fillBuffer(buffer, big, 100 * k + i));
      for (let i = 0; i < count; i++) assert.equal(bits(vk.readBuffer(buffers[i]))[big / 4 - 1], 100 * k + i);
    };
    for (let k = 1; k <= 4; k++) burst(12, k);
    const before = vk.getStats().unreadAhead;
    // The burst after it finds that the rest is not wanted.
    for (let k = 5; k <= 8; k++) burst(2, k);
    const unread = vk.getStats().unreadAhead - before;
    // Nothing is on its way any more: what is out is JavaScript's.
    globalThis.gc();
    await new Promise((resolve) => setTimeout(resolve, 20));
    globalThis.gc();
    vk.readBuffer(buffers[0]);
    const { readbackLeasedBytes } = vk.getAllocatorStats();
    process.stdout.write(JSON.stringify([unread, readbackLeasedBytes / big]));
  `, { env: STAGED, nodeArgs: ['--expose-gc'] });
  // At most 16 MiB at a time, and once.
  assert.ok(unread > 0 && unread <= 4, `${unread} copies for nothing`);
  assert.ok(out <= 2, `${out} results out`);
});

test('what begins to look at memory ends reading ahead', async () => {
  await childJson(`${STEPS}
    const begins = {
      watch: (other) => vk.watchNan(other),
      profile: () => { const session = vk.profileStart(); return { close: () => session.stop() }; },
    };
    let k = 1;
    const nan = bufferOf(new Float32Array(N), 0);
    for (const begin of Object.values(begins)) {
      for (let i = 0; i < 4; i++) step(k++);
      let end;
      step(k++, { within: (i) => {
        if (i !== 2) return;
        assert.ok(vk.getAllocatorStats().readbackAheadBytes > 0);
        end = begin(nan);
      } });
      assert.equal(vk.getAllocatorStats().readbackAheadBytes, 0);
      const before = counts()[1];
      step(k++);
      step(k++);
      assert.equal(counts()[1], before);
      end.close();
    }
    for (let i = 0; i < 5; i++) step(k++);
    assert.ok(counts()[1] > 2 * 13 + 9);
  `, { env: STAGED });
});

test('with HELIOS_READ_AHEAD=0 nothing is copied ahead', async () => {
  const all = await childJson(`${STEPS}
    for (let k = 1; k <= 4; k++) step(k);
    process.stdout.write(JSON.stringify(counts()));
  `, { env: { ...STAGED, HELIOS_READ_AHEAD: '0' } });
  assert.deepEqual(all, [36, 0, 0]);
});

test('values of copies made ahead are nobody\'s', async () => {
  await childJson(`${STEPS}
    const x = bufferOf(zero, 0);
    for (let k = 1; k <= 20; k++) {
      vk.batchBegin();
      run(x, 1);
      const value = vk.batchSubmit();
      assert.throws(() => vk.waitTimeline(value + 1), { code: 'ERR_HELIOS_INVALID_ARGUMENT' });
      vk.waitTimeline(value);
      assert.throws(() => vk.waitTimeline(value + 1), { code: 'ERR_HELIOS_INVALID_ARGUMENT' });
      assert.equal(vk.getCompleted(), value);
      same(x, k);
    }
    assert.ok(counts()[1] >= 16, 'made ahead: ' + counts()[1]);
  `, { env: STAGED });
});

const RANDOM_STEPS = `
  import { Twin, setUpDgc } from '${new URL('lib/twin.mjs', import.meta.url)}';
  import { Random } from '${new URL('lib/random.mjs', import.meta.url)}';
  const info = init();
  if (info.hasDGC) setUpDgc();
  const { increment, scaleAdd, reverse, copyMemory } = programs;
  const any = (random, buffers) => {
    const program = random.pick([increment, increment, scaleAdd, reverse, copyMemory]);
    const chosen = random.sample(buffers, program.bindings);
    const n = Math.min(...chosen.map((buffer) => buffer.data.length));
    return { program, buffers: chosen, push: Uint32Array.of(n, random.u32()).subarray(0, program.pushWords), writeMask: 0 };
  };
  const part = (random, buffer) => random.words(random.between(1, buffer.data.length));
  const writes = [
    (random, twin, buffers) => twin.dispatch(any(random, buffers)),
    (random, twin, buffers) => twin.packed('bytes', Array.from({ length: random.between(1, 6) }, () => any(random, buffers))),
    (random, twin, buffers) => { const buffer = random.pick(buffers); twin.upload(buffer, part(random, buffer)); },
    (random, twin, buffers) => { const buffer = random.pick(buffers); twin.fill(buffer, 4 * random.between(1, buffer.data.length), random.u32()); },
    (random, twin, buffers) => { const [a, b] = random.sample(buffers, 2); twin.copy(a, b, Math.min(a.data.length, b.data.length)); },
    (random, twin, buffers) => {
      const [a, b, c] = random.sample(buffers, 3);
      if (info.hasDGC) twin.dgc(a, b, c, Math.min(a.data.length, b.data.length, c.data.length));
    },
    (random, twin, buffers) => {
      const [old] = buffers.splice(random.below(buffers.length), 1);
      const { length } = old.data;
      twin.destroy(old);
      buffers.push(twin.create(random.words(length), 0));
    },
  ];
  /** The same step again and again, under new handles, but for what 'other' puts in between. */
  function step(seed, twin, other) {
    const random = new Random(seed);
    const buffers = Array.from({ length: 8 }, () => twin.create(random.words(random.pick([3, 64, 1000, 30_000])), 0));
    for (let i = 0; i < 40; i++) {
      if (random.chance(0.5)) random.pick(writes)(random, twin, buffers);
      else for (const buffer of random.sample(buffers, random.between(1, 6))) {
        if (other?.chance(0.03)) other.pick(writes)(other, twin, buffers);
        if (buffers.includes(buffer)) twin.read(buffer);
      }
    }
    for (const buffer of buffers) twin.destroy(buffer);
  }
`;

test('steps that repeat, but for something in between at random, are as if serial', async () => {
  const base = Number(process.env.HELIOS_TEST_SEED ?? 1);
  const [reads, ahead, unread] = await childJson(`${RANDOM_STEPS}
    for (let seed = ${base}; seed < ${base + scaled(20)}; seed++) {
      const twin = new Twin();
      const other = new Random(1000 + seed);
      try {
        for (let round = 0; round < 8; round++) step(seed, twin, round < 4 || round === 6 ? undefined : other);
      } catch (error) {
        error.message += '\\nseed ' + seed + '\\n' + twin.log.slice(-30).join('\\n');
        throw error;
      }
    }
    const { reads, readsAhead, unreadAhead } = vk.getStats();
    process.stdout.write(JSON.stringify([reads, readsAhead, unreadAhead]));
  `, { env: STAGED, timeout: 300_000 });
  assert.ok(ahead > reads / 6, `${ahead} of ${reads} reads made ahead`);
  assert.ok(unread > 0, 'some for nothing');
});
