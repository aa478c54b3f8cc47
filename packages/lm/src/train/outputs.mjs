/** Writes a program's outputs, and locks folders for one run. */

import { statSync } from 'node:fs';
import { mkdir, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { PARTIAL, notWritten, replaceFile } from 'helios-vk/files';
import { ownerIn, takeLock } from 'helios-vk/files';
import { UsageError, reasonOf } from 'helios-vk/options';

/** The name of a lock in its folder. */
export const LOCK = '.helios-vk.lock';

/** Milliseconds after which a lock without a readable owner is stale: its process ended while it wrote the lock. */
const UNREADABLE_AGE = 10_000;

/**
 * Writes a program's output. A file is written completely or not at all, see `replaceFile`; a pipe or a device is written to directly.
 * @param {string} path @param {string} text
 */
export async function writeOutput(path, text) {
  const there = await stat(path).catch(() => undefined);
  const write = !there || there.isFile() ? replaceFile(path, (file) => file.writeFile(text)) : writeFile(path, text);
  await write.catch((error) => {
    throw notWritten(path, error);
  });
}

/** Removes the partial files and folders that killed writers left in a folder. Only its owner may call this. @param {string} folder */
async function removePartials(folder) {
  for (const name of await readdir(folder)) {
    if (name.endsWith(PARTIAL)) await rm(join(folder, name), { recursive: true, force: true });
  }
}

/** The lock of a folder that one process uses for one run. */
export class FolderLock {
  /** @param {string} path @param {{ isOwn(): boolean, release(): void }} lock from `takeLock` */
  constructor(path, lock) {
    this.path = path;
    this.lock = lock;
    this.atExit = () => this.release();
    process.once('exit', this.atExit);
  }

  /**
   * Takes the lock. Makes the folder if it does not exist.
   * @param {string} folder
   * @throws {Error} that names the owner, if the folder belongs to another run
   */
  static async take(folder) {
    await mkdir(folder, { recursive: true }).catch((error) => {
      throw new UsageError(`${folder} cannot be written: ${reasonOf(error)}; --out names the folder of a run`);
    });
    const path = join(folder, LOCK);
    const lock = takeLock(path, (owner) => {
      if (owner) {
        throw new Error(
          `${folder} belongs to another run: process ${owner.pid} on ${owner.host}, since ${owner.since}; ` +
            `use another folder, or remove ${path} if that run is gone`,
        );
      }
      const there = statSync(path, { throwIfNoEntry: false });
      if (there && Date.now() - there.mtimeMs < UNREADABLE_AGE) {
        throw new Error(`${folder} is being taken by another run: ${path} has no owner yet; try again`);
      }
      return true;
    });
    await removePartials(folder);
    return new FolderLock(path, lock);
  }

  /** Throws unless this run still has the lock: somebody may have removed it by hand. */
  async check() {
    if (this.lock.isOwn()) return;
    const owner = ownerIn(this.path);
    throw new Error(
      `${dirname(this.path)} is no longer this run's: its lock ${basename(this.path)} ` +
        (owner ? `belongs to process ${owner.pid} on ${owner.host} now` : 'is gone'),
    );
  }

  /** Releases the lock. */
  release() {
    process.off('exit', this.atExit);
    this.lock.release();
  }
}
