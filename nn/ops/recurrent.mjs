// Recurrent layers as one operation: all steps of a sequence in one dispatch where the device is known to take it, else in two each.

import { sigmoid as sigmoidProgram } from '../../kernels/formulas.mjs';
import { map } from '../core/codegen.mjs';
import { ArgumentError, ShapeError, show } from '../core/errors.mjs';
import { denseLayout, layoutOf } from '../core/layout.mjs';
import { sum } from './reduce.mjs';
import { at, generate, sigmoid } from './reference.mjs';
import { defineOp } from './registry.mjs';

/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */
/** @typedef {import('../core/layout.mjs').Layout} Layout */
/** `products`: the type that the weight's gradient is computed in, f32 when left out. @typedef {{ products?: 'bf16' }} RecurrentAttributes */
/** @typedef {import('./registry.mjs').Operand} Operand */
/** @typedef {import('../core/codegen.mjs').Program} Program */
/** @typedef {import('../core/codegen.mjs').Value} Value */
/** @typedef {import('../../kernels/index.mjs').Kernels} Kernels */

/**
 * Elements of an operand, beginning at `from`, as a matrix [rows, columns].
 * @param {Operand} operand @param {number} from @param {number[]} shape @param {number} stride of rows
 */
function part({ buffer, offset, layout }, from, shape, stride) {
  const own = layoutOf(shape, [stride, 1], offset + from, layout.dtype);
  return { buffer, offset: own.offset, layout: own };
}

/** @param {Kernels} k @param {Operand[]} inputs @param {Operand[]} outputs @param {(p: Program, values: Value[]) => Value[]} body */
function step(k, inputs, outputs, body) {
  const dispatch = map(k.context, inputs, outputs, body);
  if (!dispatch) throw new RangeError('a recurrent step of more push constants than there are');
  return dispatch;
}

/** x (1 - x). @param {Program} p @param {Value} x */
const slope = (p, x) => p.append('mul', x, p.append('sub', p.constant(1), x));

/** @param {Layout} gates [batch, steps, 3 · hidden] */
const sizesOf = ({ shape: [batch, steps, gates] }) => ({ batch, steps, hidden: gates / 3 });

/**
 * Checks the operands of a recurrent operation.
 * @param {string} op @param {number} count of gates @param {Layout} gates @param {Record<string, Layout>} first its first states
 * @param {Layout} weight @param {Layout} bias
 */
function checkRecurrent(op, count, gates, first, weight, bias) {
  for (const [what, { dtype }] of Object.entries({ gates, ...first, weight, bias })) {
    if (dtype !== 'f32') throw new ArgumentError(op, `${what} must be f32, got ${dtype}; convert with .to('f32')`);
  }
  if (gates.shape.length !== 3 || gates.shape[2] % count) {
    throw new ShapeError(op, `expected gates [batch, steps, ${count} · hidden], got ${show(gates.shape)}`);
  }
  const [batch, , all] = gates.shape;
  const hidden = all / count;
  const states = Object.entries(first).map(([what, { shape }]) => ({ what, shape, fits: [batch, hidden] }));
  const parameters = [
    { what: 'weight', shape: weight.shape, fits: [all, hidden] },
    { what: 'bias', shape: bias.shape, fits: [all] },
  ];
  for (const { what, shape, fits } of [...states, ...parameters]) {
    if (show(shape) !== show(fits)) throw new ShapeError(op, `gates ${show(gates.shape)} need ${what} ${show(fits)}, got ${show(shape)}`);
  }
}

/**
 * The gradient of the hidden gates' weight: one product of all steps, of bf16 where the layer was computed under `autocast` to it, as the gradient of
 * the inputs' weight is.
 * @param {Tensor} dGates [rows, gates] @param {Tensor} states [rows, hidden] @param {RecurrentAttributes} attributes
 * @param {import('./registry.mjs').Functions} F
 */
function weightGradient(dGates, states, { products }, F) {
  const type = products ?? 'f32';
  return F.to(F.matmul(F.transpose(F.to(dGates, type), 0, 1), F.to(states, type)), 'f32');
}

