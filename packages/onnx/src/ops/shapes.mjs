// Shapes, and movements of whole elements.

import { concat, expand, limited, reshape, slice, take, transpose } from '../arrays.mjs';
import { TYPES, sizeOf, typeOf } from '../types.mjs';
import { Value, axesOf, axisOf, cast, f, same, scalar } from './lib.mjs';

/** @typedef {import('../definitions.mjs').Computed} Computed */

/** Clamps an index, which may count from the end. @param {number} index @param {number} size @param {number} least @param {number} most */
const within = (index, size, least, most) => Math.min(most, Math.max(least, index < 0 ? index + size : index));

/** @type {Computed} */
const reshapeOp = {
  host: [1],
  run([x, to], { allowzero = 0, shape: attribute }) {
    const given = attribute ?? to.numbers;
    const sizes = given.map((size, d) => (size === 0 && !allowzero ? x.shape[d] : size));
    const others = sizeOf(sizes.filter((size) => size !== -1));
    return reshape(
      x,
      sizes.map((size) => (size === -1 ? (others === 0 ? 0 : x.size / others) : size)),
    );
  },
};

/** @type {Computed} */
const sliceOp = {
  host: [1, 2, 3, 4],
  run([x, starts, ends, axes, steps], { starts: from, ends: to, axes: along }) {
    const [first, last] = [from ?? starts.numbers, to ?? ends.numbers];
    const dims = along ?? axes?.numbers ?? first.map((_, i) => i);
    let y = x;
    for (const [i, axis] of dims.entries()) {
      const d = axisOf(axis, x.rank);
      const size = x.shape[d];
      const step = steps?.numbers[i] ?? 1;
      const start = step > 0 ? within(first[i], size, 0, size) : within(first[i], size, 0, size - 1);
      const end = step > 0 ? within(last[i], size, 0, size) : within(last[i], size, -1, size - 1);
      y = slice(y, d, start, Math.max(0, Math.ceil((end - start) / step)), step);
    }
    return y;
  },
};

/** @type {Computed} */
const split = {
  host: [1],
  run([x, sizes], { axis = 0, split: attribute, num_outputs: outputs }, { node }) {
    const d = axisOf(axis, x.rank);
    const count = outputs ?? node.outputs.length;
    const each = Math.ceil(x.shape[d] / count);
    const parts = attribute ?? sizes?.numbers ?? Array.from({ length: limited(count) }, (_, i) => Math.min(each, x.shape[d] - i * each));
    let at = 0;
    return parts.map((size) => slice(x, d, (at += size) - size, size));
  },
};

/** @type {Computed} */
const squeeze = {
  host: [1],
  run([x, axes], { axes: attribute }) {
    const listed = attribute ?? axes?.numbers;
    const dims = listed ? axesOf(listed, x.rank) : x.shape.flatMap((size, d) => (size === 1 ? [d] : []));
    return reshape(
      x,
      x.shape.filter((_, d) => !dims.includes(d)),
    );
  },
};

/** @type {Computed} */
const unsqueeze = {
  host: [1],
  run([x, axes], { axes: attribute }) {
    const listed = attribute ?? axes.numbers;
    const dims = axesOf(listed, x.rank + listed.length);
    const shape = [...x.shape];
    for (const d of dims.sort((a, b) => a - b)) shape.splice(d, 0, 1);
    return reshape(x, shape);
  },
};

/** @type {Computed} */
const expandOp = {
  host: [1],
  run([x, to]) {
    const given = to.numbers;
    const rank = Math.max(x.rank, given.length);
    const [a, b] = [x.shape, given].map((each) => [...new Array(rank - each.length).fill(1), ...each]);
    return expand(
      x,
      a.map((size, d) => (size === 1 ? b[d] : size)),
    );
  },
};

/** @type {Computed} */
const tile = {
  host: [1],
  run([x, repeats]) {
    let y = x;
    for (const [d, count] of repeats.numbers.entries()) {
      if (count === 0) y = slice(y, d, 0, 0);
      else if (count > 1) y = concat(new Array(limited(count)).fill(y), d);
    }
    return y;
  },
};

