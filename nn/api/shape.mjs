// Elements in other places: padding, reversals, repetitions, triangles, diagonals, windows and blocks of channels. PyTorch's functions of
// the same names; what is a view there is one here.

import { apply, checkBytes, tensorOf, view } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, shown, within } from '../core/errors.mjs';
import { checkNumber, denseLayout, dimension, isFloat, isNarrow, positive, sizeOf } from '../core/layout.mjs';
import { uploaded } from '../core/tensor.mjs';
import * as ops from '../ops/shape.mjs';
import { checkOptions } from '../core/options.mjs';
import { indexSelect } from './indexing.mjs';
import * as F from './functional.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */

/** How `pad` chooses the elements around x. @typedef {'constant' | 'reflect' | 'symmetric' | 'replicate' | 'circular'} PadMode */

/** Checks that a named argument is an integer. @param {string} op @param {string} name @param {unknown} value @param {number} [least] @returns {number} */
export function integer(op, name, value, least = -Infinity) {
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < least) {
    throw new ArgumentError(op, `${name} must be an integer${least > -Infinity ? ` of at least ${least}` : ''}, got ${shown(value)}`);
  }
  return value;
}

/** Checks that a named argument is an array of integers. @param {string} op @param {string} name @param {unknown} value @param {number} [least] @returns {number[]} */
export function integers(op, name, value, least) {
  if (!Array.isArray(value)) throw new ArgumentError(op, `${name} must be an array of integers, got ${shown(value)}`);
  return value.map((each, i) => integer(op, `${name}[${i}]`, each, least));
}

/** Dimensions of x that an argument names, each once. @param {string} op @param {Tensor} x @param {unknown} dims one, or an array of them @returns {number[]} */
function dimensions(op, x, dims) {
  const list = (Array.isArray(dims) ? dims : [dims]).map((d) => dimension(op, d, x.ndim));
  if (new Set(list).size !== list.length)
    throw new ShapeError(op, `dims ${show([dims].flat())} name a dimension of ${show(x.shape)} twice`);
  return list;
}

/** A function of 32-bit elements of x, the result of which has x's type. @param {Tensor} x @param {(x: Tensor) => Tensor} f */
const in32 = (x, f) => F.to(f(isNarrow(x.dtype) ? F.to(x, isFloat(x.dtype) ? 'f32' : 'i32') : x), x.dtype);

// ---- padding

/**
 * Adds elements around x, as `torch.nn.functional.pad`.
 * @param {Tensor} x
 * @param {readonly number[]} sizes elements added before and behind the last dimension, then the one before it, and so on: [left, right, top,
 *   bottom]. A negative one takes elements away
 * @param {PadMode} [mode] 'constant' (when left out) adds `value`; 'reflect' mirrors at the outermost element, 'symmetric' at the border (and so
 *   has that element twice), 'replicate' repeats it, and 'circular' continues at the other end
 * @param {number} [value] 0 when left out
 * @returns {Tensor}
 * @throws {ShapeError} if nothing is left, or 'reflect' or 'circular' would need more elements than there are
 */
export function pad(x, sizes, mode = 'constant', value = 0) {
  tensorOf('pad', x);
  const all = integers('pad', 'sizes', sizes);
  if (all.length % 2 || all.length > 2 * x.ndim)
    throw new ShapeError('pad', `sizes must be two for each of at most ${x.ndim} dimensions, got ${show(all)}`);
  if (typeof value !== 'number') throw new ArgumentError('pad', `value must be a number, got ${shown(value)}`);
  checkNumber('pad', value, x.dtype);
  if (typeof mode !== 'string' || (mode !== 'constant' && !Object.hasOwn(BORDERS, mode)))
    throw new ArgumentError('pad', `mode must be one of constant, ${Object.keys(BORDERS).join(', ')}, got ${shown(mode)}`);
  return within('pad', () => {
    const pairs = x.shape.map((_, d) => [0, 1].map((side) => all[2 * (x.ndim - 1 - d) + side] ?? 0));
    let y = x;
    pairs.forEach(([before, after], d) => {
      if (x.shape[d] + before + after < (x.shape[d] > 0 ? 1 : 0))
        throw new ShapeError('pad', `nothing is left of dimension ${d} of ${show(x.shape)} with ${before} before and ${after} behind it`);
      // What is taken away at one end may be more than there is without what is added at the other.
      if (before >= 0 && after >= 0) return;
      if (Math.max(-before, 0) + Math.max(-after, 0) < x.shape[d])
        y = F.slice(y, d, Math.max(-before, 0), x.shape[d] - Math.max(-after, 0));
      else
        throw new ShapeError(
          'pad',
          `dimension ${d} of ${show(x.shape)} has no elements without ${-Math.min(before, 0)} and ${-Math.min(after, 0)}`,
        );
    });
    const added = pairs.map((pair) => pair.map((n) => Math.max(n, 0)));
    if (added.flat().every((n) => n === 0)) return F.clone(y);
    if (mode === 'constant') {
      const [before, after] = [0, 1].map((side) => added.map((pair) => pair[side]));
      return in32(y, (own) => apply(ops.pad, [own], { before, after, value: x.dtype === 'bool' ? Number(value !== 0) : value }));
    }
    return added.reduce((own, [before, after], d) => bordered(own, d, before, after, mode), y);
  });
}

