// A group of processes, each with its own device: how it forms, and its collectives.

import { createHash, randomBytes } from 'node:crypto';
import { createRequire } from 'node:module';
import { hostname, networkInterfaces } from 'node:os';
import { Worker } from 'node:worker_threads';

import { DRIVERS, candidates, ncclCandidates } from './engines.mjs';
import { address, launched, meetingPlace, onOneHost, secretOf } from './environment.mjs';
import { MAX_VALUE, jsonOf } from './messages.mjs';

/** @typedef {import('../index.js').BufferHandle} BufferHandle */
/** @typedef {import('../index.js').TimelineValue} TimelineValue */
/** @typedef {import('./store.mjs').Failure} Failure */

/** @type {typeof import('../index.js')} */
const vk = createRequire(import.meta.url)('../index.js');
/** @type {{ version: string }} */
const { version } = createRequire(import.meta.url)('../package.json');

/**
 * @typedef {object} InitOptions
 * @property {'auto' | 'mpi' | 'nccl'} [engine] `auto` (the default) is MPI, which runs everywhere. `nccl` works on the memory of
 *   NVIDIA devices, without a copy through the host; it needs `master` (`helios-vk run` and `torchrun` set it)
 * @property {number} [rank] of this process, from 0; by default the launcher's
 * @property {number} [worldSize]
 * @property {number} [localRank]
 * @property {string} [master] `HOST:PORT` where rank 0 keeps the store; by default `MASTER_ADDR` and `MASTER_PORT`, or else a port
 *   that rank 0 picks and MPI sends to the others
 * @property {string} [library] the name or path of the engine's library; by default the MPI of the launcher (`HELIOS_MPI_LIBRARY`), or
 *   the NCCL that the loader finds or that is in the environment of Python (`HELIOS_NCCL_LIBRARY`)
 * @property {unknown} [config] any JSON value that must be the same on all ranks; `init` fails if it is not
 * @property {number} [joinTimeoutMs] how long all ranks may take to join (60,000)
 * @property {number} [peerTimeoutMs] how long a process may be silent before it counts as lost (10,000)
 * @property {number} [timeoutMs] how long a collective, an `exchange` or `destroy` may wait for other ranks (600,000)
 */

/**
 * The part of a buffer that a collective works on.
 * @typedef {object} RangeOptions
 * @property {number} [offset] first element of the buffer; by default 0. Its byte offset is a multiple of 4
 * @property {number} [count] elements, the shards of all ranks together; by default all to the buffer's end
 */

/** @typedef {'f32' | 'bf16' | 'u8'} ElementType type that elements are moved as; sums work only on f32 */

const errorOf = (/** @type {Failure} */ { code, message, rank }, call = 'init') =>
  new vk.HeliosError(`${call}: ${message}`, { code, call, rank });

/** The failure of calls after `destroy`. @type {Failure} */
const LEFT = { code: 'ERR_HELIOS_INVALID_BATCH', message: 'the group was left: destroy() was called' };

/** An argument that is a whole number in a range. @param {string} name @param {unknown} value @param {number} min @param {number} max */
function whole(name, value, min, max) {
  if (typeof value !== 'number') throw new TypeError(`init: ${name} must be a number, got ${typeof value}`);
  if (!Number.isInteger(value) || value < min || value > max) {
    throw new RangeError(`init: ${name} must be an integer from ${min} to ${max}, got ${value}`);
  }
  return value;
}

/** An argument that is text, or left out. @param {string} name @param {unknown} value */
function textOr(name, value) {
  if (value !== undefined && typeof value !== 'string') throw new TypeError(`init: ${name} must be a string, got ${typeof value}`);
  return value;
}

/** A hash of what must be equal on all ranks. @param {unknown} config */
const hashOf = (config) => createHash('sha256').update(jsonOf(config, 'init: config')).digest('hex');

/** Addresses of this host. Bounded, since MPI passes on 1,024 bytes and a host of containers has many addresses. */
function ownAddresses() {
  const all = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  const outside = all.filter(({ family, internal }) => family === 'IPv4' && !internal);
  return outside.map(({ address: ip }) => ip).slice(0, 24);
}

