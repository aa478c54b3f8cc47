// The package without a binary that loads, as its users meet it.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';

import { temporaryFolder } from './lib/folder.mjs';

const root = temporaryFolder();

/** The package with nothing native, in a folder of its own. @param {string} name */
function bare(name) {
  const folder = join(root, name, 'node_modules', 'helios-vk');
  mkdirSync(folder, { recursive: true });
  for (const file of ['package.json', 'binding.js', 'index.js', 'index.mjs', 'load-error.js'])
    cpSync(fileURLToPath(new URL(`../${file}`, import.meta.url)), join(folder, file));
  return folder;
}

/**
 * What a program sees that loads the package.
 * @param {string} folder @param {Record<string, string>} [environment] @param {string} [load]
 * @returns {{ message: string, code: string, platform: string, attempts: string[] }}
 */
function failure(folder, environment = {}, load = `require(${JSON.stringify(folder)})`) {
  // Node 20 reports the failure of an imported CommonJS module once more when it is caught: end before that.
  const script = `(async () => {
    const tell = (text) => { require('fs').writeSync(1, text); process.exit(); };
    try { ${load}; tell('loaded') } catch (e) {
      tell(JSON.stringify({ message: e.message, code: e.code, platform: e.platform, attempts: e.attempts })) } })()`;
  const { stdout, stderr } = spawnSync(process.execPath, ['-e', script], {
    encoding: 'utf8',
    env: { ...process.env, NAPI_RS_NATIVE_LIBRARY_PATH: '', ...environment },
  });
  assert.equal(stderr, '');
  assert.notEqual(stdout, 'loaded');
  return JSON.parse(stdout);
}

test('no binary at all: what was looked for, and what to do', () => {
  const folder = bare('none');
  for (const load of [undefined, `await import(${JSON.stringify(pathToFileURL(join(folder, 'index.mjs')).href)})`]) {
    const { message, code, platform, attempts } = failure(folder, {}, load);
    assert.equal(code, 'ERR_HELIOS_NO_BINARY');
    assert.deepEqual(attempts, [`./helios-vk.${platform}.node: not there`, `the package helios-vk-${platform}: not installed`]);
    for (const part of [folder, platform, process.versions.node, 'npm install --include=optional helios-vk@', ...attempts])
      assert.ok(message.includes(part), `"${message}" does not mention ${part}`);
    assert.doesNotMatch(message, /wasi|Require stack/);
  }
});

test('a binary that does not load: why', () => {
  const folder = bare('broken');
  const { platform } = failure(folder);
  writeFileSync(join(folder, `helios-vk.${platform}.node`), 'not a library');
  const { message, attempts } = failure(folder);
  assert.match(attempts[0], new RegExp(`helios-vk\\.${platform}\\.node`), 'the dynamic linker names the file');
  assert.doesNotMatch(attempts[0], /not there/);
  assert.match(message, /the binary is there but this system cannot load it/);
});

test('a path that the environment names', () => {
  const { message } = failure(bare('override'), { NAPI_RS_NATIVE_LIBRARY_PATH: '/no/such.node' });
  assert.match(message, /Looked in \/no\/such\.node/);
  assert.match(message, /NAPI_RS_NATIVE_LIBRARY_PATH is set.*unset/);
});

test('a clone that was not built', () => {
  const folder = bare('clone');
  writeFileSync(join(folder, 'Cargo.toml'), '');
  assert.match(failure(folder).message, /build it: node scripts\/bootstrap\.mjs/);
});

test('in a bundle, which has the code and no files', () => {
  const folder = join(root, 'bundle');
  mkdirSync(folder);
  for (const [from, to] of [
    ['load-error.js', 'server.cjs'],
    ['package.json', 'package.json'],
  ])
    cpSync(fileURLToPath(new URL(`../${from}`, import.meta.url)), join(folder, to));
  const load = `throw require(${JSON.stringify(join(folder, 'server.cjs'))}).loadError(new Error('no native binding'))`;
  const { code, message } = failure(folder, {}, load);
  assert.equal(code, 'ERR_HELIOS_NO_BINARY');
  assert.match(message, /keep helios-vk out of the bundle \(esbuild: --external:helios-vk; .*\) and install it where the bundle runs/);
  assert.doesNotMatch(message, /omit=optional|prebuilt/);
  // What esbuild puts in the place of `require` in a module.
  const index = readFileSync(new URL('../index.js', import.meta.url), 'utf8');
  writeFileSync(
    join(folder, 'module.mjs'),
    `const module = {};\nconst require = (name) => { throw Error(\`Dynamic require of "\${name}" is not supported\`); };\n${index}`,
  );
  const module = failure(folder, {}, `await import(${JSON.stringify(pathToFileURL(join(folder, 'module.mjs')).href)})`);
  assert.deepEqual([module.code, /keep it out/.test(module.message)], ['ERR_HELIOS_NO_BINARY', true]);
});
