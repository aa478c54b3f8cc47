// Matrix products: D = act(alpha * op(A) op(B) + beta * C + bias) + residual, row-major, any size, batched by strides.
//
// There are four families of kernels. `f32` runs on every device. `coop` uses VK_KHR_cooperative_matrix at subgroup scope. `rows` computes products
// of a few rows. `ptx` is written in PTX for NVIDIA's Hopper: halves on matrix units, and f32 without them. A chooser picks kernel and tiling by
// device and shape.
// Where the grid is small, K is split: each split writes partial sums to a workspace, and a second pass adds them in a fixed order, so
// that the result does not depend on timing.
//
// This file checks arguments. matmul/spirv.mjs, matmul/rows.mjs and hopper/products.mjs make plans and dispatches; matmul/glu.mjs makes products with SwiGLU.

import { finite, integer, reach, tensor } from './base.mjs';
import { firstByte, handleOf, rowsOf } from './bounds.mjs';
import { activatedProducts } from './matmul/activation.mjs';
import { gluProducts } from './matmul/glu.mjs';
import { fewRowProducts } from './matmul/rows.mjs';
import { extentsOfSecond, secondOf } from './matmul/second.mjs';
import { groupedProducts } from './hopper/groups.mjs';
import { ptxProducts } from './hopper/products.mjs';
import { halfOf, spirvProducts } from './matmul/spirv.mjs';
import { ANOTHER_ORDER, sumOrder } from './tuning/order.mjs';

export { coopShapes } from './matmul/spirv.mjs';

/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./base.mjs').DType} DType */
/** @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').KernelContext} KernelContext */
/** @typedef {import('./matmul/types.mjs').Plan} Plan */
/** @typedef {import('./matmul/types.mjs').Problem} Problem */
/** @typedef {import('./matmul/types.mjs').Product} Product */
/** @typedef {import('./matmul/activation.mjs').ActivatedProduct} ActivatedProduct */
/** @typedef {import('./matmul/activation.mjs').ActivationForwardTensors} ActivationForwardTensors */
/** @typedef {import('./matmul/activation.mjs').ActivationBackwardTensors} ActivationBackwardTensors */
/** @typedef {import('./matmul/glu.mjs').GluProduct} GluProduct */
/** @typedef {import('./matmul/glu.mjs').GluForwardTensors} GluForwardTensors */
/** @typedef {import('./matmul/glu.mjs').GluBackwardTensors} GluBackwardTensors */

/**
 * How the product is computed. `f32`: ordinary arithmetic. `f16`, `bf16`: matrix units multiply operands rounded to that type, and sum in f32.
 * `bf16x3`: each f32 operand is split into two bf16 parts, and three of their products are summed; the relative error is about 2^-16 (TF32:
 * 2^-11).
 * @typedef {'f32' | 'f16' | 'bf16' | 'bf16x3'} Precision
 */

/**
 * A kernel and its tiling. Sizes count elements.
 * @typedef {object} MatmulPlan
 * @property {'f32' | 'coop' | 'rows' | 'ptx'} kernel `f32`: ordinary arithmetic; `coop`: matrix units; `rows`: at most 8 rows, NT or NN, in ordinary
 *   arithmetic, A and B in the type of the precision; `ptx`: either, in PTX. PTX needs `info.hasPtx`, A and B both in one half type or both in f32, no batch, and (f32) row sizes and strides in multiples of 4 and tensors aligned to 16 bytes; of halves
 *   whose rows are no multiple of 16 bytes it takes copies
 * @property {string | import('./hopper/form.mjs').GemmTiling | import('./hopper/simt.mjs').SimtTiling} [tiling] ptx: a tiling of
 *   kernels/hopper/tilings.mjs by its name, or any other; gives `bm`, `bn`, `bk` and `stages`
 * @property {number} bm rows of a workgroup's tile
 * @property {number} bn columns of a workgroup's tile
 * @property {number} bk depth of a staged tile
 * @property {number} [tm] f32: rows a thread; coop: rows of the matrix instruction
 * @property {number} [tn] f32: columns a thread; coop: columns of the matrix instruction
 * @property {number} [tk] coop: depth of the matrix instruction
 * @property {number} [lx] f32: columns of threads in a patch of 32
 * @property {number} [wm] coop: rows of a subgroup's tile
 * @property {number} [wn] coop: columns of a subgroup's tile
 * @property {number} [stages] buffers of the staged tile, 1 or 2; f32: with 0 there is none, and each thread reads operands from memory
 * @property {number} [ahead] coop: 1 loads the fragments of a step during the step before
 * @property {number} [direct] coop: 1 stores fragments of f32 results straight to memory; by default they pass through shared memory, so that
 *   threads store whole lines
 * @property {number} [splits] parts that K is split into; 1 when left out
 * @property {number} [wave] workgroups that the device runs at once; needed for `tail`, and used by every plan in `ptx`
 * @property {number} [tail] parts that K is split into for the tiles after the last whole wave, which would leave most of the device idle. Not for
 *   batches; with `half` only in `ptx`
 * @property {string} [because] why this plan was chosen, in a few words: a line of a table, the model's microseconds, or a rule
 * @property {boolean} [fallback] a kernel in PTX would have been chosen but cannot be used, or nothing was measured near this product:
 *   `because` says which. `helios-vk tune` may find a faster plan
 * @property {boolean} [guess] the plan was chosen by the model of time, by the line of another product or by a rule: this product itself was
 *   not measured
 */

