// OpenAI's interface, asked by npm's `openai` client: answers, streams, errors, load, closed connections, and the command `serve`.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import OpenAI from 'openai';

import { loadModel, serveModel } from '../src/index.mjs';
import { LanguageModel } from '../src/infer/model.mjs';
import { temporaryFolder } from '../../../__test__/lib/folder.mjs';
import { fixture } from './fixtures/tokenizer-texts.mjs';
import { CHATML, all, scriptedEngine, textOf, writeTinyModel, writeTokenizer } from './lib/tiny-model.mjs';

const PROGRAM = fileURLToPath(new URL('../bin/helios-lm.mjs', import.meta.url));
const base = temporaryFolder();
const [TINY, WORDS, PLAIN] = ['tiny', 'words', 'plain'].map((name) => join(base, name));
before(async () => {
  await writeTinyModel(TINY, { template: CHATML });
  await writeTokenizer(WORDS, { template: CHATML });
  await writeTokenizer(PLAIN);
});

/** Serves a model that continues every prompt with a text, and asks it. */
async function serving(
  /** @type {import('node:test').TestContext} */ t,
  { text = 'one two three', folder = WORDS, slots = 2, gate = undefined, ...options } = /** @type {any} */ ({}),
) {
  const engine = scriptedEngine(folder, { answer: () => [...engine.tokenizer.encode(text), 0], slots, gate });
  const model = new LanguageModel(engine);
  const lines = /** @type {string[]} */ ([]);
  const server = await serveModel(model, { port: 0, name: 'words', log: (line) => lines.push(line), ...options });
  t.after(() => server.close());
  const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: options.apiKey ?? 'none', maxRetries: 0 });
  return { engine, model, server, lines, client };
}

/** @param {string} url @param {unknown} body @param {Record<string, string>} [headers] */
async function post(url, body, headers = {}) {
  const text = typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body);
  const response = await fetch(url, { method: 'POST', body: text, headers: { 'Content-Type': 'application/json', ...headers } });
  return { status: response.status, headers: response.headers, body: /** @type {any} */ (await response.json()) };
}

const MESSAGES = /** @type {const} */ ([{ role: 'user', content: 'hi' }]);

/** Waits until something is so. @param {() => boolean} fits */
async function until(fits) {
  while (!fits()) await new Promise((done) => setTimeout(done, 2));
}

test('while the model is loaded, requests get 503; afterwards they are answered', async (t) => {
  const engine = scriptedEngine(WORDS, { answer: () => [...engine.tokenizer.encode('one'), 0] });
  let loaded = (/** @type {any} */ _) => {};
  const server = await serveModel(new Promise((done) => void (loaded = done)), { port: 0, name: 'words' });
  t.after(() => server.close());
  const asked = () => post(`${server.url}/v1/chat/completions`, { messages: MESSAGES });
  const early = await asked();
  assert.deepEqual([early.status, early.body.error.code, early.headers.get('retry-after')], [503, 'loading', '1']);
  assert.equal((await fetch(`${server.url}/health`)).status, 503);
  loaded(new LanguageModel(engine));
  await new Promise((done) => setTimeout(done));
  assert.equal((await fetch(`${server.url}/health`)).status, 200);
  assert.equal((await asked()).status, 200);
});

