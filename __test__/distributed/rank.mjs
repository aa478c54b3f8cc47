// One rank of the tests of `helios-vk/distributed`: `node rank.mjs SCENARIO [PLACE]`.

import { closeSync, constants, existsSync, openSync, readdirSync, readlinkSync, writeFileSync } from 'node:fs';

import { init, launched } from '../../distributed/index.mjs';
import { bufferOf, groupsOf, init as initDevice, pipelineOf, vk } from '../lib/addon.mjs';
import { scaleAddF32 } from '../lib/programs.mjs';
import { fakeRandom } from './random.mjs';
import { say as tell } from './said.mjs';

const [scenario, place] = process.argv.slice(2);
const { rank, worldSize } = launched();
const last = worldSize - 1;

const say = (/** @type {object} */ what) => tell({ rank, ...what });
/** What of an error the test looks at. @param {unknown} error */
const told = (error) => {
  const { code, message, rank: about } = /** @type {import('../../index.js').HeliosError} */ (error);
  return { code, message, about: about ?? null };
};
/** Runs what must fail, and says how and after how long. @param {() => unknown} body */
async function failing(body) {
  const since = performance.now();
  try {
    say({ result: (await body()) ?? null });
  } catch (error) {
    say({ error: told(error), seconds: (performance.now() - since) / 1000 });
  }
}
/** Leaves a group that has failed; the code of the error that says so, or null. @param {import('../../distributed/index.mjs').Group} group */
const leaving = (group) =>
  group.destroy().then(
    () => null,
    (error) => told(error).code,
  );
const sleep = (/** @type {number} */ ms) => new Promise((done) => setTimeout(done, ms));
/** Floats that differ by rank. @param {number} length @param {number} of */
const floats = (length, of) => Float32Array.from({ length }, (_, i) => ((i * 7 + of * 13) % 101) - 50);

if (rank === last && scenario === 'lost') process.env.HELIOS_TEST_LOSE_DEVICE = '6';
// Collectives work on copies, and there is no room for one.
if (scenario === 'memory') process.env.HELIOS_TEST_STAGED = '1';
if (rank === last && scenario === 'memory') process.env.HELIOS_TEST_MEMORY_LIMIT = String(48 << 20);
initDevice();
/** @type {import('../../distributed/group.mjs').InitOptions} */
const options = {
  // Limits that do not matter are long, and the others such that a busy machine does not come near them before it has to.
  joinTimeoutMs: 100_000,
  peerTimeoutMs: scenario === 'silent' || scenario === 'cut' ? 4000 : 60_000,
  ...(['late', 'late-value', 'alone'].includes(scenario) ? { timeoutMs: 4000 } : {}),
  ...(scenario === 'absent' ? { joinTimeoutMs: 4000 } : {}),
  ...(process.env.HELIOS_TEST_ENGINE === 'nccl' ? { engine: /** @type {const} */ ('nccl') } : {}),
  ...(scenario === 'config' ? { config: { layers: rank + 1 } } : {}),
  ...(scenario === 'no-library' ? { library: 'libhelios-none.so.1' } : {}),
};

