/** Text from the model: one forward pass a token; the host samples the next token. */

import { Random } from '../random.mjs';

/**
 * How the next token is sampled.
 * @typedef {object} Sampling
 * @property {number} [temperature] divides the logits; 0 takes the most likely token; 0.8 when left out
 * @property {number} [topK] sample from the `topK` most likely tokens; 0: from all; 40 when left out
 * @property {number} [topP] of these, sample from the fewest whose probabilities sum to at least this; 1, the default: from all of them
 */

/**
 * Continues a prompt, token by token. The same seed gives the same text.
 * @param {Pick<import('./generator.mjs').Generator, 'block' | 'nextLogits'>} model
 * @param {Pick<import('../tokenizer/load.mjs').Tokenizer, 'encode' | 'decode' | 'vocabSize'>} tokenizer
 * @param {string} prompt a line end when empty
 * @param {Sampling & {tokens?: number, seed?: number}} [options] `tokens`: how many to add, 200 when left out; `seed`: 1 when left out
 * @returns {AsyncGenerator<string>} the prompt, then the text that each token adds; nothing for a token that leaves a character incomplete
 */
export async function* generate(model, tokenizer, prompt, { tokens = 200, seed = 1, ...sampling } = {}) {
  const random = new Random(seed, 3);
  const { block } = model;
  const ids = Array.from(tokenizer.encode(prompt.length > 0 ? prompt : '\n'));
  let written = tokenizer.decode(ids);
  yield written;
  for (let i = 0; i < tokens; i++) {
    // The model pads its vocabulary; only ids that the tokenizer knows are sampled.
    const logits = (await model.nextLogits(ids.slice(-block))).subarray(0, tokenizer.vocabSize);
    ids.push(sampleToken(logits, random, sampling));
    const text = tokenizer.decode(ids);
    // The first bytes of a character decode to U+FFFD until the rest follows; what is incomplete at the end stays U+FFFD.
    const known = i + 1 < tokens ? text.replace(/\ufffd{1,3}$/, '') : text;
    if (known.length <= written.length) continue;
    yield known.slice(written.length);
    written = known;
  }
}

/**
 * Continues a prompt.
 * @param {Parameters<typeof generate>[0]} model
 * @param {Pick<import('../tokenizer/load.mjs').Tokenizer, 'encode' | 'decode' | 'vocabSize'>} tokenizer
 * @param {string} prompt
 * @param {Parameters<typeof generate>[3]} [options]
 * @returns {Promise<string>} prompt and continuation
 */
export async function sample(model, tokenizer, prompt, options) {
  let text = '';
  for await (const part of generate(model, tokenizer, prompt, options)) text += part;
  return text;
}

/**
 * Samples the next token.
 * @param {Float32Array} logits
 * @param {Pick<Random, 'uniform'>} random
 * @param {Sampling} [sampling]
 * @returns {number} an index
 */
export function sampleToken(logits, random, { temperature = 0.8, topK = 40, topP = 1 } = {}) {
  const order = Array.from(logits, (_, i) => i).sort((a, b) => logits[b] - logits[a] || a - b);
  if (temperature === 0) return order[0];
  let kept = topK > 0 ? order.slice(0, topK) : order;
  const weights = kept.map((i) => Math.exp((logits[i] - logits[kept[0]]) / temperature));
  let sum = weights.reduce((a, b) => a + b, 0);
  if (topP < 1) {
    const wanted = topP * sum;
    let [count, reached] = [0, 0];
    while (count < kept.length && (count === 0 || reached < wanted)) reached += weights[count++];
    kept = kept.slice(0, count);
    sum = reached;
  }
  let rest = random.uniform() * sum;
  for (let i = 0; i < kept.length; i++) {
    rest -= weights[i];
    if (rest < 0) return kept[i];
  }
  return kept[kept.length - 1];
}
