// Checkpoints of earlier versions of the trainer: what a file says, damage and hostile files. Those with a device are in train-run.test.mjs.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { parseObject } from 'helios-vk/files';

import { temporaryFolder } from '../../../__test__/lib/folder.mjs';
import { filled } from '../../../__test__/lib/gpt.mjs';
import { isNorm } from '../../../__test__/lib/gpt-reference.mjs';
import {
  legacyConfig,
  legacyShapes,
  legacyWeights,
  modelOfLegacy,
  safetensors,
  writeLegacy,
} from '../../../__test__/lib/legacy-checkpoint.mjs';
import { Random } from '../src/random.mjs';
import { loadCheckpoint } from '../src/train/checkpoint.mjs';
import { loadLegacy } from '../src/train/legacy.mjs';

const config = legacyConfig();
const model = modelOfLegacy(config);
const stateOf = (value = 0) => ({ weights: filled(model, value), m: filled(model, value), v: filled(model, value) });

/** A checkpoint's bytes, its parsed header and where its tensors begin. @param {string} folder */
function made(folder) {
  const path = writeLegacy(join(folder, 'step-0000007.safetensors'), { config, step: 7, run: 'one', state: stateOf(0.5) });
  const bytes = readFileSync(path);
  const begin = 8 + Number(bytes.readBigUInt64LE());
  return { path, bytes, begin, header: JSON.parse(bytes.toString('utf8', 8, begin)) };
}

test('a file that the trainer of commit 80282fb wrote is read, value by value', async (t) => {
  const path = join(temporaryFolder(t), 'step-0000004.safetensors');
  const larger = legacyConfig({
    layers: 2,
    width: 96,
    heads: 3,
    hidden: 76,
    block: 19,
    vocab: 45,
    batch: 3,
    microSteps: 2,
    warmup: 4,
    steps: 20,
  });
  const state = { weights: legacyWeights(larger), m: filled(modelOfLegacy(larger)), v: filled(modelOfLegacy(larger)) };
  // Matrices came first, and norms last.
  const order = legacyShapes(larger).sort(([a], [b]) => Number(isNorm(a)) - Number(isNorm(b)));
  for (const [k, part] of /** @type {const} */ (['m', 'v']).entries()) {
    order.forEach(([name], i) => {
      const random = new Random(31, k, i);
      const values = state[part][name];
      for (let j = 0; j < values.length; j++) values[j] = part === 'm' ? 1e-3 * random.normal() : 1e-6 * random.uniform();
    });
  }
  writeLegacy(path, { config: larger, step: 4, skipped: 1, run: 'old', state, order });
  const sha256 = createHash('sha256').update(readFileSync(path)).digest('hex');
  assert.equal(sha256, 'f9e6a78c7092c540e9b86d83f3159002b7aefcf5e534b4bd8d8d9804826163f2');
  const loaded = await loadLegacy(path);
  assert.deepEqual(loaded.state, state);
  assert.deepEqual(
    { ...loaded, state: 0 },
    {
      ...{ path, step: 4, skipped: 1, run: 'old', tokenizer: { kind: 'byte' }, data: undefined, state: 0 },
      config: {
        model: modelOfLegacy(larger),
        settings: {
          ...{ batchSize: 3, gradientAccumulationSteps: 2, blockSize: 19, maxSteps: 20, precision: 'f32', learningRate: 0.003 },
          ...{ lrScheduler: 'cosine', warmupSteps: 4, minLr: 0.0003, weightDecay: 0.1, beta1: 0.9, beta2: 0.95, epsilon: 1e-8 },
          ...{ maxGradNorm: 1, seed: 1, gradCheckpoint: false },
        },
      },
    },
  );
  const { family, norm, position, tied, qkvBias, mlp, eps } = loaded.config.model;
  assert.deepEqual([family, norm, position, tied, qkvBias, mlp, eps], ['helios-gpt', 'rms', 'learned', false, false, 'swiglu', 1e-5]);
  assert.equal((await loadCheckpoint(path)).step, 4);
});

