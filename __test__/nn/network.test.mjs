// Further functions of networks and their modules: against float64 and central differences, eager and compiled, and PyTorch's documented examples.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, compile, manualSeed, nn, ones, randn, tensor, zeros } from '../../nn/index.mjs';
import { assertClose } from '../lib/random-data.mjs';
import { checkComposed } from './composed.mjs';
import { positive, range, smooth, total, x } from './inputs.mjs';
import { at, generate } from '../../nn/ops/reference.mjs';
import { initDevice, values } from './setup.mjs';

before(initDevice);

/** @typedef {import('../../nn/ops/registry.mjs').Reference} Reference */

test('bilinear and embeddingBag', async () => {
  await checkComposed('bilinear', {
    call: F.bilinear,
    inputs: [x(2, 5, 3), x(2, 5, 4), x(2, 3, 4), x(2)],
    reference: (a, b, w, bias) =>
      generate([2, 5, 2], ([i, j, o]) =>
        range(3).reduce((sum, p) => sum + total(range(4).map((q) => at(a, [i, j, p]) * at(w, [o, p, q]) * at(b, [i, j, q]))), bias.data[o]),
      ),
  });
  const ids = { shape: [5], values: Float64Array.of(1, 3, 3, 0, 2), dtype: /** @type {const} */ ('i32') };
  const offsets = { shape: [4], values: Float64Array.of(0, 2, 2, 3), dtype: /** @type {const} */ ('i32') };
  const bags = [[1, 3], [], [3], [0, 2]];
  for (const mode of /** @type {('sum' | 'mean' | 'max')[]} */ (['sum', 'mean', 'max']))
    await checkComposed(`embeddingBag ${mode}`, {
      call: (i, w, o) => F.embeddingBag(i, w, o, { mode }),
      inputs: [ids, x(4, 3), offsets],
      reference: (_, w) =>
        generate([4, 3], ([bag, c]) => {
          const list = bags[bag].map((id) => at(w, [id, c]));
          if (list.length === 0) return 0;
          return mode === 'max' ? Math.max(...list) : total(list) / (mode === 'mean' ? list.length : 1);
        }),
    });
  for (const [i, w, o, factors] of [
    [ids, x(4, 3), offsets, x(5)],
    [{ ...ids, shape: [1, 5] }, x(4, 3), undefined, x(1, 5)],
  ])
    await checkComposed('embeddingBag of weighted rows', {
      call: (i, w, f, o) => F.embeddingBag(i, w, o, { mode: 'sum', perSampleWeights: f }),
      inputs: /** @type {any[]} */ ([i, w, factors, o].filter(Boolean)),
      reference: (_, w, f) => {
        const places = o ? [[0, 1], [], [2], [3, 4]] : [range(5)];
        return generate([places.length, 3], ([bag, c]) => total(places[bag].map((k) => f.data[k] * at(w, [ids.values[k], c]))));
      },
    });
  assert.throws(
    () => F.embeddingBag(zeros([2, 2], { dtype: 'i32' }), ones([3, 2]), /** @type {any} */ ({ mode: 'sum' })),
    /^ArgumentError: embeddingBag: expected a tensor, got \{ mode: 'sum' \}/,
  );
  const pairs = zeros([2, 2], { dtype: 'i32' });
  assert.throws(
    () => new nn.EmbeddingBag(3, 2).forward(pairs, undefined, ones([2, 2])),
    /^ArgumentError: EmbeddingBag: perSampleWeights need the mode 'sum', got mean/,
  );
  assert.throws(
    () => new nn.EmbeddingBag(3, 2, { mode: 'sum' }).forward(pairs, undefined, ones([2])),
    /^ShapeError: EmbeddingBag: perSampleWeights must be floats of the ids' shape \[2, 2\], got f32 \[2\]/,
  );
  const half = F.embeddingBag(tensor([0, 1, 1], { dtype: 'i32' }), tensor([[1], [2]], { dtype: 'f16' }), tensor([0, 1], { dtype: 'i32' }));
  assert.deepEqual([half.dtype, await values(half)], ['f16', [1, 2]]);
});

