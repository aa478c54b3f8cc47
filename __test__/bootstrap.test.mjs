// The decisions of the set-up step, on snapshots of machines that this one is not.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { atLeast } from '../bin/lib/diagnose.mjs';
import { debianMirror, family, modulesMatch, plan } from '../scripts/setup-plan.mjs';

const WANTED = { node: '20.17', rust: '1.95' };

/**
 * A Debian machine on which everything is there, but for `changes`.
 * @param {Partial<import('../scripts/setup-plan.mjs').Snapshot>} [changes]
 * @returns {import('../scripts/setup-plan.mjs').Snapshot}
 */
function machine(changes = {}) {
  return {
    platform: 'linux',
    distribution: 'debian',
    relatives: [],
    rights: 'root',
    mayInstall: true,
    node: '20.17.0',
    modules: true,
    addon: 'ready',
    made: true,
    cargo: '1.95.0',
    rustup: true,
    rustTools: true,
    compiler: true,
    certificates: true,
    loader: true,
    drivers: true,
    softwareDriver: true,
    layer: true,
    spirvVal: true,
    glslang: true,
    debootstrap: true,
    mpi: true,
    python: true,
    mmdebstrap: true,
    emulator: true,
    binutils: true,
    chromium: true,
    ...changes,
  };
}

/** @type {Partial<import('../scripts/setup-plan.mjs').Snapshot>} */
const BARE = {
  modules: false,
  addon: 'missing',
  cargo: null,
  rustup: false,
  rustTools: false,
  compiler: false,
  certificates: false,
  loader: false,
  drivers: false,
  softwareDriver: false,
  layer: false,
  spirvVal: false,
  glslang: false,
  debootstrap: false,
  mpi: false,
  python: false,
  mmdebstrap: false,
  emulator: false,
  binutils: false,
  chromium: false,
};

/** @param {import('../scripts/setup-plan.mjs').Step[]} steps */
const kinds = (steps) => steps.map(({ kind }) => kind);

/** @param {import('../scripts/setup-plan.mjs').Step[]} steps */
const advised = (steps) => steps.map(({ advice }) => advice).join('\n');

test('a machine that has everything needs nothing', () => {
  for (const purpose of /** @type {const} */ (['train', 'bench', 'test'])) {
    assert.deepEqual(plan(machine(), purpose, WANTED), []);
  }
});

test('a bare Debian as root is set up without a question, in an order that can work', () => {
  const steps = plan(machine(BARE), 'train', WANTED);
  assert.deepEqual(kinds(steps), ['packages', 'rust', 'modules', 'addon']);
  const installed = steps
    .flatMap(({ commands }) => commands)
    .filter((command) => command.includes('install'))
    .flat();
  for (const name of ['g++', 'ca-certificates', 'libvulkan1', 'mesa-vulkan-drivers']) assert.ok(installed.includes(name), name);
  assert.ok(!installed.includes('vulkan-validationlayers'), 'training needs no validation layer');
  assert.ok(steps.every(({ required }) => required));
});

test('declarations, reference and the modules for `require` are made for tests and editors, after the addon, and not for training', () => {
  const lacking = machine({ made: false, modules: false, addon: 'missing' });
  assert.deepEqual(kinds(plan(lacking, 'test', WANTED)), ['modules', 'addon', 'made']);
  assert.deepEqual(kinds(plan(lacking, 'train', WANTED)), ['modules', 'addon']);
});

test('package lists are refreshed before packages are installed', () => {
  for (const { kind, commands } of plan(machine(BARE), 'test', WANTED)) {
    if (kind !== 'packages') continue;
    assert.equal(commands.length, 2);
    assert.ok(commands[0].includes('update') && commands[1].includes('install'));
  }
});

