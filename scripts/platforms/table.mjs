// The table of platforms in docs/packages.md, of what scripts/platforms.mjs found.

import { readFileSync } from 'node:fs';

import { between } from './page.mjs';

export const RESULTS = 'docs/platforms.json';
export const PAGE = 'docs/packages.md';

/**
 * What one run found of a platform.
 * @typedef {object} Result
 * @property {string} date
 * @property {string} [commit] of what was built
 * @property {string} [skipped] why it was not tried, or not to its end
 * @property {number} [bytes] of the binary
 * @property {string} [toolchain]
 * @property {string[]} needs what the binary asks of its system
 * @property {Run[]} runs
 */

/**
 * One program that ran on a platform.
 * @typedef {object} Run
 * @property {string} what
 * @property {string} on runtime and device
 * @property {string} result
 */

/** @param {string} text */
const cell = (text) => text.replaceAll('|', '\\|');

/**
 * @param {Record<string, Result>} results
 * @param {string[]} targets all that there are, in their order
 */
export function table(results, targets) {
  const rows = targets.map((target) => {
    if (!(target in results)) return `| \`${target}\` | | no run was recorded yet |`;
    const { date, commit, skipped, bytes, toolchain, needs, runs } = results[target];
    const built = bytes ? `${(bytes / 1e6).toFixed(1)} MB with ${toolchain}; ${needs.join('; ')}` : 'no';
    const ran = runs.map(({ what, on, result }) => `${what} (${on}): ${result}`);
    if (skipped) ran.push(`skipped: ${skipped}`);
    return `| \`${target}\`, ${date}${commit ? `, ${commit}` : ''} | ${cell(built)} | ${cell(ran.join('<br>')) || 'nothing runs it here'} |`;
  });
  return ['| target, date, commit | built | what ran |', '| --- | --- | --- |', ...rows].join('\n');
}

const MARKS = /** @type {const} */ (['<!-- made by scripts/platforms.mjs -->', '<!-- end -->']);

/**
 * The page with the table of these results.
 * @param {string} page
 * @param {Record<string, Result>} results
 * @param {string[]} targets
 */
export const withTable = (page, results, targets) => between(page, MARKS, table(results, targets));

/** @param {URL | string} file @returns {Record<string, Result>} */
export const readResults = (file) => JSON.parse(readFileSync(file, 'utf8'));
