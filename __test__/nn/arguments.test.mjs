// Wrong and unusual arguments: either the error names the argument and nothing has changed, or the result is what the documentation says.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readdir, stat, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { Worker } from 'node:worker_threads';
import {
  F,
  accumulate,
  autocast,
  compile,
  customOp,
  full,
  grad,
  load,
  manualSeed,
  memory,
  nn,
  noGrad,
  ones,
  optim,
  randn,
  save,
  scope,
  tensor,
  zeros,
} from '../../nn/index.mjs';
import { flatten } from '../../nn/core/host.mjs';
import { temporaryFolder } from '../lib/folder.mjs';
import { assertClose } from '../lib/random-data.mjs';
import { collectGarbage, initDevice, values } from './setup.mjs';

before(initDevice);

test('an index or dimension that is not there is an error, not another one', async () => {
  const x = tensor([1, 2, 3]);
  for (const i of [3, -4, -5, -6, NaN]) assert.throws(() => x.at(i), /at: /, `${i}`);
  assert.deepEqual(await Promise.all([0, 2, -1, -3].map((i) => x.at(i).item())), [1, 3, 3, 1]);
  const y = zeros([2, 3, 4]);
  for (const [run, message] of /** @type {[() => any, RegExp][]} */ ([
    [() => y.flatten(2, 1), /flatten: the first dimension, 2, lies behind the last, 1, in \[2, 3, 4\]/],
    [() => y.flatten(0, 3), /flatten: dimension 3 is out of range for a tensor of 3 dimensions/],
    [() => y.flatten(-4), /flatten: dimension -4/],
    [() => y.sum([0, 0]), /sum: dim \[0, 0\] names a dimension of \[2, 3, 4\] twice/],
    [() => y.mean([1, -2]), /mean: dim \[1, -2\] names a dimension of \[2, 3, 4\] twice/],
    [() => F.variance(y, [0, 2, 2]), /variance: dim \[0, 2, 2\] names a dimension/],
    [() => tensor(1).at(0), /at: index 0 is out of range for \[\]/],
  ]))
    assert.throws(run, message);
  assert.deepEqual(
    [y.flatten().shape, y.flatten(1).shape, y.flatten(-3, -2).shape, tensor(1).flatten().shape],
    [[24], [2, 12], [6, 4], [1]],
  );
});

