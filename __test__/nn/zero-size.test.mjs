// Tensors without elements, through every operation: each dimension of each case in turn is 0.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { apply } from '../../nn/core/engine.mjs';
import { denseLayout } from '../../nn/core/layout.mjs';
import { F, Tensor, compile, empty, grad, load, nn, noGrad, ones, rand, randn, save, scope, tensor, zeros } from '../../nn/index.mjs';
import { STATE_WORDS } from '../../kernels/index.mjs';
import { operations } from '../../nn/ops/registry.mjs';
import { temporaryFolder } from '../lib/folder.mjs';
import { assertClose } from '../lib/random-data.mjs';
import { finiteDifferences } from '../lib/reference.mjs';
import { cases } from './cases.mjs';
import { CALLS } from './wrong.mjs';
import { initDevice, poison, values } from './setup.mjs';

/** @typedef {import('./inputs.mjs').Input} Input */

before(() => {
  initDevice();
  poison();
});

/** Of a function that calls another one, and of a method: tested below. */
const ELSEWHERE = ['linearCrossEntropy', 'linearCrossEntropyRows', 'copy_'];
/** Operations that check no shapes, since their functions do: those of backward passes, which gradients go through, and those tested below. */
const UNCHECKED =
  /Backward$|Gradient$|Rest$|^convolution|Pool|^(fold|diagEmbed|pick|put|reduceRuns|argsort|rowsByMatrix|complexTimes|centered|normalizeChannels|productWithNormalized)$/;
/** A sequence of no steps is an error, as in PyTorch; a batch of no sequences is none. */
const NO_STEPS = ['gru', 'lstm'];

/** @param {number[]} shape @param {number} d @param {Input} input @returns {Input} */
const without = (shape, d, { values: _, ...rest }) => ({ ...rest, shape: shape.with(d, 0), values: new Float64Array(0) });

/**
 * A case with a dimension of no elements: that of one input alone, and that of all dimensions of its size.
 * @param {Input[]} inputs
 */
function* emptied(inputs) {
  for (const [i, { shape, dtype }] of inputs.entries()) {
    if (dtype === 'u32' && shape[0] === STATE_WORDS) continue; // A random state.
    for (const [d, size] of shape.entries()) {
      yield inputs.map((input, k) => (k === i ? without(shape, d, input) : input));
      yield inputs.map((input, k) => {
        const at = k === i ? d : input.shape.indexOf(size);
        return at < 0 ? input : without(input.shape, at, input);
      });
    }
  }
}

/** @param {Input[]} inputs */
const references = (inputs) =>
  inputs.map(({ shape, values: own, dtype = 'f32' }) => ({ shape, data: dtype === 'f32' ? Float64Array.from(own, Math.fround) : own }));
/** @param {Input} input */
const onDevice = ({ shape, values: own, dtype = 'f32' }) => tensor(Float64Array.from(own), { shape, dtype });

