// Tensors of nothing but numbers and shapes: sequences, grids, the identity, indices of triangles, and tensors like others. Sequences are
// computed on the host in float64 and rounded once.

import { apply, checkBytes, tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, shown, within } from '../core/errors.mjs';
import { encode } from '../core/host.mjs';
import { checkShape, checkType, denseLayout, isFloat, positive } from '../core/layout.mjs';
import { checkOptions } from '../core/options.mjs';
import { isRecording } from '../core/runtime.mjs';
import { uploaded } from '../core/tensor.mjs';
import { random } from '../ops/random.mjs';
import * as ops from '../ops/shape.mjs';
import * as F from './functional.mjs';
import { deviceState, permutation, rand, randn } from './random.mjs';
import { band, integer } from './shape.mjs';
import { argsort } from './sorting.mjs';
import { empty } from './tensor.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */
/** @typedef {import('../core/layout.mjs').DType} DType */
/** @typedef {import('./functional.mjs').TypeOptions} TypeOptions */

/** @param {string} op @param {TypeOptions} options @param {DType} [otherwise] @returns {DType} */
export function typeOf(op, options, otherwise = 'f32') {
  const { dtype = otherwise } = checkOptions(op, options, ['dtype']);
  return checkType(op, dtype);
}

/** @param {string} op @param {string} name @param {unknown} value @returns {number} */
export function finite(op, name, value) {
  if (typeof value !== 'number' || !Number.isFinite(value))
    throw new ArgumentError(op, `${name} must be a finite number, got ${shown(value)}`);
  return value;
}

/** Ones up to a diagonal and zeros behind it, as NumPy's `tri`. @param {number} rows @param {number} [columns] as many as rows when left out @param {number} [diagonal] 0 (when left out) the main one, 1 the next above it @param {TypeOptions} [options] @returns {Tensor} [rows, columns] */
export function tri(rows, columns = rows, diagonal = 0, options = {}) {
  const dtype = typeOf('tri', options);
  positive('tri', 'rows', rows);
  positive('tri', 'columns', columns);
  integer('tri', 'diagonal', diagonal);
  return made('tri', [rows, columns], dtype, (i) => Number((i % columns) - Math.floor(i / columns) <= diagonal));
}

/**
 * Numbers from start to end, each the same factor larger than the one before it, as NumPy's `geomspace`.
 * @param {number} start @param {number} end of the same sign, neither 0 @param {number} [steps] 50 when left out @param {TypeOptions} [options]
 * @returns {Tensor} [steps]
 */
export function geomspace(start, end, steps = 50, options = {}) {
  const op = 'geomspace';
  const [from, to] = [finite(op, 'start', start), finite(op, 'end', end)];
  if (!(from * to > 0)) throw new ArgumentError(op, `start and end must have one sign, got ${start} and ${end}`);
  positive(op, 'steps', steps);
  return made(op, [steps], typeOf(op, options), (i) => (i === 0 ? from : i === steps - 1 ? to : from * (to / from) ** (i / (steps - 1))));
}

/**
 * A tensor of numbers computed on the host. A graph keeps them: each call gets a copy, which it may overwrite and return.
 * @param {string} op @param {readonly number[]} shape @param {DType} dtype @param {(i: number) => number} f by the element's number
 */
export function made(op, shape, dtype, f) {
  const layout = denseLayout(shape, dtype);
  checkBytes(op, layout);
  const numbers = dtype === 'f32' ? new Float32Array(layout.size) : new Float64Array(layout.size);
  for (let i = 0; i < numbers.length; i++) numbers[i] = f(i);
  const own = isFloat(dtype) ? numbers : numbers.map((v) => (dtype === 'bool' ? Number(v !== 0) : Math.trunc(v)));
  return within(op, () => {
    const y = uploaded(encode(op, own, dtype), layout);
    return isRecording() ? F.clone(y) : y;
  });
}

