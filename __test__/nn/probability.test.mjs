// Distributions as objects: PyTorch's numbers (torch.distributions 2.15), samples by their means, gradients through them, compiled.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { compile, distributions, grad, manualSeed, noGrad, tensor, zeros } from '../../nn/index.mjs';
import { initDevice, values } from './setup.mjs';

before(initDevice);

const { Bernoulli, Categorical, Distribution, Independent, Normal, Uniform, klDivergence } = distributions;
/** @typedef {import('../../nn/index.mjs').Tensor} Tensor */
/** @param {any} data */
const ids = (data) => tensor(data, { dtype: 'i32' });
const INF = Infinity;

/** PyTorch's numbers have six digits behind the point. @param {Tensor} x @param {number[]} expected @param {string} [what] */
async function near(x, expected, what) {
  const got = await values(x);
  const fits = got.length === expected.length && got.every((v, i) => v === expected[i] || Math.abs(v - expected[i]) < 2e-6);
  assert.ok(fits, `${what}: ${got} instead of ${expected}`);
}

test('Categorical: by probabilities, which need not sum to 1, and by logits', async () => {
  const c = new Categorical({
    probs: tensor([
      [0.1, 0.2, 0.7],
      [0, 2, 2],
    ]),
  });
  const d = new Categorical({
    logits: tensor([
      [0.3, -1, 2],
      [0, 1, -2],
    ]),
  });
  assert.deepEqual([c.batchShape, c.eventShape], [[2], []]);
  await near(c.probs, [0.1, 0.2, 0.7, 0, 0.5, 0.5], 'probs');
  await near(d.logits, [-1.909021, -3.209021, -0.209021, -1.349012, -0.349012, -3.349012], 'logits');
  await near(c.logProb(ids([2, 1])), [-0.356675, -Math.LN2], 'logProb');
  await near(d.logProb(tensor([2n, 1n])), [-0.209021, -0.349012], 'logProb of i64');
  await near(d.logProb(ids([[0], [2]])), [-1.909021, -1.349012, -0.209021, -3.349012], 'values broadcast');
  await near(d.logProb(1), [-3.209021, -0.349012], 'a number');
  await near(c.entropy(), [0.801819, Math.LN2], 'entropy');
  await near(d.entropy(), [0.582192, 0.713866], 'entropy');
  await near(klDivergence(c, d), [0.177202, 1.155865], 'klDivergence');
  await near(klDivergence(d, c), [0.113523, INF], 'klDivergence from what is impossible');
  assert.deepEqual(await values(d.mode), [2, 1]);
  await near(new Categorical({ probs: tensor([0, 1]).to('f16') }).entropy(), [2 ** -23 * 23 * Math.LN2], 'f16 is computed as f32');
  const masked = new Categorical({ logits: tensor([1, -INF, 2]) });
  await near(masked.entropy(), [0.582203], 'a class that is impossible');
  await near(masked.logProb(1), [-INF], 'a class that is impossible');
});

test('Bernoulli: certain ones too', async () => {
  const b = new Bernoulli({ probs: tensor([0.2, 1, 0.5]) });
  const e = new Bernoulli({ logits: tensor([-1, 3, 0]) });
  const bits = tensor([1, 1, 0]);
  await near(b.logProb(bits), [-1.609438, 0, -Math.LN2]);
  await near(b.entropy(), [0.500402, 0, Math.LN2]);
  await near(e.logProb(bits), [-1.313262, -0.048587, -Math.LN2]);
  await near(e.entropy(), [0.582203, 0.190865, Math.LN2]);
  await near(e.variance, [0.196612, 0.045177, 0.25]);
  await near(klDivergence(b, e), [0.012859, 0.048587, 0]);
  await near(klDivergence(e, b), [0.013772, INF, 0]);
});

