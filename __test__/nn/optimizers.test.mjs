// Optimizers against PyTorch's documented algorithms in float64, plainly, clipped and with weight decay; compiled; saved and resumed bit for bit.
// Schedules as functions, and averages of parameters.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { compile, manualSeed, nn, noGrad, optim, randn, scope, tensor } from '../../nn/index.mjs';
import { assertClose, normal } from '../lib/random-data.mjs';
import { initDevice, values } from './setup.mjs';

before(initDevice);

/** A parameter's state in float64. @typedef {Record<string, any>} State */
/**
 * One step of a rule for one parameter, which it changes.
 * @typedef {(p: Float64Array, g: Float64Array, t: number, s: State, o: any, shape: number[]) => void} Rule
 */

const SHAPES = [[6, 5], [130], [3, 8]];
/** Steps: RAdam's sixth is the first that is rectified. */
const STEPS = 8;

const zeros = (/** @type {Float64Array} */ p) => new Float64Array(p.length);
const squares = (/** @type {ArrayLike<number>} */ v) => Array.from(v).reduce((a, b) => a + b * b, 0);
const rms = (/** @type {ArrayLike<number>} */ v) => Math.sqrt(squares(v) / v.length);
/** Weight decay added to the gradient. @param {Float64Array} p @param {Float64Array} g @param {any} o */
const l2 = (p, g, o) => g.map((v, i) => v + o.weightDecay * p[i]);

