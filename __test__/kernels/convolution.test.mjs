// Convolutions and their gradients against float64, in random odd sizes with every option, by every kernel that the device has.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { limits } from '../../kernels/convolution/plan.mjs';
import { createKernels } from '../../kernels/index.mjs';
import { coopShapes, scaledTilings } from '../../kernels/matmul/spirv.mjs';
import { limited, scaled, vk } from '../lib/addon.mjs';
import { eachTerm } from '../lib/convolution.mjs';
import { Case, TOLERANCE } from '../lib/kernel-check.mjs';
import { Random } from '../lib/random.mjs';
import { assertClose, normal, seed } from '../lib/random-data.mjs';

const kernels = createKernels(vk);
after(() => vk.destroy());
const random = new Random(seed);

/** @typedef {import('../../kernels/convolution.mjs').ConvolutionSizes} Sizes */
/** @typedef {import('../../kernels/convolution/plan.mjs').ConvolutionPlan} Plan */

/** A random convolution. @param {Partial<Sizes>} [own] @returns {Sizes} */
function problem(own = {}) {
  const rank = own.size?.length ?? random.between(1, 3);
  const list = (/** @type {number} */ low, /** @type {number} */ high) => Array.from({ length: rank }, () => random.between(low, high));
  const groups = own.groups ?? random.pick([1, 1, 2, 3]);
  const [window, stride, dilation, padding, after] = [list(1, 4), list(1, 3), list(1, 3), list(0, 2), list(0, 2)];
  const sizes = {
    batch: random.between(1, 3),
    channels: groups * random.between(1, 7),
    outputs: groups * random.between(1, 9),
    groups,
    size: window.map((w, d) => (w - 1) * dilation[d] + random.between(1, rank === 1 ? 30 : 5)),
    window,
    stride,
    dilation,
    padding,
    ...own,
  };
  const result = sizes.size.map((size, d) => {
    const reached = (sizes.window[d] - 1) * sizes.dilation[d] + 1;
    return Math.floor((size + sizes.padding[d] + (own.size ? 0 : after[d]) - reached) / sizes.stride[d]) + 1;
  });
  return { ...sizes, result, ...own };
}

const volume = (/** @type {number[]} */ shape) => shape.reduce((a, b) => a * b, 1);

/**
 * Runs the forward pass and both gradients of a convolution.
 * @param {Sizes} sizes @param {Partial<Plan>} [plan]
 */
function check(sizes, plan) {
  const { batch, channels, outputs, groups = 1, size, window, result, type = 'f32' } = sizes;
  const what = JSON.stringify({ ...sizes, plan });
  const [xs, ws, ys] = [batch * channels * volume(size), (outputs * channels * volume(window)) / groups, batch * outputs * volume(result)];
  const c = new Case({ guard: 8 });
  const [x, w, dy] = [c.input(normal(xs), type), c.input(normal(ws), type), c.input(normal(ys), type)];
  const [bias, dBias] = [c.input(normal(outputs)), c.input(normal(channels))];
  const [y, dx, dw] = [c.output(ys, type), c.output(xs, type), c.output(ws, type)];
  const own = { ...sizes, plan };
  // Each end of a kernel is a pipeline of its own, which takes time to compile: a check takes one.
  const ends = random.chance(0.5);
  c.run(
    kernels.convolution({ x: x.tensor, weight: w.tensor, y: y.tensor, ...(ends ? { bias: bias.tensor, relu: true } : {}), ...own }),
    kernels.convolutionInput({ dy: dy.tensor, weight: w.tensor, dx: dx.tensor, ...(ends ? { bias: dBias.tensor } : {}), ...own }),
    kernels.convolutionWeight({ x: x.tensor, dy: dy.tensor, dWeight: dw.tensor, ...own }),
  );
  const [wantedY, wantedX, wantedW] = [new Float64Array(ys), new Float64Array(xs), new Float64Array(ws)];
  eachTerm(sizes, (i, j, k) => {
    wantedY[k] += x.values[i] * w.values[j];
    wantedX[i] += dy.values[k] * w.values[j];
    wantedW[j] += dy.values[k] * x.values[i];
  });
  const planes = (
    /** @type {Float64Array} */ values,
    /** @type {number[]} */ shape,
    /** @type {number} */ count,
    /** @type {Float64Array} */ added,
  ) => values.map((v, i) => v + added[Math.floor(i / volume(shape)) % count]);
  const tolerance = TOLERANCE[type];
  const ended = ends ? planes(wantedY, result, outputs, bias.values).map((v) => Math.max(v, 0)) : wantedY;
  assertClose(y.read(), ended, tolerance, `forward${ends ? ', bias and ReLU' : ''} ${what}`);
  const added = ends ? planes(wantedX, size, channels, dBias.values) : wantedX;
  assertClose(dx.read(), added, tolerance, `input gradient${ends ? ' with bias' : ''} ${what}`);
  assertClose(dw.read(), wantedW, tolerance, `weight gradient ${what}`);
  c.destroy();
}

