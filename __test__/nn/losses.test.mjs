// Losses against formulas in float64 and finite differences of them, by every reduction, eager and compiled; CTC against all alignments.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, compile, grad, nn, ones, tensor } from '../../nn/index.mjs';
import { assertClose, integers, normal, uniform } from '../lib/random-data.mjs';
import { checkComposed } from './composed.mjs';
import { smooth, x } from './inputs.mjs';
import { initDevice, values } from './setup.mjs';

before(initDevice);

/** @typedef {import('./inputs.mjs').Input} Input */
/** @typedef {(...inputs: Float64Array[]) => ArrayLike<number>} Losses the losses of rows or elements */

/** @param {ArrayLike<number>} list */
const total = (list) => Array.from(list).reduce((a, b) => a + b, 0);
/** @param {number[]} shape @returns {Input} */
const probabilities = (...shape) => ({ shape, values: uniform(total([shape.reduce((a, b) => a * b, 1)]), 0.1, 0.9) });
/** @param {number[]} shape @returns {Input} */
const signs = (...shape) => ({
  shape,
  values: Float64Array.from(
    integers(
      shape.reduce((a, b) => a * b, 1),
      2,
    ),
    (v) => 2 * v - 1,
  ),
  constant: true,
});
/** @param {Input} input @returns {Input} */
const constant = (input) => ({ ...input, constant: true });
/** @param {number[]} list @param {number[]} [shape] @returns {Input} */
const indices = (list, shape = [list.length]) => ({ shape, values: Float64Array.from(list), dtype: 'i32' });
/** log softmax of a row. @param {ArrayLike<number>} row */
const logSoftmax = (row) => {
  const most = Math.max(...Array.from(row));
  const sum = Math.log(total(Array.from(row, (v) => Math.exp(v - most))));
  return Array.from(row, (v) => v - most - sum);
};
/** @param {Float64Array} data @param {number} columns */
const rows = (data, columns) => Array.from({ length: data.length / columns }, (_, r) => data.slice(r * columns, (r + 1) * columns));
/** @param {ArrayLike<number>} a @param {ArrayLike<number>} b @param {number} p @param {number} eps */
const distance = (a, b, p, eps) => {
  const sizes = Array.from(a, (v, i) => Math.abs(v - b[i] + eps));
  return p === Infinity ? Math.max(...sizes) : total(sizes.map((v) => v ** p)) ** (1 / p);
};
const softplus = (/** @type {number} */ v) => Math.max(v, 0) + Math.log1p(Math.exp(-Math.abs(v)));

/**
 * Checks a loss with each reduction.
 * @param {string} name @param {(...args: any[]) => any} loss takes the inputs, then options @param {Input[]} inputs @param {object} options
 * @param {Losses} losses @param {number[]} shape of the losses @param {(...inputs: Float64Array[]) => number} [weights] what 'mean' divides by
 */
async function check(name, loss, inputs, options, losses, shape, weights = () => shape.reduce((a, b) => a * b, 1)) {
  for (const reduction of ['none', 'mean', 'sum']) {
    await checkComposed(`${name} ${reduction}`, {
      call: (...own) => loss(...own, { ...options, reduction }),
      inputs,
      reference: (...own) => {
        const data = own.map((input) => input.data);
        const each = Float64Array.from(losses(...data));
        if (reduction === 'none') return { shape, data: each };
        return { shape: [], data: Float64Array.of(total(each) / (reduction === 'mean' ? weights(...data) : 1)) };
      },
      gradientTolerance: 2e-4,
    });
  }
}

const WEIGHT = [0.5, 2, 1.5, 0.25];
/**
 * The losses of rows with class indices. @param {{ smoothing?: number, weighted?: boolean, ignored?: number }} options
 * @returns {(x: Float64Array, t: Float64Array) => number[]}
 */
const classLosses =
  ({ smoothing = 0, weighted = false, ignored = -100 }) =>
  (data, targets) =>
    rows(data, 4).map((row, r) => {
      const t = targets[r];
      if (t === ignored || !(t in WEIGHT)) return 0;
      const w = (/** @type {number} */ c) => (weighted ? WEIGHT[c] : 1);
      const log = logSoftmax(row);
      return -(1 - smoothing) * w(t) * log[t] - (smoothing / 4) * total(log.map((v, c) => w(c) * v));
    });

