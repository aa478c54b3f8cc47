// OpenAI's newer interface, `/v1/responses`: text and calls of functions, whole or as events. A request becomes one of a chat; nothing is stored.

import { randomBytes } from 'node:crypto';

import { shown } from '../options.mjs';
import { begin, reasonOf, run, sendJson } from './answers.mjs';
import { ApiError, isObject, read, toldOf, wrong } from './fields.mjs';
import { chatRequest, contentOf } from './requests.mjs';
import { earlierCalls } from './tools.mjs';

/** @typedef {import('./answers.mjs').Service} Service */
/** @typedef {import('./answers.mjs').Exchange} Exchange */
/** @typedef {import('./fields.mjs').Body} Body */

/** Of these the reason is that nothing is stored. */
const STORED = ['store', 'previous_response_id', 'conversation', 'prompt', 'background'];
/** What needs storage, or tools of OpenAI's. @type {Record<string, (value: unknown) => boolean>} */
const REFUSED = {
  store: (value) => value !== false,
  previous_response_id: () => true,
  conversation: () => true,
  prompt: () => true,
  background: (value) => value !== false,
  max_tool_calls: () => true,
  top_logprobs: (value) => value !== 0,
};

/** Parameters of a response that a chat has by the same name. */
const SAME = (
  'temperature top_p parallel_tool_calls stream stop seed top_k min_p presence_penalty frequency_penalty repeat_penalty repetition_penalty ' +
  'repeat_last_n ignore_eos chat_template_kwargs'
).split(' ');

/** Names of a chat's parameters in messages, and what they are in a response. @type {[string | RegExp, string][]} */
const NAMES = [
  [/\bmax_completion_tokens\b/g, 'max_output_tokens'],
  [/\bresponse_format(\.json_schema)?\b/g, 'text.format'],
  [/\b(tools\[\d+\])\.function\b/g, '$1'],
  [/\btool_choice\.function\b/g, 'tool_choice'],
  [/\btool_choice\.allowed_tools\.tools\[(\d+)\]\.function\b/g, 'tool_choice.tools[$1]'],
  [/{ type: 'function', function: { name } }/g, "{ type: 'function', name }"],
  ["{ type: 'allowed_tools', allowed_tools: { mode, tools } }", "{ type: 'allowed_tools', mode, tools }"],
  [/^messages$/g, 'input'],
];

/**
 * Does what is a chat's, with errors that name parameters as a response has them.
 * @template T
 * @param {[string | RegExp, string][]} names @param {() => T} make @returns {T}
 */
function inWordsOf(names, make) {
  try {
    return make();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const renamed = (/** @type {string} */ text) => names.reduce((all, [name, own]) => all.replaceAll(name, own), text);
    throw wrong(renamed(error.param ?? ''), renamed(error.message), error.code ?? undefined);
  }
}

/** Parts of a content that have a text. */
const PARTS = ['input_text', 'output_text', 'text'];

/** The messages of a chat that an input is. @param {Body} body @returns {Body[]} */
function messagesOf({ input, instructions }) {
  /** @type {Body[]} */
  const messages = [];
  if (instructions !== undefined && instructions !== null)
    messages.push({ role: 'system', content: contentOf(instructions, 'instructions', PARTS) });
  const items = typeof input === 'string' ? [{ role: 'user', content: input }] : input;
  if (!Array.isArray(items) || items.length === 0)
    throw wrong('input', `input must be a text or a list of at least one item, got ${shown(input)}`);
  for (const [i, item] of items.entries()) {
    const at = `input[${i}]`;
    if (!isObject(item)) throw wrong(at, `${at} must be an object, got ${shown(item)}`);
    const { type = 'message', role, content, call_id: id, name, arguments: given, output } = item;
    const last = messages.at(-1);
    if (type === 'message') {
      if (typeof role !== 'string') throw wrong(`${at}.role`, `${at}.role must be a text, got ${shown(role)}`);
      messages.push({ role, content: contentOf(content, `${at}.content`, PARTS) });
    } else if (type === 'function_call') {
      const call = { id, type: 'function', function: { name, arguments: given } };
      inWordsOf([[`${at}[0].function`, at]], () => earlierCalls([call], at));
      // Calls that follow one another, or a text, are one answer.
      if (last?.role === 'assistant') last.tool_calls = [.../** @type {Body[]} */ (last.tool_calls ?? []), call];
      else messages.push({ role: 'assistant', content: '', tool_calls: [call] });
    } else if (type === 'function_call_output') {
      messages.push({ role: 'tool', tool_call_id: id, content: contentOf(output, `${at}.output`, PARTS) });
    } else if (type === 'item_reference') {
      throw wrong(at, `${at} refers to what is stored, and nothing is: send the item itself (clients do with store: false)`);
    } else if (type !== 'reasoning') {
      throw wrong(`${at}.type`, `${at}.type must be message, function_call or function_call_output, got ${shown(type)}`);
    }
  }
  return messages;
}