/** The elements that are added at an end of a dimension, and how many there can be. @type {Record<string, { most: (size: number) => number, first: (x: Tensor, d: number, n: number) => Tensor, last: (x: Tensor, d: number, n: number) => Tensor }>} */
const BORDERS = {
  reflect: {
    most: (size) => size - 1,
    first: (x, d, n) => flip(F.slice(x, d, 1, n + 1), d),
    last: (x, d, n) => flip(F.slice(x, d, x.shape[d] - 1 - n, x.shape[d] - 1), d),
  },
  symmetric: {
    most: (size) => size,
    first: (x, d, n) => flip(F.slice(x, d, 0, n), d),
    last: (x, d, n) => flip(F.slice(x, d, x.shape[d] - n), d),
  },
  replicate: {
    most: () => Infinity,
    first: (x, d, n) => F.expand(F.slice(x, d, 0, 1), x.shape.with(d, n)),
    last: (x, d, n) => F.expand(F.slice(x, d, x.shape[d] - 1), x.shape.with(d, n)),
  },
  circular: {
    most: (size) => size,
    first: (x, d, n) => F.slice(x, d, x.shape[d] - n),
    last: (x, d, n) => F.slice(x, d, 0, n),
  },
};

/** @param {Tensor} x @param {number} d @param {number} before @param {number} after @param {PadMode} mode */
function bordered(x, d, before, after, mode) {
  if (before === 0 && after === 0) return x;
  const { most, first, last } = BORDERS[mode];
  if (Math.max(before, after) > most(x.shape[d]))
    throw new ShapeError(
      'pad',
      `mode '${mode}' adds at most ${most(x.shape[d])} elements to a dimension of ${x.shape[d]}, got ${Math.max(before, after)}`,
    );
  return F.cat([...(before ? [first(x, d, before)] : []), x, ...(after ? [last(x, d, after)] : [])], d);
}

// ---- orders

/** The elements in the opposite order along dimensions; a copy. @param {Tensor} x @param {number | readonly number[]} dims @returns {Tensor} */
export function flip(x, dims) {
  const list = dimensions('flip', tensorOf('flip', x), dims);
  if (x.ndim === 0 || list.length === 0) return within('flip', () => F.clone(x));
  // Strides of more dimensions are more push constants than every device has.
  return within('flip', () => apply(ops.flip, [x.ndim > 8 ? x.contiguous() : x], { dims: list }));
}

/**
 * Moves the elements along dimensions by `shifts` places. Elements that leave at one end come back at the other.
 * @param {Tensor} x @param {number | readonly number[]} shifts towards the end where they are positive
 * @param {number | readonly number[]} [dims] one for each shift; when left out, x is rolled as one row of all elements
 * @returns {Tensor} a copy
 */
export function roll(x, shifts, dims) {
  tensorOf('roll', x);
  const by = integers('roll', 'shifts', [shifts].flat());
  if (dims === undefined) {
    if (by.length !== 1) throw new ArgumentError('roll', `one shift is needed where dims are left out, got ${show(by)}`);
    return within('roll', () => F.reshape(roll(F.reshape(x, [-1]), by[0], 0), x.shape));
  }
  const list = [dims].flat().map((d) => dimension('roll', d, x.ndim));
  if (list.length !== by.length) throw new ArgumentError('roll', `${show(by)} shifts and ${show(list)} dims: there must be equally many`);
  return within('roll', () => {
    const y = list.reduce((own, d, i) => {
      const size = own.shape[d] || 1;
      const shift = ((by[i] % size) + size) % size;
      return shift === 0 ? own : F.cat([F.slice(own, d, size - shift), F.slice(own, d, 0, size - shift)], d);
    }, x);
    return y === x ? F.clone(x) : y;
  });
}