test('crossEntropy: weights, smoothing, ignored rows', async () => {
  const inputs = () => [x(5, 4), indices([0, 3, -100, 2, 1])];
  const weight = () => tensor(WEIGHT);
  const kept = () => 4;
  await check('smoothing', F.crossEntropy, inputs(), { labelSmoothing: 0.2 }, classLosses({ smoothing: 0.2 }), [5]);
  await check('kept', F.crossEntropy, inputs(), { meanOf: 'kept' }, classLosses({}), [5], kept);
  const ignore = { ignoreIndex: 3, meanOf: 'kept', labelSmoothing: 0.1 };
  await check('ignored class', F.crossEntropy, inputs(), ignore, classLosses({ smoothing: 0.1, ignored: 3 }), [5], () => 3);
  const sum = (/** @type {Float64Array} */ _, /** @type {Float64Array} */ t) => total(Array.from(t, (c) => WEIGHT[c] ?? 0));
  await check('weight', F.crossEntropy, inputs(), { weight: weight() }, classLosses({ weighted: true }), [5], sum);
  const both = { weight: weight(), labelSmoothing: 0.3 };
  await check('weight, smoothing', F.crossEntropy, inputs(), both, classLosses({ weighted: true, smoothing: 0.3 }), [5], sum);
});

test('crossEntropy: probabilities as targets, classes in any dimension', async () => {
  const p = probabilities(3, 4);
  const losses = (/** @type {number} */ smoothing) => (/** @type {Float64Array} */ data, /** @type {Float64Array} */ t) =>
    rows(data, 4).map((row, r) => -total(logSoftmax(row).map((v, c) => WEIGHT[c] * ((1 - smoothing) * t[4 * r + c] + smoothing / 4) * v)));
  await check('probabilities', F.crossEntropy, [x(3, 4), p], { weight: tensor(WEIGHT), labelSmoothing: 0.2 }, losses(0.2), [3]);

  // [2, 4, 3]: PyTorch's layout of two sequences of three.
  const moved = (/** @type {Float64Array} */ data) =>
    Float64Array.from({ length: 24 }, (_, i) => data[Math.floor(i / 12) * 12 + (i % 4) * 3 + (Math.floor(i / 4) % 3)]);
  const targets = () => indices([0, 1, 2, 3, 0, 3], [2, 3]);
  await check('dim 1', F.crossEntropy, [x(2, 4, 3), targets()], { dim: 1 }, (d, t) => classLosses({})(moved(d), t), [2, 3]);
  await check(
    'nllLoss dim 1',
    F.nllLoss,
    [x(2, 4, 3), targets()],
    { dim: 1, weight: tensor(WEIGHT) },
    (d, t) => rows(moved(d), 4).map((row, r) => -WEIGHT[t[r]] * row[t[r]]),
    [2, 3],
    (_, t) => total(Array.from(t, (c) => WEIGHT[c])),
  );
  await check(
    'probabilities, dim 1',
    F.crossEntropy,
    [x(2, 4, 3), probabilities(2, 4, 3)],
    { dim: 1 },
    (d, t) => rows(moved(d), 4).map((row, r) => -total(logSoftmax(row).map((v, c) => moved(t)[4 * r + c] * v))),
    [2, 3],
  );
  assert.throws(
    () => F.crossEntropy(ones([2, 4]), ones([2, 3])),
    /targets must be class numbers, i32 or u32, or probabilities of the shape of the logits \[2, 4\], got f32 \[2, 3\]/,
  );
  assert.throws(
    () => F.crossEntropy(ones([2, 4]), ones([2], { dtype: 'i32' }), { weight: ones([3]) }),
    /the weight must be f32 \[4\], got f32 \[3\]/,
  );
});

