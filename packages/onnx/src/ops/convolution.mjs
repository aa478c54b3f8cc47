// Convolutions and pools of any number of dimensions.

import { limited } from '../arrays.mjs';
import { TYPES, sizeOf } from '../types.mjs';
import { Value, f, indexOf, same, uploaded } from './lib.mjs';
import { perChannel } from './network.mjs';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** @typedef {import('../definitions.mjs').Attributes} Attributes */
/** @typedef {import('../definitions.mjs').Computed} Computed */

/**
 * Where a window stands, by dimension.
 * @typedef {object} Window
 * @property {number[]} kernel @property {number[]} strides @property {number[]} dilations
 * @property {number[]} begin padding before the first element @property {number[]} end and behind the last one
 * @property {number[]} outs how many positions there are
 */

/**
 * @param {readonly number[]} sizes of the input @param {Attributes} attributes of a convolution or a pool @param {readonly number[]} kernel
 * @returns {Window}
 */
export function windowOf(sizes, attributes, kernel) {
  const ones = sizes.map(() => 1);
  const { strides = ones, dilations = ones, pads, auto_pad: auto = 'NOTSET', ceil_mode: ceil = 0 } = attributes;
  const reach = kernel.map((size, d) => (size - 1) * dilations[d] + 1);
  let begin = pads ? pads.slice(0, sizes.length) : ones.map(() => 0);
  let end = pads ? pads.slice(sizes.length) : ones.map(() => 0);
  if (auto.startsWith('SAME')) {
    const all = sizes.map((size, d) => Math.max(0, (Math.ceil(size / strides[d]) - 1) * strides[d] + reach[d] - size));
    const [less, more] = [all.map((total) => Math.floor(total / 2)), all.map((total) => Math.ceil(total / 2))];
    [begin, end] = auto === 'SAME_UPPER' ? [less, more] : [more, less];
  } else if (auto === 'VALID') [begin, end] = [ones.map(() => 0), ones.map(() => 0)];
  const outs = sizes.map((size, d) => {
    const steps = (size + begin[d] + end[d] - reach[d]) / strides[d];
    const count = (ceil ? Math.ceil(steps) : Math.floor(steps)) + 1;
    // The last window must begin within the image or the padding before it.
    return ceil && (count - 1) * strides[d] >= size + begin[d] ? count - 1 : count;
  });
  return { kernel: [...kernel], strides, dilations, begin, end, outs };
}

/** All positions of a grid, row by row. @param {readonly number[]} sizes @returns {number[][]} */
export const grid = (sizes) =>
  sizes.reduce((/** @type {number[][]} */ all, size) => all.flatMap((each) => Array.from({ length: size }, (_, i) => [...each, i])), [[]]);

/** Adds elements of one value around the spatial dimensions; negative counts take some away. @param {Tensor} x @param {readonly number[]} begin @param {readonly number[]} end @param {number} [fill] @returns {Tensor} */
export function padded(x, begin, end, fill = 0) {
  let y = x;
  for (const [i, before] of begin.entries()) {
    const d = x.ndim - begin.length + i;
    const [cutBefore, cutAfter] = [Math.max(0, -before), Math.max(0, -end[i])];
    if (cutBefore || cutAfter) y = f.slice(y, d, cutBefore, y.shape[d] - cutAfter);
    const band = (/** @type {number} */ count) => (count > 0 ? [f.full(y.shape.with(d, count), fill, { dtype: y.dtype })] : []);
    const parts = [...band(before), y, ...band(end[i])];
    if (parts.length > 1) y = f.cat(parts, d);
  }
  return y;
}

/** The elements under a window at all of its positions. @param {Tensor} x [batch, channels, ...] @param {Window} window @param {number} fill @returns {Tensor} [batch, channels, window, ...positions] */
function patches(x, { kernel, strides, dilations, begin, outs }, fill) {
  const sizes = x.shape.slice(2);
  // As many elements behind the last one as the last position reaches.
  const end = sizes.map((size, d) => Math.max(0, (outs[d] - 1) * strides[d] + (kernel[d] - 1) * dilations[d] + 1 - begin[d] - size));
  const whole = padded(x, begin, end, fill);
  const parts = grid(kernel).map((at) =>
    at.reduce((y, k, d) => f.slice(y, 2 + d, k * dilations[d], k * dilations[d] + (outs[d] - 1) * strides[d] + 1, strides[d]), whole),
  );
  return f.stack(parts, 2);
}

/**
 * A convolution of f32, f16 or bf16.
 * @param {Tensor} x [batch, channels, ...] @param {Tensor} weight [outputs, channels / group, ...kernel] @param {Tensor | undefined} bias
 * @param {Window} window @param {number} group
 * @returns {Tensor}
 */
