// The trainer's `Backend` over the device: every method is an operation (`operations.ts`) or the host's work (`host.ts`).

import type { DeviceInfo } from 'helios-vk';
import { f16Bits } from 'helios-vk/kernels';

import { ATTENTION, ATTENTION_BACKWARD } from './attention.js';
import { Engine, type Native, type Operation } from './engine.js';
import * as host from './host.js';
import * as op from './operations.js';
import { axisOf, broadcastShapes, broadcastStrides, sameShape, stridesOf, swapped, type View } from './shapes.js';
import { DeviceTensor } from './tensor.js';
import {
  BackendError,
  type Dtype,
  type Precision,
  type Shape,
  type TensorArray,
  type TensorData,
  hostArray,
  show,
  sizeOf,
} from './types.js';

/** What `new HeliosVkBackend(options)` takes. */
export interface BackendOptions {
  /** How products are computed: `bf16` (the default where the device has matrix units for it), `f16`, or `f32`. */
  precision?: Precision;
  /** Record steps that repeat as graphs (true when left out). */
  capture?: boolean;
  /** The native module; `require('helios-vk')` when left out. */
  vk?: Native;
  /** Passed to `initDevice`: which device, safe mode. */
  device?: Parameters<Native['initDevice']>[0];
  /** Seed of `randn`; 42 when left out. */
  seed?: number;
}

/** The trainer's backend on a Vulkan device. */
export class HeliosVkBackend {
  readonly name = 'helios-vk';
  /** Device calls since `resetStepOps`. */
  gpuOpsThisStep = 0;
  readonly precision: Precision;
  private readonly engine: Engine;
  /**
   * What `initDevice` said of the device. Not `getDeviceInfo`: the trainer asks that for whether the device is an NVIDIA GPU,
   * which its own kernels need and these do not.
   */
  readonly deviceInfo: Readonly<DeviceInfo>;
  private readonly code: number;
  private readonly random: () => number;
  private readonly values = new Map<number, DeviceTensor>();
  private readonly masks = new Map<number, DeviceTensor>();
  /** Optimizer states of this step, by what they hold. */
  private readonly states = new Map<string, DeviceTensor>();

  /**
   * Opens the device.
   * @throws where the device cannot multiply in the precision asked for
   */
  constructor(vk: Native, { precision, capture = true, device, seed = 42 }: BackendOptions = {}) {
    this.deviceInfo = vk.initDevice(device);
    this.engine = new Engine(vk, capture);
    const { matmulSupports } = this.engine.kernels;
    this.precision = precision ?? (matmulSupports('bf16') ? 'bf16' : 'f32');
    this.code = op.PRECISIONS.indexOf(this.precision);
    if (this.code < 0) throw new BackendError('precision', `expected ${op.PRECISIONS.join(', ')}, got ${String(precision)}`);
    if (!matmulSupports(this.precision)) {
      throw new BackendError('precision', `${String(this.deviceInfo.deviceName)} has no matrix units for ${this.precision}; take f32`);
    }
    this.random = host.uniform(seed);
  }

  private call(operation: Operation, inputs: readonly TensorData[], numbers?: readonly number[]): DeviceTensor {
    return this.callAll(operation, inputs, numbers)[0];
  }

  private callAll(operation: Operation, inputs: readonly TensorData[], numbers?: readonly number[]): DeviceTensor[] {
    this.gpuOpsThisStep++;
    const { engine } = this;
    return engine.apply(
      operation,
      inputs.map((tensor) => engine.resident(tensor)),
      numbers,
    );
  }

  /** A tensor of the host, which the device gets when it first uses it. */
  private made({ shape, dtype, data }: host.HostTensor): TensorData {
    return new DeviceTensor(this.engine, shape, dtype, data);
  }

  // One operation each

