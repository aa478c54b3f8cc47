// An optimizer over the processes of a group: each computes the gradients of a part of the batch, and all make the same step.
//
// Without `zero`, every process gets the sum of all gradients and makes the whole step. With it (ZeRO-1: Rajbhandari et al. 2020,
// "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", section 5.1), each gets the sums of its own shard of
// every bucket, keeps the moments of that shard alone and steps there, and the parameters are gathered.
//
// With gradients in bf16, each process rounds its gradients once and sends every other process that one's shard. It adds the shards that
// it receives in f32, in rank order. The engine adds nothing, so that both engines give the same bits.

import { constant } from '../core/tensor.mjs';
import { optimizerState, STATE, STATE_WORDS } from '../../kernels/index.mjs';
import { storageOf as alive } from '../core/engine.mjs';
import { noGrad } from '../core/node.mjs';
import { ArgumentError, UsageError, shown } from '../core/errors.mjs';
import { clone, full } from '../api/functional.mjs';
import { SLOT, Template } from '../../kernels/template.mjs';
import { isRecording, runtime } from '../core/runtime.mjs';
import { Storage, unscoped } from '../core/storage.mjs';
import { Tensor } from '../api/tensor.mjs';
import { ALIGNMENT, stateLayout, stateWord } from './bucket.mjs';

/** @typedef {import('./bucket.mjs').Bucket} Bucket */
/** @typedef {import('./bucket.mjs').Run} Run */

/**
 * What an optimizer uses of a `Group` of `helios-vk/distributed`.
 * @typedef {object} ProcessGroup
 * @property {number} rank of this process, from 0
 * @property {number} worldSize processes of the group
 * @property {'mpi' | 'nccl'} [engine] what carries its collectives; nccl has parameters and gradients in memory that it gets at
 * @property {(buffer: number, range?: { offset?: number, count?: number }) => unknown} allReduce
 *   the sum of all elements, on every rank
 * @property {(buffer: number, range?: { offset?: number, count?: number }) => unknown} reduceScatter
 *   the sum of its own shard, on each rank
 * @property {(buffer: number, range?: { offset?: number, count?: number }) => unknown} allGather
 *   the shards of all, on every rank
 * @property {(buffer: number, range?: { offset?: number, count?: number }) => unknown} broadcast
 *   the elements of rank 0, on every rank
 * @property {(buffer: number, range?: { offset?: number, count?: number, type?: 'bf16' }) => unknown} [allToAll]
 *   a shard from each rank to each, from the first half to the second: needed for gradients in bf16
 */

/**
 * Replaces the gradient of each parameter by the mean over all processes, for optimizers of your own; one with a `processGroup` does so by
 * itself. All processes must call it with the same parameters in the same order.
 *
 * Throws a UsageError, before anything is changed, where a parameter has no gradient, and in a function that is being compiled.
 * @param {ProcessGroup} group
 * @param {Iterable<import('../modules/module.mjs').Parameter>} parameters f32
 */
