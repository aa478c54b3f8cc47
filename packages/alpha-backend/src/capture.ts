// Records training steps as graphs. A training step makes the same calls as the step before it. Once two steps have made the same
// calls, they are recorded, and from then on a call is only compared with the recorded one. A graph ends at each read, and after
// `PIECE` dispatches, so that the device begins while the host still compares. A call that differs ends the replay: what was compared
// but not launched is then executed call by call, and so is the rest of the step, with the same bits.
//
// The trainer's tape clones every gradient and releases the original. Since the whole step is known, such a clone is not copied: it
// shares the memory of its original (`sharedClones`).
//
// Values may differ between steps, since they travel in buffers (`Engine.input`): ids, dropout masks, learning rates.

import type { BufferHandle, GraphHandle } from 'helios-vk';
import { Recorder, Template } from 'helios-vk/kernels';

import { type Allocation, Pool, Storage, type Stream } from './memory.js';
import { CLONE } from './operations.js';
import { type Operation, type Plan, operation, sameNumbers } from './plan.js';
import type { DeviceTensor } from './tensor.js';
import { BYTES, sizeOf } from './types.js';

/** Dispatches after which a graph ends. */
const PIECE = 256;

/** Number of a storage: from 0 in the order of its step, below 0 if an earlier step made it. */
const placeOf = ({ serial }: Storage, firstSerial: number): number => (serial >= firstSerial ? serial - firstSerial : -1 - serial);

const nothing = () => [];
const mark = (name: string): Plan => ({
  op: operation(name, nothing, nothing),
  n: [],
  inputs: [{ shape: [], dtype: 'f32' }],
  outputs: [],
  template: new Template(),
});
/** The event that a storage is read. */
export const READ = mark('read');
/** The event that a storage is released. */
export const FREED = mark('freed');
/** The event that data are uploaded; numbers [bytes]. */
export const INPUT = operation('input', (_, [bytes]) => [{ shape: [Math.ceil(bytes / 4)], dtype: 'f32' }], nothing);

/** An event of a step: a call, an upload (`INPUT`), a read (`READ`) or a release (`FREED`). */
interface Event {
  readonly plan: Plan;
  /** Places of its inputs (`placeOf`). */
  readonly x: readonly number[];
  /** Slots of its outputs, counted through the step: their places. */
  readonly y: readonly number[];
}

/** The events of a step. They are stored flat, since every call of a step that is not recorded adds one. */
export class Log {
  readonly plans: Plan[] = [];
  /** Places of the inputs of all events. */
  readonly places: number[] = [];
  /** Buffers of storages from earlier steps, by place. */
  readonly earlier = new Map<number, BufferHandle>();

  add(plan: Plan, x: readonly Storage[], firstSerial: number): void {
    this.plans.push(plan);
    for (const storage of x) {
      const place = placeOf(storage, firstSerial);
      this.places.push(place);
      if (place < 0) this.earlier.set(place, storage.allocation.handle);
    }
  }

