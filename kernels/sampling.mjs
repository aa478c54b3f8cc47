// Draws tokens from logits: penalties, temperature, top-k, top-p, min-p, all on the device. What a row needs lies in buffers, so that a
// recorded dispatch draws the next tokens each time it is submitted, with nothing pushed.

import { ceilDiv, integer, MAX_ELEMENTS, nextPowerOfTwo, pushConstants, tensor } from './base.mjs';
import { rowsOf } from './bounds.mjs';

/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').KernelContext} KernelContext */
/** @typedef {import('./bounds.mjs').Extent} Extent */

/** Words of a row's settings, which `samplingSettings` writes. */
export const SAMPLING_SETTINGS_WORDS = 20;

/** Words of a row's history: the tokens of its sequence in a ring, token t in word t mod 1024. */
export const SAMPLING_HISTORY_WORDS = 1024;

/** The words of a row's state (u32), by index. The device moves all of them on. */
export const SAMPLING_STATE = Object.freeze({
  /** Dispatches so far, also of those in which the row was not active: the place in `ring` is step mod ringLength. */
  step: 0,
  /** Tokens drawn with the seed, which is the counter of the random numbers. */
  draws: 1,
  /** Tokens of the sequence that went into the history; of more than 1024 it holds the last ones. */
  tokens: 2,
  /** How many candidates the filters left at the last draw. */
  kept: 3,
});

/** Words of a row's state. */
export const SAMPLING_STATE_WORDS = 4;

/** Most entries of a vocabulary: their masses sum to at most 2^63. */
const MOST_CANDIDATES = 2 ** 19;

/**
 * @typedef {object} SamplingOptions
 * @property {number} [temperature] divides the logits, in [1e-6, 1e6]; 0 takes the most likely token, of equal ones the lowest id. 1 when left
 *   out
 * @property {number} [topK] sample from the `topK` most likely tokens; 0 (all) when left out
 * @property {number} [topP] of those, keeps the fewest most likely ones with at least this probability, in [0, 1]; 1 (all) when left out. A
 *   probability within 10^-12 of it is enough
 * @property {number} [minP] of those, keeps the ones at least this much as likely as the most likely, in [0, 1]; 0 (all) when left out
 * @property {number} [repetitionPenalty] divides positive logits of tokens in the history and multiplies negative ones, more than 0; 1 when left
 *   out (Keskar et al. 2019)
 * @property {number} [presencePenalty] is subtracted from logits of tokens in the history; 0 when left out
 * @property {number} [frequencyPenalty] is subtracted as often as the token is in the history; 0 when left out
 * @property {number} [repeatLastN] how many of the sequence's last tokens count for the penalties, at most 1024; 64 when left out
 * @property {number | bigint} [seed] in [0, 2^64); 0 when left out. A sequence's tokens depend on its logits, its settings and this, not on its
 *   row or on other rows
 * @property {number} [vocabulary] only ids below it are drawn, for a model that pads its vocabulary; that of the call when left out
 */

/**
 * Throws unless `value` is a number in [low, high].
 * @param {string} name @param {unknown} value @param {number} low @param {number} high @returns {number}
 */
function within(name, value, low, high) {
  if (typeof value !== 'number') throw new TypeError(`samplingSettings: ${name} must be a number, got ${String(value)}`);
  if (value >= low && value <= high) return value;
  throw new RangeError(`samplingSettings: ${name} must be in [${low}, ${high}], got ${value}`);
}

/** A number in [0, 1) as a 64-bit fraction. @param {number} value */
const fraction = (value) => BigInt(Math.floor(value * 2 ** 53)) << 11n;

/**
 * A row's settings, to upload to its place in `settings`.
 * @param {SamplingOptions} [options]
 * @returns {Uint32Array<ArrayBuffer>} `SAMPLING_SETTINGS_WORDS` words
 * @throws {RangeError} for a value out of range
 */
