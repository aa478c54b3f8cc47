/**
 * The GPT of model.mjs, written with `helios-vk/nn`: the same parameters by the same names, the same losses.
 */

import { F, accumulate, autocast, compile, nn, optim, tensor } from '../../nn/index.mjs';
import { NORM_EPSILON, parameterTable } from './config.mjs';

/** @typedef {import('./config.mjs').GptConfig} GptConfig */
/** @typedef {import('../../nn/tensor.mjs').Tensor} Tensor */

/** @param {number} width */
const norm = (width) => new nn.RMSNorm(width, { eps: NORM_EPSILON });
/** @param {number} inputs @param {number} outputs */
const linear = (inputs, outputs) => new nn.Linear(inputs, outputs, { bias: false });

class Attention extends nn.Module {
  /** @param {GptConfig} config */
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
  /** @param {GptConfig} config */
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
  /** @param {GptConfig} config */
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
  /** @param {GptConfig} config */
  constructor(config) {
    super();
    this.token_embedding = new nn.Embedding(config.vocab, config.width);
    this.position_embedding = new nn.Embedding(config.block, config.width);
    this.layers = Array.from({ length: config.layers }, () => new Block(config));
    this.norm = norm(config.width);
    this.head = linear(config.width, config.vocab);
  }
  /** @param {Tensor} ids [batch, tokens], at most `block` tokens @returns {Tensor} logits [batch, tokens, vocab] */
  forward(ids) {
    let x = this.token_embedding.forward(ids).add(this.position_embedding.weight.slice(0, 0, ids.shape[1]));
    for (const layer of this.layers) x = layer.forward(x);
    return this.head.forward(this.norm.forward(x));
  }

  /** Weights of a flat array (see `parameterTable`). @param {GptConfig} config @param {Float32Array} weights */
  load(config, weights) {
    const state = parameterTable(config).parameters.map(({ name, shape, offset, size }) => {
      return /** @type {const} */ ([name, tensor(weights.subarray(offset, offset + size), { shape })]);
    });
    this.loadStateDict(Object.fromEntries(state));
    for (const [, values] of state) values.dispose();
  }
}

/**
 * A model and its training step.
 * @param {GptConfig} config `bf16x3` is not there
 * @param {{ weights?: Float32Array, compiled?: boolean, model?: Gpt }} [options] `weights`: a flat array; random ones when left out
 */
export function createTraining(config, { weights, compiled = true, model = new Gpt(config) } = {}) {
  if (weights) model.load(config, weights);
  const matrices = model.parameters().filter(({ ndim }) => ndim > 1);
  const vectors = model.parameters().filter(({ ndim }) => ndim === 1);
  const opt = new optim.AdamW([{ params: matrices }, { params: vectors, weightDecay: 0 }], {
    lr: config.lr,
    betas: [config.beta1, config.beta2],
    eps: config.epsilon,
    weightDecay: config.weightDecay,
    clip: config.clip,
    // Gradients are those of sums of losses: divided by the tokens before, they would be too small for f16.
    gradientScale: 1 / (config.batch * config.block),
    schedule: { warmup: config.warmup, total: config.steps, finalLr: config.minLr },
  });
  const precision = config.precision === 'f32' ? false : /** @type {'f16' | 'bf16'} */ (config.precision);
  const shape = [config.microSteps, 2, config.batch, config.block];
  /** One optimizer step. @param {Tensor} flat u32 ids and targets of each micro-step; compiled, a typed array too @returns {Tensor} the mean loss */
  const step = (flat) => {
    const batch = flat.reshape(...shape);
    const loss = accumulate(config.microSteps, (i) =>
      autocast(precision, () => F.crossEntropy(model.forward(batch.at(i).at(0)), batch.at(i).at(1), { reduction: 'sum' })),
    );
    opt.step();
    return loss.mul(1 / (config.batch * config.block));
  };
  return { model, opt, step: /** @type {any} */ (compiled ? compile(step) : step) };
}
