// Nodes that are put together: which ones of a file, that the file's graph stays, and that results are those of the nodes one by one.

import { before, test } from 'node:test';
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { F, compile, init, load, nn, noGrad, tensor } from 'helios-vk/nn';

import { fuse } from '../src/fuse.mjs';
import { loadOnnx } from '../src/index.mjs';
import { readGraph } from '../src/read.mjs';
import { Value } from '../src/value.mjs';
import { BOOL, bytesOf, floats, integers, node, port } from './lib/messages.mjs';

const FILES = fileURLToPath(new URL('fixtures/models/', import.meta.url));
/** @typedef {import('../src/definitions.mjs').Graph} Graph */

before(() => init());

/** How many nodes there are of each operator that only `fuse` makes. @param {Graph} graph */
const counts = ({ nodes }) =>
  Object.fromEntries(['MatMul and Add', 'Attention of products'].map((op) => [op, nodes.filter((node) => node.op === op).length]));

test('of BERT the biases of all layers and the attention are put together; the graph of the file stays', async () => {
  const { graph } = await readGraph(join(FILES, 'bert.onnx'));
  const names = graph.nodes.map(({ op }) => op);
  const fused = fuse(graph);
  assert.deepEqual(counts(fused), { 'MatMul and Add': 12, 'Attention of products': 2 });
  assert.deepEqual(
    graph.nodes.map(({ op }) => op),
    names,
  );
  // Each of the twelve is one node instead of two; each attention one of its two products, two factors, a sum, a softmax and a choice of two.
  assert.equal(fused.nodes.length, names.length - 12 - 2 * 7);
  const outputs = new Set(fused.nodes.flatMap((node) => node.outputs));
  for (const { name } of graph.outputs) assert.ok(outputs.has(name), name);
  // What is asked for as an output is not put away.
  const scores = graph.nodes.find(({ op }) => op === 'Softmax')?.outputs[0];
  const seen = fuse({ ...graph, outputs: [...graph.outputs, { name: String(scores), type: undefined, shape: undefined }] });
  assert.equal(counts(seen)['Attention of products'], 1);
});

test('queries that a mask hides from all keys get 0, and others what softmax gives', async () => {
  const { graph } = await readGraph(join(FILES, 'bert.onnx'));
  const node = /** @type {any} */ (fuse(graph).nodes.find(({ op }) => op === 'Attention of products'));
  const of = (/** @type {number[]} */ shape, /** @type {number} */ salt) => {
    const values = Float32Array.from({ length: shape.reduce((a, b) => a * b) }, (_, i) => Math.sin(i * salt + salt));
    return Value.of('float', tensor(values, { shape }));
  };
  const [q, keys, v] = [of([1, 2, 3, 4], 1), of([1, 2, 4, 5], 2), of([1, 2, 5, 4], 3)];
  const hidden = Float32Array.from({ length: 15 }, (_, i) => (i < 5 || i % 5 === 4 ? -Infinity : 0));
  const mask = Value.of('float', tensor(hidden, { shape: [1, 1, 3, 5] }));
  const number = Value.host('float', [], Float32Array.of(0.5));
  const { tensor: y } = noGrad(() => node.operator.run([q, keys, v, mask, number, number, undefined], {}, {}));
  const [a, b, c, all] = await Promise.all([q, keys, v].map((x) => x.tensor.toArray()).concat([y.toArray()]));
  for (let h = 0; h < 2; h++)
    for (let i = 0; i < 3; i++) {
      const scores = Array.from({ length: 5 }, (_, j) => {
        if (hidden[5 * i + j]) return 0;
        let sum = 0;
        for (let d = 0; d < 4; d++) sum += a[(3 * h + i) * 4 + d] * b[(4 * h + d) * 5 + j];
        return Math.exp(sum / 4);
      });
      const total = scores.reduce((s, x) => s + x, 0) || 1;
      for (let d = 0; d < 4; d++) {
        const expected = scores.reduce((s, x, j) => s + (x / total) * c[(5 * h + j) * 4 + d], 0);
        assert.ok(Math.abs(all[(3 * h + i) * 4 + d] - expected) < 1e-5, `${h} ${i} ${d}`);
      }
    }
});

test('a bias replaced by one of another rank is added as the node adds it', async () => {
  const model = await loadOnnx(join(FILES, 'bert.onnx'));
  const values = await load(join(FILES, 'bert.safetensors'));
  const inputs = Object.fromEntries(
    Object.entries(values).flatMap(([name, value]) => (name.startsWith('input.') ? [[name.slice(6), value]] : [])),
  );
  const results = async () => Promise.all(Object.values(await model.run(inputs)).map((/** @type {any} */ y) => y.toArray()));
  const expected = await results();
  const [name, bias] = /** @type {[string, any]} */ ([...model.weights].find(([own]) => own.endsWith('query.bias')));
  Reflect.set(model, name, new nn.Parameter(F.reshape(bias.detach(), [1, -1])));
  for (const [i, values] of (await results()).entries())
    for (const [k, value] of values.entries()) assert.ok(Math.abs(value - expected[i][k]) < 1e-5, `${i} ${k}`);
  Reflect.set(model, name, new nn.Parameter(F.add(F.reshape(bias.detach(), [1, -1]), 1)));
  assert.ok((await results())[0].some((/** @type {number} */ value, /** @type {number} */ k) => Math.abs(value - expected[0][k]) > 1e-3));
});

