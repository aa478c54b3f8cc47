// Compiled functions time products whose plans are guesses. Here times are made up: a clock of the device decides nothing.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { afterEach, before, test } from 'node:test';
import { planName } from '../../kernels/matmul/words.mjs';
import { MachinePlans } from '../../kernels/tuning/stored.mjs';
import { setTimer } from '../../nn/compile/tune.mjs';
import { processes, runtime } from '../../nn/core/runtime.mjs';
import { F, compile, nn, manualSeed, optim, randn, reset, tunedPlans, tuningSummary, useTunedPlans } from '../../nn/index.mjs';
import { childJson } from '../lib/child.mjs';
import { initDevice } from './setup.mjs';
import { temporaryFolder } from '../lib/folder.mjs';

before(initDevice);
const folder = temporaryFolder();
/** Nothing that these tests make up may be read by other programs. */
let made = 0;
function forget() {
  const { context } = runtime().kernels;
  context.machine.clear();
  context.tablePath = join(folder, `${++made}.json`);
}
before(forget);
afterEach(() => {
  setTimer(undefined);
  processes.together = false;
  forget();
});

/** A timer by which plans of these names take 1 µs, and others 2. @param {(name: string) => boolean} fast */
function timerOf(fast) {
  const log = { products: /** @type {string[]} */ ([]), plans: /** @type {string[]} */ ([]), closed: 0 };
  setTimer({
    timer: {
      open: ({ m, n, k }) => {
        log.products.push(`${m} ${n} ${k}`);
        return {
          sampler: (plan) => {
            log.plans.push(planName(/** @type {any} */ (plan)));
            return () => (fast(planName(/** @type {any} */ (plan))) ? 1 : 2);
          },
          close: () => log.closed++,
        };
      },
      close: () => {},
    },
    clock: () => 0,
  });
  return log;
}

const multiply = (/** @type {any} */ a, /** @type {any} */ b) => a.matmul(b);
const operands = () => /** @type {[any, any]} */ ([randn([256, 192]), randn([192, 256])]);

test('products are timed before the graph is recorded, which runs the fastest plan; the result is the same', async () => {
  const [a, b] = operands();
  const expected = await a.matmul(b).toArray();
  const plain = compile(multiply, { tune: false });
  plain(a, b);
  const [before] = plain.explain()[0].products;
  assert.equal(before.guess, true);
  const log = timerOf((name) => name !== before.kernel);
  const f = compile(multiply);
  const y = f(a, b);
  assert.deepEqual(log.products, ['256 256 192']);
  assert.equal(log.closed, 1);
  const [{ kernel, because, guess, fallback }] = f.explain()[0].products;
  assert.notEqual(kernel, before.kernel);
  assert.ok(log.plans.includes(kernel));
  assert.match(because, /^timed on this machine when it was compiled: 1\.0 µs$/);
  assert.deepEqual([guess, fallback], [false, false]);
  const got = await y.toArray();
  for (let i = 0; i < got.length; i += 97) assert.ok(Math.abs(got[i] - expected[i]) < 1e-3, `element ${i}`);
  // Eager calls take it, too, and another function times nothing again.
  assert.equal(planName(/** @type {any} */ (runtime().kernels.matmulPlan({ m: 256, n: 256, k: 192, a: 0, b: 0, c: 0 }))), kernel);
  const again = compile((/** @type {any} */ x, /** @type {any} */ w) => x.matmul(w).mul(2));
  again(a, b);
  assert.equal(log.products.length, 1);
  assert.equal(again.explain()[0].products[0].kernel, kernel);
  const { products, faster, reordered, open } = tuningSummary();
  assert.deepEqual({ products, faster, reordered, open }, { products: 1, faster: 1, reordered: 0, open: 0 });
});

