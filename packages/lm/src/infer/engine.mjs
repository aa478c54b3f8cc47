// Continues token sequences. Several share each pass over the weights: every sequence has a slot, and the next one waits for a free slot.
//
// One loop serves all of them. It passes waiting prompts through the model a chunk at a time, so that long prompts do not hold the others up
// for long, and adds tokens to all active slots by steps. Steps are launched ahead of the answers: the device starts on the next token while
// the host reads the last ones. What was computed ahead for a sequence that has ended is dropped.
//
// A slot keeps the keys and values of its last sequence. A prompt that begins as that sequence did continues from there.

import { createRequire } from 'node:module';

import { readAdapters } from './adapters.mjs';
import { Session, StepError } from './session.mjs';
import { MAX_SLOTS, MAX_TOP_LOGPROBS } from './types.mjs';
import { openSource, uploadWeights } from './weights.mjs';

/** @typedef {import('./types.mjs').Request} Request */
/** @typedef {import('./types.mjs').Token} Token */

/** Steps that may be launched and not read. */
const AHEAD = 2;
/** The longest context, unless another one is asked for: a cache of all tokens that a model knows may be larger than the model. */
const MAX_CONTEXT = 4096;

/**
 * @typedef {object} EngineOptions
 * @property {'auto' | 'f32' | 'f16' | 'bf16' | 'q8_0'} [dtype] of the weights on the device; `auto`, the default: that of the files
 * @property {number} [context] the most tokens of a sequence; the model's when left out, at most 4,096
 * @property {number} [slots] sequences that are continued together; 1 when left out
 * @property {Record<string, string>} [adapters] folders of PEFT's form, or of runs that trained an adapter, by names that requests choose from
 * @property {boolean} [merge] add the one adapter to the weights instead, so that every answer has it and none costs more; false when left out
 * @property {AbortSignal} [signal] ends the loading with an AbortError
 * @property {(share: number) => void} [onProgress] called with the share of the parameters that are loaded
 */

/** A sequence from its request to its last token. */
class Sequence {
  /** @param {Request} request */
  constructor(request) {
    this.request = request;
    /** The prompt and the tokens after it. */
    this.ids = Array.from(request.ids);
    this.promptLength = this.ids.length;
    /** Tokens that are not consumed yet. @type {Token[]} */
    this.tokens = [];
    this.ended = false;
    /** @type {unknown} */
    this.error = undefined;
    /** Resolves what the consumer waits for. */
    this.wake = () => {};
  }

  /** @param {Token} token */
  push(token) {
    this.tokens.push(token);
    this.ended ||= token.finishReason !== null;
    this.wake();
  }

  /** @param {unknown} error */
  fail(error) {
    this.error = error;
    this.ended = true;
    this.wake();
  }
}

/** A text to embed, which waits for a slot as sequences do. */
class Embedding {
  ended = false;

  /** @param {ArrayLike<number>} ids @param {string} [adapter] */
  constructor(ids, adapter) {
    this.ids = Array.from(ids);
    this.adapter = adapter;
    /** @type {(rows: Float32Array[]) => void} */
    this.pass = () => {};
    /** @type {(error: unknown) => void} */
    this.fail = () => {};
    /** The rows of its chunks. @type {Promise<Float32Array[]>} */
    this.rows = new Promise((done, failed) => {
      this.pass = done;
      this.fail = failed;
    });
  }
}

/**
 * A row of the session. `ids`: whose keys and values its cache has, computed with `adapter`. `passed`: how many tokens of its sequence's prompt are
 * in the cache.
 * @typedef {{ index: number, ids: number[], sequence: Sequence | undefined, passed: number, generating: boolean, used: number,
 *   adapter: string | undefined }} Slot
 */

/**
 * Tokens that the device is computing, and whose they are.
 * @typedef {{ read: Promise<import('./sampler.mjs').Sampled>, of: [row: number, Sequence][] }} Launch
 */

export class Engine {
  /** @type {(Sequence | Embedding)[]} */
  #waiting = [];
  /** @type {Promise<void> | undefined} */
  #loop;
  #clock = 0;
  #disposed = false;
  /** @type {unknown} */
  #failure;

