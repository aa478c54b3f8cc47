#!/usr/bin/env node
// Writes docs/benchmarks.md and the README's chart from benches/results/*.json, so that no figure is copied by hand.
//
//   node scripts/benchmarks.mjs            writes them
//   node scripts/benchmarks.mjs --check    exits with 1 if they are not current
//
// The page has the newest run of each group of figures, earlier ones that had a faster peer, and of these what a reader compares; the files
// have the rest. Older files go
// when newer ones come: git keeps them.

import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { runMain } from '../bin/lib/options.mjs';
import { barsSvg, formatFigure } from '../benches/lib/charts.mjs';
import { BENCHES, checkResults, RESULTS } from '../benches/lib/results.mjs';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const PAGE = 'docs/benchmarks.md';

/** @typedef {import('../benches/lib/results.mjs').Results & {file: string}} Run */
/** @typedef {import('../benches/lib/results.mjs').Figure} Figure */

/**
 * What the page says about a bench.
 * @typedef {object} Section
 * @property {string} title
 * @property {string} about
 * @property {string} [headline] the one figure of each group that the page has: a row is then a group
 * @property {boolean} [named] whether names, not series, distinguish our figures from others
 * @property {number} [rows] largest number of rows of each group
 */

/** @type {Record<typeof BENCHES[number], Section>} */
const SECTIONS = {
  train: {
    title: 'Training through recorded graphs',
    about: 'The models `gpt-…` of helios-lm, and the same in PyTorch with the same weights and batches.',
    headline: 'tokens a second',
  },
  models: {
    title: 'Small models of helios-vk/nn',
    about: 'Compiled training steps beside the same in PyTorch with the same weights and batches; on a CPU beside other packages of npm.',
    named: true,
  },
  onnx: {
    title: 'Inference of ONNX files',
    about: 'Models with random weights as PyTorch exports them, in helios-onnx, and the same in PyTorch, compiled, with the same inputs.',
    named: true,
  },
  decoder: {
    title: "helios-lm's decoder",
    about:
      'A training step on random ids, and the same model in PyTorch (`benches/pytorch/decoder.py`), compiled, one after the other on one GPU.',
    headline: 'tokens a second',
  },
  finetune: {
    title: 'Fine-tuning by LoRA',
    about:
      'A step of adapters beside frozen weights, and the same by hand in PyTorch (`benches/pytorch/finetune.py`), one after the other on one GPU.',
    headline: 'time of a step',
  },
  'decode-kernels': {
    title: 'Kernels of a decode step',
    about: 'Products of a few rows with a matrix, and attention of one query a row to a cache: what they must read, a second.',
  },
  generate: {
    title: 'Text from a model',
    about: 'Random weights, the most likely token. Beside llama.cpp: the same GGUF file, in turn.',
  },
  'trainer-tokens': {
    title: 'Training through the plain calls',
    about: 'An existing trainer with helios-vk and with the C addon.',
    headline: 'tokens a second',
  },
  alpha: {
    title: 'The existing trainer on our kernels',
    about: 'Its own command with `@helios-vk/alpha-backend`, call by call (eager) and with steps that become graphs (captured).',
    headline: 'tokens a second',
  },
  'kernels-matmul': { title: 'Matrix products', about: 'The fastest tiling of each shape.', rows: 7 },
  'kernels-attention': { title: 'Attention', about: 'Kernels in PTX by tiling, and shaders.', named: true, rows: 3 },
  kernels: { title: 'Kernels', about: 'Over fresh random data that rotates beyond the cache, timed by the GPU.', rows: 8 },
  sampling: { title: 'Sampling', about: 'A token drawn from logits, by the time of the dispatch.', named: true },
  distributed: { title: 'Collectives', about: 'The hand-over to the engine and back, and `allReduce`.', rows: 5 },
  calls: { title: 'Calls', about: 'Host time of each call by itself.', rows: 8 },
  replay: { title: 'A recorded training run, call by call', about: 'The calls of an existing trainer, with stand-in kernels.' },
  ablation: { title: 'What each fix gives', about: 'The same training run, each part of the fast path switched off in turn.' },
  'safe-mode': { title: 'Safe mode', about: 'The same work with and without `initDevice({ safe: true })`.' },
};

/** All results, the oldest first. @returns {Run[]} */
function readRuns() {
  return readdirSync(RESULTS)
    .filter((file) => file.endsWith('.json'))
    .sort()
    .map((file) => ({ ...checkResults(JSON.parse(readFileSync(join(RESULTS, file), 'utf8')), file), file }))
    .sort((a, b) => a.date.slice(0, 10).localeCompare(b.date.slice(0, 10)) || a.file.localeCompare(b.file));
}

