// `scaledDotProductAttention` by the fused kernel: shapes, layouts, grouped heads and types against float64, eagerly and compiled; which calls
// take it; and that it copies nothing and keeps no scores.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, autocast, compile, grad, memory, noGrad, ones, randn, scope, tensor } from '../../nn/index.mjs';
import { runtime } from '../../nn/core/runtime.mjs';
import { operations } from '../../nn/ops/registry.mjs';
import { scaled, vk } from '../lib/addon.mjs';
import { assertClose, normal, seed } from '../lib/random-data.mjs';
import { Random } from '../lib/random.mjs';
import { initDevice } from './setup.mjs';

before(initDevice);

/** @typedef {import('../../nn/index.mjs').Tensor} Tensor */
/** @typedef {{ batch: number, heads: number, kvHeads: number, tokens: number, keys: number, size: number, n: number }} Sizes */
/** @param {any} x @returns {Promise<Float64Array>} */
const values = async (x) => Float64Array.from(await x.toArray());
const random = new Random(seed);
const FUSED = /** @type {any} */ (operations.get('attentionApart'));

/** How often calls of `fn` run the fused operation. @param {() => unknown} fn */
function fusedCalls(fn) {
  const { prepare } = FUSED;
  let calls = 0;
  FUSED.prepare = (/** @type {any[]} */ ...args) => {
    calls++;
    return prepare(...args);
  };
  try {
    fn();
  } finally {
    FUSED.prepare = prepare;
  }
  return calls;
}

/**
 * Attention of dense [batch, heads, tokens, size], and its gradients, by the formulas.
 * @param {Float64Array[]} qkv @param {Sizes} sizes @param {number} scale @param {Float64Array} dOut
 * @param {(b: number, h: number, i: number, j: number) => number} bias -Infinity where a query does not attend
 * @returns {Float64Array[]} the result, and the gradients of q, k and v
 */
function formulas([q, k, v], { batch, heads, kvHeads, tokens, keys, size, n }, scale, dOut, bias) {
  const [dq, dk, dv] = [q, k, v].map((x) => new Float64Array(x.length));
  const out = new Float64Array(batch * heads * tokens * n);
  const dot = (
    /** @type {Float64Array} */ x,
    /** @type {number} */ i,
    /** @type {Float64Array} */ y,
    /** @type {number} */ j,
    width = n,
  ) => {
    let sum = 0;
    for (let e = 0; e < width; e++) sum += x[i * width + e] * y[j * width + e];
    return sum;
  };
  for (let row = 0; row < batch * heads * tokens; row++) {
    const [b, h, i] = [Math.floor(row / tokens / heads), Math.floor(row / tokens) % heads, row % tokens];
    const first = (b * kvHeads + Math.floor((h * kvHeads) / heads)) * keys;
    const scores = Array.from({ length: keys }, (_, j) => scale * dot(q, row, k, first + j, size) + bias(b, h, i, j));
    const largest = Math.max(...scores);
    if (largest === -Infinity) continue;
    const e = scores.map((s) => Math.exp(s - largest));
    const total = e.reduce((a, x) => a + x);
    const p = e.map((x) => x / total);
    const dp = p.map((_, j) => dot(dOut, row, v, first + j));
    const delta = p.reduce((a, x, j) => a + x * dp[j], 0);
    p.forEach((x, j) => {
      const ds = scale * x * (dp[j] - delta);
      for (let d = 0; d < n; d++) {
        out[row * n + d] += x * v[(first + j) * n + d];
        dv[(first + j) * n + d] += x * dOut[row * n + d];
      }
      for (let d = 0; d < size; d++) {
        dq[row * size + d] += ds * k[(first + j) * size + d];
        dk[(first + j) * size + d] += ds * q[row * size + d];
      }
    });
  }
  return [out, dq, dk, dv];
}

/**
 * A leaf [batch, heads, tokens, size] that lies dense, as a view of [batch, tokens, heads, size], as a part of its rows, or so that it must be
 * copied.
 * @param {Float64Array} data dense @param {number[]} shape @param {string} lies @param {import('../../nn/core/layout.mjs').DType} dtype
 */
function laid(data, shape, lies, dtype) {
  const x = tensor(data, { shape, dtype });
  if (lies === 'dense') return x;
  if (lies === 'view') return x.transpose(1, 2).contiguous().transpose(1, 2);
  if (lies === 'part') {
    // The heads of these tokens, between other columns.
    const rows = x.transpose(1, 2).contiguous().reshape(shape[0], shape[2], -1);
    const other = ones([shape[0], shape[2], 8], { dtype });
    const wide = F.cat([other, rows, other, other], 2);
    return wide
      .slice(2, 8, 8 + shape[1] * shape[3])
      .reshape(shape[0], shape[2], shape[1], shape[3])
      .transpose(1, 2);
  }
  return x.transpose(2, 3).contiguous().transpose(2, 3);
}

