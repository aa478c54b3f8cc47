// Implements the trainer's `Backend` interface. Nearly every method calls an operation of the device (`operations.ts`).

import type { DeviceInfo } from 'helios-vk';
import { f16Bits } from 'helios-vk/kernels';

import { ATTENTION, ATTENTION_BACKWARD } from './attention.js';
import { Engine } from './engine.js';
import * as host from './host.js';
import type { Native } from './memory.js';
import * as op from './operations.js';
import { type Operation, sameNumbers, takes } from './plan.js';
import { axisOf, sameShape } from './shapes.js';
import { DeviceTensor } from './tensor.js';
import {
  BackendError,
  type Dtype,
  type Precision,
  type Shape,
  type TensorData,
  checkTensor,
  checkTensors,
  hostArray,
  show,
  sizeOf,
} from './types.js';

/** What `new HeliosVkBackend(options)` takes. */
export interface BackendOptions {
  /** Type that products are computed in: `f32`, `f16` or `bf16`. By default `bf16` where the device has matrix units for it, else `f32`. */
  precision?: Precision;
  /** Whether steps that repeat are recorded as graphs (default true). */
  capture?: boolean;
  /** The native module (default `require('helios-vk')`). */
  vk?: Native;
  /** Passed to `initDevice`: which device, safe mode. */
  device?: Parameters<Native['initDevice']>[0];
}

/** @throws BackendError that names the option */
export function checkOptions(options: BackendOptions): void {
  if (typeof options !== 'object' || options === null) {
    throw new BackendError('createBackend', `options must be an object, got ${String(options)}`);
  }
  const known = ['precision', 'capture', 'vk', 'device'];
  for (const key of Object.keys(options)) {
    if (!known.includes(key)) throw new BackendError('createBackend', `${key}: no such option; the options are ${known.join(', ')}`);
  }
  const { capture, vk, device } = options;
  if (capture !== undefined && typeof capture !== 'boolean') {
    throw new BackendError('createBackend', `capture must be true or false, got ${String(capture)}`);
  }
  if (vk !== undefined) checkNative(vk);
  if (device !== undefined && (typeof device !== 'object' || device === null)) {
    throw new BackendError('createBackend', `device must be what initDevice takes, such as { device: 0 }, got ${String(device)}`);
  }
}

function checkNative(vk: unknown): void {
  if (typeof (vk as Native | null)?.initDevice === 'function') return;
  throw new BackendError('createBackend', `vk must be the module of helios-vk, which has initDevice, got ${String(vk)}`);
}

/** @throws BackendError if another device is open already: `initDevice` then returns that one, whatever number it is given */
function checkDevice(vk: Native, asked: number, { deviceName, deviceUuid }: DeviceInfo): void {
  const wanted = vk.listDevices().find(({ index }) => index === asked);
  if (wanted?.uuid === deviceUuid) return;
  const is = wanted ? wanted.name : 'not there';
  throw new BackendError('createBackend', `device ${asked} is ${is}, and ${deviceName} is open already: call destroy() of helios-vk first`);
}

/** @throws BackendError if numbers cannot be divided by the cap */
function checkCap(call: string, cap: number): number {
  if (Number.isFinite(cap) && cap !== 0) return cap;
  throw new BackendError(call, `cap must be a finite number other than 0, got ${String(cap)}`);
}

/** @throws BackendError if a bound is not a number; infinite ones are allowed and bound nothing */
function checkBounds(call: string, lo: number, hi: number): [number, number] {
  for (const [name, bound] of Object.entries({ lo, hi })) {
    if (typeof bound === 'number' && !Number.isNaN(bound)) continue;
    const none = name === 'lo' ? '-Infinity' : 'Infinity';
    throw new BackendError(call, `${name} must be a number (${none} for no bound), got ${String(bound)}`);
  }
  return [lo, hi];
}

type T = TensorData;

/** The trainer's backend on a Vulkan device. */
export class HeliosVkBackend {
  readonly name = 'helios-vk';
  /** Device calls since `resetStepOps`. */
  gpuOpsThisStep = 0;
  readonly precision: Precision;
  private readonly engine: Engine;
  /**
   * What `initDevice` returned. There is deliberately no `getDeviceInfo`: where a backend has that method the trainer refuses devices
   * other than NVIDIA GPUs, which its own kernels need and these do not.
   */
  readonly deviceInfo: Readonly<DeviceInfo>;
  /** Index of `precision` in `PRECISIONS`: operations take numbers. */
  private readonly code: number;
  private readonly random = host.uniform(42);
  /** Causal masks by number of tokens. */
  private readonly masks = new Map<number, T>();
  /** Hyperparameters of this step's optimizer calls, each on the device once. */
  private states: { numbers: readonly number[]; tensor: T }[] = [];

