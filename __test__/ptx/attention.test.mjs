// Attention in PTX on a simulator of its instructions, which fails on what hardware leaves open (see machine.mjs): forward and
// backward against float64, causal and full, with tokens that fill no tile, in poison; how calls choose these kernels; the
// test before their first use.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { attentionKernels } from '../../kernels/attention.mjs';
import { KernelContext, pack } from '../../kernels/base.mjs';
import { attention, attentionFault } from '../../kernels/hopper/attention.mjs';
import { keptBytes, keptParts } from '../../kernels/hopper/attention-kept.mjs';
import { ptxAttention } from '../../kernels/hopper/tables.mjs';
import { ATTENTION_TILINGS, attentionTiling } from '../../kernels/hopper/tilings.mjs';
import { warningsOf } from '../lib/warnings.mjs';
import { checkAttention } from './attention.mjs';
import { ptxDevice } from './device.mjs';

/** @typedef {import('./attention.mjs').Problem} Problem */
/** @typedef {import('../../kernels/hopper/attention.mjs').AttentionTiling} AttentionTiling */

/** Kernels on a stand-in that are not tested before their use. @param {Parameters<typeof ptxDevice>[0]} [options] */
function untested(options) {
  const device = ptxDevice(options);
  return { ...device, kernels: attentionKernels(new KernelContext(device.vk), { verify: () => undefined }) };
}

/** @param {AttentionTiling | string} tiling @returns {any} */
const planOf = (tiling) => ({ kernel: 'ptx', tiling });

/** @type {AttentionTiling} */
const narrow = { warpgroups: 1, columns: 32, stages: 2, blocks: 3, order: 'length' };
/** @type {AttentionTiling} */
const three = { warpgroups: 3, columns: 32, stages: 4, blocks: 1, order: 'head' };
/** @type {AttentionTiling} */
const deep = { warpgroups: 2, columns: 64, stages: 2, blocks: 1, order: 'head' };
/** @type {AttentionTiling} */
const paired = { ...deep, paired: true };
const [forward, backward] = [planOf('fwd-128x64-b2'), planOf('bwd-64x32-b3')];

