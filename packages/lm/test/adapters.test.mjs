// Adapters in generation: beside the weights, merged, several over one model chosen by each request, in steps of few rows and of many; the server's
// names; the commands.

import { before, test } from 'node:test';
import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { F, init, manualSeed, noGrad, tensor } from 'helios-vk/nn';

import { temporaryFolder } from '../../../__test__/lib/folder.mjs';
import { lm } from '../../../__test__/lib/lm.mjs';
import { loadModel, serveModel } from '../src/index.mjs';
import { readGguf } from '../src/formats/gguf.mjs';
import { exportModel, importModel } from '../src/formats/hf.mjs';
import { loadPeft, savePeft } from '../src/formats/peft.mjs';
import { adapterFolder } from '../src/infer/adapters.mjs';
import { Engine } from '../src/infer/engine.mjs';
import { DEFAULT_SAMPLING } from '../src/infer/types.mjs';
import { openSource } from '../src/infer/weights.mjs';
import { adapterParameters, adapterPlaces, addAdapters, mergeAdapters, placeAdapters } from '../src/model/lora.mjs';
import { findModel, openModel } from '../src/open.mjs';
import { all, textOf, writeTinyModel } from './lib/tiny-model.mjs';

/** @typedef {import('../src/infer/types.mjs').Token} Token */
/** @typedef {import('../src/model/decoder.mjs').Decoder} Decoder */

const [MODELS, ADAPTERS] = ['models/', 'adapters/'].map((name) => fileURLToPath(new URL(`fixtures/${name}`, import.meta.url)));
const GREEDY = { ...DEFAULT_SAMPLING, temperature: 0 };
const vk = createRequire(import.meta.url)('helios-vk');

before(() => init({ vk }));

const promptOf = (/** @type {number} */ length, seed = 1) => Array.from({ length }, (_, i) => (7 * i + 13 * seed + i * i * seed) % 96);

/** @param {Engine} engine @param {number[]} ids @param {object} [more] @returns {Promise<Token[]>} */
async function generate(engine, ids, more = {}) {
  const tokens = [];
  for await (const token of engine.submit({ ids, sampling: GREEDY, maxTokens: 8, stopIds: [], ...more })) tokens.push(token);
  return tokens;
}

/** Checks tokens against the training forward pass. @param {Decoder} model @param {number[]} prompt @param {Token[]} tokens @param {string} what */
async function check(model, prompt, tokens, what, tolerance = 1e-4) {
  assert.equal(tokens.length, 8, what);
  const ids = [...prompt, ...tokens.map(({ token }) => token)];
  const y = noGrad(() => model.forward(tensor(Uint32Array.from(ids), { shape: [1, ids.length] })));
  const values = await y.toArray();
  y.dispose();
  const { vocabSize } = model.config;
  for (const [i, { token, logprob }] of tokens.entries()) {
    const row = Array.from(values.slice((prompt.length - 1 + i) * vocabSize, (prompt.length + i) * vocabSize));
    const most = Math.max(...row);
    assert.ok(row[token] >= most - tolerance, `${what}: token ${i} is ${token}, of logit ${row[token]}; the best is ${most}`);
    const expected = row[token] - most - Math.log(row.reduce((sum, logit) => sum + Math.exp(logit - most), 0));
    assert.ok(Math.abs(logprob - expected) < tolerance, `${what}: ${logprob} for ${expected}`);
  }
}

/** A model with an adapter merged into it. @param {string} name @param {string} [adapter] a folder */
async function mergedOf(name, adapter) {
  const model = await importModel(join(MODELS, name));
  if (adapter === undefined) return model;
  await loadPeft(adapter, model);
  return mergeAdapters(model);
}

/** Random numbers in all adapters. @param {Decoder} model @param {number} seed */
function fill(model, seed) {
  manualSeed(seed);
  noGrad(() => {
    for (const parameter of adapterParameters(model)) parameter.copy_(F.mul(F.randnLike(parameter), 0.2));
  });
}

/** Writes an adapter of random numbers. @param {string} folder @param {string} name of the model @param {object} options @param {number} seed */
async function writeAdapter(folder, name, options, seed) {
  const model = addAdapters(await importModel(join(MODELS, name)), options);
  fill(model, seed);
  await savePeft(folder, model);
  model.dispose();
}

