#!/usr/bin/env node
// Trains a GPT through helios-vk: `npm run train`, or `node benches/train.mjs --help`.

import { createRequire } from 'node:module';
import { isDeepStrictEqual } from 'node:util';
import {
  CHECKPOINT_FILES,
  checkFolder,
  checkpointPath,
  checkpointsOf,
  identityOf,
  loadCheckpoint,
  stepOf,
} from '../packages/lm/src/train/checkpoint.mjs';
import {
  MAX_LAYERS,
  MAX_SIZE,
  MAX_STEPS,
  PRESET_NAMES,
  checkConfig,
  flatConfig,
  flopsPerToken,
  presetOf,
  withValues,
} from '../packages/lm/src/train/config.mjs';
import {
  checkSameData,
  dataInfo,
  firstLine,
  loadText,
  splitTokens,
  stepBatch,
  textFiles,
  unigramEntropy,
} from '../packages/lm/src/train/data.mjs';
import { FolderLock, writeOutput } from '../packages/lm/src/train/outputs.mjs';
import { measurePeak } from './lib/peak.mjs';
import { productLines, profileTable } from '../packages/lm/src/train/profile.mjs';
import { Progress, formatBytes, formatCount, formatDuration, formatFlops } from '../packages/lm/src/train/progress.mjs';
import { agree, attemptOf, openRanks, shareOf } from '../packages/lm/src/train/ranks.mjs';
import { trainingReport } from './lib/training-report.mjs';
import { recentRate, runTraining } from '../packages/lm/src/train/run.mjs';
import { sample } from '../packages/lm/src/train/sample.mjs';
import { writeTensors } from '../packages/lm/src/train/safetensors.mjs';
import { parameterCount } from '../packages/lm/src/train/state.mjs';
import { restoreTokenizer, trainTokenizer } from '../packages/lm/src/train/tokenizer.mjs';
import { driverText } from './lib/addon.mjs';
import { UsageError, checkPaths, isSameFile, runMain } from './lib/args.mjs';
import { RESULTS_OPTION, writeResults } from './lib/results.mjs';
import { extremes, median } from './lib/stats.mjs';

/** @typedef {import('../packages/lm/src/train/config.mjs').GptConfig} GptConfig */
/** @typedef {import('../packages/lm/src/train/config.mjs').FlatConfig} FlatConfig */

