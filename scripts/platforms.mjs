#!/usr/bin/env node
// Builds the addon for every platform of package.json and runs each binary where this machine can: Linux x64 as it stands, Linux
// arm64 under QEMU on lavapipe, musl on its own C library with SwiftShader, Windows in Wine on lavapipe; what nothing runs here is read
// instead.
//
//   node scripts/platforms.mjs [TARGET…] [--build] [--record]
//
//   TARGET     only these (x86_64-unknown-linux-musl …)
//   --build    builds, and reads what each binary asks of its system, but runs none (CI runs them on machines of their own)
//   --minutes  how long the suite may take under QEMU (180): files that it has not come to are named
//   --continue leaves test files under QEMU that passed in an earlier run, and have not changed since; with --minutes 0 none is begun
//   --record   writes docs/platforms.json, and the table in docs/packages.md
//
// Without TARGET and --build, platforms/runtimes.mjs runs then, the suite in every runtime for Linux x64, and the bundlers; and platforms/devices.mjs,
// tests with the limits of other devices.
//
// `npm run platforms` installs what it needs first: python3 with venv, rustup, mmdebstrap, qemu-user-static, binutils. A target is skipped,
// with the reason, where a tool cannot be had. What is fetched (1 GB) lies in $HELIOS_PLATFORMS, else in helios-vk/platforms of the user's cache folder;
// binaries in target/platforms, where those made of the same sources are taken again.

import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { UsageError, isMain, runMain } from '../bin/lib/options.mjs';
import { chooseCargo } from './bootstrap.mjs';
import { pack, requirements } from './pack.mjs';
import { OLDEST_MACOS, TARGETS, binaryOf, build, folderOf } from './platforms/build.mjs';
import { eachFile, summary } from './platforms/by-file.mjs';
import { OF_PROGRAMS, QUICK as QUICK_TIER } from './platforms/files.mjs';
import { readMachO } from './platforms/macho.mjs';
import { PAGE, RESULTS, readResults, withTable } from './platforms/table.mjs';
import * as tools from './platforms/tools.mjs';
import * as swiftshader from './swiftshader.mjs';

const { REPOSITORY, Unavailable, output } = tools;
const PROBE = 'scripts/platforms/probe.mjs';
/** An emulated driver takes long to answer. */
const DOCTOR = ['node_modules/helios-vk/bin/helios-vk.mjs', 'doctor', '--json', '--timeout', '1800'];
/** Of the quick tier: every kind of call, with few kernels. */
const QUICK = ['buffers', 'handles', 'load-error', 'memory-stats', 'package', 'packed', 'upload-types', 'values'].map(
  (name) => `__test__/${name}.test.mjs`,
);
/** These, and what has paths, folders, messages, processes and files of the system in it. */
const ON_WINDOWS = [
  ...QUICK,
  ...['bootstrap', 'cli-decisions', 'release', 'windows'].map((name) => `__test__/${name}.test.mjs`),
  ...['bpe', 'cuts', 'gguf', 'tokenizer', 'tokenizer-train'].map((name) => `packages/lm/test/${name}.test.mjs`),
];
/** Lavapipe compiles a kernel a hundred times slower under QEMU: those with few kernels come first, tensors last. */
const UNDER_QEMU = [...new Set([...QUICK, ...OF_PROGRAMS.filter((file) => !file.includes('/nn/')), ...OF_PROGRAMS])];
/**
 * LLVM's passes would take minutes a kernel under QEMU; what kernels compute stays the same: `agreement` shows it. What one process compiled the
 * next one reads; Mesa's database of all in one file loses it where two write.
 */
const FAST_COMPILER = { GALLIVM_PERF: 'nopt', MESA_DISK_CACHE_MULTI_FILE: '1' };
/** What every Windows 10 has. */
const WINDOWS =
  /^(kernel32|ntdll|advapi32|bcrypt|bcryptprimitives|userenv|ws2_32|shell32|ole32|synchronization|api-ms-win-(core|crt)-[\w-]+|ucrtbase|msvcrt)\.dll$/;
/** The oldest macOS that has been seen to take such a binary, and what a binary may link to there. */
const APPLE = {
  oldest: Number.parseInt(OLDEST_MACOS, 10),
  libraries: /^\/usr\/lib\/(libSystem\.B|libobjc\.A|libiconv\.2|libcharset\.1|libc\+\+\.1)\.dylib$|\/(CoreFoundation|Security)$/,
};

