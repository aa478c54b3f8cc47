/** Libraries of one C file, built on first use. Linux. */

import { spawnSync } from 'node:child_process';
import { mkdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const TARGET = process.env.CARGO_TARGET_DIR ?? fileURLToPath(new URL('../../target', import.meta.url));

/** Where the library of `name`.c for this processor is. @param {string} name @param {string} [suffix] */
export const library = (name, suffix = 'so') => join(TARGET, `faults-${name}-${process.arch}.${suffix}`);

/** Builds it; why that cannot be, or null. @param {string} name @param {string} [suffix] */
export function build(name, suffix) {
  if (process.platform !== 'linux') return 'calls of the C library are replaced and counted on Linux only';
  const [source, file] = [fileURLToPath(new URL(`${name}.c`, import.meta.url)), library(name, suffix)];
  const { mtimeMs: built } = statSync(file, { throwIfNoEntry: false }) ?? { mtimeMs: 0 };
  if (built > statSync(source).mtimeMs) return null;
  mkdirSync(TARGET, { recursive: true });
  const { status, error, stderr } = spawnSync('cc', ['-O1', '-shared', '-fPIC', '-o', file, source, '-ldl'], { encoding: 'utf8' });
  if (error) return 'no C compiler (cc)';
  if (status !== 0) throw new Error(stderr);
  return null;
}
