// Masked attention: boolean and added masks, broadcast as PyTorch broadcasts them, against float64, eagerly and compiled. A query
// that attends to no key has the result 0 and gradients of 0.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, compile, grad, manualSeed, nn, noGrad, ones, randn, tensor, zeros } from '../../nn/index.mjs';
import { operations } from '../../nn/ops/registry.mjs';
import { assertClose, normal } from '../lib/random-data.mjs';
import { initDevice } from './setup.mjs';

before(initDevice);

/** @typedef {import('../../nn/index.mjs').Tensor} Tensor */
/** @param {any} x @returns {Promise<Float64Array>} */
const values = async (x) => Float64Array.from(await x.toArray());

const [batch, heads, queries, keys, size] = [2, 3, 4, 5, 6];

/**
 * Attention and its gradients by the formulas in float64.
 * @param {Float64Array[]} qkv of [batch, heads, tokens, size] @param {Float64Array} dOut
 * @param {(b: number, h: number, i: number, j: number) => number} bias what a mask adds: -Infinity where a query does not attend
 * @returns {{ out: Float64Array, gradients: Float64Array[] }}
 */
function reference([q, k, v], dOut, bias) {
  const [out, dq, dk, dv] = [q, q, k, v].map((x) => new Float64Array(x.length));
  const row = (/** @type {number} */ group, /** @type {number} */ tokens, /** @type {number} */ t) => (group * tokens + t) * size;
  const dot = (/** @type {Float64Array} */ x, /** @type {number} */ at, /** @type {Float64Array} */ y, /** @type {number} */ to) => {
    let sum = 0;
    for (let e = 0; e < size; e++) sum += x[at + e] * y[to + e];
    return sum;
  };
  for (let group = 0; group < batch * heads; group++) {
    for (let i = 0; i < queries; i++) {
      const at = row(group, queries, i);
      const scores = Array.from({ length: keys }, (_, j) => {
        const score = dot(q, at, k, row(group, keys, j)) / Math.sqrt(size);
        return score + bias(Math.floor(group / heads), group % heads, i, j);
      });
      const largest = Math.max(...scores);
      if (largest === -Infinity) continue;
      const e = scores.map((s) => Math.exp(s - largest));
      const sum = e.reduce((a, b) => a + b, 0);
      const p = e.map((x) => x / sum);
      const dp = p.map((_, j) => dot(dOut, at, v, row(group, keys, j)));
      const delta = p.reduce((a, x, j) => a + x * dp[j], 0);
      p.forEach((x, j) => {
        const to = row(group, keys, j);
        const ds = (x * (dp[j] - delta)) / Math.sqrt(size);
        for (let d = 0; d < size; d++) {
          out[at + d] += x * v[to + d];
          dv[to + d] += x * dOut[at + d];
          dq[at + d] += ds * k[to + d];
          dk[to + d] += ds * q[at + d];
        }
      });
    }
  }
  return { out, gradients: [dq, dk, dv] };
}

/** The element of a mask that counts for a score: sizes of 1 and missing ones repeat. @param {number[]} shape @param {number[]} index */
const place = (shape, index) => shape.reduce((at, n, d) => at * n + (n === 1 ? 0 : index[index.length - shape.length + d]), 0);

const SHAPES = [
  [queries, keys],
  [keys],
  [queries, 1],
  [1, keys],
  [batch, 1, 1, keys],
  [heads, 1, keys],
  [batch, heads, queries, keys],
  [1, 1, queries, keys],
  [],
];

