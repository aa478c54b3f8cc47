// The arithmetic of `quantizeQ8` in WebAssembly's vectors of four f32: JavaScript has none, and takes eight times as long for a number.

/** Numbers that are quantized at a time. */
export const CHUNK = 8192;

/** Where the memory of 64 KiB has 16-bit numbers, their values in f32, the quants, and the size d of each block. */
const [HALVES, FLOATS, QUANTS, SIZES] = [0, 2 * CHUNK, 6 * CHUNK, 7 * CHUNK];

/** The bytes of the instructions that are used; those of vectors begin with 0xfd. */
const CODES = /** @type {Record<string, number[]>} */ ({
  loop: [0x03, 0x40],
  'br_if 0': [0x0d, 0],
  end: [0x0b],
  'i32.add': [0x6a],
  'i32.lt_u': [0x49],
  'f32.store': [0x38, 2, 0],
  'v128.load16x4_u': [0xfd, 0x04, 1, 0],
  'v128.store': [0xfd, 0x0b, 2, 0],
  'i32x4.splat': [0xfd, 0x11],
  'f32x4.splat': [0xfd, 0x13],
  'f32x4.extract_lane 0': [0xfd, 0x1f, 0],
  // Lanes 2 3 0 1 of the first operand, and lanes 1 0 3 2.
  'swap halves': [0xfd, 0x0d, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7],
  'swap neighbours': [0xfd, 0x0d, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11],
  'i32x4.lt_s': [0xfd, 0x39],
  'i32x4.ge_s': [0xfd, 0x3f],
  'f32x4.ge': [0xfd, 0x46],
  'v128.and': [0xfd, 0x4e],
  'v128.or': [0xfd, 0x50],
  'v128.xor': [0xfd, 0x51],
  'v128.bitselect': [0xfd, 0x52],
  'i8x16.narrow_i16x8_s': [0xfd, 0x65],
  'i16x8.narrow_i32x4_s': [0xfd, 0x85, 1],
  'i32x4.shl': [0xfd, 0xab, 1],
  'i32x4.shr_s': [0xfd, 0xac, 1],
  'i32x4.add': [0xfd, 0xae, 1],
  'i32x4.sub': [0xfd, 0xb1, 1],
  'i32x4.max_s': [0xfd, 0xb8, 1],
  'f32x4.abs': [0xfd, 0xe0, 1],
  'f32x4.sub': [0xfd, 0xe5, 1],
  'f32x4.mul': [0xfd, 0xe6, 1],
  'f32x4.div': [0xfd, 0xe7, 1],
  'i32x4.trunc_sat_f32x4_s': [0xfd, 0xf8, 1],
  'f32x4.convert_i32x4_s': [0xfd, 0xfa, 1],
});

/** Instructions with an operand: an i32, an f32, the offset of a load, or a local variable. @type {Record<string, (operand: number) => number[]>} */
const WITH_OPERAND = {
  'i32.const': (value) => [0x41, ...signed(value)],
  'f32.const': (value) => [0x43, ...new Uint8Array(Float32Array.of(value).buffer)],
  'v128.load': (offset) => [0xfd, 0x00, 2, ...unsigned(offset)],
};
const LOCAL = /** @type {Record<string, number>} */ ({ get: 0x20, set: 0x21, tee: 0x22 });

/** LEB128. @param {number} value @returns {number[]} */
const unsigned = (value) => (value < 128 ? [value] : [(value & 127) | 128, ...unsigned(value >>> 7)]);
/** @param {number} value @returns {number[]} */
const signed = (value) => (value >= -64 && value < 64 ? [value & 127] : [(value & 127) | 128, ...signed(value >> 7)]);
/** @param {number[][]} items */
const vector = (items) => [...unsigned(items.length), ...items.flat()];
/** @param {number[]} bytes */
const sized = (bytes) => [...unsigned(bytes.length), ...bytes];
const name = (/** @type {string} */ text) => sized([...new TextEncoder().encode(text)]);