  /**
   * Loads a model.
   * @param {string} path a folder of Hugging Face's form, a checkpoint, a run's folder, a checkpoint of an earlier version, or a GGUF file
   * @param {EngineOptions} [options]
   * @returns {Promise<Engine>}
   * @throws {RangeError} for options out of range; {Error} that names what is wrong with which file
   */
  static async open(path, { dtype, context, slots = 1, adapters: folders = {}, merge = false, signal, onProgress } = {}) {
    const vk = /** @type {typeof import('helios-vk')} */ (createRequire(import.meta.url)('helios-vk'));
    vk.initDevice();
    const source = await openSource(path);
    try {
      const { config } = source;
      const most = config.context;
      if (context !== undefined && !(Number.isInteger(context) && context >= 2 && context <= most))
        throw new RangeError(`context must be an integer from 2 to ${most}, which the model knows, got ${context}`);
      if (!(Number.isInteger(slots) && slots >= 1 && slots <= MAX_SLOTS))
        throw new RangeError(`slots must be an integer from 1 to ${MAX_SLOTS}, got ${slots}`);
      const adapters = await readAdapters(folders, config);
      const weights = await uploadWeights(vk, source, { dtype, signal, onProgress });
      // A model may pad its vocabulary.
      const vocabulary = Math.min(source.tokenizer?.vocabSize ?? Infinity, config.vocabSize);
      const sizes = { context: context ?? Math.min(most, MAX_CONTEXT), slots, vocabulary };
      const session = new Session(vk, config, weights, { ...sizes, adapters: merge ? [] : adapters });
      try {
        for (const adapter of merge ? adapters : []) await session.merge(adapter);
      } catch (error) {
        session.dispose();
        throw error;
      }
      return new Engine(session, { ...source, adapters: merge ? [] : Object.keys(folders) });
    } finally {
      await source.close();
    }
  }

  /**
   * @param {Session} session becomes the engine's
   * @param {Pick<import('./weights.mjs').Source, 'tokenizer' | 'from'> & { adapters?: string[] }} source `adapters`: names of the session's, in order
   */
  constructor(session, { tokenizer, from, adapters = [] }) {
    this.session = session;
    this.config = session.config;
    /** @type {import('../tokenizer/load.mjs').Tokenizer | undefined} */
    this.tokenizer = tokenizer;
    /** The folder or file that the model was read from. */
    this.from = from;
    /** The names of adapters that requests choose from. */
    this.adapters = adapters;
    /** The most tokens of a sequence. */
    this.context = session.context;
    /** Sequences that are continued together. */
    this.slots = session.slots;
    /** The type of the matrices on the device. */
    this.dtype = session.weights['layers.0.mlp.up.weight'].type;
    /** @type {Slot[]} */
    this.rows = Array.from({ length: this.slots }, (_, index) => ({
      index,
      ids: [],
      sequence: undefined,
      passed: 0,
      generating: false,
      used: 0,
      adapter: undefined,
    }));
  }

  /** Sequences and texts to embed that wait for a slot. */
  get queued() {
    return this.#waiting.length;
  }

  /**
   * Continues a sequence; it waits for a slot first. To end the iteration early frees the slot.
   * @param {Request} request
   * @returns {AsyncGenerator<Token, void>}
   * @throws {RangeError} for no ids, ids outside of the vocabulary, or as many as the context; the device's error if it fails
   */
  async *submit(request) {
    const { ids, maxTokens, signal } = request;
    this.#check(ids, request.adapter);
    if (ids.length >= this.context)
      throw new RangeError(`the prompt has ${ids.length} tokens, and the context of ${this.context} must have room for another one`);
    if (maxTokens <= 0) return;
    const sequence = new Sequence(request);
    const abort = () => sequence.ended || sequence.push({ token: -1, logprob: 0, finishReason: 'abort' });
    if (signal?.aborted) abort();
    signal?.addEventListener('abort', abort);
    try {
      if (!sequence.ended) {
        this.#waiting.push(sequence);
        this.#start();
      }
      for (;;) {
        const token = sequence.tokens.shift();
        if (token) {
          yield token;
          if (token.finishReason !== null) return;
        } else if (sequence.ended) {
          if (sequence.error !== undefined) throw sequence.error;
          return;
        } else await new Promise((/** @type {(_: void) => void} */ done) => (sequence.wake = done));
      }
    } finally {
      signal?.removeEventListener('abort', abort);
      sequence.ended = true;
    }
  }

