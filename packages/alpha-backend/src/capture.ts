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

import type { GraphHandle } from 'helios-vk';
import { Recorder } from 'helios-vk/kernels';

import { type Engine, type Operation, type Plan, Pool } from './engine.js';
import { CLONE, COPY } from './operations.js';
import { type Allocation, DeviceTensor, Storage } from './tensor.js';
import { type Dtype, type Shape, sizeOf, BYTES } from './types.js';

/** Dispatches of a graph; the device begins while the next ones are compared. */
const PIECE = 256;

/** A storage: among those of its step, from 0, or, of an earlier one, by itself, below 0. */
export const placeOf = ({ serial }: Storage, firstSerial: number): number => (serial >= firstSerial ? serial - firstSerial : -1 - serial);

/** What happened in a step; storages are places. */
export type Event = CallEvent | { kind: 'input'; bytes: number; slot: number } | { kind: 'read' | 'freed'; of: number };

interface CallEvent {
  kind: 'call';
  op: Operation;
  plan: Plan;
  n: readonly number[];
  x: number[];
  /** Buffers, shapes and types of x. */
  handles: number[];
  shapes: Shape[];
  types: Dtype[];
  /** The first of its outputs, which follow each other. */
  y: number;
}

/** Whether two steps did the same. */
export function sameEvents(a: readonly Event[], b: readonly Event[]): boolean {
  return (
    a.length === b.length &&
    a.every((one, i) => {
      const other = b[i];
      if (one.kind === 'call') return other.kind === 'call' && one.plan === other.plan && sameNumbers(one.x, other.x);
      if (one.kind === 'input') return other.kind === 'input' && one.bytes === other.bytes;
      return one.kind === other.kind && one.of === other.of;
    })
  );
}

/** The slots that a call makes. */
const outputsOf = ({ y, plan }: CallEvent) => plan.outputs.map((_, i) => y + i);

/**
 * The slot whose memory each slot has: its own, or that of a value that it is a clone of. That is so where none of both is
 * written while the other is in use.
 */
function sharedClones(events: readonly Event[], slots: number): number[] {
  const born = new Array<number>(slots).fill(0);
  const died = new Array<number>(slots).fill(Number.POSITIVE_INFINITY);
  const writes: number[][] = Array.from({ length: slots }, () => []);
  events.forEach((event, at) => {
    if (event.kind === 'call') {
      for (const slot of outputsOf(event)) born[slot] = at;
      for (const i of event.op.writes ?? []) writes[event.x[i]]?.push(at);
    } else if (event.kind === 'freed' && event.of >= 0) died[event.of] = at;
  });
  const writtenDuring = (a: number, b: number) => writes[a].some((at) => at > born[b] && at < died[b]);
  const roots = Array.from({ length: slots }, (_, slot) => slot);
  const groups = roots.map((slot) => [slot]);
  for (const event of events) {
    if (event.kind !== 'call' || event.op !== CLONE || event.x[0] < 0) continue;
    const root = roots[event.x[0]];
    if (groups[root].some((other) => writtenDuring(other, event.y) || writtenDuring(event.y, other))) continue;
    roots[event.y] = root;
    groups[root].push(event.y);
  }
  return roots;
}

/** Where the values of a step lie, by slot. */
function allocate(events: readonly Event[], pool: Pool): Allocation[] {
  const sizes: number[] = [];
  const allocations: Allocation[] = [];
  for (const event of events) {
    if (event.kind === 'input') {
      sizes[event.slot] = event.bytes;
      // What data is uploaded into is no other value's: uploads may run ahead of the graphs.
      allocations[event.slot] = pool.take(event.bytes);
    } else if (event.kind === 'call') {
      event.plan.outputs.forEach(({ shape, dtype }, i) => {
        sizes[event.y + i] = sizeOf(shape) * BYTES[dtype];
      });
    }
  }
  const inputs = new Set(Object.keys(allocations).map(Number));
  const roots = sharedClones(events, sizes.length);
  const users = new Array<number>(sizes.length).fill(0);
  for (const root of roots) users[root]++;
  for (const event of events) {
    if (event.kind === 'call') {
      for (const slot of outputsOf(event)) allocations[slot] = allocations[roots[slot]] ?? pool.take(sizes[slot]);
    } else if (event.kind === 'freed' && event.of >= 0) {
      const root = roots[event.of];
      if (--users[root] === 0 && !inputs.has(root)) pool.give(allocations[root]);
    }
  }
  return allocations;
}

/** A graph of the step, launched once so many events have been compared. */
interface Piece {
  graph: GraphHandle;
  end: number;
}

