// Results without waiting: reads as promises, in the order of the calls, while JavaScript goes on.
//
//   node examples/promises.mjs
//
// Prints the device, then:
//   5 reads were asked for before the first came back
//   after 1 additions: 1
//   after 2 additions: 2
//   after 3 additions: 3
//   after 4 additions: 4
//   after 5 additions: 5
//   the device has finished
//   given up: no longer wanted

import vk from 'helios-vk';
import { createKernels, pack } from 'helios-vk/kernels';

const { deviceName } = vk.initDevice();
const kernels = createKernels(vk);
console.log(deviceName);

const count = 1 << 20;
const [sum, one] = [vk.createBuffer(4 * count, 0), vk.createBuffer(4 * count, 0)];
vk.fillBuffer(sum, 4 * count, 0);
vk.uploadBuffer(one, new Float32Array(count).fill(1));
const add = pack(kernels.binary({ op: 'add', a: sum, b: one, y: sum, count }));

// Each read returns the buffer's contents at its place in the order of calls; later calls do not show in it.
let done = 0;
const reads = Array.from({ length: 5 }, async () => {
  vk.batchExecuteAll(add.packed, add.count);
  const [first] = await vk.readAsync(sum, 4 * (count - 1), 4); // offset and length in bytes: the last element
  done++;
  return first;
});
console.log(`${reads.length - done} reads were asked for before the first came back`);
for (const [i, read] of reads.entries()) console.log(`after ${i + 1} additions: ${await read}`);

// Work without a result is waited for by its timeline value.
await vk.waitAsync(vk.batchExecuteAll(add.packed, add.count));
console.log('the device has finished');

// A result can be given up; the device's work continues.
const controller = new AbortController();
const unwanted = vk.readAsync(sum, 0, 4 * count, { signal: controller.signal });
controller.abort(new Error('no longer wanted'));
await unwanted.catch((error) => console.log(`given up: ${error.message}`));

vk.destroy();
