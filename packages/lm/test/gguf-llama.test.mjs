// GGUF against llama.cpp itself: it computes what this package computes, from the files that this package writes, splits texts into the same
// tokens, and what it quantizes is read here. `node scripts/llama.mjs create` fetches it; without it these tests are skipped.

import { before, test } from 'node:test';
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { init, load, manualSeed, tensor } from 'helios-vk/nn';

import { temporaryFolder } from '../../../__test__/lib/folder.mjs';
import { relativeError } from '../../../__test__/lib/reference.mjs';
import { readConfig } from '../src/config.mjs';
import { exportGgufAdapter } from '../src/formats/gguf-adapter.mjs';
import { TYPES, readGguf } from '../src/formats/gguf.mjs';
import { exportModel, importModel } from '../src/formats/hf.mjs';
import { loadPeft, readPeft } from '../src/formats/peft.mjs';
import { Decoder } from '../src/model/decoder.mjs';
import { mergeAdapters } from '../src/model/lora.mjs';
import { loadTokenizer } from '../src/tokenizer/index.mjs';
import { byMerges } from './lib/tokenizers.mjs';
import { fixture, makeTexts } from './fixtures/tokenizer-texts.mjs';
import { askLlama, hasLlama, quantizeByLlama } from './lib/llama.mjs';

const FIXTURES = fileURLToPath(new URL('fixtures/models/', import.meta.url));
const skip = hasLlama() ? false : 'llama.cpp is not there: node scripts/llama.mjs create';

/** Relative to the logits' length. llama.cpp rounds what it multiplies with f16, bf16 and q8_0 weights to such types too. */
const TOLERANCES = { f32: 1.2e-5, f16: 2e-3, bf16: 1.8e-2, q8_0: 5.5e-2 };

/** How Mistral Nemo splits a text: words of one case, but for a capital at the beginning. */
const TEKKEN = [
  '[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+',
  '[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*',
  '\\p{N}',
  ' ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*',
  '\\s*[\\r\\n]+',
  '\\s+(?!\\S)',
  '\\s+',
].join('|');

before(async () => {
  if (skip) return;
  await init();
  manualSeed(1);
});

/** @param {Decoder} model @param {number[]} ids */
const logitsOf = async (model, ids) => [...(await model.forward(tensor(Uint32Array.from(ids), { shape: [1, ids.length] })).toArray())];

/** The tokens of the largest logits, one after the other. @param {Decoder} model @param {number[]} ids @param {number} count */
async function greedy(model, ids, count) {
  const all = [...ids];
  for (let i = 0; i < count; i++) {
    const last = (await logitsOf(model, all)).slice(-model.config.vocabSize);
    all.push(last.indexOf(Math.max(...last)));
  }
  return all.slice(ids.length);
}

for (const family of ['llama', 'qwen2', 'qwen3', 'olmo2', 'smollm3', 'gpt2']) {
  test(`${family}: llama.cpp has the same logits and greedy tokens, in every type`, { skip }, async (t) => {
    const folder = temporaryFolder(t);
    const model = await importModel(join(FIXTURES, family));
    const ids = [...(await load(join(FIXTURES, family, 'expected.safetensors')).then(({ ids }) => ids.toArray()))].slice(0, 24);
    const dtypes = /** @type {(keyof typeof TOLERANCES)[]} */ (Object.keys(TOLERANCES));
    const pathOf = (/** @type {string} */ dtype) => join(folder, `${dtype}.gguf`);
    for (const dtype of dtypes) await exportModel(model, pathOf(dtype), { dtype });
    const answers = askLlama(dtypes.map((dtype) => ({ path: pathOf(dtype), ids, generate: 8 })));
    const own = await logitsOf(model, ids);
    for (const [i, dtype] of dtypes.entries()) {
      // Of GELU, llama.cpp has a table of f16 numbers.
      const tolerance = family === 'gpt2' && dtype === 'f32' ? TOLERANCES.f16 : TOLERANCES[dtype];
      const away = relativeError(answers[i].logits, own);
      assert.ok(away < tolerance, `${dtype}: ${away}`);
    }
    assert.deepEqual(answers[0].tokens, await greedy(model, ids, 8));
    model.dispose();
  });
}

