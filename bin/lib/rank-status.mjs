// Loaded into every process of `helios-vk run` before its script: writes the exit status into a file, since Open MPI's launcher, when it
// lets other ranks live on after a failure, always exits with 0. A process that a signal ends writes none.

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { isMainThread } from 'node:worker_threads';

import { launched } from '../../distributed/environment.mjs';

const folder = process.env.HELIOS_STATUS_FOLDER;
if (isMainThread && folder) {
  const { rank } = launched();
  // This process's own children must not inherit it.
  delete process.env.HELIOS_STATUS_FOLDER;
  delete process.env.HELIOS_NODE_SHELL;
  // After a failure MPICH's launcher sends this signal to the others; by default Node would open its debugger's port.
  process.on('SIGUSR1', () => {});
  process.once('exit', (code) => {
    try {
      writeFileSync(join(folder, String(rank)), String(code));
    } catch {
      // The folder is gone: the launcher has given up, and a process without a file counts as failed.
    }
  });
}