  readonly zeros = (shape: Shape, dtype: Dtype = 'f32') => this.full(shape, 0, dtype);
  readonly ones = (shape: Shape, dtype: Dtype = 'f32') => this.full(shape, 1, dtype);
  readonly add = (a: TensorData, b: TensorData) => this.binary('add', op.ADD, a, b, (x, y) => x + y);
  readonly sub = (a: TensorData, b: TensorData) => this.binary('sub', op.SUB, a, b, (x, y) => x - y);
  readonly mul = (a: TensorData, b: TensorData) => this.binary('mul', op.MUL, a, b, (x, y) => x * y);
  readonly div = (a: TensorData, b: TensorData) => this.binary('div', op.DIV, a, b, (x, y) => x / y);
  readonly neg = (a: TensorData) => this.scale(a, -1);
  readonly exp = (a: TensorData) => this.unary(a, [op.EXP, 1, 0], Math.exp);
  readonly log = (a: TensorData) => this.unary(a, [op.LOG, 1, 0], Math.log);
  readonly sqrt = (a: TensorData) => this.unary(a, [op.SQRT, 1, 0], Math.sqrt);
  readonly matmul = (a: TensorData, b: TensorData) => this.product(a, b, 0, 0);
  /** A Bᵀ. */
  readonly matmulTransposed = (a: TensorData, b: TensorData) => this.product(a, b, 0, 1);
  /** Aᵀ B. */
  readonly matmulTransposedA = (a: TensorData, b: TensorData) => this.product(a, b, 1, 0);
  readonly gelu = (a: TensorData) => this.call(op.ACTIVATION, [a], op.GELU);
  readonly relu = (a: TensorData) => this.call(op.ACTIVATION, [a], op.RELU);
  readonly silu = (a: TensorData) => this.call(op.ACTIVATION, [a], op.SILU);
  readonly siluMul = (a: TensorData, b: TensorData) => this.call(op.SILU_MUL, [a, b]);
  readonly softCap = (input: TensorData, cap: number) => this.call(op.SOFT_CAP, [input], [cap]);
  readonly geluBackward = (input: TensorData, gradOutput: TensorData) => this.call(op.ACTIVATION_BACKWARD, [input, gradOutput], op.GELU);
  readonly reluBackward = (input: TensorData, gradOutput: TensorData) => this.call(op.ACTIVATION_BACKWARD, [input, gradOutput], op.RELU);
  readonly siluBackward = (input: TensorData, gradOutput: TensorData) => this.call(op.ACTIVATION_BACKWARD, [input, gradOutput], op.SILU);
  readonly siluMulBackward = (a: TensorData, b: TensorData, gradOutput: TensorData) =>
    this.callAll(op.SILU_MUL_BACKWARD, [a, b, gradOutput]);
  readonly softCapBackward = (gradOutput: TensorData, input: TensorData, cap: number) =>
    this.call(op.SOFT_CAP_BACKWARD, [input, gradOutput], [cap]);
  readonly embedding = (weight: TensorData, indices: TensorData) => this.call(op.EMBEDDING, [weight, indices]);
  readonly embeddingBackward = (indices: TensorData, gradOutput: TensorData, vocabSize: number) =>
    this.call(op.EMBEDDING_BACKWARD, [indices, gradOutput], [vocabSize]);
  readonly crossEntropy = (logits: TensorData, targets: TensorData) => this.call(op.CROSS_ENTROPY, [logits, targets]);
  readonly sumOfSquares = (data: TensorData) => this.call(op.SUM_OF_SQUARES, [data]);
  /** 0 where every element is finite. */
  readonly checkFinite = (data: TensorData) => this.call(op.CHECK_FINITE, [data]);

  // Creation

  full(shape: Shape, value: number, dtype: Dtype = 'f32'): TensorData {
    if (dtype === 'f32' || dtype === 'i32') return new DeviceTensor(this.engine, [...shape], dtype, value);
    const data = hostArray(dtype, sizeOf(shape)).fill(dtype === 'f16' ? f16Bits(value) : value);
    return this.made({ shape: [...shape], dtype, data });
  }

  randn(shape: Shape, dtype: Dtype = 'f32'): TensorData {
    return this.fromArray(host.normal(sizeOf(shape), this.random), shape, dtype);
  }

  fromArray(data: ArrayLike<number>, shape: Shape, dtype: Dtype = 'f32'): TensorData {
    if (data.length !== sizeOf(shape)) throw new BackendError('fromArray', `${data.length} elements for shape ${show(shape)}`);
    const array = hostArray(dtype, data.length);
    for (let i = 0; i < data.length; i++) array[i] = dtype === 'f16' ? f16Bits(data[i]) : data[i];
    return this.made({ shape: [...shape], dtype, data: array });
  }

  // Arithmetic

  private binary(name: string, which: readonly number[], a: TensorData, b: TensorData, f: (x: number, y: number) => number): TensorData {
    if (a.dtype === 'f32' && b.dtype === 'f32') return this.call(op.BINARY_OP, [a, b], which);
    return this.made(host.zip(name, a, b, f));
  }

  private unary(a: TensorData, numbers: readonly number[], f: (x: number) => number): TensorData {
    return a.dtype === 'f32' ? this.call(op.UNARY_OP, [a], numbers) : this.made(host.map(a, f));
  }

