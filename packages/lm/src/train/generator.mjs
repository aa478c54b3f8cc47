// The next token's logits: the forward pass that text is generated with. It holds the model's weights, and no gradients or optimizer.

import { autocast, compile, noGrad } from 'helios-vk/nn';
import { setPrecision } from './device.mjs';
import { halfOf } from './settings.mjs';

/** @typedef {import('../model/decoder.mjs').Decoder} Decoder */
/** @typedef {import('./settings.mjs').Precision} Precision */
/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/**
 * Typed arrays stand for tensors, which the type of `compile` does not say.
 * @typedef {ReturnType<typeof compile<(ids: Tensor | Uint32Array, position: Tensor | Uint32Array) => Tensor>>} Compiled
 */

export class Generator {
  /**
   * @param {Decoder} model on the device; stays the caller's
   * @param {Precision} precision
   * @param {{ block?: number, graph?: boolean }} [options] `block`: the longest context, the model's when left out; `graph`: whether a pass is
   *   launched as a recorded graph, true when left out
   */
  constructor(model, precision, { block = model.config.context, graph = true } = {}) {
    this.block = block;
    this.precision = precision;
    /** The logits that follow one position of a context. @param {Tensor} ids [block] @param {Tensor} position [1] @returns {Tensor} [1, vocabSize] */
    const logitsAt = (ids, position) => noGrad(() => autocast(halfOf(precision), () => model.logitsAt(ids.reshape(1, -1), position)));
    this.compiled = /** @type {Compiled} */ (compile(logitsAt, { graph, reuseOutputs: true }));
  }

  /**
   * The logits of the token that follows a context.
   * @param {ArrayLike<number>} context 1 to `block` ids
   * @returns {Promise<Float32Array>} `vocabSize` logits
   * @throws {RangeError} (as a rejection) for a context of another length
   */
  async nextLogits(context) {
    const { block } = this;
    if (context.length < 1 || context.length > block) {
      throw new RangeError(`the context must have 1 to ${block} tokens, got ${context.length}`);
    }
    const ids = new Uint32Array(block);
    ids.set(Array.from(context));
    setPrecision(this.precision);
    const position = Uint32Array.of(context.length - 1);
    const logits = this.compiled(ids, position);
    const values = logits.toArray();
    logits.dispose();
    return /** @type {Promise<Float32Array>} */ (values);
  }

  /** Frees what the passes need; the model stays. */
  dispose() {
    this.compiled.dispose();
  }
}
