// Records the progress of child processes that may crash: lines of JSON in a file, from which the next child continues.

import { spawn } from 'node:child_process';
import { appendFileSync, existsSync, readFileSync } from 'node:fs';

/** A piece of work under its key; `error` if it failed. @typedef {{ key: string, error?: string, [field: string]: any }} Entry */

/** Exit codes of a child whose device was lost (another child continues), and of a child that cannot start. */
export const DEVICE_LOST = 3;
export const HOPELESS = 4;

/** @param {unknown} error */
export function isDeviceLost(error) {
  const { code, message } = /** @type {NodeJS.ErrnoException} */ (error);
  return /DEVICE_LOST/i.test(`${code} ${message}`);
}

/**
 * The entries of a journal, the last of each key. Lines cut short by a full disk or a killed writer are skipped.
 * @param {string} file @returns {Map<string, Entry>}
 */
export function entriesOf(file) {
  const lines = existsSync(file) ? readFileSync(file, 'utf8').split('\n').filter(Boolean) : [];
  /** @type {Map<string, Entry>} */
  const entries = new Map();
  for (const line of lines) {
    try {
      const entry = JSON.parse(line);
      entries.set(entry.key, entry);
    } catch {}
  }
  return entries;
}

export class Journal {
  /** @param {string} file @param {number} end time at which no further work begins, by Date.now() */
  constructor(file, end) {
    this.file = file;
    this.end = end;
    this.done = entriesOf(file);
    this.parent = process.ppid;
  }

  /** @param {Entry} entry */
  write(entry) {
    // The line before may have been cut short.
    appendFileSync(this.file, `\n${JSON.stringify(entry)}\n`);
    this.done.set(entry.key, entry);
  }

  /**
   * Does a piece of work, unless it is done or the time is over, and records its outcome.
   * @param {string} key @param {object} fields @param {(entry: Entry) => void} work adds to the entry
   */
  attempt(key, fields, work) {
    // The parent process was killed: nobody would read the measurements.
    if (process.ppid !== this.parent) process.exit();
    if (this.done.has(key) || Date.now() > this.end) return;
    // Written first, so that after a crash the next child skips this work.
    this.write({ key, ...fields, error: 'crashed' });
    /** @type {Entry} */
    const entry = { key, ...fields };
    try {
      work(entry);
    } catch (error) {
      entry.error = String(/** @type {Error} */ (error)?.message ?? error).slice(0, 200);
      if (isDeviceLost(error)) {
        this.write(entry);
        process.exit(DEVICE_LOST);
      }
    }
    this.write(entry);
  }
}

/** Largest number of children for one journal. */
const MAX_CHILDREN = 12;
/** Seconds that a child may run over its time before it is killed. */
const GRACE = 15;

/**
 * Runs a module in one child after another until one succeeds or the time is over. So a lost device or a crashing driver costs only one
 * piece of work.
 * @param {string} file
 * @param {(seconds: number) => string[]} args of a child that has this many seconds
 * @param {number} until as Date.now() gives it
 * @returns {Promise<boolean>} whether a child ended well
 */
export async function runChildren(file, args, until) {
  for (let i = 0; i < MAX_CHILDREN && Date.now() < until; i++) {
    const seconds = (until - Date.now()) / 1000;
    const code = await new Promise((resolve, reject) => {
      const child = spawn(process.execPath, [file, ...args(seconds)], { stdio: ['ignore', 'ignore', 'inherit'] });
      const timer = setTimeout(() => child.kill('SIGKILL'), (seconds + GRACE) * 1000);
      child.on('error', reject);
      child.on('exit', (status) => {
        clearTimeout(timer);
        resolve(status);
      });
    });
    if (code === 0) return true;
    if (code === HOPELESS) return false;
  }
  return false;
}
