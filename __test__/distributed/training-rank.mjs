// One process of the tests of training: `node training-rank.mjs JSON`. It trains a small model, and says what its parameters are
// after each step.

import { createHash } from 'node:crypto';

import { init, launched } from '../../distributed/index.mjs';
import { F, compile, init as initDevice, load, manualSeed, nn, noGrad, optim, rand, save, scope } from '../../nn/index.mjs';
import { vk } from '../lib/addon.mjs';
import { say } from './said.mjs';

/**
 * @typedef {object} Settings
 * @property {'AdamW' | 'SGD' | 'Lion'} [optimizer] AdamW when left out
 * @property {0 | 1} [zero]
 * @property {'f32' | 'bf16'} [reduce] for a reference: what the gradients of the parts are rounded to before they are added
 * @property {number} [clip]
 * @property {number} [steps]
 * @property {string} [from] a checkpoint to begin with
 * @property {string} [to] a checkpoint to end with
 * @property {number} [parts] without a group: gradients of so many parts of the batch are computed one by one and added
 * @property {boolean} [helper] whether gradients are averaged by `averageGradients`, and the optimizer knows no group
 * @property {number} [head] classes: the last layer has no bias, and its product is part of the loss, `linearCrossEntropy` in blocks of two rows
 * @property {number} [bad] the step in which one element of a gradient of the last part is NaN
 * @property {'missing' | 'compiled'} [wrong]
 */

/** @type {Settings} */
const {
  optimizer: kind = 'AdamW',
  zero,
  reduce,
  clip = 0,
  steps = 4,
  from,
  to,
  parts = 0,
  helper,
  head,
  bad,
  wrong,
} = JSON.parse(process.argv[2]);
const BATCH = 12;
initDevice({ vk });
const group = parts > 0 ? undefined : await init({ joinTimeoutMs: 100_000, peerTimeoutMs: 60_000 });
const rank = group?.rank ?? 0;
const size = group?.worldSize ?? 1;

// Other parameters on each rank: those of rank 0 count.
manualSeed(helper ? 7 : 7 + rank);
const model = new nn.Sequential(new nn.Linear(8, 33), new nn.GELU(), new nn.Linear(33, head ?? 3, { bias: !head }));
const common = { lr: 1e-2, clip, weightDecay: 0.01, processGroup: helper ? undefined : group, zero, reduce };
/** @type {Record<string, () => InstanceType<typeof optim.AdamW>>} */
const made = {
  AdamW: () => new optim.AdamW(model.parameters(), { ...common, gradientScale: 1 / Math.max(1, parts) }),
  SGD: () => /** @type {any} */ (new optim.SGD(model.parameters(), { ...common, momentum: 0.9, gradientScale: 1 / Math.max(1, parts) })),
  Lion: () => /** @type {any} */ (new optim.Lion(model.parameters(), { ...common, gradientScale: 1 / Math.max(1, parts) })),
};
const optimizer = made[kind]();

/** Adds the gradients of one part of the batch. @param {any} x @param {number} part @param {number} of */
const backward = (x, part, of) => {
  const rows = BATCH / of;
  const own = x.slice(0, part * rows, (part + 1) * rows);
  if (head) {
    const classes = own
      .slice(1, 0, 1)
      .reshape(rows)
      .add(1)
      .mul(head / 2)
      .to('i32');
    const hidden = model.at(1).forward(model.at(0).forward(own));
    F.linearCrossEntropy(hidden, model.at(2).weight, classes, { logitsBytes: 8 * head }).backward();
    return;
  }
  const t = own.slice(1, 0, 3).mul(own.slice(1, 3, 6));
  F.mseLoss(model.forward(own), t).backward();
  if (now === bad && part === of - 1) noGrad(() => void model.at(0).weight.grad.slice(0, 3, 4).slice(1, 2, 3).fill_(NaN));
};
let now = 0;

let begin = 0;
if (from) {
  const tensors = await load(from);
  const of = (/** @type {string} */ prefix) =>
    Object.fromEntries(Object.entries(tensors).flatMap(([name, x]) => (name.startsWith(prefix) ? [[name.slice(prefix.length), x]] : [])));
  model.loadStateDict(of('model.'));
  optimizer.loadStateDict(of('optimizer.'));
  begin = 4;
}
const hashes = [];
/** @type {string | null} */
let problem = null;
for (let step = begin; step < begin + steps && !problem; step++) {
  manualSeed(1000 + step);
  now = step;
  try {
    scope(() => {
      const x = rand([BATCH, 8], { low: -1, high: 1 });
      // Gradients of the first layer alone.
      if (wrong === 'missing') for (const p of [...model.parameters()].slice(0, 2)) p.accumulate(p.detach());
      else backward(x, rank, Math.max(size, parts));
      const rounded = () => {
        if (parts > 0 && reduce === 'bf16') for (const { grad } of model.parameters()) grad?.copy_(grad.to('bf16').to('f32'));
      };
      rounded();
      // The reference: the gradients of the other parts, each computed by itself and added to those before it.
      for (let part = 1; part < parts; part++) {
        const before = [...model.parameters()].map((p) => /** @type {any} */ (p.grad).clone());
        optimizer.zeroGrad();
        backward(x, part, parts);
        rounded();
        [...model.parameters()].forEach((p, i) => void (/** @type {any} */ (p.grad).add_(before[i])));
      }
      if (helper && group) optim.averageGradients(group, model.parameters());
      if (wrong === 'compiled') compile(() => void optimizer.step())();
      else optimizer.step();
    });
  } catch (error) {
    problem = /** @type {Error} */ (error).message;
  }
  const hash = createHash('sha256');
  for (const p of model.parameters()) hash.update(new Uint8Array((await p.toArray()).buffer));
  hashes.push(hash.digest('hex').slice(0, 16));
}
const values = [];
for (const p of model.parameters()) values.push(...(await p.toArray()));
if (to) {
  const named = (/** @type {string} */ prefix, /** @type {Record<string, any>} */ all) =>
    Object.fromEntries(Object.entries(all).map(([name, x]) => [prefix + name, x]));
  const state = { ...named('model.', model.stateDict()), ...named('optimizer.', optimizer.stateDict()) };
  if (rank === 0) await save(to, state);
}
say({ rank: group ? launched().rank : 0, hashes, problem, values, skipped: await optimizer.skippedSteps() });
await group?.destroy();
