// A call of every kernel, with each tensor as large as it must be.

import { SAMPLING_HISTORY_WORDS, SAMPLING_SETTINGS_WORDS, SAMPLING_STATE_WORDS, STATE_WORDS } from '../../kernels/index.mjs';

/** Elements and type of every tensor that a call takes. @typedef {Record<string, [count: number, type?: 'f32' | 'f16' | 'bf16' | 'u32' | 'i8']>} Tensors */
/** @typedef {{ kernel: string, tensors: Tensors, sizes: Record<string, unknown> }} Call */

/** Calls of every kernel, with each tensor as large as it must be. @type {Call[]} */
export const CALLS = [
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
    kernel: 'decodeLayer',
    tensors: {
      ...{ x: [32], qkv: [64 * 32, 'i8'], out: [32 * 32, 'i8'], up: [128 * 32, 'i8'], down: [32 * 64, 'i8'] },
      ...{ qkvScales: [64, 'f16'], outScales: [32, 'f16'], upScales: [128, 'f16'], downScales: [64, 'f16'] },
      ...{ attentionNorm: [32], mlpNorm: [32], qNorm: [16], kNorm: [16], table: [5 * 16] },
      ...{ keys: [2 * 5 * 16, 'f16'], values: [2 * 5 * 16, 'f16'], slots: [1, 'u32'], places: [1, 'u32'], failed: [1, 'u32'] },
    },
    sizes: {
      ...{ width: 32, heads: 2, kvHeads: 1, headSize: 16, hidden: 64, type: 'q8_0', cacheType: 'f16', workgroups: 1 },
      ...{ capacity: 5, cacheSlots: 2, positions: 5 },
    },
  },
  {
    kernel: 'recurrentForward',
    tensors: { weight: [60 * 15], states: [2 * 4 * 30], own: [3 * 2 * 60], gates: [2 * 3 * 60], bias: [60], state: [30], cell0: [30] },
    sizes: { cell: 'lstm', batch: 2, steps: 3, hidden: 15, workgroups: 1 },
  },
  {
    kernel: 'recurrentBackward',
    tensors: {
      ...{ weight: [45 * 15], states: [4 * 30], own: [3 * 2 * 45], reset: [90], update: [90], fresh: [90] },
      ...{ dStates: [4 * 30], dGates: [2 * 3 * 45], dState: [30], dOwn: [3 * 2 * 45] },
    },
    sizes: { cell: 'gru', batch: 2, steps: 3, hidden: 15, workgroups: 1 },
  },
  {
    kernel: 'dequantize',
    tensors: { weight: [5 * 32, 'i8'], scales: [5, 'f16'], out: [3 * 32, 'bf16'] },
    sizes: { type: 'q8_0', outType: 'bf16', rows: 3, columns: 32, firstRow: 2 },
  },
];
