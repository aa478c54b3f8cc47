// The words of the trainer's `Backend` interface that this package shares with it, structurally.

/** Element types of the trainer. The device computes in f32; f16 is storage; i32 are ids; f64 is the host's alone. */
export type Dtype = 'f32' | 'f64' | 'i32' | 'f16';

/** Sizes, outermost first; `[]` is a scalar. */
export type Shape = readonly number[];

/** Elements on the host; f16 as raw bits. */
export type TensorArray = Float32Array | Float64Array | Int32Array | Uint16Array;

/** What the trainer's code sees of a tensor. Reading `data` of one on the device waits for the device. */
export interface TensorData {
  readonly shape: Shape;
  readonly dtype: Dtype;
  readonly data: TensorArray;
}

/** How products are computed; weights and their gradients are f32 in every case. */
export type Precision = 'f32' | 'bf16' | 'f16';

/** Bytes of an element. */
export const BYTES: Record<Dtype, number> = { f32: 4, f64: 8, i32: 4, f16: 2 };

/** Elements of a shape. */
export function sizeOf(shape: Shape): number {
  let size = 1;
  for (let i = 0; i < shape.length; i++) size *= shape[i];
  return size;
}

/** A new array on the host. */
export function hostArray(dtype: Dtype, size: number): TensorArray {
  if (dtype === 'f32') return new Float32Array(size);
  if (dtype === 'i32') return new Int32Array(size);
  return dtype === 'f64' ? new Float64Array(size) : new Uint16Array(size);
}

/** An error of a call, with the call's name in front. */
export class BackendError extends Error {
  override name = 'BackendError';
  constructor(
    readonly call: string,
    message: string,
  ) {
    super(`${call}: ${message}`);
  }
}

/** `[2, 3]`, for messages. */
export const show = (shape: Shape): string => `[${shape.join(', ')}]`;

/** @throws BackendError for sizes that no tensor has, and a type that the trainer does not know */
export function checkTensor(call: string, shape: Shape, dtype: Dtype): void {
  if (!Array.isArray(shape)) throw new BackendError(call, `shape must be an array of sizes, got ${String(shape)}`);
  for (const size of shape) {
    if (!(Number.isSafeInteger(size) && size >= 0)) throw new BackendError(call, `shape ${show(shape)}: sizes must be integers from 0`);
  }
  if (!Object.hasOwn(BYTES, dtype)) {
    throw new BackendError(call, `dtype must be one of ${Object.keys(BYTES).join(', ')}, got ${String(dtype)}`);
  }
}

/** @throws BackendError for an argument that is no tensor */
export function checkTensors(call: string, x: readonly TensorData[]): void {
  for (const tensor of x) if (!Array.isArray(tensor?.shape)) throw new BackendError(call, `expected a tensor, got ${String(tensor)}`);
}
