#!/usr/bin/env node
// Writes docs/benchmarks.md and its charts from benches/results/*.json, so that no figure is copied by hand.
//
//   node scripts/benchmarks.mjs            writes them
//   node scripts/benchmarks.mjs --check    exits with 1 where they are not current

import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { runMain } from '../bin/lib/options.mjs';
import { barsSvg, formatFigure, historySvg } from '../benches/lib/charts.mjs';
import { BENCHES, checkResults, RESULTS } from '../benches/lib/results.mjs';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const CHARTS = 'docs/charts';

/** @typedef {import('../benches/lib/results.mjs').Results & {file: string}} Run */

/** What each bench is, above its tables. @type {Record<typeof BENCHES[number], [string, string]>} */
const ABOUT = {
  toks: [
    'Training through the plain calls',
    'Tokens a second of an existing trainer, or of our GPT through the same calls, with helios-vk and with the C addon. A proxy around the addon times each call, for both.',
  ],
  alpha: [
    'The existing trainer on our kernels',
    'The trainer’s own command with `@helios-vk/alpha-backend`, call by call (eager) and with steps that become graphs (captured), beside its own backend on its C addon.',
  ],
  train: ['Training through recorded graphs', 'The GPT of `benches/gpt`, and the same model in PyTorch with the same weights and batches.'],
  ladder: ['What each fix gives', 'The same training run, each part of the fast path switched off in turn.'],
  replay: [
    'A recorded training run, call by call',
    'The calls of an existing trainer, replayed with stand-in kernels of the same bindings.',
  ],
  calls: ['Calls', 'Host time of each call by itself.'],
  kernels: ['Kernels', 'Every kernel over fresh random data that rotates beyond the cache, timed by the GPU.'],
  'kernels-matmul': ['Matrix products', 'The best plan of each shape.'],
  models: [
    'Small models of helios-vk/nn',
    'Compiled training steps, and eager operations until the last has ended and by their calls alone, beside the same in PyTorch with the same weights and batches.',
  ],
  'kernels-attention': ['Attention', 'Kernels in PTX by tiling, and shaders.'],
  'safe-mode': ['Safe mode', 'The same work with and without `initDevice({ safe: true })`.'],
  distributed: ['Collectives', 'The hand-over to the engine and back, and `allReduce`.'],
  overlap: [
    'Vulkan and CUDA on one device',
    'Whether work of both runs at the same time, as a collective of NCCL would beside a backward pass.',
  ],
};

/** All results, the oldest first. @returns {Run[]} */
function readRuns() {
  return readdirSync(RESULTS)
    .filter((file) => file.endsWith('.json'))
    .sort()
    .map((file) => ({ ...checkResults(JSON.parse(readFileSync(join(RESULTS, file), 'utf8')), file), file }))
    .sort((a, b) => a.date.slice(0, 10).localeCompare(b.date.slice(0, 10)) || a.file.localeCompare(b.file));
}

/** @template T @param {Iterable<T>} values */
const unique = (values) => [...new Set(values)];

/** @param {Run} run */
const label = (run) => `${run.date.slice(0, 10)}${run.commit === 'unknown' ? '' : `, ${run.commit}`}`;

/** Names of results come from files. @param {string} text */
const cellText = (text) => text.replaceAll('|', '\\|').replaceAll('\n', ' ');

/** @param {string} text */
const slug = (text) =>
  text
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .replaceAll(/^-|-$/g, '');

/** The table of one group of one run. @param {Run} run @param {string} group @returns {string[]} lines */
function groupTable(run, group) {
  const figures = run.figures.filter((figure) => figure.group === group);
  const series = unique(figures.map((figure) => figure.series));
  const rows = unique(figures.map(({ name }) => name)).map((name) => {
    const inRow = series.map((one) => figures.find((figure) => figure.name === name && figure.series === one));
    const units = unique(inRow.flatMap((figure) => figure?.unit ?? []));
    const cells = inRow.map((figure) => {
      if (!figure) return '';
      const runs = figure.runs && figure.runs.length > 1 && figure.runs.length <= 5 ? figure.runs : undefined;
      const spread = runs ? ` (${runs.map((value) => formatFigure(value, figure.unit)).join(', ')})` : '';
      return `${formatFigure(figure.value, figure.unit)}${spread}`;
    });
    return [cellText(name), units.join(', '), ...cells];
  });
  const head = ['', 'unit', ...series.map(cellText)];
  return [head, head.map((_, i) => (i < 2 ? '---' : '---:')), ...rows].map((cells) => `| ${cells.join(' | ')} |`);
}