export function samplingSettings(options = {}) {
  const temperature = options.temperature === 0 ? 0 : within('temperature', options.temperature ?? 1, 1e-6, 1e6);
  const topK = integer('samplingSettings', 'topK', options.topK ?? 0, 0, 0xffffffff);
  const topP = within('topP', options.topP ?? 1, 0, 1);
  const minP = within('minP', options.minP ?? 0, 0, 1);
  const repetition = within('repetitionPenalty', options.repetitionPenalty ?? 1, 1e-6, 1e6);
  const presence = within('presencePenalty', options.presencePenalty ?? 0, -1e6, 1e6);
  const frequency = within('frequencyPenalty', options.frequencyPenalty ?? 0, -1e6, 1e6);
  const last = integer('samplingSettings', 'repeatLastN', options.repeatLastN ?? 64, 0, SAMPLING_HISTORY_WORDS);
  const vocabulary = integer('samplingSettings', 'vocabulary', options.vocabulary ?? 0xffffffff, 1, 0xffffffff);
  const { seed = 0 } = options;
  if (typeof seed !== 'bigint' && !Number.isInteger(seed)) {
    throw new TypeError(`samplingSettings: seed must be an integer, got ${String(seed)}`);
  }
  if (seed < 0 || seed >= 2n ** 64n) throw new RangeError(`samplingSettings: seed must be in [0, 2^64), got ${seed}`);

  const words = new Uint32Array(SAMPLING_SETTINGS_WORDS);
  const floats = new Float32Array(words.buffer);
  /** @param {number} at @param {bigint} value */
  const put64 = (at, value) => words.set([Number(value & 0xffffffffn), Number(value >> 32n)], at);
  const penalized = repetition !== 1 || presence !== 0 || frequency !== 0;
  words.set([temperature === 0 || topK === 1 ? 1 : 0, topK, vocabulary, penalized ? last : 0]);
  floats.set([1 / repetition, repetition, presence, frequency], 4);
  // Candidates this close to the limits are within: 2^-40 is some times more than the error of a mass.
  const slack = 2 ** -40;
  put64(8, topP === 1 ? 2n ** 64n - 1n : fraction(topP * (1 - slack)));
  // A candidate beyond 45 halvings has no mass.
  const halvings = -Math.log2(minP) + slack;
  put64(10, halvings > 45 ? 2n ** 64n - 1n : BigInt(Math.floor(halvings * 2 ** 46)) << 9n);
  if (temperature > 0) {
    // Distances up to 46 halvings, in units of 2^-unit, are below 2^62 and not much less; the factor makes them halvings in units of 2^-55.
    const most = 46 * Math.LN2 * temperature;
    const unit = 61 - Math.floor(Math.log2(most));
    put64(12, BigInt(Math.floor((Math.LOG2E / temperature) * 2 ** (55 - unit + 53))) << 11n);
    words[14] = unit >>> 0;
    floats[15] = most;
  }
  put64(16, BigInt(seed));
  return words;
}

/**
 * The history of a sequence, to upload to its row of `history`, and the number of its tokens for the state.
 * @param {ArrayLike<number>} tokens those of the prompt, in order; the last 1024 are kept
 * @returns {Uint32Array<ArrayBuffer>} `SAMPLING_HISTORY_WORDS` words
 */
export function samplingHistory(tokens) {
  const words = new Uint32Array(SAMPLING_HISTORY_WORDS);
  for (let t = Math.max(0, tokens.length - SAMPLING_HISTORY_WORDS); t < tokens.length; t++) words[t % SAMPLING_HISTORY_WORDS] = tokens[t];
  return words;
}

/**
 * @typedef {object} SamplingProgress
 * @property {number} [step] dispatches so far: those of the other rows; 0 when left out
 * @property {number} [draws] tokens already drawn with the seed; 0 when left out
 * @property {number} [tokens] tokens that went into the history; 0 when left out
 */

/**
 * A row's state, to upload to its place in `state`.
 * @param {SamplingProgress} [progress]
 * @returns {Uint32Array<ArrayBuffer>} `SAMPLING_STATE_WORDS` words
 */
