// The customs of Windows, on one that is made up: where the loader and drivers lie, how its shells set variables, what its consoles show.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';

import { diagnose } from '../bin/lib/diagnose.mjs';
import { systemFacts } from '../bin/lib/facts.mjs';
import { drivers, layers, loaders, registryNames, registryValues, strayDrivers } from '../bin/lib/manifests.mjs';
import { inSigns } from '../bin/lib/signs.mjs';
import { cacheFolder } from '../scripts/system.mjs';
import { driver, facts, icd, judge, machine, noDevice, paths, posix } from './lib/machines.mjs';

/** @typedef {import('../bin/lib/manifests.mjs').Place} Place */

/** A machine with Windows, whose registry is empty. @param {Parameters<typeof machine>[0]} files @returns {Place} */
const windows = (files) => ({ ...machine(files), platform: 'win32', registry: () => '' });

test('on Windows the loader is found in System32, then along the PATH', { skip: !posix }, () => {
  const place = windows({
    '/Windows/System32/vulkan-1.dll': '',
    '/tools/vulkan-1.dll': '',
    '/sdk/lib/vulkan-1.dll': '',
    // Names of other systems.
    '/tools/libvulkan.so.1': '',
    '/usr/lib/libvulkan.so.1': '',
  });
  const found = (/** @type {NodeJS.ProcessEnv} */ env) => loaders({ ...place, env }).map((path) => path.slice(place.root.length));
  const SystemRoot = join(place.root, 'Windows');
  const PATH = ['none', 'tools'].map((name) => join(place.root, name)).join(';');
  assert.deepEqual(found({ SystemRoot, PATH }), ['/Windows/System32/vulkan-1.dll']);
  assert.deepEqual(found({ SystemRoot: join(place.root, 'none'), PATH }), ['/tools/vulkan-1.dll']);
  assert.deepEqual(found({ SystemRoot, VULKAN_SDK: join(place.root, 'sdk') }), ['/Windows/System32/vulkan-1.dll', '/sdk/lib/vulkan-1.dll']);
  // C:\Windows stands for a variable that is not set; there is none here.
  assert.deepEqual(found({}), []);
});