/**
 * Turns x by 90 degrees, as often as asked, from the first of two dimensions towards the second; a copy.
 * @param {Tensor} x @param {number} [k] 1 when left out @param {readonly number[]} [dims] [0, 1] when left out
 * @returns {Tensor}
 */
export function rot90(x, k = 1, dims = [0, 1]) {
  tensorOf('rot90', x);
  const turns = ((integer('rot90', 'k', k) % 4) + 4) % 4;
  if (!Array.isArray(dims) || dims.length !== 2) throw new ArgumentError('rot90', `dims must be two dimensions, got ${shown(dims)}`);
  const [a, b] = dimensions('rot90', x, dims);
  return within('rot90', () => {
    if (turns === 0) return F.clone(x);
    if (turns === 2) return flip(x, [a, b]);
    return turns === 1 ? F.transpose(flip(x, b), a, b) : flip(F.transpose(x, a, b), b);
  });
}

/**
 * Moves dimensions to other positions, the others stay in their order; a view.
 * @param {Tensor} x @param {number | readonly number[]} source @param {number | readonly number[]} destination one for each
 * @returns {Tensor}
 */
export function movedim(x, source, destination) {
  tensorOf('movedim', x);
  const [from, to] = [source, destination].map((dims) => dimensions('movedim', x, dims));
  if (from.length !== to.length)
    throw new ArgumentError('movedim', `source ${show(from)} and destination ${show(to)} must name equally many dimensions`);
  if (x.ndim === 0) return F.permute(x, []);
  const others = x.shape.map((_, d) => d).filter((d) => !from.includes(d));
  const order = x.shape.map((_, d) => (to.includes(d) ? from[to.indexOf(d)] : /** @type {number} */ (others.shift())));
  return F.permute(x, order);
}

/** The same as `transpose`: swaps two dimensions; a view. @param {Tensor} x @param {number} a @param {number} b @returns {Tensor} */
export const swapaxes = (x, a, b) => within('swapaxes', () => F.transpose(x, a, b));

// ---- repetitions

/** x as a tensor of at least `rank` dimensions, new ones first; a view. @param {Tensor} x @param {number} rank */
const atLeast = (x, rank) => (x.ndim >= rank ? x : F.reshape(x, [...new Array(rank - x.ndim).fill(1), ...x.shape]));

/** @param {string} op @param {Tensor} x @param {number[]} counts at least as many as x has dimensions @returns {Tensor} */
function repeated(op, x, counts) {
  return within(op, () => {
    const own = atLeast(x, counts.length);
    const apart = own.shape.flatMap((size) => [1, size]);
    const wide = own.shape.flatMap((size, d) => [counts[d], size]);
    const shape = own.shape.map((size, d) => size * counts[d]);
    checkBytes(op, denseLayout(shape, x.dtype));
    const y = F.reshape(F.expand(F.reshape(own, apart), wide), shape);
    return y.storage === x.storage ? F.clone(y) : y;
  });
}

/**
 * Repeats x as a whole along each dimension, as PyTorch's `Tensor.repeat`; a copy.
 * @param {Tensor} x @param {readonly number[]} counts at least as many as dimensions; more of them add leading dimensions
 * @returns {Tensor}
 */
export function repeat(x, counts) {
  tensorOf('repeat', x);
  const list = integers('repeat', 'counts', counts, 0);
  if (list.length < x.ndim) throw new ShapeError('repeat', `a tensor ${show(x.shape)} needs at least ${x.ndim} counts, got ${show(list)}`);
  return repeated('repeat', x, list);
}

/** The same as `repeat`, but fewer counts than dimensions are for the last ones. @param {Tensor} x @param {readonly number[]} counts @returns {Tensor} */
export function tile(x, counts) {
  tensorOf('tile', x);
  const list = integers('tile', 'counts', counts, 0);
  return repeated('tile', x, [...new Array(Math.max(x.ndim - list.length, 0)).fill(1), ...list]);
}

/**
 * Repeats each element of a dimension: [a, b] twice is [a, a, b, b]. A copy.
 * @param {Tensor} x @param {number | readonly number[]} repeats how often, or how often each element of the dimension
 * @param {number} [dim] x as one row of all elements when left out
 * @returns {Tensor}
 */
