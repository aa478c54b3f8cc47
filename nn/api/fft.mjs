// Fourier transforms. A complex tensor is a real one with a last dimension of 2, real and imaginary part, as PyTorch's `view_as_real`. A
// length is divided into factors (Cooley & Tukey 1965): the transforms by a factor of at most 64 are one product of rows with a matrix, and
// between two factors stands a multiplication by constants. A length with a prime factor above 128 is a convolution (Bluestein 1970).

import { apply, checkBytes, tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, shown, within } from '../core/errors.mjs';
import { denseLayout, dimension, positive } from '../core/layout.mjs';
import { checkOptions, flag } from '../core/options.mjs';
import { perDevice } from '../core/runtime.mjs';
import { constant } from '../core/tensor.mjs';
import * as ops from '../ops/fft.mjs';
import { overlapAdd } from '../ops/shape.mjs';
import { finite, made, typeOf } from './creation.mjs';
import * as F from './functional.mjs';
import { toF32 } from './operands.mjs';
import { flip, integers, pad, roll, windows } from './shape.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */
/** @typedef {import('./functional.mjs').TypeOptions} TypeOptions */
/** By what results are multiplied: 'backward' the inverse transform by 1 / n, 'forward' the other one, 'ortho' both by 1 / √n. @typedef {'backward' | 'ortho' | 'forward'} FftNorm */

/** The longest transform that is one product: of a number that can be divided, and of a prime. */
const [MAX_FACTOR, MAX_PRIME] = [64, 128];

// ---- constants of transforms

/** Constants on the device, by what they are. @type {Map<string, Tensor>} */
const tables = perDevice(new Map());
/** The most elements of all of them; then all are made anew. */
const MAX_ELEMENTS = 2 ** 24;

/** @param {string} key @param {number[]} shape @param {() => Float64Array} make @returns {Tensor} */
function table(key, shape, make) {
  const known = tables.get(key);
  if (known && !known.disposed) return known;
  if ([...tables.values()].reduce((sum, { size }) => sum + size, 0) > MAX_ELEMENTS) tables.clear();
  const own = constant(Float32Array.from(make()), denseLayout(shape, 'f32'));
  tables.set(key, own);
  return own;
}

/** cos and sin of sign · 2π k / n, the angle within one turn. @param {number} k an integer of at most 2^53 @param {number} n @param {number} sign */
function root(k, n, sign) {
  const angle = (2 * Math.PI * (k % n)) / n;
  return [Math.cos(angle), sign * Math.sin(angle)];
}

/** Complex factors as `complexTimes` takes them. @param {string} key @param {number[]} shape @param {(i: number) => number[]} f by the number of the factor */
const factors = (key, shape, f) =>
  table(key, [...shape, 2, 2], () => {
    const count = shape.reduce((a, b) => a * b, 1);
    const numbers = new Float64Array(4 * count);
    for (let i = 0; i < count; i++) {
      const [c, s] = f(i);
      numbers.set([c, s, -s, c], 4 * i);
    }
    return numbers;
  });

/** The matrix of a transform of n complex numbers: [2 n, 2 n]. @param {number} n @param {number} sign */
const complexMatrix = (n, sign) =>
  table(`complex ${n} ${sign}`, [2 * n, 2 * n], () => {
    const numbers = new Float64Array(4 * n * n);
    for (let j = 0; j < n; j++) {
      for (let k = 0; k < n; k++) {
        const [c, s] = root(j * k, n, sign);
        numbers.set([c, s], 4 * n * j + 2 * k);
        numbers.set([-s, c], 4 * n * j + 2 * n + 2 * k);
      }
    }
    return numbers;
  });

/** The matrix from n real numbers to the first `count` complex ones: [n, 2 count]. @param {number} n @param {number} sign @param {number} count */
const realMatrix = (n, sign, count) =>
  table(`real ${n} ${sign} ${count}`, [n, 2 * count], () => {
    const numbers = new Float64Array(2 * n * count);
    for (let j = 0; j < n; j++) for (let k = 0; k < count; k++) numbers.set(root(j * k, n, sign), 2 * (count * j + k));
    return numbers;
  });

/** @param {Tensor} x [rows, k] @param {Tensor} matrix [k, n] @returns {Tensor} */
const product = (x, matrix) => apply(ops.rowsByMatrix, [x, matrix], { transposed: false });
/** @param {Tensor} x [..., 2] @param {Tensor} own [..., 2, 2] @returns {Tensor} */
const times = (x, own) => apply(ops.complexTimes, [x, own], { conjugate: false });

