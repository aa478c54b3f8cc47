// Fourier transforms against their definition in float64: every kind of length, norms, several dimensions, gradients; windows and short-time
// transforms.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, arange, autocast, compile, grad, ones, randn, scope, tensor } from '../../nn/index.mjs';
import { at, generate } from '../../nn/ops/reference.mjs';
import { assertClose, normal } from '../lib/random-data.mjs';
import { checkComposed } from './composed.mjs';
import { x } from './inputs.mjs';
import { initDevice, values } from './setup.mjs';

/** @typedef {import('../../nn/ops/registry.mjs').Reference} Reference */

before(initDevice);

const any = (/** @type {any} */ value) => value;

/**
 * Σ x[j] exp(sign · 2π i j k / n) by the smallest divisor of n, in float64.
 * @param {Float64Array} re @param {Float64Array} im @param {number} sign @returns {[Float64Array, Float64Array]}
 */
function fast(re, im, sign) {
  const n = re.length;
  if (n === 1) return [re, im];
  let p = 2;
  while (n % p) p++;
  const m = n / p;
  const part = (/** @type {Float64Array} */ own, /** @type {number} */ r) => Float64Array.from({ length: m }, (_, i) => own[i * p + r]);
  const parts = Array.from({ length: p }, (_, r) => fast(part(re, r), part(im, r), sign));
  const result = [new Float64Array(n), new Float64Array(n)];
  for (let k = 0; k < n; k++) {
    for (let r = 0; r < p; r++) {
      const angle = (sign * 2 * Math.PI * ((r * k) % n)) / n;
      const [c, s] = [Math.cos(angle), Math.sin(angle)];
      const [a, b] = [parts[r][0][k % m], parts[r][1][k % m]];
      result[0][k] += a * c - b * s;
      result[1][k] += a * s + b * c;
    }
  }
  return any(result);
}

const SCALES = /** @type {Record<string, (n: number, inverse: boolean) => number>} */ ({
  backward: (n, inverse) => (inverse ? 1 / n : 1),
  ortho: (n) => 1 / Math.sqrt(n),
  forward: (n, inverse) => (inverse ? 1 : 1 / n),
});

/**
 * The definition along a dimension of complex numbers [..., 2].
 * @param {Reference} own @param {number} d @param {number} n @param {boolean} inverse @param {string} [norm] @returns {Reference}
 */
function defined(own, d, n, inverse, norm = 'backward') {
  const shape = own.shape.with(d, n);
  const size = own.shape[d];
  const [sign, scale] = [inverse ? 1 : -1, SCALES[norm](n, inverse)];
  return generate(shape, (index) => {
    const k = index[d];
    const part = index[index.length - 1];
    let sum = 0;
    for (let j = 0; j < Math.min(n, size); j++) {
      const angle = (sign * 2 * Math.PI * ((j * k) % n)) / n;
      const place = index.with(d, j);
      const [re, im] = [at(own, place.with(-1, 0)), at(own, place.with(-1, 1))];
      sum += part === 0 ? re * Math.cos(angle) - im * Math.sin(angle) : re * Math.sin(angle) + im * Math.cos(angle);
    }
    return sum * scale;
  });
}
/** Real numbers as complex ones. @param {Reference} own */
const complex = (own) => generate([...own.shape, 2], (index) => (index.at(-1) === 0 ? at(own, index.slice(0, -1)) : 0));
/** The part of a dimension up to the middle of n. @param {Reference} own @param {number} d @param {number} n */
const half = (own, d, n) => generate(own.shape.with(d, Math.floor(n / 2) + 1), (index) => at(own, index));
/** All of a transform of real numbers, from the part up to the middle. @param {Reference} own @param {number} d @param {number} n */
const whole = (own, d, n) =>
  generate(own.shape.with(d, n), (index) => {
    const k = index[d];
    if (k <= Math.floor(n / 2)) return k < own.shape[d] ? at(own, index) : 0;
    return n - k < own.shape[d] ? at(own, index.with(d, n - k)) * (index.at(-1) === 1 ? -1 : 1) : 0;
  });
const realPart = (/** @type {Reference} */ own) => generate(own.shape.slice(0, -1), (index) => at(own, [...index, 0]));

