// Tensors of the device.

import { Storage } from './memory.js';
import { type Dtype, type Shape, type TensorArray, type TensorData, BackendError, hostArray, sizeOf } from './types.js';

/** What reads elements back from the device. */
interface Reader {
  read(tensor: DeviceTensor, storage: Storage): TensorArray;
}

/**
 * A tensor of the device. One that was made by `zeros`, `ones` or `full`, or from data, begins on the host, where its array
 * may be written into until the device first uses it.
 */
export class DeviceTensor implements TensorData {
  /** Undefined before the device has it, and after it was released. */
  storage: Storage | undefined;
  released = false;
  /** It is the device's copy of a tensor of the host, whose `data` reads it from here since the device wrote it. */
  changed = false;
  /** The normalized input's statistics, by `layerNorm` for its backward pass. */
  statistics: { tensor: DeviceTensor; eps: number; version: number } | undefined = undefined;
  /** The elements on the host, or the value that all of them have. */
  private host: TensorArray | number | undefined;
  private hostVersion = 0;

  constructor(
    readonly engine: Reader,
    readonly shape: Shape,
    readonly dtype: Dtype,
    source: Storage | TensorArray | number,
  ) {
    if (source instanceof Storage) this.storage = source;
    else this.host = source;
  }

  /** The elements. Waits for the device where they are there; the array is then a copy, and writing into it changes nothing. */
  get data(): TensorArray {
    const { storage } = this;
    if (storage === undefined && this.released) throw new BackendError('data', 'the tensor was released (releaseGpuTensor)');
    if (storage !== undefined && (typeof this.host !== 'object' || this.hostVersion !== storage.version)) {
      this.host = this.engine.read(this, storage);
      this.hostVersion = storage.version;
    }
    // From here on the caller may write into it.
    if (typeof this.host !== 'object') this.host = hostArray(this.dtype, sizeOf(this.shape)).fill(this.host ?? 0);
    return this.host;
  }

  /** Every element, where that is known: `ones` as a gradient costs nothing. */
  get everywhere(): number | undefined {
    // Not where it was written in place since, perhaps through a view.
    return typeof this.host === 'number' && (this.storage === undefined || this.storage.version === 0) ? this.host : undefined;
  }

  /** What the device must be given before it can use the tensor: elements, or the value that all of them have. */
  get pending(): TensorArray | number {
    return this.host ?? 0;
  }

  /** The tensor is on the device now, as the host has it. */
  settle(storage: Storage): void {
    this.storage = storage;
    this.hostVersion = storage.version;
  }

  /** Another tensor of the same elements. */
  view(shape: Shape): DeviceTensor {
    const { storage } = this;
    if (storage === undefined) throw new BackendError('reshape', 'the tensor was released (releaseGpuTensor)');
    storage.shares++;
    return new DeviceTensor(this.engine, shape, this.dtype, storage);
  }
}