export function averageGradients(group, parameters) {
  const name = 'averageGradients';
  if (isRecording()) throw new UsageError(name, 'call it outside of the compiled function, behind what computes the gradients');
  const list = typeof parameters === 'object' && typeof parameters?.[Symbol.iterator] === 'function' ? [...parameters] : undefined;
  if (!list?.every((parameter) => parameter instanceof Tensor))
    throw new ArgumentError(name, `expected an array of parameters, got ${shown(parameters)}`);
  if (typeof group?.allReduce !== 'function')
    throw new ArgumentError(name, `expected a group of helios-vk/distributed, got ${shown(group)}`);
  list.forEach(({ grad }, i) => {
    if (!grad) throw new UsageError(name, `parameter ${i} of ${list.length} has no gradient: every process needs one of every parameter`);
    if (grad.dtype !== 'f32') throw new ArgumentError(name, `takes f32 gradients, got ${grad.dtype}`);
  });
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

/** The 16-bit copy of a bucket's gradients that goes to the others, and what comes from them. @typedef {{ storage: Storage, round: Template, add: Template }} Wire */

/** @param {Tensor} tensor */
const allocationOf = (tensor) => alive('optim', tensor).allocation;

export class Ranks {
  /**
   * @param {ProcessGroup} group @param {0 | 1} zero @param {'f32' | 'bf16'} reduce what gradients travel as
   * @param {string} of who takes them
   */
  constructor(group, zero, reduce, of) {
    if (typeof group?.reduceScatter !== 'function') {
      throw new ArgumentError(of, 'processGroup is a group of helios-vk/distributed: await init()');
    }
    if (zero !== 0 && zero !== 1) throw new ArgumentError(of, `zero is 0 or 1, got ${shown(zero)}`);
    if (reduce !== 'f32' && reduce !== 'bf16') throw new ArgumentError(of, `reduce is f32 or bf16, got ${shown(reduce)}`);
    if (reduce === 'bf16' && typeof group.allToAll !== 'function')
      throw new ArgumentError(of, 'processGroup has no allToAll, which reduce: bf16 needs');
    this.group = group;
    this.half = reduce === 'bf16';
    /** Made when they are first used. @type {Map<Bucket, Wire>} */
    this.wires = new Map();
    this.size = group.worldSize;
    this.zero = zero === 1;
    /** Buckets are of multiples of this many elements, so that all shards are equal and begin where ranges may. */
    this.multiple = this.zero || this.half ? ALIGNMENT * this.size : ALIGNMENT;
    const words = optimizerState({ rate: 0 });
    /** Takes the norm of this process's shards, which says nothing of a step yet. */
    this.own = constant(words, stateLayout(STATE_WORDS));
    this.ownNorm = unscoped(() => stateWord(this.own, STATE.norm));
    /** The norms of all, by rank. */
    this.norms = unscoped(() => full([Math.ceil(this.size / 4) * 4], 0));
  }

  /** What of a bucket this process steps. @param {Bucket} bucket @returns {Run} */
  shard({ count }) {
    if (!this.zero) return { offset: 0, count };
    const own = count / this.size;
    return { offset: own * this.group.rank, count: own };
  }

  /** Runs a collective behind what was computed so far. @param {'allReduce' | 'reduceScatter' | 'allGather' | 'broadcast'} kind @param {Tensor} tensor @param {number} [count] */
  call(kind, tensor, count = tensor.size) {
    const { handle } = allocationOf(tensor);
    runtime().flush();
    this.group[kind](handle, { offset: tensor.layout.offset, count });
  }

  /** Has all processes begin with the parameters of rank 0. @param {Bucket[]} buckets */
  begin(buckets) {
    for (const bucket of buckets) {
      this.call('broadcast', bucket.values);
      bucket.changed(false);
    }
  }

  /** Sums of gradients, of the own shard at least. @param {Bucket[]} buckets */
  sum(buckets) {
    if (this.half) noGrad(() => this.#sumHalf(buckets));
    else for (const { gradients } of buckets) this.call(this.zero ? 'reduceScatter' : 'allReduce', gradients);
  }

  /**
   * The same in bf16: all to all, and the sum of the own shard by a kernel; without shards the sums are gathered, in f32. Collectives of
   * all buckets stand together: what stands directly behind each other costs the device one hand-over to the engine.
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

  /** Whether the engine works on the device's memory in place where that is exportable. */
  get exportable() {
    return this.group.engine === 'nccl';
  }

  /** Gathers the norms of all processes' shards: the norm of these is that of the whole. `own` has this one's. */
  gatherNorms() {
    unscoped(() => {
      const place = stateWord(this.norms, this.group.rank);
      place.copy_(this.ownNorm);
      place.dispose();
    });
    this.call('allGather', this.norms, this.size);
  }

  /** The parameters that the others have stepped. @param {Bucket[]} buckets */
  gather(buckets) {
    if (this.zero) for (const { values } of buckets) this.call('allGather', values);
  }

  /** All elements of a tensor of which each process has its shard. @param {Bucket} bucket @param {Tensor} shard @returns {Tensor} */
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
  }
}
