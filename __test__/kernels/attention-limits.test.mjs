// Attention with fewer heads of keys than of queries, another number of keys, rows and sequences with gaps, first keys of documents and
// windows: random problems against float64, forward and backward, with poison around every tensor. Tolerances as in attention.test.mjs.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { attentionKernels } from '../../kernels/attention.mjs';
import { KernelContext, pack } from '../../kernels/base.mjs';
import { firstOf, vk } from '../lib/addon.mjs';
import { finiteSums, reference, rowsOf } from '../lib/attention.mjs';
import { fromHalf, toHalf } from '../lib/half.mjs';
import { Random } from '../lib/random.mjs';
import { random, relativeError } from '../lib/tensors.mjs';

const context = new KernelContext(vk);
const kernels = attentionKernels(context);
after(() => vk.destroy());

const POISON = 777;

/**
 * A tensor [batch, rows, heads, d] with gaps of `gap` elements between rows, `apart` more rows between sequences, and `gap` elements before it.
 * @param {{ batch: number, rows: number, width: number, gap: number, apart?: number, type: string, fill: boolean }} o
 */
function make({ batch, rows, width, gap, apart = 0, type, fill }) {
  const row = width + gap;
  const step = (rows + apart) * row;
  const length = gap + batch * step + 16;
  const drawn = random(length);
  const inside = (/** @type {number} */ i) => {
    const at = i - gap;
    return at >= 0 && at < batch * step && (at % step) / row < rows && (at % step) % row < width;
  };
  // What no kernel may read is NaN, what none may write is poison.
  const data = Float32Array.from(drawn, (x, i) => (!fill ? POISON : inside(i) ? x : NaN));
  const stored = type === 'f32' ? data : toHalf(data, type);
  const buffer = vk.createBuffer(Math.ceil(stored.byteLength / 16) * 16, 0);
  vk.uploadBuffer(buffer, stored);
  const read = () => {
    const words = vk.readBuffer(buffer);
    return type === 'f32' ? words.subarray(0, length) : fromHalf(new Uint16Array(words.buffer, words.byteOffset, length), type);
  };
  const of = (/** @type {ArrayLike<number>} */ x, /** @type {number} */ b, /** @type {number} */ first, /** @type {number} */ d) =>
    rowsOf(x, gap + b * step + first, row, rows, d);
  return {
    tensor: { buffer, offset: gap },
    buffer,
    row,
    step,
    inside,
    read,
    of,
    poison: type === 'f32' ? POISON : fromHalf(toHalf(Float32Array.of(POISON), type), type)[0],
  };
}

/** @param {Uint32Array} data */
function words(data) {
  const buffer = vk.createBuffer(4 * data.length, 0);
  vk.uploadBuffer(buffer, data);
  return buffer;
}

/** For each key the last query whose first key is at most it. @param {Uint32Array} firstKey @param {number} keys */
const lastQueries = (firstKey, keys) =>
  Uint32Array.from({ length: keys }, (_, key) => firstKey.findLastIndex((first) => first <= key) >>> 0);

