// The device of this process: allocates memory, and collects dispatches into packed lists that it submits.

import { createRequire } from 'node:module';
import { isMainThread } from 'node:worker_threads';
import { Recorder } from '../../kernels/base.mjs';
import { createKernels } from '../../kernels/index.mjs';
import { ofPackage } from '../../kernels/package.mjs';
import { UsageError } from './errors.mjs';
import { Garbage } from './garbage.mjs';
import { SharedSlots } from './memory.mjs';

/** The native module. @typedef {typeof import('../../index.js')} Native */
/** @typedef {import('../../kernels/template.mjs').Template} Template */
/** @typedef {import('../../kernels/index.mjs').Kernels} Kernels */
/** @typedef {import('./storage.mjs').Storage} Storage */
/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */

/** Number of dispatches at which a list is submitted. */
const LIST = 64;

/** Allocations are rounded up to this many bytes, so that kernels may access the padding of an odd number of 16-bit elements. */
const PADDING = 16;

/** Buffers of up to `SMALL` bytes are reused in turn, once `TURNS` of a size are free: see {@link Runtime.reuse}. */
const [SMALL, TURNS] = [2 ** 20, 8];

/**
 * The operation that dispatches belong to: with its attributes, the number of its inputs, and the layouts of inputs, then outputs.
 * @typedef {object} CallInfo
 * @property {import('../ops/registry.mjs').Op} op
 * @property {import('../ops/registry.mjs').Attributes} attributes
 * @property {number} inputs
 * @property {import('./layout.mjs').Layout[]} layouts
 */

/**
 * Dispatches that belong to no operation: a name, and the bytes that they read and write. Of those that write weights into the second storage, to be
 * gathered: `permuted` makes the dispatches that write them permuted.
 * @typedef {{ name: string, bytes?: number, permuted?: () => Template }} WorkInfo
 */

/**
 * A change of the host's state by each launch of a recording, such as the length of a cache. `before` may throw: nothing has then changed. It
 * may append dispatches, which run before the launch.
 * @typedef {{ before: () => void, after: () => void }} Effect
 */

/**
 * Where dispatches of operations go: the eager list, or the recording of a compiled function.
 * @typedef {object} Sink
 * @property {(bytes: number) => Allocation} allocate
 * @property {(allocation: Allocation) => void} release
 * @property {(template: Template, storages: Storage[], call?: CallInfo, info?: WorkInfo) => string | undefined} append `info` is for
 *   dispatches that belong to no operation; a recording returns the line of the user's program
 * @property {(storage: Storage) => void} [watch] releases the memory once the storage is garbage
 * @property {(tensor: Tensor) => void} [use] called with each operand
 * @property {(call: CallInfo, from: Storage, to: Storage) => void} [viewed] called with each view: its input's storage and its own
 * @property {(storage: Storage) => boolean} [changed] whether the recording has written a storage from before it
 * @property {Set<import('../optim/half-copy.mjs').ParameterCopy>} [copies] copies of parameters to bring up to date before each launch
 * @property {Map<object, Effect>} [effects] what each launch does on the host, by what it changes there
 * @property {(leaf: Tensor) => void} [gradientOf] called with a leaf before its gradient is read or changed
 * @property {(leaf: Tensor, error: Error) => void} [gradientInside] called with a leaf whose gradient is in memory of the recording, and the
 *   error if it still is at the end
 * @property {Set<Tensor>} [cleared] gradients from before the recording that a launch disposes of
 * @property {(storages: Storage[], run: (handles: number[]) => void) => void} [host] records a call of the host that reads and writes storages
 * @property {boolean} [closed] whether its device was closed, and its memory freed with it
 * @property {number} [serial] tensors from this serial number on were made in the recording
 * @property {(name?: string) => string | undefined} [originNow] the line of the user's program that is being recorded
 * @property {string | undefined} [origin] that line if it is not the running one: in a backward pass, the line of the forward operation
 * @property {number} [region] of what is recorded now: results are shared only within a region
 */

/**
 * Memory of a storage.
 * @typedef {object} Allocation
 * @property {number} handle the buffer; in a recording, -1 until memory is planned
 * @property {number} bytes
 * @property {boolean} live
 * @property {Sink} sink that allocated it
 */

