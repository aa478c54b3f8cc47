#!/usr/bin/env node
/**
 * Measures the time from the start of a process to the first step's loss, by parts: processes of their own train a GPT of `helios-lm` and ResNet-18,
 * first with an empty cache folder, then again.
 */

import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { runMain } from '../bin/lib/options.mjs';

const USAGE = 'node benches/first-step.mjs [options]';
const OPTIONS = /** @type {const} */ ({
  preset: { type: 'string', default: 'gpt-300m', help: 'of `helios-lm train`' },
  batch: { type: 'integer', default: 4, min: 1, max: 1024, help: 'sequences of a micro-step; images are 32 times as many' },
  models: { type: 'string', default: 'gpt,resnet', value: 'LIST', help: 'gpt, resnet, or both' },
  again: { type: 'integer', default: 2, min: 0, max: 100, help: 'processes after the first one' },
  of: { type: 'string', value: 'NAME', choices: ['gpt', 'resnet'], help: 'measure in this process, with the cache folder that it has' },
});

/** @typedef {import('../bin/lib/options.mjs').ValuesOf<typeof OPTIONS>} Values */

await runMain(USAGE, OPTIONS, async (values) => {
  if (values.of !== undefined) return console.log(JSON.stringify(await measure(values)));
  const self = fileURLToPath(import.meta.url);
  for (const model of values.models.split(',')) {
    const folder = mkdtempSync(join(tmpdir(), 'helios-first-step-'));
    // The driver has a cache of its own, which a new host lacks, too.
    const env = { ...process.env, HELIOS_PIPELINE_CACHE: folder, __GL_SHADER_DISK_CACHE_PATH: folder, CUDA_CACHE_PATH: folder };
    const args = [self, '--of', model, '--preset', values.preset, '--batch', String(values.batch)];
    try {
      for (let i = 0; i <= values.again; i++) {
        const began = performance.now();
        const parts = JSON.parse(execFileSync(process.execPath, args, { env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] }));
        console.log(JSON.stringify({ model, cache: i === 0 ? 'cold' : 'warm', ...parts, whole: Math.round(performance.now() - began) }));
      }
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  }
});

/** Milliseconds of each part of this process, in order. @param {Values} values */
async function measure({ of, preset, batch }) {
  /** @type {Record<string, number>} */
  const parts = {};
  let last = 0;
  const done = (/** @type {string} */ part) => {
    const now = performance.now();
    parts[part] = Math.round(now - last);
    last = now;
  };
  done('node');
  /** @type {typeof import('../index.js')} */
  const vk = createRequire(import.meta.url)('../index.js');
  const { init } = await import('helios-vk/nn');
  const { imagesOf, trainingStep } = await import('./lib/resnet.mjs');
  const { Trainer } = await import('../packages/lm/src/train/trainer.mjs');
  const { configFrom, encodeText, windowsOf } = await import('./lib/training.mjs');
  done('modules');
  vk.initDevice();
  done('device');
  let loss = NaN;
  if (of === 'gpt') {
    const config = configFrom(preset, { batch, 'micro-steps': 1, steps: 2 });
    const { tokens } = await encodeText(undefined, config.model.vocabSize);
    done('data');
    const trainer = new Trainer(vk, config, { data: windowsOf(tokens, config.settings.blockSize), mode: 'graph' });
    done('build');
    vk.waitIdle();
    done('weights');
    await trainer.step();
    done('compile');
    await trainer.settle();
    done('loss');
    loss = /** @type {number} */ (trainer.known.get(0));
  } else {
    init({ vk });
    const { images, labels } = imagesOf(32 * batch);
    const step = trainingStep('bf16');
    done('build');
    vk.waitIdle();
    done('weights');
    const result = step(images, labels);
    done('compile');
    loss = /** @type {number} */ (await result.item());
    done('loss');
  }
  return { ...parts, total: Math.round(last), lossOfStep: loss };
}
