// Fills, casts, arithmetic, transposes, dropout and reductions against float64.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createKernels } from '../../kernels/index.mjs';
import { vk, withNan } from '../lib/addon.mjs';
import { Case, TOLERANCE } from '../lib/kernel-check.mjs';
import { assertClose, normal, uniform } from '../lib/random-data.mjs';
import * as half from '../lib/half.mjs';
import * as reference from '../lib/reference.mjs';

const kernels = createKernels(vk);
after(() => vk.destroy());

/** @typedef {import('../../kernels/base.mjs').DType} DType */
/** @type {DType[]} */
const TYPES = ['f32', 'f16', 'bf16'];
/** Counts and guards that take the wide and the narrow path. @param {DType} type */
const sizes = (type) =>
  type === 'f32'
    ? [
        [1000, 8],
        [77, 3],
        [1, 1],
        [300000, 4],
      ]
    : [
        [1000, 8],
        [78, 2],
        [2, 6],
      ];

test('fill', () => {
  for (const type of TYPES) {
    for (const [count, guard] of sizes(type)) {
      const c = new Case({ guard });
      const y = c.output(count, type);
      c.run(kernels.fill({ y: y.tensor, count, value: -1.625, type }));
      assert.ok(
        y.read().every((v) => v === -1.625),
        type,
      );
      c.destroy();
    }
  }
  const c = new Case();
  const y = c.output(5, 'u32');
  c.run(kernels.fill({ y: y.tensor, count: 5, value: 0xfedcba98, type: 'u32' }));
  assert.ok(y.read().every((v) => v === 0xfedcba98));
  c.destroy();
});

test('casts and copies', () => {
  for (const from of TYPES) {
    for (const to of TYPES) {
      for (const [count, guard] of from === 'f32' && to === 'f32' ? sizes('f32') : sizes('f16')) {
        const c = new Case({ guard });
        const x = c.input(
          normal(count).map((v, i) => (i === 0 ? 0 : i === 1 ? 300 : v)),
          from,
        );
        const y = c.output(count, to);
        c.run(kernels.cast({ x: x.tensor, y: y.tensor, count, from, to }));
        const got = y.read();
        if (from === to || to === 'f32') assert.deepEqual(got, x.values, `${from} to ${to}`);
        else if (to === 'bf16')
          assert.deepEqual(
            got,
            x.values.map((v) => half.fromBf16(half.toBf16(v))),
            `${from} to bf16`,
          );
        else {
          // A neighbour in f16: the device rounds to nearest or truncates.
          got.forEach((v, i) =>
            assert.ok(
              Math.abs(v - x.values[i]) <= Math.max(2 ** -24, Math.abs(x.values[i]) * 2 ** -10),
              `${from} to f16: ${x.values[i]} became ${v}`,
            ),
          );
        }
        c.destroy();
      }
    }
  }
});

test('bf16 rounds ties to even, keeps infinities and NaN', () => {
  const c = new Case();
  const values = Float64Array.of(1 + 2 ** -8, 1 + 3 * 2 ** -8, -1 - 2 ** -8, 3.4e38, Infinity, -Infinity, NaN, 1e-40);
  const x = c.input(values);
  const y = c.output(8, 'bf16');
  c.run(kernels.cast({ x: x.tensor, y: y.tensor, count: 8, from: 'f32', to: 'bf16' }));
  const got = y.read();
  assert.deepEqual([...got.subarray(0, 7)], [1, 1 + 2 ** -6, -1, half.fromBf16(0x7f80), Infinity, -Infinity, NaN]);
  // A subnormal may be flushed.
  assert.ok(got[7] === 0 || Math.abs(got[7] - 1e-40) < 2e-41, `subnormal became ${got[7]}`);
  c.destroy();
});

