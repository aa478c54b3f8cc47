// Gradients and parameters in shards (ZeRO-2, ZeRO-3): the steps of ZeRO-1 bit for bit, eager and compiled, with less memory; what a step skips and
// clips; a state that another sharding goes on from; wrong calls; a process that is killed.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';

import { LAUNCHERS, NO_LAUNCHER, REPOSITORY, launch } from './launchers.mjs';

const RANK = join(REPOSITORY, '__test__/distributed/shards-rank.mjs');
const LIMIT = { timeout: 120_000, skip: NO_LAUNCHER };
const [first] = LAUNCHERS;

/** @typedef {import('./shards-rank.mjs').Way} Way */

/** Trains in several ways; what rank 0 says of each, which all others say too. @param {number} nproc @param {Way[]} ways @param {typeof first} [launcher] */
async function train(nproc, ways, launcher = first) {
  const ran = await launch(launcher, ['--nproc', String(nproc)], [RANK, JSON.stringify(ways)]);
  assert.equal(ran.status, 0, ran.output);
  assert.equal(ran.said.length, nproc, ran.output);
  const [{ results }] = ran.of(0);
  for (const other of ran.said) assert.deepEqual(other.results, results, `rank ${other.rank} has other parameters than rank 0`);
  for (const { problem = null } of results) assert.equal(problem, null);
  return results;
}

/** The largest difference. @param {number[]} a @param {number[]} b */
const distance = (a, b) => a.reduce((most, x, i) => Math.max(most, Math.abs(x - b[i])), 0);

for (const launcher of LAUNCHERS) {
  test(`${launcher.name}: two processes make the steps of ZeRO-1, bit for bit`, LIMIT, async () => {
    const [eager, two, three, units, whole, compiled, ofUnits, micro, ofMicro] = await train(
      2,
      [
        { zero: 1 },
        { zero: 2 },
        { zero: 3 },
        { zero: 3, units: true },
        { zero: 1, compiled: true },
        { zero: 2, compiled: true },
        { zero: 3, compiled: true, units: true },
        { zero: 1, compiled: true, micro: 3 },
        { zero: 3, compiled: true, units: true, micro: 3 },
      ],
      launcher,
    );
    assert.equal(new Set(eager.hashes).size, 4, 'every step changes something');
    for (const [name, { hashes }] of Object.entries({ two, three, units })) assert.deepEqual(hashes, eager.hashes, name);
    for (const [name, { hashes }] of Object.entries({ compiled, ofUnits })) assert.deepEqual(hashes, whole.hashes, name);
    // Micro-steps are summed over the processes one by one, not together.
    assert.ok(distance(ofMicro.values, micro.values) < 1e-5, `${distance(ofMicro.values, micro.values)}`);
    assert.ok(distance(micro.values, eager.values) < 1e-4, `${distance(micro.values, eager.values)}`);
    for (const { left } of [two, three, units, compiled, ofUnits, ofMicro]) assert.equal(left, 0, 'dispose() frees everything');
    // Of 11,493 parameters, rounded up to shards: f32 values, gradients and two moments; ZeRO-3 keeps the memory of its largest unit besides.
    const [all, part] = [4 * 11_493, 2 * 11_493];
    const rest = 12_000;
    const near = (/** @type {number} */ bytes, /** @type {number} */ expected) =>
      assert.ok(bytes >= expected && bytes < expected + rest, `${bytes} bytes, expected ${expected}`);
    near(eager.bytes, 2 * all + 2 * part);
    near(two.bytes, all + 3 * part);
    near(units.bytes, 4 * part + 4 * (50 * 36 * 2));
  });
}

