// Edge cases: NaN and infinities, 16-bit rows of odd sizes, too few elements, more operands than a kernel has slots.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { pack } from '../../kernels/base.mjs';
import { mapRows } from '../../nn/core/codegen.mjs';
import { F, cat, compile, full, grad, nn, optim, randn, tensor } from '../../nn/index.mjs';
import { denseLayout } from '../../nn/core/layout.mjs';
import { runtime } from '../../nn/core/runtime.mjs';
import { bufferOf, vk, withNan } from '../lib/addon.mjs';
import { assertClose, normal } from '../lib/random-data.mjs';
import { initDevice, values } from './setup.mjs';

/** @typedef {import('../../nn/index.mjs').Tensor} Tensor */

before(initDevice);

test('amax and amin of rows with a NaN are NaN, eager and compiled, wherever it stands', async () => {
  for (const columns of [1, 2, 3, 4, 33, 1000, 5000]) {
    for (const at of new Set([0, columns >> 1, columns - 1])) {
      const data = new Float32Array(3 * columns).fill(1);
      data[columns + at] = NaN;
      for (const dtype of /** @type {const} */ (['f32', 'bf16', 'f16'])) {
        const x = tensor(data, { shape: [3, columns], dtype });
        for (const name of /** @type {const} */ (['amax', 'amin'])) {
          const what = `${name}, ${dtype}, element ${at} of ${columns}`;
          assert.deepEqual(await values(x[name]()), [1, NaN, 1], what);
          const f = compile((/** @type {any} */ v) => v.mul(2)[name]().add(1));
          assert.deepEqual(await values(f(x)), [3, NaN, 3], `${what}, compiled`);
          f.dispose();
        }
      }
    }
  }
});

test('clamp, maximum, minimum and relu propagate NaN, and pass no gradient where they cut, eager and compiled', async () => {
  const numbers = [NaN, -Infinity, -2, 0.5, 2, Infinity];
  for (const dtype of withNan(/** @type {const} */ (['f32', 'bf16', 'f16']))) {
    for (const [cut, y, passes] of /** @type {[(x: Tensor) => Tensor, number[], number[]][]} */ ([
      [(x) => x.clamp(-1, 1), [NaN, -1, -1, 0.5, 1, 1], [0, 0, 0, 1, 0, 0]],
      [(x) => x.maximum(-1), [NaN, -1, -1, 0.5, 2, Infinity], [0, 0, 0, 1, 1, 1]],
      [(x) => x.minimum(1), [NaN, -Infinity, -2, 0.5, 1, 1], [0, 1, 1, 1, 0, 0]],
      // As the second operand likewise.
      [(x) => full([], -1, { dtype }).maximum(x), [NaN, -1, -1, 0.5, 2, Infinity], [0, 0, 0, 1, 1, 1]],
      [(x) => full([], 1, { dtype }).minimum(x), [NaN, -Infinity, -2, 0.5, 1, 1], [0, 1, 1, 1, 0, 0]],
      [(x) => x.relu(), [NaN, 0, 0, 0.5, 2, Infinity], [0, 0, 0, 1, 1, 1]],
    ])) {
      const x = tensor(numbers, { dtype, requiresGrad: true });
      for (const slope of [3, Infinity]) {
        const dy = tensor(
          numbers.map(() => slope),
          { dtype },
        );
        const both = (/** @type {Tensor} */ x) => [cut(x), ...grad(cut(x).mul(dy).sum(), [x])];
        const compiled = compile(both);
        for (const results of [both(x), compiled(x)]) {
          const what = `${cut}, ${dtype}, ${slope}`;
          assert.deepEqual(await values(results[0]), y, what);
          assert.deepEqual(
            await values(results[1]),
            passes.map((pass) => (pass ? slope : 0)),
            what,
          );
        }
        compiled.dispose();
      }
    }
  }
});

test("amax's gradient goes to infinities as to numbers, and has its operand's type", async () => {
  for (const [row, expected] of [
    [
      [1, Infinity, 3],
      [0, 1, 0],
    ],
    [
      [-Infinity, -Infinity],
      [0.5, 0.5],
    ],
    [
      [2, 1, 2],
      [0.5, 0, 0.5],
    ],
  ]) {
    for (const dtype of /** @type {const} */ (['f32', 'bf16'])) {
      const x = tensor([row], { dtype, requiresGrad: true });
      const [dx] = grad(x.amax().to('f32').sum(), [x]);
      assert.deepEqual([dx.dtype, await values(dx)], [dtype, expected], `${row}`);
    }
  }
});

