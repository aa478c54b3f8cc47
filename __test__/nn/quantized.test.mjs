// Weights of 8 bits with a scale for 32 of them: against float64 and llama.cpp's rule on the host, eager and compiled, in 16 bits too.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { dequantizeQ8, quantizeQ8 } from '../../kernels/index.mjs';
import { F, autocast, checkpoint, compile, scope, tensor } from '../../nn/index.mjs';
import { operations } from '../../nn/ops/registry.mjs';
import { runtime } from '../../nn/core/runtime.mjs';
import { assertClose, normal } from '../lib/random-data.mjs';
import { quantized } from './cases-quantized.mjs';
import { checkComposed } from './composed.mjs';
import { x } from './inputs.mjs';
import { initDevice, poison } from './setup.mjs';

before(() => {
  initDevice();
  poison();
});

/** A weight on the device and in float64. @param {number} rows @param {number} columns */
function weightOf(rows, columns) {
  const [quants, scales] = quantized(rows, columns);
  const data = quants.values.map((q, i) => q * scales.values[Math.floor(i / 32)]);
  const on = (/** @type {import('./inputs.mjs').Input} */ { shape, values, dtype }) => tensor(values, { shape, dtype });
  return { data, weight: { quants: on(quants), scales: on(scales) } };
}

test('quants and scales are those of the host, of any values; what they represent is within half a step', async () => {
  const [rows, columns] = [7, 96];
  const values = Float32Array.from(normal(rows * columns), (v, i) => v * 2 ** (((i >> 5) % 23) - 16));
  values.fill(0, 64, 96);
  const host = quantizeQ8(values);
  const { quants, scales } = F.quantizeQ8(tensor(values, { shape: [rows, columns] }));
  assert.deepEqual([quants.dtype, scales.dtype, ...scales.shape], ['i8', 'f16', rows, columns / 32]);
  const expected = dequantizeQ8(host);
  const steps = await scales.toArray();
  const found = await F.dequantizeQ8({ quants, scales }).toArray();
  let other = 0;
  for (const [i, v] of found.entries()) {
    const step = steps[i >> 5];
    // The device's quotient may be one off in its last bit, and then a tie another quant.
    if (v !== expected[i]) other++;
    assert.ok(Math.abs(v - expected[i]) <= step * 1.001, `${i}: ${v}, host ${expected[i]}`);
    // The scale in f16 has 11 bits, or as many as are left of its least.
    assert.ok(Math.abs(v - values[i]) <= 0.5001 * step + 127 * Math.max(step * 2 ** -11, 2 ** -25), `${i}: ${v} of ${values[i]}`);
  }
  assert.ok(other <= 3, `${other} quants are not the host's`);
  // What is exact already stays so.
  const again = F.quantizeQ8(F.dequantizeQ8({ quants, scales }));
  assert.deepEqual(await F.dequantizeQ8(again).toArray(), found);
});

test('x Wᵀ + bias and its gradients in float64, of rows of any shape', async () => {
  for (const [rows, n, k] of [
    [1, 5, 32],
    [3, 7, 96],
    [9, 34, 64],
  ]) {
    const { weight, data } = weightOf(n, k);
    await checkComposed('linearQ8', {
      call: (rowsOf, bias) => F.linearQ8(rowsOf, weight, bias),
      inputs: [x(2, rows, k), x(n)],
      reference: (a, bias) => ({
        shape: [2, rows, n],
        data: Float64Array.from({ length: 2 * rows * n }, (_, i) => {
          const [row, o] = [Math.floor(i / n), i % n];
          let sum = bias.data[o];
          for (let j = 0; j < k; j++) sum += a.data[row * k + j] * data[o * k + j];
          return sum;
        }),
      }),
    });
  }
});

test('under autocast products take 16 bits, and results are of those; quants may begin anywhere', async () => {
  const { weight, data } = weightOf(6, 64);
  const a = tensor(normal(4 * 64), { shape: [4, 64] });
  const expected = F.linear(a, tensor(data, { shape: [6, 64] }));
  for (const dtype of /** @type {const} */ (['bf16', 'f16'])) {
    const y = autocast(dtype, () => F.linearQ8(a, weight));
    assert.equal(y.dtype, dtype);
    assertClose(await y.toArray(), Float64Array.from(await expected.toArray()), dtype === 'f16' ? 3e-3 : 2e-2, dtype);
  }
  const flat = F.cat([tensor([1], { dtype: 'i8' }), F.reshape(weight.quants, [-1])], 0);
  const quants = F.reshape(F.slice(flat, 0, 1, flat.size), [6, 64]);
  assert.deepEqual(await F.linearQ8(a, { ...weight, quants }).toArray(), await F.linearQ8(a, weight).toArray());
});

test('products of several sizes in one graph share the memory of the decoded weight; checkpoints too', async () => {
  const [up, down] = [weightOf(96, 32), weightOf(32, 96)];
  const layer = (/** @type {any} */ a) => F.linearQ8(F.silu(F.linearQ8(a, up.weight)), down.weight);
  const loss = (/** @type {any} */ a) => F.sum(F.square(layer(checkpoint(layer, a))));
  const run = (/** @type {any} */ of) => {
    const a = tensor(
      Float32Array.from({ length: 160 }, (_, i) => Math.sin(i)),
      { shape: [5, 32], requiresGrad: true },
    );
    scope(() => of(a));
    return /** @type {any} */ (a.grad).toArray();
  };
  const eager = await run((/** @type {any} */ a) => loss(a).backward());
  const step = compile((/** @type {any} */ a) => {
    const own = a.detach().requiresGrad_();
    loss(own).backward();
    return own.grad;
  });
  const a = tensor(
    Float32Array.from({ length: 160 }, (_, i) => Math.sin(i)),
    { shape: [5, 32] },
  );
  for (let time = 0; time < 2; time++) assertClose(await step(a).toArray(), Float64Array.from(eager), 1e-5, 'compiled');
  const made = [...runtime().kernels.context.workspaces.keys()].filter((name) => name === 'decoded weight');
  assert.equal(made.length, 1);
});

test('the forward pass keeps nothing of the weight in the product’s type', () => {
  const op = /** @type {any} */ (operations.get('linearQ8'));
  assert.deepEqual([op.saveInputs([true, false, false]), op.saveOutputs], [[1, 2], undefined]);
});