/** @type {Problem[]} */
const PROBLEMS = [
  { tokens: 200, plan: forward, planBackward: backward },
  { tokens: 100, heads: 2, causal: false, type: 'f16', split: true, plan: forward, planBackward: backward },
  { tokens: 64, batch: 2, scale: -0.3, plan: forward, planBackward: planOf(deep) },
  { tokens: 201, plan: forward, planBackward: planOf(deep) },
  { tokens: 130, causal: false, pad: 0, plan: planOf(narrow) },
  { tokens: 97, heads: 2, batch: 2, type: 'f16', scale: 0.2, plan: planOf(narrow) },
  { tokens: 230, plan: planOf(three) },
  { tokens: 1, heads: 2, plan: planOf(narrow) },
  { tokens: 150, size: 4, plan: forward, planBackward: backward },
  { tokens: 90, headSize: 128, plan: planOf('fwd-128x64'), planBackward: planOf('bwd-64x32-2wg-ds') },
  { tokens: 70, headSize: 128, causal: false, type: 'f16', plan: planOf('fwd-128x64'), planBackward: planOf('bwd-64x32-2wg-ds') },
  { tokens: 230, headSize: 128, plan: planOf({ ...three, stages: 6 }), planBackward: planOf('bwd-64x32-2wg-ds') },
  { tokens: 165, headSize: 128, heads: 2, scale: -0.2, plan: planOf('fwd-128x64'), planBackward: planOf('bwd-64x32-2wg-ds') },
  { tokens: 161, type: 'f16', plan: forward, planBackward: planOf(paired) },
  { tokens: 99, causal: false, batch: 2, plan: forward, planBackward: planOf({ ...paired, columns: 32, blocks: 2 }) },
  { tokens: 200, heads: 2, batch: 2, plan: forward, planBackward: planOf('bwd-64x32-b3-ds') },
  { tokens: 161, causal: false, type: 'f16', scale: -0.3, plan: forward, planBackward: planOf({ ...deep, queries: narrow }) },
  { tokens: 1, heads: 2, plan: forward, planBackward: planOf('bwd-64x32-b3-ds') },
  { tokens: 130, heads: 2, dead: [0, 5, 64, 129], plan: forward, planBackward: backward },
  { tokens: 70, causal: false, dead: [0, 69], plan: forward, planBackward: planOf('bwd-64x32-b3-ds') },
  { tokens: 70, headSize: 128, dead: [3, 69], plan: planOf('fwd-128x64'), planBackward: planOf('bwd-64x32-2wg-ds') },
  { tokens: 101, heads: 4, kvHeads: 2, plan: forward, planBackward: backward },
  { tokens: 97, heads: 3, kvHeads: 1, causal: false, type: 'f16', split: true, plan: forward, planBackward: planOf(deep) },
  { tokens: 201, heads: 2, kvHeads: 1, plan: forward, planBackward: planOf(deep) },
  { tokens: 99, heads: 4, kvHeads: 2, batch: 2, split: true, pad: 0, plan: planOf(three), planBackward: planOf('bwd-64x32-b3-ds') },
  { tokens: 66, heads: 8, kvHeads: 1, causal: false, plan: forward, planBackward: planOf({ ...deep, queries: narrow }) },
  { tokens: 67, headSize: 128, heads: 4, kvHeads: 2, plan: planOf('fwd-128x64'), planBackward: planOf('bwd-64x32-2wg-ds') },
  { tokens: 70, headSize: 128, heads: 2, kvHeads: 1, causal: false, plan: planOf('fwd-128x64'), planBackward: planOf('bwd-64x32-2wg') },
  { tokens: 1, heads: 2, kvHeads: 1, plan: forward, planBackward: backward },
  { tokens: 200, window: 70, plan: forward, planBackward: backward },
  { tokens: 201, heads: 2, kvHeads: 1, window: 33, plan: forward, planBackward: planOf('bwd-64x32-b3-ds') },
  { tokens: 200, documents: [40, 41, 130, 190], plan: planOf(three), planBackward: planOf(deep) },
  {
    tokens: 193,
    heads: 2,
    kvHeads: 1,
    documents: [64, 150],
    window: 50,
    plan: forward,
    planBackward: planOf({ ...deep, queries: narrow }),
  },
  { tokens: 150, batch: 2, documents: [5, 100], plan: forward, planBackward: planOf('bwd-64x32-b3-ds') },
  { tokens: 130, batch: 2, documents: [], padding: 70, plan: forward, planBackward: planOf('bwd-64x32-b3-ds') },
  { tokens: 150, heads: 2, kvHeads: 1, documents: [], padding: 133, plan: forward, planBackward: backward },
  { tokens: 130, headSize: 128, documents: [], padding: 65, plan: planOf('fwd-128x64'), planBackward: planOf('bwd-64x32-2wg-ds') },
  { tokens: 140, window: 1, plan: planOf(narrow), planBackward: planOf(deep) },
  { tokens: 130, headSize: 128, window: 40, plan: planOf('fwd-128x64'), planBackward: planOf('bwd-64x32-2wg-ds') },
  {
    tokens: 100,
    headSize: 128,
    heads: 2,
    kvHeads: 1,
    documents: [30, 70],
    plan: planOf('fwd-128x64'),
    planBackward: planOf('bwd-64x32-2wg'),
  },
  { tokens: 99, causal: false, dead: [7, 98], plan: forward, planBackward: planOf({ ...paired, columns: 32, blocks: 2 }) },
];
for (const late of [true, false]) {
  for (const problem of late ? PROBLEMS : PROBLEMS.slice(0, 1)) {
    test(`${late ? 'late' : 'early'}: ${JSON.stringify(problem)}`, () => {
      const { vk, kernels, ran } = untested({ late });
      const dispatches = checkAttention(vk, kernels, problem);
      const { type = 'bf16', planBackward = problem.plan } = problem;
      const { queries } = attentionTiling(planBackward.tiling) ?? planBackward.tiling;
      const gradients = (queries ? ['ptx_keys', 'ptx_queries'] : ['ptx_backward']).map((name) => `attention_${name}_${type}`);
      assert.equal(dispatches.length, 2 + gradients.length);
      const names = ran.slice(0, dispatches.length).map(({ kernel }) => kernel.name);
      assert.deepEqual(names, [`attention_ptx_forward_${type}`, `attention_delta_${type}`, ...gradients]);
    });
  }
}

