// Matrix products: D = act(alpha * op(A) op(B) + beta * C + bias) + residual, row-major, any size, batched by strides.
//
// `f32` runs everywhere; `coop` uses VK_KHR_cooperative_matrix at subgroup scope. Where the grid is small a product is
// split in K: each split writes partial sums to a workspace, and a second pass adds them in order, so the result does
// not depend on timing. A chooser picks kernel and tiling by device and shape.

import { ceilDiv, finite, integer, pushConstants, reach, tensor } from './base.mjs';
import { rowsOf } from './check.mjs';

/**
 * Tiles of depth that one split goes through on a CPU device: lavapipe ends any loop after 65,535 iterations and says
 * nothing, so that the tiles behind would be missing from the sum.
 */
const MAX_CPU_STEPS = 65_000;

/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./base.mjs').DType} DType */
/** @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').KernelContext} KernelContext */

/**
 * How the product is computed. `f32`: ordinary arithmetic. `f16`, `bf16`: operands rounded to that type, products
 * summed in f32 on matrix units. `bf16x3`: f32 operands split in two bf16 parts each, three products, relative error
 * about 2^-16 (TF32: 2^-11).
 * @typedef {'f32' | 'f16' | 'bf16' | 'bf16x3'} Precision
 */

/**
 * A kernel and its tiling. Sizes count elements.
 * @typedef {object} MatmulPlan
 * @property {'f32' | 'coop'} kernel ordinary arithmetic, or matrix units
 * @property {number} bm rows of a workgroup's tile
 * @property {number} bn columns of a workgroup's tile
 * @property {number} bk depth of a staged tile
 * @property {number} [tm] f32: rows a thread; coop: rows of the matrix instruction
 * @property {number} [tn] f32: columns a thread; coop: columns of the matrix instruction
 * @property {number} [tk] coop: depth of the matrix instruction
 * @property {number} [lx] f32: columns of threads in a patch of 32
 * @property {number} [wm] coop: rows of a subgroup's tile
 * @property {number} [wn] coop: columns of a subgroup's tile
 * @property {number} [stages] buffers of the staged tile, 1 or 2
 * @property {number} [ahead] coop: 1 loads the fragments of a step during the step before
 * @property {number} [direct] coop: 1 stores fragments of f32 results as they are; by default they pass through shared
 *   memory, so that threads store whole lines
 * @property {number} [splits] parts that K is split into; 1 when left out
 * @property {number} [wave] workgroups that the device runs at once; for `tail`
 * @property {number} [tail] parts that K is split into for the tiles that are left after the last whole wave, which
 *   would leave most of the device idle; for a single product without `half`
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
 * @property {DType} [aType] storage of A; `f32` when left out
 * @property {DType} [bType] storage of B; `f32` when left out
 * @property {DType} [cType] storage of C and D; `f32` when left out
 * @property {Precision} [precision] by default the half type of an operand, else `f32`
 * @property {number} [lda] elements between rows of A in memory; packed when left out (so for all five)
 * @property {number} [ldb] of B
 * @property {number} [ldc] of C and D
 * @property {number} [ldr] of `residual`
 * @property {number} [ldh] of `half`
 * @property {number} [batch] number of products; 1 when left out
 * @property {number} [strideA] elements between batches; packed when left out, 0 repeats the operand
 * @property {number} [strideB] of B
 * @property {number} [strideC] of C and D
 * @property {number} [strideBias] of `bias`; 0 when left out
 * @property {number} [strideR] of `residual`
 * @property {number} [strideH] of `half`
 * @property {number} [alpha] 1 when left out
 * @property {number} [beta] 0 when left out: C is not read
 * @property {Tensor} [bias] f32, N elements, added to every row before the activation
 * @property {Tensor} [residual] f32, M x N, added after the activation
 * @property {'gelu' | 'silu'} [activation] tanh form of GELU, or x * sigmoid(x)
 * @property {Tensor} [half] second output: D in the half type of `precision`, for matrix-unit precisions
 * @property {Tensor} [workspace] f32 memory for split-K (see `matmulWorkspace`); the kernels' own when left out
 * @property {Partial<MatmulPlan>} [plan] overrides the chooser, wholly (with `kernel`) or in parts
 */

