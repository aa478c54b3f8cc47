#!/usr/bin/env node
// `npm run setup` prepares a fresh machine: node modules, Rust toolchain, C++ compiler, Vulkan loader
// and device, and the addon itself. It is the only step that installs anything. `npm run train`,
// `npm run bench`, `npm test` and `npm run test:full` run it first, straight after a clone; so it imports
// only Node's own modules. Prints nothing if nothing is missing.
//
//   npm run setup -- [--for train|bench|test|full|platforms] [--check]
//
// --check (or HELIOS_NO_INSTALL=1) changes nothing and prints what it would do.

import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { accessSync, constants, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { atLeast } from '../bin/lib/diagnose.mjs';
import { drivers, layers } from '../bin/lib/manifests.mjs';
import { isMain, runMain, switchVariable } from '../bin/lib/options.mjs';
import { isMade } from './made.mjs';
import { forTests, modulesMatch, plan } from './setup-plan.mjs';
import { readStamp, writeStamp } from './stamp.mjs';
import { onPath, readIfThere } from './system.mjs';

/** @typedef {import('./setup-plan.mjs').Snapshot} Snapshot */
/** @typedef {import('./setup-plan.mjs').Step} Step */
/** @typedef {import('./setup-plan.mjs').Purpose} Purpose */

const REPOSITORY = dirname(dirname(fileURLToPath(import.meta.url)));
const CARGO_BIN = join(process.env.CARGO_HOME ?? join(homedir(), '.cargo'), 'bin');
/** What the addon is built from. */
const SOURCES = ['Cargo.toml', 'Cargo.lock', 'build.rs', 'src', 'crates', 'shaders'];
/** Where Linux distributions keep their certificates. */
const CERTIFICATES = [
  '/etc/ssl/certs/ca-certificates.crt',
  '/etc/pki/tls/certs/ca-bundle.crt',
  '/etc/ssl/ca-bundle.pem',
  '/etc/ssl/cert.pem',
];
/** Remembers which addon worked on which drivers. */
const DEVICE_STAMP = join(REPOSITORY, 'node_modules/.cache/helios-vk/device.json');

/** A file of the checkout that must be there and right. @param {string} name */
function readJson(name) {
  const path = join(REPOSITORY, name);
  try {
    return JSON.parse(readFileSync(path, 'utf8'));
  } catch (error) {
    throw new Error(`${path} cannot be used: ${/** @type {Error} */ (error).message}; git checkout -- ${name}`);
  }
}

/** Lowest versions, from where they are declared. */
function wantedVersions() {
  const manifest = readFileSync(join(REPOSITORY, 'Cargo.toml'), 'utf8');
  const { engines } = readJson('package.json');
  return {
    node: engines.node.replace(/^\D+/, ''),
    rust: manifest.match(/^rust-version\s*=\s*"([^"]+)"/m)?.[1] ?? '1.85',
  };
}

/** File name of the addon for this platform, as napi-rs names it. */
export function addonFile() {
  const { platform, arch } = process;
  const abi = { linux: isMusl() ? '-musl' : '-gnu', win32: '-msvc' }[/** @type {string} */ (platform)] ?? '';
  return join(REPOSITORY, `helios-vk.${platform}-${arch}${abi}.node`);
}

function isMusl() {
  const report = /** @type {any} */ (process.report?.getReport());
  return report?.header?.glibcVersionRuntime === undefined;
}

/**
 * The newest change below a path, folders included so that a removed file counts.
 * @param {string} path
 * @returns {number} milliseconds
 */
function newest(path) {
  const stat = statSync(path, { throwIfNoEntry: false });
  if (!stat) return 0;
  if (!stat.isDirectory()) return stat.mtimeMs;
  return readdirSync(path).reduce((time, name) => Math.max(time, newest(join(path, name))), stat.mtimeMs);
}

/** @returns {'missing' | 'stale' | 'ready'} */
function addonState() {
  const built = statSync(addonFile(), { throwIfNoEntry: false });
  // The build makes both, and neither works without the other.
  if (!built || !existsSync(join(REPOSITORY, 'binding.js'))) return 'missing';
  return SOURCES.every((path) => newest(join(REPOSITORY, path)) <= built.mtimeMs) ? 'ready' : 'stale';
}

/**
 * Standard output of a command, or null if it cannot be run or fails.
 * @param {string} command
 * @param {...string} args
 * @returns {Promise<string | null>}
 */
function output(command, ...args) {
  return new Promise((done) => {
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'ignore'], cwd: REPOSITORY });
    let text = '';
    child.stdout.on('data', (chunk) => (text += chunk));
    child.on('error', () => done(null));
    child.on('close', (status) => done(status === 0 ? text.trim() : null));
  });
}

