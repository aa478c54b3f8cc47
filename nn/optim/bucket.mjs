// Flat memory for an optimizer. A bucket holds many parameters end to end in one buffer, their gradients in a second, and the optimizer
// keeps their moments in others.

import { full } from '../api/functional.mjs';
import { denseLayout, denseStrides, layoutOf } from '../core/layout.mjs';
import { noGrad } from '../core/node.mjs';
import { recordingNow, runtime } from '../core/runtime.mjs';
import { scope } from '../core/scope.mjs';
import { Storage, unscoped } from '../core/storage.mjs';
import { Tensor } from '../api/tensor.mjs';
import { HalfCopy } from './half-copy.mjs';
import { GradientMemory } from './lazy-memory.mjs';
import { ShardedStorage, flatView } from './shards.mjs';

/** @typedef {import('../modules/module.mjs').Parameter} Parameter */

/** Alignment of a parameter in its bucket, in elements: 256 bytes, the largest alignment that Vulkan allows a device to require. */
export const ALIGNMENT = 64;

/** Most elements of a bucket whose gradients several processes sum: 4 GiB. */
const MAX_ELEMENTS = 2 ** 30;

/**
 * The same where a bucket's gradients take memory for a part of a backward pass alone, 256 MiB unless a parameter is larger: if they are sharded, and
 * in one process, where a compiled step has them among its intermediate results.
 */
const PASSING_ELEMENTS = 2 ** 26;

/**
 * Packs parameters into buckets, in order. A parameter is never split. Pure.
 * @param {number[]} sizes elements of each parameter
 * @param {number} most elements of a bucket, a multiple of `multiple`; a larger parameter gets a bucket of its own
 * @param {number} [multiple] the size of a bucket is rounded up to a multiple of this
 * @param {unknown[]} [keys] of the parameters: those of a bucket have the same; all may share buckets when left out
 * @returns {{ members: { index: number, offset: number }[], count: number }[]}
 */
export function arrange(sizes, most, multiple = ALIGNMENT, keys = undefined) {
  /** @type {{ members: { index: number, offset: number }[], count: number }[]} */
  const buckets = [];
  /** The newest bucket of each key. @type {Map<unknown, typeof buckets[number]>} */
  const newest = new Map();
  sizes.forEach((size, index) => {
    const padded = Math.ceil(size / ALIGNMENT) * ALIGNMENT;
    const key = keys?.[index];
    let bucket = newest.get(key);
    if (!bucket || bucket.count + padded > most) {
      bucket = { members: [], count: 0 };
      buckets.push(bucket);
      newest.set(key, bucket);
    }
    bucket.members.push({ index, offset: bucket.count });
    bucket.count += padded;
  });
  for (const bucket of buckets) bucket.count = Math.ceil(bucket.count / multiple) * multiple;
  return buckets;
}

/**
 * A contiguous range of a bucket's elements.
 * @typedef {object} Run
 * @property {number} offset the first, in elements from the bucket's start
 * @property {number} count number of elements
 */

/**
 * Flat memory of some parameters and their gradients. The padding between them is 0 and stays 0. With `shards`, gradients, and perhaps parameters,
 * are only those of `own`, the part of the bucket that this process updates.
 */
export class Bucket {
  /**
   * Moves the parameters, and gradients that they have, into new memory.
   * @param {Parameter[]} parameters @param {number[]} indices of the parameters in their group @param {number[]} offsets in elements
   * @param {number} count elements of the bucket
   * @param {import('./ranks.mjs').Ranks} [ranks] the processes that train together
   */
  constructor(parameters, indices, offsets, count, ranks) {
    this.parameters = parameters;
    this.indices = indices;
    this.offsets = offsets;
    this.count = count;
    /** The range that this process updates. @type {Run} */
    this.own = ranks?.shard({ count }) ?? { offset: 0, count };
    /** @type {import('./shards.mjs').Shards | undefined} */
    this.shards = ranks?.shards;
    const { shards, own } = this;
    /** The storage of the parameters, if each process has a part. @type {ShardedStorage | undefined} */
    this.whole = shards?.parameters ? new ShardedStorage(4 * count, () => void shards.values(this, 'f32')) : undefined;
    /** Where `values` and `gradients` begin in the bucket. */
    this.from = { values: this.whole ? own.offset : 0, gradients: shards ? own.offset : 0 };
    /** All parameters as one flat tensor, or those of `own`. */
    this.values = this.whole
      ? this.zeros('parameters', own.count)
      : ranks?.exportable
        ? exportableZeros('parameters', count)
        : this.zeros('parameters');
    /** Sharded gradients have themselves as their `grad` while there are any, as compiled functions watch gradients of tensors. */
    this.gradients = shards
      ? this.zeros('gradients', own.count)
      : ranks?.exportable
        ? exportableZeros('gradients', count)
        : unscoped(() => new Tensor(new Storage(new GradientMemory(this)), denseLayout([count], 'f32')));
    /** Whether the optimizer maintains a 16-bit copy of the parameters; it is made at first use. */
    this.keepsHalf = false;
    /** @type {HalfCopy | undefined} */
    this.half = undefined;
    /** What the parameters are gathered with. */
    this.unit = this.whole && parameters[0].unit;
    /** Whether products read them in 16 bits under `autocast`. */
    this.isOfMatrices = parameters[0].ndim > 1;
    shards?.add(this);
    noGrad(() =>
      unscoped(() => {
        if (this.whole && shards) this.#divide(this.whole, shards);
        else this.#move();
        for (const [i, parameter] of parameters.entries()) {
          if (!shards) parameter.gradientPlace = this.view(this.gradients, parameter.shape, offsets[i]);
          parameter.bucket = this;
        }
        // If that fails, the parameters keep theirs.
        if (parameters.some(({ grad }) => grad)) this.reserveGradients();
        for (const parameter of parameters) {
          const before = parameter.grad;
          if (!before) continue;
          parameter.grad = undefined;
          parameter.accumulate(before);
          before.dispose();
        }
      }),
    );
  }

