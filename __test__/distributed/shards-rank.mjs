// One process of the tests of sharded gradients and parameters: `node shards-rank.mjs JSON`. One group trains a small model in several ways, one
// after another, and says what the parameters are after each step.

import { createHash } from 'node:crypto';

import { init, launched } from '../../distributed/index.mjs';
import {
  F,
  autocast,
  checkpoint,
  compile,
  init as initDevice,
  manualSeed,
  memory,
  nn,
  noGrad,
  optim,
  rand,
  scope,
  tensor,
} from '../../nn/index.mjs';
import { vk } from '../lib/addon.mjs';
import { say } from './said.mjs';

/**
 * @typedef {object} Way
 * @property {0 | 1 | 2 | 3} zero
 * @property {boolean} [units] whether `fullyShard` makes units of the layers; else they are checkpointed, so that the bits are the same
 * @property {boolean} [compiled] whether a compiled function computes the gradients
 * @property {number} [micro] micro-steps, over which gradients are added; 1 when left out
 * @property {number} [clip]
 * @property {number} [bad] the step in which the last rank's loss is NaN
 * @property {boolean} [half] whether products are of bf16
 * @property {'AdamW' | 'SGD'} [optimizer]
 * @property {number} [resumed] the step before which another optimizer of ZeRO-1 takes over, of what this one had
 * @property {boolean} [apart] says the parameters after a step in which the ranks have gradients in other orders, and not all of them, instead
 * @property {boolean} [misuse] says the errors of wrong calls instead
 * @property {number} [dies] the step in which rank 1 is killed
 */

/** @type {Way[]} */
const ways = JSON.parse(process.argv[2]);
initDevice({ vk });
const group = await init({ joinTimeoutMs: 100_000, peerTimeoutMs: 60_000 });
const { rank, worldSize } = group;
const [BATCH, WIDTH, STEPS] = [12, 36, 4];

/** A layer, of which the gradient of no element is in whole blocks. */
class Layer extends nn.Module {
  constructor() {
    super();
    this.norm = new nn.RMSNorm(WIDTH);
    this.up = new nn.Linear(WIDTH, 50);
    this.down = new nn.Linear(50, WIDTH, { bias: false });
  }

  /** @param {any} x */
  forward(x) {
    return F.add(x, this.down.forward(F.gelu(this.up.forward(this.norm.forward(x)))));
  }
}

class Model extends nn.Module {
  constructor() {
    super();
    this.inputs = new nn.Linear(8, WIDTH);
    this.layers = new nn.ModuleList([new Layer(), new Layer(), new Layer()]);
    this.head = new nn.Linear(WIDTH, 3);
  }
}

/** @param {Model} model @param {Way} way @param {0 | 1 | 2 | 3} zero @returns {any} */
function optimizerOf(model, { optimizer = 'AdamW', clip = 0 }, zero) {
  const [vectors, matrices] = [1, 2].map((ndim) => model.parameters().filter((p) => p.ndim === ndim));
  const common = { lr: 1e-2, clip, weightDecay: 0.01, processGroup: group, zero };
  const parameters = [{ params: matrices }, { params: vectors, weightDecay: 0 }];
  return optimizer === 'SGD' ? new optim.SGD(parameters, { ...common, momentum: 0.9 }) : new optim.AdamW(parameters, common);
}

/** The bytes of all parameters, read by all processes. @param {Model} model */
async function bytesOf(model) {
  const hash = createHash('sha256');
  const values = [];
  for (const p of model.parameters()) {
    const own = await p.toArray();
    hash.update(new Uint8Array(own.buffer));
    values.push(...own);
  }
  return { hash: hash.digest('hex').slice(0, 16), values };
}

