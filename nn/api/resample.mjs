// Images at other positions: `interpolate` by factors, `gridSample` at any. Each element of a result is a sum of a few elements of the image,
// which are looked up as rows of a table: the gradient adds rows by index in a fixed order, without atomics.

import { apply, checkBytes, tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, shown, within } from '../core/errors.mjs';
import { checkShape, denseLayout, sizeOf } from '../core/layout.mjs';
import { checkOptions, flag } from '../core/options.mjs';
import { uploaded } from '../core/tensor.mjs';
import { gridIndex } from '../ops/resample.mjs';
import * as F from './functional.mjs';
import { toF32 } from './operands.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */

const { ceil, floor, fround, max, min } = Math;

// ---- interpolate

/** How `interpolate` weights elements. @typedef {'nearest' | 'nearest-exact' | 'linear' | 'bilinear' | 'trilinear' | 'bicubic' | 'area'} InterpolateMode */

/**
 * Options of `interpolate`. One of `size` and `scaleFactor` is needed.
 * @typedef {object} InterpolateOptions
 * @property {number | readonly number[]} [size] of each dimension after channels, or one for all
 * @property {number | readonly number[]} [scaleFactor] result size / size of each dimension, or one for all; the result is rounded down
 * @property {InterpolateMode} [mode] 'nearest' when left out; 'linear' is for one dimension, 'bilinear' and 'bicubic' for two, 'trilinear'
 *   for three
 * @property {boolean} [alignCorners] of the linear and cubic modes: whether the centres of the outermost elements lie on one another, and not
 *   their outer borders; false when left out
 * @property {boolean} [recomputeScaleFactor] whether coordinates follow from the result's size, and not from `scaleFactor`; false when left out
 * @property {boolean} [antialias] of 'bilinear' and 'bicubic': whether elements are weighted over a wider part of a larger image; false when
 *   left out
 */

/** Dimensions after channels that a mode is for; those that are not here are for any. @type {Record<string, number>} */
const MODE_RANKS = { linear: 1, bilinear: 2, bicubic: 2, trilinear: 3 };
const MODES = ['nearest', 'nearest-exact', 'linear', 'bilinear', 'trilinear', 'bicubic', 'area'];

/** The elements that an element of the result is a sum of, and their factors. @typedef {{ index: number[], weight: number[] }} Taps */

