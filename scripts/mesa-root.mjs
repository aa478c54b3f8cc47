#!/usr/bin/env node
// A Debian root with a newer Mesa than the host's, where lavapipe has cooperative matrices, so that
// the matrix-unit kernels are tested without a GPU, under the newest validation layer and Node.
//
//   node scripts/mesa-root.mjs status        prints what exists; exit code 0 if usable
//   node scripts/mesa-root.mjs create        makes it unless it is there (about a minute, 1 GB)
//   node scripts/mesa-root.mjs run -- CMD…   makes it if needed and runs CMD in it, in this folder
//
// Needs root (or sudo without a password) and debootstrap. The root lies in $HELIOS_MESA_ROOT, else
// /opt/helios-root, else ~/.cache/helios-vk/mesa-root. $HELIOS_MESA_SUITE fixes the Debian suite.
// Mounts live in a namespace of their own and end with the command.

import { spawnSync } from 'node:child_process';
import { accessSync, constants, existsSync, readdirSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

import { fetchedMain } from './fetched.mjs';
import { debianMirror } from './setup-plan.mjs';
import { cacheFolder, onPath, readIfThere } from './system.mjs';

const REPOSITORY = dirname(dirname(fileURLToPath(import.meta.url)));
/** Incremented when roots made by an earlier version of this script become unusable. */
const RECIPE = 1;
const STAMP = 'helios-root.json';
const PACKAGES = ['nodejs', 'libvulkan1', 'mesa-vulkan-drivers', 'vulkan-validationlayers', 'vulkan-tools'];

/** Suites in order of preference; backports bring Mesa to the stable one. */
const SUITES = [
  { suite: 'testing', backports: null },
  { suite: 'trixie', backports: 'trixie-backports' },
];

/** @returns {string} */
export function rootPath() {
  if (process.env.HELIOS_MESA_ROOT) return resolve(process.env.HELIOS_MESA_ROOT);
  const shared = '/opt/helios-root';
  try {
    accessSync(existsSync(shared) ? shared : dirname(shared), constants.W_OK);
    return shared;
  } catch {
    return process.getuid?.() === 0 || existsSync(shared) ? shared : join(cacheFolder(), 'mesa-root');
  }
}

/**
 * The root's contents, or null if there is no root of this recipe.
 * @param {string} root
 * @returns {{ recipe: number, suite: string, versions: Record<string, string> } | null}
 */
function stampOf(root) {
  const text = readIfThere(join(root, 'etc', STAMP));
  if (text === null) return null;
  const stamp = JSON.parse(text);
  return stamp.recipe === RECIPE ? stamp : null;
}

/**
 * Why a root cannot be made or entered here, or null if it can.
 * @param {string} root
 * @returns {string | null}
 */
export function obstacle(root = rootPath()) {
  if (process.platform !== 'linux') return 'debootstrap roots need Linux';
  if (process.getuid?.() !== 0 && spawnSync('sudo', ['-n', 'true'], { stdio: 'ignore' }).status !== 0) {
    return 'not root, and sudo asks for a password';
  }
  if (!onPath('unshare')) return 'no unshare (package util-linux)';
  const mounts = asRoot('unshare', ['--mount', 'mount', '-t', 'tmpfs', 'none', '/mnt'], { stdio: 'ignore' });
  if (mounts.status !== 0) return 'this machine does not let root mount file systems';
  if (!stampOf(root) && !onPath('debootstrap')) return 'no debootstrap (package debootstrap)';
  return null;
}

/**
 * Runs a command as root: directly, or through sudo.
 * @param {string} command
 * @param {string[]} args
 * @param {import('node:child_process').SpawnSyncOptions} [options]
 */
function asRoot(command, args, options = {}) {
  return process.getuid?.() === 0
    ? spawnSync(command, args, { stdio: 'inherit', ...options })
    : spawnSync('sudo', ['-n', command, ...args], { stdio: 'inherit', ...options });
}

/**
 * Runs a script in the root, with /proc, /dev and an empty /tmp, and the given folders where they are
 * on the host.
 * @param {string} root
 * @param {string[]} folders
 * @param {Record<string, string>} environment
 * @param {string} cwd
 * @param {string[]} command
 * @returns {number} exit status
 */
function enter(root, folders, environment, cwd, command) {
  const script = `
    root=$1 cwd=$2; shift 2
    mount --make-rprivate /
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
    while [ "$1" != -- ]; do mkdir -p "$root$1"; mount --rbind "$1" "$root$1"; shift; done
    shift
    exec chroot "$root" env -i "$@"`;
  const variables = Object.entries(environment).map(([name, value]) => `${name}=${value}`);
  const inRoot = ['sh', '-c', 'cd "$1" && shift && exec "$@"', 'sh', cwd, ...command];
  const args = ['--mount', 'sh', '-euc', script, 'sh', root, cwd, ...folders, '--', ...variables, ...inRoot];
  const { status, error } = asRoot('unshare', args);
  if (error) throw error;
  return status ?? 1;
}

/** The host's apt settings for proxies and certificates, as a configuration file. */
function aptSettings() {
  const dump = spawnSync('apt-config', ['dump'], { encoding: 'utf8' }).stdout ?? '';
  const network = dump.split('\n').filter((line) => /^Acquire::(http|https|ftp)::.*"[^"]+";$/i.test(line));
  // A snapshot mirror may be past its date; its signatures are still checked.
  return [...network, 'Acquire::Check-Valid-Until "false";', 'Acquire::Retries "3";', ''].join('\n');
}

/**
 * Makes the root under a temporary name, then puts it in place at once.
 * @param {string} root
 */
function create(root) {
  if (stampOf(root)) return;
  if (existsSync(root) && readdirSync(root).length > 0) {
    throw new Error(`${root} is there but is not a root of this recipe: remove it, or name another in HELIOS_MESA_ROOT`);
  }
  const chosen = process.env.HELIOS_MESA_SUITE;
  const suites = chosen ? SUITES.filter(({ suite }) => suite === chosen) : SUITES;
  if (suites.length === 0) {
    throw new Error(`HELIOS_MESA_SUITE=${chosen}: known are ${SUITES.map(({ suite }) => suite).join(', ')}`);
  }
  for (const [i, suite] of suites.entries()) {
    const partial = `${root}.partial-${process.pid}`;
    try {
      build(partial, suite);
      if (asRoot('mv', ['-T', partial, root]).status !== 0 && !stampOf(root)) throw new Error(`cannot put ${root} in place`);
      return;
    } catch (error) {
      if (i === suites.length - 1) throw error;
      console.error(`mesa-root: ${suite.suite}: ${/** @type {Error} */ (error).message}; trying ${suites[i + 1].suite}`);
    } finally {
      asRoot('rm', ['-rf', '--one-file-system', partial]);
    }
  }
}

/**
 * @param {string} root
 * @param {{ suite: string, backports: string | null }} choice
 */
function build(root, { suite, backports }) {
  const mirror = debianMirror(readIfThere('/etc/apt/sources.list.d/debian.sources'), readIfThere('/etc/apt/sources.list'));
  asRoot('mkdir', ['-p', dirname(root)]);
  // If the host has no mirror, debootstrap uses its default.
  const made = asRoot('debootstrap', ['--variant=minbase', suite, root, ...(mirror ? [mirror] : [])], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  if (made.status !== 0) throw new Error(`debootstrap ended with ${made.status ?? made.error?.message}`);
  const settings = aptSettings();
  const install = `
    printf '%s' "$HELIOS_APT" >/etc/apt/apt.conf.d/90host
    printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d; chmod +x /usr/sbin/policy-rc.d
    printf 'path-exclude=/usr/share/doc/*\\npath-exclude=/usr/share/man/*\\npath-exclude=/usr/share/locale/*\\n' >/etc/dpkg/dpkg.cfg.d/90slim
    if [ -n "$HELIOS_BACKPORTS" ]; then
      sed "s/ $HELIOS_SUITE / $HELIOS_BACKPORTS /" /etc/apt/sources.list >/etc/apt/sources.list.d/backports.list
    fi
    apt-get update -qq >/dev/null
    apt-get install -y -qq --no-install-recommends $HELIOS_PACKAGES >/dev/null
    if [ -n "$HELIOS_BACKPORTS" ]; then
      apt-get install -y -qq --no-install-recommends -t "$HELIOS_BACKPORTS" mesa-vulkan-drivers >/dev/null
    fi
    apt-get clean; rm -rf /var/lib/apt/lists/*
    {
      printf '{"recipe":%s,"suite":"%s","versions":{' "$HELIOS_RECIPE" "$HELIOS_SUITE"
      dpkg-query -W -f '"\${Package}":"\${Version}",' $HELIOS_PACKAGES | sed 's/,$//'
      printf '}}\\n'
    } >/etc/${STAMP}`;
  const environment = {
    ...baseEnvironment(),
    DEBIAN_FRONTEND: 'noninteractive',
    HELIOS_APT: settings,
    HELIOS_BACKPORTS: backports ?? '',
    HELIOS_PACKAGES: PACKAGES.join(' '),
    HELIOS_RECIPE: String(RECIPE),
    HELIOS_SUITE: suite,
  };
  asRoot('cp', ['-L', '/etc/resolv.conf', join(root, 'etc/resolv.conf')], { stdio: 'ignore' });
  const certificates = '/etc/ssl/certs/ca-certificates.crt';
  if (mirror?.startsWith('https:') && existsSync(certificates)) {
    asRoot('mkdir', ['-p', join(root, dirname(certificates))]);
    asRoot('cp', ['-L', certificates, join(root, certificates)]);
  }
  const status = enter(root, [], environment, '/', ['sh', '-euc', install]);
  if (status !== 0) throw new Error(`installing ${PACKAGES.join(', ')} ended with ${status}`);
}

/** @returns {Record<string, string>} */
function baseEnvironment() {
  /** @type {Record<string, string>} */
  const environment = {
    PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
    HOME: '/root',
    LANG: 'C.UTF-8',
  };
  for (const [name, value] of Object.entries(process.env)) {
    const kept = /^(HELIOS_|CI$|TERM$|FORCE_COLOR$|NO_COLOR$|NODE_OPTIONS$|(https?|no)_proxy$)/i.test(name);
    if (kept && name !== 'HELIOS_MESA_ROOT' && value !== undefined) environment[name] = value;
  }
  return environment;
}

/**
 * Runs a command in the root, in this checkout, on its software device.
 * @param {string} root
 * @param {string[]} command
 */
function run(root, command) {
  const icds = '/usr/share/vulkan/icd.d';
  const software = readdirSync(join(root, icds)).find((name) => /^lvp_icd.*\.json$/.test(name));
  if (!software) throw new Error(`no software device in ${root}${icds}`);
  const environment = baseEnvironment();
  environment.VK_DRIVER_FILES = join(icds, software);
  const shared = join(dirname(REPOSITORY), 'shared');
  const folders = [REPOSITORY, ...(existsSync(shared) ? [shared] : [])];
  return enter(root, folders, environment, process.cwd().startsWith(REPOSITORY) ? process.cwd() : REPOSITORY, command);
}

const root = rootPath();
fetchedMain(import.meta.url, 'mesa-root', {
  found() {
    const stamp = stampOf(root);
    return stamp ? `${root}: ${JSON.stringify(stamp)}` : undefined;
  },
  missing: () => `${root}: ${obstacle(root) ?? 'not made yet'}`,
  create() {
    const reason = obstacle(root);
    if (reason === null) create(root);
    return reason;
  },
  run: (command) => run(root, command),
});
