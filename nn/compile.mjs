// `compile`: a function is run once with its dispatches recorded, and from then on is one launch of a recorded graph.
//
// The trace is the eager mode with another sink: storages get their memory at the end, when it is known how long each lives.
// What was there before the trace (parameters, moments, constants of closures) is used in place, by its memory.

import { Recorder } from '../kernels/base.mjs';
import { autocastType, forgetCasts } from './autocast.mjs';
import { isGradEnabled } from './autograd.mjs';
import { storageOf } from './engine.mjs';
import { ArgumentError, UsageError, callerLine, show } from './errors.mjs';
import { page, stepsOf, timesByLine, workOf } from './explain.mjs';
import { collect, same } from './guards.mjs';
import { encode } from './host.mjs';
import { BYTES, denseLayout } from './layout.mjs';
import { planMemory } from './memory.mjs';
import { accesses } from './passes/calls.mjs';
import { PASSES, runPasses } from './passes/index.mjs';
import { into, isRecording, runtime } from './runtime.mjs';
import { Scope, Storage, unscoped } from './storage.mjs';
import { Tensor, nextSerial } from './tensor.mjs';

/** @typedef {import('./runtime.mjs').Allocation} Allocation */
/** @typedef {import('./runtime.mjs').Sink} Sink */
/** @typedef {import('./layout.mjs').Layout} Layout */
/** @typedef {import('./layout.mjs').DType} DType */
/** @typedef {import('../kernels/template.mjs').Template} Template */
/** @typedef {import('./passes/calls.mjs').Call} Call */
/** @typedef {import('./passes/index.mjs').PassName} PassName */

/** Graphs that a compiled function keeps, the last used ones. */
const MAX_GRAPHS = 8;

/** A tensor of an argument: its layout, and where the data comes from. @typedef {{ layout: Layout, requiresGrad: boolean, source: Tensor | ArrayBufferView }} Slot */

/** Objects and functions, numbered as they are met: part of the key by identity. @type {WeakMap<object, number>} */
const identities = new WeakMap();
/** Symbols, too: one of the global registry can be in no `WeakMap`. @type {Map<symbol, number>} */
const symbols = new Map();
let identity = 0;

/** What is no tensor and has none in it, as part of a key. @param {unknown} value @returns {string} */
function constantKey(value) {
  if ((typeof value === 'object' && value !== null) || typeof value === 'function' || typeof value === 'symbol') {
    const known = /** @type {Map<unknown, number>} */ (typeof value === 'symbol' ? symbols : identities);
    if (!known.has(value)) known.set(value, identity++);
    return `#${known.get(value)}`;
  }
  // Quoted: what a string says is not taken for another argument.
  return `${typeof value}:${typeof value === 'string' ? JSON.stringify(value) : Object.is(value, -0) ? '-0' : String(value)}`;
}

/**
 * The tensors of arguments, and a key of everything else about them.
 * @param {unknown[]} args
 * @returns {{ slots: Slot[], key: string, rebuild: (tensors: Tensor[]) => any[] }}
 */
function flattenArguments(args) {
  /** @type {Slot[]} */
  const slots = [];
  /** @type {string[]} */
  const key = [];
  /** @param {unknown} value @returns {(tensors: Tensor[]) => any} */
  const walk = (value) => {
    // A parameter is a place, not a value: it is used, and trained, where it is.
    const isInput = value instanceof Tensor && !value.isParameter;
    if (isInput || (ArrayBuffer.isView(value) && !(value instanceof DataView))) {
      const slot = slotOf(/** @type {Tensor | ArrayBufferView} */ (value));
      const at = slots.push(slot) - 1;
      key.push(`${slot.layout.dtype}[${slot.layout.shape}]${slot.requiresGrad ? 'g' : ''}`);
      return (tensors) => tensors[at];
    }
    if (Array.isArray(value) || (typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype)) {
      key.push(Array.isArray(value) ? '(' : '{');
      const entries = Object.entries(value).map(([name, item]) => {
        key.push(JSON.stringify(name));
        return /** @type {const} */ ([name, walk(item)]);
      });
      key.push(')');
      return (tensors) => {
        const items = entries.map(([name, item]) => /** @type {const} */ ([name, item(tensors)]));
        return Array.isArray(value) ? items.map(([, item]) => item) : Object.fromEntries(items);
      };
    }
    key.push(constantKey(value));
    return () => value;
  };
  const rebuilders = args.map(walk);
  return { slots, key: key.join(' '), rebuild: (tensors) => rebuilders.map((build) => build(tensors)) };
}