test('rows of odd sizes in 16 bits: every operation of rows, forward and backward, within a rounding of f32', async () => {
  /** @type {Record<string, (x: any) => any>} */
  const operations = {
    amax: (x) => x.amax(),
    'amin of columns': (x) => x.amin(0),
    'gated units': (x) => F.glu(cat([x, x.mul(2)], 1), 'silu'),
    rmsNorm: (x) => F.rmsNorm(x, full([x.shape[1]], 1)),
    layerNorm: (x) => F.layerNorm(x, full([x.shape[1]], 1), full([x.shape[1]], 0)),
    embedding: (x) => F.embedding(tensor(Int32Array.of(0, 2, 0)), x),
    'largest of windows': (x) => F.maxPool2d(x.reshape(1, 1, x.shape[0], x.shape[1]), [3, 1], { stride: 1 }),
  };
  for (const dtype of /** @type {const} */ (['f16', 'bf16'])) {
    const bound = dtype === 'f16' ? 2 ** -8 : 2 ** -5;
    for (const shape of [
      [3, 5],
      [4, 1],
      [3, 6],
    ]) {
      const data = tensor(normal(shape[0] * shape[1]), { shape, dtype });
      for (const [name, f] of Object.entries(operations)) {
        const results = ['f32', dtype].map((type) => {
          const x = data
            .to(/** @type {any} */ (type))
            .detach()
            .clone()
            .requiresGrad_();
          const y = f(x);
          assert.deepEqual([y.dtype, x.dtype], [type, type]);
          return [y.to('f32').detach(), ...grad(y.to('f32').mul(0.7).sum(), [x])];
        });
        for (const i of [0, 1]) {
          const [expected, actual] = [await values(results[0][i]), await values(results[1][i])];
          const largest = Math.max(...expected.map(Math.abs), 1);
          actual.forEach((v, k) => assert.ok(Math.abs(v - expected[k]) <= bound * largest, `${name} of ${dtype} [${shape}], ${i}: ${v}`));
        }
      }
    }
  }
});

test('a variance of too few elements says so', () => {
  assert.throws(() => F.variance(tensor([5])), /variance: correction must be a number less than the number of elements, 1, got 1/);
  assert.throws(
    () => F.variance(tensor([[1, 2]]), 1, { correction: NaN }),
    /variance: correction must be a number less than .* 2, got NaN/,
  );
});

test('hundreds of tensors end to end, with gradients, eager and compiled', async () => {
  const x = randn([700], { requiresGrad: true });
  const parts = () => Array.from({ length: 700 }, (_, i) => x.slice(0, i, i + 1));
  const joined = () => cat(parts().reverse());
  const whole = () => [
    joined().detach(),
    ...grad(
      joined()
        .mul(tensor(Float32Array.from({ length: 700 }, (_, i) => i)))
        .sum(),
      [x],
    ),
  ];
  const numbers = await values(x);
  for (const f of [whole, compile(whole)]) {
    const [y, dx] = f();
    assert.deepEqual(await values(y), numbers.toReversed());
    assert.deepEqual(
      await values(dx),
      Array.from({ length: 700 }, (_, i) => 699 - i),
    );
  }
});

test('a step clips the gradients of hundreds of parameters between frozen ones', async () => {
  const parameters = Array.from({ length: 601 }, () => new nn.Parameter(full([2], 1)));
  const opt = new optim.SGD(parameters, { lr: 1, clip: 1 });
  const trained = parameters.filter((_, i) => i % 2 === 0);
  const loss = () => trained.reduce((sum, p) => sum.add(p.mul(3).sum()), full([], 0));
  for (const run of [() => loss().backward(), compile(() => loss().backward())]) {
    run();
    opt.step();
  }
  // Twice by 1 / √(2 · 301): what is clipped has a norm of 1.
  const expected = 1 - 2 / Math.sqrt(602);
  assertClose((await Promise.all(trained.map(values))).flat(), new Float64Array(602).fill(expected), 1e-5, 'trained');
  assert.deepEqual(await values(parameters[1]), [1, 1]);
  opt.dispose();
});

