// What kernels check of what they are given: every tensor must lie within its buffer, and no result over what is read.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import {
  createKernels,
  pack,
  SAMPLING_HISTORY_WORDS,
  SAMPLING_SETTINGS_WORDS,
  SAMPLING_STATE_WORDS,
  STATE_WORDS,
} from '../../kernels/index.mjs';
import { vk } from '../lib/addon.mjs';

/** @typedef {import('../../kernels/bounds.mjs').Extent} Extent */

vk.initDevice();
const kernels = createKernels(vk);

/** Elements and type of every tensor that a call takes. @typedef {Record<string, [count: number, type?: 'f32' | 'f16' | 'bf16' | 'u32' | 'i8']>} Tensors */
/** @typedef {{ kernel: string, tensors: Tensors, sizes: Record<string, unknown> }} Call */

/** Calls of every kernel, with each tensor as large as it must be. @type {Call[]} */
const CALLS = [
  { kernel: 'fill', tensors: { y: [12, 'bf16'] }, sizes: { count: 12, value: 1, type: 'bf16' } },
  { kernel: 'cast', tensors: { x: [12], y: [12, 'f16'] }, sizes: { count: 12, from: 'f32', to: 'f16' } },
  { kernel: 'copy', tensors: { x: [12, 'f16'], y: [12, 'f16'] }, sizes: { count: 12, type: 'f16' } },
  { kernel: 'unary', tensors: { x: [7], y: [7] }, sizes: { count: 7, op: 'exp' } },
  { kernel: 'binary', tensors: { a: [12], b: [4], y: [12] }, sizes: { count: 12, period: 4 } },
  { kernel: 'broadcast', tensors: { a: [12], b: [4], y: [12] }, sizes: { shape: [3, 4], bStrides: [0, 1] } },
  { kernel: 'broadcast', tensors: { a: [28], b: [12], y: [24] }, sizes: { shape: [3, 4], aStrides: [12, 1], yStrides: [1, 7] } },
  { kernel: 'transpose', tensors: { x: [2 * 4 * 8], y: [2 * 4 * 8] }, sizes: { batch: 2, rows: 4, columns: 8 } },
  { kernel: 'dropout', tensors: { x: [16], y: [16], random: [4, 'u32'] }, sizes: { count: 16, p: 0.5 } },
  { kernel: 'random', tensors: { y: [17], random: [4, 'u32'] }, sizes: { count: 17, distribution: 'normal' } },
  { kernel: 'random', tensors: { y: [17, 'u32'], random: [4, 'u32'] }, sizes: { count: 17, distribution: 'bits' } },
  { kernel: 'initial', tensors: { y: [17] }, sizes: { count: 17, distribution: 'normal', seed: 1, first: 0 } },
  {
    kernel: 'gather',
    tensors: { x: [24], index: [40, 'u32'], y: [40], last: [24, 'u32'] },
    sizes: { outer: 2, size: 3, length: 5, inner: 4 },
  },
  {
    kernel: 'scatter',
    tensors: { x: [24], index: [40, 'u32'], source: [40], y: [24], last: [24, 'u32'] },
    sizes: { outer: 2, size: 3, length: 5, inner: 4 },
  },
  {
    kernel: 'scatterAdd',
    tensors: { x: [24], index: [40, 'u32'], source: [40], y: [24] },
    sizes: { outer: 2, size: 3, length: 5, inner: 4 },
  },
  {
    kernel: 'convolution',
    tensors: { x: [2 * 4 * 5 * 6], weight: [6 * 2 * 3 * 2], y: [2 * 6 * 3 * 5], bias: [6] },
    sizes: { batch: 2, channels: 4, outputs: 6, groups: 2, size: [5, 6], window: [3, 2], result: [3, 5] },
  },
  {
    kernel: 'convolution',
    tensors: { x: [60 + 19 * 3 + 1], weight: [6], y: [1 + 2 * 2 + 1] },
    sizes: {
      batch: 2,
      channels: 1,
      outputs: 1,
      size: [20],
      window: [6],
      result: [3],
      stride: [9],
      xStrides: [60, 40, 3],
      yStrides: [1, 7, 2],
    },
  },
  {
    kernel: 'convolutionInput',
    tensors: { dy: [2 * 6 * 3 * 5], weight: [6 * 2 * 3 * 2], dx: [2 * 4 * 7 * 6], bias: [4] },
    sizes: { batch: 2, channels: 4, outputs: 6, groups: 2, size: [7, 6], window: [3, 2], result: [3, 5], stride: [2, 1] },
  },
  {
    kernel: 'convolutionWeight',
    tensors: { x: [2 * 4 * 5 * 6], dy: [2 * 6 * 3 * 5], dWeight: [6 * 2 * 3 * 2] },
    sizes: { batch: 2, channels: 4, outputs: 6, groups: 2, size: [5, 6], window: [3, 2], result: [3, 5] },
  },
  {
    kernel: 'maxPool',
    tensors: { x: [3 * 30], y: [3 * 6], indices: [3 * 6, 'u32'] },
    sizes: { planes: 3, size: [5, 6], result: [2, 3], window: [3, 2], stride: [2, 2] },
  },
  {
    kernel: 'maxPoolBackward',
    tensors: { dy: [3 * 6], indices: [3 * 6, 'u32'], dx: [3 * 30] },
    sizes: { planes: 3, size: [5, 6], result: [2, 3], window: [3, 2], stride: [2, 2] },
  },
  { kernel: 'avgPool', tensors: { x: [3 * 30], y: [3 * 6] }, sizes: { planes: 3, size: [5, 6], result: [2, 3] } },
  { kernel: 'avgPoolBackward', tensors: { dy: [3 * 6], dx: [3 * 30] }, sizes: { planes: 3, size: [5, 6], result: [2, 3] } },
  { kernel: 'argExtreme', tensors: { x: [24], y: [3, 'u32'] }, sizes: { rows: 3, columns: 8 } },
  { kernel: 'scanRows', tensors: { x: [24], y: [24] }, sizes: { rows: 3, columns: 8, op: 'sum' } },
  { kernel: 'totalRows', tensors: { x: [24, 'u32'], y: [3, 'u32'] }, sizes: { rows: 3, columns: 8, op: 'firstMax', type: 'u32' } },
  { kernel: 'argSort', tensors: { x: [24], y: [24, 'u32'] }, sizes: { rows: 3, columns: 8 } },
  {
    kernel: 'searchSorted',
    tensors: { x: [24], values: [15], y: [15, 'u32'] },
    sizes: { rows: 3, columns: 8, picks: 5, shared: false, right: true, type: 'f32' },
  },
  { kernel: 'putRows', tensors: { index: [15, 'u32'], source: [15], y: [24] }, sizes: { rows: 3, picks: 5, size: 8 } },
  {
    kernel: 'reduceRuns',
    tensors: { x: [24], index: [15, 'u32'], order: [15, 'u32'], source: [15], y: [24], counts: [24, 'u32'] },
    sizes: { rows: 3, picks: 5, size: 8, op: 'sum', apart: false },
  },
  { kernel: 'activationForward', tensors: { x: [16], y: [16] }, sizes: { count: 16, activation: 'relu' } },
  { kernel: 'activationBackward', tensors: { x: [16], dy: [16], dx: [16] }, sizes: { count: 16, activation: 'relu' } },
  { kernel: 'gluForward', tensors: { gateUp: [3 * 16], y: [3 * 8] }, sizes: { rows: 3, columns: 8 } },
  { kernel: 'gluForward', tensors: { gate: [3 * 8], up: [3 * 8], y: [3 * 8] }, sizes: { rows: 3, columns: 8 } },
  {
    kernel: 'gluBackward',
    tensors: { gateUp: [48, 'bf16'], dy: [24, 'bf16'], dGateUp: [48, 'bf16'] },
    sizes: { rows: 3, columns: 8, type: 'bf16' },
  },
  { kernel: 'gluBackward', tensors: { gate: [24], up: [24], dy: [24], dGate: [24], dUp: [24] }, sizes: { rows: 3, columns: 8 } },
  { kernel: 'softmaxForward', tensors: { x: [24], y: [24] }, sizes: { rows: 3, columns: 8 } },
  { kernel: 'softmaxBackward', tensors: { y: [24], dy: [24], dx: [24] }, sizes: { rows: 3, columns: 8 } },
  { kernel: 'crossEntropy', tensors: { logits: [36], targets: [3, 'u32'], loss: [3] }, sizes: { rows: 3, columns: 10, rowStride: 12 } },
  {
    kernel: 'crossEntropy',
    tensors: { logits: [24], targets: [3, 'u32'], loss: [3], gradient: [24, 'bf16'] },
    sizes: { rows: 3, columns: 8, gradientType: 'bf16' },
  },
  { kernel: 'crossEntropyForward', tensors: { logits: [24], targets: [3, 'u32'], loss: [3] }, sizes: { rows: 3, columns: 8 } },
  {
    kernel: 'embeddingForward',
    tensors: { ids: [6, 'u32'], table: [40], y: [24], position: [5 * 4] },
    sizes: { tokens: 6, columns: 4, vocabulary: 10, positions: 3, firstPosition: 2 },
  },
  {
    kernel: 'embeddingBackward',
    tensors: { ids: [6, 'u32'], dy: [24], dTable: [40], workspace: [12, 'u32'] },
    sizes: { tokens: 6, columns: 4, vocabulary: 10 },
  },
  { kernel: 'positionBackward', tensors: { dy: [2 * 3 * 4], dPosition: [12] }, sizes: { batch: 2, positions: 3, columns: 4 } },
  {
    kernel: 'ropeForward',
    tensors: { x: [5 * 24 + 16], table: [(1 + 3) * 8] },
    sizes: { rows: 6, heads: 2, headSize: 8, rowStride: 24, positions: 3, firstPosition: 1 },
  },
  { kernel: 'ropeBackward', tensors: { x: [6 * 16], table: [24] }, sizes: { rows: 6, heads: 2, headSize: 8, rowStride: 16, positions: 3 } },
  { kernel: 'rmsNormForward', tensors: { x: [24], y: [24], weight: [8], stats: [3] }, sizes: { rows: 3, columns: 8 } },
  {
    kernel: 'layerNormForward',
    tensors: { x: [24], y: [24], weight: [8], bias: [8], stats: [6], residual: [24], sum: [24] },
    sizes: { rows: 3, columns: 8 },
  },
  {
    kernel: 'rmsNormBackward',
    tensors: { dy: [24, 'bf16'], x: [24], weight: [8], stats: [3], dx: [24], dWeight: [8], residual: [24], copy: [24, 'bf16'] },
    sizes: { rows: 3, columns: 8, outType: 'bf16' },
  },
  {
    kernel: 'layerNormBackward',
    tensors: { dy: [24], x: [24], weight: [8], stats: [6], dx: [24], dWeight: [8], dBias: [8], workspace: [16] },
    sizes: { rows: 3, columns: 8 },
  },
  {
    kernel: 'rmsNormBackward',
    tensors: { dy: [64], x: [64], weight: [8], stats: [8], dx: [64], blockSums: [12 + 8] },
    sizes: { rows: 8, columns: 8, blockStride: 12 },
  },
  { kernel: 'reduceRows', tensors: { x: [24], y: [3] }, sizes: { rows: 3, columns: 8 } },
  { kernel: 'reduceAll', tensors: { x: [24], y: [1] }, sizes: { count: 24 } },
  { kernel: 'columnSum', tensors: { x: [24], y: [8] }, sizes: { rows: 3, columns: 8 } },
  { kernel: 'reduceToSlot', tensors: { x: [24], y: [3] }, sizes: { count: 24, slot: 2 } },
  { kernel: 'reduceToSlot', tensors: { x: [24], y: [5], counter: [1, 'u32'] }, sizes: { count: 24, slots: 5 } },
  {
    kernel: 'sampleTokens',
    tensors: {
      ...{ logits: [12 + 9], settings: [2 * SAMPLING_SETTINGS_WORDS, 'u32'], history: [2 * SAMPLING_HISTORY_WORDS, 'u32'] },
      ...{ state: [2 * SAMPLING_STATE_WORDS, 'u32'], ids: [2, 'u32'], places: [2, 'u32'], ring: [2 * 3 * 2, 'u32'], active: [2, 'u32'] },
    },
    sizes: { rows: 2, vocabulary: 9, stride: 12, ringLength: 3 },
  },
  {
    kernel: 'topLogprobs',
    tensors: { logits: [12 + 9], ids: [2 * 5, 'u32'], logprobs: [2 * 5] },
    sizes: { rows: 2, vocabulary: 9, stride: 12, count: 5 },
  },
  { kernel: 'optimizerAdvance', tensors: { state: [STATE_WORDS, 'u32'] }, sizes: {} },
  { kernel: 'gradientClip', tensors: { gradient: [24], state: [STATE_WORDS, 'u32'] }, sizes: { count: 24 } },
  {
    kernel: 'adamw',
    tensors: { parameters: [24], first: [24], second: [24], gradient: [24], state: [STATE_WORDS, 'u32'], copy: [24, 'bf16'] },
    sizes: { count: 24, copyType: 'bf16' },
  },
  {
    kernel: 'adamw',
    tensors: {
      ...{ parameters: [32], first: [32], second: [32], gradient: [32], state: [STATE_WORDS, 'u32'] },
      ...{ copy: [32, 'f16'], permuted: [32, 'f16'] },
    },
    sizes: { count: 32, copyType: 'f16' },
  },
  { kernel: 'matmul', tensors: { a: [3 * 5], b: [5 * 7], c: [3 * 7] }, sizes: { m: 3, n: 7, k: 5 } },
  {
    kernel: 'matmul',
    tensors: { a: [4 * 6 + 3], b: [6 * 9 + 5], c: [2 * 10 + 7], bias: [7], residual: [2 * 8 + 7] },
    sizes: { m: 3, n: 7, k: 5, transA: true, transB: true, lda: 6, ldb: 9, ldc: 10, ldr: 8 },
  },
  {
    kernel: 'matmul',
    tensors: { a: [15], b: [100 + 35], c: [2 * 21] },
    sizes: { m: 3, n: 7, k: 5, batch: 2, strideA: 0, strideB: 100 },
  },
  { kernel: 'matmulGlu', tensors: { a: [15], b: [14 * 5], gateUp: [3 * 14], y: [21] }, sizes: { m: 3, columns: 7, k: 5 } },
  {
    kernel: 'matmulGluBackward',
    tensors: { a: [15], b: [5 * 7], gateUp: [3 * 14], dGateUp: [3 * 14], dy: [21] },
    sizes: { m: 3, columns: 7, k: 5 },
  },
  { kernel: 'attentionLastQuery', tensors: { firstKey: [6, 'u32'], lastQuery: [10, 'u32'] }, sizes: { batch: 2, tokens: 3, keys: 5 } },
  {
    kernel: 'ropeForward',
    tensors: { x: [6 * 16], table: [24], places: [6, 'u32'] },
    sizes: { rows: 6, heads: 2, headSize: 8, rowStride: 16, positions: 3 },
  },
  {
    kernel: 'attentionForward',
    tensors: { q: [64 * 3], k: [2 * 40 + 32], v: [2 * 40 + 32], out: [64 * 3], logSumExp: [6], firstKey: [3, 'u32'] },
    sizes: { tokens: 3, heads: 2, kvHeads: 1, headSize: 32, rowKv: 40 },
  },
  {
    kernel: 'matmulActivation',
    tensors: { a: [15], b: [7 * 5], bias: [7], x: [21], y: [21] },
    sizes: { m: 3, n: 7, k: 5, activation: 'gelu' },
  },
  {
    kernel: 'matmulActivationBackward',
    tensors: { a: [15], b: [5 * 7], x: [21], dx: [21], dy: [21] },
    sizes: { m: 3, n: 7, k: 5, activation: 'silu' },
  },
  {
    kernel: 'attentionForward',
    tensors: { qkv: [6 * 3 * 64], out: [6 * 64], logSumExp: [12] },
    sizes: { batch: 2, tokens: 3, heads: 2, headSize: 32 },
  },
  {
    kernel: 'attentionBackward',
    tensors: {
      q: [2 * 40 + 32],
      k: [2 * 40 + 32],
      v: [2 * 40 + 32],
      out: [2 * 36 + 32],
      dOut: [2 * 36 + 32],
      logSumExp: [3],
      delta: [3],
      dQ: [96],
      dK: [96],
      dV: [96],
    },
    sizes: { tokens: 3, heads: 1, headSize: 32, rowQkv: 40, rowOut: 36 },
  },
  {
    kernel: 'matvec',
    tensors: { x: [64], weight: [64 * 6, 'i8'], scales: [2 * 6, 'f16'], out: [6], bias: [6], residual: [6] },
    sizes: { rows: 1, inputs: 64, outputs: 6, type: 'q8_0' },
  },
  {
    kernel: 'matvec',
    tensors: { x: [2 * 8], weight: [8 * 6, 'bf16'], out: [2 * 3], bias: [6] },
    sizes: { rows: 2, inputs: 8, outputs: 3, type: 'bf16', activation: 'swiglu' },
  },
  {
    kernel: 'embedRows',
    tensors: { ids: [3, 'u32'], table: [5 * 32, 'i8'], scales: [5, 'f16'], out: [96], positionTable: [7 * 32, 'f16'], places: [3, 'u32'] },
    sizes: { rows: 3, columns: 32, vocabulary: 5, type: 'q8_0', positionType: 'f16', positions: 7 },
  },
  {
    kernel: 'ropeCache',
    tensors: {
      ...{ qkv: [3 * 32], q: [3 * 16], keys: [2 * 5 * 8, 'f16'], values: [2 * 5 * 8, 'f16'], table: [5 * 8], qNorm: [16], kNorm: [8] },
      ...{ slots: [3, 'u32'], places: [3, 'u32'] },
    },
    sizes: { rows: 3, heads: 2, kvHeads: 1, headSize: 8, capacity: 5, cacheSlots: 2, positions: 5, normKind: 'row', cacheType: 'f16' },
  },
  {
    kernel: 'attendCache',
    tensors: {
      ...{ q: [3 * 16], keys: [600 * 8, 'bf16'], values: [600 * 8, 'bf16'], out: [3 * 16] },
      ...{ slots: [3, 'u32'], places: [3, 'u32'], partials: [3 * 2 * 3 * 10] },
    },
    sizes: { rows: 3, heads: 2, kvHeads: 1, headSize: 8, capacity: 600, cacheSlots: 1, cacheType: 'bf16' },
  },
  {
    kernel: 'dequantize',
    tensors: { weight: [5 * 32, 'i8'], scales: [5, 'f16'], out: [3 * 32, 'bf16'] },
    sizes: { type: 'q8_0', outType: 'bf16', rows: 3, columns: 32, firstRow: 2 },
  },
];

