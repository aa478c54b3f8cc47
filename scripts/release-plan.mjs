// What a release changes, and what stands in its way. Pure functions of the texts of files and of what git says, so that they are tested
// without a release; `release.mjs` carries them out.

/** The packages that npm gets beside the addon's, by their folders, in the order in which they are published. */
export const PACKAGES = ['packages/lm', 'packages/onnx', 'packages/alpha-backend'];
/** The files that have the version in them. */
export const FILES = [
  'package.json',
  ...PACKAGES.map((folder) => `${folder}/package.json`),
  'package-lock.json',
  'Cargo.toml',
  'Cargo.lock',
  'binding.js',
  'CHANGELOG.md',
];
const VERSION = /^(\d+)\.(\d+)\.(\d+)(?:-[0-9A-Za-z.-]+)?$/;
const UNRELEASED = 'unreleased';

/**
 * @typedef {Record<string, string>} Texts by path
 * @typedef {{ changed: string[], tags: Array<{ name: string, here: boolean }> }} Git
 *   files that differ from the commit; tags, and whether they are of it
 */

/** Whether a version can be released. @param {string} version */
export const isVersion = (version) => VERSION.test(version);

/** The version of the package. @param {Texts} texts */
export const versionOf = (texts) => String(JSON.parse(texts['package.json']).version);

/** Negative where `a` is the older version; one with a suffix is older than the same without. @param {string} a @param {string} b */
export function compareVersions(a, b) {
  const [x, y] = [a, b].map((version) => VERSION.exec(version)?.slice(1).map(Number) ?? []);
  for (let i = 0; i < 3; i++) if (x[i] !== y[i]) return x[i] - y[i];
  return Number(b.includes('-')) - Number(a.includes('-')) || (a < b ? -1 : Number(a > b));
}

/** What another package asks of the addon's: npm's caret. @param {string} version */
export const peerRange = (version) => `^${version}`;

/** A text with all of a JSON file's form but for some values. @param {string} text @param {(value: any) => void} change */
function changedJson(text, change) {
  const value = JSON.parse(text);
  change(value);
  return `${JSON.stringify(value, null, 2)}\n`;
}

/** @param {any} manifest @param {string} version */
function setVersion(manifest, version) {
  manifest.version = version;
  if (manifest.peerDependencies?.['helios-vk']) manifest.peerDependencies['helios-vk'] = peerRange(version);
}

/** A text in which one thing is replaced, which must be there. @param {string} path @param {string} text @param {RegExp} from @param {string} to */
function replaced(path, text, from, to) {
  if (!from.test(text)) throw new Error(`${path} has no ${from.source}`);
  return text.replace(from, to);
}