export function repeatInterleave(x, repeats, dim) {
  tensorOf('repeatInterleave', x);
  const op = 'repeatInterleave';
  const flat = dim === undefined || x.ndim === 0;
  const d = flat ? 0 : dimension(op, dim, x.ndim);
  const size = flat ? x.size : x.shape[d];
  if (typeof repeats === 'number') {
    integer(op, 'repeats', repeats, 0);
    return within(op, () => {
      const own = flat ? F.reshape(x, [-1]) : x;
      const shape = own.shape.with(d, size * repeats);
      checkBytes(op, denseLayout(shape, x.dtype));
      const y = F.reshape(F.expand(F.unsqueeze(own, d + 1), own.shape.toSpliced(d + 1, 0, repeats)), shape);
      return y.storage === x.storage ? F.clone(y) : y;
    });
  }
  const counts = integers(op, 'repeats', repeats, 0);
  if (counts.length !== size) throw new ShapeError(op, `repeats must be one count or ${size} of them, got ${counts.length}`);
  const total = counts.reduce((sum, n) => sum + n, 0);
  return within(op, () => {
    const own = flat ? F.reshape(x, [-1]) : x;
    checkBytes(op, denseLayout(own.shape.with(d, total), 'u32'));
    const index = new Int32Array(total);
    let at = 0;
    for (const [i, n] of counts.entries()) index.fill(i, at, (at += n));
    return indexSelect(own, d, uploaded(index, denseLayout([total], 'i32')));
  });
}

// ---- triangles and diagonals

/**
 * Where column - row is compared with `diagonal`, as a bool matrix.
 * @param {number} rows @param {number} columns @param {number} diagonal @param {(a: Tensor, b: Tensor) => Tensor} compare of
 *   columns and rows
 * @returns {Tensor} bool [rows, columns]
 */
export function band(rows, columns, diagonal, compare) {
  const limit = Math.min(Math.max(diagonal, -rows), columns);
  const down = uploaded(
    Int32Array.from({ length: rows }, (_, i) => i + limit),
    denseLayout([rows, 1], 'i32'),
  );
  const across = uploaded(
    Int32Array.from({ length: columns }, (_, i) => i),
    denseLayout([1, columns], 'i32'),
  );
  return compare(across, down);
}

/** @param {'tril' | 'triu'} op @param {Tensor} x @param {number} diagonal @returns {Tensor} */
function triangle(op, x, diagonal) {
  if (tensorOf(op, x).ndim < 2) throw new ShapeError(op, `expected matrices [..., rows, columns], got ${show(x.shape)}`);
  integer(op, 'diagonal', diagonal);
  const [rows, columns] = x.shape.slice(-2);
  checkBytes(op, denseLayout(x.shape, x.dtype));
  return within(op, () => in32(x, (own) => F.where(band(rows, columns, diagonal, op === 'tril' ? F.le : F.ge), own, 0)));
}

/**
 * The lower triangle of matrices, with zeros elsewhere; a copy.
 * @param {Tensor} x [..., rows, columns] @param {number} [diagonal] the last one that is kept: 0 (when left out) the main one, 1 the next
 *   above it
 * @returns {Tensor}
 */
export const tril = (x, diagonal = 0) => triangle('tril', x, diagonal);
/**
 * The upper triangle of matrices, with zeros elsewhere; a copy.
 * @param {Tensor} x [..., rows, columns] @param {number} [diagonal] the first one that is kept: 0 (when left out) the main one, 1 the next
 *   above it
 * @returns {Tensor}
 */
export const triu = (x, diagonal = 0) => triangle('triu', x, diagonal);

/** Two different dimensions. @param {string} op @param {number} rank @param {number} dim1 @param {number} dim2 */
function twoDimensions(op, rank, dim1, dim2) {
  if (rank < 2) throw new ShapeError(op, `expected at least two dimensions, got ${rank}`);
  const dims = [dim1, dim2].map((d) => dimension(op, d, rank));
  if (dims[0] === dims[1]) throw new ShapeError(op, `dim1 and dim2 must differ, got ${shown(dim1)} and ${shown(dim2)}`);
  return { dim1: dims[0], dim2: dims[1] };
}

/**
 * A diagonal of matrices as the last dimension, as `torch.diagonal`; a view. One outside of the matrix is empty.
 * @param {Tensor} x @param {number} [offset] 0 (when left out) the main one, 1 the next above it, -1 the next below
 * @param {number} [dim1] the dimension of rows; the first when left out @param {number} [dim2] of columns; the second when left out
 * @returns {Tensor}
 */
export function diagonal(x, offset = 0, dim1 = 0, dim2 = 1) {
  const dims = twoDimensions('diagonal', tensorOf('diagonal', x).ndim, dim1, dim2);
  integer('diagonal', 'offset', offset);
  if (ops.diagonalSize(x.shape[dims.dim1], x.shape[dims.dim2], offset) < 1) {
    const others = x.shape.filter((_, d) => d !== dims.dim1 && d !== dims.dim2);
    return within('diagonal', () => F.reshape(F.slice(x, dims.dim1, 0, 0), [...others, 0]));
  }
  const attributes = { offset, ...dims };
  return view(ops.diagonal, x, ops.diagonal.infer([x.layout], attributes)[0], attributes);
}

