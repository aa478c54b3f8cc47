// An optimizer over a group of processes (data parallelism): each process computes the gradients of its part of the batch, and all make
// the same step.
//
// Without `zero`, an all-reduce gives every process the sum of all gradients, and each makes the whole step. With `zero` (ZeRO-1:
// Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", section 5.1), a reduce-scatter gives
// each process the sums of its own shard of every bucket. It keeps the moments of that shard only and updates that shard; an all-gather
// then distributes the parameters.
//
// With `reduce: 'bf16'`, each process rounds its gradients to bf16 once and sends each shard to the process that owns it. That process
// adds the shards that it receives in f32, in rank order. The collective itself adds nothing, so MPI and NCCL give the same bits.
//
// ZeRO-2 and ZeRO-3 are in shards.mjs.

import { constant } from '../core/tensor.mjs';
import { optimizerState, STATE, STATE_WORDS } from '../../kernels/index.mjs';
import { storageOf as alive } from '../core/engine.mjs';
import { noGrad } from '../core/node.mjs';
import { ArgumentError, UsageError, shown } from '../core/errors.mjs';
import { clone, full } from '../api/functional.mjs';
import { SLOT, Template } from '../../kernels/template.mjs';
import { isRecording, processes, runtime } from '../core/runtime.mjs';
import { Storage, unscoped } from '../core/storage.mjs';
import { Tensor } from '../api/tensor.mjs';
import { ALIGNMENT, stateLayout, stateWord } from './bucket.mjs';
import { Shards } from './shards.mjs';

/** @typedef {import('./bucket.mjs').Bucket} Bucket */
/** @typedef {import('./bucket.mjs').Run} Run */

/**
 * The part of a `Group` of `helios-vk/distributed` that an optimizer uses. Ranges are in elements.
 * @typedef {object} ProcessGroup
 * @property {number} rank of this process, from 0
 * @property {number} worldSize number of processes in the group
 * @property {'mpi' | 'nccl'} [engine] the library that runs the collectives; with nccl, parameters and gradients are in exportable memory
 * @property {(buffer: number, range?: { offset?: number, count?: number }) => unknown} allReduce
 *   replaces the elements by their sum over the ranks, on every rank
 * @property {(buffer: number, range?: { offset?: number, count?: number }) => unknown} reduceScatter
 *   as `allReduce`, but each rank gets only the sums of its own shard
 * @property {(buffer: number, range?: { offset?: number, count?: number }) => unknown} allGather
 *   gives every rank the shards of all ranks
 * @property {(buffer: number, range?: { offset?: number, count?: number }) => unknown} broadcast
 *   gives every rank the elements of rank 0
 * @property {(buffer: number, range?: { offset?: number, count?: number, type?: 'bf16' }) => unknown} [allToAll]
 *   sends the first half, one shard to each rank; the second half receives one shard from each rank, in rank order. Needed for
 *   `reduce: 'bf16'`
 */

/**
 * Replaces the gradient of each parameter by its mean over all processes. It is for optimizers of your own: an optimizer with a
 * `processGroup` averages by itself. All processes must call it with the same parameters in the same order.
 *
 * Throws before it changes anything: a UsageError if a parameter has no gradient or while a function is compiled, an ArgumentError if a
 * gradient is not f32.
 * @param {ProcessGroup} group from `init()` of `helios-vk/distributed`
 * @param {Iterable<import('../modules/module.mjs').Parameter>} parameters f32
 */
