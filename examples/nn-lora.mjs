// LoRA: a model that was trained on one task learns another by adapters of rank 2, its own weights frozen.
//
//   node examples/nn-lora.mjs [steps]

import { F, compile, nn, optim, rand, scope } from 'helios-vk/nn';

const steps = Number(process.argv[2] ?? 300);
const model = new nn.Sequential(new nn.Linear(4, 64), new nn.GELU(), new nn.Linear(64, 1));
const x = rand([256, 4], { low: -1, high: 1 });
const [first, second] = scope(() => {
  const [a, b] = [x.slice(1, 0, 1), x.slice(1, 1, 2)];
  return [a.mul(b), a.mul(b).add(b.mul(0.5))];
});

/** @param {import('helios-vk/nn').Tensor} target @param {import('helios-vk/nn').nn.Parameter[]} parameters @param {string} what */
async function train(target, parameters, what) {
  const opt = new optim.AdamW(parameters, { lr: 1e-2, weightDecay: 0 });
  const step = compile(() => {
    const loss = F.mseLoss(model.forward(x), target);
    loss.backward();
    opt.step();
    return loss;
  });
  /** @type {number[]} */
  const losses = [];
  for (let i = 0; i < steps; i++) {
    const loss = step();
    if (i === 0 || i === steps - 1) losses.push(await loss.item());
    loss.dispose();
  }
  step.dispose();
  opt.dispose();
  console.log(`${what}: loss ${losses.map((loss) => loss.toFixed(5)).join(' to ')}`);
}

await train(first, model.parameters(), 'all weights, first task');
nn.lora(model, { rank: 2 });
const adapters = model.parameters().filter((parameter) => parameter.requiresGrad);
const count = (/** @type {{ size: number }[]} */ list) => list.reduce((sum, { size }) => sum + size, 0);
console.log(`adapters: ${count(adapters)} of ${count(model.parameters())} numbers`);
await train(second, adapters, 'adapters, second task');
nn.mergeLora(model);
const merged = scope(() => F.mseLoss(model.forward(x), second).detach());
console.log(`merged: loss ${(await merged.item()).toFixed(5)}, ${model.parameters().length} tensors as before`);
