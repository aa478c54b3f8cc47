/** Runs the trainer with several addons in turn: the part of `npm run bench -- --trainer CHECKOUT` that is the trainer's. */

import { copyFileSync, existsSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { binariesOf, checkMapped } from './binaries.mjs';
import { withPeakMemory } from '../../../../benches/lib/gpu-memory.mjs';
import { makeText } from './text.mjs';
import { borrow } from './borrow.mjs';
import { addonPlace, runTrainer, trainCommand } from './trainer.mjs';

/** Bytes of the text that is made where no data are given. */
const MADE_TEXT_BYTES = 1_200_000;

/**
 * @typedef {object} Side
 * @property {import('./binaries.mjs').Binary[]} binaries what loading the addon maps
 * @property {(import('./trainer.mjs').TrainerRun & { peakMiB: number | undefined })[]} runs by round
 */

/**
 * Trains with each addon in each round, in fresh processes. The addon is put where the trainer looks for it, and what was there is
 * restored in the end. A run counts only if its process had loaded this addon and no other.
 * @param {object} job
 * @param {string} job.checkout
 * @param {{ name: string, path: string }[]} job.addons
 * @param {number} job.rounds
 * @param {number} job.steps of a run
 * @param {import('./trainer.mjs').TrainerShape} job.shape
 * @param {string} job.tokenizer name of the trainer's tokenizer
 * @param {string} [job.data] text file; by default a made-up text
 * @param {string[]} job.more further options of the trainer
 * @param {number} job.memoryEvery milliseconds between samples of the device's memory
 * @returns {Promise<Side[]>} for each addon
 */
export async function trainWithEach({ checkout, addons, rounds, steps, shape, tokenizer, data, more, memoryEvery }) {
  const command = await trainCommand(checkout);
  const place = addonPlace(checkout);
  const scratch = mkdtempSync(join(tmpdir(), 'helios-vk-bench-'));
  const clean = () => rmSync(scratch, { recursive: true, force: true });
  process.on('exit', clean);
  /** @type {import('./borrow.mjs').Borrowed | undefined} */ let borrowed;
  try {
    // The addon of the checkout itself may be measured, and is about to be moved.
    const present = existsSync(place) ? realpathSync(place) : undefined;
    const sources = addons.map(({ path }, i) => {
      const source = realpathSync(path);
      if (source !== present) return source;
      const copy = join(scratch, `helios_vk-${i}.node`);
      copyFileSync(source, copy);
      return realpathSync(copy);
    });
    /** @type {Side[]} */
    const sides = [];
    for (const source of sources) sides.push({ binaries: await binariesOf(source), runs: [] });
    borrowed = borrow(place);
    if (data === undefined) writeFileSync((data = join(scratch, 'text.txt')), makeText(MADE_TEXT_BYTES, shape.seed));
    const run = { checkout, command, addon: place, data, tokenizer, scratch, steps, shape, more };
    for (let round = 0; round < rounds; round++) {
      for (const [i, { binaries, runs }] of sides.entries()) {
        borrowed.put(sources[i]);
        const { result, peakMiB } = await withPeakMemory(() => runTrainer(run), memoryEvery);
        checkMapped(addons[i].name, result.mapped, binaries);
        runs.push({ ...result, peakMiB });
      }
    }
    return sides;
  } finally {
    borrowed?.restore();
    process.off('exit', clean);
    clean();
  }
}
