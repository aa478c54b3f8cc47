// Pools of one to three dimensions: the largest element or the mean of each window, and their gradients.

import { integer, pushConstants, tensor } from './base.mjs';
import { directions } from './directions.mjs';

/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').KernelContext} KernelContext */
/** @typedef {import('./bounds.mjs').Extent} Extent */

/**
 * The sizes of a pool. Lists have one number for each of its one to three directions.
 * @typedef {object} PoolSizes
 * @property {number} planes images times channels
 * @property {number} [inner] planes that lie side by side in memory, element by element: the channels of images stored channels last; 1 when left out
 * @property {number[]} size of a plane of x
 * @property {number[]} result sizes of a plane of y
 * @property {number[]} [window] sizes of the window. When left out, windows divide x into as many parts as y has elements: from ⌊q · size /
 *   result⌋ to before ⌈(q + 1) · size / result⌉
 * @property {number[]} [stride] the window's sizes when left out
 * @property {number[]} [dilation] 1 when left out
 * @property {number[]} [padding] elements before and after x that windows may lie over, at most half of the window's; 0 when left out
 */

/**
 * What a mean is divided by.
 * @typedef {object} PoolDivisor
 * @property {boolean} [countIncludePad] whether padding counts as elements; true when left out
 * @property {number} [divisor] instead of the number of elements
 */

/**
 * Tensors of a pool of largest elements.
 * @typedef {object} MaxPoolTensors
 * @property {Tensor} x [planes, ...size] f32
 * @property {Tensor} y out: [planes, ...result] f32
 * @property {Tensor} indices out: [planes, ...result] u32
 */

/**
 * Tensors of its gradient.
 * @typedef {object} MaxPoolBackwardTensors
 * @property {Tensor} dy [planes, ...result] f32
 * @property {Tensor} indices of `maxPool`
 * @property {Tensor} dx out: [planes, ...size] f32
 */

/**
 * Tensors of a pool of means.
 * @typedef {object} AvgPoolTensors
 * @property {Tensor} x [planes, ...size] f32
 * @property {Tensor} y out: [planes, ...result] f32
 */

/**
 * Tensors of its gradient.
 * @typedef {object} AvgPoolBackwardTensors
 * @property {Tensor} dy [planes, ...result] f32
 * @property {Tensor} dx out: [planes, ...size] f32
 */

