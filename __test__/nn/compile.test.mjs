// Compiled functions: many calls give the same bits as eager code; changes that require another trace; functions that cannot be compiled.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, compile, grad, manualSeed, memory, nn, noGrad, optim, rand, randn, scope, tensor, zeros } from '../../nn/index.mjs';
import { SharedSlots, planMemory } from '../../nn/core/memory.mjs';
import { runtime } from '../../nn/core/runtime.mjs';
import { vk } from '../lib/addon.mjs';
import { EXACT, PASSES } from '../../nn/compile/passes/index.mjs';
import { Random } from '../lib/random.mjs';
import { assertClose, seed } from '../lib/random-data.mjs';
import { warningsOf } from '../lib/warnings.mjs';
import { initDevice } from './setup.mjs';

/** @typedef {import('../../nn/api/tensor.mjs').Tensor} Tensor */

before(initDevice);

test('planMemory: no two live values share a slot, and no more memory than one slot each', () => {
  const random = new Random(seed);
  for (let round = 0; round < 200; round++) {
    const values = Array.from({ length: random.between(1, 40) }, () => {
      const first = random.below(30);
      return { bytes: 16 * random.between(1, 20_000), first, last: random.chance(0.1) ? Infinity : first + random.below(8) };
    });
    const { slots, of } = planMemory(values);
    for (const [i, a] of values.entries()) {
      assert.ok(slots[of[i]] >= a.bytes);
      for (const [j, b] of values.entries()) {
        if (i < j && of[i] === of[j]) assert.ok(a.last < b.first || b.last < a.first, `values ${i} and ${j} share slot ${of[i]}`);
      }
    }
    assert.ok(slots.reduce((x, y) => x + y, 0) <= values.reduce((sum, { bytes }) => sum + bytes, 0));
  }
  const chain = Array.from({ length: 50 }, (_, i) => ({ bytes: 1 << 20, first: i, last: i + 1 }));
  assert.equal(planMemory(chain).slots.length, 2, 'a chain takes two');
});

/** A model with everything in it that has state. */
function training() {
  manualSeed(9);
  const model = new nn.Sequential(new nn.Linear(6, 16), new nn.GELU(), new nn.Dropout(0.2), new nn.RMSNorm(16), new nn.Linear(16, 3));
  const opt = new optim.AdamW(model.parameters(), { lr: 1e-2, clip: 1, schedule: { warmup: 2, total: 50 } });
  const step = (/** @type {any} */ x, /** @type {any} */ t) => {
    const logits = model.forward(x);
    const loss = F.crossEntropy(logits, t);
    loss.backward();
    opt.step();
    return { loss, logits };
  };
  return { model, opt, step };
}

test('compiled functions share the memory of intermediate results, and none that of what they return', async () => {
  const x = randn([256, 256], { deviation: 0.1 });
  const other = x.mul(2);
  const bytes = 256 * 256 * 4;
  const far = () => {
    const chain = (/** @type {any} */ y) => y.matmul(x).tanh().matmul(x).tanh().matmul(x).tanh();
    return compile((/** @type {any} */ y) => chain(y).sum(1), { reuseOutputs: true });
  };
  const held = () => {
    runtime().flush();
    return memory();
  };
  const start = held();
  const [f, g] = [far(), far()];
  const a = f(x);
  const expected = await a.toArray();
  const alone = held();
  const b = g(other);
  const both = held();
  // Each graph has memory for its argument and its result; what they make in between is there once.
  assert.equal(alone.bytes - start.bytes, 3 * bytes + 1024);
  assert.equal(both.bytes - alone.bytes, bytes + 1024);
  assert.deepEqual(await a.toArray(), expected, 'the result of one stays where it is while the other runs');
  const twice = await b.toArray();
  for (let i = 0; i < 3; i++) {
    assert.deepEqual(await f(x).toArray(), expected);
    assert.deepEqual(await g(other).toArray(), twice);
  }
  f.dispose();
  assert.deepEqual(await g(other).toArray(), twice, 'what is shared stays while one uses it');
  g.dispose();
  assert.equal(runtime().slots.users.size, 0);
});