// ---- transforms of rows

/** The divisor of n of at most 64 by which the factors are most alike; 1 if there is none. @param {number} n */
function factorOf(n) {
  const wanted = Math.log(n) / Math.ceil(Math.log(n) / Math.log(MAX_FACTOR));
  const distance = (/** @type {number} */ f) => Math.abs(Math.log(f) - wanted);
  let best = 1;
  for (let f = 2; f <= MAX_FACTOR; f++) if (n % f === 0 && (best === 1 || distance(f) < distance(best))) best = f;
  return best;
}

/**
 * The transform of rows: y[k] = Σ x[j] exp(sign · 2π i j k / n).
 * @param {Tensor} x [rows, n, 2], or [rows, n] of real numbers @param {number} sign -1, or 1 for the inverse
 * @returns {Tensor} [rows, n, 2]
 */
function transformed(x, sign) {
  const [rows, n] = x.shape;
  const real = x.ndim === 2;
  const parts = real ? 1 : 2;
  const matrix = (/** @type {number} */ size) => (real ? realMatrix(size, sign, size) : complexMatrix(size, sign));
  const a = n <= MAX_FACTOR ? n : factorOf(n);
  if (a === n || (a === 1 && n <= MAX_PRIME)) return F.reshape(product(F.reshape(x, [rows, parts * n]), matrix(n)), [rows, n, 2]);
  if (a === 1) return convolved(real ? F.stack([x, F.zeros(x.shape)], -1) : x, sign);
  // x[b j + i], by j for each i; times exp(sign · 2π i · i k / n); then by i for each k: the result is y[k + a l].
  const b = n / a;
  const apart = F.permute(F.reshape(x, [rows, a, b, parts]), [0, 2, 1, 3]);
  const first = F.reshape(product(F.reshape(apart, [rows * b, parts * a]), matrix(a)), [rows, b, a, 2]);
  const between = factors(`twiddle ${n} ${a} ${sign}`, [a, b], (i) => root(Math.floor(i / b) * (i % b), n, sign));
  const turned = times(F.permute(first, [0, 2, 1, 3]), between);
  const second = F.reshape(transformed(F.reshape(turned, [rows * a, b, 2]), sign), [rows, a, b, 2]);
  return F.reshape(F.permute(second, [0, 2, 1, 3]), [rows, n, 2]);
}

/** A transform on the host, of a power of two. @param {Float64Array} re @param {Float64Array} im in and out */
function hostTransform(re, im) {
  const n = re.length;
  if (n === 1) return;
  const half = n / 2;
  const pick = (/** @type {Float64Array} */ x, /** @type {number} */ odd) => Float64Array.from({ length: half }, (_, i) => x[2 * i + odd]);
  const [evenRe, evenIm, oddRe, oddIm] = [pick(re, 0), pick(im, 0), pick(re, 1), pick(im, 1)];
  hostTransform(evenRe, evenIm);
  hostTransform(oddRe, oddIm);
  for (let k = 0; k < half; k++) {
    const [c, s] = root(k, n, -1);
    const [u, v] = [oddRe[k] * c - oddIm[k] * s, oddRe[k] * s + oddIm[k] * c];
    [re[k], im[k], re[k + half], im[k + half]] = [evenRe[k] + u, evenIm[k] + v, evenRe[k] - u, evenIm[k] - v];
  }
}

/**
 * A transform of any length as a convolution of a power of two: j k = (j² + k² - (k - j)²) / 2.
 * @param {Tensor} x [rows, n, 2] @param {number} sign
 * @returns {Tensor} [rows, n, 2]
 */
function convolved(x, sign) {
  const n = x.shape[1];
  const size = 2 ** Math.ceil(Math.log2(2 * n - 1));
  // exp(sign · π i j² / n)
  const chirp = (/** @type {number} */ j) => root((j * j) % (2 * n), 2 * n, sign);
  const own = factors(`chirp ${n} ${sign}`, [n], chirp);
  const key = `convolution ${n} ${sign}`;
  const known = tables.get(key);
  /** @type {Float64Array[]} */
  let spectrum = [];
  if (!known || known.disposed) {
    const [re, im] = [new Float64Array(size), new Float64Array(size)];
    for (let j = 0; j < n; j++) {
      const [c, s] = chirp(j);
      for (const place of [j, (size - j) % size]) [re[place], im[place]] = [c, -s];
    }
    hostTransform(re, im);
    spectrum = [re, im];
  }
  // With 1 / size, the inverse transform's.
  const filter = factors(key, [size], (k) => spectrum.map((v) => v[k] / size));
  const wide = pad(times(x, own), [0, 0, 0, size - n]);
  const y = transformed(times(transformed(wide, -1), filter), 1);
  return times(F.slice(y, 1, 0, n), own);
}

