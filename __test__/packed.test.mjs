// @ts-nocheck -- wrong arguments are passed on purpose; types/trainer-contract.ts checks the types.
import { before, test } from 'node:test';
import assert from 'node:assert/strict';
import { bufferOf, groupsOf, init, pipelineOf, ramp, vk, words } from './lib/addon.mjs';
import { INVALID_ARGUMENT, INVALID_HANDLE, sameWords, throws } from './lib/expect.mjs';
import { byteOffsets, packBytes, packWords, recordBytes, wordOffsets } from './lib/packed.mjs';
import { grid, increment, nothing, pushEcho, scaleAdd, twoOutputs, wide } from './lib/programs.mjs';
import { Random } from './lib/random.mjs';

let info;
before(() => {
  info = init();
});

const N = 200;
const incrementOf = (buffer, by = 1) => ({
  pipeline: pipelineOf(increment),
  buffers: [buffer],
  groups: [groupsOf(N), 1, 1],
  push: Uint32Array.of(N, by),
  writeMask: 1,
});
const scaleAddOf = (a, b, c, k) => ({
  pipeline: pipelineOf(scaleAdd),
  buffers: [a, b, c],
  groups: [groupsOf(N), 1, 1],
  push: Uint32Array.of(N, k),
  writeMask: 4,
});

/** Both forms, as `batchExecuteAll` and as `batchDispatchMany` take them. */
const FORMS = {
  bytes: { pack: packBytes, offsets: byteOffsets, args: (packed, count) => [packed, count] },
  words: { pack: packWords, offsets: wordOffsets, args: (packed) => [packed] },
};

