// Parameters and submodules that are replaced, added or removed after a function was compiled or an optimizer was made.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, compile, full, manualSeed, nn, noGrad, ones, optim, randn, scope, tensor } from '../../nn/index.mjs';
import { initDevice, values } from './setup.mjs';

before(initDevice);

class Model extends nn.Module {
  constructor() {
    super();
    this.body = new nn.Linear(3, 4);
    this.blocks = new nn.ModuleList([new nn.Linear(4, 4)]);
    /** @type {nn.Module[]} */
    this.layers = [new nn.Tanh()];
    this.norm = new nn.BatchNorm2d(4);
    this.head = new nn.Linear(4, 2);
    /** @type {nn.Parameter | undefined} */
    this.shift = undefined;
    this.table = full([2], 3);
    /** Nothing that the forward pass computes with. @type {any} */
    this.seen = undefined;
    this.sizes = [1, 2, 3];
  }
  /** @param {any} x */
  forward(x) {
    let y = this.body.forward(x);
    for (const block of this.blocks) y = y.add(block.forward(y));
    for (const layer of this.layers) y = /** @type {any} */ (layer).forward(y);
    y = this.norm.forward(y.reshape(-1, 4, 1, 1)).reshape(-1, 4);
    y = this.head.forward(y).mul(this.table);
    return this.shift ? y.add(this.shift) : y;
  }
}

/** What a compiled step says of parameters that its optimizer has no memory for. */

/** What may happen to a model. @type {Record<string, (model: any) => void>} */
const CHANGES = {
  'a parameter': (model) => (model.head.weight = new nn.Parameter(randn([2, 4]))),
  'a parameter of a module in a list': (model) => (model.blocks.at(0).bias = new nn.Parameter(randn([4]))),
  'a parameter that is taken away': (model) => (model.body.bias = undefined),
  'a parameter where there was none': (model) => (model.shift = new nn.Parameter(ones([2]))),
  'a module': (model) => (model.head = new nn.Linear(4, 2)),
  'a module of a list': (model) => (model.blocks[0] = new nn.Linear(4, 4)),
  'a module more in a list': (model) => model.blocks.push(new nn.Linear(4, 4)),
  'a module less in a list': (model) => (model.blocks.length = 0),
  'a list': (model) => (model.blocks = new nn.ModuleList([new nn.Linear(4, 4)])),
  'a module of an array': (model) => (model.layers[0] = new nn.Sigmoid()),
  'a module more in an array': (model) => model.layers.push(new nn.Linear(4, 4)),
  'a module less in an array': (model) => model.layers.pop(),
  'an array': (model) => (model.layers = [new nn.Sigmoid()]),
  'modules in another order': (model) => {
    model.layers.push(new nn.Linear(4, 4));
    model.layers.reverse();
  },
  'a buffer of BatchNorm2d': (model) => (model.norm.running_mean = full([4], 0.5)),
  'a buffer of its own': (model) => (model.table = full([2], -1)),
  adapters: (model) => {
    nn.lora(model, { rank: 2 });
    for (const parameter of model.parameters()) if (parameter.requiresGrad) noGrad(() => parameter.fill_(0.5));
  },
};

for (const [name, change] of Object.entries(CHANGES)) {
  test(`${name} after compile: the next call is of what is there`, async () => {
    manualSeed(2);
    // Frozen: nothing is traced anew for a gradient that is no longer asked for.
    const model = new Model().eval().requiresGrad_(false);
    const x = randn([5, 3]);
    // By the method of the model, by functions of its parameters, and through a module around it.
    const whole = new nn.Sequential(model);
    const functions = [
      (/** @type {any} */ x) => model.forward(x),
      (/** @type {any} */ x) => whole.forward(x).square(),
      (/** @type {any} */ x) => noGrad(() => model.forward(x).mul(F.linear(ones([1, 4]), model.head.weight ?? full([2, 4], 1)))),
    ];
    const compiled = functions.map((f) => compile(f));
    const close = async (/** @type {string} */ when) => {
      for (const [i, f] of functions.entries()) {
        const [got, wanted] = await Promise.all([values(compiled[i](x)), values(f(x))]);
        got.forEach(
          (value, j) => void assert.ok(Math.abs(value - wanted[j]) <= 1e-5 * Math.max(1, Math.abs(wanted[j])), `${when} ${i}: ${got}`),
        );
      }
    };
    await close('at first');
    const before = await values(compiled[0](x));
    change(model);
    await close('changed');
    assert.notDeepEqual(await values(compiled[0](x)), before);
    for (const f of compiled) {
      assert.equal(f.explain().length, 2, 'one graph before, one after');
      f.dispose();
    }
  });
}

