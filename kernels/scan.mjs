// Running sums, products and extremes along rows, and the same of whole rows.

import { ceilDiv, choice, integer, nextPowerOfTwo, pushConstants, tensor } from './base.mjs';

/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').Binding} Binding */
/** @typedef {import('./base.mjs').KernelContext} KernelContext */
/** Types of the elements that scans and sorts take. @typedef {'f32' | 'i32' | 'u32'} WordType */
/**
 * `sum`, `prod`; `logSumExp`: log Σ exp(x); the others give the column of the largest or smallest element, of equal ones the last or the first.
 * NaN is more extreme than any number.
 * @typedef {'sum' | 'prod' | 'logSumExp' | 'lastMax' | 'lastMin' | 'firstMax' | 'firstMin'} ScanOp
 */

const OPS = /** @type {const} */ (['sum', 'prod', 'logSumExp', 'lastMax', 'lastMin', 'firstMax', 'firstMin']);
export const WORD_TYPES = /** @type {const} */ (['f32', 'i32', 'u32']);

/**
 * @typedef {object} Scan
 * @property {Tensor} x [rows, columns] of `type`
 * @property {number} rows number of rows
 * @property {number} columns elements of a row
 * @property {ScanOp} op what is computed; `logSumExp` of f32 alone
 * @property {WordType} [type] f32 when left out. Sums and products of integers wrap
 */

/**
 * What a scan writes.
 * @typedef {object} ScanResult
 * @property {Tensor} y out: [rows, columns] of `type`; of extremes u32, the columns
 * @property {boolean} [reverse] whether the scan begins at the end of the rows; false when left out
 */

/**
 * What a reduction by a scan writes.
 * @typedef {object} TotalResult
 * @property {Tensor} y out: [rows] of `type`; of extremes u32, the columns
 */

/** @param {KernelContext} context */
export function scanKernels(context) {
  /**
   * How workgroups take rows: `lanes` invocations take a block of lanes · each elements.
   * @param {number} rows @param {number} columns
   */
  function planOf(rows, columns) {
    const threads = context.isCpu ? 8 : context.threadsUpTo(256);
    // Enough rows for a CPU's lanes: each takes one from end to end.
    if (context.isCpu && rows >= threads && columns <= 4096) return { threads, lanes: 1, each: columns };
    const each = context.isCpu ? 64 : 8;
    return { threads, lanes: Math.min(threads, nextPowerOfTwo(ceilDiv(columns, each))), each };
  }

  /** The level of a scan: its elements are those of x, or (level 1 on) states of blocks. @typedef {Required<Scan> & { level: number }} Level */

  /**
   * @param {string} kernel @param {Level} scan @param {string} suffix @param {Binding[]} buffers @param {number} yAt @param {boolean} reverse
   * @returns {Dispatch}
   */
  function dispatch(kernel, { rows, columns, op, type, level, x }, suffix, buffers, yAt, reverse) {
    const { threads, lanes, each } = planOf(rows, columns);
    const blocks = ceilDiv(columns, lanes * each);
    const units = integer(kernel, 'rows * blocks', rows * blocks);
    const groups = context.strideGroups(units, threads / lanes);
    const rounds = ceilDiv(units, (groups * threads) / lanes);
    context.checkRounds(kernel, `${rows} rows of ${columns}`, rounds * (3 + 2 * each + Math.log2(lanes)));
    return context.dispatch(`scan${level > 0 ? '_states' : ''}${suffix}`, {
      buffers,
      writes: 0b10,
      groups,
      specialization: [threads, lanes, choice(kernel, 'op', op, OPS), choice(kernel, 'type', type, WORD_TYPES), context.propagatesNan],
      push: pushConstants([rows, columns, blocks, each, reverse ? 1 : 0, tensor(kernel, 'x', x).offset, yAt]),
    });
  }

  /** Blocks of a row. @param {Level} scan */
  function blocksOf({ rows, columns }) {
    const { lanes, each } = planOf(rows, columns);
    return ceilDiv(columns, lanes * each);
  }

  /** Memory for a state of each block. @param {string} name @param {Level} scan */
  const states = (name, scan) => context.workspace(`${name} ${scan.level}`, 8 * scan.rows * blocksOf(scan));

  /** @param {string} kernel @param {Level} scan @param {Binding} y @param {number} yAt @param {boolean} reverse @returns {Dispatch[]} */
  function running(kernel, scan, y, yAt, reverse) {
    const { buffer: x } = tensor(kernel, 'x', scan.x);
    const blocks = blocksOf(scan);
    // A row of one block has none before it: the kernel does not read what stands for them.
    if (blocks === 1) return [dispatch(kernel, scan, '', [x, y, x], yAt, reverse)];
    const [totals, carry] = [states('scan totals', scan), states('scan carry', scan)];
    return [
      dispatch(kernel, scan, '_totals', [x, totals], 0, reverse),
      ...running(kernel, { ...scan, x: totals, columns: blocks, level: scan.level + 1 }, carry, 0, false),
      dispatch(kernel, scan, '', [x, y, carry], yAt, reverse),
    ];
  }

  /** @param {string} kernel @param {Level} scan @param {Binding} y @param {number} yAt @returns {Dispatch[]} */
  function reduced(kernel, scan, y, yAt) {
    const { buffer: x } = tensor(kernel, 'x', scan.x);
    const blocks = blocksOf(scan);
    if (blocks === 1) return [dispatch(kernel, scan, '_final', [x, y], yAt, false)];
    const totals = states('scan totals', scan);
    return [
      dispatch(kernel, scan, '_totals', [x, totals], 0, false),
      ...reduced(kernel, { ...scan, x: totals, columns: blocks, level: scan.level + 1 }, y, yAt),
    ];
  }

  /** @param {string} kernel @param {Scan} args @returns {Level} */
  function levelOf(kernel, args) {
    const rows = integer(kernel, 'rows', args.rows);
    const columns = integer(kernel, 'columns', args.columns);
    integer(kernel, 'rows * columns', rows * columns);
    const { type = 'f32', op } = args;
    if (op === 'logSumExp' && type !== 'f32') throw new RangeError(`${kernel}: logSumExp takes f32, got ${type}`);
    return { x: args.x, rows, columns, op, type, level: 0 };
  }

  /**
   * y[r][c] = op(x[r][0 … c]): the result so far, at each element; with `reverse` op(x[r][c …]), from the end. Sums carry what their additions
   * lose. Long rows are scanned in blocks, and then the blocks' results, so the work is proportional to the elements.
   * @param {Scan & ScanResult} args
   * @returns {Dispatch[]}
   */
  function scanRows(args) {
    const kernel = 'scanRows';
    const scan = levelOf(kernel, args);
    const y = tensor(kernel, 'y', args.y);
    const count = scan.rows * scan.columns;
    context.checker?.check(kernel, [['x', tensor(kernel, 'x', args.x), count, 'u32']], [['y', y, count, 'u32']]);
    return running(kernel, scan, y.buffer, y.offset, args.reverse === true);
  }

  /**
   * y[r] = op(x[r]), by the states of `scanRows`.
   * @param {Scan & TotalResult} args
   * @returns {Dispatch[]}
   */
  function totalRows(args) {
    const kernel = 'totalRows';
    const scan = levelOf(kernel, args);
    const y = tensor(kernel, 'y', args.y);
    context.checker?.check(kernel, [['x', tensor(kernel, 'x', args.x), scan.rows * scan.columns, 'u32']], [['y', y, scan.rows, 'u32']]);
    return reduced(kernel, scan, y.buffer, y.offset);
  }

  return { scanRows, totalRows };
}
