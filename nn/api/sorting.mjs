// Sorting, searching, counting and choosing, as functions. Names, order of arguments, defaults and edges are PyTorch's.
//
// The size of some results depends on elements. Those functions are asynchronous: they read a count, and then make the result.

import { apply, tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, UsageError, show, shown, within } from '../core/errors.mjs';
import { broadcastShapes, checkNumber, dimension, isFloat, positive, sizeOf } from '../core/layout.mjs';
import { checkOptions, flag } from '../core/options.mjs';
import { isRecording } from '../core/runtime.mjs';
import { scope } from '../core/scope.mjs';
import { unscoped } from '../core/storage.mjs';
import { random } from '../ops/random.mjs';
import * as scans from '../ops/scan.mjs';
import * as indexing from '../ops/indexing.mjs';
import * as sorts from '../ops/sorting.mjs';
import * as F from './functional.mjs';
import { gather, indexOf, indexSelect, scatter, signedIndexOf, writtenInPart } from './indexing.mjs';
import { scatterAdd } from './scatter.mjs';
import { combined, orderOf, picked, ranksOf, toWords } from './integer-rows.mjs';
import { logicalAnd } from './integers.mjs';
import { deviceState } from './random.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */
/** @typedef {import('./reductions.mjs').Chosen} Chosen */

/**
 * Options of `searchsorted` and `bucketize`.
 * @typedef {object} SearchOptions
 * @property {boolean} [right] whether equal elements lie before the place that is found; false when left out
 */

/**
 * Options of `scatterReduce`.
 * @typedef {object} ScatterReduceOptions
 * @property {boolean} [includeSelf] whether the elements of x are combined, too, where sources are; true when left out
 */

/**
 * Options of `indexAdd`.
 * @typedef {object} IndexAddOptions
 * @property {number} [alpha] a factor on the source; 1 when left out
 */

/**
 * What `unique` finds.
 * @typedef {object} Unique
 * @property {Tensor} values [n], the different elements
 * @property {Tensor} inverse i32, of x's shape: the index in `values` of each element
 * @property {Tensor} counts i32 [n], how often each occurs
 */

/**
 * x in rows of 32-bit elements along a dimension, and how results of rows are put back.
 * @param {Tensor} x @param {number} d
 */
function rowsOf(x, d) {
  const rows = F.transpose(F.reshape(toWords(x), x.ndim === 0 ? [1] : x.shape), d, -1);
  const back = (/** @type {Tensor} */ y) => (x.ndim === 0 ? F.reshape(y, []) : F.transpose(y, d, -1));
  return { rows, back };
}

// ---- sorting

/**
 * Sorts along a dimension: the elements, and the index where each was. The sort is stable in both directions; NaN is larger than every number.
 * The elements take their gradients with them.
 * @param {Tensor} x @param {number} [dim] the last when left out
 * @param {boolean} [descending] whether the largest comes first
 * @returns {Chosen}
 */
export function sort(x, dim = -1, descending = false) {
  const d = dimension('sort', dim, tensorOf('sort', x).ndim);
  flag('sort', 'descending', descending);
  return within('sort', () => firstOf(x, d, descending, x.shape[d] ?? 1));
}

/** The first `k` in order. @param {Tensor} x @param {number} d @param {boolean} descending @param {number} k @returns {Chosen} */
function firstOf(x, d, descending, k) {
  const { rows, back } = rowsOf(x, d);
  const first = orderOf(rows.detach(), descending, k);
  return { values: F.to(back(picked(rows, first)), x.dtype), indices: back(first) };
}

/**
 * The indices that sort x along a dimension, as i32; see `sort`.
 * @param {Tensor} x @param {number} [dim] the last when left out @param {boolean} [descending] whether the largest comes first
 * @returns {Tensor}
 */
export function argsort(x, dim = -1, descending = false) {
  const d = dimension('argsort', dim, tensorOf('argsort', x).ndim);
  flag('argsort', 'descending', descending);
  return within('argsort', () => {
    const { rows, back } = rowsOf(x.detach(), d);
    return back(orderOf(rows, descending));
  });
}

/** @param {string} op @param {Tensor} x @param {number} k @param {number} d */
function checkK(op, x, k, d) {
  positive(op, 'k', k);
  const size = x.shape[d] ?? 1;
  if (k > size) throw new ShapeError(op, `k must be at most the size of the dimension, ${size} of ${show(x.shape)}, got ${k}`);
}

