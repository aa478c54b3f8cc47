/**
 * Networks as they are published, for `models.mjs`: benches/pytorch/networks.py has the same, with the same names of parameters. None drops
 * out, so that losses can be compared.
 */

import { F, nn, noGrad } from '../../nn/index.mjs';

/** @typedef {import('../../nn/api/tensor.mjs').Tensor} Tensor */

/** A convolution without bias and its batch norm. */
export class Unit extends nn.Module {
  /** @param {number} inputs @param {number} outputs @param {number} window @param {number} stride */
  constructor(inputs, outputs, window, stride) {
    super();
    this.conv = new nn.Conv2d(inputs, outputs, window, { stride, padding: (window - 1) / 2, bias: false });
    this.norm = new nn.BatchNorm2d(outputs);
  }
  /** @param {Tensor} x */
  forward(x) {
    return this.norm.forward(this.conv.forward(x));
  }
}

class Bottleneck extends nn.Module {
  /** @param {number} inputs @param {number} width @param {number} stride */
  constructor(inputs, width, stride) {
    super();
    this.first = new Unit(inputs, width, 1, 1);
    this.second = new Unit(width, width, 3, stride);
    this.third = new Unit(width, 4 * width, 1, 1);
    if (inputs !== 4 * width) this.short = new Unit(inputs, 4 * width, 1, stride);
  }
  /** @param {Tensor} x */
  forward(x) {
    const y = this.third.forward(F.relu(this.second.forward(F.relu(this.first.forward(x)))));
    return F.relu(y.add(this.short ? this.short.forward(x) : x));
  }
}

/** ResNet of bottlenecks (He et al. 2015; strides in the 3 × 3 convolutions, as torchvision has them). `layers` [3, 4, 6, 3] is ResNet-50. */
export class ResNet extends nn.Module {
  /** @param {{ layers: number[], width: number, classes: number }} sizes */
  constructor({ layers, width, classes }) {
    super();
    this.stem = new Unit(3, width, 7, 2);
    let inputs = width;
    const blocks = layers.flatMap((count, stage) =>
      Array.from({ length: count }, (_, i) => {
        const block = new Bottleneck(inputs, width << stage, stage > 0 && i === 0 ? 2 : 1);
        inputs = 4 * (width << stage);
        return block;
      }),
    );
    this.blocks = new nn.Sequential(...blocks);
    this.head = new nn.Linear(inputs, classes);
  }
  /** @param {Tensor} x images [batch, 3, size, size] @param {Tensor} t [batch] */
  loss(x, t) {
    const h = F.maxPool2d(F.relu(this.stem.forward(x)), 3, { stride: 2, padding: 1 });
    return F.crossEntropy(this.head.forward(F.mean(this.blocks.forward(h), [2, 3])), t);
  }
}

/** Two convolutions with group norm and SiLU, a number for the step between them, and the way past them. */
class Residual extends nn.Module {
  /** @param {number} inputs @param {number} outputs @param {number} steps width of the steps' embedding */
  constructor(inputs, outputs, steps) {
    super();
    this.norm1 = new nn.GroupNorm(32, inputs);
    this.conv1 = new nn.Conv2d(inputs, outputs, 3, { padding: 1 });
    this.step = new nn.Linear(steps, outputs);
    this.norm2 = new nn.GroupNorm(32, outputs);
    this.conv2 = new nn.Conv2d(outputs, outputs, 3, { padding: 1 });
    if (inputs !== outputs) this.short = new nn.Conv2d(inputs, outputs, 1);
  }
  /** @param {Tensor} x @param {Tensor} step [batch, steps] */
  forward(x, step) {
    const h = this.conv1.forward(F.silu(this.norm1.forward(x)));
    const shifted = h.add(this.step.forward(step).unsqueeze(-1).unsqueeze(-1));
    const y = this.conv2.forward(F.silu(this.norm2.forward(shifted)));
    return y.add(this.short ? this.short.forward(x) : x);
  }
}

/** Attention of one head between all places of an image. */
class Places extends nn.Module {
  /** @param {number} channels */
  constructor(channels) {
    super();
    this.norm = new nn.GroupNorm(32, channels);
    this.qkv = new nn.Linear(channels, 3 * channels);
    this.out = new nn.Linear(channels, channels);
  }
  /** @param {Tensor} x [batch, channels, height, width] */
  forward(x) {
    const [batch, channels, height, width] = x.shape;
    const rows = this.norm
      .forward(x)
      .reshape(batch, channels, height * width)
      .transpose(1, 2);
    const [q, k, v] = this.qkv
      .forward(rows)
      .reshape(batch, height * width, 3, channels / 64, 64)
      .permute(2, 0, 3, 1, 4)
      .unbind(0);
    const mixed = F.scaledDotProductAttention(q, k, v)
      .transpose(1, 2)
      .reshape(batch, height * width, channels);
    return x.add(this.out.forward(mixed).transpose(1, 2).reshape(batch, channels, height, width));
  }
}