for (const name of ['llama', 'gpt2', 'olmo2']) {
  test(`${name}: each of several sequences has its adapter, or none, in steps of few rows and of many`, async (t) => {
    const folder = temporaryFolder(t);
    const [first, second] = [join(folder, 'first'), join(folder, 'second')];
    await writeAdapter(first, name, { rank: 3, alpha: 4 }, 1);
    await writeAdapter(second, name, { rank: 9, alpha: 5, targets: name === 'gpt2' ? ['c_attn'] : ['v_proj', 'up_proj'] }, 2);
    const models = [await mergedOf(name), await mergedOf(name, first), await mergedOf(name, second)];
    for (const slots of [1, 3, 20]) {
      const engine = await Engine.open(join(MODELS, name), { slots, adapters: { first, second } });
      const choices = [undefined, 'first', 'second'];
      const all = Array.from({ length: Math.max(3, slots) }, (_, i) => ({ prompt: promptOf(5 + i, 1 + i), which: i % 3 }));
      const found = await Promise.all(all.map(({ prompt, which }) => generate(engine, prompt, { adapter: choices[which] })));
      for (const [i, { prompt, which }] of all.entries()) await check(models[which], prompt, found[i], `${slots} slots, ${i}`);
      // The same prompt with another adapter: what the cache has of it is another's.
      for (const which of [1, 2, 0, 1])
        await check(models[which], promptOf(6), await generate(engine, promptOf(6), { adapter: choices[which] }), `${which}`);
      // In chunks.
      engine.session.chunk = 4;
      await check(models[1], promptOf(11, 9), await generate(engine, promptOf(11, 9), { adapter: 'first' }), 'chunks');
      // Without adapters, a step is what it was before.
      const graphs = engine.session.graphs;
      assert.ok(graphs.some((key) => key.endsWith('/adapted')) && graphs.some((key) => !key.endsWith('/adapted')), String(graphs));
      await assert.rejects(generate(engine, promptOf(3), { adapter: 'third' }), /^RangeError: the model has no adapter third/);
      await engine.dispose();
    }
    for (const model of models) model.dispose();
  });
}

test('with an adapter of PEFT, merged and beside the weights, the answers are those of the merged model, of weights of 16 and 8 bits too', async (t) => {
  const folder = temporaryFolder(t);
  const path = join(ADAPTERS, 'llama');
  const [plain, exact] = [await mergedOf('llama'), await mergedOf('llama', path)];
  for (const dtype of /** @type {const} */ (['f32', 'bf16', 'q8_0'])) {
    for (const merge of dtype === 'q8_0' ? [false] : [false, true]) {
      // Steps of 20 rows are products of matrices.
      for (const slots of [1, 20]) {
        const engine = await Engine.open(join(MODELS, 'llama'), { dtype, merge, slots, adapters: { mine: path } });
        const adapter = merge ? undefined : 'mine';
        const prompts = Array.from({ length: slots }, (_, i) => promptOf(9, 1 + i));
        const found = await Promise.all(prompts.map((prompt) => generate(engine, prompt, { adapter })));
        // Within what the type rounds, of logits of some units.
        const tolerance = { f32: 1e-4, bf16: 0.15, q8_0: 0.2 }[dtype];
        for (const [i, tokens] of found.entries())
          await check(exact, prompts[i], tokens, `${dtype}, merged: ${merge}, ${slots} slots`, tolerance);
        await assert.rejects(check(plain, prompts[0], found[0], 'without it', tolerance), /without it/);
        await engine.dispose();
      }
    }
  }
  await assert.rejects(
    Engine.open(join(MODELS, 'llama'), { dtype: 'q8_0', merge: true, adapters: { mine: path } }),
    /the adapter mine is not merged into weights in q8_0, which would round it away: leave it beside them/,
  );
  // A merged folder is what `helios-lm merge` writes.
  await exportModel(exact, join(folder, 'merged'), { dtype: 'f32' });
  const engine = await Engine.open(join(folder, 'merged'));
  await check(exact, promptOf(9), await generate(engine, promptOf(9)), 'exported');
  await engine.dispose();
});