test('what is nearly certain keeps its digits, and infinite log odds and masked classes have gradients', async () => {
  const exact = async (/** @type {Tensor} */ x, /** @type {number[]} */ expected) => {
    const got = await values(x);
    for (const [i, v] of expected.entries()) assert.ok(Math.abs(got[i] - v) <= 2e-5 * Math.abs(v), `${got} instead of ${expected}`);
  };
  const b = new Bernoulli({ logits: tensor([10, 20, -20, -10]) });
  const [p10, p20] = [Math.log1p(Math.exp(-10)), Math.log1p(Math.exp(-20))];
  await exact(b.logProb(tensor([1, 1, 0, 0])), [-p10, -p20, -p20, -p10]);
  await exact(b.logProb(tensor([true, true, false, false])), [-p10, -p20, -p20, -p10]);
  const entropyOf = (/** @type {number} */ l) => Math.log1p(Math.exp(-l)) + l / (1 + Math.exp(l));
  await exact(b.entropy(), [10, 20, 20, 10].map(entropyOf));
  const logits = tensor([INF, -INF, 0]).requiresGrad_();
  const certain = new Bernoulli({ logits });
  await near(certain.logProb(tensor([1, 0, 1])), [0, 0, -Math.LN2]);
  await near(certain.entropy(), [0, 0, Math.LN2]);
  await near(grad(certain.entropy().sum(), [logits])[0], [0, 0, 0]);
  await near(grad(klDivergence(certain, new Bernoulli({ logits: tensor([1, 1, 1]) })).sum(), [logits])[0], [0, 0, -0.25]);
  const masked = tensor([0, 1, -INF]).requiresGrad_();
  const kl = klDivergence(new Categorical({ logits: masked }), new Categorical({ logits: tensor([0, 0, -INF]) }));
  await near(kl, [0.110944]);
  await near(grad(kl, [masked])[0], [-0.196612, 0.196612, 0]);
  await near(new Uniform(0, 1).logProb(tensor([NaN, 0.5, 1, -1])), [-INF, 0, -INF, -INF]);
  assert.deepEqual(new Categorical({ logits: zeros([2, 3]) }).sample([0, 4]).shape, [0, 4, 2]);
});

test('Normal, Uniform, Independent', async () => {
  const n = new Normal(tensor([0, 1]), tensor([1, 2]));
  const o = new Normal(0.5, tensor([0.7, 3]));
  await near(n.logProb(tensor([0.3, -2])), [-0.963939, -2.737086]);
  await near(n.logProb(0.5), [-1.043939, -1.643336]);
  await near(n.entropy(), [1.418939, 2.112086]);
  await near(klDivergence(n, o), [0.418835, 0.141576]);
  const u = new Uniform(tensor([0, 1]), tensor([2, 4]));
  await near(u.entropy(), [Math.LN2, 1.098612]);
  await near(u.logProb(tensor([0, 4])), [-Math.LN2, -INF]);
  await near(klDivergence(new Uniform(tensor([0.5, 1]), tensor([2, 5])), u), [0.287682, INF]);
  const i = new Independent(n, 1);
  assert.deepEqual([i.batchShape, i.eventShape], [[], [2]]);
  const points = tensor([
    [0.3, -2],
    [1, 1],
  ]);
  await near(i.logProb(points), [-3.701024, -3.031024]);
  await near(i.entropy(), [3.531025]);
  await near(klDivergence(i, new Independent(o, 1)), [0.560411]);
});

test('samples: shapes, means, no gradient; a class of probability 0 is never drawn', async () => {
  manualSeed(5);
  const p = tensor([
    [0.1, 0, 0.9],
    [0.5, 0.5, 0],
  ]).requiresGrad_();
  const c = new Categorical({ probs: p });
  const drawn = c.sample([4000]);
  assert.deepEqual([drawn.shape, drawn.dtype, drawn.requiresGrad], [[4000, 2], 'i32', false]);
  const share = async (/** @type {number} */ row, /** @type {number} */ k) => drawn.select(1, row).eq(k).to('f32').mean().item();
  // Four standard deviations of a share of 4000 are 0.032 at most.
  for (const [row, expected] of [
    [0.1, 0, 0.9],
    [0.5, 0.5, 0],
  ].entries())
    for (const [k, q] of expected.entries()) {
      const found = await share(row, k);
      assert.ok(q === 0 ? found === 0 : Math.abs(found - q) < 0.032, `${row} ${k}: ${found}`);
    }
  assert.deepEqual(c.sample().shape, [2]);
  assert.deepEqual(new Normal(zeros([2, 1]), tensor([1, 2, 3])).sample([5]).shape, [5, 2, 3]);
  assert.deepEqual(new Independent(new Normal(zeros([2]), 1), 1).sample([3]).shape, [3, 2]);
  const bits = new Bernoulli({ logits: tensor([-1, 3]) }).sample([4000]).mean(0);
  const wide = new Uniform(tensor([1, -2]), 4).sample([4000]);
  for (const [mean, expected, most] of /** @type {const} */ ([
    [bits, [0.2689, 0.9526], 0.03],
    [wide.mean(0), [2.5, 1], 0.12],
    [new Normal(tensor([1, 2]), tensor([0.5, 2])).sample([4000]).std(0), [0.5, 2], 0.1],
  ]))
    (await values(mean)).forEach((v, k) => assert.ok(Math.abs(v - expected[k]) < most, `${v} instead of ${expected[k]}`));
});

