// `save` and `load`: files that other programs write, invalid files, and selections of tensors.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { cat, compile, full, load, nn, ones, save, tensor } from '../../nn/index.mjs';
import { memory, runtime } from '../../nn/core/runtime.mjs';
import { SafetensorsFile, writeSafetensors } from '../../nn/io/file.mjs';
import { CHECKSUM, encodeHeader, headerLength, parseHeader } from '../../nn/io/safetensors.mjs';
import { temporaryFolder } from '../lib/folder.mjs';
import { assertClose } from '../lib/random-data.mjs';
import { collectGarbage, initDevice, values } from './setup.mjs';

before(initDevice);

/** A file by hand. @param {string | Buffer} header @param {Uint8Array} [data] */
function fileOf(header, data = new Uint8Array(0)) {
  const text = Buffer.from(header);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  return Buffer.concat([length, text, data]);
}

/**
 * A file of tensors by their type, shape and bytes.
 * @param {Record<string, [dtype: string, shape: number[], data: ArrayBufferView]>} tensors @param {Record<string, string>} [metadata]
 */
function tensorsFile(tensors, metadata) {
  /** @type {Record<string, any>} */
  const header = metadata ? { __metadata__: metadata } : {};
  let end = 0;
  for (const [name, [dtype, shape, data]] of Object.entries(tensors)) {
    header[name] = { dtype, shape, data_offsets: [end, (end += data.byteLength)] };
  }
  const pieces = Object.values(tensors).map(([, , { buffer, byteOffset, byteLength }]) => new Uint8Array(buffer, byteOffset, byteLength));
  return fileOf(JSON.stringify(header), Buffer.concat(pieces));
}

const float = (/** @type {number[]} */ ...numbers) => Float32Array.from(numbers);
const any = (/** @type {unknown} */ value) => /** @type {any} */ (value);
/** An error of `load` or `loadStateDict` with a message. @param {RegExp} message */
const argument = (message) => ({ name: 'ArgumentError', message });

test('load: a PyTorch model with batch norm, whose I64 counter the module takes and can do without', async (t) => {
  const path = join(temporaryFolder(t), 'model.safetensors');
  const weights = {
    '0.weight': ['F32', [2, 1, 1, 1], float(2, -1)],
    '0.bias': ['F32', [2], float(0.5, 0)],
    '1.weight': ['F32', [2], float(3, 1)],
    '1.bias': ['F32', [2], float(0, 10)],
    '1.running_mean': ['F32', [2], float(1, 2)],
    '1.running_var': ['F32', [2], float(4, 0.25)],
  };
  const counter = { '1.num_batches_tracked': ['I64', [], BigInt64Array.of(1234n)] };
  const model = new nn.Sequential(new nn.Conv2d(1, 2, 1), new nn.BatchNorm2d(2, { eps: 0 })).eval();
  for (const tensors of [{ ...weights, ...counter }, weights]) {
    writeFileSync(path, tensorsFile(any(tensors), { format: 'pt' }));
    const state = await load(path);
    if ('1.num_batches_tracked' in tensors) {
      const read = state['1.num_batches_tracked'];
      assert.deepEqual([read.dtype, read.shape, await read.item()], ['i64', [], 1234]);
    }
    for (const parameter of model.parameters()) parameter.detach().zero_();
    assert.deepEqual(model.loadStateDict(state), { missingKeys: [], unexpectedKeys: [] });
    // 3 ((2x + 0.5) - 1) / 2 and (-x - 2) / 0.5 + 10, of x = 1 and 3.
    const y = model.forward(tensor([[[[1, 3]]]]));
    assertClose(await y.toArray(), Float64Array.of(2.25, 8.25, 4, 0), 1e-5, Object.keys(tensors).join());
  }
  // Of other modules the name is unknown.
  const others = new nn.Sequential(new nn.ReLU(), new nn.ReLU());
  assert.throws(() => others.loadStateDict({ '1.num_batches_tracked': full([], 1) }), /unknown: 1\.num_batches_tracked/);
});