test('on Windows drivers are those of the registry, and of variables with semicolons', { skip: !posix }, () => {
  const files = {
    '/W/one.json': icd('vulkan-one.dll'),
    '/W/two.json': icd('./two.dll'),
    '/W/two.dll': '',
    '/W/old.json': icd('x', { library_arch: '32' }),
    '/W/off.json': icd('x'),
    '/Windows/System32/vulkan-one.dll': '',
    // Where other systems have theirs.
    '/usr/share/vulkan/icd.d/unix.json': icd('x'),
    '/etc/vulkan/icd.d/unix.json': icd('x'),
    '/layers/machine.json': { layer: { name: 'A', library_path: './a.dll' } },
    '/layers/user.json': { layer: { name: 'B', library_path: './b.dll' } },
    '/layers/b.dll': '',
  };
  const at = (/** @type {string} */ path) => join(place.root, path);
  const place = windows(files);
  const khronos = 'HKLM\\SOFTWARE\\Khronos\\Vulkan\\';
  /** @type {Record<string, string[]>} */
  const keys = {
    [`${khronos}Drivers`]: [`${at('W/one.json')}    REG_DWORD    0x0`, `${at('W/off.json')}    REG_DWORD    0x1`],
    'HKLM\\SYSTEM\\CurrentControlSet\\Control\\Class\\{4d36e968-e325-11ce-bfc1-08002be10318}': [
      `VulkanDriverName    REG_MULTI_SZ    ${at('W/one.json')}\\0${at('W/two.json')}`,
      `VulkanDriverName    REG_SZ    ${at('W/old.json')}`,
    ],
    [`${khronos}ExplicitLayers`]: [`${at('layers/machine.json')}    REG_DWORD    0x0`],
    'HKCU\\SOFTWARE\\Khronos\\Vulkan\\ExplicitLayers': [`${at('layers/user.json')}    REG_DWORD    0x0`],
  };
  place.registry = ([key]) => (keys[key] ?? []).map((line) => `    ${line}\r\n`).join('');
  place.env = { SystemRoot: at('Windows') };
  assert.deepEqual(paths(place, drivers(place)), ['/W/one.json', '/W/two.json', '/W/old.json']);
  assert.deepEqual(
    drivers(place).map(({ libraryPath, ignored }) => [libraryPath?.slice(place.root.length), ignored]),
    [
      ['/Windows/System32/vulkan-one.dll', null],
      ['/W/two.dll', null],
      [undefined, 'its library is for 32-bit programs'],
    ],
  );
  assert.deepEqual(
    layers(place).map(({ name, exists }) => [name, exists]),
    [
      ['A', false],
      ['B', true],
    ],
  );
  const named = (/** @type {NodeJS.ProcessEnv} */ env) => paths(place, drivers({ ...place, env: { ...place.env, ...env } }));
  // A colon is part of a path there.
  assert.deepEqual(named({ VK_DRIVER_FILES: `${at('W/off.json')};;${at('W/two.json')}` }), ['/W/off.json', '/W/two.json']);
  assert.deepEqual(named({ VK_ADD_DRIVER_FILES: at('W/off.json') }), ['/W/off.json', '/W/one.json', '/W/two.json', '/W/old.json']);
  assert.equal(drivers({ ...place, env: { VK_ICD_FILENAMES: 'C:\\x.json;D:\\y.json' } })[1].file, 'D:\\y.json');
  assert.deepEqual(strayDrivers(place), []);
  assert.equal(systemFacts(place).name.split(' ')[0], 'Windows');
});

test("what Windows' registry says", () => {
  const khronos = [
    '',
    'HKEY_LOCAL_MACHINE\\SOFTWARE\\Khronos\\Vulkan\\Drivers',
    '    C:\\Program Files\\One\\one.json    REG_DWORD    0x0',
    '    C:\\off.json    REG_DWORD    0x1',
    '',
  ].join('\r\n');
  assert.deepEqual(registryNames(khronos), ['C:\\Program Files\\One\\one.json']);
  const adapters = [
    'HKEY_LOCAL_MACHINE\\SYSTEM\\…\\0000',
    '    VulkanDriverName    REG_MULTI_SZ    C:\\W\\nv-vk64.json\\0C:\\W\\second.json',
    '    VulkanDriverNameWow    REG_MULTI_SZ    C:\\W\\nv-vk32.json',
    'HKEY_LOCAL_MACHINE\\SYSTEM\\…\\0001',
    '    VulkanDriverName    REG_SZ    C:\\W\\igvk64.json',
  ].join('\r\n');
  assert.deepEqual(registryValues(adapters, 'VulkanDriverName'), ['C:\\W\\nv-vk64.json', 'C:\\W\\second.json', 'C:\\W\\igvk64.json']);
  assert.deepEqual(registryNames(''), []);
});

