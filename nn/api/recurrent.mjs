// Recurrent layers as functions: stacked, in one or both directions, with parameters in PyTorch's order.

import { apply, tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, describe, show, shown, within } from '../core/errors.mjs';
import { positive } from '../core/layout.mjs';
import { checkOptions, checkProbability, flag } from '../core/options.mjs';
import { TensorCore } from '../core/tensor.mjs';
import * as ops from '../ops/recurrent.mjs';
import { autocastType } from './autocast.mjs';
import * as F from './functional.mjs';
import { flip } from './shape.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */

/**
 * Options of recurrent functions.
 * @typedef {object} RecurrenceOptions
 * @property {number} [numLayers] stacked layers, each reading the hidden states of the one below; 1 when left out
 * @property {boolean} [bidirectional] whether a second recurrence goes from the last step to the first; the results are side by side. false when
 *   left out
 * @property {number} [dropout] the probability with which an element of the states between layers is dropped while training, in [0, 1]; 0
 *   when left out
 * @property {boolean} [training] whether `dropout` drops; false when left out
 * @property {boolean} [batchFirst] whether x is [batch, steps, inputs], as when left out; false for [steps, batch, inputs], PyTorch's default
 * @property {boolean} [bias] whether the parameters contain biases; true when left out
 */

/**
 * Options of `rnn` besides those of every recurrent function.
 * @typedef {object} NonlinearityOptions
 * @property {'tanh' | 'relu'} [nonlinearity] what the states go through; 'tanh' when left out
 */

const OPTIONS = /** @type {const} */ (['numLayers', 'bidirectional', 'dropout', 'training', 'batchFirst', 'bias']);

/**
 * One recurrence over a sequence: the states after each step [batch, steps, hidden], and the last states.
 * @typedef {(gates: Tensor, first: Tensor[], weight: Tensor, bias: Tensor) => { all: Tensor, last: Tensor[] }} Recurrence
 */

/** Elements [steps + 1, batch, hidden] of the states, the first in front. @param {Tensor} states */
const unpacked = (states) => ({
  all: F.permute(F.slice(states, 0, 1), [1, 0, 2]),
  last: F.squeeze(F.slice(states, 0, -1), 0),
});

/** What the operations get of `autocast`. In f16, whose range small gradients leave, the product of the states' gradient stays in f32. */
function attributesNow() {
  return autocastType() === 'bf16' ? { products: 'bf16' } : undefined;
}

/** @type {Record<'lstm' | 'gru', Recurrence>} */
const RECURRENCES = {
  gru: (gates, [state], weight, bias) => {
    const { all, last } = unpacked(apply(ops.gru, [gates, state, weight, bias], attributesNow()));
    return { all, last: [last] };
  },
  lstm: (gates, [hidden, cell], weight, bias) => {
    const both = apply(ops.lstm, [gates, hidden, cell, weight, bias], attributesNow());
    const [states, cells] = [0, 1].map((i) => unpacked(F.squeeze(F.slice(both, 0, i, i + 1), 0)));
    return { all: states.all, last: [states.last, cells.last] };
  },
};
/** @param {(x: Tensor) => Tensor} activation @returns {Recurrence} */
const elman =
  (activation) =>
  (gates, [state], weight, bias) => {
    const list = [];
    const fromInput = F.add(gates, bias);
    for (let t = 0; t < gates.shape[1]; t++) {
      state = activation(F.add(F.squeeze(F.slice(fromInput, 1, t, t + 1), 1), F.linear(state, weight)));
      list.push(state);
    }
    return { all: F.stack(list, 1), last: [state] };
  };

/**
 * All layers and directions. @param {string} op @param {number} gates @param {Recurrence} recurrence @param {Tensor} x
 * @param {(Tensor | undefined)[]} given the first states @param {Tensor[]} parameters @param {RecurrenceOptions} options
 * @returns {[Tensor, Tensor[]]}
 */
