// Continues token sequences. Several share each pass over the weights: every sequence has a slot, and the next one waits for a free slot.

import { createRequire } from 'node:module';
import { init } from 'helios-vk/nn';

import { Random } from '../random.mjs';
import { openModel } from '../open.mjs';
import { Generator } from '../train/generator.mjs';
import { sampleToken } from '../train/sample.mjs';

/** @typedef {import('./types.mjs').Request} Request */
/** @typedef {import('./types.mjs').Token} Token */

/**
 * @typedef {object} EngineOptions
 * @property {'auto' | 'f32' | 'f16' | 'bf16' | 'q8_0'} [dtype] of the weights on the device; `auto`, the default: that of the files
 * @property {number} [context] the most tokens of a sequence; the model's when left out, at most 4,096
 * @property {number} [slots] sequences that are continued together; 1 when left out
 * @property {AbortSignal} [signal] ends the loading with an AbortError
 */

export class Engine {
  /**
   * Loads a model.
   * @param {string} path as for `openModel`
   * @param {EngineOptions} [options]
   */
  static async open(path, { context, slots = 1, signal } = {}) {
    const vk = createRequire(import.meta.url)('helios-vk');
    vk.initDevice();
    init({ vk });
    const { model, tokenizer, from } = await openModel(path, { signal });
    return new Engine(model, { context: context ?? Math.min(model.config.context, 4096), slots, tokenizer, from });
  }

  /** @param {any} model @param {any} options */
  constructor(model, { context, slots, tokenizer, from }) {
    this.model = model;
    /** @type {import('../config.mjs').ModelConfig} */
    this.config = model.config;
    this.tokenizer = tokenizer;
    /** The folder or file that the model was read from. @type {string} */
    this.from = from;
    /** The most tokens of a sequence. @type {number} */
    this.context = context;
    /** @type {number} */
    this.slots = slots;
    this.generator = new Generator(model, 'f32', { block: context });
    this.busy = 0;
    /** @type {(() => void)[]} */
    this.waiting = [];
  }

  /** Sequences that wait for a slot. */
  get queued() {
    return this.waiting.length;
  }

  /**
   * Continues a sequence; it waits for a slot first. To end the iteration early frees the slot.
   * @param {Request} request
   * @returns {AsyncGenerator<Token, void>}
   * @throws {RangeError} for no ids, ids outside of the vocabulary, or as many as the context
   */
  async *submit({ ids, sampling, maxTokens, stopIds, signal }) {
    if (this.busy >= this.slots) await new Promise((/** @type {(_: void) => void} */ done) => this.waiting.push(done));
    this.busy++;
    try {
      const random = new Random(sampling.seed, 3);
      const all = Array.from(ids);
      for (let i = 0; i < maxTokens; i++) {
        if (signal?.aborted) return yield { token: -1, logprob: 0, finishReason: 'abort' };
        const logits = await this.generator.nextLogits(all);
        const token = sampleToken(logits, random, sampling);
        all.push(token);
        const finishReason = stopIds.includes(token)
          ? 'stop'
          : i + 1 === maxTokens
            ? 'length'
            : all.length >= this.context
              ? 'context'
              : null;
        yield { token, logprob: 0, finishReason };
        if (finishReason) return;
      }
    } finally {
      this.busy--;
      this.waiting.shift()?.();
    }
  }

  dispose() {
    this.generator.dispose();
    this.model.dispose();
  }
}
