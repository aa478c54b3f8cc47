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
 * @property {number} [numLayers] stacked layers, each reading the hidden states of the one below; 1 when left out
 */

/** What `GRU` and `LSTM` share: the parameters, and states split by layer. */
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

  /** A parameter of layer `l`. @param {string} name @param {number} l @returns {Tensor} */
  of(name, l) {
    return Reflect.get(/** @type {object} */ (this), `${name}_l${l}`);
  }

  /**
   * The part of a layer's gates that depends on the inputs, for all steps in one product: x W_ihᵀ + b_ih.
   * @param {Tensor} x [batch, steps, inputs] @param {number} l @returns {Tensor} f32 [batch, steps, gates · hidden]
   */
  gates(x, l) {
    if (x.ndim !== 3) throw new ShapeError(this.constructor.name, `expected an input [batch, steps, inputs], got ${show(x.shape)}`);
    return F.to(F.linear(x, this.of('weight_ih', l), this.of('bias_ih', l)), 'f32');
  }

  /**
   * The initial state of each layer, in f32. Throws a ShapeError for a state of another shape.
   * @param {Tensor | undefined} state [batch, hidden], or [layers, batch, hidden] with several layers; zeros when left out
   * @param {number} batch @returns {Tensor[]} [batch, hidden] each
   */
  split(state, batch) {
    const { numLayers, hidden } = this;
    const shape = numLayers === 1 ? [batch, hidden] : [numLayers, batch, hidden];
    const all = state === undefined ? F.zeros(shape) : tensorOf(this.constructor.name, state);
    if (show(all.shape) !== show(shape))
      throw new ShapeError(this.constructor.name, `expected a state ${show(shape)}, got ${show(all.shape)}`);
    const whole = F.reshape(F.to(all, 'f32'), [numLayers, batch, hidden]);
    return Array.from({ length: numLayers }, (_, l) => F.squeeze(F.slice(whole, 0, l, l + 1), 0));
  }

  /** The inverse of `split`. @param {Tensor[]} states [batch, hidden] each @returns {Tensor} */
  join(states) {
    return states.length === 1 ? states[0] : F.stack(states);
  }
}

/**
 * The state after t steps.
 * @param {Tensor} states [steps + 1, batch, hidden], the initial state first @param {number} t @returns {Tensor} [batch, hidden]
 */
const stateAt = (states, t) => F.squeeze(F.slice(states, 0, t, t + 1), 0);
/**
 * The states after each step.
 * @param {Tensor} states [steps + 1, batch, hidden], the initial state first @returns {Tensor} [batch, steps, hidden]
 */
const behind = (states) => F.permute(F.slice(states, 0, 1), [1, 0, 2]);

/**
 * Gated recurrent units (Cho et al. 2014) in PyTorch's form, batch first. The recurrence is computed in f32, under `autocast` too.
 * Layer `l` has `weight_ih_l` [3 · hidden, inputs], `weight_hh_l` [3 · hidden, hidden] and two biases [3 · hidden], as in PyTorch.
 */
export class GRU extends Recurrent {
  /** @param {number} inputs size of the last dimension of x @param {number} hidden size of a state @param {RecurrentOptions} [options] */
  constructor(inputs, hidden, options = {}) {
    super(inputs, hidden, 3, options);
  }
  /**
   * @param {Tensor} x [batch, steps, inputs]
   * @param {Tensor} [state] the initial state, [batch, hidden], or [layers, batch, hidden] with several layers; zeros when left out
   * @returns {[Tensor, Tensor]} the top layer's hidden states after each step, [batch, steps, hidden], and the final state, shaped as
   *   `state`
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

/**
 * Long short-term memory (Hochreiter & Schmidhuber 1997), batch first. The recurrence is computed in f32, under `autocast` too.
 * Parameters are named as in PyTorch, with 4 · hidden rows.
 */
export class LSTM extends Recurrent {
  /** @param {number} inputs size of the last dimension of x @param {number} hidden size of a state @param {RecurrentOptions} [options] */
  constructor(inputs, hidden, options = {}) {
    super(inputs, hidden, 4, options);
  }
  /**
   * @param {Tensor} x [batch, steps, inputs]
   * @param {[Tensor, Tensor]} [state] the initial hidden and cell state, [batch, hidden] each, or [layers, batch, hidden] with several
   *   layers; zeros when left out
   * @returns {[Tensor, [Tensor, Tensor]]} the top layer's hidden states after each step, [batch, steps, hidden], and the final hidden and
   *   cell state, shaped as `state`
   */
  forward(x, state) {
    if (state !== undefined && !(Array.isArray(state) && state.length === 2)) {
      throw new ArgumentError('LSTM', `the state must be two tensors, [hidden, cell], got ${describe(state)}`);
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
