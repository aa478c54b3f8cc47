#!/usr/bin/env node
// The command line of the package: `doctor`, `run`, `link`, `unlink`, `tune`.

import { diagnose, usable } from './lib/diagnose.mjs';
import { gather, manifestOfPackage } from './lib/facts.mjs';
import { linkBackend, unlinkBackend } from './lib/link-backend.mjs';
import { CommandError, link, unlink } from './lib/link.mjs';
import { UsageError, checkPaths, parseCommandLine } from './lib/options.mjs';
import { report } from './lib/report.mjs';
import { inSigns } from './lib/signs.mjs';
import { tune, tuneReport } from './lib/tune.mjs';

const HELP = `helios-vk: a Vulkan compute device for Node.js

  helios-vk doctor             report what is installed, what is missing, and the command that fixes it
  helios-vk run --nproc N FILE [ARGUMENT …]
                               run a script in N processes that compute together (docs/guide/distributed.md);
                               on several hosts, run it on each with --nnodes M --node-rank R --master HOST:PORT
  helios-vk link CHECKOUT      put the addon where a trainer checkout looks for it
  helios-vk unlink CHECKOUT    remove it, and restore what was there before
  helios-vk tune               find the fastest kernels for matrix products on this device; createKernels uses them

  --json               print the result as JSON
  --copy               link: copy the addon instead of linking to it
  --backend            link: have the trainer use @helios-vk/alpha-backend, not only the addon
  --nproc N            run: number of processes on this host
  --max-restarts N     run: restart all processes up to N times after one has failed (0)
  --grace SECONDS      run: how long the other processes may take to end after one has failed, or after a signal (30)
  --nnodes M           run: number of hosts (1)
  --node-rank R        run: number of this host, from 0 (0)
  --master HOST:PORT   run: address of the host with node rank 0
  --mpiexec PATH       run: launcher of Open MPI or MPICH (the first in PATH)
  --timeout SECONDS    doctor, link: how long a driver may take to answer (60)
  --model PRESETS      tune: measure the products of a training step of these presets, separated by commas:
                       gpt-tiny, gpt-30m, gpt-300m (gpt-300m)
  --tokens N           tune: tokens in a batch of --model (the preset's)
  --shapes FILE        tune: measure the products in this file instead, one on each line: NT 512 1024 1024 (form, m, n, k)
  --classes LIST       tune: kinds of products to measure, separated by commas: half, f32, mixed, bf16x3, permuted (half,f32)
  --quick              tune: try fewer tilings
  --budget SECONDS     tune: how long the whole run may take (600; 120 with --quick)
  --out FILE           tune: file to write the table to (HELIOS_TUNING, or a file beside the pipeline cache)
  --version, --help

Exit status: 0 for success, 1 for an error, 2 for a wrong command line.`;

/** @param {string} message */
function misuse(message) {
  return new CommandError('ERR_USAGE', `${message} (see helios-vk --help)`);
}

const OPTIONS = /** @type {const} */ ({
  json: { type: 'boolean', help: 'print JSON' },
  copy: { type: 'boolean', help: 'link: copy the addon instead of linking to it' },
  backend: { type: 'boolean', help: 'link: have the trainer use @helios-vk/alpha-backend' },
  timeout: { type: 'number', min: 0.001, max: 3600, default: 60, help: 'seconds' },
  model: { type: 'string', value: 'PRESETS', help: 'tune: products of training gpt-tiny, gpt-30m or gpt-300m' },
  tokens: { type: 'integer', min: 1, max: 1_048_576, help: 'tune: tokens at once' },
  shapes: { type: 'string', value: 'FILE', path: 'input', help: 'tune: products of a file' },
  classes: { type: 'string', value: 'LIST', help: 'tune: half, f32, mixed, bf16x3, permuted' },
  quick: { type: 'boolean', help: 'tune: fewer plans' },
  budget: { type: 'integer', min: 1, max: 1_000_000, help: 'tune: seconds' },
  out: { type: 'string', value: 'FILE', path: 'update', help: "tune: the table's file" },
  version: { type: 'boolean', short: 'v', help: 'print the version' },
  help: { type: 'boolean', short: 'h', help: 'print the help' },
});

const TUNE_OPTIONS = ['model', 'tokens', 'shapes', 'classes', 'quick', 'budget', 'out'];

/** @param {string[]} args */
function parse(args) {
  try {
    const parsed = parseCommandLine(OPTIONS, args, true);
    checkPaths(OPTIONS, parsed.values);
    return parsed;
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    throw misuse(error.message.split('. ')[0]);
  }
}

