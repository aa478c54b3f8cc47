// LayerNorm and RMSNorm, forward and backward, alone and fused with the residual addition.

import { accessWidth, ceilDiv, finite, integer, pushConstants, tensor, typePair } from './base.mjs';
import { columnSums } from './reduction.mjs';

/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./base.mjs').DType} DType */
/** @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').KernelContext} KernelContext */
/** @typedef {import('./bounds.mjs').Extent} Extent */

/**
 * @typedef {object} RmsNormForward
 * @property {Tensor} x [rows, columns] of `type`, or of `outType` with `residual`
 * @property {Tensor} y out: [rows, columns] of `outType`
 * @property {Tensor} weight [columns] f32
 * @property {Tensor} stats out: [rows] f32, 1 / sqrt(mean square + eps) of each row, for the backward pass
 * @property {number} rows number of rows
 * @property {number} columns elements of a row; even where any type is a 16-bit one
 * @property {number} [eps] added to the mean square, or to the variance in LayerNorm; 1e-5 when left out
 * @property {DType} [type] of the residual stream; f32 when left out
 * @property {DType} [outType] of y; `type` when left out
 * @property {Tensor} [residual] [rows, columns] of `type`, added to x first
 * @property {Tensor} [sum] out: [rows, columns] of `type`, x + residual; needed with `residual`, may be `residual`
 */

/**
 * @typedef {object} LayerNormBias
 * @property {Tensor} bias [columns] f32
 */

/**
 * Here `stats` is [rows, 2] f32, at an even offset: each row's mean and 1 / sqrt(variance + eps).
 * @typedef {RmsNormForward & LayerNormBias} LayerNormForward
 */

/**
 * @typedef {object} RmsNormBackward
 * @property {Tensor} dy [rows, columns] of `outType`, the gradient of y
 * @property {Tensor} x [rows, columns] of `type`: what was normalized (`sum` of the fused forward)
 * @property {Tensor} weight [columns] f32
 * @property {Tensor} stats what the forward pass wrote
 * @property {Tensor} dx out: [rows, columns] of `type`
 * @property {Tensor} [dWeight] in and out: [columns] f32; needed without `blockSums`
 * @property {number} rows number of rows
 * @property {number} columns elements of a row
 * @property {number} [beta] dWeight = beta * dWeight + gradient; 0 (overwrite) when left out
 * @property {Tensor} [residual] [rows, columns] of `type`, added to dx: the gradient of the residual connection; may be `dx`
 * @property {Tensor} [copy] out: [rows, columns] of `outType`, a second copy of dx; only where the types differ
 * @property {DType} [type] of the residual stream; f32 when left out
 * @property {DType} [outType] of dy; `type` when left out
 * @property {Tensor} [workspace] f32, at least `normWorkspace(…)` elements; the kernels' own when left out
 * @property {Tensor} [blockSums] out: [normBlocks(…), blockStride] f32, instead of dWeight. The first `columns` of a row are written: one
 *   block's sum of the weight's gradient. Normalizations can share one such tensor side by side, and one `columnSum` adds up all of them
 * @property {number} [blockStride] elements from block to block of `blockSums`; when left out `columns` (LayerNorm: 2 · columns)
 */

/**
 * @typedef {object} LayerNormBiasGradient
 * @property {Tensor} [dBias] in and out: [columns] f32; needed without `blockSums`
 */

/**
 * Here a row of `blockSums` holds the weight's sums, followed by the bias's.
 * @typedef {RmsNormBackward & LayerNormBiasGradient} LayerNormBackward
 */

/** Most rows whose weight gradients one chain of additions sums: rounding errors would grow with more. */
const MAX_BLOCK_ROWS = 256;

