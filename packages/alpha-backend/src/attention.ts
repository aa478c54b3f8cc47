// Causal attention of heads [batch · heads, tokens, head size] with capped scores:
//   S = scale · Q Kᵀ, P = softmax(cap · tanh(S / cap)) over the tokens up to one's own, O = P V.

import type { Dispatches, Kernels } from 'helios-vk/kernels';

import { PRECISIONS } from './operations.js';
import { type Described, type Operand, operation } from './plan.js';
import { BackendError, show } from './types.js';

/** Whether the fused attention kernels take this head size. */
const fused = (k: Kernels, size: number, precision: number) =>
  size % 32 === 0 && size <= 128 && k.attentionSupports(precisionOf(precision), size);

const precisionOf = (precision: number) => PRECISIONS[precision];

function check(call: string, [q, ...others]: readonly Described[]): void {
  if (q.shape.length !== 3) throw new BackendError(call, `q ${show(q.shape)}: expected [batch · heads, tokens, head size]`);
  for (const { shape } of others) {
    if (shape.length !== 3 || shape.some((size, d) => size !== q.shape[d])) {
      throw new BackendError(call, `a tensor ${show(shape)} where q is ${show(q.shape)}: all must have the same shape`);
    }
  }
}

/**
 * The masked scores cap · tanh(S / cap) in the workspace `capped`, and with a cap S / cap in `scores`: [heads, tokens, tokens] each. Without
 * a cap they are S.
 */
function maskedScores(k: Kernels, [q, key, mask]: readonly Operand[], [scale, cap, precision]: readonly number[]) {
  const [heads, tokens, size] = q.shape;
  const count = heads * tokens * tokens;
  const scores = k.context.workspace('alpha scores', 4 * count);
  const capped = k.context.workspace('alpha probabilities', 4 * count);
  const product = { a: q, b: key, m: tokens, n: tokens, k: size, transB: true, batch: heads, precision: precisionOf(precision) };
  const list: Dispatches[] = [];
  if (cap > 0) {
    list.push(
      k.matmul({ ...product, c: scores, alpha: scale / cap }),
      k.activationForward({ x: scores, y: capped, count, activation: 'tanh' }),
      k.unary({ x: capped, y: capped, count, alpha: cap }),
    );
  } else list.push(k.matmul({ ...product, c: capped, alpha: scale }));
  list.push(k.binary({ a: capped, b: mask, y: capped, count, period: tokens * tokens }));
  return { list, scores, capped, count, heads, tokens, size };
}

/** Inputs q, k, v, mask (0 or −∞, [tokens, tokens]); outputs O and each row's log-sum-exp; numbers [scale, cap, precision]. */
export const ATTENTION = operation(
  'flashAttention',
  (x) => {
    check('flashAttention', x.slice(0, 3));
    const [heads, tokens] = x[0].shape;
    return [
      { shape: x[0].shape, dtype: 'f32' },
      { shape: [heads, tokens], dtype: 'f32' },
    ];
  },
  (k, x, [out, logSumExp], n) => {
    const [q, key, v] = x;
    const [scale, cap, precision] = n;
    if (fused(k, q.shape[2], precision)) {
      const [batch, tokens, headSize] = q.shape;
      return [
        k.attentionForward({
          q,
          k: key,
          v,
          out,
          logSumExp,
          batch,
          tokens,
          heads: 1,
          headSize,
          scale,
          softCap: cap,
          precision: precisionOf(precision),
        }),
      ];
    }
    const { list, capped, heads, tokens, size } = maskedScores(k, [q, key, x[3]], n);
    const rows = heads * tokens;
    // Cross-entropy is log-sum-exp − score of the target. With token 0, which every row sees, as the target: log-sum-exp = loss + score.
    const targets = k.context.workspace('alpha first', 4 * rows);
    return [
      ...list,
      k.fill({ y: targets, count: rows, value: 0, type: 'u32' }),
      k.crossEntropyForward({ logits: capped, targets, loss: logSumExp, rows, columns: tokens }),
      k.broadcast({ a: logSumExp, b: capped, y: logSumExp, shape: [rows], aStrides: [1], bStrides: [tokens], yStrides: [1] }),
      k.softmaxForward({ x: capped, y: capped, rows, columns: tokens, masked: true }),
      k.matmul({ a: capped, b: v, c: out, m: tokens, n: size, k: tokens, batch: heads, precision: precisionOf(precision) }),
    ];
  },
);

/** Inputs q, k, v, mask, O, dO, log-sum-exp; outputs dQ, dK, dV; numbers [scale, cap, precision]. */
export const ATTENTION_BACKWARD = operation(
  'flashAttentionBackward',
  (x) => {
    check('flashAttentionBackward', [x[0], x[1], x[2], x[4], x[5]]);
    return [0, 1, 2].map(() => ({ shape: x[0].shape, dtype: 'f32' as const }));
  },
  (k, x, [dQ, dK, dV], n) => {
    const [q, key, v, mask, out, dOut, logSumExp] = x;
    const [scale, cap, precision] = n;
    if (fused(k, q.shape[2], precision)) {
      const [batch, tokens, headSize] = q.shape;
      const heads = { batch, tokens, heads: 1, headSize, scale, softCap: cap, precision: precisionOf(precision) };
      return [k.attentionBackward({ q, k: key, v, out, logSumExp, dOut, dQ, dK, dV, ...heads })];
    }
    const { list, scores, capped, count, heads, tokens, size } = maskedScores(k, [q, key, mask], n);
    const rows = { rows: heads * tokens, columns: tokens };
    const slope = k.context.workspace('alpha slope', 4 * count);
    const common = { batch: heads, precision: precisionOf(precision) };
    return [
      ...list,
      k.softmaxForward({ x: capped, y: capped, ...rows, masked: true }),
      k.matmul({ a: capped, b: dOut, c: dV, m: tokens, n: size, k: tokens, transA: true, ...common }),
      k.matmul({ a: dOut, b: v, c: slope, m: tokens, n: tokens, k: size, transB: true, ...common }),
      k.softmaxBackward({ y: capped, dy: slope, dx: slope, ...rows }),
      ...(cap > 0 ? [k.activationBackward({ x: scores, dy: slope, dx: slope, count, activation: 'tanh' })] : []),
      k.matmul({ a: slope, b: key, c: dQ, m: tokens, n: size, k: tokens, alpha: scale, ...common }),
      k.matmul({ a: slope, b: q, c: dK, m: tokens, n: size, k: tokens, transA: true, alpha: scale, ...common }),
    ];
  },
);
