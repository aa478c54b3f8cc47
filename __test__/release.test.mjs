// The release: the version in every file, what stands in a release's way, and what npm will sign.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { bill, checksums } from '../scripts/crates.mjs';
import { TARGETS } from '../scripts/platforms/build.mjs';
import {
  FILES,
  PACKAGES,
  billOfPackage,
  bump,
  compareVersions,
  faults,
  isVersion,
  provenance,
  systemOf,
  versionOf,
} from '../scripts/release-plan.mjs';

const repository = new URL('..', import.meta.url);
const TEXTS = Object.fromEntries(FILES.map((file) => [file, readFileSync(new URL(file, repository), 'utf8')]));
const CURRENT = versionOf(TEXTS);
const CLEAN = { changed: [], tags: [] };
/** A version after any that the repository has. */
const NEXT = `${Number.parseInt(CURRENT, 10) + 1}.2.3`;

/** @param {Record<string, string>} changes */
const withTexts = (changes) => ({ ...TEXTS, ...changes });
/** @param {string} version */
const announced = (version) => withTexts({ 'CHANGELOG.md': `# Changes\n\n## ${version}, unreleased\n\nA line.\n` });

test('the repository can be released as it stands', () => {
  assert.deepEqual(faults(TEXTS, CURRENT, CLEAN), []);
});

test('a bump sets the version wherever it stands, and nothing else', () => {
  const after = bump(announced(NEXT), NEXT, '2030-01-02');
  assert.deepEqual(Object.keys(after).sort(), [...FILES].sort());
  assert.deepEqual(faults(after, NEXT, CLEAN), []);
  assert.equal(after['CHANGELOG.md'], `# Changes\n\n## ${NEXT}, 2030-01-02\n\nA line.\n`);
  for (const folder of PACKAGES) {
    const manifest = JSON.parse(after[`${folder}/package.json`]);
    assert.equal(manifest.version, NEXT);
    assert.equal(manifest.peerDependencies['helios-vk'], `^${NEXT}`);
  }
  assert.match(after['Cargo.lock'], new RegExp(`name = "helios-vk"\nversion = "${NEXT}"`));
  assert.ok(!after['binding.js'].includes(`'${CURRENT}'`));
  // Back to where it was: no other byte has changed.
  const back = bump(after, CURRENT, '2030-01-02');
  for (const file of FILES) if (file !== 'CHANGELOG.md') assert.equal(back[file], TEXTS[file], file);
});

test('what a bump must find and does not', () => {
  for (const [file, text] of /** @type {const} */ ([
    ['Cargo.toml', '[package]\nversion = "9.9.9"\n'],
    ['Cargo.lock', ''],
  ])) {
    assert.throws(() => bump(withTexts({ [file]: text }), NEXT, '2030-01-02'), new RegExp(`^Error: ${file.replace('.', '\\.')} has no`));
  }
});

/** @param {string} file @param {(manifest: any) => void} change */
function changed(file, change) {
  const manifest = JSON.parse(TEXTS[file]);
  change(manifest);
  return withTexts({ [file]: JSON.stringify(manifest) });
}

