// Functions that are composed of operations, against a reference in float64: results and gradients, eager and compiled, of dense tensors
// and of views.

import assert from 'node:assert/strict';
import { compile, scope, tensor } from '../../nn/index.mjs';
import { assertClose, normal } from '../lib/random-data.mjs';
import { finiteDifferences } from '../lib/reference.mjs';

/** @typedef {import('../../nn/ops/registry.mjs').Reference} Reference */
/** @typedef {import('./inputs.mjs').Input} Input */
/** @typedef {import('../../nn/index.mjs').Tensor} Tensor */

/**
 * A function of tensors, and the same in float64.
 * @typedef {object} Composed
 * @property {(...inputs: any[]) => Tensor} call any: functions of any number of tensors
 * @property {Input[]} inputs those that are `constant`, or not f32, get no gradient
 * @property {(...inputs: Reference[]) => Reference} reference
 * @property {number} [tolerance] of results, of the largest of them; 5e-6 when left out
 * @property {number} [gradientTolerance] 1e-4 when left out
 * @property {boolean} [differentiable] whether it has gradients; true when left out
 */

/** The input on the device. @param {Input} input @param {boolean} strided whether as a transposed view of the middle of something larger */
function onDevice({ shape, values, dtype = 'f32' }, strided) {
  const dense = tensor(Float64Array.from(values), { shape: [...shape], dtype });
  if (!strided || shape.length === 0 || dtype === 'f16' || dtype === 'bf16') return dense;
  const order = shape.map((_, d) => shape.length - 1 - d);
  const behind = dense.unsqueeze(0).expand(3, ...shape);
  return behind
    .contiguous()
    .permute(0, ...order.map((d) => d + 1))
    .contiguous()
    .permute(0, ...order.map((d) => d + 1))
    .at(1);
}

/**
 * Checks a function: dense and strided, eager and compiled.
 * @param {string} name for messages @param {Composed} composed
 */
export async function checkComposed(name, { call, inputs, reference, tolerance = 5e-6, gradientTolerance = 1e-4, differentiable = true }) {
  const values = inputs.map(({ shape, values: own, dtype = 'f32' }) => ({
    shape,
    data: dtype === 'f32' ? Float64Array.from(own, Math.fround) : Float64Array.from(own),
  }));
  const expected = reference(...values);
  const leaves = inputs.map(({ constant, dtype = 'f32' }) => differentiable && !constant && dtype === 'f32');
  const weights = Float64Array.from(normal(expected.data.length), Math.fround);
  const wanted = leaves.map(
    (leaf, i) =>
      leaf &&
      finiteDifferences(
        (/** @type {any} */ at) => reference(...values.with(i, { shape: values[i].shape, data: at })).data,
        values[i].data,
        weights,
      ),
  );
  for (const strided of [false, true]) {
    const what = `${name} ${inputs.map(({ shape }) => `[${shape}]`).join(' ')}${strided ? ' strided' : ''}`;
    const make = () => inputs.map((input, i) => (leaves[i] ? onDevice(input, strided).requiresGrad_() : onDevice(input, strided)));
    const compiled = compile((/** @type {Tensor[]} */ ...tensors) => call(...tensors));
    for (const [mode, run] of /** @type {[string, (...tensors: any[]) => any][]} */ ([
      ['eager', call],
      ['compiled', compiled],
    ])) {
      const y = run(...make().map((t) => t.detach()));
      assert.deepEqual([...y.shape], [...expected.shape], `${what}, ${mode}`);
      const data = await y.toArray();
      assertClose(y.dtype === 'f32' ? data : Float64Array.from(data), expected.data, tolerance, `${what}, ${mode}`);
    }
    if (!leaves.includes(true)) continue;
    const tensors = make();
    const gradient = tensor(weights, { shape: [...expected.shape] });
    scope(() => call(...tensors).backward({ gradient }));
    for (const [i, numbers] of wanted.entries()) {
      if (!numbers) continue;
      const { grad } = tensors[i];
      assert.ok(grad, `${what}: no gradient of input ${i}`);
      assertClose(await grad.toArray(), numbers, gradientTolerance, `${what}: gradient of input ${i}`);
    }
  }
}
