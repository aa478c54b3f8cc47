// loadModel, generate, generateBatch and embed: text, stop texts, options, slots; and the command `generate`.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { loadModel } from '../src/index.mjs';
import { LanguageModel } from '../src/infer/model.mjs';
import { StopFinder } from '../src/infer/stops.mjs';
import { fixture } from './fixtures/tokenizer-texts.mjs';
import { temporaryFolder } from '../../../__test__/lib/folder.mjs';
import { lm } from '../../../__test__/lib/lm.mjs';
import { CHATML, all, scriptedEngine, textOf, writeTinyModel, writeTokenizer } from './lib/tiny-model.mjs';

/** @typedef {import('../src/infer/options.mjs').GenerateOptions} GenerateOptions */

const base = temporaryFolder();
const TINY = join(base, 'tiny');
const WORDS = join(base, 'words');
/** @type {LanguageModel} */
let tiny;
before(async () => {
  await writeTinyModel(TINY, { template: CHATML });
  await writeTokenizer(WORDS, { template: CHATML, generation: { temperature: 0.5, top_k: 7, eos_token_id: [0, 9], min_p: null } });
  tiny = await loadModel(TINY, { slots: 2 });
});
after(() => tiny.dispose());

/** A model that continues every prompt with a text. @param {string} text @param {Partial<Parameters<typeof scriptedEngine>[1]>} [options] */
function saying(text, options) {
  const engine = scriptedEngine(WORDS, { answer: () => [...engine.tokenizer.encode(text), 0], ...options });
  return { engine, model: new LanguageModel(engine) };
}

/** Pseudorandom integers. @param {number} state */
const randomOf = (state) => (/** @type {number} */ below) => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) % below;

test('stop texts: what is printed is what a search of the whole text says, wherever it is cut', () => {
  const random = randomOf(5);
  const word = (/** @type {number} */ length) => Array.from({ length }, () => ['a', 'b', '🙂'][random(3)]).join('');
  let found = 0;
  for (let i = 0; i < 2000; i++) {
    const text = word(random(12));
    const stops = Array.from({ length: 1 + random(3) }, () => word(1 + random(5)));
    const ends = stops.flatMap((stop) => (text.includes(stop) ? [[text.indexOf(stop) + stop.length, text.indexOf(stop)]] : []));
    const [end, start] = ends.sort((a, b) => a[0] - b[0] || a[1] - b[1])[0] ?? [];
    // Of stops that end at one place the longest counts.
    const expected = end === undefined ? text : text.slice(0, start);
    const finder = new StopFinder(stops);
    let printed = '';
    let stopped = false;
    const characters = [...text];
    while (characters.length > 0 && !stopped) {
      const next = finder.push(characters.splice(0, 1 + random(3)).join(''));
      printed += next.text;
      assert.ok(expected.startsWith(printed), `${text} | ${stops}: ${printed}`);
      stopped = next.found;
    }
    if (!stopped) printed += finder.end();
    assert.deepEqual([printed, stopped], [expected, end !== undefined], `${text} | ${stops}`);
    found += Number(stopped);
  }
  assert.ok(found > 300 && found < 1700, String(found));
});

test('a stop text that spans tokens ends the answer, frees the slot, and is no part of the text', async () => {
  const { model, engine } = saying('the old men END and more');
  for (const stop of ['END', ['nothing', 'ND and'], ['men E']]) {
    const parts = await all(model.generate('x', { stop }));
    const cut = typeof stop === 'string' ? 'the old men ' : stop.length === 2 ? 'the old men E' : 'the old ';
    assert.equal(textOf(parts), cut);
    assert.equal(parts.at(-1)?.finishReason, 'stop');
    assert.ok(parts.slice(0, -1).every(({ finishReason }) => finishReason === null));
    assert.equal(engine.busy, 0);
  }
  // Text that only looks like a beginning comes out in the end.
  assert.equal(textOf(await all(model.generate('x', { stop: 'more!' }))), 'the old men END and more');
});

