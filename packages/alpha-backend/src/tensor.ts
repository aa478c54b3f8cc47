// Tensors of the device, and the memory that they share.

import type { BufferHandle } from 'helios-vk';

import type { Engine } from './engine.js';
import { type Dtype, type Shape, type TensorArray, type TensorData, BackendError, hostArray, sizeOf } from './types.js';

/** A buffer of the device. */
export interface Allocation {
  handle: BufferHandle;
  bytes: number;
}

/** Memory that one or several tensors are of; given back when the last of them is released. */
export class Storage {
  /** Tensors of it that have not been released. */
  shares = 1;
  /** Counts writes in place: a copy on the host is of a version. */
  version = 0;
  constructor(
    public allocation: Allocation,
    /** Counts storages. */
    readonly serial: number,
  ) {}
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
  /** Every element, as it was made. */
  private constant: number | undefined;
  /** The normalized input's statistics, by `layerNorm` for its backward pass. */
  statistics: { tensor: DeviceTensor; eps: number; version: number } | undefined;
  private host: TensorArray | undefined;
  private hostVersion = 0;

  constructor(
    readonly engine: Engine,
    readonly shape: Shape,
    readonly dtype: Dtype,
    source: Storage | TensorArray | number,
  ) {
    if (typeof source === 'number') this.constant = source;
    else if (source instanceof Storage) this.storage = source;
    else this.host = source;
  }

  /** The elements. Waits for the device where they are there; the array is then a copy, and writing into it changes nothing. */
  get data(): TensorArray {
    const { storage } = this;
    if (storage === undefined) {
      if (this.released) throw new BackendError('data', 'the tensor was released (releaseGpuTensor)');
      if (this.host === undefined) {
        this.host = hostArray(this.dtype, sizeOf(this.shape)).fill(this.constant ?? 0);
        // From here on the caller may write into it.
        this.constant = undefined;
      }
      return this.host;
    }
    if (this.host === undefined || this.hostVersion !== storage.version) {
      this.host = this.engine.read(this, storage);
      this.hostVersion = storage.version;
    }
    return this.host;
  }

  /** Every element, where that is known: `ones` as a gradient costs nothing. */
  get everywhere(): number | undefined {
    // Written in place since, perhaps through a view.
    return this.storage === undefined || this.storage.version === 0 ? this.constant : undefined;
  }

  /** What the device must be given before it can use the tensor: elements or the constant that all are. */
  get pending(): TensorArray | number {
    return this.host ?? this.constant ?? 0;
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
