/**
 * Models for the benches of `helios-vk/nn`. benches/pytorch/models.py has the same models, with the same names of parameters, batches and AdamW.
 */

import { F, autocast, compile, manualSeed, nn, optim, tensor } from '../../nn/index.mjs';
import { Bert, ConvNeXt, LstmModel, ResNet, UNet } from './networks.mjs';

/** @typedef {import('../../nn/api/tensor.mjs').Tensor} Tensor */
/** @typedef {import('../../nn/modules/module.mjs').Module & { loss: (x: Tensor, t: Tensor) => Tensor }} Model */

/** Numbers of the batch: uniform in [-1, 1), from a multiplicative hash of the index. @param {number} count */
const numbers = (count) => Float32Array.from({ length: count }, (_, i) => (Math.imul(i + 1, 0x9e3779b1) >>> 8) / 2 ** 23 - 1);
/** Class numbers of the batch. @param {number} count @param {number} classes */
const labels = (count, classes) => Int32Array.from({ length: count }, (_, i) => (Math.imul(i + 7, 0x85ebca6b) >>> 8) % classes);

/** A perceptron of three layers. @implements {Model} */
class Mlp extends nn.Module {
  /** @param {{ inputs: number, width: number, classes: number }} sizes */
  constructor({ inputs, width, classes }) {
    super();
    this.first = new nn.Linear(inputs, width);
    this.second = new nn.Linear(width, width);
    this.third = new nn.Linear(width, classes);
  }
  /** @param {Tensor} x [batch, inputs] @param {Tensor} t [batch] */
  loss(x, t) {
    const hidden = F.gelu(this.second.forward(F.gelu(this.first.forward(x))));
    return F.crossEntropy(this.third.forward(hidden), t);
  }
}

/** A character model of gated recurrent units. @implements {Model} */
class Gru extends nn.Module {
  /** @param {{ letters: number, width: number, hidden: number, layers?: number }} sizes */
  constructor({ letters, width, hidden, layers = 1 }) {
    super();
    this.embedding = new nn.Embedding(letters, width);
    this.gru = new nn.GRU(width, hidden, { numLayers: layers });
    this.head = new nn.Linear(hidden, letters);
  }
  /** @param {Tensor} x [batch, steps] @param {Tensor} t [batch, steps] */
  loss(x, t) {
    return F.crossEntropy(this.head.forward(this.gru.forward(this.embedding.forward(x))[0]), t);
  }
}

/** A regression with one hidden layer: examples/nn-regression.mjs. @implements {Model} */
class Regression extends nn.Module {
  /** @param {{ inputs: number, hidden: number }} sizes */
  constructor({ inputs, hidden }) {
    super();
    this.first = new nn.Linear(inputs, hidden);
    this.second = new nn.Linear(hidden, 1);
  }
  /** @param {Tensor} x [batch, inputs] @param {Tensor} t [batch, 1] */
  loss(x, t) {
    return F.mseLoss(F.to(this.second.forward(F.gelu(this.first.forward(x))), 'f32'), t);
  }
}

class Block extends nn.Module {
  /** @param {number} width @param {number} heads @param {boolean} [causal] */
  constructor(width, heads, causal = false) {
    super();
    this.norm1 = new nn.LayerNorm(width);
    this.attention = new nn.MultiHeadAttention(width, heads, { bias: true, causal });
    this.norm2 = new nn.LayerNorm(width);
    this.mlp = new nn.MLP(width, 4 * width);
  }
  /** @param {Tensor} x */
  forward(x) {
    x = x.add(this.attention.forward(this.norm1.forward(x)));
    return x.add(this.mlp.forward(this.norm2.forward(x)));
  }
}

