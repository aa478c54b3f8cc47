// A runtime that refuses ArrayBuffers over native memory, as Electron does: results are copies, and what has no other way is an error.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { build, library } from './faults/cc.mjs';
import { childError, childJson } from './lib/child.mjs';

const glibc = /** @type {any} */ (process.report?.getReport())?.header.glibcVersionRuntime;
const reason = glibc === undefined ? "replaces a symbol of glibc's" : build('no-external');
const skip = reason ?? false;
const REFUSES = { env: { LD_PRELOAD: library('no-external') } };

/** Large results of every kind of read, what of them lies in native memory, and a model that trains. */
const READS = `
  init();
  const numbers = ramp(1 << 18);
  const buffer = bufferOf(numbers);
  const all = [vk.readBuffer(buffer), await vk.readAsync(buffer), vk.readBuffer(buffer)];
  const leased = vk.getAllocatorStats().readbackLeasedBytes;
  for (const result of all) assert.deepEqual(bits(result), numbers);
  structuredClone(all[0], { transfer: [all[0].buffer] });
  const { F, manualSeed, nn, optim, tensor } = await import('${new URL('../nn/index.mjs', import.meta.url)}');
  manualSeed(1);
  const layer = new nn.Linear(128, 128);
  const optimizer = new optim.AdamW(layer.parameters(), { lr: 1e-2 });
  const x = tensor(Float32Array.from({ length: 256 * 128 }, (_, i) => Math.sin(i)), { shape: [256, 128] });
  const losses = [];
  for (let step = 0; step < 3; step++) {
    const loss = F.mseLoss(layer.forward(x), x);
    loss.backward();
    optimizer.step();
    losses.push(await loss.item());
  }
  const weights = Array.from(await layer.weight.toArray());
  process.stdout.write(JSON.stringify({ leased, detached: all[0].length, losses, weights }));
`;

test('reads and training give what they give in Node', { skip }, async () => {
  const [node, refused] = await Promise.all([childJson(READS), childJson(READS, REFUSES)]);
  // Else nothing was refused, or there was nothing to refuse.
  assert.ok(node.leased > 0 && refused.leased === 0, `${node.leased} and ${refused.leased} bytes in native memory`);
  assert.ok(refused.losses[2] < refused.losses[0]);
  // Node does not detach native memory that an addon gave it; copies are memory of its own.
  assert.equal(refused.detached, 0);
  assert.deepEqual([refused.losses, refused.weights], [node.losses, node.weights]);
});

test('the command buffer of DGC, which is native memory, is an error that says so', { skip }, async (t) => {
  const device = await childJson('const { hasDGC, hasBDA } = init(); process.stdout.write(JSON.stringify(hasDGC && hasBDA))');
  if (!device) return t.skip('the device has no buffer addresses');
  const { code, message } = await childError(
    `init();
    const { setUpDgc } = await import('${new URL('lib/twin.mjs', import.meta.url)}');
    setUpDgc();
    vk.dgcGetCommandBuffer();`,
    REFUSES,
  );
  assert.equal(code, 'ERR_HELIOS_UNSUPPORTED');
  assert.match(message, /dgcGetCommandBuffer.*allows no ArrayBuffer over native memory.*batchExecuteAllDGC/);
});