/** @param {Tensor | ArrayBufferView} value @returns {Slot} */
function slotOf(value) {
  if (value instanceof Tensor) {
    storageOf('compile', value);
    return { layout: denseLayout(value.shape, value.dtype), requiresGrad: value.requiresGrad, source: value };
  }
  const dtype = value instanceof Int32Array ? 'i32' : value instanceof Uint32Array ? 'u32' : 'f32';
  const numbers = /** @type {any} */ (value);
  if (typeof numbers[0] === 'bigint') throw new ArgumentError('compile', 'a BigInt array: convert it to Int32Array first');
  return { layout: denseLayout([numbers.length], dtype), requiresGrad: false, source: value };
}

/**
 * The dispatches of a trace, and what they touch.
 * @implements {Sink}
 */
class Recording {
  constructor() {
    /** @type {Call[]} */
    this.list = [];
    /** Tensors made from here on are the trace's. */
    this.serial = nextSerial();
    this.region = 0;
    /** The line of the user's program whose operations are recorded, where it is not the one that is running. @type {string | undefined} */
    this.origin = undefined;
    /** Tensors from before that were used, as they were. @type {Map<Tensor, { storage: Storage, layout: Layout, requiresGrad: boolean }>} */
    this.used = new Map();
    /** Storages from before, and their versions when they were first used. @type {Map<Storage, number>} */
    this.outside = new Map();
    /** Leaves whose gradient was read or changed, and what it was. @type {Map<Tensor, Tensor | undefined>} */
    this.gradients = new Map();
    /** Copies of parameters that are read or written here. @type {Set<import('./optim/half-copy.mjs').HalfCopy>} */
    this.copies = new Set();
    /** Settings asked for, such as whether a module trains. @type {import('./guards.mjs').Settings} */
    this.settings = new Map();
  }

  /** @param {number} bytes @returns {Allocation} */
  allocate(bytes) {
    return { handle: -1, bytes: Math.max(16, Math.ceil(bytes / 16) * 16), live: true, sink: this };
  }

  /** @param {Allocation} allocation */
  release(allocation) {
    allocation.live = false;
  }

  originNow() {
    return this.origin ?? callerLine();
  }

  /** @param {Template} template @param {Storage[]} storages @param {import('./runtime.mjs').CallInfo} [call] @param {import('./runtime.mjs').WorkInfo} [info] */
  append(template, storages, call, info) {
    for (const storage of storages) {
      if (storage.allocation.sink === this || this.outside.has(storage)) continue;
      this.outside.set(storage, storage.version);
      storage.retain();
    }
    const origin = this.originNow();
    const allocations = storages.map(({ allocation }) => allocation);
    const values = call?.layouts.map((layout, i) => ({ allocation: allocations[i], layout })) ?? [];
    this.list.push({
      op: call?.op,
      attributes: call?.attributes,
      inputs: values.slice(0, call?.inputs),
      outputs: values.slice(call?.inputs),
      template,
      allocations,
      region: this.region,
      name: info?.name,
      bytes: info?.bytes,
      origin,
    });
    return origin;
  }

  /** Notes an operand. @param {Tensor} tensor */
  use(tensor) {
    if (tensor.serial >= this.serial || this.used.has(tensor) || tensor.storage === undefined) return;
    this.used.set(tensor, { storage: tensor.storage, layout: tensor.layout, requiresGrad: tensor.requiresGrad });
  }

  /** Whether a storage from before is changed here. @param {Storage} storage */
  changed(storage) {
    return this.outside.has(storage) && this.outside.get(storage) !== storage.version;
  }

  /** Notes a leaf's gradient before it is looked at. @param {Tensor} leaf */
  gradientOf(leaf) {
    if (leaf.serial < this.serial && !this.gradients.has(leaf)) this.gradients.set(leaf, leaf.grad);
  }

  forget() {
    for (const storage of this.outside.keys()) storage.release();
    this.outside.clear();
  }
}

