#!/usr/bin/env node
// Measures training: tokens a second, host time and memory of the steps that `helios-lm train` makes, on one device or several.

import { createHash } from 'node:crypto';
import { createRequire } from 'node:module';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { encodeHeader, writeSafetensors } from 'helios-vk/files';
import { save, tuningSummary } from 'helios-vk/nn';

import { formatBytes, formatCount, formatDuration } from '../packages/lm/src/log/format.mjs';
import { DEVICE_OPTIONS } from '../packages/lm/src/cli/train.mjs';
import { parameterCount } from '../packages/lm/src/model/parts.mjs';
import { writeOutput } from '../packages/lm/src/train/outputs.mjs';
import { formatFlops, productLines, profileTable, tuningLine } from '../packages/lm/src/train/profile.mjs';
import { agree, openRanks, shareOf } from '../packages/lm/src/train/ranks.mjs';
import { WARMUP_STEPS, stepRates } from '../packages/lm/src/train/run.mjs';
import { MAX_STEPS, PRECISIONS, flopsPerToken, tokensPerStep } from '../packages/lm/src/train/settings.mjs';
import { Trainer, stepBatch } from '../packages/lm/src/train/trainer.mjs';
import { driverText } from './lib/addon.mjs';
import { UsageError, runMain } from '../bin/lib/options.mjs';
import { measurePeak } from './lib/peak.mjs';
import { RESULTS_OPTION, writeResults } from './lib/results.mjs';
import { extremes, mean, median } from './lib/stats.mjs';
import { TRAINING_OPTIONS, configFrom, encodeText, flatConfig, windowsOf } from './lib/training.mjs';
import { trainingReport } from './lib/training-report.mjs';

/** @typedef {import('../packages/lm/src/train/settings.mjs').RunConfig} RunConfig */

const USAGE = 'node benches/train.mjs [options]\n       helios-vk run --nproc N benches/train.mjs [options]';
const OPTIONS = /** @type {const} */ ({
  ...TRAINING_OPTIONS,
  precision: {
    type: 'string',
    choices: PRECISIONS,
    help: "arithmetic of matrix products (default the preset's); all but f32 need matrix units",
  },
  steps: { type: 'integer', min: 1, max: MAX_STEPS, default: 20, help: 'optimizer steps, and the length of the schedule' },
  'min-lr': { type: 'number', min: 0, help: "learning rate at the last step (default the preset's, at most the peak)" },
  warmup: { type: 'integer', min: 0, max: MAX_STEPS, help: 'optimizer steps of linear warm-up' },
  'weight-decay': { type: 'number', min: 0, help: 'weight decay of matrices; vectors do not decay' },
  clip: { type: 'number', min: 0, help: "clip the gradient's norm to this; 0: do not clip" },
  'grad-checkpoint': { type: 'boolean', help: 'compute each layer again in the backward pass' },
  ...DEVICE_OPTIONS,
  peak: { type: 'boolean', help: "measure the device's peak matrix rate first, and report the share of it that training reaches" },
  'kernel-times': { type: 'boolean', help: "report a step's GPU time by line of the model, with timestamps around each dispatch" },
  profile: {
    type: 'string',
    value: 'FILE',
    path: 'output',
    help: 'report GPU time by pipeline and host time by call; write a Perfetto trace to FILE',
  },
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
  quiet: { type: 'boolean', help: 'print nothing but errors' },
});

/** @typedef {import('../bin/lib/options.mjs').ValuesOf<typeof OPTIONS>} Values */

/** Most ids of a file of batches: they are in memory at once. */
const MAX_DUMP = 2 ** 30;

await runMain(USAGE, OPTIONS, async (values) => {
  /** @type {typeof import('../index.js')} */
  const vk = createRequire(import.meta.url)('../index.js');
  const { info, ranks } = await openRanks(vk, /** @type {import('../packages/lm/src/train/ranks.mjs').RanksOptions} */ (values));
  try {
    await measure(values, vk, info, ranks);
    // The other ranks wait here while rank 0 works alone.
    await ranks?.group.destroy();
  } catch (error) {
    ranks?.group.abort(/** @type {Error} */ (error).message);
    throw error;
  }
  vk.destroy();
});

/**
 * @param {Values} values
 * @param {typeof import('../index.js')} vk
 * @param {import('../index.js').DeviceInfo} info
 * @param {import('../packages/lm/src/train/ranks.mjs').TrainingRanks | undefined} ranks
 */
