// Models made here, message by message: what `loadOnnx` makes of them, trains and refuses.

import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';

import { F, compile, nn, optim, tensor, traceOperations, zeros } from 'helios-vk/nn';
import { loadOnnx } from 'helios-onnx';
import { BOOL, FLOAT, INT64, WEIGHT, bytesOf, floats, graphOf, int, integers, ints, linear, node, port } from './lib/messages.mjs';
import { temporaryFolder } from '../../../__test__/lib/folder.mjs';

const X = [1, -1, 2, 0.5];
const Y = [0, 0, 0, 4.5, 0, 10];

test('a model is a module with the names of its file, called by name and by position', async () => {
  const model = await loadOnnx(bytesOf(linear()));
  assert.ok(model instanceof nn.Module);
  assert.equal(model.training, false);
  assert.deepEqual(Object.keys(model.stateDict()), ['layer.weight', 'layer.bias']);
  assert.equal(model.parameters().length, 2);
  assert.deepEqual(model.inputs, [{ name: 'x', type: 'float', shape: ['rows', 2] }]);
  const x = tensor(X, { shape: [2, 2] });
  assert.deepEqual([...(await model.forward(x).toArray())], Y);
  assert.deepEqual([...(await model.forward({ x }).toArray())], Y);
  assert.deepEqual(
    [
      ...(await model
        .forward({
          x: [
            [1, -1],
            [2, 0.5],
          ],
        })
        .toArray()),
    ],
    Y,
  );
  const compiled = compile((/** @type {any} */ input) => model.forward(input));
  assert.deepEqual([...(await compiled(x).toArray())], Y);
  model.dispose();
});

test('inputs that a model cannot take are errors that name them', async () => {
  const model = await loadOnnx(bytesOf(linear()));
  const x = tensor(X, { shape: [2, 2] });
  assert.throws(() => model.forward({ z: x }), /the model has no input z; it has x/);
  assert.throws(() => model.forward(), /the input x is missing/);
  assert.throws(() => model.forward(x, x), /takes 1 inputs, x, got 2/);
  assert.throws(() => model.forward(tensor(X)), /the input x must have the shape \[rows, 2\], got \[4\]/);
  assert.throws(
    () => model.forward(tensor([1, 2], { shape: [1, 2], dtype: 'i32' })),
    /the input x is float in the file: expected a tensor of f32, got i32/,
  );
  model.dispose();
});

test('a size of -1, as Paddle2ONNX writes it, is any', async () => {
  const model = await loadOnnx(bytesOf({ ...linear(), input: [port('x', [-1, 2])] }));
  assert.deepEqual(model.inputs, [{ name: 'x', type: 'float', shape: ['', 2] }]);
  assert.deepEqual([...(await model.forward(tensor(X, { shape: [2, 2] })).toArray())], Y);
  assert.throws(() => model.forward(tensor(X)), /the input x must have the shape \[\?, 2\], got \[4\]/);
  model.dispose();
});

test('it trains: gradients of parameters, and a step of an optimizer', async () => {
  const model = await loadOnnx(bytesOf(linear()));
  const x = tensor(X, { shape: [2, 2] });
  F.sum(model.forward(x)).backward();
  const { 'layer.weight': weight, 'layer.bias': bias } = /** @type {any} */ (model);
  // Only the second row's first and last results are above 0.
  assert.deepEqual([...(await weight.grad.toArray())], [2, 0, 2, 0.5, 0, 0.5]);
  assert.deepEqual([...(await bias.grad.toArray())], [1, 0, 1]);
  const optimizer = new optim.SGD(model.parameters(), { lr: 0.5, momentum: 0 });
  optimizer.step();
  assert.deepEqual([...(await weight.toArray())], [0, 2, 2, 3.75, 5, 5.75]);
  optimizer.dispose();
  model.dispose();
});

