// @ts-nocheck -- wrong arguments are passed on purpose; types/trainer-contract.ts checks the types.
import { before, test } from 'node:test';
import assert from 'node:assert/strict';
import { VIEWS, bits, bufferOf, init, pipelineOf, ramp, vk, words } from './lib/addon.mjs';
import { INVALID_ARGUMENT, INVALID_HANDLE, UNSUPPORTED, fails, sameWords, throws } from './lib/expect.mjs';
import { packBytes } from './lib/packed.mjs';
import { increment } from './lib/programs.mjs';

/** @type {import('../index.js').DeviceInfo} */
let info;
before(() => {
  info = init();
});

const bytesOf = (handle) => {
  const read = vk.readBuffer(handle);
  return new Uint8Array(read.buffer, read.byteOffset, read.byteLength);
};

test('createBuffer returns opaque integers below 2^31', () => {
  const handles = Array.from({ length: 100 }, () => vk.createBuffer(64));
  for (const handle of handles) assert.ok(Number.isInteger(handle) && handle >= 0 && handle < 2 ** 31, `${handle}`);
  assert.equal(new Set(handles).size, 100);
  handles.forEach(vk.destroyBuffer);
});

test('readBuffer returns the whole buffer as a Float32Array of size / 4', () => {
  for (const size of [4, 8, 64, 100, 4096, 1 << 20]) {
    const handle = vk.createBuffer(size);
    const result = vk.readBuffer(handle);
    assert.ok(result instanceof Float32Array);
    assert.equal(result.length, size / 4);
    vk.destroyBuffer(handle);
  }
});

test('both kinds of memory hold what is uploaded; hostVisible defaults to 1', () => {
  const data = ramp(1000, 7);
  for (const args of [[], [1], [0], [true], [false], [1, 1], [0, 1], [0, true], [0, 0]]) {
    const handle = vk.createBuffer(data.byteLength, ...args);
    vk.uploadBuffer(handle, data);
    assert.deepEqual(words(handle), data, `createBuffer(${[data.byteLength, ...args]})`);
    vk.destroyBuffer(handle);
  }
});

test('createBuffer refuses sizes that are none', () => {
  for (const size of [-4, 1.5, NaN, Infinity, -Infinity, 2 ** 53, '64', null, undefined, {}, 64n, Symbol('x')]) {
    const shown = typeof size === 'symbol' || typeof size === 'object' || size === undefined ? [] : [String(size)];
    throws(() => vk.createBuffer(size), INVALID_ARGUMENT, ['createBuffer', 'byteLength', ...(size === 2 ** 53 ? [] : shown)]);
  }
});

test('a buffer of no bytes is an empty buffer', async () => {
  for (const hostVisible of [0, 1]) {
    const live = vk.getAllocatorStats();
    const [empty, other] = [vk.createBuffer(0, hostVisible), bufferOf(ramp(8))];
    assert.equal(vk.getAllocatorStats().activeBufferBytes, live.activeBufferBytes + 32);
    vk.uploadBuffer(empty, new Float32Array(0));
    assert.ok(vk.uploadAsync(empty, new ArrayBuffer(0)) > 0);
    vk.fillBuffer(empty, 0, 1);
    vk.copyBuffer(empty, other, 0);
    vk.copyBuffer(other, empty);
    const read = vk.readBuffer(empty);
    assert.ok(read instanceof Float32Array && read.length === 0);
    assert.deepEqual(await vk.readAsync(empty), new Float32Array(0));
    vk.readInto(empty, new Uint8Array(0));
    throws(() => vk.uploadBuffer(empty, Uint8Array.of(1)), INVALID_ARGUMENT, ['uploadBuffer', 'data', 0]);
    throws(() => vk.uploadAsync(empty, new Uint8Array(0), 4), INVALID_ARGUMENT, ['uploadAsync', 'byteOffset', 4]);
    throws(() => vk.fillBuffer(empty, 4, 1), INVALID_ARGUMENT, ['fillBuffer', 'bytes', 4]);
    throws(() => vk.readInto(empty, new Uint8Array(4)), INVALID_ARGUMENT, ['readInto']);
    throws(() => vk.copyBuffer(empty, other, 4), INVALID_ARGUMENT, ['copyBuffer', 'byteLength', 4]);
    if (info.bufferExportSupported) throws(() => vk.exportBuffer(empty), INVALID_ARGUMENT, ['exportBuffer', empty]);
    else fails(() => vk.exportBuffer(empty), UNSUPPORTED, ['exportBuffer']);
    vk.destroyBuffer(empty);
    throws(() => vk.readBuffer(empty), INVALID_HANDLE, ['readBuffer', empty]);
    assert.deepEqual(words(other), ramp(8), 'nothing else was touched');
    vk.destroyBuffer(other);
    assert.equal(vk.getAllocatorStats().activeBuffers, live.activeBuffers);
  }
});

