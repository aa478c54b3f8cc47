// Blocks of images, boxes in them, and elements by coordinates: functions that torchvision, TensorFlow and ONNX have. Images are
// [batch, channels, rows, columns].

import { tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, UsageError, show, shown, within } from '../core/errors.mjs';
import { broadcastShapes, checkShape, denseLayout, isFloat, positive, sizeOf } from '../core/layout.mjs';
import { checkFinite, checkOptions } from '../core/options.mjs';
import { isRecording } from '../core/runtime.mjs';
import { uploaded } from '../core/tensor.mjs';
import { withoutAutocast } from './autocast.mjs';
import { checkImage, conv2d, each } from './convolution.mjs';
import { linspace } from './creation.mjs';
import * as F from './functional.mjs';
import { indexOf, indexSelect, scatter } from './indexing.mjs';
import { scatterAdd } from './scatter.mjs';
import { logicalAnd, logicalOr } from './integers.mjs';
import { isin } from './more-math.mjs';
import { floor } from './math.mjs';
import { toF32 } from './operands.mjs';
import { gridSample } from './resample.mjs';
import { flip, integers, pad, select, unfold } from './shape.mjs';
import { maskedSelect, nonzero } from './sorting.mjs';

/** @import { Tensor } from './tensor.mjs' */

/**
 * Options of `dilation2d` and `pool`.
 * @typedef {object} DilationOptions
 * @property {number | readonly number[]} [stride] elements from one window to the next; 1 when left out
 * @property {number | readonly number[]} [padding] elements on each side that are never the largest; 0 when left out
 * @property {number | readonly number[]} [dilation] elements from one element of a window to the next; 1 when left out
 */

/**
 * Options of `cropAndResize`.
 * @typedef {object} CropOptions
 * @property {'bilinear' | 'nearest'} [method] how elements are weighted; 'bilinear' when left out
 * @property {number} [extrapolationValue] of what lies outside of an image; 0 when left out
 */

/**
 * Options of `nms`.
 * @typedef {object} SuppressionOptions
 * @property {number} [maxOutputSize] the most boxes that are kept; all when left out
 * @property {number} [scoreThreshold] boxes of at most this score are left out; none when left out
 */

// ---- blocks

/** @param {string} op @param {number} blockSize @param {unknown} mode @param {Tensor} x */
function checkBlocks(op, blockSize, mode, x) {
  checkImage(op, x, 2);
  positive(op, 'blockSize', blockSize);
  if (mode !== 'DCR' && mode !== 'CRD') throw new ArgumentError(op, `mode must be 'DCR' or 'CRD', got ${shown(mode)}`);
}
/**
 * Channels as blocks of an image. 'DCR' (TensorFlow's) has a block's element as the outer number of a channel, 'CRD' (`pixelShuffle`'s) as the inner.
 * @param {Tensor} x [batch, channels · blockSize², rows, columns] @param {number} blockSize @param {'DCR' | 'CRD'} [mode] 'DCR' when left out
 * @returns {Tensor} [batch, channels, rows · blockSize, columns · blockSize]
 */
export function depthToSpace(x, blockSize, mode = 'DCR') {
  const op = 'depthToSpace';
  checkBlocks(op, blockSize, mode, x);
  const [batch, depth, rows, columns] = x.shape;
  const channels = depth / blockSize ** 2;
  if (!Number.isInteger(channels)) throw new ShapeError(op, `${depth} channels are not blocks of ${blockSize} × ${blockSize}`);
  return within(op, () => {
    const [split, order] =
      mode === 'DCR'
        ? [
            [blockSize, blockSize, channels],
            [0, 3, 4, 1, 5, 2],
          ]
        : [
            [channels, blockSize, blockSize],
            [0, 1, 4, 2, 5, 3],
          ];
    const y = F.permute(F.reshape(x, [batch, ...split, rows, columns]), order);
    return F.reshape(y, [batch, channels, rows * blockSize, columns * blockSize]);
  });
}
/** Blocks of an image as channels, the inverse of `depthToSpace`. @param {Tensor} x [batch, channels, rows, columns] @param {number} blockSize a divisor of rows and columns @param {'DCR' | 'CRD'} [mode] 'DCR' when left out @returns {Tensor} [batch, channels · blockSize², rows / blockSize, columns / blockSize] */
export function spaceToDepth(x, blockSize, mode = 'DCR') {
  const op = 'spaceToDepth';
  checkBlocks(op, blockSize, mode, x);
  const [batch, channels, rows, columns] = x.shape;
  if (rows % blockSize || columns % blockSize) throw new ShapeError(op, `blocks of ${blockSize} do not divide ${show(x.shape)}`);
  return within(op, () => {
    const y = F.reshape(x, [batch, channels, rows / blockSize, blockSize, columns / blockSize, blockSize]);
    const order = mode === 'DCR' ? [0, 3, 5, 1, 2, 4] : [0, 1, 3, 5, 2, 4];
    return F.reshape(F.permute(y, order), [batch, channels * blockSize ** 2, rows / blockSize, columns / blockSize]);
  });
}

