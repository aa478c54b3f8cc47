// A model that writes: text in, text out, over an engine that knows only ids.

import { shown } from '../options.mjs';
import { applyChatTemplate } from '../tokenizer/template.mjs';
import { Chat } from './chat.mjs';
import { Constraints } from './constraint.mjs';
import { Engine } from './engine.mjs';
import { checkLoadOptions, checkNames, readGenerationConfig, resolveOptions, wrong } from './options.mjs';
import { StopFinder } from './stops.mjs';

/** @typedef {import('./options.mjs').GenerateOptions} GenerateOptions */
/** @typedef {import('./options.mjs').Resolved} Resolved */
/** @typedef {import('./types.mjs').FinishReason} FinishReason */

/**
 * A turn of a conversation.
 * @typedef {{ role: string, content: string, [key: string]: any }} Message any: also what is declared as an interface, which has no index
 *
 * What a model continues: a text; messages, by the model's chat template; or ids.
 * @typedef {string | readonly Message[] | ArrayLike<number>} Prompt
 *
 * What a token adds. `text` has whole characters only, so it may be empty; the last part has a `finishReason`. An aborted answer ends with the
 * token -1. `logprob`: the natural logarithm of the token's probability. `topLogprobs`, where asked for: the most likely tokens in descending order;
 * of equal ones the lowest id first.
 * @typedef {{ text: string, token: number, logprob: number, topLogprobs?: import('./types.mjs').Candidate[],
 *   finishReason: FinishReason | null }} Part
 */

/**
 * Loads a model to generate with.
 * @param {string} path a folder of Hugging Face's form, a run's folder, a checkpoint, or a GGUF file
 * @param {import('./engine.mjs').EngineOptions} [options]
 * @returns {Promise<LanguageModel>}
 * @throws {Error} that names what is wrong with which file; {RangeError} (with `option`) for a wrong option
 */
export async function loadModel(path, options = {}) {
  checkLoadOptions(options);
  const engine = await Engine.open(path, options);
  try {
    return new LanguageModel(engine);
  } catch (error) {
    await engine.dispose();
    throw error;
  }
}

/** Tokens of the prompt that the decoder of the answer begins with: a character has at most four bytes, and each may be a token. */
const PRIMING = 4;

export class LanguageModel {
  #engine;
  #defaults;
  #stopIds;
  /** Made for the first answer of a given form. @type {Constraints | undefined} */
  #constraints;

  /** @param {Pick<Engine, 'config' | 'tokenizer' | 'from' | 'adapters' | 'context' | 'slots' | 'queued' | 'submit' | 'embed' | 'dtype' | 'dispose'>} engine */
  constructor(engine) {
    if (!engine.tokenizer) throw new Error(`${engine.from} has no tokenizer.json`);
    this.#engine = engine;
    /** @type {import('../tokenizer/load.mjs').Tokenizer} */
    this.tokenizer = engine.tokenizer;
    /** The folder or file that it was read from. @type {string} */
    this.from = engine.from;
    const { sampling, eos } = readGenerationConfig(engine.from);
    this.#defaults = sampling;
    const own = [...engine.config.eos, ...eos, this.tokenizer.special.eos, this.#turnEnd()].filter((id) => id !== undefined);
    this.#stopIds = [...new Set(own)];
  }

  /** The architecture. */
  get config() {
    return this.#engine.config;
  }

  /** The type of the weights on the device. @returns {'f32' | 'f16' | 'bf16' | 'q8_0'} */
  get dtype() {
    return this.#engine.dtype;
  }

  /** The names of its adapters, of which each answer may have one. @returns {string[]} */
  get adapters() {
    return this.#engine.adapters;
  }

  /** The most tokens of a sequence, prompt and answer together. */
  get context() {
    return this.#engine.context;
  }

  /** How many sequences are continued together. */
  get slots() {
    return this.#engine.slots;
  }

  /** Tokens that end an answer. */
  get stopIds() {
    return this.#stopIds;
  }

  /** Whether the model has a chat template. */
  get hasTemplate() {
    return this.tokenizer.chatTemplates.default !== undefined;
  }

  /** The special token that a template puts after an answer, where it is one. @returns {number | undefined} */
  #turnEnd() {
    if (!this.hasTemplate) return undefined;
    const mark = 'helios';
    try {
      const text = applyChatTemplate(this.tokenizer, [
        { role: 'user', content: 'a' },
        { role: 'assistant', content: mark },
      ]);
      const [first] = this.tokenizer.encode(text.slice(text.lastIndexOf(mark) + mark.length), { addSpecial: false });
      return first !== undefined && this.isSpecial(first) ? first : undefined;
    } catch {
      // A template that refuses these two turns says nothing of how a turn ends.
      return undefined;
    }
  }

