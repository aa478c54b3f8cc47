#!/usr/bin/env node
// Measures what each optimization gives: tokens a second of our GPT with all of them on, and with each switched off in turn.

import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { formatCount } from '../packages/lm/src/log/format.mjs';
import { MAX_SIZE, PRESET_NAMES } from '../packages/lm/src/train/settings.mjs';
import { median } from './lib/stats.mjs';
import { runMain } from '../bin/lib/options.mjs';
import { barChart, htmlReport, table } from './lib/report.mjs';
import { RESULTS_OPTION, writeResults } from './lib/results.mjs';

const TRAIN = fileURLToPath(new URL('./train.mjs', import.meta.url));

const OPTIONS = /** @type {const} */ ({
  preset: { type: 'string', default: 'gpt-300m', value: 'NAME', choices: PRESET_NAMES, help: `one of ${PRESET_NAMES.join(', ')}` },
  precision: { type: 'string', default: 'bf16', choices: ['f32', 'f16', 'bf16', 'bf16x3'], help: 'arithmetic' },
  batch: { type: 'integer', min: 1, max: MAX_SIZE, help: "sequences of a micro-step; the preset's when left out" },
  'micro-steps': { type: 'integer', min: 1, max: MAX_SIZE, help: "micro-steps of a step; the preset's when left out" },
  steps: { type: 'integer', default: 14, min: 4, max: 1_000_000, help: 'steps of each run; the first three are not timed' },
  rounds: { type: 'integer', default: 1, min: 1, max: 1_000_000, help: 'runs of each variant, in turn' },
  'train-args': { type: 'string', value: 'ARGS', help: 'further options for train.mjs: --train-args="--layers=2"' },
  json: { type: 'string', value: 'FILE', path: 'output', help: 'write the results as JSON' },
  report: { type: 'string', value: 'FILE', path: 'output', help: 'write the results as an HTML page with charts' },
  ...RESULTS_OPTION,
});

/**
 * @typedef {object} Rung
 * @property {string} name
 * @property {string[]} [args] of train.mjs
 * @property {Record<string, string>} [env]
 */

const LISTS = ['--mode', 'plain'];
const ONE_SLOT = ['--command-buffers', '1'];

/** @param {string} precision @returns {Rung[]} the first is everything on; from the second on, packed lists */
function rungs(precision) {
  return [
    { name: 'recorded graphs' },
    { name: 'packed lists', args: LISTS },
    { name: '… recording in the call', args: LISTS, env: { HELIOS_RECORD_THREAD: '0' } },
    { name: '… one command slot', args: [...LISTS, ...ONE_SLOT] },
    { name: '… batches of 256', args: LISTS, env: { HELIOS_FLUSH_DISPATCHES: '256' } },
    { name: '… descriptor sets', args: LISTS, env: { HELIOS_DISABLE_PUSH_DESCRIPTORS: '1' } },
    { name: '… blocking uploads', args: LISTS, env: { HELIOS_BLOCKING_UPLOADS: '1' } },
    ...(precision === 'f32' ? [] : [{ name: '… no matrix units', args: [...LISTS, '--precision', 'f32'] }]),
    {
      name: 'all of these off',
      args: [...LISTS, ...ONE_SLOT, '--precision', 'f32'],
      env: {
        HELIOS_RECORD_THREAD: '0',
        HELIOS_FLUSH_DISPATCHES: '256',
        HELIOS_DISABLE_PUSH_DESCRIPTORS: '1',
        HELIOS_BLOCKING_UPLOADS: '1',
      },
    },
  ];
}

await runMain('node benches/ablation.mjs [options]', OPTIONS, async (options) => {
  const folder = await mkdtemp(join(tmpdir(), 'helios-vk-ablation-'));
  const list = rungs(options.precision);
  /** @type {Map<Rung, any[]>} */
  const results = new Map(list.map((rung) => [rung, []]));
  try {
    for (let round = 0; round < options.rounds; round++) {
      for (const rung of list) {
        const json = join(folder, 'result.json');
        const common = ['--preset', options.preset, '--precision', options.precision, '--steps', String(options.steps)];
        if (options.batch !== undefined) common.push('--batch', String(options.batch));
        if (options['micro-steps'] !== undefined) common.push('--micro-steps', String(options['micro-steps']));
        common.push(...(options['train-args']?.split(/\s+/).filter(Boolean) ?? []));
        common.push('--quiet', '--json', json);
        // Of an option given twice the last one counts.
        await promisify(execFile)(process.execPath, [TRAIN, ...common, ...(rung.args ?? [])], {
          env: { ...process.env, ...rung.env },
        });
        const result = JSON.parse(await readFile(json, 'utf8'));
        results.get(rung)?.push(result);
        process.stderr.write(`${rung.name}: ${formatCount(result.tokensPerSecond.median)} tok/s\n`);
      }
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
  }

  const rows = list.map((rung) => {
    const runs = /** @type {any[]} */ (results.get(rung));
    return {
      name: rung.name,
      env: rung.env ?? {},
      args: rung.args ?? [],
      tokensPerSecond: median(runs.map((run) => run.tokensPerSecond.median)),
      hostMilliseconds: median(runs.map((run) => run.hostMillisecondsPerStep)),
      loss: runs[0].losses.at(-1),
    };
  });
  const lists = rows[1].tokensPerSecond;
  const head = ['', 'tok/s', '× packed lists', 'host ms a step'];
  const cells = rows.map(({ name, tokensPerSecond, hostMilliseconds }) => [
    name,
    formatCount(tokensPerSecond),
    (tokensPerSecond / lists).toFixed(2),
    hostMilliseconds.toFixed(2),
  ]);
  console.log([`| ${head.join(' | ')} |`, '| --- | ---: | ---: | ---: |', ...cells.map((row) => `| ${row.join(' | ')} |`)].join('\n'));
  const { device, driver, driverInfo, config } = /** @type {any[]} */ (results.get(list[0]))[0];
  if (options.results !== undefined) {
    const figures = rows.flatMap(({ name, tokensPerSecond, hostMilliseconds }) => [
      { group: 'what each fix gives', name, series: 'helios-vk', unit: 'tok/s', value: tokensPerSecond },
      { group: 'host time of a step', name, series: 'helios-vk', unit: 'ms', value: hostMilliseconds },
    ]);
    const title = `The ladder: ${options.preset}, ${options.precision}, batch ${config.batchSize} × ${config.gradientAccumulationSteps}`;
    writeResults(options.results, { bench: 'ablation', title, device, driver: driverInfo, figures });
  }
  if (options.json !== undefined) {
    await writeFile(options.json, `${JSON.stringify({ device, driver, config, rows }, null, 1)}\n`);
  }
  if (options.report !== undefined) {
    const groups = rows.map(({ name, tokensPerSecond }) => ({ label: name, values: [tokensPerSecond] }));
    const html = [barChart({ title: 'Tokens a second', series: ['tokens a second'], groups, format: formatCount }), table(head, cells)];
    const subtitle = `${device} · ${options.preset} · ${options.precision} · batch ${config.batchSize} × ${config.gradientAccumulationSteps}`;
    await writeFile(options.report, htmlReport({ title: 'What each fix gives', subtitle, sections: [{ title: 'Ladder', html }] }));
  }
});