test('SharedSlots: the smallest that is large enough, each once for a graph; all or nothing', () => {
  /** @type {any[]} */
  const live = [];
  let left = Infinity;
  const slots = new SharedSlots(
    (bytes) => {
      if (bytes > left) throw new Error('no memory');
      live.push({ bytes });
      return live[live.length - 1];
    },
    (slot) => void live.splice(live.indexOf(slot), 1),
  );
  const bytes = (/** @type {any[]} */ list) => list.map((slot) => slot.bytes);
  const a = slots.take([100, 10, 1000]);
  assert.deepEqual(bytes(a), [100, 10, 1000]);
  const b = slots.take([5, 50, 200, 7]);
  assert.deepEqual(bytes(b), [5, 100, 1000, 10]);
  assert.equal(new Set(b).size, 4);
  assert.equal(live.length, 4);
  left = 20;
  assert.throws(() => slots.take([1, 15, 1, 1, 1, 500, 900]), /no memory/);
  assert.deepEqual(bytes(live), [1000, 100, 10, 5], 'nothing of it stays');
  slots.giveBack(a);
  assert.equal(live.length, 4);
  slots.giveBack(b);
  assert.deepEqual(live, []);
});

test('SharedSlots: an allocation that frees another graph takes no slot from the graph that is being made', () => {
  /** @type {any[]} */
  const live = [];
  /** @type {any[] | undefined} */
  let held;
  const slots = new SharedSlots(
    (bytes) => {
      // What collecting garbage does: it disposes of a graph that nobody holds.
      if (held) slots.giveBack(held.splice(0));
      live.push({ bytes });
      return live[live.length - 1];
    },
    (slot) => void live.splice(live.indexOf(slot), 1),
  );
  held = slots.take([100]);
  const own = slots.take([90, 10]);
  for (const slot of own) assert.ok(live.includes(slot), `a slot of ${slot.bytes} bytes was freed`);
  slots.giveBack(own);
  assert.deepEqual(live, []);
});

test('lists of dispatches that are submitted again give the bits of a recorded graph, and can be profiled', async () => {
  const [x, t] = [randn([8, 6]), tensor(Int32Array.from({ length: 8 }, (_, i) => i % 3))];
  /** @type {number[][]} */
  const losses = [];
  for (const graph of [true, false]) {
    const { model, opt, step } = training();
    const f = compile(step, { graph });
    const own = [];
    for (let i = 0; i < 4; i++) {
      const { loss } = f(x, t);
      own.push(await loss.item());
    }
    f.profile(x, t);
    own.push(await f(x, t).loss.item());
    losses.push(own);
    for (const each of [f, opt, model]) each.dispose();
  }
  assert.deepEqual(losses[1], losses[0]);
  assert.ok(losses[0][5] !== losses[0][4]);
  assert.deepEqual(compile(() => 3, { graph: false })(), 3);
});