const USAGE = 'npm run train -- [options]\n       helios-vk run --nproc N benches/train.mjs [options]';
const OPTIONS = /** @type {const} */ ({
  preset: {
    type: 'string',
    value: 'NAME',
    choices: PRESET_NAMES,
    help:
      'gpt-tiny, gpt-30m or gpt-300m (default gpt-tiny on a CPU device, else gpt-30m);\n' +
      'their earlier names tiny, small and mission still work',
  },
  layers: { type: 'integer', min: 1, max: MAX_LAYERS, help: 'decoder layers' },
  width: { type: 'integer', min: 1, max: MAX_SIZE, help: 'channels of the residual stream' },
  heads: { type: 'integer', min: 1, max: MAX_SIZE, help: 'attention heads' },
  hidden: { type: 'integer', min: 1, max: MAX_SIZE, help: 'channels of the SwiGLU hidden layer' },
  block: { type: 'integer', min: 1, max: MAX_SIZE, help: 'context length' },
  vocab: { type: 'integer', min: 1, max: MAX_SIZE, help: '256: tokens are bytes; more: train byte-level BPE on the data' },
  precision: {
    type: 'string',
    choices: ['f32', 'f16', 'bf16', 'bf16x3'],
    help: 'arithmetic of matrix products (default f32); the others need matrix units',
  },
  steps: { type: 'integer', min: 1, max: MAX_STEPS, help: 'optimizer steps' },
  batch: { type: 'integer', min: 1, max: MAX_SIZE, help: 'sequences in a micro-step' },
  'micro-steps': { type: 'integer', min: 1, max: MAX_SIZE, help: 'micro-steps of an optimizer step, in each process' },
  seed: { type: 'integer', min: 0, max: 0xffffffff, help: 'seed of the initial weights and of the data order' },
  lr: { type: 'number', min: 0, help: 'peak learning rate' },
  'min-lr': { type: 'number', min: 0, help: "learning rate at the last step (default the preset's, at most the peak)" },
  warmup: { type: 'integer', min: 0, max: MAX_STEPS, help: 'optimizer steps of linear warm-up' },
  'weight-decay': { type: 'number', min: 0, help: 'weight decay of matrices; norms do not decay' },
  clip: { type: 'number', min: 0, help: "clip the gradient's norm to this; 0: do not clip" },
  data: {
    type: 'string',
    value: 'FILE',
    path: 'input',
    help: "UTF-8 text to train on (default a public-domain novel from npm,\nor the resumed run's text)",
  },
  validation: {
    type: 'number',
    min: 0,
    max: 0.5,
    help: "hold out this share of the text, from its end, and report the loss on it\n(default 0, or the resumed run's share)",
  },
  'validation-every': {
    type: 'integer',
    min: 0,
    help: 'report it every N steps (default a tenth of all) and at the end; 0: only at the end',
  },
  'replace-invalid': { type: 'boolean', help: 'replace invalid UTF-8 in the text by U+FFFD; otherwise it is an error' },
  checkpoint: {
    type: 'string',
    value: 'DIR',
    path: 'output-folder',
    files: CHECKPOINT_FILES,
    help: 'write a checkpoint into this folder at the end, on Ctrl-C and on SIGTERM;\nthe folder must not hold checkpoints of another run',
  },
  'checkpoint-every': { type: 'integer', min: 0, help: 'also write a checkpoint every N steps' },
  'checkpoint-at-start': { type: 'boolean', help: 'also write a checkpoint before the first step' },
  keep: { type: 'integer', min: 1, help: 'keep only the last N checkpoints of this run (default all)' },
  resume: {
    type: 'string',
    value: 'FILE|DIR',
    path: 'input-any',
    files: CHECKPOINT_FILES,
    help: 'continue from a checkpoint, or from the latest one in a folder',
  },
  engine: { type: 'string', choices: ['mpi', 'nccl'], help: 'library that exchanges gradients between processes (default mpi)' },
  zero: {
    type: 'integer',
    min: 0,
    max: 1,
    help: '1: each process keeps a shard of the optimizer state (ZeRO-1, the default\nwith several processes); 0: each process keeps all of it',
  },
  reduce: { type: 'string', choices: ['f32', 'bf16'], help: 'type of the gradients that processes exchange (default f32)' },
  mode: {
    type: 'string',
    choices: ['graph', 'plain'],
    default: 'graph',
    help: 'graph: record a step once and launch it; plain: submit its dispatches each step',
  },
  sample: { type: 'string', empty: true, help: 'prompt of the text that is generated at the end' },
  'sample-tokens': { type: 'integer', min: 0, max: MAX_SIZE, default: 200, help: 'tokens to generate at the end; 0: none' },
  'command-buffers': { type: 'integer', min: 1, max: 64, help: 'submissions in flight (default 8, or 64 with several processes)' },
  peak: { type: 'boolean', help: "measure the device's peak matrix rate first, and report the share of it that training reaches" },
  json: { type: 'string', value: 'FILE', path: 'output', help: 'write the results as JSON' },
  ...RESULTS_OPTION,
  report: { type: 'string', value: 'FILE', path: 'output', help: 'write the results as an HTML page with charts' },
  'dump-batches': {
    type: 'string',
    value: 'FILE',
    path: 'output',
    help: "write every step's batches (safetensors), for benches/pytorch/train.py",
  },
  'dump-weights': { type: 'string', value: 'FILE', path: 'output', help: 'write the weights before the first step (safetensors)' },
  'kernel-times': { type: 'boolean', help: "report a step's GPU time by line of the model, with timestamps around each dispatch" },
  profile: {
    type: 'string',
    value: 'FILE',
    path: 'output',
    help: 'report GPU time by pipeline and host time by call; write a Perfetto trace to FILE',
  },
  quiet: { type: 'boolean', help: 'print nothing but errors' },
});