const bytesOf = (/** @type {number} */ count, /** @type {string} */ type = 'f32') =>
  count * (type === 'f16' || type === 'bf16' ? 2 : type === 'i8' ? 1 : 4);

/** Names under which a kernel speaks of a tensor that holds others. @type {Record<string, RegExp>} */
const PARTS = { gateUp: /gate|up/, dGateUp: /dGate|dUp/, qkv: /[qkv]/ };

/** @type {number[]} */
const made = [];
const buffer = (/** @type {number} */ bytes) => {
  const handle = vk.createBuffer(bytes, 0);
  made.push(handle);
  return handle;
};
after(() => made.forEach((handle) => vk.destroyBuffer(handle)));

/** @param {Call} call @param {Record<string, unknown>} tensors @param {any} [from] */
const record = ({ kernel, sizes }, tensors, from = kernels) => from[kernel]({ ...sizes, ...tensors });

const exact = (/** @type {Call} */ { tensors }) =>
  Object.fromEntries(Object.entries(tensors).map(([name, [count, type]]) => [name, buffer(bytesOf(count, type))]));

test('every kernel has a call here', () => {
  const others = [
    'attendCacheWorkspace',
    'attentionKind',
    'attentionSupports',
    'context',
    'convolutionSupports',
    'matmulPlan',
    'matmulOrder',
    'matmulSupports',
    'matmulWorkspace',
  ];
  others.push('normBlocks', 'normWorkspace', 'optimizerState', 'ropeTable');
  // Of devices that take PTX: see __test__/ptx.
  others.push('matmulGroup', 'matmulGroupPlan', 'matmulGroupSaving', 'takesActivation', 'takesPermuted', 'takesShuffled');
  const missing = Object.keys(kernels).filter((name) => !others.includes(name) && !CALLS.some(({ kernel }) => kernel === name));
  assert.deepEqual(missing, []);
});

