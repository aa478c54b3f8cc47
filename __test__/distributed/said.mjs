// What ranks say to a test: lines of JSON behind `@rank `, among whatever launchers print.

import { appendFileSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Says something to the test. @param {object} what */
export function say(what) {
  const line = `@rank ${JSON.stringify(what)}\n`;
  const folder = process.env.HELIOS_TEST_SAID;
  if (folder) appendFileSync(join(folder, `${process.pid}`), line);
  else process.stdout.write(line);
}

/** Takes pieces of a text as they come, and calls `heard` with each whole line's JSON. @param {(said: any) => void} heard */
function lines(heard) {
  let rest = '';
  return (/** @type {string | Buffer} */ piece) => {
    const whole = (rest + piece).split('\n');
    rest = whole.pop() ?? '';
    for (const line of whole) {
      const json = line.match(/@rank (\{.*\})/)?.[1];
      if (json) heard(JSON.parse(json));
    }
  };
}

/**
 * Calls `heard` with what processes say on a stream: short lines, or one process alone.
 * @param {import('node:stream').Readable} output @param {(said: any) => void} heard
 */
export const listen = (output, heard) => void output.on('data', lines(heard));

/**
 * Hears processes that a launcher starts. It forwards their output in pieces, and may put one's piece into the midst of another's line; so
 * each process writes to a file of its own in `folder`, which is HELIOS_TEST_SAID for them.
 * @param {(said: any) => void} heard
 */
export function listenToFiles(heard) {
  const folder = mkdtempSync(join(tmpdir(), 'helios-said-'));
  /** @type {Map<string, { at: number, take: (piece: string | Buffer) => void }>} */
  const files = new Map();
  const look = () => {
    for (const name of readdirSync(folder)) {
      const file = files.get(name) ?? { at: 0, take: lines(heard) };
      files.set(name, file);
      const bytes = readFileSync(join(folder, name));
      // Whole lines: the rest may end within a character.
      const end = bytes.lastIndexOf('\n') + 1;
      file.take(bytes.subarray(file.at, end));
      file.at = end;
    }
  };
  const timer = setInterval(look, 20);
  const close = () => {
    clearInterval(timer);
    look();
    rmSync(folder, { recursive: true });
  };
  return { folder, close };
}