const gruBackward = defineOp({
  name: 'gruBackward',
  // Gradients of the inputs' gates, of the first state, and of the hidden gates of all steps.
  infer: ([, states, own]) => {
    const [steps, batch, gates] = own.shape;
    return [
      denseLayout([batch, steps, gates], 'f32'),
      denseLayout(states.shape.slice(1), 'f32'),
      denseLayout([steps * batch, gates], 'f32'),
    ];
  },
  lower: (k, [dStates, states, own, r, z, n, weight], [dGates, dFirst, dOwn]) => {
    const { batch, steps, hidden } = sizesOf(dGates.layout);
    const sizes = /** @type {const} */ ({ cell: 'gru', batch, steps, hidden });
    if (k.recurrentSupports(sizes)) {
      const gates = { reset: r, update: z, fresh: n };
      return [k.recurrentBackward({ ...sizes, ...gates, weight, states, own, dStates, dGates, dState: dFirst, dOwn })];
    }
    const shape = [batch, hidden];
    const count = batch * hidden;
    const carried = part(dFirst, 0, shape, hidden);
    const list = [];
    for (let t = steps - 1; t >= 0; t--) {
      const plane = (/** @type {Operand} */ x, s = t) => part(x, s * count, shape, hidden);
      const gatesOf = (/** @type {Operand} */ x, /** @type {number} */ from, /** @type {number} */ stride) =>
        [0, 1, 2].map((g) => part(x, from + g * hidden, shape, stride));
      const ownNew = part(own, 3 * t * count + 2 * hidden, shape, 3 * hidden);
      const later = t < steps - 1 ? [carried] : [];
      list.push(
        step(
          k,
          [plane(dStates, t + 1), plane(states), plane(r), plane(z), plane(n), ownNew, ...later],
          [...gatesOf(dGates, 3 * t * hidden, 3 * steps * hidden), ...gatesOf(dOwn, 3 * t * count, 3 * hidden), carried],
          (p, [dy, h, reset, update, fresh, ownFresh, carry]) => {
            const dh = carry === undefined ? dy : p.append('add', dy, carry);
            const dUpdate = p.append('mul', p.append('mul', dh, p.append('sub', h, fresh)), slope(p, update));
            const kept = p.append('sub', p.constant(1), update);
            const bend = p.append('sub', p.constant(1), p.append('mul', fresh, fresh));
            const dFresh = p.append('mul', p.append('mul', dh, kept), bend);
            const dReset = p.append('mul', p.append('mul', dFresh, ownFresh), slope(p, reset));
            return [dReset, dUpdate, dFresh, dReset, dUpdate, p.append('mul', dFresh, reset), p.append('mul', dh, update)];
          },
        ),
        k.matmul({
          a: { buffer: dOwn.buffer, offset: dOwn.offset + 3 * t * count },
          b: weight,
          c: dFirst,
          m: batch,
          n: hidden,
          k: 3 * hidden,
          beta: 1,
        }),
      );
    }
    const first = part(dStates, 0, shape, hidden);
    list.push(step(k, [carried, first], [carried], (p, [a, b]) => [p.append('add', a, b)]));
    return list;
  },
  oracle: () => {
    throw new Error('gruBackward: the gradients of gru are held against finite differences');
  },
});

/**
 * Gated recurrent units (Cho et al. 2014; PyTorch's form) over all steps: what the inputs add to the gates [batch, steps,
 * 3 · hidden] (reset, update, new), the first state [batch, hidden], the hidden gates' weight [3 · hidden, hidden] and bias.
 * States [steps + 1, batch, hidden], from the first one on. All of f32.
 */