/** No elements of a dimension, and their indices. @param {Tensor} x @param {number} d @returns {Chosen} */
function ofNone(x, d) {
  const values = F.slice(x, d, 0, 0);
  return { values, indices: F.zeros(values.shape, { dtype: 'i32' }) };
}

/**
 * The k largest elements along a dimension in descending order, or with `largest` false the smallest in ascending order, and their indices; of
 * equal elements the first come first. NaN is larger than every number.
 * @param {Tensor} x @param {number} k @param {number} [dim] the last when left out @param {boolean} [largest] true when left out
 * @param {boolean} [sorted] as in PyTorch; the result is sorted even where it is false
 * @returns {Chosen}
 */
export function topk(x, k, dim = -1, largest = true, sorted = true) {
  const d = dimension('topk', dim, tensorOf('topk', x).ndim);
  flag('topk', 'largest', largest);
  flag('topk', 'sorted', sorted);
  if (k === 0 && x.ndim > 0) return within('topk', () => ofNone(x, d));
  if (!(Number.isInteger(k) && k >= (x.ndim > 0 ? 0 : 1)))
    throw new ArgumentError('topk', `k must be an integer of at least ${x.ndim > 0 ? 0 : 1}, got ${shown(k)}`);
  checkK('topk', x, k, d);
  return within('topk', () => firstOf(x, d, largest, k));
}

/**
 * The k-th smallest element along a dimension, counted from 1, and its index.
 * @param {Tensor} x @param {number} k @param {number} [dim] the last when left out @param {boolean} [keepdim] whether the dimension stays, of size 1
 * @returns {Chosen}
 */
export function kthvalue(x, k, dim = -1, keepdim = false) {
  const d = dimension('kthvalue', dim, tensorOf('kthvalue', x).ndim);
  flag('kthvalue', 'keepdim', keepdim);
  checkK('kthvalue', x, k, d);
  return within('kthvalue', () => {
    const { rows, back } = rowsOf(x, d);
    const place = F.slice(orderOf(rows.detach(), false), -1, k - 1, k).contiguous();
    const put = (/** @type {Tensor} */ y) => (keepdim ? back(y) : F.reshape(back(y), x.shape.toSpliced(d, 1)));
    return { values: F.to(put(picked(rows, place)), x.dtype), indices: put(place) };
  });
}

// ---- searching and counting

/**
 * Where values belong in sorted elements: the index before which each has to stand to keep the order, as i32. NaN is larger than every number.
 * @param {Tensor} sorted ascending along the last dimension: [n], or of the values' sizes but for the last
 * @param {Tensor | number} values of the same type @param {SearchOptions} [options]
 * @returns {Tensor} of the values' shape
 */
export function searchsorted(sorted, values, options = {}) {
  return searched('searchsorted', tensorOf('searchsorted', sorted), values, options);
}

/** @param {string} op @param {Tensor} sorted @param {Tensor | number} values @param {SearchOptions} options @returns {Tensor} */
function searched(op, sorted, values, options) {
  const { right = false } = checkOptions(op, options, ['right']);
  flag(op, 'right', right);
  if (sorted.ndim === 0) throw new ShapeError(op, 'the sorted tensor must have at least one dimension, got []');
  return within(op, () => {
    const own =
      typeof values === 'number' ? F.full([], checkNumber(op, values, sorted.dtype), { dtype: sorted.dtype }) : tensorOf(op, values);
    // One number stands for a row of one.
    const rows = own.ndim === 0 ? F.reshape(own, [1]) : own;
    const alike = sorted.dtype === rows.dtype || (isFloat(sorted.dtype) && isFloat(rows.dtype));
    if (sorted.ndim !== 1 && show(sorted.shape.slice(0, -1)) !== show(rows.shape.slice(0, -1)))
      throw new ShapeError(
        op,
        `the sorted tensor ${show(sorted.shape)} must have one dimension, or the sizes of the values ${show(rows.shape)} but for the last`,
      );
    const [list, wanted] = (alike ? [toWords(sorted), toWords(rows)] : [sorted, rows]).map((x) => x.detach());
    const ofOneRow = sorted.ndim === 1 ? F.reshape(wanted, [-1]) : wanted;
    const operands = alike && sorted.dtype === 'i64' ? ranksOf(list, ofOneRow) : [list, ofOneRow];
    return F.reshape(apply(sorts.searchSorted, operands, { right }), own.shape);
  });
}