test('numbers without dimensions are no parameters, and those that take their place count', async () => {
  // (w x)² + k, with an integer that is kept on the host too. A trained exponent would have the gradient log(w x): NaN for negative ones.
  const graph = {
    node: [
      node('Mul', ['x', 'w'], ['p']),
      node('Pow', ['p', 'two'], ['q']),
      node('Cast', ['k'], ['f'], [int('to', FLOAT)]),
      node('Add', ['q', 'f'], ['y']),
    ],
    initializer: [floats('w', [2], [-1, 2]), floats('two', [], [2]), integers('k', [1], [5])],
    input: [port('x', ['rows', 2])],
    output: [port('y', ['rows', 2])],
  };
  const model = await loadOnnx(bytesOf(graph));
  assert.deepEqual(
    Array.from(model.namedParameters(), ([name]) => name),
    ['w'],
  );
  const x = tensor([1, 2], { shape: [1, 2] });
  const y = model.forward(x);
  assert.deepEqual([...(await y.toArray())], [6, 21]);
  F.sum(y).backward();
  const { grad } = /** @type {import('helios-vk/nn').Tensor} */ (model.weights.get('w'));
  assert.deepEqual([...(await /** @type {import('helios-vk/nn').Tensor} */ (grad).toArray())], [-2, 16]);
  // In place, and by assignment: the host has the old numbers.
  model.loadStateDict({ ...model.stateDict(), k: tensor([7], { dtype: 'i64' }), two: tensor(1) });
  assert.deepEqual([...(await model.forward(x).toArray())], [6, 11]);
  /** @type {any} */ (model).two = new nn.Parameter(tensor(3));
  assert.deepEqual([...(await model.forward(x).toArray())], [6, 71]);
  assert.equal(model.parameters().length, 2);
  model.dispose();
});

test('a part that a known index names is a view: no kernel copies it', async () => {
  const graph = {
    node: [node('Gather', ['x', 'first'], ['p']), node('Gather', ['x', 'last'], ['q']), node('Sub', ['p', 'q'], ['y'])],
    initializer: [integers('first', [], [0]), integers('last', [1], [-1])],
    input: [port('x', [3, 'n'])],
    output: [port('y', [1, 'n'])],
  };
  const model = await loadOnnx(bytesOf(graph));
  const x = tensor([1, 2, 3, 4, 5, 7], { shape: [3, 2], requiresGrad: true });
  const y = model.forward(x);
  assert.deepEqual(y.shape, [1, 2]);
  assert.deepEqual([...(await y.toArray())], [-4, -5]);
  F.sum(y).backward();
  assert.deepEqual([...(await /** @type {any} */ (x.grad).toArray())], [1, 1, 0, 0, -1, -1]);
  const compiled = compile((/** @type {any} */ input) => model.forward(input));
  assert.deepEqual([...(await compiled(x.detach()).toArray())], [-4, -5]);
  assert.equal(compiled.explain()[0].dispatches, 1);
  model.dispose();
});

test('shapes are computed on the host: no input is read', async () => {
  // y = reshape(x, concat([shape(x)[0]], [-1]))
  const graph = {
    node: [
      node('Shape', ['x'], ['s']),
      node('Gather', ['s', 'zero'], ['rows'], [int('axis', 0)]),
      node('Concat', ['rows', 'rest'], ['to'], [int('axis', 0)]),
      node('Reshape', ['x', 'to'], ['y']),
    ],
    initializer: [integers('zero', [1], [0]), integers('rest', [1], [-1])],
    input: [port('x', ['n', 2, 2])],
    output: [port('y', ['n', 4])],
  };
  const model = await loadOnnx(bytesOf(graph));
  assert.deepEqual(model.parameters(), []);
  assert.deepEqual(compile((/** @type {any} */ x) => model.forward(x))(tensor(new Float32Array(12), { shape: [3, 2, 2] })).shape, [3, 4]);
});

test('an input that a shape is made of is given as an array, or read by run', async () => {
  const graph = {
    node: [node('Reshape', ['x', 'to'], ['y'])],
    input: [port('x', [4]), port('to', [2], INT64)],
    output: [port('y', ['a', 'b'])],
  };
  const model = await loadOnnx(bytesOf(graph));
  assert.deepEqual(model.hostInputs, ['to']);
  const x = tensor(X);
  assert.deepEqual(model.forward(x, [2, 2]).shape, [2, 2]);
  assert.deepEqual(model.forward(x, new BigInt64Array([1n, -1n])).shape, [1, 4]);
  const to = tensor([2, -1], { dtype: 'i32' });
  assert.throws(
    () => model.forward(x, to),
    /Reshape 'y' \(opset 17\) needs the elements of to, int64 \[2\], on the host: give to as an array, or use await/,
  );
  assert.deepEqual((await model.run(x, to)).shape, [2, 2]);
});