test('three processes, gradients that are clipped, products of bf16, and steps that are skipped', LIMIT, async () => {
  const settings = /** @type {const} */ ({ clip: 0.01, compiled: true });
  const [whole, two, three, half, ofUnits, bad, skipped] = await train(3, [
    { zero: 1, ...settings },
    { zero: 2, ...settings },
    { zero: 3, units: true, ...settings },
    { zero: 1, half: true },
    { zero: 3, units: true, half: true, optimizer: 'AdamW' },
    { zero: 1, optimizer: 'SGD', clip: 1e6, bad: 1 },
    { zero: 3, optimizer: 'SGD', clip: 1e6, bad: 1, units: true },
  ]);
  assert.notDeepEqual(whole.hashes, bad.hashes, 'it is clipped');
  // By shards the sum of squares has another order, and so has the engine's sum of three.
  for (const { values, norm } of [two, three]) {
    assert.ok(distance(values, whole.values) < 1e-4, `${distance(values, whole.values)}`);
    assert.ok(Math.abs(norm - whole.norm) < 1e-5 * whole.norm, `${norm} and ${whole.norm}`);
  }
  assert.ok(distance(half.values, ofUnits.values) < 1e-3, `${distance(half.values, ofUnits.values)}`);
  for (const { hashes, skipped: count } of [bad, skipped]) {
    assert.equal(count, 1);
    assert.equal(hashes[1], hashes[0], 'nothing has changed');
    assert.notEqual(hashes[2], hashes[1]);
  }
  assert.ok(distance(bad.values, skipped.values) < 1e-5);
});

test('gradients that come in other orders, or not at all, are those of their own parameters', LIMIT, async () => {
  for (const { values } of await train(2, [
    { zero: 2, apart: true },
    { zero: 3, apart: true },
  ]))
    assert.deepEqual(values, [-100, -1, -0.5]);
});

test('ZeRO-1 goes on from the state of ZeRO-3, bit for bit; wrong calls are errors', LIMIT, async () => {
  const [whole, resumed, of2, of3] = await train(2, [
    { zero: 3, units: true },
    { zero: 3, units: true, resumed: 2 },
    { zero: 2, misuse: true },
    { zero: 3, misuse: true },
  ]);
  // The optimizer that takes over scales by the same, and loads what is on the device.
  assert.ok(distance(resumed.values, whole.values) < 1e-6, `${distance(resumed.values, whole.values)}`);
  for (const [{ errors }, zero] of /** @type {const} */ ([
    [of2, 2],
    [of3, 3],
  ])) {
    assert.match(errors.reduce, new RegExp(`AdamW: reduce must be f32 with zero: ${zero}`));
    assert.match(errors.zero, /zero must be 0, 1, 2 or 3, got 4/);
    assert.match(errors.matrices, new RegExp(`Muon: zero must be 0, since a step needs whole matrices, got ${zero}`));
    assert.match(errors.twice, /fullyShard: this module is a unit already/);
    assert.match(errors.inside, /fullyShard: the module has no parameters that are in no unit yet/);
    assert.match(errors.module, /fullyShard: expected a module/);
    assert.match(errors.late, /fullyShard: an optimizer has its parameters: call it before the optimizer is made/);
    assert.match(errors.step, /step: no parameter has a gradient/);
    assert.match(errors.compiled, /step: no parameter has a gradient|cannot be compiled/);
    assert.match(errors.other, /setParameter: expected a parameter of this optimizer/);
    assert.match(errors.many, /setParameter: the parameter has 288 elements, got 288 from 1/);
    assert.match(errors.type, /setParameter: values must be a tensor of floating type/);
  }
  assert.match(of3.errors.inPlace, /fill_: each process has a part of this parameter \(zero: 3\)/);
  assert.match(of3.errors.disposed, /the tensor was disposed of/);
  assert.match(of3.errors.ofAlias, /the optimizer that had a part of this parameter was disposed of/);
  assert.equal(of2.errors.inPlace, 'no error');
  assert.equal(of2.errors.disposed, 'no error');
});

test('a process that is killed while parameters are gathered is an error on the others', LIMIT, async () => {
  const { said } = await launch(
    first,
    ['--nproc', '2', '--grace', '20'],
    [RANK, JSON.stringify([{ zero: 3, units: true, compiled: true, dies: 2 }])],
  );
  assert.match(said.find(({ rank }) => rank === 0)?.results[0].problem ?? '', /rank 1/);
});
