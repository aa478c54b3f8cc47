// What kernels check of what they are given: every tensor must lie within its buffer, and no result over what is read.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createKernels, pack } from '../../kernels/index.mjs';
import { vk } from '../lib/addon.mjs';
import { CALLS } from '../lib/kernel-calls.mjs';

/** @typedef {import('../../kernels/bounds.mjs').Extent} Extent */

vk.initDevice();
const kernels = createKernels(vk);

/** @typedef {import('../lib/kernel-calls.mjs').Call} Call */

const bytesOf = (/** @type {number} */ count, /** @type {string} */ type = 'f32') =>
  count * (type === 'f16' || type === 'bf16' ? 2 : type === 'i8' ? 1 : 4);

/** Names under which a kernel speaks of a tensor that holds others. @type {Record<string, RegExp>} */
const PARTS = { gateUp: /gate|up/, dGateUp: /dGate|dUp/, qkv: /[qkv]/ };

/** @type {number[]} */
const made = [];
const buffer = (/** @type {number} */ bytes) => {
  const handle = vk.createBuffer(bytes, 0);
  made.push(handle);
  return handle;
};
after(() => made.forEach((handle) => vk.destroyBuffer(handle)));

/** @param {Call} call @param {Record<string, unknown>} tensors @param {any} [from] */
const record = ({ kernel, sizes }, tensors, from = kernels) => from[kernel]({ ...sizes, ...tensors });

const exact = (/** @type {Call} */ { tensors }) =>
  Object.fromEntries(Object.entries(tensors).map(([name, [count, type]]) => [name, buffer(bytesOf(count, type))]));

test('every kernel has a call here', () => {
  const others = [
    'attendCacheWorkspace',
    'attentionKind',
    'attentionSupports',
    'context',
    'convolutionSupports',
    'decodeLayerSupports',
    'matmulPlan',
    'matmulOrder',
    'matmulSupports',
    'matmulWorkspace',
    'recurrentSupports',
  ];
  others.push('normBlocks', 'normWorkspace', 'optimizerState', 'ropeTable');
  // Of devices that take PTX: see __test__/ptx.
  others.push('matmulGroup', 'matmulGroupPlan', 'matmulGroupSaving', 'takesActivation', 'takesPermuted', 'takesSecond', 'takesShuffled');
  const missing = Object.keys(kernels).filter((name) => !others.includes(name) && !CALLS.some(({ kernel }) => kernel === name));
  assert.deepEqual(missing, []);
});

for (const call of CALLS) {
  const { kernel, sizes } = call;
  // Into how many parts the keys are cut depends on the device.
  if (kernel === 'attendCache') call.tensors.partials = [kernels.attendCacheWorkspace(/** @type {any} */ (sizes))];
  const { tensors } = call;
  if (kernel === 'decodeLayer' && !kernels.decodeLayerSupports(/** @type {any} */ (sizes))) continue;
  test(`${kernel} with ${Object.keys(tensors)}: buffers of the size it takes, and one element less`, () => {
    const good = exact(call);
    const { packed, count } = pack(record(call, good));
    vk.batchExecuteAll(packed, count);
    vk.waitIdle();
    for (const [name, [elements, type]] of Object.entries(tensors)) {
      const expected = (/** @type {any} */ error) =>
        error instanceof RangeError &&
        error.message.startsWith(`${kernel}: `) &&
        (PARTS[name]?.test(error.message) ?? error.message.includes(`${kernel}: ${name} needs `));
      const small = buffer(bytesOf(elements - 1, type) || 1);
      assert.throws(() => record(call, { ...good, [name]: small }), expected, `${name} of ${elements - 1} elements`);
      // An offset, or a range that is bound, takes away as much.
      const large = buffer(bytesOf(elements, type) + 256);
      if (kernel !== 'optimizerAdvance' && name !== 'state') {
        const offset = 256 / bytesOf(1, type) + 8;
        assert.throws(() => record(call, { ...good, [name]: { buffer: large, offset } }), expected, `${name} at an offset`);
      }
      const range = { buffer: large, offset: 256 };
      record(call, { ...good, [name]: { buffer: range } });
      const less = { ...range, size: bytesOf(elements, type) - 1 };
      assert.throws(() => record(call, { ...good, [name]: { buffer: less } }), expected, `${name} in a range that is too small`);
      const loose = createKernels(vk, { check: false });
      record(call, { ...good, [name]: small }, loose);
    }
  });
}

test('a buffer that is none is named', () => {
  const gone = vk.createBuffer(64);
  vk.destroyBuffer(gone);
  const x = buffer(64);
  assert.throws(() => kernels.unary({ x, y: gone, count: 4 }), {
    name: 'RangeError',
    code: 'ERR_HELIOS_INVALID_HANDLE',
    argument: 'y',
    message: `unary: y: no buffer has the handle ${gone} (never created, or destroyed)`,
  });
});

