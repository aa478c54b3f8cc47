#!/usr/bin/env node
// Builds the addon for every platform of package.json and runs each binary where this machine can: Linux x64 as it stands, Linux
// arm64 under QEMU on lavapipe, musl on its own C library with SwiftShader; what nothing runs here is read instead.
//
//   node scripts/platforms.mjs [TARGET…] [--built] [--record]
//
//   TARGET     only these (x86_64-unknown-linux-musl …)
//   --built    takes the binaries of an earlier run
//   --record   writes docs/platforms.json, and the table in docs/packages.md
//
// A target is skipped, with the reason, where a tool cannot be had: python3 with venv, rustup, mmdebstrap, qemu-user-static.
// What is fetched (500 MB) lies in $HELIOS_PLATFORMS, else ~/.cache/helios-vk/platforms; binaries in target/platforms.

import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

import { UsageError, runMain } from '../bin/lib/options.mjs';
import { pack, requirements } from './pack.mjs';
import { readMachO } from './platforms/macho.mjs';
import { PAGE, RESULTS, readResults, withTable } from './platforms/table.mjs';
import * as tools from './platforms/tools.mjs';
import * as swiftshader from './swiftshader.mjs';

const { REPOSITORY, Unavailable, output } = tools;
const PROBE = 'scripts/platforms/probe.mjs';
/** An emulated driver takes long to answer. */
const DOCTOR = ['node_modules/helios-vk/bin/helios-vk.mjs', 'doctor', '--json', '--timeout', '1800'];
/** Of the quick tier: every kind of call, with few kernels, since lavapipe compiles each a hundred times slower under QEMU. */
const QUICK = ['buffers', 'handles', 'load-error', 'memory-stats', 'package', 'packed', 'upload-types', 'values'].map(
  (name) => `__test__/${name}.test.mjs`,
);
/** LLVM's passes would take minutes a kernel under QEMU. What kernels compute stays the same: `agreement` shows it. */
const FAST_COMPILER = { GALLIVM_PERF: 'nopt' };
/** The oldest macOS that has been seen to take such a binary, and what a binary may link to there. */
const APPLE = {
  oldest: 13,
  libraries: /^\/usr\/lib\/(libSystem\.B|libobjc\.A|libiconv\.2|libcharset\.1|libc\+\+\.1)\.dylib$|\/(CoreFoundation|Security)$/,
};

/** @typedef {import('./platforms/table.mjs').Result} Result */
/** @typedef {{ device: string, losses: number[], exports: number, runtime: string, code?: string }} Found */

/**
 * @typedef {object} Platform
 * @property {string} target
 * @property {string} name of napi-rs
 * @property {string} [glibc]
 * @property {boolean} [unlinked] whether nothing links it here
 * @property {(platform: Platform, result: Result) => void} attempt runs the binary, or reads it
 */

/** @type {Platform[]} */
const PLATFORMS = [
  { target: 'x86_64-unknown-linux-gnu', name: 'linux-x64-gnu', glibc: '2.17', attempt: onThisMachine },
  { target: 'aarch64-unknown-linux-gnu', name: 'linux-arm64-gnu', glibc: '2.17', attempt: onArm },
  { target: 'x86_64-unknown-linux-musl', name: 'linux-x64-musl', attempt: onMusl },
  { target: 'aarch64-unknown-linux-musl', name: 'linux-arm64-musl', attempt: onArmMusl },
  { target: 'aarch64-apple-darwin', name: 'darwin-arm64', attempt: readApple },
  { target: 'x86_64-apple-darwin', name: 'darwin-x64', attempt: readApple },
  { target: 'x86_64-pc-windows-msvc', name: 'win32-x64-msvc', unlinked: true, attempt: checkWindows },
];

/** @param {Platform} platform */
const folderOf = ({ name }) => join(REPOSITORY, 'target/platforms', name);
/** @param {Platform} platform */
const binaryOf = (platform) => join(folderOf(platform), `helios-vk.${platform.name}.node`);

