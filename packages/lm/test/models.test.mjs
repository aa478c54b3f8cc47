// Models of all seven families: logits, loss and gradients against transformers (fixtures/make-models.py), import and export, errors of files
// that do not fit, several documents in one window, and training.

import { before, test } from 'node:test';
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, readdirSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { F, compile, init, load, nn, optim, save, tensor } from 'helios-vk/nn';

import { temporaryFolder } from '../../../__test__/lib/folder.mjs';
import { relativeError } from '../../../__test__/lib/reference.mjs';
import { configJson, parseConfig, readConfig } from '../src/config.mjs';
import { exportModel, importModel } from '../src/formats/hf.mjs';
import { Decoder } from '../src/model/decoder.mjs';
import { partsOf } from '../src/model/parts.mjs';

const FIXTURES = fileURLToPath(new URL('fixtures/models/', import.meta.url));
const FAMILIES = ['llama', 'mistral', 'qwen2', 'qwen3', 'olmo2', 'smollm3', 'gpt2'];
/** Relative to the tensor's length. */
const TOLERANCE = 1e-4;

before(() => init());

/** What transformers computed. @param {string} family */
const expectedOf = (family) => load(join(FIXTURES, family, 'expected.safetensors'));

for (const family of FAMILIES) {
  test(`${family}: logits, loss and all gradients are those of transformers`, async () => {
    const model = await importModel(join(FIXTURES, family));
    const expected = await expectedOf(family);
    assert.ok(relativeError(await model.forward(expected.ids).toArray(), await expected.logits.toArray()) < TOLERANCE, 'logits');
    // Three of 48 are -100, which count for nothing.
    const targets = tensor(
      Uint32Array.from(await expected.targets.toArray(), (target) => (target < 0 ? 0xffffffff : target)),
      { shape: expected.targets.shape },
    );
    const counted = 45;
    // All rows of logits at once, and 7 at a time.
    for (const logitsBytes of [2 ** 28, 7 * 4 * model.config.vocabSize]) {
      model.zeroGrad();
      const loss = model.loss(expected.ids, targets, { counted, logitsBytes });
      assert.ok(Math.abs((await loss.item()) / (await expected.loss.item()) - 1) < 1e-5, 'loss');
      loss.backward();
      const state = model.stateDict();
      for (const { name, parameter, row, shape, transposed } of partsOf(model.config)) {
        const gradient = state[parameter].grad;
        assert.ok(gradient, parameter);
        const rows = row === undefined ? gradient : F.slice(gradient, 0, row, row + shape[0]);
        const own = transposed ? F.transpose(rows, 0, 1) : rows;
        const away = relativeError(await own.toArray(), await expected[`gradient.${name}`].toArray());
        assert.ok(away < TOLERANCE, `${name}: ${away}`);
      }
    }
    model.dispose();
  });

  test(`${family}: what was imported is exported with the same numbers; import and export again give the same bytes`, async (t) => {
    const folder = temporaryFolder(t);
    const model = await importModel(join(FIXTURES, family));
    for (const dtype of /** @type {const} */ (['f32', 'bf16'])) {
      const [first, second] = [join(folder, `${dtype}-1`), join(folder, `${dtype}-2`)];
      await exportModel(model, first, { dtype, companions: join(FIXTURES, family) });
      const again = await importModel(first);
      await exportModel(again, second, { dtype });
      again.dispose();
      for (const name of ['model.safetensors', 'config.json']) {
        assert.ok(readFileSync(join(first, name)).equals(readFileSync(join(second, name))), `${dtype} ${name}`);
      }
      assert.ok(existsSync(join(first, 'generation_config.json')));
      if (dtype !== 'f32') continue;
      const [theirs, ours] = [await load(join(FIXTURES, family)), await load(first)];
      assert.deepEqual(Object.keys(ours).sort(), Object.keys(theirs).sort());
      for (const name of Object.keys(ours)) assert.deepEqual(await ours[name].toArray(), await theirs[name].toArray(), name);
      assert.deepEqual({ ...readConfig(first) }, { ...readConfig(join(FIXTURES, family)) });
    }
    model.dispose();
  });
}

test('several files with an index; names without the first word; a tied head that is there all the same', async (t) => {
  const folder = temporaryFolder(t);
  const model = await importModel(join(FIXTURES, 'qwen2'));
  await exportModel(model, join(folder, 'shards'), { dtype: 'f32', maxShardBytes: 20_000 });
  const names = readdirSync(join(folder, 'shards')).filter((name) => name.endsWith('.safetensors'));
  assert.ok(names.length > 2 && names.every((name) => /^model-0000\d-of-0000\d\.safetensors$/.test(name)), String(names));
  const again = await importModel(join(folder, 'shards'));
  const [a, b] = [model.stateDict(), again.stateDict()];
  for (const name of Object.keys(a)) assert.deepEqual(await b[name].toArray(), await a[name].toArray(), name);
  const state = await load(join(FIXTURES, 'qwen2'));
  const bare = Object.fromEntries(Object.entries(state).map(([name, value]) => [name.replace('model.', ''), value]));
  mkdirSync(join(folder, 'bare'));
  writeFileSync(join(folder, 'bare/config.json'), readFileSync(join(FIXTURES, 'qwen2/config.json')));
  await save(join(folder, 'bare/model.safetensors'), { ...bare, 'lm_head.weight': state['model.embed_tokens.weight'] });
  const third = await importModel(join(folder, 'bare'));
  assert.deepEqual(await third.stateDict()['norm.weight'].toArray(), await a['norm.weight'].toArray());
});