/**
 * @typedef {object} MatmulArgs
 * @property {Tensor} a A: M x K, or K x M with `transA`
 * @property {Tensor} b B: K x N, or N x K with `transB`
 * @property {Tensor} c D: M x N, and C where `beta` is not 0
 * @property {number} m rows of D
 * @property {number} n columns of D
 * @property {number} k inner size
 * @property {boolean} [transA] A lies transposed in memory
 * @property {boolean} [transB] B lies transposed in memory (weights as W[N, K])
 * @property {boolean} [bPermuted] B's rows in memory are permuted: in each 32 elements of a row, position p holds element
 *   8 · (p >> 1 & 3) + 2 · (p >> 3 & 3) + (p & 1). The permutation is its own inverse. One such copy of weights W[N, K] serves y = x Wᵀ
 *   (with `transB`) and dx = dy W (without). Only in PTX, for halves, without `transA`, with N and K multiples of 32; see `takesPermuted`
 * @property {boolean} [bShuffled] the former name of `bPermuted`
 * @property {DType} [aType] storage of A; `f32` when left out
 * @property {DType} [bType] storage of B; `f32` when left out
 * @property {DType} [cType] storage of C and D; `f32` when left out
 * @property {Precision} [precision] by default the half type of an operand, else `f32`
 * @property {number} [lda] elements from row to row of A in memory; packed when left out, as the next four are
 * @property {number} [ldb] of B
 * @property {number} [ldc] of C and D
 * @property {number} [ldr] of `residual`
 * @property {number} [ldh] of `half`
 * @property {number} [batch] number of products; 1 when left out
 * @property {number} [strideA] elements from batch to batch of A; packed when left out; 0 uses the operand for every batch
 * @property {number} [strideB] of B
 * @property {number} [strideC] of C and D
 * @property {number} [strideBias] of `bias`; 0 when left out
 * @property {number} [strideR] of `residual`
 * @property {number} [strideH] of `half`
 * @property {number} [alpha] 1 when left out
 * @property {number} [beta] 0 when left out: C is not read
 * @property {Tensor} [bias] [N] f32, added to every row before the activation
 * @property {Tensor} [residual] M x N f32, added after the activation
 * @property {Tensor} [a2] A2: M x K2, of A's type. Adds the product of a second pair of operands: alpha * (op(A) op(B) + A2 op(B2)). Not with
 *   `transA`, `bPermuted` or a batch
 * @property {Tensor} [b2] B2: K2 x N, or N x K2 with `transB`, of B's type
 * @property {number} [k2] inner size of the second pair
 * @property {number} [lda2] elements from row to row of A2 in memory; packed when left out
 * @property {number} [ldb2] of B2
 * @property {'gelu' | 'silu'} [activation] GELU in its tanh form, or x * sigmoid(x); none when left out
 * @property {Tensor} [half] second output: D in the half type of `precision`, for matrix-unit precisions
 * @property {Tensor} [workspace] f32 memory for split-K and tensor maps (see `matmulWorkspace`); the kernels' own when left out
 * @property {Partial<MatmulPlan>} [plan] overrides the chooser, wholly (with `kernel`) or in parts
 */

