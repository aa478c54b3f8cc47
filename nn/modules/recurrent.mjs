// Recurrent layers and cells, with PyTorch's parameters and names.

import { ArgumentError, ShapeError, describe, show, within } from '../core/errors.mjs';
import { gru, lstm, rnn } from '../api/recurrent.mjs';
import * as F from '../api/functional.mjs';
import { positive } from '../core/layout.mjs';
import { tensorOf } from '../core/engine.mjs';
import { track } from '../core/guards.mjs';
import { TensorCore } from '../core/tensor.mjs';
import { checkOptions, checkProbability, flag } from '../core/options.mjs';
import { kaiming } from './layers.mjs';
import { Module } from './module.mjs';

/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */

/** Options of recurrent layers: those of the functions, without `training`. @typedef {Omit<import('../api/recurrent.mjs').RecurrenceOptions, 'training'>} RecurrentOptions */

/**
 * Options of recurrent cells.
 * @typedef {object} CellOptions
 * @property {boolean} [bias] whether there are biases; true when left out
 */

/** @typedef {import('../api/recurrent.mjs').NonlinearityOptions} NonlinearityOptions */

const OPTIONS = /** @type {const} */ (['numLayers', 'bidirectional', 'dropout', 'batchFirst', 'bias']);

/** The names of the parameters of a layer, or of a cell. @param {boolean} bias @param {string} [suffix] */
const namesOf = (bias, suffix = '') => ['weight_ih', 'weight_hh', ...(bias ? ['bias_ih', 'bias_hh'] : [])].map((name) => name + suffix);

/**
 * Parameters of a layer, uniform in ±1 / √hidden, by name. @param {string} op @param {number} inputs @param {number} hidden @param {number} gates
 * @param {string[]} names
 */
function parametersOf(op, inputs, hidden, gates, names) {
  const shapes = [[gates * hidden, inputs], [gates * hidden, hidden], [gates * hidden], [gates * hidden]];
  return Object.fromEntries(names.map((name, i) => [name, kaiming(op, hidden, shapes[i])]));
}

/**
 * Calls a recurrence with the first states of a layer. Those of one layer and direction may be [1, batch, hidden], as PyTorch has them: the last
 * states are then, too.
 * @param {Recurrent} layer @param {Tensor} x @param {Tensor[] | undefined} states
 * @param {(states: Tensor[] | undefined) => [Tensor, Tensor[]]} recurrence @returns {[Tensor, Tensor[]]}
 */
function asGiven({ numLayers, bidirectional, batchFirst, hiddenSize }, x, states, recurrence) {
  // Others go to the recurrence as they are: its error has their own shape.
  const own = show([1, x?.shape?.[batchFirst ? 0 : 1], hiddenSize]);
  const isOne = (/** @type {unknown} */ state) => state instanceof TensorCore && show(state.shape) === own;
  if (numLayers > 1 || bidirectional || !states?.every(isOne)) return recurrence(states);
  const [y, last] = recurrence(states.map((state) => F.squeeze(state, 0)));
  return [y, last.map((state) => F.unsqueeze(state, 0))];
}

/** What recurrent layers share: the parameters. */
class Recurrent extends Module {
  /** @param {number} inputs @param {number} hidden @param {number} gates @param {RecurrentOptions} options */
  constructor(inputs, hidden, gates, options) {
    super();
    const op = this.constructor.name;
    const { numLayers = 1, bidirectional = false, dropout = 0, batchFirst = true, bias = true } = checkOptions(op, options, OPTIONS);
    positive(op, 'inputs', inputs);
    positive(op, 'hidden', hidden);
    this.numLayers = positive(op, 'numLayers', numLayers);
    for (const [name, value] of Object.entries({ bidirectional, batchFirst, bias })) flag(op, name, value);
    checkProbability(op, 'dropout', dropout);
    this.inputSize = inputs;
    this.hiddenSize = hidden;
    this.bidirectional = bidirectional;
    this.dropout = dropout;
    this.batchFirst = batchFirst;
    this.bias = bias;
    for (let l = 0; l < numLayers; l++) {
      const width = l === 0 ? inputs : hidden * (bidirectional ? 2 : 1);
      for (const names of this.#names(l)) Object.assign(this, parametersOf(op, width, hidden, gates, names));
    }
  }

  /** The names of a layer's parameters, for each direction. @param {number} l */
  #names(l) {
    return ['', ...(this.bidirectional ? ['_reverse'] : [])].map((direction) => namesOf(this.bias, `_l${l}${direction}`));
  }

