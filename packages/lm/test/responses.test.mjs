// `/v1/responses`, asked by npm's `openai` client: text, calls, JSON, whole and as events. And requests as other clients write them, by their bodies.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import OpenAI from 'openai';

import { serveModel } from '../src/index.mjs';
import { LanguageModel } from '../src/infer/model.mjs';
import { temporaryFolder } from '../../../__test__/lib/folder.mjs';
import { TOOL_MARKS, TOOL_TEMPLATES, all, scriptedEngine, writeTokenizer } from './lib/tiny-model.mjs';

/** Serves a model that gives every prompt the same answer. @param {import('node:test').TestContext} t @param {string} text */
async function answering(t, text) {
  const folder = temporaryFolder(t);
  await writeTokenizer(folder, { template: TOOL_TEMPLATES.hermes, marks: TOOL_MARKS });
  const engine = scriptedEngine(folder, { answer: () => [...engine.tokenizer.encode(text), 2] });
  const server = await serveModel(new LanguageModel(engine), { port: 0, name: 'words' });
  t.after(() => server.close());
  const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
  /** @param {string} path @param {object} body */
  const post = async (path, body) => {
    const headers = { 'Content-Type': 'application/json' };
    const response = await fetch(`${server.url}/v1/${path}`, { method: 'POST', body: JSON.stringify(body), headers });
    return { status: response.status, body: /** @type {any} */ (await response.json()) };
  };
  return { engine, client, post, prompt: () => engine.tokenizer.decode(engine.requests.at(-1).ids) };
}

const parameters = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false };
const WEATHER = { type: /** @type {const} */ ('function'), name: 'weather', description: 'of a city', parameters, strict: false };
const CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>';

test('a response: text, its usage and its end, whole and as events', async (t) => {
  const { client, engine, prompt } = await answering(t, 'one two');
  const asked = { model: 'words', input: 'hi', instructions: 'be short', max_output_tokens: 50, temperature: 0.5, metadata: { a: 'b' } };
  const whole = await client.responses.create(asked);
  assert.equal(prompt(), '<|im_start|>system\nbe short<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n');
  assert.deepEqual([engine.requests[0].maxTokens, engine.requests[0].sampling.temperature], [50, 0.5]);
  assert.deepEqual(
    [whole.object, whole.status, whole.output_text, whole.model, whole.error],
    ['response', 'completed', 'one two', 'words', null],
  );
  assert.deepEqual([whole.instructions, whole.metadata, whole.incomplete_details], ['be short', { a: 'b' }, null]);
  const [prompted, written] = [engine.requests[0].ids.length, engine.tokenizer.encode('one two').length + 1];
  assert.deepEqual(
    [whole.usage?.input_tokens, whole.usage?.output_tokens, whole.usage?.total_tokens],
    [prompted, written, prompted + written],
  );

  const events = await all(await client.responses.create({ ...asked, stream: true }));
  const deltas = events.filter(({ type }) => type === 'response.output_text.delta');
  assert.ok(deltas.length > 1);
  assert.equal(deltas.map((event) => /** @type {any} */ (event).delta).join(''), 'one two');
  assert.deepEqual(
    events.filter(({ type }) => type !== 'response.output_text.delta').map(({ type }) => type),
    [
      ...['response.created', 'response.in_progress', 'response.output_item.added', 'response.content_part.added'],
      ...['response.output_text.done', 'response.content_part.done', 'response.output_item.done', 'response.completed'],
    ],
  );
  assert.deepEqual(
    events.map((event) => /** @type {any} */ (event).sequence_number),
    events.map((_, i) => i),
  );
  const last = /** @type {any} */ (events.at(-1)).response;
  assert.deepEqual(
    [last.status, last.usage, last.output[0].content],
    ['completed', whole.usage, /** @type {any} */ (whole.output[0]).content],
  );
  // What the client adds up from the events.
  assert.equal((await client.responses.stream(asked).finalResponse()).output_text, 'one two');

  const cut = await client.responses.create({ ...asked, max_output_tokens: 2 });
  assert.deepEqual(
    [cut.status, cut.incomplete_details, /** @type {any} */ (cut.output[0]).status],
    ['incomplete', { reason: 'max_output_tokens' }, 'incomplete'],
  );
  const cutEvents = await all(await client.responses.create({ ...asked, max_output_tokens: 2, stream: true }));
  assert.equal(cutEvents.at(-1)?.type, 'response.incomplete');
});