  /**
   * Opens the device.
   * @throws BackendError if an option does not fit, or the device cannot multiply in the precision asked for
   */
  constructor(vk: Native, options: BackendOptions = {}) {
    checkOptions(options);
    checkNative(vk);
    const { precision, capture = true, device } = options;
    const info = vk.initDevice(device);
    if (typeof device?.device === 'number') checkDevice(vk, device.device, info);
    this.deviceInfo = info;
    this.engine = new Engine(vk, capture);
    const { matmulSupports } = this.engine.kernels;
    this.precision = precision ?? (matmulSupports('bf16') ? 'bf16' : 'f32');
    this.code = op.PRECISIONS.indexOf(this.precision);
    if (this.code < 0) throw new BackendError('precision', `expected ${op.PRECISIONS.join(', ')}, got ${String(precision)}`);
    if (!matmulSupports(this.precision)) {
      const name = String(this.deviceInfo.deviceName);
      throw new BackendError('precision', `${name} has no matrix units for ${this.precision}; use f32 (HELIOS_ALPHA_PRECISION=f32)`);
    }
  }

  /** Calls an operation with one output. It runs on the host if it can and the device does not take the type of an input. */
  private call(operation: Operation, inputs: T[], numbers?: readonly number[]): T {
    checkTensors(operation.name, inputs);
    if (operation.host) {
      for (let i = 0; i < inputs.length; i++) {
        if (!takes(operation, i, inputs[i].dtype)) return this.made(operation.host(inputs, numbers ?? []));
      }
    }
    this.gpuOpsThisStep++;
    return this.engine.apply(operation, inputs, numbers);
  }

  /** Calls an operation with any number of outputs. */
  private callAll(operation: Operation, inputs: T[], numbers?: readonly number[]): DeviceTensor[] {
    checkTensors(operation.name, inputs);
    this.gpuOpsThisStep++;
    return this.engine.applyAll(operation, inputs, numbers);
  }

  /** Calls an operation that writes into its inputs. */
  private write(operation: Operation, inputs: T[], numbers?: readonly number[]): void {
    this.callAll(operation, [...inputs], numbers);
    for (const i of operation.writes) this.engine.changed(inputs[i]);
  }

  /** A tensor on the host. It is uploaded when the device first uses it. */
  private made({ shape, dtype, data }: host.HostTensor): T {
    return new DeviceTensor(this.engine, shape, dtype, data);
  }

  // Creation

  readonly zeros = (shape: Shape, dtype: Dtype = 'f32') => this.full(shape, 0, dtype);
  readonly ones = (shape: Shape, dtype: Dtype = 'f32') => this.full(shape, 1, dtype);
  readonly causalMask = (size: number) => this.made(host.causalMask(size));
  readonly dropoutMask = (shape: Shape, seed: number, counter: number, p: number) => this.made(host.dropoutMask(shape, seed, counter, p));
  readonly randn = (shape: Shape, dtype: Dtype = 'f32') => this.fromArray(host.normal(sizeOf(shape), this.random), shape, dtype);

  full(shape: Shape, value: number, dtype: Dtype = 'f32'): T {
    checkTensor('full', shape, dtype);
    if (dtype === 'f32' || dtype === 'i32') return new DeviceTensor(this.engine, [...shape], dtype, value);
    const data = hostArray(dtype, sizeOf(shape)).fill(dtype === 'f16' ? f16Bits(value) : value);
    return this.made({ shape: [...shape], dtype, data });
  }

  fromArray(data: ArrayLike<number>, shape: Shape, dtype: Dtype = 'f32'): T {
    checkTensor('fromArray', shape, dtype);
    if (data.length !== sizeOf(shape))
      throw new BackendError('fromArray', `shape ${show(shape)} takes ${sizeOf(shape)} elements, got ${data.length}`);
    return this.made(host.made([...shape], dtype, data));
  }

  // Arithmetic

  readonly add = (a: T, b: T) => this.call(op.ADD, [a, b]);
  readonly sub = (a: T, b: T) => this.call(op.SUB, [a, b]);
  readonly mul = (a: T, b: T) => this.call(op.MUL, [a, b]);
  readonly div = (a: T, b: T) => this.call(op.DIV, [a, b]);
  readonly neg = (a: T) => this.scale(a, -1);
  readonly exp = (a: T) => this.call(op.EXP, [a]);
  readonly log = (a: T) => this.call(op.LOG, [a]);
  readonly sqrt = (a: T) => this.call(op.SQRT, [a]);
  readonly clamp = (a: T, lo: number, hi: number) => this.call(op.CLAMP, [a], checkBounds('clamp', lo, hi));
  readonly clampBackward = (input: T, g: T, lo: number, hi: number) =>
    this.call(op.CLAMP_BACKWARD, [input, g], checkBounds('clampBackward', lo, hi));
  readonly addInplace = (a: T, b: T) => this.write(op.ADD_INPLACE, [a, b]);
  readonly scaleInplace = (a: T, scalar: number) => this.write(op.SCALE_INPLACE, [a], [scalar]);