test('what is put back has its graph again, and what no trace has used makes no other', async () => {
  manualSeed(3);
  const model = new Model().eval();
  const f = compile((/** @type {any} */ x) => model.forward(x));
  const x = randn([5, 3]);
  const first = await values(f(x));
  const { head } = model;
  model.head = new nn.Linear(4, 2);
  assert.notDeepEqual(await values(f(x)), first);
  model.head = head;
  assert.deepEqual(await values(f(x)), first);
  assert.equal(f.explain().length, 2);
  // Tensors that are kept for a look, numbers, names that come and go; a module elsewhere.
  for (let i = 0; i < 3; i++) {
    model.seen = f(x);
    model.sizes.push(i);
    /** @type {any} */ (model)[`note${i}`] = i;
    new nn.Sequential(new nn.Linear(2, 2));
    assert.deepEqual(await values(f(x)), first);
  }
  assert.equal(f.explain().length, 2);
  // An array that is in itself.
  /** @type {any} */ (model).layers.push(/** @type {any} */ (model).layers);
  model.layers.pop();
  assert.deepEqual(await values(f(x)), first);
  f.dispose();
});

test('requiresGrad that changes after compile: what is frozen stays, what is thawed learns', async () => {
  const model = new nn.Sequential(new nn.Linear(2, 3), new nn.Linear(3, 1));
  const opt = new optim.SGD(model.parameters(), { lr: 0.1 });
  const step = compile((/** @type {any} */ x) => {
    model.forward(x).square().sum().backward();
    opt.step();
  });
  const x = tensor([1, 2], { shape: [1, 2] });
  const after = async () => {
    const before = await Promise.all(model.parameters().map(values));
    step(x);
    const now = await Promise.all(model.parameters().map(values));
    return now.map((value, i) => JSON.stringify(value) !== JSON.stringify(before[i]));
  };
  assert.deepEqual(await after(), [true, true, true, true]);
  model.at(0).requiresGrad_(false);
  assert.deepEqual(await after(), [false, false, true, true]);
  model.at(0).requiresGrad_();
  assert.deepEqual(await after(), [true, true, true, true]);
  opt.dispose();
});

test('an optimizer that steps what was replaced says so, compiled too; one of what is there now does not', async () => {
  const x = ones([1, 3]);
  for (const compiled of [false, true]) {
    const make = () => {
      const model = new Model().eval();
      const opt = new optim.AdamW(model.parameters());
      const once = (/** @type {any} */ x) => {
        model.forward(x).square().sum().backward();
        opt.step();
      };
      const step = compiled ? compile(once) : once;
      step(x);
      return { model, opt, step: () => void scope(() => step(x)) };
    };
    for (const [change, message] of /** @type {[(model: any) => void, RegExp][]} */ ([
      [
        (model) => (model.head.weight = new nn.Parameter(randn([2, 4]))),
        /step: weight of a Linear was replaced after the optimizer was made/,
      ],
      [(model) => (model.head = new nn.Linear(4, 2)), /step: head of a Model was replaced/],
      [(model) => (model.blocks[0] = new nn.Linear(4, 4)), /step: 0 of a ModuleList was replaced/],
      [(model) => nn.lora(model), /step: body of a Model was replaced/],
    ])) {
      const { model, opt, step } = make();
      change(model);
      const before = await values(model.norm.weight);
      assert.throws(step, message, `compiled ${compiled}`);
      assert.deepEqual(await values(model.norm.weight), before);
      // Made anew it goes on.
      opt.dispose();
      assert.throws(step, /step: the optimizer was disposed of/);
      for (const parameter of model.parameters()) parameter.zeroGrad();
      const other = new optim.AdamW(model.parameters().filter(({ requiresGrad }) => requiresGrad));
      model.forward(x).square().sum().backward();
      other.step();
      other.dispose();
    }
    // What is frozen, or stepped by another one, is nobody's loss.
    for (const change of [
      (/** @type {any} */ model) => void (model.head = new nn.Linear(4, 2).requiresGrad_(false)),
      (/** @type {any} */ model) => new optim.SGD((model.head = new nn.Linear(4, 2)).parameters()),
      (/** @type {any} */ model) => void (model.head.bias = undefined),
    ]) {
      const { model, opt, step } = make();
      change(model);
      const before = await values(model.norm.weight);
      step();
      assert.notDeepEqual(await values(model.norm.weight), before);
      opt.dispose();
    }
  }
});

