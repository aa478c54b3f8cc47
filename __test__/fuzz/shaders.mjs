#!/usr/bin/env node
// Damaged shaders against a driver: modules of the addon and of the tests, with words changed and instructions
// lost, repeated or exchanged, are made into pipelines and run in child processes. In safe mode no child may
// die; without it (--unsafe) some do, which shows that the damage is one that drivers mind.
//
//   node __test__/fuzz/shaders.mjs [--seconds 60] [--count N] [--seed N] [--from 0] [--unsafe]
//
// Module number i of a seed is always the same. One that kills its child is left in fuzz/artifacts/shaders/; one
// that runs for too long (there is no limit of loops on some drivers) is counted, and its child ended. Where that
// loses the device instead, the child goes on with a new one.

import { spawn } from 'node:child_process';
import { mkdirSync, writeFileSync, writeSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { UsageError, isMain, runMain } from '../../bin/lib/options.mjs';
import { mutant } from './mutate.mjs';

const ARTIFACTS = join(dirname(fileURLToPath(import.meta.url)), 'artifacts', 'shaders');
/** A module that takes longer runs forever. */
const HANG_MS = 10_000;
/** A child that has no device by then never will. */
const START_MS = 60_000;
/** Modules of one child: it destroys its pipelines, and this bounds what a driver keeps of them all the same. */
const PER_CHILD = 4000;
/** Long modules change little in what is tried. */
const MAX_WORDS = 3000;

/** The modules that are damaged. */
async function originals() {
  const { vk } = await import('../lib/addon.mjs');
  const programs = await import('../lib/programs.mjs');
  /** @type {Uint32Array[]} */
  const modules = Object.values(vk.shaders).map(({ spirv }) => spirv);
  for (const program of Object.values(programs)) {
    if (typeof program === 'object' && 'spirv' in program) modules.push(program.spirv);
  }
  return modules.filter((spirv) => spirv.length < MAX_WORDS);
}

/** @param {unknown} error @param {readonly string[]} expected codes; anything else is a defect of ours, and ends the child */
function codeOf(error, expected) {
  const { code, message } = /** @type {Error & { code?: string }} */ (error);
  // A panic of ours loses the device as well.
  if (code === undefined || !expected.includes(code) || message.includes('panic:')) throw error;
  return code;
}

/**
 * The life of a child: names its device, then writes the number of each module before it goes to the driver, and what
 * became of it afterwards; `end` last, where no driver ended it.
 * @param {{ seed: number, from: number, to: number, seconds: number, safe: boolean }} options `seconds`: from when it has a
 *   device, so that a slow start leaves something to be tried; one module always is
 */
async function child({ seed, from, to, seconds, safe }) {
  const { vk } = await import('../lib/addon.mjs');
  const modules = await originals();
  const begin = () => {
    const { deviceName } = vk.initDevice({ safe });
    return { deviceName, buffers: Array.from({ length: 8 }, () => vk.createBuffer(4096)) };
  };
  let { deviceName, buffers } = begin();
  writeSync(1, `device ${deviceName}\n`);

  /** @param {Uint32Array} spirv */
  const attemptOne = (spirv) => {
    let pipeline;
    try {
      pipeline = vk.createPipeline(spirv, 8, 128);
    } catch (error) {
      const code = codeOf(error, [
        'ERR_HELIOS_INVALID_ARGUMENT',
        'ERR_HELIOS_UNSUPPORTED',
        'ERR_HELIOS_VULKAN',
        'ERR_HELIOS_OUT_OF_MEMORY',
        'ERR_HELIOS_DEVICE_LOST',
      ]);
      if (code === 'ERR_HELIOS_DEVICE_LOST') return 'lost';
      return code === 'ERR_HELIOS_VULKAN' || code === 'ERR_HELIOS_OUT_OF_MEMORY' ? 'driver' : 'refused';
    }
    let what = 'run';
    try {
      vk.waitTimeline(vk.dispatch(pipeline, buffers, 2, 1, 1, new Uint32Array(32).fill(16)));
    } catch (error) {
      const code = codeOf(error, [
        'ERR_HELIOS_INVALID_ARGUMENT',
        'ERR_HELIOS_VULKAN',
        'ERR_HELIOS_OUT_OF_MEMORY',
        'ERR_HELIOS_DEVICE_LOST',
      ]);
      if (code === 'ERR_HELIOS_DEVICE_LOST') return 'lost';
      what = 'made';
    }
    vk.destroyPipeline(pipeline);
    return what;
  };

  const start = performance.now();
  for (let index = from; index < to && (index === from || performance.now() - start < seconds * 1000); index++) {
    writeSync(1, `${index} `);
    const what = attemptOne(mutant(modules, seed, index));
    writeSync(1, `${what}\n`);
    if (what === 'lost') {
      vk.destroy();
      ({ buffers } = begin());
    }
  }
  vk.destroy();
  writeSync(1, 'end\n');
}

/**
 * Tries modules `from` to `to` in a child; how far it came, and how it ended.
 * @param {{ seed: number, from: number, to: number, seconds: number, safe: boolean }} options
 * @returns {Promise<{ next: number, device: string, counts: Record<string, number>, whole: boolean, hung: boolean, end: string }>}
 *   `next`: behind the last module that was begun
 */
function attempt({ seed, from, to, seconds, safe }) {
  const args = ['--child', '--seed', `${seed}`, '--from', `${from}`, '--count', `${to - from}`];
  if (seconds !== Infinity) args.push('--seconds', `${Math.max(1, Math.ceil(seconds))}`);
  if (!safe) args.push('--unsafe');
  const process_ = spawn(process.execPath, [fileURLToPath(import.meta.url), ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    // What a driver crashes on must not come back from its cache, nor go into the user's.
    env: { ...process.env, HELIOS_PIPELINE_CACHE: '0', HELIOS_REPORT_DIR: '0', HELIOS_SAFE: undefined },
  });
  let [text, errors, device, next, ended, hung] = ['', '', '', from, false, false];
  /** @type {Record<string, number>} */
  const counts = {};
  let watch = setTimeout(() => {}, 0);
  const wait = (limit = HANG_MS) => {
    clearTimeout(watch);
    watch = setTimeout(() => {
      hung = true;
      process_.kill('SIGKILL');
    }, limit);
  };
  wait(START_MS);
  process_.stdout.setEncoding('utf8').on('data', (chunk) => {
    const lines = (text + chunk).split('\n');
    text = lines.pop() ?? '';
    for (const line of lines) {
      if (line === 'end') ended = true;
      else if (line.startsWith('device ')) device = line.slice('device '.length);
      else {
        const [index, what] = line.split(' ');
        next = Number(index) + 1;
        counts[what] = (counts[what] ?? 0) + 1;
      }
    }
    wait();
  });
  process_.stderr.setEncoding('utf8').on('data', (chunk) => {
    errors = (errors + chunk).slice(-2000);
  });
  return new Promise((done, failed) => {
    process_.on('error', failed);
    process_.on('close', (code, signal) => {
      clearTimeout(watch);
      const end = signal ?? `status ${code}\n${errors}`;
      if (device === '') return failed(new Error(`a child had no device to try modules on: ${end}`));
      // The number of a module without what became of it.
      if (/^\d+ /.test(text)) next = Number.parseInt(text, 10) + 1;
      done({ next, device, counts, whole: code === 0 && ended, hung, end });
    });
  });
}

/**
 * Tries modules until the time or the count is over; what became of them.
 * @param {{ seed?: number, from?: number, count?: number, seconds?: number, safe?: boolean, keep?: boolean }} options
 *   `keep`: whether modules that kill are left in a folder
 */
export async function run({ seed = 1, from = 0, count = Infinity, seconds = Infinity, safe = true, keep = true }) {
  const total = { tried: 0, refused: 0, driver: 0, made: 0, run: 0, lost: 0, hung: 0 };
  /** @type {{ index: number, end: string }[]} */
  const crashes = [];
  const modules = await originals();
  const start = performance.now();
  const left = () => seconds - (performance.now() - start) / 1000;
  let [index, device] = [from, ''];
  while (index < from + count && left() > 0) {
    const to = Math.min(index + PER_CHILD, from + count);
    const { next, counts, whole, hung, end, ...rest } = await attempt({ seed, from: index, to, seconds: left(), safe });
    device = rest.device;
    total.tried += next - index;
    for (const [what, n] of Object.entries(counts)) total[/** @type {keyof typeof total} */ (what)] += n;
    if (hung) total.hung++;
    else if (!whole) {
      // One that ended after its last module was done with is laid to that one, too.
      const last = Math.max(next - 1, from);
      crashes.push({ index: last, end });
      if (keep) {
        mkdirSync(ARTIFACTS, { recursive: true });
        writeFileSync(join(ARTIFACTS, `${seed}-${last}.spv`), mutant(modules, seed, last));
      }
    }
    // Where a child came nowhere, the next would not either.
    index = whole ? next : Math.max(next, index + 1);
  }
  return { device, ...total, crashes };
}

if (isMain(import.meta.url)) {
  const options = /** @type {const} */ ({
    seconds: { type: 'integer', min: 1, max: 10_000_000, help: 'how long (default 60 without --count)' },
    count: { type: 'integer', min: 1, max: 1e9, help: 'how many modules' },
    seed: { type: 'integer', min: 0, max: 2 ** 32 - 1, help: 'of the modules (default: another each time)' },
    from: { type: 'integer', min: 0, max: 1e9, default: 0, help: 'the first module' },
    unsafe: { type: 'boolean', help: 'without safe mode' },
    child: { type: 'boolean', help: 'is the child' },
  });
  await runMain('node __test__/fuzz/shaders.mjs [options]', options, async ({ count = Infinity, from, unsafe, ...values }) => {
    const safe = !unsafe;
    const seconds = values.seconds ?? (count === Infinity ? 60 : Infinity);
    const seed = values.seed ?? Math.floor(Math.random() * 2 ** 32);
    if (values.child) {
      if (values.seed === undefined || count === Infinity) throw new UsageError('--child needs --seed and --count');
      await child({ seed, from, to: from + count, seconds, safe });
      return 0;
    }
    const { crashes, ...rest } = await run({ seed, from, count, seconds, safe });
    console.log(JSON.stringify({ safe, seed, ...rest, crashes: crashes.length }));
    for (const { index, end } of crashes.slice(0, 20)) console.log(`module ${index}: ${end}`);
    return safe && crashes.length > 0 ? 1 : 0;
  });
}