test('random shapes, layouts, masks and groups: results and gradients, eager and compiled', async () => {
  for (let round = 0; round < scaled(16); round++) {
    const kvHeads = random.between(1, 3);
    const causal = random.chance(0.5);
    const tokens = random.between(1, 6);
    const size = random.pick([32, 32, 64, 96, 12]);
    /** @type {Sizes} */
    const sizes = {
      ...{ batch: random.between(1, 2), kvHeads, heads: kvHeads * random.between(1, 3), tokens },
      ...{ keys: causal ? tokens + random.below(20) : random.between(1, 24), size, n: random.chance(0.8) ? size : 8 },
    };
    const { batch, heads, keys, n } = sizes;
    const scale = random.pick([undefined, 0.3, -0.2]);
    const masking = random.pick(['none', 'none', 'boolean', 'added']);
    const shapes = [
      [batch, heads, tokens, size],
      [batch, kvHeads, keys, size],
      [batch, kvHeads, keys, n],
    ];
    const lies = shapes.map(() => random.pick(['dense', 'view', 'part', 'copied']));
    const data = shapes.map((shape) => Float64Array.from(normal(shape.reduce((a, b) => a * b)), Math.fround));
    const weights = Float64Array.from(normal(batch * heads * tokens * n), Math.fround);
    // In each sequence some queries see no key.
    const sees = Array.from({ length: batch * tokens * keys }, (_, i) => Math.floor(i / keys) % 3 !== 2 && random.chance(0.7));
    const mask = {
      none: undefined,
      boolean: tensor(sees, { shape: [batch, 1, tokens, keys] }),
      added: tensor(
        sees.map((s, i) => (s ? 0.25 * (i % 3) : -Infinity)),
        { shape: [batch, 1, tokens, keys] },
      ),
    }[masking];
    const bias = (/** @type {number} */ b, /** @type {number} */ _, /** @type {number} */ i, /** @type {number} */ j) => {
      const at = (b * tokens + i) * keys + j;
      if ((causal && j > i + keys - tokens) || (masking !== 'none' && !sees[at])) return -Infinity;
      return masking === 'added' ? 0.25 * (at % 3) : 0;
    };
    const what = `${JSON.stringify(sizes)} ${lies} ${masking}${causal ? ' causal' : ''}`;
    const options = { isCausal: causal, enableGqa: kvHeads < heads, scale, mask };
    const run = (/** @type {Tensor} */ q, /** @type {Tensor} */ k, /** @type {Tensor} */ v, /** @type {Tensor} */ dy) => {
      const out = F.scaledDotProductAttention(q, k, v, options);
      return [out, ...grad(out.mul(dy).sum(), [q, k, v])];
    };
    const dy = tensor(weights, { shape: [batch, heads, tokens, n] });
    const [q, k, v] = data.map((x, i) => laid(x, shapes[i], lies[i], 'f32').detach().requiresGrad_());
    /** @type {Tensor[]} */
    let eager = [];
    const taken = masking === 'none' && size !== 12 && n === size;
    assert.equal(
      fusedCalls(() => (eager = run(q, k, v, dy))),
      Number(taken),
      `${what}: whether it is fused`,
    );
    const compiled = compile((/** @type {Tensor} */ dy) => run(q, k, v, dy));
    const expected = formulas(data, sizes, scale ?? 1 / Math.sqrt(size), weights, bias);
    for (const [how, results] of Object.entries({ eager, compiled: compiled(dy) })) {
      for (const [i, result] of results.entries()) {
        assert.deepEqual(result.shape, [dy.shape, ...shapes][i], what);
        assertClose(await values(result), expected[i], i ? 1e-4 : 1e-5, `${what}, ${how}: ${['out', 'dq', 'dk', 'dv'][i]}`);
      }
    }
    // A query that sees nothing: exactly 0, as is its gradient.
    if (masking !== 'none') {
      const [out, dq] = await Promise.all(eager.slice(0, 2).map(values));
      for (let row = 2; row < batch * heads * tokens; row++) {
        if ((Math.floor(row / tokens / heads) * tokens + (row % tokens)) % 3 !== 2) continue;
        assert.ok(
          out.subarray(row * n, (row + 1) * n).every((x) => x === 0),
          `${what}: row ${row}`,
        );
        assert.ok(
          dq.subarray(row * size, (row + 1) * size).every((x) => x === 0),
          `${what}: gradient of row ${row}`,
        );
      }
    }
    compiled.dispose();
  }
});