test('biases of llama, linear scaling of positions, and a mistral whose context fits its window', { skip }, async (t) => {
  const folder = temporaryFolder(t);
  const llama = { ...readConfig(join(FIXTURES, 'llama')), qkvBias: true, outBias: true, mlpBias: true, tied: true };
  const configs = {
    biased: { ...llama, rope: /** @type {const} */ ({ base: 1e4, type: 'linear', factor: 4 }) },
    mistral: { ...readConfig(join(FIXTURES, 'mistral')), context: 7 },
  };
  for (const [name, config] of Object.entries(configs)) {
    const model = new Decoder(config);
    const path = join(folder, `${name}.gguf`);
    await exportModel(model, path, { dtype: 'f32' });
    const ids = [3, 1, 4, 1, 5, 9, 2];
    const [{ logits }] = askLlama([{ path, ids }]);
    const away = relativeError(logits, await logitsOf(model, ids));
    assert.ok(away < TOLERANCES.f32, `${name}: ${away}`);
    model.dispose();
  }
});

test('llama.cpp quantizes: its q8_0 is ours to the byte, and its other types are read here', { skip }, async (t) => {
  const folder = temporaryFolder(t);
  // Rows of whole blocks of 256.
  const config = { ...readConfig(join(FIXTURES, 'llama')), width: 256, headSize: 64, hidden: 512 };
  const model = new Decoder(config);
  const pathOf = (/** @type {string} */ name) => join(folder, `${name}.gguf`);
  await exportModel(model, pathOf('f32'), { dtype: 'f32' });
  await exportModel(model, pathOf('q8_0'), { dtype: 'q8_0' });
  const ids = Array.from({ length: 16 }, (_, i) => (i * 37) % 96);
  const own = await logitsOf(model, ids);
  // Ids of `llama_ftype`, the type that most matrices then have, and how far from f32 the result may be.
  for (const [id, type, tolerance] of /** @type {const} */ ([
    [7, 'q8_0', 0.03],
    [2, 'q4_0', 0.3],
    [15, 'q4_k', 0.3],
    [17, 'q5_k', 0.15],
    [18, 'q6_k', 0.08],
  ])) {
    const path = pathOf(`theirs-${type}`);
    quantizeByLlama(pathOf('f32'), path, id);
    const { tensors } = readGguf(path);
    assert.ok(tensors.filter((each) => each.type === type).length > 6, type);
    const read = await importModel(path);
    const ours = await logitsOf(read, ids);
    const [{ logits }] = askLlama([{ path, ids }]);
    // llama.cpp quantizes the activations too, which dequantized weights do not need.
    assert.ok(relativeError(ours, logits) < TOLERANCES.q8_0, `${type}: ${relativeError(ours, logits)}`);
    assert.ok(relativeError(ours, own) < tolerance, `${type}: ${relativeError(ours, own)} from f32`);
    read.dispose();
  }
  const [theirs, mine] = ['theirs-q8_0', 'q8_0'].map((name) => ({ gguf: readGguf(pathOf(name)), bytes: readFileSync(pathOf(name)) }));
  for (const { name, type, offset, bytes } of mine.gguf.tensors) {
    const same = theirs.gguf.tensors.find((each) => each.name === name);
    assert.equal(same?.type, type, name);
    assert.ok(mine.bytes.subarray(offset, offset + bytes).equals(theirs.bytes.subarray(same.offset, same.offset + bytes)), name);
  }
});

