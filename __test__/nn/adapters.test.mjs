// `F.adapt` in compiled functions: what passes put together of a layer, its adapters and a residual computes what the calls compute one by one, in f32
// and, with a stand-in for matrix units, in 16 bits.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, autocast, compile, grad, nn, noGrad, optim, randn, tensor } from '../../nn/index.mjs';
import { manualSeed } from '../../nn/index.mjs';
import { PASSES } from '../../nn/compile/passes/index.mjs';
import { runtime } from '../../nn/core/runtime.mjs';
import { initDevice } from './setup.mjs';

before(initDevice);

/** Runs `body` where products of bf16 are those of f32, rounded. @param {() => Promise<void>} body */
async function withHalves(body) {
  const { kernels } = runtime();
  const { context, matmul, matmulSupports, matmulGroupSaving, takesSecond } = kernels;
  const wide = (/** @type {string} */ name, /** @type {any} */ { buffer, offset = 0 }, /** @type {number} */ count) => {
    const even = count + (count % 2);
    const y = context.workspace(`${name} as f32`, 4 * even);
    return { y, into: () => kernels.cast({ x: { buffer, offset }, y, count: even, from: 'bf16', to: 'f32' }), buffer, offset, even };
  };
  /** @param {any} args @returns {any[]} */
  const product = (args) => {
    const { m, n, k, transA, transB, aType = 'f32', cType = 'f32', beta = 0 } = args;
    if (aType === 'f32') return matmul(args);
    if (args.k2) {
      const { a2, b2, k2, residual, ...first } = args;
      const second = { ...first, a: a2, b: b2, k: k2, lda: undefined, ldb: undefined, bias: undefined, beta: 1, residual };
      return [...product(first), ...product(second)];
    }
    const { lda = transA ? m : k, ldb = transB ? k : n, ldc = n } = args;
    const extent = (/** @type {number} */ rows, /** @type {number} */ columns, /** @type {number} */ ld) => (rows - 1) * ld + columns;
    const a = wide('a', args.a, transA ? extent(k, m, lda) : extent(m, k, lda));
    const b = wide('b', args.b, transB ? extent(n, k, ldb) : extent(k, n, ldb));
    const c = cType === 'f32' ? undefined : wide('c', args.c, extent(m, n, ldc));
    // Columns beside those of the product are read and written as they are.
    const own = { a: a.y, b: b.y, c: c?.y ?? args.c, aType: 'f32', bType: 'f32', cType: 'f32', precision: 'f32' };
    const back = c ? [kernels.cast({ x: c.y, y: args.c, count: c.even, from: 'f32', to: 'bf16' })] : [];
    return [a.into(), b.into(), ...(c && (beta !== 0 || ldc !== n) ? [c.into()] : []), ...matmul({ ...args, ...own }), ...back].flat();
  };
  Object.assign(kernels, { matmul: product, matmulSupports: () => true, matmulGroupSaving: () => undefined, takesSecond: () => false });
  try {
    await body();
  } finally {
    Object.assign(kernels, { matmul, matmulSupports, matmulGroupSaving, takesSecond });
  }
}

/**
 * Two layers with adapters, a residual around them, and what the gradients of everything that trains are.
 * @param {'bf16' | false} half @param {readonly import('../../nn/compile/passes/index.mjs').PassName[]} passes
 * @param {number} row where the second adapter of the first layer begins; with 16 each column has one, with 14 some have two and some none
 * @param {number} [scale] of the second adapter
 */