/**
 * A function of one parameter, an i32.
 * @param {{ i32: string[], v128: string[] }} locals the parameter first @param {string} text instructions, one a line
 */
function assemble({ i32, v128 }, text) {
  const names = [...i32, ...v128];
  const code = text.split('\n').flatMap((line) => {
    const instruction = line.trim();
    if (instruction === '') return [];
    if (Object.hasOwn(CODES, instruction)) return CODES[instruction];
    const [operation, operand] = instruction.split(' ');
    const [, access] = operation.split('.');
    if (operation.startsWith('local.')) return [LOCAL[access], names.indexOf(operand)];
    return WITH_OPERAND[operation](Number(operand));
  });
  const declared = vector([
    [i32.length - 1, 0x7f],
    [v128.length, 0x7b],
  ]);
  return sized([...declared, ...code, ...CODES.end]);
}

/** Adds to a variable. @param {string} variable @param {number} bytes */
const advance = (variable, bytes) => `
  local.get ${variable}
  i32.const ${bytes}
  i32.add
  local.set ${variable}`;

const again = `
  local.get in
  local.get end
  i32.lt_u
  br_if 0
  end`;

/** A loop over halves, four at a time, to where the parameter says; `arithmetic` makes f32 of their bits. @param {string} arithmetic */
const widening = (arithmetic) => `
  i32.const ${FLOATS}
  local.set out
  loop
  local.get out
  local.get in
  v128.load16x4_u
  ${arithmetic}
  v128.store
  ${advance('in', 8)}
  ${advance('out', 16)}
  ${again}`;

/** bf16 to f32: the bits are its upper half. */
const WIDEN_BF16 = widening(`
  i32.const 16
  i32x4.shl`);

const splat = (/** @type {number} */ value) => `i32.const ${value}
  i32x4.splat`;

/**
 * f16 to f32. A number below 2^-14 is its mantissa times 2^-24; of others the exponent is 112 more, and 112 more again where there is none
 * larger: infinities and NaN.
 */
const WIDEN_F16 = widening(`
  local.tee half
  ${splat(0x7fff)}
  v128.and
  local.tee size
  f32x4.convert_i32x4_s
  f32.const ${2 ** -24}
  f32x4.splat
  f32x4.mul
  local.get size
  i32.const 13
  i32x4.shl
  ${splat(112 << 23)}
  i32x4.add
  local.get size
  ${splat(0x7c00)}
  i32x4.ge_s
  ${splat(112 << 23)}
  v128.and
  i32x4.add
  local.get size
  ${splat(0x400)}
  i32x4.lt_s
  v128.bitselect
  local.get half
  ${splat(0x8000)}
  v128.and
  i32.const 16
  i32x4.shl
  v128.or`);

/** The sizes, as bits, of four numbers of a block. @param {number} i */
const sizes = (i) => `
  local.get in
  v128.load ${16 * i}
  ${splat(0x7fffffff)}
  v128.and`;

/** Four quants: the size is rounded with halves away from zero, then negated where the sign bit is set. @param {number} i */
const quants = (i) => `
  local.get in
  v128.load ${16 * i}
  local.tee x
  local.get inverse
  f32x4.mul
  f32x4.abs
  local.tee size
  i32x4.trunc_sat_f32x4_s
  local.tee whole
  local.get size
  local.get whole
  f32x4.convert_i32x4_s
  f32x4.sub
  f32.const 0.5
  f32x4.splat
  f32x4.ge
  i32x4.sub
  local.get x
  i32.const 31
  i32x4.shr_s
  local.tee sign
  v128.xor
  local.get sign
  i32x4.sub`;

/** Sixteen quants. @param {number} i */
const sixteen = (i) => `
  local.get out
  ${quants(i)}
  ${quants(i + 1)}
  i16x8.narrow_i32x4_s
  ${quants(i + 2)}
  ${quants(i + 3)}
  i16x8.narrow_i32x4_s
  i8x16.narrow_i16x8_s
  v128.store`;

