// Runs test files one at a time in a process each, for as long as it may. What each found is kept, so that a later run can continue.

import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { availableParallelism } from 'node:os';
import { resolve } from 'node:path';

import { readStamp, writeStamp } from '../stamp.mjs';
import { readIfThere } from '../system.mjs';
import { REPOSITORY, output } from './tools.mjs';

const FILE_LIMIT_S = 600;

/**
 * What a file that passed has found.
 * @typedef {object} Found
 * @property {string} key of what ran: where that has changed, the file runs again
 * @property {number} passed tests
 * @property {number} skipped tests
 * @property {number} seconds
 */

/** @typedef {{ found: Record<string, Found>, failed: string[], late: string[], unseen: string[] }} Outcome */

/** Pages, the programs that check platforms, and the tests, of which each has a digest of its own. */
const NOT_TESTED = /^docs\/|\.md$|^scripts\/platforms[./]|\.test\.mjs$/;

/** A digest of the files of the repository that any test may run. */
function digestOfTested() {
  const listed = output(['git', 'ls-files', '-z', '--cached', '--others', '--exclude-standard'], { cwd: REPOSITORY }).split('\0');
  const hash = createHash('sha256');
  for (const file of listed.filter((name) => name !== '' && !NOT_TESTED.test(name)).sort()) {
    hash.update(`${file}\0`).update(contents(file)).update('\0');
  }
  return hash.digest('hex');
}

/** @param {string} file of the repository: one that is deleted, or a link to a folder, is empty */
const contents = (file) => readIfThere(resolve(REPOSITORY, file)) ?? '';

/**
 * Runs files, each in a process of its own, as many at a time as there are processors. One that is out of time has its turn again: what
 * it compiled is kept.
 * @param {string[]} files
 * @param {(file: string) => string[]} command what runs one and prints TAP
 * @param {object} options
 * @param {number} options.minutes after which no further file is begun
 * @param {string} options.stamp the file that keeps what was found
 * @param {boolean} options.resumes whether files that passed in an earlier run, and have not changed since, are left
 * @returns {Promise<Outcome>}
 */
export async function eachFile(files, command, { minutes, stamp, resumes }) {
  const end = Date.now() + minutes * 60_000;
  const tested = digestOfTested();
  const keyOf = (/** @type {string} */ file) =>
    createHash('sha256')
      .update(tested)
      .update(JSON.stringify(command(file)))
      .update(contents(file))
      .digest('hex');
  const earlier = (resumes && readStamp(stamp)) || {};
  /** @type {Outcome} */
  const outcome = { found: {}, failed: [], late: [], unseen: [] };
  for (const file of files) if (earlier[file]?.key === keyOf(file)) outcome.found[file] = earlier[file];
  const waiting = files.filter((file) => !(file in outcome.found));
  if (waiting.length < files.length) console.log(`    ${files.length - waiting.length} files passed in earlier runs`);
  const again = new Set();
  const worker = async () => {
    while (waiting.length > 0 && Date.now() < end) {
      const file = /** @type {string} */ (waiting.shift());
      const [key, begun] = [keyOf(file), Date.now()];
      const { status, tap } = await limited(command(file));
      const seconds = Math.round((Date.now() - begun) / 1000);
      const of = (/** @type {string} */ word) => Number(new RegExp(`^# ${word} (\\d+)$`, 'm').exec(tap)?.[1]);
      const said = status === 0 ? `${of('pass')} passed, ${of('skipped')} skipped` : status === 124 ? 'out of time' : 'FAILED';
      console.log(`    ${file} (${seconds} s, ${waiting.length} wait): ${said}`);
      if (status === 0) {
        outcome.found[file] = { key, passed: of('pass'), skipped: of('skipped'), seconds };
        const reason = writeStamp(stamp, outcome.found);
        if (reason !== null) console.error(reason);
      } else if (status !== 124) {
        outcome.failed.push(file);
        console.error(tap.slice(-4000));
      } else if (again.has(file)) outcome.late.push(file);
      else waiting.push(file);
      again.add(file);
    }
  };
  await Promise.all(Array.from({ length: availableParallelism() }, worker));
  outcome.late.push(...waiting.filter((file) => again.has(file)));
  outcome.unseen.push(...waiting.filter((file) => !again.has(file)));
  return outcome;
}

/**
 * What the table says of a run whose files did not fail.
 * @param {Outcome} outcome
 * @returns {string}
 */
export function summary({ found, late, unseen }) {
  const all = Object.values(found);
  const sum = (/** @type {'passed' | 'skipped' | 'seconds'} */ field) => all.reduce((total, each) => total + each[field], 0);
  const said = [`${sum('passed')} tests passed, ${sum('skipped')} skipped`, `the files took ${Math.ceil(sum('seconds') / 60)} minutes`];
  const names = (/** @type {string[]} */ of) => of.map((file) => file.replace(/^__test__\/|\.test\.mjs$/g, '')).join(', ');
  if (late.length > 0) said.push(`${late.length} did not end in ${FILE_LIMIT_S} s: ${names(late)}`);
  if (unseen.length > 0) said.push(`${unseen.length} were not begun: ${names(unseen)}`);
  return said.join('; ');
}

/**
 * What a command printed, and its status: 124 if it did not end in time.
 * @param {string[]} command
 * @returns {Promise<{ status: number | null, tap: string }>}
 */
function limited(command) {
  return new Promise((done, reject) => {
    // With all of its processes.
    const child = spawn('timeout', ['--kill-after=5', String(FILE_LIMIT_S), ...command], { stdio: ['ignore', 'pipe', 'pipe'] });
    let tap = '';
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text) => (tap += text));
    child.on('error', reject);
    child.on('close', (status, signal) => done({ status: signal === 'SIGKILL' || status === 137 ? 124 : status, tap }));
  });
}
