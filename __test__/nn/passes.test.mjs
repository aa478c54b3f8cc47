// The passes of `compile`. With all passes, without each, and without any, the results are those of eager mode; reordering keeps every
// dependence; the number of dispatches and barriers of the GPT on a stub of an H200.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import {
  F,
  accumulate,
  autocast,
  cat,
  checkpoint,
  compile,
  full,
  grad,
  manualSeed,
  nn,
  noGrad,
  ones,
  optim,
  randn,
  scope,
  tensor,
} from '../../nn/index.mjs';
import { runtime } from '../../nn/core/runtime.mjs';
import { EXACT, PASSES } from '../../nn/compile/passes/index.mjs';
import { accesses, lower } from '../../nn/compile/passes/calls.mjs';
import { schedule } from '../../nn/compile/passes/schedule.mjs';
import { light, scaled } from '../lib/addon.mjs';
import { childJson } from '../lib/child.mjs';
import { Random } from '../lib/random.mjs';
import { assertClose, seed } from '../lib/random-data.mjs';
import { initDevice, values } from './setup.mjs';

before(initDevice);

const random = new Random(seed);
/** Sets of passes: none, all, and all but each. @type {[string, readonly import('../../nn/compile/passes/index.mjs').PassName[]][]} */
const SETS = [
  ['none', []],
  ['all', PASSES],
  ['exact', EXACT],
  ...PASSES.map((name) => /** @type {any} */ ([`all but ${name}`, PASSES.filter((other) => other !== name)])),
];

/** A block of a transformer and its optimizer. @param {boolean} checkpointed */
function network(checkpointed) {
  manualSeed(5);
  class Net extends nn.Module {
    constructor() {
      super();
      this.table = new nn.Embedding(12, 64);
      this.positions = new nn.Embedding(8, 64);
      this.norms = [new nn.RMSNorm(64), new nn.RMSNorm(64), new nn.RMSNorm(64)];
      this.attention = new nn.MultiHeadAttention(64, 2, { causal: true, rope: true });
      this.mlp = new nn.SwiGLU(64, 96);
      this.layerNorm = new nn.LayerNorm(64);
      this.inner = new nn.Linear(64, 64);
      this.head = new nn.Linear(64, 12);
    }
    /** @param {any} ids */
    forward(ids) {
      let x = this.table.forward(ids).add(this.positions.weight.slice(0, 0, ids.shape.at(-1)));
      x = x.add(this.attention.forward(this.norms[0].forward(x)));
      const block = (/** @type {any} */ h) => h.add(this.mlp.forward(this.norms[1].forward(h)));
      x = checkpointed ? checkpoint(block, x) : block(x);
      x = x.add(this.inner.forward(this.layerNorm.forward(x)));
      return this.head.forward(this.norms[2].forward(x));
    }
  }
  const net = new Net();
  const opt = new optim.AdamW(net.parameters(), { lr: 3e-3, clip: 1 });
  return { net, opt };
}

