// Gradients of which each process keeps a part (ZeRO-2), and parameters of which it does so too (ZeRO-3: Rajbhandari et al. 2020, "ZeRO: Memory
// Optimizations Toward Training Trillion Parameter Models", sections 5.2 and 5.3).
//
// Gradients: a backward pass writes those of a bucket into whole memory of the bucket's size. As soon as it has all of them, a reduce-scatter
// gives each process the sums of its own part, which are added to what it keeps, and the whole memory serves the next bucket.
//
// Parameters: an operation that reads one has its bucket gathered, in f32 or in the 16-bit type of products, and a unit of `fullyShard` frees it.
//
// All of it may be part of a compiled function: collectives are calls of the host there, between two parts of the graph.

import { SLOT, Template } from '../../kernels/template.mjs';
import { autocastType } from '../api/autocast.mjs';
import { isRecomputing } from '../api/checkpoint.mjs';
import { isGradEnabled, noGrad } from '../core/node.mjs';
import { UsageError } from '../core/errors.mjs';
import { BYTES, denseStrides, layoutOf } from '../core/layout.mjs';
import { map } from '../core/codegen.mjs';
import { backwardEnds, recordingNow, runtime, sink } from '../core/runtime.mjs';
import { scope } from '../core/scope.mjs';
import { Storage, unscoped } from '../core/storage.mjs';
import { Tensor } from '../api/tensor.mjs';

/** @typedef {import('./bucket.mjs').Bucket} Bucket */
/** @typedef {import('./ranks.mjs').ProcessGroup} ProcessGroup */
/** @typedef {import('../core/layout.mjs').DType} DType */
/** @typedef {import('../modules/module.mjs').Parameter} Parameter */
/** @typedef {import('../modules/shard.mjs').Unit} Unit */

/**
 * A bucket whose gradients are not complete: its whole memory, and the parameters whose gradients are missing.
 * @typedef {{ storage: Storage, missing: Set<Parameter> }} Open
 */

/** Buckets that are gathered together, and in which types. @typedef {{ unit: Unit | undefined, wanted: { bucket: Bucket, dtype: DType }[] }} Gathering */

/**
 * A collective of whole buckets.
 * @typedef {{ kind: 'reduceScatter' | 'allGather' | 'broadcast', storage: Storage, range: { count: number, type?: 'f32' | 'bf16' } }} Collective
 */

/** What the memory of parameters that are not gathered belongs to. @type {import('../core/runtime.mjs').Sink} */
const NOWHERE = {
  allocate: () => {
    throw new Error('not to be allocated from');
  },
  release: () => {},
  append: () => undefined,
};

/** The storage of a bucket's parameters: it has memory while they are gathered. */
export class ShardedStorage extends Storage {
  /** @param {number} bytes of the whole bucket @param {() => void} fetch gathers them */
  constructor(bytes, fetch) {
    const absent = { handle: -1, bytes, live: true, sink: NOWHERE };
    super(absent);
    this.absent = absent;
    this.fetch = fetch;
  }

  /** The memory is that of `Shards`, which frees it. */
  release() {
    this.shares--;
  }
}

/** A view of some elements of a storage. @param {Storage} storage @param {readonly number[]} shape @param {number} offset @param {DType} [dtype] */
const viewOf = (storage, shape, offset, dtype = 'f32') => new Tensor(storage, layoutOf(shape, denseStrides(shape), offset, dtype));

/**
 * Dispatches that convert this process's part of parameters to 16 bits in the order of permuted copies (half-copy.mjs): two elements are one word,
 * 16 words are a 4 x 4 matrix, which is transposed.
 * @param {import('./bucket.mjs').Run} own a multiple of 32 elements, from a multiple of 32 @param {DType} dtype
 */
export function permuting({ offset, count }, dtype) {
  const shape = [count / 32, 4, 4, 2];
  const from = { buffer: SLOT, offset: 0, layout: layoutOf(shape, [32, 2, 8, 1], 0, 'f32') };
  const to = { buffer: SLOT + 1, offset, layout: layoutOf(shape, denseStrides(shape), offset, dtype) };
  return new Template(/** @type {import('../../kernels/base.mjs').Dispatch} */ (map(runtime().kernels.context, [from], [to], (_, x) => x)));
}