/** @type {Rule} */
function adam(p, raw, t, s, o) {
  const g = l2(p, raw, o);
  const [b1, b2] = o.betas;
  s.m ??= zeros(p);
  s.v ??= zeros(p);
  s.largest ??= zeros(p);
  p.forEach((_, i) => {
    s.m[i] = b1 * s.m[i] + (1 - b1) * g[i];
    s.v[i] = b2 * s.v[i] + (1 - b2) * g[i] ** 2;
    s.largest[i] = Math.max(s.largest[i], s.v[i]);
    const v = o.amsgrad ? s.largest[i] : s.v[i];
    p[i] -= ((o.lr / (1 - b1 ** t)) * s.m[i]) / (Math.sqrt(v) / Math.sqrt(1 - b2 ** t) + o.eps);
  });
}
/** @type {Rule} */
function adamw(p, g, t, s, o, shape) {
  p.forEach((v, i) => {
    p[i] = v * (1 - o.lr * o.weightDecay);
  });
  adam(p, g, t, s, { ...o, weightDecay: 0 }, shape);
}
/** @type {Rule} */
function adamax(p, raw, t, s, o) {
  const g = l2(p, raw, o);
  const [b1, b2] = o.betas;
  s.m ??= zeros(p);
  s.u ??= zeros(p);
  p.forEach((_, i) => {
    s.m[i] = b1 * s.m[i] + (1 - b1) * g[i];
    s.u[i] = Math.max(b2 * s.u[i], Math.abs(g[i]) + o.eps);
    p[i] -= (o.lr * s.m[i]) / ((1 - b1 ** t) * s.u[i]);
  });
}
/** The gradient for the moments; decoupled weight decay is applied to p first. @param {Float64Array} p @param {Float64Array} raw @param {any} o */
function decayed(p, raw, o) {
  if (!o.decoupledWeightDecay) return l2(p, raw, o);
  p.forEach((v, i) => {
    p[i] = v * (1 - o.lr * o.weightDecay);
  });
  return raw;
}
/** @type {Rule} */
function nadam(p, raw, t, s, o) {
  const g = decayed(p, raw, o);
  const [b1, b2] = o.betas;
  s.m ??= zeros(p);
  s.v ??= zeros(p);
  s.product ??= 1;
  const mu = b1 * (1 - 0.5 * 0.96 ** (t * o.momentumDecay));
  const next = b1 * (1 - 0.5 * 0.96 ** ((t + 1) * o.momentumDecay));
  s.product *= mu;
  p.forEach((_, i) => {
    s.m[i] = b1 * s.m[i] + (1 - b1) * g[i];
    s.v[i] = b2 * s.v[i] + (1 - b2) * g[i] ** 2;
    const root = Math.sqrt(s.v[i] / (1 - b2 ** t)) + o.eps;
    p[i] -= (o.lr * (1 - mu) * g[i]) / ((1 - s.product) * root) + (o.lr * next * s.m[i]) / ((1 - s.product * next) * root);
  });
}
/** @type {Rule} */
function radam(p, raw, t, s, o) {
  const g = decayed(p, raw, o);
  const [b1, b2] = o.betas;
  s.m ??= zeros(p);
  s.v ??= zeros(p);
  const infinite = 2 / (1 - b2) - 1;
  const rho = infinite - (2 * t * b2 ** t) / (1 - b2 ** t);
  const r = Math.sqrt(((rho - 4) * (rho - 2) * infinite) / ((infinite - 4) * (infinite - 2) * rho));
  p.forEach((_, i) => {
    s.m[i] = b1 * s.m[i] + (1 - b1) * g[i];
    s.v[i] = b2 * s.v[i] + (1 - b2) * g[i] ** 2;
    const mean = s.m[i] / (1 - b1 ** t);
    p[i] -= o.lr * mean * (rho > 5 ? (r * Math.sqrt(1 - b2 ** t)) / (Math.sqrt(s.v[i]) + o.eps) : 1);
  });
}
/** @type {Rule} */
function rmsprop(p, raw, _, s, o) {
  const g = l2(p, raw, o);
  s.v ??= zeros(p);
  s.mean ??= zeros(p);
  s.b ??= zeros(p);
  p.forEach((_, i) => {
    s.v[i] = o.alpha * s.v[i] + (1 - o.alpha) * g[i] ** 2;
    s.mean[i] = o.alpha * s.mean[i] + (1 - o.alpha) * g[i];
    const d = g[i] / (Math.sqrt(s.v[i] - (o.centered ? s.mean[i] ** 2 : 0)) + o.eps);
    s.b[i] = o.momentum * s.b[i] + d;
    p[i] -= o.lr * (o.momentum > 0 ? s.b[i] : d);
  });
}
/** @type {Rule} */
function adagrad(p, raw, t, s, o) {
  const g = l2(p, raw, o);
  s.sum ??= zeros(p).fill(o.initialAccumulator);
  p.forEach((_, i) => {
    s.sum[i] += g[i] ** 2;
    p[i] -= ((o.lr / (1 + (t - 1) * o.lrDecay)) * g[i]) / (Math.sqrt(s.sum[i]) + o.eps);
  });
}
/** @type {Rule} */
function adadelta(p, raw, _, s, o) {
  const g = l2(p, raw, o);
  s.v ??= zeros(p);
  s.a ??= zeros(p);
  p.forEach((_, i) => {
    s.v[i] = o.rho * s.v[i] + (1 - o.rho) * g[i] ** 2;
    const d = (Math.sqrt(s.a[i] + o.eps) / Math.sqrt(s.v[i] + o.eps)) * g[i];
    s.a[i] = o.rho * s.a[i] + (1 - o.rho) * d ** 2;
    p[i] -= o.lr * d;
  });
}
/** @type {Rule} */
function rprop(p, raw, _, s, o) {
  const g = l2(p, raw, o);
  s.g ??= zeros(p);
  s.size ??= zeros(p).fill(o.lr);
  p.forEach((_, i) => {
    const turn = Math.sign(g[i]) * Math.sign(s.g[i]);
    s.size[i] = Math.min(Math.max(s.size[i] * (turn > 0 ? o.etas[1] : turn < 0 ? o.etas[0] : 1), o.stepSizes[0]), o.stepSizes[1]);
    s.g[i] = turn < 0 ? 0 : g[i];
    p[i] -= Math.sign(s.g[i]) * s.size[i];
  });
}
/** @type {Rule} */
function asgd(p, raw, _, s, o) {
  const g = l2(p, raw, o);
  s.eta ??= o.lr;
  s.mu ??= 1;
  s.step ??= 0;
  s.ax ??= zeros(p);
  s.step++;
  p.forEach((_, i) => {
    p[i] = p[i] * (1 - o.lambd * s.eta) - s.eta * g[i];
    s.ax[i] = s.mu === 1 ? p[i] : s.ax[i] + (p[i] - s.ax[i]) * s.mu;
  });
  s.eta = o.lr / (1 + o.lambd * o.lr * s.step) ** o.alpha;
  s.mu = 1 / Math.max(1, s.step - o.t0);
}
/** @type {Rule} */
function adafactor(p, g, t, s, o, shape) {
  const rest = t ** o.beta2Decay;
  const alpha = Math.max(o.eps[1], rms(p)) * Math.min(o.lr, 1 / Math.sqrt(t));
  const lerp = (/** @type {Float64Array} */ from, /** @type {ArrayLike<number>} */ to) => from.map((v, i) => v + rest * (to[i] - v));
  let estimate;
  if (shape.length > 1) {
    const [R, C] = shape;
    const row = Array.from({ length: R }, (_, r) => squares(g.slice(r * C, (r + 1) * C)) / C);
    const column = Array.from({ length: C }, (_, c) => squares(g.filter((_, i) => i % C === c)) / R);
    s.row = lerp(s.row ?? new Float64Array(R), row);
    s.column = lerp(s.column ?? new Float64Array(C), column);
    const mean = Math.max(o.eps[0], s.row.reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b, 0) / R);
    estimate = g.map((_, i) => (s.row[Math.floor(i / C)] * s.column[i % C]) / mean);
  } else {
    s.variance = lerp(
      s.variance ?? zeros(p),
      g.map((v) => v * v),
    );
    estimate = s.variance;
  }
  const update = g.map((v, i) => v / Math.sqrt(Math.max(estimate[i], o.eps[0] ** 2)));
  const denominator = Math.max(1, rms(update) / o.d);
  p.forEach((v, i) => {
    p[i] = v * (1 - o.lr * o.weightDecay) - (alpha / denominator) * update[i];
  });
}
/** @param {number[][]} a @param {number[][]} b */
const product = (a, b) => a.map((row) => b[0].map((_, c) => row.reduce((sum, v, k) => sum + v * b[k][c], 0)));
/** @param {number[][]} a */
const transposed = (a) => a[0].map((_, c) => a.map((row) => row[c]));
/** @type {Rule} */
function muon(p, g, t, s, o, shape) {
  if (shape.length !== 2) return adamw(p, g, t, s, { ...o, ...o.adam }, shape);
  const [R, C] = shape;
  s.m ??= zeros(p);
  s.m = s.m.map((/** @type {number} */ v, /** @type {number} */ i) => v + (1 - o.momentum) * (g[i] - v));
  const d = o.nesterov ? g.map((v, i) => v + o.momentum * (s.m[i] - v)) : s.m;
  let x = Array.from({ length: R }, (_, r) => Array.from(d.slice(r * C, (r + 1) * C)));
  if (R > C) x = transposed(x);
  const norm = Math.sqrt(squares(d));
  x = x.map((row) => row.map((v) => v / norm));
  for (let i = 0; i < 5; i++) {
    const gram = product(x, transposed(x));
    const [a, b, c] = [3.4445, -4.775, 2.0315];
    const twice = product(gram, gram);
    const update = product(
      gram.map((row, r) => row.map((v, k) => b * v + c * twice[r][k])),
      x,
    );
    x = x.map((row, r) => row.map((v, k) => a * v + update[r][k]));
  }
  if (R > C) x = transposed(x);
  const factor = o.adjustLr === 'original' ? Math.sqrt(Math.max(1, R / C)) : 0.2 * Math.sqrt(Math.max(R, C));
  p.forEach((v, i) => {
    p[i] = v * (1 - o.lr * o.weightDecay) - o.lr * factor * x[Math.floor(i / C)][i % C];
  });
}

