// The device of this process: allocates storages, and gathers dispatches into packed lists.

import { createRequire } from 'node:module';
import { isMainThread } from 'node:worker_threads';
import { Recorder } from '../../kernels/base.mjs';
import { createKernels } from '../../kernels/index.mjs';
import { UsageError } from './errors.mjs';
import { Garbage } from './garbage.mjs';
import { SharedSlots } from './memory.mjs';

/** The native module. @typedef {typeof import('../../index.js')} Native */
/** @typedef {import('../../kernels/template.mjs').Template} Template */
/** @typedef {import('../../kernels/index.mjs').Kernels} Kernels */
/** @typedef {import('./storage.mjs').Storage} Storage */
/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */

/** Dispatches after which a list is submitted. */
const LIST = 64;

/** Storages are multiples of this many bytes: pairs of an odd number of elements lie within. */
const PADDING = 16;

/** Buffers of up to so many bytes take turns, this many of each size. */
const [SMALL, TURNS] = [2 ** 20, 8];

/**
 * What dispatches are of: an operation, its attributes, and the number of its inputs, and the layouts of these and then of its outputs.
 * @typedef {{ op: import('../ops/registry.mjs').Op, attributes: import('../ops/registry.mjs').Attributes, inputs: number, layouts: import('./layout.mjs').Layout[] }} CallInfo
 */

/** What dispatches are that are of no operation: a name, and the bytes that they read and write. @typedef {{ name: string, bytes?: number }} WorkInfo */

/**
 * What takes the dispatches of operations: the eager list, or the recording of a compiled function.
 * @typedef {object} Sink
 * @property {(bytes: number) => Allocation} allocate
 * @property {(allocation: Allocation) => void} release
 * @property {(template: Template, storages: Storage[], call?: CallInfo, info?: WorkInfo) => string | undefined} append `info` of what is
 *   no operation; a recording answers with the line of the user's program
 * @property {(storage: Storage) => void} [watch] has memory given back when its storage is garbage
 * @property {(tensor: Tensor) => void} [use] is told of operands
 * @property {(storage: Storage) => boolean} [changed] says whether it has changed a storage from before
 * @property {Set<import('../optim/half-copy.mjs').ParameterCopy>} [copies] that hold what they should before each launch
 * @property {(leaf: Tensor) => void} [gradientOf] is told of leaves before their gradient is looked at or changed
 * @property {boolean} [closed] whether its memory went with its device
 * @property {number} [serial] tensors from this number on were made for it
 * @property {() => string | undefined} [originNow] the line of the user's program that is being recorded
 * @property {string | undefined} [origin] that line where it is known: in a backward pass the line of the operation
 * @property {number} [region] of what is recorded now: results are shared within one alone
 */

/**
 * Memory of a storage.
 * @typedef {object} Allocation
 * @property {number} handle the buffer; of a recording: -1 until its memory is planned
 * @property {number} bytes
 * @property {boolean} live
 * @property {Sink} sink where it was allocated
 */

/** The eager mode: operations are appended as they are called, and submitted soon. @implements {Sink} */
export class Runtime {
  /** @param {Native} vk the native module */
  constructor(vk) {
    this.vk = vk;
    // Records are made once for a layout, over slots that stand for buffers, and layouts are checked where tensors are made.
    /** @type {import('../../kernels/index.mjs').Kernels} */
    this.kernels = createKernels(vk, { check: false });
    this.info = this.kernels.context.info;
    this.recorder = new Recorder(16384);
    /** Buffers freed since the last list, by size: what follows in this list may have them at once. @type {Map<number, number[]>} */
    this.free = new Map();
    /** Handles of one record, filled anew for each. @type {number[]} */
    this.handles = [];
    this.scheduled = false;
    /** Whether the list is not to be submitted yet: {@link Runtime.allOrNothing}. */
    this.held = false;
    /** Whether the device was given up: its handles mean nothing any more. */
    this.closed = false;
    /** What a list that nobody waited for failed with. @type {unknown} */
    this.failure = undefined;
    /** Buffers and their bytes that are held now. */
    this.live = { buffers: 0, bytes: 0 };
    /** Memory that compiled functions share. */
    this.slots = new SharedSlots(
      (bytes) => {
        const slot = this.allocate(bytes);
        this.name(slot, 'intermediate results');
        return slot;
      },
      (slot) => this.release(slot),
    );
    /** Operations that found their record, and that made it. */
    this.hits = 0;
    this.misses = 0;
    this.garbage = new Garbage(vk, this.info.deviceLocalMemoryBytes);
    if (!isMainThread) process.once('exit', () => this.end());
  }

