// Elements by index along a dimension: gathered, scattered, and found.

import { ceilDiv, choice, integer, pushConstants, tensor } from './base.mjs';

/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').KernelContext} KernelContext */
/** @typedef {import('./bounds.mjs').Extent} Extent */

/**
 * @typedef {object} IndexSizes
 * @property {number} outer sizes before the dimension, multiplied
 * @property {number} size of the dimension that is indexed
 * @property {number} length indices along it
 * @property {number} inner sizes behind the dimension, multiplied
 */

/**
 * @typedef {object} GatherTensors
 * @property {Tensor} x [outer, size, inner] of 32-bit elements, whatever they are
 * @property {Tensor} index [outer, length, inner] u32; one outside of the dimension reads as 0
 * @property {Tensor} y out: [outer, length, inner]
 * @property {Tensor} [last] [outer, size, inner] u32 from `scatter`: elements that are not the last of their index read as 0, too
 */

/**
 * @typedef {object} ScatterTensors
 * @property {Tensor} x [outer, size, inner] of 32-bit elements; f32 for `scatterAdd`
 * @property {Tensor} index [outer, length, inner] u32; what is outside of the dimension goes nowhere
 * @property {Tensor} source [outer, length, inner]
 * @property {Tensor} y out: [outer, size, inner]
 */

/**
 * @typedef {object} LastPlaces
 * @property {Tensor} last out: [outer, size, inner] u32, the k that was taken, 0xffffffff where there is none
 */

/** @param {KernelContext} context */
export function indexingKernels(context) {
  /** @param {string} kernel @param {IndexSizes} args */
  function sizesOf(kernel, args) {
    const [outer, size, length, inner] = ['outer', 'size', 'length', 'inner'].map((name) =>
      integer(kernel, name, args[/** @type {keyof IndexSizes} */ (name)]),
    );
    const whole = integer(kernel, 'outer * size * inner', outer * size * inner);
    const picked = integer(kernel, 'outer * length * inner', outer * length * inner);
    return { size, length, inner, whole, picked };
  }

  /** @param {string} name @param {import('./base.mjs').Binding[]} buffers @param {number} writes @param {number} count @param {number[]} push */
  const flat = (name, buffers, writes, count, push) =>
    context.dispatch(name, {
      buffers,
      writes,
      groups: context.strideGroups(count, context.flatThreads),
      specialization: [context.flatThreads],
      push: pushConstants([count, ...push]),
    });

  /**
   * y[o][k][i] = x[o][index[o][k][i]][i]. Elements are moved as words.
   * @param {GatherTensors & IndexSizes} args
   * @returns {Dispatch}
   */
  function gather(args) {
    const kernel = 'gather';
    const { size, length, inner, whole, picked } = sizesOf(kernel, args);
    const [x, index, y] = [args.x, args.index, args.y].map((t, i) => tensor(kernel, ['x', 'index', 'y'][i], t));
    const last = args.last === undefined ? undefined : tensor(kernel, 'last', args.last);
    /** @type {Extent[]} */
    const reads = [
      ['x', x, whole, 'u32'],
      ['index', index, picked, 'u32'],
    ];
    if (last) reads.push(['last', last, whole, 'u32']);
    context.checker?.check(kernel, reads, [['y', y, picked, 'u32']]);
    const buffers = [x.buffer, index.buffer, y.buffer, ...(last ? [last.buffer] : [])];
    const push = [size, length, inner, x.offset, index.offset, y.offset, last?.offset ?? 0];
    return flat(last ? 'gather_last' : 'gather', buffers, 0b100, picked, push);
  }

  /** @param {string} kernel @param {ScatterTensors & IndexSizes & { last?: Tensor }} args @param {boolean} add */
  function scattered(kernel, args, add) {
    const { size, length, inner, whole, picked } = sizesOf(kernel, args);
    const names = /** @type {const} */ (['x', 'index', 'source', 'y']);
    const [x, index, source, y] = names.map((name) => tensor(kernel, name, args[name]));
    const last = add ? undefined : tensor(kernel, 'last', args.last);
    /** @type {Extent[]} */
    const writes = [['y', y, whole, 'u32']];
    if (last) writes.push(['last', last, whole, 'u32']);
    context.checker?.check(
      kernel,
      [
        ['x', x, whole, 'u32'],
        ['index', index, picked, 'u32'],
        ['source', source, picked, 'u32'],
      ],
      writes,
    );
    const elements = ceilDiv(whole, context.strideGroups(whole, context.flatThreads) * context.flatThreads);
    context.checkRounds(kernel, `${length} indices of a place`, elements * (1 + length));
    const buffers = [x.buffer, index.buffer, source.buffer, y.buffer, ...(last ? [last.buffer] : [])];
    const push = [size, length, inner, x.offset, index.offset, source.offset, y.offset, last?.offset ?? 0];
    return flat(add ? 'scatter_add' : 'scatter', buffers, add ? 0b1000 : 0b11000, whole, push);
  }

  /**
   * y = x, with source[o][k][i] added at [o][index[o][k][i]][i], in the order of k and without atomics: every element of y looks
   * through the `length` indices of its place.
   * @param {ScatterTensors & IndexSizes} args
   * @returns {Dispatch}
   */
  function scatterAdd(args) {
    return scattered('scatterAdd', args, true);
  }

  /**
   * y = x, with source[o][k][i] in place of [o][index[o][k][i]][i]: of several with one index the last. Looks for it as
   * `scatterAdd` does; elements are moved as words.
   * @param {ScatterTensors & IndexSizes & LastPlaces} args
   * @returns {Dispatch}
   */
  function scatter(args) {
    return scattered('scatter', args, false);
  }

  /**
   * y[row] = the column of the row's largest (or smallest) element, the first of equal ones. A NaN is beyond all numbers, and 0
   * equals -0.
   * @param {object} args
   * @param {Tensor} args.x [rows, columns] f32
   * @param {Tensor} args.y out: [rows] u32
   * @param {number} args.rows number of rows
   * @param {number} args.columns elements of a row
   * @param {'max' | 'min'} [args.op] max when left out
   * @returns {Dispatch}
   */
  function argExtreme(args) {
    const kernel = 'argExtreme';
    const rows = integer(kernel, 'rows', args.rows);
    const columns = integer(kernel, 'columns', args.columns);
    const [x, y] = [tensor(kernel, 'x', args.x), tensor(kernel, 'y', args.y)];
    const op = choice(kernel, 'op', args.op ?? 'max', ['max', 'min']);
    context.checker?.check(kernel, [['x', x, integer(kernel, 'rows * columns', rows * columns), 'f32']], [['y', y, rows, 'u32']]);
    // A power of two, for the tree, that a short row fills.
    const threads = Math.min(context.isCpu ? 16 : 256, 2 ** Math.ceil(Math.log2(Math.max(columns, 8))));
    const groups = context.strideGroups(rows, 1);
    // Behind the loop over its elements the tree of a row, which has a level for each bit of `threads`.
    const perRow = 2 + ceilDiv(columns, threads) + Math.log2(threads);
    context.checkRounds(kernel, `rows of ${columns}`, ceilDiv(rows, groups) * perRow);
    return context.dispatch('arg_extreme', {
      buffers: [x.buffer, y.buffer],
      writes: 0b10,
      groups,
      specialization: [threads, op],
      push: pushConstants([rows, columns, x.offset, y.offset]),
    });
  }

  return { gather, scatter, scatterAdd, argExtreme };
}