/**
 * start, start + step, … up to before `end`, as `torch.arange`; `arange(end)` counts from 0.
 * @param {number} start @param {number} [end] excluded; when left out, `start` is the end and the start is 0
 * @param {number} [step] not 0; 1 when left out
 * @param {TypeOptions} [options] f32 when left out, unlike PyTorch, which takes int64 for integers
 * @returns {Tensor} [⌈(end - start) / step⌉]
 * @throws {ShapeError} if there is nothing between start and end
 */
export function arange(start, end, step = 1, options = {}) {
  const [from, to] =
    end === undefined ? [0, finite('arange', 'end', start)] : [finite('arange', 'start', start), finite('arange', 'end', end)];
  if (finite('arange', 'step', step) === 0) throw new ArgumentError('arange', 'step must not be 0');
  const dtype = typeOf('arange', options);
  const count = Math.ceil((to - from) / step);
  if (!(count >= 1)) throw new ShapeError('arange', `there is nothing from ${from} to ${to} by steps of ${step}`);
  return made('arange', [count], dtype, (i) => from + i * step);
}

/** The i-th of `steps` numbers from start to end, from both ends towards the middle, so that both are exact. @param {number} start @param {number} end @param {number} steps */
const between = (start, end, steps) => (/** @type {number} */ i) => {
  const step = (end - start) / (steps - 1);
  if (steps === 1) return start;
  return 2 * i < steps ? start + i * step : end - (steps - 1 - i) * step;
};

/**
 * `steps` numbers at equal distances, from start to end, both included.
 * @param {number} start @param {number} end @param {number} steps @param {TypeOptions} [options]
 * @returns {Tensor} [steps]
 */
export function linspace(start, end, steps, options = {}) {
  finite('linspace', 'start', start);
  finite('linspace', 'end', end);
  const count = positive('linspace', 'steps', steps);
  return made('linspace', [count], typeOf('linspace', options), between(start, end, count));
}

/**
 * The powers of `base` by `steps` exponents at equal distances, from start to end, both included.
 * @param {number} start the first exponent @param {number} end the last exponent @param {number} steps
 * @param {number} [base] 10 when left out @param {TypeOptions} [options]
 * @returns {Tensor} [steps]
 */
export function logspace(start, end, steps, base = 10, options = {}) {
  finite('logspace', 'start', start);
  finite('logspace', 'end', end);
  finite('logspace', 'base', base);
  const exponent = between(start, end, positive('logspace', 'steps', steps));
  return made('logspace', [steps], typeOf('logspace', options), (i) => base ** exponent(i));
}

/**
 * A matrix with ones on the main diagonal and zeros elsewhere.
 * @param {number} rows @param {number} [columns] as many as rows when left out @param {TypeOptions} [options]
 * @returns {Tensor} [rows, columns]
 */
export function eye(rows, columns = rows, options = {}) {
  positive('eye', 'rows', rows);
  positive('eye', 'columns', columns);
  const dtype = typeOf('eye', options);
  checkBytes('eye', denseLayout([rows, columns], 'f32'));
  return within('eye', () => F.to(band(rows, columns, 0, F.eq), dtype));
}

/**
 * Options of `meshgrid`.
 * @typedef {object} MeshgridOptions
 * @property {'ij' | 'xy'} [indexing] 'ij' (when left out): the first tensor runs along the first dimension; 'xy': along the second, and the
 *   second along the first
 */

/**
 * Coordinates of a grid: the i-th result has the i-th vector along its i-th dimension, and repeats it along the others. Views.
 * @param {Tensor[]} vectors of one type, each of at most one dimension @param {MeshgridOptions} [options]
 * @returns {Tensor[]}
 */
export function meshgrid(vectors, options = {}) {
  const op = 'meshgrid';
  const { indexing = 'ij' } = checkOptions(op, options, ['indexing']);
  if (indexing !== 'ij' && indexing !== 'xy') throw new ArgumentError(op, `indexing must be 'ij' or 'xy', got ${shown(indexing)}`);
  const list = vectorsOf(op, vectors);
  const swaps = indexing === 'xy' && list.length >= 2;
  const order = swaps ? [list[1], list[0], ...list.slice(2)] : list;
  const shape = order.map((x) => x.size);
  return within(op, () => {
    const grids = order.map((x, d) =>
      F.expand(
        F.reshape(
          x,
          shape.map((size, k) => (k === d ? size : 1)),
        ),
        shape,
      ),
    );
    return swaps ? [grids[1], grids[0], ...grids.slice(2)] : grids;
  });
}

