// Operators of onnxruntime's own domain, beside what onnxruntime 1.32 computes with them.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { F, compile, tensor } from 'helios-vk/nn';
import { loadOnnx, readNpz } from 'helios-onnx';
import { decode, encode } from '../src/proto.mjs';
import { bitsOf } from '../src/types.mjs';
import { bytesOf, floats, int, node, port } from './lib/messages.mjs';

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
  const QUANTIZED = /^(Dynamic|MatMulInteger|QAttention|QLinear)/;
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

const text = (/** @type {string} */ name, /** @type {string} */ value) => ({ name, type: 3, s: Buffer.from(value) });
/**
 * A model of one node of `com.microsoft`; its inputs are initializers of floats.
 * @param {string} op @param {(number[] | undefined)[]} shapes @param {object[]} attributes @param {string[]} [outputs]
 */
const oneNode = (op, shapes, attributes, outputs = ['y']) => {
  const names = shapes.map((shape, i) => (shape ? `i${i}` : ''));
  const kept = shapes.flatMap((shape, i) => (shape ? [floats(`i${i}`, shape, new Float32Array(shape.reduce((a, b) => a * b, 1)))] : []));
  return bytesOf(
    {
      node: [node(op, names, outputs, attributes, { domain: 'com.microsoft' })],
      initializer: kept,
      input: [port('unused', [1])],
      output: outputs.filter(Boolean).map((name) => ({ name })),
    },
    { opsetImport: ['', 'com.microsoft'].map((domain) => ({ domain, version: domain ? 1 : 17 })) },
  );
};