const betas = [0.9, 0.999];
/** Optimizers, what they are given, their rules and PyTorch's defaults. @type {[name: string, options: any, rule: Rule, defaults: any][]} */
const CASES = [
  ['Adam', {}, adam, { lr: 1e-3, betas, eps: 1e-8 }],
  ['Adam', { amsgrad: true, lr: 0.1, betas: [0.8, 0.5] }, adam, { eps: 1e-8 }],
  ['AdamW', { amsgrad: true, lr: 0.1, betas: [0.8, 0.5] }, adamw, { eps: 1e-8, weightDecay: 0.01 }],
  ['Adam', { betas: [0, 0.9] }, adam, { lr: 1e-3, eps: 1e-8 }],
  ['NAdam', { betas: [0, 0.9] }, nadam, { lr: 2e-3, eps: 1e-8, momentumDecay: 4e-3 }],
  ['Adamax', {}, adamax, { lr: 2e-3, betas, eps: 1e-8 }],
  ['NAdam', {}, nadam, { lr: 2e-3, betas, eps: 1e-8, momentumDecay: 4e-3 }],
  ['NAdam', { decoupledWeightDecay: true, lr: 0.1, momentumDecay: 0.5 }, nadam, { betas, eps: 1e-8 }],
  ['RAdam', {}, radam, { lr: 1e-3, betas, eps: 1e-8 }],
  ['RAdam', { decoupledWeightDecay: true, betas: [0.9, 0.8] }, radam, { lr: 1e-3, eps: 1e-8 }],
  ['RMSprop', {}, rmsprop, { lr: 1e-2, alpha: 0.99, eps: 1e-8, momentum: 0 }],
  ['RMSprop', { centered: true, momentum: 0.9 }, rmsprop, { lr: 1e-2, alpha: 0.99, eps: 1e-8 }],
  ['RMSprop', { momentum: 0.5, alpha: 0.5 }, rmsprop, { lr: 1e-2, eps: 1e-8 }],
  ['Adagrad', {}, adagrad, { lr: 1e-2, lrDecay: 0, eps: 1e-10, initialAccumulator: 0 }],
  ['Adagrad', { lrDecay: 0.5, initialAccumulator: 0.1 }, adagrad, { lr: 1e-2, eps: 1e-10 }],
  ['Adadelta', {}, adadelta, { lr: 1, rho: 0.9, eps: 1e-6 }],
  ['Rprop', {}, rprop, { lr: 1e-2, etas: [0.5, 1.2], stepSizes: [1e-6, 50] }],
  ['Rprop', { lr: 0.1, etas: [0.3, 2], stepSizes: [0.05, 0.3] }, rprop, {}],
  ['ASGD', {}, asgd, { lr: 1e-2, lambd: 1e-4, alpha: 0.75, t0: 1e6 }],
  ['ASGD', { lr: 0.1, lambd: 0.5, alpha: 0.9, t0: 3 }, asgd, {}],
  ['Adafactor', {}, adafactor, { lr: 1e-2, beta2Decay: -0.8, eps: [2 ** -23, 1e-3], d: 1 }],
  ['Adafactor', { lr: 10, d: 0.5 }, adafactor, { beta2Decay: -0.8, eps: [2 ** -23, 1e-3] }],
  [
    'Muon',
    {},
    muon,
    { lr: 1e-3, weightDecay: 0.1, momentum: 0.95, nesterov: true, adjustLr: 'original', adam: { betas: [0.9, 0.95], eps: 1e-8 } },
  ],
  [
    'Muon',
    { nesterov: false, adjustLr: 'matchRmsAdamw', lr: 0.1, betas: [0.5, 0.6] },
    muon,
    { weightDecay: 0.1, momentum: 0.95, adam: { betas: [0.5, 0.6], eps: 1e-8 } },
  ],
];