test('shaders find four bytes of its own in an empty buffer, in every form of dispatch', () => {
  const [empties, others] = [[0, 1].map((visible) => vk.createBuffer(0, visible)), [bufferOf(ramp(4)), bufferOf(ramp(4))]];
  const pipeline = pipelineOf(increment);
  for (const empty of empties) {
    vk.dispatch(pipeline, [empty], 1, 1, 1, Uint32Array.of(1, 5));
    vk.dispatch(pipeline, [empty], 0, 1, 1, Uint32Array.of(0, 5));
    vk.waitTimeline(vk.batchExecuteAll(packBytes([{ pipeline, buffers: [empty], push: Uint32Array.of(1, 5) }]), 1));
    vk.graphBegin();
    vk.uploadBuffer(empty, new Uint8Array(0));
    vk.dispatch(pipeline, [empty], 1, 1, 1, Uint32Array.of(1, 5));
    const graph = vk.graphEnd();
    vk.graphLaunch(graph);
    assert.equal(vk.readBuffer(empty).length, 0);
    vk.graphDestroy(graph);
  }
  for (const other of others) assert.deepEqual(words(other), ramp(4));
  [...empties, ...others].forEach(vk.destroyBuffer);
});

test('a buffer larger than all memory is an error that the addon survives', () => {
  const error = (() => {
    try {
      vk.createBuffer(2 ** 46);
    } catch (caught) {
      return caught;
    }
  })();
  assert.ok(error instanceof Error);
  assert.ok(['ERR_HELIOS_OUT_OF_MEMORY', INVALID_ARGUMENT].includes(error.code), `${error.code}: ${error.message}`);
  assert.match(error.message, /createBuffer/);
  assert.ok(error.message.includes(String(2 ** 46)), error.message);
  const handle = bufferOf(ramp(10));
  assert.deepEqual(words(handle), ramp(10));
  vk.destroyBuffer(handle);
});

test('uploadBuffer takes every TypedArray, DataView and ArrayBuffer, by bytes', () => {
  const source = new Uint8Array(64).map((_, i) => (i * 37 + 11) & 255);
  for (const kind of VIEWS) {
    const handle = vk.createBuffer(64);
    vk.uploadBuffer(handle, new kind(source.slice().buffer));
    assert.deepEqual(bytesOf(handle), source, kind.name);
    vk.fillBuffer(handle, 64, 0xffffffff);
    // A view into the middle: bytes 16…47.
    vk.uploadBuffer(handle, new kind(source.slice().buffer, 16, 32 / kind.BYTES_PER_ELEMENT));
    assert.deepEqual(bytesOf(handle).subarray(0, 32), source.subarray(16, 48), `${kind.name} with an offset`);
    assert.ok(
      bytesOf(handle)
        .subarray(32)
        .every((byte) => byte === 255),
      'the rest stays',
    );
    vk.destroyBuffer(handle);
  }
  const handle = vk.createBuffer(64);
  vk.uploadBuffer(handle, source.slice().buffer);
  assert.deepEqual(bytesOf(handle), source, 'ArrayBuffer');
  vk.fillBuffer(handle, 64, 0);
  vk.uploadBuffer(handle, new DataView(source.slice().buffer, 5, 20));
  assert.deepEqual(bytesOf(handle).subarray(0, 20), source.subarray(5, 25), 'DataView with an odd offset');
  vk.uploadBuffer(handle, Buffer.from(source.buffer, 1, 3));
  assert.deepEqual(
    bytesOf(handle).subarray(0, 5),
    Uint8Array.of(...source.subarray(1, 4), ...source.subarray(8, 10)),
    'three bytes of a Buffer',
  );
  vk.destroyBuffer(handle);
});

