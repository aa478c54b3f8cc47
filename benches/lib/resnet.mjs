// ResNet-18 for images of 32 × 32, and its training step.

import { F, autocast, compile, nn, optim, randn, tensor } from '../../nn/index.mjs';

import { Unit } from './networks.mjs';

/** @typedef {import('../../nn/index.mjs').Tensor} Tensor */

class Block extends nn.Module {
  /** @param {number} inputs @param {number} outputs @param {number} stride */
  constructor(inputs, outputs, stride) {
    super();
    this.first = new Unit(inputs, outputs, 3, stride);
    this.second = new Unit(outputs, outputs, 3, 1);
    if (stride !== 1) this.short = new Unit(inputs, outputs, 1, stride);
  }
  /** @param {Tensor} x */
  forward(x) {
    return F.relu(this.second.forward(F.relu(this.first.forward(x))).add(this.short ? this.short.forward(x) : x));
  }
}

/** ResNet-18 (He et al. 2015) for images of 32 × 32, ten classes. */
class ResNet18 extends nn.Module {
  constructor() {
    super();
    this.stem = new Unit(3, 64, 3, 1);
    const widths = [64, 64, 64, 128, 128, 256, 256, 512, 512];
    this.blocks = new nn.Sequential(...widths.slice(1).map((n, i) => new Block(widths[i], n, n === widths[i] ? 1 : 2)));
    this.head = new nn.Linear(512, 10);
  }
  /** @param {Tensor} x */
  forward(x) {
    return this.head.forward(F.mean(this.blocks.forward(F.relu(this.stem.forward(x))), [2, 3]));
  }
}

/** The training step of ResNet-18, compiled. @param {string} precision */
export function trainingStep(precision) {
  const model = new ResNet18();
  const optimizer = new optim.SGD(model.parameters(), { lr: 0.01, momentum: 0.9 });
  return compile((/** @type {Tensor} */ images, /** @type {Tensor} */ labels) => {
    const loss = autocast(/** @type {'bf16' | false} */ (precision === 'f32' ? false : precision), () =>
      F.crossEntropy(model.forward(images), labels),
    );
    loss.backward();
    optimizer.step();
    return loss;
  });
}

/** Images and labels. @param {number} batch */
export const imagesOf = (batch) => ({
  images: randn([batch, 3, 32, 32]),
  labels: tensor(
    Int32Array.from({ length: batch }, (_, i) => i % 10),
    { dtype: 'i32' },
  ),
});