test('a NaN in a query reaches all that depends on it, and no output of another token', () => {
  const { vk, kernels } = untested();
  const [tokens, bad] = [80, 70];
  const values = new Uint16Array(tokens * 192).map((_, i) => 0x3c00 + ((i * 37) % 512));
  values[bad * 192 + 5] = 0x7fc0;
  const [qkv, dOut, out, dQkv] = [192, 64, 64, 192].map((columns) => vk.createBuffer(2 * tokens * columns));
  const logSumExp = vk.createBuffer(4 * tokens);
  vk.uploadBuffer(qkv, values);
  vk.uploadBuffer(dOut, new Uint16Array(tokens * 64).fill(0x3f80));
  const args = { qkv, out, logSumExp, tokens, heads: 1, headSize: 64, type: /** @type {const} */ ('bf16') };
  const { packed, count } = pack([
    kernels.attentionForward({ ...args, plan: forward }),
    ...kernels.attentionBackward({ ...args, dOut, dQkv, plan: backward }),
  ]);
  vk.batchExecuteAll(packed, count);
  const halves = (/** @type {any} */ buffer) => new Uint16Array(vk.readBuffer(buffer).buffer);
  const poisoned = (/** @type {number} */ h) => (h & 0x7fff) > 0x7f80;
  const [o, lse, g] = [halves(out), vk.readBuffer(logSumExp), halves(dQkv)];
  for (let t = 0; t < tokens; t++) {
    assert.equal(Number.isNaN(lse[t]), t === bad, `log-sum-exp of token ${t}`);
    for (let e = 0; e < 64; e++) {
      assert.equal(poisoned(o[t * 64 + e]), t === bad, `out of token ${t}`);
      assert.equal(poisoned(g[t * 192 + e]), t === bad, `dQ of token ${t}`);
      if (t <= bad) for (const part of [1, 2]) assert.ok(poisoned(g[t * 192 + part * 64 + e]), `${part === 1 ? 'dK' : 'dV'} of token ${t}`);
    }
  }
});

/** Kernels that the calls of a problem take. @param {any} kernels @param {any} vk @param {Map<number, any>} pipelines @param {object} more @returns {string[]} */
function chosen(kernels, vk, pipelines, more = {}) {
  const [qkv, out, logSumExp, dOut, dQkv] = [0, 1, 2, 3, 4].map(() => vk.createBuffer(1 << 18));
  const args = { qkv, out, logSumExp, tokens: 100, heads: 1, headSize: 64, type: 'bf16', ...more };
  const records = [kernels.attentionForward(args), ...kernels.attentionBackward({ ...args, dOut, dQkv, ...more })];
  return records.map(({ pipeline }) => pipelines.get(pipeline).name.replace(/^attention_/, ''));
}