function layers(op, gates, recurrence, x, given, parameters, options) {
  const { numLayers = 1, bidirectional = false, dropout = 0, training = false, batchFirst = true, bias = true } = options;
  positive(op, 'numLayers', numLayers);
  for (const [name, value] of Object.entries({ bidirectional, training, batchFirst, bias })) flag(op, name, value);
  checkProbability(op, 'dropout', dropout);
  const [each, directions] = [bias ? 4 : 2, bidirectional ? 2 : 1];
  const count = numLayers * directions;
  if (!Array.isArray(parameters) || parameters.length !== each * count)
    throw new ArgumentError(op, `expected ${each * count} parameters, got ${describe(parameters)}`);
  for (const parameter of parameters) tensorOf(op, parameter);
  if (tensorOf(op, x).ndim !== 3) {
    const sizes = batchFirst ? '[batch, steps, inputs]' : '[steps, batch, inputs]';
    throw new ShapeError(op, `expected an input ${sizes}, got ${show(x.shape)}`);
  }
  const hidden = parameters[1].shape.at(-1) ?? 1;
  const [batch, steps] = batchFirst ? x.shape : [x.shape[1], x.shape[0]];
  if (steps === 0) throw new ShapeError(op, `an input ${show(x.shape)} has no step`);
  const shape = count === 1 ? [batch, hidden] : [count, batch, hidden];
  for (const state of given) {
    if (state !== undefined && show(tensorOf(op, state).shape) !== show(shape))
      throw new ShapeError(op, `expected a state ${show(shape)}, got ${show(state.shape)}`);
  }
  return within(op, () => {
    const states = given.map((state) => F.reshape(state ? F.to(state, 'f32') : F.zeros(shape), [count, batch, hidden]));
    let own = batchFirst ? x : F.transpose(x, 0, 1);
    /** @type {Tensor[][]} */
    const last = [];
    for (let l = 0; l < numLayers; l++) {
      if (l > 0) own = F.dropout(own, dropout, training);
      const results = [];
      for (let d = 0; d < directions; d++) {
        const i = l * directions + d;
        const [input, recurrent, ofInput, ofState = F.zeros([gates * hidden])] = parameters.slice(each * i, each * (i + 1));
        const read = d === 1 ? flip(own, 1) : own;
        const first = states.map((state) => F.squeeze(F.slice(state, 0, i, i + 1), 0));
        const result = recurrence(F.to(F.linear(read, input, ofInput), 'f32'), first, recurrent, ofState);
        results.push(d === 1 ? flip(result.all, 1) : result.all);
        last.push(result.last);
      }
      own = directions === 1 ? results[0] : F.cat(results, 2);
    }
    const joined = given.map((_, i) => (count === 1 ? last[0][i] : F.stack(last.map((list) => list[i]))));
    return [batchFirst ? own : F.transpose(own, 0, 1), joined];
  });
}

/**
 * Long short-term memory (Hochreiter & Schmidhuber 1997). The recurrence is computed in f32, under `autocast` too;
 * there the products of all steps, of the inputs and of weights' gradients, are of halves (that of the states' weight in bf16 alone).
 * @param {Tensor} x [batch, steps, inputs]
 * @param {[Tensor, Tensor] | undefined} state the first hidden and cell states, [batch, hidden] each, or [layers · directions, batch, hidden]
 *   where there is more than one; zeros when undefined
 * @param {Tensor[]} parameters of each layer and direction: the weights of inputs [4 · hidden, inputs] and states [4 · hidden, hidden], and
 *   both biases [4 · hidden]
 * @param {RecurrenceOptions} [options]
 * @returns {[Tensor, [Tensor, Tensor]]} the states of the top layer after each step, [batch, steps, directions · hidden], and the last states
 */
