// Scales, rounding and types of quantized numbers, by ONNX's formulas. On a GPU a quotient may be 2.5 units in the last place away (Vulkan's bound).

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { compile, init, tensor } from 'helios-vk/nn';
import { loadOnnx } from 'helios-onnx';
import { FLOAT, bytesOf, floats, int, node, port } from './lib/messages.mjs';

const isCpu = init().deviceType === 4;
const [UINT8, UINT16, INT16, HALF] = [2, 4, 5, 10];

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
