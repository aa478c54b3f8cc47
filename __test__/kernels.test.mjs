// The JS face of the kernels without a device: packing, arguments and their errors.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { accessWidth, KernelContext, pack, pushConstants, Recorder } from '../kernels/base.mjs';
import { bf16Bits, bf16Value, f16Bits, f16Value } from '../kernels/half.mjs';
import { createKernels, optimizerState, ropeTable, STATE } from '../kernels/index.mjs';
import { fromBf16, fromF16, toBf16, toF16 } from './lib/half.mjs';

/** A native module with one shader, which keeps what pipelines were asked for. @param {any} [info] @returns {any} */
function fake(info = {}) {
  let handles = 0;
  const made = /** @type {any[]} */ ([]);
  return {
    made,
    initDevice: () => ({
      deviceType: 2,
      maxComputeSharedMemorySize: 49152,
      maxComputeWorkGroupInvocations: 1024,
      subgroupSize: 32,
      ...info,
    }),
    shaders: { one: { spirv: new Uint32Array([1]), bindings: 2, pushBytes: 8, workgroupSize: [64, 1, 1] } },
    createPipeline: (/** @type {any[]} */ ...args) => {
      made.push(args);
      return handles++;
    },
    createBuffer: () => handles++,
    bufferBytes: () => Infinity,
  };
}

test('a record has the byte form of the contract', () => {
  const push = pushConstants([1, 2], [1.5]);
  const { packed, count } = pack({ pipeline: 7, buffers: [3, 4], groups: [10, 1, 1], push, writeMask: 2 }, [
    { pipeline: 8, buffers: [], groups: [65535, 5, 6], push: undefined, writeMask: 0 },
  ]);
  assert.equal(count, 2);
  assert.equal(packed.byteLength, 36 + 20);
  const view = new DataView(packed);
  const words = (/** @type {number} */ at, /** @type {number} */ n) =>
    Array.from({ length: n }, (_, i) => view.getUint32(at + 4 * i, true));
  assert.equal(view.getInt32(0, true), 7);
  assert.equal(view.getUint16(4, true), 2);
  assert.equal(view.getUint16(6, true), 1 << 1);
  assert.deepEqual(words(8, 6), [10, 2, 3, 4, 1, 2]);
  assert.equal(view.getFloat32(32, true), 1.5);
  assert.equal(view.getInt32(36, true), 8);
  assert.equal(view.getUint16(40, true), 0);
  assert.equal(view.getUint16(42, true), (5 << 1) | 1);
  assert.deepEqual(words(44, 3), [65535, 6, 0]);
});

test('a recorder grows and can be used again', () => {
  const one = {
    pipeline: 1,
    buffers: [1],
    groups: /** @type {[number, number, number]} */ ([1, 1, 1]),
    push: pushConstants([5]),
    writeMask: 1,
  };
  const recorder = new Recorder(16);
  for (let i = 0; i < 1000; i++) recorder.add(one);
  const { packed, count } = recorder.finish();
  assert.equal(count, 1000);
  assert.equal(packed.byteLength, 1000 * 24);
  recorder.reset();
  recorder.add(one);
  assert.deepEqual(recorder.finish(), pack(one));
});

test('a record that cannot be packed is refused', () => {
  const one = { pipeline: 1, buffers: [1], groups: /** @type {[number, number, number]} */ ([1, 1, 1]), push: undefined, writeMask: 1 };
  assert.throws(() => pack({ ...one, groups: [1, 32768, 1] }), /32767 workgroups in y, got 32768/);
  assert.throws(() => pack({ ...one, buffers: Array(33).fill(1) }), /at most 32 buffers, got 33/);
});

test('pipelines are made once for each specialization', () => {
  const vk = fake();
  const context = new KernelContext(vk);
  const a = context.pipeline('one', { specialization: [64, 1] });
  assert.equal(context.pipeline('one', { specialization: [64, 1] }), a);
  assert.notEqual(context.pipeline('one', { specialization: [64, 2] }), a);
  assert.notEqual(context.pipeline('one'), a);
  assert.equal(vk.made.length, 3);
  assert.deepEqual(vk.made[0][3], { name: 'one', specialization: Uint32Array.of(64, 1) });
});

test('a workspace is shared by name, grows, and outlives its growth', () => {
  const vk = fake();
  const destroyed = /** @type {number[]} */ ([]);
  const context = new KernelContext({ ...vk, destroyBuffer: (/** @type {number} */ handle) => destroyed.push(handle) });
  const small = context.workspace('a', 100);
  assert.equal(context.workspace('a', 65536), small);
  assert.notEqual(context.workspace('b', 100), small);
  const large = context.workspace('a', 65537);
  assert.notEqual(large, small);
  assert.equal(context.workspace('a', 100), large);
  assert.deepEqual(destroyed, []);
  context.releaseWorkspaces();
  assert.equal(destroyed.length, 3);
  assert.notEqual(context.workspace('a', 100), large);
});