  /** Bytes that a tensor has at most. */
  get maxBytes() {
    const { bindingBytes, bufferBytes } = this.kernels.context;
    return Math.min(bindingBytes, bufferBytes);
  }

  /**
   * Memory of at least `bytes` bytes with undefined contents.
   * @param {number} bytes
   * @param {boolean} [exportable] whether other interfaces to the device get at it too, as NCCL does
   * @returns {Allocation}
   */
  allocate(bytes, exportable = false) {
    const size = Math.max(PADDING, Math.ceil(bytes / PADDING) * PADDING);
    if (size > this.maxBytes) throw new UsageError('tensor', `${size} bytes; a tensor on this device has at most ${this.maxBytes} bytes`);
    if (this.garbage.due(this.live)) this.garbage.collect(this.live);
    const handle = exportable
      ? this.withMemory(() => this.vk.createBuffer(size, 0, { exportable }))
      : (this.reuse(size) ?? this.withMemory(() => this.vk.createBuffer(size, 0)));
    this.live.buffers++;
    this.live.bytes += size;
    return { handle, bytes: size, live: true, sink: this };
  }

  /**
   * A buffer that was freed since the last list. Small ones take turns: who writes at once over what an operation has just used
   * waits for it, which takes a GPU longer than the operation.
   * @param {number} size @returns {number | undefined}
   */
  reuse(size) {
    const handles = this.free.get(size);
    if (size > SMALL) return handles?.pop();
    return handles && handles.length >= TURNS ? handles.shift() : undefined;
  }

  /**
   * The result of a call that allocates. Out of memory, the call is repeated after each of two steps of {@link Runtime.makeRoom}.
   * @template T
   * @param {() => T} call @returns {T}
   */
  withMemory(call) {
    for (let failures = 0; ; failures++) {
      try {
        return call();
      } catch (error) {
        if (this.held) throw error;
        this.makeRoom(error, failures);
      }
    }
  }

  /**
   * Makes room after a failure: first submits the list, which keeps buffers freed since the last one for reuse, then collects garbage.
   * @param {unknown} error thrown where it is no shortage, or has outlasted both; it then says what a program can do
   * @param {number} failures before this one
   */
  makeRoom(error, failures) {
    if (!isOutOfMemory(error)) throw error;
    if (failures === 1) this.garbage.collect(this.live);
    if (failures < 2) return this.submit();
    const { bytes, buffers } = this.live;
    const { message, stack } = error;
    error.message =
      `${message}; tensors hold ${bytes} bytes in ${buffers} buffers, none of which is garbage: end what a step makes with ` +
      'scope(() => …) or dispose(), hold on to values (await x.item()) in place of tensors, or make batches smaller';
    // What an uncaught error shows.
    error.stack = stack?.replace(message, () => error.message);
    throw error;
  }

  /** @param {Allocation} allocation */
  release(allocation) {
    if (!allocation.live || this.closed) return;
    allocation.live = false;
    this.live.buffers--;
    this.live.bytes -= allocation.bytes;
    if (this.recorder.count === 0) {
      this.vk.destroyBuffer(allocation.handle);
      return;
    }
    const list = this.free.get(allocation.bytes);
    if (list) list.push(allocation.handle);
    else this.free.set(allocation.bytes, [allocation.handle]);
  }

