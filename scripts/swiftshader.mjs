#!/usr/bin/env node
// SwiftShader, the software Vulkan driver of Chromium: a second driver to test with, beside Mesa's.
//
//   node scripts/swiftshader.mjs status        prints where it is; exit code 0 if it is there
//   node scripts/swiftshader.mjs create        fetches it (an 8 MB part of Debian's chromium-common)
//   node scripts/swiftshader.mjs run -- CMD…   fetches it if needed and runs CMD with no other driver
//
// Downloads the package with apt-get and unpacks two files from it; installs nothing. They are in
// $HELIOS_SWIFTSHADER, else ~/.cache/helios-vk/swiftshader.

import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';

import { fetchedMain } from './fetched.mjs';
import { cacheFolder, onPath } from './system.mjs';

const PACKAGE = 'chromium-common';
const INSIDE = './usr/lib/chromium';
const FILES = ['libvk_swiftshader.so', 'vk_swiftshader_icd.json'];

const folder = () => resolve(process.env.HELIOS_SWIFTSHADER ?? join(cacheFolder(), 'swiftshader'));
const complete = () => FILES.every((name) => existsSync(join(folder(), name)));
/** The manifest for VK_DRIVER_FILES. */
export const manifest = () => join(folder(), 'vk_swiftshader_icd.json');

/** Fetches the driver if it is missing. Returns why that is impossible here, or null. */
export function obstacle() {
  if (complete()) return null;
  if (process.platform !== 'linux') return 'SwiftShader is taken from a Debian package';
  if (!onPath('apt-get') || !onPath('dpkg-deb')) return 'no apt-get and dpkg-deb to take SwiftShader from Debian with';
  const work = mkdtempSync(join(tmpdir(), 'helios-swiftshader-'));
  try {
    // apt-get's own unprivileged user could not write to the folder.
    const download = spawnSync('apt-get', ['download', '-qq', '-o', 'APT::Sandbox::User=root', PACKAGE], { cwd: work, encoding: 'utf8' });
    const archive = readdirSync(work).find((name) => name.endsWith('.deb'));
    if (download.status !== 0 || archive === undefined) return `no package ${PACKAGE} here that apt-get could download (Ubuntu has none)`;
    const unpacked = spawnSync(
      'sh',
      ['-c', `dpkg-deb --fsys-tarfile "$1" | tar -x "$2" "$3"`, 'sh', archive, ...FILES.map((name) => `${INSIDE}/${name}`)],
      {
        cwd: work,
        encoding: 'utf8',
      },
    );
    const made = FILES.map((name) => join(work, INSIDE, name));
    if (unpacked.status !== 0 || !made.every(existsSync)) return `${PACKAGE} holds no SwiftShader: ${unpacked.stderr.trim()}`;
    mkdirSync(dirname(folder()), { recursive: true });
    const partial = `${folder()}.partial-${process.pid}`;
    mkdirSync(partial, { recursive: true });
    spawnSync('cp', [...made, partial]);
    if (!existsSync(folder())) renameSync(partial, folder());
    else rmSync(partial, { recursive: true });
    return complete() ? null : `${folder()} is there, but is not SwiftShader: remove it`;
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/** Runs a command with the loader on SwiftShader alone. @param {string[]} command @returns {number} its exit code */
function run([program, ...args]) {
  const env = { ...process.env, VK_DRIVER_FILES: manifest(), VK_ICD_FILENAMES: manifest() };
  const { status, error } = spawnSync(program, args, { stdio: 'inherit', env });
  if (error) throw error;
  return status ?? 1;
}

fetchedMain(import.meta.url, 'swiftshader', {
  found: () => (complete() ? manifest() : undefined),
  missing: () => `${folder()}: not fetched yet`,
  create: obstacle,
  run,
});