/** Pairs of sizes. @param {string} op @param {string} name @param {unknown} pairs @param {number} count @returns {number[][]} */
function pairsOf(op, name, pairs, count) {
  if (
    !Array.isArray(pairs) ||
    pairs.length !== count ||
    !pairs.every((p) => Array.isArray(p) && p.length === 2 && p.every((n) => Number.isInteger(n) && n >= 0))
  )
    throw new ArgumentError(op, `${name} must be ${count} pairs of integers of at least 0, [before, behind], got ${shown(pairs)}`);
  return pairs;
}
/**
 * Blocks of the dimensions behind the channels as a larger batch, as TensorFlow's: element (i, j) of each block becomes image i · blocks + j.
 * @param {Tensor} x [batch, channels, ...] @param {readonly number[]} blockShape of the first dimensions behind the channels
 * @param {readonly (readonly number[])[]} paddings [before, behind] of each: zeros, with which blocks divide the sizes
 * @returns {Tensor} [batch · blocks, channels, ...]
 */
export function spaceToBatchNd(x, blockShape, paddings) {
  const op = 'spaceToBatchNd';
  const blocks = integers(op, 'blockShape', blockShape, 1);
  const around = pairsOf(op, 'paddings', paddings, blocks.length);
  if (tensorOf(op, x).ndim < blocks.length + 2) throw new ShapeError(op, `blocks ${show(blocks)} of ${show(x.shape)}`);
  return within(op, () => {
    const behind = x.ndim - 2 - blocks.length;
    const own = pad(x, [...new Array(2 * behind).fill(0), ...around.toReversed().flat()]);
    const [batch, channels, ...sizes] = own.shape;
    if (blocks.some((n, d) => sizes[d] % n)) throw new ShapeError(op, `blocks ${show(blocks)} do not divide the padded ${show(own.shape)}`);
    const rest = sizes.slice(blocks.length);
    const y = F.reshape(own, [batch, channels, ...blocks.flatMap((n, d) => [sizes[d] / n, n]), ...rest]);
    const outer = blocks.map((_, d) => 2 + 2 * d);
    const order = [...outer.map((d) => d + 1), 0, 1, ...outer, ...rest.map((_, i) => 2 + 2 * blocks.length + i)];
    return F.reshape(F.permute(y, order), [sizeOf(blocks) * batch, channels, ...blocks.map((n, d) => sizes[d] / n), ...rest]);
  });
}
/**
 * The inverse of `spaceToBatchNd`: images of a batch as elements of blocks.
 * @param {Tensor} x [batch · blocks, channels, ...] @param {readonly number[]} blockShape of the first dimensions behind the channels
 * @param {readonly (readonly number[])[]} crops [before, behind] of each: elements that are left out
 * @returns {Tensor} [batch, channels, ...]
 */