const MAX_WORLD = 65536;
/** The longest delay of a timer, in milliseconds. */
const MAX_MS = 2 ** 31 - 1;
/** How often to poll for a start that sends no event. */
const LOOK_MS = 5;
/**
 * Keeps libraries below MPI from patching the C library's functions that map memory and from catching signals. The patches have
 * crashed a process with many threads (UCX 1.13 below MPICH 4.0.2: about one run in fifty), and the signals are V8's and Node's.
 * Variables that the user has set are left alone.
 */
const GUESTS = { UCX_MEM_EVENTS: 'no', UCX_ERROR_SIGNALS: '', OMPI_MCA_opal_signal: '' };
/**
 * For an in-place allReduce, Open MPI by default sends all data to one rank and back, whatever its size. With algorithm 3
 * (Rabenseifner's) every rank adds a part, which takes half the time with two ranks.
 */
const TUNING = { OMPI_MCA_coll_libnbc_iallreduce_algorithm: '3' };
/** How long the thread of a destroyed group may take to end: it cannot while another thread opens a library. */
const THREAD_MS = 5000;
/** Whether MPI has been started in this process. */
let started = false;
/** Whether there is a group, from its first step in `init` until it is gone. */
let member = false;

/**
 * Joins this process to the group of all processes that a launcher started together. Call `initDevice` first; on a host with several
 * devices `launched().localRank` picks one.
 *
 * Throws a `HeliosError`: `ERR_HELIOS_NO_ENGINE` if no library of the engine loads (the message lists what was tried);
 * `ERR_HELIOS_RENDEZVOUS` if ranks are missing after `joinTimeoutMs` (it names them); `ERR_HELIOS_ENGINE` if the engine fails or
 * cannot use the device; `ERR_HELIOS_INVALID_BATCH` if this process is in a group already.
 * @param {InitOptions} [options]
 * @returns {Promise<Group>}
 */
export async function init(options = {}) {
  if (options === null || typeof options !== 'object') throw new TypeError(`init: options must be an object, got ${options}`);
  const { engine = 'auto' } = options;
  if (!['auto', 'mpi', 'nccl'].includes(engine)) throw new RangeError(`init: engine must be auto, mpi or nccl, got ${String(engine)}`);
  const nccl = engine === 'nccl';
  const launch = launched();
  const worldSize = whole('worldSize', options.worldSize ?? launch.worldSize, 1, MAX_WORLD);
  const rank = whole('rank', options.rank ?? launch.rank, 0, worldSize - 1);
  const localRank = whole('localRank', options.localRank ?? launch.localRank, 0, MAX_WORLD);
  const joinMs = whole('joinTimeoutMs', options.joinTimeoutMs ?? 60_000, 1, MAX_MS);
  const peerMs = whole('peerTimeoutMs', options.peerTimeoutMs ?? 10_000, 500, MAX_MS);
  const timeoutMs = whole('timeoutMs', options.timeoutMs ?? 600_000, 1, MAX_MS - 2 * peerMs);
  if (launch.launcher === null && options.rank === undefined) {
    throw errorOf({
      code: 'ERR_HELIOS_RENDEZVOUS',
      message: 'this process was not started as one of several: start it with `npx helios-vk run --nproc N FILE`, mpirun or srun',
    });
  }
  const [at, library] = [textOr('master', options.master), textOr('library', options.library)];
  const master = at === undefined ? launch.master : address(at, 'init: master');
  const libraries = library !== undefined ? [library] : nccl ? ncclCandidates() : candidates(launch.launcher);
  const config = hashOf(options.config);
  if (nccl && !master && worldSize > 1) {
    throw errorOf({
      code: 'ERR_HELIOS_RENDEZVOUS',
      message: 'NCCL does not say where the ranks meet: set MASTER_ADDR and MASTER_PORT, or the option master',
    });
  }
  // Throws without a device.
  vk.getCompleted();
  if (member) {
    const message = 'this process is in a group or joining one: destroy() that group first';
    throw errorOf({ code: 'ERR_HELIOS_INVALID_BATCH', message });
  }
  if (started && !nccl)
    throw errorOf({ code: 'ERR_HELIOS_ENGINE', message: 'MPI was started in this process before, and can be started only once' });

  const generation = process.env.HELIOS_GENERATION ?? '';
  // The launcher's variables describe only the group that it has started.
  const oneHost = options.rank === undefined && options.worldSize === undefined && at === undefined && onOneHost();
  const { bind, host: storeHost } = meetingPlace(master, oneHost);
  const secret = master ? secretOf() : rank === 0 ? randomBytes(16).toString('hex') : '';
  /** @type {import('./watch.mjs').WatchOptions} */
  const watching = {
    rank,
    worldSize,
    generation,
    secret,
    version,
    engine: nccl ? 'nccl' : 'mpi',
    config,
    hosts: rank === 0 || !master || storeHost === undefined ? [] : [storeHost],
    bind,
    port: master?.port ?? 0,
    joinMs,
    peerMs,
    timeoutMs,
  };
  if (rank === 0 && worldSize > 1 && bind === undefined && secret === '') {
    const message = `anyone who can reach port ${watching.port} of this host can join or end the group: set HELIOS_SECRET to the same text on all ranks`;
    process.emitWarning(message, { code: 'HELIOS_NO_SECRET' });
  }
  member = true;
  const watch = new Watch(watching);
  try {
    // From here on the thread does not wait for libraries that this process opens.
    const port = await watch.opened;
    /** What MPI sends to the others if there is no other way. */
    let text = '';
    if (master || nccl) await watch.joined;
    else if (rank === 0) text = JSON.stringify({ host: hostname(), hosts: ownAddresses(), port, secret });
    const limitMs = timeoutMs + 2 * peerMs;
    if (nccl) {
      const id = await identifier(watch, rank, libraries, joinMs);
      vk.collectiveStart({ engine: 'nccl', rank, size: worldSize, libraries, id, drivers: DRIVERS, limitMs });
    } else {
      started = true;
      for (const [name, value] of Object.entries({ ...GUESTS, ...TUNING })) process.env[name] ??= value;
      vk.collectiveStart({ rank, size: worldSize, libraries, text, limitMs });
    }
    const status = await starting(watch, joinMs, nccl ? 'NCCL' : 'MPI');
    if (!nccl && !master && rank > 0) {
      const { host, hosts, port, secret } = JSON.parse(status.text);
      watch.reach({ hosts: oneHost || host === hostname() ? ['127.0.0.1'] : hosts, port, secret });
    }
    await watch.joined;
    // A failure before all have started fails the start of all.
    await watch.exchange('the start', 'null', joinMs).catch((error) => {
      throw watch.failure ? errorOf(watch.failure) : error;
    });
  } catch (error) {
    await watch.leave(/** @type {Error} */ (error));
    vk.collectiveAbort('ERR_HELIOS_ABORTED', 'init has failed');
    member = false;
    // Another rank may fail before this rank's MPI has been found: only the addon knows how far that got.
    started = vk.collectiveForget();
    throw error;
  }
  return new Group(Group.key, { rank, worldSize, localRank, engine: nccl ? 'nccl' : 'mpi', watch, timeoutMs });
}