/** Of one day the last one too. @param {Run[]} runs @returns {Run[]} the newest first */
const newestFirst = (runs) => runs.toSorted((a, b) => b.date.localeCompare(a.date));

/** @template T @param {Iterable<T>} values */
const unique = (values) => [...new Set(values)];

/** @param {Run} run */
const label = (run) => `${run.date.slice(0, 10)}${run.commit === 'unknown' ? '' : `, ${run.commit}`}`;

/** Escapes a cell: names of results come from files. @param {string} text */
const cellText = (text) => text.replaceAll('|', '\\|').replaceAll('\n', ' ');

/** Whether a series, or a name, is a run of ours. @param {string} text */
const isOurs = (text) => text.startsWith('helios-vk') || /ZeRO|^one GPU$/.test(text);

/** Figures in one cell, each with its name. @param {Figure[]} figures @param {Section} section */
function cell(figures, { named }) {
  return figures
    .map((figure) => {
      const of = (named ? figure.name : figure.series).replace(/^helios-vk(, )?/, '');
      return cellText(`${of === '' ? '' : `${of}: `}${formatFigure(figure.value, figure.unit)} ${figure.unit}`);
    })
    .join('<br>');
}

/** Where figures come from. @param {Run} run */
const source = (run) => `${run.device}, [${label(run)}](../benches/results/${run.file})${run.transcribed ? ', by hand' : ''}`;

/**
 * Earlier runs of a group that had a faster peer than any that is shown: a newer comparison with a slower one must not hide it.
 * @param {Run} run what is shown @param {Run[]} having runs of the group, the newest first @param {string} group
 */
function fasterPeers(run, having, group) {
  const fastest = (/** @type {Run} */ of) => {
    const peers = of.figures.filter((figure) => figure.group === group && figure.unit === 'ms' && !isOurs(figure.name));
    return peers.length === 0 ? undefined : peers.reduce((a, b) => (b.value < a.value ? b : a));
  };
  const others = new Set(run.figures.filter((figure) => figure.group === group).map(({ name }) => name));
  let best = fastest(run)?.value ?? 0;
  return having.filter((older) => {
    if (older.date >= run.date || older.device.startsWith('llvmpipe')) return false;
    const peer = fastest(older);
    if (peer === undefined || others.has(peer.name) || peer.value >= best) return false;
    best = peer.value;
    return true;
  });
}

/**
 * The rows of one group of one run.
 * @param {Run} run @param {string} group @param {Section} section
 */
function rowsOf(run, group, section) {
  const figures = run.figures.filter((figure) => figure.group === group && (!section.headline || figure.name === section.headline));
  const rows =
    section.named || section.headline
      ? [figures]
      : unique(figures.map(({ name }) => name)).map((name) => figures.filter((f) => f.name === name));
  const shown = section.named ? rows.map((row) => row.slice(0, section.rows)) : rows.slice(0, section.rows);
  return shown.flatMap((row) => {
    if (row.length === 0) return [];
    const ours = row.filter((figure) => isOurs(section.named ? figure.name : figure.series));
    const others = row.filter((figure) => !ours.includes(figure));
    const what = section.headline || section.named ? group : row[0].name;
    return [[cellText(what), cell(ours, section), cell(others, section), source(run)]];
  });
}

/**
 * The newest figure that fits, and its run.
 * @param {Run[]} runs @param {string} bench @param {(figure: import('../benches/lib/results.mjs').Figure) => boolean} fits
 */
function newest(runs, bench, fits) {
  for (const run of newestFirst(runs)) {
    const figure = run.bench === bench && !run.device.startsWith('llvmpipe') ? run.figures.find(fits) : undefined;
    if (figure) return { run, figure };
  }
  return undefined;
}