export function samplingState({ step = 0, draws = 0, tokens = 0 } = {}) {
  return Uint32Array.of(step, draws, tokens, 0);
}

/**
 * @typedef {object} SampleTokens
 * @property {Tensor} logits [rows, stride] f32. The kernel replaces those that penalties change while it works, and restores them
 * @property {number} rows number of rows, at most 65,535
 * @property {number} vocabulary logits of a row, at most 2^19
 * @property {number} [stride] elements from row to row; `vocabulary` when left out
 * @property {Tensor} settings [rows, SAMPLING_SETTINGS_WORDS] u32, from `samplingSettings`
 * @property {Tensor} history in and out: [rows, SAMPLING_HISTORY_WORDS] u32, the tokens of each row's sequence; the drawn one is appended
 * @property {Tensor} state in and out: [rows, SAMPLING_STATE_WORDS] u32, see `SAMPLING_STATE`
 * @property {Tensor} ids out: [rows] u32, the drawn tokens
 * @property {Tensor} places in and out: [rows] u32, each is advanced by 1
 * @property {Tensor} ring out: [ringLength, rows, 2] u32: (token, bits of its log probability) in row state.step mod ringLength
 * @property {number} ringLength length of the ring
 * @property {Tensor} [active] [rows] u32; a row where it is 0 only advances its step, and gets (0xffffffff, 0) in the ring. All are active when
 *   left out
 */