test('options and arguments that a call does not have are errors that name them', () => {
  const x = ones([2, 2], {}).requiresGrad_();
  const qkv = ones([1, 4, 96]);
  const model = new nn.Linear(2, 2);
  const any = (/** @type {any} */ value) => value;
  for (const [run, message] of /** @type {[() => any, RegExp][]} */ ([
    [
      () => F.attention(qkv, any({ heads: 1, isCausal: true })),
      /attention: unknown option isCausal; the options are heads, kvHeads, causal/,
    ],
    [() => F.attention(qkv, any({})), /attention: heads must be an integer of at least 1, got undefined/],
    [() => F.rope(qkv, ones([4, 16, 2]), any({ heads: 1, size: 32 })), /rope: unknown option size/],
    [() => F.rope(qkv, ones([4, 16, 2]), any(undefined)), /rope: options must be an object/],
    [() => F.squeeze(any(undefined)), /squeeze: expected a tensor, got undefined/],
    [() => F.reshape(x, any(4)), /reshape: the shape must be an array of sizes, got 4/],
    [() => F.permute(x, any('10')), /permute: the order must be an array of dimensions, got 10/],
    [() => F.expand(x, any(3)), /expand: the shape must be an array of sizes, got 3/],
    [() => x.slice(0, any('0')), /slice: start and end must be integers, got 0 and Infinity/],
    [() => x.at(any(null)), /at: index null is out of range for/],
    [() => F.dropout(x, any(null)), /dropout: p must be in \[0, 1\], got null/],
    [() => new nn.Dropout(any([])), /Dropout: p must be in \[0, 1\]/],
    [() => F.rmsNorm(x, ones([2]), any({ eps: 1 })), /rmsNorm: eps must be a number of at least 0, got \{ eps: 1 \}/],
    [() => new nn.LayerNorm(2, { eps: -1 }).forward(x), /layerNorm: eps must be a number of at least 0, got -1/],
    [() => F.glu(x, any('swish')), /glu: activation must be one of identity, relu, silu/],
    [() => F.conv2d(any([1]), ones([1, 1, 1, 1])), /conv2d: expected a tensor, got an array/],
    [() => F.conv2d(ones([1, 1, 2, 2]), ones([2, 1, 1, 1]), ones([3])), /conv2d: 2 outputs need a bias \[2\], got \[3\]/],
    [() => F.upsample(any(undefined), 2), /upsample: expected a tensor, got undefined/],
    [() => new nn.Conv2d(1, 1, any({ size: 3 })), /Conv2d: window must be an integer of at least 1/],
    [() => new nn.Conv2d(1, 1, 3, { stride: 0 }), /Conv2d: stride must be an integer of at least 1, .* got 0/],
    [() => new nn.MaxPool2d(any(undefined)), /MaxPool2d: window must be an integer/],
    [() => new nn.BatchNorm2d(1).forward(any(3)), /BatchNorm2d: expected a tensor, got 3/],
    [() => new nn.GRU(2, 2).forward(any(undefined)), /GRU: expected a tensor, got undefined/],
    [
      () => new nn.LSTM(2, 2).forward(ones([1, 2, 2]), any(ones([1, 2]))),
      /LSTM: the state must be two tensors, \[hidden, cell\], got Tensor\(\[1, 2\], f32\)/,
    ],
    [() => new optim.AdamW(any(undefined)), /AdamW: expected an array of parameters, or of groups/],
    [() => new optim.SGD(any([{ parameters: [] }])), /SGD: expected an array of parameters, .* got undefined/],
    [() => scope(any(3)), /scope: expected a function, got 3/],
    [() => model.loadStateDict(any(undefined)), /loadStateDict: expected tensors by name, got undefined/],
    [() => compile(() => x, any({ reuseOutput: true })), /compile: unknown option reuseOutput; the options are reuseOutputs/],
    [() => x.sum().backward(any({ retainGraph: true })), /backward: unknown option retainGraph; the options are gradient, retain/],
    [() => x.sum().backward(any(ones([]))), /backward: options must be an object, \{ gradient: …, retain: … \}, got Tensor\(\[\], f32\)/],
    [() => x.mul(2).backward({ gradient: any(3) }), /backward: expected a tensor, got 3/],
    [() => x.mul(2).backward({ gradient: ones([2, 2], { dtype: 'bf16' }) }), /backward: the gradient is bf16, but the tensor is f32/],
    [() => grad(x.sum(), any(x)), /grad: expected an array of tensors/],
    [() => grad(x.sum(), [any(3)]), /grad: expected a tensor, got 3/],
    [() => grad(any(3), [x]), /grad: expected a tensor, got 3/],
    [() => noGrad(any(3)), /noGrad: expected a function, got 3/],
    [() => accumulate(2, any(3)), /accumulate: expected a function/],
    [() => ones([1]).add_(1, any({ alhpa: 2 })), /add_: unknown option alhpa; the option is alpha/],
    [() => ones([1]).add_(ones([1]), any({ alpha: '2' })), /add_: alpha must be a number, got 2/],
    [() => x.pow(any('x')), /pow: the exponent must be a number or a tensor, got x/],
    [() => model.loadStateDict({}, any({ strickt: false })), /loadStateDict: unknown option strickt; the option is strict/],
    [() => new nn.Parameter(ones([1], { dtype: 'i32' })), /Parameter: takes f32, f16 or bf16, got i32/],
    [() => customOp(any({ name: 'twice', vjp: () => [] })), /customOp: unknown option vjp/],
    [() => nn.lora(new nn.Sequential(model), { alpha: NaN }), /lora: alpha must be a number, got NaN/],
    [() => nn.lora(new nn.Sequential(model), { targets: any('0') }), /lora: targets must be a regular expression, got 0/],
    [
      () => F.scaledDotProductAttention(ones([3, 2]), ones([2, 2]), ones([2, 1]), { isCausal: true }),
      /isCausal: 3 queries for 2 keys, of which the first would see none/,
    ],
  ]))
    assert.throws(run, message, String(run));
  assert.equal(x.grad, undefined);
});

