// Files that were made to do harm: each is an error that says what is wrong, or runs; none takes more memory or time than its bytes are worth.
// __test__/fuzz/onnx.mjs makes more of them.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';

import { describeOnnx, loadOnnx, runOnnx, sampleInputs } from 'helios-onnx';
import { temporaryFolder } from '../../../__test__/lib/folder.mjs';
import { bytesOf, graphOf, int, integers, ints, node, port } from './lib/messages.mjs';

/** Bytes of memory that the tests of this file may have taken. */
const MOST_MEMORY = 2 ** 30;
const HUGE = 2 ** 40;

const floats = (/** @type {string} */ name, /** @type {number[]} */ dims, /** @type {number[]} */ data) => ({
  name,
  dims,
  dataType: 1,
  floatData: data,
});
/** A graph with the output y. @param {object | object[]} nodes @param {object[]} [initializer] @param {object[]} [input] */
const graphWith = (nodes, initializer = [], input = []) => ({ node: [nodes].flat(), initializer, input, output: [{ name: 'y' }] });

/** Loads and runs a file. @param {Uint8Array | string} file */
async function runFile(file) {
  const model = await loadOnnx(file);
  try {
    const inputs = sampleInputs(model.inputs);
    return await runOnnx(model, inputs);
  } finally {
    model.dispose();
  }
}

after(() => {
  const used = process.resourceUsage().maxRSS * 1024;
  assert.ok(used < MOST_MEMORY, `the process took ${used} bytes`);
});

const X = [port('x', [4])];
/** A body of a loop that goes on for ever, and doubles what it carries. */
const body = {
  node: [node('Identity', ['goes'], ['on']), node('Add', ['v', 'v'], ['w']), node('Identity', ['v'], ['each'])],
  input: [{ name: 'i' }, { name: 'goes' }, { name: 'v' }],
  output: [{ name: 'on' }, { name: 'w' }, { name: 'each' }],
};
/** @param {object[]} attributes @param {number} [image] */
const roiAlign = (attributes, image = 0) =>
  graphWith(
    node('RoiAlign', ['x', 'rois', 'images'], ['y'], attributes),
    [floats('rois', [1, 4], [0, 0, 2, 2]), integers('images', [1], [image])],
    [port('x', [1, 1, 4, 4])],
  );
const LIST = /a list of .* elements cannot be made on the host/;
const LARGE = /this device allows at most/;

