// Tensors of no dimension: every operation that takes the shape, and every method, results and gradients, eager and compiled.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { apply } from '../../nn/core/engine.mjs';
import { denseLayout } from '../../nn/core/layout.mjs';
import { F, compile, grad, noGrad, ones, scope, tensor } from '../../nn/index.mjs';
import { operations } from '../../nn/ops/registry.mjs';
import { assertClose } from '../lib/random-data.mjs';
import { finiteDifferences } from '../lib/reference.mjs';
import { cases } from './cases.mjs';
import { initDevice, poison, values } from './setup.mjs';

before(() => {
  initDevice();
  poison();
});

/** Operations that check nothing, since their functions do. */
const UNCHECKED =
  /Backward$|Gradient$|Rest$|^diag|^(cat|copy_|lastQueries|pad|pick|reduceRuns|rowsByMatrix|complexTimes|argsort|flip|fold|unfold)$/;
/** Of which the function or method takes [] as [1]: below. */
const LIFTED = ['gather', 'scatter', 'scatterAdd', 'amax', 'amin', 'argmax', 'argmin'];

test('every operation that takes [] in the place of its operands', async () => {
  /** @type {string[]} */
  const taken = [];
  for (const [name, make] of Object.entries(cases)) {
    const op = /** @type {import('../../nn/ops/registry.mjs').Op} */ (operations.get(name));
    if (UNCHECKED.test(name) || LIFTED.includes(name)) continue;
    const { inputs, attributes: given = {}, dy: differentiate = true, random } = make();
    const attributes = 'shape' in given ? { ...given, shape: [] } : 'dims' in given ? { ...given, dims: [0] } : given;
    // Operands other than random states, of their first element.
    const own = inputs.map((input) =>
      input.dtype === 'u32' && input.shape[0] === 32 ? input : { ...input, shape: [], values: Float64Array.from(input.values.slice(0, 1)) },
    );
    try {
      const layouts = own.map(({ shape, dtype = 'f32' }) => denseLayout(shape, dtype));
      const [result] = op.infer(layouts, attributes);
      if (result.shape.length > 0) continue;
    } catch (/** @type {any} */ error) {
      assert.ok(['ShapeError', 'ArgumentError'].includes(error.name), `${name}: ${error.stack}`);
      continue;
    }
    taken.push(name);
    const numbers = own.map(({ shape, values: data, dtype = 'f32' }) => ({
      shape,
      data: dtype === 'f32' ? Float64Array.from(data, Math.fround) : data,
    }));
    const expected = op.oracle(numbers, attributes);
    const onDevice = () => own.map(({ shape, values: data, dtype = 'f32' }) => tensor(Float64Array.from(data), { shape, dtype }));
    const run = (/** @type {any[]} */ ...tensors) => apply(op, [...tensors], attributes);
    for (const [mode, f] of Object.entries({ eager: run, compiled: compile(run) })) {
      if (name === 'random' && mode === 'compiled') continue; // It moves its argument on.
      if (name === 'dropout' && mode === 'compiled') continue;
      const y = f(...onDevice());
      assert.deepEqual(y.shape, [], `${name}, ${mode}`);
      if (!random) assertClose(await y.toArray(), expected.data, 2 ** -8, `${name}, ${mode}`);
    }
    if (!op.vjp || !differentiate || random) continue;
    const leaves = onDevice().map((leaf, i) => (own[i].constant || (own[i].dtype ?? 'f32') !== 'f32' ? leaf : leaf.requiresGrad_()));
    scope(() => run(...leaves).backward());
    for (const [i, leaf] of leaves.entries()) {
      if (!leaf.requiresGrad) continue;
      assert.deepEqual(leaf.grad?.shape, [], name);
      const wanted = finiteDifferences(
        (/** @type {any} */ at) => op.oracle(numbers.with(i, { shape: [], data: at }), attributes).data,
        numbers[i].data,
        Float64Array.of(1),
      );
      assertClose(await /** @type {any} */ (leaf.grad).toArray(), wanted, 1e-4, `${name}: gradient of input ${i}`);
    }
  }
  for (const name of ['exp', 'add', 'where', 'sum', 'to', 'full', 'eq', 'copy', 'random', 'softmax']) assert.ok(taken.includes(name), name);
});