test('unary operations', () => {
  /** @type {Record<string, (v: number) => number>} */
  const ops = {
    identity: (v) => v,
    exp: Math.exp,
    log: Math.log,
    sqrt: Math.sqrt,
    rsqrt: (v) => 1 / Math.sqrt(v),
    reciprocal: (v) => 1 / v,
    abs: Math.abs,
    square: (v) => v * v,
    sign: Math.sign,
  };
  for (const type of TYPES) {
    for (const [op, f] of Object.entries(ops)) {
      for (const [count, guard] of sizes(type).slice(0, 2)) {
        const c = new Case({ guard });
        const positive = op === 'log' || op === 'sqrt' || op === 'rsqrt' || op === 'reciprocal';
        const x = c.inout(positive ? uniform(count, 0.1, 4) : normal(count), type);
        c.run(kernels.unary({ x: x.tensor, y: x.tensor, count, op: /** @type {any} */ (op), alpha: -1.5, beta: 0.25, type }));
        assertClose(
          x.read(),
          x.values.map((v) => -1.5 * f(v) + 0.25),
          type === 'f32' ? 4e-6 : TOLERANCE[type],
          `${op} ${type}`,
        );
        c.destroy();
      }
    }
  }
});

test('binary operations, a row that all rows share, and a scalar', () => {
  /** @type {Record<string, (a: number, b: number) => number>} */
  const ops = { add: (a, b) => 2 * a - 0.5 * b, mul: (a, b) => a * b, div: (a, b) => a / b, max: Math.max, min: Math.min };
  for (const type of TYPES) {
    for (const [op, f] of Object.entries(ops)) {
      for (const [count, period, guard] of [
        [240, 240, 8],
        [240, 24, 8],
        [66, 22, 2],
        ...(type === 'f32'
          ? [
              [77, 1, 3],
              [63, 9, 1],
            ]
          : []),
      ]) {
        const c = new Case({ guard });
        const a = c.input(normal(count), type);
        const b = c.input(uniform(period, 0.5, 2), type);
        const y = c.output(count, type);
        c.run(
          kernels.binary({ a: a.tensor, b: b.tensor, y: y.tensor, count, period, op: /** @type {any} */ (op), alpha: 2, beta: -0.5, type }),
        );
        assertClose(
          y.read(),
          a.values.map((v, i) => f(v, b.values[i % period])),
          TOLERANCE[type],
          `${op} ${type}`,
        );
        c.destroy();
      }
    }
  }
});

test('max and min propagate NaN, from either side', () => {
  const [left, right] = [Float64Array.of(NaN, 1, NaN, -Infinity, Infinity, 2), Float64Array.of(1, NaN, NaN, 3, NaN, Infinity)];
  for (const type of withNan(TYPES)) {
    for (const [op, f] of /** @type {const} */ ([
      ['max', Math.max],
      ['min', Math.min],
    ])) {
      // Fours, and what is narrower.
      for (const repeats of [2, 1]) {
        const c = new Case({ guard: 4 });
        const [x, z] = [left, right].map((values) => Float64Array.from({ length: 6 * repeats }, (_, i) => values[i % 6]));
        const [a, b, y] = [c.input(x, type), c.input(z, type), c.output(x.length, type)];
        c.run(kernels.binary({ a: a.tensor, b: b.tensor, y: y.tensor, count: x.length, op, type }));
        const expected = Array.from(x, (v, i) => f(v, z[i]));
        assert.deepEqual([...y.read()], expected, `${op} ${type}`);
        if (type === 'f32') {
          const strided = c.output(x.length);
          c.run(kernels.broadcast({ a: a.tensor, b: b.tensor, y: strided.tensor, shape: [2, x.length / 2], op }));
          assert.deepEqual([...strided.read()], expected, `${op}, strided`);
        }
        c.destroy();
      }
    }
  }
});

