// What the binaries of other platforms are checked with: the reader of macOS's libraries, the shim for musl, the table.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { eachFile, summary } from '../scripts/platforms/by-file.mjs';
import { readMachO } from '../scripts/platforms/macho.mjs';
import { PAGE, RESULTS, readResults, table, withTable } from '../scripts/platforms/table.mjs';
import { temporaryFolder } from './lib/folder.mjs';

const repository = new URL('..', import.meta.url);
const PAGE_BYTES = 4096;

/** @param {number[]} words */
const words = (...words) => {
  const bytes = Buffer.alloc(4 * words.length);
  for (const [i, word] of words.entries()) bytes.writeUInt32LE(word >>> 0, 4 * i);
  return bytes;
};

/** @param {number[]} words */
const big = (...words) => {
  const bytes = Buffer.alloc(4 * words.length);
  for (const [i, word] of words.entries()) bytes.writeUInt32BE(word >>> 0, 4 * i);
  return bytes;
};

/** @param {Buffer} bytes @param {number} length */
const padded = (bytes, length) => Buffer.concat([bytes, Buffer.alloc(length - bytes.length)]);

/**
 * A library for macOS 11.2 that links to libSystem, takes `_malloc` from there, looks `_napi_throw` up, and defines `_own`.
 * @param {{ flags?: number, processor?: number }} [options]
 */
function library({ flags = 2, processor = 0x0100000c } = {}) {
  const names = Buffer.from('\0_malloc\0_napi_throw\0_own\0');
  const name = padded(Buffer.from('/usr/lib/libSystem.B.dylib'), 32);
  const symbol = (/** @type {number} */ at, /** @type {number} */ type, /** @type {number} */ library) =>
    Buffer.concat([words(at), Buffer.from([type, 0, 0, library]), words(0, 0)]);
  const header = 32 + (24 + 32) + 24 + 24 + 16;
  const table = Buffer.concat([symbol(1, 0x01, 1), symbol(9, 0x01, 0xfe), symbol(21, 0x0f, 0)]);
  // More than a page, the last of which is not full.
  const code = header + table.length + names.length + PAGE_BYTES;
  const file = Buffer.concat([
    words(0xfeedfacf, processor, 0, 6, 4, header - 32, 0, 0),
    Buffer.concat([words(0xc, 56, 24, 0, 0, 0), name]),
    words(0x32, 24, 1, 0x000b0200, 0x000b0300, 0),
    words(0x2, 24, header, 3, header + table.length, names.length),
    words(0x1d, 16, code, 0),
    table,
    names,
    Buffer.alloc(PAGE_BYTES, 7),
  ]);
  const pages = Math.ceil(code / PAGE_BYTES);
  const hashes = Array.from({ length: pages }, (_, i) =>
    createHash('sha256')
      .update(file.subarray(i * PAGE_BYTES, (i + 1) * PAGE_BYTES))
      .digest(),
  );
  const directory = Buffer.concat([
    big(0xfade0c02, 44 + 32 * pages, 0x20400, flags, 44, 0, 0, pages, code),
    Buffer.from([32, 2, 0, 12]),
    big(0),
    ...hashes,
  ]);
  return Buffer.concat([file, big(0xfade0cc0, 20 + directory.length, 1, 0, 20), directory]);
}

test('of a library for macOS: processor, oldest system, libraries, symbols, signature', () => {
  assert.deepEqual(readMachO(library()), {
    processor: 'arm64',
    oldest: '11.2',
    libraries: ['/usr/lib/libSystem.B.dylib'],
    undefinedSymbols: ['_malloc'],
    looked: ['_napi_throw'],
    signature: 'ad-hoc',
  });
  assert.equal(readMachO(library({ processor: 0x01000007 })).processor, 'x64');
  assert.equal(readMachO(library({ flags: 0 })).signature, 'certificate');
});

