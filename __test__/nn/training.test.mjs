// Modules and optimizers: against formulas in float64; models that learn; two runs give the same bits.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, autocast, compile, grad, manualSeed, nn, noGrad, optim, rand, scope, tensor } from '../../nn/index.mjs';
import { Philox } from '../../nn/core/philox.mjs';
import { arrange } from '../../nn/optim/bucket.mjs';
import { assertClose, normal } from '../lib/random-data.mjs';
import { initDevice } from './setup.mjs';

before(initDevice);

test('Philox 4x32-10: the words of Random123', () => {
  const philox = new Philox(0);
  assert.deepEqual(
    Array.from({ length: 4 }, () => philox.next().toString(16)),
    ['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8'],
  );
});

test('buckets: only parameters with the same key share one, in the order of the first', () => {
  const members = arrange([10, 20, 30, 200, 40], 256, 128, ['a', 'b', 'a', 'b', 'b']).map(({ members: own, count }) => [
    own.map(({ index, offset }) => `${index}@${offset}`).join(),
    count,
  ]);
  assert.deepEqual(members, [
    ['0@0,2@64', 128],
    ['1@0', 128],
    ['3@0', 256],
    ['4@0', 128],
  ]);
});

test('buckets: each parameter whole, from a multiple of 64, none above the limit but one that is larger itself', () => {
  assert.deepEqual(arrange([10, 64, 65, 1000, 1], 256), [
    {
      members: [
        { index: 0, offset: 0 },
        { index: 1, offset: 64 },
        { index: 2, offset: 128 },
      ],
      count: 256,
    },
    { members: [{ index: 3, offset: 0 }], count: 1024 },
    { members: [{ index: 4, offset: 0 }], count: 64 },
  ]);
});

/** Two parameters of odd sizes, and gradients for some steps. */
function problem() {
  const sizes = [7, 130];
  const values = sizes.map((n) => Float64Array.from(normal(n), Math.fround));
  const gradients = Array.from({ length: 4 }, () => sizes.map((n) => Float64Array.from(normal(n), Math.fround)));
  const parameters = values.map((v) => new nn.Parameter(tensor(v)));
  return { values, gradients, parameters };
}

/**
 * Steps of an optimizer against a rule in float64.
 * @param {(parameters: any[]) => any} make
 * @param {(p: Float64Array, g: Float64Array, step: number, state: any) => void} rule changes p
 * @param {number} [clip]
 */
async function follows(make, rule, clip = 0) {
  const { values, gradients, parameters } = problem();
  const opt = make(parameters);
  const states = values.map((v) => ({ m: new Float64Array(v.length), v: new Float64Array(v.length) }));
  for (const [step, list] of gradients.entries()) {
    scope(() => {
      const loss = parameters.map((p, i) => p.mul(tensor(list[i])).sum()).reduce((a, b) => a.add(b));
      loss.backward();
      opt.step();
    });
    const norm = Math.sqrt(list.reduce((sum, g) => sum + g.reduce((s, v) => s + v * v, 0), 0));
    const scale = clip ? Math.min(1, clip / (norm + 1e-6)) : 1;
    values.forEach((p, i) =>
      rule(
        p,
        list[i].map((v) => v * scale),
        step + 1,
        states[i],
      ),
    );
    assert.ok(
      parameters.every((p) => p.grad === undefined),
      'step() forgets gradients',
    );
  }
  for (const [i, p] of parameters.entries()) assertClose(await p.toArray(), values[i], 3e-6, `${opt.constructor.name} ${i}`);
  opt.dispose();
}

