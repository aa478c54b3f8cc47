// A small GPT, as one would write it in PyTorch: it learns a verse by heart, letter by letter, and recites it from its first letters.
// The GPT of `npm run train` is the large one, with checkpoints and text of its own.
//
//   node examples/nn-gpt.mjs [steps]

import { F, accumulate, compile, nn, noGrad, optim, scope, tensor } from 'helios-vk/nn';

const steps = Number(process.argv[2] ?? 150);
const text = 'tyger tyger, burning bright, in the forests of the night; what immortal hand or eye could frame thy fearful symmetry? ';
const letters = [...new Set(text)].sort();
const ids = Array.from(text, (letter) => letters.indexOf(letter));
const [WIDTH, HEADS, LAYERS, LENGTH, BATCH, MICRO] = [64, 2, 2, 32, 4, 2];

class Block extends nn.Module {
  constructor() {
    super();
    this.norm1 = new nn.RMSNorm(WIDTH);
    this.attention = new nn.MultiHeadAttention(WIDTH, HEADS, { kvHeads: 1, rope: true, causal: true });
    this.norm2 = new nn.RMSNorm(WIDTH);
    this.mlp = new nn.SwiGLU(WIDTH, 2 * WIDTH);
  }
  /** @param {any} x [batch, tokens, WIDTH] */
  forward(x) {
    x = x.add(this.attention.forward(this.norm1.forward(x)));
    return x.add(this.mlp.forward(this.norm2.forward(x)));
  }
}

class Gpt extends nn.Module {
  constructor() {
    super();
    this.embedding = new nn.Embedding(letters.length, WIDTH);
    this.blocks = new nn.Sequential(...Array.from({ length: LAYERS }, () => new Block()));
    this.norm = new nn.RMSNorm(WIDTH);
    this.head = new nn.Linear(WIDTH, letters.length, { bias: false });
  }
  /** @param {any} x letters [batch, tokens] @returns {any} scores of the next letters [batch, tokens, letters] */
  forward(x) {
    return this.head.forward(this.norm.forward(this.blocks.forward(this.embedding.forward(x))));
  }
}

const model = new Gpt();
// Matrices decay, the weights of norms do not.
const opt = new optim.AdamW(
  [
    { params: model.parameters().filter(({ ndim }) => ndim > 1) },
    { params: model.parameters().filter(({ ndim }) => ndim === 1), weightDecay: 0 },
  ],
  { lr: 5e-3, weightDecay: 0.1, clip: 1, schedule: { warmup: 10, total: steps, finalLr: 5e-4 } },
);
// Two micro-steps, whose gradients are added up; no activation outlives its micro-step.
const step = compile((x, targets) => {
  const loss = accumulate(MICRO, (i) => F.crossEntropy(model.forward(x.at(i)), targets.at(i)));
  opt.step();
  return loss;
});

/** Stretches of the verse, as often as it takes. @param {number} shift */
const rows = (shift) =>
  tensor(
    Int32Array.from({ length: MICRO * BATCH * LENGTH }, (_, i) => ids[(Math.floor(i / LENGTH) * 7 + (i % LENGTH) + shift) % ids.length]),
    { shape: [MICRO, BATCH, LENGTH] },
  );
for (let i = 0; i < steps; i++) {
  const loss = scope(() => step(rows(i), rows(i + 1)));
  if (i % 20 === 0 || i === steps - 1) console.log(`step ${i}: loss ${(await loss.item()).toFixed(4)}`);
  loss.dispose();
}

// The last letters predict the next one. Shorter stretches are padded at the end: a token does not see those after it.
const next = compile((x) => noGrad(() => model.forward(x.reshape(1, LENGTH))));
let said = text.slice(0, 12);
while (said.length < 60) {
  const last = Array.from(said.slice(-LENGTH), (letter) => letters.indexOf(letter));
  const scores = await next(Int32Array.from({ length: LENGTH }, (_, i) => last[i] ?? 0)).toArray();
  const row = scores.subarray((last.length - 1) * letters.length, last.length * letters.length);
  said += letters[row.indexOf(Math.max(...row))];
}
console.log(said);