/** What is in a file, and the error. @type {Record<string, [graph: object, error: RegExp, model?: object]>} */
const CASES = {
  'a product of sizes beyond all numbers': [
    graphWith(node('Neg', ['w'], ['y']), [floats('w', [2 ** 31, 2 ** 31, 2 ** 31], [1])]),
    /the initializer w has the shape \[2147483648,2147483648,2147483648\], which is too large/,
  ],
  'a negative size': [graphWith(node('Neg', ['w'], ['y']), [floats('w', [-1, -1], [1])]), /the initializer w has the shape \[-1,-1\]/],
  'bytes of half an element': [
    graphWith(node('Neg', ['w'], ['y']), [{ name: 'w', dims: [1], dataType: 1, rawData: Buffer.alloc(6) }]),
    /the initializer w has 6 bytes, no multiple of 4/,
  ],
  'too many bytes': [
    graphWith(node('Neg', ['w'], ['y']), [{ name: 'w', dims: [1], dataType: 1, rawData: Buffer.alloc(8) }]),
    /the initializer w has 2 elements, and the shape \[1\] needs 1/,
  ],
  'an unknown element type': [
    graphWith(node('Neg', ['w'], ['y']), [{ name: 'w', dims: [1], dataType: -3 }]),
    /the element type -3, which is not supported/,
  ],
  'a circle': [
    graphWith([node('Neg', ['b'], ['a']), node('Neg', ['a'], ['b']), node('Neg', ['a'], ['y'])]),
    /no node and no input makes b/,
  ],
  'an input that nothing makes': [graphWith(node('Neg', ['nothing'], ['y'])), /Neg 'y' \(opset 17\): no node and no input makes nothing/],
  'an output that nothing makes': [graphWith(node('Neg', ['x'], ['z']), [], X), /nothing makes the output y/],
  'a loop without end': [
    graphWith(node('Loop', ['m', '', 'k'], ['z', 'y'], [graphOf('body', body)]), [integers('m', [], [2 ** 60]), integers('k', [1], [0])]),
    /a run makes 65536 turns of loops at most/,
  ],
  'loops in loops': [
    graphWith(
      node(
        'Loop',
        ['m', '', 'k'],
        ['y'],
        [
          graphOf('body', {
            ...body,
            node: [...body.node.slice(0, 1), node('Loop', ['m', '', 'v'], ['w', 'all'], [graphOf('body', body)])],
            output: body.output.slice(0, 2),
          }),
        ],
      ),
      [integers('m', [], [400]), integers('k', [1], [0])],
    ),
    /a run makes 65536 turns of loops at most/,
  ],
  'a loop without a body': [
    graphWith(node('Loop', ['m', ''], ['y']), [integers('m', [], [3])]),
    /Loop 'y' \(opset 17\): the attribute body is no graph/,
  ],
  'a branch without a graph': [
    graphWith(node('If', ['c'], ['y']), [{ name: 'c', dims: [], dataType: 9, int32Data: [1] }]),
    /If 'y' \(opset 17\): the attribute then_branch is no graph/,
  ],
  'functions that call functions twice': [
    graphWith(node('f0', ['x'], ['y'], [], { domain: 'd' }), [], X),
    /the model has more than 131072 nodes/,
    {
      functions: Array.from({ length: 40 }, (_, k) => ({
        name: `f${k}`,
        domain: 'd',
        input: ['a'],
        output: ['b'],
        node: [node(`f${k + 1}`, ['a'], ['c'], [], { domain: 'd' }), node(`f${k + 1}`, ['c'], ['b'], [], { domain: 'd' })],
      })),
    },
  ],
  'a function that calls itself': [
    graphWith(node('f', ['x'], ['y'], [], { domain: 'd' }), [], X),
    /function f calls functions more than 64 deep, or itself/,
    { functions: [{ name: 'f', domain: 'd', input: ['a'], output: ['b'], node: [node('f', ['a'], ['b'], [], { domain: 'd' })] }] },
  ],
  'sparse tensors with many zeros': [
    {
      ...graphWith(node('Add', ['s0', 's1'], ['y'])),
      sparseInitializer: Array.from({ length: 60 }, (_, i) => ({
        values: floats(`s${i}`, [1], [1]),
        indices: integers('at', [1], [0]),
        dims: [2 ** 26],
      })),
    },
    /the sparse tensor s4 has the shape \[67108864\], which is too large/,
  ],
  'a sparse element outside of its tensor': [
    {
      ...graphWith(node('Neg', ['s'], ['y'])),
      sparseInitializer: [{ values: floats('s', [1], [1]), indices: integers('at', [1], [HUGE]), dims: [4] }],
    },
    /the sparse tensor s has an element at \[1099511627776\], outside of its shape \[4\]/,
  ],
  Range: [
    graphWith(node('Range', ['a', 'b', 'c'], ['y']), [integers('a', [], [0]), integers('b', [], [2 ** 31]), integers('c', [], [1])]),
    LIST,
  ],
  'Range by 0': [
    graphWith(node('Range', ['a', 'b', 'c'], ['y']), [integers('a', [], [0]), integers('b', [], [9]), integers('c', [], [0])]),
    LIST,
  ],
  Tile: [graphWith(node('Tile', ['k', 's'], ['y']), [integers('s', [1], [2 ** 31]), integers('k', [1], [1])]), LIST],
  Pad: [graphWith(node('Pad', ['x', 's'], ['y']), [integers('s', [2], [2 ** 31, 0])], X), LIST],
  Resize: [graphWith(node('Resize', ['x', '', '', 's'], ['y']), [integers('s', [1], [2 ** 31])], X), LIST],
  OneHot: [
    graphWith(node('OneHot', ['i', 'd', 'v'], ['y']), [integers('i', [1], [1]), integers('d', [], [2 ** 31]), floats('v', [2], [0, 1])]),
    LIST,
  ],
  HannWindow: [graphWith(node('HannWindow', ['n'], ['y']), [integers('n', [], [2 ** 31])]), LIST],
  Split: [graphWith(node('Split', ['x'], ['y'], [int('num_outputs', HUGE)]), [], X), LIST],
  AveragePool: [
    graphWith(node('AveragePool', ['x'], ['y'], [ints('kernel_shape', [HUGE]), ints('pads', [HUGE, HUGE])]), [], [port('x', [1, 1, 8])]),
    LIST,
  ],
  ConstantOfShape: [
    graphWith([node('ConstantOfShape', ['s'], ['h']), node('Exp', ['h'], ['y'])], [integers('s', [2], [2 ** 20, 2 ** 20])]),
    LARGE,
  ],
  Expand: [graphWith([node('Expand', ['x', 's'], ['h']), node('Exp', ['h'], ['y'])], [integers('s', [2], [HUGE, 4])], X), LARGE],
  RandomNormal: [graphWith(node('RandomNormal', [], ['y'], [ints('shape', [HUGE, HUGE])])), LARGE],
  'Concat that doubles': [
    graphWith(
      Array.from({ length: 60 }, (_, i) =>
        node('Concat', [i ? `k${i}` : 'x', i ? `k${i}` : 'x'], [i === 59 ? 'y' : `k${i + 1}`], [int('axis', 0)]),
      ),
      [],
      X,
    ),
    LARGE,
  ],
  'an axis that is not there': [
    graphWith(node('Concat', ['x', 'x'], ['y'], [int('axis', HUGE)]), [], X),
    /axis 1099511627776 is out of range for 1 dimensions/,
  ],
  'RoiAlign of no rows and many samples': [
    roiAlign([int('output_height', 0), int('sampling_ratio', 2 ** 31)]),
    /output_height = 0, .*expected at least 1/,
  ],
  'RoiAlign of many samples': [roiAlign([int('sampling_ratio', 2 ** 31)]), LIST],
  'RoiAlign of many rows': [roiAlign([int('output_height', HUGE)]), LIST],
  'RoiAlign of negative samples': [roiAlign([int('sampling_ratio', -1)]), /sampling_ratio = -1: expected/],
  'RoiAlign of an image that is not there': [roiAlign([], 7), /RoiAlign 'y' \(opset 17\): a region is of image 7, and there are 1/],
  'a constant without a name': [
    graphWith([node('Constant', [], [], [{ name: 'value', type: 4, t: floats('', [2], [1, 2]) }]), node('Neg', ['none'], ['y'])]),
    /no node and no input makes none/,
  ],
  'no groups': [
    graphWith(node('Conv', ['x', 'w'], ['y'], [int('group', 0)]), [floats('w', [1, 1, 1], [1])], [port('x', [1, 1, 8])]),
    /groups must be an integer of at least 1, got 0/,
  ],
  'no window': [
    graphWith(node('MaxPool', ['x'], ['y'], [ints('kernel_shape', [0])]), [], [port('x', [1, 1, 8])]),
    /window must be an integer of at least 1, got 0/,
  ],
};