test('gradients: of logProb, as REINFORCE takes them, and through rsample', async () => {
  const logits = tensor([0, Math.log(3)]).requiresGrad_();
  const [d] = grad(new Categorical({ logits }).logProb(1), [logits]);
  await near(d, [-0.25, 0.25]);
  const probs = tensor([1, 3]).requiresGrad_();
  await near(grad(new Categorical({ probs }).logProb(0), [probs])[0], [0.75, -0.25]);
  const [loc, scale] = [tensor([1, 2]).requiresGrad_(), tensor([2, 3]).requiresGrad_()];
  const n = new Normal(loc, scale);
  const x = n.rsample([3]);
  const [dloc, dscale] = grad(x.sum(), [loc, scale]);
  await near(dloc, [3, 3]);
  await near(dscale, await values(x.detach().sub(loc.detach()).div(scale.detach()).sum(0)));
  assert.equal(n.sample().requiresGrad, false);
  const [low] = grad(new Independent(n, 1).entropy(), [scale]);
  await near(low, [0.5, 1 / 3]);
});

test('compiled: new samples in each call, and the same numbers', async () => {
  const f = compile((/** @type {Tensor} */ logits) => {
    const c = new Categorical({ logits });
    const action = c.sample();
    return [action, c.logProb(action), c.entropy(), new Normal(0, 1).rsample([4])];
  });
  const logits = tensor([0.5, 1, 0.2, -1]);
  const seen = new Set();
  for (let i = 0; i < 12; i++) {
    const [action, logProb, entropy, normal] = f(logits);
    const k = await action.item();
    seen.add(String(await values(normal)));
    const own = new Categorical({ logits });
    await near(logProb, [await own.logProb(k).item()]);
    await near(entropy, [await own.entropy().item()]);
  }
  assert.equal(seen.size, 12);
});

test('wrong arguments', () => {
  const n = new Normal(0, 1);
  for (const [call, pattern] of /** @type {[() => any, RegExp][]} */ ([
    [() => new Categorical(/** @type {any} */ ({})), /^Categorical: expected either probs or logits, got neither/],
    [() => new Bernoulli({ probs: zeros([1]), logits: zeros([1]) }), /^Bernoulli: expected either probs or logits, got both/],
    [() => new Categorical(/** @type {any} */ (zeros([3]))), /^Categorical: options must be an object, \{ probs: …, logits: … \}/],
    [() => new Categorical({ probs: ids([1, 2]) }), /^Categorical: probs must be f32, f16 or bf16, got i32/],
    [() => new Categorical({ logits: tensor(1) }), /^Categorical: expected \[\.\.\., classes\], got \[\]/],
    [() => new Normal(zeros([2]), zeros([3])), /^Normal: \[2\] and \[3\] do not broadcast/],
    [() => new Normal(0, /** @type {any} */ ('1')), /^Normal: expected a tensor, got 1/],
    [() => n.sample(/** @type {any} */ (3)), /^Normal\.sample: the shape must be an array of sizes, got 3/],
    [() => new Categorical({ probs: zeros([3]) }).rsample(), /^Categorical\.rsample: what is drawn is not a smooth function/],
    [() => new Categorical({ probs: zeros([3]) }).logProb(tensor([1])), /^Categorical\.logProb: the index must be i32 or u32, got f32/],
    [() => new Categorical({ probs: zeros([2, 3]) }).logProb(ids([0, 1, 2])), /^Categorical\.logProb: \[3\] and \[2\] do not broadcast/],
    [() => new Categorical({ probs: zeros([2, 3]) }).logProb(3), /^Categorical\.logProb: the class must be an integer from 0 to 2, got 3/],
    [
      () => new Categorical({ probs: zeros([2, 3]) }).logProb(0.5),
      /^Categorical\.logProb: the class must be an integer from 0 to 2, got 0\.5/,
    ],
    [() => new Independent(n, 1), /^Independent: count must be an integer from 0 to 0, got 1/],
    [() => new Independent(/** @type {any} */ (1), 1), /^Independent: expected a distribution, got 1/],
    [() => klDivergence(n, new Uniform(0, 1)), /^klDivergence: knows no formula for Normal and Uniform/],
    [() => new Distribution([]).logProb(1), /^Distribution\.logProb: this distribution has none/],
  ]))
    assert.throws(call, (/** @type {Error} */ { message }) => {
      assert.match(message, pattern);
      return true;
    });
});

test('what was looked at or drawn before, without gradients, does not cut them off', async () => {
  const logits = tensor([-1, 0.5, 2], { requiresGrad: true });
  for (const Kind of [Bernoulli, Categorical]) {
    const expected = await values(grad(new Kind({ logits }).entropy().sum(), [logits])[0]);
    assert.ok(expected.every((slope) => slope !== 0));
    const used = new Kind({ logits });
    used.sample();
    noGrad(() => used.probs);
    assert.deepEqual(await values(grad(used.entropy().sum(), [logits])[0]), expected, Kind.name);
  }
});