  scale(a: T, s: number): T {
    checkTensors('scale', [a]);
    // A dispatch takes only finite numbers.
    return Number.isFinite(s) ? this.call(op.SCALE, [a], [s]) : this.made(host.map(a, (x) => x * s));
  }

  pow(a: T, exponent: number): T {
    if (exponent === 1) return this.scale(a, 1);
    if (exponent === 2) return this.call(op.SQUARE, [a]);
    if (exponent === -1) return this.call(op.RECIPROCAL, [a]);
    checkTensors('pow', [a]);
    return this.made(host.map(a, (x) => x ** exponent));
  }

  // Products

  readonly matmul = (a: T, b: T) => this.call(op.MATMUL, [a, b], [0, 0, this.code]);
  /** A Bᵀ. */
  readonly matmulTransposed = (a: T, b: T) => this.call(op.MATMUL, [a, b], [0, 1, this.code]);
  /** Aᵀ B. */
  readonly matmulTransposedA = (a: T, b: T) => this.call(op.MATMUL, [a, b], [1, 0, this.code]);

  // Reductions

  readonly sumOfSquares = (data: T) => this.call(op.SUM_OF_SQUARES, [data]);
  /** A scalar: 0 if every element is finite, else NaN. */
  readonly checkFinite = (data: T) => this.call(op.CHECK_FINITE, [data]);

  sum(a: T, axis?: number, keepdims = false): T {
    return this.total('sum', a, axis, keepdims, 1);
  }

  mean(a: T, axis?: number, keepdims = false): T {
    checkTensors('mean', [a]);
    const size = axis === undefined ? sizeOf(a.shape) : a.shape[axisOf('mean', axis, a.shape.length)];
    if (size === 0) throw new BackendError('mean', `${show(a.shape)} has no elements to take the mean of`);
    return this.total('mean', a, axis, keepdims, 1 / size);
  }

  private total(name: string, a: T, axis: number | undefined, keep: boolean, factor: number): T {
    checkTensors(name, [a]);
    return this.call(op.SUM, [a], [axis === undefined ? -1 : axisOf(name, axis, a.shape.length), keep ? 1 : 0, factor]);
  }

  totalSumOfSquares(tensors: T[]): T {
    return tensors.length === 0 ? this.zeros([]) : this.call(op.SUM_OF_SQUARES, [...tensors]);
  }

  // Networks

  readonly gelu = (a: T) => this.call(op.GELU, [a]);
  readonly relu = (a: T) => this.call(op.RELU, [a]);
  readonly silu = (a: T) => this.call(op.SILU, [a]);
  readonly geluBackward = (input: T, gradOutput: T) => this.call(op.GELU_BACKWARD, [input, gradOutput]);
  readonly reluBackward = (input: T, gradOutput: T) => this.call(op.RELU_BACKWARD, [input, gradOutput]);
  readonly siluBackward = (input: T, gradOutput: T) => this.call(op.SILU_BACKWARD, [input, gradOutput]);
  readonly siluMul = (a: T, b: T) => this.call(op.SILU_MUL, [a, b]);
  readonly siluMulBackward = (a: T, b: T, gradOutput: T): T[] => this.callAll(op.SILU_MUL_BACKWARD, [a, b, gradOutput]);
  readonly softCap = (input: T, cap: number) => this.call(op.SOFT_CAP, [input], [checkCap('softCap', cap)]);
  readonly softCapBackward = (gradOutput: T, input: T, cap: number) =>
    this.call(op.SOFT_CAP_BACKWARD, [input, gradOutput], [checkCap('softCapBackward', cap)]);
  readonly residualDropoutAdd = (residual: T, projected: T, mask: T) => this.call(op.RESIDUAL_DROPOUT_ADD, [residual, projected, mask]);
  readonly embedding = (weight: T, indices: T) => this.call(op.EMBEDDING, [weight, indices]);
  readonly embeddingBackward = (indices: T, g: T, vocabSize: number) => this.call(op.EMBEDDING_BACKWARD, [indices, g], [vocabSize]);
  readonly crossEntropy = (logits: T, targets: T) => this.call(op.CROSS_ENTROPY, [logits, targets]);