/**
 * Builds as ci.yml does.
 * @param {Platform} platform
 */
function build(platform) {
  const { target, glibc } = platform;
  const environment = tools.zig();
  tools.rustTarget(target);
  const napi = [process.execPath, join(REPOSITORY, 'node_modules/@napi-rs/cli/dist/cli.js'), 'build', '--platform', '--release'];
  const kind = ['--target', glibc ? `${target}.${glibc}` : target, '--strip', '--cross-compile'];
  const made = join(folderOf(platform), 'made');
  output([...napi, '--no-js', '--dts', 'index.d.ts', ...kind, '--output-dir', made], {
    cwd: REPOSITORY,
    // The shader compiler of the build script is the host's. Zig would ask for the newest macOS.
    env: {
      ...process.env,
      MACOSX_DEPLOYMENT_TARGET: `${APPLE.oldest}.0`,
      CC_x86_64_unknown_linux_gnu: 'gcc',
      CXX_x86_64_unknown_linux_gnu: 'g++',
      ...environment,
    },
  });
  cpSync(join(made, `helios-vk.${platform.name}.node`), binaryOf(platform));
  writeFileSync(join(folderOf(platform), 'toolchain'), toolchain());
  rmSync(made, { recursive: true });
}

/** @param {Result} result @param {import('./platforms/table.mjs').Run} run */
function ran(result, run) {
  result.runs.push(run);
  console.log(`    ${run.what} (${run.on}): ${run.result}`);
}

/** Packs the binary alone and installs it into an empty project, whatever platform this is. @param {Platform} platform */
function install(platform) {
  const out = join(folderOf(platform), 'pack');
  mkdirSync(out, { recursive: true });
  const { main, parts } = pack(folderOf(platform), out);
  const project = join(out, 'project');
  rmSync(project, { recursive: true, force: true });
  mkdirSync(project);
  writeFileSync(join(project, 'package.json'), '{ "private": true, "type": "module" }\n');
  for (const file of ['package-smoke.mjs', 'platforms/probe.mjs']) {
    cpSync(join(REPOSITORY, 'scripts', file), join(project, file.split('/').at(-1) ?? ''));
  }
  output(['npm', 'install', '--offline', '--force', '--no-audit', '--no-fund', main, ...parts], { cwd: project });
  return project;
}

/**
 * Runs a program of the project, or of the repository, that prints JSON in its last line.
 * @param {string[]} command
 * @param {import('node:child_process').SpawnSyncOptions} options
 */
const json = (command, options) => JSON.parse(output(command, options).trim().split('\n').at(-1) ?? '');

/**
 * How two runs of training agree.
 * @param {Found} found
 * @param {Found} other
 */
function agreement(found, other) {
  const differs = found.losses.findIndex((loss, i) => !Object.is(loss, other.losses[i]));
  if (differs < 0) return `${found.losses.length - 1} steps, every loss bit for bit that of x64 on ${other.device}`;
  const largest = Math.max(...found.losses.map((loss, i) => Math.abs(loss - other.losses[i]) / Math.abs(other.losses[i])));
  if (!(largest < 1e-5)) throw new Error(`losses differ by ${largest}:\n${found.losses}\n${other.losses}`);
  return `${found.losses.length - 1} steps, losses as of x64 on ${other.device} to ${largest.toExponential(1)}, from step ${differs} on`;
}

/** The same steps by this machine's own build and driver. @param {Record<string, string>} [environment] @returns {Found} */
const here = (environment = {}) => json([process.execPath, PROBE], { cwd: REPOSITORY, env: { ...process.env, ...environment } });

/**
 * Package smoke, doctor and ten steps in a project, with a command before each program.
 * @param {Result} result
 * @param {string} project
 * @param {(program: string[]) => string[]} within
 * @param {Found} reference
 * @param {import('node:child_process').SpawnSyncOptions} options
 */