test('16 bits and autocast: within the type, and of the type', async () => {
  const sizes = { batch: 2, heads: 4, kvHeads: 2, tokens: 3, keys: 5, size: 32, n: 32 };
  const shapes = [[2, 4, 3, 32], ...[0, 1].map(() => [2, 2, 5, 32])];
  const data = shapes.map((shape) => normal(shape.reduce((a, b) => a * b)));
  const dy = tensor(normal(2 * 4 * 3 * 32), { shape: shapes[0] });
  const options = { isCausal: true, enableGqa: true };
  for (const dtype of /** @type {const} */ (['f16', 'bf16'])) {
    const tolerance = { bf16: 3e-2, f16: 4e-3 }[dtype];
    for (const cast of [false, true]) {
      const leaves = data.map((x, i) =>
        laid(x, shapes[i], i ? 'view' : 'dense', cast ? 'f32' : dtype)
          .detach()
          .requiresGrad_(),
      );
      const [q, k, v] = leaves;
      const out = cast
        ? autocast(dtype, () => F.scaledDotProductAttention(q, k, v, options))
        : F.scaledDotProductAttention(q, k, v, options);
      assert.equal(out.dtype, dtype);
      const gradients = grad(out.to('f32').mul(dy).sum(), leaves);
      const rounded = await Promise.all(leaves.map((x) => values(x.to(dtype))));
      const seen = (/** @type {number} */ i, /** @type {number} */ j) => (j > i + 2 ? -Infinity : 0);
      const expected = formulas(rounded, sizes, 1 / Math.sqrt(32), await values(dy), (_, __, i, j) => seen(i, j));
      assertClose(await values(out), expected[0], tolerance, `${dtype}, autocast ${cast}`);
      for (const [i, gradient] of gradients.entries()) {
        assert.equal(gradient.dtype, cast ? 'f32' : dtype);
        assertClose(await values(gradient), expected[i + 1], 2 * tolerance, `${dtype}, autocast ${cast}: d${'qkv'[i]}`);
      }
    }
  }
  // Two types: f32, as products of them.
  const [q, k, v] = data.map((x, i) => tensor(x, { shape: shapes[i], dtype: i ? 'f16' : 'f32' }));
  assert.equal(F.scaledDotProductAttention(q, k, v, options).dtype, 'f32');
});

test('shapes of one to five dimensions, and keys that broadcast, give what the scores in memory give', async () => {
  for (const [q, k, isFused] of /** @type {const} */ ([
    [[5, 32], [7, 32], true],
    [[3, 5, 32], [3, 7, 32], true],
    [[3, 5, 32], [7, 32], true],
    [[2, 3, 5, 32], [1, 3, 7, 32], true],
    [[2, 3, 5, 32], [2, 1, 7, 32], true],
    [[2, 2, 3, 5, 32], [2, 2, 3, 7, 32], true],
    [[2, 2, 3, 5, 32], [2, 1, 3, 7, 32], true],
    [[5, 32], [3, 7, 32], false],
    [[1, 3, 5, 32], [2, 3, 7, 32], false],
  ])) {
    const own = [q, k, k].map((shape) => randn([...shape]).requiresGrad_());
    const [a, b, c] = own;
    const all = ones([7]).gt(0);
    /** @type {Tensor | undefined} */
    let out;
    assert.equal(
      fusedCalls(() => (out = F.scaledDotProductAttention(a, b, c))),
      Number(isFused),
      `[${q}] and [${k}]`,
    );
    const wanted = F.scaledDotProductAttention(a, b, c, { mask: all });
    const got = /** @type {any} */ (out);
    assert.deepEqual(got.shape, wanted.shape);
    assertClose(await values(got), await values(wanted), 1e-5, `[${q}] and [${k}]`);
    const [x, y] = [got, wanted].map((o) => grad(o.square().sum(), own));
    for (const i of own.keys()) assertClose(await values(x[i]), await values(y[i]), 1e-5, `[${q}] and [${k}]: gradient ${i}`);
  }
});

test('queries, keys and values are read in place: dense ones, views of tokens, and parts of a cache', () => {
  const heads = (/** @type {number} */ n, tokens = 6) => randn([2, tokens, n, 32]).transpose(1, 2);
  const qkv = randn([2, 6, 8 * 32]);
  const [q, k, v] = [0, 4, 6].map((first) =>
    qkv
      .slice(2, first * 32, (first + (first ? 2 : 4)) * 32)
      .reshape(2, 6, -1, 32)
      .transpose(1, 2),
  );
  const room = () => randn([2, 2, 16, 32]).slice(2, 0, 9);
  for (const [what, operands] of /** @type {[string, Tensor[]][]} */ ([
    ['dense', [randn([2, 4, 6, 32]), randn([2, 4, 9, 32]), randn([2, 4, 9, 32])]],
    ['views', [heads(4), heads(2, 9), heads(2, 9)]],
    ['rows of all', [q, k, v]],
    ['one query and a cache', [randn([2, 4, 1, 32]), room(), room()]],
  ])) {
    const copies = noGrad(() => {
      const start = memory().buffers;
      const y = F.scaledDotProductAttention(operands[0], operands[1], operands[2], { enableGqa: true });
      // The result; its sums are freed at once.
      assert.deepEqual(y.shape, operands[0].shape);
      return memory().buffers - start - 1;
    });
    assert.equal(copies, 0, what);
  }
});

