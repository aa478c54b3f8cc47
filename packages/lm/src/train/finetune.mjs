// Fine-tuning: a run that begins with a model, on conversations, prompts with completions, or texts. It trains all weights, or adapters
// beside weights that stay as they are, in 16 bits or quantized.

import { existsSync, statSync } from 'node:fs';
import { join, resolve as absolute } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { createKernels } from 'helios-vk/kernels';
import { manualSeed } from 'helios-vk/nn';
import { UsageError } from 'helios-vk/options';

import { openExamples } from '../data/examples.mjs';
import { openSource } from '../infer/weights.mjs';
import { addAdapters, chosenPlaces, quantizeLayers } from '../model/lora.mjs';
import { findModel, openModel } from '../open.mjs';
import { checkNames } from '../options.mjs';
import { loadTokenizer } from '../tokenizer/index.mjs';
import { loadCheckpoint } from './checkpoint.mjs';
import { checkResumed, checkSchedule, tokenizerOf } from './plan.mjs';
import { Run, start } from './run.mjs';
import { PRESETS, halfOf } from './settings.mjs';

/** @typedef {import('./settings.mjs').Settings} Settings */
/** @typedef {import('./settings.mjs').RunConfig} RunConfig */
/** @typedef {import('../config.mjs').ModelConfig} ModelConfig */

export const TYPES = /** @type {const} */ (['lora', 'full', 'qlora']);
export const LOSSES = /** @type {const} */ (['sft', 'dpo']);

/**
 * What a run trains of a model, which a resumed run keeps.
 * @typedef {object} Method
 * @property {typeof TYPES[number]} type `full`: all weights; `lora`: adapters beside weights that stay as they are, in 16 bits; `qlora`: the same
 *   beside weights of 8 bits
 * @property {number} rank of an adapter
 * @property {number} alpha what an adapter computes is multiplied by alpha / rank
 * @property {string[] | 'all'} targets linear layers with an adapter, by the last words of their names in transformers; all but the head
 * @property {number} dropout share of an adapter's inputs that are set to zero in training
 * @property {typeof LOSSES[number]} loss `sft`: the cross-entropy of what is to be learned; `dpo`: direct preference
 *   optimization, by which chosen answers become likelier than rejected ones
 * @property {number} beta of `dpo`: how closely the model stays to the one that the run began with; a smaller beta lets it go further
 * @property {number} validation of one file of data: the share of rows that is held out
 * @property {boolean} skipUnusable whether rows that cannot be trained on are left out
 *
 * As a checkpoint keeps it: with the path of the model that the run began with, and its configuration.
 * @typedef {Method & { base: string, model: ModelConfig }} Tuning
 */

/** What `finetune` takes besides; all as for `train`. */
const FROM_TRAIN = /** @type {const} */ ([
  ...['out', 'resume', 'evalEvery', 'evalBatches', 'saveEvery', 'saveTotalLimit', 'earlyStoppingPatience', 'tensorboard'],
  ...['mode', 'engine', 'zero', 'reduce', 'commandBuffers', 'signal', 'note', 'onDevice'],
]);

/**
 * Options of `finetune`, besides those of `Settings` and of `Method`: `lora` of rank 8, alpha 2 · rank, all targets and no dropout when left out.
 * @typedef {object} OwnOptions
 * @property {string} [model] a folder of Hugging Face's form, a GGUF file, or a run; a resumed run knows it
 * @property {string} [data] a folder with `train.jsonl`, and `valid.jsonl` and `test.jsonl` if there are; or one such file
 *
 * @typedef {OwnOptions & Partial<Method> & Partial<Settings> & Pick<import('./run.mjs').OwnOptions, typeof FROM_TRAIN[number]>} FinetuneOptions
 */

/** @type {Method} */
const METHOD = {
  type: 'lora',
  rank: 8,
  alpha: 16,
  targets: 'all',
  dropout: 0,
  loss: 'sft',
  beta: 0.1,
  validation: 0.05,
  skipUnusable: false,
};