test('AdamW, SGD and Lion follow their formulas', async () => {
  const adam = (/** @type {any} */ p, /** @type {any} */ g, /** @type {number} */ step, /** @type {any} */ s) => {
    for (let i = 0; i < p.length; i++) {
      p[i] -= 0.01 * 0.1 * p[i];
      s.m[i] = 0.9 * s.m[i] + 0.1 * g[i];
      s.v[i] = 0.99 * s.v[i] + 0.01 * g[i] ** 2;
      p[i] -= (0.01 * (s.m[i] / (1 - 0.9 ** step))) / (Math.sqrt(s.v[i] / (1 - 0.99 ** step)) + 1e-8);
    }
  };
  const options = { lr: 0.01, weightDecay: 0.1, betas: /** @type {[number, number]} */ ([0.9, 0.99]) };
  await follows((p) => new optim.AdamW(p, options), adam);
  await follows((p) => new optim.AdamW(p, { ...options, clip: 0.5 }), adam, 0.5);
  await follows(
    (p) => new optim.SGD(p, { lr: 0.1, momentum: 0.9, weightDecay: 0.01, clip: 1 }),
    (p, g, _, s) => {
      for (let i = 0; i < p.length; i++) {
        s.m[i] = 0.9 * s.m[i] + g[i] + 0.01 * p[i];
        p[i] -= 0.1 * s.m[i];
      }
    },
    1,
  );
  await follows(
    (p) => new optim.SGD(p, { lr: 0.1, momentum: 0.9, nesterov: true }),
    (p, g, _, s) => {
      for (let i = 0; i < p.length; i++) {
        s.m[i] = 0.9 * s.m[i] + g[i];
        p[i] -= 0.1 * (g[i] + 0.9 * s.m[i]);
      }
    },
  );
  await follows(
    (p) => new optim.Lion(p, { lr: 0.01, weightDecay: 0.1 }),
    (p, g, _, s) => {
      for (let i = 0; i < p.length; i++) {
        p[i] -= 0.01 * (Math.sign(0.9 * s.m[i] + 0.1 * g[i]) + 0.1 * p[i]);
        s.m[i] = 0.99 * s.m[i] + 0.01 * g[i];
      }
    },
  );
});

test('a schedule warms up and comes down; lr can be set', async () => {
  const parameter = new nn.Parameter(tensor([0]));
  const opt = new optim.SGD([parameter], { lr: 1, schedule: { warmup: 2, total: 6, finalLr: 0.1 } });
  const rates = [];
  for (let i = 0; i < 7; i++) {
    const before = await parameter.item();
    parameter.sum().backward();
    opt.step();
    rates.push(before - (await parameter.item()));
  }
  const cosine = (/** @type {number} */ t) => 0.1 + 0.45 * (1 + Math.cos((Math.PI * (t - 2)) / 4));
  assertClose(rates, [0.5, 1, cosine(3), cosine(4), cosine(5), 0.1, 0.1], 1e-5, 'rates');
  opt.startAt(1);
  const before = await parameter.item();
  parameter.sum().backward();
  opt.step();
  assertClose([before - (await parameter.item())], [1], 1e-5, 'the second step again');
  for (const bad of [-1, 0.5, NaN, 2 ** 32]) assert.throws(() => opt.startAt(bad), /startAt: steps must be an integer from 0/);
  assert.throws(
    compile(() => void opt.startAt(1)),
    /startAt: set it outside of the compiled function/,
  );
  const constant = new optim.SGD([new nn.Parameter(tensor([0]))], { lr: 1 });
  constant.lr = 0.25;
  constant.groups[0].buckets[0].parameters[0].sum().backward();
  constant.step();
  assert.equal(await constant.groups[0].buckets[0].parameters[0].item(), -0.25);
});

test('startAt: moments, a step and the same options are a run that goes on, bit for bit', async () => {
  const start = tensor([1, -2, 3]);
  const make = () => {
    const p = new nn.Parameter(start.clone());
    const opt = new optim.AdamW([p], { lr: 0.1, clip: 0.5, schedule: { warmup: 2, total: 9 } });
    const step = () => {
      p.square().sum().backward();
      opt.step();
    };
    return { p, opt, step };
  };
  const whole = make();
  for (let i = 0; i < 3; i++) whole.step();
  const rest = make();
  rest.opt.lr = 0.1;
  noGrad(() => {
    rest.p.copy_(whole.p);
    for (const [name, moment] of Object.entries(whole.opt.stateDict()))
      if (!name.endsWith('state')) rest.opt.stateDict()[name].copy_(moment);
  });
  rest.opt.startAt(3);
  for (const { step } of [whole, rest]) for (let i = 0; i < 3; i++) step();
  assert.deepEqual(await rest.p.toArray(), await whole.p.toArray());
});

