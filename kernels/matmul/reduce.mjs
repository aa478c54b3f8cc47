// The second pass of products whose depth was split, and the flags that tell shaders what to do with sums.

import { ceilDiv, pushConstants } from '../base.mjs';

/** @typedef {import('../base.mjs').Binding} Binding */
/** @typedef {import('../base.mjs').KernelContext} KernelContext */
/** @typedef {import('./types.mjs').PtxProduct} PtxProduct */

const EPI_BETA = 1;
const EPI_BIAS = 2;
const EPI_RESIDUAL = 4;
/** Results, residual and second output are written and read four elements at a time. */
export const EPI_VEC4 = 16;
const EPI_GELU = 32;
const EPI_SILU = 64;

/** What a product adds to its sums, as bits. @param {Pick<PtxProduct, 'beta' | 'bias' | 'residual' | 'activation' | 'vec4'>} product */
export function effectsOf({ beta, bias, residual, activation, vec4 }) {
  return (
    (beta !== 0 ? EPI_BETA : 0) |
    (bias ? EPI_BIAS : 0) |
    (residual ? EPI_RESIDUAL : 0) |
    (activation === 'gelu' ? EPI_GELU : activation === 'silu' ? EPI_SILU : 0) |
    (vec4 ? EPI_VEC4 : 0)
  );
}

/**
 * The second pass of a product whose depth was split: adds the partial sums in order and stores the results. If the plan has a `tail`, only the
 * `rest` tiles after the `whole` ones were split, into that many parts. Otherwise all were, and partial sums lie in slices of padded rows.
 * @param {KernelContext} context
 * @param {PtxProduct} product the arguments of `matmul`, checked
 * @param {import('./types.mjs').Parts} plan
 * @param {{ buffer: Binding, offset: number }} work the memory that holds the partial sums
 */
export function sumParts(context, product, plan, work) {
  const { m, n, k, batch, half, cType, dual, toF32, c, h, bias, residual, ldc, ldr, ldh } = product;
  const { strideC = 0, strideR = 0, strideH = 0, strideBias = 0, alpha, beta } = product;
  const [padM, padN] = [ceilDiv(m, plan.bm) * plan.bm, ceilDiv(n, plan.bn) * plan.bn];
  const reduce = `matmul_reduce${plan.tail ? '_tail' : ''}${toF32 ? '' : `_${half}`}${dual ? '_dual' : ''}`;
  const threads = Math.min(256, context.info.maxComputeWorkGroupInvocations);
  const target = [work.buffer, bias?.buffer ?? work.buffer, residual?.buffer ?? work.buffer, c.buffer];
  if (h) target.push(h.buffer);
  return context.dispatch(reduce, {
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
    specialization: [threads, effectsOf(product), cType === 'f32' ? 0 : 1, ...(plan.tail ? [plan.bm, plan.bn] : [])],
  });
}
