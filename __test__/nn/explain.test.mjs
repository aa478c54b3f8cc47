// What compiled functions report about themselves: steps by the line of the user's program, the HTML page, and the time of a call by line.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { F, checkpoint, compile, manualSeed, memory, nn, optim, randn, scope, tensor } from '../../nn/index.mjs';
import { runtime } from '../../nn/core/runtime.mjs';
import { childJson } from '../lib/child.mjs';
import { initDevice } from './setup.mjs';

before(initDevice);

const lines = readFileSync(fileURLToPath(import.meta.url), 'utf8').split('\n');
/** The line of this file that has a comment, as origins name it. @param {string} mark */
const at = (mark) => `explain.test.mjs:${1 + lines.findIndex((line) => line.endsWith(`// ${mark}`))}`;

class Net extends nn.Module {
  constructor() {
    super();
    this.norm = new nn.RMSNorm(64);
    this.inner = new nn.Sequential(new nn.Sequential(new nn.Linear(64, 64), new nn.Tanh()));
    this.head = new nn.Linear(64, 10);
  }
  /** @param {any} x */
  forward(x) {
    const h = this.inner.forward(this.norm.forward(x)); // inner
    x = x.add(h); // sum
    x = checkpoint((/** @type {any} */ y) => y.square().exp().mul(0.1), x); // checkpoint
    return this.head.forward(x); // head
  }
}
function training() {
  manualSeed(3);
  const net = new Net();
  const opt = new optim.AdamW(net.parameters(), { lr: 0.05, clip: 1 });
  const step = (/** @type {any} */ x, /** @type {any} */ targets) => {
    const loss = F.crossEntropy(net.forward(x), targets); // loss
    loss.backward(); // backward
    opt.step(); // step
    return loss;
  };
  return { net, opt, step };
}
/** @returns {[any, any]} */
const batch = () => [randn([8, 64], { deviation: 0.1 }), tensor(Int32Array.from({ length: 8 }, (_, i) => i))];

test('profile: every dispatch under a line of the program; the call happens as any other', async () => {
  const [x, targets] = batch();
  /** @type {number[][]} */
  const results = [];
  for (const profiled of [false, true]) {
    const { net, opt, step } = training();
    const f = compile(step);
    scope(() => void f(x, targets));
    if (profiled) {
      const before = memory();
      const times = f.profile(x, targets);
      runtime().flush();
      assert.deepEqual(memory(), before);
      assert.equal(
        times.reduce((sum, { dispatches }) => sum + dispatches, 0),
        f.explain()[0].dispatches,
      );
      times.forEach(({ microseconds }, i) => assert.ok(microseconds >= 0 && microseconds <= (times[i - 1] ?? times[0]).microseconds));
      const origins = new Set(times.map(({ origin }) => origin));
      const marks = ['inner', 'sum', 'checkpoint', 'head', 'loss', 'step'];
      const expected = [...marks.map(at), ...['inner', 'checkpoint', 'head'].map((mark) => `${at(mark)}, backward`)];
      // Sums go into products and into the gradient of a norm; the second run of a checkpoint is under its own line.
      for (const origin of origins) assert.ok([...expected, `${at('sum')}, backward`, at('backward')].includes(origin), origin);
      for (const origin of expected.filter((mark) => mark !== at('sum'))) assert.ok(origins.has(origin), `${origin}: ${[...origins]}`);
      // The products of the two layers, forward and twice backward.
      const flops = times.reduce((sum, line) => sum + line.flops, 0);
      assert.equal(flops, 3 * 2 * 8 * (64 * 64 + 64 * 10));
      assert.deepEqual(
        times.filter(({ operations }) => operations === 'adamw').map(({ origin }) => origin),
        [at('step')],
      );
    } else scope(() => void f(x, targets));
    const loss = scope(() => f(x, targets));
    results.push([await loss.item(), ...(await net.head.weight.toArray())]);
    f.dispose();
    opt.dispose();
  }
  assert.deepEqual(results[1], results[0]);
});

test('profile of a function without arguments or dispatches, and within a compiled one', () => {
  const nothing = compile(() => 1);
  assert.deepEqual(nothing.profile(), []);
  const inner = compile((/** @type {any} */ x) => x.mul(2));
  assert.throws(
    () => compile((/** @type {any} */ x) => inner.profile(x))(randn([2])),
    /profile: it cannot run while a function is being compiled/,
  );
});

test('the page has every step, what was put together, and no text as markup', () => {
  const { opt, step } = training();
  const f = compile((/** @type {any} */ x, /** @type {any} */ targets, /** @type {string} */ _name) => step(x, targets));
  assert.match(f.html(), /<h1>A compiled function<\/h1>/);
  scope(() => void f(...batch(), '<script>&"'));
  const [{ dispatches, found }] = f.explain();
  assert.ok(!('steps' in f.explain()[0]));
  const html = f.html();
  assert.ok(!html.includes('<script'), 'escaped');
  assert.ok(html.includes(`${dispatches} dispatches`));
  for (const name of Object.keys(found)) assert.ok(html.includes(name), name);
  for (const mark of ['inner', 'head', 'step']) assert.ok(html.includes(at(mark)), mark);
  const rows = [...html.matchAll(/<tr( class="fused")?><td><span[^>]*>\d+<\/span><\/td><td>.*?<\/td><td>(.*?)<\/td>/g)];
  const steps = f.explain()[0].dispatches;
  assert.ok(rows.length > 10 && rows.length <= steps, `${rows.length} rows of ${steps} dispatches`);
  for (const [, fused, operations] of rows) assert.equal(fused !== undefined, operations.includes(' + '), operations);
  assert.ok(rows.some(([, fused]) => fused));
  f.dispose();
  opt.dispose();
});

