// Products by one launch of a kernel in PTX. The weight gradients of a layer have too few tiles for the device one by one: each would
// be split in depth, so that parts are written, waited for and read again. Together their tiles fill it, and none is split.

import { integer, pushConstants } from '../base.mjs';
import { moduleText } from '../ptx/assembler.mjs';
import { MAX_PRODUCTS, depthFault, gemm, groupDivision, parametersOf, planFault, sizesOf } from '../ptx/gemm.mjs';
import { isSimt } from '../ptx/simt.mjs';
import { formName } from '../tuning/table.mjs';
import { range, tilingOf } from './ptx.mjs';
import { verifyGroup } from './verify.mjs';

/** @typedef {import('../base.mjs').Dispatch} Dispatch */
/** @typedef {import('../base.mjs').KernelContext} KernelContext */
/** @typedef {import('../matmul.mjs').MatmulGroupPlan} MatmulGroupPlan */
/** @typedef {import('../ptx/gemm.mjs').GemmForm} GemmForm */
/** @typedef {import('../ptx/gemm.mjs').GemmPlan} GemmPlan */

/** A plan's tiling, which is one for products of halves. @param {{ tiling: any }} plan @returns {GemmPlan} */
function halvesOf(plan) {
  const tiling = tilingOf(plan);
  if (isSimt(tiling)) throw new RangeError('matmulGroup: plan.tiling must be one for products of halves, not of f32');
  return tiling;
}

/** The share of whole waves of blocks that tiles must fill. One by one, split to fill the device, an H200's weight gradients take 1.25 times as long. */
const FILL = 0.85;
/** Into how many parts the depth of a product's last tiles is split at most, by the plans of the package. */
const MOST_PARTS = 8;

/** What the products of a group have in common. */
const COMMON = /** @type {const} */ (['k', 'transA', 'transB', 'half', 'beta']);

/**
 * @param {KernelContext} context
 * @param {ReturnType<typeof import('./ptx.mjs').ptxProducts>} ptx
 * @param {{ verifyGroup?: typeof import('./verify.mjs').verifyGroup }} [options] what tests a kernel before its first use
 */
