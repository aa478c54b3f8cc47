// Computes several products by one launch of a kernel in PTX. Alone, each weight gradient of a layer has too few tiles to fill the device, so
// that its depth would be split, and parts written and read again. Together their tiles fill it, and only those of the last wave are split.

import { integer, pushConstants } from '../base.mjs';
import { moduleText } from './assembler.mjs';
import { MAX_PRODUCTS, addedEarly, groupDivision, parametersOf, gemmFault, sizesFault, sizesOf } from './form.mjs';
import { gemm } from './gemm.mjs';
import { predict, usWords } from './model.mjs';
import { ptxPipeline } from './pipeline.mjs';
import { SECOND_PASS } from './tilings.mjs';
import { isSimt } from './simt.mjs';
import { formName } from '../tuning/table.mjs';
import { range, tilingOf } from './products.mjs';
import { sumParts } from '../matmul/reduce.mjs';
import { verifyGroup } from './verify-products.mjs';

/** @typedef {import('../base.mjs').Dispatch} Dispatch */
/** @typedef {import('../base.mjs').KernelContext} KernelContext */
/** @typedef {import('../matmul.mjs').MatmulGroupPlan} MatmulGroupPlan */
/** @typedef {import('./form.mjs').GemmForm} GemmForm */
/** @typedef {import('./form.mjs').GemmTiling} GemmTiling */
/** @typedef {import('../matmul/types.mjs').Computed} Computed */
/** @typedef {import('../matmul/types.mjs').Problem} Problem */
/** @typedef {import('../matmul/types.mjs').PtxProduct} PtxProduct */
/** @typedef {import('../matmul/types.mjs').Sizes} Sizes */

/** A plan's tiling, which must be one for products of halves. @param {Pick<MatmulGroupPlan, 'tiling'>} plan @returns {GemmTiling} */
function halvesOf(plan) {
  const tiling = tilingOf(plan);
  if (isSimt(tiling)) throw new RangeError('matmulGroup: plan.tiling must be a tiling for products of f16 or bf16, not of f32');
  return tiling;
}

/** The module of a kernel. @param {string} name @param {GemmTiling} tiling @param {GemmForm} form */
const textOf = (name, tiling, form) => moduleText(gemm(name, tiling, form));

/** Most parts of the depth of the last tiles, and the least depth of a part. */
const [MOST_PARTS, LEAST_DEPTH] = [8, 1024];
/** Microseconds of a launch beside its waves: before its first products, and for its last stores. */
const LAUNCH_US = 5;

/**
 * From this many waves of tiles on, of 256 × 128, a product fills the device by itself, and splits its last wave by itself: one launch for several
 * of them saves nothing.
 */
const OWN_WAVES = 3;

/** The least share of the time that grouping must save, since less is within the model's error. */
const LEAST_SAVING = 0.01;

/** The properties that the products of a group must share. */
const COMMON = /** @type {const} */ (['k', 'transA', 'transB', 'half', 'beta']);

/**
 * @param {KernelContext} context
 * @param {ReturnType<typeof import('./products.mjs').ptxProducts>} ptx
 * @param {{ verifyGroup?: typeof import('./verify-products.mjs').verifyGroup }} [options] `verifyGroup`: tests a kernel before its first use
 */
