// A stand-in for the native module on an H200 that takes PTX: kernels in PTX run on the machine of machine.mjs, and the
// second pass of split products, a shader, is written out here. What a dispatch binds is held against what its pipeline
// declares: a kernel may load only what it declares to read.

import assert from 'node:assert/strict';
import native from '../../index.js';
import { stubDevice } from '../lib/stub.mjs';
import { fromBf16, fromF16, toBf16, toF16 } from '../lib/half.mjs';
import { BASE, runPtx } from './machine.mjs';

/** Bit of a record's number of bindings that says that ranges follow. */
const RANGED = 0x8000;

/** Bits of a shader's `EPI`. */
const [BETA, BIAS, RESIDUAL, GELU, SILU] = [1, 2, 4, 32, 64];

/**
 * @param {{ bytes?: number, info?: object, edit?: (text: string) => string, late?: boolean }} [options] bytes of its memory; more that
 *   `initDevice` says; what is done to the text of kernels before they run
 */
export function ptxDevice({ bytes = 4 << 20, info = {}, edit = (text) => text, late = true } = {}) {
  const memory = new Uint8Array(bytes).fill(0xff);
  let top = 256;
  let handle = 0;
  /** @type {Map<number, { at: number, size: number }>} */
  const buffers = new Map();
  /** @type {Map<number, any>} */
  const pipelines = new Map();
  /** Dispatches that ran: the pipeline's description, bindings, groups, write mask and push constants. @type {any[]} */
  const ran = [];
  let recording = false;

  /** @param {any} kernel what `createPipeline` got @param {any} record */
  function runKernel(kernel, { bindings, groups, push, mask }) {
    const readable = new Uint8Array(memory.length);
    const writable = new Uint8Array(memory.length);
    bindings.forEach((/** @type {any} */ { at, size }, /** @type {number} */ i) => {
      const access = kernel.access[i];
      if (access.startsWith('read')) readable.fill(1, at, at + size);
      if (access.endsWith('write')) writable.fill(1, at, at + size);
      assert.equal(Boolean((mask >>> i) & 1), access.endsWith('write'), `binding ${i} is declared ${access}`);
    });
    // Addresses come first in the block, then the push constants as they are.
    const parameters = new Uint8Array(8 * Math.ceil((8 * bindings.length + push.byteLength) / 8));
    bindings.forEach((/** @type {any} */ { at }, /** @type {number} */ i) =>
      new DataView(parameters.buffer).setBigUint64(8 * i, BigInt(BASE + at), true),
    );
    parameters.set(push, 8 * bindings.length);
    const before = memory.slice();
    runPtx(edit(kernel.ptx), { blocks: groups, parameters, memory, readable, late });
    for (let i = 0; i < memory.length; i++)
      if (memory[i] !== before[i] && !writable[i]) assert.fail(`byte ${i} has changed, which no binding declares to write`);
  }

  /** `matmul_reduce_tail`: see shaders/matmul/matmul_reduce.comp. @param {any} shader @param {any} record */
  function runReduce({ name, specialization: [, epi, halfC, bm, bn] }, { bindings, push }) {
    const words = new DataView(push.buffer, push.byteOffset, push.byteLength);
    const word = (/** @type {number} */ i) => words.getUint32(4 * i, true);
    const [m, n, ldc, ldr, ldh] = [0, 1, 5, 6, 7].map(word);
    const [offA, offBias, offR, offC, offH, stride] = [8, 10, 11, 12, 13, 14].map(word);
    const [parts, whole, rest] = [21, 22, 23].map(word);
    const [alpha, beta] = [25, 26].map((i) => words.getFloat32(4 * i, true));
    const bf16 = name.includes('bf16');
    const view = new DataView(memory.buffer);
    const f32 = (/** @type {number} */ b, /** @type {number} */ i) => view.getFloat32(inside(bindings[b], 4 * i, 4), true);
    const inside = (/** @type {any} */ { at, size }, /** @type {number} */ offset, /** @type {number} */ count) => {
      assert.ok(offset + count <= size, `byte ${offset} of a binding of ${size} bytes`);
      return at + offset;
    };
    const [tilesM, tilesN] = [Math.ceil(m / bm), Math.ceil(n / bn)];
    for (let tile = 0; tile < rest; tile++) {
      const number = whole + tile;
      const first = Math.floor(number / (8 * tilesN)) * 8;
      const rows = Math.min(8, tilesM - first);
      const within = number % (8 * tilesN);
      for (let y = 0; y < bm; y++) {
        for (let x = 0; x < bn; x++) {
          const [i, j] = [(first + (within % rows)) * bm + y, Math.floor(within / rows) * bn + x];
          if (i >= m || j >= n) continue;
          let sum = 0;
          for (let part = 0; part < parts; part++) sum += f32(0, offA + part * stride + (tile * bm + y) * bn + x);
          const c = offC + i * ldc + j;
          let v = alpha * sum;
          const old = () => (halfC ? (bf16 ? fromBf16 : fromF16)(view.getUint16(inside(bindings[3], 2 * c, 2), true)) : f32(3, c));
          if (epi & BETA) v += beta * old();
          if (epi & BIAS) v += f32(1, offBias + j);
          if (epi & GELU) v = 0.5 * v * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (v + 0.044715 * v ** 3)));
          if (epi & SILU) v = v / (1 + Math.exp(-v));
          if (epi & RESIDUAL) v += f32(2, offR + i * ldr + j);
          const bits = (bf16 ? toBf16 : toF16)(v);
          if (halfC) view.setUint16(inside(bindings[3], 2 * c, 2), bits, true);
          else view.setFloat32(inside(bindings[3], 4 * c, 4), v, true);
          if (name.endsWith('_dual')) view.setUint16(inside(bindings[4], 2 * (offH + i * ldh + j), 2), bits, true);
        }
      }
    }
  }

  /** `matmul_pad` and `matmul_unpad`: see shaders/matmul/matmul_pad.comp. @param {any} shader @param {any} record */
  function runPad({ name }, { bindings: [x, y], push }) {
    const [rows, columns, ld, from, padded] = new Uint32Array(push.slice().buffer);
    const view = new DataView(memory.buffer);
    const half = (/** @type {any} */ { at, size }, /** @type {number} */ i) => {
      assert.ok(2 * i + 2 <= size, `half ${i} of a binding of ${size} bytes`);
      return at + 2 * i;
    };
    const back = name === 'matmul_unpad';
    for (let row = 0; row < rows; row++)
      for (let column = 0; column < (back ? columns : padded); column++) {
        const [to, place] = back ? [from + row * columns, row * padded] : [row * padded, from + row * ld];
        const value = column < columns ? view.getUint16(half(x, place + column), true) : 0;
        view.setUint16(half(y, to + column), value, true);
      }
  }

  /** `attention_delta` of halves: see shaders/attention/attention_delta.comp. @param {any} shader @param {any} record */
  function runDelta({ name, specialization: [, , , d] }, { bindings, groups, push }) {
    const words = new DataView(push.buffer, push.byteOffset, push.byteLength);
    const [tokens, heads] = [0, 1].map((i) => words.getUint32(4 * i, true));
    const [offOut, offDo, rowO, batchO, , offDelta] = [7, 8, 9, 10, 11, 12].map((i) => words.getUint32(4 * i, true));
    const view = new DataView(memory.buffer);
    const half = (/** @type {number} */ b, /** @type {number} */ i) => {
      const { at, size } = bindings[b];
      assert.ok(2 * i + 2 <= size);
      return (name.endsWith('bf16') ? fromBf16 : fromF16)(view.getUint16(at + 2 * i, true));
    };
    for (let batch = 0; batch < groups[2]; batch++)
      for (let head = 0; head < heads; head++)
        for (let t = 0; t < tokens; t++) {
          let sum = 0;
          for (let e = 0; e < d; e++) {
            const at = batch * batchO + t * rowO + head * d + e;
            sum += half(0, offOut + at) * half(1, offDo + at);
          }
          const to = 4 * (offDelta + (batch * heads + head) * tokens + t);
          assert.ok(to + 4 <= bindings[2].size);
          view.setFloat32(bindings[2].at + to, sum, true);
        }
  }

  /** @param {ArrayBuffer | Uint8Array} packed @param {number} count */
  function batchExecuteAll(packed, count) {
    const data = packed instanceof ArrayBuffer ? new Uint8Array(packed) : packed;
    const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
    let at = 0;
    for (let i = 0; i < count; i++) {
      const kernel = pipelines.get(view.getInt32(at, true));
      const [number, flags] = [view.getUint16(at + 4, true), view.getUint16(at + 6, true)];
      const groups = [view.getUint32(at + 8, true), flags >> 1, flags & 1 ? view.getUint32(at + 12, true) : 1];
      at += flags & 1 ? 16 : 12;
      const mask = view.getUint32(at, true);
      const bound = number & ~RANGED;
      const handles = at + 4;
      const ranges = handles + 4 * bound;
      const bindings = Array.from({ length: bound }, (_, b) => {
        const buffer = buffers.get(view.getInt32(handles + 4 * b, true));
        if (!buffer) throw new RangeError(`dispatch ${i}: no buffer at binding ${b}`);
        if (!(number & RANGED)) return buffer;
        const [offset, size] = [0, 8].map((o) => Number(view.getBigUint64(ranges + 16 * b + o, true)));
        assert.equal(offset % 16, 0, 'minStorageBufferOffsetAlignment');
        assert.ok(offset + size <= buffer.size, `binding ${b} is ${size} bytes from ${offset} of ${buffer.size}`);
        return { at: buffer.at + offset, size: size || buffer.size - offset };
      });
      at = ranges + (number & RANGED ? 16 : 0) * bound;
      const push = data.slice(at, at + kernel.pushBytes);
      at += kernel.pushBytes;
      const record = { kernel, bindings, groups, mask, push };
      ran.push(record);
      if (kernel.ptx) runKernel(kernel, record);
      else if (/^matmul_reduce_tail/.test(kernel.name)) runReduce(kernel, record);
      else if (/^matmul_(un)?pad$/.test(kernel.name)) runPad(kernel, record);
      else if (/^attention_delta_/.test(kernel.name)) runDelta(kernel, record);
      else throw new RangeError(`the stand-in does not run ${kernel.name}`);
    }
    assert.equal(at, data.length, 'the records end where the packed bytes do');
    return 0;
  }

  const stub = stubDevice();
  const vk = {
    shaders: native.shaders,
    initDevice: () => ({ ...stub.initDevice(), hasPtx: true, ptxExtension: 'VK_NVX_binary_import', multiprocessors: 0, ...info }),
    createBuffer: (/** @type {number} */ size) => {
      buffers.set(++handle, { at: top, size });
      top = Math.ceil((top + size + 64) / 256) * 256;
      assert.ok(top <= memory.length, 'the stand-in has no memory left');
      return handle;
    },
    destroyBuffer: (/** @type {number} */ buffer) => {
      const { at } = /** @type {{ at: number }} */ (buffers.get(buffer));
      buffers.delete(buffer);
      if ([...buffers.values()].every((other) => other.at < at)) top = at;
    },
    bufferBytes: (/** @type {number} */ buffer) => /** @type {{ size: number }} */ (buffers.get(buffer)).size,
    uploadBuffer: (/** @type {number} */ buffer, /** @type {ArrayBufferView} */ data) => {
      const { at, size } = /** @type {{ at: number, size: number }} */ (buffers.get(buffer));
      assert.ok(data.byteLength <= size);
      memory.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), at);
    },
    readBuffer: (/** @type {number} */ buffer) => {
      if (recording) throw Object.assign(new Error('a graph is being recorded'), { code: 'ERR_HELIOS_INVALID_BATCH' });
      const { at, size } = /** @type {{ at: number, size: number }} */ (buffers.get(buffer));
      return new Float32Array(memory.slice(at, at + size).buffer);
    },
    buildKernel: native.buildKernel,
    createPipeline: (
      /** @type {any} */ first,
      /** @type {number} */ _bindings,
      /** @type {number} */ pushBytes,
      /** @type {any} */ options,
    ) => {
      const kernel = first instanceof Uint32Array ? { pushBytes, ...options } : first;
      if (kernel.ptx !== undefined) {
        assert.ok(kernel.ptx.includes(`.entry ${kernel.entry}(`));
        assert.equal(kernel.access.length, kernel.bindings);
        assert.match(kernel.ptx, new RegExp(`\\.reqntid ${kernel.workgroupSize[0]}, 1, 1`));
        assert.match(kernel.ptx, new RegExp(`block\\[${8 * kernel.bindings + kernel.pushBytes}\\]`));
      }
      pipelines.set(++handle, kernel);
      return handle;
    },
    batchExecuteAll,
    // What asks how matrices are laid out finds poison, and so takes the kernels that need not know.
    fillBuffer: () => 0,
    dispatch: () => 0,
  };
  return {
    vk: /** @type {any} */ (vk),
    ran,
    pipelines,
    /** @param {boolean} now */
    record: (now) => {
      recording = now;
    },
  };
}