const largest = (/** @type {string} */ swap) => `
  local.get size
  local.get size
  local.get size
  ${swap}
  i32x4.max_s
  local.set size`;

/** The blocks of 32 numbers in f32; the parameter is where these end. */
const QUANTIZE = `
  i32.const ${FLOATS}
  local.set in
  i32.const ${QUANTS}
  local.set out
  i32.const ${SIZES}
  local.set sizes
  loop
  ${sizes(0)}
  ${[1, 2, 3, 4, 5, 6, 7].map((i) => `${sizes(i)}\ni32x4.max_s`).join('')}
  local.set size
  ${largest('swap halves')}
  ${largest('swap neighbours')}
  local.get size
  f32.const 127
  f32x4.splat
  f32x4.div
  local.set size
  local.get sizes
  local.get size
  f32x4.extract_lane 0
  f32.store
  f32.const 1
  f32x4.splat
  local.get size
  f32x4.div
  local.set inverse
  ${sixteen(0)}
  ${advance('out', 16)}
  ${sixteen(4)}
  ${advance('out', 16)}
  ${advance('in', 128)}
  ${advance('sizes', 4)}
  ${again}`;

/** A module with a memory of 64 KiB and three functions of an i32, as the binary format of WebAssembly 2.0 has it. */
function moduleBytes() {
  const halves = { i32: ['end', 'in', 'out'], v128: ['half', 'size'] };
  const bodies = {
    widenF16: assemble(halves, WIDEN_F16),
    widenBf16: assemble(halves, WIDEN_BF16),
    quantize: assemble({ i32: ['end', 'in', 'out', 'sizes'], v128: ['x', 'size', 'whole', 'sign', 'inverse'] }, QUANTIZE),
  };
  const exports = Object.keys(bodies).map((each, i) => [...name(each), 0, i]);
  const sections = [
    [1, vector([[0x60, 1, 0x7f, 0]])],
    [3, vector([[0], [0], [0]])],
    [5, vector([[0, 1]])],
    [7, vector([[...name('memory'), 2, 0], ...exports])],
    [10, vector(Object.values(bodies))],
  ];
  const bytes = sections.flatMap(([id, content]) => [/** @type {number} */ (id), ...sized(/** @type {number[]} */ (content))]);
  return Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, ...bytes);
}

/**
 * Opens the arithmetic. `halves` are widened to `floats`, whose blocks are then quantized: `sizes` has d of each, and the quants are right where
 * that is finite and not subnormal.
 * @returns {{ halves: Uint16Array, floats: Float32Array, quants: Int8Array, sizes: Float32Array, widenF16: (count: number) => void,
 *   widenBf16: (count: number) => void, quantize: (count: number) => void } | undefined} counts are of numbers, a multiple of 32 above 0; undefined
 *   where the program runs without WebAssembly, as by `node --jitless`, or without addresses for its memory
 */
export function openQuantizer() {
  // Declared by DOM's types alone.
  const { WebAssembly } = /** @type {any} */ (globalThis);
  if (WebAssembly === undefined) return undefined;
  const bytes = moduleBytes();
  // Vectors need SSE 4.1 or NEON.
  if (!WebAssembly.validate(bytes)) return undefined;
  let instance;
  try {
    instance = new WebAssembly.Instance(new WebAssembly.Module(bytes));
  } catch {
    // A memory reserves gigabytes of addresses, which `ulimit -v` may not give; and a context may be one that compiles no code.
    return undefined;
  }
  const { memory, widenF16, widenBf16, quantize } = instance.exports;
  return {
    halves: new Uint16Array(memory.buffer, HALVES, CHUNK),
    floats: new Float32Array(memory.buffer, FLOATS, CHUNK),
    quants: new Int8Array(memory.buffer, QUANTS, CHUNK),
    sizes: new Float32Array(memory.buffer, SIZES, CHUNK / 32),
    widenF16: (count) => widenF16(2 * count),
    widenBf16: (count) => widenBf16(2 * count),
    quantize: (count) => quantize(FLOATS + 4 * count),
  };
}