/** The transform of real rows, up to the middle: the rest are conjugates. @param {Tensor} x [rows, n] @returns {Tensor} [rows, ⌊n / 2⌋ + 1, 2] */
function halfOf(x) {
  const [rows, n] = x.shape;
  const count = Math.floor(n / 2) + 1;
  if (n <= MAX_FACTOR) return F.reshape(product(x, realMatrix(n, -1, count)), [rows, count, 2]);
  return F.slice(transformed(x, -1), 1, 0, count);
}

/** The real rows of which x is the transform up to the middle, times n. @param {Tensor} x [rows, ⌊n / 2⌋ + 1, 2] @param {number} n @returns {Tensor} [rows, n] */
function realOf(x, n) {
  const mirrored = n - x.shape[1];
  const signs = table('conjugate', [2], () => Float64Array.of(1, -1));
  const rest = mirrored > 0 ? [F.mul(flip(F.slice(x, 1, 1, 1 + mirrored), 1), signs)] : [];
  const y = transformed(F.cat([x, ...rest], 1), 1);
  return F.reshape(F.slice(y, 2, 0, 1), [x.shape[0], n]);
}

// ---- along a dimension

/** The factor of a norm. @param {string} op @param {unknown} norm @param {number} n @param {boolean} inverse */
function scaleOf(op, norm, n, inverse) {
  if (norm === 'ortho') return 1 / Math.sqrt(n);
  if (norm === 'backward') return inverse ? 1 / n : 1;
  if (norm === 'forward') return inverse ? 1 : 1 / n;
  throw new ArgumentError(op, `norm must be one of backward, ortho, forward, got ${shown(norm)}`);
}

/** How a kind of transform reads and writes. @typedef {{ inverse: boolean, input: 'real' | 'complex', output: 'real' | 'complex' | 'half' }} Kind */

/**
 * A transform along one dimension.
 * @param {string} op @param {Tensor} x @param {number | undefined} n @param {number} dim of the complex tensor @param {unknown} norm @param {Kind} kind
 * @returns {Tensor}
 */
function along(op, x, n, dim, norm, { inverse, input, output }) {
  const complex = input === 'complex';
  const rank = tensorOf(op, x).ndim - Number(complex);
  if (rank < 1 || (complex && x.shape[rank] !== 2))
    throw new ShapeError(
      op,
      `expected ${complex ? 'complex numbers [..., n, 2], of real and imaginary part' : 'real numbers [..., n]'}, got ${show(x.shape)}`,
    );
  const d = dimension(op, dim, rank);
  const length = n === undefined ? (output === 'real' ? 2 * (x.shape[d] - 1) : x.shape[d]) : positive(op, 'n', n);
  if (length < 1) throw new ShapeError(op, `one number is no half of a transform: give n`);
  const scale = scaleOf(op, norm, length, inverse);
  const taken = output === 'real' ? Math.floor(length / 2) + 1 : length;
  checkBytes(op, denseLayout([...x.shape.with(d, Math.max(length, x.shape[d])), 2], 'f32'));
  return within(op, () => {
    let own = toF32(x);
    if (taken < x.shape[d]) own = F.slice(own, d, 0, taken);
    if (taken > x.shape[d]) own = pad(own, [...new Array(2 * (x.ndim - 1 - d)).fill(0), 0, taken - x.shape[d]]);
    const last = F.transpose(own, d, rank - 1);
    const outer = last.shape.slice(0, rank - 1);
    const rows = F.reshape(last, [last.size / (taken * (complex ? 2 : 1)), taken, ...(complex ? [2] : [])]);
    const y = output === 'half' ? halfOf(rows) : output === 'real' ? realOf(rows, length) : transformed(rows, inverse ? 1 : -1);
    const scaled = scale === 1 ? y : F.mul(y, scale);
    return F.transpose(F.reshape(scaled, [...outer, ...y.shape.slice(1)]), d, rank - 1);
  });
}