test('a compiled step does not outlive its optimizer', async () => {
  const p = new nn.Parameter(ones([2]));
  const opt = new optim.SGD([p], { lr: 0.1 });
  const step = compile(() => {
    p.square().sum().backward();
    opt.step();
  });
  step();
  opt.dispose();
  const before = await values(p);
  assert.throws(step, /step: the optimizer was disposed of/);
  assert.deepEqual(await values(p), before);
});

test('a compiled function notices dropout, momentum, stride and padding that were set', async () => {
  const x = randn([4, 2, 6, 6]);
  const model = new nn.Sequential(new nn.Conv2d(2, 3, 3, { paddingMode: 'reflect' }), new nn.BatchNorm2d(3), new nn.Dropout(0.5));
  const [conv, norm, dropout] = model;
  const step = compile((/** @type {any} */ v) => model.forward(v));
  step(x);
  dropout.p = 0;
  norm.momentum = 1;
  const y = step(x);
  // With a momentum of 1 the running mean is that of the batch, which is what was subtracted.
  const plain = conv.forward(x);
  const near = async (/** @type {any} */ a, /** @type {any} */ b) => F.allclose(a, b, { rtol: 1e-5, atol: 1e-5 });
  assert.ok(await near(norm.running_mean, plain.mean([0, 2, 3])));
  assert.ok(
    await near(y, plain.sub(plain.mean([0, 2, 3], true)).div(F.sqrt(F.var(plain, [0, 2, 3], { correction: 0, keepdim: true }).add(1e-5)))),
  );
  conv.stride = 2;
  assert.deepEqual(step(x).shape, [4, 3, 2, 2]);
  conv.padding = 1;
  assert.deepEqual(step(x).shape, [4, 3, 3, 3]);
  conv.dilation = 2;
  assert.deepEqual(step(x).shape, [4, 3, 2, 2]);
  const before = step.explain().length;
  step(x);
  assert.equal(step.explain().length, before, 'and is not traced again without a change');
  dropout.p = 1;
  assert.deepEqual([...new Set(await values(step(x)))], [0]);
  assert.throws(() => void (dropout.p = 2), /Dropout: p must be in \[0, 1\], got 2/);
  assert.throws(() => void (norm.momentum = -1), /BatchNorm2d: momentum must be a number of at least 0, got -1/);
});

test('and what layers have that drop within, and a padding that a forward of its own reads', async () => {
  const x = randn([2, 3, 4]);
  for (const [layer, call] of /** @type {[any, (layer: any, v: any) => any][]} */ ([
    [new nn.GRU(4, 4, { numLayers: 2, dropout: 0.9 }), (l, v) => l.forward(v)[0]],
    [new nn.MultiheadAttention(4, 2, { dropout: 0.9 }), (l, v) => l.forward(v, v, v)[0]],
  ])) {
    const step = compile((/** @type {any} */ v) => call(layer, v));
    step(x);
    layer.dropout = 0;
    assert.ok(await F.allclose(step(x), call(layer, x), { rtol: 1e-5, atol: 1e-5 }), layer.constructor.name);
  }
  class Standardized extends nn.Conv2d {
    /** @param {any} v */
    forward(v) {
      return F.conv2d(v, F.mul(this.weight, 2), this.bias, { padding: this.padding, groups: this.groups });
    }
  }
  const conv = new Standardized(2, 2, 3, { groups: 2 });
  const step = compile((/** @type {any} */ v) => conv.forward(v));
  const images = randn([1, 2, 5, 5]);
  assert.deepEqual(step(images).shape, [1, 2, 3, 3]);
  conv.padding = 1;
  assert.deepEqual(step(images).shape, [1, 2, 5, 5]);
  assert.throws(() => void Object.assign(conv, { groups: 1 }), TypeError, 'the weight has the groups');
});