test('a training step has the same bits compiled as eager, from device data and from host data', async () => {
  const batches = Array.from({ length: 5 }, () => ({ x: randn([8, 6]), t: tensor(Int32Array.from({ length: 8 }, (_, i) => i % 3)) }));
  /** @param {'eager' | 'device' | 'host' | 'fused'} how */
  const run = async (how) => {
    const { model, step } = training();
    // Sums that are fused with what is before them add in another order.
    const passes = PASSES.filter((name) => how === 'fused' || name !== 'fuse');
    const f = how === 'eager' ? step : compile(how === 'host' ? (x, t) => step(x.reshape(8, 6), t) : step, { passes });
    const results = [];
    for (const { x, t } of batches) {
      const args = how === 'host' ? [await x.toArray(), await t.toArray()] : [x, t];
      const { loss, logits } = /** @type {any} */ (f)(...args);
      results.push(await loss.item(), ...(await logits.toArray()));
    }
    results.push(...(await model.stateDict()['0.weight'].toArray()));
    if (how !== 'eager') {
      const [{ dispatches, planned, unplanned }] = /** @type {any} */ (f).explain();
      assert.equal(/** @type {any} */ (f).explain().length, 1, 'one trace');
      assert.ok(dispatches > 10 && planned < unplanned, `${dispatches} dispatches, ${planned} of ${unplanned} bytes`);
    }
    return results;
  };
  const eager = await run('eager');
  assert.deepEqual(await run('device'), eager);
  assert.deepEqual(await run('host'), eager);
  assertClose(await run('fused'), Float64Array.from(eager), 1e-4, 'fused');
});

test('random programs: compiled is eager, call after call, to the bit but for passes that add in another order', async () => {
  const random = new Random(seed + 1);
  for (let round = 0; round < 8; round++) {
    const shapes = [
      [4, 6],
      [1, 6],
      [4, 1],
      [6, 4],
    ];
    const steps = Array.from({ length: 12 }, () => [random.below(6), random.u32(), random.u32()]);
    const program = (/** @type {any[]} */ ...inputs) => {
      const values = [...inputs];
      for (const [kind, i, j] of steps) {
        const a = values[i % values.length];
        const b = values[j % values.length];
        if (kind === 0) values.push(a.tanh());
        else if (kind === 1) values.push(a.T);
        else if (kind === 2) values.push(F.softmax(a));
        else if (kind === 3 && a.shape[1] === b.shape[0]) values.push(a.matmul(b));
        else if (kind === 4) values.push(a.sum(i % 2, true).mul(0.5));
        else if (a.shape.every((/** @type {number} */ n, /** @type {number} */ d) => n === b.shape[d] || n === 1 || b.shape[d] === 1))
          values.push(a.sub(b));
      }
      return values.slice(-3).map((v) => v.tanh());
    };
    const [exact, f] = [compile(program, { passes: EXACT }), compile(program)];
    for (let call = 0; call < 3; call++) {
      const inputs = shapes.map((shape) => randn(shape));
      const results = (/** @type {any[]} */ made) => Promise.all(made.map((y) => y.toArray()));
      const wanted = await results(program(...inputs));
      const what = `round ${round}, call ${call}, seed ${seed}`;
      assert.deepEqual(await results(exact(...inputs)), wanted, what);
      const fused = await results(f(...inputs));
      fused.forEach((y, i) => assertClose(y, Float64Array.from(wanted[i]), 1e-5, what));
    }
    for (const each of [exact, f]) each.dispose();
  }
});

test('what is written in place is read as it is then, in one kernel or not', async () => {
  manualSeed(4);
  const x = randn([8, 5, 5]);
  const state = zeros([8, 5, 5]);
  /** @type {Record<string, () => Tensor>} */
  const programs = {
    'written, then read': () => {
      state.copy_(F.mul(state, 0.5));
      return F.add(state, x);
    },
    'read, written, read': () => {
      const old = F.add(state, 0.5);
      state.copy_(F.tanh(F.mul(state, x)));
      return F.sub(state, old);
    },
    'ranges that overlap': () => {
      const twice = F.mul(F.slice(x, 0, 0, 6), 2);
      F.slice(state, 0, 0, 6).copy_(F.add(twice, 1));
      F.slice(state, 0, 2, 8).copy_(F.mul(twice, 3));
      return F.mul(state, 1);
    },
  };
  for (const [name, program] of Object.entries(programs)) {
    const results = [];
    for (const run of [program, compile(program)]) {
      state.fill_(1);
      results.push(await run().toArray(), await state.toArray());
    }
    assert.deepEqual(results.slice(2), results.slice(0, 2), name);
  }
});

