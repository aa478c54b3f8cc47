// Images at other positions: `interpolate`, `gridSample`, `affineGrid`, against direct formulas in float64 and PyTorch's examples; and the
// modules of nn/modules/shape.mjs.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, arange, grad, nn, ones, tensor } from '../../nn/index.mjs';
import { at, generate } from '../../nn/ops/reference.mjs';
import { assertClose, uniform } from '../lib/random-data.mjs';
import { checkComposed } from './composed.mjs';
import { random, size, x } from './inputs.mjs';
import { initDevice, values } from './setup.mjs';

/** @typedef {import('../../nn/ops/registry.mjs').Reference} Reference */

before(initDevice);

const any = (/** @type {any} */ value) => value;
const clamp = (/** @type {number} */ i, /** @type {number} */ n) => Math.min(Math.max(i, 0), n - 1);
/** Keys' kernel. @param {number} d @param {number} a */
function keys(d, a) {
  const t = Math.abs(d);
  if (t <= 1) return (a + 2) * t ** 3 - (a + 3) * t ** 2 + 1;
  return t < 2 ? a * t ** 3 - 5 * a * t ** 2 + 8 * a * t - 4 * a : 0;
}

/**
 * All elements of a dimension with their weights for element i, by the definition of the mode: [index, weight].
 * @param {number} i @param {number} from @param {number} to @param {any} how
 * @returns {[number, number][]}
 */
function weightsOf(i, from, to, { mode, scale, alignCorners, antialias }) {
  if (mode === 'nearest') return [[clamp(Math.floor(i * scale), from), 1]];
  if (mode === 'nearest-exact') return [[clamp(Math.floor((i + 0.5) * scale), from), 1]];
  if (mode === 'area') {
    const [start, end] = [Math.floor((i * from) / to), Math.ceil(((i + 1) * from) / to)];
    return Array.from({ length: end - start }, (_, k) => [start + k, 1 / (end - start)]);
  }
  const all = Array.from({ length: from }, (_, k) => k);
  if (antialias) {
    const [centre, wide] = [(i + 0.5) * scale, Math.max(scale, 1)];
    const kernel = (/** @type {number} */ d) => (mode === 'bicubic' ? keys(d, -0.5) : Math.max(0, 1 - Math.abs(d)));
    const list = all.map((k) => kernel((k + 0.5 - centre) / wide));
    const sum = list.reduce((a, b) => a + b, 0);
    return all.map((k) => [k, list[k] / sum]);
  }
  const place = alignCorners ? (to > 1 ? (i * (from - 1)) / (to - 1) : 0) : (i + 0.5) * scale - 0.5;
  if (mode === 'bicubic') {
    const first = Math.floor(place);
    return [-1, 0, 1, 2].map((k) => [clamp(first + k, from), keys(place - first - k, -0.75)]);
  }
  const inside = Math.min(Math.max(place, 0), from - 1);
  return all.map((k) => [k, Math.max(0, 1 - Math.abs(k - inside))]);
}

/** @param {number[]} sizes of the result @param {any} how with a scale for each dimension */
const resized =
  (sizes, { scales, ...how }) =>
  (/** @type {Reference} */ own) => {
    const from = own.shape.slice(2);
    return generate([...own.shape.slice(0, 2), ...sizes], (index) => {
      /** @type {[number[], number][]} */
      let taps = [[index.slice(0, 2), 1]];
      from.forEach((n, d) => {
        const list = weightsOf(index[2 + d], n, sizes[d], { ...how, scale: scales[d] });
        taps = taps.flatMap(([place, w]) => list.map(([k, v]) => /** @type {[number[], number]} */ ([[...place, k], w * v])));
      });
      return taps.reduce((sum, [place, w]) => sum + w * at(own, place), 0);
    });
  };

