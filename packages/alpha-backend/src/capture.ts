// A step of training makes the same calls as the step before it. Once two have, the next is recorded: what each call was
// given and made, in order. From then on a call is only compared with the recorded one, and the dispatches of the whole step
// run as one launch of a graph (as several, where values are read in between). A call that differs ends that: what was
// compared and not yet launched is carried out call by call, and so is the rest of the step, with the same result.
//
// What differs from step to step without being a difference is data: ids, dropout seeds, learning rates all travel in
// buffers (`Engine.input`).

import type { GraphHandle } from 'helios-vk';
import { Recorder } from 'helios-vk/kernels';

import { type Engine, type Operation, type Plan, Pool } from './engine.js';
import { COPY } from './operations.js';
import { type Allocation, DeviceTensor, Storage } from './tensor.js';
import type { Dtype, Shape } from './types.js';

/** A storage: one made in the step, by its slot, or one from before. */
type Reference = number | Storage;

/** What happened in the recorded step. */
type Event =
  | {
      kind: 'call';
      op: Operation;
      plan: Plan;
      x: Reference[];
      shapes: Shape[];
      from: Dtype[];
      n: readonly number[];
      y: number[];
      types: Dtype[];
    }
  | { kind: 'input'; bytes: number; slot: number }
  | { kind: 'read'; of: Reference }
  | { kind: 'freed'; of: Reference };

/** Tells steps apart: two hashes of everything that a step did. */
export class Fingerprint {
  count = 0;
  private a = 0x811c9dc5;
  private b = 0x9e3779b9;

  private add(value: number): void {
    this.a = Math.imul(this.a ^ value, 0x01000193);
    this.b = Math.imul(this.b ^ (value + 0x7f4a7c15), 0x85ebca6b);
    this.b ^= this.b >>> 13;
  }

  private number(value: number): void {
    FLOAT[0] = value;
    this.add(BITS[0]);
    this.add(BITS[1]);
  }

  call(op: Operation, x: readonly DeviceTensor[], n: readonly number[], firstSerial: number): void {
    this.count++;
    for (let i = 0; i < op.name.length; i++) this.add(op.name.charCodeAt(i));
    for (const { storage, shape, dtype } of x) {
      this.number(placeOf(storage as Storage, firstSerial));
      this.add(dtype.charCodeAt(0) * 64 + dtype.charCodeAt(1));
      for (const size of shape) this.add(size);
    }
    for (const value of n) this.number(value);
  }

  event(kind: number, value: number): void {
    this.count++;
    this.add(kind);
    this.number(value);
  }

  get value(): string {
    return `${this.count}:${this.a}:${this.b}`;
  }
}
/** A storage among those of its step, or, of earlier ones, by itself. */
export const placeOf = ({ serial }: Storage, firstSerial: number): number => (serial >= firstSerial ? serial - firstSerial : -1 - serial);

const FLOAT = new Float64Array(1);
const BITS = new Int32Array(FLOAT.buffer);

/** A step that is being recorded while it is carried out. */
export class Capture {
  private readonly events: Event[] = [];
  private readonly storages: Storage[] = [];
  private readonly allocations: Allocation[] = [];
  /** Slots that data is uploaded into. */
  private readonly inputs = new Set<number>();
  /** Memory of this step alone. */
  readonly pool: Pool;

  constructor(private readonly engine: Engine) {
    this.pool = new Pool(engine.vk, engine.relieve);
  }

  private refer(storage: Storage): Reference {
    return this.storages[storage.slot] === storage ? storage.slot : storage;
  }

  /** A storage of the step. What data is uploaded into is no other value's: the upload comes before the whole graph. */
  storage(bytes: number, input: boolean, serial: number): Storage {
    const storage = new Storage(input ? new Pool(this.engine.vk, this.engine.relieve).take(bytes) : this.pool.take(bytes), serial);
    storage.slot = this.storages.length;
    if (input) this.inputs.add(storage.slot);
    this.storages.push(storage);
    this.allocations.push(storage.allocation);
    return storage;
  }

  call(op: Operation, x: readonly DeviceTensor[], n: readonly number[], y: readonly DeviceTensor[], plan: Plan): void {
    this.events.push({
      kind: 'call',
      op,
      plan,
      x: x.map(({ storage }) => this.refer(storage as Storage)),
      shapes: x.map(({ shape }) => shape),
      from: x.map(({ dtype }) => dtype),
      n: [...n],
      y: y.map(({ storage }) => (storage as Storage).slot),
      types: y.map(({ dtype }) => dtype),
    });
  }

  input(storage: Storage, bytes: number): void {
    this.events.push({ kind: 'input', bytes, slot: storage.slot });
  }