  /** Has what an object holds on the device given back when it is garbage. @param {import('./garbage.mjs').Holder} holder */
  watch(holder) {
    this.garbage.watch(holder);
  }

  /** @param {Template} template @param {Storage[]} storages one for each slot @returns {undefined} */
  append(template, storages) {
    if (this.failure) this.flush();
    const { handles, recorder } = this;
    for (let i = 0; i < storages.length; i++) handles[i] = storages[i].allocation.handle;
    template.appendTo(recorder, handles);
    if (recorder.count >= LIST && !this.held) this.submit();
    else this.schedule();
  }

  /**
   * Appends what `fn` computes, or nothing if `fn` throws: nothing is submitted before it returns, and what it appended is removed from
   * the list again. Out of memory, `fn` runs again after each step of {@link Runtime.makeRoom}, which submits the earlier part of the
   * list. `fn` must not do what cannot be undone, such as uploads and flushes.
   * @param {() => void} fn @param {Storage[]} storages from before that it writes: where it throws, they have their versions again
   */
  allOrNothing(fn, storages) {
    const { recorder } = this;
    const versions = storages.map(({ version }) => version);
    for (let failures = 0; ; failures++) {
      const { length, count } = recorder;
      this.held = true;
      try {
        fn();
        break;
      } catch (error) {
        recorder.length = length;
        recorder.count = count;
        storages.forEach((storage, i) => {
          storage.version = versions[i];
        });
        // An empty list gives back nothing.
        if (count === 0) this.destroyFree();
        this.held = false;
        this.makeRoom(error, failures);
      } finally {
        this.held = false;
      }
    }
    if (recorder.count >= LIST) this.submit();
  }

  /** Has the list submitted at the end of this turn. */
  schedule() {
    if (this.scheduled) return;
    this.scheduled = true;
    queueMicrotask(() => {
      this.scheduled = false;
      try {
        this.submit();
      } catch (error) {
        // No caller can catch it here, so the next operation or read throws it.
        this.failure = error;
      }
    });
  }

  /** Submits what has been appended, where there is memory for that; else it waits for the next time. */
  submit() {
    try {
      this.flush();
    } catch (error) {
      if (!isOutOfMemory(error)) throw error;
    }
  }

  /** Submits what has been appended. Out of memory none of it has run, and it still waits. */
  flush() {
    const { recorder } = this;
    if (this.failure) {
      const failure = this.failure;
      this.failure = undefined;
      throw failure;
    }
    const { count } = recorder;
    if (count > 0) {
      try {
        this.vk.batchExecuteAll(new Uint8Array(recorder.view.buffer, 0, recorder.length), count);
      } catch (error) {
        if (isOutOfMemory(error)) throw error;
        this.forgetList();
        throw error;
      }
      this.forgetList();
    }
  }

  /** Empties the list, and gives back the buffers that it alone used. */
  forgetList() {
    this.recorder.reset();
    this.destroyFree();
  }

  /** Names memory for reports and statistics. @param {Allocation} allocation @param {string} name */
  name({ handle }, name) {
    this.vk.setName?.(handle, name);
  }

  /** Gives back everything as a worker comes to its end: nobody else has its tensors. What is terminated the addon sees to. */
  end() {
    if (this.closed) return;
    try {
      this.recorder.reset();
      for (const allocation of this.garbage.allocations()) allocation.sink.release(allocation);
      this.destroyFree();
      for (const pipeline of this.kernels.context.pipelines.values()) this.vk.destroyPipeline(pipeline);
    } catch {
      // The device is lost, or another thread has destroyed it, and with it everything.
    }
    this.close();
  }

  /** Gives up the device. */
  close() {
    this.closed = true;
    this.garbage.close();
    this.recorder.reset();
    this.free.clear();
    this.failure = undefined;
  }

  /** Destroys the freed buffers that were not reused. */
  destroyFree() {
    if (this.free.size === 0) return;
    for (const handles of this.free.values()) for (const handle of handles) this.vk.destroyBuffer(handle);
    this.free.clear();
  }

