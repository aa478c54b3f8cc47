// A step of training makes the same calls as the step before it. Once two have, the calls become graphs, and from then on a
// call is only compared with the recorded one. There is a graph for each read, and for so many dispatches (`PIECE`), since the
// device would idle while a whole step is compared. A call that differs ends that: what was compared and not yet launched is
// carried out call by call, and so is the rest of the step, with the same result.
//
// The tape of the trainer clones every gradient and releases the original. With the whole step known, such a clone is no copy:
// it has the memory of its original (`sharedClones`).
//
// What differs from step to step without being a difference is data: ids, dropout seeds, learning rates all travel in
// buffers (`Engine.input`).

import type { BufferHandle, GraphHandle } from 'helios-vk';
import { Recorder, Template } from 'helios-vk/kernels';

import { type Allocation, Pool, Storage, type Stream } from './memory.js';
import { CLONE } from './operations.js';
import { type Operation, type Plan, operation, sameNumbers } from './plan.js';
import type { DeviceTensor } from './tensor.js';
import { BYTES, sizeOf } from './types.js';

/** Dispatches of a graph; the device begins while the next ones are compared. */
const PIECE = 256;

/** A storage: among those of its step, from 0, or, of an earlier one, by itself, below 0. */
export const placeOf = ({ serial }: Storage, firstSerial: number): number => (serial >= firstSerial ? serial - firstSerial : -1 - serial);

const nothing = () => [];
const mark = (name: string): Plan => ({
  op: operation(name, nothing, nothing),
  n: [],
  inputs: [{ shape: [], dtype: 'f32' }],
  outputs: [],
  template: new Template(),
});
/** A read of a storage. */
export const READ = mark('read');
/** The end of a storage. */
export const FREED = mark('freed');
/** Data of the host: [bytes]. */
export const INPUT = operation('input', (_, [bytes]) => [{ shape: [Math.ceil(bytes / 4)], dtype: 'f32' }], nothing);

/** Something that happened in a step: a call, an upload (`INPUT`), a read or the end of a storage. */
interface Event {
  readonly plan: Plan;
  /** Places of its inputs. */
  readonly x: readonly number[];
  /** Slots of its outputs: places, counted up through the step. */
  readonly y: readonly number[];
}

/** What happened in a step. It is kept flat, since every call of a step that is not recorded adds to it. */
export class Log {
  readonly plans: Plan[] = [];
  /** Places of the inputs of all events. */
  readonly places: number[] = [];
  /** Buffers of values from earlier steps, by place. */
  readonly earlier = new Map<number, BufferHandle>();

  add(plan: Plan, x: readonly Storage[], firstSerial: number): void {
    this.plans.push(plan);
    for (const storage of x) {
      const place = placeOf(storage, firstSerial);
      this.places.push(place);
      if (place < 0) this.earlier.set(place, storage.allocation.handle);
    }
  }

  /** Whether two steps did the same. Outputs are counted, and are the same if the plans are. */
  equals(other: Log): boolean {
    const { plans } = other;
    return this.plans.length === plans.length && this.plans.every((plan, i) => plan === plans[i]) && sameNumbers(this.places, other.places);
  }

  events(): Event[] {
    let place = 0;
    let slot = 0;
    return this.plans.map((plan) => ({
      plan,
      x: this.places.slice(place, (place += plan.inputs.length)),
      y: plan.outputs.map(() => slot++),
    }));
  }
}

/** The slot that an event ends, or −1. */
const freedBy = ({ plan, x }: Event): number => (plan === FREED ? x[0] : -1);

/**
 * The slot whose memory each slot has: its own, or that of a value that it is a clone of. That is so where none of both is
 * written while the other is in use.
 */
function sharedClones(events: readonly Event[], slots: number): number[] {
  const born = new Array<number>(slots).fill(0);
  const died = new Array<number>(slots).fill(Number.POSITIVE_INFINITY);
  const writes: number[][] = Array.from({ length: slots }, () => []);
  events.forEach((event, at) => {
    for (const slot of event.y) born[slot] = at;
    for (const i of event.plan.op.writes) writes[event.x[i]]?.push(at);
    if (freedBy(event) >= 0) died[freedBy(event)] = at;
  });
  const writtenDuring = (a: number, b: number) => writes[a].some((at) => at > born[b] && at < died[b]);
  const roots = Array.from({ length: slots }, (_, slot) => slot);
  const groups = roots.map((slot) => [slot]);
  for (const { plan, x, y } of events) {
    if (plan.op !== CLONE || x[0] < 0) continue;
    const root = roots[x[0]];
    if (groups[root].some((other) => writtenDuring(other, y[0]) || writtenDuring(y[0], other))) continue;
    roots[y[0]] = root;
    groups[root].push(y[0]);
  }
  return roots;
}

