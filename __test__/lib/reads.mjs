// @ts-nocheck -- runs in Node, Bun and Deno, whose globals differ.
/**
 * Programs that do everything the runtime allows to the results of reads, in whatever runtime runs this file:
 *
 *   RUNTIME … reads.mjs NAME      garbage collection exposed (Node and Deno: --expose-gc)
 *
 * Each ends with code 0 if every result kept its data. Memory that is reused too early kills some of them with a signal,
 * so each has a process of its own. HELIOS_TEST_STAGED=1 makes `readBuffer` on a CPU device use readback blocks, as on a
 * GPU.
 */
import assert from 'node:assert/strict';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { bits, bufferOf, init, pipelineOf, ramp, vk } from './addon.mjs';
import { addByAddress } from './programs.mjs';

/** 256 KiB: external ArrayBuffers. */
const N = 1 << 16;
const gc = globalThis.gc ?? (globalThis.Bun ? () => globalThis.Bun.gc(true) : undefined);
const turn = (milliseconds = 0) => new Promise((done) => setTimeout(done, milliseconds));

/** Collects what is garbage and lets the runtime call finalizers. */
async function collect() {
  for (let i = 0; i < 3; i++) {
    gc();
    await turn(2);
  }
}

/** Buffers with the ramp, and with sevens. */
function buffers() {
  init();
  return { x: bufferOf(ramp(N), 0), sevens: bufferOf(new Uint32Array(N).fill(7), 0) };
}

/** @param {ArrayBuffer} memory */
const isRamp = (memory) => new Uint32Array(memory, 0, N).every((word, i) => word === i);

/** Reads that would overwrite memory that was reused too early. @param {number} sevens */
async function readOthers(sevens) {
  const others = [];
  for (let i = 0; i < 20; i++) {
    others.push(vk.readBuffer(sevens), await vk.readAsync(sevens));
    if (i % 5 === 0) await collect();
  }
  for (const other of others)
    assert.ok(
      bits(other).every((word) => word === 7),
      'another result',
    );
}

/** Reads `x`. */
const ways = {
  async: (x) => vk.readAsync(x),
  sync: async (x) => vk.readBuffer(x),
};

/** Moves the memory of an ArrayBuffer to another one, which it returns. */
const moves = {
  stream: async (memory) => {
    const stream = new ReadableStream({
      type: 'bytes',
      start: (c) => {
        c.enqueue(new Uint8Array(memory));
        c.close();
      },
    });
    return (await stream.getReader().read()).value.buffer;
  },
  byob: async (memory) => {
    const stream = new ReadableStream({ type: 'bytes', pull: (c) => c.byobRequest.respond(c.byobRequest.view.byteLength) });
    return (await stream.getReader({ mode: 'byob' }).read(new Uint8Array(memory))).value.buffer;
  },
  transfer: async (memory) => {
    const { transfer } = ArrayBuffer.prototype;
    return transfer ? transfer.call(memory) : memory; // Node 20 has none
  },
  'to-fixed-length': async (memory) => {
    const { transferToFixedLength } = ArrayBuffer.prototype;
    return transferToFixedLength ? transferToFixedLength.call(memory) : memory;
  },
  clone: async (memory) => {
    try {
      return structuredClone(memory, { transfer: [memory] });
    } catch (error) {
      // Node marks memory that is not its own.
      assert.equal(error.name, 'DataCloneError');
      return memory;
    }
  },
  'stream-clone': async (memory) => {
    const moved = await moves.stream(memory);
    return structuredClone(moved, { transfer: [moved] });
  },
};

/** Moved memory outlives the result, the buffer and the device, and is intact while another device reads. */
const moved = (way, move) => async () => {
  const { x, sevens } = buffers();
  const held = await (async () => moves[move]((await ways[way](x)).buffer))();
  await collect();
  await readOthers(sevens);
  assert.ok(isRamp(held), 'after other reads');
  vk.readBuffer(bufferOf(ramp(4)));
  vk.destroy();
  await collect();
  assert.ok(isRamp(held), 'after destroy()');
  new Uint32Array(held).fill(1);
  const second = buffers();
  await readOthers(second.sevens);
  assert.ok(
    new Uint32Array(held).every((word) => word === 1),
    'beside another device',
  );
};

/** The end of a worker that has `held`. */
const ended = (worker) => new Promise((done, failed) => worker.on('exit', done).on('error', failed));

