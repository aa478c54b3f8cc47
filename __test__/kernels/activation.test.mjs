// Activations, gated units and softmax against float64.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createKernels } from '../../kernels/index.mjs';
import { vk, withNan } from '../lib/addon.mjs';
import { Case, TOLERANCE } from '../lib/kernel-check.mjs';
import { assertClose, normal } from '../lib/random-data.mjs';
import * as reference from '../lib/reference.mjs';

const kernels = createKernels(vk);
after(() => vk.destroy());

/** @typedef {import('../../kernels/base.mjs').DType} DType */
/** @type {DType[]} */
const TYPES = ['f32', 'f16', 'bf16'];
const NAMES = /** @type {const} */ (['identity', 'relu', 'silu', 'gelu', 'tanh', 'sigmoid']);
// exp is within 3 + 2|x| units in the last place.
/** @type {Record<string, number>} */
const tolerance = { ...TOLERANCE, f32: 4e-6 };
const wide = (/** @type {number} */ n) => normal(n).map((v) => 3 * v);

for (const type of TYPES) {
  for (const activation of NAMES) {
    test(`${activation} ${type}`, () => {
      for (const [count, guard] of type === 'f32'
        ? [
            [1000, 8],
            [77, 3],
            [1, 1],
          ]
        : [
            [1000, 8],
            [78, 2],
          ]) {
        const c = new Case({ guard });
        const x = c.input(wide(count), type);
        const dy = c.input(normal(count), type);
        const y = c.output(count, type);
        const dx = c.output(count, type);
        c.run(
          kernels.activationForward({ x: x.tensor, y: y.tensor, count, activation, type }),
          kernels.activationBackward({ x: x.tensor, dy: dy.tensor, dx: dx.tensor, count, activation, type }),
        );
        assertClose(y.read(), x.values.map(reference.activations[activation]), tolerance[type], 'y');
        const slope = x.values.map(reference.activationSlopes[activation]);
        assertClose(
          dx.read(),
          slope.map((s, i) => s * dy.values[i]),
          tolerance[type],
          'dx',
        );
        c.destroy();
      }
    });
  }

  for (const fused of [true, false]) {
    test(`SwiGLU ${type}, ${fused ? 'gate and up in one buffer' : 'in two'}`, () => {
      for (const [rows, columns] of type === 'f32'
        ? [
            [5, 172],
            [3, 33],
          ]
        : [
            [5, 172],
            [3, 34],
          ]) {
        const c = new Case();
        const n = rows * columns;
        const dy = c.input(normal(n), type);
        const y = c.output(n, type);
        const pick = (/** @type {Float64Array} */ both, /** @type {number} */ half) =>
          Float64Array.from({ length: n }, (_, i) => both[Math.floor(i / columns) * 2 * columns + half * columns + (i % columns)]);
        const common = { rows, columns, type };
        /** @type {Float64Array[]} */
        let got;
        let gate;
        let up;
        if (fused) {
          const gateUp = c.input(wide(2 * n), type);
          const dGateUp = c.output(2 * n, type);
          c.run(
            kernels.gluForward({ gateUp: gateUp.tensor, y: y.tensor, ...common }),
            kernels.gluBackward({ gateUp: gateUp.tensor, dy: dy.tensor, dGateUp: dGateUp.tensor, ...common }),
          );
          [gate, up] = [pick(gateUp.values, 0), pick(gateUp.values, 1)];
          got = [pick(dGateUp.read(), 0), pick(dGateUp.read(), 1)];
        } else {
          // The gradients over their inputs, in place.
          const g = c.inout(wide(n), type);
          const u = c.inout(wide(n), type);
          c.run(
            kernels.gluForward({ gate: g.tensor, up: u.tensor, y: y.tensor, ...common }),
            kernels.gluBackward({ gate: g.tensor, up: u.tensor, dy: dy.tensor, dGate: g.tensor, dUp: u.tensor, ...common }),
          );
          [gate, up] = [g.values, u.values];
          got = [g.read(), u.read()];
        }
        const { silu } = reference.activations;
        const slope = reference.activationSlopes.silu;
        assertClose(
          y.read(),
          gate.map((v, i) => silu(v) * up[i]),
          tolerance[type],
          'y',
        );
        assertClose(
          got[0],
          gate.map((v, i) => dy.values[i] * up[i] * slope(v)),
          tolerance[type],
          'dgate',
        );
        assertClose(
          got[1],
          gate.map((v, i) => dy.values[i] * silu(v)),
          tolerance[type],
          'dup',
        );
        c.destroy();
      }
    });
  }

  test(`softmax ${type}`, () => {
    for (const [rows, columns] of type === 'f32'
      ? [
          [4, 512],
          [3, 37],
          [2, 70001],
          [66000, 4],
        ]
      : [
          [4, 512],
          [3, 38],
          [2, 6000],
        ]) {
      const c = new Case();
      const x = c.input(wide(rows * columns), type);
      const dy = c.input(normal(rows * columns), type);
      const y = c.output(rows * columns, type);
      const dx = c.output(rows * columns, type);
      c.run(
        kernels.softmaxForward({ x: x.tensor, y: y.tensor, rows, columns, scale: 0.7, type }),
        kernels.softmaxBackward({ y: y.tensor, dy: dy.tensor, dx: dx.tensor, rows, columns, scale: 0.7, type }),
      );
      const got = y.read();
      // Small probabilities in f16 are subnormal and keep fewer bits.
      assertClose(got, reference.softmax(x.values, rows, columns, 0.7), type === 'f16' ? 2e-3 : 2 * tolerance[type], 'y');
      const expected = reference.softmaxBackward(got, dy.values, rows, columns, 0.7);
      assertClose(dx.read(), expected, type === 'f16' ? 2e-3 : 2 * tolerance[type], 'dx');
      c.destroy();
    }
  });
}

