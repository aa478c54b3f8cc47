// Gathers the facts that `doctor` reports; diagnose.mjs judges them.

import { accessSync, constants, existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { homedir, release } from 'node:os';
import { dirname, join, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

import { engines } from '../../distributed/engines.mjs';
import { drivers, layers, loaders, strayDrivers } from './manifests.mjs';
import { failureOf, probe } from './probe.mjs';

/** @typedef {import('./manifests.mjs').Manifest} Manifest */
/** @typedef {import('./manifests.mjs').Place} Place */
/** @typedef {import('../../index.js').DeviceInfo} DeviceInfo */
/** @typedef {import('../../index.js').DeviceSummary} DeviceSummary */
/** @typedef {import('./probe.mjs').Failure} Failure */

/** @typedef {Manifest & { loads: boolean | null, crashes: boolean }} Driver */

/** @typedef {import('./packages.mjs').System & {
 *   arch: string,
 *   name: string,
 *   container: boolean,
 *   gpus: Array<'nvidia' | 'amd' | 'intel'>,
 *   closedNodes: string[],
 * }} SystemFacts */

/**
 * @typedef {object} SmokeTest
 * @property {boolean} ok
 * @property {number} elements
 * @property {number} wrong
 * @property {number} milliseconds from submission until the device was done; the pipelines were made before
 * @property {{ index: number, a: number, b: number, sum: string, product: string } | null} first the first wrong result
 */

/**
 * @typedef {object} Facts
 * @property {{ name: string, version: string, path: string, checkout: boolean }} package
 * @property {{ version: string, required: string, napi: string, path: string }} node
 * @property {SystemFacts} system
 * @property {{ ok: boolean, path: string | null, bytes: number | null, version: string | null, triple: string,
 *   functions: number, error: string | null }} addon
 * @property {{ ok: boolean, path: string | null, candidates: string[], error: string | null }} loader
 * @property {Driver[]} drivers
 * @property {string[]} strayDrivers manifests where the loader does not look
 * @property {Manifest[]} layers
 * @property {{ available: boolean, requested: boolean }} validation
 * @property {DeviceSummary[]} devices
 * @property {(Omit<Failure, 'name'> & { crash: boolean }) | null} devicesError
 * @property {DeviceInfo | null} device the one that `initDevice` takes
 * @property {SmokeTest | null} smoke
 * @property {string | null} smokeError
 * @property {Awaited<ReturnType<typeof engines>> | null} [mpi] the libraries of MPI and NCCL that a group of processes can use; null if the
 *   search failed
 * @property {Record<string, string>} environment variables of this package and of the loader that are set
 */

export const PACKAGE = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
const LAYER = 'VK_LAYER_KHRONOS_validation';
const VENDORS = /** @type {const} */ ({ '0x10de': 'nvidia', '0x1002': 'amd', '0x8086': 'intel' });

/** The package's own package.json. */
export function manifestOfPackage() {
  return JSON.parse(readFileSync(join(PACKAGE, 'package.json'), 'utf8'));
}

/**
 * The text of a file, or '' where it cannot be read.
 * @param {string} path
 */
function textOf(path) {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

/**
 * @param {string} path
 * @returns {string[]} names in a folder; none where there is none
 */
function namesIn(path) {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}

/**
 * The operating system, and the GPUs that it sees whatever their drivers say.
 * @param {Place} place
 * @returns {SystemFacts}
 */
export function systemFacts({ platform, arch, root }) {
  const at = (/** @type {string} */ path) => join(root, path);
  const file = textOf(at('/etc/os-release')) || textOf(at('/usr/lib/os-release'));
  const field = (/** @type {string} */ name) => file.match(new RegExp(`^${name}=["']?([^"'\n]*)["']?$`, 'm'))?.[1] ?? '';
  const pci = at('/sys/bus/pci/devices');
  /** @type {SystemFacts['gpus']} */
  const gpus = [];
  for (const device of namesIn(pci)) {
    // Class 3 is display controllers, compute accelerators among them.
    if (!textOf(join(pci, device, 'class')).startsWith('0x03')) continue;
    const vendor = textOf(join(pci, device, 'vendor')).trim();
    if (vendor in VENDORS) gpus.push(VENDORS[/** @type {keyof typeof VENDORS} */ (vendor)]);
  }
  if (!gpus.includes('nvidia') && existsSync(at('/proc/driver/nvidia/version'))) gpus.push('nvidia');
  const closedNodes = namesIn(at('/dev/dri'))
    .filter((name) => name.startsWith('renderD'))
    .map((name) => join(at('/dev/dri'), name))
    .filter((path) => !mayUse(path));
  const words = { darwin: 'macOS', win32: 'Windows' }[/** @type {string} */ (platform)];
  return {
    platform,
    arch,
    distribution: field('ID'),
    relatives: field('ID_LIKE').split(' ').filter(Boolean),
    name: field('PRETTY_NAME') || `${words ?? platform} ${release()}`,
    root: process.getuid?.() === 0,
    container:
      existsSync(at('/.dockerenv')) ||
      existsSync(at('/run/.containerenv')) ||
      /docker|containerd|kubepods|lxc/.test(textOf(at('/proc/1/cgroup'))),
    gpus: [...new Set(gpus)],
    closedNodes,
  };
}

/** @param {string} path */
function mayUse(path) {
  try {
    accessSync(path, constants.R_OK | constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

/** The platform as the names of the addon's binaries give it. */
export function triple() {
  const { platform, arch } = process;
  const reporter = /** @type {any} */ (process.report);
  if (reporter) reporter.excludeNetwork = true;
  const musl = platform === 'linux' && reporter?.getReport().header.glibcVersionRuntime === undefined;
  const abi = /** @type {Record<string, string>} */ ({ linux: musl ? '-musl' : '-gnu', win32: '-msvc' })[platform] ?? '';
  return `${platform}-${arch}${abi}`;
}

/**
 * The version of the package that contains a binary, which may be a package of its own for the platform.
 * @param {string} binary
 * @returns {string | null}
 */
function versionAt(binary) {
  try {
    const { name, version } = JSON.parse(readFileSync(join(dirname(binary), 'package.json'), 'utf8'));
    return /^(@[^/]+\/)?helios-vk/.test(name) ? version : null;
  } catch {
    return null;
  }
}

/**
 * Gathers all facts.
 * @param {{ timeout: number, place?: Place }} options `timeout` of each question, in milliseconds
 * @returns {Promise<Facts>}
 */
export async function gather({ timeout, place = here() }) {
  const description = manifestOfPackage();
  const index = join(PACKAGE, 'index.js');
  const { env } = place;
  const found = drivers(place);
  const [listed, opened] = await Promise.all([
    probe('devices', index, { timeout }),
    Promise.all(
      found.map((driver) =>
        // Tried even if we did not find it: the linker may search more folders.
        driver.ignored || driver.library === null ? null : probe('library', driver.libraryPath ?? driver.library, { timeout }),
      ),
    ),
  ]);
  /** @type {Driver[]} */
  const checked = found.map((driver, index) => {
    const answer = opened[index];
    const error = answer ? failureOf(answer) : driver.error;
    const loads = answer ? error === null : null;
    return { ...driver, exists: driver.exists || loads === true, loads, crashes: answer?.crash != null, error };
  });

  const loaded = listed.results.load ?? null;
  const devices = /** @type {DeviceSummary[]} */ (listed.results.listDevices ?? []);
  const failed = loaded ? failureOf(listed) : null;
  const devicesError = failed ? { code: listed.error?.code ?? null, message: failed, crash: listed.crash !== null } : null;
  if (devicesError?.crash) await findCulprits(checked, index, timeout, env);

  const smoke = loaded && !devicesError ? await probe('smoke', index, { timeout }) : null;
  const computed = smoke?.results.compute ?? null;
  const { HELIOS_VULKAN_LOADER: named } = env;
  const candidates = [...(named && existsSync(named) ? [named] : []), ...loaders(place)];
  const noLoader = devicesError?.code === 'ERR_HELIOS_NO_LOADER';
  const binary = loaded?.binary ?? null;
  const available = layers(place);
  const mpi = loaded ? await engines() : null;
  return {
    mpi,
    package: {
      name: description.name,
      version: description.version,
      path: PACKAGE,
      checkout: existsSync(join(PACKAGE, 'Cargo.toml')),
    },
    node: {
      version: process.versions.node,
      required: description.engines.node.replace(/^\D+/, ''),
      napi: process.versions.napi ?? '',
      path: process.execPath,
    },
    system: systemFacts(place),
    addon: {
      ok: loaded !== null,
      path: binary,
      bytes: binary === null ? null : (statSync(binary, { throwIfNoEntry: false })?.size ?? null),
      version: binary === null ? null : versionAt(binary),
      triple: triple(),
      functions: loaded?.functions.length ?? 0,
      error: loaded ? null : failureOf(listed),
    },
    loader: {
      // If the addon does not load, the drivers were not tried.
      ok: loaded ? !noLoader : candidates.length > 0,
      path: smoke?.results.loader ?? (noLoader ? null : (candidates[0] ?? null)),
      candidates,
      error: noLoader ? (devicesError?.message ?? null) : null,
    },
    drivers: checked,
    strayDrivers: strayDrivers(place),
    layers: available,
    validation: {
      available: available.some(({ name, error, ignored }) => name === LAYER && !error && !ignored),
      requested: /^\s*(1|true|on|yes)\s*$/i.test(env.HELIOS_VALIDATION ?? ''),
    },
    devices,
    devicesError,
    device: smoke?.results.initDevice ?? null,
    smoke: computed && { ok: computed.wrong === 0, ...computed },
    smokeError: smoke ? failureOf(smoke) : null,
    environment: Object.fromEntries(
      Object.entries(env)
        .filter(([name]) => /^(HELIOS|VK|VULKAN|NAPI_RS)_|^NVIDIA_(DRIVER_CAPABILITIES|VISIBLE_DEVICES)$/.test(name))
        .map(([name, value]) => [name, value ?? ''])
        .sort(([a], [b]) => (a < b ? -1 : 1)),
    ),
  };
}

/** This machine, as the search for manifests sees it. @returns {Place} */
export function here() {
  return { platform: process.platform, arch: process.arch, env: process.env, home: homeFolder(), root: sep };
}

/** The user's home, or a folder that does not exist if the user has none, as in containers that run under a bare user id. */
function homeFolder() {
  try {
    return homedir();
  } catch {
    return join(sep, 'nonexistent');
  }
}

/**
 * Asks each driver alone, and marks those that crash or hang.
 * @param {Driver[]} drivers
 * @param {string} index
 * @param {number} timeout
 * @param {NodeJS.ProcessEnv} env
 */
async function findCulprits(drivers, index, timeout, env) {
  await Promise.all(
    drivers
      .filter(({ loads, crashes }) => loads && !crashes)
      .map(async (driver) => {
        const alone = { ...env, VK_DRIVER_FILES: driver.file, VK_ICD_FILENAMES: driver.file };
        const answer = await probe('devices', index, { timeout, env: alone });
        if (answer.crash === null) return;
        driver.crashes = true;
        driver.error = failureOf(answer);
      }),
  );
}