/** Of each kernel: what is chosen, and the others by name. @type {[string, Partial<Plan> | undefined][]} */
const PLANS = [
  ['as chosen', undefined],
  ['by direct sums', { kernel: 'direct', threads: 16, tm: 2, tn: 4 }],
  ['by tiles of 32, whole', { kernel: 'tiles', bm: 32, bn: 32, bk: 16, tm: 4, tn: 4, splits: 1 }],
  ['by tiles of 64, split', { kernel: 'tiles', bm: 64, bn: 64, bk: 16, tm: 4, tn: 4, splits: 3 }],
];

for (const [name, plan] of limited ? PLANS.slice(0, 1) : PLANS) {
  test(`forward and both gradients, ${name}`, (t) => {
    // The weight as it lies for some plans, and laid out for others.
    const { packed } = limits;
    t.after(() => (limits.packed = packed));
    if (plan?.bm !== 32) limits.packed = 1;
    for (let round = 0; round < scaled(2); round++) check(problem(), plan);
    // Blocks of channels, and the last one part of a block.
    check(
      problem({ channels: 32, outputs: 40, groups: 1, size: [7, 9], window: [3, 3], stride: [2, 1], dilation: [1, 1], padding: [1, 1] }),
      plan,
    );
    check(problem({ channels: 133, outputs: 5, groups: 1, size: [6], window: [2], stride: [1], dilation: [2], padding: [1] }), plan);
  });
}

for (const type of /** @type {const} */ (['f16', 'bf16'])) {
  test(`${type}: on matrix units, or not at all`, () => {
    if (!kernels.convolutionSupports(type)) {
      assert.throws(() => check(problem({ type })), /RangeError: convolution: .* has no kernel for b?f16/);
      return;
    }
    const [shape] = coopShapes(vk.initDevice(), type);
    const large = { kernel: /** @type {const} */ ('coop'), bm: 4 * shape.m, bn: 8 * shape.n, bk: Math.max(32, shape.k) };
    const tiles = { ...large, wm: 2 * shape.m, wn: 4 * shape.n, tm: shape.m, tn: shape.n, tk: shape.k };
    const size = { size: [6, 8], window: [3, 3], stride: [1, 2], dilation: [1, 1], padding: [1, 1], type };
    check(problem({ type }));
    check(problem({ batch: 2, channels: 72, outputs: 40, groups: 1, ...size }));
    // By vectors: channels that are neighbours, a window of one element, and positions without gaps.
    check(problem({ batch: 2, channels: 64, outputs: 24, groups: 1, ...size, window: [1, 1], stride: [1, 1], padding: [0, 0] }));
    check(problem({ batch: 2, channels: 40, outputs: 33, groups: 1, ...size }), tiles);
    check(
      problem({
        channels: 6,
        outputs: 12,
        groups: 6,
        size: [9, 7],
        window: [3, 3],
        padding: [1, 1],
        stride: [1, 2],
        dilation: [1, 1],
        type,
      }),
    );
  });
}