/** Eager mode: appends dispatches as operations are called, and submits them soon after. @implements {Sink} */
export class Runtime {
  /** @param {Native} vk the native module */
  constructor(vk) {
    this.vk = vk;
    // Kernels need not check: layouts are checked where tensors are made, and records are built over slots that stand for buffers.
    /** @type {import('../../kernels/index.mjs').Kernels} */
    this.kernels = createKernels(vk, { check: false });
    this.info = this.kernels.context.info;
    this.recorder = new Recorder(16384);
    /** Buffers freed since the last submission, by size: later dispatches of this list may reuse them at once. @type {Map<number, number[]>} */
    this.free = new Map();
    /** Scratch: the buffer handles of one record. @type {number[]} */
    this.handles = [];
    this.scheduled = false;
    /** Whether submission is deferred: {@link Runtime.allOrNothing}. */
    this.held = false;
    /** Whether the device was closed: its handles are then invalid. */
    this.closed = false;
    /** The error of a submission that had no caller to throw to. @type {unknown} */
    this.failure = undefined;
    /** Number and bytes of the buffers that are allocated now. */
    this.live = { buffers: 0, bytes: 0 };
    /** Memory for intermediate results that compiled functions share. */
    this.slots = new SharedSlots(
      (bytes) => {
        const slot = this.allocate(bytes);
        this.name(slot, 'intermediate results');
        return slot;
      },
      (slot) => this.release(slot),
    );
    /** How many operations found a plan, and how many made one. */
    this.hits = 0;
    this.misses = 0;
    this.garbage = new Garbage(vk, this.info.deviceLocalMemoryBytes);
    if (!isMainThread) process.once('exit', () => this.end());
  }

  /** The most bytes of a tensor. */
  get maxBytes() {
    const { bindingBytes, bufferBytes } = this.kernels.context;
    return Math.min(bindingBytes, bufferBytes);
  }

  /**
   * Allocates at least `bytes` bytes, with undefined contents. May collect garbage first.
   * @param {number} bytes
   * @param {boolean} [exportable] whether other APIs on the device, such as NCCL's, can import the memory
   * @returns {Allocation}
   */
  allocate(bytes, exportable = false) {
    const size = Math.max(PADDING, Math.ceil(bytes / PADDING) * PADDING);
    if (size > this.maxBytes)
      throw new UsageError('tensor', `a tensor of ${size} bytes is too large: this device allows at most ${this.maxBytes} bytes`);
    if (this.garbage.due(this.live)) this.garbage.collect(this.live);
    const handle = exportable
      ? this.withMemory(() => this.vk.createBuffer(size, 0, { exportable }))
      : (this.reuse(size) ?? this.withMemory(() => this.vk.createBuffer(size, 0)));
    this.live.buffers++;
    this.live.bytes += size;
    return { handle, bytes: size, live: true, sink: this };
  }

  /**
   * A buffer that was freed since the last submission, if there is one. Small buffers are reused in turn: reusing the one just freed would add
   * a barrier, which takes a GPU longer than a small operation.
   * @param {number} size @returns {number | undefined}
   */
  reuse(size) {
    const handles = this.free.get(size);
    if (size > SMALL) return handles?.pop();
    return handles && handles.length >= TURNS ? handles.shift() : undefined;
  }

  /**
   * Makes a call that allocates. If the device is out of memory, the call is repeated after each of the two steps of
   * {@link Runtime.makeRoom}.
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
   * Makes room after a failure. The first time it submits the list, which frees the buffers kept for reuse; the second time it also collects
   * garbage.
   * @param {unknown} error rethrown if it is not a shortage of memory, or if both steps did not help; its message then says what a program can do
   * @param {number} failures number of failures before this one
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
    // An uncaught error prints the stack, not the message.
    error.stack = stack?.replace(message, () => error.message);
    throw error;
  }

  /** Frees an allocation, or keeps its buffer for reuse until the list is submitted. @param {Allocation} allocation */
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

  /** Releases a holder's allocation once the holder is garbage. @param {import('./garbage.mjs').Holder} holder */
  watch(holder) {
    this.garbage.watch(holder);
  }

  /** Appends dispatches to the list. @param {Template} template @param {Storage[]} storages one for each slot @returns {undefined} */
  append(template, storages) {
    if (this.failure) this.flush();
    const { handles, recorder } = this;
    for (let i = 0; i < storages.length; i++) handles[i] = storages[i].allocation.handle;
    template.appendTo(recorder, handles);
    if (recorder.count >= LIST && !this.held) this.submit();
    else this.schedule();
  }

  /**
   * Appends the dispatches of `fn`, or nothing if `fn` throws: submission is deferred until it returns, and a failure truncates the list to
   * what it was. If the device is out of memory, `fn` runs again after each step of {@link Runtime.makeRoom}, which submits the earlier part
   * of the list. `fn` must not do what cannot be undone, such as uploads and flushes.
   * @param {() => void} fn @param {Storage[]} storages existing storages that it writes; a failure restores their versions
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
        // Submitting an empty list would not free the buffers.
        if (count === 0) this.destroyFree();
        this.held = false;
        this.makeRoom(error, failures);
      } finally {
        this.held = false;
      }
    }
    if (recorder.count >= LIST) this.submit();
  }

  /** Schedules a submission at the end of this turn of the event loop. */
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

