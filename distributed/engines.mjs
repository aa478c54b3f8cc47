// Finds the engines of this machine: libraries of MPI and NCCL, in the order in which they are tried.

import { spawn } from 'node:child_process';
import { existsSync, readdirSync, realpathSync, statSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** @typedef {'openmpi' | 'mpich' | 'mpi-abi' | 'nccl'} Abi */

/**
 * An engine that can be used.
 * @typedef {object} Engine
 * @property {'mpi' | 'nccl'} engine
 * @property {Abi} abi the binary interface: Open MPI's, MPICH's, the one of MPI-5, or NCCL's
 * @property {string} library the name or path under which it loads
 * @property {string} version as the library reports it
 */

/** @typedef {{ library: string, reason: string }} Missing */

/** Names under which a loader may know the libraries of an interface. @type {Record<Exclude<Abi, 'nccl'>, string[]>} */
const LIBRARIES =
  process.platform === 'darwin'
    ? { openmpi: ['libmpi.40.dylib'], mpich: ['libmpi.12.dylib', 'libmpich.12.dylib'], 'mpi-abi': ['libmpi_abi.1.dylib'] }
    : { openmpi: ['libmpi.so.40'], mpich: ['libmpich.so.12', 'libmpi.so.12'], 'mpi-abi': ['libmpi_abi.so.1'] };

/** The command that installs an engine on Debian and Ubuntu. */
export const INSTALL = 'apt-get install openmpi-bin   (or: apt-get install mpich)';

/** Folders next to MPI's launchers. An MPI outside the loader's paths keeps its library there. @param {string} path */
function besideLaunchers(path) {
  const folders = new Set();
  for (const folder of path.split(delimiter).filter(Boolean)) {
    for (const name of ['mpiexec', 'mpirun']) {
      const program = join(folder, name);
      // Both beside the link and beside its target: environments of Python contain links.
      if (existsSync(program)) for (const at of [program, realpathSync(program)]) folders.add(join(dirname(dirname(at)), 'lib'));
    }
  }
  return /** @type {string[]} */ ([...folders]);
}

/**
 * Libraries in the order in which they are tried.
 * @param {import('./environment.mjs').Launch['launcher']} launcher that started this process: another MPI's library would not find
 *   the others
 * @param {Record<string, string | undefined>} [environment]
 */
export function candidates(launcher, environment = process.env) {
  const named = environment.HELIOS_MPI_LIBRARY?.trim();
  if (named) return [named];
  /** @type {Exclude<Abi, 'nccl'>[]} */
  const abis = launcher === 'openmpi' ? ['openmpi'] : launcher === 'mpich' ? ['mpich', 'mpi-abi'] : ['openmpi', 'mpich', 'mpi-abi'];
  const names = abis.flatMap((abi) => LIBRARIES[abi]);
  const beside = besideLaunchers(environment.PATH ?? '').flatMap((folder) => names.map((name) => join(folder, name)));
  return [...beside.filter((path) => existsSync(path)), ...names];
}

/** The name under which a loader knows NCCL. */
const NCCL = 'libnccl.so.2';
/** Names under which it knows CUDA's driver. */
export const DRIVERS = ['libcuda.so.1'];

/** The folder of a Python environment that holds NCCL, if it is installed there. @param {string} prefix */
function ofPython(prefix) {
  const libraries = join(prefix, 'lib');
  const versions = existsSync(libraries) ? readdirSync(libraries).filter((name) => /^python3\.\d+$/.test(name)) : [];
  return versions.map((version) => join(libraries, version, 'site-packages/nvidia/nccl/lib', NCCL)).filter((path) => existsSync(path));
}

/**
 * Libraries of NCCL in the order in which they are tried: what `HELIOS_NCCL_LIBRARY` names, a file or the folder that it is in, and
 * nothing else; or the loader's, and those of the active environments of Python.
 * @param {Record<string, string | undefined>} [environment]
 */
export function ncclCandidates(environment = process.env) {
  const named = environment.HELIOS_NCCL_LIBRARY?.trim();
  if (named) return [statSync(named, { throwIfNoEntry: false })?.isDirectory() ? join(named, NCCL) : named];
  const prefixes = [environment.VIRTUAL_ENV, environment.CONDA_PREFIX].filter((prefix) => prefix !== undefined);
  return [NCCL, ...prefixes.flatMap(ofPython)];
}

/** How long a library may take to report its version. */
const PROBE_MS = 20_000;

/**
 * Lists the engines that can be loaded, and what was tried without success. Each library is loaded in a process of its own, so that
 * a crash does not reach this one; no engine is started.
 * @returns {Promise<{ engines: Engine[], missing: Missing[], install: string }>} `install`: the command that installs one on Debian
 */
export async function engines() {
  const names = [
    ...candidates(null).map((library) => ({ engine: /** @type {const} */ ('mpi'), library })),
    ...ncclCandidates().map((library) => ({ engine: /** @type {const} */ ('nccl'), library })),
  ];
  const answers = await Promise.all(names.map(({ engine, library }) => probe(library, engine)));
  /** @type {Engine[]} */
  const found = [];
  /** @type {Missing[]} */
  const missing = [];
  for (const [i, answer] of answers.entries()) {
    if ('abi' in answer) {
      // Several names may lead to one library.
      if (found.every(({ abi, version }) => abi !== answer.abi || version !== answer.version))
        found.push({ engine: names[i].engine, ...answer });
    } else missing.push({ library: names[i].library, reason: answer.reason });
  }
  return { engines: found, missing, install: INSTALL };
}

/**
 * @param {string} library
 * @param {'mpi' | 'nccl'} engine
 * @returns {Promise<{ abi: Abi, library: string, version: string } | { reason: string }>}
 */
function probe(library, engine) {
  return new Promise((done) => {
    const script = fileURLToPath(new URL('./probe.mjs', import.meta.url));
    const child = spawn(process.execPath, [script, library, engine], { stdio: ['ignore', 'pipe', 'ignore'], timeout: PROBE_MS });
    let output = '';
    child.stdout.on('data', (chunk) => (output += chunk));
    child.on('error', ({ message }) => done({ reason: message }));
    child.on('close', (status, signal) => {
      const answer = output.match(/^helios-probe (.*)$/m)?.[1];
      done(answer ? JSON.parse(answer) : { reason: `ended its process with ${signal ?? status}` });
    });
  });
}
