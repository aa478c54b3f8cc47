// What the command line decides for machines that this one is not: made-up file systems and facts.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';

import { atLeast, diagnose, usable } from '../bin/lib/diagnose.mjs';
import { systemFacts } from '../bin/lib/facts.mjs';
import { cachedLibrary, configurationFolders, drivers, globMatches, layers, loaders, strayDrivers } from '../bin/lib/manifests.mjs';
import { family, installation, libraryInstallation } from '../bin/lib/packages.mjs';
import { matrixShapes, report, size } from '../bin/lib/report.mjs';
import { driver, facts, icd, judge, machine, noDevice, paths, posix, summary, system } from './lib/machines.mjs';

test('drivers are found in the order of the loader', { skip: !posix }, () => {
  const place = machine({
    '/usr/share/vulkan/icd.d/c.json': icd('/nowhere/libc.so'),
    '/usr/share/vulkan/icd.d/readme.txt': 'no manifest',
    '/usr/local/share/vulkan/icd.d/b.json': icd('libbare.so'),
    '/home/me/.local/share/vulkan/icd.d/home.json': icd('./libhome.so'),
    '/home/me/.local/share/vulkan/icd.d/libhome.so': '',
    '/etc/vulkan/icd.d/a.json': icd('../lib/liba.so'),
    '/etc/vulkan/lib/liba.so': '',
    '/home/me/.config/vulkan/icd.d/first.json': icd('libmissing.so'),
    '/usr/lib/x86_64-linux-gnu/libbare.so': '',
  });
  const found = drivers(place);
  assert.deepEqual(paths(place, found), [
    '/home/me/.config/vulkan/icd.d/first.json',
    '/etc/vulkan/icd.d/a.json',
    '/home/me/.local/share/vulkan/icd.d/home.json',
    '/usr/local/share/vulkan/icd.d/b.json',
    '/usr/share/vulkan/icd.d/c.json',
  ]);
  assert.deepEqual(
    found.map(({ exists }) => exists),
    [false, true, true, true, false],
  );
  assert.equal(found[3].libraryPath, join(place.root, '/usr/lib/x86_64-linux-gnu/libbare.so'));
  assert.match(String(found[4].error), /\/nowhere\/libc\.so was not found/);
  assert.equal(found[1].version, '1.4.0');
});

test('variables decide where drivers are looked for', { skip: !posix }, () => {
  const files = {
    '/usr/share/vulkan/icd.d/standard.json': icd('x'),
    '/data/vulkan/icd.d/data.json': icd('x'),
    '/mine/one.json': icd('x'),
    '/mine/two.json': icd('x'),
    '/other/three.json': icd('x'),
  };
  /** @type {Array<[NodeJS.ProcessEnv, string[], string[]]>} */
  const cases = [
    [{ XDG_DATA_DIRS: '/data' }, ['/data/vulkan/icd.d/data.json'], []],
    // An empty variable is as good as none.
    [{ XDG_DATA_DIRS: '', VK_DRIVER_FILES: '' }, ['/usr/share/vulkan/icd.d/standard.json'], []],
    [{ VK_DRIVER_FILES: '/mine' }, ['/mine/one.json', '/mine/two.json'], ['VK_DRIVER_FILES']],
    [{ VK_ICD_FILENAMES: '/mine/two.json:/other/three.json' }, ['/mine/two.json', '/other/three.json'], ['VK_ICD_FILENAMES']],
    [{ VK_ICD_FILENAMES: '/mine', VK_DRIVER_FILES: '/other/three.json' }, ['/other/three.json'], ['VK_DRIVER_FILES']],
    [{ VK_ADD_DRIVER_FILES: '/mine/two.json' }, ['/mine/two.json', '/usr/share/vulkan/icd.d/standard.json'], ['VK_ADD_DRIVER_FILES']],
    [{ VK_ADD_DRIVER_FILES: '/mine', VK_DRIVER_FILES: '/other/three.json' }, ['/other/three.json'], ['VK_DRIVER_FILES']],
  ];
  for (const [env, expected, sources] of cases) {
    const place = machine(files, env);
    const found = drivers(place);
    assert.deepEqual(paths(place, found), expected, JSON.stringify(env));
    for (const source of sources) assert.equal(found[0].source, source);
  }
});