export const gru = defineOp({
  name: 'gru',
  infer: ([gates, state, weight, bias]) => {
    checkRecurrent('gru', 3, gates, { state }, weight, bias);
    const { batch, steps, hidden } = sizesOf(gates);
    const plane = denseLayout([steps, batch, hidden], 'f32');
    return [denseLayout([steps + 1, batch, hidden], 'f32'), denseLayout([steps, batch, 3 * hidden], 'f32'), plane, plane, plane];
  },
  lower: (k, [gates, state, weight, bias], [states, own, r, z, n]) => {
    const { batch, steps, hidden } = sizesOf(gates.layout);
    const sizes = /** @type {const} */ ({ cell: 'gru', batch, steps, hidden });
    if (k.recurrentSupports(sizes))
      return [k.recurrentForward({ ...sizes, weight, states, own, reset: r, update: z, fresh: n, gates, bias, state })];
    const shape = [batch, hidden];
    const count = batch * hidden;
    /** @type {ReturnType<import('./registry.mjs').Op['lower']>} */
    const list = [k.copy({ x: state, y: states, count })];
    for (let t = 0; t < steps; t++) {
      const plane = (/** @type {Operand} */ x, s = t) => part(x, s * count, shape, hidden);
      const gatesOf = (/** @type {Operand} */ x, /** @type {number} */ from, /** @type {number} */ stride) =>
        [0, 1, 2].map((g) => part(x, from + g * hidden, shape, stride));
      list.push(
        k.matmul({
          a: { buffer: states.buffer, offset: states.offset + t * count },
          b: weight,
          c: { buffer: own.buffer, offset: own.offset + 3 * t * count },
          m: batch,
          n: 3 * hidden,
          k: hidden,
          transB: true,
          bias,
        }),
        step(
          k,
          [...gatesOf(gates, 3 * t * hidden, 3 * steps * hidden), ...gatesOf(own, 3 * t * count, 3 * hidden), plane(states)],
          [plane(states, t + 1), plane(r), plane(z), plane(n)],
          (p, [xr, xz, xn, hr, hz, hn, h]) => {
            const reset = sigmoidProgram(p, p.append('add', xr, hr));
            const update = sigmoidProgram(p, p.append('add', xz, hz));
            const fresh = p.append('tanh', p.append('add', xn, p.append('mul', reset, hn)));
            return [p.append('add', fresh, p.append('mul', update, p.append('sub', h, fresh))), reset, update, fresh];
          },
        ),
      );
    }
    return list;
  },
  saveInputs: () => [2],
  saveOutputs: [0, 1, 2, 3, 4],
  vjp: (dy, { inputs: [, , weight], outputs: [states, own, r, z, n], layouts: [, , , bias], attributes, needs }, F) => {
    const [dGates, dFirst, dOwn] = F.callAll(gruBackward, [dy, states, own, r, z, n, weight]);
    const [steps, batch, hidden] = r.shape;
    // Of all steps at once: their states lie one behind the other.
    const before = F.reshape(F.slice(states, 0, 0, steps), [steps * batch, hidden]);
    return [
      dGates,
      dFirst,
      needs[2] ? weightGradient(dOwn, before, attributes, F) : undefined,
      needs[3] ? F.reshape(F.call(sum, [dOwn], { dims: [0], alpha: 1 }), bias.shape) : undefined,
    ];
  },
  oracle: ([gates, state, weight, bias]) => {
    const [batch, steps, all] = gates.shape;
    const hidden = all / 3;
    const result = generate([steps + 1, batch, hidden], ([t, b, c]) => (t === 0 ? at(state, [b, c]) : 0));
    for (let t = 0; t < steps; t++) {
      for (let b = 0; b < batch; b++) {
        const before = result.data.slice((t * batch + b) * hidden, (t * batch + b + 1) * hidden);
        const own = (/** @type {number} */ g) => before.reduce((total, v, i) => total + v * at(weight, [g, i]), at(bias, [g]));
        for (let c = 0; c < hidden; c++) {
          const x = [0, 1, 2].map((g) => at(gates, [b, t, g * hidden + c]));
          const [reset, update] = [0, 1].map((g) => sigmoid(x[g] + own(g * hidden + c)));
          const fresh = Math.tanh(x[2] + reset * own(2 * hidden + c));
          result.data[((t + 1) * batch + b) * hidden + c] = (1 - update) * fresh + update * before[c];
        }
      }
    }
    return result;
  },
});

