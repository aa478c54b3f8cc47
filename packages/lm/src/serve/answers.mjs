// Answers of OpenAI's interface: completions of chats and texts, whole or as server-sent events, and embeddings.

import { randomBytes, randomInt } from 'node:crypto';

import { ApiError, wrong } from './fields.mjs';
import { chatRequest, completionRequest, embeddingRequest } from './requests.mjs';

/** @typedef {import('../infer/model.mjs').LanguageModel} LanguageModel */
/** @typedef {import('../infer/model.mjs').Part} Part */
/** @typedef {import('./fields.mjs').Body} Body */
/** @typedef {import('./requests.mjs').Input} Input */
/** @typedef {import('./tools.mjs').ToolCall} ToolCall */
/** A part of an answer, and the calls that it completes. @typedef {Part & { calls?: ToolCall[] }} Found */
/** `bytes`: what is in several tokens of one character is no text alone. @typedef {{ token: string, logprob: number, bytes: number[] }} Logprob */
/** @typedef {Logprob & { top_logprobs: Logprob[] }} TokenLogprob */
/** @typedef {{ prompt: number, completion: number }} Counts of tokens */

/**
 * What the answers of a server share.
 * @typedef {object} Service
 * @property {LanguageModel} model
 * @property {string} name the model's
 * @property {number} places sequences that are continued or wait at once
 * @property {(count: number) => () => void} admit takes places for sequences; throws if there are not enough; returns what frees them
 *
 * A request whose body is read.
 * @typedef {{ body: Body, adapter: string | undefined, response: import('node:http').ServerResponse, signal: AbortSignal, counts: Counts }} Exchange
 *   `adapter`: that of the model that was asked for; `signal`: the connection has closed; `counts`: filled in for the log
 */

const EXPIRED = new ApiError(400, 'the connection was closed');

/** How many of a text's UTF-16 units begin with these bytes of it: those of a character in several tokens with the first. @param {number[]} bytes */
const unitsOf = (bytes) => bytes.reduce((sum, byte) => sum + (byte >= 0xf0 ? 2 : (byte & 0xc0) === 0x80 ? 0 : 1), 0);

/** Where tokens of a text begin in it, and where they end. @param {TokenLogprob[]} tokens @param {number} first where the first one begins */
function offsetsOf(tokens, first) {
  const offsets = [first];
  for (const [i, { bytes }] of tokens.entries()) offsets.push(offsets[i] + unitsOf(bytes));
  return offsets;
}

/** How the two kinds of completions differ in form. */
const FORMS = {
  chat: {
    input: 'messages',
    id: 'chatcmpl-',
    object: 'chat.completion',
    chunk: 'chat.completion.chunk',
    choice: (/** @type {string} */ text, /** @type {ToolCall[]} */ calls) => ({
      message: {
        ...{ role: 'assistant', content: text === '' && calls.length > 0 ? null : text, refusal: null },
        ...(calls.length > 0 && { tool_calls: calls }),
      },
    }),
    delta: (/** @type {string} */ text, /** @type {(ToolCall & { index: number })[]} */ calls) => ({
      delta: { ...(text !== '' && { content: text }), ...(calls.length > 0 && { tool_calls: calls }) },
    }),
    first: { delta: { role: 'assistant', content: '' } },
    logprobs: (/** @type {TokenLogprob[]} */ content) => ({ content, refusal: null }),
  },
  text: {
    input: 'prompt',
    id: 'cmpl-',
    object: 'text_completion',
    chunk: 'text_completion',
    choice: (/** @type {string} */ text) => ({ text }),
    delta: (/** @type {string} */ text) => ({ text }),
    first: undefined,
    logprobs: (/** @type {TokenLogprob[]} */ tokens, /** @type {number} */ offset) => ({
      tokens: tokens.map(({ token }) => token),
      token_logprobs: tokens.map(({ logprob }) => logprob),
      // OpenAI's has the chosen token too. Where several tokens have one text, the most likely one counts.
      top_logprobs: tokens.some(({ top_logprobs: top }) => top.length > 0)
        ? tokens.map((own) => Object.fromEntries([own, ...own.top_logprobs.toReversed()].map(({ token, logprob }) => [token, logprob])))
        : null,
      text_offset: offsetsOf(tokens, offset).slice(0, -1),
    }),
  },
};

/** @param {Service} service @param {Exchange} exchange */
export const answerChat = (service, exchange) =>
  complete(service, exchange, FORMS.chat, chatRequest(exchange.body, service.model, service.places));

