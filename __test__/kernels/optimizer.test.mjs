// AdamW, clipping and the schedule against float64, step after step.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createKernels, optimizerState, STATE } from '../../kernels/index.mjs';
import { columnOf } from '../../kernels/hopper/layout.mjs';
import { vk } from '../lib/addon.mjs';
import { Case, TOLERANCE } from '../lib/kernel-check.mjs';
import { assertClose, normal } from '../lib/random-data.mjs';
import * as reference from '../lib/reference.mjs';

const kernels = createKernels(vk);
after(() => vk.destroy());

const floats = (/** @type {Float64Array} */ words) => new Float32Array(Uint32Array.from(words).buffer);

/** The tensors that `adamw` takes. @param {Record<'p' | 'm' | 'v' | 'g' | 'state', import('../lib/kernel-check.mjs').Tensor>} own */
const operands = ({ p, m, v, g, state }) => ({
  ...{ parameters: p.tensor, first: m.tensor, second: v.tensor },
  ...{ gradient: g.tensor, state: state.tensor },
});

test('schedule, bias corrections and the random offset', () => {
  const options = { rate: 3e-4, finalRate: 3e-5, warmup: 5, total: 40, beta1: 0.9, beta2: 0.999, seed: 5n };
  const c = new Case({ guard: 0 });
  for (const step of [0, 1, 4, 5, 6, 20, 38, 39, 40, 1000, 100000]) {
    const state = c.inout(optimizerState({ ...options, step }), 'u32');
    c.run(kernels.optimizerAdvance({ state: state.tensor }));
    const words = state.read();
    const values = floats(words);
    assert.equal(words[STATE.step], step + 1);
    assert.equal(words[STATE.offsetLow], step + 1);
    assertClose([values[STATE.rate]], [reference.learningRate(step + 1, options)], 5e-7, `rate of step ${step + 1}`);
    assertClose([values[STATE.correction1]], [1 - 0.9 ** (step + 1)], 5e-7, `correction1 of step ${step + 1}`);
    assertClose([values[STATE.correction2]], [1 - 0.999 ** (step + 1)], 5e-7, `correction2 of step ${step + 1}`);
  }
  c.destroy();

  const d = new Case({ guard: 0 });
  const wrap = optimizerState({ rate: 1 });
  wrap[STATE.offsetLow] = 0xffffffff;
  const state = d.inout(wrap, 'u32');
  d.run(kernels.optimizerAdvance({ state: state.tensor }));
  assert.deepEqual([...state.read().subarray(STATE.offsetLow, STATE.offsetHigh + 1)], [0, 1]);
  assert.equal(floats(state.read())[STATE.rate], 1, 'a constant rate');
  d.destroy();
});

for (const [copyType, counts] of /** @type {const} */ ([
  [undefined, [4096, 1001]],
  ['f16', [4096, 1002]],
  ['bf16', [4096, 1002]],
])) {
  for (const count of counts) {
    test(`five clipped steps of AdamW over ${count} parameters${copyType ? `, ${copyType} copy` : ''}`, () => {
      const options = {
        rate: 1e-2,
        finalRate: 1e-3,
        warmup: 2,
        total: 9,
        beta1: 0.9,
        beta2: 0.95,
        epsilon: 1e-8,
        decay: 0.1,
        maxNorm: 1,
        gradientScale: 0.5,
      };
      const decayCount = Math.floor(count / 2) + 1;
      const steps = 5;
      const c = new Case({ guard: 0 });
      const p = c.inout(normal(count));
      const m = c.inout(new Float64Array(count));
      const v = c.inout(new Float64Array(count));
      const gradients = Array.from({ length: steps }, (_, i) => c.input(normal(count).map((x) => x * (i === 2 ? 1e-4 : 3))));
      const copy = copyType ? c.output(count, copyType) : undefined;
      const state = c.inout(optimizerState(options), 'u32');
      c.run(
        ...gradients.map((g) => [
          kernels.optimizerAdvance({ state: state.tensor }),
          ...kernels.gradientClip({ gradient: g.tensor, count, state: state.tensor }),
          kernels.adamw({
            ...operands({ p, m, v, g, state }),
            count,
            decayCount,
            copy: copy?.tensor,
            copyType,
          }),
        ]),
      );
      const held = { p: Float64Array.from(p.values), m: new Float64Array(count), v: new Float64Array(count) };
      let norm = 0;
      gradients.forEach((g, i) => {
        norm = 0.5 * Math.hypot(...g.values);
        const clip = 0.5 * Math.min(1, 1 / (norm + 1e-6));
        const rate = reference.learningRate(i + 1, options);
        reference.adamw({ ...held, g: g.values, step: i + 1, ...options, rate, decayCount, clip });
      });
      assertClose(m.read(), held.m, 4e-6, 'first moment');
      assertClose(v.read(), held.v, 4e-6, 'second moment');
      // What the steps moved, not the weights that hide it.
      const moved = (/** @type {Float64Array} */ to) => to.map((x, i) => x - p.values[i]);
      assertClose(moved(p.read()), moved(held.p), 1e-5, 'update');
      assertClose([floats(state.read())[STATE.norm]], [norm], 2e-6, 'norm');
      if (copy && copyType) assertClose(copy.read(), p.read(), TOLERANCE[copyType], 'copy');
      c.destroy();
    });
  }
}