export function batchToSpaceNd(x, blockShape, crops) {
  const op = 'batchToSpaceNd';
  const blocks = integers(op, 'blockShape', blockShape, 1);
  const cut = pairsOf(op, 'crops', crops, blocks.length);
  if (tensorOf(op, x).ndim < blocks.length + 2) throw new ShapeError(op, `blocks ${show(blocks)} of ${show(x.shape)}`);
  const [images, channels, ...sizes] = x.shape;
  const batch = images / sizeOf(blocks);
  if (!Number.isInteger(batch)) throw new ShapeError(op, `${images} images are not blocks ${show(blocks)}`);
  return within(op, () => {
    const y = F.reshape(x, [...blocks, batch, channels, ...sizes]);
    const m = blocks.length;
    const order = [m, m + 1, ...blocks.flatMap((_, d) => [m + 2 + d, d]), ...sizes.slice(m).map((_, i) => 2 * m + 2 + i)];
    const whole = F.reshape(F.permute(y, order), [batch, channels, ...sizes.map((n, d) => n * (blocks[d] ?? 1))]);
    return cut.reduce((own, [before, behind], d) => F.slice(own, 2 + d, before, own.shape[2 + d] - behind), whole);
  });
}

/**
 * The largest element or the mean under each window, which may have gaps, per channel.
 * @param {Tensor} x [batch, channels, rows, columns] @param {number | readonly number[]} windowShape down and across @param {'max' | 'avg'} poolingType
 * @param {DilationOptions} [options] padding counts in means as 0 @returns {Tensor} [batch, channels, rows', columns']
 */
export function pool(x, windowShape, poolingType, options = {}) {
  const op = 'pool';
  if (poolingType !== 'max' && poolingType !== 'avg')
    throw new ArgumentError(op, `poolingType must be 'max' or 'avg', got ${shown(poolingType)}`);
  checkOptions(op, options, ['stride', 'padding', 'dilation']);
  checkImage(op, x, 2);
  if (!isFloat(x.dtype)) throw new ArgumentError(op, `takes f32, f16 or bf16, got ${x.dtype}; convert with .to('f32')`);
  const window = each(op, 'windowShape', windowShape, 1, 2);
  const channels = x.shape[1];
  const how = /** @type {import('./convolution.mjs').ConvolutionOptions} */ (options);
  return within(op, () => {
    if (poolingType === 'max') return dilation2d(x, F.zeros([channels, ...window]), options);
    const weight = F.full([channels, 1, ...window], 1 / sizeOf(window));
    const means = withoutAutocast(() => conv2d(toF32(x), weight, undefined, { ...how, groups: channels }));
    return F.to(means, x.dtype);
  });
}
/**
 * The largest x + filter under each window (grey dilation), per channel.
 * @param {Tensor} x [batch, channels, rows, columns] @param {Tensor} filter [channels, down, across] @param {DilationOptions} [options]
 * @returns {Tensor} [batch, channels, rows', columns']
 */
export function dilation2d(x, filter, options = {}) {
  const op = 'dilation2d';
  const { stride = 1, padding = 0, dilation = 1 } = checkOptions(op, options, ['stride', 'padding', 'dilation']);
  checkImage(op, x, 2);
  const [batch, channels, rows, columns] = x.shape;
  if (tensorOf(op, filter).ndim !== 3 || filter.shape[0] !== channels)
    throw new ShapeError(op, `the filter must be [${channels}, down, across], got ${show(filter.shape)}`);
  if (!isFloat(x.dtype)) throw new ArgumentError(op, `takes f32, f16 or bf16, got ${x.dtype}; convert with .to('f32')`);
  const window = filter.shape.slice(1);
  const [steps, around, apart] = [
    each(op, 'stride', stride, 1, 2),
    each(op, 'padding', padding, 0, 2),
    each(op, 'dilation', dilation, 1, 2),
  ];
  return within(op, () => {
    const own = pad(toF32(x), [around[1], around[1], around[0], around[0]], 'constant', -Infinity);
    const both = (/** @type {number[]} */ [a, b]) => /** @type {[number, number]} */ ([a, b]);
    const windows = unfold(own, both(window), { stride: both(steps), dilation: both(apart) });
    const sizes = [rows, columns].map((n, d) => Math.floor((n + 2 * around[d] - apart[d] * (window[d] - 1) - 1) / steps[d]) + 1);
    const parts = F.reshape(windows, [batch, channels, sizeOf(window), sizeOf(sizes)]);
    const sums = F.add(parts, F.reshape(toF32(filter), [channels, sizeOf(window), 1]));
    return F.to(F.reshape(F.amax(sums, 2), [batch, channels, ...sizes]), x.dtype);
  });
}

