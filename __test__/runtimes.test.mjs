// The table of runtimes in docs/packages.md.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { table, withTable } from '../scripts/platforms/runtimes-table.mjs';

const read = (/** @type {string} */ name) => readFileSync(new URL(`../docs/${name}`, import.meta.url), 'utf8');

test('the page has what docs/runtimes.json has', () => {
  const page = read('packages.md');
  const results = JSON.parse(read('runtimes.json'));
  assert.equal(withTable(page, results), page);
  for (const { date, version, ran, skipped } of Object.values(results)) {
    assert.match(date, /^\d{4}-\d\d-\d\d$/);
    assert.ok(skipped ? !ran : ran && version);
  }
});

test('a row says what passed, what does not and why, or why nothing ran', () => {
  const [one, skipped] = [
    { date: '2026-01-02', version: 'Bun 1.2.3', ran: '3 files | 4 tests passed', left: { 'no `gc`': 1, 'tail calls': 2 } },
    { date: '2026-01-03', skipped: 'npm could not install deno@2' },
  ];
  assert.deepEqual(table({ one, deno: skipped }).split('\n').slice(2), [
    '| Bun 1.2.3, 2026-01-02 | 3 files \\| 4 tests passed | 1 test: no `gc`<br>2 tests: tail calls |',
    '| deno, 2026-01-03 | skipped: npm could not install deno@2 |  |',
  ]);
  assert.throws(() => withTable('a page', {}), /no place for the table/);
});
