// `helios-lm finetune`: the command line of `finetune`.

import { UsageError } from 'helios-vk/options';

import { LOSSES, TYPES, finetune } from '../train/finetune.mjs';
import { OPTIONS as TRAIN, watch } from './train.mjs';

const { 'block-size': block, validation, resume, out, precision, ...others } = TRAIN;
/** Options of `train` that say what a new model, its tokenizer and its text are, or are of samples. */
const NOT_HERE = [
  ...['data', 'preset', 'init-from', 'new-data', 'layers', 'width', 'heads', 'kv-heads', 'hidden', 'vocab-size', 'tokenizer', 'separator'],
  ...['field', 'replace-invalid', 'sample-prompt', 'sample-tokens', 'sample-every'],
];

export const OPTIONS = /** @type {Record<string, import('helios-vk/options').Option>} */ ({
  model: {
    type: 'string',
    value: 'MODEL',
    path: 'input-any',
    help: "a model's folder, a run, or a GGUF file; with --resume: where the run's model is now, if it was moved",
  },
  data: {
    type: 'string',
    value: 'PATH',
    path: 'input-any',
    help: 'a folder with train.jsonl, valid.jsonl and test.jsonl, or one file:\nrows with messages, prompt and completion, or text',
  },
  type: { type: 'string', choices: TYPES, help: 'lora: adapters (default); qlora: beside weights of 8 bits; full: all weights' },
  rank: { type: 'integer', min: 1, max: 65_536, help: 'inner size of an adapter (default 8)' },
  alpha: { type: 'number', min: 0, help: 'what an adapter computes is multiplied by alpha / rank (default 2 · rank)' },
  targets: { type: 'string', value: 'NAMES', help: 'layers with an adapter, such as q_proj,v_proj (default all but the head)' },
  dropout: { type: 'number', min: 0, max: 0.99, help: "share of an adapter's inputs that are dropped (default 0)" },
  loss: { type: 'string', choices: LOSSES, help: 'sft (default); dpo: of rows with prompt, chosen and rejected' },
  beta: { type: 'number', min: 0, help: 'of dpo: a smaller one lets the model go further from where it began (default 0.1)' },
  'skip-unusable': { type: 'boolean', help: 'leave out rows that cannot be trained on; without this they are an error' },
  validation: { ...validation, help: 'of one file: the share of rows that is held out (default 0.05)' },
  out,
  resume,
  'block-size': { ...block, help: 'tokens of a window, into which rows are packed (default 1024, at most the context)' },
  precision: { ...precision, help: 'arithmetic of matrix products (default bf16, or f32 without matrix units for it)' },
  ...Object.fromEntries(Object.entries(others).filter(([name]) => !NOT_HERE.includes(name))),
});

/**
 * Runs the command.
 * @param {import('./train.mjs').TrainValues & { targets?: string }} values @param {string[]} _ @param {AbortSignal} signal
 * @returns {Promise<string>} what to print at the end
 */
export function run({ targets, ...values }, _, signal) {
  const names = targets === undefined || targets === 'all' ? targets : targets.split(',');
  if (Array.isArray(names) && names.includes('')) throw new UsageError(`--targets must be names with commas between them, got ${targets}`);
  return watch(finetune, { ...values, targets: names }, {}, signal);
}
