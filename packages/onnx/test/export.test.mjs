// `exportOnnx`: modules as files of ONNX, which `loadOnnx` and, where it is installed, onnxruntime-node run to the same results. The stage
// `onnx` runs the same files by ONNX's own evaluator.

import assert from 'node:assert/strict';
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';

import { F, autocast, manualSeed, nn, randn, tensor, traceOperations } from 'helios-vk/nn';
import { exportOnnx, loadOnnx } from 'helios-onnx';
import { decode } from '../src/proto.mjs';
import { temporaryFolder } from '../../../__test__/lib/folder.mjs';
import { CASES, leavesOf } from './lib/exports.mjs';

const folder = temporaryFolder();

// Not among the dependencies: npm installs its 250 MB where somebody wants them.
const RUNTIME = 'onnxruntime-node';
const runtime = await import(RUNTIME).then(
  (module) => module.default,
  () => undefined,
);
/** @type {Record<string, string>} */
const RUNTIME_TYPES = { f32: 'float32', i32: 'int32', u32: 'uint32' };

/** @param {ArrayLike<number>} actual @param {ArrayLike<number>} expected @param {number} tolerance @param {string} what */
function assertNear(actual, expected, tolerance, what) {
  assert.equal(actual.length, expected.length, what);
  for (let i = 0; i < expected.length; i++) {
    const [a, b] = [Number(actual[i]), Number(expected[i])];
    assert.ok(Object.is(a, b) || Math.abs(a - b) <= tolerance, `${what}: element ${i} is ${a}, expected ${b}`);
  }
}

describe('results', () => {
  for (const each of CASES) {
    test(each.name, async () => {
      manualSeed(7);
      const model = each.make();
      const path = join(folder, 'model.onnx');
      const names = await exportOnnx(model, each.inputs(3), path, each.options);
      model.eval();
      const loaded = await loadOnnx(path);
      const session = await runtime?.InferenceSession.create(path, { logSeverityLevel: 3 });
      assert.deepEqual(
        loaded.inputs.map(({ name }) => name),
        names.inputs,
      );
      for (const batch of each.options?.dynamic ? [3, 2] : [3]) {
        const args = each.inputs(batch);
        const inputs = leavesOf(args);
        const expected = leavesOf(await model.forward(...args));
        const actual = leavesOf(await loaded.run(...inputs));
        assert.equal(actual.length, expected.length);
        const feeds = {};
        if (session)
          for (const [i, x] of inputs.entries())
            Reflect.set(feeds, names.inputs[i], new runtime.Tensor(RUNTIME_TYPES[x.dtype], await x.toArray(), [...x.shape]));
        const others = await session?.run(feeds);
        for (const [i, x] of expected.entries()) {
          const elements = await x.toArray();
          assert.deepEqual(actual[i].shape, x.shape);
          assertNear(await actual[i].toArray(), elements, each.tolerance ?? 1e-5, `output ${i} of a batch of ${batch}`);
          if (others)
            assertNear(others[names.outputs[i]].data, elements, each.tolerance ?? 1e-5, `${RUNTIME}: output ${i} of a batch of ${batch}`);
        }
      }
      model.dispose();
      loaded.dispose();
    });
  }
});

/** A file's graph. @param {string} path */
const graphOf = async (path) => /** @type {any} */ (decode('ModelProto', await readFile(path), path)).graph;

test('parameters keep their names and bytes, and sizes have names', async () => {
  const model = new nn.Sequential(new nn.Linear(3, 4), new nn.ReLU(), new nn.Linear(4, 2, { bias: false }));
  const path = join(folder, 'named.onnx');
  const names = await exportOnnx(model, [randn([5, 3])], path, { inputNames: ['x'], outputNames: ['y'], dynamic: { x: { 0: 'rows' } } });
  assert.deepEqual(names, { inputs: ['x'], outputs: ['y'] });
  const graph = await graphOf(path);
  assert.deepEqual(graph.initializer.map((/** @type {any} */ each) => each.name).sort(), Object.keys(model.stateDict()).sort());
  for (const { name, rawData } of graph.initializer) {
    const elements = /** @type {Float32Array} */ (await model.stateDict()[name].toArray());
    assert.deepEqual([...rawData], [...new Uint8Array(elements.buffer, elements.byteOffset, elements.byteLength)]);
  }
  const loaded = await loadOnnx(path);
  assert.deepEqual(loaded.inputs, [{ name: 'x', type: 'float', shape: ['rows', 3] }]);
  assert.deepEqual(loaded.outputs, [{ name: 'y', type: 'float', shape: ['rows', 2] }]);
  assert.deepEqual(
    [...loaded.operators],
    [
      ['Gemm', 2],
      ['Relu', 1],
    ],
  );
});

