// The command line: help, wrong arguments, and the commands on models of the fixtures.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { load } from 'helios-vk/nn';
import { describeOnnx, loadOnnx, readNpz, runOnnx, sampleInputs, writeNpz } from 'helios-onnx';
import { encode } from '../src/proto.mjs';

const PROGRAM = fileURLToPath(new URL('../bin/helios-onnx.mjs', import.meta.url));
const FOLDER = fileURLToPath(new URL('fixtures/models/', import.meta.url));
const [UNET, BERT] = ['unet', 'bert'].map((name) => join(FOLDER, `${name}.onnx`));

/** @param {string[]} args */
function run(...args) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [PROGRAM, ...args], { encoding: 'utf8' });
  return { status, stdout, stderr };
}
/** @param {(folder: string) => Promise<void>} use */
async function inFolder(use) {
  const folder = mkdtempSync(join(tmpdir(), 'helios-onnx-'));
  try {
    await use(folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test('help, version and wrong command lines', () => {
  const help = run('--help');
  assert.equal(help.status, 0);
  for (const command of ['run', 'info', 'bench']) {
    assert.ok(help.stdout.includes(`helios-onnx ${command} `), command);
    assert.match(run(command, '--help').stdout, new RegExp(`^Usage: helios-onnx ${command} `));
  }
  assert.match(run('--version').stdout, /^\d+\.\d+\.\d+\n$/);
  for (const [args, message] of /** @type {[string[], RegExp][]} */ ([
    [['fly'], /^helios-onnx: no command fly; there are run, info, bench \(see --help\)\n$/],
    [['info'], /usage: helios-onnx info MODEL\.onnx/],
    [['info', UNET, BERT], /usage: helios-onnx info MODEL\.onnx/],
    [['info', '/nowhere/x.onnx'], /the model \/nowhere\/x\.onnx cannot be read: no such file or folder/],
    [['info', FOLDER], /the model .* cannot be read: it is a folder/],
    [['run', UNET, '--inputs', '/nowhere/x.npz'], /--inputs \/nowhere\/x\.npz: cannot be read/],
    [['run', UNET, '--outputs', UNET], /--outputs .*it is the model/],
    [['run', UNET, '--shape', 'image'], /--shape image: must be NAME=SIZES/],
    [['run', UNET, '--inputs', UNET, '--shape', 'image=1'], /--shape: the shapes are those of --inputs/],
    [['bench', UNET, '--rounds', '0'], /--rounds 0: must be an integer from 1/],
    [['info', UNET, '--nonsense'], /--nonsense/],
  ])) {
    const { status, stderr } = run(...args);
    assert.equal(status, 2, stderr);
    assert.match(stderr, message);
  }
  const damaged = run('run', UNET, '--inputs', UNET);
  assert.equal(damaged.status, 1);
  assert.match(damaged.stderr, /^helios-onnx: .*unet\.onnx cannot be read: it is no ZIP archive\n$/);
});

test('run computes what PyTorch did, from and to .npz files', () =>
  inFolder(async (folder) => {
    const [from, to] = ['in.npz', 'out.npz'].map((name) => join(folder, name));
    const expected = await load(join(FOLDER, 'unet.safetensors'));
    // NumPy's arrays are of 64 bits unless told otherwise.
    /** @type {Record<string, import('../src/npz.mjs').HostArray>} */
    const given = {};
    for (const name of ['image', 'time']) {
      const value = expected[`input.${name}`];
      given[name] = { type: 'double', shape: value.shape, elements: Float64Array.from(/** @type {any} */ (await value.toArray())) };
    }
    writeFileSync(from, writeNpz(given, { compress: true }));
    const { status, stdout, stderr } = run('run', UNET, '--inputs', from, '--outputs', to, '--json');
    assert.equal(status, 0, stderr);
    const [{ name, type, shape, least, most }] = JSON.parse(stdout);
    assert.deepEqual([name, type, shape], ['noise', 'float', [2, 2, 16, 16]]);
    const { noise } = readNpz(readFileSync(to), to);
    const wanted = await expected['output.noise'].toArray();
    noise.elements.forEach((/** @type {any} */ each, /** @type {number} */ i) => assert.ok(Math.abs(each - Number(wanted[i])) < 1e-4));
    assert.deepEqual([Math.min(.../** @type {any} */ (noise.elements)), Math.max(.../** @type {any} */ (noise.elements))], [least, most]);
    assert.match(run('run', UNET).stdout, /^noise: float \[2, 2, 16, 16\] from -?[\d.]+ to [\d.]+, mean -?[\d.]+\n$/);
    const missing = run('run', BERT, '--inputs', from);
    assert.deepEqual(
      [missing.status, missing.stderr],
      [1, 'helios-onnx: the model has no input image; it has input_ids, attention_mask\n'],
    );
  }));

test('inputs are converted where their numbers stay, and errors name what does not fit', async () => {
  const port = (/** @type {string} */ name, /** @type {number} */ elemType) => ({
    name,
    type: { tensorType: { elemType, shape: { dim: [{ dimValue: 2 }] } } },
  });
  const graph = {
    node: [
      { opType: 'Identity', input: ['f'], output: ['a'] },
      { opType: 'Add', input: ['i', 'i'], output: ['b'] },
    ],
    input: [port('f', 10), port('i', 3)],
    output: [port('a', 10), port('b', 3)],
  };
  const model = await loadOnnx(encode('ModelProto', { irVersion: 8, opsetImport: [{ domain: '', version: 17 }], graph }));
  const [f, i] = [
    { type: /** @type {const} */ ('double'), shape: [2], elements: Float64Array.of(1.5, -2) },
    { type: /** @type {const} */ ('int64'), shape: [2], elements: BigInt64Array.of(5n, -6n) },
  ];
  assert.deepEqual(await runOnnx(model, { f, i }), {
    a: { type: 'float16', shape: [2], elements: Float32Array.of(1.5, -2) },
    b: { type: 'int8', shape: [2], elements: Int8Array.of(10, -12) },
  });
  await assert.rejects(runOnnx(model, { f }), /^TypeError: the input i is missing$/);
  await assert.rejects(runOnnx(model, { f: i, i }), /^TypeError: the input f is float16 in the file, got int64$/);
  await assert.rejects(
    runOnnx(model, { f, i: { ...i, elements: BigInt64Array.of(5n, 200n) } }),
    /^TypeError: element 1 of the input i, 200, is not a value of int8$/,
  );
  await assert.rejects(runOnnx(model, { f, i: { ...i, shape: [1, 2] } }), /the input i must have the shape \[2\], got \[1,2\]/);
  assert.throws(() => sampleInputs(model.inputs, { z: [1] }), /^TypeError: the model has no input z; it has f, i$/);
  model.dispose();
});

test('info says what is in a file, and counts operations', async () => {
  const { status, stdout, stderr } = run('info', BERT, '--shape', 'input_ids=2,7', '--shape', 'attention_mask=2,7');
  assert.equal(status, 0, stderr);
  for (const part of [/^opset: {6}ONNX 18$/m, /input_ids: int64 \[/, /^parameters: 11,870; all initializers take 48\.1 kB$/m, /16 MatMul/])
    assert.match(stdout, part);
  // Two layers of 24 with 40 hidden: four products of 24 × 24 and two of 24 × 40 for each of 14 positions, scores and values of 7 keys; the pooler.
  const perPosition = 4 * 24 * 24 + 2 * 24 * 40 + 2 * 7 * 24;
  const flops = 2 * (2 * 14 * perPosition + 2 * 24 * 24);
  assert.match(stdout, new RegExp(`^operations: ${flops.toLocaleString('en')} of products and convolutions`, 'm'));
  const json = JSON.parse(run('info', UNET, '--no-flops', '--json').stdout);
  assert.deepEqual(json.opsets, { '': 18 });
  assert.deepEqual(json.inputs[1], { name: 'time', type: 'float', shape: [2, 1] });
  assert.equal(json.operators.ConvTranspose, 1);
  assert.equal(json.flops, undefined);
});

test('operations of convolutions, products, recurrences and einsum', async () => {
  const port = (/** @type {string} */ name, /** @type {number[]} */ sizes) => ({
    name,
    type: { tensorType: { elemType: 1, shape: { dim: sizes.map((dimValue) => ({ dimValue })) } } },
  });
  const ints = (/** @type {string} */ name, /** @type {number[]} */ ints) => ({ name, type: 7, ints });
  const int = (/** @type {string} */ name, /** @type {number} */ i) => ({ name, type: 2, i });
  /** @type {[string, number[][], object[], number][]} */
  const cases = [
    [
      'MatMul',
      [
        [2, 3, 4],
        [4, 5],
      ],
      [],
      2 * 2 * 3 * 4 * 5,
    ],
    [
      'Gemm',
      [
        [4, 3],
        [4, 5],
      ],
      [int('transA', 1)],
      2 * 3 * 4 * 5,
    ],
    [
      'Conv',
      [
        [2, 4, 8, 8],
        [6, 2, 3, 3],
      ],
      [int('group', 2), ints('strides', [2, 2])],
      2 * (2 * 6 * 3 * 3) * 2 * 9,
    ],
    [
      'ConvTranspose',
      [
        [1, 4, 5],
        [4, 3, 2],
      ],
      [],
      2 * (4 * 5) * 3 * 2,
    ],
    [
      'Einsum',
      [
        [2, 3, 4],
        [2, 4, 5],
      ],
      [{ name: 'equation', type: 3, s: Buffer.from('bij,bjk->bik') }],
      2 * 2 * 3 * 4 * 5,
    ],
    [
      'LSTM',
      [
        [6, 2, 3],
        [1, 16, 3],
        [1, 16, 4],
      ],
      [int('hidden_size', 4)],
      2 * 6 * 2 * (16 * 3 + 16 * 4),
    ],
    ['Relu', [[2, 3]], [], 0],
  ];
  for (const [opType, shapes, attribute, flops] of cases) {
    const input = shapes.map((_, i) => `x${i}`);
    const graph = {
      node: [{ opType, input, output: ['y'], attribute }],
      input: shapes.map((sizes, i) => port(`x${i}`, sizes)),
      output: [{ name: 'y' }],
    };
    const info = await describeOnnx(encode('ModelProto', { irVersion: 8, opsetImport: [{ domain: '', version: 17 }], graph }));
    assert.equal(info.flopsUnknown, undefined);
    assert.equal(info.flops, flops, opType);
  }
});

test('bench times a model, beside onnxruntime-node where it is', () =>
  inFolder(async (folder) => {
    const args = ['bench', UNET, '--rounds', '3', '--milliseconds', '1'];
    const alone = JSON.parse(run(...args, '--onnxruntime', folder, '--json').stdout);
    assert.equal(alone.onnxruntime, undefined);
    assert.deepEqual(alone.shapes, { image: [2, 2, 16, 16], time: [2, 1] });
    for (const { median, runs } of [alone.call, alone.latency]) assert.ok(median > 0 && runs.length === 3 && runs.includes(median));
    // A stand-in: it gives zeros for the inputs that it checks.
    const place = join(folder, 'node_modules/onnxruntime-node');
    spawnSync('mkdir', ['-p', place]);
    writeFileSync(join(place, 'package.json'), '{"main": "index.js"}');
    writeFileSync(
      join(place, 'index.js'),
      `exports.env = { versions: { common: '1.2.3' } };
       exports.Tensor = class { constructor(type, data, dims) { Object.assign(this, { type, data, dims }); } };
       exports.InferenceSession = { create: async () => ({ run: async ({ image, time }) => {
         if (image.type !== 'float32' || image.data.length !== 1024 || String(time.dims) !== '2,1') throw new Error('other inputs');
         return { noise: { data: new Float32Array(1024) } };
       } }) };`,
    );
    const both = run(...args, '--onnxruntime', folder);
    assert.match(both.stdout, /^helios-onnx: \S+ ms a call, \S+ ms if each is waited for; loaded in \d+ ms, first call \d+ ms$/m);
    assert.match(
      both.stdout,
      /^onnxruntime-node 1\.2\.3, CPU: \S+ ms a call, loaded in \d+ ms; outputs differ by Infinity of the largest/m,
    );
  }));
