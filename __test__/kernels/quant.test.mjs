/** `quantizeQ8` against llama.cpp's rule written plainly, by WebAssembly and without it. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bf16Bits, f16Bits, quantizeQ8 } from '../../kernels/index.mjs';
import { fromBf16, fromF16, toF16 } from '../lib/half.mjs';

/** A block's quants and its scale, as `quantize_row_q8_0_ref` of llama.cpp computes them. @param {Float32Array} x */
function rule(x) {
  const most = x.reduce((a, b) => (Number.isNaN(a) || Number.isNaN(b) ? NaN : Math.max(a, Math.abs(b))), 0);
  const d = Math.fround(most / 127);
  const inverse = d ? Math.fround(1 / d) : 0;
  const quants = Array.from(x, (v) => {
    // What C's cast of these gives is not defined: the scale says that the block is not finite.
    if (!Number.isFinite(d)) return v < 0 ? -1 : 1;
    const scaled = Math.fround(v * inverse);
    return Number.isFinite(scaled) ? Math.sign(scaled) * Math.floor(Math.abs(scaled) + 0.5) : 0;
  });
  return { quants, scale: toF16(d) };
}

let state = 7;
const random = () => (state = (Math.imul(state ^ (state >>> 15), 2246822519) + 3266489917) >>> 0) / 2 ** 32;

/** Blocks of f32 of many kinds, more than are converted at a time. */
function numbers() {
  const blocks = Array.from({ length: 600 }, (_, b) => {
    const size = 2 ** ((b % 160) - 145);
    // Halves, which are rounded away from zero, where the largest is 127.
    const isTies = b % 3 === 0;
    const block = Array.from({ length: 32 }, () => (isTies ? Math.floor(random() * 255) / 2 - 63.5 : 254 * random() - 127) * size);
    block[b % 32] = 127 * size;
    return block;
  });
  const zeros = new Array(32).fill(0);
  const odd = [
    [-0],
    [2 ** -149],
    [-(2 ** -130), 2 ** -127],
    [NaN],
    [Infinity, -1],
    [-Infinity, NaN],
    [3.4e38, -3.4e38],
    [65504, -65504],
    [1e-7],
  ];
  return Float32Array.from([...blocks, zeros, ...odd.map((some) => [...some, ...zeros].slice(0, 32))].flat());
}

/** @param {typeof quantizeQ8} quantize */
function check(quantize) {
  const values = numbers();
  const every = Uint16Array.from({ length: 2 ** 16 }, (_, i) => i);
  const mixed = every.map(() => random() * 2 ** 16);
  const cases = /** @type {const} */ ([
    ['f32', values, values],
    ...[every, mixed, Uint16Array.from(values, f16Bits)].map(
      (bits) => /** @type {const} */ (['f16', bits, Float32Array.from(bits, fromF16)]),
    ),
    ...[every, mixed, Uint16Array.from(values, bf16Bits)].map(
      (bits) => /** @type {const} */ (['bf16', bits, Float32Array.from(bits, fromBf16)]),
    ),
  ]);
  for (const [type, given, floats] of cases) {
    const { quants, scales } = quantize(given, undefined, type);
    for (let at = 0; at < floats.length; at += 32) {
      const expected = rule(floats.subarray(at, at + 32));
      const got = { quants: Array.from(quants.subarray(at, at + 32)), scale: scales[at / 32] };
      // -0 of the rule is 0 in an i8.
      assert.deepEqual(
        got,
        { ...expected, quants: expected.quants.map((q) => q + 0) },
        `${type}, numbers from ${at} on: ${floats.subarray(at, at + 32)}`,
      );
    }
  }
}

test('q8_0 follows the rule for numbers of every kind and type', () => check(quantizeQ8));

test('so it does where there is no WebAssembly', async () => {
  const all = /** @type {any} */ (globalThis);
  const { WebAssembly: own } = all;
  /** Without addresses for a memory. */
  class Instance {
    constructor() {
      throw new RangeError('WebAssembly.Instance(): Out of memory');
    }
  }
  try {
    for (const [i, its] of [undefined, { validate: own.validate, Module: own.Module, Instance }].entries()) {
      all.WebAssembly = its;
      check((await import(new URL(`../../kernels/quant.mjs?scalar${i}`, import.meta.url).href)).quantizeQ8);
    }
  } finally {
    all.WebAssembly = own;
  }
});

test('numbers of 16 bits come as their bits', () => {
  assert.throws(() => quantizeQ8(new Float32Array(32), undefined, 'f16'), /values of f16 must be a Uint16Array of bits/);
  assert.throws(() => quantizeQ8(new Float32Array(32), undefined, /** @type {any} */ ('q8_0')), /type must be f32, f16 or bf16, got q8_0/);
  assert.deepEqual(quantizeQ8([1, ...new Array(31).fill(0)]).quants[0], 127);
});