for (const dtype of /** @type {const} */ (['f32', 'bf16', 'f16'])) {
  test(`${dtype}: masks of every shape, causal and not; rows that see nothing`, async () => {
    const tolerance = { f32: 1e-5, bf16: 3e-2, f16: 4e-3 }[dtype];
    const shapes = [[batch, heads, queries, size], ...[0, 1].map(() => [batch, heads, keys, size])];
    const inputs = shapes.map((shape) => tensor(normal(shape.reduce((a, b) => a * b)), { shape, dtype }).requiresGrad_());
    const data = await Promise.all(inputs.map(values));
    const weights = tensor(normal(data[0].length), { shape: shapes[0], dtype });
    const dOut = await values(weights);
    for (const shape of SHAPES) {
      const count = shape.reduce((a, b) => a * b, 1);
      // The first query and a whole sequence see nothing, the others a part.
      const sees = Float64Array.from({ length: count }, (_, i) => Number(i >= (shape.at(-1) ?? 1) && (i * 7) % 3 > 0));
      const masks = {
        boolean: tensor(sees, { shape, dtype: 'bool' }),
        added: tensor(
          sees.map((s, i) => (s ? Math.fround(0.25 * (i % 3)) : -Infinity)),
          { shape, dtype },
        ),
      };
      for (const [kind, mask] of Object.entries(masks)) {
        for (const isCausal of [false, true]) {
          const what = `${kind} mask [${shape}]${isCausal ? ', causal' : ''}`;
          const wanted = reference(data, dOut, (b, h, i, j) => {
            const at = place(shape, [b, h, i, j]);
            if (!sees[at] || (isCausal && j > i + keys - queries)) return -Infinity;
            return kind === 'added' ? Math.fround(0.25 * (at % 3)) : 0;
          });
          const run = (/** @type {Tensor[]} */ [q, k, v], /** @type {Tensor} */ m, /** @type {Tensor} */ dy) => {
            const out = F.scaledDotProductAttention(q, k, v, { mask: m, isCausal });
            return [out, ...grad(out.mul(dy).sum(), [q, k, v])];
          };
          const compiled = compile((q, k, v, m, dy) => run([q, k, v], m, dy));
          for (const [how, results] of /** @type {const} */ ([
            ['eager', run(inputs, mask, weights)],
            ['compiled', compiled(inputs[0], inputs[1], inputs[2], mask, weights)],
          ])) {
            const [out, ...gradients] = await Promise.all(/** @type {Tensor[]} */ (results).map(values));
            assertClose(out, wanted.out, tolerance, `${what}, ${how}`);
            gradients.forEach((g, i) => assertClose(g, wanted.gradients[i], 2 * tolerance, `${what}, ${how}: d${'qkv'[i]}`));
            for (let i = 0; i < wanted.out.length; i += size) {
              if (wanted.out.subarray(i, i + size).some((x) => x !== 0)) continue;
              assert.ok(
                out.subarray(i, i + size).every((x) => x === 0),
                `${what}, ${how}: the row at ${i} is exactly 0`,
              );
              assert.ok(
                gradients[0].subarray(i, i + size).every((x) => x === 0),
                `${what}, ${how}: so is its gradient`,
              );
            }
          }
          compiled.dispose();
        }
      }
    }
  });
}

test('an added mask has a gradient, of which a row that sees nothing has 0', async () => {
  const q = randn([3, 4]);
  const [k, v] = [randn([2, 4]), randn([2, 4])];
  const bias = tensor([
    [-Infinity, -Infinity],
    [0.5, -Infinity],
    [0.25, -0.5],
  ]).requiresGrad_();
  const out = F.scaledDotProductAttention(q, k, v, { mask: bias });
  out
    .mul(randn([3, 4]))
    .sum()
    .backward();
  const gradient = await values(bias.grad);
  assert.deepEqual([...gradient.subarray(0, 4)].map(Math.abs), [0, 0, 0, 0]);
  assert.ok(Math.abs(gradient[4]) > 0 && Math.abs(gradient[4] + gradient[5]) < 1e-6, `${gradient}`);
});

test('a causal query does not fall back on keys that it may not see', async () => {
  // All that a mask leaves to the first query lies ahead of it.
  const mask = tensor([
    [false, true],
    [true, true],
  ]);
  const [q, k, v] = [ones([2, 2]), ones([2, 2]), tensor([[1], [3]])];
  for (const given of [mask, F.where(mask, 0, -Infinity)]) {
    assert.deepEqual([...(await values(F.scaledDotProductAttention(q, k, v, { mask: given, isCausal: true })))], [0, 2]);
  }
});

test('softmax of nothing but -∞ stays NaN', async () => {
  assert.deepEqual([...(await values(F.softmax(tensor([[-Infinity, -Infinity]]))))], [NaN, NaN]);
});

