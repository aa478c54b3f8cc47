// Activations and gated linear units, forward and backward, by generated kernels.

import { accessWidth, choice, integer, tensor } from './base.mjs';
import { rowsOf } from './bounds.mjs';
import { ACTIVATIONS, activate, activateGradient } from './formulas.mjs';
import { flat, vectorWidth } from './program.mjs';

/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./base.mjs').DType} DType */
/** @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').Binding} Binding */
/** @typedef {import('./base.mjs').KernelContext} KernelContext */
/** @typedef {import('./bounds.mjs').Extent} Extent */

/** @typedef {import('./formulas.mjs').Activation} Activation */

/**
 * The two inputs of a gated unit: either `gateUp`, whose rows are [gate, up], or `gate` and `up` as two tensors.
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
 * @property {Tensor} dy [rows, columns], the gradient of y
 * @property {Tensor} [dGateUp] out: [rows, 2 · columns], may be `gateUp`
 * @property {Tensor} [dGate] out: [rows, columns], may be `gate`
 * @property {Tensor} [dUp] out: [rows, columns], may be `up`
 * @property {number} rows number of rows
 * @property {number} columns elements of a row
 * @property {Activation} [activation] as in the forward pass
 * @property {DType} [type] of every tensor; f32 when left out
 */

/**
 * The arguments of the forward pass (x, y) and of the backward pass (x, dy, dx).
 * @typedef {{ x: Tensor, y?: Tensor, dy?: Tensor, dx?: Tensor, count: number, activation: Activation, type?: DType }} ActivationArgs
 */
/** @typedef {Omit<GluForward, 'y'> & Partial<GluForward & GluBackward>} GluArgs */
/** @typedef {'gateUp' | 'gate' | 'up' | 'dGateUp' | 'dGate' | 'dUp'} Half */

/** @param {KernelContext} context */
export function activationKernels(context) {
  /** @param {string} kernel @param {ActivationArgs} args @param {boolean} backward @returns {Dispatch} */
  function elements(kernel, args, backward) {
    const { type = 'f32' } = args;
    const { activation } = args;
    choice(kernel, 'activation', activation, ACTIVATIONS);
    const count = integer(kernel, 'count', args.count);
    const x = tensor(kernel, 'x', args.x);
    const y = backward ? tensor(kernel, 'dx', args.dx) : tensor(kernel, 'y', args.y);
    const dy = backward ? tensor(kernel, 'dy', args.dy) : { buffer: 0, offset: 0 };
    const { width } = accessWidth(kernel, [type], {
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
    return flat(context, {
      name: `activation_${backward ? 'backward' : 'forward'}_${activation}_${type}`,
      width: vectorWidth(width, x.offset, y.offset, dy.offset),
      count,
      inputs: backward ? [x, dy] : [x],
      outputs: [y],
      push: backward ? [x.offset, dy.offset, y.offset] : [x.offset, y.offset],
      write: (p) => {
        const x = p.input(type);
        p.output(type, backward ? activateGradient(p, activation, x, p.input(type)) : activate[activation](p, x));
      },
    });
  }

  /**
   * The two tensors of a gated unit: given as two, or as the halves of one tensor's rows.
   * @param {string} kernel @param {Half[]} names of the whole, the first half and the second half @param {GluArgs} args
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
    const { activation = 'silu' } = args;
    choice(kernel, 'activation', activation, ACTIVATIONS);
    const rows = integer(kernel, 'rows', args.rows);
    const columns = integer(kernel, 'columns', args.columns);
    integer(kernel, 'rows * 2 * columns', rows * 2 * columns);
    const input = halves(kernel, ['gateUp', 'gate', 'up'], args, columns);
    const y = backward ? tensor(kernel, 'dy', args.dy) : tensor(kernel, 'y', args.y);
    const output = backward ? halves(kernel, ['dGateUp', 'dGate', 'dUp'], args, columns) : input;
    const { width } = accessWidth(kernel, [type], {
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
    // Rows with gaps between them need a division to find an element; dense rows do not.
    const lines = input.stride !== columns || output.stride !== columns;
    /** @param {number} stride */
    const access = (stride) => (stride === columns ? 'dense' : 'lines');
    const push = lines ? [rows, columns] : [];
    /** @param {{ a: { offset: number }, b: { offset: number }, stride: number }} halves */
    const place = ({ a, b, stride }) => {
      if (stride === columns) push.push(a.offset, b.offset);
      else push.push(a.offset, stride, 1, b.offset, stride, 1);
    };
    place(input);
    push.push(y.offset);
    if (backward) place(output);
    let name = `glu_${backward ? 'backward' : 'forward'}_${activation}_${type}`;
    if (input.stride !== columns) name += '_lines';
    if (output.stride !== columns) name += '_to_lines';
    return flat(context, {
      name,
      width: lines ? width : vectorWidth(width, input.a.offset, input.b.offset, y.offset, output.a.offset, output.b.offset),
      count: rows * columns,
      rank: lines ? 2 : 0,
      inputs: backward ? [input.a, input.b, y] : [input.a, input.b],
      outputs: backward ? [output.a, output.b] : [y],
      push,
      write: (p) => {
        const [gate, up] = [p.input(type, access(input.stride)), p.input(type, access(input.stride))];
        if (!backward) return p.output(type, p.append('mul', activate[activation](p, gate), up));
        const dy = p.input(type);
        p.output(type, activateGradient(p, activation, gate, p.append('mul', dy, up)), access(output.stride));
        p.output(type, p.append('mul', dy, activate[activation](p, gate)), access(output.stride));
      },
    });
  }

  return {
    /**
     * y = f(x), element by element; y may be x. silu is x · sigmoid(x) (Elfwing et al. 2018), gelu the tanh form (Hendrycks & Gimpel 2016).
     * @param {object} args
     * @param {Tensor} args.x [count] of `type`
     * @param {Tensor} args.y out: [count] of `type`
     * @param {number} args.count elements; even for 16-bit types
     * @param {Activation} args.activation the function
     * @param {DType} [args.type] f32 when left out
     * @returns {Dispatch}
     */
    activationForward: (args) => elements('activationForward', args, false),
    /**
     * The gradient of `activationForward` from its input: dx = dy · f'(x); dx may be x or dy. For ReLU, dx is dy where x > 0, else 0, also where
     * x is NaN.
     * @param {object} args
     * @param {Tensor} args.x [count] of `type`, the forward pass's input
     * @param {Tensor} args.dy [count] of `type`, the gradient of y
     * @param {Tensor} args.dx out: [count] of `type`
     * @param {number} args.count elements; even for 16-bit types
     * @param {Activation} args.activation the function
     * @param {DType} [args.type] f32 when left out
     * @returns {Dispatch}
     */
    activationBackward: (args) => elements('activationBackward', args, true),
    /**
     * A gated linear unit (Shazeer 2020): y = f(gate) · up, which is SwiGLU unless `activation` says otherwise.
     * @param {GluForward} args
     * @returns {Dispatch}
     */
    gluForward: (args) => glu('gluForward', args, false),
    /**
     * The gradient of `gluForward` from its inputs: dup = dy · f(gate), dgate = dy · up · f'(gate).
     * @param {GluBackward} args
     * @returns {Dispatch}
     */
    gluBackward: (args) => glu('gluBackward', args, true),
  };
}