test('what an operator of onnxruntime does not take here is an error that names it', async () => {
  const [q, past] = [
    [1, 2, 8],
    [1, 2, 3, 4],
  ];
  const none = undefined;
  const heads = [int('num_heads', 2)];
  const grouped = [...heads, int('kv_num_heads', 2)];
  /** @type {[op: string, shapes: (number[] | undefined)[], attributes: object[], error: string, outputs?: string[]][]} */
  const cases = [
    ['GroupQueryAttention', [q], [...grouped, int('sliding_window_cache', 1)], 'the attribute sliding_window_cache = 1 is not supported'],
    ['GroupQueryAttention', [q], [...grouped, int('kv_cache_bit_width', 4)], 'the attribute kv_cache_bit_width = 4 is not supported'],
    [
      'GroupQueryAttention',
      [q],
      [...grouped, text('k_quant_type', 'PER_TENSOR')],
      'the attribute k_quant_type = PER_TENSOR is not supported',
    ],
    ['GroupQueryAttention', [q], [...grouped, int('qk_output', 1)], 'the attribute qk_output = 1 is not supported'],
    ['GroupQueryAttention', [q], [...grouped, int('new_one', 1)], 'the attribute new_one is not supported'],
    ['GroupQueryAttention', [q, q, q, ...Array(9).fill(none), [1]], grouped, 'the input k_scale is not supported'],
    ['GroupQueryAttention', [q, q, q, ...Array(11).fill(none), [4]], grouped, 'the input q_norm_weight is not supported'],
    ['GroupQueryAttention', [q, q, q, ...Array(13).fill(none), [1]], grouped, 'the input query_seqlens is not supported'],
    ['GroupQueryAttention', [q, q, q, none, none, [1], [1]], [...grouped, int('do_rotary', 1)], 'the input cos_cache is missing'],
    [
      'GroupQueryAttention',
      [q, q, q, none, none, [1], [1]],
      [...grouped, int('causal', 0), int('local_window_size', 2)],
      'local_window_size = 2 with causal = 0 is not supported',
    ],
    ['MultiHeadAttention', [q], heads, 'the input key is missing'],
    ['MultiHeadAttention', [q, q], heads, 'the input value is missing'],
    ['MultiHeadAttention', [q, q, q, none, none, none, past], heads, 'the input past_value is missing'],
    ['MultiHeadAttention', [q, q, q, none, none, none, past, past, [1]], heads, 'the input past_sequence_length is not supported'],
    ['MultiHeadAttention', [q, q, q, ...Array(6).fill(none), [1]], heads, 'the input cache_indirection is not supported'],
    ['MultiHeadAttention', [q, q, q], heads, 'its output 3, qk, is not supported', ['y', '', '', 'qk']],
    [
      'MultiHeadAttention',
      [q, [1, 5, 8], [1, 5, 8]],
      [...heads, int('unidirectional', 1)],
      'unidirectional = 1 is not supported for 2 queries and 5 keys of another sequence',
    ],
    [
      'Attention',
      [q, [8, 24]],
      [...heads, int('past_present_share_buffer', 1)],
      'the attribute past_present_share_buffer = 1 is not supported',
    ],
    ['Attention', [q, [8, 24]], [...heads, int('do_rotary', 1)], 'the attribute do_rotary = 1 is not supported'],
    ['Attention', [q, [8, 24], ...Array(4).fill(none), [1]], heads, 'the input past_sequence_length is not supported'],
    [
      'Attention',
      [q, [8, 20]],
      [...heads, { name: 'qkv_hidden_sizes', type: 7, ints: [4, 4, 12] }],
      'the output present of keys and values of different sizes is not supported',
      ['y', 'present'],
    ],
    ['RotaryEmbedding', [q, [1], [4, 2], [4, 2]], [{ name: 'scale', type: 1, f: 2 }], 'the attribute scale = 2 is not supported'],
    ['RotaryEmbedding', [q, [1], [4, 2], [4, 2]], [int('is_packed_batching', 1)], 'the attribute is_packed_batching = 1 is not supported'],
    [
      'RotaryEmbedding',
      [q, [1], [4, 2], [4, 2]],
      [int('rotary_embedding_dim', 4)],
      'rotary_embedding_dim asks for num_heads, which is missing',
    ],
    ['RotaryEmbedding', [q, [2], [4, 2], [4, 2]], [], 'position_ids [2] are neither one number nor [batch, tokens]'],
    ['SkipLayerNormalization', [q, q, [8]], [], 'its output 1, mean, is not supported', ['y', 'mean']],
    ['MatMulNBits', [q, [1]], [int('weight_prepacked', 1)], 'the attribute weight_prepacked = 1 is not supported'],
    ['MatMulNBits', [q, [1], [1], none, [1]], [], 'the input g_idx is not supported'],
    ['QLinearGlobalAveragePool', [q], [int('channels_last', 1)], 'the attribute channels_last = 1 is not supported'],
    ['DynamicQuantizeLSTM', [q], [int('layout', 1)], 'the attribute layout is not supported'],
    [
      'FusedGemm',
      [
        [2, 2],
        [2, 2],
      ],
      [text('activation', 'constructor')],
      'the activation constructor is not supported',
    ],
    [
      'FusedGemm',
      [
        [2, 2],
        [2, 2],
      ],
      [],
      'the activation (none) is not supported',
    ],
    [
      'FusedConv',
      [
        [1, 1, 4],
        [1, 1, 1],
      ],
      [text('activation', 'Where')],
      'the activation Where is not supported',
    ],
  ];
  for (const [op, shapes, attributes, error, outputs] of cases) {
    const model = await loadOnnx(oneNode(op, shapes, attributes, outputs));
    await assert.rejects(model.run(tensor([0])), { message: `com.microsoft.${op} 'y' (opset 1): ${error}` });
    model.dispose();
  }
});