export function lstm(x, state, parameters, options = {}) {
  const own = checkOptions('lstm', options, OPTIONS);
  if (state !== undefined && !(Array.isArray(state) && state.length === 2))
    throw new ArgumentError('lstm', `the state must be two tensors, [hidden, cell], got ${describe(state)}`);
  const given = state ?? [undefined, undefined];
  return /** @type {[Tensor, [Tensor, Tensor]]} */ (layers('lstm', 4, RECURRENCES.lstm, x, given, parameters, own));
}

/**
 * Gated recurrent units (Cho et al. 2014) in PyTorch's form. The recurrence is computed in f32, under `autocast` too;
 * there the products of all steps, of the inputs and of weights' gradients, are of halves (that of the states' weight in bf16 alone).
 * @param {Tensor} x [batch, steps, inputs] @param {Tensor | undefined} state as of `lstm`, one tensor
 * @param {Tensor[]} parameters as of `lstm`, with 3 · hidden rows @param {RecurrenceOptions} [options]
 * @returns {[Tensor, Tensor]} the states of the top layer after each step, and the last states
 */
export function gru(x, state, parameters, options = {}) {
  const [y, [last]] = layers('gru', 3, RECURRENCES.gru, x, [state], parameters, checkOptions('gru', options, OPTIONS));
  return [y, last];
}

/**
 * The simple recurrence (Elman 1990): h = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu of it.
 * @param {Tensor} x [batch, steps, inputs] @param {Tensor | undefined} state as of `lstm`, one tensor
 * @param {Tensor[]} parameters as of `lstm`, with `hidden` rows @param {RecurrenceOptions & NonlinearityOptions} [options]
 * @returns {[Tensor, Tensor]} the states of the top layer after each step, and the last states
 */
export function rnn(x, state, parameters, options = {}) {
  const { nonlinearity = 'tanh', ...own } = checkOptions('rnn', options, [...OPTIONS, 'nonlinearity']);
  if (nonlinearity !== 'tanh' && nonlinearity !== 'relu')
    throw new ArgumentError('rnn', `nonlinearity is 'tanh' or 'relu', got ${shown(nonlinearity)}`);
  const [y, [last]] = layers('rnn', 1, elman(nonlinearity === 'tanh' ? F.tanh : F.relu), x, [state], parameters, own);
  return [y, last];
}

/**
 * One step of a recurrent function.
 * @template {Tensor | [Tensor, Tensor]} S
 * @param {string} op @param {Tensor} x [batch, inputs]
 * @param {(x: Tensor, parameters: Tensor[], options: { bias: boolean }) => [Tensor, S]} f
 * @param {Tensor[]} weights @param {(Tensor | undefined)[]} biases none, or all @returns {S}
 */
function step(op, x, f, weights, biases) {
  if (tensorOf(op, x).ndim !== 2) throw new ShapeError(op, `expected an input [batch, inputs], got ${show(x.shape)}`);
  if ((biases[0] === undefined) !== (biases[1] === undefined)) throw new ArgumentError(op, 'takes both biases or none');
  const given = biases.filter((bias) => bias !== undefined).map((bias) => tensorOf(op, bias));
  for (const weight of weights) tensorOf(op, weight);
  return within(op, () => f(F.unsqueeze(x, 1), [...weights, ...given], { bias: given.length > 0 })[1]);
}
/**
 * One step of `lstm`, as `torch.lstm_cell`.
 * @param {Tensor} x [batch, inputs] @param {[Tensor, Tensor]} state hidden and cell state, [batch, hidden] each
 * @param {Tensor} weightIh [4 · hidden, inputs] @param {Tensor} weightHh [4 · hidden, hidden]
 * @param {Tensor} [biasIh] [4 · hidden] @param {Tensor} [biasHh] [4 · hidden], with the other or not at all @returns {[Tensor, Tensor]} the next ones
 */
export const lstmCell = (x, state, weightIh, weightHh, biasIh, biasHh) =>
  step('lstmCell', x, (own, parameters, options) => lstm(own, state, parameters, options), [weightIh, weightHh], [biasIh, biasHh]);