/** The README's chart. @param {Run[]} runs */
function tokensChart(runs) {
  const trainer = (/** @type {string} */ series) =>
    newest(runs, 'trainer-tokens', (f) => f.name === 'tokens a second' && f.series === series && f.group.startsWith('newest trainer'));
  const [c, ours] = [trainer('C addon'), trainer('helios-vk')];
  const gpt = newest(runs, 'train', (f) => f.name === 'tokens a second' && f.series === 'helios-vk, bf16' && f.group.includes('batch 1×4'));
  // Figures beside ours must be from the same session, so search only that run.
  const beside = (/** @type {string} */ series) =>
    gpt?.run.figures.find((f) => f.name === 'tokens a second' && f.group === gpt.figure.group && f.series === series);
  const [eager, compiled, graphs] = ['PyTorch, bf16', 'PyTorch, bf16 compiled', 'PyTorch, bf16 compiled graphs'].map(beside);
  if (!c || c.run !== ours?.run || !gpt || !eager || !compiled || !graphs) {
    throw new Error('benches/results: figures of the README chart are missing');
  }
  return {
    title: 'Training a 300M-parameter GPT, batch 1×4 of 512 tokens',
    unit: 'tok/s',
    bars: [
      { label: 'existing trainer, C addon', value: c.figure.value, ours: false },
      { label: 'existing trainer, helios-vk', value: ours.figure.value, ours: true },
      { label: 'our GPT, PyTorch bf16', value: eager.value, ours: false, gap: true },
      { label: '… compiled', value: compiled.value, ours: false },
      { label: '… with CUDA graphs', value: graphs.value, ours: false },
      { label: 'our GPT, helios-vk bf16', value: gpt.figure.value, ours: true },
    ],
    notes: [`Trainer: ${card(c.run)}. Our GPT: ${card(gpt.run)}.`],
  };
}

/** Device, date and commit of a run. @param {Run} run */
const card = (run) => `${run.device}, ${label(run)}`;

/** Every file of the pages, by its path. @returns {Map<string, string>} */
function pages() {
  const runs = readRuns();
  const tokens = tokensChart(runs);
  const lines = [
    '# Benchmarks',
    '',
    '<!-- Written by scripts/benchmarks.mjs from benches/results; do not edit. -->',
    '',
    'The newest figures of each bench: medians, on the card that the row names. A row compares what ran in one session on one host. The file',
    'behind the date has every figure, the single runs, the driver, the host and the command that measures it again. What was tried on the',
    'way, and what it gave, stands in the [notes](notes).',
    '',
    '<picture>',
    '  <source media="(prefers-color-scheme: dark)" srcset="charts/tokens-dark.svg">',
    `  <img src="charts/tokens-light.svg" alt="${tokens.title}">`,
    '</picture>',
    '',
  ];
  /** @type {string[]} */
  const more = [];
  for (const [bench, section] of Object.entries(SECTIONS)) {
    const ofBench = runs.filter((run) => run.bench === bench);
    const groups = unique(ofBench.flatMap((run) => run.figures.map(({ group }) => group)));
    /** @type {string[]} */
    const faster = [];
    const rows = groups.flatMap((group) => {
      const having = newestFirst(ofBench.filter((run) => run.figures.some((figure) => figure.group === group)));
      // A GPU's figures are preferred to a processor's.
      const run = /** @type {Run} */ (having.find(({ device }) => !device.startsWith('llvmpipe')) ?? having[0]);
      const ofGroup = rowsOf(run, group, section);
      for (const older of section.named ? fasterPeers(run, having, group) : []) {
        for (const [what, ours, others, from] of rowsOf(older, group, section))
          faster.push(`- ${what}: ${[ours, others].join('; ').replaceAll('<br>', '; ')}. ${from}`);
      }
      if (ofGroup.some(([, ours, others]) => ours !== '' && others !== '')) return ofGroup;
      more.push(`- ${section.title}: ${cellText(group)}. ${source(run)}`);
      return [];
    });
    if (rows.length === 0) continue;
    const table = [['', 'helios-vk', 'others', 'card, date, commit'], ['---', '---', '---', '---'], ...rows];
    lines.push(`## ${section.title}`, '', section.about, '', ...table.map((cells) => `| ${cells.join(' | ')} |`), '');
    if (faster.length > 0) lines.push('Earlier, beside a faster peer:', '', ...faster, '');
  }
  lines.push('## Measured alone', '', 'Of our own alone, or of ours in several ways:', '', ...more, '');
  return new Map([
    [PAGE, `${lines.join('\n').trimEnd()}\n`],
    .../** @type {const} */ (['light', 'dark']).map(
      (theme) => /** @type {const} */ ([`docs/charts/tokens-${theme}.svg`, barsSvg(tokens, theme)]),
    ),
  ]);
}

await runMain(
  'node scripts/benchmarks.mjs [--check]',
  /** @type {const} */ ({ check: { type: 'boolean', help: 'write nothing; exit with 1 if a page is not current' } }),
  async ({ check }) => {
    const stale = [...pages()].filter(([path, text]) => !existsSync(join(ROOT, path)) || readFileSync(join(ROOT, path), 'utf8') !== text);
    if (!check) for (const [path, text] of stale) writeFileSync(join(ROOT, path), text);
    else for (const [path] of stale) console.error(`${path} is not current: node scripts/benchmarks.mjs`);
    return check && stale.length > 0 ? 1 : 0;
  },
);