  crossEntropyBackward(logits: T, targets: T, gradOutput: T): T {
    const known = gradOutput instanceof DeviceTensor ? gradOutput.everywhere : undefined;
    if (known !== undefined) return this.call(op.CROSS_ENTROPY_BACKWARD, [logits, targets], [known]);
    return this.call(op.CROSS_ENTROPY_BACKWARD, [logits, targets, gradOutput], [1]);
  }

  layerNorm(x: T, weight: T, bias: T, eps: number): T {
    checkTensors('layerNorm', [x, weight, bias]);
    const input = this.engine.resident(x);
    const [y, statistics] = this.callAll(op.LAYER_NORM, [input, weight, bias], [eps]);
    if (input.statistics) this.engine.release(input.statistics.tensor);
    // The backward pass is given only the input, so the statistics are kept with it and released with it.
    input.statistics = { tensor: statistics, eps, version: input.storage?.version ?? 0 };
    return y;
  }

  layerNormBackward(x: T, weight: T, gradOutput: T, eps: number): { dx: T; dw: T; db: T } {
    checkTensors('layerNormBackward', [x, weight, gradOutput]);
    const input = this.engine.resident(x);
    const known = input.statistics;
    if (!known || known.eps !== eps || known.version !== input.storage?.version) {
      this.engine.release(this.layerNorm(input, weight, weight, eps));
    }
    const statistics = input.statistics?.tensor as DeviceTensor;
    const [dx, dw, db] = this.callAll(op.LAYER_NORM_BACKWARD, [input, weight, statistics, gradOutput]);
    return { dx, dw, db };
  }

  softmax(a: T, axis = -1): T {
    return this.alongLast(op.SOFTMAX, a, axis);
  }

  logSoftmax(a: T, axis = -1): T {
    return this.alongLast(op.LOG_SOFTMAX, a, axis);
  }

  private alongLast(operation: Operation, a: T, axis: number): T {
    checkTensors(operation.name, [a]);
    const at = axisOf(operation.name, axis, a.shape.length);
    const last = a.shape.length - 1;
    if (at === last) return this.call(operation, [a]);
    const made = [this.transpose(a, at, last)];
    try {
      made.push(this.call(operation, made.slice()));
      return this.transpose(made[1], at, last);
    } finally {
      for (const tensor of made) this.engine.release(tensor);
    }
  }

  flashAttention(q: T, k: T, v: T, tokens: number, scale: number, softCap: number): { output: T; lse: T } {
    const [output, lse] = this.callAll(ATTENTION, [q, k, v, this.attentionMask(tokens)], [scale, softCap, this.code]);
    return { output, lse };
  }

  flashAttentionBackward(
    q: T,
    k: T,
    v: T,
    output: T,
    dOutput: T,
    lse: T,
    tokens: number,
    scale: number,
    softCap: number,
  ): { dQ: T; dK: T; dV: T } {
    const inputs = [q, k, v, this.attentionMask(tokens), output, dOutput, lse];
    const [dQ, dK, dV] = this.callAll(ATTENTION_BACKWARD, inputs, [scale, softCap, this.code]);
    return { dQ, dK, dV };
  }

  private attentionMask(tokens: number): T {
    let mask = this.masks.get(tokens);
    if (!mask) this.masks.set(tokens, (mask = this.causalMask(tokens)));
    return mask;
  }

  // Shapes

  readonly transpose = (a: T, dim0: number, dim1: number) => this.call(op.TRANSPOSE, [a], [dim0, dim1]);
  readonly slice = (a: T, starts: number[], ends: number[]) => this.call(op.SLICE, [a], [...starts, ...ends]);
  readonly broadcast = (a: T, targetShape: Shape) => this.call(op.BROADCAST, [a], [...targetShape]);
  readonly clone = (a: T) => this.call(op.CLONE, [a]);

  reshape(a: T, shape: Shape): T {
    checkTensors('reshape', [a]);
    checkTensor('reshape', shape, a.dtype);
    if (sizeOf(shape) !== sizeOf(a.shape))
      throw new BackendError('reshape', `${show(a.shape)} has ${sizeOf(a.shape)} elements, ${show(shape)} takes ${sizeOf(shape)}`);
    if (a.dtype === 'f64') return this.made({ shape: [...shape], dtype: a.dtype, data: a.data.slice() });
    return this.engine.placed('reshape', a).view([...shape]);
  }

