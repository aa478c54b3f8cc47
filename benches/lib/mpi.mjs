/** Calls `MPI_Allreduce` directly, in a process whose group has started Open MPI or MPICH. Only on Linux. */

import { spawnSync } from 'node:child_process';
import { mkdirSync, renameSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';

const SOURCE = fileURLToPath(new URL('mpi.c', import.meta.url));
const MODULE = fileURLToPath(new URL('../../target/bench-mpi.node', import.meta.url));

/**
 * Builds `mpi.c` and loads it. Call the returned function only while the group has no work in flight, since one thread at a time may use MPI.
 * @returns {(floats: Float32Array, blocking?: boolean) => number} sums the floats of all ranks in place, and returns the seconds that it took
 */
export function rawAllReduce() {
  mkdirSync(dirname(MODULE), { recursive: true });
  // Each rank builds its own, so that none loads a file that another is writing.
  const own = `${MODULE}.${process.pid}`;
  const { status, error, stderr } = spawnSync('cc', ['-O1', '-shared', '-fPIC', '-o', own, SOURCE, '-ldl'], { encoding: 'utf8' });
  if (status !== 0) throw new Error(`no C compiler (cc) for ${SOURCE}: ${error?.message ?? stderr}`);
  renameSync(own, MODULE);
  return createRequire(import.meta.url)(MODULE);
}
