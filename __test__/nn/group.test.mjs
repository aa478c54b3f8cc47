// The pass `group`. If the products of a group run one by one, every bit is the same as without the pass. On a stub of an H200 that accepts
// PTX: which weight gradients of the GPT are grouped, and that this needs no more memory.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, accumulate, compile, manualSeed, nn, optim, randn, scope, tensor } from '../../nn/index.mjs';
import { denseLayout, layoutOf } from '../../nn/core/layout.mjs';
import { operations } from '../../nn/ops/registry.mjs';
import { group } from '../../nn/compile/passes/group.mjs';
import { PASSES } from '../../nn/compile/passes/index.mjs';
import { runtime } from '../../nn/core/runtime.mjs';
import { childJson } from '../lib/child.mjs';
import { initDevice } from './setup.mjs';

before(initDevice);

/**
 * Runs `body` with kernels that compute the products of a group one by one, and say that it saves this much.
 * @param {(list: any[]) => number | undefined} saving undefined where a group is not taken
 * @param {() => Promise<void>} body
 */
async function withGroups(saving, body) {
  const { kernels } = runtime();
  const { matmulGroup, matmulGroupPlan, matmulGroupSaving } = kernels;
  kernels.matmulGroupSaving = saving;
  kernels.matmulGroupPlan = () => ({ tiling: 'm128n256-cp' });
  kernels.matmulGroup = (list) => list.flatMap((args) => kernels.matmul(args));
  try {
    await body();
  } finally {
    Object.assign(kernels, { matmulGroup, matmulGroupPlan, matmulGroupSaving });
  }
}

/** Layers, two of them by the same input, and an optimizer step of two backward passes. */
function network() {
  manualSeed(5);
  const layers = [new nn.Linear(16, 24), new nn.Linear(24, 16), new nn.Linear(16, 8), new nn.Linear(16, 8), new nn.Linear(8, 4)];
  const opt = new optim.AdamW(
    layers.flatMap((layer) => layer.parameters()),
    { lr: 1e-2, clip: 1 },
  );
  const forward = (/** @type {any} */ x) => {
    const h = F.gelu(layers[1].forward(F.gelu(layers[0].forward(x))));
    return layers[4].forward(layers[2].forward(h).mul(layers[3].forward(h)));
  };
  return { layers, opt, forward };
}

/** Losses and weights after some steps. @param {readonly import('../../nn/compile/passes/index.mjs').PassName[] | undefined} passes eagerly without */
async function train(passes) {
  const { layers, opt, forward } = network();
  const [x, y] = [
    randn([2, 12, 16]),
    tensor(
      Int32Array.from({ length: 24 }, (_, i) => i % 4),
      { shape: [2, 12] },
    ),
  ];
  const step = () => {
    const loss = accumulate(2, (i) => F.crossEntropy(forward(x.at(i)), y.at(i)));
    opt.step();
    return loss;
  };
  const f = passes ? compile(step, { passes }) : step;
  const results = [];
  for (let i = 0; i < 3; i++) results.push(await scope(() => f()).item());
  for (const layer of layers) results.push(...(await layer.weight.toArray()));
  const found = passes ? /** @type {any} */ (f).explain()[0].found : {};
  opt.dispose();
  return {
    results,
    grouped: found['weight gradients computed together'] ?? 0,
    explained: passes ? /** @type {any} */ (f).explain()[0] : undefined,
  };
}

test('weight gradients computed together: every bit is as one by one', async () => {
  const { results: alone, grouped: none } = await train(PASSES.filter((name) => name !== 'group'));
  assert.equal(none, 0);
  // Ten products of two backward passes, of which those of the second add to the first ones'.
  for (const [count, grouped] of [
    [2, 5],
    [3, 6],
    [4, 6],
  ]) {
    await withGroups(
      (list) => (list.length === count ? 1 : undefined),
      async () => {
        const { results, ...found } = await train(PASSES);
        assert.equal(found.grouped, grouped, `groups of ${count}`);
        assert.deepEqual(results, alone, `groups of ${count}`);
      },
    );
  }
  const { results, grouped } = await train(PASSES);
  assert.equal(grouped, 0, 'where no kernel takes them they stay as they are');
  assert.deepEqual(results, alone);
});