test('softmin, pdist, convTbc, upsampleBilinear', async () => {
  await checkComposed('softmin', {
    call: (a) => F.softmin(a, 0),
    inputs: [x(5, 3)],
    reference: (a) => generate([5, 3], ([i, j]) => Math.exp(-at(a, [i, j])) / total(range(5).map((k) => Math.exp(-at(a, [k, j]))))),
  });
  for (const p of [1, 2, 3])
    await checkComposed(`pdist ${p}`, {
      call: (a) => F.pdist(a, p),
      inputs: [x(5, 3)],
      reference: (a) => {
        const pairs = range(5).flatMap((i) => range(5).flatMap((j) => (j > i ? [[i, j]] : [])));
        return generate(
          [10],
          ([k]) => total(range(3).map((c) => Math.abs(at(a, [pairs[k][0], c]) - at(a, [pairs[k][1], c])) ** p)) ** (1 / p),
        );
      },
    });
  await checkComposed('convTbc', {
    call: (a, w, b) => F.convTbc(a, w, b, 1),
    inputs: [x(6, 2, 3), x(3, 3, 4), x(4)],
    reference: (a, w, b) =>
      generate([6, 2, 4], ([t, n, o]) =>
        range(3).reduce((sum, k) => {
          const from = t + k - 1;
          return from < 0 || from > 5 ? sum : sum + total(range(3).map((c) => at(a, [from, n, c]) * at(w, [k, c, o])));
        }, b.data[o]),
      ),
  });
  await checkComposed('upsampleBilinear', {
    call: (a) => F.upsampleBilinear(a, { size: [5, 3] }),
    inputs: [x(1, 2, 3, 2)],
    reference: (a) =>
      generate([1, 2, 5, 3], ([n, c, i, j]) => {
        const [y, z] = [i / 2, j / 2];
        const [top, left] = [Math.min(Math.floor(y), 1), Math.min(Math.floor(z), 0)];
        const [v, h] = [y - top, z - left];
        const of = (/** @type {number} */ r, /** @type {number} */ k) => at(a, [n, c, top + r, left + k]);
        return (1 - v) * ((1 - h) * of(0, 0) + h * of(0, 1)) + v * ((1 - h) * of(1, 0) + h * of(1, 1));
      }),
  });
  // PyTorch's example of UpsamplingBilinear2d.
  const image = tensor([
    [
      [
        [1, 2],
        [3, 4],
      ],
    ],
  ]);
  const expected = [1, 4 / 3, 5 / 3, 2, 5 / 3, 2, 7 / 3, 8 / 3, 7 / 3, 8 / 3, 3, 10 / 3, 3, 10 / 3, 11 / 3, 4];
  assertClose(await values(new nn.UpsamplingBilinear2d({ scaleFactor: 2 }).forward(image)), Float64Array.from(expected), 1e-6, 'example');
  const nearest = new nn.UpsamplingNearest2d({ scaleFactor: 2 }).forward(image);
  assert.deepEqual(await values(nearest), [1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4]);
  const channels = randn([2, 3, 2, 2]);
  assert.deepEqual(await values(new nn.Softmax2d().forward(channels)), await values(F.softmax(channels, 1)));
  assert.deepEqual(await values(new nn.Softmin(1).forward(channels)), await values(F.softmax(channels.neg(), 1)));
});