test('a library for macOS whose bytes are not those that were signed', () => {
  for (const [page, at] of [
    [0, 100],
    [1, PAGE_BYTES + 3],
  ]) {
    const changed = library();
    changed[at] ^= 1;
    assert.throws(() => readMachO(changed), new RegExp(`page ${page} is not what was signed`));
  }
  const end = library();
  end.writeUInt32LE(end.readUInt32LE(32 + 56 + 24 + 24 + 8) + 4, 32 + 56 + 24 + 24 + 8);
  assert.throws(() => readMachO(end), /the signature is none|covers/);
  assert.throws(() => readMachO(Buffer.from('\x7fELF'.padEnd(64))), /not a 64-bit Mach-O file/);
  assert.throws(() => readMachO(library({ processor: 7 })), /unknown processor \(0x7\)/);
});

test('the table in docs/packages.md is that of the newest results, and has every platform of the package', () => {
  const results = readResults(new URL(RESULTS, repository));
  const page = readFileSync(new URL(PAGE, repository), 'utf8');
  const { napi } = JSON.parse(readFileSync(new URL('package.json', repository), 'utf8'));
  const targets = [...page.matchAll(/^\| `([\w-]+)`.*\|$/gm)].map(([, target]) => target);
  assert.deepEqual([...targets].sort(), [...napi.targets].sort());
  assert.equal(withTable(page, results, targets), page, `${PAGE} is not current: node scripts/platforms.mjs --record`);
});

test('a row says what was built and what ran, or why not', () => {
  const results = {
    'a-b-c': {
      date: '2026-01-02',
      bytes: 12_345_678,
      toolchain: 'Rust 1.2',
      needs: ['glibc 2.17', 'no more'],
      runs: [{ what: 'doctor', on: 'Node 20 | x', result: 'no fault' }],
    },
    'd-e-f': { date: '2026-01-02', skipped: 'no rustup', needs: [], runs: [] },
  };
  const rows = table(results, ['a-b-c', 'd-e-f', 'g-h-i']).split('\n');
  assert.deepEqual(rows.slice(2), [
    '| `a-b-c`, 2026-01-02 | 12.3 MB with Rust 1.2; glibc 2.17; no more | doctor (Node 20 \\| x): no fault |',
    '| `d-e-f`, 2026-01-02 | no | skipped: no rustup |',
    '| `g-h-i` | | no run was recorded yet |',
  ]);
  assert.throws(() => withTable('no place', {}, []), /has no place for the table/);
});

test('files under QEMU: one that failed or has changed runs again, one that passed is left', async (t) => {
  const folder = temporaryFolder(t);
  const stamp = join(folder, 'tests.json');
  const [good, changing, bad] = ['good', 'changing', 'bad'].map((name) => join(folder, name));
  const passes = "echo '# pass 3\n# skipped 1'; exit 0";
  writeFileSync(good, passes);
  writeFileSync(changing, passes);
  writeFileSync(bad, 'exit 1');
  /** @type {string[]} */
  let begun = [];
  const command = (/** @type {string} */ file) => ['sh', '-c', 'echo "$1" >>"$2"; . "$1"', 'sh', file, join(folder, 'begun')];
  const turn = async (/** @type {boolean} */ resumes, minutes = 5) => {
    writeFileSync(join(folder, 'begun'), '');
    const outcome = await eachFile([good, changing, bad], command, { minutes, stamp, resumes });
    begun = readFileSync(join(folder, 'begun'), 'utf8').split('\n').filter(Boolean).sort();
    return outcome;
  };

  const first = await turn(true);
  assert.deepEqual(first.failed, [bad]);
  assert.deepEqual(begun, [bad, changing, good]);
  assert.match(summary(first), /^6 tests passed, 2 skipped; the files took \d+ minutes$/);

  writeFileSync(changing, passes.replace('3', '5'));
  writeFileSync(bad, passes);
  const second = await turn(true);
  assert.deepEqual(second.failed, []);
  assert.deepEqual(begun, [bad, changing]);
  assert.match(summary(second), /^11 tests passed, 3 skipped/);

  await turn(true);
  assert.deepEqual(begun, []);
  await turn(false);
  assert.deepEqual(begun, [bad, changing, good]);
  const none = await turn(false, 0);
  assert.deepEqual(none.unseen, [good, changing, bad]);
  assert.match(summary(none), /^0 tests passed, 0 skipped; .*; 3 were not begun: /);
});
