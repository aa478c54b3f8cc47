// Caches of `nn.MultiHeadAttention`: tokens one by one, in chunks and all at once give the same, eagerly and compiled; lengths, capacity, masks.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, autocast, compile, manualSeed, memory, nn, noGrad, ones, rand, randn, tensor } from '../../nn/index.mjs';
import { scaled } from '../lib/addon.mjs';
import { assertClose, seed } from '../lib/random-data.mjs';
import { Random } from '../lib/random.mjs';
import { initDevice } from './setup.mjs';

before(initDevice);

/** @typedef {import('../../nn/index.mjs').Tensor} Tensor */
/** @param {any} x @returns {Promise<Float64Array>} */
const values = async (x) => Float64Array.from(await x.toArray());
const any = (/** @type {unknown} */ value) => /** @type {any} */ (value);
const random = new Random(seed);
/** A token of each sequence. @param {Tensor} x [batch, tokens, width] @param {number} at @param {number} [count] */
const tokensOf = (x, at, count = 1) => x.slice(1, at, at + count).contiguous();

/** Sizes of chunks whose sum is `count`. @param {number} count @param {number} most */
function chunks(count, most) {
  const sizes = [];
  for (let rest = count; rest > 0; rest -= /** @type {number} */ (sizes.at(-1))) sizes.push(random.between(1, Math.min(most, rest)));
  return sizes;
}

/**
 * The results of a call for each chunk, end to end.
 * @param {Tensor} x @param {number[]} sizes @param {(x: Tensor) => Tensor} step
 */
function inChunks(x, sizes, step) {
  let at = 0;
  const parts = sizes.map((count) => {
    at += count;
    return step(tokensOf(x, at - count, count));
  });
  return F.cat(parts, 1);
}

test('tokens one by one, in random chunks and with a prefix are one forward pass, in layers of every kind', async () => {
  manualSeed(4);
  for (let round = 0; round < scaled(5); round++) {
    const kvHeads = random.between(1, 2);
    const heads = kvHeads * random.between(1, 3);
    const options = { kvHeads, causal: true, rope: random.chance(0.7), qkNorm: random.chance(0.5), bias: random.chance(0.5) };
    const width = heads * random.pick([32, 64, 6]);
    const [batch, tokens] = [random.between(1, 2), random.between(3, 14)];
    const layer = new nn.MultiHeadAttention(width, heads, options);
    const x = randn([batch, tokens, width]);
    const wanted = await values(layer.forward(x));
    const cache = layer.cache({ batch, capacity: tokens + random.below(5) });
    const eager = (/** @type {Tensor} */ part) => noGrad(() => layer.forward(part, { cache }));
    const compiled = compile(eager);
    const ones = new Array(tokens).fill(1);
    const prefix = random.between(1, tokens - 1);
    for (const [how, sizes, step] of /** @type {[string, number[], (x: Tensor) => Tensor][]} */ ([
      ['one by one', ones, eager],
      ['all at once', [tokens], eager],
      ['in chunks', chunks(tokens, 4), eager],
      ['compiled', ones, compiled],
      ['a prefix, then compiled', [prefix, ...ones.slice(prefix)], (part) => (part.shape[1] > 1 ? eager : compiled)(part)],
      ['taking turns', ones, (part) => (cache.length % 3 ? compiled : eager)(part)],
      ['compiled in chunks', [prefix, tokens - prefix], compiled],
    ])) {
      cache.reset();
      const got = await values(inChunks(x, sizes, step));
      assertClose(got, wanted, 1e-5, `${how}: ${width} in ${heads} heads ${JSON.stringify(options)}, ${sizes}`);
      assert.equal(cache.length, tokens);
    }
    compiled.dispose();
    cache.dispose();
  }
});

