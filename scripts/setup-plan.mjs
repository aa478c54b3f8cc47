// Decides what this machine lacks and which commands install it. Pure functions of a snapshot, so that
// they can be tested for other systems. `bootstrap.mjs` takes the snapshot and carries the plan out.

import { atLeast } from '../bin/lib/diagnose.mjs';

/** @typedef {'train' | 'bench' | 'test' | 'full' | 'platforms'} Purpose `full`: `npm run test:full`; `platforms`: also the release */

/**
 * What was found on the machine.
 * @typedef {object} Snapshot
 * @property {NodeJS.Platform} platform
 * @property {string} distribution ID of /etc/os-release, '' elsewhere
 * @property {string[]} relatives its ID_LIKE
 * @property {'root' | 'sudo' | 'none'} rights how packages can be installed without a password
 * @property {boolean} mayInstall false if the user only wants to see what is missing
 * @property {string} node version of the running Node
 * @property {boolean} modules whether node_modules matches package-lock.json
 * @property {'missing' | 'stale' | 'ready'} addon
 * @property {boolean} made whether declarations, reference and the modules for `require` are current
 * @property {string | null} cargo version, null if there is none
 * @property {boolean} rustup
 * @property {boolean} rustTools rustfmt and clippy
 * @property {boolean} compiler a C++ compiler
 * @property {boolean} certificates the system's certificates, for downloads
 * @property {boolean} loader the Vulkan loader
 * @property {boolean} drivers any Vulkan driver
 * @property {boolean} softwareDriver a driver that runs on the CPU
 * @property {boolean} layer the Khronos validation layer
 * @property {boolean} spirvVal the validator of SPIRV-Tools
 * @property {boolean} glslang glslangValidator, the reference compiler of GLSL
 * @property {boolean} debootstrap
 * @property {boolean} mpi the launcher of an MPI
 * @property {boolean} chromium a Chromium, or Chrome
 * @property {boolean} python Python 3 that makes environments
 * @property {boolean} mmdebstrap
 * @property {boolean} emulator QEMU's emulator of arm64 for programs
 * @property {boolean} binutils objdump
 */

/**
 * One thing to do. bootstrap runs `commands` in order; a step without commands is for the user.
 * @typedef {object} Step
 * @property {string} what one line for the user
 * @property {'packages' | 'rust' | 'modules' | 'addon' | 'made' | 'advice'} kind
 * @property {string[][]} commands
 * @property {string} advice what the user can type, '' if bootstrap does it all
 * @property {boolean} required whether the purpose is impossible without it
 */

/** @typedef {'compiler' | 'certificates' | 'loader' | 'driver' | 'layer' | 'spirvVal' | 'glslang' | 'debootstrap' | 'mpi' | 'chromium' | 'python' | 'mmdebstrap' | 'emulator' | 'binutils'} Need */

/** @type {Record<Need, string>} */
const NAMES = {
  compiler: 'C++ compiler',
  certificates: 'certificates',
  loader: 'Vulkan loader',
  driver: 'Vulkan driver',
  layer: 'Vulkan validation layer',
  spirvVal: "spirv-val (safe mode's rules are compared with it)",
  glslang: 'glslangValidator (compiles the shaders of guide and examples)',
  debootstrap: 'debootstrap (for the tests on a newer Mesa)',
  mpi: 'MPI (for the tests of several processes)',
  chromium: 'Chromium (for the tests of the page of a training run)',
  python: "Python with venv (writes ONNX's backend tests, gets Zig)",
  mmdebstrap: 'mmdebstrap (makes roots of other systems)',
  emulator: 'QEMU (runs binaries for arm64)',
  binutils: 'objdump (reads what binaries need)',
};

/**
 * Package names by family of distributions, and how a user installs them.
 * @type {Record<string, { install: string[], packages: Partial<Record<Need, string[]>> }>}
 */
