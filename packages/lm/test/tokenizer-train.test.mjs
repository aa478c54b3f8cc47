/** Training finds the same merges as Hugging Face's trainer; chat templates render. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { applyChatTemplate, loadTokenizer, trainTokenizer } from '../src/tokenizer/index.mjs';
import { fixture, makeTexts } from './fixtures/tokenizer-texts.mjs';

const json = (/** @type {string} */ name) => JSON.parse(readFileSync(fixture(name), 'utf8'));

test('vocabulary and merges are those of tokenizers, ties included', async () => {
  const { novel, code, random } = makeTexts();
  const chunks = [novel.slice(0, 200_000), code.slice(0, 100_000), Array.from(random).slice(0, 20_000).join('')];
  /** @type {[string, any][]} */
  const cases = [
    ['gpt2', { special: ['<|endoftext|>'] }],
    ['llama3', { pattern: 'llama3', special: { bos: '<|begin_of_text|>', eos: '<|endoftext|>' } }],
    ['possessive', { pattern: json('possessive').pre_tokenizer.pretokenizers[0].pattern.Regex, special: ['<|endoftext|>'] }],
  ];
  for (const [name, options] of cases) {
    const { model } = json(name);
    const trained = (await trainTokenizer(chunks, { vocabSize: 1000, ...options })).toJSON();
    assert.deepEqual(trained.model.merges, model.merges, name);
    assert.deepEqual(trained.model.vocab, model.vocab, name);
    assert.deepEqual(trained.pre_tokenizer.type, json(name).pre_tokenizer.type);
  }
});

test('special tokens have the first ids and names, bytes all have ids, and chunks may come as bytes and in time', async () => {
  const chunks = async function* () {
    yield Buffer.from('\ufeffabab abab');
    yield ' abab';
  };
  const tokenizer = await trainTokenizer(chunks(), { vocabSize: 300, special: { bos: '<s>', eos: '</s>', pad: '</s>' } });
  assert.deepEqual(tokenizer.special, { bos: 0, eos: 1, pad: 1, unk: undefined });
  assert.equal(tokenizer.decode(tokenizer.encode('\u{1f600}\0')), '\u{1f600}\0');
  assert.deepEqual([...tokenizer.encode('<s>')], [0]);
  // ab, abab, " abab", and the three bytes of U+FEFF with what follows: no more pairs are in the text.
  assert.ok(tokenizer.vocabSize > 258 && tokenizer.vocabSize < 300);
  const twice = await trainTokenizer(['abab abab', ' abab'], { vocabSize: 300, minFrequency: 3 });
  assert.deepEqual(twice.toJSON().model.merges[0], ['a', 'b']);
  assert.equal(twice.toJSON().model.merges.length, 2);
  const broken = await trainTokenizer(['\ud83d\n\ud83d'], { vocabSize: 300, minFrequency: 2 });
  assert.equal(broken.toJSON().model.merges.length, 2, 'a lone surrogate is U+FFFD, whose three bytes occur twice');
});

test('a vocabulary too small and a pattern that is none are refused', async () => {
  await assert.rejects(trainTokenizer([''], { vocabSize: 256, special: ['<s>'] }), /vocabSize must be from 257 .* got 256/);
  await assert.rejects(
    trainTokenizer([''], { vocabSize: 300, pattern: '(?<=a)' }),
    /pattern "\(\?<=a\)" is neither one of gpt2, llama3, qwen2 nor/,
  );
});

test('a chat template renders messages, and its own refusal is an error', () => {
  const template =
    "{%- if messages[0]['role'] != 'user' %}{{ raise_exception('Conversations begin with the user') }}{% endif %}" +
    "{{ bos_token }}{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{{ eos_token }}\n{% endfor %}" +
    '{% if add_generation_prompt %}<assistant>{% endif %}';
  const config = {
    bos_token: '<s>',
    eos_token: { content: '</s>' },
    chat_template: [
      { name: 'default', template },
      { name: 'tool_use', template: '{{ tools | length }} tools, {{ mood }}' },
    ],
  };
  const tokenizer = loadTokenizer(json('gpt2'), { config });
  const messages = [{ role: 'user', content: 'Hi' }];
  assert.equal(applyChatTemplate(tokenizer, messages), '<s><user>Hi</s>\n');
  assert.equal(applyChatTemplate(tokenizer, messages, { addGenerationPrompt: true }), '<s><user>Hi</s>\n<assistant>');
  assert.equal(applyChatTemplate(tokenizer, messages, { tools: [{}], variables: { mood: 'calm' } }), '1 tools, calm');
  assert.throws(
    () => applyChatTemplate(tokenizer, [{ role: 'tool', content: '' }]),
    /template default refuses .*: Conversations begin with the user/,
  );
  assert.throws(() => applyChatTemplate(tokenizer, messages, { name: 'rag' }), /has the templates default, tool_use; wanted: rag/);
  assert.throws(() => applyChatTemplate(fixture('gpt2'), messages), /has no chat template \(chat_template\.jinja/);
});
