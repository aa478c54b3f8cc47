// Probes the addon and drivers, each in a process of its own, so that a crash or a hang becomes a report.

import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const CHILD = fileURLToPath(new URL('probe-child.mjs', import.meta.url));
/** Number of characters kept from the end of a child's standard error. */
const KEPT_TEXT = 4000;

/** @typedef {{ name: string, code: string | null, message: string }} Failure */

/**
 * @typedef {object} Answer
 * @property {Record<string, any>} results by stage, of every stage that was finished
 * @property {Failure | null} error thrown by the stage after those
 * @property {string | null} crash how the process ended, if it did not end by itself
 * @property {string | null} stage the stage that failed or crashed
 * @property {string} stderr
 */

/**
 * Runs one task of probe-child.mjs.
 * @param {'load' | 'devices' | 'smoke' | 'library'} task
 * @param {string} target the package's index.js, an addon's file, or a library
 * @param {{ env?: NodeJS.ProcessEnv, timeout: number }} options `timeout` in milliseconds
 * @returns {Promise<Answer>}
 */
export function probe(task, target, { env = process.env, timeout }) {
  return new Promise((done) => {
    /** @type {Answer} */
    const answer = { results: {}, error: null, crash: null, stage: null, stderr: '' };
    // Drivers may print to standard output, so answers have a channel of their own.
    const child = spawn(process.execPath, [CHILD, task, target], {
      env,
      stdio: ['ignore', 'ignore', 'pipe', 'pipe'],
      windowsHide: true,
    });
    let text = '';
    let ended = false;
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      child.kill('SIGKILL');
    }, timeout);
    child.stderr?.setEncoding('utf8').on('data', (chunk) => (answer.stderr = (answer.stderr + chunk).slice(-KEPT_TEXT)));
    const channel = /** @type {import('node:stream').Readable} */ (child.stdio[3]);
    channel.setEncoding('utf8').on('data', (chunk) => (text += chunk));
    channel.on('error', () => {});
    const finish = (/** @type {string | null} */ end) => {
      if (ended) return;
      ended = true;
      clearTimeout(timer);
      let complete = false;
      for (const line of text.split('\n')) {
        // The last line of a child that died may be cut off.
        if (!line.endsWith('}')) continue;
        const message = JSON.parse(line);
        if ('begin' in message) answer.stage = message.begin;
        else if ('result' in message) answer.results[message.stage] = message.result;
        else if ('error' in message) answer.error = message.error;
        else if ('complete' in message) complete = true;
      }
      if (complete) answer.stage = null;
      else if (answer.error === null) answer.crash = end;
      done(answer);
    };
    child.on('error', (error) => finish(`cannot be started (${error.message})`));
    child.on('close', (code, signal) => {
      if (late) finish(`did not end within ${timeout / 1000} s`);
      else finish(signal ? `was ended by ${signal}` : `ended with code ${code}`);
    });
  });
}

/**
 * What went wrong, in one line; null if nothing did.
 * @param {Answer} answer
 * @returns {string | null}
 */
export function failureOf({ error, crash, stage, stderr }) {
  if (error) return error.message;
  if (crash === null) return null;
  const last = stderr.trim().split('\n').at(-1);
  return `the process ${crash}${stage ? ` in ${stage}` : ''}${last ? `: ${last.slice(0, 300)}` : ''}`;
}
