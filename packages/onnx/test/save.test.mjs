// `saveOnnx`, and what fine-tuning a model of a file needs: frozen weights, another head, training mode.

import assert from 'node:assert/strict';
import { mkdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';

import { F, compile, manualSeed, nn, noGrad, optim, randn, tensor } from 'helios-vk/nn';
import { exportOnnx, loadOnnx, saveOnnx } from 'helios-onnx';
import { decode } from '../src/proto.mjs';
import { temporaryFolder } from '../../../__test__/lib/folder.mjs';
import { bytesOf, floats, integers, linear, node, port } from './lib/messages.mjs';

const folder = temporaryFolder();

/** Sets elements of a tensor, from the first on. @param {any} x @param {ArrayLike<number>} values */
const set = (x, values) =>
  noGrad(() => F.slice(F.reshape(x, [-1]), 0, 0, values.length).copy_(tensor([...Array.from(values)], { dtype: x.dtype })));

/** The positions at which bytes differ. @param {Uint8Array} a @param {Uint8Array} b */
const differences = (a, b) => Array.from(a.keys()).filter((i) => a[i] !== b[i]);

test('a file that is saved unchanged has the same bytes, with fields that nobody here reads', async () => {
  // doc_string of the model, and a field that ONNX does not have.
  const bytes = Buffer.concat([bytesOf(linear()), Buffer.from([0x32, 2, 0x68, 0x69]), Buffer.from([0xf8, 0x7f, 7])]);
  const path = join(folder, 'same.onnx');
  await saveOnnx(await loadOnnx(bytes), path);
  assert.deepEqual(await readFile(path), bytes);
  const loaded = await loadOnnx(path);
  await saveOnnx(loaded, path);
  assert.deepEqual(await readFile(path), bytes);
});

test('only the bytes of changed elements differ', async () => {
  const bytes = Buffer.from(bytesOf(linear()));
  const model = await loadOnnx(bytes);
  set(/** @type {any} */ (model)['layer.weight'], [1, 9]);
  const path = join(folder, 'changed.onnx');
  await saveOnnx(model, path);
  const saved = await readFile(path);
  assert.equal(saved.length, bytes.length);
  const at = bytes.indexOf(Buffer.from(Float32Array.of(1, 2, 3).buffer));
  assert.ok(differences(bytes, saved).every((i) => i >= at + 4 && i < at + 8));
  assert.equal(saved.readFloatLE(at + 4), 9);
  const again = await loadOnnx(path);
  assert.deepEqual([...(await /** @type {any} */ (again)['layer.weight'].toArray())], [1, 9, 3, 4, 5, 6]);
  assert.deepEqual(Object.keys(again.stateDict()), Object.keys(model.stateDict()));
});

test('weights that are Constant nodes, as Paddle2ONNX writes them, train and are saved', async () => {
  const { initializer, node: nodes, ...ports } = linear();
  const constant = (/** @type {any} */ t, /** @type {object[]} */ more = []) =>
    node('Constant', [], [t.name], [...more, { name: 'value', type: 4, t: { ...t, name: '' } }], { name: `made ${t.name}` });
  const half = floats('half', [1], [0.5]);
  const graph = { ...ports, node: [...initializer.map((t) => constant(t)), constant(half), ...nodes] };
  const bytes = Buffer.from(bytesOf(graph));
  const model = await loadOnnx(bytes);
  assert.deepEqual(Object.keys(model.stateDict()), ['layer.weight', 'layer.bias']);
  assert.equal(model.parameters().length, 2);
  const x = tensor([1, -1, 2, 0.5], { shape: [2, 2] });
  assert.deepEqual([...(await model.forward(x).toArray())], [0, 0, 0, 4.5, 0, 10]);
  F.sum(model.forward(x)).backward();
  new optim.SGD(model.parameters(), { lr: 0.5 }).step();
  const path = join(folder, 'constants.onnx');
  await saveOnnx(model, path);
  const saved = await readFile(path);
  // Of the bytes only those of the two tensors differ.
  const [weight, bias] = initializer.map((t) => bytes.indexOf(t.rawData));
  assert.equal(saved.length, bytes.length);
  const changed = differences(bytes, saved);
  assert.ok(changed.length > 0 && changed.every((i) => (i >= weight && i < weight + 24) || (i >= bias && i < bias + 12)));
  const again = await loadOnnx(path);
  assert.deepEqual([...(await again.forward(x).toArray())], [...(await model.forward(x).toArray())]);
  assert.deepEqual([...(await /** @type {any} */ (again)['layer.bias'].toArray())], [0, -100, 0.5]);
  // Another shape, in a node too.
  /** @type {any} */ (again)['layer.weight'] = new nn.Parameter(tensor([1, 2], { shape: [2, 1] }));
  /** @type {any} */ (again)['layer.bias'] = new nn.Parameter(tensor([3]));
  await saveOnnx(again, path);
  assert.deepEqual([...(await (await loadOnnx(path)).forward(x).toArray())], [2, 6]);
  // Beside initializers a constant is a number of a formula.
  const mixed = await loadOnnx(bytesOf({ ...linear(), node: [constant(floats('mask', [2], [0, 1])), ...nodes] }));
  assert.deepEqual(Object.keys(mixed.stateDict()), ['layer.weight', 'layer.bias']);
});

test('each type is written as it was, and elements that stayed keep their bits', async () => {
  const DOUBLE = 11;
  const HALF = 10;
  const nan = Buffer.from([1, 0, 0xc0, 0x7f]);
  const graph = {
    node: ['f', 'g', 'd', 'h', 'n'].map((name) => node('Identity', [name], [`${name}_out`])),
    initializer: [
      { name: 'f', dims: [3], dataType: 1, floatData: [0.1, 0.2, 0.3] },
      { name: 'g', dims: [2], dataType: 1, rawData: Buffer.concat([nan, Buffer.from(Float32Array.of(1).buffer)]) },
      { name: 'd', dims: [3], dataType: DOUBLE, doubleData: [0.1, 0.2, 0.3] },
      { name: 'h', dims: [2], dataType: HALF, int32Data: [0x3c00, 0x4000] },
      { name: 'n', dims: [3], dataType: 7, int64Data: [1, -2, 3] },
    ],
    output: ['f', 'g', 'd', 'h', 'n'].map((name) =>
      port(`${name}_out`, [], name === 'd' ? DOUBLE : name === 'h' ? HALF : name === 'n' ? 7 : 1),
    ),
  };
  const model = /** @type {any} */ (await loadOnnx(bytesOf(graph)));
  for (const name of ['f', 'd']) set(model[name], [7]);
  set(F.slice(model.g, 0, 1), [5]);
  set(model.h, [-1.5]);
  model.n.copy_(tensor([1n, -2n, 2n ** 40n]));
  const path = join(folder, 'types.onnx');
  await saveOnnx(model, path);
  const { initializer } = /** @type {any} */ (decode('ModelProto', await readFile(path), path)).graph;
  const [f, g, d, h, n] = initializer.map((/** @type {any} */ each) => Buffer.from(each.rawData));
  assert.deepEqual(new Float32Array(new Uint8Array(f).buffer), Float32Array.of(7, 0.2, 0.3));
  assert.deepEqual(g, Buffer.concat([nan, Buffer.from(Float32Array.of(5).buffer)]));
  // 0.2 is no number of f32, in which doubles are computed.
  assert.deepEqual(new Float64Array(new Uint8Array(d).buffer), Float64Array.of(7, 0.2, 0.3));
  assert.deepEqual(new Uint16Array(new Uint8Array(h).buffer), Uint16Array.of(0xbe00, 0x4000));
  assert.deepEqual(new BigInt64Array(new Uint8Array(n).buffer), BigInt64Array.of(1n, -2n, 2n ** 40n));
});

/** A model with weights in another file, in which they begin at byte 4. @param {string} location */
function apart(location) {
  const graph = linear();
  /** @type {any} */ (graph.initializer)[0] = {
    name: 'layer.weight',
    dims: [2, 3],
    dataType: 1,
    dataLocation: 1,
    externalData: Object.entries({ location, offset: '4', length: '24' }).map(([key, value]) => ({ key, value })),
  };
  return bytesOf(graph);
}

test('external data stays where it is, in the folder of the file and in another', async () => {
  const path = join(folder, 'apart.onnx');
  await mkdir(join(folder, 'parts'));
  const data = Buffer.concat([Buffer.from([1, 2, 3, 4]), Buffer.from(Float32Array.of(1, 2, 3, 4, 5, 6).buffer), Buffer.from([9])]);
  await writeFile(join(folder, 'parts/w.bin'), data);
  await writeFile(path, apart('parts/w.bin'));
  const model = await loadOnnx(path);
  set(/** @type {any} */ (model)['layer.weight'], [10]);
  const other = join(folder, 'other');
  await mkdir(other);
  await saveOnnx(model, join(other, 'model.onnx'));
  assert.deepEqual(await readFile(join(folder, 'parts/w.bin')), data);
  assert.deepEqual(await readFile(join(other, 'model.onnx')), await readFile(path));
  const expected = Buffer.from(data);
  expected.writeFloatLE(10, 4);
  assert.deepEqual(await readFile(join(other, 'parts/w.bin')), expected);
  assert.deepEqual(
    [...(await /** @type {any} */ (await loadOnnx(join(other, 'model.onnx')))['layer.weight'].toArray())],
    [10, 2, 3, 4, 5, 6],
  );

  // In place, twice: the second time the file is what the first wrote.
  await saveOnnx(model, path);
  assert.deepEqual(await readFile(join(folder, 'parts/w.bin')), expected);
  /** @type {any} */ (model)['layer.weight'] = new nn.Parameter(randn([2, 4]));
  /** @type {any} */ (model)['layer.bias'] = new nn.Parameter(randn([4]));
  await saveOnnx(model, path);
  const again = await loadOnnx(path);
  for (const [name, tensor] of model.weights) assert.deepEqual(await again.weights.get(name)?.toArray(), await tensor.toArray());
  assert.deepEqual((await readFile(join(folder, 'parts/w.bin'))).subarray(0, expected.length), expected);
});

test('a file that changed since it was loaded is not overwritten', async () => {
  const path = join(folder, 'stale.onnx');
  await writeFile(path, bytesOf(linear()));
  const model = await loadOnnx(path);
  await writeFile(path, Buffer.concat([bytesOf(linear()), Buffer.from([0x32, 2, 0x68, 0x69])]));
  await assert.rejects(saveOnnx(model, path), /stale\.onnx changed since it was loaded/);
  await assert.rejects(saveOnnx(/** @type {any} */ (new nn.Linear(2, 2)), path), /expected a model that loadOnnx made/);
  await assert.rejects(saveOnnx(model, /** @type {any} */ (3)), /expected a path, got 3/);
});

/** A small classifier as a file: a convolution, batch norm, dropout, and a head of three classes. @param {string} path */
async function classifier(path) {
  manualSeed(3);
  const graph = {
    node: [
      node('Conv', ['x', 'conv.weight'], ['c'], [{ name: 'pads', type: 7, ints: [1, 1, 1, 1] }]),
      node('BatchNormalization', ['c', 'bn.weight', 'bn.bias', 'bn.mean', 'bn.var'], ['b']),
      node('Relu', ['b'], ['r']),
      node('GlobalAveragePool', ['r'], ['p']),
      node('Flatten', ['p'], ['features']),
      node('Dropout', ['features', 'ratio'], ['d']),
      node('Gemm', ['d', 'fc.weight', 'fc.bias'], ['y'], [{ name: 'transB', type: 2, i: 1 }]),
    ],
    initializer: [
      floats(
        'conv.weight',
        [4, 1, 3, 3],
        Float32Array.from({ length: 36 }, (_, i) => Math.sin(i)),
      ),
      floats('bn.weight', [4], [1, 1, 1, 1]),
      floats('bn.bias', [4], [0, 0, 0, 0]),
      floats('bn.mean', [4], [0, 0, 0, 0]),
      floats('bn.var', [4], [1, 1, 1, 1]),
      floats('ratio', [], [0.5]),
      floats(
        'fc.weight',
        [3, 4],
        Float32Array.from({ length: 12 }, (_, i) => Math.cos(i)),
      ),
      floats('fc.bias', [3], [0, 0, 0]),
    ],
    input: [port('x', ['n', 1, 6, 6]), port('fc.bias', [3])],
    output: [port('y', ['n', 3])],
  };
  await writeFile(path, bytesOf(graph));
}

test('fine-tuning: weights frozen by name, another head, batch norm and dropout that train', async () => {
  const path = join(folder, 'classifier.onnx');
  await classifier(path);
  const model = /** @type {any} */ (await loadOnnx(path));
  model['fc.weight'] = new nn.Parameter(F.mul(randn([2, 4]), 0.1));
  model['fc.bias'] = new nn.Parameter(tensor([0, 0]));
  for (const [name, parameter] of model.namedParameters()) if (name.startsWith('conv.')) parameter.requiresGrad_(false);

  const x = randn([16, 1, 6, 6]);
  const targets = tensor(Int32Array.from({ length: 16 }, (_, i) => i % 2));
  assert.deepEqual(model.forward(x).shape, [16, 2]);
  model.train();
  const [first, second] = [await model.forward(x).toArray(), await model.forward(x).toArray()];
  assert.notDeepEqual(first, second, 'dropout drops while it trains');

  const frozen = await model['conv.weight'].toArray();
  const before = await model['bn.weight'].toArray();
  const optimizer = new optim.AdamW(
    model.parameters().filter((/** @type {nn.Parameter} */ each) => each.requiresGrad),
    { lr: 0.05 },
  );
  const step = compile((/** @type {any} */ input, /** @type {any} */ t) => {
    const loss = F.crossEntropy(model.forward(input), t);
    loss.backward();
    optimizer.step();
    return loss;
  });
  for (let i = 0; i < 20; i++) step(x, targets);
  model.eval();
  assert.deepEqual(await model['conv.weight'].toArray(), frozen);
  assert.notDeepEqual(await model['bn.weight'].toArray(), before);
  assert.notDeepEqual([...(await model['bn.mean'].toArray())], [0, 0, 0, 0], 'statistics of batches');
  assert.deepEqual(await model.forward(x).toArray(), await model.forward(x).toArray());

  const saved = join(folder, 'tuned.onnx');
  await saveOnnx(model, saved);
  const again = await loadOnnx(saved);
  assert.deepEqual(Object.keys(again.stateDict()), Object.keys(model.stateDict()));
  assert.deepEqual(await again.forward(x).toArray(), await model.forward(x).toArray());
  assert.deepEqual(again.outputs, [{ name: 'y', type: 'float', shape: ['n', ''] }]);
  const { graph } = /** @type {any} */ (decode('ModelProto', await readFile(saved), saved));
  assert.deepEqual(
    graph.input[1].type.tensorType.shape.dim.map((/** @type {any} */ size) => Number(size.dimValue)),
    [2],
  );
  assert.equal((await stat(path)).size > 0, true);
});

test('a weight of another type is an error that names it', async () => {
  const model = /** @type {any} */ (await loadOnnx(bytesOf(linear())));
  model['layer.bias'] = tensor(Int32Array.of(1, 2, 3));
  assert.throws(() => model.forward([[1, 2]]), /layer\.bias is float in the file: expected a tensor of f32, got i32/);
});

test('a parameter that the file has not is not left out in silence', async () => {
  const model = await loadOnnx(bytesOf(linear()));
  /** @type {any} */ (model)['layer.wieght'] = new nn.Parameter(randn([2, 3]));
  await assert.rejects(saveOnnx(model, join(folder, 'more.onnx')), /saveOnnx: the file has no layer\.wieght: exportOnnx writes/);
  await assert.rejects(stat(join(folder, 'more.onnx')), /ENOENT/);
});

test('a model up to its features, under another head, exported as one', async () => {
  const path = join(folder, 'classifier.onnx');
  await classifier(path);
  const backbone = await loadOnnx(path, { outputs: ['features'] });
  assert.deepEqual(Object.keys(backbone.stateDict()).sort(), ['bn.bias', 'bn.mean', 'bn.var', 'bn.weight', 'conv.weight']);
  assert.deepEqual(backbone.outputs, [{ name: 'features', type: undefined, shape: undefined }]);
  const head = new nn.Linear(4, 5);
  class Tuned extends nn.Module {
    constructor() {
      super();
      this.backbone = backbone;
      this.head = head;
    }
    /** @param {import('helios-vk/nn').Tensor} x */
    forward(x) {
      return this.head.forward(this.backbone.forward(x));
    }
  }
  const model = new Tuned();
  model.eval();
  const x = randn([3, 1, 6, 6]);
  const to = join(folder, 'whole.onnx');
  await exportOnnx(model, [x], to, { dynamic: [0] });
  const whole = await loadOnnx(to);
  assert.ok(Object.keys(whole.stateDict()).includes('backbone.conv.weight'));
  const more = randn([5, 1, 6, 6]);
  const [a, b] = [await whole.forward(more).toArray(), await model.forward(more).toArray()];
  assert.ok(a.every((/** @type {number} */ v, /** @type {number} */ i) => Math.abs(v - b[i]) < 1e-5));

  await assert.rejects(
    loadOnnx(path, { outputs: ['none'] }),
    /outputs: the graph has no value none; the last of its \d+ are .*\bfeatures, d, y$/,
  );
  await assert.rejects(loadOnnx(path, { outputs: [] }), /outputs must be an array of names/);
  await assert.rejects(loadOnnx(path, /** @type {any} */ ({ output: ['y'] })), /unknown option output/);
});

test('each size of a dynamic dimension is compiled once', async () => {
  const model = await loadOnnx(bytesOf(linear()));
  let traces = 0;
  const run = compile(
    (/** @type {any} */ x) => {
      traces++;
      return model.forward(x);
    },
    { dynamic: [0], bound: 4 },
  );
  for (const rows of [1, 2, 3, 2, 1, 3]) {
    const x = randn([rows, 2]);
    assert.deepEqual(await run(x).toArray(), await model.forward(x).toArray());
  }
  assert.equal(traces, 3);
  run.dispose();
});

test('a whole number in the file is exact', async () => {
  const graph = {
    node: [node('Add', ['x', 'k'], ['y'])],
    initializer: [integers('k', [1], [2 ** 40])],
    input: [port('x', [1], 7)],
    output: [port('y', [1], 7)],
  };
  const path = join(folder, 'whole-number.onnx');
  const bytes = Buffer.from(bytesOf(graph));
  await saveOnnx(await loadOnnx(bytes), path);
  assert.deepEqual(await readFile(path), bytes);
});