  /** All parameters, in PyTorch's order. @returns {Tensor[]} */
  flat() {
    const names = Array.from({ length: this.numLayers }, (_, l) => this.#names(l)).flat(2);
    return names.map((name) => Reflect.get(/** @type {object} */ (this), name));
  }

  /** The options of the function. @returns {import('../api/recurrent.mjs').RecurrenceOptions} */
  get options() {
    const { numLayers, bidirectional, batchFirst, bias, training } = this;
    const dropout = track(this, 'dropout', this.dropout);
    return { numLayers, bidirectional, dropout, batchFirst, bias, training };
  }
}

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
   * @param {Tensor} [state] the initial state, [batch, hidden] or [1, batch, hidden], or [layers · directions, batch, hidden] where there is more
   *   than one; zeros when left out
   * @returns {[Tensor, Tensor]} the top layer's hidden states after each step, [batch, steps, directions · hidden], and the final state, shaped
   *   as `state`
   */
  forward(x, state) {
    return within('GRU', () => {
      const [y, [last]] = asGiven(this, x, state === undefined ? undefined : [state], (states) => {
        const [own, after] = gru(x, states?.[0], this.flat(), this.options);
        return [own, [after]];
      });
      return [y, last];
    });
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
   * @param {[Tensor, Tensor]} [state] the initial hidden and cell state, [batch, hidden] or [1, batch, hidden] each, or [layers · directions,
   *   batch, hidden] where there is more than one; zeros when left out
   * @returns {[Tensor, [Tensor, Tensor]]} the top layer's hidden states after each step, [batch, steps, directions · hidden], and the final
   *   hidden and cell state, shaped as `state`
   */
  forward(x, state) {
    const run = (/** @type {any} */ own) => lstm(x, own, this.flat(), this.options);
    return within(
      'LSTM',
      () => /** @type {any} */ (Array.isArray(state) && state.length === 2 ? asGiven(this, x, state, run) : run(state)),
    );
  }
}

/** The simple recurrence (Elman 1990), batch first; see `F.rnn`. Parameters are named as in PyTorch, with `hidden` rows. */
export class RNN extends Recurrent {
  /**
   * @param {number} inputs size of the last dimension of x @param {number} hidden size of a state
   * @param {RecurrentOptions & NonlinearityOptions} [options]
   */
  constructor(inputs, hidden, options = {}) {
    const { nonlinearity = 'tanh', ...rest } = checkOptions('RNN', options, [...OPTIONS, 'nonlinearity']);
    super(inputs, hidden, 1, rest);
    this.nonlinearity = nonlinearity;
  }
  /**
   * @param {Tensor} x [batch, steps, inputs] @param {Tensor} [state] as of `GRU`
   * @returns {[Tensor, Tensor]} as of `GRU`
   */
  forward(x, state) {
    const { nonlinearity } = this;
    return within('RNN', () => {
      const [y, [last]] = asGiven(this, x, state === undefined ? undefined : [state], (states) => {
        const [own, after] = rnn(x, states?.[0], this.flat(), { ...this.options, nonlinearity });
        return [own, [after]];
      });
      return [y, last];
    });
  }
}

/** What cells share: the parameters, and one step of the function. */
class Cell extends Module {
  /** @param {number} inputs @param {number} hidden @param {number} gates @param {CellOptions} options */
  constructor(inputs, hidden, gates, options) {
    super();
    const op = this.constructor.name;
    const { bias = true } = checkOptions(op, options, ['bias']);
    positive(op, 'inputs', inputs);
    positive(op, 'hidden', hidden);
    flag(op, 'bias', bias);
    this.bias = bias;
    Object.assign(this, parametersOf(op, inputs, hidden, gates, namesOf(bias)));
  }
  /**
   * One step. @template T @param {Tensor} x [batch, inputs]
   * @param {(x: Tensor, parameters: Tensor[], options: { bias: boolean }) => [Tensor, T]} f @returns {T} the last state
   */
  one(x, f) {
    const op = this.constructor.name;
    if (tensorOf(op, x).ndim !== 2) throw new ShapeError(op, `expected an input [batch, inputs], got ${show(x.shape)}`);
    const parameters = namesOf(this.bias).map((name) => Reflect.get(/** @type {object} */ (this), name));
    return within(op, () => f(F.unsqueeze(x, 1), parameters, { bias: this.bias })[1]);
  }
}

/** One step of a `GRU`. Parameters are `weight_ih`, `weight_hh`, `bias_ih` and `bias_hh`, as in PyTorch. */
export class GRUCell extends Cell {
  /** @param {number} inputs @param {number} hidden @param {CellOptions} [options] */
  constructor(inputs, hidden, options = {}) {
    super(inputs, hidden, 3, options);
  }
  /** @param {Tensor} x [batch, inputs] @param {Tensor} [state] [batch, hidden]; zeros when left out @returns {Tensor} [batch, hidden] */
  forward(x, state) {
    return this.one(x, (own, parameters, options) => gru(own, state, parameters, options));
  }
}

/** One step of an `LSTM`. Parameters are `weight_ih`, `weight_hh`, `bias_ih` and `bias_hh`, as in PyTorch. */
export class LSTMCell extends Cell {
  /** @param {number} inputs @param {number} hidden @param {CellOptions} [options] */
  constructor(inputs, hidden, options = {}) {
    super(inputs, hidden, 4, options);
  }
  /**
   * @param {Tensor} x [batch, inputs] @param {[Tensor, Tensor]} [state] hidden and cell state, [batch, hidden] each; zeros when left out
   * @returns {[Tensor, Tensor]} the next ones
   */
  forward(x, state) {
    if (state !== undefined && !(Array.isArray(state) && state.length === 2))
      throw new ArgumentError('LSTMCell', `the state must be two tensors, [hidden, cell], got ${describe(state)}`);
    return this.one(x, (own, parameters, options) => lstm(own, state, parameters, options));
  }
}

/** One step of an `RNN`. Parameters are `weight_ih`, `weight_hh`, `bias_ih` and `bias_hh`, as in PyTorch. */
export class RNNCell extends Cell {
  /** @param {number} inputs @param {number} hidden @param {CellOptions & NonlinearityOptions} [options] */
  constructor(inputs, hidden, options = {}) {
    const { nonlinearity = 'tanh', ...rest } = checkOptions('RNNCell', options, ['bias', 'nonlinearity']);
    super(inputs, hidden, 1, rest);
    this.nonlinearity = nonlinearity;
  }
  /** @param {Tensor} x [batch, inputs] @param {Tensor} [state] [batch, hidden]; zeros when left out @returns {Tensor} [batch, hidden] */
  forward(x, state) {
    const { nonlinearity } = this;
    return this.one(x, (own, parameters, options) => rnn(own, state, parameters, { ...options, nonlinearity }));
  }
}