/** @typedef {import('./lib/args.mjs').ValuesOf<typeof OPTIONS>} Values */

/** Options that set a number of the configuration, and its key there. */
const NUMBERS = /** @type {const} */ ({
  layers: 'layers',
  width: 'width',
  heads: 'heads',
  hidden: 'hidden',
  block: 'block',
  vocab: 'vocab',
  batch: 'batch',
  'micro-steps': 'microSteps',
  steps: 'steps',
  lr: 'lr',
  'min-lr': 'minLr',
  warmup: 'warmup',
  'weight-decay': 'weightDecay',
  clip: 'clip',
  seed: 'seed',
});

/** Signals on which a run ends in an orderly way: Ctrl-C, a scheduler's request, a terminal that closes. */
const STOPS = /** @type {const} */ (['SIGINT', 'SIGTERM', 'SIGHUP']);

/** A resumed run keeps its model and data order; only these options may change. */
const CHANGEABLE = new Set(['steps', 'lr', 'min-lr', 'warmup', 'weight-decay', 'clip', 'precision']);

/**
 * The configuration that the options ask for.
 * @param {Values} values parsed options
 * @param {GptConfig} base a preset, or the configuration of the checkpoint to continue from
 * @param {boolean} resumed
 * @param {number} size number of processes; each makes as many micro-steps as the options or the preset say
 * @returns {GptConfig}
 */
function configOf(values, base, resumed, size) {
  /** @type {Partial<Record<keyof FlatConfig, unknown>>} */
  const given = {};
  for (const [option, key] of /** @type {[keyof typeof NUMBERS, keyof FlatConfig][]} */ (Object.entries(NUMBERS))) {
    const value = values[option];
    if (value === undefined) continue;
    if (resumed && !CHANGEABLE.has(option)) {
      throw new UsageError(`--resume keeps the checkpoint’s ${option}; leave --${option} out`);
    }
    given[key] = value;
  }
  if (values.precision !== undefined) given.precision = values.precision;
  const config = withValues(base, /** @type {Partial<FlatConfig>} */ (given));
  const { training } = config;
  if (!resumed) training.microSteps *= size;
  // A preset's warm-up belongs to its own number of steps.
  if (values.warmup === undefined && training.warmup >= training.steps) training.warmup = Math.floor(training.steps / 10);
  // And its learning rate at the end belongs to its own peak.
  if (values['min-lr'] === undefined) training.minLr = Math.min(training.minLr, training.lr);
  else if (training.minLr > training.lr) {
    throw new UsageError(`--min-lr ${training.minLr}: must be at most the learning rate at the peak, ${training.lr}`);
  }
  return checkConfig(config);
}

/**
 * The text that `--data` names, else the text of the checkpoint to continue from.
 * @param {string | undefined} option
 * @param {import('../packages/lm/src/train/data.mjs').DataInfo | undefined} trained the checkpoint's
 * @param {boolean} replaceInvalid
 */
async function textOf(option, trained, replaceInvalid) {
  if (option !== undefined || trained?.file === undefined) return loadText(option, { replaceInvalid });
  try {
    return await loadText(trained.file, { replaceInvalid });
  } catch (cause) {
    const { message } = /** @type {Error} */ (cause);
    throw new Error(`the text that the checkpoint was trained on: ${message}; if it lies elsewhere, pass --data FILE`, {
      cause,
    });
  }
}