const LOAD_EXACT = 0;
const LOAD_VECTOR = 1;
const LOAD_SCALAR = 2;
const LOAD_CLAMP = 3;

const EPI_BETA = 1;
const EPI_BIAS = 2;
const EPI_RESIDUAL = 4;
const EPI_EXACT = 8;
const EPI_VEC4 = 16;
const EPI_GELU = 32;
const EPI_SILU = 64;
/** Matrix units: fragments go to memory without staging, each wholly inside or wholly outside. */
const EPI_DIRECT = 128;
const EPI_EARLY = 256;

/** Vulkan's numbers: `VkComponentTypeKHR`, `VkScopeKHR`. */
const COMPONENT = { float16: 0, float32: 1, bfloat16: 1_000_141_000 };
const SUBGROUP_SCOPE = 3;

/**
 * Shapes of subgroup-scope matrix instructions that multiply two matrices of `half` into f32, largest first.
 * @param {import('../index.js').DeviceInfo} info what `initDevice` returns
 * @param {'f16' | 'bf16'} half
 * @returns {{ m: number, n: number, k: number }[]}
 */
export function coopShapes(info, half) {
  if (!info.coopMatSupported) return [];
  const operand = half === 'f16' ? COMPONENT.float16 : COMPONENT.bfloat16;
  return (info.cooperativeMatrixProperties ?? [])
    .filter(
      (s) =>
        s.AType === operand &&
        s.BType === operand &&
        s.CType === COMPONENT.float32 &&
        s.ResultType === COMPONENT.float32 &&
        !s.saturatingAccumulation &&
        s.scope === SUBGROUP_SCOPE &&
        // Staged rows are vectors of eight halves.
        s.MSize % 8 === 0 &&
        s.NSize % 8 === 0 &&
        s.KSize % 8 === 0,
    )
    .map(({ MSize, NSize, KSize }) => ({ m: MSize, n: NSize, k: KSize }))
    .sort((x, y) => y.m * y.n * y.k - x.m * x.n * x.k);
}

