// Frees the device memory of storages and graphs that are garbage, and decides when to look for them.
//
// A FinalizationRegistry calls back only between turns of the event loop, and V8 sees only small objects, so it has no reason to collect. The
// addon therefore holds weak references to storages. When the memory that tensors hold has doubled, the addon makes V8 collect, and this
// module frees what is gone at once.

/** A device resource that its sink releases: memory, or what a graph holds. @typedef {{ live: boolean, sink: { release(held: Held): void } }} Held */
/** A storage or a graph. Its allocation must not refer back to it, or it would never be collected. @typedef {{ allocation: Held }} Holder */

/** The least growth after which a collection runs: a collection takes milliseconds. */
export const LEAST_GROWTH = { bytes: 2 ** 28, buffers: 2 ** 14 };

/** New storages are watched in batches of this many: scopes and backward passes dispose of most before that, so they cost no reference. */
const WAITING = 1024;

/** An amount of device memory. @typedef {{ bytes: number, buffers: number }} Amount */

/**
 * How much may be held before the next collection: twice what the last one left, at most three quarters of the device's memory, and at least
 * `LEAST_GROWTH` more than what it left. So a program that keeps what it makes collects a few times, not at each step. Pure.
 * @param {Amount} left @param {number} deviceBytes
 * @returns {Amount}
 */
export const nextLook = (left, deviceBytes) => ({
  bytes: left.bytes + Math.max(LEAST_GROWTH.bytes, Math.min(left.bytes, 0.75 * deviceBytes - left.bytes)),
  buffers: left.buffers + Math.max(LEAST_GROWTH.buffers, left.buffers),
});

/** Bun collects when `Bun.gc` is called; it ignores the hints about external memory that V8 takes. */
const { Bun: bun } = /** @type {{ Bun?: { gc(force: boolean): void } }} */ (globalThis);
const bunGc = bun && (() => bun.gc(true));

/** The garbage collection of one device's memory. */
export class Garbage {
  /** @param {import('./runtime.mjs').Native} vk the native module @param {number} deviceBytes of memory */
  constructor(vk, deviceBytes) {
    this.vk = vk;
    this.deviceBytes = deviceBytes;
    /** The addon's list of weak references to holders; undefined if a stand-in for the addon has none. @type {number | undefined} */
    this.list = vk.weakList?.();
    /** Holders that are not in the list yet. @type {Holder[]} */
    this.waiting = [];
    /** The allocations of the holders in the list, in its order. @type {Held[]} */
    this.watched = [];
    /** How much may be held before the next collection. */
    this.limit = nextLook({ bytes: 0, buffers: 0 }, deviceBytes);
    /** Calls back when the engine has collected on its own: an object that nothing refers to is registered for that. */
    this.collections = new FinalizationRegistry(() => {
      try {
        this.sweep(false);
      } catch {
        // The device is lost; the next call reports that.
      }
      this.awaitCollection();
    });
    this.awaitCollection();
  }

  /** Arranges for the next callback. */
  awaitCollection() {
    if (this.list !== undefined) this.collections.register({}, undefined);
  }

  /** Releases a holder's allocation once the holder is garbage. @param {Holder} holder */
  watch(holder) {
    if (this.list === undefined) return;
    this.waiting.push(holder);
    if (this.waiting.length >= WAITING) this.settle();
  }

  /** Adds the waiting holders that are still live to the list. */
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

  /** All live allocations. */
  allocations() {
    return [...this.watched, ...this.waiting.map(({ allocation }) => allocation)].filter(({ live }) => live);
  }

  /** Whether enough is held for a collection. @param {Amount} held */
  due({ bytes, buffers }) {
    return bytes > this.limit.bytes || buffers > this.limit.buffers;
  }

  /** Makes the engine collect, releases what is garbage, and sets the next limit. @param {Amount} held updated by the sink as it releases */
  collect(held) {
    this.sweep(true);
    this.limit = nextLook(held, this.deviceBytes);
  }

  /** Releases what is garbage. @param {boolean} collect whether to make the engine collect first */
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

  /** Stops watching. */
  close() {
    if (this.list === undefined) return;
    this.vk.weakSweep(this.list, new Uint8Array(this.watched.length).fill(1));
    this.list = undefined;
    this.waiting = [];
    this.watched = [];
  }
}
