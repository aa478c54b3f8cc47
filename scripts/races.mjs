#!/usr/bin/env node
// Runs the addon's threads under ThreadSanitizer (__test__/races/): recorder, readback memory, completion, and that
// of a group of processes; with many threads that use them at once, and at the end of the process.
//
//   node scripts/races.mjs [--rounds 12]
//
// The sanitizer needs std built with it. That takes the Rust component rust-src, which is added if it is
// missing, and flags of a nightly compiler, which the stable one accepts with RUSTC_BOOTSTRAP=1.

import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { isMain, runMain } from '../bin/lib/options.mjs';
import { chooseCargo } from './bootstrap.mjs';

const FOLDER = join(dirname(dirname(fileURLToPath(import.meta.url))), '__test__/races');
const TARGET = 'x86_64-unknown-linux-gnu';
const PROGRAM = join(FOLDER, 'target', TARGET, 'release/helios-races');

function hasSource() {
  const root = spawnSync('rustc', ['--print', 'sysroot'], { encoding: 'utf8' }).stdout?.trim() ?? '';
  return existsSync(join(root, 'lib/rustlib/src/rust/library/Cargo.lock'));
}

/** Why the sanitizer cannot run here, or null; adds rust-src if need be. */
export function obstacle() {
  if (process.platform !== 'linux' || process.arch !== 'x64') return 'ThreadSanitizer is run on Linux x64';
  if (!hasSource()) spawnSync('rustup', ['component', 'add', 'rust-src'], { stdio: 'inherit' });
  return hasSource() ? null : 'the Rust component rust-src is not installed, and could not be';
}

/** The sanitizer's message if the kernel randomizes memory placement more than it supports. */
const PLACEMENT = /unexpected memory mapping|memory layout is incompatible/;

/**
 * Runs the program, without randomized placement if the sanitizer does not support it.
 * @param {string[]} args
 */
function program(args) {
  const options = /** @type {const} */ ({
    encoding: 'utf8',
    timeout: 120_000,
    maxBuffer: 64 << 20,
    // Otherwise it sleeps for a second at the end of the process.
    env: { ...process.env, TSAN_OPTIONS: 'atexit_sleep_ms=0' },
  });
  const since = performance.now();
  let ended = spawnSync(PROGRAM, args, options);
  if (PLACEMENT.test(ended.stderr ?? '')) ended = spawnSync('setarch', ['x86_64', '-R', PROGRAM, ...args], options);
  const { status, signal, error } = ended;
  const [output, complaints] = [ended.stdout ?? '', ended.stderr ?? ''];
  const how = error?.message ?? (signal ? `ended by ${signal}` : `status ${status}`);
  const seconds = ((performance.now() - since) / 1000).toFixed(1);
  return { status, output, complaints, summary: `helios-races ${args.join(' ')}: ${how} after ${seconds} s` };
}

/** Processes that end in the middle of work. */
const ENDS = 20;
/** Members of a group: seven ways to end, several times each. */
const GROUPS = 42;
/** The parts of std that a program needs that aborts instead of panicking. */
const STD = ['-Zbuild-std=std,panic_abort', '-Zbuild-std-features='];

/** Builds the program; whether that went well. @param {string[]} features */
function build(...features) {
  const command = ['build', '--release', '--locked', ...STD, '--target', TARGET, ...features.flatMap((name) => ['--features', name])];
  const { status, signal, error } = spawnSync('cargo', command, {
    cwd: FOLDER,
    env: { ...process.env, RUSTC_BOOTSTRAP: '1', RUSTFLAGS: '-Zsanitizer=thread', CARGO_TARGET_DIR: join(FOLDER, 'target') },
    stdio: 'inherit',
  });
  if (status !== 0) console.error(`races: no program: ${error?.message ?? `cargo ended with ${status ?? signal}`}`);
  return status === 0;
}

/** Whether the sanitizer detects a deliberate race. @param {string[]} args @param {RegExp} where a word of its report */
function sees(args, where) {
  const { status, complaints, summary } = program(args);
  if (status !== 0 && complaints.includes('data race') && where.test(complaints)) return true;
  console.error(`${summary}: it does not see a race that is there on purpose\n${complaints}`);
  return false;
}

/** Whether the sanitizer found nothing, but detects the deliberate races. */
export function run({ rounds = 12 } = {}) {
  // A group's thread that does not wait for the device: the collective's data are not there yet.
  if (!build('seeded') || !sees(['group', '0'], /collective::thread::run/)) return false;
  if (!build() || !sees(['race'], /helios_races::race/)) return false;
  const ends = Array.from({ length: ENDS }, (_, seed) => ['leave', String(seed)]);
  const groups = Array.from({ length: GROUPS }, (_, seed) => ['group', String(seed)]);
  let passed = true;
  for (const args of [[String(rounds)], ...ends, ...groups]) {
    const { status, output, complaints, summary } = program(args);
    if (output) console.log(output.trimEnd());
    if (status === 0) continue;
    passed = false;
    console.error(`${summary}\n${complaints}`);
  }
  console.log(`${rounds} rounds, ${ENDS} ends of a process, ${GROUPS} members of a group: ${passed ? 'no' : 'a'} race or failure`);
  return passed;
}

const OPTIONS = /** @type {const} */ ({
  rounds: { type: 'integer', min: 1, max: 1_000_000, default: 12, help: 'lives of a device' },
});

if (isMain(import.meta.url)) {
  await runMain('node scripts/races.mjs [options]', OPTIONS, async ({ rounds }) => {
    await chooseCargo();
    const reason = obstacle();
    if (reason !== null) throw new Error(reason);
    return run({ rounds }) ? 0 : 1;
  });
}
