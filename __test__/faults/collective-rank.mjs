// One rank of collective.test.mjs: a group's life in which one Vulkan call of the last rank fails.
//
//   collective-rank.mjs CALL NTH RESULT [TIMES]

import { install } from './layer.mjs';

const faults = install();
const { bufferOf, init: initDevice, vk } = await import('../lib/addon.mjs');
const { init, launched } = await import('../../distributed/index.mjs');

const [call, nth, result, times = '1'] = process.argv.slice(2);
const { rank, worldSize } = launched();
/** @type {string | null} */
let failed = null;
/** Runs a step, unless one before it has failed. @param {() => unknown} body */
async function step(body) {
  if (failed !== null) return;
  try {
    await body();
  } catch (/** @type {any} */ error) {
    if (typeof error?.code !== 'string' || !error.code.startsWith('ERR_HELIOS_')) throw error;
    failed = error.code;
  }
}

initDevice();
const buffer = bufferOf(Float32Array.of(rank + 1, 7), 0);
vk.waitIdle();
faults.reset();
if (call && rank === worldSize - 1) faults.fail(call, Number(nth), result, Number(times));

/** @type {import('../../distributed/index.mjs').Group | undefined} */
let group;
/** @type {number[]} */
const sums = [];
await step(async () => {
  group = await init({ joinTimeoutMs: 30_000, timeoutMs: 60_000 });
});
for (let i = 0; i < 2; i++) {
  await step(async () => {
    group?.allReduce(buffer, { count: 1 });
    sums.push(vk.readBuffer(buffer)[0]);
  });
}
await step(() => void group?.broadcast(buffer, { root: 0 }));
/** @type {string | null} */
let end = null;
try {
  if (group) await group.destroy();
} catch (/** @type {any} */ error) {
  end = error.code;
}
const said = { rank, joined: group !== undefined, failed, sums, end, fired: faults.fired(), counts: faults.counts() };
console.log(`@rank ${JSON.stringify(said)}`);
vk.destroy();
