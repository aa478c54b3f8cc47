// @ts-nocheck -- values that are no data are passed on purpose; types/trainer-contract.ts checks the types.
// What uploads take is what their types say, ArrayBufferView | ArrayBuffer, by bytes; everything else is refused, and
// nothing has been written then.
import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import vm from 'node:vm';
import { init, vk } from './lib/addon.mjs';
import { INVALID_ARGUMENT, throws } from './lib/expect.mjs';
import { Random } from './lib/random.mjs';

before(init);

const SIZE = 256;
const BEFORE = 0xa5;

const KINDS = [
  'Int8Array',
  'Uint8Array',
  'Uint8ClampedArray',
  'Int16Array',
  'Uint16Array',
  'Int32Array',
  'Uint32Array',
  'Float16Array',
  'Float32Array',
  'Float64Array',
  'BigInt64Array',
  'BigUint64Array',
  'DataView',
]
  .map((name) => globalThis[name])
  .filter(Boolean);

/** Memory for views, of one of the kinds that there are. @param {Random} random @param {number} bytes */
function memory(random, bytes) {
  const kinds = [() => new ArrayBuffer(bytes), () => new SharedArrayBuffer(bytes), () => vm.runInNewContext(`new ArrayBuffer(${bytes})`)];
  if ('resizable' in ArrayBuffer.prototype) kinds.push(() => new ArrayBuffer(bytes, { maxByteLength: 2 * bytes + 8 }));
  return random.pick(kinds)();
}

/** Any value that is data by its type, and its bytes. @param {Random} random */
function data(random) {
  const bytes = random.below(SIZE + 1);
  if (random.chance(0.1)) {
    const buffer = Uint8Array.from({ length: bytes }, () => random.below(256)).buffer;
    return { value: buffer, expected: new Uint8Array(buffer) };
  }
  const kind = random.pick(KINDS);
  const unit = kind.BYTES_PER_ELEMENT ?? 1;
  const length = Math.floor(bytes / unit);
  const offset = unit * random.below(9);
  const buffer = memory(random, offset + length * unit + unit * random.below(9));
  const all = new Uint8Array(buffer);
  for (let i = 0; i < all.length; i++) all[i] = random.below(256);
  const expected = all.slice(offset, offset + length * unit);
  if (random.chance(0.2)) return { value: Buffer.from(buffer, offset, length * unit), expected };
  class Derived extends kind {}
  return { value: new (random.pick([kind, Derived]))(buffer, offset, length), expected };
}

test('uploads take every view and every ArrayBuffer, by its bytes', () => {
  const random = new Random(21);
  const handle = vk.createBuffer(SIZE, 0);
  for (let round = 0; round < 400; round++) {
    const { value, expected } = data(random);
    const at = random.chance(0.5) ? 0 : random.below(SIZE - expected.length + 1);
    vk.fillBuffer(handle, SIZE, 0x01010101 * BEFORE);
    if (at === 0 && random.chance(0.5)) vk.uploadBuffer(handle, value);
    else vk.uploadAsync(handle, value, at);
    const found = new Uint8Array(vk.readBuffer(handle).buffer, 0, SIZE);
    const wanted = new Uint8Array(SIZE).fill(BEFORE);
    wanted.set(expected, at);
    assert.deepEqual(found, wanted, `round ${round}: ${value.constructor.name} of ${expected.length} bytes at ${at}`);
  }
  vk.destroyBuffer(handle);
});

test('uploads refuse everything else, and write nothing', () => {
  const handle = vk.createBuffer(SIZE, 0);
  const bytes = new Uint8Array(8);
  const detached = new Uint32Array(4);
  structuredClone(detached.buffer, { transfer: [detached.buffer] });
  const nothing = [
    undefined,
    null,
    true,
    0,
    8,
    -1,
    1.5,
    NaN,
    8n,
    'text',
    '\0\0\0\0',
    Symbol('data'),
    () => bytes,
    class {},
    {},
    [],
    [1, 2, 3, 4],
    new Array(8),
    { length: 4, 0: 1, 1: 2, 2: 3, 3: 4 },
    { buffer: bytes.buffer, byteOffset: 0, byteLength: 8 },
    { byteLength: 8, slice: () => bytes.buffer },
    Object.create(Uint8Array.prototype),
    Object.create(ArrayBuffer.prototype),
    Object.create(DataView.prototype),
    Object.create(bytes),
    new Proxy(bytes, {}),
    new Proxy(bytes.buffer, {}),
    new SharedArrayBuffer(8),
    new String('text'),
    new Number(8),
    new Date(0),
    new Map([[0, 1]]),
    new Set([1]),
    new Blob([bytes]),
    new Error('text'),
    Promise.resolve(bytes),
    bytes[Symbol.iterator](),
    Uint8Array,
    detached,
    detached.buffer,
  ];
  vk.fillBuffer(handle, SIZE, 0x01010101 * BEFORE);
  for (const value of nothing) {
    throws(() => vk.uploadBuffer(handle, value), INVALID_ARGUMENT, ['uploadBuffer', 'data'], [TypeError]);
    throws(() => vk.uploadAsync(handle, value, 4), INVALID_ARGUMENT, ['uploadAsync', 'data'], [TypeError]);
  }
  throws(() => vk.uploadBuffer(handle), INVALID_ARGUMENT, ['uploadBuffer', 'data'], [TypeError]);
  assert.deepEqual(new Uint8Array(vk.readBuffer(handle).buffer, 0, SIZE), new Uint8Array(SIZE).fill(BEFORE));
  vk.destroyBuffer(handle);
});
