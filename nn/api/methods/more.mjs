// Methods of tensors: further statistics, products and small matrices.

import { asTensor } from '../../core/tensor.mjs';
import { bernoulli } from '../distributions.mjs';
import * as products from '../einsum.mjs';
import * as linalg from '../linalg.mjs';
import * as F from '../more-math.mjs';
import { IndexingMethods } from './indexing.mjs';

/** @typedef {import('../tensor.mjs').Tensor} Tensor */
/** @typedef {import('../reductions.mjs').Chosen} Chosen */

/** Further statistics, products and small matrices: part of every `Tensor`. */
export class MoreMethods extends IndexingMethods {
  /** The most frequent elements along a dimension; see `F.mode`. @param {number} [dim] @param {boolean} [keepdim] */
  mode(dim, keepdim) {
    return F.mode(asTensor(this), dim, keepdim);
  }
  /**
   * The median of all elements that are not NaN, or with a dimension the medians along it and their indices; see `F.nanmedian`.
   * @overload
   * @returns {Tensor}
   *
   * @overload
   * @param {number} dim @param {boolean} [keepdim] keeps it with size 1
   * @returns {Chosen}
   *
   * @param {number} [dim] @param {boolean} [keepdim]
   * @returns {Tensor | Chosen}
   */
  nanmedian(dim, keepdim) {
    // Without a dimension the first overload holds.
    return F.nanmedian(asTensor(this), /** @type {number} */ (dim), keepdim);
  }
  /** The least and the largest element. @param {import('../more-math.mjs').AminmaxOptions} [options] */
  aminmax(options) {
    return F.aminmax(asTensor(this), options);
  }
  /** Covariances of variables; see `F.cov`. @param {import('../more-math.mjs').CovarianceOptions} [options] */
  cov(options) {
    return F.cov(asTensor(this), options);
  }
  /** Pearson's correlations of variables; see `F.corrcoef`. */
  corrcoef() {
    return F.corrcoef(asTensor(this));
  }
  /** Each part along a dimension, of at most a norm; see `F.renorm`. @param {number} p @param {number} dim @param {number} maxnorm */
  renorm(p, dim, maxnorm) {
    return F.renorm(asTensor(this), p, dim, maxnorm);
  }
  /** The p-norm of the difference. @param {Tensor} other @param {number} [p] 2 when left out */
  dist(other, p) {
    return F.dist(asTensor(this), other, p);
  }
  /** Whether both have the same shape and elements, as a bool on the device. @param {Tensor} other */
  equal(other) {
    return F.equal(asTensor(this), other);
  }
  /** A matrix with all elements on a diagonal. @param {number} [offset] */
  diagflat(offset) {
    return F.diagflat(asTensor(this), offset);
  }
  /** 1 with each element's probability, else 0. */
  bernoulli() {
    return bernoulli(asTensor(this));
  }
  /** Products of matrices, [b, n, k] and [b, k, m]. @param {Tensor} other */
  bmm(other) {
    return products.bmm(asTensor(this), other);
  }
  /** The product of two matrices. @param {Tensor} other */
  mm(other) {
    return products.mm(asTensor(this), other);
  }
  /** The product of a matrix and a vector. @param {Tensor} vector */
  mv(vector) {
    return products.mv(asTensor(this), vector);
  }
  /** Σ x · other of two vectors. @param {Tensor} other */
  dot(other) {
    return products.dot(asTensor(this), other);
  }
  /** x otherᵀ of two vectors. @param {Tensor} other */
  outer(other) {
    return products.outer(asTensor(this), other);
  }
  /** The cross product of vectors of 3 elements; see `F.cross`. @param {Tensor} other @param {number} [dim] the last when left out */
  cross(other, dim) {
    return products.cross(asTensor(this), other, dim);
  }
  /** The sum of a matrix's main diagonal. */
  trace() {
    return products.trace(asTensor(this));
  }
  /** beta · x + alpha · a b; see `F.addmm`. @param {Tensor} a @param {Tensor} b @param {import('../einsum.mjs').AddOptions} [options] */
  addmm(a, b, options) {
    return products.addmm(asTensor(this), a, b, options);
  }
  /** beta · x + alpha · a b of batches; see `F.baddbmm`. @param {Tensor} a @param {Tensor} b @param {import('../einsum.mjs').AddOptions} [options] */
  baddbmm(a, b, options) {
    return products.baddbmm(asTensor(this), a, b, options);
  }
  /** The determinant of matrices. */
  det() {
    return linalg.det(asTensor(this));
  }
  /** The logarithm of the determinant of matrices. */
  logdet() {
    return linalg.logdet(asTensor(this));
  }
  /** The sign of the determinant of matrices, and the logarithm of its size. */
  slogdet() {
    return linalg.slogdet(asTensor(this));
  }
  /** The inverse of matrices. */
  inverse() {
    return linalg.inverse(asTensor(this));
  }
  /** The lower triangle L with L Lᵀ = this; see `F.cholesky`. */
  cholesky() {
    return linalg.cholesky(asTensor(this));
  }
  /** A matrix times itself n times. @param {number} n */
  matrixPower(n) {
    return linalg.matrixPower(asTensor(this), n);
  }
}
