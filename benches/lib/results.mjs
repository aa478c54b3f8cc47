/**
 * Results of the benches, kept in `benches/results` as one file for each run. `scripts/benchmarks.mjs` writes docs/benchmarks.md and its charts from
 * them.
 */

import { execFileSync } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { driverText } from './addon.mjs';
import { format, textTable } from './stats.mjs';

/** The folder of the results that the documentation is written from. */
export const RESULTS = fileURLToPath(new URL('../results', import.meta.url));

/** The benches that write results, in the order of the page. */
export const BENCHES = /** @type {const} */ ([
  'trainer-tokens',
  'alpha',
  'train',
  'ablation',
  'replay',
  'calls',
  'kernels',
  'kernels-matmul',
  'kernels-attention',
  'sampling',
  'safe-mode',
  'models',
  'onnx',
  'decoder',
  'finetune',
  'decode-kernels',
  'generate',
  'distributed',
]);

/**
 * @typedef {object} Figure one number
 * @property {string} group the table that it belongs to
 * @property {string} name its row: what was measured
 * @property {string} series its column: what was measured on, e.g. `helios-vk` or `C addon`
 * @property {string} unit e.g. `tok/s`, `µs`
 * @property {number} value the median of `runs` where there are some
 * @property {number[]} [runs] the single runs
 *
 * @typedef {object} Results one run of a bench
 * @property {1} schema
 * @property {typeof BENCHES[number]} bench
 * @property {string} title what was measured, in words
 * @property {string} device
 * @property {string} driver
 * @property {string} host processor, its number of logical cores, operating system and Node
 * @property {string} date `YYYY-MM-DD`, or with the time as `YYYY-MM-DDTHH:MM:SSZ`
 * @property {string} commit of this repository, abbreviated; with `+` where the checkout had changes
 * @property {string} command
 * @property {boolean} [transcribed] copied by hand from a document instead of written by the bench
 * @property {string} [source] the document, for transcribed results
 * @property {Figure[]} figures
 */

/** What every bench that keeps results takes. */
export const RESULTS_OPTION = /** @type {const} */ ({
  results: { type: 'string', value: 'FOLDER', path: 'output-folder', help: 'write a results file into this folder, e.g. benches/results' },
});

/** Every field as it must be. @type {Record<string, (value: unknown) => boolean>} */
const FIELDS = {
  schema: (value) => value === 1,
  bench: (value) => BENCHES.includes(/** @type {any} */ (value)),
  title: isText,
  device: isText,
  driver: isText,
  host: isText,
  date: (value) => isText(value) && /^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}:\d{2}Z)?$/.test(value) && !Number.isNaN(Date.parse(value)),
  commit: (value) => isText(value) && /^([0-9a-f]{7,40}\+?|unknown)$/.test(value),
  command: isText,
  figures: (value) => Array.isArray(value) && value.length > 0,
};
const FIGURE_FIELDS = ['group', 'name', 'series', 'unit'];

/** @param {unknown} value @returns {value is string} */
function isText(value) {
  return typeof value === 'string' && value.trim() !== '';
}

/** @param {unknown} value */
const isNumber = (value) => typeof value === 'number' && Number.isFinite(value);

/**
 * Checks a file of results against the schema.
 * @param {any} results
 * @param {string} name of the file, for the error
 * @returns {Results}
 * @throws {TypeError} that names the first field that is wrong
 */
export function checkResults(results, name) {
  for (const [field, fits] of Object.entries(FIELDS)) {
    if (!fits(results?.[field])) throw new TypeError(`${name}: ${field}: ${JSON.stringify(results?.[field])} does not fit the schema`);
  }
  const known = new Set([...Object.keys(FIELDS), 'transcribed', 'source']);
  const foreign = Object.keys(results).find((field) => !known.has(field));
  if (foreign !== undefined) throw new TypeError(`${name}: ${foreign}: no field of the schema`);
  if (results.transcribed !== undefined && (results.transcribed !== true || !isText(results.source))) {
    throw new TypeError(`${name}: transcribed results say true and name their source`);
  }
  const seen = new Set();
  for (const [i, figure] of results.figures.entries()) {
    const at = `${name}: figures[${i}]`;
    for (const field of FIGURE_FIELDS) if (!isText(figure[field])) throw new TypeError(`${at}.${field} is no text`);
    if (!isNumber(figure.value)) throw new TypeError(`${at}.value is no finite number`);
    if (figure.runs !== undefined && !(Array.isArray(figure.runs) && figure.runs.length > 0 && figure.runs.every(isNumber))) {
      throw new TypeError(`${at}.runs is no list of finite numbers`);
    }
    const key = JSON.stringify([figure.group, figure.name, figure.series]);
    if (seen.has(key)) throw new TypeError(`${at} is there twice: ${figure.group}, ${figure.name}, ${figure.series}`);
    seen.add(key);
  }
  return results;
}