export function averageGradients(group, parameters) {
  const name = 'averageGradients';
  if (isRecording()) throw new UsageError(name, 'call it outside of the compiled function, after what computes the gradients');
  const list = typeof parameters === 'object' && typeof parameters?.[Symbol.iterator] === 'function' ? [...parameters] : undefined;
  if (!list?.every((parameter) => parameter instanceof Tensor))
    throw new ArgumentError(name, `expected an array of parameters, got ${shown(parameters)}`);
  if (typeof group?.allReduce !== 'function')
    throw new ArgumentError(name, `expected a group of helios-vk/distributed, got ${shown(group)}`);
  list.forEach(({ grad }, i) => {
    if (!grad) throw new UsageError(name, `parameter ${i} of ${list.length} has no gradient: every process needs one of every parameter`);
    if (grad.dtype !== 'f32') throw new ArgumentError(name, `takes f32 gradients, got ${grad.dtype}`);
  });
  if (typeof group.worldSize === 'number' && group.worldSize > 1) processes.together = true;
  noGrad(() => {
    const gradients = list.map((parameter) => {
      const own = /** @type {Tensor} */ (parameter.grad);
      if (own.layout.contiguous) return own;
      const dense = unscoped(() => clone(own));
      own.dispose();
      parameter.grad = dense;
      return dense;
    });
    runtime().flush();
    for (const gradient of gradients) {
      const storage = alive('optim', gradient);
      group.allReduce(storage.allocation.handle, { offset: gradient.layout.offset, count: gradient.size });
      storage.version++;
    }
    for (const gradient of gradients) gradient.mul_(1 / group.worldSize);
  });
}

/**
 * The bf16 buffers of a bucket, and the dispatches that fill and read them. `storage` holds the gradients to send, then those received.
 * @typedef {{ storage: Storage, round: Template, add: Template }} Wire
 */

/** @param {Tensor} tensor */
const allocationOf = (tensor) => alive('optim', tensor).allocation;

/** The collectives of one optimizer. */
export class Ranks {
  /**
   * @param {ProcessGroup} group @param {0 | 1 | 2 | 3} zero @param {'f32' | 'bf16'} reduce the type in which gradients are sent
   * @param {string} of the optimizer, for errors
   */
  constructor(group, zero, reduce, of) {
    if (typeof group.worldSize === 'number' && group.worldSize > 1) processes.together = true;
    if (typeof group?.reduceScatter !== 'function') {
      throw new ArgumentError(of, 'processGroup must be a group of helios-vk/distributed, as await init() returns it');
    }
    if (![0, 1, 2, 3].includes(zero)) throw new ArgumentError(of, `zero must be 0, 1, 2 or 3, got ${shown(zero)}`);
    if (reduce !== 'f32' && reduce !== 'bf16') throw new ArgumentError(of, `reduce must be f32 or bf16, got ${shown(reduce)}`);
    if (reduce === 'bf16' && typeof group.allToAll !== 'function')
      throw new ArgumentError(of, 'processGroup has no allToAll, which reduce: bf16 needs');
    if (zero >= 2 && reduce === 'bf16')
      throw new ArgumentError(of, `reduce must be f32 with zero: ${zero}, where gradients are summed behind each bucket, got bf16`);
    this.group = group;
    this.half = reduce === 'bf16';
    /** Made at first use. @type {Map<Bucket, Wire>} */
    this.wires = new Map();
    this.size = group.worldSize;
    /** Whether each process updates a shard of the parameters, and keeps moments of that alone. */
    this.zero = zero >= 1;
    /** With sharded gradients. */
    this.shards = zero >= 2 ? new Shards(group, zero === 3, this.exportable) : undefined;
    /** The size of a bucket is a multiple of this many elements, so that all shards have one size and are aligned. */
    this.multiple = this.zero || this.half ? ALIGNMENT * this.size : ALIGNMENT;
    const words = optimizerState({ rate: 0 });
    /** A state that only receives the norm of this process's shards; `gatherNorms` combines the norms of all processes. */
    this.own = constant(words, stateLayout(STATE_WORDS));
    this.ownNorm = unscoped(() => stateWord(this.own, STATE.norm));
    /** The norms of all processes, by rank. */
    this.norms = unscoped(() => full([Math.ceil(this.size / 4) * 4], 0));
  }

  /** The range of a bucket that this process updates. @param {{ count: number }} bucket @returns {Run} */
  shard({ count }) {
    if (!this.zero) return { offset: 0, count };
    const own = count / this.size;
    return { offset: own * this.group.rank, count: own };
  }

  /**
   * Runs a collective after everything that was computed so far.
   * @param {'allReduce' | 'reduceScatter' | 'allGather' | 'broadcast'} kind @param {Tensor} tensor @param {number} [count]
   */
  call(kind, tensor, count = tensor.size) {
    const { handle } = allocationOf(tensor);
    runtime().flush();
    this.group[kind](handle, { offset: tensor.layout.offset, count });
  }

