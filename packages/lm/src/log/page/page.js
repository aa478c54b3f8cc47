// Draws a run from the messages of `page.mjs`: `run` has everything, `more` what is new. Text goes in as text, never as HTML.

/* global uPlot */

import { formatBytes, formatCount, formatDuration, formatLeft, formatNumber } from './format.mjs';

const $ = (id) => document.getElementById(id);
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`);
const precise = (value) => formatNumber(value, 4);
const exponent = (value) => (value === 0 ? '0' : value.toExponential(2).replace(/\.?0+e/, 'e'));
const compact = (value) => value.toLocaleString('en', { notation: 'compact', maximumSignificantDigits: 3 });

/** Steps as rows [step, loss, learning rate, gradient norm, tokens a second, memory], evaluations as rows [step, loss]. */
let run = { steps: [], evals: [], samples: [], latest: {} };
const column = (rows, i) => rows.map((row) => row[i]);

/** A running mean that does not start from 0. */
function smoothed(values) {
  const keep = Number($('smoothing').value);
  let [sum, weight] = [0, 0];
  return values.map((value) => {
    if (value === null) return null;
    sum = sum * keep + value * (1 - keep);
    weight = weight * keep + 1 - keep;
    return sum / weight;
  });
}

function losses() {
  const loss = column(run.steps, 1);
  return uPlot.join([
    [column(run.steps, 0), loss, smoothed(loss)],
    [column(run.evals, 0), column(run.evals, 1)],
  ]);
}
const only = (i, label) => ({ lines: [{ label, color: 'train' }], data: () => [column(run.steps, 0), column(run.steps, i)] });
const fromZero = (_, low, high) => [Math.min(0, low), 1.1 * high || 1];

const CHARTS = [
  {
    id: 'loss',
    height: 320,
    format: precise,
    lines: [
      { label: 'each step', color: 'faint' },
      { label: 'smoothed', color: 'train', width: 2 },
      { label: 'validation', color: 'validation', width: 2, points: true },
    ],
    data: losses,
  },
  { id: 'rate', format: exponent, ...only(2, 'learning rate') },
  { id: 'norm', format: precise, ...only(3, 'norm before clipping') },
  { id: 'speed', format: compact, range: fromZero, ...only(4, 'tokens a second') },
  // Ticks at powers of two.
  { id: 'memory', format: formatBytes, range: fromZero, incrs: Array.from({ length: 50 }, (_, i) => 2 ** i), ...only(5, 'in use') },
];

/** What a line has at a point; where it has nothing there, what it had last. */
function valueAt(plot, line, index) {
  const values = plot.data[line];
  for (let i = index ?? values.length - 1; i >= 0; i--) if (values[i] != null) return values[i];
}

function makePlot({ id, height = 170, format, lines, range, incrs }, data) {
  const grid = { stroke: color('line'), width: 1 };
  const axis = { stroke: color('quiet'), grid, ticks: grid, font: '11px system-ui' };
  const log = id === 'loss' && $('log').checked;
  const shown = (format) => (plot, _, line, index) => {
    const value = valueAt(plot, line, index);
    return value === undefined ? '–' : format(value);
  };
  const options = {
    width: $(id).clientWidth - 24,
    height,
    cursor: { sync: { key: 'run', scales: ['x', null] }, y: false, drag: { x: true, y: false } },
    scales: { x: { time: false }, y: log ? { distr: 3, range: (_, low, high) => [low * 0.97, high * 1.03] } : { range } },
    axes: [
      { ...axis, values: (_, ticks) => ticks.map((step) => (Number.isInteger(step) ? compact(step) : '')) },
      {
        ...axis,
        size: 64,
        incrs,
        // All ticks of a log scale have a label, since losses span less than a decade.
        filter: (_, ticks) => ticks,
        values: (_, ticks) => ticks.map((tick) => (tick === null ? '' : format === precise ? compact(tick) : format(tick))),
      },
    ],
    series: [
      { label: 'step', value: shown(formatCount) },
      ...lines.map(({ label, color: name, width = 1.25, points = false }) => ({
        label,
        width,
        stroke: color(name),
        spanGaps: true,
        points: { show: points, size: 6, fill: color(name) },
        value: shown(format),
      })),
    ],
  };
  return new uPlot(options, data, $(id));
}

/** Draws all charts, from the beginning where `anew`; one that is zoomed in stays so. */
function draw(anew) {
  for (const chart of CHARTS) {
    const data = chart.data();
    // Some runs do not measure it.
    $(chart.id).hidden = !data.slice(1).some((values) => values.some((value) => value != null));
    if ($(chart.id).hidden) continue;
    const old = chart.plot;
    const { min, max } = old?.scales.x ?? {};
    const zoomed = old && (min > old.data[0][0] || max < old.data[0].at(-1));
    if (anew) old?.destroy();
    if (anew || !old) chart.plot = makePlot(chart, data);
    else old.setData(data, !zoomed);
    if (zoomed) chart.plot.setScale('x', { min, max });
  }
}

const ENDS = { steps: 'finished', 'early-stopping': 'stopped early: validation loss no longer falls', stopped: 'stopped' };

function tell(state, text) {
  $('state').className = state;
  $('state').textContent = text;
}

function element(name, ...content) {
  const made = document.createElement(name);
  made.append(...content);
  return made;
}

function describe() {
  const { start, done, eval: evaluated, checkpoint, best } = run.latest;
  const { loss, tokensPerSecond, memoryBytes } = run.latest.step ?? {};
  const step = (done ?? run.latest.step ?? start)?.step ?? run.steps.at(-1)?.[0] ?? 0;
  const low = run.evals.reduce((low, row) => (row[1] !== null && !(row[1] >= low?.[1]) ? row : low), undefined);
  $('title').textContent = run.title;
  document.title = start ? `${Math.floor((100 * step) / start.steps)} % – ${run.title}` : run.title;
  $('progress').value = start ? step / start.steps : 0;
  $('about').textContent = start
    ? `${compact(start.parameters)} parameters in ${start.precision} on ${start.device} · ${compact(start.trainTokens)} tokens to train on, ` +
      `${compact(start.validationTokens)} held out · ${formatCount(start.tokensPerStep)} tokens a step`
    : '';
  const facts = {
    Step: start && `${formatCount(step)} of ${formatCount(start.steps)}`,
    'Time left': start && !done && formatLeft(run.left),
    'Time taken': done && formatDuration(done.seconds * 1000),
    Loss: loss != null && precise(loss),
    'Validation loss': evaluated && precise(evaluated.loss),
    Perplexity: evaluated?.perplexity && precise(evaluated.perplexity),
    'Bits a byte': evaluated?.bitsPerByte != null && precise(evaluated.bitsPerByte),
    'Best validation loss': low && `${precise(low[1])} at step ${formatCount(low[0])}`,
    'Tokens a second': tokensPerSecond != null && formatNumber(tokensPerSecond),
    Memory: memoryBytes != null && formatBytes(memoryBytes),
    'Last checkpoint': checkpoint?.path,
    'Best checkpoint': best?.path,
  };
  const known = Object.entries(facts).filter(([, fact]) => fact);
  $('facts').replaceChildren(...known.map(([name, fact]) => element('div', element('dt', name), element('dd', fact))));
  tell(done ? 'done' : 'live', done ? ENDS[done.reason] : start ? 'running' : 'starting');
}

function showSamples() {
  $('samples').hidden = run.samples.length === 0;
  const samples = run.samples.map(({ step, text }) => element('article', element('h3', `step ${formatCount(step)}`), element('pre', text)));
  $('samples').replaceChildren($('samples').firstElementChild, ...samples.reverse());
}

function show(news) {
  run = news;
  describe();
  showSamples();
  draw(false);
}

const source = new EventSource('events');
source.addEventListener('run', ({ data }) => show(JSON.parse(data)));
source.addEventListener('more', ({ data }) => {
  const { steps, evals, ...news } = JSON.parse(data);
  show({ ...run, ...news, steps: [...run.steps, ...steps], evals: [...run.evals, ...evals] });
});
source.addEventListener('error', () => {
  // It tries again by itself, unless the run is over.
  if (run.latest.done) source.close();
  else tell('gone', 'no connection: the run was ended, or cannot be reached');
});

$('smoothing').addEventListener('input', () => draw(false));
$('log').addEventListener('change', () => draw(true));
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => draw(true));
new ResizeObserver(() => {
  for (const { id, plot } of CHARTS) plot?.setSize({ width: $(id).clientWidth - 24, height: plot.height });
}).observe(document.body);