test('interpolate: every mode, by size and by factor', async () => {
  const cases = /** @type {[number[], any][]} */ ([
    [[2, 3, 5], { size: 9, mode: 'linear' }],
    [[2, 3, 5], { size: 3, mode: 'linear', alignCorners: true }],
    [[1, 2, 3, 4], { size: [5, 3], mode: 'nearest' }],
    [[1, 2, 3, 4], { scaleFactor: 2, mode: 'nearest' }],
    [[1, 2, 7, 5], { scaleFactor: [0.5, 1.7], mode: 'nearest-exact' }],
    [[2, 2, 3, 4], { size: [5, 7], mode: 'bilinear' }],
    [[2, 2, 3, 4], { size: [5, 1], mode: 'bilinear', alignCorners: true }],
    [[1, 2, 7, 5], { scaleFactor: 1.6, mode: 'bilinear' }],
    [[1, 2, 7, 5], { scaleFactor: 1.6, mode: 'bilinear', recomputeScaleFactor: true }],
    [[1, 2, 7, 5], { size: [3, 2], mode: 'bilinear', antialias: true }],
    [[1, 2, 4, 5], { size: [7, 9], mode: 'bicubic' }],
    [[1, 2, 4, 5], { size: [7, 3], mode: 'bicubic', alignCorners: true }],
    [[1, 2, 9, 5], { size: [4, 8], mode: 'bicubic', antialias: true }],
    [[1, 2, 5, 7], { size: [3, 4], mode: 'area' }],
    [[1, 1, 2, 3, 4], { size: [3, 5, 2], mode: 'trilinear' }],
    [[1, 1, 2, 3, 4], { scaleFactor: 2, mode: 'trilinear', alignCorners: true }],
  ]);
  for (const [shape, options] of cases) {
    const { size: wanted, scaleFactor, recomputeScaleFactor, ...how } = options;
    const from = shape.slice(2);
    const list = [wanted ?? scaleFactor].flat();
    const own = from.map((_, d) => list[d] ?? list[0]);
    const sizes = wanted === undefined ? from.map((n, d) => Math.floor(n * own[d])) : own;
    const scales = from.map((n, d) => (wanted === undefined && !recomputeScaleFactor ? 1 / own[d] : n / sizes[d]));
    await checkComposed(`interpolate ${JSON.stringify(options)}`, {
      call: (y) => F.interpolate(y, options),
      inputs: [x(...shape)],
      reference: resized(sizes, { ...how, scales }),
    });
  }
});

test('interpolate: PyTorch’s documentation, types, infinities', async () => {
  const input = arange(1, 5).reshape(1, 1, 2, 2);
  const rows = (/** @type {any} */ y) => values(y);
  assert.deepEqual(
    await rows(new nn.Upsample({ scaleFactor: 2, mode: 'nearest' }).forward(input)),
    [1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4],
  );
  assert.deepEqual(
    await rows(new nn.Upsample({ scaleFactor: 2, mode: 'bilinear' }).forward(input)),
    [1, 1.25, 1.75, 2, 1.5, 1.75, 2.25, 2.5, 2.5, 2.75, 3.25, 3.5, 3, 3.25, 3.75, 4],
  );
  assertClose(
    await rows(F.interpolate(input, { scaleFactor: 2, mode: 'bilinear', alignCorners: true })),
    [3, 4, 5, 6, 5, 6, 7, 8, 7, 8, 9, 10, 9, 10, 11, 12].map((v) => v / 3),
    1e-6,
    'alignCorners',
  );
  const wide = tensor([1, 2, 0, 3, 4, 0, 0, 0, 0]).reshape(1, 1, 3, 3);
  assert.deepEqual((await rows(F.interpolate(wide, { scaleFactor: 2, mode: 'bilinear' }))).slice(6, 24), [
    ...[1.5, 1.75, 2.25, 1.875, 0.625, 0],
    ...[2.5, 2.75, 3.25, 2.625, 0.875, 0],
    ...[2.25, 2.4375, 2.8125, 2.25, 0.75, 0],
  ]);
  assertClose(
    (await rows(F.interpolate(wide, { scaleFactor: 2, mode: 'bilinear', alignCorners: true }))).slice(6, 18),
    [1.8, 2.2, 2.6, 2.24, 1.12, 0, 2.6, 3, 3.4, 2.88, 1.44, 0],
    1e-6,
    'alignCorners of 3 × 3',
  );
  // An infinite element stays where it is.
  assert.deepEqual(await rows(F.interpolate(tensor([Infinity, 1, 2, 3]).reshape(1, 1, 4), { size: 2, mode: 'area' })), [Infinity, 2.5]);
  assert.equal(F.interpolate(ones([1, 1, 3], { dtype: 'bf16' }), { size: 5, mode: 'linear' }).dtype, 'bf16');
  for (const [options, message] of /** @type {[any, RegExp][]} */ ([
    [{}, /^interpolate: one of size and scaleFactor is needed/],
    [{ size: 2, scaleFactor: 2 }, /^interpolate: one of size and scaleFactor is needed/],
    [{ size: 2, mode: 'linear' }, /^interpolate: mode 'linear' is for 1 dimensions behind the channels/],
    [{ size: 2, alignCorners: true }, /^interpolate: alignCorners is not for mode 'nearest'/],
    [{ scaleFactor: 0.1 }, /^interpolate: the factors \[0\.1, 0\.1\] of \[2, 2\] leave nothing/],
    [{ size: [2, 2, 2] }, /^interpolate: size must be an integer of at least 1, or 2 of them/],
  ]))
    assert.throws(() => F.interpolate(input, options), { message });
});