/** @param {KernelContext} context */
export function normalizationKernels(context) {
  /** Rows of a workgroup in the backward pass. @param {number} rows */
  const blockRows = (rows) => Math.max(4, Math.min(MAX_BLOCK_ROWS, ceilDiv(rows, context.normBlocks)), ceilDiv(rows, context.maxGroups));

  /** @param {'layer_norm' | 'rms_norm'} kind @param {RmsNormForward & Partial<LayerNormBias>} args @returns {Dispatch} */
  function forward(kind, args) {
    const kernel = kind === 'rms_norm' ? 'rmsNormForward' : 'layerNormForward';
    const layer = kind === 'layer_norm';
    const { type = 'f32', outType = type, eps = 1e-5 } = args;
    const rows = integer(kernel, 'rows', args.rows);
    const columns = integer(kernel, 'columns', args.columns);
    integer(kernel, 'rows * columns', rows * columns);
    const fused = args.residual !== undefined;
    const x = tensor(kernel, 'x', args.x);
    const y = tensor(kernel, 'y', args.y);
    const weight = tensor(kernel, 'weight', args.weight);
    const bias = layer ? tensor(kernel, 'bias', args.bias) : { buffer: 0, offset: 0 };
    const stats = tensor(kernel, 'stats', args.stats);
    const residual = fused ? tensor(kernel, 'residual', args.residual) : { buffer: 0, offset: 0 };
    const sum = fused ? tensor(kernel, 'sum', args.sum) : { buffer: 0, offset: 0 };
    if (layer && stats.offset % 2) throw new RangeError(`${kernel}: stats.offset must be even, got ${stats.offset}`);
    const types = typePair(kernel, type, outType);
    const { width, suffix } = accessWidth(kernel, [type, outType], {
      columns,
      'x.offset': x.offset,
      'y.offset': y.offset,
      'weight.offset': weight.offset,
      'bias.offset': bias.offset,
      'residual.offset': residual.offset,
      'sum.offset': sum.offset,
    });
    if (context.checker) {
      const count = rows * columns;
      /** @type {Extent[]} */
      const reads = [
        ['x', x, count, fused ? outType : type],
        ['weight', weight, columns, 'f32'],
      ];
      if (layer) reads.push(['bias', bias, columns, 'f32']);
      /** @type {Extent[]} */
      const results = [['y', y, count, outType]];
      if (fused) {
        reads.push(['residual', residual, count, type]);
        results.push(['sum', sum, count, type]);
      }
      context.checker.check(kernel, reads, [['stats', stats, layer ? 2 * rows : rows, 'f32']], results);
    }
    const vectors = columns / width;
    const plan = context.rowPlan(vectors, fused ? { batch: 2 } : { lanes: 8 });
    const groups = context.strideGroups(rows, plan.rows);
    context.checkRounds(kernel, `rows of ${columns}`, ceilDiv(rows, groups * plan.rows) * (1 + 3 * plan.rounds));
    const buffers = [x.buffer, weight.buffer, y.buffer, stats.buffer];
    if (layer) buffers.push(bias.buffer);
    let writes = 0b1100;
    if (fused) {
      buffers.push(residual.buffer, sum.buffer);
      writes |= 1 << (buffers.length - 1);
    }
    return context.dispatch(`${kind}_forward${fused ? '_residual' : ''}_${types}${suffix}`, {
      buffers,
      writes,
      groups,
      specialization: plan.specialization,
      ...plan.options,
      push: pushConstants(
        [
          rows,
          vectors,
          x.offset / width,
          y.offset / width,
          weight.offset / width,
          bias.offset / width,
          layer ? stats.offset / 2 : stats.offset,
          residual.offset / width,
          sum.offset / width,
          0,
        ],
        [1 / columns, finite(kernel, 'eps', eps)],
      ),
    });
  }

  /** @param {'layer_norm' | 'rms_norm'} kind @param {RmsNormBackward & LayerNormBiasGradient} args @returns {Dispatch[]} */
  function backward(kind, args) {
    const kernel = kind === 'rms_norm' ? 'rmsNormBackward' : 'layerNormBackward';
    const layer = kind === 'layer_norm';
    const { type = 'f32', outType = type, beta = 0 } = args;
    const rows = integer(kernel, 'rows', args.rows);
    const columns = integer(kernel, 'columns', args.columns);
    integer(kernel, 'rows * columns', rows * columns);
    const none = { buffer: 0, offset: 0 };
    const fused = args.residual !== undefined;
    const copied = args.copy !== undefined;
    const dy = tensor(kernel, 'dy', args.dy);
    const x = tensor(kernel, 'x', args.x);
    const weight = tensor(kernel, 'weight', args.weight);
    const stats = tensor(kernel, 'stats', args.stats);
    const dx = tensor(kernel, 'dx', args.dx);
    const apart = args.blockSums !== undefined;
    const dWeight = apart ? none : tensor(kernel, 'dWeight', args.dWeight);
    const dBias = layer && !apart ? tensor(kernel, 'dBias', args.dBias) : none;
    const residual = fused ? tensor(kernel, 'residual', args.residual) : none;
    const copy = copied ? tensor(kernel, 'copy', args.copy) : none;
    if (copied && type === outType) throw new RangeError(`${kernel}: a copy needs an outType that is not ${type}`);
    if (layer && stats.offset % 2) throw new RangeError(`${kernel}: stats.offset must be even, got ${stats.offset}`);
    const types = typePair(kernel, type, outType);
    const sumColumns = layer ? 2 * columns : columns;
    const stride = apart ? integer(kernel, 'blockStride', args.blockStride ?? sumColumns, sumColumns) : sumColumns;
    const rowsPerBlock = blockRows(rows);
    const blocks = ceilDiv(rows, rowsPerBlock);
    integer(kernel, 'normBlocks * blockStride', blocks * stride);
    const sums = apart
      ? tensor(kernel, 'blockSums', args.blockSums)
      : args.workspace === undefined
        ? { buffer: context.workspace('norm', 4 * blocks * stride), offset: 0 }
        : tensor(kernel, 'workspace', args.workspace);
    const { width, suffix } = accessWidth(kernel, [type, outType], {
      columns,
      'dy.offset': dy.offset,
      'x.offset': x.offset,
      'weight.offset': weight.offset,
      'dx.offset': dx.offset,
      'residual.offset': residual.offset,
      'copy.offset': copy.offset,
      [apart ? 'blockSums.offset' : 'workspace.offset']: sums.offset,
      blockStride: stride,
    });
    if (context.checker) {
      const count = rows * columns;
      /** @type {Extent[]} */
      const reads = [
        ['dy', dy, count, outType],
        ['x', x, count, type],
        ['weight', weight, columns, 'f32'],
        ['stats', stats, layer ? 2 * rows : rows, 'f32'],
      ];
      if (fused) reads.push(['residual', residual, count, type]);
      /** @type {Extent[]} */
      const writes = [[apart ? 'blockSums' : 'workspace', sums, (blocks - 1) * stride + sumColumns, 'f32', stride, sumColumns]];
      if (copied) writes.push(['copy', copy, count, outType]);
      if (!apart) writes.push(['dWeight', dWeight, columns, 'f32']);
      if (layer && !apart) writes.push(['dBias', dBias, columns, 'f32']);
      context.checker.check(kernel, reads, writes, [['dx', dx, count, type]]);
    }
    const vectors = columns / width;
    const plan = context.rowPlan(vectors, { most: 4, batch: context.normBackward.batch });
    const { specialization, options } = plan;
    context.checkRounds(kernel, `${rows} rows of ${columns}`, ceilDiv(rowsPerBlock, plan.rows) * (1 + 2 * plan.rounds));
    const buffers = [dy.buffer, x.buffer, weight.buffer, stats.buffer, dx.buffer, sums.buffer];
    let writes = 0b110000;
    if (fused) buffers.push(residual.buffer);
    if (copied) {
      buffers.push(copy.buffer);
      writes |= 1 << (buffers.length - 1);
    }
    const name = `${kind}_backward${fused ? '_residual' : ''}_${types}${copied ? '_copy' : ''}${suffix}`;
    const main = context.dispatch(name, {
      buffers,
      writes,
      groups: blocks,
      specialization: [...specialization, context.normBackward.ahead, context.normBackward.lockstep],
      ...options,
      push: pushConstants(
        [
          rows,
          vectors,
          rowsPerBlock,
          dy.offset / width,
          x.offset / width,
          weight.offset / width,
          layer ? stats.offset / 2 : stats.offset,
          dx.offset / width,
          sums.offset / width,
          stride / width,
          residual.offset / width,
          copy.offset / width,
        ],
        [1 / columns],
      ),
    });
    if (apart) return [main];
    const added = columnSums(context, kernel, {
      x: sums,
      y: dWeight,
      z: layer ? dBias : undefined,
      rows: blocks,
      columns: sumColumns,
      type: 'f32',
      alpha: 1,
      beta: finite(kernel, 'beta', beta),
    });
    return [main, ...added];
  }

  /**
   * Elements (f32) of workspace that a backward pass needs without `blockSums`.
   * @param {object} args
   * @param {number} args.rows number of rows
   * @param {number} args.columns elements of a row
   * @param {boolean} [args.bias] true for LayerNorm, whose bias has sums too; false when left out
   * @returns {number}
   */
  function normWorkspace({ rows, columns, bias = false }) {
    return normBlocks({ rows }) * columns * (bias ? 2 : 1);
  }

  /**
   * The number of blocks of rows in a backward pass: each writes one row of `blockSums`.
   * @param {object} args
   * @param {number} args.rows number of rows
   * @returns {number}
   */
  function normBlocks({ rows }) {
    return ceilDiv(rows, blockRows(rows));
  }

  return {
    normWorkspace,
    normBlocks,
    /**
     * RMSNorm (Zhang & Sennrich 2019) of each row: y = r / sqrt(mean(r²) + eps) · weight. r is x, or x + residual, which is stored in `sum`.
     * @param {RmsNormForward} args
     * @returns {Dispatch}
     */
    rmsNormForward: (args) => forward('rms_norm', args),
    /**
     * LayerNorm (Ba et al. 2016) of each row, with the biased variance: y = (r - mean) / sqrt(var + eps) · weight + bias.
     * r is x, or x + residual, which is stored in `sum`.
     * @param {LayerNormForward} args
     * @returns {Dispatch}
     */
    layerNormForward: (args) => forward('layer_norm', args),
    /**
     * Gradients of RMSNorm: dx, plus `residual`, and the weight's. The weight's is summed by blocks of rows, which are added in a fixed order.
     * With s = 1 / sqrt(mean(x²) + eps): dx = s · (dy · weight - x · s² · mean(dy · weight · x)), dWeight = Σ dy · x · s.
     * @param {RmsNormBackward} args
     * @returns {Dispatch[]}
     */
    rmsNormBackward: (args) => backward('rms_norm', args),
    /**
     * Gradients of LayerNorm: dx, plus `residual`, and those of weight and bias. These two are summed by blocks of rows, which are added in a
     * fixed order. With s = 1 / sqrt(var + eps), n = (x - mean) · s and g = dy · weight: dx = s · (g - mean(g) - n · mean(g · n)),
     * dWeight = Σ dy · n, dBias = Σ dy.
     * @param {LayerNormBackward} args
     * @returns {Dispatch[]}
     */
    layerNormBackward: (args) => backward('layer_norm', args),
  };
}