test('attention gives what its nodes give: softmax of before opset 13, masks with more rows or dimensions than the queries', async () => {
  const of = (/** @type {number[]} */ shape, /** @type {number} */ salt) =>
    tensor(
      Float32Array.from({ length: shape.reduce((a, b) => a * b) }, (_, i) => Math.sin(i * salt + salt)),
      { shape },
    );
  const inputs = { q: of([1, 3, 4, 8], 1), k: of([1, 3, 8, 5], 2), v: of([1, 3, 5, 6], 3) };
  const results = async (/** @type {any} */ given, /** @type {number} */ version, /** @type {string[]} */ outputs) => {
    const masked = given.m !== undefined;
    const nodes = [
      node('MatMul', ['q', 'k'], ['scores']),
      ...(masked ? [node('Add', ['scores', 'm'], ['sum'])] : []),
      node('Softmax', [masked ? 'sum' : 'scores'], ['p']),
      ...(masked ? [node('IsNaN', ['p'], ['nan']), node('Where', ['nan', 'zero', 'p'], ['chosen'])] : []),
      node('MatMul', [masked ? 'chosen' : 'p', 'v'], ['y']),
    ];
    const input = Object.entries(given).map(([name, { shape }]) => port(name, shape));
    const graph = { name: 'g', node: nodes, initializer: [floats('zero', [], [0])], input, output: outputs.map((name) => ({ name })) };
    const model = await loadOnnx(bytesOf(graph, { opsetImport: [{ domain: '', version }] }));
    const results = /** @type {any} */ (await model.run(given));
    const y = results.y ?? results;
    return { shape: y.shape, values: await y.toArray() };
  };
  const cases = [
    { given: inputs, version: 12 },
    { given: { ...inputs, m: of([2, 1, 4, 5], 4) }, version: 17 },
    { given: { ...inputs, m: of([1, 1, 3, 4, 5], 4) }, version: 17 },
  ];
  for (const { given, version } of cases) {
    // What is an output is computed by its own node.
    const [one, all] = [await results(given, version, ['y', 'p']), await results(given, version, ['y'])];
    assert.deepEqual(all.shape, one.shape);
    for (const [i, value] of one.values.entries()) assert.ok(Math.abs(all.values[i] - value) < 1e-5, `${version}: ${i}`);
  }
});

test('a mask that hides nothing needs no matrix of scores; one that was written since does', async () => {
  const of = (/** @type {number[]} */ shape, /** @type {number} */ salt) =>
    tensor(
      Float32Array.from({ length: shape.reduce((a, b) => a * b) }, (_, i) => Math.sin(i * salt + salt)),
      { shape },
    );
  const inputs = { q: of([1, 2, 4, 32], 1), k: of([1, 2, 32, 5], 2), v: of([1, 2, 5, 32], 3) };
  const flags = (/** @type {string} */ name, /** @type {number[]} */ dims, /** @type {number[]} */ data) => ({
    name,
    dims,
    dataType: BOOL,
    int32Data: data,
  });
  /** @param {number[]} shape of the mask @param {string[]} outputs @param {number[]} [seen] the condition, of four rows of the mask @param {number} [number] where it is true */
  const modelOf = (shape, outputs, seen = [1, 1, 1, 1], number = 0) => {
    const nodes = [
      node('Unsqueeze', ['seen', 'first'], ['rows']),
      node('Expand', ['rows', 'shape'], ['condition']),
      node('Where', ['condition', 'number', 'hidden'], ['m']),
      node('MatMul', ['q', 'k'], ['scores']),
      node('Add', ['scores', 'm'], ['sum']),
      node('Softmax', ['sum'], ['p']),
      node('IsNaN', ['p'], ['nan']),
      node('Where', ['nan', 'zero', 'p'], ['chosen']),
      node('MatMul', ['chosen', 'v'], ['y']),
    ];
    const initializer = [
      flags('seen', [1, 4, 1], seen),
      integers('first', [1], [0]),
      integers('shape', [shape.length], shape),
      ...Object.entries({ number, zero: 0, hidden: -Infinity }).map(([name, value]) => floats(name, [], [value])),
    ];
    const input = Object.entries(inputs).map(([name, own]) => port(name, [...own.shape]));
    return loadOnnx(bytesOf({ name: 'g', node: nodes, initializer, input, output: outputs.map((name) => ({ name })) }));
  };
  const cases = [
    { shape: [1, 1, 4, 5], fused: true },
    { shape: [1, 1, 4, 1], fused: true },
    // The mask has more sequences than the queries.
    { shape: [3, 1, 4, 5], fused: true },
    { shape: [1, 1, 4, 5], seen: [1, 0, 1, 1], fused: false },
    { shape: [1, 1, 4, 5], number: 0.5, fused: false },
  ];
  for (const { shape, seen, number, fused } of cases) {
    const model = await modelOf(shape, ['y'], seen, number);
    const call = compile((/** @type {typeof inputs} */ given) => noGrad(() => model.forward(given)));
    const results = async () => {
      const y = call(inputs);
      return { shape: y.shape, values: await y.toArray() };
    };
    // What is an output is computed by its own node.
    const apart = await modelOf(shape, ['y', 'p'], seen, number);
    const expected = apart.forward(inputs).y;
    const [one, own] = [await expected.toArray(), await results()];
    assert.deepEqual(own.shape, expected.shape);
    assert.equal(call.html().includes('attentionApart'), fused, `[${shape}], ${seen}`);
    call.dispose();
    for (const [i, value] of one.entries()) assert.ok(Math.abs(own.values[i] - value) < 1e-5, `[${shape}], ${seen}: ${i}`);
    // The row that the mask hides now is 0.
    Reflect.set(model, 'seen', tensor(Uint32Array.of(1, 1, 0, 1), { shape: [1, 4, 1], dtype: 'bool' }));
    const y = await model.forward(inputs).toArray();
    assert.ok(y.subarray(64, 96).every((/** @type {number} */ value) => value === 0) && y.subarray(96, 128).some(Boolean));
  }
});