for (const copyType of /** @type {const} */ (['f16', 'bf16'])) {
  for (const [count, first] of [
    [4096, 0],
    [1056, 0],
    // Pairs instead of fours.
    [1056, 2],
  ]) {
    test(`the permuted ${copyType} copy of ${count} parameters is the copy in that order${first ? ', by the narrow kernel' : ''}`, () => {
      const skipped = 32;
      const c = new Case({ guard: 0 });
      const [p, m, v] = [c.inout(normal(count)), c.inout(new Float64Array(count)), c.inout(new Float64Array(count))];
      const g = c.input(normal(first + count));
      const copy = c.output(count, copyType);
      const permuted = c.output(skipped + count, copyType);
      const state = c.inout(optimizerState({ rate: 1e-2, maxNorm: 1 }), 'u32');
      const gradient = { buffer: g.buffer, offset: first };
      c.run(
        kernels.optimizerAdvance({ state: state.tensor }),
        ...kernels.gradientClip({ gradient: g.tensor, count, state: state.tensor }),
        kernels.adamw({
          ...{ parameters: p.tensor, first: m.tensor, second: v.tensor, gradient, state: state.tensor, count },
          ...{ copy: copy.tensor, copyType, permuted: { buffer: permuted.buffer, offset: skipped } },
        }),
      );
      assertClose(copy.read(), p.read(), TOLERANCE[copyType], 'copy');
      const halves = (/** @type {typeof copy} */ tensor) => new Uint16Array(tensor.words().buffer, 0, tensor.count);
      assert.deepEqual(halves(permuted).subarray(0, skipped), new Uint16Array(skipped).fill(0x7fc1));
      const natural = halves(copy);
      assert.deepEqual(
        halves(permuted).subarray(skipped),
        natural.map((_, i) => natural[columnOf(i)]),
      );
      c.destroy();
    });
  }
}

test('a gradient that is not finite leaves everything as it was', () => {
  for (const bad of [Infinity, NaN, -Infinity, 1e30]) {
    const count = 100000;
    const c = new Case({ guard: 0 });
    const values = normal(count);
    values[count - 7] = bad; // 1e30: its square overflows
    const [p, m, v] = [c.inout(normal(count)), c.inout(normal(count)), c.inout(normal(count).map(Math.abs))];
    const g = c.input(values);
    const [copy, permuted] = [c.inout(normal(count), 'bf16'), c.inout(normal(count), 'bf16')];
    const state = c.inout(optimizerState({ rate: 1e-2, maxNorm: 1 }), 'u32');
    c.run(
      kernels.optimizerAdvance({ state: state.tensor }),
      ...kernels.gradientClip({ gradient: g.tensor, count, state: state.tensor }),
      kernels.adamw({
        ...operands({ p, m, v, g, state }),
        count,
        copy: copy.tensor,
        copyType: 'bf16',
        permuted: permuted.tensor,
      }),
    );
    for (const t of [p, m, v, copy, permuted]) assert.deepEqual(t.read(), t.values, String(bad));
    assert.equal(state.read()[STATE.skipped], 1);
    assert.equal(floats(state.read())[STATE.clip], 0);
    // The next step has its number, but not its random numbers.
    assert.equal(state.read()[STATE.step], 0);
    assert.equal(state.read()[STATE.offsetLow], 1);
    c.destroy();
  }
});