  /**
   * Copies host data into a storage, in order with the operations.
   * @param {Allocation} allocation @param {ArrayBufferView} data @param {number} [byteOffset]
   */
  upload(allocation, data, byteOffset = 0) {
    this.flush();
    this.withMemory(() => this.vk.uploadAsync(allocation.handle, data, byteOffset));
  }
}

/** @param {unknown} error @returns {error is Error} */
const isOutOfMemory = (error) => /** @type {{ code?: string } | null | undefined} */ (error)?.code === 'ERR_HELIOS_OUT_OF_MEMORY';

/** This package's native module, loaded where no other was given. @returns {typeof import('../../index.js')} */
const native = () => createRequire(import.meta.url)('../../index.js');

/** @type {Runtime | undefined} */
let current;
/** @typedef {Required<Omit<Sink, 'origin' | 'closed' | 'watch'>> & Pick<Sink, 'origin' | 'closed'>} RecordingSink */
/** @type {RecordingSink | undefined} */
let recording;

/**
 * Options of `init`.
 * @typedef {object} InitOptions
 * @property {string | number} [device] index, UUID, PCI address or part of the name; the first choice when left out
 * @property {boolean} [safe] whether shaders are checked and kept inside their buffers
 * @property {Native} [vk] another native module with the functions of `helios-vk`; this package's own when left out
 */

/** The device, opened at first use. @returns {Runtime} */
export function runtime() {
  current ??= new Runtime(native());
  return current;
}

/**
 * Opens the device with these options (see `initDevice`), or uses another native module. Call it before anything else of this
 * package; without it, the first tensor opens the default device.
 * @param {InitOptions} [options]
 * @returns {import('../../index.js').DeviceInfo}
 */
export function init({ vk = native(), ...options } = {}) {
  if (current && (current.vk !== vk || Object.keys(options).length > 0)) {
    throw new UsageError('init', 'the device is open already: call init before the first tensor');
  }
  vk.initDevice(options);
  current ??= new Runtime(vk);
  return current.info;
}

/** What was made for the device. @type {{ clear(): void }[]} */
const caches = [];
/** Has a cache emptied by {@link reset}. @template {{ clear(): void }} T @param {T} cache @returns {T} */
export function perDevice(cache) {
  caches.push(cache);
  return cache;
}

/**
 * Closes the device, even a lost one, and forgets everything on it: using a tensor, module, optimizer or compiled function from before
 * is an error that says so. The next tensor, or `init`, opens a device again. Build the model anew and load what was saved. The state of
 * the device's random numbers starts over.
 */
export function reset() {
  if (recording) throw new UsageError('reset', 'a function is being compiled');
  const old = current;
  current = undefined;
  for (const cache of caches) cache.clear();
  if (!old) return;
  old.close();
  old.vk.destroy();
}

/** What takes dispatches now. @returns {Sink} */
export const sink = () => recording ?? runtime();

/** The recording of the function that is being compiled, if one is. */
export const recordingNow = () => recording;

/** Whether a function is being compiled. */
export const isRecording = () => recording !== undefined;

/**
 * Sends the dispatches of `fn` elsewhere.
 * @template T
 * @param {RecordingSink} target @param {() => T} fn
 * @returns {T}
 */
export function into(target, fn) {
  const outer = recording;
  recording = target;
  try {
    return fn();
  } finally {
    recording = outer;
  }
}

let regions = 0;

/**
 * Runs `fn`; where a function is being compiled, without results that were there before in place of those computed in it.
 * @template T
 * @param {() => T} fn
 * @returns {T}
 */
export function anew(fn) {
  if (!recording) return fn();
  const { region, origin } = recording;
  recording.region = ++regions;
  recording.origin = undefined;
  try {
    return fn();
  } finally {
    Object.assign(recording, { region, origin });
  }
}

/** The number of buffers that tensors hold now, and their bytes. Opens the device if none is open. */
export const memory = () => ({ ...runtime().live });