/** The heading of a version in the list of changes, and the text below it. @param {string} text @param {string} version */
function entry(text, version) {
  const heading = new RegExp(`^## ${version.replaceAll('.', '\\.')}, (.+)$`, 'm').exec(text);
  if (heading === null) return null;
  const below = text.slice(heading.index + heading[0].length);
  const end = below.search(/^## /m);
  return { date: heading[1], text: (end < 0 ? below : below.slice(0, end)).trim(), first: text.indexOf('\n## ') + 1 === heading.index };
}

/**
 * The files with another version in them.
 * @param {Texts} texts of `FILES`
 * @param {string} version
 * @param {string} date of the release, as the list of changes gets it
 * @returns {Texts} those of `FILES`
 */
export function bump(texts, version, date) {
  const old = versionOf(texts).replaceAll('.', '\\.');
  /** @type {Texts} */
  const after = {};
  for (const path of ['package.json', ...PACKAGES.map((folder) => `${folder}/package.json`)]) {
    after[path] = changedJson(texts[path], (manifest) => setVersion(manifest, version));
  }
  after['package-lock.json'] = changedJson(texts['package-lock.json'], (lock) => {
    lock.version = version;
    for (const folder of ['', ...PACKAGES]) setVersion(lock.packages[folder], version);
  });
  after['Cargo.toml'] = replaced('Cargo.toml', texts['Cargo.toml'], new RegExp(`^version = "${old}"$`, 'm'), `version = "${version}"`);
  const crate = new RegExp(`(^name = "helios-vk"\\nversion = )"${old}"$`, 'm');
  after['Cargo.lock'] = replaced('Cargo.lock', texts['Cargo.lock'], crate, `$1"${version}"`);
  // napi-rs writes it into what it generates.
  after['binding.js'] = texts['binding.js']
    .replaceAll(new RegExp(`(bindingPackageVersion !== )'${old}'`, 'g'), `$1'${version}'`)
    .replaceAll(new RegExp(`(mismatch, expected )${old} but`, 'g'), `$1${version} but`);
  const heading = new RegExp(`^## ${version.replaceAll('.', '\\.')}, ${UNRELEASED}$`, 'm');
  after['CHANGELOG.md'] = texts['CHANGELOG.md'].replace(heading, `## ${version}, ${date}`);
  return after;
}

/**
 * What stands in the way of a release.
 * @param {Texts} texts of `FILES`
 * @param {string} version that is to be released
 * @param {Git} git
 * @returns {string[]} one line each
 */
export function faults(texts, version, git) {
  const found = [];
  const main = JSON.parse(texts['package.json']);
  const current = String(main.version);
  const tag = git.tags.find(({ name }) => name === `v${version}`);
  const newest = git.tags
    .map(({ name }) => name.slice(1))
    .filter(isVersion)
    .sort(compareVersions)
    .at(-1);

  if (!isVersion(version)) found.push(`${version} is no version: MAJOR.MINOR.PATCH, and perhaps -SUFFIX`);
  if (git.changed.length > 0) found.push(`the tree has changes that are not committed: ${git.changed.join(', ')}`);
  if (tag && !tag.here) found.push(`the tag v${version} is of another commit: name the next version`);
  if (compareVersions(version, current) < 0) found.push(`${version} is older than ${current}, which package.json has`);
  if (!tag && newest !== undefined && compareVersions(version, newest) <= 0) found.push(`v${newest} is released already`);

  const changes = entry(texts['CHANGELOG.md'], version);
  if (changes === null) found.push(`CHANGELOG.md has no heading "## ${version}, ${UNRELEASED}"`);
  else {
    if (changes.text === '') found.push(`CHANGELOG.md says nothing below ${version}`);
    if (!changes.first) found.push(`the entry of ${version} is not the first in CHANGELOG.md`);
    if (tag && changes.date === UNRELEASED) found.push(`v${version} is tagged, and CHANGELOG.md says that it is ${UNRELEASED}`);
    if (changes.date !== UNRELEASED && !/^\d{4}-\d\d-\d\d$/.test(changes.date)) found.push(`CHANGELOG.md: ${changes.date} is no date`);
  }

  for (const folder of PACKAGES) {
    const manifest = JSON.parse(texts[`${folder}/package.json`]);
    const of = `${folder}/package.json`;
    if (manifest.version !== current) found.push(`${of} is of version ${manifest.version}, package.json of ${current}`);
    const range = manifest.peerDependencies?.['helios-vk'];
    if (range !== peerRange(current)) found.push(`${of} asks for helios-vk ${range}, which should be ${peerRange(current)}`);
    // The registry compares it with the repository that the workflow ran in.
    if (manifest.repository?.url !== main.repository.url) found.push(`${of} names another repository than package.json`);
    if (manifest.repository?.directory !== folder) found.push(`${of} should name its folder as repository.directory`);
    for (const notice of ['LICENSE-MIT', 'LICENSE-APACHE']) {
      if (!manifest.files.includes(notice)) found.push(`${of}: files lacks ${notice}`);
    }
    const locked = JSON.parse(texts['package-lock.json']).packages[folder];
    if (locked?.version !== manifest.version || locked?.peerDependencies?.['helios-vk'] !== range) {
      found.push(`package-lock.json does not have ${folder} as its package.json does: npm install --package-lock-only`);
    }
  }
  const rust = new RegExp(`^version = "${current.replaceAll('.', '\\.')}"$`, 'm');
  if (!rust.test(texts['Cargo.toml'])) found.push(`Cargo.toml is of another version than ${current}`);
  if (!new RegExp(`^name = "helios-vk"\nversion = "${current.replaceAll('.', '\\.')}"$`, 'm').test(texts['Cargo.lock']))
    found.push(`Cargo.lock has another version of helios-vk than ${current}`);
  for (const [, expected] of texts['binding.js'].matchAll(/bindingPackageVersion !== '([^']+)'/g)) {
    if (expected !== current) {
      found.push(`binding.js expects version ${expected} of the binary: npm run build`);
      break;
    }
  }
  return found;
}