test('rates, decays and the norm can be set between steps, compiled and not; what is fixed says so', async () => {
  for (const compiled of [false, true]) {
    const make = [
      (/** @type {any} */ p) => new optim.SGD(p, { lr: 1 }),
      (/** @type {any} */ p) => new optim.Lion(p, { lr: 1 }),
      (/** @type {any} */ p) => new optim.AdamW(p, { lr: 1, weightDecay: 0 }),
    ];
    for (const optimizer of make) {
      const [a, b] = [new nn.Parameter(tensor([1])), new nn.Parameter(tensor([1]))];
      const opt = optimizer([{ params: [a] }, { params: [b] }]);
      const step = () => {
        a.mul(3).add(b.mul(4)).sum().backward();
        opt.step();
      };
      const run = compiled ? compile(step) : step;
      const after = async () => {
        noGrad(() => [a, b].map((p) => p.copy_(tensor([1]))));
        run();
        return Promise.all([a.item(), b.item()]);
      };
      const what = `${opt.constructor.name}${compiled ? ' compiled' : ''}`;
      const plain = opt instanceof optim.SGD ? [-2, -3] : [0, 0];
      const near = (/** @type {number[]} */ actual, /** @type {number[]} */ wanted, /** @type {string} */ when) =>
        actual.forEach((value, i) => void assert.ok(Math.abs(value - wanted[i]) < 1e-4, `${what}, ${when}: ${actual} for ${wanted}`));
      near(await after(), plain, 'at first');
      opt.groups[0].lr = 0;
      near(await after(), [1, plain[1]], "one group's rate");
      assert.equal(opt.lr, 0);
      opt.lr = 1;
      for (const decay of [0.5, 0.25]) {
        opt.groups[1].weightDecay = decay;
        near(await after(), [plain[0], plain[1] - decay], `a decay of ${decay}`);
      }
      opt.groups[1].weightDecay = 0;
      if (opt instanceof optim.SGD) {
        for (const clip of [1, 0.5]) {
          opt.clip = clip;
          near(await after(), [1 - 0.6 * clip, 1 - 0.8 * clip], `a norm of ${clip}`);
        }
        opt.clip = 0;
        const fixed = /** @type {any} */ (opt);
        assert.throws(() => (fixed.momentum = 0.5), /momentum/);
      }
      near(await after(), plain, 'at last');
      for (const bad of [-1, NaN, Infinity]) {
        assert.throws(() => void (opt.clip = bad), /clip: must be a number of at least 0/);
        assert.throws(() => void (opt.groups[0].weightDecay = bad), /weightDecay: must be a number of at least 0/);
      }
      const inside = compile(() => void (opt.groups[0].lr = 2));
      assert.throws(inside, /lr: set it outside of the compiled function/);
      opt.dispose();
    }
  }
});

test('300 groups step as one does, clipped by one norm, each with a rate of its own; compiled too', async () => {
  const [count, rates] = [300, /** @type {const} */ ([1, 0.5])];
  const weights = Array.from({ length: count }, (_, i) => i - count / 2);
  for (const clip of [0, 1]) {
    for (const compiled of [false, true]) {
      const params = weights.map(() => new nn.Parameter(tensor([0])));
      const groups = params.map((p, i) => ({ params: [p], lr: rates[i % 2] }));
      const opt = new optim.SGD(groups, { clip });
      const loss = (/** @type {typeof params} */ list) => list.map((p, i) => p.mul(weights[i]).sum()).reduce((a, b) => a.add(b));
      const step = () =>
        void scope(() => {
          loss(params).backward();
          opt.step();
        });
      (compiled ? compile(step) : step)();
      // The gradient of each is its weight.
      const norm = Math.hypot(...weights);
      const factor = clip ? clip / (norm + 1e-6) : 1;
      const got = await Promise.all(params.map(async (p) => (await p.toArray())[0]));
      const expected = Float64Array.from(weights, (w, i) => -rates[i % 2] * factor * w);
      assertClose(got, expected, 1e-6, `clip ${clip}, compiled ${compiled}`);
      opt.dispose();
    }
  }
  const params = weights.map(() => new nn.Parameter(tensor([0])));
  const opt = new optim.AdamW(
    params.map((p) => ({ params: [p] })),
    { lr: 0.25, clip: 1 },
  );
  scope(() => {
    params
      .map((p) => p.sum())
      .reduce((a, b) => a.add(b))
      .backward();
    opt.step();
  });
  // Its first step is the rate against the sign.
  for (const p of params) assertClose(await p.toArray(), Float64Array.of(-0.25), 1e-5, 'AdamW');
  opt.dispose();
});