  pow(a: TensorData, exponent: number): TensorData {
    const known = new Map([
      [1, op.IDENTITY],
      [2, op.SQUARE],
      [-1, op.RECIPROCAL],
    ]).get(exponent);
    if (known !== undefined) return this.unary(a, [known, 1, 0], (x) => x ** exponent);
    return this.made(host.map(a, (x) => x ** exponent));
  }

  scale(a: TensorData, s: number): TensorData {
    if (!Number.isFinite(s)) return this.made(host.map(a, (x) => x * s));
    // x · s + (−0) has the sign of a zero product, x · s + 0 has not.
    return this.unary(a, [op.IDENTITY, s, -0], (x) => x * s);
  }

  clamp(a: TensorData, lo: number, hi: number): TensorData {
    if (a.dtype !== 'f32') return this.made(host.map(a, (x) => Math.max(lo, Math.min(hi, x))));
    const below = this.call(op.BOUND, [a, this.value(hi)], [1]);
    const within = this.call(op.BOUND, [below, this.value(lo)], [0]);
    this.engine.release(below);
    return within;
  }

  /** A tensor of one element, kept. */
  private value(value: number): DeviceTensor {
    let tensor = this.values.get(value);
    if (!tensor) {
      // Bounds that are never the same would fill it.
      if (this.values.size >= 64) {
        for (const kept of this.values.values()) this.engine.release(kept);
        this.values.clear();
      }
      tensor = new DeviceTensor(this.engine, [], 'f32', Float32Array.of(value));
      this.values.set(value, tensor);
    }
    return tensor;
  }

  addInplace(a: TensorData, b: TensorData): void {
    if (!sameShape(a.shape, b.shape)) throw new BackendError('addInplace', `${show(a.shape)} += ${show(b.shape)}`);
    this.call(op.ADD_INPLACE, [a, b]);
    this.engine.changed(a);
  }

  scaleInplace(a: TensorData, scalar: number): void {
    this.call(op.SCALE_INPLACE, [a], [scalar]);
    this.engine.changed(a);
  }

  // Products

  private product(a: TensorData, b: TensorData, transA: number, transB: number): TensorData {
    if (a.shape.length < 2 || b.shape.length < 2)
      throw new BackendError('matmul', `${show(a.shape)} × ${show(b.shape)}: two dimensions at least`);
    const [batchA, batchB] = [a, b].map(({ shape }) => shape.slice(0, -2));
    const batch = broadcastShapes('matmul', batchA, batchB);
    const temporary: TensorData[] = [];
    const operand = (x: TensorData, own: Shape) => {
      if (sizeOf(own) === 1 || sameShape(own, batch)) return x;
      temporary.push(this.broadcast(x, [...batch, ...x.shape.slice(-2)]));
      return temporary[temporary.length - 1];
    };
    const result = this.call(op.MATMUL, [operand(a, batchA), operand(b, batchB)], [transA, transB, this.code]);
    for (const tensor of temporary) this.engine.release(tensor);
    return result;
  }

  // Reductions

  sum(a: TensorData, axis?: number, keepdims = false): TensorData {
    return this.total('sum', a, axis, keepdims, 1);
  }

  mean(a: TensorData, axis?: number, keepdims = false): TensorData {
    const size = axis === undefined ? sizeOf(a.shape) : a.shape[axisOf('mean', axis, a.shape.length)];
    return this.total('mean', a, axis, keepdims, 1 / size);
  }

  private total(name: string, a: TensorData, axis: number | undefined, keep: boolean, factor: number): TensorData {
    const at = axis === undefined ? -1 : axisOf(name, axis, a.shape.length);
    if (a.dtype === 'f32') return this.call(op.SUM, [a], [at, keep ? 1 : 0, factor]);
    return this.made(host.sum(a, axis === undefined ? undefined : at, keep, factor));
  }

  totalSumOfSquares(tensors: TensorData[]): TensorData {
    return tensors.length === 0 ? this.zeros([]) : this.call(op.SUM_OF_SQUARES, tensors);
  }

  // Networks

  layerNorm(x: TensorData, weight: TensorData, bias: TensorData, eps: number): TensorData {
    const input = this.engine.resident(x);
    const [y, statistics] = this.callAll(op.LAYER_NORM, [input, weight, bias], [eps]);
    if (input.statistics) this.engine.release(input.statistics.tensor);
    // The backward pass is told the input alone: it finds them there, and they go with it.
    input.statistics = { tensor: statistics, eps, version: input.storage?.version ?? 0 };
    return y;
  }

