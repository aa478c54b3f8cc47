// Pools: the largest element or the mean of each window.

import { channelsFirst, channelsLast, channelsLastLayout, denseLayout, isChannelsLast, sizeOf } from '../core/layout.mjs';
import { gather } from './indexing.mjs';
import { floatType } from './pointwise.mjs';
import { at, generate } from './reference.mjs';
import { defineOp } from './registry.mjs';

/** @typedef {import('../core/layout.mjs').Layout} Layout */
/** @typedef {import('./registry.mjs').Op} Op */
/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */
/** @typedef {import('./registry.mjs').Reference} Reference */

/**
 * Windows over x, one number for each direction; without `window` they divide x into parts. `size`: sizes of x, `result`: sizes of y.
 * @typedef {{ size: number[], result: number[], window?: number[], stride?: number[], padding?: number[], dilation?: number[],
 *   countIncludePad?: boolean, divisor?: number }} PoolAttributes
 */

/** The window of an element of y: [from, to, step] in each direction. @param {PoolAttributes} how @param {number[]} q */
const windowOf = ({ size, result, window, stride = window, padding = [], dilation = [] }, q) =>
  q.map((p, d) => {
    if (!window || !stride) return [Math.floor((p * size[d]) / result[d]), Math.ceil(((p + 1) * size[d]) / result[d]), 1];
    const from = p * stride[d] - (padding[d] ?? 0);
    return [from, from + (window[d] - 1) * (dilation[d] ?? 1) + 1, dilation[d] ?? 1];
  });

/** The places of x in the window of y's element at q, in order. @param {PoolAttributes} how @param {number[]} q */
function placesOf(how, q) {
  const ranges = windowOf(how, q);
  /** @type {number[][]} */
  let places = [[]];
  for (const [d, [from, to, step]] of ranges.entries()) {
    /** @type {number[]} */
    const own = [];
    for (let i = from; i < to; i += step) if (i >= 0 && i < how.size[d]) own.push(i);
    places = places.flatMap((place) => own.map((i) => [...place, i]));
  }
  return places;
}

/** What the mean of a window is divided by. @param {PoolAttributes} how @param {number[]} q */
function divisorOf(how, q) {
  if (how.divisor) return how.divisor;
  const { size, padding = [], countIncludePad = true } = how;
  return windowOf(how, q).reduce(
    (count, [from, to], d) =>
      count * (countIncludePad ? Math.min(to, size[d] + (padding[d] ?? 0)) - from : Math.min(to, size[d]) - Math.max(from, 0)),
    1,
  );
}

/** @param {Layout} layout @param {number} rank */
const planesOf = ({ shape }, rank) => sizeOf(shape.slice(0, shape.length - rank));

/** Whether images of a batch are stored channels last. @param {Layout} layout @param {number} rank of a plane */
const isLast = (layout, rank) => layout.shape.length === rank + 2 && isChannelsLast(layout);

/** The planes of x, and how many lie side by side. @param {Layout} layout @param {number} rank of a plane */
const planes = (layout, rank) => ({ planes: planesOf(layout, rank), inner: isLast(layout, rank) ? layout.shape[1] : 1 });

/** The layout of other sizes of planes, in the same order of memory. @param {Layout} x @param {number[]} sizes @param {Layout['dtype']} [dtype] */
const resized = (x, sizes, dtype = x.dtype) =>
  (isLast(x, sizes.length) ? channelsLastLayout : denseLayout)(withSizes(x.shape, sizes), dtype);

/** An operand in an order of memory that kernels take. @param {Tensor} x @param {number} rank of a plane */
export const inPlanes = (x, rank) => (isLast(x.layout, rank) ? x : x.contiguous());

/** An operand as another one lies in memory. @param {Tensor} x @param {Tensor} other @param {number} rank of a plane @returns {Tensor} */
const alike = (x, other, rank) => {
  if (!isLast(other.layout, rank)) return x.contiguous();
  return isLast(x.layout, rank)
    ? x
    : x
        .permute(...channelsLast(x.ndim))
        .contiguous()
        .permute(...channelsFirst(x.ndim));
};

/** The shape with other sizes of planes. @param {readonly number[]} shape @param {number[]} sizes */
const withSizes = (shape, sizes) => [...shape.slice(0, shape.length - sizes.length), ...sizes];

/** The index of a place in its plane. @param {PoolAttributes} how @param {number[]} place */
const indexOf = ({ size }, place) => place.reduce((i, p, d) => i * size[d] + p, 0);

/**
 * The gradient of x: of each element of dy, the indices in its plane that get it, divided by a number.
 * @param {Reference} dy @param {PoolAttributes} how @param {(place: number[], q: number[]) => { to: number[], divisor: number }} shares
 */
