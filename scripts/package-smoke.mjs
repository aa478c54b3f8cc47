// Runs inside an empty project into which the packed package was installed (pack.mjs copies it there):
// loads the package both ways, computes, and prints what it found as JSON.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { networkInterfaces } from 'node:os';
import { delimiter, join } from 'node:path';
import { existsSync } from 'node:fs';

import helios, { batchExecuteAll } from 'helios-vk';
import { createKernels, pack } from 'helios-vk/kernels';

if (process.argv.length > 2) {
  console.error('usage: node smoke.mjs, in a project into which the package was packed; node scripts/pack.mjs --check makes one');
  process.exit(2);
}
const require = createRequire(import.meta.url);
// A variable name keeps the type checker out: what `require` loads is made only when the package is packed.
const load = (/** @type {string} */ name) => require(name);
assert.equal(require('helios-vk'), helios);
assert.equal(batchExecuteAll, helios.batchExecuteAll);
assert.deepEqual(Object.keys(load('helios-vk/kernels')).sort(), Object.keys(await import('helios-vk/kernels')).sort());
assert.deepEqual(Object.keys(load('helios-vk/nn')).sort(), Object.keys(await import('helios-vk/nn')).sort());

const info = helios.initDevice();
const kernels = createKernels(helios);
const count = 100_003;
const a = Float32Array.from({ length: count }, (_, i) => i % 1021);
const b = Float32Array.from({ length: count }, (_, i) => (i % 509) - 254);
const [x, y, sum, product] = Array.from({ length: 4 }, () => helios.createBuffer(a.byteLength, 0));
helios.uploadBuffer(x, a);
helios.uploadBuffer(y, b);
const list = pack(kernels.binary({ op: 'add', a: x, b: y, y: sum, count }), kernels.binary({ op: 'mul', a: sum, b: y, y: product, count }));
helios.waitTimeline(helios.batchExecuteAll(list.packed, list.count));
const [sums, products] = [helios.readBuffer(sum), await helios.readAsync(product)];
for (let i = 0; i < count; i++) {
  assert.equal(sums[i], a[i] + b[i]);
  assert.equal(products[i], (a[i] + b[i]) * b[i]);
}
// The same through `require`, on the same device.
const script = load('helios-vk/kernels');
const { packed, count: one } = script.pack(script.createKernels(helios).binary({ op: 'max', a: x, b: y, y: sum, count }));
helios.batchExecuteAll(packed, one);
const largest = helios.readBuffer(sum);
for (let i = 0; i < count; i++) assert.equal(largest[i], Math.max(a[i], b[i]));
helios.destroy();

const onPath = (/** @type {string} */ command) =>
  (process.env.PATH ?? '').split(delimiter).some((folder) => existsSync(join(folder, command)));
console.log(
  JSON.stringify({
    node: process.versions.node,
    device: info.deviceName,
    driver: info.driverInfo,
    binary: Object.keys(require.cache).find((path) => path.endsWith('.node')),
    toolchain: ['cargo', 'rustc', 'cc', 'gcc', 'glslangValidator'].filter(onPath),
    network:
      Object.values(networkInterfaces())
        .flat()
        .filter((each) => each && !each.internal).length > 0,
  }),
);