/**
 * The bucket of each element: how many boundaries are less than it, or with `right` less or equal.
 * @param {Tensor | number} x @param {Tensor} boundaries [n], ascending, of x's type @param {SearchOptions} [options]
 * @returns {Tensor} i32, of x's shape
 */
export function bucketize(x, boundaries, options = {}) {
  if (tensorOf('bucketize', boundaries).ndim !== 1)
    throw new ShapeError('bucketize', `the boundaries must have one dimension, got ${show(boundaries.shape)}`);
  return searched('bucketize', boundaries, x, options);
}

/** How often each of 0 … count - 1 is among i32 numbers, as i32. @param {Tensor} ids @param {number} count */
function counted(ids, count) {
  const flat = F.reshape(ids, [-1]);
  const sorted = apply(sorts.pick, [flat, apply(indexing.argsort, [flat], { descending: false })]);
  const each = apply(sorts.iota, [], { shape: [count] });
  const [below, to] = [false, true].map((right) => apply(sorts.searchSorted, [sorted, each], { right }));
  return apply(sorts.indexMinus, [to, below]);
}

/**
 * Counts the elements in `bins` intervals of equal width from `min` to `max`, both included; others and NaN are left out. If both are 0, they are
 * the smallest and the largest element.
 * @param {Tensor} x f32, f16 or bf16 @param {number} [bins] 100 when left out @param {number} [min] 0 when left out @param {number} [max] 0 when left out
 * @returns {Tensor} [bins] of x's type
 */
export function histc(x, bins = 100, min = 0, max = 0) {
  positive('histc', 'bins', bins);
  for (const [name, value] of [
    ['min', min],
    ['max', max],
  ])
    if (!Number.isFinite(value)) throw new ArgumentError('histc', `${name} must be a number, got ${shown(value)}`);
  if (min > max) throw new ArgumentError('histc', `min must be at most max, got ${min} and ${max}`);
  if (!isFloat(tensorOf('histc', x).dtype))
    throw new ArgumentError('histc', `takes f32, f16 or bf16, got ${x.dtype}; convert with .to('f32')`);
  return within('histc', () => {
    const own = F.reshape(F.to(x.detach(), 'f32'), [-1]);
    const ends = min === max && min === 0 && own.size > 0 ? [F.amin(own, 0), F.amax(own, 0)] : [F.full([], min), F.full([], max)];
    // Of no width, they are moved apart by 1 each.
    const flat = F.to(F.eq(ends[0], ends[1]), 'f32');
    const [low, high] = [F.sub(ends[0], flat), F.add(ends[1], flat)];
    const place = F.minimum(F.div(F.mul(F.sub(own, low), bins), F.sub(high, low)), bins - 1);
    const inside = logicalAnd(F.ge(own, low), F.le(own, high));
    const ids = F.where(inside, F.to(place, 'i32'), -1);
    return F.to(F.to(counted(ids, bins), 'f32'), x.dtype);
  });
}

// ---- results whose size depends on elements

/**
 * @param {string} op @param {string} size what the size of the result is @param {string} instead what a compiled function does instead
 */
function checkNotCompiled(op, size, instead) {
  if (isRecording())
    throw new UsageError(op, `the size of the result is ${size}, which a compiled function does not know while it is compiled: ${instead}`);
}

/** An i32 of the device, which is disposed of; 0 of none. @param {Tensor | undefined} x @returns {Promise<number>} */
async function readNumber(x) {
  if (x === undefined) return 0;
  const value = await x.item();
  x.dispose();
  return value;
}

/** The last element, if there is one. @param {Tensor} sums */
const lastOf = (sums) => (sums.size === 0 ? undefined : F.slice(sums, 0, sums.size - 1).clone());

/**
 * The marks of a flat tensor, where marked elements go when the others are left out, and how many there are. They outlive the caller's scope,
 * which may end before the count is read.
 * @param {() => Tensor} make bools
 */
function packed(make) {
  return unscoped(() =>
    scope(() => {
      const marks = F.reshape(make(), [-1]);
      const sums = apply(scans.cumsum, [marks], {});
      return { places: apply(sorts.packedPlace, [marks, sums]), total: lastOf(sums) };
    }),
  );
}

/**
 * The indices of the elements that are not 0, row by row. It waits for their number; a compiled function uses the mask itself, with `F.where`.
 * @param {Tensor} x
 * @returns {Promise<Tensor>} i32 [n, dimensions]
 */