/** @param {Way} way */
async function trained(way) {
  const { zero, units, compiled, micro = 1, bad, half, resumed, dies } = way;
  const before = memory().bytes;
  // Other parameters on each rank: those of rank 0 count.
  manualSeed(7 + rank);
  const model = new Model();
  if (units) for (const layer of model.layers) nn.fullyShard(layer);
  let optimizer = optimizerOf(model, way, zero);
  // The first step would allocate them.
  for (const bucket of optimizer.buckets) bucket.reserveGradients();
  const bytes = memory().bytes - before;
  /** @param {any} x @param {any} scale */
  const backward = (x, scale) => {
    for (let i = 0; i < micro; i++) {
      const rows = BATCH / worldSize / micro;
      const own = x.slice(0, i * rows, (i + 1) * rows);
      const loss = autocast(half ? 'bf16' : false, () => {
        let y = model.inputs.forward(own);
        for (const layer of model.layers) y = units ? layer.forward(y) : checkpoint((/** @type {any} */ z) => layer.forward(z), y);
        return F.mseLoss(model.head.forward(y), own.slice(1, 0, 3).mul(own.slice(1, 3, 6)));
      });
      loss.mul(scale).backward();
    }
  };
  const graph = compile(backward);
  const hashes = [];
  /** @type {string | null} */
  let problem = null;
  let values = /** @type {number[]} */ ([]);
  for (let step = 0; step < STEPS && !problem; step++) {
    manualSeed(1000 + step);
    if (step === dies && rank === 1) process.kill(process.pid, 'SIGKILL');
    try {
      if (step === resumed) {
        // The state by name, and the parameters, go to a model and an optimizer that shard nothing but moments.
        const kept = await bytesOf(model);
        const state = optimizer.stateDict();
        const next = new Model();
        const parameters = next.parameters();
        const other = optimizerOf(next, way, 1);
        let at = 0;
        for (const p of parameters) {
          scope(() => other.setParameter(p, tensor(kept.values.slice(at, at + p.size))));
          at += p.size;
        }
        other.loadStateDict(state);
        for (const each of Object.values(state)) each.dispose();
        optimizer.dispose();
        [model.inputs, model.layers, model.head, optimizer] = [next.inputs, next.layers, next.head, other];
      }
      scope(() => {
        const x = rand([BATCH, 8], { low: -1, high: 1 });
        const rows = BATCH / worldSize;
        const own = x.slice(0, rank * rows, (rank + 1) * rows).clone();
        const scale = F.full([], step === bad && rank === worldSize - 1 ? NaN : 1);
        if (compiled) graph(own, scale);
        else backward(own, scale);
        optimizer.step();
      });
      const now = await bytesOf(model);
      hashes.push(now.hash);
      values = now.values;
    } catch (error) {
      problem = /** @type {Error} */ (error).message;
    }
  }
  if (dies !== undefined) return { problem };
  const skipped = await optimizer.skippedSteps();
  const norm = await optimizer.gradientNorm();
  graph.dispose();
  optimizer.dispose();
  model.dispose();
  // Some of them: all would be long lines.
  values = values.filter((_, i) => i % 61 === 0).map((x) => Number(x.toPrecision(7)));
  return { hashes, values, problem, skipped, norm, bytes, left: memory().bytes - before };
}

/** The message of the error that a call throws. @param {() => unknown} call */
function errorOf(call) {
  try {
    call();
    return 'no error';
  } catch (error) {
    return /** @type {Error} */ (error).message;
  }
}

/** What wrong calls say; no process makes a collective here that the others do not. @param {Way} way */
function misused({ zero }) {
  manualSeed(7);
  const model = new Model();
  const [layer] = model.layers;
  nn.fullyShard(layer);
  const parameters = model.parameters();
  const errors = {
    reduce: errorOf(() => new optim.AdamW(parameters, { processGroup: group, zero, reduce: 'bf16' })),
    zero: errorOf(() => new optim.AdamW(parameters, { processGroup: group, zero: /** @type {any} */ (4) })),
    matrices: errorOf(() => new optim.Muon([model.head.weight], { processGroup: group, zero: /** @type {any} */ (zero) })),
    twice: errorOf(() => nn.fullyShard(layer)),
    inside: errorOf(() => nn.fullyShard(layer.up)),
    module: errorOf(() => nn.fullyShard(/** @type {any} */ (parameters))),
  };
  const optimizer = new optim.AdamW(parameters, { processGroup: group, zero });
  const [weight] = parameters;
  const alias = weight.detach();
  const more = {
    late: errorOf(() => nn.fullyShard(model.layers.at(1))),
    inPlace: errorOf(() => weight.detach().fill_(1)),
    step: errorOf(() => optimizer.step()),
    compiled: errorOf(() => compile(() => void optimizer.step())()),
    other: errorOf(() => optimizer.setParameter(/** @type {any} */ (F.full([1], 0)), F.full([1], 0))),
    many: errorOf(() => optimizer.setParameter(weight, F.full([weight.size], 0), 1)),
    type: errorOf(() => optimizer.setParameter(weight, F.full([1], 0, { dtype: 'i32' }))),
  };
  optimizer.dispose();
  const [disposed, ofAlias] = [weight, alias].map((x) => errorOf(() => F.add(x, 1)));
  return { errors: { ...errors, ...more, disposed, ofAlias } };
}

/** The first element of each parameter after a step: rank 0 alone has a gradient of the last, which shares its bucket. @param {Way} way */
async function apart({ zero }) {
  const [a, b, c] = [8, 4, 4].map((size) => new nn.Linear(8, size, { bias: false }));
  for (const { weight } of [a, b, c]) noGrad(() => weight.fill_(0));
  class Pair extends nn.Module {
    b = b;
    c = c;
    /** @param {any} x */
    forward(x) {
      return rank === 0 ? F.add(b.forward(x), c.forward(x)) : b.forward(x);
    }
  }
  const pair = nn.fullyShard(new Pair());
  const groups = [{ params: [a.weight] }, { params: [b.weight, c.weight] }];
  const optimizer = new optim.SGD(groups, { lr: 1, processGroup: group, zero });
  const x = F.full([1, 8], 1);
  const y = pair.forward(a.forward(x).mul(0).add(1));
  F.add(y.sum(), a.forward(x).mul(100).sum()).backward();
  optimizer.step();
  const values = [];
  for (const { weight } of [a, b, c]) values.push((await weight.toArray())[0]);
  optimizer.dispose();
  return { values };
}

const results = [];
for (const way of ways) results.push(way.misuse ? misused(way) : way.apart ? await apart(way) : await trained(way));
say({ rank: launched().rank, results });
if (ways.some(({ dies }) => dies !== undefined)) process.exit(0);
await group.destroy();