  read(storage: Storage): void {
    const of = this.refer(storage);
    // Before the first call an earlier step's tensors may be read and released: no part of the step.
    if (this.events.length > 0 || typeof of === 'number') this.events.push({ kind: 'read', of });
  }

  /** @returns whether the storage was of this step */
  freed(storage: Storage): boolean {
    const of = this.refer(storage);
    if (this.events.length > 0 || typeof of === 'number') this.events.push({ kind: 'freed', of });
    if (typeof of !== 'number') return false;
    if (!this.inputs.has(of)) this.pool.give(storage.allocation);
    return true;
  }

  /** The recorded step; what is still in use gets memory of its own. Undefined where the device has no room for it. */
  finish(): Trace | undefined {
    const { engine, storages } = this;
    let trace: Trace | undefined;
    try {
      trace = new Trace(engine, this.events, this.allocations);
      trace.escape(storages);
      engine.submit();
      return trace;
    } catch (error) {
      if ((error as { code?: string }).code !== 'ERR_HELIOS_OUT_OF_MEMORY') throw error;
      // The step has run: its values keep the memory that they have, and later steps go on call by call.
      const used = new Set<number>();
      for (const storage of storages) {
        if (storage.shares === 0) continue;
        if (storage.slot >= 0) engine.own(storage, undefined);
        used.add(storage.allocation.handle);
      }
      trace?.destroy(used);
      engine.stopCapturing();
      return undefined;
    }
  }
}

/** A recorded step. */
export class Trace {
  private at = 0;
  /** Events before this one have been launched. */
  private launched = 0;
  private graph = 0;
  private readonly graphs: (GraphHandle | undefined)[] = [];
  /** The storages of this step, by slot. */
  private current: Storage[] = [];
  /** Memory from before that this step has given back. */
  private given: Allocation[] = [];

  constructor(
    private readonly engine: Engine,
    private readonly events: readonly Event[],
    private readonly allocations: readonly Allocation[],
  ) {
    const list = new Recorder(1 << 16);
    const handles: number[] = [];
    const handle = (of: Reference) => (typeof of === 'number' ? allocations[of] : of.allocation).handle;
    const { vk } = engine;
    const end = () => {
      if (list.count === 0) {
        this.graphs.push(undefined);
        return;
      }
      vk.graphBegin();
      try {
        vk.batchExecuteAll(new Uint8Array(list.view.buffer, 0, list.length), list.count);
      } finally {
        this.graphs.push(vk.graphEnd());
      }
      list.length = 0;
      list.count = 0;
    };
    for (const event of events) {
      if (event.kind === 'call') {
        for (let i = 0; i < event.x.length; i++) handles[i] = handle(event.x[i]);
        for (let i = 0; i < event.y.length; i++) handles[event.x.length + i] = handle(event.y[i]);
        event.plan.template.appendTo(list, handles);
      } else if (event.kind === 'read') end();
    }
    end();
  }

  /** A step begins. */
  begin(): void {
    this.at = 0;
    this.launched = 0;
    this.graph = 0;
    this.current = [];
  }

  /** Whether nothing of this step has been compared yet. */
  get idle(): boolean {
    return this.at === 0;
  }

  private is(of: Reference, storage: Storage | undefined): boolean {
    return storage === (typeof of === 'number' ? this.current[of] : of);
  }

  private renew(slot: number): Storage {
    const storage = new Storage(this.allocations[slot], this.engine.serial++);
    storage.slot = slot;
    this.current[slot] = storage;
    return storage;
  }

  /** Compares a call. @returns its outputs, or undefined where the step is no longer the recorded one */
  call(op: Operation, x: readonly DeviceTensor[], n: readonly number[]): DeviceTensor[] | undefined {
    const event = this.events[this.at];
    if (event?.kind !== 'call' || event.op !== op || !sameNumbers(event.n, n) || event.x.length !== x.length) return this.interrupt();
    for (let i = 0; i < x.length; i++) {
      const { storage, shape, dtype } = x[i];
      if (!this.is(event.x[i], storage) || dtype !== event.from[i] || !sameNumbers(event.shapes[i], shape)) return this.interrupt();
    }
    this.at++;
    const { writes } = op;
    if (writes) for (const i of writes) (x[i].storage as Storage).version++;
    const { y, plan, types } = event;
    const outputs: DeviceTensor[] = new Array(y.length);
    for (let i = 0; i < y.length; i++) {
      outputs[i] = new DeviceTensor(this.engine, plan.outputs[i].shape, types[i], this.renew(y[i]));
    }
    return outputs;
  }

  /** Compares an upload. @returns where its data goes */
  input(bytes: number): Storage | undefined {
    const event = this.events[this.at];
    if (event?.kind !== 'input' || event.bytes !== bytes) return this.interrupt();
    this.at++;
    return this.renew(event.slot);
  }