export function nonzero(x) {
  const { shape, ndim } = tensorOf('nonzero', x);
  checkNotCompiled('nonzero', 'the number of elements that are not 0', 'use the mask x.ne(0) itself, as in F.where(mask, a, b)');
  const { places, total } = within('nonzero', () => packed(() => (x.dtype === 'bool' ? x : F.ne(x, 0))));
  return (async () => {
    const size = await readNumber(total);
    const found = within('nonzero', () =>
      scope(() => {
        const flat = apply(sorts.put, [places, apply(sorts.iota, [], { shape: [places.size] })], { size });
        const columns = shape.map((n, d) => apply(sorts.coordinate, [flat], { step: sizeOf(shape.slice(d + 1)), size: n }));
        return ndim === 0 ? F.zeros([size, 0], { dtype: 'i32' }) : F.stack(columns, 1);
      }),
    );
    places.dispose();
    return found;
  })();
}

/**
 * The elements where a mask is true, row by row. It waits for their number, and x must live until then; a compiled function uses `F.where`.
 * @param {Tensor} x @param {Tensor} mask bool; both broadcast
 * @returns {Promise<Tensor>} [n] of x's type
 */
export function maskedSelect(x, mask) {
  tensorOf('maskedSelect', x);
  if (tensorOf('maskedSelect', mask).dtype !== 'bool')
    throw new ArgumentError('maskedSelect', `the mask must be bool, got ${mask.dtype}: compare, as in x.gt(0)`);
  checkNotCompiled('maskedSelect', 'the number of true elements of the mask', 'use F.where(mask, x, 0), which keeps the shape');
  const shape = broadcastShapes('maskedSelect', x.shape, mask.shape);
  if (x.dtype === 'i64')
    return (async () => {
      const places = await nonzero(within('maskedSelect', () => F.reshape(F.expand(mask, shape), [-1])));
      const chosen = within('maskedSelect', () =>
        scope(() => indexSelect(F.reshape(F.expand(x, shape), [-1]), 0, F.reshape(places, [-1]))),
      );
      places.dispose();
      return chosen;
    })();
  const { places, total } = within('maskedSelect', () => packed(() => F.expand(mask, shape)));
  return (async () => {
    const size = await readNumber(total);
    const chosen = within('maskedSelect', () =>
      scope(() => F.to(apply(sorts.put, [places, F.reshape(F.expand(toWords(x), shape), [-1])], { size }), x.dtype)),
    );
    places.dispose();
    return chosen;
  })();
}

/**
 * Groups of equal neighbours, one after another.
 * @param {string} op @param {Tensor} x as the caller gave it @param {Tensor} flat its elements, as `toWords` gives them
 * @param {Tensor | undefined} order where they were, if they were sorted
 * @returns {Promise<Unique>}
 */
async function grouped(op, x, flat, order) {
  const { shape, dtype } = x;
  const { places, total, group } = within(op, () =>
    unscoped(() =>
      scope(() => {
        const first = F.ones([1], { dtype: 'bool' });
        const marks = flat.size < 2 ? F.slice(first, 0, 0, flat.size) : F.cat([first, F.ne(F.slice(flat, 0, 1), F.slice(flat, 0, 0, -1))]);
        const sums = apply(scans.cumsum, [marks], {});
        const group = apply(sorts.indexMinus, [sums, F.ones([], { dtype: 'i32' })]);
        return { places: apply(sorts.packedPlace, [marks, sums]), total: lastOf(sums), group };
      }),
    ),
  );
  const size = await readNumber(total);
  const result = within(op, () =>
    scope(() => {
      const put = (/** @type {Tensor} */ own) => apply(sorts.put, [places, own], { size });
      const values = dtype === 'i64' ? gather(flat, 0, put(apply(sorts.iota, [], { shape: [flat.size] }))) : F.to(put(flat), dtype);
      const inverse = order ? apply(sorts.put, [order, group], { size: flat.size }) : group.clone();
      const each = apply(sorts.iota, [], { shape: [size] });
      const [below, to] = [false, true].map((right) => apply(sorts.searchSorted, [group, each], { right }));
      return { values, inverse: F.reshape(inverse, shape), counts: apply(sorts.indexMinus, [to, below]) };
    }),
  );
  for (const own of [places, group, flat, order]) own?.dispose();
  return result;
}

/**
 * The different elements in ascending order, where each element of x is among them, and how often each occurs. Every NaN differs from the
 * others. It waits for their number. No gradient flows through it.
 * @param {Tensor} x
 * @returns {Promise<Unique>}
 */