export function convolved(x, weight, bias, window, group) {
  const { strides, dilations, begin, end, outs, kernel } = window;
  const rank = outs.length;
  if (rank <= 3 && x.size > 0) {
    const padding = begin.map((before, d) => /** @type {[number, number]} */ ([before, end[d]]));
    const options = { stride: single(strides), padding, dilation: single(dilations), groups: group };
    return f[/** @type {'conv2d'} */ (`conv${rank}d`)](x, weight, bias, options);
  }
  const [batch, channels] = x.shape;
  const [outputs] = weight.shape;
  const inner = (channels / group) * sizeOf(kernel);
  const columns = f.reshape(patches(x, window, 0), [batch, group, inner, sizeOf(outs)]);
  const y = f.matmul(f.reshape(weight, [group, outputs / group, inner]), columns);
  const whole = f.reshape(y, [batch, outputs, ...outs]);
  return bias ? f.add(whole, perChannel(bias, x.ndim)) : whole;
}

/** @type {Computed} */
const conv = {
  run([x, weight, bias], attributes) {
    const window = windowOf(x.shape.slice(2), attributes, weight.shape.slice(2));
    return same(x.type, convolved(x.tensor, weight.tensor, bias?.tensor, window, attributes.group ?? 1));
  },
};

/** Puts zeros between elements of the spatial dimensions. @param {Tensor} x @param {readonly number[]} strides @returns {Tensor} */
function spread(x, strides) {
  let y = x;
  for (const [i, stride] of strides.entries()) {
    const d = x.ndim - strides.length + i;
    if (stride === 1) continue;
    const size = y.shape[d];
    const one = f.unsqueeze(y, d + 1);
    const wide = f.cat([one, f.zeros(one.shape.with(d + 1, stride - 1), { dtype: y.dtype })], d + 1);
    y = f.slice(f.reshape(wide, y.shape.with(d, size * stride)), d, 0, (size - 1) * stride + 1);
  }
  return y;
}

/** @type {Computed} */
const convTranspose = {
  run([x, weight, bias], attributes) {
    const sizes = x.shape.slice(2);
    const kernel = weight.shape.slice(2);
    const none = sizes.map(() => 0);
    const ones = sizes.map(() => 1);
    const {
      strides = ones,
      dilations = ones,
      group = 1,
      output_padding: more = none,
      output_shape: shape,
      auto_pad: auto = 'NOTSET',
    } = attributes;
    const reach = kernel.map((size, d) => (size - 1) * dilations[d]);
    const same_ = auto.startsWith('SAME');
    const wanted = shape?.slice(-sizes.length) ?? (same_ ? sizes.map((size, d) => size * strides[d]) : undefined);
    let [begin, end] = attributes.pads ? [attributes.pads.slice(0, sizes.length), attributes.pads.slice(sizes.length)] : [none, none];
    if (wanted) {
      const all = sizes.map((size, d) => strides[d] * (size - 1) + more[d] + reach[d] + 1 - wanted[d]);
      const [less, rest] = [all.map((n) => Math.floor(n / 2)), all.map((n) => n - Math.floor(n / 2))];
      [begin, end] = auto === 'SAME_UPPER' ? [less, rest] : [rest, less];
    }
    const rank = sizes.length;
    const isPlain = begin.every((before, d) => before >= 0 && end[d] >= 0 && more[d] < Math.max(strides[d], dilations[d]));
    if (rank <= 3 && isPlain) {
      const padding = begin.map((before, d) => /** @type {[number, number]} */ ([before, end[d]]));
      const options = { stride: single(strides), padding, dilation: single(dilations), outputPadding: single(more), groups: group };
      return same(x.type, f[/** @type {'convTranspose2d'} */ (`convTranspose${rank}d`)](x.tensor, weight.tensor, bias?.tensor, options));
    }
    const [channels, each] = weight.shape;
    // As a convolution: outputs first, the kernel turned round.
    const grouped = f.reshape(weight.tensor, [group, channels / group, each, ...kernel]);
    const outputs = f.reshape(f.transpose(grouped, 1, 2), [group * each, channels / group, ...kernel]);
    const turned = f.flip(
      outputs,
      kernel.map((_, d) => 2 + d),
    );
    const y = padded(
      spread(x.tensor, strides),
      reach.map((n, d) => n - begin[d]),
      reach.map((n, d) => n - end[d] + more[d]),
    );
    const window = windowOf(y.shape.slice(2), /** @type {Attributes} */ ({ dilations }), kernel);
    return same(x.type, convolved(y, turned, bias?.tensor, window, group));
  },
};

/** A pool's elements in f32, which holds integers of 8 bits exactly. @param {Value} x */
const wide = (x) => f.to(x.tensor, 'f32');

