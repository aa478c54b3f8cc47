#!/usr/bin/env node
// Steps of an existing trainer, its kernels and its optimizer, under the validation layer with synchronization checks.
//
//   node scripts/trainer.mjs CHECKOUT [--steps N]
//
// The checkout is built. A small model, in the trainer's own training command; what its shaders need before their
// results are defined is put into them on the way to the addon (__test__/lib/mend.mjs), and new buffers are filled with zeros,
// since gradients that are NaN keep the trainer from its optimizer (docs/guide/existing-trainer.md). Fails on a message of the layer, on a loss or a gradient norm that is not finite,
// and where a step was taken without the optimizer.

import { mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

import { OWN_ADDON } from '../benches/lib/addon.mjs';
import { runTrainer, trainCommand } from '../benches/lib/existing-trainer.mjs';
import { wrongAddon } from '../benches/lib/mapped.mjs';
import { makeText } from '../benches/lib/text.mjs';
import { borrow } from '../bin/lib/borrow.mjs';
import { placeIn } from '../bin/lib/link.mjs';
import { UsageError, runMain } from '../bin/lib/options.mjs';
import { addonFile } from './bootstrap.mjs';
import { LAYER_MESSAGE } from './system.mjs';

const HOOK = new URL('../__test__/lib/mend-hook.mjs', import.meta.url);
const SHAPE = { layers: 2, width: 64, heads: 4, block: 64, batch: 2, microSteps: 1, lr: 3e-4, seed: 1 };

/**
 * @param {string} checkout
 * @param {number} steps
 * @returns {Promise<string[]>} what is wrong
 */
export async function validateTrainer(checkout, steps) {
  const { path } = placeIn(checkout);
  const command = await trainCommand(checkout);
  const scratch = mkdtempSync(join(tmpdir(), 'helios-vk-trainer-'));
  const data = join(scratch, 'text.txt');
  writeFileSync(data, makeText(300_000, SHAPE.seed));
  const borrowed = borrow(path);
  for (const [signal, number] of /** @type {const} */ ([
    ['SIGHUP', 1],
    ['SIGINT', 2],
    ['SIGTERM', 15],
  ])) {
    process.once(signal, () => process.exit(128 + number));
  }
  try {
    borrowed.put(OWN_ADDON);
    // Versions before 2026-02-27, 11:30 UTC, do not know HELIOS_WG_SIZE and choose by timing.
    Object.assign(process.env, { HELIOS_VALIDATION: '1', HELIOS_WG_SIZE: '256', NODE_OPTIONS: `--import=${HOOK.href}` });
    const run = await runTrainer({ checkout, command, addon: path, data, tokenizer: 'bpe-4k', scratch, steps, shape: SHAPE, more: [] });
    const norms = [...run.output.matchAll(/^step \d+\/.* grad_norm=(\S+)/gm)].slice(0, steps).map(([, norm]) => Number(norm));
    console.log(`${run.device}: losses ${run.steps.map(({ loss }) => loss).join(', ')}; gradient norms ${norms.join(', ')}`);
    const wrong = run.output.split('\n').filter((line) => LAYER_MESSAGE.test(line) || /skipping optimizer/.test(line));
    if (norms.length !== steps || !norms.every(Number.isFinite)) wrong.push('a gradient norm is not finite');
    if (!run.steps.every(({ loss }) => Number.isFinite(loss))) wrong.push('a loss is not finite');
    const other = wrongAddon(run.mapped, [realpathSync(addonFile())]);
    if (other !== null) wrong.push(other);
    return wrong;
  } finally {
    borrowed.restore();
    rmSync(scratch, { recursive: true, force: true });
  }
}

if (process.argv[1] !== undefined && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const options = /** @type {const} */ ({
    steps: { type: 'integer', min: 1, max: 1_000_000, default: 10, help: 'how many' },
  });
  await runMain(
    'node scripts/trainer.mjs CHECKOUT [options]',
    options,
    async ({ steps }, positionals) => {
      if (positionals.length !== 1) throw new UsageError('one checkout must be named');
      const wrong = await validateTrainer(positionals[0], steps);
      for (const line of wrong.slice(0, 20)) console.error(line);
      console.log(wrong.length > 0 ? `${wrong.length} things wrong` : 'nothing wrong, and no message of the layer');
      return wrong.length > 0 ? 1 : 0;
    },
    { positionals: true },
  );
}
