// `optim`: optimizers.

/** Options of every optimizer. @typedef {import('./optimizer.mjs').Options} Options */

export { AdamW } from './adamw.mjs';
export { Lion } from './lion.mjs';
export { averageGradients } from './ranks.mjs';
export { SGD } from './sgd.mjs';
