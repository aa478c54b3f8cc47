// The command line: help, wrong arguments, and the commands on models of the fixtures.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { load } from 'helios-vk/nn';
import { describeOnnx, readNpz, writeNpz } from 'helios-onnx';
import { temporaryFolder } from '../../../__test__/lib/folder.mjs';
import { bytesOf, int, ints, port } from './lib/messages.mjs';

const PROGRAM = fileURLToPath(new URL('../bin/helios-onnx.mjs', import.meta.url));
const FOLDER = fileURLToPath(new URL('fixtures/models/', import.meta.url));
const [UNET, BERT] = ['unet', 'bert'].map((name) => join(FOLDER, `${name}.onnx`));

/** @param {string[]} args */
function run(...args) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [PROGRAM, ...args], { encoding: 'utf8' });
  return { status, stdout, stderr };
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

test('run computes what PyTorch did, from and to .npz files', async (t) => {
  const folder = temporaryFolder(t);
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
  assert.deepEqual([missing.status, missing.stderr], [1, 'helios-onnx: the model has no input image; it has input_ids, attention_mask\n']);
});

test('inputs are converted where their numbers stay, and errors name what does not fit', async () => {
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
    const info = await describeOnnx(bytesOf(graph));
    assert.equal(info.flopsUnknown, undefined);
    assert.equal(info.flops, flops, opType);
  }
});

test('bench times a model, beside onnxruntime-node where it is', async (t) => {
  const folder = temporaryFolder(t);
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
  assert.match(both.stdout, /^onnxruntime-node 1\.2\.3, CPU: \S+ ms a call, loaded in \d+ ms; outputs differ by Infinity of the largest/m);
});
