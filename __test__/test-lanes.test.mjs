// Stages of scripts/test.mjs side by side.

import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { runLanes, slowest } from '../scripts/test-lanes.mjs';
import { temporaryFolder } from './lib/folder.mjs';

const folder = temporaryFolder();
const log = join(folder, 'log');

/** Processes that write when they begin and end into one file, and wait for lines of it; the stage's name says what they do. */
const PROGRAM = `
  const { appendFileSync, readFileSync } = require('node:fs');
  const [log, name, waits, result, status] = process.argv.slice(1);
  const note = (what) => appendFileSync(log, what + ' ' + name + '\\n');
  note('begin');
  console.log(name + ' begins');
  const look = () => {
    if (waits && !readFileSync(log, 'utf8').includes(waits)) return setTimeout(look, 5);
    console.log(name + ' ends');
    note('end');
    if (result) process.send({ name, result, wall: 1, processor: 2, failures: [], files: [{ file: name, wall: 1, processor: name.length }] });
    process.exitCode = Number(status ?? 0);
  };
  look();`;

/** @param {import('../scripts/test-lanes.mjs').Stage[]} stages @param {Record<string, string[]>} does @param {number} [lanes] */
async function run(stages, does, lanes = 2) {
  writeFileSync(log, '');
  let output = '';
  const command = (/** @type {string} */ name) => [process.execPath, '-e', PROGRAM, log, name, ...(does[name] ?? ['', 'passed'])];
  const outcomes = await runLanes(stages, { lanes, command, write: (text) => (output += text) });
  return { outcomes, lines: output.trimEnd().split('\n'), notes: readFileSync(log, 'utf8').trimEnd().split('\n') };
}

test('two stages at a time; output is whole, in the order of their beginnings', async () => {
  const stages = ['a', 'b', 'c'].map((name) => ({ name }));
  // `a` ends only once `c` has begun, which takes the lane of `b`.
  const { outcomes, lines, notes } = await run(stages, { a: ['begin c', 'passed'], c: ['end a', 'passed'] });
  assert.deepEqual(
    outcomes.map(({ name, result }) => [name, result]),
    [
      ['a', 'passed'],
      ['b', 'passed'],
      ['c', 'passed'],
    ],
  );
  assert.deepEqual(
    lines,
    ['a', 'b', 'c'].flatMap((name) => [`${name} begins`, `${name} ends`]),
  );
  assert.ok(notes.indexOf('end b') < notes.indexOf('begin c'), notes.join());
  assert.deepEqual(
    slowest(outcomes).map((line) => line.split(/ +/).slice(0, 3)),
    ['a', 'b', 'c'].map((name) => ['slow', name, '1.0']),
  );
});

test('stages that hold the same are never side by side, and what comes after them is begun meanwhile', async () => {
  const stages = [{ name: 'a', holds: 'target' }, { name: 'b', holds: 'target' }, { name: 'c' }];
  const { notes, outcomes } = await run(stages, { a: ['end c', 'passed'] });
  assert.deepEqual([...notes].sort(), ['begin a', 'begin b', 'begin c', 'end a', 'end b', 'end c']);
  assert.ok(notes.indexOf('end a') < notes.indexOf('begin b'), notes.join());
  assert.equal(outcomes.length, 3);
});

test('a stage beside the lanes is begun first, takes none of them, and is shown when it is over', async () => {
  const stages = [{ name: 'a' }, { name: 'b' }, { name: 'long', beside: true }];
  const { lines, outcomes } = await run(stages, { long: ['end b', 'passed'], a: ['begin long', 'passed'] }, 1);
  assert.deepEqual(
    lines,
    ['a', 'b', 'long'].flatMap((name) => [`${name} begins`, `${name} ends`]),
  );
  assert.deepEqual(
    outcomes.map(({ name }) => name),
    ['a', 'b', 'long'],
  );
});

test('a stage whose process says nothing, ends with an error or does not start has failed', async () => {
  const stages = ['silent', 'passes', 'lies', 'skips'].map((name) => ({ name }));
  const does = { silent: [], lies: ['', 'passed', '3'], skips: ['', 'skipped'] };
  const { outcomes } = await run(stages, does);
  assert.deepEqual(
    outcomes.map(({ result }) => result),
    ['failed', 'passed', 'failed', 'skipped'],
  );
  const missing = await runLanes([{ name: 'a' }], { lanes: 1, command: () => [join(folder, 'no-such-program')], write: () => {} });
  assert.deepEqual(
    missing.map(({ result }) => result),
    ['failed'],
  );
});