test('functions and methods of [], as in PyTorch', async () => {
  const x = tensor(2, { requiresGrad: true });
  const index = tensor(0, { dtype: 'i32' });
  for (const [run, shape, wanted] of /** @type {[() => any, number[], number[]][]} */ ([
    ...[undefined, 0, -1].flatMap((dim) =>
      /** @type {const} */ (['sum', 'mean', 'amax', 'amin']).flatMap((name) =>
        [false, true].map((keepdim) => /** @type {const} */ ([() => x[name](/** @type {any} */ (dim), keepdim), [], [2]])),
      ),
    ),
    [() => F.variance(x, 0, { correction: 0 }), [], [0]],
    [() => x.argmax(), [], [0]],
    [() => x.argmin(0, true), [], [0]],
    [() => x.softmax(), [], [1]],
    [() => F.logSoftmax(x, 0), [], [0]],
    [() => x.gather(0, index), [], [2]],
    [() => x.gather(-1, tensor([0, 0], { dtype: 'i32' })), [2], [2, 2]],
    [() => x.scatter(0, index, 5), [], [5]],
    [() => x.scatterAdd(0, index, x), [], [4]],
    [() => F.takeAlongDim(x, index), [], [2]],
    [() => F.oneHot(index, 2), [2], [1, 0]],
    [() => F.embedding(index, ones([2, 3])), [3], [1, 1, 1]],
    [() => x.maskedFill(tensor(true), 7), [], [7]],
    [() => F.where(x.gt(1), x, 0), [], [2]],
    [() => x.clamp(0, 1), [], [1]],
    [() => x.pow(3), [], [8]],
    [() => F.sumTo(ones([2, 3]), []), [], [6]],
    [() => F.mseLoss(x, tensor(3)), [], [1]],
    [() => F.crossEntropy(tensor([0, 0]), index), [], [Math.fround(Math.log(2))]],
    [() => F.linear(tensor([3, 4]), ones([2, 2]), ones([2])), [2], [8, 8]],
    [() => x.transpose(0, -1), [], [2]],
    [() => x.permute(), [], [2]],
    [() => x.reshape(), [], [2]],
    [() => x.reshape(-1), [1], [2]],
    [() => x.flatten(), [1], [2]],
    [() => x.unsqueeze(-1), [1], [2]],
    [() => x.squeeze(0), [], [2]],
    [() => x.expand(2, 1), [2, 1], [2, 2]],
    [() => F.stack([x, x], -1), [2], [2, 2]],
    [() => x.to('bf16'), [], [2]],
    [() => x.clone(), [], [2]],
    [() => noGrad(() => tensor(1).add_(x).mul_(3).copy_(x).fill_(4)), [], [4]],
  ])) {
    for (const f of [run, compile(run)]) {
      const y = f();
      assert.deepEqual([y.shape, (await values(y)).map(Math.fround)], [shape, wanted.map(Math.fround)], String(run));
    }
  }
  for (const f of [(/** @type {any} */ y) => y.amax(), (/** @type {any} */ y) => y.gather(0, index), (/** @type {any} */ y) => y.sum(-1)]) {
    assert.deepEqual(await values(grad(f(x), [x])[0]), [1]);
  }
  assert.equal(await x.toNested(), 2);
});

test('what has no meaning for [] is an error of the function', () => {
  const x = tensor(2);
  for (const [run, message] of /** @type {[() => any, RegExp][]} */ ([
    [() => x.matmul(x), /^ShapeError: matmul: \[\] × \[\]: a tensor \[\] is no matrix; use mul/],
    [() => x.at(0), /^ShapeError: at: index 0 is out of range for \[\]/],
    [() => x.slice(0), /^ShapeError: slice: a tensor \[\] has no dimension to slice/],
    [() => x.split(1), /^ShapeError: split: a tensor \[\] has no dimension to split/],
    [() => x.chunk(1), /^ShapeError: chunk: a tensor \[\] has no dimension to split/],
    [() => F.cat([x, x]), /^ShapeError: cat: tensors \[\] have no dimension to join along; stack\(\) makes one/],
    [() => x.T, /^ShapeError: T: dimension -2 is out of range/],
    [() => x.sum(1), /^ShapeError: sum: dimension 1 is out of range/],
    [() => x.amax(-2), /^ShapeError: amax: dimension -2 is out of range/],
    [() => x.softmax(1), /^ShapeError: softmax: dimension 1 is out of range/],
    [() => F.glu(x), /^ShapeError: glu: rows of/],
    [() => F.indexSelect(x, 0, tensor([0], { dtype: 'i32' })), /^ShapeError: indexSelect: a tensor \[\] has no dimension/],
  ])) {
    assert.throws(run, message);
  }
});