  /** Whether an id is a special token's, which is not printed. Some decoders print nothing for a space at the beginning either. @param {number} id */
  isSpecial(id) {
    return this.tokenizer.decode([id], { skipSpecial: true }) === '' && this.tokenizer.decode([id]) !== '';
  }

  /**
   * The ids of a prompt. An empty text becomes the token that begins a text, or a line feed where there is none.
   * @param {Prompt} prompt
   * @param {Record<string, unknown>} [variables] of the chat template
   * @param {readonly object[]} [tools] that messages may call, for the template
   * @returns {Uint32Array}
   * @throws {TypeError} for something that is no prompt; {RangeError} for ids outside of the vocabulary
   */
  encode(prompt, variables, tools) {
    if (typeof prompt === 'string') {
      const ids = this.tokenizer.encode(prompt);
      if (ids.length > 0) return ids;
      return this.config.bos === null ? this.tokenizer.encode('\n') : Uint32Array.of(this.config.bos);
    }
    if (Array.isArray(prompt) && prompt.length > 0 && typeof prompt[0] === 'object') {
      return this.tokenizer.encode(this.render(prompt, variables, tools), { addSpecial: false });
    }
    const { length } = /** @type {ArrayLike<number>} */ (prompt ?? {});
    if (typeof prompt !== 'object' || !(length > 0))
      throw new TypeError(`the prompt must be a text, messages or ids, got ${shown(prompt)}`);
    const ids = Array.from(/** @type {ArrayLike<number>} */ (prompt));
    const bad = ids.findIndex((id) => !Number.isInteger(id) || id < 0 || id >= this.config.vocabSize);
    if (bad >= 0) throw new RangeError(`prompt[${bad}] must be an id from 0 to ${this.config.vocabSize - 1}, got ${shown(ids[bad])}`);
    return Uint32Array.from(ids);
  }

  /**
   * The text that the chat template makes of messages, up to the beginning of the answer.
   * @param {readonly Message[]} messages @param {Record<string, unknown>} [variables] @param {readonly object[]} [tools]
   * @throws {Error} if there is no template, or it refuses the messages
   */
  render(messages, variables, tools) {
    return applyChatTemplate(this.tokenizer, [...messages], { addGenerationPrompt: true, variables, tools });
  }