/**
 * Square matrices with the last dimension of x on a diagonal and zeros elsewhere, as `torch.diag_embed`.
 * @param {Tensor} x [..., n] @param {number} [offset] 0 (when left out) the main one, 1 the next above it, -1 the next below
 * @param {number} [dim1] where the rows stand in the result; the last but one when left out
 * @param {number} [dim2] where the columns stand in the result; the last when left out
 * @returns {Tensor} with two dimensions of n + |offset| in place of the last
 */
export function diagEmbed(x, offset = 0, dim1 = -2, dim2 = -1) {
  if (tensorOf('diagEmbed', x).ndim < 1) throw new ShapeError('diagEmbed', 'a tensor [] has no dimension for a diagonal');
  const dims = twoDimensions('diagEmbed', x.ndim + 1, dim1, dim2);
  integer('diagEmbed', 'offset', offset);
  const size = /** @type {number} */ (x.shape.at(-1)) + Math.abs(offset);
  return within('diagEmbed', () => in32(x, (own) => apply(ops.diagEmbed, [own], { offset, ...dims, rows: size, columns: size })));
}

/**
 * A matrix with x on a diagonal, or a copy of a matrix's diagonal.
 * @param {Tensor} x [n] or [rows, columns] @param {number} [offset] 0 (when left out) the main one, 1 the next above it, -1 the next below
 * @returns {Tensor}
 */
export function diag(x, offset = 0) {
  if (tensorOf('diag', x).ndim !== 1 && x.ndim !== 2) throw new ShapeError('diag', `expected [n] or [rows, columns], got ${show(x.shape)}`);
  return within('diag', () => (x.ndim === 1 ? diagEmbed(x, offset) : F.clone(diagonal(x, offset))));
}

// ---- parts

/** `length` elements of a dimension from `start` on; a view. @param {Tensor} x @param {number} dim @param {number} start negative: from the end @param {number} length @returns {Tensor} */
export function narrow(x, dim, start, length) {
  const d = dimension('narrow', dim, tensorOf('narrow', x).ndim);
  const size = x.shape[d] ?? 1;
  const from = integer('narrow', 'start', start) < 0 ? start + size : start;
  integer('narrow', 'length', length, 0);
  if (x.ndim === 0 || from < 0 || from + length > size)
    throw new ShapeError('narrow', `dimension ${dim} of ${show(x.shape)} has no ${length} elements from ${start} on`);
  return within('narrow', () => F.slice(x, d, from, from + length));
}

/** The slice at an index of a dimension, without that dimension; a view. @param {Tensor} x @param {number} dim @param {number} index negative: from the end @returns {Tensor} */
export function select(x, dim, index) {
  const d = dimension('select', dim, tensorOf('select', x).ndim);
  const size = x.shape[d] ?? 0;
  if (!Number.isInteger(index) || index < -size || index >= size)
    throw new ShapeError('select', `index ${shown(index)} is out of range for dimension ${dim} of ${show(x.shape)}`);
  const from = index < 0 ? index + size : index;
  return within('select', () => F.squeeze(F.slice(x, d, from, from + 1), d));
}

/** All slices of a dimension, without that dimension; views. @param {Tensor} x @param {number} [dim] the first when left out @returns {Tensor[]} */
export function unbind(x, dim = 0) {
  const d = dimension('unbind', dim, tensorOf('unbind', x).ndim);
  if (x.ndim === 0) throw new ShapeError('unbind', 'a tensor [] has no dimension to divide');
  return within('unbind', () => F.split(x, 1, d).map((part) => F.squeeze(part, d)));
}

/** Divides a dimension into several; a view. @param {Tensor} x @param {number} dim @param {readonly number[]} sizes one may be -1: it follows from the others @returns {Tensor} */
export function unflatten(x, dim, sizes) {
  const d = dimension('unflatten', dim, tensorOf('unflatten', x).ndim);
  const list = integers('unflatten', 'sizes', sizes, -1);
  const known = list.filter((size) => size !== -1);
  const left = (x.shape[d] ?? 1) / sizeOf(known);
  const fits = known.length === list.length ? sizeOf(known) === x.shape[d] : Number.isInteger(left);
  if (x.ndim === 0 || list.length === 0 || list.length - known.length > 1 || !fits)
    throw new ShapeError('unflatten', `a dimension of ${x.shape[d] ?? 1} elements cannot be divided into ${show(list)}`);
  return within('unflatten', () => F.reshape(x, x.shape.toSpliced(d, 1, ...list.map((size) => (size === -1 ? left : size)))));
}

