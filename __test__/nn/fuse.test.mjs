// Fused kernels of `compile`: formulas that users write take few dispatches and agree with float64; random programs with reductions.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, compile, grad, manualSeed, nn, noGrad, optim, randn, scope, tensor } from '../../nn/index.mjs';
import { PASSES } from '../../nn/compile/passes/index.mjs';
import { scaled } from '../lib/addon.mjs';
import { Random } from '../lib/random.mjs';
import { assertClose, seed } from '../lib/random-data.mjs';
import { initDevice, values } from './setup.mjs';

before(initDevice);

const random = new Random(seed);
const UNFUSED = PASSES.filter((name) => name !== 'fuse');
/** @param {any} result */
const flat = async (result) => (await Promise.all([result].flat().map(values))).flat();

/**
 * Runs a program compiled with and without fusing.
 * @param {(...args: any[]) => any} program @param {any[]} args
 */
async function both(program, args) {
  const [all, unfused] = [compile(program), compile(program, { passes: UNFUSED })];
  const results = [];
  for (const f of [all, unfused]) {
    const first = await flat(scope(() => f(...args)));
    assert.deepEqual(await flat(scope(() => f(...args))), first, 'the same bits again');
    results.push(first);
  }
  const dispatches = [all, unfused].map((f) => f.explain()[0].dispatches);
  for (const f of [all, unfused]) f.dispose();
  return { fused: results[0], unfused: results[1], dispatches };
}

/** Rows of numbers, and what each row becomes in float64. @param {any} x @param {(row: number[]) => number[]} f */
const byRows = async (x, f) => {
  const all = await values(x);
  const columns = x.shape.at(-1);
  return Array.from({ length: all.length / columns }, (_, r) => f(all.slice(r * columns, (r + 1) * columns))).flat();
};
/** @param {number[]} list */
const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;

for (const [rows, columns] of /** @type {const} */ ([
  [1, 5],
  [7, 64],
  [130, 33],
  [3, 4096],
])) {
  test(`compositions along rows of ${rows} × ${columns} are one kernel each, against float64`, async () => {
    const x = randn([rows, columns]);
    const softmax = await both(
      (/** @type {any} */ h) => {
        const e = h.sub(h.amax(-1, true)).exp();
        return e.div(e.sum(-1, true));
      },
      [x],
    );
    assert.equal(softmax.dispatches[0], 1);
    const wanted = await byRows(x, (row) => {
      const e = row.map((v) => Math.exp(v - Math.max(...row)));
      return e.map((v) => v / e.reduce((a, b) => a + b, 0));
    });
    assertClose(softmax.fused, Float64Array.from(wanted), 1e-5, 'softmax');

    const norm = await both(
      (/** @type {any} */ h) => {
        const centred = h.sub(h.mean(-1, true));
        return centred.mul(centred.square().mean(-1, true).add(1e-5).rsqrt());
      },
      [x],
    );
    assert.equal(norm.dispatches[0], 1);
    const normed = await byRows(x, (row) => {
      const m = mean(row);
      return row.map((v) => (v - m) / Math.sqrt(mean(row.map((u) => (u - m) ** 2)) + 1e-5));
    });
    assertClose(norm.fused, Float64Array.from(normed), 1e-5, 'norm');
    assert.ok(norm.dispatches[1] >= 6, `${norm.dispatches}`);
  });
}

test('a loss, its gradient, and the sums of a layer are few dispatches', async () => {
  const [y, t] = [randn([48, 12], { requiresGrad: true }), randn([48, 12])];
  const mse = await both(
    (/** @type {any} */ a, /** @type {any} */ b) => {
      const loss = F.mseLoss(a, b);
      return [loss.detach(), ...grad(loss, [a])];
    },
    [y, t],
  );
  // The gradient is copied to the caller's memory.
  assert.ok(mse.dispatches[0] <= 2, `${mse.dispatches}`);
  const [a, b] = [await values(y), await values(t)];
  const loss = mean(a.map((v, i) => (v - b[i]) ** 2));
  assertClose(mse.fused, Float64Array.from([loss, ...a.map((v, i) => (2 * (v - b[i])) / a.length)]), 1e-5, 'mse');

  // Statistics of a batch, and the gradients of a norm written by hand.
  const weight = randn([12], { requiresGrad: true });
  const batch = (/** @type {any} */ h, /** @type {any} */ w, /** @type {any} */ dy) => {
    const product = h.mul(dy);
    return [product.sum(0), product.mul(w).tanh(), h.mul(h).mean(0)];
  };
  const columns = await both(batch, [y.detach(), weight.detach(), t]);
  const eager = await flat(scope(() => batch(y.detach(), weight.detach(), t)));
  assertClose(columns.fused, Float64Array.from(eager), 1e-5, 'columns');
  assert.ok(columns.dispatches[0] <= 2, `${columns.dispatches}`);
});