for (const wide of [true, false]) {
  test(`a training step in ${wide ? 'f32' : '16 bits'}: each pass left out, and none`, async () => {
    const { kernels } = runtime();
    const precision = wide ? false : kernels.matmulSupports('bf16') ? 'bf16' : 'f16';
    const products = precision && kernels.matmulSupports(precision);
    /** @type {Map<string, number[]>} */
    const results = new Map();
    /** @type {Record<string, any>} */
    const explained = {};
    for (const [name, passes] of [['eager', undefined], ...SETS]) {
      const { net, opt } = network(name === 'all but dead');
      const step = (/** @type {any} */ batch) => {
        const loss = accumulate(2, (i) => autocast(precision, () => F.crossEntropy(net.forward(batch.at(i).at(0)), batch.at(i).at(1))));
        opt.step();
        return loss;
      };
      const f = passes ? compile(step, { passes: /** @type {any} */ (passes) }) : step;
      const batch = tensor(
        Int32Array.from({ length: 2 * 2 * 3 * 8 }, (_, i) => (i * i + 3) % 11),
        { shape: [2, 2, 3, 8] },
      );
      const losses = [];
      for (let i = 0; i < 4; i++) losses.push(await scope(() => f(batch)).item());
      results.set(/** @type {string} */ (name), [...losses, ...(await values(net.head.weight)), ...(await values(net.norms[0].weight))]);
      if (passes) explained[/** @type {string} */ (name)] = /** @type {any} */ (f).explain()[0];
      opt.dispose();
    }
    const eager = /** @type {number[]} */ (results.get('eager'));
    assert.deepEqual(results.get('none'), eager);
    assert.deepEqual(results.get('exact'), eager, 'the other passes change no bit');
    for (const [name, list] of results) assertClose(list, Float64Array.from(eager), precision ? 0.02 : 1e-4, name);
    const { found } = explained.all;
    for (const pattern of [
      'product and sum',
      'product written to a gradient',
      'product added to a gradient',
      "norm's gradient into a gradient",
      "norms' weight gradients summed together",
      'embedding and positions',
      "embedding's gradient into a gradient",
      'losses and their gradient',
      "losses' gradient and factor",
      'sum into a gradient',
      'sum and factor',
      'product and gated unit',
      "product and gated unit's gradient",
      'constants folded',
    ]) {
      if (!precision) assert.ok(found[pattern] > 0, `${pattern}: ${JSON.stringify(found)}`);
    }
    if (products)
      for (const pattern of [
        'norm to 16 bits',
        "norm's gradient of 16 bits",
        'product to f32',
        "losses' gradient to 16 bits",
        'product and gated unit',
        "product and gated unit's gradient",
      ])
        assert.ok(found[pattern] > 0, `${pattern}: ${JSON.stringify(found)}`);
    // Four norms of two micro-steps, one of them a LayerNorm.
    if (products) assert.equal(found['norm to 16 bits'], 8);
    if (products) assert.equal(found["norm's gradient and sum"], 6);
    assert.ok(explained.all.dispatches < 0.9 * explained.none.dispatches, JSON.stringify(explained));
    // Shared conversions, and the operands of a fused kernel, live longer.
    assert.ok(explained.all.planned <= (precision ? 1.35 : 1) * explained.none.planned, JSON.stringify(explained));
  });
}

test('random programs: each set of passes gives the bits of the eager mode, or nearly where calls are put together', async () => {
  for (let round = 0; round < scaled(12); round++) {
    const n = random.between(1, 5) * 2;
    /** @type {any[]} */
    const script = Array.from({ length: random.between(6, 24) }, () => ({
      op: random.below(14),
      a: random.below(1 << 20),
      b: random.below(1 << 20),
    }));
    manualSeed(round);
    const weights = Array.from({ length: 3 }, () => new nn.Parameter(randn([n, n])));
    const norm = new nn.RMSNorm(n);
    const state = randn([n, n]);
    const start = await values(state);
    const program = (/** @type {any} */ x) => {
      /** @type {any[]} */
      const pool = [x, x.mul(0.5)];
      for (const { op, a, b } of script) {
        const [p, q, w] = [pool[a % pool.length], pool[b % pool.length], weights[(a + b) % 3]];
        if (op === 0) pool.push(p.add(q));
        else if (op === 1) pool.push(F.linear(p, w).add(q));
        else if (op === 2) pool.push(norm.forward(p));
        else if (op === 3) pool.push(p.T.contiguous());
        else if (op === 4) pool.push(p.matmul(q).mul(0.1));
        else if (op === 5) pool.push(cat([p.slice(0, 0, n / 2), q.slice(0, n / 2)]));
        else if (op === 6) noGrad(() => void state.add_(p.detach(), { alpha: 0.5 }));
        else if (op === 7) pool.push(p.add(state.clone()));
        else if (op === 8) noGrad(() => void state.copy_(p.detach().matmul(q.detach()).mul(0.1)));
        else if (op === 9) pool.push(norm.forward(p.to('bf16').to('f32')));
        else if (op === 10) pool.push(F.linear(p, w).tanh());
        else if (op === 12) pool.push(p.mul(full([n, 1], 0.7).mul(3).sub(1.2)));
        else if (op === 13) {
          // A constant until it is written over.
          const c = full([n, n], 0.5);
          const before = p.mul(c.mul(2));
          noGrad(() => void (a % 2 ? c.mul_(0.3) : c.slice(0, 0, 1).copy_(q.detach().slice(0, 0, 1))));
          pool.push(before.add(q.mul(c)));
        } else noGrad(() => void state.slice(0, 0, n / 2).copy_(q.detach().slice(0, n / 2)));
      }
      const result = pool.slice(-3).reduce((sum, p) => sum.add(p.tanh()), x);
      return [
        result.detach(),
        ...grad(
          result
            .square()
            .sum()
            .add(weights.reduce((sum, w) => sum.add(F.linear(x, w).sum()), norm.forward(x).sum())),
          [x, ...weights, norm.weight],
        ),
      ];
    };
    const input = randn([n, n], { requiresGrad: true });
    /** @type {number[] | undefined} */
    let expected;
    for (const [name, passes] of [['eager', undefined], ...SETS]) {
      state.copy_(Float32Array.from(start));
      const f = passes ? compile(program, { passes: /** @type {any} */ (passes) }) : program;
      const results = [];
      for (let call = 0; call < 2; call++) results.push(...scope(() => f(input)));
      const all = (await Promise.all([...results, state].map(values))).flat();
      const what = `seed ${seed} round ${round}, ${name}: ${script.map(({ op }) => op)}`;
      if (!expected) expected = all;
      else if (name === 'none' || name === 'exact') assert.deepEqual(all, expected, what);
      // Roundings to bf16 on the way are dropped where operations are fused.
      else assertClose(all, Float64Array.from(expected), script.some(({ op }) => op === 9) ? 2e-2 : 1e-3, what);
      if (passes) /** @type {any} */ (f).dispose();
    }
  }
});

