// Multi-head attention, encoder and decoder layers by PyTorch's names: against formulas in float64 and their differences, eager and compiled.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, compile, grad, manualSeed, nn, noGrad, randn, tensor } from '../../nn/index.mjs';
import { assertClose } from '../lib/random-data.mjs';
import { initDevice, values } from './setup.mjs';

before(initDevice);

/** @typedef {import('../../nn/index.mjs').Tensor} Tensor */
/** Rows of numbers. @typedef {number[][]} Matrix */
/** Arrays by name. @typedef {Record<string, Float64Array>} State */

/** @param {ArrayLike<number>} data @param {number} columns @returns {Matrix} */
const rowsOf = (data, columns) =>
  Array.from({ length: data.length / columns }, (_, r) => Array.from({ length: columns }, (_, c) => data[r * columns + c]));
/** x Wᵀ + b. @param {Matrix} x @param {ArrayLike<number>} weight @param {ArrayLike<number> | undefined} bias @returns {Matrix} */
const linear = (x, weight, bias) => {
  const w = rowsOf(weight, x[0].length);
  return x.map((row) => w.map((own, o) => own.reduce((sum, v, i) => sum + v * row[i], bias ? bias[o] : 0)));
};
/** @param {Matrix} x @param {State} state @param {string} name */
const norm = (x, state, name) =>
  x.map((row) => {
    const mean = row.reduce((a, b) => a + b) / row.length;
    const variance = row.reduce((a, b) => a + (b - mean) ** 2, 0) / row.length;
    return row.map((v, i) => ((v - mean) / Math.sqrt(variance + 1e-5)) * state[`${name}.weight`][i] + (state[`${name}.bias`]?.[i] ?? 0));
  });
/** @param {Matrix} a @param {Matrix} b */
const sum = (a, b) => a.map((row, r) => row.map((v, c) => v + b[r][c]));

/**
 * PyTorch's multi-head attention of one sequence, in float64.
 * @param {Matrix} query @param {Matrix} memory @param {State} state @param {string} name @param {number} heads
 * @param {(head: number, i: number, j: number) => number} [bias] -Infinity where a query does not attend
 */
function attend(query, memory, state, name, heads, bias = () => 0) {
  const n = query[0].length;
  const whole = state[`${name}in_proj_weight`];
  const [q, k, v] = [query, memory, memory].map((x, i) =>
    linear(x, whole.slice(i * n * n, (i + 1) * n * n), state[`${name}in_proj_bias`]?.slice(i * n, (i + 1) * n)),
  );
  const size = n / heads;
  const weights = Array.from({ length: heads }, (_, h) =>
    q.map((row, i) => {
      const scores = k.map((key, j) => {
        let dot = 0;
        for (let e = h * size; e < (h + 1) * size; e++) dot += row[e] * key[e];
        return dot / Math.sqrt(size) + bias(h, i, j);
      });
      const most = Math.max(...scores);
      const exps = scores.map((s) => (most === -Infinity ? 0 : Math.exp(s - most)));
      const total = exps.reduce((a, b) => a + b) || 1;
      return exps.map((e) => e / total);
    }),
  );
  const mixed = q.map((_, i) =>
    Array.from({ length: n }, (_, c) => v.reduce((total, row, j) => total + weights[Math.floor(c / size)][i][j] * row[c], 0)),
  );
  return { out: linear(mixed, state[`${name}out_proj.weight`], state[`${name}out_proj.bias`]), weights };
}

/** @param {any} module @returns {Promise<State>} */
async function stateOf(module) {
  const entries = Object.entries(module.stateDict());
  return Object.fromEntries(await Promise.all(entries.map(async ([name, x]) => [name, Float64Array.from(await values(x))])));
}

/**
 * A module's result and the gradients of inputs and parameters, eager and compiled, against a reference and its differences.
 * @param {any} module @param {Tensor[]} inputs @param {(inputs: Float64Array[], state: State) => number[]} reference
 * @param {(...inputs: any[]) => Tensor} call
 */