/** @type {Record<string, (group: import('../../distributed/index.mjs').Group) => Promise<void> | void>} */
const SCENARIOS = {
  /** Every collective, on ranges, in the midst of other work, without a wait: what is read is what serial execution gives. */
  async collectives(group) {
    const random = fakeRandom(17);
    const length = 24 * worldSize;
    /** What every rank's buffers hold, computed on the host. */
    const expected = Array.from({ length: 2 }, (_, b) => Array.from({ length: worldSize }, (_, r) => floats(length, r + 5 * b)));
    const buffers = expected.map((ranks) => bufferOf(ranks[rank], 0));
    const steps = Number(place ?? 120);
    for (let step = 0; step < steps; step++) {
      const b = random(2);
      const count = worldSize * (1 + random(length / worldSize));
      const offset = random(length - count + 1);
      const range = { offset, count };
      const all = expected[b].map((values) => values.subarray(offset, offset + count));
      const shard = count / worldSize;
      const shardOf = (/** @type {Float32Array} */ values, /** @type {number} */ r) => values.subarray(r * shard, (r + 1) * shard);
      // Whole numbers: the sums of two ranks are exact in any order, or rounded once, so that equal means equal.
      const sum = (/** @type {Float32Array[]} */ lists) => lists[0].map((_, i) => lists.reduce((total, values) => total + values[i], 0));
      switch (random(9)) {
        case 0: {
          group.allReduce(buffers[b], range);
          const total = sum(all);
          for (const values of all) values.set(total);
          break;
        }
        case 1: {
          group.reduceScatter(buffers[b], range);
          const total = sum(all);
          for (const [r, values] of all.entries()) shardOf(values, r).set(shardOf(total, r));
          break;
        }
        case 2: {
          group.allGather(buffers[b], range);
          const whole = Float32Array.from(all.flatMap((values, r) => [...shardOf(values, r)]));
          for (const values of all) values.set(whole);
          break;
        }
        case 3: {
          const root = random(worldSize);
          group.broadcast(buffers[b], { ...range, root, type: 'u8', offset: 4 * offset, count: 4 * count });
          const whole = all[root].slice();
          for (const values of all) values.set(whole);
          break;
        }
        case 7: {
          // Two halves of a shard for each rank.
          const half = Math.floor(count / 2 / worldSize) * worldSize;
          if (half === 0) break;
          group.allToAll(buffers[b], { offset, count: 2 * half });
          const part = half / worldSize;
          const sent = all.map((values) => values.slice(0, half));
          for (const [r, values] of all.entries()) {
            for (const [from, list] of sent.entries()) values.set(list.subarray(r * part, (r + 1) * part), half + from * part);
          }
          break;
        }
        case 4: {
          // Behind the collective, before the next one: a copy from one to the other buffer.
          vk.copyBuffer(buffers[b], buffers[1 - b], 4 * count, 4 * offset, 4 * offset);
          for (const [r, values] of all.entries()) expected[1 - b][r].set(values, offset);
          break;
        }
        case 5: {
          // A kernel that reads both and writes one.
          const push = new Uint32Array([offset + count, new Uint32Array(Float32Array.of(1).buffer)[0]]);
          vk.dispatch(pipelineOf(scaleAddF32), [buffers[b], buffers[1 - b], buffers[b]], groupsOf(offset + count), 1, 1, push);
          for (const [r, values] of expected[b].entries()) {
            for (let i = 0; i < offset + count; i++) values[i] += expected[1 - b][r][i];
          }
          break;
        }
        case 6: {
          vk.uploadAsync(buffers[b], floats(count, rank + step), 4 * offset);
          for (const [r, values] of all.entries()) values.set(floats(count, r + step));
          break;
        }
        default: {
          vk.fillBuffer(buffers[b], 4 * (offset + count), new Uint32Array(Float32Array.of(step % 5).buffer)[0]);
          for (const values of expected[b]) values.fill(step % 5, 0, offset + count);
        }
      }
    }
    const wrong = buffers.map((buffer, b) => {
      const read = vk.readBuffer(buffer);
      return read.findIndex((value, i) => !Object.is(value, expected[b][rank][i]));
    });
    say({ wrong, steps });
    await group.destroy();
  },

  /** A large sum of what only f32 can say: equal on all ranks, and the sum of both in f32. */
  async large(group) {
    const length = 3_000_001;
    const own = Float32Array.from({ length }, (_, i) => Math.fround(Math.sin(i) * (rank + 1)));
    const buffer = bufferOf(own, 0);
    const value = group.allReduce(buffer);
    const blocked = vk.getCompleted() >= value;
    const read = vk.readBuffer(buffer);
    const wrong = read.findIndex((sum, i) => sum !== Math.fround(Math.fround(Math.sin(i)) + Math.fround(Math.sin(i) * 2)));
    say({ wrong: worldSize === 2 ? wrong : -1, blocked });
    await group.destroy();
  },

  /** Collectives directly behind each other, on memory that the engine gets at, while each rank waits at other ones. */
  async behind(group) {
    const random = fakeRandom(5);
    const length = 8 * worldSize;
    const buffers = [0, 1].map(() => vk.createBuffer(4 * length, 0, { exportable: true }));
    const long = vk.createBuffer(32 << 20, 0);
    const expected = [new Float32Array(length), new Float32Array(length)];
    /** @type {number[]} */
    const values = [];
    for (let step = 0; step < 100; step++) {
      if (step % 10 === 0) {
        for (const [b, buffer] of buffers.entries()) {
          vk.uploadAsync(buffer, floats(length, rank + b));
          for (let i = 0; i < length; i++)
            expected[b][i] = Array.from({ length: worldSize }, (_, r) => floats(length, r + b)[i]).reduce((x, y) => x + y);
          values.push(group.allReduce(buffer));
        }
        // The calls are made before the device has come to them.
        for (let i = 0; i < 4; i++) vk.fillBuffer(long, 32 << 20, i);
      }
      const b = random(2);
      if (random(2)) {
        values.push(group.allReduce(buffers[b]));
        expected[b] = expected[b].map((value) => value * worldSize);
      } else {
        values.push(group.broadcast(buffers[b], { root: random(worldSize) }));
      }
      if (step % 50 === 10 + rank) vk.waitTimeline(values[values.length - 1 - rank]);
    }
    const wrong = buffers.map((buffer, b) => vk.readBuffer(buffer).findIndex((value, i) => value !== expected[b][i]));
    say({ wrong, ordered: values.every((value, i) => i === 0 || value > values[i - 1]), calls: values.length });
    await group.destroy();
  },

  /** The second of two calls behind each other differs: the first counts. */
  async second(group) {
    const buffer = vk.createBuffer(256, 0, { exportable: true });
    const values = [group.allReduce(buffer), group.allReduce(buffer, { count: rank === last ? 32 : 64 })];
    for (const value of values) await failing(() => vk.waitTimeline(value));
    await failing(() => group.destroy());
  },

  async exchange(group) {
    const values = [];
    for (let i = 0; i < 3; i++) values.push(await group.exchange({ from: rank, i }));
    say({ values, nothing: await group.exchange() });
    await group.destroy();
  },

  /** A rank that lives, and gives no value. */
  async 'late-value'(group) {
    await group.exchange();
    if (rank !== last) await failing(() => group.exchange(rank));
    while (!group.signal.aborted) await sleep(20);
    say({ reason: told(group.signal.reason), destroy: await leaving(group) });
  },

  /** What is wrong is an error of the call, and the group lives on. */
  async arguments(group) {
    const buffer = bufferOf(floats(8 * worldSize, rank), 0);
    const codes = [];
    for (const wrong of [
      () => group.allReduce(12345),
      () => group.allReduce(buffer, { offset: 1, count: 8 * worldSize }),
      () => group.allReduce(buffer, { count: 0 }),
      () => group.allReduce(buffer, /** @type {any} */ ({ type: 'bf16' })),
      () => group.allReduce(buffer, /** @type {any} */ ({ type: 'f64' })),
      () => group.broadcast(buffer, { root: worldSize }),
      () => group.broadcast(buffer, { type: 'u8', offset: 1 }),
      () => group.reduceScatter(buffer, { count: worldSize + 1 }),
      () => group.allToAll(buffer, { count: worldSize }),
    ]) {
      try {
        wrong();
        codes.push(null);
      } catch (error) {
        codes.push(told(error).code);
      }
    }
    vk.graphBegin();
    try {
      group.allReduce(buffer);
    } catch (error) {
      codes.push(told(error).code);
    }
    vk.graphDestroy(vk.graphEnd());
    group.allReduce(buffer, { count: 1 });
    const sum = vk.readBuffer(buffer)[0];
    say({ codes, sum });
    await group.destroy();
    await group.destroy();
    await failing(() => group.allReduce(buffer));
    await failing(() => init(options));
  },

  async sizes(group) {
    const buffer = bufferOf(floats(64, rank), 0);
    group.allReduce(buffer);
    await failing(() => vk.waitTimeline(group.allReduce(buffer, { count: rank === last ? 32 : 64 })));
    await failing(() => group.allReduce(buffer));
    await failing(() => group.destroy());
  },

  async orders(group) {
    const [a, b] = [bufferOf(floats(64, rank), 0), bufferOf(floats(64, rank), 0)];
    await failing(() => {
      if (rank === last) {
        group.broadcast(b);
        group.allReduce(a);
      } else {
        group.allReduce(a);
        group.broadcast(b);
      }
      return vk.readBuffer(a);
    });
    await failing(() => group.destroy());
  },

  /**
   * The last rank makes fewer calls than the others and destroys the group. These do so at once, or when they have heard of it, or
   * they wait for their call on the main thread.
   */
  async fewer(group) {
    const buffer = bufferOf(floats(64, rank), 0);
    group.allReduce(buffer);
    if (rank !== last) {
      const value = group.allReduce(buffer);
      while (place === 'heard' && !group.signal.aborted) await sleep(1);
      if (place === 'wait') await failing(() => vk.waitTimeline(value));
    }
    await failing(() => group.destroy());
    await failing(() => group.destroy());
  },

  /** The last rank ends in the midst of it, in several ways; the others wait on their main threads. */
  async ending(group) {
    const buffer = bufferOf(floats(64, rank), 0);
    vk.waitTimeline(group.allReduce(buffer));
    if (rank === last) {
      // When the others have made the call; shortly after that they wait for it.
      await group.exchange();
      await sleep(100);
      if (place === 'kill') process.kill(process.pid, 'SIGKILL');
      if (place === 'exit') process.exit(0);
      if (place === 'throw') throw new Error('on purpose');
      if (place === 'return') return;
    }
    const before = vk.readBuffer(buffer)[0];
    const value = group.allReduce(buffer);
    const exchanged = group.exchange();
    await failing(() => (place === 'kill' ? vk.waitTimeline(value) : vk.readBuffer(buffer)));
    await failing(() => group.allReduce(buffer));
    await failing(() => exchanged.then(() => group.exchange(1)));
    say({ signalled: group.signal.aborted && told(group.signal.reason).code, before, destroy: await leaving(group) });
    // The device goes on without the group.
    vk.fillBuffer(buffer, 256, 0);
    say({ after: vk.readBuffer(buffer)[0] });
    process.exitCode = 3;
  },

  /** A process that is stopped keeps its connection, and says nothing. */
  async silent(group) {
    const buffer = bufferOf(floats(64, rank), 0);
    vk.waitTimeline(group.allReduce(buffer));
    if (rank === last) {
      say({ stopped: process.pid });
      process.kill(process.pid, 'SIGSTOP');
      await sleep(60_000);
    }
    await failing(() => vk.waitTimeline(group.allReduce(buffer)));
    say({ destroy: await leaving(group) });
    process.exitCode = 3;
  },

  /** The network between the hosts goes down in the midst of calls. What each rank says lies in a folder: no launcher forwards it. */
  async cut(group) {
    const buffer = bufferOf(floats(64, rank), 0);
    say({ working: true });
    const since = performance.now();
    try {
      for (;;) vk.waitTimeline(group.allReduce(buffer));
    } catch (error) {
      const what = { rank, error: told(error), destroy: await leaving(group), seconds: (performance.now() - since) / 1000 };
      writeFileSync(`${place}/${rank}.json`, JSON.stringify(what));
    }
    process.exit(3);
  },

  /** The last rank's device is lost at one of its submissions; it leaves, as a program does that cannot go on. */
  async lost(group) {
    const buffer = bufferOf(floats(64, rank), 0);
    await group.exchange();
    await failing(() => {
      for (;;) vk.waitTimeline(group.allReduce(buffer));
    });
    say({ destroy: await leaving(group) });
    process.exitCode = 3;
  },

  /** The last rank has no memory for a collective: the error is its own, and what it does about it, here to end, is the others'. */
  async memory(group) {
    const buffer = vk.createBuffer(32 << 20, 0);
    await group.exchange();
    await failing(() => vk.waitTimeline(group.allReduce(buffer)));
    if (rank === last) throw new Error('on purpose');
    say({ destroy: await leaving(group) });
    process.exitCode = 3;
  },

  /** A rank that lives, and does not call. */
  async late(group) {
    const buffer = bufferOf(floats(64, rank), 0);
    // Both are through with their start.
    await group.exchange();
    vk.waitTimeline(group.allReduce(buffer));
    if (rank !== last) await failing(() => vk.waitTimeline(group.allReduce(buffer)));
    // The group keeps no process alive that has nothing else to do.
    while (!group.signal.aborted) await sleep(20);
    say({ reason: told(group.signal.reason), destroy: await leaving(group) });
  },

  async abort(group) {
    const buffer = bufferOf(floats(64, rank), 0);
    if (rank === last) group.abort('the loss is NaN');
    await failing(() => vk.waitTimeline(group.allReduce(buffer)));
    await failing(() => group.destroy());
  },

  /** A rank that never comes to the end, and one that wants to. */
  async alone(group) {
    await group.exchange();
    if (rank !== last) await failing(() => group.destroy());
    while (!group.signal.aborted) await sleep(20);
    say({ reason: told(group.signal.reason), destroy: await leaving(group) });
  },

  /** The end of the group behind many calls that nobody has waited for. */
  async flight(group) {
    const buffer = bufferOf(Float32Array.of(1, 1), 0);
    for (let i = 0; i < 20; i++) group.allReduce(buffer);
    await group.destroy();
    say({ read: [...vk.readBuffer(buffer)] });
  },

  /** The end of the device, or of the process, in the midst of calls that cannot end: the last rank never calls. */
  async gone(group) {
    const buffer = bufferOf(floats(1 << 16, rank), 0);
    if (rank !== last) for (let i = 0; i < 3; i++) group.allReduce(buffer);
    // When the others have called.
    await group.exchange();
    if (place === 'process') {
      say({ leaving: true });
      process.exit(4);
    }
    vk.destroy();
    await failing(() => group.allReduce(buffer));
    const destroy = await leaving(group);
    initDevice();
    const fresh = bufferOf(Float32Array.of(5), 0);
    say({ fresh: vk.readBuffer(fresh)[0], destroy });
  },

  /** Waits until it is ended, or the group has failed. */
  async idle(group) {
    say({ idle: true });
    while (!group.signal.aborted) await sleep(20);
    process.exit(6);
  },

  /** One group after the other in one process, with other memory each time. */
  async again(first) {
    const sums = [];
    for (let group = first, i = 0; i < 3; group = i < 3 ? await init(options) : group) {
      const shared = vk.createBuffer(4096, 0, { exportable: i === 1 });
      vk.uploadBuffer(shared, new Float32Array(1024).fill(1));
      group.allReduce(shared);
      sums.push(vk.readBuffer(shared)[7]);
      vk.destroyBuffer(shared);
      i++;
      await group.destroy();
    }
    say({ sums });
  },

  /** Ends once, the first time, and says how often it was started. */
  async restart(group) {
    const attempt = Number(process.env.HELIOS_RESTART_COUNT);
    const buffer = bufferOf(Float32Array.of(rank + 1), 0);
    group.allReduce(buffer);
    say({ attempt, sum: vk.readBuffer(buffer)[0] });
    // All have said so when the last one ends.
    await group.exchange();
    if (attempt === 0 && rank === last) {
      if (place === 'exit') process.exit(5);
      process.kill(process.pid, 'SIGKILL');
    }
    group.allReduce(buffer);
    vk.readBuffer(buffer);
    await group.destroy();
  },
};

