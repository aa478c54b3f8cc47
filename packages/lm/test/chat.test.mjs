// Conversations: what the model sees of the turns, what it keeps of its cache, and the command `chat`.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { loadModel } from '../src/index.mjs';
import { LanguageModel } from '../src/infer/model.mjs';
import { temporaryFolder } from '../../../__test__/lib/folder.mjs';
import { writeText } from '../src/cli/progress.mjs';
import { CHATML, all, scriptedEngine, textOf, writeTinyModel, writeTokenizer } from './lib/tiny-model.mjs';

const PROGRAM = fileURLToPath(new URL('../bin/helios-lm.mjs', import.meta.url));
const posix = process.platform === 'win32' ? { skip: 'signals are not sent on Windows' } : {};
const base = temporaryFolder();
const [TINY, LONG, WORDS, PLAIN] = ['tiny', 'long', 'words', 'plain'].map((name) => join(base, name));
before(async () => {
  await writeTinyModel(TINY, { template: CHATML });
  await writeTinyModel(LONG, { template: CHATML, context: 2048 });
  await writeTokenizer(WORDS, { template: CHATML });
  await writeTokenizer(PLAIN);
});

/** @param {string} folder @param {(ids: number[]) => number[]} answer @param {number} [context] */
function chatting(folder, answer, context) {
  const engine = scriptedEngine(folder, { answer, context });
  const { tokenizer } = engine;
  return { engine, tokenizer, model: new LanguageModel(engine), seen: () => tokenizer.decode(engine.requests.at(-1).ids) };
}

test('a conversation continues the ids of all turns before, also where the text alone would have others', async () => {
  // 't', 'h', 'e' and not 'the': ids that encoding would not give.
  const { model, engine, tokenizer, seen } = chatting(WORDS, () => [...['t', 'h', 'e'].map((letter) => tokenizer.idOf(letter) ?? -1), 2]);
  const chat = model.chat({ system: 'be', seed: 1 });
  assert.equal(textOf(await all(chat.send('one'))), 'the');
  assert.equal(seen(), '<|im_start|>system\nbe<|im_end|>\n<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\n');
  const first = [...engine.requests[0].ids];
  assert.equal(textOf(await all(chat.send('two', { maxTokens: 2 }))), 'th');
  const written = [...first, ...['t', 'h', 'e'].map((letter) => tokenizer.idOf(letter))];
  assert.deepEqual(engine.requests[1].ids.slice(0, written.length), written);
  const turn = (/** @type {string} */ role, /** @type {string} */ text) => `<|im_start|>${role}\n${text}<|im_end|>\n`;
  const head = turn('system', 'be') + turn('user', 'one') + turn('assistant', 'the') + turn('user', 'two');
  assert.equal(seen(), `${head}<|im_start|>assistant\n`);
  await all(chat.send('three'));
  assert.equal(seen(), `${head}${turn('assistant', 'th')}${turn('user', 'three')}<|im_start|>assistant\n`);
  assert.deepEqual(
    chat.messages.map(({ role, content }) => `${role}: ${content}`),
    [...['system: be', 'user: one', 'assistant: the', 'user: two', 'assistant: th', 'user: three', 'assistant: the']],
  );
  // Text cut off at a stop text is not what the model wrote: its ids are made anew.
  await all(chat.send('four', { stop: 'e' }));
  await all(chat.send('five'));
  assert.equal(seen().split('assistant\n').at(-2), `th<|im_end|>\n<|im_start|>user\nfive<|im_end|>\n<|im_start|>`);
});

test('what is aborted or left early stays as far as it came; what is refused leaves the conversation as before', async () => {
  const { model, engine, tokenizer } = chatting(WORDS, () => [...tokenizer.encode('one two three four'), 2], 200);
  const chat = model.chat();
  let text = '';
  for await (const part of chat.send('a')) if ((text += part.text).length > 3) break;
  assert.deepEqual(chat.messages, [
    { role: 'user', content: 'a' },
    { role: 'assistant', content: text },
  ]);
  assert.ok(text.length < 10 && engine.busy === 0);
  const stop = new AbortController();
  for await (const _ of chat.send('b', { signal: stop.signal })) stop.abort();
  assert.equal(chat.messages.length, 4);
  const kept = [...chat.messages];
  assert.throws(() => chat.send('c', { topK: -1 }), /topK must be/);
  assert.throws(() => chat.send('x '.repeat(150)), { code: 'CONTEXT_LENGTH' });
  assert.throws(() => chat.send(/** @type {any} */ (7)), /a message must be a text, got number/);
  assert.deepEqual(chat.messages, kept);
});

test('where the turns do not fit the context, the model does not see the oldest, and always the system prompt', async () => {
  const { model, tokenizer, seen } = chatting(WORDS, () => [...tokenizer.encode('yes'), 2], 160);
  const chat = model.chat({ system: 'SYSTEM' });
  for (let i = 0; i < 12; i++) {
    await all(chat.send(`number ${i}`));
    assert.match(seen(), new RegExp(`^<\\|im_start\\|>system\\nSYSTEM<[^]*number ${i}<\\|im_end\\|>\\n<\\|im_start\\|>assistant\\n$`));
    assert.ok(tokenizer.encode(seen()).length <= 120);
  }
  assert.ok(!seen().includes('number 0') && seen().includes('number 10'));
  // No answer without its question.
  assert.match(seen(), /SYSTEM<\|im_end\|>\n<\|im_start\|>user/);
  assert.equal(chat.messages.length, 25);
});

