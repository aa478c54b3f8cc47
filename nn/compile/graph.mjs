// A graph of a compiled function: its inputs, its dispatches, its results, and whether it is still valid.

import { storageOf } from '../core/engine.mjs';
import { encode } from '../core/host.mjs';
import { timesByLine, workOf } from './explain.mjs';
import { BYTES } from '../core/layout.mjs';
import { PermutedCopy } from '../optim/half-copy.mjs';
import { runtime } from '../core/runtime.mjs';
import { Storage, unscoped } from '../core/storage.mjs';
import { mapTensors, tensorsIn } from '../core/scope.mjs';
import { Tensor } from '../api/tensor.mjs';
import { build, freeMemory } from './build.mjs';

/** @typedef {import('../core/runtime.mjs').Allocation} Allocation */
/** @typedef {import('../core/runtime.mjs').Sink} Sink */
/** @typedef {import('./arguments.mjs').Slot} Slot */
/** @typedef {import('./recording.mjs').Recording} Recording */

/**
 * How graphs are made.
 * @typedef {object} GraphOptions
 * @property {readonly import('./passes/index.mjs').PassName[]} passes
 * @property {boolean} graph whether calls launch a recorded graph
 * @property {boolean} [tune] whether products may be timed
 */

/**
 * The device resources of a graph. It has no reference to the graph, so an unreachable graph can be collected; the resources are then freed
 * like the memory of a tensor.
 */
class Holdings {
  /** @param {import('../core/runtime.mjs').Runtime} device @param {import('./build.mjs').GraphMemory} memory */
  constructor(device, memory) {
    this.device = device;
    this.memory = memory;
    /** The recorded graphs of its parts; undefined where each call submits the list of dispatches. @type {(number | undefined)[]} */
    this.handles = [];
    this.live = true;
    this.sink = { release: () => this.free() };
  }

  free() {
    if (!this.live) return;
    this.live = false;
    if (!this.device.closed) for (const handle of this.handles) if (handle !== undefined) this.device.vk.graphDestroy(handle);
    freeMemory(this.device, this.memory);
  }
}

/** A graph, ready to be launched. */
export class Graph {
  /**
   * @param {Recording} recording of the function @param {Storage[]} inputs memory that arguments are copied to
   * @param {unknown} result of the function; no scope owns its tensors
   * @param {GraphOptions} options
   */
  constructor(recording, inputs, result, { passes, graph, tune }) {
    this.device = runtime();
    this.recording = recording;
    this.inputs = inputs;
    this.result = result;
    /** The gradient of each leaf after a call. */
    this.gradientsAfter = Array.from(recording.guard.gradients.keys(), (leaf) => /** @type {const} */ ([leaf, leaf.grad]));
    /** Storages from before the trace that a call writes. */
    this.written = [...recording.outside.keys()].filter((storage) => recording.changed(storage));
    const outputs = new Set(Array.from(tensorsIn(result), ({ storage }) => /** @type {Storage} */ (storage).allocation));
    const { parts, steps, found, bytes, memory, abandoned, once } = build(recording, inputs, outputs, passes, tune);
    recording.list.length = 0;
    /** Copies of parameters that a call leaves up to date. A permuted copy is up to date if the one in natural order is. */
    this.copiesAfter = [...recording.copies].filter(
      (copy) => (copy instanceof PermutedCopy ? copy.half : copy).fresh && !abandoned.has(copy),
    );
    this.abandoned = abandoned;
    for (const copy of abandoned) recording.abandon(copy);
    /** What is computed before the first launch, and again where a version has changed. */
    this.once = once;
    /** Versions of its sources at that time; undefined before. @type {number[] | undefined} */
    this.versions = undefined;
    this.parts = parts;
    /** Number of dispatches. */
    this.dispatches = parts.reduce((sum, { dispatches }) => sum + dispatches, 0);
    this.steps = steps;
    this.found = found;
    this.bytes = bytes;
    this.allocation = new Holdings(this.device, memory);
    try {
      this.device.flush();
      if (graph) for (const part of parts) this.record(part);
    } catch (error) {
      this.allocation.free();
      throw error;
    }
    this.device.watch(this);
  }

  /** Records the dispatches of a part as a graph of the addon. @param {import('./build.mjs').Part} part */
  record(part) {
    const { vk } = this.device;
    const { handles } = this.allocation;
    const at = handles.push(undefined) - 1;
    if (part.dispatches === 0) return;
    vk.graphBegin();
    try {
      this.submit(part);
    } finally {
      handles[at] = vk.graphEnd();
    }
  }

  /** Submits the dispatches of a part, after reporting their work to a profile that is on. @param {import('./build.mjs').Part} part */
  submit({ packed, dispatches }) {
    const { vk } = this.device;
    if (this.parts.length === 1) vk.profileWork?.(workOf(this.steps));
    vk.batchExecuteAll(packed, dispatches);
  }

  /** Whether everything that the trace relied on is unchanged. */
  holds() {
    return !this.device.closed && this.recording.guard.holds();
  }

  // ---- a call: fill, launch or profile, take

