// ONNX's backend tests, all in one process: a stage of scripts/test.mjs.
//
//   node packages/onnx/test/backend.mjs             fails if a test fails that failing.json does not list, if one passes that it lists, or
//                                                   if docs/onnx-operators.md says something else
//   node packages/onnx/test/backend.mjs --update    writes both; a reason that failing.json has for a test stays
//   node packages/onnx/test/backend.mjs --only RE   runs the tests whose name matches, and says what fails

import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

import { TESTS, obstacle } from '../../../scripts/onnx.mjs';
import { readCase, runTest } from './lib/node-tests.mjs';
import { tableOf } from './lib/table.mjs';

const HERE = dirname(fileURLToPath(import.meta.url));
const LIST = join(HERE, 'failing.json');
const TABLE = join(HERE, '../../../docs/onnx-operators.md');

const { values } = parseArgs({ options: { update: { type: 'boolean' }, only: { type: 'string' } } });
const reason = obstacle();
if (reason !== null) throw new Error(reason);

const only = values.only === undefined ? undefined : new RegExp(values.only);
/** @type {import('./lib/node-tests.mjs').Case[]} */
const tests = JSON.parse(readFileSync(join(TESTS, 'tests.json'), 'utf8')).filter(
  (/** @type {any} */ test) => only?.test(test.name) ?? true,
);
const results = [];
for (const test of tests) results.push({ ...readCase(TESTS, test), reason: await runTest(TESTS, test) });

const counted = results.filter(({ leftOut }) => leftOut === undefined);
const passing = counted.filter((each) => each.reason === null);
console.log(`${passing.length} of ${counted.length} tests pass; ${results.length - counted.length} are left out`);
if (only) {
  for (const each of results)
    if (each.reason !== null) console.log(`${each.name}${each.leftOut ? ` (left out: ${each.leftOut})` : ''}: ${each.reason}`);
} else {
  /** @type {Record<string, string>} */
  const listed = existsSync(LIST) ? JSON.parse(readFileSync(LIST, 'utf8')) : {};
  const failing = Object.fromEntries(counted.flatMap(({ name, reason }) => (reason === null ? [] : [[name, listed[name] ?? reason]])));
  const table = tableOf(results);
  if (values.update) {
    writeFileSync(LIST, `${JSON.stringify(failing, undefined, 2)}\n`);
    writeFileSync(TABLE, table);
  } else {
    const surprises = [
      ...Object.keys(failing)
        .filter((name) => !Object.hasOwn(listed, name))
        .map((name) => `fails: ${name}: ${failing[name]}`),
      ...Object.keys(listed)
        .filter((name) => !Object.hasOwn(failing, name))
        .map((name) => `passes now: ${name}`),
    ];
    if (existsSync(TABLE) && readFileSync(TABLE, 'utf8') !== table) surprises.push('docs/onnx-operators.md is not what this run made');
    for (const each of surprises) console.error(each);
    if (surprises.length > 0) {
      console.error(`${surprises.length} differences; --update writes packages/onnx/test/failing.json and docs/onnx-operators.md anew`);
      process.exitCode = 1;
    }
  }
}
