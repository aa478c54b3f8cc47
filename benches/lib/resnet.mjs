// ResNet-18 for images of 32 × 32, and its training step.

import { F, autocast, compile, nn, optim } from 'helios-vk/nn';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** @typedef {'kernels' | 'windows'} Way how convolutions are computed */

/**
 * A convolution as it was computed before it had kernels: windows are copied, and multiplied.
 * @param {Tensor} x @param {Tensor} weight @param {{ stride?: number, padding?: number }} how
 */
function byWindows(x, weight, { stride = 1, padding = 0 }) {
  for (const d of padding ? [2, 3] : []) {
    const zeros = F.zeros(x.shape.with(d, padding), { dtype: x.dtype });
    x = F.cat([zeros, x, zeros], d);
  }
  const [outputs, channels, window] = weight.shape;
  const size = Math.floor((x.shape[2] - window) / stride) + 1;
  const reach = (size - 1) * stride + 1;
  const parts = Array.from({ length: window * window }, (_, k) => {
    const [a, b] = [Math.floor(k / window), k % window];
    return F.slice(F.slice(x, 2, a, a + reach, stride), 3, b, b + reach, stride);
  });
  const [batch, inner] = [x.shape[0], channels * window * window];
  const y = F.matmul(F.reshape(weight, [outputs, inner]), F.reshape(F.stack(parts, 2), [batch, inner, size * size]));
  return F.reshape(y, [batch, outputs, size, size]);
}

/** @param {Way} way @returns {(x: Tensor, weight: Tensor, how: { stride?: number, padding?: number }) => Tensor} */
export const convolutionBy = (way) => (way === 'windows' ? byWindows : (x, weight, how) => F.conv2d(x, weight, undefined, how));

/** @template T @param {string} precision @param {() => T} f @returns {T} */
export const under = (precision, f) => (precision === 'f32' ? f() : autocast(/** @type {'bf16'} */ (precision), f));

class Unit extends nn.Module {
  /** @param {Way} way @param {number} inputs @param {number} outputs @param {number} window @param {number} stride */
  constructor(way, inputs, outputs, window, stride) {
    super();
    this.conv = new nn.Conv2d(inputs, outputs, window, { stride, padding: (window - 1) / 2, bias: false });
    this.norm = new nn.BatchNorm2d(outputs);
    this.how = { stride, padding: (window - 1) / 2 };
    this.way = way;
  }
  /** @param {Tensor} x */
  forward(x) {
    return this.norm.forward(convolutionBy(this.way)(x, this.conv.weight, this.how));
  }
}

class Block extends nn.Module {
  /** @param {Way} way @param {number} inputs @param {number} outputs @param {number} stride */
  constructor(way, inputs, outputs, stride) {
    super();
    this.first = new Unit(way, inputs, outputs, 3, stride);
    this.second = new Unit(way, outputs, outputs, 3, 1);
    if (stride !== 1) this.short = new Unit(way, inputs, outputs, 1, stride);
  }
  /** @param {Tensor} x */
  forward(x) {
    return F.relu(this.second.forward(F.relu(this.first.forward(x))).add(this.short ? this.short.forward(x) : x));
  }
}

/** ResNet-18 (He et al. 2015) for images of 32 × 32, ten classes. */
class ResNet18 extends nn.Module {
  /** @param {Way} way */
  constructor(way) {
    super();
    this.stem = new Unit(way, 3, 64, 3, 1);
    const widths = [64, 64, 64, 128, 128, 256, 256, 512, 512];
    this.blocks = new nn.Sequential(...widths.slice(1).map((n, i) => new Block(way, widths[i], n, n === widths[i] ? 1 : 2)));
    this.head = new nn.Linear(512, 10);
  }
  /** @param {Tensor} x */
  forward(x) {
    return this.head.forward(F.mean(this.blocks.forward(F.relu(this.stem.forward(x))), [2, 3]));
  }
}

/** The training step of ResNet-18, compiled. @param {Way} way @param {string} precision */
export function trainingStep(way, precision) {
  const model = new ResNet18(way);
  const optimizer = new optim.SGD(model.parameters(), { lr: 0.01, momentum: 0.9 });
  return compile((/** @type {Tensor} */ images, /** @type {Tensor} */ labels) => {
    const loss = under(precision, () => F.crossEntropy(model.forward(images), labels));
    loss.backward();
    optimizer.step();
    return loss;
  });
}