/**
 * The statement that npm signs for a package which a workflow publishes: what it is, and which commit and workflow made it.
 * Form: SLSA's provenance v1 in an in-toto statement, as npm's command line makes it in GitHub's actions.
 * @param {{ name: string, version: string, sha512: string }} packed `sha512` of the .tgz file, in hexadecimal
 * @param {{ repository: string, commit: string, tag: string, workflow: string }} source
 */
export function provenance({ name, version, sha512 }, { repository, commit, tag, workflow }) {
  const url = repository.replace(/^git\+/, '').replace(/\.git$/, '');
  return {
    _type: 'https://in-toto.io/Statement/v1',
    subject: [{ name: `pkg:npm/${name.replace(/^@/, '%40')}@${version}`, digest: { sha512 } }],
    predicateType: 'https://slsa.dev/provenance/v1',
    predicate: {
      buildDefinition: {
        buildType: 'https://slsa-framework.github.io/github-actions-buildtypes/workflow/v1',
        externalParameters: { workflow: { ref: `refs/tags/${tag}`, repository: url, path: workflow } },
        resolvedDependencies: [{ uri: `git+${url}@refs/tags/${tag}`, digest: { gitCommit: commit } }],
      },
      runDetails: { builder: { id: 'https://github.com/actions/runner/github-hosted' } },
    },
  };
}

/**
 * A bill of materials in the CycloneDX form.
 * @typedef {object} Bill
 * @property {{ component: Component }} metadata
 * @property {Component[]} components
 * @property {{ ref: string, dependsOn: string[] }[]} dependencies
 *
 * @typedef {{ 'bom-ref': string, name: string, version: string }} Component
 */

/**
 * The bill of one package, from that of the whole workspace: npm writes the latter whichever package is asked for, and names packages by their
 * folders. Throws an Error if the package is not in it.
 * @param {Bill} whole
 * @param {string} name of the package
 * @param {string[]} own all packages of the workspace, which are no parts of each other
 * @returns {Bill}
 */
export function billOfPackage(whole, name, own) {
  const nameOf = (/** @type {string} */ ref) => ref.slice(0, ref.lastIndexOf('@'));
  const found = [whole.metadata.component, ...whole.components].find((each) => nameOf(each['bom-ref']) === name);
  if (!found) throw new Error(`npm's bill of materials has no ${name}`);
  const parts = new Set([found['bom-ref']]);
  for (const part of parts) {
    const needed = whole.dependencies.find(({ ref }) => ref === part)?.dependsOn ?? [];
    for (const ref of needed) if (!own.includes(nameOf(ref))) parts.add(ref);
  }
  return {
    ...whole,
    metadata: { ...whole.metadata, component: { ...found, name } },
    components: whole.components.filter((each) => each !== found && parts.has(each['bom-ref'])),
    dependencies: whole.dependencies
      .filter(({ ref }) => parts.has(ref))
      .map(({ ref, dependsOn }) => ({ ref, dependsOn: dependsOn.filter((each) => parts.has(each)) })),
  };
}

/** Processors by their numbers in the headers of ELF, Mach-O and PE files. @type {Record<string, Record<number, string>>} */
const PROCESSORS = {
  linux: { 62: 'x64', 183: 'arm64' },
  darwin: { 16777223: 'x64', 16777228: 'arm64' },
  win32: { 34404: 'x64', 43620: 'arm64' },
};

/** The system and the processor that a binary is for, as `process` names them; undefined if it is for none of the release's. @param {Buffer} bytes */
export function systemOf(bytes) {
  if (bytes.length < 64) return undefined;
  const named = (/** @type {string} */ system, /** @type {number} */ number) =>
    number in PROCESSORS[system] ? `${system}-${PROCESSORS[system][number]}` : undefined;
  // 64 bits, little-endian.
  if (bytes.readUInt32BE(0) === 0x7f45_4c46) return bytes[4] === 2 && bytes[5] === 1 ? named('linux', bytes.readUInt16LE(18)) : undefined;
  if (bytes.readUInt32LE(0) === 0xfeed_facf) return named('darwin', bytes.readUInt32LE(4));
  const header = bytes.readUInt32LE(0x3c);
  if (bytes.toString('latin1', 0, 2) !== 'MZ' || header + 6 > bytes.length) return undefined;
  return bytes.toString('latin1', header, header + 4) === 'PE\0\0' ? named('win32', bytes.readUInt16LE(header + 4)) : undefined;
}