/** The request of a chat that a request of a response is. @param {Body} body @returns {Body} */
function chatOf(body) {
  for (const [name, isRefused] of Object.entries(REFUSED))
    if ((body[name] ?? undefined) !== undefined && isRefused(body[name]))
      throw wrong(
        name,
        `${name} is not supported, got ${shown(body[name])}${STORED.includes(name) ? ': nothing is stored' : ''}`,
        'unsupported_parameter',
      );
  const tools = read(body, 'tools', Array.isArray, 'a list of tools')?.map((tool, i) => {
    const { type, name, description, parameters, strict } = isObject(tool) ? tool : {};
    if (type !== 'function')
      throw wrong(`tools[${i}]`, `tools[${i}] must be { type: 'function', name, parameters }, got ${shown(type ?? tool)}`);
    return { type, function: { name, description, parameters: parameters ?? undefined, strict: strict ?? undefined } };
  });
  const { tool_choice: choice } = body;
  const nameOf = (/** @type {any} */ each) =>
    isObject(each) && each.type === 'function' ? { ...each, function: { name: each.name } } : each;
  const allowed = isObject(choice) && choice.type === 'allowed_tools' && Array.isArray(choice.tools);
  const format = read(body, 'text', isObject, 'an object')?.format ?? undefined;
  const isSchema = isObject(format) && format.type === 'json_schema';
  return {
    ...Object.fromEntries(SAME.map((name) => [name, body[name]])),
    messages: messagesOf(body),
    max_completion_tokens: body.max_output_tokens,
    tools,
    tool_choice: allowed
      ? { type: 'allowed_tools', allowed_tools: { mode: choice.mode, tools: /** @type {unknown[]} */ (choice.tools).map(nameOf) } }
      : nameOf(choice),
    response_format: isSchema ? { type: 'json_schema', json_schema: { name: format.name, schema: format.schema } } : format,
  };
}

/** A chat's request, with errors in the words of this one. @param {Body} body @param {Service} service */
function requestOf(body, { model, places }) {
  const chat = chatOf(body);
  return inWordsOf(NAMES, () => chatRequest(chat, model, places));
}

const newId = (/** @type {string} */ kind) => `${kind}_${randomBytes(12).toString('hex')}`;

/** The items of an answer, and the events that tell of them. */
class Output {
  /** @type {any[]} */
  items = [];
  #emit;
  /** The message that text goes to. @type {any} */
  #message;

  /** @param {(type: string, more: object) => void} emit */
  constructor(emit) {
    this.#emit = emit;
  }