test('layers whose adapters differ: one has others than the next, of another rank', async (t) => {
  const folder = join(temporaryFolder(t), 'adapter');
  const model = await importModel(join(MODELS, 'llama'));
  const chosen = adapterPlaces(model.config).filter(({ layer, name }) => layer.startsWith('layers.0') || name === 'q_proj');
  const optionsOf = (/** @type {string} */ layer) => ({ rank: layer.startsWith('layers.0') ? 3 : 11, alpha: 4, rslora: false, dropout: 0 });
  placeAdapters(
    model,
    chosen.map((place) => ({ place, options: optionsOf(place.layer) })),
  );
  fill(model, 5);
  await savePeft(folder, model);
  const engine = await Engine.open(join(MODELS, 'llama'), { adapters: { mine: folder } });
  await check(model, promptOf(9), await generate(engine, promptOf(9), { adapter: 'mine' }), 'mine');
  await check(await mergedOf('llama'), promptOf(9), await generate(engine, promptOf(9)), 'none');
  await engine.dispose();
});

test('embeddings have the adapter that is asked for', async () => {
  const path = join(ADAPTERS, 'llama');
  const engine = await Engine.open(join(MODELS, 'llama'), { adapters: { mine: path } });
  const merged = await Engine.open(join(MODELS, 'llama'), { adapters: { mine: path }, merge: true });
  const [own, other, expected] = [
    await engine.embed(promptOf(7), 'mean', 'mine'),
    await engine.embed(promptOf(7)),
    await merged.embed(promptOf(7)),
  ];
  const away = (/** @type {Float32Array} */ a) => Math.max(...a.map((value, i) => Math.abs(value - expected[i])));
  assert.ok(away(own) < 1e-4 && away(other) > 1e-2, `${away(own)}, ${away(other)}`);
  for (const each of [engine, merged]) await each.dispose();
});

/** A tiny model with a tokenizer, and an adapter of it. @param {string} folder */
async function tinyWithAdapter(folder) {
  const [model, adapter] = [join(folder, 'model'), join(folder, 'mine')];
  await writeTinyModel(model);
  const decoder = addAdapters(await importModel(model), { rank: 4 });
  noGrad(() => {
    for (const parameter of adapterParameters(decoder)) parameter.copy_(F.mul(F.randnLike(parameter), 0.5));
  });
  await savePeft(adapter, decoder);
  decoder.dispose();
  return { model, adapter };
}

test('loadModel: an adapter by its name; wrong names and options are errors; the server has a model for each', async (t) => {
  const { model: path, adapter } = await tinyWithAdapter(temporaryFolder(t));
  for (const [options, message] of /** @type {[any, RegExp][]} */ ([
    [{ adapters: 'x' }, /^adapters must be folders by name, got "x"/],
    [{ adapters: {} }, /^adapters must be folders by name, got an object/],
    [{ adapters: { a: 5 } }, /^adapters must be folders by name/],
    [{ adapters: { a: adapter, b: adapter }, merge: true }, /^merge takes one adapter, got 2/],
    [{ merge: 'yes' }, /^merge must be true or false, got "yes"/],
  ]))
    await assert.rejects(loadModel(path, options), { name: 'RangeError', message });
  await assert.rejects(loadModel(path, { adapters: { a: temporaryFolder(t) } }), /adapter_config\.json|no checkpoint/);
  const model = await loadModel(path, { slots: 3, adapters: { mine: adapter } });
  t.after(() => model.dispose());
  assert.deepEqual(model.adapters, ['mine']);
  const options = { temperature: 0, maxTokens: 12, ignoreEos: true };
  const write = async (/** @type {object} */ more) => textOf(await all(model.generate('the old men', { ...options, ...more })));
  const [plain, own] = [await write({}), await write({ adapter: 'mine' })];
  assert.notEqual(own, plain);
  const chat = model.chat({ ...options, adapter: 'mine' });
  assert.equal(textOf(await all(chat.send('the old men'))), own);
  assert.throws(() => model.generate('a', { adapter: 'other' }), /^RangeError: the model has no adapter "other"; there is mine/);
  assert.throws(
    () => model.generate('a', /** @type {any} */ ({ adapter: 5 })),
    /^RangeError: adapter must be the name of an adapter, got 5/,
  );
  const server = await serveModel(model, { port: 0, name: 'base' });
  t.after(() => server.close());
  const ask = async (/** @type {string} */ at, /** @type {object} */ body) => {
    const init = { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) };
    return /** @type {any} */ (await (await fetch(`${server.url}/v1/${at}`, body && init)).json());
  };
  const complete = (/** @type {string | undefined} */ name) =>
    ask('completions', { model: name, prompt: 'the old men', temperature: 0, max_tokens: 6 });
  const [one, two, three] = await Promise.all(['base', 'mine', undefined].map(complete));
  assert.deepEqual([one.model, two.model, three.model], ['base', 'mine', 'base']);
  assert.ok(
    own.startsWith(two.choices[0].text) && one.choices[0].text === three.choices[0].text && two.choices[0].text !== one.choices[0].text,
  );
  assert.match((await complete('other')).error.message, /the model other does not exist; there are base, mine/);
  const listed = /** @type {any} */ (await (await fetch(`${server.url}/v1/models`)).json());
  assert.deepEqual(
    listed.data.map((/** @type {any} */ { id, parent }) => [id, parent]),
    [
      ['base', undefined],
      ['mine', 'base'],
    ],
  );
  const [embedded, other] = await Promise.all(['mine', 'base'].map((name) => ask('embeddings', { model: name, input: 'the sea' })));
  assert.equal(embedded.model, 'mine');
  assert.notDeepEqual(embedded.data[0].embedding, other.data[0].embedding);
});

