// How the next tokens of a session's slots are chosen, on the device: the logits, the settings, last tokens and random numbers of each slot, and the
// tokens that were sampled.

import {
  SAMPLING_HISTORY_WORDS as HISTORY_WORDS,
  SAMPLING_SETTINGS_WORDS as SETTINGS_WORDS,
  SAMPLING_STATE_WORDS as STATE_WORDS,
  samplingHistory,
  samplingSettings,
  samplingState,
} from 'helios-vk/kernels';

import { MAX_TOP_LOGPROBS } from './types.mjs';

/** @typedef {import('helios-vk/kernels').Dispatches} Dispatches */

/**
 * What the host reads: the token and the bits of its log probability [rows, 2]; and where they were asked for, the most likely ids [rows, 20] and
 * their log probabilities [rows, 20].
 * @typedef {[sampled: Float32Array, top: Float32Array | undefined]} Sampled
 */

/** A place beyond every cache: the row of an inactive slot. */
const NOWHERE = 0xffffffff;

export class Sampler {
  /**
   * @param {typeof import('helios-vk')} vk @param {ReturnType<typeof import('helios-vk/kernels').createKernels>} kernels
   * @param {{ slots: number, vocabSize: number, vocabulary: number, make: (name: string, bytes: number) => number }} sizes `vocabSize`: logits of
   *   a row; `vocabulary`: ids below it may be sampled; `make`: makes a buffer
   */
  constructor(vk, kernels, { slots, vocabSize, vocabulary, make }) {
    this.vk = vk;
    this.kernels = kernels;
    this.vocabSize = vocabSize;
    this.vocabulary = vocabulary;
    this.logits = make('logits', 4 * slots * vocabSize);
    this.ids = make('next ids', 4 * slots);
    this.places = make('places', 4 * slots);
    this.active = make('active slots', 4 * slots);
    this.settings = make('sampling settings', 4 * slots * SETTINGS_WORDS);
    this.history = make('last tokens', 4 * slots * HISTORY_WORDS);
    this.state = make('sampling state', 4 * slots * STATE_WORDS);
    /** The last token of each slot and the bits of its log probability; then whether a layer's workgroups did not run at once. */
    this.sampled = make('sampled tokens', 8 * slots + 4);
    /** The most likely tokens of the last rows for which they were asked. */
    this.top = make('most likely tokens', 8 * slots * MAX_TOP_LOGPROBS);
    /** Slots whose sequences want their most likely tokens too. @type {Set<number>} */
    this.listed = new Set();
    /** What is added to the logits of slots that may not have every token: 0, or -∞. */
    this.masks = make('masks of tokens', 4 * slots * vocabSize);
    /** The ids that these slots may have, as bits. @type {Map<number, Uint32Array>} */
    this.constrained = new Map();
    vk.uploadBuffer(this.places, new Uint32Array(slots).fill(NOWHERE));
    for (const zeroed of [this.ids, this.active, this.settings, this.history, this.state, this.sampled, this.masks])
      vk.fillBuffer(zeroed, vk.bufferBytes(zeroed), 0);
  }

  /**
   * Makes a slot active.
   * @param {number} slot @param {import('./types.mjs').Sampling} sampling @param {ArrayLike<number>} ids the whole prompt
   * @param {boolean} listed whether the most likely tokens are wanted
   */
  begin(slot, sampling, ids, listed) {
    const { vk, vocabulary } = this;
    vk.uploadAsync(this.settings, samplingSettings({ ...sampling, vocabulary }), 4 * slot * SETTINGS_WORDS);
    vk.uploadAsync(this.active, Uint32Array.of(1), 4 * slot);
    this.#place(slot, ids, 0);
    if (listed) this.listed.add(slot);
  }

  /** Makes a slot inactive. @param {number} slot */
  end(slot) {
    this.listed.delete(slot);
    if (this.constrained.delete(slot)) this.#mask(slot, new Float32Array(this.vocabSize));
    this.vk.uploadAsync(this.active, Uint32Array.of(0), 4 * slot);
    this.vk.uploadAsync(this.places, Uint32Array.of(NOWHERE), 4 * slot);
  }