async function check(module, inputs, reference, call) {
  const state = await stateOf(module);
  const data = await Promise.all(inputs.map(async (x) => Float64Array.from(await values(x))));
  const expected = Float64Array.from(reference(data, state));
  assertClose(await values(noGrad(() => call(...inputs))), expected, 2e-6, 'result');
  for (const x of inputs) x.requiresGrad_();
  const weights = expected.map((_, i) => Math.sin(3 * i + 1));
  const named = [...module.namedParameters()];
  const run = (/** @type {any[]} */ ...own) => {
    const y = call(...own);
    return grad(y.mul(tensor(weights, { shape: [...y.shape] })).sum(), [...own, ...named.map(([, p]) => p)]);
  };
  const weight = tensor(weights, { shape: [...call(...inputs).shape] });
  const compiled = compile((/** @type {any[]} */ ...own) =>
    grad(
      call(...own)
        .mul(weight)
        .sum(),
      [...own, ...named.map(([, p]) => p)],
    ),
  )(...inputs);
  const loss = (/** @type {number[]} */ out) => out.reduce((total, v, i) => total + v * weights[i], 0);
  const places = [...inputs.map((_, i) => `input ${i}`), ...named.map(([name]) => name)];
  for (const [i, gradient] of run(...inputs).entries()) {
    const own = i < inputs.length ? data[i] : state[places[i]];
    const differences = own.map((v, k) => {
      const at = (/** @type {number} */ value) => {
        const moved = own.with(k, value);
        return loss(i < inputs.length ? reference(data.with(i, moved), state) : reference(data, { ...state, [places[i]]: moved }));
      };
      return (at(v + 1e-5) - at(v - 1e-5)) / 2e-5;
    });
    assertClose(await values(gradient), differences, 1e-4, `gradient of ${places[i]}`);
    assertClose(await values(compiled[i]), differences, 1e-4, `gradient of ${places[i]}, compiled`);
  }
}

const [batch, tokens, keys, width, heads] = [2, 3, 5, 4, 2];
const sequences = (/** @type {Float64Array} */ data, /** @type {number} */ count) =>
  Array.from({ length: batch }, (_, b) => rowsOf(data.slice(b * count * width, (b + 1) * count * width), width));

/** Away from zeros of biases and ones of norms. @param {any} module */
function shake(module) {
  noGrad(() => {
    for (const p of module.parameters()) if (p.ndim === 1) p.copy_(F.add(p, randn(p.shape).mul(0.3)));
  });
  return module;
}