test('what is computed twice is computed once, unless a value changed in between or checkpoint computes it again', async () => {
  const x = randn([8, 8]);
  const state = randn([8, 8]);
  /** @param {() => any} program */
  const counts = async (program) => {
    // What is kept between calls would not be counted.
    const passes = EXACT.filter((name) => name !== 'keep');
    const [all, none] = [compile(program, { passes }), compile(program, { passes: passes.filter((name) => name !== 'shared') })];
    const before = await values(state);
    const expected = await values(scope(none));
    state.copy_(Float32Array.from(before));
    assert.deepEqual(await values(scope(all)), expected);
    state.copy_(Float32Array.from(before));
    const [{ found, dispatches }, other] = [all.explain()[0], none.explain()[0]];
    for (const f of [all, none]) f.dispose();
    assert.equal(found['results shared'] ?? 0, other.dispatches - dispatches);
    return other.dispatches - dispatches;
  };
  const twice = () => x.tanh().matmul(x.tanh()).add(x.tanh().exp());
  assert.equal(await counts(twice), 2);
  assert.equal(await counts(() => x.mul(2).add(x.mul(2.5))), 0, 'other attributes');
  assert.equal(await counts(() => x.tanh().add(x.T.tanh())), 0, 'other strides');
  const changed = () => {
    const first = state.tanh();
    noGrad(() => void state.mul_(0.5));
    return first.add(state.tanh()).add(state.tanh());
  };
  assert.equal(await counts(changed), 1);
  const dropped = () => F.dropout(x, 0.5).add(F.dropout(x, 0.5));
  manualSeed(1);
  const f = compile(dropped);
  f();
  assert.equal(f.explain()[0].found['results shared'], undefined, 'each draws its own');
  f.dispose();
  const w = new nn.Parameter(randn([8, 8]));
  const opt = new optim.SGD([w]);
  const again = compile(() => {
    const y = checkpoint((/** @type {any} */ h) => F.linear(h, w).tanh().exp(), x);
    y.square().sum().backward();
    opt.step();
  });
  again();
  assert.equal(again.explain()[0].found['results shared'], undefined, 'checkpoint');
  again.dispose();
  opt.dispose();
});

