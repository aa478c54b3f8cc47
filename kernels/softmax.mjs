// Softmax over rows, and cross-entropy of logits, fused with softmax and with its gradient.

import { accessWidth, ceilDiv, finite, integer, pushConstants, tensor } from './base.mjs';

/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./base.mjs').DType} DType */
/** @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').KernelContext} KernelContext */
/** @typedef {import('./bounds.mjs').Extent} Extent */

/** The target that marks rows to ignore: no vocabulary has this id. */
const IGNORED = 0xffffffff;

/**
 * @typedef {object} CrossEntropy
 * @property {Tensor} logits [rows, rowStride] of `type`; the gradient overwrites them unless `gradient` is given
 * @property {Tensor} targets [rows] u32, a column each; a row whose target is not a column counts as ignored
 * @property {Tensor} loss out: [rows] f32, in nats; 0 for an ignored row
 * @property {number} rows number of rows
 * @property {number} columns size of the vocabulary
 * @property {number} [rowStride] elements from row to row; `columns` when left out. Columns past the vocabulary do not count, and their
 *   gradient is 0
 * @property {number} [scale] factor on the gradient, for example 1 / (rows · microSteps); 1 when left out
 * @property {Tensor} [gradient] out: [rows, rowStride] of `gradientType`; only for f32 logits, which then keep their values
 * @property {DType} [gradientType] needed with `gradient`
 * @property {number} [ignored] target that marks rows to ignore: their loss and gradient are 0; 0xffffffff when left out
 * @property {DType} [type] f32 when left out
 */

/**
 * The arguments of the forward pass (x, y) and of the backward pass (y, dy, dx).
 * @typedef {{ x?: Tensor, y?: Tensor, dy?: Tensor, dx?: Tensor, rows: number, columns: number, scale?: number, masked?: boolean, type?: DType }} SoftmaxArgs
 */

