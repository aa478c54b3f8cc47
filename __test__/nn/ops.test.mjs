// Every operation against its float64 reference, and its gradient against finite differences of the reference; two runs give the same bits.
// Inputs are dense tensors and views, and memory is poisoned when it is allocated.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { apply, applyAll } from '../../nn/core/engine.mjs';
import { F, grad as gradOf, scope, tensor } from '../../nn/index.mjs';
import { operations } from '../../nn/ops/registry.mjs';
import { runtime } from '../../nn/core/runtime.mjs';
import { scaled } from '../lib/addon.mjs';
import { assertClose, normal, seed } from '../lib/random-data.mjs';
import { finiteDifferences } from '../lib/reference.mjs';
import { size } from './inputs.mjs';
import { ELSEWHERE, cases } from './cases.mjs';
import { initDevice, poison } from './setup.mjs';

/** Operations whose gradient has none. */
const REFUSED = ['linearCrossEntropy', 'linearCrossEntropyRows'];

/** @typedef {import('./cases.mjs').Input} Input */

before(() => {
  initDevice();
  poison();
});

/**
 * An input on the device: dense, or as a view of something larger.
 * @param {Input} input @param {boolean} strided
 */
function onDevice({ shape, values, dtype = 'f32' }, strided) {
  if (!strided || dtype !== 'f32') return tensor(Float64Array.from(values), { shape, dtype });
  // The elements lie transposed, between others.
  const whole = tensor(Float64Array.from(values), { shape });
  const order = shape.map((_, d) => shape.length - 1 - d);
  const wide = F.cat(
    [
      F.full(
        [1, ...shape].map((n, d) => (d === 0 ? 1 : n)),
        9,
      ).reshape(...shape),
      whole,
      whole,
    ],
    0,
  )
    .permute(...order)
    .contiguous();
  return wide.permute(...order).slice(0, shape[0], 2 * shape[0]);
}

/** @param {string} name @param {Input[]} inputs @param {any} attributes */
const describe = (name, inputs, attributes) =>
  `${name} ${inputs.map(({ shape }) => `[${shape}]`).join(' ')} ${JSON.stringify(attributes) ?? ''}`;

/** @param {Input[]} inputs */
const references = (inputs) =>
  inputs.map(({ shape, values, dtype = 'f32' }) => ({ shape, data: dtype === 'f32' ? Float64Array.from(values, Math.fround) : values }));

const elements = (/** @type {import('./inputs.mjs').Case} */ { inputs }) => inputs.reduce((sum, { values }) => sum + values.length, 0);
/**
 * A case with a gradient, of few elements if there is one among some: differences of all elements by each take the square of their number.
 * @param {string} name
 */
function smallCase(name) {
  const some = Array.from({ length: 9 }, cases[name]).filter(({ inputs }) => inputs.some(({ constant }) => !constant));
  return some.find((one) => elements(one) <= 200) ?? some.toSorted((a, b) => elements(a) - elements(b))[0];
}

/**
 * The gradient of a gradient, w and u being given: of s = u · ∂(w · f(x))/∂x with respect to w, which is f's derivative in the direction of u,
 * and to x. Against differences of the reference. Operations whose gradient has none say so.
 * @param {any} op
 */