/** This machine, as the search for manifests sees it. @type {import('../bin/lib/manifests.mjs').Place} */
const PLACE = { platform: process.platform, arch: process.arch, env: process.env, home: homedir(), root: '/' };

/** @returns {string[]} manifests of the drivers that the loader will try */
const driverManifests = () =>
  drivers(PLACE)
    .filter(({ file, ignored }) => ignored === null && existsSync(file))
    .map(({ file }) => file);

/** Whether the loader will find the Khronos validation layer. */
export const hasValidationLayer = () => layers(PLACE).some(({ name }) => name === 'VK_LAYER_KHRONOS_validation');

/** Whether the system's Vulkan loader can be found. */
async function loaderThere() {
  if (process.platform === 'win32') return existsSync(join(process.env.SystemRoot ?? 'C:\\Windows', 'System32', 'vulkan-1.dll'));
  const name = process.platform === 'darwin' ? 'libvulkan.1.dylib' : 'libvulkan.so.1';
  const gnu = { x64: 'x86_64-linux-gnu', arm64: 'aarch64-linux-gnu' }[/** @type {string} */ (process.arch)] ?? '';
  const folders = [
    ...(process.env.LD_LIBRARY_PATH ?? '').split(delimiter).filter(Boolean),
    ...(process.env.VULKAN_SDK ? [join(process.env.VULKAN_SDK, 'lib')] : []),
    ...(process.platform === 'darwin'
      ? ['/opt/homebrew/lib', '/usr/local/lib']
      : [`/usr/lib/${gnu}`, `/lib/${gnu}`, '/usr/lib64', '/usr/lib', '/usr/local/lib']),
  ];
  if (folders.some((folder) => existsSync(join(folder, name)))) return true;
  const cache = await output(onPath('ldconfig') ?? 'ldconfig', '-p');
  return cache?.includes(name) ?? false;
}

/** @returns {{ distribution: string, relatives: string[] }} */
function distribution() {
  const release = readIfThere('/etc/os-release') ?? '';
  const field = (/** @type {string} */ name) => release.match(new RegExp(`^${name}="?([^"\n]*)"?$`, 'm'))?.[1] ?? '';
  return { distribution: field('ID'), relatives: field('ID_LIKE').split(' ').filter(Boolean) };
}

/** @returns {Promise<'root' | 'sudo' | 'none'>} */
async function installRights() {
  if (process.getuid?.() === 0) return 'root';
  return process.platform === 'linux' && (await output('sudo', '-n', 'true')) !== null ? 'sudo' : 'none';
}

/**
 * The version of the cargo that builds here. If the default toolchain is too old and rustup has a newer
 * stable one, that one is selected for this process and its children.
 * @returns {Promise<string | null>}
 */
export async function chooseCargo() {
  if (!process.env.PATH?.split(delimiter).includes(CARGO_BIN)) process.env.PATH = `${process.env.PATH}${delimiter}${CARGO_BIN}`;
  const version = async (/** @type {string[]} */ ...args) =>
    (await output('cargo', ...args, '--version'))?.match(/\d+\.\d+\.\d+/)?.[0] ?? null;
  const byDefault = await version();
  const { rust } = wantedVersions();
  if ((byDefault !== null && atLeast(byDefault, rust)) || onPath('rustup') === null) return byDefault;
  const stable = await version('+stable');
  if (stable === null || !atLeast(stable, rust)) return byDefault;
  process.env.RUSTUP_TOOLCHAIN = 'stable';
  return stable;
}

/**
 * @param {Purpose} purpose
 * @param {boolean} mayInstall
 * @returns {Promise<Snapshot>}
 */
