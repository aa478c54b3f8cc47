// Attention forward and backward against float64, and the float64 gradient itself against finite differences.
// Tolerances by relative norm: f32 a few 2^-24 per element of the sums; with operands (and P, dS) rounded to f16 about
// 2^-11, to bf16 about 2^-8, a little more in the gradients, where two roundings meet.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { attentionKernels } from '../../kernels/attention.mjs';
import { laneMap } from '../../kernels/attention-layout.mjs';
import { KernelContext, pack } from '../../kernels/base.mjs';
import { coopShapes } from '../../kernels/matmul.mjs';
import { firstOf, vk } from '../lib/addon.mjs';
import { finiteSums, overflow, reference, rowsOf } from '../lib/attention.mjs';
import { fromHalf, toHalf } from '../lib/half.mjs';
import { random, relativeError } from '../lib/tensors.mjs';

const context = new KernelContext(vk);
const kernels = attentionKernels(context);
after(() => vk.destroy());

/** @param {Float32Array} data @param {string} type */
function upload(data, type) {
  const stored = type === 'f32' ? data : toHalf(data, type);
  const handle = vk.createBuffer(Math.ceil(stored.byteLength / 16) * 16, 0);
  vk.uploadBuffer(handle, stored);
  return handle;
}
/** @param {number} handle @param {string} type @param {number} length */
function download(handle, type, length) {
  const words = vk.readBuffer(handle);
  return type === 'f32' ? words.subarray(0, length) : fromHalf(new Uint16Array(words.buffer, words.byteOffset, length), type);
}

