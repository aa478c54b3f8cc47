// `F.linearCrossEntropy` against whole logits in float64: every reduction, block sizes that do not divide the rows, ignored targets, weights
// that are used twice, accumulation, `checkpoint`, `autocast` and `compile`.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, accumulate, autocast, checkpoint, compile, grad, memory, nn, noGrad, optim, scope, tensor } from '../../nn/index.mjs';
import { blockRows } from '../../nn/ops/linear-loss.mjs';
import { assertClose, integers, normal } from '../lib/random-data.mjs';
import { initDevice, poison } from './setup.mjs';

/** @typedef {import('../../nn/api/tensor.mjs').Tensor} Tensor */

before(() => {
  initDevice();
  poison();
});

const [ROWS, CLASSES, INNER] = [11, 9, 6];
const IGNORED = -100;
const REDUCTIONS = /** @type {const} */ (['mean', 'sum', 'none']);
/** Bytes of rows of f32 logits. @param {number} rows @param {number} [classes] */
const bytesOf = (rows, classes = CLASSES) => 4 * rows * Math.ceil(classes / 8) * 8;

/** Losses of rows and the gradients of Σ factor · loss, in float64. */
function reference(
  /** @type {ArrayLike<number>} */ x,
  /** @type {ArrayLike<number>} */ weight,
  /** @type {ArrayLike<number>} */ targets,
  /** @type {ArrayLike<number>} */ factors,
  [inner, classes] = [INNER, CLASSES],
) {
  const rows = targets.length;
  const [losses, dx, dWeight] = [rows, rows * inner, classes * inner].map((size) => new Float64Array(size));
  for (let r = 0; r < rows; r++) {
    const target = targets[r] >>> 0;
    if (target >= classes) continue;
    const logits = Array.from({ length: classes }, (_, c) => {
      let sum = 0;
      for (let i = 0; i < inner; i++) sum += x[r * inner + i] * weight[c * inner + i];
      return sum;
    });
    const largest = Math.max(...logits);
    const total = logits.reduce((sum, v) => sum + Math.exp(v - largest), 0);
    losses[r] = largest + Math.log(total) - logits[target];
    for (let c = 0; c < classes; c++) {
      const d = factors[r] * (Math.exp(logits[c] - largest) / total - (c === target ? 1 : 0));
      for (let i = 0; i < inner; i++) {
        dx[r * inner + i] += d * weight[c * inner + i];
        dWeight[c * inner + i] += d * x[r * inner + i];
      }
    }
  }
  return { losses, dx, dWeight };
}

/** Rounded to f32, as the device holds them. @param {number} size */
const values = (size) => Float64Array.from(normal(size), Math.fround);
/** @param {Tensor} x */
const gradientOf = async (x) => {
  assert.ok(x.grad);
  return x.grad.toArray();
};

for (const reduction of REDUCTIONS) {
  test(`${reduction}: losses and gradients are those of whole logits, whatever the size of blocks`, async () => {
    for (const block of [1, 2, 3, 4, 7, ROWS, 100]) {
      for (const classes of [8, 9]) {
        const [x, weight] = [values(ROWS * INNER), values(classes * INNER)];
        const targets = Int32Array.from(integers(ROWS, classes));
        [targets[0], targets[5]] = [IGNORED, classes + 3];
        const dy = reduction === 'none' ? values(ROWS) : values(1);
        const factors = Array.from({ length: ROWS }, (_, r) => (reduction === 'none' ? dy[r] : dy[0] / (reduction === 'mean' ? ROWS : 1)));
        const expected = reference(x, weight, targets, factors, [INNER, classes]);
        const [a, b] = [
          tensor(x, { shape: [ROWS, INNER], requiresGrad: true }),
          tensor(weight, { shape: [classes, INNER], requiresGrad: true }),
        ];
        const loss = F.linearCrossEntropy(a, b, tensor(targets), { reduction, logitsBytes: bytesOf(block, classes) });
        const total = expected.losses.reduce((sum, v) => sum + v, 0);
        const wanted = reduction === 'none' ? expected.losses : Float64Array.of(reduction === 'mean' ? total / ROWS : total);
        assert.deepEqual(loss.shape, reduction === 'none' ? [ROWS] : []);
        assertClose(await loss.toArray(), wanted, 2e-6, `losses, ${block} rows`);
        loss.backward({ gradient: reduction === 'none' ? tensor(dy) : F.reshape(tensor(dy), []) });
        assertClose(await gradientOf(a), expected.dx, 5e-6, `gradient of x, ${block} rows`);
        assertClose(await gradientOf(b), expected.dWeight, 5e-6, `gradient of the weight, ${block} rows`);
      }
    }
  });
}

