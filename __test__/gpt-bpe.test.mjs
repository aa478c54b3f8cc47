// The trainer's byte-level BPE: the ids of the library that trains it, each different word merged once, bounded memory. No device.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import tokenizers from 'tokenizers';
import { BytePairEncoder, MAX_WORD, wordsOf } from '../packages/lm/src/train/bpe.mjs';
import { restoreTokenizer, shortWords, trainTokenizer, trainingText } from '../packages/lm/src/train/tokenizer.mjs';
import { makeText } from '../benches/lib/text.mjs';

const STRANGE = [
  "it's we'll they'Re I'VE 'tis d'accord ''s 'l 'll' '' 'r",
  'a  b   c\n\n d\t\te \r\n\n',
  '日本語 テスト \u{1f600}\u{1f600} e\u0301 ① ² Ⅳ ٣ ﬁ ǅ ª',
  '\u0085x \ufeffy\u200b \u3000z \u00a0 w \u2028v\u180e',
  ...["'", " '", '  ', 'x  ', 'don', '\0\0\0', '\ud83d x', '0x1F600 3.14e-10 a1b2', '<s>[CLS]</s>', '='.repeat(999), 'ab'.repeat(5000)],
];

/** GPT-2's stand-ins for bytes, as the merges spell them. */
const SYMBOLS = Array.from({ length: 256 }, (_, byte) => {
  const printable = (/** @type {number} */ b) => (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
  const unprintable = Array.from({ length: byte }, (_, b) => b).filter((b) => !printable(b)).length;
  return String.fromCharCode(printable(byte) ? byte : 0x100 + unprintable);
});

/** What the library itself makes of a text. @param {[string, string][]} merges */
function reference(merges) {
  /** @type {Record<string, number>} */
  const vocab = Object.fromEntries(SYMBOLS.map((symbol, byte) => [symbol, byte]));
  for (const [left, right] of merges) vocab[left + right] ??= Object.keys(vocab).length;
  const tokenizer = new tokenizers.Tokenizer(tokenizers.BPE.init(vocab, merges));
  tokenizer.setPreTokenizer(tokenizers.byteLevelPreTokenizer(false, true));
  return async (/** @type {string} */ text) => (await tokenizer.encode(text)).getIds();
}

test('the ids are those of the library', async () => {
  const text = makeText(200_000, 7) + STRANGE.join(' ').repeat(3);
  const tokenizer = await trainTokenizer(text, 2000);
  assert.ok(tokenizer.state.kind === 'bpe');
  const expected = reference(tokenizer.state.merges);
  for (const sample of [...STRANGE, STRANGE.join('\n'), text]) {
    assert.deepEqual([...(await tokenizer.encode(sample))], await expected(sample), JSON.stringify(sample.slice(0, 60)));
  }
  // Two ways to one token: where both apply, the earlier in the list comes first, then the earlier in the text.
  /** @type {[string, string][]} */
  const merges = 'b c,a b,a bc,ab c,c ab,c a,b ca,bc a,abc a'.split(',').map((pair) => /** @type {[string, string]} */ (pair.split(' ')));
  const two = await restoreTokenizer({ kind: 'bpe', merges });
  const of = reference(merges);
  for (let n = 0; n < 3 ** 7; n++) {
    const word = n.toString(3).replace(/[012]/g, (digit) => 'abc'[Number(digit)]);
    assert.deepEqual([...(await two.encode(word))], await of(word), word);
  }
});

test('words are the same however the text is divided', () => {
  const text = STRANGE.join(' ');
  const whole = [...wordsOf(text)];
  assert.equal(whole.join(''), text);
  assert.ok(whole.includes("'ll") && whole.includes(' d') && whole.includes(' 日本語') && whole.includes(' テスト'));
  for (const size of [1, 2, 3, 5, 17, 1000]) {
    assert.deepEqual([...wordsOf(text, size)], whole, `${size} units`);
    assert.deepEqual([...wordsOf(Buffer.from(text), size)], [...wordsOf(Buffer.from(text))], `${size} bytes`);
  }
  assert.deepEqual([...wordsOf('')], []);
});

test('each different word is merged once, and a cache of any size gives the same ids', () => {
  const text = makeText(30_000, 3);
  const different = new Set(wordsOf(text)).size;
  /** @type {[number, number, number][]} */
  const merges = [
    ['s', 't'],
    ['a', 'i'],
    ['e', 'e'],
    [' ', 'b'],
  ].map(([left, right], i) => [left.charCodeAt(0), right.charCodeAt(0), 256 + i]);
  const encoder = new BytePairEncoder(merges);
  const once = encoder.encode(text);
  assert.equal(encoder.merged, different);
  const often = encoder.encode(Buffer.from(text.repeat(40)));
  // The last word of one copy and the first of the next meet.
  assert.ok(encoder.merged <= different + 2, `${encoder.merged} merged of ${different}`);
  assert.ok(often.length > once.length * 39);
  const small = new BytePairEncoder(merges, { maxCached: 100, chunk: 1000 });
  assert.deepEqual(small.encode(text), once);
  assert.ok(small.merged > different);
});

test('a word without an end is cut', () => {
  for (const unit of ['x', '=', ' ', '\0', '日', '\u{1f600}']) {
    const text = unit.repeat(Math.ceil((3.5 * MAX_WORD) / unit.length));
    for (const size of [1 << 12, 1 << 18]) {
      const words = [...wordsOf(text, size)];
      assert.ok(words.join('') === text, JSON.stringify(unit));
      assert.ok(words.length >= 4 && words.every((word) => word.length <= MAX_WORD && !/\p{Cs}/u.test(word)));
    }
    const ids = new BytePairEncoder([
      [120, 120, 256],
      [256, 256, 257],
    ]).encode(text);
    assert.equal(ids.length, unit === 'x' ? text.length / 4 : Buffer.byteLength(text));
  }
});

test('a tokenizer is trained on pieces from all over a text that is too long for it', () => {
  for (const words of ['the quick brown fox, 42 jumps! ', '日本語', '\u{1f600}']) {
    const text = Buffer.from(words.repeat(2_790_000 / words.length));
    assert.equal(trainingText(text), text);
    const most = text.length / 4;
    const sample = [...trainingText(text, most)].map(String);
    const bytes = sample.reduce((sum, piece) => sum + Buffer.byteLength(piece), 0);
    assert.ok(sample.length > 8 && bytes <= most + sample.length * 3 && bytes > most / 2, `${bytes} of ${text.length}`);
    assert.ok(sample.every((piece, i) => (i % 2 ? piece === '\n' : text.includes(piece) && !piece.includes('\ufffd'))));
    const last = Buffer.from(sample.at(-2) ?? '');
    assert.ok(text.lastIndexOf(last) > text.length * 0.9);
  }
  assert.deepEqual([...trainingText(Buffer.from('abcdef'), 3)].map(String), ['abc', '\n']);
});

test('a tokenizer is trained on a text without white space in time, and on any other as it is', { timeout: 60_000 }, async () => {
  const usual = 'the quick brown fox, 日本語. '.repeat(500);
  assert.deepEqual([...shortWords(usual)].map(String), [usual]);
  assert.deepEqual([...shortWords('abcdefg hi', 3)].map(String), ['abc', '\n', 'def', '\n', 'g hi']);
  assert.deepEqual([...shortWords('é日é', 3)].map(String), ['é', '\n', '日', '\n', 'é'], 'between characters');
  assert.deepEqual([...shortWords('a    b', 3)].map(String), ['a   ', '\n', ' b']);
  assert.deepEqual([...shortWords([Buffer.from('abcd'), Buffer.from('efgh')], 3)].map(String), ['abc', '\n', 'd', 'efg', '\n', 'h']);
  // Of less than half as many x the library alone takes minutes.
  for (const byte of [0, 0x20, 0x78]) {
    const text = Buffer.alloc(1_000_000, byte);
    const tokenizer = await trainTokenizer(text, 270);
    assert.ok((await tokenizer.encode(text)).length < 10_000);
  }
});
