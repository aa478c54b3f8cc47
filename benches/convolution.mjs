#!/usr/bin/env node
/**
 * Measures convolutions: the layers of ResNet-18 at 32 × 32, forward and with both gradients, and the whole training step. With `--count` nothing
 * runs: the step is compiled for a stub of an H200.
 */

import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { F, compile, grad, init, memory, noGrad, randn, scope } from '../nn/index.mjs';

import { addonPath, loadAddon, OWN_ADDON } from './lib/addon.mjs';
import { runMain } from '../bin/lib/options.mjs';
import { imagesOf, trainingStep } from './lib/resnet.mjs';
import { format, median, textTable } from './lib/stats.mjs';
import { stubDevice } from '../__test__/lib/stub.mjs';

/** @typedef {import('../nn/index.mjs').Tensor} Tensor */
/** @typedef {{ name: string, inputs: number, outputs: number, size: number, window: number, stride: number }} Layer of square images */

const USAGE = 'node benches/convolution.mjs [options]';
const OPTIONS = /** @type {const} */ ({
  addon: { type: 'string', value: 'PATH', path: 'module', default: OWN_ADDON, help: 'the addon to measure' },
  precision: { type: 'string', default: 'bf16', choices: ['f32', 'f16', 'bf16'], help: 'of products, under autocast' },
  batch: { type: 'integer', default: 128, min: 1, max: 65536, help: 'images' },
  layers: { type: 'string', value: 'LIST', help: 'names of layers, with commas; all when left out' },
  samples: { type: 'integer', default: 7, min: 1, max: 10_000, help: 'timed runs of each' },
  repeats: { type: 'integer', default: 10, min: 1, max: 10_000, help: 'calls of a timed run' },
  step: { type: 'boolean', help: 'time the training step of ResNet-18 instead of layers' },
  profile: { type: 'boolean', help: "instead of timing the step, each of its kernels' time" },
  count: { type: 'boolean', help: "count the step's dispatches and intermediate bytes, without a device" },
  pytorch: { type: 'string', value: 'PYTHON', help: 'a Python that has PyTorch, to time the same there' },
  json: { type: 'boolean', help: 'print JSON' },
});

/** The convolutions of ResNet-18 for images of 32 × 32, each of its kinds once. @type {Layer[]} */
const LAYERS = [
  ['stem', 3, 64, 32, 3, 1],
  ['64', 64, 64, 32, 3, 1],
  ['64-128', 64, 128, 32, 3, 2],
  ['64-128-1x1', 64, 128, 32, 1, 2],
  ['128', 128, 128, 16, 3, 1],
  ['128-256', 128, 256, 16, 3, 2],
  ['256', 256, 256, 8, 3, 1],
  ['256-512', 256, 512, 8, 3, 2],
  ['512', 512, 512, 4, 3, 1],
].map(([name, inputs, outputs, size, window, stride]) => /** @type {Layer} */ ({ name, inputs, outputs, size, window, stride }));

/** Calls before times are taken, as of the twin in PyTorch. */
const WARM_UP = 5;

/**
 * Times functions in turn, after calls of each: milliseconds of a call, by sample.
 * @param {Record<string, () => Tensor>} calls each returns a result of the last dispatch: to wait, one element of it is read
 * @param {number} samples @param {number} repeats
 */
async function inTurn(calls, samples, repeats) {
  /** @type {Record<string, number[]>} */
  const times = Object.fromEntries(Object.keys(calls).map((name) => [name, []]));
  /** @param {() => Tensor} call */
  const finished = (call) => scope(() => call().reshape(-1).slice(0, 0, 1)).toArray();
  for (const call of Object.values(calls)) for (let i = 0; i < WARM_UP; i++) await finished(call);
  for (let sample = 0; sample < samples; sample++) {
    for (const [name, call] of Object.entries(calls)) {
      const start = performance.now();
      for (let i = 1; i < repeats; i++) scope(() => void call());
      await finished(call);
      times[name].push((performance.now() - start) / repeats);
    }
  }
  return times;
}

