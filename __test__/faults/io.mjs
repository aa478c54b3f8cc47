/** The library of io.c, built on first use: failing files for any program. Linux. */

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

import { build, library } from './cc.mjs';

const LIBRARY = library('io');

/** Why there is no library here, or null. */
export const obstacle = () => build('io');

/**
 * Runs a module in a fresh process in which files below `folder` fail.
 * @param {string} source
 * @param {string} folder
 * @param {string} [fault] see io.c
 * @returns {{status: number | null, stdout: string, stderr: string, counts: Record<string, number>}} `counts`: the
 *   calls that went to the folder
 */
export function runWithFault(source, folder, fault) {
  const counts = `${folder}.counts`;
  const { status, stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', source], {
    encoding: 'utf8',
    timeout: 120_000,
    env: {
      ...process.env,
      LD_PRELOAD: LIBRARY,
      HELIOS_IO_FOLDER: folder,
      HELIOS_IO_COUNT: counts,
      HELIOS_IO_FAULT: fault,
      NODE_TEST_CONTEXT: undefined,
    },
  });
  const lines = readFileSync(counts, 'utf8')
    .trim()
    .split('\n')
    .map((line) => line.split(' '));
  return { status, stdout, stderr, counts: Object.fromEntries(lines.map(([name, count]) => [name, Number(count)])) };
}
