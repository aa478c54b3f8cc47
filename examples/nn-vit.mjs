// Digits: a vision transformer (Dosovitskiy et al. 2021) tells 0 to 9 apart, drawn in a font of dots somewhere on a noisy image.
// The data are those of nn-digits.mjs, where a convolutional network does the same.
//
//   node examples/nn-vit.mjs [steps]

import { F, cat, compile, nn, noGrad, optim, randn, scope, tensor } from 'helios-vk/nn';

const steps = Number(process.argv[2] ?? 400);
const [BATCH, SIZE] = [48, 12];
/** 5 x 7 dots of each digit: five bits a row. */
const FONT = [
  [14, 17, 19, 21, 25, 17, 14],
  [4, 12, 4, 4, 4, 4, 14],
  [14, 17, 1, 2, 4, 8, 31],
  [31, 2, 4, 2, 1, 17, 14],
  [2, 6, 10, 18, 31, 2, 2],
  [31, 16, 30, 1, 1, 17, 14],
  [6, 8, 16, 30, 17, 17, 14],
  [31, 1, 2, 4, 8, 8, 8],
  [14, 17, 17, 14, 17, 17, 14],
  [14, 17, 17, 15, 1, 2, 12],
];

// Random numbers from a seed (mulberry32), so that every run is the same.
let state = 7;
function random() {
  state = (state + 0x6d2b79f5) | 0;
  let z = Math.imul(state ^ (state >>> 15), state | 1);
  z ^= z + Math.imul(z ^ (z >>> 7), z | 61);
  return ((z ^ (z >>> 14)) >>> 0) / 2 ** 32;
}
/** Images [batch, 1, 12, 12] and what they show. @param {number} count */
function digits(count) {
  const images = Float32Array.from({ length: count * SIZE * SIZE }, () => 0.6 * random() - 0.3);
  const labels = Int32Array.from({ length: count }, () => Math.floor(10 * random()));
  labels.forEach((digit, n) => {
    const [down, across] = [7, 5].map((size) => Math.floor((SIZE - size + 1) * random()));
    for (let row = 0; row < 7; row++) {
      for (let column = 0; column < 5; column++) {
        if ((FONT[digit][row] >> (4 - column)) & 1) images[(n * SIZE + down + row) * SIZE + across + column] += 1;
      }
    }
  });
  return { images: tensor(images, { shape: [count, 1, SIZE, SIZE] }), labels: tensor(labels) };
}

const [PATCH, WIDTH, HEADS, LAYERS] = [4, 64, 2, 2];
const PATCHES = (SIZE / PATCH) ** 2;

class Block extends nn.Module {
  constructor() {
    super();
    this.norm1 = new nn.LayerNorm(WIDTH);
    this.attention = new nn.MultiHeadAttention(WIDTH, HEADS);
    this.norm2 = new nn.LayerNorm(WIDTH);
    this.mlp = new nn.MLP(WIDTH, 2 * WIDTH);
  }
  /** @param {any} x [batch, tokens, WIDTH] */
  forward(x) {
    x = x.add(this.attention.forward(this.norm1.forward(x)));
    return x.add(this.mlp.forward(this.norm2.forward(x)));
  }
}

class VisionTransformer extends nn.Module {
  constructor() {
    super();
    // A convolution whose window is its stride: each patch by itself, times a matrix.
    this.patches = new nn.Conv2d(1, WIDTH, PATCH, { stride: PATCH });
    this.token = new nn.Parameter(randn([1, 1, WIDTH], { deviation: 0.02 }));
    this.positions = new nn.Parameter(randn([1, PATCHES + 1, WIDTH], { deviation: 0.02 }));
    this.blocks = new nn.Sequential(...Array.from({ length: LAYERS }, () => new Block()));
    this.norm = new nn.LayerNorm(WIDTH);
    this.head = new nn.Linear(WIDTH, 10);
  }
  /** @param {any} images [batch, 1, SIZE, SIZE] @returns {any} scores [batch, 10] */
  forward(images) {
    const patches = this.patches.forward(images).flatten(2).transpose(1, 2);
    const token = this.token.expand(images.shape[0], 1, WIDTH);
    const x = this.blocks.forward(cat([token, patches], 1).add(this.positions));
    // The class is read from the token that was added.
    return this.head.forward(this.norm.forward(x.slice(1, 0, 1).squeeze(1)));
  }
}

const model = new VisionTransformer();
const opt = new optim.AdamW(model.parameters(), { lr: 3e-3, clip: 1, schedule: { warmup: 20, total: steps, finalLr: 1e-4 } });
const step = compile((images, labels) => {
  const loss = F.crossEntropy(model.forward(images), labels);
  loss.backward();
  opt.step();
  return loss;
});
for (let i = 0; i < steps; i++) {
  const { images, labels } = digits(BATCH);
  const loss = scope(() => step(images, labels));
  if (i % 50 === 0 || i === steps - 1) console.log(`step ${i}: loss ${(await loss.item()).toFixed(4)}`);
  for (const x of [images, labels, loss]) x.dispose();
}

model.eval();
const { images, labels } = digits(500);
const scores = await noGrad(() => scope(() => model.forward(images))).toArray();
const right = (await labels.toArray()).filter((label, n) => {
  const row = scores.subarray(10 * n, 10 * n + 10);
  return row.indexOf(Math.max(...row)) === label;
}).length;
console.log(`${right} of 500 new digits are told right`);
