// The second pair of operands of a product, over which its sum continues: alpha · (op(A) op(B) + A2 op(B2)).

import { integer, reach, tensor } from '../base.mjs';
import { rowsOf } from '../bounds.mjs';

/** @typedef {import('../base.mjs').DType} DType */
/** @typedef {Pick<import('../matmul.mjs').MatmulArgs, 'a2' | 'b2' | 'lda2' | 'ldb2'>} SecondArgs */
/** @typedef {import('./types.mjs').Placed} Placed */

/**
 * The second pair of a product's operands, checked.
 * @param {string} kernel @param {SecondArgs} args @param {{ m: number, n: number, k2: number, transB: boolean }} product
 */
export function secondOf(kernel, args, { m, n, k2, transB }) {
  const [a2, b2] = [tensor(kernel, 'a2', args.a2), tensor(kernel, 'b2', args.b2)];
  const lda2 = integer(kernel, 'lda2', args.lda2 ?? k2, k2);
  const ldb2 = integer(kernel, 'ldb2', args.ldb2 ?? (transB ? k2 : n), transB ? k2 : n);
  reach(kernel, 'a2', a2.offset + m * lda2);
  reach(kernel, 'b2', b2.offset + (transB ? n : k2) * ldb2);
  return { a2, b2, k2, lda2, ldb2 };
}

/**
 * What a second pair of operands reads.
 * @param {{ m: number, n: number, k2?: number, aType: DType, transB: boolean, a2?: Placed, b2?: Placed, lda2?: number, ldb2?: number }} product
 */
export function extentsOfSecond({ m, n, k2 = 0, aType, transB, a2, b2, lda2 = 0, ldb2 = 0 }) {
  if (!a2 || !b2) return [];
  return [rowsOf('a2', a2, aType, m, k2, lda2, 1, 0), rowsOf('b2', b2, aType, transB ? n : k2, transB ? k2 : n, ldb2, 1, 0)];
}