test('a query whose scores overflow to -∞ has 0, fused or not', async () => {
  // 1 · 3e38 · -9 for the second of two tokens, in heads of a fused and of another size.
  for (const headSize of [32, 8]) {
    const data = new Float32Array(2 * 3 * headSize);
    data[3 * headSize] = 3e38;
    data[headSize] = data[4 * headSize] = -32;
    data.fill(1, 2 * headSize, 3 * headSize);
    const qkv = tensor(data, { shape: [1, 2, 3 * headSize] }).requiresGrad_();
    const out = F.attention(qkv, { heads: 1 });
    out.sum().backward();
    assert.deepEqual([...(await values(out))], [...new Array(headSize).fill(0.5), ...new Array(headSize).fill(0)]);
    const gradient = await values(qkv.grad);
    assert.ok(gradient.every(Number.isFinite));
    assert.ok(gradient.subarray(3 * headSize, 4 * headSize).every((x) => x === 0));
  }
});

test('layers of attention take a mask: padding changes no token, and no gradient of the weights', async () => {
  manualSeed(3);
  for (const [width, options] of /** @type {const} */ ([
    [64, { causal: true, rope: true }],
    [64, {}],
    [12, { kvHeads: 1, bias: true }],
  ])) {
    const layer = new nn.MultiHeadAttention(width, 2, options);
    const parameters = [...layer.parameters()];
    const x = randn([2, 5, width]);
    // The first sequence is three tokens long, the second one.
    const lengths = [3, 1];
    const isToken = tensor(lengths.map((length) => [[[0, 1, 2, 3, 4].map((t) => t < length)]]));
    const run = (/** @type {Tensor} */ input, /** @type {Tensor | undefined} */ mask) => layer.forward(input, { mask });
    const padded = run(x, isToken);
    const loss = (/** @type {Tensor} */ y, /** @type {number} */ b, /** @type {number} */ length) =>
      y
        .slice(0, b, b + 1)
        .slice(1, 0, length)
        .square()
        .sum();
    const gradients = grad(loss(padded, 0, 3).add(loss(padded, 1, 1)), parameters);
    const alone = lengths.map((length, b) => run(x.slice(0, b, b + 1).slice(1, 0, length), undefined));
    for (const [b, length] of lengths.entries()) {
      const got = await values(padded.slice(0, b, b + 1).slice(1, 0, length));
      assertClose(got, await values(alone[b]), 1e-5, `sequence ${b}`);
    }
    const wanted = grad(loss(alone[0], 0, 3).add(loss(alone[1], 0, 1)), parameters);
    for (const [i, gradient] of gradients.entries())
      assertClose(await values(gradient), await values(wanted[i]), 1e-4, `gradient ${i} of width ${width}`);
    // A sequence of no tokens: what is left is the bias.
    const nothing = await values(run(x, tensor([[[[false]]], [[[true]]]])));
    const bias = options.bias ? await values(layer.out.bias) : new Float64Array(width);
    assertClose(
      nothing.subarray(0, 5 * width),
      Float64Array.from({ length: 5 * width }, (_, i) => bias[i % width]),
      0,
      'no token',
    );
  }
});

test('keyPaddingMask: true at the padding, alone and with masks of both kinds, and over a cache', async () => {
  const [batch, tokens, width] = [2, 5, 8];
  const layer = new nn.MultiHeadAttention(width, 2, { causal: true });
  const x = randn([batch, tokens, width]);
  // The second sequence is padded at its start: its first queries see nothing, and get what the layer makes of 0.
  const pads = [
    [false, false, false, true, true],
    [true, true, false, false, false],
  ];
  const padding = tensor(pads);
  const attends = padding.eq(0).reshape(batch, 1, 1, tokens);
  const bias = randn([2, tokens, tokens]);
  const half = tensor(Array.from({ length: tokens }, (_, i) => Array.from({ length: tokens }, (_, j) => (i + j) % 3 > 0)));
  const run = compile((/** @type {any} */ input, /** @type {any} */ options) => layer.forward(input, options));
  for (const [given, wanted] of /** @type {[any, any][]} */ ([
    [{ keyPaddingMask: padding }, attends],
    [{ keyPaddingMask: F.where(padding, -Infinity, 0) }, attends],
    [{ keyPaddingMask: padding, mask: half }, F.where(attends, half, 0)],
    [{ keyPaddingMask: padding, mask: bias }, F.where(attends, bias, -Infinity)],
    [{ keyPaddingMask: F.where(padding, -Infinity, 0), mask: half }, F.where(attends, half, 0)],
    [{ keyPaddingMask: F.where(padding, -Infinity, 0), mask: bias }, F.where(attends, bias, -Infinity)],
  ])) {
    const expected = [...(await values(layer.forward(x, { mask: wanted })))];
    assert.ok(expected.every(Number.isFinite));
    for (const y of [layer.forward(x, given), run(x, given)]) assert.deepEqual([...(await values(y))], expected);
    assert.deepEqual(expected.slice(tokens * width, (tokens + 2) * width), new Array(2 * width).fill(0), 'rows that see nothing are 0');
  }
  const y = layer.forward(x, { keyPaddingMask: padding });
  y.square().sum().backward();
  assert.ok((await values(/** @type {any} */ (layer.qkv.weight.grad))).every(Number.isFinite));
  const inTurn = noGrad(() => {
    const cache = layer.cache({ capacity: tokens, batch });
    const parts = [0, 1, 2, 3, 4].map((t) => layer.forward(x.slice(1, t, t + 1), { cache, keyPaddingMask: padding }));
    return F.cat(parts, 1);
  });
  assertClose(await inTurn.toArray(), await y.toArray(), 1e-5, 'token by token');
  const wrong = (/** @type {any} */ keyPaddingMask) => () => layer.forward(x, { keyPaddingMask });
  assert.throws(wrong(zeros([5])), /^ShapeError: MultiHeadAttention: keyPaddingMask must be of shape \[batch, keys\], \[2, 5\], got \[5\]/);
  assert.throws(
    wrong(zeros([2, 5], { dtype: 'i32' })),
    /^ArgumentError: MultiHeadAttention: keyPaddingMask must be bool \(true: padding\)/,
  );
});

