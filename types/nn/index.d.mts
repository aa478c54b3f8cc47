// Made by `npm run types` from nn/; do not edit.
export * as F from "./f.mjs";
export { setFloat32MatmulPrecision } from "./precision.mjs";
export { scope } from "./storage.mjs";
export * as nn from "./modules/index.mjs";
export * as optim from "./optim/index.mjs";
export { compile } from "./compile.mjs";
export { autocast } from "./autocast.mjs";
export { customOp } from "./custom.mjs";
export { Tensor, empty, tensor } from "./tensor.mjs";
export { grad, noGrad } from "./autograd.mjs";
export { cat, full, ones, stack, zeros } from "./functional.mjs";
export { init, memory, reset } from "./runtime.mjs";
export { manualSeed, rand, randn } from "./random.mjs";
export { ArgumentError, ShapeError, UsageError } from "./errors.mjs";
export { accumulate, checkpoint } from "./checkpoint.mjs";
export { load, save } from "./io.mjs";
