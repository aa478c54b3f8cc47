// The pass `recompute`: results that the backward pass computes again keep their bits, and the peak of memory falls.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { F, autocast, checkpoint, compile, grad, manualSeed, nn, noGrad, optim, randn } from '../../nn/index.mjs';
import { PASSES } from '../../nn/compile/passes/index.mjs';
import { limits } from '../../nn/compile/passes/recompute.mjs';
import { childJson } from '../lib/child.mjs';
import { initDevice, poison } from './setup.mjs';

/** @typedef {import('../../nn/api/tensor.mjs').Tensor} Tensor */

const WITHOUT = PASSES.filter((name) => name !== 'recompute');
const FOUND = 'results computed again';
const usual = { ...limits };

before(() => {
  initDevice();
  poison();
  // Models here are small.
  Object.assign(limits, { bytes: 1 << 10, share: 1 / 50, operations: 0 });
});
after(() => void Object.assign(limits, usual));

/** A layer as decoders have it. */
class Block extends nn.Module {
  /** @param {number} width @param {boolean} drops */
  constructor(width, drops) {
    super();
    this.norm = drops ? new nn.LayerNorm(width) : new nn.RMSNorm(width);
    this.up = new nn.Linear(width, 4 * width, { bias: false });
    this.down = new nn.Linear(2 * width, width, { bias: false });
    this.dropout = new nn.Dropout(drops ? 0.25 : 0);
  }
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    const rows = this.up.forward(this.norm.forward(x));
    return F.add(x, this.dropout.forward(this.down.forward(F.glu(rows, 'silu'))));
  }
}

/**
 * Trains three steps.
 * @param {readonly any[]} passes @param {{ precision?: 'bf16' | 'f16' | false, drops?: boolean, checkpoints?: boolean, layers?: number }} [how]
 */
async function train(passes, { precision = false, drops = false, checkpoints = false, layers = 6 } = {}) {
  manualSeed(5);
  const [rows, width] = [48, 32];
  const model = new nn.Sequential(...Array.from({ length: layers }, () => new Block(width, drops)));
  const optimizer = new optim.AdamW(model.parameters(), { lr: 1e-2 });
  const x = randn([rows, width]);
  const step = compile(
    (/** @type {Tensor} */ input) => {
      const run = () => {
        let y = input;
        for (const block of /** @type {Iterable<Block>} */ (/** @type {unknown} */ (model))) {
          const layer = (/** @type {Tensor} */ z) => block.forward(z);
          y = checkpoints ? checkpoint(layer, y) : layer(y);
        }
        return y.to('f32').square().mean();
      };
      const loss = autocast(precision, run);
      loss.backward();
      optimizer.step();
      optimizer.zeroGrad();
      return loss.detach();
    },
    { passes, tune: false },
  );
  const losses = [];
  for (let i = 0; i < 3; i++) losses.push(await step(x).item());
  const weights = await Promise.all(model.parameters().map((parameter) => parameter.toArray()));
  const [{ found, planned, dispatches }] = step.explain();
  for (const each of [step, optimizer, model]) each.dispose();
  return { bits: { losses, weights }, found: found[FOUND] ?? 0, planned, dispatches };
}

for (const [name, how] of /** @type {const} */ ([
  ['f32', {}],
  ['bf16', { precision: 'bf16' }],
  ['LayerNorm and dropout', { drops: true }],
  ['layers that are computed again anyway', { checkpoints: true }],
])) {
  test(`norms and gated units again, ${name}: the same bits in less memory`, async () => {
    const [all, without] = [await train(PASSES, how), await train(WITHOUT, how)];
    assert.deepEqual(all.bits, without.bits);
    assert.equal(without.found, 0);
    assert.ok(all.planned <= without.planned);
    if ('checkpoints' in how) return;
    assert.ok(all.found >= 8, `${all.found} results`);
    assert.ok(all.planned < 0.85 * without.planned, `${all.planned} bytes, ${without.planned} without the pass`);
  });
}