test('nllLoss, with ignored rows; as of logSoftmax it is crossEntropy', async () => {
  const inputs = [x(4, 4), indices([1, 2, 0, -100])];
  await check(
    'nllLoss',
    F.nllLoss,
    inputs,
    {},
    (d, t) => rows(d, 4).map((row, r) => -(row[t[r]] ?? 0)),
    [4],
    () => 3,
  );
  const ignored = (/** @type {Float64Array} */ d, /** @type {Float64Array} */ t) =>
    rows(d, 4).map((row, r) => (t[r] === 2 ? 0 : -(row[t[r]] ?? 0)));
  await check('nllLoss ignoring 2', F.nllLoss, inputs, { ignoreIndex: 2 }, ignored, [4], () => 2);
  const [logits, t] = [tensor(normal(12), { shape: [3, 4] }), tensor([3, 0, 1], { dtype: 'i32' })];
  assertClose(await values(F.nllLoss(F.logSoftmax(logits), t)), await values(F.crossEntropy(logits, t)), 1e-6, 'both');
});

test('losses of pairs', async () => {
  const pair = (/** @type {(a: number, b: number) => number} */ f) => (/** @type {Float64Array} */ a, /** @type {Float64Array} */ b) =>
    a.map((v, i) => f(v, b[i]));
  const shape = [3, 5];
  const two = () => [smooth(3, 5), smooth(3, 5)];
  await check(
    'klDivLoss',
    F.klDivLoss,
    [x(3, 5), probabilities(3, 5)],
    {},
    pair((a, t) => t * (Math.log(t) - a)),
    shape,
  );
  const logTarget = { logTarget: true };
  await check(
    'klDivLoss of logarithms',
    F.klDivLoss,
    [x(3, 5), x(3, 5)],
    logTarget,
    pair((a, t) => Math.exp(t) * (t - a)),
    shape,
  );
  for (const delta of [1, 0.4]) {
    const huber = (/** @type {number} */ a, /** @type {number} */ b) => {
      const d = Math.abs(a - b);
      return d <= delta ? d ** 2 / 2 : delta * (d - delta / 2);
    };
    await check(`huberLoss ${delta}`, F.huberLoss, two(), { delta }, pair(huber), shape);
    await check(
      `smoothL1Loss ${delta}`,
      F.smoothL1Loss,
      two(),
      { beta: delta },
      pair((a, b) => huber(a, b) / delta),
      shape,
    );
  }
  await check(
    'smoothL1Loss 0',
    F.smoothL1Loss,
    two(),
    { beta: 0 },
    pair((a, b) => Math.abs(a - b)),
    shape,
  );
  const [weight, posWeight] = [uniform(5, 0.5, 2), uniform(5, 0.5, 2)];
  const weights = { weight: tensor(weight), posWeight: tensor(posWeight) };
  const bce = (/** @type {Float64Array} */ p, /** @type {Float64Array} */ t) =>
    p.map((v, i) => Math.fround(weight[i % 5]) * -(t[i] * Math.log(v) + (1 - t[i]) * Math.log(1 - v)));
  await check('bce', F.binaryCrossEntropy, [probabilities(3, 5), probabilities(3, 5)], { weight: weights.weight }, bce, shape);
  const logits = (/** @type {Float64Array} */ a, /** @type {Float64Array} */ t) =>
    a.map((v, i) => Math.fround(weight[i % 5]) * (Math.fround(posWeight[i % 5]) * t[i] * softplus(-v) + (1 - t[i]) * softplus(v)));
  await check('bce of logits', F.binaryCrossEntropyWithLogits, [x(3, 5), constant(probabilities(3, 5))], weights, logits, shape);
  const some = () => [smooth(3, 5), signs(3, 5)];
  await check(
    'softMarginLoss',
    F.softMarginLoss,
    some(),
    {},
    pair((a, y) => softplus(-y * a)),
    shape,
  );
  await check(
    'hinge',
    F.hingeEmbeddingLoss,
    some(),
    { margin: 0.7 },
    pair((a, y) => (y === 1 ? a : Math.max(0, 0.7 - a))),
    shape,
  );
  const counts = { shape, values: integers(15, 5), constant: true };
  const stirling = (/** @type {number} */ t) => (t > 1 ? t * Math.log(t) - t + Math.log(2 * Math.PI * t) / 2 : 0);
  const poisson = pair((a, t) => Math.exp(a) - t * a + stirling(t));
  await check('poissonNllLoss', F.poissonNllLoss, [x(3, 5), counts], { full: true }, poisson, shape);
  const rates = pair((a, t) => a - t * Math.log(a + 1e-8));
  await check('poissonNllLoss of rates', F.poissonNllLoss, [probabilities(3, 5), counts], { logInput: false }, rates, shape);
});