test('integers of 64 bits are exact: quotients, powers, order, means, on the device and on the host', async () => {
  const LONG = [
    0n,
    1n,
    -1n,
    7n,
    -7n,
    1000n,
    2n ** 31n,
    2n ** 32n - 1n,
    -(2n ** 32n),
    2n ** 53n + 1n,
    0x123456789abcdefn,
    -0xfedcba987654321n,
  ];
  LONG.push(-(2n ** 63n), 2n ** 63n - 1n, 3n * 2n ** 40n + 5n, 2n ** 24n + 1n);
  const pairs = LONG.flatMap((a) => LONG.filter((b) => b !== 0n).map((b) => [a, b]));
  const [as, bs] = [0, 1].map((i) => BigInt64Array.from(pairs, (pair) => pair[i]));
  const count = pairs.length;
  /** @param {object[]} nodes @param {any} more @param {any[]} inputs */
  const run = async (nodes, more, ...inputs) => {
    const model = await loadOnnx(bytesOf({ node: nodes, output: [port('y', ['n'], INT64)], ...more }));
    return [.../** @type {any} */ ((await model.values(...inputs)).y.elements)].map(BigInt);
  };
  const two = { input: [port('a', [count], INT64), port('b', [count], INT64)] };
  const wrapped = (/** @type {bigint} */ v) => BigInt.asIntN(64, v);
  /** @type {[string, object[], (a: bigint, b: bigint) => bigint][]} */
  const cases = [
    ['Div', [], (a, b) => a / b],
    ['Mod', [], (a, b) => ((a % b) + b) % b],
    ['Mod', [int('fmod', 1)], (a, b) => a % b],
  ];
  for (const [op, attributes, of] of cases) {
    assert.deepEqual(
      await run([node(op, ['a', 'b'], ['y'], attributes)], two, tensor(as), tensor(bs)),
      pairs.map(([a, b]) => wrapped(of(a, b))),
      op,
    );
  }
  const exponents = BigInt64Array.from(pairs, (_, i) => BigInt(i % 41));
  assert.deepEqual(
    await run([node('Pow', ['a', 'b'], ['y'])], two, tensor(as), tensor(exponents)),
    pairs.map(([a], i) => wrapped(a ** exponents[i])),
  );
  for (const largest of [0, 1]) {
    const k = { input: [port('a', [LONG.length], INT64)], initializer: [integers('k', [1], [LONG.length])] };
    const sorted = LONG.toSorted((p, q) => (p < q ? -1 : 1) * (largest ? -1 : 1));
    const nodes = [node('TopK', ['a', 'k'], ['y', 'i'], [int('largest', largest)])];
    assert.deepEqual(await run(nodes, k, tensor(BigInt64Array.from(LONG))), sorted);
  }
  const sums = { input: [port('a', [LONG.length], INT64)], initializer: [integers('axis', [], [0])] };
  const running = (/** @type {bigint[]} */ list) => list.map((_, i) => wrapped(list.slice(0, i + 1).reduce((a, b) => a + b)));
  const all = tensor(BigInt64Array.from(LONG));
  assert.deepEqual(await run([node('CumSum', ['a', 'axis'], ['y'])], sums, all), running(LONG));
  const backwards = [node('CumSum', ['a', 'axis'], ['y'], [int('reverse', 1), int('exclusive', 1)])];
  assert.deepEqual(await run(backwards, sums, all), [0n, ...running(LONG.toReversed())].slice(0, -1).toReversed());
  const three = { input: [port('a', [3], INT64)] };
  const numbers = [2n ** 40n + 1n, 2n ** 41n, -5n];
  const total = numbers.reduce((a, b) => a + b);
  const averaged = [node('ReduceMean', ['a'], ['y'], [{ name: 'axes', type: 7, ints: [0] }])];
  assert.deepEqual(await run(averaged, three, tensor(BigInt64Array.from(numbers))), [total / 3n]);
  // Given as arrays: what no number has exactly is the device's.
  assert.deepEqual(await run([node('Mul', ['a', 'a'], ['y'])], three, [2 ** 31 + 1, 2 ** 32, -3]), [(2n ** 31n + 1n) ** 2n, 0n, 9n]);
});

