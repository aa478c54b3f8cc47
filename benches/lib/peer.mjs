/** Runs a program that answers lines of JSON with lines of JSON over its pipes. */

import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

/**
 * @param {string} program @param {string[]} args
 * @returns {{ ask: (request: unknown, milliseconds: number) => Promise<any>, end: () => void }} `ask` rejects with the program's own
 *   `error`, when the program ends, and on a timeout, which also ends the program
 */
export function startPeer(program, args) {
  const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'inherit'] });
  /** @type {{ resolve: (answer: any) => void, reject: (error: Error) => void } | undefined} */
  let waiting;
  /** @type {Error | undefined} */
  let over;
  const fail = (/** @type {Error} */ error) => {
    over ??= error;
    waiting?.reject(over);
    waiting = undefined;
  };
  createInterface({ input: child.stdout }).on('line', (line) => {
    const { error, ...answer } = JSON.parse(line);
    if (error === undefined) waiting?.resolve(answer);
    else waiting?.reject(new Error(error));
    waiting = undefined;
  });
  child.on('error', fail);
  child.on('exit', (code, signal) => fail(new Error(`${program} ended with ${signal ?? `exit code ${code}`}`)));
  // Writing to a program that has ended fails; its exit event reports that.
  child.stdin.on('error', () => {});
  return {
    ask: (request, milliseconds) =>
      new Promise((resolve, reject) => {
        if (over) throw over;
        const timer = setTimeout(() => {
          fail(new Error(`no answer within ${(milliseconds / 1000).toFixed(0)} s`));
          child.kill('SIGKILL');
        }, milliseconds);
        const settled = (/** @type {(value: any) => void} */ settle) => (/** @type {any} */ value) => {
          clearTimeout(timer);
          settle(value);
        };
        waiting = { resolve: settled(resolve), reject: settled(reject) };
        child.stdin.write(`${JSON.stringify(request)}\n`);
      }),
    end: () => {
      child.stdin.end();
      child.kill();
    },
  };
}
