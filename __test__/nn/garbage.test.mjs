// Tensors that a program drops without `dispose`: their memory is freed while the program runs, whether or not the event loop turns, and early
// enough.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { LEAST_GROWTH, nextLook } from '../../nn/core/garbage.mjs';
import { compile, full, init, memory, randn, reset, scope } from '../../nn/index.mjs';
import { runtime } from '../../nn/core/runtime.mjs';
import { vk } from '../lib/addon.mjs';
import { childJson } from '../lib/child.mjs';

/** Bytes that the device has, for as long as a test says so. */
let most = Infinity;
/** Bytes of live buffers, by handle. @type {Map<number, number>} */
const buffers = new Map();
let bytes = 0;
/** Collections that were asked for. */
let collections = 0;

/** The addon, on a device of `most` bytes. */
const device = /** @type {any} */ ({
  ...vk,
  createBuffer(/** @type {number} */ size, /** @type {any[]} */ ...rest) {
    if (bytes + size > most) throw Object.assign(new RangeError('createBuffer: for a test'), { code: 'ERR_HELIOS_OUT_OF_MEMORY' });
    const handle = vk.createBuffer(size, ...rest);
    buffers.set(handle, size);
    bytes += size;
    return handle;
  },
  destroyBuffer(/** @type {number} */ handle) {
    vk.destroyBuffer(handle);
    bytes -= buffers.get(handle) ?? 0;
    buffers.delete(handle);
  },
  weakSweep(/** @type {number} */ list, /** @type {Uint8Array} */ gone, /** @type {boolean} */ collect) {
    if (collect) collections++;
    vk.weakSweep(list, gone, collect);
  },
});

before(() => init({ vk: device }));

const MIB = 2 ** 20;
/** Elements of 4 MiB. */
const COUNT = 2 ** 20;

/** Runs a step again and again; the most that tensors held meanwhile. @param {number} steps @param {(i: number) => any} step */
async function peak(steps, step) {
  const start = memory();
  let [mostBytes, mostBuffers] = [0, 0];
  for (let i = 0; i < steps; i++) {
    // A step that gives a promise is one in which the event loop turns.
    const given = step(i);
    if (given instanceof Promise) await given;
    const now = memory();
    mostBytes = Math.max(mostBytes, now.bytes - start.bytes);
    mostBuffers = Math.max(mostBuffers, now.buffers - start.buffers);
  }
  return { bytes: mostBytes, buffers: mostBuffers };
}

/** What a program may hold that holds nothing when it is looked at, and makes a little more. */
const BOUND = LEAST_GROWTH.bytes + 32 * MIB;

test('the next look: twice what the last one left, within the device, and not at once', () => {
  const { bytes: least, buffers: fewest } = LEAST_GROWTH;
  const GIB = 2 ** 30;
  assert.deepEqual(nextLook({ bytes: 0, buffers: 0 }, 80 * GIB), { bytes: least, buffers: fewest });
  assert.deepEqual(nextLook({ bytes: 10 * GIB, buffers: 10 * fewest }, 80 * GIB), { bytes: 20 * GIB, buffers: 20 * fewest });
  assert.equal(nextLook({ bytes: 40 * GIB, buffers: 0 }, 80 * GIB).bytes, 60 * GIB);
  assert.equal(nextLook({ bytes: 79 * GIB, buffers: 0 }, 80 * GIB).bytes, 79 * GIB + least);
});

test('a chain of operations, and a value that is awaited each turn', async () => {
  const { bytes } = await peak(100, async (i) => {
    assert.equal(await full([COUNT], i).mul(2).add(1).mean().item(), 2 * i + 1);
  });
  assert.ok(bytes <= BOUND, `${bytes} bytes`);
});

test('a chain of operations in a loop that never yields', async () => {
  let last = full([1], 0);
  const { bytes } = await peak(100, (i) => {
    last = full([COUNT], i).mul(2).add(1).mean();
  });
  assert.ok(bytes <= BOUND, `${bytes} bytes`);
  assert.equal(await last.item(), 199);
});

