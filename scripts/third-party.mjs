#!/usr/bin/env node
// THIRD-PARTY.md: the crates that are part of the binary, with their licences. The npm package has no
// dependencies; build scripts, macros and test tools are not part of the binary.
//
//   node scripts/third-party.mjs            writes it
//   node scripts/third-party.mjs --check    fails if it is not up to date

import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { optionsOrExit } from '../bin/lib/options.mjs';
import { inAnyBinary } from './crates.mjs';

const REPOSITORY = dirname(dirname(fileURLToPath(import.meta.url)));
const FILE = join(REPOSITORY, 'THIRD-PARTY.md');
/** If a crate offers a choice, the first of these is used. */
const PREFERRED = ['MIT', 'Zlib', 'ISC', 'BSD-2-Clause', 'BSD-3-Clause', 'Unicode-3.0', 'Apache-2.0'];

/**
 * The text under which a crate is used, and the licence's name.
 * @param {import('./crates.mjs').Crate} crate
 * @returns {{ taken: string, text: string | null }}
 */
function licence({ name, license, license_file, manifest_path }) {
  const offered = (license ?? '').split(/\s*(?:\/|\bOR\b)\s*/).map((part) => part.replace(/[()]/g, ''));
  const taken = PREFERRED.find((each) => offered.includes(each)) ?? license ?? license_file;
  if (!taken) throw new Error(`${name} names no licence`);
  const folder = dirname(manifest_path);
  const files = readdirSync(folder).filter((file) => /^(licen[cs]e|copying|unlicense)/i.test(file));
  const word = taken.split('-')[0].toUpperCase();
  const chosen = license_file ?? files.find((file) => file.toUpperCase().includes(word)) ?? (files.length === 1 ? files[0] : null);
  return { taken, text: chosen ? readFileSync(join(folder, chosen), 'utf8').replace(/\r/g, '').trim() : null };
}

function generate() {
  const sorted = inAnyBinary();
  /** @type {Map<string, string[]>} */
  const texts = new Map();
  const rows = sorted.map((crate) => {
    const { taken, text } = licence(crate);
    const title = `${crate.name} ${crate.version}`;
    if (text) texts.set(text, [...(texts.get(text) ?? []), title]);
    const name = crate.repository ? `[${crate.name}](${crate.repository})` : crate.name;
    return `| ${name} | ${crate.version} | ${crate.license ?? crate.license_file} | ${taken}${text ? '' : ' (its package holds no text)'} |`;
  });
  const sections = [...texts].map(([text, names]) => `## ${names.join(', ')}\n\n\`\`\`text\n${text}\n\`\`\`\n`);
  return `# Third-party software

The crates that are a part of the prebuilt binaries, on any of the platforms, and their licences. Made by
\`node scripts/third-party.mjs\` from \`Cargo.lock\`; do not edit. The Rust standard library is a part too
(MIT OR Apache-2.0), and on musl its C library (MIT). The npm package has no dependencies.

| crate | version | licence | used under |
| --- | --- | --- | --- |
${rows.join('\n')}

${sections.join('\n')}`;
}

const { values } = optionsOrExit(
  'node scripts/third-party.mjs [options]',
  /** @type {const} */ ({
    check: { type: 'boolean', help: 'write nothing; fail if it is not up to date' },
  }),
);
const text = generate();
const crates = text.match(/^\| /gm)?.length ?? 0;
if (!values.check) {
  writeFileSync(FILE, text);
  console.log(`THIRD-PARTY.md: ${crates - 2} crates`);
} else if (readFileSync(FILE, 'utf8') === text) {
  console.log(`THIRD-PARTY.md is up to date: ${crates - 2} crates`);
} else {
  console.error('THIRD-PARTY.md is not up to date: run node scripts/third-party.mjs');
  process.exitCode = 1;
}