test('drivers that the loader leaves out', { skip: !posix }, () => {
  const files = {
    '/usr/share/vulkan/icd.d/radeon_icd.x86_64.json': icd('x'),
    '/usr/share/vulkan/icd.d/lvp_icd.x86_64.json': icd('x'),
    '/usr/share/vulkan/icd.d/old.i686.json': icd('x', { library_arch: '32' }),
  };
  const ignored = (/** @type {NodeJS.ProcessEnv} */ env) => drivers(machine(files, env)).map(({ ignored: why }) => why);
  assert.deepEqual(ignored({}), [null, 'its library is for 32-bit programs', null]);
  assert.match(String(ignored({ VK_LOADER_DRIVERS_DISABLE: '*RADEON*' })[2]), /VK_LOADER_DRIVERS_DISABLE/);
  const selected = ignored({ VK_LOADER_DRIVERS_SELECT: 'lvp*', VK_LOADER_DRIVERS_DISABLE: '~all~' });
  assert.equal(selected[0], null);
  assert.match(String(selected[2]), /VK_LOADER_DRIVERS_SELECT/);

  for (const [glob, name, expected] of /** @type {Array<[string, string, boolean]>} */ ([
    ['lvp*', 'lvp_icd.json', true],
    ['lvp*', 'my_lvp.json', false],
    ['*.json', 'a.json', true],
    ['*.json', 'a.jsonx', false],
    ['*vp_*', 'LVP_ICD.json', true],
    ['a.json', 'A.JSON', true],
    ['a', 'a.json', false],
    ['*', 'x', true],
    ['~all~', 'x', true],
    ['', 'x', false],
  ]))
    assert.equal(globMatches(glob, name), expected, `${glob} ${name}`);
});

test('manifests that are none', { skip: !posix }, () => {
  const place = machine(
    {
      '/m/a.json': '{',
      '/m/b.json': {},
      '/m/c.json': icd(/** @type {any} */ (7)),
      '/m/d.json': '[1]',
      '/m/e.json': 'null',
    },
    { VK_DRIVER_FILES: '/m:/m/none.json' },
  );
  const errors = drivers(place).map(({ error }) => String(error));
  const expected = [/^no JSON/, /not a manifest of a driver/, /names no library/, /not a manifest/, /not a manifest/, /no such file/];
  assert.equal(errors.length, expected.length);
  expected.forEach((words, i) => assert.match(errors[i], words));
});

test('layers, one or several in a file', { skip: !posix }, () => {
  const files = {
    '/usr/share/vulkan/explicit_layer.d/one.json': {
      layer: { name: 'A', library_path: './a.so', api_version: '1.3.1' },
    },
    '/usr/share/vulkan/explicit_layer.d/a.so': '',
    '/usr/share/vulkan/explicit_layer.d/two.json': {
      layers: [
        { name: 'B', library_path: './b.so' },
        { name: 'C', component_layers: ['A', 'B'] },
      ],
    },
    '/mine/d.json': { layer: { name: 'D', library_path: './d.so' } },
  };
  const list = (/** @type {NodeJS.ProcessEnv} */ env) =>
    layers(machine(files, env)).map(({ name, exists, error }) => [name, exists, error === null]);
  const standard = [
    ['A', true, true],
    ['B', false, false],
    ['C', true, true],
  ];
  assert.deepEqual(list({}), standard);
  assert.deepEqual(list({ VK_LAYER_PATH: '/mine' }), [['D', false, false]]);
  assert.deepEqual(list({ VK_ADD_LAYER_PATH: '/mine' }), [['D', false, false], ...standard]);
});

test('drivers where the loader does not look', { skip: !posix }, () => {
  const files = {
    '/usr/local/nvidia/share/vulkan/icd.d/nvidia_icd.json': icd('x'),
    '/opt/amdgpu/share/vulkan/icd.d/amd.json': icd('x'),
    '/usr/share/vulkan/icd.d/standard.json': icd('x'),
  };
  const place = machine(files);
  const away = ['/usr/local/nvidia/share/vulkan/icd.d/nvidia_icd.json', '/opt/amdgpu/share/vulkan/icd.d/amd.json'];
  assert.deepEqual(
    strayDrivers(place).map((file) => file.slice(place.root.length)),
    away,
  );
  const moved = machine(files, { XDG_DATA_DIRS: '/data' });
  assert.equal(strayDrivers(moved)[0], join(moved.root, '/usr/share/vulkan/icd.d/standard.json'));
});

