#!/usr/bin/env node
// The command line of the package: `doctor`, `link`, `unlink`.

import { parseArgs } from 'node:util';

import { diagnose, usable } from './lib/diagnose.mjs';
import { gather, manifestOfPackage } from './lib/facts.mjs';
import { CommandError, link, unlink } from './lib/link.mjs';
import { report } from './lib/report.mjs';

const HELP = `helios-vk: a Vulkan compute device for Node.js

  helios-vk doctor             what is there, what is missing, and the command that puts it right
  helios-vk link CHECKOUT      put the addon where a trainer checkout looks for it
  helios-vk unlink CHECKOUT    take it back, and restore what was there before

  --json               print JSON
  --copy               link: copy the addon instead of linking to it
  --timeout SECONDS    doctor, link: how long a driver may take to answer (60)
  --version, --help

Exit status: 0 if all is well, 1 if not, 2 for a wrong command line.`;

/** @param {string} message */
function misuse(message) {
  return new CommandError('ERR_USAGE', `${message} (see helios-vk --help)`);
}

/** @param {string[]} args */
function parse(args) {
  try {
    return parseArgs({
      args,
      allowPositionals: true,
      options: {
        json: { type: 'boolean', default: false },
        copy: { type: 'boolean', default: false },
        timeout: { type: 'string', default: '60' },
        version: { type: 'boolean', short: 'v', default: false },
        help: { type: 'boolean', short: 'h', default: false },
      },
    });
  } catch (error) {
    throw misuse(/** @type {Error} */ (error).message.split('. ')[0]);
  }
}

/**
 * @param {string[]} args
 * @returns {Promise<number>} the exit status
 */
async function main(args) {
  const { values, positionals } = parse(args);
  const { json, copy } = values;
  const show = (/** @type {object} */ value, /** @type {() => string} */ text) =>
    console.log(json ? JSON.stringify(value, null, 2) : text());
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
  const seconds = Number(values.timeout);
  if (!(seconds > 0 && seconds <= 3600)) throw misuse(`--timeout ${values.timeout}: from above 0 to 3600 seconds`);
  const timeout = seconds * 1000;
  if (copy && command !== 'link') throw misuse('--copy goes with link');
  switch (command) {
    case 'doctor': {
      if (rest.length > 0) throw misuse(`doctor takes no argument, got ${rest[0]}`);
      const facts = await gather({ timeout });
      const findings = diagnose(facts);
      const ok = usable(facts);
      show({ ok, findings, ...facts }, () => report(facts, findings));
      return ok ? 0 : 1;
    }
    case 'link':
    case 'unlink': {
      if (rest.length !== 1) throw misuse(`${command} takes the folder of a trainer checkout`);
      const result = command === 'link' ? await link(rest[0], { timeout, copy }) : unlink(rest[0]);
      show(result, () => told(result));
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
  if (args.includes('--json'))
    console.log(JSON.stringify({ ok: false, error: { code: code ?? null, message } }, null, 2));
  else console.error(`helios-vk: ${message}`);
  process.exitCode = code === 'ERR_USAGE' ? 2 : 1;
}
