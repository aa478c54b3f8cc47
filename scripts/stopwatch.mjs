// What a stage of the tests takes: seconds, and those of the processors.

import { readFileSync } from 'node:fs';

/**
 * Processor time of the processes that this one started and that have ended, with what they started, in seconds; null where the
 * system does not say. What goes on beside the stages counts for the one that waits for its end.
 */
function childrenSeconds() {
  try {
    // Behind the name, which may hold anything but a further ')': the fields from the third on; cutime and cstime are the 16th and 17th.
    const fields = readFileSync('/proc/self/stat', 'utf8').split(') ').at(-1)?.split(' ') ?? [];
    return (Number(fields[13]) + Number(fields[14])) / TICKS;
  } catch {
    return null;
  }
}

/** Clock ticks a second in /proc: a constant of Linux's interface to programs. */
const TICKS = 100;

/** Times since now. @returns {() => { wall: number, processor: number | null }} in seconds */
export function stopwatch() {
  const [since, before] = [performance.now(), childrenSeconds()];
  return () => {
    const after = childrenSeconds();
    return { wall: (performance.now() - since) / 1000, processor: before === null || after === null ? null : after - before };
  };
}

/** @param {ReturnType<ReturnType<typeof stopwatch>>} times */
export const timesText = ({ wall, processor }) =>
  `${wall.toFixed(1).padStart(8)} s${processor === null ? '' : `  processors ${processor.toFixed(1).padStart(8)} s`}`;