/** @typedef {import('./platforms/table.mjs').Result} Result */
/** @typedef {{ device: string, losses: number[], exports: number, runtime: string, code?: string }} Found */

/** How long the suite may take under QEMU, and whether it leaves what passed in an earlier run. @typedef {{ minutes: number, resumes: boolean }} Turn */

/**
 * How the binary of a target is checked: what it asks of its system, and how it is run, if anything runs it here.
 * @typedef {object} Platform
 * @property {(target: string, result: Result) => void} reads
 * @property {(target: string, result: Result, turn: Turn) => void | Promise<void>} [runs]
 */

/** @type {Record<string, Platform>} */
const PLATFORMS = {
  'x86_64-unknown-linux-gnu': { reads: needsOfElf, runs: onThisMachine },
  'aarch64-unknown-linux-gnu': { reads: needsOfElf, runs: onArm },
  'x86_64-unknown-linux-musl': { reads: needsOfElf, runs: onMusl },
  'aarch64-unknown-linux-musl': { reads: needsOfElf, runs: onArmMusl },
  'aarch64-apple-darwin': { reads: needsOfMachO },
  'x86_64-apple-darwin': { reads: needsOfMachO },
  'x86_64-pc-windows-msvc': { reads: needsOfPe, runs: onWine },
};

/** @param {Result} result @param {import('./platforms/table.mjs').Run} run */
function ran(result, run) {
  result.runs.push(run);
  console.log(`    ${run.what} (${run.on}): ${run.result}`);
}