/**
 * The U-Net of Ho et al. (2020): two residual blocks a level, attention in the levels that `attention` names. Its loss is the mean squared
 * difference of its result and the images.
 */
export class UNet extends nn.Module {
  /** @param {{ width: number, levels: number[], attention: number[], steps: number }} sizes */
  constructor({ width, levels, attention, steps }) {
    super();
    const inner = 4 * width;
    this.embedding = new nn.Embedding(steps, width);
    this.hidden = new nn.Linear(width, inner);
    this.stem = new nn.Conv2d(3, width, 3, { padding: 1 });
    const [skips, down] = [[width], /** @type {nn.Module[]} */ ([])];
    let channels = width;
    /** @param {number} outputs @param {number} level @param {number} [more] channels that come from the way down */
    const block = (outputs, level, more = 0) => {
      const parts = [new Residual(channels + more, outputs, inner), ...(attention.includes(level) ? [new Places(outputs)] : [])];
      channels = outputs;
      return new nn.ModuleList(parts);
    };
    for (const [level, factor] of levels.entries()) {
      for (let i = 0; i < 2; i++) {
        down.push(block(factor * width, level));
        skips.push(channels);
      }
      if (level + 1 < levels.length) {
        down.push(new nn.Conv2d(channels, channels, 3, { stride: 2, padding: 1 }));
        skips.push(channels);
      }
    }
    this.down = new nn.ModuleList(down);
    this.middle = new nn.ModuleList([
      new Residual(channels, channels, inner),
      new Places(channels),
      new Residual(channels, channels, inner),
    ]);
    const up = [];
    for (const [level, factor] of [...levels.entries()].reverse()) {
      for (let i = 0; i < 3; i++) up.push(block(factor * width, level, /** @type {number} */ (skips.pop())));
      if (level > 0) up.push(new nn.Conv2d(channels, channels, 3, { padding: 1 }));
    }
    this.up = new nn.ModuleList(up);
    this.norm = new nn.GroupNorm(32, channels);
    this.head = new nn.Conv2d(channels, 3, 3, { padding: 1 });
  }
  /** @param {Iterable<any>} parts of a block @param {Tensor} h @param {Tensor} step */
  run(parts, h, step) {
    for (const part of parts) h = part.forward(h, step);
    return h;
  }
  /** @param {Tensor} x images [batch, 3, size, size] @param {Tensor} t steps [batch] */
  loss(x, t) {
    const step = F.silu(this.hidden.forward(this.embedding.forward(t)));
    let h = this.stem.forward(x);
    const skips = [h];
    for (const part of this.down) {
      h = part instanceof nn.ModuleList ? this.run(part, h, step) : part.forward(h);
      skips.push(h);
    }
    h = this.run(this.middle, h, step);
    for (const part of this.up) {
      if (part instanceof nn.ModuleList) h = this.run(part, F.cat([h, /** @type {Tensor} */ (skips.pop())], 1), step);
      else h = part.forward(F.interpolate(h, { scaleFactor: 2, mode: 'nearest' }));
    }
    return F.mseLoss(this.head.forward(F.silu(this.norm.forward(h))).to('f32'), x);
  }
}

/** Layer norm of the channels, which are not the last dimension. */
class ChannelNorm extends nn.LayerNorm {
  /** @param {Tensor} x [batch, channels, height, width] */
  forward(x) {
    return super.forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2);
  }
}

class ConvNeXtBlock extends nn.Module {
  /** @param {number} width */
  constructor(width) {
    super();
    this.conv = new nn.Conv2d(width, width, 7, { padding: 3, groups: width });
    this.norm = new nn.LayerNorm(width, { eps: 1e-6 });
    this.up = new nn.Linear(width, 4 * width);
    this.down = new nn.Linear(4 * width, width);
    this.scale = new nn.Parameter(F.full([width], 1e-6));
  }
  /** @param {Tensor} x */
  forward(x) {
    const rows = this.norm.forward(this.conv.forward(x).permute(0, 2, 3, 1));
    const y = this.down.forward(F.gelu(this.up.forward(rows), { approximate: 'none' }));
    return x.add(y.mul(this.scale).permute(0, 3, 1, 2));
  }
}

