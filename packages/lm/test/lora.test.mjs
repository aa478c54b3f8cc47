// Adapters of a decoder: against PEFT (fixtures/make-adapters.py) and float64, beside weights in q8_0 too; PEFT's folders in and out; files
// that do not fit.

import { before, test } from 'node:test';
import assert from 'node:assert/strict';
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { F, autocast, compile, grad, init, load, manualSeed, noGrad, optim, save, scope, tensor } from 'helios-vk/nn';

import { temporaryFolder } from '../../../__test__/lib/folder.mjs';
import { relativeError } from '../../../__test__/lib/reference.mjs';
import { exportModel, importModel } from '../src/formats/hf.mjs';
import { loadPeft, savePeft } from '../src/formats/peft.mjs';
import {
  adapterParameters,
  adapterPlaces,
  adaptersOf,
  addAdapters,
  layerOf,
  mergeAdapters,
  quantizeLayers,
  removeAdapters,
} from '../src/model/lora.mjs';

const [MODELS, ADAPTERS] = ['models/', 'adapters/'].map((name) => fileURLToPath(new URL(`fixtures/${name}`, import.meta.url)));
const NAMES = ['llama', 'gpt2'];

/** @typedef {import('../src/model/decoder.mjs').Decoder} Decoder */

before(() => init());

const modelOf = (/** @type {string} */ name) => importModel(join(MODELS, name));
const idsOf = async (/** @type {string} */ name) => (await load(join(MODELS, name, 'expected.safetensors'))).ids;
const IDS = Uint32Array.from({ length: 24 }, (_, i) => (i * 37 + 11) % 96);
const ids = () => tensor(IDS, { shape: [2, 12] });
const targets = () => tensor(IDS.toReversed(), { shape: [2, 12] });
const logitsOf = (/** @type {Decoder} */ model, given = ids()) => noGrad(() => model.forward(given)).toArray();

/** Random numbers in both matrices of each adapter. @param {Decoder} model */
function fill(model) {
  manualSeed(7);
  noGrad(() => {
    for (const parameter of adapterParameters(model)) parameter.copy_(F.mul(F.randnLike(parameter), 0.2));
  });
  return model;
}

/** @param {Decoder} model @param {{ step?: (loss: () => any) => any }} [how] @returns {Promise<Float32Array[]>} by adapter, A then B */
async function gradientsOf(model, { step = (loss) => scope(() => loss().backward()) } = {}) {
  model.zeroGrad();
  await step(() => model.loss(ids(), targets()));
  return Promise.all(adapterParameters(model).map((parameter) => /** @type {any} */ (parameter.grad).toArray()));
}