/**
 * Properties that mark a product as fused with SwiGLU or with an activation.
 * @typedef {object} GatedQuestion
 * @property {'forward' | 'backward'} [unit] the product of `matmulActivation`, with `half`, or of `matmulActivationBackward`, with `slopeOf`;
 *   with `activation`, and with halves as `cType`
 * @property {Tensor} [slopeOf] what the activation was applied to
 * @property {'forward' | 'backward'} [glu] the product of `matmulGlu` (n is then 2 · columns, with `transB`) or of `matmulGluBackward`
 *   (n is columns), with halves as `cType`
 */

/**
 * The product that a question is about: arguments of `matmul`, of which tensors may be missing.
 * @typedef {Partial<MatmulArgs> & { m: number, n: number, k: number }} MatmulQuestion
 */

/**
 * The product that `takesPermuted` is asked about: the arguments that `matmul` will get, except that `a`, `b` and `c` may be missing. Optional
 * tensors (`bias`, `residual`, `half`) must be given if `matmul` will get them, since they affect the choice of the kernel.
 * @typedef {MatmulQuestion & GatedQuestion} PermutedQuestion
 */

/**
 * How one launch computes several products.
 * @typedef {object} MatmulGroupPlan
 * @property {string | import('./hopper/form.mjs').GemmTiling} tiling a tiling of kernels/hopper/tilings.mjs by its name, or any other
 * @property {number} [wave] workgroups that the device runs at once
 * @property {number} [tail] parts that K is split into for the tiles after the last whole wave, if all of these belong to the last product;
 *   1 when left out
 * @property {string} [because] why this plan was chosen: the model's microseconds
 */

/**
 * @param {KernelContext} context
 * @param {Parameters<typeof ptxProducts>[1] & Parameters<typeof groupedProducts>[2]} [options] options of the kernels in PTX
 */