test('random training programs: gradients that are looked at, changed or frozen between micro-steps', async () => {
  for (let round = 0; round < scaled(10); round++) {
    /** What happens behind each micro-step. */
    const script = Array.from({ length: random.between(2, 5) }, () => ({
      action: random.below(6),
      at: random.below(1 << 20),
      used: Array.from({ length: 4 }, () => random.chance(0.6)),
    }));
    const factor = random.below(3) / 2 + 0.25;
    const build = () => {
      manualSeed(round);
      const norms = Array.from({ length: 4 }, () => new nn.RMSNorm(64));
      const [table, positions, head] = [new nn.Embedding(9, 64), new nn.Embedding(6, 64), new nn.Linear(64, 9)];
      const parameters = [
        ...norms.flatMap((norm) => norm.parameters()),
        ...[table, positions, head].flatMap((module) => module.parameters()),
      ];
      return { norms, table, positions, head, parameters, opt: new optim.AdamW(parameters, { lr: 1e-2, clip: 1 }) };
    };
    /** @type {number[] | undefined} */
    let expected;
    for (const [name, passes] of [['eager', undefined], ...SETS]) {
      const { norms, table, positions, head, parameters, opt } = build();
      const step = (/** @type {any} */ batch) => {
        /** @type {any[]} */
        const results = [];
        script.forEach(({ action, at, used }, i) => {
          const [ids, targets] = [batch.at(i).at(0), batch.at(i).at(1)];
          let x = table.forward(ids).add(positions.weight.slice(0, 0, 6));
          for (const norm of norms.filter((_, n) => used[n])) x = x.add(norm.forward(x).tanh());
          const loss = F.crossEntropy(head.forward(x), targets, { reduction: at % 2 ? 'mean' : 'sum' }).mul(factor);
          loss.backward();
          // Of a norm as often as not.
          const { grad: gradient = table.weight.grad } = /** @type {any} */ (parameters[(at % 2) * (at % parameters.length)]);
          if (action === 0) results.push(gradient.mul(2));
          if (action === 1) gradient.mul_(0.5);
          if (action === 2) gradient.slice(0, 0, 2).zero_();
          if (action === 3) results.push(gradient.slice(0, 1).clone(), x.detach());
          if (action === 4) opt.step();
          results.push(loss.detach());
        });
        if (script.at(-1)?.action !== 4) opt.step();
        return results;
      };
      const f = passes ? compile(step, { passes: /** @type {any} */ (passes) }) : step;
      const batch = tensor(
        Int32Array.from({ length: script.length * 2 * 2 * 6 }, (_, i) => (i * i + round) % 9),
        { shape: [script.length, 2, 2, 6] },
      );
      const results = [];
      for (let call = 0; call < 2; call++) results.push(...scope(() => f(batch)));
      const all = (await Promise.all([...results, ...parameters].map(values))).flat();
      const what = `seed ${seed} round ${round}, ${name}: ${script.map(({ action }) => action)}`;
      if (!expected) expected = all;
      else if (name === 'none' || name === 'exact') assert.deepEqual(all, expected, what);
      else assertClose(all, Float64Array.from(expected), 1e-3, what);
      if (passes) /** @type {any} */ (f).dispose();
      opt.dispose();
    }
  }
});

test('a slice of what a call makes is not put together with it: nothing is written beside the slice', async () => {
  const counting = (/** @type {number} */ rows, /** @type {number} */ columns) =>
    tensor(
      Float32Array.from({ length: rows * columns }, (_, i) => (i % 7) - 2),
      { shape: [rows, columns] },
    );
  const [x, w] = [counting(8, 4), counting(4, 4)];
  const rows = () => x.matmul(w).slice(0, 0, 2);
  /** @type {[string, (cache: any) => any][]} */
  const programs = [
    ['copied', (cache) => cache.slice(0, 0, 2).copy_(rows())],
    ['added in place', (cache) => cache.slice(0, 0, 2).add_(rows())],
    [
      'added',
      (cache) =>
        cache
          .slice(0, 0, 2)
          .mul_(0)
          .add_(rows().add(w.slice(0, 0, 2))),
    ],
    ['converted', (cache) => cache.slice(0, 0, 2).copy_(x.to('bf16').matmul(w.to('bf16')).slice(0, 0, 2).to('f32'))],
  ];
  for (const [name, program] of programs) {
    /** @type {number[][]} */
    const results = [];
    for (const passes of [[], PASSES]) {
      const cache = counting(8, 4);
      const f = compile(() => void program(cache), { passes });
      noGrad(f);
      results.push(await values(cache));
      f.dispose();
    }
    assert.deepEqual(results[1], results[0], name);
    assert.deepEqual(results[1].slice(8), (await values(counting(8, 4))).slice(8), `${name}: the other rows`);
  }
});

