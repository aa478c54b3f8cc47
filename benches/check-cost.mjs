#!/usr/bin/env node
/**
 * Measures what it costs that kernels check their arguments: the host time of making a record with and without checks, in turn. No record is
 * submitted. A figure is the shortest of many short samples, so that other processes on the core do not count.
 */

import { createKernels } from '../kernels/index.mjs';
import { addonPath, loadAddon, OWN_ADDON } from './lib/addon.mjs';
import { runMain } from './lib/args.mjs';
import { format, textTable } from './lib/stats.mjs';

const USAGE = 'node benches/check-cost.mjs [options]';
const OPTIONS = /** @type {const} */ ({
  addon: { type: 'string', value: 'PATH', path: 'module', default: OWN_ADDON, help: 'the addon to measure' },
  samples: { type: 'integer', default: 400, min: 1, help: 'samples of each kernel on either side, in turn' },
  records: { type: 'integer', default: 100, min: 1, help: 'records of a sample' },
  quick: { type: 'boolean', help: 'two small samples, to see that everything runs' },
  json: { type: 'boolean', help: 'print JSON' },
});

const BYTES = 1 << 20;

/**
 * Calls of a training step's kernels over buffers of their own, as many sets as sizes are looked up of in turn.
 * @param {any} vk @param {number} sets
 * @returns {{ name: string, call: (kernels: any, i: number) => unknown }[]}
 */
function cases(vk, sets) {
  const buffers = Array.from({ length: 12 * sets }, () => vk.createBuffer(BYTES, 0));
  const of = (/** @type {number} */ i) => buffers.slice(12 * (i % sets), 12 * (i % sets) + 12);
  const lists = Array.from({ length: sets }, (_, i) => of(i));
  /** @param {string} name @param {(b: number[]) => any} args */
  const one = (name, args) => {
    const given = lists.map(args);
    return { name, call: (/** @type {any} */ kernels, /** @type {number} */ i) => kernels[name](given[i % sets]) };
  };
  const rows = { rows: 64, columns: 256 };
  const heads = { tokens: 64, heads: 4, headSize: 32 };
  return [
    one('fill', ([y]) => ({ y, count: 4096, value: 0 })),
    one('binary', ([a, b, y]) => ({ a, b, y, count: 4096 })),
    one('gluBackward', ([gateUp, dy, dGateUp]) => ({ gateUp, dy, dGateUp, ...rows })),
    one('softmaxForward', ([x, y]) => ({ x, y, ...rows })),
    one('crossEntropy', ([logits, targets, loss]) => ({ logits, targets, loss, ...rows })),
    one('embeddingForward', ([ids, table, y]) => ({ ids, table, y, tokens: 64, columns: 256, vocabulary: 500 })),
    one('rmsNormForward', ([x, y, weight, stats, residual, sum]) => ({ x, y, weight, stats, residual, sum, ...rows })),
    one('rmsNormBackward', ([dy, x, weight, stats, dx, dWeight, residual]) => ({ dy, x, weight, stats, dx, dWeight, residual, ...rows })),
    one('adamw', ([parameters, first, second, gradient, state]) => ({ parameters, first, second, gradient, state, count: 4096 })),
    one('matmul', ([a, b, c, bias, residual]) => ({ a, b, c, bias, residual, m: 64, n: 64, k: 64 })),
    one('attentionForward', ([qkv, out, logSumExp]) => ({ qkv, out, logSumExp, ...heads })),
    one('attentionBackward', ([qkv, out, logSumExp, dOut, dQkv, delta]) => ({ qkv, out, logSumExp, dOut, dQkv, delta, ...heads })),
  ];
}

await runMain(USAGE, OPTIONS, ({ addon, samples, records, quick, json }) => {
  const vk = /** @type {any} */ (loadAddon(addonPath(addon)));
  const { deviceName: device } = vk.initDevice();
  const sides = [createKernels(vk, { check: false }), createKernels(vk)];
  const [rounds, each] = quick ? [2, 20] : [samples, records];
  const rows = cases(vk, 20).map(({ name, call }) => {
    const sample = (/** @type {any} */ kernels) => {
      let made = 0;
      const start = performance.now();
      for (let i = 0; i < each; i++) made += /** @type {any} */ (call(kernels, i)).length ?? 1;
      return ((performance.now() - start) * 1000) / made;
    };
    // Compiled by then, and pipelines made.
    for (let i = 0; i < (quick ? 1 : 60); i++) for (const kernels of sides) sample(kernels);
    /** @type {number[][]} */
    const times = [[], []];
    for (let round = 0; round < rounds; round++) {
      // The one that comes first changes, for what a collection of the other's garbage takes.
      for (const side of round % 2 ? [1, 0] : [0, 1]) times[side].push(sample(sides[side]));
    }
    const [without, with_] = times.map((side) => Math.min(...side));
    return { name, without, with: with_, difference: with_ - without };
  });
  if (json) {
    console.log(JSON.stringify({ device, samples: rounds, records: each, rows }, null, 2));
    return;
  }
  console.log(`the shortest of ${rounds} samples of ${each} calls; µs of host time a record\n`);
  console.log(
    textTable(
      ['kernel', 'unchecked', 'checked', 'difference'],
      rows.map((row) => [row.name, format(row.without), format(row.with), format(row.difference)]),
    ),
  );
});