/** @param {any} o */
function check({
  T,
  heads,
  d,
  batch = 1,
  type = 'f32',
  outType = type,
  gradType = type,
  precision,
  causal = true,
  scale,
  softCap = 0,
  size = 1,
  gap = 0,
  tolerance,
  plan,
  planBackward,
  dead = [],
  label,
}) {
  const width = heads * d;
  const row = 3 * width + gap;
  const rowOut = width + gap;
  const offset = gap;
  const tail = 16;
  const round = (/** @type {Float32Array} */ x, /** @type {string} */ t) =>
    t === 'f32' ? x : Float32Array.from(fromHalf(toHalf(x, t), t));
  const drawn = random(offset + batch * T * row + tail).map((x) => x * size);
  if (dead.length) overflow(drawn, { rows: batch * T, row, heads, d, offset, tokens: T }, dead, precision ?? type);
  const qkv = round(drawn, type);
  const dO = round(random(offset + batch * T * rowOut + tail), outType);
  for (const x of [qkv, dO]) for (let i = 0; i < offset; i++) x[i] = NaN;
  for (let i = offset + batch * T * row; i < qkv.length; i++) qkv[i] = NaN;
  for (let i = offset + batch * T * rowOut; i < dO.length; i++) dO[i] = NaN;
  const h = {
    qkv: upload(qkv, type),
    dO: upload(dO, outType),
    out: upload(new Float32Array(dO.length).fill(777), outType),
    lse: upload(new Float32Array(batch * heads * T + tail).fill(777), 'f32'),
    grad: upload(new Float32Array(qkv.length).fill(777), gradType),
    delta: upload(new Float32Array(batch * heads * T + tail).fill(777), 'f32'),
  };
  const at = (/** @type {number} */ buffer) => ({ buffer, offset });
  const args = {
    qkv: at(h.qkv),
    out: at(h.out),
    logSumExp: h.lse,
    batch,
    tokens: T,
    heads,
    headSize: d,
    type,
    outType,
    precision,
    rowQkv: row,
    rowOut,
    causal,
    scale,
    softCap,
    plan,
  };
  const { packed, count } = pack(
    kernels.attentionForward(args),
    kernels.attentionBackward({ ...args, dOut: at(h.dO), dQkv: at(h.grad), gradType, rowGrad: row, delta: h.delta, plan: planBackward }),
  );
  vk.waitTimeline(vk.batchExecuteAll(packed, count));
  const got = {
    out: download(h.out, outType, dO.length),
    lse: download(h.lse, 'f32', batch * heads * T + tail),
    grad: download(h.grad, gradType, qkv.length),
  };
  const worst = /** @type {Record<string, number>} */ ({});
  for (let z = 0; z < batch; z++) {
    for (let head = 0; head < heads; head++) {
      const from = offset + z * T * row + head * d;
      const [q, k, v] = [0, 1, 2].map((i) => rowsOf(qkv, from + i * width, row, T, d));
      const fromO = offset + z * T * rowOut + head * d;
      const want = reference({
        q,
        k,
        v,
        tokens: T,
        d,
        scale: scale ?? 1 / Math.sqrt(d),
        causal,
        cap: softCap,
        dO: rowsOf(dO, fromO, rowOut, T, d),
        dead,
      });
      /** @type {Record<string, [ArrayLike<number>, ArrayLike<number>]>} */
      const pairs = {
        out: [rowsOf(got.out, fromO, rowOut, T, d), want.out],
        lse: [finiteSums(got.lse.subarray((z * heads + head) * T, (z * heads + head + 1) * T), dead), finiteSums(want.lse, dead)],
        dq: [rowsOf(got.grad, from, row, T, d), want.dq],
        dk: [rowsOf(got.grad, from + width, row, T, d), want.dk],
        dv: [rowsOf(got.grad, from + 2 * width, row, T, d), want.dv],
      };
      for (const [name, [x, y]] of Object.entries(pairs)) {
        // A log-sum-exp may be near 0: its errors are those of scores, whose scale is 1.
        const error = relativeError(x, y, name === 'lse' ? T : 0);
        worst[name] = Number.isNaN(error) ? NaN : Math.max(worst[name] ?? 0, error);
      }
    }
  }
  for (const [name, error] of Object.entries(worst)) {
    assert.ok(error <= tolerance * (name.startsWith('d') ? 3 : 1), `${label}: ${name} off by ${error}`);
  }
  // Nothing but the tensors was written.
  const poison = Math.fround(777);
  const rounded = (/** @type {string} */ t) => (t === 'f32' ? poison : fromHalf(toHalf(Float32Array.of(777), t), t)[0]);
  for (let i = 0; i < got.out.length; i++) {
    const inside = i >= offset && i < offset + batch * T * rowOut && (i - offset) % rowOut < width;
    if (!inside) assert.equal(got.out[i], rounded(outType), `${label}: out[${i}] outside of the tensor`);
  }
  for (let i = 0; i < got.grad.length; i++) {
    const inside = i >= offset && i < offset + batch * T * row && (i - offset) % row < 3 * width;
    if (!inside) assert.equal(got.grad[i], rounded(gradType), `${label}: gradient[${i}] outside of the tensor`);
  }
  for (let i = batch * heads * T; i < got.lse.length; i++) assert.equal(got.lse[i], poison, `${label}: lse[${i}]`);
  for (const handle of Object.values(h)) vk.destroyBuffer(handle);
}

test('the reference gradient agrees with finite differences', () => {
  const [T, d, scale] = [5, 4, 0.6];
  const x = { q: Float64Array.from(random(T * d)), k: Float64Array.from(random(T * d)), v: Float64Array.from(random(T * d)) };
  const dO = Float64Array.from(random(T * d));
  for (const cap of [0, 0.7]) {
    const loss = () => reference({ ...x, tokens: T, d, scale, causal: true, cap }).out.reduce((sum, y, i) => sum + y * dO[i], 0);
    const exact = reference({ ...x, tokens: T, d, scale, causal: true, cap, dO });
    for (const [name, grad] of /** @type {const} */ ([
      ['q', exact.dq],
      ['k', exact.dk],
      ['v', exact.dv],
    ])) {
      for (let i = 0; i < T * d; i++) {
        const step = 1e-5;
        const keep = x[name][i];
        x[name][i] = keep + step;
        const up = loss();
        x[name][i] = keep - step;
        const down = loss();
        x[name][i] = keep;
        assert.ok(Math.abs((up - down) / (2 * step) - grad[i]) < 1e-8, `d${name}[${i}], cap ${cap}`);
      }
    }
  }
});

