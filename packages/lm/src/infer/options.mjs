// The options of generation: their ranges, their defaults, and errors that name them.

import { existsSync } from 'node:fs';
import { randomInt } from 'node:crypto';
import { join } from 'node:path';

import { readJson } from '../json.mjs';
import { nearest, shown } from '../options.mjs';
import { ENCODED } from '../formats/quant.mjs';
import { DEFAULT_SAMPLING, MAX_SLOTS, MAX_TOP_LOGPROBS } from './types.mjs';

/** @typedef {import('./types.mjs').Sampling} Sampling */

/**
 * Options of generation. What is left out of the sampling is as in the model's `generation_config.json`, or else as `DEFAULT_SAMPLING` says.
 * @typedef {object} GenerateOptions
 * @property {number} [temperature] divides the logits; 0: always the most likely token
 * @property {number} [topK] sample from the most likely `topK` tokens; 0: from all
 * @property {number} [topP] of these, from the fewest whose probabilities sum to at least this
 * @property {number} [minP] leave out tokens less likely than `minP` times the most likely one
 * @property {number} [repetitionPenalty] divides positive and multiplies negative logits of the last `repeatLastN` tokens
 * @property {number} [presencePenalty] subtracted from the logits of these tokens
 * @property {number} [frequencyPenalty] subtracted from them for each time that they occurred
 * @property {number} [repeatLastN] tokens that penalties look back on
 * @property {number} [seed] a u32; random when left out
 * @property {number} [maxTokens] the most tokens of an answer; as many as fit the context when left out
 * @property {number} [topLogprobs] the most likely tokens to list with each token, up to 20; 0 when left out
 * @property {string | readonly string[]} [stop] texts that end the answer; they are no part of it
 * @property {boolean} [ignoreEos] go on after the tokens that end a text
 * @property {boolean | readonly number[]} [special] print special tokens too: all, or those with these ids
 * @property {boolean} [shift] at the end of the context, continue from its last half instead of ending
 * @property {boolean | object} [json] an answer of JSON and nothing else: true, an object; or a JSON schema of one. Keywords that it may have: type,
 *   enum, const, properties, required, additionalProperties (false, or without properties a schema), items, minItems, maxItems, minimum, maximum,
 *   exclusiveMinimum and exclusiveMaximum (of integers), anyOf, $ref to its own $defs. Such an answer is slower, and so are those beside it
 * @property {Record<string, unknown>} [variables] of the chat template, such as `enable_thinking`
 * @property {string} [adapter] one of the model's adapters; none when left out
 * @property {AbortSignal} [signal] ends it with `finishReason` 'abort'
 *
 * @typedef {Omit<GenerateOptions, keyof Sampling | 'stop' | 'maxTokens'> & { sampling: Sampling, maxTokens: number, stop: string[] }} Resolved
 */

/** Least and greatest value of each number. */
export const NUMBERS = /** @type {const} */ ({
  temperature: { min: 0, max: 1000 },
  topK: { min: 0, max: 2 ** 31 - 1, integer: true },
  topP: { min: 0, max: 1 },
  minP: { min: 0, max: 1 },
  repetitionPenalty: { min: 0.01, max: 100 },
  presencePenalty: { min: -100, max: 100 },
  frequencyPenalty: { min: -100, max: 100 },
  repeatLastN: { min: 0, max: 1024, integer: true },
  seed: { min: 0, max: 0xffffffff, integer: true },
  maxTokens: { min: 0, max: 2 ** 31 - 1, integer: true },
  topLogprobs: { min: 0, max: MAX_TOP_LOGPROBS, integer: true },
});
/** @type {Record<string, (value: unknown) => boolean>} */
const OTHERS = {
  stop: (value) => [value].flat().every((text) => typeof text === 'string' && text !== ''),
  ignoreEos: (value) => typeof value === 'boolean',
  special: (value) => typeof value === 'boolean' || (Array.isArray(value) && value.every((id) => Number.isInteger(id))),
  shift: (value) => typeof value === 'boolean',
  json: (value) => typeof value === 'boolean' || (typeof value === 'object' && value !== null),
  variables: (value) => typeof value === 'object' && value !== null,
  adapter: (value) => typeof value === 'string',
  signal: (value) => value instanceof AbortSignal,
};
/** @type {Record<string, string>} */
const EXPECTED = {
  stop: 'a text or a list of texts, none of them empty',
  special: 'true, false or a list of ids',
  json: 'true, false or a JSON schema',
  variables: 'an object',
  adapter: 'the name of an adapter',
  signal: 'an AbortSignal',
};
const NAMES = [...Object.keys(NUMBERS), ...Object.keys(OTHERS)];

/** An error about an option, with its name. @param {string} option @param {string} message */
export const wrong = (option, message) => Object.assign(new RangeError(message), { option });

/**
 * Checks that options have known names.
 * @param {object} options @param {readonly string[]} known
 * @throws {RangeError} (with `option`) that names the unknown one and the nearest known one
 */
export function checkNames(options, known) {
  const unknown = Object.keys(options).find((name) => !known.includes(name));
  if (unknown !== undefined) {
    const near = nearest(unknown, known);
    throw wrong(unknown, `no option ${unknown}; ${near ? `did you mean ${near}?` : `there are ${known.join(', ')}`}`);
  }
}

