// Sorts rows, searches sorted rows, and combines elements by their indices after a sort. There are no atomics.

import { ceilDiv, choice, integer, nextPowerOfTwo, pushConstants, tensor } from './base.mjs';
import { WORD_TYPES } from './scan.mjs';

/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').KernelContext} KernelContext */
/** @typedef {import('./scan.mjs').WordType} WordType */

const RUN_OPS = /** @type {const} */ (['sum', 'prod', 'max', 'min']);
/** How elements of one index are combined. @typedef {(typeof RUN_OPS)[number]} RunOp */

/**
 * @typedef {object} ArgSort
 * @property {Tensor} x [rows, columns] of `type`
 * @property {Tensor} y out: [rows, keep] u32, the columns of x in the order of their elements
 * @property {number} rows number of rows
 * @property {number} columns elements of a row
 * @property {WordType} [type] f32 when left out
 * @property {boolean} [descending] whether the largest comes first; false when left out
 * @property {number} [keep] how many of each row's columns are wanted, the first ones; all when left out. Few take less work
 */

/** @param {KernelContext} context */
export function sortingKernels(context) {
  /**
   * Sorts each row, or finds the first columns of its order. The sort is stable in both directions: equal elements stay in their order. NaN is
   * larger than every number, and -0 equals 0.
   * Runs are sorted in shared memory, and then merged, two into one at a time.
   * @param {ArgSort} args
   * @returns {Dispatch[]}
   * @throws {RangeError} where the pairs of a key and a column, 8 bytes each, exceed a binding
   */
  function argSort(args) {
    const kernel = 'argSort';
    const rows = integer(kernel, 'rows', args.rows);
    const columns = integer(kernel, 'columns', args.columns);
    const count = integer(kernel, 'rows * columns', rows * columns);
    const [x, y] = [tensor(kernel, 'x', args.x), tensor(kernel, 'y', args.y)];
    const type = choice(kernel, 'type', args.type ?? 'f32', WORD_TYPES);
    const keep = integer(kernel, 'keep', args.keep ?? columns, 1, columns);
    context.checker?.check(kernel, [['x', x, count, 'u32']], [['y', y, rows * keep, 'u32']]);
    const most = context.isCpu ? 128 : 1024;
    let run = Math.min(most, nextPowerOfTwo(columns));
    const runs = ceilDiv(columns, run);
    const block = Math.min(most, Math.max(run, nextPowerOfTwo(rows * run)));
    const threads = Math.max(1, Math.min(context.isCpu ? 8 : context.threadsUpTo(256), block / 2));
    const groups = context.strideGroups(rows * runs, block / run);
    const levels = Math.log2(run);
    const stages = (levels * (levels + 1)) / 2;
    // Of each stage, and of loading and storing a block.
    const perBlock = stages * (1 + ceilDiv(block, 2 * threads)) + 2 * ceilDiv(block, threads);
    context.checkRounds(kernel, `${rows} rows of ${columns}`, ceilDiv(rows * runs, (groups * block) / run) * perBlock);
    const blocks = (/** @type {string} */ name, /** @type {import('./base.mjs').Binding} */ to, /** @type {number} */ at) =>
      context.dispatch(name, {
        buffers: [x.buffer, to],
        writes: 0b10,
        groups,
        specialization: [threads, block, run, type, args.descending ? 1 : 0],
        push: pushConstants([rows, columns, runs, keep, x.offset, at]),
      });
    if (runs === 1) return [blocks('sort_blocks_final', y.buffer, y.offset)];

    if (8 * count > context.bindingBytes)
      throw new RangeError(`${kernel}: ${count} pairs of 8 bytes do not fit in a binding of ${context.bindingBytes} bytes`);
    let [from, to] = ['sort', 'sorted'].map((name) => context.workspace(name, 8 * count));
    const list = [blocks('sort_blocks', from, 0)];
    const each = context.isCpu ? 32 : 8;
    for (; run < columns; run *= 2) {
      const last = 2 * run >= columns;
      const merges = ceilDiv(columns, 2 * run);
      const parts = ceilDiv(Math.min(2 * run, keep, columns), each);
      const invocations = rows * merges * parts;
      const size = context.strideGroups(invocations, context.flatThreads);
      const perPart = 2 + each + Math.ceil(Math.log2(run) + 1);
      context.checkRounds(kernel, `${rows} rows of ${columns}`, ceilDiv(invocations, size * context.flatThreads) * perPart);
      list.push(
        context.dispatch(`sort_merge${last ? '_final' : ''}`, {
          buffers: [from, last ? y.buffer : to],
          writes: 0b10,
          groups: size,
          specialization: [context.flatThreads, each],
          push: pushConstants([invocations, columns, merges, parts, run, keep, last ? y.offset : 0]),
        }),
      );
      [from, to] = [to, from];
    }
    return list;
  }

  /**
   * @param {string} name @param {import('./base.mjs').Binding[]} buffers @param {number} writes @param {number} count @param {number[]} push
   * @param {number[]} [constants]
   */
  const flat = (name, buffers, writes, count, push, constants = []) =>
    context.dispatch(name, {
      buffers,
      writes,
      groups: context.strideGroups(count, context.flatThreads),
      specialization: [context.flatThreads, ...constants],
      push: pushConstants([count, ...push]),
    });

  /**
   * y[r][i] = the number of elements of sorted row r that are less than value i of row r, or with `right` less than or equal to it. The order
   * is that of `argSort`.
   * @param {object} args
   * @param {Tensor} args.x [rows, columns] of `type`, each row sorted; [columns] where `shared`
   * @param {Tensor} args.values [rows, picks] of `type`
   * @param {Tensor} args.y out: [rows, picks] u32
   * @param {number} args.rows number of rows
   * @param {number} args.columns elements of a sorted row
   * @param {number} args.picks values of a row
   * @param {boolean} args.shared whether all rows of values search one sorted row
   * @param {boolean} args.right whether equal elements count
   * @param {WordType} args.type of the elements and of the values
   * @returns {Dispatch}
   */
  function searchSorted(args) {
    const kernel = 'searchSorted';
    const [rows, columns, picks] = /** @type {const} */ (['rows', 'columns', 'picks']).map((name) => integer(kernel, name, args[name]));
    const count = integer(kernel, 'rows * picks', rows * picks);
    const [x, values, y] = /** @type {const} */ (['x', 'values', 'y']).map((name) => tensor(kernel, name, args[name]));
    context.checker?.check(
      kernel,
      [
        ['x', x, integer(kernel, 'rows * columns', args.shared ? columns : rows * columns), 'u32'],
        ['values', values, count, 'u32'],
      ],
      [['y', y, count, 'u32']],
    );
    const push = [columns, picks, args.shared ? 0 : columns, x.offset, values.offset, y.offset];
    const constants = [choice(kernel, 'type', args.type, WORD_TYPES), args.right ? 1 : 0];
    return flat('search_sorted', [x.buffer, values.buffer, y.buffer], 0b100, count, push, constants);
  }

  /**
   * y[r][index[r][k]] = source[r][k]. No two indices of a row may be equal; one outside the row is dropped. The rest of y is left as it is.
   * @param {object} args
   * @param {Tensor} args.index [rows, picks] u32
   * @param {Tensor} args.source [rows, picks] of 32-bit elements
   * @param {Tensor} args.y in and out: [rows, size] of 32-bit elements
   * @param {number} args.rows number of rows
   * @param {number} args.picks indices of a row
   * @param {number} args.size elements of a row of y
   * @returns {Dispatch}
   */
  function putRows(args) {
    const kernel = 'putRows';
    const [rows, picks, size] = /** @type {const} */ (['rows', 'picks', 'size']).map((name) => integer(kernel, name, args[name]));
    const count = integer(kernel, 'rows * picks', rows * picks);
    const [index, source, y] = /** @type {const} */ (['index', 'source', 'y']).map((name) => tensor(kernel, name, args[name]));
    context.checker?.check(
      kernel,
      [
        ['index', index, count, 'u32'],
        ['source', source, count, 'u32'],
      ],
      [['y', y, integer(kernel, 'rows * size', rows * size), 'u32']],
    );
    return flat('put_rows', [index.buffer, source.buffer, y.buffer], 0b100, count, [picks, size, index.offset, source.offset, y.offset]);
  }

  /**
   * y[r][n] = x[r][n], combined with every source[r][k] whose index[r][k] is n, in the order of k. Each element finds its own by bisection, since
   * `order` says in which order a stable sort puts the indices.
   * @param {object} args
   * @param {Tensor} args.x [rows, size] f32
   * @param {Tensor} args.index [rows, picks] u32; one outside the row is dropped
   * @param {Tensor} args.order [rows, picks] u32, by `argSort` of the index
   * @param {Tensor} args.source [rows, picks] f32
   * @param {Tensor} args.y out: [rows, size] f32
   * @param {Tensor} args.counts out: [rows, size] u32, how many sources an element got
   * @param {number} args.rows number of rows
   * @param {number} args.size elements of a row of x
   * @param {number} args.picks indices of a row
   * @param {RunOp} args.op how they are combined
   * @param {boolean} args.apart whether an element that has sources is combined of them alone
   * @returns {Dispatch}
   * @throws {RangeError} where a CPU device would loop too often, should all indices of a row be equal
   */
  function reduceRuns(args) {
    const kernel = 'reduceRuns';
    const [rows, picks, size] = /** @type {const} */ (['rows', 'picks', 'size']).map((name) => integer(kernel, name, args[name]));
    const [all, whole] = [rows * picks, rows * size].map((n) => integer(kernel, 'rows * picks', n));
    const names = /** @type {const} */ (['x', 'index', 'order', 'source', 'y', 'counts']);
    const [x, index, order, source, y, counts] = names.map((name) => tensor(kernel, name, args[name]));
    context.checker?.check(
      kernel,
      [
        ['x', x, whole, 'u32'],
        ['index', index, all, 'u32'],
        ['order', order, all, 'u32'],
        ['source', source, all, 'u32'],
      ],
      [
        ['y', y, whole, 'u32'],
        ['counts', counts, whole, 'u32'],
      ],
    );
    // An invocation's elements of one row share its indices; those of several rows may each have all of theirs.
    const elements = ceilDiv(whole, context.strideGroups(whole, context.flatThreads) * context.flatThreads);
    context.checkRounds(
      kernel,
      `${picks} indices of a row, should they be equal,`,
      Math.min(elements, rows) * picks + elements * (3 + Math.ceil(Math.log2(picks + 1))),
    );
    return flat(
      'reduce_runs',
      [x, index, order, source, y, counts].map(({ buffer }) => buffer),
      0b110000,
      whole,
      [size, picks, args.apart ? 1 : 0, ...[x, index, order, source, y, counts].map(({ offset }) => offset)],
      [choice(kernel, 'op', args.op, RUN_OPS), 0],
    );
  }

  return { argSort, searchSorted, putRows, reduceRuns };
}
