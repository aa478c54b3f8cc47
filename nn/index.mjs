// Tensors, automatic differentiation, modules and optimizers on the device of this process: `helios-vk/nn`.

export { Tensor, empty, tensor } from './api/tensor.mjs';
export { grad } from './api/autograd.mjs';
export {
  arange,
  cartesianProd,
  emptyLike,
  eye,
  fullLike,
  linspace,
  logspace,
  meshgrid,
  onesLike,
  randLike,
  randint,
  randnLike,
  randperm,
  trilIndices,
  triuIndices,
  zerosLike,
} from './api/creation.mjs';
export { noGrad } from './core/node.mjs';
export * as F from './api/f.mjs';
export { cat, full, ones, stack, zeros } from './api/functional.mjs';
export { init, memory, reset } from './core/runtime.mjs';
export { setFloat32MatmulPrecision } from './core/precision.mjs';
export { scope } from './core/scope.mjs';
/** Distributions as objects. */
export * as distributions from './api/probability.mjs';
export { manualSeed, rand, randn } from './api/random.mjs';
export { ArgumentError, ShapeError, UsageError } from './core/errors.mjs';
export * as nn from './modules/index.mjs';
export * as optim from './optim/index.mjs';
export { compile } from './compile/index.mjs';
export { traceOperations } from './compile/operations.mjs';
export { tunedPlans, tuningSummary, useTunedPlans } from './compile/tune.mjs';
export { autocast } from './api/autocast.mjs';
export { accumulate, checkpoint } from './api/checkpoint.mjs';
export { customFunction, customOp } from './api/custom.mjs';
export { load, openTensors, save } from './io/index.mjs';
