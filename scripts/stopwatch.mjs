// What a stage of the tests takes: seconds, and those of the processors.

import { readFileSync } from 'node:fs';

/** Processor time of this process and of its ended children, in seconds; null where the system does not say. */
function times() {
  try {
    // Behind the name, which may hold anything but a further ')': the fields from the third on; utime is the 14th.
    const fields = readFileSync('/proc/self/stat', 'utf8').split(') ').at(-1)?.split(' ') ?? [];
    const [user, system, childrenUser, childrenSystem] = fields.slice(11, 15).map((ticks) => Number(ticks) / TICKS);
    return { own: user + system, children: childrenUser + childrenSystem };
  } catch {
    return null;
  }
}

/** Processor time of the processes that this one started and that have ended, with what they started, in seconds, or null. */
const childrenSeconds = () => times()?.children ?? null;

/** Processor time of this process, and of those that it started and that have ended, in seconds, or null. */
export function processSeconds() {
  const all = times();
  return all && all.own + all.children;
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