test('other shapes, other numbers, eval(), frozen parameters and new memory are other traces', async () => {
  const model = new nn.Sequential(new nn.Linear(3, 4), new nn.Dropout(0.5));
  let traces = 0;
  const f = compile((/** @type {any} */ x, /** @type {any} */ options) => {
    traces++;
    return model.forward(x).mul(options.scale).sum();
  });
  const x = randn([2, 3]);
  f(x, { scale: 1 });
  f(x, { scale: 1 });
  assert.equal(traces, 1);
  f(x, { scale: 2 });
  assert.equal(traces, 2, 'another number');
  f(randn([5, 3]), { scale: 2 });
  assert.equal(traces, 3, 'another shape');
  model.eval();
  f(x, { scale: 1 });
  assert.equal(traces, 4, 'eval');
  const eager = await model.forward(x).sum().item();
  assert.equal(await f(x, { scale: 1 }).item(), eager);
  model.train();
  f(x, { scale: 1 });
  assert.equal(traces, 4, 'back in the first mode');
  const opt = new optim.SGD(model.parameters());
  f(x, { scale: 1 });
  assert.equal(traces, 5, 'parameters lie elsewhere');
  model.requiresGrad_(false);
  f(x, { scale: 1 });
  assert.equal(traces, 6, 'frozen');
  f.dispose();
  opt.dispose();
});

test('strings that look like several arguments, and symbols of one name, are arguments of their own', async () => {
  const x = tensor([1]);
  const count = compile((/** @type {any[]} */ ...args) => x.mul(args.length));
  assert.equal(await count('a', 'b').item(), 2);
  assert.equal(await count('a string:b').item(), 1);
  assert.equal(await count('a" string:"b').item(), 1);
  const [one, other] = [Symbol('name'), Symbol('name')];
  const which = compile((/** @type {symbol} */ symbol) => x.mul(symbol === one ? 1 : symbol === other ? 2 : 3));
  for (let i = 0; i < 2; i++) {
    const results = [one, other, Symbol.for('name')].map((symbol) => which(symbol).item());
    assert.deepEqual(await Promise.all(results), [1, 2, 3]);
  }
  assert.equal(which.explain().length, 3);
});

test('a recording that fails gives its memory back', () => {
  const device = runtime();
  const x = randn([300]);
  const f = () => compile((/** @type {any} */ y) => [y.mul(2), y.add(1), x.reshape(10, 30)])(x);
  device.flush();
  const [before, shares] = [memory(), x.storage?.shares];
  const check = (/** @type {RegExp} */ message) => {
    assert.throws(f, message);
    assert.deepEqual(memory(), before);
    assert.equal(x.storage?.shares, shares);
  };
  const broken = Object.create(device.vk);
  broken.batchExecuteAll = () => {
    throw new Error('the list is refused');
  };
  device.vk = broken;
  try {
    check(/the list is refused/);
  } finally {
    device.vk = Object.getPrototypeOf(broken);
  }
  // The argument's copy, one result, and the other finds no memory.
  let left = 2;
  device.allocate = (bytes, owned) => {
    if (left-- === 0) throw new Error('out of memory');
    return Object.getPrototypeOf(device).allocate.call(device, bytes, owned);
  };
  try {
    check(/out of memory/);
  } finally {
    delete (/** @type {any} */ (device).allocate);
  }
  assert.equal(f().length, 3);
});