/** Where the values of a step lie, by slot. */
function allocate(events: readonly Event[], pool: Pool): Allocation[] {
  const sizes = events.flatMap(({ plan }) => plan.outputs.map(({ shape, dtype }) => sizeOf(shape) * BYTES[dtype]));
  const allocations: Allocation[] = [];
  // What data is uploaded into is no other value's: uploads may run ahead of the graphs.
  const inputs = new Set(events.flatMap(({ plan, y }) => (plan.op === INPUT ? y : [])));
  for (const slot of inputs) allocations[slot] = pool.take(sizes[slot]);
  const roots = sharedClones(events, sizes.length);
  const users = new Array<number>(sizes.length).fill(0);
  for (const root of roots) users[root]++;
  for (const event of events) {
    for (const slot of event.y) allocations[slot] ??= allocations[roots[slot]] ?? pool.take(sizes[slot]);
    const freed = freedBy(event);
    if (freed < 0) continue;
    const root = roots[freed];
    if (--users[root] === 0 && !inputs.has(root)) pool.give(allocations[root]);
  }
  return allocations;
}

/** A graph of the step, launched once so many events have been compared. */
interface Piece {
  graph: GraphHandle;
  end: number;
}

/** A recorded step. What the comparison of each call reads lies close together: plans, and places in one array. */
export class Trace {
  /** Memory of this step alone. */
  private readonly pool: Pool;
  private readonly allocations: readonly Allocation[] = [];
  private readonly pieces: Piece[] = [];
  private readonly plans: readonly Plan[];
  private readonly places: readonly number[];
  private readonly events: readonly Event[];
  /** Storages by slot. One that nothing uses any more is the slot's in the next step too. */
  private readonly storages: Storage[];
  /** Events that this step has compared, and their inputs. */
  private at = 0;
  private place = 0;
  /** Events before this one have been launched, as the graphs before `next`. */
  private launched = 0;
  private next = 0;
  /** Memory from before that this step has given back. */
  private given: Allocation[] = [];

  /** @throws what `createBuffer` throws, where the device has no room for it */
  constructor(
    private readonly engine: Stream,
    private readonly log: Log,
  ) {
    this.plans = log.plans;
    this.places = log.places;
    this.events = log.events();
    this.pool = new Pool(engine.vk, engine.relieve);
    try {
      this.allocations = allocate(this.events, this.pool);
      this.record();
    } catch (error) {
      this.destroy();
      throw error;
    }
    this.storages = this.allocations.map((_, slot) => this.unused(slot));
  }

  private unused(slot: number): Storage {
    const storage = new Storage(this.allocations[slot], -1);
    storage.shares = 0;
    return storage;
  }

  private record(): void {
    const { vk } = this.engine;
    const list = new Recorder(1 << 16);
    const end = (at: number) => {
      if (list.count === 0) return;
      vk.graphBegin();
      try {
        vk.batchExecuteAll(new Uint8Array(list.view.buffer, 0, list.length), list.count);
      } finally {
        this.pieces.push({ graph: vk.graphEnd(), end: at });
      }
      list.length = 0;
      list.count = 0;
    };
    this.events.forEach((event, at) => {
      const handles = this.handlesOf(event, (slot) => this.allocations[slot].handle);
      if (event.plan.op !== CLONE || handles[0] !== handles[1]) event.plan.template.appendTo(list, handles);
      if (event.plan === READ || list.count >= PIECE) end(at + 1);
    });
    end(this.events.length);
  }

  /** Buffers of an event's inputs and outputs. */
  private handlesOf({ x, y }: Event, ofSlot: (slot: number) => BufferHandle): BufferHandle[] {
    return [...x, ...y].map((place) => (place < 0 ? (this.log.earlier.get(place) as BufferHandle) : ofSlot(place)));
  }

  /** A step begins. */
  begin(): void {
    this.at = this.place = this.launched = this.next = 0;
  }

  /** Whether nothing of this step has been compared yet. */
  get idle(): boolean {
    return this.at === 0;
  }

  /** The storage of the next slot. */
  renew(): Storage {
    const { engine } = this;
    const storage = this.storages[engine.serial - engine.firstSerial];
    storage.serial = engine.serial++;
    storage.shares = 1;
    storage.version = 0;
    return storage;
  }

