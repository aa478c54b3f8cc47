// The layouts of the flat template: every width, two vectors at a time, rows with gaps, and what is left to the device.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { activate } from '../kernels/formulas.mjs';
import { createKernels } from '../kernels/index.mjs';
import { flat, Program } from '../kernels/program.mjs';
import { init, vk } from './lib/addon.mjs';
import { fromBf16, fromF16, toBf16, toF16 } from './lib/half.mjs';
import * as reference from './lib/reference.mjs';

/** @typedef {'f32' | 'f16' | 'bf16'} Type */

before(() => init());

const POISON = 0x7fc17fc1;
const encode = { f16: toF16, bf16: toBf16 };
const decode = { f16: fromF16, bf16: fromBf16 };

/** Numbers of a type between `offset` elements of poison and some more. @param {Type} type @param {number[]} values @param {number} offset */
function wordsOf(type, values, offset) {
  const words = new Uint32Array(Math.ceil((offset + values.length) / (type === 'f32' ? 1 : 2)) + 8).fill(POISON);
  const lanes = type === 'f32' ? new Float32Array(words.buffer) : new Uint16Array(words.buffer);
  values.forEach((v, i) => {
    lanes[offset + i] = type === 'f32' ? v : encode[type](v);
  });
  return words;
}

/** @param {Type} type @param {Uint32Array} words @param {number} at */
const elementOf = (type, words, at) =>
  type === 'f32' ? new Float32Array(words.buffer)[at] : decode[type](new Uint16Array(words.buffer)[at]);

/** @param {Uint32Array} words */
function upload(words) {
  const handle = vk.createBuffer(words.byteLength);
  vk.uploadBuffer(handle, words);
  return handle;
}
/** @param {number} handle */
const download = (handle) => new Uint32Array(vk.readBuffer(handle).buffer.slice(0));

/**
 * y = 2x through a program of the flat template, in place or not.
 * @param {{ from: Type, to: Type, count: number, offset: number, groups: number, inPlace?: boolean }} how
 * @param {import('../kernels/program.mjs').Vectors} vectors
 */
function doubled({ from, to, count, offset, groups, inPlace = false }, vectors) {
  const program = new Program(32, 0, 'flat', 0, vectors);
  const x = program.input(from);
  program.output(to, program.append('add', x, x));
  const { spirv, bindings, pushBytes } = vk.buildKernel(program.words());
  const pipeline = vk.createPipeline(spirv, bindings, pushBytes);
  const values = Array.from({ length: count }, (_, i) => ((i * 7) % 61) / 4 - 5);
  const input = upload(wordsOf(from, values, offset));
  const expected = wordsOf(
    to,
    values.map((v) => 2 * v),
    offset,
  );
  const output = inPlace ? input : upload(new Uint32Array(expected.length).fill(POISON));
  vk.dispatch(pipeline, [input, output], groups, 1, 1, Uint32Array.of(count, offset, offset));
  assert.deepEqual(download(output), expected, JSON.stringify({ from, to, count, offset, groups, inPlace, ...vectors }));
  for (const buffer of inPlace ? [input] : [input, output]) vk.destroyBuffer(buffer);
  vk.destroyPipeline(pipeline);
}

/** @type {[Type, Type][]} */
const PAIRS_OF_TYPES = [
  ['f32', 'f32'],
  ['f32', 'bf16'],
  ['bf16', 'bf16'],
  ['f16', 'f16'],
  ['f16', 'f32'],
];
for (const [from, to] of PAIRS_OF_TYPES) {
  test(`${from} to ${to} by every width, one vector or two at a time, whoever converts; nothing else is written`, () => {
    const halves = from !== 'f32' || to !== 'f32';
    for (const width of /** @type {const} */ ([1, 2, 4])) {
      if (halves && width === 1) continue;
      for (const pairs of [false, true]) {
        for (const native of [false, true]) {
          // Fewer vectors than invocations, a last turn with one vector only, several turns; at width 4 with elements left over.
          const counts = width === 4 ? [3, 4, 129, 130, 4 * 96 + 3, 1026] : [width, 96 * width, 97 * width, 333 * width];
          for (const count of halves && to !== 'f32' && width < 4 ? counts.map((n) => 2 * Math.ceil(n / 2)) : counts)
            for (const groups of [1, 3]) {
              doubled({ from, to, count, offset: width * 3, groups }, { width, pairs, native });
              if (from === to) doubled({ from, to, count, offset: 0, groups, inPlace: true }, { width, pairs, native });
            }
        }
      }
    }
  });
}

test('rows with gaps by vectors: what lies between them stays', () => {
  for (const type of /** @type {const} */ (['f32', 'bf16', 'f16'])) {
    for (const width of /** @type {const} */ ([1, 2, 4])) {
      if (width === 1 && type !== 'f32') continue;
      for (const pairs of [false, true]) {
        const [rows, columns, stride, offset] = [7, 5 * width, 8 * width, 2 * width];
        const program = new Program(16, 2, 'flat', 0, { width, pairs });
        const x = program.input(type, 'lines');
        program.output(type, program.append('neg', x), 'lines');
        const { spirv, bindings, pushBytes } = vk.buildKernel(program.words());
        const pipeline = vk.createPipeline(spirv, bindings, pushBytes);
        const values = Array.from({ length: rows * stride }, (_, i) => (i % 50) + 1);
        const words = wordsOf(type, values, offset);
        const buffer = upload(words);
        const place = [offset, stride, 1];
        vk.dispatch(pipeline, [buffer, buffer], 2, 1, 1, Uint32Array.of(rows * columns, rows, columns, ...place, ...place));
        const got = download(buffer);
        values.forEach((v, i) => {
          assert.equal(elementOf(type, got, offset + i), i % stride < columns ? -v : v, `${type} ${width} ${pairs} element ${i}`);
        });
        vk.destroyBuffer(buffer);
        vk.destroyPipeline(pipeline);
      }
    }
  }
});

