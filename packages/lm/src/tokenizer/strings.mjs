/** A table of byte strings. Words are looked up in it as they lie in a text: a `Map` would need a string for each. */

/** Numbers per slot: the string's hash, its number + 1 (0 for an empty slot), and the start and length of its bytes. */
const FIELDS = 4;

/**
 * Copies an array into one of twice its length, or of `length` if that is more.
 * @template {Uint8Array | Int32Array | Uint32Array | Float64Array} T
 * @param {T} array @param {number} [length] @returns {T}
 */
export function grown(array, length = 0) {
  const more = new /** @type {new (length: number) => T} */ (array.constructor)(Math.max(2 * array.length, length));
  more.set(array);
  return more;
}

/**
 * A growing set of byte strings, numbered from 0 in the order in which they were added: a hash table with open addressing, at most half full.
 */
export function byteStrings() {
  let slots = new Int32Array(FIELDS << 10);
  let mask = (1 << 10) - 1;
  let bytes = new Uint8Array(1 << 13);
  let size = 0;
  let used = 0;

  /** Moves every string to its slot in a table of twice the size. */
  const rehash = () => {
    const old = slots;
    mask = 2 * mask + 1;
    slots = new Int32Array(FIELDS * (mask + 1));
    for (let from = 0; from < old.length; from += FIELDS) {
      if (old[from + 1] === 0) continue;
      let slot = old[from] & mask;
      while (slots[FIELDS * slot + 1] !== 0) slot = (slot + 1) & mask;
      for (let i = 0; i < FIELDS; i++) slots[FIELDS * slot + i] = old[from + i];
    }
  };

  /**
   * The number of the string `source[start..end)`, -1 if it is not there.
   * @param {Uint8Array} source @param {number} start @param {number} end @param {boolean} add whether to add it
   */
  const search = (source, start, end, add) => {
    const length = end - start;
    // FNV-1a (Fowler, Noll and Vo 1991); the shift mixes high bits into the low ones, which select the slot.
    let hash = 0x811c9dc5;
    for (let i = start; i < end; i++) hash = Math.imul(hash ^ source[i], 0x01000193);
    hash ^= hash >>> 15;
    let field = FIELDS * (hash & mask);
    for (;;) {
      const number = slots[field + 1];
      if (number === 0) break;
      if (slots[field] === hash && slots[field + 3] === length) {
        const at = slots[field + 2] - start;
        let i = start;
        while (i < end && bytes[at + i] === source[i]) i++;
        if (i === end) return number - 1;
      }
      field = (field + FIELDS) & (FIELDS * mask + FIELDS - 1);
    }
    if (!add) return -1;
    if (used + length > bytes.length) bytes = grown(bytes, used + length);
    slots[field] = hash;
    slots[field + 1] = size + 1;
    slots[field + 2] = used;
    slots[field + 3] = length;
    for (let i = start; i < end; i++) bytes[used++] = source[i];
    if (2 * ++size > mask) rehash();
    return size - 1;
  };

  return {
    /** The number of strings. */
    get size() {
      return size;
    },
    /** Bytes of all strings together. */
    get bytes() {
      return used;
    },
    /** The number of the string `source[start..end)`, -1 if it is not there. @param {Uint8Array} source @param {number} start @param {number} end */
    find: (source, start, end) => search(source, start, end, false),
    /** As `find`, but adds a string that is not there. @param {Uint8Array} source @param {number} start @param {number} end */
    intern: (source, start, end) => search(source, start, end, true),
    /** The bytes of all strings, end to end in the order of their numbers. */
    all: () => bytes.subarray(0, used),
    /** Removes all strings; the table keeps its memory. */
    clear() {
      slots.fill(0);
      size = used = 0;
    },
  };
}