/**
 * Checks options by name, and fills in those left out.
 * @param {GenerateOptions} options
 * @param {Partial<Sampling>} [defaults] the model's
 * @param {readonly string[]} [others] names that the caller takes besides
 * @returns {Resolved}
 * @throws {RangeError} that names the option (also as `option`) and its value; an unknown one with the nearest known name
 */
export function resolveOptions(options, defaults = {}, others = []) {
  checkNames(options, [...NAMES, ...others]);
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || others.includes(name)) continue;
    if (Object.hasOwn(NUMBERS, name)) checkNumber(name, value, NUMBERS[/** @type {keyof typeof NUMBERS} */ (name)]);
    else if (!OTHERS[name](value)) throw wrong(name, `${name} must be ${EXPECTED[name] ?? 'true or false'}, got ${shown(value)}`);
  }
  const {
    maxTokens = NUMBERS.maxTokens.max,
    stop = [],
    topLogprobs,
    ignoreEos,
    special,
    shift,
    json,
    variables,
    adapter,
    signal,
    ...sampling
  } = options;
  const given = Object.fromEntries(Object.entries(sampling).filter(([, value]) => value !== undefined));
  return {
    sampling: { ...DEFAULT_SAMPLING, ...defaults, seed: randomInt(2 ** 32), ...given },
    maxTokens,
    stop: [stop].flat(),
    ...{ topLogprobs, ignoreEos, special, shift, json, variables, adapter, signal },
  };
}

/**
 * @param {string} name @param {unknown} value @param {{ min: number, max: number, integer?: boolean }} range
 * @returns {asserts value is number}
 * @throws {RangeError} with `option`
 */
export function checkNumber(name, value, { min, max, integer = false }) {
  const fits = typeof value === 'number' && value >= min && value <= max && (!integer || Number.isInteger(value));
  if (!fits) throw wrong(name, `${name} must be ${integer ? 'an integer' : 'a number'} from ${min} to ${max}, got ${shown(value)}`);
}

/** Types of weights on the device: `auto` is that of the files. */
export const DTYPES = ['auto', ...ENCODED];

/**
 * Checks the options of `loadModel`.
 * @param {import('./engine.mjs').EngineOptions} options
 * @throws {RangeError} (with `option`) that names the option and its value
 */
export function checkLoadOptions(options) {
  checkNames(options, ['dtype', 'context', 'slots', 'adapters', 'merge', 'signal', 'onProgress']);
  const { dtype, context, slots, adapters, merge = false, signal, onProgress } = options;
  if (dtype !== undefined && !DTYPES.includes(dtype)) {
    throw wrong('dtype', `dtype must be one of ${DTYPES.join(', ')}, got ${shown(dtype)}`);
  }
  if (context !== undefined) checkNumber('context', context, { min: 2, max: 2 ** 24, integer: true });
  if (slots !== undefined) checkNumber('slots', slots, { min: 1, max: MAX_SLOTS, integer: true });
  const folders = typeof adapters === 'object' && adapters !== null ? Object.values(adapters) : [];
  if (adapters !== undefined && (folders.length === 0 || folders.some((folder) => typeof folder !== 'string')))
    throw wrong('adapters', `adapters must be folders by name, got ${shown(adapters)}`);
  if (typeof merge !== 'boolean') throw wrong('merge', `merge must be true or false, got ${shown(merge)}`);
  if (merge && folders.length !== 1) throw wrong('merge', `merge takes one adapter, got ${folders.length}`);
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    throw wrong('signal', `signal must be an AbortSignal, got ${shown(signal)}`);
  }
  if (onProgress !== undefined && typeof onProgress !== 'function') {
    throw wrong('onProgress', `onProgress must be a function, got ${shown(onProgress)}`);
  }
}

/** Keys of `generation_config.json`, and the options that they are. */
const CONFIGURED = /** @type {const} */ ({
  temperature: 'temperature',
  top_k: 'topK',
  top_p: 'topP',
  min_p: 'minP',
  repetition_penalty: 'repetitionPenalty',
});

/**
 * What a model's `generation_config.json` says.
 * @param {string} from the model's folder; a file has none
 * @returns {{ sampling: Partial<Sampling>, eos: number[] }}
 * @throws {Error} that names the file and the key, for a value that is out of range
 */
export function readGenerationConfig(from) {
  const path = join(from, 'generation_config.json');
  if (!existsSync(path)) return { sampling: {}, eos: [] };
  const json = readJson(path) ?? {};
  /** @type {Partial<Sampling>} */
  const sampling = {};
  for (const [key, name] of Object.entries(CONFIGURED)) {
    if (json[key] === undefined || json[key] === null) continue;
    try {
      checkNumber(key, json[key], NUMBERS[name]);
    } catch (error) {
      throw new Error(`${path}: ${/** @type {Error} */ (error).message}`);
    }
    sampling[name] = json[key];
  }
  // transformers then takes the most likely token, whatever the temperature.
  if (json.do_sample === false) sampling.temperature = 0;
  return { sampling, eos: [json.eos_token_id ?? []].flat() };
}
