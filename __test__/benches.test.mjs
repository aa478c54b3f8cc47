import { test } from 'node:test';
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { OWN_ADDON } from '../benches/lib/addon.mjs';

const run = promisify(execFile);
const environment = { ...process.env };
delete environment.NODE_TEST_CONTEXT;
const addon = process.env.HELIOS_TEST_ADDON ?? OWN_ADDON;
/** @param {string} name @param {string[]} args */
const bench = (name, ...args) =>
  run(process.execPath, [fileURLToPath(new URL(`../benches/${name}`, import.meta.url)), ...args], { env: environment });

test('the microbenchmarks of the calls run, check their results and compare', async () => {
  const { stdout } = await bench('calls.mjs', '--quick', '--json', '--addon', addon, '--baseline', addon);
  const { results, baseline, ratios } = JSON.parse(stdout);
  const names = Object.keys(results);
  for (const call of ['createBuffer', 'destroyBuffer', 'uploadBuffer', 'readBuffer', 'batchExecuteAll', 'batchDispatch', 'waitTimeline']) {
    assert.ok(names.some((name) => name.startsWith(call)), call);
  }
  for (const name of names) {
    assert.ok(results[name].us > 0 && baseline.results[name].us > 0, name);
    assert.equal(ratios[name], baseline.results[name].us / results[name].us);
  }
});
