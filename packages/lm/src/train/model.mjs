/** The GPT, and the optimizer step that trains it, written with `helios-vk/nn`. */

import { F, accumulate, autocast, nn, optim } from 'helios-vk/nn';
import { NORM_EPSILON, halfOf } from './config.mjs';
/** @typedef {import('./config.mjs').ModelConfig} ModelConfig */
/** @typedef {import('helios-vk/nn').Tensor} Tensor */

/** @param {number} width */
const norm = (width) => new nn.RMSNorm(width, { eps: NORM_EPSILON });
/** @param {number} inputs @param {number} outputs */
const linear = (inputs, outputs) => new nn.Linear(inputs, outputs, { bias: false });

class Attention extends nn.Module {
  /** @param {ModelConfig} config */
  constructor({ width, heads }) {
    super();
    this.qkv = linear(width, 3 * width);
    this.output = linear(width, width);
    this.heads = heads;
  }
  /** @param {Tensor} x */
  forward(x) {
    return this.output.forward(F.attention(this.qkv.forward(x), { heads: this.heads, causal: true }));
  }
}

class Mlp extends nn.Module {
  /** @param {ModelConfig} config */
  constructor({ width, hidden }) {
    super();
    this.gate_up = linear(width, 2 * hidden);
    this.down = linear(hidden, width);
  }
  /** @param {Tensor} x */
  forward(x) {
    return this.down.forward(F.glu(this.gate_up.forward(x), 'silu'));
  }
}

class Block extends nn.Module {
  /** @param {ModelConfig} config */
  constructor(config) {
    super();
    this.attention_norm = norm(config.width);
    this.attention = new Attention(config);
    this.mlp_norm = norm(config.width);
    this.mlp = new Mlp(config);
  }
  /** @param {Tensor} x */
  forward(x) {
    x = x.add(this.attention.forward(this.attention_norm.forward(x)));
    return x.add(this.mlp.forward(this.mlp_norm.forward(x)));
  }
}

export class Gpt extends nn.Module {
  /** @param {ModelConfig} config */
  constructor(config) {
    super();
    this.config = config;
    this.token_embedding = new nn.Embedding(config.vocab, config.width);
    this.position_embedding = new nn.Embedding(config.block, config.width);
    this.layers = Array.from({ length: config.layers }, () => new Block(config));
    this.norm = norm(config.width);
    this.head = linear(config.width, config.vocab);
  }
  /** What the head reads. @param {Tensor} ids [batch, tokens], at most `block` tokens @returns {Tensor} [batch, tokens, width] */
  hidden(ids) {
    let x = this.token_embedding.forward(ids).add(this.position_embedding.weight.slice(0, 0, ids.shape[1]));
    for (const layer of this.layers) x = layer.forward(x);
    return this.norm.forward(x);
  }
  /** @param {Tensor} ids [batch, tokens] @returns {Tensor} logits [batch, tokens, vocab] */
  forward(ids) {
    return this.head.forward(this.hidden(ids));
  }
  /** The sum of all losses, in nats. @param {Tensor} ids [batch, tokens] @param {Tensor} targets of ids @param {number} rows of logits at once */
  loss(ids, targets, rows) {
    const [x, wanted] = [this.hidden(ids).flatten(0, 1), targets.flatten()].map((all) => all.split(rows));
    return x.map((part, i) => F.crossEntropy(this.head.forward(part), wanted[i], { reduction: 'sum' })).reduce((a, b) => a.add(b));
  }
}

/**
 * The optimizer of a model, and functions of batches, to be compiled.
 * @param {Gpt} model @param {import('./config.mjs').TrainingConfig} config @param {number} [rows] of logits at once; all of a micro-step when left out
 * @param {Pick<import('helios-vk/nn').optim.Options, 'processGroup' | 'zero' | 'reduce'>} [ranks] processes: call `gradients`, then `opt.step()`
 */
export function createTraining(model, config, rows = config.batch * model.config.block, ranks = {}) {
  const tokens = config.batch * model.config.block;
  const [vectors, matrices] = [true, false].map((flat) => model.parameters().filter(({ ndim }) => (ndim === 1) === flat));
  const opt = new optim.AdamW([{ params: matrices }, { params: vectors, weightDecay: 0 }], {
    lr: config.lr,
    betas: [config.beta1, config.beta2],
    eps: config.epsilon,
    weightDecay: config.weightDecay,
    clip: config.clip,
    // The gradients are of the sum of losses: of the mean, they would be too small for f16.
    gradientScale: 1 / tokens,
    schedule: { warmup: config.warmup, total: config.steps, finalLr: config.minLr },
    ...ranks,
  });
  /** The sum of losses. @param {Tensor} flat u32: the ids, then the targets, of whole sequences */
  const loss = (flat) => {
    const [ids, targets] = [0, 1].map((i) => flat.reshape(2, -1, model.config.block).at(i));
    return autocast(halfOf(config.precision), () => model.loss(ids, targets, rows));
  };
  /** Computes the gradients of an optimizer step, times `tokens`. @param {Tensor} flat ids and targets of each micro-step @returns {Tensor} the mean loss */
  const gradients = (flat) => {
    const batch = flat.reshape(config.microSteps, -1);
    return accumulate(config.microSteps, (i) => loss(batch.at(i))).mul(1 / tokens);
  };
  /** One optimizer step. @param {Tensor} flat as for `gradients` @returns {Tensor} the mean loss before the step */
  const step = (flat) => {
    const mean = gradients(flat);
    opt.step();
    return mean;
  };
  return { opt, loss, gradients, step };
}