test('losses of three', async () => {
  const ranking = (/** @type {Float64Array} */ a, /** @type {Float64Array} */ b, /** @type {Float64Array} */ y) =>
    a.map((v, i) => Math.max(0, -y[i] * (v - b[i]) + 0.3));
  await check('marginRankingLoss', F.marginRankingLoss, [x(7), x(7), signs(7)], { margin: 0.3 }, ranking, [7]);
  const gaussian =
    (/** @type {number} */ per) => (/** @type {Float64Array} */ m, /** @type {Float64Array} */ t, /** @type {Float64Array} */ v) =>
      m.map((a, i) => (Math.log(v[Math.floor(i / per)]) + (a - t[i]) ** 2 / v[Math.floor(i / per)] + Math.log(2 * Math.PI)) / 2);
  await check('gaussianNllLoss', F.gaussianNllLoss, [x(3, 4), x(3, 4), probabilities(3, 4)], { full: true }, gaussian(1), [3, 4]);
  await check('gaussianNllLoss by row', F.gaussianNllLoss, [x(3, 4), x(3, 4), probabilities(3)], { full: true }, gaussian(4), [3, 4]);
  const cosine = (/** @type {ArrayLike<number>} */ a, /** @type {ArrayLike<number>} */ b) => {
    const dot = (/** @type {ArrayLike<number>} */ u, /** @type {ArrayLike<number>} */ v) => total(Array.from(u, (w, i) => w * v[i]));
    return dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
  };
  const embedding = (/** @type {Float64Array} */ a, /** @type {Float64Array} */ b, /** @type {Float64Array} */ y) =>
    rows(a, 3).map((row, r) => {
      const c = cosine(row, rows(b, 3)[r]);
      return y[r] === 1 ? 1 - c : Math.max(0, c + 0.2);
    });
  await check('cosineEmbeddingLoss', F.cosineEmbeddingLoss, [x(5, 3), x(5, 3), signs(5)], { margin: -0.2 }, embedding, [5]);
  for (const [p, swap] of /** @type {[number, boolean][]} */ ([
    [2, false],
    [1, true],
    [3, true],
  ])) {
    const triplet = (/** @type {Float64Array} */ a, /** @type {Float64Array} */ b, /** @type {Float64Array} */ c) =>
      rows(a, 4).map((row, r) => {
        const [positive, negative] = [rows(b, 4)[r], rows(c, 4)[r]];
        const far = distance(row, negative, p, 1e-6);
        return Math.max(0, distance(row, positive, p, 1e-6) - (swap ? Math.min(far, distance(positive, negative, p, 1e-6)) : far) + 1);
      });
    await check(`tripletMarginLoss ${p}`, F.tripletMarginLoss, [x(5, 4), x(5, 4), x(5, 4)], { p, swap }, triplet, [5]);
  }
  for (const p of [1, 2]) {
    const multi = (/** @type {Float64Array} */ d, /** @type {Float64Array} */ t) =>
      rows(d, 4).map((row, r) =>
        total(Array.from(row, (v, c) => (c === t[r] ? 0 : (WEIGHT[t[r]] * Math.max(0, 0.8 - row[t[r]] + v) ** p) / 4))),
      );
    const options = { p, margin: 0.8, weight: tensor(WEIGHT) };
    await check(`multiMarginLoss ${p}`, F.multiMarginLoss, [x(3, 4), indices([0, 3, 2])], options, multi, [3]);
  }
});