test('gradientScale undoes a factor on the loss: the same bits for powers of two, clipped and not, compiled and not', async () => {
  for (const make of [optim.AdamW, optim.SGD, optim.Lion]) {
    for (const clip of [0, 0.5]) {
      /** @type {Map<string, number[]>} */
      const results = new Map();
      for (const compiled of [false, true]) {
        for (const factor of [1, 1024, 2 ** -12]) {
          const p = new nn.Parameter(tensor([1, -2, 3]));
          const opt = new make([p], { lr: 0.1, clip, gradientScale: 1 / factor });
          const step = (/** @type {any} */ x, /** @type {any} */ scale) => {
            p.mul(x).square().sum().mul(scale).backward();
            opt.step();
          };
          const f = compiled ? compile(step) : step;
          const x = tensor([0.3, 0.2, 0.1]);
          for (let i = 0; i < 3; i++) f(x, tensor(factor));
          // Another factor between steps, as dynamic loss scaling has it.
          opt.gradientScale = 0.5 / factor;
          assert.equal(opt.gradientScale, 0.5 / factor);
          f(x, tensor(2 * factor));
          results.set(`${compiled} ${factor}`, [...(await p.toArray())]);
          opt.dispose();
        }
      }
      const expected = results.get('false 1');
      for (const [what, values] of results) assert.deepEqual(values, expected, `${make.name}, clip ${clip}: ${what}`);
    }
  }
  const p = new nn.Parameter(tensor([1]));
  for (const bad of [0, -1, NaN, Infinity]) {
    assert.throws(() => new optim.SGD([p], { gradientScale: bad }), /SGD: gradientScale must be a number above 0, got/);
  }
  const opt = new optim.SGD([p]);
  assert.throws(() => void (opt.gradientScale = 0), /gradientScale must be a number above 0, got 0/);
  assert.throws(
    compile(() => void (opt.gradientScale = 2)),
    /gradientScale: set it outside of the compiled function/,
  );
  opt.dispose();
});

test('groups have rates and decays of their own, and share the norm; what has no gradient stays', async () => {
  const [a, b, c] = [1, 1, 1].map((v) => new nn.Parameter(tensor([v])));
  const opt = new optim.SGD(
    [
      { params: [a, c], lr: 1 },
      { params: [b], lr: 0.5, weightDecay: 0.5 },
    ],
    { clip: 1 },
  );
  a.mul(3).add(b.mul(4)).sum().backward();
  opt.step();
  assertClose(await Promise.all([a, b, c].map((p) => p.item())), [1 - 0.6, 1 - 0.5 * (0.8 + 0.5), 1], 1e-5, 'after a step');
});

test('an optimizer goes on from its stateDict', async () => {
  const run = async (/** @type {boolean} */ resume) => {
    manualSeed(3);
    const model = new nn.Linear(5, 3);
    let opt = new optim.AdamW(model.parameters(), { lr: 0.1, clip: 1 });
    for (let i = 0; i < 4; i++) {
      scope(() => {
        model
          .forward(tensor([[1, -2, 3, i, 1]]))
          .square()
          .sum()
          .backward();
        opt.step();
      });
      if (resume && i === 1) {
        const state = Object.fromEntries(Object.entries(opt.stateDict()).map(([name, value]) => [name, value.clone()]));
        opt.dispose();
        opt = new optim.AdamW(model.parameters(), { lr: 0.1, clip: 1 });
        opt.loadStateDict(state);
      }
    }
    return model.weight.toArray();
  };
  assert.deepEqual(await run(true), await run(false));
});

test('a parameter that is frozen between two uses in autocast has the gradient of the first', async () => {
  const [layer, x] = [new nn.Linear(4, 4), rand([2, 4])];
  const gradient = (/** @type {boolean} */ twice) =>
    grad(
      autocast('bf16', () => {
        const first = layer.forward(x).sum();
        layer.requiresGrad_(false);
        const second = layer.forward(x.requiresGrad_()).sum();
        layer.requiresGrad_();
        return twice ? first.add(second) : first;
      }),
      [layer.weight],
    )[0];
  for (const f of [gradient, compile(gradient)]) assert.deepEqual(await f(true).toArray(), await f(false).toArray());
});

