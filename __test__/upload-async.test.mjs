// @ts-nocheck -- wrong arguments are passed on purpose; types/trainer-contract.ts checks the types.
import { before, test } from 'node:test';
import assert from 'node:assert/strict';
import { VIEWS, bufferOf, groupsOf, init, light, pipelineOf, ramp, scaled, vk, words } from './lib/addon.mjs';
import { INVALID_ARGUMENT, sameWords, throws } from './lib/expect.mjs';
import { churn, increment, reverseTail, scaleAdd } from './lib/programs.mjs';
import { Random } from './lib/random.mjs';

before(init);

test('uploadAsync returns a timeline value that can be waited for', () => {
  const x = vk.createBuffer(400);
  const tv = vk.uploadAsync(x, ramp(100));
  assert.ok(Number.isInteger(tv) && tv > 0);
  vk.waitTimeline(tv);
  assert.ok(vk.getCompleted() >= tv);
  sameWords(words(x), ramp(100), 'x');
  assert.ok(vk.uploadAsync(x, new Uint8Array(0)) > tv, 'an empty upload has a value of its own, too');
  vk.destroyBuffer(x);
});

test('byteOffset places the data; every offset and length, odd ones included', () => {
  for (const hostVisible of [0, 1]) {
    const x = vk.createBuffer(64, hostVisible);
    for (let offset = 0; offset <= 9; offset++) {
      for (let length = 0; length <= 9; length++) {
        vk.fillBuffer(x, 64, 0xeeeeeeee);
        vk.uploadAsync(x, new Uint8Array(length).fill(7), offset);
        const expected = new Uint8Array(64).fill(0xee).fill(7, offset, offset + length);
        const actual = new Uint8Array(vk.readBuffer(x).buffer).subarray(0, 64);
        assert.deepEqual(Buffer.from(actual), Buffer.from(expected), `${length} bytes at ${offset}`);
      }
    }
    vk.uploadAsync(x, new Uint8Array(1).fill(9), 63);
    assert.equal(new Uint8Array(vk.readBuffer(x).buffer)[63], 9, 'the last byte');
    vk.destroyBuffer(x);
  }
});

test('data that ends behind the buffer, and offsets that are none, are errors', () => {
  const x = bufferOf(ramp(16));
  throws(() => vk.uploadAsync(x, new Uint32Array(17)), INVALID_ARGUMENT, ['uploadAsync', 68, 64], [RangeError]);
  throws(() => vk.uploadAsync(x, new Uint32Array(16), 4), INVALID_ARGUMENT, ['uploadAsync', 64], [RangeError]);
  throws(() => vk.uploadAsync(x, new Uint8Array(1), 64), INVALID_ARGUMENT, ['uploadAsync', 64], [RangeError]);
  throws(() => vk.uploadAsync(x, new Uint8Array(1), 65), INVALID_ARGUMENT, ['uploadAsync', 65], [RangeError]);
  throws(() => vk.uploadAsync(x, new Uint8Array(1), Number.MAX_SAFE_INTEGER), INVALID_ARGUMENT, ['uploadAsync'], [RangeError]);
  for (const offset of [-1, 1.5, NaN, Infinity, '0', null, {}, 1n])
    throws(() => vk.uploadAsync(x, new Uint8Array(1), offset), INVALID_ARGUMENT, ['uploadAsync', 'byteOffset']);
  for (const data of [undefined, null, 5, 'text', [1], {}])
    throws(() => vk.uploadAsync(x, data), INVALID_ARGUMENT, ['uploadAsync', 'data'], [TypeError]);
  sameWords(words(x), ramp(16), 'x');
  vk.destroyBuffer(x);
});

test('every kind of view, by bytes', () => {
  const source = new Uint8Array(64).map((_, i) => i * 5 + 1);
  const x = vk.createBuffer(64);
  const sources = [source.buffer, new DataView(source.buffer), ...VIEWS.map((kind) => new kind(source.buffer))];
  for (const data of sources) {
    vk.fillBuffer(x, 64, 0);
    vk.uploadAsync(x, data);
    assert.deepEqual(new Uint8Array(vk.readBuffer(x).buffer).subarray(0, 64), source, data.constructor.name);
    vk.uploadAsync(
      x,
      data instanceof ArrayBuffer ? data.slice(8, 16) : new data.constructor(source.buffer, 8, 8 / (data.BYTES_PER_ELEMENT ?? 1)),
      40,
    );
    assert.deepEqual(
      new Uint8Array(vk.readBuffer(x).buffer).subarray(40, 48),
      source.subarray(8, 16),
      `${data.constructor.name} with an offset`,
    );
  }
  vk.destroyBuffer(x);
});

