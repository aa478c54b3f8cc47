// The 16-bit copy of parameters that AdamW keeps for products: it always equals a conversion of the parameters, whatever changes them.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { autocast, compile, manualSeed, memory, nn, noGrad, optim, randn, scope, tensor } from '../../nn/index.mjs';
import { PASSES } from '../../nn/compile/passes/index.mjs';
import { runtime } from '../../nn/core/runtime.mjs';
import { Random } from '../lib/random.mjs';
import { seed } from '../lib/random-data.mjs';
import { initDevice, values } from './setup.mjs';

/** The 16-bit type that products take here, where they take one. @type {'f16' | 'bf16'} */
let dtype;
let products = false;
before(() => {
  initDevice();
  const { kernels } = runtime();
  products = kernels.matmulSupports('bf16') || kernels.matmulSupports('f16');
  dtype = kernels.matmulSupports('bf16') ? 'bf16' : 'f16';
});

/** Two layers of sizes that products in 16 bits take. */
function network() {
  manualSeed(7);
  return new nn.Sequential(new nn.Linear(16, 24), new nn.Tanh(), new nn.Linear(24, 8, { bias: false }));
}
/** @param {any} model @param {any} x */
const lossOf = (model, x) => autocast(dtype, () => model.forward(x).square().mean());

/** What the copies of an optimizer's buckets hold, beside the parameters in 16 bits. @param {any} opt */
async function copies(opt) {
  const buckets = opt.groups.flatMap((/** @type {any} */ group) => group.buckets).filter((/** @type {any} */ { half }) => half?.fresh);
  /** @type {[number[], number[]][]} */
  const pairs = [];
  for (const { half: copy, values: flat } of buckets) {
    const device = runtime();
    const converted = flat.to(copy.dtype);
    device.flush();
    const bytes = 2 * flat.size;
    const words = await Promise.all([copy.storage, converted.storage].map((s) => device.vk.readAsync(s.allocation.handle, 0, bytes)));
    pairs.push(/** @type {any} */ (words.map((w) => [...new Uint16Array(w.buffer, w.byteOffset, bytes / 2)])));
  }
  return pairs;
}

/** Fusing drops roundings to 16 bits where products are of f32. */
const passes = PASSES.filter((name) => name !== 'fuse');

for (const how of ['eager', 'compiled']) {
  test(`${how}: steps of AdamW write it, every other change has it made anew; the bits of converting each parameter`, async () => {
    /** @type {number[][]} */
    const results = [];
    for (const kept of [true, false]) {
      const random = new Random(seed);
      const model = network();
      const opt = new optim.AdamW(model.parameters(), { lr: 0.05, clip: 1 });
      if (!kept) for (const { buckets } of opt.groups) for (const bucket of buckets) bucket.keepsHalf = false;
      const step = (/** @type {any} */ x) => {
        const loss = lossOf(model, x);
        loss.backward();
        opt.step();
        return loss;
      };
      const f = how === 'compiled' ? compile(step, { passes }) : step;
      const evaluate =
        how === 'compiled' ? compile((/** @type {any} */ x) => lossOf(model, x), { passes }) : (/** @type {any} */ x) => lossOf(model, x);
      const losses = [];
      for (let i = 0; i < 24; i++) {
        const x = randn([6, 16]);
        const action = random.below(6);
        if (action === 0) noGrad(() => void model.at(0).weight.mul_(0.9));
        if (action === 1)
          model.loadStateDict(Object.fromEntries(Object.entries(model.stateDict()).map(([name, t]) => [name, t.mul(1.01).detach()])));
        if (action === 2) losses.push(await scope(() => noGrad(() => evaluate(x))).item());
        if (action === 3) {
          // A trace that throws has changed nothing.
          const more = random.chance(0.5);
          const broken = compile(() => {
            step(x);
            if (more) noGrad(() => void model.at(0).weight.mul_(0.9));
            throw new Error('of the program');
          });
          assert.throws(broken, /^Error: of the program$/);
          for (const [copy, converted] of await copies(opt)) assert.deepEqual(copy, converted, `step ${i}, seed ${seed}`);
        }
        losses.push(await scope(() => f(x)).item());
        const pairs = await copies(opt);
        assert.equal(pairs.length, kept ? 1 : 0, 'up to date after each step');
        for (const [copy, converted] of pairs) assert.deepEqual(copy, converted, `step ${i}, seed ${seed}`);
      }
      results.push([...losses, ...(await values(model.at(2).weight))]);
      opt.dispose();
    }
    assert.deepEqual(results[0], results[1]);
  });
}

