// Calls of public functions that are right: those of `F.linalg`.

import { ones, tensor } from '../../nn/index.mjs';

const m = () => ones([2, 3]);
const square = () =>
  tensor([
    [2, 1],
    [1, 3],
  ]);
const tolerances = { atol: 0.1, rtol: 0.1 };

/** Functions of `F.linalg`. @type {Record<string, () => any[]>} */
export const LINALG = {
  qr: () => [m(), 'complete'],
  tensorinv: () => [square(), 1],
  tensorsolve: () => [square(), ones([2]), [1]],
  svd: () => [m(), { fullMatrices: false }],
  svdvals: () => [m()],
  eigh: () => [square(), 'U'],
  eigvalsh: () => [square(), 'U'],
  lu: () => [m()],
  luFactor: () => [m()],
  luSolve: () => [square(), tensor(Int32Array.of(1, 2)), ones([2, 3]), { left: true, adjoint: true }],
  lstsq: () => [m(), ones([2, 2]), { rcond: 0.1 }],
  pinv: () => [m(), tolerances],
  matrixRank: () => [m(), tolerances],
  solve: () => [square(), ones([2, 3])],
  inv: () => [square()],
  det: () => [square()],
  slogdet: () => [square()],
  cholesky: () => [square()],
  solveTriangular: () => [square(), ones([2, 3]), { upper: true, left: true, unitriangular: true }],
  matrixNorm: () => [square(), 'nuc', [0, 1], true],
  vectorNorm: () => [m(), 3, 1, true],
  norm: () => [m(), 'nuc', [0, 1], true],
  cond: () => [m(), 2],
  multiDot: () => [[m(), ones([3, 2])]],
  matrixPower: () => [square(), -3],
  matrixExp: () => [square()],
  matmul: () => [m(), ones([3, 2])],
  cross: () => [m(), m(), 1],
  vander: () => [ones([3]), 2],
  vecdot: () => [m(), m(), 0],
  diagonal: () => [m(), 1, 0, 1],
};