for (const [what, [graph, error, more]] of Object.entries(CASES)) {
  test(`an error: ${what}`, () => assert.rejects(runFile(bytesOf(graph, more)), error));
}

test('names twice, names of JavaScript and very many dimensions run', async () => {
  const twice = [node('Neg', ['w'], ['w']), node('Neg', ['w'], ['y'])];
  assert.deepEqual(
    [.../** @type {any} */ ((await runFile(bytesOf(graphWith(twice, [floats('w', [1], [1]), floats('w', [1], [2])])))).y.elements)],
    [2],
  );
  for (const name of ['__proto__', 'constructor', 'forward', 'toString', 'training']) {
    const graph = graphWith(node('Neg', [name], ['y'], [int('__proto__', 1)]), [floats(name, [1], [3])]);
    assert.deepEqual([.../** @type {any} */ ((await runFile(bytesOf(graph))).y.elements)], [-3], name);
  }
  const many = graphWith(node('Neg', ['w'], ['y']), [floats('w', new Array(500).fill(1), [1])]);
  assert.equal((await runFile(bytesOf(many))).y.shape.length, 500);
});

/** A field of a message with a length. @param {number} number @param {Uint8Array} bytes @param {number | bigint} [length] */
function field(number, bytes, length = bytes.length) {
  const out = [(number << 3) | 2];
  for (let rest = BigInt(length); ; rest >>= 7n) {
    out.push(Number(rest & 127n) | (rest > 127n ? 128 : 0));
    if (rest <= 127n) return Buffer.concat([Buffer.from(out), bytes]);
  }
}