/**
 * One step of `gru`, as `torch.gru_cell`.
 * @param {Tensor} x [batch, inputs] @param {Tensor} state [batch, hidden] @param {Tensor} weightIh [3 · hidden, inputs]
 * @param {Tensor} weightHh [3 · hidden, hidden] @param {Tensor} [biasIh] [3 · hidden] @param {Tensor} [biasHh] as of `lstmCell`
 * @returns {Tensor} the next state
 */
export const gruCell = (x, state, weightIh, weightHh, biasIh, biasHh) =>
  step('gruCell', x, (own, parameters, options) => gru(own, state, parameters, options), [weightIh, weightHh], [biasIh, biasHh]);
/**
 * @param {'rnnTanhCell' | 'rnnReluCell'} op @param {'tanh' | 'relu'} nonlinearity @param {Tensor} x @param {Tensor} state @param {Tensor[]} weights
 * @param {(Tensor | undefined)[]} biases @returns {Tensor}
 */
const elmanCell = (op, nonlinearity, x, state, weights, biases) =>
  step(op, x, (own, parameters, how) => rnn(own, state, parameters, { ...how, nonlinearity }), weights, biases);
/**
 * One step of `rnn` with tanh, as `torch.rnn_tanh_cell`.
 * @param {Tensor} x [batch, inputs] @param {Tensor} state [batch, hidden] @param {Tensor} weightIh [hidden, inputs] @param {Tensor} weightHh [hidden, hidden]
 * @param {Tensor} [biasIh] [hidden] @param {Tensor} [biasHh] as of `lstmCell` @returns {Tensor} the next state
 */
export const rnnTanhCell = (x, state, weightIh, weightHh, biasIh, biasHh) =>
  elmanCell('rnnTanhCell', 'tanh', x, state, [weightIh, weightHh], [biasIh, biasHh]);
/**
 * One step of `rnn` with relu, as `torch.rnn_relu_cell`.
 * @param {Tensor} x [batch, inputs] @param {Tensor} state [batch, hidden] @param {Tensor} weightIh [hidden, inputs] @param {Tensor} weightHh [hidden, hidden]
 * @param {Tensor} [biasIh] [hidden] @param {Tensor} [biasHh] as of `lstmCell` @returns {Tensor} the next state
 */
export const rnnReluCell = (x, state, weightIh, weightHh, biasIh, biasHh) =>
  elmanCell('rnnReluCell', 'relu', x, state, [weightIh, weightHh], [biasIh, biasHh]);
/**
 * One step of stacked cells, each of which reads the hidden state of the one below, as TensorFlow.js's `multiRNNCell`.
 * @param {readonly ((x: Tensor, state: [Tensor, Tensor]) => [Tensor, Tensor])[]} cells e.g. (x, state) => cell.forward(x, state) of an `nn.LSTMCell`
 * @param {Tensor} x [batch, inputs] @param {readonly [Tensor, Tensor][]} states hidden and cell state of each cell @returns {[Tensor, Tensor][]} the next ones
 */
export function multiRnnCell(cells, x, states) {
  const op = 'multiRnnCell';
  if (!Array.isArray(cells) || cells.length === 0 || !cells.every((cell) => typeof cell === 'function'))
    throw new ArgumentError(op, `cells must be functions, got ${shown(cells)}`);
  if (!Array.isArray(states) || states.length !== cells.length)
    throw new ArgumentError(op, `states must be ${cells.length} pairs of tensors, one for each cell, got ${describe(states)}`);
  for (const state of states)
    if (!Array.isArray(state) || state.length !== 2 || !state.every((each) => each instanceof TensorCore))
      throw new ArgumentError(op, `a state must be two tensors, [hidden, cell], got ${describe(state)}`);
  tensorOf(op, x);
  return within(op, () => {
    let below = x;
    return cells.map((cell, i) => {
      const next = cell(below, states[i]);
      below = next[0];
      return next;
    });
  });
}
