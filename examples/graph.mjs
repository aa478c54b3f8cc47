// A graph: commands that are recorded once and submitted many times. Here a step of the iteration x = 0.8 x + 0.6, which ends at 3.
//
//   node examples/graph.mjs
//
// Prints the device, then: 100 steps of 2 dispatches: x = 3.000000; and the host's time for a launch

import vk from 'helios-vk';
import { createKernels, pack } from 'helios-vk/kernels';

const { deviceName } = vk.initDevice();
const kernels = createKernels(vk);
console.log(deviceName);

const count = 4096;
const [x, factor, term] = [10, 0.8, 0.6].map((value) => {
  const buffer = vk.createBuffer(4 * count, 0);
  vk.uploadBuffer(buffer, new Float32Array(count).fill(value));
  return buffer;
});

// Calls between graphBegin and graphEnd are recorded, not executed. Barriers between them are found as always.
const { packed, count: dispatches } = pack(
  kernels.binary({ op: 'mul', a: x, b: factor, y: x, count }),
  kernels.binary({ op: 'add', a: x, b: term, y: x, count }),
);
vk.graphBegin();
vk.batchExecuteAll(packed, dispatches);
const graph = vk.graphEnd();

const launches = 100;
const start = performance.now();
for (let i = 0; i < launches; i++) vk.graphLaunch(graph);
const each = (1000 * (performance.now() - start)) / launches;

// A launch waits for what it needs from the launches before it; this read waits for all of them.
const result = vk.readBuffer(x);
const worst = result.reduce((most, value) => Math.max(most, Math.abs(value - 3)), 0);
if (!(worst < 1e-5)) throw new Error(`the largest distance from 3 is ${worst}`);
console.log(`${launches} steps of ${dispatches} dispatches: x = ${result[0].toFixed(6)}`);
console.log(`${each.toFixed(1)} µs of host time for a launch`);

vk.graphDestroy(graph);
vk.destroy();