test('lengths beyond the file, and messages in messages in messages', async () => {
  const some = Buffer.alloc(3);
  for (const length of [4, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1, 2n ** 53n, 2n ** 63n, 2n ** 64n - 1n]) {
    // The model's graph, and in it a node, an initializer, and the packed sizes of one.
    const parts = [
      field(7, some, length),
      field(7, field(1, some, length)),
      field(7, field(5, some, length)),
      field(7, field(5, field(1, some, length))),
    ];
    for (const bytes of parts)
      await assert.rejects(loadOnnx(bytes), /the model is damaged, or no ModelProto of ONNX|the model has no graph/, String(length));
  }
  for (const depth of [1000, 100_000]) {
    /** @type {Uint8Array} */
    let graph = Buffer.alloc(0);
    // A node's attribute has a graph, which has a node; each level copies what is in it.
    for (let i = 0; i < Math.min(depth, 1000); i++) graph = field(1, field(5, field(6, graph)));
    // Groups of unknown fields need no lengths.
    const groups = Buffer.alloc(depth, (15 << 3) | 3);
    for (const bytes of [field(7, graph), groups]) await assert.rejects(loadOnnx(bytes), /the model is damaged, or no ModelProto of ONNX/);
  }
});

test('data in other files: no way out of the folder, nothing beyond the end, no pipes', async (t) => {
  const folder = temporaryFolder(t);
  const inner = join(folder, 'model');
  mkdirSync(join(inner, 'sub'), { recursive: true });
  writeFileSync(join(folder, 'secret.bin'), Buffer.alloc(64));
  writeFileSync(join(inner, 'weights.bin'), Buffer.alloc(8));
  execFileSync('mkfifo', [join(inner, 'pipe')]);
  const path = join(inner, 'model.onnx');
  /** @type {[object, RegExp][]} */
  const cases = [
    [{ location: '../secret.bin' }, /outside of the model's folder/],
    [{ location: 'sub/../../secret.bin' }, /outside of the model's folder/],
    [{ location: './/..//secret.bin' }, /outside of the model's folder/],
    [{ location: '/etc/passwd' }, /outside of the model's folder/],
    [{ location: '..' }, /outside of the model's folder/],
    [{ location: '' }, /w is in \., which is no file/],
    [{ location: 'sub' }, /w is in sub, which is no file/],
    [{ location: 'pipe' }, /w is in pipe, which is no file/],
    [{ location: 'weights.bin\0.txt' }, /null bytes/],
    [{ location: 'weights.bin', offset: '4' }, /weights\.bin has no 8 bytes at 4 for w/],
    [{ location: 'weights.bin', offset: String(2 ** 52) }, /weights\.bin has no 8 bytes at 4503599627370496 for w/],
    [{ location: 'weights.bin', offset: '-8' }, /w takes undefined bytes from -8 of weights\.bin, expected 8/],
    [{ location: 'weights.bin', offset: '1e400' }, /expected 8/],
    [{ location: 'weights.bin', offset: 'x' }, /expected 8/],
    [{ location: 'weights.bin', length: String(2 ** 50) }, /w takes 1125899906842624 bytes .* expected 8/],
  ];
  for (const [entries, error] of cases) {
    const w = {
      name: 'w',
      dims: [2],
      dataType: 1,
      dataLocation: 1,
      externalData: Object.entries(entries).map(([key, value]) => ({ key, value })),
    };
    writeFileSync(path, bytesOf(graphWith(node('Neg', ['w'], ['y']), [w])));
    await assert.rejects(runFile(path), error, JSON.stringify(entries));
  }
  // 2^50 bytes are not allocated before it is known that they are there.
  const vast = { name: 'w', dims: [2 ** 48], dataType: 1, dataLocation: 1, externalData: [{ key: 'location', value: 'weights.bin' }] };
  writeFileSync(path, bytesOf(graphWith(node('Neg', ['w'], ['y']), [vast])));
  await assert.rejects(runFile(path), /weights\.bin has no 1125899906842624 bytes at 0 for w/);
});

test('no values are made up for an input of two billion elements; the file is described all the same', async () => {
  const file = bytesOf(graphWith(node('Neg', ['x'], ['y']), [], [port('x', [2 ** 31 - 1])]));
  const model = await loadOnnx(file);
  const message = 'the file says that the input x has the shape [2147483647]: no values are made for more than 67108864 elements';
  assert.throws(() => sampleInputs(model.inputs), { name: 'RangeError', message });
  model.dispose();
  const info = await describeOnnx(file);
  assert.deepEqual([info.operators, info.flops, info.flopsUnknown], [{ Neg: 1 }, undefined, message]);
  await assert.rejects(describeOnnx(file, { shapes: { z: [1] } }), /the model has no input z; it has x/);
});