/** @param {Service} service @param {Exchange} exchange */
export const answerCompletion = (service, exchange) =>
  complete(service, exchange, FORMS.text, completionRequest(exchange.body, service.model, service.places));

/** The beginning of every answer. @param {string} name of the model @param {(typeof FORMS)['chat'] | (typeof FORMS)['text']} form */
const headOf = (name, { id }) => ({
  id: `${id}${randomBytes(12).toString('hex')}`,
  created: Math.floor(Date.now() / 1000),
  model: name,
});

/**
 * Continues every input `n` times and hands on what comes.
 * @param {Service} service @param {Exchange} exchange @param {string} param the name of the inputs in the request
 * @param {import('./requests.mjs').Common & { inputs: Input[] }} request
 * @param {(finders: (import('./tools.mjs').CallFinder | undefined)[]) => { push: (index: number, part: Found) => void, end: () => void }} writer
 *   `push`: takes the parts of each answer; `end`: all of them are complete
 */
export async function run(service, { adapter, signal, counts }, param, { inputs, options, n, finder, constrain }, writer) {
  const { model } = service;
  for (const { ids } of inputs) checkRoom(model, ids, param);
  counts.prompt = inputs.reduce((sum, { ids }) => sum + ids.length, 0);
  const free = service.admit(inputs.length * n);
  const ended = new AbortController();
  try {
    const seed = options.seed ?? randomInt(2 ** 32);
    const all = { ...options, adapter, signal: AbortSignal.any([signal, ended.signal]) };
    const each = inputs.flatMap(({ prompt }, p) =>
      Array.from({ length: n }, (_, i) => model.generate(prompt, { ...all, seed: (seed + p * n + i) >>> 0 }, constrain?.())),
    );
    const finders = each.map(() => finder?.());
    const { push, end } = writer(finders);
    await Promise.all(
      each.map(async (parts, index) => {
        for await (const part of parts) {
          if (signal.aborted) throw EXPIRED;
          if (part.token >= 0) counts.completion++;
          push(index, finders[index]?.push(part) ?? part);
        }
      }),
    ).catch(async (error) => {
      // One of several has failed: the others give their slots back before the answer does its places.
      ended.abort();
      await Promise.allSettled(each.map((parts) => parts.return()));
      throw error;
    });
    end();
  } finally {
    free();
  }
}

/**
 * Answers with all choices of all inputs.
 * @param {Service} service @param {Exchange} exchange @param {(typeof FORMS)['chat'] | (typeof FORMS)['text']} form
 * @param {import('./requests.mjs').Common & { inputs: Input[] }} request
 */
function complete(service, exchange, form, request) {
  const { model } = service;
  const { adapter, response, counts } = exchange;
  const { stream, includeUsage, logprobs } = request;
  const head = headOf(adapter ?? service.name, form);
  return run(service, exchange, form.input, request, (finders) => {
    if (!stream) {
      const parts = finders.map(() => /** @type {Found[]} */ ([]));
      const choice = (/** @type {Found[]} */ own, /** @type {number} */ index) => ({
        index,
        ...form.choice(
          own.map(({ text }) => text).join(''),
          own.flatMap(({ calls = [] }) => calls),
        ),
        logprobs: logprobs ? form.logprobs(logprobsOf(model, own), 0) : null,
        finish_reason: reasonOf(/** @type {Part} */ (own.at(-1)), finders[index]),
      });
      return {
        push: (index, part) => parts[index].push(part),
        end: () => sendJson(response, 200, { ...head, object: form.object, choices: parts.map(choice), usage: usageOf(counts) }),
      };
    }
    const send = (/** @type {object} */ body) => response.write(`data: ${JSON.stringify(body)}\n\n`);
    const chunk = (/** @type {object} */ more) =>
      send({ ...head, object: form.chunk, ...more, ...(includeUsage && !('usage' in more) ? { usage: null } : {}) });
    /** Calls of each choice that has begun. @type {Map<number, number>} */
    const begun = new Map();
    /** Where the next token of each choice begins. */
    const offsets = finders.map(() => 0);
    const push = (/** @type {number} */ index, /** @type {Found} */ part) => {
      begin(response);
      const choice = { index, logprobs: null, finish_reason: null };
      if (form.first && !begun.has(index)) chunk({ choices: [{ ...choice, ...form.first }] });
      const count = begun.get(index) ?? 0;
      const calls = (part.calls ?? []).map((call, i) => ({ index: count + i, ...call }));
      begun.set(index, count + calls.length);
      const tokens = logprobs ? logprobsOf(model, [part]) : [];
      const known = tokens.length > 0 ? { logprobs: form.logprobs(tokens, offsets[index]) } : {};
      offsets[index] = offsetsOf(tokens, offsets[index])[tokens.length];
      const reason = reasonOf(part, finders[index]);
      // What a reader has not taken yet is at most one context of tokens: the slot need not wait for it.
      if (part.text === '' && calls.length === 0 && tokens.length === 0 && reason === null) return;
      chunk({ choices: [{ ...choice, ...form.delta(part.text, calls), ...known, finish_reason: reason }] });
    };
    const end = () => {
      if (includeUsage) chunk({ choices: [], usage: usageOf(counts) });
      response.end('data: [DONE]\n\n');
    };
    return { push, end };
  });
}

