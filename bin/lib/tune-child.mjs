// The part of `helios-vk tune` that uses the device, in a process of its own. For each product it times the plan that the package
// chooses, then the others, then compares the fastest of those with the package's.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { resolve } from 'node:path';
import { KernelContext } from '../../kernels/base.mjs';
import { matmulKernels } from '../../kernels/matmul.mjs';
import { nameOf } from '../../kernels/hopper/tilings.mjs';
import { planName } from '../../kernels/matmul/words.mjs';
import { ptxPlans, sensible, splitsFor, tilings } from '../../kernels/tuning/candidates.mjs';
import { duel, timedProduct } from '../../kernels/tuning/measure.mjs';
import { identityOf, tableFile, tryToWrite } from '../../kernels/tuning/stored.mjs';
import { isSameFile } from './options.mjs';
import { DEVICE_LOST, HOPELESS, Journal, isDeviceLost } from './journal.mjs';

/** @typedef {import('../../kernels/tuning/table.mjs').Shape} Shape */
/** @typedef {import('./tune.mjs').Job} Job */

/** Fraction of a product's time that is spent on candidates; the rest is for the final comparison. */
const CANDIDATES_SHARE = 0.85;
/** Number of tilings for which every way to split K is timed: the fastest ones without a split. */
const SPLIT_TILINGS = 6;
/** In class `permuted`: B as it is, by the plan that the package has for that. */
const NATURAL = { kernel: 'natural' };
/** Rounds of the final comparison. */
const ROUNDS = 15;

const [file, seconds] = process.argv.slice(2);
/** @type {{ jobs: Job[], log: string, quick: boolean, out?: string, shapes?: string }} */
const { jobs, log, quick, out, shapes } = JSON.parse(readFileSync(file, 'utf8'));
const end = Date.now() + Number(seconds) * 1000;
const journal = new Journal(log, end);

const require = createRequire(import.meta.url);
/** @type {typeof import('../../index.js')} */
let vk;
/** @type {KernelContext} */
let context;
try {
  vk = require(process.env.HELIOS_TEST_ADDON ? resolve(process.env.HELIOS_TEST_ADDON) : '../../index.js');
  context = new KernelContext(vk, { tuning: false });
} catch (error) {
  console.error(/** @type {Error} */ (error).message);
  process.exit(HOPELESS);
}
const kernels = matmulKernels(context);
const path = out ?? tableFile(context.info)?.path;
journal.write({ key: 'device', device: identityOf(context.info), path });
// Measuring is of no use if the table cannot be written.
if (path === undefined) process.exit(HOPELESS);
try {
  if (shapes !== undefined && isSameFile(shapes, path))
    throw new Error(`--shapes ${shapes}: it must not be the file that the table is written to, ${path}`);
  tryToWrite(resolve(path));
} catch (error) {
  journal.write({ key: 'device', error: /** @type {Error} */ (error).message });
  process.exit(HOPELESS);
}

/** Types of a class's products; halves are bf16 if the device supports it. @param {Job} job @returns {any} */
function typesOf({ name, shape }) {
  if (name === 'f32' || name === 'bf16x3')
    return kernels.matmulSupports(name) && { precision: name, aType: 'f32', bType: 'f32', cType: 'f32' };
  const half = /** @type {const} */ (['bf16', 'f16']).find((type) => kernels.matmulSupports(type));
  if (half === undefined || (name === 'permuted' && !context.takesPtx)) return undefined;
  if (name === 'mixed') return { precision: half, aType: 'f32', bType: half, cType: 'f32' };
  // As in training: activations and their gradients are halves, weight gradients are not.
  return { precision: half, aType: half, bType: half, cType: shape.form[0] === 'T' ? 'f32' : half };
}

/** The plan that the package chooses, in the form of a table. @param {Job} job @param {any} types @returns {any} */
function ownPlan({ name, shape: { form, ...sizes } }, types) {
  const args = { ...sizes, ...types, transA: form[0] === 'T', transB: form[1] === 'T' };
  if (name !== 'permuted') return tabled(kernels.matmulPlan(args));
  return kernels.takesPermuted(args) ? { ...tabled(kernels.matmulPlan({ ...args, bPermuted: true })), permuted: true } : NATURAL;
}

/** A plan of `matmulPlan` in the form of a table. @param {any} plan @returns {any} */
function tabled(plan) {
  if (plan.kernel !== 'ptx') return plan;
  const { splits, wave, tail } = plan;
  return { kernel: 'ptx', tiling: nameOf(plan.tiling), splits, ...(tail > 1 ? { wave, tail } : {}) };
}