test("a weight that is joined with frozen rows has its own gradient, and leaves its neighbour's", async () => {
  /** @type {number[][]} */
  const results = [];
  for (const passes of [[], PASSES]) {
    manualSeed(3);
    const [a, b] = [new nn.Parameter(randn([2, 4])), new nn.Parameter(randn([2, 64]))];
    const [frozen, x, wide] = [randn([248, 4]), randn([8, 4]), randn([1, 64])];
    const opt = new optim.SGD([a, b], { lr: 0.01 });
    const f = compile(
      () => {
        F.linear(x, cat([a, frozen]))
          .square()
          .mean()
          .add(F.linear(wide, b).sum())
          .backward();
        opt.step();
      },
      { passes },
    );
    for (let i = 0; i < 3; i++) f();
    results.push([...(await values(a)), ...(await values(b))]);
    f.dispose();
    opt.dispose();
  }
  assertClose(results[1], Float64Array.from(results[0]), 1e-5, 'after three steps');
});

test('a changed call has a template for each of its attributes, also of those that JSON writes alike', () => {
  /** @type {number[]} */
  const lowered = [];
  const op = /** @type {any} */ ({
    lower: (/** @type {any} */ _kernels, /** @type {any} */ _inputs, /** @type {any} */ _outputs, /** @type {any} */ { value }) => {
      lowered.push(value);
      return [];
    },
  });
  const numbers = [0, -0, NaN, Infinity, -Infinity];
  for (const value of [...numbers, ...numbers]) {
    lower({ op, attributes: { value }, inputs: [], outputs: [], template: undefined, allocations: [] }, /** @type {any} */ ({}));
  }
  assert.deepEqual(lowered, numbers);
});

test('schedule keeps the order of every two calls of which one writes what the other touches', () => {
  for (let round = 0; round < scaled(200); round++) {
    const memory = Array.from({ length: random.between(2, 8) }, () => /** @type {any} */ ({}));
    const calls = Array.from({ length: random.between(1, 60) }, () => {
      const allocations = memory.filter(() => random.chance(0.3));
      const slots = [...allocations.keys()];
      const written = slots.filter(() => random.chance(0.4));
      const read = slots.filter((slot) => !written.includes(slot));
      return /** @type {any} */ ({ allocations, template: { read, written, count: random.between(1, 3) }, inputs: [], outputs: [] });
    });
    const order = schedule(calls);
    assert.deepEqual(new Set(order), new Set(calls));
    const at = new Map(order.map((call, i) => [call, i]));
    const all = calls.map(accesses);
    for (let i = 0; i < calls.length; i++) {
      for (let j = i + 1; j < calls.length; j++) {
        const touches = (/** @type {any} */ one, /** @type {any} */ other) =>
          one.writes.some((/** @type {any} */ a) => other.writes.includes(a) || other.reads.includes(a));
        if (!touches(all[i], all[j]) && !touches(all[j], all[i])) continue;
        assert.ok(/** @type {number} */ (at.get(calls[i])) < /** @type {number} */ (at.get(calls[j])), `round ${round}: ${i} and ${j}`);
      }
    }
  }
});

/**
 * A step of the GPT as lists of dispatches written by hand (benches/gpt/model.mjs of ba6c878) on the stub, in bf16, by layers: how many
 * dispatches and barriers it took, and bytes of all buffers with the optimizer's.
 */
const BY_HAND = {
  21: {
    '1×4': { dispatches: 2076, barriers: 1723, bytes: 5_939_415_232 },
    '16×1': { dispatches: 479, barriers: 368, bytes: 13_200_677_056 },
  },
  3: {
    '1×4': { dispatches: 348, barriers: 283, bytes: 1_480_198_336 },
    '16×1': { dispatches: 83, barriers: 62, bytes: 3_526_752_448 },
  },
};

