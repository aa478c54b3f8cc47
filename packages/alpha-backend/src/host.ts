// Operations on the host: those that no training step calls, and those on types that the device does not compute in.

import { f16Bits, f16Value } from 'helios-vk/kernels';

import { axisOf, broadcastShapes, broadcastStrides, stridesOf, type View } from './shapes.js';
import { BackendError, type Dtype, type Shape, type TensorArray, type TensorData, hostArray, show, sizeOf } from './types.js';

/** A tensor on the host. */
export interface HostTensor {
  shape: Shape;
  dtype: Dtype;
  data: TensorArray;
}

/** The elements of a tensor as numbers, whatever its type. */
export function numbersOf({ dtype, data }: TensorData): ArrayLike<number> {
  return dtype === 'f16' ? Float64Array.from(data as Uint16Array, f16Value) : data;
}

/** A tensor with these elements. */
export function made(shape: Shape, dtype: Dtype, values: ArrayLike<number>): HostTensor {
  const data = hostArray(dtype, values.length);
  for (let i = 0; i < values.length; i++) data[i] = dtype === 'f16' ? f16Bits(values[i]) : values[i];
  return { shape, dtype, data };
}

/** The type of a result of two types: the first of f64, f32, f16, i32 that is one of them. */
function commonType(a: Dtype, b: Dtype): Dtype {
  for (const dtype of ['f64', 'f32', 'f16', 'i32'] as const) if (a === dtype || b === dtype) return dtype;
  return 'f32';
}

/** Whether f holds for every pair of elements. */
export function every(a: TensorData, b: TensorData, f: (x: number, y: number) => boolean): boolean {
  const [x, y] = [numbersOf(a), numbersOf(b)];
  for (let i = 0; i < x.length; i++) if (!f(x[i], y[i])) return false;
  return true;
}

/** f of every element. */
export function map(a: TensorData, f: (x: number) => number): HostTensor {
  return made(a.shape, a.dtype, Float64Array.from(numbersOf(a), f));
}

/** f of every pair, with broadcasting. */
export function zip(call: string, a: TensorData, b: TensorData, f: (x: number, y: number) => number, dtype?: Dtype): HostTensor {
  const shape = broadcastShapes(call, a.shape, b.shape);
  const [sa, sb] = [a, b].map((x) => broadcastStrides(x.shape, shape));
  const [x, y] = [numbersOf(a), numbersOf(b)];
  const values = new Float64Array(sizeOf(shape));
  walk(shape, (index, i) => {
    values[i] = f(x[dot(index, sa)], y[dot(index, sb)]);
  });
  return made(shape, dtype ?? commonType(a.dtype, b.dtype), values);
}

/** Visits every index of a shape, in row-major order. */
function walk(shape: Shape, visit: (index: readonly number[], i: number) => void): void {
  const index = shape.map(() => 0);
  const size = sizeOf(shape);
  for (let i = 0; i < size; i++) {
    visit(index, i);
    for (let d = shape.length - 1; d >= 0 && ++index[d] === shape[d]; d--) index[d] = 0;
  }
}
const dot = (index: readonly number[], strides: readonly number[]) => index.reduce((sum, at, d) => sum + at * strides[d], 0);

/** Gathers: the output at `index` is element `from(index)` of a. */
function pick(a: TensorData, shape: Shape, from: (index: readonly number[]) => number): HostTensor {
  const data = hostArray(a.dtype, sizeOf(shape));
  walk(shape, (index, i) => {
    data[i] = a.data[from(index)];
  });
  return { shape, dtype: a.dtype, data };
}

/** The elements of a view. */
export function strided(a: TensorData, { shape, strides, offset }: View): HostTensor {
  return pick(a, shape, (index) => offset + dot(index, strides));
}

/** Concatenates tensors along an axis. */
export function cat(tensors: readonly TensorData[], shape: Shape, axis: number): HostTensor {
  const strides = stridesOf(shape);
  const data = hostArray(tensors[0].dtype, sizeOf(shape));
  let offset = 0;
  for (const tensor of tensors) {
    walk(tensor.shape, (index, i) => {
      data[offset + dot(index, strides)] = tensor.data[i];
    });
    offset += tensor.shape[axis] * strides[axis];
  }
  return { shape, dtype: tensors[0].dtype, data };
}

/** factor · the sum over an axis, or over all elements (axis −1), in float64. */
export function sum(a: TensorData, axis: number, keep: boolean, factor: number): HostTensor {
  const gone = (d: number) => axis < 0 || d === axis;
  const kept = a.shape.map((size, d) => (gone(d) ? 1 : size));
  const strides = stridesOf(kept).map((stride, d) => (gone(d) ? 0 : stride));
  const values = numbersOf(a);
  const totals = new Float64Array(sizeOf(kept));
  walk(a.shape, (index, i) => {
    totals[dot(index, strides)] += values[i];
  });
  return made(
    keep ? kept : a.shape.filter((_, d) => !gone(d)),
    a.dtype,
    totals.map((total) => total * factor),
  );
}