test('the result is that of crossEntropy of linear for every option, with leading dimensions', async () => {
  const [x, weight] = [values(2 * 3 * INNER), values(CLASSES * INNER)];
  const targets = tensor(Uint32Array.of(1, 2, 3, 0, 2, 8), { shape: [2, 3] });
  for (const reduction of REDUCTIONS) {
    for (const ignoreIndex of [2, -1]) {
      const results = [true, false].map((blocks) => {
        const [a, b] = [
          tensor(x, { shape: [2, 3, INNER], requiresGrad: true }),
          tensor(weight, { shape: [CLASSES, INNER], requiresGrad: true }),
        ];
        const options = { reduction, ignoreIndex };
        const loss = blocks
          ? F.linearCrossEntropy(a, b, targets, { ...options, logitsBytes: bytesOf(2) })
          : F.crossEntropy(F.linear(a, b), targets, options);
        F.sum(F.square(loss)).backward();
        return [loss, a.grad, b.grad];
      });
      for (const [i, own] of results[0].entries()) {
        assert.deepEqual(own?.shape, results[1][i]?.shape);
        assertClose(
          /** @type {Float32Array} */ (await own?.toArray()),
          Float64Array.from(/** @type {Float32Array} */ (await results[1][i]?.toArray())),
          5e-6,
          `${reduction} ${i}`,
        );
      }
    }
  }
});

test('a gradient is computed only where it is asked for, and no loss needs one', async () => {
  const [x, weight, targets] = [values(ROWS * INNER), values(CLASSES * INNER), integers(ROWS, CLASSES)];
  const expected = reference(x, weight, targets, new Array(ROWS).fill(1));
  for (const [wantsX, wantsWeight] of [
    [true, false],
    [false, true],
    [false, false],
  ]) {
    for (const reduction of REDUCTIONS) {
      const [a, b] = [
        tensor(x, { shape: [ROWS, INNER], requiresGrad: wantsX }),
        tensor(weight, { shape: [CLASSES, INNER], requiresGrad: wantsWeight }),
      ];
      const loss = F.linearCrossEntropy(a, b, tensor(Uint32Array.from(targets)), { reduction, logitsBytes: bytesOf(4) });
      assert.equal(loss.requiresGrad, wantsX || wantsWeight);
      const total = reduction === 'none' ? F.sum(loss) : reduction === 'mean' ? F.mul(loss, ROWS) : loss;
      assertClose(await total.toArray(), Float64Array.of(expected.losses.reduce((sum, v) => sum + v, 0)), 5e-6, reduction);
      if (!total.requiresGrad) continue;
      total.backward();
      if (wantsX) assertClose(await gradientOf(a), expected.dx, 5e-6, 'x');
      else assert.equal(a.grad, undefined);
      if (wantsWeight) assertClose(await gradientOf(b), expected.dWeight, 5e-6, 'weight');
      else assert.equal(b.grad, undefined);
    }
  }
  const leaf = tensor(x, { shape: [ROWS, INNER], requiresGrad: true });
  const loss = noGrad(() => F.linearCrossEntropy(leaf, tensor(weight, { shape: [CLASSES, INNER] }), tensor(Uint32Array.from(targets))));
  assert.equal(loss.requiresGrad, false);
});