/** @param {KernelContext} context */
export function samplingKernels(context) {
  /**
   * The rows of a call. A kernel reads four logits at a time where whole vectors lie within the rows.
   * @param {string} kernel @param {{ rows: number, vocabulary: number, stride?: number, logits: Tensor }} args
   */
  function rowsFor(kernel, args) {
    const rows = integer(kernel, 'rows', args.rows, 1, context.maxGroups);
    const vocabulary = integer(kernel, 'vocabulary', args.vocabulary, 1, MOST_CANDIDATES);
    const stride = integer(kernel, 'stride', args.stride ?? vocabulary, vocabulary);
    integer(kernel, 'rows * stride', rows * stride);
    const logits = tensor(kernel, 'logits', args.logits);
    const width = vocabulary % 4 === 0 && stride % 4 === 0 && logits.offset % 4 === 0 ? 4 : 1;
    return { rows, vocabulary, stride, logits, width };
  }

  /**
   * The workgroup that takes a row: a power of two of invocations.
   * @param {string} kernel @param {number} vocabulary @param {number} width @param {number} passes over the row, at most
   */
  function threadsFor(kernel, vocabulary, width, passes) {
    const vectors = ceilDiv(vocabulary, width);
    const limit = nextPowerOfTwo(context.info.maxComputeWorkGroupInvocations + 1) / 2;
    const threads = Math.min(context.isCpu ? 128 : 1024, limit, Math.max(128, nextPowerOfTwo(ceilDiv(vectors, 4))));
    // With the loops that sort and sum lists.
    context.checkRounds(kernel, `rows of ${vocabulary}`, passes * ceilDiv(vectors, threads) + 12_000);
    return threads;
  }

  /**
   * Draws a token from each row of logits: first penalties, then temperature, top-k, top-p and min-p, each on what the one before left. Ties
   * are ordered by id. `SAMPLING_STATE.kept` says how many tokens were left.
   *
   * Penalties are computed in f32. What is kept of the logits then is what float64 gives: masses are 64-bit integers with errors of at most
   * some 10^-12 of themselves. So the same logits, settings and seed draw the same tokens on every device. The draw uses words 0 and 1 of
   * Philox 4x32-10 with the row's seed as key and counter (draws, 0, 0, 0); tokens are in descending order of probability.
   *
   * The log probability is that of the token in the softmax of the given logits, without penalties and temperature. NaN and -∞ are never drawn;
   * if a row has nothing else, its token is 0, with a log probability of NaN.
   * @param {SampleTokens} args
   * @returns {Dispatch}
   */
  function sampleTokens(args) {
    const kernel = 'sampleTokens';
    const { rows, vocabulary, stride, logits, width } = rowsFor(kernel, args);
    const ringLength = integer(kernel, 'ringLength', args.ringLength);
    integer(kernel, 'ringLength * rows', ringLength * rows, 1, MAX_ELEMENTS / 2);
    const settings = tensor(kernel, 'settings', args.settings);
    const history = tensor(kernel, 'history', args.history);
    const state = tensor(kernel, 'state', args.state);
    const ids = tensor(kernel, 'ids', args.ids);
    const places = tensor(kernel, 'places', args.places);
    const ring = tensor(kernel, 'ring', args.ring);
    const active = args.active === undefined ? undefined : tensor(kernel, 'active', args.active);
    if (context.checker) {
      /** @type {Extent[]} */
      const reads = [['settings', settings, rows * SAMPLING_SETTINGS_WORDS, 'u32']];
      if (active) reads.push(['active', active, rows, 'u32']);
      context.checker.check(kernel, reads, [
        rowsOf('logits', logits, 'f32', rows, vocabulary, stride),
        ['history', history, rows * SAMPLING_HISTORY_WORDS, 'u32'],
        ['state', state, rows * SAMPLING_STATE_WORDS, 'u32'],
        ['ids', ids, rows, 'u32'],
        ['places', places, rows, 'u32'],
        ['ring', ring, 2 * ringLength * rows, 'u32'],
      ]);
    }
    const buffers = [logits, settings, history, state, ids, places, ring].map(({ buffer }) => buffer);
    if (active) buffers.push(active.buffer);
    return context.dispatch(`sample_tokens${active ? '_active' : ''}${width === 4 ? '' : '_narrow'}`, {
      buffers,
      writes: 0b1111101,
      groups: rows,
      // Three descents of 7 digits each and one pass more, and what is around them.
      specialization: [threadsFor(kernel, vocabulary, width, 30)],
      push: pushConstants([
        rows,
        vocabulary,
        stride / width,
        ringLength,
        logits.offset / width,
        settings.offset,
        history.offset,
        state.offset,
        ids.offset,
        places.offset,
        ring.offset,
        active?.offset ?? 0,
      ]),
    });
  }

  /**
   * The most likely tokens of each row and the logarithms of their softmax, in descending order, ties by id. NaN and -∞ are no candidates;
   * where a row has fewer than `count`, the rest is (0xffffffff, -∞).
   * @param {object} args
   * @param {Tensor} args.logits [rows, stride] f32
   * @param {number} args.rows number of rows, at most 65,535
   * @param {number} args.vocabulary logits of a row, at most 2^19
   * @param {number} [args.stride] elements from row to row; `vocabulary` when left out
   * @param {number} args.count tokens of each row, at most 64
   * @param {Tensor} args.ids out: [rows, count] u32
   * @param {Tensor} args.logprobs out: [rows, count] f32
   * @returns {Dispatch}
   */
  function topLogprobs(args) {
    const kernel = 'topLogprobs';
    const { rows, vocabulary, stride, logits, width } = rowsFor(kernel, args);
    const count = integer(kernel, 'count', args.count, 1, 64);
    const ids = tensor(kernel, 'ids', args.ids);
    const logprobs = tensor(kernel, 'logprobs', args.logprobs);
    context.checker?.check(
      kernel,
      [rowsOf('logits', logits, 'f32', rows, vocabulary, stride)],
      [
        ['ids', ids, rows * count, 'u32'],
        ['logprobs', logprobs, rows * count, 'f32'],
      ],
    );
    return context.dispatch(`top_logprobs${width === 4 ? '' : '_narrow'}`, {
      buffers: [logits.buffer, ids.buffer, logprobs.buffer],
      writes: 0b110,
      groups: rows,
      // Three passes, or one for each token.
      specialization: [threadsFor(kernel, vocabulary, width, 3 + count)],
      push: pushConstants([rows, vocabulary, stride / width, count, logits.offset / width, ids.offset, logprobs.offset]),
    });
  }

  return { sampleTokens, topLogprobs };
}
