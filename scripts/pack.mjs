#!/usr/bin/env node
// Makes the npm packages as they would be published: the main package and one for each platform whose binary
// exists, in the layout of napi-rs.
//
//   node scripts/pack.mjs [--binaries FOLDER] [--out FOLDER] [--max-glibc VERSION] [--check]
//   node scripts/pack.mjs --notices FOLDER
//
//   --binaries   where the helios-vk.PLATFORM.node files lie (default: the repository)
//   --out        where the .tgz files go (default: target/pack)
//   --max-glibc  fails if a glibc binary asks for a newer version than this (needs objdump)
//   --check      installs them into an empty project and uses them there, with nothing of a toolchain on
//                the path and without a network; in the Debian root of mesa-root.mjs too, if there is one
//   --notices    only adds the licences to the platforms' packages in FOLDER (npm/), for publishing

import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

import { isMain, runMain } from '../bin/lib/options.mjs';
import { writeCommonJs } from './commonjs.mjs';
import { ensureMade } from './made.mjs';
import { onPath } from './system.mjs';

const REPOSITORY = dirname(dirname(fileURLToPath(import.meta.url)));
const NOTICES = ['LICENSE-MIT', 'LICENSE-APACHE', 'THIRD-PARTY.md'];
/** Libraries that the addon may link against. */
const SYSTEM_LIBRARIES = /^(lib(c|m|dl|rt|pthread|util|gcc_s)\.so\.\d+|ld-linux[\w-]*\.so\.\d+)$/;
/** Functions that are necessary to use a network. */
const NETWORK = /^(socket|connect|bind|listen|accept4?|send(to|m?msg)?|recv(from|m?msg)?|getaddrinfo|gethostby\w+|res_\w+)$/;

/**
 * Standard output of a command that must succeed.
 * @param {string[]} command
 * @param {import('node:child_process').SpawnSyncOptions} [options]
 */
function output([command, ...args], options = {}) {
  const { status, signal, stdout, stderr, error } = spawnSync(command, args, {
    encoding: 'utf8',
    shell: process.platform === 'win32' && !command.endsWith('.exe'),
    ...options,
  });
  if (error) throw error;
  if (status !== 0) throw new Error(`${command} ${args.join(' ')} ended with ${status ?? signal}\n${stdout}${stderr ?? ''}`);
  return String(stdout);
}

/**
 * The highest glibc version whose symbols a binary needs, the libraries it names, and the network
 * functions it imports.
 * @param {string} file
 * @returns {{ glibc: string, libraries: string[], network: string[] }}
 */
export function requirements(file) {
  const numbers = (/** @type {string} */ version) => version.split('.').map(Number);
  const symbols = output(['objdump', '-T', file], { maxBuffer: 64 << 20 });
  const versions = [...symbols.matchAll(/GLIBC_([\d.]+)/g)].map(([, version]) => version);
  const [highest = '0'] = versions.sort((a, b) => {
    const [x, y] = [numbers(a), numbers(b)];
    return y[0] - x[0] || y[1] - x[1];
  });
  const libraries = [...output(['objdump', '-p', file]).matchAll(/NEEDED\s+(\S+)/g)].map(([, name]) => name);
  const network = [...symbols.matchAll(/\*UND\*.*\s(\w+)$/gm)].map(([, name]) => name).filter((name) => NETWORK.test(name));
  return { glibc: highest, libraries, network };
}

/**
 * The target triples of `package.json` by the name that napi-rs gives the platform.
 * @param {string[]} targets
 * @returns {Map<string, string>}
 */
function platforms(targets) {
  const systems = { linux: 'linux', darwin: 'darwin', windows: 'win32' };
  return new Map(
    targets.map((target) => {
      const [machine, , system, abi] = target.split('-');
      const name = [
        systems[/** @type {keyof typeof systems} */ (system)],
        machine === 'aarch64' ? 'arm64' : 'x64',
        ...(abi ? [abi] : []),
      ].join('-');
      return [name, target];
    }),
  );
}

/**
 * Puts the licences into the package of a platform, which holds the binary.
 * @param {string} folder
 */