/** Parameters, as the optimizer of this name takes them. @param {string} name @param {any[]} parameters */
const groupsOf = (name, parameters) =>
  name === 'Muon'
    ? [{ params: parameters.filter(({ ndim }) => ndim === 2) }, { params: parameters.filter(({ ndim }) => ndim !== 2), muon: false }]
    : parameters;

/** Parameters of odd sizes. @param {ArrayLike<number>[]} data */
const parametersOf = (data) => data.map((v, i) => new nn.Parameter(tensor(Float64Array.from(v), { shape: SHAPES[i] })));
const sizes = SHAPES.map((shape) => shape.reduce((a, b) => a * b));
const draw = () => sizes.map((n) => Float64Array.from(normal(n), Math.fround));

/** A step with given gradients. @param {any} opt @param {any[]} parameters */
const stepper =
  (opt, parameters) =>
  (/** @type {any[]} */ ...gradients) => {
    parameters
      .map((p, i) => p.mul(gradients[i]).sum())
      .reduce((a, b) => a.add(b))
      .backward();
    opt.step();
  };
/** @param {Float64Array[]} list */
const tensors = (list) => list.map((v, i) => tensor(v, { shape: SHAPES[i] }));

for (const [name, options, rule, defaults] of CASES) {
  test(`${name} ${JSON.stringify(options)}: PyTorch's algorithm, eager and compiled, clipped, with weight decay; resumed`, async () => {
    const gradients = Array.from({ length: STEPS }, draw);
    const begin = draw();
    for (const more of [{}, { weightDecay: 0.1, clip: 0.5, gradientScale: 0.5 }]) {
      const all = { weightDecay: 0, ...defaults, ...options, ...more };
      const make = (/** @type {any[]} */ p) => new /** @type {any} */ (optim)[name](groupsOf(name, p), { ...options, ...more });
      const expected = begin.map((v) => Float64Array.from(v));
      /** @type {State[]} */
      const states = expected.map(() => ({}));
      for (const [t, list] of gradients.entries()) {
        const scale = all.gradientScale ?? 1;
        const norm = scale * Math.sqrt(list.reduce((sum, g) => sum + squares(g), 0));
        const factor = scale * (all.clip ? Math.min(1, all.clip / (norm + 1e-6)) : 1);
        expected.forEach((p, i) => {
          rule(
            p,
            list[i].map((v) => v * factor),
            t + 1,
            states[i],
            all,
            SHAPES[i],
          );
        });
      }
      const [eager, compiled, first, second] = [0, 1, 2, 3].map(() => parametersOf(begin));
      const opt = make(eager);
      const step = stepper(opt, eager);
      for (const list of gradients) scope(() => step(...tensors(list)));
      const what = `${name} ${JSON.stringify(more)}`;
      for (const [i, p] of eager.entries()) assertClose(await p.toArray(), expected[i], 1e-5, `${what}, parameter ${i}`);
      if (name === 'ASGD')
        for (const [i, { ax }] of states.entries())
          assertClose(await values(opt.stateDict()[`0.${i}.first`]), ax, 1e-5, `${what}, average ${i}`);
      const graph = compile(stepper(make(compiled), compiled));
      for (const list of gradients) scope(() => graph(...tensors(list)));
      for (const [i, p] of compiled.entries()) assertClose(await p.toArray(), await eager[i].toArray(), 1e-6, `${what}, compiled ${i}`);

      // The same bits in two runs.
      const half = make(first);
      const one = stepper(half, first);
      for (const list of gradients.slice(0, 3)) scope(() => one(...tensors(list)));
      const resumed = make(second);
      noGrad(() => second.forEach((p, i) => void p.copy_(first[i])));
      resumed.loadStateDict(half.stateDict());
      const two = stepper(resumed, second);
      for (const list of gradients.slice(3)) scope(() => two(...tensors(list)));
      for (const [i, p] of second.entries()) assert.deepEqual(await values(p), await values(eager[i]), `${what}, resumed ${i}`);
      assert.throws(() => resumed.loadStateDict({}), /loadStateDict: missing: 0/);
      for (const own of [opt, half, resumed]) own.dispose();
    }
  });
}