/** A recorded step. */
export class Trace {
  /** Memory of this step alone. */
  private readonly pool: Pool;
  private readonly allocations: readonly Allocation[] = [];
  private readonly pieces: Piece[] = [];
  private at = 0;
  /** Events before this one have been launched, as the graphs before `next`. */
  private launched = 0;
  private next = 0;
  /** The storages of this step, by slot. */
  private current: Storage[] = [];
  /** Memory from before that this step has given back. */
  private given: Allocation[] = [];

  /** @throws what `createBuffer` throws, where the device has no room for it */
  constructor(
    private readonly engine: Engine,
    private readonly events: readonly Event[],
  ) {
    this.pool = new Pool(engine.vk, engine.relieve);
    try {
      this.allocations = allocate(events, this.pool);
      this.record();
    } catch (error) {
      this.destroy();
      throw error;
    }
  }

  /** Where a value lies. */
  private handle(event: CallEvent, i: number): number {
    const slot = i < event.x.length ? event.x[i] : event.y + i - event.x.length;
    return slot < 0 ? event.handles[i] : this.allocations[slot].handle;
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
      if (event.kind === 'call') {
        const handles = Array.from({ length: event.x.length + event.plan.outputs.length }, (_, i) => this.handle(event, i));
        if (event.op !== CLONE || handles[0] !== handles[1]) event.plan.template.appendTo(list, handles);
      }
      if (event.kind === 'read' || list.count >= PIECE) end(at + 1);
    });
    end(this.events.length);
  }

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

  private renew(slot: number): Storage {
    const storage = new Storage(this.allocations[slot], this.engine.serial++);
    this.current[slot] = storage;
    return storage;
  }

  /** Compares a call. @returns its outputs, or undefined where the step is no longer the recorded one */
  call(op: Operation, x: readonly DeviceTensor[], n: readonly number[]): DeviceTensor[] | undefined {
    const event = this.events[this.at];
    if (event?.kind !== 'call' || event.op !== op || !sameNumbers(event.n, n) || event.x.length !== x.length) return this.interrupt();
    const { firstSerial } = this.engine;
    for (let i = 0; i < x.length; i++) {
      const { storage, shape, dtype } = x[i];
      if (event.x[i] !== placeOf(storage as Storage, firstSerial) || dtype !== event.types[i] || !sameNumbers(event.shapes[i], shape)) {
        return this.interrupt();
      }
    }
    this.at++;
    const { writes } = op;
    if (writes) for (const i of writes) (x[i].storage as Storage).version++;
    const { outputs } = event.plan;
    const made: DeviceTensor[] = new Array(outputs.length);
    for (let i = 0; i < outputs.length; i++) {
      made[i] = new DeviceTensor(this.engine, outputs[i].shape, outputs[i].dtype, this.renew(event.y + i));
    }
    this.launch();
    return made;
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
    const of = placeOf(storage, this.engine.firstSerial);
    if (this.at === 0 && of < 0) return;
    const event = this.events[this.at];
    if (event?.kind !== 'read' || event.of !== of) {
      this.interrupt();
      return;
    }
    this.at++;
    this.launch();
  }

  /** Compares the end of a storage. @returns whether its memory is of the recorded step or will be given back with it */
  freed(storage: Storage): boolean {
    const of = placeOf(storage, this.engine.firstSerial);
    const event = this.events[this.at];
    if (event?.kind !== 'freed' || event.of !== of) {
      // Between steps what an earlier one left may go.
      if (this.at > 0 || of >= 0) this.interrupt();
      return false;
    }
    this.at++;
    // Calls that have not been launched may use it.
    if (of < 0) this.given.push(storage.allocation);
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
      if (event.kind === 'call') for (const slot of outputsOf(event)) made.add(slot);
      else if (event.kind === 'freed' && event.of >= 0) freed.add(event.of);
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
        if (event.kind === 'call') outputsOf(event).forEach(take);
        else if (event.kind === 'freed' && event.of >= 0) {
          pool.give(own.get(event.of) as Allocation);
          held.delete(event.of);
        }
      }
    } catch (error) {
      for (const slot of held) pool.give(own.get(slot) as Allocation);
      throw error;
    }
    engine.leave();
    const handle = (slot: number) => (own.get(slot) ?? allocations[slot]).handle;
    for (const slot of moved)
      engine.append(COPY.templateOf(engine.kernels, allocations[slot].bytes), [allocations[slot].handle, handle(slot)]);
    for (let i = this.launched; i < this.at; i++) {
      const event = events[i];
      if (event.kind !== 'call') continue;
      const inputs = event.x.map((of, j) => (of < 0 ? event.handles[j] : handle(of)));
      engine.append(event.plan.template, [...inputs, ...outputsOf(event).map(handle)]);
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
