// The model of time beside what was timed on H100s, in microseconds with barriers (timed-h100.json): models of width 384 and 768 in a sweep of
// 2026-11-26 over tilings and splits, products of the 300M and the 1.29B model in turn on 2026-11-25.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { guesses, predictPlan } from '../../kernels/hopper/model.mjs';
import { ptxPlan, permutedPlan } from '../../kernels/hopper/tables.mjs';
import { HOPPER } from '../../kernels/tuning/measured/hopper.mjs';
import { entriesOf, shapeOf } from '../../kernels/tuning/table.mjs';
import { productsOf } from '../../bin/lib/tune-shapes.mjs';

/** @type {Record<string, Record<string, number>>} */
const TIMED = JSON.parse(readFileSync(new URL('./timed-h100.json', import.meta.url), 'utf8'));

/** @param {{ form: string, m: number, n: number, k: number }} shape */
const problemOf = ({ form, ...sizes }) => ({ ...sizes, transA: form === 'TN', transB: form === 'NT' });
/** @param {string} name such as `m256n128-ld k/2` @returns {any} */
function planOf(name) {
  const [, tiling, permuted, how, parts] = /^([\w-]+)(\/permuted)?(?: (k|tail)\/(\d))?$/.exec(name) ?? [];
  return {
    tiling,
    permuted: Boolean(permuted),
    ...(how === 'k' ? { splits: Number(parts) } : how ? { wave: 132, tail: Number(parts) } : {}),
  };
}

/** Shapes whose timings say nothing: every plan, SPIR-V's too, took 2 to 3 times as long as its like; and one where the sweep ended after three plans. */
const DISTURBED = ['TN 1152 384 16384', 'NT 9216 3840 1280'];
/**
 * Lists whose fastest plan the model misses by more than 5 %. Of NN at a width of 384 plans with parts alone were timed permuted, which are far from
 * the fastest; the one sample of `m256n128-tma-l1` at NT 16384 2048 384 took 1.7 times as long as its neighbours say.
 */
const MISSED = ['NT 16384 2048 384 permuted', 'NN 16384 384 1152 permuted', 'NN 16384 384 2048 permuted'];

test("of the plans that were timed the model's pick takes at most 5 % more than the fastest", () => {
  let seen = 0;
  const missed = [];
  for (const [shape, times] of Object.entries(TIMED)) {
    if (DISTURBED.includes(shape)) continue;
    const problem = problemOf(shapeOf(shape));
    for (const permuted of [false, true]) {
      const looked = guesses(problem, { permuted }).map(({ plan }) => String(plan.tiling));
      const list = Object.entries(times).flatMap(([name, us]) => {
        const plan = planOf(name);
        if (plan.tiling === 'coop' || plan.permuted !== permuted) return [];
        const guess = looked.includes(plan.tiling) ? predictPlan(problem, plan) : undefined;
        return [{ name, us, guess: guess ?? Infinity }];
      });
      if (list.length < 2) continue;
      seen++;
      const fastest = Math.min(...list.map(({ us }) => us));
      const pick = list.reduce((best, one) => (one.guess < best.guess ? one : best));
      if (pick.us > 1.05 * fastest) missed.push(`${shape}${permuted ? ' permuted' : ''}`);
    }
  }
  assert.deepEqual(missed, MISSED);
  assert.equal(seen, 63);
});

test('what the model says of the fastest plans lies within a fifth of what they took', () => {
  const ratios = Object.entries(TIMED)
    .filter(([shape]) => !DISTURBED.includes(shape))
    .flatMap(([shape, times]) => {
      const problem = problemOf(shapeOf(shape));
      const fastest = Object.entries(times)
        .filter(([name]) => name !== 'coop')
        .reduce((best, one) => (one[1] < best[1] ? one : best));
      const us = predictPlan(problem, planOf(fastest[0]));
      return us === undefined ? [] : [{ shape, ratio: us / fastest[1] }];
    });
  for (const { shape, ratio } of ratios) assert.ok(ratio > 0.8 && ratio < 1.2, `${shape}: ${ratio}`);
});

/** Lines that the model does not reach: weight gradients of 512 tokens were timed adding to C, and it leaves out that C is read. */
const NOT_REACHED = ['TN 1024 2752 512', 'TN 3072 1024 512', 'TN 5504 1024 512', 'TN 17408 1024 512'];

// A table has the fastest plan alone: how long others would have taken is not known there, and whether the model would pick the same cannot be said.
test('lines of the tables in PTX take about as long as the model says, but for few', () => {
  const lines = HOPPER.filter(({ name, untimed }) => !untimed && (name === 'ptx' || name === 'permuted')).flatMap(({ name, lines }) =>
    lines
      .split('\n')
      .filter(Boolean)
      .map((line) => ({ entry: entriesOf(name, [line])[0], us: Number(line.split('|')[3]) })),
  );
  const off = lines.filter(({ entry, us }) => {
    const { plan, ...shape } = entry;
    const guess = plan.kernel === 'ptx' ? predictPlan(problemOf(shape), plan) : us;
    return guess === undefined || Math.abs(guess / us - 1) > 0.2;
  });
  assert.ok(lines.length > 100);
  const names = off.map(({ entry: { form, m, n, k } }) => `${form} ${m} ${n} ${k}`);
  assert.deepEqual(names, NOT_REACHED);
});

test('neighbours by rows are computed alike: no cliff where the tables end', () => {
  for (const width of [256, 384, 768, 1280, 1600])
    for (const { form, ...sizes } of productsOf({ width, hidden: 3 * width, vocab: 4096 }, 1)) {
      let before = 0;
      for (let tokens = 4096; tokens <= 262144; tokens *= 2) {
        const shape = { form, ...sizes, ...(form === 'TN' ? { k: tokens } : { m: tokens }) };
        const plan = ptxPlan(problemOf(shape));
        assert.ok(plan, JSON.stringify(shape));
        assert.ok(plan.because, JSON.stringify(shape));
        const us = predictPlan(problemOf(shape), plan) ?? assert.fail();
        assert.ok(us < 2.3 * before || before === 0, `${JSON.stringify(shape)}: ${us} µs, half of it ${before}`);
        before = us;
      }
    }
});

test('a product without a line has the plan of the least time, and says so', () => {
  const problem = { m: 65536, n: 50304, k: 768, transA: false, transB: true };
  const [first, second] = guesses(problem);
  const { because, guess, ...plan } = ptxPlan(problem) ?? assert.fail();
  assert.deepEqual(plan, first.plan);
  assert.equal(guess, true);
  assert.equal(ptxPlan({ ...problem, n: 768 })?.guess, undefined, 'a line is no guess');
  assert.equal(because, `model: ${first.us.toFixed(0)} µs by ${plan.tiling}, ${second.us.toFixed(0)} by ${second.plan.tiling}`);
  assert.equal(ptxPlan({ ...problem, n: 768 })?.because, 'line NT 65536 768 768 of the H100 table');
  assert.equal(permutedPlan({ ...problem, n: 768 })?.because, 'line NT 65536 768 768 of the H100 table');
  assert.equal(ptxPlan({ ...problem, m: 2048, n: 1536, k: 512 })?.because, 'line NT 2048 1536 512, kept until it is timed');
});