test('uploads of odd lengths touch no byte beyond', () => {
  for (const hostVisible of [0, 1]) {
    const handle = vk.createBuffer(64, hostVisible);
    for (let length = 1; length <= 13; length++) {
      vk.fillBuffer(handle, 64, 0xeeeeeeee);
      vk.uploadBuffer(handle, new Uint8Array(length).fill(length));
      const expected = new Uint8Array(64).fill(0xee).fill(length, 0, length);
      assert.deepEqual(bytesOf(handle), expected, `length ${length}, hostVisible ${hostVisible}`);
    }
    vk.destroyBuffer(handle);
  }
});

test('shorter data leaves the rest; empty data changes nothing; longer data is an error', () => {
  for (const hostVisible of [0, 1]) {
    const handle = vk.createBuffer(40, hostVisible);
    vk.uploadBuffer(handle, ramp(10));
    vk.uploadBuffer(handle, Uint32Array.of(100, 101, 102));
    vk.uploadBuffer(handle, new Uint32Array(0));
    assert.deepEqual(words(handle), Uint32Array.of(100, 101, 102, 3, 4, 5, 6, 7, 8, 9));
    throws(() => vk.uploadBuffer(handle, new Uint32Array(11)), INVALID_ARGUMENT, ['uploadBuffer', 44, 40], [RangeError]);
    throws(() => vk.uploadBuffer(handle, new Uint8Array(41)), INVALID_ARGUMENT, ['uploadBuffer', 41, 40], [RangeError]);
    assert.deepEqual(words(handle), Uint32Array.of(100, 101, 102, 3, 4, 5, 6, 7, 8, 9), 'nothing was half done');
    vk.destroyBuffer(handle);
  }
});

test('the source may be changed right after the upload', () => {
  for (const [length, hostVisible] of [
    [16, 1],
    [16, 0],
    [100_000, 1],
    [100_000, 0],
  ]) {
    const handle = vk.createBuffer(length * 4, hostVisible);
    const source = ramp(length);
    vk.uploadBuffer(handle, source);
    source.fill(0);
    assert.deepEqual(words(handle), ramp(length));
    vk.destroyBuffer(handle);
  }
});

test('uploads of very few numbers keep every bit', () => {
  // Arrays of literals have no memory of their own; NaNs, zeros' signs and the smallest numbers must come through too.
  const bits = [0x00000000, 0x80000000, 0x00000001, 0x7f800000, 0xff7fffff, 0x7fc00000, 0x7fa00001, 0xffffffff, 0x3f800000];
  for (const upload of ['uploadBuffer', 'uploadAsync']) {
    const handle = vk.createBuffer(64, 0);
    for (let length = 1; length <= 6; length++) {
      for (let first = 0; first < bits.length; first++) {
        const words = Uint32Array.from({ length }, (_, i) => bits[(first + i) % bits.length]);
        for (const data of [
          words,
          new Int32Array(words),
          new Float32Array(words.buffer),
          new Float32Array(new Float32Array(words.buffer)),
          new Uint8Array(words.buffer),
        ]) {
          vk.fillBuffer(handle, 64, 0x01020304);
          const wanted = new Uint32Array(data.buffer.slice(0));
          vk[upload](handle, data);
          const got = new Uint32Array(vk.readBuffer(handle).buffer);
          assert.deepEqual([...got.subarray(0, length)], [...wanted]);
          assert.equal(got[length], 0x01020304);
        }
      }
    }
    vk.uploadBuffer(handle, new Float32Array([-0]));
    vk.uploadBuffer(handle, new Float32Array([0.1, 1e-45, -Infinity]));
    assert.deepEqual([...vk.readBuffer(handle).subarray(0, 3)], [Math.fround(0.1), 2 ** -149, -Infinity]);
    vk.destroyBuffer(handle);
  }
});

