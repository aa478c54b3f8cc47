// Flat memory for an optimizer: one buffer has all parameters end to end, another their gradients, others their moments.

import { full } from '../api/functional.mjs';
import { denseLayout, denseStrides, layoutOf } from '../core/layout.mjs';
import { noGrad } from '../core/node.mjs';
import { recordingNow, runtime } from '../core/runtime.mjs';
import { Storage, unscoped } from '../core/storage.mjs';
import { Tensor } from '../api/tensor.mjs';
import { HalfCopy } from './half-copy.mjs';

/** @typedef {import('../modules/module.mjs').Parameter} Parameter */

/** Parameters begin at multiples of this many elements: 256 bytes, what any device lets a range begin at. */
export const ALIGNMENT = 64;

/** Elements of a bucket at most: 4 GiB. */
const MAX_ELEMENTS = 2 ** 30;

/**
 * Parameters in buckets, in order, each whole. A pure function.
 * @param {number[]} sizes elements @param {number} most elements of a bucket, a multiple of `multiple`; one parameter may be larger
 * @param {number} [multiple] what the elements of a bucket are a multiple of
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
 * Elements of a bucket, one after another.
 * @typedef {object} Run
 * @property {number} offset the first, in elements from the bucket's start
 * @property {number} count how many
 */

/** The memory of some parameters. What pads them is 0 everywhere, and stays so. */
export class Bucket {
  /**
   * @param {Parameter[]} parameters @param {number[]} offsets @param {number} count elements
   * @param {boolean} [exportable] whether parameters and gradients lie in memory that NCCL gets at
   */
  constructor(parameters, offsets, count, exportable = false) {
    this.parameters = parameters;
    this.offsets = offsets;
    this.count = count;
    /** Tensors of all elements. */
    this.values = exportable ? exportableZeros('parameters', count) : this.zeros('parameters');
    this.gradients = exportable ? exportableZeros('gradients', count) : this.zeros('gradients');
    /** Whether the optimizer keeps a 16-bit copy of the parameters, once somebody asks for one. */
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

  /** A tensor of the bucket's size, or of another one, of zeros. @param {string} name for reports */
  zeros(name, count = this.count) {
    const flat = unscoped(() => full([count], 0));
    runtime().name(/** @type {Storage} */ (flat.storage).allocation, name);
    return flat;
  }

  /** @param {Tensor} flat @param {readonly number[]} shape @param {number} offset */
  view(flat, shape, offset) {
    return new Tensor(/** @type {Storage} */ (flat.storage), layoutOf(shape, denseStrides(shape), offset, 'f32'));
  }

  /** Runs of elements whose parameters have a gradient: all, where every one has. @returns {{ offset: number, count: number }[]} */
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
   * The 16-bit copy, holding what the parameters hold.
   * @param {'f16' | 'bf16'} dtype
   * @returns {HalfCopy | undefined} nothing where the optimizer keeps none, or one of the other type, or where the function that is
   *   being compiled has changed parameters by other means
   */
  halfCopy(dtype) {
    if (!this.keepsHalf) return undefined;
    this.half ??= new HalfCopy(/** @type {Storage} */ (this.values.storage), this.count, dtype);
    return this.half.dtype === dtype && this.half.ready() ? this.half : undefined;
  }

  /** Notes that the parameters have changed, and with `copied` those 16-bit copies with them that were up to date. */
  changed(copied = true) {
    const source = /** @type {Storage} */ (this.values.storage);
    const kept = copied ? [this.half, this.half?.permuted].filter((copy) => copy?.fresh) : [];
    source.version++;
    for (const copy of kept) copy?.follow();
  }

  /** Frees the memory; the parameters keep theirs. */
  dispose() {
    for (const parameter of this.parameters) {
      // A gradient that lies there stays: the parameter keeps it where the optimizer could not be made.
      if (parameter.grad !== parameter.gradientPlace) parameter.gradientPlace?.dispose();
      parameter.gradientPlace = undefined;
      parameter.bucket = undefined;
    }
    for (const tensor of [this.values, this.gradients]) tensor.dispose();
    this.half?.dispose();
    this.half = undefined;
  }

  /** A part of one of the bucket's tensors. @param {Tensor} flat @param {Run} run */
  part(flat, { offset, count }) {
    return offset === 0 && count === this.count ? flat : this.view(flat, [count], offset);
  }
}

/** A tensor of zeros in memory that other interfaces to the device get at. @param {string} name for reports @param {number} count */
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
 * @param {Parameter[]} parameters f32 @param {number} bytes of the largest buffer that the device binds as a whole
 * @param {number} [multiple] what the elements of a bucket are a multiple of
 * @param {boolean} [exportable] as of a bucket
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

/** @param {number} word @param {Tensor} state */
export const stateWord = (state, word) => new Tensor(/** @type {Storage} */ (state.storage), layoutOf([1], [1], word, 'f32'));

/** The layout of a state. @param {number} words */
export const stateLayout = (words) => denseLayout([words], 'u32');
