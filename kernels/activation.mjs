// Activations and gated linear units, forward and backward.

import { accessWidth, ceilDiv, choice, integer, pushConstants, tensor } from './base.mjs';
import { rowsOf } from './bounds.mjs';

/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./base.mjs').DType} DType */
/** @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').Binding} Binding */
/** @typedef {import('./base.mjs').KernelContext} KernelContext */
/** @typedef {import('./bounds.mjs').Extent} Extent */

/**
 * `silu` is x · sigmoid(x) (Elfwing et al. 2018), `gelu` the tanh form (Hendrycks & Gimpel 2016).
 * @typedef {'identity' | 'relu' | 'silu' | 'gelu' | 'tanh' | 'sigmoid'} Activation
 */

const ACTIVATIONS = /** @type {const} */ (['identity', 'relu', 'silu', 'gelu', 'tanh', 'sigmoid']);

/**
 * The two inputs of a gated unit: either `gateUp`, rows of [gate, up] of 2 · columns, or `gate` and `up` by themselves.
 * @typedef {object} GluForward
 * @property {Tensor} [gateUp] [rows, 2 · columns]
 * @property {Tensor} [gate] [rows, columns]
 * @property {Tensor} [up] [rows, columns]
 * @property {Tensor} y out: [rows, columns]
 * @property {number} rows number of rows
 * @property {number} columns the hidden width; even for 16-bit types
 * @property {Activation} [activation] silu (SwiGLU) when left out
 * @property {DType} [type] of every tensor; f32 when left out
 */

/**
 * @typedef {object} GluBackward
 * @property {Tensor} [gateUp] as in the forward pass
 * @property {Tensor} [gate] [rows, columns]
 * @property {Tensor} [up] [rows, columns]
 * @property {Tensor} dy [rows, columns]
 * @property {Tensor} [dGateUp] out: [rows, 2 · columns], may be `gateUp`
 * @property {Tensor} [dGate] out: [rows, columns], may be `gate`
 * @property {Tensor} [dUp] out: [rows, columns], may be `up`
 * @property {number} rows number of rows
 * @property {number} columns elements of a row
 * @property {Activation} [activation] as in the forward pass
 * @property {DType} [type] of every tensor; f32 when left out
 */

/**
 * What the forward pass takes (x, y) and what the backward pass (x, dy, dx).
 * @typedef {{ x: Tensor, y?: Tensor, dy?: Tensor, dx?: Tensor, count: number, activation: Activation, type?: DType }} ActivationArgs
 */
/** @typedef {Omit<GluForward, 'y'> & Partial<GluForward & GluBackward>} GluArgs */
/** @typedef {'gateUp' | 'gate' | 'up' | 'dGateUp' | 'dGate' | 'dUp'} Half */