/** Keys' cubic convolution (1981) of a distance. @param {number} x @param {number} a */
function cubic(x, a) {
  const t = Math.abs(x);
  if (t < 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
  return t < 2 ? (((t - 5) * t + 8) * t - 4) * a : 0;
}

/**
 * The elements for element i of the result, by PyTorch's formulas (UpSample.h).
 * @param {number} i @param {number} from the size @param {number} to the result's size @param {number} scale elements of x to one of the result
 * @param {{ mode: InterpolateMode, alignCorners: boolean, antialias: boolean }} how
 * @returns {Taps}
 */
function tapsOf(i, from, to, scale, { mode, alignCorners, antialias }) {
  const clamp = (/** @type {number} */ k) => min(max(k, 0), from - 1);
  // As PyTorch, in f32: by a factor of 1 / 3, floor(3 · i / 3) depends on the rounding.
  if (mode === 'nearest') return { index: [clamp(floor(fround(i * fround(scale))))], weight: [1] };
  if (mode === 'nearest-exact') return { index: [clamp(floor(fround(fround(i + 0.5) * fround(scale))))], weight: [1] };
  if (mode === 'area') {
    const [start, end] = [floor((i * from) / to), ceil(((i + 1) * from) / to)];
    return { index: Array.from({ length: end - start }, (_, k) => start + k), weight: new Array(end - start).fill(1 / (end - start)) };
  }
  const step = alignCorners ? (to > 1 ? (from - 1) / (to - 1) : 0) : scale;
  if (antialias) {
    const wide = max(step, 1);
    const support = (mode === 'bicubic' ? 2 : 1) * wide;
    const centre = step * (i + 0.5);
    const start = max(Math.trunc(centre - support + 0.5), 0);
    const end = min(Math.trunc(centre + support + 0.5), from);
    const index = Array.from({ length: end - start }, (_, k) => start + k);
    const weight = index.map((k) => {
      const x = (k - centre + 0.5) / wide;
      return mode === 'bicubic' ? cubic(x, -0.5) : max(1 - Math.abs(x), 0);
    });
    const sum = weight.reduce((total, w) => total + w, 0);
    return { index, weight: weight.map((w) => (sum === 0 ? 0 : w / sum)) };
  }
  const source = alignCorners ? step * i : step * (i + 0.5) - 0.5;
  if (mode === 'bicubic') {
    const first = floor(source);
    const part = source - first;
    return { index: [-1, 0, 1, 2].map((k) => clamp(first + k)), weight: [1 + part, part, 1 - part, 2 - part].map((x) => cubic(x, -0.75)) };
  }
  const place = max(source, 0);
  const first = min(floor(place), from - 1);
  const part = min(max(place - first, 0), 1);
  return { index: [first, min(first + 1, from - 1)], weight: [1 - part, part] };
}

/** A constant of the host's. @param {Int32Array | Float32Array} values @param {number[]} shape */
const constantOf = (values, shape) => uploaded(values, denseLayout(shape, values instanceof Int32Array ? 'i32' : 'f32'));

/** Sums of elements along a dimension. @param {Tensor} x f32 @param {number} d @param {Taps[]} taps for each element of the result @returns {Tensor} */
function gathered(x, d, taps) {
  const most = max(...taps.map(({ index }) => index.length));
  const to = taps.length;
  // -1 is no row of the table, and reads zeros: 0 · ∞ would be NaN.
  const index = new Int32Array(most * to).fill(-1);
  const weight = new Float32Array(most * to);
  for (const [i, own] of taps.entries()) {
    own.index.forEach((k, tap) => {
      if (own.weight[tap] === 0) return;
      index[tap * to + i] = k;
      weight[tap * to + i] = own.weight[tap];
    });
  }
  const first = F.transpose(x, 0, d);
  const table = F.reshape(first, [x.shape[d], x.size / x.shape[d]]);
  checkBytes('interpolate', denseLayout([most * to, table.shape[1]], 'f32'));
  const rows = F.embedding(constantOf(index, [most, to]), table);
  const only = weight.every((w) => w === 1);
  const y = only && most === 1 ? rows : F.sum(F.mul(rows, constantOf(weight, [most, to, 1])), 0);
  return F.transpose(F.reshape(y, first.shape.with(0, to)), 0, d);
}

/**
 * Gives images other sizes, as `torch.nn.functional.interpolate`, with its coordinates.
 * @param {Tensor} x [batch, channels, …] with one, two or three dimensions behind the channels
 * @param {InterpolateOptions} options
 * @returns {Tensor} [batch, channels, …], of x's type
 * @throws {ShapeError} if the mode is for another number of dimensions, or a size of the result is 0
 */
export function interpolate(x, options) {
  const op = 'interpolate';
  const given = checkOptions(op, options, ['size', 'scaleFactor', 'mode', 'alignCorners', 'recomputeScaleFactor', 'antialias']);
  const { size, scaleFactor, mode = 'nearest', alignCorners = false, recomputeScaleFactor = false, antialias = false } = given;
  tensorOf(op, x);
  if (typeof mode !== 'string' || !MODES.includes(mode))
    throw new ArgumentError(op, `mode must be one of ${MODES.join(', ')}, got ${shown(mode)}`);
  for (const [name, value] of Object.entries({ alignCorners, recomputeScaleFactor, antialias })) flag(op, name, value);
  const rank = x.ndim - 2;
  if (rank < 1 || rank > 3) throw new ShapeError(op, `expected [batch, channels, …] of three to five dimensions, got ${show(x.shape)}`);
  if ((MODE_RANKS[mode] ?? rank) !== rank)
    throw new ShapeError(op, `mode '${mode}' is for ${MODE_RANKS[mode]} dimensions behind the channels, got ${show(x.shape)}`);
  if (alignCorners && (mode.startsWith('nearest') || mode === 'area'))
    throw new ArgumentError(op, `alignCorners is not for mode '${mode}'`);
  if (antialias && mode !== 'bilinear' && mode !== 'bicubic')
    throw new ArgumentError(op, `antialias is for modes bilinear and bicubic, not '${mode}'`);
  if ((size === undefined) === (scaleFactor === undefined)) throw new ArgumentError(op, 'one of size and scaleFactor is needed');
  const value = size ?? scaleFactor;
  const [name, list] = [size === undefined ? 'scaleFactor' : 'size', Array.isArray(value) ? value : new Array(rank).fill(value)];
  if (
    list.length !== rank ||
    list.some((v) => typeof v !== 'number' || !(v > 0 && v < Infinity) || (size !== undefined && !Number.isInteger(v)))
  )
    throw new ArgumentError(
      op,
      `${name} must be ${size === undefined ? 'a positive number' : 'an integer of at least 1'}, or ${rank} of them, got ${shown(value)}`,
    );
  const sizes = x.shape.slice(2);
  const target = sizes.map((own, i) => (size === undefined ? floor(own * list[i]) : list[i]));
  if (target.some((own) => own < 1)) throw new ShapeError(op, `the factors ${show(list)} of ${show(sizes)} leave nothing`);
  const result = denseLayout([...x.shape.slice(0, 2), ...target], 'f32');
  checkBytes(op, result);
  return within(op, () => {
    const y = sizes.reduce((own, from, i) => {
      const to = target[i];
      const scale = size === undefined && !recomputeScaleFactor ? 1 / list[i] : from / to;
      if (from === to && scale === 1) return own;
      return gathered(
        own,
        2 + i,
        Array.from({ length: to }, (_, k) => tapsOf(k, from, to, scale, { mode, alignCorners, antialias })),
      );
    }, toF32(x));
    return F.to(y.storage === x.storage ? F.clone(y) : y.contiguous(), x.dtype);
  });
}

// ---- gridSample

/**
 * Options of `gridSample`.
 * @typedef {object} GridSampleOptions
 * @property {'bilinear' | 'nearest' | 'bicubic'} [mode] 'bilinear' when left out, which is trilinear of volumes; 'bicubic' is for images only
 * @property {'zeros' | 'border' | 'reflection'} [paddingMode] what lies outside of the image: zeros (when left out), its outermost elements, or
 *   its mirror image
 * @property {boolean} [alignCorners] whether -1 and 1 are the centres of the outermost elements, and not their outer borders; false when left
 *   out
 */

/** The largest integer that is at most x; without a gradient. @param {Tensor} x f32, of less than 2^31 */
function floorOf(x) {
  const own = x.detach();
  const whole = F.to(F.to(own, 'i32'), 'f32');
  return F.sub(whole, F.to(F.lt(own, whole), 'f32'));
}

/** Within 0 … most. What lies outside, or at a limit, has no gradient, as in PyTorch. @param {Tensor} x @param {number} most */
const clipped = (x, most) => F.where(F.gt(x, 0), F.where(F.lt(x, most), x, most), 0);

/** Mirrors coordinates at `low` and `low + span` as often as it takes. @param {Tensor} x @param {number} low @param {number} span */
function reflected(x, low, span) {
  if (span <= 0) return F.mul(x, 0);
  const distance = F.abs(F.sub(x, low));
  const times = floorOf(F.div(distance, span));
  const rest = F.sub(distance, F.mul(times, span));
  const even = F.eq(F.sub(times, F.mul(floorOf(F.mul(times, 0.5)), 2)), 0);
  return F.where(even, F.add(rest, low), F.sub(span + low, rest));
}

/** Coordinates in an image for those that may lie outside. @param {Tensor} x @param {number} size @param {Required<GridSampleOptions>} how */
function inside(x, size, { paddingMode, alignCorners }) {
  if (paddingMode === 'zeros') return x;
  if (paddingMode === 'border') return clipped(x, size - 1);
  return clipped(alignCorners ? reflected(x, 0, size - 1) : reflected(x, -0.5, size), size - 1);
}

/** Numbers along a new first dimension. @param {Tensor} x @param {number[]} numbers */
const spread = (x, numbers) => F.add(F.unsqueeze(x, 0), constantOf(Float32Array.from(numbers), [numbers.length, ...x.shape.map(() => 1)]));

/** A polynomial of t, of the third degree. @param {Tensor} t @param {number} a of t³ @param {number} b @param {number} c @param {number} d */
const polynomial = (t, a, b, c, d) => F.add(F.mul(F.add(F.mul(F.add(F.mul(t, a), b), t), c), t), d);

/**
 * The coordinates of the elements that are read for points along one dimension, and their weights; undefined for 1.
 * @param {Tensor} points from -1 to 1 @param {number} size @param {Required<GridSampleOptions>} how
 * @returns {{ places: Tensor, weights: Tensor | undefined }} [taps, ...points]
 */
function tapsOfPoints(points, size, how) {
  const scaled = how.alignCorners ? F.mul(F.add(points, 1), (size - 1) / 2) : F.add(F.mul(points, size / 2), (size - 1) / 2);
  // What is no number, or far away, lies outside, as in PyTorch.
  const source = F.where(F.lt(F.abs(scaled), 2 ** 30), scaled, -100);
  if (how.mode === 'nearest') return { places: F.unsqueeze(inside(source.detach(), size, how), 0), weights: undefined };
  if (how.mode === 'bilinear') {
    const place = inside(source, size, how);
    const first = floorOf(place);
    const part = F.sub(place, first);
    return { places: spread(first, [0, 1]), weights: F.stack([F.sub(1, part), part]) };
  }
  // Outside of the image the elements that are read are mirrored or repeated, not the point.
  const first = floorOf(source);
  const t = F.sub(source, first);
  const a = -0.75;
  const near = (/** @type {Tensor} */ u) => polynomial(u, a + 2, -(a + 3), 0, 1);
  const far = (/** @type {Tensor} */ u) => polynomial(u, a, -5 * a, 8 * a, -4 * a);
  const weights = F.stack([far(F.add(t, 1)), near(t), near(F.sub(1, t)), far(F.sub(2, t))]);
  return { places: inside(spread(first, [-1, 0, 1, 2]), size, how), weights };
}

/** From this many rows on, they are looked up tap by tap: for the gradient a CPU device sorts no more rows than this. */
const MAX_ROWS = 2 ** 18;

/**
 * Reads images at the points of a grid, as `torch.nn.functional.grid_sample`. Gradients flow to the images and to the grid.
 * @param {Tensor} x [batch, channels, rows, columns], or [batch, channels, planes, rows, columns]
 * @param {Tensor} grid [batch, rows', columns', 2]: for each element of the result the column and the row, from -1 to 1; of volumes
 *   [batch, planes', rows', columns', 3] with the column, the row and the plane
 * @param {GridSampleOptions} [options]
 * @returns {Tensor} [batch, channels, rows', columns'] or [batch, channels, planes', rows', columns'], of x's type
 */
export function gridSample(x, grid, options = {}) {
  const op = 'gridSample';
  const {
    mode = 'bilinear',
    paddingMode = 'zeros',
    alignCorners = false,
  } = checkOptions(op, options, ['mode', 'paddingMode', 'alignCorners']);
  const rank = tensorOf(op, x).ndim - 2;
  if (rank !== 2 && rank !== 3)
    throw new ShapeError(op, `expected images [batch, channels, rows, columns] or volumes, got ${show(x.shape)}`);
  if (tensorOf(op, grid).ndim !== x.ndim || grid.shape[0] !== x.shape[0] || grid.shape.at(-1) !== rank)
    throw new ShapeError(
      op,
      `an input ${show(x.shape)} needs a grid [${x.shape[0]}, ${rank === 3 ? 'planes, ' : ''}rows, columns, ${rank}], got ${show(grid.shape)}`,
    );
  if (typeof mode !== 'string' || !['bilinear', 'nearest', 'bicubic'].includes(mode))
    throw new ArgumentError(op, `mode must be one of bilinear, nearest, bicubic, got ${shown(mode)}`);
  if (mode === 'bicubic' && rank === 3) throw new ShapeError(op, `mode 'bicubic' is for images, got ${show(x.shape)}`);
  if (typeof paddingMode !== 'string' || !['zeros', 'border', 'reflection'].includes(paddingMode))
    throw new ArgumentError(op, `paddingMode must be one of zeros, border, reflection, got ${shown(paddingMode)}`);
  flag(op, 'alignCorners', alignCorners);
  const how = { mode, paddingMode, alignCorners };
  return within(op, () => {
    const [batch, channels, ...sizes] = x.shape;
    const points = toF32(grid);
    const outer = points.shape.slice(0, -1);
    // The last dimension of the image comes first in the grid.
    const axes = sizes.map((size, i) => tapsOfPoints(F.reshape(F.slice(points, -1, rank - 1 - i, rank - i), outer), size, how));
    const apart = (/** @type {Tensor} */ own, /** @type {number} */ axis) =>
      F.reshape(own, [...sizes.map((_, i) => (i === axis ? own.shape[0] : 1)), ...outer]);
    const first = constantOf(
      Int32Array.from({ length: batch }, (_, n) => n * sizeOf(sizes)),
      [batch, ...outer.slice(1).map(() => 1)],
    );
    const places = apply(gridIndex, [...axes.map(({ places: own }, i) => apart(own, i)), first], { sizes });
    const count = sizeOf(outer);
    const taps = places.size / count;
    const table = F.reshape(F.permute(toF32(x), [0, ...sizes.map((_, i) => 2 + i), 1]), [batch * sizeOf(sizes), channels]);
    const ids = F.reshape(places, [taps, count]);
    const weights = axes
      .map(({ weights: own }, i) => own && apart(own, i))
      .reduce((product, own) => (product && own ? F.mul(product, own) : (product ?? own)));
    const factors = weights && F.reshape(weights, [taps, count, 1]);
    /** @returns {Tensor} [count, channels] */
    const summed = () => {
      if (!factors) return F.embedding(F.reshape(ids, [count]), table);
      if (taps * count <= MAX_ROWS) return F.sum(F.mul(F.embedding(ids, table), factors), 0);
      const parts = Array.from({ length: taps }, (_, k) =>
        F.mul(F.embedding(F.reshape(F.slice(ids, 0, k, k + 1), [count]), table), F.reshape(F.slice(factors, 0, k, k + 1), [count, 1])),
      );
      return parts.reduce((sum, part) => F.add(sum, part));
    };
    const y = F.reshape(summed(), [...outer, channels]);
    return F.to(F.permute(y, [0, rank + 1, ...sizes.map((_, i) => 1 + i)]).contiguous(), x.dtype);
  });
}

/**
 * Options of `affineGrid`.
 * @typedef {object} AffineGridOptions
 * @property {boolean} [alignCorners] as of `gridSample`; false when left out
 */

/**
 * The grid for `gridSample` of an affine map of each image (Jaderberg et al. 2015), as `torch.nn.functional.affine_grid`.
 * @param {Tensor} theta [batch, 2, 3], or [batch, 3, 4] of volumes
 * @param {readonly number[]} size of the result: [batch, channels, rows, columns], or of volumes
 * @param {AffineGridOptions} [options]
 * @returns {Tensor} [batch, rows, columns, 2], or [batch, planes, rows, columns, 3]
 */
export function affineGrid(theta, size, options = {}) {
  const op = 'affineGrid';
  const { alignCorners = false } = checkOptions(op, options, ['alignCorners']);
  flag(op, 'alignCorners', alignCorners);
  const sizes = checkShape(op, size);
  const rank = sizes.length - 2;
  if (rank !== 2 && rank !== 3) throw new ShapeError(op, `size must be [batch, channels, rows, columns] or of volumes, got ${show(sizes)}`);
  if (show(tensorOf(op, theta).shape) !== show([sizes[0], rank, rank + 1]))
    throw new ShapeError(op, `a size ${show(sizes)} needs theta [${sizes[0]}, ${rank}, ${rank + 1}], got ${show(theta.shape)}`);
  const outer = sizes.slice(2);
  const count = sizeOf(outer);
  checkBytes(op, denseLayout([sizes[0], count, rank + 1], 'f32'));
  return within(op, () => {
    // The column comes first; behind the coordinates stands a 1 for what is added.
    const points = outer
      .map((own, d) => {
        const scale = alignCorners ? 1 : (own - 1) / own;
        const along = Float32Array.from({ length: own }, (_, i) => (own === 1 ? 0 : ((2 * i) / (own - 1) - 1) * scale));
        return F.expand(
          constantOf(
            along,
            outer.map((_, k) => (k === d ? own : 1)),
          ),
          outer,
        );
      })
      .reverse();
    const table = F.reshape(F.stack([...points, F.ones(outer)], -1), [count, rank + 1]);
    return F.reshape(F.matmul(table, F.transpose(toF32(theta), 1, 2)), [sizes[0], ...outer, rank]);
  });
}