/** @param {string} op @param {unknown} vectors @returns {Tensor[]} */
function vectorsOf(op, vectors) {
  if (!Array.isArray(vectors) || vectors.length === 0) throw new ArgumentError(op, 'expected an array of tensors');
  const list = vectors.map((x) => tensorOf(op, x));
  for (const { ndim, dtype } of list) {
    if (ndim > 1) throw new ShapeError(op, `expected vectors, got a tensor of ${ndim} dimensions`);
    if (dtype !== list[0].dtype) throw new ArgumentError(op, `takes tensors of one type, got ${list[0].dtype} and ${dtype}`);
  }
  return list;
}

/**
 * All combinations of one element of each vector, in the order of the vectors.
 * @param {Tensor[]} vectors of one type
 * @returns {Tensor} [combinations, vectors]; of one vector, that vector
 */
export function cartesianProd(vectors) {
  const list = vectorsOf('cartesianProd', vectors);
  const shape = list.map((x) => x.size);
  checkBytes('cartesianProd', denseLayout([...shape, list.length], 'f32'));
  return within('cartesianProd', () => {
    if (list.length === 1) return F.clone(F.reshape(list[0], [-1]));
    return F.stack(
      meshgrid(list).map((x) => F.reshape(x, [-1])),
      -1,
    );
  });
}

// ---- like another tensor

/** @param {string} op @param {Tensor} x @param {TypeOptions} options @returns {[shape: number[], options: { dtype: DType }]} */
const like = (op, x, options) => {
  const { shape, dtype } = tensorOf(op, x);
  return [[...shape], { dtype: typeOf(op, options, dtype) }];
};

/** A tensor of one value, of the shape and type of x. @param {Tensor} x @param {number} value @param {TypeOptions} [options] x's type when left out @returns {Tensor} */
export function fullLike(x, value, options = {}) {
  const own = like('fullLike', x, options);
  return within('fullLike', () => F.full(own[0], value, own[1]));
}
/** Zeros of the shape and type of x. @param {Tensor} x @param {TypeOptions} [options] x's type when left out @returns {Tensor} */
export function zerosLike(x, options = {}) {
  const own = like('zerosLike', x, options);
  return within('zerosLike', () => F.zeros(...own));
}
/** Ones of the shape and type of x. @param {Tensor} x @param {TypeOptions} [options] x's type when left out @returns {Tensor} */
export function onesLike(x, options = {}) {
  const own = like('onesLike', x, options);
  return within('onesLike', () => F.ones(...own));
}
/** A tensor of the shape and type of x with undefined contents. @param {Tensor} x @param {TypeOptions} [options] x's type when left out @returns {Tensor} */
export function emptyLike(x, options = {}) {
  const own = like('emptyLike', x, options);
  return within('emptyLike', () => empty(...own));
}

/** @param {string} op @param {Tensor} x @param {TypeOptions} options @param {(shape: number[]) => Tensor} draw */
function drawnLike(op, x, options, draw) {
  const [shape, { dtype }] = like(op, x, options);
  if (!isFloat(dtype)) throw new ArgumentError(op, `draws f32, f16 or bf16, got ${dtype}: give another type, { dtype: 'f32' }`);
  return within(op, () => F.to(draw(shape), dtype));
}
/** Uniform numbers in [0, 1), as of `rand`, of the shape and type of x. @param {Tensor} x @param {TypeOptions} [options] x's type when left out @returns {Tensor} */
export const randLike = (x, options = {}) => drawnLike('randLike', x, options, (shape) => rand(shape));
/** Normally distributed numbers, as of `randn`, of the shape and type of x. @param {Tensor} x @param {TypeOptions} [options] x's type when left out @returns {Tensor} */
export const randnLike = (x, options = {}) => drawnLike('randnLike', x, options, (shape) => randn(shape));

// ---- random integers

