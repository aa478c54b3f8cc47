// The timer of automatic tuning (kernels/tuning/timer.mjs) on the device: sums of its values are exact, so that it leaves out no plan that is right.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { KernelContext } from '../../kernels/base.mjs';
import { matmulKernels } from '../../kernels/matmul.mjs';
import { deviceTimer } from '../../kernels/tuning/timer.mjs';
import { PERIOD, Values } from '../../kernels/tuning/values.mjs';
import { vk } from '../lib/addon.mjs';

const context = new KernelContext(vk, { tuning: false });
const kernels = /** @type {any} */ ({ context, ...matmulKernels(context) });
after(() => vk.destroy());

/** @param {object} sizes @returns {any} */
const problemOf = (sizes) => ({
  transA: true,
  transB: false,
  precision: 'f32',
  aType: 'f32',
  bType: 'f32',
  cType: 'f32',
  beta: 0,
  ...sizes,
});

test('plans that split a deep product have the bits of one that does not, and a plan that computes something else is found', () => {
  const timer = deviceTimer(vk, kernels);
  const { sampler, close } = timer.open(problemOf({ m: 32, n: 32, k: 16384 }));
  const tile = { kernel: /** @type {const} */ ('f32'), bm: 32, bn: 32, bk: 16, tm: 4, tn: 4, lx: 8, stages: 1 };
  for (const splits of [4, 5]) assert.ok(sampler({ ...tile, splits })() > 0);
  const { matmul } = kernels;
  kernels.matmul = (/** @type {any} */ args) => matmul({ ...args, alpha: 2 });
  assert.throws(() => sampler({ ...tile, splits: 4 }), /its result is wrong/);
  kernels.matmul = matmul;
  close();
  timer.close();
});

test('sums of 2^18 products of the values are exact in f32, in any part and for rows of a power of two', () => {
  const [a, b] = [new Values('f32'), new Values('f32', 0x7f4a7c15)];
  assert.ok(a.values.length === PERIOD && a.values.every((x) => Number.isInteger(64 * x) && x >= -1 && x < 1));
  for (const ld of [1, 256, 4096]) {
    let [sum, least, most] = [0, 0, 0];
    for (let k = 0; k < 2 ** 18; k++) {
      sum += a.at(k * ld + 3) * b.at(k * ld + 3);
      [least, most] = [Math.min(least, sum), Math.max(most, sum)];
    }
    // A part is the difference of two of these sums, all multiples of 2^-12.
    assert.ok(most - least < 2 ** 12, `${ld}: ${most - least}`);
  }
});
