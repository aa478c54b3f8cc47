// `nn.utils`: gradients clipped, all parameters as one vector, and weights as sizes and directions.

import { ArgumentError, ShapeError, UsageError, show, shown, within } from '../core/errors.mjs';
import * as F from '../api/functional.mjs';
import { Tensor } from '../api/tensor.mjs';
import { tensorOf } from '../core/engine.mjs';
import { noGrad } from '../core/node.mjs';
import { dimension, positive } from '../core/layout.mjs';
import { checkAbove, checkOptions, checkPower, flag } from '../core/options.mjs';
import { scope } from '../core/scope.mjs';
import { unscoped } from '../core/storage.mjs';
import { isRecomputing } from '../api/checkpoint.mjs';
import { randn } from '../api/random.mjs';
import { normalize } from '../api/criteria.mjs';
import { inF32 } from '../api/matrices.mjs';
import { norm } from '../api/reductions.mjs';
import { ModuleDict, ParameterDict } from './containers.mjs';
import { ConvTranspose1d, ConvTranspose2d, ConvTranspose3d } from './convolution.mjs';
import { Module, Parameter } from './module.mjs';

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

/**
 * Options of `padSequence`.
 * @typedef {object} PadSequenceOptions
 * @property {boolean} [batchFirst] whether the result is [sequences, steps, ...]; true when left out, where PyTorch has false
 * @property {number} [paddingValue] what is added; 0 when left out
 */

/**
 * Sequences of different lengths in one tensor, each filled up at its end, as `torch.nn.utils.rnn.pad_sequence`.
 * @param {Iterable<Tensor>} sequences [steps, ...], alike but for their steps @param {PadSequenceOptions} [options]
 * @returns {Tensor} [sequences, longest, ...], or [longest, sequences, ...] where `batchFirst` is false
 */