/** @param {string} name @param {import('./inputs.mjs').Case} one @param {Input[]} own inputs of which a dimension is 0 */
async function checkEmpty(name, { attributes = {}, dy: differentiate = true, random }, own) {
  const op = /** @type {import('../../nn/ops/registry.mjs').Op} */ (operations.get(name));
  const what = `${name} ${own.map(({ shape }) => `[${shape}]`).join(' ')}`;
  if (NO_STEPS.includes(name) && own[0].shape[1] === 0 && !own[0].shape.with(1, 1).includes(0)) {
    assert.throws(() => apply(op, own.map(onDevice), attributes), /no elements/);
    return;
  }
  const expected = op.oracle(references(own), attributes);
  const run = (/** @type {any[]} */ ...tensors) => apply(op, [...tensors], attributes);
  const y = run(...own.map(onDevice));
  assert.deepEqual(y.shape, expected.shape, what);
  if (!random) assertClose(await y.toArray(), expected.data, 1e-5, what);
  const compiled = compile(run);
  for (let call = 0; call < 2; call++) {
    const z = compiled(...own.map(onDevice));
    assert.deepEqual(z.shape, expected.shape, `${what}, compiled`);
    if (!random) assertClose(await z.toArray(), expected.data, 1e-5, `${what}, compiled`);
  }
  compiled.dispose();
  if (!op.vjp || !differentiate) return;
  const weights = Float64Array.from(expected.data, (_, i) => Math.fround(0.5 + (i % 3)));
  const isLeaf = (/** @type {Input} */ { constant, dtype = 'f32' }) => !constant && dtype === 'f32';
  const leaves = own.map((input) => (isLeaf(input) ? onDevice(input).requiresGrad_() : onDevice(input)));
  if (!own.some(isLeaf)) return;
  scope(() => run(...leaves).backward({ gradient: tensor(weights, { shape: [...expected.shape] }) }));
  const numbers = references(own);
  for (const [i, leaf] of leaves.entries()) {
    if (!leaf.requiresGrad) continue;
    assert.deepEqual(leaf.grad?.shape, own[i].shape, `${what}: gradient of input ${i}`);
    const wanted = finiteDifferences(
      (/** @type {any} */ at) => op.oracle(numbers.with(i, { shape: own[i].shape, data: at }), attributes).data,
      numbers[i].data,
      weights,
    );
    assertClose(await /** @type {any} */ (leaf.grad).toArray(), wanted, 1e-4, `${what}: gradient of input ${i}`);
  }
}

test('every operation with a dimension of no elements: results and gradients, eager and compiled', async () => {
  /** @type {string[]} */
  const untried = [];
  /** @type {string[]} */
  const faults = [];
  for (const [name, make] of Object.entries(cases)) {
    const op = /** @type {import('../../nn/ops/registry.mjs').Op} */ (operations.get(name));
    if (ELSEWHERE.includes(name) || UNCHECKED.test(name)) continue;
    const one = make();
    let tried = 0;
    for (const own of emptied(one.inputs)) {
      try {
        op.infer(
          own.map(({ shape, dtype = 'f32' }) => denseLayout(shape, dtype)),
          one.attributes ?? {},
        );
        // Its function checks the shapes.
        if (name === 'cat') F.cat(own.map(onDevice), one.attributes.dim);
      } catch (/** @type {any} */ error) {
        assert.ok(['ShapeError', 'ArgumentError'].includes(error.name), `${name}: ${error.stack}`);
        continue; // The shapes do not go together, or there is no result.
      }
      tried++;
      await checkEmpty(name, one, own).catch((error) =>
        faults.push(`${name} ${own.map(({ shape }) => `[${shape}]`).join(' ')}: ${error.message}`),
      );
    }
    if (tried === 0) untried.push(name);
  }
  assert.deepEqual(faults, []);
  // These take a random state of a fixed size, or their shape from attributes.
  assert.deepEqual(untried, ['full', 'random', 'initial', 'iota']);
});

test('every public function with a tensor without elements: a result, or an error of that function', async () => {
  /** @type {string[]} */
  const faults = [];
  let results = 0;
  for (const { names, call, args } of CALLS) {
    for (const [i, right] of args().entries()) {
      if (!(right instanceof Tensor) || right.isParameter) continue;
      for (let d = 0; d < right.ndim; d++) {
        const given = args();
        const same = given[i].shape[d];
        const none = (/** @type {any} */ x, /** @type {number} */ at) => zeros(x.shape.with(at, 0), { dtype: x.dtype });
        // This dimension alone, and the first of this size of each tensor.
        const both = given.map((x, k) =>
          x instanceof Tensor && !x.isParameter && x.shape.includes(same) ? none(x, k === i ? d : x.shape.indexOf(same)) : x,
        );
        for (const own of [given.with(i, none(given[i], d)), both]) {
          try {
            await call(...own);
            results++;
          } catch (/** @type {any} */ error) {
            const ours = ['ArgumentError', 'ShapeError', 'UsageError'].includes(error?.name);
            if (!ours || !names.some((name) => error.op === name))
              faults.push(`${names[0]} argument ${i}, dimension ${d}: ${error?.stack}`);
          }
        }
      }
    }
  }
  assert.deepEqual(faults, []);
  assert.ok(results > 300, `${results} results`);
});

