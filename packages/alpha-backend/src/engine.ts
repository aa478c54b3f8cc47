// Turns calls into dispatches. A call takes memory from a pool and appends records, packed once for each operation and shape, to a list
// that is submitted as a whole. Where step after step makes the same calls, they are one launch of a recorded graph (`capture.ts`).
//
// A call that throws, for instance because the device is out of memory, has changed nothing and can be made again: every method does
// first what may fail.

import type { BufferHandle } from 'helios-vk';
import { Recorder, createKernels, type Kernels, type Template } from 'helios-vk/kernels';

import { FREED, INPUT, Log, READ, Trace } from './capture.js';
import { type Allocation, type Native, Pool, Storage, type Stream, isOutOfMemory } from './memory.js';
import { CLONE, FILL } from './operations.js';
import { type Described, type Operation, type Plan, Plans } from './plan.js';
import { DeviceTensor } from './tensor.js';
import { BYTES, BackendError, type TensorArray, type TensorData, show, sizeOf } from './types.js';

/** Dispatches after which the list is submitted. */
const LIST = 256;
/** A step with more events is not recorded, so that a program that never ends a step does not fill the memory with them. */
const MAX_EVENTS = 1 << 18;
/** How many released tensors of one element can still be read in a step. */
const READABLE = 256;
/** Steps in a row that differ from the recorded one before it is given up. */
const DIFFERENT = 3;

const NO_NUMBERS: readonly number[] = [];

/** Memory of a storage. It returns to the pool when the storage is garbage collected, unless it is not `live` any more. */
type Held = Allocation & { live?: boolean };

export class Engine implements Stream {
  readonly kernels: Kernels;
  readonly pool: Pool;
  /** Steps; those of them that were replayed from graphs; recordings; steps that differed from the recorded one. */
  readonly counts = { steps: 0, replayed: 0, recorded: 0, differed: 0 };
  /** How many storages were made, in all and before this step. */
  serial = 0;
  firstSerial = 0;
  /** The recorded step; `following` is the same while the current step equals it. */
  private trace: Trace | undefined;
  private following: Trace | undefined;
  /** Whether the current step has executed anything. */
  private worked = false;
  /** Events of the current step, if it may be recorded, and of the step before it. */
  private log: Log | undefined;
  private previous: Log | undefined;
  /** Steps in a row that differed. */
  private differed = 0;
  /** Dispatches that have not been submitted. */
  private readonly list = new Recorder(1 << 16);
  private readonly plans: Plans;
  /** Released tensors of one element, whose memory is kept to the end of the step: the trainer reads its loss after its tape has released it. */
  private readonly late: DeviceTensor[] = [];
  /** Device copies of host tensors. */
  private readonly residents = new WeakMap<TensorData, DeviceTensor>();
  private readonly registry: FinalizationRegistry<Held>;

  constructor(
    readonly vk: Native,
    private capturing: boolean,
  ) {
    // The kernels cannot check sizes: their arguments are slots, not buffers. By construction the sizes are those of the tensors.
    this.kernels = createKernels(vk, { check: false });
    this.plans = new Plans(this.kernels);
    this.pool = new Pool(vk, this.relieve);
    if (capturing) this.log = new Log();
    this.registry = new FinalizationRegistry((allocation) => {
      if (allocation.live) this.giveBack(allocation);
    });
  }

  /** Frees idle memory. Dispatches that have not been submitted may use it, so they are submitted first. */
  readonly relieve = (): void => {
    this.submit();
    this.pool.trim();
  };

  /**
   * Calls an operation.
   * @param x its inputs; the engine keeps the list
   * @returns its first output
   */
  apply(op: Operation, x: TensorData[], n: readonly number[] = NO_NUMBERS): DeviceTensor {
    const inputs = this.allPlaced(op, x);
    const recorded = this.following?.call(op, inputs, n);
    return recorded ? this.renewed(recorded.outputs[0]) : this.execute(op, inputs, n)[0];
  }

  /** Calls an operation. @returns all its outputs, perhaps none */
  applyAll(op: Operation, x: TensorData[], n: readonly number[] = NO_NUMBERS): DeviceTensor[] {
    const inputs = this.allPlaced(op, x);
    const recorded = this.following?.call(op, inputs, n);
    return recorded ? recorded.outputs.map((output) => this.renewed(output)) : this.execute(op, inputs, n);
  }

  /** The next output of the recorded step. */
  private renewed({ shape, dtype }: Described): DeviceTensor {
    return new DeviceTensor(this, shape, dtype, (this.following as Trace).renew());
  }