test('each thing that stands in the way of a release is named', () => {
  /** @type {Array<[RegExp, Record<string, string>, string, import('../scripts/release-plan.mjs').Git]>} */
  const cases = [
    [/^1\.2 is no version/, announced('1.2'), '1.2', CLEAN],
    [/not committed: a\.txt, b\.txt$/, TEXTS, CURRENT, { ...CLEAN, changed: ['a.txt', 'b.txt'] }],
    [/^the tag v.* is of another commit/, TEXTS, CURRENT, { ...CLEAN, tags: [{ name: `v${CURRENT}`, here: false }] }],
    [/is older than/, announced('0.0.1'), '0.0.1', CLEAN],
    [/^v99\.0\.0 is released already$/, announced(NEXT), NEXT, { ...CLEAN, tags: [{ name: 'v99.0.0', here: false }] }],
    [/CHANGELOG\.md has no heading/, TEXTS, NEXT, CLEAN],
    [/says nothing below/, withTexts({ 'CHANGELOG.md': `\n## ${NEXT}, unreleased\n\n## 0.0.1, 2020-01-01\n\nOld.\n` }), NEXT, CLEAN],
    [/is not the first/, withTexts({ 'CHANGELOG.md': `\n## 99.0.0, unreleased\n\nNew.\n\n## ${NEXT}, unreleased\n\nx\n` }), NEXT, CLEAN],
    [/soon is no date/, withTexts({ 'CHANGELOG.md': `\n## ${NEXT}, soon\n\nx\n` }), NEXT, CLEAN],
    [/is tagged, and CHANGELOG\.md says/, announced(CURRENT), CURRENT, { ...CLEAN, tags: [{ name: `v${CURRENT}`, here: true }] }],
    [
      /^packages\/lm\/package\.json is of version 7\.0\.0/,
      changed('packages/lm/package.json', (m) => (m.version = '7.0.0')),
      CURRENT,
      CLEAN,
    ],
    [
      /asks for helios-vk \*, which should/,
      changed('packages/onnx/package.json', (m) => (m.peerDependencies['helios-vk'] = '*')),
      CURRENT,
      CLEAN,
    ],
    [/names another repository/, changed('packages/onnx/package.json', (m) => delete m.repository), CURRENT, CLEAN],
    [/files lacks LICENSE-MIT/, changed('packages/lm/package.json', (m) => (m.files = [])), CURRENT, CLEAN],
    [
      /package-lock\.json does not have/,
      changed('package-lock.json', (m) => (m.packages['packages/lm'].version = '7.0.0')),
      CURRENT,
      CLEAN,
    ],
    [/^Cargo\.toml is of another version/, withTexts({ 'Cargo.toml': 'version = "7.0.0"\n' }), CURRENT, CLEAN],
    [/^Cargo\.lock has another version/, withTexts({ 'Cargo.lock': '' }), CURRENT, CLEAN],
    [/binding\.js expects version 7\.0\.0/, withTexts({ 'binding.js': "bindingPackageVersion !== '7.0.0'" }), CURRENT, CLEAN],
  ];
  for (const [message, texts, version, git] of cases) {
    const found = faults(texts, version, git);
    assert.ok(
      found.some((each) => message.test(each)),
      `${message}: ${found.join('; ')}`,
    );
  }
});

test('a tag that points at the commit is that of the release itself', () => {
  const dated = withTexts({ 'CHANGELOG.md': `\n## ${CURRENT}, 2030-01-02\n\nx\n` });
  assert.deepEqual(faults(dated, CURRENT, { changed: [], tags: [{ name: `v${CURRENT}`, here: true }] }), []);
});

test('versions in their order', () => {
  const order = ['0.1.0-alpha.1', '0.1.0', '0.1.1', '0.2.0-rc.1', '0.2.0', '0.10.0', '1.0.0'];
  assert.deepEqual([...order].reverse().sort(compareVersions), order);
  for (const version of ['1', '1.2', 'v1.2.3', '1.2.3.4', '']) assert.ok(!isVersion(version), version);
});

test('provenance names the package, its digest, the commit, the tag and the workflow', () => {
  const source = { repository: 'git+https://github.com/a/b.git', commit: 'c0', tag: 'v1.2.3', workflow: '.github/workflows/release.yml' };
  const statement = provenance({ name: '@a/b', version: '1.2.3', sha512: 'ab' }, source);
  assert.deepEqual(statement.subject, [{ name: 'pkg:npm/%40a/b@1.2.3', digest: { sha512: 'ab' } }]);
  const { buildDefinition } = statement.predicate;
  assert.deepEqual(buildDefinition.externalParameters.workflow, {
    ref: 'refs/tags/v1.2.3',
    repository: 'https://github.com/a/b',
    path: '.github/workflows/release.yml',
  });
  assert.deepEqual(buildDefinition.resolvedDependencies, [
    { uri: 'git+https://github.com/a/b@refs/tags/v1.2.3', digest: { gitCommit: 'c0' } },
  ]);
});

test("a package's bill of materials has what it depends on, and no other package of the workspace", () => {
  const component = (/** @type {string} */ ref, name = ref.slice(0, ref.lastIndexOf('@'))) => ({ 'bom-ref': ref, name, version: '1.0.0' });
  const whole = {
    metadata: { component: component('top@1.0.0', 'folder') },
    components: [component('@own/a@1.0.0', 'a'), component('b@1.0.0'), component('x@1.0.0'), component('@y/y@1.0.0'), component('z@1.0.0')],
    dependencies: [
      { ref: 'top@1.0.0', dependsOn: ['@own/a@1.0.0', 'b@1.0.0'] },
      { ref: '@own/a@1.0.0', dependsOn: ['x@1.0.0', 'b@1.0.0'] },
      { ref: 'x@1.0.0', dependsOn: ['@y/y@1.0.0'] },
      { ref: '@y/y@1.0.0', dependsOn: ['x@1.0.0'] },
      { ref: 'b@1.0.0', dependsOn: ['z@1.0.0'] },
      { ref: 'z@1.0.0', dependsOn: [] },
    ],
  };
  const own = ['top', '@own/a', 'b'];
  const namesOf = (/** @type {string} */ name) => {
    const { metadata, components, dependencies } = billOfPackage(whole, name, own);
    assert.equal(metadata.component.name, name);
    assert.equal(dependencies.length, components.length + 1);
    return components.map((each) => each.name);
  };
  assert.deepEqual(namesOf('top'), []);
  assert.deepEqual(namesOf('@own/a'), ['x', '@y/y']);
  assert.deepEqual(namesOf('b'), ['z']);
  assert.throws(() => billOfPackage(whole, 'c', own), /has no c$/);
});

