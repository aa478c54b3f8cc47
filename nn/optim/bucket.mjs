// Flat memory for an optimizer. A bucket holds many parameters end to end in one buffer, their gradients in a second, and the optimizer
// keeps their moments in others.

import { full } from '../api/functional.mjs';
import { denseLayout, denseStrides, layoutOf } from '../core/layout.mjs';
import { noGrad } from '../core/node.mjs';
import { recordingNow, runtime } from '../core/runtime.mjs';
import { Storage, unscoped } from '../core/storage.mjs';
import { Tensor } from '../api/tensor.mjs';
import { HalfCopy } from './half-copy.mjs';

/** @typedef {import('../modules/module.mjs').Parameter} Parameter */

/** Alignment of a parameter in its bucket, in elements: 256 bytes, the largest alignment that Vulkan allows a device to require. */
export const ALIGNMENT = 64;

/** Most elements of a bucket: 4 GiB. */
const MAX_ELEMENTS = 2 ** 30;

/**
 * Packs parameters into buckets, in order. A parameter is never split. Pure.
 * @param {number[]} sizes elements of each parameter
 * @param {number} most elements of a bucket, a multiple of `multiple`; a larger parameter gets a bucket of its own
 * @param {number} [multiple] the size of a bucket is rounded up to a multiple of this
 * @returns {{ members: { index: number, offset: number }[], count: number }[]}
 */
export function arrange(sizes, most, multiple = ALIGNMENT) {
  /** @type {{ members: { index: number, offset: number }[], count: number }[]} */
  const buckets = [];
  sizes.forEach((size, index) => {
    const padded = Math.ceil(size / ALIGNMENT) * ALIGNMENT;
    let bucket = buckets.at(-1);
    if (!bucket || bucket.count + padded > most) {
      bucket = { members: [], count: 0 };
      buckets.push(bucket);
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

/** Flat memory of some parameters and their gradients. The padding between them is 0 and stays 0. */
export class Bucket {
  /**
   * Moves the parameters, and gradients that they have, into new memory.
   * @param {Parameter[]} parameters @param {number[]} offsets in elements @param {number} count elements of the bucket
   * @param {boolean} [exportable] whether NCCL can access the memory
   */
  constructor(parameters, offsets, count, exportable = false) {
    this.parameters = parameters;
    this.offsets = offsets;
    this.count = count;
    /** All parameters as one flat tensor. */
    this.values = exportable ? exportableZeros('parameters', count) : this.zeros('parameters');
    this.gradients = exportable ? exportableZeros('gradients', count) : this.zeros('gradients');
    /** Whether the optimizer maintains a 16-bit copy of the parameters; it is made at first use. */
    this.keepsHalf = false;
    /** @type {HalfCopy | undefined} */
    this.half = undefined;
    noGrad(() =>
      unscoped(() => {
        parameters.forEach((parameter, i) => {
          const { layout } = parameter;
          const place = this.view(this.values, layout.shape, offsets[i]);
          parameter.moveTo(place);
          place.dispose();
          parameter.gradientPlace = this.view(this.gradients, layout.shape, offsets[i]);
          parameter.bucket = this;
          if (parameter.grad) {
            const before = parameter.grad;
            parameter.grad = undefined;
            parameter.accumulate(before);
            before.dispose();
          }
        });
      }),
    );
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
    this.parameters.forEach((parameter, i) => {
      const offset = this.offsets[i];
      const end = this.offsets[i + 1] ?? this.count;
      const last = runs.at(-1);
      recordingNow()?.gradientOf(parameter);
      if (!parameter.grad) return;
      if (last && last.offset + last.count === offset) last.count = end - last.offset;
      else runs.push({ offset, count: end - offset });
    });
    return runs;
  }

  /**
   * The 16-bit copy of the parameters, up to date.
   * @param {'f16' | 'bf16'} dtype
   * @returns {HalfCopy | undefined} undefined if the optimizer keeps no copy or one of the other type, or if the function being compiled
   *   has changed the parameters in another way
   */
  halfCopy(dtype) {
    if (!this.keepsHalf) return undefined;
    this.half ??= new HalfCopy(/** @type {Storage} */ (this.values.storage), this.count, dtype);
    return this.half.dtype === dtype && this.half.ready() ? this.half : undefined;
  }

  /** Marks the parameters as changed. With `copied`, the same kernel has updated the 16-bit copies that were up to date. */
  changed(copied = true) {
    const source = /** @type {Storage} */ (this.values.storage);
    const kept = copied ? [this.half, this.half?.permuted].filter((copy) => copy?.fresh) : [];
    source.version++;
    for (const copy of kept) copy?.follow();
  }

  /** Releases the bucket's memory. The parameters keep their own references to it. */
  dispose() {
    for (const parameter of this.parameters) {
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
 * Moves parameters into buckets.
 * @param {Parameter[]} parameters f32 @param {number} bytes of the largest buffer that the device can bind as a whole
 * @param {number} [multiple] the size of a bucket is a multiple of this many elements
 * @param {boolean} [exportable] as in `Bucket`
 */
export function bucketsOf(parameters, bytes, multiple = ALIGNMENT, exportable = false) {
  const most = Math.floor(Math.min(MAX_ELEMENTS, bytes / 4) / multiple) * multiple;
  const sizes = parameters.map((parameter) => parameter.size);
  return arrange(sizes, most, multiple).map(
    ({ members, count }) =>
      new Bucket(
        members.map(({ index }) => parameters[index]),
        members.map(({ offset }) => offset),
        count,
        exportable,
      ),
  );
}

/** One word of a state, as an f32 tensor [1]. @param {Tensor} state @param {number} word */
export const stateWord = (state, word) => new Tensor(/** @type {Storage} */ (state.storage), layoutOf([1], [1], word, 'f32'));

/** The layout of a state. @param {number} words */
export const stateLayout = (words) => denseLayout([words], 'u32');
