// `helios-vk run`: starts the processes of a group through MPI's own launcher, on this host or on several, and restarts all of them
// when one fails.

import { spawn, spawnSync } from 'node:child_process';
import { randomBytes, randomInt } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createServer } from 'node:net';
import { constants, tmpdir } from 'node:os';
import { delimiter, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

import { INSTALL } from '../../distributed/engines.mjs';
import { address, secretOf } from '../../distributed/environment.mjs';
import { CommandError } from './link.mjs';
import { Nodes, serve } from './nodes.mjs';
import { UsageError, parseCommandLine } from './options.mjs';

/** @typedef {{ path: string, kind: 'openmpi' | 'mpich' }} Launcher */

const OPTIONS = /** @type {const} */ ({
  nproc: { type: 'integer', min: 1, max: 4096, required: true, help: 'processes on this host' },
  nnodes: { type: 'integer', min: 1, max: 4096, default: 1, help: 'hosts, each of which runs this command' },
  'node-rank': { type: 'integer', min: 0, max: 4095, default: 0, help: 'number of this host, from 0' },
  master: { type: 'string', value: 'HOST:PORT', help: 'address of the host with node rank 0' },
  mpiexec: { type: 'string', value: 'PATH', help: "MPI's launcher (default: the first in PATH)" },
  'max-restarts': { type: 'integer', min: 0, max: 1_000_000, default: 0, help: 'how many times to restart all processes after a failure' },
  grace: { type: 'number', min: 0, max: 86_400, default: 30, help: 'seconds the other processes have to end after a failure or a signal' },
});

/** Names under which launchers are installed, the usual ones first. */
const NAMES = ['mpiexec', 'mpirun', 'mpiexec.openmpi', 'mpirun.openmpi', 'mpiexec.mpich', 'mpiexec.hydra', 'mpirun.mpich'];

/** Number of words that are options of `run`: from the first other word on, all belong to the program. @param {string[]} args */
function optionWords(args) {
  let at = 0;
  while (at < args.length && args[at].startsWith('--') && args[at] !== '--') at += args[at].includes('=') ? 1 : 2;
  return at;
}

/** Whether the help of `run` is asked for, not the program's. @param {string[]} args */
export const asksForHelp = (args) => args[0] === '-h' || args.slice(0, optionWords(args)).includes('--help');

/**
 * The options of `run`, and the command behind them.
 * @param {string[]} args
 */
export function parseRun(args) {
  const at = optionWords(args);
  const { values } = parseCommandLine(OPTIONS, args.slice(0, at));
  const { nnodes, master } = values;
  if (values['node-rank'] >= nnodes) throw new UsageError(`--node-rank ${values['node-rank']}: must be less than --nnodes (${nnodes})`);
  if (nnodes > 1 && master === undefined) throw new UsageError('--master HOST:PORT is required with --nnodes');
  let where;
  try {
    where = master === undefined ? null : address(master, '--master');
  } catch (error) {
    throw new UsageError(/** @type {Error} */ (error).message);
  }
  const command = args.slice(args[at] === '--' ? at + 1 : at);
  if (command.length === 0) throw new UsageError('run: FILE is missing: the script that every process runs');
  return { values, command, master: where };
}

/**
 * Looks for the script as Node does, before anything is started: if it were missing, every process of every restart would fail.
 * @param {string[]} command if it begins with an option of Node's, it is left to Node
 * @throws {UsageError} that names the script
 */
export function checkScript([file]) {
  if (file.startsWith('-')) return;
  try {
    createRequire(import.meta.url).resolve(resolve(file));
  } catch {
    throw new UsageError(`run: ${file}: there is no such script`);
  }
}

/** The MPI of a launcher, recognized by what it prints; null for an unknown one. @param {string} said */
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
    throw new CommandError('ERR_NO_LAUNCHER', `--mpiexec ${named}: must be a launcher of Open MPI or MPICH`);
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
 * The launcher's command line. It does not kill the other ranks when one fails: they report the failure first, and end by themselves.
 * @param {Launcher} launcher
 * @param {number} nproc all processes
 * @param {string[]} command
 * @param {{ hosts: { name: string, nproc: number }[], own: string, shell: string, variables: string[] }} [nodes] hosts in the order of
 *   ranks; how the others reach this one; a program that runs commands on them; variables that their processes get too
 */
export function commandLine({ path, kind }, nproc, command, nodes) {
  const options =
    kind === 'openmpi'
      ? ['--oversubscribe', '--bind-to', 'none', '--enable-recovery', '--mca', 'orte_abort_on_non_zero_status', '0']
      : ['-disable-auto-cleanup', '-bind-to', 'none'];
  if (nodes) {
    const hosts = nodes.hosts.map(({ name, nproc: own }) => `${name}:${own}`).join();
    if (kind === 'openmpi') {
      options.push('--host', hosts, '--map-by', 'slot', '--mca', 'plm', 'rsh', '--mca', 'plm_rsh_agent', nodes.shell);
      // Otherwise daemons would start more daemons, through a shell that cannot reach the hosts.
      options.push('--mca', 'plm_rsh_no_tree_spawn', '1');
      options.push(...nodes.variables.flatMap((name) => ['-x', name]));
    } else options.push('-hosts', hosts, '-localhost', nodes.own, '-launcher', 'rsh', '-launcher-exec', nodes.shell);
  }
  const rank = [process.execPath, '--import', STATUS, ...command];
  return [path, '-n', String(nproc), ...options, ...(kind === 'mpich' ? SHELTER : []), ...rank];
}

/** The status that a shell reports for a process that SIGUSR1 ended. */
const BY_SIGUSR1 = 128 + constants.signals.SIGUSR1;

/**
 * A shell around each process, for MPICH's launcher. As soon as a signal ends one process, it kills all others, before they have heard
 * of the failure. The shell around a killed process exits normally, so the others live on. The launcher also sends SIGUSR1 to processes
 * when another has ended. In its last milliseconds Node no longer listens for that signal, which then ends a process whose work is done:
 * the shell reports success to the launcher, and the status file of the process says how it ended. Signals that the launcher passes on
 * reach the process as well as the shell, which ignores them.
 */
const SHELTER = ['sh', '-c', `trap : USR1 INT TERM; "$@"; status=$?; [ $status -eq ${BY_SIGUSR1} ] || exit $status`, 'helios-vk'];

/** Writes how a process ended into its status file. */
const STATUS = new URL('./rank-status.mjs', import.meta.url).href;

/** Exit status of a program whose command line or environment is wrong. A restart would not help. */
const MISUSE = 2;

/**
 * One status for several processes: that of a wrong command line, or else the first that is not 0.
 * @param {number[]} statuses
 */
export const worstOf = (statuses) => (statuses.includes(MISUSE) ? MISUSE : (statuses.find((status) => status !== 0) ?? 0));

/**
 * How the processes of a host have ended, by their status files: the worst status, and 1 for a process without a file.
 * @param {string} folder
 * @param {number} nproc
 * @param {number} [first] rank
 */
export function worst(folder, nproc, first = 0) {
  const statuses = Array.from({ length: nproc }, (_, i) => {
    const file = join(folder, String(first + i));
    return existsSync(file) ? Number(readFileSync(file, 'utf8')) : 1;
  });
  return worstOf(statuses);
}

/** The folder for the status files of an attempt, on each host. @param {string} generation */
const folderOf = (generation) => join(tmpdir(), `helios-vk-run-${generation}`);

/**
 * A free port of this host, below the ephemeral range (from 32,768 under Linux, from 49,152 elsewhere), so that the system gives it to
 * nobody else before a rank listens there.
 * @returns {Promise<number>}
 */
export async function freePort() {
  for (;;) {
    const port = randomInt(20_000, 32_768);
    const free = await new Promise((/** @type {(free: boolean) => void} */ done, failed) => {
      const server = createServer();
      server.once('error', (error) => (/** @type {NodeJS.ErrnoException} */ (error).code === 'EADDRINUSE' ? done(false) : failed(error)));
      server.listen(port, '127.0.0.1', () => server.close(() => done(true)));
    });
    if (free) return port;
  }
}

/** How long hosts may take to join. */
const JOIN_MS = 600_000;
/** How often the status files are read. */
const LOOK_MS = 250;
/** How long MPI's launcher may take to end after SIGTERM. */
const FORCE_MS = 5_000;
/** Environment variables that processes on other hosts get from this one. */
const VARIABLES = [
  'MASTER_ADDR',
  'MASTER_PORT',
  'HELIOS_GENERATION',
  'HELIOS_SECRET',
  'HELIOS_RESTART_COUNT',
  'HELIOS_FAILURE_GRACE',
  'HELIOS_STATUS_FOLDER',
];

/**
 * Ends a launcher some time after one of its processes has failed: the other ranks do not learn of a process that failed before it joined.
 * @param {string} folder @param {number} graceMs @param {() => void} end
 */
function endAfterFailure(folder, graceMs, end) {
  /** @type {number | null} */
  let since = null;
  const watch = setInterval(() => {
    const failed = readdirSync(folder).some((name) => !['', '0'].includes(readFileSync(join(folder, name), 'utf8')));
    if (failed) since ??= performance.now();
    if (since === null || performance.now() - since <= graceMs) return;
    clearInterval(watch);
    end();
  }, LOOK_MS);
  return watch;
}

/**
 * A shell that waits for a line, and ends MPI's launcher if the pipe closes without one: then this process was killed, and nothing else
 * would end what it has started.
 */
const GUARD = `read -r line && exit; kill -TERM "$1"; sleep ${FORCE_MS / 1000}; kill -KILL "$1"`;

/**
 * Makes MPI's launcher end with this process, however this process ends.
 * @param {number} pid of the launcher
 * @returns {() => void} to be called when the launcher has ended
 */
function guard(pid) {
  // In a session of its own, so that signals to the terminal's processes do not reach it.
  const shell = spawn('sh', ['-c', GUARD, 'helios-vk', String(pid)], { stdio: ['pipe', 'ignore', 'ignore'], detached: true });
  shell.on('error', () => {});
  shell.stdin.on('error', () => {});
  shell.unref();
  return () => void shell.stdin.end('done\n');
}

/** The secret that the user has set, or none. */
function given() {
  try {
    return secretOf();
  } catch (error) {
    throw new UsageError(/** @type {Error} */ (error).message);
  }
}

/**
 * Runs a script in several processes until all have succeeded, or no restart is left.
 * @param {string[]} args after `run`
 * @returns {Promise<number>} the exit status
 */
export async function run(args) {
  const { values, command, master } = parseRun(args);
  const { nproc, nnodes, grace } = values;
  const secret = given();
  if (values['node-rank'] > 0 && master) {
    return serve({
      nodeRank: values['node-rank'],
      nnodes,
      nproc,
      ...master,
      joinMs: JOIN_MS,
      secret,
      begin: (generation) => {
        mkdirSync(folderOf(generation), { recursive: true });
        return { HELIOS_STATUS_FOLDER: folderOf(generation) };
      },
      finish: (generation, first) => {
        const status = worst(folderOf(generation), nproc, first);
        rmSync(folderOf(generation), { recursive: true, force: true });
        return status;
      },
    });
  }
  checkScript(command);
  const launcher = findLauncher(values.mpiexec);
  const own = mkdtempSync(join(tmpdir(), 'helios-vk-shell-'));
  const nodes = nnodes > 1 && master ? new Nodes() : null;
  try {
    if (nodes && master) await nodes.gather({ nnodes, ...master, joinMs: JOIN_MS, secret });
    const restarts = values['max-restarts'];
    const status = await attempts(launcher, { nproc, grace, restarts, master, nodes, own, command, secret });
    nodes?.close(status);
    return status;
  } finally {
    nodes?.close(1);
    rmSync(own, { recursive: true });
  }
}

/**
 * @param {Launcher} launcher
 * @param {{ nproc: number, grace: number, restarts: number, master: { host: string, port: number } | null, nodes: Nodes | null,
 *   own: string, command: string[], secret: string }} options `own`: a folder; `secret`: what the user has set, if so
 */
async function attempts(launcher, { nproc, grace, restarts, master, nodes, own, command, secret }) {
  const name = randomBytes(6).toString('hex');
  /** @type {NodeJS.Signals | null} */
  let stopped = null;
  /** @type {import('node:child_process').ChildProcess | null} */
  let child = null;
  /** Ends MPI's launcher, by force if it waits for hosts that are gone. @param {NodeJS.Signals} [signal] */
  const end = (signal = 'SIGTERM', forceMs = FORCE_MS) => {
    const started = child;
    if (!started?.kill(signal)) return;
    setTimeout(() => started.exitCode === null && started.kill('SIGKILL'), forceMs).unref();
  };
  for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM'])) {
    process.on(signal, () => {
      // Processes may have a checkpoint to write. After a second signal, do not wait for that.
      end(signal, stopped ? FORCE_MS : Math.max(FORCE_MS, grace * 1000));
      stopped = signal;
    });
  }
  let lost = false;
  if (nodes) {
    nodes.onLost = (rank) => {
      lost = true;
      console.error(`helios-vk run: the launcher of node rank ${rank} has exited`);
      end();
    };
  }
  const shell = join(own, 'shell');
  const hosts = [{ name: master?.host ?? '', nproc }, ...(nodes?.list ?? [])];
  /** The first rank of each host. */
  const first = hosts.map((_, i) => hosts.slice(0, i).reduce((sum, each) => sum + each.nproc, 0));
  const all = hosts.reduce((sum, each) => sum + each.nproc, 0);
  const quoted = [process.execPath, fileURLToPath(new URL('./node-shell.mjs', import.meta.url))].map((word) => `'${word}'`).join(' ');
  writeFileSync(shell, `#!/bin/sh\nexec ${quoted} "$@"\n`, { mode: 0o755 });
  const place = nodes && master ? { hosts, own: master.host, shell, variables: VARIABLES } : undefined;
  const line = commandLine(launcher, all, command, place);
  // The same for all attempts, which differ in their generation.
  /** @type {Record<string, string>} */
  const made = secret ? {} : { HELIOS_SECRET: randomBytes(32).toString('hex') };
  for (let attempt = 0; ; attempt++) {
    const generation = `${name}-${attempt}`;
    const folder = folderOf(generation);
    mkdirSync(folder);
    const environment = {
      MASTER_ADDR: nodes && master ? master.host : '127.0.0.1',
      MASTER_PORT: String(await freePort()),
      HELIOS_GENERATION: generation,
      // A secret that the user has set is also set on the other hosts, so it is not sent.
      ...made,
      HELIOS_RESTART_COUNT: String(attempt),
      HELIOS_FAILURE_GRACE: String(grace),
      HELIOS_STATUS_FOLDER: folder,
      // Open MPI refuses to run as root without this.
      OMPI_ALLOW_RUN_AS_ROOT: '1',
      OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: '1',
    };
    nodes?.begin({ generation, first: first.slice(1), environment });
    const ours = nodes ? { HELIOS_NODE_SHELL: `${nodes.port}:${nodes.key}` } : {};
    // In a session of its own: otherwise a terminal's Ctrl-C would reach it twice, and MPI kills its processes on the second.
    const started = spawn(line[0], line.slice(1), { env: { ...process.env, ...environment, ...ours }, stdio: 'inherit', detached: true });
    child = started;
    const watch = endAfterFailure(folder, grace * 1000, end);
    const release = started.pid === undefined ? () => {} : guard(started.pid);
    const ended = await new Promise((/** @type {(status: number) => void} */ done, failed) => {
      started.once('error', failed);
      started.once('exit', (code, signal) => done(code ?? (signal ? 1 : 0)));
    }).finally(() => {
      clearInterval(watch);
      release();
    });
    // Read before the other hosts clean up, because hosts may share the folder.
    const words = worst(folder, nproc);
    // The launcher's own status is not a process's: MPICH combines the bits of all.
    const here = words || ended;
    const others = worstOf((await nodes?.statuses()) ?? []);
    const misuse = [words, others].includes(MISUSE);
    const status = misuse ? MISUSE : here || others || Number(lost);
    rmSync(folder, { recursive: true, force: true });
    if (stopped) return stopped === 'SIGINT' ? 130 : 143;
    if (status === 0 || misuse || lost || attempt >= restarts) return status;
    console.error(`helios-vk run: a process has failed (status ${status}); restart ${attempt + 1} of ${restarts}`);
  }
}
