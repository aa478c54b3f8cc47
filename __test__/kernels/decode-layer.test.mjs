// A layer in one dispatch against the kernels that it stands for, which decode.test.mjs compares with float64.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createKernels, quantizeQ8, ropeTable } from '../../kernels/index.mjs';
import { DECODE_LAYER_PHASES } from '../../kernels/decode-layer.mjs';
import { vk } from '../lib/addon.mjs';
import { fromF16 } from '../lib/half.mjs';
import { Case } from '../lib/kernel-check.mjs';
import { assertClose, normal } from '../lib/random-data.mjs';

/** @typedef {import('../../kernels/decode.mjs').WeightType} WeightType */

const kernels = createKernels(vk);
after(() => vk.destroy());

/**
 * A matrix of small normal numbers.
 * @param {Case} c @param {WeightType} type @param {number} rows @param {number} columns
 */
function matrixOf(c, type, rows, columns) {
  const numbers = normal(rows * columns).map((v) => v / Math.sqrt(columns));
  if (type !== 'q8_0') return { weight: c.input(numbers, type).tensor };
  const { quants, scales } = quantizeQ8(Float32Array.from(numbers));
  const f16 = Float64Array.from(scales, fromF16);
  return { weight: c.input(new Uint32Array(quants.buffer), 'u32').tensor, scales: c.input(f16, 'f16').tensor };
}

/**
 * @param {{ width: number, heads: number, kvHeads: number, headSize: number, hidden: number, type: WeightType, cacheType: 'f32' | 'f16' | 'bf16',
 *   capacity: number, place: number, slot?: number, window?: number, rotates?: boolean, normed?: boolean }} of
 * @param {number[]} workgroups of which one dispatch a phase is tested
 */
function check(of, workgroups) {
  const {
    width,
    heads,
    kvHeads,
    headSize,
    hidden,
    type,
    cacheType,
    capacity,
    place,
    slot = 1,
    window,
    rotates = true,
    normed = false,
  } = of;
  const [cacheSlots, eps] = [2, 1e-3];
  const [queries, keyWidth] = [heads * headSize, kvHeads * headSize];
  const c = new Case({ guard: 0 });
  const x = normal(width);
  const streams = [x, x].map((values) => c.inout(values));
  const qkv = matrixOf(c, type, queries + 2 * keyWidth, width);
  const out = matrixOf(c, type, width, queries);
  const up = matrixOf(c, type, 2 * hidden, width);
  const down = matrixOf(c, type, width, hidden);
  const norm = () => c.input(normal(width).map((v) => 1 + v / 4)).tensor;
  const [attentionNorm, mlpNorm] = [norm(), norm()];
  const [qNorm, kNorm] = [0, 1].map(() => c.input(normal(headSize)).tensor);
  const table = c.input(ropeTable({ positions: capacity, headSize })).tensor;
  const cached = [0, 1].map(() => normal(cacheSlots * capacity * keyWidth));
  const caches = [0, 1].map(() => cached.map((values) => c.inout(values, cacheType)));
  const [slots, places] = [c.input([slot], 'u32').tensor, c.input([place], 'u32').tensor];
  const failed = c.inout([0], 'u32');
  const [fused, q, attended, between] = [queries + 2 * keyWidth, queries, queries, hidden].map((count) => c.output(count).tensor);

  const sizes = { heads, kvHeads, headSize };
  const norms = normed ? { qNorm, kNorm } : {};
  const rotation = rotates ? { table, positions: capacity } : {};
  const where = { slots, places, capacity, cacheSlots, cacheType };
  const rms = (/** @type {import('../../kernels/base.mjs').Tensor} */ weight) => ({ kind: /** @type {const} */ ('rms'), weight, eps });
  const [theirs, ours] = streams.map(({ tensor }) => tensor);
  const matvec = (/** @type {any} */ args) => kernels.matvec({ rows: 1, type, ...args });
  const apart = [
    matvec({ x: theirs, ...qkv, out: fused, inputs: width, outputs: queries + 2 * keyWidth, norm: rms(attentionNorm) }),
    kernels.ropeCache({
      ...{ rows: 1, ...sizes, ...norms, ...rotation, ...where, qkv: fused, q, eps },
      ...{ keys: caches[0][0].tensor, values: caches[0][1].tensor },
    }),
    kernels.attendCache({
      ...{ rows: 1, ...sizes, ...where, q, out: attended, window },
      ...{ keys: caches[0][0].tensor, values: caches[0][1].tensor },
    }),
    matvec({ x: attended, ...out, out: theirs, inputs: queries, outputs: width, residual: theirs }),
    matvec({ x: theirs, ...up, out: between, inputs: width, outputs: hidden, norm: rms(mlpNorm), activation: 'swiglu' }),
    matvec({ x: between, ...down, out: theirs, inputs: hidden, outputs: width, residual: theirs }),
  ].flat();
  /** @param {number} groups @param {readonly [number, number]} [phases] */
  const layer = (groups, phases) =>
    kernels.decodeLayer({
      ...{
        ...sizes,
        width,
        hidden,
        type,
        ...where,
        ...norms,
        ...rotation,
        window,
        eps,
        attentionNorm,
        mlpNorm,
        phases,
        workgroups: groups,
      },
      ...{ qkv: qkv.weight, out: out.weight, up: up.weight, down: down.weight },
      ...{ qkvScales: qkv.scales, outScales: out.scales, upScales: up.scales, downScales: down.scales },
      ...{ x: ours, keys: caches[1][0].tensor, values: caches[1][1].tensor, failed: failed.tensor },
    });
  /** A dispatch a phase. @param {number} groups */
  const inPhases = (groups) => Array.from({ length: DECODE_LAYER_PHASES }, (_, i) => layer(groups, [i, i + 1]));
  // A single workgroup waits for nobody. On a CPU more might not run at once.
  const atOnce = kernels.context.info.multiprocessors;
  const all = [
    ...workgroups.map((groups) => (groups === 1 ? [layer(1)] : inPhases(groups))),
    ...(atOnce > 0 ? [[layer(atOnce)], inPhases(atOnce)] : []),
  ];
  for (const [i, ofLayer] of all.entries()) {
    c.run(apart, ofLayer);
    const what = `${JSON.stringify(of)}, ${i}`;
    // Both round at the same places; sums are added up in another order. What is rounded to the cache's type may be rounded otherwise.
    const tolerance = cacheType === 'f32' ? 1e-5 : cacheType === 'f16' ? 1e-3 : 8e-3;
    assertClose(streams[1].read(), streams[0].read(), tolerance, what);
    caches[1].forEach((cache, k) => assertClose(cache.read(), caches[0][k].read(), tolerance, `${what}: cache ${k}`));
    assert.deepEqual([...failed.read()], [0]);
  }
  c.destroy();
}

