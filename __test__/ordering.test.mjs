// @ts-nocheck -- wrong arguments are passed on purpose; types/trainer-contract.ts checks the types.
/**
 * As if serial: every ordered pair of operations, with each kind of hazard between them. The first
 * operation is kept busy for a while, so that on a device that really overlaps work a missing barrier
 * shows as a wrong result.
 */
import { before, test } from 'node:test';
import assert from 'node:assert/strict';
import { init, pipelineOf, ramp, scaled, vk } from './lib/addon.mjs';
import { Random } from './lib/random.mjs';
import {
  atomicSum,
  churn,
  copyMemory,
  increment,
  readOnly,
  reverse,
  scaleAdd,
  storeInFunction,
  storeThroughParameter,
  storeThroughSelect,
  twoOutputs,
} from './lib/programs.mjs';
import { Twin, setUpDgc } from './lib/twin.mjs';

const N = 4096;
let STEPS = 5000;
let info;
before(() => {
  info = init();
  // A CPU device runs one thing after the other anyway, and slowly.
  if (/llvmpipe|swiftshader/i.test(info.deviceName)) STEPS = 200;
});

/** Ways to run `churn` from one buffer to another. */
const run = (from, to, steps = STEPS) => ({ program: churn, buffers: [from, to], push: Uint32Array.of(N, steps) });

/** Operations that write `x` (from `other`). */
const WRITERS = {
  dispatch: (twin, x, other) => twin.dispatch(run(other, x)),
  'batch dispatch': (twin, x, other) => twin.batched(run(other, x)),
  'batch dispatch, mask 0': (twin, x, other) => twin.batched({ ...run(other, x), writeMask: 0 }),
  'packed bytes': (twin, x, other) => twin.packed('bytes', [{ ...run(other, x), writeMask: 2 }]),
  'packed words': (twin, x, other) => twin.packed('words', [{ ...run(other, x), writeMask: 2 }]),
  fill: (twin, x) => twin.fill(x, 4 * N, 0x12345678),
  'partial fill': (twin, x) => twin.fill(x, 2 * N, 0x9abcdef0),
  upload: (twin, x) => twin.upload(x, new Random(1).words(N)),
  'partial upload': (twin, x) => twin.upload(x, new Random(2).words(N / 4)),
  uploadAsync: (twin, x) => twin.uploadAsync(x, new Random(3).words(N)),
  'partial uploadAsync': (twin, x) => twin.uploadAsync(x, new Random(4).words(N / 4), N),
  copy: (twin, x, other) => twin.copy(other, x, N),
  'partial copy': (twin, x, other) => twin.copy(other, x, N / 2, 5, 70),
  dgc: (twin, x, other) => twin.dgc(other, other, x, N),
};

/** Operations that read `x` (into `other`). */
const READERS = {
  dispatch: (twin, x, other) => twin.dispatch(run(x, other)),
  'batch dispatch': (twin, x, other) => twin.batched(run(x, other)),
  'batch dispatch, mask 0': (twin, x, other) => twin.batched({ ...run(x, other), writeMask: 0 }),
  'packed bytes': (twin, x, other) => twin.packed('bytes', [{ ...run(x, other), writeMask: 2 }]),
  'packed words': (twin, x, other) => twin.packed('words', [{ ...run(x, other), writeMask: 2 }]),
  read: (twin, x) => twin.read(x),
  copy: (twin, x, other) => twin.copy(x, other, N),
  dgc: (twin, x, other) => twin.dgc(x, x, other, N),
};

/** Operations that end `x` and begin another buffer of its size (which may well take its memory). */
const ENDERS = {
  'destroy and create': (twin, x) => {
    twin.destroy(x);
    Object.assign(x, twin.create(new Random(6).words(N), 0));
  },
  'destroy, create and dispatch': (twin, x, other) => {
    twin.destroy(x);
    Object.assign(x, twin.create(new Uint32Array(N), 0));
    twin.dispatch(run(other, x, 10));
  },
};

const PAIRS = [
  ['read after write', WRITERS, READERS],
  ['write after write', WRITERS, WRITERS],
  ['write after read', READERS, WRITERS],
  ['read after read', READERS, READERS],
  ['end after write', WRITERS, ENDERS],
  ['end after read', READERS, ENDERS],
  ['write after end', ENDERS, WRITERS],
  ['read after end', ENDERS, READERS],
];
const SETTINGS = {
  'outside of a batch': () => {},
  'inside one batch': (twin) => twin.begin(),
};

for (const hostVisible of [0, 1]) {
  for (const [hazard, firsts, seconds] of PAIRS) {
    for (const [setting, open] of Object.entries(SETTINGS)) {
      test(`${hazard}, ${setting}, hostVisible ${hostVisible}`, () => {
        if (info.hasDGC) setUpDgc();
        for (const [first, doFirst] of Object.entries(firsts)) {
          for (const [second, doSecond] of Object.entries(seconds)) {
            if ([first, second].includes('dgc') && (!info.hasDGC || setting === 'inside one batch')) continue;
            const twin = new Twin();
            twin.log.push(`${first}, then ${second}`);
            const random = new Random(17);
            const [x, y, z] = [0, 1, 2].map(() => twin.create(random.words(N), hostVisible));
            open(twin);
            // Something slow before both, on which the first depends.
            twin.batched(run(y, y, STEPS));
            doFirst(twin, x, y);
            doSecond(twin, x, z);
            if (twin.open) assert.ok(twin.submit() >= 0);
            const all = [x, y, z];
            all.forEach((buffer) => twin.read(buffer));
            all.forEach((buffer) => twin.destroy(buffer));
          }
        }
      });
    }
  }
}