/** The k largest elements along an axis and their positions, in descending order; of equal elements the first comes first. */
export function topk(a: TensorData, k: number, axis: number): { values: HostTensor; indices: HostTensor } {
  const at = axisOf('topk', axis, a.shape.length);
  const size = a.shape[at];
  if (!(Number.isInteger(k) && k >= 1 && k <= size))
    throw new BackendError('topk', `k = ${k}: must be an integer from 1 to ${size}, the size of axis ${at}`);
  const shape = a.shape.map((n, d) => (d === at ? k : n));
  const inner = sizeOf(a.shape.slice(at + 1));
  const numbers = numbersOf(a);
  const values = hostArray(a.dtype, sizeOf(shape));
  const indices = new Int32Array(values.length);
  for (let line = 0; line < values.length / k; line++) {
    const [outer, column] = [Math.floor(line / inner), line % inner];
    const from = (i: number) => (outer * size + i) * inner + column;
    const order = Array.from({ length: size }, (_, i) => i).sort((x, y) => numbers[from(y)] - numbers[from(x)] || x - y);
    for (let i = 0; i < k; i++) {
      const to = (outer * k + i) * inner + column;
      values[to] = a.data[from(order[i])];
      indices[to] = order[i];
    }
  }
  return { values: { shape, dtype: a.dtype, data: values }, indices: { shape, dtype: 'i32', data: indices } };
}

/** Positions of the largest elements along an axis, or of the largest of all. */
export function argmax(a: TensorData, axis: number | undefined): HostTensor {
  const x = axis === undefined ? { shape: [sizeOf(a.shape)], dtype: a.dtype, data: a.data } : a;
  const at = axisOf('argmax', axis ?? 0, x.shape.length);
  const { indices } = topk(x, 1, at);
  const rest = x.shape.filter((_, d) => d !== at);
  return { ...indices, shape: axis !== undefined && rest.length === 0 ? [1] : rest };
}

/** The output at `index` is a at `index`, with the component of `axis` replaced by `indices` at `index`. */
export function gather(a: TensorData, axis: number, indices: TensorData): HostTensor {
  const at = axisOf('gather', axis, a.shape.length);
  if (indices.shape.length !== a.shape.length)
    throw new BackendError('gather', `indices ${show(indices.shape)} must have as many dimensions as ${show(a.shape)}`);
  const strides = stridesOf(a.shape);
  const own = stridesOf(indices.shape);
  return pick(a, indices.shape, (index) => {
    const place = indices.data[dot(index, own)];
    if (!(place >= 0 && place < a.shape[at]))
      throw new BackendError('gather', `index ${place} is outside of axis ${at}, which has ${a.shape[at]} elements`);
    return dot(index, strides) + (place - index[at]) * strides[at];
  });
}

/** [size, size]: 0 up to the diagonal, −∞ behind it. */
export function causalMask(size: number): HostTensor {
  const data = new Float32Array(size * size);
  for (let i = 0; i < size; i++) data.fill(Number.NEGATIVE_INFINITY, i * size + i + 1, (i + 1) * size);
  return { shape: [size, size], dtype: 'f32', data };
}

/** 1 / (1 − p) where the trainer's hash of seed, counter and position keeps the element, else 0. */
export function dropoutMask(shape: Shape, seed: number, counter: number, p: number): HostTensor {
  const data = new Float32Array(sizeOf(shape));
  const kept = 1 / (1 - p);
  const base = (seed + Math.imul(counter, 2654435761)) | 0;
  for (let i = 0; i < data.length; i++) {
    let h = (base + Math.imul(i, 2246822519)) | 0;
    h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
    h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
    data[i] = ((h ^ (h >>> 16)) >>> 0) / 2 ** 32 > p ? kept : 0;
  }
  return { shape: [...shape], dtype: 'f32', data };
}

/** Standard normal numbers, by the Box–Muller transform of `random`. */
export function normal(size: number, random: () => number): Float32Array {
  const data = new Float32Array(size);
  for (let i = 0; i < size; i += 2) {
    const radius = Math.sqrt(-2 * Math.log(1 - random()));
    const angle = 2 * Math.PI * random();
    data[i] = radius * Math.cos(angle);
    if (i + 1 < size) data[i + 1] = radius * Math.sin(angle);
  }
  return data;
}

/** Uniform numbers in [0, 1) from a seed (mulberry32, public domain). */
export function uniform(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}