/** A traced call: the graph, its memory, and what must still hold for it to be used. */
class Graph {
  /**
   * @param {Recording} recording @param {Storage[]} inputs @param {any} result
   * @param {Required<Pick<CompileOptions, 'passes' | 'graph'>>} options
   */
  constructor(recording, inputs, result, { passes, graph }) {
    const device = runtime();
    this.device = device;
    this.recording = recording;
    this.inputs = inputs;
    /** Where results lie: storages of the trace to their memory. @type {Map<Storage, Allocation>} */
    this.memory = new Map();
    this.result = result;
    /** Gradients after the call. */
    this.gradientsAfter = Array.from(recording.gradients.keys(), (leaf) => /** @type {const} */ ([leaf, leaf.grad]));
    /** Storages from before that the call writes. */
    this.written = [...recording.outside].filter(([storage, version]) => storage.version !== version).map(([storage]) => storage);

    /** Copies of parameters that the call leaves up to date. */
    this.copiesAfter = [...recording.copies].filter((copy) => copy.fresh);

    // How long each result of the trace lives.
    const outputs = new Set(Array.from(tensorsOf(result), (tensor) => /** @type {Storage} */ (tensor.storage).allocation));
    const isOwn = (/** @type {Allocation} */ allocation) => allocation.sink === recording;
    const isTemporary = (/** @type {Allocation} */ allocation) => isOwn(allocation) && !outputs.has(allocation);
    const { calls, found } = runPasses(
      recording.list,
      { isOwn, isTemporary, allocate: (bytes) => recording.allocate(bytes), kernels: device.kernels },
      passes,
    );
    /** What passes found, and how often. */
    this.found = found;
    /** @type {Map<Allocation, { bytes: number, first: number, last: number }>} */
    const lives = new Map();
    calls.forEach((call, i) => {
      const { reads, writes } = accesses(call);
      for (const allocation of [...reads, ...writes]) {
        if (allocation.sink !== recording) continue;
        const life = lives.get(allocation);
        if (life) life.last = i;
        else lives.set(allocation, { bytes: allocation.bytes, first: i, last: i });
      }
    });
    for (const allocation of outputs) {
      if (allocation.sink !== recording) continue;
      // A result that no dispatch wrote has memory as well.
      lives.set(allocation, { bytes: allocation.bytes, first: lives.get(allocation)?.first ?? 0, last: Infinity });
    }
    const { slots, of } = planMemory([...lives.values()]);
    /** Bytes of all results by themselves, and as they share memory. */
    this.bytes = { unplanned: [...lives.values()].reduce((sum, { bytes }) => sum + bytes, 0), planned: slots.reduce((a, b) => a + b, 0) };
    /** Memory that is shared with other graphs, and of results of the call, which is this one's. @type {Allocation[]} */
    this.slots = [];
    /** @type {Allocation[]} */
    this.own = [];
    this.dispatches = 0;
    /** The dispatches. @type {Uint8Array | ArrayBuffer} */
    this.packed = new Uint8Array();
    /** @type {import('./explain.mjs').Step[]} */
    this.steps = [];
    /** @type {number | undefined} */
    this.handle = undefined;
    try {
      const kept = new Set([...lives.keys()].flatMap((allocation, i) => (outputs.has(allocation) ? [of[i]] : [])));
      const shared = slots.map((_, s) => s).filter((s) => !kept.has(s));
      this.slots = device.slots.take(shared.map((s) => slots[s]));
      /** @type {Allocation[]} */
      const memory = [];
      for (const [i, s] of shared.entries()) memory[s] = this.slots[i];
      for (const s of kept) {
        memory[s] = device.allocate(slots[s], true);
        this.own.push(memory[s]);
        device.name(memory[s], 'results');
      }
      [...lives.keys()].forEach((allocation, i) => {
        allocation.handle = memory[of[i]].handle;
      });
      this.record(calls, graph);
    } catch (error) {
      this.free();
      throw error;
    }
    recording.list.length = 0;
  }

  /** @param {Call[]} calls @param {boolean} graph */
  record(calls, graph) {
    const device = runtime();
    const recorder = new Recorder(65536);
    for (const { template, allocations } of calls) {
      template?.appendTo(
        recorder,
        allocations.map(({ handle }) => handle),
      );
    }
    const { packed, count } = recorder.finish();
    this.packed = packed;
    this.dispatches = count;
    this.steps = stepsOf(calls);
    device.flush();
    if (count === 0 || !graph) return;
    device.vk.graphBegin();
    try {
      this.submit();
    } finally {
      this.handle = device.vk.graphEnd();
    }
  }

