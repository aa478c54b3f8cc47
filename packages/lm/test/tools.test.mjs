// Tools of chats, asked by npm's `openai` client: what the template gets, and the calls in answers of each family, whole and as a stream.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import OpenAI from 'openai';

import { loadTokenizer, serveModel } from '../src/index.mjs';
import { LanguageModel } from '../src/infer/model.mjs';
import { CallFinder } from '../src/serve/tools.mjs';
import { temporaryFolder } from '../../../__test__/lib/folder.mjs';
import { CHATML, TOOL_MARKS, TOOL_TEMPLATES, all, scriptedEngine, templateOf, textOf, writeTokenizer } from './lib/tiny-model.mjs';

const TOOLS = [
  {
    type: /** @type {const} */ ('function'),
    function: {
      name: 'weather',
      description: 'of a city',
      parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
    },
  },
];
const MESSAGES = [{ role: /** @type {const} */ ('user'), content: 'How is it in Oslo?' }];

/** Serves a model that gives every prompt the same answer. @param {import('node:test').TestContext} t @param {string} template @param {string} text */
async function answering(t, template, text) {
  const folder = temporaryFolder(t);
  await writeTokenizer(folder, { template, marks: TOOL_MARKS });
  const engine = scriptedEngine(folder, { answer: () => [...engine.tokenizer.encode(text), 2] });
  const server = await serveModel(new LanguageModel(engine), { port: 0, name: 'words' });
  t.after(() => server.close());
  const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
  return { engine, client, prompt: () => engine.tokenizer.decode(engine.requests.at(-1).ids) };
}

/** What a stream adds up to. @param {AsyncIterable<OpenAI.ChatCompletionChunk>} stream */
async function joined(stream) {
  let content = '';
  /** @type {[string, string][]} */
  const calls = [];
  const ids = new Set();
  let reason;
  for (const { choices } of await all(stream)) {
    const [{ delta, finish_reason }] = choices;
    content += delta.content ?? '';
    for (const call of delta.tool_calls ?? []) {
      assert.equal(call.index, calls.length);
      assert.equal(call.type, 'function');
      ids.add(call.id);
      calls.push([call.function?.name ?? '', call.function?.arguments ?? '']);
    }
    reason = finish_reason;
  }
  assert.equal(ids.size, calls.length);
  return { content, calls, reason };
}

const oslo = /** @type {const} */ (['weather', '{"city":"Oslo"}']);
const bergen = /** @type {const} */ (['weather', '{"city":"</tool_call> }{ Bergen"}']);
const [OSLO, BERGEN] = [oslo, bergen].map(([name, given]) => `{"name": "${name}", "arguments": ${given}}`);