for (const name of NAMES) {
  test(`${name}: with an adapter of PEFT the logits are PEFT's, beside the weights and merged; it is written again with the same bytes`, async (t) => {
    const folder = temporaryFolder(t);
    const expected = await (await load(join(ADAPTERS, name, 'expected.safetensors'))).logits.toArray();
    const given = await idsOf(name);
    const model = await modelOf(name);
    const plain = await logitsOf(model, given);
    const { base } = await loadPeft(join(ADAPTERS, name), model);
    assert.equal(base, name);
    // Its dropout is of training.
    const away = relativeError(await logitsOf(model.eval(), given), expected);
    assert.ok(away < 1e-5, `${away}`);
    await savePeft(join(folder, 'first'), model, { base });
    const again = await modelOf(name);
    await loadPeft(join(folder, 'first'), again);
    await savePeft(join(folder, 'second'), again, { base });
    for (const file of ['adapter_config.json', 'adapter_model.safetensors'])
      assert.ok(readFileSync(join(folder, 'first', file)).equals(readFileSync(join(folder, 'second', file))), file);
    const [theirs, ours] = await Promise.all(
      [join(ADAPTERS, name), join(folder, 'first')].map((at) => load(join(at, 'adapter_model.safetensors'))),
    );
    assert.deepEqual(Object.keys(ours).sort(), Object.keys(theirs).sort());
    for (const key of Object.keys(theirs)) assert.deepEqual(await ours[key].toArray(), await theirs[key].toArray(), key);
    assert.deepEqual(await logitsOf(removeAdapters(model), given), plain);
    assert.ok(relativeError(await logitsOf(mergeAdapters(again), given), expected) < 1e-5);
    assert.equal(adaptersOf(again).length, 0);
    // What was merged is a model like any other.
    await exportModel(again, join(folder, 'merged'), { dtype: 'f32' });
    const third = await importModel(join(folder, 'merged'));
    assert.deepEqual(await logitsOf(third, given), await logitsOf(again, given));
  });

  test(`${name}: gradients are those of float64, eager, with checkpoints and compiled; nothing else has one`, async () => {
    const model = fill(addAdapters(await modelOf(name), { rank: 3, alpha: 5 }));
    const found = await gradientsOf(model);
    for (const parameter of model.parameters()) assert.equal(parameter.requiresGrad, adapterParameters(model).includes(parameter));
    // Those of the merged weights W = W₀ + s B A, of which models.test.mjs says that they are right, give dB = s dW Aᵀ and dA = s Bᵀ dW.
    const matrices = await Promise.all(
      adaptersOf(model).map(async ({ place, adapter }) => ({
        ...{ place, scale: adapter.scale, a: await adapter.lora_A.weight.toArray(), b: await adapter.lora_B.weight.toArray() },
      })),
    );
    const merged = mergeAdapters(model).requiresGrad_();
    scope(() => merged.loss(ids(), targets()).backward());
    for (const [i, { place, scale, a, b }] of matrices.entries()) {
      const { row, inputs, outputs, layer, path } = place;
      const whole = await /** @type {any} */ (layerOf(merged, layer).weight).grad.toArray();
      const [dA, dB] = [new Float64Array(3 * inputs), new Float64Array(outputs * 3)];
      for (let o = 0; o < outputs; o++)
        for (let k = 0; k < inputs; k++)
          for (let r = 0; r < 3; r++) {
            const dW = scale * whole[(row + o) * inputs + k];
            dB[o * 3 + r] += dW * a[r * inputs + k];
            dA[r * inputs + k] += dW * b[o * 3 + r];
          }
      assert.ok(relativeError(found[2 * i], dA) < 2e-5, `${path} A`);
      assert.ok(relativeError(found[2 * i + 1], dB) < 2e-5, `${path} B`);
    }
    for (const gradCheckpoint of [true, false]) {
      const other = fill(addAdapters(await modelOf(name), { rank: 3, alpha: 5 }));
      other.gradCheckpoint = gradCheckpoint;
      const taken = compile(() => grad(other.loss(ids(), targets()), adapterParameters(other)));
      const same = gradCheckpoint ? await gradientsOf(other) : await Promise.all(taken().map((gradient) => gradient.toArray()));
      for (const [i, gradient] of same.entries()) assert.ok(relativeError(gradient, found[i]) < 1e-5, `${gradCheckpoint} ${i}`);
    }
  });
}

test('beside weights in q8_0 an adapter gets the gradients that it gets beside what these represent', async () => {
  for (const half of /** @type {const} */ ([false, 'bf16'])) {
    const [quantized, decoded] = [await modelOf('llama'), await modelOf('llama')];
    quantizeLayers(addAdapters(quantized, { rank: 3, targets: ['q_proj', 'up_proj', 'o_proj'] }));
    addAdapters(decoded, { rank: 3, targets: ['q_proj', 'up_proj', 'o_proj'] });
    for (const model of [quantized, decoded]) fill(model);
    const layers = [...new Set(adapterPlaces(decoded.config).map(({ layer }) => layer))];
    // 48 hidden elements are not of whole blocks.
    assert.deepEqual(
      layers.filter((layer) => layerOf(quantized, layer).weight),
      ['layers.0.mlp.down', 'layers.1.mlp.down'],
    );
    for (const layer of layers) {
      const { quants, scales } = /** @type {any} */ (layerOf(quantized, layer));
      if (quants) noGrad(() => void (/** @type {any} */ (layerOf(decoded, layer).weight).copy_(F.dequantizeQ8({ quants, scales }))));
    }
    const within = (/** @type {() => any} */ run) => (half ? autocast(half, run) : run());
    const of = (/** @type {Decoder} */ model) => gradientsOf(model, { step: (loss) => scope(() => within(loss).backward()) });
    const [found, wanted] = [await of(quantized), await of(decoded)];
    for (const [i, gradient] of found.entries()) assert.ok(relativeError(gradient, wanted[i]) < (half ? 3e-2 : 1e-5), `${half} ${i}`);
    const [before, own] = [await logitsOf(await modelOf('llama')), await logitsOf(removeAdapters(quantized))];
    assert.ok(relativeError(own, before) > 1e-4 && relativeError(own, before) < 3e-2, `${relativeError(own, before)}`);
    assert.throws(() => mergeAdapters(addAdapters(quantized)), /layers\.0\.attention\.qkv is in q8_0, which would round away an adapter/);
  }
});