test('caches of 16 bits, and autocast', async () => {
  manualSeed(5);
  const layer = new nn.MultiHeadAttention(96, 3, { causal: true, rope: true, kvHeads: 1 });
  const x = randn([2, 9, 96]);
  const wanted = await values(layer.forward(x));
  for (const dtype of /** @type {const} */ (['f16', 'bf16'])) {
    for (const cast of [false, true]) {
      const cache = layer.cache({ batch: 2, capacity: 9, dtype: cast ? 'f32' : dtype });
      const step = (/** @type {Tensor} */ part) =>
        noGrad(() => (cast ? autocast(dtype, () => layer.forward(part, { cache })) : layer.forward(part, { cache })));
      for (const run of [step, compile(step)]) {
        cache.reset();
        const y = inChunks(x, [4, 1, 1, 2, 1], run);
        assert.equal(y.dtype, cast ? dtype : 'f32');
        assertClose(await values(y), wanted, { f16: 4e-3, bf16: 3e-2 }[dtype], `${dtype}, autocast ${cast}`);
      }
    }
  }
});

test('a step of one token is recorded once, for layers and tokens of one function too', async () => {
  manualSeed(6);
  const layers = [0, 1].map(() => new nn.MultiHeadAttention(64, 2, { causal: true, rope: true }));
  const caches = layers.map((layer) => layer.cache({ capacity: 16 }));
  const whole = (/** @type {Tensor} */ x) => layers.reduce((y, layer) => y.add(layer.forward(y)), x);
  const step = (/** @type {Tensor} */ x) => noGrad(() => layers.reduce((y, layer, i) => y.add(layer.forward(y, { cache: caches[i] })), x));
  const x = randn([1, 16, 64]);
  const wanted = await values(whole(x));
  const one = compile(step);
  // Two tokens of one launch.
  const two = compile((/** @type {Tensor} */ part) => F.cat([step(part.slice(1, 0, 1)), step(part.slice(1, 1, 2))], 1));
  const parts = [one(tokensOf(x, 0)), two(tokensOf(x, 1, 2)), ...Array.from({ length: 11 }, (_, i) => one(tokensOf(x, 3 + i)))];
  assert.deepEqual(
    caches.map(({ length }) => length),
    [14, 14],
  );
  parts.push(two(tokensOf(x, 14, 2)));
  assertClose(await values(F.cat(parts, 1)), wanted, 1e-5, 'all tokens');
  assert.deepEqual(
    [one, two].map((fn) => fn.explain().length),
    [1, 1],
  );
  // A profile is a launch, with its effects.
  caches.forEach((cache) => void cache.truncate(3));
  one.profile(tokensOf(x, 3));
  assert.deepEqual(
    caches.map(({ length }) => length),
    [4, 4],
  );
  assertClose(await values(one(tokensOf(x, 4))), wanted.subarray(4 * 64, 5 * 64), 1e-5, 'after a profile');
});

test('a function that reads the length is recorded for each', async () => {
  const layer = new nn.MultiHeadAttention(64, 2, { causal: true });
  const cache = layer.cache({ capacity: 8 });
  const step = compile((/** @type {Tensor} */ x) => {
    const before = cache.length;
    noGrad(() => layer.forward(x, { cache }));
    return tensor([before, cache.length]);
  });
  for (let i = 0; i < 3; i++) assert.deepEqual([...(await values(step(ones([1, 1, 64]))))], [i, i + 1]);
});

test('reset and truncate forget tokens, and numbers that are none', async () => {
  manualSeed(7);
  const layer = new nn.MultiHeadAttention(64, 2, { causal: true, rope: true });
  const x = randn([1, 8, 64]);
  const wanted = await values(layer.forward(x));
  for (const dtype of /** @type {const} */ (['f32', 'f16'])) {
    const cache = layer.cache({ capacity: 8, dtype });
    const step = (/** @type {Tensor} */ part) => noGrad(() => layer.forward(part, { cache }));
    const compiled = compile(step);
    step(tokensOf(x, 0, 5));
    step(F.full([1, 3, 64], NaN));
    cache.truncate(8);
    assert.equal(cache.length, 8);
    cache.truncate(5);
    assert.equal(cache.length, 5);
    for (let i = 5; i < 8; i++) {
      assertClose(
        await values(compiled(tokensOf(x, i))),
        wanted.subarray(64 * i, 64 * (i + 1)),
        dtype === 'f32' ? 1e-5 : 4e-3,
        `token ${i}`,
      );
    }
    cache.reset();
    assert.equal(cache.length, 0);
    assertClose(await values(compiled(tokensOf(x, 0))), wanted.subarray(0, 64), dtype === 'f32' ? 1e-5 : 4e-3, 'again');
    for (const wrong of [2, -1, 0.5, NaN, '1']) {
      assert.throws(
        () => cache.truncate(any(wrong)),
        new RegExp(`^RangeError.*: truncate: length must be an integer from 0 to 1, got ${wrong}`),
      );
    }
    assert.throws(() => compile(() => cache.reset())(), /truncate: each launch of the compiled function would not repeat it/);
  }
});

