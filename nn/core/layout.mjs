// Layouts: a tensor's element type, shape, strides and offset in its storage. Pure.

import { ArgumentError, ShapeError, show, shown } from './errors.mjs';

/** @typedef {'f32' | 'f16' | 'bf16' | 'i32' | 'u32' | 'bool' | 'i64' | 'u8' | 'i8'} DType */

/** Bytes of an element in device memory; a `bool` is a 32-bit word of 0 or 1, an `i64` two words, the low one first. @type {Record<DType, number>} */
export const BYTES = { f32: 4, f16: 2, bf16: 2, i32: 4, u32: 4, bool: 4, i64: 8, u8: 1, i8: 1 };

/** Whether a word has several elements: kernels then write whole words. @param {DType} dtype */
export const isNarrow = (dtype) => BYTES[dtype] < 4;

/** Whether elements are bytes, which are computed as i32. @param {DType} dtype */
export const isByte = (dtype) => BYTES[dtype] === 1;

/** The least and the most that an integer type has; of i64 what a number is exact to. @type {Partial<Record<DType, [least: number, most: number]>>} */
export const RANGES = {
  i32: [-(2 ** 31), 2 ** 31 - 1],
  u32: [0, 2 ** 32 - 1],
  u8: [0, 255],
  i8: [-128, 127],
  i64: [Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER],
};

/** Whether the type is an integer type, with a range; bools are none. @param {DType} dtype */
export const isInteger = (dtype) => dtype in RANGES;

/** Whether the type is a floating-point type. @param {DType} dtype */
export const isFloat = (dtype) => dtype === 'f32' || dtype === 'f16' || dtype === 'bf16';

/** The number of elements. @param {readonly number[]} shape */
export function sizeOf(shape) {
  let size = 1;
  for (let i = 0; i < shape.length; i++) size *= shape[i];
  return size;
}

/** Row-major strides without gaps. @param {readonly number[]} shape */
export function denseStrides(shape) {
  const strides = new Array(shape.length);
  let step = 1;
  for (let i = shape.length - 1; i >= 0; i--) {
    strides[i] = step;
    step *= Math.max(shape[i], 1);
  }
  return strides;
}

/** An immutable layout. Equal layouts are the same object (see {@link layoutOf}), so `id` can be part of a cache key. */
export class Layout {
  /** @param {number[]} shape @param {number[]} strides @param {number} offset @param {DType} dtype @param {number} id */
  constructor(shape, strides, offset, dtype, id) {
    /** @type {readonly number[]} */
    this.shape = Object.freeze(shape);
    /** For each dimension, the distance in elements from one index to the next. @type {readonly number[]} */
    this.strides = Object.freeze(strides);
    /** The position of the first element in the storage, in elements. */
    this.offset = offset;
    this.dtype = dtype;
    this.id = id;
    /** The number of elements. */
    this.size = sizeOf(shape);
    /** Whether the elements lie row by row without gaps. */
    this.contiguous = isDense(shape, strides);
  }
}

/** Whether strides are those of a dense tensor; those of one element, or of none, do not matter. @param {number[]} shape @param {number[]} strides */
function isDense(shape, strides) {
  if (shape.includes(0)) return true;
  let step = 1;
  for (let i = shape.length - 1; i >= 0; i--) {
    if (shape[i] !== 1 && strides[i] !== step) return false;
    step *= shape[i];
  }
  return true;
}

/** The order of dimensions in memory with the channels, which are dimension 1, last: [0, 2, …, 1]. @param {number} rank */
export const channelsLast = (rank) => [0, ...Array.from({ length: rank - 2 }, (_, i) => i + 2), 1];
/** The order that undoes `channelsLast`: [0, last, 1, …]. @param {number} rank */
export const channelsFirst = (rank) => [0, rank - 1, ...Array.from({ length: rank - 2 }, (_, i) => i + 1)];

/** Whether elements [batch, channels, ...] lie without gaps with the channels last, and in no other order. @param {Layout} layout */
export function isChannelsLast({ shape, strides, contiguous }) {
  if (contiguous || shape.length < 3) return false;
  const order = channelsLast(shape.length);
  return isDense(
    order.map((d) => shape[d]),
    order.map((d) => strides[d]),
  );
}

/**
 * Whether several elements may be one in memory, as in a view that is expanded or of windows: a dimension's stride does not reach behind
 * all elements of those of smaller strides.
 * @param {Layout} layout
 */