test('an optimizer does not take the state of another kind', () => {
  const model = new nn.Linear(3, 2);
  const states = [optim.Adafactor, optim.Adam].map((Kind) => {
    const opt = new Kind(model.parameters());
    const state = opt.stateDict();
    const copy = Object.fromEntries(Object.entries(state).map(([name, t]) => [name, t.clone()]));
    opt.dispose();
    return copy;
  });
  const sgd = new optim.SGD(model.parameters());
  for (const [i, name] of ['row', 'first'].entries())
    assert.throws(
      () => sgd.loadStateDict(states[i]),
      new RegExp(`loadStateDict: unexpected: 0\\.0\\.${name}, which this SGD does not have`),
    );
  sgd.dispose();
});

test('a step whose norm is not finite changes nothing, of any optimizer, nor does it count', async () => {
  for (const [name, options] of CASES) {
    const begin = draw();
    const parameters = parametersOf(begin);
    const opt = new /** @type {any} */ (optim)[name](groupsOf(name, parameters), { ...options, clip: 1 });
    const step = stepper(opt, parameters);
    const gradients = [draw(), draw()];
    scope(() => step(...tensors(gradients[0])));
    const before = await Promise.all([...parameters, ...Object.values(opt.stateDict())].map(values));
    const infinite = gradients[1].map((g) => g.map(() => Infinity));
    for (const run of [step, compile(step)]) scope(() => run(...tensors(infinite)));
    const after = await Promise.all([...parameters, ...Object.values(opt.stateDict())].map(values));
    assert.equal(await opt.skippedSteps(), 2, name);
    for (const [i, list] of before.entries()) {
      // The state counts what it skipped, and keeps the last norm.
      if (list.length === 32) assert.deepEqual([after[i][0], ...after[i].slice(26, 27)], [list[0], ...list.slice(26, 27)], name);
      else assert.deepEqual(after[i], list, `${name} ${i}`);
    }
    opt.dispose();
  }
});

test('NAdam goes on by startAt with the product of its momenta; a parameter without a gradient stays', async () => {
  const parameters = parametersOf(draw());
  const opt = new optim.NAdam(parameters);
  const step = stepper(opt, parameters);
  for (let i = 0; i < 3; i++) scope(() => step(...tensors(draw())));
  const state = (await values(opt.stateDict()['0.state'])).slice(26, 27);
  opt.startAt(3);
  const word = (/** @type {number} */ bits) => new Float32Array(Uint32Array.of(bits).buffer)[0];
  assertClose([word((await values(opt.stateDict()['0.state']))[26])], [word(state[0])], 1e-6, 'product');
  const before = await values(parameters[1]);
  scope(() => {
    parameters[0].sum().backward();
    opt.step();
  });
  assert.deepEqual(await values(parameters[1]), before);
});

test('Muon takes matrices, and says so; near-orthogonal steps', async () => {
  const [matrix, vector] = [new nn.Parameter(randn([4, 6])), new nn.Parameter(randn([3]))];
  assert.throws(
    () => new optim.Muon([matrix, vector]),
    /Muon: takes matrices, got a parameter \[3\]: put it into a group with muon: false/,
  );
  const before = await values(matrix);
  const opt = new optim.Muon([matrix], { lr: 1, weightDecay: 0 });
  scope(() => {
    matrix
      .mul(tensor(normal(24), { shape: [4, 6] }))
      .sum()
      .backward();
    opt.step();
  });
  const moved = tensor(
    (await values(matrix)).map((v, i) => v - before[i]),
    { shape: [4, 6] },
  );
  const gram = await values(moved.matmul(moved.T));
  // Singular values of about 0.7 to 1.2.
  for (let i = 0; i < 4; i++) assert.ok(gram[5 * i] > 0.4 && gram[5 * i] < 1.5, `${gram}`);
  const group = { rank: 0, worldSize: 1, reduceScatter: () => {}, broadcast: () => {}, allReduce: () => {}, allGather: () => {} };
  for (const make of [
    (/** @type {any} */ o) => new optim.Muon([new nn.Parameter(randn([2, 2]))], o),
    (/** @type {any} */ o) => new optim.Adafactor([new nn.Parameter(randn([2, 2]))], o),
  ]) {
    assert.throws(() => make({ processGroup: group, zero: 1 }), /zero must be 0, since a step needs whole matrices, got 1/);
    make({ processGroup: group }).dispose();
  }
});