test('many tokens: not all scores in memory, in either pass, eager or compiled', async () => {
  const { isCpu, info } = runtime().kernels.context;
  // SwiftShader would take minutes; a GPU keeps a bounded part of the scores.
  const [tokens, size] = [/SwiftShader/.test(info.deviceName) ? 1024 : isCpu ? 4096 : 16_384, 32];
  const scores = 4 * tokens ** 2;
  const [q, k, v] = [0, 1, 2].map(() => randn([1, 1, tokens, size]).requiresGrad_());
  const run = () => grad(F.scaledDotProductAttention(q, k, v, { isCausal: true }).square().sum(), [q, k, v]);
  runtime().flush();
  vk.waitIdle();
  const [start, device] = [memory().bytes, vk.memoryStats().live.bytes];
  let held = 0;
  const first = await scope(() => {
    const [dq] = run();
    held = memory().bytes - start;
    return dq;
  }).toArray();
  assert.ok(held > 0 && held < scores / 2, `${held} bytes are held, scores have ${scores}`);
  // With the kernels' own memory.
  const taken = vk.memoryStats().live.bytes - device;
  assert.ok(taken < scores / 2, `${taken} bytes are taken, scores have ${scores}`);
  assert.ok(first.every(Number.isFinite));
  // Compiled, of half as many tokens: less than one matrix of their scores.
  const part = (/** @type {Tensor} */ x) =>
    x
      .detach()
      .slice(2, 0, tokens / 2)
      .requiresGrad_();
  const parts = [q, k, v].map(part);
  const compiled = compile(() => grad(F.scaledDotProductAttention(parts[0], parts[1], parts[2], { isCausal: true }).square().sum(), parts));
  const [dq] = compiled();
  const [{ unplanned, planned }] = compiled.explain();
  assert.ok(planned <= unplanned && unplanned < scores / 4, `${unplanned} bytes of results`);
  // A query's gradient depends on no later token.
  assertClose(await values(dq), Float64Array.from(first.subarray(0, (tokens / 2) * size)), 1e-5, 'compiled');
  compiled.dispose();
});

test('more rounds than a CPU device can loop: the scores in memory', (t) => {
  const { kernels } = runtime();
  if (!kernels.context.isCpu) return t.skip('a GPU loops as often as it has to');
  const sizes = { tokens: 1, keys: 1, heads: 1, kvHeads: 1 };
  assert.equal(kernels.attentionSupports('f32', 128, sizes), true);
  assert.equal(kernels.attentionSupports('f32', 128, { ...sizes, tokens: 140_000, keys: 140_000 }), false);
  const [q, k] = [ones([1, 128]), ones([200_000, 128])];
  assert.equal(
    fusedCalls(() => F.scaledDotProductAttention(q, k, k)),
    0,
  );
});

test('wrong heads and options are errors that say what there is', () => {
  const any = (/** @type {unknown} */ value) => /** @type {any} */ (value);
  const run = (/** @type {number[]} */ heads, /** @type {any} */ options) => {
    const [q, k, v] = heads.map((n) => ones([1, n, 4, 32]));
    return F.scaledDotProductAttention(q, k, v, options);
  };
  assert.throws(
    () => run([4, 3, 3], { enableGqa: true }),
    /scaledDotProductAttention: enableGqa: 4 heads of queries, 3 of keys and 3 of values/,
  );
  assert.throws(() => run([4, 2, 1], { enableGqa: true }), /enableGqa: 4 heads of queries, 2 of keys and 1 of values/);
  assert.throws(() => run([4, 2, 2], {}), /scaledDotProductAttention: .*do not broadcast/);
  assert.throws(() => run([4, 2, 2], { enableGqa: 1 }), /scaledDotProductAttention: enableGqa must be true or false, got 1/);
  assert.throws(() => run([1, 1, 1], { scale: 'half' }), /scaledDotProductAttention: scale must be a number, got half/);
  assert.throws(
    () => F.scaledDotProductAttention(ones([3, 32]), ones([2, 32]), any(ones([2, 32])), { isCausal: true }),
    /isCausal: 3 queries for 2 keys, of which the first would see none/,
  );
});