test('what is too small, or lowers the peak by too little, is kept', async () => {
  Object.assign(limits, usual);
  try {
    assert.equal((await train(PASSES)).found, 0);
    limits.bytes = 1 << 10;
    limits.share = 0.9;
    assert.equal((await train(PASSES)).found, 0);
  } finally {
    Object.assign(limits, { bytes: 1 << 10, share: 1 / 50, operations: 0 });
  }
});

/** What a function of one tensor finds, and its result with the pass and without. @param {(x: Tensor) => Tensor} fn */
async function both(fn) {
  const x = randn([64, 64]);
  const [all, without] = [PASSES, WITHOUT].map((passes) =>
    compile((/** @type {Tensor} */ y) => noGrad(() => fn(y)), { passes, tune: false }),
  );
  const values = [await all(x).toArray(), await without(x).toArray()];
  assert.deepEqual(values[0], values[1]);
  const [{ found, planned }] = all.explain();
  const [own, other] = [{ found: found[FOUND] ?? 0, planned }, without.explain()[0].planned];
  for (const each of [all, without]) each.dispose();
  return { ...own, without: other };
}

/** Products, which no pass computes again, with a peak of memory among them. @param {Tensor} x */
const peak = (x) => {
  const parts = Array.from({ length: 6 }, (_, i) =>
    x
      .matmul(x)
      .mul(i + 1)
      .matmul(x),
  );
  return parts.reduce((a, b) => a.add(b.matmul(parts[0])));
};

test('a result is computed again from what is there, through conversions too', async () => {
  const found = await both((x) => {
    const source = x.matmul(x);
    const half = source.exp().to('f16').contiguous();
    const used = half.to('f32').matmul(x);
    const other = peak(used);
    return half.to('f32').matmul(other).add(source);
  });
  assert.ok(found.found >= 1 && found.planned <= found.without, JSON.stringify(found));
});

test('what is computed again from two, one of the other, is so right before it is read', async () => {
  const weight = F.ones([64]);
  for (const swapped of [false, true]) {
    const found = await both((x) => {
      const source = x.matmul(x);
      const first = source.tanh();
      const [a, b] = [first.reshape(64, 1, 64), F.rmsNorm(first, weight).slice(0, 0, 3).reshape(1, 3, 64)];
      const y = (swapped ? b.mul(a) : a.mul(b)).reshape(192, 64);
      const other = peak(y.matmul(x).slice(0, 0, 64).contiguous());
      return y.matmul(other.matmul(source)).slice(0, 64, 128).add(source);
    });
    assert.ok(found.found === 1 && found.planned < found.without, JSON.stringify(found));
  }
});

test('it is kept where what it was computed from is gone, or has changed', async () => {
  const gone = await both((x) => {
    const y = F.rmsNorm(x.matmul(x), F.ones([64]));
    return y.matmul(peak(y.matmul(x)));
  });
  assert.equal(gone.found, 0);
  const changed = await both((x) => {
    const source = x.matmul(x);
    const y = F.rmsNorm(source, F.ones([64]));
    const used = y.matmul(x);
    source.add_(1);
    return y.matmul(peak(used)).add(source);
  });
  assert.equal(changed.found, 0);
});

test('a gated unit is computed again by its own gradient, not by that of another unit of the same rows', async () => {
  const [width, rows] = [32, 48];
  for (const second of [
    (/** @type {Tensor} */ gateUp) => F.glu(gateUp, 'gelu'),
    (/** @type {Tensor} */ gateUp) => F.glu(gateUp.slice(0, 0, 16), 'silu'),
  ]) {
    const weights = [2 * width, width, width, width].map((n) => randn([n, width]).mul(0.2).requiresGrad_());
    const [wide, down, other, last] = weights;
    const step = (/** @type {Tensor} */ x) => {
      const gateUp = F.linear(x.matmul(last), wide);
      const [y, z] = [F.glu(gateUp, 'silu'), second(gateUp)];
      const results = [F.linear(y, down), F.linear(z, other)].map((part) => peak(part.transpose(0, 1).matmul(part)).square().mean());
      return grad(results[0].add(results[1]), weights);
    };
    const x = randn([rows, width]);
    const [all, without] = [PASSES, WITHOUT].map((passes) => compile(step, { passes, tune: false }));
    const [own, others] = [await Promise.all(all(x).map((y) => y.toArray())), await Promise.all(without(x).map((y) => y.toArray()))];
    assert.deepEqual(own, others);
    assert.ok(all.explain()[0].found[FOUND] >= 1);
    for (const each of [all, without]) each.dispose();
  }
});

