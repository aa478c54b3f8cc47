#!/usr/bin/env node
// Trains a small model for some steps with the trainer's own training command, under the validation layer with synchronization checks.
//
//   node packages/alpha-backend/bench/validate.mjs CHECKOUT [--steps N]
//
// CHECKOUT is a built checkout of the trainer. Known faults of its shaders are mended and new buffers are zeroed (lib/mend-hook.mjs):
// otherwise its gradients are NaN and it skips the optimizer (docs/existing-trainer.md). The run fails on a message of the layer,
// on a loss or a gradient norm that is not finite, and on a step without the optimizer.

import { mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { OWN_ADDON } from '../../../benches/lib/addon.mjs';
import { UsageError, runMain } from '../../../bin/lib/options.mjs';
import { wrongAddon } from './lib/mapped.mjs';
import { makeText } from './lib/text.mjs';
import { placeIn } from '../../../bin/lib/link.mjs';
import { addonFile } from '../../../scripts/bootstrap.mjs';
import { LAYER_MESSAGE } from '../../../scripts/system.mjs';
import { borrow } from './lib/borrow.mjs';
import { runTrainer, trainCommand } from './lib/trainer.mjs';

const HOOK = new URL('./lib/mend-hook.mjs', import.meta.url);
const SHAPE = { layers: 2, width: 64, heads: 4, block: 64, batch: 2, microSteps: 1, lr: 3e-4, seed: 1 };

/**
 * @param {string} checkout
 * @param {number} steps
 * @returns {Promise<string[]>} what went wrong, a line each
 */
async function validateTrainer(checkout, steps) {
  const { path } = placeIn(checkout);
  const command = await trainCommand(checkout);
  const scratch = mkdtempSync(join(tmpdir(), 'helios-vk-trainer-'));
  const clean = () => rmSync(scratch, { recursive: true, force: true });
  process.on('exit', clean);
  const data = join(scratch, 'text.txt');
  writeFileSync(data, makeText(300_000, SHAPE.seed));
  const borrowed = borrow(path);
  try {
    borrowed.put(OWN_ADDON);
    // Versions before 2026-02-27, 11:30 UTC, do not read HELIOS_WG_SIZE and choose the size by timing.
    Object.assign(process.env, { HELIOS_VALIDATION: '1', HELIOS_WG_SIZE: '256', NODE_OPTIONS: `--import=${HOOK.href}` });
    const run = await runTrainer({ checkout, command, addon: path, data, tokenizer: 'bpe-4k', scratch, steps, shape: SHAPE });
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
    process.off('exit', clean);
    clean();
  }
}

const OPTIONS = /** @type {const} */ ({
  steps: { type: 'integer', min: 1, max: 1_000_000, default: 10, help: 'training steps' },
});
await runMain(
  'node packages/alpha-backend/bench/validate.mjs CHECKOUT [options]',
  OPTIONS,
  async ({ steps }, positionals) => {
    if (positionals.length !== 1) throw new UsageError('give one CHECKOUT, the folder of a built checkout of the trainer');
    const wrong = await validateTrainer(positionals[0], steps);
    for (const line of wrong.slice(0, 20)) console.error(line);
    if (wrong.length > 20) console.error(`… and ${wrong.length - 20} more`);
    console.log(wrong.length > 0 ? `failed: ${wrong.length} findings` : 'passed: no message of the layer, every step finite and optimized');
    return wrong.length > 0 ? 1 : 0;
  },
  { positionals: true },
);