test('a batch norm is one operator, whose statistics are no parameters of the file', async () => {
  const path = join(folder, 'norm.onnx');
  await exportOnnx(
    new nn.Sequential(new nn.Conv2d(1, 2, 1), new nn.BatchNorm2d(2), new nn.BatchNorm2d(2, { affine: false })),
    [randn([1, 1, 3, 3])],
    path,
  );
  const loaded = await loadOnnx(path);
  assert.deepEqual(
    [...loaded.operators],
    [
      ['Conv', 1],
      ['BatchNormalization', 2],
    ],
  );
  const names = Array.from(loaded.namedParameters(), ([name]) => name);
  assert.ok(names.includes('1.weight') && !names.some((name) => name.includes('running')), names.join());
});

test('weights in a file of their own', async () => {
  const model = new nn.Linear(64, 32);
  const path = join(folder, 'apart.onnx');
  await exportOnnx(model, [randn([2, 64])], path, { externalData: true });
  assert.equal((await stat(`${path}.data`)).size, 64 * 32 * 4);
  const x = randn([2, 64]);
  assertNear(await (await loadOnnx(path)).forward(x).toArray(), await model.forward(x).toArray(), 1e-6, 'result');
});

test('16-bit weights and integers', async () => {
  class Model extends nn.Module {
    constructor() {
      super();
      this.h = new nn.Parameter(tensor([1.5, -2.25, 65504, 2 ** -24, 0.1]).to('f16'));
      this.b = new nn.Parameter(tensor([1.5, -2.25, 1e30, 2 ** -100, 0.1]).to('bf16'));
      this.l = tensor([2n ** 60n, -1n, 0n, 5n, 7n]);
    }
    /** @param {import('helios-vk/nn').Tensor} x */
    forward(x) {
      return { half: F.add(this.h, x.to('f16')), brain: F.mul(this.b, x.to('bf16')), long: F.add(this.l, 1) };
    }
  }
  const model = new Model();
  const path = join(folder, 'types.onnx');
  const { outputs } = await exportOnnx(model, [randn([5])], path);
  assert.deepEqual(outputs, ['half', 'brain', 'long']);
  const x = tensor([1, 2, 0, 0, 3]);
  const [expected, actual] = [model.forward(x), (await loadOnnx(path)).forward(x)];
  for (const name of outputs) {
    assert.equal(actual[name].dtype, Reflect.get(expected, name).dtype);
    assert.deepEqual(await actual[name].toArray(), await Reflect.get(expected, name).toArray());
  }
});

test('recurrent layers of gates that no linear layer of f32 computes', async () => {
  class Model extends nn.Module {
    constructor() {
      super();
      this.lstm = new nn.LSTM(5, 8);
      this.gru = new nn.GRU(5, 8);
    }
    /** @param {import('helios-vk/nn').Tensor} x */
    forward(x) {
      return autocast('bf16', () => [this.lstm.forward(x), this.gru.forward(x)]);
    }
  }
  const model = new Model();
  const path = join(folder, 'cast.onnx');
  const x = randn([3, 4, 5]);
  const { outputs } = await exportOnnx(model, [x], path);
  assert.deepEqual(outputs, ['output_0_0', 'output_0_1_0', 'output_0_1_1', 'output_1_0', 'output_1_1']);
  const actual = (await loadOnnx(path)).forward(x);
  for (const [i, y] of leavesOf(model.forward(x)).entries())
    assertNear(await actual[outputs[i]].toArray(), await y.toArray(), 1e-3, outputs[i]);
});

test('a module is exported in evaluation mode, and is in its own mode afterwards', async () => {
  const model = new nn.Sequential(new nn.Linear(2, 3), new nn.Dropout(0.5), new nn.BatchNorm1d(3));
  model.at(2).eval();
  await exportOnnx(model, [randn([4, 2])], join(folder, 'mode.onnx'));
  assert.deepEqual(
    [...model.modules()].map(({ training }) => training),
    [true, true, true, false],
  );
});

test('what cannot be written is one error with all of it', async () => {
  class Model extends nn.Module {
    /** @param {import('helios-vk/nn').Tensor} x */
    forward(x) {
      return F.add(F.searchsorted(tensor([0, 1]), x), F.add(F.dropout(x, 0.5, true), F.digamma(x)));
    }
  }
  await assert.rejects(
    exportOnnx(new Model(), [randn([3])], join(folder, 'none.onnx')),
    /exportOnnx: 3 operations cannot be written:\n {2}searchsorted \(export\.test\.mjs:\d+\): ONNX has no such operator\n {2}dropout .*\n {2}digamma/,
  );
  await assert.rejects(stat(join(folder, 'none.onnx')), /ENOENT/);
});