test('topLogprobs: the most likely tokens beside each token, and nothing unless asked', async () => {
  const prompt = 'the old men';
  const plain = await all(tiny.generate(prompt, { maxTokens: 6, temperature: 0 }));
  assert.ok(plain.every((part) => !('topLogprobs' in part)));
  const parts = await all(tiny.generate(prompt, { maxTokens: 6, temperature: 0, topLogprobs: 3 }));
  assert.equal(textOf(parts), textOf(plain));
  for (const { token, logprob, topLogprobs = [] } of parts) {
    assert.deepEqual([topLogprobs.length, topLogprobs[0].token], [3, token]);
    assert.ok(Math.abs(topLogprobs[0].logprob - logprob) < 1e-5);
    assert.ok(topLogprobs[0].logprob >= topLogprobs[1].logprob && topLogprobs[1].logprob >= topLogprobs[2].logprob);
  }
  assert.throws(() => tiny.generate(prompt, { topLogprobs: 21 }), { option: 'topLogprobs', message: /from 0 to 20, got 21$/ });
});

test('parts have whole characters only, though a character is several tokens; what is incomplete at the end is U+FFFD', async () => {
  const text = 'né 🙂🙃 日本 e\u0301';
  const { model, engine } = saying(text);
  const ids = [...engine.tokenizer.encode(text)];
  assert.ok(ids.length > [...text].length);
  const parts = await all(model.generate('x'));
  assert.deepEqual(
    parts.map(({ token }) => token),
    [...ids, 0],
  );
  assert.ok(parts.every((part) => !part.text.includes('\ufffd') && !/[\ud800-\udbff]$/.test(part.text)));
  assert.equal(textOf(parts), text);
  for (let count = 1; count < ids.length; count++) {
    const some = await all(model.generate('x', { maxTokens: count }));
    assert.equal(textOf(some), engine.tokenizer.decode(ids.slice(0, count)));
    assert.equal(some.at(-1)?.finishReason, 'length');
  }
});

test('a tokenizer whose first token loses its space: a continued text keeps it, an answer does not have it', async () => {
  const file = fixture('llama2');
  const engine = scriptedEngine(file, { answer: () => [...engine.tokenizer.encode('and more', { addSpecial: false })] });
  const model = new LanguageModel(engine);
  assert.equal(textOf(await all(model.generate('one'))), ' and more');
  assert.equal(textOf(await all(model.generate(engine.tokenizer.encode('one')))), 'and more');
  for (const token of ['<unk>', '<s>', '</s>']) assert.ok(model.isSpecial(engine.tokenizer.idOf(token) ?? -1), token);
  for (const token of ['▁', 'a', '▁and']) assert.ok(!model.isSpecial(engine.tokenizer.idOf(token) ?? -1), token);
});

test('an answer ends at the ids of config.json, of generation_config.json and of the end of a turn; they are printed only if asked', async () => {
  for (const [id, end] of /** @type {const} */ ([
    [0, '<|end|>'],
    [9, "'"],
    [2, '<|im_end|>'],
  ])) {
    const engine = scriptedEngine(WORDS, { answer: () => [...engine.tokenizer.encode('one'), id, ...engine.tokenizer.encode(' two')] });
    const model = new LanguageModel(engine);
    assert.equal(engine.tokenizer.decode([id]), end);
    const parts = await all(model.generate('x'));
    assert.deepEqual([textOf(parts), parts.at(-1)?.finishReason, parts.at(-1)?.token], ['one', 'stop', id]);
    assert.equal(textOf(await all(model.generate('x', { special: true }))), `one${end}`);
    assert.equal(textOf(await all(model.generate('x', { ignoreEos: true }))), id === 9 ? "one' two" : 'one two');
  }
});