async function takeSnapshot(purpose, mayInstall) {
  const addon = addonState();
  const compiling = addon !== 'ready' || forTests(purpose);
  const [loader, rights, cargo] = await Promise.all([loaderThere(), installRights(), compiling ? chooseCargo() : null]);
  const tools =
    forTests(purpose) && cargo ? await Promise.all([output('cargo', 'fmt', '--version'), output('cargo', 'clippy', '--version')]) : [];
  const manifests = driverManifests();
  const lock = readJson('package-lock.json');
  // npm writes this file last, so an installation that was interrupted has none.
  const installed = readStamp(join(REPOSITORY, 'node_modules/.package-lock.json'));
  return {
    platform: process.platform,
    ...distribution(),
    rights,
    mayInstall,
    node: process.versions.node,
    modules: modulesMatch(lock, installed),
    addon,
    made: !forTests(purpose) || isMade(),
    cargo,
    rustup: onPath('rustup') !== null,
    rustTools: tools.length > 0 && tools.every((tool) => tool !== null),
    compiler: Boolean(process.env.CXX) || ['c++', 'g++', 'clang++'].some((name) => onPath(name) !== null) || process.platform === 'win32',
    certificates: process.platform !== 'linux' || CERTIFICATES.some((path) => existsSync(path)),
    loader,
    drivers: manifests.length > 0 || process.platform === 'win32',
    softwareDriver: manifests.some((path) => /lvp|lavapipe|swiftshader|llvmpipe/i.test(path)) || process.platform !== 'linux',
    layer: hasValidationLayer(),
    spirvVal: onPath('spirv-val') !== null,
    glslang: onPath('glslangValidator') !== null,
    debootstrap: onPath('debootstrap') !== null,
    mpi: onPath('mpiexec') !== null,
    python: spawnSync('python3', ['-c', 'import ensurepip, venv'], { stdio: 'ignore' }).status === 0,
    mmdebstrap: onPath('mmdebstrap') !== null,
    emulator: (onPath('qemu-aarch64-static') ?? onPath('qemu-aarch64')) !== null,
    binutils: onPath('objdump') !== null,
    chromium: ['chromium', 'chromium-browser', 'google-chrome'].some((name) => onPath(name) !== null),
  };
}

/** @param {string} line */
function say(line) {
  console.error(`setup: ${line}`);
}

/**
 * Runs a command in the repository; its errors are shown.
 * @param {string[]} command
 * @param {'ignore' | 2} [stdout] 2 shows its output too
 * @returns {boolean} whether it succeeded
 */
function run([command, ...args], stdout = 2) {
  /** @type {import('node:child_process').SpawnSyncOptions} */
  const options = { cwd: REPOSITORY, stdio: ['ignore', stdout, 2] };
  // npm is a script on Windows; the one that runs us is named by the environment.
  const npm = command === 'npm' ? process.env.npm_execpath : undefined;
  const { status } = npm
    ? spawnSync(process.execPath, [npm, ...args], options)
    : spawnSync(command, args, { ...options, shell: process.platform === 'win32' && command === 'npm' });
  return status === 0;
}

/**
 * Fetches the official installer of Rust, checks its digest and runs it. Does not change the user's shell
 * files.
 */
