// The products that `helios-vk tune` times: those of a model's training step, or of a file.

import { readFileSync } from 'node:fs';
import { shapeOf } from '../../kernels/tuning/table.mjs';
import { UsageError } from './options.mjs';

/** @typedef {import('../../kernels/tuning/table.mjs').Shape} Shape */

/**
 * Sizes of the GPTs of `npm run train -- --preset NAME`, with the tokens of a micro-step.
 * @type {Record<string, { width: number, hidden: number, vocab: number, tokens: number }>}
 */
export const MODELS = {
  'gpt-tiny': { width: 64, hidden: 192, vocab: 256, tokens: 512 },
  'gpt-30m': { width: 512, hidden: 1376, vocab: 4096, tokens: 2048 },
  'gpt-300m': { width: 1024, hidden: 2752, vocab: 17408, tokens: 512 },
};

/** Earlier names of the presets, which still work. @type {Record<string, string>} */
export const MODEL_ALIASES = { tiny: 'gpt-tiny', small: 'gpt-30m', mission: 'gpt-300m' };

/**
 * The products of one layer and of the head, with weights W[N, K]: forward NT, gradient of the input NN, of the weights TN.
 * @param {{ width: number, hidden: number, vocab: number }} model @param {number} tokens at once
 * @returns {Shape[]}
 */
export function productsOf({ width, hidden, vocab }, tokens) {
  const weights = [
    [3 * width, width],
    [width, width],
    [2 * hidden, width],
    [width, hidden],
    [vocab, width],
  ];
  return weights.flatMap(([n, k]) => [
    { form: 'NT', m: tokens, n, k },
    { form: 'NN', m: tokens, n: k, k: n },
    { form: 'TN', m: n, n: k, k: tokens },
  ]);
}

/**
 * The products in a file: one per line as `NT 512 1024 1024` (form, m, n, k); the rest of a line after `#` is a comment.
 * @param {string} path
 * @returns {Shape[]}
 */
export function productsOfFile(path) {
  const products = readFileSync(path, 'utf8')
    .split('\n')
    .flatMap((line, i) => {
      const text = line.split('#')[0].trim().replace(/\s+/g, ' ');
      if (text === '') return [];
      try {
        return [shapeOf(text)];
      } catch (error) {
        throw new UsageError(`--shapes ${path}: line ${i + 1}: ${/** @type {Error} */ (error).message}`);
      }
    });
  if (products.length === 0) throw new UsageError(`--shapes ${path}: the file has no products`);
  return products;
}
