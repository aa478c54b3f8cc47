// The decoders that benches train, and how their steps are timed.

import { tensor } from 'helios-vk/nn';

import { median } from './stats.mjs';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */

const LLAMA = { model_type: 'llama', vocab_size: 32_768, rms_norm_eps: 1e-5, rope_theta: 5e5 };
/** Their configurations, in the words of `config.json`. */
export const DECODERS = {
  'gpt2-124m': { model_type: 'gpt2', vocab_size: 50_304, n_embd: 768, n_head: 12, n_layer: 12, n_positions: 1024 },
  'llama-1.1b': {
    ...LLAMA,
    hidden_size: 2048,
    num_hidden_layers: 16,
    num_attention_heads: 32,
    num_key_value_heads: 8,
    intermediate_size: 8192,
    max_position_embeddings: 2048,
  },
  'llama-7.2b': {
    ...LLAMA,
    hidden_size: 4096,
    num_hidden_layers: 32,
    num_attention_heads: 32,
    num_key_value_heads: 8,
    intermediate_size: 14_336,
    max_position_embeddings: 2048,
  },
  tiny: {
    ...LLAMA,
    vocab_size: 256,
    hidden_size: 64,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    num_key_value_heads: 2,
    intermediate_size: 128,
    max_position_embeddings: 64,
  },
};

/** Steps before those that count: they compile, and a GPU's clock rises. */
const WARMUP = 4;

/**
 * Ids that look random: multiples of 2^32 divided by the golden ratio.
 * @param {number} salt @param {[batch: number, block: number]} shape @param {number} vocabSize
 */
export const randomIds = (salt, shape, vocabSize) =>
  tensor(
    Uint32Array.from({ length: shape[0] * shape[1] }, (_, i) => (Math.imul(i + salt, 0x9e3779b1) >>> 0) % vocabSize),
    { shape },
  );

/**
 * Times steps, two of them in flight.
 * @param {() => Tensor} step returns its loss @param {number} count timed steps
 * @returns {Promise<{ losses: number[], milliseconds: number }>} `milliseconds`: the median
 */
export async function timed(step, count) {
  /** @type {Promise<number>[]} */
  const losses = [];
  /** @type {number[]} */
  const times = [];
  for (let i = 0, last = performance.now(); i < WARMUP + count; i++) {
    const loss = step();
    losses.push(loss.item());
    loss.dispose();
    await losses[losses.length - 2];
    const now = performance.now();
    if (i >= WARMUP) times.push(now - last);
    last = now;
  }
  return { losses: await Promise.all(losses), milliseconds: median(times) };
}

/**
 * Prints the time of a step by kernel.
 * @param {{ (...inputs: any[]): Tensor, profile(...inputs: any[]): any[] }} step compiled @param {Tensor[]} inputs @param {string} title
 */
export async function printProfile(step, inputs, title) {
  // A GPU's clock rises within some steps.
  for (let i = 0; i < 20; i++) step(...inputs).dispose();
  await step(...inputs).toArray();
  const rows = step.profile(...inputs);
  const total = rows.reduce((sum, { microseconds }) => sum + microseconds, 0);
  console.log(`${title}: ${(total / 1000).toFixed(2)} ms of kernels`);
  for (const { operations, origin, dispatches, microseconds, products } of rows.slice(0, 60)) {
    const by = [...new Set(products.map((/** @type {any} */ { product, kernel }) => `${product} by ${kernel}`))].join('; ');
    console.log(
      `${(microseconds / 1000).toFixed(3).padStart(9)} ms ${String(dispatches).padStart(4)}  ${operations}  ${origin ?? ''}  ${by}`,
    );
  }
}
