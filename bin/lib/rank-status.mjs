// Loaded into every process of `helios-vk run` before its script: leaves word of how it ended. A process that a signal ends leaves
// none. Open MPI's launcher, asked to let the others live on after a failure, ends with 0 whatever they do.

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { isMainThread } from 'node:worker_threads';

import { launched } from '../../distributed/environment.mjs';

const folder = process.env.HELIOS_STATUS_FOLDER;
if (isMainThread && folder) {
  const { rank } = launched();
  // What this process starts is not one of them.
  delete process.env.HELIOS_STATUS_FOLDER;
  delete process.env.HELIOS_NODE_SHELL;
  // MPICH's launcher tells the others of a failure by it, and Node would open its debugger's port.
  process.on('SIGUSR1', () => {});
  process.once('exit', (code) => {
    try {
      writeFileSync(join(folder, String(rank)), String(code));
    } catch {
      // A folder that is gone: the launcher has given up, and a process without a word counts as failed.
    }
  });
}