/** What is said of a run below its table. @param {Run} run */
function provenance(run) {
  const commit = run.commit === 'unknown' ? 'commit not recorded' : `commit ${run.commit}`;
  const source = run.transcribed ? `; copied by hand from ${run.source}` : '';
  return [
    `${run.title}. ${run.device}, driver ${run.driver}; host: ${run.host}; ${run.date.slice(0, 10)}, ${commit}${source}.`,
    '',
    `\`${run.command}\` · [\`${run.file}\`](../benches/results/${run.file})`,
  ];
}

/**
 * The chart of a group over runs: what at least two of them measured.
 * @param {Run[]} runs of one bench and device
 * @param {string} group
 */
function historyOf(runs, group) {
  const figures = runs.map((run) => run.figures.filter((figure) => figure.group === group && figure.series.startsWith('helios-vk')));
  const keys = unique(figures.flat().map(({ name, series, unit }) => JSON.stringify([name, series, unit])));
  const rows = keys.flatMap((key) => {
    const [name, series, unit] = JSON.parse(key);
    const values = figures.map((list) => list.find((f) => f.name === name && f.series === series && f.unit === unit)?.value);
    if (values.filter((value) => value !== undefined).length < 2) return [];
    return [{ label: series === 'helios-vk' ? name : `${name} (${series})`, unit, values }];
  });
  if (rows.length === 0) return undefined;
  const measured = runs.flatMap((_, i) => (rows.some(({ values }) => values[i] !== undefined) ? [i] : []));
  return {
    title: group,
    runs: measured.map((i) => label(runs[i])),
    rows: rows.map((row) => ({ ...row, values: measured.map((i) => row.values[i]) })),
  };
}

/**
 * The newest figure that fits, and its run.
 * @param {Run[]} runs @param {string} bench @param {(figure: import('../benches/lib/results.mjs').Figure) => boolean} fits
 */
function newest(runs, bench, fits) {
  for (const run of [...runs].reverse()) {
    const figure = run.bench === bench && !run.device.startsWith('llvmpipe') ? run.figures.find(fits) : undefined;
    if (figure) return { run, figure };
  }
  return undefined;
}

/** The README's chart. @param {Run[]} runs */
function tokensChart(runs) {
  const trainer = (/** @type {string} */ series) =>
    newest(runs, 'toks', (f) => f.name === 'tokens a second' && f.series === series && f.group.startsWith('newest trainer'));
  const train = (/** @type {string} */ series) =>
    newest(runs, 'train', (f) => f.name === 'tokens a second' && f.series === series && f.group.includes('batch 1×4'));
  const [c, ours] = [trainer('C addon'), trainer('helios-vk')];
  const [torch, torchBf16, bf16] = [train('PyTorch, tf32 compiled'), train('PyTorch, bf16 compiled'), train('helios-vk, bf16')];
  if (!c || !ours || !torch || !torchBf16 || !bf16) throw new Error('benches/results: figures of the README chart are missing');
  return {
    title: 'Training a 300M-parameter GPT, batch 1×4 of 512 tokens',
    unit: 'tok/s',
    bars: [
      { label: 'existing trainer, C addon', value: c.figure.value, ours: false },
      { label: 'existing trainer, helios-vk', value: ours.figure.value, ours: true },
      { label: 'our GPT, PyTorch bf16 compiled', value: torchBf16.figure.value, ours: false, gap: true },
      { label: 'our GPT, PyTorch tf32 compiled', value: torch.figure.value, ours: false },
      { label: 'our GPT, helios-vk bf16', value: bf16.figure.value, ours: true },
    ],
    notes: [`${bf16.run.device}, driver ${bf16.run.driver}. Trainer: ${label(ours.run)}. Our GPT: ${label(bf16.run)}.`],
  };
}