  /**
   * Copies the arguments to the graph's inputs, brings 16-bit copies of parameters up to date, and makes sure that the host's state allows a
   * launch.
   * @param {Slot[]} slots
   */
  fill(slots) {
    const { device } = this;
    for (const { before } of this.recording.effects.values()) before();
    for (const copy of this.recording.copies) copy.refresh();
    device.flush();
    this.keep();
    slots.forEach(({ layout, source }, i) => {
      if (layout.size === 0) return;
      const { handle } = this.inputs[i].allocation;
      if (!(source instanceof Tensor)) {
        device.vk.uploadAsync(handle, encode('compile', source, layout.dtype));
        return;
      }
      const dense = source.layout.contiguous ? source : unscoped(() => source.detach().contiguous());
      device.flush();
      const size = BYTES[layout.dtype];
      const [from, bytes] = [dense.layout.offset * size, layout.size * size];
      if (from % 4 || bytes % 4) {
        // Copies are in whole words. A dense copy at offset 0 makes the odd element of a word the last one.
        const own = unscoped(() => dense.detach().clone());
        device.flush();
        device.vk.copyBuffer(/** @type {Storage} */ (own.storage).allocation.handle, handle, Math.ceil(bytes / 4) * 4, 0, 0);
        own.dispose();
      } else device.vk.copyBuffer(/** @type {Storage} */ (dense.storage).allocation.handle, handle, bytes, from, 0);
      if (dense !== source) dense.dispose();
    });
  }

  /** Computes what is kept between calls, where it is not up to date. */
  keep() {
    if (!this.once) return;
    const { packed, dispatches, sources } = this.once;
    const { versions } = this;
    if (versions && sources.every(({ version }, i) => version === versions[i])) return;
    this.device.vk.batchExecuteAll(packed, dispatches);
    this.versions = sources.map(({ version }) => version);
  }

  /** Runs the graph. */
  launch() {
    for (const [i, part] of this.parts.entries()) {
      const handle = this.allocation.handles[i];
      if (handle !== undefined) this.device.vk.graphLaunch(handle);
      else if (part.dispatches > 0) this.submit(part);
      part.after?.();
    }
    this.launched();
  }

  /** Runs the dispatches with timestamps around each. @returns {import('./explain.mjs').LineTime[]} */
  profile() {
    const { parts, steps } = this;
    const times = parts.flatMap(({ packed, dispatches, after }) => {
      const own = dispatches > 0 ? this.device.vk.batchExecuteAllProfiled(packed, dispatches).dispatchTimesUs : [];
      after?.();
      return [...own];
    });
    this.launched();
    return timesByLine(steps, times);
  }

  /** Updates the host's view after a launch: versions of storages, fresh copies, gradients, and what else it changes. */
  launched() {
    for (const { after } of this.recording.effects.values()) after();
    for (const storage of this.written) storage.version++;
    for (const copy of this.copiesAfter) copy.version = copy.source.version;
    for (const copy of this.abandoned) copy.drop();
    for (const [leaf, gradient] of this.gradientsAfter) leaf.grad = gradient;
    for (const gradient of this.recording.cleared) gradient.dispose();
    this.recording.cleared.clear();
  }

  /**
   * Allocates memory for the results of a call. This happens before the launch, so that a call that fails for lack of memory has done nothing.
   * @param {boolean} reuse whether results stay in the graph's memory
   * @returns {Map<Storage, Allocation>} by the storages of the results that the graph computes
   */
  reserve(reuse) {
    const { device } = this;
    /** @type {Map<Storage, Allocation>} */
    const memory = new Map();
    try {
      for (const tensor of tensorsIn(this.result)) {
        const storage = storageOf('compile', tensor);
        const computed = storage.allocation.sink === this.recording || this.inputs.includes(storage);
        if (tensor.serial < this.recording.serial || !computed || memory.has(storage)) continue;
        const { handle, bytes } = storage.allocation;
        memory.set(storage, reuse ? { handle, bytes, live: true, sink: keptOn(device, this) } : device.allocate(bytes));
      }
    } catch (error) {
      giveBack(memory);
      throw error;
    }
    return memory;
  }

  /**
   * The result of the last launch, in the memory that was reserved. A tensor from before the trace is returned itself, and a view of one as a
   * view; `made` has the new tensors.
   * @param {Map<Storage, Allocation>} memory
   * @returns {{ result: unknown, made: Tensor[] }}
   */
  take(memory) {
    /** @type {Map<Storage, Storage>} */
    const copies = new Map();
    for (const [storage, allocation] of memory) {
      const { handle, bytes } = storage.allocation;
      if (allocation.handle !== handle) this.device.vk.copyBuffer(handle, allocation.handle, bytes, 0, 0);
      copies.set(storage, new Storage(allocation));
    }
    /** @type {Tensor[]} */
    const made = [];
    /** @param {Tensor} tensor */
    const taken = (tensor) => {
      if (tensor.serial < this.recording.serial) return tensor;
      const copy = copies.get(/** @type {Storage} */ (tensor.storage));
      if (!copy) return tensor.detach();
      const own = new Tensor(copy, tensor.layout);
      made.push(own);
      return own;
    };
    return { result: mapTensors(this.result, taken), made };
  }

  // ---- the end

  dispose() {
    if (!this.device.closed) this.device.flush();
    this.allocation.free();
    this.recording.forget();
    for (const tensor of tensorsIn(this.result)) if (tensor.serial >= this.recording.serial) tensor.dispose();
    for (const storage of this.inputs) storage.release();
  }
}

/** Frees the memory of a call that failed. @param {Map<Storage, Allocation>} memory that {@link Graph.reserve} returned */
export function giveBack(memory) {
  for (const allocation of memory.values()) allocation.sink.release(allocation);
}

/**
 * The sink of results that stay in a graph's memory. They keep the graph alive, and releasing them frees nothing.
 * @param {import('../core/runtime.mjs').Runtime} device @param {Graph} graph
 * @returns {Sink & { graph: Graph }}
 */
const keptOn = (device, graph) => ({
  graph,
  get closed() {
    return device.closed;
  },
  allocate: () => {
    throw new Error('not to be allocated from');
  },
  release: (allocation) => {
    allocation.live = false;
  },
  append: () => undefined,
});