for (const [form, { pack, offsets, args }] of Object.entries(FORMS)) {
  const execute = (records) => vk.batchExecuteAll(...args(pack(records), records.length));

  test(`${form}: batchExecuteAll runs a list in order`, () => {
    const [a, b, c] = [bufferOf(ramp(N)), bufferOf(ramp(N, 100)), bufferOf(new Uint32Array(N))];
    const tv = execute([
      incrementOf(a, 1),
      scaleAddOf(a, b, c, 2),
      incrementOf(c, 5),
      scaleAddOf(c, c, a, 1),
      { pipeline: pipelineOf(nothing) },
    ]);
    assert.ok(Number.isInteger(tv) && tv > 0);
    vk.waitTimeline(tv);
    const expected = ramp(N).map((i) => 2 * (i + 1) + 100 + i + 5);
    sameWords(words(c), expected, 'c');
    sameWords(
      words(a),
      expected.map((value) => 2 * value),
      'a',
    );
    [a, b, c].forEach(vk.destroyBuffer);
  });

  test(`${form}: batchDispatchMany adds to the open batch, between other calls`, () => {
    const x = bufferOf(ramp(N));
    const many = (records) => vk.batchDispatchMany(...args(pack(records), records.length));
    vk.batchBegin();
    vk.batchDispatch(pipelineOf(scaleAdd), [x, x, x], groupsOf(N), 1, 1, Uint32Array.of(N, 1)); // 2i
    assert.equal(many([incrementOf(x, 1), incrementOf(x, 2)]), undefined); // 2i + 3
    vk.batchDispatch(pipelineOf(scaleAdd), [x, x, x], groupsOf(N), 1, 1, Uint32Array.of(N, 2)); // 6i + 9
    many([]);
    many([incrementOf(x, 10)]);
    vk.batchSubmit();
    sameWords(
      words(x),
      ramp(N).map((i) => 6 * i + 19),
      'x',
    );
    vk.destroyBuffer(x);
  });

  test(`${form}: group counts in three dimensions`, () => {
    for (const groups of [
      [5, 1, 1],
      [5, 3, 1],
      [3, 4, 5],
      [1, 1, 60],
      [60, 1, 1],
      [1, 60, 1],
      [2, 1, 3],
    ]) {
      const out = bufferOf(new Uint32Array(64).fill(0xffffffff));
      execute([{ pipeline: pipelineOf(grid), buffers: [out], groups, writeMask: 1 }]);
      const expected = new Uint32Array(64).fill(0xffffffff);
      const [gX, gY, gZ] = groups;
      for (let z = 0; z < gZ; z++)
        for (let y = 0; y < gY; y++) for (let x = 0; x < gX; x++) expected[x + gX * (y + gY * z)] = x + 100 * y + 10000 * z;
      sameWords(words(out), expected, `${groups}`);
      vk.destroyBuffer(out);
    }
  });

  test(`${form}: all the buffers that a pipeline may have, 128 bytes of push constants, and none of either`, () => {
    const { maxBindings } = init();
    const program = wide(maxBindings);
    const data = Array.from({ length: maxBindings }, (_, k) => ramp(N, k * 7));
    const buffers = data.map((array) => bufferOf(array));
    const values = new Random(9).words(32);
    const echoed = vk.createBuffer(128);
    execute([
      { pipeline: pipelineOf(program), buffers, groups: [groupsOf(N), 1, 1], push: Uint32Array.of(N), writeMask: 2 ** (maxBindings - 1) },
      { pipeline: pipelineOf(nothing), groups: [1, 1, 1] },
      { pipeline: pipelineOf(pushEcho(32)), buffers: [echoed], push: values, writeMask: 1 },
    ]);
    program.run(data, [N]);
    buffers.forEach((buffer, k) => sameWords(words(buffer), data[k], `buffer ${k}`));
    sameWords(words(echoed), values, 'push constants');
    [...buffers, echoed].forEach(vk.destroyBuffer);
  });

  test(`${form}: whatever the write mask says`, () => {
    for (const writeMask of [0, 1, 2, 4, 0b101, 0xffffffff]) {
      const [a, x, y, z] = [ramp(N), ramp(N), ramp(N), ramp(N)].map((data) => bufferOf(data));
      execute([
        { pipeline: pipelineOf(twoOutputs), buffers: [a, x, y], groups: [groupsOf(N), 1, 1], push: Uint32Array.of(N), writeMask },
        { ...scaleAddOf(x, y, z, 1), writeMask },
      ]);
      sameWords(
        words(z),
        ramp(N).map((i) => 4 * i + 1),
        `mask ${writeMask}`,
      );
      [a, x, y, z].forEach(vk.destroyBuffer);
    }
  });

  test(`${form}: one handle in several places`, () => {
    const x = bufferOf(ramp(N));
    execute([scaleAddOf(x, x, x, 4)]);
    sameWords(
      words(x),
      ramp(N).map((i) => 5 * i),
      'x',
    );
    vk.destroyBuffer(x);
  });

  test(`${form}: the list may be changed right after the call`, () => {
    const x = bufferOf(ramp(N));
    const packed = pack([incrementOf(x, 1)]);
    vk.batchBegin();
    vk.batchDispatchMany(...args(packed, 1));
    new Uint8Array(packed).fill(255);
    vk.batchSubmit();
    sameWords(words(x), ramp(N, 1), 'x');
    vk.destroyBuffer(x);
  });

  /** Good records around a bad one: [what, the bad record, code, what the message mentions]. */
  const mistakes = (x, dead) => {
    const good = incrementOf(x);
    return [
      ['an unknown pipeline', { ...good, pipeline: 0x3fffffff }, INVALID_HANDLE, [/pipeline/i, 0x3fffffff]],
      ['a negative pipeline', { ...good, pipeline: -1 }, INVALID_HANDLE, [/pipeline/i]],
      ['an unknown buffer', { ...good, buffers: [0x3fffffff] }, INVALID_HANDLE, [/buffer/i, 0x3fffffff]],
      ['a negative buffer', { ...good, buffers: [-5] }, INVALID_HANDLE, [/buffer/i]],
      ['a destroyed buffer', { ...good, buffers: [dead] }, INVALID_HANDLE, [/buffer/i, dead]],
      ['too many buffers', { ...good, buffers: [x, x] }, INVALID_ARGUMENT, [/buffer/i, 2, 1]],
      ['no buffers', { ...good, buffers: [] }, INVALID_ARGUMENT, [/buffer/i, 0, 1]],
      ['33 buffers', { ...good, buffers: new Array(33).fill(x) }, INVALID_ARGUMENT, [/buffer/i, 33]],
      ['a gZ above the limit', { ...good, groups: [1, 1, 0xffffffff] }, INVALID_ARGUMENT, [/gZ/, 0xffffffff]],
      ...(form === 'words'
        ? [['a gY above the limit', { ...good, groups: [1, 0xffffffff, 1] }, INVALID_ARGUMENT, [/gY/, 0xffffffff]]]
        : []),
    ];
  };

  test(`${form}: one bad record spoils the list, is named by index and byte offset, and leaves the batch as it was`, () => {
    const x = bufferOf(ramp(N));
    const dead = vk.createBuffer(64);
    vk.destroyBuffer(dead);
    let expected = 0;
    for (const [what, bad, code, parts] of mistakes(x, dead)) {
      for (const index of [0, 1, 4]) {
        // Records of different sizes in front, so that an offset cannot be right by accident.
        const front = [incrementOf(x), { pipeline: pipelineOf(nothing), groups: [1, 1, 2] }, scaleAddOf(x, x, x, 3), incrementOf(x)].slice(
          0,
          index,
        );
        const list = [...front, bad, incrementOf(x)];
        const offset = offsets(list)[index];
        const place = [new RegExp(`\\b${index}\\b`), new RegExp(`\\b${offset}\\b`)];
        throws(() => execute(list), code, ['batchExecuteAll', ...place, ...parts]);
        throws(() => vk.batchExecuteAllProfiled(...args(pack(list), list.length)), code, ['batchExecuteAllProfiled', ...place]);
        vk.batchBegin();
        vk.batchDispatch(pipelineOf(increment), [x], groupsOf(N), 1, 1, Uint32Array.of(N, 1));
        throws(() => vk.batchDispatchMany(...args(pack(list), list.length)), code, ['batchDispatchMany', ...place, ...parts]);
        vk.batchDispatch(pipelineOf(increment), [x], groupsOf(N), 1, 1, Uint32Array.of(N, 1));
        assert.ok(vk.batchSubmit() > 0, what);
        expected += 2;
        sameWords(words(x), ramp(N, expected), `${what} at ${index}: only the two good dispatches ran`);
      }
    }
    throws(() => vk.batchSubmit(), 'ERR_HELIOS_INVALID_BATCH', [], [Error]);
    vk.destroyBuffer(x);
  });

  test(`${form}: a list cut short anywhere is an error, and nothing of it runs`, () => {
    const x = bufferOf(ramp(N));
    const list = [incrementOf(x), scaleAddOf(x, x, x, 3), { pipeline: pipelineOf(grid), buffers: [x], groups: [1, 2, 3] }];
    const whole = pack(list);
    for (let length = 0; length < whole.byteLength; length++) {
      const error = throws(() => vk.batchExecuteAll(...args(whole.slice(0, length), list.length)), INVALID_ARGUMENT, ['batchExecuteAll']);
      if (form === 'bytes') {
        // The record that is cut, and where it starts.
        const index = offsets(list).findLastIndex((offset) => offset <= length);
        assert.match(error.message, new RegExp(`\\b${index}\\b`));
        assert.match(error.message, new RegExp(`\\b${offsets(list)[index]}\\b`), error.message);
      }
    }
    sameWords(words(x), ramp(N), 'x');
    vk.destroyBuffer(x);
  });

  test(`${form}: bytes behind the last record are an error`, () => {
    const x = bufferOf(ramp(N));
    const list = [incrementOf(x), incrementOf(x)];
    if (form === 'bytes') {
      const whole = pack(list);
      for (const extra of [1, 4, 100]) {
        const long = new ArrayBuffer(whole.byteLength + extra);
        new Uint8Array(long).set(new Uint8Array(whole));
        throws(() => vk.batchExecuteAll(long, 2), INVALID_ARGUMENT, ['batchExecuteAll', whole.byteLength]);
      }
      throws(() => vk.batchExecuteAll(whole, 1), INVALID_ARGUMENT, ['batchExecuteAll', whole.byteLength / 2]);
      throws(() => vk.batchExecuteAll(whole, 3), INVALID_ARGUMENT, ['batchExecuteAll', whole.byteLength]);
      throws(() => vk.batchExecuteAll(whole, 0), INVALID_ARGUMENT, ['batchExecuteAll']);
    } else {
      throws(() => vk.batchExecuteAll(new Uint8Array([...new Uint8Array(pack(list)), 1]).buffer), INVALID_ARGUMENT, ['batchExecuteAll']);
    }
    sameWords(words(x), ramp(N), 'x');
    vk.destroyBuffer(x);
  });

  test(`${form}: random damage never crashes, runs a whole list or none of it`, () => {
    const random = new Random(11);
    const x = bufferOf(ramp(N));
    const list = [incrementOf(x), scaleAddOf(x, x, x, 3), incrementOf(x)];
    for (let i = 0; i < 400; i++) {
      const bytes = new Uint8Array(pack(list));
      // Handles, counts and offsets only: garbage in a group count is a valid, very long dispatch.
      const targets = offsets(list).flatMap((offset) => [offset, offset + 1, offset + 2, offset + 3, offset + 4, offset + 5]);
      for (let k = random.between(1, 3); k > 0; k--) bytes[random.pick(targets)] = random.below(256);
      const damaged = random.chance(0.3) ? bytes.buffer.slice(0, random.below(bytes.length)) : bytes.buffer;
      try {
        vk.batchExecuteAll(...args(damaged, list.length));
      } catch (error) {
        assert.ok([INVALID_ARGUMENT, INVALID_HANDLE].includes(error.code), error.stack);
      }
    }
    vk.waitIdle();
    vk.destroyBuffer(x);
  });
}