export function groupedProducts(context, ptx, { verifyGroup: verify = verifyGroup } = {}) {
  /** Why one launch cannot compute these products, or undefined. @param {Problem[]} problems */
  function fault(problems) {
    if (problems.length < 2 || problems.length > MAX_PRODUCTS) return `${problems.length} products, not 2 to ${MAX_PRODUCTS}`;
    for (const [i, problem] of problems.entries()) {
      const reason = ptx.fault(problem);
      if (reason) return `product ${i}: ${reason}`;
      const { args, aType, bPermuted, cType, dual, k2 } = problem;
      if (k2) return `product ${i} has a second pair of operands`;
      if (bPermuted) return `product ${i} has B permuted`;
      if (aType === 'f32') return `product ${i} is not of halves`;
      if (cType !== 'f32' || dual) return `product ${i} does not store f32 alone`;
      if (args.bias !== undefined || args.residual !== undefined || args.activation !== undefined)
        return `product ${i} has a bias, a residual or an activation`;
      for (const name of COMMON)
        if (problem[name] !== problems[0][name]) return `product ${i} has ${name} ${problem[name]}, the first ${problems[0][name]}`;
      if ((args.alpha ?? 1) !== (problems[0].args.alpha ?? 1)) return `product ${i} has another alpha than the first`;
    }
    return undefined;
  }

  /** How products are divided among blocks. @param {Sizes[]} products @param {MatmulGroupPlan} plan */
  function divide(products, { tail, wave, tiling }) {
    const blocks = integer('matmulGroup', 'wave', wave ?? ptx.blocks, 1, context.maxGroups);
    return groupDivision(halvesOf({ tiling }), products, { blocks, tail: integer('matmulGroup', 'tail', tail ?? 1, 1, 64) });
  }

  /** @param {(Omit<Computed, 'batch'> & { args?: Problem['args'], alpha?: number })[]} problems @param {MatmulGroupPlan} plan @returns {GemmForm} */
  const formOf = (problems, plan) => {
    const [{ half, transA, transB, beta, k }] = problems;
    const [ragged, parts] = [k % halvesOf(plan).bk !== 0, divide(problems, plan).parts > 1];
    const early = addedEarly({ ...problems[0].args, ...problems[0] });
    return { type: half, transA, transB, beta: beta !== 0, early, parts, ragged, products: problems.length };
  };

  /** @param {GemmTiling} tiling @param {GemmForm} form */
  const keyOf = (tiling, { type, transA, transB, products, ...rest }) =>
    `matmul_ptx_${formName({ transA, transB }).toLowerCase()}_${type}_group${products}/${JSON.stringify(tiling)}/${Object.entries(rest)
      .filter(([, value]) => value)
      .map(([name]) => name)
      .join()}`;

  /** The pipeline of a kernel, written and created at first use. @param {GemmTiling} tiling @param {GemmForm} form */
  function pipelineOf(tiling, form) {
    return ptxPipeline(context, keyOf(tiling, form), (name) => {
      const parameters = parametersOf(form, tiling);
      const bindings = parameters.filter(({ type }) => type === 'u64').length;
      /** @returns {import('./pipeline.mjs').PtxAccess[]} */
      const accessOf = () => ['read', 'read', form.beta ? 'readwrite' : 'write'];
      const access = [
        ...Array.from({ length: form.products ?? 1 }, accessOf).flat(),
        ...(bindings % 3 ? [/** @type {const} */ ('write')] : []),
      ];
      return { ptx: textOf(name, tiling, form), access, parameters: parameters.length, threads: sizesOf(tiling).threads };
    });
  }

  /**
   * Makes the dispatches that compute the products by one launch.
   * @param {PtxProduct[]} products the arguments of `matmul`, checked
   * @param {MatmulGroupPlan} plan
   * @param {{ buffer: import('../base.mjs').Binding, offset: number }} [work] memory for tensor maps; the kernels' own when left out
   * @returns {Dispatch[]}
   */
  function records(products, plan, work) {
    const tiling = halvesOf(plan);
    const [{ k, transA, transB, alpha, beta }] = products;
    const { first, whole, rest, parts, kPerPart, blocks, ofLast, workspaceFloats: floats } = divide(products, plan);
    const memory = work ?? (floats ? { buffer: context.workspace('matmul', 4 * floats), offset: 0 } : undefined);
    const matrix = (/** @type {number} */ rows, /** @type {number} */ columns, /** @type {number} */ ld) => (rows - 1) * ld + columns;
    /** @type {Dispatch[]} */
    const dispatches = [
      {
        pipeline: pipelineOf(tiling, formOf(products, plan)),
        buffers: [
          ...products.flatMap(({ m, n, a, b, c, lda, ldb, ldc }) => [
            range(a, transA ? matrix(k, m, lda) : matrix(m, k, lda), 2),
            range(b, transB ? matrix(n, k, ldb) : matrix(k, n, ldb), 2),
            range(c, matrix(m, n, ldc), 4),
          ]),
          ...(memory ? [range(memory, floats, 4)] : []),
        ],
        groups: [blocks, 1, 1],
        push: pushConstants(
          [
            ...products.flatMap(({ m, n, lda, ldb, ldc }, i) => [m, n, lda, ldb, ldc, first[i]]),
            ...(parts > 1 ? [k, kPerPart, whole, rest, parts] : [k, whole]),
          ],
          [alpha, beta],
        ),
        writeMask: products.reduce((mask, _, i) => mask | (1 << (3 * i + 2)), memory ? 1 << (3 * products.length) : 0),
      },
    ];
    const { bm, bn } = tiling;
    if (memory && parts > 1)
      dispatches.push(sumParts(context, products[products.length - 1], { ...ofLast, bm, bn, splits: 1, tail: parts }, memory));
    return dispatches;
  }

  /** Why a plan cannot compute these products, or undefined. @param {Problem[]} problems @param {MatmulGroupPlan} plan @returns {string | undefined} */
  function misfit(problems, plan) {
    const tiling = halvesOf(plan);
    const sizes = problems.map((problem) => sizesFault(tiling, problem));
    const wrong = gemmFault(tiling, formOf(problems, plan)) ?? sizes.find((reason) => reason !== undefined);
    if (wrong) return wrong;
    const bytes = 4 * divide(problems, plan).workspaceFloats;
    // The kernels' own workspace is bound whole, also by later dispatches.
    return bytes > context.bindingBytes ? `they take ${bytes} bytes of workspace, a binding has ${context.bindingBytes}` : undefined;
  }

  /** Why the kernel is not used, or '' if it passed its test. @param {GemmTiling} tiling @param {GemmForm} form */
  const selfTest = (tiling, form) => {
    const key = keyOf(tiling, form);
    const text = verify === verifyGroup ? () => textOf(key.split('/')[0], tiling, form) : undefined;
    return ptx.selfTestOf(key, () => verify({ context, tiling, form, divide, records }), text);
  };

  /**
   * The fastest plan for one launch, and its microseconds by the rates of the device's tables. The time is that of waves of blocks, the last of
   * which counts whole, and of the second pass. Undefined if no tiling is known.
   * @param {Problem[]} problems
   */
  function fastest(problems) {
    /** @type {{ plan: MatmulGroupPlan, us: number } | undefined} */
    let best;
    const { k } = problems[0];
    const rates = { wave: ptx.blocks, perTile: 0, launch: LAUNCH_US, second: SECOND_PASS };
    const tilings = context.tuning.ptxGroup?.(problems[0]) ?? [];
    // A single product uses the first.
    for (const { tiling: name, rate } of problems.length > 1 ? tilings : tilings.slice(0, 1)) {
      const tiling = halvesOf({ tiling: name });
      const area = tiling.bm * tiling.bn;
      const perDepth = (2 * area * k * ptx.blocks) / rate / 1e6 / k;
      for (let tail = 1; tail <= Math.max(1, Math.min(MOST_PARTS, k / LEAST_DEPTH)); tail++) {
        const plan = { tiling: name, tail };
        const { whole, rest, parts } = divide(problems, plan);
        const us = predict({ k, whole, rest, parts, kPerPart: k / parts, area }, { ...rates, perDepth });
        if (best && us >= best.us) continue;
        if (!misfit(problems, plan)) best = { plan, us };
      }
    }
    return best;
  }

  /**
   * The plan for one launch, and the microseconds that it saves by the rates of the device's tables. Undefined if one launch is not known to be
   * faster. No kernel is tested.
   * @param {Problem[]} problems @returns {{ plan: MatmulGroupPlan, saving: number } | undefined}
   */
  function choose(problems) {
    const tiles = problems.map(({ m, n }) => Math.ceil(m / 256) * Math.ceil(n / 128));
    if (tiles.every((count) => count >= OWN_WAVES * ptx.blocks)) return undefined;
    const together = fault(problems) ? undefined : fastest(problems);
    if (!together) return undefined;
    const saving = problems.reduce((sum, problem) => sum + (fastest([problem])?.us ?? 0), -together.us);
    if (saving <= LEAST_SAVING * together.us) return undefined;
    const because = `model: ${usWords(together.us)} µs in one launch, ${usWords(together.us + saving)} in ${problems.length}`;
    return { plan: { ...together.plan, because }, saving };
  }

  /**
   * The plan that `choose` returns, or undefined if there is none or its kernel fails its test.
   * @param {Problem[]} problems @returns {MatmulGroupPlan | undefined}
   */
  function plan(problems) {
    const chosen = choose(problems)?.plan;
    return chosen && !selfTest(halvesOf(chosen), formOf(problems, chosen)) ? chosen : undefined;
  }

  /** Throws if a plan cannot compute these products. @param {Problem[]} problems @param {MatmulGroupPlan} plan */
  function check(problems, plan) {
    const wrong = fault(problems) ?? misfit(problems, plan);
    if (wrong) throw new RangeError(`matmulGroup: one launch cannot compute these products: ${wrong}`);
    const failed = selfTest(halvesOf(plan), formOf(problems, plan));
    if (failed) throw new RangeError(`matmulGroup: the PTX kernel cannot run on ${context.info.deviceName}: ${failed}`);
  }

  return { choose, plan, check, records };
}