test('folders on macOS, and none on Windows', { skip: !posix }, () => {
  const mac = configurationFolders({ platform: 'darwin', arch: 'arm64', env: {}, home: '/Users/me', root: '/' });
  for (const folder of ['/opt/homebrew/share', '/opt/homebrew/etc', '/usr/local/share', '/Users/me/.config'])
    assert.ok(mac.includes(folder), folder);
  assert.deepEqual(configurationFolders({ platform: 'win32', arch: 'x64', env: {}, home: 'C:\\', root: 'C:\\' }), []);
});

test('on macOS the loader and MoltenVK are found where Homebrew and the SDK put them', { skip: !posix }, () => {
  const files = {
    '/opt/homebrew/lib/libvulkan.1.dylib': '',
    '/opt/homebrew/lib/libMoltenVK.dylib': '',
    '/opt/homebrew/etc/vulkan/icd.d/MoltenVK_icd.json': icd('../../../lib/libMoltenVK.dylib', { is_portability_driver: true }),
    '/sdk/lib/libvulkan.dylib': '',
  };
  const place = { ...machine(files), platform: /** @type {const} */ ('darwin'), arch: /** @type {const} */ ('arm64') };
  assert.deepEqual(
    loaders(place).map((path) => path.slice(place.root.length)),
    ['/opt/homebrew/lib/libvulkan.1.dylib', '/opt/homebrew/lib/libMoltenVK.dylib'],
  );
  const [moltenVk] = drivers(place);
  assert.deepEqual([moltenVk.exists, moltenVk.ignored, moltenVk.error], [true, null, null]);
  const withSdk = { ...place, env: { VULKAN_SDK: join(place.root, 'sdk'), DYLD_LIBRARY_PATH: join(place.root, 'none') } };
  assert.equal(loaders(withSdk).at(-1), join(place.root, 'sdk/lib/libvulkan.dylib'));
  const elsewhere = { ...place, env: { HOMEBREW_PREFIX: join(place.root, 'none') } };
  assert.deepEqual(loaders(elsewhere), []);
});

test("the linker's cache", () => {
  const cache = [
    "2 libs found in cache `/etc/ld.so.cache'",
    '\tlibvulkan.so.1 (libc6) => /lib/i386-linux-gnu/libvulkan.so.1',
    '\tlibvulkan.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libvulkan.so.1',
    '\tlibvulkan.so.12 (libc6,x86-64) => /lib/libvulkan.so.12',
  ].join('\n');
  assert.equal(cachedLibrary(cache, 'libvulkan.so.1', 'x64'), '/lib/x86_64-linux-gnu/libvulkan.so.1');
  assert.equal(cachedLibrary(cache, 'libvulkan.so.1', 'arm64'), null);
  assert.equal(cachedLibrary(cache, 'libnone.so', 'x64'), null);
});

test('the operating system and its GPUs', { skip: !posix }, () => {
  const place = machine({
    '/etc/os-release': 'PRETTY_NAME="Linux Mint 22"\nID=linuxmint\nID_LIKE="ubuntu debian"\n',
    '/sys/bus/pci/devices/0000:01:00.0/class': '0x030200\n',
    '/sys/bus/pci/devices/0000:01:00.0/vendor': '0x10de\n',
    '/sys/bus/pci/devices/0000:02:00.0/class': '0x030200\n',
    '/sys/bus/pci/devices/0000:02:00.0/vendor': '0x10de\n',
    '/sys/bus/pci/devices/0000:00:02.0/class': '0x030000\n',
    '/sys/bus/pci/devices/0000:00:02.0/vendor': '0x8086\n',
    // A network card, and a display of a server's management.
    '/sys/bus/pci/devices/0000:03:00.0/class': '0x020000\n',
    '/sys/bus/pci/devices/0000:03:00.0/vendor': '0x1002\n',
    '/sys/bus/pci/devices/0000:04:00.0/class': '0x030000\n',
    '/sys/bus/pci/devices/0000:04:00.0/vendor': '0x1a03\n',
    '/.dockerenv': '',
  });
  const facts = systemFacts(place);
  assert.deepEqual([facts.name, facts.distribution, facts.relatives], ['Linux Mint 22', 'linuxmint', ['ubuntu', 'debian']]);
  assert.deepEqual([...facts.gpus].sort(), ['intel', 'nvidia']);
  assert.deepEqual([facts.container, facts.closedNodes], [true, []]);
  assert.deepEqual(systemFacts(machine({ '/proc/driver/nvidia/version': 'NVRM' })).gpus, ['nvidia']);
  assert.equal(systemFacts(machine({})).container, false);
});