for (const call of CALLS) {
  const { kernel, tensors } = call;
  test(`${kernel} with ${Object.keys(tensors)}: buffers of the size it takes, and one element less`, () => {
    const good = exact(call);
    const { packed, count } = pack(record(call, good));
    vk.batchExecuteAll(packed, count);
    vk.waitIdle();
    for (const [name, [elements, type]] of Object.entries(tensors)) {
      const expected = (/** @type {any} */ error) =>
        error instanceof RangeError &&
        error.message.startsWith(`${kernel}: `) &&
        (PARTS[name]?.test(error.message) ?? error.message.includes(`${kernel}: ${name} needs `));
      const small = buffer(bytesOf(elements - 1, type) || 1);
      assert.throws(() => record(call, { ...good, [name]: small }), expected, `${name} of ${elements - 1} elements`);
      // An offset, or a range that is bound, takes away as much.
      const large = buffer(bytesOf(elements, type) + 256);
      if (kernel !== 'optimizerAdvance' && name !== 'state') {
        const offset = 256 / bytesOf(1, type) + 8;
        assert.throws(() => record(call, { ...good, [name]: { buffer: large, offset } }), expected, `${name} at an offset`);
      }
      const range = { buffer: large, offset: 256 };
      record(call, { ...good, [name]: { buffer: range } });
      const less = { ...range, size: bytesOf(elements, type) - 1 };
      assert.throws(() => record(call, { ...good, [name]: { buffer: less } }), expected, `${name} in a range that is too small`);
      const loose = createKernels(vk, { check: false });
      record(call, { ...good, [name]: small }, loose);
    }
  });
}

