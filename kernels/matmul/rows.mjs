// Products of at most 8 rows (shaders/matmul/matmul_rows.comp), as a model computes for a few tokens. A tile of other kernels has at least 32 rows,
// and too few tiles to keep enough of B's loads under way: what counts here is the rate at which B is read.

import { ceilDiv, integer, pushConstants } from '../base.mjs';
import { vectorTiling } from '../tuning/matvec.mjs';
import { ASKED, formName, settled } from '../tuning/table.mjs';
import { effectsOf, sumParts } from './reduce.mjs';

/** @typedef {import('../base.mjs').Dispatch} Dispatch */
/** @typedef {import('../base.mjs').KernelContext} KernelContext */
/** @typedef {import('../matmul.mjs').MatmulPlan} MatmulPlan */
/** @typedef {import('./types.mjs').Problem} Problem */
/** @typedef {import('./types.mjs').Product} Product */
/** @typedef {import('./types.mjs').RowsPlan} RowsPlan */

/** Most rows, each of which has a sum in registers for each column of an invocation. */
const MAX_ROWS = 8;
/**
 * Most rows of halves for which the kernel is chosen. NT of 4,800 x 1,600 in bf16 takes an H200 11.0 microseconds with 1 row, 12.2 with 4 and 16.2 with
 * 8, and 12.6 on matrix units whatever the rows. In f32 there are none: 8 rows by 3,072 x 768 take 12.0, and 21.3 in tiles.
 */
const MAX_HALF_ROWS = 4;

/** NN: invocations of a workgroup, on a CPU, which only tests ask, and on a GPU; and vectors that lie side by side in it, 128 bytes of a row of B. */
const [CPU_THREADS, THREADS, SIDE_BY_SIDE] = [32, 256, 8];
/** NN: rows of B that an invocation loads at a time, and where there are more rows of A than these. */
const [AHEAD, MANY_ROWS, AHEAD_OF_MANY] = [8, 4, 4];
/**
 * NN: fewest rounds of loads for which the depth is split among workgroups, and fewest of a part. A round takes about as long as memory's latency, and
 * the second pass as long as some four.
 */
const [SPLIT_ROUNDS, PART_ROUNDS] = [8, 2];