/** @param {any} o */
function check(o) {
  const { batch = 1, tokens, keys = tokens, heads, kvHeads = heads, d, causal = true, softCap = 0, window, starts, gap = 0, apart = 0 } = o;
  const { type = 'f32', tolerance, plan, planBackward, fused = false, separateRows = false } = o;
  const label = JSON.stringify({ ...o, tolerance: undefined });
  const [width, kvWidth] = [heads * d, kvHeads * d];
  const packed = width + 2 * kvWidth;
  const one = (/** @type {any} */ more) => make({ batch, gap, type, fill: true, ...more });
  const qkv = fused ? one({ rows: tokens, width: packed }) : undefined;
  const q = qkv ?? one({ rows: tokens, width });
  const k = qkv ?? one({ rows: keys, width: kvWidth, apart, gap: separateRows ? gap + 8 : gap });
  const v = qkv ?? one({ rows: keys, width: kvWidth, apart, gap: separateRows ? gap + 8 : gap });
  const [dO, out] = [one({ rows: tokens, width }), one({ rows: tokens, width, fill: false })];
  const lse = make({ batch, rows: 1, width: heads * tokens, gap: 0, type: 'f32', fill: false });
  const delta = make({ batch, rows: 1, width: heads * tokens, gap: 0, type: 'f32', fill: false });
  const dQkv = fused ? one({ rows: tokens, width: packed, fill: false }) : undefined;
  const dQ = dQkv ?? one({ rows: tokens, width, fill: false });
  const [dK, dV] = [0, 1].map(() => dQkv ?? one({ rows: keys, width: kvWidth, fill: false }));
  const firsts = Array.from({ length: batch }, (_, b) =>
    Uint32Array.from({ length: tokens }, (_, t) => starts?.[b].findLast((/** @type {number[]} */ [at]) => at <= t)[1] ?? 0),
  );
  const limits = starts && {
    firstKey: { buffer: words(Uint32Array.from([9, ...firsts.flatMap((x) => [...x])])), offset: 1 },
    lastQuery: { buffer: words(Uint32Array.from([9, 9, ...firsts.flatMap((x) => [...lastQueries(x, keys)])])), offset: 2 },
  };
  const args = {
    ...(fused
      ? { qkv: q.tensor, rowQkv: q.row }
      : { q: q.tensor, k: k.tensor, v: v.tensor, rowQ: q.row, rowKv: k.row, batchKv: k.step, keys }),
    ...{
      out: out.tensor,
      logSumExp: lse.tensor,
      rowOut: out.row,
      batch,
      tokens,
      heads,
      kvHeads,
      headSize: d,
      type,
      causal,
      softCap,
      window,
    },
    ...limits,
  };
  const gradients = {
    ...{ dOut: dO.tensor, delta: delta.tensor },
    ...(fused
      ? { dQkv: dQ.tensor, rowGrad: dQ.row }
      : { dQ: dQ.tensor, dK: dK.tensor, dV: dV.tensor, rowGradQ: dQ.row, rowGradKv: dK.row }),
  };
  const { packed: list, count } = pack(
    kernels.attentionForward({ ...args, plan }),
    kernels.attentionBackward({ ...args, ...gradients, plan: planBackward ?? plan }),
  );
  vk.waitTimeline(vk.batchExecuteAll(list, count));
  const [x, y, z, dy] = [q, k, v, dO].map((tensor) => tensor.read());
  const got = { out: out.read(), lse: lse.read(), dQ: dQ.read(), dK: dK.read(), dV: dV.read() };
  const [atK, atV] = fused ? [width, width + kvWidth] : [0, 0];
  /** @type {Record<string, number>} */
  const errors = {};
  const compare = (
    /** @type {string} */ name,
    /** @type {ArrayLike<number>} */ found,
    /** @type {ArrayLike<number>} */ wanted,
    floor = 0,
  ) => {
    const error = relativeError(found, wanted, floor);
    errors[name] = Number.isNaN(error) ? NaN : Math.max(errors[name] ?? 0, error);
  };
  for (let b = 0; b < batch; b++) {
    const firstKey = firsts[b].map((first, t) => Math.max(first, window === undefined ? 0 : t + keys - tokens + 1 - window, 0));
    for (let kv = 0; kv < kvHeads; kv++) {
      const sums = [new Float64Array(keys * d), new Float64Array(keys * d)];
      for (let h = (kv * heads) / kvHeads; h < ((kv + 1) * heads) / kvHeads; h++) {
        const want = reference({
          ...{ q: q.of(x, b, h * d, d), k: k.of(y, b, atK + kv * d, d), v: v.of(z, b, atV + kv * d, d), dO: dO.of(dy, b, h * d, d) },
          ...{ tokens, keys, d, scale: 1 / Math.sqrt(d), causal, cap: softCap, firstKey },
        });
        // Queries that see no key.
        const dead = Array.from({ length: tokens }, (_, t) => t).filter((t) => want.lse[t] === -Infinity);
        const from = (b * heads + h) * tokens;
        compare('out', out.of(got.out, b, h * d, d), want.out);
        compare('lse', finiteSums(got.lse.subarray(from, from + tokens), dead), finiteSums(want.lse, dead), tokens);
        compare('dQ', dQ.of(got.dQ, b, h * d, d), want.dq, 1e-3 * tokens);
        [want.dk, want.dv].forEach((gradient, i) => gradient.forEach((value, at) => (sums[i][at] += value)));
      }
      compare('dK', dK.of(got.dK, b, atK + kv * d, d), sums[0], 1e-3 * keys);
      compare('dV', dV.of(got.dV, b, atV + kv * d, d), sums[1]);
    }
  }
  for (const [name, error] of Object.entries(errors)) {
    assert.ok(error <= tolerance * (name.startsWith('d') ? 3 : 1), `${name} off by ${error}: ${label}`);
  }
  for (const [name, tensor] of Object.entries({ out, lse, dQ, dK, dV })) {
    got[/** @type {keyof typeof got} */ (name)].forEach((/** @type {number} */ value, /** @type {number} */ i) => {
      if (!tensor.inside(i)) assert.equal(value, tensor.poison, `${name}[${i}] outside of the tensor: ${label}`);
    });
  }
  const all = new Set([q, k, v, dO, out, lse, delta, dQ, dK, dV].map(({ buffer }) => buffer));
  if (limits) for (const { buffer } of Object.values(limits)) all.add(buffer);
  for (const buffer of all) vk.destroyBuffer(buffer);
}