test('a training step: every product once, the step as without', async () => {
  const run = async () => {
    manualSeed(4);
    const net = new nn.Sequential(new nn.Linear(192, 256), new nn.GELU(), new nn.Linear(256, 192));
    const opt = new optim.AdamW(net.parameters(), { lr: 0.01 });
    const x = randn([256, 192]);
    const step = compile((/** @type {any} */ x) => {
      const loss = F.mseLoss(net.forward(x), x);
      loss.backward();
      opt.step();
      opt.zeroGrad();
      return loss;
    });
    const losses = [];
    for (let i = 0; i < 3; i++) losses.push(await step(x).item());
    return { losses, products: step.explain()[0].products };
  };
  const without = await run();
  assert.ok(without.products.every(({ guess }) => guess));
  const own = new Set(without.products.map(({ kernel }) => kernel));
  const log = timerOf((name) => !own.has(name));
  const { losses, products } = await run();
  // Forward, and gradients of the second layer's input and of both weights.
  assert.deepEqual(log.products.length, new Set(without.products.map(({ product }) => product)).size);
  assert.ok(
    products.every(({ guess, because }) => !guess && because.startsWith('timed on this machine')),
    JSON.stringify(products),
  );
  losses.forEach((loss, i) => assert.ok(Math.abs(loss - without.losses[i]) < 1e-4 * Math.abs(loss), `step ${i}: ${loss}`));
});

test('{ tune: false }, HELIOS_TUNE=0 and HELIOS_TUNING=0 leave it out, and so do several processes unless asked', () => {
  const log = timerOf(() => true);
  const [a, b] = operands();
  const compiled = (/** @type {any} */ options) => {
    const f = compile(multiply, options);
    f(a, b);
    return f;
  };
  compiled({ tune: false });
  for (const name of ['HELIOS_TUNE', 'HELIOS_TUNING']) {
    const before = process.env[name];
    process.env[name] = 'off';
    compiled({});
    if (before === undefined) delete process.env[name];
    else process.env[name] = before;
  }
  processes.together = true;
  compiled({});
  assert.deepEqual(log.products, []);
  compiled({ tune: true });
  assert.deepEqual(log.products, ['256 256 192']);
  assert.throws(() => compile(multiply, { tune: /** @type {any} */ (1) }), /compile: tune must be true or false, got 1/);
  const before = process.env.HELIOS_TUNE;
  try {
    process.env.HELIOS_TUNE = 'soon';
    forget();
    setTimer({ timer: /** @type {any} */ ({}) });
    assert.throws(() => compiled({ tune: true }), /HELIOS_TUNE must be seconds, or 0 to time nothing, got soon/);
  } finally {
    if (before === undefined) delete process.env.HELIOS_TUNE;
    else process.env.HELIOS_TUNE = before;
  }
});

test('HELIOS_TUNE=SECONDS is the bound of all functions of a process together', () => {
  const products = [192, 256, 320].map((k) => /** @type {[any, any]} */ ([randn([256, k]), randn([k, 256])]));
  let now = 0;
  let plans = 0;
  setTimer({
    timer: {
      open: () => ({
        // Preparing a plan takes 100 ms.
        sampler: () => {
          now += 100;
          plans++;
          return () => 1;
        },
        close: () => {},
      }),
      close: () => {},
    },
    clock: () => now,
  });
  const before = process.env.HELIOS_TUNE;
  try {
    process.env.HELIOS_TUNE = '0.35';
    for (const [a, b] of products) compile(multiply)(a, b);
  } finally {
    if (before === undefined) delete process.env.HELIOS_TUNE;
    else process.env.HELIOS_TUNE = before;
  }
  assert.ok(plans > 0 && now <= 350, `${plans} plans, ${now} ms`);
  assert.ok(tuningSummary().open >= 2, 'the others are left to the next process');
});