test('products of integers are exact where f32 has not their sum', async () => {
  const size = 5000;
  const graph = (/** @type {string} */ op, /** @type {number[][]} */ shapes) => ({
    node: [node(op, ['a', 'b'], ['y'])],
    input: shapes.map((shape, i) => port('ab'[i], shape, 2)),
    output: [port('y', ['n'], 6)],
  });
  const bytes = Uint8Array.from({ length: size }, (_, i) => 255 - (i % 3));
  const sum = bytes.reduce((total, each) => total + each * each, 0);
  for (const [op, shapes] of /** @type {[string, number[][]][]} */ ([
    [
      'MatMulInteger',
      [
        [1, size],
        [size, 1],
      ],
    ],
    [
      'ConvInteger',
      [
        [1, size, 1, 1],
        [1, size, 1, 1],
      ],
    ],
  ])) {
    const model = await loadOnnx(bytesOf(graph(op, shapes)));
    const y = await model.run(...shapes.map((shape) => tensor(bytes, { shape, dtype: 'u8' })));
    assert.deepEqual([...(await y.toArray())], [sum], op);
  }
});

test('constants of integers are exact, and integers of a wider type are no input', async () => {
  const most = {
    node: [node('Constant', [], ['y'], [int('value_int', /** @type {any} */ ('9223372036854775807'))])],
    output: [port('y', [], INT64)],
  };
  assert.deepEqual([.../** @type {any} */ ((await (await loadOnnx(bytesOf(most))).values()).y.elements)], [2n ** 63n - 1n]);
  const none = {
    node: [node('ReduceMax', ['x'], ['y'], [{ name: 'axes', type: 7, ints: [0] }])],
    input: [port('x', [0], INT64)],
    output: [port('y', [1], INT64)],
  };
  assert.deepEqual([.../** @type {any} */ ((await (await loadOnnx(bytesOf(none))).values([])).y.elements)], [-(2n ** 63n)]);
  const narrow = { node: [node('Neg', ['x'], ['y'])], input: [port('x', [1], 6)], output: [port('y', [1], 6)] };
  const model = await loadOnnx(bytesOf(narrow));
  assert.throws(() => model.forward(tensor([2n ** 40n])), /the input x is int32 in the file: expected a tensor of i32, got i64/);
});

test('a double beyond f32 is an error', async () => {
  const graph = { node: [node('Sin', ['x'], ['y'])], input: [port('x', [2], 11)], output: [port('y', [2], 11)] };
  const model = await loadOnnx(bytesOf(graph));
  assert.throws(() => model.forward([0, 1e300]), /element 1, 1e\+300, is beyond f32, in which double is computed/);
});