/** @param {KernelContext} context */
export function fewRowProducts(context) {
  const { info, tuning, isCpu } = context;

  /** Why the kernel cannot compute a product, or undefined. @param {Problem} problem */
  function fault(problem) {
    const { m, n, k, k2, batch, precision, aType, bType, cType, transA, transB, bPermuted, dual, glu, unit, args } = problem;
    if (m > MAX_ROWS) return `more than ${MAX_ROWS} rows`;
    if (transA) return 'A lies transposed';
    if (precision !== aType || aType !== bType) return 'A and B must both be stored in the type of the precision';
    if (bPermuted || dual || glu || unit || k2)
      return 'a permuted B, a second output, a second pair of operands and fused gradients are not there';
    if (transB && !context.countsSubgroups) return 'the size of subgroups is not known';
    const vec = aType === 'f32' ? 4 : 8;
    const offset = (/** @type {import('../base.mjs').Tensor | undefined} */ tensor) =>
      typeof tensor === 'object' ? (tensor.offset ?? 0) : 0;
    const { lda = k, ldb = transB ? k : n, strideA = m * lda, strideB = (transB ? n : k) * ldb } = args;
    const read = [ldb, batch > 1 ? strideB : 0, offset(args.b), ...(transB ? [k, lda, batch > 1 ? strideA : 0, offset(args.a)] : [n])];
    if (read.some((size) => size % vec)) return `rows, strides and offsets must be multiples of ${vec} elements`;
    return cType === 'f32' || cType === aType ? undefined : `C is stored as ${cType}`;
  }

  /** @param {Problem} problem @param {Partial<MatmulPlan>} how @returns {RowsPlan} */
  function divide(problem, { splits: asked, because }) {
    const { m, n, k, batch, transB, aType } = problem;
    const vec = aType === 'f32' ? 4 : 8;
    const common = { kernel: /** @type {const} */ ('rows'), bm: m, ...(because ? { because } : {}) };
    if (transB) {
      const { threads, span } = teamOf(problem, vec);
      const lanes = info.subgroupSize;
      return { ...common, bn: (threads / lanes) * span, bk: lanes * vec, splits: 1, kPerSplit: k };
    }
    const [bn, bk] = [SIDE_BY_SIDE * vec, threadsOf() / SIDE_BY_SIDE];
    const groups = ceilDiv(n, bn) * batch;
    const rounds = k / (bk * aheadOf(m));
    const filling = isCpu || rounds < SPLIT_ROUNDS ? 1 : Math.min(ceilDiv(2 * tuning.units, groups), Math.floor(rounds / PART_ROUNDS), 64);
    const parts = asked === undefined ? Math.max(1, filling) : integer('matmul', 'splits', asked, 1, 64);
    const kPerSplit = ceilDiv(ceilDiv(k, bk), parts) * bk;
    return { ...common, bn, bk, splits: ceilDiv(k, kPerSplit), kPerSplit };
  }

  /** NN: rows of B that an invocation loads at a time. @param {number} m */
  const aheadOf = (m) => (m > MANY_ROWS ? AHEAD_OF_MANY : AHEAD);

  /** NN: invocations of a workgroup. */
  const threadsOf = () => (isCpu ? CPU_THREADS : Math.min(THREADS, info.maxComputeWorkGroupInvocations));

  /** NT: how subgroups divide the product, as in the kernels of decode.mjs. A CPU, which only tests ask, gets the least to compile. */
  function teamOf(/** @type {Problem} */ { m, n, k, batch }, /** @type {number} */ vec) {
    const shape = { rows: m, vectors: k / vec, outputs: n * batch, matrices: 1, norm: false, quantized: false };
    const team = vectorTiling(context, shape);
    return isCpu ? { ...team, threads: info.subgroupSize, span: 1, ahead: 1, options: context.wholeSubgroups } : team;
  }

  /**
   * The plan of a product of few rows, or undefined where the kernel cannot compute it or another plan was measured to be faster on this machine. A CPU
   * has kernels in other sizes, which read B once, too.
   * @param {Problem} problem @param {boolean} [own] whether to leave out what was measured on this machine
   * @returns {RowsPlan | undefined}
   */
  function choose(problem, own = false) {
    if (isCpu || fault(problem) || (problem.aType !== 'f32' && problem.m > MAX_HALF_ROWS)) return undefined;
    const measured = own ? undefined : context.machine.plan(problem);
    if (measured && measured.kernel !== 'rows') return undefined;
    const because = `${problem.m} ${problem.m === 1 ? 'row' : 'rows'}: the kernel that reads B once, at the rate of memory`;
    const plan = divide(problem, { because, ...measured });
    if (!problem.transB && ceilDiv(problem.n, plan.bn) > context.maxGroups) return undefined;
    return settled(context.machine, problem, { ...plan, ...(measured ? {} : { guess: true }) });
  }

  /** The plan that a caller asks for. Throws if it cannot compute the product. @param {Problem} problem @param {Partial<MatmulPlan>} override */
  function planOf(problem, override) {
    const wrong = fault(problem);
    if (wrong) throw new RangeError(`matmul: the kernel for few rows cannot compute this product: ${wrong}`);
    return divide(problem, { ...override, because: override.because ?? ASKED });
  }

  /** Elements of workspace that a plan needs. @param {Problem} problem @param {RowsPlan} plan */
  const workspaceFloats = ({ m, n, batch }, { splits, bn }) => (splits === 1 ? 0 : batch * splits * m * ceilDiv(n, bn) * bn);

  /**
   * A product as dispatches.
   * @param {Product} product the arguments of `matmul`, checked
   * @param {RowsPlan} plan
   * @param {import('./types.mjs').Work} work memory for partial sums
   * @returns {Dispatch[]}
   */
  function records(product, plan, work) {
    const { m, n, k, batch, aType, cType, transA, transB, a, b, c, bias, residual, lda, ldb, ldc, ldr, alpha, beta } = product;
    const { strideA, strideB, strideC, strideR, strideBias } = product;
    const vec = aType === 'f32' ? 4 : 8;
    const padN = ceilDiv(n, plan.bn) * plan.bn;
    const split = plan.splits > 1;
    const out = split && work ? work : c;
    const team = teamOf(product, vec);
    if (transB) context.checkRounds('matmul', `${k} inputs`, ceilDiv(k, vec * team.ahead * info.subgroupSize));
    else context.checkRounds('matmul', `${k} inputs`, ceilDiv(plan.kPerSplit, plan.bk * aheadOf(m)));
    const groups = ceilDiv(n, plan.bn);
    if (!transB && groups > context.maxGroups)
      throw new RangeError(`matmul: n = ${n} makes ${groups} workgroups, more than ${context.maxGroups}`);
    const dispatches = [
      context.dispatch(`matmul_rows_${aType}_${formName({ transA, transB }).toLowerCase()}`, {
        // Absent inputs are never read. A takes their bindings, so that no false dependency arises.
        buffers: [
          a.buffer,
          b.buffer,
          (split ? undefined : bias)?.buffer ?? a.buffer,
          (split ? undefined : residual)?.buffer ?? a.buffer,
          out.buffer,
        ],
        writes: 1 << 4,
        groups: [Math.min(groups, context.maxGroups), plan.splits, batch],
        push: pushConstants(
          [
            ...[m, n, k, lda, ldb, split ? padN : ldc, ldr, 0],
            ...[a.offset, b.offset, bias?.offset ?? 0, residual?.offset ?? 0, out.offset, 0],
            ...[strideA, strideB, strideBias, strideR, split ? m * padN : strideC, 0],
            ...[plan.kPerSplit, plan.splits, 0, 0, 0],
          ],
          split ? [1, 0] : [alpha, beta],
        ),
        specialization: [
          transB ? team.threads : threadsOf(),
          ...[m, transB ? team.ahead : aheadOf(m), team.span, SIDE_BY_SIDE],
          ...(split ? [0, 0] : [effectsOf(product), cType === 'f32' ? 0 : 1]),
        ],
        ...(transB ? team.options : {}),
      }),
    ];
    if (split && work) dispatches.push(sumParts(context, product, { ...plan, whole: 0, rest: 0 }, work));
    return dispatches;
  }

  return { choose, planOf, workspaceFloats, records };
}
