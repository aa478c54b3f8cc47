// The table of runtimes in docs/packages.md, of what scripts/platforms/runtimes.mjs found.

import { between } from './page.mjs';

/**
 * What one run found of a runtime or a bundler.
 * @typedef {object} Found
 * @property {string} date
 * @property {string} [skipped] why it was not tried
 * @property {string} [version]
 * @property {string} [ran] what ran, and where
 * @property {Record<string, number>} [left] tests that are known to fail there, by the reason
 */

const MARKS = /** @type {const} */ (['<!-- made by scripts/platforms/runtimes.mjs -->', '<!-- end of runtimes -->']);

/** @param {Record<string, Found>} results */
export function table(results) {
  const rows = Object.entries(results).map(([name, { date, skipped, version, ran, left = {} }]) => {
    const failing = Object.entries(left).map(([reason, tests]) => `${tests} ${tests === 1 ? 'test' : 'tests'}: ${reason}`);
    const cells = [`${version ?? name}, ${date}`, skipped ? `skipped: ${skipped}` : (ran ?? ''), failing.join('<br>')];
    return `| ${cells.map((text) => text.replaceAll('|', '\\|')).join(' | ')} |`;
  });
  return ['| runtime, date | what passed | what does not |', '| --- | --- | --- |', ...rows].join('\n');
}

/** The page with the table of these results. @param {string} page @param {Record<string, Found>} results */
export const withTable = (page, results) => between(page, MARKS, table(results));