/**
 * Integers from low to before high, drawn on the device as in `rand`: 32 random bits modulo high - low.
 * @param {number} low @param {number} high excluded @param {readonly number[]} shape
 * @param {TypeOptions} [options] i32 when left out; PyTorch takes int64
 * @returns {Tensor}
 */
export function randint(low, high, shape, options = {}) {
  const op = 'randint';
  const [from, to] = [integer(op, 'low', low), integer(op, 'high', high)];
  if (from < -(2 ** 31) || to > 2 ** 31 || from >= to)
    throw new ArgumentError(op, `low must be less than high, and both of 32 bits, got ${from} and ${to}`);
  const sizes = checkShape(op, shape);
  const dtype = typeOf(op, options, 'i32');
  if (dtype === 'u32' && from < 0) throw new ArgumentError(op, `low must be at least 0 for u32, got ${from}`);
  return within(op, () => {
    const bits = apply(random, [deviceState()], { shape: [...sizes], distribution: 'bits' });
    // A range of 2^32 is 0 here, by which a remainder is the number itself.
    const [range, first] = [F.full([], (to - from) % 2 ** 32, { dtype: 'u32' }), F.full([], from, { dtype: 'i32' })];
    return F.to(apply(ops.integersOf, [bits, range, first]), dtype);
  });
}

/**
 * A random permutation of 0 … n - 1, drawn on the host (Fisher & Yates 1938). A compiled function draws a new one at every call, on the device:
 * the order of n random words, of which the first of equal ones comes first.
 * @param {number} n @param {TypeOptions} [options] i32 when left out; PyTorch takes int64
 * @returns {Tensor} [n]
 */
export function randperm(n, options = {}) {
  positive('randperm', 'n', n);
  const dtype = typeOf('randperm', options, 'i32');
  checkBytes('randperm', denseLayout([n], 'i32'));
  if (isRecording()) {
    return within('randperm', () => F.to(argsort(randint(-(2 ** 31), 2 ** 31, [n])), dtype));
  }
  const order = permutation(n);
  return made('randperm', [n], dtype, (i) => order[i]);
}

// ---- indices of triangles

/** @param {string} op @param {number} rows @param {number} columns @param {number} offset @param {(row: number) => [from: number, to: number]} part columns of a row */
function triangleIndices(op, rows, columns, offset, part) {
  positive(op, 'rows', rows);
  positive(op, 'columns', columns);
  integer(op, 'offset', offset);
  checkBytes(op, denseLayout([rows], 'i32'));
  let count = 0;
  for (let r = 0; r < rows; r++) count += Math.max(0, part(r)[1] - part(r)[0]);
  if (count === 0) throw new ShapeError(op, `a matrix [${rows}, ${columns}] has no elements there for the offset ${offset}`);
  const layout = denseLayout([2, count], 'i32');
  checkBytes(op, layout);
  const numbers = new Int32Array(2 * count);
  let at = 0;
  for (let r = 0; r < rows; r++) {
    const [from, to] = part(r);
    for (let c = from; c < to; c++, at++) [numbers[at], numbers[count + at]] = [r, c];
  }
  return within(op, () => (isRecording() ? F.clone(uploaded(numbers, layout)) : uploaded(numbers, layout)));
}
/**
 * Rows and columns of the lower triangle of a matrix, row by row.
 * @param {number} rows @param {number} columns @param {number} [offset] the last diagonal of it: 0 (when left out) the main one
 * @returns {Tensor} i32 [2, elements]
 */
export const trilIndices = (rows, columns, offset = 0) =>
  triangleIndices('trilIndices', rows, columns, offset, (r) => [0, Math.min(columns, r + offset + 1)]);
/**
 * Rows and columns of the upper triangle of a matrix, row by row.
 * @param {number} rows @param {number} columns @param {number} [offset] the first diagonal of it: 0 (when left out) the main one
 * @returns {Tensor} i32 [2, elements]
 */
export const triuIndices = (rows, columns, offset = 0) =>
  triangleIndices('triuIndices', rows, columns, offset, (r) => [Math.max(0, r + offset), columns]);