  /** Compares a call. @returns its plan, or undefined where the step is no longer the recorded one */
  call(op: Operation, x: readonly DeviceTensor[], n: readonly number[]): Plan | undefined {
    const plan = this.plans[this.at];
    if (plan?.op !== op || plan.inputs.length !== x.length || !sameNumbers(plan.n, n)) return this.interrupt();
    const { firstSerial } = this.engine;
    for (let i = 0; i < x.length; i++) {
      // A storage has elements of one type.
      const { storage, shape } = x[i];
      if (this.places[this.place + i] !== placeOf(storage as Storage, firstSerial) || !sameNumbers(plan.inputs[i].shape, shape)) {
        return this.interrupt();
      }
    }
    this.advance(x.length);
    for (const i of op.writes) (x[i].storage as Storage).version++;
    return plan;
  }

  /** Compares an upload. @returns where its data is */
  input(data: ArrayBufferView): Storage | undefined {
    const plan = this.plans[this.at];
    if (plan?.op !== INPUT || plan.n[0] !== data.byteLength) return this.interrupt();
    const { engine } = this;
    engine.vk.uploadBuffer(this.allocations[engine.serial - engine.firstSerial].handle, data);
    this.advance(0);
    return this.renew();
  }

  /** Runs what comes before a read. */
  read(storage: Storage): void {
    if (this.marked(READ, storage)) this.advance(1);
    // Between steps what an earlier one left may be read: nothing is under way.
    else if (this.at > 0 || storage.serial >= this.engine.firstSerial) this.interrupt();
  }

  /** Compares the end of a storage. @returns whether its memory is of the recorded step or will be given back with it */
  freed(storage: Storage): boolean {
    if (!this.marked(FREED, storage)) {
      // Between steps it may be released, too.
      if (this.at > 0 || storage.serial >= this.engine.firstSerial) this.interrupt();
      return false;
    }
    this.advance(1);
    // Calls that have not been launched may use it.
    if (storage.serial < this.engine.firstSerial) this.given.push(storage.allocation);
    return true;
  }

  private marked(plan: Plan, storage: Storage): boolean {
    return this.plans[this.at] === plan && this.places[this.place] === placeOf(storage, this.engine.firstSerial);
  }

  /** An event was the recorded one: launches the graph that ends here, if one does. Where that fails the event has not been. */
  private advance(inputs: number): void {
    const at = this.at + 1;
    const piece = this.pieces[this.next];
    if (piece?.end === at) {
      this.engine.submit();
      this.engine.vk.graphLaunch(piece.graph);
      this.next++;
      this.launched = at;
    }
    this.at = at;
    this.place += inputs;
  }

  /** The step ends. @returns whether it was the recorded one */
  finish(): boolean {
    if (this.at !== this.events.length) {
      this.interrupt();
      return false;
    }
    // What is still in use gets memory of its own: the next launch writes over the recorded one's.
    for (let slot = 0; slot < this.storages.length; slot++) {
      if (this.storages[slot].shares === 0) continue;
      this.engine.copyOut(this.storages[slot]);
      this.part(slot);
    }
    this.release();
    return true;
  }

  /** Parts with the storage of a slot, which lives on after this step. */
  private part(slot: number): Storage {
    const storage = this.storages[slot];
    this.storages[slot] = this.unused(slot);
    return storage;
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
    const { engine, storages, allocations } = this;
    const { pool } = engine;
    const pending = this.events.slice(this.launched, this.at);
    const made = new Set(pending.flatMap(({ plan, y }) => (plan.op === INPUT ? [] : y)));
    const freed = new Set(pending.map(freedBy));
    // Values of launched calls, and data, are where the graph has them: they move.
    const moved = storages.flatMap(({ shares }, slot) => (!made.has(slot) && (shares > 0 || freed.has(slot)) ? [slot] : []));
    // First all memory, in the order in which it is taken and given back.
    const own = new Map<number, Allocation>();
    const held = new Set<number>();
    const take = (slot: number) => {
      own.set(slot, pool.take(allocations[slot].bytes));
      held.add(slot);
    };
    try {
      moved.forEach(take);
      for (const event of pending) {
        if (event.plan.op !== INPUT) event.y.forEach(take);
        const slot = freedBy(event);
        if (slot < 0) continue;
        pool.give(own.get(slot) as Allocation);
        held.delete(slot);
      }
    } catch (error) {
      for (const slot of held) pool.give(own.get(slot) as Allocation);
      throw error;
    }
    engine.leave();
    const handle = (slot: number) => (own.get(slot) ?? allocations[slot]).handle;
    for (const slot of moved) engine.copy(allocations[slot], own.get(slot) as Allocation);
    for (const event of pending) engine.append(event.plan.template, this.handlesOf(event, handle));
    for (const slot of held) engine.own(this.part(slot), own.get(slot) as Allocation);
    this.release();
    return undefined;
  }

  /** Gives back the graphs and their memory. */
  destroy(): void {
    for (const { graph } of this.pieces) this.engine.vk.graphDestroy(graph);
    this.pool.destroy();
  }
}
