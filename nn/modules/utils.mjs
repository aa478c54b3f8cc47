// `nn.utils`: gradients clipped, and all parameters as one vector.

import { ArgumentError, ShapeError, UsageError, show, shown, within } from '../core/errors.mjs';
import * as F from '../api/functional.mjs';
import { Tensor } from '../api/tensor.mjs';
import { tensorOf } from '../core/engine.mjs';
import { noGrad } from '../core/node.mjs';
import { checkPower } from '../core/options.mjs';
import { scope } from '../core/scope.mjs';

/** @param {string} op @param {Iterable<Tensor> | Tensor} parameters @returns {Tensor[]} */
function listOf(op, parameters) {
  const list = parameters instanceof Tensor ? [parameters] : parameters;
  if (typeof list !== 'object' || list === null || typeof list[Symbol.iterator] !== 'function')
    throw new ArgumentError(op, `expected an array of parameters, got ${shown(parameters)}`);
  return Array.from(list, (parameter) => tensorOf(op, parameter));
}
/** Gradients that are there. @param {Tensor[]} list @returns {Tensor[]} */
const gradientsOf = (list) => list.flatMap(({ grad }) => (grad ? [grad] : []));

/**
 * Scales all gradients down in place so that their norm together is at most `maxNorm`. An optimizer's `clip` does the same in its step.
 * @param {Iterable<Tensor> | Tensor} parameters @param {number} maxNorm @param {number} [normType] 2 when left out; Infinity: the largest size
 * @returns {Tensor} [] f32: the norm before
 */
export function clipGradNorm(parameters, maxNorm, normType = 2) {
  const op = 'clipGradNorm';
  const gradients = gradientsOf(listOf(op, parameters));
  if (typeof maxNorm !== 'number' || !(maxNorm >= 0))
    throw new ArgumentError(op, `maxNorm must be a number of at least 0, got ${shown(maxNorm)}`);
  checkPower(op, 'normType', normType);
  return within(op, () =>
    noGrad(() =>
      scope(() => {
        if (gradients.length === 0) return F.zeros([]);
        const sizes = gradients.map((g) => F.abs(F.reshape(F.to(g, 'f32'), [g.size])));
        const one = (/** @type {Tensor} */ v) => F.sum(normType === 2 ? F.square(v) : F.pow(v, normType));
        const norm =
          normType === Infinity
            ? F.amax(F.stack(sizes.map((v) => F.amax(v))))
            : F.pow(
                sizes.map(one).reduce((a, b) => F.add(a, b)),
                1 / normType,
              );
        // As PyTorch: a little less than maxNorm, so that 0 is no divisor.
        const factor = F.minimum(F.div(maxNorm, F.add(norm, 1e-6)), 1);
        for (const g of gradients) g.mul_(F.to(factor, g.dtype));
        return norm;
      }),
    ),
  );
}

/** Limits every element of the gradients to ±clipValue, in place. @param {Iterable<Tensor> | Tensor} parameters @param {number} clipValue */
export function clipGradValue(parameters, clipValue) {
  const op = 'clipGradValue';
  const gradients = gradientsOf(listOf(op, parameters));
  if (typeof clipValue !== 'number' || !(clipValue >= 0))
    throw new ArgumentError(op, `clipValue must be a number of at least 0, got ${shown(clipValue)}`);
  within(op, () => noGrad(() => scope(() => gradients.forEach((g) => void g.copy_(F.clamp(g, -clipValue, clipValue))))));
}

/** All elements, one parameter after another. @param {Iterable<Tensor>} parameters of one type @returns {Tensor} [n] */
export function parametersToVector(parameters) {
  const list = listOf('parametersToVector', parameters);
  if (list.length === 0) throw new ArgumentError('parametersToVector', 'expected at least one parameter');
  return within('parametersToVector', () => F.cat(list.map((parameter) => F.reshape(parameter, [parameter.size]))));
}

/** Writes the elements of a vector into parameters, the inverse of `parametersToVector`. @param {Tensor} vector [n] @param {Iterable<Tensor>} parameters */
export function vectorToParameters(vector, parameters) {
  const op = 'vectorToParameters';
  const list = listOf(op, parameters);
  const count = list.reduce((sum, { size }) => sum + size, 0);
  if (tensorOf(op, vector).ndim !== 1 || vector.size !== count)
    throw new ShapeError(op, `expected a vector [${count}], got ${show(vector.shape)}`);
  if (list.some(({ disposed }) => disposed)) throw new UsageError(op, 'a parameter was disposed of');
  within(op, () =>
    noGrad(() =>
      scope(() => {
        let first = 0;
        for (const parameter of list) {
          parameter.copy_(F.to(F.reshape(F.slice(vector, 0, first, first + parameter.size), parameter.shape), parameter.dtype));
          first += parameter.size;
        }
      }),
    ),
  );
}
