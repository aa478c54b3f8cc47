// The trainer's `Backend` at its HEAD of 2026-03-09, restated: what this package must be assignable to.

import { type HeliosVkBackend, createBackend } from '../dist/index.js';

type Dtype = 'f32' | 'f64' | 'i32' | 'f16';
type Shape = readonly number[];
interface TensorData {
  readonly shape: Shape;
  readonly dtype: Dtype;
  readonly data: Float32Array | Float64Array | Int32Array | Uint16Array;
}
type T = TensorData;

interface Backend {
  readonly name: string;
  zeros(shape: Shape, dtype?: Dtype): T;
  ones(shape: Shape, dtype?: Dtype): T;
  full(shape: Shape, value: number, dtype?: Dtype): T;
  randn(shape: Shape, dtype?: Dtype): T;
  fromArray(data: number[], shape: Shape, dtype?: Dtype): T;
  add(a: T, b: T): T;
  sub(a: T, b: T): T;
  mul(a: T, b: T): T;
  div(a: T, b: T): T;
  matmul(a: T, b: T): T;
  sum(a: T, axis?: number, keepdims?: boolean): T;
  mean(a: T, axis?: number, keepdims?: boolean): T;
  neg(a: T): T;
  exp(a: T): T;
  log(a: T): T;
  sqrt(a: T): T;
  pow(a: T, exp: number): T;
  scale(a: T, s: number): T;
  clamp(a: T, lo: number, hi: number): T;
  embedding(weight: T, indices: T): T;
  layerNorm(x: T, weight: T, bias: T, eps: number): T;
  gelu(a: T): T;
  relu(a: T): T;
  silu(a: T): T;
  softmax(a: T, axis?: number): T;
  logSoftmax(a: T, axis?: number): T;
  crossEntropy(logits: T, targets: T): T;
  reshape(a: T, shape: Shape): T;
  transpose(a: T, dim0: number, dim1: number): T;
  slice(a: T, starts: number[], ends: number[]): T;
  cat(tensors: T[], axis: number): T;
  argmax(a: T, axis?: number): T;
  topk(a: T, k: number, axis?: number): { values: T; indices: T };
  gather(a: T, axis: number, indices: T): T;
  clone(a: T): T;
  equal(a: T, b: T): boolean;
  allClose(a: T, b: T, atol?: number, rtol?: number): boolean;
  causalMask(size: number): T;
  maskedFill(a: T, mask: T, value: number): T;
  geluBackward?(input: T, gradOutput: T): T;
  reluBackward?(input: T, gradOutput: T): T;
  siluBackward?(input: T, gradOutput: T): T;
  siluMul?(a: T, b: T): T;
  siluMulBackward?(a: T, b: T, gradOutput: T): T[];
  clampBackward?(input: T, gradOutput: T, lo: number, hi: number): T;
  layerNormBackward?(x: T, weight: T, gradOutput: T, eps: number): { dx: T; dw: T; db: T };
  crossEntropyBackward?(logits: T, targets: T, gradOutput: T): T;
  embeddingBackward?(indices: T, gradOutput: T, vocabSize: number): T;
  softCap?(input: T, cap: number): T;
  softCapBackward?(gradOutput: T, input: T, cap: number): T;
  residualDropoutAdd?(residual: T, projected: T, mask: T): T;
  matmulTransposed?(a: T, b: T): T;
  matmulTransposedA?(a: T, b: T): T;
  addInplace?(a: T, b: T): void;
  scaleInplace?(a: T, scalar: number): void;
  sliceQkv?(a: T): [T, T, T];
  scatterSlice?(grad: T, origShape: Shape, starts: number[], ends: number[]): T;
  dropoutMask?(shape: Shape, seed: number, counter: number, p: number): T;
  flashAttention?(q: T, k: T, v: T, tokens: number, scale: number, softCap: number): { output: T; lse: T };
  flashAttentionBackward?(q: T, k: T, v: T, o: T, dO: T, lse: T, tokens: number, scale: number, softCap: number): { dQ: T; dK: T; dV: T };
  broadcast?(a: T, targetShape: Shape): T;
  castDtype?(a: T, dtype: Dtype): T;
  sumOfSquares?(data: T): T;
  totalSumOfSquares?(tensors: T[]): T;
  checkFinite?(data: T): T;
  adamwStep?(
    params: T,
    grads: T,
    m: T,
    v: T,
    lr: number,
    beta1: number,
    beta2: number,
    eps: number,
    weightDecay: number,
    bc1: number,
    bc2: number,
    gradScale?: number,
  ): void;
}

// Every method, the optional ones too.
export const backend: Required<Backend> = createBackend();

// What the trainer looks for beside the interface.
type Beside = 'flush' | 'syncGpu' | 'releaseGpuTensor' | 'purgeBufferPools' | 'resetStepOps' | 'gpuOpsThisStep';
export const beside: Pick<HeliosVkBackend, Beside> = createBackend();