test('gradients that nobody holds', async () => {
  const { bytes } = await peak(50, () => {
    const w = randn([COUNT], { requiresGrad: true });
    w.mul(3).square().sum().backward();
  });
  assert.ok(bytes <= BOUND, `${bytes} bytes`);
});

test('results of a compiled function', async () => {
  const step = compile((/** @type {any} */ x) => [x.mul(2), x.add(1)]);
  const x = full([COUNT], 3);
  let last;
  const { bytes } = await peak(100, () => {
    [last] = step(x);
  });
  assert.ok(bytes <= BOUND, `${bytes} bytes`);
  assert.equal(/** @type {any} */ ((await /** @type {any} */ (last).toArray())[5]), 6);
  step.dispose();
  x.dispose();
});

test('compiled functions that nobody holds, but for one whose result lies in its graph', async () => {
  const x = full([COUNT], 3);
  const collected = () => {
    runtime().garbage.collect(runtime().live);
    runtime().flush();
    return memory().buffers;
  };
  const make = (/** @type {number} */ factor, reuseOutputs = false) =>
    compile((/** @type {any} */ y) => y.mul(factor).exp().mul(0).add(factor), { reuseOutputs });
  for (let i = 0; i < 3; i++) make(i)(x);
  const start = collected();
  for (let i = 0; i < 20; i++) make(i)(x);
  // What the last call's frame holds may still be there.
  assert.ok(collected() <= start + 4, `${collected()} buffers, ${start} before`);
  const kept = (() => make(7, true)(x))();
  for (let i = 0; i < 20; i++) {
    make(i)(x);
    collected();
  }
  assert.equal((await kept.toArray())[9], 7);
  x.dispose();
});

test('very many small tensors', async () => {
  const x = full([4], 1);
  let last = x;
  const { buffers } = await peak(60_000, () => {
    last = x.add(1);
  });
  assert.ok(buffers <= LEAST_GROWTH.buffers + 10, `${buffers} buffers`);
  assert.deepEqual([...(await last.toArray())], [2, 2, 2, 2]);
});

test('what is held is not given back, and what a program frees itself costs no collection', async () => {
  runtime().garbage.collect(runtime().live);
  const held = Array.from({ length: 200 }, (_, i) => full([16], i));
  collections = 0;
  const { bytes } = await peak(100, () => {
    scope(() => {
      full([COUNT], 1).mul(2).add(1);
    });
  });
  assert.equal(collections, 0);
  assert.ok(bytes <= 32 * MIB, `${bytes} bytes`);
  runtime().garbage.collect(runtime().live);
  for (const [i, x] of held.entries()) assert.equal((await x.toArray())[15], i);
  for (const x of held) x.dispose();
});

test('an allocation that would fail collects first', async () => {
  runtime().garbage.collect(runtime().live);
  runtime().flush();
  most = bytes + 40 * MIB;
  try {
    for (const turns of [true, false]) {
      let last = full([1], 0);
      for (let i = 0; i < 50; i++) {
        last = full([COUNT], i).mul(2).add(1).mean();
        if (turns) await last.item();
      }
      assert.equal(await last.item(), 99);
    }
    // All or nothing: the step of an optimizer, an operation in place.
    const w = full([COUNT], 1);
    for (let i = 0; i < 50; i++) w.add_(full([COUNT], i));
    assert.equal((await w.toArray())[7], 1 + 49 * 25);
    w.dispose();
  } finally {
    most = Infinity;
  }
});