test('a parameter that cannot be one leaves its tensor, and no memory, behind', async () => {
  await collectGarbage();
  const before = memory().buffers;
  const x = ones([1], { dtype: 'i32' });
  assert.throws(() => new nn.Parameter(x), /Parameter: takes/);
  x.dispose();
  assert.equal(memory().buffers, before);
});

test('lora: an expression with a flag matches each name; where none matches, nothing is frozen', () => {
  const make = () => new nn.Sequential(new nn.Linear(2, 2), new nn.Linear(2, 2), new nn.Linear(2, 2));
  for (const targets of [/[0-9]/, /[0-9]/g, /[0-9]/y]) {
    const kinds = Array.from(nn.lora(make(), { targets }), (layer) => layer.constructor.name);
    assert.deepEqual(kinds, ['LoRALinear', 'LoRALinear', 'LoRALinear'], `${targets}`);
  }
  const model = make();
  assert.throws(() => nn.lora(model, { targets: /head/ }), /no linear layer's name matches/);
  assert.ok(model.parameters().every(({ requiresGrad }) => requiresGrad));
  nn.lora(model, { targets: /1/ });
  assert.deepEqual(
    Array.from(model.namedParameters(), ([name, { requiresGrad }]) => `${name} ${requiresGrad}`),
    [
      '0.weight false',
      '0.bias false',
      '1.base.weight false',
      '1.base.bias false',
      '1.a true',
      '1.b true',
      '2.weight false',
      '2.bias false',
    ],
  );
});

test('a state with a tensor that was disposed of loads nothing', async () => {
  const model = new nn.Linear(2, 1);
  const opt = new optim.AdamW(model.parameters());
  model
    .forward(ones([1, 2]))
    .sum()
    .backward();
  opt.step();
  const states = { model: model.stateDict(), optimizer: opt.stateDict() };
  const now = async () => JSON.stringify(await Promise.all(Object.values(states).flatMap((state) => Object.values(state).map(values))));
  const before = await now();
  const gone = (/** @type {Record<string, any>} */ state) => {
    const copies = Object.fromEntries(Object.entries(state).map(([name, x]) => [name, full(x.shape, 7, { dtype: x.dtype })]));
    /** @type {any} */ (Object.values(copies).at(-1)).dispose();
    return copies;
  };
  assert.throws(() => model.loadStateDict(gone(states.model)), /loadStateDict: bias was disposed of/);
  assert.throws(() => opt.loadStateDict(gone(states.optimizer)), /loadStateDict: 0.1.second was disposed of/);
  assert.equal(await now(), before);
  opt.dispose();
});

test('an optimizer that loads a state clips and decays as that did, whatever it was made with; compiled too', async () => {
  for (const how of ['eager', 'compiled']) {
    const parameters = [0, 1].map(() => new nn.Parameter(ones([2])));
    const first = new optim.SGD([parameters[0]], { lr: 0.1, weightDecay: 0.5, clip: 0.1 });
    const second = new optim.SGD([parameters[1]], { lr: 0.3 });
    const step = (/** @type {any} */ opt, /** @type {any} */ p) => () => {
      p.mul(3).sum().backward();
      opt.step();
    };
    const steps = [step(first, parameters[0]), step(second, parameters[1])].map((f) => (how === 'eager' ? f : compile(f)));
    steps[1](); // traced without decay and norm
    noGrad(() => parameters[1].fill_(1));
    second.loadStateDict(first.stateDict());
    for (const f of steps) f();
    const [a, b] = await Promise.all(parameters.map(values));
    assertClose(a, Float64Array.of(1 - 0.1 * (0.1 / Math.SQRT2 + 0.5), 1 - 0.1 * (0.1 / Math.SQRT2 + 0.5)), 1e-5, how);
    assert.deepEqual(b, a);
    for (const opt of [first, second]) opt.dispose();
  }
});

test('save: calls at once to one path each write a whole file; a name that the format keeps for itself is refused', async (t) => {
  const folder = temporaryFolder(t);
  const path = join(folder, 'a.safetensors');
  await Promise.all([1, 2, 3, 4].map((value) => save(path, { x: full([value * 100_000], value) })));
  const { x } = await load(path);
  const [value] = await x.toArray();
  assert.equal(x.size, value * 100_000);
  assert.ok((await x.toArray()).every((v) => v === value));
  await assert.rejects(save(path, { __metadata__: ones([1]) }), /save: the format reserves __metadata__ for metadata/);
  await assert.rejects(
    save(path, { x }, /** @type {any} */ ({ meta: {} })),
    /save: unknown option meta; the options are metadata, checksum/,
  );
  await assert.rejects(
    save(path, { x }, { metadata: /** @type {any} */ ({ step: 7 }) }),
    /save: metadata must have strings, got 7 for step/,
  );
  await assert.rejects(save(folder, { x }), /save: .* could not be written: it is not a file/);
  assert.deepEqual(await readdir(folder), ['a.safetensors']);
  // A name that is no ordinary key of an object.
  const odd = Object.fromEntries([['__proto__', full([2], 3)]]);
  await save(path, odd);
  assert.deepEqual([...(await Object.entries(await load(path))[0][1].toArray())], [3, 3]);
  if (process.platform === 'win32') return;
  // A rename would put the file in the place of a pipe or a device.
  const pipe = join(folder, 'pipe');
  assert.equal(spawnSync('mkfifo', [pipe]).status, 0);
  await assert.rejects(save(pipe, { x }), /save: .*pipe could not be written: it is not a file/);
  await assert.rejects(load(pipe), /load: .*pipe is not a safetensors file: it is not a file/);
  assert.ok((await stat(pipe)).isFIFO());
});

test('save: threads that write to one path at once each write a whole file', async (t) => {
  const folder = temporaryFolder(t);
  const path = join(folder, 'a.safetensors');
  const source = `
    const { workerData: [nn, path, value] } = require('node:worker_threads');
    import(nn).then(async ({ full, save }) => {
      for (let i = 0; i < 40; i++) await save(path, { x: full([value * 50_000], value) });
    });`;
  const url = new URL('../../nn/index.mjs', import.meta.url).href;
  const workers = [1, 2, 3].map((value) => new Worker(source, { eval: true, workerData: [url, path, value] }));
  const codes = await Promise.all(workers.map(async (worker) => (await once(worker, 'exit'))[0]));
  assert.deepEqual(codes, [0, 0, 0]);
  const { x } = await load(path);
  const [value] = await x.toArray();
  assert.equal(x.size, value * 50_000);
  assert.ok((await x.toArray()).every((v) => v === value));
  assert.deepEqual(await readdir(folder), ['a.safetensors']);
});

test('load: what a file holds that is not loaded, by the names of the file and the tensor; also beyond 2 GiB', async (t) => {
  const folder = temporaryFolder(t);
  const path = join(folder, 'a.safetensors');
  const write = (/** @type {string} */ text) => {
    const bytes = Buffer.alloc(8 + text.length + 4);
    bytes.writeBigUInt64LE(BigInt(text.length));
    bytes.write(text, 8);
    return writeFile(path, bytes);
  };
  const entry = (/** @type {object} */ changes) => JSON.stringify({ a: { dtype: 'F32', shape: [1], data_offsets: [0, 4], ...changes } });
  for (const [text, message] of /** @type {[string, RegExp][]} */ ([
    ['{"a":null}', /its entry a is not an object/],
    ['{"a":{}}', /a has the unknown type undefined; the types are .*F32/],
    [entry({ dtype: 'F64' }), /a \[1\] lies at bytes 0 to 4/],
    [entry({ shape: [0] }), /a \[0\] lies at bytes 0 to 4/],
    [entry({ shape: [-1] }), /a has the shape \[-1\]; sizes must be integers of at least 0/],
    [entry({ shape: 'x' }), /a has the shape "x"/],
    [entry({ data_offsets: [0, 2 ** 62] }), /a \[1\] lies at bytes 0 to/],
    ['[]', /its header is not an object/],
    ['{', /its header is not JSON/],
  ])) {
    await write(text);
    await assert.rejects(load(path), (/** @type {Error} */ error) => {
      assert.ok(error.name === 'ArgumentError' && error.message.includes(path) && message.test(error.message), error.message);
      return true;
    });
  }
  await assert.rejects(load(folder), /is not a safetensors file: it is a folder/);
  await write(entry({}));
  await truncate(path, 3 * 2 ** 30);
  await assert.rejects(load(path), /is not a safetensors file: 32212\d+ bytes after the last tensor/);
});

test('maximum, minimum and clamp have gradients at infinities, halves where both are equal, and wholes at limits', async () => {
  const numbers = [
    [Infinity, Infinity, -Infinity, 2, 1, -Infinity],
    [Infinity, 1, -Infinity, 2, 2, 0],
  ];
  for (const [name, expected] of /** @type {const} */ ([
    ['maximum', [0.5, 1, 0.5, 0.5, 0, 0]],
    ['minimum', [0.5, 0, 0.5, 0.5, 1, 1]],
  ])) {
    for (const dtype of /** @type {const} */ (['f32', 'bf16'])) {
      const [a, b] = numbers.map((row) => tensor(row, { dtype, requiresGrad: true }));
      const [da, db] = grad(F[name](a, b).to('f32').mul(4).sum(), [a, b]);
      assert.equal(da.dtype, dtype);
      assert.deepEqual([await values(da), await values(db)], [expected.map((v) => 4 * v), expected.map((v) => 4 - 4 * v)], name);
    }
  }
  const x = tensor([-Infinity, Infinity, 0.25, 0, 1, NaN, -0], { requiresGrad: true });
  const of = async (/** @type {(x: any) => any} */ f) => values(grad(f(x).mul(3).sum(), [x])[0]);
  assert.deepEqual(await of((x) => x.clamp(0, 1)), [0, 0, 3, 3, 3, 0, 3]);
  assert.deepEqual(await of((x) => F.clamp(x, 0)), [0, 3, 3, 3, 3, 0, 3]);
  assert.deepEqual(await of((x) => x.clamp(-Infinity, Infinity)), [3, 3, 3, 3, 3, 0, 3]);
  assert.throws(() => F.clamp(/** @type {any} */ (3), 0), /clamp: expected a tensor/);
  // A limit gets what it holds back, and nothing where the element is at it.
  const [low, y] = [
    [0, 1, 2],
    [0, 2, 1],
  ].map((row) => tensor(row, { requiresGrad: true }));
  assert.deepEqual(await Promise.all(grad(y.clamp(low).sum(), [low, y]).map(values)), [
    [0, 0, 1],
    [1, 1, 0],
  ]);
});

test('powers of 0 are 1; their gradient is 0', async () => {
  const x = tensor([-2, 0, 3], { requiresGrad: true });
  const y = x.pow(0);
  assert.deepEqual(
    [await values(y), await values(grad(y.sum(), [x])[0])],
    [
      [1, 1, 1],
      [0, 0, 0],
    ],
  );
});

test('statistics of 16-bit tensors are taken in f32: variance, BatchNorm2d and GroupNorm, in autocast and not', async () => {
  // Multiples of 4 around 520: exact in bf16, whose neighbours of the mean are 4 apart.
  const data = Float32Array.from({ length: 128 }, (_, i) => 512 + 4 * ((i * 7) % 5));
  const [x, half] = /** @type {const} */ (['f32', 'bf16']).map((dtype) => tensor(data, { dtype, shape: [2, 4, 4, 4] }));
  assertClose(await values(F.variance(half)), Float64Array.of(await F.variance(x).item()), 2 ** -8, 'variance');
  for (const make of [() => new nn.BatchNorm2d(4), () => new nn.GroupNorm(2, 4)]) {
    const layers = [make(), make(), make()];
    const y = [layers[0].forward(x), layers[1].forward(half), autocast('bf16', () => layers[2].forward(half))];
    for (const [i, own] of y.entries()) {
      // Of batch norm the result is rounded to x's type at the end, as PyTorch's.
      const rounded = i > 0 && layers[0] instanceof nn.BatchNorm2d;
      assert.equal(own.dtype, rounded ? 'bf16' : 'f32');
      assertClose(await values(own), await values(y[0]), rounded ? 2 ** -8 : 0, `${layers[0].constructor.name} ${i}`);
      for (const [name, state] of Object.entries(layers[i].stateDict())) {
        assert.deepEqual(await values(state), await values(layers[0].stateDict()[name]), name);
      }
    }
  }
});

test('a seed within a compiled function would be set once, and is an error', () => {
  const f = compile(() => {
    manualSeed(1);
    return randn([2]);
  });
  assert.throws(f, /manualSeed: the calls of a compiled function would not repeat it/);
});

test('a tensor of no dimensions keeps its shape beside numbers, and can be written over', async () => {
  const x = tensor(2);
  /** @type {[(x: any) => any, number][]} */
  const calls = [
    [(v) => v.clamp(0, 1), 1],
    [(v) => v.maximum(3), 3],
    [(v) => v.gt(1), 1],
    [(v) => F.where(v.gt(1), 5, 0), 5],
    [(v) => v.maskedFill(v.lt(1), 7), 2],
  ];
  for (const [f, expected] of calls) {
    for (const y of [f(x), compile(f)(x)]) assert.deepEqual([y.shape, await y.item()], [[], expected], String(f));
  }
  const y = zeros([]).fill_(3).add_(1).mul_(2);
  assert.deepEqual([y.shape, await y.item()], [[], 8]);
  assert.equal(await y.copy_(tensor([1, 2]).sum()).item(), 3);
});

test('tensor takes arrays of typed rows, of the type of these if it is one', async () => {
  const of = async (/** @type {any} */ data, options = {}) => {
    const t = tensor(data, options);
    return [t.dtype, t.shape, [...(await t.toArray())]];
  };
  assert.deepEqual(await of([Float32Array.of(1, 2.5), Float32Array.of(3, 4)]), ['f32', [2, 2], [1, 2.5, 3, 4]]);
  assert.deepEqual(await of([[Int32Array.of(1, 2)], [Int32Array.of(3, -4)]]), ['i32', [2, 1, 2], [1, 2, 3, -4]]);
  assert.deepEqual(await of([BigInt64Array.of(2n ** 40n)]), ['i64', [1, 1], [2n ** 40n]]);
  assert.deepEqual(await of([Uint8Array.of(1, 255)], { dtype: 'u8' }), ['u8', [1, 2], [1, 255]]);
  assert.deepEqual(await of([Int32Array.of(1, 2), [3, 4.5]]), ['f32', [2, 2], [1, 2, 3, 4.5]], 'of two types');
  assert.deepEqual(await of([Int32Array.of(1), Float64Array.of(2.5)]), ['f32', [2, 1], [1, 2.5]], 'of two types');
  assert.deepEqual(await of([new Int32Array(0), new Int32Array(0)]), ['i32', [2, 0], []]);
  assert.deepEqual(await of([Buffer.from([1, 255]), Uint8Array.of(3, 4)], { dtype: 'u8' }), ['u8', [2, 2], [1, 255, 3, 4]]);
  assert.deepEqual(await of([Uint32Array.of(2 ** 32 - 1)]), ['u32', [1, 1], [2 ** 32 - 1]]);
  assert.deepEqual(await of([Int32Array.of(7), BigInt64Array.of(2n ** 60n)]), ['i64', [2, 1], [7n, 2n ** 60n]]);
  for (const row of [Float32Array.of(1), Int32Array.of(1), BigInt64Array.of(1n)])
    assert.equal(flatten('tensor', [row, row]).values.constructor, row.constructor, 'no list of numbers, which is slow');
  const any = (/** @type {any} */ v) => v;
  assert.throws(() => tensor([Float32Array.of(1, 2), Float32Array.of(3)]), /nested arrays have unequal lengths: 1 and 2 in dimension 1/);
  assert.throws(() => tensor([Float32Array.of(1), 2]), /nested arrays have unequal depths: 2 in dimension 1/);
  assert.throws(() => tensor([1, Float32Array.of(1)]), /nested arrays have unequal lengths: 1 and a number in dimension 1/);
  assert.throws(() => tensor(any([new BigUint64Array(1)])), /tensor: a BigUint64Array: 64-bit integers are signed here/);
});