  /**
   * Continues a prompt. To leave the iteration early ends it on the device too.
   * @param {Prompt} prompt
   * @param {GenerateOptions} [options]
   * @param {import('./types.mjs').Constraint} [constraint] of this answer, in place of the option `json`
   * @returns {AsyncGenerator<Part, void>} a part a token
   * @throws {RangeError} (with `option`) for a wrong option, and (with the code `CONTEXT_LENGTH`) for a prompt that leaves no room in the context
   */
  generate(prompt, options = {}, constraint = undefined) {
    const resolved = resolveOptions(options, this.#defaults);
    this.#checkAdapter(resolved.adapter);
    let ids = this.encode(prompt, resolved.variables);
    if (resolved.shift && ids.length >= this.context) ids = ids.slice(-Math.ceil(this.context / 2));
    this.checkRoom(ids.length);
    const { json } = resolved;
    const form = constraint ?? (json ? this.checkJson(json) : undefined);
    // Some decoders drop the space before the first token, which a continued text needs.
    return this.#run(ids, resolved, typeof prompt === 'string' ? ids.slice(-PRIMING) : [], form);
  }

  /**
   * Checks what the option `json` would be.
   * @param {true | object} json @param {string} [at] what a schema is called in messages; `json` when left out
   * @returns {import('./types.mjs').Constraint} for one answer
   * @throws {RangeError} (with `option`) that names a keyword that is not supported and where it is, or says what the tokenizer lacks
   */
  checkJson(json, at = 'json') {
    try {
      return this.#allConstraints().of(json, at);
    } catch (error) {
      throw wrong('json', /** @type {Error} */ (error).message);
    }
  }

  /**
   * A constraint for one answer of any form.
   * @param {string} key @param {() => import('./grammar.mjs').State} start @param {readonly number[]} marks as of `Constraints.by`
   * @returns {import('./types.mjs').Constraint}
   * @throws {RangeError} that says what the tokenizer lacks, or of `start`
   */
  constrain(key, start, marks) {
    return this.#allConstraints().by(key, start, marks);
  }

  #allConstraints() {
    return (this.#constraints ??= new Constraints(this.tokenizer, { vocabSize: this.config.vocabSize, stopIds: this.#stopIds }));
  }

  /** @param {string | undefined} name */
  #checkAdapter(name) {
    if (name === undefined || this.adapters.includes(name)) return;
    const known = this.adapters.length
      ? `there ${this.adapters.length > 1 ? 'are' : 'is'} ${this.adapters.join(', ')}`
      : 'it was loaded without any';
    throw wrong('adapter', `the model has no adapter ${shown(name)}; ${known}`);
  }

  /** @param {number} count of the prompt's tokens */
  checkRoom(count) {
    if (count < this.context) return;
    const message = `the prompt has ${count} tokens, and the context of ${this.context} has no room for an answer`;
    throw Object.assign(new RangeError(message), { code: 'CONTEXT_LENGTH' });
  }

