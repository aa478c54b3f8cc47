// Elements at the ends of their types: indices of 64 bits, and floats that no integer has.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { tensor, zeros } from 'helios-vk/nn';
import { loadOnnx } from 'helios-onnx';
import { INT64, bytesOf, floats, int, node, port } from './lib/messages.mjs';

/** A model of one node. @param {string} op @param {object[]} input @param {object[]} output @param {object[]} [attribute] */
const modelOf = (op, input, output, attribute = []) => {
  const names = (/** @type {any[]} */ ports) => ports.map(({ name }) => name);
  return loadOnnx(bytesOf({ node: [node(op, names(input), names(output), attribute)], input, output }));
};
const text = (/** @type {string} */ name, /** @type {string} */ s) => ({ name, type: 3, s: Buffer.from(s) });
const ints = (/** @type {string} */ name, /** @type {number[]} */ list) => ({ name, type: 7, ints: list });
/** An index that 32 bits would take for 1. */
const FAR = 2n ** 32n + 1n;

test('indices beyond 32 bits are out of range: they do not wrap', async () => {
  const gather = await modelOf('Gather', [port('x', [3]), port('i', [2], INT64)], [port('y', [2])]);
  assert.deepEqual([...(await gather.forward(tensor([5, 6, 7]), tensor([FAR, 2n])).toArray())], [0, 7]);

  const loss = await modelOf(
    'NegativeLogLikelihoodLoss',
    [port('x', [2, 3]), port('t', [2], INT64)],
    [port('y', [2])],
    [text('reduction', 'none')],
  );
  const logs = tensor([-1, -2, -3, -4, -5, -6], { shape: [2, 3] });
  assert.deepEqual(Array.from(await loss.forward(logs, tensor([1n, FAR])).toArray(), Math.abs), [2, 0]);

  const turned = await modelOf(
    'RotaryEmbedding',
    [port('x', [1, 1, 2, 2]), port('cos', [2, 1]), port('sin', [2, 1]), port('at', [1, 2], INT64)],
    [port('y', [1, 1, 2, 2])],
  );
  const table = tensor([1, 2], { shape: [2, 1] });
  const rows = tensor([3, 4, 3, 4], { shape: [1, 1, 2, 2] });
  const places = tensor([1n, FAR]).reshape(1, 2);
  assert.deepEqual([...(await turned.forward(rows, table, table, places).toArray())], [-2, 14, 0, 0]);

  const unpool = await modelOf(
    'MaxUnpool',
    [port('x', [1, 1, 2]), port('i', [1, 1, 2], INT64)],
    [port('y', [1, 1, 4])],
    [ints('kernel_shape', [2]), ints('strides', [2])],
  );
  const x = tensor([8, 9], { shape: [1, 1, 2] });
  assert.deepEqual([...(await unpool.forward(x, tensor([0n, FAR]).reshape(1, 1, 2)).toArray())], [8, 0, 0, 0]);
});

test('floats become integers on the host as on the device', async () => {
  const numbers = [1e19, -1e19, NaN, Infinity, -Infinity, 2 ** 63, -(2 ** 63), 3e9, -3e9, 300.75, -5.5];
  /** @type {[type: number, first: bigint[]][]} */
  const expected = [
    [7, [2n ** 63n - 1n, -(2n ** 63n), 0n]],
    [13, [2n ** 63n - 1n, 2n ** 63n, 0n]],
    [6, [2n ** 31n - 1n, -(2n ** 31n), 0n]],
    [12, [2n ** 32n - 1n, 0n, 0n]],
    [5, [-1n, 0n, 0n]],
    [3, [-1n, 0n, 0n]],
    [2, [255n, 0n, 0n]],
  ];
  for (const [type, first] of expected) {
    const model = await modelOf('Cast', [port('x', [11])], [port('y', [11], type)], [int('to', type)]);
    const [host, device] = await Promise.all(
      [numbers, tensor(numbers)].map(async (x) => Array.from((await model.values(x)).y.elements ?? [], BigInt)),
    );
    assert.deepEqual(host, device, `type ${type}`);
    assert.deepEqual(host.slice(0, 3), first, `type ${type}`);
  }
});

test('an activation of an infinity is one', async () => {
  const model = await modelOf('Gelu', [port('x', [3])], [port('y', [3])]);
  assert.deepEqual([...(await model.forward(tensor([Infinity, 0, 3e38])).toArray())], [Infinity, 0, Math.fround(3e38)]);
});

