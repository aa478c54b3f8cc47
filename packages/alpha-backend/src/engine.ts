// Calls become dispatches here: memory from a pool, records packed once for each operation and shape, lists of them
// submitted together, and, where step after step makes the same calls, one launch of a recorded graph (`capture.ts`).

import type { BufferHandle } from 'helios-vk';
import { Recorder, SLOT, Template, createKernels, type Dispatches, type Kernels } from 'helios-vk/kernels';

import { type Event, Trace, placeOf, sameEvents } from './capture.js';
import { COPY } from './operations.js';
import { type Allocation, DeviceTensor, Storage } from './tensor.js';
import { BYTES, BackendError, type Dtype, type Shape, type TensorArray, type TensorData, sizeOf } from './types.js';

/** The native module. */
export type Native = typeof import('helios-vk');

/** A tensor argument of an operation: a slot of its template. */
export interface Operand {
  readonly buffer: number;
  readonly shape: Shape;
  readonly dtype: Dtype;
}

/** What an operation makes. */
export interface Output {
  readonly shape: Shape;
  readonly dtype: Dtype;
}

/** An operation of the device: what it makes of its inputs, and by which dispatches. Numbers are all else it depends on. */
export interface Operation {
  readonly name: string;
  infer(x: readonly Operand[], n: readonly number[]): readonly Output[];
  lower(k: Kernels, x: readonly Operand[], y: readonly Operand[], n: readonly number[]): Dispatches[];
  /** Types of its inputs; f32 where nothing is said. */
  readonly types?: readonly (Dtype | 'f32 or f16')[];
  /** Inputs that it writes. */
  readonly writes?: readonly number[];
}

/** An operation for some shapes. */
export interface Plan {
  readonly outputs: readonly Output[];
  readonly template: Template;
}

/** Memory is counted in these. */
const UNIT = 256;
/** Dispatches that are submitted together. */
const LIST = 256;
/** Events of a step that can be recorded: a program that never ends a step does not fill the memory with them. */
const MAX_EVENTS = 1 << 18;
/** Tensors of one element that can still be read after they were released in this step. */
const READABLE = 256;
/** Steps in a row that differ from the recorded one before it is given up. */
const DIFFERENT = 3;

/** Records of an operation that are kept. */
const MAX_PLANS = 2048;

const NO_NUMBERS: readonly number[] = [];

/** Buffers by size, kept for reuse. */
export class Pool {
  readonly free = new Map<number, BufferHandle[]>();
  /** All that exist, in use or free. */
  readonly made = new Set<BufferHandle>();
  bytes = 0;
  constructor(
    readonly vk: Native,
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
      if ((error as { code?: string }).code !== 'ERR_HELIOS_OUT_OF_MEMORY') throw error;
      this.relieve();
      handle = this.vk.createBuffer(size, 0);
    }
    this.made.add(handle);
    return handle;
  }
}

export class Engine {
  readonly kernels: Kernels;
  readonly pool: Pool;
  /** Dispatches that wait for a submission. */
  readonly list = new Recorder(1 << 16);
  /** Steps, how many of them were launched as recorded graphs, recordings made, and steps that left theirs half-way. */
  readonly counts = { steps: 0, replayed: 0, recorded: 0, differed: 0 };
  /** The recorded step, and whether this one follows it so far. */
  trace: Trace | undefined;
  following = false;
  /** Storages made so far; the first of this step. */
  serial = 0;
  firstSerial = 0;
  /** Whether this step has done anything. */
  private worked = false;
  /** What this step did, where it may be recorded; what the one before it did. */
  private log: Event[] | undefined;
  private previous: Event[] | undefined;
  private differed = 0;
  private readonly plans = new Map<Operation, Map<string, Plan>>();
  private readonly handles: number[] = [];
  /** Tensors of one element whose memory goes with the step: the trainer reads its loss after its tape has released it. */
  private readonly late: DeviceTensor[] = [];
  /** Device copies of tensors of the host. */
  private readonly residents = new WeakMap<TensorData, DeviceTensor>();
  private readonly registry: FinalizationRegistry<Allocation & { live?: boolean }>;

