// The package as its users load it.

import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { test } from 'node:test';

import * as named from 'helios-vk';
import native from 'helios-vk';

const require = createRequire(import.meta.url);

test('require and import give the same native module', () => {
  assert.equal(require('helios-vk'), native);
});

test('require gives the modules that import gives, in a checkout in which nothing was made', async (t) => {
  const features = /** @type {any} */ (process.features);
  if (!features.require_module) return t.skip('this version of Node takes cjs/, which `npm run setup` makes');
  for (const entry of ['kernels', 'nn', 'distributed']) {
    assert.equal(require(`helios-vk/${entry}`), await import(`helios-vk/${entry}`), entry);
  }
});

test('every call can be imported by name', () => {
  const missing = Object.keys(native).filter((name) => !name.startsWith('__') && !(name in named));
  assert.deepEqual(missing, []);
  for (const [name, value] of Object.entries(named)) {
    if (name !== 'default' && name !== 'module.exports') assert.equal(value, /** @type {any} */ (native)[name], name);
  }
});

test('the kernels are a part of the package', async () => {
  const { createKernels } = await import('helios-vk/kernels');
  assert.equal(typeof createKernels, 'function');
});

test('installing runs no script of ours', () => {
  const { scripts } = require('helios-vk/package.json');
  for (const name of ['preinstall', 'install', 'postinstall', 'prepare']) assert.ok(!(name in scripts), name);
});

test('the package has no dependencies but its own binaries', () => {
  /** @type {Record<string, any>} */
  const manifest = require('helios-vk/package.json');
  const { name, dependencies = {}, optionalDependencies = {}, peerDependencies = {} } = manifest;
  assert.deepEqual({ ...dependencies, ...peerDependencies }, {});
  for (const part of Object.keys(optionalDependencies)) assert.ok(part.startsWith(`${name}-`), part);
});

test('every file that the package names is there', () => {
  const { files } = require('helios-vk/package.json');
  // cjs/ is made when the package is packed: consumer.test.mjs.
  for (const file of files) if (file !== 'cjs/') assert.ok(existsSync(new URL(`../${file}`, import.meta.url)), file);
});

test('the lock file names no download address', () => {
  // Links to folders of the repository are there by their paths.
  assert.doesNotMatch(readFileSync(new URL('../package-lock.json', import.meta.url), 'utf8'), /"resolved": "[a-z+]+:/);
});