test('no more logits are in memory than logitsBytes', async () => {
  const [rows, classes, inner] = [64, 1024, 4];
  const [x, weight] = [
    tensor(values(rows * inner), { shape: [rows, inner] }),
    tensor(values(classes * inner), { shape: [classes, inner] }),
  ];
  const targets = tensor(Uint32Array.from(integers(rows, classes)));
  for (const [rowsAtOnce, wanted] of [
    [4, 4],
    [1, 2],
    [1000, 64],
  ]) {
    assert.equal(blockRows(rows, classes, 'f32', 4 * rowsAtOnce * classes), wanted);
  }
  assert.equal(blockRows(16_384, 50_304, 'bf16', 2 ** 28), 2560);
  const before = memory().bytes;
  const loss = compile(() => F.linearCrossEntropy(x, weight, targets, { logitsBytes: 4 * 4 * classes }))();
  assert.ok(Number.isFinite(await loss.item()));
  assert.ok(memory().bytes - before < 4 * rows * classes, `${memory().bytes - before} bytes`);
});

test('a tied weight gets the sum of both gradients, eagerly and compiled, accumulated and checkpointed', async () => {
  const ids = tensor(Uint32Array.from(integers(ROWS, CLASSES)));
  const targets = tensor(Uint32Array.from(integers(ROWS, CLASSES)));
  const start = values(CLASSES * INNER);
  /** @param {(x: Tensor, weight: Tensor) => Tensor} lossOf */
  const gradients = async (lossOf, compiled = false, steps = 1) => {
    const table = new nn.Embedding(CLASSES, INNER);
    noGrad(() => table.weight.copy_(tensor(start, { shape: [CLASSES, INNER] })));
    const optimizer = new optim.SGD(table.parameters(), { lr: 0.5 });
    const step = () =>
      scope(() => {
        const loss = accumulate(steps, () => lossOf(table.forward(ids), table.weight));
        optimizer.step();
        return loss;
      });
    const run = compiled ? compile(step) : step;
    const losses = [];
    for (let i = 0; i < 3; i++) losses.push(await run().item());
    return [...losses, ...(await table.weight.toArray())];
  };
  const whole = await gradients((x, weight) => F.crossEntropy(F.linear(x, weight), targets));
  const options = { logitsBytes: bytesOf(4) };
  const blocks = (/** @type {Tensor} */ x, /** @type {Tensor} */ weight) => F.linearCrossEntropy(x, weight, targets, options);
  const again = (/** @type {Tensor} */ x, /** @type {Tensor} */ weight) => checkpoint((input) => blocks(input, weight), x);
  for (const lossOf of [blocks, again]) {
    for (const compiled of [false, true]) {
      for (const steps of [1, 2]) {
        assertClose(await gradients(lossOf, compiled, steps), Float64Array.from(whole), 2e-6, `${lossOf === again} ${compiled} ${steps}`);
      }
    }
  }
});

test('under autocast the gradient of an f32 weight is f32, and a compiled step learns as with whole logits', async () => {
  const [rows, classes, inner] = [32, 24, 16];
  const targets = tensor(Uint32Array.from(integers(rows, classes)));
  const x = tensor(values(rows * inner), { shape: [rows, inner] });
  const start = values(classes * inner);
  for (const dtype of /** @type {const} */ (['bf16', 'f16'])) {
    /** @param {(weight: Tensor) => Tensor} lossOf @param {boolean} compiled */
    const train = async (lossOf, compiled) => {
      const head = new nn.Linear(inner, classes, { bias: false });
      noGrad(() => head.weight.copy_(tensor(start, { shape: [classes, inner] })));
      const optimizer = new optim.AdamW(head.parameters(), { lr: 0.05 });
      const step = () =>
        scope(() => {
          const loss = autocast(dtype, () => lossOf(head.weight));
          loss.backward();
          assert.equal(compiled || head.weight.grad?.dtype, compiled || 'f32');
          optimizer.step();
          return loss.detach();
        });
      const run = compiled ? compile(step) : step;
      const losses = [];
      for (let i = 0; i < 6; i++) losses.push(await run().item());
      return losses;
    };
    const whole = await train((weight) => F.crossEntropy(F.linear(x, weight), targets), false);
    for (const compiled of [false, true]) {
      for (const block of [5, rows]) {
        const own = await train((weight) => F.linearCrossEntropy(x, weight, targets, { logitsBytes: bytesOf(block, classes) }), compiled);
        assertClose(own, Float64Array.from(whole), 0.01, `${dtype} ${compiled} ${block}`);
      }
    }
  }
});