  constructor(
    readonly vk: Native,
    private capturing: boolean,
  ) {
    // What is packed names slots, not buffers; sizes are those of the tensors by construction.
    this.kernels = createKernels(vk, { check: false });
    this.pool = new Pool(vk, this.relieve);
    if (capturing) this.log = [];
    this.registry = new FinalizationRegistry((allocation) => {
      if (allocation.live) this.giveBack(allocation);
    });
  }

  /** Gives back idle memory. What waits may name it, and goes first. */
  readonly relieve = (): void => {
    this.submit();
    this.pool.trim();
  };

  /**
   * Calls an operation.
   * @returns its outputs
   */
  apply(op: Operation, x: readonly DeviceTensor[], n: readonly number[] = NO_NUMBERS): DeviceTensor[] {
    for (const tensor of x) if (tensor.storage === undefined || tensor.released) this.place(op.name, tensor);
    if (this.following) {
      const made = this.trace?.call(op, x, n);
      if (made) return made;
    }
    return this.execute(op, x, n);
  }

  private execute(op: Operation, x: readonly DeviceTensor[], n: readonly number[]): DeviceTensor[] {
    const plan = this.planOf(op, x, n);
    const { handles, serial } = this;
    const outputs = plan.outputs.map(({ shape, dtype }) => this.make(shape, dtype));
    for (let i = 0; i < x.length; i++) handles[i] = (x[i].storage as Storage).allocation.handle;
    for (let i = 0; i < outputs.length; i++) handles[x.length + i] = (outputs[i].storage as Storage).allocation.handle;
    this.append(plan.template, handles);
    for (const i of op.writes ?? []) (x[i].storage as Storage).version++;
    this.worked = true;
    if (this.log) {
      this.note({
        kind: 'call',
        op,
        plan,
        n: [...n],
        x: x.map(({ storage }) => placeOf(storage as Storage, this.firstSerial)),
        handles: handles.slice(0, x.length),
        shapes: x.map(({ shape }) => shape),
        types: x.map(({ dtype }) => dtype),
        y: serial - this.firstSerial,
      });
    }
    return outputs;
  }

  private note(event: Event): void {
    if (this.log && this.log.push(event) > MAX_EVENTS) this.log = undefined;
  }

  private planOf(op: Operation, x: readonly DeviceTensor[], n: readonly number[]): Plan {
    let plans = this.plans.get(op);
    if (!plans) this.plans.set(op, (plans = new Map()));
    let key = '';
    for (const value of n) key += Object.is(value, -0) ? '-0,' : `${value},`;
    for (const { shape, dtype } of x) key += `|${dtype === 'f32' ? '' : dtype}${shape.join()}`;
    let plan = plans.get(key);
    if (!plan) {
      x.forEach(({ dtype }, i) => {
        const expected = op.types?.[i] ?? 'f32';
        if (dtype !== expected && !(expected === 'f32 or f16' && dtype !== 'i32' && dtype !== 'f64')) {
          throw new BackendError(op.name, `argument ${i + 1} is ${dtype}, expected ${expected}`);
        }
      });
      const operand = ({ shape, dtype }: Output, i: number): Operand => ({ buffer: SLOT + i, shape, dtype });
      const inputs = x.map(operand);
      const outputs = op.infer(inputs, n);
      const results = outputs.map((output, i) => operand(output, x.length + i));
      plan = { outputs, template: new Template(...op.lower(this.kernels, inputs, results, n)) };
      // Numbers that are never the same would fill it.
      if (plans.size >= MAX_PLANS) plans.clear();
      plans.set(key, plan);
    }
    return plan;
  }

  append(template: Template, handles: ArrayLike<number>): void {
    template.appendTo(this.list, handles);
    if (this.list.count >= LIST) this.submit();
  }

  /** Submits the dispatches that wait. */
  submit(): void {
    const { list } = this;
    const { count } = list;
    if (count === 0) return;
    const bytes = new Uint8Array(list.view.buffer, 0, list.length);
    list.length = 0;
    list.count = 0;
    this.vk.batchExecuteAll(bytes, count);
  }

