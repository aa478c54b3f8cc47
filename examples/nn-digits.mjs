// Digits: a small convolutional network recognizes 0 to 9, drawn in a dot font somewhere on a noisy image.
//
//   node examples/nn-digits.mjs [steps]

import { F, compile, nn, noGrad, optim, scope, tensor } from 'helios-vk/nn';

const steps = Number(process.argv[2] ?? 150);
const [BATCH, SIZE] = [64, 12];
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

const model = new nn.Sequential(
  new nn.Conv2d(1, 12, 3, { padding: 1 }),
  new nn.BatchNorm2d(12),
  new nn.ReLU(),
  new nn.MaxPool2d(2),
  new nn.Conv2d(12, 24, 3, { padding: 1 }),
  new nn.BatchNorm2d(24),
  new nn.ReLU(),
  new nn.MaxPool2d(2),
  new nn.Flatten(),
  new nn.Linear(24 * 3 * 3, 10),
);
const opt = new optim.AdamW(model.parameters(), { lr: 5e-3, schedule: { total: steps, finalLr: 1e-4 } });
const step = compile((images, labels) => {
  const loss = F.crossEntropy(model.forward(images), labels);
  loss.backward();
  opt.step();
  return loss;
});
for (let i = 0; i < steps; i++) {
  const { images, labels } = digits(BATCH);
  const loss = scope(() => step(images, labels));
  if (i % 25 === 0 || i === steps - 1) console.log(`step ${i}: loss ${(await loss.item()).toFixed(4)}`);
  for (const x of [images, labels, loss]) x.dispose();
}

model.eval();
const { images, labels } = digits(500);
const scores = await noGrad(() => scope(() => model.forward(images))).toArray();
const right = (await labels.toArray()).filter((label, n) => {
  const row = scores.subarray(10 * n, 10 * n + 10);
  return row.indexOf(Math.max(...row)) === label;
}).length;
console.log(`${right} of 500 new digits are recognized`);