/** ConvNeXt (Liu et al. 2022); `layers` [3, 3, 9, 3] of widths [96, 192, 384, 768] is ConvNeXt-T. */
export class ConvNeXt extends nn.Module {
  /** @param {{ layers: number[], widths: number[], classes: number }} sizes */
  constructor({ layers, widths, classes }) {
    super();
    const parts = layers.flatMap((count, stage) => {
      const width = widths[stage];
      const before = stage > 0 ? widths[stage - 1] : 0;
      const patch = stage > 0 ? 2 : 4;
      const conv = new nn.Conv2d(before || 3, width, patch, { stride: patch });
      const entry = stage > 0 ? [new ChannelNorm(before, { eps: 1e-6 }), conv] : [conv, new ChannelNorm(width, { eps: 1e-6 })];
      return [...entry, ...Array.from({ length: count }, () => new ConvNeXtBlock(width))];
    });
    this.parts = new nn.Sequential(...parts);
    const last = /** @type {number} */ (widths.at(-1));
    this.norm = new nn.LayerNorm(last, { eps: 1e-6 });
    this.head = new nn.Linear(last, classes);
  }
  /** @param {Tensor} x images [batch, 3, size, size] @param {Tensor} t [batch] */
  loss(x, t) {
    return F.crossEntropy(this.head.forward(this.norm.forward(F.mean(this.parts.forward(x), [2, 3]))), t);
  }
}

/** The language model of Zaremba et al. (2014), by two layers of LSTM. */
export class LstmModel extends nn.Module {
  /** @param {{ words: number, width: number }} sizes */
  constructor({ words, width }) {
    super();
    this.embedding = new nn.Embedding(words, width);
    this.lstm = new nn.LSTM(width, width, { numLayers: 2 });
    this.head = new nn.Linear(width, words);
  }
  /** @param {Tensor} x [batch, steps] @param {Tensor} t [batch, steps] */
  loss(x, t) {
    return F.crossEntropy(this.head.forward(this.lstm.forward(this.embedding.forward(x))[0]), t);
  }
}

class BertLayer extends nn.Module {
  /** @param {number} width @param {number} heads */
  constructor(width, heads) {
    super();
    this.heads = heads;
    this.query = new nn.Linear(width, width);
    this.key = new nn.Linear(width, width);
    this.value = new nn.Linear(width, width);
    this.out = new nn.Linear(width, width);
    this.norm1 = new nn.LayerNorm(width, { eps: 1e-12 });
    this.up = new nn.Linear(width, 4 * width);
    this.down = new nn.Linear(4 * width, width);
    this.norm2 = new nn.LayerNorm(width, { eps: 1e-12 });
  }
  /** @param {Tensor} x [batch, length, width] */
  forward(x) {
    const [batch, length, width] = x.shape;
    const [q, k, v] = [this.query, this.key, this.value].map((part) =>
      part
        .forward(x)
        .reshape(batch, length, this.heads, width / this.heads)
        .transpose(1, 2),
    );
    const mixed = F.scaledDotProductAttention(q, k, v).transpose(1, 2).reshape(batch, length, width);
    const h = this.norm1.forward(x.add(this.out.forward(mixed)));
    return this.norm2.forward(h.add(this.down.forward(F.gelu(this.up.forward(h), { approximate: 'none' }))));
  }
}

/** BERT with the head that names masked words (Devlin et al. 2018), tied to the embedding. */
export class Bert extends nn.Module {
  /** @param {{ length: number, words: number, width: number, heads: number, layers: number }} sizes */
  constructor({ length, words, width, heads, layers }) {
    super();
    this.words = new nn.Embedding(words, width);
    this.positions = new nn.Embedding(length, width);
    // BERT's own spread: the loss of a tied head with a spread of 1 would be far from that of a guess.
    for (const table of [this.words, this.positions]) noGrad(() => nn.init.normal(table.weight, 0, 0.02));
    this.norm = new nn.LayerNorm(width, { eps: 1e-12 });
    this.layers = new nn.ModuleList(Array.from({ length: layers }, () => new BertLayer(width, heads)));
    this.transform = new nn.Linear(width, width);
    this.norm2 = new nn.LayerNorm(width, { eps: 1e-12 });
    this.bias = new nn.Parameter(F.zeros([words]));
  }
  /** @param {Tensor} x [batch, length] @param {Tensor} t [batch, length], -100 where no word is masked */
  loss(x, t) {
    let h = this.norm.forward(this.words.forward(x).add(this.positions.weight));
    for (const layer of this.layers) h = layer.forward(h);
    h = this.norm2.forward(F.gelu(this.transform.forward(h), { approximate: 'none' }));
    return F.crossEntropy(F.linear(h, this.words.weight, this.bias), t, { ignoreIndex: -100, meanOf: 'kept' });
  }
}