test('sums of no elements are none', async () => {
  for (const reverse of [0, 1]) {
    const ports = [port('x', [2, 0]), port('axis', [], INT64)];
    const model = await modelOf('CumSum', ports, [port('y', [2, 0])], [int('exclusive', 1), int('reverse', reverse)]);
    assert.deepEqual((await model.forward(zeros([2, 0]), 1)).shape, [2, 0]);
  }
});

test('a row and a column that the host knows may be a matrix that it does not compute', async () => {
  const rows = 300;
  const input = [port('i', [rows, 1], INT64), port('j', [1, rows], INT64)];
  const counted = BigInt64Array.from({ length: rows }, (_, i) => BigInt(i));
  const [i, j] = [counted, counted.toReversed()].map((list, d) => Array.from(list, (each) => (d === 0 ? [each] : each)));
  const model = await loadOnnx(
    bytesOf({
      node: [node('Equal', ['i', 'j'], ['same']), node('Add', ['i', 'j'], ['sum'])],
      input,
      output: [port('same', [rows, rows], 9), port('sum', [rows, rows], INT64)],
    }),
  );
  const results = await model.values({ i, j: [j] });
  const [same, sum] = [results.same, results.sum].map(({ elements }) => Array.from(elements ?? [], Number));
  assert.equal(
    same.reduce((a, b) => a + b, 0),
    300,
  );
  assert.equal(same[299], 1);
  assert.deepEqual([sum[0], sum.at(-1), sum.length], [299, 299, 90_000]);
  model.dispose();
});

test('before opset 13 Hardmax takes the dimensions from its axis on as one, and infinities leave no NaN', async () => {
  const hardmax = (/** @type {number} */ version) =>
    loadOnnx(
      bytesOf(
        { node: [node('Hardmax', ['x'], ['y'], [int('axis', 1)])], input: [port('x', [1, 2, 2])], output: [port('y', [1, 2, 2])] },
        { opsetImport: [{ domain: '', version }] },
      ),
    );
  const x = tensor([1, -Infinity, 3, Infinity], { shape: [1, 2, 2] });
  assert.deepEqual([...(await (await hardmax(12)).forward(x).toArray())], [0, 0, 0, 1]);
  assert.deepEqual([...(await (await hardmax(13)).forward(x).toArray())], [0, 0, 1, 1]);
  const relu = await modelOf('ThresholdedRelu', [port('x', [3])], [port('y', [3])]);
  assert.deepEqual([...(await relu.forward(tensor([-Infinity, 0.5, 2])).toArray())], [0, 0, 2]);
});

test('Resize of opset 10 has its scales as second input', async () => {
  const resized = async (/** @type {number} */ scale, /** @type {string} */ mode) => {
    const model = await loadOnnx(
      bytesOf(
        {
          node: [node('Resize', ['x', 's'], ['y'], [text('mode', mode)])],
          initializer: [floats('s', [2], [1, scale])],
          input: [port('x', [1, 5])],
          output: [port('y', [1, 'columns'])],
        },
        { opsetImport: [{ domain: '', version: 10 }] },
      ),
    );
    return [...(await model.forward(tensor([0, 10, 20, 30, 40], { shape: [1, 5] })).toArray())].map(Math.round);
  };
  // What onnxruntime 1.32 gives.
  assert.deepEqual(await resized(1.5, 'nearest'), [0, 0, 10, 20, 20, 30, 40]);
  assert.deepEqual(await resized(0.7, 'nearest'), [0, 20, 30]);
  assert.deepEqual(await resized(1.5, 'linear'), [0, 7, 13, 20, 27, 33, 40]);
});

test("Dropout's mask has the type of x before opset 10, and is of ones where nothing is dropped", async () => {
  for (const [opset, type] of /** @type {const} */ ([
    [7, 'float'],
    [10, 'bool'],
    [13, 'bool'],
  ])) {
    const graph = { node: [node('Dropout', ['x'], ['y', 'mask'])], input: [port('x', [3])], output: [{ name: 'y' }, { name: 'mask' }] };
    const model = await loadOnnx(bytesOf(graph, { opsetImport: [{ domain: '', version: opset }] }));
    const { mask } = await model.values({ x: [1, 2, 3] });
    assert.deepEqual([mask.type, Array.from(mask.elements ?? [], Number)], [type, [1, 1, 1]], `opset ${opset}`);
    model.dispose();
  }
});