/** @type {Record<string, Kind>} */
const KINDS = {
  fft: { inverse: false, input: 'complex', output: 'complex' },
  ifft: { inverse: true, input: 'complex', output: 'complex' },
  rfft: { inverse: false, input: 'real', output: 'half' },
  irfft: { inverse: true, input: 'complex', output: 'real' },
};

/**
 * The Fourier transform along a dimension, y[k] = Σ x[j] exp(-2π i j k / n), as `torch.fft.fft` of complex numbers.
 * @param {Tensor} x [..., 2]: the last dimension holds real and imaginary part @param {number} [n] as many elements are taken, with zeros behind x
 *   where it has fewer; x's size when left out
 * @param {number} [dim] of the complex tensor, which has no dimension of parts; the last when left out
 * @param {FftNorm} [norm] 'backward' when left out
 * @returns {Tensor} f32
 */
export const fft = (x, n, dim = -1, norm = 'backward') => along('fft', x, n, dim, norm, KINDS.fft);
/**
 * The inverse of `fft`.
 * @param {Tensor} x [..., 2] @param {number} [n] @param {number} [dim] @param {FftNorm} [norm] as of `fft`
 * @returns {Tensor} f32
 */
export const ifft = (x, n, dim = -1, norm = 'backward') => along('ifft', x, n, dim, norm, KINDS.ifft);
/**
 * The Fourier transform of real numbers, up to its middle: the rest are conjugates.
 * @param {Tensor} x real @param {number} [n] as of `fft` @param {number} [dim] the last when left out @param {FftNorm} [norm] as of `fft`
 * @returns {Tensor} f32 [..., 2] with ⌊n / 2⌋ + 1 along `dim`
 */
export const rfft = (x, n, dim = -1, norm = 'backward') => along('rfft', x, n, dim, norm, KINDS.rfft);
/**
 * The inverse of `rfft`. The imaginary part of the first element, and of the middle of an even number, does not count.
 * @param {Tensor} x [..., 2] @param {number} [n] of the result: 2 (size - 1) when left out, so that an odd one must be given
 * @param {number} [dim] as of `fft` @param {FftNorm} [norm] as of `fft`
 * @returns {Tensor} f32, real
 */
export const irfft = (x, n, dim = -1, norm = 'backward') => along('irfft', x, n, dim, norm, KINDS.irfft);

/**
 * A transform along several dimensions, the last of which may have real numbers on one side.
 * @param {string} op @param {'fft' | 'ifft' | 'rfft' | 'irfft'} kind of the last dimension
 * @param {Tensor} x @param {readonly number[] | undefined} s @param {readonly number[] | undefined} dim @param {unknown} norm
 * @returns {Tensor}
 */
function alongSeveral(op, kind, x, s, dim, norm) {
  const own = tensorOf(op, x);
  const rank = own.ndim - (KINDS[kind].input === 'complex' ? 1 : 0);
  const sizes = s === undefined ? undefined : integers(op, 's', s, 1);
  const named = dim === undefined ? undefined : integers(op, 'dim', dim);
  const count = sizes?.length ?? rank;
  const dims = (named ?? Array.from({ length: count }, (_, i) => rank - count + i)).map((d) => dimension(op, d, rank));
  if (rank < 1 || dims.length === 0) throw new ShapeError(op, `a tensor ${show(own.shape)} has no dimension to transform`);
  if (new Set(dims).size !== dims.length) throw new ShapeError(op, `dim ${show(dims)} names a dimension twice`);
  if (sizes && sizes.length !== dims.length) throw new ArgumentError(op, `s ${show(sizes)} and dim ${show(dims)} must be equally long`);
  const last = dims.length - 1;
  const others = dims.map((d, i) => /** @type {const} */ ([d, sizes?.[i]])).slice(0, last);
  const rest = KINDS[kind].inverse ? KINDS.ifft : KINDS.fft;
  return within(op, () => {
    const through = (/** @type {Tensor} */ y) => others.reduce((z, [d, n]) => along(op, z, n, d, norm, rest), y);
    const final = (/** @type {Tensor} */ y) => along(op, y, sizes?.[last], dims[last], norm, KINDS[kind]);
    return kind === 'irfft' ? final(through(x)) : through(final(x));
  });
}