test('what makes tensors without elements, and what reads them', async () => {
  for (const [x, shape] of /** @type {[any, number[]][]} */ ([
    [zeros([0, 3]), [0, 3]],
    [ones([2, 0]), [2, 0]],
    [F.full([0], 5), [0]],
    [empty([3, 0, 2]), [3, 0, 2]],
    [rand([0]), [0]],
    [randn([0, 2]), [0, 2]],
    [tensor([]), [0]],
    [tensor([[], []]), [2, 0]],
    [tensor(new Int32Array(0)), [0]],
    [tensor([], { shape: [4, 0] }), [4, 0]],
    [ones([4, 3]).slice(0, 2, 2), [0, 3]],
    [ones([4, 3]).slice(1, 3), [4, 0]],
    [ones([4, 3]).slice(0, 3, 1), [0, 3]],
    [ones([4, 3]).slice(0, 1, 1).T, [3, 0]],
    [ones([1, 3]).expand(0, 3), [0, 3]],
    [zeros([0, 6]).reshape(-1, 2, 3), [0, 2, 3]],
    [zeros([0, 6]).reshape(7, 0), [7, 0]],
    [zeros([0, 6, 2]).flatten(), [0]],
    [zeros([4, 0]).unsqueeze(0).squeeze(), [4, 0]],
    [zeros([0, 2]).split(3)[0], [0, 2]],
    [zeros([0, 2]).chunk(3)[0], [0, 2]],
    [zeros([0], { dtype: 'bf16' }).to('i32'), [0]],
    [F.oneHot(tensor(new Int32Array(0)), 4), [0, 4]],
    [F.dropout(zeros([0, 2])), [0, 2]],
  ])) {
    assert.deepEqual([x.shape, x.size, (await x.toArray()).length], [shape, 0, 0]);
    const count = (/** @type {any} */ nested) => (Array.isArray(nested) ? nested.length : 1);
    assert.equal(count(await x.toNested()), shape[0]);
    assert.deepEqual([x.clone().shape, x.contiguous().shape], [shape, shape]);
  }
  assert.throws(() => zeros([0, 6]).reshape(0, -1), /^ShapeError: reshape: cannot reshape \[0, 6\] of 0 elements to \[0, -1\]/);
  assert.throws(() => zeros([0]).reshape(1), /^ShapeError: reshape: cannot reshape/);
  assert.throws(() => zeros([-1]), /^ShapeError: zeros: the sizes of a shape must be integers of at least 0/);
  await assert.rejects(zeros([0]).item(), /^ArgumentError: item: the tensor \[0\] has 0 elements, not one/);
  assert.throws(() => zeros([0, 2]).at(0), /^ShapeError: at: index 0 is out of range/);
});