const lstmBackward = defineOp({
  name: 'lstmBackward',
  // Gradients of the gates before their functions, and of the first states.
  infer: ([dStates, gates]) => {
    const [steps, batch, all] = gates.shape;
    const state = denseLayout(dStates.shape.slice(2), 'f32');
    return [denseLayout([batch, steps, all], 'f32'), state, state];
  },
  lower: (k, [dStates, gates, states, weight], [dGates, dHidden, dCell]) => {
    const [steps, batch, all] = gates.layout.shape;
    const hidden = all / 4;
    const sizes = /** @type {const} */ ({ cell: 'lstm', batch, steps, hidden });
    if (k.recurrentSupports(sizes))
      return [k.recurrentBackward({ ...sizes, weight, states, own: gates, dStates, dGates, dState: dHidden, dCell })];
    const shape = [batch, hidden];
    const count = batch * hidden;
    const plane = (/** @type {Operand} */ x, /** @type {number} */ i) => part(x, i * count, shape, hidden);
    const columns = (/** @type {Operand} */ x, /** @type {number} */ from, /** @type {number} */ stride) =>
      [0, 1, 2, 3].map((g) => part(x, from + g * hidden, shape, stride));
    const cells = steps + 1;
    const [fromHidden, fromCell] = [plane(dHidden, 0), plane(dCell, 0)];
    const list = [];
    for (let t = steps - 1; t >= 0; t--) {
      const last = t === steps - 1;
      list.push(
        step(
          k,
          [
            last ? plane(dStates, steps) : fromHidden,
            plane(dStates, cells + t + 1),
            ...columns(gates, t * batch * all, all),
            plane(states, cells + t),
            ...(last ? [] : [fromCell]),
          ],
          [...columns(dGates, t * all, steps * all), fromCell],
          (p, [dh, dy, input, forget, fresh, output, before, carry]) => {
            // The cell is computed again: one operand less.
            const cell = p.append('add', p.append('mul', forget, before), p.append('mul', input, fresh));
            const bent = p.append('tanh', cell);
            const through = p.append('mul', p.append('mul', dh, output), p.append('sub', p.constant(1), p.append('mul', bent, bent)));
            const later = carry === undefined ? dy : p.append('add', dy, carry);
            const dc = p.append('add', later, through);
            return [
              p.append('mul', p.append('mul', dc, fresh), slope(p, input)),
              p.append('mul', p.append('mul', dc, before), slope(p, forget)),
              p.append('mul', p.append('mul', dc, input), p.append('sub', p.constant(1), p.append('mul', fresh, fresh))),
              p.append('mul', p.append('mul', dh, bent), slope(p, output)),
              p.append('mul', dc, forget),
            ];
          },
        ),
        k.matmul({
          a: { buffer: dGates.buffer, offset: dGates.offset + t * all },
          b: weight,
          c: dHidden,
          m: batch,
          n: hidden,
          k: all,
          lda: steps * all,
          residual: { buffer: dStates.buffer, offset: dStates.offset + t * count },
        }),
      );
    }
    list.push(step(k, [fromCell, plane(dStates, cells)], [fromCell], (p, [a, b]) => [p.append('add', a, b)]));
    return list;
  },
  oracle: () => {
    throw new Error('lstmBackward: the gradients of lstm are held against finite differences');
  },
});

/**
 * Long short-term memory (Hochreiter & Schmidhuber 1997; PyTorch's form) over all steps: what the inputs add to the gates [batch,
 * steps, 4 · hidden] (input, forget, new, output), the first hidden state and the first cell state [batch, hidden], the hidden
 * gates' weight [4 · hidden, hidden] and bias. States [2, steps + 1, batch, hidden]: hidden ones and cells, from the first ones
 * on. All of f32.
 */