  /** Whether two steps have the same events. Slots of outputs are counted, so they are equal if the plans are. */
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

/** The slot that an event releases; negative if it releases none, or a storage of an earlier step. */
const freedBy = ({ plan, x }: Event): number => (plan === FREED ? x[0] : -1);

/**
 * For each slot, the slot whose memory it uses: its own, or that of the value that it clones. A clone shares memory if neither of the two
 * is written while the other is in use.
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

/** Allocates the memory of a step's values, by slot. */
function allocate(events: readonly Event[], pool: Pool): Allocation[] {
  const sizes = events.flatMap(({ plan }) => plan.outputs.map(({ shape, dtype }) => sizeOf(shape) * BYTES[dtype]));
  const allocations: Allocation[] = [];
  // Memory that is uploaded into is not reused for other values: uploads may run ahead of the graphs.
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

/** A graph of the step. */
interface Piece {
  graph: GraphHandle;
  /** It is launched once this many events have been compared. */
  end: number;
}

/** A recorded step. What each comparison reads is stored close together: the plans, and all places in one array. */
export class Trace {
  /** Memory of this recorded step only. */
  private readonly pool: Pool;
  private readonly allocations: readonly Allocation[] = [];
  private readonly pieces: Piece[] = [];
  private readonly plans: readonly Plan[];
  private readonly places: readonly number[];
  private readonly events: readonly Event[];
  /** Storages by slot. A storage that is not in use after the step is used again in the next. */
  private readonly storages: Storage[];
  /** How many events of the current step have been compared, and how many inputs they have. */
  private at = 0;
  private place = 0;
  /** How many events have been launched, and how many graphs. */
  private launched = 0;
  private next = 0;
  /** Memory from earlier steps that this step has released. */
  private given: Allocation[] = [];

  /** @throws what `createBuffer` throws, if the device has too little memory for a second copy of the step's values */
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

  /** Begins a step. */
  begin(): void {
    this.at = this.place = this.launched = this.next = 0;
  }

  /** Whether no event of the current step has been compared. */
  get idle(): boolean {
    return this.at === 0;
  }

  /** The storage of the next slot, as new. */
  renew(): Storage {
    const { engine } = this;
    const storage = this.storages[engine.serial - engine.firstSerial];
    storage.serial = engine.serial++;
    storage.shares = 1;
    storage.version = 0;
    return storage;
  }

  /** Compares a call. @returns its plan, or undefined if it differs; the replay has then ended */
  call(op: Operation, x: readonly DeviceTensor[], n: readonly number[]): Plan | undefined {
    const plan = this.plans[this.at];
    if (plan?.op !== op || plan.inputs.length !== x.length || !sameNumbers(plan.n, n)) return this.interrupt();
    const { firstSerial } = this.engine;
    for (let i = 0; i < x.length; i++) {
      // The type needs no comparison: a storage has elements of one type.
      const { storage, shape } = x[i];
      if (this.places[this.place + i] !== placeOf(storage as Storage, firstSerial) || !sameNumbers(plan.inputs[i].shape, shape)) {
        return this.interrupt();
      }
    }
    this.advance(x.length);
    for (const i of op.writes) (x[i].storage as Storage).version++;
    return plan;
  }

  /** Compares an upload and makes it. @returns its storage, or undefined if it differs */
  input(data: ArrayBufferView): Storage | undefined {
    const plan = this.plans[this.at];
    if (plan?.op !== INPUT || plan.n[0] !== data.byteLength) return this.interrupt();
    const { engine } = this;
    engine.vk.uploadBuffer(this.allocations[engine.serial - engine.firstSerial].handle, data);
    this.advance(0);
    return this.renew();
  }

  /** Compares a read, and launches what comes before it. */
  read(storage: Storage): void {
    if (this.marked(READ, storage)) this.advance(1);
    // Before the first event of a step, values of earlier steps may be read: nothing waits to be launched.
    else if (this.at > 0 || storage.serial >= this.engine.firstSerial) this.interrupt();
  }

  /** Compares a release. @returns whether this recorded step takes care of the memory */
  freed(storage: Storage): boolean {
    if (!this.marked(FREED, storage)) {
      // Likewise, values of earlier steps may be released.
      if (this.at > 0 || storage.serial >= this.engine.firstSerial) this.interrupt();
      return false;
    }
    this.advance(1);
    // Not yet: calls that have not been launched may use it.
    if (storage.serial < this.engine.firstSerial) this.given.push(storage.allocation);
    return true;
  }

  private marked(plan: Plan, storage: Storage): boolean {
    return this.plans[this.at] === plan && this.places[this.place] === placeOf(storage, this.engine.firstSerial);
  }

  /** Counts an event that equals the recorded one, and launches the graph that ends with it, if any. If that throws, it is not counted. */
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

  /** Ends the step. @returns whether it equalled the recorded one */
  finish(): boolean {
    if (this.at !== this.events.length) {
      this.interrupt();
      return false;
    }
    // Values still in use move to memory of their own: the next launch overwrites the recorded step's.
    for (let slot = 0; slot < this.storages.length; slot++) {
      if (this.storages[slot].shares === 0) continue;
      this.engine.copyOut(this.storages[slot]);
      this.detach(slot);
    }
    this.release();
    return true;
  }

  /** Replaces the storage of a slot by a new one. @returns the old one, which lives on after this step */
  private detach(slot: number): Storage {
    const storage = this.storages[slot];
    this.storages[slot] = this.unused(slot);
    return storage;
  }

  /** Returns memory that the step has released. */
  private release(): void {
    for (const allocation of this.given) this.engine.giveBack(allocation);
    this.given = [];
  }

  /**
   * Ends the replay: executes what was compared but not launched, in memory of its own, and leaves the rest of the step to the engine.
   * @throws if there is too little memory for that; the replay then goes on
   */
  interrupt(): undefined {
    const { engine, storages, allocations } = this;
    const { pool } = engine;
    const pending = this.events.slice(this.launched, this.at);
    const made = new Set(pending.flatMap(({ plan, y }) => (plan.op === INPUT ? [] : y)));
    const freed = new Set(pending.map(freedBy));
    // Values of launched calls, and uploads, are in the recorded step's memory and have to move.
    const moved = storages.flatMap(({ shares }, slot) => (!made.has(slot) && (shares > 0 || freed.has(slot)) ? [slot] : []));
    // All allocations come first, in the order of the events, so that a failure changes nothing.
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
    for (const slot of held) engine.own(this.detach(slot), own.get(slot) as Allocation);
    this.release();
    return undefined;
  }

  /** Destroys the graphs and frees their memory. */
  destroy(): void {
    for (const { graph } of this.pieces) this.engine.vk.graphDestroy(graph);
    this.pool.destroy();
  }
}