  /** Submits the list of dispatches. A profile that is on is told what they do. */
  submit() {
    const { vk } = runtime();
    vk.profileWork?.(workOf(this.steps));
    vk.batchExecuteAll(this.packed, this.dispatches);
  }

  /** Gives back the recorded graph and its memory. */
  free() {
    const { device } = this;
    if (this.handle !== undefined && !device.closed) device.vk.graphDestroy(this.handle);
    this.handle = undefined;
    device.slots.giveBack(this.slots.splice(0));
    for (const slot of this.own.splice(0)) device.release(slot);
  }

  /** Whether everything that the trace read is as it was. */
  holds() {
    if (this.device.closed) return false;
    const { used, gradients, settings } = this.recording;
    for (const [tensor, { storage, layout, requiresGrad }] of used) {
      if (tensor.storage !== storage || tensor.layout !== layout || tensor.requiresGrad !== requiresGrad) return false;
    }
    for (const [leaf, before] of gradients) if (leaf.grad !== before) return false;
    return same(settings);
  }

  /** @param {Slot[]} slots */
  fill(slots) {
    const device = runtime();
    slots.forEach(({ layout, source }, i) => {
      const { handle } = this.inputs[i].allocation;
      if (!(source instanceof Tensor)) {
        device.vk.uploadAsync(handle, encode('compile', /** @type {any} */ (source), layout.dtype));
        return;
      }
      const dense = source.layout.contiguous ? source : unscoped(() => source.detach().contiguous());
      device.flush();
      const size = BYTES[layout.dtype];
      const [from, bytes] = [dense.layout.offset * size, layout.size * size];
      if (from % 4 || bytes % 4) {
        // Halves of words are copied with their neighbours; the offset is then in a copy of its own.
        const own = unscoped(() => dense.detach().clone());
        device.flush();
        device.vk.copyBuffer(/** @type {Storage} */ (own.storage).allocation.handle, handle, Math.ceil(bytes / 4) * 4, 0, 0);
        own.dispose();
      } else device.vk.copyBuffer(/** @type {Storage} */ (dense.storage).allocation.handle, handle, bytes, from, 0);
      if (dense !== source) dense.dispose();
    });
  }

  /** Has copies of parameters hold what the parameters hold, which others may have changed since the last call. */
  refresh() {
    for (const copy of this.recording.copies) copy.refresh();
  }

  launch() {
    if (this.handle !== undefined) runtime().vk.graphLaunch(this.handle);
    else if (this.dispatches > 0) this.submit();
    this.launched();
  }

  /** Runs the graph's dispatches with timestamps around each. @returns {import('./explain.mjs').LineTime[]} */
  profile() {
    const { packed, dispatches, steps } = this;
    const times = dispatches > 0 ? runtime().vk.batchExecuteAllProfiled(packed, dispatches).dispatchTimesUs : [];
    this.launched();
    return timesByLine(steps, times);
  }

  /** What is different after a launch. */
  launched() {
    for (const storage of this.written) storage.version++;
    for (const copy of this.copiesAfter) copy.version = copy.source.version;
    for (const [leaf, gradient] of this.gradientsAfter) leaf.grad = gradient;
  }

  /**
   * The result of the last launch, in memory of its own or where it lies.
   * @param {boolean} reuse
   */
  take(reuse) {
    const device = runtime();
    /** @type {Map<Storage, Storage>} */
    const copies = new Map();
    /** @param {Tensor} tensor */
    const taken = (tensor) => {
      const storage = /** @type {Storage} */ (tensor.storage);
      if (this.recording.outside.has(storage) && !this.inputs.includes(storage))
        return tensor.serial < this.recording.serial ? tensor : tensor.detach();
      let copy = copies.get(storage);
      if (!copy) {
        const { handle, bytes } = storage.allocation;
        if (reuse) copy = new Storage({ handle, bytes, live: true, sink: keptOn(device) });
        else {
          const allocation = device.allocate(bytes);
          copy = new Storage(allocation);
          device.vk.copyBuffer(handle, allocation.handle, bytes, 0, 0);
        }
        copies.set(storage, copy);
      }
      return new Tensor(copy, tensor.layout);
    };
    return mapTensors(this.result, taken);
  }

  dispose() {
    if (!this.device.closed) this.device.flush();
    this.free();
    this.recording.forget();
    for (const tensor of tensorsOf(this.result)) if (tensor.serial >= this.recording.serial) tensor.dispose();
    for (const storage of this.inputs) storage.release();
  }
}

