// Test cases of operations: scans, sorting and choice.

import { integers, normal } from '../lib/random-data.mjs';
import { any, few, random, shape, size, smooth, x } from './inputs.mjs';

/** @typedef {import('./inputs.mjs').Input} Input */
/** @typedef {import('./inputs.mjs').Case} Case */

/** A length that takes one invocation, several, or several blocks. */
const long = () => random.pick([1, any(), 70, 700]);
/** Integers, among them negative ones. @param {number[]} own @returns {Input} */
const whole = (...own) => ({
  shape: own,
  values: Float64Array.from(integers(size(own), 9), (v) => v - 4),
  dtype: 'i32',
  constant: true,
});
/** Numbers of which none is 0, with products that stay near 1. @param {number[]} own @returns {Input} */
const factors = (...own) => ({ shape: own, values: normal(size(own)).map((v) => (v < 0 ? -1 : 1) * (1 + 0.1 * Math.abs(v))) });
/** Of these one in four is 0. @param {number[]} own @returns {Input} */
const withZeros = (...own) => ({ shape: own, values: factors(...own).values.map((v, i) => (i % 4 === 2 ? 0 : v)) });
/** An order of each row's places. @param {number} rows @param {number} columns @param {number} [picks] @returns {Input} */
const orders = (rows, columns, picks = columns) => ({
  shape: [rows, picks],
  values: Float64Array.from(
    Array.from({ length: rows }, () =>
      random.sample(
        Array.from({ length: columns }, (_, i) => i),
        picks,
      ),
    ).flat(),
  ),
  dtype: 'i32',
  constant: true,
});
/** Each row sorted. @param {Input} input @returns {Input} */
function sortedRows({ shape: own, values, ...rest }) {
  const columns = own[own.length - 1];
  const rows = Array.from({ length: values.length / columns }, (_, r) => values.slice(r * columns, (r + 1) * columns).sort());
  return { ...rest, shape: own, values: Float64Array.from(rows.flatMap((row) => [...row])) };
}

/** @type {Record<string, () => Case>} */
export const cases = {
  cumsum: () => {
    const attributes = { reverse: random.chance(0.5) };
    return random.chance(0.5) ? { inputs: [x(any(), long())], attributes } : { inputs: [whole(any(), long())], attributes, dy: false };
  },
  cumprod: () => ({ inputs: [random.pick([factors, withZeros])(any(), any() + 1)], attributes: { reverse: random.chance(0.5) } }),
  logcumsumexp: () => ({ inputs: [x(any(), any(), any())], attributes: { reverse: random.chance(0.5) } }),
  cummaxPlace: () => ({ inputs: [random.pick([few, whole])(any(), long())] }),
  cumminPlace: () => ({ inputs: [random.pick([few, whole])(any(), long())] }),
  prod: () => ({ inputs: [random.pick([factors, withZeros])(any(), any() + 1)] }),
  argsort: () => {
    const [rows, columns] = [random.pick([1, any(), 40]), long()];
    const keep = random.chance(0.5) ? { keep: random.between(1, columns) } : {};
    return { inputs: [random.pick([few, whole, smooth])(rows, columns)], attributes: { descending: random.chance(0.5), ...keep } };
  },
  pick: () => {
    const [rows, columns] = [any(), any()];
    return { inputs: [x(rows, columns), orders(rows, columns, random.between(1, columns))] };
  },
  put: () => {
    const [rows, columns, size] = [any(), any(), any()];
    return { inputs: [orders(rows, columns), x(rows, columns)], attributes: { size } };
  },
  searchsorted: () => {
    const [rows, make] = [any(), random.pick([few, whole, x])];
    const own = random.chance(0.5) ? [rows, long()] : [long()];
    return {
      inputs: [
        { ...sortedRows(make(...own)), constant: true },
        { ...make(rows, any()), constant: true },
      ],
      attributes: { right: random.chance(0.5) },
    };
  },
  reduceRuns: () => {
    const [rows, columns, picks] = [any(), any(), any()];
    const values = integers(rows * picks, columns + 1);
    const order = Array.from({ length: rows }, (_, r) =>
      [...values.subarray(r * picks, (r + 1) * picks).entries()].sort(([i, a], [j, b]) => a - b || i - j).map(([i]) => i),
    );
    const op = random.pick(['sum', 'prod', 'max', 'min']);
    const make = op === 'prod' ? withZeros : x;
    return {
      inputs: [
        make(rows, columns),
        { shape: [rows, picks], values: Float64Array.from(values), dtype: 'u32', constant: true },
        { shape: [rows, picks], values: Float64Array.from(order.flat()), dtype: 'i32', constant: true },
        make(rows, picks),
      ],
      attributes: { op, apart: random.chance(0.5) },
    };
  },
  iota: () => ({ inputs: [], attributes: { shape: shape() } }),
  packedPlace: () => {
    const own = shape();
    return {
      inputs: [
        { shape: own, values: Float64Array.from(integers(size(own), 2)), dtype: 'bool' },
        { shape: own, values: Float64Array.from(integers(size(own), 99), (v) => v + 1), dtype: 'i32' },
      ],
    };
  },
  fromEnd: () => ({ inputs: [whole(...shape())], attributes: { size: any() } }),
  indexMinus: () => {
    const own = shape();
    return { inputs: [whole(...own), whole(...own)] };
  },
  coordinate: () => {
    const own = shape();
    const values = Float64Array.from(integers(size(own), 1000));
    return { inputs: [{ shape: own, values, dtype: 'i32' }], attributes: { step: any(), size: any() } };
  },
  nextPlace: () => {
    const own = shape();
    return { inputs: [whole(...own), whole(...own)], attributes: { size: any() } };
  },
};