/** @param {string} name @param {any} options */
function battery(name, options) {
  // CPU drivers compile the unrolled matrix-unit kernels for half a minute.
  const sizes = context.isCpu && options.precision !== undefined ? [32, 64, 128] : [32, 64, 96, 128];
  const [small, middle] = sizes;
  test(`${name}: shapes`, () => {
    check({ ...options, T: 64, heads: 2, d: middle, label: 'whole blocks' });
    check({ ...options, T: 97, heads: 3, d: small, batch: 2, label: 'odd length, smallest head' });
    check({ ...options, T: 1, heads: 1, d: middle, label: 'one token' });
    check({ ...options, T: 150, heads: 1, d: middle, gap: 8, label: 'strided' });
    if (sizes.includes(96)) check({ ...options, T: 40, heads: 1, d: 96, label: 'head 96' });
    check({ ...options, T: 70, heads: 2, d: 128, label: 'head 128' });
  });
  test(`${name}: full attention, scales`, () => {
    check({ ...options, T: 77, heads: 2, d: middle, causal: false, label: 'not causal' });
    check({ ...options, T: 130, heads: 1, d: small, scale: 0.31, label: 'scale' });
    check({ ...options, T: 66, heads: 1, d: small, scale: -0.2, label: 'negative scale' });
    // A cap that bends the scores, and one that most of them reach.
    check({ ...options, T: 70, heads: 2, d: small, softCap: 1.5, scale: -0.4, label: 'capped, negative scale' });
    check({ ...options, T: 130, heads: 1, d: middle, softCap: 2, size: 3, tolerance: options.tolerance * 4, label: 'capped, steep' });
    // Scores spread over tens: maxima move from block to block, and the output is rescaled. Rounded operands move such
    // scores by absolute amounts, so only f32 can be held to its tolerance.
    if (!options.precision && !options.type)
      check({ ...options, T: 130, heads: 1, d: small, size: 6, tolerance: options.tolerance * 4, label: 'steep' });
    else check({ ...options, T: 130, heads: 1, d: small, size: 4, tolerance: options.tolerance * 6, label: 'steep' });
  });
  // No number of f16 is so large that its scores overflow.
  test(`${name}: a row of scores of -∞ is 0 and has no gradient`, { skip: name.startsWith('f16') && 'f16' }, () => {
    check({ ...options, T: 70, heads: 2, d: small, batch: 2, dead: [0, 3, 64, 69], label: 'causal' });
    check({ ...options, T: 70, heads: 1, d: middle, causal: false, dead: [0, 3, 69], label: 'not causal' });
  });
  test(`${name} hands a NaN on to all that depends on it`, () => {
    const [T, d, bad] = [20, small, 5];
    const type = options.type ?? 'f32';
    const values = random(T * 3 * d);
    values[bad * 3 * d + 1] = NaN; // in one query
    const qkv = upload(values, type);
    const dOut = upload(random(T * d), type);
    const out = upload(new Float32Array(T * d), type);
    const lse = upload(new Float32Array(T), 'f32');
    const dQkv = upload(new Float32Array(T * 3 * d), type);
    const args = { qkv, out, logSumExp: lse, tokens: T, heads: 1, headSize: d, type, precision: options.precision };
    const { packed, count } = pack(kernels.attentionForward(args), kernels.attentionBackward({ ...args, dOut, dQkv }));
    vk.waitTimeline(vk.batchExecuteAll(packed, count));
    const [o, l, g] = [download(out, type, T * d), download(lse, 'f32', T), download(dQkv, type, T * 3 * d)];
    assert.ok(Number.isNaN(l[bad]), `log-sum-exp: ${l[bad]}`);
    for (let e = 0; e < d; e++) {
      assert.ok(Number.isNaN(o[bad * d + e]), `out: ${o[bad * d + e]}`);
      assert.ok(Number.isNaN(g[bad * 3 * d + e]), `dQ: ${g[bad * 3 * d + e]}`);
      for (let t = 0; t <= bad; t++) {
        const [dk, dv] = [1, 2].map((i) => g[t * 3 * d + i * d + e]);
        assert.ok(Number.isNaN(dk) && Number.isNaN(dv), `dK, dV of token ${t}: ${dk}, ${dv}`);
      }
    }
    assert.ok(!Number.isNaN(o[(bad - 1) * d]) && !Number.isNaN(o[(bad + 1) * d]), 'other tokens are as ever');
    for (const handle of [qkv, dOut, out, lse, dQkv]) vk.destroyBuffer(handle);
  });
  test(`${name} is deterministic`, () => {
    const [T, heads, d] = [90, 2, middle];
    const type = options.type ?? 'f32';
    const qkv = upload(random(T * 3 * heads * d), type);
    const dOut = upload(random(T * heads * d), type);
    const results = [0, 1].map(() => {
      const out = upload(new Float32Array(T * heads * d), type);
      const lse = upload(new Float32Array(heads * T), 'f32');
      const dQkv = upload(new Float32Array(T * 3 * heads * d), type);
      const args = { qkv, out, logSumExp: lse, tokens: T, heads, headSize: d, type, precision: options.precision };
      const { packed, count } = pack(kernels.attentionForward(args), kernels.attentionBackward({ ...args, dOut, dQkv }));
      vk.waitTimeline(vk.batchExecuteAll(packed, count));
      const bits = [out, lse, dQkv].map((handle) => new Uint32Array(vk.readBuffer(handle).buffer.slice(0)));
      for (const handle of [out, lse, dQkv]) vk.destroyBuffer(handle);
      return bits;
    });
    assert.deepEqual(results[0], results[1]);
    for (const handle of [qkv, dOut]) vk.destroyBuffer(handle);
  });
}

