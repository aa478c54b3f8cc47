// @ts-nocheck -- wrong arguments are passed on purpose; types/trainer-contract.ts checks the types.
/** Bindings of ranges, and of more than the device's `maxStorageBufferRange`, here made small. */
import { before, test } from 'node:test';
import assert from 'node:assert/strict';
import { bits, groupsOf, init, pipelineOf, ramp, vk, words } from './lib/addon.mjs';
import { childJson } from './lib/child.mjs';
import { INVALID_ARGUMENT, INVALID_HANDLE, sameWords, throws } from './lib/expect.mjs';
import { byteOffsets, packBytes, packWords, wordOffsets } from './lib/packed.mjs';
import { addByAddress, increment, scaleAdd } from './lib/programs.mjs';

const LIMIT = 64 << 10;
process.env.HELIOS_TEST_MAX_STORAGE_RANGE = String(LIMIT);
/** Elements of a buffer of two and a half bindings. */
const N = (5 * LIMIT) / 8;

let info;
let large;
let align;
before(() => {
  info = init();
  align = info.minStorageBufferOffsetAlignment;
  large = vk.createBuffer(4 * N, 0);
  vk.setName(large, 'large weights');
  vk.uploadBuffer(large, ramp(N));
});

const push = (n, by = 1) => Uint32Array.of(n, by);
const record = (buffers, n = 16) => ({
  pipeline: pipelineOf(increment),
  buffers,
  groups: [groupsOf(n), 1, 1],
  push: push(n),
  writeMask: 1,
});
const bad = (buffers) => record(buffers);

/** Every form of a dispatch, as a function that runs one record, blocking, in which lists say where it is. */
const FORMS = {
  dispatch: ({ pipeline, buffers, groups, push }) => vk.dispatch(pipeline, buffers, ...groups, push),
  batchDispatch: ({ pipeline, buffers, groups, push }) => {
    vk.batchBegin();
    try {
      vk.batchDispatch(pipeline, buffers, ...groups, push);
    } finally {
      vk.batchSubmit();
    }
  },
  gpuTime: ({ pipeline, buffers, groups, push }) => vk.gpuTime(pipeline, buffers, ...groups, push, 1, 0),
  bytes: (one) => vk.batchExecuteAll(packBytes([one]), 1),
  words: (one) => vk.batchExecuteAll(packWords([one])),
  profiled: (one) => vk.batchExecuteAllProfiled(packBytes([one]), 1),
  graph: (one) => {
    vk.graphBegin();
    try {
      vk.batchExecuteAll(packBytes([one]), 1);
    } catch (error) {
      vk.graphDestroy(vk.graphEnd());
      throw error;
    }
    const graph = vk.graphEnd();
    vk.graphLaunch(graph);
    vk.waitIdle();
    vk.graphDestroy(graph);
  },
  graphDispatch: ({ pipeline, buffers, groups, push }) => {
    vk.graphBegin();
    try {
      vk.dispatch(pipeline, buffers, ...groups, push);
    } catch (error) {
      vk.graphDestroy(vk.graphEnd());
      throw error;
    }
    const graph = vk.graphEnd();
    vk.graphLaunch(graph);
    vk.waitIdle();
    vk.graphDestroy(graph);
  },
};

test('the limits are in the info', () => {
  assert.equal(info.maxStorageBufferRange, LIMIT);
  assert.ok(align >= 1 && align <= 256 && Number.isInteger(Math.log2(align)));
});