  /** A new tensor with undefined contents. */
  private make(shape: Shape, dtype: Dtype): DeviceTensor {
    return new DeviceTensor(this, shape, dtype, this.newStorage(sizeOf(shape) * BYTES[dtype]));
  }

  private newStorage(bytes: number): Storage {
    return this.own(new Storage(this.pool.take(bytes), this.serial++), undefined);
  }

  /** Gives a storage memory of its own, which goes back with it. */
  own(storage: Storage, allocation: Allocation | undefined): Storage {
    if (allocation) storage.allocation = allocation;
    const held = storage.allocation as Allocation & { live?: boolean };
    held.live = true;
    this.registry.register(storage, held);
    return storage;
  }

  /** Moves a storage out of a recorded step's memory. */
  copyOut(storage: Storage): void {
    const from = storage.allocation;
    this.own(storage, this.pool.take(from.bytes));
    this.append(COPY.templateOf(this.kernels, from.bytes), [from.handle, storage.allocation.handle]);
  }

  giveBack(allocation: Allocation & { live?: boolean }): void {
    allocation.live = false;
    this.pool.give(allocation);
  }

  /** Brings a tensor of the host to the device. */
  private place(call: string, tensor: DeviceTensor): void {
    if (tensor.released) throw new BackendError(call, 'a tensor that was released (releaseGpuTensor)');
    const { pending, shape, dtype } = tensor;
    if (typeof pending === 'number') {
      const [filled] = this.apply(FILL, [], [pending, dtype === 'f32' ? 0 : 1, ...shape]);
      tensor.settle(filled.storage as Storage);
    } else tensor.settle(this.input(pending));
  }

  /** Data of the host on the device. */
  input(data: ArrayBufferView): Storage {
    if (this.following) {
      const storage = this.trace?.input(data.byteLength);
      if (storage) {
        this.vk.uploadBuffer(storage.allocation.handle, data);
        return storage;
      }
    }
    const storage = this.newStorage(data.byteLength);
    // What waits may use the same memory.
    this.submit();
    this.vk.uploadBuffer(storage.allocation.handle, data);
    this.worked = true;
    this.note({ kind: 'input', bytes: data.byteLength, slot: storage.serial - this.firstSerial });
    return storage;
  }

  /** The device's copy of a tensor: itself, or what was uploaded of a tensor of the host. */
  resident(tensor: TensorData): DeviceTensor {
    if (tensor instanceof DeviceTensor) {
      if (tensor.engine !== this) throw new BackendError('tensor', 'it is of another backend: hand over its data');
      return tensor;
    }
    let own = this.residents.get(tensor);
    if (own === undefined) {
      const { shape, dtype, data } = tensor;
      if (data.length !== sizeOf(shape)) {
        throw new BackendError('tensor', `${data.length} elements of data for shape [${shape.join(', ')}]`);
      }
      own = new DeviceTensor(this, shape, dtype, this.input(data));
      this.residents.set(tensor, own);
    }
    return own;
  }

  /** A tensor on the device, for a call that makes no dispatch. */
  placed(call: string, tensor: TensorData): DeviceTensor {
    const own = this.resident(tensor);
    if (own.storage === undefined || own.released) this.place(call, own);
    return own;
  }

  /** A tensor of the host whose elements the device has changed: `data` reads them from there. */
  changed(tensor: TensorData): void {
    if (tensor instanceof DeviceTensor) return;
    const own = this.residents.get(tensor);
    if (!own || own.changed) return;
    own.changed = true;
    Object.defineProperty(tensor, 'data', { get: () => own.data, configurable: true, enumerable: true });
  }

  /** The elements of a tensor, as they are once everything called so far has run. */
  read(tensor: DeviceTensor, storage: Storage): TensorArray {
    if (this.following) this.trace?.read(storage);
    this.submit();
    if (this.inStep(storage)) this.note({ kind: 'read', of: placeOf(storage, this.firstSerial) });
    const raw = this.vk.readBuffer(storage.allocation.handle);
    const size = sizeOf(tensor.shape);
    if (tensor.dtype === 'f32') return raw.subarray(0, size);
    const kind = tensor.dtype === 'f16' ? Uint16Array : tensor.dtype === 'i32' ? Int32Array : Float64Array;
    return new kind(raw.buffer as ArrayBuffer, raw.byteOffset, size);
  }