test('a trace that throws behind a step has changed nothing: neither parameters nor what earlier results need of them', async () => {
  for (const make of [
    (/** @type {any} */ p) => new optim.SGD(p, { lr: 0.1, momentum: 0.9 }),
    (/** @type {any} */ p) => new optim.AdamW(p),
  ]) {
    const run = async (/** @type {boolean} */ fails) => {
      manualSeed(9);
      const model = new nn.Sequential(new nn.Linear(6, 8), new nn.GELU(), new nn.Linear(8, 3));
      const opt = make(model.parameters());
      const x = tensor(
        Float32Array.from({ length: 24 }, (_, i) => Math.sin(i)),
        { shape: [4, 6] },
      );
      const earlier = model.forward(x).square().mean();
      let left = fails ? 1 : 0;
      const step = compile((/** @type {any} */ input) => {
        const loss = model.forward(input).square().mean();
        loss.backward();
        opt.step();
        if (left-- > 0) throw new Error('of the program');
        return loss;
      });
      if (fails) assert.throws(() => step(x), /^Error: of the program$/);
      earlier.backward();
      const losses = [await step(x).item(), await step(x).item()];
      return [...losses, ...(await model.at(0).weight.toArray())];
    };
    assert.deepEqual(await run(true), await run(false));
  }
});

test('a step leaves alone what it does not change: groups without gradients', () => {
  const one = new nn.Linear(2, 2);
  const other = new nn.Sequential(new nn.Linear(2, 2), new nn.Linear(2, 2));
  const opt = new optim.AdamW([{ params: one.parameters() }, { params: other.parameters() }]);
  const x = tensor([[1, 2]]);
  const earlier = other.forward(x).square().sum();
  one.forward(x).sum().backward();
  opt.step();
  earlier.backward();
  assert.deepEqual(other.at(0).weight.grad?.shape, [2, 2]);
});

test('parameters are read where they are: what is loaded, or set by lr, shows in the next call', async () => {
  const model = new nn.Linear(2, 1, { bias: false });
  const opt = new optim.SGD(model.parameters(), { lr: 1 });
  model.loadStateDict({ weight: tensor([[1, 2]]) });
  const step = compile((/** @type {any} */ x) => {
    const y = model.forward(x).sum();
    y.backward();
    opt.step();
    return y;
  });
  const x = tensor([[1, 1]]);
  assert.equal(await step(x).item(), 3);
  assert.equal(await step(x).item(), 1);
  opt.lr = 0.5;
  assert.equal(await step(x).item(), -1);
  assert.equal(await step(x).item(), -2);
  model.loadStateDict({ weight: tensor([[10, 10]]) });
  assert.equal(await step(x).item(), 20);
  assert.equal(step.explain().length, 1);
});

test('gradients accumulate over calls where the function does not step', async () => {
  const model = new nn.Linear(2, 1, { bias: false });
  const opt = new optim.SGD(model.parameters(), { lr: 1 });
  const backward = compile((/** @type {any} */ x) => model.forward(x).sum().backward());
  for (let i = 1; i <= 4; i++) backward(tensor([[1, i]]));
  assert.deepEqual([...(await /** @type {any} */ (model.weight.grad).toArray())], [4, 10]);
  assert.equal(backward.explain().length, 2, 'the first overwrites, the others add');
  opt.zeroGrad();
  backward(tensor([[5, 6]]));
  assert.deepEqual([...(await /** @type {any} */ (model.weight.grad).toArray())], [5, 6]);
});

test('an optimizer of the program’s own: gradients that are cleared before the function ends need no memory', async () => {
  const results = [];
  for (const compiled of [false, true]) {
    const layer = new nn.Linear(2, 1, { bias: false });
    layer.loadStateDict({ weight: tensor([[1, -2]]) });
    const velocity = zeros([1, 2]);
    const run = (/** @type {any} */ x) => {
      layer.zeroGrad();
      const loss = layer.forward(x).square().sum();
      loss.backward();
      noGrad(() => {
        velocity.mul_(0.5).add_(/** @type {any} */ (layer.weight.grad));
        layer.weight.add_(velocity, { alpha: -0.125 });
      });
      if (!compiled || x.shape[0] === 1) layer.zeroGrad();
      return loss;
    };
    const step = compiled ? compile(run) : run;
    layer
      .forward(tensor([[1, 1]]))
      .sum()
      .backward(); // A gradient from before, which the first call clears.
    for (let i = 0; i < 3; i++) results.push(await step(tensor([[1, i]])).item());
    results.push(...(await layer.weight.toArray()));
    assert.equal(layer.weight.grad, undefined);
    if (!compiled) continue;
    assert.throws(
      () =>
        step(
          tensor([
            [1, 2],
            [3, 4],
          ]),
        ),
      /would lie in memory of the compiled function.*clear it with zeroGrad.*\(compile\.test\.mjs:\d+\)/,
    );
    assert.deepEqual([...(await layer.weight.toArray())], results.slice(-2), 'nothing has run');
  }
  assert.deepEqual(results.slice(5), results.slice(0, 5));
});