test('softmax of masked rows: one of nothing but -∞ is 0 and has the gradient 0, and NaN where rows are not masked', () => {
  for (const type of /** @type {const} */ (['f32', 'f16', 'bf16'])) {
    // Rows of a subgroup, of a workgroup, and those that do not stay in registers.
    for (const columns of [6, 1000, 70002]) {
      const values = normal(3 * columns);
      values.fill(-Infinity, columns, 2 * columns);
      values.fill(-Infinity, 2 * columns + 1);
      const c = new Case();
      const x = c.input(values, type);
      const dy = c.input(normal(3 * columns), type);
      const [y, dx, plain] = [0, 1, 2].map(() => c.output(3 * columns, type));
      c.run(
        kernels.softmaxForward({ x: x.tensor, y: y.tensor, rows: 3, columns, masked: true, type }),
        kernels.softmaxBackward({ y: y.tensor, dy: dy.tensor, dx: dx.tensor, rows: 3, columns, type }),
        kernels.softmaxForward({ x: x.tensor, y: plain.tensor, rows: 3, columns, type }),
      );
      const [got, gradient, unmasked] = [y, dx, plain].map((tensor) => tensor.read());
      const rowOf = (/** @type {ArrayLike<number>} */ t, /** @type {number} */ r) => Array.from(t).slice(r * columns, (r + 1) * columns);
      for (const t of [got, gradient])
        assert.ok(
          rowOf(t, 1).every((v) => v === 0),
          `${type}, ${columns} columns`,
        );
      assert.ok(rowOf(unmasked, 1).every(Number.isNaN), `${type}, ${columns} columns, not masked`);
      for (const r of [0, 2]) assert.deepEqual(rowOf(got, r), rowOf(unmasked, r), `${type}, ${columns} columns, row ${r}`);
      assert.deepEqual(rowOf(got, 2).slice(0, 2), [1, 0]);
      c.destroy();
    }
  }
});