test('words: push ranges outside of the area are errors with the record and its offset', () => {
  const x = bufferOf(ramp(N));
  const good = packWords([incrementOf(x), incrementOf(x), incrementOf(x)]);
  const recordWords = 9;
  const damage = (edit) => {
    const copy = new Uint32Array(good.slice(0));
    edit(copy);
    return copy.buffer;
  };
  const [pushOffset, pushSize] = [6, 7];
  const record = (i) => 2 + i * recordWords;
  const cases = [
    [
      0,
      (w) => {
        w[record(0) + pushOffset] = 1000;
      },
    ],
    [
      1,
      (w) => {
        w[record(1) + pushOffset] = 0xfffffffc;
      },
    ],
    [
      2,
      (w) => {
        w[record(2) + pushOffset] += 4;
      },
    ],
    [
      1,
      (w) => {
        w[record(1) + pushSize] = 0xfffffffc;
      },
    ],
    [
      1,
      (w) => {
        w[record(1) + pushSize] = 4;
      },
    ],
    [
      2,
      (w) => {
        w[record(2) + pushSize] = 0;
      },
    ],
    [
      1,
      (w) => {
        w[record(1) + pushOffset] = 0x80000000;
        w[record(1) + pushSize] = 0x80000000;
      },
    ],
  ];
  for (const [index, edit] of cases) {
    throws(() => vk.batchExecuteAll(damage(edit)), INVALID_ARGUMENT, [
      'batchExecuteAll',
      /push/i,
      new RegExp(`\\b${index}\\b`),
      new RegExp(`\\b${4 * record(index)}\\b`),
    ]);
  }
  sameWords(words(x), ramp(N), 'x');
  vk.destroyBuffer(x);
});

