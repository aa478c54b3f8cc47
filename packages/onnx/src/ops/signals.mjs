// Fourier transforms, windows, and elements as other bits.

import { cast, limited } from '../arrays.mjs';
import { TYPES, plain, typeOf } from '../types.mjs';
import { Value, axisOf, f, same, uploaded } from './lib.mjs';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** @typedef {import('../types.mjs').Type} Type */
/** @typedef {import('../types.mjs').NumberArray} NumberArray */
/** @typedef {import('../definitions.mjs').Computed} Computed */

/** cos and sin of 2π · row · column / count, as matrices [rows, columns]. @param {number} rows @param {number} columns @param {number} count @returns {{ cos: Tensor, sin: Tensor }} */
function waves(rows, columns, count) {
  const angles = Array.from(
    { length: limited(rows * columns) },
    (_, i) => (2 * Math.PI * ((Math.floor(i / columns) * (i % columns)) % count)) / count,
  );
  const table = (/** @type {(x: number) => number} */ of) => uploaded(angles.map(of), [rows, columns]);
  return { cos: table(Math.cos), sin: table(Math.sin) };
}

/**
 * The discrete Fourier transform of the last dimension, as products with matrices.
 * @param {Tensor} re [..., elements] @param {Tensor | undefined} im
 * @param {{ count: number, outs: number, inverse: boolean }} options `count`: the length of the transform; `outs`: how many results
 * @returns {[re: Tensor, im: Tensor]}
 */
function transform(re, im, { count, outs, inverse }) {
  const size = Math.min(count, re.shape[re.ndim - 1]);
  const cut = (/** @type {Tensor} */ x) => f.slice(x, x.ndim - 1, 0, size);
  const { cos, sin } = waves(size, outs, count);
  const [a, b] = [cut(re), im && cut(im)];
  const sign = inverse ? 1 : -1;
  const [real, other] = [f.matmul(a, cos), f.mul(f.matmul(a, sin), sign)];
  if (!b) return inverse ? [f.div(real, count), f.div(other, count)] : [real, other];
  const both = [f.sub(real, f.mul(f.matmul(b, sin), sign)), f.add(other, f.matmul(b, cos))];
  return /** @type {[Tensor, Tensor]} */ (inverse ? both.map((x) => f.div(x, count)) : both);
}

/** Real and imaginary parts, [..., 1 or 2]. @param {Tensor} x @returns {[Tensor, Tensor | undefined]} */
function parts(x) {
  const last = x.ndim - 1;
  const part = (/** @type {number} */ i) => f.reshape(f.slice(x, last, i, i + 1), x.shape.slice(0, -1));
  return [part(0), x.shape[last] === 2 ? part(1) : undefined];
}

/** @type {Computed} */
const dft = {
  host: [1, 2],
  run([x, length, axisInput], { axis: attribute, inverse = 0, onesided = 0 }, { opset }) {
    const axis = opset >= 20 ? (axisInput?.number ?? -2) : (attribute ?? 1);
    const d = axisOf(axis, x.rank);
    let [re, im] = parts(f.to(x.tensor, 'f32')).map((y) => y && f.transpose(y, d, -1));
    const size = /** @type {Tensor} */ (re).shape.at(-1) ?? 1;
    const count = length?.number ?? (inverse && onesided ? 2 * (size - 1) : size);
    if (inverse && onesided && re && im) {
      // The other half is the conjugate of this one.
      const half = Math.floor(count / 2) + 1;
      const back = uploaded(
        Array.from({ length: limited(count) }, (_, i) => (i < half ? i : count - i)),
        [count],
        'i32',
      );
      const sign = uploaded(
        Array.from({ length: count }, (_, i) => (i < half ? 1 : -1)),
        [count],
      );
      [re, im] = [f.indexSelect(re, re.ndim - 1, back), f.mul(f.indexSelect(im, im.ndim - 1, back), sign)];
    }
    const outs = onesided && !inverse ? Math.floor(count / 2) + 1 : count;
    const [a, b] = transform(/** @type {Tensor} */ (re), im, { count, outs, inverse: Boolean(inverse) }).map((y) => f.transpose(y, d, -1));
    return same(x.type, inverse && onesided ? f.unsqueeze(a, a.ndim) : f.stack([a, b], a.ndim));
  },
};