test('a response: calls, and the items of earlier ones', async (t) => {
  const { client, engine, prompt } = await answering(t, `I ask.\n${CALL}${CALL}`);
  const asked = { model: 'words', input: [{ role: /** @type {const} */ ('user'), content: 'Oslo?' }], tools: [WEATHER] };
  const { output, status } = await client.responses.create(asked);
  assert.deepEqual(
    [status, ...output.map((item) => [item.type, /** @type {any} */ (item).status])],
    ['completed', ['message', 'completed'], ['function_call', 'completed'], ['function_call', 'completed']],
  );
  const [message, first, second] = /** @type {any[]} */ (output);
  assert.deepEqual([message.content[0].text, first.name, first.arguments], ['I ask.\n', 'weather', '{"city":"Oslo"}']);
  assert.notEqual(first.call_id, second.call_id);
  assert.ok(
    prompt().startsWith('TOOLS [{"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": {'),
    prompt(),
  );

  const results = [first, second].map(({ call_id }, i) => ({
    type: /** @type {const} */ ('function_call_output'),
    call_id,
    output: `${i} degrees`,
  }));
  const reasoning = { type: /** @type {const} */ ('reasoning'), id: 'rs', summary: [] };
  await client.responses.create({ ...asked, input: /** @type {any} */ ([...asked.input, reasoning, ...output, ...results]) });
  assert.ok(
    prompt().endsWith(
      '<|im_start|>user\nOslo?<|im_end|>\n' +
        '<|im_start|>assistant\nI ask.\n CALLED weather Oslo{"city": "Oslo"} CALLED weather Oslo{"city": "Oslo"}<|im_end|>\n' +
        '<|im_start|>tool weather\n0 degrees<|im_end|>\n<|im_start|>tool weather\n1 degrees<|im_end|>\n<|im_start|>assistant\n',
    ),
    prompt(),
  );

  const stream = client.responses.stream(asked);
  const types = (await all(stream)).map(({ type }) => type).filter((type) => type.startsWith('response.function_call'));
  const own = ['response.function_call_arguments.delta', 'response.function_call_arguments.done'];
  assert.deepEqual(types, [...own, ...own]);
  const final = await stream.finalResponse();
  assert.deepEqual(
    final.output.map((item) => [item.type, /** @type {any} */ (item).arguments]),
    [
      ['message', undefined],
      ['function_call', '{"city":"Oslo"}'],
      ['function_call', '{"city":"Oslo"}'],
    ],
  );

  // What an answer may be is said by the same constraints as in chats.
  assert.equal(engine.requests.at(-1).constraint, undefined);
  const choices = /** @type {any[]} */ ([
    'required',
    { type: 'function', name: 'weather' },
    { type: 'allowed_tools', mode: 'required', tools: [{ type: 'function', name: 'weather' }] },
  ]);
  for (const tool_choice of choices) {
    await client.responses.create({ ...asked, tool_choice });
    assert.ok(engine.requests.at(-1).constraint);
  }
  const format = { type: /** @type {const} */ ('json_schema'), name: 'city', schema: parameters };
  await client.responses.create({ model: 'words', input: 'hi', text: { format } });
  assert.ok(engine.requests.at(-1).constraint);
  await client.responses.create({ model: 'words', input: 'hi', tools: [{ ...WEATHER, strict: true }] });
  assert.ok(engine.requests.at(-1).constraint);
});