test('uploadBuffer refuses what is no data', () => {
  const handle = vk.createBuffer(64);
  for (const data of [undefined, null, 5, 'text', [1, 2], {}, { length: 4 }, 1n, () => {}]) {
    throws(() => vk.uploadBuffer(handle, data), INVALID_ARGUMENT, ['uploadBuffer', /data/i], [TypeError]);
  }
  throws(() => vk.uploadBuffer(), INVALID_HANDLE, ['uploadBuffer']);
  vk.destroyBuffer(handle);
});

test('views of shared memory are taken by bytes, like any view', () => {
  const shared = new SharedArrayBuffer(64);
  new Uint32Array(shared).set(ramp(16, 3));
  const handle = vk.createBuffer(64);
  vk.uploadBuffer(handle, new Uint32Array(shared));
  assert.deepEqual(words(handle), ramp(16, 3));
  vk.uploadBuffer(handle, new Uint32Array(shared, 8, 2));
  assert.deepEqual(words(handle), Uint32Array.of(5, 6, ...ramp(14, 5)));
  vk.uploadBuffer(handle, new DataView(shared, 0, 4));
  assert.deepEqual(words(handle), Uint32Array.of(3, 6, ...ramp(14, 5)));
  throws(() => vk.uploadBuffer(handle, shared), INVALID_ARGUMENT, ['uploadBuffer', 'data'], [TypeError]);
  vk.destroyBuffer(handle);
});

test('a view that lies about its length is taken at its true one', () => {
  const handle = bufferOf(ramp(16));
  for (const kind of [Uint8Array, Uint32Array, Float64Array, DataView, ...(globalThis.Float16Array ? [globalThis.Float16Array] : [])]) {
    const view = new kind(new ArrayBuffer(8));
    for (const name of ['byteLength', 'length', 'byteOffset']) Object.defineProperty(view, name, { value: 1 << 20 });
    vk.uploadBuffer(handle, view);
    assert.deepEqual(words(handle), Uint32Array.of(0, 0, ...ramp(14, 2)), kind.name);
  }
  vk.destroyBuffer(handle);
});

test('a detached source has no bytes, and no memory behind it is read', () => {
  const handle = bufferOf(ramp(16));
  const view = new Uint32Array(16).fill(9);
  structuredClone(view, { transfer: [view.buffer] });
  for (const source of [view, view.buffer]) {
    try {
      vk.uploadBuffer(handle, source);
    } catch (error) {
      assert.equal(error.code, INVALID_ARGUMENT, error.message);
      assert.ok(error instanceof TypeError || error instanceof RangeError);
    }
    assert.deepEqual(words(handle), ramp(16));
  }
  vk.destroyBuffer(handle);
});