  private execute(op: Operation, x: readonly DeviceTensor[], n: readonly number[]): DeviceTensor[] {
    const plan = this.plans.of(op, x, n);
    this.makeRoom();
    const allocations = this.takeAll(plan);
    const outputs: DeviceTensor[] = [];
    for (let i = 0; i < allocations.length; i++) {
      const { shape, dtype } = plan.outputs[i];
      outputs.push(new DeviceTensor(this, shape, dtype, this.newStorage(allocations[i])));
    }
    const storages = x.map(({ storage }) => storage as Storage);
    const handles = storages.map(({ allocation }) => allocation.handle);
    for (const { handle } of allocations) handles.push(handle);
    this.append(plan.template, handles);
    for (const i of op.writes) storages[i].version++;
    this.worked = true;
    this.note(plan, storages);
    return outputs;
  }

  private note(plan: Plan, x: readonly Storage[]): void {
    this.log?.add(plan, x, this.firstSerial);
    if (this.log && this.log.plans.length > MAX_EVENTS) this.log = undefined;
  }

  /** Allocates the outputs of a plan: all, or on failure none. */
  private takeAll({ outputs }: Plan): Allocation[] {
    const taken: Allocation[] = [];
    try {
      for (const { shape, dtype } of outputs) taken.push(this.pool.take(sizeOf(shape) * BYTES[dtype]));
    } catch (error) {
      for (const allocation of taken) this.pool.give(allocation);
      throw error;
    }
    return taken;
  }

  append(template: Template, handles: readonly BufferHandle[]): void {
    template.appendTo(this.list, handles);
  }

  /** Submits the list if it is full. */
  private makeRoom(): void {
    if (this.list.count >= LIST) this.submit();
  }

  copy(from: Allocation, to: Allocation): void {
    const words: Described = { shape: [from.bytes / 4], dtype: 'f32' };
    this.append(this.plans.of(CLONE, [words], NO_NUMBERS).template, [from.handle, to.handle]);
  }

  submit(): void {
    const { list } = this;
    if (list.count === 0) return;
    this.vk.batchExecuteAll(new Uint8Array(list.view.buffer, 0, list.length), list.count);
    list.length = 0;
    list.count = 0;
  }

  private newStorage(allocation: Allocation): Storage {
    const storage = new Storage(allocation, this.serial++);
    this.own(storage, allocation);
    return storage;
  }

  own(storage: Storage, allocation: Held): void {
    storage.allocation = allocation;
    allocation.live = true;
    this.registry.register(storage, allocation);
  }

  copyOut(storage: Storage): void {
    const from = storage.allocation;
    this.own(storage, this.pool.take(from.bytes));
    this.copy(from, storage.allocation);
  }

  giveBack(allocation: Held): void {
    allocation.live = false;
    this.pool.give(allocation);
  }

  // Host tensors

  private allPlaced(op: Operation, x: TensorData[]): DeviceTensor[] {
    for (let i = 0; i < x.length; i++) x[i] = this.placed(op.name, x[i]);
    return x as DeviceTensor[];
  }

  /** A tensor with its memory on the device. */
  placed(call: string, tensor: TensorData): DeviceTensor {
    const own = this.resident(tensor);
    if (own.released) throw new BackendError(call, 'a tensor that was released (releaseGpuTensor) is used');
    if (own.storage === undefined) {
      const { pending, shape, dtype } = own;
      own.uploaded(
        typeof pending === 'number'
          ? (this.apply(FILL, [], [pending, dtype === 'f32' ? 0 : 1, ...shape]).storage as Storage)
          : this.input(pending),
      );
    }
    return own;
  }

  /** Uploads data. */
  input(data: ArrayBufferView): Storage {
    const recorded = this.following?.input(data);
    if (recorded) return recorded;
    const plan = this.plans.of(INPUT, [], [data.byteLength]);
    const allocation = this.pool.take(data.byteLength);
    try {
      // Dispatches that have not been submitted may use the same memory.
      this.submit();
      this.vk.uploadBuffer(allocation.handle, data);
    } catch (error) {
      this.pool.give(allocation);
      throw error;
    }
    this.worked = true;
    this.note(plan, []);
    return this.newStorage(allocation);
  }

  /** A tensor as the device's: itself, or the copy of a host tensor, which is uploaded on first use. */
  resident(tensor: TensorData): DeviceTensor {
    if (tensor instanceof DeviceTensor) {
      if (tensor.engine !== this) throw new BackendError('tensor', 'it is of another backend: pass its data instead (fromArray)');
      return tensor;
    }
    let own = this.residents.get(tensor);
    if (own === undefined) {
      const { shape, dtype, data } = tensor;
      if (data.length !== sizeOf(shape))
        throw new BackendError('tensor', `shape ${show(shape)} takes ${sizeOf(shape)} elements, data has ${data.length}`);
      own = new DeviceTensor(this, shape, dtype, this.input(data));
      this.residents.set(tensor, own);
    }
    return own;
  }

