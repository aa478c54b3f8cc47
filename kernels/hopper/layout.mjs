// The layouts of operands in shared memory for `wgmma`, as pure functions: swizzles, matrix descriptors, fragments, and the orders of rows,
// columns and depth that make every access 16 bytes wide and free of bank conflicts.
//
// A stage of an operand has one of two layouts. K-major, with the depth contiguous (A of NN and NT, B of NT): a row holds its `bk` halves,
// 2·bk bytes. MN-major, with rows or columns contiguous (A of TN, B of NN and TN): a line holds 64 of them at one depth, 128 bytes, and
// blocks of 64 follow each other, `bk` lines each.
// A chunk is 16 bytes, eight halves. A lane moves one at a time, and a swizzle permutes them.

/** Bytes of a chunk. */
export const CHUNK = 16;
/** Most shared memory of a block, in bytes: launches through VK_NVX_binary_import lose the device with more. */
export const SHARED_MEMORY_LIMIT = 49152;

/** @typedef {'k' | 'mn'} Major which index is contiguous in memory */

/** Bytes of a line of shared memory, over which the swizzle permutes chunks. @param {Major} major @param {number} bk */
export const lineBytes = (major, bk) => (major === 'k' ? 2 * bk : 128);

/**
 * Where logical chunk `chunk` of a line lies. The swizzle is an XOR with the number of the line (lines of 128 bytes, modulo 8), of its pair
 * (64 bytes, modulo 4) or of its four (32 bytes, modulo 2). Then eight consecutive chunks, and the same chunk of eight lines, lie in eight
 * different groups of banks.
 * @param {number} bytes bytes of a line: 32, 64 or 128 @param {number} line @param {number} chunk
 */
export function swizzledChunk(bytes, line, chunk) {
  if (bytes === 128) return chunk ^ (line & 7);
  if (bytes === 64) return chunk ^ ((line >> 1) & 3);
  return chunk ^ ((line >> 2) & 1);
}

/** The swizzle mode, bits 62 and 63 of a descriptor, by bytes of a line. */
const SWIZZLE_MODE = /** @type {Record<number, number>} */ ({ 128: 1, 64: 2, 32: 3 });

/**
 * A `wgmma` matrix descriptor in two words. `low` holds the address, which is added at run time, and the leading offset; `high` holds the stride
 * offset and the swizzle. K-major: the stride is the distance from eight rows to the next eight, and the leading offset is not used. MN-major:
 * the stride is the distance from eight depths to the next eight, the leading offset that from 64 rows or columns to the next 64.
 * @param {Major} major @param {number} bk
 */
export function descriptor(major, bk) {
  const line = lineBytes(major, bk);
  const leading = major === 'k' ? 16 : bk * 128;
  const stride = 8 * line;
  return { low: (leading >> 4) << 16, high: ((stride >> 4) | (SWIZZLE_MODE[line] << 30)) >>> 0 };
}

/** Bytes that a descriptor's address advances for the next 16 of the depth. @param {Major} major */
export const depthStep = (major) => (major === 'k' ? 32 : 16 * 128);

/** Bytes from 64 rows of A to the next 64, in either layout. @param {number} bk */
export const rowBlockBytes = (bk) => 64 * 2 * bk;

/**
 * The byte at which `wgmma` reads element (`x`, `k`) of a stage through the descriptor; `x` is a row or column, `k` the depth.
 * @param {Major} major @param {number} bk @param {number} x @param {number} k
 */
export function elementOffset(major, bk, x, k) {
  const bytes = lineBytes(major, bk);
  const [line, position] = major === 'k' ? [x, k] : [(x >> 6) * bk + k, x & 63];
  return line * bytes + swizzledChunk(bytes, line, position >> 3) * CHUNK + (position & 7) * 2;
}

/**
 * The column of the product that column `x` of the tile holds. Lane q of a quad has columns 8j + 2q + e of an accumulator, for group j of eight
 * columns and e = 0, 1. With B's columns in this order they are columns 8q + 2j + e of the product: eight neighbours over four j.
 * @param {number} x
 */
export const columnOf = (x) => (x & ~31) | (((x >> 1) & 3) << 3) | (((x >> 3) & 3) << 1) | (x & 1);

/**
 * The depth that position `k` of a stage holds if A comes from registers. Lane q of a quad has positions 2q + e and 8 + 2q + e of each 16. In this
 * order its four pairs of 32 are depths 8q + e, 8q + 2 + e, 8q + 4 + e and 8q + 6 + e: one chunk. The permutation is that of columns.
 */
export const depthOf = columnOf;

/**
 * Permutes the rows of a matrix: in each 32 elements of a row, position p gets element `columnOf(p)`. A 16-bit copy of weights W [out, in] in this
 * order serves two products by the copy engine: as B of x Wᵀ, where rows are the depth, and as B of dy W, where they are columns. `columnOf`
 * swaps two pairs of bits, so that a second call restores the natural order.
 * @template {Uint16Array | Float32Array | Float64Array} T
 * @param {T} elements the matrix, row-major and dense
 * @param {number} columns elements of a row, a multiple of 32
 * @returns {T} a new array
 */
export function permuteRows(elements, columns) {
  if (!Number.isInteger(columns) || columns < 32 || columns % 32 || elements.length % columns)
    throw new RangeError(
      `permuteRows: expected whole rows of columns = ${columns} elements, a multiple of 32, got ${elements.length} elements`,
    );
  const permuted = /** @type {T} */ (elements.slice());
  for (let i = 0; i < elements.length; i++) permuted[i] = elements[columnOf(i)];
  return permuted;
}

/**
 * How `threads` threads move a stage of an operand, chunk by chunk. Thread t moves chunks t, t + threads, … of shared memory, so that no two lanes
 * of a quarter warp use the same banks. Each entry has the chunk's line, and its row or column and depth in the operand, all relative to the
 * thread's first chunk.
 * @param {object} options
 * @param {Major} options.major @param {number} options.bk
 * @param {number} options.extent rows or columns of the tile
 * @param {number} options.threads
 * @param {boolean} options.permuteX whether rows are in the order of `columnOf` (K-major only: MN-major, a chunk is spread instead)
 * @param {boolean} options.permuteK whether depths are in the order of `depthOf` (MN-major only, likewise)
 */
export function moves({ major, bk, extent, threads, permuteX, permuteK }) {
  const perLine = lineBytes(major, bk) / CHUNK;
  const lines = major === 'k' ? extent : (extent / 64) * bk;
  const step = threads / perLine;
  const count = lines / step;
  if (!Number.isInteger(count) || !Number.isInteger(step))
    throw new RangeError(`moves: ${lines} lines do not divide among ${threads} threads`);
  return Array.from({ length: count }, (_, i) => {
    const line = i * step;
    if (major === 'k') return { line, x: permuteX ? columnOf(line) : line, k: 0 };
    const k = line % bk;
    return { line, x: Math.floor(line / bk) * 64, k: permuteK ? depthOf(k) : k };
  });
}