/** A random problem. @param {Random} rng @param {number[]} headSizes */
function problem(rng, headSizes) {
  const pick = (/** @type {readonly any[]} */ list) => list[rng.below(list.length)];
  const kvHeads = pick([1, 1, 2, 3]);
  const heads = kvHeads * pick([1, 2, 4]);
  const batch = pick([1, 1, 2]);
  const tokens = 1 + rng.below(110);
  const fused = rng.below(2) === 0;
  const causal = rng.below(4) > 0;
  const keys = fused || rng.below(3) === 0 ? tokens : causal ? tokens + rng.below(60) : 1 + rng.below(110);
  // First queries of documents, with their first keys; of some batches the first documents begin past the first key, some at a key that
  // their queries do not reach.
  const documents = () => {
    const list = [[0, rng.below(3) === 0 ? rng.below(Math.ceil(keys / 2)) : 0]];
    for (let at = 1 + rng.below(20); at < tokens; at += 1 + rng.below(40)) {
      list.push([at, Math.min(keys, Math.max(list[list.length - 1][1], at + Math.max(0, keys - tokens) + rng.below(3) - 1))]);
    }
    return list;
  };
  return {
    ...{ batch, tokens, keys, heads, kvHeads, d: pick(headSizes), causal, fused },
    softCap: rng.below(5) === 0 ? 1.5 : 0,
    window: rng.below(3) === 0 ? 1 + rng.below(keys) : undefined,
    starts: rng.below(2) === 0 ? Array.from({ length: batch }, documents) : undefined,
    gap: rng.below(2) * 8,
    apart: rng.below(2) * 3,
    separateRows: rng.below(2) === 0,
  };
}