test('what changes with dynamic sizes is an error', async () => {
  const make = (/** @type {(x: import('helios-vk/nn').Tensor) => any} */ forward) => Object.assign(new nn.Module(), { forward });
  const path = join(folder, 'none.onnx');
  const x = randn([3, 2]);
  await assert.rejects(
    exportOnnx(
      make((y) => (y.shape[0] > 2 ? F.relu(y) : y.neg())),
      [x],
      path,
      { dynamic: [0] },
    ),
    /the operations change at affine .*with the dynamic sizes/,
  );
  await assert.rejects(
    exportOnnx(
      make((y) => F.add(y, tensor(Float32Array.from({ length: y.shape[0] }), { shape: [y.shape[0], 1] }))),
      [x],
      path,
      { dynamic: [0] },
    ),
    /a constant \[2,1\] depends on a dynamic size/,
  );
  await assert.rejects(
    exportOnnx(
      make((y) => F.mul(y, tensor([y.shape[0], 1]))),
      [x],
      path,
      { dynamic: [0] },
    ),
    /the elements of a constant \[2\] change with the dynamic sizes/,
  );
  await assert.rejects(
    exportOnnx(
      make((y) => F.pow(y, y.shape[0] + 0.5)),
      [x],
      path,
      { dynamic: [0] },
    ),
    /1 operations cannot be written:\n {2}pow \(export\.test\.mjs:\d+\): it depends on a dynamic size/,
  );
  await assert.rejects(
    exportOnnx(
      make((y) => F.maxPool1d(y, 2, { returnIndices: true })),
      [randn([1, 2, 4])],
      path,
      { dynamic: [2] },
    ),
    /exportOnnx: 1 operations cannot be written:\n {2}maxPool \(export\.test\.mjs:\d+\): the size of the planes of its indices depends on a dynamic size/,
  );
});

test('arguments are checked', async () => {
  const model = new nn.Linear(2, 2);
  const x = randn([1, 2]);
  const path = join(folder, 'none.onnx');
  const wrong = (/** @type {any} */ options, /** @type {RegExp} */ message) =>
    assert.rejects(exportOnnx(model, [x], path, options), message);
  await assert.rejects(exportOnnx(/** @type {any} */ ({}), [x], path), /expected a module/);
  await assert.rejects(exportOnnx(model, /** @type {any} */ (x), path), /inputs must be an array/);
  await assert.rejects(exportOnnx(model, [x], /** @type {any} */ (1)), /expected a path, got 1/);
  await assert.rejects(exportOnnx(model, [], path), /no tensor among the inputs/);
  await wrong({ opset: 12 }, /unknown option opset/);
  await wrong({ inputNames: ['a', 'b'] }, /inputNames must be 1 different names, got \["a","b"\]/);
  await wrong({ outputNames: [''] }, /outputNames must be 1 different names/);
  await wrong({ inputNames: ['weight'] }, /weight names a parameter/);
  await wrong({ dynamic: { y: { 0: 'n' } } }, /dynamic has an input y; the inputs are input/);
  await wrong({ dynamic: [0, 2] }, /dynamic has the dimension 2, which no input has/);
  await wrong({ dynamic: { input: { 2: 'n' } } }, /dynamic must name dimensions of input, whose shape is \[1,2\], got 2: n/);
  await wrong({ dynamic: { input: { 0: 'n', 1: 'n' } } }, /the size n is 1 and, in input, 2/);
});

test('traceOperations gives views, and what is changed in place', () => {
  const bias = randn([2]);
  const { inputs, operations, result } = traceOperations((x) => F.add(F.permute(x, [1, 0]), bias), [{ shape: [2, 3], dtype: 'f32' }]);
  assert.deepEqual(
    operations.map(({ name }) => name),
    ['permute', 'add'],
  );
  assert.equal(operations[0].inputs[0], inputs[0]);
  assert.deepEqual(operations[0].attributes, { order: [1, 0] });
  assert.equal(operations[1].inputs[0], operations[0].outputs[0]);
  assert.equal(operations[1].inputs[1].tensor?.storage, bias.storage);
  assert.equal(result, operations[1].outputs[0]);
  assert.match(operations[1].origin, /export\.test\.mjs:\d+/);

  const place = traceOperations(
    (x) => {
      const y = F.mul(x, 2);
      y.add_(1);
      return y;
    },
    [{ shape: [2], dtype: 'f32' }],
  );
  assert.equal(place.operations[1].inputs[0], place.operations[0].outputs[0]);
  assert.equal(place.result, place.operations[1].outputs[0]);
  assert.throws(
    () =>
      traceOperations(
        (x) => {
          const y = F.mul(x, 2);
          F.slice(y, 0, 0, 1).fill_(3);
          return y;
        },
        [{ shape: [2], dtype: 'f32' }],
      ),
    /a tensor \[2\] is read that was changed in place by way of another one/,
  );
});
