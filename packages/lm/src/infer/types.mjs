// What the parts of inference agree on.

/**
 * How tokens are chosen, in this order: penalties, temperature, top-k, top-p, min-p.
 * @typedef {object} Sampling
 * @property {number} temperature divides the logits; 0 takes the most likely token
 * @property {number} topK sample from the `topK` most likely tokens; 0: from all
 * @property {number} topP of these, sample from the fewest whose probabilities sum to at least this; 1: from all of them
 * @property {number} minP leave out tokens whose probability is less than `minP` times that of the most likely one; 0: none
 * @property {number} repetitionPenalty divides positive and multiplies negative logits of the last `repeatLastN` tokens; 1: none
 * @property {number} presencePenalty subtracted from the logits of these tokens
 * @property {number} frequencyPenalty subtracted from them for each time that they occurred
 * @property {number} repeatLastN 0 to 1,024
 * @property {number} seed of the draws, a u32; equal seeds give equal tokens on one device
 */

/**
 * One sequence to continue.
 * @typedef {object} Request
 * @property {ArrayLike<number>} ids the prompt: at least one id, and fewer than the engine's context
 * @property {Sampling} sampling
 * @property {number} maxTokens
 * @property {readonly number[]} stopIds tokens that end the sequence; the last one is reported, with `finishReason` 'stop'
 * @property {number} [topLogprobs] with each token this many of the most likely ones, at most `MAX_TOP_LOGPROBS`; 0 when left out
 * @property {Constraint} [constraint] which tokens may come; any when left out. A sequence takes it for itself
 * @property {string} [adapter] by name; none when left out
 * @property {AbortSignal} [signal] ends it with `finishReason` 'abort'; its slot is free then
 */

/** Why a sequence ended. `context`: there was no room for another token. @typedef {'stop' | 'length' | 'context' | 'abort'} FinishReason */

/**
 * What a text may become. `allowed`: a bit for each id that may come next, the same array for the same ids; `accept`: takes the token that came, and
 * says why the text ends with it: it is complete, or nests too deeply; null where it goes on. What either throws ends the sequence.
 * @typedef {{ allowed: () => Uint32Array, accept: (token: number) => 'stop' | 'length' | null }} Constraint
 */

/** A token that was likely, and the natural logarithm of its probability. @typedef {{ token: number, logprob: number }} Candidate */

/**
 * A token of a sequence. An aborted sequence ends with one whose `token` is -1. `topLogprobs`: where asked for, in descending order.
 * @typedef {{ token: number, logprob: number, topLogprobs?: Candidate[], finishReason: FinishReason | null }} Token
 */

/** Most tokens that `topLogprobs` lists. */
export const MAX_TOP_LOGPROBS = 20;

/** Most sequences that are continued together. */
export const MAX_SLOTS = 256;

export const DEFAULT_SAMPLING = /** @type {const} */ ({
  temperature: 0.8,
  topK: 40,
  topP: 0.95,
  minP: 0.05,
  repetitionPenalty: 1,
  presencePenalty: 0,
  frequencyPenalty: 0,
  repeatLastN: 64,
  seed: 1,
});