test('a two-layer regression learns, with the same bits twice', async () => {
  const run = async () => {
    manualSeed(11);
    const x = rand([64, 8], { low: -1, high: 1 });
    const t = scope(() => x.square().sum(1, true));
    const model = new nn.Sequential(new nn.Linear(8, 32), new nn.GELU(), new nn.Dropout(0.01), new nn.Linear(32, 1));
    const opt = new optim.AdamW(model.parameters(), { lr: 1e-2, clip: 1 });
    const losses = [];
    for (let i = 0; i < 60; i++) {
      const loss = scope(() => {
        const loss = F.mseLoss(model.forward(x), t);
        loss.backward();
        opt.step();
        return loss;
      });
      if (i % 20 === 0 || i === 59) losses.push(await loss.item());
    }
    model.eval();
    const y = noGrad(() => model.forward(x));
    assert.deepEqual(await y.toArray(), await noGrad(() => model.forward(x)).toArray(), 'no dropout in eval()');
    return losses;
  };
  const losses = await run();
  assert.ok(losses[3] < losses[0] / 10, `losses ${losses}`);
  assert.deepEqual(await run(), losses);
});

/** A decoder as one writes it in PyTorch. */
class Block extends nn.Module {
  /** @param {number} width @param {number} heads @param {number} hidden */
  constructor(width, heads, hidden) {
    super();
    this.norm1 = new nn.RMSNorm(width);
    this.attention = new nn.MultiHeadAttention(width, heads, { rope: { base: 1e4 }, causal: true });
    this.norm2 = new nn.RMSNorm(width);
    this.mlp = new nn.SwiGLU(width, hidden);
  }
  /** @param {any} x */
  forward(x) {
    x = x.add(this.attention.forward(this.norm1.forward(x)));
    return x.add(this.mlp.forward(this.norm2.forward(x)));
  }
}

for (const headSize of [32, 12]) {
  test(`a GPT with heads of ${headSize} trains eagerly; its gradients are those of finite differences`, async () => {
    manualSeed(5);
    const width = 2 * headSize;
    const embed = new nn.Embedding(17, width);
    const blocks = new nn.ModuleList([new Block(width, 2, 48), new Block(width, 2, 48)]);
    const norm = new nn.RMSNorm(width);
    const head = new nn.Linear(width, 17, { bias: false });
    const whole = new nn.ModuleList([embed, ...blocks, norm, head]);
    const ids = tensor(
      [
        [1, 5, 3, 9, 16],
        [2, 0, 7, 7, 1],
      ],
      { dtype: 'i32' },
    );
    const targets = tensor(
      [
        [5, 3, 9, 16, 4],
        [0, 7, 7, 1, -100],
      ],
      { dtype: 'i32' },
    );
    const loss = () => {
      let x = embed.forward(ids);
      for (const block of blocks) x = block.forward(x);
      return F.crossEntropy(head.forward(norm.forward(x)), targets);
    };
    const value = () => scope(() => noGrad(loss)).item();
    scope(loss).backward();
    for (const [name, parameter] of whole.namedParameters()) {
      const gradient = /** @type {Float32Array} */ (await /** @type {any} */ (parameter.grad).toArray());
      // Along the gradient itself the loss grows by its squared norm.
      const norm2 = gradient.reduce((sum, v) => sum + v * v, 0);
      const h = 1e-2 / Math.sqrt(norm2);
      const direction = tensor(gradient, { shape: [...parameter.shape] });
      noGrad(() => parameter.add_(direction, { alpha: h }));
      const above = await value();
      noGrad(() => parameter.add_(direction, { alpha: -2 * h }));
      const below = await value();
      noGrad(() => parameter.add_(direction, { alpha: h }));
      const slope = (above - below) / (2 * h);
      assert.ok(Math.abs(slope - norm2) <= 0.02 * norm2 + 1e-4, `${name}: ${slope} along a gradient of squared norm ${norm2}`);
    }
    whole.zeroGrad();
    const opt = new optim.AdamW(whole.parameters(), { lr: 3e-3, clip: 1 });
    const first = await value();
    for (let i = 0; i < 30; i++) {
      scope(() => {
        loss().backward();
        opt.step();
      });
    }
    const last = await value();
    assert.ok(last < first / 4, `loss ${first} to ${last}`);
  });
}

test('names are those of PyTorch', () => {
  const block = new Block(64, 2, 96);
  assert.deepEqual(
    [...block.namedParameters()].map(([name, { shape }]) => `${name} ${shape}`),
    [
      'norm1.weight 64',
      'attention.qkv.weight 192,64',
      'attention.out.weight 64,64',
      'norm2.weight 64',
      'mlp.gateUp.weight 192,64',
      'mlp.down.weight 64,96',
    ],
  );
  assert.match(
    String(new nn.Sequential(new nn.Linear(2, 3), new nn.GELU())),
    /^Sequential\(\n {2}\(0\): Linear\(2, 3\)\n {2}\(1\): GELU\(\)\n\)$/,
  );
});
