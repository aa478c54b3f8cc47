// A product by `kernels.matmul` in poisoned buffers against float64; for the stand-in of device.mjs and for a GPU.

import assert from 'node:assert/strict';
import { Case } from '../lib/kernel-check.mjs';
import { random } from '../lib/tensors.mjs';

/** Values that two calls of a test do not share. @param {number} count */
const values = (count) => random(count);

/**
 * @typedef {object} Product
 * @property {'NT' | 'NN' | 'TN' | 'TT'} form
 * @property {number} m @property {number} n @property {number} k
 * @property {'bf16' | 'f16' | 'f32'} [type] of A and B
 * @property {boolean} [half] whether D is stored in it
 * @property {boolean} [dual] @property {boolean} [bias] @property {boolean} [residual]
 * @property {boolean} [inPlace] whether the residual is D's old content
 * @property {'gelu' | 'silu'} [activation]
 * @property {number} [alpha] @property {number} [beta]
 * @property {number} [pad] elements of poison behind each row
 * @property {any} [plan]
 */

/** @param {number} x @param {Product['activation']} activation */
function activate(x, activation) {
  if (activation === 'gelu') return 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
  return activation === 'silu' ? x / (1 + Math.exp(-x)) : x;
}

/**
 * Runs a product twice and compares; returns its dispatches.
 * @param {any} vk @param {any} kernels @param {Product} product
 * @param {(test: Case, dispatches: any[]) => void} [run] how it is run
 */
export function checkProduct(vk, kernels, product, run = (test, dispatches) => test.run(dispatches)) {
  const { form, m, n, k, type = 'bf16', half, dual, bias, residual, inPlace, activation, alpha = 1, beta = 0, pad = 8, plan } = product;
  const [transA, transB] = [form[0] === 'T', form[1] === 'T'];
  const test = new Case({ vk });
  try {
    /** Rows in memory, NaN behind each. @param {number} rows @param {number} columns @param {number} gap @param {boolean} filled */
    const rowsOf = (rows, columns, gap, filled) => {
      const all = new Float32Array(rows * (columns + gap)).fill(NaN);
      const data = values(rows * columns);
      for (let i = 0; filled && i < rows; i++) all.set(data.subarray(i * columns, (i + 1) * columns), i * (columns + gap));
      return all;
    };
    const cType = half ? type : 'f32';
    const a = test.input(rowsOf(transA ? k : m, transA ? m : k, pad, true), type);
    const b = test.input(rowsOf(transB ? n : k, transB ? k : n, 2 * pad, true), type);
    const c = test.inout(rowsOf(m, n, pad, beta !== 0 || Boolean(inPlace)), cType);
    const added = inPlace ? c : residual ? test.input(rowsOf(m, n, 3 * pad, true)) : undefined;
    const biases = bias ? test.input(values(n)) : undefined;
    const second = dual ? test.inout(rowsOf(m, n, 2 * pad, false), type) : undefined;
    const [lda, ldb, ldc] = [(transA ? m : k) + pad, (transB ? k : n) + 2 * pad, n + pad];
    const [ldr, ldh] = [inPlace ? ldc : n + 3 * pad, n + 2 * pad];
    const dispatches = kernels.matmul({
      ...{ a: a.tensor, b: b.tensor, c: c.tensor, m, n, k, transA, transB, aType: type, bType: type, cType, alpha, beta },
      ...{ lda, ldb, ldc, ldr, ldh, activation, plan },
      ...(biases ? { bias: biases.tensor } : {}),
      ...(added ? { residual: added.tensor } : {}),
      ...(second ? { half: second.tensor } : {}),
    });
    run(test, dispatches);

    const rounding = type === 'bf16' ? 2 ** -8 : 2 ** -11;
    const outputs = [
      { name: 'D', got: c.read(), ld: ldc, rounding: half ? rounding : 0 },
      ...(second ? [{ name: 'the second output', got: second.read(), ld: ldh, rounding }] : []),
    ];
    const [stepA, stepB] = [transA ? lda : 1, transB ? 1 : ldb];
    for (let i = 0; i < m; i++) {
      for (let j = 0; j < n; j++) {
        let sum = 0;
        for (let l = 0, x = transA ? i : i * lda, y = transB ? j * ldb : j; l < k; l++, x += stepA, y += stepB) {
          sum += a.values[x] * b.values[y];
        }
        let want = alpha * sum + (beta ? beta * c.values[i * ldc + j] : 0) + (biases ? biases.values[j] : 0);
        want = activate(want, activation) + (added ? added.values[i * ldr + j] : 0);
        for (const { name, got, ld, rounding } of outputs) {
          const x = got[i * ld + j];
          // Sums of exact products in f32 or, on matrix units, somewhat less; then one rounding of the result.
          const allowed = 2e-5 * Math.sqrt(k) + (rounding + 2e-5) * Math.abs(want);
          assert.ok(Math.abs(x - want) <= allowed, `${name} at ${i}, ${j} is ${x}, expected ${want} (${JSON.stringify(product)})`);
        }
      }
      for (const { name, got, ld } of outputs) {
        for (let j = n; j < ld; j++) assert.ok(Number.isNaN(got[i * ld + j]), `${name}: the gap behind row ${i} was written`);
      }
    }
    return dispatches;
  } finally {
    test.destroy();
  }
}