for (const [form, run] of Object.entries(FORMS)) {
  test(`${form}: a range is what the shader sees`, () => {
    const untouched = words(large);
    const first = LIMIT / 4; // behind the first binding's reach
    run(record([{ buffer: large, offset: 4 * first, size: 64 }]));
    run(record([{ buffer: large, offset: 2 * LIMIT }])); // to the end
    const expected = untouched.slice();
    for (let i = 0; i < 16; i++) {
      expected[first + i]++;
      expected[LIMIT / 2 + i]++;
    }
    sameWords(words(large), expected, form);
  });

  test(`${form}: more than the limit is an error that names buffer, bytes and limit`, () => {
    const before = words(large);
    for (const [buffer, bytes] of [
      [large, 4 * N],
      [{ buffer: large }, 4 * N],
      [{ buffer: large, offset: align }, 4 * N - align],
      [{ buffer: large, size: LIMIT + 4 }, LIMIT + 4],
    ]) {
      throws(() => run(record([buffer])), INVALID_ARGUMENT, [large, 'large weights', bytes, LIMIT, 'maxStorageBufferRange'], [RangeError]);
    }
    sameWords(words(large), before, 'nothing ran');
    run(record([{ buffer: large, size: LIMIT }]));
  });

  test(`${form}: ranges lie in the buffer, on the device's alignment`, () => {
    throws(
      () => run(bad([{ buffer: large, offset: align + 1, size: 4 }])),
      INVALID_ARGUMENT,
      ['large weights', align + 1, align, 'minStorageBufferOffsetAlignment'],
      [RangeError],
    );
    throws(() => run(bad([{ buffer: large, offset: 4 * N }])), INVALID_ARGUMENT, ['large weights', 4 * N], [RangeError]);
    throws(
      () => run(bad([{ buffer: large, offset: 4 * N - 256, size: 260 }])),
      INVALID_ARGUMENT,
      ['large weights', 4 * N, 4 * N - 256, 260],
      [RangeError],
    );
    throws(() => run(bad([{ buffer: 0x3fffffff, offset: 0, size: 4 }])), INVALID_HANDLE, [0x3fffffff]);
  });

  test(`${form}: a buffer that the shader does not use may be of any size`, () => {
    const pipeline = vk.createPipeline(increment.spirv, 2, increment.pushBytes);
    run({ ...record([{ buffer: large, size: 64 }, large]), pipeline });
    run({ ...record([{ buffer: large, size: 64 }, { buffer: large }]), pipeline });
    throws(() => run({ ...record([large, large]), pipeline }), INVALID_ARGUMENT, ['large weights'], [RangeError]);
  });
}

for (const [form, { pack, offsets, args }] of Object.entries({
  bytes: { pack: packBytes, offsets: byteOffsets, args: (packed, count) => [packed, count] },
  words: { pack: packWords, offsets: wordOffsets, args: (packed) => [packed] },
})) {
  test(`${form}: a list with ranges and without runs in order; one with an error not at all`, () => {
    const a = vk.createBuffer(4 * N, 0);
    vk.uploadBuffer(a, ramp(N));
    const small = vk.createBuffer(1024);
    vk.uploadBuffer(small, ramp(256));
    const n = 256;
    const at = { buffer: a, offset: LIMIT, size: 4 * n };
    const scale = (x, y, z, k) => ({
      pipeline: pipelineOf(scaleAdd),
      buffers: [x, y, z],
      groups: [groupsOf(n), 1, 1],
      push: push(n, k),
      writeMask: 4,
    });
    // The second reads what the first wrote, through another range of the same buffer.
    const good = [
      scale(at, small, { buffer: a, offset: 0, size: 4 * n }, 2),
      scale({ buffer: a, size: 4 * n }, small, small, 1),
      record([small], n),
    ];
    vk.batchExecuteAll(...args(pack(good), 3));
    const first = ramp(n).map((i) => 2 * (LIMIT / 4 + i) + i);
    sameWords(words(a).subarray(0, n), first, 'a');
    sameWords(
      words(small),
      first.map((value, i) => value + i + 1),
      'small',
    );
    const list = [...good, record([a])];
    const before = words(a);
    const error = throws(
      () => vk.batchExecuteAll(...args(pack(list), 4)),
      INVALID_ARGUMENT,
      ['record 3', offsets(list)[3], a, LIMIT],
      [RangeError],
    );
    assert.equal(error.argument, 'packed');
    sameWords(words(a), before, 'a');
    [a, small].forEach(vk.destroyBuffer);
  });
}