  layerNormBackward(
    x: TensorData,
    weight: TensorData,
    gradOutput: TensorData,
    eps: number,
  ): { dx: TensorData; dw: TensorData; db: TensorData } {
    const input = this.engine.resident(x);
    const known = input.statistics;
    if (!known || known.eps !== eps || known.version !== input.storage?.version) {
      this.engine.release(this.layerNorm(input, weight, weight, eps));
    }
    const statistics = input.statistics?.tensor as DeviceTensor;
    const [dx, dw, db] = this.callAll(op.LAYER_NORM_BACKWARD, [input, weight, statistics, gradOutput]);
    return { dx, dw, db };
  }

  /** The gradient where the input is within the bounds, else 0. */
  clampBackward(input: TensorData, gradOutput: TensorData, lo: number, hi: number): TensorData {
    // relu'(x - lo) · relu'(hi - x): 1 strictly between the bounds.
    const above = this.call(op.UNARY_OP, [input], [op.IDENTITY, 1, -lo]);
    const below = this.call(op.UNARY_OP, [input], [op.IDENTITY, -1, hi]);
    const first = this.reluBackward(above, gradOutput);
    const result = this.reluBackward(below, first);
    for (const tensor of [above, below, first]) this.engine.release(tensor);
    return result;
  }

  softmax(a: TensorData, axis = -1): TensorData {
    return this.alongLast('softmax', a, axis, (x) => this.call(op.SOFTMAX, [x]));
  }

  logSoftmax(a: TensorData, axis = -1): TensorData {
    return this.alongLast('logSoftmax', a, axis, (x) => {
      const most = this.call(op.ROW_MAX, [x]);
      const shifted = this.sub(x, most);
      const powers = this.exp(shifted);
      const sums = this.sum(powers, -1, true);
      const logs = this.log(sums);
      const result = this.sub(shifted, logs);
      for (const tensor of [most, shifted, powers, sums, logs]) this.engine.release(tensor);
      return result;
    });
  }

  private alongLast(name: string, a: TensorData, axis: number, f: (x: TensorData) => TensorData): TensorData {
    const at = axisOf(name, axis, a.shape.length);
    const last = a.shape.length - 1;
    if (at === last) return f(a);
    const turned = this.transpose(a, at, last);
    const result = f(turned);
    const back = this.transpose(result, at, last);
    for (const tensor of [turned, result]) this.engine.release(tensor);
    return back;
  }

  crossEntropyBackward(logits: TensorData, targets: TensorData, gradOutput: TensorData): TensorData {
    const known = gradOutput instanceof DeviceTensor ? gradOutput.everywhere : undefined;
    if (known !== undefined) return this.call(op.CROSS_ENTROPY_BACKWARD, [logits, targets], [known]);
    return this.call(op.CROSS_ENTROPY_BACKWARD, [logits, targets, gradOutput], [1]);
  }

  flashAttention(
    q: TensorData,
    k: TensorData,
    v: TensorData,
    tokens: number,
    scale: number,
    softCap: number,
  ): { output: TensorData; lse: TensorData } {
    const [output, lse] = this.callAll(ATTENTION, [q, k, v, this.attentionMask(tokens)], [scale, softCap, this.code]);
    return { output, lse };
  }

  flashAttentionBackward(
    q: TensorData,
    k: TensorData,
    v: TensorData,
    output: TensorData,
    dOutput: TensorData,
    lse: TensorData,
    tokens: number,
    scale: number,
    softCap: number,
  ): { dQ: TensorData; dK: TensorData; dV: TensorData } {
    const inputs = [q, k, v, this.attentionMask(tokens), output, dOutput, lse];
    const [dQ, dK, dV] = this.callAll(ATTENTION_BACKWARD, inputs, [scale, softCap, this.code]);
    return { dQ, dK, dV };
  }

  private attentionMask(tokens: number): DeviceTensor {
    let mask = this.masks.get(tokens);
    if (!mask) {
      mask = this.causalMask(tokens) as DeviceTensor;
      this.masks.set(tokens, mask);
    }
    return mask;
  }

  /** residual + projected · mask. */
  residualDropoutAdd(residual: TensorData, projected: TensorData, mask: TensorData): TensorData {
    const kept = this.mul(projected, mask);
    const result = this.add(residual, kept);
    this.engine.release(kept);
    return result;
  }