/**
 * @param {string[]} args
 * @returns {Promise<number>} the exit status
 */
async function main(args) {
  if (args[0] === 'run') {
    try {
      const { asksForHelp, run } = await import('./lib/run.mjs');
      if (!asksForHelp(args.slice(1))) return await run(args.slice(1));
      console.log(HELP);
      return 0;
    } catch (error) {
      if (error instanceof UsageError) throw misuse(error.message);
      throw error;
    }
  }
  const { values, positionals, given } = parse(args);
  const { json, copy, backend } = values;
  const show = (/** @type {object} */ value, /** @type {() => string} */ text) =>
    console.log(json ? JSON.stringify(value, null, 2) : inSigns(text()));
  if (values.version) {
    const { name, version } = manifestOfPackage();
    show({ name, version }, () => version);
    return 0;
  }
  const [command, ...rest] = positionals;
  if (values.help || command === 'help') {
    console.log(HELP);
    return 0;
  }
  const timeout = values.timeout * 1000;
  if (copy && command !== 'link') throw misuse('--copy can be used only with link');
  if (backend && command !== 'link') throw misuse('--backend can be used only with link');
  const foreign = command !== 'tune' && TUNE_OPTIONS.find((name) => given.has(name));
  if (foreign) throw misuse(`--${foreign} can be used only with tune`);
  if (backend && copy) throw misuse('--backend and --copy cannot be used together');
  switch (command) {
    case 'doctor': {
      if (rest.length > 0) throw misuse(`doctor takes no argument, got ${rest[0]}`);
      const facts = await gather({ timeout });
      const findings = diagnose(facts);
      const ok = usable(facts);
      show({ ok, findings, ...facts }, () => report(facts, findings));
      return ok ? 0 : 1;
    }
    case 'tune': {
      if (rest.length > 0) throw misuse(`tune takes no argument, got ${rest[0]}`);
      try {
        const result = await tune(values);
        show(result, () => tuneReport(result));
        return result.ok ? 0 : 1;
      } catch (error) {
        throw error instanceof UsageError ? misuse(error.message) : error;
      }
    }
    case 'link':
    case 'unlink': {
      if (rest.length !== 1) throw misuse(`${command} takes the folder of a trainer checkout`);
      if (backend) {
        const result = linkBackend(rest[0]);
        const { path, changed, source, run } = result;
        show(
          { ok: true, command, ...result },
          () =>
            `✓ ${path} ${changed ? '' : 'already '}registers ${source}\n  train with it: ${run}\n  (the trainer then prints "backend: helios-vk")`,
        );
        return 0;
      }
      const removed = command === 'unlink' ? unlinkBackend(rest[0]) : null;
      const result = command === 'link' ? await link(rest[0], { timeout, copy }) : unlink(rest[0]);
      show({ ...result, ...(removed ? { backend: removed } : {}) }, () =>
        // A checkout with the backend alone still has the trainer's own addon, of which there is nothing to say.
        [...(removed ? [`✓ ${removed} is gone`] : []), ...(removed && !result.changed ? [] : [told(result)])].join('\n'),
      );
      return 0;
    }
    case undefined:
      throw misuse('a command is missing');
    default:
      throw misuse(`${command}: no such command`);
  }
}

/** @param {import('./lib/link.mjs').LinkResult} result */
function told({ command, path, changed, kind, source, movedAside, restored, notes }) {
  const lines = [];
  if (command === 'link') {
    const how = kind === 'copy' ? 'copied from' : 'linked to';
    lines.push(`✓ ${path} ${changed ? '' : 'is already '}${how} ${source}`, '✓ it loads');
    if (movedAside) lines.push(`  what was there is now ${movedAside}`);
  } else if (changed) {
    lines.push(restored ? `✓ ${path} is what it was before` : `✓ ${path} is gone`);
  } else if (notes.length === 0) {
    lines.push(`✓ ${path}: nothing was linked`);
  }
  return [...lines, ...notes.map((note) => `! ${note}`)].join('\n');
}

const args = process.argv.slice(2);
try {
  process.exitCode = await main(args);
} catch (error) {
  const { code, message } = /** @type {NodeJS.ErrnoException} */ (error);
  if (args.includes('--json')) console.log(JSON.stringify({ ok: false, error: { code: code ?? null, message } }, null, 2));
  else console.error(`helios-vk: ${message}`);
  process.exitCode = code === 'ERR_USAGE' ? 2 : 1;
}