  get #place() {
    return { item_id: this.items.at(-1).id, output_index: this.items.length - 1 };
  }

  /** @param {any} item that has begun */
  #add(item) {
    this.items.push(item);
    this.#emit('response.output_item.added', { output_index: this.items.length - 1, item: structuredClone(item) });
  }

  /** @param {object} more @param {boolean} whole */
  #done(more, whole) {
    const item = Object.assign(this.items.at(-1), more, { status: whole ? 'completed' : 'incomplete' });
    this.#emit('response.output_item.done', { output_index: this.items.length - 1, item });
  }

  /** @param {string} delta */
  text(delta) {
    if (!this.#message) {
      this.#message = { type: 'output_text', text: '', annotations: [], logprobs: [] };
      this.#add({ id: newId('msg'), type: 'message', status: 'in_progress', role: 'assistant', content: [] });
      this.#emit('response.content_part.added', { ...this.#place, content_index: 0, part: { ...this.#message } });
    }
    this.#message.text += delta;
    if (delta !== '') this.#emit('response.output_text.delta', { ...this.#place, content_index: 0, delta, logprobs: [] });
  }

  /** @param {import('./tools.mjs').ToolCall} call */
  call({ id, function: { name, arguments: given } }) {
    this.end(true);
    this.#add({ id: newId('fc'), type: 'function_call', status: 'in_progress', call_id: id, name, arguments: '' });
    this.#emit('response.function_call_arguments.delta', { ...this.#place, delta: given });
    this.#emit('response.function_call_arguments.done', { ...this.#place, name, arguments: given });
    this.#done({ arguments: given }, true);
  }

  /** Ends the message that is under way. @param {boolean} whole */
  end(whole) {
    const part = this.#message;
    if (!part) return;
    this.#message = undefined;
    this.#emit('response.output_text.done', { ...this.#place, content_index: 0, text: part.text, logprobs: [] });
    this.#emit('response.content_part.done', { ...this.#place, content_index: 0, part });
    this.#done({ content: [part] }, whole);
  }
}

/** @param {Service} service @param {Exchange} exchange */
export async function answerResponse(service, exchange) {
  const { body, adapter, response, counts } = exchange;
  const request = requestOf(body, service);
  const head = {
    ...{ id: newId('resp'), object: 'response', created_at: Math.floor(Date.now() / 1000), model: adapter ?? service.name },
    ...{ background: false, error: null, previous_response_id: null, store: false, truncation: 'disabled', metadata: body.metadata ?? {} },
    ...{ instructions: body.instructions ?? null, max_output_tokens: body.max_output_tokens ?? null },
    ...{
      temperature: body.temperature ?? null,
      top_p: body.top_p ?? null,
      text: { format: { type: 'text' }, .../** @type {Body} */ (body.text) },
    },
    ...{ tools: body.tools ?? [], tool_choice: body.tool_choice ?? 'auto', parallel_tool_calls: body.parallel_tool_calls ?? true },
  };
  let number = 0;
  const emit = (/** @type {string} */ type, /** @type {object} */ more) => {
    if (!request.stream) return;
    begin(response);
    response.write(`event: ${type}\ndata: ${JSON.stringify({ type, sequence_number: number++, ...more })}\n\n`);
  };
  const output = new Output(emit);
  /** @param {string} status @param {boolean} [cut] */
  const state = (status, cut = false) => ({
    ...head,
    status,
    incomplete_details: cut ? { reason: 'max_output_tokens' } : null,
    output: output.items,
    usage: null,
  });
  let whole = true;
  const answered = run(service, exchange, 'input', request, (finders) => ({
    push(index, part) {
      if (request.stream && number === 0)
        for (const type of ['created', 'in_progress']) emit(`response.${type}`, { response: state('in_progress') });
      if (part.text !== '') output.text(part.text);
      for (const call of part.calls ?? []) output.call(call);
      whole = reasonOf(part, finders[index]) !== 'length';
    },
    end() {
      // An answer of nothing is an empty text.
      if (output.items.length === 0) output.text('');
      output.end(whole);
      const usage = {
        ...{ input_tokens: counts.prompt, input_tokens_details: { cached_tokens: 0 } },
        ...{ output_tokens: counts.completion, output_tokens_details: { reasoning_tokens: 0 } },
        total_tokens: counts.prompt + counts.completion,
      };
      const status = whole ? 'completed' : 'incomplete';
      const all = { ...state(status, !whole), usage };
      if (!request.stream) return sendJson(response, 200, all);
      emit(`response.${status}`, { response: all });
      response.end();
    },
  }));
  await answered.catch((error) => {
    // Events have begun: the error is one of them, too.
    if (number > 0 && !response.destroyed) {
      const { message, code, param } = toldOf(error);
      emit('error', { code, message, param });
      emit('response.failed', { response: { ...state('failed'), error: { code: 'server_error', message } } });
      response.end();
    }
    throw error;
  });
}
