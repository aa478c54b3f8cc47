#!/usr/bin/env node
// Calls every function of the addon with wild arguments in wild order, for a bounded time, in child
// processes: no crash, no hang, no object left behind, and every error one of ours.
//
//   node __test__/fuzz/calls.mjs [--seconds 60] [--calls 4000] [--seed N]
//
// With --seed just that one child runs. A child that fails is run again with fewer and fewer calls; the
// shortest run that still fails is printed with its last calls. Where the fault-injecting layer was
// built (cargo build --release -p helios-faults), it counts the objects that are left.
//
// Not tried, since the caller alone can know: SPIR-V that is well-formed and invalid, device addresses
// that lead nowhere, more work than a minute's.

import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { optionsOrExit, switchVariable } from '../../bin/lib/options.mjs';
import { LIBRARY, install } from '../faults/layer.mjs';

const { values: options } = optionsOrExit(
  'node __test__/fuzz/calls.mjs [options]',
  /** @type {const} */ ({
    seconds: { type: 'integer', min: 1, max: 10_000_000, default: 60, help: 'how long' },
    calls: { type: 'integer', min: 1, max: 1e9, default: 4000, help: 'of a child' },
    seed: { type: 'integer', min: 0, max: 2 ** 32 - 1, help: 'just the child of this seed' },
    child: { type: 'boolean', help: 'is the child' },
  }),
);

/** Whether a child prints what it calls. */
const LOG = switchVariable('HELIOS_FUZZ_LOG');
/** A child that takes longer hangs. */
const HANG_MS = 120_000;
/** Resident memory that rounds may add: what the driver and V8 keep. */
const GROWTH = 300 << 20;
const ROUNDS = 4;

/** What hostile arguments throw; it may come through. */
class Hostile extends Error {}

/** xorshift32 @param {number} seed */
function generator(seed) {
  let s = (seed ^ 0x9e3779b9) >>> 0 || 1;
  return () => {
    s ^= s << 13;
    s ^= s >>> 17;
    s ^= s << 5;
    return (s >>>= 0) / 2 ** 32;
  };
}

/**
 * The life of a child.
 * @param {number} seed
 * @param {number} calls
 */
