// Recurrent layers, with PyTorch's parameters and names.

import { describe } from '../core/errors.mjs';
import { ArgumentError, ShapeError, show, within } from '../core/errors.mjs';
import * as F from '../api/functional.mjs';
import { positive } from '../core/layout.mjs';
import { gru, lstm } from '../ops/recurrent.mjs';
import { apply, tensorOf } from '../core/engine.mjs';
import { checkOptions } from '../core/options.mjs';
import { kaiming } from './layers.mjs';
import { Module } from './module.mjs';

/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */

/**
 * Options of recurrent layers.
 * @typedef {object} RecurrentOptions
 * @property {number} [numLayers] layers, each of which takes the hidden states of the one below; 1 when left out
 */

class Recurrent extends Module {
  /** @param {number} inputs @param {number} hidden @param {number} gates @param {RecurrentOptions} options */
  constructor(inputs, hidden, gates, options) {
    super();
    const op = this.constructor.name;
    const { numLayers = 1 } = checkOptions(op, options, ['numLayers']);
    positive(op, 'inputs', inputs);
    positive(op, 'hidden', hidden);
    this.numLayers = positive(op, 'numLayers', numLayers);
    this.hidden = hidden;
    /** @type {Record<string, Tensor>} */
    const parameters = {};
    for (let l = 0; l < numLayers; l++) {
      parameters[`weight_ih_l${l}`] = kaiming(op, hidden, [gates * hidden, l === 0 ? inputs : hidden]);
      parameters[`weight_hh_l${l}`] = kaiming(op, hidden, [gates * hidden, hidden]);
      parameters[`bias_ih_l${l}`] = kaiming(op, hidden, [gates * hidden]);
      parameters[`bias_hh_l${l}`] = kaiming(op, hidden, [gates * hidden]);
    }
    Object.assign(this, parameters);
  }

  /** A parameter of a layer. @param {string} name @param {number} l @returns {Tensor} */
  of(name, l) {
    return Reflect.get(/** @type {object} */ (this), `${name}_l${l}`);
  }

  /**
   * What the inputs of all steps add to a layer's gates, in one product.
   * @param {Tensor} x [batch, steps, inputs] @param {number} l @returns {Tensor} f32 [batch, steps, gates · hidden]
   */
  gates(x, l) {
    if (x.ndim !== 3) throw new ShapeError(this.constructor.name, `${show(x.shape)}, expected [batch, steps, inputs]`);
    return F.to(F.linear(x, this.of('weight_ih', l), this.of('bias_ih', l)), 'f32');
  }

  /**
   * The first states of each layer, f32.
   * @param {Tensor | undefined} state [batch, hidden], of several layers [layers, batch, hidden]; zeros when left out
   * @param {number} batch @returns {Tensor[]} [batch, hidden]
   */
  split(state, batch) {
    const { numLayers, hidden } = this;
    const shape = numLayers === 1 ? [batch, hidden] : [numLayers, batch, hidden];
    const all = state === undefined ? F.zeros(shape) : tensorOf(this.constructor.name, state);
    if (show(all.shape) !== show(shape)) throw new ShapeError(this.constructor.name, `a state ${show(all.shape)}, expected ${show(shape)}`);
    const whole = F.reshape(F.to(all, 'f32'), [numLayers, batch, hidden]);
    return Array.from({ length: numLayers }, (_, l) => F.squeeze(F.slice(whole, 0, l, l + 1), 0));
  }

  /** States of the layers as `split` takes them. @param {Tensor[]} states [batch, hidden] each @returns {Tensor} */
  join(states) {
    return states.length === 1 ? states[0] : F.stack(states);
  }
}

/** States of one step, of states of all steps. @param {Tensor} states [steps + 1, batch, hidden] @param {number} t @returns {Tensor} [batch, hidden] */
const stateAt = (states, t) => F.squeeze(F.slice(states, 0, t, t + 1), 0);
/** States behind each step. @param {Tensor} states [steps + 1, batch, hidden], from the first one on @returns {Tensor} [batch, steps, hidden] */
const behind = (states) => F.permute(F.slice(states, 0, 1), [1, 0, 2]);

/** Gated recurrent units (Cho et al. 2014), batch first. The recurrence is of f32, in `autocast` too. */
export class GRU extends Recurrent {
  /** @param {number} inputs @param {number} hidden @param {RecurrentOptions} [options] */
  constructor(inputs, hidden, options = {}) {
    super(inputs, hidden, 3, options);
  }
  /**
   * @param {Tensor} x [batch, steps, inputs]
   * @param {Tensor} [state] [batch, hidden], of several layers [layers, batch, hidden]; zeros when left out
   * @returns {[Tensor, Tensor]} the hidden states of all steps [batch, steps, hidden], and the last one of each layer
   */
  forward(x, state) {
    tensorOf('GRU', x);
    return within('GRU', () => this.#states(x, state));
  }
  /** @param {Tensor} x @param {Tensor} [state] @returns {[Tensor, Tensor]} */
  #states(x, state) {
    const first = this.split(state, x.shape[0]);
    const last = first.map((own, l) => {
      const gates = this.gates(x, l);
      const states = apply(gru, [gates, own, this.of('weight_hh', l), this.of('bias_hh', l)]);
      x = behind(states);
      return stateAt(states, gates.shape[1]);
    });
    return [x, this.join(last)];
  }
}

/** Long short-term memory (Hochreiter & Schmidhuber 1997), batch first. The recurrence is of f32, in `autocast` too. */
export class LSTM extends Recurrent {
  /** @param {number} inputs @param {number} hidden @param {RecurrentOptions} [options] */
  constructor(inputs, hidden, options = {}) {
    super(inputs, hidden, 4, options);
  }
  /**
   * @param {Tensor} x [batch, steps, inputs]
   * @param {[Tensor, Tensor]} [state] hidden and cell state, [batch, hidden] each, of several layers [layers, batch, hidden]; zeros
   *   when left out
   * @returns {[Tensor, [Tensor, Tensor]]} the hidden states of all steps, and the last states of each layer
   */
  forward(x, state) {
    if (state !== undefined && !(Array.isArray(state) && state.length === 2)) {
      throw new ArgumentError('LSTM', `a state is two tensors, [hidden, cell], got ${describe(state)}`);
    }
    tensorOf('LSTM', x);
    return within('LSTM', () => this.#states(x, state));
  }
  /** @param {Tensor} x @param {[Tensor, Tensor]} [state] @returns {[Tensor, [Tensor, Tensor]]} */
  #states(x, state) {
    const [hidden, cell] = [0, 1].map((i) => this.split(state?.[i], x.shape[0]));
    const last = hidden.map((own, l) => {
      const gates = this.gates(x, l);
      const both = apply(lstm, [gates, own, cell[l], this.of('weight_hh', l), this.of('bias_hh', l)]);
      const [states, cells] = [0, 1].map((i) => F.squeeze(F.slice(both, 0, i, i + 1), 0));
      x = behind(states);
      return [states, cells].map((all) => stateAt(all, gates.shape[1]));
    });
    return [x, [this.join(last.map(([h]) => h)), this.join(last.map(([, c]) => c))]];
  }
}