test('a two-layer regression is eight dispatches a step, and learns what it learned', async () => {
  /** @param {readonly any[] | undefined} passes */
  const run = async (passes) => {
    manualSeed(4);
    const model = new nn.Sequential(new nn.Linear(8, 32), new nn.GELU(), new nn.Linear(32, 1));
    const opt = new optim.AdamW(model.parameters(), { lr: 1e-2 });
    const step = (/** @type {any} */ x, /** @type {any} */ t) => {
      const loss = F.mseLoss(model.forward(x), t);
      loss.backward();
      opt.step();
      return loss;
    };
    const f = passes ? compile(step, { passes }) : step;
    const [x, t] = [randn([64, 8]), randn([64, 1])];
    const losses = [];
    for (let i = 0; i < 20; i++) losses.push(await scope(() => f(x, t)).item());
    const dispatches = passes && /** @type {any} */ (f).explain()[0].dispatches;
    opt.dispose();
    return { losses, dispatches };
  };
  const [eager, fused] = [await run(undefined), await run(PASSES)];
  assert.ok(fused.dispatches <= 8, `${fused.dispatches}`);
  assertClose(fused.losses, Float64Array.from(eager.losses), 1e-4, 'losses');
  assert.ok(fused.losses[19] < fused.losses[0]);
});

test('products with a vector are sums in kernels with what is around them: one column, one row, a column by a row', async () => {
  manualSeed(6);
  const [x, row, column, bias] = [randn([2, 3, 10]), randn([1, 10]), randn([10, 1]), randn([1])];
  const flat = x.reshape(6, 10);
  /** @type {[string, () => any, number][]} */
  const programs = [
    ['linear of one output', () => F.linear(F.gelu(x), row, bias).add(1), 1],
    ['linear without a bias', () => F.linear(x, row), 1],
    [
      'columns that are not dense',
      () =>
        flat
          .slice(1, 2, 8)
          .matmul(column.slice(0, 0, 6))
          .mul(2),
      1,
    ],
    ['a column that is every other row', () => flat.slice(1, 0, 5).matmul(column.slice(0, 0, 10, 2)), 1],
    ['one row', () => column.slice(0, 0, 6).T.matmul(flat.mul(2)), 1],
    ['a row of a transposed matrix', () => row.matmul(flat.T.mul(2)), 1],
    ['a column by a row', () => flat.slice(1, 3, 4).matmul(row), 0],
    ['one number', () => row.matmul(column), 0],
    [
      'batches',
      () =>
        randn([2, 6, 3])
          .mul(0)
          .add(x.reshape(2, 3, 10).sum())
          .matmul(x.slice(2, 0, 1)),
      0,
    ],
  ];
  for (const [name, run, found] of programs) {
    const eager = run();
    const f = compile(run);
    const compiled = f();
    assert.deepEqual(compiled.shape, eager.shape, name);
    assertClose(await values(compiled), await values(eager), 1e-5, name);
    assert.equal(f.explain()[0].found['products with a vector as sums'] ?? 0, found, name);
    if (found) assert.equal(f.explain()[0].dispatches, 1, name);
  }
  // Gradients, which are such products as well.
  const leaves = [x, row, bias].map((leaf) => leaf.detach().requiresGrad_());
  const gradients = () =>
    grad(
      F.gelu(F.linear(leaves[0], leaves[1], leaves[2]))
        .square()
        .sum(),
      leaves,
    );
  const [eager, compiled] = [gradients(), compile(gradients)()];
  for (const [i, own] of eager.entries()) assertClose(await values(compiled[i]), await values(own), 1e-5, `gradient ${i}`);
});