/** @param {KernelContext} context */
export function softmaxKernels(context) {
  /** @param {string} kernel @param {SoftmaxArgs} args @param {boolean} backward @returns {Dispatch} */
  function softmax(kernel, args, backward) {
    const { type = 'f32', scale = 1, masked = false } = args;
    const rows = integer(kernel, 'rows', args.rows);
    const columns = integer(kernel, 'columns', args.columns);
    integer(kernel, 'rows * columns', rows * columns);
    const x = backward ? tensor(kernel, 'y', args.y) : tensor(kernel, 'x', args.x);
    const y = backward ? tensor(kernel, 'dx', args.dx) : tensor(kernel, 'y', args.y);
    const dy = backward ? tensor(kernel, 'dy', args.dy) : { buffer: 0, offset: 0 };
    const { width, suffix } = accessWidth(kernel, [type], {
      columns,
      [backward ? 'y.offset' : 'x.offset']: x.offset,
      [backward ? 'dx.offset' : 'y.offset']: y.offset,
      'dy.offset': dy.offset,
    });
    const count = rows * columns;
    context.checker?.check(
      kernel,
      backward
        ? [
            ['y', x, count, type],
            ['dy', dy, count, type],
          ]
        : [['x', x, count, type]],
      [],
      [[backward ? 'dx' : 'y', y, count, type]],
    );
    const vectors = columns / width;
    const plan = context.rowPlan(vectors, { most: backward ? 4 : 8, lanes: 8 });
    const groups = context.strideGroups(rows, plan.rows);
    context.checkRounds(kernel, `rows of ${columns}`, ceilDiv(rows, groups * plan.rows) * (1 + (backward ? 2 : 3) * plan.rounds));
    return context.dispatch(`softmax_${backward ? 'backward' : 'forward'}_${type}${suffix}`, {
      buffers: backward ? [x.buffer, y.buffer, dy.buffer] : [x.buffer, y.buffer],
      writes: 0b10,
      groups,
      specialization: plan.specialization,
      ...plan.options,
      push: pushConstants(
        [rows, vectors, x.offset / width, y.offset / width, dy.offset / width, masked ? 1 : 0],
        [finite(kernel, 'scale', scale)],
      ),
    });
  }

  /** @param {string} kernel @param {CrossEntropy} args @param {boolean} gradient @returns {Dispatch} */
  function rowLosses(kernel, args, gradient) {
    const { type = 'f32', scale = 1, ignored = IGNORED } = args;
    const rows = integer(kernel, 'rows', args.rows);
    const columns = integer(kernel, 'columns', args.columns);
    const rowStride = integer(kernel, 'rowStride', args.rowStride ?? columns, columns);
    integer(kernel, 'rows * rowStride', rows * rowStride);
    const logits = tensor(kernel, 'logits', args.logits);
    const targets = tensor(kernel, 'targets', args.targets);
    const loss = tensor(kernel, 'loss', args.loss);
    const apart = gradient && args.gradient !== undefined;
    const output = apart ? tensor(kernel, 'gradient', args.gradient) : { buffer: 0, offset: 0 };
    const outType = apart ? args.gradientType : undefined;
    if (apart && (type !== 'f32' || (outType !== 'f32' && outType !== 'f16' && outType !== 'bf16'))) {
      throw new RangeError(`${kernel}: a separate gradient must be f32, f16 or bf16, and its logits f32; got ${outType} and ${type}`);
    }
    const { width, suffix } = accessWidth(kernel, outType ? [type, outType] : [type], {
      rowStride,
      'logits.offset': logits.offset,
      'gradient.offset': output.offset,
    });
    if (context.checker) {
      /** @type {Extent[]} */
      const reads = [['targets', targets, rows, 'u32']];
      /** @type {Extent[]} */
      const writes = [['loss', loss, rows, 'f32']];
      // Columns past the vocabulary are read and written like the others, although they do not count.
      (gradient && !apart ? writes : reads).push(['logits', logits, rows * rowStride, type]);
      if (outType) writes.push(['gradient', output, rows * rowStride, outType]);
      context.checker.check(kernel, reads, writes);
    }
    const vectors = rowStride / width;
    // Few threads with many registers, since a reduction takes longer with more threads. A row of 16-bit words, however, needs 512 threads to
    // keep enough loads in flight.
    const plan = context.rowPlan(vectors, { most: 12, wide: type === 'f32' });
    const { kept, groups: most } = context.crossEntropy;
    const specialization = [...plan.specialization, columns < rowStride ? 1 : 0, vectors <= kept ? 1 : 0, context.propagatesNan];
    const name = `cross_entropy${gradient ? '' : '_forward'}_${type}${outType ? `_${outType}` : ''}${suffix}`;
    const groups = Math.min(context.strideGroups(rows, plan.rows), type === 'f32' ? Infinity : most);
    context.checkRounds(kernel, `rows of ${columns}`, ceilDiv(rows, groups * plan.rows) * (1 + (gradient ? 2 : 1) * plan.rounds));
    const buffers = [logits.buffer, targets.buffer, loss.buffer];
    if (apart) buffers.push(output.buffer);
    return context.dispatch(name, {
      buffers,
      writes: apart ? 0b1100 : gradient ? 0b101 : 0b100,
      groups,
      specialization,
      ...plan.options,
      push: pushConstants(
        [
          rows,
          vectors,
          columns,
          integer(kernel, 'ignored', ignored, 0, 0xffffffff),
          logits.offset / width,
          targets.offset,
          loss.offset,
          output.offset / width,
        ],
        [finite(kernel, 'scale', scale)],
      ),
    });
  }

  return {
    /**
     * y = softmax(scale · x) of each row, computed from differences to the row's maximum; y may be x.
     * @param {object} args
     * @param {Tensor} args.x [rows, columns] of `type`
     * @param {Tensor} args.y out: [rows, columns] of `type`
     * @param {number} args.rows number of rows
     * @param {number} args.columns elements of a row; even for 16-bit types
     * @param {number} [args.scale] 1 when left out
     * @param {boolean} [args.masked] whether a row whose elements are all -∞ gives 0, as for a query of attention that sees no key; when left
     *   out such a row gives NaN
     * @param {DType} [args.type] f32 when left out
     * @returns {Dispatch}
     */
    softmaxForward: (args) => softmax('softmaxForward', args, false),
    /**
     * The gradient of `softmaxForward` from its output: dx = scale · y · (dy - Σ dy · y) of each row; dx may be y or dy.
     * @param {object} args
     * @param {Tensor} args.y [rows, columns] of `type`, the forward pass's output
     * @param {Tensor} args.dy [rows, columns] of `type`, the gradient of y
     * @param {Tensor} args.dx out: [rows, columns] of `type`
     * @param {number} args.rows number of rows
     * @param {number} args.columns elements of a row; even for 16-bit types
     * @param {number} [args.scale] that of the forward pass; 1 when left out
     * @param {DType} [args.type] f32 when left out
     * @returns {Dispatch}
     */
    softmaxBackward: (args) => softmax('softmaxBackward', args, true),
    /**
     * Cross-entropy of each row, loss = log Σ exp(x) - x[target], and in the same pass its gradient, scale · (softmax(x) - onehot(target)). The
     * gradient overwrites the logits, or is stored in `gradient`, for example in 16 bits for matrix units.
     * @param {CrossEntropy} args
     * @returns {Dispatch}
     */
    crossEntropy: (args) => rowLosses('crossEntropy', args, true),
    /**
     * Cross-entropy of each row without its gradient: loss = log Σ exp(x) - x[target]. The logits keep their values.
     * @param {Omit<CrossEntropy, 'scale' | 'gradient' | 'gradientType'>} args
     * @returns {Dispatch}
     */
    crossEntropyForward: (args) => rowLosses('crossEntropyForward', args, false),
  };
}