/** A vision transformer (Dosovitskiy et al. 2021) with the mean of all patches in place of a class token. @implements {Model} */
class Vit extends nn.Module {
  /** @param {{ size: number, patch: number, width: number, heads: number, layers: number, classes: number }} sizes */
  constructor({ size, patch, width, heads, layers, classes }) {
    super();
    this.grid = size / patch;
    this.patch = patch;
    this.patches = new nn.Linear(3 * patch * patch, width);
    this.positions = new nn.Embedding(this.grid * this.grid, width);
    this.blocks = Array.from({ length: layers }, () => new Block(width, heads));
    this.norm = new nn.LayerNorm(width);
    this.head = new nn.Linear(width, classes);
  }
  /** @param {Tensor} x images [batch, 3, size, size] @param {Tensor} t [batch] */
  loss(x, t) {
    const { grid, patch } = this;
    const cut = x.reshape(-1, 3, grid, patch, grid, patch).permute(0, 2, 4, 1, 3, 5);
    let h = this.patches.forward(cut.reshape(x.shape[0], grid * grid, 3 * patch * patch)).add(this.positions.weight);
    for (const block of this.blocks) h = block.forward(h);
    return F.crossEntropy(this.head.forward(this.norm.forward(h).mean(1)), t);
  }
}

/** A character model of transformer blocks, with learned positions. @implements {Model} */
class Gpt extends nn.Module {
  /** @param {{ letters: number, block: number, width: number, heads: number, layers: number }} sizes */
  constructor({ letters, block, width, heads, layers }) {
    super();
    this.embedding = new nn.Embedding(letters, width);
    this.positions = new nn.Embedding(block, width);
    this.blocks = Array.from({ length: layers }, () => new Block(width, heads, true));
    this.norm = new nn.LayerNorm(width);
    this.head = new nn.Linear(width, letters, { bias: false });
  }
  /** @param {Tensor} x [batch, block] @param {Tensor} t [batch, block] */
  loss(x, t) {
    let h = this.embedding.forward(x).add(this.positions.weight);
    for (const block of this.blocks) h = block.forward(h);
    return F.crossEntropy(this.head.forward(this.norm.forward(h)), t);
  }
}

/** Images and their classes. @param {{ batch: number, size: number, classes: number }} sizes @returns {[Float32Array, number[], Int32Array, number[]]} */
const images = ({ batch, size, classes }) => [numbers(batch * 3 * size * size), [batch, 3, size, size], labels(batch, classes), [batch]];

/** Ids and the ids that follow them. @param {number} batch @param {number} steps @param {number} letters @returns {[Int32Array, number[], Int32Array, number[]]} */
function text(batch, steps, letters) {
  const ids = labels(batch * (steps + 1), letters);
  const shape = [batch, steps];
  return [ids.slice(0, batch * steps), shape, ids.slice(1, batch * steps + 1), shape];
}

/**
 * The models: their sizes on a GPU, and small ones for CPU devices and tests.
 * @type {Record<string, { sizes: any, small: any, make: (sizes: any) => Model, batch: (sizes: any) => [ArrayBufferView, number[], ArrayBufferView, number[]] }>}
 */