/**
 * Ten groups, one after the other, on memory of both kinds; what stands behind the descriptors that are open before them, after the
 * first, and after the last. MPI starts once in a process: there the first nine fail to find it, when the ranks have come together.
 */
async function groups() {
  const buffers = [false, true].map((exportable) => vk.createBuffer(4096, 0, { exportable }));
  for (const buffer of buffers) vk.uploadBuffer(buffer, new Float32Array(1024).fill(1));
  vk.waitIdle();
  const open = [await openDescriptors()];
  for (let i = 0; i < 10; i++) {
    const missing = options.engine !== 'nccl' && i < 9;
    try {
      const group = await init({ ...options, ...(missing ? { library: 'libhelios-none.so.1' } : {}) });
      for (const buffer of buffers) group.allReduce(buffer);
      vk.waitIdle();
      await group.destroy();
    } catch (error) {
      if (!missing || told(error).code !== 'ERR_HELIOS_NO_ENGINE') throw error;
    }
    if (i === 0 || i === 8 || i === 9) open.push(await openDescriptors());
  }
  say({ open });
}

/** What stands behind each open descriptor, without the numbers that tell one socket or file of a kind from another. */
async function openDescriptors() {
  const now = () =>
    readdirSync('/proc/self/fd')
      .map(link)
      .filter((target) => target !== '' && !target.startsWith('/proc/'))
      .map((target) => target.replace(/:\[\d+\]$/, ''))
      .sort();
  // Threads of a driver write its cache, each file open for a moment.
  for (let last = now(), tries = 0; ; tries++) {
    await new Promise((next) => setTimeout(next, 50));
    const open = now();
    if (tries === 20 || String(open) === String(last)) return open;
    last = open;
  }
}

