// The examples of helios-vk/nn, each run as a separate program.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { firstOf } from '../lib/addon.mjs';

/** @param {string} name @param {...string} args @returns {Promise<string>} what it prints */
async function example(name, ...args) {
  const path = fileURLToPath(new URL(`../../examples/${name}.mjs`, import.meta.url));
  return (await promisify(execFile)(process.execPath, [path, ...args], { timeout: 600_000 })).stdout;
}
/** @param {RegExp} pattern @param {string} text @param {(...numbers: number[]) => boolean} holds */
function says(pattern, text, holds) {
  const found = text.match(pattern);
  assert.ok(found && holds(...found.slice(1).map(Number)), text);
}

/** Those that take seconds come first. @type {[name: string, check: () => Promise<void>][]} */
const EXAMPLES = [
  ['regression', async () => says(/at the end: loss ([\d.]+)/, await example('nn-regression'), (loss) => loss < 0.02)],
  [
    'LoRA',
    async () => {
      const text = await example('nn-lora');
      says(/adapters, second task: loss ([\d.]+) to ([\d.]+)/, text, (before, after) => after < before / 5);
      says(/to ([\d.]+)\nmerged: loss ([\d.]+), 4 tensors/, text, (trained, merged) => merged < 1.5 * trained + 1e-4);
    },
  ],
  ['custom op', async () => assert.match(await example('nn-custom-op'), /gradient \[\s*\[/)],
  [
    'diffusion',
    async () => says(/moons: (\d+) of 256 points, and (\d+) of/, await example('nn-diffusion', '600'), (near, noise) => near > 1.5 * noise),
  ],
  ['digits', async () => says(/(\d+) of 500 new digits/, await example('nn-digits', '60'), (right) => right > 300)],
  ['vision transformer', async () => says(/(\d+) of 500 new images/, await example('nn-vit', '70'), (right) => right > 350)],
  ['GPT', async () => assert.match(await example('nn-gpt'), /\ntyger tyger, burning bright, in the forests of the night; wh/)],
  ['character GRU', async () => assert.match(await example('nn-gru'), /\ntyger tyger, burning bright, in the forests of the night/)],
];
for (const [name, check] of firstOf(EXAMPLES, 3)) test(name, check);