  /**
   * The model's view of a text: the normalized outputs of the last layer. It waits for a slot in turn with the sequences.
   * @param {ArrayLike<number>} ids at most as many as the context
   * @param {'mean' | 'last'} [pooling] the mean over all tokens, or the last one's; `mean` when left out
   * @param {string} [adapter] by name; none when left out
   * @returns {Promise<Float32Array>} [width]
   * @throws {RangeError} for another pooling or adapter, no ids, too many, or ids outside of the vocabulary
   */
  async embed(ids, pooling = 'mean', adapter = undefined) {
    if (pooling !== 'mean' && pooling !== 'last') throw new RangeError(`pooling must be 'mean' or 'last', got ${String(pooling)}`);
    if (ids.length > this.context) throw new RangeError(`the text has ${ids.length} tokens, more than the context of ${this.context}`);
    this.#check(ids, adapter);
    const { width } = this.config;
    const embedding = new Embedding(ids, adapter);
    this.#waiting.push(embedding);
    this.#start();
    const rows = await embedding.rows;
    const sum = new Float64Array(width);
    for (const part of rows) for (let i = 0; i < part.length; i++) sum[i % width] += part[i];
    if (!sum.every(Number.isFinite)) throw this.#notFinite(ids.length);
    if (pooling === 'last') return /** @type {Float32Array} */ (rows.at(-1)).slice(-width);
    return Float32Array.from(sum, (value) => value / ids.length);
  }