test('MultiheadAttention: to itself and to others, with masks of every kind', async () => {
  manualSeed(3);
  const layer = shake(new nn.MultiheadAttention(width, heads));
  assert.deepEqual(Object.keys(layer.stateDict()).sort(), ['in_proj_bias', 'in_proj_weight', 'out_proj.bias', 'out_proj.weight']);
  const hides = (/** @type {number} */ i, /** @type {number} */ j) => (i + 2 * j) % 3 === 0;
  const boolMask = tensor(Array.from({ length: tokens }, (_, i) => Array.from({ length: keys }, (_, j) => hides(i, j))));
  const added = randn([batch * heads, tokens, keys]);
  const addedValues = await values(added);
  const padding = tensor(Array.from({ length: batch }, (_, b) => Array.from({ length: keys }, (_, j) => j >= 4 - b)));
  const floatPadding = F.where(padding, -3, 0);
  /** @type {[string, object, (b: number, h: number, i: number, j: number) => number][]} */
  const masks = [
    ['none', {}, () => 0],
    ['bool', { attnMask: boolMask }, (_b, _h, i, j) => (hides(i, j) ? -Infinity : 0)],
    ['added', { attnMask: added }, (b, h, i, j) => addedValues[((b * heads + h) * tokens + i) * keys + j]],
    ['padding', { keyPaddingMask: padding }, (b, _h, _i, j) => (j >= 4 - b ? -Infinity : 0)],
    ['both bool', { attnMask: boolMask, keyPaddingMask: padding }, (b, _h, i, j) => (hides(i, j) || j >= 4 - b ? -Infinity : 0)],
    [
      'added and padding',
      { attnMask: added, keyPaddingMask: padding },
      (b, h, i, j) => (j >= 4 - b ? -Infinity : addedValues[((b * heads + h) * tokens + i) * keys + j]),
    ],
    [
      'bool and added padding',
      { attnMask: boolMask, keyPaddingMask: floatPadding },
      (b, _h, i, j) => (hides(i, j) ? -Infinity : j >= 4 - b ? -3 : 0),
    ],
    ['causal', { isCausal: true }, (_b, _h, i, j) => (j > i + keys - tokens ? -Infinity : 0)],
  ];
  for (const [name, options, bias] of masks) {
    const of = (/** @type {Float64Array[]} */ [q, k], /** @type {State} */ state) =>
      sequences(q, tokens).map((own, b) => attend(own, sequences(k, keys)[b], state, '', heads, (h, i, j) => bias(b, h, i, j)));
    const inputs = () => [randn([batch, tokens, width]), randn([batch, keys, width])];
    for (const needWeights of [true, false])
      await check(
        layer,
        inputs(),
        (data, state) => of(data, state).flatMap(({ out }) => out.flat()),
        (q, k) => layer.forward(q, k, k, { ...options, needWeights })[0],
      ).catch((error) => {
        throw new Error(`${name}, needWeights ${needWeights}: ${error.message}`);
      });
    const [q, k] = inputs();
    const expected = of(await Promise.all([q, k].map(async (x) => Float64Array.from(await values(x)))), await stateOf(layer));
    const [, each] = layer.forward(q, k, k, { ...options, averageAttnWeights: false });
    assertClose(await values(each), Float64Array.from(expected.flatMap(({ weights }) => weights.flat(2))), 1e-6, `weights, ${name}`);
    const mean = expected.flatMap(({ weights }) => weights[0].flatMap((row, i) => row.map((w, j) => (w + weights[1][i][j]) / 2)));
    assertClose(await values(layer.forward(q, k, k, options)[1]), Float64Array.from(mean), 1e-6, `mean weights, ${name}`);
  }
  const x = randn([batch, tokens, width]);
  const [own] = layer.forward(x);
  const first = new nn.MultiheadAttention(width, heads, { batchFirst: false });
  first.loadStateDict(layer.stateDict());
  const [swapped, weights] = first.forward(x.transpose(0, 1));
  assert.deepEqual(await values(swapped.transpose(0, 1)), await values(own));
  assert.deepEqual(weights?.shape, [batch, tokens, tokens]);
  const [one, ofOne] = layer.forward(x.at(1), x.at(1), x.at(1), { keyPaddingMask: tensor([false, false, true]) });
  assert.deepEqual(
    [one.shape, ofOne?.shape],
    [
      [tokens, width],
      [tokens, tokens],
    ],
  );
  const batched = layer.forward(x.slice(0, 1), undefined, undefined, { keyPaddingMask: tensor([[false, false, true]]) });
  assertClose(await values(one), Float64Array.from(await values(batched[0])), 1e-6, 'without a batch');
  assert.equal(layer.forward(x, x, x, { needWeights: false })[1], undefined);
  assert.throws(
    () => layer.forward(x, x, x, { attnMask: boolMask }),
    /^ShapeError: MultiheadAttention: attnMask must be \[3, 3\] or \[4, 3, 3\], got/,
  );
  assert.throws(
    () => layer.forward(x, x, x, { keyPaddingMask: boolMask }),
    /keyPaddingMask must be \[batch, keys\], \[2, 3\], got \[3, 5\]/,
  );
  assert.throws(() => new nn.MultiheadAttention(5, 2), /2 heads do not divide an embedDim of 5/);
});