function useIn(result, project, within, reference, options) {
  const smoke = json(within(['package-smoke.mjs']), options);
  const on = `Node ${smoke.node}, ${smoke.device} ${smoke.driver}`.trim();
  if (!smoke.binary.startsWith(join(project, 'node_modules'))) throw new Error(`loaded ${smoke.binary}`);
  ran(result, { what: 'packed, installed and used', on, result: 'three kernels right, `import` and `require`' });
  const { addon, package: own } = JSON.parse(output(within(DOCTOR), options));
  if (own.checkout || !addon.ok) throw new Error(`the doctor finds fault: ${JSON.stringify(addon)}`);
  ran(result, { what: 'doctor', on: `Node ${smoke.node}`, result: `${addon.triple}, no fault with the addon` });
  ran(result, { what: 'training', on, result: agreement(json(within(['probe.mjs']), options), reference) });
}

/** @param {Platform} platform @param {Result} result */
function needsOfElf(platform, result) {
  const { glibc, libraries, network } = requirements(binaryOf(platform));
  if (network.length > 0) throw new Error(`imports ${network.join(', ')}`);
  if (platform.glibc && Number(glibc.split('.')[1]) > Number(platform.glibc.split('.')[1])) throw new Error(`needs glibc ${glibc}`);
  const foreign = libraries.filter(
    (name) => !(platform.glibc ? /^(lib(c|m|dl|rt|pthread|util)|ld-linux[\w-]*)\.so\.\d+$/ : /^libc\.so$/).test(name),
  );
  if (foreign.length > 0) throw new Error(`needs ${foreign.join(', ')}`);
  result.needs.push(platform.glibc ? `glibc ${glibc}` : "musl's `libc.so` alone");
}

/** @param {Platform} platform @param {Result} result */
function onThisMachine(platform, result) {
  needsOfElf(platform, result);
  if (process.platform !== 'linux' || process.arch !== 'x64') throw new Unavailable('this machine is no Linux x64');
  const project = install(platform);
  useIn(result, project, (program) => [process.execPath, ...program], here(), { cwd: project });
}

/** @param {Platform} platform @param {Result} result */
function onArm(platform, result) {
  needsOfElf(platform, result);
  const reason = tools.noRoots(true);
  if (reason !== null) throw new Unavailable(reason);
  const place = tools.armRoot();
  const environment = { VK_DRIVER_FILES: '/usr/share/vulkan/icd.d/lvp_icd.json', ...FAST_COMPILER };
  const within = (/** @type {string} */ cwd, /** @type {string[]} */ program, /** @type {Record<string, string>} */ more = {}) =>
    tools.inRoot(place, { arm64: true, cwd, environment: { ...environment, ...more } }, ['/usr/bin/node', ...program]);
  const project = install(platform);
  // Both with subgroups of four lanes, which add up in another order than eight.
  useIn(result, project, (program) => within(project, program), here({ LP_NATIVE_VECTOR_WIDTH: '128' }), {});
  const tap = output(
    within(REPOSITORY, ['--test', '--test-reporter=tap', '--test-timeout=900000', '--test-concurrency=1', ...QUICK], {
      NAPI_RS_NATIVE_LIBRARY_PATH: binaryOf(platform),
      HELIOS_TEST_LIGHT: '1',
    }),
  );
  const [passed, failed, skipped] = ['pass', 'fail', 'skipped'].map((word) => Number(new RegExp(`^# ${word} (\\d+)$`, 'm').exec(tap)?.[1]));
  if (!(passed > 0) || failed !== 0) throw new Error(`${failed} tests failed\n${tap.slice(-4000)}`);
  const files = QUICK.map((file) => file.replace(/^.*\/|\.test\.mjs$/g, '')).join(', ');
  ran(result, { what: 'of the quick tier', on: `the same; ${files}`, result: `${passed} tests passed, ${skipped} skipped` });
}

