// Reads and writes by index, sorting, and what has as many results as its elements say.

import { computable, concat, limited, reshape, slice, stridesOf, take } from '../arrays.mjs';
import { TYPES, sizeOf } from '../types.mjs';
import { Value, axisOf, cast, elementwise, f, indexOf, known, mapped, result, same, scalar } from './lib.mjs';
import { cumulated, topK as topKOfLong } from './wide.mjs';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** @typedef {import('../definitions.mjs').Computed} Computed */

const [sum, product] = [elementwise(f.add, (a, b) => a + b), elementwise(f.mul, (a, b) => a * b)];
const plus = (/** @type {Value} */ a, /** @type {Value} */ b) => sum.run([a, b]);
const times = (/** @type {Value} */ a, /** @type {number} */ b) => product.run([a, scalar(a.type, b)]);

/** Indices without negative ones, which count from the end, as i32. @param {Value} index @param {number} size of the dimension @returns {Value} */
function positive(index, size) {
  if (computable(index)) return mapped((i) => (i < 0 ? i + size : i), 'int32', index);
  const i = indexOf(index.tensor);
  return Value.of('int32', f.where(f.lt(i, 0), f.add(i, size), i));
}

/** @type {Computed} */
const gather = {
  run([x, index], { axis = 0 }) {
    const d = axisOf(axis, x.rank);
    const shape = [...x.shape.slice(0, d), ...index.shape, ...x.shape.slice(d + 1)];
    if (!known(x) && index.elements !== undefined && index.size === 1) {
      // One part, as of [q, k, v]: a view needs no kernel.
      const [start] = index.numbers.map((i) => (i < 0 ? i + x.shape[d] : i));
      if (start >= 0 && start < x.shape[d]) return same(x.type, f.reshape(f.slice(x.tensor, d, start, start + 1), shape));
    }
    const at = reshape(positive(index, x.shape[d]), [index.size]);
    if (known(x, at)) return reshape(take(x, d, at.numbers), shape);
    if (index.size === 0) return Value.of(x.type, f.zeros(shape, { dtype: x.tensor.dtype }));
    return same(x.type, f.reshape(f.indexSelect(x.tensor, d, at.tensor), shape));
  },
};

/** x's first elements in every dimension but one, up to another shape. @param {Tensor} x @param {readonly number[]} shape @param {number} d @returns {Tensor} */
const corner = (x, shape, d) => shape.reduce((y, size, i) => (i === d || y.shape[i] === size ? y : f.slice(y, i, 0, size)), x);

/** @type {Computed} */
const gatherElements = {
  run([x, index], { axis = 0 }) {
    const d = axisOf(axis, x.rank);
    return same(x.type, f.gather(corner(x.tensor, index.shape, d), d, positive(index, x.shape[d]).tensor));
  },
};

/**
 * The positions of slices in x, seen as rows, that index vectors name.
 * @param {Value} index [..., depth] @param {readonly number[]} sizes of x's dimensions that they index
 */
function rowsOf(index, sizes) {
  const strides = stridesOf(sizes);
  const last = index.rank - 1;
  const parts = sizes.map((size, i) => times(reshape(positive(slice(index, last, i, 1), size), index.shape.slice(0, -1)), strides[i]));
  return parts.reduce(plus);
}

/** @type {Computed} */
const gatherNd = {
  run([x, index], { batch_dims: batch = 0 }) {
    const depth = /** @type {number} */ (index.shape.at(-1));
    const batches = sizeOf(x.shape.slice(0, batch));
    const sizes = x.shape.slice(batch, batch + depth);
    const inner = x.shape.slice(batch + depth);
    const shape = [...index.shape.slice(0, -1), ...inner];
    let rows = reshape(rowsOf(index, sizes), [batches, index.size / depth / batches]);
    const starts = Int32Array.from({ length: batches }, (_, i) => i * sizeOf(sizes));
    rows = plus(rows, Value.host('int32', [batches, 1], starts));
    const flat = f.reshape(x.tensor, [batches * sizeOf(sizes), sizeOf(inner)]);
    return same(x.type, f.reshape(f.indexSelect(flat, 0, reshape(rows, [rows.size]).tensor), shape));
  },
};