/** @param {LanguageModel} model @param {ArrayLike<number>} ids @param {string} param */
function checkRoom(model, ids, param) {
  try {
    model.checkRoom(ids.length);
  } catch (error) {
    throw wrong(param, /** @type {Error} */ (error).message, 'context_length_exceeded');
  }
}

/** OpenAI's reason of an end. @param {Part} part @param {import('./tools.mjs').CallFinder} [finder] */
export const reasonOf = ({ finishReason }, finder) =>
  finishReason === null ? null : finishReason !== 'stop' ? 'length' : finder?.found ? 'tool_calls' : 'stop';

/** @param {Counts} counts */
const usageOf = ({ prompt, completion }) => ({
  prompt_tokens: prompt,
  completion_tokens: completion,
  total_tokens: prompt + completion,
});

/** The logprobs of tokens; that which ended the text is no part of it. @param {LanguageModel} model @param {Part[]} parts @returns {TokenLogprob[]} */
function logprobsOf(model, parts) {
  const own = parts.filter(({ token, finishReason }) => token >= 0 && !(finishReason === 'stop' && model.stopIds.includes(token)));
  const { tokenizer } = model;
  const shown = (/** @type {{ token: number, logprob: number }} */ { token: id, logprob }) => {
    // Decoded alone, a token may lack its space, and half a character its bytes.
    const bytes = tokenizer.bytesOf(id) ?? Buffer.from(tokenizer.decode([id]));
    return { token: Buffer.from(bytes).toString(), logprob, bytes: [...bytes] };
  };
  return own.map((part) => ({ ...shown(part), top_logprobs: (part.topLogprobs ?? []).map(shown) }));
}

/** Writes the head of an event stream, once. @param {import('node:http').ServerResponse} response */
export function begin(response) {
  if (response.headersSent) return;
  response.writeHead(200, {
    'Content-Type': 'text/event-stream; charset=utf-8',
    'Cache-Control': 'no-cache',
    'X-Accel-Buffering': 'no',
  });
}

/** @param {import('node:http').ServerResponse} response @param {number} status @param {object} body @param {Record<string, string>} [headers] */
export function sendJson(response, status, body, headers = {}) {
  const text = JSON.stringify(body);
  response.writeHead(status, { 'Content-Type': 'application/json; charset=utf-8', 'Content-Length': Buffer.byteLength(text), ...headers });
  response.end(text);
}

/** @param {Service} service @param {Exchange} exchange */
export async function answerEmbeddings(service, { body, adapter, response, signal, counts }) {
  const { model } = service;
  const { inputs, base64 } = embeddingRequest(body, model);
  for (const { ids } of inputs) {
    if (ids.length <= model.context) continue;
    throw wrong('input', `the input has ${ids.length} tokens, and the context is ${model.context}`, 'context_length_exceeded');
  }
  const free = service.admit(1);
  try {
    const data = [];
    for (const [index, { ids }] of inputs.entries()) {
      if (signal.aborted) throw EXPIRED;
      const vector = await model.embed(ids, { adapter });
      // OpenAI's embeddings have the length 1.
      const length = Math.hypot(...vector) || 1;
      const unit = vector.map((value) => value / length);
      data.push({ object: 'embedding', index, embedding: base64 ? Buffer.from(unit.buffer).toString('base64') : [...unit] });
      counts.prompt += ids.length;
    }
    const usage = { prompt_tokens: counts.prompt, total_tokens: counts.prompt };
    sendJson(response, 200, { object: 'list', data, model: adapter ?? service.name, usage });
  } finally {
    free();
  }
}
