// Recurrent networks, one step after another.

import { centred } from './convolution.mjs';
import { ELEMENTWISE } from './elementwise.mjs';
import { Value, f, same, strict, uploaded } from './lib.mjs';
import { dynamicallyQuantized } from './quantization.mjs';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** @typedef {import('../definitions.mjs').Attributes} Attributes */
/** @typedef {import('../definitions.mjs').Computed} Computed */

/**
 * The activation with a name.
 * @param {string} name @param {number | undefined} alpha @param {number | undefined} beta @param {import('../definitions.mjs').Call} call
 * @returns {(x: Tensor) => Tensor}
 */
function activationOf(name, alpha, beta, call) {
  const simple = /** @type {Record<string, (x: Tensor) => Tensor>} */ ({ sigmoid: f.sigmoid, tanh: f.tanh, relu: f.relu });
  const own = simple[name.toLowerCase()];
  if (own) return own;
  const affine = name.toLowerCase() === 'affine';
  if (affine) return (x) => f.add(f.mul(x, alpha ?? 1), beta ?? 0);
  const table = Object.keys(ELEMENTWISE).find((each) => each.toLowerCase() === name.toLowerCase());
  if (!table) throw new Error(`the activation ${name} is not supported`);
  const attributes = /** @type {Attributes} */ ({ ...(alpha === undefined ? {} : { alpha }), ...(beta === undefined ? {} : { beta }) });
  const { run } = /** @type {Computed} */ (ELEMENTWISE[table]);
  return (x) => /** @type {Value} */ (run([Value.of('float', x)], attributes, call)).tensor;
}

/**
 * @typedef {object} Cell what one direction computes
 * @property {number} gates
 * @property {string[]} activations
 * @property {(step: Step) => Tensor[]} next
 *
 * @typedef {object} Step
 * @property {Tensor} x
 * @property {Tensor[]} states
 * @property {Tensor} weights
 * @property {(h: Tensor, weights: Tensor) => Tensor} product
 * @property {Tensor} bias
 * @property {Tensor} recurrent
 * @property {((x: Tensor) => Tensor)[]} functions
 * @property {Tensor[]} peepholes
 * @property {Attributes} attributes
 */

/** The parts of gates. @param {Tensor} x [batch, gates · size] @param {number} size @returns {Tensor[]} */
const parts = (x, size) => f.split(x, size, x.ndim - 1);

/** @type {Record<'RNN' | 'GRU' | 'LSTM', Cell>} */
const CELLS = {
  RNN: {
    gates: 1,
    activations: ['Tanh'],
    next: ({ x, states: [h], weights, product, bias, recurrent, functions: [act] }) => [
      act(f.add(f.add(x, bias), f.add(product(h, weights), recurrent))),
    ],
  },
  GRU: {
    gates: 3,
    activations: ['Sigmoid', 'Tanh'],
    next({ x, states: [h], weights, product, bias, recurrent, functions: [act, last], attributes }) {
      const size = h.shape[1];
      const [xz, xr, xh] = parts(f.add(x, bias), size);
      const [bz, br, bh] = parts(recurrent, size);
      const [wz, wr, wh] = parts(weights, size);
      const z = act(f.add(xz, f.add(product(h, wz), bz)));
      const r = act(f.add(xr, f.add(product(h, wr), br)));
      const inner = attributes.linear_before_reset ? f.mul(r, f.add(product(h, wh), bh)) : f.add(product(f.mul(r, h), wh), bh);
      const n = last(f.add(xh, inner));
      return [f.add(n, f.mul(z, f.sub(h, n)))];
    },
  },
  LSTM: {
    gates: 4,
    activations: ['Sigmoid', 'Tanh', 'Tanh'],
    next({ x, states: [h, c], weights, product, bias, recurrent, functions: [gate, cell, output], peepholes, attributes }) {
      const [i, o, forget, n] = parts(f.add(f.add(x, bias), f.add(product(h, weights), recurrent)), h.shape[1]);
      const [pi, po, pf] = peepholes;
      const peep = (/** @type {Tensor} */ y, /** @type {Tensor | undefined} */ p, /** @type {Tensor} */ state) =>
        p ? f.add(y, f.mul(p, state)) : y;
      const input = gate(peep(i, pi, c));
      const kept = attributes.input_forget ? f.sub(f.full([], 1, { dtype: x.dtype }), input) : gate(peep(forget, pf, c));
      const next = f.add(f.mul(kept, c), f.mul(input, cell(n)));
      return [f.mul(gate(peep(o, po, next)), output(next)), next];
    },
  },
};

/**
 * The weights of a direction, as the right sides of products, and what multiplies by them.
 * @typedef {{ weights: Tensor, product: (x: Tensor, weights: Tensor) => Tensor }} Factor
 */
/** Of floats, [directions, rows, columns]. @param {Value} w @param {number} d @returns {Factor} */
const floatFactor = (w, d) => ({ weights: f.transpose(ofDirection(w, d), 0, 1), product: f.matmul });

/**
 * Of numbers of 8 bits, [directions, columns, rows], by which quantized rows are multiplied.
 * @param {Value} w @param {Value} scale of each direction, or of each of its rows too @param {Value | undefined} zero @param {number} d @returns {Factor}
 */
