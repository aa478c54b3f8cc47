// Finds storages and graphs that are garbage, and decides when to look.
//
// A FinalizationRegistry calls back only between turns of the event loop, and V8 sees only small objects and has no reason to collect.
// So the addon holds weak references to storages. When the memory that tensors hold has doubled, it makes V8 collect, and checks at once.

/** What is given back, by its sink: memory, or what a graph holds. @typedef {{ live: boolean, sink: { release(held: Held): void } }} Held */
/** A storage, or a graph. What it holds must not lead back to it. @typedef {{ allocation: Held }} Holder */

/** Growth below which no collection is made: one takes milliseconds. */
export const LEAST_GROWTH = { bytes: 2 ** 28, buffers: 2 ** 14 };

/** Storages that wait to be watched: most are disposed of before, by scopes and backward passes, and never cost a reference. */
const WAITING = 1024;

/** What is held, or may be. @typedef {{ bytes: number, buffers: number }} Amount */

/**
 * How much may be held before the next collection: twice what the last one left, but not more than three quarters of the device's
 * memory, and at least a little more than what it left. So a program that keeps what it makes collects a few times, not each step. Pure.
 * @param {Amount} left @param {number} deviceBytes
 * @returns {Amount}
 */
export const nextLook = (left, deviceBytes) => ({
  bytes: left.bytes + Math.max(LEAST_GROWTH.bytes, Math.min(left.bytes, 0.75 * deviceBytes - left.bytes)),
  buffers: left.buffers + Math.max(LEAST_GROWTH.buffers, left.buffers),
});

/** Bun's collector runs when it is called, and not for memory that it is told of. */
const { Bun: bun } = /** @type {{ Bun?: { gc(force: boolean): void } }} */ (globalThis);
const bunGc = bun && (() => bun.gc(true));

export class Garbage {
  /** @param {import('./runtime.mjs').Native} vk the native module @param {number} deviceBytes of memory */
  constructor(vk, deviceBytes) {
    this.vk = vk;
    this.deviceBytes = deviceBytes;
    /** The addon's list of weak references to them; a stand-in for the addon may have none. @type {number | undefined} */
    this.list = vk.weakList?.();
    /** Those that are not in the list yet. @type {Holder[]} */
    this.waiting = [];
    /** What the others hold, in the list's order. @type {Held[]} */
    this.watched = [];
    /** What may be held before the next look. */
    this.limit = nextLook({ bytes: 0, buffers: 0 }, deviceBytes);
    /** Says when the engine has collected by itself: it finds an object that nobody ever held. */
    this.collections = new FinalizationRegistry(() => {
      try {
        this.sweep(false);
      } catch {
        // The device is lost, as whatever is called next will say.
      }
      this.awaitCollection();
    });
    this.awaitCollection();
  }

  awaitCollection() {
    if (this.list !== undefined) this.collections.register({}, undefined);
  }

  /** Has what an object holds given back when it is garbage. @param {Holder} holder */
  watch(holder) {
    if (this.list === undefined) return;
    this.waiting.push(holder);
    if (this.waiting.length >= WAITING) this.settle();
  }

  /** Puts those that wait and are still live into the list. */
  settle() {
    const { vk, list, waiting } = this;
    if (list === undefined) return;
    this.waiting = [];
    for (const holder of waiting) {
      if (!holder.allocation.live) continue;
      vk.weakAdd(list, holder);
      this.watched.push(holder.allocation);
    }
  }

  /** All that is held. */
  allocations() {
    return [...this.watched, ...this.waiting.map(({ allocation }) => allocation)].filter(({ live }) => live);
  }

  /** Whether so much is held that it is time to look. @param {Amount} held */
  due({ bytes, buffers }) {
    return bytes > this.limit.bytes || buffers > this.limit.buffers;
  }

  /** Has the engine collect, gives back what is garbage, and sets the next limit. @param {Amount} held kept up to date by who is given back to */
  collect(held) {
    this.sweep(true);
    this.limit = nextLook(held, this.deviceBytes);
  }

  /** Gives back what is garbage. @param {boolean} collect whether the engine is made to collect first */
  sweep(collect) {
    if (this.list === undefined) return;
    this.settle();
    if (collect) bunGc?.();
    const { watched } = this;
    const gone = Uint8Array.from(watched, ({ live }) => (live ? 0 : 1));
    this.vk.weakSweep(this.list, gone, collect);
    this.watched = watched.filter((_, i) => !gone[i]);
    watched.forEach((allocation, i) => {
      if (gone[i] && allocation.live) allocation.sink.release(allocation);
    });
  }

  /** Watches nothing any more. */
  close() {
    if (this.list === undefined) return;
    this.vk.weakSweep(this.list, new Uint8Array(this.watched.length).fill(1));
    this.list = undefined;
    this.waiting = [];
    this.watched = [];
  }
}
