// Runs on the platform that is tried, in any runtime: loads the addon, trains ten steps, and prints what it found as JSON.
//
//   node scripts/platforms/probe.mjs [STEPS]
//
// With 0 steps it names the device, or the code of the error that there is no loader or no device.

import assert from 'node:assert/strict';

import helios from 'helios-vk';
import { F, manualSeed, nn, noGrad, optim, rand, scope } from 'helios-vk/nn';

const steps = Number(process.argv[2] ?? 10);
assert.ok(Number.isInteger(steps) && steps >= 0, `STEPS must be a count, got ${process.argv[2]}`);

/** The losses of a regression with two layers: of two builds that round alike they are the same to the last bit. */
async function losses() {
  manualSeed(7);
  const x = rand([256, 8], { low: -1, high: 1 });
  const t = scope(() =>
    x
      .mul(x)
      .sum(1, true)
      .sub(x.slice(1, 0, 1)),
  );
  const model = new nn.Sequential(new nn.Linear(8, 64), new nn.GELU(), new nn.Linear(64, 1));
  const optimizer = new optim.AdamW(model.parameters(), { lr: 1e-2, clip: 1 });
  const step = () => {
    const loss = F.mseLoss(model.forward(x), t);
    loss.backward();
    optimizer.step();
    return loss;
  };
  const found = [];
  for (let i = 0; i < steps; i++) found.push(await scope(step).item());
  found.push(await noGrad(() => scope(() => F.mseLoss(model.forward(x), t))).item());
  assert.ok(found[0] > found[steps], `the loss did not fall: ${found.join(', ')}`);
  return found;
}

const { versions } = process;
const found = {
  runtime: versions.bun ? `Bun ${versions.bun}` : `Node ${versions.node}`,
  system: `${process.platform}-${process.arch}`,
  exports: Object.keys(helios).length,
};
if (steps === 0) {
  // Where there is no driver: the addon answers, in its own words.
  let answer;
  try {
    answer = { device: helios.initDevice().deviceName };
  } catch (error) {
    const { code = '' } = /** @type {{ code?: string }} */ (error);
    if (!['ERR_HELIOS_NO_LOADER', 'ERR_HELIOS_NO_DEVICE'].includes(code)) throw error;
    answer = { code };
  }
  console.log(JSON.stringify({ ...found, ...answer }));
} else {
  const { deviceName, driverInfo } = helios.initDevice();
  console.log(JSON.stringify({ ...found, device: `${deviceName} ${driverInfo}`.trim(), losses: await losses() }));
}
