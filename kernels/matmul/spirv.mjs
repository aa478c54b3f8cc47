// Matrix products by the SPIR-V kernels: `f32` in ordinary arithmetic, which every device runs, and `coop` by VK_KHR_cooperative_matrix at
// subgroup scope. This file chooses their tilings and makes dispatches.

import { MAX_CPU_ROUNDS, ceilDiv, integer, knowsSubgroups, pushConstants } from '../base.mjs';
import { ASKED, isSpirv, settled } from '../tuning/table.mjs';
import { EPI_VEC4, effectsOf, sumParts } from './reduce.mjs';

/** @typedef {import('../base.mjs').Dispatch} Dispatch */
/** @typedef {import('../base.mjs').KernelContext} KernelContext */
/** @typedef {import('../matmul.mjs').MatmulPlan} MatmulPlan */
/** @typedef {import('./types.mjs').CoopTiling} CoopTiling */
/** @typedef {import('./types.mjs').F32Tiling} F32Tiling */
/** @typedef {import('./types.mjs').Problem} Problem */
/** @typedef {import('./types.mjs').Product} Product */
/** @typedef {import('./types.mjs').SpirvChoice} SpirvChoice */
/** @typedef {import('./types.mjs').SpirvPlan} SpirvPlan */
/** @typedef {import('./types.mjs').SpirvTiling} SpirvTiling */
/** @typedef {import('../matmul.mjs').Precision} Precision */

const LOAD_EXACT = 0;
const LOAD_VECTOR = 1;
const LOAD_SCALAR = 2;
const LOAD_CLAMP = 3;

/** Flags beside those of `effectsOf`, which the second pass shares. */
const EPI_EXACT = 8;
/** Matrix units: fragments go to memory without staging. Each lies wholly inside or wholly outside the result. */
const EPI_DIRECT = 128;
const EPI_EARLY = 256;

/**
 * Most terms of an element in one chain of additions, and most elements of partial sums for which K is split to stay below that. A chain of 2^20
 * equal terms has a relative error of up to 2e-3, one of 2^12 terms 5e-5. With more partial sums, K is split only for speed.
 */
const [MAX_CHAIN, MAX_CHAIN_PARTS] = [1 << 12, 1 << 18];

/** Vulkan's numbers: `VkComponentTypeKHR`, `VkScopeKHR`. */
const COMPONENT = { float16: 0, float32: 1, bfloat16: 1_000_141_000 };
const SUBGROUP_SCOPE = 3;

/**
 * Shapes of subgroup-scope matrix instructions that multiply two matrices of `half` into f32, largest first.
 * @param {import('../../index.js').DeviceInfo} info what `initDevice` returns
 * @param {'f16' | 'bf16'} half
 * @returns {{ m: number, n: number, k: number }[]}
 */
export function coopShapes(info, half) {
  if (!info.coopMatSupported || !knowsSubgroups(info)) return [];
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
        // Rows are staged as vectors of eight halves.
        s.MSize % 8 === 0 &&
        s.NSize % 8 === 0 &&
        s.KSize % 8 === 0,
    )
    .map(({ MSize, NSize, KSize }) => ({ m: MSize, n: NSize, k: KSize }))
    .sort((x, y) => y.m * y.n * y.k - x.m * x.n * x.k);
}
/** The half type of a matrix-unit precision. @param {Precision} precision @returns {'f16' | 'bf16'} */
export const halfOf = (precision) => (precision === 'f16' ? 'f16' : 'bf16');

/** Tilings in units of the instruction: [tile rows, tile columns, depth, subgroup rows, subgroup columns, stages]. */
export const TILINGS = [
  [8, 8, 64, 4, 2, 1],
  [8, 8, 32, 4, 2, 1],
  [4, 4, 64, 2, 2, 1],
  [4, 4, 32, 2, 2, 1],
  [4, 4, 16, 2, 2, 1],
  [2, 2, 32, 1, 1, 1],
  // Four subgroups of 64, as AMD's, have more invocations than the tile above has loads.
  [2, 2, 32, 2, 1, 1],
  [2, 2, 16, 1, 1, 1],
  [2, 2, 16, 2, 1, 1],
  [2, 2, 16, 2, 2, 1],
];

/**
 * Tilings for any matrix instruction, largest first.
 * @param {{ m: number, n: number, k: number }} shape of the instruction @param {readonly number[][]} [list] as `TILINGS`, which it is when left out
 * @returns {CoopTiling[]}
 */