async function checkTwice(op) {
  const { inputs, attributes = {} } = smallCase(op.name);
  const what = describe(op.name, inputs, attributes);
  const areViews = inputs.every(({ shape }) => shape.length > 0);
  const leaves = inputs.map((input) => (input.constant ? onDevice(input, areViews) : onDevice(input, areViews).requiresGrad_()));
  const own = leaves.filter((leaf) => leaf.requiresGrad);
  const directions = inputs.map((input) => normal(input.constant ? 0 : size(input.shape)));
  const y = apply(op, [...leaves], attributes);
  const weights = normal(size([...y.shape]));
  const w = tensor(weights, { shape: [...y.shape], requiresGrad: true });
  try {
    const gradients = gradOf(y, own, { gradient: w, createGraph: true });
    const s = gradients
      .map((g, i) => g.mul(tensor(/** @type {any} */ (directions.filter((_, j) => !inputs[j].constant)[i]), { shape: [...g.shape] })).sum())
      .reduce((a, b) => a.add(b));
    if (s.requiresGrad) s.backward();
  } catch (error) {
    assert.ok(REFUSED.includes(op.name) || (op.name === 'reduceRuns' && attributes.op === 'prod'), `${what}: ${error}`);
    assert.match(String(error), /^UsageError: grad: the gradient of \w+ has no gradient itself/, what);
    return;
  }
  const values = references(inputs);
  const h = 1e-4;
  /** w · f at the inputs, moved by a multiple of u. @param {number} step @param {(f: ArrayLike<number>) => any} of @param {any[]} [at] */
  const moved = (step, of, at = values) =>
    of(
      op.oracle(
        at.map(({ shape, data }, i) => ({
          shape,
          data: directions[i].length > 0 ? Float64Array.from(data, (v, j) => v + step * directions[i][j]) : data,
        })),
        attributes,
      ).data,
    );
  const difference = (/** @type {any} */ a, /** @type {any} */ b) => Float64Array.from(a, (v, i) => (v - b[i]) / (2 * h));
  /** Beside 1: a gradient that is 0 has no size to compare with. @param {any} leaf @param {Float64Array} wanted @param {string} of */
  const close = async (leaf, wanted, of) =>
    assertClose([...(leaf.grad ? await leaf.grad.toArray() : wanted.map(() => 0)), 1], [...wanted, 1], 1e-3, `${what}: second, of ${of}`);
  await close(w, difference(moved(h, Array.from), moved(-h, Array.from)), 'dy');
  const dot = (/** @type {any} */ f) =>
    f.reduce((/** @type {number} */ sum, /** @type {number} */ v, /** @type {number} */ i) => sum + v * Math.fround(weights[i]), 0);
  for (const [i, input] of inputs.entries()) {
    if (input.constant) continue;
    const wanted = Float64Array.from(values[i].data, (v, j) => {
      const at = (/** @type {number} */ d) =>
        values.with(i, { shape: input.shape, data: Float64Array.from(values[i].data).with(j, v + d) });
      return (moved(h, dot, at(h)) - moved(-h, dot, at(h)) - moved(h, dot, at(-h)) + moved(-h, dot, at(-h))) / (4 * h * h);
    });
    await close(leaves[i], wanted, `input ${i}`);
  }
}

test('a gradient of a gradient flows through slices', async () => {
  const t = tensor([1, 2, 3, 4, 5, 6], { shape: [2, 3], requiresGrad: true });
  const [g] = gradOf(t.slice(1, 0, 3, 2).pow(3).sum(), [t], { createGraph: true });
  g.slice(0, 1, 2).square().sum().backward();
  assertClose(await /** @type {any} */ (t.grad).toArray(), [0, 0, 0, 36 * 64, 0, 36 * 216], 1e-6, 'slice');
});

test('every operation has a case', () => {
  const missing = [...operations.keys()].filter((name) => !(name in cases) && !ELSEWHERE.includes(name));
  assert.deepEqual(missing, []);
});

for (const name of Object.keys(cases)) {
  test(`${name}: result and gradients`, async () => {
    const op = /** @type {import('../../nn/ops/registry.mjs').Op} */ (operations.get(name));
    const run = (/** @type {any[]} */ inputs, /** @type {any} */ attributes) => apply(op, inputs, attributes);
    assert.ok(op, `no operation ${name}`);
    for (let round = 0; round < scaled(10); round++) {
      const { inputs, attributes, random, tolerance = 5e-6, dy: differentiate = true } = cases[name]();
      const strided = round % 2 === 1 && inputs.every(({ shape }) => shape.length > 0);
      const what = `${describe(name, inputs, attributes)}${strided ? ' strided' : ''}`;
      const expected = op.oracle(references(inputs), attributes ?? {});
      /** @type {Float32Array[]} */
      const bits = [];
      for (let time = 0; time < 2; time++) {
        const tensors = inputs.map((input) => onDevice(input, strided));
        if (name === 'copy_') {
          tensors[0].copy_(tensors[1]);
          bits.push(/** @type {Float32Array} */ (await tensors[0].toArray()));
          continue;
        }
        const y = run(tensors, attributes);
        assert.deepEqual(y.shape, expected.shape, what);
        bits.push(/** @type {Float32Array} */ (await y.toArray()));
      }
      assert.deepEqual(bits[1], bits[0], `${what}: a second run gave other bits`);
      if (!random) assertClose(bits[0], expected.data, tolerance, what);
      if (!op.vjp || !differentiate || random) continue;

      const weights = normal(expected.data.length);
      const leaves = inputs.map((input) => {
        const leaf = onDevice(input, strided);
        return input.constant ? leaf : leaf.requiresGrad_();
      });
      scope(() => run([...leaves], attributes).backward({ gradient: tensor(weights, { shape: [...expected.shape] }) }));
      const values = references(inputs);
      for (const [i, input] of inputs.entries()) {
        if (input.constant) continue;
        const wanted = finiteDifferences(
          (at) => op.oracle(values.with(i, { shape: input.shape, data: at }), attributes ?? {}).data,
          values[i].data,
          Float64Array.from(weights, Math.fround),
        );
        const { grad } = leaves[i];
        assert.ok(grad, `${what}: no gradient of input ${i}`);
        assert.deepEqual(grad.shape, input.shape, what);
        assertClose(await grad.toArray(), wanted, 1e-4, `${what}: gradient of input ${i}`);
      }
      if (round === 0) await checkTwice(op);
    }
  });
}