test('a weight gradient does not wait behind who reads it or writes over what it reads, nor for long', async () => {
  const op = /** @type {any} */ (operations.get('matmul'));
  const [x, y, z] = [denseLayout([8, 16], 'f32'), denseLayout([8, 24], 'f32'), denseLayout([16, 24], 'f32')];
  const transposed = layoutOf([16, 8], [1, 16], 0, 'f32');
  const memory = (/** @type {any} */ layout) => ({ allocation: /** @type {any} */ ({}), layout });
  const gradient = (/** @type {any} */ a = memory(transposed)) =>
    /** @type {any} */ ({ op, attributes: {}, inputs: [a, memory(y)], outputs: [memory(z)], allocations: [] });
  /** @param {any[]} reads @param {any[]} writes */
  const other = (reads, writes) =>
    /** @type {any} */ ({ op: { name: 'other' }, attributes: {}, inputs: reads, outputs: writes, allocations: [] });
  const [first, last] = [gradient(), gradient()];
  const unrelated = other([memory(x)], [memory(x)]);
  await withGroups(
    (list) => (list.length === 2 ? 1 : undefined),
    async () => {
      const { kernels } = runtime();
      const run = (/** @type {any[]} */ ...calls) => group(calls, /** @type {any} */ ({ kernels }));
      const { calls, found } = run(first, unrelated, last);
      assert.equal(found, 1);
      assert.deepEqual([calls.length, calls[0], calls[1].op?.name], [2, unrelated, 'weightGradients']);
      assert.deepEqual(calls[1].outputs, [first.outputs[0], last.outputs[0]]);
      const [a] = first.inputs;
      const halfway = memory(x);
      for (const [name, between] of /** @type {[string, any[]][]} */ ([
        ['read', [other(first.outputs, [memory(x)])]],
        ['written over', [other([memory(x)], first.outputs)]],
        ['an operand written over', [other([memory(x)], [a])]],
        ['read by the last one', []],
        ['far', Array.from({ length: 24 }, () => other([memory(x)], [memory(x)]))],
      ])) {
        const behind = name.startsWith('read by') ? gradient({ allocation: first.outputs[0].allocation, layout: transposed }) : last;
        const calls = [first, ...between, behind];
        assert.deepEqual(run(...calls), { calls, found: 0 }, name);
      }
      const chain = [first, other(first.outputs, [halfway]), other([halfway], [memory(x)]), last, gradient()];
      assert.equal(run(...chain).found, 1, 'the two that can');
    },
  );
});

test('of a sequence those groups are taken that save the most together', async () => {
  const op = /** @type {any} */ (operations.get('matmul'));
  const memory = (/** @type {any} */ layout) => ({ allocation: /** @type {any} */ ({}), layout });
  // Told apart by their columns.
  const gradients = [1, 2, 3, 4].map(
    (n) =>
      /** @type {any} */ ({
        op,
        attributes: {},
        inputs: [memory(layoutOf([16, 8], [1, 16], 0, 'f32')), memory(denseLayout([8, n], 'f32'))],
        outputs: [memory(denseLayout([16, n], 'f32'))],
        allocations: [],
      }),
  );
  const named = (/** @type {{ n: number }[]} */ list) => list.map(({ n }) => n).join('+');
  for (const [savings, expected] of /** @type {[Record<string, number>, string][]} */ ([
    [{}, '1 2 3 4'],
    [{ '1+2': 1, '2+3': 2 }, '1 2+3 4'],
    [{ '1+2': 1, '2+3': 1, '3+4': 1 }, '1+2 3+4'],
    // A launch less, where nothing better is lost by it.
    [{ '1+2': 0 }, '1+2 3 4'],
    [{ '1+2': 0, '2+3': 1 }, '1 2+3 4'],
    [{ '1+2+3': 0 }, '1+2+3 4'],
    // Of equals the smaller ones.
    [{ '1+2': 1, '3+4': 1, '1+2+3+4': 2 }, '1+2 3+4'],
    [{ '1+2': 1, '3+4': 1, '1+2+3+4': 3 }, '1+2+3+4'],
    [{ '1+2': 1, '3+4': 1, '2+3+4': 3 }, '1 2+3+4'],
  ])) {
    await withGroups(
      (list) => savings[named(list)],
      async () => {
        const { kernels } = runtime();
        const run = () => group(gradients, /** @type {any} */ ({ kernels }));
        const { calls } = run();
        const found = calls.map(({ outputs }) => outputs.map(({ layout }) => layout.shape[1]).join('+')).join(' ');
        assert.equal(found, expected, JSON.stringify(savings));
        kernels.matmulGroupPlan = () => undefined;
        assert.deepEqual(run(), { calls: gradients, found: 0 }, 'whose kernel fails its test');
      },
    );
  }
});

