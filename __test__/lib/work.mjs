/** Worker threads that run a source with this directory's helpers in scope: see worker.mjs. */
import { Worker } from 'node:worker_threads';

const PROGRAM = new URL('worker.mjs', import.meta.url);

/**
 * @param {string} source statements; `data` is what is passed here, `post` sends a message, and all of addon.mjs is there by name
 * @param {unknown} [data] cloned
 */
export const startWorker = (source, data) => new Worker(PROGRAM, { workerData: { source, data }, execArgv: [] });

/**
 * Runs a source in a worker; resolves to what it posted once it has ended, and rejects if it fails.
 * @param {string} source
 * @param {unknown} [data]
 * @returns {Promise<any[]>}
 */
export const work = (source, data) =>
  new Promise((resolve, reject) => {
    /** @type {unknown[]} */
    const posted = [];
    startWorker(source, data)
      .on('message', (message) => posted.push(message))
      .on('error', reject)
      .on('exit', (code) => (code === 0 ? resolve(posted) : reject(new Error(`worker ended with ${code}`))));
  });
