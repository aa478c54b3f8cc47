// Timing that nobody asks for, on devices that exist only as descriptions: which products are timed, what is chosen by which times, and what is kept.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { KernelContext } from '../../kernels/base.mjs';
import { matmulKernels } from '../../kernels/matmul.mjs';
import { planName } from '../../kernels/matmul/words.mjs';
import { guesses } from '../../kernels/hopper/model.mjs';
import { AutoTuning } from '../../kernels/tuning/auto.mjs';
import { ANOTHER_ORDER } from '../../kernels/tuning/order.mjs';
import { MachinePlans, identityOf, readStored } from '../../kernels/tuning/stored.mjs';
import { formName, shapeOf } from '../../kernels/tuning/table.mjs';
import { temporaryFolder } from '../lib/folder.mjs';
import { infoOf } from '../lib/plans.mjs';

const folder = temporaryFolder();
let made = 0;

const H100 = infoOf('NVIDIA H100 80GB HBM3', {
  hasPtx: true,
  multiprocessors: 132,
  vendorId: 1,
  deviceId: 2,
  driverVersion: 3,
  driverInfo: 'x',
});

/** Kernels on a device that is only a description, with a table of their own. @param {any} info */
function kernelsOn(info, path = join(folder, `${++made}.json`)) {
  const native = /** @type {any} */ ({ initDevice: () => info, shaders: {} });
  const context = new KernelContext(native, { check: false, tuning: path });
  return { path, context, ...matmulKernels(context, { verify: () => undefined, verifyGroup: () => undefined }) };
}

/** @param {string} text such as `NT 512 1024 1024` @param {object} [types] @returns {any} */
function problemOf(text, types = {}) {
  const { form, ...sizes } = shapeOf(text);
  const [transA, transB] = [form[0] === 'T', form[1] === 'T'];
  const of = { transA, transB, precision: 'bf16', aType: 'bf16', bType: 'bf16', cType: transA ? 'f32' : 'bf16', ...types };
  return { ...sizes, half: 'bf16', batch: 1, beta: 0, bPermuted: false, dual: false, args: { ...sizes, ...of }, ...of };
}

/** A timer that runs nothing. @param {(plan: any, problem: any) => number} timeOf microseconds, or NaN where the plan cannot run */
function timerOf(timeOf) {
  const log = { opened: /** @type {string[]} */ ([]), closed: 0, plans: /** @type {string[]} */ ([]) };
  /** @type {any} */
  const timer = {
    open: (/** @type {any} */ problem) => {
      log.opened.push(`${formName(problem)} ${problem.m} ${problem.n} ${problem.k}`);
      return {
        sampler: (/** @type {any} */ plan) => {
          log.plans.push(planName(plan));
          const us = timeOf(plan, problem);
          if (!(us > 0)) throw new Error('it cannot run');
          return () => us;
        },
        close: () => log.closed++,
      };
    },
    close: () => {},
  };
  return { timer, log };
}

const wanted = (/** @type {any} */ problem, more = {}) => ({ problem, count: 1, permutable: false, ...more });
const planOf = (/** @type {any} */ kernels, /** @type {any} */ { m, n, k, args }) => kernels.matmulPlan({ m, n, k, ...args });

test('a guess is timed, and the faster plan is used at once, kept, and found by the next process', () => {
  const kernels = kernelsOn(H100);
  const problem = problemOf('NT 16384 2304 448');
  const before = planOf(kernels, problem);
  assert.equal(before.guess, true);
  const { timer, log } = timerOf((plan) => (plan.tiling === 'm256n128-ld' ? 50 : 60));
  assert.notEqual(planName(before), 'ptx m256n128-ld');
  const tuning = new AutoTuning(kernels, timer);
  assert.equal(tuning.tune([wanted(problem), wanted(problem)]), true);
  assert.deepEqual(log.opened, ['NT 16384 2304 448'], 'once');
  assert.equal(log.closed, 1);
  assert.equal(log.plans[0], planName(before), 'the own plan first');
  const now = planOf(kernels, problem);
  assert.equal(planName(now), 'ptx m256n128-ld');
  assert.match(now.because, /^timed on this machine when it was compiled: 50\.0 µs$/);
  assert.equal(now.guess, undefined);
  const { products, faster, reordered, open, path } = tuning.summary;
  assert.deepEqual({ products, faster, reordered, open, path }, { products: 1, faster: 1, reordered: 0, open: 0, path: kernels.path });
  assert.equal(tuning.tune([wanted(problem)]), false, 'it is no guess any more');
  // The file is a table of `helios-vk tune`.
  assert.deepEqual(readStored(kernels.path, H100).faster, { half: ['NT 16384 2304 448 | m256n128-ld | 1 | 50.0'] });
  const next = kernelsOn(H100, kernels.path);
  assert.equal(planOf(next, problem).because, 'measured on this machine');
  assert.equal(new AutoTuning(next, timerOf(() => 1).timer).tune([wanted(problem)]), false);
});

