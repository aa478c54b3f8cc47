// Answers that must have calls, or JSON beside them: a model of random weights writes those that the request asks for, in each family's form.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import OpenAI from 'openai';

import { loadModel, serveModel } from '../src/index.mjs';
import { callConstraint } from '../src/serve/call-grammar.mjs';
import { toolsOf } from '../src/serve/tools.mjs';
import { temporaryFolder } from '../../../__test__/lib/folder.mjs';
import { TOOL_MARKS, TOOL_TEMPLATES, all, templateOf, writeTinyModel } from './lib/tiny-model.mjs';

const TEMPLATES = { ...TOOL_TEMPLATES, named: templateOf('[TOOL_CALLS] name [ARGS]') };
/** Texts of a call of each family, with its special tokens as text. @type {Record<keyof typeof TEMPLATES, (name: string, given: string) => string>} */
const CALLS = {
  hermes: (name, given) => `<tool_call>\n{"name": "${name}", "arguments": ${given}}\n</tool_call>`,
  llama: (name, given) => `{"name": "${name}", "parameters": ${given}}`,
  mistral: (name, given) => `[TOOL_CALLS][{"name": "${name}", "arguments": ${given}}]`,
  named: (name, given) => `[TOOL_CALLS]${name}[ARGS]${given}`,
};
const FAMILIES = /** @type {(keyof typeof TEMPLATES)[]} */ (Object.keys(TEMPLATES));

/** @param {string} name @param {Record<string, unknown>} [parameters] @param {object} [more] */
const tool = (name, parameters, more) => ({ type: /** @type {const} */ ('function'), function: { name, parameters, ...more } });
const weather = tool('weather', {
  type: 'object',
  properties: { city: { enum: ['Oslo', 'Bergen'] }, days: { anyOf: [{ type: 'integer', minimum: 1, maximum: 14 }, { type: 'null' }] } },
  required: ['city', 'days'],
  additionalProperties: false,
});
const TOOLS = [weather, tool('wea', { properties: { flag: { type: 'boolean' } }, required: ['flag'] }), tool('now')];
/** Of what arguments are right, by tool. @type {Record<string, (given: any) => boolean>} */
const FIT = {
  weather: ({ city, days, ...more }) =>
    (city === 'Oslo' || city === 'Bergen') &&
    (days === null || (Number.isInteger(days) && days >= 1 && days <= 14)) &&
    Object.keys(more).length === 0,
  wea: ({ flag, ...more }) => typeof flag === 'boolean' && Object.keys(more).length === 0,
  now: (given) => Object.keys(given).length === 0,
};

const base = temporaryFolder();
/** @type {Record<string, { model: import('../src/infer/model.mjs').LanguageModel, client: OpenAI, close: () => Promise<void> }>} */
const served = {};
before(async () => {
  for (const family of FAMILIES) {
    const folder = join(base, family);
    const generation = { temperature: 1, top_k: 0, top_p: 1, min_p: 0 };
    await writeTinyModel(folder, { template: TEMPLATES[family], context: 2048, marks: TOOL_MARKS, generation });
    const model = await loadModel(folder, { slots: 8 });
    const server = await serveModel(model, { port: 0, name: 'tiny' });
    const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
    served[family] = { model, client, close: () => server.close() };
  }
});
after(async () => {
  for (const { model, close } of Object.values(served)) {
    await close();
    await model.dispose();
  }
});

const ASKED = { model: 'tiny', messages: [{ role: /** @type {const} */ ('user'), content: 'hi' }], max_tokens: 400 };

/** @param {OpenAI.ChatCompletionMessageToolCall[] | undefined} calls @returns {[string, any][]} names and arguments */
const parsed = (calls = []) =>
  calls.map((call) => {
    assert.equal(call.type, 'function');
    assert.match(call.id, /^[a-zA-Z0-9]{9}$/);
    return call.type === 'function' ? [call.function.name, JSON.parse(call.function.arguments)] : ['', null];
  });