export const lstm = defineOp({
  name: 'lstm',
  infer: ([gates, state, cell, weight, bias]) => {
    checkRecurrent('lstm', 4, gates, { state, cell }, weight, bias);
    const [batch, steps, all] = gates.shape;
    return [denseLayout([2, steps + 1, batch, all / 4], 'f32'), denseLayout([steps, batch, all], 'f32')];
  },
  lower: (k, [gates, state, cell, weight, bias], [states, own]) => {
    const [batch, steps, all] = gates.layout.shape;
    const hidden = all / 4;
    const sizes = /** @type {const} */ ({ cell: 'lstm', batch, steps, hidden });
    if (k.recurrentSupports(sizes)) return [k.recurrentForward({ ...sizes, weight, states, own, gates, bias, state, cell0: cell })];
    const shape = [batch, hidden];
    const count = batch * hidden;
    const plane = (/** @type {number} */ i) => part(states, i * count, shape, hidden);
    const cells = steps + 1;
    /** @type {ReturnType<import('./registry.mjs').Op['lower']>} */
    const list = [step(k, [state, cell], [plane(0), plane(cells)], (_, values) => values)];
    for (let t = 0; t < steps; t++) {
      const four = [0, 1, 2, 3].map((g) => part(own, t * batch * all + g * hidden, shape, all));
      list.push(
        k.matmul({
          a: { buffer: states.buffer, offset: states.offset + t * count },
          b: weight,
          c: { buffer: own.buffer, offset: own.offset + t * batch * all },
          m: batch,
          n: all,
          k: hidden,
          transB: true,
          bias,
          residual: { buffer: gates.buffer, offset: gates.offset + t * all },
          ldr: steps * all,
        }),
        // The gates take the place of what their functions are of.
        step(k, [...four, plane(cells + t)], [...four, plane(t + 1), plane(cells + t + 1)], (p, [i, f, n, o, before]) => {
          const [input, forget, output] = [i, f, o].map((x) => sigmoidProgram(p, x));
          const fresh = p.append('tanh', n);
          const next = p.append('add', p.append('mul', forget, before), p.append('mul', input, fresh));
          return [input, forget, fresh, output, p.append('mul', output, p.append('tanh', next)), next];
        }),
      );
    }
    return list;
  },
  saveInputs: () => [3],
  saveOutputs: [0, 1],
  vjp: (dy, { inputs: [, , , weight], outputs: [states, gates], layouts: [, , , , bias], attributes, needs }, F) => {
    const [dGates, dHidden, dCell] = F.callAll(lstmBackward, [dy, gates, states, weight]);
    const [batch, steps, all] = dGates.shape;
    const rows = F.reshape(dGates, [batch * steps, all]);
    // The hidden states before each step, in the order of the gates' rows.
    const before = F.permute(F.slice(F.squeeze(F.slice(states, 0, 0, 1), 0), 0, 0, steps), [1, 0, 2]);
    return [
      dGates,
      dHidden,
      dCell,
      needs[3] ? weightGradient(rows, F.reshape(before, [batch * steps, all / 4]), attributes, F) : undefined,
      needs[4] ? F.reshape(F.call(sum, [rows], { dims: [0], alpha: 1 }), bias.shape) : undefined,
    ];
  },
  oracle: ([gates, state, cell, weight, bias]) => {
    const [batch, steps, all] = gates.shape;
    const hidden = all / 4;
    const count = batch * hidden;
    const cells = (steps + 1) * count;
    const result = generate([2, steps + 1, batch, hidden], ([which, t, b, c]) => (t === 0 ? at(which === 0 ? state : cell, [b, c]) : 0));
    for (let t = 0; t < steps; t++) {
      for (let b = 0; b < batch; b++) {
        const before = result.data.slice(t * count + b * hidden, t * count + (b + 1) * hidden);
        const gate = (/** @type {number} */ g) =>
          before.reduce((total, v, i) => total + v * at(weight, [g, i]), at(bias, [g]) + at(gates, [b, t, g]));
        for (let c = 0; c < hidden; c++) {
          const [i, f, n, o] = [0, 1, 2, 3].map((g) => gate(g * hidden + c));
          const place = t * count + b * hidden + c;
          const next = sigmoid(f) * result.data[cells + place] + sigmoid(i) * Math.tanh(n);
          result.data[cells + place + count] = next;
          result.data[place + count] = sigmoid(o) * Math.tanh(next);
        }
      }
    }
    return result;
  },
});
