/** Prints the profile of a training run as a table. */

import { formatCount, formatNumber } from '../log/format.mjs';

/** Floating-point operations a second as `1.23 TFLOP/s`. @param {number} rate */
export function formatFlops(rate) {
  const [divisor, unit] = rate >= 1e12 ? [1e12, 'TFLOP/s'] : [1e9, 'GFLOP/s'];
  return `${formatNumber(rate / divisor)} ${unit}`;
}

/**
 * GPU time of a line of the model.
 * @typedef {object} KernelTime
 * @property {string} role what runs there, and the line
 * @property {number} count dispatches
 * @property {number} microseconds
 * @property {number} flops floating-point operations of products, 2 for each multiplication
 * @property {{ product: string, kernel: string, because: string, fallback: boolean, guess?: boolean }[]} products the kernels of products, and why these
 */

/**
 * The products of a step as a table, each once: by which kernel it is computed, and why; fallbacks first, then guesses.
 * @param {KernelTime[]} times
 * @returns {string[]} lines; none without products
 */
export function productLines(times) {
  const distinct = new Map(times.flatMap(({ products }) => products.map((choice) => [Object.values(choice).join('\n'), choice])));
  if (distinct.size === 0) return [];
  const choices = [...distinct.values()].sort(
    (a, b) => Number(b.fallback) - Number(a.fallback) || Number(b.guess ?? false) - Number(a.guess ?? false),
  );
  const rows = choices.map(({ product, kernel, because, fallback, guess }) => [
    product,
    kernel,
    `${fallback ? 'FALLBACK: ' : guess ? 'guess: ' : ''}${because}`,
  ]);
  const all = [['product', 'kernel', 'because'], ...rows];
  const widths = [0, 1].map((column) => Math.max(...all.map((row) => row[column].length)));
  const lines = all.map(([product, kernel, because]) => `${product.padEnd(widths[0])}  ${kernel.padEnd(widths[1])}  ${because}`);
  const fallbacks = choices.filter(({ fallback }) => fallback).length;
  if (fallbacks > 0) lines.push(`${fallbacks} of ${rows.length} products run on a fallback: \`helios-vk tune\` may find faster kernels`);
  const guesses = choices.filter(({ fallback, guess }) => guess && !fallback).length;
  if (guesses > 0) lines.push(`${guesses} of ${rows.length} products run by a guess, not by a measurement of them`);
  return lines;
}

/**
 * What was timed to choose kernels of matrix products, in a line; undefined where nothing was.
 * @param {ReturnType<typeof import('helios-vk/nn').tuningSummary>} summary
 */
export function tuningLine({ products, faster, reordered, open, seconds, path }) {
  if (products === 0) return undefined;
  const gain = faster === 1 ? 'has a faster kernel' : 'have faster kernels';
  return [
    `timed ${products} matrix ${products === 1 ? 'product' : 'products'} in ${seconds.toFixed(1)} s: ${faster} ${gain} now`,
    ...(reordered > 0 ? [`${reordered} of them with sums in another order, so that last bits may differ`] : []),
    ...(open > 0 ? [`${open} are left for the next run`] : []),
    path === undefined ? 'not kept' : `kept in ${path}`,
    'HELIOS_TUNE=0 leaves this out',
  ].join('; ');
}

/**
 * A profile as a table. Rows of one name are added up; names beyond the first `most` share one line.
 * @param {import('helios-vk').Profile} profile
 * @param {number} [most] names at most
 * @returns {string[]} lines
 */
export function profileTable(profile, most = 24) {
  /** @type {Map<string, { name: string, count: number, us: number, operations: number[], bytes: number[] }>} */
  const names = new Map();
  for (const row of profile.rows) {
    const entry = names.get(row.name) ?? { name: row.name, count: 0, us: 0, operations: [], bytes: [] };
    entry.count += row.count;
    entry.us += row.us;
    if (row.tflops) entry.operations.push(1e12 * row.tflops);
    else if (row.gbPerSecond) entry.bytes.push(row.gbPerSecond);
    names.set(row.name, entry);
  }
  const sorted = [...names.values()].sort((a, b) => b.us - a.us);
  const shown = sorted.slice(0, most);
  const rest = sorted.slice(most);
  if (rest.length > 0) {
    const sum = (/** @type {'us' | 'count'} */ key) => rest.reduce((total, row) => total + row[key], 0);
    shown.push({ name: `${rest.length} others`, count: sum('count'), us: sum('us'), operations: [], bytes: [] });
  }
  const cells = shown.map(({ name, count, us, operations, bytes }) => [
    (us / 1000).toFixed(3),
    `${((100 * us) / profile.gpuUs).toFixed(1)} %`,
    formatCount(count),
    (us / count).toFixed(1),
    operations.length > 0 ? span(operations, formatFlops) : span(bytes, (rate) => `${formatNumber(rate)} GB/s`),
    name,
  ]);
  const all = [
    ['GPU ms', 'share', 'count', 'µs each', 'rate', 'pipeline'],
    ...cells,
    [(profile.gpuUs / 1000).toFixed(3), '', '', '', '', `sum; ${(profile.us / 1000).toFixed(1)} ms from start to stop`],
  ];
  const widths = all[0].map((_, column) => Math.max(...all.map((row) => row[column].length)));
  const lines = all.map((row) => row.map((cell, i) => (i === 5 ? cell : cell.padStart(widths[i]))).join('  '));
  const calls = Object.entries(profile.calls)
    .sort(([, a], [, b]) => b.us - a.us)
    .slice(0, 8)
    .map(([name, { us, calls }]) => `${name} ${(us / 1000).toFixed(1)} ms (${formatCount(calls)})`);
  lines.push('', `host calls        ${calls.join(', ')}`);
  const clock = `${profile.clock}, within ${profile.clockErrorUs.toFixed(1)} µs`;
  if (profile.trace) lines.push(`trace             ${profile.trace} (${formatCount(profile.traceEvents ?? 0)} events; clocks: ${clock})`);
  return lines;
}

/** The lowest and the highest of several rates. @param {number[]} rates @param {(rate: number) => string} format */
function span(rates, format) {
  if (rates.length === 0) return '';
  const [low, high] = [format(Math.min(...rates)), format(Math.max(...rates))];
  return low === high ? high : `${low} – ${high}`;
}