test('explain, profile and the page say by which kernel each product is computed, and why', () => {
  const { opt, step } = training();
  const f = compile(step);
  scope(() => void f(...batch()));
  const [{ products }] = f.explain();
  // The products of the two layers, forward and twice backward.
  const sizes = ['NT 8 64 64', 'NN 8 64 64', 'TN 64 64 8', 'NT 8 10 64', 'NN 8 64 10', 'TN 10 64 8'];
  assert.deepEqual(products.map(({ product }) => product).sort(), [...sizes].sort());
  for (const { kernel, because, fallback, count } of products) {
    assert.match(kernel, /^f32 \d+x\d+x\d+ /);
    assert.ok(because.length > 0);
    assert.deepEqual([fallback, count], [runtime().kernels.matmulPlan({ a: 0, b: 0, c: 0, m: 8, n: 64, k: 64 }).fallback ?? false, 1]);
  }
  assert.equal(products.find(({ product }) => product === 'NT 8 10 64')?.origin, at('head'));
  const html = f.html();
  for (const size of sizes) assert.ok(html.includes(`<td>${size}</td>`), size);
  const line = f.profile(...batch()).find(({ origin, flops }) => origin === at('head') && flops > 0);
  assert.deepEqual(
    line?.products.map(({ product }) => product),
    ['NT 8 10 64'],
  );
  f.dispose();
  opt.dispose();
});

/** The products of three layers under autocast on a GPU without a table. @param {object} more of what `initDevice` says */
const productsOnStub = (more) =>
  childJson(`
    const { stubDevice } = await import('${new URL('../lib/stub.mjs', import.meta.url)}');
    const { autocast, compile, init: open, nn, randn } = await import('${new URL('../../nn/index.mjs', import.meta.url)}');
    const stub = stubDevice();
    const { initDevice } = stub;
    stub.initDevice = () => ({ ...initDevice(), deviceName: 'a GPU without a table', ...${JSON.stringify(more)} });
    open({ vk: stub });
    const layer = new nn.Linear(512, 512, { bias: false });
    const step = compile((x) => autocast('bf16', () => {
      for (let i = 0; i < 3; i++) x = layer.forward(x);
      return x;
    }));
    step(randn([256, 512]));
    process.stdout.write(JSON.stringify(step.explain()[0].products));
  `);

test('explain names products that run on a fallback, those that are alike once', async () => {
  const products = await productsOnStub({});
  const [{ origin, ...product }, ...more] = /** @type {any[]} */ (products);
  assert.deepEqual(more, []);
  assert.deepEqual(
    { ...product, kernel: product.kernel.split(' ')[0] },
    {
      ...{ product: 'NT 256 512 512', kernel: 'coop', fallback: true, guess: true, count: 3 },
      because: 'no line is near: the largest tile that fills the device',
    },
  );
  assert.equal(typeof origin, 'string');
  // Without matrix units, too, where autocast leaves products in f32.
  const plain = /** @type {any[]} */ (await productsOnStub({ coopMatSupported: false, cooperativeMatrixProperties: [] }));
  assert.ok(plain.length > 0);
  for (const { kernel, fallback } of plain) assert.deepEqual([kernel.split(' ')[0], fallback], ['f32', true]);
});

test('a device is told what dispatches do and what its buffers are', async () => {
  const { told, named, dispatches } = await childJson(`
    const { stubDevice } = await import('${new URL('../lib/stub.mjs', import.meta.url)}');
    const { F, autocast, compile, init: open, nn, optim, randn } = await import('${new URL('../../nn/index.mjs', import.meta.url)}');
    const stub = stubDevice();
    const names = new Map();
    const told = [];
    stub.setName = (buffer, name) => names.set(buffer, name);
    stub.profileWork = (pairs) => told.push([...pairs]);
    open({ vk: stub });
    const model = new nn.Linear(64, 32, { bias: false });
    const qkv = new nn.Parameter(randn([2, 8, 3 * 64]));
    const opt = new optim.AdamW([...model.parameters(), qkv]);
    // In the compiled step gradients are intermediate results.
    model.forward(randn([1, 64])).sum().backward();
    opt.zeroGrad();
    const step = compile((x) => {
      const y = F.attention(qkv, { heads: 2, causal: true }).add(x.reshape(2, 8, 64));
      const loss = autocast('bf16', () => model.forward(y)).sum();
      loss.backward();
      opt.step();
      return loss;
    });
    step(new Float32Array(2 * 8 * 64));
    const named = [...new Set(names.values())].sort();
    process.stdout.write(JSON.stringify({ told, named, dispatches: step.explain()[0].dispatches }));
  `);
  assert.deepEqual(named, [
    'arguments',
    'first moments',
    'gradients',
    'intermediate results',
    'optimizer state',
    'parameters',
    'parameters in bf16',
    'results',
    'second moments',
  ]);
  const [pairs, ...more] = /** @type {number[][]} */ (told);
  assert.deepEqual(more, [], 'once, where the graph is recorded');
  assert.equal(pairs.length, 2 * dispatches);
  const bytes = pairs.filter((_, i) => i % 2 === 0);
  const flops = pairs.filter((_, i) => i % 2 === 1);
  // A causal head of 8 tokens: 2 products forward, 5 backward, of half of 2 · 8 · 8 · 32 operations; and three products of the layer.
  const attention = 2 * 2 * 8 * 8 * 32;
  assert.equal(
    flops.reduce((a, b) => a + b, 0),
    7 * attention + 3 * 2 * 16 * 64 * 32,
  );
  // The optimizer reads four numbers of a parameter and writes three, and the copy.
  assert.ok(bytes.includes((64 * 32 + 2 * 8 * 3 * 64) * (7 * 4 + 2)), `${bytes}`);
});