/** @param {Platform} platform @param {Result} result */
function onMusl(platform, result) {
  needsOfElf(platform, result);
  const reason = tools.noRoots(false) ?? (process.arch === 'x64' ? null : 'this machine is no x64');
  if (reason !== null) throw new Unavailable(reason);
  const place = tools.muslRoot();
  const [{ node }, bun] = [tools.muslNode('x86_64'), tools.muslBun()];
  tools.zig();
  const { driver, libraries } = tools.muslDriver();
  const project = install(platform);
  const environment = { LD_LIBRARY_PATH: libraries, HELIOS_VULKAN_LOADER: driver };
  const reference = here({ HELIOS_VULKAN_LOADER: join(swiftshader.manifest(), '../libvk_swiftshader.so') });
  useIn(result, project, (program) => tools.inRoot(place, { cwd: project, environment }, [node, ...program]), reference, {});
  /** @type {Found} */
  const found = json(
    tools.inRoot(
      place,
      { cwd: project, environment: { ...environment, LD_LIBRARY_PATH: `${libraries}:${tools.muslNode('x86_64').libraries}` } },
      [bun, 'probe.mjs'],
    ),
    {},
  );
  ran(result, { what: 'training', on: `${found.runtime}, ${found.device}`, result: agreement(found, reference) });
}

/** @param {Platform} platform @param {Result} result */
function onArmMusl(platform, result) {
  needsOfElf(platform, result);
  const reason = tools.noRoots(true);
  if (reason !== null) throw new Unavailable(reason);
  const { node } = tools.muslNode('aarch64');
  const project = install(platform);
  const within = (/** @type {string[]} */ program) => tools.inRoot(tools.armRoot(), { arm64: true, cwd: project }, [node, ...program]);
  /** @type {Found} */
  const found = json(within(['probe.mjs', '0']), {});
  const whole = here();
  if (found.exports !== whole.exports) throw new Error(`it exports ${found.exports} names, on x64 ${whole.exports}`);
  if (found.code !== 'ERR_HELIOS_NO_LOADER') throw new Error(`without a loader initDevice says ${found.code}`);
  ran(result, {
    what: 'loaded',
    on: `${found.runtime}, no Vulkan loader`,
    result: `${found.exports} exports, then \`${found.code}\``,
  });
  const [command, ...args] = within(DOCTOR);
  // It ends with 1: there is no device.
  const { addon } = JSON.parse(spawnSync(command, args, { encoding: 'utf8' }).stdout);
  if (!addon.ok) throw new Error(`the doctor finds fault: ${JSON.stringify(addon)}`);
  ran(result, { what: 'doctor', on: found.runtime, result: `${addon.triple}, no fault with the addon` });
}

/** @param {Platform} platform @param {Result} result */
function readApple(platform, result) {
  const found = readMachO(readFileSync(binaryOf(platform)));
  if (`darwin-${found.processor}` !== platform.name) throw new Error(`it is for ${found.processor}`);
  if (found.oldest === null || Number(found.oldest.split('.')[0]) > APPLE.oldest) throw new Error(`it needs macOS ${found.oldest}`);
  const foreign = found.libraries.filter((name) => !APPLE.libraries.test(name));
  if (foreign.length > 0) throw new Error(`it links to ${foreign.join(', ')}`);
  const strange = found.looked.filter((name) => !/^_napi_|^_node_api_/.test(name));
  if (strange.length > 0) throw new Error(`nothing defines ${strange.join(', ')}`);
  // macOS loads no arm64 code without one.
  if (found.processor === 'arm64' && found.signature === 'none') throw new Error('it has no signature');
  result.needs.push(`macOS ${found.oldest}`, found.libraries.map((name) => `\`${name}\``).join(', '));
  result.needs.push(`${found.undefinedSymbols.length} symbols of these, ${found.looked.length} others`);
  result.needs.push(found.signature === 'none' ? 'not signed' : `signed ${found.signature}, every page's hash right`);
}