test('fft: within a few 1e-7 of float64, of every kind of length up to 2^16', async () => {
  // Products of small factors, small primes by a matrix, larger ones by a convolution, and both of them.
  for (const n of [1, 2, 7, 30, 64, 67, 100, 131, 2 * 131, 2310, 4099, 2 ** 16]) {
    const numbers = Float64Array.from(normal(2 * n), Math.fround);
    const z = tensor(numbers, { shape: [n, 2] });
    const [re, im] = [0, 1].map((part) => Float64Array.from({ length: n }, (_, i) => numbers[2 * i + part]));
    for (const inverse of [false, true]) {
      const wanted = fast(re, im, inverse ? 1 : -1);
      const together = Float64Array.from({ length: 2 * n }, (_, i) => wanted[i % 2][i >> 1] / (inverse ? n : 1));
      assertClose(await values(inverse ? F.ifft(z) : F.fft(z)), together, 6e-7, `${inverse ? 'ifft' : 'fft'} of ${n}`);
    }
    // The gradient of a linear map is its adjoint: that of `fft`, by the weights w, is the inverse transform of w without 1 / n.
    const gradientOf = (/** @type {(own: any) => any} */ f, /** @type {any} */ own, /** @type {any} */ gradient) => {
      const leaf = own.clone().requiresGrad_();
      return values(grad(f(leaf), [leaf], { gradient })[0]);
    };
    const [up, down] = [fast(re, im, 1), fast(re, new Float64Array(n), -1)];
    const pairs = (/** @type {Float64Array[]} */ [a, b], /** @type {number} */ some) =>
      Float64Array.from({ length: 2 * some }, (_, i) => (i % 2 ? b : a)[i >> 1]);
    assertClose(await gradientOf((own) => F.fft(own), z, z), pairs(up, n), 6e-7, `the gradient of fft of ${n}`);
    const count = Math.floor(n / 2) + 1;
    const cut = (/** @type {Float64Array} */ own) => own.map((v, k) => (k < count ? v : 0));
    assertClose(
      await gradientOf((own) => F.rfft(own), tensor(re), z.slice(0, 0, count)),
      fast(cut(re), cut(im), 1)[0],
      6e-7,
      `the gradient of rfft of ${n}`,
    );
    // Every element but the first, and the middle of an even number, stands for its conjugate too.
    const twice = (/** @type {number} */ k) => (k === 0 || 2 * k === n ? 1 : 2) / n;
    assertClose(
      await gradientOf((own) => F.irfft(own, n), z.slice(0, 0, count), tensor(re)),
      pairs(down, count).map((v, i) => v * twice(i >> 1)),
      6e-7,
      `the gradient of irfft of ${n}`,
    );
    const reals = tensor(re);
    const spectrum = F.rfft(reals);
    assert.deepEqual(spectrum.shape, [count, 2]);
    assertClose(await values(spectrum), pairs(down, count), 6e-7, `rfft of ${n}`);
    assertClose(await values(F.irfft(spectrum, n)), re, 9e-7, `irfft of ${n}`);
  }
});

test('fft, ifft, rfft, irfft: dimensions, lengths, norms, gradients', async () => {
  for (const [shape, n, d] of /** @type {[number[], number, number][]} */ ([
    [[3, 5, 2], 5, 1],
    [[6, 2, 2], 4, 0],
    [[2, 3, 2], 7, 1],
  ])) {
    for (const norm of n === 5 ? Object.keys(SCALES) : ['ortho']) {
      for (const inverse of [false, true])
        await checkComposed(`${inverse ? 'ifft' : 'fft'} ${n} ${norm}`, {
          call: (z) => F[inverse ? 'ifft' : 'fft'](z, n, d, any(norm)),
          inputs: [x(...shape)],
          reference: (z) => defined(z, d, n, inverse, norm),
        });
      const real = shape.slice(0, -1);
      await checkComposed(`rfft ${n} ${norm}`, {
        call: (z) => F.rfft(z, n, d - real.length, any(norm)),
        inputs: [x(...real)],
        reference: (z) => half(defined(complex(z), d, n, false, norm), d, n),
      });
      await checkComposed(`irfft ${n} ${norm}`, {
        call: (z) => F.irfft(z, n, d, any(norm)),
        inputs: [x(...shape.with(d, Math.min(shape[d], 6)))],
        reference: (z) => realPart(defined(whole(z, d, n), d, n, true, norm)),
      });
    }
  }
  assert.deepEqual(F.irfft(ones([2, 5, 2])).shape, [2, 8]);
  assert.equal(F.fft(ones([4, 2], { dtype: 'bf16' })).dtype, 'f32');
  const z = randn([64, 2]);
  const plain = await values(F.fft(z));
  autocast('bf16', () => assert.equal(F.fft(z).dtype, 'f32'));
  assert.deepEqual(await values(autocast('bf16', () => F.fft(z))), plain, 'autocast changes nothing');
  assert.throws(
    () => F.fft(ones([4, 3])),
    /^ShapeError: fft: expected complex numbers \[\.\.\., n, 2\], of real and imaginary part, got \[4, 3\]/,
  );
  assert.throws(() => F.fft(z, 4, 1), /^ShapeError: fft: dimension 1 is out of range/);
  assert.throws(() => F.rfft(ones([4]), 4, 0, any('both')), /^ArgumentError: rfft: norm must be one of backward, ortho, forward, got both/);
});