function spread(dy, how, shares) {
  const rank = how.size.length;
  const dx = generate(withSizes(dy.shape, how.size), () => 0);
  const volume = sizeOf(how.size);
  generate(dy.shape, (place) => {
    const plane = place.slice(0, -rank).reduce((i, p, d) => i * dy.shape[d] + p, 0);
    const { to, divisor } = shares(place, place.slice(-rank));
    for (const index of to) dx.data[plane * volume + index] += at(dy, place) / divisor;
    return 0;
  });
  return dx;
}

/** The largest element of a window. @param {Reference} x @param {PoolAttributes} how @param {number[]} place */
function largest(x, how, place) {
  const rank = how.size.length;
  const [lead, q] = [place.slice(0, -rank), place.slice(-rank)];
  return Math.max(...placesOf(how, q).map((own) => at(x, [...lead, ...own])));
}

const maxPoolBackward = defineOp({
  name: 'maxPoolBackward',
  strided: true,
  prepare: ([dy, indices], run, /** @type {PoolAttributes} */ { size }) => {
    const own = inPlanes(indices, size.length);
    return run([alike(dy, own, size.length), own]);
  },
  infer: ([dy], /** @type {PoolAttributes} */ { size }) => [resized(dy, size)],
  saveInputs: () => [1],
  // What each window's largest element gets.
  vjp: (g, { inputs: [, indices], layouts: [dy], attributes: { size, result } }, F) => {
    const lead = dy.shape.slice(0, dy.shape.length - size.length);
    const [planes, places] = [F.reshape(g, [...lead, sizeOf(size)]), F.reshape(indices, [...lead, sizeOf(result)])];
    return [F.reshape(F.call(gather, [planes, places], { dim: lead.length }), dy.shape), undefined];
  },
  lower: (k, [dy, indices], [dx], how) => [k.maxPoolBackward({ dy, indices, dx, ...planes(dy.layout, how.size.length), ...how })],
  oracle: ([dy, indices], how) => spread(dy, how, (place) => ({ to: [at(indices, place)], divisor: 1 })),
});

/** The largest element of each window, over the last dimensions of x; the second output has their indices in their planes. @type {Op} */
export const maxPool = defineOp({
  name: 'maxPool',
  strided: true,
  prepare: ([x], run, /** @type {PoolAttributes} */ { size }) => run([inPlanes(x, size.length)]),
  infer: ([x], /** @type {PoolAttributes} */ { result }) => {
    floatType('maxPool', x);
    return [resized(x, result), resized(x, result, 'i32')];
  },
  lower: (k, [x], [y, indices], how) => [k.maxPool({ x, y, indices, ...planes(x.layout, how.size.length), ...how })],
  saveOutputs: [1],
  vjp: (dy, { outputs: [, indices], attributes }, F) => [F.call(maxPoolBackward, [dy, indices], attributes)],
  oracle: ([x], how) => generate(withSizes(x.shape, how.result), (place) => largest(x, how, place)),
});

const avgPoolBackward = defineOp({
  name: 'avgPoolBackward',
  strided: true,
  prepare: ([dy], run, /** @type {PoolAttributes} */ { size }) => run([inPlanes(dy, size.length)]),
  infer: ([dy], /** @type {PoolAttributes} */ { size }) => [resized(dy, size)],
  vjp: (dx, { attributes }, F) => [F.call(avgPool, [dx], attributes)],
  lower: (k, [dy], [dx], how) => [k.avgPoolBackward({ dy, dx, ...planes(dy.layout, how.size.length), ...how })],
  oracle: ([dy], how) =>
    spread(dy, how, (_, q) => ({ to: placesOf(how, q).map((place) => indexOf(how, place)), divisor: divisorOf(how, q) })),
});

/** The mean of each window, over the last dimensions of x. @type {Op} */
export const avgPool = defineOp({
  name: 'avgPool',
  strided: true,
  prepare: ([x], run, /** @type {PoolAttributes} */ { size }) => run([inPlanes(x, size.length)]),
  infer: ([x], /** @type {PoolAttributes} */ { result }) => {
    floatType('avgPool', x);
    return [resized(x, result)];
  },
  lower: (k, [x], [y], how) => [k.avgPool({ x, y, ...planes(x.layout, how.size.length), ...how })],
  vjp: (dy, { attributes }, F) => [F.call(avgPoolBackward, [dy], attributes)],
  oracle: ([x], how) => {
    const rank = how.size.length;
    return generate(withSizes(x.shape, how.result), (place) => {
      const [lead, q] = [place.slice(0, -rank), place.slice(-rank)];
      return placesOf(how, q).reduce((sum, own) => sum + at(x, [...lead, ...own]), 0) / divisorOf(how, q);
    });
  },
});
