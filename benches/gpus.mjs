#!/usr/bin/env node
// Prints the table of what `benches/gpus.sh` measured: tokens a second on N GPUs, their share of N times one GPU's, and those of PyTorch's
// DistributedDataParallel in the same run.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { UsageError, runMain } from '../bin/lib/options.mjs';
import { RESULTS_OPTION, writeResults } from './lib/results.mjs';
import { textTable } from './lib/stats.mjs';

const OPTIONS = /** @type {const} */ ({
  folder: { type: 'string', value: 'FOLDER', path: 'input-folder', required: true, help: 'folder with the results of benches/gpus.sh' },
  ...RESULTS_OPTION,
});
const SHAPES = ['1x4', '16x1'];

await runMain('node benches/gpus.mjs --folder FOLDER [options]', OPTIONS, async ({ folder, results }) => {
  /** Of a run, undefined where it was left out. @param {string} name @returns {any} */
  const read = (name) => {
    try {
      return JSON.parse(readFileSync(join(folder, `${name}.json`), 'utf8'));
    } catch (error) {
      if (/** @type {NodeJS.ErrnoException} */ (error).code === 'ENOENT') return undefined;
      throw new UsageError(`${join(folder, name)}.json: ${/** @type {Error} */ (error).message}`);
    }
  };
  /** @type {import('./lib/results.mjs').Figure[]} */
  const figures = [];
  /** @type {string[][]} */
  const rows = [];
  let [device, driver, size] = ['', '', 0];
  for (const shape of SHAPES) {
    const alone = ['a', 'b'].map((round) => read(`one-${shape}-${round}`)).filter((run) => run !== undefined);
    if (alone.length === 0) continue;
    const runs = alone.map((run) => run.tokensPerSecond.median);
    const one = runs.reduce((a, b) => a + b, 0) / runs.length;
    const { parameters, config } = alone[0];
    ({ device, driverInfo: driver } = alone[0]);
    const group = `GPT of ${parameters.toLocaleString('en')} parameters, batch ${shape.replace('x', '×')} a process, block ${config.blockSize}, bf16`;
    /** @param {string} series @param {number} rate @param {number[]} [samples] */
    const add = (series, rate, samples) => {
      figures.push({ group, name: 'tokens a second', series, unit: 'tok/s', value: rate, ...(samples && { runs: samples }) });
      const share = series === 'one GPU' ? '' : `${((100 * rate) / (size * one)).toFixed(1)} %`;
      rows.push([shape.replace('x', '×'), series, Math.round(rate).toLocaleString('en'), share]);
    };
    add('one GPU', one, runs);
    for (const zero of [1, 0]) {
      for (const reduce of ['f32', 'bf16']) {
        const run = read(`ranks-${shape}-zero${zero}-${reduce}`);
        if (run === undefined) continue;
        size = run.ranks.size;
        add(`${size} GPUs, ZeRO ${zero}, gradients in ${reduce}`, run.tokensPerSecond.median);
      }
    }
    const theirs = read(`ddp-${shape}`);
    size ||= theirs?.processes;
    for (const { mode, tokensPerSecond } of theirs?.results ?? []) {
      add(`${size} GPUs, PyTorch DDP ${mode.replace('-', ', ')}`, tokensPerSecond);
    }
  }
  for (const batch of [4, 8]) {
    const [ours, theirs] = [read(`sharded-${batch}`), read(`fsdp-${batch}`)];
    const group = `Llama of 6,738,415,616 parameters, batch ${batch}×1 a process, block 2048, bf16, layers computed again`;
    for (const [series, run] of /** @type {const} */ ([
      ['ZeRO 3', ours],
      ['PyTorch FSDP2, compiled', theirs],
    ])) {
      if (run === undefined) continue;
      const rate = run.tokensPerSecond.median ?? run.tokensPerSecond;
      const processes = run.ranks?.size ?? run.processes;
      size ||= processes;
      if (run.driverInfo) [device, driver] = [run.device, run.driverInfo];
      figures.push({ group, name: 'tokens a second', series: `${processes} GPUs, ${series}`, unit: 'tok/s', value: rate });
      const bytes = run.memoryBytes ?? run.peakBytes;
      figures.push({ group, name: 'memory of rank 0', series: `${processes} GPUs, ${series}`, unit: 'GB', value: bytes / 1e9 });
      rows.push([
        `${batch}×1`,
        `7B, ${processes} GPUs, ${series}`,
        Math.round(rate).toLocaleString('en'),
        `${(bytes / 1e9).toFixed(1)} GB`,
      ]);
    }
  }
  if (rows.length === 0) throw new UsageError(`--folder ${folder}: no results of benches/gpus.sh there`);
  process.stdout.write(`${device}, driver ${driver}\n\n${textTable(['batch', 'run', 'tok/s', `of ${size} × one, or memory`], rows)}\n`);
  if (results !== undefined) {
    const title = `Training on ${size} GPUs over NCCL, beside one of them and PyTorch's DistributedDataParallel and FSDP2`;
    writeResults(results, { bench: 'train', title, device, driver, figures, script: 'benches/gpus.mjs' });
  }
});