/** SwiftShader has no full subgroups. */
const skip = kernels.context.info.computeFullSubgroupsSupported ? false : 'without full subgroups';

test('a layer: types of weights and of the cache, groups of heads, norms, windows, one split and many, more workgroups than rows', {
  skip,
}, () => {
  const small = { width: 64, heads: 4, kvHeads: 2, headSize: 16, hidden: 96, capacity: 40 };
  check({ ...small, type: 'f32', cacheType: 'f32', place: 39, window: 7 }, [1, 5]);
  check({ ...small, type: 'f16', cacheType: 'bf16', place: 33, normed: true }, [1, 150]);
  // A place beyond the cache: nothing is stored, attention gives zeros.
  check({ ...small, type: 'f16', cacheType: 'bf16', place: 40, normed: true }, [3]);
  // Subgroups of a workgroup that take their units in different numbers of turns.
  check({ width: 160, heads: 1, kvHeads: 1, headSize: 32, hidden: 96, capacity: 40, type: 'f16', cacheType: 'f32', place: 5 }, [9, 15]);
  // Rows that no subgroup takes whole, several loads of them, and as many splits as are put together by themselves.
  const large = { width: 1056, heads: 8, kvHeads: 1, headSize: 64, hidden: 1376, capacity: 2500, place: 2400, rotates: false };
  const sizes = /** @type {const} */ ({ ...large, type: 'q8_0', cacheType: 'f16', workgroups: 40 });
  // Four lanes cannot hold the queries of eight heads.
  const { subgroupSize } = kernels.context.info;
  assert.equal(kernels.decodeLayerSupports(sizes), subgroupSize > 4);
  if (subgroupSize > 4) check({ ...large, type: 'q8_0', cacheType: 'f16' }, [40]);
});

test('a layer: what it does not take', { skip }, () => {
  const sizes = /** @type {const} */ ({
    width: 64,
    heads: 4,
    kvHeads: 2,
    headSize: 16,
    hidden: 96,
    type: 'f16',
    cacheType: 'f16',
    workgroups: 4,
  });
  assert.equal(kernels.decodeLayerSupports(sizes), true);
  for (const other of [
    { workgroups: 0 },
    { headSize: 24 },
    { heads: 3 },
    { heads: 32, kvHeads: 2 },
    { width: 60 },
    { hidden: 48, type: /** @type {const} */ ('q8_0') },
    { hidden: 2 ** 20 },
  ]) {
    assert.equal(kernels.decodeLayerSupports({ ...sizes, ...other }), false, JSON.stringify(other));
  }
});