  /**
   * @param {ArrayLike<number>} prompt @param {Resolved} options @param {ArrayLike<number>} before
   * @param {import('./types.mjs').Constraint} [constraint]
   * @returns {AsyncGenerator<Part, void>}
   */
  async *#run(prompt, { special = false, ignoreEos = false, shift = false, ...options }, before, constraint) {
    const { maxTokens, stop, adapter, signal, topLogprobs } = options;
    let { sampling } = options;
    const all = special === true;
    const decoder = this.tokenizer.decodeStream({ skipSpecial: !all, except: Array.isArray(special) ? special : [] });
    for (const id of Array.from(before)) decoder.push(id);
    const stops = new StopFinder(stop);
    const stopIds = ignoreEos ? [] : this.#stopIds;
    let ids = Array.from(prompt);
    for (let left = maxTokens; left > 0; ) {
      const rest = this.#engine.submit({ ids, sampling, maxTokens: left, stopIds, topLogprobs, constraint, adapter, signal });
      for await (const { finishReason: reason, ...own } of rest) {
        const { token } = own;
        if (token >= 0) left--;
        const finishReason = reason === 'context' && shift && left > 0 ? null : reason;
        const ends = finishReason === 'stop' && stopIds.includes(token);
        let text = token < 0 || (ends && !all) ? '' : decoder.push(token);
        if (finishReason) text += decoder.end();
        const next = stops.push(text);
        if (next.found) {
          yield { text: next.text, ...own, finishReason: 'stop' };
          return;
        }
        yield { text: finishReason ? next.text + stops.end() : next.text, ...own, finishReason };
        if (finishReason) return;
        if (shift) ids.push(token);
      }
      ids = ids.slice(-Math.ceil(this.context / 2));
      // The draws begin anew, and should not be those of before.
      sampling = { ...sampling, seed: (sampling.seed + 0x9e3779b9) >>> 0 };
    }
  }

  /**
   * Continues several prompts, as many at a time as there are slots; the next one begins where one ends. Prompt `i` is sampled with the seed
   * `options.seed + i`.
   * @param {Iterable<Prompt>} prompts
   * @param {GenerateOptions} [options]
   * @returns {AsyncGenerator<Part & { index: number }, void>} parts of all prompts, those of one in order; `index`: whose
   * @throws {RangeError} as `generate`; the error of a prompt names its number
   */
  generateBatch(prompts, options = {}) {
    const { sampling } = resolveOptions(options, this.#defaults);
    return this.#batch(prompts, { ...options, seed: sampling.seed });
  }

  /**
   * @param {Iterable<Prompt>} prompts @param {GenerateOptions & { seed: number }} options
   * @returns {AsyncGenerator<Part & { index: number }, void>}
   */
  async *#batch(prompts, options) {
    const stop = new AbortController();
    const signal = options.signal ? AbortSignal.any([options.signal, stop.signal]) : stop.signal;
    const source = prompts[Symbol.iterator]();
    let count = 0;
    /** @typedef {{ index: number, parts: AsyncGenerator<Part, void>, result: IteratorResult<Part, void> }} Step */
    /** The next part of each prompt that is under way. @type {Map<number, Promise<Step>>} */
    const running = new Map();
    /** An error with its prompt's place; where the caller has aborted, it is the caller's. @param {number} index @param {unknown} error */
    const ofPrompt = (index, error) =>
      !signal.aborted && error instanceof Error ? Object.assign(error, { message: `prompt ${index}: ${error.message}` }) : error;
    const advance = (/** @type {number} */ index, /** @type {AsyncGenerator<Part, void>} */ parts) => {
      const step = parts.next().then(
        (result) => ({ index, parts, result }),
        (error) => Promise.reject(ofPrompt(index, error)),
      );
      // The iteration may pause before it looks at this step, whose error would then be an unhandled one.
      step.catch(() => {});
      running.set(index, step);
    };
    const start = () => {
      const { value: prompt, done } = source.next();
      if (done) return;
      const index = count++;
      try {
        advance(index, this.generate(prompt, { ...options, seed: (options.seed + index) >>> 0, signal }));
      } catch (error) {
        throw ofPrompt(index, error);
      }
    };
    try {
      for (let slot = 0; slot < this.slots; slot++) start();
      while (running.size > 0) {
        const { index, parts, result } = await Promise.race(running.values());
        running.delete(index);
        if (result.done) {
          start();
          continue;
        }
        advance(index, parts);
        yield { index, ...result.value };
      }
    } finally {
      stop.abort();
      await Promise.allSettled([...running.values()].map((step) => step.then(({ parts }) => parts.return())));
      source.return?.();
    }
  }

  /**
   * Begins a conversation.
   * @param {import('./chat.mjs').ChatOptions} [options]
   */
  chat(options) {
    return new Chat(this, options);
  }

  /**
   * The embedding of a text: the last hidden states, pooled.
   * @param {Prompt} prompt at most `context` tokens
   * @param {{ pooling?: 'mean' | 'last', adapter?: string }} [options] `pooling`: over all tokens (the default), or the last one's; `adapter`: one of
   *   the model's, none when left out
   * @returns {Promise<Float32Array>} [width], not normalized
   */
  async embed(prompt, options = {}) {
    checkNames(options, ['pooling', 'adapter']);
    const { pooling = 'mean', adapter } = options;
    this.#checkAdapter(adapter);
    if (pooling !== 'mean' && pooling !== 'last') throw new RangeError(`pooling must be 'mean' or 'last', got ${shown(pooling)}`);
    const ids = this.encode(prompt);
    if (ids.length > this.context) this.checkRoom(ids.length);
    return this.#engine.embed(ids, pooling, adapter);
  }

  /** Ends what is being written with an error, and frees the model's memory on the device. */
  async dispose() {
    await this.#engine.dispose();
  }

  [Symbol.asyncDispose]() {
    return this.dispose();
  }
}