test('the norms give the gradients of weight and bias, and attention that of its rows, as backward operations', async () => {
  for (const name of ['rmsNormBackward', 'layerNormBackward']) {
    const op = /** @type {any} */ (operations.get(name));
    const forward = /** @type {any} */ (operations.get(name.replace('Backward', '')));
    const layer = name.startsWith('layer');
    const [x, weight, dy] = [normal(21), normal(7), normal(21)].map((v) => Float64Array.from(v, Math.fround));
    const stats = [];
    for (let r = 0; r < 3; r++) {
      const row = x.slice(7 * r, 7 * r + 7);
      const mean = layer ? row.reduce((a, b) => a + b) / 7 : 0;
      if (layer) stats.push(mean);
      stats.push(1 / Math.sqrt(row.reduce((s, v) => s + (v - mean) ** 2, 0) / 7 + 1e-5));
    }
    const inputs = [
      tensor(dy, { shape: [3, 7] }),
      tensor(x, { shape: [3, 7] }),
      tensor(weight),
      tensor(stats, { shape: layer ? [3, 2] : [3] }),
    ];
    const results = applyAll(op, inputs, { eps: 1e-5 });
    const oracle = op.oracle(
      [
        { shape: [3, 7], data: dy },
        { shape: [3, 7], data: x },
        { shape: [7], data: weight },
      ],
      { eps: 1e-5 },
    );
    assertClose(await results[0].toArray(), oracle.data, 1e-5, name);
    const dWeight = finiteDifferences(
      (at) =>
        forward.oracle(
          [
            { shape: [3, 7], data: x },
            { shape: [7], data: at },
          ],
          { eps: 1e-5 },
        ).data,
      weight,
      dy,
    );
    assertClose(await results[1].toArray(), dWeight, 1e-5, `${name}: weight`);
  }
  const op = /** @type {any} */ (operations.get('attention'));
  const backward = /** @type {any} */ (operations.get('attentionBackward'));
  const [qkv, dy] = [normal(3 * 96), normal(3 * 32)].map((v) => Float64Array.from(v, Math.fround));
  const attributes = { heads: 1, kvHeads: 1, causal: true, window: 0 };
  const [out, logSumExp] = applyAll(op, [tensor(qkv, { shape: [1, 3, 96] })], attributes);
  const [dQkv] = applyAll(backward, [tensor(dy, { shape: [1, 3, 32] }), tensor(qkv, { shape: [1, 3, 96] }), out, logSumExp], attributes);
  const wanted = backward.oracle(
    [
      { shape: [1, 3, 32], data: dy },
      { shape: [1, 3, 96], data: qkv },
    ],
    attributes,
  );
  assertClose(await dQkv.toArray(), wanted.data, 1e-5, 'attentionBackward');
  const apart = /** @type {any} */ (operations.get('attentionApart'));
  const apartBackward = /** @type {any} */ (operations.get('attentionApartBackward'));
  const shapes = [
    [1, 2, 2, 32],
    [1, 3, 1, 32],
    [1, 3, 1, 32],
  ];
  const parts = shapes.map((shape) => ({ shape, data: Float64Array.from(normal(shape.reduce((a, b) => a * b)), Math.fround) }));
  const own = { causal: true, scale: 0.2 };
  const tensors = parts.map(({ shape, data }) => tensor(data, { shape }));
  const gradient = { shape: shapes[0], data: Float64Array.from(normal(128), Math.fround) };
  const dOut = tensor(gradient.data, { shape: gradient.shape });
  const [dQ] = applyAll(apartBackward, [dOut, ...tensors, ...applyAll(apart, [...tensors], own)], own);
  assertClose(await dQ.toArray(), apartBackward.oracle([gradient, ...parts], own).data, 1e-5, 'attentionApartBackward');
});