test('a gradient that a compiled function clears is there until it is called', async () => {
  const layer = new nn.Linear(2, 1, { bias: false });
  const run = (/** @type {import('../../nn/index.mjs').Tensor} */ x, /** @type {boolean} */ fails = false) => {
    layer.zeroGrad();
    if (fails) throw new RangeError('no');
    return layer.forward(x);
  };
  const x = tensor([[1, 2]]);
  layer.forward(x).sum().backward();
  const gradient = /** @type {import('../../nn/index.mjs').Tensor} */ (layer.weight.grad);
  const step = compile(run);
  assert.throws(() => step(x, true), /^RangeError: no/);
  step.prepare(x);
  assert.equal(layer.weight.grad, gradient);
  assert.deepEqual([...(await gradient.toArray())], [1, 2]);
  step(x);
  assert.deepEqual([layer.weight.grad, gradient.disposed], [undefined, true]);
});

test('what cannot be compiled says why, and leaves everything as it was', async () => {
  const w = new nn.Parameter(tensor([1, 2]));
  const before = memory();
  /** @type {any} */
  let escaped;
  assert.throws(() => compile(async () => {}), /the function is async/);
  assert.throws(() => compile(() => Promise.resolve(1))(), /the function is async/);
  assert.throws(() => compile(() => w.mul(2).sum().backward())(), /make the optimizer before the first call.*or take gradients with grad/);
  assert.throws(() => compile(() => new nn.Linear(2, 2))(), /make modules outside of it/);
  assert.throws(() => compile(() => new optim.SGD([w]))(), /make the optimizer outside of the compiled function/);
  assert.throws(
    () => compile((/** @type {any} */ x) => x.add(zeros([3])))(zeros([2])),
    /add: \[2\] and \[3\] do not broadcast.*\(compile\.test\.mjs:\d+\)/,
  );
  /** @type {Promise<any>[]} */
  const reads = [];
  const f = compile((/** @type {any} */ x) => {
    escaped = x.add(1);
    reads.push(escaped.item().catch((/** @type {Error} */ error) => error.message));
    return escaped.mul(2);
  });
  assert.deepEqual([...(await f(tensor([1])).toArray())], [4]);
  assert.match(await reads[0], /a tensor has no values while its function is compiled: return the tensor/);
  assert.throws(() => escaped.add(1), /was made while a function was compiled and never had a value: return it/);
  assert.equal(w.grad, undefined);
  f.dispose();
  assert.deepEqual([...(await w.toArray())], [1, 2]);
  assert.ok(memory().buffers <= before.buffers + 4, 'traces that failed hold no memory');
});

test('gradients taken with grad, and nested compiled functions', async () => {
  const inner = compile((/** @type {any} */ x) => x.square());
  const f = compile((/** @type {any} */ x) => grad(inner(x).sum(), [x])[0]);
  assert.deepEqual([...(await f(tensor([1, 2, 3], { requiresGrad: true })).toArray())], [2, 4, 6]);
});

