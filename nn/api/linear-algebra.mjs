// `F.linalg`: the names of `torch.linalg`.

import { within } from '../core/errors.mjs';
import { inverse } from './linalg.mjs';
import { diagonal as diagonalOf } from './shape.mjs';

/** The inverse of matrices: `F.inverse`. @param {import('./tensor.mjs').Tensor} a [..., n, n] @returns {import('./tensor.mjs').Tensor} of a's shape */
export const inv = (a) => within('inv', () => inverse(a));

/**
 * A diagonal of matrices as the last dimension; a view: `F.diagonal` of the last two dimensions.
 * @param {import('./tensor.mjs').Tensor} a @param {number} [offset] 0 (when left out) the main one, 1 the next above it, -1 the next below
 * @param {number} [dim1] of rows; the last but one when left out @param {number} [dim2] of columns; the last when left out
 * @returns {import('./tensor.mjs').Tensor}
 */
export const diagonal = (a, offset = 0, dim1 = -2, dim2 = -1) => within('diagonal', () => diagonalOf(a, offset, dim1, dim2));

export { eigh, eigvalsh, lu, luFactor, luSolve, qr, svd, svdvals } from './decompositions.mjs';
export { cross, multiDot } from './einsum.mjs';
export { matmul } from './functional.mjs';
export { cholesky, det, matrixPower, slogdet, solve, solveTriangular, tensorinv, tensorsolve } from './linalg.mjs';
export { linalgNorm as norm, cond, lstsq, matrixExp, matrixNorm, matrixRank, pinv, vectorNorm } from './matrix-functions.mjs';
export { vander, vecdot } from './more-math.mjs';
