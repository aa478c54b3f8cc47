#!/usr/bin/env node
// Experiment: plans of kernels/ptx/plans.mjs on some products, in rounds, in turn; the least and the median of the samples.
import { createRequire } from 'node:module';
import { KernelContext } from '../kernels/base.mjs';
import { matmulKernels } from '../kernels/matmul.mjs';
import { timedProduct } from '../kernels/tuning/measure.mjs';
import { shapeOf } from '../kernels/tuning/table.mjs';

const [shapes, plans, rounds = '11'] = process.argv.slice(2);
const vk = createRequire(import.meta.url)('../index.js');
const context = new KernelContext(vk, { tuning: false });
const kernels = matmulKernels(context);
console.log(context.info.deviceName);
for (const shape of shapes.split(',').map(shapeOf)) {
  const product = timedProduct(vk, kernels.matmul, shape, { precision: 'bf16', aType: 'bf16', bType: 'bf16', cType: 'bf16', beta: 0 });
  const list = plans.split(',').flatMap((text) => {
    const [tiling, split] = text.split('/');
    const plan = { kernel: /** @type {const} */ ('ptx'), tiling, ...(split ? { tail: Number(split), wave: 132 } : {}) };
    try {
      return [{ text, differ: product.check(plan).differ, sample: product.sampler(plan), us: /** @type {number[]} */ ([]) }];
    } catch (error) {
      console.log(`${text}: ${/** @type {Error} */ (error).message}`);
      return [];
    }
  });
  for (let r = 0; r < Number(rounds); r++) for (const entry of list) entry.us.push(entry.sample().us);
  console.log(`${shape.form} ${shape.m}x${shape.n}x${shape.k}`);
  for (const { text, us, differ } of list) {
    const sorted = [...us].sort((x, y) => x - y);
    const flops = 2 * shape.m * shape.n * shape.k;
    console.log(
      `  ${text.padEnd(12)} least ${sorted[0].toFixed(1)} µs (${(flops / sorted[0] / 1e6).toFixed(0)} TFLOP/s), median ${sorted[sorted.length >> 1].toFixed(1)}, first and last ${us[0].toFixed(1)} ${us[us.length - 1].toFixed(1)}${differ ? `, ${differ} elements differ` : ''}`,
    );
  }
  product.close();
}