/**
 * Distributes NCCL's unique id from rank 0, and checks that all ranks have the same version, as NCCL requires.
 * @param {Watch} watch @param {number} rank @param {string[]} libraries @param {number} joinMs
 */
async function identifier(watch, rank, libraries, joinMs) {
  /** @type {{ id?: string, version?: string, failed?: Failure }} */
  let own;
  try {
    own = vk.collectiveNccl(libraries, rank === 0);
  } catch (error) {
    const { code, message } = /** @type {import('../index.js').HeliosError} */ (error);
    own = { failed: { code, rank, message: `rank ${rank}: ${message.replace(/^init: /, '')}` } };
  }
  const all = await watch.exchange('the search for NCCL', jsonOf(own, 'init: NCCL'), joinMs);
  const failed = all.find((each) => each.failed)?.failed;
  if (failed) throw errorOf(failed);
  const [{ id, version }] = all;
  const other = all.findIndex((each) => each.version !== version);
  if (other > 0) {
    const message = `rank ${other} has NCCL ${all[other].version}, rank 0 has NCCL ${version}: all must have the same`;
    throw errorOf({ code: 'ERR_HELIOS_ENGINE', rank: other, message });
  }
  return id;
}

/**
 * Waits until the engine has started, on a thread of its own.
 * @param {Watch} watch @param {number} joinMs @param {string} name
 */