  /** Gives back a tensor's memory; nothing for one that has none. */
  release(tensor: TensorData): void {
    const own = tensor instanceof DeviceTensor ? tensor : this.residents.get(tensor);
    if (own === undefined || own.released) return;
    if (own !== tensor) {
      // What the device has changed outlives its copy there.
      if (own.changed) {
        Object.defineProperty(tensor, 'data', { value: own.data.slice(), configurable: true, enumerable: true, writable: true });
      }
      this.residents.delete(tensor);
    }
    own.released = true;
    if (own.storage && own.storage.serial >= this.firstSerial && sizeOf(own.shape) === 1) {
      if (this.late.push(own) > READABLE) this.drop(this.late.shift() as DeviceTensor);
    } else this.drop(own);
  }

  private drop(own: DeviceTensor): void {
    const { storage, statistics } = own;
    own.storage = undefined;
    own.statistics = undefined;
    if (statistics) this.release(statistics.tensor);
    if (storage === undefined) return;
    // Counted down after that: the step may have to be carried out with it first.
    if (storage.shares === 1) this.free(storage);
    storage.shares--;
  }

  private free(storage: Storage): void {
    if (this.following && this.trace?.freed(storage)) return;
    if (this.inStep(storage)) this.note({ kind: 'freed', of: placeOf(storage, this.firstSerial) });
    this.giveBack(storage.allocation);
  }

  /** Whether something done to a storage is part of the step; between steps, what earlier ones left is read and released. */
  private inStep(storage: Storage): boolean {
    return this.worked || storage.serial >= this.firstSerial;
  }

  /** The end of a step: everything called so far is submitted, and the next step may be a recorded one. */
  endStep(): void {
    for (const tensor of this.late.splice(0)) this.drop(tensor);
    const { log, previous } = this;
    if (this.trace && this.following ? this.trace.idle : !this.worked) {
      this.submit();
      return;
    }
    this.counts.steps++;
    if (this.trace && this.following && this.trace.finish()) {
      this.counts.replayed++;
      this.differed = 0;
    }
    this.submit();
    if (this.trace && !this.following && ++this.differed >= DIFFERENT) {
      this.trace.destroy();
      this.trace = undefined;
      this.differed = 0;
    }
    const equal = log && previous && log.length > 8 && sameEvents(log, previous);
    if (equal) this.record(log);
    this.previous = this.trace ? undefined : log;
    this.worked = false;
    this.firstSerial = this.serial;
    this.trace?.begin();
    this.following = this.trace !== undefined;
    this.log = this.capturing && !this.trace ? [] : undefined;
  }

  /** From now on steps are compared with this one. Where the device has no room for that, they go on call by call. */
  private record(events: Event[]): void {
    // The step has given its memory back; a recorded one has its own.
    this.pool.trim();
    try {
      this.trace = new Trace(this, events);
      this.counts.recorded++;
    } catch (error) {
      if ((error as { code?: string }).code !== 'ERR_HELIOS_OUT_OF_MEMORY') throw error;
      this.capturing = false;
    }
  }

  /** The step differs from the recorded one: from here on it is carried out call by call. */
  leave(): void {
    this.following = false;
    this.counts.differed++;
  }

  /** Everything that was called has run. */
  finish(): void {
    if (this.following && this.trace?.idle === false) this.trace.interrupt();
    this.submit();
    this.vk.waitIdle();
  }
}

/** A tensor of one value: [value, 1 for integers, …shape]. */
export const FILL: Operation = {
  name: 'full',
  infer: (_, [, integers, ...shape]) => [{ shape, dtype: integers ? 'i32' : 'f32' }],
  lower: (k, _, [y], [value, integers]) => [
    k.fill({ y, count: Math.max(1, sizeOf(y.shape)), value: integers ? value >>> 0 : value, type: integers ? 'u32' : 'f32' }),
  ],
};