async function wild(seed, calls) {
  const faults = existsSync(LIBRARY) ? install() : null;
  const { vk } = await import('../lib/addon.mjs');
  const { packBytes, packWords } = await import('../lib/packed.mjs');
  const programs = await import('../lib/programs.mjs');
  const gc = /** @type {() => void} */ (globalThis.gc);
  const random = generator(seed);
  const below = (/** @type {number} */ n) => Math.floor(random() * n);
  /** @template T @param {readonly T[]} list @returns {T} */
  const pick = (list) => list[below(list.length)];
  const kernels = [programs.increment, programs.scaleAdd, programs.twoOutputs, programs.reverse];
  // Classes are no calls: without `new` the language itself refuses them.
  const functions = Object.entries(vk)
    .filter(([name, f]) => typeof f === 'function' && /^[a-z]/.test(name))
    .map(([name]) => name)
    .sort();

  /** @type {number[]} */
  let buffers = [];
  /** @type {{ handle: number, program: import('../lib/programs.mjs').Program }[]} */
  let pipelines = [];
  /** @type {number[]} */
  let graphs = [];
  /** @type {number[]} */
  const stale = [];
  /** @type {number[]} */
  let timeline = [0];
  /** @type {Promise<void>[]} */
  let promises = [];
  let last = '';

  const NUMBERS = [
    0,
    -0,
    1,
    2,
    3,
    4,
    7,
    16,
    64,
    255,
    1023,
    4096,
    65535,
    65536,
    -1,
    -5,
    0.5,
    1.5,
    NaN,
    Infinity,
    -Infinity,
    2 ** 20,
    2 ** 31 - 1,
    2 ** 31,
    2 ** 32 - 1,
    2 ** 32,
    2 ** 40,
    2 ** 53,
    -(2 ** 31),
    1e300,
    5e-324,
  ];
  const thrower = () => {
    throw new Hostile('a hostile argument');
  };
  /** A view whose memory has moved, been given to a worker's port, or shrunk: before the call, or with the next look. */
  const moved = () => {
    const bytes = 16 * (1 + below(16));
    const buffer = Reflect.construct(ArrayBuffer, [bytes, { maxByteLength: 512 }]);
    const view = pick([
      () => new Uint32Array(buffer),
      () => new Uint8Array(buffer, 4),
      () => new DataView(buffer, 8),
      () => new Float32Array(buffer, 8, 2),
    ])();
    const move = pick([
      () => structuredClone(buffer, { transfer: [buffer] }),
      () => buffer.transfer?.(below(600)),
      () => buffer.transferToFixedLength?.(),
      () => buffer.resize(below(512)),
      () => {
        const { port1, port2 } = new MessageChannel();
        port1.postMessage(0, [buffer]);
        port1.close();
        port2.close();
      },
    ]);
    if (random() < 0.5) {
      move();
      return pick([view, buffer]);
    }
    pending.push(move);
    return view;
  };
  /** What the next hostile getter does. @type {(() => unknown)[]} */
  const pending = [];
  let depth = 0;
  /** Calls the addon from within one of its calls, at most so deep. */
  const reenter = () => {
    pending.splice(0).forEach((move) => {
      try {
        move();
      } catch {
        /* it has gone already */
      }
    });
    if (depth > 2) return 1;
    depth++;
    const outer = last;
    try {
      const name = pick(common);
      call(name, args(name));
      if (random() < 0.1) call('destroy', []);
    } finally {
      depth--;
      last = outer;
    }
    return pick([1, 4, 64, undefined, pick(buffers)]);
  };
  /** Values that call back as they are looked at. */
  const meddling = () =>
    pick([
      () => ({
        get length() {
          return reenter();
        },
        0: pick(buffers),
      }),
      () => {
        const list = [pick(buffers), pick(buffers)];
        Object.defineProperty(list, below(2), { get: reenter });
        return list;
      },
      () =>
        new Proxy([pick(buffers)], {
          get: (target, key) => {
            reenter();
            return Reflect.get(target, key);
          },
        }),
      () => ({
        get temporary() {
          return reenter();
        },
        get exportable() {
          reenter();
          return false;
        },
      }),
      () => ({
        get signal() {
          reenter();
          return undefined;
        },
      }),
      () => ({
        signal: {
          get aborted() {
            reenter();
            return false;
          },
          addEventListener() {
            reenter();
          },
          removeEventListener() {
            reenter();
          },
        },
      }),
      () => ({
        get specialization() {
          reenter();
          return new Uint32Array(1);
        },
        get name() {
          reenter();
          return 'n';
        },
      }),
      () => ({
        get trace() {
          reenter();
          return undefined;
        },
      }),
      () => ({ toString: reenter, valueOf: reenter, [Symbol.toPrimitive]: reenter }),
    ])();

  /** @type {(() => unknown)[]} */
  const WILD = [
    () => undefined,
    () => null,
    () => true,
    () => false,
    () => '',
    () => 'x',
    () => 'buffer',
    () => '17',
    () => Symbol('s'),
    () => 17n,
    () => pick(NUMBERS),
    () => pick(NUMBERS),
    () => pick(NUMBERS),
    () => below(2 ** 31),
    () => ({}),
    () => [],
    () => [1, 2, 3],
    () => [NaN, 'x', {}],
    () => new Array(40).fill(1),
    () => Object.assign(new Array(3), { 2: 1 }),
    () => () => {},
    () => new Date(),
    () => /x/,
    () => new Map(),
    () => Promise.resolve(1),
    () => new Error('x'),
    () => new WeakMap(),
    () => new ArrayBuffer(0),
    () => new ArrayBuffer(below(300)),
    () => new SharedArrayBuffer(64),
    () => new DataView(new ArrayBuffer(32), 3, 7),
    () => new Float32Array(below(40)),
    () => new Uint32Array(below(40)),
    () => new Int8Array(7),
    () => new Float64Array(3),
    () => new BigInt64Array(2),
    () => new Uint8Array(new ArrayBuffer(64), 1, 9),
    () => Buffer.from('helios'),
    () => crypto.getRandomValues(new Uint8Array(below(200))),
    () => {
      const b = new ArrayBuffer(64);
      const view = new Uint32Array(b);
      structuredClone(b, { transfer: [b] });
      return pick([b, view]);
    },
    () => new Uint32Array(new SharedArrayBuffer(64)),
    () => Reflect.construct(ArrayBuffer, [16, { maxByteLength: 64 }]),
    () => {
      const b = Reflect.construct(ArrayBuffer, [64, { maxByteLength: 64 }]);
      const v = new Uint32Array(b, 32);
      b.resize(8);
      return v;
    },
    () => new Proxy([], { get: thrower }),
    () => new Proxy({}, { get: thrower, has: thrower }),
    () => ({
      get length() {
        return thrower();
      },
    }),
    () => ({ length: 3, 0: 1, 1: 2, 2: 3 }),
    () => ({ length: 2 ** 32 }),
    () => ({ length: -1 }),
    () => ({
      length: 1,
      get 0() {
        return thrower();
      },
    }),
    // Memory that moves, goes or shrinks, and calls that come in between, while arguments are looked at.
    () => moved(),
    () => moved(),
    () => meddling(),
    () => meddling(),
    () => ({ valueOf: thrower, toString: thrower }),
    () => ({ signal: {} }),
    () => ({ signal: AbortSignal.abort() }),
    () => ({ signal: new AbortController().signal }),
    () => ({
      get signal() {
        return thrower();
      },
    }),
    () => ({ signal: { aborted: false, addEventListener: thrower } }),
    () => ({ signal: { aborted: false, addEventListener() {}, removeEventListener: thrower } }),
    () => ({ device: pick(['0', 'no such', 0, 99, {}]) }),
    () => ({ specialization: pick([new Uint32Array(3), [1], 'x', new Float32Array(2)]) }),
    () => ({ requiredSubgroupSize: pick(NUMBERS), fullSubgroups: pick([true, 1, 'x']), name: pick(['n', '\0', 3, 'x'.repeat(5000)]) }),
    () => pick(stale),
    () => pick(buffers),
    () => pick(pipelines)?.handle,
    () => pick(graphs),
    () => Object.freeze([pick(buffers)]),
    () => [{ buffer: pick(buffers), offset: pick(NUMBERS), size: pick(NUMBERS) }],
    () => [
      {
        get buffer() {
          return thrower();
        },
      },
    ],
    () => globalThis,
    () => vk,
    () => process,
    () => Object.create(null),
    () => 'é'.repeat(100),
    () => '\ud800',
  ];
  const any = () => pick(WILD)();

  const buffer = () => (buffers.length && random() < 0.95 ? pick(buffers) : any());
  const data = () => {
    const view = new Uint32Array(1 + below(random() < 0.1 ? 5000 : 64)).map(() => below(2 ** 32));
    return random() < 0.8 ? view : view.buffer;
  };
  /** A dispatch that is right, as arguments and as a record. */
  const dispatch = () => {
    const { handle, program } = pick(pipelines);
    /** @type {any[]} */
    let used = Array.from({ length: program.bindings }, () => pick(buffers));
    // Now and then ranges, some of them outside of their buffers or not where one may begin.
    if (random() < 0.2)
      used = used.map((buffer) =>
        random() < 0.5
          ? buffer
          : { buffer, offset: pick([0, 256, 512, 4, 2 ** 20, 2 ** 40]), size: pick([undefined, 4, 64, 4096, 2 ** 33]) },
      );
    const push = new Uint32Array(program.pushWords).map(() => below(2000));
    const groups = [1 + below(8), 1 + below(2), 1];
    return { pipeline: handle, buffers: used, groups, push, writeMask: below(2 ** 32) };
  };
  const single = () => {
    if (pipelines.length === 0 || buffers.length === 0) return [any(), any(), 1, 1, 1, any()];
    const d = dispatch();
    return [d.pipeline, d.buffers, d.groups[0], d.groups[1], d.groups[2], d.push];
  };
  const list = () => {
    if (pipelines.length === 0 || buffers.length === 0) return [new ArrayBuffer(0), 0];
    const records = Array.from({ length: below(5) }, dispatch);
    const words = random() < 0.3;
    const packed = words ? packWords(records) : packBytes(records);
    if (random() < 0.3 && packed.byteLength > 8) {
      // Handles, counts and lengths go wrong; group counts stay, for the device's time's sake.
      new DataView(packed).setUint16(pick([0, 2, 4]), below(65536), true);
    }
    const cut = random() < 0.1 ? packed.slice(0, below(packed.byteLength + 1)) : packed;
    return words ? [cut] : [cut, records.length + (random() < 0.1 ? below(3) - 1 : 0)];
  };
  /** Arguments that are right, mostly. @type {Record<string, () => unknown[]>} */
  const plausible = {
    createBuffer: () => [
      pick([4, 64, 4096, 10_000, 65_536, 262_144, 1 << 20]) + below(5),
      pick([0, 1, true, undefined]),
      pick([0, 1, undefined]),
    ],
    destroyBuffer: () => [buffer()],
    bufferBytes: () => [buffer()],
    uploadBuffer: () => [buffer(), data()],
    uploadAsync: () => [buffer(), data(), pick([undefined, 0, 4, 8, 64, below(2000)])],
    fillBuffer: () => [buffer(), pick([0, 4, 64, 4096]), below(2 ** 32)],
    copyBuffer: () => [buffer(), buffer(), pick([undefined, 0, 4, 64]), pick([undefined, 0, 4, 128]), pick([undefined, 0, 4, 256])],
    readBuffer: () => [buffer()],
    readInto: () => [buffer(), pick([new Uint32Array(4), new Uint8Array(64), new ArrayBuffer(16)]), pick([undefined, 0, 4, 16])],
    readAsync: () => [
      buffer(),
      pick([undefined, 0, 4]),
      pick([undefined, 0, 4, 64]),
      pick([undefined, { signal: AbortSignal.timeout(1) }, { signal: new AbortController().signal }]),
    ],
    waitAsync: () => [pick(timeline)],
    destroyPipeline: () => [pick(pipelines)?.handle],
    createPipeline: () => {
      const p = pick(kernels);
      return [p.spirv, p.bindings, p.pushBytes, pick([undefined, {}, { name: 'k' }, { specialization: new Uint32Array(2) }])];
    },
    dispatch: single,
    batchDispatch: () => [...single(), pick([undefined, Uint32Array.of(below(2 ** 32))])],
    gpuTime: () => [...single(), 1 + below(3), below(3)],
    batchDispatchMany: list,
    batchExecuteAll: list,
    batchExecuteAllProfiled: list,
    waitTimeline: () => [pick(timeline)],
    graphLaunch: () => [pick(graphs)],
    graphDestroy: () => [pick(graphs)],
    setName: () => [pick([buffer(), pick(pipelines)?.handle]), pick(['name', 'ü', '']), pick([undefined, 'buffer', 'pipeline'])],
    weakAdd: () => [below(2), pick([{}, [], () => 0])],
    weakSweep: () => [below(2), new Uint8Array(below(4)), pick([undefined, false, below(20) === 0])],
    dgcSetup: () => [dgcPipeline ?? any(), pick([32, 30, 4]), pick([1, 16, 100])],
    dgcExecute: () => [below(20)],
    dgcGetBufferAddress: () => [buffer()],
    batchExecuteAllDGC: () => {
      const words = Array.from({ length: below(4) }, () => [
        pick(buffers) ?? 1,
        pick(buffers) ?? 1,
        pick(buffers) ?? 1,
        1,
        1,
        1,
        below(2),
      ]).flat();
      return [Int32Array.from(words).buffer, Math.floor(words.length / 7) + (random() < 0.1 ? 1 : 0)];
    },
  };
  /** Where the n-th argument says how much work it is: never wild, beyond what is refused. @type {Record<string, number[]>} */
  const workload = { dispatch: [2, 3, 4], batchDispatch: [2, 3, 4], gpuTime: [2, 3, 4, 6, 7], dgcSetup: [2], batchExecuteAllDGC: [0] };
  const REFUSED = [-1, NaN, 'x', {}, 2 ** 32, 0.5, null];
  /** @type {number | undefined} */
  let dgcPipeline;

  const args = (/** @type {string} */ name) => {
    const right = plausible[name]?.() ?? [];
    const kept = workload[name] ?? [];
    if (random() < 0.6) return right;
    if (random() < 0.5 || kept.length > 0) {
      // One of them goes wrong.
      const at = below(right.length + 1);
      right[at] = kept.includes(at) ? pick(REFUSED) : any();
      return right;
    }
    return Array.from({ length: below(7) }, any);
  };

  /** What a success means for what is known. @param {string} name @param {any} result @param {any[]} given */
  const note = (name, result, given) => {
    if (name === 'createBuffer') {
      // What is huge is not filled and read: that would take the machine's memory.
      if (given[0] > 16 << 20 || buffers.length > 60) vk.destroyBuffer(result);
      else buffers.push(result);
    } else if (name === 'destroyBuffer') {
      buffers = buffers.filter((handle) => handle !== given[0]);
      stale.push(given[0]);
    } else if (name === 'createPipeline') {
      const program = kernels.find((p) => p.spirv === given[0] && p.bindings === given[1] && p.pushBytes === given[2]);
      if (program && pipelines.length < 50) pipelines.push({ handle: result, program });
    } else if (name === 'destroyPipeline') {
      pipelines = pipelines.filter(({ handle }) => handle !== given[0]);
      stale.push(given[0]);
      if (given[0] === dgcPipeline) dgcPipeline = undefined;
    } else if (name === 'graphEnd') graphs.push(result);
    else if (name === 'graphDestroy') {
      graphs = graphs.filter((handle) => handle !== given[0]);
      stale.push(given[0]);
    } else if (name === 'destroy') {
      stale.push(...buffers, ...graphs, ...pipelines.map(({ handle }) => handle));
      [buffers, pipelines, graphs, timeline, dgcPipeline] = [[], [], [], [0], undefined];
    } else if (
      typeof result === 'number' &&
      /^(dispatch|batchSubmit|batchExecuteAll|batchExecuteAllDGC|uploadAsync|graphLaunch|dgcExecute)$/.test(name)
    ) {
      timeline.push(result);
    }
    if (stale.length > 200) stale.splice(0, 100);
    if (timeline.length > 50) timeline.splice(0, 25);
  };

  /** @param {any} error */
  const ours = (error) =>
    error instanceof Hostile ||
    (error instanceof Error &&
      /^ERR_HELIOS_/.test(/** @type {any} */ (error).code) &&
      typeof (/** @type {any} */ (error).call) === 'string' &&
      error.message.startsWith(/** @type {any} */ (error).call));
  const show = (/** @type {unknown} */ value) => {
    try {
      return typeof value === 'number' ? String(value) : Object.prototype.toString.call(value);
    } catch {
      return '(hostile)';
    }
  };
  /** @param {string} where @param {any} error */
  const fail = (where, error) => {
    let text = '';
    try {
      text = String(error?.stack ?? error);
    } catch {
      text = '(hostile)';
    }
    console.error(`${where}: not one of ours: ${text}`);
    process.exit(1);
  };
  let made = 0;
  /** Calls that went well, by name. @type {Record<string, number>} */
  const done = Object.fromEntries(functions.map((name) => [name, 0]));
  /** @param {string} name @param {unknown[]} given */
  const call = (name, given) => {
    made++;
    last = `${made}: ${name}(${given.map(show).join(', ')})`;
    if (LOG) process.stderr.write(`${last}\n`);
    const where = last;
    try {
      const result = /** @type {any} */ (vk)[name](...given);
      if (result instanceof Promise) {
        promises.push(
          result.then(
            () => {},
            (error) => {
              const aborted = error?.name === 'AbortError' || error?.name === 'TimeoutError';
              if (!aborted && !ours(error)) fail(where, error);
            },
          ),
        );
      } else note(name, result, given);
      done[name]++;
    } catch (error) {
      if (!ours(error)) fail(where, error);
    }
  };

  const [rare, common] = [
    ['destroy', 'initDevice', 'listDevices'],
    functions.filter((f) => !['destroy', 'initDevice', 'listDevices'].includes(f)),
  ];
  /** @type {number[]} */
  const resident = [];
  for (let round = 0; round < ROUNDS; round++) {
    for (let i = 0; i < calls / ROUNDS; i++) {
      if (round + i > 0 || random() < 0.9) {
        const state = random();
        if (buffers.length < 4 && state < 0.5) {
          call('initDevice', []);
          call('createBuffer', [4096 * (1 + below(4)), below(2)]);
        }
        if (pipelines.length === 0 && state < 0.5) kernels.forEach((p) => call('createPipeline', [p.spirv, p.bindings, p.pushBytes]));
        if (dgcPipeline === undefined && state < 0.1) {
          try {
            dgcPipeline = vk.createPipeline(programs.addByAddress.spirv, 0, programs.addByAddress.pushBytes);
          } catch (error) {
            if (!ours(error)) fail('dgc', error);
          }
        }
      }
      const name = random() < 0.004 ? pick(rare) : pick(common);
      call(name, args(name));
      if (promises.length > 20 || random() < 0.01) {
        await Promise.allSettled(promises);
        promises = [];
      }
    }
    last = 'the end of a round';
    await Promise.allSettled(promises);
    promises = [];
    call('destroy', []);
    for (let i = 0; i < 3; i++) {
      gc();
      await new Promise((resolve) => setImmediate(resolve));
    }
    const left = faults ? [faults.live(), faults.violations()] : [];
    if (left.some((found) => Object.keys(found).length > 0)) {
      console.error(`left after destroy: ${JSON.stringify(left)}`);
      process.exit(1);
    }
    resident.push(process.memoryUsage().rss);
  }
  const growth = /** @type {number} */ (resident.at(-1)) - resident[0];
  if (growth > GROWTH) {
    console.error(`resident memory grew by ${growth >> 20} MiB over ${ROUNDS} rounds: ${resident.map((r) => r >> 20)}`);
    process.exit(1);
  }
  console.log(JSON.stringify({ made, done, functions: functions.length, counted: faults !== null }));
}

