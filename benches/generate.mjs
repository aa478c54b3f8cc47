#!/usr/bin/env node
/**
 * Measures how helios-lm generates text: from the commands generate and chat to the first token, loading, prompts, tokens a second with one and
 * with several sequences, embeddings, and device memory. The models have random weights. With --llama, llama.cpp through npm's node-llama-cpp does
 * the same, but for the chat, from the same GGUF file, in turns with ours.
 */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { profileTable } from '../packages/lm/src/train/profile.mjs';
import { parameterCount } from '../packages/lm/src/model/parts.mjs';
import { OWN_ADDON, deviceOf, driverText, loadAddon, runWorker } from './lib/addon.mjs';
import { UsageError, runMain } from '../bin/lib/options.mjs';
import { withPeakMemory } from './lib/gpu-memory.mjs';
import { contextOf, randomIds } from './lib/generation.mjs';
import { MODELS, bytesOf, configOf, modelFile, modelFolder } from './lib/generation-model.mjs';
import { openOurs } from './lib/generation-ours.mjs';
import { RESULTS_OPTION, writeResults } from './lib/results.mjs';
import { format, median, textTable } from './lib/stats.mjs';

/** @typedef {import('./lib/generation.mjs').Job} Job */
/** @typedef {import('./lib/generation.mjs').Measured} Measured */
/** @typedef {import('./lib/results.mjs').Figure} Figure */

const PARTS = ['first', 'chat', 'prefill', 'decode', 'embed'];
const LENGTHS = /** @type {const} */ ({ type: 'string', pattern: /^[1-9]\d*(,[1-9]\d*)*$/, value: 'positive integers, such as 512,4096' });
const OPTIONS = /** @type {const} */ ({
  model: {
    type: 'string',
    choices: /** @type {(keyof typeof MODELS)[]} */ (Object.keys(MODELS)),
    default: '300m',
    help: 'which model',
  },
  dtype: { type: 'string', choices: ['f32', 'f16', 'bf16', 'q8_0'], default: 'f16', help: 'of the weights on the device' },
  folder: { type: 'string', value: 'FOLDER', path: 'output-folder', default: 'runs/generate', help: 'models are written there, once' },
  measure: { type: 'string', default: PARTS.join(','), help: `of these, separated by commas: ${PARTS.join(', ')}` },
  prefill: { ...LENGTHS, default: '512,4096', help: 'tokens of the prompts whose time is measured' },
  prompt: { type: 'integer', min: 1, max: 65_536, default: 512, help: 'tokens before those whose rate is measured, and of an embedding' },
  tokens: { type: 'integer', min: 2, max: 65_536, default: 256, help: 'tokens of a sequence' },
  slots: { ...LENGTHS, default: '1,16', help: 'sequences at once; all but the rate is measured with the first of them' },
  turns: { type: 'integer', min: 1, max: 100, default: 1, help: 'with --llama: how often both take turns, before a last run of ours' },
  rounds: { type: 'integer', min: 2, max: 1000, default: 4, help: 'rounds, of which the first is not counted' },
  temperature: { type: 'number', min: 0, max: 100, default: 0, help: '0: the most likely token; else top-k 40, top-p 0.95, min-p 0.05' },
  llama: { type: 'string', value: 'FOLDER', path: 'input-folder', help: "the folder of npm's installed package node-llama-cpp" },
  'llama-device': { type: 'string', choices: ['vulkan', 'cuda', 'metal', 'cpu'], default: 'vulkan', help: 'what llama.cpp computes on' },
  profile: { type: 'boolean', help: 'instead, the time of a prompt and of a step by kernel, with the first number of --slots' },
  json: { type: 'boolean', help: 'print JSON' },
  ...RESULTS_OPTION,
});

/** What ends the programs under way: a measurement that goes on after a timeout would disturb the next. */
const stop = new AbortController();
for (const name of /** @type {const} */ (['SIGINT', 'SIGTERM'])) {
  process.once(name, () => {
    stop.abort(new Error(`stopped by ${name}`));
    process.exitCode = 1;
  });
}