test('results keep their values; with reuseOutputs an old one says that it is old', async () => {
  const f = compile((/** @type {any} */ x) => ({ y: x.mul(2), rows: x.T, same: x }));
  const [first, second] = [f(tensor([[1, 2]])), f(tensor([[3, 4]]))];
  assert.deepEqual(await Promise.all([first.y, first.rows, first.same, second.y].map(async (t) => [...(await t.toArray())])), [
    [2, 4],
    [1, 2],
    [1, 2],
    [6, 8],
  ]);
  const g = compile((/** @type {any} */ x) => x.mul(2), { reuseOutputs: true });
  const a = g(tensor([1]));
  const b = g(tensor([2]));
  assert.throws(() => a.add(1), /was the result of an earlier call of a compiled function/);
  assert.equal(await b.item(), 4);
});

test('a call is one launch; many calls and traces leave no memory behind', async () => {
  const { step } = training();
  const f = compile(step);
  const [x, t] = [randn([8, 6]), tensor(new Int32Array(8))];
  scope(() => void f(x, t));
  const before = memory();
  const counts = vk.getStats();
  for (let i = 0; i < 20; i++) scope(() => void f(x, t));
  assert.deepEqual(memory(), before);
  assert.equal(vk.getStats().graphLaunches - counts.graphLaunches, 20);
  const square = compile((/** @type {any} */ y) => y.square().sum());
  const warnings = await warningsOf(() => {
    for (let n = 1; n <= 12; n++) scope(() => void square(rand([n])));
  });
  assert.equal(square.explain().length, 8, 'the eight last used');
  assert.deepEqual(
    warnings.map(({ code }) => code),
    ['HELIOS_NN_TRACES'],
  );
  square.dispose();
  f.dispose();
  runtime().flush();
  assert.ok(memory().bytes < before.bytes);
});

test('what stands in several places of the arguments is one input, whose gradient is of all of them', async () => {
  const square = (/** @type {any} */ a, /** @type {any} */ { b }) => grad(a.mul(b).sum(), [a])[0];
  const [x, y] = [tensor([1, 2], { requiresGrad: true }), tensor([3, 4], { requiresGrad: true })];
  const f = compile(square);
  for (const [a, b] of [
    [x, x],
    [x, y],
    [y, y],
    [y, x],
  ])
    assert.deepEqual([...(await f(a, { b }).toArray())], [...(await square(a, { b }).toArray())]);
  assert.equal(f.explain().length, 2);
  f.dispose();
});

test('tensors from outside are returned themselves, and their views as views; one that is gone says so before anything runs', async () => {
  const [w, v, count] = [tensor([1, 2]), tensor([3, 4]), zeros([1])];
  for (const options of [{}, { reuseOutputs: true }]) {
    const f = compile((/** @type {any} */ x) => {
      count.add_(1);
      return [w, v, v.slice(0, 1, 2), x.add(v)];
    }, options);
    for (let i = 0; i < 3; i++) {
      const [a, b, view, sum] = f(tensor([1, 1]));
      assert.ok(a === w && b === v);
      view.add_(1);
      const numbers = await Promise.all([view, v, sum].map(async (y) => [...(await y.toArray())]));
      assert.deepEqual(numbers, [[5], [3, 5], [4, 5]]);
      v.copy_(tensor([3, 4]));
      assert.ok(!w.disposed && !v.disposed);
    }
    f.dispose();
  }
  const f = compile(() => {
    count.add_(1);
    return w;
  });
  f();
  const before = await count.item();
  w.dispose();
  assert.throws(f, /compile: the tensor was disposed of/);
  assert.equal(await count.item(), before);
});

test('results in the memory of a graph end with the compiled function, and with a profile of it', async () => {
  for (const end of /** @type {const} */ (['dispose', 'profile'])) {
    const f = compile((/** @type {any} */ x) => x.add(1), { reuseOutputs: true });
    const y = f(tensor([1, 2]));
    f[end](tensor([3, 4]));
    await assert.rejects(y.toArray(), /reuseOutputs/, end);
    f.dispose();
  }
});