test('16-bit leaves have 16-bit gradients', async () => {
  const [x, weight] = [values(8 * 4), values(6 * 4)];
  const targets = integers(8, 6);
  for (const reduction of REDUCTIONS) {
    const [a, b] = [
      tensor(x, { shape: [8, 4], dtype: 'bf16', requiresGrad: true }),
      tensor(weight, { shape: [6, 4], dtype: 'bf16', requiresGrad: true }),
    ];
    const loss = F.linearCrossEntropy(a, b, tensor(Uint32Array.from(targets)), { reduction, logitsBytes: 100 });
    assert.equal(loss.dtype, 'f32');
    F.sum(loss).backward();
    assert.equal(a.grad?.dtype, 'bf16');
    assert.equal(b.grad?.dtype, 'bf16');
    const factors = new Array(8).fill(reduction === 'mean' ? 1 / 8 : 1);
    const expected = reference(await a.detach().toArray(), await b.detach().toArray(), targets, factors, [4, 6]);
    assertClose(await gradientOf(a), expected.dx, 0.02, 'x');
    assertClose(await gradientOf(b), expected.dWeight, 0.02, 'weight');
  }
});

test('backward may run again with retain, and gradients have no gradients', async () => {
  const [x, weight] = [values(ROWS * INNER), values(CLASSES * INNER)];
  const targets = tensor(Uint32Array.from(integers(ROWS, CLASSES)));
  for (const reduction of /** @type {const} */ (['mean', 'sum'])) {
    const leaf = tensor(x, { shape: [ROWS, INNER], requiresGrad: true });
    const loss = F.linearCrossEntropy(leaf, tensor(weight, { shape: [CLASSES, INNER] }), targets, { reduction, logitsBytes: bytesOf(4) });
    const [first] = grad(loss, [leaf], { retain: true });
    const [second] = grad(F.mul(loss, 2), [leaf]);
    assertClose(
      await second.toArray(),
      Float64Array.from(await first.toArray(), (v) => 2 * v),
      1e-6,
      reduction,
    );
    assert.throws(() => F.sum(first).backward(), /does not depend on anything that requires a gradient/);
  }
});

test('errors name what is wrong', () => {
  const [x, weight, targets] = [
    tensor(values(ROWS * INNER), { shape: [ROWS, INNER] }),
    tensor(values(CLASSES * INNER), { shape: [CLASSES, INNER] }),
    tensor(Uint32Array.from(integers(ROWS, CLASSES))),
  ];
  const call = (/** @type {any[]} */ ...args) => F.linearCrossEntropy(.../** @type {[Tensor, Tensor, Tensor]} */ (args));
  assert.throws(() => call(x, F.transpose(weight, 0, 1), targets), /linearCrossEntropy: \[11, 6\] × \[6, 9\]ᵀ: inner sizes 6, 9/);
  assert.throws(() => call(x, weight, F.to(targets, 'f32')), /linearCrossEntropy: targets are class numbers, i32 or u32, got f32/);
  assert.throws(() => call(x, weight, targets.slice(0, 0, 4)), /linearCrossEntropy: targets \[4\] for rows \[11, 6\], expected \[11\]/);
  assert.throws(() => call(x, weight, targets, { reduction: 'max' }), /reduction is 'mean', 'sum' or 'none', got max/);
  assert.throws(() => call(x.requiresGrad_(), weight, targets, { reduction: 'max' }), /reduction is 'mean', 'sum' or 'none', got max/);
  assert.throws(() => call(x, weight, targets, { ignoreIndex: 0.5 }), /ignoreIndex must be an integer, got 0.5/);
  assert.throws(() => call(x, weight, targets, { ignoreIndex: 2 ** 32 }), /ignoreIndex must be of 32 bits, got 4294967296/);
  assert.throws(() => call(x, weight, targets, { logitsBytes: 0 }), /logitsBytes must be a number above 0, got 0/);
  assert.throws(() => call(x, weight, targets, { logits: 1 }), /logits/);
});

