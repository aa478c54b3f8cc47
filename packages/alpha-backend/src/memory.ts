// Memory of the device: buffers by size, kept for reuse, and what tensors share of it.

import type { BufferHandle } from 'helios-vk';
import type { Template } from 'helios-vk/kernels';

/** The native module. */
export type Native = typeof import('helios-vk');

/** Sizes are multiples of this, in bytes. */
const UNIT = 256;

/** Whether an error says that the device is out of memory. */
export const isOutOfMemory = (error: unknown): boolean => (error as { code?: string }).code === 'ERR_HELIOS_OUT_OF_MEMORY';

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
    /** Counts storages: a later one has a larger number. */
    public serial: number,
  ) {}
}

/** The device as a recorded step sees it: what `Engine` does call by call. */
export interface Stream {
  readonly vk: Native;
  /** The number of the next storage, and of the first one of this step. */
  serial: number;
  readonly firstSerial: number;
  readonly pool: Pool;
  /** Gives back what can be given back, where memory is short. */
  readonly relieve: () => void;
  /** Adds dispatches to those that wait. */
  append(template: Template, handles: readonly BufferHandle[]): void;
  /** Submits the dispatches that wait. Where that fails none of them has run, and they still wait. */
  submit(): void;
  /** Copies a buffer to another of its size. */
  copy(from: Allocation, to: Allocation): void;
  /** Gives a storage memory of its own, which goes back with it. */
  own(storage: Storage, allocation: Allocation): void;
  /** Moves a storage out of a recorded step's memory. */
  copyOut(storage: Storage): void;
  giveBack(allocation: Allocation): void;
  /** Goes on call by call: the recorded step is left. */
  leave(): void;
}

/** Buffers by size, kept for reuse. */
export class Pool {
  /** Of what is kept. */
  bytes = 0;
  private readonly free = new Map<number, BufferHandle[]>();
  /** All that exist, in use or free. */
  private readonly made = new Set<BufferHandle>();
  constructor(
    private readonly vk: Native,
    /** Called where the device is out of memory: gives back what is idle. */
    private readonly relieve: () => void,
  ) {}

  take(bytes: number): Allocation {
    const size = Math.max(UNIT, Math.ceil(bytes / UNIT) * UNIT);
    const handle = this.free.get(size)?.pop();
    if (handle === undefined) return { handle: this.create(size), bytes: size };
    this.bytes -= size;
    return { handle, bytes: size };
  }

  give({ handle, bytes }: Allocation): void {
    const list = this.free.get(bytes);
    if (list) list.push(handle);
    else this.free.set(bytes, [handle]);
    this.bytes += bytes;
  }

  /** Destroys what is not in use. */
  trim(): void {
    for (const handles of this.free.values()) for (const handle of handles) this.discard(handle);
    this.free.clear();
    this.bytes = 0;
  }

  /** Destroys all. */
  destroy(): void {
    for (const handle of this.made) this.discard(handle);
    this.free.clear();
  }

  private discard(handle: BufferHandle): void {
    this.made.delete(handle);
    this.vk.destroyBuffer(handle);
  }

  private create(size: number): BufferHandle {
    let handle: BufferHandle;
    try {
      handle = this.vk.createBuffer(size, 0);
    } catch (error) {
      if (!isOutOfMemory(error)) throw error;
      this.relieve();
      handle = this.vk.createBuffer(size, 0);
    }
    this.made.add(handle);
    return handle;
  }
}
