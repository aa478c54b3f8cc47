// Device tensors.

import { Storage } from './memory.js';
import { type Dtype, type Shape, type TensorArray, type TensorData, BackendError, hostArray, sizeOf } from './types.js';

/** What reads elements back from the device. */
interface Reader {
  read(tensor: DeviceTensor, storage: Storage): TensorArray;
}

/**
 * A device tensor. One that was made by `zeros`, `ones`, `full` or from data is uploaded when the device first uses it; until then its
 * `data` may be written into.
 */
export class DeviceTensor implements TensorData {
  /** Undefined before it is uploaded and after it is released. */
  storage: Storage | undefined;
  released = false;
  /** Whether it is the copy of a host tensor that the device has written, so that the host tensor's `data` reads it. */
  changed = false;
  /** Statistics that `layerNorm` of this tensor computed, for its backward pass. */
  statistics: { tensor: DeviceTensor; eps: number; version: number } | undefined = undefined;
  /** The elements on the host, or one value that all of them have. */
  private host: TensorArray | number | undefined;
  /** The version of the storage that `host` is a copy of. */
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

  /** The elements. If they are on the device, waits for it and returns a copy: writing into the copy does not change the tensor. */
  get data(): TensorArray {
    const { storage } = this;
    if (storage === undefined && this.released) throw new BackendError('data', 'the tensor was released (releaseGpuTensor)');
    if (storage !== undefined && (typeof this.host !== 'object' || this.hostVersion !== storage.version)) {
      this.host = this.engine.read(this, storage);
      this.hostVersion = storage.version;
    }
    // An array, no longer one value: the caller may write into it.
    if (typeof this.host !== 'object') this.host = hostArray(this.dtype, sizeOf(this.shape)).fill(this.host ?? 0);
    return this.host;
  }

  /** The value that all elements have, if it is known without a read. A gradient of `ones` needs no dispatch then. */
  get everywhere(): number | undefined {
    // Unknown if it was written in place since, perhaps through a view.
    return typeof this.host === 'number' && (this.storage === undefined || this.storage.version === 0) ? this.host : undefined;
  }

  /** What has to be uploaded before the device can use the tensor: its elements, or one value that all of them have. */
  get pending(): TensorArray | number {
    return this.host ?? 0;
  }

  /** Sets the storage to which `pending` was uploaded. */
  uploaded(storage: Storage): void {
    this.storage = storage;
    this.hostVersion = storage.version;
  }

  /** Another tensor with the same storage. */
  view(shape: Shape): DeviceTensor {
    const { storage } = this;
    if (storage === undefined) throw new BackendError('reshape', 'the tensor was released (releaseGpuTensor)');
    storage.shares++;
    return new DeviceTensor(this.engine, shape, this.dtype, storage);
  }
}