test('calls choose these kernels on Hopper where all is stored in one half type', () => {
  const inPtx = ['ptx_forward_bf16', 'delta_bf16', 'ptx_backward_bf16'];
  const elsewhere = ['coop_forward_bf16', 'delta_bf16', 'coop_backward_bf16'];
  const of = (/** @type {object} */ more = {}, /** @type {object} */ info = {}) => {
    const { kernels, vk, pipelines } = untested({ info, bytes: 16 << 20 });
    return chosen(kernels, vk, pipelines, more);
  };
  assert.deepEqual(of(), inPtx);
  assert.deepEqual(of({ causal: false }), inPtx);
  assert.deepEqual(of({ rowQkv: 200, rowOut: 72, rowGrad: 208 }), inPtx);
  assert.deepEqual(of({}, { deviceName: 'NVIDIA H100 80GB HBM3' }), inPtx);
  assert.deepEqual(of({ headSize: 128 }), ['ptx_forward_bf16', 'delta_bf16', 'ptx_keys_bf16', 'ptx_queries_bf16']);
  for (const more of [{ softCap: 30 }, { headSize: 32 }, { headSize: 96 }, { scale: 0 }, { plan: { kernel: 'scratch' } }])
    assert.deepEqual(of(more), elsewhere, JSON.stringify(more));
  assert.deepEqual(of({ gradType: 'f32' }), ['ptx_forward_bf16', 'delta_bf16', 'coop_backward_bf16']);
  assert.deepEqual(of({ outType: 'f32' }), ['coop_forward_bf16', 'delta', 'coop_backward_bf16']);
  for (const info of [{ hasPtx: false }, { deviceName: 'NVIDIA B200' }]) assert.deepEqual(of({}, info), elsewhere, JSON.stringify(info));
  const { vk, pipelines } = untested({ bytes: 16 << 20 });
  const off = attentionKernels(new KernelContext(vk, { ptx: false }));
  assert.deepEqual(chosen(off, vk, pipelines), elsewhere);
});

test('the backward pass of few tokens takes larger blocks, as many as there are multiprocessors, and that of long sequences keeps dS', () => {
  const groupsOf = (/** @type {number} */ tokens, /** @type {number} */ heads, kvHeads = heads) => {
    const { kernels, vk, pipelines } = untested({ bytes: 192 << 20 });
    const [qkv, out, logSumExp, dOut, dQkv] = [0, 1, 2, 3, 4].map(() => vk.createBuffer(14 << 20));
    const args = { qkv, out, logSumExp, dOut, dQkv, tokens, heads, kvHeads, headSize: 64, type: /** @type {const} */ ('bf16') };
    const [, { pipeline, groups }] = kernels.attentionBackward(args);
    return [pipelines.get(pipeline).workgroupSize[0], ...groups];
  };
  assert.deepEqual(groupsOf(512, 16), [256, 8, 16, 1]);
  assert.deepEqual(groupsOf(640, 16), [128, 20, 16, 1]);
  // Blocks of keys alone, by length.
  assert.deepEqual(groupsOf(2048, 8), [128, 1, 8, 32]);
  const long = { tokens: 2048, heads: 8, batch: 1 };
  const form = /** @type {const} */ ({ pass: 'backward', type: 'bf16', headSize: 64, causal: true });
  assert.equal(ptxAttention(form, long), 'bwd-64x32-b3-ds');
  for (const more of [{ window: true }, { limits: true }])
    assert.equal(ptxAttention({ ...form, ...more }, long), 'bwd-64x32-b3', 'few keys');
  // Where heads share keys dS is not kept.
  assert.deepEqual(groupsOf(2048, 8, 4), [256, 1, 8, 32]);
  assert.deepEqual(groupsOf(832, 64, 32), [128, 26, 64, 1]);
});