const FAMILIES = {
  debian: {
    install: ['apt-get', 'install', '-y', '--no-install-recommends'],
    packages: {
      compiler: ['g++'],
      certificates: ['ca-certificates'],
      loader: ['libvulkan1'],
      driver: ['mesa-vulkan-drivers'],
      layer: ['vulkan-validationlayers'],
      spirvVal: ['spirv-tools'],
      glslang: ['glslang-tools'],
      debootstrap: ['debootstrap', 'debian-archive-keyring'],
      mpi: ['openmpi-bin', 'mpich'],
      chromium: ['chromium'],
      python: ['python3-venv'],
      mmdebstrap: ['mmdebstrap', 'debian-archive-keyring'],
      emulator: ['qemu-user-static'],
      binutils: ['binutils'],
    },
  },
  fedora: {
    install: ['dnf', 'install', '-y'],
    packages: {
      compiler: ['gcc-c++'],
      certificates: ['ca-certificates'],
      loader: ['vulkan-loader'],
      driver: ['mesa-vulkan-drivers'],
      layer: ['vulkan-validation-layers'],
      spirvVal: ['spirv-tools'],
      glslang: ['glslang'],
      debootstrap: ['debootstrap'],
      mpi: ['openmpi', 'mpich'],
      chromium: ['chromium'],
      python: ['python3'],
      emulator: ['qemu-user-static'],
      binutils: ['binutils'],
    },
  },
  arch: {
    install: ['pacman', '-S', '--needed'],
    packages: {
      compiler: ['gcc'],
      certificates: ['ca-certificates'],
      loader: ['vulkan-icd-loader'],
      driver: ['vulkan-swrast'],
      layer: ['vulkan-validation-layers'],
      spirvVal: ['spirv-tools'],
      glslang: ['glslang'],
      debootstrap: ['debootstrap', 'debian-archive-keyring'],
      mpi: ['openmpi'],
      chromium: ['chromium'],
      python: ['python'],
      emulator: ['qemu-user-static'],
      binutils: ['binutils'],
    },
  },
  suse: {
    install: ['zypper', 'install'],
    packages: {
      compiler: ['gcc-c++'],
      certificates: ['ca-certificates'],
      loader: ['libvulkan1'],
      driver: ['libvulkan_lvp'],
      layer: ['vulkan-validationlayers'],
      spirvVal: ['spirv-tools'],
      glslang: ['glslang-devel'],
      debootstrap: ['debootstrap'],
      mpi: ['openmpi4', 'mpich'],
      chromium: ['chromium'],
      python: ['python3'],
      emulator: ['qemu-linux-user'],
      binutils: ['binutils'],
    },
  },
  alpine: {
    install: ['apk', 'add'],
    packages: {
      compiler: ['g++'],
      certificates: ['ca-certificates'],
      loader: ['vulkan-loader'],
      driver: ['mesa-vulkan-swrast'],
      layer: ['vulkan-validation-layers'],
      spirvVal: ['spirv-tools'],
      glslang: ['glslang'],
      debootstrap: ['debootstrap'],
      mpi: ['openmpi'],
      chromium: ['chromium'],
      python: ['python3'],
      emulator: ['qemu-aarch64'],
      binutils: ['binutils'],
    },
  },
  darwin: {
    install: ['brew', 'install'],
    packages: {
      loader: ['vulkan-loader'],
      driver: ['molten-vk'],
      layer: ['vulkan-validationlayers'],
      spirvVal: ['spirv-tools'],
      glslang: ['glslang'],
      mpi: ['open-mpi'],
      chromium: ['chromium'],
      python: ['python'],
    },
  },
};

/** Other names of distributions, by family. */
const ALIASES = /** @type {Record<string, string>} */ ({
  ubuntu: 'debian',
  rhel: 'fedora',
  centos: 'fedora',
  'opensuse-tumbleweed': 'suse',
  'opensuse-leap': 'suse',
  opensuse: 'suse',
});

/**
 * @param {Pick<Snapshot, 'platform' | 'distribution' | 'relatives'>} snapshot
 * @returns {string | null} a key of the package table
 */
export function family({ platform, distribution, relatives }) {
  if (platform === 'darwin') return 'darwin';
  for (const name of [distribution, ...relatives]) {
    const known = ALIASES[name] ?? name;
    if (known !== 'darwin' && Object.hasOwn(FAMILIES, known)) return known;
  }
  return null;
}

/** Whether the machine is prepared for tests. @param {Purpose} purpose */
export const forTests = (purpose) => ['test', 'full', 'platforms'].includes(purpose);

/**
 * What to do for a purpose, in order.
 * @param {Snapshot} snapshot
 * @param {Purpose} purpose
 * @param {{ node: string, rust: string }} wanted lowest versions
 * @returns {Step[]}
 */