for (const [
  name,
  family,
  text,
  content,
  calls,
] of /** @type {[string, keyof typeof TOOL_TEMPLATES, string, string, (readonly [string, string])[]][]} */ ([
  ['a call', 'hermes', `<tool_call>\n${OSLO}\n</tool_call>`, '', [oslo]],
  [
    'text, two calls, white space',
    'hermes',
    `I ask.\n<tool_call>${OSLO}</tool_call>\n <tool_call>${BERGEN}\n</tool_call>\n`,
    'I ask.\n',
    [oslo, bergen],
  ],
  ['text between calls', 'hermes', `<tool_call>${OSLO}</tool_call>\nand <tool_call>${OSLO}</tool_call>`, 'and ', [oslo, oslo]],
  ['a call that does not end', 'hermes', `<tool_call>${OSLO}`, '', [oslo]],
  ['a call of no arguments', 'hermes', '<tool_call>{"name": "now", "arguments": {}}</tool_call>', '', [['now', '{}']]],
  ['no JSON', 'hermes', ' <tool_call>weather(Oslo)</tool_call> it is', ' <tool_call>weather(Oslo)</tool_call> it is', []],
  ['other JSON', 'hermes', '<tool_call>{"name": 5}</tool_call>', '<tool_call>{"name": 5}</tool_call>', []],
  [
    'a call behind words of the mark',
    'hermes',
    `I use <tool_call></tool_call>, or <tool_call>.\n<tool_call>${BERGEN}</tool_call>\n<tool_call>${OSLO}</tool_call>`,
    'I use <tool_call></tool_call>, or <tool_call>.\n',
    [bergen, oslo],
  ],
  [
    'a call that does not end, behind one that is none',
    'hermes',
    `<tool_call>no</tool_call><tool_call>${OSLO}`,
    '<tool_call>no</tool_call>',
    [oslo],
  ],
  ['a call behind one that is none', 'mistral', `[TOOL_CALLS]no[TOOL_CALLS][${OSLO}]`, '[TOOL_CALLS]no', [oslo]],
  ['no call', 'hermes', '\n a < b and <tool', '\n a < b and <tool', []],
  ['a call', 'llama', '{"name": "weather", "parameters": {"city": "Oslo"}}', '', [oslo]],
  ['a call behind its mark', 'llama', '\n<|python_tag|>{"name": "weather", "parameters": {"city": "Oslo"}}', '', [oslo]],
  ['other JSON', 'llama', '\n\n{"city": "Oslo"}', '\n\n{"city": "Oslo"}', []],
  ['text that only begins as a mark', 'llama', '<{"name": "weather", "parameters": {}}', '<{"name": "weather", "parameters": {}}', []],
  [
    'a call with half a mark in it',
    'llama',
    '{"name": "f", "parameters": {"a": "<|python_tag|>", "b<": "<"}}',
    '',
    [['f', '{"a":"<|python_tag|>","b<":"<"}']],
  ],
  ['JSON that does not end', 'llama', '{"name": "weather", "par', '{"name": "weather", "par', []],
  ['text with JSON', 'llama', `It is ${OSLO}`, `It is ${OSLO}`, []],
  ['calls in a list', 'mistral', `[TOOL_CALLS] [${OSLO}, ${BERGEN}]`, '', [oslo, bergen]],
  [
    'calls with their names before',
    'mistral',
    `I ask.[TOOL_CALLS]weather[ARGS]${oslo[1]}[TOOL_CALLS]weather${bergen[1]}`,
    'I ask.',
    [oslo, bergen],
  ],
  ['a name of any characters', 'mistral', `[TOOL_CALLS]été: 2[ARGS]${oslo[1]}`, '', [['été: 2', oslo[1]]]],
  ['no call', 'mistral', '[1, 2]', '[1, 2]', []],
])) {
  test(`${family}: ${name}`, async (t) => {
    const { client, prompt } = await answering(t, TOOL_TEMPLATES[family], text);
    const asked = { model: 'words', messages: MESSAGES, tools: TOOLS };
    const { choices } = await client.chat.completions.create(asked);
    const [{ message, finish_reason: reason }] = choices;
    const found = (message.tool_calls ?? []).map((call) => call.type === 'function' && [call.function.name, call.function.arguments]);
    assert.deepEqual(found, calls);
    assert.equal(message.content, content === '' ? null : content);
    assert.equal(reason, calls.length > 0 ? 'tool_calls' : 'stop');
    assert.ok((message.tool_calls ?? []).every(({ id }) => /^[a-zA-Z0-9]{9}$/.test(id)));
    assert.deepEqual(await joined(await client.chat.completions.create({ ...asked, stream: true })), { content, calls, reason });
    assert.ok(
      prompt().startsWith(
        `TOOLS ${JSON.stringify(TOOLS)
          .replaceAll(/([:,])"/g, '$1 "')
          .replaceAll(/([:,])([[{])/g, '$1 $2')} `,
      ),
      prompt(),
    );
  });
}

test('earlier calls and their results reach the template as objects; tool_choice none leaves the tools out', async (t) => {
  const { client, engine, prompt } = await answering(t, TOOL_TEMPLATES.hermes, `<tool_call>${OSLO}</tool_call>`);
  const first = await client.chat.completions.create({ model: 'words', messages: MESSAGES, tools: TOOLS });
  const { message } = first.choices[0];
  const [{ id }] = message.tool_calls ?? [];
  const messages = [...MESSAGES, message, { role: /** @type {const} */ ('tool'), tool_call_id: id, content: '5 degrees' }];
  await client.chat.completions.create({ model: 'words', messages, tools: TOOLS });
  const turns = '<|im_start|>assistant\n CALLED weather Oslo{"city": "Oslo"}<|im_end|>\n<|im_start|>tool weather\n5 degrees<|im_end|>\n';
  assert.ok(prompt().endsWith(`${turns}<|im_start|>assistant\n`), prompt());

  const none = await client.chat.completions.create({ model: 'words', messages: MESSAGES, tools: TOOLS, tool_choice: 'none' });
  assert.ok(!prompt().includes('TOOLS'));
  assert.deepEqual([none.choices[0].message.tool_calls, none.choices[0].finish_reason], [undefined, 'stop']);
  assert.equal(none.choices[0].message.content, `<tool_call>${OSLO}</tool_call>`);

  const cut = await client.chat.completions.create({ model: 'words', messages: MESSAGES, tools: TOOLS, max_tokens: 20 });
  assert.equal(cut.choices[0].finish_reason, 'length');
  const several = await client.chat.completions.create({
    ...{ model: 'words', messages: MESSAGES, tools: TOOLS, tool_choice: 'auto', n: 2, logprobs: true },
  });
  const count = engine.tokenizer.encode(`<tool_call>${OSLO}</tool_call>`).length;
  assert.deepEqual(
    several.choices.map((choice) => [choice.finish_reason, choice.message.tool_calls?.length, choice.logprobs?.content?.length]),
    [1, 2].map(() => ['tool_calls', 1, count]),
  );
});