test('pools by norm: windows with strides, and what lies beyond the end', async () => {
  for (const [p, rank] of [
    [2, 1],
    [3, 2],
    [1, 3],
  ]) {
    const sizes = [5, 4, 3].slice(0, rank);
    const call = [F.lpPool1d, F.lpPool2d, F.lpPool3d][rank - 1];
    const module = new [nn.LPPool1d, nn.LPPool2d, nn.LPPool3d][rank - 1](p, 2, { stride: 1 });
    for (const run of [(/** @type {any} */ a) => call(a, p, 2, { stride: 1 }), (/** @type {any} */ a) => module.forward(a)])
      await checkComposed(`lpPool${rank}d ${p}`, {
        call: run,
        inputs: [positive(1, 2, ...sizes)],
        reference: (a) =>
          generate([1, 2, ...sizes.map((n) => n - 1)], ([n, c, ...place]) => {
            const corners = range(2 ** rank).map((bits) => place.map((v, d) => v + ((bits >> d) & 1)));
            return total(corners.map((corner) => at(a, [n, c, ...corner]) ** p)) ** (1 / p);
          }),
      });
  }
  assert.deepEqual((await values(F.lpPool1d(tensor([[[3, 4, 6]]]), 2, 2, { ceilMode: true }))).map(Math.fround), [
    5,
    Math.fround(Math.sqrt(72)),
  ]);
  // As in PyTorch, sums below 0 stay so with p = 1, and have no root with p = 3.
  const below = tensor([[[-3, 1, 2, 1]]]).requiresGrad_();
  assert.deepEqual(await values(F.lpPool1d(below, 1, 2)), [-2, 3]);
  F.lpPool1d(below, 1, 2).sum().backward();
  assert.deepEqual(await values(below.grad), [1, 1, 1, 1]);
  assert.ok(Number.isNaN((await values(F.lpPool1d(below, 3, 2)))[0]));
  const zero = tensor([[[0, 0]]]).requiresGrad_();
  F.lpPool1d(zero, 2, 2).sum().backward();
  assert.deepEqual(await values(zero.grad), [0, 0]);
});

test('maxUnpool puts back what maxPool took (PyTorch’s examples), and its gradient takes it again', async () => {
  const input = tensor([[Array.from({ length: 4 }, (_, i) => range(4).map((j) => 4 * i + j + 1))]]);
  const [y, indices] = F.maxPool2d(input, 2, { stride: 2, returnIndices: true });
  const back = [0, 0, 0, 0, 0, 6, 0, 8, 0, 0, 0, 0, 0, 14, 0, 16];
  assert.deepEqual(await values(F.maxUnpool2d(y, indices, 2, { stride: 2 })), back);
  assert.deepEqual(await values(new nn.MaxUnpool2d(2, { stride: 2 }).forward(y, indices)), back);
  const wide = F.maxUnpool2d(y, indices, 2, { stride: 2, outputSize: [5, 5] });
  assert.deepEqual(
    [wide.shape, await values(wide)],
    [
      [1, 1, 5, 5],
      [0, 0, 0, 0, 0, 6, 0, 8, 0, 0, 0, 0, 0, 14, 0, 16, ...new Array(9).fill(0)],
    ],
  );
  const line = tensor([[[1, 2, 3, 4, 5, 6, 7, 8, 9]]]);
  const [z, of] = F.maxPool1d(line, 2, { stride: 2, returnIndices: true });
  assert.deepEqual(await values(new nn.MaxUnpool1d(2, { stride: 2 }).forward(z, of, [9])), [0, 2, 0, 4, 0, 6, 0, 8, 0]);
  for (const [rank, pool, unpool] of /** @type {[number, any, any][]} */ ([
    [1, F.maxPool1d, F.maxUnpool1d],
    [2, F.maxPool2d, F.maxUnpool2d],
    [3, F.maxPool3d, F.maxUnpool3d],
  ])) {
    const a = randn([2, 3, ...[4, 6, 2].slice(0, rank)]);
    const both = (/** @type {any} */ own) => {
      const [most, places] = pool(own, 2, { returnIndices: true });
      return unpool(most, places, 2);
    };
    const windows = a.size / 2 ** rank;
    for (const run of [both, compile(both)]) {
      const [given, got] = [await values(a), await values(run(a))];
      assert.equal(got.filter((v) => v !== 0).length, windows);
      assert.ok(got.every((v, i) => v === 0 || v === given[i]));
    }
    const leaf = a.detach().requiresGrad_();
    both(leaf).mul(2).sum().backward();
    assert.deepEqual(
      await values(leaf.grad),
      (await values(both(a))).map((v) => (v === 0 ? 0 : 2)),
    );
  }
  assert.throws(() => F.maxUnpool2d(y, z, 2), /maxUnpool2d: expected an input of 4 dimensions and indices of its shape/);
});