/** `fft` along several dimensions. @param {Tensor} x [..., 2] @param {readonly number[]} [s] n of each @param {readonly number[]} [dim] all, or the last where s is given, when left out @param {FftNorm} [norm] @returns {Tensor} f32 */
export const fftn = (x, s, dim, norm = 'backward') => alongSeveral('fftn', 'fft', x, s, dim, norm);
/** `ifft` along several dimensions. @param {Tensor} x [..., 2] @param {readonly number[]} [s] n of each @param {readonly number[]} [dim] as of `fftn` @param {FftNorm} [norm] @returns {Tensor} f32 */
export const ifftn = (x, s, dim, norm = 'backward') => alongSeveral('ifftn', 'ifft', x, s, dim, norm);
/** `fft` along two dimensions. @param {Tensor} x [..., 2] @param {readonly number[]} [s] n of each @param {readonly number[]} [dim] the last two when left out @param {FftNorm} [norm] @returns {Tensor} f32 */
export const fft2 = (x, s, dim = [-2, -1], norm = 'backward') => alongSeveral('fft2', 'fft', x, s, dim, norm);
/** `ifft` along two dimensions. @param {Tensor} x [..., 2] @param {readonly number[]} [s] n of each @param {readonly number[]} [dim] the last two when left out @param {FftNorm} [norm] @returns {Tensor} f32 */
export const ifft2 = (x, s, dim = [-2, -1], norm = 'backward') => alongSeveral('ifft2', 'ifft', x, s, dim, norm);
/** `rfft` along the last of two dimensions, then `fft` along the other. @param {Tensor} x real @param {readonly number[]} [s] n of each @param {readonly number[]} [dim] the last two when left out @param {FftNorm} [norm] @returns {Tensor} f32 [..., 2] */
export const rfft2 = (x, s, dim = [-2, -1], norm = 'backward') => alongSeveral('rfft2', 'rfft', x, s, dim, norm);
/** The inverse of `rfft2`. @param {Tensor} x [..., 2] @param {readonly number[]} [s] sizes of the result, whose last must be given where it is odd @param {readonly number[]} [dim] the last two when left out @param {FftNorm} [norm] @returns {Tensor} f32, real */
export const irfft2 = (x, s, dim = [-2, -1], norm = 'backward') => alongSeveral('irfft2', 'irfft', x, s, dim, norm);

/** `rfft` along the last of several dimensions, then `fft` along the others. @param {Tensor} x real @param {readonly number[]} [s] n of each @param {readonly number[]} [dim] as of `fftn` @param {FftNorm} [norm] @returns {Tensor} f32 [..., 2] */
export const rfftn = (x, s, dim, norm = 'backward') => alongSeveral('rfftn', 'rfft', x, s, dim, norm);
/** The inverse of `rfftn`. @param {Tensor} x [..., 2] @param {readonly number[]} [s] sizes of the result, whose last must be given where it is odd @param {readonly number[]} [dim] as of `fftn` @param {FftNorm} [norm] @returns {Tensor} f32, real */
export const irfftn = (x, s, dim, norm = 'backward') => alongSeveral('irfftn', 'irfft', x, s, dim, norm);

/** The norm of a transform that goes the other way. @param {FftNorm} norm @returns {FftNorm} */
const otherWay = (norm) => (norm === 'backward' ? 'forward' : norm === 'forward' ? 'backward' : norm);
/** Complex conjugates. @param {Tensor} x f32 [..., 2] */
const conjugated = (x) =>
  F.mul(
    x,
    table('conjugate', [2], () => Float64Array.of(1, -1)),
  );
/** The real Fourier transform of the first half of a signal whose other half is its conjugates. @param {Tensor} x [..., 2] @param {number} [n] of the result; 2 (size - 1) when left out @param {number} [dim] as of `fft` @param {FftNorm} [norm] @returns {Tensor} f32, real */
export const hfft = (x, n, dim = -1, norm = 'backward') =>
  within('hfft', () => along('hfft', conjugated(F.to(tensorOf('hfft', x), 'f32')), n, dim, otherWay(norm), KINDS.irfft));
/** The inverse of `hfft`. @param {Tensor} x real @param {number} [n] as of `fft` @param {number} [dim] the last when left out @param {FftNorm} [norm] @returns {Tensor} f32 [..., 2] */
export const ihfft = (x, n, dim = -1, norm = 'backward') =>
  within('ihfft', () => conjugated(along('ihfft', tensorOf('ihfft', x), n, dim, otherWay(norm), KINDS.rfft)));

