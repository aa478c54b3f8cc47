// LayerNorm and RMSNorm against float64: every storage pair, wide and narrow rows, rows in registers and rows read
// again, fused and not.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createKernels } from '../../kernels/index.mjs';
import { firstOf, vk } from '../lib/addon.mjs';
import { Case, TOLERANCE } from '../lib/kernel-check.mjs';
import { assertClose, normal, uniform } from '../lib/random-data.mjs';
import * as reference from '../lib/reference.mjs';

const kernels = createKernels(vk);
after(() => vk.destroy());

/** @typedef {import('../../kernels/base.mjs').DType} DType */
/** @type {[DType, DType][]} */
const PAIRS = [
  ['f32', 'f32'],
  ['f16', 'f16'],
  ['bf16', 'bf16'],
  ['f32', 'f16'],
  ['f32', 'bf16'],
];
const add = (/** @type {Float64Array} */ a, /** @type {Float64Array} */ b) => a.map((v, i) => v + b[i]);

/**
 * @param {boolean} layer @param {DType} type @param {DType} outType @param {number} rows @param {number} columns
 * @param {boolean} fused @param {number} guard
 */
function forward(layer, type, outType, rows, columns, fused, guard) {
  const c = new Case({ guard });
  // Away from zero mean and unit variance, so that both matter.
  const x = c.input(
    normal(rows * columns).map((v) => 2 * v + 0.5),
    fused ? outType : type,
  );
  const weight = c.input(uniform(columns, 0.5, 1.5));
  const bias = layer ? c.input(normal(columns)) : undefined;
  const residual = fused ? c.input(normal(rows * columns), type) : undefined;
  const sum = fused ? c.output(rows * columns, type) : undefined;
  const y = c.output(rows * columns, outType);
  const stats = c.output(layer ? 2 * rows : rows);
  const eps = 1e-3;
  const args = {
    x: x.tensor,
    y: y.tensor,
    weight: weight.tensor,
    stats: stats.tensor,
    residual: residual?.tensor,
    sum: sum?.tensor,
    rows,
    columns,
    eps,
    type,
    outType,
  };
  c.run(layer ? kernels.layerNormForward({ ...args, bias: /** @type {any} */ (bias).tensor }) : kernels.rmsNormForward(args));
  let r = x.values;
  if (residual && sum) {
    const exact = add(x.values, residual.values);
    r = sum.read();
    assertClose(r, exact, TOLERANCE[type], 'sum');
  }
  const expected = reference.normForward({ x: r, weight: weight.values, bias: bias?.values, rows, columns, eps });
  // A short row may have little variance; it then amplifies the rounding of its mean by up to 1 / sqrt(eps).
  const short = layer && columns < 16 && outType === 'f32';
  assertClose(y.read(), expected.y, short ? 1e-5 : TOLERANCE[outType], 'y');
  const held = stats.read();
  assertClose(layer ? held.filter((_, i) => i % 2 === 1) : held, expected.scale, short ? 1e-5 : 2e-6, 'scale');
  if (layer)
    assertClose(
      held.filter((_, i) => i % 2 === 0),
      expected.mean,
      5e-6,
      'mean',
    );
  c.destroy();
}

/**
 * @param {boolean} layer @param {DType} type @param {DType} outType @param {number} rows @param {number} columns
 * @param {boolean} fused @param {number} guard @param {boolean} copied
 */