battery('f32', { tolerance: 3e-6 });
// The forms of the backward pass that are not the default here: GPUs take tiles, CPU devices walk, or shuffle.
if (context.isCpu) battery('f32, tiles', { tolerance: 3e-6, planBackward: { kernel: 'tiles' } });
if (context.shufflesEight || !context.isCpu)
  battery('f32, walk', { tolerance: 3e-6, plan: { kernel: 'walk' }, planBackward: { kernel: 'walk' } });
battery('f32, forward by tiles', { tolerance: 3e-6, plan: { kernel: 'tiles' } });
test('f32, forward by tiles: other tiles', () => {
  const options = { tolerance: 3e-6, T: 50, heads: 2, planBackward: { kernel: 'walk' } };
  for (const plan of [
    { queryBlock: 64, keyBlock: 16, rows: 8 },
    { queryBlock: 40, keyBlock: 8, rows: 8 },
    { queryBlock: 20, keyBlock: 8, rows: 4 },
  ]) {
    check({ ...options, d: 64, plan: { kernel: 'tiles', ...plan }, label: JSON.stringify(plan) });
    check({ ...options, d: 96, causal: false, plan: { kernel: 'tiles', ...plan }, label: JSON.stringify(plan) });
  }
});
test('f32, tiles: every size of tile, in parts by batches and by heads', () => {
  const whole = (/** @type {number} */ blocks, /** @type {number} */ queryBlock) =>
    ((blocks * (blocks + 1)) / 2) * queryBlock * queryBlock * 8;
  const options = { tolerance: 3e-6, T: 50, heads: 3, d: 64, batch: 3 };
  const of = (/** @type {any} */ plan) => ({ ...options, planBackward: { kernel: 'tiles', ...plan }, label: JSON.stringify(plan) });
  const plans = [
    of({ queryBlock: 64, keyBlock: 16, rows: 8, columns: 4 }), // the plan of GPUs
    of({ queryBlock: 16, keyBlock: 8, rows: 4, columns: 4, workspace: 7 * whole(4, 16) }), // two batches, then one
    of({ queryBlock: 16, keyBlock: 16, rows: 8, columns: 4, workspace: 2 * whole(4, 16) }), // two heads, then one
    of({ queryBlock: 32, keyBlock: 16, rows: 4, columns: 8, workspace: 0 }), // each head by itself
    of({ queryBlock: 64, keyBlock: 8, rows: 8, columns: 8 }),
    { ...of({ queryBlock: 16, workspace: 5 * 16 * 16 * 16 * 8 }), causal: false },
  ];
  for (const plan of firstOf(plans, 3)) check(plan);
});
for (const half of /** @type {const} */ (['f16', 'bf16'])) {
  if (!kernels.attentionSupports(half)) {
    test(`${half} matrix units`, { skip: `${context.info.deviceName} has none` }, () => {});
    continue;
  }
  const tolerance = half === 'f16' ? 1.2e-3 : 1e-2;
  battery(`${half} from f32`, { precision: half, tolerance });
  battery(`${half} from halves`, { type: half, precision: half, tolerance });
  const kind = kernels.attentionKind(half);
  test(`${half}: scores through shared memory`, { skip: kind === 'scratch' && 'these are the kernels that run above' }, () => {
    const plan = { kernel: 'scratch' };
    const options = { type: half, precision: half, tolerance, plan, planBackward: plan };
    check({ ...options, T: 97, heads: 2, d: 64, label: 'head 64' });
    check({ ...options, T: 70, heads: 1, d: 32, causal: false, label: 'not causal' });
  });
  test(`${half}: scores in registers, other tilings`, { skip: kind !== 'register' && 'not on this device' }, () => {
    const { m, n } = coopShapes(context.info, half)[0];
    const options = { type: half, precision: half, tolerance, T: 150, heads: 1, d: 32 };
    const wide = { kernel: 'register', queryBlock: 2 * m, keyBlock: 2 * n, group: 2 };
    check({ ...options, plan: wide, planBackward: wide, label: 'two fragments at a time' });
    const narrow = { kernel: 'register', queryBlock: m, keyBlock: 2 * n, group: 1 };
    check({ ...options, plan: narrow, planBackward: narrow, gradType: 'f32', causal: false, label: 'one subgroup, not causal' });
    check({ ...options, type: 'f32', outType: half, plan: narrow, planBackward: narrow, label: 'f32 in, halves out' });
  });
}