/** A coordinate in the image. @param {number} c @param {number} n @param {any} how */
function insideOf(c, n, { paddingMode, alignCorners }) {
  if (paddingMode === 'zeros') return c;
  let own = c;
  if (paddingMode === 'reflection') {
    const [low, span] = alignCorners ? [0, n - 1] : [-0.5, n];
    if (span === 0) return 0;
    const distance = Math.abs(own - low) % (2 * span);
    own = low + (distance <= span ? distance : 2 * span - distance);
  }
  return Math.min(Math.max(own, 0), n - 1);
}
/** Ties to the even integer. @param {number} v */
const nearest = (v) => (Math.abs(v % 1) === 0.5 ? 2 * Math.round(v / 2) : Math.round(v));

/** @param {any} how */
const sampled = (how) => (/** @type {Reference} */ image, /** @type {Reference} */ grid) => {
  const sizes = image.shape.slice(2);
  const outer = grid.shape.slice(1, -1);
  return generate([image.shape[0], image.shape[1], ...outer], ([n, c, ...place]) => {
    /** @type {[number[], number][]} */
    let taps = [[[n, c], 1]];
    sizes.forEach((own, d) => {
      const v = at(grid, [n, ...place, sizes.length - 1 - d]);
      const source = how.alignCorners ? ((v + 1) / 2) * (own - 1) : ((v + 1) * own - 1) / 2;
      /** @type {[number, number][]} */
      let list;
      if (how.mode === 'nearest') list = [[nearest(insideOf(source, own, how)), 1]];
      else if (how.mode === 'bilinear') {
        const inside = insideOf(source, own, how);
        const first = Math.floor(inside);
        list = [
          [first, 1 - inside + first],
          [first + 1, inside - first],
        ];
      } else {
        const first = Math.floor(source);
        list = [-1, 0, 1, 2].map((k) => [insideOf(first + k, own, how), keys(source - first - k, -0.75)]);
      }
      taps = taps.flatMap(([to, w]) => list.map(([k, u]) => /** @type {[number[], number]} */ ([[...to, k], w * u])));
    });
    return taps.reduce((sum, [to, w]) => sum + (to.slice(2).every((k, d) => k >= 0 && k < sizes[d]) ? w * at(image, to) : 0), 0);
  });
};
/** Points in and around an image. @param {number[]} shape */
const points = (...shape) => ({ shape, values: uniform(size(shape), -1.7, 1.7) });

test('gridSample: every mode, border and alignment, of images and volumes', async () => {
  for (const mode of /** @type {const} */ (['bilinear', 'nearest', 'bicubic'])) {
    for (const paddingMode of /** @type {const} */ (['zeros', 'border', 'reflection'])) {
      for (const alignCorners of [false, true]) {
        const how = { mode, paddingMode, alignCorners };
        const grid = { ...points(2, 3, random.between(1, 4), 2), constant: mode === 'nearest' };
        await checkComposed(`gridSample ${JSON.stringify(how)}`, {
          call: (image, own) => F.gridSample(image, own, how),
          inputs: [x(2, 2, 4, 3), grid],
          reference: sampled(how),
          gradientTolerance: 2e-4,
        });
        if (mode === 'bicubic' || paddingMode === 'border' || alignCorners) continue;
        await checkComposed(`gridSample of volumes ${JSON.stringify(how)}`, {
          call: (image, own) => F.gridSample(image, own, how),
          inputs: [x(1, 2, 3, 2, 4), { ...points(1, 2, 1, 2, 3), constant: mode === 'nearest' }],
          reference: sampled(how),
          gradientTolerance: 2e-4,
        });
      }
    }
  }
});

test('gridSample: the identity, points that are no number, batches of rows', async () => {
  const image = arange(24).reshape(2, 1, 3, 4);
  const theta = tensor([
    [1, 0, 0],
    [0, 1, 0],
  ])
    .expand(2, 2, 3)
    .contiguous();
  for (const alignCorners of [true, false]) {
    const grid = F.affineGrid(theta, [2, 1, 3, 4], { alignCorners });
    assertClose(await values(F.gridSample(image, grid, { alignCorners })), await values(image), 1e-6, 'the identity');
  }
  const odd = tensor([NaN, 0, Infinity, 0, -1e30, 0]).reshape(1, 1, 3, 2);
  assert.deepEqual(await values(F.gridSample(ones([1, 1, 2, 2]), odd)), [0, 0, 0]);
  // So many points that rows are looked up tap by tap. The fewest: the gradient takes a CPU the square of the points, for each of 16 taps.
  const mode = 'bicubic';
  const count = 2 ** 18 / 16 + 1;
  const many = tensor(uniform(2 * count, -1, 1), { shape: [1, 1, count, 2] });
  const small = tensor(uniform(12), { shape: [1, 1, 3, 4] }).requiresGrad_();
  const whole = F.gridSample(small, many, { mode });
  const part = F.gridSample(small.detach(), many.slice(2, 0, 100), { mode });
  // The sums are in another order.
  assertClose((await values(whole)).slice(0, 100), await values(part), 1e-6, 'tap by tap');
  const [gradient] = grad(whole.sum(), [small]);
  // Every weight is somebody's: together they are the points, but for what lies outside.
  const inside = (await values(F.gridSample(ones([1, 1, 3, 4]), many, { mode }).sum()))[0];
  assertClose([(await values(gradient.sum()))[0]], [inside], 1e-4, 'the sum of the gradient');
});