for (const [headSize, tiling, ...rooms] of /** @type {const} */ ([
  [64, 'bwd-64x32-b3-ds', 9, 8, 2],
  [128, 'bwd-64x32-2wg-ds', 2],
])) {
  test(`heads of ${headSize} whose dS has no room at a time are computed by whole batches, or by heads of one`, () => {
    // Two blocks of 64 queries see three blocks of keys, of 8 KiB.
    const head = 3 * 8192;
    const problem = {
      tokens: 66,
      headSize,
      heads: 3,
      batch: 3,
      plan: planOf(headSize === 64 ? 'fwd-128x64-b2' : 'fwd-128x64'),
      planBackward: planOf(tiling),
    };
    for (const room of rooms) {
      const { vk, pipelines } = ptxDevice();
      const kernels = attentionKernels(new KernelContext(vk), { verify: () => undefined, mostKept: room * head + head - 1 });
      const dispatches = checkAttention(vk, kernels, { ...problem, split: room === 2, pad: 16 });
      const names = dispatches.slice(2).map(({ pipeline }) => pipelines.get(pipeline).name);
      // All of them; two batches, then one; two heads of each batch, then one.
      const parts = { 9: 1, 8: 2, 2: 6 }[room];
      assert.deepEqual(names, Array(parts).fill(['attention_ptx_keys_bf16', 'attention_ptx_queries_bf16']).flat(), `room for ${room}`);
    }
  });
}

test('dS of more than 1 GiB is kept by parts, each of which has room', () => {
  const list = (/** @type {Parameters<typeof keptParts>[0]} */ sizes, causal = true) =>
    keptParts(sizes, causal).map(({ batch, heads, first }) => [batch, heads, first.batch, first.head]);
  assert.deepEqual(list({ tokens: 8192, heads: 15, batch: 1 }), [[1, 15, 0, 0]], '68 MB a head');
  assert.deepEqual(list({ tokens: 8192, heads: 4, batch: 5 }), [
    [3, 4, 0, 0],
    [2, 4, 3, 0],
  ]);
  assert.deepEqual(list({ tokens: 23000, heads: 3, batch: 2 }), [
    [1, 2, 0, 0],
    [1, 1, 0, 2],
    [1, 2, 1, 0],
    [1, 1, 1, 2],
  ]);
  assert.deepEqual(list({ tokens: 23000, heads: 1, batch: 2 }, false), [
    [1, 1, 0, 0],
    [1, 1, 1, 0],
  ]);
  assert.deepEqual(list({ tokens: 32705, heads: 1, batch: 1 }), []);
  for (const tokens of [1, 512, 2048, 9000])
    for (const heads of [1, 12, 48])
      for (const batch of [1, 7, 64]) {
        const parts = keptParts({ tokens, heads, batch }, true);
        assert.equal(
          parts.reduce((sum, part) => sum + part.batch * part.heads, 0),
          batch * heads,
        );
        // The workspace is that of the first part.
        for (const part of parts) assert.ok(keptBytes({ ...part, tokens }, true) <= keptBytes({ ...parts[0], tokens }, true));
        assert.ok(keptBytes({ ...parts[0], tokens }, true) <= 2 ** 30);
      }
});

test('dS of a head that is more than 1 GiB is not kept', () => {
  const { kernels, vk, pipelines } = untested({ bytes: 96 << 20 });
  const [qkv, out, logSumExp, dOut, dQkv] = [26, 9, 1, 9, 26].map((size) => vk.createBuffer(size << 20));
  const args = { qkv, out, logSumExp, dOut, dQkv, heads: 1, type: /** @type {const} */ ('bf16') };
  for (const headSize of [64, 128])
    for (const [tokens, causal] of /** @type {const} */ ([
      [32705, true],
      [23169, false],
    ])) {
      const [, { pipeline, groups }] = kernels.attentionBackward({ ...args, headSize, tokens, causal });
      assert.equal(pipelines.get(pipeline).name, 'attention_ptx_backward_bf16');
      // Blocks of keys and of queries; of heads of 64 by head, as those of short sequences.
      const blocks = 2 * Math.ceil(tokens / 64);
      assert.deepEqual(groups, headSize === 64 ? [blocks, 1, 1] : [1, 1, blocks]);
    }
});

