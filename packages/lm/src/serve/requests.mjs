// What requests of OpenAI's interface say, checked. A wrong one is an `ApiError` that names the parameter.

import { NUMBERS } from '../infer/options.mjs';
import { shown } from '../options.mjs';
import { callConstraint } from './call-grammar.mjs';
import { flag, isObject, number, read, wrong } from './fields.mjs';
import { earlierCalls, toolsOf } from './tools.mjs';

/** @typedef {import('../infer/model.mjs').LanguageModel} LanguageModel */
/** @typedef {import('../infer/model.mjs').Message} Message */
/** @typedef {import('../infer/options.mjs').GenerateOptions} GenerateOptions */
/** @typedef {import('./fields.mjs').Body} Body */

/** Names of numbers, and the options that they are; later ones are other servers' names of the same. */
const SAMPLING = /** @type {const} */ ({
  temperature: 'temperature',
  top_p: 'topP',
  presence_penalty: 'presencePenalty',
  frequency_penalty: 'frequencyPenalty',
  seed: 'seed',
  top_k: 'topK',
  min_p: 'minP',
  repeat_penalty: 'repetitionPenalty',
  repetition_penalty: 'repetitionPenalty',
  repeat_last_n: 'repeatLastN',
});

const SEEDS = { min: Number.MIN_SAFE_INTEGER, max: Number.MAX_SAFE_INTEGER, integer: true };

/** More stop texts would make every token slow. */
const MAX_STOPS = 16;
const MAX_STOP_LENGTH = 1000;

/** @param {unknown} value @returns {value is string | string[]} */
const isStop = (value) =>
  (typeof value === 'string' || (Array.isArray(value) && value.length <= MAX_STOPS)) &&
  [value].flat().every((text) => typeof text === 'string' && text !== '' && text.length <= MAX_STOP_LENGTH);

/**
 * What would change an answer, and is not implemented: an error, rather than an answer to another question.
 * @type {Record<string, (value: unknown) => boolean>}
 */
const REFUSED = {
  functions: (value) => !(Array.isArray(value) && value.length === 0),
  logit_bias: (value) => typeof value !== 'object' || value === null || Object.keys(value).length > 0,
  modalities: (value) => !(Array.isArray(value) && value.every((each) => each === 'text')),
  audio: () => true,
  echo: (value) => value !== false,
  suffix: (value) => value !== '',
  best_of: (value) => value !== 1,
};
/** The same, for texts. */
const REFUSED_IN_TEXTS = {
  tools: (/** @type {unknown} */ value) => !(Array.isArray(value) && value.length === 0),
  response_format: (/** @type {unknown} */ value) => !isObject(value) || value.type !== 'text',
};

/**
 * What a sequence continues, and its count of tokens. A text stays a text, since the answer's first token may depend on what is before it.
 * @typedef {{ prompt: string | ArrayLike<number>, ids: ArrayLike<number> }} Input
 *
 * What chat and text completions share.
 * @typedef {object} Common
 * @property {GenerateOptions} options
 * @property {number} n choices a prompt
 * @property {boolean} stream
 * @property {boolean} includeUsage with `stream`: a last chunk says the usage
 * @property {boolean} logprobs of the tokens; the option `topLogprobs` says how many others
 * @property {() => import('./tools.mjs').CallFinder} [finder] makes what finds the calls in an answer; undefined where there are none to find
 * @property {() => import('../infer/types.mjs').Constraint} [constrain] makes what each answer must be, where `options.json` does not say it
 */

/**
 * @param {Body} body @param {number} places sequences that the server takes at once @param {typeof REFUSED} refused
 * @returns {Omit<Common, 'logprobs'>}
 */
