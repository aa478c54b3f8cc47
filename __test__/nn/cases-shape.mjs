// Test cases of operations: other shapes and orders.

import { integers, uniform } from '../lib/random-data.mjs';
import { any, random, shape, size, x } from './inputs.mjs';

/** Two different dimensions of so many. @param {number} rank */
function twoOf(rank) {
  const dim1 = random.below(rank);
  return { dim1, dim2: (dim1 + random.between(1, rank - 1)) % rank };
}
/** Windows over the last dimensions of images, and the images. */
function sliding() {
  const count = random.between(1, 2);
  const [sizes, steps, dilations] = [0, 1, 2].map(() => Array.from({ length: count }, () => random.between(1, 3)));
  const own = [2, any(), ...sizes.map((n, i) => (n - 1) * dilations[i] + 1 + random.below(5))];
  return { attributes: { dims: sizes.map((_, i) => 2 + i), sizes, steps, dilations }, own };
}

/** @type {Record<string, () => import('./inputs.mjs').Case>} */
export const cases = {
  pad: () => {
    const own = shape();
    const [before, after] = [0, 1].map(() => own.map(() => random.below(4)));
    return { inputs: [x(...own)], attributes: { before, after, value: 1.5 } };
  },
  flip: () => {
    const own = shape();
    return { inputs: [x(...own)], attributes: { dims: own.map((_, d) => d).filter(() => random.chance(0.6)) } };
  },
  diagEmbed: () => {
    const own = [any(), any()].slice(random.below(2));
    const offset = random.between(-2, 2);
    const length = own[own.length - 1] + Math.abs(offset);
    return { inputs: [x(...own)], attributes: { offset, ...twoOf(own.length + 1), rows: length, columns: length } };
  },
  fold: () => {
    const { attributes, own } = sliding();
    const { sizes, steps, dilations } = attributes;
    const counts = own.map((n, d) => (d < 2 ? n : Math.floor((n - (sizes[d - 2] - 1) * dilations[d - 2] - 1) / steps[d - 2]) + 1));
    return { inputs: [x(...counts, ...sizes)], attributes: { ...attributes, shape: own } };
  },
  gridIndex: () => {
    const sizes = [any(), any(), any()].slice(random.below(2));
    const own = [any(), any()];
    const places = sizes.map((n) => ({ shape: own, values: uniform(size(own), -2, n + 1), constant: true }));
    return {
      inputs: [...places, { shape: [own[0], 1], values: integers(own[0], 99), dtype: 'i32', constant: true }],
      attributes: { sizes },
    };
  },
  rowsByMatrix: () => {
    const [rows, inner, columns, transposed] = [any(), any(), any(), random.chance(0.5)];
    const matrix = { ...x(...(transposed ? [columns, inner] : [inner, columns])), constant: true };
    return { inputs: [x(rows, inner), matrix], attributes: { transposed } };
  },
  complexTimes: () => {
    const own = [any(), any(), any()];
    const table = { ...x(...own.slice(random.below(3)), 2, 2), constant: true };
    return { inputs: [x(...own, 2), table], attributes: { conjugate: random.chance(0.5) } };
  },
  randint: () => {
    const own = shape();
    const [bits, range, first] = [integers(size(own), 2 ** 32), Float64Array.of(random.pick([0, 1, 7, 2 ** 31])), Float64Array.of(-3)];
    return {
      inputs: [
        { shape: own, values: bits, dtype: 'u32', constant: true },
        { shape: [], values: range, dtype: 'u32', constant: true },
        { shape: [], values: first, dtype: 'i32', constant: true },
      ],
    };
  },
};

/** Views, which `shape.test.mjs` takes. */
export const VIEWS = ['diagonal', 'unfold'];