test('a NaN among four bf16 stays one, and its neighbours and infinities are rounded as ever', () => {
  const patterns = [0x7fffffff, 0xffffffff, 0x7f800001, 0x7fc00000, 0x7f800000, 0xff800000, 0x3f808000, 0x3f818000, 0xbf80ffff, 0x7f7fffff];
  const words = Uint32Array.from({ length: 4 * patterns.length }, (_, i) => (i % 5 === 0 ? 0x3f80c000 : patterns[Math.floor(i / 4)]));
  const [nan, rounded] = [
    (/** @type {number} */ w) => (w & 0x7fffffff) > 0x7f800000,
    (/** @type {number} */ w) => (w + 0x7fff + ((w >>> 16) & 1)) >>> 16,
  ];
  for (const native of [false, true]) {
    const program = new Program(32, 0, 'flat', 0, { native });
    program.output('bf16', program.input('f32'));
    const { spirv, bindings, pushBytes } = vk.buildKernel(program.words());
    const pipeline = vk.createPipeline(spirv, bindings, pushBytes);
    const [from, to] = [upload(words), vk.createBuffer(2 * words.length)];
    vk.dispatch(pipeline, [from, to], 1, 1, 1, Uint32Array.of(words.length, 0, 0));
    const got = new Uint16Array(download(to).buffer);
    words.forEach((word, i) => {
      if (nan(word)) assert.ok((got[i] & 0x7fff) > 0x7f80, `${native}: element ${i} of ${word.toString(16)} is ${got[i].toString(16)}`);
      else assert.equal(got[i], rounded(word) & 0xffff, `${native}: element ${i} of ${word.toString(16)}`);
    });
    for (const buffer of [from, to]) vk.destroyBuffer(buffer);
    vk.destroyPipeline(pipeline);
  }
});

test('the program of a kernel is written once for each name and width', () => {
  const { context } = createKernels(vk);
  const buffer = vk.createBuffer(64);
  let written = 0;
  const once = (/** @type {1 | 4} */ width) =>
    flat(context, {
      name: 'seven',
      width,
      count: 8,
      inputs: [],
      outputs: [{ buffer, offset: 0 }],
      push: [0],
      write: (p) => {
        written++;
        p.output('u32', p.constant(7, 'u32'));
      },
    }).pipeline;
  assert.equal(once(4), once(4));
  assert.notEqual(once(1), once(4));
  assert.equal(written, 2);
  vk.destroyBuffer(buffer);
});

test('functions that are left to the device are those of float64, and go to their limits', () => {
  // Finite everywhere but in the exponentials' ends: an infinity there must give the limit.
  const xs = [...Array.from({ length: 2001 }, (_, i) => (i - 1000) / 50), 1e-6, -1e-6, 1e-20, 0.6, -0.6, 50, -50, 100, -100, 1000, -1000];
  // Not x/2 (1 + tanh(u)), whose sum is 0 where the result is not.
  const gelu = (/** @type {number} */ x) => x / (1 + Math.exp(-2 * Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
  /** @type {Record<string, (x: number) => number>} */
  const exact = {
    tanh: Math.tanh,
    sigmoid: (x) => 1 / (1 + Math.exp(-x)),
    gelu,
    silu: reference.activations.silu,
  };
  for (const [name, f] of Object.entries(exact)) {
    const program = new Program(32, 0, 'flat', 0, { native: true });
    const x = program.input('f32');
    program.output('f32', activate[/** @type {import('../kernels/formulas.mjs').Activation} */ (name)](program, x));
    const { spirv, bindings, pushBytes } = vk.buildKernel(program.words());
    const pipeline = vk.createPipeline(spirv, bindings, pushBytes);
    const words = new Uint32Array(Float32Array.from(xs).buffer);
    const [from, to] = [upload(words), vk.createBuffer(words.byteLength)];
    vk.dispatch(pipeline, [from, to], 2, 1, 1, Uint32Array.of(xs.length, 0, 0));
    const got = new Float32Array(download(to).buffer);
    xs.forEach((v, i) => {
      const wanted = f(Math.fround(v));
      // Of exp: 3 + 2|x| units in the last place, of which the argument of GELU's is 1.6 (x + 0.045 x³); denormals may be flushed.
      const units = name === 'tanh' ? 8 : 16 + 4 * Math.min(Math.abs(v) ** (name === 'gelu' ? 3 : 1), 90);
      assert.ok(Math.abs(got[i] - wanted) <= units * 2 ** -24 * Math.abs(wanted) + 2 ** -110, `${name}(${v}) is ${got[i]}, not ${wanted}`);
    });
    for (const buffer of [from, to]) vk.destroyBuffer(buffer);
    vk.destroyPipeline(pipeline);
  }
});