test('images and weights of any strides: channels last', () => {
  // As chosen, and by the tilings of GPUs; and with sums of three parts.
  for (const [type, channels, tiling, more] of /** @type {['f32' | 'f16', number, number[]?, Partial<Plan>?][]} */ ([
    ['f32', 40],
    ['f16', 40],
    ['f16', 64],
    ['f16', 64, [8, 8, 64, 4, 2, 1]],
    ['f16', 64, [8, 8, 32, 4, 4, 1]],
    ['f16', 64, undefined, { splits: 3 }],
  ])) {
    if (!kernels.convolutionSupports(type)) continue;
    const [chosen] = tiling ? scaledTilings(coopShapes(vk.initDevice(), 'f16')[0], [tiling]).map(({ stages: _, ...own }) => own) : [];
    const plan = { ...chosen, ...more };
    const [batch, outputs, h, w] = [2, 24, 5, 6];
    const sizes = { batch, channels, outputs, size: [h, w], window: [3, 3], result: [h, w], padding: [1, 1], type, plan };
    const last = (/** @type {number} */ c) => [h * w * c, 1, w * c, c];
    const c = new Case({ guard: 8 });
    const [x, weight] = [c.input(normal(batch * channels * h * w), type), c.input(normal(outputs * channels * 9), type)];
    const [dy, y] = [c.input(normal(batch * outputs * h * w), type), c.output(batch * outputs * h * w, type)];
    const [dx, dw] = [c.output(batch * channels * h * w, type), c.output(outputs * channels * 9, type)];
    const own = { ...sizes, xStrides: last(channels), yStrides: last(outputs) };
    // The weight twice: [outputs, window, channels], and [channels, window, outputs].
    const [byChannels, byOutputs] = [weight, weight].map(({ count }) => new Float32Array(count));
    weight.values.forEach((value, i) => {
      const [o, ch, tap] = [Math.floor(i / (channels * 9)), Math.floor(i / 9) % channels, i % 9];
      byChannels[(o * 9 + tap) * channels + ch] = value;
      byOutputs[(ch * 9 + tap) * outputs + o] = value;
    });
    const [forward, input] = [c.input(byChannels, type), c.input(byOutputs, type)];
    const forwardStrides = [9 * channels, 1, 3 * channels, channels];
    const inputStrides = [1, 9 * outputs, 3 * outputs, outputs];
    const bias = c.input(normal(outputs));
    c.run(
      kernels.convolution({
        x: x.tensor,
        weight: forward.tensor,
        y: y.tensor,
        bias: bias.tensor,
        relu: true,
        ...own,
        weightStrides: forwardStrides,
      }),
      kernels.convolutionInput({ dy: dy.tensor, weight: input.tensor, dx: dx.tensor, ...own, weightStrides: inputStrides }),
      kernels.convolutionWeight({ x: x.tensor, dy: dy.tensor, dWeight: dw.tensor, ...own }),
    );
    /** The place of a dense element. @param {number} i @param {number} planes */
    const moved = (i, planes) =>
      Math.floor(i / (planes * h * w)) * planes * h * w + (i % (h * w)) * planes + (Math.floor(i / (h * w)) % planes);
    const [wantedY, wantedX, wantedW] = [y, dx, dw].map(({ count }) => new Float64Array(count));
    eachTerm(sizes, (i, j, k) => {
      const [from, to] = [moved(i, channels), moved(k, outputs)];
      wantedY[to] += x.values[from] * weight.values[j];
      wantedX[from] += dy.values[to] * weight.values[j];
      wantedW[j] += dy.values[to] * x.values[from];
    });
    const ended = wantedY.map((v, i) => Math.max(0, v + bias.values[i % outputs]));
    assertClose(y.read(), ended, TOLERANCE[type], `forward, bias and ReLU ${type}`);
    assertClose(dx.read(), wantedX, TOLERANCE[type], `input gradient ${type}`);
    assertClose(dw.read(), wantedW, TOLERANCE[type], `weight gradient ${type}`);
    c.destroy();
  }
});

/** The place, channels last, of element i of a dense image. @param {number} i @param {number} planes @param {number} space */
const movedLast = (i, planes, space) => {
  const image = planes * space;
  return Math.floor(i / image) * image + (i % space) * planes + (Math.floor(i / space) % planes);
};