export function padSequence(sequences, options = {}) {
  const op = 'padSequence';
  const { batchFirst = true, paddingValue = 0 } = checkOptions(op, options, ['batchFirst', 'paddingValue']);
  flag(op, 'batchFirst', batchFirst);
  if (typeof paddingValue !== 'number') throw new ArgumentError(op, `paddingValue must be a number, got ${shown(paddingValue)}`);
  if (sequences instanceof Tensor || typeof sequences?.[Symbol.iterator] !== 'function')
    throw new ArgumentError(op, `expected an array of tensors, got ${shown(sequences)}`);
  const list = Array.from(sequences, (x) => tensorOf(op, x));
  if (list.length === 0) throw new ArgumentError(op, 'expected at least one sequence');
  const [first] = list;
  for (const { shape, ndim, dtype } of list) {
    if (ndim === 0) throw new ShapeError(op, 'expected sequences [steps, ...], got []');
    if (show(shape.slice(1)) !== show(first.shape.slice(1)) || dtype !== first.dtype)
      throw new ShapeError(
        op,
        `sequences ${show(first.shape)}, ${first.dtype}, and ${show(shape)}, ${dtype}, differ in more than their steps`,
      );
  }
  const longest = Math.max(...list.map(({ shape }) => shape[0]));
  const { shape, dtype } = first;
  return within(op, () => {
    const filled = list.map((x) => {
      const missing = longest - x.shape[0];
      return missing === 0 ? x : F.cat([x, F.full([missing, ...shape.slice(1)], paddingValue, { dtype })], 0);
    });
    return F.stack(filled, batchFirst ? 0 : 1);
  });
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

/**
 * Options of `weightNorm`.
 * @typedef {object} WeightNormOptions
 * @property {string} [name] of the parameter; 'weight' when left out
 * @property {number | null} [dim] the dimension whose elements have a size each; as in PyTorch, null and -1 mean one size for all, and other negative
 *   ones count from the end; 0 when left out
 */

/**
 * Options of `spectralNorm`.
 * @typedef {object} SpectralNormOptions
 * @property {string} [name] of the parameter; 'weight' when left out
 * @property {number} [nPowerIterations] how often each forward pass in training improves the estimate; 1 when left out
 * @property {number} [eps] the least length that vectors are divided by; 1e-12 when left out
 * @property {number} [dim] the dimension that is the rows of the weight as a matrix; that of outputs when left out: 1 of a transposed convolution, else 0
 */

/** A module that may have parameters in parts. @typedef {Module & { parametrizations?: ModuleDict }} Parametrized */

/** @param {string} op @param {unknown} module @param {unknown} name */
function checkNamed(op, module, name) {
  if (!(module instanceof Module)) throw new ArgumentError(op, `expected a module, got ${shown(module)}`);
  if (typeof name !== 'string') throw new ArgumentError(op, `name must be a string, got ${shown(name)}`);
}

/** A module's own parameter that no optimizer has yet. @param {string} op @param {Module} module @param {string} name @returns {Parameter} */
function ownParameter(op, module, name) {
  checkNamed(op, module, name);
  const weight = Object.hasOwn(module, name) ? Reflect.get(module, name) : undefined;
  if (!(weight instanceof Parameter)) throw new ArgumentError(op, `a ${module.constructor.name} has no parameter ${shown(name)}`);
  if (weight.bucket) throw new UsageError(op, `an optimizer has the ${name} already: make the optimizer afterwards`);
  return weight;
}

/** Has a module compute a parameter of its parts whenever it is read. @param {Module} module @param {string} name @param {Module} parts @param {() => Tensor} get */
function compute(module, name, parts, get) {
  const { parametrizations = new ModuleDict() } = /** @type {Parametrized} */ (module);
  parametrizations.set(name, parts);
  Reflect.deleteProperty(module, name);
  Object.assign(module, { parametrizations });
  // Not enumerable, so that it is no tensor of `stateDict`.
  Object.defineProperty(module, name, { configurable: true, get });
}

/**
 * Makes what `by` took apart one parameter again, that of before with the value of now.
 * @template {Module} M
 * @param {string} op @param {string} by @param {string} original the part that is that parameter @param {M} module @param {{ name?: string }} options
 * @returns {M} the module
 */
function joined(op, by, original, module, options) {
  const { name = 'weight' } = checkOptions(op, options, ['name']);
  checkNamed(op, module, name);
  const { parametrizations } = /** @type {Parametrized} */ (module);
  const parts = parametrizations instanceof ModuleDict ? parametrizations.get(name) : undefined;
  /** @type {Parameter | undefined} */
  const weight = parts && Reflect.get(parts, original);
  if (!parametrizations || !parts || !weight) throw new ArgumentError(op, `${by} was not called with the ${shown(name)} of this module`);
  if (parts.parameters().some(({ bucket }) => bucket))
    throw new UsageError(op, `an optimizer has the parts of ${name}: dispose() of it first`);
  noGrad(() => scope(() => void weight.copy_(Reflect.get(/** @type {object} */ (module), name))));
  // It may be another module's, too, and is frozen only if all parts are.
  weight.requiresGrad_(parts.parameters().some(({ requiresGrad }) => requiresGrad));
  weight.zeroGrad();
  for (const [, part] of parts.namedTensors()) {
    if (part === weight) continue;
    part.zeroGrad();
    part.dispose();
  }
  parametrizations.delete(name);
  if (parametrizations.keys().length === 0) Reflect.deleteProperty(module, 'parametrizations');
  Reflect.deleteProperty(module, name);
  Object.assign(module, { [name]: weight });
  return module;
}

/**
 * Splits a parameter into sizes g and directions v (weight normalization, Salimans & Kingma 2016), as PyTorch's
 * `parametrizations.weight_norm`: the module computes it as g · v / ‖v‖ whenever it is read. The parameters g and v have PyTorch's names,
 * `parametrizations.weight.original0` and `original1`; `loadStateDict` also takes the names before PyTorch 2.0, `weight_g` and `weight_v`. Make the
 * optimizer afterwards.
 * @template {Module} M
 * @param {M} module with the parameter @param {WeightNormOptions} [options]
 * @returns {M} the module
 */
export function weightNorm(module, options = {}) {
  const op = 'weightNorm';
  const { name = 'weight', dim = 0 } = checkOptions(op, options, ['name', 'dim']);
  const weight = ownParameter(op, module, name);
  const own = dim === null || dim === -1 ? undefined : dimension(op, dim, weight.ndim);
  const dims = weight.shape.map((_, d) => d).filter((d) => d !== own);
  /** Of the elements of each index of `dim`. @param {Tensor} v */
  const size = (v) => (dims.length > 0 ? norm(v, 2, dims, own !== undefined) : F.abs(v));
  const g = within(op, () => new Parameter(noGrad(() => F.clone(size(weight)))).requiresGrad_(weight.requiresGrad));
  const parts = new ParameterDict({ original0: /** @type {Parameter} */ (g), original1: weight });
  compute(module, name, parts, () => {
    const { original0, original1 } = /** @type {any} */ (parts); // any: its entries are properties
    return within(op, () => F.mul(original1, F.div(original0, size(original1))));
  });
  return module;
}

/**
 * Makes what `weightNorm` split one parameter again, that of before with the value of now.
 * @template {Module} M
 * @param {M} module @param {Pick<WeightNormOptions, 'name'>} [options]
 * @returns {M} the module
 */
export const removeWeightNorm = (module, options = {}) => joined('removeWeightNorm', 'weightNorm', 'original1', module, options);

/**
 * Divides a parameter by its largest singular value as a matrix (spectral normalization, Miyato et al. 2018), as PyTorch's
 * `parametrizations.spectral_norm`: the module computes it whenever it is read. The value is estimated by power iteration, which goes on with each
 * read in training; gradients pass through it. A vector is divided by its length. Parameter and vectors have PyTorch's names,
 * `parametrizations.weight.original`, `parametrizations.weight.0._u` and `_v`; `loadStateDict` also takes the names before, `weight_orig`, `weight_u`
 * and `weight_v`. Make the optimizer afterwards.
 * @template {Module} M
 * @param {M} module with the parameter @param {SpectralNormOptions} [options]
 * @returns {M} the module
 */
export function spectralNorm(module, options = {}) {
  const op = 'spectralNorm';
  const { name = 'weight', nPowerIterations = 1, eps = 1e-12, dim } = checkOptions(op, options, ['name', 'nPowerIterations', 'eps', 'dim']);
  const weight = ownParameter(op, module, name);
  positive(op, 'nPowerIterations', nPowerIterations);
  checkAbove(op, 'eps', eps);
  const isTransposed = [ConvTranspose1d, ConvTranspose2d, ConvTranspose3d].some((kind) => module instanceof kind);
  const own = dimension(op, dim ?? (isTransposed ? 1 : 0), weight.ndim);
  const order = [own, ...weight.shape.map((_, d) => d).filter((d) => d !== own)];
  const unit = (/** @type {Tensor} */ x) => normalize(x, 2, 0, eps);
  /** @param {Tensor} w @returns {Tensor} f32 [rows, columns] */
  const matrix = (w) => F.reshape(F.permute(F.to(w, 'f32'), order), [w.shape[own], -1]);
  const parts = Object.assign(new Module(), { original: weight });
  if (weight.ndim === 1) compute(module, name, parts, () => within(op, () => unit(parts.original)));
  else {
    const [u, v] = within(op, () => {
      const [rows, columns] = [weight.shape[own], weight.size / weight.shape[own]];
      // No scope that the module is made in frees them.
      return noGrad(() => [rows, columns].map((n) => unscoped(() => F.zeros([n])).copy_(unit(randn([n])))));
    });
    /** @param {Tensor} w a matrix @param {number} times */
    const iterate = (w, times) =>
      noGrad(() =>
        scope(() => {
          for (let k = 0; k < times; k++) {
            u.copy_(unit(F.matmul(w, v)));
            v.copy_(unit(F.matmul(F.transpose(w, 0, 1), u)));
          }
        }),
      );
    within(op, () => noGrad(() => iterate(matrix(weight), 15)));
    Object.assign(parts, { 0: Object.assign(new Module(), { _u: u, _v: v }) });
    compute(module, name, parts, () =>
      inF32(op, () => {
        const w = matrix(parts.original);
        // What runs again in the backward pass computes what it did.
        if (module.training && !isRecomputing()) iterate(w, nPowerIterations);
        // The vectors change before the backward pass if the module is used twice.
        const [left, right] = [F.clone(u), F.clone(v)];
        return F.div(parts.original, F.to(F.sum(F.mul(left, F.matmul(w, right))), parts.original.dtype));
      }),
    );
  }
  return module;
}

/**
 * Makes what `spectralNorm` divides a parameter again, that of before with the value of now.
 * @template {Module} M
 * @param {M} module @param {Pick<SpectralNormOptions, 'name'>} [options]
 * @returns {M} the module
 */
export const removeSpectralNorm = (module, options = {}) => joined('removeSpectralNorm', 'spectralNorm', 'original', module, options);
