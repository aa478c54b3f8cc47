// `helios-vk run`: the processes of a group on this host, started by an MPI's own launcher, and started again together when one of
// them fails.

import { spawn, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';

import { INSTALL } from '../../distributed/engines.mjs';
import { CommandError } from './link.mjs';
import { UsageError, parseCommandLine } from './options.mjs';

/** @typedef {{ path: string, kind: 'openmpi' | 'mpich' }} Launcher */

const OPTIONS = /** @type {const} */ ({
  nproc: { type: 'integer', min: 1, max: 4096, required: true, help: 'processes on this host' },
  mpiexec: { type: 'string', value: 'PATH', help: "the MPI's launcher (default: the first of PATH)" },
  'max-restarts': { type: 'integer', min: 0, max: 1_000_000, default: 0, help: 'how often all are started again after a failure' },
  grace: { type: 'number', min: 0, max: 86_400, default: 30, help: 'seconds that a process has to end after another has failed' },
});

/** Names under which launchers are installed, the usual ones first. */
const NAMES = ['mpiexec', 'mpirun', 'mpiexec.openmpi', 'mpirun.openmpi', 'mpiexec.mpich', 'mpiexec.hydra', 'mpirun.mpich'];

/**
 * The options of `run`, and the command behind them: what follows the first word that is no option is the program's own.
 * @param {string[]} args
 */
export function parseRun(args) {
  let at = 0;
  while (at < args.length && args[at].startsWith('--') && args[at] !== '--') at += args[at].includes('=') ? 1 : 2;
  const { values } = parseCommandLine(OPTIONS, args.slice(0, at));
  const command = args.slice(args[at] === '--' ? at + 1 : at);
  if (command.length === 0) throw new UsageError('run: FILE is missing: the script that every process runs');
  return { values, command };
}

/** Which MPI a launcher is of, by what it says; null for none that is known. @param {string} said */
export function kindOf(said) {
  if (/open\s?(mpi|rte)|prrte/i.test(said)) return 'openmpi';
  return /hydra|mpich|intel\(r\) mpi/i.test(said) ? 'mpich' : null;
}

/** @param {string} path @returns {Launcher | null} */
function launcherAt(path) {
  const { stdout, stderr } = spawnSync(path, ['--version'], { encoding: 'utf8', timeout: 20_000 });
  const kind = kindOf(`${stdout ?? ''}${stderr ?? ''}`);
  return kind && { path, kind };
}

/** @param {string | undefined} named @returns {Launcher} */
function findLauncher(named) {
  if (named !== undefined) {
    const found = launcherAt(named);
    if (found) return found;
    throw new CommandError('ERR_NO_LAUNCHER', `--mpiexec ${named}: is no launcher of Open MPI or MPICH`);
  }
  for (const folder of (process.env.PATH ?? '').split(delimiter).filter(Boolean)) {
    for (const name of NAMES) {
      const path = join(folder, name);
      const found = existsSync(path) ? launcherAt(path) : null;
      if (found) return found;
    }
  }
  throw new CommandError('ERR_NO_LAUNCHER', `no launcher of an MPI is in PATH (${NAMES.slice(0, 2).join(', ')}): ${INSTALL}`);
}

/**
 * The launcher's command line. A rank that fails does not take the others along: they say first what they know, and end by
 * themselves.
 * @param {Launcher} launcher
 * @param {number} nproc
 * @param {string[]} command
 */
export function commandLine({ path, kind }, nproc, command) {
  const options =
    kind === 'openmpi'
      ? ['--oversubscribe', '--bind-to', 'none', '--enable-recovery', '--mca', 'orte_abort_on_non_zero_status', '0']
      : ['-disable-auto-cleanup', '-bind-to', 'none'];
  return [path, '-n', String(nproc), ...options, process.execPath, '--import', STATUS, ...command];
}

/** Leaves word of how a process ended. */
const STATUS = new URL('./rank-status.mjs', import.meta.url).href;

/**
 * How the processes ended, by the word that they left: the first status that is not 0, and 1 for one that left none.
 * @param {string} folder
 * @param {number} nproc
 */
export function worst(folder, nproc) {
  const statuses = Array.from({ length: nproc }, (_, rank) => {
    const file = join(folder, String(rank));
    return existsSync(file) ? Number(readFileSync(file, 'utf8')) : 1;
  });
  return statuses.find((status) => status !== 0) ?? 0;
}

/** A port of this host that is free now. @returns {Promise<number>} */
function freePort() {
  return new Promise((done, failed) => {
    const server = createServer();
    server.once('error', failed);
    server.listen(0, '127.0.0.1', () => {
      const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
      server.close(() => done(port));
    });
  });
}

/**
 * Runs a script in several processes until all have ended well, or no restart is left.
 * @param {string[]} args behind `run`
 * @returns {Promise<number>} the exit status
 */
export async function run(args) {
  const { values, command } = parseRun(args);
  const launcher = findLauncher(values.mpiexec);
  const line = commandLine(launcher, values.nproc, command);
  const name = randomBytes(6).toString('hex');
  /** @type {NodeJS.Signals | null} */
  let stopped = null;
  /** @type {import('node:child_process').ChildProcess | null} */
  let child = null;
  for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM'])) {
    process.on(signal, () => {
      stopped = signal;
      child?.kill(signal);
    });
  }
  for (let attempt = 0; ; attempt++) {
    const folder = mkdtempSync(join(tmpdir(), 'helios-vk-run-'));
    const environment = {
      ...process.env,
      MASTER_ADDR: '127.0.0.1',
      MASTER_PORT: String(await freePort()),
      HELIOS_GENERATION: `${name}-${attempt}`,
      HELIOS_RESTART_COUNT: String(attempt),
      HELIOS_FAILURE_GRACE: String(values.grace),
      HELIOS_STATUS_FOLDER: folder,
      // It asks whoever is root, and there is nobody to answer.
      OMPI_ALLOW_RUN_AS_ROOT: '1',
      OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: '1',
    };
    const started = spawn(line[0], line.slice(1), { env: environment, stdio: 'inherit' });
    child = started;
    const ended = await new Promise((/** @type {(status: number) => void} */ done, failed) => {
      started.once('error', failed);
      started.once('exit', (code, signal) => done(code ?? (signal ? 1 : 0)));
    });
    const status = ended || worst(folder, values.nproc);
    rmSync(folder, { recursive: true });
    if (stopped) return stopped === 'SIGINT' ? 130 : 143;
    if (status === 0 || attempt >= values['max-restarts']) return status;
    console.error(`helios-vk run: a process has failed (status ${status}); restart ${attempt + 1} of ${values['max-restarts']}`);
  }
}
