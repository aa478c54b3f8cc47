/** The model without its backward pass: the logits of the next token, and the loss of text that it is not trained on. */

import { pack } from '../../kernels/index.mjs';

/** @typedef {import('./model.mjs').GptModel} GptModel */
/** @typedef {import('../../kernels/base.mjs').Dispatch} Dispatch */

/**
 * The logits after position `position` of the first `block` ids, in the model's `sampleLogits`.
 * @param {GptModel} model
 * @param {number} position
 * @returns {Dispatch[]}
 */
export function nextLogits(model, position) {
  const { width: C, vocab: V } = model.config;
  const norm = { buffer: model.last.norm, offset: position * C };
  const row = model.linear('head.weight', norm, model.sampleLogits, { m: 1, n: V, k: C, cType: 'f32' });
  return [...model.forward({ buffer: model.ids, offset: 0 }, 1), ...row];
}

/**
 * Where the sequences of a validation begin: spread evenly over the held-out tokens, without overlap, the same every time.
 * @param {number} tokens held out
 * @param {number} block tokens of a sequence, each with one that follows it
 * @param {number} most sequences
 * @returns {number[]}
 */
export function validationStarts(tokens, block, most) {
  const whole = Math.floor((tokens - 1) / block);
  if (whole < 1) throw new RangeError(`${tokens} tokens are held out; block ${block} needs at least ${block + 1}`);
  const count = Math.min(whole, most);
  return Array.from({ length: count }, (_, i) => Math.floor((i * whole) / count) * block);
}

/**
 * The mean loss over sequences of held-out tokens. Works on the buffers of a micro-step and leaves weights, moments and
 * gradients alone; drains the device.
 */
export class Validation {
  /**
   * @param {any} vk the native module
   * @param {GptModel} model
   * @param {Uint32Array} tokens held out
   * @param {number} [batches] sequences looked at are those of so many micro-steps, at most
   */
  constructor(vk, model, tokens, batches = 16) {
    const { block, batch } = model.config;
    this.vk = vk;
    this.model = model;
    this.tokens = tokens;
    this.starts = validationStarts(tokens.length, block, batches * batch);
    const rounds = Math.ceil(this.starts.length / batch);
    /** The mean of each round's sequences. */
    this.sums = model.allocate(4 * rounds);
    /** Sequences of each round, and its dispatches. */
    this.rounds = Array.from({ length: rounds }, (_, i) => {
      const starts = this.starts.slice(i * batch, (i + 1) * batch);
      return { starts, list: pack(this.round(i, starts.length)) };
    });
  }

  /** Tokens that are predicted. */
  get count() {
    return this.starts.length * this.model.config.block;
  }

  /** @param {number} index @param {number} sequences @returns {Dispatch[]} */
  round(index, sequences) {
    const { model } = this;
    const { kernels, config, rows } = model;
    const { width: C, block, vocab: V, batch } = config;
    const list = model.forward({ buffer: model.ids, offset: 0 }, batch);
    for (const { rows: m, norm, logits, targets, loss } of model.logitBlocks({ buffer: model.ids, offset: rows })) {
      list.push(...model.linear('head.weight', norm, logits, { m, n: V, k: C, cType: 'f32' }));
      list.push(...[kernels.crossEntropy({ logits, targets, loss, rows: m, columns: V })].flat());
    }
    // A last round that is not full repeats a sequence, which does not count.
    const count = sequences * block;
    list.push(...[kernels.reduceAll({ x: model.rowLosses, y: { buffer: this.sums, offset: index }, count, alpha: 1 / count })].flat());
    return list;
  }

  /** @returns {number} mean cross-entropy in nats, with the weights as they are after every step submitted so far */
  run() {
    const { vk, model, tokens } = this;
    const { block } = model.config;
    const half = model.rows;
    const ids = new Uint32Array(2 * half);
    for (const { starts, list } of this.rounds) {
      for (let row = 0; row * block < half; row++) {
        const at = starts[row] ?? starts[0];
        ids.set(tokens.subarray(at, at + block), row * block);
        ids.set(tokens.subarray(at + 1, at + block + 1), half + row * block);
      }
      vk.uploadBuffer(model.ids, ids);
      vk.batchExecuteAll(list.packed, list.count);
    }
    const means = vk.readBuffer(this.sums);
    return this.rounds.reduce((sum, { starts }, i) => sum + means[i] * starts.length, 0) / this.starts.length;
  }
}
