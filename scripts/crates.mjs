// The crates that are part of the binaries: what `THIRD-PARTY.md` and the bill of materials list.

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import { TARGETS } from './platforms/build.mjs';
import { REPOSITORY } from './platforms/tools.mjs';

/**
 * @typedef {{ id: string, name: string, version: string, license: string | null, license_file: string | null,
 *   repository: string | null, source: string | null, manifest_path: string, targets: Array<{ kind: string[] }> }} Crate
 * @typedef {{ id: string, deps: Array<{ pkg: string, dep_kinds: Array<{ kind: string | null }> }> }} Node
 */

/**
 * The crates that are linked into the binary for one target.
 * @param {string} target
 * @returns {Crate[]}
 */
function linked(target) {
  const { status, stdout, stderr, error } = spawnSync(
    'cargo',
    ['metadata', '--format-version', '1', '--locked', '--filter-platform', target],
    { cwd: REPOSITORY, encoding: 'utf8', maxBuffer: 256 << 20 },
  );
  if (error) throw error;
  if (status !== 0) throw new Error(`cargo metadata: ${stderr}`);
  /** @type {{ packages: Crate[], resolve: { root: string, nodes: Node[] } }} */
  const { packages, resolve } = JSON.parse(stdout);
  const crates = new Map(packages.map((crate) => [crate.id, crate]));
  const nodes = new Map(resolve.nodes.map((node) => [node.id, node]));
  /** @type {Set<string>} */
  const reached = new Set();
  const visit = (/** @type {string} */ id) => {
    // A macro runs in the compiler, and so do its dependencies.
    if (reached.has(id) || crates.get(id)?.targets.some(({ kind }) => kind.includes('proc-macro'))) return;
    reached.add(id);
    for (const { pkg, dep_kinds } of nodes.get(id)?.deps ?? []) if (dep_kinds.some(({ kind }) => kind === null)) visit(pkg);
  };
  visit(resolve.root);
  // Crates of this repository have no source.
  return [...reached].flatMap((id) => crates.get(id) ?? []).filter(({ source }) => source !== null);
}

/** The crates of the binaries of all platforms, by name and version. */
export function inAnyBinary() {
  /** @type {Map<string, Crate>} */
  const crates = new Map();
  for (const [target, { rust = target }] of Object.entries(TARGETS)) for (const crate of linked(rust)) crates.set(crate.id, crate);
  return [...crates.values()].sort((a, b) => (`${a.name} ${a.version}` < `${b.name} ${b.version}` ? -1 : 1));
}

/** SHA-256 of the packages of crates, by `NAME VERSION`. @param {string} lock text of Cargo.lock */
export function checksums(lock) {
  const packages = lock.matchAll(/^name = "(.+)"\nversion = "(.+)"\nsource = .+\nchecksum = "([0-9a-f]{64})"$/gm);
  return new Map([...packages].map(([, name, version, sum]) => [`${name} ${version}`, sum]));
}

/**
 * A bill of materials in CycloneDX's form.
 * @param {{ version: string, repository: string }} main
 * @param {Array<Pick<Crate, 'name' | 'version' | 'license' | 'repository'>>} crates
 * @param {Map<string, string>} sums
 */
export function bill(main, crates, sums) {
  const of = (/** @type {string} */ name, /** @type {string} */ version) => `pkg:cargo/${name}@${version}`;
  return {
    $schema: 'http://cyclonedx.org/schema/bom-1.5.schema.json',
    bomFormat: 'CycloneDX',
    specVersion: '1.5',
    version: 1,
    metadata: {
      component: { type: 'library', 'bom-ref': of('helios-vk', main.version), name: 'helios-vk', version: main.version },
    },
    components: crates.map(({ name, version, license, repository }) => ({
      type: 'library',
      'bom-ref': of(name, version),
      name,
      version,
      purl: of(name, version),
      // Older manifests have a slash for "or".
      ...(license ? { licenses: [{ expression: license.replaceAll('/', ' OR ') }] } : {}),
      ...(sums.has(`${name} ${version}`) ? { hashes: [{ alg: 'SHA-256', content: sums.get(`${name} ${version}`) }] } : {}),
      ...(repository ? { externalReferences: [{ type: 'vcs', url: repository }] } : {}),
    })),
    dependencies: [{ ref: of('helios-vk', main.version), dependsOn: crates.map(({ name, version }) => of(name, version)) }],
  };
}

/** The bill of materials of the binaries. */
export function billOfCrates() {
  const read = (/** @type {string} */ file) => readFileSync(join(REPOSITORY, file), 'utf8');
  const { version, repository } = JSON.parse(read('package.json'));
  return bill({ version, repository: repository.url }, inAnyBinary(), checksums(read('Cargo.lock')));
}