test('operations of elements keep their bits, however many are one kernel', async () => {
  for (let round = 0; round < scaled(20); round++) {
    const shapes = [[6, 10], [10], [6, 1], [1], [6, 10]];
    const script = Array.from({ length: random.between(3, 14) }, () => [random.below(11), random.u32(), random.u32()]);
    const program = (/** @type {any[]} */ ...inputs) => {
      const pool = [...inputs, inputs[4].T.contiguous().T];
      for (const [op, i, j] of script) {
        const [p, q] = [pool[i % pool.length], pool[j % pool.length]];
        if (op === 0) pool.push(p.add(q));
        else if (op === 1) pool.push(p.mul(q));
        else if (op === 2) pool.push(p.sub(q));
        else if (op === 3) pool.push(p.tanh());
        else if (op === 4) pool.push(p.mul(0.37).add(-1.1));
        else if (op === 5) pool.push(F.maximum(p, q));
        else if (op === 6) pool.push(F.where(p.gt(q), p, q));
        else if (op === 7) pool.push(p.abs().add(0.5).log());
        else if (op === 8) pool.push(F.gelu(p));
        else if (op === 9) pool.push(p.to('i32').to('f32').add(q));
        else if (p.size === 60) pool.push(p.reshape(10, 6).neg().reshape(6, 10));
      }
      return pool.slice(-2).map((p) => p.add(0.25));
    };
    const inputs = shapes.map((shape) => randn(shape));
    const { fused, unfused } = await both(program, inputs);
    const eager = await flat(scope(() => program(...inputs)));
    const what = `seed ${seed} round ${round}: ${JSON.stringify(script)}`;
    assert.deepEqual(unfused, eager, what);
    assert.deepEqual(fused, eager, what);
  }
});

test('random programs of elements, rows and columns: eager, compiled, and without fusing', async () => {
  let fewer = 0;
  for (let round = 0; round < scaled(40); round++) {
    const rows = random.pick([1, 2, 6, 9, 64]);
    const columns = random.pick([1, 2, 4, 10, 16, 40]);
    const shapes = [
      [rows, columns],
      [rows, 1],
      [1, columns],
      [rows, columns],
    ];
    const script = Array.from({ length: random.between(4, 18) }, () => [random.below(13), random.u32(), random.u32()]);
    const half = random.chance(0.3);
    const kept = randn([rows, columns]);
    const start = Float32Array.from(await kept.toArray());
    const program = (/** @type {any[]} */ ...inputs) => {
      const pool = [...inputs];
      for (const [op, i, j] of script) {
        const [p, q] = [pool[i % pool.length], pool[j % pool.length]];
        if (op === 0) pool.push(p.add(q).tanh());
        else if (op === 1) pool.push(p.mul(q));
        else if (op === 2) pool.push(p.sub(p.mean(-1, true)));
        else if (op === 3) pool.push(p.sum(-1, true).mul(0.2));
        else if (op === 4) pool.push(p.square().sum(0, true).mul(0.1).tanh());
        else if (op === 5) pool.push(p.amax(-1, true));
        else if (op === 6) pool.push(p.mean().tanh().reshape(1, 1).add(q));
        else if (op === 7) pool.push(F.gelu(p));
        else if (op === 8) pool.push(F.softmax(p));
        else if (op === 9 && half) pool.push(p.to('bf16').mul(0.5).to('f32'));
        else if (op === 10) noGrad(() => void kept.copy_(p.detach().add(q.detach()).expand(rows, columns).mul(0.3)));
        else if (op === 11) pool.push(kept.clone().add(p));
        else if (op === 12) noGrad(() => void kept.mul_(0.5));
      }
      const result = pool.slice(-3).reduce((sum, p) => sum.add(p));
      const all = inputs.reduce((sum, x) => sum.add(x.sum()), result.tanh().sum());
      return [result.detach(), ...grad(all, inputs)];
    };
    const inputs = shapes.map((shape) => randn(shape, { requiresGrad: true }));
    const what = `seed ${seed} round ${round}: ${rows} × ${columns}, ${JSON.stringify(script)}`;
    /** @type {number[][]} */
    const results = [];
    const dispatches = [];
    for (const passes of [undefined, UNFUSED, PASSES]) {
      kept.copy_(start);
      const f = passes ? compile(program, { passes }) : program;
      const all = [];
      for (let call = 0; call < 2; call++) all.push(...(await flat(scope(() => f(...inputs)))));
      all.push(...(await values(kept)));
      results.push(all);
      if (passes) {
        dispatches.push(/** @type {any} */ (f).explain()[0].dispatches);
        /** @type {any} */ (f).dispose();
      }
    }
    assertClose(results[1], Float64Array.from(results[0]), half ? 2e-2 : 1e-3, `unfused, ${what}`);
    assertClose(results[2], Float64Array.from(results[0]), half ? 2e-2 : 1e-3, `fused, ${what}`);
    if (dispatches[1] < dispatches[0]) fewer++;
  }
  assert.ok(fewer > 0.8 * scaled(40), `${fewer}`);
});