test('chains of dependent dispatches in one batch', () => {
  const twin = new Twin();
  const [a, b] = [twin.create(ramp(N)), twin.create(new Uint32Array(N))];
  twin.begin();
  for (let i = 0; i < scaled(500); i++) {
    twin.batched({ program: reverse, buffers: [a, b], push: Uint32Array.of(N), writeMask: i % 3 });
    twin.batched({ program: increment, buffers: [b], push: Uint32Array.of(N, i), writeMask: i % 2 });
    twin.batched({ program: reverse, buffers: [b, a], push: Uint32Array.of(N), writeMask: i % 4 });
  }
  twin.submit();
  [a, b].forEach((buffer) => {
    twin.read(buffer);
    twin.destroy(buffer);
  });
});

test('chains across batches, without waiting', () => {
  const twin = new Twin();
  const [a, b] = [twin.create(ramp(N)), twin.create(new Uint32Array(N))];
  for (let i = 0; i < scaled(200); i++) {
    twin.packed(i % 2 ? 'bytes' : 'words', [
      { program: reverse, buffers: [a, b], push: Uint32Array.of(N), writeMask: 0 },
      { program: increment, buffers: [b], push: Uint32Array.of(N, i), writeMask: 0 },
    ]);
    twin.dispatch({ program: reverse, buffers: [b, a], push: Uint32Array.of(N) });
  }
  [a, b].forEach((buffer) => {
    twin.read(buffer);
    twin.destroy(buffer);
  });
});

for (const [name, program, buffers, push] of [
  ['two outputs', twoOutputs, 3, [N]],
  ['atomics only', atomicSum, 2, [N]],
  ['a store in a called function', storeInFunction, 2, [N]],
  ['a memory copy', copyMemory, 2, [N]],
  ['a store through a parameter', storeThroughParameter, 2, [N]],
  ['a store through a selected pointer', storeThroughSelect, 3, [N]],
]) {
  test(`a kernel with ${name}, under every write mask`, (t) => {
    try {
      pipelineOf(program);
    } catch (error) {
      if (error.code !== 'ERR_HELIOS_UNSUPPORTED') throw error;
      return t.skip(error.message);
    }
    for (let writeMask = 0; writeMask < 2 ** buffers; writeMask++) {
      for (const form of ['bytes', 'words', 'batch']) {
        const twin = new Twin();
        const list = Array.from({ length: buffers }, (_, k) => twin.create(new Random(k).words(N), 0));
        const sums = list.map(() => twin.create(new Uint32Array(N), 0));
        const runs = [
          { program: churn, buffers: [list[0], list[0]], push: Uint32Array.of(N, STEPS), writeMask },
          { program, buffers: list, push: Uint32Array.from(push), writeMask },
          // Read everything that it may have written, then overwrite it.
          ...list.map((buffer, k) => ({ program: reverse, buffers: [buffer, sums[k]], push: Uint32Array.of(N), writeMask })),
          ...list.map((buffer) => ({ program: increment, buffers: [buffer], push: Uint32Array.of(N, 3), writeMask })),
          { program, buffers: list, push: Uint32Array.from(push), writeMask },
        ];
        if (form === 'batch') {
          twin.begin();
          runs.forEach((one) => twin.batched(one));
          twin.submit();
        } else {
          twin.packed(form, runs);
        }
        for (const buffer of [...list, ...sums]) {
          twin.read(buffer);
          twin.destroy(buffer);
        }
      }
    }
  });
}

test('a kernel that writes nothing keeps everything as it is', () => {
  const twin = new Twin();
  const x = twin.create(ramp(N));
  for (const writeMask of [0, 1, 0xffffffff]) {
    twin.packed('bytes', [
      { program: increment, buffers: [x], push: Uint32Array.of(N, 1), writeMask: 0 },
      { program: readOnly, buffers: [x], push: Uint32Array.of(N), writeMask },
      { program: increment, buffers: [x], push: Uint32Array.of(N, 1), writeMask: 0 },
    ]);
  }
  twin.read(x);
  twin.destroy(x);
});

test('many readers of one writer, then a writer that must wait for all of them', () => {
  const twin = new Twin();
  const source = twin.create(new Random(8).words(N), 0);
  const targets = Array.from({ length: 40 }, () => twin.create(new Uint32Array(N), 0));
  for (let round = 0; round < 3; round++) {
    twin.packed('bytes', [
      { program: churn, buffers: [source, source], push: Uint32Array.of(N, STEPS), writeMask: 0 },
      ...targets.map((target) => ({ program: churn, buffers: [source, target], push: Uint32Array.of(N, 50), writeMask: 0 })),
      { program: increment, buffers: [source], push: Uint32Array.of(N, 1), writeMask: 0 },
    ]);
    twin.upload(source, new Random(round).words(N / 2));
    twin.fill(targets[round], 64, round);
  }
  for (const buffer of [source, ...targets]) {
    twin.read(buffer);
    twin.destroy(buffer);
  }
});

test('one buffer in every role of one dispatch', () => {
  const twin = new Twin();
  const x = twin.create(ramp(N));
  for (let i = 1; i < 20; i++) twin.dispatch({ program: scaleAdd, buffers: [x, x, x], push: Uint32Array.of(N, i) });
  twin.read(x);
  twin.destroy(x);
});

test('buffers larger than a storage-buffer binding may be are still uploaded, filled and read', () => {
  // lavapipe binds at most 128 MiB; copies have no such limit.
  const size = 160 << 20;
  const handle = vk.createBuffer(size, 0);
  vk.fillBuffer(handle, size, 7);
  vk.uploadBuffer(handle, ramp(1000));
  const tail = new Uint32Array(vk.readBuffer(handle).buffer);
  assert.equal(tail[999], 999);
  assert.equal(tail[1000], 7);
  assert.equal(tail[size / 4 - 1], 7);
  vk.destroyBuffer(handle);
});
