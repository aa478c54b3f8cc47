// Scales, rounding and types of quantized numbers, by ONNX's formulas. On a GPU a quotient may be 2.5 units in the last place away (Vulkan's bound).

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { compile, init, tensor } from 'helios-vk/nn';
import { loadOnnx } from 'helios-onnx';
import { BOOL, FLOAT, bytesOf, floats, int, integers, ints, node, port } from './lib/messages.mjs';

const isCpu = init().deviceType === 4;
const [UINT8, INT8, UINT16, INT16, INT32, HALF] = [2, 3, 4, 5, 6, 10];
const float = (/** @type {string} */ name, /** @type {number} */ f) => ({ name, type: 1, f });

/**
 * The outputs of a graph, eagerly and compiled.
 * @param {object} graph @param {number[]} x @param {number} [version] @param {boolean} [compiles]
 */
async function outputsOf(graph, x, version = 17, compiles = true) {
  const model = await loadOnnx(bytesOf({ input: [port('x', [x.length])], ...graph }, { opsetImport: [{ domain: '', version }] }));
  const forward = (/** @type {any} */ input) => model.forward(input);
  const results = [];
  for (const of of compiles ? [forward, compile(forward)] : [forward]) {
    const found = of(tensor(x));
    results.push(await Promise.all((model.outputs.length === 1 ? [found] : model.outputs.map(({ name }) => found[name])).map(list)));
  }
  if (compiles) assert.deepEqual(results[1], results[0], 'compiled');
  model.dispose();
  return results[0];
}
const list = async (/** @type {any} */ y) => Array.from(await y.toArray(), Number);

test('DynamicQuantizeLinear divides the range by 255, and zeros have the scale 1', async () => {
  const graph = {
    node: [node('DynamicQuantizeLinear', ['x'], ['y', 'scale', 'zero'])],
    output: [port('y', [3], UINT8), port('scale', []), port('zero', [], UINT8)],
  };
  const cases = [1.7, 3.3, 0.3, 7.9].map((range) => ({ x: [0, range, range], expected: [[0, 255, 255], [0]] }));
  for (const { x, expected } of [...cases, { x: [-3, 0, 2.5], expected: [[0, 139, 255], [139]] }]) {
    const [y, [scale], zero] = await outputsOf(graph, x);
    assert.deepEqual([y, zero], expected);
    const quotient = Math.fround((Math.fround(x[2]) - x[0]) / 255);
    if (isCpu) assert.equal(scale, quotient);
    else assert.ok(Math.abs(scale / quotient - 1) <= 2.5 * 2 ** -23);
  }
  assert.deepEqual(await outputsOf(graph, [0, -0, 0]), [[0, 0, 0], [1], [0]]);
});

test('QuantizeLinear divides and rounds ties to even, then adds the zero point and saturates', async () => {
  const ties = [-1e9, -2.5, -1.5, -0.5, 0, 0.5, 1.5, 2.5, 40000, Infinity];
  const cases = /** @type {const} */ ([
    [UINT16, 32768, [0, 65535]],
    [INT16, -5, [-32768, 32767]],
  ]);
  const even = (/** @type {number} */ x) => (Math.abs(x % 1) === 0.5 ? 2 * Math.round(x / 2) : Math.round(x));
  // Quotients of one scale, of which a product with its reciprocal rounds others.
  const scale = Math.fround(0.0037946284282952547);
  const near = Array.from({ length: 4096 }, (_, i) => Math.fround((i - 2048.5) * scale));
  for (const [type, zero, [least, most]] of cases) {
    for (const [s, x] of /** @type {[number, number[]][]} */ ([[0.5, ties.map((each) => each / 2)], ...(isCpu ? [[scale, near]] : [])])) {
      const graph = {
        node: [node('QuantizeLinear', ['x', 's', 'z'], ['y'])],
        initializer: [floats('s', [], [s]), { name: 'z', dims: [], dataType: type, int32Data: [zero] }],
        output: [port('y', [x.length], type)],
      };
      const expected = x.map((each) => Math.min(most, Math.max(least, even(Math.fround(each / s)) + zero)));
      assert.deepEqual(await outputsOf(graph, x), [expected]);
    }
  }
});

