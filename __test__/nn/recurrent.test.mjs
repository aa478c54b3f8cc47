// Recurrent layers by one dispatch for all steps and by two for each, which must agree. lavapipe does not say how many workgroups it runs at once, so
// the test does.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { autocast, compile, grad, init, manualSeed, nn, randn, reset } from '../../nn/index.mjs';
import { runtime } from '../../nn/core/runtime.mjs';
import { vk } from '../lib/addon.mjs';
import { assertClose } from '../lib/random-data.mjs';
import { values } from './setup.mjs';

/** @param {number} multiprocessors */
function open(multiprocessors) {
  reset();
  const initDevice = (/** @type {any[]} */ ...args) => ({ ...vk.initDevice(...args), multiprocessors });
  init({ vk: new Proxy(vk, { get: (addon, name) => (name === 'initDevice' ? initDevice : Reflect.get(addon, name)) }) });
}

const STEPS = 5;

/** States, last states and gradients of a layer, eager and compiled, and how many dispatches five more steps take. @param {'GRU' | 'LSTM'} kind */
async function run(kind) {
  manualSeed(11);
  const layer = new nn[kind](3, 6, { numLayers: 2, bidirectional: true });
  const x = randn([2, STEPS, 3]);
  const first = [0, 1].map(() => randn([4, 2, 6]));
  const pass = (/** @type {any} */ input) => {
    const [y, last] = layer.forward(input, /** @type {any} */ (kind === 'GRU' ? first[0] : first));
    const states = [y, ...[last].flat()];
    const loss = states.map((/** @type {any} */ v) => v.mul(v).sum()).reduce((a, b) => a.add(b));
    return [...states, ...grad(loss, [...first.slice(0, kind === 'GRU' ? 1 : 2), ...layer.parameters()])];
  };
  first.forEach((state) => (state.requiresGrad = true));
  const compiled = compile(pass);
  const results = await Promise.all([...pass(x), ...compiled(x)].map(values));
  compiled(randn([2, 2 * STEPS, 3]));
  const [few, many] = compiled.explain().map(({ dispatches = 0 }) => dispatches);
  return { results, more: many - few };
}

for (const kind of /** @type {const} */ (['GRU', 'LSTM'])) {
  test(`${kind}: all steps in one dispatch give the results and gradients of two dispatches each`, async () => {
    open(0);
    const expected = await run(kind);
    // Four layers, forward and backward.
    assert.equal(expected.more, 4 * 4 * STEPS);
    open(1);
    const actual = await run(kind);
    assert.equal(actual.more, 0);
    actual.results.forEach((values, i) => assertClose(values, expected.results[i], 1e-5, `${i}`));
    process.env.HELIOS_RECURRENT_DISPATCH = '0';
    open(1);
    assert.deepEqual(await run(kind), expected);
    delete process.env.HELIOS_RECURRENT_DISPATCH;
  });
}

test('under autocast the gradient of the states’ weight is a product of halves, in f32', async () => {
  open(0);
  for (const kind of /** @type {const} */ (['GRU', 'LSTM'])) {
    manualSeed(12);
    const layer = new nn[kind](4, 6);
    const x = randn([2, STEPS, 4]);
    const weight = layer.parameters()[1];
    const gradient = (/** @type {any} */ y, scale = 1) => {
      const [result] = grad(y.mul(y).sum().mul(scale), [weight]);
      assert.equal(result.dtype, 'f32');
      return values(result);
    };
    const single = await gradient(layer.forward(x)[0]);
    const rounded = await gradient(autocast('bf16', () => layer.forward(x))[0]);
    assertClose(rounded, single, 0.02, kind);
    // What f16 cannot hold.
    const small = await gradient(autocast('f16', () => layer.forward(x))[0], 1e-8);
    assertClose(
      small.map((value) => 1e8 * value),
      single,
      0.02,
      kind,
    );
  }
});

test('where workgroups do not run at once, a warning says so, and each step takes two dispatches', async (t) => {
  open(60);
  // A CPU's wait ends with the first look.
  if (!runtime().kernels.context.isCpu) return t.skip('a GPU runs the 60 workgroups at once');
  const warned = once(process, 'warning');
  assert.equal((await run('GRU')).more, 4 * 4 * STEPS);
  const [{ code, message }] = await warned;
  assert.equal(code, 'HELIOS_RECURRENT');
  assert.match(message, /do not run at once/);
});