/** Owns the memory of results that lie in a graph: nothing is freed with them. @param {import('./runtime.mjs').Runtime} device @returns {Sink} */
const keptOn = (device) => ({
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

/** @param {any} value @returns {Generator<Tensor>} */
function* tensorsOf(value) {
  if (value instanceof Tensor) yield value;
  else if (Array.isArray(value)) for (const item of value) yield* tensorsOf(item);
  else if (typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype) {
    for (const item of Object.values(value)) yield* tensorsOf(item);
  }
}

/** @param {any} value @param {(tensor: Tensor) => any} f @returns {any} */
function mapTensors(value, f) {
  if (value instanceof Tensor) return f(value);
  if (Array.isArray(value)) return value.map((item) => mapTensors(item, f));
  if (typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype) {
    return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, mapTensors(item, f)]));
  }
  return value;
}

/**
 * Options of `compile`.
 * @typedef {object} CompileOptions
 * @property {boolean} [reuseOutputs] whether results lie in the graph's memory, until the next call, instead of memory of their
 *   own; false when left out
 * @property {boolean} [graph] whether calls launch a recorded graph; with false each submits the list of dispatches again, which
 *   takes the host longer; true when left out
 * @property {readonly PassName[]} [passes] over what was recorded: all when left out
 */

/**
 * What a compiled function has besides being one.
 * @template {any[]} A
 * @typedef {object} CompiledMethods
 * @property {() => Explanation[]} explain its graphs, the last used one at the end
 * @property {() => string} html a page about them for a browser: what each line of the program became, and what was put together
 * @property {(...args: A) => import('./explain.mjs').LineTime[]} profile one call, with the time of each line of the program, the
 *   longest first. The call happens: an optimizer steps. Its result is not returned. Throws where the device has no timestamps
 * @property {() => void} dispose frees its graphs and their memory
 */

/**
 * A function of tensors as recorded graphs: the first call with arguments of some shapes runs it once to record what it does;
 * calls after that submit the recording. Tensors and typed arrays among the arguments (also in arrays and plain objects) are
 * inputs; every other argument, and every number that the function takes from outside, is a constant of the recording.
 * Parameters, and other tensors from outside, are read and written where they are.
 *
 * There are no values while the function runs: what is to be read is returned. Results are tensors of their own without
 * gradients; with `reuseOutputs` they lie in the graph's memory, until the next call.
 * @template {(...args: any[]) => any} F
 * @param {F} fn synchronous
 * @param {CompileOptions} [options]
 * @returns {((...args: Parameters<F>) => ReturnType<F>) & CompiledMethods<Parameters<F>>}
 */