export function scaledTilings({ m: tm, n: tn, k: tk }, list = TILINGS) {
  const depth = (/** @type {number} */ bk) => Math.max(bk, tk);
  const scale = (/** @type {number[]} */ [bm, bn, bk, wm, wn, stages]) => ({
    kernel: /** @type {const} */ ('coop'),
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
  return list.map(scale);
}

/** @param {number[]} sizes @returns {F32Tiling} */
const cpuTiling = ([bm, bn, tm, tn]) => ({ kernel: 'f32', bm, bn, bk: 4, tm, tn, lx: 1, stages: 0 });
/**
 * f32 tilings for CPU devices. These gain nothing from a staged tile: shared memory is ordinary memory to them, and a barrier switches between
 * threads. A workgroup is eight threads, which such a device computes together, whatever the tile's shape.
 */
const DIRECT_TILINGS = [
  [32, 16, 8, 8],
  [16, 32, 8, 8],
  [64, 8, 8, 8],
  [8, 64, 8, 8],
].map(cpuTiling);
/** Those with one row of threads, which load A by shares where a shuffle is cheap. */
const SHUFFLED_TILINGS = [
  [32, 32, 32, 4],
  [16, 32, 16, 4],
  [8, 64, 8, 8],
].map(cpuTiling);
/** So many times as long takes an element of a tile whose threads load all of A that they need (lavapipe of Mesa 22.3.6). */
const WITHOUT_SHARES = 2;

/** f32 tilings for a CPU device. @param {KernelContext} context */
export const cpuTilings = (context) =>
  context.shufflesEight ? [...SHUFFLED_TILINGS, ...DIRECT_TILINGS.filter(({ bm, tm }) => bm !== tm)] : DIRECT_TILINGS;

/** Most elements of a result that a thread may sum. No device has registers for more, and compilers would take minutes. */
const MAX_SUMS = 512;

/** @param {KernelContext} context */
export function spirvProducts(context) {
  const { info, isCpu } = context;
  const shared = info.maxComputeSharedMemorySize;
  const maxThreads = info.maxComputeWorkGroupInvocations;
  const subgroup = info.subgroupSize;
  const { tuning } = context;
  const { units } = tuning;

  /** @param {'f16' | 'bf16'} half */
  const shapes = (half) => coopShapes(info, half);

  /**
   * Whether the device can multiply in this precision.
   * @param {Precision} precision
   */
  function supports(precision) {
    if (precision === 'f32') return true;
    if (precision !== 'f16' && precision !== 'bf16' && precision !== 'bf16x3') return false;
    return shapes(halfOf(precision)).length > 0;
  }

  /** Threads of a plan's workgroup. @param {SpirvTiling} plan */
  function threadsOf(plan) {
    if (plan.kernel === 'f32') return (plan.bm / plan.tm) * (plan.bn / plan.tn);
    return (plan.bm / plan.wm) * (plan.bn / plan.wn) * subgroup;
  }

  /** Whether the threads of a tile share the loads of A. @param {F32Tiling} plan */
  const sharesA = (plan) => context.shufflesEight && plan.stages === 0 && plan.tm === plan.bm && threadsOf(plan) === subgroup;

  /** Shared memory of a plan's workgroup, in bytes. @param {SpirvTiling} plan @param {Problem} problem */
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
   * @param {SpirvTiling} plan @param {Problem} problem
   */
  function tilingFault(plan, problem) {
    const { transA, transB, precision } = problem;
    const threads = threadsOf(plan);
    // Rows and columns are checked separately: (48 / 32) * (64 / 32) threads is a whole number, but would leave rows out.
    const nested = plan.kernel !== 'f32' || (plan.bm % plan.tm === 0 && plan.bn % plan.tn === 0);
    if (!nested || !Number.isInteger(threads) || threads < 1) return 'the tile does not divide among threads';
    const sums = (plan.bm * plan.bn) / threads;
    if (sums > MAX_SUMS) return `${sums} sums a thread, more than ${MAX_SUMS}`;
    if (threads > maxThreads) return `${threads} threads a workgroup, the device allows ${maxThreads}`;
    const bytes = sharedOf(plan, problem);
    if (bytes > shared) return `${bytes} bytes of shared memory, the device allows ${shared}`;
    if (plan.kernel === 'f32') {
      if (plan.tm % 4 || plan.tn % 4 || plan.bk % 4) return 'tm, tn and bk must be multiples of 4';
      if (plan.stages === 0) return undefined;
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

  /** The tilings that the generic rule chooses from, largest first. @param {Problem} problem @returns {SpirvTiling[]} */
  function candidates({ precision }) {
    if (precision === 'f32') {
      const tile = (/** @type {number[]} */ [bm, bn, bk, tm, tn, lx, stages]) => ({
        kernel: /** @type {const} */ ('f32'),
        bm,
        bn,
        bk,
        tm,
        tn,
        lx,
        stages,
      });
      return [
        [128, 128, 16, 8, 8, 8, 2],
        [128, 128, 16, 8, 8, 8, 1],
        [64, 64, 16, 4, 4, 8, 2],
        [32, 32, 16, 4, 4, 8, 2],
      ].map(tile);
    }
    const [shape] = shapes(halfOf(precision));
    const list = scaledTilings(shape);
    return isCpu ? list.slice(4) : list;
  }

  /**
   * Chooses kernel and tiling for a product. Tables measured on this machine, then on this kind of device, come first. Without a line the
   * largest tile that fills the device is taken, else the smallest that fits, with K split. On a CPU device, f32 takes the direct tile with
   * the least padding.
   * @param {Problem} problem @param {boolean} [own] whether to leave out what was measured on this machine
   * @returns {SpirvChoice}
   */
  function choose(problem, own = false) {
    const { m, n, k, batch, precision } = problem;
    for (const tuned of [own ? undefined : context.machine.plan(problem), tuning.matmulPlan?.(problem)]) {
      if (tuned && isSpirv(tuned) && !tilingFault(tuned, problem)) return settled(context.machine, problem, tuned);
    }
    if (isCpu && precision === 'f32') {
      const cost = (/** @type {F32Tiling} */ plan) =>
        ceilDiv(m, plan.bm) * plan.bm * ceilDiv(n, plan.bn) * plan.bn * (sharesA(plan) ? 1 : WITHOUT_SHARES);
      const [plan] = cpuTilings(context).toSorted((x, y) => cost(x) - cost(y));
      return settled(context.machine, problem, { ...plan, splits: 1, because: 'a CPU: the tile with the least padding', guess: true });
    }
    const usable = candidates(problem).filter((plan) => !tilingFault(plan, problem));
    if (usable.length === 0) {
      throw new RangeError(`matmul: no ${precision} tile fits this device (${shared} bytes of shared memory)`);
    }
    const tiles = (/** @type {SpirvTiling} */ plan) => ceilDiv(m, plan.bm) * ceilDiv(n, plan.bn) * batch;
    // A tile at least twice as tall or wide as the product would mostly multiply padding.
    const fitting = usable.filter((p) => p.bm < 2 * m && p.bn < 2 * n);
    const small = usable.find((p) => p.bm * p.bn <= 64 * 64) ?? usable[usable.length - 1];
    const least = usable[usable.length - 1];
    // Of the tiles of the least size the first has the deepest steps. A CPU has no use for its many invocations.
    const narrow = isCpu ? least : (usable.find((p) => p.bm * p.bn === least.bm * least.bn) ?? least);
    // A deep product makes up for few tiles by splits of a depth of at least 1,024, whose second pass then costs little.
    const mostSplits = isCpu ? 1 : Math.max(1, Math.min(8, Math.floor(k / 1024)));
    const filling = fitting.find((p) => tiles(p) * mostSplits >= units);
    const plan = filling ?? (fitting.length > 0 ? small : narrow);
    const count = tiles(plan);
    const deeper = count < units ? Math.min(mostSplits, Math.ceil((2.5 * units) / count)) : 1;
    // Parts of less depth at least fill the device once.
    const room = filling ? deeper : Math.max(deeper, Math.floor(units / count));
    const deep = Math.floor(k / (8 * plan.bk));
    const because = filling ? 'no line is near: the largest tile that fills the device' : 'no line is near: the smallest tile that fits';
    const unknown = isCpu ? { guess: true } : { fallback: true, guess: true };
    return settled(context.machine, problem, { ...plan, splits: isCpu ? 1 : Math.max(1, Math.min(room, deep, 8)), because, ...unknown });
  }

  /**
   * The plan of a product, including how the depth is divided.
   * @param {Problem} problem @param {Partial<MatmulPlan> | undefined} override
   * @param {string} [refused] why a kernel in PTX that would have been chosen cannot compute it
   * @param {boolean} [own] whether to leave out what was measured on this machine
   * @returns {SpirvPlan}
   */
  function planOf(problem, override, refused, own) {
    const { fallback, guess, ...chosen } = /** @type {Partial<SpirvChoice>} */ (override?.kernel ? {} : choose(problem, own));
    const plan = /** @type {SpirvPlan} */ ({
      stages: 1,
      splits: 1,
      ...chosen,
      ...(override
        ? { ...override, because: override.because ?? ASKED }
        : { ...(fallback ? { fallback } : {}), ...(guess ? { guess } : {}) }),
      ...(refused ? { because: `the PTX kernels cannot take it: ${refused}; ${chosen.because}`, fallback: true } : {}),
    });
    if ((problem.precision === 'f32') !== (plan.kernel === 'f32')) {
      throw new RangeError(`matmul: kernel ${plan.kernel} does not compute in ${problem.precision}`);
    }
    const fault = tilingFault(plan, problem);
    if (fault) throw new RangeError(`matmul: the plan cannot run on ${info.deviceName}: ${fault}`);
    const tiles = ceilDiv(problem.m, plan.bm) * ceilDiv(problem.n, plan.bn);
    const tail = integer('matmul', 'tail', plan.tail ?? 1, 1, 64);
    const wave = integer('matmul', 'wave', plan.wave ?? tiles, 1);
    plan.rest = tiles % wave;
    const tailed =
      tail > 1 && plan.rest > 0 && problem.batch === 1 && !problem.dual && tiles - plan.rest + plan.rest * tail <= context.maxGroups;
    // Splits are whole staged tiles deep, and none is empty.
    const shorter = ceilDiv(problem.k, MAX_CHAIN);
    const accurate = shorter * problem.batch * tiles * plan.bm * plan.bn <= MAX_CHAIN_PARTS ? shorter : 1;
    // Without a staged tile a round is of four steps.
    const round = plan.kernel === 'f32' && plan.stages === 0 ? 4 : plan.bk;
    const deep = Math.max(accurate, isCpu ? ceilDiv(ceilDiv(problem.k, round), MAX_CPU_ROUNDS) : 1);
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

  /** Elements of workspace that a plan needs. @param {Problem} problem @param {SpirvPlan} plan */
  function workspaceFloats({ m, n, batch }, plan) {
    if (plan.tail) return plan.tail * plan.rest * plan.bm * plan.bn;
    if (plan.splits === 1) return 0;
    return batch * plan.splits * ceilDiv(m, plan.bm) * plan.bm * ceilDiv(n, plan.bn) * plan.bn;
  }

  /**
   * How an operand can be read. `contiguous`: length of its rows in memory; `whole`: whether K is a multiple of the staged depth; `clamp`: how
   * many neighbouring elements a thread reads.
   * @param {{ type: string, ld: number, offset: number, stride: number, contiguous: number, exact: boolean, whole: boolean, clamp: number }} operand
   */
  function loadMode({ type, ld, offset, stride, contiguous, exact, whole, clamp }) {
    const vec = type === 'f32' ? 4 : 8;
    if (ld % vec || offset % vec || stride % vec) return LOAD_SCALAR;
    if (exact) return LOAD_EXACT;
    if (whole && contiguous % clamp === 0) return LOAD_CLAMP;
    return contiguous % vec ? LOAD_SCALAR : LOAD_VECTOR;
  }

  /**
   * A product as dispatches.
   * @param {Product} product the arguments of `matmul`, checked
   * @param {SpirvPlan} plan
   * @param {import('./types.mjs').Work} work memory for partial sums
   * @returns {Dispatch[]}
   */
  function records(product, plan, work) {
    const { m, n, k, batch, aType, bType, transA, transB } = product;
    const { a, b, c, h, bias, residual, lda, ldb, ldc, ldr, ldh } = product;
    const { strideA, strideB, strideC, strideR, strideH, strideBias, alpha, beta, toF32, vec4 } = product;
    const tilesExact = m % plan.bm === 0 && n % plan.bn === 0;
    const split = plan.splits > 1;
    const direct = plan.kernel === 'coop' && plan.direct === 1 && m % plan.tm === 0 && n % plan.tn === 0 && vec4 && toF32 && !bias;
    // If alpha scales sums at the end, they can start from beta / alpha * C.
    const early = beta !== 0 && alpha !== 0 && (plan.kernel === 'f32' || direct);
    const epi = split
      ? EPI_EXACT | EPI_VEC4 | (plan.kernel === 'coop' && plan.direct === 1 ? EPI_DIRECT : 0)
      : effectsOf(product) | (tilesExact ? EPI_EXACT : 0) | (direct ? EPI_DIRECT : 0) | (early ? EPI_EARLY : 0);
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
    const { name, specialization, options } = pipelineOf(plan, product, { modeA, modeB, epi });
    const out = split && work ? work : c;
    // Absent inputs are never read. A takes their bindings, so that no false dependency arises.
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
    // If there are more tiles than a dispatch takes workgroups, each dispatch computes some rows of tiles.
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
    if (work) dispatches.push(sumParts(context, product, plan, work));
    return dispatches;
  }

  /** @param {SpirvPlan} plan @param {Product} product @param {{ modeA: number, modeB: number, epi: number }} how */
  function pipelineOf(plan, { precision, aType, bType, cType, transA, transB, dual }, { modeA, modeB, epi }) {
    const threads = threadsOf(plan);
    const split = plan.splits > 1;
    const second = dual && !split ? '_dual' : '';
    const flag = (/** @type {boolean} */ b) => (b ? 1 : 0);
    if (plan.kernel === 'f32') {
      return {
        name: `matmul_f32${plan.stages === 0 ? (sharesA(plan) ? '_shuffle' : '_direct') : ''}${plan.tail ? '_tail' : ''}`,
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
        options: sharesA(plan) ? context.wholeSubgroups : {},
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

  return { supports, planOf, workspaceFloats, records };
}