test('sizes are those of the buffer, whatever had its place in the table before', () => {
  const many = Array.from({ length: 3000 }, (_, i) => vk.createBuffer(4 * (i + 1)));
  for (let round = 0; round < 2; round++) {
    many.forEach((y, i) => {
      kernels.fill({ y, count: i + 1, value: 0 });
      assert.throws(() => kernels.fill({ y, count: i + 2, value: 0 }), new RegExp(`its buffer has ${4 * (i + 1)} bytes`));
    });
  }
  many.forEach((handle) => vk.destroyBuffer(handle));
  for (let i = 0; i < 100; i++) {
    const y = vk.createBuffer(4 * (i + 1));
    assert.throws(() => kernels.fill({ y, count: i + 2, value: 0 }), new RegExp(`has ${4 * (i + 1)} bytes`));
    vk.destroyBuffer(y);
  }
});

/** Calls that lie over themselves, in memory of 64 KiB: arguments with offsets. */
const memory = buffer(65536);
const at = (/** @type {number} */ offset) => ({ buffer: memory, offset });
const square = { m: 8, n: 8, k: 8 };
const fused = { batch: 1, tokens: 4, heads: 1, headSize: 32 };

/** @type {[what: string, make: () => unknown, refused: RegExp | undefined][]} */
const OVERLAPS = [
  ['a result in place', () => kernels.unary({ x: at(4), y: at(4), count: 8 }), undefined],
  ['a result beside', () => kernels.unary({ x: at(0), y: at(8), count: 8 }), undefined],
  ['a result one further', () => kernels.unary({ x: at(0), y: at(1), count: 8 }), /unary: y is written and must not overlap x/],
  ['a result one before', () => kernels.unary({ x: at(1), y: at(0), count: 8 }), /y is written and must not overlap x/],
  [
    'a result in place of another type',
    () => kernels.cast({ x: memory, y: memory, count: 8, from: 'f32', to: 'bf16' }),
    /cast: y is written and must not overlap x: y, bytes 0 to 16, and x, bytes 0 to 32/,
  ],
  ['a sum over its row', () => kernels.binary({ a: at(0), b: at(0), y: at(0), count: 16, period: 4 }), /binary: y .* overlap b/],
  ['a sum in place', () => kernels.binary({ a: at(0), b: at(64), y: at(0), count: 16, period: 4 }), undefined],
  ['a transpose in place', () => kernels.transpose({ x: memory, y: memory, rows: 4, columns: 4 }), /transpose: y .* overlap x/],
  ['a product over its operand', () => kernels.matmul({ ...square, a: at(0), b: at(64), c: at(64) }), /matmul: c .* overlap b/],
  ['a product over its residual', () => kernels.matmul({ ...square, a: at(0), b: at(64), c: at(128), residual: at(128) }), undefined],
  [
    'a product over half of its residual',
    () => kernels.matmul({ ...square, a: at(0), b: at(64), c: at(128), residual: at(160) }),
    /matmul: c .* overlap residual/,
  ],
  [
    'a product into columns beside its operand',
    () => kernels.matmul({ ...square, a: at(0), lda: 16, b: at(1024), c: at(8), ldc: 16 }),
    undefined,
  ],
  [
    'a product into columns that it reads',
    () => kernels.matmul({ ...square, a: at(0), lda: 16, b: at(1024), c: at(4), ldc: 16 }),
    /matmul: c .* overlap a/,
  ],
  ['gradients in place', () => kernels.gluBackward({ gateUp: at(0), dy: at(512), dGateUp: at(0), rows: 4, columns: 8 }), undefined],
  [
    'gradients swapped',
    () => kernels.gluBackward({ gate: at(0), up: at(32), dy: at(512), dGate: at(128), dUp: at(136), rows: 4, columns: 8 }),
    /gluBackward: dUp .* overlap dGate/,
  ],
  [
    'gradients of fused attention apart',
    () => kernels.attentionBackward({ ...fused, qkv: at(0), out: at(1024), logSumExp: at(2048), dOut: at(3072), dQkv: at(4096) }),
    undefined,
  ],
  [
    'gradients of fused attention in place',
    () => kernels.attentionBackward({ ...fused, qkv: at(0), out: at(1024), logSumExp: at(2048), dOut: at(3072), dQkv: at(0) }),
    /attentionBackward: dQ .* overlap q/,
  ],
  [
    'attention over its keys',
    () => kernels.attentionForward({ ...fused, qkv: at(0), out: at(32), rowOut: 96, logSumExp: at(2048) }),
    /attentionForward: out .* overlap k/,
  ],
  [
    'a gradient over the residual',
    () =>
      kernels.rmsNormBackward({
        dy: at(0),
        x: at(64),
        weight: at(128),
        stats: at(192),
        dx: at(256),
        residual: at(256),
        dWeight: at(320),
        rows: 4,
        columns: 8,
      }),
    undefined,
  ],
  [
    'parameters over moments',
    () => kernels.adamw({ parameters: at(64), first: at(128), second: at(160), gradient: at(256), state: memory, count: 64 }),
    /adamw: second .* overlap first/,
  ],
];

for (const [what, make, refused] of OVERLAPS) {
  test(`${what} ${refused ? 'is refused' : 'is taken'}`, () => {
    if (refused) assert.throws(make, (/** @type {any} */ error) => error instanceof RangeError && refused.test(error.message));
    else make();
  });
}