  /** Copies the parameters of rank 0 to all processes. @param {Bucket[]} buckets */
  begin(buckets) {
    if (this.shards?.parameters) return;
    for (const bucket of buckets) {
      this.call('broadcast', bucket.values);
      bucket.changed(false);
    }
  }

  /** Sums the gradients over the processes; with `zero`, those of the own shard only. @param {Bucket[]} buckets */
  sum(buckets) {
    // The backward pass has summed them.
    if (this.shards) return;
    if (this.half) noGrad(() => this.#sumHalf(buckets));
    else for (const { gradients } of buckets) this.call(this.zero ? 'reduceScatter' : 'allReduce', gradients);
  }

  /**
   * The same in bf16: an all-to-all, then a kernel sums the own shard; without `zero` the sums are gathered, in f32. The collectives of
   * all buckets are called one after another, so that the device hands over to the engine only once.
   * @param {Bucket[]} buckets
   */
  #sumHalf(buckets) {
    const wires = buckets.map((bucket) => {
      const { count, gradients } = bucket;
      return { ...this.#wire(bucket), count, gradients: /** @type {Storage} */ (gradients.storage) };
    });
    for (const { storage, round, gradients } of wires) runtime().append(round, [gradients, storage]);
    runtime().flush();
    const group = /** @type {Required<ProcessGroup>} */ (this.group);
    for (const { storage, count } of wires) group.allToAll(storage.allocation.handle, { count: 2 * count, type: 'bf16' });
    for (const { storage, add, gradients } of wires) {
      runtime().append(add, [storage, gradients]);
      gradients.version++;
    }
    if (!this.zero) for (const { gradients } of buckets) this.call('allGather', gradients);
  }

  /** @param {Bucket} bucket @returns {Wire} */
  #wire(bucket) {
    let wire = this.wires.get(bucket);
    if (!wire) {
      const { kernels } = runtime();
      const { count } = bucket;
      const shard = count / this.size;
      const storage = new Storage(runtime().allocate(4 * count, this.exportable));
      storage.retain();
      runtime().name(storage.allocation, 'gradients in bf16');
      const [own, x] = [this.group.rank * shard, count].map((offset, i) => ({ buffer: SLOT + 1 - i, offset }));
      wire = {
        storage,
        round: new Template(kernels.cast({ x: SLOT, y: SLOT + 1, count, from: 'f32', to: 'bf16' })),
        add: new Template(kernels.columnSum({ x, y: own, rows: this.size, columns: shard, type: 'bf16' })),
      };
      this.wires.set(bucket, wire);
    }
    return wire;
  }

  /** Whether buckets must be in exportable memory: NCCL works on the device's memory in place. */
  get exportable() {
    return this.group.engine === 'nccl';
  }

  /** Gathers the norms of all processes' shards into `norms`; the norm of these is that of the whole gradient. `own` has this process's. */
  gatherNorms() {
    unscoped(() => {
      const place = stateWord(this.norms, this.group.rank);
      place.copy_(this.ownNorm);
      place.dispose();
    });
    this.call('allGather', this.norms, this.size);
  }

  /** Gathers the shards of parameters that the other processes have updated. @param {Bucket[]} buckets */
  gather(buckets) {
    if (this.zero && !this.shards?.parameters) for (const { values } of buckets) this.call('allGather', values);
  }

  /** Gathers a tensor of which each process has a shard. @param {Bucket} bucket @param {Tensor} shard @returns {Tensor} of the bucket's size */
  whole(bucket, shard) {
    const all = bucket.zeros('results of all ranks');
    const place = bucket.part(all, this.shard(bucket));
    place.copy_(shard);
    if (place !== all) place.dispose();
    this.call('allGather', all);
    return all;
  }

  dispose() {
    for (const tensor of [this.own, this.ownNorm, this.norms]) tensor.dispose();
    for (const { storage } of this.wires.values()) storage.release();
    this.wires.clear();
    this.shards?.dispose();
  }
}