test('MultiheadAttention: keys and values of other sizes have projections by PyTorch’s names', async () => {
  manualSeed(4);
  const layer = shake(new nn.MultiheadAttention(width, heads, { kdim: 3, vdim: 5 }));
  const names = ['in_proj_bias', 'k_proj_weight', 'out_proj.bias', 'out_proj.weight', 'q_proj_weight', 'v_proj_weight'];
  assert.deepEqual(Object.keys(layer.stateDict()).sort(), names);
  const [q, k, v] = [randn([1, 2, width]), randn([1, 3, 3]), randn([1, 3, 5])];
  const state = await stateOf(layer);
  const biases = [0, 1, 2].map((i) => state.in_proj_bias.slice(i * width, (i + 1) * width));
  // The projections by hand, then attention with the identity as its projection.
  const projected = [
    linear(rowsOf(await values(q), width), state.q_proj_weight, biases[0]),
    linear(rowsOf(await values(k), 3), state.k_proj_weight, biases[1]),
    linear(rowsOf(await values(v), 5), state.v_proj_weight, biases[2]),
  ].map((rows) =>
    tensor(rows)
      .reshape(1, -1, heads, width / heads)
      .transpose(1, 2),
  );
  const mixed = F.scaledDotProductAttention(projected[0], projected[1], projected[2]).transpose(1, 2).reshape(1, 2, width);
  assertClose(await values(layer.forward(q, k, v)[0]), Float64Array.from(await values(layer.out_proj.forward(mixed))), 2e-6, 'result');
});

test('dropout of attention weights: while training only, and of the expected size', async () => {
  manualSeed(5);
  const layer = new nn.MultiheadAttention(4, 1, { dropout: 0.5 });
  const x = randn([1, 64, 4]);
  const kept = await values(layer.eval().forward(x)[0]);
  assert.deepEqual(await values(layer.forward(x)[0]), kept);
  layer.train();
  const [, weights] = layer.forward(x);
  const zeros = (await values(/** @type {Tensor} */ (weights))).filter((w) => w === 0).length;
  assert.ok(Math.abs(zeros / 64 ** 2 - 0.5) < 0.05, `${zeros} of 4096 weights are dropped`);
  const [q, v] = [randn([64, 8]), F.ones([64, 4])];
  const mean = await F.mean(F.scaledDotProductAttention(q, q, v, { dropoutP: 0.25 })).item();
  assert.ok(Math.abs(mean - 1) < 0.05, `weights that are kept are divided by 0.75: ${mean}`);
  assert.throws(() => F.scaledDotProductAttention(q, q, v, { dropoutP: 1.5 }), /dropoutP must be in \[0, 1\], got 1.5/);
});

const gelu = (/** @type {number} */ x) => {
  // Φ by its series, which converges everywhere.
  let [term, total] = [x, x];
  for (let n = 1; n < 200; n++) total += (term *= -(x * x) / 2 / n) / (2 * n + 1);
  return x * (0.5 + total / Math.sqrt(2 * Math.PI));
};

test('encoder layers: both orders of norms, both activations, causal', async () => {
  manualSeed(6);
  for (const [normFirst, activation, bias] of /** @type {[boolean, 'relu' | 'gelu', boolean][]} */ ([
    [false, 'relu', true],
    [true, 'gelu', true],
    [false, 'gelu', false],
  ])) {
    const layer = shake(
      new nn.TransformerEncoderLayer(width, heads, { dimFeedforward: 3, dropout: 0.5, activation, normFirst, bias }).eval(),
    );
    const f = activation === 'gelu' ? gelu : (/** @type {number} */ x) => Math.max(x, 0);
    await check(
      layer,
      [randn([batch, tokens, width])],
      ([x], state) =>
        sequences(x, tokens).flatMap((own) => {
          const one = (/** @type {Matrix} */ y) => attend(y, y, state, 'self_attn.', heads, (_, i, j) => (j > i ? -Infinity : 0)).out;
          const two = (/** @type {Matrix} */ y) => {
            const hidden = linear(y, state['linear1.weight'], state['linear1.bias']).map((row) => row.map(f));
            return linear(hidden, state['linear2.weight'], state['linear2.bias']);
          };
          if (normFirst) {
            const y = sum(own, one(norm(own, state, 'norm1')));
            return sum(y, two(norm(y, state, 'norm2'))).flat();
          }
          const y = norm(sum(own, one(own)), state, 'norm1');
          return norm(sum(y, two(y)), state, 'norm2').flat();
        }),
      (x) => layer.forward(x, { isCausal: true }),
    );
  }
});