test('QuantizeLinear divides in the type of `precision`, or else of the scale', async () => {
  const quantized = async (/** @type {number} */ type, /** @type {object[]} */ attributes, /** @type {boolean} */ compiles) => {
    // 1 in f16: bits 0x3c00.
    const scale = type === HALF ? { name: 's', dims: [], dataType: HALF, int32Data: [0x3c00] } : floats('s', [], [1]);
    const graph = {
      node: [node('QuantizeLinear', ['x', 's'], ['y'], [int('output_dtype', INT16), ...attributes])],
      initializer: [scale],
      output: [port('y', [2], INT16)],
    };
    return (await outputsOf(graph, [101.49, 4097], 23, compiles))[0];
  };
  // f16 has 101.5 and 4096 for these. Compiled functions drop roundings to 16 bits.
  assert.deepEqual(await quantized(FLOAT, [], true), [101, 4097]);
  assert.deepEqual(await quantized(HALF, [], false), [102, 4096]);
  assert.deepEqual(await quantized(HALF, [int('precision', FLOAT)], true), [101, 4097]);
  assert.deepEqual(await quantized(FLOAT, [int('precision', HALF)], false), [102, 4096]);
});

/** A graph of all operators that onnxruntime's quantizer writes in its own domain, on [1, 2, 2, 3] numbers quantized to a type. @param {number} type */
function quantizerGraph(type) {
  const domain = 'com.microsoft';
  const zeros = { a: type === INT8 ? -3 : 120, b: type === INT8 ? 5 : 130, y: type === INT8 ? 7 : 125 };
  const small = (/** @type {string} */ name, /** @type {number[]} */ dims, /** @type {number[]} */ int32Data, dataType = type) => ({
    name,
    dims,
    dataType,
    int32Data,
  });
  const [a, b, y] = ['a', 'b', 'y'].map((name) => [name, `${name}Scale`, `${name}Zero`]);
  const own = y.slice(1);
  const opset = int('opset', 13);
  return {
    node: [
      node('QuantizeLinear', ['x', 'aScale', 'aZero'], ['a']),
      node('Reshape', ['a', 'matrixShape'], ['m']),
      node('QLinearAdd', [...a, ...b, ...own], ['sum'], [], { domain }),
      node('QLinearMul', [...a, ...b, ...own], ['product'], [], { domain }),
      node('QLinearSigmoid', [...a, 'unitScale', 'yZero'], ['sigmoid'], [], { domain }),
      node('QLinearLeakyRelu', [...a, ...own], ['leaky'], [float('alpha', 0.2)], { domain }),
      node('QLinearSoftmax', [...a, 'unitScale', 'yZero'], ['softmax'], [int('axis', -1), opset], { domain }),
      node('QLinearConcat', [...own, ...a, ...b], ['joined'], [int('axis', 2)], { domain }),
      node('QLinearAveragePool', [...a, ...own], ['pooled'], [ints('kernel_shape', [2, 2])], { domain }),
      node('QLinearGlobalAveragePool', [...a, ...own], ['mean'], [], { domain }),
      node('QLinearWhere', ['condition', ...a, ...b, ...own], ['chosen'], [], { domain }),
      node('QGemm', ['m', ...a.slice(1), 'w', 'wScale', 'wZero', 'bias', ...own], ['gemm'], [int('transB', 1), float('alpha', 0.5)], {
        domain,
      }),
      node('QGemm', ['m', ...a.slice(1), 'w', 'wScale', 'wZero'], ['real'], [int('transB', 1)], { domain }),
    ],
    initializer: [
      ...[floats('aScale', [], [0.031]), floats('bScale', [], [0.0473]), floats('yScale', [], [0.04]), floats('unitScale', [], [0.01])],
      ...Object.entries(zeros).map(([name, zero]) => small(`${name}Zero`, [], [zero])),
      small('b', [1, 2, 1, 3], [0, 10, 99, 5, 64, 127]),
      small('w', [2, 3], [1, -128, 90, 127, 3, -60], INT8),
      small('wZero', [2], [0, 0], INT8),
      floats('wScale', [2], [0.01, 0.02]),
      small('bias', [2], [-500, 900], INT32),
      small('condition', [2, 3], [1, 0, 1, 0, 0, 1], BOOL),
      integers('matrixShape', [2], [4, 3]),
    ],
    input: [port('x', [1, 2, 2, 3])],
    output: [
      ...['sum', 'product', 'sigmoid', 'leaky', 'softmax', 'chosen'].map((name) => port(name, [1, 2, 2, 3], type)),
      ...[port('joined', [1, 2, 3, 3], type), port('pooled', [1, 2, 1, 2], type), port('mean', [1, 2, 1, 1], type)],
      ...[port('gemm', [4, 2], type), port('real', [4, 2])],
    ],
  };
}
const MICROSOFT_OPSETS = [
  { domain: '', version: 17 },
  { domain: 'com.microsoft', version: 1 },
];