/** @param {Values} values */
async function main(values) {
  for (const name of /** @type {const} */ (['checkpoint-every', 'checkpoint-at-start', 'keep'])) {
    if (values[name] && values.checkpoint === undefined) throw new UsageError(`--${name} needs --checkpoint DIR`);
  }
  /** @type {typeof import('../index.js')} */
  const vk = createRequire(import.meta.url)('../index.js');
  const { info, ranks } = await openRanks(vk, /** @type {import('../packages/lm/src/train/ranks.mjs').RanksOptions} */ (values));
  try {
    await train(values, vk, info, ranks);
    // The other ranks wait here while rank 0 works alone.
    await ranks?.group.destroy();
  } catch (error) {
    ranks?.group.abort(/** @type {Error} */ (error).message);
    throw error;
  }
  vk.destroy();
}

/**
 * @param {Values} values
 * @param {typeof import('../index.js')} vk
 * @param {import('../index.js').DeviceInfo} info
 * @param {import('../packages/lm/src/train/ranks.mjs').TrainingRanks | undefined} ranks
 */
async function train(values, vk, info, ranks) {
  const checkpointEvery = values['checkpoint-every'] ?? 0;
  const group = ranks?.group;
  const size = group?.worldSize ?? 1;
  /** Whether this process writes files and prints. */
  const first = group === undefined || group.rank === 0;
  const quiet = values.quiet || !first;
  const progress = new Progress(process.stderr, { quiet });
  const lock = values.checkpoint === undefined || !first ? undefined : await FolderLock.take(values.checkpoint);
  const isCpu = info.deviceTypeName === 'cpu';

  const resumed = values.resume === undefined ? undefined : await loadCheckpoint(values.resume);
  if (resumed && values.preset !== undefined) {
    throw new UsageError('--resume keeps the checkpoint’s model; leave --preset out');
  }
  if (resumed && values.validation !== undefined) {
    throw new UsageError('--resume keeps what the checkpoint held back; leave --validation out');
  }
  const preset = presetOf(values.preset ?? (isCpu ? 'gpt-tiny' : 'gpt-30m'));
  const config = configOf(values, resumed?.config ?? preset, resumed !== undefined, size);
  const { model, training } = config;
  const { run: launch, restarted } = attemptOf();
  const run = identityOf(resumed, launch);
  const last =
    restarted && group && values.checkpoint !== undefined
      ? await lastOf(group, values.checkpoint, run, resumed?.step ?? -1, config)
      : undefined;
  const begin = last ?? resumed;
  const firstStep = begin?.step ?? 0;
  if (lock && values.checkpoint !== undefined) {
    await checkFolder(values.checkpoint, run, firstStep);
    if (resumed && values['checkpoint-at-start'] && isSameFile(resumed.path, checkpointPath(values.checkpoint, resumed.step))) {
      throw new UsageError(`--checkpoint-at-start would write ${resumed.path}, which --resume reads: that checkpoint exists already`);
    }
  }
  if (firstStep >= training.steps) {
    throw new UsageError(
      `the checkpoint is of step ${firstStep}, so --steps ${training.steps} is done: give more --steps to continue, or write text with npm run generate`,
    );
  }

  const texts = textFiles(values.data ?? resumed?.data?.file);
  checkPaths(OPTIONS, { ...values, data: undefined }, Object.fromEntries(texts.map((path) => [`the text to train on, ${path}`, path])));
  const source = await textOf(values.data, resumed?.data, values['replace-invalid']);
  const { name: dataName, text } = source;
  const tokenizer = resumed ? await restoreTokenizer(resumed.tokenizer) : await trainTokenizer(text, model.vocab);
  const all = await tokenizer.encode(text);
  const held = resumed ? (resumed.data?.validation ?? 0) : Math.floor((values.validation ?? 0) * all.length);
  if (values.validation && held === 0) {
    throw new UsageError(`--validation ${values.validation}: that share of the text's ${all.length} tokens is less than one token`);
  }
  const { training: tokens, validation } = splitTokens(all, held, model.block);
  if (values['validation-every'] !== undefined && validation === undefined) {
    throw new UsageError('--validation-every needs --validation SHARE');
  }
  const data = dataInfo(source, all, held);
  if (begin?.data) checkSameData(begin.data, data);
  const validationEvery = values['validation-every'] ?? Math.max(1, Math.ceil(training.steps / 10));
  if (ranks) {
    // Data by content: the file may be at another path on each host.
    const { sha256, tokens: count, validation: share } = data;
    const options = {
      zero: ranks.zero,
      reduce: ranks.reduce,
      checkpoint: values.checkpoint !== undefined,
      'checkpoint-every': checkpointEvery,
      'checkpoint-at-start': values['checkpoint-at-start'],
      'validation-every': validationEvery,
    };
    const named = Object.entries(options).map(([name, value]) => [`--${name}`, value]);
    await agree(ranks.group, {
      ...flatConfig(config),
      ...Object.fromEntries(named),
      'first step': firstStep,
      data: { sha256, count, share },
    });
  }
  const entropy = unigramEntropy(tokens);
  const count = parameterCount(model);
  const several =
    ranks && `${size} ${size === 1 ? 'process' : 'processes'} over ${ranks.engine}, ZeRO ${ranks.zero}, gradients in ${ranks.reduce}`;
  progress.note(
    `${info.deviceName} · ${formatCount(count)} parameters · ${training.precision} · seed ${training.seed}${several ? ` · ${several}` : ''}`,
  );
  if (last) progress.note(`continuing from ${last.path}`);
  progress.note(
    `${dataName}: ${formatCount(text.length)} bytes, ${formatCount(all.length)} tokens of ${tokenizer.size}, ` +
      (held > 0 ? `the last ${formatCount(held)} for validation, ` : '') +
      `unigram entropy ${entropy.toFixed(4)}, ln(vocabulary) ${Math.log(model.vocab).toFixed(4)}`,
  );
  if (values['dump-batches'] !== undefined && first) await dumpBatches(values['dump-batches'], config, tokens);

  const peak = values.peak && first ? measurePeak(vk, training.precision) : undefined;
  if (peak !== undefined) progress.note(`matrix rate ${formatFlops(peak)} (${training.precision})`);

  let interrupted = false;
  const interrupt = (/** @type {NodeJS.Signals} */ _, /** @type {number} */ number) => {
    if (interrupted) process.exit(128 + number);
    interrupted = true;
    progress.note('stopping after this step; another signal ends the process at once');
  };
  for (const signal of STOPS) process.on(signal, interrupt);
  const started = performance.now();
  progress.begin(firstStep);
  /** @type {import('../packages/lm/src/train/progress.mjs').ProgressState} */
  let state = { step: firstStep, steps: training.steps };
  const { trainer, losses, rates, hostTimes, validations, restarts } = await runTraining({
    vk,
    config,
    tokenizer: tokenizer.state,
    data,
    tokens,
    validation,
    validationEvery,
    mode: /** @type {'graph' | 'plain'} */ (values.mode),
    profile: values.profile === undefined || !first ? undefined : () => void vk.profileStart({ trace: values.profile }),
    resumed: begin,
    ranks,
    run,
    checkpoints: values.checkpoint,
    lock,
    checkpointEvery,
    checkpointAtStart: values['checkpoint-at-start'],
    dumpWeights: values['dump-weights'],
    keep: values.keep,
    stopped: () => interrupted,
    note: (line) => progress.note(line),
    onStep: ({ stepsDone, known, finished, pauses, tokensPerStep }) => {
      const tokensPerSecond = recentRate(finished, tokensPerStep, pauses);
      state = { step: stepsDone, steps: training.steps, loss: lastLoss(known, stepsDone), tokensPerSecond };
      progress.update(state);
    },
  }).finally(() => progress.end(state));
  for (const signal of STOPS) process.off(signal, interrupt);
  const seconds = (performance.now() - started) / 1000;
  const profile = values.profile === undefined || !first ? undefined : vk.profileStop();
  if (!first) return trainer.destroy();

  const sampleTokens = values['sample-tokens'];
  const prompt = values.sample ?? firstLine(text, 40);
  const written = sampleTokens > 0 ? await sample(trainer.generator, tokenizer, prompt, { tokens: sampleTokens, seed: training.seed }) : '';

  const kernelTimes = values['kernel-times'] ? await trainer.kernelTimes() : undefined;

  const lossList = Array.from({ length: trainer.stepsDone - firstStep }, (_, i) => losses.get(firstStep + i) ?? NaN);
  // The loss of a single step is noisy; the run's loss is the mean over its last tenth, but at least over ten steps.
  const tail = lossList.slice(-Math.max(10, Math.ceil(lossList.length / 10)));
  // An interrupted run may not have finished any step.
  const middle = (/** @type {number[]} */ values) => (values.length > 0 ? median(values) : NaN);
  const rate = middle(rates);
  const flops = flopsPerToken(model);
  const result = {
    device: info.deviceName,
    driver: driverText(info),
    driverVersion: info.driverVersion,
    driverInfo: info.driverInfo,
    config: flatConfig(config),
    parameters: count,
    mode: trainer.mode,
    ranks: ranks && { size, ...shareOf(training, size), zero: ranks.zero, reduce: ranks.reduce, engine: ranks.engine },
    dispatchesPerStep: trainer.dispatches,
    data: dataName,
    tokens: tokens.length,
    unigramEntropy: entropy,
    firstStep,
    losses: lossList,
    validation:
      validation === undefined
        ? undefined
        : { tokens: held, predicted: trainer.validationTokens, losses: [...validations].map(([step, loss]) => ({ step, loss })) },
    finalLoss: tail.reduce((a, b) => a + b, 0) / tail.length,
    tokensPerSecond: { median: rate, ...extremes(rates), perStep: rates },
    hostMillisecondsPerStep: middle(hostTimes),
    flopsPerToken: flops,
    matrixRate: peak,
    // Of all devices' rates together.
    matrixShare: peak === undefined ? undefined : (rate * flops) / (peak * size),
    memoryBytes: /** @type {number | undefined} */ (vk.getAllocatorStats?.().activeBufferBytes),
    seconds,
    restarts,
    sample: written,
    kernelTimes,
    profile,
  };
  if (values.json !== undefined) await writeOutput(values.json, `${JSON.stringify(result, null, 1)}\n`);
  if (values.report !== undefined) await writeOutput(values.report, trainingReport(result));
  if (values.results !== undefined) {
    const group = `GPT of ${formatCount(count)} parameters, batch ${training.batch}×${training.microSteps}`;
    const series = `helios-vk, ${training.precision}${several ? `, ${several}` : ''}`;
    writeResults(values.results, {
      bench: 'train',
      title: `A training run of ${lossList.length} steps on ${dataName}`,
      device: info.deviceName,
      driver: info.driverInfo,
      figures: [
        { group, name: 'tokens a second', series, unit: 'tok/s', value: rate, runs: rates },
        { group, name: 'host time a step', series, unit: 'ms', value: result.hostMillisecondsPerStep },
        { group, name: 'mean loss of the last steps', series, unit: 'nats', value: result.finalLoss },
      ],
    });
  }
  // Last, because writing fails where standard output is closed.
  if (!quiet) process.stdout.write(summary(result, tail.length));
  trainer.destroy();
}