test('a product and its activation, and the gradient of that', () => {
  const [m, n, k] = [6, 10, 7];
  for (const activation of /** @type {const} */ (['gelu', 'silu'])) {
    for (const biased of [true, false]) {
      const c = new Case();
      const [a, b, next, weights] = [m * k, n * k, m * k, k * n].map((size) => c.input(normal(size)));
      const bias = c.input(normal(n));
      const [x, y, dx, dy] = [0, 1, 2, 3].map(() => c.output(m * n));
      const sizes = { m, n, k, activation };
      c.run(
        ...kernels.matmulActivation({
          ...sizes,
          a: a.tensor,
          b: b.tensor,
          ...(biased ? { bias: bias.tensor } : {}),
          x: x.tensor,
          y: y.tensor,
        }),
        ...kernels.matmulActivationBackward({
          ...sizes,
          a: next.tensor,
          b: weights.tensor,
          x: x.tensor,
          dx: dx.tensor,
          dy: dy.tensor,
        }),
      );
      const [kept, gradient] = [new Float64Array(m * n), new Float64Array(m * n)];
      for (let i = 0; i < m * n; i++) {
        const [row, column] = [Math.floor(i / n), i % n];
        kept[i] = biased ? bias.values[column] : 0;
        for (let l = 0; l < k; l++) {
          kept[i] += a.values[row * k + l] * b.values[column * k + l];
          gradient[i] += next.values[row * k + l] * weights.values[l * n + column];
        }
      }
      assertClose(x.read(), kept, 4e-6, 'x');
      assertClose(y.read(), kept.map(reference.activations[activation]), 4e-6, 'y');
      const slope = kept.map(reference.activationSlopes[activation]);
      assertClose(
        dx.read(),
        slope.map((s, i) => s * gradient[i]),
        1e-5,
        'dx',
      );
    }
  }
  const call = /** @type {any} */ ({ m, n, k, activation: 'tanh' });
  assert.throws(() => kernels.matmulActivation(call), /matmulActivation: activation must be 'gelu' or 'silu', got tanh/);
  assert.throws(
    () => kernels.takesActivation(/** @type {any} */ ({ m, n, k, unit: 'up' })),
    /unit must be 'forward' or 'backward', got up/,
  );
});

test('activations of extreme values stay finite', () => {
  const values = Float64Array.of(-1e4, -200, -88.8, -60, 0, 60, 88.8, 1e4);
  for (const activation of NAMES) {
    const c = new Case();
    const x = c.input(values);
    const dy = c.input(values.map(() => 1));
    const [y, dx] = [c.output(8), c.output(8)];
    c.run(
      kernels.activationForward({ x: x.tensor, y: y.tensor, count: 8, activation }),
      kernels.activationBackward({ x: x.tensor, dy: dy.tensor, dx: dx.tensor, count: 8, activation }),
    );
    assertClose(y.read(), values.map(reference.activations[activation]), 1e-6, `${activation} forward`);
    assertClose(dx.read(), values.map(reference.activationSlopes[activation]), 1e-6, `${activation} backward`);
    c.destroy();
  }
});

test("ReLU propagates NaN, and its gradient and a gate's are 0 where x is not above 0, whatever dy is", () => {
  const values = Float64Array.of(NaN, -Infinity, -2, 0, 1, 2, Infinity, NaN);
  for (const type of withNan(TYPES)) {
    for (const slope of [3, Infinity, NaN]) {
      // Fours, and what is narrower.
      for (const guard of [4, 2]) {
        const c = new Case({ guard });
        const args = /** @type {const} */ ({ activation: 'relu', type });
        const x = c.input(values, type);
        const [dy, ones] = [
          c.input(
            values.map(() => slope),
            type,
          ),
          c.input(
            values.map(() => 1),
            type,
          ),
        ];
        const [y, dx, gated, dGate, dUp] = [1, 2, 3, 4, 5].map(() => c.output(8, type));
        const gate = { gate: x.tensor, up: ones.tensor, rows: 1, columns: 8, ...args };
        c.run(
          kernels.activationForward({ x: x.tensor, y: y.tensor, count: 8, ...args }),
          kernels.activationBackward({ x: x.tensor, dy: dy.tensor, dx: dx.tensor, count: 8, ...args }),
          kernels.gluForward({ ...gate, y: gated.tensor }),
          kernels.gluBackward({ ...gate, dy: dy.tensor, dGate: dGate.tensor, dUp: dUp.tensor }),
        );
        for (const got of [y, gated]) assert.deepEqual([...got.read()], [NaN, 0, 0, 0, 1, 2, Infinity, NaN], type);
        for (const got of [dx, dGate]) assert.deepEqual([...got.read()], [0, 0, 0, 0, slope, slope, slope, 0], type);
        c.destroy();
      }
    }
  }
});