/**
 * The commit of this checkout, `+` behind it where files differ from it, or `unknown` outside of git; on a host that got a copy
 * of the files, what HELIOS_BENCH_COMMIT says.
 */
export function commitOfCheckout() {
  const told = process.env.HELIOS_BENCH_COMMIT;
  if (told) return told;
  const cwd = fileURLToPath(new URL('../..', import.meta.url));
  const git = (/** @type {string[]} */ ...args) =>
    execFileSync('git', args, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
  try {
    return git('rev-parse', '--short=7', 'HEAD') + (git('status', '--porcelain', '--untracked-files=no') === '' ? '' : '+');
  } catch {
    return 'unknown';
  }
}

function hostOfProcess() {
  const processors = cpus();
  return `${processors[0]?.model.trim() || process.arch}, ${processors.length} logical cores, ${process.platform}, Node ${process.versions.node}`;
}

/**
 * Writes a run into a folder as `DATE-BENCH-DEVICE-COMMIT.json`, with a number behind it where that exists.
 * @param {string} folder
 * @param {{bench: Results['bench'], title: string, device: string, driver: string | undefined, figures: Figure[], script?: string}} run
 *   `script`: what ran, where it is not the bench of that name
 * @returns {string} the path of the file
 * @throws {TypeError} where the figures do not fit the schema, e.g. a value that is no finite number
 */
export function writeResults(folder, { bench, title, device, driver, figures, script }) {
  const date = `${new Date().toISOString().slice(0, 19)}Z`;
  const commit = commitOfCheckout();
  const command = ['node', script ?? `benches/${bench}.mjs`, ...withoutPaths(process.argv.slice(2))].join(' ');
  const results = checkResults(
    { schema: 1, bench, title, device, driver: driver ?? 'unknown', host: hostOfProcess(), date, commit, command, figures },
    bench,
  );
  mkdirSync(folder, { recursive: true });
  const stem = [date.replaceAll(/[:Z]/g, ''), bench, device, commit.replace('+', '-changed')]
    .join('-')
    .toLowerCase()
    .replaceAll(/[^a-z0-9-]+/g, '-')
    .replaceAll(/-{2,}/g, '-');
  for (let i = 1; ; i++) {
    const path = join(folder, `${stem}${i === 1 ? '' : `-${i}`}.json`);
    try {
      writeFileSync(path, textOf(results), { flag: 'wx' });
      return path;
    } catch (cause) {
      const { code, message } = /** @type {NodeJS.ErrnoException} */ (cause);
      if (code === 'EEXIST') continue;
      // Half a file would be read as a run's.
      rmSync(path, { force: true });
      throw new Error(`${path} could not be written: ${message}`, { cause });
    }
  }
}

/**
 * What most benches end with: writes the figures where `--results` asks for it, and prints them as JSON or as a table.
 * @param {{ results?: string, json?: boolean }} options
 * @param {{ bench: Results['bench'], title: string, info: import('../../index.js').DeviceInfo, figures: Figure[], about?: object }} run `about`: what
 *   the JSON says besides
 */
export function report({ results, json }, { bench, title, info, figures, about }) {
  const [device, driver] = [info.deviceName, driverText(info)];
  if (results !== undefined) writeResults(results, { bench, title, device, driver, figures });
  if (json) return console.log(JSON.stringify({ device, driver, ...about, figures }, null, 2));
  const rows = figures.map(({ group, name, series, unit, value, runs = [value] }) => [
    ...[group, name, series, `${format(value)} ${unit}`, `${format(Math.min(...runs))} – ${format(Math.max(...runs))}`],
  ]);
  console.log(`${title}, on ${device}\n\n${textTable(['', '', '', 'median', 'from – to'], rows)}`);
}

/** The text of a file: a line for each figure, so that a few hundred of them can be read. @param {Results} results */
export function textOf({ figures, ...run }) {
  const rows = figures.map((figure) => `  ${JSON.stringify(figure)}`);
  return `${JSON.stringify(run, null, 1).slice(0, -2)},\n "figures": [\n${rows.join(',\n')}\n ]\n}\n`;
}

/** Arguments without the folders of this machine: of a path only its last part stays. @param {string[]} args */
function withoutPaths(args) {
  return args.map((arg) => arg.replaceAll(/(^|=|,)[^=,]*\/([^/=,]+)/g, '$1$2'));
}
