// `helios-lm generate`: continues a text. Each token takes a forward pass over the whole context.

import { createRequire } from 'node:module';
import { init } from 'helios-vk/nn';

import { openModel } from '../open.mjs';
import { checkMatrixUnits } from '../train/device.mjs';
import { Generator } from '../train/generator.mjs';
import { generate } from '../train/sample.mjs';
import { MAX_SIZE, PRECISIONS } from '../train/settings.mjs';

/** @typedef {import('../train/settings.mjs').Precision} Precision */

export const OPTIONS = /** @type {const} */ ({
  model: { type: 'string', value: 'PATH', path: 'input-any', required: true, help: "a model's folder, or a run's: its latest checkpoint" },
  prompt: { type: 'string', empty: true, default: '', help: 'text to continue' },
  tokens: { type: 'integer', min: 0, max: MAX_SIZE, default: 200, help: 'tokens to generate' },
  temperature: { type: 'number', min: 0, max: 1000, default: 0.8, help: 'divide logits by this; 0: always take the most likely token' },
  'top-k': { type: 'integer', min: 0, max: MAX_SIZE, default: 40, help: 'sample from the N most likely tokens; 0: from all of them' },
  'top-p': { type: 'number', min: 0, max: 1, default: 1, help: 'of these, sample from the fewest whose probabilities sum to this' },
  seed: { type: 'integer', min: 0, max: 0xffffffff, default: 1, help: 'seed of the sampling; the same seed gives the same text' },
  precision: { type: 'string', choices: PRECISIONS, help: 'arithmetic of matrix products (default: as in training, or f32)' },
  quiet: { type: 'boolean', help: 'print only the text' },
});

/** Arguments with today's names in place of earlier ones. @param {string[]} args */
export const modernArgs = (args) => args.map((arg) => arg.replace(/^--checkpoint(?==|$)/, '--model'));

/**
 * Runs the command.
 * @param {import('helios-vk/options').ValuesOf<typeof OPTIONS>} values @param {string[]} _ @param {AbortSignal} signal
 * @returns {Promise<string>}
 */
export async function run({ model: path, prompt, tokens, temperature, seed, precision: asked, quiet, ...values }, _, signal) {
  const vk = createRequire(import.meta.url)('helios-vk');
  const { deviceName } = vk.initDevice();
  init({ vk });
  const { from, model, tokenizer, settings } = await openModel(path, { signal });
  if (!tokenizer) throw new Error(`${from} has no tokenizer.json`);
  let precision = /** @type {Precision} */ (asked ?? settings?.precision ?? 'f32');
  try {
    checkMatrixUnits(vk, precision, deviceName);
  } catch (error) {
    if (asked !== undefined) throw error;
    precision = 'f32';
  }
  if (!quiet) process.stderr.write(`${from} · ${deviceName} · ${precision}\n`);
  const generator = new Generator(model, precision, { block: settings?.blockSize ?? Math.min(model.config.context, 1024) });
  const options = { tokens, temperature, topK: values['top-k'], topP: values['top-p'], seed };
  for await (const part of generate(generator, tokenizer, prompt, options)) {
    signal.throwIfAborted();
    process.stdout.write(part);
  }
  process.stdout.write('\n');
  generator.dispose();
  model.dispose();
  vk.destroy();
  return '';
}