async function starting(watch, joinMs, name) {
  const end = performance.now() + joinMs;
  for (;;) {
    const status = vk.collectiveStatus();
    if (status === null) throw errorOf({ code: 'ERR_HELIOS_ABORTED', message: 'the device was destroyed' });
    if (status.error) throw status.error;
    if (watch.failure) throw errorOf(watch.failure);
    if (status.phase === 'ready') return status;
    if (performance.now() > end) {
      const why = name === 'MPI' ? ', or this is not the MPI that started the processes' : '';
      const message = `${name} has not started within ${joinMs / 1000} s: a rank is missing${why}`;
      throw errorOf({ code: 'ERR_HELIOS_RENDEZVOUS', message });
    }
    await new Promise((done) => setTimeout(done, LOOK_MS));
  }
}

/** The main thread's side of the thread that keeps in touch with the other ranks (`watch.mjs`). */
class Watch {
  /** @type {Failure | null} */
  failure = null;
  #abort = new AbortController();
  signal = this.#abort.signal;
  /** Under way, by name. @type {Map<string, { values: any[], missing: number, resolve: (values: any[]) => void, reject: (error: Error) => void }>} */
  #exchanges = new Map();
  /** @type {{ resolve: () => void, reject: (error: Error) => void } | null} */
  #leaving = null;
  #ended = false;