const programs = {
  /** Memory of this thread's results goes to a worker, which ends. */
  posted: async () => {
    const { x, sevens } = buffers();
    const worker = new Worker(new URL(import.meta.url), { workerData: 'holds' });
    const over = ended(worker);
    const asks = (message, transfer) =>
      new Promise((done) => {
        worker.once('message', done);
        worker.postMessage(message, transfer);
      });
    await (async () => {
      const held = await moves.stream((await vk.readAsync(x)).buffer);
      assert.equal(await asks({ held }, [held]), true);
      assert.equal(held.byteLength, 0, 'it was transferred');
    })();
    await collect();
    await readOthers(sevens);
    assert.equal(await asks({}), true, 'the worker still sees what was read');
    worker.postMessage('end');
    await over;
    await collect();
    await readOthers(sevens);
    vk.destroy();
    await collect();
  },

  /** Memory of a worker's results comes here, and the worker ends. */
  'from-worker': async () => {
    const { sevens } = buffers();
    for (const end of ['ends', 'terminated']) {
      const worker = new Worker(new URL(import.meta.url), { workerData: 'reads' });
      const over = ended(worker);
      const all = await new Promise((done, failed) => worker.once('message', done).once('error', failed));
      assert.equal(all.length, 8);
      if (end === 'terminated') await worker.terminate();
      else worker.postMessage('end');
      await over;
      await collect();
      await readOthers(sevens);
      for (const held of all) assert.ok(isRamp(held), `after the worker ${end}`);
      for (const held of all) new Uint32Array(held).fill(9);
    }
    vk.destroy();
    await collect();
  },

  /** Results of a worker that ends are dropped with it, held or not. */
  'worker-ends': async () => {
    const { sevens } = buffers();
    for (let i = 0; i < 5; i++) {
      await ended(new Worker(new URL(import.meta.url), { workerData: 'drops' }));
      await readOthers(sevens);
    }
    assert.ok(vk.getAllocatorStats().readbackLeasedBytes <= 200 * 4 * N);
  },

  /** Memory of `dgcGetCommandBuffer` comes from a worker, which ends; the device sets up others. */
  'sequences-from-worker': async () => {
    init();
    if (!vk.dgcInfo().hasBDA) return;
    const worker = new Worker(new URL(import.meta.url), { workerData: 'sequences' });
    const over = ended(worker);
    const held = await new Promise((done, failed) => worker.once('message', done).once('error', failed));
    worker.postMessage('end');
    await over;
    setUpSequences();
    await collect();
    new Uint8Array(held).fill(1);
    vk.destroy();
    await collect();
    new Uint8Array(held).fill(2);
    assert.ok(new Uint8Array(held).every((byte) => byte === 2));
  },

  /** Held results outlive two devices, and the process ends with them. */
  held: async () => {
    const { x } = buffers();
    globalThis.held = [];
    for (let i = 0; i < 20; i++) globalThis.held.push(vk.readBuffer(x), await vk.readAsync(x));
    vk.destroy();
    await collect();
    const { sevens } = buffers();
    await readOthers(sevens);
    for (const result of globalThis.held) assert.ok(isRamp(result.buffer));
    for (const result of globalThis.held) result.fill(1);
    process.exit(0);
  },

  /** The memory of results that nobody holds is reused, without a call to the addon. */
  dropped: async () => {
    const { x } = buffers();
    for (let i = 0; i < 100; i++) vk.readBuffer(x);
    assert.ok(vk.getAllocatorStats().readbackLeasedBytes > 0, 'they are not copied');
    for (let i = 0; i < 300 && vk.getAllocatorStats().readbackLeasedBytes > 8 * 4 * N; i++) await collect();
    const left = vk.getAllocatorStats().readbackLeasedBytes / (4 * N);
    assert.ok(left <= 8, `${left} of 100 blocks are out`); // engines may still see some on their stacks
  },

  /** The memory of moved results is reused when their last owner is gone. */
  'dropped-moved': async () => {
    const { x } = buffers();
    for (let i = 0; i < 40; i++) {
      for (const move of Object.keys(moves)) await moves[move](vk.readBuffer(x).buffer);
    }
    for (let i = 0; i < 300 && vk.getAllocatorStats().readbackLeasedBytes > 8 * 4 * N; i++) await collect();
    const left = vk.getAllocatorStats().readbackLeasedBytes / (4 * N);
    assert.ok(left <= 8, `${left} blocks are out`);
  },
};

const MIB = 1 << 20;

/** Reads in a loop that drops every result; at most how much JavaScript held. */
async function loop(count, turns) {
  init();
  const x = vk.createBuffer(4 * MIB, 0);
  vk.fillBuffer(x, 4 * MIB, 5);
  let most = 0;
  for (let i = 0; i < count; i++) {
    const result = turns && i % 2 ? await vk.readAsync(x) : vk.readBuffer(x);
    assert.equal(bits(result)[MIB - 1], 5);
    most = Math.max(most, vk.getAllocatorStats().readbackLeasedBytes);
    if (turns && i % 20 === 0) await turn();
  }
  return most;
}