for (const family of FAMILIES) {
  test(`${family}: tool_choice required, of one function, of allowed tools; whole and as a stream`, async () => {
    const { client } = served[family];
    const names = new Set();
    const asked = { ...ASKED, seed: 5, tools: TOOLS, tool_choice: /** @type {const} */ ('required'), parallel_tool_calls: false };
    const whole = await client.chat.completions.create({ ...asked, n: 8 });
    for (const { message, finish_reason: reason } of whole.choices) {
      assert.deepEqual([reason, message.content], ['tool_calls', null], JSON.stringify(message));
      const calls = parsed(message.tool_calls);
      assert.equal(calls.length, 1);
      const [[name, given]] = calls;
      assert.ok(FIT[name](given), JSON.stringify(calls));
      names.add(name);
    }
    assert.ok(names.size > 1, [...names].join());
    const chunks = await all(await client.chat.completions.create({ ...asked, stream: true }));
    const streamed = chunks.flatMap(({ choices: [{ delta }] }) => delta.tool_calls ?? []);
    const [[name, given]] = parsed(whole.choices[0].message.tool_calls);
    assert.deepEqual(
      streamed.map(({ index, function: own }) => [index, own?.name, JSON.parse(own?.arguments ?? '')]),
      [[0, name, given]],
    );
    assert.equal(chunks.map(({ choices: [{ delta }] }) => delta.content ?? '').join(''), '');
    assert.equal(chunks.at(-1)?.choices[0].finish_reason, 'tool_calls');
    const named = { type: /** @type {const} */ ('function'), function: { name: 'weather' } };
    const allowed = {
      type: /** @type {const} */ ('allowed_tools'),
      allowed_tools: { mode: /** @type {const} */ ('required'), tools: [named] },
    };
    for (const tool_choice of /** @type {const} */ ([named, allowed])) {
      const { choices } = await client.chat.completions.create({ ...ASKED, seed: 1, n: 3, tools: TOOLS, tool_choice });
      for (const { message, finish_reason: reason } of choices) {
        const calls = parsed(message.tool_calls);
        if (reason === 'length' && tool_choice === allowed) continue;
        assert.equal(reason, 'tool_calls');
        assert.ok(calls.length > 0 && calls.every(([name, given]) => name === 'weather' && FIT.weather(given)), JSON.stringify(calls));
        if (tool_choice === named) assert.equal(calls.length, 1);
      }
    }
  });

  test(`${family}: several calls are calls of the tools, too`, async () => {
    const { client } = served[family];
    let several = 0;
    const { choices } = await client.chat.completions.create({ ...ASKED, seed: 9, n: 8, tools: TOOLS, tool_choice: 'required' });
    for (const { message, finish_reason: reason } of choices) {
      // Only the last one may be cut, by max_tokens.
      if (reason !== 'length') assert.deepEqual([reason, message.content], ['tool_calls', null]);
      const calls = parsed(message.tool_calls);
      assert.ok(calls.length > 0 || reason === 'length');
      assert.ok(
        calls.every(([name, given]) => FIT[name](given)),
        JSON.stringify(calls),
      );
      if (calls.length > 1) several++;
    }
    assert.ok(family === 'llama' ? several === 0 : several > 0, String(several));
  });

  test(`${family}: with response_format an answer is a call or the JSON`, async () => {
    const { client } = served[family];
    const schema = { type: 'object', properties: { kind: { enum: ['a', 'b'] } }, required: ['kind'], additionalProperties: false };
    const response_format = { type: /** @type {const} */ ('json_schema'), json_schema: { name: 'kinds', schema } };
    const kinds = { json: 0, calls: 0 };
    // A tool whose schema cannot be followed takes any object: its arguments are up to the model, as without response_format.
    const loose = tool('loose', { type: 'object', properties: { at: { type: 'string', format: 'date' } } });
    for (const tools of [TOOLS, [weather, loose]]) {
      const asked = { ...ASKED, seed: 7, n: 8, tools, parallel_tool_calls: false, response_format };
      const { choices } = await client.chat.completions.create(asked);
      for (const { message, finish_reason: reason } of choices) {
        if (reason === 'length') continue;
        const calls = parsed(message.tool_calls);
        kinds[calls.length > 0 ? 'calls' : 'json']++;
        if (calls.length === 0) assert.match(JSON.parse(message.content ?? '').kind, /^[ab]$/);
        else
          assert.deepEqual([calls.length, message.content, reason, FIT[calls[0][0]]?.(calls[0][1]) ?? true], [1, null, 'tool_calls', true]);
      }
    }
    assert.ok(kinds.json > 0 && kinds.calls > 0, JSON.stringify(kinds));
    // Where there must be a call, it is no JSON.
    const { choices } = await client.chat.completions.create({ ...ASKED, seed: 3, tools: TOOLS, tool_choice: 'required', response_format });
    assert.ok(choices[0].message.tool_calls?.length);
  });

  test(`${family}: with a strict tool any text may come, and calls that fit`, () => {
    const { model } = served[family];
    const { tokenizer } = model;
    const strict = tool('weather', weather.function.parameters, { strict: true });
    const constraintOf = (/** @type {any} */ body) => {
      const tools = toolsOf({ tools: [strict, tool('loose', { pattern: 'a' })], ...body }, model);
      assert.ok(tools);
      const make = callConstraint(model, tools, undefined);
      assert.ok(make);
      return make();
    };
    /** Where a text stops to be what may come; its length where it may. @param {any} body @param {string} text */
    const read = (body, text) => {
      const constraint = constraintOf(body);
      /** @type {number[]} */
      const taken = [];
      for (const id of tokenizer.encode(text)) {
        const may = (constraint.allowed()[id >> 5] >>> (id & 31)) & 1;
        if (!may) return { written: tokenizer.decode(taken), ends: false, done: false };
        taken.push(id);
        if (constraint.accept(id)) return { written: tokenizer.decode(taken), ends: true, done: true };
      }
      const [end] = model.stopIds;
      return { written: tokenizer.decode(taken), ends: ((constraint.allowed()[end >> 5] >>> (end & 31)) & 1) === 1, done: false };
    };
    const call = CALLS[family];
    const right = call('weather', '{"city": "Oslo", "days": null}');
    // A call that must come may have white space after it; of allowed tools one may be called twice, and of a named function not.
    const choice = { type: 'function', function: { name: 'weather' } };
    const must = { tool_choice: { type: 'allowed_tools', allowed_tools: { mode: 'required', tools: [choice] } } };
    if (family === 'hermes' || family === 'named') {
      for (const text of [`${right}\n`, `${right}\n${right}`])
        assert.deepEqual(read(must, text), { written: text, ends: true, done: false });
      assert.deepEqual(read({ tool_choice: choice }, `${right}\n`), { written: right, ends: true, done: true });
      assert.equal(read(must, '').ends, false);
    }
    for (const text of ['', 'It is <fine>, [TOOL or not.', 'é'])
      assert.deepEqual(read({}, text), { written: text, ends: true, done: false });
    // A call that is the whole answer, or a list of them, ends it; so does any where there may be one.
    const whole = family === 'llama' || family === 'mistral';
    assert.deepEqual(read({}, right), { written: right, ends: true, done: whole });
    assert.deepEqual(read({ parallel_tool_calls: false }, right), { written: right, ends: true, done: true });
    if (family !== 'llama') assert.deepEqual(read({}, `I ask.\n${right}`), { written: `I ask.\n${right}`, ends: true, done: whole });
    const loose = call('loose', '{"anything": [1]}');
    assert.equal(read({}, loose).written, loose);
    for (const [name, given] of [
      ['weather', '{"city": "Rome"'],
      ['weather', '{"city": "Oslo", "days": 15'],
      ['weather', '{"city": "Oslo"}'],
      ['wether', '{}'],
    ]) {
      const text = call(name, given);
      const { written, ends } = read({}, text);
      assert.ok(written.length < text.length && !ends, `${written} | ${text}`);
    }
    if (!whole) {
      const text = `${right}${call('weather', '{"city": "R')}`;
      const { written } = read({}, text);
      assert.ok(written.startsWith(right) && written.length > right.length && written.length < text.length, written);
    }
  });
}

test('auto without a strict tool leaves an answer free; the special token of a mark is no part of an argument', () => {
  const { model } = served.mistral;
  const free = toolsOf({ tools: TOOLS }, model);
  assert.ok(free);
  assert.equal(callConstraint(model, free, undefined), undefined);
  const tools = toolsOf({ tools: [tool('f', { properties: { a: { type: 'string' } } })], tool_choice: 'required' }, model);
  const constraint = tools && callConstraint(model, tools, undefined)?.();
  assert.ok(constraint);
  const mark = /** @type {number} */ (model.tokenizer.idOf('[TOOL_CALLS]'));
  const may = (/** @type {number} */ id) => ((constraint.allowed()[id >> 5] >>> (id & 31)) & 1) === 1;
  const [letter] = model.tokenizer.encode('[');
  assert.deepEqual([may(mark), may(letter)], [true, false]);
  for (const id of model.tokenizer.encode('[TOOL_CALLS][{"name": "f", "arguments": {"a": "')) constraint.accept(id);
  assert.deepEqual([may(mark), may(letter), model.stopIds.some(may)], [false, true, false]);
});