test('words: records may share push bytes, leave gaps, and take more than they need', () => {
  const x = bufferOf(ramp(N));
  const record = (offset, size) => [pipelineOf(increment), 1, x, groupsOf(N), 1, 1, offset, size, 1];
  const list = [3, 2 + 27, ...record(4, 8), ...record(4, 8), ...record(16, 8)];
  vk.batchExecuteAll(Uint32Array.of(...list, 0xdead, N, 5, 0xdead, N, 7).buffer);
  sameWords(words(x), ramp(N, 17), 'x');
  vk.destroyBuffer(x);
});

test('words: a header that lies is an error', () => {
  const x = bufferOf(ramp(N));
  const good = packWords([incrementOf(x), incrementOf(x)]);
  const header = (count, area) => {
    const copy = new Uint32Array(good.slice(0));
    copy[0] = count;
    copy[1] = area;
    return copy.buffer;
  };
  const area = 2 + 18;
  for (const [count, at] of [
    [1, area],
    [3, area],
    [0xffffffff, area],
    [2, area - 1],
    [2, area + 1],
    [2, 0],
    [2, 0xffffffff],
    [2, 0x40000000],
    [0, area],
  ]) {
    throws(() => vk.batchExecuteAll(header(count, at)), INVALID_ARGUMENT, ['batchExecuteAll']);
  }
  for (const length of [0, 4, 7, 8, 9])
    throws(() => vk.batchExecuteAll(new Uint8Array(good.slice(0, length)).buffer), INVALID_ARGUMENT, ['batchExecuteAll']);
  sameWords(words(x), ramp(N), 'x');
  vk.destroyBuffer(x);
});