test('every system has its own commands', () => {
  /** @type {Array<[Partial<import('../bin/lib/packages.mjs').System>, string]>} */
  const cases = [
    [{}, 'apt-get install -y libvulkan1 mesa-vulkan-drivers'],
    [{ root: false }, 'sudo apt-get install -y libvulkan1 mesa-vulkan-drivers'],
    [{ distribution: 'linuxmint', relatives: ['ubuntu', 'debian'] }, 'apt-get install -y libvulkan1 mesa-vulkan-drivers'],
    [{ distribution: 'fedora' }, 'dnf install -y vulkan-loader mesa-vulkan-drivers'],
    [{ distribution: 'rocky', relatives: ['rhel', 'centos', 'fedora'] }, 'dnf install -y vulkan-loader mesa-vulkan-drivers'],
    [{ distribution: 'arch' }, 'pacman -S --needed vulkan-icd-loader vulkan-swrast'],
    [{ distribution: 'opensuse-tumbleweed' }, 'zypper install libvulkan1 libvulkan_lvp'],
    [{ distribution: 'alpine' }, 'apk add vulkan-loader mesa-vulkan-swrast'],
    [{ platform: 'darwin', distribution: '', root: false }, 'brew install vulkan-loader molten-vk'],
    [
      { platform: 'win32', distribution: '' },
      "winget install KhronosGroup.VulkanRT; install your GPU vendor's newest driver, which brings Vulkan",
    ],
    [
      { distribution: 'plan9' },
      'install the Vulkan loader and a Vulkan driver (Mesa has one that runs on the CPU) with your package manager',
    ],
  ];
  for (const [changes, expected] of cases) assert.equal(installation(system(changes), ['loader', 'software']), expected);
  // A distribution cannot pass itself off as another operating system.
  assert.equal(family(system({ distribution: 'darwin' })), null);
  assert.equal(
    installation(system({ distribution: 'ubuntu', root: false }), ['loader', 'nvidia']),
    'sudo apt-get install -y libvulkan1 && sudo ubuntu-drivers install',
  );
  assert.match(installation(system({ distribution: 'alpine' }), ['nvidia']), /^install NVIDIA's driver/);
  assert.equal(installation(system({ distribution: 'arch' }), ['nvidia']), 'pacman -S --needed nvidia-utils');

  assert.equal(libraryInstallation(system(), 'libX11.so.6'), 'apt-get install -y libx11-6');
  assert.match(libraryInstallation(system(), 'libodd.so.1'), /^apt-file search libodd\.so\.1/);
  assert.equal(
    libraryInstallation(system({ distribution: 'fedora', root: false }), 'libX11.so.6'),
    "sudo dnf install -y 'libX11.so.6()(64bit)'",
  );
  assert.equal(libraryInstallation(system({ distribution: 'alpine' }), 'libX11.so.6'), 'apk add so:libX11.so.6');
});

test('a machine on which all is well', () => {
  assert.deepEqual(diagnose(facts()), []);
  assert.ok(usable(facts()));
  assert.ok(!usable(facts({ smoke: { ok: false, wrong: 1 } })));
  assert.ok(!usable(facts({ smoke: null })));
  assert.ok(!usable(facts({ smokeError: 'the process was ended by SIGSEGV in destroy' })));
  assert.ok(!usable(facts({ node: { version: '20.16.9' } })));
  assert.ok(atLeast('20.17.0', '20.17') && atLeast('22', '20.17') && !atLeast('20.9', '20.17'));
});

test('what is missing, with its cure', () => {
  const cases = /** @type {Array<[string, Parameters<typeof facts>[0], Array<[string, string, string]>]>} */ ([
    ['Node too old', { node: { version: '18.0.0' } }, [['problem', 'node', 'nvm install --lts, or https://nodejs.org/en/download']]],
    [
      'no addon',
      { ...noDevice, devicesError: null, addon: { ok: false, error: 'no binary' } },
      [['problem', 'addon', 'npm install --include=optional helios-vk@1.2.3']],
    ],
    [
      'no addon in a checkout',
      { ...noDevice, devicesError: null, addon: { ok: false }, package: { checkout: true } },
      [['problem', 'addon', 'npm ci && npm run build']],
    ],
    [
      'binary of another version',
      { addon: { version: '1.2.2' } },
      [['warning', 'addon', 'npm install --include=optional helios-vk@1.2.3']],
    ],
    [
      'no loader',
      {
        ...noDevice,
        devicesError: { code: 'ERR_HELIOS_NO_LOADER', message: 'x', crash: false },
        loader: { ok: false, candidates: [], path: null },
      },
      [['problem', 'loader', 'apt-get install -y libvulkan1']],
    ],
    [
      'no loader and no driver',
      { ...noDevice, drivers: [], loader: { ok: false, candidates: [], path: null } },
      [['problem', 'loader', 'apt-get install -y libvulkan1 mesa-vulkan-drivers']],
    ],
    [
      'a loader where the linker does not look',
      { ...noDevice, loader: { ok: false, candidates: ['/opt/homebrew/lib/libvulkan.dylib'] } },
      [['problem', 'loader', 'export HELIOS_VULKAN_LOADER=/opt/homebrew/lib/libvulkan.dylib']],
    ],
    [
      'a loader that is too old',
      { ...noDevice, loader: { ok: false, error: 'the Vulkan loader is of version 1.1, 1.2 or later is needed' } },
      [['problem', 'loader', 'apt-get install -y libvulkan1']],
    ],
    ['no driver', { ...noDevice, drivers: [] }, [['problem', 'drivers', 'apt-get install -y mesa-vulkan-drivers']]],
    [
      'no driver for the GPU',
      { ...noDevice, drivers: [], system: { gpus: ['nvidia'], distribution: 'arch' } },
      [['problem', 'drivers', 'pacman -S --needed nvidia-utils']],
    ],
    [
      'a driver elsewhere',
      { ...noDevice, drivers: [], strayDrivers: ['/usr/local/nvidia/share/vulkan/icd.d/nvidia_icd.json'] },
      [['problem', 'drivers', 'export VK_DRIVER_FILES=/usr/local/nvidia/share/vulkan/icd.d/nvidia_icd.json']],
    ],
    [
      'a container without the Vulkan part',
      { ...noDevice, drivers: [], system: { gpus: ['nvidia'], container: true } },
      [['problem', 'drivers', 'start the container with --gpus all -e NVIDIA_DRIVER_CAPABILITIES=all']],
    ],
    [
      'all drivers left out',
      { ...noDevice, drivers: [driver({ ignored: 'by name' })], environment: { VK_LOADER_DRIVERS_DISABLE: '*' } },
      [['problem', 'drivers', 'unset VK_LOADER_DRIVERS_DISABLE']],
    ],
    [
      'a library that the driver needs',
      {
        ...noDevice,
        drivers: [driver({ loads: false, error: 'libX11.so.6: cannot open shared object file: No such file or directory' })],
      },
      [['problem', 'drivers', 'apt-get install -y libx11-6']],
    ],
    [
      'the same in the words of musl',
      {
        ...noDevice,
        system: { distribution: 'alpine' },
        drivers: [
          driver({
            loads: false,
            error: 'Error loading shared library libX11.so.6: No such file or directory (needed by /usr/lib/libvulkan_lvp.so)',
          }),
        ],
      },
      [['problem', 'drivers', 'apk add so:libX11.so.6']],
    ],
    [
      'no loader and no driver on Alpine',
      { ...noDevice, system: { distribution: 'alpine' }, drivers: [], loader: { ok: false, candidates: [], path: null } },
      [['problem', 'loader', 'apk add vulkan-loader mesa-vulkan-swrast']],
    ],
    ['drivers that find no hardware', noDevice, [['problem', 'devices', 'apt-get install -y mesa-vulkan-drivers']]],
    [
      'a variable that leads to them',
      { ...noDevice, environment: { VK_ICD_FILENAMES: '/a.json' } },
      [['problem', 'devices', 'unset VK_ICD_FILENAMES']],
    ],
    [
      'hardware that only the CPU stands in for',
      { system: { gpus: ['amd'] } },
      [['warning', 'devices', 'apt-get install -y mesa-vulkan-drivers']],
    ],
    [
      'no right to use the GPU',
      { system: { closedNodes: ['/dev/dri/renderD128'] } },
      [['warning', 'devices', 'sudo usermod -aG render,video "$USER", then log in again']],
    ],
    [
      'a device that computes wrongly',
      { smoke: { ok: false, wrong: 3 }, devices: [summary(), summary({ index: 1, uuid: 'u1' })] },
      [['problem', 'smoke', 'export HELIOS_DEVICE=u1']],
    ],
    [
      'validation without its layer',
      { ...noDevice, validation: { available: false, requested: true } },
      [['problem', 'validation', 'apt-get install -y vulkan-validationlayers']],
    ],
    ['no layer', { validation: { available: false } }, [['note', 'validation', 'apt-get install -y vulkan-validationlayers']]],
  ]);
  for (const [title, changes, expected] of cases) assert.deepEqual(judge(changes), expected, title);
});

test('a broken driver beside a good one is a warning, a crashing one is put aside', () => {
  const bad = driver({
    file: "/x/it's bad.json",
    error: 'its library x was not found',
    exists: false,
    loads: null,
    libraryPath: null,
  });
  assert.deepEqual(judge({ drivers: [driver(), bad] }), [
    ['warning', 'drivers', "reinstall the driver that left /x/it's bad.json, or remove that file"],
  ]);
  const good = driver({ file: "/x/it's good.json" });
  const crash = { ...noDevice, devicesError: { code: null, message: 'ended by SIGSEGV', crash: true } };
  assert.deepEqual(judge({ ...crash, drivers: [good, driver({ crashes: true, error: 'ended by SIGSEGV' })] }), [
    ['problem', 'drivers', `export VK_DRIVER_FILES='/x/it'\\''s good.json'`],
  ]);
  assert.deepEqual(
    judge({ ...crash, drivers: [good] }).map(([severity, check]) => [severity, check]),
    [['problem', 'devices']],
  );
});

test('problems come before warnings and notes', () => {
  const order = judge({ validation: { available: false }, addon: { version: '0' }, smoke: { ok: false, wrong: 1 } });
  assert.deepEqual(
    order.map(([severity]) => severity),
    ['problem', 'warning', 'note'],
  );
});

test('the report shows a device with matrix units, and one that cannot be used', () => {
  const shape = {
    MSize: 16,
    NSize: 16,
    KSize: 16,
    ATypeName: 'float16',
    ResultTypeName: 'float32',
    saturatingAccumulation: false,
  };
  assert.deepEqual(
    matrixShapes(/** @type {any} */ ({ cooperativeMatrixProperties: [shape, { ...shape, saturatingAccumulation: true }] })),
    ['16×16×16 float16→float32'],
  );
  assert.deepEqual([size(0), size(1023), size(1024), size(150_000_000_000)], ['0 B', '1023 B', '1.0 KiB', '139.7 GiB']);
  const all = facts({
    devices: [summary(), summary({ index: 1, uuid: 'u1', name: 'Old GPU', usable: false, reason: 'no timeline semaphores' })],
    device: {
      hasPushDescriptors: true,
      hasBDA: true,
      timestampValidBits: 64,
      bf16Supported: true,
      coopMatSupported: true,
      minSubgroupSize: 16,
      maxSubgroupSize: 32,
      subgroupSize: 32,
      maxComputeSharedMemorySize: 49152,
      cooperativeMatrixProperties: [shape],
    },
  });
  const text = report(all, diagnose(all));
  assert.match(text, /^✓ Devices +1 of 2 usable$/m);
  assert.match(text, /▸ {2}0 {2}llvmpipe/);
  assert.match(text, /✗ {2}1 {2}Old GPU .*no timeline semaphores$/m);
  assert.match(text, /^✓ Features +push descriptors, device addresses, timestamps, bf16, matrix units$/m);
  assert.match(text, /matrix shapes +16×16×16 float16→float32$/m);
  assert.match(text, /subgroups +16 to 32$/m);
  assert.match(text, /\nUsable: llvmpipe$/);
});
