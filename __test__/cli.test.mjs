// The command line as its users run it: `helios-vk doctor`, `link`, `unlink`. What it decides for other
// machines than this one is in cli-decisions.test.mjs.

import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import {
  accessSync,
  constants,
  copyFileSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { basename, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { temporaryFolder } from './lib/folder.mjs';

const require = createRequire(import.meta.url);
const CLI = fileURLToPath(new URL('../bin/helios-vk.mjs', import.meta.url));
const { version, bin } = require('helios-vk/package.json');
/** The package's own binary. */
const ADDON = (() => {
  require('helios-vk');
  return realpathSync(String(Object.keys(require.cache).find((file) => file.endsWith('.node'))));
})();
const linux = process.platform === 'linux';
const folders = temporaryFolder();

let made = 0;
/** A new, empty folder. */
function folder(name = 'folder') {
  const path = join(folders, `${++made}`, name);
  mkdirSync(path, { recursive: true });
  return path;
}

/** @typedef {{ status: number, stdout: string, stderr: string }} Outcome */

/**
 * @param {string[]} args
 * @param {Record<string, string | undefined>} [changes] of the environment; undefined takes away
 * @returns {Promise<Outcome>}
 */
function cli(args, changes = {}) {
  /** @type {Record<string, string | undefined>} */
  const env = { ...process.env, TERM: 'xterm-256color', HELIOS_VALIDATION: undefined, HELIOS_NATIVE_ADDON: undefined, ...changes };
  for (const name of Object.keys(env)) if (env[name] === undefined) delete env[name];
  return new Promise((done) => {
    execFile(process.execPath, [CLI, ...args], { env, encoding: 'utf8' }, (error, stdout, stderr) =>
      done({ status: error ? Number(error.code ?? -1) : 0, stdout, stderr }),
    );
  });
}

/**
 * @param {string[]} args
 * @param {Record<string, string | undefined>} [changes]
 * @returns {Promise<{ status: number, json: any }>}
 */
async function json(args, changes) {
  const { status, stdout, stderr } = await cli([...args, '--json'], changes);
  assert.equal(stderr, '');
  return { status, json: JSON.parse(stdout) };
}

/**
 * An addon of JS around the real one, which index.js loads in its place.
 * @param {string} overrides properties as the text of an object's body; `real` is the real one
 */
function pretend(overrides) {
  const file = join(folder(), 'addon.cjs');
  writeFileSync(
    file,
    `
    const real = require(${JSON.stringify(ADDON)});
    module.exports = Object.assign(Object.create(real), { ${overrides} });
  `,
  );
  return { NAPI_RS_NATIVE_LIBRARY_PATH: file };
}

test('help, version, and wrong command lines', async () => {
  const help = await cli(['--help']);
  assert.equal(help.status, 0);
  for (const word of ['doctor', 'link CHECKOUT', 'unlink CHECKOUT', '--json']) assert.ok(help.stdout.includes(word), word);
  assert.equal((await cli(['--version'])).stdout, `${version}\n`);
  assert.deepEqual((await json(['--version'])).json, { name: 'helios-vk', version });

  for (const [args, words] of /** @type {Array<[string[], RegExp]>} */ ([
    [[], /a command is missing/],
    [['heal'], /heal: no such command/],
    [['doctor', 'now'], /doctor takes no argument, got now/],
    [['link'], /link takes the folder of a trainer checkout/],
    [['unlink', 'a', 'b'], /unlink takes the folder/],
    [['doctor', '--timeout', '0'], /--timeout 0/],
    [['doctor', '--timeout', 'soon'], /--timeout soon/],
    [['doctor', '--copy'], /--copy can be used only with link/],
    [['doctor', '--nonsense'], /--nonsense/],
  ])) {
    const { status, stdout, stderr } = await cli(args);
    assert.equal(status, 2, args.join(' '));
    assert.match(stderr, words);
    assert.equal(stdout, '');
  }
  const { status, json: answer } = await json(['heal']);
  assert.equal(status, 2);
  assert.deepEqual([answer.ok, answer.error.code], [false, 'ERR_USAGE']);
});

test("the package's command is a program", () => {
  const path = fileURLToPath(new URL(`../${bin['helios-vk']}`, import.meta.url));
  assert.equal(path, CLI);
  assert.ok(readFileSync(path, 'utf8').startsWith('#!/usr/bin/env node\n'));
  if (process.platform !== 'win32') accessSync(path, constants.X_OK);
});

test('doctor finds this machine usable, and says what it found', async () => {
  const { status, json: facts } = await json(['doctor'], { HELIOS_VALIDATION: process.env.HELIOS_VALIDATION });
  assert.equal(status, 0, JSON.stringify(facts.findings));
  assert.equal(facts.ok, true);
  assert.deepEqual(
    facts.findings.filter((/** @type {any} */ { severity }) => severity === 'problem'),
    [],
  );
  assert.equal(facts.package.version, version);
  assert.equal(facts.node.version, process.versions.node);
  assert.equal(facts.system.platform, process.platform);
  assert.deepEqual([facts.addon.ok, facts.addon.path, facts.addon.error], [true, ADDON, null]);
  assert.equal(facts.addon.version, version);
  assert.ok(basename(ADDON).includes(facts.addon.triple), facts.addon.triple);
  assert.ok(facts.addon.bytes > 100_000 && facts.addon.functions > 30);
  assert.equal(facts.loader.ok, true);
  assert.ok(existsSync(facts.loader.path), facts.loader.path);
  assert.ok(facts.drivers.some((/** @type {any} */ { file, loads, exists }) => existsSync(file) && loads && exists));

  // The same devices as in this process.
  const native = require('helios-vk');
  // Use of memory moves by itself: that there is a number is what both must agree on.
  const still = (/** @type {any} */ devices) =>
    JSON.parse(JSON.stringify(devices, (key, value) => (key === 'usageBytes' || key === 'budgetBytes' ? typeof value : value)));
  assert.deepEqual(still(facts.devices), still(native.listDevices()));
  assert.equal(facts.devicesError, null);
  const { deviceName, deviceUuid } = facts.device;
  assert.ok(facts.devices.some((/** @type {any} */ { name, uuid }) => name === deviceName && uuid === deviceUuid));
  assert.deepEqual([facts.smoke.ok, facts.smoke.wrong, facts.smoke.first], [true, 0, null]);
  assert.ok(facts.smoke.elements >= 1 << 20 && facts.smoke.milliseconds > 0);
  assert.equal(facts.smokeError, null);
});

test('doctor for people: a line for each matter, values under each other', async () => {
  const { status, stdout } = await cli(['doctor']);
  assert.equal(status, 0, stdout);
  const lines = stdout.trimEnd().split('\n');
  assert.ok(lines[0].startsWith(`helios-vk ${version} on `));
  for (const label of ['Node', 'Addon', 'Loader', 'Devices', 'Memory', 'Features', 'Smoke test']) {
    const line = lines.find((each) => each.slice(2).startsWith(label));
    assert.equal(line?.[0], '✓', label);
    assert.match(String(line).slice(15), /^\S/, label);
  }
  assert.match(String(lines.at(-1)), /^Usable: \S/);
  assert.ok(lines.every((line) => line === line.trimEnd()));
});

test("the report in the signs of Linux' console, without colours where it is no terminal", async () => {
  const { status, stdout, stderr } = await cli(['doctor'], { HELIOS_VULKAN_LOADER: '/nonexistent', TERM: 'linux', FORCE_COLOR: '1' });
  assert.deepEqual([status, stderr], [1, '']);
  assert.match(stdout, /^√ Node /m);
  assert.match(stdout, /^× Loader +missing$/m);
  // Neither colours nor commands of a terminal, whatever FORCE_COLOR asks for.
  assert.doesNotMatch(stdout.replaceAll('\n', ''), /[✓✗▸\p{Cc}]/u);
});

test('doctor without a Vulkan loader', async () => {
  const { status, json: facts } = await json(['doctor'], { HELIOS_VULKAN_LOADER: '/nonexistent' });
  assert.equal(status, 1);
  assert.equal(facts.ok, false);
  assert.deepEqual([facts.addon.ok, facts.loader.ok, facts.loader.path], [true, false, null]);
  assert.equal(facts.devicesError.code, 'ERR_HELIOS_NO_LOADER');
  assert.deepEqual([facts.devices, facts.device, facts.smoke], [[], null, null]);
  assert.equal(facts.environment.HELIOS_VULKAN_LOADER, '/nonexistent');
  const [finding] = facts.findings;
  assert.deepEqual([finding.severity, finding.check], ['problem', 'loader']);
  assert.match(finding.what, /no Vulkan loader found .*\/nonexistent/);
  assert.match(finding.fix, /HELIOS_VULKAN_LOADER/);

  const { status: same, stdout } = await cli(['doctor'], { HELIOS_VULKAN_LOADER: '/nonexistent' });
  assert.equal(same, 1);
  assert.match(stdout, /^✗ Loader +missing$/m);
  assert.match(stdout, /^✗ Smoke test +not run$/m);
  assert.match(stdout, /^ {2}→ .*HELIOS_VULKAN_LOADER/m);
  assert.match(stdout, /Not usable: see above\.\n$/);
});

/**
 * A folder of drivers' manifests.
 * @param {Record<string, object | string>} files by name
 */
function manifests(files) {
  const path = folder();
  for (const [name, content] of Object.entries(files))
    writeFileSync(join(path, name), typeof content === 'string' ? content : JSON.stringify(content));
  return path;
}

/** @param {string} library */
const icd = (library) => ({ file_format_version: '1.0.0', ICD: { library_path: library, api_version: '1.3.0' } });

test('doctor names every driver that a variable gives it, and what is wrong with it', { skip: !linux }, async () => {
  const path = manifests({
    'broken.json': '{',
    'gone.json': icd('./gone.so'),
    'text.json': icd('./text.so'),
    'text.so': 'no library',
  });
  const files = ['broken.json', 'gone.json', 'text.json', 'missing.json'].map((name) => join(path, name));
  const environment = { VK_DRIVER_FILES: files.join(':'), VK_ICD_FILENAMES: files.join(':') };
  const { status, json: facts } = await json(['doctor'], environment);
  assert.equal(status, 1);
  assert.deepEqual(
    facts.drivers.map((/** @type {any} */ { file }) => file),
    files,
  );
  const [broken, gone, text, missing] = facts.drivers;
  for (const driver of facts.drivers) assert.equal(driver.source, 'VK_DRIVER_FILES');
  assert.match(broken.error, /^no JSON/);
  assert.deepEqual([gone.exists, gone.library, gone.libraryPath, gone.loads], [false, './gone.so', null, false]);
  assert.deepEqual([text.exists, text.libraryPath, text.loads], [true, join(path, 'text.so'), false]);
  assert.match(text.error, /invalid ELF header|file too short/);
  assert.equal(missing.error, 'there is no such file');
  const problems = facts.findings.filter((/** @type {any} */ { check }) => check === 'drivers');
  assert.equal(problems.length, 4);
  for (const { severity, fix } of problems) assert.deepEqual([severity, fix], ['problem', 'unset VK_DRIVER_FILES VK_ICD_FILENAMES']);
  assert.deepEqual([facts.devices, facts.devicesError.crash], [[], false]);
  // The cures are for the drivers; what the loader makes of them is no matter of its own.
  assert.ok(facts.findings.every((/** @type {any} */ { check }) => ['drivers', 'validation'].includes(check)));
});

test("doctor looks for drivers in the loader's folders", { skip: !linux }, async () => {
  const data = folder();
  mkdirSync(join(data, 'vulkan/icd.d'), { recursive: true });
  mkdirSync(join(data, 'vulkan/explicit_layer.d'), { recursive: true });
  writeFileSync(join(data, 'vulkan/icd.d/mine.json'), JSON.stringify(icd('/nonexistent/libmine.so')));
  writeFileSync(
    join(data, 'vulkan/explicit_layer.d/mine.json'),
    JSON.stringify({ layer: { name: 'VK_LAYER_MINE', library_path: './x.so' } }),
  );
  const environment = { XDG_DATA_HOME: data, VK_DRIVER_FILES: undefined, VK_ICD_FILENAMES: undefined };
  const { json: facts } = await json(['doctor'], environment);
  const mine = facts.drivers.find((/** @type {any} */ { file }) => file === join(data, 'vulkan/icd.d/mine.json'));
  assert.equal(mine.source, join(data, 'vulkan/icd.d'));
  assert.deepEqual([mine.exists, mine.loads], [false, false]);
  const layer = facts.layers.find((/** @type {any} */ { name }) => name === 'VK_LAYER_MINE');
  assert.equal(layer.exists, false);
  assert.match(layer.error, /x\.so was not found/);
  // One driver that does not load is no reason to stop where another one works.
  const about = facts.findings.find((/** @type {any} */ { what }) => what.includes('mine.json'));
  assert.equal(about.severity, facts.ok ? 'warning' : 'problem');
});

test('doctor survives a driver that crashes, and names it', { skip: process.platform === 'win32' }, async () => {
  // Crashes unless the loader is kept to the harmless driver, which in truth is none.
  const path = manifests({ 'good.json': icd('./good.so'), 'wild.json': icd('./wild.so') });
  // Any library will do that loads; the addon is one.
  for (const name of ['good.so', 'wild.so']) copyFileSync(ADDON, join(path, name));
  const environment = {
    ...pretend(`listDevices() {
      if (process.env.VK_DRIVER_FILES.includes('wild.json')) process.kill(process.pid, 'SIGSEGV');
      return [];
    }`),
    VK_DRIVER_FILES: ['good', 'wild'].map((name) => join(path, `${name}.json`)).join(':'),
  };
  const { status, json: facts } = await json(['doctor'], environment);
  assert.equal(status, 1);
  assert.deepEqual([facts.devicesError.crash, facts.devicesError.code], [true, null]);
  assert.match(facts.devicesError.message, /was ended by SIGSEGV in listDevices/);
  assert.deepEqual(
    facts.drivers.map((/** @type {any} */ { crashes }) => crashes),
    [false, true],
  );
  const [finding] = facts.findings;
  assert.match(finding.what, /wild\.json.*SIGSEGV/);
  assert.equal(finding.fix, `export VK_DRIVER_FILES=${join(path, 'good.json')}`);
});

const compiler = ['cc', 'gcc', 'clang'].find((name) => spawnSync(name, ['--version']).status === 0);
test('doctor survives a library that crashes when it is loaded', { skip: !linux || !compiler }, async () => {
  const path = manifests({
    'wild.json': icd('./wild.so'),
    'wild.c': '#include <stdlib.h>\n__attribute__((constructor)) static void start(void) { abort(); }\n',
  });
  const built = spawnSync(String(compiler), ['-shared', '-fPIC', '-o', join(path, 'wild.so'), join(path, 'wild.c')]);
  assert.equal(built.status, 0, String(built.stderr));
  const file = join(path, 'wild.json');
  const { status, json: facts } = await json(['doctor'], { VK_DRIVER_FILES: file, VK_ICD_FILENAMES: file });
  assert.equal(status, 1);
  assert.equal(facts.drivers.length, 1);
  assert.deepEqual([facts.drivers[0].loads, facts.drivers[0].crashes], [false, true]);
  assert.match(facts.drivers[0].error, /SIGABRT/);
  assert.equal(facts.devicesError.crash, true);
  assert.equal(facts.ok, false);
});

test('doctor gives up on a driver that hangs', async () => {
  // Long enough for Node to start and come to the call on a busy machine.
  const { status, json: facts } = await json(
    ['doctor', '--timeout', '8'],
    pretend('listDevices() { Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0); }'),
  );
  assert.equal(status, 1);
  assert.match(facts.devicesError.message, /did not end within 8 s in listDevices/);
});

test('doctor sees a device that computes wrongly', async () => {
  const wrong = pretend(`readBuffer(handle) {
    const values = real.readBuffer(handle);
    values[777777]++;
    return values;
  }`);
  const { status, json: facts } = await json(['doctor'], wrong);
  assert.equal(status, 1);
  assert.deepEqual([facts.ok, facts.smoke.ok, facts.smoke.wrong, facts.smoke.first.index], [false, false, 1, 777777]);
  assert.ok(facts.findings.some((/** @type {any} */ { check, what }) => check === 'smoke' && /computes wrongly: 1 of/.test(what)));
  assert.match((await cli(['doctor'], wrong)).stdout, /^✗ Smoke test +1 of 1,048,576 results are wrong$/m);
});

test('doctor sees kernels that do nothing, and ones that crash', async () => {
  const idle = await json(['doctor'], pretend('batchExecuteAll() { return 0; }, waitTimeline() {}'));
  assert.equal(idle.status, 1);
  assert.equal(idle.json.smoke.wrong, idle.json.smoke.elements);
  if (process.platform === 'win32') return;
  const dead = await json(['doctor'], pretend(`batchExecuteAll() { process.kill(process.pid, 'SIGSEGV'); }`));
  assert.equal(dead.status, 1);
  assert.match(dead.json.smokeError, /was ended by SIGSEGV in compute/);
  assert.equal(dead.json.smoke, null);
  assert.ok(dead.json.device.deviceName);
});

test('doctor tells why an addon does not load', async () => {
  const file = join(folder(), 'addon.cjs');
  writeFileSync(file, `throw new Error('made for another machine');`);
  const { status, json: facts } = await json(['doctor'], { NAPI_RS_NATIVE_LIBRARY_PATH: file });
  assert.equal(status, 1);
  assert.deepEqual([facts.addon.ok, facts.addon.path], [false, null]);
  assert.match(facts.addon.error, /made for another machine/);
  assert.deepEqual(
    facts.findings[0].fix,
    process.platform === 'win32' ? 'set NAPI_RS_NATIVE_LIBRARY_PATH=' : 'unset NAPI_RS_NATIVE_LIBRARY_PATH',
  );
  assert.match((await cli(['doctor'], { NAPI_RS_NATIVE_LIBRARY_PATH: file })).stdout, /^✗ Addon +does not load$/m);
});

test('a package whose binary was not installed', async () => {
  // The package as npm leaves it without its part for this platform.
  const own = join(folder(), 'node_modules', 'helios-vk');
  for (const path of ['package.json', 'binding.js', 'index.js', 'load-error.js', 'bin', 'distributed', 'kernels'])
    cpSync(fileURLToPath(new URL(`../${path}`, import.meta.url)), join(own, path), { recursive: true });
  const { status, stdout } = spawnSync(process.execPath, [join(own, bin['helios-vk']), 'doctor', '--json'], {
    encoding: 'utf8',
  });
  assert.equal(status, 1);
  const facts = JSON.parse(stdout);
  assert.equal(facts.addon.ok, false);
  assert.match(facts.addon.error, /^no native binary for \S+: .*helios-vk\.\S+\.node: not there/);
  assert.doesNotMatch(facts.addon.error, /wasi|npm has a bug/);
  assert.equal(facts.findings[0].fix, `npm install --include=optional helios-vk@${version}`);

  // And with it, of another version: it works, and is named.
  const part = join(own, '..', `helios-vk-${facts.addon.triple}`);
  mkdirSync(part);
  copyFileSync(ADDON, join(part, basename(ADDON)));
  writeFileSync(join(part, 'package.json'), JSON.stringify({ name: basename(part), version: '0.0.0', main: basename(ADDON) }));
  const { stdout: text } = spawnSync(process.execPath, [join(own, bin['helios-vk']), 'doctor'], {
    encoding: 'utf8',
    cwd: part,
  });
  assert.match(text, new RegExp(`^✓ Addon +${basename(ADDON)}, `, 'm'));
  assert.ok(text.includes(`! the addon's binary is of version 0.0.0, the package of ${version}`));
});

test('doctor names a HELIOS_DEVICE that is not there', async () => {
  const { status, json: facts } = await json(['doctor'], { HELIOS_DEVICE: 'no such device' });
  assert.equal(status, 1);
  assert.equal(facts.device, null);
  assert.ok(facts.devices.length > 0);
  assert.match(facts.findings[0].what, /no such device/);
  assert.match(facts.findings[0].fix, /HELIOS_DEVICE/);
});

/**
 * A trainer's checkout.
 * @param {{ native?: boolean, foreign?: string }} [options] `foreign`: what lies where the addon goes
 */
function checkout({ native = true, foreign } = {}) {
  // Names that a shell or a URL would trip over.
  const path = folder('träiner check#out');
  const below = join(path, 'packages', 'helios', 'native');
  mkdirSync(native ? below : join(path, 'packages', 'helios'), { recursive: true });
  const file = join(below, 'helios_vk.node');
  if (foreign !== undefined) writeFileSync(file, foreign);
  return { path, native: below, file, aside: `${file}.before-helios-vk`, record: `${file}.helios-vk.json` };
}

/** Loads a file as a trainer does. @param {string} file */
function loads(file) {
  const script = `const vk = require(process.argv[1]); process.stdout.write(typeof vk.batchExecuteAll)`;
  const { stdout, stderr } = spawnSync(process.execPath, ['-e', script, file], { encoding: 'utf8' });
  assert.equal(stdout, 'function', stderr);
}

for (const mode of /** @type {const} */ (['symlink', 'copy'])) {
  const args = mode === 'copy' ? ['--copy'] : [];
  // Windows makes symbolic links for developers and administrators alone.
  const skip = mode === 'symlink' && process.platform === 'win32';

  test(`link and unlink, by ${mode}, where nothing was`, { skip }, async () => {
    const { path, native, file } = checkout({ native: false });
    const first = await json(['link', path, ...args]);
    assert.equal(first.status, 0);
    assert.deepEqual(first.json, {
      ok: true,
      command: 'link',
      checkout: path,
      path: file,
      changed: true,
      kind: mode,
      source: ADDON,
      movedAside: null,
      restored: null,
      notes: [],
    });
    assert.equal(lstatSync(file).isSymbolicLink(), mode === 'symlink');
    loads(file);

    const files = readdirSync(native);
    const again = await json(['link', path, ...args]);
    assert.deepEqual([again.status, again.json.changed, again.json.kind], [0, false, mode]);
    assert.deepEqual(readdirSync(native), files);
    // Of the other kind, it still knows that the folder is its own.
    if (mode === 'symlink') assert.equal((await json(['link', path, '--copy'])).json.kind, 'copy');

    const back = await json(['unlink', path]);
    assert.deepEqual([back.status, back.json.changed, back.json.restored], [0, true, null]);
    assert.ok(!existsSync(native), 'the folder that link made is gone');
    const nothing = await json(['unlink', path]);
    assert.deepEqual([nothing.status, nothing.json.changed, nothing.json.notes], [0, false, []]);
  });

  test(`link and unlink, by ${mode}, keep an empty folder that was there before`, { skip }, async () => {
    const { path, native } = checkout();
    await json(['link', path, ...args]);
    // A second link of the other kind does not forget it.
    if (mode === 'symlink') await json(['link', path, '--copy']);
    await json(['unlink', path]);
    assert.deepEqual(readdirSync(native), []);
  });

  test(`link and unlink, by ${mode}, over the C addon`, { skip }, async () => {
    const { path, native, file, aside } = checkout({ foreign: 'the C addon' });
    writeFileSync(join(native, 'helios_vk.c'), 'int x;');
    const first = await json(['link', path, ...args]);
    assert.deepEqual([first.status, first.json.movedAside], [0, aside]);
    assert.equal(readFileSync(aside, 'utf8'), 'the C addon');
    loads(file);

    // A second time, there is nothing foreign to move.
    const again = await json(['link', path, ...args]);
    assert.deepEqual([again.json.changed, again.json.movedAside], [false, null]);
    assert.equal(readFileSync(aside, 'utf8'), 'the C addon');

    const back = await json(['unlink', path]);
    assert.deepEqual([back.status, back.json.restored], [0, file]);
    assert.equal(readFileSync(file, 'utf8'), 'the C addon');
    assert.deepEqual(readdirSync(native).sort(), ['helios_vk.c', 'helios_vk.node']);

    const twice = await json(['unlink', path]);
    assert.deepEqual([twice.status, twice.json.changed, twice.json.notes.length], [0, false, 1]);
    assert.equal(readFileSync(file, 'utf8'), 'the C addon');
  });
}

test('from link to copy and back, each in place of the other', { skip: process.platform === 'win32' }, async () => {
  const { path, file, record, aside } = checkout({ foreign: 'the C addon' });
  await json(['link', path]);
  const copied = await json(['link', path, '--copy']);
  assert.deepEqual([copied.json.changed, copied.json.kind, copied.json.movedAside], [true, 'copy', null]);
  assert.ok(lstatSync(file).isFile() && existsSync(record));
  // A copy that is as the package's binary serves as well as a link.
  assert.equal((await json(['link', path])).json.changed, false);
  await json(['unlink', path]);
  assert.equal(readFileSync(file, 'utf8'), 'the C addon');
  assert.ok(!existsSync(record) && !existsSync(aside));
});

test('a trainer that was built again after link loses nothing', async () => {
  const { path, file, aside } = checkout({ foreign: 'first build' });
  await json(['link', path, '--copy']);
  rmSync(file);
  writeFileSync(file, 'second build');
  const kept = await json(['unlink', path]);
  assert.equal(kept.json.changed, false);
  assert.match(kept.json.notes[0], /was not put there by helios-vk and stays/);
  assert.equal(readFileSync(file, 'utf8'), 'second build');

  const { json: linked } = await json(['link', path, '--copy']);
  assert.equal(linked.movedAside, `${aside}-2`);
  assert.equal(readFileSync(aside, 'utf8'), 'first build');
  assert.equal((await json(['unlink', path])).json.restored, file);
  assert.equal(readFileSync(file, 'utf8'), 'second build');
  assert.equal(readFileSync(aside, 'utf8'), 'first build');
});

test('links of others are moved aside as links, our own old ones are replaced', { skip: process.platform === 'win32' }, async () => {
  const theirs = checkout();
  const target = join(theirs.path, 'build.node');
  writeFileSync(target, 'their build');
  symlinkSync('../../../build.node', theirs.file);
  assert.equal((await json(['link', theirs.path])).json.movedAside, theirs.aside);
  await json(['unlink', theirs.path]);
  assert.equal(readlinkSync(theirs.file), '../../../build.node');
  assert.equal(readFileSync(theirs.file, 'utf8'), 'their build');

  // The package was installed anew elsewhere: the old link leads nowhere.
  const ours = checkout();
  symlinkSync('/nonexistent/node_modules/helios-vk/helios-vk.linux-x64-gnu.node', ours.file);
  const { status, json: answer } = await json(['link', ours.path]);
  assert.deepEqual([status, answer.changed, answer.movedAside], [0, true, null]);
  assert.equal(realpathSync(ours.file), ADDON);
  loads(ours.file);
});

test('an addon that does not load changes nothing', async () => {
  const { path, native, file } = checkout({ foreign: 'the C addon' });
  const addon = join(folder(), 'addon.cjs');
  writeFileSync(addon, `throw new Error('made for another machine');`);
  const { status, json: answer } = await json(['link', path], { NAPI_RS_NATIVE_LIBRARY_PATH: addon });
  assert.equal(status, 1);
  assert.deepEqual([answer.ok, answer.error.code], [false, 'ERR_ADDON_LOAD']);
  assert.match(answer.error.message, /made for another machine/);
  assert.deepEqual(readdirSync(native), ['helios_vk.node']);
  assert.equal(readFileSync(file, 'utf8'), 'the C addon');
});

test('a folder that is not a trainer checkout', async () => {
  const empty = folder();
  const file = join(empty, 'file');
  writeFileSync(file, '');
  for (const [path, words] of /** @type {Array<[string, RegExp]>} */ ([
    [empty, /is not a trainer checkout: it has no folder packages\/helios/],
    [join(empty, 'none'), /there is no such folder/],
    [file, /is not a folder/],
  ])) {
    for (const command of ['link', 'unlink']) {
      const { status, stdout, stderr } = await cli([command, path]);
      assert.deepEqual([status, stdout], [1, '']);
      assert.match(stderr, words);
      assert.ok(stderr.includes(path));
      assert.equal((await json([command, path])).json.error.code, 'ERR_NO_CHECKOUT');
    }
  }
  assert.deepEqual(readdirSync(empty), ['file']);
});

test('link for people says what it did, and what stands in its way', async () => {
  const { path, file, aside } = checkout({ foreign: 'the C addon' });
  const { status, stdout } = await cli(['link', path, '--copy'], { HELIOS_NATIVE_ADDON: '/elsewhere/addon.node' });
  assert.equal(status, 0);
  assert.match(stdout, /^✓ .*helios_vk\.node copied from .*\.node$/m);
  assert.ok(stdout.includes(`what was there is now ${aside}`));
  assert.match(stdout, /^! HELIOS_NATIVE_ADDON is set.*\/elsewhere\/addon\.node$/m);
  assert.match((await cli(['link', path])).stdout, /is already copied from/);
  assert.match((await cli(['unlink', path])).stdout, /^✓ .*helios_vk\.node is what it was before\n$/);
  assert.match((await cli(['unlink', path])).stdout, /^! .*was not put there by helios-vk and stays\n$/);
  assert.equal(readFileSync(file, 'utf8'), 'the C addon');
});