/**
 * Fine-tunes a model, as `train` trains one: the same events, logs and checkpoints, which have adapters in PEFT's form unless the type is
 * `full`. The loss is the mean over the tokens that are to be learned: those of the assistant's turns, of completions, or of texts.
 * @param {FinetuneOptions} options
 * @returns {AsyncGenerator<import('../log/events.mjs').TrainEvent>}
 * @throws {UsageError} for options that are out of range, or contradict each other or what is on disk; {Error} for rows that cannot be trained on
 */
export async function* finetune(options) {
  options.signal?.throwIfAborted();
  yield* start(FineTune, await planOf(options));
}

/** What options ask for, checked as far as that goes without a device. @param {FinetuneOptions} given @returns {Promise<import('./run.mjs').Plan>} */
async function planOf(given) {
  const settings = Object.keys(PRESETS['gpt-tiny'].settings);
  checkNames('finetune', given, ['model', 'data', ...Object.keys(METHOD), ...FROM_TRAIN, ...settings]);
  const { resume } = given;
  if (resume === true && given.out === undefined)
    throw new UsageError('--resume needs --out FOLDER, the folder of the run, or a checkpoint');
  const begin = resume ? await loadCheckpoint(resume === true ? /** @type {string} */ (given.out) : resume) : undefined;
  if (begin && !begin.tuning) throw new UsageError(`--resume ${begin.path} is of no run that fine-tunes: helios-lm train continues it`);
  if (given.zero === 3) throw new UsageError('--zero 3 is of helios-lm train: a run that fine-tunes has whole weights in each process');
  /** @type {FinetuneOptions} */
  const own = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
  const options = { ...begin?.options, ...own, sampleTokens: 0 };
  if (begin) checkResumed(begin, given, options, Object.keys(METHOD));
  checkSchedule(given, begin);
  const { base, model: was } = begin?.tuning ?? {};
  // What a run began with may lie elsewhere by now.
  const isMoved = base !== undefined && given.model !== undefined && !existsSync(base);
  if (base !== undefined && given.model !== undefined && !isMoved && absolute(given.model) !== absolute(base))
    throw new UsageError(`--resume keeps the run's --model, ${base}: leave it out`);
  const [path, data] = [isMoved ? given.model : (base ?? given.model), given.data ?? begin?.data?.folder];
  if (path === undefined) throw new UsageError('name the model to fine-tune: --model MODEL');
  if (data === undefined) throw new UsageError('name the data: --data FOLDER with train.jsonl, or a file of JSONL');
  if (!existsSync(path))
    throw new UsageError(
      begin ? `${path}, which the run began with, is not there: --model names where it is now` : `--model ${path} does not exist`,
    );
  if (!existsSync(data)) throw new UsageError(`--data ${data} does not exist`);
  const isFolder = statSync(data).isDirectory();
  if (isFolder && !existsSync(join(data, 'train.jsonl'))) throw new UsageError(`--data ${data} has no train.jsonl`);
  if (isFolder && given.validation !== undefined) throw new UsageError('--validation is for one file: a folder has valid.jsonl');
  const from = await findModel(path);
  const tokenizer = tokenizerOf(from);
  if (tokenizer === undefined) throw new UsageError(`${path} has no tokenizer`);
  if (was && !isDeepStrictEqual(JSON.parse(JSON.stringify(from.config)), was))
    throw new UsageError(`${path} is another model than the run began with, ${base}`);
  // A path that does not depend on where the run is continued.
  const place = absolute(from.from);
  return {
    options,
    begin,
    from,
    tokenizer,
    data: [data],
    files: [data],
    // A run continues in its folder.
    out: given.out ?? (begin && join(begin.path, '..')),
    tuning: begin?.tuning ? { ...begin.tuning, base: place } : { ...methodOf(own, from.config), base: place, model: from.config },
  };
}

