/** The next token's logits: the forward pass that text is generated with. It holds the model's weights, and no gradients or optimizer. */

import { autocast, compile, init, nn, noGrad } from 'helios-vk/nn';
import { checkModel, checkPrecision, halfOf } from './config.mjs';
import { checkMatrixUnits, copyFromHost, setPrecision } from './device.mjs';
import { checkFits } from './limits.mjs';
import { Gpt } from './model.mjs';

/** @typedef {import('./config.mjs').ModelConfig} ModelConfig */
/** @typedef {import('./config.mjs').Precision} Precision */
/** @typedef {import('helios-vk/nn').Tensor} Tensor */

export class Generator {
  /**
   * @param {Gpt} model on the device; stays the caller's
   * @param {Precision} precision
   * @param {{ graph?: boolean }} [options] whether a pass is launched as a recorded graph; true when left out
   */
  constructor(model, precision, { graph = true } = {}) {
    this.config = model.config;
    this.precision = precision;
    /** The logits that follow one position of a context. @param {Tensor} ids [block] @param {Tensor} position [1] @returns {Tensor} [1, vocab] */
    const logitsAt = (ids, position) => {
      const row = () => model.head.forward(model.hidden(ids.reshape(1, -1)).at(0).indexSelect(0, position));
      return noGrad(() => autocast(halfOf(precision), row));
    };
    this.compiled = compile(logitsAt, { graph, reuseOutputs: true });
  }

  /**
   * The logits of the token that follows a context.
   * @param {ArrayLike<number>} context 1 to `block` ids
   * @returns {Promise<Float32Array>} `vocab` logits
   * @throws {RangeError} (as a rejection) for a context of another length
   */
  async nextLogits(context) {
    const { block } = this.config;
    if (context.length < 1 || context.length > block) {
      throw new RangeError(`the context must have 1 to ${block} tokens, got ${context.length}`);
    }
    const ids = new Uint32Array(block);
    ids.set(Array.from(context));
    setPrecision(this.precision);
    const position = Uint32Array.of(context.length - 1);
    const logits = /** @type {Tensor} */ (this.compiled(/** @type {any} */ (ids), /** @type {any} */ (position)));
    const values = logits.toArray();
    logits.dispose();
    return /** @type {Promise<Float32Array>} */ (values);
  }

  /** Frees what the passes need; the model stays. */
  dispose() {
    this.compiled.dispose();
  }
}

/**
 * Puts a model on the device to generate text with. The addon becomes that of `helios-vk/nn`: to use another one in the same process,
 * call its `reset`.
 * @param {any} vk the native module
 * @param {ModelConfig} config
 * @param {import('./state.mjs').HostState} weights
 * @param {Precision} precision
 * @returns {{ generator: Generator, destroy: () => void }} `destroy` frees the model too
 * @throws {RangeError} where the device has no matrix units for the precision (`code` is `NO_MATRIX_UNITS`), or the model does not fit it
 */
export function loadGenerator(vk, config, weights, precision) {
  checkModel(config);
  checkPrecision(config, precision);
  const info = init({ vk });
  checkMatrixUnits(vk, precision, info.deviceName);
  checkFits(config, { batch: 1, precision }, info);
  const model = nn.skipInit(() => new Gpt(config)).requiresGrad_(false);
  copyFromHost(model.stateDict(), weights);
  const generator = new Generator(model, precision);
  const destroy = () => {
    generator.dispose();
    model.dispose();
  };
  return { generator, destroy };
}
