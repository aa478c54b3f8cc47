// Random numbers against the distribution functions that they are to have (Kolmogorov and Smirnov), of fixed seeds.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, compile, full, manualSeed, tensor } from '../../nn/index.mjs';
import { assertClose } from '../lib/random-data.mjs';
import { initDevice, values } from './setup.mjs';

before(initDevice);

const COUNT = 20_000;
/** Of right numbers 1 of 1000 seeds gives a larger distance: 1.95 / √COUNT. */
const MOST = 0.0138;

/** Φ, the integral of the normal density by its series. @param {number} z */
function phi(z) {
  if (Math.abs(z) > 6) return Number(z > 0);
  let [term, sum] = [z, z];
  for (let n = 1; n < 300; n++) sum += (term *= -(z * z) / 2 / n) / (2 * n + 1);
  return 0.5 + sum / Math.sqrt(2 * Math.PI);
}
const maxwell = (/** @type {number} */ v) => 2 * phi(v) - 1 - Math.sqrt(2 / Math.PI) * v * Math.exp((-v * v) / 2);

/** Distributions: how they are drawn, and their functions. @type {Record<string, [draw: () => any, cdf: (v: number) => number]>} */
const CASES = {
  exponential: [() => F.exponential([COUNT], 2), (v) => 1 - Math.exp(-2 * v)],
  cauchy: [() => F.cauchy([COUNT], 1, 2), (v) => 0.5 + Math.atan((v - 1) / 2) / Math.PI],
  logNormal: [() => F.logNormal([COUNT], 0.5, 0.7), (v) => phi((Math.log(v) - 0.5) / 0.7)],
  gumbel: [() => F.gumbel([COUNT], 1, 2), (v) => Math.exp(-Math.exp(-(v - 1) / 2))],
  laplace: [() => F.laplace([COUNT], 1, 2), (v) => (v < 1 ? Math.exp((v - 1) / 2) / 2 : 1 - Math.exp((1 - v) / 2) / 2)],
  gamma: [() => F.gamma([COUNT], 3, 2), (v) => 1 - Math.exp(-2 * v) * (1 + 2 * v + 2 * v * v)],
  'gamma below 1': [() => F.gamma([COUNT], 0.5), (v) => 2 * phi(Math.sqrt(2 * v)) - 1],
  logistic: [() => F.logistic([COUNT], 1, 2), (v) => 1 / (1 + Math.exp(-(v - 1) / 2))],
  pareto: [() => F.pareto([COUNT], 3, 2), (v) => 1 - (2 / v) ** 3],
  rayleigh: [() => F.rayleigh([COUNT], 2), (v) => 1 - Math.exp(-(v * v) / 8)],
  triangular: [() => F.triangular([COUNT], -1, 0, 3), (v) => (v < 0 ? (v + 1) ** 2 / 4 : 1 - (3 - v) ** 2 / 12)],
  weibull: [() => F.weibull([COUNT], 2, 1.5), (v) => 1 - Math.exp(-((v / 2) ** 1.5))],
  maxwell: [() => F.maxwell([COUNT]), maxwell],
  doubleSidedMaxwell: [() => F.doubleSidedMaxwell([COUNT], 1, 2), (v) => (1 + Math.sign(v - 1) * maxwell(Math.abs(v - 1) / 2)) / 2],
  truncatedNormal: [() => F.truncatedNormal([COUNT], 1, 2, -1, 0.5), (v) => (phi((v - 1) / 2) - phi(-1)) / (phi(0.5) - phi(-1))],
  'normal of tensors': [() => F.normal(full([COUNT], 1), 2), (v) => phi((v - 1) / 2)],
  'normal of numbers': [() => F.normal(-1, 0.5, [COUNT]), (v) => phi((v + 1) / 0.5)],
  'lengths in balls': [() => F.norm(F.ball([COUNT], 3), 2, -1), (v) => v ** 3],
};

for (const [name, [draw, cdf]] of Object.entries(CASES)) {
  test(`${name}: its distribution function`, async () => {
    manualSeed(11);
    const sorted = Float64Array.from(await values(draw())).sort();
    assert.equal(sorted.length, COUNT);
    let most = 0;
    sorted.forEach((v, i) => {
      most = Math.max(most, Math.abs(cdf(v) - i / COUNT), Math.abs(cdf(v) - (i + 1) / COUNT));
    });
    assert.ok(most < MOST, `${most}`);
  });
}

test('bernoulli, rademacher, geometric, categorical: how often', async () => {
  manualSeed(12);
  const share = async (/** @type {any} */ y, /** @type {number} */ value) => (await values(y)).filter((v) => v === value).length / y.size;
  const near = (/** @type {number} */ got, /** @type {number} */ p) => assert.ok(Math.abs(got - p) < 0.015, `${got} instead of ${p}`);
  near(await share(F.bernoulli(full([COUNT], 0.3)), 1), 0.3);
  assert.deepEqual(await values(F.bernoulli(tensor([0, 1]))), [0, 1]);
  near(await share(F.rademacher([COUNT]), 1), 0.5);
  near(await share(F.rademacher([COUNT]), -1), 0.5);
  const trials = F.geometric([COUNT], 0.4);
  for (const k of [1, 2, 3, 4]) near(await share(trials, k), 0.6 ** (k - 1) * 0.4);
  const drawn = F.categorical(
    F.log(
      tensor([
        [0.1, 0.6, 0.3],
        [1, 0, 0],
      ]),
    ),
    COUNT,
  );
  assert.deepEqual([drawn.shape, drawn.dtype], [[2, COUNT], 'i32']);
  for (const [c, p] of [0.1, 0.6, 0.3].entries()) near(await share(drawn.at(0), c), p);
  assert.equal(await share(drawn.at(1), 0), 1);
});

test('multivariateNormal has its mean and covariances; balls have points all round', async () => {
  manualSeed(13);
  const cov = tensor([
    [2, 0.5],
    [0.5, 1],
  ]);
  const y = F.multivariateNormal(tensor([1, -1]), cov, [COUNT]);
  assertClose(await values(F.mean(y, 0)), Float64Array.of(1, -1), 0.03, 'mean');
  assertClose(await values(F.cov(y.T)), Float64Array.of(2, 0.5, 0.5, 1), 0.03, 'covariances');
  assertClose(await values(F.mean(F.ball([COUNT], 2), 0)), Float64Array.of(0, 0), 0.02, 'middle');
  assert.deepEqual(F.multivariateNormal(tensor([1, -1]), cov).shape, [2]);
});

test('the seed decides, and a compiled function draws anew', async () => {
  const run = () => F.gumbel([5]);
  manualSeed(3);
  const first = await values(run());
  manualSeed(3);
  assert.deepEqual(await values(run()), first);
  const compiled = compile(run);
  const [a, b] = [await values(compiled()), await values(compiled())];
  assert.notDeepEqual(a, b);
  assert.throws(() => F.triangular([2], 1, 0, 2), /left, mode and right must be in order, got 1, 0, 2/);
});
