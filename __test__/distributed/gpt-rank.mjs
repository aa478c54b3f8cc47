// One process of the tests of the training run: `node gpt-rank.mjs JSON`. It trains a small GPT, and says what its weights are after
// each step; or it is `helios-lm train` or `benches/train.mjs` itself, with what only one of the ranks does.

import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { openRanks } from '../../packages/lm/src/train/ranks.mjs';
import { checkRun, configOf } from '../../packages/lm/src/train/settings.mjs';
import { Trainer, stepBatch } from '../../packages/lm/src/train/trainer.mjs';
import { launched } from '../../distributed/index.mjs';
import { memory, scope } from '../../nn/index.mjs';
import { vk } from '../lib/addon.mjs';
import { joined, randomTokens, readPart, windowsOf } from '../lib/gpt.mjs';
import { say } from './said.mjs';

/**
 * @typedef {object} Settings
 * @property {'mpi' | 'nccl'} [engine]
 * @property {0 | 1 | 2 | 3} [zero]
 * @property {boolean} [gradCheckpoint] whether the backward pass computes layers again
 * @property {number} [layers] 2 when left out
 * @property {'f32' | 'bf16'} [reduce]
 * @property {number} [clip] 0 when left out
 * @property {number} [micro] micro-steps of each process; 1 when left out
 * @property {number} [parts] without a group: gradients of so many shares of the step are computed one by one and added
 * @property {number} [stopAt] rank 1 is asked to stop once it knows the losses of so many steps
 * @property {string[]} [train] arguments of `helios-lm train`, which runs instead
 * @property {string[]} [bench] options of benches/train.mjs, which runs instead
 * @property {string} [cwd] where it runs
 * @property {string[]} [differs] more of them, for rank 1 alone
 * @property {string} [dies] rank 1 is killed once this file is there, in the first attempt
 */

/** @type {Settings} */
const {
  engine,
  zero,
  reduce,
  gradCheckpoint = false,
  layers = 2,
  clip = 0,
  micro = 1,
  parts = 0,
  stopAt,
  train,
  bench,
  cwd,
  differs = [],
  dies,
} = JSON.parse(process.argv[2]);
const { rank, launcher } = launched();

async function trainSmall() {
  const STEPS = 6;
  const { ranks } = await openRanks(vk, parts > 0 ? {} : { engine, zero, reduce });
  const size = ranks?.group.worldSize ?? 1;
  /** Sizes that are no multiple of any tile. */
  const config = checkRun(
    configOf('gpt-tiny', {
      ...{ layers, gradCheckpoint, width: 96, heads: 3, hidden: 76, blockSize: 19, vocabSize: 45 },
      ...{ batchSize: 3, maxSteps: STEPS, warmupSteps: 2, maxGradNorm: clip, gradientAccumulationSteps: micro * size },
    }),
  );
  const data = windowsOf(randomTokens(500, config.model.vocabSize), config.settings.blockSize);
  const stopped = () => rank === 1 && stopAt !== undefined && trainer.known.size >= stopAt;
  const trainer = new Trainer(vk, config, { data, ranks, stopped });
  // The first step would allocate them.
  for (const bucket of trainer.opt.buckets) bucket.reserveGradients();
  /** Bytes that tensors hold before the first step. */
  const { bytes } = memory();
  if (parts > 1) trainer.opt.gradientScale /= parts;

  /** A step by the gradients of each share, computed by themselves and added in the order of ranks. */
  const byParts = async () => {
    const parameters = [...trainer.model.parameters()];
    let loss = 0;
    scope(() => void trainer.model.zeroGrad());
    /** @type {any[] | undefined} */
    let sums;
    for (let part = 0; part < parts; part++) {
      trainer.model.zeroGrad();
      const own = stepBatch(data, config.settings, trainer.stepsDone, { rank: part, world: parts });
      loss += (await trainer.submit('gradients', own).item()) / parts;
      if (reduce === 'bf16') for (const { grad } of parameters) scope(() => void grad?.copy_(grad.to('bf16').to('f32')));
      const before = sums;
      if (before) parameters.forEach(({ grad }, i) => void grad?.add_(before[i]));
      sums = parameters.map(({ grad }) => grad?.clone());
    }
    trainer.opt.step();
    trainer.known.set(trainer.stepsDone++, loss);
  };

  const hashes = [];
  while (await trainer.ready()) {
    if (parts > 1) await byParts();
    else await trainer.step();
    // Where it may be told to stop, steps overlap as they do in a run.
    if (stopAt !== undefined) continue;
    await trainer.settle();
    hashes.push(digest(joined(await readPart(trainer, 'weights'))));
  }
  await trainer.settle();
  const weights = joined(await readPart(trainer, 'weights'));
  /** @type {import('../../packages/lm/src/train/trainer.mjs').Part[]} */
  const moments = ['m', 'v'];
  for (const part of moments) hashes.push(digest(joined(await readPart(trainer, part))));
  const losses = Array.from({ length: trainer.stepsDone }, (_, i) => trainer.known.get(i));
  // Some of them: all would be megabytes of JSON.
  const some = Array.from(weights.filter((_, i) => i % 2039 === 0)).map((x) => Number(x.toPrecision(7)));
  const said = { rank: launcher ? rank : 0, hashes, losses, weights: some, done: trainer.stepsDone, bytes };
  say(said);
  trainer.destroy();
  await ranks?.group.destroy();
}

/** @param {Float32Array} values */
const digest = (values) => createHash('sha256').update(new Uint8Array(values.buffer)).digest('hex').slice(0, 16);

if (train || bench) {
  const program = new URL(train ? '../../packages/lm/bin/helios-lm.mjs' : '../../benches/train.mjs', import.meta.url);
  process.argv = [
    process.argv[0],
    fileURLToPath(program),
    ...(train ? ['train', ...train] : (bench ?? [])),
    ...(rank === 1 ? differs : []),
  ];
  if (dies && rank === 1 && process.env.HELIOS_RESTART_COUNT === '0') {
    setInterval(() => existsSync(dies) && process.kill(process.pid, 'SIGKILL'), 2).unref();
  }
  if (cwd) process.chdir(cwd);
  await import(program.href);
} else await trainSmall();