test('a block size, K or N that the weights do not have is an error', async () => {
  const [matrix, table] = ['MatMulNBits-4-16', 'GatherBlockQuantized-4'].map((name) => {
    const bytes = Uint8Array.from(/** @type {ArrayLike<number>} */ (those(`${name}/`).model.elements));
    return (/** @type {Record<string, number>} */ changed) => {
      const message = decode('ModelProto', bytes, name);
      const graph = /** @type {import('../src/proto.mjs').GraphMessage} */ (message.graph);
      for (const each of graph.node[0].attribute) if (each.name in changed) Object.assign(each, { i: changed[each.name] });
      return { file: encode('ModelProto', message), inputs: those(`${name}/input.`) };
    };
  });
  const refused = async (/** @type {{ file: Uint8Array, inputs: any }} */ { file, inputs }, /** @type {RegExp} */ error) => {
    const model = await loadOnnx(file);
    const given = model.inputs.map(({ name }) => {
      const { type, shape, elements } = inputs[name];
      return tensor(elements, { shape: [...shape], dtype: DTYPES[type] });
    });
    await assert.rejects(model.run(...given), error);
    model.dispose();
  };
  const huge = 2 ** 40;
  /** @type {Record<string, number>[]} */
  const changes = [
    { block_size: 32 },
    { block_size: 0 },
    { K: 24 },
    { K: huge },
    { N: 4 },
    { N: huge },
    { N: -1 },
    { bits: 8 },
    { bits: 3 },
    { bits: 0 },
  ];
  for (const changed of changes)
    await refused(matrix(changed), /MatMulNBits 'MatMulNBits' \(opset 1\): N = .* are not those of weights of the shape \[5,3,8\]/);
  await refused(table({ block_size: 32 }), /block_size = 32 makes 1 blocks of 32 numbers, and there are scales of 2/);
  await refused(table({ block_size: 0 }), /block_size = 0 makes Infinity blocks/);
  await refused(table({ bits: 1 }), /numbers of 1 bits are not supported/);
});

test('a padded token that sees no key is zeros, and no key of the next layer that spoils the others', async () => {
  const longs = (/** @type {string} */ name, /** @type {number[]} */ dims, /** @type {number[]} */ data) => ({
    name,
    dims,
    dataType: 6,
    int32Data: data,
  });
  const attributes = [int('num_heads', 1), int('kv_num_heads', 1), int('local_window_size', 2), { name: 'softcap', type: 1, f: 5 }];
  const layer = (/** @type {string} */ x, /** @type {string} */ y) =>
    node('GroupQueryAttention', [x, x, x, '', '', 'last', 'total'], [y], attributes, { domain: 'com.microsoft' });
  const model = await loadOnnx(
    bytesOf(
      {
        node: [layer('x', 'h'), layer('h', 'y')],
        initializer: [longs('last', [2], [4, 1]), longs('total', [], [5])],
        input: [port('x', [2, 5, 2])],
        output: [{ name: 'y' }],
      },
      { opsetImport: ['', 'com.microsoft'].map((domain) => ({ domain, version: domain ? 1 : 17 })) },
    ),
  );
  const y = await model
    .forward(
      tensor(
        Float32Array.from({ length: 20 }, (_, i) => Math.sin(i)),
        { shape: [2, 5, 2] },
      ),
    )
    .toArray();
  assert.ok(Array.from(y).every(Number.isFinite), String(y));
  model.dispose();
});

test('a product of integers whose scales are f16 is f16', async () => {
  const model = await loadOnnx(
    bytesOf(
      {
        node: [node('MatMulIntegerToFloat', ['a', 'b', 'scaleA', 'scaleB', '', '', 'bias'], ['y'], [], { domain: 'com.microsoft' })],
        input: [port('a', [2, 3], 2), port('b', [3, 2], 2), port('scaleA', [], 10), port('scaleB', [2], 10), port('bias', [2], 10)],
        output: [{ name: 'y' }],
      },
      { opsetImport: ['', 'com.microsoft'].map((domain) => ({ domain, version: domain ? 1 : 17 })) },
    ),
  );
  const bytes = (/** @type {number[]} */ list, /** @type {number[]} */ shape) => tensor(list, { shape, dtype: 'u8' });
  const halves = (/** @type {number[]} */ list, /** @type {number[]} */ shape) => tensor(list, { shape, dtype: 'f16' });
  const y = model.forward(
    bytes([1, 2, 3, 4, 5, 6], [2, 3]),
    bytes([1, 0, 0, 1, 1, 1], [3, 2]),
    halves([0.5], []),
    halves([2, 4], [2]),
    halves([1, -1], [2]),
  );
  assert.equal(y.dtype, 'f16');
  assert.deepEqual([...(await y.toArray())], [5, 9, 11, 21]);
  model.dispose();
});