test('what is wrong with a response, or needs storage, is an error that names it as it was written', async (t) => {
  const { engine, post } = await answering(t, 'one');
  const schema = { type: 'object', properties: { a: { type: 'string', pattern: 'a' } } };
  for (const [body, param, message] of /** @type {[any, string, RegExp][]} */ ([
    [{ input: undefined }, 'input', /^input must be a text or a list of at least one item, got undefined$/],
    [{ input: [5] }, 'input[0]', /^input\[0\] must be an object, got 5$/],
    [{ input: [{ content: 'a' }] }, 'input[0].role', /must be a text, got undefined$/],
    [{ input: [{ role: 'user', content: [{ type: 'input_image' }] }] }, 'input[0].content[0]', /got "input_image"$/],
    [{ input: [{ type: 'item_reference', id: 'msg_1' }] }, 'input[0]', /nothing is: send the item itself/],
    [{ input: [{ type: 'web_search_call' }] }, 'input[0].type', /got "web_search_call"$/],
    [
      {
        input: [
          { role: 'user', content: 'a' },
          { type: 'function_call', call_id: 'c', name: 'f', arguments: '{' },
        ],
      },
      'input[1].arguments',
      /^input\[1\]\.arguments must be an object of JSON as a text, got "{"$/,
    ],
    [
      { input: [{ type: 'function_call', call_id: 'c', arguments: '{}' }] },
      'input[0].name',
      /^input\[0\]\.name must be a text, got undefined$/,
    ],
    [{ max_tool_calls: 1 }, 'max_tool_calls', /^max_tool_calls is not supported, got 1$/],
    [
      { tools: [WEATHER], tool_choice: 'any' },
      'tool_choice',
      /, { type: 'function', name } or { type: 'allowed_tools', mode, tools }, got "any"$/,
    ],
    [{ input: 'word '.repeat(4096) }, 'input', /tokens, and the context of 4096 has no room/],
    [{ store: true }, 'store', /^store is not supported, got true: nothing is stored$/],
    [{ previous_response_id: 'resp_1' }, 'previous_response_id', /nothing is stored$/],
    [{ background: true }, 'background', /not supported/],
    [{ max_output_tokens: 0 }, 'max_output_tokens', /^max_output_tokens must be an integer from 1/],
    [{ tools: [{ type: 'web_search' }] }, 'tools[0]', /^tools\[0\] must be { type: 'function', name, parameters }, got "web_search"$/],
    [{ tools: [{ type: 'function', name: '' }] }, 'tools[0].name', /^tools\[0\]\.name must be a text, got ""$/],
    [{ tools: [WEATHER], tool_choice: { type: 'function', name: 'f' } }, 'tool_choice.name', /^tool_choice\.name must be the name/],
    [
      { tools: [{ ...WEATHER, strict: true, parameters: schema }] },
      'tools[0].parameters',
      /^tools\[0\]\.parameters\.properties\.a\.pattern is not supported/,
    ],
    [
      { text: { format: { type: 'json_schema', name: 'n', schema } } },
      'text.format',
      /^text\.format\.schema\.properties\.a\.pattern is not supported/,
    ],
  ])) {
    const found = await post('responses', { model: 'words', input: 'hi', ...body });
    assert.deepEqual([found.status, found.body.error.param], [400, param], JSON.stringify(found.body));
    assert.match(found.body.error.message, message);
  }
  assert.equal(engine.requests.length, 0);
  assert.equal((await post('responses', { model: 'words', input: 'hi', store: false, previous_response_id: null })).status, 200);
});

test('an error after events have begun is one of them, and the response has failed', async (t) => {
  const { client, engine } = await answering(t, 'one two');
  const { submit } = engine;
  engine.submit = async function* (request) {
    let left = 2;
    for await (const token of submit(request)) {
      if (left-- === 0) throw new Error('made here');
      yield token;
    }
  };
  const events = /** @type {any[]} */ (await all(await client.responses.create({ model: 'words', input: 'hi', stream: true })));
  assert.ok(events.length > 4);
  assert.deepEqual(
    events.map(({ sequence_number: number }) => number),
    events.map((_, i) => i),
  );
  const message = 'the server failed: see its log';
  const [error, failed] = events.slice(-2);
  assert.deepEqual([error.type, error.message, error.param], ['error', message, null]);
  assert.deepEqual(
    [failed.type, failed.response.status, failed.response.error],
    ['response.failed', 'failed', { code: 'server_error', message }],
  );
  assert.equal(engine.busy, 0);
});