/**
 * x with elements written or combined along a dimension.
 * @param {Tensor} x @param {number} d @param {Tensor} index i32, not larger than x in other dimensions @param {Tensor} source @param {string} reduction
 * @returns {Tensor}
 */
function scattered(x, d, index, source, reduction) {
  const other = x.shape.findIndex((size, i) => i !== d && index.shape[i] < size);
  if (other >= 0) {
    const size = index.shape[other];
    return f.cat([scattered(f.slice(x, other, 0, size), d, index, source, reduction), f.slice(x, other, size)], other);
  }
  if (reduction === 'none') return f.scatter(x, d, index, source);
  if (reduction === 'add') return f.scatterAdd(x, d, index, source);
  const names = /** @type {Record<string, 'prod' | 'amax' | 'amin'>} */ ({ mul: 'prod', max: 'amax', min: 'amin' });
  return f.scatterReduce(x, d, index, source, names[reduction]);
}

/** @type {Computed} */
const scatterElements = {
  run([x, index, updates], { axis = 0, reduction = 'none' }) {
    const d = axisOf(axis, x.rank);
    return result(x.type, scattered(x.tensor, d, positive(index, x.shape[d]).tensor, updates.tensor, reduction));
  },
};

/** @type {Computed} */
const scatterNd = {
  run([x, index, updates], { reduction = 'none' }) {
    const depth = index.shape.at(-1);
    const [sizes, inner] = [x.shape.slice(0, depth), sizeOf(x.shape.slice(depth))];
    const rows = rowsOf(index, sizes);
    const flat = f.reshape(x.tensor, [sizeOf(sizes), inner]);
    const wide = f.expand(f.reshape(rows.tensor, [rows.size, 1]), [rows.size, inner]).contiguous();
    const y = scattered(flat, 0, wide, f.reshape(updates.tensor, [rows.size, inner]), reduction);
    return result(x.type, f.reshape(y, x.shape));
  },
};

/** @type {Computed} */
const tensorScatter = {
  host: [2],
  run([cache, update, starts], { axis = -2, mode = 'linear' }) {
    const d = axisOf(axis, cache.rank);
    const [size, count] = [cache.shape[d], update.shape[d]];
    const samples = Array.from({ length: cache.shape[0] }, (_, b) => {
      const [own, written] = [slice(cache, 0, b, 1), slice(update, 0, b, 1)];
      const order = Array.from({ length: size }, (_, i) => i);
      for (let i = 0; i < count; i++) {
        const at = (starts?.numbers[b] ?? 0) + i;
        order[mode === 'circular' ? at % size : at] = size + i;
      }
      return take(concat([own, written], d), d, order);
    });
    return concat(samples, 0);
  },
};

/** @type {Computed} */
const oneHot = {
  host: [1],
  run([indices, depth, values], { axis = -1 }) {
    const count = depth.numbers[0];
    const d = axis < 0 ? axis + indices.rank + 1 : axis;
    const whole = cast(indices, 'int64');
    const index = f.reshape(positive(whole, count).tensor, indices.shape.toSpliced(d, 0, 1));
    const classes = Value.host(
      'int32',
      [count, ...new Array(indices.rank - d).fill(1)],
      Int32Array.from({ length: limited(count) }, (_, i) => i),
    );
    const [off, on] = [slice(values, 0, 0, 1), slice(values, 0, 1, 1)];
    return same(values.type, f.where(f.eq(index, classes.tensor), on.tensor, off.tensor));
  },
};

/** @type {Computed} */
const topK = {
  host: [1],
  run([x, k], { axis = -1, largest = 1, sorted = 1, k: attribute }) {
    const d = axisOf(axis, x.rank);
    const count = attribute ?? k.numbers[0];
    const isByte = /^[iu]8$/.test(x.tensor.dtype);
    const { values, indices } =
      x.tensor.dtype === 'i64'
        ? topKOfLong(x.tensor, count, d, Boolean(largest))
        : f.topk(isByte ? f.to(x.tensor, 'i32') : x.tensor, count, d, Boolean(largest), Boolean(sorted));
    return [same(x.type, values), Value.of('int64', f.to(indices, TYPES.int64.dtype))];
  },
};