test('load: numbers of every type of the format, exactly', async (t) => {
  const path = join(temporaryFolder(t), 'types.safetensors');
  const [least32, most32] = [-(2 ** 31), 2 ** 31 - 1];
  /** @type {[type: string, data: ArrayBufferView, dtype: string, expected: (number | bigint)[]][]} */
  const cases = [
    ['F32', float(1.5, -0, NaN), 'f32', [1.5, -0, NaN]],
    ['F16', Uint16Array.of(0x3c00, 0x8001, 0x7c00), 'f16', [1, -(2 ** -24), Infinity]],
    ['BF16', Uint16Array.of(0x3f80, 0xc000, 0xff80), 'bf16', [1, -2, -Infinity]],
    ['F64', Float64Array.of(0.5, -0, NaN, -Infinity, 2 ** -149), 'f32', [0.5, -0, NaN, -Infinity, 2 ** -149]],
    ['I64', BigInt64Array.of(-1n, -(2n ** 63n), 2n ** 63n - 1n), 'i64', [-1n, -(2n ** 63n), 2n ** 63n - 1n]],
    ['U64', BigUint64Array.of(0n, 2n ** 32n - 1n), 'u32', [0, 2 ** 32 - 1]],
    ['I32', Int32Array.of(least32, most32), 'i32', [least32, most32]],
    ['U32', Uint32Array.of(2 ** 32 - 1), 'u32', [2 ** 32 - 1]],
    ['I16', Int16Array.of(-32768, 32767, 1), 'i32', [-32768, 32767, 1]],
    ['U16', Uint16Array.of(65535, 1, 0), 'u32', [65535, 1, 0]],
    ['I8', Int8Array.of(-128, 127, 0, 1, 2), 'i8', [-128, 127, 0, 1, 2]],
    ['U8', Uint8Array.of(255, 0, 7), 'u8', [255, 0, 7]],
    ['BOOL', Uint8Array.of(1, 0, 1), 'bool', [1, 0, 1]],
    // The largest, the least normal, the least, NaN: the tables of the papers.
    ['F8_E4M3', Uint8Array.of(0x38, 0xfe, 0x08, 0x01, 0x80, 0x7f), 'f16', [1, -448, 2 ** -6, 2 ** -9, -0, NaN]],
    ['F8_E5M2', Uint8Array.of(0x3c, 0xfb, 0x04, 0x01, 0x80, 0x7c, 0xfe), 'f16', [1, -57344, 2 ** -14, 2 ** -16, -0, Infinity, NaN]],
    ['F8_E4M3FNUZ', Uint8Array.of(0x40, 0xff, 0x08, 0x01, 0, 0x80), 'f16', [1, -240, 2 ** -7, 2 ** -10, 0, NaN]],
    ['F8_E5M2FNUZ', Uint8Array.of(0x40, 0xff, 0x04, 0x01, 0, 0x80), 'f16', [1, -57344, 2 ** -15, 2 ** -17, 0, NaN]],
    ['F8_E8M0', Uint8Array.of(0, 127, 254, 255), 'f32', [2 ** -127, 1, 2 ** 127, NaN]],
  ];
  writeFileSync(path, tensorsFile(Object.fromEntries(cases.map(([type, data, , { length }]) => [type, [type, [length], data]]))));
  const state = await load(path);
  assert.deepEqual(
    Object.keys(state),
    cases.map(([type]) => type),
  );
  for (const [type, , dtype, expected] of cases) assert.deepEqual([state[type].dtype, await values(state[type])], [dtype, expected], type);
  // NaNs keep their payloads.
  const half = Uint16Array.of(0x7e01, 0xfc55, 0x7c01);
  writeFileSync(path, tensorsFile({ half: ['F16', [3], half], word: ['F32', [1], Uint32Array.of(0x7fc12345)] }));
  await save(path, await load(path), { checksum: false });
  const bytes = readFileSync(path);
  assert.deepEqual([...bytes.subarray(-10, -4)], [...new Uint8Array(half.buffer)]);
  assert.equal(bytes.readUInt32LE(bytes.length - 4), 0x7fc12345);
});

