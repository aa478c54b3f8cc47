// A vision transformer (Dosovitskiy et al. 2021): where on a noisy image is the dark spot, seen from the bright one? Each spot
// is in a patch of its own, so the answer is in no patch: attention has to bring them together.
//
//   node examples/nn-vit.mjs [steps]

import { F, compile, nn, noGrad, optim, scope, tensor } from 'helios-vk/nn';

const steps = Number(process.argv[2] ?? 120);
const [BATCH, SIZE, PATCH, WIDTH] = [64, 12, 4, 64];
const GRID = SIZE / PATCH;
const CLASSES = ['above left', 'above right', 'below left', 'below right'];

// Random numbers from a seed (mulberry32), so that every run is the same.
let state = 11;
function random() {
  state = (state + 0x6d2b79f5) | 0;
  let z = Math.imul(state ^ (state >>> 15), state | 1);
  z ^= z + Math.imul(z ^ (z >>> 7), z | 61);
  return ((z ^ (z >>> 14)) >>> 0) / 2 ** 32;
}
/** Images [count, 12, 12] and their classes. @param {number} count */
function spots(count) {
  const images = Float32Array.from({ length: count * SIZE * SIZE }, () => 0.6 * random() - 0.3);
  const labels = new Int32Array(count);
  for (let n = 0; n < count; n++) {
    const place = () => [0, 1].map(() => Math.floor((SIZE - 1) * random()));
    const bright = place();
    let dark = place();
    while (dark.some((at, axis) => Math.abs(at - bright[axis]) < 2)) dark = place();
    for (const [[row, column], value] of /** @type {const} */ ([
      [bright, 1],
      [dark, -1],
    ])) {
      for (const i of [0, 1, SIZE, SIZE + 1]) images[(n * SIZE + row) * SIZE + column + i] += value;
    }
    labels[n] = 2 * Number(dark[0] > bright[0]) + Number(dark[1] > bright[1]);
  }
  return { images, labels };
}

class Block extends nn.Module {
  constructor() {
    super();
    this.norm1 = new nn.LayerNorm(WIDTH);
    this.attention = new nn.MultiHeadAttention(WIDTH, 2);
    this.norm2 = new nn.LayerNorm(WIDTH);
    this.mlp = new nn.MLP(WIDTH, 2 * WIDTH);
  }
  /** @param {import('helios-vk/nn').Tensor} x */
  forward(x) {
    x = x.add(this.attention.forward(this.norm1.forward(x)));
    return x.add(this.mlp.forward(this.norm2.forward(x)));
  }
}

class VisionTransformer extends nn.Module {
  constructor() {
    super();
    this.patches = new nn.Linear(PATCH * PATCH, WIDTH);
    this.positions = new nn.Embedding(GRID * GRID, WIDTH);
    this.blocks = [new Block(), new Block()];
    this.norm = new nn.LayerNorm(WIDTH);
    this.head = new nn.Linear(WIDTH, CLASSES.length);
  }
  /** @param {import('helios-vk/nn').Tensor} images [batch, 12, 12] */
  forward(images) {
    const [batch] = images.shape;
    // Rows and columns of patches first, then those within a patch.
    const cut = images.reshape(batch, GRID, PATCH, GRID, PATCH).permute(0, 1, 3, 2, 4);
    let x = this.patches.forward(cut.reshape(batch, GRID * GRID, PATCH * PATCH)).add(this.positions.weight);
    for (const block of this.blocks) x = block.forward(x);
    return this.head.forward(this.norm.forward(x).mean(1));
  }
}

const model = new VisionTransformer();
const opt = new optim.AdamW(model.parameters(), { lr: 3e-3, clip: 1, schedule: { warmup: 10, total: steps + 1, finalLr: 1e-5 } });
const step = compile((images, labels) => {
  const loss = F.crossEntropy(model.forward(images.reshape(BATCH, SIZE, SIZE)), labels);
  loss.backward();
  opt.step();
  return loss;
});
for (let i = 0; i < steps; i++) {
  const { images, labels } = spots(BATCH);
  const loss = scope(() => step(images, labels));
  if (i % 25 === 0 || i === steps - 1) console.log(`step ${i}: loss ${(await loss.item()).toFixed(4)}`);
  loss.dispose();
}

const { images, labels } = spots(500);
const scores = await noGrad(() => scope(() => model.forward(tensor(images, { shape: [500, SIZE, SIZE] })))).toArray();
const right = labels.filter((label, n) => {
  const row = scores.subarray(CLASSES.length * n, CLASSES.length * (n + 1));
  return row.indexOf(Math.max(...row)) === label;
}).length;
console.log(`${right} of 500 new images: the dark spot is where the model says`);