test('where nothing is garbage, the error says how much is held and what to do', () => {
  runtime().garbage.collect(runtime().live);
  runtime().flush();
  most = bytes + 40 * MIB;
  const held = Array.from({ length: 9 }, (_, i) => full([COUNT], i));
  try {
    assert.throws(
      () => full([4 * COUNT], 0),
      (/** @type {any} */ error) => {
        assert.equal(error.code, 'ERR_HELIOS_OUT_OF_MEMORY');
        assert.match(error.message, new RegExp(`hold ${memory().bytes} bytes in ${memory().buffers} buffers.*scope\\(.*dispose\\(\\)`));
        assert.ok(error.stack.includes(error.message), 'an uncaught one shows it');
        return true;
      },
    );
  } finally {
    most = Infinity;
    for (const x of held) x.dispose();
  }
});

test('a device that was given up, and the next', async () => {
  const old = full([COUNT], 1);
  const { garbage } = runtime();
  assert.ok(garbage.waiting.length + garbage.watched.length > 0);
  reset();
  garbage.sweep(true);
  assert.equal(garbage.watched.length, 0);
  assert.ok(!old.disposed);
  init({ vk: device });
  const { bytes } = await peak(100, (i) => {
    full([COUNT], i).mul(2).add(1);
  });
  assert.ok(bytes <= BOUND, `${bytes} bytes`);
});

test('lists of the addon: objects that are garbage, and arguments that are wrong', () => {
  const list = vk.weakList();
  const kept = Array.from({ length: 50 }, (_, i) => ({ i }));
  for (const object of kept) {
    vk.weakAdd(list, object);
    vk.weakAdd(list, [object]);
  }
  const gone = new Uint8Array(100);
  gone[2] = 1;
  vk.weakSweep(list, gone, true);
  const expected = Uint8Array.from(gone, (_, i) => Number(i % 2 === 1 || i === 2));
  // The last array may be in a register still.
  assert.deepEqual(gone.subarray(0, 99), expected.subarray(0, 99));
  const left = new Uint8Array(gone.filter((mark) => mark === 0).length);
  vk.weakSweep(list, left, true);
  assert.deepEqual(left.subarray(0, 49), new Uint8Array(49));
  assert.notEqual(vk.weakList(), list);
  for (const wrong of [-1, 1e9, 0.5, 'x', undefined]) {
    assert.throws(() => vk.weakAdd(/** @type {any} */ (wrong), {}), /weakAdd: list/);
  }
  for (const wrong of [1, 'x', null, undefined]) assert.throws(() => vk.weakAdd(list, /** @type {any} */ (wrong)), /weakAdd: object/);
  for (const wrong of [new Uint8Array(7), new Uint8Array(0), 5, undefined]) {
    assert.throws(() => vk.weakSweep(list, /** @type {any} */ (wrong)), /weakSweep: gone/);
  }
  assert.equal(kept.length, 50);
});

/** Turns before the most that the process has held is looked at, and turns that must not raise it by a megabyte each. */
const [FIRST, MORE] = [60, 120];
for (const [what, source] of Object.entries({
  'a chain of operations': 'full([4e6], i).mul(2).add(1).mean().item()',
  'results of a compiled function': 'step(x)[1].mean().item()',
})) {
  test(`${what}, turns of 48 MB: under 1 GB, and no more after many`, { skip: process.platform !== 'linux' && 'reads /proc' }, async () => {
    const [first, last] = await childJson(`
      import { readFileSync } from 'node:fs';
      import { compile, full } from ${JSON.stringify(new URL('../../nn/index.mjs', import.meta.url).href)};
      const x = full([4e6], 1);
      const step = compile((x) => [x.mul(2), x.add(1), x.exp()]);
      const most = () => Number(/VmHWM:\\s+(\\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))[1]) / 1024;
      const marks = [];
      for (const turns of [${FIRST}, ${MORE}]) {
        for (let i = 0; i < turns; i++) await ${source};
        marks.push(most());
      }
      process.stdout.write(JSON.stringify(marks));
    `);
    assert.ok(last * MIB < 1e9, `${last} MiB`);
    assert.ok(last - first < MORE, `${MORE} turns more took ${last - first} MiB more`);
  });
}