test('a few steps on one batch lower the loss, with dropout, and change the adapters alone, of weights in 16 and in 8 bits', async () => {
  for (const quantize of [false, true]) {
    const model = addAdapters(await modelOf('llama'), { rank: 4, dropout: 0.1 });
    if (quantize) quantizeLayers(model);
    const adapters = new Set(adapterParameters(model));
    const frozen = Object.entries(model.stateDict()).filter(([, own]) => !adapters.has(/** @type {any} */ (own)));
    const before = await Promise.all(frozen.map(([, own]) => own.toArray()));
    const first = await logitsOf(model.eval());
    assert.deepEqual(first, await logitsOf(model.eval()));
    model.train();
    const opt = new optim.AdamW(adapterParameters(model), { lr: 0.02 });
    const step = compile(() => {
      const loss = autocast('bf16', () => model.loss(ids(), targets()));
      loss.backward();
      opt.step();
      return loss;
    });
    const losses = [];
    for (let i = 0; i < 20; i++) losses.push(await step().item());
    assert.ok(losses[19] < 0.8 * losses[0], `${losses[0]} to ${losses[19]}`);
    for (const [i, [name, own]] of frozen.entries()) assert.deepEqual(await own.toArray(), before[i], name);
    // B was zero, so that the first two forward passes differ by nothing; now dropout shows.
    assert.notDeepEqual(await logitsOf(model), await logitsOf(model));
    assert.deepEqual(await logitsOf(model.eval()), await logitsOf(model.eval()));
  }
});

test('targets: last words of names; one that names no layer, ranks and shares out of range, and a second adapter are errors', async () => {
  const pathsOf = (/** @type {Decoder} */ model) => adaptersOf(model).map(({ place }) => place.path.replace(/^\D*\d+\./, ''));
  const gpt2 = await modelOf('gpt2');
  assert.deepEqual(pathsOf(addAdapters(gpt2, { targets: ['c_proj'] })).slice(0, 2), ['attn.c_proj', 'mlp.c_proj']);
  assert.deepEqual(pathsOf(addAdapters(removeAdapters(gpt2), { targets: ['mlp.c_proj'] })), ['mlp.c_proj', 'mlp.c_proj']);
  assert.throws(() => addAdapters(gpt2), /^Error: the decoder has adapters already: merge or remove them first/);
  const llama = await modelOf('llama');
  for (const [options, message] of /** @type {[any, RegExp][]} */ ([
    [
      { targets: ['q_proj', 'lm_head'] },
      /targets must name linear layers of a llama \(q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj\), got "lm_head"/,
    ],
    [{ targets: [] }, /targets must be 'all' or a list of names, got a list of 0/],
    [{ rank: 0 }, /rank must be an integer of at least 1, got 0/],
    [{ alpha: -1 }, /alpha must be a number above 0, got -1/],
    [{ dropout: 1 }, /dropout must be a number from 0 and below 1, got 1/],
    [{ ranks: 8 }, /addAdapters has no option ranks; the nearest is rank/],
  ]))
    assert.throws(() => addAdapters(llama, options), message);
  assert.equal(adaptersOf(llama).length, 0);
  await assert.rejects(savePeft('/nowhere/at/all', llama), /the decoder has no adapters to save/);
});