/** Descriptors that are open for memory, timelines and files, with what they stand for. */
const descriptors = () =>
  readdirSync('/proc/self/fd')
    .map((fd) => `${fd} ${link(fd)}`)
    .filter((open) => /^\d+ (\/(?!dev\/)|.*(memfd|pipe))/.test(open));
/** Those that are open and were not before; a driver's thread that writes a cache file is given time to end. @param {string[]} before */
async function opened(before) {
  for (let tries = 0; ; tries++) {
    const left = descriptors().filter((open) => !before.includes(open));
    if (left.length === 0 || tries === 20) return left;
    await new Promise((next) => setTimeout(next, 50));
  }
}
/** What a descriptor stands for. @param {string} fd */
function link(fd) {
  try {
    return readlinkSync(`/proc/self/fd/${fd}`);
  } catch {
    return '';
  }
}

/** A group that forms, and says what all ranks' numbers are together. */
async function working() {
  const group = await init(options);
  const buffer = bufferOf(Float32Array.of(rank + 1), 0);
  group.allReduce(buffer);
  say({ sum: vk.readBuffer(buffer)[0] });
  await group.destroy();
}

/**
 * The first rank finds no MPI, and the last one hears of it while it still opens its own library: a pipe that has no writer yet. The same
 * processes form a group after that.
 */