/** The rates that an optimizer steps by. @param {any} schedule @param {number} steps @param {boolean} compiled */
async function ratesOf(schedule, steps, compiled) {
  const parameter = new nn.Parameter(tensor([0]));
  const opt = new optim.SGD([parameter], { lr: 2, schedule });
  const step = () => {
    parameter.sum().backward();
    opt.step();
  };
  const run = compiled ? compile(step) : step;
  const rates = [];
  for (let i = 0; i < steps; i++) {
    const before = await parameter.item();
    scope(() => void run());
    rates.push((before - (await parameter.item())) / 2);
  }
  opt.dispose();
  return rates;
}

test('schedules: the factors, on the device, eager and compiled', async () => {
  const { schedules: s } = optim;
  const half = (/** @type {number} */ t) => (1 + Math.cos(Math.PI * t)) / 2;
  /** @type {[any, number[]][]} */
  const list = [
    [s.constant(0.5), [0.5, 0.5, 0.5]],
    [s.linear(4, { to: 0.2 }), [1, 0.8, 0.6, 0.4, 0.2, 0.2]],
    [s.linear(2, { from: 0.5, to: 1 }), [0.5, 0.75, 1, 1]],
    [s.cosine(4, { to: 0.1 }), [0, 1, 2, 3, 4, 4].map((t) => 0.1 + 0.9 * half(t / 4))],
    [s.cosineRestarts(4), [0, 1, 2, 3, 0, 1, 2].map((t) => half(t / 4))],
    // As CosineAnnealingWarmRestarts(T_0=3, T_mult=2): periods of 3, 6 and 12 steps.
    [
      s.cosineRestarts(3, { mult: 2, to: 0.1 }),
      [0, 1 / 3, 2 / 3, 0, 1 / 6, 1 / 3, 1 / 2, 2 / 3, 5 / 6, 0, 1 / 12].map((t) => 0.1 + 0.9 * half(t)),
    ],
    [s.polynomial(4, { power: 2 }), [1, 0.5625, 0.25, 0.0625, 0, 0]],
    [s.step(2, { gamma: 0.5 }), [1, 1, 0.5, 0.5, 0.25]],
    [s.multiStep([1, 3], { gamma: 0.5 }), [1, 0.5, 0.5, 0.25, 0.25]],
    [s.exponential(0.5), [1, 0.5, 0.25, 0.125]],
    [s.inverseSqrt(2), [0.5, 1, Math.sqrt(2 / 3), Math.sqrt(2 / 4)]],
    [s.warmup(2, s.linear(2)), [0.5, 1, 1, 0.5, 0, 0]],
    [s.chained(s.step(2), s.linear(4)), [1, 0.75, 0.05, 0.025, 0, 0]],
    [s.sequential([s.constant(0.1), s.linear(2)], [2]), [0.1, 0.1, 1, 0.5, 0, 0]],
    // OneCycleLR(max_lr=1, total_steps=10): the top after 0.3 · 10 - 1 steps.
    [s.oneCycle(10), [0, 1, 2].map((t) => 1 + (0.04 - 1) * half(t / 2)).concat([1, 2, 7].map((t) => 4e-6 + (1 - 4e-6) * half(t / 7)))],
    [(/** @type {number} */ step) => 1 / (1 + step), [1, 0.5, 1 / 3, 0.25]],
  ];
  for (const [schedule, factors] of list) {
    const shown = factors.length === 6 && schedule.steps === 10 ? [0, 1, 2, 3, 4, 9] : factors.map((_, t) => t);
    assertClose(
      shown.map((t) => schedule(t)),
      factors,
      1e-9,
      String(schedule),
    );
  }
  for (const [schedule, factors] of [list[1], list[3], list[5], list[10], list[15]]) {
    for (const compiled of [false, true]) assertClose(await ratesOf(schedule, factors.length, compiled), factors, 1e-5, String(schedule));
  }
  const weights = () => [new nn.Parameter(tensor([1]))];
  assert.throws(
    () => new optim.SGD(weights(), { schedule: () => NaN }),
    /SGD: the schedule must return a number of at least 0, got NaN for step 0/,
  );
  assert.throws(() => s.cosine(0), /cosine: total must be an integer from 1/);
  assert.throws(() => s.sequential([s.constant(), s.constant()], []), /sequential: milestones must be an array of 1 steps/);
});