/** @param {'cumsum' | 'cumprod'} name @param {number} neutral @returns {Computed} */
const cumulative = (name, neutral) => ({
  host: [1],
  run([x, axis], { exclusive = 0, reverse = 0 }) {
    const d = axisOf(axis.numbers[0], x.rank);
    const size = x.shape[d];
    const turned = (/** @type {Tensor} */ y) => (reverse ? f.flip(y, d) : y);
    const given = turned(x.tensor);
    const first = f.full(x.shape.with(d, 1), neutral, { dtype: given.dtype });
    let y = given.dtype === 'i64' ? cumulated(given, d, name === 'cumsum' ? 'add' : 'mul', first) : f[name](given, d);
    if (exclusive && size > 0) {
      y = size > 1 ? f.cat([first, f.slice(y, d, 0, size - 1)], d) : first;
    }
    return result(x.type, turned(y));
  },
});

/** @type {Computed} */
const compress = {
  host: [1],
  run([x, condition], { axis }) {
    const flat = axis === undefined ? reshape(x, [x.size]) : x;
    const d = axis === undefined ? 0 : axisOf(axis, x.rank);
    const kept = condition.numbers.flatMap((each, i) => (each && i < flat.shape[d] ? [i] : []));
    return take(flat, d, kept);
  },
};

/** @type {Computed} */
const nonZero = {
  host: [0],
  run([x]) {
    const at = x.numbers.flatMap((each, i) => (each !== 0 ? [i] : []));
    const strides = stridesOf(x.shape);
    const rows = x.shape.flatMap((size, d) => at.map((i) => Math.floor(i / strides[d]) % size));
    return Value.host('int64', [x.rank, at.length], Float64Array.from(rows));
  },
};

/** @type {Computed} */
const unique = {
  host: [0],
  run([x], { axis, sorted = 1 }) {
    const flat = Value.host(x.type, axis === undefined ? [x.size] : x.shape, /** @type {import('../types.mjs').Elements} */ (x.elements));
    const d = axis === undefined ? 0 : axisOf(axis, x.rank);
    const all = flat.numbers;
    const [size, inner] = [flat.shape[d], sizeOf(flat.shape.slice(d + 1))];
    const outer = sizeOf(flat.shape.slice(0, d));
    const slices = Array.from({ length: size }, (_, i) =>
      Array.from({ length: outer * inner }, (_, e) => all[(Math.floor(e / inner) * size + i) * inner + (e % inner)]),
    );
    /** @type {Map<string, number[]>} */
    const places = new Map();
    for (const [i, each] of slices.entries()) {
      const list = places.get(`${each}`);
      if (list) list.push(i);
      else places.set(`${each}`, [i]);
    }
    const groups = [...places.values()];
    const order = (/** @type {number[]} */ a, /** @type {number[]} */ b) => {
      const at = a.findIndex((value, i) => value !== b[i]);
      return at < 0 ? 0 : a[at] - b[at];
    };
    if (sorted) groups.sort((a, b) => order(slices[a[0]], slices[b[0]]));
    const inverse = new Float64Array(size);
    for (const [g, list] of groups.entries()) for (const i of list) inverse[i] = g;
    const numbers = (/** @type {number[]} */ list) => Value.integers(list);
    return [
      take(
        flat,
        d,
        groups.map(([first]) => first),
      ),
      numbers(groups.map(([first]) => first)),
      Value.host('int64', [size], inverse),
      numbers(groups.map(({ length }) => length)),
    ];
  },
};