test('a condition chooses a graph, a loop is unrolled, a function is inlined', async () => {
  /** @param {string} op @param {string} name */
  const branch = (op, name) => ({ node: [node(op, ['x', 'x'], [name])], output: [port(name, [2])] });
  const chosen = {
    node: [node('If', ['flag'], ['y'], [graphOf('then_branch', branch('Add', 'a')), graphOf('else_branch', branch('Mul', 'b'))])],
    input: [port('x', [2]), port('flag', [], BOOL)],
    output: [port('y', [2])],
  };
  const model = await loadOnnx(bytesOf(chosen));
  const x = tensor([3, 5]);
  assert.deepEqual([...(await model.forward(x, true).toArray())], [6, 10]);
  assert.deepEqual([...(await model.forward(x, false).toArray())], [9, 25]);

  // Three turns of v = v + x, each v kept.
  const body = {
    node: [node('Identity', ['c'], ['on']), node('Add', ['v', 'x'], ['next']), node('Identity', ['next'], ['kept'])],
    input: [port('i', [], INT64), port('c', [], BOOL), port('v', [2])],
    output: [port('on', [], BOOL), port('next', [2]), port('kept', [2])],
  };
  const looped = {
    node: [node('Loop', ['turns', '', 'x'], ['last', 'all'], [graphOf('body', body)])],
    initializer: [integers('turns', [], [3])],
    input: [port('x', [2])],
    output: [port('last', [2]), port('all', [3, 2])],
  };
  const { last, all } = (await loadOnnx(bytesOf(looped))).forward(x);
  assert.deepEqual([...(await last.toArray())], [12, 20]);
  assert.deepEqual(await all.toNested(), [
    [6, 10],
    [9, 15],
    [12, 20],
  ]);

  const scaled = {
    name: 'Scaled',
    domain: 'own',
    input: ['a'],
    output: ['r'],
    attribute: ['to'],
    node: [node('Constant', [], ['k'], [{ name: 'value_float', type: 1, refAttrName: 'to' }]), node('Mul', ['a', 'k'], ['r'])],
    opsetImport: [{ domain: '', version: 17 }],
  };
  const calls = {
    node: [node('Scaled', ['x'], ['y'], [{ name: 'to', type: 1, f: 2.5 }], { domain: 'own' })],
    input: [port('x', [2])],
    output: [port('y', [2])],
  };
  const opsetImport = [
    { domain: '', version: 17 },
    { domain: 'own', version: 1 },
  ];
  const called = await loadOnnx(bytesOf(calls, { functions: [scaled], opsetImport }));
  assert.deepEqual([...(await called.forward(x).toArray())], [7.5, 12.5]);
  assert.deepEqual(
    [...called.operators],
    [
      ['Constant', 1],
      ['Mul', 1],
    ],
  );
});

test('weights of the branch that a condition does not choose get no gradient', async () => {
  const branch = (/** @type {string} */ weight, /** @type {string} */ name) => ({
    node: [node('Mul', ['x', weight], [name])],
    output: [port(name, [2])],
  });
  const graph = {
    node: [node('If', ['flag'], ['y'], [graphOf('then_branch', branch('wide', 'a')), graphOf('else_branch', branch('narrow', 'b'))])],
    initializer: [floats('wide', [2], [2, 3]), floats('narrow', [2], [4, 5])],
    input: [port('x', [2]), port('flag', [], BOOL)],
    output: [port('y', [2])],
  };
  for (const flag of [true, false]) {
    const model = /** @type {any} */ (await loadOnnx(bytesOf(graph)));
    F.sum(model.forward(tensor([6, 7]), flag)).backward();
    const [chosen, other] = flag ? [model.wide, model.narrow] : [model.narrow, model.wide];
    assert.deepEqual([...(await chosen.grad.toArray())], [6, 7]);
    assert.ok(!other.grad, 'no gradient');
    model.dispose();
  }
});

test('a batch norm trains: its statistics are buffers', async () => {
  const graph = {
    node: [node('BatchNormalization', ['x', 'scale', 'shift', 'mean', 'var'], ['y'], [{ name: 'momentum', type: 1, f: 0.5 }])],
    initializer: [floats('scale', [1], [2]), floats('shift', [1], [1]), floats('mean', [1], [0]), floats('var', [1], [1])],
    input: [port('x', ['n', 1])],
    output: [port('y', ['n', 1])],
  };
  const model = await loadOnnx(bytesOf(graph));
  assert.deepEqual(
    [...model.namedParameters()].map(([name]) => name),
    ['scale', 'shift'],
  );
  const x = tensor([1, 3], { shape: [2, 1] });
  const still = [...(await model.forward(x).toArray())];
  assert.ok(Math.abs(still[0] - 3) < 1e-4 && Math.abs(still[1] - 7) < 1e-4);
  const trained = [...(await model.train().forward(x).toArray())];
  assert.ok(Math.abs(trained[0] + 1) < 1e-4 && Math.abs(trained[1] - 3) < 1e-4);
  assert.deepEqual([...(await /** @type {any} */ (model).mean.toArray())], [1]);
});