test('16-bit types: element-wise operations, products and norms within a rounding of f32', async () => {
  const { kernels } = runtime();
  for (const dtype of /** @type {const} */ (['f16', 'bf16'])) {
    const bound = dtype === 'f16' ? 2 ** -9 : 2 ** -6;
    const [a, b] = [tensor(normal(48), { shape: [6, 8], dtype }), tensor(normal(48), { shape: [6, 8], dtype })];
    for (const f of [
      (/** @type {any} */ x, /** @type {any} */ y) => x.add(y),
      (/** @type {any} */ x, /** @type {any} */ y) => x.mul(y.slice(0, 0, 1)),
      (/** @type {any} */ x, /** @type {any} */ y) => x.matmul(y.T),
      (/** @type {any} */ x) => F.gelu(x).softmax(),
      (/** @type {any} */ x) => x.sum(1),
      (/** @type {any} */ x) => x.T.contiguous(),
      (/** @type {any} */ x) => x.slice(1, 1, 4).contiguous(),
      (/** @type {any} */ x) => x.slice(1, 3, 6).reshape(-1).slice(0, 1).mul(2),
      (/** @type {any} */ x, /** @type {any} */ y) => F.cat([x.slice(1, 0, 3), y], 1),
    ]) {
      const half = f(a, b);
      assert.equal(half.dtype, dtype, f.toString());
      assertClose(
        await half.toArray(),
        await f(a.to('f32'), b.to('f32')).toArray(),
        bound,
        `${dtype} ${f} (${kernels.matmulSupports(dtype)})`,
      );
    }
  }
});

test('views of views read the elements that they should', async () => {
  const x = tensor(
    Float32Array.from({ length: 120 }, (_, i) => i),
    { shape: [2, 3, 4, 5] },
  );
  const y = x.permute(2, 0, 3, 1).slice(0, 1, 4, 2).slice(2, -3);
  assert.deepEqual(y.shape, [2, 2, 3, 3]);
  const wanted = [];
  for (const c of [1, 3])
    for (const a of [0, 1]) for (const d of [2, 3, 4]) for (const b of [0, 1, 2]) wanted.push(((a * 3 + b) * 4 + c) * 5 + d);
  assert.deepEqual([...(await y.toArray())], wanted);
  assert.deepEqual([...(await y.reshape(4, 9).toArray())], wanted);
  assert.deepEqual([...(await x.T.reshape(-1).slice(0, 0, 4).toArray())], [0, 5, 10, 15]);
  assert.deepEqual([...(await x.at(-1).at(0).at(1).toArray())], [65, 66, 67, 68, 69]);
  const ids = tensor(
    Int32Array.from({ length: 12 }, (_, i) => i),
    { shape: [3, 4] },
  );
  assert.deepEqual([...(await ids.T.contiguous().toArray())], [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11], 'integers keep their bits');
});

test('reductions over any dimensions, and of every broadcast', async () => {
  const values = normal(2 * 3 * 4 * 5);
  const x = tensor(values, { shape: [2, 3, 4, 5] });
  for (const dims of [[0], [1], [2], [3], [0, 2], [1, 3], [0, 3], [0, 1, 2, 3], [1, 2]]) {
    const wanted = x.shape.map((n, d) => (dims.includes(d) ? 1 : n));
    const sums = new Float64Array(wanted.reduce((a, b) => a * b, 1));
    for (let i = 0; i < values.length; i++) {
      const index = [Math.floor(i / 60), Math.floor(i / 20) % 3, Math.floor(i / 5) % 4, i % 5];
      let to = 0;
      for (let d = 0; d < 4; d++) to = to * wanted[d] + (dims.includes(d) ? 0 : index[d]);
      sums[to] += Math.fround(values[i]);
    }
    const y = x.sum(dims, true);
    assert.deepEqual(y.shape, wanted);
    assertClose(await y.toArray(), sums, 2e-6, `sum over ${dims}`);
    assertClose(
      await x.mean(dims).toArray(),
      sums.map((v) => (v * sums.length) / values.length),
      2e-6,
      `mean over ${dims}`,
    );
  }
  const centre = x.sub(x.mean(0, true));
  assertClose(await F.variance(x, 0).toArray(), await centre.square().sum(0).div(1).toArray(), 1e-5, 'variance of two');
  assertClose(await F.logSoftmax(x).exp().sum(-1).toArray(), new Float64Array(24).fill(1), 1e-6, `logSoftmax (seed ${seed})`);
});

test('a gradient of a gradient in f16, far from 0', async () => {
  const t = tensor([300, -300, 1e4], { dtype: 'f16', requiresGrad: true });
  const [g] = gradOf(F.gelu(t).sum(), [t], { createGraph: true });
  assert.deepEqual([g.dtype, ...(await g.toArray())], ['f16', 1, 0, 1]);
});