/**
 * Options of nn's pools for a window; undefined for one that they do not take.
 * @param {Window} window @param {Attributes} attributes
 */
function poolOptions({ kernel, strides, begin, end, outs }, attributes) {
  const isTaken = begin.every((before, d) => before === end[d] && before <= kernel[d] / 2);
  if (outs.length > 3 || !isTaken) return undefined;
  return { stride: single(strides), padding: single(begin), ceilMode: Boolean(attributes.ceil_mode) };
}
/** One direction takes a number. Types are those of two, for functions of one, two and three. @param {number[]} all */
const single = (all) => (all.length === 1 ? all[0] : /** @type {[number, number]} */ (all));

/** @type {Computed} */
const maxPool = {
  run([x], attributes, { wants }) {
    const sizes = x.shape.slice(2);
    const window = windowOf(sizes, attributes, attributes.kernel_shape);
    const options = poolOptions(window, attributes);
    if (options && !wants(1)) {
      const pooled = f[/** @type {'maxPool2d'} */ (`maxPool${sizes.length}d`)](wide(x), single(window.kernel), {
        ...options,
        dilation: single(window.dilations),
      });
      return same(x.type, pooled);
    }
    const columns = patches(wide(x), window, -Infinity);
    const y = same(x.type, f.amax(columns, 2));
    if (!wants(1)) return y;
    const { kernel, strides, dilations, begin, outs } = window;
    const order = attributes.storage_order ? [...sizes].reverse() : sizes;
    const flat = (/** @type {number[]} */ at) =>
      (attributes.storage_order ? [...at].reverse() : at).reduce((sum, i, d) => sum * order[d] + i, 0);
    const places = grid(kernel).flatMap((k) =>
      grid(outs).map((at) => flat(at.map((i, d) => i * strides[d] + k[d] * dilations[d] - begin[d]))),
    );
    const table = uploaded(places, [1, 1, sizeOf(kernel), ...outs], 'i32');
    const best = f.argmax(columns, 2, true);
    const within = f.gather(f.expand(table, columns.shape), 2, best);
    const images = Array.from({ length: x.shape[0] * x.shape[1] }, (_, i) => i * sizeOf(sizes));
    const index = f.add(f.reshape(within, y.shape), uploaded(images, [x.shape[0], x.shape[1], ...outs.map(() => 1)], 'i32'));
    return [y, Value.of('int64', f.to(index, TYPES.int64.dtype))];
  },
};

/** @type {Computed} */
const averagePool = {
  run([x], attributes) {
    const sizes = x.shape.slice(2);
    const window = windowOf(sizes, attributes, attributes.kernel_shape);
    const { kernel, strides, dilations, begin, end, outs } = window;
    const all = Boolean(attributes.count_include_pad);
    const options = dilations.every((each) => each === 1) ? poolOptions(window, attributes) : undefined;
    if (options)
      return same(
        x.type,
        f[/** @type {'avgPool2d'} */ (`avgPool${sizes.length}d`)](wide(x), single(kernel), { ...options, countIncludePad: all }),
      );
    const isCounted = (/** @type {number} */ at, /** @type {number} */ d) =>
      all ? at >= -begin[d] && at < sizes[d] + end[d] : at >= 0 && at < sizes[d];
    const counts = outs.map((out, d) =>
      Array.from(
        { length: limited(out) },
        (_, i) =>
          Array.from({ length: limited(kernel[d]) }, (_, k) => i * strides[d] + k * dilations[d] - begin[d]).filter((at) =>
            isCounted(at, d),
          ).length,
      ),
    );
    const divisors = grid(outs).map((at) => at.reduce((product, i, d) => product * counts[d][i], 1));
    return same(x.type, f.div(f.sum(patches(wide(x), window, 0), 2), uploaded(divisors, [1, 1, ...outs])));
  },
};

/** @type {Computed} */
const lpPool = {
  run([x], attributes) {
    const p = attributes.p ?? 2;
    const window = windowOf(x.shape.slice(2), attributes, attributes.kernel_shape);
    return same(x.type, f.pow(f.sum(f.pow(f.abs(patches(wide(x), window, 0)), p), 2), 1 / p));
  },
};

/** @param {(x: Tensor) => Tensor} of [batch, channels, elements] → [batch, channels] @returns {Computed} */
const overImage = (of) => ({
  run: ([x]) =>
    same(
      x.type,
      f.reshape(of(f.reshape(wide(x), [x.shape[0], x.shape[1], -1])), [x.shape[0], x.shape[1], ...x.shape.slice(2).map(() => 1)]),
    ),
});