export function unique(x) {
  tensorOf('unique', x);
  checkNotCompiled('unique', 'the number of different elements', 'call F.unique outside, and pass what it returns to the function');
  const { flat, order } = within('unique', () =>
    unscoped(() =>
      scope(() => {
        const own = F.reshape(toWords(x.detach()), [-1]);
        const order = orderOf(own, false);
        return { flat: picked(own, order), order };
      }),
    ),
  );
  return grouped('unique', x, flat, order);
}

/**
 * Equal neighbours as one element each, of x as one row: those elements, where each element of x is among them, and how many neighbours it
 * stands for. It waits for their number. No gradient flows through it.
 * @param {Tensor} x
 * @returns {Promise<Unique>}
 */
export function uniqueConsecutive(x) {
  tensorOf('uniqueConsecutive', x);
  checkNotCompiled('uniqueConsecutive', 'the number of runs', 'call F.uniqueConsecutive outside, and pass what it returns to the function');
  const flat = within('uniqueConsecutive', () => unscoped(() => scope(() => F.clone(F.reshape(toWords(x.detach()), [-1])))));
  return grouped('uniqueConsecutive', x, flat, undefined);
}

/**
 * How often each number occurs among ids, or the sum of the weights of each. It waits for the largest id. Negative ids are left out (PyTorch
 * refuses them). The weights must live until then. Inside a compiled function, where the number of classes is known: F.scatterAdd(F.zeros([classes]), 0, ids, weights).
 * @param {Tensor} ids [n] i32, u32 or i64 @param {Tensor} [weights] [n] f32, f16 or bf16; each 1 when left out @param {number} [minlength] the least
 *   size of the result; 0 when left out
 * @returns {Promise<Tensor>} [largest id + 1] i32, or of the weights' type
 */
export function bincount(ids, weights, minlength = 0) {
  ids = indexOf('bincount', ids);
  if (ids.ndim !== 1) throw new ShapeError('bincount', `the ids must have one dimension, got ${show(ids.shape)}`);
  if (weights !== undefined) {
    if (!isFloat(tensorOf('bincount', weights).dtype))
      throw new ArgumentError('bincount', `weights must be f32, f16 or bf16, got ${weights.dtype}`);
    if (show(weights.shape) !== show(ids.shape))
      throw new ShapeError('bincount', `weights ${show(weights.shape)} must have the shape of the ids, ${show(ids.shape)}`);
  }
  if (!Number.isInteger(minlength) || minlength < 0)
    throw new ArgumentError('bincount', `minlength must be an integer of at least 0, got ${shown(minlength)}`);
  checkNotCompiled('bincount', 'the largest id', 'use F.scatterAdd(F.zeros([classes]), 0, ids, weights)');
  const { own, largest } = within('bincount', () =>
    unscoped(() =>
      scope(() => {
        const own = F.to(ids, 'i32').clone();
        return { own, largest: own.size === 0 ? undefined : F.amax(own, 0) };
      }),
    ),
  );
  return (async () => {
    const size = Math.max(minlength, largest ? (await readNumber(largest)) + 1 : 0, 0);
    const counts = within('bincount', () =>
      scope(() => {
        if (weights === undefined) return counted(own, size);
        const index = F.to(F.where(F.lt(own, 0), size, own), 'u32');
        return F.to(runs(F.zeros([size]), index, F.to(weights, 'f32'), 'sum', false), weights.dtype);
      }),
    );
    own.dispose();
    return counts;
  })();
}

// ---- drawing

/**
 * Draws indices of rows by their weights, which need not add up to 1, on the device; `manualSeed` determines them, and a compiled function draws
 * anew at every call. Without replacement no index is drawn twice: of a row with fewer positive weights the rest of the result has other
 * indices. Weights must be at least 0, and not all 0: they are not checked, since that would read them back.
 * @param {Tensor} weights [n] or [rows, n] f32, f16 or bf16 @param {number} numSamples @param {boolean} [replacement] false when left out
 * @returns {Tensor} [numSamples] or [rows, numSamples] i32
 */
export function multinomial(weights, numSamples, replacement = false) {
  const { ndim, shape, dtype } = tensorOf('multinomial', weights);
  positive('multinomial', 'numSamples', numSamples);
  flag('multinomial', 'replacement', replacement);
  if (!isFloat(dtype)) throw new ArgumentError('multinomial', `takes f32, f16 or bf16, got ${dtype}; convert with .to('f32')`);
  if (ndim !== 1 && ndim !== 2) throw new ShapeError('multinomial', `the weights must be [n] or [rows, n], got ${show(shape)}`);
  const columns = shape[ndim - 1];
  if (!replacement && numSamples > columns)
    throw new ShapeError('multinomial', `without replacement numSamples must be at most ${columns}, of ${show(shape)}, got ${numSamples}`);
  return within('multinomial', () => {
    const own = F.to(weights.detach(), 'f32');
    return replacement ? drawn(own, numSamples) : apart(own, numSamples);
  });
}