/** The sharded gradients, and parameters, of one optimizer. */
export class Shards {
  /**
   * @param {ProcessGroup} group @param {boolean} parameters whether parameters are sharded, too
   * @param {boolean} exportable whether the memory of collectives is, for NCCL
   */
  constructor(group, parameters, exportable) {
    this.group = group;
    this.parameters = parameters;
    this.exportable = exportable;
    /** Memory of whole buckets, by bytes: what is free. @type {Map<number, Storage[]>} */
    this.free = new Map();
    /** All of it. @type {Storage[]} */
    this.made = [];
    /** Buckets whose gradients a backward pass is computing. @type {Map<Bucket, Open>} */
    this.open = new Map();
    /**
     * All buckets in the order in which each backward pass sums them: those of parameters that were made last come first, those of a unit together.
     * All processes have the same order, whichever gradients come first, or not at all. @type {Bucket[][]}
     */
    this.order = [];
    /** What this backward pass has summed; undefined before its first gradient. @type {Set<Bucket> | undefined} */
    this.summed = undefined;
    /** What is gathered, by type. @type {Map<Bucket, Map<DType, Storage>>} */
    this.gathered = new Map();
    /** The recording that `open` and `gathered` are of; undefined outside of compiled functions. @type {WeakRef<object> | undefined} */
    this.of = undefined;
    /** The units that the forward pass has gathered, in order, and in which types: the backward pass goes back. @type {Gathering[]} */
    this.passed = [];
    /** Conversions of parts of parameters. @type {Map<string, Template>} */
    this.conversions = new Map();
    this.finish = () => noGrad(() => scope(() => this.#finish()));
  }

  /** Takes memory for the whole of a bucket. @param {number} bytes @returns {Storage} */
  take(bytes) {
    const known = this.free.get(bytes)?.pop();
    if (known) return known;
    // Of the device also while a function is compiled: it outlives the graph, as parameters do.
    const storage = new Storage(runtime().allocate(bytes, this.exportable));
    storage.retain();
    runtime().name(storage.allocation, 'parameters and gradients of a bucket');
    this.made.push(storage);
    return storage;
  }

  /** Gives memory back. @param {Storage} storage @param {number} bytes as it was taken with */
  giveBack(storage, bytes) {
    const list = this.free.get(bytes);
    if (list) list.push(storage);
    else this.free.set(bytes, [storage]);
  }

  /**
   * What is gathered inside a compiled function is not outside of it, and the other way round: a graph gathers all that it reads, each time.
   */
  #turn() {
    const now = recordingNow();
    // A recording that is garbage is none that goes on: what was gathered in it is not there.
    if (now ? now !== this.of?.deref() : this.of) {
      // Of a function that could not be compiled, a bucket may be open still.
      if (this.of) this.#forgetOpen();
      this.#checkClosed();
      this.forget();
      this.of = now && new WeakRef(now);
    }
    if (now && !now.effects.has(this)) {
      const before = () => {
        this.#checkClosed();
        this.forget();
      };
      now.effects.set(this, { before, after: () => {} });
    }
  }

  #checkClosed() {
    if (this.open.size > 0)
      throw new UsageError(
        'compile',
        'gradients were added to parameters outside of the compiled function: call step() or zeroGrad() first',
      );
  }