test('on a CPU device nothing is timed unless times are made up', async () => {
  const [a, b] = operands();
  const f = compile(multiply, { tune: true });
  f(a, b);
  const cpu = runtime().kernels.context.isCpu;
  if (cpu) assert.equal(tuningSummary().products, 0);
  assert.ok(f.explain()[0].products[0].because.length > 0);
  // In a process without such a test, too.
  const { products } = await childJson(`
    const { compile, randn, tuningSummary } = await import('${new URL('../../nn/index.mjs', import.meta.url)}');
    compile((a, b) => a.matmul(b))(randn([256, 192]), randn([192, 256]));
    process.stdout.write(JSON.stringify(tuningSummary()));
  `);
  if (cpu) assert.equal(products, 0);
});

test('prepare records a graph without a call, and its products are timed', async () => {
  const log = timerOf(() => true);
  const x = randn([256, 192]);
  const w = randn([192, 256]);
  const counted = w.clone();
  let traces = 0;
  const f = compile((/** @type {any} */ x) => {
    traces++;
    counted.mul_(2);
    return x.matmul(counted);
  });
  f.prepare(x);
  assert.deepEqual([traces, log.products.length, f.explain().length], [1, 1, 1]);
  assert.deepEqual(await counted.toArray(), await w.toArray(), 'nothing has run');
  const y = await f(x).toArray();
  assert.equal(traces, 1);
  const want = await x.matmul(w.mul(2)).toArray();
  for (let i = 0; i < y.length; i += 101) assert.ok(Math.abs(y[i] - want[i]) < 1e-3);
});

test('what one rank has found the others take: they compile to the same kernels', () => {
  const [a, b] = operands();
  const plain = compile(multiply, { tune: false });
  plain(a, b);
  const own = plain.explain()[0].products[0].kernel;
  timerOf((name) => name !== own);
  const f = compile(multiply);
  f(a, b);
  const { kernel } = f.explain()[0].products[0];
  assert.notEqual(kernel, own);
  const sent = JSON.parse(JSON.stringify(tunedPlans()));
  assert.ok(runtime().kernels.context.machine instanceof MachinePlans);
  const another = (/** @type {(x: any) => any} */ last) => {
    const g = compile((/** @type {any} */ x, /** @type {any} */ w) => last(x.matmul(w)), { tune: false });
    g(a, b);
    return g.explain()[0].products[0].kernel;
  };
  // A rank may have computed such products before, by plans of its own.
  useTunedPlans({ ...sent, faster: {} });
  assert.equal(
    another((x) => x.abs()),
    own,
  );
  a.matmul(b);
  useTunedPlans(sent);
  assert.equal(
    another((x) => x.neg()),
    kernel,
  );
  assert.deepEqual(tunedPlans(), sent);
  // Those of another driver are left out, and then this machine's own, too.
  useTunedPlans({ ...sent, device: { ...sent.device, driverVersion: -1 } });
  assert.deepEqual(tunedPlans(), { ...sent, faster: {}, kept: {} });
  for (const wrong of [null, {}, { ...sent, faster: { f32: ['x'] } }])
    assert.throws(() => useTunedPlans(/** @type {any} */ (wrong)), /useTunedPlans: plans must be what tunedPlans\(\) returns/);
});

test('after reset() the plans of before are used, though no file has them', () => {
  const [a, b] = operands();
  const plain = compile(multiply, { tune: false });
  plain(a, b);
  const own = plain.explain()[0].products[0].kernel;
  const log = timerOf((name) => name !== own);
  runtime().kernels.context.tablePath = undefined;
  const f = compile(multiply);
  f(a, b);
  const { kernel } = f.explain()[0].products[0];
  assert.notEqual(kernel, own);
  assert.equal(tuningSummary().path, undefined);
  // What is found after a reset is added.
  for (const time of ['first', 'second']) {
    reset();
    initDevice();
    runtime().kernels.context.tablePath = undefined;
    const g = compile(multiply);
    g(...operands());
    assert.equal(g.explain()[0].products[0].kernel, kernel);
    g(randn([256, 160]), randn([160, 256]));
    assert.deepEqual([log.products.length, tuningSummary().products], [2, 2], `${time} reset`);
  }
});
