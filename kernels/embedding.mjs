// Token embeddings and their gradient; learned and rotary positions.

import { accessWidth, bytesOf, ceilDiv, finite, integer, pushConstants, tensor, typePair } from './base.mjs';
import { columnSums } from './reduction.mjs';

/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./base.mjs').DType} DType */
/** @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').KernelContext} KernelContext */
/** @typedef {import('./bounds.mjs').Extent} Extent */

/**
 * @typedef {object} EmbeddingForward
 * @property {Tensor} ids [tokens] u32; an id outside the vocabulary reads a row of zeros
 * @property {Tensor} table [vocabulary, columns] of `type`
 * @property {Tensor} y out: [tokens, columns] of `outType`
 * @property {number} tokens number of tokens, of all sequences
 * @property {number} columns elements of a row
 * @property {number} vocabulary rows of the table
 * @property {Tensor} [position] [positions, columns] of `type`, learned positions, which are added
 * @property {number} [positions] length of a sequence: token t has position firstPosition + t mod positions; needed
 *   with `position`
 * @property {number} [firstPosition] 0 when left out
 * @property {DType} [type] f32 when left out
 * @property {DType} [outType] `type` when left out
 */

/**
 * @typedef {object} EmbeddingBackward
 * @property {Tensor} ids [tokens] u32
 * @property {Tensor} dy [tokens, columns] of `type`
 * @property {Tensor} dTable in and out: [vocabulary, columns] f32
 * @property {number} tokens number of tokens, of all sequences
 * @property {number} columns elements of a row
 * @property {number} vocabulary rows of the table
 * @property {number} [beta] factor on what the table held; 1 (accumulate) when left out. Rows whose id does not occur keep their values. To
 *   overwrite the whole table, fill it with 0 first
 * @property {DType} [type] of dy; f32 when left out
 * @property {Tensor} [workspace] 2 · tokens u32, at an even offset; the kernels' own when left out
 */

/**
 * @typedef {object} Rope
 * @property {Tensor} x in and out: [rows, rowStride], each row beginning with its heads, for example the fused [rows, q | k | v]
 * @property {Tensor} table [positions, headSize / 2, 2] f32, from `ropeTable`
 * @property {number} rows batch · positions
 * @property {number} heads consecutive heads of a row that are rotated: those of q and k together
 * @property {number} headSize even
 * @property {number} rowStride elements from row to row
 * @property {number} positions length of a sequence: row r has position firstPosition + r mod positions. With `places`: rows of the table
 * @property {number} [firstPosition] 0 when left out
 * @property {Tensor} [places] [rows] u32: each row's position; one past the table counts as its last. Not with `firstPosition`
 * @property {boolean} [interleaved] whether channels 2i and 2i + 1 are a pair; when left out i and i + headSize / 2 are
 * @property {DType} [type] f32 when left out
 */