async function installRustup() {
  const machine = { x64: 'x86_64', arm64: 'aarch64' }[/** @type {string} */ (process.arch)];
  const system = {
    linux: `unknown-linux-${isMusl() ? 'musl' : 'gnu'}`,
    darwin: 'apple-darwin',
    win32: 'pc-windows-msvc',
  }[/** @type {string} */ (process.platform)];
  if (!machine || !system) throw new Error(`no installer of Rust for ${process.platform} on ${process.arch}`);
  const name = process.platform === 'win32' ? 'rustup-init.exe' : 'rustup-init';
  const source = `https://static.rust-lang.org/rustup/dist/${machine}-${system}/${name}`;
  const [program, digest] = await Promise.all([download(source), download(`${source}.sha256`)]);
  if (createHash('sha256').update(program).digest('hex') !== digest.toString().slice(0, 64)) throw new Error(`${source}: wrong digest`);
  const folder = mkdtempSync(join(tmpdir(), 'helios-vk-'));
  try {
    writeFileSync(join(folder, name), program, { mode: 0o700 });
    return run([join(folder, name), '-y', '--quiet', '--profile', 'minimal', '-c', 'rustfmt', '-c', 'clippy', '--no-modify-path']);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** @param {string} source */
async function download(source) {
  const response = await fetch(source);
  if (!response.ok) throw new Error(`${source} answered ${response.status}`);
  return Buffer.from(await response.arrayBuffer());
}

/**
 * Carries one step out.
 * @param {Step} step
 * @returns {Promise<boolean>} whether the step has reached its purpose
 */
async function carryOut(step) {
  say(step.what + (step.commands.length === 0 && step.kind !== 'rust' ? `: ${step.advice}` : ''));
  if (step.kind === 'advice') return false;
  let done = true;
  try {
    if (step.kind === 'modules' || step.kind === 'addon' || step.kind === 'made') accessSync(REPOSITORY, constants.W_OK);
    if (step.kind === 'rust') {
      done = step.commands.length === 0 ? await installRustup() : step.commands.every((command) => run(command));
      const version = await chooseCargo();
      done &&= version !== null && atLeast(version, wantedVersions().rust);
    }
    // A package list that cannot be refreshed may still serve.
    else if (step.kind === 'packages') done = step.commands.map((command) => run(command, 'ignore')).at(-1) ?? false;
    else done = step.commands.every((command) => run(command));
  } catch (error) {
    const { message, cause } = /** @type {Error & { cause?: Error }} */ (error);
    say(cause ? `${message}: ${cause.message}` : message);
    done = false;
  }
  if (!done) say(`that failed${step.advice ? `; by hand: ${step.advice}` : ''}`);
  return done;
}

/**
 * Asks the addon for its device, in a process of its own so that a crashing driver is reported.
 * @returns {{ name: string } | { error: string, code: string }}
 */
function askAddon() {
  const script = `
    try { const vk = require(process.argv[1]); console.log(JSON.stringify({ name: vk.initDevice().deviceName })); vk.destroy() }
    catch (error) { console.log(JSON.stringify({ error: error.message, code: error.code ?? '' })) }`;
  const { stdout, stderr, signal, status } = spawnSync(process.execPath, ['-e', script, REPOSITORY], {
    encoding: 'utf8',
    cwd: REPOSITORY,
  });
  const line = stdout.trim().split('\n').at(-1);
  if (line?.startsWith('{')) return JSON.parse(line);
  return { error: `${signal ?? `exit ${status}`}: ${stderr.trim()}`, code: '' };
}

/**
 * Ensures that the addon finds a device; installs the software device if that helps.
 * @param {Purpose} purpose
 * @param {boolean} mayInstall
 */
async function ensureDevice(purpose, mayInstall) {
  const key = () => {
    const hash = createHash('sha256');
    for (const path of [addonFile(), ...driverManifests()]) hash.update(`${path}:${statSync(path, { throwIfNoEntry: false })?.mtimeMs}\n`);
    for (const name of ['HELIOS_DEVICE', 'VK_DRIVER_FILES', 'VK_ICD_FILENAMES', 'VK_LOADER_DRIVERS_SELECT'])
      hash.update(`${process.env[name]}\n`);
    return hash.digest('hex');
  };
  if (readStamp(DEVICE_STAMP)?.key === key()) return true;
  let answer = askAddon();
  if ('error' in answer && /NO_DEVICE|NO_LOADER/.test(answer.code)) {
    const snapshot = { ...(await takeSnapshot(purpose, mayInstall)), drivers: false };
    const step = plan(snapshot, 'train', wantedVersions()).find(({ advice }) => /vulkan/i.test(advice));
    if (step && !snapshot.softwareDriver && (await carryOut(step))) answer = askAddon();
  }
  if ('error' in answer) {
    say(`no usable Vulkan device: ${answer.error}`);
    return false;
  }
  say(`device: ${answer.name}`);
  const failure = writeStamp(DEVICE_STAMP, { key: key(), device: answer.name });
  if (failure) say(`${failure}; the device is asked again next time`);
  return true;
}

const OPTIONS = /** @type {const} */ ({
  for: {
    type: 'string',
    choices: ['train', 'bench', 'test', 'full', 'platforms'],
    default: 'test',
    help: 'what to prepare the machine for',
  },
  check: { type: 'boolean', help: 'change nothing; print what would be done' },
});

/** @param {import('../bin/lib/options.mjs').ValuesOf<typeof OPTIONS>} values */
async function main(values) {
  const purpose = /** @type {Purpose} */ (values.for);
  const mayInstall = !values.check && !switchVariable('HELIOS_NO_INSTALL');

  const snapshot = await takeSnapshot(purpose, mayInstall);
  const steps = plan(snapshot, purpose, wantedVersions());
  if (values.check) {
    for (const { what, advice, commands } of steps) {
      console.log(`${what}${advice ? `: ${advice}` : ''}${commands.map((command) => `\n  ${command.join(' ')}`).join('')}`);
    }
    return steps.some(({ required }) => required) ? 1 : 0;
  }
  if (steps.some(({ commands, kind }) => commands.length > 0 || kind === 'rust')) {
    say('this machine lacks the following; `npm run setup` installs and builds it (HELIOS_NO_INSTALL=1: only prints what is missing)');
  }
  let failed = false;
  for (const step of steps) {
    if (failed && (step.kind === 'addon' || step.kind === 'made')) break;
    const done = await carryOut(step);
    failed ||= step.required && !done;
  }
  if (failed) {
    say('not ready: see above');
    return 1;
  }
  return (await ensureDevice(purpose, mayInstall)) ? 0 : 1;
}

if (isMain(import.meta.url)) {
  await runMain('npm run setup -- [options]', OPTIONS, main);
}