export function overlaps({ shape, strides, contiguous }) {
  if (contiguous) return false;
  const order = strides.map((_, d) => d).filter((d) => shape[d] > 1);
  order.sort((a, b) => strides[a] - strides[b]);
  let last = 0;
  for (const d of order) {
    if (strides[d] <= last) return true;
    last += (shape[d] - 1) * strides[d];
  }
  return false;
}

/** Layouts by their contents. Cleared when it is full, for programs that keep making new shapes. @type {Map<string, Layout>} */
const known = new Map();
const MAX_KNOWN = 65536;
let nextId = 0;

/**
 * The layout with these contents.
 * @param {readonly number[]} shape @param {readonly number[]} strides @param {number} offset @param {DType} dtype
 */
export function layoutOf(shape, strides, offset, dtype) {
  const key = `${dtype}/${shape}/${strides}/${offset}`;
  let layout = known.get(key);
  if (layout === undefined) {
    if (known.size >= MAX_KNOWN) known.clear();
    layout = new Layout([...shape], [...strides], offset, dtype, nextId++);
    known.set(key, layout);
  }
  return layout;
}

/**
 * Checks that an element type can represent a number. An integer type would otherwise round it silently in a comparison or a `where`.
 * @param {string} op @param {number} value @param {DType} dtype
 */
export function checkNumber(op, value, dtype) {
  const range = RANGES[dtype];
  if (range && !(Number.isInteger(value) && value >= range[0] && value <= range[1])) {
    throw new ArgumentError(op, `${value} is not ${dtype[0] === 'i' ? 'an' : 'a'} ${dtype}: convert the tensor with .to('f32')`);
  }
  return value;
}

/** Checks the name of an element type. @param {string} op @param {unknown} dtype @returns {DType} */
export function checkType(op, dtype) {
  if (!(typeof dtype === 'string' && Object.hasOwn(BYTES, dtype)))
    throw new ArgumentError(op, `unknown type ${shown(dtype)}; the types are ${Object.keys(BYTES).join(', ')}`);
  return /** @type {DType} */ (dtype);
}

/** The layout without gaps, with offset 0, of elements [batch, channels, ...] with the channels last. @param {readonly number[]} shape @param {DType} dtype */
export function channelsLastLayout(shape, dtype) {
  const strides = denseStrides(channelsLast(shape.length).map((d) => shape[d]));
  return layoutOf(
    shape,
    channelsFirst(shape.length).map((d) => strides[d]),
    0,
    dtype,
  );
}

/** The dense layout with offset 0. @param {readonly number[]} shape @param {DType} dtype */
export const denseLayout = (shape, dtype) => layoutOf(shape, denseStrides(shape), 0, dtype);

/**
 * The shape that shapes broadcast to, by NumPy's rule: compared from the last dimension, sizes must be equal or 1. Throws a ShapeError.
 * @param {string} op for the error
 * @param {...(readonly number[])} shapes
 * @returns {number[]}
 */
export function broadcastShapes(op, ...shapes) {
  const rank = Math.max(...shapes.map((shape) => shape.length));
  const result = new Array(rank).fill(1);
  for (const shape of shapes) {
    const missing = rank - shape.length;
    for (let i = missing; i < rank; i++) {
      const size = result[i];
      const own = shape[i - missing];
      if (own === 1 || own === size) continue;
      if (size !== 1) {
        throw new ShapeError(op, `${shapes.map(show).join(' and ')} do not broadcast: sizes ${size} and ${own} in dimension ${i - rank}`);
      }
      result[i] = own;
    }
  }
  return result;
}

/** A layout broadcast to a larger shape: stride 0 where its size is 1. @param {Layout} layout @param {readonly number[]} shape */
export function broadcastLayout(layout, shape) {
  const missing = shape.length - layout.shape.length;
  const strides = shape.map((size, i) =>
    i < missing || (layout.shape[i - missing] === 1 && size !== 1) ? 0 : layout.strides[i - missing],
  );
  return layoutOf(shape, strides, layout.offset, layout.dtype);
}

/**
 * The strides of a view with another shape, or undefined if no strides express it and the elements must be copied.
 * @param {Layout} layout @param {readonly number[]} shape of as many elements
 * @returns {number[] | undefined}
 */