/** @param {string} path @param {Buffer} bytes its file */
async function damageIsFound(path, bytes) {
  const begin = 8 + Number(bytes.readBigUInt64LE());
  for (const at of [begin, begin + 1, Math.floor((begin + bytes.length) / 2), bytes.length - 1]) {
    const damaged = Buffer.from(bytes);
    damaged[at] ^= 1;
    writeFileSync(path, damaged);
    await assert.rejects(loadCheckpoint(path), (/** @type {Error} */ error) => error.message.startsWith(`${path} is damaged: its `));
  }
}

test('damage to any tensor is found', async (t) => {
  const { path, bytes } = made(temporaryFolder(t));
  await damageIsFound(path, bytes);
});

test('every changed byte before the tensors is found, and every bit of what the metadata say', async (t) => {
  const { path, bytes, begin } = made(temporaryFolder(t));
  const metadata = bytes.indexOf('"token_embedding.weight"');
  assert.ok(metadata > 400 && metadata < begin);
  const file = await open(path, 'r+');
  t.after(() => file.close());
  /** @type {string[]} */
  const unfound = [];
  let changes = 0;
  for (let at = 0; at < begin; at++) {
    // Of a digit another one, of a letter another one: text that parses as before.
    const bits = at < metadata ? [1, 2, 4, 8, 16, 32, 64, 128] : [1];
    for (const bit of bits) {
      await file.write(Buffer.of(bytes[at] ^ bit), 0, 1, at);
      changes++;
      await loadCheckpoint(path).then(
        () => unfound.push(`byte ${at} ${JSON.stringify(String.fromCharCode(bytes[at], bytes[at] ^ bit))}`),
        (error) => assert.ok(error.message.includes(path), error.message),
      );
    }
    await file.write(bytes, at, 1, at);
  }
  assert.deepEqual(unfound, [], `of ${changes}`);
  assert.equal((await loadCheckpoint(path)).step, 7);
});

test('a learning rate, a step or a run that was changed on the disk is found', async (t) => {
  const { path, bytes } = made(temporaryFolder(t));
  for (const [was, is] of [
    ['\\"lr\\":0.003', '\\"lr\\":1.003'],
    ['"step":"7"', '"step":"8"'],
    ['"run":"one"', '"run":"two"'],
    ['"format":"helios-vk-gpt-2"', '"format":"helios-vk-gpt-1"'],
    ['"file_sha256":"', '"fale_sha256":"'],
  ]) {
    const at = bytes.indexOf(was);
    assert.ok(at > 0, was);
    const changed = Buffer.from(bytes);
    changed.write(is, at);
    writeFileSync(path, changed);
    await assert.rejects(loadCheckpoint(path), new RegExp(`^[A-Z]\\w+Error: ${path}.*(is damaged|file_sha256 is not)`), was);
  }
});

test('files of the format before that load, with a checksum of their tensors or without one', async (t) => {
  const { path, bytes, begin, header } = made(temporaryFolder(t));
  const { file_sha256: _, ...metadata } = header.__metadata__;
  const tensors = bytes.subarray(begin);
  const earlier = { ...metadata, format: 'helios-vk-gpt-1' };
  for (const kept of [{ sha256: createHash('sha256').update(tensors).digest('hex'), ...earlier }, earlier]) {
    const file = safetensors(JSON.stringify({ ...header, __metadata__: kept }), tensors);
    writeFileSync(path, file);
    const { state, step } = await loadLegacy(path);
    assert.equal(step, 7);
    assert.deepEqual(state.v, filled(model, 0.5));
    if ('sha256' in kept) await damageIsFound(path, file);
  }
  // Early versions let the rate rise to its end; it stays at its peak now.
  writeLegacy(path, { config: legacyConfig({ lr: 1e-4, minLr: 3e-4 }), step: 7, state: stateOf(0.5) });
  const { settings } = (await loadLegacy(path)).config;
  assert.deepEqual([settings.learningRate, settings.minLr], [1e-4, 1e-4]);
});

