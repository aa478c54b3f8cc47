// Every file of examples/ runs as it stands and prints what it says at its top. Those of helios-vk/nn: nn/examples.test.mjs.

import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { temporaryFolder } from './lib/folder.mjs';

const FOLDER = fileURLToPath(new URL('../examples/', import.meta.url));
const execute = promisify(execFile);

/** @param {string} name @param {string[]} args */
const run = (name, ...args) =>
  execute(process.execPath, [join(FOLDER, `${name}.mjs`), ...args], {
    // A test runner in a child would report to this one.
    env: { ...process.env, NODE_TEST_CONTEXT: undefined },
    timeout: 600_000,
  });

/** What each prints, behind the name of the device where it prints that. @type {Record<string, { args?: string[], prints: RegExp[] }>} */
const EXAMPLES = {
  axpy: { prints: [/^y\[0\] = 10, y\[999999\] = 10$/m] },
  cuda: {
    prints: [
      /^no CUDA here: .* (is not an NVIDIA GPU|cannot export buffers .*|does not run; .*|no libcuda\.so\.1)$|^CUDA found 499999500000, .*\nVulkan found 77 everywhere, /m,
    ],
  },
  // Few steps: what it learns in many is in docs/guide/finetune.md.
  finetune: {
    args: ['4', '4', '4', '8'],
    prints: [
      /^the novel: \d+ s\n {2}17 July 1864 is .*\n1821-03-24 before: 0 of 8$/m,
      /^all weights: \d+ s\n {2}17 July 1864 is .*\n1821-03-24 after: \d of 8$/m,
      /^an adapter: \d+ s\n {2}17 July 1864 is .*\n18210324 after: \d of 8$/m,
      /^1821-03-24 without the adapter: \d of 8$/m,
    ],
  },
  generate: {
    prints: [
      /^tyger tyger, burning bright, in the forests of the night; what immortal hand or eye could frame thy fearful symmetry\?$/m,
      /^"in the forests.*"\n"what immortal hand.*"\n"could frame thy.*"$/m,
      /^ended by stop: "[^"]*"$/m,
    ],
  },
  graph: { prints: [/^100 steps of 2 dispatches: x = 3\.0000\d\d$/m, /^[\d.]+ µs of host time for a launch$/m] },
  matmul: {
    prints: [
      /^f32 {5}largest error \d\.\de-\d$/m,
      ...['f16', 'bf16', 'bf16x3'].map((name) => new RegExp(`^${name} +(largest error|needs matrix)`, 'm')),
    ],
  },
  'own-kernel': { prints: [/pass 3\b/, /fail 0\b/] },
  profile: { prints: [/ 20 +matmul_f32/, / 20 +softmax_forward_f32/, /^host: batchExecuteAll 40 times/m] },
  promises: {
    prints: [
      /\n5 reads were asked for before the first came back\nafter 1 additions: 1\nafter 2 additions: 2\nafter 3 additions: 3\nafter 4 additions: 4\nafter 5 additions: 5\nthe device has finished\ngiven up: no longer wanted\n$/,
    ],
  },
};

/** Run in several processes, by the tests of `helios-vk/distributed`. */
const ELSEWHERE = ['data-parallel.mjs'];

test('every example is run here', () => {
  const files = readdirSync(FOLDER).filter((name) => name.endsWith('.mjs') && !name.startsWith('nn-') && !ELSEWHERE.includes(name));
  assert.deepEqual(
    files.sort(),
    Object.keys(EXAMPLES)
      .map((name) => `${name}.mjs`)
      .sort(),
  );
});

for (const [name, { args = [], prints }] of Object.entries(EXAMPLES)) {
  test(`examples/${name}.mjs`, async () => {
    const source = readFileSync(join(FOLDER, `${name}.mjs`), 'utf8');
    assert.ok(source.includes(`//   node ${name === 'own-kernel' ? '--test ' : ''}examples/${name}.mjs`), 'it says how to run it');
    const { stdout, stderr } = await run(name, ...args);
    assert.equal(stderr, '');
    for (const pattern of prints) assert.match(stdout, pattern);
  });
}

test('examples/profile.mjs writes the trace that it is asked for', async (t) => {
  const folder = temporaryFolder(t);
  const trace = join(folder, 'trace.json');
  const { stdout } = await run('profile', trace);
  const [, events] = /: (\d+) events$/m.exec(stdout) ?? [];
  const { traceEvents } = JSON.parse(readFileSync(trace, 'utf8'));
  assert.ok(Number(events) > 40 && traceEvents.length >= Number(events), `${events}, ${traceEvents.length}`);
});

test('the sources in the examples compile, and axpy runs what comes out', async (t) => {
  if (spawnSync('glslangValidator', ['--version'], { stdio: 'ignore' }).status !== 0) return t.skip('no glslangValidator');
  const folder = temporaryFolder(t);
  for (const name of ['axpy', 'own-kernel']) {
    const [source, compiled] = [join(folder, `${name}.comp`), join(folder, `${name}.spv`)];
    const { stdout } = await run(name, '--glsl');
    writeFileSync(source, stdout);
    const { status, stdout: log } = spawnSync('glslangValidator', ['-V', source, '-o', compiled], { encoding: 'utf8' });
    assert.equal(status, 0, log);
    if (name === 'axpy') assert.match((await run(name, compiled)).stdout, /^y\[0\] = 10, y\[999999\] = 10$/m);
  }
});