test('llama.cpp splits texts into the same tokens, and has our sizes of blocks', { skip }, async (t) => {
  const folder = temporaryFolder(t);
  const { novel, code } = makeTexts();
  const texts = ['Hello, world!', ' two  spaces\n\n and\tlines 12345 é 中文 😀', novel.slice(0, 20_000), code.slice(0, 20_000)];
  const base = readConfig(join(FIXTURES, 'llama'));
  for (const name of ['gpt2', 'llama3', 'qwen2', 'smollm', 'olmo2', 'llama2', 'tekken']) {
    const json = JSON.parse(readFileSync(fixture(name === 'tekken' ? 'llama3' : name), 'utf8'));
    if (name === 'tekken') json.pre_tokenizer.pretokenizers[0].pattern.Regex = TEKKEN;
    // GGUF has no tokens of this kind.
    if (name === 'qwen2')
      json.added_tokens = json.added_tokens.filter((/** @type {any} */ { single_word, rstrip }) => !single_word && !rstrip);
    const [bos, eos] = name === 'llama2' ? ['<s>', '</s>'] : [json.added_tokens[0].content, json.added_tokens[0].content];
    const tokenizer = loadTokenizer(name === 'llama2' ? byMerges(json) : json, { config: { bos_token: bos, eos_token: eos } });
    const model = new Decoder({ ...base, layers: 1, vocabSize: 1010, bos: null, eos: [] });
    const path = join(folder, `${name}.gguf`);
    await exportModel(model, path, { dtype: 'f32', tokenizer });
    model.dispose();
    const [answer] = askLlama([{ path, ids: [5, 6], texts }]);
    texts.forEach((text, i) =>
      assert.deepEqual(answer.encoded[i], [...tokenizer.encode(text, { addSpecial: false })], `${name}: ${text.slice(0, 40)}`),
    );
    assert.equal(answer.bos, tokenizer.encode('a').length > tokenizer.encode('a', { addSpecial: false }).length, name);
    assert.deepEqual([answer.bosId, answer.eosId], [tokenizer.special.bos, tokenizer.special.eos], name);
    for (const [type, [elements, bytes, id]] of Object.entries(answer.sizes)) {
      assert.deepEqual(TYPES[/** @type {keyof typeof TYPES} */ (type)], { id, elements, bytes }, type);
    }
  }
});

for (const name of ['llama', 'gpt2']) {
  test(`${name}: with an adapter in GGUF llama.cpp computes what PEFT computes with it`, { skip }, async (t) => {
    const folder = temporaryFolder(t);
    const model = await importModel(join(FIXTURES, name));
    await exportModel(model, join(folder, 'model.gguf'), { dtype: 'f32' });
    const path = fileURLToPath(new URL(`fixtures/adapters/${name}`, import.meta.url));
    const { matrices } = await readPeft(path, model.config);
    await exportGgufAdapter(matrices, join(folder, 'adapter.gguf'), { config: model.config });
    const all = await load(join(path, 'expected.safetensors'));
    const { ids: given } = await load(join(FIXTURES, name, 'expected.safetensors'));
    const [ids, logits] = [(await given.toArray()).slice(0, 24), (await all.logits.toArray()).slice(0, 24 * 96)];
    await loadPeft(path, model);
    await exportModel(mergeAdapters(model), join(folder, 'merged.gguf'), { dtype: 'f32' });
    const request = { path: join(folder, 'model.gguf'), ids: Array.from(ids) };
    const adapter = join(folder, 'adapter.gguf');
    const [beside, merged, without] = askLlama([{ ...request, adapter }, { ...request, path: join(folder, 'merged.gguf') }, request]);
    assert.ok(relativeError(beside.logits, merged.logits) < TOLERANCES.f32, `merged: ${relativeError(beside.logits, merged.logits)}`);
    // Its GELU is a table in f16, which the values of this adapter's layers reach.
    const tolerance = name === 'gpt2' ? TOLERANCES.f16 : TOLERANCES.f32;
    assert.ok(relativeError(beside.logits, logits) < tolerance, `${relativeError(beside.logits, logits)}`);
    assert.ok(relativeError(without.logits, logits) > 0.1);
  });
}