test('a chat completion: text, usage, logprobs, choices, stop texts; whole and as a stream', async (t) => {
  const { client, engine, lines, model } = await serving(t);
  const tokens = [...engine.tokenizer.encode('one two three')];
  const answer = await client.chat.completions.create({
    model: 'words',
    messages: [...MESSAGES],
    logprobs: true,
    seed: 3,
    temperature: 0.5,
    top_p: 0.25,
  });
  assert.match(answer.id, /^chatcmpl-[0-9a-f]{24}$/);
  assert.deepEqual([answer.object, answer.model, answer.choices.length], ['chat.completion', 'words', 1]);
  const [choice] = answer.choices;
  assert.deepEqual(
    [choice.index, choice.finish_reason, choice.message.role, choice.message.content],
    [0, 'stop', 'assistant', 'one two three'],
  );
  const prompt = model.encode([...MESSAGES]).length;
  const usage = { prompt_tokens: prompt, completion_tokens: tokens.length + 1, total_tokens: prompt + tokens.length + 1 };
  assert.deepEqual(answer.usage, usage);
  assert.deepEqual(choice.logprobs?.content?.map(({ token }) => token).join(''), 'one two three');
  assert.deepEqual(
    choice.logprobs?.content?.map(({ logprob }) => logprob),
    tokens.map((_, i) => -(i + 1) / 8),
  );
  assert.deepEqual(choice.logprobs?.content?.[0].bytes, [...Buffer.from(engine.tokenizer.decode([tokens[0]]))]);
  const { sampling } = engine.requests[0];
  assert.deepEqual([sampling.seed, sampling.temperature, sampling.topP, sampling.minP], [3, 0.5, 0.25, 0.05]);

  const several = await client.chat.completions.create({
    model: 'words',
    messages: [...MESSAGES],
    n: 3,
    stop: ['two', 'x'],
    seed: 2 ** 32 - 1,
  });
  assert.deepEqual(
    several.choices.map(({ index, finish_reason, message }) => [index, finish_reason, message.content]),
    [...[0, 1, 2].map((index) => [index, 'stop', 'one '])],
  );
  assert.deepEqual(
    engine.requests.slice(1).map((each) => each.sampling.seed),
    [2 ** 32 - 1, 0, 1],
  );

  const stream = await client.chat.completions.create({
    ...{ model: 'words', messages: [...MESSAGES], n: 2, stream: true, stream_options: { include_usage: true }, max_completion_tokens: 4 },
  });
  const texts = ['', ''];
  const reasons = /** @type {(string | null)[]} */ ([null, null]);
  const chunks = await all(stream);
  for (const { choices } of chunks) {
    for (const { index, delta, finish_reason } of choices) {
      assert.equal(reasons[index], null);
      texts[index] += delta.content ?? '';
      reasons[index] = finish_reason;
    }
  }
  const expected = engine.tokenizer.decode(tokens.slice(0, 4));
  assert.deepEqual(
    [texts, reasons],
    [
      [expected, expected],
      ['length', 'length'],
    ],
  );
  assert.equal(chunks[0].choices[0].delta.role, 'assistant');
  assert.deepEqual(chunks.at(-1)?.usage, { prompt_tokens: prompt, completion_tokens: 8, total_tokens: prompt + 8 });
  assert.ok(chunks.slice(0, -1).every((chunk) => chunk.usage === null && chunk.object === 'chat.completion.chunk'));
  assert.equal(new Set(chunks.map(({ id }) => id)).size, 1);
  await until(() => lines.length === 3);
  assert.match(lines[2], new RegExp(`^\\S+Z POST /v1/chat/completions 200 ${prompt} \\+ 8 tokens \\d+\\.\\d\\d s$`));
});

test('top_logprobs: the most likely tokens of each, whole and as a stream; logprobs: N of texts', async (t) => {
  const { client, engine } = await serving(t);
  const { tokenizer } = engine;
  const tokens = [...tokenizer.encode('one two three')];
  const expected = tokens.map((token, i) => {
    const logprob = -(i + 1) / 8;
    return [token, token - 1].map((id, k) => ({ token: tokenizer.decode([id]), logprob: logprob - k }));
  });
  const asked = { model: 'words', messages: [...MESSAGES], logprobs: true };
  const listed = (/** @type {OpenAI.ChatCompletionTokenLogprob[]} */ content) =>
    content.map(({ top_logprobs }) => top_logprobs.map(({ token, logprob }) => ({ token, logprob })));
  const answer = await client.chat.completions.create({ ...asked, top_logprobs: 2 });
  const content = answer.choices[0].logprobs?.content ?? [];
  assert.deepEqual(listed(content), expected);
  assert.deepEqual(
    content.map(({ top_logprobs: [{ bytes }] }) => bytes),
    content.map(({ bytes }) => bytes),
  );
  const chunks = await all(await client.chat.completions.create({ ...asked, top_logprobs: 2, stream: true }));
  assert.deepEqual(listed(chunks.flatMap(({ choices }) => choices[0].logprobs?.content ?? [])), expected);
  const none = await client.chat.completions.create({ ...asked, top_logprobs: 0 });
  assert.deepEqual(listed(none.choices[0].logprobs?.content ?? []), new Array(tokens.length).fill([]));

  const text = await client.completions.create({ model: 'words', prompt: 'a', logprobs: 2 });
  const rows = expected.map((row) => Object.fromEntries(row.map(({ token, logprob }) => [token, logprob])));
  assert.deepEqual(text.choices[0].logprobs?.top_logprobs, rows);
  const parts = await all(await client.completions.create({ model: 'words', prompt: 'a', logprobs: 2, stream: true }));
  assert.deepEqual(
    parts.flatMap(({ choices }) => choices[0].logprobs?.top_logprobs ?? []),
    rows,
  );
  // Where each token begins in the answer, of which a chunk has a part.
  const offsets = tokens.map((_, i) => tokenizer.decode(tokens.slice(0, i)).length);
  assert.deepEqual(text.choices[0].logprobs?.text_offset, offsets);
  assert.deepEqual(
    parts.flatMap(({ choices }) => choices[0].logprobs?.text_offset ?? []),
    offsets,
  );
  assert.deepEqual(
    engine.requests.map(({ topLogprobs }) => topLogprobs),
    [2, 2, 0, 2, 2],
  );
});

