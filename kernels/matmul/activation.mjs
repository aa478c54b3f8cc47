// Products that end in an activation whose argument is kept, and those that end in an activation's gradient: one kernel where PTX has one for the
// product, else two passes.

import { activationKernels } from '../activation.mjs';
import { integer, reach, tensor } from '../base.mjs';

/** @typedef {import('../base.mjs').Tensor} Tensor */
/** @typedef {import('../base.mjs').DType} DType */
/** @typedef {import('../base.mjs').Dispatch} Dispatch */
/** @typedef {import('../base.mjs').KernelContext} KernelContext */
/** @typedef {import('../bounds.mjs').Extent} Extent */
/** @typedef {import('../matmul.mjs').MatmulArgs} MatmulArgs */
/** @typedef {import('../matmul.mjs').MatmulPlan} MatmulPlan */
/** @typedef {import('../matmul.mjs').Precision} Precision */
/** @typedef {import('./types.mjs').Problem} Problem */
/** @typedef {import('./types.mjs').PtxPlan} PtxPlan */

/**
 * The arguments that forward and backward share.
 * @typedef {object} ActivatedProduct
 * @property {number} m rows of `a` and of the result
 * @property {number} n columns of the result; even for 16-bit types
 * @property {number} k inner size of the product
 * @property {'gelu' | 'silu'} activation GELU in its tanh form, or x * sigmoid(x)
 * @property {DType} [type] of every tensor but the bias; f32 when left out
 * @property {Precision} [precision] of the product, as in `matmul`
 * @property {boolean} [bPermuted] `b`'s rows are permuted, as in `matmul`
 * @property {Partial<MatmulPlan>} [plan] of the product, as in `matmul`; with `kernel: 'ptx'` one kernel must be able to do both, or the call
 *   throws
 */

/**
 * @typedef {object} ActivationForwardTensors
 * @property {Tensor} a [m, k]
 * @property {Tensor} b [n, k]
 * @property {Tensor} [bias] [n] f32
 * @property {Tensor} x out: [m, n], A · Bᵀ + bias
 * @property {Tensor} y out: [m, n], the activation of x
 */

/**
 * @typedef {object} ActivationBackwardTensors
 * @property {Tensor} a [m, k], the gradient of the next layer's output
 * @property {Tensor} b [k, n], the next layer's weights
 * @property {Tensor} x [m, n], what the activation was applied to
 * @property {Tensor} dx out: [m, n], not `x`
 * @property {Tensor} dy out: [m, n], the product a · b, where that is a pass of its own; one kernel does not touch it
 */

/**
 * @param {KernelContext} context
 * @param {(args: MatmulArgs) => Dispatch[]} matmul
 * @param {ReturnType<typeof import('../hopper/products.mjs').ptxProducts>} ptx
 * @param {(args: Partial<MatmulArgs>) => Problem} problemOf the checked problem of a product's arguments
 */