function backward(layer, type, outType, rows, columns, fused, guard, copied) {
  const c = new Case({ guard });
  const x = c.input(
    normal(rows * columns).map((v) => 2 * v + 0.5),
    type,
  );
  const dy = c.input(normal(rows * columns), outType);
  const weight = c.input(uniform(columns, 0.5, 1.5));
  const residual = fused ? c.input(normal(rows * columns), type) : undefined;
  const eps = 1e-3;
  const bias = layer ? new Float64Array(columns) : undefined;
  const { mean, scale } = reference.normForward({ x: x.values, weight: weight.values, bias, rows, columns, eps });
  const stats = c.input(layer ? Float64Array.from({ length: 2 * rows }, (_, i) => (i % 2 ? scale : mean)[i >> 1]) : scale);
  const dx = c.output(rows * columns, type);
  const copy = copied ? c.output(rows * columns, outType) : undefined;
  const dWeight = c.inout(normal(columns));
  const dBias = layer ? c.inout(normal(columns)) : undefined;
  const beta = rows % 2 ? 0.5 : 0;
  const args = {
    dy: dy.tensor,
    x: x.tensor,
    weight: weight.tensor,
    stats: stats.tensor,
    dx: dx.tensor,
    dWeight: dWeight.tensor,
    residual: residual?.tensor,
    copy: copy?.tensor,
    rows,
    columns,
    beta,
    type,
    outType,
  };
  c.run(...(layer ? kernels.layerNormBackward({ ...args, dBias: /** @type {any} */ (dBias).tensor }) : kernels.rmsNormBackward(args)));
  const expected = reference.normBackward({ x: x.values, weight: weight.values, bias, dy: dy.values, rows, columns, eps });
  const gradient = residual ? add(expected.dx, residual.values) : expected.dx;
  // Differences of means: a few more roundings than the forward pass. A short row may have little variance; it then
  // amplifies the rounding of its mean by up to 1 / sqrt(eps).
  const f32 = columns < 16 ? 2e-5 : 4e-6;
  /** @type {Record<string, number>} */
  const tolerance = { ...TOLERANCE, f32 };
  assertClose(dx.read(), gradient, tolerance[type], 'dx');
  if (copy) assertClose(copy.read(), gradient, tolerance[outType], 'copy');
  const before = (/** @type {Float64Array} */ initial, /** @type {Float64Array} */ sum) => sum.map((v, i) => v + beta * initial[i]);
  assertClose(dWeight.read(), before(dWeight.values, expected.dWeight), f32, 'dWeight');
  if (dBias) assertClose(dBias.read(), before(dBias.values, expected.dBias), f32, 'dBias');
  c.destroy();
}

for (const layer of [false, true]) {
  const name = layer ? 'LayerNorm' : 'RMSNorm';
  for (const [type, outType] of firstOf(PAIRS, 3)) {
    for (const fused of [false, true]) {
      const label = `${name}${fused ? ' + residual' : ''} ${type}${outType === type ? '' : ` to ${outType}`}`;
      test(`${label}, forward`, () => {
        forward(layer, type, outType, 3, 1024, fused, 8);
        forward(layer, type, outType, 5, 66, fused, 8);
        forward(layer, type, outType, 4, 2, fused, 2);
        forward(layer, type, outType, 2, 5004, fused, 4);
      });
      test(`${label}, backward`, () => {
        backward(layer, type, outType, 7, 1024, fused, 8, false);
        backward(layer, type, outType, 70, 66, fused, 8, type !== outType);
        backward(layer, type, outType, 4, 8, fused, 2, false);
        backward(layer, type, outType, 9, 3000, fused, 4, type !== outType);
      });
    }
  }
  test(`${name} f32 of odd rows, long rows and many rows`, () => {
    for (const [rows, columns, guard] of [
      [5, 1, 1],
      [3, 7, 3],
      [6, 101, 4],
      [2, 70001, 8],
      [70001, 4, 8],
      [66000, 3, 2],
    ]) {
      if (columns === 1 && layer) continue; // one column has no variance
      forward(layer, 'f32', 'f32', rows, columns, columns > 1, layer ? 2 * guard : guard);
      if (rows * columns < 200000) backward(layer, 'f32', 'f32', rows, columns, true, layer ? 2 * guard : guard, false);
    }
  });
}

test('in place: the sum over the residual, dx over the residual gradient', () => {
  const [rows, columns] = [6, 132];
  const c = new Case();
  const x = c.input(normal(rows * columns));
  const stream = c.inout(normal(rows * columns));
  const weight = c.input(uniform(columns, 0.5, 1.5));
  const y = c.output(rows * columns);
  const stats = c.output(rows);
  c.run(
    kernels.rmsNormForward({
      x: x.tensor,
      y: y.tensor,
      weight: weight.tensor,
      stats: stats.tensor,
      residual: stream.tensor,
      sum: stream.tensor,
      rows,
      columns,
    }),
  );
  const sum = add(x.values, stream.values);
  assertClose(stream.read(), sum, 1e-7, 'sum');
  assertClose(y.read(), reference.normForward({ x: sum, weight: weight.values, rows, columns, eps: 1e-5 }).y, 2e-6, 'y');
  c.destroy();

  const d = new Case();
  const gradient = d.inout(normal(rows * columns));
  const dy = d.input(normal(rows * columns));
  const input = d.input(normal(rows * columns));
  const { scale } = reference.normForward({ x: input.values, weight: weight.values, rows, columns, eps: 1e-5 });
  const held = d.input(scale);
  const w = d.input(weight.values);
  const dWeight = d.output(columns);
  d.run(
    kernels.rmsNormBackward({
      dy: dy.tensor,
      x: input.tensor,
      weight: w.tensor,
      stats: held.tensor,
      dx: gradient.tensor,
      residual: gradient.tensor,
      dWeight: dWeight.tensor,
      rows,
      columns,
    }),
  );
  const { dx } = reference.normBackward({ x: input.values, weight: weight.values, dy: dy.values, rows, columns, eps: 1e-5 });
  assertClose(gradient.read(), add(dx, gradient.values), 4e-6, 'dx');
  d.destroy();
});