/** @type {Computed} */
const maxUnpool = {
  host: [2],
  run([x, index, shape], { kernel_shape: kernel, pads, strides = kernel.map(() => 1) }) {
    const sizes = x.shape.slice(2);
    const own = sizes.map((size, d) => (size - 1) * strides[d] + kernel[d] - (pads ? pads[d] + pads[d + sizes.length] : 0));
    const all = [...x.shape.slice(0, 2), ...own];
    const flat = f.scatter(
      f.zeros([sizeOf(all)], { dtype: x.tensor.dtype }),
      0,
      indexOf(f.reshape(index.tensor, [x.size])),
      f.reshape(x.tensor, [x.size]),
    );
    const y = f.reshape(flat, all);
    const more = shape ? shape.numbers.slice(2).map((size, d) => size - own[d]) : own.map(() => 0);
    return same(
      x.type,
      padded(
        y,
        own.map(() => 0),
        more,
      ),
    );
  },
};

/** @type {Computed} */
const col2Im = {
  host: [1, 2],
  run([x, image, block], attributes) {
    const [sizes, kernel] = [image.numbers, block.numbers];
    const { strides, dilations, begin, end, outs } = windowOf(sizes, attributes, kernel);
    const [batch] = x.shape;
    const positions = f.reshape(x.tensor, [batch, -1, sizeOf(kernel), ...outs]);
    /** @type {Tensor | undefined} */
    let y;
    for (const [k, at] of grid(kernel).entries()) {
      const part = spread(f.reshape(f.slice(positions, 2, k, k + 1), [batch, positions.shape[1], ...outs]), strides);
      const before = at.map((i, d) => i * dilations[d]);
      const after = sizes.map((size, d) => size + begin[d] + end[d] - before[d] - part.shape[2 + d]);
      const whole = padded(part, before, after);
      y = y ? f.add(y, whole) : whole;
    }
    return same(
      x.type,
      padded(
        /** @type {Tensor} */ (y),
        begin.map((n) => -n),
        end.map((n) => -n),
      ),
    );
  },
};

/** @type {Computed} */
const causalConvWithState = {
  run([x, weight, bias, past], { activation = 'none' }) {
    const [batch, channels, length] = x.shape;
    const k = weight.shape[2];
    const before = past?.tensor ?? f.zeros([batch, channels, Math.max(1, k - 1)], { dtype: x.tensor.dtype });
    const whole = k > 1 ? f.cat([before, x.tensor], 2) : x.tensor;
    const window = windowOf([whole.shape[2]], /** @type {Attributes} */ ({}), [k]);
    const y = convolved(whole, weight.tensor, bias?.tensor, window, channels);
    const state = k > 1 ? Value.of(x.type, f.slice(whole, 2, length, length + k - 1)) : Value.host(x.type, [batch, channels, 0], []);
    return [same(x.type, activation === 'none' ? y : f.silu(y)), state];
  },
};

/** A product with integers of 8 bits, in f32: their sums are exact up to 2^24. @param {Value} x @param {Value | undefined} zero @param {number[]} shape of the zero point */
export const centred = (x, zero, shape) => (zero ? f.sub(wide(x), f.reshape(wide(zero), zero.size === 1 ? [] : shape)) : wide(x));

/** @type {Computed} */
const convInteger = {
  run([x, weight, zeroX, zeroW], attributes) {
    const window = windowOf(x.shape.slice(2), attributes, weight.shape.slice(2));
    const w = centred(weight, zeroW, [-1, ...weight.shape.slice(1).map(() => 1)]);
    const own = centred(x, zeroX, []);
    // f32 has integers up to 2^24: the digits of the weights have so few bits that sums of their products with 255 are exact.
    const bits = Math.min(8, Math.max(1, Math.floor(Math.log2(2 ** 24 / 255 / Math.max(1, sizeOf(weight.shape.slice(1)))))));
    let left = w;
    /** @type {Tensor | undefined} */
    let y;
    for (let place = 0; place < 8; place += bits) {
      const higher = f.floor(f.mul(left, 2 ** -bits));
      const digit = place + bits < 8 ? f.sub(left, f.mul(higher, 2 ** bits)) : left;
      const part = f.mul(f.to(convolved(own, digit, undefined, window, attributes.group ?? 1), 'i32'), 2 ** place);
      [left, y] = [higher, y === undefined ? part : f.add(y, part)];
    }
    return Value.of('int32', /** @type {Tensor} */ (y));
  },
};

/** @type {import('../definitions.mjs').Table} */
export const CONVOLUTION = {
  AveragePool: averagePool,
  CausalConvWithState: causalConvWithState,
  Col2Im: col2Im,
  Conv: conv,
  ConvInteger: convInteger,
  ConvTranspose: convTranspose,
  GlobalAveragePool: overImage((x) => f.mean(x, 2)),
  GlobalMaxPool: overImage((x) => f.amax(x, 2)),
  LpPool: lpPool,
  MaxPool: maxPool,
  MaxUnpool: maxUnpool,
};