async function slowLibrary() {
  const pipe = /** @type {string} */ (place);
  await failing(() => init({ ...options, library: rank === last ? pipe : 'libhelios-none.so.1' }));
  while (rank === last) {
    try {
      closeSync(openSync(pipe, constants.O_WRONLY | constants.O_NONBLOCK));
      break;
    } catch (error) {
      // The thread that opens the library may not have come to it.
      if (/** @type {NodeJS.ErrnoException} */ (error).code !== 'ENXIO') throw error;
      await sleep(5);
    }
  }
  await working();
}

/** The last rank ends while it opens its library, when all have come together and MPI has yet to start there. */
async function killedOpening() {
  const pipe = /** @type {string} */ (place);
  const forming = failing(() => init(rank === last ? { ...options, library: pipe } : options));
  if (rank === last) {
    while (vk.collectiveStatus() === null) await sleep(1);
    process.kill(process.pid, 'SIGKILL');
  }
  await forming;
}

/**
 * A group that does not form, since the second rank has another configuration, and one that does. The second rank comes to the next
 * group while the store of this one still waits for the third rank.
 */
async function early() {
  const again = `${place}/again`;
  if (rank === 2) {
    while (!existsSync(again)) await sleep(5);
    await sleep(500);
  }
  await failing(() => init({ ...options, config: rank === 1 ? 'another' : null }));
  if (rank === 1) writeFileSync(again, '');
  await working();
}