test('the source may be changed at once; uploads and dispatches keep their order', () => {
  const n = 10_000;
  const [x, y] = [vk.createBuffer(n * 4, 0), bufferOf(new Uint32Array(n), 0)];
  const source = new Uint32Array(n);
  const expected = new Uint32Array(n);
  for (let i = 0; i < 50; i++) {
    source.fill(i);
    vk.uploadAsync(x, source);
    source.fill(0xbad);
    vk.dispatch(pipelineOf(scaleAdd), [x, y, y], groupsOf(n), 1, 1, Uint32Array.of(n, i));
    for (let k = 0; k < n; k++) expected[k] += i * i;
  }
  sameWords(words(y), expected, 'y');
  [x, y].forEach(vk.destroyBuffer);
});

test('inside an open batch it takes its place', () => {
  const x = bufferOf(ramp(64));
  vk.batchBegin();
  vk.batchDispatch(pipelineOf(increment), [x], 1, 1, 1, Uint32Array.of(64, 1));
  const tv = vk.uploadAsync(x, Uint32Array.of(1000), 4);
  assert.ok(Number.isInteger(tv) && tv > 0);
  vk.batchDispatch(pipelineOf(increment), [x], 1, 1, 1, Uint32Array.of(64, 1));
  const end = vk.batchSubmit();
  assert.ok(end >= tv);
  vk.waitTimeline(tv);
  sameWords(
    words(x),
    ramp(64, 2).map((value, i) => (i === 1 ? 1001 : value)),
    'x',
  );
  vk.destroyBuffer(x);
});

test('uploads larger than any ring go through in pieces', () => {
  const size = light ? 40 << 20 : 200 << 20;
  const data = new Uint32Array(size / 4);
  for (let i = 0; i < data.length; i++) data[i] = Math.imul(i, 2654435761);
  for (const [hostVisible, upload] of [
    [0, vk.uploadBuffer],
    [1, vk.uploadBuffer],
    [0, vk.uploadAsync],
  ]) {
    const x = vk.createBuffer(size, hostVisible);
    upload(x, data);
    const back = new Uint32Array(vk.readBuffer(x).buffer);
    assert.equal(
      Buffer.compare(Buffer.from(back.buffer, back.byteOffset, size), Buffer.from(data.buffer)),
      0,
      `hostVisible ${hostVisible}, ${upload.name}`,
    );
    vk.destroyBuffer(x);
  }
});

test('a dispatch right behind a large upload sees all of it', () => {
  const n = (light ? 9 << 20 : 100 << 20) / 4;
  const data = ramp(n);
  const x = vk.createBuffer(n * 4, 0);
  const y = vk.createBuffer(4000, 0);
  vk.uploadAsync(x, data);
  // The mirror image of the last thousand words.
  vk.dispatch(pipelineOf(reverseTail), [x, y], groupsOf(1000), 1, 1, Uint32Array.of(1000, n));
  sameWords(
    words(y),
    ramp(1000).map((i) => n - 1 - i),
    'y',
  );
  [x, y].forEach(vk.destroyBuffer);
});

test('many small uploads', () => {
  const count = scaled(20_000);
  const x = bufferOf(new Uint32Array(count), 0);
  let last = 0;
  for (let i = 0; i < count; i++) {
    const tv = vk.uploadAsync(x, Uint32Array.of(i * 3), 4 * i);
    assert.ok(tv > last);
    last = tv;
  }
  vk.waitTimeline(last);
  sameWords(
    words(x),
    ramp(count).map((i) => 3 * i),
    'x',
  );
  vk.destroyBuffer(x);
});

test('a ring full of unfinished copies: nothing is lost, whatever the order of sizes', () => {
  // The device is busy while far more than any ring is uploaded behind its back.
  const random = new Random(23);
  const busy = bufferOf(ramp(64), 0);
  const sizes = Array.from({ length: 60 }, () => random.pick([4, 1000, 65_536, 1 << 20, 3 << 20, 5_000_000]));
  const targets = sizes.map((size) => vk.createBuffer(size, 0));
  for (let i = 0; i < scaled(300); i++) vk.dispatch(pipelineOf(churn), [busy, busy], 1, 1, 1, Uint32Array.of(64, 65_000));
  const source = new Uint32Array(5_000_000 / 4);
  sizes.forEach((size, k) => {
    source.fill(k + 1, 0, size / 4);
    vk.uploadAsync(targets[k], source.subarray(0, size / 4));
    vk.uploadAsync(targets[k], Uint32Array.of(k), 0);
  });
  sizes.forEach((size, k) => {
    const back = words(targets[k]);
    assert.equal(back[0], k);
    for (let i = 1; i < back.length; i++) if (back[i] !== k + 1) assert.fail(`upload ${k} of ${size} bytes: element ${i} is ${back[i]}`);
  });
  [busy, ...targets].forEach(vk.destroyBuffer);
});

test('a buffer that is destroyed right after its upload', () => {
  for (let i = 0; i < 100; i++) {
    const x = vk.createBuffer(1 << 16, 0);
    vk.uploadAsync(x, new Uint8Array(1 << 16).fill(i));
    vk.destroyBuffer(x);
  }
  const y = bufferOf(ramp(1 << 14), 0);
  sameWords(words(y), ramp(1 << 14), 'y');
  vk.destroyBuffer(y);
});
