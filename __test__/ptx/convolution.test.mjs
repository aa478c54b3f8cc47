// Convolutions in PTX on the machine of machine.mjs: every tiling's own test, and convolutions of kernels.convolution against float64.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pack } from '../../kernels/base.mjs';
import { createKernels } from '../../kernels/index.mjs';
import { ptxConvolutions } from '../../kernels/hopper/convolutions.mjs';
import { CONVOLUTION_TILINGS, WINDOW_TILINGS } from '../../kernels/hopper/tilings.mjs';
import { ptxDevice } from './device.mjs';
import { eachTerm } from '../lib/convolution.mjs';
import { fromHalf, toHalf } from '../lib/half.mjs';
import { random } from '../lib/tensors.mjs';

/** @typedef {import('../../kernels/convolution.mjs').ConvolutionSizes} Sizes */

/** The strides of an image stored channels last. @param {number} channels @param {number[]} size */
const last = (channels, [h, w]) => [h * w * channels, 1, w * channels, channels];

/**
 * Computes a convolution or an input gradient on the machine, and compares it with float64.
 * @param {Sizes & { bias?: boolean, input?: boolean }} how @param {RegExp} entry the name of the kernel that computes it
 */
function check({ bias = false, input = false, ...sizes }, entry) {
  const { vk, ran, pipelines } = ptxDevice({ bytes: 8 << 20 });
  const kernels = createKernels(vk);
  const { batch, channels, outputs, size, window, result } = sizes;
  const type = /** @type {'bf16'} */ (sizes.type ?? 'bf16');
  const taps = window[0] * window[1];
  const count = { x: batch * channels * size[0] * size[1], y: batch * outputs * result[0] * result[1], w: outputs * channels * taps };
  const values = (/** @type {number} */ n) => fromHalf(toHalf(random(n), type), type);
  const [x, weight, dy] = [values(count.x), values(count.w), values(count.y)];
  const biases = Float32Array.from(random(input ? channels : outputs));
  const [xStrides, yStrides] = [last(channels, size), last(outputs, result)];
  // The channels that are summed over are the last.
  const weightStrides = input ? [1, taps * outputs, window[1] * outputs, outputs] : [taps * channels, 1, window[1] * channels, channels];
  /** @param {number} elements @param {(put: (at: number, value: number) => void) => void} fill */
  const stored = (elements, fill) => {
    const all = new Float32Array(elements);
    fill((at, value) => (all[at] = value));
    const bits = toHalf(all, type);
    const buffer = vk.createBuffer(2 * elements, 0);
    vk.uploadBuffer(buffer, bits);
    return { buffer, offset: 0 };
  };
  /** @param {Float64Array | Float32Array} list @param {number} planes @param {number[]} extent @param {number[]} strides */
  const image = (list, planes, extent, strides) =>
    stored(list.length, (put) => {
      for (let i = 0; i < list.length; i++) {
        const [h, w] = [Math.floor(i / extent[1]) % extent[0], i % extent[1]];
        const plane = Math.floor(i / (extent[0] * extent[1]));
        put(Math.floor(plane / planes) * strides[0] + (plane % planes) + h * strides[2] + w * strides[3], list[i]);
      }
    });
  const from = input ? image(dy, outputs, result, yStrides) : image(x, channels, size, xStrides);
  const own = stored(count.w, (put) => {
    for (let i = 0; i < count.w; i++) {
      const [o, c, t] = [Math.floor(i / (channels * taps)), Math.floor(i / taps) % channels, i % taps];
      put(o * weightStrides[0] + c * weightStrides[1] + t * weightStrides[3], weight[i]);
    }
  });
  const made = input ? count.x : count.y;
  const to = { buffer: vk.createBuffer(2 * made, 0), offset: 0 };
  const biasBuffer = vk.createBuffer(4 * biases.length, 0);
  vk.uploadBuffer(biasBuffer, biases);
  const shared = { ...sizes, type, xStrides, yStrides, weightStrides, ...(bias ? { bias: { buffer: biasBuffer, offset: 0 } } : {}) };
  const dispatches = input
    ? kernels.convolutionInput({ ...shared, dy: from, weight: own, dx: to })
    : kernels.convolution({ ...shared, x: from, weight: own, y: to });
  assert.match(pipelines.get(/** @type {any} */ (dispatches[0]).pipeline)?.name ?? '', entry);
  const { packed, count: number } = pack(dispatches);
  vk.batchExecuteAll(packed, number);
  const want = new Float64Array(made);
  const planes = input ? channels : outputs;
  const area = input ? size[0] * size[1] : result[0] * result[1];
  if (bias) for (let i = 0; i < made; i++) want[i] = biases[Math.floor(i / area) % planes];
  eachTerm(sizes, (xi, wi, yi) => {
    if (input) want[xi] += dy[yi] * weight[wi];
    else want[yi] += x[xi] * weight[wi];
  });
  const got = fromHalf(new Uint16Array(vk.readBuffer(to.buffer).buffer), type);
  const [extent, strides] = input ? [size, xStrides] : [result, yStrides];
  let [error, norm] = [0, 0];
  for (let i = 0; i < made; i++) {
    const [h, w] = [Math.floor(i / extent[1]) % extent[0], i % extent[1]];
    const plane = Math.floor(i / area);
    const at = Math.floor(plane / planes) * strides[0] + (plane % planes) + h * strides[2] + w * strides[3];
    error += (got[at] - want[i]) ** 2;
    norm += want[i] ** 2;
  }
  // One rounding to a half: of bf16 at most 2^-9 relative.
  assert.ok(Math.sqrt(error / norm) < 2 ** -9, `${Math.sqrt(error / norm)} from float64`);
  return ran;
}