/** Milliseconds of a processor that a process has taken, where the system says so. @param {number | undefined} pid */
function processorTime(pid) {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
      .replace(/^.*\) /s, '')
      .split(' ');
    // In the program and in the system, in hundredths of a second.
    return 10 * (Number(fields[11]) + Number(fields[12]));
  } catch {
    return undefined;
  }
}

/**
 * The milliseconds from starting a program until it prints something, and those of a processor.
 * @param {string[]} args of Node @param {string} [input] its standard input
 */
async function untilFirstOutput(args, input = '') {
  const started = performance.now();
  const child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'pipe'], signal: stop.signal, killSignal: 'SIGKILL' });
  child.on('error', () => {}); // reported by its end
  child.stdin.on('error', () => {});
  child.stdin.end(input);
  let errors = '';
  child.stderr.on('data', (chunk) => (errors += chunk));
  /** @type {{ elapsed: number, processor: number | undefined } | undefined} */ let first;
  child.stdout.on('data', () => (first ??= { elapsed: performance.now() - started, processor: processorTime(child.pid) }));
  const [code] = await once(child, 'close');
  if (code !== 0 || first === undefined)
    throw new Error(`${args.slice(0, 2).join(' ')} ended with ${code ?? 'a signal'}: ${errors.trim()}`);
  return first;
}

/** A job without sizes. @type {Job} */
const EMPTY = {
  path: '',
  dtype: '',
  vocabulary: 0,
  parts: [],
  prefill: [],
  prompt: 0,
  tokens: 0,
  slots: 1,
  rounds: 0,
  temperature: 0,
};

/** A series, and the worker that measures it. @typedef {{ series: string, worker: string, job: Job, first: string[], chat?: string[] }} Competitor */

/** The time of a first token. @typedef {NonNullable<Awaited<ReturnType<typeof untilFirstOutput>>>} First */

/** What the commands are told. */
const TEXT = 'Call me Ishmael.';

/** @param {string} name */
const module = (name) => new URL(`./lib/${name}`, import.meta.url).href;

/**
 * @param {Competitor} competitor @param {number[]} slots @param {string[]} parts
 * @returns {Promise<{ first: First[], chat: First[], runs: { slots: number, measured: Measured, peakMiB: number | undefined }[] }>}
 */
async function measureOne({ worker, job, first: command, chat: chatCommand }, slots, parts) {
  /** @type {First[]} */
  const first = [];
  /** @type {First[]} */
  const chat = [];
  for (let i = 0; i < job.rounds; i++) {
    if (parts.includes('first')) first.push(await untilFirstOutput(command));
    if (parts.includes('chat') && chatCommand) chat.push(await untilFirstOutput(chatCommand, `${TEXT}\n`));
  }
  first.shift();
  chat.shift();
  const runs = [];
  for (const [i, count] of slots.entries()) {
    const ofRun = i === 0 ? parts : parts.filter((part) => part === 'decode');
    if (ofRun.every((part) => part === 'first' || part === 'chat')) continue;
    const { result, peakMiB } = await withPeakMemory(() =>
      runWorker(worker, { ...job, slots: count, parts: ofRun }, { signal: stop.signal }),
    );
    runs.push({ slots: count, measured: /** @type {Measured} */ (result), peakMiB });
  }
  return { first, chat, runs };
}

/**
 * The figures of a series from all its runs.
 * @param {string} group @param {string} series @param {Awaited<ReturnType<typeof measureOne>>[]} all @param {Job} job
 * @param {ReturnType<typeof bytesOf>} bytes
 */
