// One model trained by several processes, each with its own device and a part of every batch (data parallelism, with the optimizer's
// moments divided among them: ZeRO-1). A checkpoint is whole: any number of processes can continue from it.
//
//   npx helios-vk run --nproc 2 examples/data-parallel.mjs [steps] [checkpoint]

import { existsSync } from 'node:fs';

import { init } from 'helios-vk/distributed';
import { F, accumulate, compile, init as initDevice, load, manualSeed, nn, optim, rand, save, scope, tensor } from 'helios-vk/nn';

const [steps, checkpoint] = [Number(process.argv[2] ?? 100), process.argv[3]];
const [BATCH, MICRO] = [96, 2];

// On a host with several devices: initDevice({ device: launched().localRank }).
initDevice();
const group = await init({ config: { BATCH, MICRO } });
const { rank, worldSize } = group;
if (BATCH % (MICRO * worldSize) !== 0) throw new Error(`a batch of ${BATCH} is not divisible by ${worldSize} processes`);
const share = BATCH / (MICRO * worldSize);

manualSeed(1);
const model = new nn.Sequential(new nn.Linear(8, 64), new nn.GELU(), new nn.Linear(64, 1));
const optimizer = new optim.AdamW(model.parameters(), { lr: 1e-2, clip: 1, processGroup: group });

let begin = 0;
if (checkpoint && existsSync(checkpoint)) {
  const tensors = await load(checkpoint);
  const of = (/** @type {string} */ prefix) =>
    Object.fromEntries(Object.entries(tensors).flatMap(([name, x]) => (name.startsWith(prefix) ? [[name.slice(prefix.length), x]] : [])));
  model.loadStateDict(of('model.'));
  optimizer.loadStateDict(of('optimizer.'));
  begin = await tensors.step.item();
}

// Gradients of this process's part, by micro-steps. The optimizer's step needs the other processes, so it cannot be compiled.
const gradients = compile((/** @type {any} */ x) =>
  accumulate(MICRO, (i) => {
    const own = x.slice(0, i * share, (i + 1) * share);
    return F.mseLoss(model.forward(own), own.mul(own).sum(1, true));
  }),
);

for (let step = begin; step < steps; step++) {
  // Every process draws the whole batch from seed and step, and uses its rows: the result does not depend on how many there are.
  manualSeed(1000 + step);
  const loss = scope(() => {
    const rows = MICRO * share;
    const x = rand([BATCH, 8], { low: -1, high: 1 }).slice(0, rank * rows, (rank + 1) * rows);
    const loss = gradients(x.contiguous());
    optimizer.step();
    return loss;
  });
  if (step % 20 === 0 || step === steps - 1) {
    const all = await group.exchange(await loss.item());
    const mean = all.reduce((sum, each) => sum + each, 0) / worldSize;
    if (rank === 0) console.log(`step ${step}: loss ${mean.toFixed(5)} on ${worldSize} processes`);
  }
}

if (checkpoint) {
  // All processes gather the checkpoint, and one writes it.
  const named = (/** @type {string} */ prefix, /** @type {Record<string, any>} */ all) =>
    Object.fromEntries(Object.entries(all).map(([name, x]) => [prefix + name, x]));
  const step = tensor([steps], { dtype: 'i32' });
  const state = { step, ...named('model.', model.stateDict()), ...named('optimizer.', optimizer.stateDict()) };
  if (rank === 0) await save(checkpoint, state);
}
await group.destroy();
