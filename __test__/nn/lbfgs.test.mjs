// L-BFGS against the two-loop recursion in float64, and on functions whose minimum is known.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, compile, grad, manualSeed, nn, noGrad, optim, rand, tensor } from '../../nn/index.mjs';
import { assertClose } from '../lib/random-data.mjs';
import { initDevice, values } from './setup.mjs';

before(initDevice);

const SCALES = [1, 4, 0.5, 3, 2];
const TARGET = [1, -2, 0.5, 3, -1];
const START = [0, 0.3, -1, 1, 2];

/** Σ a (x - b)² / 2 + Σ (x - b)⁴ / 8, as parameters of two shapes. @param {any[]} params */
function bowl([first, second]) {
  const x = F.cat([first.reshape(-1), second]);
  const d = F.sub(x, tensor(TARGET));
  return F.add(F.mul(F.sum(F.mul(F.square(d), tensor(SCALES))), 0.5), F.mul(F.sum(F.square(F.square(d))), 0.125));
}
/** @param {number[]} x @returns {{ loss: number, g: number[] }} */
const bowlOf = (x) => ({
  loss: x.reduce((sum, v, i) => sum + (SCALES[i] * (v - TARGET[i]) ** 2) / 2 + (v - TARGET[i]) ** 4 / 8, 0),
  g: x.map((v, i) => SCALES[i] * (v - TARGET[i]) + (v - TARGET[i]) ** 3 / 2),
});
const dot = (/** @type {number[]} */ a, /** @type {number[]} */ b) => a.reduce((sum, v, i) => sum + v * b[i], 0);

/** PyTorch's iterations without a line search, in float64: an estimate from the last `size` steps. @param {number} steps @param {number} lr @param {number} size */
function reference(steps, lr, size) {
  let x = [...START];
  /** @type {{ s: number[], y: number[] }[]} */
  const history = [];
  let { g } = bowlOf(x);
  for (let k = 0; k < steps; k++) {
    let q = g.map((v) => -v);
    const alphas = history.toReversed().map(({ s, y }) => {
      const alpha = dot(s, q) / dot(s, y);
      q = q.map((v, i) => v - alpha * y[i]);
      return alpha;
    });
    const last = history.at(-1);
    const scale = last ? dot(last.s, last.y) / dot(last.y, last.y) : 1;
    q = q.map((v) => v * scale);
    for (const [j, { s, y }] of history.entries()) {
      const beta = dot(y, q) / dot(s, y);
      q = q.map((v, i) => v + s[i] * (alphas[alphas.length - 1 - j] - beta));
    }
    const t = k === 0 ? Math.min(1, 1 / g.reduce((sum, v) => sum + Math.abs(v), 0)) * lr : lr;
    const next = x.map((v, i) => v + t * q[i]);
    const after = bowlOf(next).g;
    history.push({ s: q.map((v) => v * t), y: after.map((v, i) => v - g[i]) });
    if (history.length > size) history.shift();
    [x, g] = [next, after];
  }
  return x;
}

const make = () => [new nn.Parameter(tensor(START.slice(0, 2)).reshape(1, 2)), new nn.Parameter(tensor(START.slice(2)))];
const flat = async (/** @type {any[]} */ params) => (await Promise.all(params.map(values))).flat();

test('steps of the length lr: the recursion in float64, over several calls, eager and compiled', async () => {
  for (const [lr, historySize] of [
    [0.5, 100],
    [0.7, 2],
  ]) {
    for (const isCompiled of [false, true]) {
      const params = make();
      const opt = new optim.LBFGS(params, { lr, historySize, maxIter: 4 });
      const compiled = compile(() => {
        const loss = bowl(params);
        return [loss, ...grad(loss, params)];
      });
      const closure = () => {
        if (isCompiled) {
          const [loss, ...gradients] = compiled();
          for (const [i, p] of params.entries()) p.grad = gradients[i];
          return loss;
        }
        const loss = bowl(params);
        loss.backward();
        return loss;
      };
      let steps = 0;
      for (let call = 0; call < 2; call++) {
        const before = reference(steps, lr, historySize);
        assertClose([await opt.step(closure)], Float64Array.of(bowlOf(before).loss), 1e-5, `the loss before call ${call}`);
        steps += 4;
        assertClose(await flat(params), Float64Array.from(reference(steps, lr, historySize)), 1e-4, `lr ${lr}, after ${steps}`);
      }
      assert.ok(
        params.every(({ grad }) => grad === undefined),
        'gradients are cleared',
      );
      opt.dispose();
    }
  }
});