  sliceQkv(a: T): [T, T, T] {
    checkTensors('sliceQkv', [a]);
    const [rows, columns] = a.shape;
    const own = columns / 3;
    if (a.shape.length !== 2 || columns % 3) throw new BackendError('sliceQkv', `${show(a.shape)}: expected [rows, 3 · columns]`);
    const parts: T[] = [];
    try {
      for (let i = 0; i < 3; i++) parts.push(this.slice(a, [0, i * own], [rows, (i + 1) * own]));
    } catch (error) {
      for (const part of parts) this.engine.release(part);
      throw error;
    }
    return parts as [T, T, T];
  }

  scatterSlice(grad: T, origShape: Shape, starts: number[], ends: number[]): T {
    return this.call(op.SCATTER_SLICE, [grad], [...origShape, ...starts, ...ends]);
  }

  cat(tensors: T[], axis: number): T {
    if (!Array.isArray(tensors) || tensors.length === 0) throw new BackendError('cat', 'expected a list of at least one tensor');
    checkTensors('cat', tensors);
    return this.call(op.CAT, [...tensors], [axisOf('cat', axis, tensors[0].shape.length)]);
  }

  castDtype(a: T, dtype: Dtype): T {
    checkTensors('castDtype', [a]);
    checkTensor('castDtype', a.shape, dtype);
    if (a.dtype === dtype) return a;
    const device = (a.dtype === 'f32' && dtype === 'f16') || (a.dtype === 'f16' && dtype === 'f32');
    const size = sizeOf(a.shape);
    // The kernel takes 16-bit elements in pairs, and at least one pair.
    if (device && size > 0 && size % 2 === 0) return this.call(op.CAST, [a]);
    return this.fromArray(host.numbersOf(a), a.shape, dtype);
  }

  // On the host

  argmax(a: T, axis?: number): T {
    checkTensors('argmax', [a]);
    return this.made(host.argmax(a, axis));
  }

  gather(a: T, axis: number, indices: T): T {
    checkTensors('gather', [a, indices]);
    return this.made(host.gather(a, axis, indices));
  }

  topk(a: T, k: number, axis = -1): { values: T; indices: T } {
    checkTensors('topk', [a]);
    const { values, indices } = host.topk(a, k, axis);
    return { values: this.made(values), indices: this.made(indices) };
  }

  equal(a: T, b: T): boolean {
    checkTensors('equal', [a, b]);
    return a.dtype === b.dtype && sameShape(a.shape, b.shape) && host.every(a, b, (x, y) => x === y);
  }

  allClose(a: T, b: T, atol = 1e-5, rtol = 1e-8): boolean {
    checkTensors('allClose', [a, b]);
    return sameShape(a.shape, b.shape) && host.every(a, b, (x, y) => x === y || Math.abs(x - y) <= atol + rtol * Math.abs(y));
  }

  /** a with `value` where the mask is not 0. The mask is broadcast to a. */
  maskedFill(a: T, mask: T, value: number): T {
    checkTensors('maskedFill', [a, mask]);
    // On the host: a product with the mask would let an infinity or a NaN below it through.
    return this.made(host.zip('maskedFill', a, mask, (x, m) => (m !== 0 ? value : x), a.dtype));
  }

  // Training

  adamwStep(
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
    gradScale = 1,
  ): void {
    const numbers = [lr, beta1, beta2, eps, weightDecay, bc1, bc2, gradScale];
    let state = this.states.find((known) => sameNumbers(known.numbers, numbers));
    if (!state) {
      const data = op.adamwState(numbers);
      state = { numbers, tensor: this.made({ shape: [data.length], dtype: 'f32', data }) };
      this.states.push(state);
    }
    this.write(op.ADAMW, [params, grads, m, v, state.tensor]);
  }

  /** Ends a step: submits what was called. The next step may run as a recorded graph. */
  flush(): void {
    for (const { tensor } of this.states) this.engine.release(tensor);
    this.states = [];
    this.engine.endStep();
  }

  /** Waits until the device has run everything that was called. */
  syncGpu(): void {
    this.engine.finish();
  }

  /** Releases a tensor's device memory. Using the tensor afterwards is an error. */
  releaseGpuTensor(tensor: T): void {
    this.engine.release(tensor);
  }

  /** Returns memory that is kept for reuse to the device. */
  purgeBufferPools(): void {
    this.engine.finish();
    this.engine.pool.trim();
  }

  resetStepOps(): void {
    this.gpuOpsThisStep = 0;
  }

  /** Counts of steps, of those replayed from graphs, of recordings and of steps that differed from the recorded one; bytes kept for reuse. */
  captureStats(): { steps: number; replayed: number; recorded: number; differed: number; poolBytes: number } {
    return { ...this.engine.counts, poolBytes: this.engine.pool.bytes };
  }
}