/** @param {KernelContext} context */
export function activationKernels(context) {
  /** @param {string} kernel @param {ActivationArgs} args @param {boolean} backward @returns {Dispatch} */
  function activation(kernel, args, backward) {
    const { type = 'f32' } = args;
    const kind = choice(kernel, 'activation', args.activation, ACTIVATIONS);
    const count = integer(kernel, 'count', args.count);
    const x = tensor(kernel, 'x', args.x);
    const y = backward ? tensor(kernel, 'dx', args.dx) : tensor(kernel, 'y', args.y);
    const dy = backward ? tensor(kernel, 'dy', args.dy) : { buffer: 0, offset: 0 };
    const { width, suffix } = accessWidth(kernel, [type], {
      count,
      'x.offset': x.offset,
      [backward ? 'dx.offset' : 'y.offset']: y.offset,
      'dy.offset': dy.offset,
    });
    context.checker?.check(
      kernel,
      backward
        ? [
            ['x', x, count, type],
            ['dy', dy, count, type],
          ]
        : [['x', x, count, type]],
      [],
      [[backward ? 'dx' : 'y', y, count, type]],
    );
    const threads = context.flatThreads;
    return context.dispatch(`activation_${backward ? 'backward' : 'forward'}_${type}${suffix}`, {
      buffers: backward ? [x.buffer, y.buffer, dy.buffer] : [x.buffer, y.buffer],
      writes: 0b10,
      groups: context.strideGroups(ceilDiv(count / width, 2), threads),
      specialization: [threads, kind],
      push: pushConstants([count / width, x.offset / width, y.offset / width, dy.offset / width]),
    });
  }

  /**
   * A pair of tensors, or the two halves of the rows of one.
   * @param {string} kernel @param {Half[]} names of both, the first and the second @param {GluArgs} args
   * @param {number} columns elements of a row
   */
  function halves(kernel, [both, first, second], args, columns) {
    if (args[both] !== undefined) {
      if (args[first] !== undefined || args[second] !== undefined) {
        throw new TypeError(`${kernel}: give either ${both}, or ${first} and ${second}`);
      }
      const { buffer, offset } = tensor(kernel, both, args[both]);
      return { a: { buffer, offset }, b: { buffer, offset: offset + columns }, stride: 2 * columns };
    }
    return { a: tensor(kernel, first, args[first]), b: tensor(kernel, second, args[second]), stride: columns };
  }

  /** @param {string} kernel @param {GluArgs} args @param {boolean} backward @returns {Dispatch} */
  function glu(kernel, args, backward) {
    const { type = 'f32' } = args;
    const kind = choice(kernel, 'activation', args.activation ?? 'silu', ACTIVATIONS);
    const rows = integer(kernel, 'rows', args.rows);
    const columns = integer(kernel, 'columns', args.columns);
    integer(kernel, 'rows * 2 * columns', rows * 2 * columns);
    const input = halves(kernel, ['gateUp', 'gate', 'up'], args, columns);
    const y = backward ? tensor(kernel, 'dy', args.dy) : tensor(kernel, 'y', args.y);
    const output = backward ? halves(kernel, ['dGateUp', 'dGate', 'dUp'], args, columns) : input;
    const { width, suffix } = accessWidth(kernel, [type], {
      columns,
      'gate.offset': input.a.offset,
      'up.offset': input.b.offset,
      [backward ? 'dy.offset' : 'y.offset']: y.offset,
      'dGate.offset': output.a.offset,
      'dUp.offset': output.b.offset,
    });
    if (context.checker) {
      /** @param {string} name @param {{ buffer: Binding, offset: number }} half @param {number} stride @returns {Extent} */
      const extent = (name, half, stride) => rowsOf(name, half, type, rows, columns, stride);
      const inputs = [extent('gate', input.a, input.stride), extent('up', input.b, input.stride)];
      const other = extent(backward ? 'dy' : 'y', y, columns);
      if (backward) {
        const outputs = [extent('dGate', output.a, output.stride), extent('dUp', output.b, output.stride)];
        inputs.push(other);
        context.checker.check(kernel, inputs, [], outputs);
      } else {
        context.checker.check(kernel, inputs, [], [other]);
      }
    }
    const vectors = columns / width;
    const threads = context.flatThreads;
    return context.dispatch(`glu_${backward ? 'backward' : 'forward'}_${type}${suffix}`, {
      buffers: backward
        ? [input.a.buffer, input.b.buffer, y.buffer, output.a.buffer, output.b.buffer]
        : [input.a.buffer, input.b.buffer, y.buffer],
      writes: backward ? 0b11000 : 0b100,
      groups: context.strideGroups(rows * vectors, threads),
      specialization: [threads, kind],
      push: pushConstants([
        rows,
        vectors,
        input.stride / width,
        input.a.offset / width,
        input.b.offset / width,
        y.offset / width,
        output.stride / width,
        output.a.offset / width,
        output.b.offset / width,
      ]),
    });
  }

  return {
    /**
     * y = f(x), element by element; y may be x.
     * @param {object} args
     * @param {Tensor} args.x [count] of `type`
     * @param {Tensor} args.y out: [count] of `type`
     * @param {number} args.count elements; even for 16-bit types
     * @param {Activation} args.activation the function
     * @param {DType} [args.type] f32 when left out
     * @returns {Dispatch}
     */
    activationForward: (args) => activation('activationForward', args, false),
    /**
     * dx = dy · f'(x), from the forward pass's input; dx may be x or dy. ReLU's is dy where x > 0, else 0, of a NaN too.
     * @param {object} args
     * @param {Tensor} args.x [count] of `type`, the forward pass's input
     * @param {Tensor} args.dy [count] of `type`, the gradient of y
     * @param {Tensor} args.dx out: [count] of `type`
     * @param {number} args.count elements; even for 16-bit types
     * @param {Activation} args.activation the function
     * @param {DType} [args.type] f32 when left out
     * @returns {Dispatch}
     */
    activationBackward: (args) => activation('activationBackward', args, true),
    /**
     * y = f(gate) · up (Shazeer 2020): SwiGLU unless `activation` says otherwise.
     * @param {GluForward} args
     * @returns {Dispatch}
     */
    gluForward: (args) => glu('gluForward', args, false),
    /**
     * dup = dy · f(gate), dgate = dy · up · f'(gate).
     * @param {GluBackward} args
     * @returns {Dispatch}
     */
    gluBackward: (args) => glu('gluBackward', args, true),
  };
}