// ---- frequencies

/** The frequencies of `fft`'s elements, in its order. @param {number} n @param {number} [d] the distance of samples; 1 when left out @param {TypeOptions} [options] @returns {Tensor} [n] */
export function fftfreq(n, d = 1, options = {}) {
  const dtype = typeOf('fftfreq', options);
  positive('fftfreq', 'n', n);
  if (finite('fftfreq', 'd', d) === 0) throw new ArgumentError('fftfreq', 'd must not be 0');
  return made('fftfreq', [n], dtype, (i) => (i < n / 2 ? i : i - n) / (d * n));
}
/** The frequencies of `rfft`'s elements. @param {number} n of the real numbers @param {number} [d] the distance of samples; 1 when left out @param {TypeOptions} [options] @returns {Tensor} [⌊n / 2⌋ + 1] */
export function rfftfreq(n, d = 1, options = {}) {
  const dtype = typeOf('rfftfreq', options);
  positive('rfftfreq', 'n', n);
  if (finite('rfftfreq', 'd', d) === 0) throw new ArgumentError('rfftfreq', 'd must not be 0');
  return made('rfftfreq', [Math.floor(n / 2) + 1], dtype, (i) => i / (d * n));
}
/** @param {string} op @param {Tensor} x @param {number | readonly number[] | undefined} dim @param {(size: number) => number} by @returns {Tensor} */
function shifted(op, x, dim, by) {
  tensorOf(op, x);
  const dims = (dim === undefined ? x.shape.map((_, d) => d) : integers(op, 'dim', [dim].flat())).map((d) => dimension(op, d, x.ndim));
  return within(op, () =>
    roll(
      x,
      dims.map((d) => by(x.shape[d] ?? 1)),
      dims,
    ),
  );
}
/**
 * Moves the frequency 0 to the middle.
 * @param {Tensor} x @param {number | readonly number[]} [dim] all when left out; of complex numbers name those before the last, which holds the parts
 * @returns {Tensor}
 */
export const fftshift = (x, dim) => shifted('fftshift', x, dim, (size) => Math.floor(size / 2));
/** The inverse of `fftshift`. @param {Tensor} x @param {number | readonly number[]} [dim] as of `fftshift` @returns {Tensor} */
export const ifftshift = (x, dim) => shifted('ifftshift', x, dim, (size) => -Math.floor(size / 2));

// ---- windows

/** A sum of cosines, Σ a[k] cos(2π k i / n). @param {string} op @param {number} length @param {unknown} periodic @param {TypeOptions} options @param {number[]} a */
function cosines(op, length, periodic, options, a) {
  positive(op, 'length', length);
  flag(op, 'periodic', periodic);
  const dtype = typeOf(op, options);
  const n = periodic ? length : length - 1;
  return made(op, [length], dtype, (i) =>
    length === 1 ? 1 : a.reduce((sum, factor, k) => sum + factor * Math.cos((2 * Math.PI * k * i) / n), 0),
  );
}
/** Hann's window. @param {number} length @param {boolean} [periodic] whether it is one of a repeated signal, and not symmetric; true when left out @param {TypeOptions} [options] @returns {Tensor} [length] */
export const hannWindow = (length, periodic = true, options = {}) => cosines('hannWindow', length, periodic, options, [0.5, -0.5]);
/** Bartlett's window, a triangle. @param {number} length @param {boolean} [periodic] as of `hannWindow` @param {TypeOptions} [options] @returns {Tensor} [length] */
export function bartlettWindow(length, periodic = true, options = {}) {
  positive('bartlettWindow', 'length', length);
  flag('bartlettWindow', 'periodic', periodic);
  const n = periodic ? length : length - 1;
  return made('bartlettWindow', [length], typeOf('bartlettWindow', options), (i) => (length === 1 ? 1 : 1 - Math.abs((2 * i) / n - 1)));
}
/** The modified Bessel function of order 0, by its series. @param {number} x */
function bessel(x) {
  let [term, sum] = [1, 1];
  for (let k = 1; term > sum * 1e-17; k++) sum += term *= (x / 2 / k) ** 2;
  return sum;
}
/** Kaiser's window, I₀(beta √(1 - t²)) / I₀(beta). @param {number} length @param {boolean} [periodic] as of `hannWindow` @param {number} [beta] within ±500; 12 when left out @param {TypeOptions} [options] @returns {Tensor} [length] */
export function kaiserWindow(length, periodic = true, beta = 12, options = {}) {
  positive('kaiserWindow', 'length', length);
  flag('kaiserWindow', 'periodic', periodic);
  if (Math.abs(finite('kaiserWindow', 'beta', beta)) > 500)
    throw new ArgumentError('kaiserWindow', `beta must be within ±500, got ${beta}`);
  const n = periodic ? length : length - 1;
  const last = bessel(beta);
  return made('kaiserWindow', [length], typeOf('kaiserWindow', options), (i) =>
    length === 1 ? 1 : bessel(beta * Math.sqrt(Math.max(0, 1 - ((2 * i) / n - 1) ** 2))) / last,
  );
}
/** Hamming's window, alpha - beta cos. @param {number} length @param {boolean} [periodic] as of `hannWindow` @param {number} [alpha] 0.54 when left out @param {number} [beta] 0.46 when left out @param {TypeOptions} [options] @returns {Tensor} [length] */
export const hammingWindow = (length, periodic = true, alpha = 0.54, beta = 0.46, options = {}) =>
  cosines('hammingWindow', length, periodic, options, [finite('hammingWindow', 'alpha', alpha), -finite('hammingWindow', 'beta', beta)]);
