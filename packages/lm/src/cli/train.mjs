// `helios-lm train`: the command line of `train`.

import { join } from 'node:path';
import { launched } from 'helios-vk/distributed';
import { UsageError } from 'helios-vk/options';

import { formatCount } from '../log/format.mjs';
import { METRICS } from '../log/metrics.mjs';
import { servePage } from '../log/page.mjs';
import { Progress } from '../log/progress.mjs';
import { train } from '../train/run.mjs';
import { MAX_LAYERS, MAX_SIZE, MAX_STEPS, PRECISIONS, PRESET_NAMES, SCHEDULERS } from '../train/settings.mjs';
import { optionsOf } from './arguments.mjs';
import { showProgress } from './progress.mjs';

/** Earlier names of options, which still work. */
export const ALIASES = {
  block: 'block-size',
  vocab: 'vocab-size',
  steps: 'max-steps',
  batch: 'batch-size',
  'micro-steps': 'gradient-accumulation-steps',
  lr: 'learning-rate',
  warmup: 'warmup-steps',
  clip: 'max-grad-norm',
  'validation-every': 'eval-every',
  checkpoint: 'out',
  'checkpoint-every': 'save-every',
  keep: 'save-total-limit',
  sample: 'sample-prompt',
};

const size = (/** @type {string} */ help, most = MAX_SIZE) => /** @type {const} */ ({ type: 'integer', min: 1, max: most, help });
const steps = (/** @type {string} */ help, min = 0) => /** @type {const} */ ({ type: 'integer', min, max: MAX_STEPS, help });

/** How steps reach devices, and how processes work together: those of benches too. */
export const DEVICE_OPTIONS = /** @type {const} */ ({
  engine: { type: 'string', choices: ['mpi', 'nccl'], help: 'library that exchanges gradients between processes (default mpi)' },
  zero: {
    type: 'integer',
    min: 0,
    max: 3,
    help: 'what each process keeps a shard of: 1: the moments (the default with several);\n2: the gradients too; 3: the parameters too; 0: nothing',
  },
  reduce: { type: 'string', choices: ['f32', 'bf16'], help: 'type of the gradients that processes exchange (default f32)' },
  mode: {
    type: 'string',
    choices: ['graph', 'plain'],
    help: 'graph: record a step once and launch it (default); plain: submit its dispatches each step',
  },
  'command-buffers': { type: 'integer', min: 1, max: 64, help: 'submissions in flight (default 8, or 64 with several processes)' },
});

export const OPTIONS = /** @type {const} */ ({
  data: { type: 'string', value: 'PATH', path: 'input-any', help: 'a text, JSONL, Parquet or a folder, in place of the argument' },
  out: { type: 'string', value: 'FOLDER', path: 'output-folder', help: 'folder of the run (default runs/NAME of the text)' },
  preset: {
    type: 'string',
    value: 'NAME',
    choices: PRESET_NAMES,
    help: `${PRESET_NAMES.slice(0, 4).join(', ')},\n${PRESET_NAMES.slice(4).join(', ')}\n(default llama-tiny on a CPU device, else llama-30m)`,
  },
  'init-from': {
    type: 'string',
    value: 'PATH',
    path: 'input-any',
    help: "begin with the weights and the tokenizer of a model's folder,\na checkpoint or a GGUF file",
  },
  resume: { type: 'string', value: 'PATH', path: 'input-any', help: 'continue a run: its folder, or one of its checkpoints' },
  'new-data': { type: 'boolean', help: 'with --resume: accept other data than the run was trained on' },
  layers: size('layers', MAX_LAYERS),
  width: size('channels of the residual stream'),
  heads: size('attention heads'),
  'kv-heads': size('heads of keys and values'),
  hidden: size('channels of the hidden layer of the MLP'),
  'block-size': size('tokens of a sequence, and the context of a new model'),
  'vocab-size': size('ids of a new model, and at most so many of a tokenizer that is trained; 256: bytes'),
  tokenizer: {
    type: 'string',
    value: 'PATH',
    path: 'input-any',
    help: 'tokenizer.json, or a folder that has it (default: one is trained on the text)',
  },
  precision: {
    type: 'string',
    choices: PRECISIONS,
    help: 'arithmetic of matrix products (default f32 in most presets); the others need matrix units',
  },
  'max-steps': steps('optimizer steps', 1),
  'batch-size': size('sequences of a micro-step'),
  'gradient-accumulation-steps': size('micro-steps of an optimizer step, in each process'),
  'learning-rate': { type: 'number', min: 0, help: 'at the peak' },
  'lr-scheduler': {
    type: 'string',
    choices: SCHEDULERS,
    help: 'how the learning rate falls after the warm-up; wsd: over the last fifth (default cosine)',
  },
  'warmup-steps': steps('steps of linear warm-up'),
  'min-lr': { type: 'number', min: 0, help: "learning rate at the end (default the preset's, at most the peak)" },
  'weight-decay': { type: 'number', min: 0, help: 'of matrices; vectors do not decay' },
  'max-grad-norm': { type: 'number', min: 0, help: "clip the gradient's norm to this; 0: do not clip" },
  'grad-checkpoint': { type: 'boolean', help: 'compute each layer again in the backward pass: slower, with less memory' },
  seed: { type: 'integer', min: 0, max: 0xffffffff, help: 'seed of the initial weights and of the order of the data' },
  validation: { type: 'number', min: 0, max: 0.99, help: 'share of the text that is held out (default 0.05)' },
  separator: { type: 'string', help: 'text between two documents of a plain text' },
  field: { type: 'string', help: 'field of a line of JSONL, or column of Parquet (default text)' },
  'replace-invalid': { type: 'boolean', help: 'replace invalid UTF-8 by U+FFFD; without this it is an error' },
  'eval-every': steps('evaluate every N steps (default a tenth of all) and at the end; 0: only at the end'),
  'eval-batches': size('evaluate at most N batches (default 16)', 65_536),
  'early-stopping-patience': steps('end after N evaluations without a lower loss (default 0: never)'),
  'save-every': steps('write a checkpoint every N steps and at the end (default 0: only at the end)'),
  'save-total-limit': size('keep only the last N checkpoints of this run (default all)', MAX_STEPS),
  'sample-prompt': { type: 'string', empty: true, help: 'text that samples continue (default the beginning of the training text)' },
  'sample-tokens': { type: 'integer', min: 0, max: MAX_SIZE, help: 'tokens of a sample (default 100); 0: none' },
  'sample-every': steps('write a sample every N steps and at the end (default 0: only at the end)'),
  ui: { type: 'boolean', help: 'show the run on a page at 127.0.0.1' },
  port: { type: 'integer', min: 0, max: 65_535, help: "the page's port (default: a free one)" },
  'no-tensorboard': { type: 'boolean', help: 'write no event files' },
  ...DEVICE_OPTIONS,
  quiet: { type: 'boolean', help: 'print nothing but errors' },
  json: { type: 'boolean', help: 'print every event as a line of JSON' },
});