function addNotices(folder) {
  for (const notice of NOTICES) cpSync(join(REPOSITORY, notice), join(folder, notice));
  const manifest = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
  manifest.files = [...new Set([...manifest.files, ...NOTICES])];
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
}

/**
 * Puts what the main package holds into a folder.
 * @param {string} staging
 */
function stage(staging) {
  const { files } = JSON.parse(readFileSync(join(REPOSITORY, 'package.json'), 'utf8'));
  const paths = [...files.filter((/** @type {string} */ path) => path !== 'cjs/'), 'package.json', 'README.md'];
  for (const path of paths) cpSync(join(REPOSITORY, path), join(staging, path), { recursive: true });
  writeCommonJs(staging);
}

/**
 * The .tgz file of the package in a folder.
 * @param {string} folder
 * @param {string} out where it goes
 */
function tarball(folder, out) {
  const command = ['npm', 'pack', '--json', '--ignore-scripts', '--pack-destination', out];
  const [{ filename }] = JSON.parse(output(command, { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] }));
  return join(out, filename);
}

/**
 * Makes only the main package, which finds no binary: its files and types.
 * @param {string} out
 * @returns {string} the .tgz file
 */
export function packMain(out) {
  const staging = join(out, 'staging');
  mkdirSync(staging, { recursive: true });
  stage(staging);
  return tarball(staging, out);
}

/**
 * Makes the packages.
 * @param {string} binaries
 * @param {string} out
 * @returns {{ main: string, parts: string[], names: string[] }} the .tgz files; the platforms
 */