test('rows beyond the grid are taken by turns', () => {
  const [T, heads, d] = [61, 3, 32];
  for (const type of /** @type {const} */ (['f32', 'f16', 'bf16'])) {
    if (!kernels.attentionSupports(type, d)) continue;
    const qkv = upload(random(T * 3 * heads * d), type);
    const dOut = upload(random(T * heads * d), type);
    const narrow = new KernelContext(vk);
    narrow.maxGroups = 2;
    const results = [kernels, attentionKernels(narrow)].map((each) => {
      const out = upload(new Float32Array(T * heads * d), type);
      const lse = upload(new Float32Array(heads * T), 'f32');
      const delta = upload(new Float32Array(heads * T + 9).fill(777), 'f32');
      const dQkv = upload(new Float32Array(T * 3 * heads * d), type);
      const args = { qkv, out, logSumExp: lse, tokens: T, heads, headSize: d, type };
      const { packed, count } = pack(each.attentionForward(args), each.attentionBackward({ ...args, dOut, dQkv, delta }));
      vk.waitTimeline(vk.batchExecuteAll(packed, count));
      const bits = [delta, dQkv].map((handle) => new Uint32Array(vk.readBuffer(handle).buffer.slice(0)));
      for (const handle of [out, lse, delta, dQkv]) vk.destroyBuffer(handle);
      return bits;
    });
    assert.deepEqual(results[0], results[1], type);
    for (const handle of [qkv, dOut]) vk.destroyBuffer(handle);
  }
  const long = { qkv: 0, out: 0, logSumExp: 0, tokens: 20_000, heads: 128, headSize: 32, dOut: 0, dQkv: 0, delta: 0 };
  const unchecked = attentionKernels(new KernelContext(vk, { check: false })); // the handles stand for no buffers
  const [delta] = unchecked.attentionBackward(long);
  assert.deepEqual(delta.groups, [context.maxGroups, 1, 1]);
});