/** Grey of red, green and blue: 0.2989 r + 0.587 g + 0.114 b. @param {Tensor} x [..., 3, rows, columns] @returns {Tensor} [..., 1, rows, columns] */
export function rgbToGrayscale(x) {
  const op = 'rgbToGrayscale';
  if (tensorOf(op, x).ndim < 3 || x.shape[x.ndim - 3] !== 3)
    throw new ShapeError(op, `expected images [..., 3, rows, columns], got ${show(x.shape)}`);
  return within(op, () => {
    const channel = (/** @type {number} */ c) => F.slice(x, -3, c, c + 1);
    return F.add(F.add(F.mul(channel(0), 0.2989), F.mul(channel(1), 0.587)), F.mul(channel(2), 0.114));
  });
}

// ---- boxes

/**
 * Parts of images in another size. A box is [y1, x1, y2, x2] of an image whose corners' centres are at 0 and 1; where y2 < y1 it is upside down.
 * @param {Tensor} x [batch, channels, rows, columns] @param {Tensor} boxes [n, 4] @param {Tensor} boxInd i32 [n]: the image of each
 * @param {readonly [number, number]} cropSize [rows', columns'] @param {CropOptions} [options]
 * @returns {Tensor} f32 [n, channels, rows', columns']
 */
export function cropAndResize(x, boxes, boxInd, cropSize, options = {}) {
  const op = 'cropAndResize';
  const { method = 'bilinear', extrapolationValue = 0 } = checkOptions(op, options, ['method', 'extrapolationValue']);
  checkImage(op, x, 2);
  checkFinite(op, 'extrapolationValue', extrapolationValue);
  if (method !== 'bilinear' && method !== 'nearest')
    throw new ArgumentError(op, `method must be 'bilinear' or 'nearest', got ${shown(method)}`);
  if (tensorOf(op, boxes).ndim !== 2 || boxes.shape[1] !== 4) throw new ShapeError(op, `boxes must be [n, 4], got ${show(boxes.shape)}`);
  if (show(indexOf(op, boxInd).shape) !== show([boxes.shape[0]]))
    throw new ShapeError(op, `boxInd must be [${boxes.shape[0]}], got ${show(boxInd.shape)}`);
  const sizes = each(op, 'cropSize', cropSize, 1, 2);
  return within(op, () => {
    const corners = F.split(toF32(boxes), 1, 1);
    // Places along each direction, [n, size]: of one the middle.
    const [down, across] = [0, 1].map((d) => {
      const [from, to] = [corners[d], corners[d + 2]];
      if (sizes[d] === 1) return F.div(F.add(from, to), 2);
      return F.add(from, F.mul(F.sub(to, from), F.reshape(linspace(0, 1, sizes[d]), [1, sizes[d]])));
    });
    const shape = [boxes.shape[0], ...sizes];
    const [y, z] = [F.expand(F.unsqueeze(down, 2), shape), F.expand(F.unsqueeze(across, 1), shape)];
    // As TensorFlow, the nearest of two equally near elements is the later one, `gridSample`'s the even one.
    const whole = (/** @type {Tensor} */ place, /** @type {number} */ last) =>
      method === 'nearest' && last > 0 ? F.div(floor(F.add(F.mul(place, last), 0.5)), last) : place;
    const grid = F.sub(F.mul(F.stack([whole(z, x.shape[3] - 1), whole(y, x.shape[2] - 1)], -1), 2), 1);
    const own = indexSelect(toF32(x), 0, boxInd);
    const sampled = gridSample(own, grid, { mode: method, paddingMode: 'border', alignCorners: true });
    const outside = (/** @type {Tensor} */ place) => logicalOr(F.lt(place, 0), F.gt(place, 1));
    return F.where(F.unsqueeze(logicalOr(outside(y), outside(z)), 1), extrapolationValue, sampled);
  });
}

