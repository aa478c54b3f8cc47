// Which stage of scripts/test.mjs runs which test files: what one leaves out, another runs.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { DISTRIBUTED, FILES, NOT_OF_THE_DEVICE, packageTests, testFiles } from '../scripts/test-files.mjs';

const ofTheDevice = testFiles().filter((file) => !NOT_OF_THE_DEVICE.test(file));
/** Files that none of the stages runs. @param {string[]} files @param {(keyof typeof FILES)[]} stages */
function left(files, stages, full = false) {
  const run = new Set(stages.flatMap((stage) => FILES[stage](full)));
  return files.filter((file) => !run.has(file));
}
/** @param {string[]} files */
const names = (files) => files.map((file) => file.replace(/^.*\/|\.test\.mjs$/g, '')).sort();

test('every file runs on the default device, and once where both tiers run', () => {
  for (const full of [false, true]) assert.deepEqual(left(testFiles(), ['js', 'js-slow', 'packages'], full), []);
  assert.deepEqual(
    FILES.js(true).filter((file) => FILES['js-slow']().includes(file)),
    [],
  );
  assert.equal(
    testFiles().some((file) => DISTRIBUTED.includes(file)),
    false,
  );
});

test('every file of a package runs in one of the tiers', () => {
  const files = ['alpha-backend', 'lm', 'onnx'].flatMap(packageTests);
  assert.ok(files.length > 40, `${files.length} files`);
  assert.deepEqual(left(files, ['packages', 'js-slow']), []);
  assert.deepEqual(
    files.filter((file) => FILES.packages().includes(file) && FILES['js-slow']().includes(file)),
    [],
  );
});

test('every file of the device runs under a validation layer, but where the layer would be what is tested', () => {
  assert.deepEqual(names(left(ofTheDevice, ['validation', 'validation-slow', 'mesa-validation'], true)), ['exits-compiling']);
});

test('on the newest driver every file of the device runs once, but ends of runs and what the host does', () => {
  const [runs, host] = [
    ['gpt-ends', 'train-checkpoints', 'train-run'],
    ['faults', 'passes', 'recompute', 'shuffle'],
  ];
  assert.deepEqual(names(left(ofTheDevice, ['mesa', 'mesa-validation'])), [...runs, ...host, 'gpt-train'].sort());
  const twice = FILES.mesa().filter((file) => FILES['mesa-validation']().includes(file));
  assert.deepEqual(twice, []);
});

test('SwiftShader runs every file of kernels, of calls and of what lavapipe alone promises', () => {
  const out = names(left(ofTheDevice, ['swiftshader']));
  for (const name of ['ops', 'math', 'types', 'matmul', 'attention', 'ordering', 'safe-mode']) assert.ok(!out.includes(name), name);
});