test("options: the model's own, what is given, and errors that name them", async () => {
  const { model, engine } = saying('a');
  await all(model.generate('x', { topP: 0.3, seed: 5, maxTokens: 3 }));
  const penalties = { repetitionPenalty: 1, presencePenalty: 0, frequencyPenalty: 0, repeatLastN: 64 };
  assert.deepEqual(engine.requests[0].sampling, { temperature: 0.5, topK: 7, topP: 0.3, minP: 0.05, seed: 5, ...penalties });
  assert.equal(engine.requests[0].maxTokens, 3);
  await all(model.generate('x'));
  await all(model.generate('x'));
  assert.notEqual(engine.requests[1].sampling.seed, engine.requests[2].sampling.seed);
  const plain = saying('a');
  writeFileSync(join(WORDS, 'generation_config.json'), JSON.stringify({ temperature: 0.7, do_sample: false }));
  const greedy = new LanguageModel(plain.engine);
  await all(greedy.generate('x'));
  assert.equal(plain.engine.requests[0].sampling.temperature, 0);
  writeFileSync(join(WORDS, 'generation_config.json'), JSON.stringify({ top_p: 3 }));
  assert.throws(() => new LanguageModel(plain.engine), /generation_config\.json: top_p must be a number from 0 to 1, got 3/);
  writeFileSync(join(WORDS, 'generation_config.json'), '{}');

  for (const [options, message] of /** @type {[any, RegExp][]} */ ([
    [{ top_k: 3 }, /^no option top_k; did you mean topK\?$/],
    [{ temprature: 3 }, /^no option temprature; did you mean temperature\?$/],
    [{ max_new_tokens: 3 }, /^no option max_new_tokens; did you mean maxTokens\?$/],
    [{ topK: 1.5 }, /^topK must be an integer from 0 to 2147483647, got 1\.5$/],
    [{ temperature: -1 }, /^temperature must be a number from 0 to 1000, got -1$/],
    [{ temperature: Number.NaN }, /^temperature must be .*, got NaN$/],
    [{ seed: '7' }, /^seed must be an integer from 0 to 4294967295, got "7"$/],
    [{ stop: ['a', ''] }, /^stop must be a text or a list of texts, none of them empty, got a list of 2$/],
    [{ signal: {} }, /^signal must be an AbortSignal, got an object$/],
    [{ special: 1 }, /^special must be true, false or a list of ids, got 1$/],
  ])) {
    assert.throws(() => model.generate('x', options), { name: 'RangeError', message });
    assert.throws(() => model.generateBatch(['x'], options), { name: 'RangeError', message });
    assert.throws(() => model.chat(options), { name: 'RangeError', message });
  }
  for (const [options, message] of /** @type {[any, RegExp][]} */ ([
    [{ dtyp: 'f16' }, /^no option dtyp; did you mean dtype\?$/],
    [{ dtype: 'int4' }, /^dtype must be one of auto, f32, f16, bf16, q8_0, got "int4"$/],
    [{ context: 1 }, /^context must be an integer from 2 to 16777216, got 1$/],
    [{ slots: 0 }, /^slots must be an integer from 1 to 256, got 0$/],
  ])) {
    await assert.rejects(loadModel(TINY, options), { name: 'RangeError', message });
  }
  assert.throws(() => model.chat(/** @type {any} */ ({ sytem: 'be' })), /no option sytem; did you mean system\?/);
  for (const [prompt, message] of /** @type {[any, RegExp][]} */ ([
    [undefined, /^the prompt must be a text, messages or ids, got undefined$/],
    [[], /^the prompt must be a text, messages or ids, got a list of 0$/],
    [7, /^the prompt must be .*, got 7$/],
    [[1, 290], /^prompt\[1\] must be an id from 0 to 289, got 290$/],
    [[1, 'a'], /^prompt\[1\] must be an id from 0 to 289, got "a"$/],
  ])) {
    assert.throws(() => model.generate(prompt), { message });
  }
  assert.throws(() => tiny.generate(new Uint32Array(128)), {
    code: 'CONTEXT_LENGTH',
    message: 'the prompt has 128 tokens, and the context of 128 has no room for an answer',
  });
});