test('the bytes of tokens are those of the answer, within a character and with their spaces; offsets count its characters', async (t) => {
  for (const [folder, said, text] of /** @type {const} */ ([
    [WORDS, 'né 🙂 日 x', 'né 🙂 日 x'],
    [fixture('llama2'), 'the old whale', ' the old whale'],
  ])) {
    const { client } = await serving(t, { folder, text: said });
    const asked = { model: 'words', prompt: 'a', logprobs: 1, max_tokens: 99 };
    const whole = (await client.completions.create(asked)).choices[0];
    const parts = await all(await client.completions.create({ ...asked, stream: true }));
    const { tokens = [], text_offset: offsets = [] } = whole.logprobs ?? {};
    const known = parts.map(({ choices }) => choices[0].logprobs);
    assert.deepEqual([known.flatMap((each) => each?.tokens ?? []), known.flatMap((each) => each?.text_offset ?? [])], [tokens, offsets]);
    assert.equal(whole.text, text);
    // The last word and the space before it.
    assert.equal(text.slice(offsets[tokens.length - 1]), tokens.at(-1));
    if (folder === WORDS) assert.ok(tokens.includes('\ufffd'));
    else assert.equal(tokens.join(''), text);
  }
  const { client, model } = await serving(t, { text: 'né 🙂' });
  const { choices } = await client.chat.completions.create({ model: 'words', messages: [...MESSAGES], logprobs: true });
  const content = choices[0].logprobs?.content ?? [];
  assert.equal(Buffer.from(content.flatMap(({ bytes }) => bytes ?? [])).toString(), 'né 🙂');
  assert.ok(
    content.some(({ bytes }) => bytes?.length === 1 && bytes[0] >= 0x80),
    model.from,
  );
});

test('a chat completion: seeds of any sign, and an answer of calls alone before it', async (t) => {
  const { client, engine } = await serving(t);
  const call = { id: 'c', type: /** @type {const} */ ('function'), function: { name: 'f', arguments: '{}' } };
  const history = [...MESSAGES, { role: /** @type {const} */ ('assistant'), content: null, tool_calls: [call] }];
  for (const seed of [-1, 2 ** 40 + 7]) {
    await client.chat.completions.create({
      model: 'words',
      messages: [...history, { role: 'tool', tool_call_id: 'c', content: '5' }],
      seed,
      max_tokens: 1,
    });
  }
  assert.deepEqual(
    engine.requests.map((each) => each.sampling.seed),
    [2 ** 32 - 1, 7],
  );
});

test('text completions, embeddings and models', async (t) => {
  const { client, engine, server } = await serving(t);
  const tokens = [...engine.tokenizer.encode('one two three')];
  const answer = await client.completions.create({ model: 'words', prompt: ['the', 'old'], n: 2, logprobs: 0, max_tokens: 3 });
  const expected = engine.tokenizer.decode(tokens.slice(0, 3));
  assert.deepEqual(
    answer.choices.map(({ index, text, finish_reason }) => [index, text, finish_reason]),
    [...[0, 1, 2, 3].map((index) => [index, expected, 'length'])],
  );
  assert.deepEqual(answer.choices[0].logprobs?.token_logprobs, [-1 / 8, -2 / 8, -3 / 8]);
  assert.deepEqual(answer.choices[0].logprobs?.tokens?.join(''), expected);
  const words = (/** @type {any[]} */ requests) => requests.map(({ ids }) => engine.tokenizer.decode(ids));
  assert.deepEqual(words(engine.requests).sort(), ['old', 'old', 'the', 'the']);
  const stream = await client.completions.create({ model: 'words', prompt: [50, 51], stream: true });
  assert.equal((await all(stream)).map(({ choices }) => choices[0].text).join(''), 'one two three');
  assert.deepEqual([...engine.requests.at(-1).ids], [50, 51]);
  assert.equal(engine.requests.at(-1).maxTokens, 16);

  for (const encoding_format of /** @type {const} */ (['float', undefined])) {
    const input = /** @type {any} */ ([[7], [1, 2]]);
    const { data, usage } = await client.embeddings.create({ model: 'words', input, encoding_format });
    const unit = (/** @type {number[]} */ vector) => [...Float32Array.from(vector.map((value) => value / Math.hypot(...vector)))];
    assert.deepEqual(
      data.map(({ embedding }) => [...Float32Array.from(embedding)]),
      [unit([1, 0, 2, -2]), unit([2, 0, 2, -2])],
    );
    assert.deepEqual(usage, { prompt_tokens: 3, total_tokens: 3 });
  }
  const { data } = await client.models.list();
  assert.deepEqual(
    data.map(({ id }) => id),
    ['words'],
  );
  assert.equal((await client.models.retrieve('words')).object, 'model');
  await assert.rejects(client.models.retrieve('other'), { status: 404, code: 'model_not_found' });
  assert.deepEqual(await (await fetch(`${server.url}/health`)).json(), { status: 'ok', slots: 2, pending: 0, places: 66 });
});