/** The same as `expand`: repeats dimensions of size 1 up to a shape; a view. @param {Tensor} x @param {readonly number[]} shape @returns {Tensor} */
export const broadcastTo = (x, shape) => within('broadcastTo', () => F.expand(x, shape));
/** Repeats dimensions of size 1 up to the shape of another tensor; a view. @param {Tensor} x @param {Tensor} other @returns {Tensor} */
export const expandAs = (x, other) => within('expandAs', () => F.expand(x, tensorOf('expandAs', other).shape));

/**
 * Divides a dimension into parts; views.
 * @param {Tensor} x
 * @param {number | readonly number[]} sections how many parts: the first are one element larger where the size is no multiple; or the
 *   indices at which parts begin after the first
 * @param {number} [dim] the first when left out
 * @returns {Tensor[]}
 * @throws {ShapeError} if a part had no elements, which PyTorch allows
 */
export function tensorSplit(x, sections, dim = 0) {
  const d = dimension('tensorSplit', dim, tensorOf('tensorSplit', x).ndim);
  if (x.ndim === 0) throw new ShapeError('tensorSplit', 'a tensor [] has no dimension to divide');
  const size = x.shape[d];
  /** @type {number[]} */
  let starts;
  if (Array.isArray(sections)) starts = integers('tensorSplit', 'sections', sections).map((at) => (at < 0 ? at + size : at));
  else {
    const count = positive('tensorSplit', 'sections', sections);
    if (count > size) throw new ShapeError('tensorSplit', `${count} parts of a dimension of ${size} elements would have none`);
    const [whole, more] = [Math.floor(size / count), size % count];
    starts = Array.from({ length: count - 1 }, (_, i) => (i + 1) * whole + Math.min(i + 1, more));
  }
  return within('tensorSplit', () => [...starts, size].map((end, i) => F.slice(x, d, i === 0 ? 0 : starts[i - 1], end)));
}

/** @param {string} op @param {unknown} tensors @param {number} rank @param {(x: Tensor) => Tensor} [first] @returns {Tensor[]} */
function tensorsOf(op, tensors, rank, first = (x) => x) {
  if (!Array.isArray(tensors) || tensors.length === 0) throw new ArgumentError(op, 'expected an array of tensors');
  return tensors.map((x) => atLeast(first(tensorOf(op, x)), rank));
}
/** Joins tensors along the second dimension, or vectors along their only one; a copy. @param {Tensor[]} tensors @returns {Tensor} */
export const hstack = (tensors) =>
  within('hstack', () => {
    const list = tensorsOf('hstack', tensors, 1);
    return F.cat(list, list[0].ndim === 1 ? 0 : 1);
  });
/** Joins tensors along the first dimension; a vector is a row. A copy. @param {Tensor[]} tensors @returns {Tensor} */
export const vstack = (tensors) => within('vstack', () => F.cat(tensorsOf('vstack', tensors, 2), 0));
/** Joins tensors along the third dimension; a vector is [1, n, 1] and a matrix [rows, columns, 1]. A copy. @param {Tensor[]} tensors @returns {Tensor} */
export const dstack = (tensors) =>
  within('dstack', () => {
    const deep = (/** @type {Tensor} */ x) => (x.ndim < 3 ? F.unsqueeze(atLeast(x, 2), 2) : x);
    return F.cat(tensorsOf('dstack', tensors, 3, deep), 2);
  });

/**
 * Elements of x by their number, row by row, as `torch.take`. A number out of range reads 0.
 * @param {Tensor} x @param {Tensor} index i32, u32 or i64, any shape
 * @returns {Tensor} of the index's shape
 */
export const takeElements = (x, index) =>
  within('takeElements', () => {
    const flat = F.reshape(tensorOf('takeElements', x), [-1]);
    return F.reshape(indexSelect(flat, 0, F.reshape(tensorOf('takeElements', index), [-1])), index.shape);
  });

// ---- windows

/** The view of windows; for gradients. @param {Tensor} x @param {import('../ops/shape.mjs').WindowAttributes} attributes @returns {Tensor} */
export const windows = (x, attributes) => view(ops.windows, x, ops.windows.infer([x.layout], attributes)[0], attributes);

/**
 * Windows of a dimension, as PyTorch's `Tensor.unfold`: a view in which they may overlap, so that it cannot be written into.
 * @param {Tensor} x @param {number} dim @param {number} size elements of a window @param {number} step from one window to the next
 * @returns {Tensor} with the number of windows along `dim`, and `size` as a new last dimension
 */