/** @param {KernelContext} context */
export function embeddingKernels(context) {
  /**
   * y[t] = table[ids[t]], plus position[firstPosition + t mod positions] where `position` is given.
   * @param {EmbeddingForward} args
   * @returns {Dispatch}
   */
  function embeddingForward(args) {
    const kernel = 'embeddingForward';
    const { type = 'f32', outType = type } = args;
    const tokens = integer(kernel, 'tokens', args.tokens);
    const columns = integer(kernel, 'columns', args.columns);
    const vocabulary = integer(kernel, 'vocabulary', args.vocabulary);
    integer(kernel, 'tokens * columns', tokens * columns);
    integer(kernel, 'vocabulary * columns', vocabulary * columns);
    const learned = args.position !== undefined;
    const ids = tensor(kernel, 'ids', args.ids);
    const table = tensor(kernel, 'table', args.table);
    const y = tensor(kernel, 'y', args.y);
    const position = learned ? tensor(kernel, 'position', args.position) : { buffer: 0, offset: 0 };
    const positions = learned ? integer(kernel, 'positions', args.positions) : 1;
    const firstPosition = integer(kernel, 'firstPosition', args.firstPosition ?? 0, 0);
    const types = typePair(kernel, type, outType);
    const { width, suffix } = accessWidth(kernel, [type, outType], {
      columns,
      'table.offset': table.offset,
      'y.offset': y.offset,
      'position.offset': position.offset,
    });
    if (context.checker) {
      /** @type {Extent[]} */
      const reads = [
        ['ids', ids, tokens, 'u32'],
        ['table', table, vocabulary * columns, type],
      ];
      if (learned) reads.push(['position', position, (firstPosition + Math.min(positions, tokens)) * columns, type]);
      context.checker.check(kernel, reads, [['y', y, tokens * columns, outType]]);
    }
    const vectors = columns / width;
    const threads = context.flatThreads;
    const buffers = [ids.buffer, table.buffer, y.buffer];
    if (learned) buffers.push(position.buffer);
    return context.dispatch(`embedding${learned ? '_position' : ''}_forward_${types}${suffix}`, {
      buffers,
      writes: 0b100,
      groups: Math.min(context.strideGroups(tokens * vectors, threads), context.residentGroups),
      specialization: [threads],
      push: pushConstants([
        tokens,
        vectors,
        vocabulary,
        positions,
        firstPosition,
        ids.offset,
        table.offset / width,
        y.offset / width,
        position.offset / width,
      ]),
    });
  }

  /**
   * dTable[id] = beta · dTable[id] + Σ dy[t] over the tokens t with that id. The device sorts the tokens by id, and sums
   * the tokens of each id in their order, without atomics.
   * @param {EmbeddingBackward} args
   * @returns {Dispatch[]}
   * @throws {RangeError} on a CPU device for more than about 519,000 tokens (docs/drivers.md)
   */
  function embeddingBackward(args) {
    const kernel = 'embeddingBackward';
    const { type = 'f32', beta = 1 } = args;
    bytesOf(type);
    const tokens = integer(kernel, 'tokens', args.tokens);
    const columns = integer(kernel, 'columns', args.columns);
    const vocabulary = integer(kernel, 'vocabulary', args.vocabulary);
    integer(kernel, 'tokens * columns', tokens * columns);
    integer(kernel, 'vocabulary * columns', vocabulary * columns);
    const ids = tensor(kernel, 'ids', args.ids);
    const dy = tensor(kernel, 'dy', args.dy);
    const dTable = tensor(kernel, 'dTable', args.dTable);
    const places =
      args.workspace === undefined
        ? { buffer: context.workspace('embedding', 8 * tokens), offset: 0 }
        : tensor(kernel, 'workspace', args.workspace);
    if (places.offset % 2) throw new RangeError(`${kernel}: workspace.offset must be even, got ${places.offset}`);
    const { width, suffix } = accessWidth(kernel, [type], {
      columns,
      'dy.offset': dy.offset,
      'dTable.offset': dTable.offset,
    });
    context.checker?.check(
      kernel,
      [
        ['ids', ids, tokens, 'u32'],
        ['dy', dy, tokens * columns, type],
      ],
      [
        ['dTable', dTable, vocabulary * columns, 'f32'],
        ['workspace', places, 2 * tokens, 'u32'],
      ],
    );
    const vectors = columns / width;
    const threads = 64;
    const groups = context.strideGroups(tokens, 1);
    // Only the device knows how often an id occurs: this counts as if all tokens had the same. Eight are summed at a time, then the rest.
    const rounds = Math.floor(tokens / 8) + 7 + 3 * ceilDiv(tokens, groups);
    context.checkRounds(kernel, `${tokens} tokens, should they have one id,`, rounds);
    return [
      context.dispatch('embedding_sort', {
        buffers: [ids.buffer, places.buffer],
        writes: 0b10,
        groups: context.strideGroups(tokens, 32),
        specialization: [context.isCpu ? 2 : context.threadsUpTo(256) / 32],
        push: pushConstants([tokens, ids.offset, places.offset / 2]),
      }),
      context.dispatch(`embedding_backward_${type}${suffix}`, {
        buffers: [ids.buffer, places.buffer, dy.buffer, dTable.buffer],
        writes: 0b1000,
        groups: [groups, ceilDiv(vectors, threads), 1],
        specialization: [threads],
        push: pushConstants(
          [tokens, vectors, vocabulary, ids.offset, places.offset / 2, dy.offset / width, dTable.offset / width],
          [finite(kernel, 'beta', beta)],
        ),
      }),
    ];
  }

  /**
   * dPosition[p] = beta · dPosition[p] + Σ dy[b, p] over the batch: the gradient of learned positions.
   * @param {object} args
   * @param {Tensor} args.dy [batch, positions, columns] of `type`
   * @param {Tensor} args.dPosition in and out: [positions, columns] f32
   * @param {number} args.batch number of sequences
   * @param {number} args.positions length of a sequence
   * @param {number} args.columns elements of a row
   * @param {number} [args.beta] 0 (overwrite) when left out
   * @param {DType} [args.type] f32 when left out
   * @returns {Dispatch[]}
   */
  function positionBackward(args) {
    const kernel = 'positionBackward';
    const { type = 'f32', beta = 0 } = args;
    const positions = integer(kernel, 'positions', args.positions);
    const columns = integer(kernel, 'columns', args.columns);
    const batch = integer(kernel, 'batch', args.batch);
    context.checker?.check(
      kernel,
      [['dy', tensor(kernel, 'dy', args.dy), batch * positions * columns, type]],
      [['dPosition', tensor(kernel, 'dPosition', args.dPosition), positions * columns, 'f32']],
    );
    return columnSums(context, kernel, {
      x: args.dy,
      y: args.dPosition,
      rows: batch,
      columns: integer(kernel, 'positions * columns', positions * columns),
      type,
      alpha: 1,
      beta: finite(kernel, 'beta', beta),
    });
  }

  /** @param {string} kernel @param {Rope} args @param {number} direction @returns {Dispatch} */
  function rope(kernel, args, direction) {
    const { type = 'f32', interleaved = false } = args;
    const rows = integer(kernel, 'rows', args.rows);
    const heads = integer(kernel, 'heads', args.heads);
    const headSize = integer(kernel, 'headSize', args.headSize, 2);
    if (headSize % 2) throw new RangeError(`${kernel}: headSize must be even, got ${headSize}`);
    const rowStride = integer(kernel, 'rowStride', args.rowStride, heads * headSize);
    const positions = integer(kernel, 'positions', args.positions);
    integer(kernel, 'rows * rowStride', rows * rowStride);
    const x = tensor(kernel, 'x', args.x);
    const table = tensor(kernel, 'table', args.table);
    if (table.offset % 2) throw new RangeError(`${kernel}: table.offset must be even, got ${table.offset}`);
    // Interleaved pairs are read as two adjacent elements, whatever the type.
    const { width, suffix } = accessWidth(kernel, interleaved && type === 'f32' ? ['f16'] : [type], {
      [interleaved ? 'headSize' : 'headSize / 2']: interleaved ? headSize : headSize / 2,
      rowStride,
      'x.offset': x.offset,
      'table.offset': interleaved ? table.offset : 0,
    });
    const firstPosition = integer(kernel, 'firstPosition', args.firstPosition ?? 0, 0);
    const places = args.places === undefined ? undefined : tensor(kernel, 'places', args.places);
    if (places && firstPosition > 0) throw new RangeError(`${kernel}: places says every position: leave firstPosition out`);
    /** @type {Extent[]} */
    const reads = [['table', table, (places ? positions : firstPosition + Math.min(positions, rows)) * headSize, 'f32']];
    if (places) reads.push(['places', places, rows, 'u32']);
    context.checker?.check(kernel, reads, [['x', x, (rows - 1) * rowStride + heads * headSize, type, rowStride, heads * headSize]]);
    const headVectors = (interleaved ? headSize : headSize / 2) / width;
    const items = rows * heads * headVectors;
    const threads = context.flatThreads;
    return context.dispatch(`rope_${type}${interleaved ? '_interleaved' : ''}${suffix}`, {
      // Without places the kernel does not read what stands for them.
      buffers: [x.buffer, table.buffer, (places ?? table).buffer],
      writes: 0b1,
      groups: context.strideGroups(items, threads),
      specialization: [threads, places ? 1 : 0],
      push: pushConstants(
        [
          items,
          headVectors,
          heads,
          rowStride / width,
          positions,
          places ? places.offset : firstPosition,
          x.offset / width,
          table.offset / (interleaved ? width : 2),
        ],
        [direction],
      ),
    });
  }

  return {
    embeddingForward,
    embeddingBackward,
    positionBackward,
    ropeTable,
    /**
     * RoPE (Su et al. 2021), in place: rotates each pair of channels by its position's angle. (a, b) becomes (a cos - b sin, a sin + b cos).
     * @param {Rope} args
     * @returns {Dispatch}
     */
    ropeForward: (args) => rope('ropeForward', args, 1),
    /**
     * The gradient of `ropeForward`, in place: rotates by the opposite angle.
     * @param {Rope} args
     * @returns {Dispatch}
     */
    ropeBackward: (args) => rope('ropeBackward', args, -1),
  };
}

/**
 * The cosines and sines of rotary positions, [positions, headSize / 2, 2], computed in float64: pair i of position p turns by
 * p · base^(-2i / headSize) (Su et al. 2021). Kernels read a table because a device's own sine may be off by 2^-11.
 * @param {object} args
 * @param {number} args.positions rows of the table
 * @param {number} args.headSize channels of a head; even
 * @param {number} [args.base] 10000 when left out
 * @returns {Float32Array} the table to upload
 * @throws {RangeError} where headSize is odd
 */
export function ropeTable({ positions, headSize, base = 10000 }) {
  integer('ropeTable', 'positions', positions);
  integer('ropeTable', 'headSize', headSize, 2);
  if (headSize % 2) throw new RangeError(`ropeTable: headSize must be even, got ${headSize}`);
  const half = headSize / 2;
  const table = new Float32Array(positions * half * 2);
  for (let p = 0; p < positions; p++) {
    for (let i = 0; i < half; i++) {
      const angle = p * base ** ((-2 * i) / headSize);
      table[(p * half + i) * 2] = Math.cos(angle);
      table[(p * half + i) * 2 + 1] = Math.sin(angle);
    }
  }
  return table;
}