test('where nothing is faster beyond the noise the plan stays, and is no guess any more, in the next process neither', () => {
  const kernels = kernelsOn(H100);
  const problem = problemOf('NT 16384 2304 448');
  const before = planOf(kernels, problem);
  new AutoTuning(kernels, timerOf((plan) => (planName(plan) === planName(before) ? 50 : 49)).timer).tune([wanted(problem)]);
  for (const one of [kernels, kernelsOn(H100, kernels.path)]) {
    const { because, guess, ...plan } = planOf(one, problem);
    assert.equal(planName(plan), planName(before));
    assert.deepEqual([because, guess], [`${before.because}; nothing faster was measured on this machine`, undefined]);
  }
});

test('a plan with another order of sums must be 5 % faster than those with the same, and says so', () => {
  const problem = problemOf('TN 1024 1024 4096');
  const timed = (/** @type {number} */ other) => {
    const kernels = kernelsOn(H100);
    const own = planOf(kernels, problem);
    assert.equal(own.guess, true);
    const order = (/** @type {any} */ plan) => kernels.matmulOrder({ m: 1024, n: 1024, k: 4096, ...problem.args, plan });
    const { kernel, tiling, splits } = own;
    assert.equal(order({ kernel, tiling, splits }), kernels.matmulOrder({ m: 1024, n: 1024, k: 4096, ...problem.args }));
    const { timer, log } = timerOf((plan) => (order(plan) === order({ kernel, tiling, splits }) ? 50 : other));
    const tuning = new AutoTuning(kernels, timer);
    tuning.tune([wanted(problem)]);
    assert.ok(log.plans.length > 1);
    return { tuning, plan: planOf(kernels, problem), own, next: planOf(kernelsOn(H100, kernels.path), problem) };
  };
  const slight = timed(48);
  assert.equal(planName(slight.plan), planName(slight.own));
  assert.equal(slight.tuning.summary.reordered, 0);
  const great = timed(40);
  assert.notEqual(planName(great.plan), planName(great.own));
  assert.equal(great.tuning.summary.reordered, 1);
  assert.ok(great.plan.because.endsWith(`40.0 µs; ${ANOTHER_ORDER}`), great.plan.because);
  assert.equal(great.next.because, `measured on this machine; ${ANOTHER_ORDER}`, 'and so it does in the next process');
});

test('weights may be permuted: the faster of both is used, and the answer is kept', () => {
  const problem = problemOf('NT 16384 2304 448');
  const question = { m: 16384, n: 2304, k: 448, ...problem.args };
  for (const [permuted, takes] of /** @type {const} */ ([
    [40, true],
    [60, false],
  ])) {
    const kernels = kernelsOn(H100);
    new AutoTuning(kernels, timerOf((plan) => (plan.permuted ? permuted : 50)).timer).tune([wanted(problem, { permutable: true })]);
    for (const one of [kernels, kernelsOn(H100, kernels.path)]) assert.equal(one.takesPermuted(question), takes);
  }
});

test('the bound: products with the most work first, the others are left to a later process', () => {
  const kernels = kernelsOn(H100);
  const list = ['NT 8192 512 512', 'NT 16384 2304 448', 'NN 16384 448 2304', 'TN 2304 448 16384'].map((text) => problemOf(text));
  let now = 0;
  // Preparing a plan takes 100 ms.
  const { timer, log } = timerOf(() => {
    now += 100;
    return 50;
  });
  const tuning = new AutoTuning(kernels, timer, { seconds: 0.55, clock: () => now });
  tuning.tune(list.map((problem) => wanted(problem)));
  assert.deepEqual(log.opened.slice(0, 1), ['NT 16384 2304 448']);
  assert.ok(now <= 550, `${now} ms`);
  const { products, open } = tuning.summary;
  assert.ok(products + open >= 4, 'each was timed or left');
  assert.ok(products >= 1 && open >= 2, `${products} ${open}`);
  assert.equal(tuning.tune([wanted(list[0])]), false, 'the bound is for all calls together');
  assert.ok(now <= 550);
  assert.equal(planOf(kernels, list[0]).guess, true);
});