/** The measurements of the twin in PyTorch, or undefined. @param {string | undefined} python @param {string[]} args */
function pytorch(python, args) {
  if (!python) return undefined;
  const file = fileURLToPath(new URL('pytorch/convolution.py', import.meta.url));
  return JSON.parse(execFileSync(python, [file, ...args], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] }));
}

await runMain(
  USAGE,
  OPTIONS,
  async ({ addon, precision, batch, layers, samples, repeats, step, profile, count, pytorch: python, json }) => {
    if (count) {
      init({ vk: /** @type {any} */ (stubDevice()) });
      const { images, labels } = imagesOf(batch);
      const recorded = trainingStep(precision);
      recorded(images, labels);
      const [{ dispatches, unplanned, planned }] = recorded.explain();
      const counts = { precision, batch, dispatches, resultBytes: unplanned, memoryBytes: planned };
      console.log(json ? JSON.stringify(counts) : counts);
      return;
    }
    const vk = /** @type {any} */ (loadAddon(addonPath(addon)));
    const { deviceName: device, driverInfo: driver } = init({ vk });
    const args = ['--precision', precision, '--batch', `${batch}`, '--samples', `${samples}`, '--repeats', `${repeats}`];
    if (profile) {
      const { images, labels } = imagesOf(batch);
      const recorded = trainingStep(precision);
      for (let i = 0; i < WARM_UP; i++) await recorded(images, labels).item();
      const lines = recorded.profile(images, labels);
      console.log(json ? JSON.stringify({ device, driver, precision, batch, lines }) : lines);
      return;
    }
    if (step) {
      const { images, labels } = imagesOf(batch);
      const recorded = trainingStep(precision);
      const { step: times } = await inTurn({ step: () => recorded(images, labels) }, samples, repeats);
      const gigabytes = memory().bytes / 1e9;
      const result = { device, driver, precision, batch, step: times, gigabytes, pytorch: pytorch(python, ['--step', ...args]) };
      if (json) console.log(JSON.stringify(result));
      else console.log(`${format(median(times))} ms a step, ${gigabytes.toFixed(2)} GB`);
      if (!json && result.pytorch) console.log('PyTorch', result.pytorch);
      return;
    }
    const names = layers?.split(',');
    const unknown = names?.find((own) => !LAYERS.some(({ name }) => name === own));
    if (unknown !== undefined) throw new RangeError(`no layer ${unknown}: the layers are ${LAYERS.map(({ name }) => name).join(', ')}`);
    if (layers) args.push('--layers', layers);
    const results = [];
    for (const layer of LAYERS.filter(({ name }) => !names || names.includes(name))) {
      const { name, inputs, outputs, size, window, stride } = layer;
      // In the type of the products, and closed over: casts, and copies of arguments and results, are not of the convolution.
      const made = (/** @type {number[]} */ shape) => noGrad(() => randn(shape).to(/** @type {'bf16'} */ (precision)));
      const x = made([batch, inputs, size, size]).requiresGrad_();
      const weight = made([outputs, inputs, window, window]).requiresGrad_();
      const dy = made([batch, outputs, size / stride, size / stride]);
      const how = { stride, padding: (window - 1) / 2 };
      const forward = compile(() => noGrad(() => F.conv2d(x, weight, undefined, how)), { reuseOutputs: true });
      const both = compile(
        () => {
          const y = F.conv2d(x, weight, undefined, how);
          // The result is returned too: nobody else reads it, and it would be left out.
          return [y, ...grad(y, [x, weight], { gradient: dy })];
        },
        { reuseOutputs: true },
      );
      const calls = { forward, 'forward and gradients': () => both()[2] };
      const times = await inTurn(calls, samples, repeats);
      results.push({ ...layer, flops: 2 * batch * outputs * inputs * window ** 2 * (size / stride) ** 2, milliseconds: times });
      if (!json) {
        console.log(`${name} [${batch}, ${inputs}, ${size}, ${size}], ${window} × ${window} / ${stride}, ${precision}`);
        const rows = Object.entries(times).map(([what, list]) => [what, format(median(list))]);
        console.log(textTable(['', 'ms'], rows));
      }
    }
    const twin = pytorch(python, args);
    if (json) console.log(JSON.stringify({ device, driver, precision, batch, layers: results, pytorch: twin }));
    else if (twin) console.log(twin);
  },
);