test('a plan that asks for these kernels where they cannot be is an error that says why', () => {
  const { kernels, vk, pipelines } = untested({ bytes: 16 << 20 });
  const refused = (/** @type {object} */ more, /** @type {RegExp} */ message) =>
    assert.throws(() => chosen(kernels, vk, pipelines, { plan: { kernel: 'ptx' }, ...more }), message);
  refused({ softCap: 2 }, /attentionForward: the PTX kernels cannot take this call on NVIDIA H200.*: they do not cap scores/);
  refused({ outType: 'f32' }, /all tensors must be stored in one half type/);
  refused({ gradType: 'f32' }, /attentionBackward: .*all tensors must be stored in one half type/);
  refused({ headSize: 96 }, /no tiling is known to be faster there/);
  refused({ headSize: 96, plan: forward }, /heads of 96 have no kernel/);
  refused({ scale: 0 }, /a scale of 0/);
  refused({ window: 20, causal: false }, /only a causal pass has limits/);
  const [q, k, v] = [0, 1, 2].map(() => vk.createBuffer(1 << 18));
  refused({ qkv: undefined, q, k, v, keys: 130 }, /they need as many keys as queries/);
  refused({ plan: planOf('high') }, /plan.tiling must be one of fwd-128x64-b2, .*, got high/);
  refused({ plan: planOf({ ...narrow, stages: 1 }) }, /stages must be at least 2/);
});

test('a former name stands for the tiling', () => {
  assert.equal(attentionTiling('pair'), ATTENTION_TILINGS['fwd-128x64-b2']);
  assert.equal(attentionTiling('backwardWide'), ATTENTION_TILINGS['bwd-64x32-2wg-ds']);
  for (const [name, tiling] of Object.entries(ATTENTION_TILINGS)) assert.equal(attentionTiling(name), tiling);
  for (const name of ['toString', 'high', '']) assert.equal(attentionTiling(name), undefined);
  const { kernels, vk, pipelines } = untested({ bytes: 16 << 20 });
  assert.equal(chosen(kernels, vk, pipelines, { plan: planOf('long'), headSize: 64 }).at(-1), 'ptx_queries_bf16');
});

test('tilings that cannot be are refused, each with its reason', () => {
  const form = /** @type {const} */ ({ pass: 'backward', type: 'bf16', headSize: 64, causal: true });
  const faults = /** @type {[object, RegExp][]} */ ([
    [{ warpgroups: 0 }, /warpgroups/],
    [{ warpgroups: 9 }, /warpgroups/],
    [{ columns: 48 }, /columns/],
    [{ columns: 64, stages: 4 }, /65536 bytes of shared memory, 49152 are allowed/],
    [{ blocks: 17 }, /at most 2048 threads/],
    [{ order: 'any' }, /order/],
    [{ paired: true }, /two warpgroups of a backward pass/],
  ]);
  assert.equal(attentionFault(narrow, form), undefined);
  for (const [more, message] of faults) {
    const tiling = /** @type {AttentionTiling} */ ({ ...narrow, ...more });
    assert.match(attentionFault(tiling, form) ?? '', message);
    assert.throws(() => attention('kernel', tiling, form), message);
  }
  assert.match(attentionFault(narrow, { ...form, headSize: 128 }) ?? '', /only paired warpgroups/);
  const large = { ...ATTENTION_TILINGS['bwd-64x32-2wg-ds'], columns: /** @type {const} */ (64) };
  assert.match(attentionFault(large, { ...form, headSize: 128 }) ?? '', /81920 bytes of shared memory/);
});

/** A device on which attention takes a small tiling. @param {Parameters<typeof ptxDevice>[0]} [options] */
function smallDevice(options) {
  const device = ptxDevice({ bytes: 8 << 20, ...options });
  const context = new KernelContext(device.vk);
  context.tuning = { ...context.tuning, ptxAttention: () => /** @type {any} */ (narrow) };
  return { ...device, kernels: attentionKernels(context) };
}