  /** Runs what comes before a read. */
  read(storage: Storage): void {
    // Between steps: nothing is under way.
    if (this.at === 0 && storage.slot < 0) return;
    const event = this.events[this.at];
    if (event?.kind !== 'read' || !this.is(event.of, storage)) {
      this.interrupt();
      return;
    }
    this.at++;
    this.launch();
  }

  /** Compares the end of a storage. @returns whether its memory is of the recorded step or will be given back with it */
  freed(storage: Storage): boolean {
    const event = this.events[this.at];
    if (event?.kind !== 'freed' || !this.is(event.of, storage)) {
      // Between steps what an earlier one left may go.
      if (this.at > 0 || storage.slot >= 0) this.interrupt();
      return false;
    }
    this.at++;
    // Calls that have not been launched may use it.
    if (typeof event.of !== 'number') this.given.push(storage.allocation);
    return true;
  }

  private launch(): void {
    const graph = this.graphs[this.graph++];
    if (graph !== undefined) {
      this.engine.submit();
      this.engine.vk.graphLaunch(graph);
    }
    this.launched = this.at;
  }

  /** The step ends. @returns whether it was the recorded one */
  finish(): boolean {
    if (this.at !== this.events.length) {
      this.interrupt();
      return false;
    }
    this.launch();
    this.escape(this.current);
    this.release();
    return true;
  }

  private release(): void {
    for (const allocation of this.given) this.engine.giveBack(allocation);
    this.given = [];
  }

  /** What is still in use at the end gets memory of its own: the next launch writes over the recorded one's. */
  escape(storages: readonly Storage[]): void {
    for (const storage of storages) if (storage !== undefined && storage.shares > 0) this.copyOut(storage);
  }

  private copyOut(storage: Storage): void {
    const { engine } = this;
    const from = storage.allocation;
    engine.own(storage, engine.pool.take(from.bytes));
    engine.append(COPY.templateOf(engine.kernels, from.bytes), [from.handle, storage.allocation.handle]);
  }

  /**
   * Carries out what was compared and not launched, in memory of its own, and leaves the rest of the step to the engine.
   * @throws where there is no memory for that; the step then goes on as it was
   */
  interrupt(): undefined {
    const { engine, events, current, allocations } = this;
    const { pool } = engine;
    const made = new Set<number>();
    const freed = new Set<number>();
    for (let i = this.launched; i < this.at; i++) {
      const event = events[i];
      if (event.kind === 'call') for (const slot of event.y) made.add(slot);
      else if (event.kind === 'freed' && typeof event.of === 'number') freed.add(event.of);
    }
    // Values of launched calls, and data, are where the graph has them: they move.
    const moved = current.flatMap((storage, slot) => (!made.has(slot) && (storage.shares > 0 || freed.has(slot)) ? [slot] : []));
    // First all memory, in the order in which it is taken and given back.
    const own = new Map<number, Allocation>();
    const held = new Set<number>();
    const take = (slot: number) => {
      own.set(slot, pool.take(allocations[slot].bytes));
      held.add(slot);
    };
    try {
      moved.forEach(take);
      for (let i = this.launched; i < this.at; i++) {
        const event = events[i];
        if (event.kind === 'call') event.y.forEach(take);
        else if (event.kind === 'freed' && typeof event.of === 'number') {
          pool.give(own.get(event.of) as Allocation);
          held.delete(event.of);
        }
      }
    } catch (error) {
      for (const slot of held) pool.give(own.get(slot) as Allocation);
      throw error;
    }
    engine.leave();
    const handle = (of: Reference) => (typeof of === 'number' ? (own.get(of) ?? allocations[of]) : of.allocation).handle;
    for (const slot of moved)
      engine.append(COPY.templateOf(engine.kernels, allocations[slot].bytes), [allocations[slot].handle, handle(slot)]);
    for (let i = this.launched; i < this.at; i++) {
      const event = events[i];
      if (event.kind === 'call') engine.append(event.plan.template, [...event.x, ...event.y].map(handle));
    }
    for (const slot of held) engine.own(current[slot], own.get(slot));
    this.release();
    return undefined;
  }

  /** Gives back the graphs, and their memory but for buffers that are used elsewhere. */
  destroy(used: ReadonlySet<number> = new Set()): void {
    const { vk } = this.engine;
    for (const graph of this.graphs) if (graph !== undefined) vk.graphDestroy(graph);
    for (const handle of new Set(this.allocations.map((allocation) => allocation.handle))) if (!used.has(handle)) vk.destroyBuffer(handle);
  }
}

function sameNumbers(a: readonly number[], b: readonly number[]): boolean {
  if (a === b) return true;
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (!Object.is(a[i], b[i])) return false;
  return true;
}
