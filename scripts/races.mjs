#!/usr/bin/env node
// The completion thread under ThreadSanitizer, with many threads asking at once (races/).
//
//   node scripts/races.mjs [--rounds 4]
//
// The sanitizer wants std built with it: that needs the Rust component rust-src, added where it is
// missing, and the flags of a nightly compiler, which the stable one takes under RUSTC_BOOTSTRAP=1.

import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

import { chooseCargo } from './bootstrap.mjs';

const FOLDER = join(dirname(dirname(fileURLToPath(import.meta.url))), 'races');
const TARGET = 'x86_64-unknown-linux-gnu';
const PROGRAM = join(FOLDER, 'target', TARGET, 'release/helios-races');

function hasSource() {
  const root = spawnSync('rustc', ['--print', 'sysroot'], { encoding: 'utf8' }).stdout?.trim() ?? '';
  return existsSync(join(root, 'lib/rustlib/src/rust/library/Cargo.lock'));
}

/** Why the sanitizer cannot run here, or null; adds rust-src if need be. */
export function obstacle() {
  if (process.platform !== 'linux' || process.arch !== 'x64') return 'ThreadSanitizer is run on Linux x64';
  if (!hasSource()) spawnSync('rustup', ['component', 'add', 'rust-src'], { stdio: 'ignore' });
  return hasSource() ? null : 'the Rust component rust-src is not installed, and could not be';
}

/** Whether the sanitizer found nothing, and finds the race that is there on purpose. */
export function run({ rounds = 4 } = {}) {
  const build = ['build', '--release', '--locked', '-Zbuild-std', '--target', TARGET];
  const built = spawnSync('cargo', build, {
    cwd: FOLDER,
    env: { ...process.env, RUSTC_BOOTSTRAP: '1', RUSTFLAGS: '-Zsanitizer=thread', CARGO_TARGET_DIR: join(FOLDER, 'target') },
    stdio: 'inherit',
  });
  if (built.status !== 0) return false;
  const control = spawnSync(PROGRAM, ['race'], { encoding: 'utf8' });
  if (control.status === 0 || !control.stderr.includes('data race')) {
    console.error(`the sanitizer does not see a race that is there on purpose:\n${control.stderr}`);
    return false;
  }
  const { status } = spawnSync(PROGRAM, [String(rounds)], { stdio: 'inherit', timeout: 300_000 });
  return status === 0;
}

if (process.argv[1] && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  const { values } = parseArgs({ options: { rounds: { type: 'string', default: '4' } } });
  await chooseCargo();
  const reason = obstacle();
  if (reason !== null) console.error(`races: ${reason}`);
  process.exitCode = reason === null && run({ rounds: Number(values.rounds) }) ? 0 : 1;
}