async function measure(values, vk, info, ranks) {
  const size = ranks?.group.worldSize ?? 1;
  /** Whether this process writes files and prints. */
  const first = !ranks || ranks.group.rank === 0;
  const note = (/** @type {string} */ text) => void (values.quiet || !first || process.stderr.write(`${text}\n`));

  const preset = values.preset ?? (info.deviceTypeName === 'cpu' ? 'gpt-tiny' : 'gpt-30m');
  const config = configFrom(preset, values, size);
  const { model, settings } = config;
  const { name: dataName, bytes, tokens } = await encodeText(values.data, model.vocabSize);
  const data = windowsOf(tokens, settings.blockSize);
  if (ranks) {
    const { zero, reduce } = ranks;
    await agree(ranks.group, { ...flatConfig(config), zero, reduce, data: createHash('sha256').update(tokens).digest('hex') });
  }
  const count = parameterCount(model);
  const several =
    ranks && `${size} ${size === 1 ? 'process' : 'processes'} over ${ranks.engine}, ZeRO ${ranks.zero}, gradients in ${ranks.reduce}`;
  note(`${[info.deviceName, `${formatCount(count)} parameters`, settings.precision, ...(several ? [several] : [])].join(' · ')}`);
  note(`${dataName}: ${formatCount(bytes)} bytes, ${formatCount(tokens.length)} tokens`);
  if (values['dump-batches'] !== undefined && first) await dumpBatches(values['dump-batches'], config, data);
  const peak = values.peak && first ? measurePeak(vk, settings.precision) : undefined;
  if (peak !== undefined) note(`matrix rate ${formatFlops(peak)} (${settings.precision})`);

  const profiled = values.profile !== undefined && first;
  if (profiled) vk.profileStart({ trace: values.profile });
  const trainer = new Trainer(vk, config, { data, mode: /** @type {'graph' | 'plain'} */ (values.mode), ranks });
  // All processes have the same weights.
  if (values['dump-weights'] !== undefined && trainer.sharded)
    throw new UsageError('--dump-weights: with --zero 3 no process has all weights');
  if (values['dump-weights'] !== undefined && first) await save(values['dump-weights'], trainer.model.stateDict());
  const started = performance.now();
  while (await trainer.ready()) {
    await trainer.step();
    // Lets promises of losses resolve between steps.
    await nextTurn();
  }
  await trainer.settle();
  const seconds = (performance.now() - started) / 1000;
  const profile = profiled ? vk.profileStop() : undefined;
  const timed = tuningLine(tuningSummary());
  if (timed) note(timed);
  const skipped = await trainer.opt.skippedSteps();
  if (skipped > 0) note(`steps skipped because their gradients were not finite: ${skipped}`);
  // Its collectives need all processes.
  const kernelTimes = values['kernel-times'] ? await trainer.kernelTimes() : undefined;
  if (!first) return trainer.destroy();

  const losses = Array.from({ length: trainer.stepsDone }, (_, step) => trainer.known.get(step) ?? NaN);
  // The loss of a single step is noisy; the run's loss is the mean over its last tenth, but at least over ten steps.
  const tail = losses.slice(-Math.max(10, Math.ceil(losses.length / 10)));
  const rates = stepRates(trainer.finished, tokensPerStep(settings));
  // A single step has no rate.
  const rate = rates.length > 0 ? median(rates) : NaN;
  const flops = flopsPerToken(model, settings.blockSize);
  const result = {
    device: info.deviceName,
    driver: driverText(info),
    driverVersion: info.driverVersion,
    driverInfo: info.driverInfo,
    config: flatConfig(config),
    parameters: count,
    mode: trainer.mode,
    ranks: ranks && { size, ...shareOf(settings, size), zero: ranks.zero, reduce: ranks.reduce, engine: ranks.engine },
    dispatchesPerStep: trainer.dispatches,
    data: dataName,
    tokens: tokens.length,
    losses,
    finalLoss: mean(tail),
    tokensPerSecond: { median: rate, ...extremes(rates), perStep: rates },
    hostMillisecondsPerStep: median(trainer.hostTimes.slice(Math.min(WARMUP_STEPS, trainer.hostTimes.length - 1))),
    flopsPerToken: flops,
    matrixRate: peak,
    // Of all devices' rates together.
    matrixShare: peak === undefined ? undefined : (rate * flops) / (peak * size),
    memoryBytes: /** @type {number | undefined} */ (vk.getAllocatorStats?.().activeBufferBytes),
    seconds,
    kernelTimes,
    profile,
  };
  if (values.json !== undefined) await writeOutput(values.json, `${JSON.stringify(result, null, 1)}\n`);
  if (values.report !== undefined) await writeOutput(values.report, trainingReport(result));
  if (values.results !== undefined) {
    const group = `GPT of ${formatCount(count)} parameters, batch ${settings.batchSize}×${settings.gradientAccumulationSteps}`;
    const series = `helios-vk, ${settings.precision}${several ? `, ${several}` : ''}`;
    writeResults(values.results, {
      bench: 'train',
      title: `A training run of ${losses.length} steps on ${dataName}`,
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
  if (!values.quiet) process.stdout.write(summary(result, tail.length));
  trainer.destroy();
}

/**
 * The summary that a run prints at its end.
 * @param {any} result @param {number} averaged number of steps that the loss is the mean of
 */
function summary(result, averaged) {
  const { tokensPerSecond: rate, matrixShare: share, memoryBytes: memory } = result;
  const lines = [
    `loss              ${result.finalLoss.toFixed(4)} (mean of the last ${averaged} steps; first step ${result.losses[0].toFixed(4)})`,
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
  return `${lines.join('\n')}\n`;
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

/** Writes the batches of every step, of all processes. @param {string} path @param {RunConfig} config @param {ReturnType<typeof windowsOf>} data */
async function dumpBatches(path, config, data) {
  const { maxSteps: steps, gradientAccumulationSteps: micro, batchSize, blockSize } = config.settings;
  const stride = 2 * micro * batchSize * blockSize;
  if (steps * stride > MAX_DUMP) {
    throw new UsageError(
      `--dump-batches: ${steps} steps have ${steps * stride} ids, and a file has at most ${MAX_DUMP}: use fewer --steps`,
    );
  }
  const all = new Uint32Array(steps * stride);
  for (let step = 0; step < steps; step++)
    stepBatch(data, config.settings, step, undefined, all.subarray(step * stride, (step + 1) * stride));
  // Ids are below 2^31, so the same bytes are valid as I32, which every reader supports.
  const tensors = [{ name: 'batches', dtype: 'I32', shape: [steps, micro, 2, batchSize, blockSize] }];
  const metadata = { config: JSON.stringify(flatConfig(config)) };
  await writeSafetensors(
    path,
    encodeHeader(tensors, metadata, false, (what) => new RangeError(what)),
    () => all,
  );
}