test('what is no range is an error of its part', () => {
  const run = (binding) => () => vk.dispatch(pipelineOf(increment), [binding], 1, 1, 1, push(1));
  throws(run({}), INVALID_HANDLE, ['buffers[0]'], [TypeError]);
  throws(run({ buffer: 'x' }), INVALID_HANDLE, ['buffers[0].buffer'], [TypeError]);
  throws(run({ buffer: large, offset: -4 }), INVALID_ARGUMENT, ['buffers[0].offset', -4], [RangeError]);
  throws(run({ buffer: large, offset: 'x' }), INVALID_ARGUMENT, ['buffers[0].offset'], [TypeError]);
  throws(run({ buffer: large, offset: 1.5 }), INVALID_ARGUMENT, ['buffers[0].offset'], [RangeError]);
  throws(run({ buffer: large, size: 0 }), INVALID_ARGUMENT, ['buffers[0].size'], [RangeError]);
  throws(run({ buffer: large, size: 2 ** 60 }), INVALID_ARGUMENT, ['buffers[0].size'], [RangeError]);
  throws(
    run({
      buffer: large,
      get offset() {
        throw new Error('no');
      },
    }),
    INVALID_ARGUMENT,
    ['buffers[0]'],
    [TypeError],
  );
  throws(
    run({
      get buffer() {
        vk.destroyBuffer(doomed);
        return doomed;
      },
    }),
    INVALID_HANDLE,
    ['buffer'],
  );
  throws(run(null), INVALID_HANDLE, ['buffers[0]'], [TypeError]);
});
const doomed = (init(), vk.createBuffer(64));

test('shaders that take addresses reach all of a large buffer', (t) => {
  if (!info.hasBDA) return t.skip('no device addresses');
  const out = vk.createBuffer(4 * N, 0);
  const pipeline = vk.createPipeline(addByAddress.spirv, 0, addByAddress.pushBytes);
  assert.equal(vk.dgcSetup(pipeline, 32, 4), true);
  const op = new ArrayBuffer(28);
  new Uint32Array(op).set([large, large, out, N, groupsOf(N), 1, 1]);
  vk.batchExecuteAllDGC(op, 1);
  sameWords(
    words(out),
    words(large).map((value) => 2 * value),
    'out',
  );
  vk.destroyBuffer(out);
});

test('watchNan sees a NaN beyond the limit, and where it is', () => {
  for (const [type, wide] of [
    ['f32', 4],
    ['bf16', 2],
  ]) {
    const buffer = vk.createBuffer(4 * N, 0);
    vk.fillBuffer(buffer, 4 * N, 0);
    vk.watchNan(buffer, { type });
    vk.waitIdle();
    const at = 2 * LIMIT + 68;
    vk.dispatch(pipelineOf(increment), [{ buffer, offset: 2 * LIMIT }], 1, 1, 1, push(18, 0x7fc00000));
    // Words 0 to 17 of the last part became a NaN each.
    throws(() => vk.waitIdle(), 'ERR_HELIOS_NAN', [18, (2 * LIMIT) / wide + (wide === 2 ? 1 : 0)], [Error]);
    assert.ok(Number.isNaN(vk.readBuffer(buffer)[at / 4]));
    vk.destroyBuffer(buffer);
  }
});

test('HELIOS_VALIDATION has nothing to say about ranges', { skip: process.env.HELIOS_VALIDATION !== '1' }, () => {
  FORMS.bytes(record([{ buffer: large, offset: LIMIT, size: 4096 }]));
  assert.ok(bits(vk.readBuffer(large)).length > 0);
});

test("the device's own limit, not made small", async () => {
  const result = await childJson(
    `
    const info = init();
    const range = info.maxStorageBufferRange;
    if (range > 2 ** 28) process.stdout.write(JSON.stringify({ skipped: true }));
    else {
      const buffer = vk.createBuffer(range + 4096, 0);
      vk.fillBuffer(buffer, range + 4096, 5);
      let code;
      try { vk.dispatch(pipelineOf(programs.increment), [buffer], 1, 1, 1, Uint32Array.of(1, 1)); } catch (error) { code = error.code; }
      vk.dispatch(pipelineOf(programs.increment), [{ buffer, offset: range, size: 4096 }], 16, 1, 1, Uint32Array.of(1024, 1));
      const tail = new Uint32Array(4 + 1024);
      const out = words(buffer).subarray(range / 4 - 1);
      process.stdout.write(JSON.stringify({ code, ends: [out[0], out[1], out[1024]] }));
    }
  `,
    { env: { HELIOS_TEST_MAX_STORAGE_RANGE: undefined } },
  );
  if (!result.skipped) assert.deepEqual(result, { code: INVALID_ARGUMENT, ends: [5, 6, 6] });
});
