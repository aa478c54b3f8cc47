// Products by `kernels.matmul`, and groups of them, in poisoned buffers against float64; for the stand-in of device.mjs and for a GPU.

import assert from 'node:assert/strict';
import { permuteRows } from '../../kernels/hopper/layout.mjs';
import { Case } from '../lib/kernel-check.mjs';
import { random } from '../lib/tensors.mjs';

/** Values that two calls of a test do not share. @param {number} count */
const values = (count) => random(count);

/**
 * @typedef {object} Product
 * @property {'NT' | 'NN' | 'TN' | 'TT'} form
 * @property {number} m @property {number} n @property {number} k
 * @property {number} [k2] the depth of a second pair of operands
 * @property {'bf16' | 'f16' | 'f32'} [type] of A and B
 * @property {boolean} [half] whether D is stored in it
 * @property {boolean} [dual] @property {boolean} [bias] @property {boolean} [residual]
 * @property {boolean} [inPlace] whether the residual is D's old content
 * @property {boolean} [permuted] whether B is given with its rows permuted
 * @property {'gelu' | 'silu'} [activation]
 * @property {number} [alpha] @property {number} [beta]
 * @property {number} [pad] elements of poison behind each row
 * @property {any} [plan]
 */

/** Rows in memory, NaN behind each. @param {number} rows @param {number} columns @param {number} gap @param {boolean} filled */
function rowsOf(rows, columns, gap, filled) {
  const all = new Float32Array(rows * (columns + gap)).fill(NaN);
  const data = values(rows * columns);
  for (let i = 0; filled && i < rows; i++) all.set(data.subarray(i * columns, (i + 1) * columns), i * (columns + gap));
  return all;
}

/**
 * B in memory, and its values in their natural order. Of permuted rows the elements behind the last whole 32 stay where they are.
 * @param {Case} test @param {Float32Array} data @param {number} ld @param {'bf16' | 'f16' | 'f32'} type @param {boolean} [permuted]
 */
