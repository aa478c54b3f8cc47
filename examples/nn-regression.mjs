// Regression with two layers, trained on the values of a formula.
//
//   node examples/nn-regression.mjs [steps]

import { F, nn, noGrad, optim, rand, scope } from 'helios-vk/nn';

const x = rand([256, 8], { low: -1, high: 1 });
const t = scope(() =>
  x
    .mul(x)
    .sum(1, true)
    .sub(x.slice(1, 0, 1)),
);

const model = new nn.Sequential(new nn.Linear(8, 64), new nn.GELU(), new nn.Linear(64, 1));
const opt = new optim.AdamW(model.parameters(), { lr: 1e-2, clip: 1 });
const step = () => {
  const loss = F.mseLoss(model.forward(x), t);
  loss.backward();
  opt.step();
  return loss;
};
for (let i = 0; i < Number(process.argv[2] ?? 300); i++) {
  const loss = scope(step);
  if (i % 50 === 0) console.log(`step ${i}: loss ${(await loss.item()).toFixed(5)}`);
}
const error = noGrad(() => scope(() => F.mseLoss(model.forward(x), t)));
console.log(`at the end: loss ${(await error.item()).toFixed(5)}`);