test('reductions, products and losses of nothing, as in PyTorch', async () => {
  const x = zeros([0, 3]);
  assert.deepEqual(await values(x.sum()), [0]);
  assert.deepEqual(await values(x.sum(0)), [0, 0, 0]);
  assert.deepEqual(await values(x.sum(1)), []);
  assert.deepEqual(x.sum([0, 1], true).shape, [1, 1]);
  assert.deepEqual(await values(x.mean()), [NaN]);
  assert.deepEqual(await values(x.mean(0)), [NaN, NaN, NaN]);
  assert.deepEqual(await values(F.variance(x, 0)), [NaN, NaN, NaN]);
  assert.deepEqual(await values(x.to('bf16').sum(0)), [0, 0, 0]);
  assert.deepEqual(x.amax(1).shape, [0]);
  for (const run of [
    () => x.amax(0),
    () => x.amax([]),
    () => x.T.amin(),
    () => F.argmax(x, 0),
    () => x.argmin(0),
    () => zeros([0, 0]).amax(0),
  ]) {
    assert.throws(run, /^ShapeError: (amax|amin|argmax|argmin): none of 0 elements is the (largest|smallest)/);
  }
  for (const [y, wanted] of /** @type {[any, number[]][]} */ ([
    [F.prod(x, 0), [1, 1, 1]],
    [F.any(x), [0]],
    [F.all(x), [1]],
    [F.logsumexp(x, 0), [-Infinity, -Infinity, -Infinity]],
    [F.norm(x), [0]],
    [F.einsum('ij,jk->ik', zeros([2, 0]), zeros([0, 1])), [0, 0]],
    [F.pad(x, [0, 0, 0, 1], 'constant', 5), [5, 5, 5]],
    [F.conv2d(zeros([1, 0, 2, 2]), zeros([2, 0, 2, 2]), tensor([1, 2])), [1, 2]],
    [F.roll(x, 1, 0), []],
    [F.sort(x, 0).values, []],
  ])) {
    assert.deepEqual(await values(y), wanted);
  }
  const none = await F.unique(x);
  assert.deepEqual([none.values.shape, none.inverse.shape, none.counts.shape], [[0], [0, 3], [0]]);
  assert.throws(() => F.quantile(x, 0.5), /^ShapeError: quantile: of 0 elements there is none/);
  assert.deepEqual(
    [x.softmax(0).shape, x.softmax(1).shape, F.logSoftmax(x, 0).shape, F.logSoftmax(x.T).shape].flat(),
    [0, 3, 0, 3, 0, 3, 3, 0],
  );
  for (const dtype of /** @type {const} */ (['f32', 'f16', 'bf16'])) {
    assert.deepEqual(await values(zeros([2, 0], { dtype }).matmul(zeros([0, 2], { dtype }))), [0, 0, 0, 0]);
    assert.deepEqual(await values(F.linear(zeros([2, 0], { dtype }), zeros([2, 0], { dtype }), tensor([1, 2]))), [1, 2, 1, 2]);
  }
  assert.deepEqual(await values(zeros([0]).matmul(zeros([0]))), [0], 'a product of two vectors of nothing');
  assert.deepEqual(zeros([5, 0, 3]).matmul(zeros([3, 2])).shape, [5, 0, 2]);
  assert.deepEqual(zeros([0, 4, 3]).matmul(zeros([1, 3, 2])).shape, [0, 4, 2]);

  const ids = tensor(new Int32Array(0));
  const [weight, logits] = [ones([4, 3]), zeros([0, 4])];
  /** @type {[string, (reduction: any) => any][]} */
  const losses = [
    ['crossEntropy', (reduction) => F.crossEntropy(logits, ids, { reduction })],
    ['linearCrossEntropy', (reduction) => F.linearCrossEntropy(x, weight, ids, { reduction })],
    ['mseLoss', (reduction) => F.mseLoss(x, x, { reduction })],
    ['l1Loss', (reduction) => F.l1Loss(x, x, { reduction })],
    ['binaryCrossEntropyWithLogits', (reduction) => F.binaryCrossEntropyWithLogits(x, x, { reduction })],
  ];
  for (const [name, loss] of losses) {
    assert.deepEqual(await values(loss('mean')), [NaN], name);
    assert.deepEqual(await values(loss('sum')), [0], name);
    assert.equal(loss('none').size, 0, name);
  }
});

