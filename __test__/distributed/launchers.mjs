// The MPIs of this machine, and scripts started by them.

import { spawn, spawnSync } from 'node:child_process';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';

import { kindOf } from '../../bin/lib/run.mjs';
import { listen, listenToFiles } from './said.mjs';

export const REPOSITORY = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
/** How long a scenario may take. */
export const MOST_MS = 100_000;

/** The launchers of Open MPI and MPICH that this machine has, and one of another MPICH if it is named. */
const INSTALLED = ['mpiexec.openmpi', 'mpiexec.mpich', 'mpiexec', process.env.HELIOS_TEST_MPIEXEC ?? '']
  .filter(Boolean)
  .map((path) => {
    const { stdout, stderr } = spawnSync(path, ['--version'], { encoding: 'utf8' });
    // But for its name.
    return { path, kind: kindOf(`${stdout ?? ''}${stderr ?? ''}`), said: `${stdout}`.replace(/^\S+ /, '') };
  })
  // `mpiexec` is one of the others where those have their own names.
  .filter(({ kind, said }, i, all) => kind !== null && all.findIndex((other) => other.said === said) === i);

/** A library with the interface of MPI-5, if the loader knows one or `HELIOS_TEST_MPI_ABI` names it. */
const STANDARD =
  process.env.HELIOS_TEST_MPI_ABI ??
  (spawnSync('ldconfig', ['-p'], { encoding: 'utf8' }).stdout ?? '').match(/libmpi_abi\.so\.1 .*=> (\S+)/)?.[1];

/**
 * What processes are started by, and the library that they take where it is not that of the launcher: MPICH's starts those of MPI-5.
 * @typedef {{ path: string, kind: 'openmpi' | 'mpich', name: string, environment: Record<string, string> }} Launcher
 */

/** `HELIOS_TEST_MPI_ABI` leaves the interface of MPI-5 alone, so that every test runs over it. @type {Launcher[]} */
export const LAUNCHERS = INSTALLED.flatMap(({ path, kind }) => {
  const plain = { path, kind: /** @type {'openmpi' | 'mpich'} */ (kind), name: `${kind}`, environment: {} };
  const own = process.env.HELIOS_TEST_MPI_ABI ? [] : [plain];
  if (kind !== 'mpich' || !STANDARD) return own;
  return [...own, { ...plain, name: `the interface of MPI-5, started by ${kind}`, environment: { HELIOS_MPI_LIBRARY: STANDARD } }];
});
/** Why nothing can be started here, or false. */
export const NO_LAUNCHER =
  LAUNCHERS.length === 0 && (process.env.HELIOS_TEST_MPI_ABI ? 'no launcher of MPICH is installed' : 'no MPI is installed');

/** Launchers at work, which this process takes along when its own time is over. @type {Set<import('node:child_process').ChildProcess>} */
const running = new Set();
process.once('SIGTERM', () => {
  for (const child of running) child.kill('SIGTERM');
  process.exit(1);
});

/**
 * @typedef {Record<string, any> & { rank: number }} Said
 * @typedef {{ status: number, said: Said[], output: string, of: (rank: number) => Said[] }} Ran
 */

/**
 * Runs `helios-vk run` and gathers what its processes say.
 * @param {Launcher} launcher
 * @param {string[]} options of `run`, but for the launcher
 * @param {string[]} command the script and its arguments
 * @param {{ environment?: Record<string, string>, onSaid?: (said: Said) => void }} [more]
 * @returns {Promise<Ran>}
 */
export function launch(launcher, options, command, { environment = {}, onSaid = () => {} } = {}) {
  /** @type {Said[]} */
  const said = [];
  const hear = (/** @type {Said} */ one) => {
    said.push(one);
    onSaid(one);
  };
  const files = listenToFiles(hear);
  const child = spawn(process.execPath, ['bin/helios-vk.mjs', 'run', '--mpiexec', launcher.path, ...options, ...command], {
    cwd: REPOSITORY,
    env: { ...process.env, HELIOS_TEST_SAID: files.folder, ...launcher.environment, ...environment },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  running.add(child);
  const limit = setTimeout(() => child.kill('SIGTERM'), MOST_MS);
  let output = '';
  child.stderr.on('data', (chunk) => (output += chunk));
  child.stdout.on('data', (chunk) => (output += chunk));
  listen(child.stdout, hear);
  return new Promise((done) => {
    child.on('close', (code, signal) => {
      running.delete(child);
      clearTimeout(limit);
      files.close();
      done({ status: code ?? (signal ? 1 : 0), said, output, of: (rank) => said.filter((each) => each.rank === rank) });
    });
  });
}