/** A decoder layer without norms first, of one sequence. @param {Matrix} x @param {Matrix} memory @param {State} state @param {string} name */
function decoded(x, memory, state, name) {
  const first = attend(x, x, state, `${name}self_attn.`, heads, (_, i, j) => (j > i ? -Infinity : 0)).out;
  const y = norm(sum(x, first), state, `${name}norm1`);
  const z = norm(sum(y, attend(y, memory, state, `${name}multihead_attn.`, heads).out), state, `${name}norm2`);
  const hidden = linear(z, state[`${name}linear1.weight`], state[`${name}linear1.bias`]).map((row) => row.map((v) => Math.max(v, 0)));
  return norm(sum(z, linear(hidden, state[`${name}linear2.weight`], state[`${name}linear2.bias`])), state, `${name}norm3`);
}

test('decoder layers attend to a memory', async () => {
  manualSeed(7);
  const layer = shake(new nn.TransformerDecoderLayer(width, heads, { dimFeedforward: 3, dropout: 0 }));
  await check(
    layer,
    [randn([batch, tokens, width]), randn([batch, keys, width])],
    ([x, m], state) => sequences(x, tokens).flatMap((own, b) => decoded(own, sequences(m, keys)[b], state, '').flat()),
    (x, m) => layer.forward(x, m, { tgtIsCausal: true }),
  );
});

test('a whole transformer: stacks with norms, names of PyTorch’s state, masks', async () => {
  manualSeed(8);
  const options = { numEncoderLayers: 2, numDecoderLayers: 2, dimFeedforward: 6, dropout: 0.25 };
  const model = shake(new nn.Transformer(width, heads, options)).eval();
  const names = Object.keys(model.stateDict());
  for (const name of [
    'encoder.layers.1.self_attn.in_proj_weight',
    'encoder.norm.weight',
    'decoder.layers.0.multihead_attn.out_proj.bias',
    'decoder.layers.1.linear2.weight',
    'decoder.layers.1.norm3.bias',
    'decoder.norm.bias',
  ])
    assert.ok(names.includes(name), name);
  assert.equal(names.length, 2 * 12 + 2 * 18 + 4);
  const weights = model.encoder.layers.at(0).linear1.weight;
  assert.notDeepEqual(await values(weights), await values(model.encoder.layers.at(1).linear1.weight), 'each is drawn by itself');
  const [src, tgt] = [randn([batch, keys, width]), randn([batch, tokens, width])];
  const mask = nn.Transformer.generateSquareSubsequentMask(tokens);
  assert.deepEqual(await values(mask), [0, -Infinity, -Infinity, 0, 0, -Infinity, 0, 0, 0]);
  const y = await values(model.forward(src, tgt, { tgtIsCausal: true }));
  assertClose(await values(model.forward(src, tgt, { tgtMask: mask })), Float64Array.from(y), 2e-6, 'by a mask');
  // By its parts, each of which is checked above.
  let [memory, x] = [src, tgt];
  for (const layer of model.encoder.layers) memory = layer.forward(memory);
  memory = /** @type {any} */ (model.encoder).norm.forward(memory);
  for (const layer of model.decoder.layers) x = layer.forward(x, memory, { tgtIsCausal: true });
  assert.deepEqual(await values(/** @type {any} */ (model.decoder).norm.forward(x)), y);
  // Padding changes nothing of what is before it.
  const padding = tensor(Array.from({ length: batch }, () => [false, false, false, false, true]));
  const padded = model.forward(src, tgt, { srcKeyPaddingMask: padding, memoryKeyPaddingMask: padding });
  const short = model.forward(src.slice(1, 0, 4), tgt);
  assertClose(await values(padded), Float64Array.from(await values(short)), 2e-6, 'padding');
  const later = new nn.Transformer(width, heads, { ...options, batchFirst: false }).eval();
  later.loadStateDict(model.stateDict());
  const swapped = later.forward(src.transpose(0, 1), tgt.transpose(0, 1), { tgtIsCausal: true });
  assertClose(await values(swapped.transpose(0, 1)), Float64Array.from(y), 2e-6, 'tokens first');
});