test('joins, indices and layers of nothing', async () => {
  const x = ones([2, 3]);
  assert.deepEqual(await values(F.cat([zeros([0, 3]), x, zeros([0, 3])])), await values(x));
  assert.deepEqual(await values(F.cat([tensor([]), x], 1)), await values(x), 'as in PyTorch, [0] joins with any shape');
  assert.deepEqual(F.cat([zeros([0, 3]), zeros([0, 3])]).shape, [0, 3]);
  assert.deepEqual(F.stack([zeros([0]), zeros([0])]).shape, [2, 0]);
  const ids = tensor(new Int32Array(0));
  assert.deepEqual(F.indexSelect(x, 0, ids).shape, [0, 3]);
  assert.deepEqual(F.indexSelect(zeros([0, 3]), 1, tensor(Int32Array.of(2, 0))).shape, [0, 2]);
  assert.deepEqual(await values(F.scatter(x, 0, zeros([0, 3], { dtype: 'i32' }), 5)), await values(x));
  assert.deepEqual(F.embedding(ids, x).shape, [0, 3]);
  assert.deepEqual(zeros([0, 3]).maskedFill(zeros([0, 3]).gt(0), 1).shape, [0, 3]);
  noGrad(() => zeros([0, 3]).add_(1).mul_(2).copy_(5).zero_());
  assert.deepEqual(zeros([0, 3]).copy_(ones([3])).shape, [0, 3]);

  for (const [layer, shape, result] of /** @type {[any, number[], number[]][]} */ ([
    [new nn.Linear(3, 2), [0, 3], [0, 2]],
    [new nn.Linear(3, 2), [4, 0, 3], [4, 0, 2]],
    [new nn.RMSNorm(3), [0, 3], [0, 3]],
    [new nn.LayerNorm(3), [2, 0, 3], [2, 0, 3]],
    [new nn.Conv2d(2, 3, 3, { padding: 1 }), [0, 2, 5, 5], [0, 3, 5, 5]],
    [new nn.GroupNorm(2, 4), [0, 4, 3, 3], [0, 4, 3, 3]],
    [new nn.MultiHeadAttention(8, 2), [0, 5, 8], [0, 5, 8]],
    [new nn.MultiHeadAttention(64, 2, { causal: true }), [2, 0, 64], [2, 0, 64]],
    [new nn.MLP(3, 4), [0, 3], [0, 3]],
    [new nn.SwiGLU(3, 4), [0, 3], [0, 3]],
    [new nn.GRU(3, 4), [0, 2, 3], [0, 2, 4]],
    [new nn.LSTM(3, 4), [0, 2, 3], [0, 2, 4]],
  ])) {
    const y = layer.forward(zeros(shape));
    const out = Array.isArray(y) ? y[0] : (y.output ?? y);
    assert.deepEqual(out.shape, result, layer.constructor.name);
    out.sum().backward();
    for (const p of layer.parameters()) {
      const gradient = await values(p.grad);
      assert.ok(gradient.length === p.size && gradient.every((v) => v === 0), `${layer.constructor.name}: a gradient of nothing is 0`);
    }
  }
  // Of no keys: zeros, as where a mask hides all.
  for (const size of [32, 5]) {
    const [q, k] = [ones([1, 2, 3, size]).requiresGrad_(), ones([1, 2, 0, size]).requiresGrad_()];
    const y = F.scaledDotProductAttention(q, k, ones([1, 2, 0, size]));
    assert.deepEqual([y.shape, new Set(await values(y))], [[1, 2, 3, size], new Set([0])]);
    const [dq, dk] = grad(y.sum(), [q, k]);
    assert.deepEqual([new Set(await values(dq)), dk.shape], [new Set([0]), [1, 2, 0, size]]);
  }
});