test('a compiled step has no conversions of parameters, and no memory for them', () => {
  /** @type {any[]} */
  const explained = [];
  for (const optimizer of [optim.AdamW, optim.SGD]) {
    const model = new nn.Sequential(new nn.Linear(64, 512, { bias: false }), new nn.Linear(512, 64, { bias: false }));
    const opt = new optimizer(model.parameters());
    const step = (/** @type {any} */ x) => {
      lossOf(model, x).backward();
      opt.step();
    };
    // Gradients have memory of their own, so that what is planned is the copies.
    const f = compile(step, { passes: PASSES.filter((pass) => pass !== 'gradients') });
    f(randn([2, 64]));
    explained.push(f.explain()[0]);
    f.dispose();
    opt.dispose();
  }
  const [adam, sgd] = explained;
  if (!products) return;
  // Other results may lie where SGD's copies are not yet, or no longer.
  const copies = 2 * 2 * 64 * 512;
  assert.ok(adam.planned < copies / 4 && sgd.planned >= copies, JSON.stringify(explained));
  assert.equal(sgd.dispatches - adam.dispatches, 2);
});

test('parameters that the compiled function changes itself are converted there', async () => {
  /** @type {number[][]} */
  const results = [];
  for (const compiled of [false, true]) {
    const model = network();
    const opt = new optim.AdamW(model.parameters(), { lr: 0.05 });
    const step = (/** @type {any} */ x) => {
      const before = lossOf(model, x);
      noGrad(() => void model.at(0).weight.mul_(0.9));
      const after = lossOf(model, x);
      after.backward();
      opt.step();
      return [before.detach(), after.detach(), noGrad(() => lossOf(model, x))];
    };
    // Matching drops roundings to 16 bits.
    const f = compiled ? compile(step, { passes: [] }) : step;
    const all = [];
    for (let i = 0; i < 4; i++) {
      const x = tensor(
        Float32Array.from({ length: 96 }, (_, k) => Math.sin(k + i)),
        { shape: [6, 16] },
      );
      for (const loss of scope(() => f(x))) all.push(await loss.item());
    }
    results.push([...all, ...(await values(model.at(0).weight))]);
    opt.dispose();
  }
  assert.deepEqual(results[1], results[0]);
});

test('frozen parameters, parameters without a gradient, another type, the same parameter twice', async () => {
  /** @type {number[][]} */
  const results = [];
  for (const kept of [true, false]) {
    const model = network();
    const unused = new nn.Parameter(randn([4, 16]));
    const opt = new optim.AdamW([model.at(0).weight, unused, ...model.parameters().slice(1)], { lr: 0.05 });
    if (!kept) for (const bucket of opt.groups[0].buckets) bucket.keepsHalf = false;
    model.at(2).requiresGrad_(false);
    const x = tensor(
      Float32Array.from({ length: 96 }, (_, k) => Math.cos(k)),
      { shape: [6, 16] },
    );
    for (let i = 0; i < 5; i++) {
      if (i === 3) model.at(2).requiresGrad_();
      scope(() => {
        const loss = lossOf(model, x).add(lossOf(model, x.mul(2)));
        loss.backward();
        opt.step();
      });
      for (const [copy, converted] of await copies(opt)) assert.deepEqual(copy, converted);
    }
    const inF16 = scope(() => noGrad(() => autocast(dtype === 'f16' ? 'bf16' : 'f16', () => model.forward(x))));
    results.push([...(await values(inF16.to('f32'))), ...(await values(unused)), ...(await values(model.at(0).weight))]);
    opt.dispose();
  }
  results[1].forEach((value, i) =>
    assert.ok(Math.abs(value - results[0][i]) < 1e-5 * (1 + Math.abs(value)), `${i}: ${results[0][i]}, ${value}`),
  );
});

test('what a product saved for its gradient must not change before backward: the error says so', () => {
  const model = network();
  const opt = new optim.AdamW(model.parameters());
  const x = randn([6, 16], { requiresGrad: true });
  // Without products in 16 bits, what is saved is a conversion of the copy.
  if (!products) return opt.dispose();
  const [first, second] = [lossOf(model, x), lossOf(model, x)];
  first.backward();
  opt.step();
  assert.throws(() => second.backward(), /needs for its gradient was changed in place/);
  opt.dispose();
});

test('its memory goes with the optimizer, or with the last graph that reads it', () => {
  const device = runtime();
  device.flush();
  const before = memory();
  const model = network();
  const opt = new optim.AdamW(model.parameters());
  const f = compile((/** @type {any} */ x) => lossOf(model, x));
  const x = randn([6, 16]);
  scope(() => void noGrad(() => f(x)));
  opt.dispose();
  scope(() => void noGrad(() => f(x)));
  noGrad(() => void model.at(0).weight.mul_(2));
  scope(() => void noGrad(() => f(x)));
  f.dispose();
  model.dispose();
  x.dispose();
  device.flush();
  assert.deepEqual(memory(), before);
});