/** @param {KernelContext} context */
export function poolingKernels(context) {
  /** @param {string} kernel @param {PoolSizes & PoolDivisor} args */
  function sizesOf(kernel, args) {
    const planes = integer(kernel, 'planes', args.planes);
    const { rank, list } = directions(kernel, args.size);
    const size = list('size', args.size, 1, 1);
    const result = list('result', args.result, 1, 1);
    const ones = new Array(rank).fill(1);
    const { window, stride = window, dilation = ones, padding = ones.map(() => 0) } = args;
    if (window === undefined) {
      // Bounds of parts are computed in 31 bits.
      if (size.some((n, d) => (n + 1) * (result[d] + 1) > 0x7fffffff))
        throw new RangeError(`${kernel}: ${String(args.size)} elements are too many`);
      return { planes, size, result, how: new Array(12).fill(0), most: size };
    }
    const windows = list('window', window, 1, 1);
    const around = list('padding', padding, 0, 0);
    around.forEach((n, d) => {
      if (2 * n > windows[d]) throw new RangeError(`${kernel}: padding must be at most half of the window, got ${String(padding)}`);
    });
    const how = [...windows, ...list('stride', stride, 1, 1), ...around, ...list('dilation', dilation, 1, 1)];
    return { planes, size, result, how, most: windows };
  }

  /**
   * @param {string} kernel @param {string} shader @param {PoolSizes & PoolDivisor} args
   * @param {[name: string, given: Tensor, side: 'x' | 'y', type: 'f32' | 'u32'][]} tensors in the order of bindings
   * @param {number} written how many of the last ones are written
   * @returns {Dispatch}
   */
  function pooled(kernel, shader, args, tensors, written) {
    const { planes, size, result, how, most } = sizesOf(kernel, args);
    const inner = integer(kernel, 'inner', args.inner ?? 1);
    if (planes % inner) throw new RangeError(`${kernel}: ${planes} planes must be a multiple of inner, got ${inner}`);
    const volume = (/** @type {number[]} */ list) => list.reduce((a, b) => a * b, planes);
    const counts = { x: integer(kernel, 'elements of x', volume(size)), y: integer(kernel, 'elements of y', volume(result)) };
    const own = tensors.map(([name, given]) => tensor(kernel, name, given));
    const extents = tensors.map(([name, , side, type], i) => /** @type {Extent} */ ([name, own[i], counts[side], type]));
    context.checker?.check(kernel, extents.slice(0, -written), extents.slice(-written));
    const threads = context.flatThreads;
    const count = counts[tensors[tensors.length - 1][2]];
    const groups = context.strideGroups(count, threads);
    const rounds = most.reduce((a, b) => a * (b + 1), Math.ceil(count / (groups * threads)));
    context.checkRounds(kernel, `windows of ${String(most)}`, rounds);
    const offset = (/** @type {string[]} */ names) => own[tensors.findIndex(([name]) => names.includes(name))]?.offset ?? 0;
    return context.dispatch(shader, {
      buffers: own.map(({ buffer }) => buffer),
      writes: (2 ** written - 1) << (own.length - written),
      groups,
      specialization: [threads],
      push: pushConstants([
        planes,
        ...size,
        ...result,
        ...how,
        args.countIncludePad === false ? 0 : 1,
        args.divisor === undefined ? 0 : integer(kernel, 'divisor', args.divisor),
        offset(['x', 'dx']),
        offset(['indices']),
        offset(['y', 'dy']),
        inner,
      ]),
    });
  }

  /**
   * The largest element of each window and its index in its plane of x, row by row: of equal ones the first. A NaN counts as larger than any
   * number.
   * @param {MaxPoolTensors & PoolSizes} args
   * @returns {Dispatch}
   */
  function maxPool(args) {
    const { x, y, indices } = args;
    return pooled(
      'maxPool',
      'pool_max',
      args,
      [
        ['x', x, 'x', 'f32'],
        ['indices', indices, 'y', 'u32'],
        ['y', y, 'y', 'f32'],
      ],
      2,
    );
  }

  /**
   * The gradient of `maxPool`: each element gets the gradients of the windows whose largest it is, in their order.
   * @param {MaxPoolBackwardTensors & PoolSizes} args
   * @returns {Dispatch}
   */
  function maxPoolBackward(args) {
    const { dy, indices, dx } = args;
    const tensors = /** @type {Parameters<typeof pooled>[3]} */ ([
      ['dy', dy, 'y', 'f32'],
      ['indices', indices, 'y', 'u32'],
      ['dx', dx, 'x', 'f32'],
    ]);
    return pooled('maxPoolBackward', 'pool_max_backward', args, tensors, 1);
  }

  /**
   * The mean of each window; of what lies over the end of x, only padding counts.
   * @param {AvgPoolTensors & PoolSizes & PoolDivisor} args
   * @returns {Dispatch}
   */
  function avgPool(args) {
    return pooled(
      'avgPool',
      'pool_avg',
      args,
      [
        ['x', args.x, 'x', 'f32'],
        ['y', args.y, 'y', 'f32'],
      ],
      1,
    );
  }

  /**
   * The gradient of `avgPool`.
   * @param {AvgPoolBackwardTensors & PoolSizes & PoolDivisor} args
   * @returns {Dispatch}
   */
  function avgPoolBackward(args) {
    return pooled(
      'avgPoolBackward',
      'pool_avg_backward',
      args,
      [
        ['dy', args.dy, 'y', 'f32'],
        ['dx', args.dx, 'x', 'f32'],
      ],
      1,
    );
  }

  return { maxPool, maxPoolBackward, avgPool, avgPoolBackward };
}