test('tokens beyond the capacity are a RangeError with both numbers, and change nothing', async () => {
  manualSeed(8);
  const layer = new nn.MultiHeadAttention(64, 2, { causal: true });
  const x = randn([1, 6, 64]);
  const wanted = await values(layer.forward(x));
  const cache = layer.cache({ capacity: 6 });
  const step = (/** @type {Tensor} */ part) => noGrad(() => layer.forward(part, { cache }));
  const compiled = compile(step);
  const error = (/** @type {number} */ held, /** @type {number} */ more) => ({
    name: 'RangeError',
    message: `MultiHeadAttention: ${held} tokens in the cache and ${more} more exceed its capacity of 6`,
  });
  assert.throws(() => step(ones([1, 7, 64])), error(0, 7));
  compiled(tokensOf(x, 0));
  step(tokensOf(x, 1, 4));
  assert.throws(() => step(tokensOf(x, 0, 2)), error(5, 2));
  assert.throws(() => compiled(tokensOf(x, 0, 2)), error(5, 2));
  assert.equal(cache.length, 5);
  assertClose(await values(compiled(tokensOf(x, 5))), wanted.subarray(5 * 64), 1e-5, 'the last one fits');
  assert.throws(() => compiled(tokensOf(x, 0)), error(6, 1));
  assert.throws(() => step(tokensOf(x, 0)), error(6, 1));
  assert.equal(cache.length, 6);
  cache.truncate(5);
  assertClose(await values(step(tokensOf(x, 5))), wanted.subarray(5 * 64), 1e-5, 'the last one again');
});

test('a mask over the capacity: sequences padded on the left are what they are alone; a row that sees nothing is 0', async () => {
  manualSeed(9);
  const [width, capacity] = [64, 9];
  for (const rope of [false, true]) {
    const layer = new nn.MultiHeadAttention(width, 2, { causal: true, rope, kvHeads: 1 });
    const x = randn([2, 7, width]);
    const padding = [0, 3];
    const mask = tensor(padding.map((first) => [[Array.from({ length: capacity }, (_, t) => t >= first)]]));
    const cache = layer.cache({ batch: 2, capacity });
    const step = (/** @type {Tensor} */ part, /** @type {Tensor} */ seen) => noGrad(() => layer.forward(part, { cache, mask: seen }));
    const compiled = compile(step);
    const sizes = [5, 1, 1];
    for (const run of [
      step,
      (/** @type {Tensor} */ part, /** @type {Tensor} */ seen) => (part.shape[1] > 1 ? step : compiled)(part, seen),
    ]) {
      cache.reset();
      const y = inChunks(x, sizes, (part) => run(part, mask));
      for (const [b, first] of padding.entries()) {
        const alone = layer.forward(x.slice(0, b, b + 1).slice(1, first, 7));
        assertClose(await values(y.slice(0, b, b + 1).slice(1, first, 7)), await values(alone), 1e-5, `sequence ${b}, rope ${rope}`);
      }
      assert.ok(
        (await values(y.slice(0, 1, 2).slice(1, 0, 3))).every((v) => v === 0),
        'padding is 0',
      );
      // One that broadcasts over keys: nothing is seen.
      cache.truncate(6);
      const nothing = await values(run(tokensOf(x, 6), tensor([[[[true]]], [[[false]]]])));
      assert.ok(nothing.subarray(width).every((v) => v === 0) && nothing.subarray(0, width).some((v) => v !== 0));
    }
  }
});

