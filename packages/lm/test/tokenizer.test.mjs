/**
 * Encoding gives the ids of Hugging Face's library (written by fixtures/make-tokenizers.py), decoding gives the text back, and files with
 * something unknown are refused.
 */

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { Tokenizer as Library } from '@huggingface/tokenizers';
import { compilePattern } from '../src/tokenizer/pattern.mjs';
import { loadTokenizer } from '../src/tokenizer/index.mjs';
import { preTokenizerOf } from '../src/tokenizer/split.mjs';
import { expected, fixture, makeTexts } from './fixtures/tokenizer-texts.mjs';
import { temporaryFolder } from '../../../__test__/lib/folder.mjs';

const sha256 = (/** @type {string | Uint8Array} */ data) => createHash('sha256').update(data).digest('hex');
const json = (/** @type {string} */ name) => JSON.parse(readFileSync(fixture(name), 'utf8'));
const OTHERS = ['llama2', 'bert'];
const BYTE_LEVEL = Object.keys(expected.ids).filter((name) => !OTHERS.includes(name));

/** @param {string} pattern @param {string} text */
const piecesOf = (pattern, text) => {
  const split = { type: 'Split', pattern: { Regex: pattern }, behavior: 'Isolated' };
  /** @type {string[]} */
  const pieces = [];
  const bytes = Buffer.from(text);
  preTokenizerOf({ type: 'Sequence', pretokenizers: [split, { type: 'ByteLevel', use_regex: false }] })?.split(bytes, (start, end) =>
    pieces.push(bytes.toString('utf8', start, end)),
  );
  return pieces;
};

test('ids of a novel, of code and of the corners of Unicode are those of tokenizers, for every family', () => {
  const texts = makeTexts();
  for (const [key, text] of Object.entries(texts)) {
    assert.equal(sha256(text), expected.texts[key], `the text ${key} has changed: make the fixtures again with make-tokenizers.py`);
  }
  for (const name of BYTE_LEVEL) {
    const tokenizer = loadTokenizer(fixture(name));
    for (const [key, text] of Object.entries(texts)) {
      const ids = tokenizer.encode(text);
      assert.deepEqual([ids.length, sha256(new Uint8Array(ids.buffer))], expected.ids[name].texts[key], `${name}: ${key}`);
    }
  }
});

test('ids of lines are those of tokenizers: added tokens, normal forms, empty text, files that another library reads', () => {
  for (const [name, { lines }] of Object.entries(expected.ids)) {
    const tokenizer = loadTokenizer(fixture(name));
    expected.lines.forEach((line, i) => assert.deepEqual([...tokenizer.encode(line)], lines[i], `${name}: ${JSON.stringify(line)}`));
  }
});

test('ids are those of @huggingface/tokenizers on text that both read alike', () => {
  const text = makeTexts().novel.slice(0, 30_000);
  // Not qwen2, whose added token "word" is a single word: that library finds it within "words" too.
  for (const name of ['gpt2', 'llama3', 'smollm', 'olmo2']) {
    const { ids } = new Library(json(name), {}).encode(text);
    assert.deepEqual([...loadTokenizer(fixture(name)).encode(text)], ids, name);
  }
});

test('text comes back from its ids, whole and as a stream of whole characters', () => {
  let state = 7;
  const random = (/** @type {number} */ below) => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) % below;
  const strings = ['\ufeff', '\ufeff\ufeffA\ufeff', 'a\r\n\r\nb', '\u{1f468}\u200d\u{1f469}', ' '.repeat(70), 'x'.repeat(5000), '\0'];
  for (let i = 0; i < 300; i++)
    strings.push(String.fromCodePoint(...Array.from({ length: random(40) }, () => random(0xd800) + 0xe000 * (i & 1))));
  // Not qwen2, which normalizes, nor roberta, which puts a space before a text, nor those whose vocabularies lack bytes.
  for (const name of ['gpt2', 'llama3', 'smollm', 'possessive', 'deepseek']) {
    const tokenizer = loadTokenizer(fixture(name));
    for (const string of strings) {
      const ids = tokenizer.encode(string, { addSpecial: false });
      assert.equal(tokenizer.decode(ids), string, `${name}: ${JSON.stringify(string)}`);
      const stream = tokenizer.decodeStream();
      const parts = Array.from(ids, (id) => stream.push(id));
      assert.ok(parts.every((part) => /** @type {any} */ (part).isWellFormed() && (string.includes('\ufffd') || !part.includes('\ufffd'))));
      assert.equal(parts.join('') + stream.end(), string);
    }
  }
});