test('ReduceLROnPlateau: the rates of PyTorch 2.15, of all groups, in a compiled step too; continued', async () => {
  /** @type {[any, number[], number[]][]} */
  const list = [
    [{ patience: 1, factor: 0.5 }, [1, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.81], [1, 1, 1, 0.5, 0.5, 0.25, 0.25, 0.25]],
    [
      { mode: 'max', patience: 0, cooldown: 2, minLr: 0.03 },
      [1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2],
      [1, 0.1, 0.1, 0.1, 0.03, 0.03, 0.03, 0.03, 0.03, 0.03, 0.03],
    ],
    [
      { threshold: 0.1, thresholdMode: 'abs', patience: 2, factor: 0.5 },
      [1, 0.95, 0.92, 0.91, 0.7, NaN, 0.65, 0.65],
      [1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.25],
    ],
  ];
  const parameters = [0, 1].map(() => new nn.Parameter(tensor([0])));
  const opt = new optim.SGD([{ params: [parameters[0]] }, { params: [parameters[1]], lr: 2 }], { lr: 1 });
  const step = compile(() => {
    parameters[0].add(parameters[1]).sum().backward();
    opt.step();
  });
  for (const [options, metrics, rates] of list) {
    opt.groups[0].lr = 1;
    opt.groups[1].lr = 2;
    let plateau = new optim.ReduceLROnPlateau(opt, options);
    for (const [i, metric] of metrics.entries()) {
      const before = opt.lr;
      assert.equal(plateau.step(metric), rates[i] < before);
      assertClose([opt.lr, opt.groups[1].lr], [rates[i], options.minLr && rates[i] < 0.1 ? 0.03 : 2 * rates[i]], 1e-9, `${i}`);
      const state = structuredClone(plateau.stateDict());
      plateau = new optim.ReduceLROnPlateau(opt, options);
      plateau.loadStateDict(state);
    }
    const [old] = await values(parameters[0]);
    step();
    assertClose([old - (await parameters[0].item())], [opt.lr], 1e-6, 'the compiled step reads it');
  }
  const any = (/** @type {any} */ v) => v;
  const plateau = new optim.ReduceLROnPlateau(opt);
  assert.throws(
    () => plateau.step(any(tensor(1))),
    /ReduceLROnPlateau\.step: expected a number, as await loss\.item\(\) gives, got Tensor/,
  );
  assert.throws(() => plateau.loadStateDict(any({ best: 1 })), /ReduceLROnPlateau\.loadStateDict: expected what stateDict\(\) returns/);
  assert.throws(() => new optim.ReduceLROnPlateau(any(parameters)), /ReduceLROnPlateau: expected an optimizer with groups, got \[ Tensor/);
  assert.throws(() => new optim.ReduceLROnPlateau(opt, any({ mode: 'least' })), /mode must be 'min' or 'max', got least/);
  assert.throws(() => new optim.ReduceLROnPlateau(opt, { factor: 1 }), /factor must be in \[0, 1\), got 1/);
  assert.throws(() => new optim.ReduceLROnPlateau(opt, any({ min_lr: 1 })), /unknown option min_lr; the options are mode, factor/);
  opt.dispose();
});

test('ReduceLROnPlateau of a run that is resumed lowers the rate that it had, from JSON too', async () => {
  const make = () => {
    const p = new nn.Parameter(tensor([0]));
    const opt = new optim.SGD([p], { lr: 1 });
    return { p, opt, plateau: new optim.ReduceLROnPlateau(opt, { patience: 0 }) };
  };
  const first = make();
  for (let i = 0; i < 3; i++) first.plateau.step(1);
  assertClose([first.opt.lr], [0.01], 1e-9, 'after two bad steps');
  const [saved, state] = [first.opt.stateDict(), JSON.parse(JSON.stringify(first.plateau.stateDict()))];
  // In either order.
  for (const isLast of [true, false]) {
    const { p, opt, plateau } = make();
    if (isLast) opt.loadStateDict(saved);
    plateau.loadStateDict(state);
    if (!isLast) opt.loadStateDict(saved);
    const next = async () => {
      const before = await p.item();
      p.sum().backward();
      opt.step();
      return before - (await p.item());
    };
    assertClose([opt.lr, await next()], [0.01, 0.01], 1e-6, 'resumed');
    assert.equal(plateau.step(1), true);
    assertClose([opt.lr, await next()], [0.001, 0.001], 1e-6, 'and lowered');
    opt.dispose();
  }
  const { opt, plateau } = make();
  plateau.loadStateDict(JSON.parse(JSON.stringify(plateau.stateDict())));
  assert.equal(plateau.best, Infinity, 'before the first metric');
  const any = (/** @type {any} */ v) => v;
  for (const wrong of [undefined, null, 3, { best: 1 }, { ...state, best: 'x' }])
    assert.throws(() => plateau.loadStateDict(any(wrong)), /^ArgumentError: ReduceLROnPlateau\.loadStateDict: expected what stateDict\(\)/);
  assert.throws(() => plateau.loadStateDict({ ...state, rates: [1, 2] }), /expected the rates of 1 groups, got 2/);
  assert.throws(() => plateau.loadStateDict({ ...state, rates: [-1] }), /a rate must be a number of at least 0, got -1/);
  opt.dispose();
});

test('groups of Adam and AdamW have betas and eps of their own, as optimizers made for each; compiled, resumed', async () => {
  /** @type {{ betas?: [number, number], eps?: number }[]} */
  const options = [{}, { betas: [0.5, 0.7] }, { eps: 0.1 }];
  for (const Kind of [optim.Adam, optim.AdamW]) {
    for (const amsgrad of [false, true]) {
      const make = () => options.map(() => new nn.Parameter(tensor([1, -2])));
      const run = (/** @type {any[]} */ params, /** @type {any[]} */ optimizers) =>
        compile(() => {
          for (const p of params) p.square().sum().backward();
          for (const each of optimizers) each.step();
        });
      const [together, apart] = [make(), make()];
      const group = () =>
        new Kind(
          together.map((p, i) => ({ params: [p], ...options[i] })),
          { lr: 0.1, amsgrad },
        );
      let opt = group();
      const own = apart.map((p, i) => new Kind([p], { lr: 0.1, amsgrad, ...options[i] }));
      let step = run(together, [opt]);
      const each = run(apart, own);
      for (let i = 0; i < 4; i++) {
        step();
        each();
        if (i !== 1) continue;
        const state = Object.fromEntries(Object.entries(opt.stateDict()).map(([name, x]) => [name, x.clone()]));
        opt.dispose();
        opt = group();
        opt.loadStateDict(state);
        step = run(together, [opt]);
      }
      const got = await Promise.all(together.map(values));
      assert.deepEqual(got, await Promise.all(apart.map(values)));
      assert.notDeepEqual(got[0], got[1]);
      assert.notDeepEqual(got[0], got[2]);
      for (const each of [opt, ...own]) each.dispose();
    }
  }
  const params = [new nn.Parameter(tensor([1]))];
  const any = (/** @type {any} */ v) => v;
  assert.throws(() => new optim.Adam([{ params, betas: [1, 0.9] }]), /Adam: beta1 must be in \[0, 1\), got 1/);
  assert.throws(() => new optim.AdamW([{ params, eps: -1 }]), /AdamW: eps must be a number of at least 0, got -1/);
  assert.throws(() => new optim.SGD([any({ params, betas: [0.9, 0.9] })]), /SGD: unknown option betas/);
});

test('a schedule of a group, and the rate that is set, are used by any optimizer', async () => {
  const parameters = [0, 1].map(() => new nn.Parameter(tensor([0])));
  const opt = new optim.Adagrad([
    { params: [parameters[0]], schedule: optim.schedules.linear(2) },
    { params: [parameters[1]], lr: 0.5 },
  ]);
  opt.groups[0].lr = 1;
  const step = compile(() => {
    parameters[0].sum().add(parameters[1].sum()).backward();
    opt.step();
  });
  scope(() => void step());
  scope(() => void step());
  assertClose([await parameters[0].item(), await parameters[1].item()], [-1 - 0.5 / Math.SQRT2, -0.5 - 0.5 / Math.SQRT2], 1e-5, 'steps');
});

test('EMA and SWA: averages, swapped in and out, saved, compiled', async () => {
  for (const kind of /** @type {const} */ (['EMA', 'SWA'])) {
    for (const compiled of [false, true]) {
      manualSeed(3);
      const model = new nn.Linear(3, 2);
      const before = await values(model.weight);
      const opt = new optim.SGD(model.parameters(), { lr: 0.1 });
      const average = kind === 'EMA' ? new optim.EMA(model, { decay: 0.9 }) : new optim.SWA(model);
      const step = (/** @type {any} */ x) => {
        model.forward(x).square().sum().backward();
        opt.step();
        average.update();
      };
      const run = compiled ? compile(step) : step;
      let expected = before;
      let bias;
      for (let i = 0; i < 4; i++) {
        scope(() => void run(tensor(normal(6), { shape: [2, 3] })));
        const now = await values(model.weight);
        expected = expected.map((v, k) => (kind === 'EMA' ? 0.9 * v + 0.1 * now[k] : i === 0 ? now[k] : v + (now[k] - v) / (i + 1)));
        bias = await values(model.bias);
      }
      const what = `${kind}${compiled ? ', compiled' : ''}`;
      const state = average.stateDict();
      assertClose(await values(state.weight), expected, 1e-5, what);
      assert.deepEqual(await values(state.updates), [4]);
      const own = await values(model.weight);
      average.swap();
      assertClose(await values(model.weight), expected, 1e-5, `${what}, swapped`);
      assert.throws(() => average.update(), /update: the model has the averages: swap\(\) them out first/);
      average.swap();
      assert.deepEqual([await values(model.weight), await values(model.bias)], [own, bias]);
      const other = kind === 'EMA' ? new optim.EMA(model, { decay: 0.9 }) : new optim.SWA(model);
      other.loadStateDict(state);
      assert.deepEqual(await values(other.stateDict().weight), await values(state.weight));
      assert.throws(() => other.loadStateDict({ weight: state.weight }), /loadStateDict: missing: bias/);
      average.dispose();
      assert.throws(() => average.update(), /update: the average was disposed of/);
    }
  }
});
