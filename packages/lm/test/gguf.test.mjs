// GGUF files: every type of value and tensor there and back, damaged files, and blocks that llama.cpp encoded (fixtures/make-ggml-blocks.mjs).

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { closeSync, ftruncateSync, openSync, readFileSync, readdirSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';

import { temporaryFolder } from '../../../__test__/lib/folder.mjs';
import { TYPES, bytesOf, readGguf, readTensor, writeGguf } from '../src/formats/gguf.mjs';
import { fromF32, toF32 } from '../src/formats/quant.mjs';

/** @typedef {import('../src/formats/gguf.mjs').Metadata} Metadata */

/** A value of every type, the limits of each among them. @type {Metadata} */
const METADATA = new Map(
  /** @type {[string, any][]} */ ([
    ['general.architecture', { type: 'string', value: 'test' }],
    ['u8', { type: 'u8', value: 255 }],
    ['i8', { type: 'i8', value: -128 }],
    ['u16', { type: 'u16', value: 65535 }],
    ['i16', { type: 'i16', value: -32768 }],
    ['u32', { type: 'u32', value: 2 ** 32 - 1 }],
    ['i32', { type: 'i32', value: -(2 ** 31) }],
    ['f32', { type: 'f32', value: Math.fround(0.1) }],
    ['f64', { type: 'f64', value: 0.1 }],
    ['yes', { type: 'bool', value: true }],
    ['no', { type: 'bool', value: false }],
    ['exact', { type: 'u64', value: 2 ** 53 - 1 }],
    ['large', { type: 'u64', value: 2n ** 64n - 1n }],
    ['negative', { type: 'i64', value: -(2n ** 63n) }],
    ['text', { type: 'string', value: '\ufeffé 😀\0' }],
    ['empty', { type: 'string', value: '' }],
    ['strings', { type: 'string[]', value: ['a', '', 'ß'] }],
    ['none', { type: 'string[]', value: [] }],
    ['floats', { type: 'f32[]', value: Float32Array.of(1.5, -0, Infinity) }],
    ['ints', { type: 'i32[]', value: Int32Array.of(-1, 2 ** 31 - 1) }],
    ['bytes', { type: 'u8[]', value: Uint8Array.of(1, 2, 3) }],
    ['flags', { type: 'bool[]', value: [true, false] }],
    ['longs', { type: 'i64[]', value: [-5, 2n ** 60n + 1n] }],
  ]),
);

/** Tensors of all types whose bytes count up. */
const TENSORS = /** @type {(keyof typeof TYPES)[]} */ (Object.keys(TYPES)).map((type, i) => {
  const description = { name: `tensor.${type}`, type, shape: i % 2 ? [3, 256] : [512] };
  const bytes = Uint8Array.from({ length: bytesOf(description) }, (_, j) => i + j);
  return { ...description, data: bytes, pieces: () => [bytes.subarray(0, 7), bytes.subarray(7)] };
});

test('all values and tensors come back', async (t) => {
  const path = join(temporaryFolder(t), 'below', 'all.gguf');
  await writeGguf(path, METADATA, TENSORS);
  const gguf = readGguf(path);
  assert.deepEqual([gguf.path, gguf.version], [path, 3]);
  assert.deepEqual([...gguf.metadata], [...METADATA]);
  assert.deepEqual(
    gguf.tensors.map(({ name, type, shape }) => ({ name, type, shape })),
    TENSORS.map(({ name, type, shape }) => ({ name, type, shape })),
  );
  for (const [i, tensor] of gguf.tensors.entries()) {
    assert.equal(tensor.offset % 32, 0);
    assert.deepEqual(await readTensor(gguf, tensor), TENSORS[i].data, tensor.name);
  }
  assert.deepEqual(await readTensor(gguf, gguf.tensors[1], 5, 9), TENSORS[1].data.slice(5, 14));
  await assert.rejects(readTensor(gguf, gguf.tensors[0], 0, 2049), /tensor\.f32 has 2048 bytes, not 0 \+ 2049/);
});

test('a vocabulary of 150,000 tokens comes back', async (t) => {
  const path = join(temporaryFolder(t), 'a.gguf');
  const tokens = Array.from({ length: 150_000 }, (_, i) => `t${i}`);
  await writeGguf(path, new Map([['tokens', { type: 'string[]', value: tokens }]]), []);
  assert.deepEqual(readGguf(path).metadata.get('tokens')?.value, tokens);
});

test('version 2 and another alignment are read', async (t) => {
  const path = join(temporaryFolder(t), 'a.gguf');
  await writeGguf(path, new Map([['general.alignment', { type: 'u32', value: 16 }]]), TENSORS.slice(0, 2));
  const bytes = readFileSync(path);
  bytes.writeUInt32LE(2, 4);
  writeFileSync(path, bytes);
  const gguf = readGguf(path);
  assert.equal(gguf.version, 2);
  assert.equal(gguf.dataOffset % 16, 0);
});

test('what does not fit is not written, and leaves the file that is there', async (t) => {
  const folder = temporaryFolder(t);
  const path = join(folder, 'a.gguf');
  await writeGguf(path, METADATA, TENSORS);
  const before = readFileSync(path);
  const [tensor] = TENSORS;
  await assert.rejects(
    writeGguf(path, METADATA, [{ ...tensor, pieces: () => [new Uint8Array(8)] }]),
    /tensor\.f32 needs 2048 bytes, got 8/,
  );
  await assert.rejects(writeGguf(path, METADATA, [{ ...tensor, name: 'x'.repeat(64) }]), /the name of a tensor has at most 63 bytes/);
  assert.ok(before.equals(readFileSync(path)));
  assert.deepEqual(readdirSync(folder), ['a.gguf']);
  await assert.rejects(writeGguf(join(path, 'b.gguf'), METADATA, TENSORS), /b\.gguf could not be written|a\.gguf/);
});

/** A header of hand-made parts. @param {(number | bigint | string | Buffer)[]} parts numbers are u32, bigints u64, strings have their length before them */
const headerOf = (...parts) =>
  Buffer.concat(
    parts.map((part) => {
      if (Buffer.isBuffer(part)) return part;
      const text = Buffer.from(typeof part === 'string' ? part : '');
      const bytes = Buffer.alloc(typeof part === 'number' ? 4 : 8);
      if (typeof part === 'number') bytes.writeUInt32LE(part);
      else bytes.writeBigUInt64LE(typeof part === 'bigint' ? part : BigInt(text.length));
      return Buffer.concat([bytes, text]);
    }),
  );

test('a damaged file is an error that names the file, the key or tensor, what is there and what was expected', (t) => {
  const path = join(temporaryFolder(t), 'x.gguf');
  const magic = Buffer.from('GGUF');
  const data = Buffer.alloc(256);
  /** A tensor's entry: [4, 8] of f32 unless changed. @param {Partial<{ name: string, dims: bigint[], type: number, offset: bigint }>} [changes] */
  const entry = ({ name = 't', dims = [8n, 4n], type = 0, offset = 0n } = {}) => headerOf(name, dims.length, ...dims, type, offset);
  const withTensors = (/** @type {Buffer[]} */ ...entries) => headerOf(magic, 3, BigInt(entries.length), 0n, ...entries, data);
  const withKey = (/** @type {(number | bigint | string | Buffer)[]} */ ...parts) => headerOf(magic, 3, 0n, 1n, ...parts);
  writeFileSync(path, withTensors(entry()));
  assert.deepEqual(readGguf(path).tensors[0].shape, [4, 8]);
  const huge = 2n ** 63n;
  for (const [bytes, message] of /** @type {[Buffer, RegExp][]} */ ([
    [Buffer.from('{"a":1}  '), /x\.gguf is not a GGUF file: it does not begin with "GGUF"/],
    [Buffer.alloc(0), /the header needs 4 bytes at 0, and the file has 0 more: it is truncated or damaged/],
    [headerOf(magic, 1), /the version of GGUF is 1; known: 2, 3/],
    [headerOf(magic, 0x3000000), /the version of GGUF is 50331648: it is big-endian; known: 2, 3/],
    [headerOf(magic, 3, huge, 0n), /the header has a number of tensors of 9223372036854775808, expected at most 65536/],
    [headerOf(magic, 3, 0n, huge), /the header has a number of keys of 9223372036854775808, expected at most 65536/],
    [headerOf(magic, 3, 0n, 1n, huge), /key 1 of 1 has a length of a name: 9223372036854775808, expected at most 65535/],
    [withKey('k', 99), /the key "k" has a value of type 99; known: 0 to 12/],
    [withKey('k', 8, huge), /the key "k" has a length of a text: 9223372036854775808, expected at most 16777216/],
    [withKey('k', 8, 999n), /the key "k" needs 999 bytes at 45, and the file has 0 more/],
    [withKey('k', 8, 1n, Buffer.of(0xff)), /the key "k" has a text that is not UTF-8/],
    [withKey('k', 7, Buffer.of(2)), /the key "k" has a truth value of 2, expected 0 or 1/],
    [withKey('k', 9, 9, 1n), /the key "k" is an array of arrays/],
    [withKey('k', 9, 4, huge), /the key "k" has a number of elements of 9223372036854775808, expected at most 16777216/],
    [withKey('k', 9, 4, 1000n), /the key "k" has 1000 elements of type u32, at least 4000 bytes; the file has 0 more/],
    [withKey('k', 9, 8, 1000n), /the key "k" has 1000 elements of type string, at least 8000 bytes/],
    [headerOf(magic, 3, 0n, 2n, 'k', 4, 1, 'k', 4, 1), /the key "k" is there twice/],
    [withKey('general.alignment', 4, 0), /the key "general\.alignment" is 0, expected a power of 2 of at most 65536/],
    [withKey('general.alignment', 4, 48), /the key "general\.alignment" is 48, expected a power of 2/],
    [withKey('general.alignment', 8, '32'), /the key "general\.alignment" is 32, expected a power of 2/],
    [withTensors(entry({ dims: [] })), /tensor t has 0 dimensions, expected 1 to 4/],
    [withTensors(entry({ dims: [1n, 1n, 1n, 1n, 1n] })), /tensor t has 5 dimensions, expected 1 to 4/],
    [withTensors(entry({ dims: [huge] })), /tensor t has a dimension of 9223372036854775808, expected at most/],
    [withTensors(entry({ dims: [2n ** 40n, 2n ** 40n] })), /tensor t has the shape \[1099511627776, 1099511627776\]/],
    [withTensors(entry({ dims: [0n] })), /tensor t has the shape \[0\]/],
    [withTensors(entry({ type: 4 })), /tensor t is of type 4; known: 0 f32, 1 f16, 2 q4_0/],
    [withTensors(entry({ type: 8 })), /tensor t has rows of 8 elements of type q8_0, expected a multiple of 32/],
    [withTensors(entry({ offset: 8n })), /tensor t has the offset 8, expected a multiple of the alignment, 32/],
    [withTensors(entry({ offset: huge })), /tensor t has an offset of 9223372036854775808, expected at most/],
    [
      withTensors(entry({ dims: [2n ** 30n] })),
      /tensor t has 4294967296 bytes at 64, and the file ends at \d+: it is truncated or damaged/,
    ],
    [withTensors(entry(), entry()), /tensor t is there twice|tensor t has 128 bytes at \d+ and overlaps tensor t/],
    [withTensors(entry(), entry({ name: 'u', offset: 96n })), /tensor t has 128 bytes at 128 and overlaps tensor u at 224/],
  ])) {
    writeFileSync(path, bytes);
    assert.throws(
      () => readGguf(path),
      (/** @type {Error} */ error) => {
        assert.match(error.message, message);
        assert.ok(error.message.startsWith(path), error.message);
        return true;
      },
    );
  }
});

test('files cut anywhere and with any byte changed are read or refused, and take no memory of sizes that they make up', async (t) => {
  const path = join(temporaryFolder(t), 'x.gguf');
  await writeGguf(path, METADATA, TENSORS.slice(0, 3));
  const whole = readFileSync(path);
  const { dataOffset } = readGguf(path);
  let refused = 0;
  const tryRead = () => {
    try {
      readGguf(path);
    } catch (error) {
      assert.ok(/** @type {Error} */ (error).message.startsWith(path), `${/** @type {Error} */ (error).stack}`);
      refused++;
    }
  };
  const before = process.memoryUsage().arrayBuffers;
  const file = openSync(path, 'r+');
  for (let at = 0; at < dataOffset; at++) {
    writeSync(file, Uint8Array.of(whole[at] ^ (at % 2 ? 0xff : 0x80)), 0, 1, at);
    tryRead();
    writeSync(file, whole, at, 1, at);
  }
  assert.ok(refused > dataOffset / 4 && refused < dataOffset, `${refused} of ${dataOffset}`);
  refused = 0;
  for (let end = dataOffset - 1; end >= 0; end -= 3) {
    ftruncateSync(file, end);
    tryRead();
  }
  closeSync(file);
  assert.equal(refused, Math.ceil(dataOffset / 3));
  assert.ok(process.memoryUsage().arrayBuffers - before < 2 ** 28);
});

test('blocks of llama.cpp are decoded as it decodes them, and q8_0 is encoded as it encodes it', () => {
  const { values, types } = JSON.parse(readFileSync(new URL('fixtures/ggml-blocks.json', import.meta.url), 'utf8'));
  const bytes = (/** @type {string} */ text) => new Uint8Array(Buffer.from(text, 'base64'));
  const floats = (/** @type {string} */ text) => new Float32Array(bytes(text).buffer);
  assert.equal(Object.keys(types).length, 8);
  for (const [type, { blocks, decoded }] of Object.entries(types)) {
    // The signs of zeros may differ.
    const own = toF32(/** @type {keyof typeof TYPES} */ (type), bytes(blocks)).map((value) => value + 0);
    assert.deepEqual(
      own,
      floats(decoded).map((value) => value + 0),
      type,
    );
  }
  assert.deepEqual(fromF32('q8_0', floats(values)), bytes(types.q8_0.blocks));
  assert.throws(() => toF32('iq4_xs', new Uint8Array(136)), /no type iq4_xs can be decoded; there are f32, f16, bf16, q8_0/);
});

test('f16 and bf16 are rounded to nearest even, in all ranges; all of their numbers come back', () => {
  const special = [
    0,
    -0,
    65504,
    65519.99,
    65520,
    -1e9,
    Infinity,
    -Infinity,
    NaN,
    2 ** -14,
    2 ** -24,
    2 ** -25,
    2 ** -25 * 1.01,
    3 * 2 ** -25,
  ];
  const values = Float32Array.from({ length: 40_000 }, (_, i) => special[i] ?? Math.sin(i) * 2 ** ((i % 60) - 35));
  const words = (/** @type {Uint8Array} */ { buffer, byteOffset, byteLength }) => new Uint16Array(buffer, byteOffset, byteLength / 2);
  // Rounding by its definition: the nearest of all numbers of the type, of two the one whose last bit is 0.
  const [exponents, fractions] = [
    { f16: 5, bf16: 8 },
    { f16: 10, bf16: 7 },
  ];
  const numberOf = (/** @type {'f16' | 'bf16'} */ type, /** @type {number} */ bits) => {
    const [e, f] = [exponents[type], fractions[type]];
    const [exponent, fraction] = [(bits >> f) & (2 ** e - 1), bits & (2 ** f - 1)];
    const bias = 2 ** (e - 1) - 1;
    const size =
      exponent === 2 ** e - 1
        ? fraction
          ? NaN
          : Infinity
        : exponent
          ? (1 + fraction / 2 ** f) * 2 ** (exponent - bias)
          : fraction * 2 ** (1 - bias - f);
    return bits & 0x8000 ? -size : size;
  };
  for (const type of /** @type {const} */ (['f16', 'bf16'])) {
    const infinite = (2 ** exponents[type] - 1) << fractions[type];
    // The infinity stands for the next number, as rounding takes it.
    const sizes = Float64Array.from({ length: infinite + 1 }, (_, bits) =>
      bits < infinite ? numberOf(type, bits) : 2 ** (2 ** (exponents[type] - 1)),
    );
    const nearest = (/** @type {number} */ value) => {
      if (Number.isNaN(value)) return type === 'f16' ? 0x7e00 : 0x7fc0;
      const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
      const size = Math.min(Math.abs(value), sizes[infinite]);
      let [low, high] = [0, infinite];
      while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (sizes[middle] <= size) low = middle;
        else high = middle;
      }
      const [below, above] = [size - sizes[low], sizes[high] - size];
      return sign | (below < above || (below === above && low % 2 === 0) ? low : high);
    };
    assert.deepEqual(words(fromF32(type, values)), Uint16Array.from(values, nearest), type);
  }
  const all = new Uint8Array(Uint16Array.from({ length: 2 ** 16 }, (_, bits) => bits).buffer);
  for (const type of /** @type {const} */ (['f16', 'bf16'])) {
    assert.deepEqual(
      Array.from(toF32(type, all)),
      Array.from({ length: 2 ** 16 }, (_, bits) => numberOf(type, bits)),
    );
  }
  // Bytes that do not lie on words.
  assert.deepEqual(toF32('f32', new Uint8Array(Float32Array.of(0, 1.5).buffer).subarray(4)), Float32Array.of(1.5));
});