  /** Makes `data` of a host tensor read from the device, which has changed its elements. */
  changed(tensor: TensorData): void {
    if (tensor instanceof DeviceTensor) return;
    const own = this.residents.get(tensor);
    if (!own || own.changed) return;
    own.changed = true;
    Object.defineProperty(tensor, 'data', { get: () => own.data, configurable: true, enumerable: true });
  }

  /** Waits for everything that was called, and reads a tensor's elements. */
  read(tensor: DeviceTensor, storage: Storage): TensorArray {
    this.following?.read(storage);
    this.submit();
    if (this.inStep(storage)) this.note(READ, [storage]);
    const raw = this.vk.readBuffer(storage.allocation.handle);
    const size = sizeOf(tensor.shape);
    if (tensor.dtype === 'f32') return raw.subarray(0, size);
    const kind = tensor.dtype === 'f16' ? Uint16Array : tensor.dtype === 'i32' ? Int32Array : Float64Array;
    return new kind(raw.buffer as ArrayBuffer, raw.byteOffset, size);
  }

  /** Releases a tensor's memory, if it has any. */
  release(tensor: TensorData): void {
    const own = tensor instanceof DeviceTensor ? tensor : this.residents.get(tensor);
    if (own === undefined || own.released) return;
    if (own !== tensor && own.changed) {
      // The host tensor keeps what the device wrote.
      Object.defineProperty(tensor, 'data', { value: own.data.slice(), configurable: true, enumerable: true, writable: true });
    }
    if (own.storage && own.storage.serial >= this.firstSerial && sizeOf(own.shape) === 1) {
      if (this.late.length >= READABLE) this.dropLate();
      this.late.push(own);
    } else this.drop(own);
    own.released = true;
    if (own !== tensor) this.residents.delete(tensor);
  }

  private dropLate(): void {
    this.drop(this.late[0]);
    this.late.shift();
  }

  private drop(own: DeviceTensor): void {
    const { storage, statistics } = own;
    if (statistics) this.release(statistics.tensor);
    own.statistics = undefined;
    // Only then counted down: `free` may end the replay, which still needs to see it in use.
    if (storage?.shares === 1) this.free(storage);
    if (storage) storage.shares--;
    own.storage = undefined;
  }

  private free(storage: Storage): void {
    if (this.following?.freed(storage)) return;
    if (this.inStep(storage)) this.note(FREED, [storage]);
    this.giveBack(storage.allocation);
  }

  /** Whether a read or release belongs to the step. Those of earlier values, before the step has done anything, belong to none. */
  private inStep(storage: Storage): boolean {
    return this.worked || storage.serial >= this.firstSerial;
  }

  // Steps

  /** Ends a step: submits everything that was called. The next step may be a replay. */
  endStep(): void {
    while (this.late.length > 0) this.dropLate();
    const { log, previous } = this;
    if (this.following ? this.following.idle : !this.worked) {
      this.submit();
      return;
    }
    const replayed = this.following?.finish();
    this.submit();
    this.counts.steps++;
    if (replayed) {
      this.counts.replayed++;
      this.differed = 0;
    }
    if (this.trace && !this.following && ++this.differed >= DIFFERENT) {
      this.trace.destroy();
      this.trace = undefined;
      this.differed = 0;
    }
    if (log && previous && log.plans.length > 8 && log.equals(previous)) this.record(log);
    this.previous = this.trace ? undefined : log;
    this.worked = false;
    this.firstSerial = this.serial;
    this.trace?.begin();
    this.following = this.trace;
    this.log = this.capturing && !this.trace ? new Log() : undefined;
  }

  /** Records a step, to compare the next ones with it. Without memory for that, recording is given up and steps run call by call. */
  private record(log: Log): void {
    // The recorded step has memory of its own, for which the memory that the step has released makes room.
    this.pool.trim();
    try {
      this.trace = new Trace(this, log);
      this.counts.recorded++;
    } catch (error) {
      if (!isOutOfMemory(error)) throw error;
      this.capturing = false;
    }
  }

  /** Executes the rest of the step call by call: it differs from the recorded one. */
  leave(): void {
    this.following = undefined;
    this.worked = true;
    this.counts.differed++;
  }

  /** Waits until everything that was called has run. */
  finish(): void {
    if (this.following?.idle === false) this.following.interrupt();
    this.submit();
    this.vk.waitIdle();
  }
}