/**
 * The checkpoint that a restart continues from: the last one that this run has written since it began or was resumed, as rank 0 sees it.
 * @param {import('../packages/lm/src/train/ranks.mjs').TrainingRanks['group']} group
 * @param {string} folder @param {string | undefined} run @param {number} after look only at checkpoints of more steps than this
 * @param {GptConfig} config the configuration that it must have
 */
async function lastOf(group, folder, run, after, config) {
  const own = group.rank === 0 ? (await checkpointsOf(folder, run)).filter((path) => stepOf(path) > after) : [];
  const [path] = await group.exchange(own.at(-1) ?? null);
  if (path === null) return undefined;
  const found = await loadCheckpoint(path);
  if (!isDeepStrictEqual(found.config, config)) throw new Error(`cannot continue from ${path}: it is of a run with other options`);
  return found;
}

/**
 * The summary that a run prints at its end.
 * @param {any} result @param {number} averaged number of steps that the loss is the mean of
 */
function summary(result, averaged) {
  const { tokensPerSecond: rate, matrixShare: share, memoryBytes: memory, validation } = result;
  const lines = [
    `loss              ${result.finalLoss.toFixed(4)} (mean of the last ${averaged} steps; ` +
      `first step ${result.losses[0]?.toFixed(4)}; unigram entropy ${result.unigramEntropy.toFixed(4)})`,
    ...(validation === undefined
      ? []
      : [`validation loss   ${validation.losses.at(-1).loss.toFixed(4)} (${formatCount(validation.predicted)} held-out tokens)`]),
    `tokens a second   ${formatCount(rate.median)} (median of ${rate.perStep.length} steps), ` +
      formatFlops(rate.median * result.flopsPerToken) +
      (share === undefined ? '' : `, ${(100 * share).toFixed(1)} % of the device's matrix rate`),
    `host time a step  ${result.hostMillisecondsPerStep.toFixed(3)} ms for ` +
      `${formatCount(result.dispatchesPerStep)} dispatches (${result.mode})`,
    `device memory     ${memory === undefined ? 'unknown' : formatBytes(memory)}`,
    `time              ${formatDuration(result.seconds * 1000)}`,
  ];
  if (result.kernelTimes) lines.push('', ...kernelTable(result.kernelTimes), '', ...productLines(result.kernelTimes));
  if (result.profile) lines.push('', ...profileTable(result.profile));
  return `${lines.join('\n')}\n${result.sample ? `\n${result.sample}\n` : ''}`;
}