test('compiled, gradients go where the optimizer has them, and constant factors cost nothing', async () => {
  const [ids, targets] = [0, 1].map(() => tensor(Uint32Array.from(integers(3 * ROWS, CLASSES)), { shape: [3, ROWS] }));
  for (const count of [1, 3]) {
    const results = [];
    for (const passes of [[], undefined]) {
      const table = new nn.Embedding(CLASSES, INNER);
      const norm = new nn.LayerNorm(INNER);
      noGrad(() =>
        table.weight.copy_(
          tensor(
            Float64Array.from({ length: CLASSES * INNER }, (_, i) => Math.sin(i)),
            { shape: [CLASSES, INNER] },
          ),
        ),
      );
      const optimizer = new optim.SGD([...table.parameters(), ...norm.parameters()], { lr: 0.1 });
      const step = compile(
        () => {
          const loss = accumulate(count, (i) =>
            F.linearCrossEntropy(norm.forward(table.forward(ids.at(i))), table.weight, targets.at(i), { logitsBytes: bytesOf(4) }),
          );
          optimizer.step();
          return loss;
        },
        { passes },
      );
      const losses = [];
      for (let i = 0; i < 3; i++) losses.push(await step().item());
      results.push([...losses, ...(await table.weight.toArray()), ...(await norm.weight.toArray()), ...(await norm.bias.toArray())]);
      if (passes) continue;
      const [{ found }] = step.explain();
      assert.equal(found["tied table's gradients in their place"], count);
      assert.equal(found['gradient of a parameter in its place'], 2);
      if (count === 1) assert.equal(found['identities left out'], 2);
      else assert.equal(found["loss's gradients and factor"], count);
      const names = step.profile().map(({ operations }) => operations);
      // Numbers are multiplied for the mean of losses alone, and nothing is copied by itself.
      const left = names.filter((name) => /^(times|affine|copy_)/.test(name));
      assert.ok(
        left.every((name) => /^affine \+ affine \+ add/.test(name)),
        names.join('; '),
      );
    }
    assertClose(results[1], Float64Array.from(results[0]), 1e-6, `${count} micro-steps`);
  }
});

test('a result that is read elsewhere, or a factor of one gradient alone, is not folded into the loss', async () => {
  const [x, weight] = [values(ROWS * INNER), values(CLASSES * INNER)];
  const targets = tensor(Uint32Array.from(integers(ROWS, CLASSES)));
  const [a, b] = [tensor(x, { shape: [ROWS, INNER], requiresGrad: true }), tensor(weight, { shape: [CLASSES, INNER], requiresGrad: true })];
  const both = () => {
    const loss = F.linearCrossEntropy(a, b, targets, { logitsBytes: bytesOf(4) });
    const [dx, dWeight] = grad(loss, [a, b]);
    return [F.mul(dx, 3), F.mul(dWeight, 0.5), F.add(dx, 1)];
  };
  const wanted = await Promise.all(both().map((y) => y.toArray()));
  const own = await Promise.all(compile(both)().map((y) => y.toArray()));
  own.forEach((y, i) => assertClose(y, Float64Array.from(wanted[i]), 1e-6, `${i}`));
});
