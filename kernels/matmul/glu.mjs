// Products that end in SwiGLU or in its gradient: one kernel where PTX has one for the product, else two passes.

import { activationKernels } from '../activation.mjs';
import { integer, reach, tensor } from '../base.mjs';
import { extentsOfSecond, secondOf } from './second.mjs';

/** @typedef {import('../base.mjs').Tensor} Tensor */
/** @typedef {import('../base.mjs').DType} DType */
/** @typedef {import('../base.mjs').Dispatch} Dispatch */
/** @typedef {import('../base.mjs').KernelContext} KernelContext */
/** @typedef {import('../activation.mjs').Activation} Activation */
/** @typedef {import('../bounds.mjs').Extent} Extent */
/** @typedef {import('../matmul.mjs').MatmulArgs} MatmulArgs */
/** @typedef {import('../matmul.mjs').MatmulPlan} MatmulPlan */
/** @typedef {import('../matmul.mjs').Precision} Precision */
/** @typedef {import('./types.mjs').Operands} Operands */
/** @typedef {import('./types.mjs').Problem} Problem */
/** @typedef {import('./types.mjs').PtxPlan} PtxPlan */

/**
 * The arguments that forward and backward share.
 * @typedef {object} GluProduct
 * @property {number} m rows of `a` and of the result
 * @property {number} columns the hidden width; even for 16-bit types
 * @property {number} k inner size of the product
 * @property {DType} [type] of every tensor; f32 when left out
 * @property {Precision} [precision] of the product, as in `matmul`
 * @property {Activation} [activation] silu (SwiGLU) when left out
 * @property {boolean} [bPermuted] `b`'s rows are permuted, as in `matmul`; `columns` must then be a multiple of 32
 * @property {boolean} [bShuffled] the former name of `bPermuted`
 * @property {Tensor} [a2] a second pair of operands, as in `matmul`: [m, k2]
 * @property {Tensor} [b2] [k2, columns], or of [gate, up] [2 · columns, k2]
 * @property {number} [k2] inner size of the second pair
 * @property {number} [lda2] elements from row to row of A2 in memory; packed when left out
 * @property {number} [ldb2] of B2
 * @property {Partial<MatmulPlan>} [plan] of the product, as in `matmul`; with `kernel: 'ptx'` one kernel must be able to do both, or the call
 *   throws
 */

/**
 * @typedef {object} GluForwardTensors
 * @property {Tensor} a [m, k]
 * @property {Tensor} b [2 · columns, k], the weights of the gates followed by those of the ups
 * @property {Tensor} gateUp out: [m, 2 · columns], rows of [gate, up]
 * @property {Tensor} y out: [m, columns]
 */

/**
 * @typedef {object} GluBackwardTensors
 * @property {Tensor} a [m, k], the gradient of the next layer's output
 * @property {Tensor} b [k, columns], the next layer's weights
 * @property {Tensor} gateUp [m, 2 · columns], rows of [gate, up]
 * @property {Tensor} dGateUp out: [m, 2 · columns], not `gateUp`
 * @property {Tensor} dy out: [m, columns], the product a · b, where that is a pass of its own; one kernel does not touch it
 * @property {Tensor} [y] out: [m, columns], the unit's result as the forward pass computed it, for callers that did not keep it
 */

/**
 * @param {KernelContext} context
 * @param {(args: MatmulArgs) => Dispatch[]} matmul
 * @param {ReturnType<typeof import('../hopper/products.mjs').ptxProducts>} ptx
 * @param {(args: Partial<MatmulArgs>) => Problem} problemOf the checked problem of a product's arguments
 */
