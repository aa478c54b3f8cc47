// Operators of onnxruntime's own domain, beside what onnxruntime 1.32 computes with them.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { F, compile, tensor } from 'helios-vk/nn';
import { loadOnnx, readNpz } from 'helios-onnx';
import { decode, encode } from '../src/proto.mjs';
import { bitsOf } from '../src/types.mjs';

const file = new URL('fixtures/microsoft.npz', import.meta.url);
const arrays = Object.entries(readNpz(readFileSync(file), 'microsoft.npz'));
const cases = [...new Set(arrays.map(([key]) => key.slice(0, key.indexOf('/'))))];
/** The arrays of a case by name. @param {string} prefix */
const those = (prefix) =>
  Object.fromEntries(arrays.flatMap(([key, array]) => (key.startsWith(prefix) ? [[key.slice(prefix.length), array]] : [])));
const DTYPES = /** @type {Record<string, any>} */ ({ float: 'f32', int32: 'i32', int64: 'i64', uint8: 'u8', int8: 'i8' });

for (const name of cases) {
  test(`${name}: what onnxruntime gives, eager and compiled`, async () => {
    const { model: bytes } = those(`${name}/`);
    const model = await loadOnnx(Uint8Array.from(/** @type {ArrayLike<number>} */ (bytes.elements)));
    const given = those(`${name}/input.`);
    const inputs = model.inputs.map(({ name: key }) => {
      const { type, shape, elements } = given[key];
      return tensor(/** @type {any} */ (elements), { shape: [...shape], dtype: DTYPES[type] });
    });
    const expected = Object.entries(those(`${name}/output.`));
    const forward = (/** @type {any[]} */ ...tensors) => model.forward(...tensors);
    for (const of of [forward, compile(forward)]) {
      const found = of(...inputs);
      for (const [key, { shape, elements }] of expected) {
        const y = expected.length === 1 ? found : found[key];
        assert.deepEqual([...y.shape], [...shape], key);
        const [own, theirs] = [await y.toArray(), elements].map((list) => Array.from(list, Number));
        const most = Math.max(...theirs.map(Math.abs));
        const far = own.findIndex((each, i) => !(Math.abs(each - theirs[i]) <= 1e-5 * most));
        assert.equal(far, -1, `${key}[${far}] is ${own[far]}, expected ${theirs[far]} of at most ${most}`);
      }
    }
    model.dispose();
  });
}

/** A model whose floats are f16. @param {Uint8Array} bytes */
function halved(bytes) {
  const message = decode('ModelProto', bytes, 'a case');
  const graph = /** @type {import('../src/proto.mjs').GraphMessage} */ (message.graph);
  for (const each of graph.initializer) {
    if (each.dataType !== 1) continue;
    const raw = Uint8Array.from(each.rawData);
    Object.assign(each, { dataType: 10, rawData: bitsOf('float16', new Float32Array(raw.buffer)) });
  }
  for (const { type } of [...graph.input, ...graph.output]) if (type?.tensorType?.elemType === 1) type.tensorType.elemType = 10;
  return encode('ModelProto', message);
}

test('operators of transformers take f16', async () => {
  const QUANTIZED = /^(Dynamic|MatMulInteger|QAttention)/;
  for (const name of cases.filter((each) => !QUANTIZED.test(each))) {
    const { model: bytes } = those(`${name}/`);
    const model = await loadOnnx(halved(Uint8Array.from(/** @type {ArrayLike<number>} */ (bytes.elements))));
    const given = those(`${name}/input.`);
    const inputs = model.inputs.map(({ name: key }) => {
      const { type, shape, elements } = given[key];
      const x = tensor(/** @type {any} */ (elements), { shape: [...shape], dtype: DTYPES[type] });
      return type === 'float' ? x.to('f16') : x;
    });
    const found = model.forward(...inputs);
    const expected = Object.entries(those(`${name}/output.`));
    for (const [key, { type, shape, elements }] of expected) {
      const y = expected.length === 1 ? found : found[key];
      assert.deepEqual([...y.shape], [...shape], `${name}: ${key}`);
      if (type === 'float' && key !== 'inverse') assert.equal(y.dtype, 'f16', `${name}: ${key}`);
      const [own, theirs] = [await y.toArray(), elements].map((list) => Array.from(list, Number));
      const most = Math.max(...theirs.map(Math.abs));
      const far = own.findIndex((each, i) => !(Math.abs(each - theirs[i]) <= 4e-3 * most));
      assert.equal(far, -1, `${name}: ${key}[${far}] is ${own[far]}, expected ${theirs[far]} of at most ${most}`);
    }
    model.dispose();
  }
});

test('gradients flow through attention and norms: differences of the loss', async () => {
  for (const [name, of] of /** @type {const} */ ([
    ['Attention-mask', 'w'],
    ['MultiHeadAttention-bias', 'bias'],
    ['GroupQueryAttention-several', 'q'],
    ['GroupQueryAttention-softcap', 'k'],
    ['RotaryEmbedding', 'x'],
    ['SkipLayerNormalization', 'skip'],
    ['SkipSimplifiedLayerNormalization', 'g'],
    ['FusedMatMul', 'b'],
    ['BiasGelu', 'b'],
    ['MatMulNBits-4-32', 'x'],
  ])) {
    const model = await loadOnnx(Uint8Array.from(/** @type {ArrayLike<number>} */ (those(`${name}/`).model.elements)));
    const given = those(`${name}/input.`);
    const inputs = Object.fromEntries(
      model.inputs.map(({ name: key }) => {
        const { type, shape, elements } = given[key];
        return [key, tensor(/** @type {any} */ (elements), { shape: [...shape], dtype: DTYPES[type] })];
      }),
    );
    const x = (inputs[of] ?? /** @type {any} */ (model)[of]).detach().requiresGrad_(true);
    if (!inputs[of]) Object.assign(model, { [of]: x });
    const loss = (/** @type {any} */ value) => {
      if (inputs[of]) inputs[of] = value;
      else Object.assign(model, { [of]: value });
      const found = model.forward(inputs);
      const y = found.shape ? found : found.y;
      const factors = Array.from({ length: y.size }, (_, i) => Math.sin(3 * i + 1));
      return F.sum(F.mul(y, tensor(factors, { shape: [...y.shape] })));
    };
    loss(x).backward();
    const direction = Float32Array.from({ length: x.size }, (_, i) => Math.cos(5 * i));
    const way = tensor(direction, { shape: [...x.shape] });
    const slope = (await F.sum(F.mul(/** @type {any} */ (x.grad), way)).toArray())[0];
    const [up, down] = await Promise.all(
      [1, -1].map(async (sign) => (await loss(F.add(x.detach(), F.mul(way, 0.01 * sign))).toArray())[0]),
    );
    const expected = (Number(up) - Number(down)) / 0.02;
    assert.ok(Math.abs(Number(slope) - expected) <= 0.01 * Math.max(1, Math.abs(expected)), `${name}: ${slope}, expected ${expected}`);
    model.dispose();
  }
});