test('a model: one text a seed, within the context or beyond it, from text, ids and messages', async () => {
  const options = { seed: 4, maxTokens: 20, ignoreEos: true };
  const parts = await all(tiny.generate('the old', options));
  assert.equal(parts.length, 20);
  assert.deepEqual(
    parts.map(({ finishReason }) => finishReason),
    [...new Array(19).fill(null), 'length'],
  );
  assert.equal(
    textOf(parts),
    tiny.tokenizer.decode(
      parts.map(({ token }) => token),
      { skipSpecial: true },
    ),
  );
  assert.ok(parts.every(({ logprob }) => logprob <= 0));
  assert.deepEqual(await all(tiny.generate('the old', options)), parts);
  assert.deepEqual(await all(tiny.generate(tiny.tokenizer.encode('the old'), options)), parts);
  assert.notDeepEqual(await all(tiny.generate('the old', { ...options, seed: 5 })), parts);
  const messages = [{ role: 'user', content: 'the old' }];
  const ids = tiny.tokenizer.encode('<|im_start|>user\nthe old<|im_end|>\n<|im_start|>assistant\n', { addSpecial: false });
  assert.deepEqual(await all(tiny.generate(messages, options)), await all(tiny.generate(ids, options)));

  const full = await all(tiny.generate(ids, { ...options, maxTokens: 1000 }));
  assert.deepEqual([full.length, full.at(-1)?.finishReason], [128 - ids.length, 'context']);
  const beyond = await all(tiny.generate(ids, { ...options, maxTokens: 200, shift: true }));
  assert.deepEqual([beyond.length, beyond.at(-1)?.finishReason], [200, 'length']);
  assert.deepEqual(textOf(beyond).slice(0, 20), textOf(full).slice(0, 20));
  assert.equal((await all(tiny.generate(new Uint32Array(300).fill(40), { ...options, shift: true }))).length, 20);
  assert.deepEqual(await all(tiny.generate('x', { maxTokens: 0 })), []);
});

test('an answer that is aborted or left early gives its slot to the next', { timeout: 60_000 }, async () => {
  const options = { seed: 4, maxTokens: 60, ignoreEos: true };
  const stop = new AbortController();
  const parts = [];
  for await (const part of tiny.generate('the', { ...options, signal: stop.signal })) {
    parts.push(part);
    if (parts.length === 3) stop.abort();
  }
  assert.equal(parts.at(-1)?.finishReason, 'abort');
  assert.equal(parts.at(-1)?.token, -1);
  assert.ok(parts.length < 10);
  const aborted = await all(tiny.generate('the', { ...options, signal: AbortSignal.abort() }));
  assert.deepEqual(
    aborted.map(({ finishReason }) => finishReason),
    ['abort'],
  );
  // More than there are slots.
  for (let i = 0; i < 5; i++) {
    for await (const { text } of tiny.generate('the', options)) {
      assert.equal(typeof text, 'string');
      break;
    }
  }
  assert.equal((await all(tiny.generate('the', options))).length, 60);
});

test('a batch: every prompt has the text of its seed, in as many slots as there are', { timeout: 60_000 }, async () => {
  const prompts = ['the', 'old men', [{ role: 'user', content: 'and' }], Uint32Array.of(50, 60), 'sea', 'one', 'another'];
  const options = { seed: 2 ** 32 - 2, maxTokens: 12, ignoreEos: true };
  const texts = prompts.map(() => '');
  const counts = prompts.map(() => 0);
  for await (const { index, text } of tiny.generateBatch(prompts, options)) {
    texts[index] += text;
    counts[index]++;
  }
  assert.deepEqual(counts, new Array(7).fill(12));
  for (const [i, prompt] of prompts.entries()) {
    assert.equal(texts[i], textOf(await all(tiny.generate(prompt, { ...options, seed: (options.seed + i) >>> 0 }))), `prompt ${i}`);
  }
  const { model, engine } = saying('one two three', { slots: 3 });
  let most = 0;
  for await (const { index } of model.generateBatch(new Array(9).fill('x'))) [(most = Math.max(most, engine.busy)), assert.ok(index < 9)];
  assert.deepEqual([most, engine.busy, engine.requests.length], [3, 0, 9]);
  for await (const _ of model.generateBatch(new Array(9).fill('x'))) break;
  assert.equal(engine.busy, 0);
  await assert.rejects(all(model.generateBatch(['a', /** @type {any} */ (7), 'b'])), /^TypeError: prompt 1: the prompt must be a text/);
  assert.equal(engine.busy, 0);
});

