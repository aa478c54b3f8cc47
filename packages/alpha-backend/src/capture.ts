// A step of training makes the same calls as the step before it. Once two have, the next is recorded: what each call was
// given and made, in order. From then on a call is only compared with the recorded one, and the dispatches of the step run as
// graphs: one for each read, and for so many dispatches (`PIECE`), since the device would idle while a whole step is compared.
// A call that differs ends that: what was compared and not yet launched is carried out call by call, and so is the rest of
// the step, with the same result.
//
// The tape of the trainer clones every gradient and releases the original. With the whole step known, such a clone is no copy:
// it has the memory of its original (`sharedClones`).
//
// What differs from step to step without being a difference is data: ids, dropout seeds, learning rates all travel in
// buffers (`Engine.input`).

import type { GraphHandle } from 'helios-vk';
import { Recorder } from 'helios-vk/kernels';

import { type Engine, type Operation, type Plan, Pool } from './engine.js';
import { CLONE, COPY } from './operations.js';
import { type Allocation, DeviceTensor, Storage } from './tensor.js';
import type { Dtype, Shape } from './types.js';

/** A storage: one made in the step, by its slot, or one from before. */
type Reference = number | Storage;

/** Dispatches of a graph; the device begins while the next ones are compared. */
const PIECE = 256;

/** What happened in the recorded step. */
export type Event =
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

/**
 * The slot whose memory each slot has: its own, or that of a value that it is a clone of. That is so where none of both is
 * written while the other is in use.
 */
export function sharedClones(events: readonly Event[], slots: number): number[] {
  const born = new Array<number>(slots).fill(0);
  const died = new Array<number>(slots).fill(Number.POSITIVE_INFINITY);
  const writes: number[][] = Array.from({ length: slots }, () => []);
  events.forEach((event, at) => {
    if (event.kind === 'call') {
      for (const slot of event.y) born[slot] = at;
      for (const i of event.op.writes ?? []) {
        const of = event.x[i];
        if (typeof of === 'number') writes[of].push(at);
      }
    } else if (event.kind === 'freed' && typeof event.of === 'number') died[event.of] = at;
  });
  const writtenDuring = (a: number, b: number) => writes[a].some((at) => at > born[b] && at < died[b]);
  const roots = Array.from({ length: slots }, (_, slot) => slot);
  const groups = roots.map((slot) => [slot]);
  for (const event of events) {
    if (event.kind !== 'call' || event.op !== CLONE || typeof event.x[0] !== 'number') continue;
    const root = roots[event.x[0]];
    const [clone] = event.y;
    if (groups[root].some((other) => writtenDuring(other, clone) || writtenDuring(clone, other))) continue;
    roots[clone] = root;
    groups[root].push(clone);
  }
  return roots;
}

/** A step that is being recorded while it is carried out. */
export class Capture {
  private readonly events: Event[] = [];
  private readonly storages: Storage[] = [];
  /** Bytes of each slot. */
  private readonly sizes: number[] = [];
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

  /** A storage of the step. */
  storage(bytes: number, input: boolean, serial: number): Storage {
    const storage = new Storage(this.pool.take(bytes), serial);
    storage.slot = this.storages.length;
    if (input) this.inputs.add(storage.slot);
    this.storages.push(storage);
    this.sizes.push(bytes);
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
    this.pool.give(storage.allocation);
    return true;
  }

  /**
   * The recorded step; what is still in use gets memory of its own. Undefined where the device has no room for it: the step has
   * run, its values keep the memory that they have, and later steps go on call by call.
   */
  finish(): Trace | undefined {
    const { engine, storages, pool } = this;
    const graphs: Piece[] = [];
    try {
      for (const storage of storages) {
        if (storage.shares === 0) continue;
        const { allocation } = storage;
        engine.copyOut(storage);
        pool.give(allocation);
      }
      engine.submit();
      const allocations = this.plan();
      record(engine, this.events, allocations, graphs);
      return new Trace(engine, this.events, allocations, pool, graphs);
    } catch (error) {
      if ((error as { code?: string }).code !== 'ERR_HELIOS_OUT_OF_MEMORY') throw error;
      for (const storage of storages) {
        if (storage.shares === 0 || storage.slot < 0) continue;
        pool.made.delete(storage.allocation.handle);
        engine.own(storage, undefined);
      }
      for (const { graph } of graphs) engine.vk.graphDestroy(graph);
      pool.destroy();
      engine.stopCapturing();
      return undefined;
    }
  }