test('a call behind what may be the beginning of a stop text, or is half a character', async (t) => {
  for (const [mark, template, json] of /** @type {const} */ ([
    ['[TOOL_CALLS]', TOOL_TEMPLATES.mistral, `[${OSLO}]`],
    ['<tool_call>', TOOL_TEMPLATES.hermes, `${OSLO}</tool_call>`],
  ])) {
    const { client, engine } = await answering(t, template, `ST${mark}${json}`);
    const asked = { model: 'words', messages: MESSAGES, tools: TOOLS, stop: ['STOP'] };
    const expected = { content: 'ST', calls: [oslo], reason: 'tool_calls' };
    assert.deepEqual(await joined(await client.chat.completions.create({ ...asked, stream: true })), expected, mark);
    const { choices } = await client.chat.completions.create(asked);
    assert.deepEqual([choices[0].message.content, choices[0].message.tool_calls?.length], ['ST', 1]);
    // Cut at the mark: the text before it is still there.
    const before = engine.tokenizer.encode('ST').length;
    const cut = await client.chat.completions.create({ ...asked, max_tokens: before + engine.tokenizer.encode(mark).length });
    assert.deepEqual([cut.choices[0].message.content, cut.choices[0].finish_reason], [`ST${mark}`, 'length']);
  }
  const { client, engine } = await answering(t, TOOL_TEMPLATES.mistral, 'é');
  const [first] = engine.tokenizer.encode('é');
  engine.tokenizer.encode = () => Uint32Array.of(first, ...loadTokenizer(engine.from).encode(`[TOOL_CALLS][${OSLO}]`));
  assert.deepEqual(await joined(await client.chat.completions.create({ model: 'words', messages: MESSAGES, tools: TOOLS, stream: true })), {
    content: '\ufffd',
    calls: [oslo],
    reason: 'tool_calls',
  });
});

test('what is found does not depend on where tokens end, and a text without calls is kept', () => {
  let state = 7;
  const random = (/** @type {number} */ below) => ((state = (Math.imul(state, 1664525) + 1013904223) >>> 0) >>> 8) % below;
  let withCalls = 0;
  for (const [begin, end] of [
    ['[TOOL_CALLS]', '[TOOL_CALLS]'],
    ['<tool_call>', '</tool_call>'],
    ['<|python_tag|>', undefined],
  ]) {
    const how = /** @type {const} */ ({ write: 'tagged', key: 'arguments' });
    const form = { begin: /** @type {string} */ (begin), end, bare: end === undefined, marks: [], ...how };
    const bits = [form.begin, end ?? 'x', OSLO, `[${OSLO}]`, ' ', '\n', 'x', '{', '}', form.begin.slice(0, 4), 'f[ARGS]{}', '"'];
    const found = (/** @type {string[]} */ pieces) => {
      const finder = new CallFinder(form, true);
      const parts = [...pieces, ''].map((text, i) =>
        finder.push({ text, token: 5, logprob: 0, finishReason: i === pieces.length ? 'stop' : null }),
      );
      return { text: textOf(parts), calls: parts.flatMap(({ calls }) => calls.map((call) => call.function)) };
    };
    for (let i = 0; i < 1500; i++) {
      const text = Array.from({ length: 1 + random(9) }, () => bits[random(bits.length)]).join('');
      const whole = found([text]);
      assert.deepEqual(found([...text]), whole, text);
      const cut = random(text.length);
      assert.deepEqual(found([text.slice(0, cut), text.slice(cut)]), whole, text);
      if (whole.calls.length === 0) assert.equal(whole.text, text);
      else withCalls++;
    }
  }
  assert.ok(withCalls > 100, String(withCalls));
});

test('parallel_tool_calls: false keeps the first call', async (t) => {
  const { client } = await answering(t, TOOL_TEMPLATES.mistral, `[TOOL_CALLS][${OSLO}, ${BERGEN}]`);
  const asked = { model: 'words', messages: MESSAGES, tools: TOOLS, parallel_tool_calls: false };
  const { choices } = await client.chat.completions.create(asked);
  assert.deepEqual(
    choices[0].message.tool_calls?.map((call) => call.type === 'function' && call.function.arguments),
    [oslo[1]],
  );
});