export function pack(binaries, out) {
  const staging = join(out, 'staging');
  // Only what an earlier call has made: the folder may contain other files, such as the binaries.
  rmSync(staging, { recursive: true, force: true });
  mkdirSync(staging, { recursive: true });
  for (const name of readdirSync(out)) if (/^helios-vk-.*\.tgz$/.test(name)) rmSync(join(out, name));
  const manifest = JSON.parse(readFileSync(join(REPOSITORY, 'package.json'), 'utf8'));
  const byName = platforms(manifest.napi.targets);
  const found = readdirSync(binaries).flatMap((file) => {
    const [, name] = /^helios-vk\.(.+)\.node$/.exec(file) ?? [];
    return name && byName.has(name) ? [{ file, name }] : [];
  });
  if (found.length === 0) throw new Error(`no binary of a platform in ${binaries}: build one (npm run build)`);

  stage(staging);
  // Those of the other platforms are made elsewhere; napi-rs insists on all that it knows of.
  manifest.napi.targets = found.map(({ name }) => byName.get(name));
  writeFileSync(join(staging, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);

  const napi = [process.execPath, join(REPOSITORY, 'node_modules/@napi-rs/cli/dist/cli.js')];
  output([...napi, 'create-npm-dirs'], { cwd: staging });
  for (const { file, name } of found) {
    const folder = join(staging, 'npm', name);
    cpSync(join(binaries, file), join(folder, file));
    addNotices(folder);
  }
  const prepublish = ['pre-publish', '--tag-style', 'npm', '--no-gh-release', '--skip-optional-publish'];
  output([...napi, ...prepublish], { cwd: staging });

  const parts = found.map(({ name }) => tarball(join(staging, 'npm', name), out));
  return { main: tarball(staging, out), parts, names: found.map(({ name }) => name) };
}

/** A program in strict TypeScript; that a wrong argument is an error shows that the types are there. */
const TYPED = `import helios from 'helios-vk';
import { createKernels, pack, type Dispatches, type Kernels, type Tensor } from 'helios-vk/kernels';
const kernels: Kernels = createKernels(helios);
const x: Tensor = { buffer: helios.createBuffer(64, 0), offset: 4 };
const sum: Dispatches = kernels.binary({ a: x, b: x, y: x, count: 4 });
const { packed, count } = pack(sum, kernels.matmul({ a: x, b: x, c: x, m: 1, n: 1, k: 1 }));
helios.batchExecuteAll(packed, count);
// @ts-expect-error
kernels.matmul({ a: x, b: x, c: x, m: '1', n: 1, k: 1 });
`;

/** A command that runs `command` without a network, or null where that takes more than we may. */
function isolated() {
  const prefix = ['unshare', '--map-root-user', '--net'];
  if (process.platform !== 'linux' || !onPath('unshare')) return null;
  return spawnSync(prefix[0], [...prefix.slice(1), 'true'], { stdio: 'ignore' }).status === 0 ? prefix : null;
}

/**
 * Installs the packages into an empty project and uses them there.
 * @param {ReturnType<typeof pack>} packages
 * @param {string} out
 */
export function check({ main, parts, names }, out) {
  const project = join(out, 'project');
  const bin = join(out, 'bin');
  for (const folder of [project, bin]) mkdirSync(folder, { recursive: true });
  writeFileSync(join(project, 'package.json'), '{ "private": true, "type": "module" }\n');
  cpSync(join(REPOSITORY, 'scripts/package-smoke.mjs'), join(project, 'smoke.mjs'));
  output(['npm', 'install', '--offline', '--no-audit', '--no-fund', main, ...parts], { cwd: project });

  const names_ = readdirSync(join(project, 'node_modules')).filter((name) => !name.startsWith('.'));
  const expected = ['helios-vk', ...names.map((name) => `helios-vk-${name}`)];
  const strangers = names_.filter((name) => !expected.includes(name));
  if (strangers.length > 0) throw new Error(`installing brought ${strangers.join(', ')} along`);
  const scripts = expected.flatMap((name) => {
    const path = join(project, 'node_modules', name, 'package.json');
    const own = existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')).scripts : {};
    return ['preinstall', 'install', 'postinstall'].filter((script) => own && script in own);
  });
  if (scripts.length > 0) throw new Error(`installing runs ${scripts.join(', ')}`);

  writeFileSync(join(project, 'typed.mts'), TYPED);
  const modules = join(REPOSITORY, 'node_modules');
  const tsc = [process.execPath, join(modules, 'typescript/bin/tsc'), '--ignoreConfig', '--strict', '--noEmit'];
  const node = ['--typeRoots', join(modules, '@types'), '--types', 'node', '--module', 'nodenext', '--target', 'es2023'];
  output([...tsc, ...node, 'typed.mts'], { cwd: project });
  console.log('strict TypeScript takes the types of the package and of its kernels');

  const kept = Object.entries(process.env).filter(([name]) => /^(VK_|HELIOS_|XDG_|SystemRoot$)/i.test(name));
  const environment = { ...Object.fromEntries(kept), PATH: bin, HOME: project };
  // Without what the process needs to find its tools: the node that runs this, and nothing else.
  if (process.platform !== 'win32') symlinkSync(process.execPath, join(bin, 'node'));
  const alone = isolated();
  const run = (/** @type {string[]} */ command) => output(command, { cwd: project, env: environment });
  const here = [process.execPath, 'smoke.mjs'];
  report('here', run(alone ? [onPath(alone[0]) ?? alone[0], ...alone.slice(1), ...here] : here), alone !== null);
  for (const [name, ending] of /** @type {const} */ ([
    ['axpy', 'y[999999] = 10\n'],
    ['own-kernel', 'fail 0'],
  ])) {
    cpSync(join(REPOSITORY, 'examples', `${name}.mjs`), join(project, `${name}.mjs`));
    const printed = output([process.execPath, `${name}.mjs`], { cwd: project, env: { ...environment, NODE_OPTIONS: undefined } });
    if (!printed.includes(ending)) throw new Error(`examples/${name}.mjs printed\n${printed}`);
  }
  console.log('two examples run as they stand');

  const doctor = JSON.parse(run([process.execPath, 'node_modules/helios-vk/bin/helios-vk.mjs', 'doctor', '--json']));
  if (doctor.package.checkout || !doctor.addon.ok) throw new Error(`the doctor finds fault:\n${JSON.stringify(doctor)}`);
  console.log(`the command line's doctor: ${doctor.addon.triple}, no fault with the addon`);

  const mesa = [process.execPath, join(REPOSITORY, 'scripts/mesa-root.mjs')];
  if (spawnSync(mesa[0], [...mesa.slice(1), 'status'], { stdio: 'ignore' }).status !== 0) {
    console.log('the Debian root: not made (node scripts/mesa-root.mjs create)');
    return;
  }
  if (!out.startsWith(REPOSITORY)) {
    console.log(`the Debian root: sees only what lies below ${REPOSITORY}`);
    return;
  }
  const inRoot = [...mesa, 'run', '--', ...(alone ? ['unshare', '--net'] : []), 'node', 'smoke.mjs'];
  report('in the Debian root', output(inRoot, { cwd: project }), alone !== null);
}

/**
 * Prints what the program found, and fails if it was not isolated.
 * @param {string} where
 * @param {string} text
 * @param {boolean} alone whether there should be no network
 */
function report(where, text, alone) {
  const { node, device, driver, binary, toolchain, network } = JSON.parse(text);
  if (toolchain.length > 0) throw new Error(`${where}: ${toolchain.join(', ')} can be reached`);
  if (alone && network) throw new Error(`${where}: there is a network`);
  if (!/node_modules.helios-vk-/.test(binary)) throw new Error(`${where}: loaded ${binary}`);
  const network_ = alone ? 'no network' : 'the network was not cut off';
  console.log(`${where}: Node ${node}, ${basename(binary)}, right on ${device} (${driver}); no toolchain, ${network_}`);
}

const OPTIONS = /** @type {const} */ ({
  binaries: {
    type: 'string',
    value: 'FOLDER',
    path: 'input-folder',
    default: REPOSITORY,
    help: 'folder with the helios-vk.PLATFORM.node files',
  },
  out: {
    type: 'string',
    value: 'FOLDER',
    path: 'output-folder',
    default: join(REPOSITORY, 'target/pack'),
    help: 'folder for the .tgz files',
  },
  'max-glibc': {
    type: 'string',
    value: 'MAJOR.MINOR',
    pattern: /^\d+\.\d+$/,
    help: 'fail if a glibc binary needs a newer version (needs objdump)',
  },
  check: { type: 'boolean', help: 'install them into an empty project and use them there' },
  notices: { type: 'string', value: 'FOLDER', path: 'input-folder', help: 'only add the licences to the platforms’ packages there' },
});

/** @param {import('../bin/lib/options.mjs').ValuesOf<typeof OPTIONS>} values */
function main(values) {
  if (values.notices !== undefined) {
    for (const name of readdirSync(values.notices)) addNotices(join(values.notices, name));
    return;
  }
  const [binaries, out] = [resolve(values.binaries), resolve(values.out)];
  ensureMade();
  const packages = pack(binaries, out);
  for (const [i, file] of packages.parts.entries()) {
    const name = packages.names[i];
    let needs = '';
    if (name.startsWith('linux-') && onPath('objdump')) {
      const { glibc, libraries, network } = requirements(join(binaries, `helios-vk.${name}.node`));
      if (network.length > 0) throw new Error(`${name} imports ${network.join(', ')}`);
      needs = name.endsWith('-gnu') ? `, glibc ${glibc}` : '';
      const foreign = libraries.filter((library) => name.endsWith('-gnu') && !SYSTEM_LIBRARIES.test(library));
      if (foreign.length > 0) throw new Error(`${name} needs ${foreign.join(', ')}`);
      const limit = values['max-glibc'];
      if (limit && name.endsWith('-gnu') && Number(glibc.split('.')[1]) > Number(limit.split('.')[1]))
        throw new Error(`${name} needs glibc ${glibc}, ${limit} is allowed`);
    } else if (values['max-glibc'] && name.endsWith('-gnu')) {
      throw new Error('--max-glibc needs objdump');
    }
    console.log(`${basename(file)}${needs}`);
  }
  console.log(basename(packages.main));
  if (values.check) check(packages, out);
}

if (isMain(import.meta.url)) {
  await runMain('node scripts/pack.mjs [options]', OPTIONS, main);
}