test('gradients through tensors without elements', async () => {
  const x = ones([2, 3]).requiresGrad_();
  const nothing = zeros([0, 3]).requiresGrad_();
  const [dx, none] = grad(F.cat([nothing, x.mul(2)]).sum(), [x, nothing]);
  assert.deepEqual([await values(dx), none.shape], [new Array(6).fill(2), [0, 3]]);
  const [ofSlice] = grad(x.slice(0, 1, 1).sum(), [x]);
  assert.deepEqual(await values(ofSlice), new Array(6).fill(0));
  const [ofExpanded] = grad(x.slice(0, 0, 1).expand(0, 3).sum(), [x]);
  assert.deepEqual(await values(ofExpanded), new Array(6).fill(0));
  nothing.exp().sum().backward();
  nothing.square().mean().backward();
  assert.deepEqual(nothing.grad?.shape, [0, 3]);
  const b = tensor([1, 2, 3], { requiresGrad: true });
  nothing.detach().mul(b).sum(0).square().sum().backward();
  assert.deepEqual(await values(b.grad), [0, 0, 0]);
});

test('compiled functions take, make and return tensors without elements', async () => {
  const f = compile((/** @type {any} */ x, /** @type {any} */ w, /** @type {any} */ { ids }) => {
    const h = F.relu(F.linear(x, w));
    return { h, total: h.sum(), mean: h.mean(0), rows: F.cat([h, ones([1, 2])]), rest: h.slice(0, 1, 1), picked: F.embedding(ids, w) };
  });
  for (const rows of [0, 2, 0]) {
    const y = f(ones([rows, 3]), ones([2, 3]), { ids: new Int32Array(rows) });
    assert.deepEqual(y.h.shape, [rows, 2]);
    assert.deepEqual(await values(y.total), [6 * rows]);
    assert.deepEqual(await values(y.mean), rows ? [3, 3] : [NaN, NaN]);
    assert.deepEqual(await values(y.rows), [...new Array(2 * rows).fill(3), 1, 1]);
    assert.deepEqual(
      [y.rest.shape, y.picked.shape],
      [
        [0, 2],
        [rows, 3],
      ],
    );
  }
  const { weight } = new nn.Linear(3, 2);
  const gradient = compile((/** @type {any} */ x) => grad(F.linear(x, weight).sum(), [weight])[0]);
  assert.deepEqual(await values(gradient(zeros([0, 3]))), new Array(6).fill(0));
});

test('nothing is repeated or taken: results without elements, and gradients of zeros', async () => {
  const x = randn([2, 3]).requiresGrad_();
  for (const [f, shape] of /** @type {[(x: Tensor) => Tensor, number[]][]} */ ([
    [(y) => F.repeat(y, [0, 2]), [0, 6]],
    [(y) => F.repeat(y, [2, 1, 0]), [2, 2, 0]],
    [(y) => F.tile(y, [0]), [2, 0]],
    [(y) => F.repeatInterleave(y, 0, 1), [2, 0]],
    [(y) => F.repeatInterleave(y, 0), [0]],
    [(y) => F.repeatInterleave(y, [0, 0], 0), [0, 3]],
    [(y) => F.narrow(y, 1, 3, 0), [2, 0]],
  ])) {
    const both = (/** @type {Tensor} */ y) => ({ made: f(y), gradient: grad(f(y).sum(), [y])[0] });
    for (const run of [both, compile(both)]) {
      const { made, gradient } = run(x);
      assert.deepEqual([[...made.shape], await values(gradient)], [shape, new Array(6).fill(0)], String(f));
    }
  }
});

test('tensors without elements in files', async (t) => {
  const folder = temporaryFolder(t);
  const path = join(folder, 'x.safetensors');
  await save(path, { a: zeros([0, 3]), b: ones([2]), c: zeros([4, 0], { dtype: 'bf16' }), d: tensor(new Int32Array(0)) });
  const read = await load(path);
  assert.deepEqual(
    Object.entries(read).map(([name, { shape, dtype }]) => [name, shape, dtype]),
    [
      ['a', [0, 3], 'f32'],
      ['b', [2], 'f32'],
      ['c', [4, 0], 'bf16'],
      ['d', [0], 'i32'],
    ],
  );
  assert.deepEqual(await values(read.b), [1, 1]);
});