function figuresOf(group, series, all, job, bytes) {
  /** @type {Figure[]} */
  const figures = [];
  const add = (/** @type {string} */ name, /** @type {string} */ unit, /** @type {number[]} */ runs) => {
    if (runs.length > 0) figures.push({ group, name, series, unit, value: median(runs), runs });
  };
  for (const [key, name] of /** @type {const} */ ([
    ['first', 'from the command to the first token'],
    ['chat', 'from the command chat to the first token'],
  ])) {
    const of = all.flatMap((each) => each[key]);
    add(
      name,
      'ms',
      of.map(({ elapsed }) => elapsed),
    );
    add(
      `${name}, of a processor`,
      'ms',
      of.flatMap(({ processor }) => processor ?? []),
    );
  }
  for (const slots of new Set(all.flatMap(({ runs }) => runs.map((run) => run.slots)))) {
    const runs = all.flatMap((each) => each.runs.filter((run) => run.slots === slots));
    const measured = runs.map((run) => run.measured);
    const places = slots === 1 ? '1 sequence' : `${slots} sequences`;
    if (slots === all[0].runs[0].slots) {
      add(
        'loading',
        'ms',
        measured.map(({ load }) => load),
      );
      for (const length of Object.keys(measured[0].prefill)) {
        add(
          `a prompt of ${length} tokens, to the first token`,
          'ms',
          measured.flatMap(({ prefill }) => prefill[length]),
        );
      }
      add(
        `an embedding of ${job.prompt} tokens`,
        'ms',
        measured.flatMap(({ embed }) => embed),
      );
    }
    add(
      `${places}, generating`,
      'tok/s',
      measured.flatMap(({ decode }) => decode.map(({ rate }) => rate)),
    );
    add(
      `${places}, a token, of a processor`,
      'ms',
      measured.flatMap(({ decode }) => decode.map(({ processor }) => processor)),
    );
    // What a program needs at least; how much it takes is known of ours alone.
    const needed = (bytes.weights + bytes.token * measured[0].context * slots) / 2 ** 20;
    if (measured[0].memory) add(`${places}, weights and cache`, 'MiB', [needed]);
    for (const [what, key] of /** @type {const} */ ([
      ['buffers', 'buffers'],
      ['memory taken from the driver', 'blocks'],
    ])) {
      add(
        `${places}, ${what}`,
        'MiB',
        measured.flatMap(({ memory }) => (memory ? memory[key] / 2 ** 20 : [])),
      );
    }
    add(
      `${places}, memory of the device in use, all processes`,
      'MiB',
      runs.flatMap(({ peakMiB }) => peakMiB ?? []),
    );
  }
  return figures;
}

/**
 * The kernels of a prompt, and of the tokens after it: the second is the difference of two sequences, one with more tokens.
 * @param {Job} job
 */
async function profile(job) {
  const vk = /** @type {typeof import('../index.js')} */ (loadAddon(OWN_ADDON));
  vk.initDevice();
  const context = contextOf({ ...job, parts: ['decode'] });
  const ids = randomIds(job.vocabulary);
  /** @param {number} tokens */
  const rowsOf = async (tokens) => {
    // A graph is measured by command only in the profile in which it is recorded, so each has an engine of its own.
    vk.profileStart();
    const side = await openOurs(job, context);
    const one = async (/** @type {number} */ i) => {
      for await (const _ of side.generate(ids(job.prompt), tokens, i));
    };
    await Promise.all(Array.from({ length: job.slots }, (_, i) => one(i)));
    const profile = vk.profileStop();
    await side.close();
    return profile;
  };
  // What a device does for the first time takes longer.
  await rowsOf(1);
  const short = await rowsOf(1);
  const long = await rowsOf(1 + job.tokens);
  /** @type {Map<string, { us: number, count: number }>} */
  const names = new Map();
  for (const [profile, sign] of /** @type {const} */ ([
    [long, 1],
    [short, -1],
  ])) {
    for (const { name, us, count } of profile.rows) {
      const row = names.get(name) ?? { us: 0, count: 0 };
      names.set(name, { us: row.us + (sign * us) / job.tokens, count: row.count + (sign * count) / job.tokens });
    }
  }
  const rows = [...names].filter(([, { count }]) => count > 0.01).sort(([, a], [, b]) => b.us - a.us);
  const total = rows.reduce((sum, [, { us }]) => sum + us, 0);
  const cells = rows.map(([name, { us, count }]) => [name, us.toFixed(1), `${((100 * us) / total).toFixed(1)} %`, count.toFixed(1)]);
  console.log(`Loading and a prompt of ${job.prompt} tokens:\n${profileTable(short).join('\n')}\n`);
  console.log(`A token after it, mean of ${job.tokens}, each kernel timed by itself:`);
  const dispatches = rows.reduce((sum, [, { count }]) => sum + count, 0);
  console.log(textTable(['kernel', 'µs', 'share', 'dispatches'], [...cells, ['sum', total.toFixed(1), '', dispatches.toFixed(1)]]));
  vk.destroy();
}