/** @type {Computed} */
const constantOfShape = {
  host: [0],
  run([shape], { value }) {
    const one = /** @type {Value | undefined} */ (value) ?? scalar('float', 0);
    return expand(reshape(one, []), shape.numbers);
  },
};

/** @type {Computed} */
const constant = {
  run(_, attributes) {
    const {
      value,
      value_float: float,
      value_int: int,
      value_floats: floats,
      value_ints: ints,
      value_string: text,
      value_strings: texts,
    } = attributes;
    if (value !== undefined) return /** @type {Value} */ (value);
    if (attributes.sparse_value) return attributes.sparse_value;
    if (float !== undefined) return scalar('float', float);
    if (int !== undefined) return Value.host('int64', [], int);
    if (floats) return Value.host('float', [floats.length], Float32Array.from(floats));
    if (ints) return Value.host('int64', [ints.length], ints);
    return texts ? Value.host('string', [texts.length], texts) : Value.host('string', [], [text]);
  },
};

/** @type {Computed} */
const range = {
  host: 'all',
  run([start, limit, delta]) {
    const [first, step] = [start.number, delta.number];
    const count = Math.max(0, Math.ceil((limit.number - first) / step));
    const elements = new TYPES[/** @type {'float'} */ (start.type)].array(limited(count));
    for (let i = 0; i < count; i++) elements[i] = first + i * step;
    return Value.host(start.type, [count], elements);
  },
};

/** @type {Computed} */
const flatten = {
  run([x], { axis = 1 }) {
    const d = axis < 0 ? axis + x.rank : axis;
    return reshape(x, [sizeOf(x.shape.slice(0, d)), sizeOf(x.shape.slice(d))]);
  },
};

/** @type {Computed} */
const transposeOp = {
  run: ([x], { perm }) => transpose(x, perm ?? x.shape.map((_, d) => x.rank - 1 - d)),
};

/** @type {Computed} */
const depthToSpace = {
  run([x], { blocksize: block, mode = 'DCR' }) {
    const [batch, channels, rows, columns] = x.shape;
    const inner = channels / block ** 2;
    const parts = mode === 'DCR' ? [batch, block, block, inner, rows, columns] : [batch, inner, block, block, rows, columns];
    const order = mode === 'DCR' ? [0, 3, 4, 1, 5, 2] : [0, 1, 4, 2, 5, 3];
    return reshape(transpose(reshape(x, parts), order), [batch, inner, rows * block, columns * block]);
  },
};

/** @type {Computed} */
const spaceToDepth = {
  run([x], { blocksize: block, mode = 'DCR' }) {
    const [batch, channels, rows, columns] = x.shape;
    const parts = reshape(x, [batch, channels, rows / block, block, columns / block, block]);
    const order = mode === 'DCR' ? [0, 3, 5, 1, 2, 4] : [0, 1, 3, 5, 2, 4];
    return reshape(transpose(parts, order), [batch, channels * block ** 2, rows / block, columns / block]);
  },
};

/**
 * For each padded position of a dimension, the element that it repeats; -1 for a constant.
 * @param {number} size @param {number} before @param {number} after @param {string} mode
 */
function padIndices(size, before, after, mode) {
  return Array.from({ length: limited(Math.max(0, size + before + after)) }, (_, i) => {
    const at = i - before;
    if (at >= 0 && at < size) return at;
    if (mode === 'edge') return Math.min(size - 1, Math.max(0, at));
    if (mode === 'wrap') return ((at % size) + size) % size;
    if (mode !== 'reflect') return -1;
    const period = Math.max(1, 2 * (size - 1));
    const folded = ((at % period) + period) % period;
    return folded < size ? folded : period - folded;
  });
}

/** @type {Computed} */
const pad = {
  host: [1, 3],
  run([x, pads, fill, axes], { mode = 'constant', pads: attribute, value }) {
    const sizes = attribute ?? pads.numbers;
    const dims = axes ? axesOf(axes.numbers, x.rank) : x.shape.map((_, d) => d);
    let y = x;
    for (const [i, d] of dims.entries()) {
      const [before, after] = [sizes[i], sizes[i + dims.length]];
      if (before === 0 && after === 0) continue;
      const indices = padIndices(y.shape[d], before, after, mode);
      if (mode !== 'constant') {
        y = take(y, d, indices);
        continue;
      }
      const kept = indices.filter((index) => index >= 0);
      if (kept.length < y.shape[d]) y = slice(y, d, kept[0] ?? 0, kept.length);
      const one = cast(fill ?? scalar('float', /** @type {number | undefined} */ (value) ?? 0), x.type);
      const band = (/** @type {number} */ count) => (count > 0 ? [expand(reshape(one, []), y.shape.with(d, count))] : []);
      y = concat([...band(before), y, ...band(after)], d);
    }
    return y;
  },
};