test('losses of several labels', async () => {
  // PyTorch's example: 0.25 · ((1 − (0.1 − 0.2)) + (1 − (0.1 − 0.4)) + (1 − (0.8 − 0.2)) + (1 − (0.8 − 0.4))).
  const example = F.multilabelMarginLoss(tensor([[0.1, 0.2, 0.4, 0.8]]), tensor([[3, 0, -1, 1]], { dtype: 'i32' }));
  assertClose([await example.item()], Float64Array.of(0.85), 1e-6, 'example');
  const labels = [
    [3, 0, -1, 1, 1],
    [-1, 2, 2, 2, 2],
    [1, 4, 2, 0, 3],
  ];
  for (const reduction of /** @type {('none' | 'sum' | 'mean')[]} */ (['none', 'sum', 'mean']))
    await checkComposed(`multilabelMarginLoss ${reduction}`, {
      call: (a, t) => F.multilabelMarginLoss(a, t, { reduction }),
      inputs: [x(3, 5), { shape: [3, 5], values: Float64Array.from(labels.flat()), dtype: 'i32' }],
      reference: (a) => {
        const losses = labels.map((row, i) => {
          const own = row.slice(0, [...row, -1].indexOf(-1));
          const rest = range(5).filter((c) => !own.includes(c));
          return total(own.flatMap((t) => rest.map((c) => Math.max(0, 1 - (at(a, [i, t]) - at(a, [i, c])))))) / 5;
        });
        if (reduction === 'none') return { shape: [3], data: Float64Array.from(losses) };
        return { shape: [], data: Float64Array.of(total(losses) / (reduction === 'mean' ? 3 : 1)) };
      },
    });
  const bits = { shape: [3, 4], values: Float64Array.of(0, 1, 1, 0, 1, 1, 0, 0, 0, 0, 1, 1), constant: true };
  await checkComposed('multilabelSoftMarginLoss', {
    call: (a, t, w) => F.multilabelSoftMarginLoss(a, t, { weight: w }),
    inputs: [x(3, 4), bits, { ...positive(4), constant: true }],
    reference: (a, t, w) => {
      const terms = Array.from(
        a.data,
        (v, i) => w.data[i % 4] * (Math.log(1 + Math.exp(-v)) * t.data[i] + Math.log(1 + Math.exp(v)) * (1 - t.data[i])),
      );
      return { shape: [], data: Float64Array.of(total(terms) / 12) };
    },
  });
  const l1 = (/** @type {any} */ a, /** @type {any} */ b) => F.sum(F.abs(F.sub(a, b)), -1);
  for (const swap of [false, true])
    await checkComposed('tripletMarginWithDistanceLoss', {
      call: (a, p, n) => F.tripletMarginWithDistanceLoss(a, p, n, { distanceFunction: l1, margin: 2, swap }),
      inputs: [x(4, 3), x(4, 3), x(4, 3)],
      reference: (a, p, n) => {
        const d = (/** @type {Reference} */ u, /** @type {Reference} */ v, /** @type {number} */ i) =>
          total(range(3).map((c) => Math.abs(at(u, [i, c]) - at(v, [i, c]))));
        const losses = range(4).map((i) => Math.max(0, d(a, p, i) - (swap ? Math.min(d(a, n, i), d(p, n, i)) : d(a, n, i)) + 2));
        return { shape: [], data: Float64Array.of(total(losses) / 4) };
      },
    });
  const [a, p, n] = [randn([4, 3]), randn([4, 3]), randn([4, 3])];
  const same = await F.tripletMarginLoss(a, p, n, { swap: true }).item();
  assertClose([await new nn.TripletMarginWithDistanceLoss({ swap: true }).forward(a, p, n).item()], Float64Array.of(same), 1e-6, 'of rows');
  const loss = new nn.MultiLabelSoftMarginLoss({ weight: ones([4]) });
  assert.deepEqual(Object.keys(loss.stateDict()), ['weight']);
  assert.equal(
    await new nn.MultiLabelMarginLoss().forward(tensor([[0.1, 0.2]]), tensor([[1, -1]], { dtype: 'i32' })).item(),
    await F.multilabelMarginLoss(tensor([[0.1, 0.2]]), tensor([[1, -1]], { dtype: 'i32' })).item(),
  );
});