test('resizable buffers are taken at their size of the moment', {
  skip: !('resizable' in ArrayBuffer.prototype) && 'this Node has no resizable buffers',
}, () => {
  const resizable = new ArrayBuffer(16, { maxByteLength: 64 });
  const tracking = new Uint32Array(resizable);
  const fixed = new Uint32Array(resizable, 0, 4);
  const handle = vk.createBuffer(64);
  vk.fillBuffer(handle, 64, 77);
  tracking.set([1, 2, 3, 4]);
  vk.uploadBuffer(handle, tracking);
  assert.deepEqual(words(handle), Uint32Array.of(1, 2, 3, 4, ...new Array(12).fill(77)));
  resizable.resize(32);
  tracking.set([5, 6, 7, 8, 9, 10, 11, 12]);
  vk.uploadBuffer(handle, tracking);
  assert.deepEqual(words(handle), Uint32Array.of(5, 6, 7, 8, 9, 10, 11, 12, ...new Array(8).fill(77)));
  resizable.resize(8);
  // `fixed` is out of bounds now: no bytes.
  try {
    vk.uploadBuffer(handle, fixed);
  } catch (error) {
    assert.equal(error.code, INVALID_ARGUMENT, error.message);
  }
  assert.deepEqual(words(handle), Uint32Array.of(5, 6, 7, 8, 9, 10, 11, 12, ...new Array(8).fill(77)));
  vk.uploadBuffer(handle, resizable);
  assert.deepEqual(words(handle).subarray(0, 3), Uint32Array.of(5, 6, 7));
  const view = new DataView(resizable, 4, 4);
  resizable.resize(4);
  try {
    vk.uploadBuffer(handle, view);
  } catch (error) {
    assert.equal(error.code, INVALID_ARGUMENT, error.message);
  }
  assert.deepEqual(words(handle).subarray(0, 3), Uint32Array.of(5, 6, 7));
  vk.destroyBuffer(handle);
});

test('fillBuffer fills the first bytes with the pattern', () => {
  for (const hostVisible of [0, 1]) {
    const handle = vk.createBuffer(64, hostVisible);
    vk.uploadBuffer(handle, ramp(16));
    vk.fillBuffer(handle, 0, 1);
    assert.deepEqual(words(handle), ramp(16), 'no bytes');
    vk.fillBuffer(handle, 20, 0xdeadbeef);
    assert.deepEqual(words(handle), Uint32Array.of(...new Array(5).fill(0xdeadbeef), ...ramp(11, 5)));
    vk.fillBuffer(handle, 64, 0);
    assert.deepEqual(words(handle), new Uint32Array(16));
    for (const pattern of [0x80000000, 0xffffffff, 1]) {
      vk.fillBuffer(handle, 64, pattern);
      assert.deepEqual(words(handle), new Uint32Array(16).fill(pattern));
    }
    vk.destroyBuffer(handle);
  }
});

test('fillBuffer refuses sizes that are no multiple of 4 or larger than the buffer, and patterns that are no u32', () => {
  const handle = bufferOf(ramp(16));
  for (const bytes of [1, 2, 3, 62, 68, 2 ** 40, -4, 4.5]) {
    throws(() => vk.fillBuffer(handle, bytes, 0), INVALID_ARGUMENT, ['fillBuffer', /bytes/i, String(bytes)]);
  }
  for (const bytes of [NaN, '64', undefined, null, {}]) {
    throws(() => vk.fillBuffer(handle, bytes, 0), INVALID_ARGUMENT, ['fillBuffer', /bytes/i]);
  }
  for (const pattern of [1.5, NaN, 2 ** 32, -(2 ** 31) - 1, '1', undefined, null, {}]) {
    throws(() => vk.fillBuffer(handle, 64, pattern), INVALID_ARGUMENT, ['fillBuffer', /value|pattern|u32/i]);
  }
  assert.deepEqual(words(handle), ramp(16), 'nothing was half done');
  vk.destroyBuffer(handle);
});

test('floats survive the round trip bit for bit, NaN payloads included', () => {
  const patterns = Uint32Array.of(0x7fc00001, 0xffc12345, 0x7f800001, 0x80000000, 0x00000001, 0x7f7fffff);
  const handle = bufferOf(patterns);
  assert.deepEqual(bits(vk.readBuffer(handle)), patterns);
  vk.destroyBuffer(handle);
});