test('several dimensions: fft2, ifft2, rfft2, irfft2, fftn, ifftn', async () => {
  const both = (/** @type {Reference} */ z, /** @type {number[]} */ s, /** @type {boolean} */ inverse) =>
    defined(defined(z, 0, s[0], inverse), 1, s[1], inverse);
  for (const [name, inverse] of /** @type {const} */ ([
    ['fft2', false],
    ['ifft2', true],
    ['fftn', false],
    ['ifftn', true],
  ]))
    await checkComposed(name, {
      call: (z) => F[name](z, [3, 6]),
      inputs: [x(4, 5, 2)],
      reference: (z) => both(z, [3, 6], inverse),
    });
  await checkComposed('rfft2', {
    call: (z) => F.rfft2(z),
    inputs: [x(3, 5)],
    reference: (z) => half(both(complex(z), [3, 5], false), 1, 5),
  });
  await checkComposed('irfft2', {
    call: (z) => F.irfft2(z, [3, 5]),
    inputs: [x(3, 3, 2)],
    reference: (z) => realPart(defined(whole(defined(z, 0, 3, true), 1, 5), 1, 5, true)),
  });
  await checkComposed('fftn of three dimensions', {
    call: (z) => F.fftn(z, undefined, undefined, 'ortho'),
    inputs: [x(2, 3, 2, 2)],
    reference: (z) => [0, 1, 2].reduce((own, d) => defined(own, d, own.shape[d], false, 'ortho'), z),
  });
  const image = randn([2, 6, 7]);
  assertClose(await values(F.irfft2(F.rfft2(image), [6, 7])), await values(image), 1e-6, 'there and back');
});

test('frequencies and shifts', async () => {
  // NumPy's and PyTorch's documentation.
  assertClose(await values(F.fftfreq(5)), [0, 0.2, 0.4, -0.4, -0.2], 1e-7, 'fftfreq');
  assert.deepEqual(await values(F.fftfreq(4)), [0, 0.25, -0.5, -0.25]);
  assert.deepEqual(await values(F.fftfreq(4, 0.5)), [0, 0.5, -1, -0.5]);
  assertClose(await values(F.rfftfreq(5)), [0, 0.2, 0.4], 1e-7, 'rfftfreq');
  assert.deepEqual(await values(F.rfftfreq(4)), [0, 0.25, 0.5]);
  assert.deepEqual(await values(F.fftshift(F.fftfreq(4))), [-0.5, -0.25, 0, 0.25]);
  const odd = arange(5);
  assert.deepEqual(await values(F.fftshift(odd)), [3, 4, 0, 1, 2]);
  assert.deepEqual(await values(F.ifftshift(F.fftshift(odd))), [0, 1, 2, 3, 4]);
  assert.deepEqual(await values(F.fftshift(arange(6).reshape(3, 2), 0)), [4, 5, 0, 1, 2, 3]);
});

test('windows', async () => {
  const cosine = (/** @type {number} */ n, /** @type {number[]} */ a, periodic = true) =>
    Float64Array.from({ length: n }, (_, i) =>
      a.reduce((sum, v, k) => sum + v * Math.cos((2 * Math.PI * k * i) / (periodic ? n : n - 1)), 0),
    );
  for (const n of [2, 7, 64]) {
    assertClose(await values(F.hannWindow(n)), cosine(n, [0.5, -0.5]), 1e-7, 'hann');
    assertClose(await values(F.hammingWindow(n, false)), cosine(n, [0.54, -0.46], false), 1e-7, 'hamming');
    assertClose(await values(F.hammingWindow(n, true, 0.6, 0.4)), cosine(n, [0.6, -0.4]), 1e-7, 'hamming of its own');
    assertClose(await values(F.blackmanWindow(n)), cosine(n, [0.42, -0.5, 0.08]), 1e-7, 'blackman');
  }
  assert.deepEqual(await values(F.hannWindow(1)), [1]);
  assert.deepEqual(await values(F.hannWindow(5, false)), [0, 0.5, 1, 0.5, 0]);
});