test('an outside workspace has the size that is told', () => {
  const [rows, columns] = [37, 20];
  const c = new Case();
  const workspace = c.output(kernels.normWorkspace({ rows, columns, bias: true }));
  const x = c.input(normal(rows * columns));
  const { mean, scale } = reference.normForward({ x: x.values, weight: x.values, bias: x.values, rows, columns, eps: 1e-5 });
  const stats = c.input(Float64Array.from({ length: 2 * rows }, (_, i) => (i % 2 ? scale : mean)[i >> 1]));
  const weight = c.input(normal(columns));
  const [dx, dWeight, dBias] = [rows * columns, columns, columns].map((n) => c.output(n));
  c.run(
    kernels.layerNormBackward({
      dy: x.tensor,
      x: x.tensor,
      weight: weight.tensor,
      stats: stats.tensor,
      dx: dx.tensor,
      dWeight: dWeight.tensor,
      dBias: dBias.tensor,
      rows,
      columns,
      workspace: workspace.tensor,
    }),
  );
  assertClose(dBias.read(), reference.columnSum(x.values, rows, columns), 4e-6, 'dBias');
  assert.ok(workspace.read().every(Number.isFinite), 'the workspace is larger than what is used');
  c.destroy();
});

test('sums over blocks of rows, several normalizations side by side', () => {
  const [rows, columns, stride] = [45, 12, 44];
  const c = new Case();
  const blocks = kernels.normBlocks({ rows });
  const x = c.input(normal(rows * columns));
  const dy = c.input(normal(rows * columns));
  const weight = c.input(normal(columns));
  const bias = new Float64Array(columns);
  const { mean, scale } = reference.normForward({ x: x.values, weight: weight.values, bias, rows, columns, eps: 1e-5 });
  const layerStats = c.input(Float64Array.from({ length: 2 * rows }, (_, i) => (i % 2 ? scale : mean)[i >> 1]));
  const rms = reference.normForward({ x: x.values, weight: weight.values, rows, columns, eps: 1e-5 });
  const rmsStats = c.input(rms.scale);
  const dx = [0, 1].map(() => c.output(rows * columns));
  const sums = c.inout(new Float64Array(blocks * stride));
  const at = (/** @type {number} */ column) => {
    const { tensor } = sums;
    return typeof tensor === 'number' ? { buffer: tensor, offset: column } : { ...tensor, offset: tensor.offset + column };
  };
  const total = c.output(stride);
  const common = { dy: dy.tensor, x: x.tensor, weight: weight.tensor, rows, columns, blockStride: stride };
  c.run(
    kernels.layerNormBackward({ ...common, stats: layerStats.tensor, dx: dx[0].tensor, blockSums: at(4) }),
    kernels.rmsNormBackward({ ...common, stats: rmsStats.tensor, dx: dx[1].tensor, blockSums: at(32) }),
    kernels.columnSum({ x: sums.tensor, y: total.tensor, rows: blocks, columns: stride }),
  );
  const args = { x: x.values, weight: weight.values, dy: dy.values, rows, columns, eps: 1e-5 };
  const layer = reference.normBackward({ ...args, bias });
  const expected = new Float64Array(stride);
  expected.set(layer.dWeight, 4);
  expected.set(/** @type {Float64Array} */ (layer.dBias), 16);
  expected.set(reference.normBackward(args).dWeight, 32);
  assertClose(total.read(), expected, 4e-6, 'sums');
  c.destroy();
  const few = { ...common, x: 0, dy: 0, weight: 0, stats: 0, dx: 0, blockSums: 0, blockStride: columns - 1 };
  assert.throws(() => kernels.rmsNormBackward(few), /blockStride must be in \[12, /);
});
