// Sums and other reductions, over rows, over columns and over whole tensors. Additions have a fixed order.

import {
  MAX_CPU_ROUNDS,
  accessWidth,
  bytesOf,
  ceilDiv,
  choice,
  finite,
  integer,
  nextPowerOfTwo,
  part,
  pushConstants,
  tensor,
} from './base.mjs';
import { elementwiseKernels } from './elementwise.mjs';

/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./base.mjs').DType} DType */
/** @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').Binding} Binding */
/** @typedef {import('./base.mjs').KernelContext} KernelContext */
/** @typedef {{ buffer: Binding, offset: number, count?: number }} Shard a tensor, which holds all elements where no count is given */
/** @typedef {'sum' | 'sumOfSquares' | 'max' | 'min' | 'maxAbs'} ReduceOp */

/** Threads of a reducing workgroup on a CPU device. */
const CPU_THREADS = 32;
/** Loads that a thread of `column_sum` has in flight. */
const LOADS = 8;
const OPS = /** @type {const} */ (['sum', 'sumOfSquares', 'max', 'min', 'maxAbs']);

/**
 * y = beta · y + alpha · (sum over the rows of x). With `z`, y gets the first half of the columns and z the second. Makes one dispatch, or two
 * through a workspace where there are many rows.
 * @param {KernelContext} context
 * @param {string} kernel
 * @param {{ x: Tensor, y: Tensor, z?: Tensor, rows: number, columns: number, type: DType, alpha: number,
 *   beta: number }} args
 * @returns {Dispatch[]}
 */
export function columnSums(context, kernel, args) {
  const { rows, columns, type, alpha, beta } = args;
  integer(kernel, 'rows * columns', rows * columns);
  const x = tensor(kernel, 'x', args.x);
  const y = tensor(kernel, 'y', args.y);
  const z = args.z === undefined ? undefined : tensor(kernel, 'z', args.z);
  const { width, suffix } = accessWidth(kernel, [type], {
    columns: z ? columns / 2 : columns,
    'x.offset': x.offset,
    'y.offset': y.offset,
    'z.offset': z?.offset ?? 0,
  });
  // `tx` threads read 128 adjacent bytes of a row; the other threads share the rows.
  const tx = type === 'f32' ? 8 : 16;
  // With that many loads of each thread in flight, one pass suffices for some thousand rows; with more, blocks of rows fill the device.
  const tallest = context.isCpu ? 4 : Math.min(context.info.maxComputeWorkGroupInvocations, 1024) / tx;
  const wanted = ceilDiv(context.residentGroups, ceilDiv(columns / width, tx));
  const few = rows <= 16 * tallest ? 1 : Math.max(1, Math.min(wanted, Math.floor(rows / 128)));
  const blocks = context.isCpu ? ceilDiv(rows, MAX_CPU_ROUNDS) : few;
  const height = (/** @type {number} */ rows) => Math.min(nextPowerOfTwo(context.isCpu ? rows : ceilDiv(rows, LOADS)), tallest);
  /**
   * @param {DType} from @param {{ buffer: Binding, offset: number }} source
   * @param {{ buffer: Binding, offset: number }} target @param {{ buffer: Binding, offset: number } | undefined} second
   * @param {number} count @param {number} parts @param {number[]} weights
   */
  const pass = (from, source, target, second, count, parts, weights) => {
    // Only 16-bit types are read in pairs.
    const w = from === 'f32' && width === 2 ? 1 : width;
    const vectors = columns / w;
    const buffers = [source.buffer, target.buffer];
    if (second) buffers.push(second.buffer);
    return context.dispatch(`column_sum_${from}${second ? '_pair' : ''}${suffix}`, {
      buffers,
      writes: second ? 0b110 : 0b10,
      groups: [Math.min(ceilDiv(vectors, tx), context.maxGroups), parts, 1],
      specialization: [tx, height(ceilDiv(count, parts))],
      push: pushConstants(
        [count, vectors, vectors, ceilDiv(count, parts), source.offset / w, target.offset / w, (second?.offset ?? 0) / w],
        weights,
      ),
    });
  };
  if (blocks === 1) return [pass(type, x, y, z, rows, 1, [alpha, beta])];
  const even = ceilDiv(rows, blocks);
  // Whole batches of loads: a thread's last rows would otherwise be read one after another.
  const batch = LOADS * height(even);
  const parts = ceilDiv(rows, context.isCpu ? even : Math.max(1, Math.round(even / batch)) * batch);
  const workspace = { buffer: context.workspace('column sums', 4 * parts * columns), offset: 0 };
  return [pass(type, x, workspace, undefined, rows, parts, [1, 0]), pass('f32', workspace, y, z, parts, 1, [alpha, beta])];
}