test('edges of losses, as PyTorch documents or computes them', async () => {
  const list = async (/** @type {any} */ y) => Array.from(await y.toArray());
  const none = { reduction: 'none' };
  // Logarithms of 0 are -100, and gradients finite.
  const p = tensor([0, 1, 1, 0], { requiresGrad: true });
  const bce = F.binaryCrossEntropy(p, tensor([1, 1, 0, 0]), /** @type {any} */ (none));
  assert.deepEqual(await list(bce), [100, 0, 100, 0]);
  assertClose(await values(grad(bce.sum(), [p])[0]), [-1e12, 0, 1e12, 0], 1e-6, 'gradient');
  assert.deepEqual(await list(F.klDivLoss(tensor([-1, -2]), tensor([0, 0]), /** @type {any} */ (none))), [0, 0]);
  const batch = F.klDivLoss(tensor([[-1, -2]]), tensor([[0.5, 0.5]]), { reduction: 'batchmean' });
  assertClose(await values(batch), [0.5 * Math.log(0.5) + 0.5 + 0.5 * Math.log(0.5) + 1], 1e-6, 'batchmean');
  assert.deepEqual(await list(F.softMarginLoss(tensor([-200, 200]), tensor([1, 1]), /** @type {any} */ (none))), [200, 0]);
  // All rows ignored: 0 / 0.
  const nothing = tensor([-100, -100], { dtype: 'i32' });
  assert.ok(Number.isNaN(await F.nllLoss(ones([2, 3]), nothing).item()));
  assert.ok(Number.isNaN(await new nn.CrossEntropyLoss().forward(ones([2, 3]), nothing).item()));
  assert.equal(await F.crossEntropy(ones([2, 3]), nothing).item(), 0);
  // A variance below eps counts as eps.
  const v = tensor([0], { requiresGrad: true });
  const nll = F.gaussianNllLoss(tensor([1]), tensor([1]), v, { eps: 0.01 });
  assertClose(await values(nll), [Math.log(0.01) / 2], 1e-6, 'gaussian');
  assertClose(await values(grad(nll, [v])[0]), [50], 1e-5, 'gradient of the variance');
});

test('distances: normalize, cosineSimilarity, pairwiseDistance', async () => {
  for (const p of [2, 1, 3, Infinity]) {
    await checkComposed(`normalize ${p}`, {
      call: (a) => F.normalize(a, p),
      inputs: [x(3, 4)],
      reference: ({ shape, data }) => ({
        shape,
        data: Float64Array.from(
          rows(data, 4).flatMap((row) =>
            Array.from(
              row,
              (v) =>
                v /
                distance(
                  row,
                  row.map(() => 0),
                  p,
                  0,
                ),
            ),
          ),
        ),
      }),
    });
    await checkComposed(`pairwiseDistance ${p}`, {
      call: (a, b) => F.pairwiseDistance(a, b, { p, keepdim: true }),
      inputs: [x(3, 4), x(4)],
      reference: (a, b) => ({ shape: [3, 1], data: Float64Array.from(rows(a.data, 4).map((row) => distance(row, b.data, p, 1e-6))) }),
    });
  }
  await checkComposed('cosineSimilarity', {
    call: (a, b) => F.cosineSimilarity(a, b, { dim: 0 }),
    inputs: [x(4, 3), x(4, 1)],
    reference: (a, b) => ({
      shape: [3],
      data: Float64Array.from({ length: 3 }, (_, c) => {
        const column = [0, 1, 2, 3].map((r) => a.data[3 * r + c]);
        const size = (/** @type {ArrayLike<number>} */ v) => Math.sqrt(total(Array.from(v, (w) => w * w)));
        return total(column.map((v, r) => v * b.data[r])) / (size(column) * size(b.data));
      }),
    }),
  });
  // Of nothing: no NaN, in gradients either.
  const zero = tensor([[0, 0]], { requiresGrad: true });
  const y = F.normalize(zero);
  assert.deepEqual(
    [...(await values(y)), ...(await values(grad(F.cosineSimilarity(zero, ones([1, 2])).sum(), [zero])[0]))].map(Number.isFinite),
    [true, true, true, true],
  );
  assert.deepEqual(await values(y), [0, 0]);
});

/**
 * The loss of one sequence by all its alignments.
 * @param {number[][]} logProbs by step @param {number[]} target @param {number} blank
 */
function byAlignments(logProbs, target, blank) {
  let probability = 0;
  const walk = (/** @type {number} */ t, /** @type {number[]} */ path, /** @type {number} */ log) => {
    if (t === logProbs.length) {
      const merged = path.filter((c, i) => c !== path[i - 1]).filter((c) => c !== blank);
      if (String(merged) === String(target)) probability += Math.exp(log);
      return;
    }
    for (const [c, own] of logProbs[t].entries()) walk(t + 1, [...path, c], log + own);
  };
  walk(0, [], 0);
  return -Math.log(probability);
}