await runMain('node benches/generate.mjs [options]', OPTIONS, async (values) => {
  const { dtype, folder, json, prompt, tokens, rounds, temperature } = values;
  const name = /** @type {keyof typeof MODELS} */ (values.model);
  const parts = values.measure.split(',');
  const unknown = parts.find((part) => !PARTS.includes(part));
  if (unknown !== undefined) throw new UsageError(`--measure ${unknown}: must be some of ${PARTS.join(', ')}`);
  const [prefill, slots] = [values.prefill, values.slots].map((text) => text.split(',').map(Number));
  const config = configOf(name);
  const longest = contextOf({ ...EMPTY, parts: values.profile ? ['decode'] : parts, prefill, prompt, tokens });
  if (longest > config.context)
    throw new UsageError(`--model ${name} has a context of ${config.context}, and ${longest} tokens are needed`);

  await mkdir(folder, { recursive: true });
  // The engine converts f16 to q8_0 itself; llama.cpp needs a file of that type.
  const path =
    values.llama === undefined
      ? await modelFolder(folder, name, dtype === 'q8_0' ? 'f16' : /** @type {'f16'} */ (dtype))
      : await modelFile(folder, name, /** @type {'f16'} */ (dtype));
  /** @type {Job} */
  const job = { ...EMPTY, path, dtype, vocabulary: config.vocabSize, parts, prefill, prompt, tokens, rounds, temperature };
  if (values.profile) return profile({ ...job, slots: slots[0] });

  const cli = fileURLToPath(new URL('../packages/lm/bin/helios-lm.mjs', import.meta.url));
  const generate = ['generate', '--model', path, '--prompt', TEXT, '--tokens', '1', '--no-stream', '--quiet'];
  const chat = ['chat', path, '--max-tokens', '1', '--quiet'];
  const ours = { series: 'helios-vk', worker: module('generation-ours.mjs'), job, first: [cli, ...generate], chat: [cli, ...chat] };
  /** @type {Competitor[]} */
  const order = [ours];
  if (values.llama !== undefined) {
    const theirs = { ...job, package: values.llama, device: values['llama-device'] };
    const worker = module('generation-llama.mjs');
    const { version } = JSON.parse(readFileSync(join(values.llama, 'package.json'), 'utf8'));
    const series = `llama.cpp, ${theirs.device} (node-llama-cpp ${version})`;
    const other = { series, worker, job: theirs, first: [fileURLToPath(worker), JSON.stringify({ ...theirs, prompt: 16 })] };
    for (let i = 0; i < values.turns; i++) order.push(other, ours);
  }
  /** @type {Map<string, Awaited<ReturnType<typeof measureOne>>[]>} */
  const bySeries = new Map();
  for (const each of order) {
    const measured = await measureOne(each, slots, parts);
    bySeries.set(each.series, [...(bySeries.get(each.series) ?? []), measured]);
  }
  const group = `${name}, ${dtype}`;
  const figures = [...bySeries].flatMap(([series, all]) =>
    figuresOf(group, series, all, job, bytesOf(config, /** @type {'f16'} */ (dtype))),
  );
  const { info } = await deviceOf(OWN_ADDON);
  const parameters = parameterCount(config);
  const title = `Text of a model of ${(parameters / 1e6).toFixed(1)}M parameters with random weights, ${tokens} tokens after a prompt of ${prompt}`;
  if (values.results !== undefined) {
    writeResults(values.results, { bench: 'generate', title, device: info.deviceName, driver: driverText(info), figures });
  }
  if (json) return console.log(JSON.stringify({ device: info.deviceName, model: name, dtype, parameters, figures }));
  const names = [...new Set(figures.map((figure) => figure.name))];
  const series = [...bySeries.keys()];
  const cell = (/** @type {string} */ row, /** @type {string} */ column) => {
    const figure = figures.find((each) => each.name === row && each.series === column);
    return figure ? `${format(figure.value)} ${figure.unit}` : '';
  };
  console.log(`${title}, ${dtype}, on ${info.deviceName}\n`);
  console.log(
    textTable(
      ['', ...series],
      names.map((row) => [row, ...series.map((column) => cell(row, column))]),
    ),
  );
});
