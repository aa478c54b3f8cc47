/** Outputs of a program, and folders with one owner. */

import { randomBytes } from 'node:crypto';
import { readFileSync, rmSync } from 'node:fs';
import { mkdir, open, readFile, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { PARTIAL, notWritten, partialOf, replaceFile } from '../../kernels/files.mjs';

/** The name of a lock in its folder. */
export const LOCK = '.helios-vk.lock';

/** Milliseconds after which a lock whose owner cannot be read is of a process that ended while it wrote it. */
const UNREADABLE_AGE = 10_000;

/**
 * Writes a program's output: a file all or nothing, see `replaceFile`; into a pipe or a device as it comes.
 * @param {string} path @param {string} text
 */
export async function writeOutput(path, text) {
  const there = await stat(path).catch(() => undefined);
  const write = !there || there.isFile() ? replaceFile(path, (file) => file.writeFile(text)) : writeFile(path, text);
  await write.catch((error) => {
    throw notWritten(path, error);
  });
}

/** Removes what writers of `folder` left that were killed; for its owner. @param {string} folder */
export async function removePartials(folder) {
  for (const name of await readdir(folder)) {
    if (name.endsWith(PARTIAL)) await rm(join(folder, name), { force: true });
  }
}

/**
 * When a process began, which tells it from a later one of the same number. Only where the system says so.
 * @param {number | 'self'} pid
 */
function beginOf(pid) {
  try {
    // The name, in parentheses, may hold anything; the 22nd field is the 20th behind it.
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return text.slice(text.lastIndexOf(')') + 2).split(' ')[19];
  } catch {
    return undefined;
  }
}

/** @typedef {{pid: number, host: string, begin?: string, since: string}} Owner */

/** @param {string} text @returns {Owner | undefined} */
function parseOwner(text) {
  try {
    const owner = JSON.parse(text);
    return Number.isSafeInteger(owner.pid) && typeof owner.host === 'string' ? owner : undefined;
  } catch {
    return undefined;
  }
}

/** Whether the process is known to have ended. Of another host's nothing is known. @param {Owner} owner */
function hasEnded({ pid, host, begin }) {
  if (host !== hostname()) return false;
  try {
    process.kill(pid, 0);
  } catch (error) {
    return /** @type {NodeJS.ErrnoException} */ (error).code === 'ESRCH';
  }
  return begin !== undefined && beginOf(pid) !== begin;
}

/** A folder that belongs to one run of one process. */
export class FolderLock {
  /** @param {string} path @param {string} text what this lock holds */
  constructor(path, text) {
    this.path = path;
    this.text = text;
    this.atExit = () => this.release();
    process.once('exit', this.atExit);
  }

  /**
   * Takes a folder, which is made if it does not exist.
   * @param {string} folder
   * @throws {Error} that names the owner, if it belongs to another run
   */
  static async take(folder) {
    await mkdir(folder, { recursive: true });
    const path = join(folder, LOCK);
    /** @type {Owner & {id: string}} */
    const own = {
      pid: process.pid,
      host: hostname(),
      begin: beginOf('self'),
      since: new Date().toISOString(),
      id: randomBytes(8).toString('hex'),
    };
    const text = `${JSON.stringify(own)}\n`;
    for (;;) {
      try {
        const file = await open(path, 'wx');
        try {
          await file.writeFile(text).finally(() => file.close());
        } catch (error) {
          await rm(path, { force: true });
          throw notWritten(path, error);
        }
        await removePartials(folder);
        return new FolderLock(path, text);
      } catch (error) {
        if (/** @type {NodeJS.ErrnoException} */ (error).code !== 'EEXIST') throw error;
      }
      await removeStale(folder, path);
    }
  }

  /** Throws unless the folder is still this run's: somebody may have removed the lock by hand. */
  async check() {
    const text = await readFile(this.path, 'utf8').catch(() => undefined);
    if (text === this.text) return;
    const owner = parseOwner(text ?? '');
    throw new Error(
      `${dirname(this.path)} is no longer this run's: its lock ${basename(this.path)} ` +
        (owner ? `belongs to process ${owner.pid} on ${owner.host} now` : 'is gone'),
    );
  }

  /** Gives the folder back. */
  release() {
    process.off('exit', this.atExit);
    try {
      if (readFileSync(this.path, 'utf8') === this.text) rmSync(this.path);
    } catch {
      // Whoever removed the lock has given the folder back.
    }
  }
}

/**
 * Removes a lock whose owner has ended.
 * @param {string} folder @param {string} path
 * @throws {Error} that names the owner, if it may be alive
 */
async function removeStale(folder, path) {
  const text = await readFile(path, 'utf8').catch(() => undefined);
  if (text === undefined) return;
  const owner = parseOwner(text);
  if (owner === undefined) {
    const { mtimeMs } = await stat(path);
    if (Date.now() - mtimeMs < UNREADABLE_AGE) {
      throw new Error(`${folder} is being taken by another run: ${path} has no owner yet; try again`);
    }
  } else if (!hasEnded(owner)) {
    throw new Error(
      `${folder} belongs to another run: process ${owner.pid} on ${owner.host}, since ${owner.since}; ` +
        `use another folder, or remove ${path} if that run is gone`,
    );
  }
  // Of several that see it, one moves it away; if that was somebody's new lock meanwhile, its owner sees so
  // before it writes.
  const aside = partialOf(path);
  await rename(path, aside).catch(() => {});
  await rm(aside, { force: true });
}