test('the system and the processor that a binary is for', () => {
  const bytes = (/** @type {[number, number[]][]} */ ...parts) => {
    const file = Buffer.alloc(512);
    for (const [at, values] of parts) file.set(values, at);
    return file;
  };
  const elf = [0x7f, 0x45, 0x4c, 0x46, 2, 1];
  const macho = [0xcf, 0xfa, 0xed, 0xfe];
  assert.equal(systemOf(bytes([0, elf], [18, [0x3e]])), 'linux-x64');
  assert.equal(systemOf(bytes([0, elf], [18, [0xb7]])), 'linux-arm64');
  assert.equal(systemOf(bytes([0, macho], [4, [7, 0, 0, 1]])), 'darwin-x64');
  assert.equal(systemOf(bytes([0, macho], [4, [12, 0, 0, 1]])), 'darwin-arm64');
  assert.equal(systemOf(bytes([0, [0x4d, 0x5a]], [0x3c, [0x80]], [0x80, [0x50, 0x45, 0, 0, 0x64, 0x86]])), 'win32-x64');
  for (const other of [Buffer.alloc(0), bytes(), bytes([0, elf], [18, [3]]), bytes([0, [0x4d, 0x5a]], [0x3c, [255, 255]])])
    assert.equal(systemOf(other), undefined);
  // What runs this is a program of its own system.
  assert.equal(systemOf(readFileSync(process.execPath)), `${process.platform}-${process.arch}`);
});

test('the bill of materials of the crates: licences as SPDX expressions, digests of Cargo.lock', () => {
  const sum = '0123456789abcdef'.repeat(4);
  const sums = checksums(
    `[[package]]\nname = "x"\nversion = "1.0.0"\nsource = "registry"\nchecksum = "${sum}"\n\n[[package]]\nname = "own"\n`,
  );
  const crates = [
    { name: 'x', version: '1.0.0', license: 'MIT/Apache-2.0', repository: 'https://x' },
    { name: 'y', version: '2.0.0', license: null, repository: null },
  ];
  const { components, dependencies, metadata } = bill({ version: '0.1.0', repository: '' }, crates, sums);
  assert.deepEqual(components, [
    {
      type: 'library',
      'bom-ref': 'pkg:cargo/x@1.0.0',
      name: 'x',
      version: '1.0.0',
      purl: 'pkg:cargo/x@1.0.0',
      licenses: [{ expression: 'MIT OR Apache-2.0' }],
      hashes: [{ alg: 'SHA-256', content: sum }],
      externalReferences: [{ type: 'vcs', url: 'https://x' }],
    },
    { type: 'library', 'bom-ref': 'pkg:cargo/y@2.0.0', name: 'y', version: '2.0.0', purl: 'pkg:cargo/y@2.0.0' },
  ]);
  assert.deepEqual(dependencies, [{ ref: metadata.component['bom-ref'], dependsOn: ['pkg:cargo/x@1.0.0', 'pkg:cargo/y@2.0.0'] }]);
});

test('what is built is what package.json names, and the workflow publishes every package', () => {
  assert.deepEqual(Object.keys(TARGETS).sort(), [...JSON.parse(TEXTS['package.json']).napi.targets].sort());
  const workflow = readFileSync(new URL('.github/workflows/ci.yml', repository), 'utf8');
  for (const target of Object.keys(TARGETS)) assert.ok(workflow.includes(target), target);
  // An artifact keeps the folders behind the first wildcard, and what packs a binary looks for it in the checkout's own folder.
  const [, uploaded] = /name: bindings-\$\{\{ matrix\.target \}\}\n +path: (\S+)/.exec(workflow) ?? [];
  assert.match(uploaded, /^[^*]*helios-vk\.\*\.node$/);
  assert.doesNotMatch(uploaded, /\//);
});