for (const type of /** @type {const} */ (['f16', 'bf16'])) {
  test(`${type}: depthwise, channels last`, () => {
    if (!kernels.convolutionSupports(type)) return;
    const names = new Set();
    const { context } = kernels;
    const dispatch = context.dispatch.bind(context);
    context.dispatch = (name, options) => (names.add(name), dispatch(name, options));
    /** @type {Partial<Sizes>[]} */
    const problems = [
      { channels: 24, size: [9, 17], window: [7, 7], stride: [1, 1], dilation: [1, 1], padding: [3, 3] },
      { channels: 64, size: [8, 11], window: [3, 3], stride: [2, 2], dilation: [1, 1], padding: [1, 1] },
      { channels: 8, size: [12, 13], window: [2, 11], stride: [1, 3], dilation: [2, 1], padding: [0, 4] },
      { channels: 16, size: [31], window: [5], stride: [1], dilation: [3], padding: [6] },
      // Rows that several threads share, and windows that leave room for few channels, or reach far.
      { batch: 1, channels: 8, size: [333], window: [3], stride: [1], dilation: [40], padding: [40] },
      { batch: 1, channels: 64, size: [7, 9], window: [15, 15], stride: [1, 1], dilation: [1, 1], padding: [14, 14] },
      ...Array.from({ length: scaled(2) }, () => ({
        ...problem({ size: [random.between(10, 20), random.between(10, 20)] }),
        channels: 8 * random.between(1, 9),
      })),
    ];
    for (const own of problems) {
      const channels = own.channels ?? 8;
      const { result: _, ...rest } = own;
      const sizes = problem({ batch: 2, ...rest, channels, outputs: channels, groups: channels, type });
      const { batch, size, window, result } = sizes;
      const [inside, outside, taps] = [volume(size), volume(result), volume(window)];
      const last = (/** @type {number[]} */ [...s]) => [volume(s) * channels, 1, ...s.map((_, d) => volume(s.slice(d + 1)) * channels)];
      const strides = { xStrides: last(size), yStrides: last(result) };
      const c = new Case({ guard: 8 });
      const [x, dy] = [inside, outside].map((space) => c.input(normal(batch * channels * space), type));
      const weight = c.input(normal(channels * taps), type);
      const [bias, dBias] = [c.input(normal(channels)), c.input(normal(channels))];
      const [y, dx] = [outside, inside].map((space) => c.output(batch * channels * space, type));
      const [dw, dwHalf] = [c.output(channels * taps), c.output(channels * taps, type)];
      const calls = [
        kernels.convolution({ x: x.tensor, weight: weight.tensor, y: y.tensor, bias: bias.tensor, relu: true, ...sizes, ...strides }),
        kernels.convolutionInput({ dy: dy.tensor, weight: weight.tensor, dx: dx.tensor, bias: dBias.tensor, ...sizes, ...strides }),
        kernels.convolutionWeight({ x: x.tensor, dy: dy.tensor, dWeight: dw.tensor, weightType: 'f32', ...sizes, ...strides }),
        kernels.convolutionWeight({ x: x.tensor, dy: dy.tensor, dWeight: dwHalf.tensor, ...sizes, ...strides }),
      ];
      c.run(...calls);
      const [wantedY, wantedX, wantedW] = [y, dx, dw].map(({ count }) => new Float64Array(count));
      eachTerm(sizes, (i, j, k) => {
        const [from, to] = [movedLast(i, channels, inside), movedLast(k, channels, outside)];
        wantedY[to] += x.values[from] * weight.values[j];
        wantedX[from] += dy.values[to] * weight.values[j];
        wantedW[j] += dy.values[to] * x.values[from];
      });
      const what = JSON.stringify(sizes);
      const ended = wantedY.map((v, i) => Math.max(0, v + bias.values[i % channels]));
      assertClose(y.read(), ended, TOLERANCE[type], `forward, bias and ReLU ${what}`);
      assertClose(
        dx.read(),
        wantedX.map((v, i) => v + dBias.values[i % channels]),
        TOLERANCE[type],
        `input gradient with bias ${what}`,
      );
      assertClose(dw.read(), wantedW, 1e-5, `weight gradient ${what}`);
      assertClose(dwHalf.read(), wantedW, TOLERANCE[type], `weight gradient in ${type} ${what}`);
      c.destroy();
    }
    context.dispatch = dispatch;
    for (const what of ['', '_weights']) assert.ok(names.delete(`convolve_depthwise${what}_${type}`), what);
    for (const name of names) assert.match(name, /^convolve_sum/);
  });
}