test('where the bound cuts the timing of a product short, a faster plan is used, and the next process times it anew', () => {
  const problem = problemOf('NN 16384 448 2304');
  for (const fast of [1, 2]) {
    const kernels = kernelsOn(H100);
    let now = 0;
    let plans = 0;
    const { timer, log } = timerOf(() => {
      now += 100;
      return ++plans === fast + 1 ? 40 : 50;
    });
    const tuning = new AutoTuning(kernels, timer, { seconds: 0.25, clock: () => now });
    assert.equal(tuning.tune([wanted(problem)]), fast === 1);
    assert.equal(log.plans.length, 2, 'the own plan and one more');
    assert.equal(tuning.summary.open, 1);
    assert.equal(planOf(kernels, problem).guess, fast === 1 ? undefined : true);
    if (fast === 1) assert.equal(planName(planOf(kernels, problem)), log.plans[1]);
    assert.equal(planOf(kernelsOn(H100, kernels.path), problem).guess, true, 'nothing is kept');
  }
});

test('the bound holds where the runs themselves are long: few rounds decide nothing', () => {
  const problem = problemOf('NN 16384 448 2304');
  for (const [ms, decides] of /** @type {const} */ ([
    [10, true],
    [20, false],
  ])) {
    const kernels = kernelsOn(H100);
    const own = planName(planOf(kernels, problem));
    let now = 0;
    const timer = /** @type {any} */ ({
      open: () => ({
        sampler: (/** @type {any} */ plan) => () => {
          now += ms;
          return planName(plan) === own ? 50 : 40;
        },
        close: () => {},
      }),
      close: () => {},
    });
    const tuning = new AutoTuning(kernels, timer, { seconds: 0.15, clock: () => now });
    assert.equal(tuning.tune([wanted(problem)]), decides);
    assert.ok(now <= 150, `${now} ms`);
    assert.equal(tuning.summary.open, 1);
    assert.equal(planName(planOf(kernels, problem)) === own, !decides);
    assert.equal(planOf(kernelsOn(H100, kernels.path), problem).guess, true, 'nothing is kept');
  }
});

test('where the bound leaves no time for permuted weights, the next process times the product anew', () => {
  const problem = problemOf('NT 16384 2304 448');
  const kernels = kernelsOn(H100);
  let now = 0;
  const { timer, log } = timerOf((plan) => {
    // Plans with B permuted take so long to prepare that one fits.
    now += plan.permuted ? 300 : 1;
    return plan.permuted ? 60 : 50;
  });
  const tuning = new AutoTuning(kernels, timer, { seconds: 0.5, clock: () => now });
  tuning.tune([wanted(problem, { permutable: true })]);
  assert.equal(log.plans.filter((name) => name.includes('permuted')).length < guesses(problem, { permuted: true, ways: 2 }).length, true);
  assert.equal(tuning.summary.open, 1);
  assert.equal(planOf(kernelsOn(H100, kernels.path), problem).guess, true, 'nothing is kept');
});

test('products that are measured, small, in batches, or have a plan of the caller are not timed', () => {
  const kernels = kernelsOn(H100);
  const { timer, log } = timerOf(() => 50);
  const plan = { kernel: 'ptx', tiling: 'm256n128-ld' };
  const given = problemOf('NT 16384 2304 448');
  given.args = { ...given.args, plan };
  const list = [problemOf('NT 65536 768 768'), problemOf('NT 64 64 64'), { ...problemOf('NT 16384 2304 448'), batch: 2 }, given];
  assert.equal(new AutoTuning(kernels, timer).tune(list.map((problem) => wanted(problem))), false);
  assert.deepEqual(log.opened, []);
});

test('a plan that cannot run, or a device without memory, changes nothing; a lost device is an error', () => {
  const problem = problemOf('NT 16384 2304 448');
  const kernels = kernelsOn(H100);
  const own = planOf(kernels, problem);
  const tuning = new AutoTuning(kernels, timerOf((plan) => (planName(plan) === planName(own) ? 50 : NaN)).timer);
  tuning.tune([wanted(problem)]);
  assert.equal(planName(planOf(kernels, problem)), planName(own));
  const failing = (/** @type {Error} */ error) => /** @type {any} */ ({ open: () => assert.fail(error), close: () => {} });
  const full = kernelsOn(H100);
  const without = new AutoTuning(full, failing(new Error('out of memory')));
  assert.equal(without.tune([wanted(problem)]), false);
  assert.deepEqual(planOf(full, problem), own);
  const lost = new AutoTuning(full, failing(Object.assign(new Error('lost'), { code: 'ERR_HELIOS_DEVICE_LOST' })));
  assert.throws(() => lost.tune([wanted(problem)]), { code: 'ERR_HELIOS_DEVICE_LOST' });
});