test('the tests also want the validation layer, spirv-val and glslangValidator, all of them debootstrap too, and do without', () => {
  const lacking = machine({ layer: false, spirvVal: false, glslang: false, debootstrap: false });
  assert.deepEqual(plan(lacking, 'train', WANTED), []);
  const steps = plan(lacking, 'test', WANTED);
  assert.match(advised(steps), /vulkan-validationlayers/);
  for (const name of ['spirv-tools', 'glslang-tools']) {
    assert.ok(steps[0].commands[1].includes(name), steps[0].commands[1].join(' '));
  }
  assert.doesNotMatch(advised(steps), /debootstrap/);
  assert.match(advised(plan(lacking, 'full', WANTED)), /debootstrap/);
  assert.doesNotMatch(advised(plan(machine({ mpi: false }), 'test', WANTED)), /MPI/);
  assert.match(advised(plan(machine({ mpi: false, rights: 'none' }), 'full', WANTED)), /openmpi-bin/);
  assert.doesNotMatch(advised(plan(machine({ python: false }), 'test', WANTED)), /Python/);
  assert.match(advised(plan(machine({ python: false, rights: 'none' }), 'full', WANTED)), /python3-venv/);
  assert.doesNotMatch(advised(plan(machine({ chromium: false }), 'test', WANTED)), /chromium/i);
  assert.match(advised(plan(machine({ chromium: false, rights: 'none' }), 'full', WANTED)), /chromium/);
  assert.ok(steps.every(({ required }) => !required));
});

test('the stage of platforms gets what builds and runs their binaries, and no tools of the tests', () => {
  const lacking = machine({ python: false, mmdebstrap: false, emulator: false, binutils: false, layer: false, made: false });
  const [packages, ...rest] = plan(lacking, 'platforms', WANTED);
  assert.deepEqual(kinds(rest), ['made']);
  for (const name of ['python3-venv', 'mmdebstrap', 'qemu-user-static', 'binutils']) assert.ok(packages.commands[1].includes(name), name);
  assert.ok(!packages.commands[1].includes('vulkan-validationlayers'));
  assert.ok(!packages.required, 'a target that cannot be tried is skipped');
  for (const tool of /** @type {const} */ (['mmdebstrap', 'emulator', 'binutils'])) {
    assert.deepEqual(plan(machine({ [tool]: false }), 'full', WANTED), [], tool);
  }
});

test('the tests want the software device even where there is a GPU; training does not', () => {
  const gpu = machine({ softwareDriver: false });
  assert.deepEqual(plan(gpu, 'train', WANTED), []);
  assert.match(advised(plan(gpu, 'test', WANTED)), /mesa-vulkan-drivers/);
});

test('sudo without a password is used, and named in the command', () => {
  const [step] = plan(
    machine({ loader: false, rights: 'sudo', distribution: 'linuxmint', relatives: ['ubuntu', 'debian'] }),
    'train',
    WANTED,
  );
  assert.equal(step.kind, 'packages');
  for (const command of step.commands) assert.deepEqual(command.slice(0, 3), ['sudo', '-n', 'env']);
});

test('without rights nothing is run, and the command is given', () => {
  const steps = plan(machine({ loader: false, drivers: false, rights: 'none' }), 'train', WANTED);
  assert.deepEqual(kinds(steps), ['advice']);
  assert.deepEqual(steps[0].commands, []);
  assert.equal(steps[0].advice, 'sudo apt-get install -y --no-install-recommends libvulkan1 mesa-vulkan-drivers');
  assert.ok(steps[0].required);
});

test('other systems get their own command', () => {
  const lacking = { loader: false, drivers: false, compiler: false, addon: /** @type {const} */ ('missing') };
  /** @type {[Partial<import('../scripts/setup-plan.mjs').Snapshot>, RegExp][]} */
  const systems = [
    [{ distribution: 'fedora' }, /sudo dnf install -y gcc-c\+\+ vulkan-loader mesa-vulkan-drivers/],
    [{ distribution: 'rocky', relatives: ['rhel', 'centos', 'fedora'] }, /dnf install/],
    [{ distribution: 'arch' }, /pacman -S --needed gcc vulkan-icd-loader vulkan-swrast/],
    [{ distribution: 'opensuse-tumbleweed', relatives: ['opensuse', 'suse'] }, /zypper install/],
    [{ distribution: 'alpine' }, /apk add g\+\+/],
    [{ platform: 'darwin', distribution: '' }, /xcode-select --install && brew install vulkan-loader molten-vk/],
    [{ platform: 'win32', distribution: '' }, /winget install/],
    [{ distribution: 'nixos' }, /package manager/],
  ];
  for (const [system, expected] of systems) {
    const steps = plan(machine({ ...lacking, ...system }), 'train', WANTED);
    assert.match(advised(steps), expected);
    assert.ok(
      steps.every(({ kind }) => kind !== 'packages'),
      'packages are installed on Debian and its like only',
    );
  }
});