/** For processes that may have little memory. */
const limited = {
  /** Without a turn of the event loop, in which Node calls finalizers. */
  'loop-sync': () => loop(800, false),
  'loop-turning': () => loop(800, true),

  /** Reads throw while all memory is held, and work again once it is dropped. */
  exhausted: async () => {
    init();
    const bytes = 32 * MIB;
    const x = vk.createBuffer(bytes, 0);
    vk.fillBuffer(x, bytes, 5);
    for (const read of Object.values(ways)) {
      const held = [];
      await assert.rejects(
        async () => {
          while (held.length < 1000) held.push(await read(x));
        },
        { code: 'ERR_HELIOS_OUT_OF_MEMORY' },
      );
      assert.ok(held.length > 0);
      for (const result of held) assert.equal(bits(result)[bytes / 4 - 1], 5);
      held.length = 0;
      await collect();
      for (let i = 0; i < 100; i++) assert.equal(bits(await read(x))[0], 5);
    }
  },

  /**
   * A program that never returns to the event loop, for `--max-old-space-size=256`: blocks of results that it dropped are
   * still reused (in Node); those of results that it moved elsewhere, or still has, are not.
   */
  'never-turning': async () => {
    const { x, sevens } = buffers();
    const large = vk.createBuffer(4 * MIB, 0);
    vk.fillBuffer(large, 4 * MIB, 9);
    /** @type {ArrayBuffer[]} */
    const kept = [];
    let [leased, returns] = [0, 0];
    for (let round = 0; round < 12; round++) {
      // Byte streams detach as they are given the memory, and promises alone do not turn the loop.
      for (const move of ['stream', 'transfer', 'clone']) kept.push(await moves[move](vk.readBuffer(x).buffer));
      kept.push(vk.readBuffer(x).buffer, vk.readBuffer(x).subarray(1).buffer);
      for (let i = 0; i < 40; i++) {
        assert.ok(bits(vk.readBuffer(large)).every((word) => word === 9));
        assert.equal(bits(vk.readBuffer(sevens))[i], 7);
        const now = vk.getAllocatorStats().readbackLeasedBytes;
        if (now < leased) returns++;
        leased = now;
      }
    }
    if (!globalThis.Bun && !globalThis.Deno) assert.ok(returns >= 5, `blocks came back ${returns} times`);
    for (const memory of kept) assert.ok(isRamp(memory), 'what was moved or kept');
    vk.destroy();
    for (const memory of kept) assert.ok(isRamp(memory), 'after destroy()');
  },

  /** The bound follows the heap's, of `--max-old-space-size=256`. */
  'small-heap': async () => {
    const most = await loop(300, false);
    assert.ok(most > 0 && most <= 400 * MIB, `${most / MIB} MiB were out`);
  },
};
/** Those that are meant for `ulimit -v`. */
export const ofLittleMemory = ['loop-sync', 'loop-turning', 'exhausted'];

for (const way of Object.keys(ways)) {
  for (const move of Object.keys(moves)) programs[`${way}-${move}`] = moved(way, move);
}

/** Names of all programs. */
export const names = Object.keys(programs);

/** Ends this worker; Deno's port cannot be closed. */
const leave = () => (parentPort.close ? parentPort.close() : process.exit(0));

/** Sequences of 2.8 MB, which the allocator takes from the system alone. */
const setUpSequences = () => assert.ok(vk.dgcSetup(pipelineOf(addByAddress), 32, 1 << 16));

/** What a worker does that was started with this file. */
const inWorker = {
  holds: () => {
    let held;
    parentPort.on('message', (message) => {
      if (message === 'end') return leave();
      held = message.held ?? held;
      parentPort.postMessage(isRamp(held));
    });
  },
  reads: async () => {
    const { x } = buffers();
    const all = [];
    for (let i = 0; i < 4; i++) {
      for (const way of Object.values(ways)) all.push(await moves.stream((await way(x)).buffer));
    }
    parentPort.on('message', leave);
    parentPort.postMessage(all, all);
  },
  sequences: async () => {
    init();
    setUpSequences();
    const first = vk.dgcGetCommandBuffer();
    assert.equal(vk.dgcGetCommandBuffer(), first);
    const held = await moves.stream(first);
    // The first has lost its memory.
    assert.equal(vk.dgcGetCommandBuffer().byteLength, held.byteLength);
    parentPort.on('message', leave);
    parentPort.postMessage(held, [held]);
  },
  drops: async () => {
    const { x } = buffers();
    const kept = [];
    for (let i = 0; i < 40; i++) {
      const result = vk.readBuffer(x);
      await vk.readAsync(x);
      if (i % 2 === 0) kept.push(result);
    }
    globalThis.kept = kept;
  },
};

if (!isMainThread) {
  if (workerData in inWorker) await inWorker[workerData]();
} else if (process.argv[1]?.endsWith('reads.mjs')) {
  const name = process.argv[2];
  const program = programs[name] ?? limited[name];
  if (program === undefined) throw new Error(`no program ${name}: ${[...names, ...Object.keys(limited)].join(', ')}`);
  await program();
}