export function matmulKernels(context, options) {
  const { info } = context;
  const spirv = spirvProducts(context);
  const rows = fewRowProducts(context);
  const ptx = ptxProducts(context, options);
  const group = groupedProducts(context, ptx, options);

  /**
   * Whether the device can multiply in this precision. Every device can in `f32`; the others need matrix units.
   * @param {Precision} precision
   */
  function matmulSupports(precision) {
    return spirv.supports(precision);
  }

  /** @param {Partial<MatmulArgs>} args @returns {Problem} */
  function problemOf(args) {
    const m = integer('matmul', 'm', args.m);
    const n = integer('matmul', 'n', args.n);
    const k = integer('matmul', 'k', args.k);
    const batch = integer('matmul', 'batch', args.batch ?? 1, 1, 65535);
    const types = { aType: args.aType ?? 'f32', bType: args.bType ?? 'f32', cType: args.cType ?? 'f32' };
    for (const [name, type] of Object.entries(types)) {
      if (type !== 'f32' && type !== 'f16' && type !== 'bf16') {
        throw new TypeError(`matmul: ${name} must be 'f32', 'f16' or 'bf16', got ${String(type)}`);
      }
    }
    const { aType, bType, cType } = types;
    const precision = args.precision ?? (aType !== 'f32' ? aType : bType !== 'f32' ? bType : 'f32');
    if (!['f32', 'f16', 'bf16', 'bf16x3'].includes(precision)) {
      throw new TypeError(`matmul: precision must be 'f32', 'f16', 'bf16' or 'bf16x3', got ${String(precision)}`);
    }
    if (!matmulSupports(precision)) {
      throw new RangeError(`matmul: ${info.deviceName} has no matrix instruction for precision ${precision}`);
    }
    const half = halfOf(precision);
    const allowed = precision === 'f32' || precision === 'bf16x3' ? ['f32'] : ['f32', half];
    if (!allowed.includes(aType)) throw new TypeError(`matmul: precision ${precision} cannot read A as ${aType}`);
    if (!allowed.includes(bType)) throw new TypeError(`matmul: precision ${precision} cannot read B as ${bType}`);
    if (cType !== 'f32' && (precision === 'f32' || cType !== half)) {
      throw new TypeError(`matmul: precision ${precision} cannot write C as ${cType}`);
    }
    if (args.half !== undefined && precision === 'f32') {
      throw new TypeError('matmul: a half-precision second output needs a matrix-unit precision');
    }
    const k2 = args.k2 === undefined ? 0 : integer('matmul', 'k2', args.k2);
    if (k2 > 0 && (batch > 1 || args.transA || args.bPermuted || args.bShuffled))
      throw new RangeError('matmul: a second pair of operands (k2) takes neither a batch nor transA nor bPermuted');
    return {
      m,
      n,
      k,
      batch,
      precision,
      half,
      aType,
      bType,
      cType,
      beta: args.beta ?? 0,
      transA: Boolean(args.transA),
      transB: Boolean(args.transB),
      bPermuted: Boolean(args.bPermuted ?? args.bShuffled),
      dual: args.half !== undefined,
      args,
      ...(k2 > 0 ? { k2 } : {}),
    };
  }

  /**
   * The plan of a product: what the caller asks for, else the kernel for few rows where it can compute it, else PTX where it is known to be faster or B
   * is permuted, else SPIR-V.
   * @param {Problem} problem @returns {Plan}
   */
  function planOf(problem) {
    const { plan } = problem.args;
    if (plan?.kernel === 'ptx' && !problem.bPermuted) return ptx.planOf(problem, plan);
    if (plan?.kernel === 'rows' && !problem.bPermuted) return rows.planOf(problem, plan);
    if (plan && !problem.bPermuted) return spirv.planOf(problem, plan);
    if (problem.bPermuted) return ptx.planPermuted(problem, plan);
    const few = rows.choose(problem);
    if (few) return few;
    const { plan: chosen, refused } = ptx.choose(problem);
    if (chosen) return chosen;
    const best = spirv.planOf(problem, undefined, refused);
    if (best.because !== context.machine.plan(problem)?.because) return best;
    const own = rows.choose(problem, true) ?? ptx.untested(problem) ?? spirv.planOf(problem, undefined, undefined, true);
    return sumOrder(own) === sumOrder(best) ? best : { ...best, because: `${best.because}; ${ANOTHER_ORDER}` };
  }

  /** Elements of workspace that a plan needs. @param {Problem} problem @param {Plan} plan @returns {number} */
  const floatsOf = (problem, plan) =>
    plan.kernel === 'ptx'
      ? ptx.workspaceFloats(plan)
      : (plan.kernel === 'rows' ? rows : spirv).workspaceFloats(problem, /** @type {any} */ (plan));

  /**
   * The kernel and tiling that `matmul` uses for these arguments, and why. The first call for a kernel in PTX tests it. That is not possible
   * while a graph is recorded: products whose kernel was not tested before are then computed by the SPIR-V kernels.
   * @param {MatmulQuestion} args
   * @returns {MatmulPlan}
   */
  function matmulPlan(args) {
    const plan = planOf(problemOf(args));
    if (plan.kernel === 'ptx') {
      const { division: _, pads: _pads, rows: _rows, ...told } = plan;
      return told;
    }
    const { kPerSplit: _, ...parts } = plan;
    if (parts.kernel === 'rows') return parts;
    const { whole: _whole, rest: _rest, ...told } = parts;
    return told;
  }

  /**
   * The order in which the plan for these arguments adds up products over the depth, as a text: results of two plans have equal bits if their texts
   * are equal, and may differ in rounding if not.
   * @param {MatmulQuestion} args
   * @returns {string}
   */
  function matmulOrder(args) {
    return sumOrder(planOf(problemOf(args)));
  }

  /**
   * Elements (f32) of workspace that `matmul` needs for these arguments: for partial sums where K is split, and for tensor maps with a tiling
   * that loads by `tma`; else 0.
   * @param {MatmulQuestion} args
   * @returns {number}
   */
  function matmulWorkspace(args) {
    const problem = problemOf(args);
    const plan = planOf(problem);
    if (problem.k2 && plan.kernel !== 'ptx') return Math.max(...pairOf(args).map(matmulWorkspace));
    return floatsOf(problem, plan);
  }

  /**
   * Whether a product is known to be faster with a permuted B (`bPermuted`) than with B in natural order, and has a kernel for that on this
   * device. The first call tests the kernel. That is not possible while a graph is recorded: the answer is then no unless it was tested before.
   * @param {PermutedQuestion} args @param {boolean} [orSlower] whether a kernel that is not known to be faster will do; false when left out
   */
  function takesPermuted(args, orSlower = false) {
    const problem = { ...endingOf('takesPermuted', args), bPermuted: true };
    return ptx.choose(problem).plan !== undefined || (orSlower && ptx.worksPermuted(problem));
  }

  /**
   * Whether one kernel computes a product with its activation, or with an activation's gradient (`unit`). The first call tests the kernel, as that
   * of `takesPermuted` does.
   * @param {PermutedQuestion} args
   */
  function takesActivation(args) {
    return ptx.choose(endingOf('takesActivation', args)).plan !== undefined;
  }

  /** The problem of a question. @param {string} kernel @param {PermutedQuestion} question @returns {Problem} */
  function endingOf(kernel, { glu, unit, ...args }) {
    for (const [name, end] of Object.entries({ glu, unit })) {
      if (end !== undefined && end !== 'forward' && end !== 'backward')
        throw new TypeError(`${kernel}: ${name} must be 'forward' or 'backward', got ${String(end)}`);
    }
    return { ...problemOf(/** @type {MatmulArgs} */ (args)), ...(glu ? { glu } : {}), ...(unit ? { unit } : {}) };
  }

  /** A leading dimension, checked against the length of a row. */
  function leading(/** @type {string} */ name, /** @type {number | undefined} */ value, /** @type {number} */ extent) {
    return integer('matmul', name, value ?? extent, extent);
  }

  /**
   * A problem with its operands. Checks everything except whether tensors lie within their buffers.
   * @param {Problem} problem @returns {Product}
   */
  function productOf(problem) {
    const { m, n, k, k2 = 0, batch, cType, transA, transB, dual, args } = problem;
    const a = tensor('matmul', 'a', args.a);
    const b = tensor('matmul', 'b', args.b);
    const c = tensor('matmul', 'c', args.c);
    const h = args.half === undefined ? undefined : tensor('matmul', 'half', args.half);
    const bias = args.bias === undefined ? undefined : tensor('matmul', 'bias', args.bias);
    const residual = args.residual === undefined ? undefined : tensor('matmul', 'residual', args.residual);
    const lda = leading('lda', args.lda, transA ? m : k);
    const ldb = leading('ldb', args.ldb, transB ? k : n);
    const ldc = leading('ldc', args.ldc, n);
    const ldr = leading('ldr', args.ldr, n);
    const ldh = leading('ldh', args.ldh, n);
    const stride = (/** @type {string} */ name, /** @type {number | undefined} */ value, /** @type {number} */ packed) =>
      batch === 1 ? 0 : integer('matmul', name, value ?? packed, 0);
    const strideA = stride('strideA', args.strideA, (transA ? k : m) * lda);
    const strideB = stride('strideB', args.strideB, (transB ? n : k) * ldb);
    const strideC = stride('strideC', args.strideC, m * ldc);
    const strideR = stride('strideR', args.strideR, m * ldr);
    const strideH = stride('strideH', args.strideH, m * ldh);
    const strideBias = stride('strideBias', args.strideBias, 0);
    const alpha = finite('matmul', 'alpha', args.alpha ?? 1);
    finite('matmul', 'beta', args.beta ?? 0);
    const { activation } = args;
    if (activation !== undefined && activation !== 'gelu' && activation !== 'silu') {
      throw new TypeError(`matmul: activation must be 'gelu' or 'silu', got ${String(activation)}`);
    }
    /** @param {string} name @param {{ offset: number }} x @param {number} step from batch to batch @param {number} size */
    const within = (name, x, step, size) => reach('matmul', name, x.offset + (batch - 1) * step + size);
    within('a', a, strideA, (transA ? k : m) * lda);
    within('b', b, strideB, (transB ? n : k) * ldb);
    within('c', c, strideC, m * ldc);
    if (bias) within('bias', bias, strideBias, n);
    if (residual) within('residual', residual, strideR, m * ldr);
    const second = k2 > 0 ? secondOf('matmul', args, { m, n, k2, transB }) : {};
    if (h) within('half', h, strideH, m * ldh);

    const vec4 =
      n % 4 === 0 &&
      [c.offset, ldc, strideC].every((v) => v % 4 === 0) &&
      (!residual || [residual.offset, ldr, strideR].every((v) => v % 4 === 0)) &&
      (!h || [h.offset, ldh, strideH].every((v) => v % 4 === 0));
    const strides = { strideA, strideB, strideC, strideR, strideH, strideBias };
    // The problem comes behind: to add as many properties to a copy of it takes Node 20 37 µs in place of 0.4.
    return {
      a,
      b,
      c,
      h,
      bias,
      residual,
      lda,
      ldb,
      ldc,
      ldr,
      ldh,
      alpha,
      activation,
      vec4,
      toF32: cType === 'f32' && !dual,
      ...strides,
      ...problem,
      ...second,
    };
  }

  /**
   * The extents that a product reads and writes.
   * @param {Product} product @returns {{ reads: import('./bounds.mjs').Extent[], writes: import('./bounds.mjs').Extent[] }}
   */
  function extentsOf({ m, n, k, batch, half, aType, bType, cType, transA, transB, ...product }) {
    const { a, b, c, h, bias, lda, ldb, ldc, ldh, strideA, strideB, strideC, strideH, strideBias } = product;
    const reads = [
      rowsOf('a', a, aType, transA ? k : m, transA ? m : k, lda, batch, strideA),
      rowsOf('b', b, bType, transB ? n : k, transB ? k : n, ldb, batch, strideB),
    ];
    reads.push(...extentsOfSecond({ m, n, aType, transB, ...product }));
    if (bias) reads.push(rowsOf('bias', bias, 'f32', 1, n, n, batch, strideBias));
    const writes = [rowsOf('c', c, cType, m, n, ldc, batch, strideC)];
    if (h) writes.push(rowsOf('half', h, half, m, n, ldh, batch, strideH));
    return { reads, writes };
  }

  /**
   * A matrix product: D = act(alpha * op(A) op(B) + beta * C + bias) + residual. D overwrites C.
   * @param {MatmulArgs} args
   * @returns {Dispatch[]} one dispatch, or two where K is split; more where the tiles exceed one dispatch
   * @throws {RangeError} where the device cannot multiply in the precision, or a given plan cannot compute the product
   */
  function matmul(args) {
    const problem = problemOf(args);
    const plan = planOf(problem);
    if (problem.k2 && plan.kernel !== 'ptx') return pairOf(args).flatMap(matmul);
    const product = productOf(problem);
    const floats = floatsOf(problem, plan);
    let work;
    if (floats > 0) {
      const given = args.workspace === undefined ? undefined : tensor('matmul', 'workspace', args.workspace);
      reach('matmul', 'workspace', (given?.offset ?? 0) + floats);
      work = given ?? { buffer: context.workspace('matmul', 4 * floats), offset: 0 };
    }
    if (work && work.offset % 4) throw new RangeError(`matmul: workspace.offset must be a multiple of 4, got ${work.offset}`);

    if (context.checker) {
      const { m, n, batch, residual, ldr, strideR } = product;
      const { reads, writes } = extentsOf(product);
      // The residual may be c, since the invocation that reads an element also writes that element of the result.
      if (residual) {
        const added = rowsOf('residual', residual, 'f32', m, n, ldr, batch, strideR);
        context.checker.check('matmul', [added], [], writes.slice(0, 1));
      }
      if (work) writes.push(['workspace', work, floats, 'f32']);
      context.checker.check('matmul', reads, writes);
    }
    const dispatches =
      plan.kernel === 'ptx'
        ? ptx.records(product, plan, work)
        : plan.kernel === 'rows'
          ? rows.records(product, plan, work)
          : spirv.records(product, plan, work);
    dispatches[0].computes = { products: [problem], plan };
    return dispatches;
  }

  /**
   * A product with a second pair of operands as two, the second of which adds to the result of the first. A residual, which may be C, is added by the
   * first unless an activation comes before it.
   * @template {Partial<MatmulArgs>} T
   * @param {T} given @returns {[T, T]}
   */
  function pairOf(given) {
    const { a2, b2, k2, lda2, ldb2, half, residual, activation, ...args } = given;
    const late = residual !== undefined && activation !== undefined;
    const isC = (/** @type {import('./matmul/types.mjs').Placed} */ x, /** @type {import('./matmul/types.mjs').Placed} */ c) =>
      handleOf(x) === handleOf(c) && firstByte(x, 'f32') === firstByte(c, args.cType ?? 'f32');
    if (late && args.c !== undefined && isC(tensor('matmul', 'residual', residual), tensor('matmul', 'c', args.c)))
      throw new RangeError('matmul: with a second pair of operands (k2) and an activation the residual must not be c on this device');
    const second = { ...args, a: a2, b: b2, k: k2, lda: lda2, ldb: ldb2, bias: undefined, beta: 1, plan: undefined };
    const [first, last] = late ? [undefined, residual] : [residual, undefined];
    return /** @type {[any, any]} */ ([
      { ...args, residual: first },
      { ...second, half, residual: last, activation },
    ]);
  }

  /**
   * Whether one kernel computes a product with a second pair of operands (`k2`). The first call tests the kernel, as that of `takesPermuted` does.
   * @param {PermutedQuestion} args
   */
  function takesSecond(args) {
    return ptx.choose(endingOf('takesSecond', args)).plan !== undefined;
  }

  /**
   * How `matmulGroup` computes these products by one launch, or undefined where it does not. They must be 2 to 4 products of one form, type
   * and depth, with nothing added but C, and the model must expect one launch to be faster than a launch for each. The first call tests the
   * kernel, which is not possible while a graph is recorded.
   * @param {MatmulArgs[]} list
   * @returns {MatmulGroupPlan | undefined}
   */
  function matmulGroupPlan(list) {
    return group.plan(list.map(problemOf));
  }

  /**
   * Microseconds that `matmulGroup` is expected to save over a launch for each product. `compile` chooses groups by it. The last wave of a
   * launch counts as a whole one. No kernel is tested.
   * @param {MatmulArgs[]} list
   * @returns {number | undefined} undefined where these products would have no `matmulGroupPlan` even if the kernel passes its test
   */
  function matmulGroupSaving(list) {
    return group.choose(list.map(problemOf))?.saving;
  }

  /**
   * Several matrix products by one launch, whose tiles fill the device together.
   * @param {MatmulArgs[]} list no product may read what another one writes
   * @param {MatmulGroupPlan} [plan] `matmulGroupPlan`'s when left out
   * @returns {Dispatch[]} one dispatch, or two where the last tiles are split
   * @throws {RangeError} where one launch cannot compute them
   */
  function matmulGroup(list, plan) {
    const problems = list.map(problemOf);
    const chosen = plan ?? group.plan(problems);
    if (!chosen) throw new RangeError('matmulGroup: no plan is known that computes these products faster together than one after another');
    group.check(problems, chosen);
    const products = problems.map(productOf);
    if (context.checker) {
      const extents = products.map(extentsOf);
      context.checker.check(
        'matmulGroup',
        extents.flatMap(({ reads }) => reads),
        extents.flatMap(({ writes }) => writes),
      );
    }
    const dispatches = group.records(products, chosen);
    dispatches[0].computes = { products: problems, plan: chosen };
    return dispatches;
  }

  const glu = gluProducts(context, matmul, ptx, problemOf);
  const activated = activatedProducts(context, matmul, ptx, problemOf);
  return {
    ...{ matmul, matmulPlan, matmulOrder, matmulWorkspace, matmulSupports, takesPermuted, takesActivation, takesSecond },
    ...{ matmulGroup, matmulGroupPlan, matmulGroupSaving },
    /**
     * A linear layer and the activation of its result: x = A · Bᵀ + bias, which is stored for the backward pass, and y = f(x). One kernel for halves
     * where PTX is chosen for the product (`takesActivation`), and y is then computed from unrounded x; two passes elsewhere.
     * @param {ActivatedProduct & ActivationForwardTensors} args
     * @returns {Dispatch[]}
     */
    matmulActivation: activated.matmulActivation,
    /**
     * The gradient of an activation's argument: dx = dy · f'(x), where dy = A · B is the gradient of y = f(x). Where this is one kernel (see
     * `matmulActivation`), dy is not rounded.
     * @param {ActivatedProduct & ActivationBackwardTensors} args
     * @returns {Dispatch[]}
     */
    matmulActivationBackward: activated.matmulActivationBackward,
    /** The former name of `takesPermuted`. */
    takesShuffled: takesPermuted,
    /**
     * A product that ends in a gated linear unit (Shazeer 2020): [gate, up] = A · Bᵀ and y = f(gate) · up. [gate, up] is stored for the backward
     * pass. SwiGLU of halves is one kernel where PTX is chosen for the product, and y is computed from [gate, up] as they are stored. All other
     * cases take two passes.
     * @param {GluProduct & GluForwardTensors} args
     * @returns {Dispatch[]}
     */
    matmulGlu: glu.matmulGlu,
    /**
     * The gradient of [gate, up], where dy = A · B is the gradient of f(gate) · up: dup = dy · f(gate), dgate = dy · up · f'(gate). Where this is
     * one kernel (see `matmulGlu`), dy is not rounded. With `y` the unit's result is written again, with the bits of `matmulGlu` where that was one
     * kernel, too, or two passes, too.
     * @param {GluProduct & GluBackwardTensors} args
     * @returns {Dispatch[]}
     */
    matmulGluBackward: glu.matmulGluBackward,
  };
}