/**
 * The plans to time, best guesses first; earlier timings decide on later candidates.
 * @param {Job} job @param {any} types @param {(plan: any) => number} timeOf
 * @returns {Generator<any, void, void>}
 */
function* candidates({ name, shape }, types, timeOf) {
  if (name === 'permuted') {
    for (const ways of Object.values(ptxPlans(shape, 'bf16', { permuted: true }))) yield* ways.slice(0, 2);
    yield NATURAL;
    return;
  }
  const { precision, aType, bType } = types;
  const inPtx = context.takesPtx && precision === aType && precision === bType ? ptxPlans(shape, aType === 'f32' ? 'f32' : 'bf16') : {};
  for (const ways of Object.values(inPtx)) yield* ways.slice(0, 2);
  const fastest = (/** @type {any[]} */ list) => list.sort((x, y) => timeOf(x) - timeOf(y));
  const spirv = sensible(shape, tilings(precision, context, { quick })).map((plan) => ({ ...plan, splits: 1 }));
  yield* spirv;
  for (const [best] of fastest(Object.values(inPtx).map((ways) => fastest(ways.slice(0, 2)))).slice(0, 2))
    yield* inPtx[best.tiling].slice(2);
  const splittable = context.isCpu ? [] : fastest(spirv).slice(0, quick ? 2 : SPLIT_TILINGS);
  for (const plan of splittable) for (const split of splitsFor(shape, plan).slice(1)) yield { ...plan, ...split };
}

/** @param {Job} job @param {string} key @param {number} until */
function tune(job, key, until) {
  const { name, shape } = job;
  const types = typesOf(job);
  if (!types) return journal.write({ key: `${key} | result`, name, shape, error: `the device does not multiply in class ${name}` });
  const own = ownPlan(job, types);
  const product = timedProduct(vk, kernels, shape, types, { small: context.isCpu });
  const entryOf = (/** @type {any} */ plan) => journal.done.get(`${key} | ${planName(plan)}`);
  const time = (/** @type {any} */ plan) =>
    journal.attempt(`${key} | ${planName(plan)}`, { plan }, (entry) => Object.assign(entry, product.measure(plan)));
  journal.end = until;
  time(own);
  journal.end = Date.now() + (until - Date.now()) * CANDIDATES_SHARE;
  const timeOf = (/** @type {any} */ plan) => {
    const entry = entryOf(plan);
    return entry?.us && !entry.differ ? entry.us : Infinity;
  };
  for (const plan of candidates(job, types, timeOf)) time(plan);

  journal.end = Infinity;
  const tried = [...journal.done.values()].filter((entry) => entry.key.startsWith(`${key} | `));
  journal.attempt(`${key} | result`, { name, shape }, (entry) => {
    if (timeOf(own) === Infinity) throw new Error(`the package's own plan: ${entryOf(own)?.error ?? 'it was not timed'}`);
    const others = tried.filter(({ plan }) => planName(plan) !== planName(own)).sort((x, y) => timeOf(x.plan) - timeOf(y.plan));
    Object.assign(entry, { own, plan: own, us: timeOf(own), ownUs: timeOf(own), faster: false });
    Object.assign(entry, { tried: tried.length, failed: tried.filter(({ error, differ }) => error || differ).length });
    if (others.length === 0 || timeOf(others[0].plan) >= timeOf(own)) return;
    const [{ plan }] = others;
    const result = duel(product.sampler(own), product.sampler(plan), ROUNDS);
    Object.assign(entry, { ownUs: result.first, us: result.first });
    if (result.faster) Object.assign(entry, { plan, us: result.second, faster: true });
  });
  product.close();
}

const open = jobs
  .map((job) => ({ job, key: `${job.name} ${Object.values(job.shape).join(' ')}` }))
  .filter(({ key }) => !journal.done.has(`${key} | result`));
for (const [i, { job, key }] of open.entries()) {
  const left = end - Date.now();
  if (left <= 0) break;
  try {
    tune(job, key, Date.now() + left / (open.length - i));
  } catch (error) {
    journal.write({ key: `${key} | result`, name: job.name, shape: job.shape, error: /** @type {Error} */ (error).message });
    // The next child continues.
    if (isDeviceLost(error)) process.exit(DEVICE_LOST);
  }
  const { error, faster, us, ownUs } = /** @type {import('./journal.mjs').Entry} */ (journal.done.get(`${key} | result`));
  const what = error ?? (faster ? `${us.toFixed(1)} µs, before ${ownUs.toFixed(1)}` : `${ownUs.toFixed(1)} µs, as it was`);
  console.error(`${i + 1} of ${open.length}: ${key}: ${what}`);
}
vk.destroy();