test('a file with numbers that no training goes on with is refused by its name and the tensor’s', async (t) => {
  const path = join(temporaryFolder(t), 'step-0000007.safetensors');
  for (const [part, prefix, value] of /** @type {const} */ ([
    ['weights', '', NaN],
    ['weights', '', -Infinity],
    ['m', 'optimizer.m.', NaN],
    ['v', 'optimizer.v.', Infinity],
    ['v', 'optimizer.v.', -1],
  ])) {
    const state = stateOf();
    state[part]['norm.weight'][2] = value;
    writeLegacy(path, { config, step: 7, state });
    await assert.rejects(loadCheckpoint(path), { message: `${path} cannot be used: element 2 of ${prefix}norm.weight is ${value}` });
  }
  writeLegacy(path, { config, step: 7, state: { ...stateOf(-1e30), v: filled(model, 1e-30) } });
  assert.equal((await loadLegacy(path)).state.m['norm.weight'][3], Math.fround(-1e30));
});

test('a hostile file is an error that names the file and the field', async (t) => {
  const { path, bytes, begin, header } = made(temporaryFolder(t));
  const tensors = bytes.subarray(begin);
  const name = 'head.weight';
  /** @param {(copy: any) => void} change */
  const changed = (change) => {
    const copy = structuredClone(header);
    change(copy);
    return safetensors(JSON.stringify(copy), tensors);
  };
  /** @param {string} key @param {unknown} value */
  const metadata = (key, value) =>
    changed((copy) => {
      copy.__metadata__[key] = value;
    });
  /** @param {string} key @param {unknown} value */
  const configured = (key, value) => metadata('config', JSON.stringify({ ...config, [key]: value }));
  /** @param {string} key @param {unknown} value */
  const entry = (key, value) =>
    changed((copy) => {
      copy[name][key] = value;
    });
  const text = JSON.stringify(header);
  /** @type {[string, Buffer, RegExp][]} */
  const cases = [
    ...['NaN', '-5', '1.5', '1e30', '', ' 3', 'null', '9999999999'].map(
      (step) => /** @type {[string, Buffer, RegExp]} */ ([`step ${step}`, metadata('step', step), /: step must be a whole number from 0/]),
    ),
    ['step a number', metadata('step', 7), /__metadata__ must have strings, got 7 for step/],
    ['more skipped steps than steps', metadata('skipped', '8'), /: skipped must be a whole number from 0 to 7, is 8/],
    ...['step', 'config', 'tokenizer', 'format'].map(
      (key) =>
        /** @type {[string, Buffer, RegExp]} */ ([`no ${key}`, metadata(key, undefined), new RegExp(`: ${key} is not in its metadata`)]),
    ),
    [
      'no metadata',
      changed((copy) => {
        delete copy.__metadata__;
      }),
      /: format is not in its metadata/,
    ],
    [
      'null metadata',
      changed((copy) => {
        copy.__metadata__ = null;
      }),
      /__metadata__ is not an object/,
    ],
    [
      'a list as metadata',
      changed((copy) => {
        copy.__metadata__ = [];
      }),
      /__metadata__ is not an object/,
    ],
    ['config null', metadata('config', 'null'), /: config is not an object but null/],
    ['config cut off', metadata('config', '{"layers":'), /: config is not JSON/],
    ['config twice', metadata('config', '{"layers":1,"layers":2}'), /: config has the key "layers" twice/],
    ['an empty config', metadata('config', '{}'), /: config cannot be used: layers must be an integer from 1 to 4096, got undefined/],
    ['1e6 layers', configured('layers', 1e6), /: config cannot be used: layers must be an integer from 1 to 4096, got 1000000/],
    ['layers a string', configured('layers', '1'), /: config cannot be used: layers/],
    ['width null', configured('width', null), /: config cannot be used: width/],
    ['1e9 vocab', configured('vocab', 1e9), /: config cannot be used: vocab/],
    ['no learning rate', configured('lr', undefined), /: config cannot be used: learningRate/],
    ['another width', configured('width', 64), /token_embedding\.weight is F32 \[256,32\], expected F32 \[256,64\]/],
    ['more layers', configured('layers', 4000), /has no tensor layers\.1\./],
    ['unknown tokenizer', metadata('tokenizer', '{"kind":"words"}'), /: tokenizer is of the kind "words"/],
    ['merges no list', metadata('tokenizer', '{"kind":"bpe","merges":7}'), /: tokenizer must hold at most/],
    ['data no object', metadata('data', '[]'), /: data is not an object but \[\]/],
    ['data without tokens', metadata('data', '{"name":"x"}'), /: data\.tokens must be a count/],
    ['another format', metadata('format', 'other'), /its format is other/],
    [
      'a tensor twice',
      safetensors(text.replace(`"${name}":`, `"norm.weight":{"dtype":"F32"},"${name}":`), tensors),
      /its header has the key "norm\.weight" twice/,
    ],
    [
      'a tensor too many',
      safetensors(text.replace(`"${name}":`, `"x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"${name}":`), tensors),
      /its model has no tensor x/,
    ],
    [
      'a tensor null',
      changed((copy) => {
        copy[name] = null;
      }),
      /its entry head\.weight is not an object/,
    ],
    ['a type of objects', entry('dtype', 'constructor'), /head\.weight is constructor \[256,32\], expected F32/],
    ['a negative size', entry('shape', [-1, -32]), /head\.weight has the shape \[-1,-32\]; sizes must be/],
    ['an endless size', entry('shape', [2 ** 40, 2 ** 40]), /its shape needs/],
    ['offsets no numbers', entry('data_offsets', ['0', '1']), /head\.weight \[256,32\] lies at bytes 0 to 1/],
    ['overlapping offsets', entry('data_offsets', [0, 32768]), /overlaps/],
    ['a mark before the header', safetensors(`\ufeff${text}`, tensors), /its header is not JSON/],
    ['a list', safetensors('[]', tensors), /its header is not an object/],
    ['null', safetensors('null', tensors), /its header is not an object/],
    ['no UTF-8', Buffer.concat([safetensors('', Buffer.alloc(0)).fill(1, 0, 1), Buffer.from([0xff])]), /its header is not UTF-8/],
    ['cut off', bytes.subarray(0, 5000), /it has 5000 bytes, its header says \d+$/],
    ['of four bytes', bytes.subarray(0, 4), /is not a safetensors file: it has 4 bytes/],
  ];
  for (const [what, file, message] of cases) {
    writeFileSync(path, file);
    await assert.rejects(loadCheckpoint(path), (/** @type {Error} */ error) => {
      assert.ok(error.message.includes(path) && message.test(error.message), `${what}: ${error.message}`);
      return true;
    });
  }
  if (process.platform !== 'win32') await assert.rejects(loadCheckpoint('/dev/zero'), /\/dev\/zero .*it is not a file/);
  await assert.rejects(loadCheckpoint(join(path, '..', 'nothing')), /nothing does not exist/);
});

test('JSON with a key twice is refused, and nothing else', () => {
  const parse = (/** @type {string} */ text) => parseObject(Buffer.from(text), (what) => new Error(what));
  for (const text of ['{"a":1,"a":2}', '{"x":[{"a":{},"b":1,"\\u0061":0}]}', '{"__proto__":1,"__proto__":2}']) {
    assert.throws(() => parse(text), /^Error: has the key ".*" twice/, text);
  }
  for (const text of ['{"a":{"a":1},"b":["a","a"],"c":"\\"a\\":"}', '{"x":[{"a":1},{"a":2}]}', '{"a":"a:","b":"{\\"a\\":1,\\"a\\":2}"}']) {
    assert.deepEqual(parse(text), JSON.parse(text));
  }
});