test('a dispatch is checked against its shader', () => {
  const context = new KernelContext(fake());
  const push = pushConstants([1, 2]);
  assert.throws(() => context.dispatch('none', { buffers: [], writes: 0, groups: 1 }), /no shader named "none"/);
  assert.throws(() => context.dispatch('one', { buffers: [1], writes: 0, groups: 1, push }), /takes 2 buffers, got 1/);
  assert.throws(() => context.dispatch('one', { buffers: [1, 2], writes: 0, groups: 1 }), /takes 8 bytes of push constants, got 0/);
});

test('arguments that are wrong are named', () => {
  const kernels = createKernels(fake());
  const norm = { x: 1, y: 2, weight: 3, stats: 4, rows: 2, columns: 8 };
  const bad = /** @type {any} */ ({ ...norm });
  const f64 = /** @type {any} */ ('f64');
  assert.throws(() => kernels.rmsNormForward({ ...norm, rows: 1.5 }), /rmsNormForward: rows must be an integer, got 1.5/);
  assert.throws(() => kernels.rmsNormForward({ ...norm, columns: 0 }), /columns must be in \[1, 4026531840\], got 0/);
  assert.throws(
    () => kernels.rmsNormForward({ ...norm, rows: 2 ** 20, columns: 2 ** 12 }),
    /rows \* columns must be in .*, got 4294967296/,
  );
  assert.throws(() => kernels.rmsNormForward({ ...bad, x: 'x' }), /x must be a buffer handle or \{ buffer, offset \}, got x/);
  assert.throws(() => kernels.rmsNormForward({ ...norm, y: { buffer: 1, offset: -4 } }), /y.offset must be in/);
  assert.throws(() => kernels.rmsNormForward({ ...bad, type: 'f64' }), /unknown element type f64/);
  assert.throws(() => kernels.rmsNormForward({ ...norm, type: 'f16', outType: 'bf16' }), /f16 and bf16 do not go together/);
  assert.throws(() => kernels.rmsNormForward({ ...norm, type: 'f16', columns: 7 }), /columns must be even for f16/);
  assert.throws(() => kernels.rmsNormForward({ ...norm, residual: 5 }), /sum must be a buffer handle/);
  assert.throws(() => kernels.gluForward({ gateUp: 1, gate: 2, y: 3, rows: 1, columns: 4 }), /either gateUp, or gate and up/);
  assert.throws(
    () => kernels.activationForward(/** @type {any} */ ({ x: 1, y: 2, count: 4, activation: 'swish' })),
    /activation must be one of identity/,
  );
  assert.throws(() => kernels.dropout({ x: 1, y: 2, random: 3, count: 4, p: 1 }), /p must be in \[0, 1\), got 1/);
  assert.throws(() => kernels.binary({ a: 1, b: 2, y: 3, count: 8, period: 3 }), /period must divide count/);
  assert.throws(() => kernels.binary({ a: 1, b: 2, y: 3, count: 8, period: 1, type: 'bf16' }), /period must be even for bf16, got 1/);
  assert.throws(() => kernels.binary({ a: 1, b: 2, y: 3, count: 8, type: f64 }), /unknown element type f64/);
  assert.throws(() => kernels.unary({ x: 1, y: 2, count: 8, type: f64 }), /unknown element type f64/);
  assert.throws(() => kernels.softmaxForward({ x: 1, y: 2, rows: 2, columns: 8, type: f64 }), /unknown element type f64/);
  for (const type of /** @type {const} */ ([undefined, 'bf16', 'u32'])) {
    assert.throws(() => kernels.fill(/** @type {any} */ ({ y: 1, count: 8, type })), /fill: value must be a number, got undefined/);
  }
  assert.throws(() => kernels.broadcast({ a: 1, b: 2, y: 3, shape: [1, 2, 3, 4, 5] }), /one to four sizes/);
  assert.throws(() => kernels.broadcast({ a: 1, b: 2, y: 3, shape: [4], yStrides: [0] }), /yStrides\[0\] is 0 over 4 elements/);
  assert.throws(
    () => kernels.crossEntropy({ logits: 1, targets: 2, loss: 3, rows: 1, columns: 8, rowStride: 4 }),
    /rowStride must be in \[8/,
  );
  assert.throws(() => optimizerState({ rate: 1, beta1: 1 }), /beta1 must be in \[0, 1\), got 1/);
  assert.throws(() => optimizerState({ rate: 1, warmup: 5, total: 5 }), /total must be 0 or more than warmup/);
  for (const seed of [1.5, NaN, /** @type {any} */ ('1')]) {
    assert.throws(() => optimizerState({ rate: 1, seed }), /optimizerState: seed must be an integer, got/);
  }
  const adam = { parameters: 1, first: 2, second: 3, gradient: 4, state: 5, count: 8, copy: 6 };
  assert.throws(() => kernels.adamw(adam), /adamw: copyType must be f16 or bf16, got undefined/);
  assert.throws(() => kernels.adamw(/** @type {any} */ ({ ...adam, copyType: 'f32' })), /copyType must be f16 or bf16, got f32/);
  const { copy: _, ...alone } = { ...adam, permuted: 7 };
  assert.throws(() => kernels.adamw(alone), /adamw: permuted needs copy, which is missing/);
  const both = /** @type {const} */ ({ ...adam, copyType: 'bf16', count: 64 });
  assert.throws(
    () => kernels.adamw({ ...both, count: 48, permuted: 7 }),
    /adamw: count must be a multiple of 32 with a permuted copy, got 48/,
  );
  assert.throws(
    () => kernels.adamw({ ...both, permuted: { buffer: 7, offset: 3 } }),
    /adamw: permuted.offset must be even for f32, bf16, got 3/,
  );
  assert.throws(() => ropeTable({ positions: 4, headSize: 3 }), /ropeTable: headSize must be even, got 3/);
  assert.throws(() => createKernels(/** @type {any} */ ({})), /expected the helios-vk native module/);
});

test('the widest access that sizes and types allow', () => {
  assert.equal(accessWidth('k', ['f32'], { a: 8, b: 4 }).width, 4);
  assert.equal(accessWidth('k', ['f32'], { a: 8, b: 6 }).width, 1);
  assert.equal(accessWidth('k', ['f32', 'f16'], { a: 8, b: 6 }).width, 2);
  assert.throws(() => accessWidth('k', [/** @type {any} */ ('f64')], { a: 8 }), /unknown element type f64/);
  assert.throws(() => accessWidth('k', ['bf16'], { a: 8, b: 5 }), /k: b must be even for bf16, got 5/);
});

test('16-bit patterns of numbers round to nearest even', () => {
  const values = [
    0,
    -0,
    1,
    -1.5,
    65504,
    65519.9,
    65520,
    1e9,
    2 ** -24,
    2 ** -25,
    3 * 2 ** -26,
    2 ** -14,
    1 + 2 ** -11,
    1 + 3 * 2 ** -11,
    0.1,
    -3.3,
    Infinity,
  ];
  for (const value of values) {
    assert.equal(f16Bits(value), toF16(value), `f16 ${value}`);
    assert.equal(bf16Bits(value), toBf16(value), `bf16 ${value}`);
  }
  assert.equal(bf16Bits(1 + 2 ** -8), 0x3f80);
  assert.equal(bf16Bits(1 + 3 * 2 ** -8), 0x3f82);
  // All patterns there are: their numbers, and back.
  for (let bits = 0; bits < 0x10000; bits++) {
    assert.ok(Object.is(f16Value(bits), fromF16(bits)), `f16 bits ${bits}`);
    assert.ok(Object.is(bf16Value(bits), fromBf16(bits)), `bf16 bits ${bits}`);
    if (!Number.isNaN(f16Value(bits))) assert.equal(f16Bits(f16Value(bits)), bits, `f16 bits ${bits}, and back`);
    if (!Number.isNaN(bf16Value(bits))) assert.equal(bf16Bits(bf16Value(bits)), bits, `bf16 bits ${bits}, and back`);
  }
});

test('an optimizer state carries what f32 would spoil', () => {
  const state = optimizerState({ rate: 3e-4, beta2: 0.999, seed: 0x1_0000_0002n, step: 7 });
  const floats = new Float32Array(state.buffer);
  assert.equal(floats[STATE.oneMinusBeta2], Math.fround(1 - 0.999));
  assert.equal(floats[STATE.logBeta2], Math.fround(Math.log(0.999)));
  assert.deepEqual([state[STATE.step], state[STATE.seedLow], state[STATE.seedHigh], state[STATE.offsetLow]], [7, 2, 1, 7]);
});

test('the table of rotary angles', () => {
  const table = ropeTable({ positions: 3, headSize: 4, base: 100 });
  assert.equal(table.length, 12);
  assert.deepEqual([...table.subarray(0, 4)], [1, 0, 1, 0]);
  assert.equal(table[2 * 4 + 2], Math.fround(Math.cos(2 * 100 ** -0.5)));
  assert.equal(table[2 * 4 + 3], Math.fround(Math.sin(2 * 100 ** -0.5)));
});
