// Device memory: buffers that are kept for reuse, and storages, which tensors share.

import type { BufferHandle } from 'helios-vk';
import type { Template } from 'helios-vk/kernels';

/** The native module. */
export type Native = typeof import('helios-vk');

/** Sizes of buffers are multiples of this, in bytes. */
const UNIT = 256;

/** Whether an error is the addon's for a device that is out of memory. */
export const isOutOfMemory = (error: unknown): boolean => (error as { code?: string }).code === 'ERR_HELIOS_OUT_OF_MEMORY';

/** A buffer of the device. */
export interface Allocation {
  handle: BufferHandle;
  bytes: number;
}

/** Memory of one or more tensors, returned when the last of them is released. */
export class Storage {
  /** How many tensors use it. */
  shares = 1;
  /** Counts writes in place, so that a copy on the host knows whether it is current. */
  version = 0;
  constructor(
    public allocation: Allocation,
    /** Its number, in the order in which storages were made. */
    public serial: number,
  ) {}
}

/** What a recorded step needs of `Engine`. */
export interface Stream {
  readonly vk: Native;
  /** The numbers of the next storage and of the first one of this step. */
  serial: number;
  readonly firstSerial: number;
  readonly pool: Pool;
  /** Frees idle memory. */
  readonly relieve: () => void;
  /** Appends dispatches to the list. */
  append(template: Template, handles: readonly BufferHandle[]): void;
  /** Submits the list. If that throws, none of its dispatches has run and the list is kept. */
  submit(): void;
  /** Copies a buffer to another of its size. */
  copy(from: Allocation, to: Allocation): void;
  /** Gives a storage this memory, which is returned with it. */
  own(storage: Storage, allocation: Allocation): void;
  /** Copies a storage out of a recorded step's memory, into memory of its own. */
  copyOut(storage: Storage): void;
  /** Returns memory to the pool. */
  giveBack(allocation: Allocation): void;
  /** Leaves the recorded step: the rest runs call by call. */
  leave(): void;
}

/** Buffers by size, kept for reuse. */
export class Pool {
  /** Bytes of free buffers. */
  bytes = 0;
  private readonly free = new Map<number, BufferHandle[]>();
  /** All buffers, in use or free. */
  private readonly made = new Set<BufferHandle>();
  constructor(
    private readonly vk: Native,
    /** Called if the device is out of memory, to free some; the allocation is then tried once more. */
    private readonly relieve: () => void,
  ) {}

  /** A free buffer of this size, or a new one. */
  take(bytes: number): Allocation {
    const size = Math.max(UNIT, Math.ceil(bytes / UNIT) * UNIT);
    const handle = this.free.get(size)?.pop();
    if (handle === undefined) return { handle: this.create(size), bytes: size };
    this.bytes -= size;
    return { handle, bytes: size };
  }

  /** Keeps a buffer for reuse. */
  give({ handle, bytes }: Allocation): void {
    const list = this.free.get(bytes);
    if (list) list.push(handle);
    else this.free.set(bytes, [handle]);
    this.bytes += bytes;
  }

  /** Destroys the free buffers. */
  trim(): void {
    for (const handles of this.free.values()) for (const handle of handles) this.discard(handle);
    this.free.clear();
    this.bytes = 0;
  }

  /** Destroys all buffers. */
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
