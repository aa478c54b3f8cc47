// Models and tokenizers in GGUF: there and back, what cannot be written or read, weights in their own types, and the command line.

import { before, test } from 'node:test';
import assert from 'node:assert/strict';
import { cpSync, existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { F, init, manualSeed, noGrad } from 'helios-vk/nn';

import { temporaryFolder } from '../../../__test__/lib/folder.mjs';
import { lm } from '../../../__test__/lib/lm.mjs';
import { readConfig } from '../src/config.mjs';
import { digestOf } from '../src/data/corpus.mjs';
import { ggufWeights } from '../src/formats/gguf-model.mjs';
import { readGguf, readTensor, writeGguf } from '../src/formats/gguf.mjs';
import { exportModel, importModel } from '../src/formats/hf.mjs';
import { toF32 } from '../src/formats/quant.mjs';
import { Decoder } from '../src/model/decoder.mjs';
import { findModel, openModel } from '../src/open.mjs';
import { applyChatTemplate, loadTokenizer } from '../src/tokenizer/index.mjs';
import { modelOf } from '../src/train/settings.mjs';
import { fixture, makeTexts } from './fixtures/tokenizer-texts.mjs';
import { byMerges } from './lib/tokenizers.mjs';

/** @typedef {import('../src/formats/gguf.mjs').Metadata} Metadata */
/** @typedef {import('../src/formats/gguf.mjs').TensorDescription & { pieces(): Uint8Array[] }} Written */

const FIXTURES = fileURLToPath(new URL('fixtures/models/', import.meta.url));
const FAMILIES = ['llama', 'mistral', 'qwen2', 'qwen3', 'olmo2', 'smollm3', 'gpt2'];

before(async () => {
  await init();
  manualSeed(1);
});

/** A model whose context fits its window. @param {string} family */
async function modelFor(family) {
  if (family !== 'mistral') return importModel(join(FIXTURES, family));
  return new Decoder({ ...readConfig(join(FIXTURES, family)), context: 7 });
}

/** Writes a file again with changes. @param {string} from @param {string} to @param {(metadata: Metadata, tensors: Written[]) => void} change */
async function rewrite(from, to, change) {
  const gguf = readGguf(from);
  const tensors = [];
  for (const tensor of gguf.tensors) {
    const bytes = await readTensor(gguf, tensor);
    tensors.push({ name: tensor.name, type: tensor.type, shape: tensor.shape, pieces: () => [bytes] });
  }
  change(gguf.metadata, tensors);
  await writeGguf(to, gguf.metadata, tensors);
}

/** @param {Decoder} model @returns {Promise<Record<string, Float32Array>>} */
async function numbersOf(model) {
  const entries = Object.entries(model.stateDict()).map(async ([name, value]) => [name, await value.toArray()]);
  return Object.fromEntries(await Promise.all(entries));
}

for (const family of FAMILIES) {
  test(`${family}: what is exported comes back, in every type, and exporting it again gives the same bytes`, async (t) => {
    const folder = temporaryFolder(t);
    const model = await modelFor(family);
    const own = await numbersOf(model);
    for (const [dtype, tolerance] of /** @type {const} */ ([
      ['f32', 0],
      ['f16', 2 ** -11],
      ['bf16', 2 ** -8],
      ['q8_0', 2 ** -7],
    ])) {
      const [path, again] = [join(folder, `${dtype}.gguf`), join(folder, `${dtype}-again.gguf`)];
      await exportModel(model, path, { dtype });
      const read = await importModel(path);
      const theirs = await numbersOf(read);
      for (const [name, values] of Object.entries(own)) {
        const most = values.reduce((a, b) => Math.max(a, Math.abs(b)), 0);
        const vector = !/attention\.(qkv|out)\.weight|mlp\.\w+\.weight|embedding|head/.test(name);
        const away = values.reduce((worst, value, i) => Math.max(worst, Math.abs(value - theirs[name][i])), 0);
        assert.ok(away <= (vector ? 0 : tolerance * most), `${dtype} ${name}: ${away} of ${most}`);
        if (!vector && dtype !== 'f32') assert.ok(away > 0, `${dtype} ${name} was rounded`);
      }
      const expected = { ...model.config, ...(family === 'mistral' ? { family: 'llama', windows: [null, null] } : {}) };
      assert.deepEqual(read.config, expected);
      assert.deepEqual((await findModel(path)).config, expected);
      await exportModel(read, again, { dtype });
      assert.ok(readFileSync(path).equals(readFileSync(again)), dtype);
      read.dispose();
    }
    model.dispose();
  });

  test(`${family}: weights for inference are in their own types and in the rows of Decoder`, async (t) => {
    const path = join(temporaryFolder(t), 'a.gguf');
    const model = await modelFor(family);
    const state = model.stateDict();
    for (const dtype of /** @type {const} */ (['f32', 'q8_0'])) {
      await exportModel(model, path, { dtype });
      const { config, tokenizer, template, parts } = await ggufWeights(path);
      assert.equal(config.width, model.config.width);
      assert.deepEqual([tokenizer, template], [undefined, undefined]);
      const filled = new Map();
      for (const { name, parameter, row = 0, type, shape, read } of parts) {
        const [rows, columns] = shape;
        const expected = columns === undefined || name.includes('wpe') ? 'f32' : dtype === 'q8_0' && columns % 32 ? 'f16' : dtype;
        assert.equal(type, expected, name);
        const values = toF32(type, await read());
        const own = /** @type {Float32Array} */ (await F.slice(state[parameter], 0, row, row + rows).toArray());
        assert.equal(values.length, own.length, name);
        const scale = own.reduce((a, b) => Math.max(a, Math.abs(b)), 0);
        assert.ok(
          values.every((value, i) => Math.abs(value - own[i]) <= (type === 'f32' ? 0 : scale / 128)),
          name,
        );
        filled.set(parameter, (filled.get(parameter) ?? 0) + values.length);
        const { headSize } = config;
        if (columns !== undefined && rows > headSize) {
          const some = await read(headSize, 2 * headSize);
          const permuted = /[qk]_proj/.test(name) && ['llama', 'smollm3'].includes(config.family);
          if (permuted) await assert.rejects(read(headSize / 2), /expected multiples of/);
          assert.deepEqual(Array.from(toF32(type, some)), Array.from(values.subarray(headSize * columns, 2 * headSize * columns)), name);
        }
      }
      for (const [name, value] of Object.entries(state)) assert.equal(filled.get(name), value.size, name);
    }
    model.dispose();
  });
}

test("llama3's scaling is found in files of other programs, which have only its result", async (t) => {
  const folder = temporaryFolder(t);
  const config = readConfig(join(FIXTURES, 'llama'));
  const usual = /** @type {const} */ ({ base: 5e5, type: 'llama3', factor: 32, lowFactor: 1, highFactor: 4, original: 8192 });
  for (const [rope, plain] of /** @type {const} */ ([
    [usual, true],
    [{ ...usual, lowFactor: 2, highFactor: 5, original: 1000 }, false],
  ])) {
    const model = new Decoder({ ...config, headSize: 64, rope });
    await exportModel(model, join(folder, 'own.gguf'), { dtype: 'f16' });
    model.dispose();
    assert.deepEqual((await findModel(join(folder, 'own.gguf'))).config.rope, rope);
    await rewrite(join(folder, 'own.gguf'), join(folder, 'other.gguf'), (metadata) => {
      for (const key of [...metadata.keys()]) if (key.startsWith('helios.')) metadata.delete(key);
    });
    const found = findModel(join(folder, 'other.gguf'));
    if (plain) assert.deepEqual((await found).config.rope, rope);
    else await assert.rejects(found, /other\.gguf: rope_freqs\.weight scales rotary positions in another way than llama3/);
  }
});

test('a model that llama.cpp cannot run is not exported, and the error says why and what to do', async (t) => {
  const folder = temporaryFolder(t);
  const path = join(folder, 'a.gguf');
  const sizes = { layers: 1, width: 32, heads: 2, hidden: 32, blockSize: 16, vocabSize: 32 };
  const smollm3 = readConfig(join(FIXTURES, 'smollm3'));
  for (const [config, message] of /** @type {[import('../src/config.mjs').ModelConfig, RegExp][]} */ ([
    [
      modelOf('helios-gpt', sizes),
      /cannot be exported as GGUF: llama\.cpp has no architecture with the layers of helios-gpt.*export a folder, or train/,
    ],
    [
      readConfig(join(FIXTURES, 'mistral')),
      /reaches back 7 tokens, its context has 64.*set "max_position_embeddings" in config\.json to at most 7/,
    ],
    [{ ...readConfig(join(FIXTURES, 'qwen3')), qkvBias: true }, /llama\.cpp's qwen3 has no such biases \(qkvBias\): export a folder/],
    [{ ...smollm3, ropeLayers: smollm3.ropeLayers.map(() => true) }, /rotary positions in all layers but every fourth/],
    [{ ...modelOf('llama', sizes), eos: [1, 2, 3, 4] }, /the model has 4 ids that end a text \(1, 2, 3, 4\); GGUF has keys for three/],
  ])) {
    const model = new Decoder(config);
    await assert.rejects(exportModel(model, path), message);
    model.dispose();
  }
  const model = new Decoder(modelOf('llama', { ...sizes, vocabSize: 1000 }));
  await assert.rejects(exportModel(model, path, { dtype: /** @type {any} */ ('q4_0') }), /no dtype q4_0; there are f32, f16, bf16, q8_0/);
  await assert.rejects(exportModel(model, join(folder, 'b'), { dtype: 'q8_0' }), /no dtype q8_0; there are f32, f16, bf16/);
  await assert.rejects(exportModel(model, path, { signal: AbortSignal.abort() }), { name: 'AbortError' });
  const weight = model.stateDict()['layers.0.mlp.down.weight'];
  noGrad(() => void weight.copy_(F.mul(F.clone(weight), 1e7)));
  const large = exportModel(model, path, { dtype: 'f16' });
  await assert.rejects(large, /layers\.0\.mlp\.down_proj\.weight has numbers beyond the largest of f16, 65504: choose bf16 or f32/);
  await assert.rejects(
    exportModel(model, join(folder, 'c'), { dtype: 'f16' }),
    /layers\.0\.mlp\.down_proj\.weight has numbers beyond the largest of f16/,
  );
  const wide = temporaryFolder(t);
  for (const name of ['wide', 'wide.gguf']) {
    await exportModel(model, join(wide, name), { dtype: 'f32' });
    await assert.rejects(
      importModel(join(wide, name), { dtype: 'f16' }),
      /layers\.0\.mlp\.down_proj\.weight has numbers beyond the largest/,
    );
  }
  for (const [name, message] of /** @type {[string, RegExp][]} */ ([
    [
      'possessive',
      /tokenizer cannot be exported as GGUF: llama\.cpp would split texts in another way than \{.*known: those of gpt-2, llama-bpe/,
    ],
    ['deepseek', /llama\.cpp would split texts in another way/],
    ['bert', /its model \(WordPiece\) is neither plain byte-level BPE nor SentencePiece's BPE/],
    ['llama2', /llama\.cpp merges any two pieces whose union is a token, and this tokenizer differs at/],
    ['roberta', /puts 0 … 1 around a text; known: bos … eos/],
    ['olmo2', /the tokenizer has 1003 ids, the model 1000/],
  ])) {
    await assert.rejects(exportModel(model, path, { tokenizer: loadTokenizer(fixture(name)) }), message);
  }
  assert.deepEqual(readdirSync(folder), []);
});

test('a file that is no such model is an error with key or tensor, what is there and what was expected', async (t) => {
  const folder = temporaryFolder(t);
  const [good, path] = [join(folder, 'good.gguf'), join(folder, 'x.gguf')];
  const model = await importModel(join(FIXTURES, 'llama'));
  const tokenizer = loadTokenizer(JSON.parse(readFileSync(fixture('gpt2'), 'utf8')));
  const wide = new Decoder({ ...model.config, vocabSize: 1000 });
  await exportModel(wide, good, { dtype: 'q8_0', tokenizer });
  const set =
    (/** @type {string} */ key, /** @type {any} */ value, type = 'u32') =>
    (/** @type {Metadata} */ metadata) =>
      void metadata.set(key, /** @type {any} */ ({ type, value }));
  const drop = (/** @type {string} */ key) => (/** @type {Metadata} */ metadata) => void metadata.delete(key);
  for (const [change, message] of /** @type {[(metadata: Metadata, tensors: Written[]) => void, RegExp][]} */ ([
    [drop('general.architecture'), /the key "general\.architecture" is missing, expected one of llama, qwen2, qwen3, olmo2, smollm3, gpt2/],
    [set('general.type', 'adapter', 'string'), /is an adapter without its model: expected a model's file/],
    [set('general.architecture', 'mamba', 'string'), /the key "general\.architecture" is "mamba", expected one of/],
    [drop('llama.embedding_length'), /the key "llama\.embedding_length" is missing, expected an integer of at least 1/],
    [set('llama.embedding_length', '32', 'string'), /the key "llama\.embedding_length" is "32", expected an integer/],
    [set('llama.block_count', 2 ** 31), /the key "llama\.block_count" is "2147483648", expected at most the number of tensors, 22/],
    [
      set('llama.attention.head_count_kv', 3),
      /the key "llama\.attention\.head_count_kv" is "3", expected a divisor of the number of heads, 4/,
    ],
    [set('llama.expert_count', 8), /the key "llama\.expert_count" is "8", expected 0: experts are not implemented/],
    [set('llama.rope.dimension_count', 4), /the key "llama\.rope\.dimension_count" is "4", expected 8/],
    [set('llama.rope.scaling.type', 'yarn', 'string'), /the key "llama\.rope\.scaling\.type" is "yarn", expected one of none, linear/],
    [set('llama.vocab_size', 7), /the key "llama\.vocab_size" is "7", expected 1000/],
    [set('split.count', 3, 'u16'), /x\.gguf is one of 3 files of a model: join them first/],
    [
      set('tokenizer.ggml.tokens', new Array(1001).fill(''), 'string[]'),
      /"tokenizer\.ggml\.tokens" is an array, expected at most 1000 tokens/,
    ],
    [set('tokenizer.ggml.eos_token_id', -1, 'i32'), /the key "tokenizer\.ggml\.eos_token_id" is "-1", expected an id/],
    [set('tokenizer.ggml.bos_token_id', 5000), /the key "tokenizer\.ggml\.bos_token_id" is "5000", expected the id of one of 1000 tokens/],
    [
      set('tokenizer.ggml.model', 'bert', 'string'),
      /the key "tokenizer\.ggml\.model" is "bert", expected gpt2 \(byte-level BPE\) or llama/,
    ],
    [
      set('tokenizer.ggml.pre', 'kimi-k2', 'string'),
      /the key "tokenizer\.ggml\.pre" is "kimi-k2", expected one of gpt-2, phi-2, llama-bpe/,
    ],
    [drop('tokenizer.ggml.pre'), /the key "tokenizer\.ggml\.pre" is missing, expected one of gpt-2/],
    [drop('tokenizer.ggml.merges'), /the key "tokenizer\.ggml\.merges" is missing, expected an array of string/],
    [set('tokenizer.ggml.merges', ['zz zzz'], 'string[]'), /x\.gguf: model\.merges\[0\] is "zz zzz"; expected two tokens/],
    [
      set('tokenizer.ggml.token_type', Int32Array.of(1), 'i32[]'),
      /"tokenizer\.ggml\.token_type" is a list of 1, expected an array of i32 with 1000 elements/,
    ],
    [set('helios.tokenizer', '{', 'string'), /the key "helios\.tokenizer" is not JSON/],
    [(_, tensors) => void tensors.splice(3, 1), /x\.gguf has no tensor blk\.0\.attn_k\.weight/],
    [
      (_, tensors) => void (tensors[2].shape = [16, 64]),
      /tensor blk\.0\.attn_q\.weight is \[16, 64\], expected \[32, 32\] by the file's keys/,
    ],
    [(_, tensors) => void (tensors[5].name = 'classifier'), /has no tensor blk\.0\.attn_output\.weight/],
    [(_, tensors) => void tensors.push({ ...tensors[2], name: 'extra' }), /has a tensor extra, which a llama has not/],
  ])) {
    await rewrite(good, path, change);
    await assert.rejects(openModel(path), message);
  }
  await rewrite(good, path, (_, tensors) => {
    const blocks = new Uint8Array((1000 * 32 * 18) / 32);
    tensors[1] = { ...tensors[1], type: 'iq4_nl', pieces: () => [blocks] };
  });
  await assert.rejects(importModel(path), /tensor token_embd\.weight is of type iq4_nl, which cannot be decoded/);
  await exportModel(model, path, { dtype: 'f16' });
  assert.throws(() => loadTokenizer(path), /x\.gguf has no tokenizer/);
  assert.equal((await openModel(path)).tokenizer, undefined);
  // Without its head, a model is one whose head is tied.
  await rewrite(good, path, (_, tensors) => void tensors.pop());
  assert.equal((await findModel(path)).config.tied, true);
  await assert.rejects(importModel(good, { signal: AbortSignal.abort() }), { name: 'AbortError' });
  await assert.rejects(importModel(join(folder, 'nothing.gguf')), /nothing\.gguf/);
});

test('a tokenizer and its templates come back, with the same ids', async (t) => {
  const folder = temporaryFolder(t);
  const path = join(folder, 'a.gguf');
  const texts = makeTexts();
  const { novel, code, random, marks } = texts;
  const template = "{% for message in messages %}{{ bos_token }}{{ message.role }}: {{ message['content'] }}\n{% endfor %}";
  for (const name of ['gpt2', 'llama3', 'qwen2', 'smollm', 'olmo2', 'llama2']) {
    const json = JSON.parse(readFileSync(fixture(name), 'utf8'));
    const [bos, eos] = name === 'llama2' ? ['<s>', '</s>'] : [json.added_tokens[0].content, json.added_tokens.at(-1).content];
    const chat_template = [
      { name: 'default', template },
      { name: 'tool_use', template: 'tools' },
    ];
    const config = { bos_token: bos, eos_token: eos, pad_token: { content: eos }, chat_template };
    const tokenizer = loadTokenizer(name === 'llama2' ? byMerges(json) : json, { config });
    // More ids than the tokenizer has.
    const model = new Decoder({ ...readConfig(join(FIXTURES, 'llama')), layers: 1, vocabSize: 1024, bos: null, eos: [] });
    await exportModel(model, path, { dtype: 'q8_0', tokenizer });
    model.dispose();
    const { config: read, tokenizer: again, template: found } = await ggufWeights(path);
    assert.ok(again);
    assert.equal(found, template);
    assert.deepEqual(again.chatTemplates, tokenizer.chatTemplates);
    assert.deepEqual([read.bos, read.eos], [tokenizer.special.bos, [tokenizer.special.eos]]);
    assert.equal(again.vocabSize, tokenizer.vocabSize);
    for (const key of ['bos', 'eos', 'pad', 'unk']) assert.equal(again.special[key], tokenizer.special[key], `${name} ${key}`);
    // `@huggingface/tokenizers` takes long for a long text.
    const most = name === 'llama2' ? 500 : 40_000;
    const lines = [novel, code, random, marks, ''].map((text) => text.slice(0, most));
    for (const text of lines) {
      const ids = tokenizer.encode(text);
      assert.deepEqual(again.encode(text), ids, `${name}: ${text.slice(0, 20)}`);
      assert.equal(again.decode(ids), tokenizer.decode(ids));
    }
    const messages = [{ role: 'user', content: 'Hi' }];
    assert.equal(applyChatTemplate(path, messages), applyChatTemplate(tokenizer, messages));
    // What `import` writes is the same tokenizer too.
    for (const [file, text] of Object.entries(again.files())) if (!file.includes('/')) writeFileSync(join(folder, file), text);
    assert.deepEqual(loadTokenizer(folder).encode(lines[0]), tokenizer.encode(lines[0]), name);
    // Other programs write no more than GGUF's own keys: such a file has the usual form of its pre-tokenizer.
    if (name === 'qwen2') continue;
    await rewrite(path, join(folder, 'plain.gguf'), (metadata) => void metadata.delete('helios.tokenizer'));
    assert.deepEqual(loadTokenizer(join(folder, 'plain.gguf')).encode(lines[1]), tokenizer.encode(lines[1]), name);
  }
});

test('SentencePiece by its scores alone, as other programs write it', () => {
  const tokens = ['<unk>', '<s>', '</s>', ...Array.from({ length: 256 }, (_, i) => `<0x${i.toString(16).toUpperCase().padStart(2, '0')}>`)];
  const pieces = ['\u2581', 'a', 'b', 'c', 'ab', 'bc', 'abc', '\u2581a', '\u2581abc'];
  const all = [...tokens, ...pieces];
  const keys = /** @type {[string, any][]} */ ([
    ['tokenizer.ggml.model', { type: 'string', value: 'llama' }],
    ['tokenizer.ggml.tokens', { type: 'string[]', value: all }],
    [
      'tokenizer.ggml.token_type',
      { type: 'i32[]', value: Int32Array.from(all, (_, id) => (id === 0 ? 2 : id < 3 ? 3 : id < 259 ? 6 : 1)) },
    ],
    // "bc" is the best of all, "▁abc" the least.
    [
      'tokenizer.ggml.scores',
      { type: 'f32[]', value: Float32Array.from(all, (_, id) => [-9, -9, -9, -9, -2, -1, -3, -4, -5][id - 259] ?? 0) },
    ],
    ['tokenizer.ggml.bos_token_id', { type: 'u32', value: 1 }],
    ['tokenizer.ggml.unknown_token_id', { type: 'u32', value: 0 }],
  ]);
  const tokenizer = loadTokenizer({ path: 'x.gguf', version: 3, metadata: new Map(keys), tensors: [], dataOffset: 0 });
  const names = (/** @type {string} */ text) => [...tokenizer.encode(text)].map((id) => all[id]);
  assert.deepEqual(names('abc'), ['<s>', '\u2581abc']);
  assert.deepEqual(names('bc ab'), ['<s>', '\u2581', 'bc', '\u2581a', 'b'].slice(0, 3).concat(['\u2581', 'ab']));
  assert.deepEqual(names('é'), ['<s>', '\u2581', '<0xC3>', '<0xA9>']);
  assert.equal(tokenizer.decode(tokenizer.encode('abc é b'), { skipSpecial: true }), 'abc é b');
});

test('export, info, eval and import from the command line', async (t) => {
  const folder = temporaryFolder(t);
  const run = (/** @type {string[]} */ ...args) => lm(args);
  const at = (/** @type {string} */ name) => join(folder, name);
  cpSync(join(FIXTURES, 'llama'), at('base'), { recursive: true });
  const wide = new Decoder({ ...readConfig(at('base')), vocabSize: 1000 });
  const tokenizer = loadTokenizer(JSON.parse(readFileSync(fixture('llama3'), 'utf8')), { config: { bos_token: '<|begin_of_text|>' } });
  await exportModel(wide, at('model'), { dtype: 'f32', files: tokenizer.files() });
  const exported = run('export', '--model', at('model'), '--out', at('model.gguf'), '--dtype', 'q8_0');
  assert.equal(exported.status, 0, exported.stderr);
  assert.match(exported.stdout, /model\.gguf has the model of .*model in q8_0/);
  assert.match(
    run('info', at('model.gguf')).stdout,
    /model\.gguf: llama, 2 layers of 32, .*vocabulary 1000, context 64, in f16, f32, q8_0\n$/,
  );
  assert.equal(JSON.parse(run('info', at('model.gguf'), '--json').stdout).kvHeads, 2);

  writeFileSync(at('text.txt'), makeTexts().novel.slice(0, 20_000));
  const made = run('tokenize', at('text.txt'), '--tokenizer', at('model'), '--out', at('data'), '--validation', '0.5');
  assert.equal(made.status, 0, made.stderr);
  const imported = run('import', at('model.gguf'), '--out', at('again'));
  assert.equal(imported.status, 0, imported.stderr);
  assert.ok(existsSync(at('again/tokenizer.json')) && existsSync(at('again/model.safetensors')));
  assert.equal(digestOf(at('model.gguf')), digestOf(at('again')), "ids by the file's tokenizer are ids by that of the folder made from it");
  assert.deepEqual(await numbersOf(await importModel(at('again'))), await numbersOf(await importModel(at('model.gguf'))));
  const scores = ['model.gguf', 'model'].map((name) => {
    const { status, stdout, stderr } = run('eval', '--model', at(name), '--data', at('data'), '--windows', '4', '--json');
    assert.equal(status, 0, stderr);
    return JSON.parse(stdout);
  });
  assert.equal(scores[0].tokens, scores[1].tokens);
  // Weights of 8 bits lose little.
  assert.ok(Math.abs(scores[0].loss - scores[1].loss) < 0.02 && scores[0].loss !== scores[1].loss, JSON.stringify(scores));

  const refused = run('export', '--model', at('model'), '--out', at('other'), '--dtype', 'q8_0');
  assert.equal(refused.status, 2);
  assert.match(refused.stderr, /--dtype q8_0 is a type of GGUF: --out .*other must end in \.gguf/);
  writeFileSync(at('broken.gguf'), readFileSync(at('model.gguf')).subarray(0, 5000));
  const broken = run('info', at('broken.gguf'));
  assert.equal(broken.status, 1);
  assert.match(broken.stderr, /broken\.gguf: the key "tokenizer\.ggml\.tokens" has 1000 elements .*; the file has \d+ more/);
});