  /** Moves the parameters into `values`. */
  #move() {
    for (const [i, parameter] of this.parameters.entries()) {
      const place = this.view(this.values, parameter.shape, this.offsets[i]);
      parameter.moveTo(place);
      place.dispose();
    }
  }

  /**
   * Divides the parameters among the processes: all of them get this process's part of rank 0's.
   * @param {ShardedStorage} whole @param {import('./shards.mjs').Shards} shards
   */
  #divide(whole, shards) {
    const { parameters, offsets, count, own } = this;
    const storage = shards.take(4 * count);
    const all = flatView(storage, 0, count);
    for (const gap of this.gaps()) scope(() => void this.view(all, [gap.count], gap.offset).fill_(0));
    for (const [i, parameter] of parameters.entries()) {
      const place = this.view(all, parameter.shape, offsets[i]);
      parameter.moveTo(place);
      place.dispose();
    }
    // Until this process has its part, the parameters hold all of the memory: they keep it if anything here fails.
    shards.broadcast(storage, count);
    const part = this.view(all, [own.count], own.offset);
    this.values.copy_(part);
    for (const view of [part, all]) view.dispose();
    for (const parameter of parameters) {
      whole.retain();
      parameter.storage = whole;
      storage.release();
    }
    this.unit?.buckets.add(this);
    shards.giveBack(storage, 4 * count);
  }

  /**
   * Gives parameters that were divided back whole: the optimizer cannot be made. All processes must do so, as their parts are gathered.
   */
  restore() {
    const { whole, shards, parameters } = this;
    if (!whole || !shards || parameters.every(({ storage }) => storage !== whole)) return;
    const storage = shards.takeOut(this);
    for (const parameter of parameters) {
      storage.retain();
      parameter.storage = storage;
      whole.release();
    }
    storage.release();
  }

  /** The ranges between parameters. @returns {Run[]} */
  gaps() {
    return this.parameters.flatMap(({ size }, i) => {
      const end = this.offsets[i] + size;
      const next = this.offsets[i + 1] ?? this.count;
      return end < next ? [{ offset: end, count: next - end }] : [];
    });
  }

  /** Allocates the memory of gradients, if it is not, before one is written there. In a trace there is none yet. */
  reserveGradients() {
    const { allocation } = /** @type {Storage} */ (this.gradients.storage);
    if (allocation instanceof GradientMemory && !recordingNow()) allocation.reserve();
  }

  /** Clears sharded gradients. */
  clearShard() {
    const { shards, gradients } = this;
    if (!shards) return;
    shards.drop(this);
    recordingNow()?.gradientOf(gradients);
    gradients.grad = undefined;
  }

  /** A flat tensor of zeros, of the bucket's size by default. @param {string} name for reports */
  zeros(name, count = this.count) {
    const flat = unscoped(() => full([count], 0));
    runtime().name(/** @type {Storage} */ (flat.storage).allocation, name);
    return flat;
  }

  /** A view of one of the bucket's flat tensors. @param {Tensor} flat @param {readonly number[]} shape @param {number} offset */
  view(flat, shape, offset) {
    return new Tensor(/** @type {Storage} */ (flat.storage), layoutOf(shape, denseStrides(shape), offset, 'f32'));
  }

  /** The ranges of parameters that have a gradient; one range if all have. @returns {{ offset: number, count: number }[]} */
  ready() {
    /** @type {{ offset: number, count: number }[]} */
    const runs = [];
    if (this.shards) {
      this.shards.finish();
      recordingNow()?.gradientOf(this.gradients);
      return this.gradients.grad ? [{ offset: 0, count: this.count }] : [];
    }
    this.parameters.forEach((parameter, i) => {
      const offset = this.offsets[i];
      const end = this.offsets[i + 1] ?? this.count;
      const last = runs.at(-1);
      recordingNow()?.gradientOf(parameter);
      if (!parameter.grad) return;
      parameter.place();
      if (last && last.offset + last.count === offset) last.count = end - last.offset;
      else runs.push({ offset, count: end - offset });
    });
    return runs;
  }

  /**
   * The 16-bit copy of the parameters, up to date. Of sharded ones it is gathered.
   * @param {'f16' | 'bf16'} dtype
   * @returns {{ storage: Storage } | undefined} undefined if the optimizer keeps no copy or one of the other type, or if the function being compiled
   *   has changed the parameters in another way
   */
  halfCopy(dtype) {
    if (this.whole && this.shards) return { storage: this.shards.values(this, dtype) };
    if (!this.keepsHalf) return undefined;
    this.half ??= new HalfCopy(/** @type {Storage} */ (this.values.storage), this.count, dtype);
    return this.half.dtype === dtype && this.half.ready() ? this.half : undefined;
  }

  /** Marks the parameters as changed. With `copied`, the same kernel has updated the 16-bit copies that were up to date. */
  changed(copied = true) {
    const source = /** @type {Storage} */ (this.values.storage);
    const kept = copied && this.half?.fresh ? [this.half, this.half.permuted].filter((copy) => copy?.fresh) : [];
    source.version++;
    if (this.whole) {
      this.whole.version++;
      this.shards?.release(this);
    }
    for (const copy of kept) copy?.follow();
  }

  /** Releases the bucket's memory. The parameters keep their own references to it; of sharded ones there is only a part, so they end with it. */
  dispose() {
    this.shards?.release(this);
    this.clearShard();
    this.unit?.buckets.delete(this);
    for (const parameter of this.parameters) {
      if (this.whole && parameter.storage === this.whole) parameter.dispose();
      // A gradient in the bucket stays with its parameter: the constructor of the optimizer may have failed.
      if (parameter.grad !== parameter.gradientPlace) parameter.gradientPlace?.dispose();
      parameter.gradientPlace = undefined;
      parameter.bucket = undefined;
    }
    for (const tensor of [this.values, this.gradients]) tensor.dispose();
    this.half?.dispose();
    this.half = undefined;
  }

  /** A range of one of the bucket's flat tensors. @param {Tensor} flat @param {Run} run */
  part(flat, { offset, count }) {
    return offset === 0 && count === this.count ? flat : this.view(flat, [count], offset);
  }
}