/**
 * @param {number} seed
 * @param {number} calls
 * @param {Record<string, string>} [environment]
 * @returns {Promise<{ failure: string | null, stdout: string, stderr: string }>}
 */
function run(seed, calls, environment = {}) {
  return new Promise((resolve) => {
    const args = ['--expose-gc', fileURLToPath(import.meta.url), '--child', '--seed', String(seed), '--calls', String(calls)];
    const child = spawn(process.execPath, args, {
      timeout: HANG_MS,
      killSignal: 'SIGKILL',
      env: { ...process.env, HELIOS_PIPELINE_CACHE: '0', ...environment },
    });
    const output = { stdout: '', stderr: '' };
    child.stdout.setEncoding('utf8').on('data', (text) => {
      output.stdout += text;
    });
    child.stderr.setEncoding('utf8').on('data', (text) => {
      output.stderr = (output.stderr + text).slice(-20_000);
    });
    child.on('close', (code, signal) => {
      const hang = signal === 'SIGKILL' ? `no end after ${HANG_MS / 1000} s` : null;
      const failure = hang ?? (signal ? `died of ${signal}` : code === 0 ? null : `ended with ${code}`);
      resolve({ failure, ...output });
    });
  });
}

/** The fewest calls (by bisection) that still fail, with their end. @param {number} seed @param {number} calls */
async function shrink(seed, calls) {
  let [good, bad] = [0, calls];
  while (bad - good > Math.max(ROUNDS, bad / 50)) {
    const middle = Math.ceil((good + bad) / 2);
    if ((await run(seed, middle)).failure) bad = middle;
    else good = middle;
  }
  const { failure, stderr } = await run(seed, bad, { HELIOS_FUZZ_LOG: '1' });
  console.error(
    `reproduce: node --expose-gc __test__/fuzz/calls.mjs --child --seed ${seed} --calls ${bad}\n${failure}; the end of it:\n${stderr.split('\n').slice(-25).join('\n')}`,
  );
}