/** @param {string} op @param {Tensor} boxes */
function checkBoxes(op, boxes) {
  if (tensorOf(op, boxes).ndim !== 2 || boxes.shape[1] !== 4) throw new ShapeError(op, `boxes must be [n, 4], got ${show(boxes.shape)}`);
}
/** The areas of boxes [x1, y1, x2, y2]. @param {Tensor} boxes [n, 4] @returns {Tensor} [n] */
export function boxArea(boxes) {
  checkBoxes('boxArea', boxes);
  return within('boxArea', () => {
    const sides = F.sub(F.slice(boxes, 1, 2), F.slice(boxes, 1, 0, 2));
    return F.mul(select(sides, 1, 0), select(sides, 1, 1));
  });
}
/** The intersection over the union of each two boxes [x1, y1, x2, y2]. @param {Tensor} a [n, 4] @param {Tensor} b [m, 4] @returns {Tensor} [n, m] */
export function boxIou(a, b) {
  for (const boxes of [a, b]) checkBoxes('boxIou', boxes);
  return within('boxIou', () => {
    const [own, other] = [F.unsqueeze(toF32(a), 1), F.unsqueeze(toF32(b), 0)];
    const low = F.maximum(F.slice(own, 2, 0, 2), F.slice(other, 2, 0, 2));
    const high = F.minimum(F.slice(own, 2, 2), F.slice(other, 2, 2));
    const sides = F.maximum(F.sub(high, low), 0);
    const shared = F.mul(select(sides, 2, 0), select(sides, 2, 1));
    return F.div(shared, F.sub(F.add(F.unsqueeze(boxArea(toF32(a)), 1), boxArea(toF32(b))), shared));
  });
}
/**
 * The boxes that stay when, from the highest score on, each removes those that overlap it by more than a share (non-maximum suppression). The
 * host chooses, so it waits for the boxes; a compiled function cannot.
 * @param {Tensor} boxes [n, 4]: [x1, y1, x2, y2] @param {Tensor} scores [n] @param {number} iouThreshold the largest intersection over union that stays
 * @param {SuppressionOptions} [options]
 * @returns {Promise<Tensor>} i32 [kept], by falling scores
 */
export function nms(boxes, scores, iouThreshold, options = {}) {
  const op = 'nms';
  const { maxOutputSize = Infinity, scoreThreshold = -Infinity } = checkOptions(op, options, ['maxOutputSize', 'scoreThreshold']);
  if (maxOutputSize !== Infinity) positive(op, 'maxOutputSize', maxOutputSize);
  if (typeof scoreThreshold !== 'number') throw new ArgumentError(op, `scoreThreshold must be a number, got ${shown(scoreThreshold)}`);
  checkFinite(op, 'iouThreshold', iouThreshold);
  checkBoxes(op, boxes);
  if (show(tensorOf(op, scores).shape) !== show([boxes.shape[0]]))
    throw new ShapeError(op, `scores must be [${boxes.shape[0]}], got ${show(scores.shape)}`);
  if (isRecording()) throw new UsageError(op, 'the size of the result depends on elements: call it outside of the compiled function');
  const read = within(op, () => [toF32(boxes).toArray(), toF32(scores).toArray()]);
  return (async () => {
    const [corners, values] = (await Promise.all(read)).map((list) => Array.from(list, Number));
    const order = values.map((_, i) => i).filter((i) => values[i] > scoreThreshold);
    order.sort((a, b) => values[b] - values[a] || a - b);
    const area = (/** @type {number} */ i) => (corners[4 * i + 2] - corners[4 * i]) * (corners[4 * i + 3] - corners[4 * i + 1]);
    const side = (/** @type {number} */ i, /** @type {number} */ k, /** @type {number} */ d) =>
      Math.max(0, Math.min(corners[4 * i + 2 + d], corners[4 * k + 2 + d]) - Math.max(corners[4 * i + d], corners[4 * k + d]));
    /** @type {number[]} */
    const kept = [];
    for (const i of order) {
      if (kept.length >= maxOutputSize) break;
      const overlaps = kept.some((k) => {
        const shared = side(i, k, 0) * side(i, k, 1);
        return shared / (area(i) + area(k) - shared) > iouThreshold;
      });
      if (!overlaps) kept.push(i);
    }
    return within(op, () =>
      kept.length > 0 ? uploaded(Int32Array.from(kept), denseLayout([kept.length], 'i32')) : F.zeros([0], { dtype: 'i32' }),
    );
  })();
}