  /** 1 / (1 − p) where an element is kept, else 0, by the trainer's own hash of seed, counter and position. */
  dropoutMask(shape: Shape, seed: number, counter: number, p: number): TensorData {
    const data = new Float32Array(sizeOf(shape));
    const kept = 1 / (1 - p);
    const base = (seed + Math.imul(counter, 2654435761)) | 0;
    for (let i = 0; i < data.length; i++) {
      let h = (base + Math.imul(i, 2246822519)) | 0;
      h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
      h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
      data[i] = ((h ^ (h >>> 16)) >>> 0) / 2 ** 32 > p ? kept : 0;
    }
    return this.made({ shape: [...shape], dtype: 'f32', data });
  }

  // Shapes

  reshape(a: TensorData, shape: Shape): TensorData {
    if (sizeOf(shape) !== sizeOf(a.shape)) throw new BackendError('reshape', `${show(a.shape)} as ${show(shape)}`);
    if (a.dtype === 'f64') return this.made({ shape: [...shape], dtype: a.dtype, data: a.data.slice() });
    return this.engine.placed('reshape', a).view([...shape]);
  }

  transpose(a: TensorData, dim0: number, dim1: number): TensorData {
    const [first, second] = [dim0, dim1].map((dim) => axisOf('transpose', dim, a.shape.length));
    const strides = stridesOf(a.shape);
    return this.strided(a, { shape: swapped(a.shape, first, second), strides: swapped(strides, first, second), offset: 0 });
  }

  /** A view of a tensor, copied. */
  private strided(a: TensorData, view: View): TensorData {
    const { shape, strides, offset } = view;
    if (a.dtype === 'f32') return this.call(op.STRIDED, [a], [offset, shape.length, ...shape, ...strides]);
    return this.made(host.strided(a, view));
  }

  slice(a: TensorData, starts: number[], ends: number[]): TensorData {
    if (a.shape.some((size, d) => !(starts[d] >= 0 && starts[d] <= ends[d] && ends[d] <= size))) {
      throw new BackendError('slice', `${show(starts)} to ${show(ends)} of ${show(a.shape)}`);
    }
    const strides = stridesOf(a.shape);
    const offset = strides.reduce((sum, stride, d) => sum + stride * starts[d], 0);
    return this.strided(a, { shape: a.shape.map((_, d) => ends[d] - starts[d]), strides, offset });
  }

  sliceQkv(a: TensorData): [TensorData, TensorData, TensorData] {
    const [rows, columns] = a.shape;
    const own = columns / 3;
    if (a.shape.length !== 2 || columns % 3) throw new BackendError('sliceQkv', `${show(a.shape)}, expected [rows, 3 · columns]`);
    const part = (i: number) => this.slice(a, [0, i * own], [rows, (i + 1) * own]);
    return [part(0), part(1), part(2)];
  }

  scatterSlice(grad: TensorData, origShape: Shape, starts: number[], ends: number[]): TensorData {
    if (origShape.some((size, d) => !(starts[d] >= 0 && ends[d] - starts[d] === grad.shape[d] && ends[d] <= size))) {
      throw new BackendError('scatterSlice', `${show(grad.shape)} at ${show(starts)} to ${show(ends)} of ${show(origShape)}`);
    }
    return this.call(op.SCATTER_SLICE, [grad], [origShape.length, ...origShape, ...starts]);
  }

  cat(tensors: TensorData[], axis: number): TensorData {
    if (tensors.length === 0) throw new BackendError('cat', 'no tensors');
    const at = axisOf('cat', axis, tensors[0].shape.length);
    for (const { shape } of tensors) {
      if (shape.length !== tensors[0].shape.length || shape.some((size, d) => d !== at && size !== tensors[0].shape[d])) {
        throw new BackendError('cat', `${show(tensors[0].shape)} and ${show(shape)} along ${at}`);
      }
    }
    if (tensors.every(({ dtype }) => dtype === 'f32')) return this.call(op.CAT, tensors, [at]);
    return this.made(host.cat(tensors, at));
  }

  broadcast(a: TensorData, targetShape: Shape): TensorData {
    const shape = broadcastShapes('broadcast', a.shape, targetShape);
    if (!sameShape(shape, targetShape)) throw new BackendError('broadcast', `${show(a.shape)} to ${show(targetShape)}`);
    return this.strided(a, { shape, strides: broadcastStrides(a.shape, shape), offset: 0 });
  }

  clone(a: TensorData): TensorData {
    if (a.dtype !== 'f32') return this.made({ shape: a.shape, dtype: a.dtype, data: a.data.slice() as TensorArray });
    return this.call(op.CLONE, [a]);
  }