export const MODELS = {
  mlp: {
    sizes: { batch: 256, inputs: 784, width: 2048, classes: 10 },
    small: { batch: 16, inputs: 32, width: 64, classes: 10 },
    make: (sizes) => new Mlp(sizes),
    batch: ({ batch, inputs, classes }) => [numbers(batch * inputs), [batch, inputs], labels(batch, classes), [batch]],
  },
  gru: {
    sizes: { batch: 32, steps: 64, letters: 96, width: 128, hidden: 512 },
    small: { batch: 4, steps: 5, letters: 20, width: 16, hidden: 24 },
    make: (sizes) => new Gru(sizes),
    batch: ({ batch, steps, letters }) => text(batch, steps, letters),
  },
  // Those of which launches, not arithmetic, take the time on a GPU.
  tiny: {
    sizes: { batch: 256, inputs: 8, hidden: 64 },
    small: { batch: 16, inputs: 8, hidden: 16 },
    make: (sizes) => new Regression(sizes),
    batch: ({ batch, inputs }) => [numbers(batch * inputs), [batch, inputs], numbers(batch), [batch, 1]],
  },
  digits: {
    sizes: { batch: 64, inputs: 784, width: 512, classes: 10 },
    small: { batch: 8, inputs: 32, width: 32, classes: 10 },
    make: (sizes) => new Mlp(sizes),
    batch: ({ batch, inputs, classes }) => [numbers(batch * inputs), [batch, inputs], labels(batch, classes), [batch]],
  },
  gru2: {
    sizes: { batch: 32, steps: 64, letters: 96, width: 256, hidden: 256, layers: 2 },
    small: { batch: 4, steps: 3, letters: 20, width: 16, hidden: 16, layers: 2 },
    make: (sizes) => new Gru(sizes),
    batch: ({ batch, steps, letters }) => text(batch, steps, letters),
  },
  gpt: {
    sizes: { batch: 1, letters: 96, block: 256, width: 384, heads: 6, layers: 6 },
    small: { batch: 1, letters: 20, block: 8, width: 32, heads: 2, layers: 2 },
    make: (sizes) => new Gpt(sizes),
    batch: ({ batch, block, letters }) => text(batch, block, letters),
  },
  // ViT-S/16 of Touvron et al. 2021.
  vit: {
    sizes: { batch: 64, size: 224, patch: 16, width: 384, heads: 6, layers: 12, classes: 1000 },
    small: { batch: 2, size: 16, patch: 4, width: 64, heads: 2, layers: 2, classes: 10 },
    make: (sizes) => new Vit(sizes),
    batch: images,
  },
  resnet50: {
    sizes: { batch: 64, size: 224, layers: [3, 4, 6, 3], width: 64, classes: 1000 },
    small: { batch: 2, size: 32, layers: [1, 1], width: 8, classes: 10 },
    make: (sizes) => new ResNet(sizes),
    batch: images,
  },
  // 28.3M parameters.
  unet: {
    sizes: { batch: 32, size: 64, width: 128, levels: [1, 1, 2, 2], attention: [2], steps: 1000 },
    small: { batch: 1, size: 16, width: 64, levels: [1, 1], attention: [1], steps: 10 },
    make: (sizes) => new UNet(sizes),
    batch: ({ batch, size, steps }) => images({ batch, size, classes: steps }),
  },
  convnext: {
    sizes: { batch: 64, size: 224, layers: [3, 3, 9, 3], widths: [96, 192, 384, 768], classes: 1000 },
    small: { batch: 2, size: 32, layers: [1, 1], widths: [16, 32], classes: 10 },
    make: (sizes) => new ConvNeXt(sizes),
    batch: images,
  },
  lstm: {
    sizes: { batch: 64, steps: 70, words: 10_000, width: 650 },
    small: { batch: 2, steps: 5, words: 30, width: 24 },
    make: (sizes) => new LstmModel(sizes),
    batch: ({ batch, steps, words }) => text(batch, steps, words),
  },
  bert: {
    sizes: { batch: 32, length: 128, words: 30_522, width: 768, heads: 12, layers: 12 },
    small: { batch: 2, length: 16, words: 50, width: 64, heads: 2, layers: 2 },
    make: (sizes) => new Bert(sizes),
    // Every seventh word is masked, as of BERT's 15 %.
    batch: ({ batch, length, words }) => {
      const [ids, shape, next] = text(batch, length, words);
      return [ids, shape, next.map((id, i) => (i % 7 ? -100 : id)), shape];
    },
  },
};

/** AdamW's learning rate. Its other options are PyTorch's defaults. */
export const LEARNING_RATE = 1e-3;

/**
 * A model, its batch on the device, and a compiled training step.
 * @param {string} name of `MODELS` @param {any} sizes @param {'f32' | 'bf16'} precision of products; parameters are f32
 */
export function training(name, sizes, precision) {
  manualSeed(3);
  const model = MODELS[name].make(sizes);
  const opt = new optim.AdamW(model.parameters(), { lr: LEARNING_RATE });
  const [values, shape, targets, targetShape] = MODELS[name].batch(sizes);
  const batch = { x: tensor(/** @type {any} */ (values), { shape }), t: tensor(/** @type {any} */ (targets), { shape: targetShape }) };
  const step = compile((/** @type {Tensor} */ x, /** @type {Tensor} */ t) => {
    const loss = autocast(precision === 'f32' ? false : precision, () => model.loss(x, t));
    loss.backward();
    opt.step();
    return loss;
  });
  return {
    model,
    batch,
    compiled: step,
    step: () => step(batch.x, batch.t),
    dispatches: () => {
      step.prepare(batch.x, batch.t);
      return step.explain()[0].dispatches;
    },
    dispose: () => {
      step.dispose();
      opt.dispose();
      model.dispose();
      batch.x.dispose();
      batch.t.dispose();
    },
  };
}