  /** Ends all sequences with an error, waits for the device, and frees its memory. */
  async dispose() {
    if (this.#disposed) return;
    this.#disposed = true;
    const error = new Error('the model was disposed of');
    for (const sequence of [...this.#waiting.splice(0), ...this.rows.flatMap(({ sequence }) => sequence ?? [])]) {
      if (!sequence.ended) sequence.fail(error);
    }
    await this.#loop;
    this.session.dispose();
  }

  /** @param {ArrayLike<number>} ids @param {string} [adapter] */
  #check(ids, adapter) {
    const { vocabSize } = this.config;
    if (adapter !== undefined && !this.adapters.includes(adapter)) throw new RangeError(`the model has no adapter ${adapter}`);
    if (this.#disposed) throw new Error('the model was disposed of');
    if (this.#failure !== undefined) throw this.#failure;
    if (ids.length === 0) throw new RangeError('the prompt has no tokens');
    for (let i = 0; i < ids.length; i++) {
      if (!(Number.isInteger(ids[i]) && ids[i] >= 0 && ids[i] < vocabSize))
        throw new RangeError(`token ${i} of the prompt must be an id below ${vocabSize}, got ${ids[i]}`);
    }
  }

  #start() {
    this.#loop ??= this.#serve()
      .catch((error) => {
        this.#failure = error;
        for (const sequence of [...this.#waiting.splice(0), ...this.rows.flatMap((slot) => slot.sequence ?? [])]) sequence.fail(error);
      })
      .finally(() => {
        this.#loop = undefined;
        // Whoever asked between the loop's last look and its end found it there, and did not start another.
        if (this.#waiting.length > 0) this.#start();
      });
  }

  /** Works until no sequence is left. */
  async #serve() {
    /** Launched and not read yet. @type {Launch[]} */
    const launched = [];
    const launch = (/** @type {Launch | undefined} */ each) => {
      // Of several reads that fail only the first is awaited.
      each?.read.catch(() => {});
      if (each) launched.push(each);
    };
    for (;;) {
      for (const slot of this.rows) if (slot.sequence?.ended) this.#free(slot);
      this.#admit();
      const prompt = this.rows.find(({ sequence, generating }) => sequence && !generating);
      if (prompt) launch(this.#prefill(prompt));
      // What such a sequence may continue with follows from its last token, so its next step is launched once that is read.
      const constrained = this.rows.some(({ sequence, generating }) => generating && sequence?.request.constraint);
      const step = constrained && launched.length > 0 ? undefined : this.#step();
      launch(step);
      const next = constrained || launched.length > AHEAD || !(prompt || step) ? launched.shift() : undefined;
      if (next) await this.#receive(next, launched);
      // Lets consumers and signals have their turn between chunks of a long prompt.
      else if (prompt) await new Promise((done) => setImmediate(done));
      else if (launched.length === 0 && !this.#waiting.length) return;
    }
  }

  /**
   * Waits for a launch and delivers its tokens to their sequences. If a step failed that can be computed in another way, takes its sequences back
   * to before the step and drops the results of later launches.
   * @param {Launch} launch @param {Launch[]} later
   */
  async #receive({ read, of }, later) {
    let sampled;
    try {
      sampled = await read;
    } catch (error) {
      if (!(error instanceof StepError)) throw error;
      this.session.abandonWholeLayer(error);
      const failed = new Set(of.map(([, sequence]) => sequence));
      for (const launch of later) launch.of = launch.of.filter(([, sequence]) => !failed.has(sequence));
      for (const slot of this.rows) {
        const { sequence, index } = slot;
        if (!sequence || sequence.ended || !failed.has(sequence)) continue;
        const { ids, promptLength } = sequence;
        this.session.resume(index, ids, ids.length - promptLength);
        slot.passed = ids.length - 1;
      }
      return;
    }
    this.#deliver(sampled, of);
  }

  /** Gives waiting sequences free slots. */
  #admit() {
    for (;;) {
      while (this.#waiting[0]?.ended) this.#waiting.shift();
      const free = this.rows.filter(({ sequence }) => sequence === undefined);
      const sequence = this.#waiting[0];
      if (!sequence || free.length === 0) return;
      this.#waiting.shift();
      if (sequence instanceof Embedding) {
        this.#embed(sequence, leastUsed(free));
        continue;
      }
      // Other adapters make other keys and values.
      const { adapter } = sequence.request;
      const shared = free.map((slot) => (slot.adapter === adapter ? commonPrefix(slot.ids, sequence.ids) : 0));
      const best = Math.max(...shared);
      // The longest shared beginning; among equal ones that of the slot that was not used for longest.
      const slot = leastUsed(free.filter((_, i) => shared[i] === best));
      slot.sequence = sequence;
      // At least one token passes through the model: its outputs are the next token's logits.
      slot.passed = Math.min(best, sequence.ids.length - 1);
      slot.ids = sequence.ids.slice(0, slot.passed);
      this.#choose(slot, adapter);
      slot.used = ++this.#clock;
    }
  }

  /** @param {Slot} slot @param {string | undefined} adapter */
  #choose(slot, adapter) {
    slot.adapter = adapter;
    this.session.choose(slot.index, adapter === undefined ? undefined : this.adapters.indexOf(adapter));
  }

  /** Passes a text through the model, in a slot whose keys and values are lost by it. @param {Embedding} embedding @param {Slot} slot */
  #embed({ ids, adapter, pass, fail }, slot) {
    const { session } = this;
    slot.ids = [];
    this.#choose(slot, adapter);
    slot.used = ++this.#clock;
    /** @type {Promise<Float32Array>[]} */
    const parts = [];
    try {
      for (let at = 0; at < ids.length; at += session.chunk) {
        const chunk = ids.slice(at, at + session.chunk);
        session.prefill(slot.index, chunk, at);
        parts.push(session.outputs(chunk.length));
      }
    } catch (error) {
      fail(error);
      throw error;
    }
    Promise.all(parts).then(pass, fail);
  }

  /** Passes the next chunk of a slot's prompt, and samples its first token after the last one. @param {Slot} slot */
  #prefill(slot) {
    const { session } = this;
    const sequence = /** @type {Sequence} */ (slot.sequence);
    const chunk = sequence.ids.slice(slot.passed, slot.passed + session.chunk);
    session.prefill(slot.index, chunk, slot.passed);
    slot.ids.push(...chunk);
    slot.passed += chunk.length;
    if (slot.passed < sequence.promptLength) return undefined;
    if (!this.#constrain(slot)) return undefined;
    slot.generating = true;
    const { sampling, topLogprobs = 0 } = sequence.request;
    const read = session.begin(slot.index, sampling, sequence.ids, chunk.length - 1, topLogprobs > 0);
    return { read, of: /** @type {[number, Sequence][]} */ ([[0, sequence]]) };
  }

  /** Launches a step of all active slots for which another token may be wanted. */
  #step() {
    const active = this.rows.filter(({ sequence, generating }) => sequence && generating);
    // Tokens that are launched and not read count too: `passed` is the place of the token that this step takes.
    const wanted = active.filter(
      ({ sequence, passed }) =>
        passed < this.context - 1 &&
        passed - /** @type {Sequence} */ (sequence).promptLength + 1 < /** @type {Sequence} */ (sequence).request.maxTokens,
    );
    if (wanted.length === 0) return undefined;
    for (const slot of active) this.#constrain(slot);
    const last = active[active.length - 1].index;
    const rows = Math.min(this.slots, 2 ** Math.ceil(Math.log2(last + 1)));
    const keys = Math.min(this.context, Math.max(...active.map(({ passed }) => passed)) + 1);
    const read = this.session.step(rows, keys);
    for (const slot of active) slot.passed++;
    return { read, of: active.map(({ index, sequence }) => /** @type {[number, Sequence]} */ ([index, sequence])) };
  }

  /** Says which tokens a slot may have next. @param {Slot} slot @returns {boolean} false where that failed, which ends its sequence alone */
  #constrain({ index, sequence }) {
    const { constraint } = /** @type {Sequence} */ (sequence).request;
    try {
      if (constraint) this.session.sampler.constrain(index, constraint.allowed());
      return true;
    } catch (error) {
      /** @type {Sequence} */ (sequence).fail(error);
      return false;
    }
  }

  /** @param {number} count of tokens that passed through the model */
  #notFinite(count) {
    const isNarrow = this.dtype === 'f16' || this.dtype === 'q8_0';
    const other = isNarrow ? `, or ${this.dtype} has too small a range for them (dtype: bf16 or f32)` : '';
    return new Error(
      `the model's outputs after ${count} ${count === 1 ? 'token' : 'tokens'} are not finite: its weights are damaged${other}`,
    );
  }