test('a wrong request is an error of JSON that names the parameter', async (t) => {
  const { server, engine } = await serving(t, { queue: 6 });
  const chat = { messages: MESSAGES };
  for (const [path, body, status, param, message] of /** @type {[string, any, number, string | null, RegExp][]} */ ([
    ['chat/completions', {}, 400, 'messages', /^messages must be a list of at least one message, got undefined$/],
    ['chat/completions', { messages: [] }, 400, 'messages', /got a list of 0$/],
    ['chat/completions', { messages: ['hi'] }, 400, 'messages[0]', /must be an object with role and content, got "hi"$/],
    ['chat/completions', { messages: [{ content: 'hi' }] }, 400, 'messages[0].role', /must be a text, got undefined$/],
    [
      'chat/completions',
      { messages: [{ role: 'user', content: 7 }] },
      400,
      'messages[0].content',
      /must be a text or a list of parts, got 7$/,
    ],
    [
      'chat/completions',
      { messages: [{ role: 'user', content: [{ type: 'image_url' }] }] },
      400,
      'messages[0].content[0]',
      /got "image_url"$/,
    ],
    ['chat/completions', { ...chat, temperature: '1' }, 400, 'temperature', /^temperature must be a number from 0 to 1000, got "1"$/],
    ['chat/completions', { ...chat, top_p: 2 }, 400, 'top_p', /^top_p must be a number from 0 to 1, got 2$/],
    ['chat/completions', { ...chat, seed: 0.5 }, 400, 'seed', /^seed must be an integer/],
    [
      'chat/completions',
      { messages: [{ role: 'user', content: null }] },
      400,
      'messages[0].content',
      /must be a text or a list of parts, got null$/,
    ],
    ['chat/completions', { ...chat, n: 9 }, 400, 'n', /^n must be an integer from 1 to 8, got 9$/],
    ['chat/completions', { ...chat, max_tokens: 0 }, 400, 'max_tokens', /^max_tokens must be an integer from 1/],
    ['chat/completions', { ...chat, stop: ['a', ''] }, 400, 'stop', /^stop must be a text or a list of at most 16 texts/],
    ['chat/completions', { ...chat, stop: new Array(17).fill('a') }, 400, 'stop', /got a list of 17$/],
    ['chat/completions', { ...chat, stream: 'yes' }, 400, 'stream', /^stream must be true or false, got "yes"$/],
    ['chat/completions', { ...chat, stream_options: {} }, 400, 'stream_options', /is for stream: true$/],
    ['chat/completions', { ...chat, top_logprobs: 2 }, 400, 'top_logprobs', /^top_logprobs is for logprobs: true$/],
    [
      'chat/completions',
      { ...chat, logprobs: true, top_logprobs: 21 },
      400,
      'top_logprobs',
      /^top_logprobs must be an integer from 0 to 20, got 21$/,
    ],
    ['chat/completions', { ...chat, logprobs: 2 }, 400, 'logprobs', /^logprobs must be true or false, got 2$/],
    ['chat/completions', { ...chat, logit_bias: { 5: 1 } }, 400, 'logit_bias', /not supported/],
    ['chat/completions', { ...chat, model: 'gpt-4' }, 404, 'model', /^the model gpt-4 does not exist; there is words$/],
    [
      'chat/completions',
      { messages: [{ role: 'user', content: 'word '.repeat(4096) }] },
      400,
      'messages',
      /tokens, and the context of 4096 has no room/,
    ],
    ['completions', {}, 400, 'prompt', /^prompt must be a text, a list of ids, or a list of at most 8 of these, got undefined$/],
    ['completions', { prompt: new Array(9).fill('a') }, 400, 'prompt', /got a list of 9$/],
    ['completions', { prompt: new Array(4096).fill(5) }, 400, 'prompt', /^the prompt has 4096 tokens, and the context of 4096 has no room/],
    ['completions', { prompt: [1, 290] }, 400, 'prompt', /^prompt\[1\] must be an id from 0 to 289, got 290$/],
    ['completions', { prompt: 'a', logprobs: 21 }, 400, 'logprobs', /^logprobs must be an integer from 0 to 20, got 21$/],
    ['completions', { prompt: 'a', logprobs: true }, 400, 'logprobs', /^logprobs must be an integer from 0 to 20, got true$/],
    ['completions', { prompt: 'a', tools: [{}] }, 400, 'tools', /^tools is not supported, got a list of 1$/],
    ['completions', { prompt: 'a', response_format: { type: 'json_object' } }, 400, 'response_format', /not supported/],
    ['completions', { prompt: 'a', echo: true }, 400, 'echo', /not supported/],
    ['embeddings', { input: '' }, 400, 'input', /must not have an empty text$/],
    ['embeddings', { input: 'a', dimensions: 3 }, 400, 'dimensions', /^dimensions must be 4, the width of the model, got 3$/],
    ['embeddings', { input: 'a', encoding_format: 'hex' }, 400, 'encoding_format', /must be float or base64, got "hex"$/],
    ['chat/completions', '{"messages": ', 400, null, /^the body is not JSON in UTF-8: /],
    ['chat/completions', Uint8Array.of(0x22, 0xff, 0x22), 400, null, /^the body is not JSON in UTF-8: /],
    ['chat/completions', '[1]', 400, null, /^the body must be an object of JSON$/],
    ['chat/completions', 'x'.repeat(9 * 2 ** 20), 413, null, /^the body must have at most 8388608 bytes$/],
    ['nothing', {}, 404, null, /^there is no \/v1\/nothing$/],
  ])) {
    const found = await post(`${server.url}/v1/${path}`, body);
    assert.equal(found.status, status, JSON.stringify(found.body));
    assert.equal(found.body.error.param, param);
    assert.match(found.body.error.message, message);
    assert.deepEqual(Object.keys(found.body.error), ['message', 'type', 'param', 'code']);
  }
  assert.equal((await post(`${server.url}/v1/completions`, '{}', { 'Content-Type': 'text/plain' })).status, 415);
  // Without a length, too.
  const sent = httpRequest(`${server.url}/v1/completions`, { method: 'POST', headers: { 'Content-Type': 'application/json' } });
  sent.on('error', () => {});
  // One byte too many, and no end. More would be on its way when the server closes, and the answer might be lost.
  sent.write(Buffer.alloc(8 * 2 ** 20 + 1, 'x'));
  const [{ statusCode }] = await once(sent, 'response');
  assert.equal(statusCode, 413);
  sent.destroy();
  const get = await fetch(`${server.url}/v1/completions`);
  assert.deepEqual([get.status, get.headers.get('allow')], [405, 'POST']);
  assert.equal(engine.requests.length, 0);
});