/** @param {Platform} platform @param {Result} result */
function checkWindows({ target }, result) {
  tools.rustTarget(target);
  output(['cargo', 'check', '--quiet', '--locked', '--target', target], { cwd: REPOSITORY });
  ran(result, { what: 'type-checked', on: output(['rustc', '--version']).split(' ').slice(0, 2).join(' '), result: 'no error' });
  throw new Unavailable("linking needs Microsoft's SDK, which no package registry has");
}

/** What builds. */
const toolchain = () =>
  `Rust ${output(['rustc', '--version']).split(' ')[1]} and Zig ${output([join(tools.folder(), 'zig/bin/python'), '-m', 'ziglang', 'version']).trim()}`;

/**
 * @param {Platform} platform
 * @param {boolean} built whether an earlier binary will do
 * @returns {{ result: Result, passed: boolean }}
 */
function attempt(platform, built) {
  /** @type {Result} */
  const result = { date: new Date().toISOString().slice(0, 10), needs: [], runs: [] };
  try {
    mkdirSync(folderOf(platform), { recursive: true });
    if (!platform.unlinked) {
      if (!built || !existsSync(binaryOf(platform))) build(platform);
      result.bytes = statSync(binaryOf(platform)).size;
      result.toolchain = readFileSync(join(folderOf(platform), 'toolchain'), 'utf8');
    }
    platform.attempt(platform, result);
    return { result, passed: true };
  } catch (error) {
    if (!(error instanceof Unavailable)) {
      console.error(`${platform.target}: ${/** @type {Error} */ (error).message}`);
      return { result, passed: false };
    }
    return { result: { ...result, skipped: error.message.split('\n')[0] }, passed: true };
  }
}

const OPTIONS = /** @type {const} */ ({
  built: { type: 'boolean', help: 'take the binaries of an earlier run' },
  record: { type: 'boolean', help: `write ${RESULTS}, and the table in ${PAGE}` },
});

/** @param {import('../bin/lib/options.mjs').ValuesOf<typeof OPTIONS>} values @param {string[]} targets */
function main(values, targets) {
  const unknown = targets.find((target) => PLATFORMS.every((platform) => platform.target !== target));
  if (unknown !== undefined) throw new UsageError(`no target ${unknown}; there are ${PLATFORMS.map(({ target }) => target).join(', ')}`);
  let failed = 0;
  for (const platform of PLATFORMS.filter(({ target }) => targets.length === 0 || targets.includes(target))) {
    const { result, passed } = attempt(platform, values.built);
    if (!passed) failed++;
    else if (values.record) record(platform.target, result);
    const size = result.bytes ? `${(result.bytes / 1e6).toFixed(1)} MB; ${result.needs.join('; ')}` : 'not built';
    console.log(`${passed ? (result.skipped ? '-' : '✓') : '✗'} ${platform.target}: ${size}`);
    if (result.skipped) console.log(`    skipped: ${result.skipped}`);
  }
  return failed === 0 ? 0 : 1;
}

/** Puts a result beside those of the other targets. @param {string} of @param {Result} result */
function record(of, result) {
  const [file, page] = [RESULTS, PAGE].map((name) => join(REPOSITORY, name));
  const earlier = existsSync(file) ? readResults(file) : {};
  const all = { ...earlier, [of]: result };
  const targets = PLATFORMS.map(({ target }) => target);
  const known = Object.fromEntries(targets.flatMap((target) => (all[target] ? [[target, all[target]]] : [])));
  writeFileSync(file, `${JSON.stringify(known, null, 2)}\n`);
  writeFileSync(page, withTable(readFileSync(page, 'utf8'), known, targets));
}

if (process.argv[1] && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  await runMain('node scripts/platforms.mjs [TARGET…] [options]', OPTIONS, main, { positionals: true });
}
