// A character model: a GRU learns a verse by heart, and recites it from its first letters.
//
//   node examples/nn-gru.mjs [steps]

import { F, compile, nn, noGrad, optim, scope, tensor } from 'helios-vk/nn';

const steps = Number(process.argv[2] ?? 250);
const text = 'tyger tyger, burning bright, in the forests of the night; what immortal hand or eye could frame thy fearful symmetry? ';
const letters = [...new Set(text)].sort();
const ids = Array.from(text, (letter) => letters.indexOf(letter));
const LENGTH = 24;

class CharModel extends nn.Module {
  constructor() {
    super();
    this.embedding = new nn.Embedding(letters.length, 32);
    this.gru = new nn.GRU(32, 96);
    this.head = new nn.Linear(96, letters.length);
  }
  /** @param {any} x letters [batch, steps] @param {any} [state] @returns {any[]} scores of the next letters, and the state */
  forward(x, state) {
    const [y, last] = this.gru.forward(this.embedding.forward(x), state);
    return [this.head.forward(y), last];
  }
}
const model = new CharModel();
const opt = new optim.AdamW(model.parameters(), { lr: 5e-3, clip: 1 });
const step = compile((x, t) => {
  const loss = F.crossEntropy(model.forward(x)[0], t);
  loss.backward();
  opt.step();
  return loss;
});

/** The verse from some places on, as often as it takes. @param {number} shift */
const rows = (shift) =>
  tensor(
    Int32Array.from({ length: 8 * LENGTH }, (_, i) => ids[(Math.floor(i / LENGTH) * 15 + (i % LENGTH) + shift) % ids.length]),
    { shape: [8, LENGTH] },
  );
for (let i = 0; i < steps; i++) {
  const loss = scope(() => step(rows(i), rows(i + 1)));
  if (i % 50 === 0 || i === steps - 1) console.log(`step ${i}: loss ${(await loss.item()).toFixed(4)}`);
  loss.dispose();
}

let said = text.slice(0, 12);
const next = compile((x, state) => noGrad(() => model.forward(x, state)));
let [scores, memory] = noGrad(() =>
  model.forward(
    tensor(
      Int32Array.from(said, (letter) => letters.indexOf(letter)),
      { shape: [1, 12] },
    ),
  ),
);
while (said.length < 60) {
  const last = (await scores.toArray()).slice(-letters.length);
  const letter = last.indexOf(Math.max(...last));
  said += letters[letter];
  [scores, memory] = next(tensor(Int32Array.of(letter), { shape: [1, 1] }), memory);
}
console.log(said);