export function slidingWindows(x, dim, size, step) {
  const op = 'unfold';
  const d = dimension(op, dim, tensorOf(op, x).ndim);
  positive(op, 'size', size);
  positive(op, 'step', step);
  if (x.ndim === 0 || size > x.shape[d]) throw new ShapeError(op, `a window of ${size} does not fit dimension ${dim} of ${show(x.shape)}`);
  return within(op, () => windows(x, { dims: [d], sizes: [size], steps: [step], dilations: [1] }));
}

/** One number for both directions, or [down, across]. @typedef {number | readonly [number, number]} Both */

/**
 * Options of `unfold` and `fold`.
 * @typedef {object} UnfoldOptions
 * @property {Both} [dilation] elements from one element of a window to the next; 1 when left out
 * @property {Both} [padding] zeros added on each side; 0 when left out
 * @property {Both} [stride] elements from one window to the next; 1 when left out
 */

/** @param {string} op @param {string} name @param {unknown} value @param {number} least @returns {[number, number]} */
export function both(op, name, value, least) {
  const list = Array.isArray(value) ? value : [value, value];
  if (list.length !== 2 || list.some((n) => !Number.isSafeInteger(n) || n < least))
    throw new ArgumentError(op, `${name} must be an integer of at least ${least}, or two of them, [down, across], got ${shown(value)}`);
  return [list[0], list[1]];
}

const UNFOLD_OPTIONS = ['dilation', 'padding', 'stride'];

/** @param {string} op @param {number | readonly number[]} kernelSize @param {UnfoldOptions} options */
function windowOptions(op, kernelSize, options) {
  const { dilation = 1, padding = 0, stride = 1 } = checkOptions(op, options, UNFOLD_OPTIONS);
  return {
    sizes: both(op, 'kernelSize', kernelSize, 1),
    dilations: both(op, 'dilation', dilation, 1),
    padding: both(op, 'padding', padding, 0),
    steps: both(op, 'stride', stride, 1),
  };
}

/** How many windows there are. @param {string} op @param {readonly number[]} image rows and columns, padded @param {{ sizes: number[], steps: number[], dilations: number[] }} how */
function windowCounts(op, image, { sizes, steps, dilations }) {
  const counts = image.map((size, i) => ops.windowCount(size, sizes[i], steps[i], dilations[i]));
  if (counts.some((count) => count < 1))
    throw new ShapeError(op, `a window ${show(sizes)} does not fit into the padded image ${show(image)}`);
  return counts;
}

/**
 * The windows of images as columns (im2col), as `torch.nn.functional.unfold`.
 * @param {Tensor} x [batch, channels, rows, columns], or without the batch
 * @param {Both} kernelSize of a window @param {UnfoldOptions} [options]
 * @returns {Tensor} [batch, channels · down · across, windows], or without the batch
 */
export function unfold(x, kernelSize, options = {}) {
  if (tensorOf('unfold', x).ndim !== 3 && x.ndim !== 4)
    throw new ShapeError('unfold', `expected an input [batch, channels, rows, columns], got ${show(x.shape)}`);
  const { padding, ...how } = windowOptions('unfold', kernelSize, options);
  return within('unfold', () => {
    const images = atLeast(x, 4);
    const [batch, channels, rows, columns] = images.shape;
    const counts = windowCounts('unfold', [rows + 2 * padding[0], columns + 2 * padding[1]], how);
    const [down, across] = padding;
    const around = down || across ? pad(images, [across, across, down, down]) : images;
    const shape = [channels * sizeOf(how.sizes), sizeOf(counts)];
    checkBytes('unfold', denseLayout([batch, ...shape], x.dtype));
    const y = F.permute(windows(around, { dims: [2, 3], ...how }), [0, 1, 4, 5, 2, 3]);
    return F.reshape(y, x.ndim === 3 ? shape : [batch, ...shape]);
  });
}

/**
 * Adds columns to the windows of images that they are of (col2im), as `torch.nn.functional.fold`: elements of several windows are summed, in
 * the order of the elements within a window.
 * @param {Tensor} x [batch, channels · down · across, windows], or without the batch
 * @param {Both} outputSize rows and columns of the images
 * @param {Both} kernelSize of a window @param {UnfoldOptions} [options]
 * @returns {Tensor} [batch, channels, rows, columns], or without the batch
 */