/**
 * @param {import('../packages/lm/src/train/profile.mjs').KernelTime[]} times
 * @returns {string[]} lines
 */
function kernelTable(times) {
  const total = times.reduce((sum, { microseconds }) => sum + microseconds, 0);
  const rows = times.map(({ role, count, microseconds, flops }) => [
    (microseconds / 1000).toFixed(3),
    `${((100 * microseconds) / total).toFixed(1)} %`,
    formatCount(count),
    flops > 0 ? formatFlops(flops / (microseconds * 1e-6)) : '',
    role,
  ]);
  const all = [['GPU ms', 'share', 'count', 'rate', 'kernel'], ...rows, [(total / 1000).toFixed(3), '', '', '', 'sum']];
  const widths = all[0].map((_, column) => Math.max(...all.map((row) => row[column].length)));
  return all.map((row) => row.map((cell, i) => (i === 4 ? cell : cell.padStart(widths[i]))).join('  '));
}

/** The latest known loss of the last hundred steps. @param {Map<number, number>} losses @param {number} step */
function lastLoss(losses, step) {
  for (let i = step - 1; i >= 0 && i >= step - 100; i--) {
    const loss = losses.get(i);
    if (loss !== undefined) return loss;
  }
  return undefined;
}

/** Most ids of a file of batches: they are in memory at once. */
const MAX_DUMP = 2 ** 30;

/** Writes the batches of every step. @param {string} path @param {GptConfig} config @param {Uint32Array} tokens */
async function dumpBatches(path, config, tokens) {
  const flat = flatConfig(config);
  const { steps, microSteps, batch, block } = flat;
  const stride = 2 * microSteps * batch * block;
  if (steps * stride > MAX_DUMP) {
    throw new UsageError(
      `--dump-batches: ${steps} steps have ${steps * stride} ids, and a file has at most ${MAX_DUMP}: use fewer --steps`,
    );
  }
  const all = new Uint32Array(steps * stride);
  for (let step = 0; step < steps; step++) stepBatch(tokens, flat, step, all.subarray(step * stride, (step + 1) * stride));
  // Ids are below 2^31, so the same bytes are valid as I32, which every reader supports.
  await writeTensors(path, [{ name: 'batches', dtype: 'I32', shape: [steps, microSteps, 2, batch, block], data: () => all }], {
    config: JSON.stringify(flat),
  });
}

await runMain(USAGE, OPTIONS, main);