test('more tokens than a CPU device has rounds of loops for are an error, and of the most that are none the last is seen', {
  skip: !context.isCpu && 'a GPU has no such limit',
}, () => {
  const unchecked = attentionKernels(new KernelContext(vk, { check: false })); // the handles stand for no buffers
  for (const d of [64, 128]) {
    const sizes = { heads: 1, headSize: d, causal: false };
    const none = { ...sizes, q: 0, k: 0, v: 0, out: 0, logSumExp: 0, dOut: 0, dQ: 0, dK: 0, dV: 0, delta: 0 };
    // The loop over the heads of a group counts, too.
    const grouped = { ...none, heads: 12_000, kvHeads: 1, tokens: 4 };
    assert.throws(
      () => unchecked.attentionBackward(grouped),
      /4 tokens with heads of \d+, 12000 for each of keys take \d+ rounds of a loop/,
    );
    for (const call of /** @type {const} */ (['attentionForward', 'attentionBackward'])) {
      let [T, beyond] = [1, 140_000];
      const error = new RegExp(`^${call}: 140000 tokens with heads of ${d} take \\d+ rounds of a loop: on a CPU device`);
      assert.throws(() => unchecked[call]({ ...none, tokens: beyond }), { name: 'RangeError', message: error });
      while (beyond - T > 1) {
        const tokens = (T + beyond) >> 1;
        try {
          unchecked[call]({ ...none, tokens });
          T = tokens;
        } catch {
          beyond = tokens;
        }
      }
      const all = (/** @type {number} */ value) => upload(new Float32Array(T * d).fill(value), 'f32');
      // Queries are 0, so that each key has the same part.
      const [q, k, dOut, out, dQ, dK, dV] = [0, 1, 1, 0, 0, 0, 0].map(all);
      const v = all(1 / d);
      const stats = () => upload(new Float32Array(T), 'f32');
      const [logSumExp, delta] = [stats(), stats()];
      const args = { ...sizes, tokens: T, q, k, v, out, logSumExp };
      // Only workgroups that go over all keys, and all queries: the whole would take minutes.
      const dispatches =
        call === 'attentionForward'
          ? [kernels.attentionForward(args)]
          : kernels.attentionBackward({ ...args, dOut, dQ, dK, dV, delta, scale: 1 }).slice(1);
      const { packed, count } = pack(dispatches.map((dispatch) => ({ ...dispatch, groups: [2, 1, 1] })));
      vk.waitTimeline(vk.batchExecuteAll(packed, count));
      const near = (/** @type {number} */ found, /** @type {number} */ expected) =>
        assert.ok(Math.abs(found - expected) < 1e-6 * expected, `${call}, heads of ${d}, ${T} tokens: ${found} instead of ${expected}`);
      if (call === 'attentionForward') near(vk.readBuffer(logSumExp)[T - 1], Math.log(T));
      else {
        near(vk.readBuffer(dQ)[(T - 1) * d], T);
        near(vk.readBuffer(dV)[0], T);
      }
      for (const handle of [q, k, dOut, out, dQ, dK, dV, v, logSumExp, delta]) vk.destroyBuffer(handle);
    }
  }
});

test('the workspace of the backward pass is given back, and a smaller one before it', () => {
  const own = new KernelContext(vk, { check: false }); // the handles stand for no buffers
  const { attentionBackward } = attentionKernels(own);
  const args = { qkv: 0, out: 0, logSumExp: 0, heads: 2, headSize: 32, dOut: 0, dQkv: 0 };
  const handles = [100, 20_000].map((tokens) => Number(attentionBackward({ ...args, tokens })[0].buffers[2]));
  assert.notEqual(handles[0], handles[1]);
  for (const handle of handles) vk.readBuffer(handle);
  own.releaseWorkspaces();
  for (const handle of handles) assert.throws(() => vk.readBuffer(handle));
});