test('a model without a template continues all text so far', async () => {
  const { model, tokenizer, engine, seen } = chatting(PLAIN, () => [...tokenizer.encode('and more')], 60);
  assert.ok(!model.hasTemplate);
  const chat = model.chat();
  assert.equal(textOf(await all(chat.send('the '))), 'and more');
  assert.equal(seen(), 'the ');
  await all(chat.send(' old'));
  assert.equal(seen(), 'the and more old');
  for (let i = 0; i < 9; i++) await all(chat.send(` men ${i}`));
  assert.ok(seen().endsWith(' men 8') && engine.requests.at(-1).ids.length <= 45);
  assert.throws(() => model.generate([{ role: 'user', content: 'a' }]), /no chat template/);
});

test('two turns of a model are those of its whole text', async () => {
  const model = await loadModel(TINY);
  const options = { seed: 2, maxTokens: 6, ignoreEos: true };
  const chat = model.chat(options);
  const first = textOf(await all(chat.send('hi')));
  const second = textOf(await all(chat.send('and')));
  const [user, answer] = [
    { role: 'user', content: 'hi' },
    { role: 'assistant', content: first },
  ];
  assert.equal(first, textOf(await all(model.generate([user], options))));
  const kept = model.chat({ ...options, messages: [user, answer] });
  // Random weights write bytes that are no text: then the ids of the text are others than those written.
  if (!first.includes('\ufffd')) assert.equal(textOf(await all(kept.send('and'))), second);
  assert.deepEqual(
    chat.messages.map(({ content }) => content),
    ['hi', first, 'and', second],
  );
  await model.dispose();
});

/** Starts `helios-lm chat`. @param {string[]} args */
function start(...args) {
  const child = spawn(process.execPath, [PROGRAM, 'chat', ...args], { stdio: ['pipe', 'pipe', 'pipe'] });
  const output = { stdout: '', stderr: '' };
  for (const name of /** @type {const} */ (['stdout', 'stderr'])) {
    child[name].setEncoding('utf8').on('data', (text) => {
      output[name] += text;
      child.emit('output');
    });
  }
  return {
    child,
    output,
    ended: once(child, 'close'),
    /** Waits until the output fits. @param {() => boolean} fits */
    async until(fits) {
      while (!fits()) await once(child, 'output');
    },
  };
}

test('a terminal gets no control characters of a text, a pipe gets all', () => {
  const text = 'a\x1b]0;b\x07\r\x9b31m\tc 😀\n';
  for (const [isTTY, expected] of /** @type {const} */ ([
    [true, 'a]0;b31m\tc 😀\n'],
    [false, text],
  ])) {
    let got = '';
    writeText(text, { isTTY, write: (part) => void (got += part) });
    assert.equal(got, expected);
  }
});

test('chat: lines of standard input are messages, some are commands', { timeout: 120_000 }, async () => {
  const model = await loadModel(TINY);
  const options = { seed: 2, maxTokens: 5 };
  const chat = model.chat({ system: 'be', ...options });
  const expected = [];
  for (const text of ['hi', 'and\nmore']) expected.push(textOf(await all(chat.send(text))));
  const other = model.chat({ system: 'new', ...options });
  expected.push(textOf(await all(other.send('hi'))));
  await model.dispose();
  const { child, output, ended } = start(TINY, '--system-prompt', 'be', '--seed', '2', '--max-tokens', '5', '--quiet');
  child.stdin.end('/help\nhi\n\nand\\\nmore\n/what\n/system new\nhi\n/exit\nno more\n');
  assert.deepEqual(await ended, [0, null], output.stderr);
  assert.equal(output.stdout, expected.map((text) => `${text}\n`).join(''));
  assert.match(output.stderr, /^\/help .*\n\/reset [^]*There is no command \/what; \/help lists them\.\n$/);
});

test('chat: Ctrl-C ends the answer and not the program; twice at an empty prompt it ends that', {
  ...posix,
  timeout: 120_000,
}, async () => {
  const { child, output, ended, until } = start(LONG, '--ignore-eos', '--seed', '1');
  const stopped = (/** @type {number} */ times) => output.stderr.split('(The answer was stopped.)').length === times + 1;
  for (let times = 1; times <= 2; times++) {
    const { length } = output.stdout;
    child.stdin.write('hi\n');
    await until(() => output.stdout.length > length);
    child.kill('SIGINT');
    await until(() => stopped(times));
  }
  assert.doesNotMatch(output.stderr, /context is full|again ends/);
  child.kill('SIGINT');
  await until(() => output.stderr.includes('(Ctrl-C again ends the program)'));
  child.kill('SIGINT');
  assert.deepEqual(await ended, [130, null], output.stderr);
});

test('chat: a model without a template says so, and the end of the input ends it', { timeout: 120_000 }, async () => {
  const folder = join(base, 'continue');
  await writeTinyModel(folder);
  const { child, output, ended } = start(folder, '--max-tokens', '3', '--ignore-eos');
  child.stdin.end('the\nold');
  assert.deepEqual(await ended, [0, null], output.stderr);
  assert.match(output.stderr, /This model has no chat template: it continues the text/);
});