test('ctcLoss: the sum over all alignments, with lengths, an empty target, repeats and any blank', async () => {
  const [T, N, C] = [5, 4, 3];
  const lengths = { input: [5, 4, 5, 3], target: [2, 2, 0, 1] };
  const inputs = [x(T, N, C), indices([1, 1, 1, 0, 0, 0, 0, 1], [N, 2])];
  for (const [blank, labels] of /** @type {[number, number[]][]} */ ([
    [2, [1, 1, 1, 0, 0, 0, 0, 1]],
    [0, [1, 2, 2, 2, 1, 1, 2, 1]],
  ])) {
    const of = (/** @type {Float64Array} */ data) =>
      Array.from({ length: N }, (_, n) => {
        const own = Array.from({ length: lengths.input[n] }, (_, t) => [0, 1, 2].map((c) => data[(t * N + n) * C + c]));
        return byAlignments(own, labels.slice(2 * n, 2 * n + lengths.target[n]), blank);
      });
    for (const reduction of /** @type {const} */ (['none', 'sum', 'mean'])) {
      await checkComposed(`ctcLoss ${blank} ${reduction}`, {
        call: (a, t) => F.ctcLoss(a, t, lengths.input, lengths.target, { blank, reduction }),
        inputs: [inputs[0], indices(labels, [N, 2])],
        reference: ({ data }) => {
          const losses = of(data);
          if (reduction === 'none') return { shape: [N], data: Float64Array.from(losses) };
          if (reduction === 'sum') return { shape: [], data: Float64Array.of(total(losses)) };
          return { shape: [], data: Float64Array.of(total(losses.map((v, n) => v / Math.max(1, lengths.target[n]))) / N) };
        },
        gradientTolerance: 2e-4,
      });
    }
  }
});

test('ctcLoss: targets one after another, one sequence, lengths on the device, and what has no alignment', async () => {
  const logProbs = F.logSoftmax(tensor(normal(5 * 2 * 4), { shape: [5, 2, 4] }));
  const rows = tensor([1, 2, 3, 1, 0, 0], { shape: [2, 3], dtype: 'i32' });
  const none = /** @type {const} */ ({ reduction: 'none' });
  const expected = await values(F.ctcLoss(logProbs, rows, [5, 4], [3, 1], none));
  const flat = tensor([1, 2, 3, 1], { dtype: 'i32' });
  assert.deepEqual(await values(F.ctcLoss(logProbs, flat, [5, 4], [3, 1], none)), expected);
  const sizes = [
    [5, 4],
    [3, 1],
  ].map((list) => tensor(list, { dtype: 'i32' }));
  assert.deepEqual(await values(F.ctcLoss(logProbs, rows, sizes[0], sizes[1], none)), expected);
  const compiled = compile((/** @type {any} */ ...own) => F.ctcLoss(own[0], own[1], own[2], own[3], none));
  assertClose(await values(compiled(logProbs, rows, sizes[0], sizes[1])), expected, 1e-6, 'compiled, lengths on the device');
  const one = F.ctcLoss(logProbs.slice(1, 0, 1).squeeze(1), tensor([1, 2, 3], { dtype: 'i32' }), [5], [3], none);
  assert.deepEqual([one.shape, (await values(one))[0]], [[], expected[0]]);
  // Three equal labels need two blanks between them: five steps, of which there are four.
  const same = tensor([1, 1, 1, 2, 2, 2], { shape: [2, 3], dtype: 'i32' });
  const own = logProbs.detach().requiresGrad_();
  const loss = F.ctcLoss(own, same, [4, 5], [3, 3], none);
  const [first, second] = await values(loss);
  assert.equal(first, Infinity);
  assert.ok(Number.isFinite(second));
  const gradient = await values(grad(loss.slice(0, 0, 1).sum(), [own])[0]);
  assert.ok(gradient.every((/** @type {number} */ v) => v === 0));
  assert.deepEqual(await values(F.ctcLoss(own, same, [4, 5], [3, 3], { ...none, zeroInfinity: true })), [0, second]);
  // Logarithms of 0 are no NaN.
  const sure = tensor([
    [0, -Infinity],
    [-Infinity, 0],
  ]);
  assert.equal(Math.abs((await values(F.ctcLoss(sure, tensor([1], { dtype: 'i32' }), [2], [1], none)))[0]), 0);
  assert.throws(() => F.ctcLoss(logProbs, flat, [5, 4], [3, 2]), /targetLengths add up to 5, but there are 4 targets/);
  assert.throws(() => F.ctcLoss(logProbs, rows, [5, 6], [3, 2]), /inputLengths must be integers from 1 to 5, got 6/);
});