function inputB(test, data, ld, type, permuted) {
  if (!permuted) return test.input(data, type);
  /** @template {Float32Array | Float64Array} T @param {T} elements */
  const order = (elements) => {
    const all = /** @type {T} */ (elements.slice());
    const whole = ld - (ld % 32);
    for (let row = 0; row < all.length; row += ld) all.set(permuteRows(/** @type {T} */ (elements.slice(row, row + whole)), whole), row);
    return all;
  };
  const { tensor, values } = test.input(order(data), type);
  return { tensor, values: order(values) };
}

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
  const { form, m, n, k, type = 'bf16', half, dual, bias, residual, inPlace, activation, alpha = 1, beta = 0, pad = 8 } = product;
  const { permuted, plan, k2 = 0 } = product;
  const [transA, transB] = [form[0] === 'T', form[1] === 'T'];
  const test = new Case({ vk });
  try {
    const cType = half ? type : 'f32';
    const a = test.input(rowsOf(transA ? k : m, transA ? m : k, pad, true), type);
    const dataB = rowsOf(transB ? n : k, transB ? k : n, 2 * pad, true);
    const b = inputB(test, dataB, (transB ? k : n) + 2 * pad, type, permuted);
    const ldb2 = (transB ? k2 : n) + pad;
    const a2 = k2 > 0 ? test.input(rowsOf(m, k2, 2 * pad, true), type) : a;
    const b2 = k2 > 0 ? test.input(rowsOf(transB ? n : k2, transB ? k2 : n, pad, true), type) : b;
    const c = test.inout(rowsOf(m, n, pad, beta !== 0 || Boolean(inPlace)), cType);
    const added = inPlace ? c : residual ? test.input(rowsOf(m, n, 3 * pad, true)) : undefined;
    const biases = bias ? test.input(values(n)) : undefined;
    const second = dual ? test.inout(rowsOf(m, n, 2 * pad, false), type) : undefined;
    const [lda, ldb, ldc] = [(transA ? m : k) + pad, (transB ? k : n) + 2 * pad, n + pad];
    const [ldr, ldh] = [inPlace ? ldc : n + 3 * pad, n + 2 * pad];
    const dispatches = kernels.matmul({
      ...{ a: a.tensor, b: b.tensor, c: c.tensor, m, n, k, transA, transB, aType: type, bType: type, cType, alpha, beta },
      ...{ lda, ldb, ldc, ldr, ldh, activation, bPermuted: permuted, plan },
      ...(k2 > 0 ? { a2: a2.tensor, b2: b2.tensor, k2, lda2: k2 + 2 * pad, ldb2 } : {}),
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
        for (let l = 0; l < k2; l++) sum += a2.values[i * (k2 + 2 * pad) + l] * b2.values[transB ? j * ldb2 + l : l * ldb2 + j];
        let want = alpha * sum + (beta ? beta * c.values[i * ldc + j] : 0) + (biases ? biases.values[j] : 0);
        want = activate(want, activation) + (added ? added.values[i * ldr + j] : 0);
        for (const { name, got, ld, rounding } of outputs) {
          const x = got[i * ld + j];
          // Sums of exact products in f32 or, on matrix units, somewhat less; then one rounding of the result.
          const allowed = 2e-5 * Math.sqrt(k + k2) + (rounding + 2e-5) * Math.abs(want);
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

/**
 * Weight gradients, or other products, of one launch.
 * @typedef {object} Group
 * @property {'NT' | 'NN' | 'TN'} form
 * @property {number[][]} sizes rows and columns of each product
 * @property {number} k
 * @property {any} tiling
 * @property {'bf16' | 'f16'} [type] of A and B
 * @property {number} [alpha] @property {number} [beta]
 * @property {number} [wave] blocks at a time
 * @property {number} [tail] parts of the last tiles
 */

/**
 * Runs a group twice and compares; returns its dispatches.
 * @param {any} vk @param {any} kernels @param {Group} group
 */
export function checkGroup(vk, kernels, { form, sizes, k, tiling, type = 'bf16', alpha = 1, beta = 0, wave = 2, tail = 1 }) {
  const [transA, transB] = [form[0] === 'T', form[1] === 'T'];
  const test = new Case({ vk });
  try {
    const products = sizes.map(([m, n], i) => {
      const gap = 8 * i;
      return {
        ...{ m, n, lda: (transA ? m : k) + gap, ldb: (transB ? k : n) + gap, ldc: n + gap },
        a: test.input(rowsOf(transA ? k : m, transA ? m : k, gap, true), type),
        b: test.input(rowsOf(transB ? n : k, transB ? k : n, gap, true), type),
        c: test.inout(rowsOf(m, n, gap, beta !== 0)),
      };
    });
    const list = products.map(({ a, b, c, ...sizes }) => ({
      ...{ ...sizes, a: a.tensor, b: b.tensor, c: c.tensor, k, transA, transB, aType: type, bType: type, alpha, beta },
    }));
    const dispatches = kernels.matmulGroup(list, { tiling, wave, tail });
    test.run(dispatches);
    for (const { m, n, lda, ldb, ldc, a, b, c } of products) {
      const got = c.read();
      const [stepA, stepB] = [transA ? lda : 1, transB ? 1 : ldb];
      for (let i = 0; i < m; i++) {
        for (let j = 0; j < n; j++) {
          let sum = 0;
          for (let l = 0, x = transA ? i : i * lda, y = transB ? j * ldb : j; l < k; l++, x += stepA, y += stepB) {
            sum += a.values[x] * b.values[y];
          }
          const want = alpha * sum + (beta ? beta * c.values[i * ldc + j] : 0);
          const x = got[i * ldc + j];
          assert.ok(Math.abs(x - want) <= 2e-5 * (Math.sqrt(k) + Math.abs(want)), `${m}x${n} at ${i}, ${j} is ${x}, expected ${want}`);
        }
        for (let j = n; j < ldc; j++) assert.ok(Number.isNaN(got[i * ldc + j]), `the gap behind row ${i} was written`);
      }
    }
    return dispatches;
  } finally {
    test.destroy();
  }
}

/**
 * SwiGLU with its product, or its gradient with the product before it, twice and against float64; returns its dispatches.
 * @param {any} vk @param {any} kernels
 * @param {{ pass: 'forward' | 'backward', again?: boolean, m: number, columns: number, k: number, k2?: number, type: 'bf16' | 'f16', permuted?: boolean,
 *   plan?: any }} how
 */
export function checkGlu(vk, kernels, { pass, again, m, columns, k, k2 = 0, type, permuted, plan }) {
  const test = new Case({ vk });
  try {
    const wide = 2 * columns;
    const n = pass === 'forward' ? wide : columns;
    const a = test.input(values(m * k), type);
    const b = inputB(test, values(n * k), pass === 'forward' ? k : columns, type, permuted);
    const a2 = k2 > 0 ? test.input(values(m * k2), type) : a;
    const b2 = k2 > 0 ? test.input(values(n * k2), type) : b;
    const second = k2 > 0 ? { a2: a2.tensor, b2: b2.tensor, k2 } : {};
    const common = { a: a.tensor, b: b.tensor, m, columns, k, type, bPermuted: permuted, plan, ...second };
    /** The product in float64. @param {number} i @param {number} j */
    const product = (i, j) => {
      let sum = 0;
      for (let l = 0; l < k; l++) sum += a.values[i * k + l] * b.values[pass === 'forward' ? j * k + l : l * columns + j];
      for (let l = 0; l < k2; l++) sum += a2.values[i * k2 + l] * b2.values[pass === 'forward' ? j * k2 + l : l * columns + j];
      return sum;
    };
    const rounding = type === 'bf16' ? 2 ** -8 : 2 ** -11;
    /** @param {string} name @param {number} got @param {number} want @param {number} scale of the product's error */
    const near = (name, got, want, scale) =>
      assert.ok(
        Math.abs(got - want) <= 2e-5 * Math.sqrt(k) * scale + (rounding + 2e-5) * Math.abs(want),
        `${name} is ${got}, expected ${want}`,
      );
    const sigmoid = (/** @type {number} */ x) => 1 / (1 + Math.exp(-x));
    let dispatches;
    if (pass === 'forward') {
      const [gateUp, y] = [test.output(m * wide, type), test.output(m * columns, type)];
      dispatches = kernels.matmulGlu({ ...common, gateUp: gateUp.tensor, y: y.tensor });
      test.run(dispatches);
      const [rows, results] = [gateUp.read(), y.read()];
      for (let i = 0; i < m; i++)
        for (let j = 0; j < columns; j++) {
          const [gate, up] = [product(i, j), product(i, columns + j)];
          near(`gate ${i}, ${j}`, rows[i * wide + j], gate, 1);
          near(`up ${i}, ${j}`, rows[i * wide + columns + j], up, 1);
          // Of gates and ups as they are stored.
          const [ownGate, ownUp] = [rows[i * wide + j], rows[i * wide + columns + j]];
          near(`y ${i}, ${j}`, results[i * columns + j], ownGate * sigmoid(ownGate) * ownUp, 1);
        }
    } else {
      const gateUp = test.input(values(m * wide), type);
      const dGateUp = test.output(m * wide, type);
      const y = again ? test.output(m * columns, type) : undefined;
      // Nobody touches it: all of it is poison, before and after.
      const dy = test.inout(new Float32Array(m * columns).fill(NaN), type);
      dispatches = kernels.matmulGluBackward({ ...common, gateUp: gateUp.tensor, dGateUp: dGateUp.tensor, dy: dy.tensor, y: y?.tensor });
      test.run(dispatches);
      assert.ok(dy.read().every(Number.isNaN));
      const results = dGateUp.read();
      const units = y?.read();
      for (let i = 0; i < m; i++)
        for (let j = 0; j < columns; j++) {
          const [gate, up] = [gateUp.values[i * wide + j], gateUp.values[i * wide + columns + j]];
          const [d, s] = [product(i, j), sigmoid(gate)];
          near(`dGate ${i}, ${j}`, results[i * wide + j], d * up * s * (1 + gate * (1 - s)), 1);
          near(`dUp ${i}, ${j}`, results[i * wide + columns + j], d * gate * s, 1);
          if (units) near(`y ${i}, ${j}`, units[i * columns + j], gate * s * up, 1);
        }
    }
    return dispatches;
  } finally {
    test.destroy();
  }
}