test('a kernel is tested before its first use, once', async () => {
  const { kernels, vk, pipelines, ran } = smallDevice();
  const warnings = await warningsOf(() => {
    for (const tokens of [100, 120])
      assert.deepEqual(chosen(kernels, vk, pipelines, { tokens }), ['ptx_forward_bf16', 'delta_bf16', 'ptx_backward_bf16']);
  });
  assert.deepEqual(warnings, []);
  assert.deepEqual(
    ran.map(({ kernel }) => kernel.name),
    ['attention_ptx_forward_bf16', 'attention_ptx_backward_bf16'],
  );
});

test('kernels of shared keys, a window and documents pass the test before their first use', async () => {
  const { kernels, vk, pipelines } = smallDevice();
  const [firstKey, lastQuery] = [0, 1].map(() => vk.createBuffer(400));
  const warnings = await warningsOf(() => {
    const more = { heads: 4, kvHeads: 2, window: 40, firstKey, lastQuery };
    assert.deepEqual(chosen(kernels, vk, pipelines, more), ['ptx_forward_bf16', 'delta_bf16', 'ptx_backward_bf16']);
  });
  assert.deepEqual(warnings, []);
});

const FAULTS = /** @type {const} */ ([
  ['wrong sums', (/** @type {string} */ text) => text.replace('xor.b32', 'or.b32'), /its test found .* in O at row \d+, column \d+/],
  [
    'no mask',
    (/** @type {string} */ text) =>
      text.replaceAll('selp.f32', 'selp.f32 ').replace(/selp\.f32 {2}(%f\d+), (%f\d+), 0fFF800000/g, 'selp.f32 $1, $2, $2'),
    /its test found .* in O/,
  ],
  [
    'rows stored that are not there',
    (/** @type {string} */ text) =>
      text.replace(/setp\.lt\.u32 (%p\d+), (%r\d+), %r\d+;\n(?=(.*\n)*?.*st\.global)/g, 'setp.ge.u32 $1, $2, 0;\n'),
    /its test found memory written outside of its results|global access|has changed, which no binding/,
  ],
  [
    'text that does not assemble',
    () => {
      throw new Error('the driver does not take the module');
    },
    /the driver does not take the module/,
  ],
]);
for (const [fault, edit, message] of FAULTS) {
  test(`a kernel with ${fault} is not used, and a warning says so once`, async () => {
    const { kernels, vk, pipelines, ran } = smallDevice({ edit: /** @type {any} */ (edit) });
    const warnings = await warningsOf(() => {
      assert.deepEqual(chosen(kernels, vk, pipelines), ['coop_forward_bf16', 'delta_bf16', 'coop_backward_bf16']);
      assert.equal(ran.length, 1, 'no further kernel is tried');
      assert.throws(() => chosen(kernels, vk, pipelines, { plan: { kernel: 'ptx' } }), message);
    });
    assert.equal(warnings.length, 1);
    assert.equal(warnings[0].code, 'HELIOS_PTX');
    assert.match(warnings[0].message, /the SPIR-V kernels compute attention in place of attention_ptx_forward_bf16 on NVIDIA H200/);
    assert.match(warnings[0].message, message);
  });
}

test('a kernel that is first needed while a graph is recorded is not tested and not used', async () => {
  const { kernels, vk, pipelines, record } = smallDevice();
  // How matrices are laid out is asked outside of graphs.
  kernels.attentionKind('bf16');
  const warnings = await warningsOf(() => {
    record(true);
    assert.equal(chosen(kernels, vk, pipelines)[0], 'coop_forward_bf16');
    record(false);
    assert.equal(chosen(kernels, vk, pipelines)[0], 'coop_forward_bf16', 'the same call has the same kernel from then on');
    assert.equal(chosen(kernels, vk, pipelines, { causal: false })[0], 'ptx_forward_bf16');
  });
  assert.equal(warnings.length, 1);
  assert.match(warnings[0].message, /a graph is being recorded/);
});