test('grouped heads, windows and first keys: the fused kernel and scores in memory give what masks of copied heads give', async () => {
  manualSeed(5);
  const [batch, tokens] = [2, 9];
  // Documents of four and five tokens, and of one, six and two.
  const starts = tensor([...[0, 0, 0, 0, 4, 4, 4, 4, 4], ...[0, 1, 1, 1, 1, 1, 1, 7, 7]], { shape: [batch, tokens] });
  const place = tensor(Array.from({ length: tokens }, (_, i) => i));
  for (const headSize of [32, 6]) {
    for (const [heads, kvHeads, causal, window, firstKey] of /** @type {const} */ ([
      [4, 2, true, undefined, undefined],
      [3, 1, false, undefined, starts],
      [2, 2, true, 3, undefined],
      [2, 1, true, 4, starts.to('u32')],
      [2, 2, true, tokens, undefined],
    ])) {
      const what = `heads of ${headSize}, ${heads} of ${kvHeads}, causal ${causal}, window ${window}, ${firstKey ? 'documents' : 'one document'}`;
      const qkv = randn([batch, tokens, (heads + 2 * kvHeads) * headSize]).requiresGrad_();
      const dOut = randn([batch, tokens, heads * headSize]);
      // The same with a mask, and with each head of keys copied for its heads of queries.
      const seen = (/** @type {Tensor} */ from) => from.reshape(1, 1, tokens).expand(batch, tokens, tokens);
      const query = place.reshape(1, tokens, 1);
      let mask = seen(place)
        .ge(firstKey ? firstKey.to('f32').reshape(batch, tokens, 1) : 0)
        .to('f32');
      if (window) mask = mask.mul(seen(place).gt(query.sub(window)).to('f32'));
      const copied = (/** @type {number} */ first) =>
        Array.from({ length: heads }, (_, h) => first + Math.floor((h * kvHeads) / heads)).map((h) =>
          qkv.slice(2, h * headSize, (h + 1) * headSize),
        );
      const whole = F.cat([qkv.slice(2, 0, heads * headSize), ...copied(heads), ...copied(heads + kvHeads)], 2);
      const wanted = F.attention(whole, { heads, causal, mask: mask.ne(0).reshape(batch, 1, tokens, tokens) });
      const [gradient] = grad(wanted.mul(dOut).sum(), [qkv]);
      const options = { heads, kvHeads, causal, window, firstKey };
      const run = (/** @type {Tensor} */ x) => F.attention(x, options);
      const got = run(qkv);
      assertClose(await values(got), await values(wanted), 1e-5, what);
      assertClose(await values(grad(got.mul(dOut).sum(), [qkv])[0]), await values(gradient), 1e-5, `${what}: gradient`);
      const step = compile((/** @type {Tensor} */ x) => grad(run(x.requiresGrad_()).mul(dOut).sum(), [x])[0]);
      assertClose(await values(step(qkv.detach())), await values(gradient), 1e-5, `${what}: gradient, compiled`);
      step.dispose();
    }
  }
});

