// The package's kernels: a matrix product with bias and GELU, in every precision that the device has.
//
//   node examples/matmul.mjs
//
// Prints the device, then a line for each precision; four of them if there are matrix units:
//   f32     largest error 3.6e-7
//   f16     largest error 1.1e-6
//   bf16    largest error 1.1e-6
//   bf16x3  largest error 5.9e-6

import vk from 'helios-vk';
import { createKernels, pack } from 'helios-vk/kernels';

const { deviceName } = vk.initDevice();
const kernels = createKernels(vk);
console.log(deviceName);

// C[m, n] = gelu(A[m, k] · W[n, k]ᵀ + bias[n]), as a linear layer computes it. Sizes may be any.
const [m, n, k] = [200, 130, 96];
// Multiples of 1/64 in [-1, 1): exact in every storage type.
const random = (/** @type {number} */ length) => Float32Array.from({ length }, () => Math.floor(128 * Math.random() - 64) / 64);
const [a, w, bias] = [random(m * k), random(n * k), random(n)];

const bufferOf = (/** @type {ArrayBufferView} */ data) => {
  const buffer = vk.createBuffer(data.byteLength, 0);
  vk.uploadBuffer(buffer, data);
  return buffer;
};
const [aF32, wF32, biasF32] = [a, w, bias].map(bufferOf);

const gelu = (/** @type {number} */ x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
const expected = Float64Array.from({ length: m * n }, (_, at) => {
  const [row, column] = [Math.floor(at / n), at % n];
  let sum = bias[column];
  for (let i = 0; i < k; i++) sum += a[row * k + i] * w[column * k + i];
  return gelu(sum);
});

for (const precision of /** @type {const} */ (['f32', 'f16', 'bf16', 'bf16x3'])) {
  if (!kernels.matmulSupports(precision)) {
    console.log(`${precision.padEnd(8)}needs matrix units (VK_KHR_cooperative_matrix), which this device does not have`);
    continue;
  }
  const type = precision === 'f16' || precision === 'bf16' ? precision : 'f32';
  const c = vk.createBuffer(4 * m * n, 0);
  const records = [];
  let [x, y] = [aF32, wF32];
  if (type !== 'f32') {
    // Operands in half precision, cast on the device.
    [x, y] = [vk.createBuffer(2 * m * k, 0), vk.createBuffer(2 * n * k, 0)];
    records.push(kernels.cast({ x: aF32, y: x, count: m * k, from: 'f32', to: type }));
    records.push(kernels.cast({ x: wF32, y, count: n * k, from: 'f32', to: type }));
  }
  const sizes = { m, n, k, transB: true };
  records.push(kernels.matmul({ a: x, b: y, c, ...sizes, aType: type, bType: type, precision, bias: biasF32, activation: 'gelu' }));
  const { packed, count } = pack(...records);
  vk.batchExecuteAll(packed, count);
  const result = vk.readBuffer(c);
  const error = result.reduce((most, value, i) => Math.max(most, Math.abs(value - expected[i])), 0);
  console.log(`${precision.padEnd(8)}largest error ${error.toExponential(1)}`);
  if (!(error < 1e-3)) throw new Error(`${precision}: the product is wrong`);
}
vk.destroy();