test("operators that onnxruntime's quantizer writes in its own domain: what onnxruntime 1.32 gives, eager and compiled", async () => {
  const real = [1.51187, -7.243459, 0.52266, -0.8500199, -0.22258, 0.30318, 1.60084, 7.419539];
  const expected = /** @type {[number, Record<string, number[]>][]} */ ([
    [
      UINT8,
      {
        sum: [0, 0, 78, 0, 0, 106, 10, 97, 187, 56, 24, 133],
        product: [255, 255, 140, 125, 112, 99, 0, 0, 116, 0, 195, 123],
        sigmoid: [130, 143, 165, 175, 177, 192, 204, 213, 218, 221, 154, 186],
        leaky: [110, 118, 123, 125, 127, 143, 158, 175, 190, 204, 121, 137],
        softmax: [130, 149, 196, 149, 152, 174, 140, 155, 180, 217, 127, 131],
        chosen: [50, 0, 115, 0, 0, 143, 158, 47, 190, 0, 47, 137],
        joined: [50, 88, 115, 125, 127, 143, 0, 0, 88, 158, 175, 190, 204, 103, 137, 0, 47, 121],
        pooled: [97, 118, 160, 151],
        mean: [108, 161],
        gemm: [142, 41, 130, 121, 120, 136, 143, 225],
      },
    ],
    [
      INT8,
      {
        sum: [-74, -24, 108, 1, 15, 127, 40, 127, 127, 86, 54, 127],
        product: [25, -2, -38, 7, 8, 86, 7, 127, 127, 7, -56, 74],
        sigmoid: [12, 25, 47, 57, 59, 74, 86, 95, 100, 103, 36, 68],
        leaky: [-8, 0, 5, 7, 9, 25, 40, 57, 72, 86, 3, 19],
        softmax: [12, 31, 78, 31, 34, 56, 22, 37, 62, 99, 9, 13],
        chosen: [-68, 13, -3, 1, 13, 25, 40, 77, 72, 7, 77, 19],
        joined: [-68, -30, -3, 7, 9, 25, 1, 13, 118, 40, 57, 72, 86, -15, 19, 7, 77, 127],
        pooled: [-21, 0, 42, 33],
        mean: [-10, 43],
        gemm: [24, -77, 12, 3, 2, 18, 25, 107],
      },
    ],
  ]);
  const x = tensor([-3, -1.5, -0.4, 0, 0.1, 0.7, 1.3, 2, 2.6, 3.17, -0.9, 0.45], { shape: [1, 2, 2, 3] });
  for (const [type, quanta] of expected) {
    const model = await loadOnnx(bytesOf(quantizerGraph(type), { opsetImport: MICROSOFT_OPSETS }));
    assert.deepEqual(model.parameters(), [], 'scales do not train');
    const forward = (/** @type {any} */ input) => model.forward(input);
    for (const run of [forward, compile(forward)]) {
      const outputs = run(x);
      for (const [name, wanted] of Object.entries({ ...quanta, real })) {
        const found = await list(outputs[name]);
        // Another quotient may round to the next quantum on a GPU.
        const most = name === 'real' ? 1e-5 : isCpu ? 0 : 1;
        assert.ok(found.length === wanted.length && found.every((each, i) => Math.abs(each - wanted[i]) <= most), `${name}: ${found}`);
      }
    }
    // A product of [4, 3] and [3, 2] twice.
    assert.equal(await model.flops(x), 2 * 2 * 4 * 3 * 2);
    model.dispose();
  }
  const graph = { ...quantizerGraph(UINT8), output: [port('last', [1, 2, 1, 3], UINT8)] };
  const pool = node('QLinearGlobalAveragePool', ['a', 'aScale', 'aZero', 'yScale', 'yZero'], ['last'], [int('channels_last', 1)], {
    domain: 'com.microsoft',
  });
  const last = await loadOnnx(bytesOf({ ...graph, node: [graph.node[0], pool] }, { opsetImport: MICROSOFT_OPSETS }));
  assert.throws(
    () => last.forward(x),
    /com\.microsoft\.QLinearGlobalAveragePool 'last' \(opset 1\): the attribute channels_last = 1 is not supported/,
  );
  last.dispose();
});
