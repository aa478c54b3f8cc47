// Where the time goes: GPU time by pipeline, host time by call, and a trace for Perfetto (https://ui.perfetto.dev).
//
//   node examples/profile.mjs [trace.json]
//
// Prints the device, then a table of what ran on the device: matmul_f32 20 times, softmax_forward 20 times, …

import vk from 'helios-vk';
import { createKernels, pack } from 'helios-vk/kernels';

const { deviceName, timestampValidBits } = vk.initDevice();
console.log(deviceName);
if (timestampValidBits === 0) {
  console.log('its queue has no timestamps: there is nothing to profile with');
  process.exit();
}
const kernels = createKernels(vk);

const size = 256;
const [a, b, c, d] = Array.from({ length: 4 }, () => vk.createBuffer(4 * size * size, 0));
for (const buffer of [a, b])
  vk.uploadBuffer(
    buffer,
    Float32Array.from({ length: size * size }, () => Math.random() - 0.5),
  );
const product = pack(kernels.matmul({ a, b, c, m: size, n: size, k: size }));
const softmax = pack(kernels.softmaxForward({ x: c, y: d, rows: size, columns: size }));

const [trace] = process.argv.slice(2);
// With `using profile = vk.profileStart()` the profile would end with the block, even if something throws in it.
const profile = vk.profileStart(trace === undefined ? {} : { trace });
for (let i = 0; i < 20; i++) {
  // Bytes moved and operations done, where they are known, give rates.
  if (product.count === 1) vk.profileWork(Float64Array.of(12 * size * size, 2 * size ** 3));
  vk.batchExecuteAll(product.packed, product.count);
  vk.batchExecuteAll(softmax.packed, softmax.count);
}
vk.readBuffer(d);
const { rows, gpuUs, calls, traceEvents } = profile.stop();

console.log(`${'GPU µs'.padStart(10)}  share  count  what`);
for (const { us, share, count, name, tflops } of rows) {
  const rate = tflops === undefined ? '' : `, ${(1000 * tflops).toFixed(1)} GFLOP/s`;
  console.log(`${us.toFixed(1).padStart(10)}  ${(100 * share).toFixed(0).padStart(4)} %  ${String(count).padStart(5)}  ${name}${rate}`);
}
console.log(`${gpuUs.toFixed(1).padStart(10)}  in all`);
for (const [name, { us, calls: times }] of Object.entries(calls)) console.log(`host: ${name} ${times} times, ${us.toFixed(1)} µs`);
if (trace !== undefined) console.log(`${trace}: ${traceEvents} events`);
vk.destroy();
