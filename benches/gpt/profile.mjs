/** Prints the profile of a training run as a table. */

import { formatCount, formatFlops, formatNumber } from './progress.mjs';

/**
 * A profile as a table. Rows of one name are added up; names beyond the first `most` share one line.
 * @param {import('../../index.js').Profile} profile
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