/** @param {KernelContext} context */
export function reductionKernels(context) {
  /**
   * @param {string} name @param {Uint8Array} push @param {DType} type @param {string} suffix @param {number} op
   * @param {number} groups @param {Binding[]} buffers @param {number} vectors
   */
  const reduce = (name, push, type, suffix, op, groups, buffers, vectors) =>
    context.dispatch(`${name}_${type}${suffix}`, {
      buffers,
      writes: 0b10,
      groups,
      specialization: [
        context.isCpu ? CPU_THREADS : Math.min(context.threadsUpTo(256), Math.max(32, nextPowerOfTwo(ceilDiv(vectors, 4)))),
        op,
      ],
      push,
    });

  /**
   * y[r] = beta · y[r] + alpha · op(x[r, :]): reduces each row. A mean is a sum with alpha = 1 / columns.
   * @param {object} args
   * @param {Tensor} args.x [rows, columns] of `type`
   * @param {Tensor} args.y in and out: [rows] f32
   * @param {number} args.rows number of rows
   * @param {number} args.columns elements of a row
   * @param {ReduceOp} [args.op] sum when left out
   * @param {number} [args.alpha] 1 when left out
   * @param {number} [args.beta] 0 (overwrite) when left out
   * @param {DType} [args.type] f32 when left out
   * @returns {Dispatch}
   */
  function reduceRows(args) {
    const kernel = 'reduceRows';
    const { op = 'sum', alpha = 1, beta = 0, type = 'f32' } = args;
    const rows = integer(kernel, 'rows', args.rows);
    const columns = integer(kernel, 'columns', args.columns);
    integer(kernel, 'rows * columns', rows * columns);
    const x = tensor(kernel, 'x', args.x);
    const y = tensor(kernel, 'y', args.y);
    const { width, suffix } = accessWidth(kernel, [type], { columns, 'x.offset': x.offset });
    const code = choice(kernel, 'op', op, OPS);
    context.checker?.check(kernel, [['x', x, rows * columns, type]], [['y', y, rows, 'f32']]);
    const push = pushConstants(
      [rows, columns / width, 0, x.offset / width, y.offset],
      [finite(kernel, 'alpha', alpha), finite(kernel, 'beta', beta)],
    );
    const groups = context.strideGroups(rows, 1);
    // A round takes four loads of each thread; the end of a row takes three more.
    context.checkRounds(kernel, `rows of ${columns}`, ceilDiv(rows, groups) * (4 + ceilDiv(columns / width, 4 * CPU_THREADS)));
    return reduce('reduce_rows', push, type, suffix, code, groups, [x.buffer, y.buffer], columns / width);
  }

  /**
   * y[0] = beta · y[0] + alpha · op(x): reduces all elements. A mean is a sum with alpha = 1 / count.
   * @param {object} args
   * @param {Tensor} args.x [count] of `type`
   * @param {Tensor} args.y in and out: one f32
   * @param {number} args.count elements
   * @param {ReduceOp} [args.op] sum when left out
   * @param {number} [args.alpha] 1 when left out
   * @param {number} [args.beta] 0 (overwrite) when left out
   * @param {DType} [args.type] f32 when left out
   * @returns {Dispatch[]}
   */
  function reduceAll(args) {
    const kernel = 'reduceAll';
    const { op = 'sum', alpha = 1, beta = 0, type = 'f32' } = args;
    const count = integer(kernel, 'count', args.count);
    const x = tensor(kernel, 'x', args.x);
    const y = tensor(kernel, 'y', args.y);
    const code = choice(kernel, 'op', op, OPS);
    const weights = [finite(kernel, 'alpha', alpha), finite(kernel, 'beta', beta)];
    context.checker?.check(kernel, [['x', x, count, type]], [['y', y, 1, 'f32']]);
    const first = blockReduction(context, kernel, { x, count, type, op: code });
    if (first.blocks === 1) {
      return first.dispatchesTo(y, weights);
    }
    const partial = { buffer: context.workspace('reduction', 4 * first.blocks), offset: 0 };
    // The first pass has squared, or taken absolute values: the second one adds or compares.
    const rest = op === 'sumOfSquares' ? 0 : op === 'maxAbs' ? 2 : code;
    const second = blockReduction(context, kernel, { x: partial, count: first.blocks, type: 'f32', op: rest, blocks: 1 });
    return [...first.dispatchesTo(partial, [1, 0]), ...second.dispatchesTo(y, weights)];
  }

  /**
   * y[c] = beta · y[c] + alpha · Σ x[:, c]: sums over the rows, as the gradient of a bias does.
   * @param {object} args
   * @param {Tensor} args.x [rows, columns] of `type`
   * @param {Tensor} args.y in and out: [columns] f32
   * @param {number} args.rows number of rows
   * @param {number} args.columns elements of a row
   * @param {number} [args.alpha] 1 when left out
   * @param {number} [args.beta] 0 (overwrite) when left out
   * @param {DType} [args.type] f32 when left out
   * @returns {Dispatch[]}
   */
  function columnSum(args) {
    const kernel = 'columnSum';
    const { alpha = 1, beta = 0, type = 'f32' } = args;
    bytesOf(type);
    const rows = integer(kernel, 'rows', args.rows);
    const columns = integer(kernel, 'columns', args.columns);
    context.checker?.check(
      kernel,
      [['x', tensor(kernel, 'x', args.x), rows * columns, type]],
      [['y', tensor(kernel, 'y', args.y), columns, 'f32']],
    );
    return columnSums(context, kernel, {
      x: args.x,
      y: args.y,
      rows,
      columns,
      type,
      alpha: finite(kernel, 'alpha', alpha),
      beta: finite(kernel, 'beta', beta),
    });
  }

  /**
   * y[s] = beta · y[s] + alpha · Σ x, with s = (slot + counter) mod slots. The counter is a word of device memory, so that a recorded dispatch
   * fills one slot after another. Without a counter s is `slot`.
   * @param {object} args
   * @param {Tensor} args.x [count] f32, for example the losses of rows
   * @param {Tensor} args.y in and out: [slots] f32
   * @param {number} args.count elements; one workgroup sums them, which suits up to some ten thousand
   * @param {number} [args.alpha] 1 when left out; 1 / count gives the mean
   * @param {number} [args.beta] 0 (overwrite) when left out
   * @param {number} [args.slot] 0 when left out
   * @param {number} [args.slots] number of slots; needed with a counter
   * @param {Tensor} [args.counter] one u32
   * @returns {Dispatch}
   */
  function reduceToSlot(args) {
    const kernel = 'reduceToSlot';
    const { alpha = 1, beta = 0 } = args;
    const count = integer(kernel, 'count', args.count);
    const slot = integer(kernel, 'slot', args.slot ?? 0, 0);
    const x = tensor(kernel, 'x', args.x);
    const y = tensor(kernel, 'y', args.y);
    const weights = [finite(kernel, 'alpha', alpha), finite(kernel, 'beta', beta)];
    if (args.counter === undefined) {
      context.checker?.check(kernel, [['x', x, count, 'f32']], [['y', y, slot + 1, 'f32']]);
      const at = { buffer: y.buffer, offset: y.offset + slot };
      const sum = blockReduction(context, kernel, { x, count, type: 'f32', op: 0, blocks: 1 });
      if (sum.blocks > 1) throw new RangeError(`${kernel}: ${count} elements are more than a binding of ${context.bindingBytes} bytes`);
      return sum.dispatchesTo(at, weights)[0];
    }
    const slots = integer(kernel, 'slots', args.slots);
    const counter = tensor(kernel, 'counter', args.counter);
    context.checker?.check(
      kernel,
      [
        ['x', x, count, 'f32'],
        ['counter', counter, 1, 'u32'],
      ],
      [['y', y, slots, 'f32']],
    );
    context.checkRounds(kernel, `${count} elements`, 1 + ceilDiv(count, CPU_THREADS));
    return context.dispatch('reduce_slot', {
      buffers: [x.buffer, y.buffer, counter.buffer],
      writes: 0b10,
      groups: 1,
      specialization: [context.isCpu ? CPU_THREADS : context.threadsUpTo(256)],
      push: pushConstants([count, slot, slots, x.offset, y.offset, counter.offset], weights),
    });
  }

  return { reduceRows, reduceAll, columnSum, reduceToSlot };
}