  /** Hands tokens to their sequences. @param {import('./sampler.mjs').Sampled} read @param {[row: number, Sequence][]} of */
  #deliver([bits, top], of) {
    const words = new Uint32Array(bits.buffer, bits.byteOffset, bits.length);
    for (const [row, sequence] of of) {
      if (sequence.ended) continue;
      const token = words[2 * row];
      const logprob = bits[2 * row + 1];
      if (Number.isNaN(logprob)) {
        // Sampled from these, a text would end at once or be of one token.
        sequence.fail(this.#notFinite(sequence.ids.length));
        continue;
      }
      const { maxTokens, stopIds, topLogprobs = 0, constraint } = sequence.request;
      sequence.ids.push(token);
      const count = sequence.ids.length - sequence.promptLength;
      const full = sequence.ids.length >= this.context;
      let ended;
      try {
        ended = constraint?.accept(token);
      } catch (error) {
        sequence.fail(error);
        continue;
      }
      const stops = ended === 'stop' || stopIds.includes(token);
      const finishReason = stops ? 'stop' : ended === 'length' || count === maxTokens ? 'length' : full ? 'context' : null;
      const listed = topLogprobs > 0 && top ? { topLogprobs: mostLikely(top, row, topLogprobs) } : {};
      sequence.push({ token, logprob, ...listed, finishReason });
    }
  }

  /** Takes a slot from its sequence, whose keys and values stay. @param {Slot} slot */
  #free(slot) {
    const { ids, promptLength } = /** @type {Sequence} */ (slot.sequence);
    if (slot.generating) {
      this.session.end(slot.index);
      // The last token was sampled, but need not have passed through the model.
      slot.ids = ids.slice(0, Math.max(promptLength, ids.length - 1));
    }
    slot.sequence = undefined;
    slot.generating = false;
  }
}

/**
 * The most likely tokens of a row. @param {Float32Array} top ids [rows, 20], then their log probabilities @param {number} row
 * @param {number} count at most; fewer where no more can be sampled
 */
function mostLikely(top, row, count) {
  const ids = new Uint32Array(top.buffer, top.byteOffset, top.length / 2);
  const first = row * MAX_TOP_LOGPROBS;
  const all = Array.from({ length: count }, (_, k) => ({ token: ids[first + k], logprob: top[ids.length + first + k] }));
  return all.filter(({ logprob }) => logprob > -Infinity);
}

/** The one that was not used for longest. @param {Slot[]} slots */
const leastUsed = (slots) => slots.reduce((a, b) => (b.used < a.used ? b : a));

/** The length of the common beginning. @param {number[]} a @param {number[]} b */
function commonPrefix(a, b) {
  const most = Math.min(a.length, b.length);
  for (let i = 0; i < most; i++) if (a[i] !== b[i]) return i;
  return most;
}