/** Packs the binary alone and installs it into an empty project, whatever platform this is. @param {string} target */
function install(target) {
  const out = join(folderOf(target), 'pack');
  mkdirSync(out, { recursive: true });
  const { main, parts } = pack(folderOf(target), out);
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

/** What a program that prints JSON in its last line has printed. @param {string} printed */
const lastLine = (printed) => JSON.parse(printed.trim().split('\n').at(-1) ?? '');

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
const here = (environment = {}) =>
  lastLine(output([process.execPath, PROBE], { cwd: REPOSITORY, env: { ...process.env, ...environment } }));

/** The same steps on SwiftShader. */
function onSwiftShader() {
  const reason = swiftshader.obstacle();
  if (reason !== null) throw new Unavailable(reason);
  return here({ HELIOS_VULKAN_LOADER: join(swiftshader.manifest(), '../libvk_swiftshader.so') });
}

/**
 * Package smoke, doctor and ten steps in a project.
 * @param {Result} result
 * @param {string} project
 * @param {(program: string[]) => string} print what a program prints there
 * @param {Found} reference
 * @param {string} [within] what the runtime runs in
 */
function useIn(result, project, print, reference, within = '') {
  const smoke = lastLine(print(['package-smoke.mjs']));
  const runtime = `Node ${smoke.node}${within}`;
  const on = `${runtime}, ${smoke.device} ${smoke.driver}`.trim();
  if (!smoke.binary.replaceAll('\\', '/').includes(join(project, 'node_modules'))) throw new Error(`loaded ${smoke.binary}`);
  ran(result, { what: 'packed, installed and used', on, result: 'three kernels right, `import` and `require`' });
  const { addon, package: own } = JSON.parse(print(DOCTOR));
  if (own.checkout || !addon.ok) throw new Error(`the doctor finds fault: ${JSON.stringify(addon)}`);
  ran(result, { what: 'doctor', on: runtime, result: `${addon.triple}, no fault with the addon` });
  ran(result, { what: 'training', on, result: agreement(lastLine(print(['probe.mjs'])), reference) });
}

/**
 * How many tests of these files passed and were skipped in a run that prints TAP.
 * @param {Result} result @param {string} on @param {string[]} files @param {string} tap
 */
function tests(result, on, files, tap) {
  const [passed, failed, skipped] = ['pass', 'fail', 'skipped'].map((word) => Number(new RegExp(`^# ${word} (\\d+)$`, 'm').exec(tap)?.[1]));
  if (!(passed > 0) || failed !== 0) throw new Error(`${failed} tests failed\n${tap.slice(-4000)}`);
  const names = files.map((file) => file.replace(/^.*\/|\.test\.mjs$/g, '')).join(', ');
  ran(result, { what: 'of the quick tier', on: `${on}; ${names}`, result: `${passed} tests passed, ${skipped} skipped` });
}

/** @param {string} target @param {Result} result */
function needsOfElf(target, result) {
  const { glibc, libraries, network } = requirements(binaryOf(target));
  const limit = TARGETS[target].glibc;
  if (network.length > 0) throw new Error(`imports ${network.join(', ')}`);
  if (limit && Number(glibc.split('.')[1]) > Number(limit.split('.')[1])) throw new Error(`needs glibc ${glibc}`);
  const allowed = limit ? /^(lib(c|m|dl|rt|pthread|util)|ld-linux[\w-]*)\.so\.\d+$/ : /^libc\.so$/;
  const foreign = libraries.filter((name) => !allowed.test(name));
  if (foreign.length > 0) throw new Error(`needs ${foreign.join(', ')}`);
  result.needs.push(limit ? `glibc ${glibc}` : "musl's `libc.so` alone");
}

/** @param {string} target @param {Result} result */
function onThisMachine(target, result) {
  if (process.platform !== 'linux' || process.arch !== 'x64') throw new Unavailable('this machine is no Linux x64');
  const project = install(target);
  useIn(result, project, (program) => output([process.execPath, ...program], { cwd: project }), here());
}

/** @param {string} target @param {Result} result @param {Turn} turn */
async function onArm(target, result, turn) {
  const reason = tools.noRoots(true);
  if (reason !== null) throw new Unavailable(reason);
  const place = tools.armRoot();
  const environment = { VK_DRIVER_FILES: '/usr/share/vulkan/icd.d/lvp_icd.json', ...FAST_COMPILER };
  const within = (/** @type {string} */ cwd, /** @type {string[]} */ program, /** @type {Record<string, string>} */ more = {}) =>
    tools.inRoot(place, { arm64: true, cwd, environment: { ...environment, ...more } }, ['/usr/bin/node', ...program]);
  const project = install(target);
  // Both with subgroups of four lanes, which add up in another order than eight.
  useIn(result, project, (program) => output(within(project, program)), here({ LP_NATIVE_VECTOR_WIDTH: '128' }));
  const own = { NAPI_RS_NATIVE_LIBRARY_PATH: binaryOf(target), HELIOS_TEST_LIGHT: '1', HELIOS_TEST_EMULATED: '1' };
  const command = (/** @type {string} */ file) => within(REPOSITORY, ['--test', '--test-reporter=tap', '--test-force-exit', file], own);
  const outcome = await eachFile(UNDER_QEMU, command, { ...turn, stamp: join(folderOf(target), 'tests.json') });
  if (outcome.failed.length > 0) throw new Error(`these failed: ${outcome.failed.join(', ')}`);
  const done = Object.keys(outcome.found).length;
  const what = `of the quick tier's ${QUICK_TIER.length} files, ${done} of the ${UNDER_QEMU.length} of what a program loads`;
  ran(result, { what, on: 'the same', result: summary(outcome) });
}

/** @param {string} target @param {Result} result */
function onMusl(target, result) {
  const reason = tools.noRoots(false) ?? (process.arch === 'x64' ? null : 'this machine is no x64');
  if (reason !== null) throw new Unavailable(reason);
  const place = tools.muslRoot();
  const [{ node }, bun] = [tools.muslNode('x86_64'), tools.muslBun()];
  const { driver, libraries } = tools.muslDriver('x86_64');
  const project = install(target);
  const environment = { LD_LIBRARY_PATH: libraries, HELIOS_VULKAN_LOADER: driver };
  const reference = onSwiftShader();
  useIn(result, project, (program) => output(tools.inRoot(place, { cwd: project, environment }, [node, ...program])), reference);
  const libraryPath = { LD_LIBRARY_PATH: `${libraries}:${tools.muslNode('x86_64').libraries}` };
  const inBun = tools.inRoot(place, { cwd: project, environment: { ...environment, ...libraryPath } }, [bun, 'probe.mjs']);
  /** @type {Found} */
  const found = lastLine(output(inBun));
  ran(result, { what: 'training', on: `${found.runtime}, ${found.device}`, result: agreement(found, reference) });
}

/** @param {string} target @param {Result} result */
function onArmMusl(target, result) {
  const reason = tools.noRoots(true);
  if (reason !== null) throw new Unavailable(reason);
  const { node } = tools.muslNode('aarch64');
  const project = install(target);
  const within = (/** @type {string[]} */ program, /** @type {Record<string, string>} */ environment = {}) =>
    output(tools.inRoot(tools.armRoot(), { arm64: true, cwd: project, environment }, [node, ...program]));
  /** @type {Found} */
  const found = lastLine(within(['probe.mjs', '0']));
  const whole = here();
  if (found.exports !== whole.exports) throw new Error(`it exports ${found.exports} names, on x64 ${whole.exports}`);
  if (found.code !== 'ERR_HELIOS_NO_LOADER') throw new Error(`without a loader initDevice says ${found.code}`);
  ran(result, {
    what: 'loaded',
    on: `${found.runtime}, no Vulkan loader`,
    result: `${found.exports} exports, then \`${found.code}\``,
  });
  const { driver, libraries } = tools.muslDriver('aarch64');
  const environment = { LD_LIBRARY_PATH: libraries, HELIOS_VULKAN_LOADER: driver };
  useIn(result, project, (program) => within(program, environment), onSwiftShader());
}

/** @param {string} target @param {Result} result */
function needsOfMachO(target, result) {
  const found = readMachO(readFileSync(binaryOf(target)));
  if (`darwin-${found.processor}` !== TARGETS[target].name) throw new Error(`it is for ${found.processor}`);
  if (found.oldest === null || Number(found.oldest.split('.')[0]) > APPLE.oldest) throw new Error(`it needs macOS ${found.oldest}`);
  const foreign = found.libraries.filter((name) => !APPLE.libraries.test(name));
  if (foreign.length > 0) throw new Error(`it links to ${foreign.join(', ')}`);
  const strange = found.looked.filter((name) => !/^_napi_|^_node_api_/.test(name));
  if (strange.length > 0) throw new Error(`nothing defines ${strange.join(', ')}`);
  // macOS loads no arm64 code without one.
  if (found.processor === 'arm64' && found.signature === 'none') throw new Error('it has no signature');
  result.needs.push(`macOS ${found.oldest}`, found.libraries.map((name) => `\`${name}\``).join(', '));
  result.needs.push(`${found.undefinedSymbols.length} symbols of these, ${found.looked.length} others`);
  const unsigned = 'not signed, which macOS asks for on arm64 alone';
  result.needs.push(found.signature === 'none' ? unsigned : `signed ${found.signature}, every page's hash right`);
}

/** @param {string} target @param {Result} result */
function needsOfPe(target, result) {
  // A library of Windows names those that it takes symbols from.
  const text = output(['objdump', '--private-headers', binaryOf(target)]);
  const libraries = [...text.matchAll(/^\s*DLL Name: (\S+)$/gm)].map(([, name]) => name.toLowerCase());
  if (libraries.length === 0) throw new Error('it names no library');
  const foreign = libraries.filter((name) => !WINDOWS.test(name));
  if (foreign.length > 0) throw new Error(`it links to ${foreign.join(', ')}`);
  const runtime = libraries.filter((name) => !name.startsWith('api-ms-win-crt-'));
  result.needs.push(`Windows 10: ${runtime.map((name) => `\`${name}\``).join(', ')} and the universal C runtime`);
}

/** @param {string} target @param {Result} result */
function onWine(target, result) {
  const reason = tools.noRoots(false) ?? (process.arch === 'x64' ? null : 'this machine is no x64');
  if (reason !== null) throw new Unavailable(reason);
  const project = install(target);
  const print = (/** @type {string} */ cwd, /** @type {string[]} */ program, /** @type {Record<string, string>} */ environment = {}) =>
    tools.written(tools.inWine({ cwd, environment }, program));
  const within = ` for Windows in Wine ${tools.wineVersion()}`;
  useIn(result, project, (program) => print(project, program), here(), within);
  const flags = ['--test', '--test-reporter=tap', '--test-timeout=900000', '--test-concurrency=1'];
  const environment = { NAPI_RS_NATIVE_LIBRARY_PATH: binaryOf(target), HELIOS_TEST_LIGHT: '1' };
  tests(result, 'the same', ON_WINDOWS, print(REPOSITORY, [...flags, ...ON_WINDOWS], environment));
}

/**
 * @param {string} target
 * @param {boolean} runs whether to run the binary as well
 * @param {Turn} turn
 * @returns {Promise<{ result: Result, passed: boolean }>}
 */
async function attempt(target, runs, turn) {
  const commit = output(['git', 'rev-parse', '--short=8', 'HEAD'], { cwd: REPOSITORY }).trim();
  /** @type {Result} */
  const result = { date: new Date().toISOString().slice(0, 10), commit, needs: [], runs: [] };
  try {
    console.log(`  ${target}: building`);
    result.toolchain = build(target);
    result.bytes = statSync(binaryOf(target)).size;
    PLATFORMS[target].reads(target, result);
    if (runs) await PLATFORMS[target].runs?.(target, result, turn);
    return { result, passed: true };
  } catch (error) {
    if (!(error instanceof Unavailable)) {
      console.error(`${target}: ${/** @type {Error} */ (error).message}`);
      return { result, passed: false };
    }
    return { result: { ...result, skipped: error.message.split('\n')[0] }, passed: true };
  }
}

const OPTIONS = /** @type {const} */ ({
  build: { type: 'boolean', help: 'build, and read what each binary asks of its system, but run none' },
  continue: { type: 'boolean', help: 'leave test files under QEMU that passed in an earlier run and have not changed since' },
  minutes: { type: 'integer', min: 0, max: 600, default: 180, help: 'how long the suite may take under QEMU' },
  record: { type: 'boolean', help: `write ${RESULTS}, and the table in ${PAGE}` },
});

/** @param {import('../bin/lib/options.mjs').ValuesOf<typeof OPTIONS>} values @param {string[]} targets */
async function main(values, targets) {
  const unknown = targets.find((target) => !(target in PLATFORMS));
  if (unknown !== undefined) throw new UsageError(`no target ${unknown}; there are ${Object.keys(PLATFORMS).join(', ')}`);
  if (values.build && values.record) throw new UsageError('--record writes what ran, and --build runs nothing');
  // `npm run setup` installs a toolchain that no shell has on its path yet.
  await chooseCargo();
  let failed = 0;
  for (const target of Object.keys(PLATFORMS).filter((each) => targets.length === 0 || targets.includes(each))) {
    const { result, passed } = await attempt(target, !values.build, { minutes: values.minutes, resumes: values.continue });
    // In CI nothing may be left out.
    const missing = values.build && result.skipped !== undefined;
    if (!passed || missing) failed++;
    // What an earlier run found stays, if this machine lacks a tool.
    else if (values.record && !result.skipped) record(target, result);
    const size = result.bytes ? `${(result.bytes / 1e6).toFixed(1)} MB; ${result.needs.join('; ')}` : 'not built';
    console.log(`${!passed || missing ? '✗' : result.skipped ? '-' : '✓'} ${target}: ${size}`);
    if (result.skipped) console.log(`    skipped: ${result.skipped}`);
  }
  if (targets.length === 0 && !values.build) {
    for (const program of ['runtimes', 'devices']) {
      const args = [join(REPOSITORY, `scripts/platforms/${program}.mjs`), ...(values.record ? ['--record'] : [])];
      if (spawnSync(process.execPath, args, { stdio: 'inherit' }).status !== 0) failed++;
    }
  }
  return failed === 0 ? 0 : 1;
}

/** Puts a result beside those of the other targets. @param {string} of @param {Result} result */
function record(of, result) {
  const [file, page] = [RESULTS, PAGE].map((name) => join(REPOSITORY, name));
  const earlier = existsSync(file) ? readResults(file) : {};
  const all = { ...earlier, [of]: result };
  const targets = Object.keys(PLATFORMS);
  const known = Object.fromEntries(targets.flatMap((target) => (all[target] ? [[target, all[target]]] : [])));
  writeFileSync(file, `${JSON.stringify(known, null, 2)}\n`);
  writeFileSync(page, withTable(readFileSync(page, 'utf8'), known, targets));
}

if (isMain(import.meta.url)) {
  await runMain('node scripts/platforms.mjs [TARGET…] [options]', OPTIONS, main, { positionals: true });
}