  /**
   * Runs collectives, one behind the other, after everything that was computed so far. In a compiled function they are one call of the host, so
   * that they stay together and are handed to NCCL at once.
   * @param {Collective[]} list
   */
  #run(list) {
    const run = (/** @type {number[]} */ handles) => {
      for (const [i, { kind, range }] of list.entries()) this.group[kind](handles[i], range);
    };
    const storages = list.map(({ storage }) => storage);
    const recording = recordingNow();
    if (recording) recording.host(storages, run);
    else {
      runtime().flush();
      run(storages.map(({ allocation }) => allocation.handle));
    }
    for (const storage of storages) storage.version++;
  }

  // ---- parameters

  /** Copies the parameters of rank 0 to all processes. @param {Storage} storage the whole of a bucket @param {number} count */
  broadcast(storage, count) {
    this.#run([{ kind: 'broadcast', storage, range: { count } }]);
  }

  /**
   * The parameters of a bucket in a type, gathered unless they are already. With the first of a unit all others are gathered, in the types in which
   * a layer reads them: consecutive collectives are handed to NCCL at once.
   * @param {Bucket} bucket @param {DType} dtype f32, f16 or bf16
   * @returns {Storage} with the bucket's elements
   */
  values(bucket, dtype) {
    if (bucket.values.disposed) throw new UsageError('tensor', 'the optimizer that had a part of this parameter was disposed of');
    this.#turn();
    const known = this.gathered.get(bucket)?.get(dtype);
    if (known) return known;
    const others = bucket.unit && !this.gathered.has(bucket) ? [...bucket.unit.buckets] : [];
    const half = autocastType() ?? 'f32';
    const all = others.filter((each) => each !== bucket && each.shards === this && !this.gathered.has(each));
    const wanted = [
      { bucket, dtype },
      ...all.map((each) => ({ bucket: each, dtype: each.isOfMatrices ? half : /** @type {DType} */ ('f32') })),
    ];
    const gathering = { unit: bucket.unit, wanted };
    if (bucket.unit && isGradEnabled() && !isRecomputing()) this.passed.push(gathering);
    const [first] = this.#convert(gathering);
    this.#run(this.#collectives(gathering));
    return first;
  }

  /** The collectives of a gathering, after `#convert`. @param {Gathering} gathering @returns {Collective[]} */
  #collectives({ wanted }) {
    return wanted.map(({ bucket, dtype }) => {
      const storage = /** @type {Storage} */ (this.gathered.get(bucket)?.get(dtype));
      if (dtype === 'f32' && bucket.whole) bucket.whole.allocation = storage.allocation;
      // The group moves 16-bit elements of any type.
      return { kind: 'allGather', storage, range: { count: bucket.count, type: dtype === 'f32' ? 'f32' : 'bf16' } };
    });
  }

  /** Takes memory for a gathering, with this process's part of each bucket. @param {Gathering} gathering */
  #convert({ wanted }) {
    return wanted.map(({ bucket, dtype }) => this.#part(bucket, dtype));
  }

  /** Memory for the parameters of a bucket in a type, with this process's part of them. @param {Bucket} bucket @param {DType} dtype */
  #part(bucket, dtype) {
    const { count, own } = bucket;
    const storage = this.take(BYTES[dtype] * count);
    const all = this.gathered.get(bucket);
    if (all) all.set(dtype, storage);
    else this.gathered.set(bucket, new Map([[dtype, storage]]));
    const key = `${dtype} ${own.offset}+${own.count}`;
    let conversion = this.conversions.get(key);
    if (!conversion) {
      const y = { buffer: SLOT + 1, offset: own.offset };
      conversion = new Template(runtime().kernels.cast({ x: SLOT, y, count: own.count, from: 'f32', to: /** @type {'f32'} */ (dtype) }));
      this.conversions.set(key, conversion);
    }
    const permuted = dtype === 'f32' ? undefined : () => permuting(own, dtype);
    const info = { name: 'part of the parameters', bytes: own.count * (4 + BYTES[dtype]), permuted };
    sink().append(conversion, [/** @type {Storage} */ (bucket.values.storage), storage], undefined, info);
    storage.version++;
    return storage;
  }

  /** Gathers the parameters of a bucket in f32, in memory that is the caller's from then on. @param {Bucket} bucket @returns {Storage} retained once */
  takeOut(bucket) {
    const storage = this.values(bucket, 'f32');
    this.gathered.get(bucket)?.delete('f32');
    this.made.splice(this.made.indexOf(storage), 1);
    this.release(bucket);
    return storage;
  }

  /** Frees what is gathered of a bucket. @param {Bucket} bucket */
  release(bucket) {
    for (const [dtype, storage] of this.gathered.get(bucket) ?? []) this.giveBack(storage, BYTES[dtype] * bucket.count);
    this.gathered.delete(bucket);
    if (bucket.whole) bucket.whole.allocation = bucket.whole.absent;
  }

  /** Frees all that is gathered. */
  forget() {
    for (const bucket of [...this.gathered.keys()]) this.release(bucket);
    this.passed.length = 0;
  }

  // ---- gradients

  /** Takes a new bucket into the order. @param {Bucket} bucket */
  add(bucket) {
    const { unit } = bucket;
    const known = unit && this.order.find(([first]) => first.unit === unit);
    if (known) known.push(bucket);
    else this.order.push([bucket]);
    const made = (/** @type {Bucket[]} */ buckets) =>
      Math.min(...buckets.flatMap(({ parameters }) => parameters.map(({ serial }) => serial)));
    this.order.sort((a, b) => made(b) - made(a));
  }

  /** Adds to the gradient of a parameter. @param {Parameter} parameter @param {Bucket} bucket its bucket @param {Tensor} gradient */
  accumulate(parameter, bucket, gradient) {
    this.#turn();
    noGrad(() =>
      scope(() => {
        let open = this.open.get(bucket);
        if (!open) open = this.#begin(bucket);
        const place = viewOf(open.storage, parameter.shape, bucket.offsets[bucket.parameters.indexOf(parameter)]);
        if (open.missing.delete(parameter)) place.copy_(gradient);
        else place.add_(gradient);
        for (const buckets of this.#left()) {
          if (buckets.some((each) => this.open.get(each)?.missing.size !== 0)) break;
          this.#closeUnit(buckets);
        }
      }),
    );
  }

  /** Memory for the gradients of a bucket, of which none is there. @param {Bucket} bucket @returns {Open} */
  #begin(bucket) {
    const open = { storage: this.take(4 * bucket.count), missing: new Set(bucket.parameters) };
    this.open.set(bucket, open);
    (this.summed ??= new Set()).delete(bucket);
    // Sums of what is between parameters would become part of the norm.
    for (const { offset, count } of bucket.gaps()) viewOf(open.storage, [count], offset).fill_(0);
    backwardEnds.add(this.finish);
    return open;
  }

  /** What this backward pass has not summed, in order. */
  #left() {
    return this.order.map((buckets) => buckets.filter((each) => !this.summed?.has(each))).filter(({ length }) => length > 0);
  }

  /**
   * Sums the gradients of a unit, once they are complete, and gathers the unit before it, whose layer the backward pass computes next: consecutive
   * collectives are handed to NCCL at once.
   * @param {Bucket[]} all of a unit, or one of none
   */
  #closeUnit(all) {
    const [{ unit }] = all;
    const at = unit && this.parameters ? this.passed.findLastIndex((each) => each.unit === unit) : -1;
    const before = at > 0 ? this.passed[at - 1] : undefined;
    if (at >= 0) this.passed.length = at;
    const next = before?.wanted.every((each) => !this.gathered.has(each.bucket)) ? before : undefined;
    if (next) this.#convert(next);
    this.#close(all, next);
  }

  /**
   * Sums the gradients of buckets over the processes, and adds this process's parts to what it keeps.
   * @param {Bucket[]} buckets @param {Gathering} [next] what is gathered with it
   */
  #close(buckets, next) {
    const storages = buckets.map((bucket) => /** @type {Open} */ (this.open.get(bucket)).storage);
    /** @type {Collective[]} */
    const sums = buckets.map(({ count }, i) => ({ kind: 'reduceScatter', storage: storages[i], range: { count } }));
    this.#run([...sums, ...(next ? this.#collectives(next) : [])]);
    for (const [i, bucket] of buckets.entries()) {
      const { gradients, own, count } = bucket;
      this.open.delete(bucket);
      this.summed?.add(bucket);
      const part = viewOf(storages[i], [own.count], own.offset);
      recordingNow()?.gradientOf(gradients);
      if (gradients.grad) gradients.add_(part);
      else gradients.copy_(part);
      gradients.grad = gradients;
      this.giveBack(storages[i], 4 * count);
    }
  }

  /** The end of a backward pass, or a step: parameters that have no gradient have zeros, as all processes must sum the same. */
  #finish() {
    // What a function that could not be compiled has left open was never computed.
    if (this.summed) this.#turn();
    for (const bucket of this.summed ? this.#left().flat() : []) {
      const { missing, storage } = this.open.get(bucket) ?? this.#begin(bucket);
      for (const parameter of missing) viewOf(storage, parameter.shape, bucket.offsets[bucket.parameters.indexOf(parameter)]).fill_(0);
      this.#close([bucket]);
    }
    this.summed = undefined;
    backwardEnds.delete(this.finish);
    this.passed.length = 0;
  }

  /** Drops the gradients of a bucket that are not summed yet. @param {Bucket} bucket */
  drop(bucket) {
    const open = this.open.get(bucket);
    this.summed?.delete(bucket);
    if (!open) return;
    this.open.delete(bucket);
    this.giveBack(open.storage, 4 * bucket.count);
  }

  #forgetOpen() {
    for (const bucket of [...this.open.keys()]) this.drop(bucket);
    this.summed = undefined;
  }

  dispose() {
    this.#forgetOpen();
    this.forget();
    backwardEnds.delete(this.finish);
    for (const storage of this.made.splice(0)) storage.release();
    this.free.clear();
  }
}

/** A flat view that no scope frees. @param {Storage} storage @param {number} offset @param {number} count */
export const flatView = (storage, offset, count) => unscoped(() => viewOf(storage, [count], offset));