test('a number that elements of an integer tensor cannot be is an error, not rounded', async () => {
  const [i, u] = [tensor(Int32Array.of(0, 1)), tensor(Uint32Array.of(0, 1))];
  const mask = tensor([true, false]);
  for (const [run, message] of /** @type {[() => any, RegExp][]} */ ([
    [() => u.gt(-1), /gt: -1 is not a u32/],
    [() => i.le(2 ** 31), /le: 2147483648 is not an i32/],
    [() => i.maskedFill(mask, 0.5), /maskedFill: 0.5 is not an i32/],
    [() => full([1], 1.5, { dtype: 'i32' }), /full: 1.5 is not an i32/],
    [() => i.fill_(0.5), /fill_: 0.5 is not an i32/],
    [() => i.mul_(/** @type {any} */ (undefined)), /mul_: expected a tensor or a number, got undefined/],
  ]))
    assert.throws(run, message);
  assert.deepEqual(await values(u.maskedFill(mask, 2 ** 32 - 1)), [2 ** 32 - 1, 1]);
  assert.deepEqual(await values(i.ge(-(2 ** 31))), [1, 1]);
});

test('an optimizer that cannot be made leaves its parameters free; what it loads is of its kind', async () => {
  const model = new nn.Linear(3, 2);
  for (const [make, message] of /** @type {[() => any, RegExp][]} */ ([
    [() => new optim.AdamW(model.parameters(), { betas: [2, 0.9] }), /beta1 must be in \[0, 1\), got 2/],
    [() => new optim.AdamW(model.parameters(), { eps: -1 }), /AdamW: eps must be a number of at least 0, got -1/],
    [() => new optim.SGD(model.parameters(), { momentum: NaN }), /SGD: momentum must be a number of at least 0, got NaN/],
    [
      () => new optim.SGD([{ params: [model.weight] }, { params: [/** @type {any} */ (model.bias)], schedule: { total: 0.5 } }]),
      /total must be an integer/,
    ],
  ])) {
    assert.throws(make, message);
  }
  const adam = new optim.AdamW(model.parameters());
  const state = adam.stateDict();
  adam.dispose();
  const sgd = new optim.SGD(model.parameters(), { momentum: 0.9 });
  assert.throws(() => sgd.loadStateDict(state), /loadStateDict: unexpected: 0.0.second, which this SGD does not have/);
  const one = new optim.AdamW([new nn.Parameter(full([2, 3], 0))]);
  assert.throws(() => one.loadStateDict(state), /loadStateDict: unexpected: 0.1.first, which this AdamW does not have/);
  for (const opt of [sgd, one]) opt.dispose();
});

test('sums of more rows than a loop of lavapipe has rounds (65,535), eager and compiled', async () => {
  const rows = 200_001;
  const x = full([rows, 8], 1);
  const expected = new Array(8).fill(2 * rows);
  assert.deepEqual(await values(x.mul(2).sum(0)), expected);
  const f = compile((/** @type {any} */ v) => v.mul(2).sum(0));
  assert.deepEqual(await values(f(x)), expected, 'compiled');
  const many = full([2 ** 22, 2], 1);
  assert.deepEqual(await values(many.sum(0)), [2 ** 22, 2 ** 22]);
  f.dispose();
  for (const y of [x, many]) y.dispose();
});