  /** Where the values of the step lie from now on, by slot. */
  private plan(): Allocation[] {
    const { events, sizes, inputs, pool } = this;
    const roots = sharedClones(events, sizes.length);
    const users = new Array<number>(sizes.length).fill(0);
    for (const root of roots) users[root]++;
    const allocations: Allocation[] = [];
    // What data is uploaded into is no other value's: uploads may run ahead of the graphs.
    for (const slot of inputs) allocations[slot] = pool.take(sizes[slot]);
    for (const event of events) {
      if (event.kind === 'call') {
        for (const slot of event.y) allocations[slot] = allocations[roots[slot]] ?? pool.take(sizes[slot]);
      } else if (event.kind === 'freed' && typeof event.of === 'number') {
        const root = roots[event.of];
        if (--users[root] === 0 && !inputs.has(root)) pool.give(allocations[root]);
      }
    }
    pool.destroy(new Set(allocations.map(({ handle }) => handle)));
    return allocations;
  }
}

/** A graph of the step, launched once so many events have been compared. */
interface Piece {
  graph: GraphHandle;
  end: number;
}

/** Records the calls of a step as graphs. */
function record(engine: Engine, events: readonly Event[], allocations: readonly Allocation[], pieces: Piece[]): void {
  const { vk } = engine;
  const list = new Recorder(1 << 16);
  const handle = (of: Reference) => (typeof of === 'number' ? allocations[of] : of.allocation).handle;
  const end = (at: number) => {
    if (list.count === 0) return;
    vk.graphBegin();
    try {
      vk.batchExecuteAll(new Uint8Array(list.view.buffer, 0, list.length), list.count);
    } finally {
      pieces.push({ graph: vk.graphEnd(), end: at });
    }
    list.length = 0;
    list.count = 0;
  };
  events.forEach((event, i) => {
    if (event.kind === 'call') {
      const shared = event.op === CLONE && handle(event.x[0]) === handle(event.y[0]);
      if (!shared) event.plan.template.appendTo(list, [...event.x, ...event.y].map(handle));
    }
    if (event.kind === 'read' || list.count >= PIECE) end(i + 1);
  });
  end(events.length);
}

/** A recorded step. */
export class Trace {
  private at = 0;
  /** Events before this one have been launched, as the graphs before `next`. */
  private launched = 0;
  private next = 0;
  /** The storages of this step, by slot. */
  private current: Storage[] = [];
  /** Memory from before that this step has given back. */
  private given: Allocation[] = [];

  constructor(
    private readonly engine: Engine,
    private readonly events: readonly Event[],
    private readonly allocations: readonly Allocation[],
    private readonly pool: Pool,
    private readonly pieces: readonly Piece[],
  ) {}

  /** A step begins. */
  begin(): void {
    this.at = 0;
    this.launched = 0;
    this.next = 0;
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
    this.launch();
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

  /** Launches the graph that ends here, if one does. */
  private launch(): void {
    const piece = this.pieces[this.next];
    if (piece?.end !== this.at) return;
    this.next++;
    this.engine.submit();
    this.engine.vk.graphLaunch(piece.graph);
    this.launched = this.at;
  }

  /** The step ends. @returns whether it was the recorded one */
  finish(): boolean {
    if (this.at !== this.events.length) {
      this.interrupt();
      return false;
    }
    this.launch();
    // What is still in use gets memory of its own: the next launch writes over the recorded one's.
    for (const storage of this.current) if (storage !== undefined && storage.shares > 0) this.engine.copyOut(storage);
    this.release();
    return true;
  }

  private release(): void {
    for (const allocation of this.given) this.engine.giveBack(allocation);
    this.given = [];
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

  /** Gives back the graphs and their memory. */
  destroy(): void {
    for (const { graph } of this.pieces) this.engine.vk.graphDestroy(graph);
    this.pool.destroy();
  }
}

function sameNumbers(a: readonly number[], b: readonly number[]): boolean {
  if (a === b) return true;
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (!Object.is(a[i], b[i])) return false;
  return true;
}