test('hundreds of damaged requests: every one gets an answer of JSON, and the server goes on', async (t) => {
  const { server, engine, client, lines } = await serving(t, { text: 'one' });
  let state = 11;
  const random = (/** @type {number} */ below) => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) % below;
  const values = [
    null,
    0,
    -1,
    1e308,
    0.5,
    true,
    '',
    'a',
    [],
    {},
    [[]],
    [null],
    { type: 'text' },
    [{ role: 'user', content: 'a' }],
    '\ud800',
    2 ** 40,
  ];
  const names =
    'messages prompt input model n stop stream stream_options seed top_k logprobs top_logprobs max_tokens temperature tools tool_choice response_format __proto__'.split(
      ' ',
    );
  const whole = JSON.stringify({ messages: MESSAGES, prompt: 'a', input: 'a', max_tokens: 3, stop: ['x'], stream: false, seed: 1 });
  const counts = /** @type {Record<number, number>} */ ({});
  for (let i = 0; i < 400; i++) {
    let body = whole;
    if (i % 2) {
      body = JSON.stringify({
        ...JSON.parse(whole),
        stream: false,
        ...Object.fromEntries(
          [names[random(names.length)], names[random(names.length)]].map((name) => [name, values[random(values.length)]]),
        ),
      });
    } else {
      const bytes = Buffer.from(whole);
      for (let flips = random(4); flips >= 0; flips--) bytes[random(bytes.length)] = random(256);
      body = bytes.subarray(0, random(3) ? bytes.length : random(bytes.length)).toString('latin1');
    }
    const path = ['chat/completions', 'completions', 'embeddings'][random(3)];
    const response = await fetch(`${server.url}/v1/${path}`, { method: 'POST', body, headers: { 'Content-Type': 'application/json' } });
    const text = await response.text();
    counts[response.status] = (counts[response.status] ?? 0) + 1;
    if (response.headers.get('content-type')?.startsWith('text/event-stream')) continue;
    const answer = JSON.parse(text);
    assert.ok(response.status === 200 ? Array.isArray(answer.choices ?? answer.data) : typeof answer.error.message === 'string', text);
  }
  assert.ok(counts[200] > 20 && counts[400] > 100, JSON.stringify(counts));
  assert.deepEqual(
    Object.keys(counts).filter((status) => Number(status) >= 500),
    [],
    lines.filter((line) => line.includes('Error')).join('\n'),
  );
  // Nesting deeper than any stack, and what is not HTTP at all.
  const deep = `{"messages":${'['.repeat(1e6)}${']'.repeat(1e6)}}`;
  assert.equal((await post(`${server.url}/v1/chat/completions`, deep)).status, 400);
  for (const junk of [
    '\0\x01\x02\r\n\r\n',
    'GET / HTTP/9.9\r\n\r\n',
    `GET / HTTP/1.1\r\nHost: localhost\r\nx: ${'y'.repeat(1e5)}\r\n\r\n`,
    'POST /v1/completions HTTP/1.1\r\nContent-Length: -4\r\n\r\n',
  ]) {
    const socket = connect(server.port, '127.0.0.1');
    socket.on('error', () => {});
    let text = '';
    socket.setEncoding('latin1').on('data', (more) => (text += more));
    socket.write(junk, 'latin1');
    await once(socket, 'close');
    assert.match(text, /^HTTP\/1\.1 4\d\d [^]*\r\n\r\n\{"error":\{"message":/);
  }
  assert.equal(engine.busy, 0);
  assert.equal(server.pending(), 0);
  assert.equal((await client.chat.completions.create({ model: 'words', messages: [...MESSAGES] })).choices[0].message.content, 'one');
});

test('a failing engine is a 500 of JSON, or an event of a stream; the log says why', async (t) => {
  const { server, engine, lines } = await serving(t);
  let calls = 0;
  engine.tokenizer.decodeStream = () => {
    throw new Error('the device is lost');
  };
  const chat = { messages: MESSAGES, n: 2 };
  const failed = await post(`${server.url}/v1/chat/completions`, chat);
  assert.deepEqual([failed.status, failed.body.error.type], [500, 'server_error']);
  assert.ok(!failed.body.error.message.includes('device'));
  assert.ok(lines.some((line) => line.includes('the device is lost')));
  engine.tokenizer.decodeStream = () => ({
    push: () => {
      if (calls++ > 1) throw new Error('the device is lost');
      return 'x';
    },
    end: () => '',
  });
  const response = await fetch(`${server.url}/v1/chat/completions`, {
    ...{ method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ messages: MESSAGES, stream: true }) },
  });
  const events = (await response.text())
    .trim()
    .split('\n\n')
    .map((line) => JSON.parse(line.slice(6)));
  assert.equal(events.at(-1).error.type, 'server_error');
  await until(() => engine.busy === 0 && server.pending() === 0);
});