test('more rounds of a loop than a CPU device carries out are an error there that names them', async () => {
  const { isCpu } = runtime().kernels.context;
  /** @param {() => Tensor} body @param {RegExp} error @param {(found: number[]) => void} check where there is no such limit */
  const beyond = async (body, error, check) => {
    if (isCpu) await assert.rejects(async () => values(body()), { name: 'RangeError', message: error });
    else check(await values(body()));
  };
  const row = (/** @type {number} */ length) => cat([full([length - 1], 1), full([1], 2)]);
  for (const length of [1_000_000, 1_100_000]) {
    const x = row(length);
    if (length === 1_000_000) assert.deepEqual(await values(x.argmax()), [length - 1]);
    else
      await beyond(
        () => x.argmax(),
        /^argExtreme: rows of 1100000 take 68756 rounds of a loop/,
        (found) => assert.deepEqual(found, [length - 1]),
      );
    x.dispose();
  }
  for (const length of [60_000, 70_000]) {
    const [x, ones, index] = [full([3], 5), full([length], 1), full([length], 2, { dtype: 'i32' })];
    for (const put of [F.scatterAdd, F.scatter]) {
      const expected = [5, 5, put === F.scatter ? 1 : 5 + length];
      if (length === 60_000) assert.deepEqual(await values(put(x, 0, index, ones)), expected);
      else {
        // Many indices are sorted before they are added.
        const error =
          put === F.scatter
            ? /^scatter: 70000 indices of a place take 70001 rounds of a loop/
            : /^reduceRuns: 70000 indices of a row, should they be equal, take \d+ rounds of a loop/;
        await beyond(
          () => put(x, 0, index, ones),
          error,
          (found) => assert.deepEqual(found, expected),
        );
      }
    }
    for (const tensor of [x, ones, index]) tensor.dispose();
  }
  for (const length of [2 ** 21, 2 ** 22]) {
    const [x, weight] = [row(length), full([length], 1)];
    const last = Math.E / (length - 1 + Math.E);
    const root = Math.sqrt((length + 3) / length + 1e-5);
    const near = (/** @type {number} */ expected) => (/** @type {number[]} */ found) =>
      assert.ok(Math.abs(/** @type {number} */ (found.at(-1)) - expected) < 1e-4 * expected, `${found.at(-1)} instead of ${expected}`);
    for (const [body, expected] of /** @type {[() => Tensor, number][]} */ ([
      [() => F.softmax(x), last],
      [() => F.rmsNorm(x, weight), 2 / root],
    ])) {
      if (length === 2 ** 21) near(expected)(await values(body()));
      else await beyond(body, /^(softmax|rmsNorm)Forward: rows of 4194304 take 98305 rounds of a loop/, near(expected));
    }
    for (const tensor of [x, weight]) tensor.dispose();
  }
});

test('compiled rows: more rounds of a loop than a CPU device carries out are an error, and at the limit the last column is seen', (t) => {
  const { context } = runtime().kernels;
  if (!context.isCpu) return t.skip('a GPU has no such limit');
  /** @param {number} columns @param {number} depth reductions, each of what the one before gives @param {boolean} each with an output of elements */
  const last = (columns, depth, each) => {
    const data = new Float32Array(columns);
    data[columns - 1] = 1;
    const [x, sum, y] = [data, new Float32Array(4), new Float32Array(each ? columns : 4)].map((array) => bufferOf(array));
    const operand = (/** @type {number} */ buffer, /** @type {number[]} */ shape) => ({
      buffer,
      offset: 0,
      layout: denseLayout(shape, 'f32'),
    });
    try {
      const row = [1, columns];
      const outputs = [operand(sum, [1]), ...(each ? [operand(y, row)] : [])];
      const dispatch = mapRows(context, { rows: 1, columns, shape: row }, [operand(x, row)], outputs, (program, [v]) => {
        let total = program.append('reduceSum', v);
        for (let i = 1; i < depth; i++) total = program.append('reduceSum', program.append('mul', v, total));
        return [total, program.append('mul', v, total)];
      });
      assert.ok(dispatch);
      const { packed, count } = pack(dispatch);
      vk.waitTimeline(vk.batchExecuteAll(packed, count));
      return each ? [vk.readBuffer(sum)[0], vk.readBuffer(y)[columns - 1]] : [vk.readBuffer(sum)[0]];
    } finally {
      for (const handle of [x, sum, y]) vk.destroyBuffer(handle);
    }
  };
  // Eight lanes take fours, in 65,000 rounds together; rows that are not of fours take two for each.
  for (const [most, beyond, depth, each, rounds] of /** @type {[number, number, number, boolean, number][]} */ ([
    [2_079_936, 2_079_968, 1, false, 65001],
    [1_039_936, 1_039_968, 2, false, 65001],
    [1_039_936, 1_039_968, 1, true, 65001],
    [1_039_903, 1_039_905, 1, false, 65001],
  ])) {
    assert.deepEqual(last(most, depth, each), each ? [1, 1] : [1]);
    assert.throws(() => last(beyond, depth, each), {
      name: 'RangeError',
      message: `compile: rows of ${beyond} take ${rounds} rounds of a loop: on a CPU device at most 65000 are allowed`,
    });
  }
});