export function plan(snapshot, purpose, wanted) {
  /** @type {Step[]} */
  const steps = [];
  if (!atLeast(snapshot.node, wanted.node)) {
    steps.push(advice(`Node ${snapshot.node} is too old`, `install Node ${wanted.node} or later`));
  }

  const building = snapshot.addon !== 'ready';
  const testing = forTests(purpose);
  const compiling = building || testing;
  const rustThere = snapshot.cargo !== null && atLeast(snapshot.cargo, wanted.rust);
  const rustReady = rustThere && (!testing || snapshot.rustTools);
  // An existing addon is still usable if it cannot be rebuilt.
  const rustNeeded = compiling && (testing || snapshot.addon === 'missing' || snapshot.cargo !== null);

  /** @type {Need[]} */
  const needs = [];
  if (rustNeeded && !snapshot.compiler) needs.push('compiler');
  if (rustNeeded && !rustThere && !snapshot.certificates) needs.push('certificates');
  if (!snapshot.loader) needs.push('loader');
  if (!snapshot.drivers) needs.push('driver');
  if (needs.length > 0) steps.push(packages(snapshot, needs, true));
  if (testing) {
    /** @type {Need[]} */
    const wishes = [];
    // The tests compare with it even if there is a GPU.
    if (snapshot.drivers && !snapshot.softwareDriver) wishes.push('driver');
    if (purpose === 'platforms') {
      if (snapshot.platform === 'linux')
        for (const tool of /** @type {const} */ (['python', 'mmdebstrap', 'emulator', 'binutils'])) if (!snapshot[tool]) wishes.push(tool);
    } else {
      if (!snapshot.layer) wishes.push('layer');
      if (!snapshot.spirvVal) wishes.push('spirvVal');
      if (!snapshot.glslang) wishes.push('glslang');
    }
    if (purpose === 'full' && snapshot.platform === 'linux' && !snapshot.debootstrap && snapshot.rights !== 'none')
      wishes.push('debootstrap');
    if (purpose === 'full' && snapshot.platform !== 'win32' && !snapshot.mpi) wishes.push('mpi');
    if (purpose === 'full' && snapshot.platform === 'linux' && !snapshot.chromium) wishes.push('chromium');
    if (purpose === 'full' && snapshot.platform === 'linux' && !snapshot.python) wishes.push('python');
    if (wishes.length > 0) steps.push(packages(snapshot, wishes, false));
  }
  if (rustNeeded && !rustReady) steps.push(rust(snapshot, wanted.rust));
  if (!snapshot.modules && (building || purpose !== 'bench')) steps.push(modules(snapshot));
  if (building && rustNeeded) {
    steps.push({
      what: snapshot.addon === 'missing' ? 'build the addon' : 'build the addon: its sources are newer',
      kind: 'addon',
      commands: [['npm', 'run', '--silent', 'build']],
      advice: '',
      required: snapshot.addon === 'missing' || testing,
    });
  } else if (building) {
    steps.push({
      ...advice('the addon is older than its sources, and there is no Rust toolchain to build it', 'used as it is'),
      required: false,
    });
  }
  // Training and the benches need none of it.
  if (testing && !snapshot.made) {
    steps.push({
      what: 'make the declarations (types/), the reference (docs/reference/) and the modules for `require` (cjs/)',
      kind: 'made',
      commands: [['npm', 'run', '--silent', 'types']],
      advice: 'npm run types',
      required: true,
    });
  }
  return steps;
}

/**
 * @param {string} what
 * @param {string} text
 * @returns {Step}
 */
function advice(what, text) {
  return { what, kind: 'advice', commands: [], advice: text, required: true };
}

/**
 * @param {Snapshot} snapshot
 * @param {Need[]} needs
 * @param {boolean} required
 * @returns {Step}
 */
function packages(snapshot, needs, required) {
  const missing = `${needs.map((need) => NAMES[need]).join(', ')} missing`;
  const known = family(snapshot);
  const typed = known === null ? (WORDS[snapshot.platform] ?? WORDS.linux)(needs) : installCommand(known, needs);
  if (known !== 'debian' || snapshot.rights === 'none' || !snapshot.mayInstall) {
    return { ...advice(missing, typed), required };
  }
  const prefix = [...(snapshot.rights === 'sudo' ? ['sudo', '-n'] : []), 'env', 'DEBIAN_FRONTEND=noninteractive'];
  const { install, packages: names } = FAMILIES[known];
  const quiet = ['-qq', '-o', 'Acquire::Retries=3', '-o', 'Dpkg::Use-Pty=0'];
  return {
    what: `${missing}: installing`,
    kind: 'packages',
    commands: [
      [...prefix, 'apt-get', 'update', ...quiet],
      [...prefix, ...install, ...quiet, ...needs.flatMap((need) => names[need] ?? [])],
    ],
    advice: typed,
    required,
  };
}