// ---- elements by coordinates

/** The numbers of the parts that coordinates name, and the sizes of the parts. @param {string} op @param {Tensor} indices [..., k] @param {readonly number[]} shape */
function numbersOf(op, indices, shape) {
  const own = indexOf(op, indices);
  const k = own.shape.at(-1) ?? 0;
  if (own.ndim === 0 || k < 1 || k > shape.length) throw new ShapeError(op, `coordinates ${show(own.shape)} for ${show(shape)}`);
  const [outer, inner] = [shape.slice(0, k), shape.slice(k)];
  const i32 = F.to(own, 'i32');
  // A place outside of the shape is none of the whole.
  let numbers = F.zeros(own.shape.slice(0, -1), { dtype: 'i32' });
  let isInside = F.ones(own.shape.slice(0, -1), { dtype: 'bool' });
  for (const [d, size] of outer.entries()) {
    const at = select(i32, -1, d);
    isInside = logicalAnd(isInside, logicalAnd(F.ge(at, 0), F.lt(at, size)));
    numbers = F.add(F.mul(numbers, size), at);
  }
  return { numbers: F.where(isInside, numbers, sizeOf(outer)), count: sizeOf(outer), inner };
}
/** The elements, or parts, at coordinates; zeros of those outside. @param {Tensor} x @param {Tensor} indices i32 [..., k], k at most x's dimensions @returns {Tensor} [..., and the sizes behind the k first] */
export function gatherNd(x, indices) {
  tensorOf('gatherNd', x);
  return within('gatherNd', () => {
    const { numbers, count, inner } = numbersOf('gatherNd', indices, x.shape);
    const rows = indexSelect(F.reshape(x, [count, sizeOf(inner)]), 0, F.reshape(numbers, [-1]));
    return F.reshape(rows, [...numbers.shape, ...inner]);
  });
}
/** @param {string} op @param {Tensor} start @param {Tensor} indices @param {Tensor} updates @param {boolean} adds */
function putNd(op, start, indices, updates, adds) {
  tensorOf(op, updates);
  return within(op, () => {
    const { numbers, count, inner } = numbersOf(op, indices, start.shape);
    const wanted = [...numbers.shape, ...inner];
    if (show(updates.shape) !== show(wanted)) throw new ShapeError(op, `updates must be ${show(wanted)}, got ${show(updates.shape)}`);
    const width = sizeOf(inner);
    const index = F.expand(F.reshape(numbers, [-1, 1]), [numbers.size, width]).contiguous();
    const rows = (adds ? scatterAdd : scatter)(F.reshape(start, [count, width]), 0, index, F.reshape(updates, [-1, width]));
    return F.reshape(rows, start.shape);
  });
}
/** Zeros with elements, or parts, at coordinates; several at one place are added, one outside is dropped. @param {Tensor} indices i32 [..., k] @param {Tensor} updates f32, f16 or bf16 [..., and the sizes behind the k first] @param {readonly number[]} shape @returns {Tensor} */
export function scatterNd(indices, updates, shape) {
  const sizes = checkShape('scatterNd', shape);
  const { dtype } = tensorOf('scatterNd', updates);
  tensorOf('scatterNd', indices);
  return putNd(
    'scatterNd',
    within('scatterNd', () => F.zeros(sizes, { dtype })),
    indices,
    updates,
    true,
  );
}
/** A copy of x with elements, or parts, at coordinates in place of its own; of several at one place the last. @param {Tensor} x @param {Tensor} indices i32 [..., k] @param {Tensor} updates of x's type, [..., and the sizes behind the k first] @returns {Tensor} */
export const tensorScatterUpdate = (x, indices, updates) =>
  putNd('tensorScatterUpdate', tensorOf('tensorScatterUpdate', x), indices, updates, false);

