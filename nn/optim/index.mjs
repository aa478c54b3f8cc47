// `optim`: optimizers.

/** Options of every optimizer. @typedef {import('./optimizer.mjs').Options} Options */

export { Adadelta, Adagrad, Adam, Adamax, NAdam, RAdam, RMSprop } from './adaptive.mjs';
export { AdamW } from './adamw.mjs';
export { EMA, SWA } from './average.mjs';
export { LBFGS } from './lbfgs.mjs';
export { Lion } from './lion.mjs';
export { Adafactor, Muon } from './matrices.mjs';
export { ReduceLROnPlateau } from './plateau.mjs';
export { averageGradients } from './ranks.mjs';
/** Schedules of learning rates, as functions. */
export * as schedules from './schedules.mjs';
export { SGD } from './sgd.mjs';
export { ASGD, Rprop } from './steps.mjs';
