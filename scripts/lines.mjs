#!/usr/bin/env node
// Counts the lines of src/ by room, and of crates/, without tests.
//
//   node scripts/lines.mjs [--json]

import { readFileSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { isMain, runMain } from '../bin/lib/options.mjs';

const REPOSITORY = dirname(dirname(fileURLToPath(import.meta.url)));

/** @typedef {{ code: number, comments: number, blank: number }} Lines */

/**
 * Lines of a Rust source, without the module of tests at its end.
 * @param {string} text
 * @returns {Lines}
 */
export function linesOf(text) {
  const lines = text
    .replace(/#\[cfg\(test\)\]\s*mod \w+ \{[^]*$/, '')
    .trimEnd()
    .split('\n')
    .map((line) => line.trim());
  const blank = lines.filter((line) => line === '').length;
  const comments = lines.filter((line) => line.startsWith('//')).length;
  return { code: lines.length - blank - comments, comments, blank };
}

/**
 * Lines of every source below a folder that is not a test's, summed by the first part of its path there.
 * @param {string} folder from the root of the repository
 * @returns {Map<string, Lines>}
 */
export function linesByRoom(folder) {
  /** @type {Map<string, Lines>} */
  const rooms = new Map();
  for (const name of readdirSync(join(REPOSITORY, folder), { recursive: true, encoding: 'utf8' }).sort()) {
    const parts = name.replaceAll('\\', '/').split('/');
    if (!name.endsWith('.rs') || parts.includes('tests') || parts.at(-1) === 'tests.rs') continue;
    const room = parts[0].replace(/\.rs$/, '');
    const { code, comments, blank } = linesOf(readFileSync(join(REPOSITORY, folder, name), 'utf8'));
    const sum = rooms.get(room) ?? { code: 0, comments: 0, blank: 0 };
    rooms.set(room, { code: sum.code + code, comments: sum.comments + comments, blank: sum.blank + blank });
  }
  return rooms;
}

/** @param {Iterable<Lines>} parts @returns {Lines} */
export function total(parts) {
  const sum = { code: 0, comments: 0, blank: 0 };
  for (const { code, comments, blank } of parts) {
    sum.code += code;
    sum.comments += comments;
    sum.blank += blank;
  }
  return sum;
}

/** @param {{ json?: boolean }} values */
function main({ json }) {
  const rooms = [...linesByRoom('src')];
  rooms.push(['src/', total(rooms.map(([, lines]) => lines))]);
  for (const [name, lines] of linesByRoom('crates')) rooms.push([`crates/${name}`, lines]);
  if (json) return console.log(JSON.stringify(Object.fromEntries(rooms)));
  const row = (/** @type {string} */ name, /** @type {(string | number)[]} */ cells) =>
    console.log(name.padEnd(20) + cells.map((cell) => String(cell).padStart(10)).join(''));
  row('', ['code', 'comments', 'blank', 'all']);
  for (const [name, { code, comments, blank }] of rooms) row(name, [code, comments, blank, code + comments + blank]);
}

const OPTIONS = /** @type {const} */ ({ json: { type: 'boolean', help: 'print JSON' } });
if (isMain(import.meta.url)) await runMain('node scripts/lines.mjs [options]', OPTIONS, main);