/** With replacement: where a uniform number lies among the running sums. @param {Tensor} weights @param {number} count */
function drawn(weights, count) {
  const columns = weights.shape.at(-1) ?? 1;
  const sums = apply(scans.cumsum, [weights], {});
  const shape = weights.shape.with(-1, count);
  const uniform = apply(random, [deviceState()], { shape, distribution: 'uniform', low: 0, high: 1 });
  // Below the total, as the largest uniform number is 1 - 2^-24.
  const place = apply(sorts.searchSorted, [sums, F.mul(uniform, F.slice(sums, -1, columns - 1))], { right: true });
  // Running sums of blocks may differ in the last bit beside a weight of 0, which must not be drawn: the last positive weight before it is.
  const before = apply(scans.cummaxPlace, [F.where(F.gt(weights, 0), apply(sorts.iota, [], { shape: [columns] }), -1)]);
  return gather(before, -1, F.where(F.lt(place, columns), place, columns - 1));
}

/**
 * Without replacement: the largest weight / e, where e are exponentially distributed (Efraimidis & Spirakis 2006).
 * @param {Tensor} weights @param {number} count
 */
function apart(weights, count) {
  const bits = apply(random, [deviceState()], { shape: [...weights.shape], distribution: 'bits' });
  // In (0, 1], as fine near 0 as 2^-32: the smallest numbers decide. The logarithm of what is left of 1 stays finite.
  const uniform = F.mul(F.add(F.to(bits, 'f32'), 0.5), 2 ** -32);
  const exponential = F.minimum(F.neg(F.log1p(F.neg(uniform))), 30);
  return firstOf(F.div(weights, exponential), weights.ndim - 1, true, count).indices;
}

// ---- writing by index

const REDUCTIONS = /** @type {const} */ (['sum', 'prod', 'mean', 'amax', 'amin']);
/** How `scatterReduce` combines elements. @typedef {(typeof REDUCTIONS)[number]} Reduction */

/**
 * x with sources combined by index, along the last dimension.
 * @param {Tensor} x f32 @param {Tensor} index u32 @param {Tensor} source f32 @param {import('../../kernels/sorting.mjs').RunOp} op @param {boolean} apart
 */
function runs(x, index, source, op, apart) {
  return apply(indexing.reduceRuns, [x, index, apply(indexing.argsort, [index], { descending: false }), source], { op, apart });
}

/**
 * A copy of x with elements of `source` combined by index, as PyTorch's `scatter_reduce`: y[i][index[i][k][j]][j] is combined with source[i][k][j]
 * for three dimensions and `dim` 1, in the order of k. A negative index counts from the end; one out of range is dropped. The indices are sorted,
 * so that the dimension may be long. The gradient of amax and amin is shared by equal elements.
 * Of integers a mean is rounded down, and results wrap. Halves are combined in f32, and the result is rounded once.
 * @param {Tensor} x of any type but bool @param {number} dim @param {Tensor} index i32, u32 or i64, of at most x's sizes except along `dim`
 * @param {Tensor} source of at least the index's sizes, and of x's type; where both are floats of any @param {Reduction} reduce @param {ScatterReduceOptions} [options]
 * @returns {Tensor}
 */
export function scatterReduce(x, dim, index, source, reduce, options = {}) {
  const d = dimension('scatterReduce', dim, tensorOf('scatterReduce', x).ndim);
  index = indexOf('scatterReduce', index);
  tensorOf('scatterReduce', source);
  if (!REDUCTIONS.includes(reduce))
    throw new ArgumentError('scatterReduce', `reduce must be one of ${REDUCTIONS.join(', ')}, got ${shown(reduce)}`);
  const { includeSelf = true } = checkOptions('scatterReduce', options, ['includeSelf']);
  flag('scatterReduce', 'includeSelf', includeSelf);
  if (x.dtype === 'bool') throw new ArgumentError('scatterReduce', `takes numbers, got bool; convert with .to('i32')`);
  return writtenInPart('scatterReduce', x, d, index, source, (part, from) => combinedByIndex(part, d, index, from, reduce, includeSelf));
}

