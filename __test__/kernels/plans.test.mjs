// The plans that products have, kept as text, so that whoever changes a table or the model of time sees which plans that changes.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { infoOf, plansNow, productsOn } from '../lib/plans.mjs';

test('products of the presets and of four models that no table names have the plans that are written down', () => {
  const kept = JSON.parse(readFileSync(new URL('./plans.json', import.meta.url), 'utf8'));
  // Where a change is meant: node __test__/lib/plans.mjs > __test__/kernels/plans.json, and say in the commit what is faster.
  assert.deepEqual(plansNow(), kept);
});

test('a plan says why it was chosen', () => {
  const halves = /** @type {const} */ ({ transB: true, aType: 'bf16', bType: 'bf16' });
  /** @type {any} */
  const large = { ...halves, m: 65536, n: 1536, k: 768 };
  const hopper = productsOn(infoOf('NVIDIA H100 80GB HBM3', { hasPtx: true, multiprocessors: 132 }));
  const because = (/** @type {any} */ args, { matmulPlan } = hopper) => matmulPlan(args).because;
  assert.match(String(because(large)), /^model: \d+ µs by tallCached, \d+ by \w+$/);
  assert.equal(because({ ...large, n: 768 }), 'line NT 65536 768 768 of the H100 table');
  assert.equal(because({ ...large, plan: { kernel: 'ptx', tiling: 'tall' } }), 'the caller asked for it');
  assert.equal(because({ ...halves, m: 64, n: 64, k: 48 }), 'no line is near: the smallest tile that fits');
  assert.match(String(because({ ...halves, m: 4096, n: 768, k: 768, bShuffled: true })), /^model: .* by tallCopiedCached/);
  assert.equal(because({ ...halves, m: 512, n: 64, k: 64, bShuffled: true }), 'B is shuffled, which only PTX takes');
  const plain = productsOn(infoOf('NVIDIA H200'));
  assert.equal(because({ ...halves, m: 512, n: 1024, k: 1024 }, plain), 'line NT 512 1024 1024 of the H200 table');
  assert.equal(because({ ...halves, m: 600, n: 1024, k: 1024 }, plain), 'nearest line NT 512 1024 1024 of the H200 table');
  // Given back, a plan is the same plan.
  const plan = hopper.matmulPlan(large);
  assert.deepEqual(hopper.matmulPlan({ ...large, plan }), plan);
});