test('stacks are made of copies, which train apart from the layer', async () => {
  manualSeed(9);
  const layer = new nn.TransformerEncoderLayer(width, heads, { dimFeedforward: 3 });
  const stack = new nn.TransformerEncoder(layer, 2);
  const x = randn([1, 2, width]);
  const [a, b] = [stack.layers.at(0), stack.layers.at(1)];
  assert.deepEqual(await values(a.linear1.weight), await values(layer.linear1.weight));
  assert.notEqual(a.linear1.weight, b.linear1.weight);
  stack.forward(x).sum().backward();
  assert.equal(layer.linear1.weight.grad, undefined);
  assert.ok(a.linear1.weight.grad && b.linear1.weight.grad);
  assert.equal(stack.parameters().length, 24);
  assert.throws(
    () => new nn.TransformerEncoder(/** @type {any} */ (new nn.ReLU()), 2),
    /TransformerEncoder: expected a TransformerEncoderLayer, got a ReLU/,
  );
  assert.throws(
    () => new nn.TransformerEncoderLayer(4, 2, { activation: /** @type {any} */ ('tanh') }),
    /activation must be 'relu', 'gelu' or a function, got tanh/,
  );
  assert.throws(
    () => layer.forward(randn([2, 3])),
    /TransformerEncoderLayer: src must be \[..., tokens, 4\] of two or three dimensions, got \[2, 3\]/,
  );
});

test('Embedding: rows that are looked up are shortened to maxNorm, others stay', async () => {
  for (const [normType, of] of /** @type {[number, (row: number[]) => number][]} */ ([
    [2, (row) => Math.hypot(...row)],
    [1, (row) => row.reduce((a, b) => a + Math.abs(b), 0)],
  ])) {
    const table = new nn.Embedding(4, 3, { maxNorm: 1, normType });
    const start = [3, 4, 0, 0.1, 0.2, 0, 5, 0, 0, -2, 2, 1];
    const reset = () => table.loadStateDict({ weight: tensor(start, { shape: [4, 3] }) });
    const ids = tensor([[0, 1, 3, 0]], { dtype: 'i32' });
    const expected = rowsOf(start, 3).map((row, r) => (r !== 2 && of(row) > 1 ? row.map((v) => v / (of(row) + 1e-7)) : row));
    reset();
    const y = await values(table.forward(ids));
    assertClose(await values(table.weight), Float64Array.from(expected.flat()), 1e-6, `p = ${normType}`);
    assertClose(y, Float64Array.from([0, 1, 3, 0].flatMap((id) => expected[id])), 1e-6, 'the result has short rows');
    reset();
    assertClose(await values(compile((/** @type {any} */ i) => table.forward(i))(ids)), Float64Array.from(y), 1e-6, 'compiled');
    assertClose(await values(table.weight), Float64Array.from(expected.flat()), 1e-6, 'compiled, in place');
    table.forward(ids).sum().backward();
    assert.deepEqual(await values(table.weight.grad), [2, 2, 2, 1, 1, 1, 0, 0, 0, 1, 1, 1]);
  }
  assert.throws(() => new nn.Embedding(4, 3, { maxNorm: 0 }), /Embedding: maxNorm must be a number above 0, got 0/);
});