test('without a norm to clip by no step is skipped; a state says how many were', () => {
  const c = new Case({ guard: 0 });
  const g = c.input(Float64Array.of(NaN, 1, Infinity, 2));
  const state = c.inout(optimizerState({ rate: 0.1, gradientScale: 0.5, step: 15 * 2 ** 28, skipped: 2 ** 28 + 2 }), 'u32');
  c.run(kernels.optimizerAdvance({ state: state.tensor }), ...kernels.gradientClip({ gradient: g.tensor, count: 4, state: state.tensor }));
  const words = state.read();
  const { step, skipped, offsetLow, offsetHigh } = STATE;
  assert.deepEqual(
    [step, skipped, offsetLow, offsetHigh].map((word) => words[word]),
    [15 * 2 ** 28 + 1, 2 ** 28 + 2, 3, 1],
  );
  assert.equal(floats(words)[STATE.clip], 0.5);
  c.destroy();
});

test('the norm of a gradient in shards has the bits of one in a single buffer', () => {
  const count = 100000;
  const values = normal(count);
  /** @param {number[]} sizes of the shards @param {{ guard?: number }} [options] */
  const state = (sizes, options) => {
    const c = new Case(options);
    let first = 0;
    const shards = sizes.map((size) => ({ tensor: c.input(values.subarray(first, (first += size))).tensor, count: size }));
    const state = c.inout(optimizerState({ rate: 1e-2, maxNorm: 1 }), 'u32');
    c.run(...kernels.gradientClip({ gradient: shards.length === 1 ? shards[0].tensor : shards, count, state: state.tensor }));
    const words = state.read();
    c.destroy();
    return words;
  };
  const whole = state([count], { guard: 0 });
  assertClose([floats(whole)[STATE.norm]], [Math.hypot(...values)], 2e-6, 'norm');
  // Ends within a block and at one's end (16 blocks of 1,563 vectors on a CPU device), shards of less than a block, and many in one block.
  for (const sizes of [
    [50000, 50000],
    [4 * 1563, count - 4 * 1563],
    [99996, 4],
    [4, 8, 12, 99976],
    [30000, 4, 69996],
    Array(20).fill(5000),
    Array(250).fill(400),
  ]) {
    assert.deepEqual(state(sizes, { guard: 0 }), whole, `shards of ${sizes.slice(0, 4)}`);
  }
  const shards = [
    { tensor: 1, count: 40 },
    { tensor: 2, count: 50 },
  ];
  assert.throws(
    () => kernels.gradientClip({ gradient: shards, count: 100, state: 3 }),
    /gradientClip: the shards must hold count = 100 elements together, got 90/,
  );
});

test('states of several groups get one norm, and each its own clip', () => {
  const count = 4096;
  const c = new Case({ guard: 0 });
  const g = c.input(normal(count));
  const options = [
    { rate: 0.1, maxNorm: 2 },
    { rate: 0.1, maxNorm: 0 },
    { rate: 0.1, maxNorm: 5, gradientScale: 0.5 },
  ];
  const states = options.map((own) => c.inout(optimizerState(own), 'u32'));
  c.run(...kernels.gradientClip({ gradient: g.tensor, count, state: states.map(({ tensor }) => tensor) }));
  const norm = Math.hypot(...g.values);
  options.forEach(({ maxNorm, gradientScale = 1 }, i) => {
    const words = floats(states[i].read());
    assertClose([words[STATE.norm]], [gradientScale * norm], 2e-6, 'norm');
    assertClose([words[STATE.clip]], [gradientScale * (maxNorm > 0 ? maxNorm / (gradientScale * norm + 1e-6) : 1)], 2e-6, 'clip');
  });
  c.destroy();
});

test('without clipping the gradient is only scaled', () => {
  const count = 64;
  const c = new Case({ guard: 0 });
  const p = c.inout(normal(count));
  const [m, v] = [c.inout(new Float64Array(count)), c.inout(new Float64Array(count))];
  const g = c.input(normal(count));
  const state = c.inout(optimizerState({ rate: 0.1, gradientScale: 0.25, decay: 0 }), 'u32');
  c.run(
    kernels.optimizerAdvance({ state: state.tensor }),
    kernels.adamw({
      ...operands({ p, m, v, g, state }),
      count,
      decayCount: 0,
    }),
  );
  assertClose(
    m.read(),
    g.values.map((x) => 0.1 * 0.25 * x),
    1e-6,
    'first moment',
  );
  c.destroy();
});