async function gradients(half, passes, row, scale = 2) {
  manualSeed(3);
  const [up, down] = [new nn.Linear(16, 24, { bias: row === 16 }), new nn.Linear(24, 16, { bias: false })];
  for (const layer of [up, down]) layer.requiresGrad_(false);
  const matrices = [
    [4, 16],
    [6, 16],
    [16, 4],
    [8, 6],
    [2, 24],
    [16, 2],
  ].map((shape) => F.mul(randn(shape), 0.3).requiresGrad_());
  const [a1, a2, b1, b2, a3, b3] = matrices;
  const x = randn([2, 6, 16]).requiresGrad_();
  const weights = half ? [up.weight, down.weight].map((w) => noGrad(() => F.to(w, half))) : [up.weight, down.weight];
  const step = compile(
    (/** @type {any} */ argument) => {
      // What depends on no argument would be computed once.
      const given = F.add(x, argument);
      const loss = autocast(half, () => {
        const adapters = [
          { a: a1, b: b1, scale: 0.5 },
          { a: a2, b: b2, scale, row },
        ];
        const h = F.gelu(F.adapt((own) => F.linear(own, weights[0], up.bias), given, adapters));
        const y = F.adapt(F.linear(h, weights[1]), h, [{ a: a3, b: b3 }]);
        return F.mean(F.square(F.add(given, F.to(y, 'f32'))));
      });
      return [loss.detach(), ...grad(loss, [x, ...matrices])];
    },
    { passes },
  );
  const results = await Promise.all(step(F.zeros([2, 6, 16])).map((/** @type {any} */ each) => each.toArray()));
  const [{ found, dispatches }] = step.explain();
  step.dispose();
  return { results, found, dispatches };
}

/** Runs `body` as where a kernel takes a second pair of operands; here two products compute it. @param {() => Promise<void>} body */
async function withSecond(body) {
  const { kernels } = runtime();
  const { takesSecond } = kernels;
  Object.assign(kernels, { takesSecond: () => true });
  try {
    await body();
  } finally {
    Object.assign(kernels, { takesSecond });
  }
}

/** @param {any} one @param {any} other @param {number} most relative to the largest element */
function close(one, other, most) {
  for (const [i, values] of one.results.entries()) {
    const largest = Math.max(...other.results[i].map(Math.abs));
    const apart = Math.max(...values.map((/** @type {number} */ v, /** @type {number} */ k) => Math.abs(v - other.results[i][k])));
    assert.ok(apart <= most * largest, `${i}: ${apart} of ${largest}`);
  }
}

for (const row of [16, 14]) {
  test(`adapters at ${row}: f32, with all passes and without those that put calls together`, async () => {
    const [all, some] = [await gradients(false, PASSES, row), await gradients(false, ['schedule'], row)];
    close(all, some, 2e-6);
    assert.equal(all.found["adapters into a layer's result"], 2);
    assert.ok(all.found['product and sum'] >= 1, JSON.stringify(all.found));
    assert.ok(all.dispatches < some.dispatches);
  });

  test(`adapters at ${row}: 16 bits, with all passes and without those that put calls together`, async () => {
    await withHalves(async () => {
      const [all, some] = [await gradients('bf16', PASSES, row), await gradients('bf16', ['schedule'], row)];
      close(all, some, 2e-2);
      assert.equal(all.found["adapters into a layer's result"], 2);
      assert.equal(all.found['product added to a product'], 2);
      assert.ok(all.found['product and sum'] >= 1, JSON.stringify(all.found));
      close(all, await gradients(false, PASSES, row), 5e-2);
    });
  });
}

for (const half of /** @type {const} */ ([false, 'bf16'])) {
  test(`adapters in the product of their layer: ${half || 'f32'}`, async () => {
    for (const [row, scale] of [
      [16, 2],
      [14, 0.5],
    ]) {
      await (half ? withHalves : (/** @type {() => Promise<void>} */ body) => body())(() =>
        withSecond(async () => {
          const [all, some] = [await gradients(half, PASSES, row, scale), await gradients(half, ['schedule'], row, scale)];
          close(all, some, half ? 2e-2 : 2e-6);
          // In 16 bits the second layer's product stands before its adapters' matrices are converted.
          assert.equal(all.found["adapters in a layer's product"], half ? 1 : 2);
          assert.equal(all.found["adapters into a layer's result"], half ? 1 : undefined);
          assert.equal(all.found["adapters' gradients in one product"], scale === 0.5 ? 1 : undefined);
          // Of the two adapters of a layer the matrices do not lie one after another.
          assert.equal(all.found["product and its adapters'"], half ? 1 : undefined);
          assert.ok(all.found['product and sum'] >= 1, JSON.stringify(all.found));
        }),
      );
    }
  });
}