/**
 * @param {Tensor} x @param {number} d @param {Tensor} index @param {Tensor} source @param {Reduction} reduce @param {boolean} includeSelf
 * @returns {Tensor}
 */
function combinedByIndex(x, d, index, source, reduce, includeSelf) {
  if (index.ndim !== x.ndim || index.shape.some((size, i) => i !== d && size !== x.shape[i]))
    throw new ShapeError(
      'scatterReduce',
      `the index ${show(index.shape)} and the tensor ${show(x.shape)} must have equal sizes but in dimension ${d}`,
    );
  const isOther = source.dtype !== x.dtype && !(isFloat(source.dtype) && isFloat(x.dtype));
  if (isOther || show(source.shape) !== show(index.shape))
    throw new ShapeError(
      'scatterReduce',
      `expected a source ${x.dtype} ${show(index.shape)}, the shape of the index, got ${source.dtype} ${show(source.shape)}`,
    );
  return within('scatterReduce', () => {
    const { rows, back } = rowsOf(x, d);
    const places = rowsOf(index, d).rows;
    const own = index.dtype === 'i32' ? apply(indexing.fromEnd, [places], { size: rows.shape.at(-1) ?? 1 }) : places;
    const from = rowsOf(source, d).rows;
    if (!isFloat(x.dtype)) return F.to(back(combined(rows, places, from, reduce, includeSelf)), x.dtype);
    const ops = /** @type {const} */ ({ sum: 'sum', prod: 'prod', mean: 'sum', amax: 'max', amin: 'min' });
    const joined = runs(rows, own, from, ops[reduce], !includeSelf);
    if (reduce !== 'mean') return F.to(back(joined), x.dtype);
    const counts = runs(F.full(rows.shape, includeSelf ? 1 : 0), own, F.ones(from.shape), 'sum', false);
    return F.to(back(F.div(joined, F.maximum(counts, 1))), x.dtype);
  });
}

/** An index of one dimension, for all slices. @param {string} op @param {Tensor} x @param {number} d @param {Tensor} index @returns {Tensor} */
function ofSlices(op, x, d, index) {
  if (x.ndim === 0) throw new ShapeError(op, 'a tensor [] has no dimension to index');
  index = indexOf(op, index);
  if (index.ndim !== 1) throw new ShapeError(op, `the index must have one dimension, got ${show(index.shape)}`);
  const shape = x.shape.with(d, index.size);
  return F.expand(
    F.reshape(
      index,
      shape.map((size, i) => (i === d ? size : 1)),
    ),
    shape,
  );
}

/**
 * A copy of x with slices of `source` added by index along a dimension, those of one index in their order.
 * @param {Tensor} x f32, f16 or bf16 @param {number} dim @param {Tensor} index [n] i32, u32 or i64 @param {Tensor} source x's shape with n along `dim`
 * @param {IndexAddOptions} [options]
 */
export function indexAdd(x, dim, index, source, options = {}) {
  const { alpha = 1 } = checkOptions('indexAdd', options, ['alpha']);
  if (typeof alpha !== 'number') throw new ArgumentError('indexAdd', `alpha must be a number, got ${shown(alpha)}`);
  const d = dimension('indexAdd', dim, tensorOf('indexAdd', x).ndim);
  tensorOf('indexAdd', source);
  return within('indexAdd', () => scatterAdd(x, d, ofSlices('indexAdd', x, d, index), alpha === 1 ? source : F.mul(source, alpha)));
}

/**
 * A copy of x with slices of `source` written by index along a dimension; of several with one index the last counts.
 * @param {Tensor} x @param {number} dim @param {Tensor} index [n] i32, u32 or i64 @param {Tensor} source x's shape with n along `dim`
 */
export function indexCopy(x, dim, index, source) {
  const d = dimension('indexCopy', dim, tensorOf('indexCopy', x).ndim);
  tensorOf('indexCopy', source);
  return within('indexCopy', () => scatter(x, d, ofSlices('indexCopy', x, d, index), source));
}

/**
 * A copy of x with one number in the slices of an index.
 * @param {Tensor} x @param {number} dim @param {Tensor} index [n] i32, u32 or i64 @param {number} value
 */
export function indexFill(x, dim, index, value) {
  const d = dimension('indexFill', dim, tensorOf('indexFill', x).ndim);
  if (typeof value !== 'number') throw new ArgumentError('indexFill', `the value must be a number, got ${shown(value)}`);
  return within('indexFill', () => scatter(x, d, ofSlices('indexFill', x, d, index), value));
}

