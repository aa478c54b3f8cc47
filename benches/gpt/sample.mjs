/** Text from the model: one forward pass a token, the next token drawn on the host. */

import { Random } from './random.mjs';

/**
 * Continues a prompt.
 * @param {import('./trainer.mjs').Trainer} trainer
 * @param {import('./tokenizer.mjs').Tokenizer} tokenizer
 * @param {string} prompt
 * @param {object} [options]
 * @param {number} [options.tokens] tokens to add
 * @param {number} [options.temperature] divides the logits; 0 takes the likeliest token
 * @param {number} [options.topK] only the likeliest so many are drawn from
 * @param {number} [options.seed]
 * @returns {Promise<string>} prompt and continuation
 */
export async function sample(
  trainer,
  tokenizer,
  prompt,
  { tokens = 200, temperature = 0.8, topK = 40, seed = 1 } = {},
) {
  const random = new Random(seed, 3);
  const { block } = trainer.config;
  const ids = Array.from(await tokenizer.encode(prompt.length > 0 ? prompt : '\n'));
  for (let i = 0; i < tokens; i++) {
    // The model pads its vocabulary; only ids that the tokenizer knows are drawn.
    const logits = trainer.nextLogits(ids.slice(-block)).subarray(0, tokenizer.size);
    ids.push(draw(logits, temperature, topK, random));
  }
  return tokenizer.decode(ids);
}

/**
 * @param {Float32Array} logits @param {number} temperature @param {number} topK @param {Random} random
 * @returns {number} an index
 */
export function draw(logits, temperature, topK, random) {
  const order = Array.from(logits, (_, i) => i).sort((a, b) => logits[b] - logits[a] || a - b);
  if (temperature === 0) return order[0];
  const kept = order.slice(0, topK);
  const weights = kept.map((i) => Math.exp((logits[i] - logits[kept[0]]) / temperature));
  let rest = random.uniform() * weights.reduce((a, b) => a + b, 0);
  for (let i = 0; i < kept.length; i++) {
    rest -= weights[i];
    if (rest < 0) return kept[i];
  }
  return kept[kept.length - 1];
}