test('depthwise: an infinity of x stays in the gradients of the taps that meet it', () => {
  if (!kernels.convolutionSupports('f16')) return;
  const c = new Case({ guard: 8 });
  const x = new Float64Array(8 * 7).fill(1).fill(Infinity, 8 * 5, 8 * 6);
  const [own, dy, dw] = [c.input(Float32Array.from(x), 'f16'), c.input(new Float32Array(8 * 5).fill(1), 'f16'), c.output(8 * 3)];
  const sizes = { batch: 1, channels: 8, outputs: 8, groups: 8, size: [7], window: [3], result: [5], type: /** @type {const} */ ('f16') };
  const strides = { xStrides: [56, 1, 8], yStrides: [40, 1, 8] };
  c.run(kernels.convolutionWeight({ x: own.tensor, dy: dy.tensor, dWeight: dw.tensor, weightType: 'f32', ...sizes, ...strides }));
  for (let i = 0; i < 8; i++) assert.deepEqual([...dw.read().subarray(3 * i, 3 * i + 3)], [5, Infinity, Infinity]);
  c.destroy();
});

test('more rounds of loops than a CPU device has are an error', { skip: !kernels.context.isCpu && 'a GPU has no such limit' }, () => {
  const unchecked = createKernels(vk, { check: false }); // the handles stand for no buffers
  const [x, weight, y] = [0, 0, 0];
  const long = { batch: 1, channels: 1, outputs: 8, size: [30_000], window: [25_000], result: [1] };
  assert.throws(
    () => unchecked.convolution({ x, weight, y, ...long }),
    /^RangeError: convolution: 1 channels and 25000 taps take 75001 rounds of a loop: on a CPU device/,
  );
  // So large a weight that its sums are not split: only where threads load for each other are a step's positions a loop, too.
  const groups = 40_000;
  const many = { batch: 1, channels: groups, outputs: 8 * groups, groups, size: [57_000], window: [1], result: [57_000] };
  const call = () => unchecked.convolutionWeight({ x, dy: y, dWeight: weight, xStrides: [0, 0, 1], yStrides: [0, 0, 1], ...many });
  if (unchecked.context.shufflesEight) assert.throws(call, /57000 positions take 71251 rounds of a loop/);
  else call();
});

test('sizes that are missing, or of other directions, say so', () => {
  const t = { buffer: 1 };
  const sizes = { batch: 1, channels: 1, outputs: 1, size: [4], window: [1], result: [4] };
  const call = (/** @type {any} */ own) => () => kernels.convolution({ x: t, weight: t, y: t, ...sizes, ...own });
  const square = { size: [4, 4], window: [2, 2], result: [3, 3] };
  assert.throws(
    call({ ...square, weightStrides: [4, 4, 3, 1] }),
    /weightStrides of the window must be a multiple of \[2, 1\], got \[3, 1\]/,
  );
  assert.throws(call({ ...square, weightStrides: [4, 4, 2] }), /weightStrides must be a list of 4 numbers, got 4,4,2/);
  assert.throws(call({ result: undefined }), /TypeError: convolution: result must be a list of 1 numbers, as size is, got undefined/);
  assert.throws(call({ window: [1, 1] }), /TypeError: convolution: window must be a list of 1 numbers, as size is, got 1,1/);
  assert.throws(call({ size: [] }), /TypeError: convolution: size must be a list of one to three numbers/);
  assert.throws(call({ padding: [-1] }), /RangeError: convolution: padding\[0\] must be in \[0, 1073741823\], got -1/);
});