test('unknown operators are one error with all of them', async () => {
  const graph = {
    node: [
      node('Sine', ['x'], ['a'], [], { name: 'first' }),
      node('Relu', ['a'], ['b']),
      node('Quux', ['b'], ['y'], [], { domain: 'com.example' }),
    ],
    input: [port('x', [2])],
    output: [port('y', [2])],
  };
  const opsetImport = [
    { domain: '', version: 17 },
    { domain: 'com.example', version: 3 },
  ];
  await assert.rejects(
    loadOnnx(bytesOf(graph, { opsetImport })),
    /has 2 nodes that are not supported:\n {2}Sine 'first' \(opset 17\)\n {2}com\.example\.Quux 'y' \(opset 3\)$/,
  );
});

test('weights in another file of the folder are read, and no other file', async (t) => {
  const folder = temporaryFolder(t);
  await writeFile(join(folder, 'weights.bin'), Buffer.concat([Buffer.alloc(4), Buffer.from(Float32Array.from(WEIGHT).buffer)]));
  const external = (/** @type {string} */ location, length = 24) => {
    const graph = linear();
    /** @type {any} */ (graph.initializer)[0] = {
      name: 'layer.weight',
      dims: [2, 3],
      dataType: FLOAT,
      dataLocation: 1,
      externalData: Object.entries({ location, offset: '4', length: String(length) }).map(([key, value]) => ({ key, value })),
    };
    return bytesOf(graph);
  };
  const path = join(folder, 'model.onnx');
  await writeFile(path, external('weights.bin'));
  assert.deepEqual([...(await (await loadOnnx(path)).forward(tensor(X, { shape: [2, 2] })).toArray())], Y);
  await assert.rejects(loadOnnx(external('weights.bin')), /layer\.weight is in another file, weights\.bin: load the model by its path/);
  for (const [location, length, message] of /** @type {const} */ ([
    ['../weights.bin', 24, /outside of the model's folder/],
    ['/etc/passwd', 24, /outside of the model's folder/],
    ['weights.bin', 2 ** 40, /takes 1099511627776 bytes from 4 of weights\.bin, expected 24/],
    ['none.bin', 24, /ENOENT/],
  ])) {
    await writeFile(path, external(location, length));
    await assert.rejects(loadOnnx(path), message);
  }
});

test('damaged files are errors', async () => {
  const whole = bytesOf(linear());
  for (let size = 0; size < whole.length; size++) {
    // A cut between two fields may be a smaller model, which lacks its graph or weights.
    await loadOnnx(whole.subarray(0, size)).then(
      (model) => model.dispose(),
      (error) => assert.ok(error instanceof Error && error.message.length > 0),
    );
  }
  // Any byte may be another one.
  for (let i = 0, seed = 1; i < 400; i++) {
    seed = (seed * 1103515245 + 12345) % 2 ** 31;
    const damaged = Uint8Array.from(whole);
    damaged[seed % whole.length] ^= 1 << ((seed >> 8) % 8);
    await loadOnnx(damaged).then(
      (model) => model.dispose(),
      (error) => assert.ok(error instanceof Error && error.message.length > 0),
    );
  }
  await assert.rejects(loadOnnx(Buffer.from('no model at all, but some text')), /the model is damaged, or no ModelProto of ONNX/);
  const huge = linear();
  huge.initializer[0].dims = [2 ** 31, 2 ** 31];
  await assert.rejects(
    loadOnnx(bytesOf(huge)),
    /the initializer layer\.weight has the shape \[2147483648,2147483648\], which is too large/,
  );
  const short = linear();
  short.initializer[0].dims = [2, 4];
  await assert.rejects(loadOnnx(bytesOf(short)), /the initializer layer\.weight has 6 elements, and the shape \[2,4\] needs 8/);
});

test("scikit-learn's scalers, linear models and normalizers: what onnxruntime gives, eager and compiled", async () => {
  const domain = 'ai.onnx.ml';
  const many = (/** @type {string} */ name, /** @type {number[]} */ values) => ({ name, type: 6, floats: values });
  const text = (/** @type {string} */ name, /** @type {string} */ value) => ({ name, type: 3, s: Buffer.from(value) });
  const weights = [many('coefficients', [1, 0, -1, 2, 1, 0]), many('intercepts', [0.5, -1])];
  const graph = {
    node: [
      node('Scaler', ['x'], ['scaled'], [many('offset', [1, 0, -1]), many('scale', [2])], { domain }),
      node('LinearRegressor', ['x'], ['regression'], [...weights, int('targets', 2)], { domain }),
      node(
        'LinearClassifier',
        ['x'],
        ['label', 'scores'],
        [...weights, { name: 'classlabels_ints', type: 7, ints: [7, -3 * 2 ** 40] }, text('post_transform', 'LOGISTIC')],
        { domain },
      ),
      ...['MAX', 'L1', 'L2'].map((norm) => node('Normalizer', ['x'], [norm], [text('norm', norm)], { domain })),
    ],
    input: [port('x', ['rows', 3])],
    output: ['scaled', 'regression', 'scores', 'MAX', 'L1', 'L2']
      .map((name) => port(name, ['rows', 3]))
      .concat(port('label', ['rows'], INT64)),
  };
  const opsetImport = [
    { domain: '', version: 17 },
    { domain, version: 1 },
  ];
  const model = await loadOnnx(bytesOf(graph, { opsetImport }));
  const x = tensor([-4, 1, 2, 0, 0, 0, -1, -2, -3], { shape: [3, 3] });
  const [p, q, r] = [Math.sqrt(21), Math.sqrt(14), (/** @type {number} */ v) => 1 / (1 + Math.exp(-v))];
  const regression = [-5.5, -8, 0.5, -1, 2.5, -5];
  /** @type {Record<string, number[]>} */
  const wanted = {
    scaled: [-10, 2, 6, -2, 0, 2, -4, -4, -4],
    regression,
    scores: regression.map(r),
    MAX: [-2, 0.5, 1, 0, 0, 0, 1, 2, 3],
    L1: [-4 / 7, 1 / 7, 2 / 7, 0, 0, 0, -1 / 6, -2 / 6, -3 / 6],
    L2: [-4 / p, 1 / p, 2 / p, 0, 0, 0, -1 / q, -2 / q, -3 / q],
    label: [7, 7, 7],
  };
  for (const run of [model.forward.bind(model), compile((/** @type {any} */ input) => model.forward(input))]) {
    const outputs = run(x);
    for (const [name, expected] of Object.entries(wanted)) {
      const got = Array.from(await outputs[name].toArray(), Number);
      assert.ok(got.length === expected.length && got.every((v, i) => Math.abs(v - expected[i]) <= 1e-6), `${name}: ${got}`);
    }
  }
  const labels = model.forward(tensor([0, 9, 0], { shape: [1, 3] })).label;
  // Labels may be hashes, of more than 32 bits.
  assert.deepEqual(Array.from(await labels.toArray(), Number), [-3 * 2 ** 40]);
  model.dispose();
  const alone = { ...graph, node: [node('LinearRegressor', ['x'], ['y'], weights, { domain })], output: [port('y', ['rows', 1])] };
  const short = await loadOnnx(bytesOf(alone, { opsetImport }));
  assert.throws(() => short.forward(x), /LinearRegressor: 1 rows of 3 coefficients expected for an input \[3,3\], got 6/);
  short.dispose();
});

test('Imputer replaces a number, or what is none: what onnxruntime gives', async () => {
  const of = (/** @type {object[]} */ attributes, type = FLOAT) =>
    loadOnnx(
      bytesOf(
        {
          node: [node('Imputer', ['x'], ['y'], attributes, { domain: 'ai.onnx.ml' })],
          input: [port('x', ['rows', 2], type)],
          output: [port('y', ['rows', 2], type)],
        },
        {
          opsetImport: [
            { domain: '', version: 17 },
            { domain: 'ai.onnx.ml', version: 1 },
          ],
        },
      ),
    );
  const float = (/** @type {string} */ name, /** @type {number} */ f) => ({ name, type: 1, f });
  const list = { name: 'imputed_value_floats', type: 6, floats: [7, 8] };
  const x = tensor([NaN, 1, 2, NaN, 0, 0], { shape: [3, 2] });
  const results = async (/** @type {any} */ model, /** @type {any} */ input) => Array.from(await model.forward(input).toArray(), Number);
  assert.deepEqual(await results(await of([list, float('replaced_value_float', NaN)]), x), [7, 1, 2, 8, 0, 0]);
  assert.deepEqual(await results(await of([list]), x), [NaN, 1, 2, NaN, 7, 8]);
  const whole = [ints('imputed_value_int64s', [5]), int('replaced_value_int64', -1)];
  assert.deepEqual(await results(await of(whole, INT64), tensor([-1n, 1n, 2n, -1n]).reshape(2, 2)), [5, 1, 2, 5]);
  const short = await of([{ ...list, floats: [1, 2, 3] }]);
  assert.throws(() => short.forward(x), /Imputer: 1 or 2 numbers of the type float expected, got 3/);
});

test('a detector that finds nothing: RoiAlign of no regions', async () => {
  const graph = {
    node: [node('RoiAlign', ['x', 'rois', 'batch'], ['y'], [int('output_height', 2), int('output_width', 3)])],
    input: [port('x', [1, 2, 4, 4]), port('rois', ['regions', 4]), port('batch', ['regions'], INT64)],
    output: [port('y', ['regions', 2, 2, 3])],
  };
  const model = await loadOnnx(bytesOf(graph));
  const x = tensor(new Float32Array(32), { shape: [1, 2, 4, 4] });
  const none = { rois: zeros([0, 4]), batch: zeros([0], { dtype: 'i64' }) };
  assert.deepEqual([...(await model.run({ x, ...none })).shape], [0, 2, 2, 3]);
  model.dispose();
});

test('RoiAlign of regions of many sizes: each in its place, and as many operations for many as for few', async () => {
  const graph = {
    node: [node('RoiAlign', ['x', 'rois', 'batch'], ['y'], [int('output_height', 2), int('output_width', 1)])],
    input: [port('x', [2, 2, 20, 30]), port('rois', ['regions', 4]), port('batch', ['regions'], INT64)],
    output: [port('y', ['regions', 2, 2, 1])],
  };
  const model = await loadOnnx(bytesOf(graph));
  // The first channel is the column, the second one the row, and 100 more in the second image: the mean of a bin is its centre.
  const pixels = Array.from({ length: 2400 }, (_, at) => (Math.floor(at / 600) % 2 ? Math.floor((at % 600) / 30) : at % 30));
  const x = tensor(
    pixels.map((value, at) => value + (at < 1200 ? 0 : 100)),
    { shape: [2, 2, 20, 30] },
  );
  const regions = Array.from({ length: 40 }, (_, r) => [2 + (r % 5), 1 + (r % 3), 9 + ((7 * r) % 20), 8 + ((5 * r) % 11)]);
  const batch = regions.map((_, r) => r % 2);
  const { y } = await model.values({ x, rois: regions, batch });
  const found = Array.from(y.elements ?? [], Number);
  const expected = regions.flatMap(([x1, y1, x2, y2], r) => {
    const places = [1, 3].map((quarter) => y1 - 0.5 + ((y2 - y1) * quarter) / 4);
    return [(x1 + x2) / 2 - 0.5, (x1 + x2) / 2 - 0.5, ...places].map((place) => place + 100 * batch[r]);
  });
  const far = expected.findIndex((each, i) => !(Math.abs(each - found[i]) <= 1e-4));
  assert.equal(far, -1, `element ${far}: ${found[far]}, expected ${expected[far]}`);

  const operations = (/** @type {number} */ count) => {
    const rois = Array.from({ length: count }, (_, r) => [r % 7, 1, 8 + (r % 7), 9]);
    return traceOperations((input) => model.forward({ x: input, rois, batch: rois.map(() => 1) }), [x]).operations.length;
  };
  assert.equal(operations(500), operations(5));
  model.dispose();
});