/** Blackman's window. @param {number} length @param {boolean} [periodic] as of `hannWindow` @param {TypeOptions} [options] @returns {Tensor} [length] */
export const blackmanWindow = (length, periodic = true, options = {}) =>
  cosines('blackmanWindow', length, periodic, options, [0.42, -0.5, 0.08]);

// ---- short-time transforms

/**
 * Options of `stft` and `istft`.
 * @typedef {object} StftOptions
 * @property {number} [hopLength] samples from one window to the next; ⌊nFft / 4⌋ when left out
 * @property {number} [winLength] samples of the window, with zeros around it up to nFft; nFft when left out
 * @property {Tensor} [window] [winLength]; ones when left out
 * @property {boolean} [center] whether windows are centred on their samples, the signal being padded by ⌊nFft / 2⌋ at both ends; true when left
 *   out
 * @property {import('./shape.mjs').PadMode} [padMode] of that padding, of `stft`; 'reflect' when left out
 * @property {boolean} [normalized] whether results are multiplied by 1 / √nFft; false when left out
 * @property {boolean} [onesided] whether there are the frequencies up to the middle only; true when left out
 * @property {number} [length] of the signal, of `istft`; what the windows cover when left out
 */

/** @param {string} op @param {number} nFft @param {StftOptions} options @param {string} own the option that only one of `stft` and `istft` has */
function stftOptions(op, nFft, options, own) {
  positive(op, 'nFft', nFft);
  const given = checkOptions(op, options, ['hopLength', 'winLength', 'window', 'center', 'normalized', 'onesided', own]);
  const { hopLength = Math.floor(nFft / 4), winLength = nFft, window, center = true, normalized = false, onesided = true } = given;
  positive(op, 'hopLength', hopLength);
  if (positive(op, 'winLength', winLength) > nFft) throw new ArgumentError(op, `winLength must be at most nFft, ${nFft}, got ${winLength}`);
  for (const [name, value] of Object.entries({ center, normalized, onesided })) flag(op, name, value);
  if (window !== undefined && show(tensorOf(op, window).shape) !== show([winLength]))
    throw new ShapeError(op, `the window must be [${winLength}], got ${show(window.shape)}`);
  checkBytes(op, denseLayout([nFft], 'f32'));
  const left = Math.floor((nFft - winLength) / 2);
  /** [nFft], or undefined for ones. @returns {Tensor | undefined} */
  const weights = () => {
    if (window === undefined && winLength === nFft) return undefined;
    return pad(window === undefined ? F.ones([winLength]) : toF32(window), [left, nFft - winLength - left]);
  };
  return { hopLength, center, normalized, onesided, weights };
}

/**
 * The Fourier transforms of windows of a signal, as `torch.stft`.
 * @param {Tensor} x [samples] or [batch, samples] @param {number} nFft samples of a transform @param {StftOptions} [options]
 * @returns {Tensor} f32 [..., frequencies, windows, 2]: complex numbers, with ⌊nFft / 2⌋ + 1 frequencies, or nFft
 */
