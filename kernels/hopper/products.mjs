// Matrix products in PTX: decides which products and plans the kernels of kernels/hopper/ can compute, and makes pipelines and dispatches. The
// first product that needs a kernel writes it and tests it (see `verifyKernel`). If a test fails, the SPIR-V kernels compute its products, and
// a warning says so.

import { bytesOf, ceilDiv, integer, pushConstants, tensor } from '../base.mjs';
import { firstByte } from '../bounds.mjs';
import { moduleText } from './assembler.mjs';
import { addedEarly, division, gemmFault, parametersOf, productFault, sizesFault, sizesOf, storedColumns } from './form.mjs';
import { gemm } from './gemm.mjs';
import { copiesPay } from './model.mjs';
import { ptxPipeline, writeMaskOf } from './pipeline.mjs';
import { MAX_COPY_BYTES, onCopies, padBytes, padWords, padsOf, padsOfRows, rowsAtOnce } from './pads.mjs';
import { GEMM_TILINGS, SIMT_TILINGS, currentName, nameOf } from './tilings.mjs';
import { isSimt, simt, simtFault, simtSizes } from './simt.mjs';
import { kernelSelfTests } from './self-test.mjs';
import { ANOTHER_ORDER, sumOrder } from '../tuning/order.mjs';
import { ASKED, formName, settled } from '../tuning/table.mjs';
import { sumParts } from '../matmul/reduce.mjs';
import { verifyKernel } from './verify-products.mjs';

/** @typedef {import('../base.mjs').Binding} Binding */
/** @typedef {import('../base.mjs').Dispatch} Dispatch */
/** @typedef {import('../base.mjs').KernelContext} KernelContext */
/** @typedef {import('../matmul.mjs').MatmulPlan} MatmulPlan */
/** @typedef {import('./form.mjs').GemmForm} GemmForm */
/** @typedef {import('./form.mjs').GemmTiling} GemmTiling */
/** @typedef {import('./simt.mjs').SimtTiling} SimtTiling */
/** @typedef {import('../matmul/types.mjs').Problem} Problem */
/** @typedef {import('../matmul/types.mjs').PtxPlan} PtxPlan */
/** @typedef {import('../matmul/types.mjs').PtxProduct} PtxProduct */
/** @typedef {import('../matmul/types.mjs').Sizes} Sizes */
/** @typedef {import('../matmul/types.mjs').Work} Work */

/**
 * The properties of a product, or of a problem with its arguments, that determine its form.
 * @typedef {Pick<PtxProduct, 'aType' | 'cType' | 'transA' | 'transB' | 'bPermuted' | 'dual' | 'beta' | 'glu' | 'again' | 'unit' | 'activation' | 'k2'>
 *   & { bias?: unknown, residual?: unknown, alpha?: number }} Formed
 */

/** Multiprocessors of a Hopper GPU, if the driver does not report their number. */
const MULTIPROCESSORS = 132;

/** The plan of a product with B permuted if nothing was measured near it. */
const PERMUTED_PLAN = /** @type {const} */ ({ kernel: 'ptx', tiling: 'm256n128-tma', because: 'B is permuted, which only PTX takes' });

/** @type {Record<string, GemmTiling | SimtTiling>} */
const NAMED_TILINGS = { ...GEMM_TILINGS, ...SIMT_TILINGS };

/**
 * A plan's tiling, which may be given by its name in kernels/hopper/tilings.mjs.
 * @param {Partial<MatmulPlan>} plan @returns {GemmTiling | SimtTiling}
 */
export function tilingOf({ tiling }) {
  if (typeof tiling === 'object' && tiling !== null) return tiling;
  const name = currentName(String(tiling));
  if (typeof tiling !== 'string' || !Object.hasOwn(NAMED_TILINGS, name)) {
    throw new RangeError(`matmul: plan.tiling must be one of ${Object.keys(NAMED_TILINGS).join(', ')}, or a tiling, got ${String(tiling)}`);
  }
  return NAMED_TILINGS[name];
}

/**
 * Why a tiling cannot compute a form, or undefined.
 * @param {GemmTiling | SimtTiling} tiling @param {GemmForm} form
 */