/** @type {Computed} */
const centerCropPad = {
  host: [1],
  run([x, shape], { axes }) {
    const dims = axes ? axesOf(axes, x.rank) : x.shape.map((_, d) => d);
    let y = x;
    for (const [i, d] of dims.entries()) {
      const [size, wanted] = [x.shape[d], shape.numbers[i]];
      if (wanted < size) y = slice(y, d, Math.floor((size - wanted) / 2), wanted);
      else if (wanted > size) {
        const before = Math.floor((wanted - size) / 2);
        const zeros = (/** @type {number} */ count) => (count > 0 ? [expand(scalar(x.type, 0), y.shape.with(d, count))] : []);
        y = concat([...zeros(before), y, ...zeros(wanted - size - before)], d);
      }
    }
    return y;
  },
};

/** @type {Computed} */
const trilu = {
  host: [1],
  run([x, k], { upper = 1 }) {
    const offset = k?.number ?? 0;
    if (x.size === 0) return x;
    const [rows, columns] = x.shape.slice(-2);
    const mask = new Uint8Array(rows * columns);
    for (let i = 0; i < rows; i++)
      for (let j = 0; j < columns; j++) mask[i * columns + j] = Number(upper ? j - i >= offset : j - i <= offset);
    const kept = Value.host('bool', [rows, columns], mask).tensor;
    return same(x.type, f.where(kept, x.tensor, f.full([], 0, { dtype: x.tensor.dtype })));
  },
};

/** @type {Computed} */
const eyeLike = {
  run([x], { k = 0, dtype }) {
    const type = dtype === undefined ? x.type : typeOf(dtype, 'the attribute dtype');
    const [rows, columns] = x.shape;
    const elements = new Float64Array(rows * columns);
    for (let i = Math.max(0, -k); i < rows && i + k < columns; i++) elements[i * columns + i + k] = 1;
    return cast(Value.host('double', [rows, columns], elements), type);
  },
};

/** @type {Computed} */
const reverseSequence = {
  host: [1],
  run([x, lengths], { batch_axis: batch = 1, time_axis: time = 0 }) {
    const [b, t] = [axisOf(batch, x.rank), axisOf(time, x.rank)];
    const parts = lengths.numbers.map((length, i) => {
      const order = Array.from({ length: x.shape[t] }, (_, at) => (at < length ? length - 1 - at : at));
      return take(slice(x, b, i, 1), t, order);
    });
    return concat(parts, b);
  },
};

/** @type {import('../definitions.mjs').Table} */
export const SHAPES = {
  CenterCropPad: centerCropPad,
  Concat: {
    run: (inputs, { axis }) =>
      concat(
        inputs.filter((x) => inputs.length === 1 || x.size > 0 || inputs.every((each) => each.size === 0)),
        axisOf(axis, inputs[0].rank),
      ),
  },
  Constant: constant,
  ConstantOfShape: constantOfShape,
  DepthToSpace: depthToSpace,
  Expand: expandOp,
  EyeLike: eyeLike,
  Flatten: flatten,
  Pad: pad,
  Range: range,
  Reshape: reshapeOp,
  ReverseSequence: reverseSequence,
  Shape: {
    run: ([x], { start = 0, end = Infinity }) =>
      Value.integers(x.shape.slice(within(start, x.rank, 0, x.rank), within(end, x.rank, 0, x.rank))),
  },
  Size: { run: ([x]) => scalar('int64', x.size) },
  Slice: sliceOp,
  SpaceToDepth: spaceToDepth,
  Split: split,
  Squeeze: squeeze,
  Tile: tile,
  Transpose: transposeOp,
  Trilu: trilu,
  Unsqueeze: unsqueeze,
};