/**
 * The weight gradients of GPTs of three layers, `gpt-300m` with these sizes, on a stub of an H200 that takes PTX: the groups in their
 * order, and what a step takes without and with them.
 * @param {object} sizes
 */
const grouped = (sizes) =>
  childJson(
    `
    const { stubDevice } = await import('${new URL('../lib/stub.mjs', import.meta.url)}');
    const { configOf } = await import('${new URL('../../packages/lm/src/train/settings.mjs', import.meta.url)}');
    const { createTraining } = await import('${new URL('../../packages/lm/src/train/trainer.mjs', import.meta.url)}');
    const { Decoder } = await import('${new URL('../../packages/lm/src/model/decoder.mjs', import.meta.url)}');
    const { matmulKernels } = await import('${new URL('../../kernels/matmul.mjs', import.meta.url)}');
    const { compile, init: open, nn } = await import('${new URL('../../nn/index.mjs', import.meta.url)}');
    const { PASSES } = await import('${new URL('../../nn/compile/passes/index.mjs', import.meta.url)}');
    const { runtime } = await import('${new URL('../../nn/core/runtime.mjs', import.meta.url)}');
    const stub = stubDevice();
    const info = { ...stub.initDevice(), hasPtx: true, multiprocessors: 132 };
    open({ vk: { ...stub, initDevice: () => info } });
    const { kernels } = runtime();
    // A stub runs no test of a kernel.
    Object.assign(kernels, matmulKernels(kernels.context, { verify: () => undefined, verifyGroup: () => undefined }));
    const { model: sizes, settings: run } = configOf('gpt-300m', { precision: 'bf16', layers: 3, batchSize: 16, gradientAccumulationSteps: 1, ...${JSON.stringify(sizes)} });
    const groups = [];
    const { matmulGroup } = kernels;
    kernels.matmulGroup = (list) => {
      groups.push(list.map(({ m, n }) => m + 'x' + n).join('+'));
      return matmulGroup(list);
    };
    // Gradients have memory of their own, so that what is planned is what waits.
    const all = PASSES.filter((name) => name !== 'gradients');
    const steps = [all.filter((name) => name !== 'group'), all].map((passes) => {
      const model = nn.skipInit(() => new Decoder(sizes));
      const training = createTraining(model, run, { logitsBytes: 2 ** 30 });
      const step = compile(training.step, { passes });
      step(new Uint32Array(2 * run.gradientAccumulationSteps * run.batchSize * run.blockSize)).dispose();
      const { dispatches, planned, found } = step.explain()[0];
      for (const each of [step, training.opt, model]) each.dispose();
      return { dispatches, planned, grouped: found['weight gradients computed together'] ?? 0 };
    });
    process.stdout.write(JSON.stringify({ steps, groups }));
  `,
    { timeout: 600_000 },
  );

test("the GPT's weight gradients: groups that fill an H200's multiprocessors, in hardly more memory", async () => {
  // The four of a layer. That of the head is computed by the loss, block by block.
  const narrow = new Array(3).fill('1024x2752+5504x1024+1024x1024+3072x1024');
  // The gradients of two wide layers lie alike in buckets of their own, so that their dispatches are made once.
  const wide = new Array(2).fill('2048x5504+11008x2048+2048x2048+6144x2048');
  for (const { sizes, expected, count, fewer } of [
    { sizes: {}, expected: narrow, count: 9, fewer: 12 },
    // Those of the later micro-steps are added to the first one's, and equal groups have their dispatches made once.
    { sizes: { gradientAccumulationSteps: 3 }, expected: [...narrow, ...narrow], count: 27, fewer: 12 },
    { sizes: { width: 2048, hidden: 5504, heads: 16 }, expected: wide, count: 9, fewer: 5 },
  ]) {
    const { steps, groups } = await grouped(sizes);
    const [alone, together] = steps;
    assert.deepEqual(groups, expected);
    assert.deepEqual([alone.grouped, together.grouped], [0, count]);
    // By themselves some of the narrow ones are split in depth, and have a second pass.
    assert.ok(together.dispatches <= alone.dispatches - fewer, JSON.stringify(steps));
    // Operands wait for others. In a model of three layers that shows: without all logits, norms and gated units it needs little else.
    assert.ok(together.planned <= 1.06 * alone.planned, JSON.stringify(steps));
  }
});