export function compile(fn, { reuseOutputs = false, graph: recorded = true, passes = PASSES } = {}) {
  const unknown = passes.find((name) => !PASSES.includes(name));
  if (unknown !== undefined) throw new ArgumentError('compile', `no pass ${unknown}; there are ${PASSES.join(', ')}`);
  if (typeof fn !== 'function') throw new ArgumentError('compile', `expected a function, got ${String(fn)}`);
  if (fn.constructor.name === 'AsyncFunction')
    throw new ArgumentError('compile', 'the function is async: what it does after an await would not be recorded');
  /** Graphs by key, the last used one at the end. @type {Map<string, Graph[]>} */
  const graphs = new Map();
  let traces = 0;
  let warned = false;
  /** Results of the call before, where they lie in a graph. @type {any} */
  let last;

  /** @param {string} key @param {Slot[]} slots @param {(tensors: Tensor[]) => any[]} rebuild */
  const trace = (key, slots, rebuild) => {
    traces++;
    if (traces > MAX_GRAPHS && !warned) {
      warned = true;
      process.emitWarning(
        `a compiled function was traced ${traces} times: its arguments (now ${key}) or what it reads change from call to call. ` +
          'Each shape and each other argument needs a graph of its own; pass numbers that change as tensors.',
        { code: 'HELIOS_NN_TRACES' },
      );
    }
    const graph = traceCall(fn, slots, rebuild, { passes, graph: recorded });
    const same = graphs.get(key) ?? [];
    graphs.set(key, [...same, graph]);
    let count = 0;
    for (const list of graphs.values()) count += list.length;
    // The first of a key that was not used for longest goes.
    for (const [old, list] of graphs) {
      if (count <= MAX_GRAPHS) break;
      list.shift()?.dispose();
      if (list.length === 0) graphs.delete(old);
      count--;
    }
    return graph;
  };

  /** The graph for arguments, which it holds then. @param {any[]} args */
  const prepared = (args) => {
    const { slots, key: argumentKey, rebuild } = flattenArguments(args);
    const key = `${argumentKey}${isGradEnabled() ? '' : ' noGrad'}${autocastType() ? ` autocast ${autocastType()}` : ''}`;
    const found = graphs.get(key);
    let graph = found?.findLast((candidate) => candidate.holds());
    if (found) {
      graphs.delete(key);
      graphs.set(key, found);
    }
    graph ??= trace(key, slots, rebuild);
    graph.refresh();
    runtime().flush();
    graph.fill(slots);
    return graph;
  };
  const compiled = (/** @type {any[]} */ ...args) => {
    if (isRecording()) return fn(...args);
    const graph = prepared(args);
    graph.launch();
    if (reuseOutputs) for (const tensor of tensorsOf(last)) tensor.dispose('reused');
    const result = graph.take(reuseOutputs);
    if (reuseOutputs) last = result;
    return result;
  };
  const explained = () =>
    [...graphs].flatMap(([key, list]) => list.map(({ dispatches, bytes, found, steps }) => ({ key, dispatches, ...bytes, found, steps })));
  return Object.assign(/** @type {any} */ (compiled), {
    explain: () => explained().map(({ steps: _, ...rest }) => rest),
    html: () => page(explained()),
    profile: (/** @type {any[]} */ ...args) => {
      if (isRecording()) throw new UsageError('profile', 'a function is being compiled: profile that one');
      return prepared(args).profile();
    },
    dispose: () => {
      for (const list of graphs.values()) for (const graph of list) graph.dispose();
      graphs.clear();
    },
  });
}

/**
 * What a graph of a compiled function is.
 * @typedef {object} Explanation
 * @property {string} key the arguments that it is for
 * @property {number} dispatches
 * @property {number} unplanned bytes of its intermediate results, each by itself
 * @property {Record<string, number>} found what passes put together or left out, and how often
 * @property {number} planned bytes that they take, as they share memory
 */

/**
 * @param {(...args: any[]) => any} fn @param {Slot[]} slots @param {(tensors: Tensor[]) => any[]} rebuild
 * @param {Required<Pick<CompileOptions, 'passes' | 'graph'>>} options
 * @returns {Graph}
 */
function traceCall(fn, slots, rebuild, options) {
  const device = runtime();
  device.flush();
  // The trace reads parameters, not the 16-bit copies that eager code made of them.
  forgetCasts();
  /** @type {Storage[]} */
  const inputs = [];
  /** What the graph holds, by tensors that no scope knows. @type {any} */
  let held;
  const recording = new Recording();
  const scope = new Scope();
  try {
    for (const { layout } of slots) {
      const storage = new Storage(device.allocate(layout.size * BYTES[layout.dtype], true));
      storage.retain();
      device.name(storage.allocation, 'arguments');
      inputs.push(storage);
    }
    const tensors = slots.map(({ layout, requiresGrad }, i) => {
      const tensor = new Tensor(inputs[i], layout);
      tensor.requiresGrad = requiresGrad;
      return tensor;
    });
    const result = into(recording, () => collect(recording.settings, () => fn(...rebuild(tensors))));
    if (typeof result?.then === 'function')
      throw new ArgumentError('compile', 'the function is async: what it does after an await would not be recorded');
    inputs.forEach((storage, i) => {
      if (storage.version !== 0) {
        throw new UsageError(
          'compile',
          `the function changes its tensor argument ${i} ${show(slots[i].layout.shape)} in place, which is a copy: return the new value`,
        );
      }
    });
    held = unscoped(() => mapTensors(result, (tensor) => (tensor.serial < recording.serial ? tensor : tensor.detach())));
    return new Graph(recording, inputs, held, options);
  } catch (error) {
    for (const [leaf, before] of recording.gradients) leaf.grad = before;
    recording.forget();
    for (const tensor of tensorsOf(held)) if (tensor.serial >= recording.serial) tensor.dispose();
    for (const storage of inputs) storage.release();
    throw error;
  } finally {
    for (const tensor of scope.tensors) if (!tensor.isParameter) tensor.dispose('traced');
    scope[Symbol.dispose]();
  }
}