test('the GPT on a stub of an H200: dispatches, barriers and bytes of a step are those of lists written by hand', async (t) => {
  const layers = light ? 3 : 21;
  const found = await childJson(
    `
    const { stubDevice } = await import('${new URL('../lib/stub.mjs', import.meta.url)}');
    const { configOf } = await import('${new URL('../../packages/lm/src/train/settings.mjs', import.meta.url)}');
    const { createTraining } = await import('${new URL('../../packages/lm/src/train/trainer.mjs', import.meta.url)}');
    const { Decoder } = await import('${new URL('../../packages/lm/src/model/decoder.mjs', import.meta.url)}');
    const { compile, init: open, nn } = await import('${new URL('../../nn/index.mjs', import.meta.url)}');
    const stub = stubDevice();
    open({ vk: stub });
    const found = {};
    for (const [batch, microSteps] of [[1, 4], [16, 1]]) {
      const { model: sizes, settings: run } = configOf('gpt-300m', { precision: 'bf16', layers: ${layers}, batchSize: batch, gradientAccumulationSteps: microSteps });
      const model = nn.skipInit(() => new Decoder(sizes));
      const training = createTraining(model, run, { logitsBytes: 2 ** 30 });
      const step = compile(training.step);
      const flat = new Uint32Array(microSteps * 2 * batch * run.blockSize);
      step(flat).dispose();
      stub.reset();
      step(flat).dispose();
      const { dispatches, barriers, bytes } = stub.counts;
      const again = step.explain()[0].found['results computed again'] ?? 0;
      const further = training.opt.buckets.length - training.opt.groups.length;
      found[batch + '×' + microSteps] = { dispatches, barriers, bytes, again, further };
      for (const each of [step, training.opt, model]) each.dispose();
    }
    process.stdout.write(JSON.stringify(found));
  `,
    { timeout: 600_000 },
  );
  t.diagnostic(JSON.stringify(found));
  for (const [batch, hand] of Object.entries(BY_HAND[layers])) {
    const own = found[batch];
    const both = `${batch}: ${JSON.stringify({ own, hand })}`;
    // Besides what was written by hand: two states of groups to advance and two to clip, two parts of gradients, a mean of losses; and in each
    // micro-step the sum of the rows' losses, which `linearCrossEntropy` keeps apart to write gradients over the logits.
    // What is computed again, one dispatch each, was kept by hand. Parameters were in one piece: each further one has its update, its part of the norm,
    // and that of the block that it shares with the one before, which is put together first.
    const microSteps = batch === '1×4' ? 4 : 1;
    assert.ok(own.dispatches <= hand.dispatches + 10 + microSteps + own.again + 5 * own.further, both);
    assert.ok(own.barriers <= hand.barriers + 3 + own.again + 4 * own.further, both);
    // Of a larger batch activations leave memory to the gradients.
    assert.ok(own.bytes <= (batch === '16×1' ? 0.85 : 1) * hand.bytes, both);
  }
});

test('explain() counts what each pass found under its name, of the passes that ran alone', () => {
  const program = (/** @type {any} */ x, /** @type {any} */ v) => {
    x.exp(); // Nobody reads it.
    const doubled = x.mul(full([4, 5], 2));
    return [doubled, x.tanh().add(x.tanh()), x.matmul(v)];
  };
  const found = (/** @type {any[]} */ passes) => {
    const f = compile(program, { passes });
    scope(() => void f(ones([4, 5]), ones([5])));
    return f.explain()[0].found;
  };
  assert.deepEqual(found([]), {});
  assert.deepEqual(found(['schedule']), {}, 'a pass that counts nothing');
  assert.deepEqual(found(['constants']), { 'constants folded': 1 });
  assert.deepEqual(found(['shared']), { 'results shared': 1 });
  assert.deepEqual(found(['vectors']), { 'products with a vector as sums': 1 });
  assert.deepEqual(found(['dead']), { 'results that nobody reads': 1 });
  assert.deepEqual(
    found(['constants', 'dead']),
    { 'constants folded': 1, 'results that nobody reads': 2 },
    'the constant, too, is read no more',
  );
  assert.ok(found([...PASSES])['operations fused'] > 0);
});