test('adapters whose matrices lie one after another give what they give apart', async () => {
  manualSeed(4);
  const whole = randn([5, 8]);
  const [y, x, b1, b2] = [randn([3, 7]), randn([3, 8]), randn([3, 2]), randn([4, 3])];
  const parts = [F.slice(whole, 0, 0, 2), F.slice(whole, 0, 2, 5)];
  const of = (/** @type {any[]} */ [a1, a2]) =>
    F.adapt(y, x, [
      { a: a1, b: b1, scale: 3 },
      { a: a2, b: b2, scale: 3, row: 3 },
    ]).toArray();
  const [joined, apart] = [await of(parts), await of(parts.map((part) => part.clone()))];
  for (const [i, value] of joined.entries()) assert.ok(Math.abs(value - apart[i]) < 1e-5);
});

test('what does not fit is an error that says how', () => {
  const [y, x] = [tensor(new Float32Array(24), { shape: [3, 8] }), tensor(new Float32Array(12), { shape: [3, 4] })];
  const matrix = (/** @type {number[]} */ ...shape) => tensor(new Float32Array(shape[0] * shape[1]), { shape });
  const [a, b] = [matrix(2, 4), matrix(4, 2)];
  assert.throws(() => F.adapt(y, x, []), /adapt: adapters must be an array of at least one/);
  assert.throws(() => F.adapt(y, x, [{ a, b, row: 5 }]), /row must be an integer from 0 with which 4 outputs lie in 8, got 5/);
  assert.throws(() => F.adapt(y, x, [{ a: b, b }]), /inputs of 4 need a \[rank, 4\] and b \[outputs, rank\], got \[4, 2\] and \[4, 2\]/);
  assert.throws(() => F.adapt(matrix(2, 8), x, [{ a, b }]), /a result \[2, 8\] has other rows than its layer's input \[3, 4\]/);
});

test('a residual is added to a result that is seen in another shape', async () => {
  manualSeed(5);
  const [x, w, a, b, res] = [[8, 16], [24, 16], [4, 16], [24, 4], [8 * 24]].map((shape) => randn(shape));
  for (const shape of [[4, 48], [8, 3, 8], [192]]) {
    const layer = () => F.add(F.reshape(F.adapt(F.linear(x, w), x, [{ a, b, scale: 0.5 }]), shape), F.reshape(res, shape));
    const [expected, actual] = await Promise.all([layer, compile(layer)].map((run) => noGrad(run).toArray()));
    for (const [i, value] of expected.entries()) assert.ok(Math.abs(actual[i] - value) < 1e-4, `${shape}: ${i}`);
  }
});

test('two optimizer steps of one function: the second one computes with what the first one has made', async () => {
  /** @type {number[]} */
  const losses = [];
  await withSecond(async () => {
    for (const run of [(/** @type {any} */ f) => f, compile]) {
      manualSeed(3);
      const [x, w] = [randn([8, 16]), randn([24, 16])];
      const [a1, b1, a2, b2] = [
        [4, 16],
        [12, 4],
        [4, 16],
        [12, 4],
      ].map((shape) => new nn.Parameter(F.mul(randn(shape), 0.3)));
      const sgd = new optim.SGD([a1, b1, a2, b2], { lr: 0.01 });
      const adapters = [
        { a: a1, b: b1, scale: 0.5 },
        { a: a2, b: b2, scale: 0.5, row: 12 },
      ];
      const step = (/** @type {any} */ more) => {
        const given = F.add(x, more);
        const loss = F.mean(F.square(F.adapt((/** @type {any} */ own) => F.linear(own, w), given, adapters)));
        sgd.zeroGrad();
        loss.backward();
        sgd.step();
        return loss.detach();
      };
      const two = run((/** @type {any} */ more) => (step(more), step(F.add(more, 1))));
      let loss;
      for (let i = 0; i < 5; i++) loss = two(F.zeros([8, 16]));
      losses.push(await loss.item());
    }
  });
  assert.ok(Math.abs(losses[1] - losses[0]) < 1e-4, `${losses}`);
});