test('on Windows variables are set in the ways of both shells', () => {
  const windows = { system: { platform: 'win32' } };
  const [finding] = diagnose(facts({ ...windows, smokeError: 'initDevice: no match', device: null, environment: { HELIOS_DEVICE: '9' } }));
  assert.deepEqual([finding.what, finding.fix], ['no match', 'set HELIOS_DEVICE= (in PowerShell: $env:HELIOS_DEVICE = $null)']);
  const fixes = (/** @type {Parameters<typeof facts>[0]} */ changes) => judge({ ...windows, ...changes }).map(([, , fix]) => fix);
  assert.deepEqual(fixes({ ...noDevice, environment: { VK_DRIVER_FILES: 'C:\\a.json', VK_ICD_FILENAMES: 'C:\\a.json' } }), [
    'set VK_DRIVER_FILES=& set VK_ICD_FILENAMES= (in PowerShell: $env:VK_DRIVER_FILES = $null; $env:VK_ICD_FILENAMES = $null)',
  ]);
  const path = 'C:\\Program Files\\vulkan-1.dll';
  assert.deepEqual(fixes({ ...noDevice, loader: { ok: false, candidates: [path] } }), [
    `set HELIOS_VULKAN_LOADER=${path} (in PowerShell: $env:HELIOS_VULKAN_LOADER = '${path}')`,
  ]);
  // cmd would end the command at the ampersand, PowerShell the text at the quote. Between files stands a semicolon.
  const good = ["C:\\R&D\\it's.json", 'D:\\b.json'].map((file) => driver({ file }));
  const crash = { ...noDevice, devicesError: { code: null, message: 'ended by a signal', crash: true } };
  assert.deepEqual(fixes({ ...crash, drivers: [...good, driver({ crashes: true, error: 'ended by a signal' })] }), [
    'set "VK_DRIVER_FILES=C:\\R&D\\it\'s.json;D:\\b.json" ' + "(in PowerShell: $env:VK_DRIVER_FILES = 'C:\\R&D\\it''s.json;D:\\b.json')",
  ]);
  assert.deepEqual(fixes({ node: { version: '18.0.0' } }), ['winget install OpenJS.NodeJS.LTS']);
  assert.deepEqual(fixes({ ...noDevice, drivers: [], loader: { ok: false, candidates: [], path: null } }), [
    "winget install KhronosGroup.VulkanRT; install your GPU vendor's newest driver, which brings Vulkan",
  ]);
});

test('marks are signs that the console has', () => {
  const text = '✓ Node  22 → 23\n  ✗  C:\\✓ ✗\\a.json\n    ▸  0  GPU – 16×16 µs\n! a note';
  const plain = '√ Node  22 → 23\n  ×  C:\\✓ ✗\\a.json\n    >  0  GPU – 16×16 µs\n! a note';
  /** @type {Array<[NodeJS.Platform, NodeJS.ProcessEnv, boolean]>} */
  const cases = [
    ['win32', {}, false],
    ['win32', { TERM: 'linux' }, false],
    ['win32', { WT_SESSION: '' }, false],
    ['win32', { WT_SESSION: '0f5e' }, true],
    ['win32', { TERM_PROGRAM: 'vscode' }, true],
    ['win32', { ConEmuTask: '{cmd::Cmder}' }, true],
    ['win32', { TERMINAL_EMULATOR: 'JetBrains-JediTerm' }, true],
    // Git's shell.
    ['win32', { TERM: 'xterm-256color' }, true],
    ['linux', {}, true],
    ['linux', { TERM: 'xterm' }, true],
    ['linux', { TERM: 'linux' }, false],
    ['darwin', { TERM: 'dumb' }, true],
  ];
  for (const [platform, env, all] of cases) {
    assert.equal(inSigns(text, { platform, env }), all ? text : plain, `${platform} ${JSON.stringify(env)}`);
  }
});

test('scripts keep what they fetch in the cache folder of the addon', () => {
  const folder = (/** @type {NodeJS.ProcessEnv} */ env) => cacheFolder(env, () => '/home/me');
  const local = 'C:\\Users\\me\\AppData\\Local';
  assert.equal(folder({}), join('/home/me', '.cache', 'helios-vk'));
  assert.equal(folder({ XDG_CACHE_HOME: ' ', LOCALAPPDATA: '' }), join('/home/me', '.cache', 'helios-vk'));
  assert.equal(folder({ HOME: 'C:\\Users\\me', LOCALAPPDATA: local }), join(local, 'helios-vk'));
  assert.equal(folder({ LOCALAPPDATA: local, XDG_CACHE_HOME: '/cache' }), join('/cache', 'helios-vk'));
});