test('nothing is installed where the user asked to be told only', () => {
  for (const purpose of /** @type {const} */ (['train', 'test'])) {
    const steps = plan(machine({ ...BARE, mayInstall: false }), purpose, WANTED);
    assert.ok(steps.every(({ kind }) => kind === 'advice' || kind === 'addon'));
    assert.match(advised(steps), /npm ci/);
    assert.match(advised(steps), /rustup/);
  }
});

test('an old or incomplete Rust toolchain is completed by rustup', () => {
  for (const [purpose, changes] of /** @type {const} */ ([
    ['train', { cargo: '1.94.1', addon: 'stale' }],
    ['test', { rustTools: false }],
  ])) {
    const [step] = plan(machine(changes), purpose, WANTED);
    assert.equal(step.kind, 'rust');
    assert.deepEqual(step.commands[0].slice(0, 4), ['rustup', 'toolchain', 'install', 'stable']);
  }
});

test('an addon older than its sources is rebuilt, or used where it cannot be', () => {
  assert.deepEqual(kinds(plan(machine({ addon: 'stale' }), 'train', WANTED)), ['addon']);
  const without = plan(machine({ addon: 'stale', cargo: null, rustup: false, rustTools: false }), 'train', WANTED);
  assert.deepEqual(kinds(without), ['advice']);
  assert.ok(!without[0].required);
  const tests = plan(machine({ addon: 'stale', cargo: null, rustup: false, rustTools: false }), 'test', WANTED);
  assert.deepEqual(kinds(tests), ['rust', 'addon']);
});

test('a Node that is too old is named', () => {
  const [step] = plan(machine({ node: '18.20.4' }), 'train', WANTED);
  assert.match(step.what, /Node 18\.20\.4/);
  assert.ok(step.required);
});

test('versions compare by number', () => {
  assert.ok(atLeast('1.100.0', '1.95'));
  assert.ok(atLeast('1.95.0', '1.95'));
  assert.ok(!atLeast('1.94.9', '1.95'));
  assert.ok(atLeast('20.17', '20.17.0'));
  assert.ok(!atLeast('9.1', '20'));
});

test('node modules are compared with the lock by version, optional ones aside', () => {
  const lock = {
    packages: {
      '': {},
      'node_modules/a': { version: '1.0.0' },
      'node_modules/b': { version: '2.0.0', optional: true },
    },
  };
  assert.ok(modulesMatch(lock, { packages: { 'node_modules/a': { version: '1.0.0' } } }));
  assert.ok(!modulesMatch(lock, { packages: { 'node_modules/a': { version: '1.0.1' } } }));
  assert.ok(!modulesMatch(lock, { packages: {} }));
  assert.ok(!modulesMatch(lock, null));
});

test('distributions are known by their relatives', () => {
  assert.equal(family({ platform: 'linux', distribution: 'ubuntu', relatives: ['debian'] }), 'debian');
  assert.equal(family({ platform: 'linux', distribution: 'pop', relatives: ['ubuntu', 'debian'] }), 'debian');
  assert.equal(family({ platform: 'linux', distribution: 'void', relatives: [] }), null);
  assert.equal(family({ platform: 'linux', distribution: 'constructor', relatives: [] }), null);
});

test("the Debian mirror is the host's own", () => {
  const deb822 =
    'Types: deb\nURIs: http://mirror.example/debian-security\n\nTypes: deb\nURIs: http://mirror.example/debian/\nSuites: bookworm\n';
  assert.equal(debianMirror(deb822, null), 'http://mirror.example/debian');
  const lines = '# deb http://commented.example/debian stable main\ndeb [arch=amd64] https://list.example/debian bookworm main\n';
  assert.equal(debianMirror(null, lines), 'https://list.example/debian');
  assert.equal(debianMirror(null, 'deb http://archive.example/ubuntu noble main\n'), null);
  assert.equal(debianMirror(null, null), null);
});