/** @param {string} name @param {any} options @param {number} count @param {number[]} [headSizes] */
function battery(name, options, count, headSizes = [32, 64, 96, 128]) {
  test(`${name}: random problems`, () => {
    const rng = new Random(name.length * 7919 + 17);
    const list = Array.from({ length: count }, () => problem(rng, headSizes));
    for (const one of firstOf(list, Math.ceil(count / 2))) check({ ...one, ...options });
  });
  test(`${name}: groups, a cache, documents, a window`, () => {
    const d = headSizes[0];
    // A document begins at a block's first query, one at its last, and one is a single token.
    const starts = [0, 16, 31, 32, 64, 95].map((at) => [at, at]);
    check({ ...options, tokens: 100, heads: 2, kvHeads: 1, d, fused: true, window: 20, starts: [starts], softCap: 2 });
    check({ ...options, tokens: 3, keys: 90, heads: 2, kvHeads: 1, d, batch: 2, apart: 5 });
    if (count < 4) return;
    check({ ...options, tokens: 70, heads: 4, kvHeads: 1, d, fused: true, gap: 8 });
    check({ ...options, tokens: 100, heads: 2, d, fused: true, starts: [starts] });
    check({ ...options, tokens: 130, heads: 1, d, fused: true, window: 20 });
    // Queries that see no key at all, whole blocks of them, and keys that no query sees.
    check({ ...options, tokens: 80, heads: 2, kvHeads: 1, d, fused: true, starts: [[[0, 80]]] });
    check({ ...options, tokens: 100, heads: 1, d, fused: true, starts: [[[0, 70]]], softCap: 2 });
  });
}

if (context.shufflesEight) battery('f32, shuffle', { tolerance: 3e-6, plan: { kernel: 'shuffle' } }, 12);
battery('f32, walk', { tolerance: 3e-6, plan: { kernel: 'walk' } }, context.shufflesEight ? 6 : 12);
battery('f32, tiles', { tolerance: 3e-6, plan: { kernel: 'tiles' } }, 6);
battery(
  'f32, tiles, in parts',
  { tolerance: 3e-6, plan: { kernel: 'tiles' }, planBackward: { kernel: 'tiles', queryBlock: 16, workspace: 0 } },
  3,
);
for (const half of /** @type {const} */ (['f16', 'bf16'])) {
  if (!kernels.attentionSupports(half)) {
    test(`${half} matrix units`, { skip: `${context.info.deviceName} has none` }, () => {});
    continue;
  }
  const options = { type: half, tolerance: half === 'f16' ? 1.5e-3 : 1.2e-2 };
  // CPU drivers take seconds to compile a kernel for matrix units.
  const [count, sizes] = context.isCpu ? [2, [32]] : [16, [32, 64, 96, 128]];
  for (const kernel of kernels.attentionKind(half) === 'register' ? ['register', 'scratch'] : ['scratch']) {
    battery(`${half}, ${kernel}`, { ...options, plan: { kernel } }, count, sizes);
  }
}

test('keys that no query sees, and queries that see none, are skipped: their blocks may hold NaN', () => {
  const [tokens, heads, d] = [256, 1, 32];
  const firstKey = Uint32Array.from({ length: tokens }, () => 192);
  const values = random(tokens * 3 * d).fill(NaN, 0, 128 * 3 * d);
  const buffers = {
    qkv: words(new Uint32Array(values.buffer)),
    out: words(new Uint32Array(tokens * d)),
    logSumExp: words(new Uint32Array(tokens)),
    firstKey: words(firstKey),
    lastQuery: words(lastQueries(firstKey, tokens)),
  };
  const [dOut, dQkv] = [words(new Uint32Array(random(tokens * d).buffer)), words(new Uint32Array(tokens * 3 * d))];
  const args = { ...buffers, tokens, heads, headSize: d };
  const { packed, count } = pack(kernels.attentionForward(args), kernels.attentionBackward({ ...args, dOut, dQkv }));
  vk.waitTimeline(vk.batchExecuteAll(packed, count));
  const [out, gradient] = [buffers.out, dQkv].map((handle) => vk.readBuffer(handle));
  assert.ok(
    out.every((x, i) => (i < 192 * d ? x === 0 : Number.isFinite(x))),
    'out',
  );
  assert.ok(
    gradient.every((x, i) => (i < 192 * 3 * d ? x === 0 : Number.isFinite(x))),
    'gradients',
  );
  for (const handle of [...Object.values(buffers), dOut, dQkv]) vk.destroyBuffer(handle);
});