export function fold(x, outputSize, kernelSize, options = {}) {
  if (tensorOf('fold', x).ndim !== 2 && x.ndim !== 3)
    throw new ShapeError('fold', `expected an input [batch, channels · down · across, windows], got ${show(x.shape)}`);
  const [rows, columns] = both('fold', 'outputSize', outputSize, 1);
  const { padding, ...how } = windowOptions('fold', kernelSize, options);
  return within('fold', () => {
    const own = atLeast(x, 3);
    const [batch, height, width] = own.shape;
    const image = [rows + 2 * padding[0], columns + 2 * padding[1]];
    const counts = windowCounts('fold', image, how);
    const channels = height / sizeOf(how.sizes);
    if (!Number.isInteger(channels) || width !== sizeOf(counts)) {
      throw new ShapeError(
        'fold',
        `${show(x.shape)} are not columns of windows ${show(how.sizes)}: expected [..., n · ${sizeOf(how.sizes)}, ${sizeOf(counts)}]`,
      );
    }
    const apart = F.permute(F.reshape(own, [batch, channels, ...how.sizes, ...counts]), [0, 1, 4, 5, 2, 3]);
    const y = in32(apart, (parts) => apply(ops.overlapAdd, [parts], { dims: [2, 3], ...how, shape: [batch, channels, ...image] }));
    const inside = F.slice(F.slice(y, 2, padding[0], padding[0] + rows), 3, padding[1], padding[1] + columns);
    return F.reshape(inside, x.ndim === 2 ? [channels, rows, columns] : [batch, channels, rows, columns]);
  });
}

// ---- blocks of channels

/** Checks for images with leading dimensions. @param {string} op @param {unknown} x */
function imagesOf(op, x) {
  const own = tensorOf(op, x);
  if (own.ndim < 3) throw new ShapeError(op, `expected an input [..., channels, rows, columns], got ${show(own.shape)}`);
  return own;
}

/**
 * Makes blocks of r × r elements of as many channels (Shi et al. 2016), as `torch.nn.functional.pixel_shuffle`.
 * @param {Tensor} x [..., channels · r², rows, columns] @param {number} factor r
 * @returns {Tensor} [..., channels, rows · r, columns · r]
 */
export function pixelShuffle(x, factor) {
  const [deep, rows, columns] = imagesOf('pixelShuffle', x).shape.slice(-3);
  const r = positive('pixelShuffle', 'factor', factor);
  if (deep % (r * r)) throw new ShapeError('pixelShuffle', `${deep} channels are no multiple of ${r}²`);
  const lead = x.shape.slice(0, -3);
  return within('pixelShuffle', () => {
    const apart = F.reshape(x, [sizeOf(lead), deep / (r * r), r, r, rows, columns]);
    return F.reshape(F.permute(apart, [0, 1, 4, 2, 5, 3]), [...lead, deep / (r * r), rows * r, columns * r]);
  });
}

/**
 * Makes channels of the elements of blocks of r × r: undoes `pixelShuffle`.
 * @param {Tensor} x [..., channels, rows · r, columns · r] @param {number} factor r
 * @returns {Tensor} [..., channels · r², rows, columns]
 */
export function pixelUnshuffle(x, factor) {
  const [channels, height, width] = imagesOf('pixelUnshuffle', x).shape.slice(-3);
  const r = positive('pixelUnshuffle', 'factor', factor);
  if (height % r || width % r) throw new ShapeError('pixelUnshuffle', `images [${height}, ${width}] are no multiple of ${r}`);
  const lead = x.shape.slice(0, -3);
  return within('pixelUnshuffle', () => {
    const apart = F.reshape(x, [sizeOf(lead), channels, height / r, r, width / r, r]);
    return F.reshape(F.permute(apart, [0, 1, 3, 5, 2, 4]), [...lead, channels * r * r, height / r, width / r]);
  });
}

/**
 * Mixes groups of channels (Zhang et al. 2018): the first channel of each group, then the second of each, and so on.
 * @param {Tensor} x [batch, channels, ...] @param {number} groups a divisor of the channels
 * @returns {Tensor}
 */
export function channelShuffle(x, groups) {
  if (tensorOf('channelShuffle', x).ndim < 3)
    throw new ShapeError('channelShuffle', `expected an input [batch, channels, ...] of at least three dimensions, got ${show(x.shape)}`);
  positive('channelShuffle', 'groups', groups);
  const [batch, channels] = x.shape;
  if (channels % groups) throw new ShapeError('channelShuffle', `${channels} channels are not a multiple of ${groups} groups`);
  return within('channelShuffle', () => F.reshape(F.transpose(F.reshape(x, [batch, groups, channels / groups, -1]), 1, 2), x.shape));
}