/** A tensor of zeros in memory that other APIs on the device (CUDA) can import. @param {string} name for reports @param {number} count */
function exportableZeros(name, count) {
  const device = runtime();
  const allocation = device.allocate(4 * count, true);
  device.name(allocation, name);
  const flat = unscoped(() => new Tensor(new Storage(allocation), denseLayout([count], 'f32')));
  noGrad(() => flat.fill_(0));
  return flat;
}

/**
 * What divides sharded parameters into buckets: those of a unit are gathered together, vectors apart from matrices, of which products read 16
 * bits; a matrix of no unit is gathered by itself.
 * @param {Parameter} parameter
 */
const keyOf = ({ unit, ndim }, /** @type {number} */ i) => {
  if (!unit) return ndim > 1 ? i : -1;
  return ndim > 1 ? unit : unit.buckets;
};

/**
 * Moves parameters into buckets.
 * @param {Parameter[]} parameters f32 @param {number} bytes of the largest buffer that the device can bind as a whole
 * @param {import('./ranks.mjs').Ranks} [ranks] the processes that train together
 */
export function bucketsOf(parameters, bytes, ranks) {
  const { multiple = ALIGNMENT, shards } = ranks ?? {};
  const sizes = parameters.map((parameter) => parameter.size);
  const largest = !ranks || (shards && !shards.parameters) ? PASSING_ELEMENTS : MAX_ELEMENTS;
  const most = Math.floor(Math.min(largest, bytes / 4) / multiple) * multiple;
  const keys = shards?.parameters ? parameters.map(keyOf) : undefined;
  return arrange(sizes, most, multiple, keys).map(({ members, count }) => {
    const indices = members.map(({ index }) => index);
    const offsets = members.map(({ offset }) => offset);
    return new Bucket(
      indices.map((index) => parameters[index]),
      indices,
      offsets,
      count,
      ranks,
    );
  });
}

/** One word of a state, as an f32 tensor [1]. @param {Tensor} state @param {number} word */
export const stateWord = (state, word) => new Tensor(/** @type {Storage} */ (state.storage), layoutOf([1], [1], word, 'f32'));

/** The layout of a state. @param {number} words */
export const stateLayout = (words) => denseLayout([words], 'u32');