test('requests as the clients of several libraries write them', async (t) => {
  const { engine, post, prompt } = await answering(t, 'one two');
  const user = { role: 'user', content: 'hi' };
  const tool = { type: 'function', function: { name: 'weather', description: 'w', parameters } };
  const call = { id: 'abcdefghi', type: 'function', function: { name: 'weather', arguments: '{"city":"Oslo"}' } };
  for (const [name, body, expected] of /** @type {[string, any, string][]} */ ([
    [
      "openai's whole set of what changes nothing",
      {
        ...{ messages: [{ role: 'developer', content: [{ type: 'text', text: 'be' }] }, user], max_completion_tokens: 5, store: false },
        ...{ metadata: { a: 'b' }, user: 'u', service_tier: 'auto', reasoning_effort: 'low', verbosity: 'low', prompt_cache_key: 'x' },
        ...{ safety_identifier: 'y', prediction: null, web_search_options: null, logit_bias: {}, n: 1, seed: 3, functions: [], stop: null },
        ...{ audio: null, modalities: ['text'], response_format: { type: 'text' }, stream_options: null, tool_choice: 'auto' },
      },
      '<|im_start|>system\nbe<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n',
    ],
    [
      "an answer as openai's client gives it back, with nothing in it, and refused ones",
      {
        messages: [
          user,
          { role: 'assistant', content: null, refusal: 'no', audio: null, annotations: [], function_call: null, tool_calls: [] },
          { role: 'assistant', content: null },
          { role: 'assistant', content: [{ type: 'refusal', refusal: 'never' }] },
          { ...user, name: 'bob', content: '' },
        ],
      },
      '<|im_start|>assistant\nno<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n<|im_start|>assistant\nnever<|im_end|>\n<|im_start|>user bob\n<|im_end|>\n',
    ],
    [
      "a call and its result, as LangChain's: an empty text, and parts",
      {
        ...{ temperature: 1, stream: false, max_tokens: 300, tools: [{ ...tool, strict: null }] },
        messages: [
          user,
          { role: 'assistant', content: '', tool_calls: [call] },
          { role: 'tool', tool_call_id: 'abcdefghi', content: [{ type: 'text', text: '5' }] },
        ],
      },
      ' CALLED weather Oslo{"city": "Oslo"}<|im_end|>\n<|im_start|>tool weather\n5<|im_end|>\n',
    ],
    [
      'a call without arguments, as models write one of a function that takes none',
      {
        messages: [
          user,
          { role: 'assistant', tool_calls: [{ ...call, function: { name: 'now', arguments: '' } }] },
          { role: 'tool', tool_call_id: 'abcdefghi', content: '5' },
        ],
      },
      ' CALLED now {}<|im_end|>\n<|im_start|>tool now\n5<|im_end|>\n',
    ],
  ])) {
    const found = await post('chat/completions', { model: 'words', ...body });
    assert.equal(found.status, 200, `${name}: ${JSON.stringify(found.body)}`);
    assert.ok(prompt().endsWith(`${expected}<|im_start|>assistant\n`), `${name}: ${prompt()}`);
  }
  for (const [name, body] of /** @type {[string, any][]} */ ([
    ["llama-index's and the AI SDK's", { prompt: 'a', max_tokens: 5, temperature: 0.1, top_p: 1, stop: ['\nuser:'] }],
    ["openai's", { prompt: ['a', 'b'], max_tokens: 3, echo: false, suffix: null, best_of: 1, user: 'x', logprobs: null, n: 1 }],
  ])) {
    const found = await post('completions', { model: 'words', ...body });
    assert.equal(found.status, 200, `${name}: ${JSON.stringify(found.body)}`);
  }
  // LangChain in Python sends the ids of OpenAI's tokenizer.
  const { status, body } = await post('embeddings', { model: 'words', input: [[1, 2], [3]], encoding_format: 'base64' });
  assert.equal(status, 200);
  assert.deepEqual(
    body.data.map((/** @type {any} */ { embedding }) => Buffer.from(embedding, 'base64').length),
    [16, 16],
  );
  assert.equal(engine.busy, 0);
});