const names = /** @type {(keyof typeof CONVOLUTION_TILINGS)[]} */ (Object.keys(CONVOLUTION_TILINGS));
const EVERY = /^convolve_ptx_/;

/** Makes each row of a window lie outside of the image. @param {string} text */
const emptied = (text) => text.replace(/selp\.b32 (%r\d+), %r\d+, 0, (%p\d+);\n {2}or/, 'selp.b32 $1, 0, 0, $2;\n  or');

for (const name of names) {
  test(`${name} passes its own test whole and in parts, and fails it where rows are wrong`, () => {
    /** @param {number} parts @param {boolean} relu @param {(text: string) => string} [edit] */
    const found = (parts, relu, edit) => {
      const { vk } = ptxDevice({ bytes: 8 << 20, edit });
      const { context } = /** @type {any} */ (createKernels(vk));
      return ptxConvolutions(context).test(/** @type {any} */ ({ name, how: { parts } }), { type: 'bf16', bias: true, relu });
    };
    assert.equal(found(1, true), undefined);
    assert.equal(found(2, true), undefined);
    if (name !== 'm64n64-cp') return;
    assert.equal(found(2, false), undefined);
    assert.match(found(1, false, emptied) ?? '', /its test found/);
  });
}

for (const name of /** @type {(keyof typeof WINDOW_TILINGS)[]} */ (Object.keys(WINDOW_TILINGS))) {
  test(`weight gradients by ${name} pass their own test`, () => {
    const found = (/** @type {boolean} */ ragged, /** @type {'f32' | 'bf16'} */ weightType) => {
      const { vk } = ptxDevice({ bytes: 8 << 20 });
      const { context } = /** @type {any} */ (createKernels(vk));
      return ptxConvolutions(context).testWeight(/** @type {any} */ ({ name, how: { ragged } }), 'bf16', weightType);
    };
    assert.equal(found(false, 'f32'), undefined);
    assert.equal(found(true, 'bf16'), undefined);
  });
}

test('forward passes and input gradients of windows, strides and dilations', () => {
  const base = { batch: 2, channels: 64, outputs: 40, size: [7, 5], window: [3, 3], result: [7, 5], padding: [1, 1] };
  check({ ...base, bias: true }, EVERY);
  check({ ...base, type: 'f16', result: [4, 3], stride: [2, 2] }, EVERY);
  check({ ...base, channels: 32, window: [1, 1], result: [4, 3], stride: [2, 2], padding: [0, 0] }, EVERY);
  check({ ...base, window: [2, 3], result: [7, 3], dilation: [2, 2], padding: [1, 1] }, EVERY);
  check({ ...base, channels: 40, outputs: 64, input: true, bias: true }, EVERY);
});

test('a deep convolution of few positions is summed in parts', () => {
  const ran = check(
    { batch: 1, channels: 256, outputs: 64, size: [4, 4], window: [3, 3], result: [4, 4], padding: [1, 1], bias: true },
    EVERY,
  );
  assert.match(ran.at(-1).kernel.entry, /^convolve_sum_ptx_/);
});