  /**
   * Takes a sequence back to its last token.
   * @param {number} slot @param {ArrayLike<number>} ids the prompt and the tokens after it @param {number} draws how many were sampled
   */
  resume(slot, ids, draws) {
    this.#place(slot, ids, draws);
    this.vk.uploadAsync(this.ids, Uint32Array.of(ids[ids.length - 1]), 4 * slot);
  }

  /**
   * Says which tokens a slot may have next.
   * @param {number} slot @param {Uint32Array} allowed a bit for each id; the same array means the same ids
   */
  constrain(slot, allowed) {
    if (this.constrained.get(slot) === allowed) return;
    this.constrained.set(slot, allowed);
    const mask = new Float32Array(this.vocabSize).fill(-Infinity);
    for (let id = 0; id < mask.length; id++) if ((allowed[id >> 5] >> (id & 31)) & 1) mask[id] = 0;
    this.#mask(slot, mask);
  }

  /** @param {number} slot @param {Float32Array} mask added to its logits */
  #mask(slot, mask) {
    this.vk.uploadAsync(this.masks, mask, 4 * slot * this.vocabSize);
  }

  /** @param {number} slot @param {ArrayLike<number>} ids @param {number} draws */
  #place(slot, ids, draws) {
    const { vk } = this;
    vk.uploadAsync(this.history, samplingHistory(ids), 4 * slot * HISTORY_WORDS);
    vk.uploadAsync(this.state, samplingState({ draws, tokens: ids.length }), 4 * slot * STATE_WORDS);
    vk.uploadAsync(this.places, Uint32Array.of(ids.length - 1), 4 * slot);
  }

  /**
   * What the dispatches of these slots do besides sampling. `lists`: the most likely tokens; `masks`: take logits away.
   * @param {number} slot the first @param {number} rows
   */
  extras(slot, rows) {
    const isOne = (/** @type {number} */ each) => each >= slot && each < slot + rows;
    return { lists: [...this.listed].some(isOne), masks: [...this.constrained.keys()].some(isOne) };
  }

  /** Samples a token for each row of logits, and lists the most likely ones where a row wants them. @param {number} slot the first @param {number} rows */
  dispatches(slot, rows) {
    const { kernels, vocabSize, vocabulary } = this;
    const of = (/** @type {number} */ buffer, /** @type {number} */ words) => ({ buffer, offset: slot * words });
    const logits = of(this.logits, vocabSize);
    const { lists, masks } = this.extras(slot, rows);
    /** @type {Dispatches[]} */
    const dispatches = [];
    if (masks) dispatches.push(kernels.binary({ op: 'add', a: logits, b: of(this.masks, vocabSize), y: logits, count: rows * vocabSize }));
    dispatches.push(
      kernels.sampleTokens({
        logits,
        rows,
        vocabulary: vocabSize,
        settings: of(this.settings, SETTINGS_WORDS),
        history: of(this.history, HISTORY_WORDS),
        state: of(this.state, STATE_WORDS),
        ids: of(this.ids, 1),
        places: of(this.places, 1),
        active: of(this.active, 1),
        ring: of(this.sampled, 2),
        ringLength: 1,
      }),
    );
    if (lists) {
      const logprobs = { buffer: this.top, offset: rows * MAX_TOP_LOGPROBS };
      const list = { logits, rows, vocabulary, stride: vocabSize, count: MAX_TOP_LOGPROBS, ids: this.top, logprobs };
      dispatches.push(kernels.topLogprobs(list));
    }
    return dispatches;
  }

  /** Reads what `dispatches` chose. @param {number} slot the first @param {number} rows @returns {Promise<Sampled>} */
  read(slot, rows) {
    return Promise.all([this.vk.readAsync(this.sampled, 8 * slot, 8 * rows), this.readTop(slot, rows)]);
  }

  /** The most likely tokens, where a row wants them. @param {number} slot the first @param {number} rows */
  readTop(slot, rows) {
    return this.extras(slot, rows).lists ? this.vk.readAsync(this.top, 0, 8 * rows * MAX_TOP_LOGPROBS) : undefined;
  }
}
