// `helios-vk tune`: times the plans of matrix products on this machine's device, and writes a table of those that are faster than the
// package's own choice.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { planName } from '../../kernels/matmul/words.mjs';
import { addResults } from '../../kernels/tuning/stored.mjs';
import { currentClass } from '../../kernels/tuning/table.mjs';
import { entriesOf, runChildren } from './journal.mjs';
import { CommandError } from './link.mjs';
import { UsageError } from './options.mjs';
import { MODELS, MODEL_ALIASES, productsOf, productsOfFile } from './tune-shapes.mjs';

/** @typedef {import('../../kernels/tuning/table.mjs').Shape} Shape */
/** @typedef {import('../../kernels/tuning/stored.mjs').Stored} Stored */
/** A product to time, in a class of kernels/tuning/table.mjs. @typedef {{ name: 'half' | 'mixed' | 'bf16x3' | 'f32' | 'permuted', shape: Shape }} Job */
/**
 * The result for a product.
 * @typedef {object} Result
 * @property {Job['name']} name its class
 * @property {Shape} shape
 * @property {string} [error] why there is no measurement
 * @property {any} [own] the plan that the package chooses
 * @property {number} [ownUs] its microseconds
 * @property {any} [plan] the plan in the table
 * @property {number} [us] its microseconds
 * @property {boolean} [faster] whether it is faster by more than the noise
 * @property {number} [tried] plans that were timed
 * @property {number} [failed] plans that did not run or had wrong results
 */

/** Classes of products, and the default seconds of a run. */
const NAMES = /** @type {const} */ (['half', 'f32', 'mixed', 'bf16x3', 'permuted']);
const DEFAULT_NAMES = 'half,f32';
const DEFAULT_MODEL = 'gpt-300m';
const SECONDS = 600;
const QUICK_SECONDS = 120;

/**
 * Parses a comma-separated list whose words must be known.
 * @template {string} T
 * @param {string} option @param {string} text @param {readonly T[]} known
 * @returns {T[]}
 */
function words(option, text, known) {
  return text.split(',').map((word) => {
    const found = known.find((one) => one === word);
    if (found === undefined) throw new UsageError(`--${option} ${word}: must be one of ${known.join(', ')}`);
    return found;
  });
}

/**
 * @typedef {object} TuneOptions
 * @property {boolean} [quick] fewer plans, less time
 * @property {string} [shapes] file of products
 * @property {string} [model] presets with commas between them
 * @property {number} [tokens] tokens of a batch, instead of the preset's
 * @property {string} [classes] with commas between them
 * @property {string} [out] the table's file
 * @property {number} [budget] seconds
 */

/** @param {TuneOptions} options @returns {Job[]} */
export function jobsOf({ shapes, model, tokens, classes = DEFAULT_NAMES }) {
  if (shapes !== undefined && model !== undefined) throw new UsageError('--shapes and --model cannot be used together');
  if (shapes !== undefined && tokens !== undefined) throw new UsageError('--tokens can be used only with --model');
  const names = words('classes', classes.split(',').map(currentClass).join(','), NAMES);
  const products = shapes
    ? productsOfFile(shapes)
    : words('model', model ?? DEFAULT_MODEL, [...Object.keys(MODELS), ...Object.keys(MODEL_ALIASES)]).flatMap((name) => {
        const sizes = MODELS[MODEL_ALIASES[name] ?? name];
        return productsOf(sizes, tokens ?? sizes.tokens);
      });
  const distinct = [...new Map(products.map((shape) => [Object.values(shape).join(' '), shape])).values()];
  // Only weights are permuted, and in the product for their gradient (TN) B is not the weights.
  const takes = (/** @type {string} */ name, /** @type {Shape} */ { form }) => name !== 'permuted' || form[0] === 'N';
  return names.flatMap((name) => distinct.filter((shape) => takes(name, shape)).map((shape) => ({ name, shape })));
}

/**
 * @param {TuneOptions} options
 * @returns {Promise<{ ok: boolean, path: string, device: Stored['device'], results: Result[], open: number, note?: string }>}
 *   `ok` if every product that the device can compute was measured; `open`: number of products that the time was too short for
 */
export async function tune(options) {
  const jobs = jobsOf(options);
  const { quick = false, budget = quick ? QUICK_SECONDS : SECONDS } = options;
  const folder = mkdtempSync(join(tmpdir(), 'helios-tune-'));
  const [file, log] = ['jobs.json', 'journal.jsonl'].map((name) => join(folder, name));
  try {
    try {
      writeFileSync(file, JSON.stringify({ jobs, log, quick, out: options.out, shapes: options.shapes }));
    } catch (cause) {
      throw new CommandError('ERR_TUNE', `${file} could not be written: ${/** @type {Error} */ (cause).message}`);
    }
    const child = fileURLToPath(new URL('./tune-child.mjs', import.meta.url));
    await runChildren(child, (seconds) => [file, String(seconds)], Date.now() + budget * 1000);
    const entries = entriesOf(log);
    const found = /** @type {any} */ (entries.get('device'));
    if (!found) throw new CommandError('ERR_TUNE', 'no device could be measured (helios-vk doctor says what is missing)');
    if (found.error) throw new CommandError('ERR_TUNE', found.error);
    const { path } = found;
    if (path === undefined)
      throw new UsageError('HELIOS_TUNING or HELIOS_PIPELINE_CACHE is off, so no table is kept: name a file with --out');
    const results = /** @type {Result[]} */ (
      /** @type {unknown[]} */ ([...entries.values()].filter(({ key }) => key.endsWith(' | result')))
    );
    const note = save(resolve(path), found.device, results);
    const open = jobs.length - results.length;
    const ok = open === 0 && results.every(({ error }) => !error || /does not multiply/.test(error)) && results.some(({ error }) => !error);
    return { ok, path: resolve(path), device: found.device, results, open, ...(note ? { note } : {}) };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/**
 * Adds results to the table in a file, as `addResults` does.
 * @param {string} path @param {Stored['device']} device @param {Result[]} results
 * @param {number} [waitMs] after this time another run's lock counts as left behind
 * @returns {string | undefined} a note if the existing file is replaced, with the reason
 * @throws {CommandError} where it cannot be written
 */
export function save(path, device, results, waitMs) {
  try {
    return addResults(path, device, results, waitMs);
  } catch (error) {
    throw new CommandError('ERR_TUNE', /** @type {Error} */ (error).message);
  }
}

/** The report as text. @param {Awaited<ReturnType<typeof tune>>} report */
export function tuneReport({ path, device, results, open, note }) {
  const lines = [`${device.deviceName}, ${device.driverInfo}`];
  for (const { name, shape, error, plan, own, us = 0, ownUs = 0, faster, tried } of results) {
    const head = `${name} ${Object.values(shape).join(' ')}`.padEnd(28);
    if (error) lines.push(`! ${head} ${error}`);
    else if (faster) lines.push(`✓ ${head} ${ownUs.toFixed(1)} → ${us.toFixed(1)} µs: ${planName(plan)}`);
    else lines.push(`  ${head} ${ownUs.toFixed(1)} µs: ${planName(own)}, the fastest of ${tried} within noise`);
  }
  if (open > 0) lines.push(`! ${open} products were not reached: give it more time with --budget`);
  if (note) lines.push(`! ${note}`);
  const gains = results.filter(({ faster }) => faster).length;
  return [...lines, `${gains} of ${results.length} products have a faster plan; ${path}`].join('\n');
}