test('what does not fit is an error with file, key, what is there and what was expected', async (t) => {
  const folder = temporaryFolder(t);
  const json = JSON.parse(readFileSync(join(FIXTURES, 'llama/config.json'), 'utf8'));
  const rope = json.rope_parameters ?? {};
  const tryConfig = (/** @type {object} */ changes) => () => parseConfig({ ...json, ...changes }, 'x/config.json');
  for (const [changes, message] of /** @type {[object, RegExp][]} */ ([
    [{ model_type: 'mixtral' }, /x\/config\.json: "model_type" is "mixtral"; known: "llama", "mistral"/],
    [{ hidden_size: undefined }, /x\/config\.json: "hidden_size" is missing, expected an integer of at least 1/],
    [{ vocab_size: '96' }, /"vocab_size" is "96", expected an integer/],
    [{ num_key_value_heads: 3 }, /"num_attention_heads" is 4, expected a multiple of "num_key_value_heads", which is 3/],
    [{ hidden_act: 'gelu' }, /"hidden_act" is "gelu"; known: "silu"/],
    [{ rope_parameters: { ...rope, rope_type: 'yarn' } }, /"rope_parameters": "rope_type" is "yarn"; known: "default", "linear", "llama3"/],
    [{ rope_parameters: { rope_type: 'linear', rope_theta: 1e4 } }, /"rope_parameters": "factor" is missing, expected a number above 0/],
    [{ tie_word_embeddings: 'no' }, /"tie_word_embeddings" is "no", expected true or false/],
  ])) {
    assert.throws(tryConfig(changes), message);
  }
  // The words of transformers 4.
  const { base, type, ...rest } = /** @type {any} */ (parseConfig(json, 'x').rope);
  const older = {
    ...json,
    rope_parameters: undefined,
    rope_theta: base,
    rope_scaling: {
      type,
      factor: rest.factor,
      low_freq_factor: rest.lowFactor,
      high_freq_factor: rest.highFactor,
      original_max_position_embeddings: rest.original,
    },
  };
  assert.deepEqual(parseConfig(older, 'x'), parseConfig(json, 'x'));
  for (const family of FAMILIES) {
    const config = readConfig(join(FIXTURES, family));
    assert.deepEqual(parseConfig(JSON.parse(JSON.stringify(configJson(config, 'float32'))), 'x'), config);
  }

  // Windows of some layers alone, and each family's own defaults.
  const mistral = readConfig(join(FIXTURES, 'mistral'));
  const mixed = { ...mistral, windows: [null, 7] };
  assert.deepEqual(parseConfig(JSON.parse(JSON.stringify(configJson(mixed, 'float32'))), 'x').windows, [null, 7]);
  const bare = {
    vocab_size: 9,
    hidden_size: 8,
    num_hidden_layers: 1,
    num_attention_heads: 2,
    intermediate_size: 8,
    max_position_embeddings: 8,
  };
  assert.equal(parseConfig({ ...bare, model_type: 'olmo2' }, 'x').eps, 1e-5);
  assert.deepEqual(parseConfig({ ...bare, model_type: 'smollm3' }, 'x').rope, { base: 2e6, type: 'default' });

  const model = await importModel(join(FIXTURES, 'gpt2'));
  const change = async (/** @type {string} */ name, /** @type {(state: Record<string, any>) => void} */ edit) => {
    const path = join(folder, name);
    await exportModel(model, path, { dtype: 'f32' });
    const state = await load(path);
    edit(state);
    await save(join(path, 'model.safetensors'), state);
    return path;
  };
  const pickled = join(folder, 'pickled');
  await exportModel(model, pickled);
  renameSync(join(pickled, 'model.safetensors'), join(pickled, 'pytorch_model.bin'));
  await assert.rejects(
    importModel(pickled),
    /pickled has no model\.safetensors\. pytorch_model\.bin is pickled.* Convert it with transformers/,
  );
  const missing = await change('missing', (state) => delete state['transformer.h.1.mlp.c_fc.bias']);
  await assert.rejects(importModel(missing), /missing has no transformer\.h\.1\.mlp\.c_fc\.bias/);
  const extra = await change('extra', (state) => (state.classifier = state['transformer.ln_f.bias']));
  await assert.rejects(importModel(extra), /extra has classifier, which a gpt2 has not/);
  const shape = await change('shape', (state) => (state['transformer.ln_f.bias'] = tensor([1, 2])));
  await assert.rejects(importModel(shape), /shape: transformer\.ln_f\.bias is \[2\], expected \[32\] by config\.json/);
  await assert.rejects(importModel(join(folder, 'nothing')), /nothing.config\.json: ENOENT/);
  await exportModel(model, join(folder, 'damaged'), { dtype: 'f32' });
  const file = readFileSync(join(folder, 'damaged/model.safetensors'));
  file[file.length - 9] ^= 4;
  writeFileSync(join(folder, 'damaged/model.safetensors'), file);
  await assert.rejects(importModel(join(folder, 'damaged')), /model\.safetensors is damaged/);
  await assert.rejects(importModel(join(FIXTURES, 'gpt2'), { signal: AbortSignal.abort() }), { name: 'AbortError' });
  await assert.rejects(exportModel(model, join(folder, 'new'), { signal: AbortSignal.abort() }), { name: 'AbortError' });
  writeFileSync(join(shape, 'config.json'), '{"model_type"');
  await assert.rejects(importModel(shape), /config\.json is not a file of JSON: /);
  // Some editors put this mark first.
  writeFileSync(join(shape, 'config.json'), `\ufeff${readFileSync(join(FIXTURES, 'llama/config.json'), 'utf8')}`);
  assert.equal(readConfig(shape).family, 'llama');
  await assert.rejects(exportModel(model, missing), /missing is not empty/);
  await assert.rejects(
    exportModel(model, join(folder, 'new'), { dtype: /** @type {any} */ ('int8') }),
    /no dtype int8; there are f32, f16, bf16/,
  );
  assert.ok(!existsSync(join(folder, 'new')));
  assert.throws(() => model.forward(tensor(new Uint32Array(65), { shape: [1, 65] })), /65 tokens; the model's context is 64/);
  assert.throws(() => model.forward(tensor(new Uint32Array(5))), /ids are \[batch, tokens\], got \[5\]/);
});

test('documents that share a window do not see each other', async () => {
  // The last one has heads that the fused kernel takes.
  for (const family of ['mistral', 'gpt2', 'qwen3', 'mistral, heads of 32']) {
    const fused = family.endsWith('32');
    const model = fused
      ? new Decoder({ ...readConfig(join(FIXTURES, 'mistral')), headSize: 32 })
      : await importModel(join(FIXTURES, family));
    const ids = Uint32Array.from({ length: 20 }, (_, i) => (i * 37 + 5) % model.config.vocabSize);
    const together = model.forward(tensor(ids, { shape: [1, 20] }), {
      positions: tensor(
        Uint32Array.from(ids, (_, i) => (i < 9 ? i : i - 9)),
        { shape: [1, 20] },
      ),
      firstKey: tensor(
        Float32Array.from(ids, (_, i) => (i < 9 ? 0 : 9)),
        { shape: [1, 20] },
      ),
    });
    const rows = await together.toArray();
    const { vocabSize } = model.config;
    for (const [from, to] of [
      [0, 9],
      [9, 20],
    ]) {
      const alone = await model.forward(tensor(ids.slice(from, to), { shape: [1, to - from] })).toArray();
      assert.ok(relativeError(rows.slice(from * vocabSize, to * vocabSize), alone) < 1e-5, `${family} ${from}`);
    }
    const joined = await model.forward(tensor(ids, { shape: [1, 20] })).toArray();
    assert.ok(relativeError(rows.slice(9 * vocabSize), joined.slice(9 * vocabSize)) > 1e-3, 'without it they do');
    model.dispose();
  }
});

test('a model of its own trains, compiled as called, and is exported', async (t) => {
  const config = { ...readConfig(join(FIXTURES, 'llama')), vocabSize: 61 };
  const ids = tensor(
    Uint32Array.from({ length: 64 }, (_, i) => (i * i) % 61),
    { shape: [4, 16] },
  );
  const targets = tensor(
    Uint32Array.from({ length: 64 }, (_, i) => ((i + 1) * (i + 1)) % 61),
    { shape: [4, 16] },
  );
  /** @type {number[][]} */
  const losses = [];
  let state;
  for (const compiled of [false, true]) {
    const model = new Decoder(config);
    if (state) model.loadStateDict(state);
    state = Object.fromEntries(Object.entries(model.stateDict()).map(([name, value]) => [name, F.clone(value).detach()]));
    const optimizer = new optim.AdamW(model.parameters(), { lr: 1e-2 });
    const step = () => {
      optimizer.zeroGrad();
      const loss = model.loss(ids, targets);
      loss.backward();
      optimizer.step();
      return loss;
    };
    const run = compiled ? compile(step) : step;
    const own = [];
    for (let i = 0; i < 12; i++) own.push(await run().item());
    losses.push(own);
    // Of an untrained model: ln 61.
    assert.ok(Math.abs(own[0] - Math.log(61)) < 0.5 && own[11] < own[0] / 2, String(own));
    const folder = join(temporaryFolder(t), 'out');
    await exportModel(model, folder, { dtype: 'f32' });
    const again = await importModel(folder);
    assert.equal(await again.loss(ids, targets).item(), await model.loss(ids, targets).item());
    assert.ok(again instanceof nn.Module);
  }
  assert.ok(relativeError(losses[1], losses[0]) < 1e-3, JSON.stringify(losses));
});