test('files that do not fit are errors with file, key, what is there and what was expected', async (t) => {
  const folder = temporaryFolder(t);
  const model = await modelOf('llama');
  const json = JSON.parse(readFileSync(join(ADAPTERS, 'llama/adapter_config.json'), 'utf8'));
  const state = await load(join(ADAPTERS, 'llama/adapter_model.safetensors'));
  const key = 'base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight';
  let count = 0;
  /** @param {object} changes of the configuration @param {Record<string, any>} [tensors] @returns {Promise<string>} */
  const folderWith = async (changes, tensors) => {
    const path = join(folder, String(count++));
    mkdirSync(path);
    writeFileSync(join(path, 'adapter_config.json'), JSON.stringify({ ...json, ...changes }));
    if (tensors) await save(join(path, 'adapter_model.safetensors'), tensors);
    else cpSync(join(ADAPTERS, 'llama/adapter_model.safetensors'), join(path, 'adapter_model.safetensors'));
    return path;
  };
  for (const [changes, message] of /** @type {[object, RegExp][]} */ ([
    [{ peft_type: 'IA3' }, /adapter_config\.json: "peft_type" is "IA3", expected "LORA"/],
    [{ use_dora: true }, /"use_dora" is true, expected false: only plain LoRA is read/],
    [{ bias: 'all' }, /"bias" is "all", expected "none"/],
    [{ modules_to_save: ['lm_head'] }, /"modules_to_save" is \["lm_head"\], expected null/],
    [{ init_lora_weights: 'pissa' }, /"init_lora_weights" is "pissa", expected true, false, "gaussian"/],
    [{ target_modules: null }, /"target_modules" is null, expected a list of names, or an expression/],
    [{ target_modules: '(' }, /"target_modules" is "\(", expected a list of names, or an expression/],
    [{ rank_pattern: { '(': 2 } }, /"rank_pattern" is \{"\(":2\}, expected expressions by which modules are named/],
    [{ r: 0 }, /"r" is 0, expected an integer of at least 1/],
    [{ lora_alpha: 'x' }, /"lora_alpha" is "x", expected a number/],
    [{ use_rslora: 1 }, /"use_rslora" is 1, expected true or false/],
    [{ lora_dropout: 1.5 }, /"lora_dropout" is 1\.5, expected a number from 0 and below 1/],
    [
      { r: 5 },
      /adapter_model\.safetensors: base_model\.model\.model\.layers\.0\.self_attn\.q_proj\.lora_A\.weight is \[4, 32\], expected \[5, 32\] by/,
    ],
    [
      { target_modules: ['q_proj', 'k_proj'] },
      /has no base_model\.model\.model\.layers\.0\.self_attn\.k_proj\.lora_A\.weight, expected \[4, 32\]/,
    ],
  ]))
    await assert.rejects(loadPeft(await folderWith(changes), model), message);
  const { [key]: a, ...rest } = state;
  await assert.rejects(
    loadPeft(await folderWith({}, rest), model),
    /adapter_model\.safetensors has no .*q_proj\.lora_A\.weight, expected \[4, 32\]/,
  );
  await assert.rejects(
    loadPeft(await folderWith({}, { ...state, extra: a }), model),
    /has extra, expected keys such as base_model\.model\.model/,
  );
  const whole = F.to(a, 'i32');
  await assert.rejects(
    loadPeft(await folderWith({}, { ...state, [key]: whole }), model),
    /q_proj\.lora_A\.weight is I32, expected F32, F16 or BF16/,
  );
  await assert.rejects(
    loadPeft(join(ADAPTERS, 'llama'), await modelOf('gpt2')),
    /has base_model\.model\.model\.layers\.0.* of a gpt2|has no base/,
  );
  await assert.rejects(loadPeft(MODELS, model), /adapter_config\.json: ENOENT/);
  assert.equal(adaptersOf(model).length, 0);
  // A regular expression, layers left out, and numbers of 16 bits.
  const half = Object.fromEntries(Object.entries(state).map(([name, own]) => [name, F.to(own, 'bf16')]));
  await loadPeft(await folderWith({ target_modules: '.*\\.(q_proj|v_proj|down_proj)' }, half), model);
  assert.equal(adaptersOf(model).length, 6);
  const first = Object.fromEntries(Object.entries(state).filter(([name]) => name.includes('layers.0')));
  const partly = await modelOf('llama');
  await loadPeft(await folderWith({ layers_to_transform: [0] }, first), partly);
  assert.equal(adaptersOf(partly).length, 3);
});