/** @param {Partial<Method>} given @param {ModelConfig} config of the model @returns {Method} */
function methodOf(given, config) {
  const { rank = METHOD.rank, type = METHOD.type } = given;
  const names = /** @type {(keyof Method)[]} */ (Object.keys(METHOD));
  const method = {
    ...METHOD,
    alpha: 2 * rank,
    ...Object.fromEntries(names.filter((name) => name in given).map((name) => [name, given[name]])),
  };
  if (!TYPES.includes(type)) throw new UsageError(`--type must be ${TYPES.join(', ')}, got ${type}`);
  if (!LOSSES.includes(method.loss)) throw new UsageError(`--loss must be ${LOSSES.join(' or ')}, got ${method.loss}`);
  if (!(method.beta > 0)) throw new UsageError(`--beta must be a number above 0, got ${method.beta}`);
  if (given.beta !== undefined && method.loss !== 'dpo') throw new UsageError('--beta is of --loss dpo');
  const ofAdapters = /** @type {const} */ (['rank', 'alpha', 'targets', 'dropout']).find((name) => given[name] !== undefined);
  if (type === 'full' && ofAdapters) throw new UsageError(`--${ofAdapters} is of adapters: leave it out, or --type full`);
  if (!(method.validation >= 0 && method.validation < 1))
    throw new UsageError(`--validation must be a share from 0 and below 1, got ${method.validation}`);
  const { alpha, targets, dropout } = method;
  try {
    if (type !== 'full') chosenPlaces(config, { rank, alpha, targets, dropout });
  } catch (error) {
    throw error instanceof RangeError ? new UsageError(error.message.replace(/^addAdapters: /, '--')) : error;
  }
  return method;
}

/** The type in which weights that stay as they are lie in files; f16 for q8_0. @param {string} path */
async function halfTypeOf(path) {
  const source = await openSource(path);
  await source.close();
  const type = source.keeps(source.parts[0]);
  return type === 'q8_0' ? 'f16' : type;
}

class FineTune extends Run {
  get tuning() {
    return /** @type {Tuning} */ (this.plan.tuning);
  }

  /** @param {ModelConfig} model @returns {Partial<Settings>} */
  defaults({ vocabSize, hidden, context }) {
    const hasUnits = createKernels(this.vk).matmulSupports('bf16') && vocabSize % 2 === 0 && hidden % 2 === 0;
    // Preferences take a lower rate.
    const rate = (this.tuning.type === 'full' ? 2e-5 : 2e-4) * (this.tuning.loss === 'dpo' ? 0.1 : 1);
    return {
      ...{ batchSize: 4, blockSize: Math.min(context, 1024), maxSteps: 400, warmupSteps: 20, precision: hasUnits ? 'bf16' : 'f32' },
      ...{ learningRate: rate, minLr: rate / 10, weightDecay: 0, beta2: 0.999 },
    };
  }

  /** @param {RunConfig} config @param {import('./checkpoint.mjs').Checkpoint | undefined} last */
  async model({ settings }, last) {
    const { type, base, rank, alpha, targets, dropout, loss } = this.tuning;
    // Pairs are compared with the model that the run began with.
    if (type === 'full') return super.model({ model: this.tuning.model, settings }, loss === 'dpo' ? undefined : last);
    const dtype = halfOf(settings.precision) || (await halfTypeOf(base));
    const { model } = await openModel(base, { dtype, signal: this.options.signal });
    if (type === 'qlora') quantizeLayers(model);
    manualSeed(settings.seed);
    return addAdapters(model, { rank, alpha, targets, dropout });
  }

  /** @param {RunConfig} config */
  async openData({ model, settings }) {
    const tokenizer = await loadTokenizer(/** @type {string} */ (this.plan.tokenizer));
    const { vocabSize, context } = model;
    const { validation, skipUnusable, loss, beta } = this.tuning;
    return openExamples(this.plan.data[0], {
      ...{ tokenizer, eos: model.eos[0] ?? tokenizer.special.eos, vocabSize, context, block: settings.blockSize },
      ...{ validation, skipUnusable, beta: loss === 'dpo' ? beta : undefined, note: this.first ? this.note : undefined },
    });
  }
}