test('modules of losses are the functions with their options, and hold their weights in the state', async () => {
  const [a, b, y] = [tensor(normal(6), { shape: [2, 3] }), tensor(uniform(6, 0.1, 0.9), { shape: [2, 3] }), tensor([1, -1])];
  const p = tensor(uniform(6, 0.1, 0.9), { shape: [2, 3] });
  const t = tensor([2, -100], { dtype: 'i32' });
  const weight = tensor([1, 2, 3]);
  for (const [module, args, expected] of /** @type {[any, any[], any][]} */ ([
    [new nn.CrossEntropyLoss(), [a, t], F.crossEntropy(a, t, { meanOf: 'kept' })],
    [new nn.CrossEntropyLoss({ weight, labelSmoothing: 0.1 }), [a, t], F.crossEntropy(a, t, { weight, labelSmoothing: 0.1 })],
    [new nn.NLLLoss({ reduction: 'sum' }), [a, t], F.nllLoss(a, t, { reduction: 'sum' })],
    [new nn.KLDivLoss({ reduction: 'batchmean' }), [a, b], F.klDivLoss(a, b, { reduction: 'batchmean' })],
    [new nn.HuberLoss({ delta: 0.1 }), [a, b], F.huberLoss(a, b, { delta: 0.1 })],
    [new nn.SmoothL1Loss({ beta: 0.1 }), [a, b], F.smoothL1Loss(a, b, { beta: 0.1 })],
    [new nn.MSELoss(), [a, b], F.mseLoss(a, b)],
    [new nn.L1Loss(), [a, b], F.l1Loss(a, b)],
    [new nn.BCELoss({ weight }), [p, b], F.binaryCrossEntropy(p, b, { weight })],
    [new nn.BCEWithLogitsLoss({ posWeight: weight }), [a, b], F.binaryCrossEntropyWithLogits(a, b, { posWeight: weight })],
    [new nn.CosineEmbeddingLoss({ margin: 0.5 }), [a, b, y], F.cosineEmbeddingLoss(a, b, y, { margin: 0.5 })],
    [new nn.TripletMarginLoss({ margin: 2 }), [a, b, p], F.tripletMarginLoss(a, b, p, { margin: 2 })],
    [new nn.MarginRankingLoss({ margin: 1 }), [a, b, p], F.marginRankingLoss(a, b, p, { margin: 1 })],
    [new nn.HingeEmbeddingLoss({ margin: 2 }), [y, y], F.hingeEmbeddingLoss(y, y, { margin: 2 })],
    [new nn.MultiMarginLoss({ p: 2 }), [a, t], F.multiMarginLoss(a, t, { p: 2 })],
    [new nn.SoftMarginLoss(), [a, b], F.softMarginLoss(a, b)],
    [new nn.PoissonNLLLoss({ full: true }), [a, b], F.poissonNllLoss(a, b, { full: true })],
    [new nn.GaussianNLLLoss({ full: true }), [a, b, p], F.gaussianNllLoss(a, b, p, { full: true })],
    [new nn.CosineSimilarity({ dim: 0 }), [a, b], F.cosineSimilarity(a, b, { dim: 0 })],
    [new nn.PairwiseDistance({ p: 1 }), [a, b], F.pairwiseDistance(a, b, { p: 1 })],
  ])) {
    assert.deepEqual(await values(module.forward(...args)), await values(expected), module.constructor.name);
  }
  const ctc = new nn.CTCLoss({ blank: 2 });
  const [logProbs, labels] = [F.logSoftmax(a).unsqueeze(1), tensor([1], { dtype: 'i32' })];
  assert.deepEqual(
    await values(ctc.forward(logProbs, labels, [2], [1])),
    await values(F.ctcLoss(logProbs, labels, [2], [1], { blank: 2 })),
  );
  assert.deepEqual(Object.keys(new nn.BCEWithLogitsLoss({ weight, posWeight: weight }).stateDict()), ['weight', 'pos_weight']);
  assert.throws(
    () => new nn.HuberLoss(/** @type {any} */ ({ beta: 1 })),
    /HuberLoss: unknown option beta; the options are reduction, delta/,
  );
});