test('broadcasting over four dimensions', () => {
  const shape = [3, 2, 5, 7];
  const c = new Case({ guard: 5 });
  const a = c.input(normal(3 * 5 * 7)); // [3, 1, 5, 7]
  const b = c.input(normal(2 * 7)); // [1, 2, 1, 7]
  const y = c.inout(normal(3 * 2 * 5 * 8)); // rows of 7 at a stride of 8
  c.run(
    kernels.broadcast({
      a: a.tensor,
      b: b.tensor,
      y: y.tensor,
      shape,
      aStrides: [35, 0, 7, 1],
      bStrides: [0, 7, 0, 1],
      yStrides: [80, 40, 8, 1],
      op: 'mul',
    }),
  );
  const expected = Float64Array.from(y.values);
  for (let i = 0; i < 3; i++)
    for (let j = 0; j < 2; j++)
      for (let k = 0; k < 5; k++)
        for (let l = 0; l < 7; l++) {
          expected[i * 80 + j * 40 + k * 8 + l] = a.values[i * 35 + k * 7 + l] * b.values[j * 7 + l];
        }
  assertClose(y.read(), expected, 1e-7, 'y');
  c.destroy();

  const d = new Case({ guard: 1 });
  const left = d.input(normal(6));
  const out = d.output(6);
  d.run(kernels.broadcast({ a: left.tensor, b: left.tensor, y: out.tensor, shape: [2, 3], aStrides: [1, 2], beta: -1 }));
  // a read as the transpose of [3, 2], minus a dense.
  const difference = [0, 1, 2, 3, 4, 5].map((i) => left.values[(i % 3) * 2 + Math.floor(i / 3)] - left.values[i]);
  assertClose(out.read(), difference, 1e-7, 'difference');
  d.destroy();
});

test('transposes', () => {
  for (const type of TYPES) {
    for (const [batch, rows, columns, guard] of [
      [1, 64, 128, 8],
      [2, 68, 132, 4],
      [1, 4, 200, 8],
      [3, 34, 70, 2],
      [2, 2, 130, 2],
      [1, 200, 2, 4],
      ...(type === 'f32'
        ? [
            [2, 33, 65, 3],
            [1, 1, 9, 1],
          ]
        : []),
    ]) {
      const c = new Case({ guard });
      const n = batch * rows * columns;
      const x = c.input(normal(n), type);
      const y = c.output(n, type);
      c.run(kernels.transpose({ x: x.tensor, y: y.tensor, batch, rows, columns, type }));
      const expected = Float64Array.from({ length: n }, (_, i) => {
        const b = Math.floor(i / (rows * columns));
        const rest = i % (rows * columns);
        return x.values[b * rows * columns + (rest % rows) * columns + Math.floor(rest / rows)];
      });
      assert.deepEqual(y.read(), expected, `${type} ${batch}x${rows}x${columns}`);
      c.destroy();
    }
  }
});

test('dropout draws what Philox says, and draws anew when the offset moves', () => {
  for (const type of TYPES) {
    for (const [count, guard] of sizes(type).filter(([n]) => n < 10000)) {
      const c = new Case({ guard });
      const values = normal(count);
      values[0] = Infinity;
      const x = c.input(values, type);
      const random = c.input([0x12345678, 0x9abcdef0, 41, 7], 'u32');
      const y = c.output(count, type);
      const p = 0.3;
      c.run(kernels.dropout({ x: x.tensor, y: y.tensor, random: random.tensor, count, p, stream: 9, type }));
      const expected = reference.dropout(x.values, { p, seed: [0x12345678, 0x9abcdef0], offset: [41, 7], stream: 9 });
      const got = y.read();
      assert.equal(got[0], expected[0]);
      assertClose(got.subarray(1), expected.subarray(1), TOLERANCE[type], type);
      got.forEach((v, i) => assert.equal(v === 0, expected[i] === 0, `element ${i}`));
      c.destroy();
    }
  }
  const c = new Case();
  const x = c.input(new Float64Array(4096).fill(1));
  const [one, two] = [c.input([1, 2, 3, 0], 'u32'), c.input([1, 2, 4, 0], 'u32')];
  const [y, z] = [c.output(4096), c.output(4096)];
  c.run(
    kernels.dropout({ x: x.tensor, y: y.tensor, random: one.tensor, count: 4096, p: 0.5 }),
    kernels.dropout({ x: x.tensor, y: z.tensor, random: two.tensor, count: 4096, p: 0.5 }),
  );
  const [a, b] = [y.read(), z.read()];
  const kept = a.filter((v) => v !== 0).length;
  const both = a.filter((v, i) => v !== 0 && b[i] !== 0).length;
  // Five standard deviations.
  assert.ok(Math.abs(kept - 2048) < 160, `${kept} of 4096 kept`);
  assert.ok(Math.abs(both - 1024) < 139, `${both} of 4096 kept in both`);
  c.destroy();
});

