// How signals end a command.

import { showProgress } from './progress.mjs';

/** @type {NodeJS.Signals[]} */
const STOPS = ['SIGINT', 'SIGTERM', 'SIGHUP'];

/**
 * Ctrl-C, a scheduler's request, and a terminal that closes; on Windows Ctrl-Break, too. Windows has no SIGTERM, and ends the process some
 * seconds after SIGHUP, which means there that the console was closed.
 * @param {NodeJS.Platform} platform @returns {NodeJS.Signals[]}
 */
export const stopSignals = (platform) => (platform === 'win32' ? [...STOPS, 'SIGBREAK'] : STOPS);

/**
 * Ends a command in an orderly way: the first signal aborts `stop`, the second ends the process at once.
 * @param {AbortController} stop
 * @param {{ ownInterrupt?: boolean, of?: Pick<NodeJS.Process, 'platform' | 'exit'> & NodeJS.EventEmitter }} [options] `ownInterrupt`: the command
 *   itself listens to Ctrl-C; `of`: the process
 */
export function stopOnSignals(stop, { ownInterrupt = false, of = process } = {}) {
  let asked = false;
  for (const signal of stopSignals(of.platform)) {
    if (ownInterrupt && signal === 'SIGINT') continue;
    of.on(signal, (/** @type {NodeJS.Signals} */ _, /** @type {number} */ number) => {
      if (asked) of.exit(128 + number);
      asked = true;
      showProgress('');
      console.error('stopping; another signal ends the process at once');
      stop.abort();
    });
  }
}
