// Methods of tensors: of integers and bools.

import { asTensor } from '../../core/tensor.mjs';
import * as F from '../integers.mjs';
import { ElementwiseMethods } from './elementwise.mjs';

/** @typedef {import('../tensor.mjs').Tensor} Tensor */
/** @typedef {import('../functional.mjs').Operand} Operand */

/** What a tensor of integers or bools computes: part of every `Tensor`. */
export class IntegerMethods extends ElementwiseMethods {
  /** The bits that are set in both, broadcast. @param {Operand} other */
  bitwiseAnd(other) {
    return F.bitwiseAnd(asTensor(this), other);
  }
  /** The bits that are set in either, broadcast. @param {Operand} other */
  bitwiseOr(other) {
    return F.bitwiseOr(asTensor(this), other);
  }
  /** The bits that are set in one of the two, broadcast. @param {Operand} other */
  bitwiseXor(other) {
    return F.bitwiseXor(asTensor(this), other);
  }
  /** The bits moved up. @param {Operand} other by how many, modulo the bits of the type */
  bitwiseLeftShift(other) {
    return F.bitwiseLeftShift(asTensor(this), other);
  }
  /** The bits moved down, behind copies of the sign. @param {Operand} other by how many, modulo the bits of the type */
  bitwiseRightShift(other) {
    return F.bitwiseRightShift(asTensor(this), other);
  }
  /** The other bits; of bools their opposites. */
  bitwiseNot() {
    return F.bitwiseNot(asTensor(this));
  }
  /** Where both are not 0, as bool, broadcast. @param {Tensor} other */
  logicalAnd(other) {
    return F.logicalAnd(asTensor(this), other);
  }
  /** Where this or other is not 0, as bool, broadcast. @param {Tensor} other */
  logicalOr(other) {
    return F.logicalOr(asTensor(this), other);
  }
  /** Where one of both is 0, as bool, broadcast. @param {Tensor} other */
  logicalXor(other) {
    return F.logicalXor(asTensor(this), other);
  }
  /** Where this is 0, as bool. */
  logicalNot() {
    return F.logicalNot(asTensor(this));
  }
}
