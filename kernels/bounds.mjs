// Checks a kernel's arguments against what the kernel will touch: every tensor must lie within its buffer, and results must not overlap
// inputs or each other.

/** @typedef {import('./base.mjs').Binding} Binding */
/** @typedef {import('./base.mjs').DType} DType */
/** @typedef {import('./base.mjs').NativeModule} NativeModule */
/** @typedef {import('../index.js').BufferHandle} BufferHandle */

/**
 * The part of a tensor that a kernel touches: the tensor's name and binding, the number of elements from the first to the last, and their
 * type. For rows with gaps between them also the elements from row to row (`stride`) and those of a row (`width`).
 * @typedef {readonly [name: string, tensor: { buffer: Binding, offset: number }, elements: number, type: DType | 'u32' | 'i8',
 *   stride?: number, width?: number]} Extent
 */

/** Entries of the cache of buffer sizes: a handle's entry is its value modulo this. */
const KEPT = 1024;

/** Checks the arguments of the kernels on one native module. */
export class Checker {
  /** @param {Pick<NativeModule, 'bufferBytes'>} vk */
  constructor(vk) {
    this.vk = vk;
    // No handle is issued twice, so a cached size stays true. If the buffer has been destroyed since, the dispatch reports it.
    this.handles = new Int32Array(KEPT).fill(-1);
    this.sizes = new Float64Array(KEPT);
    /** The buffer handles of a call's extents. @type {number[]} */
    this.found = [];
  }

  /**
   * Throws a RangeError unless every tensor lies within its buffer and no written one overlaps another tensor.
   * @param {string} kernel
   * @param {readonly Extent[]} reads
   * @param {readonly Extent[]} writes tensors that are written, whether they are also read or not
   * @param {readonly Extent[]} [inPlace] written tensors that may coincide exactly with one of `reads`, because the same invocation reads
   *   each element before it writes it
   */
  check(kernel, reads, writes, inPlace = NONE) {
    // Handles are compared first, so that most pairs take one comparison.
    const { found } = this;
    const [first, last] = [reads.length + inPlace.length, reads.length + inPlace.length + writes.length];
    for (let i = 0; i < last; i++) {
      const extent = i < reads.length ? reads[i] : i < first ? inPlace[i - reads.length] : writes[i - first];
      const handle = this.holds(kernel, extent);
      if (i >= reads.length) {
        for (let j = 0; j < i; j++) {
          if (found[j] !== handle) continue;
          const other = j < reads.length ? reads[j] : j < first ? inPlace[j - reads.length] : writes[j - first];
          const whole = i < first && j < reads.length && coincide(extent, other);
          if (!whole && overlap(extent, other)) throw overlapping(kernel, extent, other);
        }
      }
      found[i] = handle;
    }
  }

  /** Throws unless the tensor lies within its buffer. @param {string} kernel @param {Extent} extent @returns {BufferHandle} its buffer */
  holds(kernel, extent) {
    const { buffer, offset } = extent[1];
    const end = (offset + extent[2]) * bytesOf(extent[3]);
    const ranged = typeof buffer === 'object';
    const handle = ranged ? buffer.buffer : buffer;
    let room = this.bytes(kernel, extent[0], handle);
    if (ranged) room = Math.min(room - (buffer.offset ?? 0), buffer.size ?? Infinity);
    if (end > room) {
      throw new RangeError(
        `${kernel}: ${extent[0]} needs ${extent[2]} elements of ${extent[3]} from element ${offset} on, up to byte ${end}; ` +
          `its ${ranged ? 'range' : 'buffer'} has ${Math.max(room, 0)} bytes`,
      );
    }
    return handle;
  }

  /** The size of a buffer in bytes. @param {string} kernel @param {string} name @param {BufferHandle} handle @returns {number} */
  bytes(kernel, name, handle) {
    const place = handle & (KEPT - 1);
    if (this.handles[place] === handle) return this.sizes[place];
    let bytes;
    try {
      bytes = this.vk.bufferBytes(handle);
    } catch (cause) {
      const { code } = /** @type {{ code?: string }} */ (cause);
      if (code !== 'ERR_HELIOS_INVALID_HANDLE') throw cause;
      const error = new RangeError(`${kernel}: ${name}: no buffer has the handle ${handle} (never created, or destroyed)`, { cause });
      throw Object.assign(error, { code, call: kernel, argument: name, value: String(handle) });
    }
    this.handles[place] = handle;
    this.sizes[place] = bytes;
    return bytes;
  }
}