function commonOf(body, places, refused) {
  for (const [name, isRefused] of Object.entries(refused)) {
    if ((body[name] ?? undefined) !== undefined && isRefused(body[name])) {
      throw wrong(name, `${name} is not supported, got ${shown(body[name])}`, 'unsupported_parameter');
    }
  }
  /** @type {GenerateOptions} */
  const options = {};
  for (const [name, option] of Object.entries(SAMPLING)) {
    const value = number(body, name, option === 'seed' ? SEEDS : NUMBERS[option]);
    // OpenAI's seeds are integers of any sign; those that differ by 2^32 are one.
    if (value !== undefined) options[option] = option === 'seed' ? Number(BigInt.asUintN(32, BigInt(value))) : value;
  }
  const stop = read(body, 'stop', isStop, `a text or a list of at most ${MAX_STOPS} texts, of 1 to ${MAX_STOP_LENGTH} characters each`);
  if (stop !== undefined) options.stop = stop;
  if (flag(body, 'ignore_eos')) options.ignoreEos = true;
  const stream = flag(body, 'stream');
  const streamOptions = read(body, 'stream_options', isObject, 'an object');
  if (streamOptions && !stream) throw wrong('stream_options', 'stream_options is for stream: true');
  const includeUsage = flag(streamOptions ?? {}, 'include_usage');
  return { options, n: number(body, 'n', { min: 1, max: Math.min(places, 128), integer: true }) ?? 1, stream, includeUsage };
}

const TOKENS = { min: 1, max: NUMBERS.maxTokens.max, integer: true };

/**
 * A request for a chat completion.
 * @param {Body} body @param {LanguageModel} model @param {number} places
 * @returns {Common & { inputs: Input[] }}
 */
export function chatRequest(body, model, places) {
  const common = commonOf(body, places, REFUSED);
  const maxTokens = number(body, 'max_completion_tokens', TOKENS) ?? number(body, 'max_tokens', TOKENS);
  if (maxTokens !== undefined) common.options.maxTokens = maxTokens;
  const logprobs = flag(body, 'logprobs');
  const top = number(body, 'top_logprobs', NUMBERS.topLogprobs);
  if (top && !logprobs) throw wrong('top_logprobs', 'top_logprobs is for logprobs: true');
  common.options.topLogprobs = top;
  const variables = read(body, 'chat_template_kwargs', isObject, 'an object');
  const messages = messagesOf(body.messages);
  if (!model.hasTemplate) throw wrong('messages', 'the model has no chat template: use /v1/completions', 'no_chat_template');
  const tools = toolsOf(body, model);
  // As text, they come behind the text before them, of which a stop text may hold some back.
  if (tools) common.options.special = tools.marks;
  const json = jsonOf(body, model);
  const constrain = tools ? callConstraint(model, tools, json) : undefined;
  if (!tools) common.options.json = json;
  const list = tools?.list.map(({ tool }) => tool);
  try {
    const ids = model.encode(messages, variables, list);
    return { ...common, logprobs, inputs: [{ prompt: ids, ids }], finder: tools?.finder, constrain };
  } catch (error) {
    throw wrong('messages', /** @type {Error} */ (error).message);
  }
}

/**
 * The JSON that an answer must be: any object, or what a schema says.
 * @param {Body} body @param {LanguageModel} model @returns {true | object | undefined}
 */
function jsonOf(body, model) {
  const format = read(body, 'response_format', isObject, 'an object');
  if (format === undefined || format.type === 'text') return undefined;
  const at = 'response_format';
  if (format.type !== 'json_object' && format.type !== 'json_schema')
    throw wrong(`${at}.type`, `${at}.type must be text, json_object or json_schema, got ${shown(format.type)}`);
  const { json_schema: given } = format;
  if (format.type === 'json_schema' && (!isObject(given) || !isObject(given.schema)))
    throw wrong(`${at}.json_schema`, `${at}.json_schema must be { name, schema }, got ${shown(given)}`);
  const schema = format.type === 'json_object' || /** @type {{ schema: object }} */ (given).schema;
  try {
    model.checkJson(schema, `${at}.json_schema.schema`);
  } catch (error) {
    throw wrong(at, /** @type {Error} */ (error).message);
  }
  return schema;
}

