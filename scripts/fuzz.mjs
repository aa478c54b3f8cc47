#!/usr/bin/env node
// Coverage-guided fuzzing of the packed decoder, the SPIR-V reflection, the hazard planner and programs of kernels: all
// targets of __test__/fuzz/ in parallel for a bounded time, starting from the committed seeds and
// __test__/fuzz/corpus/.
//
//   node scripts/fuzz.mjs [--seconds 60] [--targets packed,spirv,hazards,codegen]
//
// Installs cargo-fuzz if it is missing. An input that fails is left in __test__/fuzz/artifacts/.

import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { UsageError, isMain, runMain } from '../bin/lib/options.mjs';
import { chooseCargo } from './bootstrap.mjs';

const FUZZ = join(dirname(dirname(fileURLToPath(import.meta.url))), '__test__/fuzz');
/** libFuzzer's flags: an input that takes longer than 10 s or more than 2 GiB is a failure. */
const LIMITS = ['-timeout=10', '-rss_limit_mb=2048', '-print_final_stats=1'];
// The modules under test have no unsafe code for a sanitizer to watch, so none is used. The coverage
// flags exist in the stable compiler, but cargo-fuzz assumes a nightly one.
const ENVIRONMENT = { ...process.env, RUSTC_BOOTSTRAP: '1' };

const hasCargoFuzz = () => spawnSync('cargo', ['fuzz', '--version'], { stdio: 'ignore' }).status === 0;

/** Why nothing can be fuzzed here, or null; installs cargo-fuzz if need be. */
export function obstacle() {
  if (process.platform !== 'linux') return 'the fuzz targets are run on Linux';
  if (hasCargoFuzz()) return null;
  const installed = spawnSync('cargo', ['install', 'cargo-fuzz', '--locked', '--quiet'], { stdio: 'inherit' });
  return installed.status === 0 && hasCargoFuzz() ? null : 'cargo-fuzz is not installed, and could not be';
}

export const targets = () => readdirSync(join(FUZZ, 'fuzz_targets')).map((name) => name.replace(/\.rs$/, ''));

/**
 * Runs one target; what it did as one line, and whether it found nothing.
 * @param {string} target
 * @param {number} seconds
 * @returns {Promise<{ passed: boolean, line: string }>}
 */
function fuzz(target, seconds) {
  const corpus = join(FUZZ, 'corpus', target);
  mkdirSync(corpus, { recursive: true });
  const folders = [corpus, join(FUZZ, 'seeds', target)].filter((folder) => existsSync(folder));
  const args = [
    'fuzz',
    'run',
    '--fuzz-dir',
    FUZZ,
    '--sanitizer',
    'none',
    target,
    ...folders,
    '--',
    `-max_total_time=${seconds}`,
    ...LIMITS,
  ];
  return new Promise((done) => {
    const child = spawn('cargo', args, { cwd: FUZZ, env: ENVIRONMENT, stdio: ['ignore', 'ignore', 'pipe'] });
    let text = '';
    child.stderr.setEncoding('utf8').on('data', (chunk) => {
      text = (text + chunk).slice(-200_000);
    });
    child.on('error', (error) => done({ passed: false, line: `${target}: ${error.message}` }));
    child.on('close', (status) => {
      const runs = /Done (\d+) runs in (\d+) second/.exec(text);
      const end = /DONE\s+cov: (\d+) ft: (\d+) corp: (\d+)/.exec(text);
      if (status !== 0 || runs === null || end === null) {
        console.error(text.split('\n').slice(-60).join('\n'));
        done({ passed: false, line: `${target}: FAILED (status ${status})` });
        return;
      }
      const line = `${target}: ${runs[1]} runs in ${runs[2]} s, ${end[1]} edges, ${end[2]} features, ${end[3]} inputs kept: nothing found`;
      done({ passed: true, line });
    });
  });
}

/**
 * Whether all targets found nothing.
 * @param {{ seconds?: number, names?: string[] }} [options]
 */
export async function run({ seconds = 60, names = targets() } = {}) {
  // Build once for all, so that no target spends its time waiting for another's build.
  const built = spawnSync('cargo', ['fuzz', 'build', '--fuzz-dir', FUZZ, '--sanitizer', 'none'], {
    cwd: FUZZ,
    env: ENVIRONMENT,
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  if (built.status !== 0) return false;
  const results = await Promise.all(names.map((name) => fuzz(name, seconds)));
  for (const { line } of results) console.log(line);
  return results.every(({ passed }) => passed);
}

const OPTIONS = /** @type {const} */ ({
  seconds: { type: 'integer', min: 1, max: 10_000_000, default: 60, help: 'for each target' },
  targets: { type: 'string', value: 'NAMES', help: 'by commas (default all)' },
});

if (isMain(import.meta.url)) {
  await runMain('node scripts/fuzz.mjs [options]', OPTIONS, async (values) => {
    const names = values.targets?.split(',').filter(Boolean);
    const unknown = names?.filter((name) => !targets().includes(name)) ?? [];
    if (unknown.length > 0) throw new UsageError(`--targets ${unknown.join(',')}: there are ${targets().join(', ')}`);
    await chooseCargo();
    const reason = obstacle();
    if (reason !== null) throw new Error(reason);
    return (await run({ seconds: values.seconds, names })) ? 0 : 1;
  });
}
