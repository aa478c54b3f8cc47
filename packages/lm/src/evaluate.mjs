// Evaluates a model: how well it predicts the tokens of a dataset.

import { noGrad, scope, tensor } from 'helios-vk/nn';

import { checkNames } from './options.mjs';

/**
 * @typedef {object} Evaluation
 * @property {number} loss the mean cross-entropy per token, in nats
 * @property {number} perplexity exp(loss)
 * @property {number} [bitsPerByte] the cross-entropy in bits per byte of the decoded text, which compares models with different
 *   vocabularies; only with a tokenizer. A character that the edge of a window cuts counts as U+FFFD
 * @property {number} tokens number of tokens that were predicted
 *
 * @typedef {object} EvaluateOptions
 * @property {number} [batch] windows per batch; 8 when left out
 * @property {number} [windows] the most windows to evaluate, spread evenly over the dataset; all when left out
 * @property {{ decode(ids: Uint32Array, options: { skipSpecial: boolean }): string }} [tokenizer] the dataset's, for `bitsPerByte`
 * @property {AbortSignal} [signal] ends the evaluation with an AbortError before the next batch
 * @property {(progress: { windows: number, total: number }) => void} [onProgress] called after each batch
 */

/**
 * Evaluates a model on a dataset: predicts each token of a window from the tokens before it in that window. Documents that share a window
 * attend to each other.
 * @param {import('./model/decoder.mjs').Decoder} model its `training` is restored at the end
 * @param {{ windows: number, window(index: number): Uint32Array }} dataset from `openDataset`; its windows must fit the model's context
 * @param {EvaluateOptions} [options]
 * @returns {Promise<Evaluation>}
 */
export async function evaluate(model, dataset, options = {}) {
  checkNames('evaluate', options, ['batch', 'windows', 'tokenizer', 'signal', 'onProgress']);
  const { batch = 8, windows = dataset.windows, tokenizer, signal, onProgress } = options;
  for (const [name, value] of Object.entries({ batch, windows })) {
    if (!(Number.isInteger(value) && value > 0)) throw new RangeError(`evaluate: ${name} is an integer of at least 1, got ${value}`);
  }
  const total = Math.min(windows, dataset.windows);
  const wasTraining = model.training;
  model.eval();
  let sum = 0;
  let tokens = 0;
  let bytes = 0;
  try {
    for (let done = 0; done < total; ) {
      signal?.throwIfAborted();
      const count = Math.min(batch, total - done);
      const rows = Array.from({ length: count }, (_, i) => dataset.window(Math.floor(((done + i) * dataset.windows) / total)));
      const block = rows[0].length - 1;
      const ids = new Uint32Array(count * block);
      const targets = new Uint32Array(count * block);
      rows.forEach((row, i) => {
        ids.set(row.subarray(0, block), i * block);
        targets.set(row.subarray(1), i * block);
        if (tokenizer) bytes += Buffer.byteLength(tokenizer.decode(row.slice(1), { skipSpecial: true }));
      });
      const shape = [count, block];
      const loss = noGrad(() => scope(() => model.loss(tensor(ids, { shape }), tensor(targets, { shape }))));
      sum += (await loss.item()) * ids.length;
      loss.dispose();
      tokens += ids.length;
      done += count;
      onProgress?.({ windows: done, total });
    }
  } finally {
    model.train(wasTraining);
  }
  const loss = sum / tokens;
  return { loss, perplexity: Math.exp(loss), ...(tokenizer ? { bitsPerByte: sum / Math.LN2 / bytes } : {}), tokens };
}