test('attention counts the products of what queries see by their places', () => {
  const { flops } = /** @type {any} */ (operations.get('attention'));
  const of = (/** @type {any} */ attributes) =>
    flops([{ shape: [2, 8, 8 * 32], dtype: 'f32' }], [], { heads: 4, kvHeads: 2, ...attributes });
  // Two products, of 32 multiplications and additions for each pair, of two sequences with four heads of queries.
  const pair = 2 * 2 * 32 * 2 * 4;
  assert.equal(of({ causal: false, window: 0 }), 64 * pair);
  assert.equal(of({ causal: true, window: 0 }), 32 * pair);
  assert.equal(of({ causal: true, window: 2 }), 14 * pair);
  assert.equal(of({ causal: false, window: 2 }), 46 * pair);
});

test('attention of grouped heads: wrong options are errors that say what there is', () => {
  const any = (/** @type {unknown} */ value) => /** @type {any} */ (value);
  const qkv = ones([1, 4, 4 * 32]);
  const run = (/** @type {any} */ options, x = qkv) => F.attention(x, { heads: 2, kvHeads: 1, ...options });
  assert.throws(() => run({ heads: 3, kvHeads: 2 }), /attention: kvHeads must divide heads = 3, got 2/);
  assert.throws(() => run({ kvHeads: 0 }), /attention: kvHeads must be an integer of at least 1, got 0/);
  assert.throws(() => run({ window: 0 }), /attention: window must be an integer of at least 1, got 0/);
  assert.throws(() => run({}, ones([1, 4, 130])), /attention: \[1, 4, 130\] for 2 heads and 1 kvHeads, expected/);
  for (const size of [32, 6]) {
    const x = ones([1, 4, 4 * size]);
    assert.throws(() => run({ firstKey: ones([1, 3]) }, x), /attention: firstKey \[1, 3\], expected \[batch, tokens\], \[1, 4\]/);
    assert.throws(() => run({ firstKey: ones([1, 4], { dtype: 'i32' }) }, x), /attention: firstKey must be u32 or f32, got i32/);
  }
  assert.throws(() => run({ firstKey: any([0]) }), /attention: expected a tensor, got/);
  const [table, x] = [ones([4, 16, 2]), ones([1, 4, 64])];
  const turned = (/** @type {any} */ positions) => F.rope(x, table, { heads: 1, headSize: 32, positions });
  assert.throws(() => turned(ones([1, 4])), /rope: positions f32 \[1, 4\], expected u32 \[1, 4\]/);
  assert.throws(() => turned(ones([4], { dtype: 'u32' })), /rope: positions u32 \[4\], expected u32 \[1, 4\]/);
});

test('masks of other types and shapes are errors that say what there is', () => {
  const any = (/** @type {unknown} */ value) => /** @type {any} */ (value);
  const [q, k, v] = [ones([2, 3, 4]), ones([2, 5, 4]), ones([2, 5, 4])];
  const run = (/** @type {any} */ mask) => F.scaledDotProductAttention(q, k, v, { mask });
  for (const dtype of /** @type {const} */ (['i32', 'u32'])) {
    assert.throws(
      () => run(ones([3, 5], { dtype })),
      new RegExp(
        `scaledDotProductAttention: mask must be bool \\(true: attends\\) or floating-point \\(added to the scores\\), got ${dtype}`,
      ),
    );
  }
  assert.throws(() => run(ones([3, 4]).gt(0)), /scaledDotProductAttention: \[2, 3, 5\] and \[3, 4\] do not broadcast/);
  assert.throws(() => run(ones([4, 1, 3, 5])), /a mask \[4, 1, 3, 5\] for scores \[2, 3, 5\], to which it has to broadcast/);
  assert.throws(() => run([[true]]), /scaledDotProductAttention: expected a tensor, got/);
  assert.throws(() => run(null), /scaledDotProductAttention: expected a tensor, got null/);
  const layer = new nn.MultiHeadAttention(8, 2);
  assert.throws(() => layer.forward(ones([1, 2, 8]), { mask: ones([3, 2]).gt(0) }), /do not broadcast/);
  assert.throws(
    () => layer.forward(ones([1, 2, 8]), any(ones([2, 2]))),
    /MultiHeadAttention: options must be an object, \{ mask: …, keyPaddingMask: …, cache: … \}, got Tensor/,
  );
});