test('a stream that ends within a character ends with U+FFFD, and special tokens may be left out', () => {
  const tokenizer = loadTokenizer(fixture('gpt2'));
  const ids = tokenizer.encode('\u{10abcd}', { addSpecial: false });
  assert.ok(ids.length > 1);
  const stream = tokenizer.decodeStream({ skipSpecial: true });
  assert.equal(stream.push(/** @type {number} */ (tokenizer.idOf('<|endoftext|>'))), '');
  for (const id of ids.subarray(0, -1)) assert.equal(stream.push(id), '');
  assert.equal(stream.end(), '\ufffd');
  assert.equal(tokenizer.decode(tokenizer.encode('a<|endoftext|>b'), { skipSpecial: true }), 'ab');
  // Of both codecs: but for those that are asked for.
  for (const [name, left, kept] of /** @type {const} */ ([
    ['llama3', '<|begin_of_text|>', '<|endoftext|>'],
    ['llama2', '<s>', '</s>'],
  ])) {
    const own = loadTokenizer(fixture(name));
    const except = [/** @type {number} */ (own.idOf(kept))];
    const all = [...own.encode('a', { addSpecial: false }), own.idOf(left), ...except, ...own.encode('b', { addSpecial: false })];
    for (const [skipSpecial, expected] of /** @type {const} */ ([
      [true, `a${kept}b`],
      [false, `a${left}${kept}b`],
    ])) {
      const stream = own.decodeStream({ skipSpecial, except });
      const text = all.map((id) => stream.push(/** @type {number} */ (id))).join('') + stream.end();
      assert.equal(text.replaceAll(' ', ''), expected, name);
    }
  }
});

test('lone surrogates and bytes that are not UTF-8 count as U+FFFD; bytes and strings have the same ids', () => {
  for (const name of ['gpt2', 'llama2']) {
    const tokenizer = loadTokenizer(fixture(name));
    assert.deepEqual(tokenizer.encode('a\ud83db\ude00'), tokenizer.encode('a\ufffdb\ufffd'));
    assert.deepEqual(tokenizer.encode(Uint8Array.of(0xef, 0xbb, 0xbf, 0x61, 0xff)), tokenizer.encode('\ufeffa\ufffd'));
  }
  assert.equal(loadTokenizer(fixture('gpt2')).decode([1e9]), '\ufffd');
});

test('another library streams whole characters too', () => {
  const tokenizer = loadTokenizer(fixture('llama2'));
  const ids = tokenizer.encode('Call me \u{1f600} and caf\u00e9');
  const stream = tokenizer.decodeStream();
  const parts = Array.from(ids, (id) => stream.push(id));
  assert.ok(
    parts.every((part) => !part.includes('\ufffd')),
    JSON.stringify(parts),
  );
  assert.equal(parts.join('') + stream.end(), 'Call me \u{1f600} and caf\u00e9');
});

test('long runs take time by their length, and a text may be one word of some million characters', () => {
  const tokenizer = loadTokenizer(fixture('gpt2'));
  for (const run of ['a'.repeat(1 << 20), '\u{1f600}'.repeat(1 << 18), ' '.repeat(1 << 20)]) {
    assert.equal(tokenizer.decode(tokenizer.encode(run)), run);
  }
  // JavaScript's regular expressions run out of stack here.
  assert.equal(compilePattern('\\p{L}+')(Buffer.from('\u4e2d'.repeat(9 << 20)), 0, 27 << 20), 27 << 20);
});

test('words are remembered up to a bound, and forgetting changes no id', () => {
  const tokenizer = loadTokenizer(fixture('gpt2'));
  // More different words than are remembered.
  const words = Array.from({ length: 200_000 }, (_, i) => ` ${i.toString(36)}q`).join('');
  const ids = tokenizer.encode(words);
  assert.deepEqual(tokenizer.encode(words), ids);
  assert.equal(tokenizer.decode(ids), words);
});

test('patterns are read as Oniguruma reads them', () => {
  // What `Split(Regex(…), "isolated")` of tokenizers 0.23.3 gave.
  /** @type {[string, string, string[]][]} */
  const cases = [
    ['\\p{N}{1,3}+', 'a1234567b', ['a', '1234567', 'b']],
    ['\\p{N}{2,3}+', 'a1234567b', ['a', '123456', '7b']],
    ['\\p{N}{1,3}', 'a1234567b', ['a', '123', '456', '7', 'b']],
    ['a++a|a', 'aaab', ['a', 'a', 'a', 'b']],
    ['\\s+$', 'a \n  b  ', ['a', ' ', '\n  b', '  ']],
    ["(?i:'s|'t)", "a'\u017f 'S 'T b", ['a', "'\u017f", ' ', "'S", ' ', "'T", ' b']],
    ['(?i)abc|d', 'aBC D', ['aBC', ' ', 'D']],
    ['.', 'a\nb\rc\u2028d', ['a', '\n', 'b', '\r', 'c', '\u2028', 'd']],
    ['x*', 'abxxc', ['a', 'b', 'xx', 'c']],
    ['a(?=b)|c(?!d)', 'abaccd', ['a', 'ba', 'c', 'cd']],
    ['\\x{41}|\\u0042|\\x43', 'xABC', ['x', 'A', 'B', 'C']],
    ['\\P{L}|\\p{^L}', 'a1c', ['a', '1', 'c']],
    ['\\p{Han}', 'a\u4e2dc', ['a', '\u4e2d', 'c']],
  ];
  for (const [pattern, text, pieces] of cases) assert.deepEqual(piecesOf(pattern, text), pieces, pattern);
  assert.equal(compilePattern('a|ab')(Buffer.from('ab'), 0, 2), 1, 'the earlier alternative');
  assert.equal(compilePattern('a+?b?')(Buffer.from('aab'), 0, 3), 1, 'as few as possible');
  for (const pattern of ['(?<=a)b', '[a&&b]', '(a)\\1', '(?:ab)++', '(?=ab)', '\\bx', '^a', '(', '[a', 'a)', '\\p{Nonsense}']) {
    assert.throws(() => compilePattern(pattern), { message: /of the pattern/ }, pattern);
  }
});

