/** Loads addons and runs bench workers, each addon in a process of its own. */

import { fork } from 'node:child_process';
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { UsageError } from '../../bin/lib/options.mjs';

/** The package's own entry. */
export const OWN_ADDON = fileURLToPath(new URL('../../index.js', import.meta.url));

/**
 * The calls that this package and older addons of the contract may have. It is loosely typed, since addons differ in what they have.
 * @typedef {{[call: string]: any}} NativeAddon
 */

/**
 * @param {string} path a `.node` file or a module that exports the native calls
 * @returns {string} the absolute path
 * @throws {UsageError} if nothing is there
 */
export function addonPath(path) {
  const absolute = resolve(path);
  if (!existsSync(absolute)) {
    throw new UsageError(
      absolute === OWN_ADDON ? `${absolute} does not exist: build the addon first (npm run build)` : `no addon at ${absolute}`,
    );
  }
  return absolute;
}

/**
 * The driver of a device, by the name that people use; only its number if the addon does not report a name.
 * @param {{driverName?: string, driverInfo?: string, driverVersion?: number}} info what `initDevice` returned
 */
export function driverText({ driverName, driverInfo, driverVersion }) {
  const words = [driverName, driverInfo].filter((part) => part !== undefined && part !== '');
  return words.length > 0 ? words.join(', ') : `version ${driverVersion ?? 'unknown'}`;
}

/** @param {string} path absolute @returns {NativeAddon} */
export function loadAddon(path) {
  try {
    return createRequire(import.meta.url)(path);
  } catch (cause) {
    throw new Error(`${path} could not be loaded: ${cause instanceof Error ? cause.message : cause}`, { cause });
  }
}

/**
 * Runs `worker(job)` of a module in a fresh process and returns what it returns. What the worker prints goes to
 * stderr, so that stdout stays for results.
 * @template T
 * @param {string} module URL of a module that calls `serveWorker`
 * @param {unknown} job structured-cloneable
 * @param {{env?: Record<string, string>, execArgv?: string[], signal?: AbortSignal}} [options] `signal` kills the process
 * @returns {Promise<T>}
 * @throws {Error} with the worker's message, or its exit code or signal if it died without one
 */
export function runWorker(module, job, { env = {}, execArgv = [], signal } = {}) {
  return new Promise((fulfil, reject) => {
    const child = fork(fileURLToPath(module), ['--bench-worker'], {
      env: { ...process.env, ...env },
      execArgv,
      signal,
      killSignal: 'SIGKILL',
      serialization: 'advanced',
      stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
    });
    child.stdout?.pipe(process.stderr);
    /** @type {{result?: T, error?: string, stack?: string} | undefined} */ let answer;
    child.on('message', (message) => {
      answer = /** @type {any} */ (message);
    });
    child.on('error', reject);
    child.on('exit', (code, signal) => {
      if (answer && 'error' in answer) reject(Object.assign(new Error(answer.error), { stack: answer.stack }));
      else if (answer && code === 0) fulfil(/** @type {T} */ (answer.result));
      else reject(new Error(`the worker ended with ${signal ?? `exit code ${code}`}${answer ? ' after its result' : ''}`));
    });
    child.send({ job });
  });
}

/** Whether this process is a worker that `runWorker` started. */
export const isWorker = process.argv[2] === '--bench-worker';

/**
 * In a worker process: takes the job, answers it and ends.
 * @param {(job: any) => unknown} work may be async
 */
export function serveWorker(work) {
  process.once('message', async (/** @type {{job: unknown}} */ message) => {
    /** @type {{result?: unknown, error?: string, stack?: string}} */ let answer;
    try {
      answer = { result: await work(message.job) };
    } catch (error) {
      answer = error instanceof Error ? { error: error.message, stack: error.stack } : { error: String(error) };
    }
    process.send?.(answer, () => process.disconnect());
  });
}

/**
 * What an addon finds, asked of a process of its own.
 * @param {string} addon
 * @returns {Promise<{info: {deviceType?: number, deviceName: string, driverInfo?: string}, pipelineOptions: boolean}>}
 */
export function deviceOf(addon) {
  return runWorker(new URL('./device-worker.mjs', import.meta.url).href, { addon });
}
