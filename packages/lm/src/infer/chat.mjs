// A conversation with a model.

import { resolveOptions } from './options.mjs';

/** @typedef {import('./model.mjs').LanguageModel} LanguageModel */
/** @typedef {import('./model.mjs').Message} Message */
/** @typedef {import('./model.mjs').Part} Part */
/** @typedef {import('./options.mjs').GenerateOptions} GenerateOptions */

/** @typedef {GenerateOptions & { system?: string, messages?: readonly Message[] }} ChatOptions `messages`: turns that were said before */

/** The share of the context that is kept free for an answer. */
const FREE = 1 / 4;

/**
 * Every answer continues from all turns before. The engine keeps the cache of the last sequence of a slot, and these turns begin the next one, so
 * only what is new is computed. A model without a chat template continues the text of all turns, one after the other.
 */
export class Chat {
  #model;
  #options;
  /** The text and the ids of the last answer, with all before it. */
  #last = { text: '', ids: /** @type {number[]} */ ([]) };

  /** @param {LanguageModel} model @param {ChatOptions} [given] options of every answer */
  constructor(model, given = {}) {
    resolveOptions(given, {}, ['system', 'messages']);
    const { system, messages = [], ...options } = given;
    this.#model = model;
    this.#options = options;
    /** All turns so far; the system prompt is the first. @type {Message[]} */
    this.messages = [...(system === undefined ? [] : [{ role: 'system', content: system }]), ...messages];
  }

  /**
   * Says something. An answer that is aborted, or left early, stays in the conversation as far as it came. Where the turns no longer fit the
   * context, the model does not see the oldest ones.
   * @param {string} text
   * @param {GenerateOptions} [options] over those of the conversation
   * @returns {AsyncGenerator<Part, void>} the answer
   * @throws {RangeError} as `generate`: the conversation is then as before
   */
  send(text, options = {}) {
    if (typeof text !== 'string') throw new TypeError(`a message must be a text, got ${typeof text}`);
    const all = { ...this.#options, ...options };
    const messages = [...this.messages, { role: 'user', content: text }];
    const { rendered, ids } = this.#model.hasTemplate ? this.#encode(messages, all) : this.#append(text);
    return this.#answer(messages, rendered, ids, this.#model.generate(ids, all));
  }

  /** @param {Message[]} messages @param {string} rendered @param {number[]} ids @param {AsyncGenerator<Part, void>} parts */
  async *#answer(messages, rendered, ids, parts) {
    // Assigned at the first token: an error before it leaves the conversation alone.
    const before = this.messages;
    const tokens = [...ids];
    let content = '';
    try {
      for await (const part of parts) {
        this.messages = messages;
        content += part.text;
        if (part.token >= 0 && !this.#model.stopIds.includes(part.token)) tokens.push(part.token);
        yield part;
      }
    } finally {
      if (this.messages !== before) {
        this.messages = [...messages, { role: 'assistant', content }];
        this.#last = { text: rendered + content, ids: tokens };
      }
    }
  }

  /** The ids of a conversation, without the oldest turns that leave no room. @param {Message[]} messages @param {GenerateOptions} options */
  #encode(messages, { maxTokens = Infinity, variables }) {
    const room = this.#model.context - Math.min(maxTokens, Math.floor(this.#model.context * FREE));
    const first = Number(messages[0].role === 'system');
    let turns = messages;
    for (;;) {
      const rendered = this.#model.render(turns, variables);
      const ids = this.#idsOf(rendered);
      const next = turns.findIndex(({ role }, i) => i > first && role === 'user');
      if (ids.length <= room || next < 0) return { rendered, ids };
      turns = [...turns.slice(0, first), ...turns.slice(next)];
    }
  }

  /** The ids of a text. Where it continues the last one, these stay the ids that the model wrote, which the cache has. @param {string} text */
  #idsOf(text) {
    const { tokenizer } = this.#model;
    const { text: before, ids } = this.#last;
    const encode = (/** @type {string} */ part) => Array.from(tokenizer.encode(part, { addSpecial: false }));
    if (ids.length > 0 && text.startsWith(before) && tokenizer.decode(ids) === before)
      return [...ids, ...encode(text.slice(before.length))];
    return encode(text);
  }

  /** The ids of all text so far and of more; of too much text its last half. @param {string} text */
  #append(text) {
    const { tokenizer, context } = this.#model;
    const before = this.#last.ids;
    const said = this.messages.map(({ content }) => content).join('');
    const ids = before.length > 0 ? [...before, ...tokenizer.encode(text, { addSpecial: false })] : [...this.#model.encode(said + text)];
    return { rendered: said + text, ids: ids.length > context * (1 - FREE) ? ids.slice(-Math.ceil(context / 2)) : ids };
  }
}
