// Types of the trainer's `Backend` interface. They are declared again here, since TypeScript compares them by structure.

/** Element types of the trainer. The device computes in f32, stores f16, and reads i32 as ids; f64 exists only on the host. */
export type Dtype = 'f32' | 'f64' | 'i32' | 'f16';

/** Sizes, outermost first; `[]` is a scalar. */
export type Shape = readonly number[];

/** Elements on the host; f16 as their bits. */
export type TensorArray = Float32Array | Float64Array | Int32Array | Uint16Array;

/** A tensor as the trainer sees it. Reading `data` of a device tensor waits for the device. */
export interface TensorData {
  readonly shape: Shape;
  readonly dtype: Dtype;
  readonly data: TensorArray;
}

/** Type that products are computed in. Weights and gradients are always f32. */
export type Precision = 'f32' | 'bf16' | 'f16';

/** Bytes of an element, by type. */
export const BYTES: Record<Dtype, number> = { f32: 4, f64: 8, i32: 4, f16: 2 };

/** Number of elements of a shape. */
export function sizeOf(shape: Shape): number {
  let size = 1;
  for (let i = 0; i < shape.length; i++) size *= shape[i];
  return size;
}

/** A new array on the host, of zeros. */
export function hostArray(dtype: Dtype, size: number): TensorArray {
  if (dtype === 'f32') return new Float32Array(size);
  if (dtype === 'i32') return new Int32Array(size);
  return dtype === 'f64' ? new Float64Array(size) : new Uint16Array(size);
}

/** An error of a call; its message begins with the call's name. */
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

/** @throws BackendError if a size is not an integer from 0, or the trainer has no such type */
export function checkTensor(call: string, shape: Shape, dtype: Dtype): void {
  if (!Array.isArray(shape)) throw new BackendError(call, `shape must be an array of sizes, got ${String(shape)}`);
  for (const size of shape) {
    if (!(Number.isSafeInteger(size) && size >= 0)) throw new BackendError(call, `shape ${show(shape)}: sizes must be integers from 0`);
  }
  if (!Object.hasOwn(BYTES, dtype)) {
    throw new BackendError(call, `dtype must be one of ${Object.keys(BYTES).join(', ')}, got ${String(dtype)}`);
  }
}

/** @throws BackendError if an argument is not a tensor */
export function checkTensors(call: string, x: readonly TensorData[]): void {
  for (const tensor of x) if (!Array.isArray(tensor?.shape)) throw new BackendError(call, `expected a tensor, got ${String(tensor)}`);
}