test('a size that is no multiple of 4 reads as whole elements', () => {
  const handle = vk.createBuffer(10);
  vk.uploadBuffer(
    handle,
    Uint8Array.from({ length: 10 }, (_, i) => i),
  );
  assert.equal(vk.readBuffer(handle).length, 2);
  assert.deepEqual(bytesOf(handle), Uint8Array.of(0, 1, 2, 3, 4, 5, 6, 7));
  throws(() => vk.uploadBuffer(handle, new Uint8Array(11)), INVALID_ARGUMENT, [11, 10]);
  vk.destroyBuffer(handle);
});

test('copyBuffer: whole buffers, parts, and within one', () => {
  const from = bufferOf(ramp(8), 0);
  const to = bufferOf(new Uint32Array(8), 0);
  vk.copyBuffer(from, to, 8, 4, 16);
  sameWords(words(to), Uint32Array.of(0, 0, 0, 0, 1, 2, 0, 0), 'a part');
  // Without a length: as much as both hold.
  vk.copyBuffer(from, to, undefined, 20);
  sameWords(words(to), Uint32Array.of(5, 6, 7, 0, 1, 2, 0, 0), 'the rest of the source');
  vk.copyBuffer(from, to, undefined, 0, 28);
  sameWords(words(to), Uint32Array.of(5, 6, 7, 0, 1, 2, 0, 0), 'one word of the target');
  vk.copyBuffer(to, to, 12, 0, 12);
  sameWords(words(to), Uint32Array.of(5, 6, 7, 5, 6, 7, 0, 0), 'within one buffer');
  vk.copyBuffer(from, to, undefined, 32);
  vk.copyBuffer(from, to, 0, 0, 32);
  sameWords(words(to), Uint32Array.of(5, 6, 7, 5, 6, 7, 0, 0), 'nothing, at an end');
  [from, to].forEach((handle) => vk.destroyBuffer(handle));
});

test('copyBuffer names the argument that does not fit, and copies nothing', () => {
  const from = bufferOf(ramp(8), 0);
  const to = bufferOf(new Uint32Array(4), 0);
  const refused = (arguments_, parts) => throws(() => vk.copyBuffer(from, to, ...arguments_), INVALID_ARGUMENT, parts, [RangeError]);
  refused([4, 36], ['sourceOffset', 36, 32]);
  refused([undefined, 36], ['sourceOffset', 36, 32]);
  refused([4, 0, 20], ['targetOffset', 20, 16]);
  refused([undefined, 0, 20], ['targetOffset', 20, 16]);
  refused([20], ['byteLength', 20, 16]);
  refused([16, 20], ['byteLength', 16, 20, 32]);
  refused([8, 0, 12], ['byteLength', 8, 12, 16]);
  refused([-4], ['byteLength', -4]);
  refused([4, -4], ['sourceOffset', -4]);
  throws(() => vk.copyBuffer(from, from, 16, 0, 8), INVALID_ARGUMENT, ['byteLength', 'overlap', 16], [RangeError]);
  throws(() => vk.copyBuffer(-1, to), INVALID_HANDLE, ['source']);
  throws(() => vk.copyBuffer(from, -1), INVALID_HANDLE, ['target']);
  sameWords(words(from), ramp(8), 'the source');
  sameWords(words(to), new Uint32Array(4), 'the target');
  [from, to].forEach((handle) => vk.destroyBuffer(handle));
});

test('an offset beyond the buffer is named', () => {
  const handle = bufferOf(ramp(8), 0);
  throws(() => vk.uploadAsync(handle, new Uint32Array(1), 36), INVALID_ARGUMENT, ['byteOffset', 36, 32], [RangeError]);
  throws(() => vk.readInto(handle, new Uint32Array(1), 36), INVALID_ARGUMENT, ['target', 36, 32], [RangeError]);
  sameWords(words(handle), ramp(8), 'the buffer');
  vk.destroyBuffer(handle);
});