/** @type {readonly Extent[]} */
const NONE = [];

/**
 * The extent of `rows` rows of `width` elements, one every `stride` elements; or of `batch` such matrices, one every `step` elements.
 * @param {string} name @param {{ buffer: Binding, offset: number }} tensor @param {DType} type
 * @param {number} rows @param {number} width @param {number} stride @param {number} [batch] @param {number} [step]
 * @returns {Extent}
 */
export function rowsOf(name, tensor, type, rows, width, stride, batch = 1, step = 0) {
  const one = (rows - 1) * stride + width;
  const elements = (batch - 1) * step + one;
  // Matrices without a gap between them are just more rows. Otherwise each matrix counts as one long row.
  return batch === 1 || step === rows * stride ? [name, tensor, elements, type, stride, width] : [name, tensor, elements, type, step, one];
}

/** @param {DType | 'u32' | 'i8'} type */
const bytesOf = (type) => (type === 'f16' || type === 'bf16' ? 2 : type === 'i8' ? 1 : 4);

/** @param {{ buffer: Binding }} tensor */
export const handleOf = ({ buffer }) => (typeof buffer === 'object' ? buffer.buffer : buffer);

/** The byte of its buffer at which a tensor begins. @param {{ buffer: Binding, offset: number }} tensor @param {DType | 'u32' | 'i8'} type */
export const firstByte = ({ buffer, offset }, type) => (typeof buffer === 'object' ? (buffer.offset ?? 0) : 0) + offset * bytesOf(type);

/** The same of an extent. @param {Extent} extent */
const startOf = ([, tensor, , type]) => firstByte(tensor, type);

/** Whether two extents are the same tensor. @param {Extent} a @param {Extent} b */
const coincide = (a, b) => startOf(a) === startOf(b) && a[2] === b[2] && bytesOf(a[3]) === bytesOf(b[3]) && a[4] === b[4] && a[5] === b[5];

/** The error for extents that overlap. @param {string} kernel @param {Extent} written @param {Extent} other */
function overlapping(kernel, written, other) {
  const span = (/** @type {Extent} */ extent) => {
    const start = startOf(extent);
    return `${extent[0]}, bytes ${start} to ${start + extent[2] * bytesOf(extent[3])}`;
  };
  const spans = `${span(written)}, and ${span(other)}, of the buffer ${handleOf(written[1])}`;
  return new RangeError(`${kernel}: ${written[0]} is written and must not overlap ${other[0]}: ${spans}`);
}

/**
 * Whether two extents of one buffer have bytes in common. Rows may lie in the gaps of other rows: with one stride this is computed; with
 * different strides the rows are assumed not to overlap.
 * @param {Extent} a @param {Extent} b
 */
function overlap(a, b) {
  const [first, second] = startOf(a) <= startOf(b) ? [a, b] : [b, a];
  const from = startOf(second) - startOf(first);
  const bytes = bytesOf(first[3]);
  const other = bytesOf(second[3]);
  if (from >= first[2] * bytes) return false;
  const stride = (first[4] ?? 0) * bytes;
  const secondStride = (second[4] ?? 0) * other;
  if (stride === 0 && secondStride === 0) return true;
  if (stride === secondStride) {
    // Where a row of the second begins relative to a row of the first, and whether it reaches the next one.
    const at = from % stride;
    return at < (first[5] ?? 0) * bytes || at + (second[5] ?? 0) * other > stride;
  }
  if (secondStride === 0) {
    // The second is contiguous: it overlaps if it begins within a row of the first, or reaches the next one.
    const at = from % stride;
    return at < (first[5] ?? 0) * bytes || at + second[2] * other > stride;
  }
  // A contiguous first ends past the begin of the second, as was checked above.
  return stride === 0;
}