test('reductions of rows, columns and everything', () => {
  /** @type {Record<string, (v: Float64Array) => number>} */
  const ops = {
    sum: (v) => v.reduce((a, b) => a + b, 0),
    sumOfSquares: (v) => v.reduce((a, b) => a + b * b, 0),
    max: (v) => v.reduce((a, b) => Math.max(a, b), -Infinity),
    min: (v) => v.reduce((a, b) => Math.min(a, b), Infinity),
    maxAbs: (v) => v.reduce((a, b) => Math.max(a, Math.abs(b)), 0),
  };
  for (const type of TYPES) {
    for (const [rows, columns, guard] of [
      [5, 1024, 8],
      [300, 66, 2],
      [3, 40000, 8],
      ...(type === 'f32'
        ? [
            [7, 13, 3],
            [66000, 5, 1],
          ]
        : []),
    ]) {
      // All of one sign: a sum that cancels has no relative error to speak of.
      const x = uniform(rows * columns, 0.1, 2).map((v, i) => (i % 97 === 0 ? -v : v));
      for (const [op, f] of Object.entries(ops)) {
        const c = new Case({ guard });
        const input = c.input(x, type);
        const byRow = c.inout(normal(rows));
        const all = c.inout([3]);
        const name = /** @type {any} */ (op);
        c.run(
          kernels.reduceRows({ x: input.tensor, y: byRow.tensor, rows, columns, op: name, alpha: 0.5, beta: 2, type }),
          ...kernels.reduceAll({ x: input.tensor, y: all.tensor, count: rows * columns, op: name, alpha: -2, beta: 1, type }),
        );
        const expected = Float64Array.from(
          { length: rows },
          (_, r) => 0.5 * f(input.values.subarray(r * columns, (r + 1) * columns)) + 2 * byRow.values[r],
        );
        assertClose(byRow.read(), expected, 2e-6, `${op} of rows, ${type}`);
        assertClose(all.read(), [-2 * f(input.values) + 3], 2e-6, `${op} of all, ${type}`);
        c.destroy();
      }
      const c = new Case({ guard });
      const input = c.input(x, type);
      const y = c.inout(normal(columns));
      c.run(...kernels.columnSum({ x: input.tensor, y: y.tensor, rows, columns, alpha: 0.5, beta: -1, type }));
      const sum = reference.columnSum(input.values, rows, columns);
      assertClose(
        y.read(),
        sum.map((v, i) => 0.5 * v - y.values[i]),
        4e-6,
        `columns, ${type}`,
      );
      c.destroy();
    }
  }
});

test('a loss goes to the slot that a counter names', () => {
  const c = new Case();
  const x = c.input(uniform(513, 1, 2));
  const slots = c.inout(normal(5));
  const counter = c.input([8], 'u32');
  const fixed = c.inout(normal(5));
  const mean = x.values.reduce((a, b) => a + b, 0) / 513;
  c.run(
    kernels.reduceToSlot({ x: x.tensor, y: slots.tensor, count: 513, alpha: 1 / 513, beta: 1, slot: 1, slots: 5, counter: counter.tensor }),
    kernels.reduceToSlot({ x: x.tensor, y: fixed.tensor, count: 513, alpha: 1 / 513, slot: 2 }),
  );
  assertClose(
    slots.read(),
    slots.values.map((v, i) => (i === 4 ? v + mean : v)),
    1e-6,
    'slots',
  );
  assertClose(
    fixed.read(),
    fixed.values.map((v, i) => (i === 2 ? mean : v)),
    1e-6,
    'fixed',
  );
  c.destroy();
});
