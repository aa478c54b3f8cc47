// Gathers and scatters elements by their index along a dimension, and finds the index of an extreme.

import { ceilDiv, choice, integer, pushConstants, tensor } from './base.mjs';

/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').KernelContext} KernelContext */
/** @typedef {import('./bounds.mjs').Extent} Extent */

/**
 * @typedef {object} IndexSizes
 * @property {number} outer product of the sizes before the indexed dimension
 * @property {number} size size of the indexed dimension
 * @property {number} length number of indices along it
 * @property {number} inner product of the sizes after it
 * @property {boolean} [fromEnd] whether indices are i32, of which negative ones count from the end; false when left out
 */

/**
 * @typedef {object} GatherTensors
 * @property {Tensor} x [outer, size, inner] of 32-bit elements of any type
 * @property {Tensor} index [outer, length, inner] u32; an index outside the dimension reads 0
 * @property {Tensor} y out: [outer, length, inner] of x's type
 * @property {Tensor} [last] [outer, size, inner] u32 from `scatter`, for its gradient: a k that `scatter` did not take reads 0, too
 */

/**
 * @typedef {object} ScatterTensors
 * @property {Tensor} x [outer, size, inner] of 32-bit elements of any type; f32 for `scatterAdd`
 * @property {Tensor} index [outer, length, inner] u32; an element whose index is outside the dimension is dropped
 * @property {Tensor} source [outer, length, inner] of x's type
 * @property {Tensor} y out: [outer, size, inner] of x's type
 */

/**
 * @typedef {object} LastPlaces
 * @property {Tensor} last out: [outer, size, inner] u32, the k whose source an element took; 0xffffffff where it took none
 */

/** @param {KernelContext} context */
export function indexingKernels(context) {
  /** @param {string} kernel @param {IndexSizes} args */
  function sizesOf(kernel, args) {
    const [outer, size, length, inner] = ['outer', 'size', 'length', 'inner'].map((name) =>
      integer(kernel, name, args[/** @type {'outer' | 'size' | 'length' | 'inner'} */ (name)]),
    );
    const whole = integer(kernel, 'outer * size * inner', outer * size * inner);
    const picked = integer(kernel, 'outer * length * inner', outer * length * inner);
    return { size, length, inner, whole, picked, fromEnd: args.fromEnd ? 1 : 0 };
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
   * y[o][k][i] = x[o][index[o][k][i]][i]. Elements are copied bit by bit.
   * @param {GatherTensors & IndexSizes} args
   * @returns {Dispatch}
   */
  function gather(args) {
    const kernel = 'gather';
    const { size, length, inner, whole, picked, fromEnd } = sizesOf(kernel, args);
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
    const push = [size, length, inner, fromEnd, x.offset, index.offset, y.offset, last?.offset ?? 0];
    return flat(last ? 'gather_last' : 'gather', buffers, 0b100, picked, push);
  }

  /** @param {string} kernel @param {ScatterTensors & IndexSizes & { last?: Tensor }} args @param {boolean} add */
  function scattered(kernel, args, add) {
    const { size, length, inner, whole, picked, fromEnd } = sizesOf(kernel, args);
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
    const push = [size, length, inner, fromEnd, x.offset, index.offset, source.offset, y.offset, last?.offset ?? 0];
    return flat(add ? 'scatter_add' : 'scatter', buffers, add ? 0b1000 : 0b11000, whole, push);
  }

  /**
   * y = x, and then y[o][index[o][k][i]][i] += source[o][k][i], in the order of k and without atomics: each element of y reads all `length`
   * indices that could name it.
   * @param {ScatterTensors & IndexSizes} args
   * @returns {Dispatch}
   * @throws {RangeError} where a CPU device would loop too often
   */
  function scatterAdd(args) {
    return scattered('scatterAdd', args, true);
  }

  /**
   * y = x, and then y[o][index[o][k][i]][i] = source[o][k][i]; of several k with one index, the last counts. Each element of y reads all
   * `length` indices, as in `scatterAdd`. Elements are copied bit by bit.
   * @param {ScatterTensors & IndexSizes & LastPlaces} args
   * @returns {Dispatch}
   * @throws {RangeError} where a CPU device would loop too often
   */
  function scatter(args) {
    return scattered('scatter', args, false);
  }

  /**
   * y[row] = the column of the row's largest (or smallest) element; of equal elements, the first. A NaN counts as more extreme than any
   * number, and 0 equals -0.
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
    // A power of two, which the reduction tree needs, and no more than a short row fills.
    const threads = Math.min(context.isCpu ? 16 : context.threadsUpTo(256), 2 ** Math.ceil(Math.log2(Math.max(columns, 8))));
    const groups = context.strideGroups(rows, 1);
    // A row's loop over its elements, then its reduction tree, which has a level for each bit of `threads`.
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