/**
 * What a user of a known system types.
 * @param {string} known
 * @param {Need[]} needs
 */
function installCommand(known, needs) {
  const { install, packages: names } = FAMILIES[known];
  const list = needs.flatMap((need) => names[need] ?? []);
  if (known !== 'darwin') return `sudo ${[...install, ...list].join(' ')}`;
  const tools = needs.includes('compiler') ? ['xcode-select --install'] : [];
  return [...tools, ...(list.length > 0 ? [[...install, ...list].join(' ')] : [])].join(' && ');
}

/**
 * Advice for a system without a known package manager.
 * @type {Record<string, (needs: Need[]) => string>}
 */
const WORDS = {
  win32: (needs) =>
    [
      ...(needs.includes('compiler') ? ['winget install Microsoft.VisualStudio.2022.BuildTools (with the C++ workload)'] : []),
      ...(needs.some((need) => ['layer', 'spirvVal', 'glslang'].includes(need)) ? ['winget install KhronosGroup.VulkanSDK'] : []),
      ...(needs.includes('loader') || needs.includes('driver') ? ["install your GPU vendor's driver, which brings Vulkan"] : []),
    ].join('; '),
  linux: (needs) => `install ${needs.map((need) => NAMES[need]).join(', ')} with your package manager`,
};

/**
 * @param {Snapshot} snapshot
 * @param {string} version
 * @returns {Step}
 */
function rust(snapshot, version) {
  const components = ['-c', 'rustfmt', '-c', 'clippy'];
  const found = snapshot.cargo === null ? 'there is none' : `found ${snapshot.cargo}`;
  const what = `Rust ${version} or later with rustfmt and clippy (${found})`;
  const typed = snapshot.rustup
    ? `rustup toolchain install stable --profile minimal ${components.join(' ')} && rustup default stable`
    : 'install rustup as https://rustup.rs says, then: rustup toolchain install stable';
  if (!snapshot.mayInstall) return { ...advice(`${what} is needed`, typed), required: true };
  return {
    what: `install ${what}`,
    kind: 'rust',
    commands: snapshot.rustup ? [['rustup', 'toolchain', 'install', 'stable', '--profile', 'minimal', ...components]] : [],
    advice: typed,
    required: true,
  };
}

/**
 * @param {Snapshot} snapshot
 * @returns {Step}
 */
function modules(snapshot) {
  if (!snapshot.mayInstall) return advice('node_modules is not what package-lock.json names', 'npm ci');
  return {
    what: 'install the node modules',
    kind: 'modules',
    commands: [['npm', 'ci', '--no-audit', '--no-fund', '--loglevel=error']],
    advice: 'npm ci',
    required: true,
  };
}

/**
 * Whether an installed tree matches the lock: every package that is not optional, at its version.
 * @param {{ packages?: Record<string, { version?: string, optional?: boolean, link?: boolean }> }} lock package-lock.json
 * @param {{ packages?: Record<string, { version?: string }> } | null} installed node_modules/.package-lock.json
 */
export function modulesMatch(lock, installed) {
  if (installed === null) return false;
  return Object.entries(lock.packages ?? {}).every(
    ([path, { version, optional, link }]) => path === '' || optional || link || installed.packages?.[path]?.version === version,
  );
}

/**
 * The first Debian archive among the host's apt sources, so that a root made here comes from the same
 * place as the host; null if the host is not Debian.
 * @param {string | null} deb822 text of debian.sources
 * @param {string | null} lines text of sources.list
 * @returns {string | null}
 */
export function debianMirror(deb822, lines) {
  for (const [, uris] of (deb822 ?? '').matchAll(/^URIs:\s*(.+)$/gim)) {
    const uri = uris.split(/\s+/).find((each) => /\/debian\/?$/.test(each));
    if (uri) return uri.replace(/\/$/, '');
  }
  for (const [, uri] of (lines ?? '').matchAll(/^\s*deb\s+(?:\[[^\]]*\]\s+)?(\S+)/gm)) {
    if (/\/debian\/?$/.test(uri)) return uri.replace(/\/$/, '');
  }
  return null;
}
