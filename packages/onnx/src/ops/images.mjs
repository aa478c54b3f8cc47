// Images of other sizes, and samples between pixels. Where a position does not depend on elements, the host computes it.

import { limited, take } from '../arrays.mjs';
import { isFloat, sizeOf } from '../types.mjs';
import { grid } from './convolution.mjs';
import { Value, axesOf, cast, f, same, uploaded } from './lib.mjs';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** @typedef {import('../definitions.mjs').Computed} Computed */

/** The weight of cubic convolution at a distance (Keys 1981). @param {number} distance @param {number} a */
function cubicAt(distance, a) {
  const x = Math.abs(distance);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

/**
 * For each position of a resized dimension, where it is in the original one. The size after resizing is not rounded in these formulas.
 * @param {number} size @param {number} out @param {number} scale @param {string} mode @param {readonly [number, number]} roi
 */
function positionsOf(size, out, scale, mode, [start, end]) {
  const resized = scale * size;
  return Array.from({ length: limited(out) }, (_, i) => {
    switch (mode) {
      case 'align_corners':
        return resized === 1 ? 0 : (i * (size - 1)) / (resized - 1);
      case 'asymmetric':
        return i / scale;
      case 'pytorch_half_pixel':
        return resized === 1 ? -0.5 : (i + 0.5) / scale - 0.5;
      case 'tf_half_pixel_for_nn':
        return (i + 0.5) / scale;
      case 'tf_crop_and_resize':
        return resized > 1 ? start * (size - 1) + (i * (end - start) * (size - 1)) / (resized - 1) : 0.5 * (start + end) * (size - 1);
      case 'half_pixel_symmetric': {
        const adjustment = out / resized;
        return (size / 2) * (1 - adjustment) + (i + 0.5) / scale - 0.5;
      }
      default:
        return (i + 0.5) / scale - 0.5;
    }
  });
}

/** @param {number} x @param {string} mode */
function nearest(x, mode) {
  if (mode === 'floor') return Math.floor(x);
  if (mode === 'ceil') return Math.ceil(x);
  return mode === 'round_prefer_ceil' ? Math.floor(x + 0.5) : Math.ceil(x - 0.5);
}

/**
 * What each element of a resized dimension is made of: the weights of all of the original's.
 * @param {readonly number[]} positions @param {number} size @param {number} scale
 * @param {{ mode: string, cubic: number, antialias: boolean, excludeOutside: boolean }} options
 * @returns {number[]} [positions, size]
 */
function weightsOf(positions, size, scale, { mode, cubic: a, antialias, excludeOutside }) {
  const weights = new Array(limited(positions.length * size)).fill(0);
  const stretch = antialias && scale < 1 ? scale : 1;
  const reach = (mode === 'linear' ? 1 : 2) / stretch;
  for (const [row, x] of positions.entries()) {
    const from = Math.floor(x - reach) + 1;
    const own = [];
    for (let at = from; at < x + reach; at++) {
      const distance = (at - x) * stretch;
      const weight = mode === 'linear' ? Math.max(0, 1 - Math.abs(distance)) : cubicAt(distance, a);
      own.push({ at, weight: excludeOutside && (at < 0 || at >= size) ? 0 : weight });
    }
    const sum = own.reduce((total, { weight }) => total + weight, 0);
    for (const { at, weight } of own) {
      const inside = Math.min(size - 1, Math.max(0, at));
      weights[row * size + inside] += excludeOutside || stretch < 1 ? weight / sum : weight;
    }
  }
  return weights;
}

/** Multiplies one dimension by a matrix. @param {Tensor} x @param {number} d @param {Tensor} matrix [out, in] @returns {Tensor} */
function along(x, d, matrix) {
  const moved = f.transpose(x, d, -1);
  return f.transpose(f.matmul(moved, f.transpose(matrix, 0, 1)), d, -1);
}

/** @type {Computed} */
const resize = {
  host: [1, 2, 3],
  run([x, roi, scaleInput, sizeInput], attributes, call) {
    // Opset 10 has scales only, and no choice of coordinates.
    if (call.node.op === 'Resize' && call.opset < 11) return upsample.run([x, roi], attributes, call);
    const {
      mode = 'nearest',
      coordinate_transformation_mode: coordinates = 'half_pixel',
      nearest_mode: rounding = 'round_prefer_floor',
    } = attributes;
    const { cubic_coeff_a: a = -0.75, exclude_outside: exclude = 0, extrapolation_value: outside = 0, antialias = 0 } = attributes;
    const { keep_aspect_ratio_policy: policy = 'stretch' } = attributes;
    const dims = attributes.axes ? axesOf(attributes.axes, x.rank) : x.shape.map((_, d) => d);
    let scales = scaleInput?.size ? scaleInput.numbers : undefined;
    let sizes = sizeInput?.size ? sizeInput.numbers : undefined;
    const own = dims.map((d) => x.shape[d]);
    if (sizes && policy !== 'stretch') {
      const ratios = sizes.map((size, i) => size / own[i]);
      const ratio = policy === 'not_larger' ? Math.min(...ratios) : Math.max(...ratios);
      scales = ratios.map(() => ratio);
      sizes = own.map((size) => Math.floor(size * ratio + 0.5));
    }
    /** @type {[number, number][]} */
    const ranges = dims.map((_, i) => (roi?.size ? [roi.numbers[i], roi.numbers[i + dims.length]] : [0, 1]));
    const isCrop = coordinates === 'tf_crop_and_resize';
    let y = x;
    /** Where all dimensions are inside of the image. @type {Tensor | undefined} */
    let inside;
    for (const [i, d] of dims.entries()) {
      const size = x.shape[d];
      const length = isCrop ? ranges[i][1] - ranges[i][0] : 1;
      const scale = scales?.[i] ?? /** @type {number[]} */ (sizes)[i] / size;
      const out = sizes?.[i] ?? Math.floor(size * length * scale);
      if (out === size && scale === 1 && !isCrop) continue;
      const positions = positionsOf(size, out, scale, coordinates, ranges[i]);
      if (mode === 'nearest') {
        // What onnxruntime does in opset 10, which does not say it.
        const own = rounding === 'inwards' ? (scale < 1 ? 'ceil' : 'floor') : rounding;
        const indices = positions.map((each) => Math.min(size - 1, Math.max(0, nearest(each, own))));
        y = take(y, d, indices);
      } else {
        const weights = weightsOf(positions, size, scale, {
          mode,
          cubic: a,
          antialias: Boolean(antialias),
          excludeOutside: Boolean(exclude),
        });
        y = Value.of(x.type, along(f.to(y.tensor, 'f32'), d, uploaded(weights, [out, size])));
      }
      if (!isCrop) continue;
      const flags = positions.map((each) => Number(each >= 0 && each <= size - 1));
      const flag = uploaded(
        flags,
        x.shape.map((_, e) => (e === d ? out : 1)),
      );
      inside = inside ? f.mul(inside, flag) : flag;
    }
    if (!inside) return mode === 'nearest' ? y : rounded(x.type, y.tensor);
    const z = f.to(y.tensor, 'f32');
    return rounded(x.type, f.where(f.gt(inside, 0), z, f.full([], outside)));
  },
};

/** f32 as a type; an integer type is rounded to and limited. @param {import('../types.mjs').Type} type @param {Tensor} y @returns {Value} */
const rounded = (type, y) =>
  isFloat(type) ? same(type, y) : cast(Value.of('float', f.clamp(f.round(y), ...(type === 'uint8' ? [0, 255] : [-128, 127]))), type);

/** @type {Computed} */
const upsample = {
  host: [1],
  run: ([x, scales], { mode = 'nearest', scales: attribute }, call) =>
    resize.run(
      /** @type {Value[]} */ ([x, undefined, attribute ? Value.host('float', [attribute.length], attribute) : scales]),
      /** @type {import('../definitions.mjs').Attributes} */ ({
        mode,
        coordinate_transformation_mode: 'asymmetric',
        nearest_mode: 'inwards',
      }),
      { ...call, opset: 11 },
    ),
};

/** Neighbours of positions and their weights. @param {Tensor} x positions @param {string} mode @returns {{ index: Tensor, weight: Tensor | undefined }[]} index in f32 */
function neighbours(x, mode) {
  if (mode === 'nearest') return [{ index: f.round(x), weight: undefined }];
  const low = f.floor(x);
  const t = f.sub(x, low);
  if (mode === 'cubic') {
    // The polynomials of `cubic` in t, by Horner's rule.
    const a = -0.75;
    const poly = (/** @type {number[]} */ [c3, c2, c1, c0]) => f.add(f.mul(f.add(f.mul(f.add(f.mul(t, c3), c2), t), c1), t), c0);
    const four = [
      [a, -2 * a, a, 0],
      [a + 2, -(a + 3), 0, 1],
      [-(a + 2), 2 * a + 3, -a, 0],
      [-a, a, 0, 0],
    ];
    return four.map((each, i) => ({ index: f.add(low, i - 1), weight: poly(each) }));
  }
  return [
    { index: low, weight: f.sub(f.full([], 1), t) },
    { index: f.add(low, 1), weight: t },
  ];
}

/**
 * Indices that are brought back into a dimension, and where they were inside.
 * @param {Tensor} index f32 @param {number} size @param {string} padding @param {boolean} corners whether the reflection is about centres of pixels
 */
function contained(index, size, padding, corners) {
  if (padding === 'reflection') {
    const [low, span] = corners ? [0, size - 1] : [-0.5, size];
    if (span === 0) return { index: f.mul(index, 0), inside: undefined };
    const x = f.abs(f.sub(index, low));
    const turns = f.floor(f.div(x, span));
    const rest = f.sub(x, f.mul(turns, span));
    const odd = f.sub(turns, f.mul(f.floor(f.div(turns, 2)), 2));
    const back = f.add(f.where(f.gt(odd, 0.5), f.sub(f.full([], span), rest), rest), low);
    return { index: f.clamp(back, 0, size - 1), inside: undefined };
  }
  const limited = f.clamp(index, 0, size - 1);
  return { index: limited, inside: padding === 'zeros' ? f.eq(limited, index) : undefined };
}

/**
 * Samples of images between their pixels.
 * @param {Tensor} x f32 [batch, channels, ...sizes] @param {Tensor[]} positions for each dimension, f32 [batch, samples]
 * @param {{ mode: string, padding: string, corners: boolean }} options
 * @returns {Tensor} [batch, channels, samples]
 */
export function sampled(x, positions, { mode, padding, corners }) {
  const [batch, channels, ...sizes] = x.shape;
  const samples = positions[0].shape[1];
  const flat = f.reshape(x, [batch, channels, sizeOf(sizes)]);
  const each = positions.map((position, d) =>
    neighbours(position, mode).map(({ index, weight }) => ({ weight, ...contained(index, sizes[d], padding, corners) })),
  );
  /** @type {Tensor | undefined} */
  let sum;
  for (const choice of grid(each.map(({ length }) => length))) {
    const parts = choice.map((k, d) => each[d][k]);
    const at = parts.map(({ index }) => index).reduce((all, index, d) => f.add(f.mul(all, sizes[d]), index));
    const index = f.expand(f.reshape(f.to(at, 'i32'), [batch, 1, samples]), [batch, channels, samples]).contiguous();
    let y = f.gather(flat, 2, index);
    for (const { weight, inside } of parts) {
      if (weight) y = f.mul(y, f.reshape(weight, [batch, 1, samples]));
      if (inside) y = f.where(f.reshape(inside, [batch, 1, samples]), y, f.full([], 0));
    }
    sum = sum ? f.add(sum, y) : y;
  }
  return /** @type {Tensor} */ (sum);
}

/** @type {Computed} */
const gridSample = {
  run([x, where], { mode = 'linear', padding_mode: padding = 'zeros', align_corners: corners = 0 }) {
    const [batch, channels, ...sizes] = x.shape;
    const outs = where.shape.slice(1, -1);
    const rank = sizes.length;
    const positions = sizes.map((size, d) => {
      // The last coordinate is that of the first spatial dimension.
      const g = f.reshape(f.slice(f.to(where.tensor, 'f32'), where.rank - 1, rank - 1 - d, rank - d), [batch, sizeOf(outs)]);
      return corners ? f.mul(f.add(g, 1), (size - 1) / 2) : f.div(f.sub(f.mul(f.add(g, 1), size), 1), 2);
    });
    const kind = { bilinear: 'linear', bicubic: 'cubic' }[/** @type {string} */ (mode)] ?? mode;
    const y = sampled(f.to(x.tensor, 'f32'), positions, { mode: kind, padding, corners: Boolean(corners) });
    return same(x.type, f.reshape(y, [batch, channels, ...outs]));
  },
};

/** @type {Computed} */
const affineGrid = {
  host: [1],
  run([theta, size], { align_corners: corners = 0 }) {
    const [batch, , ...sizes] = size.numbers;
    const axis = (/** @type {number} */ n) =>
      Array.from({ length: n }, (_, i) => (corners ? (n === 1 ? 0 : (2 * i) / (n - 1) - 1) : (2 * i + 1) / n - 1));
    const axes = sizes.map(axis);
    const points = grid(sizes).flatMap((at) => [...at.map((i, d) => axes[d][i]).reverse(), 1]);
    const all = uploaded(points, [sizeOf(sizes), sizes.length + 1]);
    return same(theta.type, f.reshape(f.matmul(all, f.transpose(f.to(theta.tensor, 'f32'), 1, 2)), [batch, ...sizes, sizes.length]));
  },
};

/** @type {Computed} */
const deformConv = {
  run([x, weight, offset, bias, mask], attributes) {
    const [batch, channels, ...sizes] = x.shape;
    const [outputs, , ...kernel] = weight.shape;
    const rank = sizes.length;
    const { strides = kernel.map(() => 1), dilations = kernel.map(() => 1), pads = kernel.flatMap(() => [0, 0]) } = attributes;
    const { group = 1, offset_group: groups = 1 } = attributes;
    const outs = offset.shape.slice(2);
    const [window, count] = [sizeOf(kernel), sizeOf(outs)];
    const moves = f.reshape(f.to(offset.tensor, 'f32'), [batch, groups, window, rank, count]);
    const positions = sizes.map((_, d) => {
      const base = grid(kernel).flatMap((k) => grid(outs).map((at) => at[d] * strides[d] + k[d] * dilations[d] - pads[d]));
      const own = f.reshape(f.slice(moves, 3, d, d + 1), [batch, groups, window, count]);
      return f.reshape(f.add(own, uploaded(base, [1, 1, window, count])), [batch * groups, window * count]);
    });
    const images = f.reshape(f.to(x.tensor, 'f32'), [batch * groups, channels / groups, ...sizes]);
    let columns = f.reshape(sampled(images, positions, { mode: 'linear', padding: 'zeros', corners: true }), [
      batch,
      groups,
      channels / groups,
      window,
      count,
    ]);
    if (mask) columns = f.mul(columns, f.reshape(mask.tensor, [batch, groups, 1, window, count]));
    const inner = (channels / group) * window;
    const y = f.matmul(f.reshape(weight.tensor, [group, outputs / group, inner]), f.reshape(columns, [batch, group, inner, count]));
    const whole = f.reshape(y, [batch, outputs, count]);
    return same(x.type, f.reshape(bias ? f.add(whole, f.reshape(bias.tensor, [1, outputs, 1])) : whole, [batch, outputs, ...outs]));
  },
};

/** Elements up to which corners of regions are in memory at once. */
const MAX_CORNERS = 2 ** 24;

/** The two neighbours of a place along an axis, and the weight of the second. @param {number} place @param {number} size */
function cornersAt(place, size) {
  const at = Math.max(0, place);
  const low = Math.min(size - 1, Math.floor(at));
  return { low, high: Math.min(size - 1, low + 1), t: low === size - 1 ? 0 : at - low, isOutside: place < -1 || place > size };
}

/** @type {Computed} */
const roiAlign = {
  host: [1, 2],
  run([x, rois, batches], attributes, { opset }) {
    const {
      output_height: height = 1,
      output_width: width = 1,
      sampling_ratio: ratio = 0,
      spatial_scale: scale = 1,
      mode = 'avg',
    } = attributes;
    const shift =
      (attributes.coordinate_transformation_mode ?? (opset >= 16 ? 'half_pixel' : 'output_half_pixel')) === 'half_pixel' ? 0.5 : 0;
    const [batch, channels, rows, columns] = x.shape;
    const [count] = rois.shape;
    if (!(height >= 1 && width >= 1 && ratio >= 0))
      throw new RangeError(`output_height = ${height}, output_width = ${width}, sampling_ratio = ${ratio}: expected at least 1, 1 and 0`);
    // A detector may find nothing.
    if (count === 0) return same(x.type, f.zeros([0, channels, height, width]));
    const [corners, images] = [rois.numbers, batches.numbers];
    const beyond = images.find((image) => !(image >= 0 && image < batch));
    if (beyond !== undefined) throw new RangeError(`a region is of image ${beyond}, and there are ${batch}`);
    const regions = images.map((image, r) => {
      const [x1, y1, x2, y2] = corners.slice(4 * r, 4 * r + 4).map((v) => v * scale - shift);
      const [w, h] = [x2 - x1, y2 - y1].map((size) => (shift ? size : Math.max(1, size)));
      return { image, x1, y1, w, h, down: ratio || Math.max(0, Math.ceil(h / height)), across: ratio || Math.max(0, Math.ceil(w / width)) };
    });
    // Those with as many samples, in one call.
    /** @type {Map<string, number[]>} */
    const groups = new Map();
    for (const [r, { down, across }] of regions.entries()) {
      const key = `${down} ${across}`;
      groups.set(key, groups.get(key) ?? []);
      groups.get(key)?.push(r);
    }
    const pixels = f.reshape(f.transpose(f.to(x.tensor, 'f32'), 0, 1), [channels, batch * rows * columns]);
    /** @param {number[]} members with as many samples @returns {Tensor} [channels, members · height · width] */
    const bins = (members) => {
      const { down, across } = regions[members[0]];
      const each = 4 * down * across;
      // A region without extent has no samples.
      if (each === 0) return f.zeros([channels, members.length * height * width]);
      const total = limited(members.length * height * width * each);
      const [indices, weights] = [new Int32Array(total), new Float32Array(total)];
      let at = 0;
      for (const { image, x1, y1, w, h } of members.map((r) => regions[r])) {
        const along = (/** @type {number} */ from, /** @type {number} */ step, /** @type {number} */ parts, /** @type {number} */ size) =>
          Array.from({ length: parts }, (_, k) => cornersAt(from + step * ((k + 0.5) / parts), size));
        const ys = Array.from({ length: height }, (_, i) => along(y1 + (h / height) * i, h / height, down, rows));
        const xs = Array.from({ length: width }, (_, j) => along(x1 + (w / width) * j, w / width, across, columns));
        const first = image * rows * columns;
        for (const i of ys)
          for (const j of xs)
            for (const a of i)
              for (const b of j) {
                const isOutside = a.isOutside || b.isOutside;
                for (const [row, column, weight] of [
                  [a.low, b.low, (1 - a.t) * (1 - b.t)],
                  [a.low, b.high, (1 - a.t) * b.t],
                  [a.high, b.low, a.t * (1 - b.t)],
                  [a.high, b.high, a.t * b.t],
                ]) {
                  indices[at] = isOutside ? first : first + row * columns + column;
                  weights[at++] = isOutside ? 0 : weight;
                }
              }
      }
      const one = [members.length * height * width, each];
      const found = f.reshape(f.indexSelect(pixels, 1, uploaded(indices, [total], 'i32')), [channels, ...one]);
      const weighted = f.mul(found, uploaded(weights, [1, ...one]));
      return mode === 'max' ? f.amax(weighted, 2) : f.div(f.sum(weighted, 2), down * across);
    };
    /** @type {number[]} */
    const order = [];
    const parts = [];
    for (const members of groups.values()) {
      const { down, across } = regions[members[0]];
      const most = Math.max(1, Math.floor(MAX_CORNERS / (height * width * Math.max(1, 4 * down * across) * channels)));
      for (let from = 0; from < members.length; from += most) parts.push(bins(members.slice(from, from + most)));
      order.push(...members);
    }
    const all = f.reshape(f.cat(parts, 1), [channels, count, height, width]);
    const places = new Int32Array(count);
    for (const [i, r] of order.entries()) places[r] = i;
    const inOrder = groups.size === 1 ? all : f.indexSelect(all, 1, uploaded(places, [count], 'i32'));
    return same(x.type, f.transpose(inOrder, 0, 1));
  },
};

/** @type {import('../definitions.mjs').Table} */
export const IMAGES = {
  AffineGrid: affineGrid,
  DeformConv: deformConv,
  GridSample: gridSample,
  Resize: resize,
  RoiAlign: roiAlign,
  Upsample: upsample,
};