test('parts of results, other memory and what is written meanwhile stay what they are', async () => {
  const state = randn([4, 8]);
  const x = randn([4, 8]);
  const start = Float32Array.from(await state.toArray());
  /** @type {Record<string, () => any>} */
  const programs = {
    'the first rows of a result are written': () => {
      const y = x.mul(3);
      noGrad(() => void state.slice(0, 0, 2).copy_(y.slice(0, 0, 2)));
      return y.add(state.clone());
    },
    'an operand is written over between two readers': () => {
      const first = state.mul(2);
      noGrad(() => void state.mul_(0.5));
      return first.add(state);
    },
    'a result is read by another kernel on the way': () => {
      const y = x.exp();
      return y.add(y.T.matmul(y).sum());
    },
    'rows that are no multiple of four, in bf16': () => x.slice(1, 0, 6).to('bf16').mul(2).to('f32').sum(-1),
    'a transposed operand of a reduction': () => x.T.mul(2).sum(0).add(1),
    'every other element, where the kernel has another shape': () =>
      x
        .reshape(-1)
        .slice(0, 0, 16)
        .exp()
        .reshape(4, 4)
        .add(x.slice(1, 1, 8, 2)),
    'one element for all, where the kernel has another shape': () =>
      x
        .reshape(-1)
        .exp()
        .reshape(4, 8)
        .add(x.slice(0, 0, 1).slice(1, 3, 4)),
  };
  for (const [name, program] of Object.entries(programs)) {
    const results = [];
    for (const passes of [undefined, UNFUSED, PASSES]) {
      state.copy_(start);
      const f = passes ? compile(program, { passes }) : program;
      results.push([...(await flat(scope(f))), ...(await values(state))]);
      if (passes) /** @type {any} */ (f).dispose();
    }
    assertClose(results[1], Float64Array.from(results[0]), 1e-6, name);
    assertClose(results[2], Float64Array.from(results[0]), 1e-2, name);
  }
});

test('a tall matrix of few columns is summed in slices where the device has many workgroups', async () => {
  const { runtime } = await import('../../nn/core/runtime.mjs');
  const { context } = runtime().kernels;
  const { isCpu } = context;
  const x = tensor(
    Float32Array.from({ length: 3000 * 6 }, (_, i) => ((i * 7919) % 1001) / 1001),
    { shape: [3000, 6] },
  );
  const f = compile(() => [x.mul(x).sum(0), x.add(1).sum(0)]);
  try {
    context.isCpu = false;
    const [squares, sums] = scope(() => f());
    const all = await values(x);
    /** @param {(v: number) => number} g */
    const wanted = (g) => Float64Array.from({ length: 6 }, (_, c) => all.reduce((sum, v, i) => (i % 6 === c ? sum + g(v) : sum), 0));
    assertClose(
      await values(squares),
      wanted((v) => v * v),
      1e-5,
      'squares',
    );
    assertClose(
      await values(sums),
      wanted((v) => v + 1),
      1e-5,
      'sums',
    );
    assert.equal(f.explain()[0].dispatches, 4, 'slices, and their sums');
  } finally {
    context.isCpu = isCpu;
    f.dispose();
  }
});

test('a comparison of a value with itself is stored, and what it divides by', async () => {
  const [x, i] = [tensor([1, NaN, -2]), tensor(new Int32Array([1, 0, -2]))];
  for (const name of /** @type {const} */ (['lt', 'gt'])) {
    for (const operand of [x, i]) {
      const f = compile((/** @type {any} */ v) => F.div(0.001, F[name](v, v).to('f32')));
      assert.deepEqual([...(await f(operand).toArray())], [Infinity, Infinity, Infinity], `${name} of ${operand.dtype}`);
      f.dispose();
    }
  }
  const differs = compile((/** @type {any} */ v) => F.div(1, F.ne(v, v).to('f32')));
  assert.deepEqual([...(await differs(x).toArray())], [Infinity, 1, Infinity]);
  assert.deepEqual([...(await differs(i).toArray())], [Infinity, Infinity, Infinity]);
});