const tilingFault = (tiling, form) => (isSimt(tiling) ? simtFault(tiling, form) : gemmFault(tiling, form));

/** The module of a kernel. @param {string} name @param {GemmTiling | SimtTiling} tiling @param {GemmForm} form */
const textOf = (name, tiling, form) => moduleText(isSimt(tiling) ? simt(name, tiling, form) : gemm(name, tiling, form));

/** Threads of a block. @param {GemmTiling | SimtTiling} tiling */
const threadsOf = (tiling) => (isSimt(tiling) ? simtSizes(tiling) : sizesOf(tiling)).threads;

/**
 * @param {KernelContext} context
 * @param {{ verify?: typeof verifyKernel, copyBytes?: number }} [options] `verify`: tests a kernel before its first use; `copyBytes`: most bytes of
 *   the copies of a product whose rows are no multiple of 16 bytes
 */
export function ptxProducts(context, { verify = verifyKernel, copyBytes = MAX_COPY_BYTES } = {}) {
  const { tuning, info } = context;
  const blocks = info.multiprocessors || MULTIPROCESSORS;
  const alignment = Math.max(16, info.minStorageBufferOffsetAlignment ?? 16);
  const selfTestOf = kernelSelfTests(context, 'compute matrix products');

  /**
   * Why these kernels cannot take a product, or undefined.
   * @param {Problem} problem its `args` are those of `matmul`; tensors may be missing
   */
  function fault({ m, n, k, k2 = 0, batch, precision, half, aType, bType, cType, transA, transB, bPermuted, glu, args }) {
    if (!context.takesPtx) return 'the device takes no PTX, or it is turned off';
    const type = precision === 'f32' ? 'f32' : half;
    if (precision !== type || aType !== type || bType !== type) return 'A and B must both be stored in the half type of the precision';
    if (batch !== 1) return `they compute one product at a time, not a batch of ${batch}`;
    const tensors = /** @type {const} */ ([
      ['a', aType],
      ['b', bType],
      ['c', cType],
      ['bias', 'f32'],
      ['residual', 'f32'],
      ['half', half],
      ['gateUp', half],
      ['slopeOf', half],
      ['a2', half],
      ['b2', half],
      ['workspace', 'f32'],
    ]);
    const addresses = tensors.flatMap(([name, type]) =>
      args[name] === undefined ? [] : [firstByte(tensor('matmul', name, args[name]), type)],
    );
    if (addresses.some((address) => address % alignment)) return `an operand is not aligned to ${alignment} bytes`;
    const { lda = transA ? m : k, ldb = transB ? k : n, ldc = n } = args;
    const ldr = args.residual === undefined && args.gateUp === undefined ? 8 : (args.ldr ?? n);
    const ldh = args.half === undefined ? 8 : (args.ldh ?? n);
    const second = k2 > 0 ? { k2, lda2: args.lda2 ?? k2, ldb2: args.ldb2 ?? (transB ? k2 : n) } : {};
    return productFault({ m, n, k, lda, ldb, ldc, ldr, ldh, addresses, transA, transB, type, permuted: bPermuted, glu, ...second });
  }

  /**
   * Completes a plan by how it divides a product among blocks.
   * @param {Sizes} product @param {Partial<MatmulPlan>} plan the caller's, or a table's @returns {PtxPlan}
   */
  function divide({ m, n, k, k2 = 0 }, plan) {
    const tiling = tilingOf(plan);
    const { bm, bn, bk, stages } = tiling;
    const wave = integer('matmul', 'wave', plan.wave ?? blocks * (isSimt(tiling) ? tiling.blocks : 1), 1, context.maxGroups);
    // A second pair of operands belongs to whole tiles.
    const tail = k2 > 0 ? 1 : integer('matmul', 'tail', plan.tail ?? 1, 1, 64);
    const tailed = tail > 1 && (ceilDiv(m, bm) * ceilDiv(n, bn)) % wave > 0;
    const splits = tailed || k2 > 0 ? 1 : integer('matmul', 'splits', plan.splits ?? 1, 1, 64);
    const how = division(tiling, { m, n, k, k2 }, { blocks: wave, splits, tail: tailed ? tail : 1 });
    return {
      kernel: 'ptx',
      tiling,
      bm,
      bn,
      bk,
      stages,
      splits: how.rest > 0 && how.whole === 0 && !tailed ? how.parts : 1,
      ...(tailed && how.rest > 0 ? { wave, tail: how.parts } : {}),
      division: how,
      ...(plan.because ? { because: plan.because } : {}),
      ...(plan.guess ? { guess: true } : {}),
    };
  }

  /** Blocks of a launch. Those on matrix units go from item to item; those in f32 compute one item each. @param {PtxPlan} plan */
  const groupsOf = ({ tiling, division: { items, blocks } }) => (isSimt(tiling) ? items : blocks);

  /** Why a plan cannot be launched for a product, or undefined. @param {PtxPlan} plan @param {Sizes} product */
  function launchFault(plan, product) {
    const [blocks, bytes] = [groupsOf(plan), 4 * workspaceFloats(plan)];
    if (blocks > context.maxGroups) return `it makes ${blocks} blocks, more than ${context.maxGroups}`;
    // The kernels' own workspace is bound whole, also by later dispatches.
    if (bytes > context.bindingBytes) return `it takes ${bytes} bytes of workspace, a binding has ${context.bindingBytes}`;
    return sizesFault(plan.tiling, product);
  }

  /**
   * A plan for a product, with the copies that it takes where the kernels cannot take the operands as they are; or why there is none. Without copies
   * the second pass stores all results, in rows of any length.
   * @param {Problem} problem @param {Partial<MatmulPlan>} how the caller's plan, or a table's
   * @returns {PtxPlan | string}
   */
  function planFrom(problem, how) {
    const wrong = fault(problem);
    if (wrong && !context.takesPtx) return wrong;
    const plan = divide(problem, how);
    if (!wrong) return plan;
    const { tiling, division: of } = plan;
    const stored = isSimt(tiling) ? 4 : storedColumns(tiling, formOf({ ...problem.args, ...problem }, plan));
    // Pieces of a product whose tiles are all in its tail have whole tiles.
    const all = padsOf(problem, alignment, of.whole > 0 || (plan.tail ?? 1) > 1 ? stored : 0);
    if (typeof all === 'string') return wrong;
    if (all.length === 0) return plan;
    const { m, transA } = problem;
    const rows = rowsAtOnce(all, transA, m, Math.min(copyBytes, context.bindingBytes));
    if (typeof rows === 'string') return `${wrong}, and ${rows}`;
    const because = plan.because ? { because: `${plan.because}; ${padWords(all, ceilDiv(m, rows))}` } : {};
    if (rows === m) return { ...plan, pads: all, ...because };
    // The tiles after the last whole wave are few of so large a product.
    const piece = divide({ ...problem, m: rows }, { ...how, wave: undefined, tail: 1 });
    return { ...piece, pads: padsOfRows(all, transA, rows), rows, ...because };
  }

  /**
   * The pieces of a product that is computed some rows at a time.
   * @param {PtxProduct} product @param {PtxPlan & { rows: number }} plan
   * @returns {{ product: PtxProduct, plan: PtxPlan }[]}
   */
  function piecesOf(product, { rows, ...plan }) {
    const { m, n, k, transA, a, c, residual, h, lda, ldc, ldr, ldh } = product;
    const from = (/** @type {import('../matmul/types.mjs').Placed} */ x, /** @type {number} */ elements) => ({
      ...x,
      offset: x.offset + elements,
    });
    return Array.from({ length: ceilDiv(m, rows) }, (_, i) => {
      const first = i * rows;
      const count = Math.min(rows, m - first);
      const own = count === rows ? plan : { ...plan, division: divide({ m: count, n, k }, plan).division };
      return {
        product: {
          ...product,
          m: count,
          a: from(a, first * (transA ? 1 : lda)),
          c: from(c, first * ldc),
          ...(residual ? { residual: from(residual, first * ldr) } : {}),
          ...(h ? { h: from(h, first * ldh) } : {}),
        },
        plan: { ...own, pads: padsOfRows(plan.pads ?? [], transA, count) },
      };
    });
  }

  /** Why copies make a plan of the package slower than SPIR-V, or undefined. @param {Problem} problem @param {PtxPlan} plan */
  function copiesFault(problem, { pads, rows, splits, wave, tail, tiling }) {
    const pieces = rows ? ceilDiv(problem.m, rows) : 1;
    const copies = pads?.map((pad) => ({ name: pad.name, bytes: padBytes(pad) * pieces }));
    if (!copies || copiesPay(problem, { tiling: nameOf(tiling), splits, wave, tail }, copies)) return undefined;
    return `${fault(problem)}, and copies of operands would take longer than they save`;
  }

  /**
   * The form of the kernel that a product needs. If all sums go to the workspace, the second pass applies bias, activation and so on.
   * @param {Formed} product @param {PtxPlan} plan @returns {GemmForm}
   */
  function formOf(product, { division: { whole, parts, ragged } }) {
    const { aType, transA, transB, bPermuted, cType, dual, beta, bias, residual, activation, glu, again, unit, k2 = 0 } = product;
    const form = { type: aType, second: k2 > 0, transA, transB, permuted: bPermuted, parts: parts > 1, ragged };
    if (glu) return { ...form, half: true, glu, again };
    if (unit) return { ...form, half: true, bias: Boolean(bias), activation, unit };
    if (whole === 0) return form;
    const added = { beta: beta !== 0, bias: Boolean(bias), residual: Boolean(residual), activation, early: addedEarly(product) };
    return { ...form, half: cType !== 'f32', dual, ...added };
  }

  /** @param {GemmTiling | SimtTiling} tiling @param {GemmForm} form */
  const keyOf = (tiling, { type, transA, transB, ...rest }) =>
    `matmul_ptx_${formName({ transA, transB }).toLowerCase()}_${type}/${JSON.stringify(tiling)}/${Object.entries(rest)
      .filter(([, value]) => value)
      .map(([name, value]) => (value === true ? name : value))
      .join()}`;

  /**
   * How the bindings a, b, c, bias, residual, half, work, and a2 and b2 are accessed.
   * @param {GemmForm} form @param {boolean} results whether results are stored @param {boolean} maps whether tensor maps are
   * @returns {import('../../index.js').PtxAccess[]}
   */
  const accessOf = ({ beta, bias, residual, dual, parts, glu, again, unit, second }, results, maps) => [
    'read',
    'read',
    results ? (beta ? 'readwrite' : 'write') : 'none',
    bias ? 'read' : 'none',
    residual || glu === 'backward' || unit === 'backward' ? 'read' : 'none',
    dual || glu === 'forward' || again || unit === 'forward' ? 'write' : 'none',
    parts || maps ? 'write' : 'none',
    ...(second ? /** @type {const} */ (['read', 'read']) : []),
  ];

  /** The pipeline of a kernel, written and created at first use. @param {PtxPlan} plan @param {GemmForm} form */
  function pipelineOf({ tiling, division: { whole } }, form) {
    const access = accessOf(form, whole > 0, !isSimt(tiling) && tiling.load === 'tma');
    const pipeline = ptxPipeline(context, `${keyOf(tiling, form)}${whole > 0 ? '' : '/sums'}`, (name) => ({
      ptx: textOf(name, tiling, form),
      access,
      parameters: parametersOf(form, /** @type {GemmTiling} */ (tiling)).length,
      threads: threadsOf(tiling),
    }));
    return { pipeline, access };
  }

  /**
   * Makes the dispatches of a product.
   * @param {PtxProduct} product the arguments of `matmul`, checked
   * @param {PtxPlan} plan from `planOf` or `choose`
   * @param {Work} work memory for partial sums
   * @returns {Dispatch[]}
   */
  function records(product, plan, work) {
    const { rows } = plan;
    if (rows !== undefined) return piecesOf(product, { ...plan, rows }).flatMap((piece) => records(piece.product, piece.plan, work));
    if (plan.pads) {
      const { pads, ...own } = plan;
      const copied = onCopies(context, product, pads);
      return [...copied.before, ...records(copied.product, own, work), ...copied.after];
    }
    const { m, n, k, a, b, c, h, bias, residual, lda, ldb, ldc, ldr, ldh, half, aType, cType, transA, transB, alpha, beta } = product;
    const { glu, unit, a2, b2, k2 = 0, lda2 = 8, ldb2 = 8 } = product;
    // The gradient of SwiGLU reads and writes [gate, up].
    const wide = glu === 'backward' ? 2 * n : n;
    const { whole, rest, parts, kPerPart, workspaceFloats } = plan.division;
    const { pipeline, access } = pipelineOf(plan, formOf(product, plan));
    const matrix = (/** @type {number} */ rows, /** @type {number} */ columns, /** @type {number} */ ld) => (rows - 1) * ld + columns;
    const first = range(a, transA ? matrix(k, m, lda) : matrix(m, k, lda), bytesOf(aType));
    const bound = [
      first,
      range(b, transB ? matrix(n, k, ldb) : matrix(k, n, ldb), bytesOf(aType)),
      range(c, matrix(m, wide, ldc), bytesOf(cType)),
      bias && range(bias, n, 4),
      residual && range(residual, matrix(m, wide, ldr), glu || unit ? bytesOf(half) : 4),
      h && range(h, matrix(m, glu === 'forward' ? n / 2 : n, ldh), bytesOf(half)),
      work && range(work, workspaceFloats, 4),
      ...(a2 && b2 && k2 > 0
        ? [range(a2, matrix(m, k2, lda2), bytesOf(aType)), range(b2, transB ? matrix(n, k2, ldb2) : matrix(k2, n, ldb2), bytesOf(aType))]
        : []),
    ];
    // A takes the bindings that the kernel does not touch, so that no false dependency arises.
    const buffers = /** @type {Binding[]} */ (bound.map((buffer, i) => (access[i] === 'none' ? first : buffer)));
    /** @type {Dispatch[]} */
    const dispatches = [
      {
        pipeline,
        buffers,
        groups: /** @type {[number, number, number]} */ ([groupsOf(plan), 1, 1]),
        push: pushConstants(
          [m, n, k, lda, ldb, ldc, ldr, ldh, kPerPart, whole, rest, parts, ...(k2 > 0 ? [k2, lda2, ldb2] : [])],
          [alpha, beta],
        ),
        writeMask: writeMaskOf(access),
      },
    ];
    // The second pass calls the split tiles the `tail`.
    if (work && parts > 1) dispatches.push(sumParts(context, product, { ...plan, tail: parts, whole, rest }, work));
    return dispatches;
  }

  /**
   * Why the kernel of a plan is not used, or '' if it passed its test. The first call tests it, which is not possible while a graph is recorded.
   * @param {PtxPlan} plan @param {GemmForm} form
   */
  function selfTest(plan, form) {
    const key = keyOf(plan.tiling, form);
    const text = verify === verifyKernel ? () => textOf(key.split('/')[0], plan.tiling, form) : undefined;
    return selfTestOf(key, () => verify({ context, plan, form, divide, records }), text);
  }

  /**
   * The plan that a caller asks for. Throws if it cannot compute the product.
   * @param {Problem} problem @param {Partial<MatmulPlan>} override
   */
  function planOf(problem, override) {
    const plan = planFrom(problem, { ...override, because: override.because ?? ASKED });
    if (typeof plan === 'string') throw new RangeError(`matmul: the PTX kernels cannot take this product: ${plan}`);
    const form = formOf({ ...problem.args, ...problem }, plan);
    const wrong = tilingFault(plan.tiling, form) ?? launchFault(plan, problem);
    if (wrong) throw new RangeError(`matmul: the plan cannot run: ${wrong}`);
    const failed = selfTest(plan, form);
    if (failed) throw new RangeError(`matmul: the PTX kernel cannot run on ${info.deviceName}: ${failed}`);
    return plan;
  }

  /**
   * The plan of a product by the tables or the model, if it is known to be faster than the SPIR-V kernels.
   * @param {Problem} problem
   * @returns {{ plan?: PtxPlan, refused?: string }} empty if no plan is known to be faster; `refused`: why a faster plan cannot be used
   */
  function choose(problem) {
    if (!context.takesPtx) return {};
    /** @type {string | undefined} */
    let refused;
    const measured = context.machine.plan(problem);
    for (const chosen of [measured, packagePlan(problem)]) {
      if (!chosen) continue;
      if (chosen.kernel !== 'ptx') break;
      const plan = planFrom(problem, chosen);
      // PTX has no kernels for bf16x3, so that this is no refusal.
      if (typeof plan === 'string') return problem.precision === 'bf16x3' ? {} : { refused: plan };
      const slower = chosen === measured ? undefined : copiesFault(problem, plan);
      if (slower) return { refused: slower };
      const form = formOf({ ...problem.args, ...problem }, plan);
      refused = tilingFault(plan.tiling, form) || launchFault(plan, problem) || selfTest(plan, form);
      if (refused) continue;
      if (chosen !== measured) return { plan: settled(context.machine, problem, plan) };
      const own = untested(problem) ?? (problem.bPermuted ? untested({ ...problem, bPermuted: false }) : undefined);
      return { plan: own && sumOrder(own) === sumOrder(plan) ? plan : { ...plan, because: `${plan.because}; ${ANOTHER_ORDER}` } };
    }
    return refused ? { refused } : {};
  }

  /** What the package's tables and its model choose in PTX. @param {Problem} problem */
  const packagePlan = (problem) => (problem.bPermuted ? tuning.permutedPlan : tuning.ptxPlan)?.(problem);

  /** The package's plan, not tested; undefined where it is none in PTX. @param {Problem} problem @returns {PtxPlan | undefined} */
  function untested(problem) {
    const chosen = context.takesPtx ? packagePlan(problem) : undefined;
    if (chosen?.kernel !== 'ptx') return undefined;
    const plan = planFrom(problem, chosen);
    if (typeof plan === 'string' || copiesFault(problem, plan)) return undefined;
    return (tilingFault(plan.tiling, formOf({ ...problem.args, ...problem }, plan)) ?? launchFault(plan, problem)) ? undefined : plan;
  }

  /**
   * The plan of a product with B permuted: the one that the caller asks for, else the measured one, else PERMUTED_PLAN.
   * @param {Problem} problem @param {Partial<MatmulPlan>} [override]
   */
  function planPermuted(problem, override) {
    if (override !== undefined && override.kernel !== 'ptx')
      throw new RangeError("matmul: only kernels in PTX take a B that is permuted (bPermuted); plan.kernel must be 'ptx'");
    return (override === undefined && choose(problem).plan) || planOf(problem, override ?? PERMUTED_PLAN);
  }

  /** Whether there is a kernel for a product with B permuted, which may be no faster than one with B as it is. @param {Problem} problem */
  function worksPermuted(problem) {
    if (!context.takesPtx) return false;
    try {
      planOf(problem, PERMUTED_PLAN);
      return true;
    } catch (error) {
      if (error instanceof RangeError) return false;
      throw error;
    }
  }

  /** Elements of workspace that a plan needs. @param {PtxPlan} plan */
  const workspaceFloats = (plan) => plan.division.workspaceFloats;

  return { blocks, selfTestOf, fault, planOf, planPermuted, worksPermuted, choose, untested, workspaceFloats, records };
}

/**
 * A tensor as a range that begins at its first element, so that the kernel gets the address of that.
 * @param {{ buffer: Binding, offset: number, elements?: number }} tensor @param {number} elements that the kernel accesses, unless the tensor says more
 * @param {number} bytes bytes of an element
 * @returns {Binding}
 */
export function range({ buffer, offset, elements: room }, elements, bytes) {
  const { buffer: handle, offset: base = 0 } = typeof buffer === 'number' ? { buffer } : buffer;
  const first = base + offset * bytes;
  return first === 0 && typeof buffer === 'number' ? buffer : { buffer: handle, offset: first, size: (room ?? elements) * bytes };
}