/** A tensor of one value but for elements at coordinates; of several at one place the last. @param {Tensor} indices i32 [n, dimensions], or [n] of a vector @param {Tensor} values [n] @param {readonly number[]} shape @param {number} [defaultValue] 0 when left out @returns {Tensor} */
export function sparseToDense(indices, values, shape, defaultValue = 0) {
  const op = 'sparseToDense';
  const sizes = checkShape(op, shape);
  checkFinite(op, 'defaultValue', defaultValue);
  const { dtype } = tensorOf(op, values);
  const own = tensorOf(op, indices).ndim === 1 ? within(op, () => F.unsqueeze(indices, 1)) : indices;
  return putNd(
    op,
    within(op, () => F.full(sizes, defaultValue, { dtype })),
    own,
    values,
    false,
  );
}
/** x, after a check of its shape. @param {Tensor} x @param {readonly (number | null)[]} shape null for any size @returns {Tensor} */
export function ensureShape(x, shape) {
  const own = tensorOf('ensureShape', x);
  if (!Array.isArray(shape) || shape.some((n) => n !== null && !(Number.isInteger(n) && n >= 0)))
    throw new ArgumentError('ensureShape', `the shape must be an array of sizes and nulls, got ${shown(shape)}`);
  if (shape.length !== own.ndim || shape.some((n, d) => n !== null && n !== own.shape[d]))
    throw new ShapeError('ensureShape', `expected ${shown(shape)}, got ${show(own.shape)}`);
  return own;
}
/**
 * A convolution of each channel, then one of 1 × 1 across channels (Chollet 2017).
 * @param {Tensor} x [batch, channels, rows, columns] @param {Tensor} depthwise [channels · multiplier, 1, down, across]
 * @param {Tensor} pointwise [outputs, channels · multiplier, 1, 1] @param {Tensor} [bias] [outputs]
 * @param {import('./convolution.mjs').ConvolutionOptions} [options] of the first, without groups
 * @returns {Tensor} [batch, outputs, rows', columns']
 */
export function separableConv2d(x, depthwise, pointwise, bias, options = {}) {
  const op = 'separableConv2d';
  checkImage(op, x, 2);
  const how = checkOptions(op, options, ['stride', 'padding', 'dilation']);
  tensorOf(op, depthwise);
  tensorOf(op, pointwise);
  return within(op, () => conv2d(conv2d(x, depthwise, undefined, { ...how, groups: x.shape[1] }), pointwise, bias));
}

/** Sums of rows by the numbers of their segments; one outside of 0 … numSegments - 1 is dropped. @param {Tensor} x f32, f16 or bf16 [n, ...] @param {Tensor} ids i32 [n] @param {number} numSegments @returns {Tensor} [numSegments, ...] */
export function segmentSum(x, ids, numSegments) {
  const op = 'segmentSum';
  if (tensorOf(op, x).ndim === 0 || show(tensorOf(op, ids).shape) !== show(x.shape.slice(0, 1)))
    throw new ShapeError(op, `expected rows [n, ...] and their segments [n], got ${show(x.shape)} and ${show(ids.shape)}`);
  positive(op, 'numSegments', numSegments);
  return within(op, () => {
    const own = indexOf(op, ids);
    const safe = F.where(logicalAnd(F.ge(own, 0), F.lt(own, numSegments)), own, numSegments);
    const sizes = x.shape.slice(1);
    const index = F.expand(F.reshape(safe, [-1, 1]), [x.shape[0], sizeOf(sizes)]).contiguous();
    const rows = scatterAdd(F.zeros([numSegments, sizeOf(sizes)], { dtype: x.dtype }), 0, index, F.reshape(x, [x.shape[0], -1]));
    return F.reshape(rows, [numSegments, ...sizes]);
  });
}