test('an embedding is what the engine pools of the ids', async () => {
  const { model } = saying('a');
  assert.deepEqual([...(await model.embed('<|end|><|end|>'))], [2, 0, 2, -2]);
  assert.deepEqual([...(await model.embed([5], { pooling: 'last' }))], [1, 1, 2, -2]);
  await assert.rejects(
    model.embed('a', { pooling: /** @type {any} */ ('max') }),
    /^RangeError: pooling must be 'mean' or 'last', got "max"$/,
  );
});

test('generate: a prompt from everywhere, text or JSON, old names, several prompts', async () => {
  const options = { seed: 3, maxTokens: 8, ignoreEos: true };
  const expected = textOf(await all(tiny.generate('the old', options)));
  const args = ['--max-tokens', '8', '--seed', '3', '--ignore-eos', '--quiet'];
  const plain = lm(['generate', TINY, '--prompt', 'the old', ...args]);
  assert.deepEqual(plain, { status: 0, stdout: `the old${expected}\n`, stderr: '' });
  const file = join(base, 'prompt.txt');
  writeFileSync(file, 'the old');
  for (const [more, input] of /** @type {[string[], string?][]} */ ([
    [['--model', TINY, '--prompt', '-', ...args], 'the old'],
    [[TINY, '--prompt-file', file, '--no-stream', ...args]],
    [['--checkpoint', TINY, '--prompt', 'the old', '--tokens=8', '--precision', 'bf16x3', ...args.slice(2)]],
  ])) {
    assert.deepEqual(lm(['generate', ...more], {}, { input }), plain);
  }
  assert.deepEqual(JSON.parse(lm(['generate', TINY, '--prompt', 'the old', '--json', ...args]).stdout), {
    ...{ text: expected, tokens: 8, finishReason: 'length', seed: 3 },
  });
  const cut = lm(['generate', TINY, '--prompt', 'the old', '--stop', 'none', '--stop', expected.slice(3, 5), ...args]);
  assert.equal(cut.stdout, `the old${expected.slice(0, expected.indexOf(expected.slice(3, 5)))}\n`);
  const messages = [
    { role: 'system', content: 'be' },
    { role: 'user', content: 'the old' },
  ];
  const chat = lm(['generate', TINY, '--chat', '--system-prompt', 'be', '--prompt', 'the old', ...args]);
  assert.equal(chat.stdout, `${textOf(await all(tiny.generate(messages, options)))}\n`);

  // As an editor on Windows writes it.
  const lines = ['\ufeffthe', '"old\\nmen"', '', JSON.stringify(messages), '{ no JSON'];
  const prompts = join(base, 'prompts.jsonl');
  writeFileSync(prompts, `${lines.join('\r\n')}\r\n`);
  const results = lm(['generate', TINY, '--prompts', prompts, '--batch-size', '2', '--json', ...args]);
  assert.equal(results.status, 0, results.stderr);
  const found = results.stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  for (const [i, prompt] of ['the', 'old\nmen', messages, '{ no JSON'].entries()) {
    const text = textOf(await all(tiny.generate(prompt, { ...options, seed: 3 + i })));
    assert.deepEqual(found[i], { index: i, text, tokens: 8, finishReason: 'length' });
  }
  const [bad, utf16] = [join(base, 'bad.jsonl'), join(base, 'utf16.txt')];
  writeFileSync(bad, 'the\n\n{"x": 1}\n');
  writeFileSync(utf16, '\ufeffthe', 'utf16le');
  for (const [more, message] of /** @type {[string[], RegExp][]} */ ([
    [[], /--model PATH is required/],
    [[TINY, '--model', TINY], /the model is named twice/],
    [[TINY, '--prompt', 'a', '--prompt-file', file], /--prompt, --prompt-file and --prompts exclude each other/],
    [[TINY, '--prompts', bad], /--prompts .*bad\.jsonl, line 3 must be a text, a JSON string or a list of messages/],
    [[TINY, '--prompt-file', utf16], /--prompt-file .*utf16\.txt is not UTF-8/],
  ])) {
    const { status, stderr } = lm(['generate', ...more]);
    assert.equal(status, 2, stderr);
    assert.match(stderr, message);
  }
});