test('devices without PTX: plans through SPIR-V are timed, a fallback is none any more', () => {
  const kernels = kernelsOn({ ...infoOf('NVIDIA A100'), vendorId: 1, deviceId: 2, driverVersion: 3, driverInfo: 'x' });
  const problem = problemOf('NT 4096 3072 1024');
  const own = planOf(kernels, problem);
  assert.equal(own.fallback, true);
  const { timer, log } = timerOf((plan) => (planName(plan) === planName(own) ? 50 : plan.bm === 128 && plan.bn === 128 ? 30 : 70));
  new AutoTuning(kernels, timer).tune([wanted(problem)]);
  assert.ok(log.plans.length >= 4 && log.plans.every((name) => name.startsWith('coop')), log.plans.join());
  const now = planOf(kernels, problem);
  assert.deepEqual([now.bm, now.bn, now.fallback, now.guess], [128, 128, undefined, undefined]);
  assert.match(now.because, /^timed on this machine when it was compiled: 30\.0 µs/);
});

/** Microseconds on H100s by product and plan. @type {Record<string, Record<string, number>>} */
const TIMED = JSON.parse(readFileSync(new URL('./timed-h100.json', import.meta.url), 'utf8'));
/** Products of which every plan took two to three times as long as its like. */
const DISTURBED = ['TN 1152 384 16384', 'NT 9216 3840 1280'];

test('by times that were measured on an H100, what is chosen takes at most 3 % more than the fastest with whole tiles, 6 % than any', () => {
  let seen = 0;
  for (const [shape, times] of Object.entries(TIMED)) {
    if (DISTURBED.includes(shape)) continue;
    const problem = problemOf(shape);
    const kernels = kernelsOn(H100);
    // As if no table had the line.
    kernels.context.tuning.ptxPlan = (asked) => ({ ...guesses(asked)[0].plan, because: 'model', guess: true });
    const usOf = (/** @type {any} */ plan) =>
      times[
        planName(plan)
          .replace(/^ptx /, '')
          .replace(/ of 132$/, '')
          .replace(/^coop .*/, 'coop')
      ];
    if (!(usOf(planOf(kernels, problem)) > 0)) continue;
    new AutoTuning(kernels, timerOf(usOf).timer).tune([wanted(problem)]);
    const natural = Object.entries(times).filter(([name]) => !name.includes('/permuted') && name !== 'coop');
    // The fastest of all, in parts or not: one in another order must gain 5 %.
    const fastest = Math.min(...natural.map(([, us]) => us));
    const took = usOf(planOf(kernels, problem));
    assert.ok(took <= 1.06 * fastest, `${shape}: ${took} µs, the fastest takes ${fastest}`);
    const same = natural.filter(([name]) => !/ (k|tail)\//.test(name)).map(([, us]) => us);
    if (!/ (k|tail)\//.test(planName(planOf(kernels, problem)))) assert.ok(took <= 1.031 * Math.min(...same), `${shape}: ${took} µs`);
    seen++;
  }
  assert.ok(seen >= 10, `${seen} products`);
});

test('plans as lines: another process that takes them has the same plans', () => {
  const kernels = kernelsOn(H100);
  const problems = ['NT 16384 2304 448', 'NN 16384 448 2304'].map((text) => problemOf(text));
  const [own] = problems.map((problem) => planName(planOf(kernels, problem)));
  new AutoTuning(kernels, timerOf((plan) => (planName(plan) === own ? 60 : 50)).timer).tune(problems.map((problem) => wanted(problem)));
  const other = new MachinePlans();
  other.take(JSON.parse(JSON.stringify(kernels.context.machine.lines())));
  assert.deepEqual(other.lines(), kernels.context.machine.lines());
  for (const problem of problems) {
    const plan = kernels.context.machine.plan(problem);
    assert.equal(other.plan(problem)?.kernel, plan?.kernel);
    assert.equal(other.keeps(problem), kernels.context.machine.keeps(problem));
  }
  other.clear();
  assert.deepEqual(other.lines(), { faster: {}, kept: {} });
  assert.equal(identityOf(H100).deviceId, 2);
});