test('64 connections over a few slots: each has the text of its seed, or 429 beyond the queue', { timeout: 120_000 }, async (t) => {
  const model = await loadModel(TINY, { slots: 4 });
  t.after(() => model.dispose());
  const server = await serveModel(model, { port: 0, name: 'tiny', queue: 40 });
  t.after(() => server.close());
  const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
  const ask = async (/** @type {number} */ seed, stream = false) => {
    const body = { model: 'tiny', prompt: 'the', seed, max_tokens: 6, ignore_eos: true };
    if (!stream) return (await client.completions.create(body)).choices[0].text;
    return (await all(await client.completions.create({ ...body, stream: true }))).map(({ choices }) => choices[0].text).join('');
  };
  const results = await Promise.allSettled(Array.from({ length: 64 }, (_, seed) => ask(seed, seed % 2 === 1)));
  const answered = results.flatMap((result, seed) => (result.status === 'fulfilled' ? [{ seed, text: result.value }] : []));
  assert.ok(answered.length >= 44, String(answered.length));
  for (const result of results) {
    if (result.status === 'fulfilled') continue;
    assert.deepEqual([result.reason.status, result.reason.code, result.reason.headers.get('retry-after')], [429, 'queue_full', '1']);
  }
  for (const { seed, text } of answered) {
    assert.equal(text, textOf(await all(model.generate('the', { seed, maxTokens: 6, ignoreEos: true }))), `seed ${seed}`);
  }
  assert.ok(new Set(answered.map(({ text }) => text)).size > 20);
  assert.equal(server.pending(), 0);
  // A client that waits and tries again gets through.
  const patient = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 20 });
  const texts = await Promise.all(
    Array.from({ length: 64 }, () => patient.completions.create({ model: 'tiny', prompt: 'x', max_tokens: 1 })),
  );
  assert.equal(texts.length, 64);
});

