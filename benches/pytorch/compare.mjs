#!/usr/bin/env node
// Our training runs beside PyTorch's from the same weights and batches: speed, and how far the losses part.

import { readFile, writeFile } from 'node:fs/promises';
import { formatCount } from '../../packages/lm/src/log/format.mjs';
import { UsageError, runMain } from '../../bin/lib/options.mjs';
import { barChart, htmlReport, lineChart, table } from '../lib/report.mjs';
import { RESULTS_OPTION, writeResults } from '../lib/results.mjs';
import { extremes } from '../lib/stats.mjs';

const OPTIONS = /** @type {const} */ ({
  ours: { type: 'string', value: 'FILES', path: 'input-list', required: true, help: 'results of benches/train.mjs --json, by commas' },
  pytorch: { type: 'string', value: 'FILE', path: 'input', required: true, help: 'results of benches/pytorch/train.py --json' },
  json: { type: 'string', value: 'FILE', path: 'output', help: 'write the comparison for machines' },
  report: { type: 'string', value: 'FILE', path: 'output', help: 'write the comparison as a page with charts' },
  ...RESULTS_OPTION,
});

/** Sizes and hyper-parameters that two runs must share for their losses to be comparable. */
const SHARED = /** @type {const} */ ([
  ...['family', 'layers', 'width', 'heads', 'kvHeads', 'hidden', 'blockSize', 'vocabSize', 'batchSize', 'gradientAccumulationSteps'],
  ...['maxSteps', 'seed', 'learningRate', 'lrScheduler', 'minLr', 'warmupSteps', 'weightDecay', 'beta1', 'beta2', 'epsilon', 'maxGradNorm'],
]);

/** @param {string} path */
const readJson = async (path) => JSON.parse(await readFile(path, 'utf8'));

await runMain('node benches/pytorch/compare.mjs --ours FILES --pytorch FILE [options]', OPTIONS, async (options) => {
  const theirs = await readJson(options.pytorch);
  /** @type {{name: string, tokensPerSecond: number, losses: number[]}[]} */
  const runs = [];
  let [device, driver, parameters] = ['', '', 0];
  for (const path of options.ours.split(',')) {
    const result = await readJson(path);
    for (const key of SHARED) {
      if (result.config[key] !== theirs.config[key]) {
        throw new UsageError(`${path}: ${key} is ${result.config[key]}, in ${options.pytorch} ${theirs.config[key]}`);
      }
    }
    ({ device, driverInfo: driver, parameters } = result);
    const own = `helios-vk ${result.config.precision}`;
    const times = runs.filter(({ name }) => name.split(',')[0] === own).length;
    runs.push({
      name: times === 0 ? own : `${own}, run ${times + 1}`,
      tokensPerSecond: result.tokensPerSecond.median,
      losses: result.losses,
    });
  }
  for (const { mode, tokensPerSecond, losses, error } of theirs.results) {
    if (error === undefined) runs.push({ name: `PyTorch ${mode}`, tokensPerSecond, losses });
    else process.stderr.write(`PyTorch ${mode} failed: ${error}\n`);
  }
  const reference = runs.find(({ name }) => name === 'PyTorch f32') ?? runs[0];
  const rows = runs.map(({ name, tokensPerSecond, losses }) => {
    const steps = Math.min(losses.length, reference.losses.length);
    const apart = losses.slice(0, steps).map((loss, i) => Math.abs(loss - reference.losses[i]) / reference.losses[i]);
    return {
      name,
      tokensPerSecond,
      firstLoss: losses[0],
      lastLoss: losses[steps - 1],
      firstDifference: apart[0],
      largestDifference: extremes(apart).high,
      steps,
    };
  });
  const head = ['', 'tok/s', 'loss of step 1', 'loss at the end', `from ${reference.name}: step 1`, 'largest'];
  const cells = rows.map((row) => [
    row.name,
    formatCount(row.tokensPerSecond),
    row.firstLoss.toFixed(6),
    row.lastLoss.toFixed(6),
    row.firstDifference.toExponential(1),
    row.largestDifference.toExponential(1),
  ]);
  console.log(
    [`| ${head.join(' | ')} |`, '| --- | ---: | ---: | ---: | ---: | ---: |', ...cells.map((row) => `| ${row.join(' | ')} |`)].join('\n'),
  );
  if (options.json !== undefined) {
    const { torch, config } = theirs;
    await writeFile(options.json, `${JSON.stringify({ device, torch, config, reference: reference.name, rows }, null, 1)}\n`);
  }
  if (options.results !== undefined) {
    const { batchSize: batch, gradientAccumulationSteps: microSteps, blockSize: block, maxSteps: steps } = theirs.config;
    const group = `GPT of ${formatCount(parameters)} parameters, batch ${batch}×${microSteps}, block ${block}`;
    const figures = rows.flatMap(({ name, tokensPerSecond, lastLoss }) => {
      const [side, mode] = [name.split(' ')[0], name.slice(name.indexOf(' ') + 1).replaceAll('-', ' ')];
      const series = `${side}, ${mode}`;
      return [
        { group, name: 'tokens a second', series, unit: 'tok/s', value: tokensPerSecond },
        { group, name: `loss of step ${steps}`, series, unit: 'nats', value: lastLoss },
      ];
    });
    const title = `${steps} steps of the same model with the same weights and batches; PyTorch ${theirs.torch}`;
    writeResults(options.results, { bench: 'train', title, device, driver, figures, script: 'benches/pytorch/compare.mjs' });
  }
  if (options.report !== undefined) {
    const html = [
      barChart({
        title: 'Tokens a second, median',
        series: ['tokens a second'],
        groups: rows.map(({ name, tokensPerSecond }) => ({ label: name, values: [tokensPerSecond] })),
        format: formatCount,
      }),
      lineChart({
        title: 'Loss by step',
        xLabel: 'optimizer step',
        series: runs.map(({ name, losses }) => ({ name, points: losses.map((loss, i) => [i, loss]) })),
      }),
      table(head, cells),
    ];
    const subtitle = `${device} · PyTorch ${theirs.torch} on ${theirs.device}`;
    await writeFile(
      options.report,
      htmlReport({
        title: 'helios-vk and PyTorch',
        subtitle,
        sections: [{ title: 'Same weights, same batches', html }],
      }),
    );
  }
});