test('only lane maps by bits that both kinds of matrix share are taken', () => {
  const shape = { m: 16, n: 16, k: 16 };
  // The map of NVIDIA's driver: quads of lanes along a row, components (row + 8) (column + 8) (column + 1).
  const place = (/** @type {number} */ row, /** @type {number} */ column) => row | (column << 8);
  const make = (/** @type {(lane: number, i: number) => number} */ of, lanes = 32) =>
    Uint32Array.from({ length: 256 }, (_, x) => of(Math.floor(x / (256 / lanes)), x % (256 / lanes)));
  const quads = make((lane, i) => place((lane >> 2) + 8 * (i >> 2), 2 * (lane & 3) + (i & 1) + 8 * ((i >> 1) & 1)));
  const map = { laneRows: 0x32100, laneColumns: 0x32, partRows: 0x400, partColumns: 0x041, own: 2 };
  assert.deepEqual(laneMap(quads, quads, shape, 32), map);
  // A column a lane.
  const columns = make((lane, i) => place(i, lane), 16);
  assert.deepEqual(laneMap(columns, columns, shape, 16), { laneRows: 0, laneColumns: 0x4321, partRows: 0x4321, partColumns: 0, own: 16 });
  // An operand laid out otherwise, a shape whose operand has other columns, a map that is no sum over bits, one that
  // names a place twice, and one that was never written.
  assert.equal(
    laneMap(
      quads,
      make((lane, i) => place(lane & 15, 8 * (lane >> 4) + i)),
      shape,
      32,
    ),
    undefined,
  );
  assert.equal(laneMap(quads, quads, { m: 16, n: 16, k: 8 }, 32), undefined);
  const rotated = make((lane, i) => place((lane + i) & 15, 8 * (lane >> 4) + i));
  assert.equal(laneMap(rotated, rotated, shape, 32), undefined);
  const twice = make((lane, i) => place((lane >> 2) + 8 * (i >> 2), 2 * (lane & 3) + (i & 1) + 4 * ((i >> 1) & 1)));
  assert.equal(laneMap(twice, twice, shape, 32), undefined);
  const blank = new Uint32Array(256).fill(0xffffffff);
  assert.equal(laneMap(blank, blank, shape, 32), undefined);
  assert.equal(laneMap(quads, blank, shape, 32), undefined);
});