test('beyond the queue requests get 429; a closed connection frees its slot for the next', {
  timeout: 60_000,
}, async (t) => {
  let shut = true;
  const gate = async (/** @type {AbortSignal} */ signal) => {
    while (shut && !signal.aborted) await new Promise((done) => setTimeout(done, 2));
  };
  const { client, engine, server } = await serving(t, { slots: 2, queue: 1, gate });
  const ask = (/** @type {AbortSignal} */ signal) =>
    client.chat.completions.create({ model: 'words', messages: [...MESSAGES], stream: true }, { signal }).then((stream) => all(stream));
  const stops = [0, 1, 2].map(() => new AbortController());
  const answers = [];
  for (const [i, { signal }] of stops.entries()) {
    answers.push(ask(signal).catch((error) => error.name));
    await until(() => server.pending() === i + 1);
  }
  assert.deepEqual([engine.busy, engine.queued], [2, 1]);
  await assert.rejects(ask(new AbortController().signal), { status: 429, code: 'queue_full' });
  assert.deepEqual(await (await fetch(`${server.url}/health`)).json(), { status: 'ok', slots: 2, pending: 3, places: 3 });
  // The one that waits takes the slot of one that has gone, and there is room for one more.
  stops[0].abort();
  await until(() => server.pending() === 2);
  assert.deepEqual([engine.busy, engine.queued], [2, 0]);
  answers.push(ask(new AbortController().signal));
  await until(() => server.pending() === 3);
  shut = false;
  const texts = await Promise.all(answers.slice(1));
  assert.equal(texts.length, 3);
  for (const chunks of texts)
    assert.equal(chunks.map((/** @type {any} */ { choices }) => choices[0].delta.content ?? '').join(''), 'one two three');
  await until(() => server.pending() === 0);
  assert.deepEqual([engine.busy, engine.queued, engine.requests[0].signal.aborted], [0, 0, true]);
  assert.equal(engine.requests[1].signal.aborted, false);
});

/** Asks with headers that `fetch` would not send. @param {number} port @param {import('node:http').RequestOptions} options */
async function ask(port, options, body = '') {
  const request = httpRequest({ port, host: '127.0.0.1', ...options }).end(body);
  const [response] = /** @type {[import('node:http').IncomingMessage]} */ (await once(request, 'response'));
  let text = '';
  for await (const chunk of response) text += chunk;
  return { status: response.statusCode, headers: response.headers, body: text === '' ? undefined : JSON.parse(text) };
}

test('who may ask: the key, the name of the host, the origin of a page', async (t) => {
  const open = await serving(t);
  for (const host of ['localhost', '127.0.0.1:80', '[::1]']) {
    assert.equal((await ask(open.server.port, { path: '/v1/models', headers: { host } })).status, 200, host);
  }
  for (const host of ['evil.example', 'localhost.evil.example', '127.0.0.1.evil.example:80']) {
    const refused = await ask(open.server.port, { path: '/v1/models', headers: { host } });
    assert.deepEqual([refused.status, refused.body.error.code], [403, 'host_not_allowed'], host);
  }
  const foreign = await ask(open.server.port, { path: '/v1/models', headers: { origin: 'https://evil.example' } });
  assert.deepEqual(
    [foreign.status, foreign.body.error.code, foreign.headers['access-control-allow-origin']],
    [403, 'origin_not_allowed', undefined],
  );

  const keyed = await serving(t, { apiKey: 'secret', cors: 'https://app.example' });
  assert.equal((await keyed.client.models.list()).data.length, 1);
  for (const authorization of [undefined, 'Bearer wrong', 'secret', 'Bearer ']) {
    const refused = await ask(keyed.server.port, { path: '/v1/models', headers: authorization === undefined ? {} : { authorization } });
    assert.deepEqual([refused.status, refused.body.error.code], [401, 'invalid_api_key']);
  }
  assert.equal((await ask(keyed.server.port, { path: '/health' })).status, 200);
  await assert.rejects(serveModel(keyed.model, /** @type {any} */ ({ key: 'secret' })), /no option key; did you mean apiKey\?/);
  const origin = 'https://app.example';
  const preflight = await ask(keyed.server.port, {
    ...{ method: 'OPTIONS', path: '/v1/chat/completions', headers: { origin, 'access-control-request-method': 'POST' } },
  });
  assert.deepEqual([preflight.status, preflight.headers['access-control-allow-origin']], [204, origin]);
  const allowed = await ask(keyed.server.port, { path: '/v1/models', headers: { origin, authorization: 'Bearer secret' } });
  assert.deepEqual([allowed.status, allowed.headers['access-control-allow-origin'], allowed.headers.vary], [200, origin, 'Origin']);
});