export function stft(x, nFft, options = {}) {
  const op = 'stft';
  const { hopLength, center, normalized, onesided, weights } = stftOptions(op, nFft, options, 'padMode');
  const { padMode = 'reflect' } = options;
  if (tensorOf(op, x).ndim !== 1 && x.ndim !== 2) throw new ShapeError(op, `expected [samples] or [batch, samples], got ${show(x.shape)}`);
  return within(op, () => {
    const half = Math.floor(nFft / 2);
    const signal = center ? pad(toF32(x), [half, half], padMode) : toF32(x);
    const samples = signal.shape[signal.ndim - 1];
    if (samples < nFft) throw new ShapeError(op, `${samples} samples are fewer than nFft, ${nFft}`);
    const frames = windows(signal, { dims: [signal.ndim - 1], sizes: [nFft], steps: [hopLength], dilations: [1] });
    checkBytes(op, denseLayout([...frames.shape, 2], 'f32'));
    const own = weights();
    const rows = F.reshape(own ? F.mul(frames, own) : frames, [-1, nFft]);
    const y = onesided ? halfOf(rows) : transformed(rows, -1);
    const apart = F.reshape(normalized ? F.mul(y, 1 / Math.sqrt(nFft)) : y, [...frames.shape.slice(0, -1), y.shape[1], 2]);
    return F.transpose(apart, -3, -2);
  });
}

/**
 * The signal of which x is the `stft`, as `torch.istft`: the inverse transforms of all windows, weighted with the window and divided by the
 * sum of its squares, which must not be 0 anywhere (it is not checked).
 * @param {Tensor} x [..., frequencies, windows, 2] of three or four dimensions @param {number} nFft samples of a transform
 * @param {StftOptions} [options] those of `stft`
 * @returns {Tensor} f32 [samples] or [batch, samples]
 */
export function istft(x, nFft, options = {}) {
  const op = 'istft';
  const { hopLength, center, normalized, onesided, weights } = stftOptions(op, nFft, options, 'length');
  const { length } = options;
  if (length !== undefined) positive(op, 'length', length);
  const frequencies = onesided ? Math.floor(nFft / 2) + 1 : nFft;
  if ((tensorOf(op, x).ndim !== 3 && x.ndim !== 4) || x.shape[x.ndim - 3] !== frequencies || x.shape[x.ndim - 1] !== 2)
    throw new ShapeError(op, `expected [..., ${frequencies}, windows, 2] of three or four dimensions, got ${show(x.shape)}`);
  const count = x.shape[x.ndim - 2];
  const covered = nFft + hopLength * (count - 1);
  const lead = x.shape.slice(0, -3);
  checkBytes(op, denseLayout([...lead, Math.max(covered, length ?? 0)], 'f32'));
  return within(op, () => {
    const rows = F.reshape(F.transpose(toF32(x), -3, -2), [x.size / (2 * frequencies), frequencies, 2]);
    const inverse = onesided ? realOf(rows, nFft) : F.reshape(F.slice(transformed(rows, 1), 2, 0, 1), [rows.shape[0], nFft]);
    const frames = F.mul(inverse, normalized ? 1 / Math.sqrt(nFft) : 1 / nFft);
    const own = weights();
    /** @param {Tensor} parts [..., windows, nFft] @param {readonly number[]} outer */
    const summed = (parts, outer) =>
      apply(overlapAdd, [parts], { dims: [outer.length], sizes: [nFft], steps: [hopLength], dilations: [1], shape: [...outer, covered] });
    const signal = summed(F.reshape(own ? F.mul(frames, own) : frames, [...lead, count, nFft]), lead);
    const squares = own ? F.square(own) : F.ones([nFft]);
    const total = summed(F.expand(squares, [count, nFft]), []);
    const start = center ? Math.floor(nFft / 2) : 0;
    const end = length === undefined ? (center ? covered - Math.floor(nFft / 2) : covered) : start + length;
    const kept = (/** @type {Tensor} */ y) => F.slice(y, y.ndim - 1, start, end);
    if (start >= Math.min(end, covered)) throw new ShapeError(op, `${count} windows of ${nFft} leave no samples`);
    const y = F.div(kept(signal), kept(total));
    const missing = end - covered;
    return missing > 0 ? pad(y, [0, missing]) : y;
  });
}