test('load: a tensor that cannot be had is refused when it is asked for, and the others are there', async (t) => {
  const path = join(temporaryFolder(t), 'wide.safetensors');
  /** @type {{ [name: string]: [string, number[], ArrayBufferView, RegExp] }} */
  const refused = {
    unsigned: ['U64', [1], BigUint64Array.of(2n ** 63n), /element 0 is 9223372036854775808/],
    fine: ['F64', [2], Float64Array.of(1, 0.1), /element 1 is 0\.1, which f32 does not have: \{ round: true \} takes the nearest/],
    vast: ['F64', [1], Float64Array.of(1e300), /element 0 is 1e\+300, which f32 does not have \(/],
    complex: ['C64', [1], float(1, 2), /complex has the type C64, which is not read: there are no complex tensors/],
    four: ['F4', [4], Uint8Array.of(1, 2), /four has the type F4, which is not read: the format does not say/],
    six: ['F6_E2M3', [4], Uint8Array.of(1, 2, 3), /six has the type F6_E2M3/],
    other: ['F8_E9M9', [7], Uint8Array.of(1, 2, 3), /other has the unknown type "F8_E9M9"; the types are F32, .*F8_E8M0/],
    keyed: ['constructor', [1], Uint8Array.of(1), /keyed has the unknown type "constructor"; the types are/],
  };
  const file = tensorsFile({ .../** @type {any} */ (refused), weight: ['F32', [1, 2], float(1, 2)], bias: ['F32', [1], float(3)] });
  writeFileSync(path, file);
  const state = await load(path);
  assert.deepEqual(Object.keys(state), [...Object.keys(refused), 'weight', 'bias']);
  for (const [name, [, , , message]] of Object.entries(refused)) {
    assert.throws(
      () => state[name],
      (/** @type {Error} */ error) => {
        assert.ok(error.name === 'ArgumentError' && error.message.startsWith(`load: ${path}: ${name} `), error.message);
        assert.match(error.message, message);
        return true;
      },
    );
  }
  // A module that needs none of them is filled; one that needs one is left as it was.
  const model = new nn.Linear(2, 1);
  assert.throws(() => model.loadStateDict(state), /unknown: unsigned, fine, /);
  const { missingKeys, unexpectedKeys } = model.loadStateDict(state, { strict: false });
  assert.deepEqual([missingKeys, unexpectedKeys], [[], Object.keys(refused)]);
  assert.deepEqual(await values(model.weight), [1, 2]);
  const wanting = new (class extends nn.Module {
    weight = full([1, 2], 7);
    unsigned = full([1], 0);
  })();
  assert.throws(() => wanting.loadStateDict(state, { strict: false }), argument(/unsigned has the type U64/));
  assert.deepEqual(await values(wanting.weight), [7, 7]);
  // What is beyond f32 is not infinity in any case.
  const rounded = await load(path, { round: true });
  assert.deepEqual(await values(rounded.fine), [1, Math.fround(0.1)]);
  assert.throws(() => rounded.vast, /element 0 is 1e\+300/);
});

test('load: a tensor that the device cannot hold does not keep the others from being read', async (t) => {
  const path = join(temporaryFolder(t), 'large.safetensors');
  // The file is sparse, and none of these bytes is read: as u32 they would be twice as many.
  const { bindingBytes, bufferBytes } = runtime().kernels.context;
  const count = Math.floor(Math.min(bindingBytes, bufferBytes) / 4) + 1;
  writeFileSync(path, fileOf(JSON.stringify({ a: { dtype: 'U16', shape: [count], data_offsets: [0, 2 * count] } })));
  truncateSync(path, readFileSync(path).length + 2 * count);
  const state = await load(path);
  assert.throws(() => state.a, argument(/a would take \d+ bytes; this device allows at most \d+ bytes/));
});

test('load: empty tensors are read, saved and copied into modules; operations take them', async (t) => {
  const path = join(temporaryFolder(t), 'empty.safetensors');
  writeFileSync(
    path,
    tensorsFile({
      a: ['F32', [0], float()],
      b: ['F32', [2], float(1, 2)],
      c: ['BOOL', [3, 0, 2], new Uint8Array(0)],
      d: ['I64', [0, 4], new Uint8Array(0)],
      e: ['F8_E4M3', [0], new Uint8Array(0)],
    }),
  );
  const expected = { a: ['f32', [0]], c: ['bool', [3, 0, 2]], d: ['i64', [0, 4]], e: ['f16', [0]] };
  for (const again of [false, true]) {
    if (again) await save(path, await load(path));
    const state = await load(path);
    assert.deepEqual(await values(state.b), [1, 2]);
    for (const [name, [dtype, shape]] of Object.entries(expected)) {
      const x = state[name];
      assert.deepEqual([x.dtype, x.shape, x.size, (await x.toArray()).length], [dtype, shape, 0, 0], name);
    }
    assert.deepEqual(await state.c.toNested(), [[], [], []]);
    for (const f of /** @type {((x: any) => unknown)[]} */ ([
      (x) => x.add(1),
      (x) => x.sum(),
      (x) => x.mul(x),
      (x) => x.clone(),
      (x) => x.to('f16'),
      (x) => cat([x, x]),
      (x) => x.softmax(),
    ])) {
      for (const run of [f, compile(f)]) {
        const y = /** @type {any} */ (run(state.a));
        assert.deepEqual(await values(y), y.size ? [0] : [], String(f));
      }
    }
    await assert.rejects(state.a.item(), /\[0\] has 0 elements/);
    const module = new (class extends nn.Module {
      a = state.a.detach();
      b = full([2], 0);
    })();
    assert.deepEqual(module.loadStateDict({ a: state.a, b: state.b }), { missingKeys: [], unexpectedKeys: [] });
    assert.deepEqual(await values(module.b), [1, 2]);
  }
});

test('load: only, skip, metadata', async (t) => {
  const path = join(temporaryFolder(t), 'some.safetensors');
  const names = ['head.weight', 'head.bias', 'body.0.weight', 'body.1.weight'];
  const state = Object.fromEntries(names.map((name, i) => [name, full([i + 1], i)]));
  await save(path, state, { metadata: { step: '3', format: 'pt', ['__proto__']: 'odd' } });
  await collectGarbage();
  for (const [options, expected] of /** @type {[any, number[]][]} */ ([
    [{}, [0, 1, 2, 3]],
    [{ only: ['body.1.weight', 'head.bias'] }, [1, 3]],
    [{ only: /^body/g }, [2, 3]],
    [{ only: (/** @type {string} */ name) => name.endsWith('bias') }, [1]],
    [{ skip: ['head.weight', 'not there'] }, [1, 2, 3]],
    [{ skip: /weight/ }, [1]],
    [{ only: /^head/, skip: /bias/ }, [0]],
    [{ only: [] }, []],
  ])) {
    const before = memory().buffers;
    const read = await load(path, options);
    assert.deepEqual(
      Object.keys(read),
      expected.map((i) => names[i]),
    );
    assert.equal(memory().buffers - before, expected.length);
    for (const i of expected) assert.deepEqual(await values(read[names[i]]), new Array(i + 1).fill(i));
    for (const x of Object.values(read)) x.dispose();
  }
  const { tensors, metadata } = await load(path, { metadata: true, only: ['head.bias'] });
  assert.deepEqual(await values(tensors['head.bias']), [1, 1]);
  assert.deepEqual(Object.entries(metadata), [
    ['step', '3'],
    ['format', 'pt'],
    ['__proto__', 'odd'],
  ]);
  // What was loaded can be saved with it; a path may be an address.
  await save(pathToFileURL(path), tensors, { metadata });
  assert.deepEqual(Object.keys(await load(pathToFileURL(path))), ['head.bias']);
  await assert.rejects(load(any(7)), /^ArgumentError: load: expected a path, got 7/);
  for (const [options, message] of /** @type {[any, RegExp][]} */ ([
    [{ only: ['head.bias', 'tail', 'foot'] }, /load: .*some\.safetensors has no tensor tail, foot/],
    [{ only: 'head.bias' }, /load: only must be an array of names, a regular expression or a function, got head\.bias/],
    [{ skip: [1] }, /load: skip must be an array of names/],
    [{ onyl: [] }, /load: unknown option onyl; the options are only, skip, metadata, round, checksum/],
  ])) {
    await assert.rejects(load(path, options), argument(message));
  }
});

test('load: a model in several files, by its index or its folder', async (t) => {
  const folder = temporaryFolder(t);
  const index = join(folder, 'model.safetensors.index.json');
  const [first, second] = ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors'];
  const write = (/** @type {any} */ map, /** @type {any} */ more = { metadata: { total_size: 20 } }) =>
    writeFileSync(index, typeof map === 'string' ? map : JSON.stringify({ ...more, weight_map: map }));
  const weightMap = { a: first, b: second, c: first };
  write(weightMap);
  writeFileSync(join(folder, first), tensorsFile({ c: ['F32', [1], float(3)], a: ['F32', [2], float(1, 2)] }, { format: 'pt', part: '1' }));
  // What the index does not name belongs to another model.
  writeFileSync(
    join(folder, second),
    tensorsFile({ b: ['I64', [1], BigInt64Array.of(9n)], stray: ['F32', [1], float(0)] }, { part: '2', more: 'x' }),
  );
  for (const path of [index, folder]) {
    const { tensors, metadata } = await load(path, { metadata: true });
    assert.deepEqual(Object.keys(tensors), ['c', 'a', 'b']);
    assert.deepEqual([await values(tensors.a), await values(tensors.b), await values(tensors.c)], [[1, 2], [9n], [3]]);
    assert.deepEqual(metadata, { format: 'pt', part: '1', more: 'x' });
    assert.deepEqual(Object.keys(await load(path, { only: ['b'] })), ['b']);
    await assert.rejects(load(path, { only: ['stray'] }), /has no tensor stray/);
  }
  // Files without wanted tensors stay closed.
  rmSync(join(folder, first));
  assert.deepEqual(Object.keys(await load(index, { skip: ['a', 'c'] })), ['b']);
  await assert.rejects(
    load(index),
    argument(/index\.json is not a safetensors index: it names model-00001-of-00002\.safetensors, which is/),
  );
  for (const [map, message] of /** @type {[any, RegExp][]} */ ([
    [{ b: second, d: second }, /it says that d is in model-00002-of-00002\.safetensors, which has no such tensor/],
    [{ b: '../b.safetensors' }, /weight_map must have the name of a file beside it for b, got "\.\.\/b\.safetensors"/],
    [{ b: '..' }, /weight_map must have the name of a file beside it/],
    [{ b: '/etc/passwd' }, /weight_map must have the name of a file beside it/],
    [{ b: 'a\\b' }, /weight_map must have the name of a file beside it/],
    [{ b: 7 }, /weight_map must have the name of a file beside it for b, got 7/],
    [[second], /its weight_map must be an object/],
    ['{}', /its weight_map must be an object/],
    ['[', /it is not JSON/],
    [`{"weight_map":{"b":"${second}","b":"${first}"}}`, /it has the key "b" twice/],
  ])) {
    write(map);
    await assert.rejects(load(folder), argument(message), String(message));
  }
  // One file goes before an index, as PyTorch's tools have it.
  await save(join(folder, 'model.safetensors'), { whole: ones([1]) });
  assert.deepEqual(Object.keys(await load(folder)), ['whole']);
  const empty = temporaryFolder(t);
  await assert.rejects(load(empty), argument(/it is a folder that has neither model\.safetensors nor model\.safetensors\.index/));
});

test('load: every one-byte change of an index is refused or says the same of every tensor', async (t) => {
  const folder = temporaryFolder(t);
  const index = join(folder, 'model.safetensors.index.json');
  const text = Buffer.from(JSON.stringify({ metadata: { total_size: 12 }, weight_map: { a: 'x.safetensors', b: 'y.safetensors' } }));
  writeFileSync(join(folder, 'x.safetensors'), tensorsFile({ a: ['F32', [1], float(1)], spare: ['F32', [1], float(0)] }));
  writeFileSync(join(folder, 'y.safetensors'), tensorsFile({ b: ['F32', [1], float(2)] }));
  const counts = { refused: 0, same: 0 };
  for (let at = 0; at < text.length; at++) {
    for (const flip of [1, 16, 128]) {
      const changed = Buffer.from(text);
      changed[at] ^= flip;
      writeFileSync(index, changed);
      const state = await load(folder).catch((error) => error);
      if (state instanceof Error) {
        assert.equal(state.name, 'ArgumentError', state.stack);
        counts.refused++;
        continue;
      }
      assert.deepEqual(Object.keys(state), ['a', 'b'], changed.toString('latin1'));
      assert.deepEqual([await values(state.a), await values(state.b)], [[1], [2]]);
      counts.same++;
    }
  }
  assert.ok(counts.refused > 4 * counts.same && counts.same > 0, JSON.stringify(counts));
});

test('loadStateDict: says what was missing and what was left over; names of every object are no tensors', async () => {
  const model = new nn.Sequential(new nn.Linear(2, 1), new nn.Linear(1, 1));
  const state = { '0.weight': full([1, 2], 4), '0.bias': full([1], 5), 'head.weight': ones([1]), '0.extra': ones([1]) };
  assert.deepEqual(model.loadStateDict(state, { strict: false }), {
    missingKeys: ['1.weight', '1.bias'],
    unexpectedKeys: ['head.weight', '0.extra'],
  });
  assert.deepEqual(await values(model.stateDict()['0.weight']), [4, 4]);
  assert.deepEqual(model.loadStateDict(model.stateDict()), { missingKeys: [], unexpectedKeys: [] });
  const odd = new (class extends nn.Module {})();
  any(odd).constructor = full([1], 2);
  assert.deepEqual(odd.loadStateDict({}, { strict: false }), { missingKeys: ['constructor'], unexpectedKeys: [] });
  assert.throws(() => odd.loadStateDict({}), /missing: constructor/);
});

test('load: a header says one thing', async (t) => {
  const path = join(temporaryFolder(t), 'header.safetensors');
  const entry = '{"dtype":"F32","shape":[1],"data_offsets":[0,4]}';
  const data = new Uint8Array(4);
  const bytes = (/** @type {string} */ text) => Buffer.from(text, 'latin1');
  for (const [header, message] of /** @type {[string | Buffer, RegExp][]} */ ([
    [bytes(`{"\xff":${entry}}`), /its header is not UTF-8/],
    [bytes(`{"a\xc3":${entry}}`), /its header is not UTF-8/],
    [bytes(`{"\xed\xa0\x80":${entry}}`), /its header is not UTF-8/],
    [`\ufeff{"a":${entry}}`, /its header is not JSON/],
    [` {"a":${entry}}`, /its header does not begin with \{/],
    [`{"\\ud800":${entry}}`, /its header has half of a surrogate pair in "\\ud800"/],
    [`{"__metadata__":{"a":"\\udc00"},"a":${entry}}`, /its header has half of a surrogate pair/],
    [`{"a":${entry},"a":${entry}}`, /its header has the key "a" twice/],
    [`{"a":${entry},"\\u0061":${entry}}`, /its header has the key "\\u0061" twice/],
    [`{"a":{"dtype":"F32","dtype":"I32","shape":[1],"data_offsets":[0,4]}}`, /its header has the key "dtype" twice/],
    [`{"__metadata__":{"x":"1","x":"2"},"a":${entry}}`, /its header has the key "x" twice/],
    [`{"__metadata__":{},"__metadata__":{},"a":${entry}}`, /its header has the key "__metadata__" twice/],
    [`{"__metadata__":{"\\"":"1","\\"":"2"},"a":${entry}}`, /its header has the key "\\"" twice/],
    [`{"__metadata__":null,"a":${entry}}`, /__metadata__ is not an object/],
    [`{"__metadata__":"x","a":${entry}}`, /__metadata__ is not an object/],
    [`{"__metadata__":[],"a":${entry}}`, /__metadata__ is not an object/],
    [`{"__metadata__":{"step":3},"a":${entry}}`, /__metadata__ must have strings, got 3 for step/],
    [`{"__metadata__":{"step":null},"a":${entry}}`, /__metadata__ must have strings, got null for step/],
    [`{"__metadata__":{"step":{"of":"x"}},"a":${entry}}`, /__metadata__ must have strings, got {"of":"x"} for step/],
    ['{"a":7}', /its entry a is not an object/],
    ['{"a":{"dtype":["F32"],"shape":[1],"data_offsets":[0,4]}}', /a has the unknown type \["F32"\]; the types are/],
    ['{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}', /a has the shape \[-1\]; sizes must be integers of at least 0/],
    ['{"a":{"dtype":"F32","shape":[-0],"data_offsets":[0,4]}}', /a has the shape/],
    ['{"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}}', /a has the shape \[1\.5\]/],
    ['{"a":{"dtype":"F32","shape":[9007199254740993],"data_offsets":[0,4]}}', /a has the shape/],
    ['{"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,4]}}', /a \[4294967296,.* lies at bytes 0 to 4/],
    ['{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}}', /a \[1\] lies at/],
    ['{"a":{"dtype":"F32","shape":[1],"data_offsets":["0",4]}}', /a \[1\] lies at/],
    ['{"a":{"dtype":"F32","shape":[1],"data_offsets":{"0":0,"1":4}}}', /a \[1\] lies at/],
    ['{"a":{"dtype":"F4","shape":[7],"data_offsets":[0,4]}}', /a \[7\] lies at/],
    ['{"a":{"dtype":"NEW","shape":[1],"data_offsets":[0,8]}}', /it has \d+ bytes, its header says \d+/],
    ['{"a":{"dtype":"NEW","shape":[1],"data_offsets":[4,0]}}', /a \[1\] lies at bytes 4 to 0/],
    [`{"a":${entry},"e":{"dtype":"F32","shape":[0],"data_offsets":[2,2]}}`, /e, which begins at 2, overlaps a/],
  ])) {
    writeFileSync(path, fileOf(header, data));
    await assert.rejects(load(path), (/** @type {Error} */ error) => {
      assert.ok(error.name === 'ArgumentError' && error.message.startsWith(`load: ${path} is not a safetensors file: `), error.message);
      assert.match(error.message, message);
      return true;
    });
  }
  // What looks like these and is right: keys that two objects have, quotes in texts, halves that are a pair, trailing spaces.
  const name = '\u{1f600}"\\';
  const text = `{"__metadata__":{"a":"{\\"a\\":1,\\"a\\":2}\\\\","b":"\\ud83d\\ude00"},${JSON.stringify(name)}:${entry},"dtype":${entry.replace('[0,4]', '[4,8]')}}   `;
  writeFileSync(path, fileOf(text, new Uint8Array(8)));
  const { tensors, metadata } = await load(path, { metadata: true });
  assert.deepEqual(Object.keys(tensors), [name, 'dtype']);
  assert.deepEqual(metadata, { a: '{"a":1,"a":2}\\', b: '\u{1f600}' });
});

test('a header of many megabytes is read, and its strings are scanned without a limit of their own', () => {
  const text = `"${'\\"x'.repeat(2_000_000)}"`;
  const bytes = Buffer.from(`{"__metadata__":{"long":${text},"other":"1"}}`);
  const { metadata } = parseHeader(bytes, 0, (what) => new Error(what));
  assert.equal(metadata.long.length, 4_000_000);
});

test('save: what the format cannot hold is refused before anything is read or written', async (t) => {
  const folder = temporaryFolder(t);
  const path = join(folder, 'deep', 'a.safetensors');
  const x = ones([1]);
  for (const [tensors, options, message] of /** @type {[any, any, RegExp][]} */ ([
    [undefined, {}, /save: expected tensors by name, got undefined/],
    [{ 'a\ud800': x }, {}, /save: the name "a\\ud800" has half of a surrogate pair/],
    [{ x }, { metadata: { a: '\udc00' } }, /save: metadata has half of a surrogate pair in "a": "\\udc00"/],
    [{ x }, { metadata: { '\ud800': 'a' } }, /save: metadata has half of a surrogate pair/],
    [{ x }, { metadata: { [CHECKSUM]: 'a' } }, /save: metadata cannot have helios\.sha256, which holds the checksum/],
    [{ x }, { meta: {} }, /save: unknown option meta; the options are metadata, checksum/],
  ])) {
    await assert.rejects(save(path, tensors, options), argument(message));
  }
  await assert.rejects(load(join(folder, 'deep')), /ENOENT/);
});

test('every one-byte change of a header is refused, or changes a name, a text or a type and no bytes of a tensor', () => {
  class Refused extends Error {}
  const bad = (/** @type {string} */ what) => new Refused(what);
  const list = [
    { name: 'a', dtype: 'F32', shape: [2, 3] },
    { name: 'b.é', dtype: 'F16', shape: [10] },
    { name: 'c', dtype: 'I64', shape: [] },
    { name: 'd', dtype: 'BOOL', shape: [5] },
  ];
  const { bytes, tensors } = encodeHeader(list, { step: '12' }, false, bad);
  const dataBytes = tensors.reduce((sum, { bytes }) => sum + bytes, 0);
  const size = bytes.length + dataBytes;
  /** What a file of these bytes and any data says, line by line. @param {Uint8Array} start */
  const read = (start) => {
    const length = headerLength(start, size, bad);
    // Data that reads as spaces would hide a header that is too long.
    const file = Buffer.concat([start, Buffer.alloc(dataBytes, ' ')]);
    const { metadata, tensors } = parseHeader(file.subarray(8, 8 + length), size - 8 - length, bad);
    const entries = [...tensors];
    return {
      names: entries.map(([name]) => name),
      types: entries.map(([, { dtype }]) => dtype),
      shapes: entries.map(([, { shape }]) => shape.join()),
      places: entries.map(([, { begin, bytes }]) => `${begin}+${bytes}`),
      texts: Object.entries(metadata).map(String),
    };
  };
  const original = read(bytes);
  let refused = 0;
  const changed = { names: 0, types: 0, texts: 0, nothing: 0 };
  for (let at = 0; at < bytes.length; at++) {
    const before = bytes[at];
    for (let value = 0; value < 256; value++) {
      if (value === before) continue;
      bytes[at] = value;
      try {
        const now = read(bytes);
        const fields = /** @type {(keyof typeof original)[]} */ (Object.keys(original)).filter(
          (f) => String(now[f]) !== String(original[f]),
        );
        assert.ok(fields.length <= 1, `byte ${at} as ${value}: ${fields}`);
        const field = /** @type {keyof typeof changed} */ (fields[0] ?? 'nothing');
        assert.ok(field in changed, `byte ${at} as ${value} changed ${field}`);
        const list = /** @type {string[]} */ (field === 'nothing' ? [] : now[/** @type {'names'} */ (field)]);
        assert.ok(list.filter((text, i) => text !== original[/** @type {'names'} */ (field)][i]).length <= 1, `byte ${at} as ${value}`);
        changed[field]++;
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        refused++;
      }
    }
    bytes[at] = before;
  }
  assert.equal(refused + Object.values(changed).reduce((a, b) => a + b), bytes.length * 255);
  assert.ok(refused > bytes.length * 200 && Object.values(changed).every((count) => count > 0), JSON.stringify({ refused, changed }));
});

test('a checksum: every one-byte change of a file is refused, but for one of the name of the checksum', async (t) => {
  const path = join(temporaryFolder(t), 'sum.safetensors');
  const state = { a: tensor([1, 2, 3]), b: tensor([true, false]), c: tensor([1.5], { dtype: 'bf16' }), 0: tensor([7], { dtype: 'i32' }) };
  await save(path, state, { metadata: { lr: '0.003', 1: 'x' } });
  const file = readFileSync(path);
  const begins = file.indexOf(CHECKSUM);
  assert.equal(begins, 8 + '{"__metadata__":{"'.length);
  const describe = async (/** @type {Record<string, any>} */ tensors) =>
    Promise.all(Object.entries(tensors).map(async ([name, x]) => [name, x.dtype, x.shape, await values(x)]));
  const original = await describe(await load(path));
  await collectGarbage();
  const held = memory().buffers;
  /** @type {number[]} */
  const taken = [];
  for (let at = 0; at < file.length; at++) {
    const changed = Buffer.from(file);
    changed[at] ^= 1 << (at % 7);
    writeFileSync(path, changed);
    const result = await load(path, { metadata: true }).catch((error) => error);
    if (result instanceof Error) {
      assert.equal(result.name, 'ArgumentError', result.stack);
      assert.match(result.message, /sum\.safetensors is (not a safetensors file|damaged)/);
      continue;
    }
    assert.deepEqual(await describe(result.tensors), original);
    assert.deepEqual([result.metadata.lr, result.metadata[1]], ['0.003', 'x']);
    for (const x of Object.values(result.tensors)) x.dispose();
    taken.push(at);
  }
  assert.ok(
    taken.every((at) => at >= begins && at < begins + CHECKSUM.length),
    String(taken),
  );
  assert.equal(memory().buffers, held);
  // A program that changes tensors and keeps the texts leaves a checksum of the old ones; a part of a file cannot be checked.
  file[file.length - 1] ^= 1;
  writeFileSync(path, file);
  await assert.rejects(
    load(path),
    argument(/sum\.safetensors is damaged, or a program changed it and kept its checksum \(.*\): its bytes have/),
  );
  assert.deepEqual(Object.keys(await load(path, { checksum: false })), Object.keys(await load(path, { skip: ['none'], checksum: false })));
  assert.deepEqual(Object.keys(await load(path, { only: ['a'] })), ['a']);
  await save(path, state, { checksum: false });
  assert.ok(!readFileSync(path, 'latin1').includes('__metadata__'));
  assert.deepEqual(await describe(await load(path)), original);
});

test('a checksum covers tensors that cannot be had, and those that are larger than a piece', async (t) => {
  const path = join(temporaryFolder(t), 'large.safetensors');
  const bad = (/** @type {string} */ what) => new TypeError(what);
  const large = new Uint8Array(2 ** 24 + 5).map((_, i) => i * 7);
  const tensors = [
    { name: 'odd', dtype: 'C64', shape: [1], data: float(1, 2) },
    { name: 'large', dtype: 'U8', shape: [large.length], data: large },
    { name: 'last', dtype: 'F32', shape: [1], data: float(3) },
  ];
  const header = encodeHeader(tensors, {}, true, bad);
  await writeSafetensors(path, header, async (i) => tensors[i].data);
  const file = await SafetensorsFile.open(path, bad);
  const verification = file.verification();
  for (const name of file.tensors.keys()) await file.pass(name, /** @type {any} */ (verification).hash);
  assert.equal(verification?.finish(), undefined);
  const into = new Uint8Array(large.length);
  await file.read('large', into);
  assert.ok(Buffer.from(into.buffer).equals(Buffer.from(large.buffer)));
  await assert.rejects(file.read('large', new Uint8Array(4)), /large has 16777221 bytes, but the array to read into has 4/);
  await assert.rejects(file.read('none', into), { name: 'TypeError', message: 'it has no tensor none' });
  await file.close();
  assert.deepEqual(await values((await load(path)).last), [3]);
  const bytes = readFileSync(path);
  bytes[header.bytes.length + 3] ^= 1;
  writeFileSync(path, bytes);
  await assert.rejects(load(path), /large\.safetensors is damaged/);
  // More bytes than the header says leave what was there.
  await assert.rejects(
    writeSafetensors(path, header, (i) => (i === 2 ? float(1, 2) : tensors[i].data)),
    /last needs 4 bytes, got 8/,
  );
  assert.ok(readFileSync(path).equals(bytes));
  assert.deepEqual(readdirSync(dirname(path)), ['large.safetensors']);
});