export function groupedProducts(context, ptx, { verifyGroup: verify = verifyGroup } = {}) {
  /** Why one launch cannot compute these products, or undefined. @param {any[]} problems */
  function fault(problems) {
    if (problems.length < 2 || problems.length > MAX_PRODUCTS) return `${problems.length} products, not 2 to ${MAX_PRODUCTS}`;
    for (const [i, problem] of problems.entries()) {
      const reason = ptx.fault(problem);
      if (reason) return `product ${i}: ${reason}`;
      const { args, aType, cType, dual } = problem;
      if (args.bShuffled) return `product ${i} has B shuffled`;
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

  /** @param {any[]} problems @param {GemmPlan} tiling @returns {GemmForm} */
  const formOf = ([{ half, transA, transB, beta, k }, ...others], tiling) => ({
    ...{ type: half, transA, transB, beta: beta !== 0, ragged: k % tiling.bk !== 0, products: 1 + others.length },
  });

  /** @param {GemmPlan} tiling @param {GemmForm} form */
  const keyOf = (tiling, { type, transA, transB, products, beta, ragged }) =>
    `matmul_ptx_${formName({ transA, transB }).toLowerCase()}_${type}_group${products}/${JSON.stringify(tiling)}/${beta ? 'beta' : ''}${ragged ? ',ragged' : ''}`;

  /** The pipeline of a kernel, written and made at first use. @param {GemmPlan} tiling @param {GemmForm} form */
  function pipelineOf(tiling, form) {
    const key = keyOf(tiling, form);
    const made = context.pipelines.get(key);
    if (made !== undefined) return made;
    const name = key.split('/')[0];
    const parameters = parametersOf(form, tiling);
    const bindings = parameters.filter(({ type }) => type === 'u64').length;
    /** @returns {import('../../index.js').PtxAccess[]} */
    const accessOf = () => ['read', 'read', form.beta ? 'readwrite' : 'write'];
    /** @type {import('../../index.js').PipelineHandle} */
    const pipeline = context.vk.createPipeline({
      ptx: moduleText(gemm(name, tiling, form)),
      entry: name,
      bindings,
      access: [...Array.from({ length: form.products ?? 1 }, accessOf).flat(), ...(bindings % 3 ? [/** @type {const} */ ('write')] : [])],
      pushBytes: 4 * (parameters.length - bindings),
      workgroupSize: [sizesOf(tiling).threads, 1, 1],
      name,
    });
    context.pipelines.set(key, pipeline);
    return pipeline;
  }

  /**
   * The products by one launch.
   * @param {any[]} products the arguments of `matmul`, checked
   * @param {MatmulGroupPlan} plan
   * @param {{ buffer: import('../base.mjs').Binding, offset: number }} [work] memory for tensor maps; the kernels' own when left out
   * @returns {Dispatch[]}
   */
  function records(products, plan, work) {
    const tiling = halvesOf(plan);
    const [{ k, transA, transB, alpha, beta }] = products;
    const wave = integer('matmulGroup', 'wave', plan.wave ?? ptx.blocks, 1, context.maxGroups);
    const { first, items, blocks, workspaceFloats: floats } = groupDivision(tiling, products, wave);
    const maps = floats ? [range(work ?? { buffer: context.workspace('matmul', 4 * floats), offset: 0 }, floats, 4)] : [];
    const matrix = (/** @type {number} */ rows, /** @type {number} */ columns, /** @type {number} */ ld) => (rows - 1) * ld + columns;
    return [
      {
        pipeline: pipelineOf(tiling, formOf(products, tiling)),
        buffers: [
          ...products.flatMap(({ m, n, a, b, c, lda, ldb, ldc }) => [
            range(a, transA ? matrix(k, m, lda) : matrix(m, k, lda), 2),
            range(b, transB ? matrix(n, k, ldb) : matrix(k, n, ldb), 2),
            range(c, matrix(m, n, ldc), 4),
          ]),
          ...maps,
        ],
        groups: [blocks, 1, 1],
        push: pushConstants(
          [...products.flatMap(({ m, n, lda, ldb, ldc }, i) => [m, n, lda, ldb, ldc, first[i]]), k, items],
          [alpha, beta],
        ),
        writeMask: products.reduce((mask, _, i) => mask | (1 << (3 * i + 2)), floats ? 1 << (3 * products.length) : 0),
      },
    ];
  }

  /** Why the kernel is not used, or '' where it passed its test. @param {GemmPlan} tiling @param {GemmForm} form */
  const verdict = (tiling, form) => ptx.verdictOf(keyOf(tiling, form), () => verify({ context, tiling, form, records }));

  /**
   * The tiling by which one launch computes the products, and how many waves of blocks it saves: those of a launch for each less its own.
   * The last wave of each counts whole, also where a product by itself would be split in depth to fill it. Undefined where one launch is not
   * known to be faster: it leaves too much of its last wave idle, or one of the products fills the device by itself. No kernel is tested.
   * @param {any[]} problems @returns {{ tiling: string, form: GemmForm, saving: number } | undefined}
   */
  function choose(problems) {
    if (fault(problems)) return undefined;
    const name = context.tuning.ptxGroup?.(problems[0]);
    if (name === undefined) return undefined;
    const tiling = halvesOf({ tiling: name });
    const { items, first } = groupDivision(tiling, problems, ptx.blocks);
    const waves = (/** @type {number} */ tiles) => Math.ceil(tiles / ptx.blocks);
    if (items < FILL * waves(items) * ptx.blocks) return undefined;
    // One of many tiles fills the device by itself where its last wave has so few that, split in depth, they take one pass.
    const alone = (/** @type {number} */ tiles) => tiles > 2 * ptx.blocks && (tiles % ptx.blocks) * MOST_PARTS <= ptx.blocks;
    const tilesOf = first.map((before, i) => (first[i + 1] ?? items) - before);
    if (tilesOf.some(alone)) return undefined;
    const form = formOf(problems, tiling);
    if (planFault(tiling, form) || depthFault(tiling, problems[0].k)) return undefined;
    return { tiling: name, form, saving: tilesOf.reduce((sum, tiles) => sum + waves(tiles), 0) - waves(items) };
  }

  /** The plan by what `choose` says, or undefined, also where the kernel fails its test. @param {any[]} problems @returns {MatmulGroupPlan | undefined} */
  function plan(problems) {
    const chosen = choose(problems);
    return chosen && !verdict(halvesOf(chosen), chosen.form) ? { tiling: chosen.tiling } : undefined;
  }

  /** Throws where a plan cannot be carried out. @param {any[]} problems @param {MatmulGroupPlan} plan */
  function check(problems, plan) {
    const tiling = halvesOf(plan);
    const form = formOf(problems, tiling);
    const wrong = fault(problems) ?? planFault(tiling, form) ?? depthFault(tiling, problems[0].k);
    if (wrong) throw new RangeError(`matmulGroup: one launch cannot compute these products: ${wrong}`);
    const failed = verdict(tiling, form);
    if (failed) throw new RangeError(`matmulGroup: the PTX kernel cannot run on ${context.info.deviceName}: ${failed}`);
  }

  return { choose, plan, check, records };
}
