#!/usr/bin/env node
// Checks what the package is made of: licences, advisories, sources; writes bills of materials.
//
//   node scripts/supply.mjs [--bills] [--require] [--out FOLDER]
//
//   --bills     only write the bills of materials
//   --require   fail if something cannot be checked here (in CI)
//   --out       where the bills of materials go (default: target/sbom)
//
// cargo-deny is used where it is installed (cargo install --locked cargo-deny).

import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

import { optionsOrExit } from '../bin/lib/options.mjs';
import { billOfCrates } from './crates.mjs';
import { PACKAGES, billOfPackage } from './release-plan.mjs';

const REPOSITORY = dirname(dirname(fileURLToPath(import.meta.url)));
const { values } = optionsOrExit(
  'node scripts/supply.mjs [options]',
  /** @type {const} */ ({
    bills: { type: 'boolean', help: 'only write the bills of materials' },
    require: { type: 'boolean', help: 'fail if something cannot be checked here (in CI)' },
    out: {
      type: 'string',
      value: 'FOLDER',
      path: 'output-folder',
      default: join(REPOSITORY, 'target/sbom'),
      help: 'folder for the bills of materials',
    },
  }),
);
const out = resolve(values.out);
let failures = 0;
let unchecked = 0;

/** @param {string[]} command */
function attempt([command, ...args]) {
  const { status, stdout, stderr, error } = spawnSync(command, args, {
    cwd: REPOSITORY,
    encoding: 'utf8',
    maxBuffer: 64 << 20,
    shell: process.platform === 'win32',
  });
  return { passed: !error && status === 0, stdout: stdout ?? '', text: `${stdout ?? ''}${stderr ?? ''}${error?.message ?? ''}` };
}

/** @param {string} what @param {string} detail */
function passed(what, detail) {
  console.log(`✓ ${what}: ${detail}`);
}

/** @param {string} what @param {string} text */
function failed(what, text) {
  failures++;
  console.log(`✗ ${what}\n${text.trimEnd()}`);
}

/** @param {string} what @param {string} reason */
function skipped(what, reason) {
  unchecked++;
  console.log(`- ${what}: not checked: ${reason}`);
}

/** What the tool says last, on one line. @param {string} text */
const verdict = (text) => text.trimEnd().split('\n').at(-1) ?? '';

function licenceList() {
  const { passed: good, text } = attempt([process.execPath, 'scripts/third-party.mjs', '--check']);
  if (good) passed('licences of what the binary holds', verdict(text));
  else failed('licences of what the binary holds', text);
}

/** The date of the newest advisory that cargo-deny knows of. */
function advisoriesOf() {
  const folder = join(process.env.CARGO_HOME ?? join(homedir(), '.cargo'), 'advisory-dbs');
  const dates = (existsSync(folder) ? readdirSync(folder) : [])
    .map((name) => attempt(['git', '-C', join(folder, name), 'log', '-1', '--format=%cs']))
    .flatMap(({ passed: good, stdout }) => (good ? [stdout.trim()] : []));
  return dates.sort().at(-1) ?? 'an unknown date';
}

function deny() {
  if (!attempt(['cargo', 'deny', '--version']).passed) return skipped('cargo deny', 'cargo-deny is not installed');
  const whole = attempt(['cargo', 'deny', 'check']);
  if (whole.passed) return passed('cargo deny', `${verdict(whole.text)}; advisories of ${advisoriesOf()}`);
  if (!/failed to fetch advisory database/.test(whole.text)) return failed('cargo deny', whole.text);
  const rest = attempt(['cargo', 'deny', 'check', 'bans', 'licenses', 'sources']);
  if (rest.passed) passed('cargo deny', verdict(rest.text));
  else failed('cargo deny', rest.text);
  skipped('cargo deny, advisories', 'the advisory database cannot be fetched');
}

function audit() {
  // What users install: without dependencies there is nothing to ask the registry.
  const { dependencies = {} } = JSON.parse(readFileSync(join(REPOSITORY, 'package.json'), 'utf8'));
  const names = Object.keys(dependencies);
  if (names.length > 0) failed('dependencies of the package', `there should be none, there are ${names.join(', ')}`);
  else passed('dependencies of the package', 'none');
  for (const [what, ...flags] of [['npm audit, as installed', '--omit=dev'], ['npm audit, with the tools']]) {
    const { passed: good, text, stdout } = attempt(['npm', 'audit', '--audit-level=low', ...flags]);
    if (good) passed(what, verdict(stdout));
    else if (/audit endpoint returned an error|ENOTFOUND|EAI_AGAIN/.test(text)) skipped(what, 'the registry answers no audits');
    else failed(what, text);
  }
}

function bills() {
  mkdirSync(out, { recursive: true });
  const manifest = (/** @type {string} */ folder) => JSON.parse(readFileSync(join(REPOSITORY, folder, 'package.json'), 'utf8'));
  const names = ['', ...PACKAGES].map((folder) => manifest(folder).name);
  const npm = attempt(['npm', 'sbom', '--package-lock-only', '--omit=dev', '--sbom-format=cyclonedx']);
  for (const name of names) {
    const what = `bill of materials of ${name}`;
    if (!npm.passed) failed(what, npm.text);
    else write(what, `${name.replace(/^@/, '').replace('/', '-')}.npm.cdx.json`, billOfPackage(JSON.parse(npm.stdout), name, names));
  }
  const what = 'bill of materials of the binaries';
  if (!attempt(['cargo', '--version']).passed) return skipped(what, 'no cargo');
  write(what, 'helios-vk.crates.cdx.json', billOfCrates());
}

/** @param {string} what @param {string} name @param {{ components?: unknown[] }} bill */
function write(what, name, bill) {
  writeFileSync(join(out, name), `${JSON.stringify(bill, null, 2)}\n`);
  passed(what, `${bill.components?.length ?? 0} components, ${join(out, name)}`);
}

if (!values.bills) {
  licenceList();
  deny();
  audit();
}
bills();
if (failures > 0 || (values.require && unchecked > 0)) process.exitCode = 1;
