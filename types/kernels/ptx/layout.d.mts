// Made by `npm run types` from kernels/; do not edit.
/**
 * The chunk of a line at which logical chunk `chunk` lies. Lines of 128 bytes permute by the line's number modulo 8, of
 * 64 bytes by that of its pair modulo 4, of 32 bytes by that of its four modulo 2: eight chunks that follow each other in
 * memory, or the same chunk of eight lines, are in eight different groups of banks.
 * @param {number} bytes of a line: 32, 64 or 128 @param {number} line @param {number} chunk
 */
export function swizzledChunk(bytes: number, line: number, chunk: number): number;
/**
 * A `wgmma` matrix descriptor in two words. `low` holds the address (its part is added at run time) and the leading
 * offset, `high` the stride offset and the swizzle. K-major: the stride leads from eight rows to the next eight, the
 * leading offset is not used. MN-major: the stride leads from eight k to the next eight, the leading offset from 64 rows or
 * columns to the next 64.
 * @param {Major} major @param {number} bk
 */
export function descriptor(major: Major, bk: number): {
    low: number;
    high: number;
};
/**
 * Byte of element (`x`, `k`) of a stage, where `x` is its row or column: what `wgmma` reads through the descriptor.
 * @param {Major} major @param {number} bk @param {number} x @param {number} k
 */
export function elementOffset(major: Major, bk: number, x: number, k: number): number;
/**
 * A matrix whose rows are shuffled: in each 32 elements of a row position p holds element `columnOf(p)`. A 16-bit copy of weights
 * W [out, in] in this order serves two products by the copy engine: as B of x Wᵀ, whose depth it is, and as B of dy W, whose columns. Since
 * `columnOf` swaps two pairs of bits, a second time brings the natural order back.
 * @template {Uint16Array | Float32Array | Float64Array} T
 * @param {T} elements rows one behind the other
 * @param {number} columns elements of a row, a multiple of 32
 * @returns {T} a new one
 */
export function shuffleRows<T extends Uint16Array | Float32Array | Float64Array>(elements: T, columns: number): T;
/**
 * How `threads` threads move a stage of an operand, chunk by chunk: thread t moves chunks t, t + threads, … of shared memory,
 * which no two lanes of a quarter warp find in the same banks. For each: its line relative to the thread's first, and the
 * row or column and depth of the operand, relative to those of the thread's first chunk.
 * @param {object} options
 * @param {Major} options.major @param {number} options.bk
 * @param {number} options.extent rows or columns of the tile
 * @param {number} options.threads
 * @param {boolean} options.permuteX whether rows lie in the order of `columnOf` (K-major only: MN-major ones spread a chunk)
 * @param {boolean} options.permuteK whether depths lie in the order of `depthOf` (MN-major only, likewise)
 */
export function moves({ major, bk, extent, threads, permuteX, permuteK }: {
    major: Major;
    bk: number;
    extent: number;
    threads: number;
    permuteX: boolean;
    permuteK: boolean;
}): {
    line: number;
    x: number;
    k: number;
}[];
/** Bytes of a chunk. */
export const CHUNK: 16;
/** Most shared memory of a block, in bytes: launches through VK_NVX_binary_import lose the device with more. */
export const SHARED_MEMORY_LIMIT: 49152;
/** Bytes of a line of shared memory, over which the swizzle permutes chunks. @param {Major} major @param {number} bk */
export function lineBytes(major: Major, bk: number): number;
/** Bytes by which a descriptor's address moves for the next 16 of the depth. @param {Major} major */
export function depthStep(major: Major): number;
/** Bytes from 64 rows of A to the next 64, of either form. @param {number} bk */
export function rowBlockBytes(bk: number): number;
/**
 * Column of the product that column `x` of the tile holds. A lane of a quad has columns 8j + 2q + e of an accumulator
 * (j-th eight, quad lane q, e of 0 and 1): with B's columns in this order these are 8q + 2j + e, eight neighbours over four j.
 * @param {number} x
 */
export function columnOf(x: number): number;
/**
 * Depth that position `k` of a stage holds where A comes from registers. There a lane of a quad has depths 2q + e and
 * 8 + 2q + e of each 16: in this order the four pairs that it has of 32 are 8q + e, 8q + 2 + e, 8q + 4 + e, 8q + 6 + e, one chunk.
 * It is the same permutation as that of columns.
 */
export function depthOf(x: number): number;
/**
 * which index is contiguous in memory
 */
export type Major = "k" | "mn";