  /** @param {import('./watch.mjs').WatchOptions} options */
  constructor(options) {
    this.worldSize = options.worldSize;
    /** @type {PromiseWithResolvers<void>} */
    const joined = withResolvers();
    /** @type {PromiseWithResolvers<number>} */
    const opened = withResolvers();
    // Unhandled rejections would end the process. Callers that do not await these get the failure from their next call.
    for (const { promise } of [joined, opened]) promise.catch(() => {});
    /** Settled when all ranks are at the store. */
    this.joined = joined.promise;
    /** Settled when the thread is running; on rank 0 with the port of the store. */
    this.opened = opened.promise;
    this.worker = new Worker(new URL('./watch.mjs', import.meta.url), { workerData: options, name: 'helios-vk group' });
    this.ended = new Promise((/** @type {(value?: any) => void} */ done) => {
      this.worker.once('exit', done);
      this.worker.on('message', ({ gone }) => gone && setTimeout(done, THREAD_MS).unref());
    });
    const fail = (/** @type {Failure} */ failure) => {
      if (this.failure || this.#ended) return;
      this.failure = failure;
      const error = errorOf(failure, 'group');
      joined.reject(errorOf(failure));
      opened.reject(errorOf(failure));
      for (const { reject } of this.#exchanges.values()) reject(errorOf(failure, 'exchange'));
      this.#exchanges.clear();
      this.#leaving?.reject(errorOf(failure, 'destroy'));
      this.#abort.abort(error);
    };
    this.worker.on('message', (message) => {
      if (message.joined) {
        joined.resolve();
        this.#rest();
      } else if (message.open !== undefined) opened.resolve(message.open);
      else if (message.exchanged) this.#take(message.exchanged);
      else if (message.agreed) this.#leaving?.resolve();
      else if (message.failed) fail(message.failed);
    });
    this.worker.on('error', (error) => {
      const message = `the thread that watches the group has ended: ${error.message}`;
      vk.collectiveAbort('ERR_HELIOS_ENGINE', message);
      fail({ code: 'ERR_HELIOS_ENGINE', message });
    });
  }

  /** Keeps the process alive only while it waits for other ranks. */
  #rest() {
    if (this.#exchanges.size === 0 && !this.#leaving) this.worker.unref();
  }

  /** @param {{ hosts: string[], port: number, secret: string }} store */
  reach(store) {
    this.worker.postMessage({ reach: store });
  }

  /**
   * Exchanges a value with all ranks.
   * @param {string} name of the exchange: the same on all ranks, each once
   * @param {string} text JSON, at most `MAX_VALUE` characters
   * @param {number} limitMs how long this rank waits for the others
   * @returns {Promise<any[]>}
   */
  exchange(name, text, limitMs) {
    if (this.failure) return Promise.reject(errorOf(this.failure, 'exchange'));
    if (this.#leaving || this.#ended) return Promise.reject(errorOf(LEFT, 'exchange'));
    this.worker.ref();
    return new Promise((resolve, reject) => {
      this.#exchanges.set(name, { values: Array(this.worldSize).fill(null), missing: this.worldSize, resolve, reject });
      this.worker.postMessage({ exchange: { name, text, limitMs } });
    });
  }

  /** A rank's value of an exchange. @param {{ name: string, rank: number, text: string }} exchanged */
  #take({ name, rank, text }) {
    const under = this.#exchanges.get(name);
    if (!under) return;
    under.values[rank] = JSON.parse(text);
    if (--under.missing > 0) return;
    this.#exchanges.delete(name);
    under.resolve(under.values);
    this.#rest();
  }

  /**
   * Resolves when all ranks want to leave after the same number of calls; rejects if the numbers differ.
   * @param {number} calls that this rank has made
   * @returns {Promise<void>}
   */
  agreeToLeave(calls) {
    if (this.failure) return Promise.reject(errorOf(this.failure, 'destroy'));
    this.worker.ref();
    return new Promise((resolve, reject) => {
      this.#leaving = { resolve, reject };
      this.worker.postMessage({ leaving: { calls } });
    });
  }

  /** @param {Failure} failure */
  abort(failure) {
    this.worker.postMessage({ abort: failure });
  }

  /** Ends the thread. @param {Error | null} why this rank leaves alone; null if all leave together */
  async leave(why) {
    this.#ended = true;
    for (const { reject } of this.#exchanges.values()) reject(errorOf(LEFT, 'exchange'));
    this.#exchanges.clear();
    this.worker.ref();
    this.worker.postMessage({ leave: { why: why?.message.replace(/^\w+: /, '') } });
    await this.ended;
  }
}

/** @template T @typedef {{ promise: Promise<T>, resolve: (value: T) => void, reject: (error: Error) => void }} PromiseWithResolvers */

/** @template T @returns {PromiseWithResolvers<T>} */
function withResolvers() {
  /** @type {any} */
  const made = {};
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
  return made;
}

/**
 * The group of processes that compute together. Made by `init`.
 *
 * A collective is a call of the stream like a dispatch: it runs after everything called before it and before everything called after
 * it, and the calling thread does not wait. All ranks must call the same collectives in the same order. Collectives called directly
 * after one another may complete together: waiting for one may wait for all that were called before the wait.
 *
 * When one rank fails, all do: `signal` fires, and every later call throws the failure. So does a wait for the first collective that
 * did not complete, or for anything after it. The contents of buffers are then undefined. Call `destroy`, and continue in a new process
 * from the last checkpoint; `helios-vk run --max-restarts` starts one.
 */
export class Group {
  static key = Symbol('init');
  #watch;
  #timeoutMs;
  /** How many exchanges this rank has begun. */
  #exchanges = 0;
  /** @type {Promise<void> | null} */
  #left = null;

  /**
   * @param {symbol} key
   * @param {{ rank: number, worldSize: number, localRank: number, engine: 'mpi' | 'nccl', watch: Watch, timeoutMs: number }} parts
   * @hidden
   */
  constructor(key, { rank, worldSize, localRank, engine, watch, timeoutMs }) {
    if (key !== Group.key) throw new TypeError('init() makes groups; Group has no public constructor');
    this.#watch = watch;
    this.#timeoutMs = timeoutMs;
    /** This process's number in the group, from 0. */
    this.rank = rank;
    /** The number of processes in the group. */
    this.worldSize = worldSize;
    /** This process's number among those of its host, from 0. */
    this.localRank = localRank;
    /** The library that runs the collectives. */
    this.engine = engine;
    /** Fires when the group fails; its reason is the `HeliosError`. @type {AbortSignal} */
    this.signal = watch.signal;
  }

  /**
   * Sums the elements of all ranks in f32, in place. Every rank gets the same bits; the engine chooses the order of additions.
   * @param {BufferHandle} buffer
   * @param {RangeOptions} [range]
   * @returns {TimelineValue} at which the result is there
   */
  allReduce(buffer, range) {
    return this.#call('allReduce', buffer, range);
  }

  /**
   * Divides `count` elements into one equal shard a rank and sums them in f32; each rank gets the sum of its own shard, in place. The
   * other shards stay as they are.
   * @param {BufferHandle} buffer
   * @param {RangeOptions} [range] `count` is a multiple of the world size
   * @returns {TimelineValue}
   */
  reduceScatter(buffer, range) {
    return this.#call('reduceScatter', buffer, range);
  }

  /**
   * Gathers the shards of all ranks on every rank, in place: a rank's own shard must already be at its position.
   * @param {BufferHandle} buffer
   * @param {RangeOptions & { type?: ElementType }} [range] `count` is a multiple of the world size, and a shard one of 4 bytes
   * @returns {TimelineValue}
   */
  allGather(buffer, range) {
    return this.#call('allGather', buffer, range);
  }

  /**
   * Copies the elements of rank `root` to every rank.
   * @param {BufferHandle} buffer
   * @param {RangeOptions & { type?: ElementType, root?: number }} [range] `root` is by default 0
   * @returns {TimelineValue}
   */
  broadcast(buffer, range) {
    return this.#call('broadcast', buffer, range);
  }

  /**
   * All-to-all: sends the first half of `count` elements, one equal shard to each rank; the second half receives one shard from each
   * rank, in rank order. The first half stays as it is.
   * @param {BufferHandle} buffer
   * @param {RangeOptions & { type?: ElementType }} [range] `count` is a multiple of twice the world size, and a shard one of 4 bytes
   * @returns {TimelineValue}
   */
  allToAll(buffer, range) {
    return this.#call('allToAll', buffer, range);
  }

  /**
   * Resolves with the values of all ranks, in rank order, once every rank has called it: also a barrier of the JavaScript threads. It
   * does not involve the device.
   *
   * Rejects with a TypeError for a value that JSON cannot represent, and a RangeError for one of more than 67,108,864 characters of
   * JSON (64 MiB of ASCII): on this rank alone, as if it had not called. The group fails with `ERR_HELIOS_COLLECTIVE_TIMEOUT` if a
   * rank does not call it within `timeoutMs`.
   * @param {unknown} [value] any JSON value; by default null
   * @returns {Promise<any[]>}
   */
  async exchange(value) {
    const text = jsonOf(value, 'exchange: value');
    if (text.length > MAX_VALUE) {
      throw new RangeError(`exchange: value must be of at most ${MAX_VALUE} characters of JSON, got ${text.length}`);
    }
    return this.#watch.exchange(`exchange ${++this.#exchanges}`, text, this.#timeoutMs);
  }

  /**
   * Fails the group on every rank, with `ERR_HELIOS_ABORTED`.
   * @param {string} [reason] of which the other ranks get the first 4,000 characters
   */
  abort(reason = 'no reason was given') {
    let why;
    try {
      why = String(reason);
    } catch {
      throw new TypeError(`abort: reason must be text, got ${typeof reason}`);
    }
    const message = `rank ${this.rank} gave up: ${why.slice(0, 4000)}`;
    const failure = /** @type {Failure} */ ({ code: 'ERR_HELIOS_ABORTED', rank: this.rank, message });
    vk.collectiveAbort(failure.code, failure.message, this.rank);
    this.#watch.abort(failure);
  }

  /**
   * Leaves the group after everything called so far, together with all other ranks. Resolves only if every rank has made the same calls
   * and all of them completed; otherwise rejects with the group's failure, even if an earlier call threw it. Either way the group is
   * gone and the device is free for other work. MPI cannot be started again in this process; NCCL can.
   * @returns {Promise<void>}
   */
  destroy() {
    this.#left ??= this.#leave();
    return this.#left;
  }

  async #leave() {
    /** @type {Error | null} */
    let why = null;
    try {
      const status = vk.collectiveStatus();
      if (!status)
        throw errorOf({ code: 'ERR_HELIOS_ABORTED', message: 'the device was destroyed before its group', rank: this.rank }, 'destroy');
      this.#tellOfLoss();
      await this.#watch.agreeToLeave(status.called);
      // All ranks now make this call. It ends the engine.
      await vk.waitAsync(vk.collectiveLeave());
    } catch (error) {
      why = /** @type {Error} */ (error);
      throw error;
    } finally {
      await this.#watch.leave(why);
      member = false;
      vk.collectiveForget();
    }
  }

  /** Tells the other ranks when this rank's device is lost: that does not end the group by itself. */
  #tellOfLoss() {
    try {
      vk.getCompleted();
    } catch (error) {
      const { message } = /** @type {Error} */ (error);
      this.#watch.abort({ code: 'ERR_HELIOS_ABORTED', rank: this.rank, message: `rank ${this.rank} cannot continue: ${message}` });
      throw error;
    }
  }

  /**
   * @param {'allReduce' | 'reduceScatter' | 'allGather' | 'broadcast' | 'allToAll'} kind
   * @param {BufferHandle} buffer
   * @param {any} options
   */
  #call(kind, buffer, options) {
    if (this.#left) throw errorOf(LEFT, kind);
    return vk.collective(kind, buffer, options);
  }
}