export function gluProducts(context, matmul, ptx, problemOf) {
  const { gluForward, gluBackward } = activationKernels(context);

  /**
   * The pass as one kernel, if there is one.
   * @param {Problem['args']} args of the product @param {'forward' | 'backward'} glu @param {Activation} activation
   */
  function fused(args, glu, activation) {
    const { plan: override } = args;
    const asked = override?.kernel === 'ptx';
    if (activation !== 'silu' || args.aType === 'f32') {
      if (asked) throw new RangeError('matmul: the PTX kernels compute SwiGLU of f16 and bf16 only');
      return undefined;
    }
    if (override && !asked) return undefined;
    const problem = { ...problemOf(args), glu, again: glu === 'backward' && args.half !== undefined };
    if (problem.bPermuted) return { problem, plan: ptx.planPermuted(problem, override) };
    const { plan } = asked ? { plan: ptx.planOf(problem, override) } : ptx.choose(problem);
    return plan && { problem, plan };
  }

  /** The pass as one kernel. @param {{ problem: Problem, plan: PtxPlan }} pass @param {Omit<Operands, 'alpha'>} tensors @returns {Dispatch[]} */
  function recordsOf({ problem, plan }, tensors) {
    // A tiling that loads by TMA keeps its tensor maps in the workspace.
    const floats = ptx.workspaceFloats(plan);
    const work = floats > 0 ? { buffer: context.workspace('matmul', 4 * floats), offset: 0 } : undefined;
    const dispatches = ptx.records({ ...problem, ...tensors, alpha: 1 }, plan, work);
    dispatches[0].computes = { products: [problem], plan };
    return dispatches;
  }

  /** @param {string} kernel @param {GluProduct} args */
  function sizesOf(kernel, args) {
    const [m, columns, k] = /** @type {const} */ (['m', 'columns', 'k']).map((name) => integer(kernel, name, args[name]));
    return { m, columns, k, type: args.type ?? 'f32', activation: args.activation ?? 'silu' };
  }

  /** @param {GluProduct} args those of a second pair of operands, as `matmul` takes them */
  const ofSecond = ({ a2, b2, k2, lda2, ldb2 }) => (k2 ? { a2, b2, k2, lda2, ldb2 } : {});

  /** @param {string} kernel @param {Extent[]} reads @param {Extent[]} writes */
  function checked(kernel, reads, writes) {
    for (const [name, x, size] of [...reads, ...writes]) reach(kernel, name, x.offset + size);
    context.checker?.check(kernel, reads, writes);
  }

  /** See `matmulKernels`. @param {GluProduct & GluForwardTensors} args @returns {Dispatch[]} */
  function matmulGlu(args) {
    const kernel = 'matmulGlu';
    const { m, columns, k, type, activation } = sizesOf(kernel, args);
    const n = 2 * columns;
    const types = { aType: type, bType: type, cType: type, precision: args.precision };
    const [a, b, gateUp, y] = /** @type {const} */ (['a', 'b', 'gateUp', 'y']).map((name) => tensor(kernel, name, args[name]));
    const bPermuted = args.bPermuted ?? args.bShuffled;
    const product = { a, b, c: gateUp, m, n, k, transB: true, bPermuted, plan: args.plan, ...types, ...ofSecond(args) };
    const second = args.k2 ? secondOf(kernel, args, { m, n, k2: args.k2, transB: true }) : {};
    const one = fused({ ...product, half: y, ldh: columns }, 'forward', activation);
    checked(
      kernel,
      [['a', a, m * k, type], ['b', b, n * k, type], ...extentsOfSecond({ m, n, aType: type, transB: true, ...second })],
      [
        ['gateUp', gateUp, m * n, type],
        ['y', y, m * columns, type],
      ],
    );
    if (!one) return [...matmul(product), gluForward({ gateUp, y, rows: m, columns, activation, type })];
    const tensors = { a, b, c: gateUp, h: y, lda: k, ldb: k, ldc: n, ldr: 0, ldh: columns, ...second };
    return recordsOf(one, tensors);
  }

  /** See `matmulKernels`. @param {GluProduct & GluBackwardTensors} args @returns {Dispatch[]} */
  function matmulGluBackward(args) {
    const kernel = 'matmulGluBackward';
    const { m, columns, k, type, activation } = sizesOf(kernel, args);
    const types = { aType: type, bType: type, cType: type, precision: args.precision };
    const [a, b, gateUp, dGateUp] = /** @type {const} */ (['a', 'b', 'gateUp', 'dGateUp']).map((name) => tensor(kernel, name, args[name]));
    const bPermuted = args.bPermuted ?? args.bShuffled;
    const product = { a, b, m, n: columns, k, bPermuted, plan: args.plan, ...types, ...ofSecond(args) };
    const second = args.k2 ? secondOf(kernel, args, { m, n: columns, k2: args.k2, transB: false }) : {};
    const wide = 2 * columns;
    const y = args.y === undefined ? undefined : tensor(kernel, 'y', args.y);
    const again = y && { half: y, ldh: columns };
    const one = fused({ ...product, c: dGateUp, ldc: wide, gateUp, ldr: wide, ...again }, 'backward', activation);
    const dy = tensor(kernel, 'dy', args.dy);
    checked(
      kernel,
      [
        ['a', a, m * k, type],
        ['b', b, columns * k, type],
        ['gateUp', gateUp, m * wide, type],
        ...extentsOfSecond({ m, n: columns, aType: type, transB: false, ...second }),
      ],
      [
        ['dGateUp', dGateUp, m * wide, type],
        ...(one ? [] : [/** @type {Extent} */ (['dy', dy, m * columns, type])]),
        ...(y ? [/** @type {Extent} */ (['y', y, m * columns, type])] : []),
      ],
    );
    const sizes = { rows: m, columns, activation, type };
    if (!one)
      return [
        ...matmul({ ...product, c: dy }),
        gluBackward({ gateUp, dy, dGateUp, ...sizes }),
        ...(y ? [gluForward({ gateUp, y, ...sizes })] : []),
      ];
    const tensors = {
      a,
      b,
      c: dGateUp,
      residual: gateUp,
      h: y,
      lda: k,
      ldb: columns,
      ldc: wide,
      ldr: wide,
      ldh: y ? columns : 0,
      ...second,
    };
    return recordsOf(one, tensors);
  }

  return { matmulGlu, matmulGluBackward };
}