test('an adapter where a model is to be, a model where an adapter is to be, and options without effect are errors', async (t) => {
  const folder = temporaryFolder(t);
  const { model, adapter } = await tinyWithAdapter(folder);
  const is = /mine is an adapter of .*: name the model, and this with --adapter, or merge them/;
  await assert.rejects(openModel(adapter), is);
  await assert.rejects(openSource(adapter), is);
  await assert.rejects(findModel(adapter), is);
  const file = join(folder, 'text');
  writeFileSync(file, 'the sea');
  await assert.rejects(adapterFolder(model), /model is a model, not an adapter: it has no adapter_config.json/);
  const empty = join(folder, 'empty');
  mkdirSync(empty);
  for (const path of [file, empty])
    await assert.rejects(adapterFolder(path), /is no adapter: expected a folder with adapter_config.json, or a run/);
  const args = ['export', '--model', model, '--adapter', adapter, '--out', join(folder, 'a.gguf'), '--max-shard-size', '1GB'];
  const { status, stderr } = lm(args);
  assert.deepEqual([status, /--max-shard-size is for a folder: --out .*a.gguf is one file/.test(stderr)], [2, true], stderr);
});

test('generate with --adapter, --merge, and of what merge has written is one text; merge keeps the type; an adapter as GGUF', async (t) => {
  const folder = temporaryFolder(t);
  const { model, adapter } = await tinyWithAdapter(folder);
  const run = (/** @type {string[]} */ ...args) => {
    const { status, stdout, stderr } = lm(args);
    assert.equal(status, 0, stderr);
    return { stdout, stderr };
  };
  const write = (/** @type {string[]} */ ...args) =>
    run('generate', ...args, '--prompt', 'the old men', '--temperature', '0', '--max-tokens', '12', '--ignore-eos').stdout;
  const own = write(model, '--adapter', adapter);
  assert.notEqual(own, write(model));
  assert.equal(write(model, '--adapter', `x=${adapter}`, '--merge'), own);
  const { stdout } = run('merge', '--model', model, '--adapter', adapter, '--out', join(folder, 'merged'));
  assert.match(stdout, /merged has the model of .*model with .*mine in f32\n$/);
  assert.equal(write(join(folder, 'merged')), own);
  run('export', '--model', model, '--adapter', adapter, '--out', join(folder, 'mine.gguf'), '--dtype', 'f16');
  const { metadata, tensors } = readGguf(join(folder, 'mine.gguf'));
  const keys = ['general.architecture', 'general.type', 'adapter.type', 'adapter.lora.alpha'];
  assert.deepEqual(
    keys.map((key) => metadata.get(key)?.value),
    ['llama', 'adapter', 'lora', 8],
  );
  const found = tensors.find(({ name }) => name === 'blk.1.ffn_down.weight.lora_b');
  assert.deepEqual([found?.type, found?.shape, tensors.length], ['f16', [32, 4], 28]);
});