test('bad arguments name what is wrong', () => {
  const kernels = attentionKernels(new KernelContext(vk, { check: false })); // the handles stand for no buffers
  const good = { qkv: 0, out: 0, logSumExp: 0, tokens: 4, heads: 1, headSize: 64 };
  assert.throws(() => kernels.attentionForward({ ...good, headSize: 48 }), /headSize must be 32, 64, 96 or 128/);
  assert.throws(() => kernels.attentionForward({ ...good, tokens: 0 }), /tokens must be in/);
  assert.throws(() => kernels.attentionForward({ ...good, rowQkv: 10 }), /rowQkv must be in/);
  assert.throws(() => kernels.attentionForward({ ...good, qkv: { buffer: 0, offset: 2 } }), /multiple of 4 elements/);
  assert.throws(() => kernels.attentionForward({ ...good, heads: 6, kvHeads: 4 }), /kvHeads must divide heads = 6, got 4/);
  assert.throws(() => kernels.attentionForward({ ...good, keys: 5 }), /qkv holds as many keys as tokens = 4, got keys = 5/);
  assert.throws(() => kernels.attentionForward({ ...good, window: 0 }), /window must be in/);
  assert.throws(() => kernels.attentionForward({ ...good, lastQuery: 0 }), /firstKey must be a buffer handle/);
  const separate = { ...good, qkv: undefined, q: 0, k: 0, v: 0 };
  assert.throws(
    () => kernels.attentionForward({ ...separate, keys: 3 }),
    /causal attention of tokens = 4 needs at least as many keys, got 3/,
  );
  assert.throws(() => kernels.attentionForward({ ...separate, rowKv: 32 }), /rowKv must be in \[64/);
  assert.throws(() => kernels.attentionForward({ ...separate, batch: 2, keys: 8, batchKv: 7 * 64 }), /batchKv must be in \[512/);
  assert.throws(
    () => kernels.attentionForward({ ...separate, firstKey: { buffer: 0, offset: 0xf0000000 }, lastQuery: 0 }),
    /firstKey reaches/,
  );
  assert.throws(() => kernels.attentionForward({ ...good, qkv: undefined }), /q must be a buffer handle/);
  const huge = { ...good, batch: 3, tokens: 1 << 20, heads: 16, headSize: 128 };
  assert.throws(() => kernels.attentionForward(huge), {
    name: 'RangeError',
    message: /^attentionForward: qkv reaches element 19327352832, past/,
  });
  const apart = { ...huge, qkv: undefined, q: 0, k: 0, v: { buffer: 0, offset: 0x60000000 }, heads: 4 };
  assert.throws(() => kernels.attentionForward({ ...apart, rowOut: 2048 }), /attentionForward: out reaches element/);
  assert.throws(() => kernels.attentionForward({ ...apart, v: { buffer: 0, offset: 0xb0000000 } }), /attentionForward: v reaches element/);
  assert.throws(() => kernels.attentionForward({ ...good, logSumExp: { buffer: 0, offset: 0xf0000000 } }), /logSumExp reaches element/);
  const back = { ...good, dOut: 0, dQkv: 0, delta: 0 };
  assert.throws(() => kernels.attentionBackward({ ...back, firstKey: 0 }), /lastQuery must be a buffer handle/);
  assert.throws(() => kernels.attentionBackward({ ...back, ...separate, keys: 8 }), /dQkv holds as many keys as tokens = 4, got keys = 8/);
  assert.throws(
    () => kernels.attentionBackward({ ...back, dOut: { buffer: 0, offset: 0xf0000000 } }),
    /attentionBackward: dOut reaches element/,
  );
  assert.throws(
    () => kernels.attentionBackward({ ...back, dQkv: { buffer: 0, offset: 0xefffff00 } }),
    /attentionBackward: dQkv reaches element/,
  );
  assert.throws(
    () => kernels.attentionBackward({ ...back, delta: { buffer: 0, offset: 0xf0000000 } }),
    /attentionBackward: delta reaches element/,
  );
  const tiles =
    (/** @type {any} */ plan, more = {}) =>
    () =>
      kernels.attentionBackward({ ...back, ...more, plan: { kernel: 'tiles', ...plan } });
  assert.throws(
    tiles({ queryBlock: 20 }),
    /attentionBackward: the plan cannot run on .*: slices of 16 do not divide tiles of 20 and heads of 64/,
  );
  assert.throws(tiles({ queryBlock: 64, rows: 6 }), /6 x \d sums a thread do not divide tiles of 64/);
  assert.throws(tiles({ queryBlock: 2048, keyBlock: 16, rows: 4, columns: 4 }), /tiles of 2048 make 262144 threads/);
  assert.throws(
    tiles({ queryBlock: 256, keyBlock: 64, rows: 8, columns: 8 }),
    /133120 bytes of shared memory, the device allows|make 1024 threads/,
  );
  assert.throws(tiles({}, { tokens: 1 << 15 }), /the tiles of a head take \d+ bytes/);
  const groups = context.info.maxComputeWorkGroupCountX;
  const tokens = 64 * groups;
  if (tokens < 2 ** 27) {
    assert.throws(() => kernels.attentionForward({ ...good, headSize: 32, tokens }), /tokens = \d+ make \d+ workgroups, more than/);
  }
  assert.throws(() => kernels.attentionForward({ ...good, type: 'f16', precision: 'f32' }), /cannot take type f16/);
  for (const half of /** @type {const} */ (['f16', 'bf16'])) {
    if (!kernels.attentionSupports(half)) continue;
    const args = { ...good, type: half };
    if (kernels.attentionKind(half) !== 'register') {
      assert.throws(
        () => kernels.attentionForward({ ...args, plan: { kernel: 'register' } }),
        /in a way that the register kernels do not know/,
      );
      continue;
    }
    const { n } = coopShapes(context.info, half)[0];
    assert.throws(() => kernels.attentionForward({ ...args, plan: { keyBlock: n + 1 } }), /do not divide/);
    assert.throws(() => kernels.attentionForward({ ...args, plan: { queryBlock: 3 } }), /3 rows make/);
    assert.throws(() => kernels.attentionForward({ ...args, plan: { keyBlock: 4096 } }), /bytes of shared memory/);
  }
});