test('what is wrong with tools is an error that names it', async (t) => {
  const { client, engine } = await answering(t, TOOL_TEMPLATES.hermes, 'one');
  const call = { id: 'c', type: 'function', function: { name: 'weather', arguments: '{}' } };
  const patterned = (/** @type {boolean} */ strict) => [
    { type: 'function', function: { name: 'f', strict, parameters: { properties: { city: { type: 'string', pattern: 'O.*' } } } } },
  ];
  const called = (/** @type {any} */ more) => ({ messages: [...MESSAGES, { role: 'assistant', tool_calls: [{ ...call, ...more }] }] });
  for (const [body, param, message] of /** @type {[any, string, RegExp][]} */ ([
    [{ tools: {} }, 'tools', /^tools must be a list of tools, got an object$/],
    [{ tools: [{}] }, 'tools[0]', /^tools\[0\] must be { type: 'function', function }, got undefined$/],
    [{ tools: [...TOOLS, { type: 'custom' }] }, 'tools[1]', /got "custom"$/],
    [{ tools: [{ type: 'function', function: {} }] }, 'tools[0].function.name', /must be a text, got undefined$/],
    [
      { tools: [{ type: 'function', function: { name: 'f', parameters: [] } }] },
      'tools[0].function.parameters',
      /a JSON schema, got a list of 0$/,
    ],
    [{ tool_choice: 'required' }, 'tool_choice', /^tool_choice must be "auto" or "none" without tools, got "required"$/],
    [
      { tools: TOOLS, tool_choice: 'any' },
      'tool_choice',
      /^tool_choice must be "auto", "none", "required", \{ type: 'function', .*, got "any"$/,
    ],
    [{ tools: TOOLS, tool_choice: { type: 'function' } }, 'tool_choice', /got an object$/],
    [
      { tools: TOOLS, tool_choice: { type: 'function', function: { name: 'wether' } } },
      'tool_choice.function.name',
      /^tool_choice\.function\.name must be the name of one of the tools, got "wether"$/,
    ],
    [
      { tools: TOOLS, tool_choice: { type: 'allowed_tools', allowed_tools: { mode: 'auto', tools: [{}] } } },
      'tool_choice.allowed_tools.tools[0].function.name',
      /got undefined$/,
    ],
    [
      { tools: TOOLS, tool_choice: { type: 'allowed_tools', allowed_tools: { mode: 'required', tools: [] } } },
      'tool_choice',
      /, got an object$/,
    ],
    [
      { tools: patterned(false), tool_choice: 'required' },
      'tools[0].function.parameters',
      /^tools\[0\]\.function\.parameters\.properties\.city\.pattern is not supported; there are type, /,
    ],
    [{ tools: patterned(true) }, 'tools[0].function.parameters', /pattern is not supported/],
    [{ tools: patterned(true), response_format: { type: 'json_object' } }, 'tools[0].function.parameters', /pattern is not supported/],
    [{ tools: TOOLS, parallel_tool_calls: 1 }, 'parallel_tool_calls', /must be true or false, got 1$/],
    [called({ function: {} }), 'messages[1].tool_calls[0].function.name', /must be a text, got undefined$/],
    [
      called({ function: { name: 'f', arguments: '[1]' } }),
      'messages[1].tool_calls[0].function.arguments',
      /an object of JSON as a text, got "\[1\]"$/,
    ],
    [called({ function: { name: 'f', arguments: {} } }), 'messages[1].tool_calls[0].function.arguments', /got an object$/],
    [{ messages: [{ role: 'assistant', tool_calls: 'f' }] }, 'messages[0].tool_calls', /must be a list of calls, got "f"$/],
  ])) {
    const asked = client.chat.completions.create({ model: 'words', messages: MESSAGES, ...body });
    await assert.rejects(asked, (error) => {
      assert.ok(error instanceof OpenAI.APIError);
      assert.deepEqual([error.status, error.param], [400, param]);
      assert.match(error.message.replace(/^400 /, ''), message);
      return true;
    });
  }
  assert.equal(engine.requests.length, 0);
  for (const [template, message] of /** @type {[string, RegExp][]} */ ([
    [CHATML, /the model's chat template has no tools$/],
    [templateOf('<tool_call><function=name>'), /has calls in a form that is not known$/],
  ])) {
    const other = await answering(t, template, 'one');
    const asked = { model: 'words', messages: MESSAGES };
    await assert.rejects(other.client.chat.completions.create({ ...asked, tools: TOOLS }), {
      status: 400,
      param: 'tools',
      code: 'no_tools',
      message,
    });
    assert.equal((await other.client.chat.completions.create({ ...asked, tools: [] })).choices[0].message.content, 'one');
  }
});