function quantizedFactor(w, scale, zero, d) {
  const part = (/** @type {Value | undefined} */ value) => value && Value.of(value.type, f.slice(value.tensor, 0, d, d + 1));
  const own = f.reshape(/** @type {Value} */ (part(scale)).tensor, [-1]);
  return {
    weights: centred(Value.of(w.type, ofDirection(w, d)), part(zero), [1, -1]),
    product(x, weights) {
      const { rows, scale: ofX } = dynamicallyQuantized(x);
      return f.mul(f.matmul(rows, weights), f.mul(ofX, own));
    },
  };
}

/** One direction of [directions, …]. @param {Value} value @param {number} d */
const ofDirection = (value, d) => f.reshape(f.slice(value.tensor, 0, d, d + 1), value.shape.slice(1));

/**
 * @param {'RNN' | 'GRU' | 'LSTM'} name @param {boolean} [isQuantized] whether weights are of 8 bits, with scales and zero points behind the other inputs
 * @returns {Computed}
 */
const recurrent = (name, isQuantized = false) => ({
  host: [4],
  ...(isQuantized ? { buffers: [8, 9, 10, 11] } : {}),
  run([x, w, r, b, lengths, initialH, initialC, peephole, ...scales], attributes, call) {
    const { gates, activations, next } = CELLS[name];
    const { direction = 'forward', layout = 0, clip, hidden_size: given } = attributes;
    const names = attributes.activations ?? activations;
    const input = layout ? f.transpose(x.tensor, 0, 1) : x.tensor;
    const [steps, batch] = input.shape;
    const [directions] = r.shape;
    const size = r.shape[isQuantized ? 1 : 2];
    if (given !== undefined && given !== size) throw new Error(`hidden_size is ${given}, and the weights have ${size}`);
    const isLstm = name === 'LSTM';
    const each = activations.length;
    const results = Array.from({ length: directions }, (_, d) => {
      const own = (/** @type {Value | undefined} */ value) => value && ofDirection(value, d);
      const functions = Array.from({ length: each }, (_, i) => {
        const at = d * each + i;
        const act = activationOf(
          names[at] ?? names[i] ?? activations[i],
          attributes.activation_alpha?.[at],
          attributes.activation_beta?.[at],
          call,
        );
        return clip === undefined ? act : (/** @type {Tensor} */ y) => act(f.clamp(y, -clip, clip));
      });
      const zeros = () => f.zeros([batch, size], { dtype: input.dtype });
      const state = (/** @type {Value | undefined} */ value) =>
        (layout && value ? f.reshape(f.slice(value.tensor, 1, d, d + 1), [batch, size]) : own(value)) ?? zeros();
      const biases = own(b);
      const nothing = f.zeros([gates * size], { dtype: input.dtype });
      const [bias, recurrentBias] = biases ? [f.slice(biases, 0, 0, gates * size), f.slice(biases, 0, gates * size)] : [nothing, nothing];
      const isBack = direction === 'reverse' || d === 1;
      const first = isQuantized ? quantizedFactor(w, scales[0], scales[1], d) : floatFactor(w, d);
      const { weights, product } = isQuantized ? quantizedFactor(r, scales[2], scales[3], d) : floatFactor(r, d);
      const all = first.product(input, first.weights);
      const peepholes = peephole ? parts(/** @type {Tensor} */ (own(peephole)), size) : [];
      let states = isLstm ? [state(initialH), state(initialC)] : [state(initialH)];
      const outputs = new Array(steps);
      for (let i = 0; i < steps; i++) {
        const t = isBack ? steps - 1 - i : i;
        const at = f.reshape(f.slice(all, 0, t, t + 1), [batch, gates * size]);
        const now = next({ x: at, states, weights, product, bias, recurrent: recurrentBias, functions, peepholes, attributes });
        // A sequence that has ended keeps its state, and its output is 0.
        const live =
          lengths?.numbers.some((n) => n <= t) &&
          uploaded(
            lengths.numbers.map((n) => Number(t < n)),
            [batch, 1],
            'bool',
          );
        outputs[t] = live ? f.where(live, now[0], zeros()) : now[0];
        states = live ? now.map((y, s) => f.where(live, y, states[s])) : now;
      }
      return { outputs: f.stack(outputs, 0), states };
    });
    // [steps, directions, batch, size] and [directions, batch, size]
    const y = f.stack(
      results.map(({ outputs }) => outputs),
      1,
    );
    const last = (/** @type {number} */ s) => {
      const whole = f.stack(
        results.map(({ states }) => states[s]),
        0,
      );
      return same(x.type, layout ? f.transpose(whole, 0, 1) : whole);
    };
    const whole = same(x.type, layout ? f.permute(y, [2, 0, 1, 3]) : y);
    return isLstm ? [whole, last(0), last(1)] : [whole, last(0)];
  },
});

/** @type {import('../definitions.mjs').Table} */
export const RECURRENT = {
  'com.microsoft.DynamicQuantizeLSTM': strict(
    recurrent('LSTM', true),
    'activations activation_alpha activation_beta clip direction hidden_size input_forget',
    12,
  ),
  GRU: recurrent('GRU'),
  LSTM: recurrent('LSTM'),
  RNN: recurrent('RNN'),
};