/** A second group beside the first one, which lives on: while that one forms, and when it is there. */
async function starts() {
  const [first, second] = await Promise.allSettled([init(options), init(options)]);
  const third = await init(options).catch(told);
  const { value: group } = /** @type {PromiseFulfilledResult<import('../../distributed/index.mjs').Group>} */ (first);
  const buffer = bufferOf(Float32Array.of(rank + 1), 0);
  group.allReduce(buffer);
  say({ second: told(/** @type {PromiseRejectedResult} */ (second).reason), third, sum: vk.readBuffer(buffer)[0] });
  await group.destroy();
}

/** The last rank destroys its device while the group forms. */
async function deviceGone() {
  const forming = failing(() => init(options));
  if (rank === last) vk.destroy();
  await forming;
}

/** A group that may fail at every step, in memory of both kinds; then what the device still does, and what was left open. */
async function eachCall() {
  const buffers = [false, true].map((exportable) => vk.createBuffer(4096, 0, { exportable }));
  const ones = new Float32Array(1024).fill(1);
  for (const buffer of buffers) vk.uploadBuffer(buffer, ones);
  vk.waitIdle();
  const before = descriptors();
  /** @type {import('../../distributed/index.mjs').Group | undefined} */
  let group;
  let error = null;
  const sums = [];
  try {
    group = await init(options);
    for (const buffer of buffers) {
      group.allReduce(buffer);
      sums.push(vk.readBuffer(buffer)[7]);
    }
    group.reduceScatter(buffers[0]);
    group.allGather(buffers[1]);
    group.broadcast(buffers[0]);
    group.allToAll(buffers[1], { type: 'bf16' });
    vk.waitIdle();
    await group.destroy();
  } catch (failure) {
    error = told(failure);
    // It throws the failure once more.
    await group?.destroy().catch(() => undefined);
  }
  // What is called from here on counts again.
  const again = bufferOf(ones, 0);
  vk.fillBuffer(again, 4096, 0);
  vk.waitIdle();
  const after = vk.readBuffer(again)[0];
  say({ error, sums, after, opened: await opened(before) });
}

if (scenario === 'absent') {
  // Both others have started before the time of one begins.
  const here = /** @type {string} */ (place);
  writeFileSync(`${here}/${rank}`, '');
  if (rank === last) process.exit(0);
  while (!Array.from({ length: last }, (_, r) => existsSync(`${here}/${r}`)).every(Boolean)) await sleep(5);
}
if (scenario === 'each-call') await eachCall();
else if (scenario === 'groups') await groups();
else if (scenario === 'slow-library') await slowLibrary();
else if (scenario === 'killed-opening') await killedOpening();
else if (scenario === 'early') await early();
else if (scenario === 'starts') await starts();
else if (scenario === 'device-gone') await deviceGone();
else if (['absent', 'config', 'no-library', 'no-engine'].includes(scenario)) {
  await failing(async () => {
    const group = await init(options);
    await group.destroy();
  });
  process.exitCode = 3;
} else {
  await SCENARIOS[scenario](await init(options));
}