/** @param {KernelContext} context */
export function matmulKernels(context) {
  const { info, isCpu } = context;
  const shared = info.maxComputeSharedMemorySize;
  const maxThreads = info.maxComputeWorkGroupInvocations;
  const subgroup = info.subgroupSize;
  const { tuning } = context;
  const { units } = tuning;

  /** @param {'f16' | 'bf16'} half */
  const shapes = (half) => coopShapes(info, half);

  /** The half type of a matrix-unit precision. @param {Precision} precision @returns {'f16' | 'bf16'} */
  const halfOf = (precision) => (precision === 'f16' ? 'f16' : 'bf16');

  /**
   * Whether the device can multiply in this precision.
   * @param {Precision} precision
   */
  function matmulSupports(precision) {
    if (precision === 'f32') return true;
    if (precision !== 'f16' && precision !== 'bf16' && precision !== 'bf16x3') return false;
    return shapes(halfOf(precision)).length > 0;
  }

  /** Threads of a plan's workgroup. @param {any} plan */
  function threadsOf(plan) {
    if (plan.kernel === 'f32') return (plan.bm / plan.tm) * (plan.bn / plan.tn);
    return (plan.bm / plan.wm) * (plan.bn / plan.wn) * subgroup;
  }

  /** Shared memory of a plan's workgroup, in bytes. @param {any} plan @param {any} problem */
  function sharedOf(plan, { transA, transB, precision }) {
    if (plan.kernel === 'f32') return plan.stages * plan.bk * 4 * (plan.bm + 4 + plan.bn + 4);
    const rows = (/** @type {boolean} */ contiguousK, /** @type {number} */ size) =>
      contiguousK ? size * (plan.bk + 8) : plan.bk * (size + 8);
    const stage = 2 * (rows(!transA, plan.bm) + rows(transB, plan.bn)) * (precision === 'bf16x3' ? 2 : 1);
    const scratch = (threadsOf(plan) / subgroup) * plan.tm * (plan.wn + 4) * 4;
    return Math.max(plan.stages * stage, scratch);
  }

  /**
   * Why a plan cannot run here, or undefined.
   * @param {any} plan @param {any} problem
   */
  function planFault(plan, problem) {
    const { transA, transB, precision } = problem;
    const threads = threadsOf(plan);
    if (!Number.isInteger(threads) || threads < 1) return 'the tile does not divide among threads';
    if (threads > maxThreads) return `${threads} threads a workgroup, the device allows ${maxThreads}`;
    const bytes = sharedOf(plan, problem);
    if (bytes > shared) return `${bytes} bytes of shared memory, the device allows ${shared}`;
    if (plan.kernel === 'f32') {
      if (plan.tm % 4 || plan.tn % 4 || plan.bk % 4) return 'tm, tn and bk must be multiples of 4';
      if (32 % plan.lx || (plan.bn / plan.tn) % plan.lx || (plan.bm / plan.tm) % (32 / plan.lx)) {
        return 'threads do not divide into patches';
      }
      if (((plan.bm * plan.bk) / 4) % threads || ((plan.bn * plan.bk) / 4) % threads) return 'loads do not divide';
      return undefined;
    }
    const half = halfOf(precision);
    if (!shapes(half).some((s) => s.m === plan.tm && s.n === plan.tn && s.k === plan.tk)) {
      return `no ${plan.tm}x${plan.tn}x${plan.tk} ${half} matrix instruction`;
    }
    if (plan.bm % plan.wm || plan.bn % plan.wn || plan.wm % plan.tm || plan.wn % plan.tn || plan.bk % plan.tk) {
      return 'tiles do not nest';
    }
    const vecsA = ((transA ? plan.bk * plan.bm : plan.bm * plan.bk) / 8) % threads;
    const vecsB = ((transB ? plan.bn * plan.bk : plan.bk * plan.bn) / 8) % threads;
    return vecsA || vecsB ? 'loads do not divide' : undefined;
  }

  /** Tilings from the largest down, for the generic rule. @param {any} problem */
  function candidates({ precision }) {
    if (precision === 'f32') {
      const tile = (/** @type {number[]} */ [bm, bn, bk, tm, tn, lx, stages]) => ({ kernel: 'f32', bm, bn, bk, tm, tn, lx, stages });
      return isCpu
        ? [[32, 32, 16, 4, 8, 4, 1]].map(tile)
        : [
            [128, 128, 16, 8, 8, 8, 2],
            [128, 128, 16, 8, 8, 8, 1],
            [64, 64, 16, 4, 4, 8, 2],
            [32, 32, 16, 4, 4, 8, 2],
          ].map(tile);
    }
    const [shape] = shapes(halfOf(precision));
    const { m: tm, n: tn, k: tk } = shape;
    const depth = (/** @type {number} */ bk) => Math.max(bk, tk);
    // In units of the instruction: [tile rows, tile columns, depth, subgroup rows, subgroup columns, stages].
    const scale = (/** @type {number[]} */ [bm, bn, bk, wm, wn, stages]) => ({
      kernel: 'coop',
      bm: bm * tm,
      bn: bn * tn,
      bk: depth(bk),
      wm: wm * tm,
      wn: wn * tn,
      tm,
      tn,
      tk,
      stages,
    });
    const list = [
      [8, 8, 64, 4, 2, 1],
      [8, 8, 32, 4, 2, 1],
      [4, 4, 64, 2, 2, 1],
      [4, 4, 32, 2, 2, 1],
      [4, 4, 16, 2, 2, 1],
      [2, 2, 32, 1, 1, 1],
      [2, 2, 16, 1, 1, 1],
      [2, 2, 16, 2, 1, 1],
      [2, 2, 16, 2, 2, 1],
    ].map(scale);
    return isCpu ? list.slice(4) : list;
  }

  /**
   * Kernel and tiling for a product: the table measured on this device where there is one, else the largest tile
   * that fills the device, else the smallest that fits, split in K.
   * @param {any} problem
   * @returns {MatmulPlan}
   */
  function choose(problem) {
    const { m, n, k, batch, precision } = problem;
    const tuned = tuning.matmulPlan?.(problem);
    if (tuned && !planFault(tuned, problem)) return tuned;
    const usable = candidates(problem).filter((plan) => !planFault(plan, problem));
    if (usable.length === 0) {
      throw new RangeError(`matmul: no ${precision} tile fits this device (${shared} bytes of shared memory)`);
    }
    const tiles = (/** @type {any} */ plan) => ceilDiv(m, plan.bm) * ceilDiv(n, plan.bn) * batch;
    // A tile at least twice as tall or wide as the product would mostly multiply padding.
    const fitting = usable.filter((p) => p.bm < 2 * m && p.bn < 2 * n);
    const small = usable.find((p) => p.bm * p.bn <= 64 * 64) ?? usable[usable.length - 1];
    // A deep product can make up for few tiles by splits of 1,024 and more, which cost little beside their depth.
    const mostSplits = isCpu ? 1 : Math.max(1, Math.min(8, Math.floor(k / 1024)));
    const filling = fitting.find((p) => tiles(p) * mostSplits >= units);
    const plan = /** @type {any} */ (filling ?? (fitting.length > 0 ? small : usable[usable.length - 1]));
    const room =
      filling && tiles(plan) < units ? Math.min(mostSplits, Math.ceil((2.5 * units) / tiles(plan))) : Math.floor(units / tiles(plan));
    const deep = Math.floor(k / (8 * plan.bk));
    return { ...plan, splits: isCpu ? 1 : Math.max(1, Math.min(room, deep, 8)) };
  }

  /** @param {MatmulArgs} args @returns {any} */
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
      dual: args.half !== undefined,
    };
  }

  /** @param {any} problem @param {Partial<MatmulPlan> | undefined} override @returns {any} */
  function planOf(problem, override) {
    const chosen = override?.kernel ? {} : choose(problem);
    const plan = /** @type {any} */ ({ stages: 1, splits: 1, ...chosen, ...override });
    if ((problem.precision === 'f32') !== (plan.kernel === 'f32')) {
      throw new RangeError(`matmul: kernel ${plan.kernel} does not compute in ${problem.precision}`);
    }
    const fault = planFault(plan, problem);
    if (fault) throw new RangeError(`matmul: the plan cannot run on ${info.deviceName}: ${fault}`);
    const tiles = ceilDiv(problem.m, plan.bm) * ceilDiv(problem.n, plan.bn);
    const tail = integer('matmul', 'tail', plan.tail ?? 1, 1, 64);
    const wave = integer('matmul', 'wave', plan.wave ?? tiles, 1);
    plan.rest = tiles % wave;
    const tailed =
      tail > 1 && plan.rest > 0 && problem.batch === 1 && !problem.dual && tiles - plan.rest + plan.rest * tail <= context.maxGroups;
    // A split holds whole tiles of depth, and none is empty.
    const deep = isCpu ? ceilDiv(ceilDiv(problem.k, plan.bk), MAX_CPU_STEPS) : 1;
    const splits = Math.max(deep, tailed ? tail : integer('matmul', 'splits', plan.splits, 1, 64));
    plan.kPerSplit = ceilDiv(ceilDiv(problem.k, plan.bk), splits) * plan.bk;
    plan.splits = ceilDiv(problem.k, plan.kPerSplit);
    plan.whole = tiles - plan.rest;
    if (tailed && plan.splits > 1) {
      plan.tail = plan.splits;
      plan.splits = 1;
    } else {
      delete plan.tail;
      delete plan.wave;
    }
    return plan;
  }

  /**
   * The kernel and tiling that `matmul` uses for these arguments.
   * @param {MatmulArgs} args
   * @returns {MatmulPlan}
   */
  function matmulPlan(args) {
    const { kPerSplit: _, whole: _whole, rest: _rest, ...plan } = planOf(problemOf(args), args.plan);
    return plan;
  }

  /** @param {any} problem @param {any} plan */
  function workspaceFloats({ m, n, batch }, plan) {
    if (plan.tail) return plan.tail * plan.rest * plan.bm * plan.bn;
    if (plan.splits === 1) return 0;
    return batch * plan.splits * ceilDiv(m, plan.bm) * plan.bm * ceilDiv(n, plan.bn) * plan.bn;
  }

  /**
   * Elements (f32) of workspace that `matmul` needs for these arguments; 0 when K is not split.
   * @param {MatmulArgs} args
   */
  function matmulWorkspace(args) {
    const problem = problemOf(args);
    return workspaceFloats(problem, planOf(problem, args.plan));
  }

  /**
   * How an operand can be read: `contiguous` is the extent of its rows in memory, `whole` whether K is whole tiles,
   * `clamp` how many neighbours a thread reads.
   * @param {{ type: string, ld: number, offset: number, stride: number, contiguous: number, exact: boolean, whole: boolean, clamp: number }} operand
   */
  function loadMode({ type, ld, offset, stride, contiguous, exact, whole, clamp }) {
    const vec = type === 'f32' ? 4 : 8;
    if (ld % vec || offset % vec || stride % vec) return LOAD_SCALAR;
    if (exact) return LOAD_EXACT;
    if (whole && contiguous % clamp === 0) return LOAD_CLAMP;
    return contiguous % vec ? LOAD_SCALAR : LOAD_VECTOR;
  }

  /** Leading dimension, checked against the row's extent. */
  function leading(/** @type {string} */ name, /** @type {number | undefined} */ value, /** @type {number} */ extent) {
    return integer('matmul', name, value ?? extent, extent);
  }

  /**
   * A matrix product.
   * @param {MatmulArgs} args
   * @returns {Dispatch[]} one dispatch, or two where K is split
   */
  function matmul(args) {
    const problem = problemOf(args);
    const { m, n, k, batch, half, aType, bType, cType, transA, transB, dual } = problem;
    const plan = planOf(problem, args.plan);

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
    const beta = finite('matmul', 'beta', args.beta ?? 0);
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
    if (h) within('half', h, strideH, m * ldh);

    const effects =
      (beta !== 0 ? EPI_BETA : 0) |
      (bias ? EPI_BIAS : 0) |
      (residual ? EPI_RESIDUAL : 0) |
      (activation === 'gelu' ? EPI_GELU : activation === 'silu' ? EPI_SILU : 0);
    const tilesExact = m % plan.bm === 0 && n % plan.bn === 0;
    const vec4 =
      n % 4 === 0 &&
      [c.offset, ldc, strideC].every((v) => v % 4 === 0) &&
      (!residual || [residual.offset, ldr, strideR].every((v) => v % 4 === 0)) &&
      (!h || [h.offset, ldh, strideH].every((v) => v % 4 === 0));
    const split = plan.splits > 1;
    const toF32 = cType === 'f32' && !dual;
    const direct = plan.kernel === 'coop' && plan.direct === 1 && m % plan.tm === 0 && n % plan.tn === 0 && vec4 && toF32 && !bias;
    // Sums that alpha scales at the end can start from beta / alpha * C.
    const early = beta !== 0 && alpha !== 0 && (plan.kernel === 'f32' || direct);
    const epi = split
      ? EPI_EXACT | EPI_VEC4 | (plan.kernel === 'coop' && plan.direct === 1 ? EPI_DIRECT : 0)
      : effects | (tilesExact ? EPI_EXACT : 0) | (vec4 ? EPI_VEC4 : 0) | (direct ? EPI_DIRECT : 0) | (early ? EPI_EARLY : 0);
    const clamp = plan.kernel === 'f32' ? 4 : 8;
    const modeA = loadMode({
      type: aType,
      ld: lda,
      offset: a.offset,
      stride: strideA,
      contiguous: transA ? m : k,
      exact: m % plan.bm === 0 && k % plan.bk === 0,
      whole: k % plan.bk === 0,
      clamp,
    });
    const modeB = loadMode({
      type: bType,
      ld: ldb,
      offset: b.offset,
      stride: strideB,
      contiguous: transB ? k : n,
      exact: n % plan.bn === 0 && k % plan.bk === 0,
      whole: k % plan.bk === 0,
      clamp,
    });

    const tilesM = ceilDiv(m, plan.bm);
    const tilesN = ceilDiv(n, plan.bn);
    const padM = tilesM * plan.bm;
    const padN = tilesN * plan.bn;
    let work;
    if (split || plan.tail) {
      const floats = workspaceFloats(problem, plan);
      const given = args.workspace === undefined ? undefined : tensor('matmul', 'workspace', args.workspace);
      reach('matmul', 'workspace', (given?.offset ?? 0) + floats);
      work = given ?? { buffer: context.workspace('matmul', 4 * floats), offset: 0 };
    }
    if (work && work.offset % 4) throw new RangeError(`matmul: workspace.offset must be a multiple of 4, got ${work.offset}`);

    if (context.checker) {
      const reads = [
        rowsOf('a', a, aType, transA ? k : m, transA ? m : k, lda, batch, strideA),
        rowsOf('b', b, bType, transB ? n : k, transB ? k : n, ldb, batch, strideB),
      ];
      if (bias) reads.push(rowsOf('bias', bias, 'f32', 1, n, n, batch, strideBias));
      const writes = [rowsOf('c', c, cType, m, n, ldc, batch, strideC)];
      // It may be c: the invocation that reads an element writes the result's.
      if (residual) context.checker.check('matmul', [rowsOf('residual', residual, 'f32', m, n, ldr, batch, strideR)], [], writes);
      if (h) writes.push(rowsOf('half', h, half, m, n, ldh, batch, strideH));
      if (work) writes.push(['workspace', work, workspaceFloats(problem, plan), 'f32']);
      context.checker.check('matmul', reads, writes);
    }

    const { name, specialization, options } = pipelineOf(plan, problem, { modeA, modeB, epi });
    const out = split ? /** @type {{ buffer: number, offset: number }} */ (work) : c;
    // Absent inputs are never read; A stands in, so that no false dependency arises.
    const buffers = [
      a.buffer,
      b.buffer,
      (split ? undefined : bias)?.buffer ?? a.buffer,
      (split ? undefined : residual)?.buffer ?? a.buffer,
      out.buffer,
    ];
    if (h && !split) buffers.push(h.buffer);
    if (work && plan.tail) buffers.push(work.buffer);

    /** @type {Dispatch[]} */
    const dispatches = [];
    // Rows of tiles at a time, where the grid has more tiles than a dispatch takes workgroups.
    if (tilesN > context.maxGroups) throw new RangeError(`matmul: n = ${n} makes ${tilesN} tiles in a row, more than ${context.maxGroups}`);
    const rowsAtOnce = Math.max(1, Math.floor(context.maxGroups / tilesN));
    for (let row = 0; row < tilesM; row += rowsAtOnce) {
      const first = row * plan.bm;
      const rows = Math.min(rowsAtOnce, tilesM - row);
      const push = pushConstants(
        [
          Math.min(rows * plan.bm, m - first),
          n,
          k,
          lda,
          ldb,
          split ? padN : ldc,
          ldr,
          ldh,
          a.offset + first * (transA ? 1 : lda),
          b.offset,
          bias?.offset ?? 0,
          (residual?.offset ?? 0) + first * ldr,
          out.offset + first * (split ? padN : ldc),
          (h?.offset ?? 0) + first * ldh,
          strideA,
          strideB,
          strideBias,
          strideR,
          split ? padM * padN : strideC,
          strideH,
          plan.kPerSplit,
          plan.splits,
          plan.whole,
          plan.rest,
          work?.offset ?? 0,
        ],
        split ? [1, 0] : [alpha, beta],
      );
      dispatches.push(
        context.dispatch(name, {
          buffers,
          writes: (1 << 4) | ((h && !split) || plan.tail ? 1 << 5 : 0),
          groups: [plan.tail ? plan.whole + plan.rest * plan.tail : rows * tilesN, plan.splits, batch],
          push,
          specialization,
          ...options,
        }),
      );
    }

    if (work) {
      const reduce = `matmul_reduce${plan.tail ? '_tail' : ''}${toF32 ? '' : `_${half}`}${dual ? '_dual' : ''}`;
      const threads = Math.min(256, maxThreads);
      const target = [work.buffer, bias?.buffer ?? work.buffer, residual?.buffer ?? work.buffer, c.buffer];
      if (h) target.push(h.buffer);
      dispatches.push(
        context.dispatch(reduce, {
          buffers: target,
          writes: (1 << 3) | (h ? 1 << 4 : 0),
          groups: [context.strideGroups(plan.tail ? (plan.rest * plan.bm * plan.bn) / 4 : m * ceilDiv(n, 4), threads), 1, batch],
          push: pushConstants(
            [
              m,
              n,
              k,
              padN,
              0,
              ldc,
              ldr,
              ldh,
              work.offset,
              0,
              bias?.offset ?? 0,
              residual?.offset ?? 0,
              c.offset,
              h?.offset ?? 0,
              plan.tail ? plan.rest * plan.bm * plan.bn : padM * padN,
              0,
              strideBias,
              strideR,
              strideC,
              strideH,
              0,
              plan.tail ?? plan.splits,
              plan.whole,
              plan.rest,
              0,
            ],
            [alpha, beta],
          ),
          specialization: [threads, effects | (vec4 ? EPI_VEC4 : 0), cType === 'f32' ? 0 : 1, ...(plan.tail ? [plan.bm, plan.bn] : [])],
        }),
      );
    }
    return dispatches;
  }

  /** @param {any} plan @param {any} problem @param {any} how */
  function pipelineOf(plan, { precision, aType, bType, cType, transA, transB, dual }, { modeA, modeB, epi }) {
    const threads = threadsOf(plan);
    const split = plan.splits > 1;
    const second = dual && !split ? '_dual' : '';
    const flag = (/** @type {boolean} */ b) => (b ? 1 : 0);
    if (plan.kernel === 'f32') {
      return {
        name: `matmul_f32${plan.tail ? '_tail' : ''}`,
        specialization: [
          threads,
          plan.bm,
          plan.bn,
          plan.bk,
          plan.tm,
          plan.tn,
          plan.lx,
          flag(transA),
          flag(transB),
          modeA,
          modeB,
          epi,
          plan.stages,
        ],
        options: {},
      };
    }
    const halfC = flag(cType !== 'f32' && !split);
    return {
      name: `matmul_coop_${precision}${second}${plan.tail ? '_tail' : ''}`,
      specialization: [
        threads,
        plan.bm,
        plan.bn,
        plan.bk,
        plan.wm,
        plan.wn,
        plan.tm,
        plan.tn,
        plan.tk,
        subgroup,
        flag(transA),
        flag(transB),
        modeA,
        modeB,
        flag(aType === 'f32'),
        flag(bType === 'f32'),
        plan.stages,
        epi,
        halfC,
        plan.ahead ?? 0,
      ],
      options: context.wholeSubgroups,
    };
  }

  return { matmul, matmulPlan, matmulWorkspace, matmulSupports };
}
