// The commands that the stages of test.mjs run: their output is shown, and read for what failed and for how long each test file took.

import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const REPOSITORY = dirname(dirname(fileURLToPath(import.meta.url)));
/** Within the repository, so that a process in another root reaches it. */
const TIMES = join(REPOSITORY, 'node_modules/.cache/helios-vk', `test-times-${process.pid}.txt`);

/** Where the runners of Node and Cargo begin to say what failed, and of how many lines the end of all repeats it. */
const FAILURES = /^(✖ failing tests:|failures:)/;
const FAILURE_LINES = 60;
/** Of which tests the commands said at their end that they failed. @type {string[]} */
export const failures = [];

/** @typedef {{ file: string, wall: number, processor: number | null }} FileTimes in seconds */

/** What each test file that the commands ran has taken. @returns {FileTimes[]} */
export function fileTimes() {
  try {
    const lines = readFileSync(TIMES, 'utf8').trimEnd().split('\n');
    rmSync(TIMES);
    return lines.map((line) => JSON.parse(line));
  } catch {
    return []; // No test file was run.
  }
}

/**
 * Runs a command in the repository with its output shown.
 * @param {string[]} command
 * @param {{ environment?: Record<string, string>, forbidden?: RegExp, limitMs?: number }} [options] `forbidden`: a line
 *   that matches it fails the command; `limitMs`: so does taking longer
 * @returns {Promise<boolean>}
 */
export function run([command, ...args], { environment = {}, forbidden, limitMs } = {}) {
  const looked = forbidden !== undefined || Boolean(process.env.CI);
  mkdirSync(dirname(TIMES), { recursive: true });
  return new Promise((done) => {
    const child = spawn(command, args, {
      cwd: REPOSITORY,
      env: { ...process.env, HELIOS_TEST_TIMES: TIMES, ...environment },
      timeout: limitMs,
      stdio: ['ignore', looked ? 'pipe' : 'inherit', looked ? 'pipe' : 'inherit'],
      shell: process.platform === 'win32' && !command.endsWith('.exe'),
    });
    /** @type {string[]} */
    const offending = [];
    for (const [stream, target] of /** @type {const} */ ([
      [child.stdout, process.stdout],
      [child.stderr, process.stderr],
    ])) {
      let rest = '';
      let failed = false;
      const look = (/** @type {string} */ line) => {
        if (forbidden?.test(line)) offending.push(line);
        failed ||= FAILURES.test(line);
        if (failed && failures.length < FAILURE_LINES) failures.push(line);
      };
      stream?.setEncoding('utf8');
      stream?.on('data', (/** @type {string} */ chunk) => {
        target.write(chunk);
        const lines = (rest + chunk).split('\n');
        rest = lines.pop() ?? '';
        lines.forEach(look);
      });
      stream?.on('end', () => look(rest));
    }
    child.on('error', (error) => {
      console.error(`${command}: ${error.message}`);
      done(false);
    });
    child.on('close', (status, signal) => {
      if (signal) console.error(`${command}: ended by ${signal}`);
      if (offending.length > 0) console.error(`${offending.length} validation messages, the first:\n${offending[0]}`);
      done(status === 0 && offending.length === 0);
    });
  });
}

/**
 * Runs all, also after one has failed.
 * @param {string[][]} commands
 * @param {Parameters<typeof run>[1]} [options]
 */
export async function each(commands, options) {
  let passed = true;
  for (const command of commands) passed = (await run(command, options)) && passed;
  return passed;
}

/** @param {string[]} args */
export const cargo = (...args) => run(['cargo', ...args]);

/** How many stages run at a time: each takes its part of the processors. */
const together = Number(process.env.HELIOS_TEST_LANES ?? 1);

/**
 * The command that runs test files; a test that hangs fails.
 * @param {string[]} files
 * @param {{ node?: string, options?: string[] }} [more] `options`: of Node's test runner, beside the usual ones
 */
export function tests(files, { node = process.execPath, options = [] } = {}) {
  // Node would leave one processor to itself, which is half of two.
  const concurrency = Math.max(1, Math.floor(availableParallelism() / together));
  const usual = [
    '--import',
    './scripts/test-times.mjs',
    '--test-reporter=spec',
    '--test-timeout=900000',
    `--test-concurrency=${concurrency}`,
  ];
  return [node, '--test', ...usual, ...options, ...files];
}