test('a file that says something unknown is refused, with its name, the key, what is there and what is known', () => {
  const of = (/** @type {any} */ change) => () => loadTokenizer({ ...json('gpt2'), ...change });
  assert.throws(of({ model: { type: 'Quantum', vocab: {} } }), /tokenizer\.json: model\.type is "Quantum"; known: BPE, Unigram, WordPiece/);
  assert.throws(
    of({ pre_tokenizer: { type: 'Sequence', pretokenizers: [{ type: 'Tea' }] } }),
    /pre_tokenizer\.pretokenizers\[0\]\.type is "Tea"; known: Bert/,
  );
  assert.throws(of({ model: { ...json('gpt2').model, merges: ['a zzz'] } }), /model\.merges\[0\] is "a zzz"; expected two tokens/);
  assert.throws(of({ model: { ...json('gpt2').model, vocab: { a: -1 } } }), /model\.vocab\["a"\] is -1; expected an id/);
  assert.throws(of({ added_tokens: [{ id: 2 ** 31, content: '<x>' }] }), /added_tokens\[0\] is \{"id":2147483648,/);
  assert.throws(
    of({ added_tokens: [{ id: 5, content: '<x>' }] }),
    /added_tokens\[0\] is \{"id":5,"content":"<x>"\}; expected an id that no other/,
  );
  assert.throws(of({ model: undefined }), /model\.vocab is not there; expected an object/);
  assert.throws(() => loadTokenizer(/** @type {any} */ ({ kind: 'morse' })), /kind is "morse"; known: "byte", "bpe"/);
  assert.throws(() => loadTokenizer('/nowhere'), /\/nowhere does not exist; a tokenizer is a folder/);
});

test('a folder gives the special tokens, and what is written from it loads again', (t) => {
  const folder = temporaryFolder(t);
  writeFileSync(join(folder, 'tokenizer.json'), JSON.stringify(json('qwen2')));
  writeFileSync(join(folder, 'special_tokens_map.json'), JSON.stringify({ pad_token: '<|endoftext|>', eos_token: 'lost' }));
  const config = {
    eos_token: { content: '<|im_end|>' },
    bos_token: null,
    sep_token: '<nowhere>',
    added_tokens_decoder: { 2000: { content: '<late>', special: true } },
    chat_template: [
      { name: 'default', template: 'a' },
      { name: 'tool_use', template: 'b' },
    ],
  };
  writeFileSync(join(folder, 'tokenizer_config.json'), JSON.stringify(config));
  const tokenizer = loadTokenizer(folder);
  const check = (/** @type {typeof tokenizer} */ loaded) => {
    assert.deepEqual(loaded.special, { eos: loaded.idOf('<|im_end|>'), pad: 0, sep: undefined, unk: undefined });
    assert.deepEqual([loaded.vocabSize, loaded.tokenOf(2000), loaded.tokenOf(1999)], [2001, '<late>', undefined]);
    assert.deepEqual([...loaded.encode('<late>')], [2000]);
    assert.deepEqual(loaded.chatTemplates, { default: 'a', tool_use: 'b' });
  };
  check(tokenizer);
  const copy = join(folder, 'copy');
  for (const [file, text] of Object.entries(tokenizer.files())) {
    mkdirSync(dirname(join(copy, file)), { recursive: true });
    writeFileSync(join(copy, file), text);
  }
  check(loadTokenizer(copy));
  check(loadTokenizer(tokenizer.toJSON(), { config: tokenizer.config }));
});

test('the tokenizers of older checkpoints load, with their ids', () => {
  const bytes = loadTokenizer({ kind: 'byte' });
  assert.deepEqual([...bytes.encode('h\u00e9')], [0x68, 0xc3, 0xa9]);
  assert.equal(bytes.vocabSize, 256);
  const merges = [
    ['\u0120', 'a'],
    ['b', 'c'],
    ['\u0120a', 'bc'],
    ['\u00c3', '\u00a9'],
  ];
  const bpe = loadTokenizer({ kind: 'bpe', merges });
  assert.deepEqual([...bpe.encode(' abc\u00e9 a')], [258, 259, 256]);
  assert.deepEqual([...loadTokenizer(bpe.toJSON()).encode(' abc\u00e9 a')], [258, 259, 256]);
  assert.equal(bpe.decode([258, 259]), ' abc\u00e9');
});
