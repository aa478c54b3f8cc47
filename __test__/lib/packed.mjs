/**
 * The two packed forms of a list of dispatches, written as trainers write them.
 *
 * @typedef {number | { buffer: number, offset?: number, size?: number }} Binding a buffer, or bytes of it
 *
 * @typedef {object} DispatchRecord
 * @property {number} pipeline
 * @property {Binding[]} [buffers]
 * @property {number[]} [groups] in x, y, z
 * @property {Uint32Array} [push]
 * @property {number} [writeMask]
 */

/** @param {DispatchRecord} record */
const filled = (record) => ({
  pipeline: record.pipeline,
  buffers: record.buffers ?? [],
  groups: [record.groups?.[0] ?? 1, record.groups?.[1] ?? 1, record.groups?.[2] ?? 1],
  push: record.push ?? new Uint32Array(0),
  writeMask: record.writeMask ?? 0,
});

/** @param {Binding} binding */
const handleOf = (binding) => (typeof binding === 'number' ? binding : binding.buffer);
/** @param {Binding[]} buffers */
const ranged = (buffers) => buffers.some((binding) => typeof binding !== 'number');
/**
 * Four words of each binding: offset and size, low halves first.
 * @param {Binding[]} buffers
 */
const ranges = (buffers) =>
  buffers.flatMap((binding) => {
    const { offset = 0, size = 0 } = typeof binding === 'number' ? {} : binding;
    return [offset, size].flatMap((value) => [value % 2 ** 32, Math.floor(value / 2 ** 32)]);
  });

/**
 * Bytes of one record in the byte form.
 * @param {DispatchRecord} record
 */
export const recordBytes = (record) => {
  const { buffers, groups, push } = filled(record);
  return 16 + (groups[2] !== 1 ? 4 : 0) + (ranged(buffers) ? 20 : 4) * buffers.length + push.byteLength;
};

/**
 * The byte form: i32 pipeline, u16 n, u16 flags, u32 gX, [u32 gZ], u32 mask, i32 × n, push bytes. With bit 15
 * of n, u64 offset and u64 size × n after the handles.
 * @param {DispatchRecord[]} records
 * @returns {ArrayBuffer}
 */
export function packBytes(records) {
  const packed = new ArrayBuffer(records.reduce((sum, record) => sum + recordBytes(record), 0));
  const view = new DataView(packed);
  let at = 0;
  const u32 = (/** @type {number} */ value) => {
    view.setUint32(at, value, true);
    at += 4;
  };
  const u16 = (/** @type {number} */ value) => {
    view.setUint16(at, value, true);
    at += 2;
  };
  for (const record of records) {
    const {
      pipeline,
      buffers,
      groups: [gX, gY, gZ],
      push,
      writeMask,
    } = filled(record);
    u32(pipeline);
    u16(buffers.length | (ranged(buffers) ? 0x8000 : 0));
    u16((gY === 1 ? 0 : gY << 1) | (gZ !== 1 ? 1 : 0));
    u32(gX);
    if (gZ !== 1) u32(gZ);
    u32(writeMask);
    for (const buffer of buffers) u32(handleOf(buffer));
    if (ranged(buffers)) for (const word of ranges(buffers)) u32(word);
    for (const word of push) u32(word);
  }
  return packed;
}

/**
 * The records of the byte form.
 * @param {ArrayBuffer | ArrayBufferView} packed @param {number} count @param {(pipeline: number) => number} pushBytesOf a pipeline's bytes of push constants
 * @returns {Required<DispatchRecord>[]}
 */
export function unpackBytes(packed, count, pushBytesOf) {
  const bytes = ArrayBuffer.isView(packed) ? new Uint8Array(packed.buffer, packed.byteOffset, packed.byteLength) : new Uint8Array(packed);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  const u32 = () => view.getUint32((at += 4) - 4, true);
  const u16 = () => view.getUint16((at += 2) - 2, true);
  const u64 = () => u32() + u32() * 2 ** 32;
  return Array.from({ length: count }, () => {
    const [pipeline, n, flags, gX] = [u32() | 0, u16(), u16(), u32()];
    const gZ = flags & 1 ? u32() : 1;
    const writeMask = u32();
    const handles = Array.from({ length: n & 0x7fff }, () => u32() | 0);
    const buffers = n & 0x8000 ? handles.map((buffer) => ({ buffer, offset: u64(), size: u64() })) : handles;
    const push = new Uint32Array(bytes.slice(at, (at += pushBytesOf(pipeline))).buffer);
    return { pipeline, buffers, groups: [gX, flags >> 1 || 1, gZ], push, writeMask };
  });
}

/**
 * Byte offset of each record in the byte form.
 * @param {DispatchRecord[]} records
 */
export function byteOffsets(records) {
  let at = 0;
  return records.map((record) => {
    const offset = at;
    at += recordBytes(record);
    return offset;
  });
}

/**
 * The word form: [count, wordsUntilPushArea], then per dispatch [pipeline, n, buffers…, gX, gY, gZ,
 * pushOffset, pushSize, writeMask], then the push area.
 * @param {DispatchRecord[]} records
 * @returns {ArrayBuffer}
 */
export function packWords(records) {
  const words = [records.length, 0];
  /** @type {number[]} */
  const area = [];
  for (const record of records) {
    const { pipeline, buffers, groups, push, writeMask } = filled(record);
    const more = ranged(buffers) ? ranges(buffers) : [];
    const n = buffers.length + (ranged(buffers) ? 2 ** 31 : 0);
    words.push(pipeline, n, ...buffers.map(handleOf), ...more, ...groups, 4 * area.length, push.byteLength, writeMask);
    area.push(...push);
  }
  words[1] = words.length;
  return Uint32Array.from([...words, ...area]).buffer;
}

/**
 * Byte offset of each record in the word form.
 * @param {DispatchRecord[]} records
 */
export function wordOffsets(records) {
  let at = 8;
  return records.map((record) => {
    const offset = at;
    const { buffers } = filled(record);
    at += 32 + (ranged(buffers) ? 20 : 4) * buffers.length;
    return offset;
  });
}