test('affineGrid', async () => {
  for (const alignCorners of [true, false]) {
    for (const sizes of [
      [3, 4],
      [1, 2, 3],
    ]) {
      const rank = sizes.length;
      await checkComposed(`affineGrid of ${rank} dimensions, ${alignCorners}`, {
        call: (theta) => F.affineGrid(theta, [2, 1, ...sizes], { alignCorners }),
        inputs: [x(2, rank, rank + 1)],
        reference: (theta) =>
          generate([2, ...sizes, rank], (index) => {
            const [n, row] = [index[0], index[index.length - 1]];
            const along = sizes.map((own, d) => {
              const i = index[1 + d];
              if (own === 1) return 0;
              return alignCorners ? (2 * i) / (own - 1) - 1 : (2 * i + 1) / own - 1;
            });
            return [...along.reverse(), 1].reduce((sum, v, k) => sum + v * at(theta, [n, row, k]), 0);
          }),
      });
    }
  }
});

test('modules: padding, Upsample, PixelShuffle, Unfold, Fold', async () => {
  const image = arange(9).reshape(1, 1, 3, 3);
  // PyTorch's documentation.
  assert.deepEqual(await values(new nn.ReflectionPad1d(2).forward(arange(8).reshape(1, 2, 4))), [
    ...[2, 1, 0, 1, 2, 3, 2, 1],
    ...[6, 5, 4, 5, 6, 7, 6, 5],
  ]);
  assert.deepEqual(await values(new nn.ReflectionPad2d([1, 1, 2, 0]).forward(image)), [
    ...[7, 6, 7, 8, 7],
    ...[4, 3, 4, 5, 4],
    ...[1, 0, 1, 2, 1],
    ...[4, 3, 4, 5, 4],
    ...[7, 6, 7, 8, 7],
  ]);
  assert.deepEqual(await values(new nn.ReplicationPad1d([3, 1]).forward(arange(4).reshape(1, 1, 4))), [0, 0, 0, 0, 1, 2, 3, 3]);
  assert.deepEqual(await values(new nn.CircularPad1d([3, 1]).forward(arange(4).reshape(1, 1, 4))), [1, 2, 3, 0, 1, 2, 3, 0]);
  assert.deepEqual(await values(new nn.ZeroPad2d([1, 0, -1, 0]).forward(image)), [0, 3, 4, 5, 0, 6, 7, 8]);
  assert.deepEqual(await values(new nn.ConstantPad1d(1, 3.5).forward(ones([1, 2]))), [3.5, 1, 1, 3.5]);
  const volume = ones([1, 2, 2, 3, 4]);
  for (const module of [new nn.ZeroPad3d(1), new nn.ConstantPad3d(1, 2), new nn.ReflectionPad3d(1), new nn.ReplicationPad3d(1)])
    assert.deepEqual(module.forward(volume).shape, [1, 2, 4, 5, 6]);
  assert.deepEqual(new nn.CircularPad2d(1).forward(ones([2, 3, 3])).shape, [2, 5, 5]);
  assert.deepEqual(new nn.ConstantPad2d([1, 2, 0, 0], 1).forward(image).shape, [1, 1, 3, 6]);
  assert.deepEqual(new nn.ReplicationPad2d(2).forward(image).shape, [1, 1, 7, 7]);
  assert.deepEqual(new nn.ZeroPad1d([1, 2]).forward(ones([2, 3])).shape, [2, 6]);
  assert.throws(() => new nn.ZeroPad2d(1).forward(ones([3, 3])), /^ShapeError: ZeroPad2d: expected 3 or 4 dimensions, got \[3, 3\]/);
  assert.equal(String(new nn.ConstantPad1d(1, 3.5)), 'ConstantPad1d([1, 1], 3.5)');
  const four = arange(16).reshape(1, 4, 2, 2);
  assert.deepEqual(await values(new nn.PixelUnshuffle(2).forward(new nn.PixelShuffle(2).forward(four))), await values(four));
  const columns = new nn.Unfold(2, { padding: 1 }).forward(image);
  assert.deepEqual(columns.shape, [1, 4, 16]);
  const counts = new nn.Fold(3, 2, { padding: 1 }).forward(columns);
  assert.deepEqual(
    await values(counts),
    (await values(image)).map((v) => 4 * v),
  );
  assert.equal(any(new nn.Upsample({ size: 2 }).forward(image)).shape[2], 2);
});