test('rrelu: the mean slope, or a slope for each element while training', async () => {
  await checkComposed('rrelu', {
    call: (a) => F.rrelu(a, 0.1, 0.3),
    inputs: [smooth(5, 7)],
    reference: (a) => ({ shape: a.shape, data: a.data.map((v) => (v < 0 ? 0.2 * v : v)) }),
  });
  manualSeed(3);
  const a = randn([1000]);
  const [given, got] = [await values(a), await values(new nn.RReLU(0.25, 0.5).forward(a))];
  const slopes = given.flatMap((v, i) => (v < 0 ? [got[i] / v] : []));
  assert.ok(given.every((v, i) => v < 0 || got[i] === v));
  assert.ok(slopes.every((s) => s > 0.2499 && s < 0.5001));
  assert.ok(new Set(slopes.map((s) => s.toFixed(3))).size > 100);
  assert.throws(() => F.rrelu(a, 0.5, 0.25), /rrelu: lower must be at most upper, got 0.5 and 0.25/);
});

test('gumbelSoftmax: classes as often as they are probable; hard ones with soft gradients', async () => {
  manualSeed(5);
  const logits = F.log(tensor([0.5, 0.2, 0.3])).expand(4000, 3);
  const hard = await values(F.gumbelSoftmax(logits, 0.7, true));
  assert.ok(hard.every((v) => Math.abs(v) < 1e-6 || Math.abs(v - 1) < 1e-6));
  const shares = range(3).map((c) => total(hard.filter((_, i) => i % 3 === c)) / 4000);
  [0.5, 0.2, 0.3].forEach((p, c) => {
    assert.ok(Math.abs(shares[c] - p) < 0.03, `${shares}`);
  });
  const soft = await values(F.sum(F.gumbelSoftmax(randn([5, 3, 2]), 1, false, 1), 1));
  assertClose(soft, new Float64Array(10).fill(1), 1e-6, 'sums');
  manualSeed(6);
  const leaf = randn([4, 3]).requiresGrad_();
  const weight = randn([4, 3]);
  manualSeed(7);
  F.gumbelSoftmax(leaf, 1, true).mul(weight).sum().backward();
  const wanted = await values(leaf.grad);
  leaf.zeroGrad();
  manualSeed(7);
  F.gumbelSoftmax(leaf, 1).mul(weight).sum().backward();
  assertClose(wanted, Float64Array.from(await values(leaf.grad)), 1e-6, 'the gradient is that of the soft ones');
});

test('dropout of channels and for SELU, as functions', async () => {
  manualSeed(8);
  for (const [drop, shape] of /** @type {[any, number[]][]} */ ([
    [F.dropout1d, [20, 10, 3]],
    [F.dropout2d, [20, 10, 3, 2]],
    [F.dropout3d, [20, 10, 3, 2, 2]],
  ])) {
    const got = await values(drop(ones(shape), 0.25));
    const size = got.length / 200;
    const firsts = range(200).map((c) => got[c * size]);
    assert.ok(got.every((v, i) => v === firsts[Math.floor(i / size)]));
    assert.ok(firsts.every((v) => v === 0 || Math.abs(v - 4 / 3) < 1e-6));
    const dropped = firsts.filter((v) => v === 0).length;
    assert.ok(dropped > 25 && dropped < 80, `${dropped} of 200`);
    assert.ok((await values(drop(ones(shape), 0.25, false))).every((v) => v === 1));
    assert.throws(() => drop(ones([2]), 0.5), /expected an input \[batch, channels/);
  }
  const a = randn([200, 50]);
  for (const drop of [F.alphaDropout, F.featureAlphaDropout]) {
    const y = drop(a, 0.3, true);
    assert.ok(Math.abs(await F.mean(y).item()) < 0.05 && Math.abs((await F.variance(y).item()) - 1) < 0.08);
    assert.deepEqual(await values(drop(a, 0.3)), await values(a));
  }
});

test('LocalResponseNorm and its older name', async () => {
  const a = randn([2, 5, 3, 2]);
  const expected = await values(F.localResponseNorm(a, 3, 0.5, 0.6, 2));
  for (const kind of [nn.LocalResponseNorm, nn.CrossMapLRN2d])
    assert.deepEqual(await values(new kind(3, { alpha: 0.5, beta: 0.6, k: 2 }).forward(a)), expected);
});