/**
 * Blocks of a reduction on a GPU: enough to fill the device with several loads for each thread; of very many elements more, since they are in
 * shards, each of which has to fill the device by itself.
 * @param {number} vectors @param {number} threads of a block
 */
const blocksOnGpu = (vectors, threads) =>
  Math.max(Math.min(1024, ceilDiv(vectors, 8 * threads)), Math.min(16_384, ceilDiv(vectors, 64 * threads)));

/**
 * Reduces `count` elements to one value per block. A tensor may exceed a binding, or lie in several buffers: its shards, in order, each a
 * multiple of four elements. Blocks have the same size in either case, so that the result has the same bits as from one buffer. A block that
 * spans shards is first copied to one place.
 * @param {KernelContext} context @param {string} kernel
 * @param {{ x: Shard | Shard[], count: number, type: DType, op: number, blocks?: number }} args
 */
export function blockReduction(context, kernel, { x, count, type, op, blocks: wanted }) {
  const given = Array.isArray(x) ? x : [x];
  const { width, suffix } = accessWidth(kernel, [type], {
    count,
    ...Object.fromEntries(
      given.flatMap((shard, i) => {
        const name = given.length === 1 ? 'x' : `x[${i}]`;
        return [
          [`${name}.offset`, shard.offset],
          [`${name}.count`, shard.count ?? count],
        ];
      }),
    ),
  });
  const vectors = count / width;
  const bytes = bytesOf(type);
  const threads = context.isCpu ? CPU_THREADS : context.threadsUpTo(256);
  const most = wanted ?? Math.max(1, context.isCpu ? Math.min(16, ceilDiv(vectors, 8 * threads)) : blocksOnGpu(vectors, threads));
  // Vectors that fit a binding, in multiples of the alignment of ranges.
  const withinBinding = (/** @type {Shard} */ shard, /** @type {number} */ elements) =>
    context.partSize(kernel, elements, [[shard, bytes]], 256 * width) / width;
  // Shards use the block size of a single buffer.
  const span = Math.min(ceilDiv(vectors, most), withinBinding(given.length === 1 ? given[0] : { buffer: 0, offset: 0 }, count));
  context.checkRounds(kernel, `${count} elements`, 4 + ceilDiv(span, 4 * CPU_THREADS));
  const blocks = ceilDiv(vectors, span);
  let end = 0;
  const shards = given.map((shard) => {
    const size = (shard.count ?? count) / width;
    const first = end;
    end += size;
    const within = withinBinding(shard, size * width);
    return {
      tensor: { buffer: shard.buffer, offset: shard.offset },
      first,
      end,
      whole: within >= size,
      blocksAtOnce: within >= size ? blocks : Math.max(1, Math.floor(within / span)),
    };
  });
  if (end !== vectors) throw new RangeError(`${kernel}: the shards must hold count = ${count} elements together, got ${end * width}`);
  const endOf = (/** @type {number} */ block) => Math.min((block + 1) * span, vectors);

  /** Some vectors of a shard, as a tensor. @param {typeof shards[number]} shard @param {number} first @param {number} size */
  const cut = ({ tensor, first: origin, whole }, first, size) =>
    whole
      ? { buffer: tensor.buffer, offset: tensor.offset + (first - origin) * width }
      : part(tensor, (first - origin) * width, size * width, bytes);

  /**
   * Reduces `groups` blocks, of which the first is number `block` and begins at `at`.
   * @param {{ buffer: Binding, offset: number }} at @param {number} block @param {number} groups
   * @param {{ buffer: Binding, offset: number }} y @param {number[]} weights alpha and beta
   */
  const reduceAt = (at, block, groups, y, weights) =>
    context.dispatch(`reduce_all_${type}${suffix}`, {
      buffers: [at.buffer, y.buffer],
      writes: 0b10,
      groups,
      specialization: [threads, op],
      push: pushConstants([groups, endOf(block + groups - 1) - block * span, span, at.offset / width, y.offset + block], weights),
    });

  /** Copies a block that spans shards to one place. @param {number} block @param {{ buffer: number, offset: number }} to */
  const gather = (block, to) => {
    const { copy } = elementwiseKernels(context);
    return shards.flatMap((shard) => {
      const first = Math.max(block * span, shard.first);
      const size = Math.min(endOf(block), shard.end) - first;
      const y = { buffer: to.buffer, offset: (first - block * span) * width };
      return size > 0 ? copy({ x: cut(shard, first, size), y, count: size * width, type }) : [];
    });
  };

  /** @param {{ buffer: Binding, offset: number }} y @param {number[]} weights alpha and beta */
  const dispatchesTo = (y, weights) => {
    /** @type {Dispatch[]} */
    const list = [];
    let block = 0;
    for (const shard of shards) {
      // The blocks that begin in this shard: those that also end in it, then one that does not.
      while (block < blocks && block * span < shard.end) {
        const inside = (shard.end === vectors ? blocks : Math.floor(shard.end / span)) - block;
        if (inside > 0) {
          const groups = Math.min(inside, shard.blocksAtOnce);
          const first = block * span;
          list.push(reduceAt(cut(shard, first, endOf(block + groups - 1) - first), block, groups, y, weights));
          block += groups;
        } else {
          const to = { buffer: context.workspace('a block across shards', bytes * span * width), offset: 0 };
          list.push(...gather(block, to), reduceAt(to, block, 1, y, weights));
          block++;
        }
      }
    }
    return list;
  };
  return { blocks, dispatchesTo };
}