/**
 * A copy of x with the elements of `source`, one after another, where a mask is true.
 * @param {Tensor} x @param {Tensor} mask bool, broadcasts to x's shape @param {Tensor} source of x's type, with at least as many elements as the mask
 *   is true; where it has fewer, 0 is written
 * @returns {Tensor}
 */
export function maskedScatter(x, mask, source) {
  tensorOf('maskedScatter', x);
  if (tensorOf('maskedScatter', mask).dtype !== 'bool')
    throw new ArgumentError('maskedScatter', `the mask must be bool, got ${mask.dtype}: compare, as in x.gt(0)`);
  if (tensorOf('maskedScatter', source).dtype !== x.dtype)
    throw new ArgumentError('maskedScatter', `the source must be ${x.dtype}, as the tensor, got ${source.dtype}`);
  return within('maskedScatter', () => {
    const marks = F.reshape(F.expand(mask, x.shape), [-1]);
    const places = apply(sorts.packedPlace, [marks, apply(scans.cumsum, [marks], {})]);
    return F.where(F.reshape(marks, x.shape), F.reshape(gather(F.reshape(source, [-1]), 0, places), x.shape), x);
  });
}

/**
 * The rows that indices of the first dimensions name, of the tensor as rows of its other dimensions; below 0 where one is out of range.
 * @param {readonly number[]} shape @param {Tensor[]} indices i32, which broadcast @returns {Tensor} i32, of the indices' common shape
 */
function placesOf(shape, indices) {
  let place = F.zeros([], { dtype: 'i32' });
  indices.forEach((index, d) => {
    place = apply(sorts.nextPlace, [place, index], { size: shape[d] });
  });
  return place;
}

/**
 * The elements at index tensors, one for each of the first dimensions, as x[i, j] in PyTorch; numbers stand for themselves.
 * @param {Tensor} x @param {(Tensor | number)[]} indices at most as many as dimensions; numbers are in range
 * @returns {Tensor} of the indices' common shape, then the other dimensions of x; 0 where an index is out of range
 */
export function elementsAt(x, indices) {
  const { shape } = x;
  const own = indices.map((index) => {
    if (typeof index === 'number') return F.full([], index, { dtype: 'i32' });
    if (index.dtype === 'bool')
      throw new ArgumentError('at', 'how many elements a mask chooses is not known: use await x.maskedSelect(mask), or F.where');
    return signedIndexOf('at', index);
  });
  return within('at', () => {
    const common = broadcastShapes('at', ...own.map((index) => index.shape));
    const inner = shape.slice(indices.length);
    const rows = F.reshape(x, [sizeOf(shape.slice(0, indices.length)), sizeOf(inner)]);
    const place = F.reshape(F.expand(placesOf(shape, own), common), [-1]);
    return F.reshape(indexSelect(rows, 0, place), [...common, ...inner]);
  });
}

/**
 * A copy of x with values at the places that index tensors name, one for each of the first dimensions, as x[i, j] = values in PyTorch. Of several
 * values for one place the last counts, or with `accumulate` all are added. A negative index counts from the end; one out of range is dropped.
 * @param {Tensor} x @param {Tensor[]} indices of integers, which broadcast @param {Tensor} values broadcasts to the indices' shape, then the other
 *   dimensions of x @param {boolean} [accumulate] false when left out
 * @returns {Tensor}
 */
export function indexPut(x, indices, values, accumulate = false) {
  const { shape, ndim, size } = tensorOf('indexPut', x);
  if (!Array.isArray(indices) || indices.length === 0 || indices.length > ndim)
    throw new ArgumentError('indexPut', `indices must be an array of 1 to ${ndim} tensors, got ${shown(indices)}`);
  const own = within('indexPut', () => indices.map((index) => signedIndexOf('indexPut', index)));
  tensorOf('indexPut', values);
  flag('indexPut', 'accumulate', accumulate);
  return within('indexPut', () => {
    const common = broadcastShapes('indexPut', ...own.map((index) => index.shape));
    const place = placesOf(shape, own);
    const inner = shape.slice(indices.length);
    const rows = F.reshape(x, [size / sizeOf(inner), -1]);
    const from = F.reshape(F.expand(values, [...common, ...inner]), [sizeOf(common), -1]);
    const to = F.expand(F.reshape(F.expand(place, common), [-1, 1]), from.shape);
    return F.reshape(accumulate ? scatterAdd(rows, 0, to, from) : scatter(rows, 0, to, from), shape);
  });
}