async function main() {
  const calls = options.calls;
  const end = performance.now() + options.seconds * 1000;
  const first = options.seed ?? Math.floor(Math.random() * 2 ** 31);
  let [children, made, counted] = [0, 0, true];
  /** @type {Record<string, number>} */
  const done = {};
  for (let seed = first; children === 0 || (options.seed === undefined && performance.now() < end); seed++) {
    const { failure, stdout, stderr } = await run(seed, calls);
    children++;
    if (failure !== null) {
      console.error(`seed ${seed}: ${failure}\n${stderr.split('\n').slice(-15).join('\n')}`);
      await shrink(seed, calls);
      return 1;
    }
    const result = JSON.parse(stdout.trim().split('\n').at(-1) ?? '');
    made += result.made;
    for (const [name, count] of Object.entries(result.done)) done[name] = (done[name] ?? 0) + count;
    counted &&= result.counted;
  }
  const [worked, never] = [
    Object.values(done).reduce((sum, count) => sum + count, 0),
    Object.keys(done).filter((name) => done[name] === 0),
  ];
  console.log(
    `${made} calls (${worked} went well${never.length > 0 ? `; never: ${never.join(', ')}` : ''}) in ${children} children, seeds ${first} to ${first + children - 1}: no crash, no hang, no foreign error, ${counted ? 'no object left' : 'objects not counted'}`,
  );
  return 0;
}

if (options.child) await wild(options.seed ?? 0, options.calls);
else process.exitCode = await main();
