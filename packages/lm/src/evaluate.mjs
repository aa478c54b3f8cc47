// How well a model predicts a text.

import { noGrad, scope, tensor } from 'helios-vk/nn';

/**
 * @typedef {object} Evaluation
 * @property {number} loss the mean cross-entropy of a token, in nats
 * @property {number} perplexity e to the loss
 * @property {number} [bitsPerByte] the cross-entropy in bits of a byte of text, which compares models of different vocabularies; where a
 *   tokenizer is given
 * @property {number} tokens that were predicted
 *
 * @typedef {object} EvaluateOptions
 * @property {number} [batch] windows at once; 8 when left out
 * @property {number} [windows] at most so many, spread evenly; all when left out
 * @property {{ decode(ids: Uint32Array): string }} [tokenizer] counts the bytes
 * @property {AbortSignal} [signal]
 * @property {(progress: { windows: number, total: number }) => void} [onProgress] called after each batch
 */

/**
 * Predicts each token of a dataset's windows from those before it in its window.
 * @param {import('./model/decoder.mjs').Decoder} model
 * @param {{ windows: number, window(index: number): Uint32Array }} dataset
 * @param {EvaluateOptions} [options]
 * @returns {Promise<Evaluation>}
 */
export async function evaluate(model, dataset, { batch = 8, windows = dataset.windows, tokenizer, signal, onProgress } = {}) {
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
        if (tokenizer) bytes += Buffer.byteLength(tokenizer.decode(row.slice(1)));
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