test('products that end in SwiGLU: their gradient computes its result again, on a stub of a device with matrix units', async () => {
  const found = await childJson(
    `
    const { init: open } = await import('${new URL('../../nn/index.mjs', import.meta.url)}');
    const { PASSES } = await import('${new URL('../../nn/compile/passes/index.mjs', import.meta.url)}');
    const { limits } = await import('${new URL('../../nn/compile/passes/recompute.mjs', import.meta.url)}');
    const { stubDevice } = await import('${new URL('../lib/stub.mjs', import.meta.url)}');
    const { explainLlama } = await import('${new URL('on-stub.mjs', import.meta.url)}');
    open({ vk: stubDevice() });
    // On the stub, units are computed again in a pass of their own, which moves more.
    limits.operations = 0;
    const found = [PASSES, PASSES.filter((name) => name !== 'recompute')].map((passes) => {
      const { found, planned } = explainLlama(4, 4, passes);
      return { again: found['${FOUND}'] ?? 0, planned };
    });
    process.stdout.write(JSON.stringify(found));
  `,
    { timeout: 120_000 },
  );
  const [all, without] = found;
  // Of each layer two norms and a gated unit: 2 + 2 + 8 of 2 + 2 + 8 + 16 + 4 + 4 + … KB a token.
  assert.ok(all.again >= 11 && without.again === 0, JSON.stringify(found));
  const saved = 4 * 4096 * (2 * 2048 + 8192);
  assert.ok(without.planned - all.planned > 0.7 * saved, JSON.stringify(found));
});

test("adapters: layers' products compute them and end in SwiGLU, whose gradient computes it again, on a stub that takes PTX", async () => {
  const found = await childJson(
    `
    const { limits } = await import('${new URL('../../nn/compile/passes/recompute.mjs', import.meta.url)}');
    const { PASSES } = await import('${new URL('../../nn/compile/passes/index.mjs', import.meta.url)}');
    const { explainLlama, openPtx } = await import('${new URL('on-stub.mjs', import.meta.url)}');
    openPtx();
    limits.operations = 0;
    const { found } = explainLlama(3, 1, PASSES, 16);
    process.stdout.write(JSON.stringify(found));
  `,
    { timeout: 120_000 },
  );
  assert.equal(found["adapters in a layer's product"], 4 * 3);
  assert.equal(found['product and gated unit'], 3);
  assert.equal(found["product and gated unit's gradient"], 3);
  assert.equal(found["adapters' gradients in one product"], 2 * 3);
  // Those of q, k and v have a depth of 48; and the first layer's input has no gradient.
  assert.equal(found["product and its adapters'"], 3 * 3);
  // Two units: of one of them the gradient of the next layer's A would be computed before the unit's gradient.
  assert.ok(found[FOUND] >= 2, JSON.stringify(found));
});

test('a gated unit is kept where the kernel that would compute it again fails its test, on a stub that takes PTX', async () => {
  const found = await childJson(
    `
    const { limits } = await import('${new URL('../../nn/compile/passes/recompute.mjs', import.meta.url)}');
    const { explainLlama, openPtx } = await import('${new URL('on-stub.mjs', import.meta.url)}');
    let tests = 0;
    openPtx(({ form }) => (form.again && ++tests ? 'made to fail' : undefined));
    limits.operations = 0;
    const { found } = explainLlama(2, 16);
    process.stdout.write(JSON.stringify({ tests, permuted: found['products by permuted weights'] ?? 0, again: found['${FOUND}'] ?? 0 }));
  `,
    { timeout: 120_000 },
  );
  assert.ok(found.tests > 0 && found.permuted > 0 && found.again > 0, JSON.stringify(found));
});