/** @type {Computed} */
const nonMaxSuppression = {
  host: 'all',
  run([boxes, scores, most, overlap, least], { center_point_box: centred = 0 }) {
    const limit = most?.numbers[0] ?? 0;
    const [maxOverlap, minScore] = [overlap?.numbers[0] ?? 0, least?.numbers[0] ?? -Infinity];
    const [batches, classes, count] = scores.shape;
    /** @type {number[][]} */
    const [corners, values] = [boxes.numbers, scores.numbers];
    /** @param {number} at */
    const boxOf = (at) => {
      const [a, b, c, d] = corners.slice(at * 4, at * 4 + 4);
      if (centred) return [b - d / 2, a - c / 2, b + d / 2, a + c / 2];
      return [Math.min(a, c), Math.min(b, d), Math.max(a, c), Math.max(b, d)];
    };
    const area = (/** @type {number[]} */ [top, left, bottom, right]) => Math.max(0, bottom - top) * Math.max(0, right - left);
    const chosen = [];
    for (let batch = 0; batch < batches; batch++) {
      for (let label = 0; label < classes; label++) {
        const own = values.slice((batch * classes + label) * count, (batch * classes + label + 1) * count);
        const order = own
          .map((_, i) => i)
          .filter((i) => own[i] > minScore)
          .sort((a, b) => own[b] - own[a]);
        /** @type {number[][]} */
        const kept = [];
        for (const i of order) {
          if (kept.length >= limit) break;
          const box = boxOf(batch * count + i);
          const overlaps = kept.some((other) => {
            const shared = area([
              Math.max(box[0], other[0]),
              Math.max(box[1], other[1]),
              Math.min(box[2], other[2]),
              Math.min(box[3], other[3]),
            ]);
            const union = area(box) + area(other) - shared;
            return union > 0 && shared / union > maxOverlap;
          });
          if (overlaps) continue;
          kept.push(box);
          chosen.push(batch, label, i);
        }
      }
    }
    return Value.host('int64', [chosen.length / 3, 3], Float64Array.from(chosen));
  },
};

/** Counts of n-grams, or their weights where they occur. @type {Computed} */
const tfIdfVectorizer = {
  host: [0],
  run([x], attributes) {
    const {
      max_gram_length: most,
      min_gram_length: least,
      max_skip_count: skips,
      mode,
      ngram_counts: starts,
      ngram_indexes: places,
    } = attributes;
    const pool = attributes.pool_strings ?? attributes.pool_int64s;
    /** Where each n-gram is counted. @type {Map<string, number>} */
    const known = new Map();
    for (const [i, start] of starts.entries()) {
      const end = starts[i + 1] ?? pool.length;
      for (let at = start; at < end; at += i + 1) known.set(JSON.stringify(pool.slice(at, at + i + 1)), known.size);
    }
    const width = Math.max(...places) + 1;
    const [rows, length] = x.rank === 1 ? [1, x.shape[0]] : x.shape;
    const counts = new Float32Array(rows * width);
    const elements = Array.from(/** @type {import('../types.mjs').Elements} */ (x.elements), (each) =>
      typeof each === 'string' ? each : Number(each),
    );
    for (let row = 0; row < rows; row++) {
      const own = elements.slice(row * length, (row + 1) * length);
      for (let distance = 1; distance <= skips + 1; distance++) {
        // One element has no distance to another.
        for (let n = distance === 1 ? least : Math.max(2, least); n <= most; n++) {
          for (let start = 0; start + distance * (n - 1) < length; start++) {
            const gram = JSON.stringify(Array.from({ length: n }, (_, k) => own[start + k * distance]));
            const entry = known.get(gram);
            if (entry !== undefined) counts[row * width + places[entry]]++;
          }
        }
      }
    }
    for (const [entry, place] of places.entries()) {
      const weight = attributes.weights?.[entry] ?? 1;
      for (let at = place; at < counts.length; at += width) {
        if (mode === 'IDF') counts[at] = counts[at] > 0 ? weight : 0;
        else if (mode === 'TFIDF') counts[at] *= weight;
      }
    }
    return Value.host('float', x.rank === 1 ? [width] : [rows, width], counts);
  },
};

/** @type {import('../definitions.mjs').Table} */
export const INDEXING = {
  Compress: compress,
  CumProd: cumulative('cumprod', 1),
  CumSum: cumulative('cumsum', 0),
  Gather: gather,
  GatherElements: gatherElements,
  GatherND: gatherNd,
  NonMaxSuppression: nonMaxSuppression,
  NonZero: nonZero,
  OneHot: oneHot,
  Scatter: scatterElements,
  ScatterElements: scatterElements,
  ScatterND: scatterNd,
  TensorScatter: tensorScatter,
  TfIdfVectorizer: tfIdfVectorizer,
  TopK: topK,
  Unique: unique,
  'ai.onnx.ml.ArrayFeatureExtractor': {
    run: ([x, index]) =>
      same(
        x.type,
        f.indexSelect(x.tensor, x.rank - 1, reshape(positive(index, /** @type {number} */ (x.shape.at(-1))), [index.size]).tensor),
      ),
  },
};