test('a buffer that is none is named', () => {
  const gone = vk.createBuffer(64);
  vk.destroyBuffer(gone);
  const x = buffer(64);
  assert.throws(() => kernels.unary({ x, y: gone, count: 4 }), {
    name: 'RangeError',
    code: 'ERR_HELIOS_INVALID_HANDLE',
    argument: 'y',
    message: `unary: y: no buffer has the handle ${gone} (never created, or destroyed)`,
  });
});

test('sizes are those of the buffer, whatever had its place in the table before', () => {
  const many = Array.from({ length: 3000 }, (_, i) => vk.createBuffer(4 * (i + 1)));
  for (let round = 0; round < 2; round++) {
    many.forEach((y, i) => {
      kernels.fill({ y, count: i + 1, value: 0 });
      assert.throws(() => kernels.fill({ y, count: i + 2, value: 0 }), new RegExp(`its buffer has ${4 * (i + 1)} bytes`));
    });
  }
  many.forEach((handle) => vk.destroyBuffer(handle));
  for (let i = 0; i < 100; i++) {
    const y = vk.createBuffer(4 * (i + 1));
    assert.throws(() => kernels.fill({ y, count: i + 2, value: 0 }), new RegExp(`has ${4 * (i + 1)} bytes`));
    vk.destroyBuffer(y);
  }
});