/** @type {Computed} */
const stft = {
  host: [1, 3],
  run([signal, step, window, length], { onesided = 1 }) {
    const [hop, count] = [step.number, length?.number ?? window.size];
    const frames = Math.floor((signal.shape[1] - count) / hop) + 1;
    const cut = (/** @type {Tensor} */ x) =>
      f.stack(
        Array.from({ length: frames }, (_, i) => f.slice(x, 1, i * hop, i * hop + count)),
        1,
      );
    const whole = signal.rank === 2 ? f.unsqueeze(signal.tensor, 2) : signal.tensor;
    const [re, im] = parts(f.to(whole, 'f32')).map((x) => x && cut(x));
    const weighted = (/** @type {Tensor} */ x) => (window ? f.mul(x, window.tensor) : x);
    const outs = onesided ? Math.floor(count / 2) + 1 : count;
    return same(
      signal.type,
      f.stack(transform(weighted(/** @type {Tensor} */ (re)), im && weighted(im), { count, outs, inverse: false }), 3),
    );
  },
};

/** @param {readonly number[]} cosines the factors of cos(0), cos(x), cos(2x), with alternating signs @returns {Computed} */
const windowing = (cosines) => ({
  host: [0],
  run([size], { periodic = 1, output_datatype: dtype = 1 }) {
    const n = size.number;
    const span = periodic ? n : n - 1;
    const values = Float64Array.from({ length: limited(n) }, (_, i) =>
      cosines.reduce((sum, factor, k) => sum + (-1) ** k * factor * Math.cos((2 * Math.PI * k * i) / span), 0),
    );
    return cast(Value.host('double', [n], values), typeOf(dtype, 'the attribute output_datatype'));
  },
});

/** @type {Computed} */
const melWeightMatrix = {
  host: 'all',
  run(inputs, { output_datatype: dtype = 1 }) {
    const [bands, length, rate, low, high] = inputs.map((each) => each.number);
    const bins = Math.floor(length / 2) + 1;
    const mel = (/** @type {number} */ hertz) => 2595 * Math.log10(1 + hertz / 700);
    const step = (mel(high) - mel(low)) / (bands + 2);
    const edges = Array.from({ length: limited(bands + 2) }, (_, i) =>
      Math.floor(((length + 1) * (700 * (10 ** ((i * step + mel(low)) / 2595) - 1))) / rate),
    );
    const values = new Float64Array(limited(bins * bands));
    for (let band = 0; band < bands; band++) {
      const [left, middle, right] = edges.slice(band, band + 3);
      if (middle === left) values[middle * bands + band] = 1;
      else for (let i = left; i <= middle; i++) values[i * bands + band] = (i - left) / (middle - left);
      if (right !== middle) for (let i = middle; i < right; i++) values[i * bands + band] = (right - i) / (right - middle);
    }
    return cast(Value.host('double', [bins, bands], values), typeOf(dtype, 'the attribute output_datatype'));
  },
};

/**
 * A class of arrays.
 * @typedef {{
 *   new (buffer: ArrayBufferLike): NumberArray | BigInt64Array | BigUint64Array,
 *   from<T>(list: ArrayLike<T>, map: (each: T, i: number) => number | bigint): NumberArray | BigInt64Array | BigUint64Array
 * }} ArrayClass
 */
/** Arrays that hold elements as they lie in files. @type {Partial<Record<Type, ArrayClass>>} */
const RAW = { int64: BigInt64Array, uint64: BigUint64Array };

/** @type {Computed} */
const bitCast = {
  host: [0],
  run([x], { to }) {
    const type = typeOf(to, 'the attribute to');
    /** @param {Type} each @returns {ArrayClass} */
    const arrayOf = (each) => RAW[each] ?? TYPES[/** @type {'float'} */ (each)].array;
    const own = arrayOf(x.type);
    const raw = own.from(/** @type {import('../types.mjs').Elements} */ (x.elements), RAW[/** @type {Type} */ (x.type)] ? BigInt : Number);
    const elements = new (arrayOf(type))(raw.buffer);
    return Value.host(type, x.shape, plain(elements));
  },
};

/** @type {import('../definitions.mjs').Table} */
export const SIGNALS = {
  BitCast: bitCast,
  BlackmanWindow: windowing([0.42, 0.5, 0.08]),
  DFT: dft,
  HammingWindow: windowing([25 / 46, 21 / 46]),
  HannWindow: windowing([0.5, 0.5]),
  MelWeightMatrix: melWeightMatrix,
  STFT: stft,
};