test('with a line search: Rosenbrock’s valley, whose minimum is (1, 1); the loss never rises', async () => {
  const p = new nn.Parameter(tensor([-1.5, 2]));
  const opt = new optim.LBFGS([p], { lineSearchFn: 'strong_wolfe', maxIter: 10 });
  let calls = 0;
  const loss = () => {
    calls++;
    const [x, y] = [p.slice(0, 0, 1), p.slice(0, 1)];
    const value = F.add(F.square(F.sub(1, x)), F.mul(F.square(F.sub(y, F.square(x))), 100)).sum();
    value.backward();
    return value;
  };
  /** @type {number[]} */
  const losses = [];
  for (let i = 0; i < 6; i++) losses.push(await opt.step(loss));
  assert.ok(
    losses.every((v, i) => i === 0 || v <= losses[i - 1]),
    `${losses}`,
  );
  assertClose(await values(p), Float64Array.of(1, 1), 2e-3, 'minimum');
  assert.ok(calls < 120, `${calls} calls`);
});

test('a least-squares problem ends at its solution by itself, and at once where the gradient is 0', async () => {
  manualSeed(2);
  const [a, x] = [rand([12, 3]), tensor([[1], [-2], [3]])];
  const b = a.matmul(x);
  const p = new nn.Parameter(F.zeros([3, 1]));
  for (const options of [{ lineSearchFn: /** @type {const} */ ('strong_wolfe') }, {}]) {
    noGrad(() => p.copy_(F.zeros([3, 1])));
    const opt = new optim.LBFGS([p], { ...options, maxIter: 60 });
    let calls = 0;
    const loss = () => {
      calls++;
      const value = F.mean(F.square(F.sub(a.matmul(p), b)));
      value.backward();
      return value;
    };
    await opt.step(loss);
    assertClose(await values(p), Float64Array.of(1, -2, 3), 1e-3, 'solution');
    assert.ok(calls < 60, `${calls} calls: it ends by its tolerances`);
    noGrad(() => p.copy_(x));
    calls = 0;
    assert.ok((await opt.step(loss)) < 1e-10);
    assert.equal(calls, 1);
  }
});

test('errors of LBFGS', async () => {
  const p = new nn.Parameter(F.ones([2]));
  const opt = new optim.LBFGS([p]);
  await assert.rejects(
    opt.step(() => F.ones([2])),
    /^ArgumentError: step: the function must return the loss, a tensor of one element/,
  );
  await assert.rejects(
    opt.step(() => p.sum()),
    /^UsageError: step: no parameter has a gradient: call backward\(\) on the loss in the function/,
  );
  assert.throws(() => new optim.LBFGS([p, p]), /LBFGS: a parameter appears twice/);
  assert.throws(
    () => new optim.LBFGS([p], { lineSearchFn: /** @type {any} */ ('wolfe') }),
    /lineSearchFn must be 'strong_wolfe' or left out/,
  );
  assert.throws(() => new optim.LBFGS(/** @type {any} */ (new nn.Linear(1, 1))), /LBFGS: expected parameters, got a module/);
});

test('a closure may be a compiled function that calls backward; the parameters are free afterwards', async () => {
  const run = async (/** @type {boolean} */ isCompiled) => {
    const params = make();
    const opt = new optim.LBFGS(params, { lineSearchFn: 'strong_wolfe', maxIter: 3 });
    const closure = () => {
      const loss = bowl(params);
      loss.backward();
      return loss;
    };
    const losses = [];
    const own = isCompiled ? compile(closure) : closure;
    for (let call = 0; call < 3; call++) losses.push(await opt.step(own));
    if (isCompiled) assert.equal(/** @type {any} */ (own).explain().length, 1, 'traced once');
    opt.dispose();
    const adam = new optim.Adam(params, { lr: 0.1 });
    const before = await flat(params);
    bowl(params).backward();
    adam.step();
    assert.notDeepEqual(await flat(params), before);
    adam.dispose();
    return losses;
  };
  const [eager, compiled] = [await run(false), await run(true)];
  assert.ok(eager[2] < eager[0] / 4, `${eager}`);
  assertClose(compiled, Float64Array.from(eager), 1e-4, 'the losses');
});
