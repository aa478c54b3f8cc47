/**
 * Runs kernels on poisoned, oversized buffers and checks what they must not touch. Every tensor is between two
 * guards of poison in its buffer. A run executes the dispatches twice from the same contents, and requires the same
 * bits, intact guards, and unchanged inputs.
 */
import assert from 'node:assert/strict';
import { pack } from '../../kernels/base.mjs';
import { vk as addon } from './addon.mjs';
import { fromBf16, fromF16, toBf16, toF16 } from './half.mjs';

/** @typedef {'f32' | 'f16' | 'bf16' | 'u32'} Type */

/** A NaN as f32, as a pair of f16 and as a pair of bf16: it shows in the result of any arithmetic that reads it. */
const POISON = 0x7fc17fc1;

/** Bits of a value in a type. @type {Record<Type, (value: number) => number>} */
const ENCODE = { f32: () => 0, u32: (v) => v, f16: toF16, bf16: toBf16 };

/**
 * The error that storage and arithmetic justify, as ‖out - ref‖ / ‖ref‖. f32: a few roundings of 2^-24 and the device's
 * exp and division, which Vulkan allows to be off by some units in the last place. 16-bit: one rounding of the result, which
 * is at most 2^-11 in f16 (2^-10 where the device truncates) and 2^-8 in bf16.
 * @type {Record<string, number>}
 */
export const TOLERANCE = { f32: 2e-6, f16: 2 ** -10, bf16: 2 ** -8 };

/** Whether two views hold the same bytes. @param {Uint8Array | Uint32Array} a @param {Uint8Array | Uint32Array} b */
const same = (a, b) =>
  Buffer.compare(Buffer.from(a.buffer, a.byteOffset, a.byteLength), Buffer.from(b.buffer, b.byteOffset, b.byteLength)) === 0;

export class Tensor {
  /**
   * @param {Type} type @param {number} count @param {ArrayLike<number> | undefined} values
   * @param {boolean} written @param {number} guard elements before the tensor
   * @param {any} vk the native module
   */
  constructor(type, count, values, written, guard, vk) {
    this.vk = vk;
    this.type = type;
    this.count = count;
    this.written = written;
    const size = type === 'f32' || type === 'u32' ? 4 : 2;
    const bytes = Math.ceil(((guard + count) * size) / 4) * 4 + 64;
    this.initial = new Uint32Array(bytes / 4).fill(POISON);
    this.first = guard;
    this.lanes = this.view(this.initial.buffer);
    if (values) {
      const encode = ENCODE[type];
      for (let i = 0; i < count; i++) this.lanes[guard + i] = type === 'f32' ? values[i] : encode(values[i]);
    }
    this.buffer = vk.createBuffer(bytes, 0);
    /** What a kernel takes. */
    this.tensor = guard ? { buffer: this.buffer, offset: guard } : this.buffer;
    /** The values as stored, in float64. */
    this.values = this.decode(this.initial);
  }

  /** @param {ArrayBufferLike} buffer */
  view(buffer) {
    if (this.type === 'f32') return new Float32Array(buffer);
    return this.type === 'u32' ? new Uint32Array(buffer) : new Uint16Array(buffer);
  }

  /** @param {Uint32Array} words */
  decode(words) {
    const lanes = this.view(words.buffer);
    const convert = this.type === 'f16' ? fromF16 : this.type === 'bf16' ? fromBf16 : (/** @type {number} */ v) => v;
    return Float64Array.from({ length: this.count }, (_, i) => convert(lanes[this.first + i]));
  }

  /** The tensor's present contents on the device. */
  read() {
    return this.decode(this.words());
  }

  words() {
    const floats = this.vk.readBuffer(this.buffer);
    return new Uint32Array(floats.buffer, floats.byteOffset, floats.length).slice();
  }

  upload() {
    this.vk.uploadBuffer(this.buffer, this.initial);
  }

  /** Checks that nothing outside the tensor has changed, and nothing at all in an input. @param {Uint32Array} words */
  check(words) {
    const size = this.type === 'f32' || this.type === 'u32' ? 4 : 2;
    const before = new Uint8Array(this.initial.buffer);
    const after = new Uint8Array(words.buffer);
    const from = this.written ? this.first * size : 0;
    const to = this.written ? (this.first + this.count) * size : 0;
    assert.ok(same(after.subarray(0, from), before.subarray(0, from)), 'the guard before the tensor was written');
    const what = this.written ? 'the guard after the tensor' : 'an input';
    assert.ok(same(after.subarray(to), before.subarray(to)), `${what} was written`);
  }
}

export class Case {
  /** @param {{ guard?: number, vk?: any }} [options] elements of poison before each tensor; the native module */
  constructor({ guard = 8, vk = addon } = {}) {
    this.guard = guard;
    this.vk = vk;
    /** @type {Tensor[]} */
    this.tensors = [];
  }

  /** @param {Type} type @param {number} count @param {ArrayLike<number> | undefined} values @param {boolean} written */
  #add(type, count, values, written) {
    const tensor = new Tensor(type, count, values, written, this.guard, this.vk);
    this.tensors.push(tensor);
    return tensor;
  }

  /** @param {ArrayLike<number>} values @param {Type} [type] */
  input(values, type = 'f32') {
    return this.#add(type, values.length, values, false);
  }

  /** A poisoned output. @param {number} count @param {Type} [type] */
  output(count, type = 'f32') {
    return this.#add(type, count, undefined, true);
  }

  /** What a kernel reads and writes. @param {ArrayLike<number>} values @param {Type} [type] */
  inout(values, type = 'f32') {
    return this.#add(type, values.length, values, true);
  }

  /**
   * Runs the dispatches twice; see above.
   * @param {...(import('../../kernels/base.mjs').Dispatches | import('../../kernels/base.mjs').Dispatches[])} dispatches
   */
  run(...dispatches) {
    const { packed, count } = pack(...dispatches);
    /** @type {Uint32Array[]} */
    let first = [];
    for (let time = 0; time < 2; time++) {
      for (const tensor of this.tensors) tensor.upload();
      this.vk.batchExecuteAll(packed, count);
      const words = this.tensors.map((tensor) => tensor.words());
      this.tensors.forEach((tensor, i) => tensor.check(words[i]));
      if (time === 0) first = words;
      else words.forEach((w, i) => assert.ok(same(w, first[i]), 'a second run gave other bits'));
    }
  }

  /** Runs dispatches, then launches them as a recorded graph, which must give the same bits. @param {import('../../kernels/base.mjs').Dispatch[]} dispatches */
  runInGraph(dispatches) {
    this.run(dispatches);
    const before = this.tensors.map((tensor) => tensor.words());
    const { packed, count } = pack(dispatches);
    this.vk.graphBegin();
    this.vk.batchExecuteAll(packed, count);
    const graph = this.vk.graphEnd();
    for (const tensor of this.tensors) tensor.upload();
    this.vk.waitTimeline(this.vk.graphLaunch(graph));
    this.tensors.forEach((tensor, i) => assert.deepEqual(tensor.words(), before[i]));
    this.vk.graphDestroy(graph);
  }

  destroy() {
    for (const tensor of this.tensors) this.vk.destroyBuffer(tensor.buffer);
  }
}