export function activatedProducts(context, matmul, ptx, problemOf) {
  const { activationForward, activationBackward } = activationKernels(context);

  /** The pass as one kernel, if there is one. @param {Problem['args']} args of the product @param {'forward' | 'backward'} unit */
  function fused(args, unit) {
    const { plan: override } = args;
    const asked = override?.kernel === 'ptx';
    if (args.aType === 'f32') {
      if (asked) throw new RangeError('matmul: the PTX kernels compute products with activations of halves alone');
      return undefined;
    }
    if (override && !asked) return undefined;
    const problem = { ...problemOf(args), unit };
    if (problem.bPermuted) return { problem, plan: ptx.planPermuted(problem, override) };
    const { plan } = asked ? { plan: ptx.planOf(problem, override) } : ptx.choose(problem);
    return plan && { problem, plan };
  }

  /** @param {string} kernel @param {ActivatedProduct & Partial<ActivationForwardTensors & ActivationBackwardTensors>} args */
  function productOf(kernel, args) {
    const [m, n, k] = /** @type {const} */ (['m', 'n', 'k']).map((name) => integer(kernel, name, args[name]));
    const { type = 'f32', activation } = args;
    if (activation !== 'gelu' && activation !== 'silu') {
      throw new TypeError(`${kernel}: activation must be 'gelu' or 'silu', got ${String(activation)}`);
    }
    const types = { aType: type, bType: type, cType: type, precision: args.precision };
    return { ...types, m, n, k, activation, bPermuted: args.bPermuted, plan: args.plan };
  }

  /**
   * Checks the extents, and returns the pass as one kernel, or as the product and what follows it.
   * @param {string} kernel @param {Extent[]} reads @param {Extent[]} writes @param {{ problem: Problem, plan: PtxPlan } | undefined} one
   * @param {Record<string, { buffer: import('../base.mjs').Binding, offset: number } | undefined>} tensors of one kernel
   * @param {() => Dispatch[]} two
   */
  function dispatches(kernel, reads, writes, one, tensors, two) {
    for (const [name, x, size] of [...reads, ...writes]) reach(kernel, name, x.offset + size);
    context.checker?.check(kernel, reads, writes);
    if (!one) return two();
    const { problem, plan } = one;
    // A tiling that loads by TMA keeps its tensor maps in the workspace.
    const floats = ptx.workspaceFloats(plan);
    const work = floats > 0 ? { buffer: context.workspace('matmul', 4 * floats), offset: 0 } : undefined;
    const { m: _, n, k, transB } = problem;
    const leading = { lda: k, ldb: transB ? k : n, ldc: n, ldr: n, ldh: n };
    const operands = /** @type {import('./types.mjs').Operands} */ (/** @type {unknown} */ ({ ...tensors, ...leading, alpha: 1 }));
    const list = ptx.records({ ...problem, ...operands, activation: problem.args.activation }, plan, work);
    list[0].computes = { products: [problem], plan };
    return list;
  }

  /** See `matmulKernels`. @param {ActivatedProduct & ActivationForwardTensors} args @returns {Dispatch[]} */
  function matmulActivation(args) {
    const kernel = 'matmulActivation';
    const { activation, ...product } = productOf(kernel, args);
    const { m, n, k, aType: type } = product;
    const [a, b, x, y] = /** @type {const} */ (['a', 'b', 'x', 'y']).map((name) => tensor(kernel, name, args[name]));
    const bias = args.bias === undefined ? undefined : tensor(kernel, 'bias', args.bias);
    const plain = { ...product, a, b, c: x, bias, transB: true };
    /** @type {Extent[]} */
    const reads = [['a', a, m * k, type], ['b', b, n * k, type], ...(bias ? [/** @type {Extent} */ (['bias', bias, n, 'f32'])] : [])];
    /** @type {Extent[]} */
    const writes = [
      ['x', x, m * n, type],
      ['y', y, m * n, type],
    ];
    const one = fused({ ...plain, activation, half: y }, 'forward');
    return dispatches(kernel, reads, writes, one, { a, b, c: x, bias, h: y }, () => [
      ...matmul(plain),
      activationForward({ x, y, count: m * n, activation, type }),
    ]);
  }

  /** See `matmulKernels`. @param {ActivatedProduct & ActivationBackwardTensors} args @returns {Dispatch[]} */
  function matmulActivationBackward(args) {
    const kernel = 'matmulActivationBackward';
    const { activation, ...product } = productOf(kernel, args);
    const { m, n, k, aType: type } = product;
    const [a, b, x, dx, dy] = /** @type {const} */ (['a', 'b', 'x', 'dx', 'dy']).map((name) => tensor(kernel, name, args[name]));
    const one = fused({ ...product, a, b, c: dx, activation, slopeOf: x }, 'backward');
    /** @type {Extent[]} */
    const reads = [
      ['a', a, m * k, type],
      ['b', b, k * n, type],
      ['x', x, m * n, type],
    ];
    /** @type {Extent[]} */
    const writes = [['dx', dx, m * n, type], ...(one ? [] : [/** @type {Extent} */ (['dy', dy, m * n, type])])];
    return dispatches(kernel, reads, writes, one, { a, b, c: dx, residual: x }, () => [
      ...matmul({ ...product, a, b, c: dy }),
      activationBackward({ x, dy, dx, count: m * n, activation, type }),
    ]);
  }

  return { matmulActivation, matmulActivationBackward };
}