/** @param {unknown} messages @returns {Message[]} */
function messagesOf(messages) {
  if (!Array.isArray(messages) || messages.length === 0) {
    throw wrong('messages', `messages must be a list of at least one message, got ${shown(messages)}`);
  }
  /** Names of functions by the ids of their calls. @type {Map<unknown, string>} */
  const names = new Map();
  return messages.map((message, i) => {
    const at = `messages[${i}]`;
    if (!isObject(message)) {
      throw wrong(at, `${at} must be an object with role and content, got ${shown(message)}`);
    }
    const { role } = message;
    if (typeof role !== 'string') throw wrong(`${at}.role`, `${at}.role must be a text, got ${shown(role)}`);
    const { tool_calls: given, ...others } = message;
    const calls = role === 'assistant' ? earlierCalls(given ?? [], `${at}.tool_calls`) : [];
    for (const { id, function: called } of calls) names.set(id, called.name);
    // Some templates want the name beside a result.
    const name = role === 'tool' && others.name === undefined ? names.get(others.tool_call_id) : undefined;
    // An answer of calls alone has no text, and one that was refused has its reason.
    const own = role === 'assistant' ? (message.content ?? message.refusal ?? '') : message.content;
    const content = contentOf(own, `${at}.content`);
    // The newer name; templates know the older one.
    return {
      ...others,
      role: role === 'developer' ? 'system' : role,
      content,
      ...(calls.length > 0 && { tool_calls: calls }),
      ...(name !== undefined && { name }),
    };
  });
}

/**
 * The text of a content of parts. @param {unknown} content @param {string} at
 * @param {readonly string[]} [types] of parts with a text, the usual one first @returns {string}
 */
export function contentOf(content, at, types = ['text']) {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) throw wrong(at, `${at} must be a text or a list of parts, got ${shown(content)}`);
  return content
    .map((part, i) => {
      const { type, text, refusal } = isObject(part) ? part : {};
      if (types.includes(/** @type {string} */ (type)) && typeof text === 'string') return text;
      if (type === 'refusal' && typeof refusal === 'string') return refusal;
      throw wrong(`${at}[${i}]`, `${at}[${i}] must be { type: '${types[0]}', text }, got ${shown(type ?? part)}`);
    })
    .join('');
}

/** @param {unknown} value @returns {value is number[]} */
const isIds = (value) => Array.isArray(value) && value.length > 0 && value.every((id) => typeof id === 'number');

/**
 * Texts or lists of ids, one or several, as ids.
 * @param {unknown} value @param {string} name @param {LanguageModel} model @param {number} most
 * @returns {Input[]}
 */
function inputsOf(value, name, model, most) {
  const list = typeof value === 'string' || isIds(value) ? [value] : value;
  if (!Array.isArray(list) || list.length === 0 || list.length > most || !list.every((each) => typeof each === 'string' || isIds(each))) {
    throw wrong(name, `${name} must be a text, a list of ids, or a list of at most ${most} of these, got ${shown(value)}`);
  }
  return list.map((each) => {
    try {
      return { prompt: each, ids: model.encode(each) };
    } catch (error) {
      throw wrong(name, /** @type {Error} */ (error).message.replace(/^prompt/, name));
    }
  });
}

/** OpenAI's default of text completions. */
const COMPLETION_TOKENS = 16;

/**
 * A request for a text completion.
 * @param {Body} body @param {LanguageModel} model @param {number} places
 * @returns {Common & { inputs: Input[] }}
 */
export function completionRequest(body, model, places) {
  const common = commonOf(body, places, { ...REFUSED, ...REFUSED_IN_TEXTS });
  common.options.maxTokens = number(body, 'max_tokens', TOKENS) ?? COMPLETION_TOKENS;
  const logprobs = number(body, 'logprobs', NUMBERS.topLogprobs);
  common.options.topLogprobs = logprobs;
  const inputs = inputsOf(body.prompt, 'prompt', model, Math.floor(places / common.n));
  return { ...common, logprobs: logprobs !== undefined, inputs };
}

const MAX_INPUTS = 2048;

/**
 * A request for embeddings.
 * @param {Body} body @param {LanguageModel} model
 * @returns {{ inputs: Input[], base64: boolean }}
 */
export function embeddingRequest(body, model) {
  const format = read(body, 'encoding_format', (value) => value === 'float' || value === 'base64', 'float or base64');
  const { width } = model.config;
  /** @param {unknown} value @returns {value is number} */
  const isWidth = (value) => value === width;
  read(body, 'dimensions', isWidth, `${width}, the width of the model`);
  if (body.input === '' || [body.input].flat().includes('')) throw wrong('input', 'input must not have an empty text');
  return { inputs: inputsOf(body.input, 'input', model, MAX_INPUTS), base64: format === 'base64' };
}