/** Every file of the pages, by its path. @returns {Map<string, string>} */
function pages() {
  const runs = readRuns();
  /** @type {Map<string, string>} */
  const files = new Map();
  const both = (/** @type {string} */ name, /** @type {(theme: 'light' | 'dark') => string} */ draw) => {
    for (const theme of /** @type {const} */ (['light', 'dark'])) files.set(`${CHARTS}/${name}-${theme}.svg`, draw(theme));
  };
  const picture = (/** @type {string} */ name, /** @type {string} */ alt) => [
    '<picture>',
    `  <source media="(prefers-color-scheme: dark)" srcset="charts/${name}-dark.svg">`,
    `  <img src="charts/${name}-light.svg" alt="${alt.replaceAll('"', '&quot;')}">`,
    '</picture>',
  ];
  const tokens = tokensChart(runs);
  both('tokens', (theme) => barsSvg(tokens, theme));

  const lines = [
    '# Benchmarks',
    '',
    '<!-- Written by scripts/benchmarks.mjs from benches/results; do not edit. -->',
    '',
    'Every figure comes from a file in [`benches/results`](../benches/results), which a bench writes with `--results benches/results`;',
    '`node scripts/benchmarks.mjs` writes this page. Files marked as copied by hand hold figures of runs from before benches wrote their',
    'own. Where there are several runs, the value is their median and the runs stand in brackets. `baseline` is the addon given to',
    '`--baseline`. Compare only what was measured in one run: hosts differ.',
    '',
    ...picture('tokens', tokens.title),
    '',
  ];
  for (const bench of BENCHES) {
    const ofBench = runs.filter((run) => run.bench === bench);
    if (ofBench.length === 0) continue;
    const [title, about] = ABOUT[bench];
    lines.push(`## ${title}`, '', about, '');
    for (const device of unique(ofBench.map((run) => run.device))) {
      const ofDevice = ofBench.filter((run) => run.device === device);
      for (const group of unique(ofDevice.flatMap((run) => run.figures.map((figure) => figure.group)))) {
        const having = ofDevice.filter((run) => run.figures.some((figure) => figure.group === group));
        const [latest, ...older] = [...having].reverse();
        lines.push(`### ${device}: ${group}`, '', ...groupTable(latest, group), '', ...provenance(latest), '');
        for (const run of older) {
          lines.push(
            `<details><summary>Earlier: ${label(run)}</summary>`,
            '',
            ...groupTable(run, group),
            '',
            ...provenance(run),
            '',
            '</details>',
            '',
          );
        }
        const history = historyOf(ofDevice, group);
        if (history) {
          const name = `history-${bench}-${slug(device)}-${slug(group)}`;
          both(name, (theme) => historySvg(history, theme));
          lines.push(...picture(name, `${group}, over commits`), '');
        }
      }
    }
  }
  files.set('docs/benchmarks.md', `${lines.join('\n').trimEnd()}\n`);
  return files;
}

await runMain(
  'node scripts/benchmarks.mjs [--check]',
  /** @type {const} */ ({ check: { type: 'boolean', help: 'write nothing; exit with 1 where a page is not current' } }),
  async ({ check }) => {
    const files = pages();
    const charts = join(ROOT, CHARTS);
    const there = existsSync(charts) ? readdirSync(charts).map((file) => `${CHARTS}/${file}`) : [];
    const foreign = there.filter((file) => !files.has(file));
    const stale = [...files].filter(([path, text]) => !existsSync(join(ROOT, path)) || readFileSync(join(ROOT, path), 'utf8') !== text);
    if (check) {
      for (const path of [...stale.map(([path]) => path), ...foreign]) console.error(`${path} is not current: node scripts/benchmarks.mjs`);
      if (stale.length + foreign.length > 0) process.exitCode = 1;
      return;
    }
    mkdirSync(charts, { recursive: true });
    for (const [path, text] of stale) {
      mkdirSync(dirname(join(ROOT, path)), { recursive: true });
      writeFileSync(join(ROOT, path), text);
    }
    for (const file of foreign) rmSync(join(ROOT, file));
    console.log(`${stale.length} written, ${foreign.length} removed, ${files.size - stale.length} current`);
  },
);