/** Whether a target's prediction is among the k largest; of equal ones all are. @param {Tensor} predictions [..., classes] @param {Tensor} targets i32 [...] @param {number} k @returns {Tensor} bool [...] */
export function inTopK(predictions, targets, k) {
  const op = 'inTopK';
  const { shape } = tensorOf(op, predictions);
  if (shape.length === 0 || show(indexOf(op, targets).shape) !== show(shape.slice(0, -1)))
    throw new ShapeError(op, `expected predictions [..., classes] and targets [...], got ${show(shape)} and ${show(targets.shape)}`);
  positive(op, 'k', k);
  return within(op, () => {
    const own = toF32(predictions.detach());
    const flat = F.reshape(own, [-1, shape.at(-1) ?? 1]);
    const at = F.reshape(F.to(targets, 'i32'), [-1]);
    const classes = F.reshape(linspace(0, flat.shape[1] - 1, flat.shape[1], { dtype: 'i32' }), [1, -1]);
    const isTarget = F.eq(F.unsqueeze(at, 1), classes);
    const value = F.sum(F.where(isTarget, flat, 0), 1, true);
    const larger = F.sum(F.to(F.gt(flat, value), 'f32'), 1);
    const isThere = logicalAnd(F.ge(at, 0), F.lt(at, flat.shape[1]));
    return F.reshape(logicalAnd(F.lt(larger, k), isThere), targets.shape);
  });
}

/** The elements of a vector that are not in another, and where they are. It waits for their number. @param {Tensor} x [n] @param {Tensor} y [m] @returns {Promise<[values: Tensor, indices: Tensor]>} both [kept], the second i32 */
export function setdiff1d(x, y) {
  const op = 'setdiff1d';
  for (const v of [x, y]) if (tensorOf(op, v).ndim !== 1) throw new ShapeError(op, `expected a vector, got ${show(v.shape)}`);
  if (isRecording()) throw new UsageError(op, 'the size of the result depends on elements: use the mask of F.isin in a compiled function');
  const mask = within(op, () => isin(x, y, { invert: true }));
  return (async () => {
    const [values, places] = [await maskedSelect(x, mask), await nonzero(mask)];
    return [values, F.reshape(places, [-1])];
  })();
}

/** Part of a tensor by first and last elements and steps, as Python's x[a:b:c, …]; a step below 0 goes backwards. @param {Tensor} x @param {readonly number[]} begin of the first dimensions @param {readonly number[]} end excluded @param {readonly number[]} [strides] 1 when left out @returns {Tensor} */
export function stridedSlice(x, begin, end, strides) {
  const op = 'stridedSlice';
  tensorOf(op, x);
  const [from, to] = [integers(op, 'begin', begin), integers(op, 'end', end)];
  const steps = strides === undefined ? from.map(() => 1) : integers(op, 'strides', strides);
  if (from.length > x.ndim || to.length !== from.length || steps.length !== from.length)
    throw new ShapeError(
      op,
      `begin, end and strides must be as many, at most ${x.ndim}, got ${show(from)}, ${show(to)} and ${show(steps)}`,
    );
  if (steps.includes(0)) throw new ArgumentError(op, `a stride must not be 0, got ${show(steps)}`);
  return within(op, () =>
    from.reduce((own, start, d) => {
      const n = own.shape[d];
      const [step, wrap] = [steps[d], (/** @type {number} */ i) => (i < 0 ? i + n : i)];
      if (step > 0)
        return F.slice(
          own,
          d,
          Math.min(Math.max(wrap(start), 0), n),
          Math.max(Math.min(Math.max(wrap(to[d]), 0), n), Math.min(Math.max(wrap(start), 0), n)),
          step,
        );
      const [first, last] = [Math.min(wrap(start), n - 1), Math.max(wrap(to[d]), -1)];
      // From the other end on.
      return F.slice(flip(own, d), d, n - 1 - first, Math.max(n - 1 - last, n - 1 - first), -step);
    }, x),
  );
}

/** The sum of tensors of one shape. @param {Tensor[]} tensors @returns {Tensor} */
export function addN(tensors) {
  if (!Array.isArray(tensors) || tensors.length === 0) throw new ArgumentError('addN', 'expected an array of tensors');
  const shape = broadcastShapes('addN', ...tensors.map((x) => tensorOf('addN', x).shape));
  if (tensors.some((x) => show(x.shape) !== show(shape))) throw new ShapeError('addN', 'the tensors must have one shape');
  return within('addN', () => tensors.slice(1).reduce((sum, x) => F.add(sum, x), tensors.length > 1 ? tensors[0] : F.clone(tensors[0])));
}