  castDtype(a: TensorData, dtype: Dtype): TensorData {
    if (a.dtype === dtype) return a;
    const device = (a.dtype === 'f32' && dtype === 'f16') || (a.dtype === 'f16' && dtype === 'f32');
    // 16-bit elements go in pairs.
    if (device && sizeOf(a.shape) % 2 === 0) return this.call(op.CAST, [a]);
    const values = host.numbersOf(a);
    return this.fromArray(values, a.shape, dtype);
  }

  // On the host

  argmax(a: TensorData, axis?: number): TensorData {
    return this.made(host.argmax(a, axis));
  }

  topk(a: TensorData, k: number, axis = -1): { values: TensorData; indices: TensorData } {
    const { values, indices } = host.topk(a, k, axis);
    return { values: this.made(values), indices: this.made(indices) };
  }

  gather(a: TensorData, axis: number, indices: TensorData): TensorData {
    return this.made(host.gather(a, axis, indices));
  }

  equal(a: TensorData, b: TensorData): boolean {
    if (a.dtype !== b.dtype || !sameShape(a.shape, b.shape)) return false;
    const [x, y] = [a.data, b.data];
    for (let i = 0; i < x.length; i++) if (x[i] !== y[i]) return false;
    return true;
  }

  allClose(a: TensorData, b: TensorData, atol = 1e-5, rtol = 1e-8): boolean {
    if (!sameShape(a.shape, b.shape)) return false;
    const [x, y] = [host.numbersOf(a), host.numbersOf(b)];
    for (let i = 0; i < x.length; i++) if (!(Math.abs(x[i] - y[i]) <= atol + rtol * Math.abs(y[i])) && x[i] !== y[i]) return false;
    return true;
  }

  /** [size, size], 0 where a token is seen and −∞ where it comes later. */
  causalMask(size: number): TensorData {
    const data = new Float32Array(size * size);
    for (let i = 0; i < size; i++) data.fill(Number.NEGATIVE_INFINITY, i * size + i + 1, (i + 1) * size);
    return this.made({ shape: [size, size], dtype: 'f32', data });
  }

  /** a, with `value` where the mask, which repeats over the last dimensions, is not 0. */
  maskedFill(a: TensorData, mask: TensorData, value: number): TensorData {
    // No product of the kernels chooses: an infinity or a NaN under the mask would stay.
    return this.made(host.zip('maskedFill', a, mask, (x, m) => (m !== 0 ? value : x), a.dtype));
  }

  // Training

  adamwStep(
    params: TensorData,
    grads: TensorData,
    m: TensorData,
    v: TensorData,
    lr: number,
    beta1: number,
    beta2: number,
    eps: number,
    weightDecay: number,
    bc1: number,
    bc2: number,
    gradScale = 1,
  ): void {
    const key = [lr, beta1, beta2, eps, weightDecay, bc1, bc2, gradScale].join();
    let state = this.states.get(key);
    if (!state) {
      const words = new Float32Array(op.ADAMW_WORDS);
      for (const [at, value] of op.adamwState({ lr, beta1, beta2, eps, weightDecay, bc1, bc2, gradScale })) words[at] = value;
      state = new DeviceTensor(this.engine, [words.length], 'f32', this.engine.input(words));
      this.states.set(key, state);
    }
    this.call(op.ADAMW, [params, grads, m, v, state]);
    for (const tensor of [params, m, v]) this.engine.changed(tensor);
  }

  /** Ends a step: what was called is submitted, and the next step may run as a recorded one. */
  flush(): void {
    for (const state of this.states.values()) this.engine.release(state);
    this.states.clear();
    this.engine.endStep();
  }

  /** Waits for the device. */
  syncGpu(): void {
    this.engine.finish();
  }

  /** Gives back a tensor's device memory. Using it afterwards is an error. */
  releaseGpuTensor(tensor: TensorData): void {
    this.engine.release(tensor);
  }

  /** Gives memory that is kept for reuse back to the device. */
  purgeBufferPools(): void {
    this.engine.finish();
    this.engine.pool.trim();
  }

  resetStepOps(): void {
    this.gpuOpsThisStep = 0;
  }

  /** Steps, those launched as recorded graphs, recordings, steps that differed; bytes kept for reuse. */
  captureStats(): { steps: number; replayed: number; recorded: number; differed: number; poolBytes: number } {
    return { ...this.engine.counts, poolBytes: this.engine.pool.bytes };
  }
}