/** Calls that lie over themselves, in memory of 64 KiB: arguments with offsets. */
const memory = buffer(65536);
const at = (/** @type {number} */ offset) => ({ buffer: memory, offset });
const square = { m: 8, n: 8, k: 8 };
const fused = { batch: 1, tokens: 4, heads: 1, headSize: 32 };

/** @type {[what: string, make: () => unknown, refused: RegExp | undefined][]} */
const OVERLAPS = [
  ['a result in place', () => kernels.unary({ x: at(4), y: at(4), count: 8 }), undefined],
  ['a result beside', () => kernels.unary({ x: at(0), y: at(8), count: 8 }), undefined],
  ['a result one further', () => kernels.unary({ x: at(0), y: at(1), count: 8 }), /unary: y is written and must not overlap x/],
  ['a result one before', () => kernels.unary({ x: at(1), y: at(0), count: 8 }), /y is written and must not overlap x/],
  [
    'a result in place of another type',
    () => kernels.cast({ x: memory, y: memory, count: 8, from: 'f32', to: 'bf16' }),
    /cast: y is written and must not overlap x: y, bytes 0 to 16, and x, bytes 0 to 32/,
  ],
  ['a sum over its row', () => kernels.binary({ a: at(0), b: at(0), y: at(0), count: 16, period: 4 }), /binary: y .* overlap b/],
  ['a sum in place', () => kernels.binary({ a: at(0), b: at(64), y: at(0), count: 16, period: 4 }), undefined],
  ['a transpose in place', () => kernels.transpose({ x: memory, y: memory, rows: 4, columns: 4 }), /transpose: y .* overlap x/],
  ['a product over its operand', () => kernels.matmul({ ...square, a: at(0), b: at(64), c: at(64) }), /matmul: c .* overlap b/],
  ['a product over its residual', () => kernels.matmul({ ...square, a: at(0), b: at(64), c: at(128), residual: at(128) }), undefined],
  [
    'a product over half of its residual',
    () => kernels.matmul({ ...square, a: at(0), b: at(64), c: at(128), residual: at(160) }),
    /matmul: c .* overlap residual/,
  ],
  [
    'a product into columns beside its operand',
    () => kernels.matmul({ ...square, a: at(0), lda: 16, b: at(1024), c: at(8), ldc: 16 }),
    undefined,
  ],
  [
    'a product into columns that it reads',
    () => kernels.matmul({ ...square, a: at(0), lda: 16, b: at(1024), c: at(4), ldc: 16 }),
    /matmul: c .* overlap a/,
  ],
  ['gradients in place', () => kernels.gluBackward({ gateUp: at(0), dy: at(512), dGateUp: at(0), rows: 4, columns: 8 }), undefined],
  [
    'gradients swapped',
    () => kernels.gluBackward({ gate: at(0), up: at(32), dy: at(512), dGate: at(128), dUp: at(136), rows: 4, columns: 8 }),
    /gluBackward: dUp .* overlap dGate/,
  ],
  [
    'gradients of fused attention apart',
    () => kernels.attentionBackward({ ...fused, qkv: at(0), out: at(1024), logSumExp: at(2048), dOut: at(3072), dQkv: at(4096) }),
    undefined,
  ],
  [
    'gradients of fused attention in place',
    () => kernels.attentionBackward({ ...fused, qkv: at(0), out: at(1024), logSumExp: at(2048), dOut: at(3072), dQkv: at(0) }),
    /attentionBackward: dQ .* overlap q/,
  ],
  [
    'attention over its keys',
    () => kernels.attentionForward({ ...fused, qkv: at(0), out: at(32), rowOut: 96, logSumExp: at(2048) }),
    /attentionForward: out .* overlap k/,
  ],
  [
    'a gradient over the residual',
    () =>
      kernels.rmsNormBackward({
        dy: at(0),
        x: at(64),
        weight: at(128),
        stats: at(192),
        dx: at(256),
        residual: at(256),
        dWeight: at(320),
        rows: 4,
        columns: 8,
      }),
    undefined,
  ],
  [
    'parameters over moments',
    () => kernels.adamw({ parameters: at(64), first: at(128), second: at(160), gradient: at(256), state: memory, count: 64 }),
    /adamw: second .* overlap first/,
  ],
];

for (const [what, make, refused] of OVERLAPS) {
  test(`${what} ${refused ? 'is refused' : 'is taken'}`, () => {
    if (refused) assert.throws(make, (/** @type {any} */ error) => error instanceof RangeError && refused.test(error.message));
    else make();
  });
}