  /** Submits the list. If the device is out of memory, the list stays for the next submission. */
  submit() {
    try {
      this.flush();
    } catch (error) {
      if (!isOutOfMemory(error)) throw error;
    }
  }

  /** Submits the list, or throws. After an out-of-memory error nothing of it has run, and the list is unchanged. */
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

  /** Empties the list, and frees the buffers that were kept for reuse in it. */
  forgetList() {
    this.recorder.reset();
    this.destroyFree();
  }

  /** Names an allocation for reports and statistics. @param {Allocation} allocation @param {string} name */
  name({ handle }, name) {
    this.vk.setName?.(handle, name);
  }

  /** Frees everything when a worker exits: no other thread has its tensors. For a terminated worker, the addon does so. */
  end() {
    if (this.closed) return;
    try {
      this.recorder.reset();
      for (const allocation of this.garbage.allocations()) allocation.sink.release(allocation);
      this.destroyFree();
      for (const pipeline of this.kernels.context.pipelines.values()) this.vk.destroyPipeline(pipeline);
    } catch {
      // The device is lost, or another thread has destroyed it: everything is freed already.
    }
    this.close();
  }

  /** Marks the device as closed and drops all state. */
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
   * Copies host data to an allocation, ordered after all operations called so far.
   * @param {Allocation} allocation @param {ArrayBufferView} data @param {number} [byteOffset]
   */
  upload(allocation, data, byteOffset = 0) {
    this.flush();
    this.withMemory(() => this.vk.uploadAsync(allocation.handle, data, byteOffset));
  }
}

/** @param {unknown} error @returns {error is Error} */
const isOutOfMemory = (error) => /** @type {{ code?: string } | null | undefined} */ (error)?.code === 'ERR_HELIOS_OUT_OF_MEMORY';

/** This package's native module, loaded unless another one is given. @returns {typeof import('../../index.js')} */
const native = () => ofPackage(() => createRequire(import.meta.url)('../../index.js'));

/** @type {Runtime | undefined} */
let current;
/** @typedef {Required<Omit<Sink, 'origin' | 'closed' | 'watch'>> & Pick<Sink, 'origin' | 'closed'>} RecordingSink */
/** @type {RecordingSink | undefined} */
let recording;

/**
 * Options of `init`.
 * @typedef {object} InitOptions
 * @property {string | number} [device] index, UUID, PCI address or part of the name; chosen automatically when left out
 * @property {boolean} [safe] whether shaders are validated and their accesses kept inside their buffers
 * @property {Native} [vk] another native module with the functions of `helios-vk`; this package's own when left out
 */

/** The device, opened at first use. @returns {Runtime} */
export function runtime() {
  current ??= new Runtime(native());
  return current;
}

/**
 * Opens the device with these options (see `initDevice`), or uses another native module. Call it before anything else of this package;
 * without it, the first tensor opens the default device. Throws a UsageError if a device is open and options are given.
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

/** Caches of things made for the device. @type {{ clear(): void }[]} */
const caches = [];
/** Registers a cache that {@link reset} clears. @template {{ clear(): void }} T @param {T} cache @returns {T} */
export function perDevice(cache) {
  caches.push(cache);
  return cache;
}

/**
 * Closes the device, even a lost one, with everything on it. Using a tensor, module, optimizer or compiled function from before then throws
 * a UsageError. The next tensor, or `init`, opens a device again: build the model again and load what was saved. The random numbers of the
 * device start over from the seed. Throws a UsageError while a function is compiled.
 */
export function reset() {
  if (recording) throw new UsageError('reset', 'it cannot run while a function is being compiled');
  const old = current;
  current = undefined;
  for (const cache of caches) cache.clear();
  if (!old) return;
  old.close();
  old.vk.destroy();
}

/** Where dispatches go now: the recording, or the device. @returns {Sink} */
export const sink = () => recording ?? runtime();

/** The recording of the function that is being compiled; undefined if none is. */
export const recordingNow = () => recording;

/** Whether a function is being compiled. */
export const isRecording = () => recording !== undefined;

/**
 * Runs `fn` with its dispatches sent to a recording.
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

/** Called at the end of each backward pass. @type {Set<() => void>} */
export const backwardEnds = perDevice(new Set());

/** `together`: whether other processes compute together with this one, so that choices that change bits must not differ between them. */
export const processes = { together: false };

let regions = 0;

/**
 * Runs `fn`. While a function is compiled, it is a region of its own: passes do not replace what it computes by earlier results.
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

/** The number and bytes of the buffers that tensors hold now. Opens the device if none is open. */
export const memory = () => ({ ...runtime().live });