test('a layer that is not causal attends to all tokens so far', async () => {
  const layer = new nn.MultiHeadAttention(64, 2);
  const x = randn([1, 6, 64]);
  const cache = layer.cache({ capacity: 6 });
  noGrad(() => layer.forward(tokensOf(x, 0, 4), { cache }));
  const got = noGrad(() => layer.forward(tokensOf(x, 4, 2), { cache }));
  assertClose(await values(got), (await values(layer.forward(x))).subarray(4 * 64), 1e-5, 'the last two');
});

test('a long cache: a chunk keeps no scores, and a step none of other tokens', () => {
  const layer = new nn.MultiHeadAttention(32, 1, { causal: true });
  const start = memory().bytes;
  const cache = layer.cache({ capacity: 2048 });
  assert.equal(memory().bytes - start - 16, 2 * 2048 * 32 * 4);
  const x = rand([1, 1024, 32]);
  const before = memory().bytes;
  noGrad(() => layer.forward(x, { cache }));
  assert.ok(memory().bytes - before < (4 * 1024 ** 2) / 2, `${memory().bytes - before} bytes`);
  const step = compile((/** @type {Tensor} */ token) => noGrad(() => layer.forward(token, { cache })));
  step(tokensOf(x, 0));
  assert.ok(step.explain()[0].unplanned < 2048 * 32 * 4, `${step.explain()[0].unplanned} bytes of results, of a step`);
});

test('gradients, and caches of other layers, are errors that say what there is', () => {
  const layer = new nn.MultiHeadAttention(64, 2, { causal: true });
  const cache = layer.cache({ batch: 2, capacity: 4 });
  const x = ones([2, 1, 64]);
  const run = (/** @type {any} */ own, input = x) => noGrad(() => layer.forward(input, { cache: own }));
  assert.throws(
    () => layer.forward(x, { cache }),
    /^UsageError.*: MultiHeadAttention: gradients do not flow through a cache: call the model in noGrad\(\(\) => …\)/,
  );
  assert.equal(cache.length, 0);
  assert.throws(() => run({}), /MultiHeadAttention: cache must be one that the layer's cache\(…\) made, got/);
  assert.throws(() => run(cache, ones([1, 1, 64])), /MultiHeadAttention: an input of 1 sequences for a cache of 2/);
  assert.throws(
    () => run(new nn.MultiHeadAttention(64, 2, { kvHeads: 1 }).cache({ batch: 2, capacity: 4 })),
    /MultiHeadAttention: a cache of 1 heads of 32 for a layer with 2 kvHeads of 32/,
  );
  const wrong = (/** @type {any} */ options) => () => layer.cache(options);
  assert.throws(wrong({}), /cache: capacity must be an integer of at least 1, got undefined/);
  assert.throws(wrong({ capacity: 2 ** 25 }), /cache: capacity must be at most 16777216, got 33554432/);
  assert.throws(wrong({ capacity: 4, batch: 0 }), /cache: batch must be an integer of at least 1, got 0/);
  assert.throws(wrong({ capacity: 4, dtype: 'u32' }), /cache: dtype must be f32, f16 or bf16, got u32/);
  assert.throws(wrong({ capacity: 4, size: 1 }), /cache: unknown option size; the options are capacity, batch, dtype/);
  assert.throws(() => new nn.MultiHeadAttention(9, 3).cache({ capacity: 4, dtype: 'f16' }), /dtype must be f32 for heads of 3, got f16/);
  assert.throws(
    () => compile(() => void layer.cache({ capacity: 4 }))(),
    /cache: every launch of a compiled function would share the cache/,
  );
  const mask = ones([1, 3]).gt(0);
  assert.throws(
    () => noGrad(() => layer.forward(x, { cache, mask })),
    /MultiHeadAttention: a mask \[1, 3\]: with a cache its last size must be the capacity, 4, or 1/,
  );
  assert.equal(cache.length, 0);
  cache.dispose();
  assert.throws(() => run(cache), /MultiHeadAttention: the tensor was disposed of/);
});