export function reshapeStrides(layout, shape) {
  if (layout.contiguous) return denseStrides(shape);
  // Neighbouring dimensions that can be merged into one: `size` elements, `stride` apart.
  /** @type {{ size: number, stride: number }[]} */
  const runs = [];
  for (let i = 0; i < layout.shape.length; i++) {
    if (layout.shape[i] === 1) continue;
    const last = runs.at(-1);
    if (last && last.stride === layout.strides[i] * layout.shape[i]) {
      last.size *= layout.shape[i];
      last.stride = layout.strides[i];
    } else runs.push({ size: layout.shape[i], stride: layout.strides[i] });
  }
  const strides = new Array(shape.length);
  let run = runs.length - 1;
  let taken = 1;
  for (let i = shape.length - 1; i >= 0; i--) {
    if (run >= 0 && taken === runs[run].size) {
      run--;
      taken = 1;
    }
    if (shape[i] === 1 || run < 0) {
      strides[i] = 0;
      continue;
    }
    strides[i] = runs[run].stride * taken;
    taken *= shape[i];
    if (runs[run].size % taken !== 0) return undefined;
  }
  return strides;
}

/**
 * Reduces the number of dimensions as far as all operands allow: drops dimensions of size 1, and merges neighbours that are one dimension in
 * every operand.
 * @param {readonly number[]} shape @param {(readonly number[])[]} operands strides of each operand
 * @returns {{ shape: number[], strides: number[][] }}
 */
export function collapse(shape, operands) {
  /** @type {number[]} */
  const sizes = [];
  /** @type {number[][]} */
  const strides = operands.map(() => []);
  for (let i = 0; i < shape.length; i++) {
    if (shape[i] === 1) continue;
    const last = sizes.length - 1;
    if (last >= 0 && operands.every((own, o) => strides[o][last] === own[i] * shape[i])) {
      sizes[last] *= shape[i];
      for (const [o, own] of operands.entries()) strides[o][last] = own[i];
    } else {
      sizes.push(shape[i]);
      for (const [o, own] of operands.entries()) strides[o].push(own[i]);
    }
  }
  if (sizes.length === 0) {
    sizes.push(1);
    for (const own of strides) own.push(0);
  }
  return { shape: sizes, strides };
}

/**
 * The index of a dimension; a negative one counts from the end. As in PyTorch, a tensor [] has the dimensions 0 and -1. Throws a
 * ShapeError if it is out of range.
 * @param {string} op @param {number} dim @param {number} rank
 */
export function dimension(op, dim, rank) {
  const count = Math.max(rank, 1);
  const index = Number.isInteger(dim) && dim < 0 ? dim + count : dim;
  if (!Number.isInteger(dim) || index < 0 || index >= count) {
    throw new ShapeError(op, `dimension ${shown(dim)} is out of range for a tensor of ${rank} dimensions`);
  }
  return index;
}

/**
 * Checks a shape from the caller: an array of integers of at least 0.
 * @param {string} op @param {unknown} shape
 * @returns {number[]}
 */
export function checkShape(op, shape) {
  if (!Array.isArray(shape)) {
    const hint = typeof shape === 'number' ? `: ${op}([${shape}]), ${op}([2, 3])` : '';
    throw new ShapeError(op, `the shape must be an array of sizes, got ${shown(shape)}${hint}`);
  }
  for (const size of shape) {
    if (!Number.isInteger(size) || size < 0)
      throw new ShapeError(op, `the sizes of a shape must be integers of at least 0, got ${show(shape)}`);
  }
  return shape;
}

/** Checks that a named argument is an integer of at least 1. @param {string} op @param {string} name @param {unknown} value @returns {number} */
export function positive(op, name, value) {
  if (typeof value !== 'number' || !Number.isInteger(value) || value < 1) {
    throw new ArgumentError(op, `${name} must be an integer of at least 1, got ${shown(value)}`);
  }
  return value;
}

/**
 * The type in which elements of two types are computed, as in PyTorch: of a float and another type the float, of two floats f32, of two
 * integer types the smallest that has all numbers of both (i64 of i32 and u32, which PyTorch does not promote), and of bools the other.
 * @param {DType} a @param {DType} b @returns {DType}
 */
export function promotedType(a, b) {
  if (a === b || b === 'bool') return a;
  if (a === 'bool') return b;
  if (isFloat(a)) return isFloat(b) ? 'f32' : a;
  if (isFloat(b)) return b;
  const [small, large] = BYTES[a] < BYTES[b] ? [a, b] : [b, a];
  if (small[0] === large[0] || (large[0] === 'i' && BYTES[large] > BYTES[small])) return large;
  return BYTES[large] === 1 ? 'i32' : 'i64';
}