test('a model without a template answers texts and refuses chats', async (t) => {
  const { client } = await serving(t, { folder: PLAIN });
  assert.equal((await client.completions.create({ model: 'words', prompt: '' })).choices[0].text, 'one two three');
  const chat = client.chat.completions.create({ model: 'words', messages: [...MESSAGES] });
  await assert.rejects(chat, { status: 400, code: 'no_chat_template', param: 'messages' });
});

test('close: no more requests; those under way are answered first', { timeout: 60_000 }, async (t) => {
  let shut = true;
  const gate = async () => {
    while (shut) await new Promise((done) => setTimeout(done, 2));
  };
  const { server, client } = await serving(t, { slots: 1, gate });
  const answers = [0, 1].map(() => client.completions.create({ model: 'words', prompt: 'a' }));
  await until(() => server.pending() === 2);
  const closed = server.close();
  await assert.rejects(client.completions.create({ model: 'words', prompt: 'a' }));
  shut = false;
  for (const answer of answers) assert.equal((await answer).choices[0].text, 'one two three');
  await closed;
});

/** Starts `helios-lm serve`, and waits until it says where it is. @param {string[]} args */
async function startServe(...args) {
  const child = spawn(process.execPath, [PROGRAM, 'serve', TINY, ...(args.includes('--port') ? [] : ['--port', '0']), ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const output = { stdout: '', stderr: '' };
  child.stdout.setEncoding('utf8').on('data', (text) => (output.stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text) => (output.stderr += text));
  const ended = once(child, 'close');
  await until(() => output.stdout.includes('\n') || child.exitCode !== null);
  return { child, output, ended };
}

test('serve: the command says where it is, and ends in order', { timeout: 120_000 }, async () => {
  const key = join(base, 'key');
  writeFileSync(key, 'secret\n');
  const { child, output, ended } = await startServe('--slots', '2', '--api-key-file', key);
  const [, url] = /^tiny at (http:\/\/127\.0\.0\.1:\d+\/v1)\n$/.exec(output.stdout) ?? [];
  const client = new OpenAI({ baseURL: url, apiKey: 'secret', maxRetries: 0 });
  const stream = await client.chat.completions.create({ model: 'tiny', messages: [...MESSAGES], stream: true, seed: 1, max_tokens: 40 });
  let chunks = 0;
  for await (const _ of stream) if (chunks++ === 0) child.kill('SIGTERM');
  assert.ok(chunks > 2);
  assert.deepEqual(await ended, [0, null], output.stderr);
  assert.match(output.stderr, /POST \/v1\/chat\/completions 200 \d+ \+ \d+ tokens/);
  assert.doesNotMatch(output.stderr, /warning/);
});

test('serve: a port that is taken is an error before the model is loaded', { timeout: 60_000 }, async (t) => {
  const { server } = await serving(t);
  const { output, ended } = await startServe('--port', String(server.port));
  assert.deepEqual(await ended, [1, null]);
  assert.match(output.stderr, /^helios-lm: cannot listen on 127\.0\.0\.1:\d+: [^\n]*EADDRINUSE[^\n]*\n$/);
});

test('serve: told to listen for other machines without a key, it warns', { timeout: 120_000 }, async () => {
  const { child, output, ended } = await startServe('--host', '0.0.0.0', '--quiet', '--name', 'one');
  const port = Number(/^one at http:\/\/0\.0\.0\.0:(\d+)\/v1\n$/.exec(output.stdout)?.[1]);
  assert.match(output.stderr, /^warning: whoever reaches http:\/\/0\.0\.0\.0:\d+ may use the model, and no key is asked/);
  assert.equal((await ask(port, { path: '/v1/models', headers: { host: 'a.machine.example' } })).status, 200);
  child.kill('SIGINT');
  assert.deepEqual(await ended, [0, null], output.stderr);
  assert.doesNotMatch(output.stderr, /GET/);
});