/** The definition. @param {Reference} signal [batch, samples], padded @param {number[]} window @param {number} hop @param {number} count */
function shortTime(signal, window, hop, count) {
  const n = window.length;
  const frames = Math.floor((signal.shape[1] - n) / hop) + 1;
  return generate([signal.shape[0], count, frames, 2], ([b, k, t, part]) => {
    let sum = 0;
    for (let j = 0; j < n; j++) {
      const angle = (-2 * Math.PI * ((j * k) % n)) / n;
      sum += window[j] * at(signal, [b, t * hop + j]) * (part ? Math.sin(angle) : Math.cos(angle));
    }
    return sum;
  });
}

test('stft and istft', async () => {
  const hann = [...(await values(F.hannWindow(6)))];
  await checkComposed('stft', {
    call: (z) => F.stft(z, 8, { hopLength: 3, winLength: 6, window: tensor(hann) }),
    inputs: [x(2, 17)],
    reference: (z) => {
      const padded = generate([2, 25], ([b, i]) => {
        const from = i - 4;
        return at(z, [b, from < 0 ? -from : from > 16 ? 32 - from : from]);
      });
      return shortTime(padded, [0, ...hann, 0], 3, 5);
    },
  });
  await checkComposed('stft as it lies, of all frequencies', {
    call: (z, window) => F.stft(z, 5, { window, center: false, onesided: false, normalized: true }),
    inputs: [x(1, 12), x(5)],
    reference: (z, window) => {
      const y = shortTime(z, [...window.data], 1, 5);
      return { shape: y.shape, data: y.data.map((v) => v / Math.sqrt(5)) };
    },
  });
  for (const [samples, nFft, options] of /** @type {[number, number, any][]} */ ([
    [64, 16, { window: F.hannWindow(16) }],
    [100, 20, { hopLength: 7, window: F.hammingWindow(20), normalized: true }],
    [40, 9, { hopLength: 4, winLength: 7, onesided: false }],
    [48, 12, { hopLength: 3, center: false }],
    [400, 150, { hopLength: 50, window: F.hannWindow(150) }],
  ])) {
    const signal = randn([2, samples]);
    const there = F.stft(signal, nFft, options);
    const back = F.istft(there, nFft, { ...options, length: options.center === false ? undefined : samples });
    // What the windows do not cover is zeros.
    const covered = Math.min(samples, nFft + (options.hopLength ?? nFft / 4) * (there.shape[2] - 1));
    assertClose(
      await values(back.slice(1, 0, covered)),
      await values(signal.slice(1, 0, covered)),
      2e-6,
      `there and back ${JSON.stringify(samples)}`,
    );
    assert.deepEqual(F.stft(signal.at(0), nFft, options).shape, there.shape.slice(1));
    assert.deepEqual(F.istft(there.at(0), nFft, options).ndim, 1);
  }
  await checkComposed('istft', {
    call: (z) => F.istft(z, 4, { hopLength: 2, center: false }),
    inputs: [x(3, 3, 2)],
    reference: (z) => {
      const sums = new Float64Array(8);
      const counts = new Float64Array(8);
      for (let t = 0; t < 3; t++) {
        const frame = generate([3, 2], ([k, part]) => at(z, [k, t, part]));
        realPart(defined(whole(frame, 0, 4), 0, 4, true)).data.forEach((v, i) => {
          sums[2 * t + i] += v;
          counts[2 * t + i]++;
        });
      }
      return { shape: [8], data: sums.map((v, i) => v / counts[i]) };
    },
  });
  assert.deepEqual(F.stft(ones([1, 400]), 100).shape, [1, 51, 17, 2]);
  assert.throws(() => F.stft(ones([10]), 8, { window: ones([4]) }), /^ShapeError: stft: the window must be \[8\], got \[4\]/);
  assert.throws(() => F.stft(ones([3]), 8), /^ShapeError: stft: mode 'reflect' adds at most 2 elements/);
});

test('constants are made once, and compiled functions keep theirs', async () => {
  const filter = compile((/** @type {any} */ z) => F.irfft(F.rfft(z).mul(2), 90));
  const signal = randn([3, 90]);
  for (let i = 0; i < 3; i++)
    assertClose(
      await values(scope(() => filter(signal))),
      (await values(signal)).map((v) => 2 * v),
      1e-6,
      'a filter',
    );
  // So many constants that those of before are forgotten.
  for (let n = 65; n < 128; n++) F.fft(ones([n, 2]));
  assertClose(
    await values(filter(signal)),
    (await values(signal)).map((v) => 2 * v),
    1e-6,
    'after others',
  );
  const leaf = randn([90]).requiresGrad_();
  const [g] = grad(F.rfft(leaf).square().sum(), [leaf]);
  assert.deepEqual(g.shape, [90]);
});