test('bytes: flags carry gY in 15 bits, and 0 means 1', () => {
  const out = bufferOf(new Uint32Array(64).fill(0xffffffff));
  const packed = packBytes([{ pipeline: pipelineOf(grid), buffers: [out], groups: [3, 1, 1], writeMask: 1 }]);
  const view = new DataView(packed);
  assert.equal(view.getUint16(6, true), 0);
  vk.batchExecuteAll(packed, 1);
  sameWords(words(out).subarray(0, 4), Uint32Array.of(0, 1, 2, 0xffffffff), 'gY = 0');
  view.setUint16(6, 1 << 1, true);
  vk.batchExecuteAll(packed, 1);
  sameWords(words(out).subarray(0, 4), Uint32Array.of(0, 1, 2, 0xffffffff), 'gY = 1');
  // The largest gY that fits: as many groups as that, all beyond the shader's concern.
  const most = vk.createBuffer(4 * 32767);
  vk.batchExecuteAll(packBytes([{ pipeline: pipelineOf(grid), buffers: [most], groups: [1, 32767, 1], writeMask: 1 }]), 1);
  assert.equal(words(most)[32766], 3276600);
  [out, most].forEach(vk.destroyBuffer);
});

test('the list must be an ArrayBuffer and count a whole number', () => {
  const x = bufferOf(ramp(N));
  const packed = packBytes([incrementOf(x)]);
  for (const call of ['batchExecuteAll', 'batchExecuteAllProfiled', 'batchDispatchMany']) {
    const run =
      (...args) =>
      () => {
        if (call !== 'batchDispatchMany') return vk[call](...args);
        vk.batchBegin();
        try {
          return vk.batchDispatchMany(...args);
        } finally {
          vk.batchSubmit();
        }
      };
    for (const list of [undefined, null, 5, 'packed', [1], {}, { byteLength: 4 }])
      throws(run(list, 1), INVALID_ARGUMENT, [call, 'packed'], [TypeError]);
    for (const count of [-1, 1.5, NaN, Infinity, 2 ** 32, '1', null, {}]) throws(run(packed, count), INVALID_ARGUMENT, [call, 'count']);
    const gone = packed.slice(0);
    structuredClone(gone, { transfer: [gone] });
    throws(run(gone, 1), INVALID_ARGUMENT, [call]);
  }
  sameWords(words(x), ramp(N), 'x');
  vk.destroyBuffer(x);
});

test('batchExecuteAllProfiled times each dispatch of either form', (t) => {
  if (info.timestampValidBits === 0) return t.skip('the device has no timestamps');
  const x = bufferOf(ramp(N));
  const list = [incrementOf(x), scaleAddOf(x, x, x, 3), incrementOf(x)];
  for (const args of [[packBytes(list), 3], [packWords(list)]]) {
    vk.uploadBuffer(x, ramp(N));
    const result = vk.batchExecuteAllProfiled(...args);
    assert.deepEqual(Object.keys(result).sort(), ['batchGpuTimeUs', 'dispatchCount', 'dispatchTimesUs', 'timeline']);
    assert.ok(result.timeline > 0 && vk.getCompleted() >= result.timeline, 'it has completed');
    assert.equal(result.dispatchCount, 3);
    assert.ok(result.dispatchTimesUs instanceof Float64Array);
    assert.equal(result.dispatchTimesUs.length, 3);
    for (const time of result.dispatchTimesUs) assert.ok(Number.isFinite(time) && time >= 0, `${time}`);
    assert.ok(Number.isFinite(result.batchGpuTimeUs) && result.batchGpuTimeUs >= 0);
    sameWords(
      words(x),
      ramp(N).map((i) => 4 * (i + 1) + 1),
      'x',
    );
  }
  const empty = vk.batchExecuteAllProfiled(new ArrayBuffer(0), 0);
  assert.equal(empty.timeline, 0);
  assert.equal(empty.dispatchCount, 0);
  assert.equal(empty.dispatchTimesUs.length, 0);
  vk.destroyBuffer(x);
});

test('recordBytes is what the trainer reckons', () => {
  assert.equal(recordBytes({ pipeline: 0, buffers: [1, 2, 3], push: new Uint32Array(4) }), 16 + 12 + 16);
  assert.equal(recordBytes({ pipeline: 0, buffers: [1, 2, 3], groups: [1, 1, 2], push: new Uint32Array(4) }), 16 + 4 + 12 + 16);
});
