// Recurrent layers, with PyTorch's parameters and names.

import { ShapeError, show } from '../errors.mjs';
import * as F from '../functional.mjs';
import { gru } from '../ops/recurrent.mjs';
import { kaiming, positive } from './layers.mjs';
import { Module } from './module.mjs';

/** @typedef {import('../tensor.mjs').Tensor} Tensor */

class Recurrent extends Module {
  /** @param {number} inputs @param {number} hidden @param {number} gates */
  constructor(inputs, hidden, gates) {
    super();
    positive(this.constructor.name, 'inputs', inputs);
    positive(this.constructor.name, 'hidden', hidden);
    this.weight_ih_l0 = kaiming(hidden, [gates * hidden, inputs]);
    this.weight_hh_l0 = kaiming(hidden, [gates * hidden, hidden]);
    this.bias_ih_l0 = kaiming(hidden, [gates * hidden]);
    this.bias_hh_l0 = kaiming(hidden, [gates * hidden]);
    this.hidden = hidden;
  }

  /** Checks an input. @param {Tensor} x @returns {readonly number[]} [batch, steps, inputs] */
  sizes(x) {
    if (x.ndim !== 3) throw new ShapeError(this.constructor.name, `${show(x.shape)}, expected [batch, steps, inputs]`);
    return x.shape;
  }
  /**
   * What the inputs of all steps add to the gates, in one product.
   * @param {Tensor} x [batch, steps, inputs] @returns {Tensor[]} for each step [batch, gates]
   */
  inputGates(x) {
    const [, steps] = this.sizes(x);
    const gates = F.linear(x, this.weight_ih_l0, this.bias_ih_l0);
    return Array.from({ length: steps }, (_, t) => F.squeeze(F.slice(gates, 1, t, t + 1), 1));
  }
  /** What the last hidden state adds to the gates. @param {Tensor} h [batch, hidden] @returns {Tensor} [batch, gates · hidden] */
  hiddenGates(h) {
    return F.linear(h, this.weight_hh_l0, this.bias_hh_l0);
  }
  /** The columns of one gate. @param {Tensor} gates [batch, gates · hidden] @param {number} i @returns {Tensor} [batch, hidden] */
  gate(gates, i) {
    return F.slice(gates, 1, i * this.hidden, (i + 1) * this.hidden);
  }
}

/** Gated recurrent units (Cho et al. 2014), one layer, batch first. The recurrence is of f32, in `autocast` too. */
export class GRU extends Recurrent {
  /** @param {number} inputs @param {number} hidden */
  constructor(inputs, hidden) {
    super(inputs, hidden, 3);
  }
  /**
   * @param {Tensor} x [batch, steps, inputs] @param {Tensor} [state] [batch, hidden], zeros when left out
   * @returns {[Tensor, Tensor]} the hidden states of all steps [batch, steps, hidden], and the last one
   */
  forward(x, state) {
    const [batch, steps] = this.sizes(x);
    const gates = F.to(F.linear(x, this.weight_ih_l0, this.bias_ih_l0), 'f32');
    const first = F.to(state ?? F.zeros([batch, this.hidden]), 'f32');
    const states = F.call(gru, [gates, first, this.weight_hh_l0, this.bias_hh_l0]);
    return [F.permute(F.slice(states, 0, 1), [1, 0, 2]), F.squeeze(F.slice(states, 0, steps), 0)];
  }
}

/** Long short-term memory (Hochreiter & Schmidhuber 1997), one layer, batch first. */
export class LSTM extends Recurrent {
  /** @param {number} inputs @param {number} hidden */
  constructor(inputs, hidden) {
    super(inputs, hidden, 4);
  }
  /**
   * @param {Tensor} x [batch, steps, inputs] @param {[Tensor, Tensor]} [state] hidden and cell state, zeros when left out
   * @returns {[Tensor, [Tensor, Tensor]]} the hidden states of all steps, and the last states
   */
  forward(x, state) {
    let [h, c] = state ?? [F.zeros([x.shape[0], this.hidden]), F.zeros([x.shape[0], this.hidden])];
    const all = this.inputGates(x).map((input) => {
      const gates = F.add(input, this.hiddenGates(h));
      const [i, f, o] = [0, 1, 3].map((k) => F.sigmoid(this.gate(gates, k)));
      c = F.add(F.mul(f, c), F.mul(i, F.tanh(this.gate(gates, 2))));
      h = F.mul(o, F.tanh(c));
      return h;
    });
    return [F.stack(all, 1), [h, c]];
  }
}