/**
 * Runs the command.
 * @param {import('helios-vk/options').ValuesOf<typeof OPTIONS>} values @param {string[]} inputs @param {AbortSignal} signal
 * @returns {Promise<string>} what to print at the end
 */
export async function run({ data, ...values }, inputs, signal) {
  if (data !== undefined && inputs.length > 0) throw new UsageError('the text is named twice: leave --data out');
  const paths = data === undefined ? inputs : [data];
  const showsProgress = !values.quiet && launched().rank === 0;
  return watch(
    train,
    values,
    {
      ...(paths.length > 0 ? { data: paths } : {}),
      onProgress: ({ stage, bytes, totalBytes }) => {
        const done = `${Math.floor((100 * bytes) / Math.max(1, totalBytes))} %`;
        if (showsProgress) showProgress(`${stage === 'tokenizer' ? 'training a tokenizer' : 'encoding'} ${done}`);
      },
    },
    signal,
  );
}

/**
 * Values of a command line that trains: those of its page and its output, and options of the function.
 * @typedef {{ ui?: boolean, port?: number, quiet?: boolean, json?: boolean, 'no-tensorboard'?: boolean, [name: string]: unknown }} TrainValues
 */

/**
 * Runs a command that trains, and shows its events.
 * @template {import('../train/run.mjs').TrainOptions | import('../train/finetune.mjs').FinetuneOptions} T
 * @param {(options: T) => AsyncIterable<import('../log/events.mjs').TrainEvent>} start @param {TrainValues} values of the command line
 * @param {Partial<T> & { data?: string | string[] }} more options @param {AbortSignal} signal
 * @returns {Promise<string>} what to print at the end
 */
export async function watch(start, { ui, port, quiet, json, 'no-tensorboard': plain, ...values }, more, signal) {
  if (port !== undefined && !ui) throw new UsageError('--port is for --ui');
  if (ui && quiet && !port) throw new UsageError('--quiet hides the address of the page: name its --port');
  // The table of options names them and says their types.
  const options = /** @type {T} */ (optionsOf(values));
  const other = launched().rank > 0;
  const progress = new Progress({ quiet: quiet || other });
  const history = options.out ? join(options.out, METRICS) : undefined;
  const page = ui && !other ? await servePage({ port, title: options.out ?? [more.data].flat()[0], history }) : undefined;
  try {
    const events = start({
      ...options,
      ...more,
      ...(plain ? { tensorboard: false } : {}),
      signal,
      note: (/** @type {string} */ text) => progress.note(text),
    });
    for await (const event of events) {
      if (event.type === 'start') {
        const { device, parameters, precision, trainTokens, validationTokens } = event;
        progress.note(`${device} · ${formatCount(parameters)} parameters · ${precision}`);
        progress.note(`${formatCount(trainTokens)} tokens to train on, ${formatCount(validationTokens)} held out`);
        if (page) progress.note(`the run is shown at ${page.url}`);
      }
      if (json && !other) process.stdout.write(`${JSON.stringify(event)}\n`);
      progress.push(event);
      page?.push(event);
    }
  } finally {
    progress.close();
    await page?.close();
  }
  return '';
}
